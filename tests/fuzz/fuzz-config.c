/* Any text as a configuration file, and its lines as options of the command line and as variables. What is
 * refused says where and why and changes nothing; what is taken keeps to what config_describe allows. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/fd.h"
#include "config.h"

#define MAX_TEXT 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file that holds the input, under a name of its own. */
struct paper {
        int fd;
        char path[64];
};

static struct paper *paper(void) {
        static struct paper p = { .fd = -1 };
        if (p.fd < 0) {
                p.fd = memfd_create("config", MFD_CLOEXEC);
                CHECK(p.fd >= 0);
                snprintf(p.path, sizeof(p.path), "/proc/self/fd/%d", p.fd);
        }
        return &p;
}

static void write_paper(const uint8_t *data, size_t size) {
        CHECK(ftruncate(paper()->fd, 0) == 0);
        CHECK(pwrite(paper()->fd, data, size, 0) == (ssize_t)size);
}

/* --- what must hold --- */

static bool is_between(uint64_t value, uint64_t least, uint64_t most) {
        return value >= least && value <= most;
}

static void check_values(const struct config *c) {
        char why[512] = "";
        CHECK(memchr(c->socket, '\0', sizeof(c->socket)) && c->socket[0] == '/');
        CHECK(c->admins.n <= MAX_NAMED_USERS);
        CHECK(memchr(c->socket_group, '\0', sizeof(c->socket_group)));
        CHECK(is_between(c->n_cpu_devices, 1, MAX_CPU_DEVICES) && c->n_workers <= MAX_WORKERS);
        CHECK(c->chunk_bytes > 0 && c->chunk_bytes % 64 == 0);
        CHECK((unsigned int)c->isa <= ISA_AVX512 && (unsigned int)c->log_level <= LOG_LEVEL_DEBUG);
        CHECK(c->join_timeout_ns > 0 && c->stall_warn_ns > 0);
        int r = config_check(c, why, sizeof(why));
        CHECK(r == 0 || why[0]);
        CHECK(r < 0 || strlen(c->socket) <= 107);
}

/* Whether both were told the same. */
static bool is_same(const struct config *a, const struct config *b) {
        return memcmp(a, b, sizeof(*a)) == 0;
}

static void init(struct config *c) {
        memset(c, 0, sizeof(*c)); /* also between the members */
        config_init(c);
}

static void try_file(void) {
        static struct config c, before, again;
        char why[512] = "";
        init(&c);
        before = c;
        int r = config_read(&c, paper()->path, why, sizeof(why));
        CHECK(memchr(why, '\0', sizeof(why)));
        if (r < 0) {
                CHECK(is_same(&c, &before));
                CHECK(strncmp(why, paper()->path, strlen(paper()->path)) == 0);
                return;
        }
        check_values(&c);
        again = c;
        CHECK(config_read(&again, paper()->path, why, sizeof(why)) == 0);
        CHECK(is_same(&c, &again));
}

/* "key=value", as --set takes it. */
static void try_option(struct config *c, char *line) {
        static struct config before;
        char why[512] = "", *value = strchr(line, '=');
        if (!value)
                return;
        *value++ = '\0';
        before = *c;
        int r = config_set(c, line, value, why, sizeof(why));
        CHECK(memchr(why, '\0', sizeof(why)));
        if (r < 0)
                CHECK(why[0] && is_same(c, &before));
        check_values(c);
}

static void try_options(const uint8_t *data, size_t size) {
        static char text[MAX_TEXT + 1];
        static struct config c;
        char *rest = text, *line;
        memcpy(text, data, size);
        text[size] = '\0';
        init(&c);
        while ((line = strsep(&rest, "\n")))
                try_option(&c, line);
}

#define MAX_VARIABLES 64

/* The same lines, each behind the prefix that makes it ours. */
static void try_environment(const uint8_t *data, size_t size) {
        static char text[MAX_TEXT + 1], variables[MAX_VARIABLES][MAX_TEXT + 16];
        static struct config c, before;
        const char *environment[MAX_VARIABLES + 1] = { NULL };
        char *rest = text, *line, why[512] = "";
        memcpy(text, data, size);
        text[size] = '\0';
        for (size_t n = 0; n < MAX_VARIABLES && (line = strsep(&rest, "\n")); n++) {
                snprintf(variables[n], sizeof(variables[n]), "TUTTID_%s", line);
                environment[n] = variables[n];
        }
        init(&c);
        before = c;
        int r = config_take_environment(&c, environment, why, sizeof(why));
        CHECK(memchr(why, '\0', sizeof(why)));
        if (r < 0)
                CHECK(strncmp(why, "TUTTID_", 7) == 0 && is_same(&c, &before));
        check_values(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        if (size > MAX_TEXT)
                return 0;
        write_paper(data, size);
        try_file();
        try_options(data, size);
        try_environment(data, size);
        return 0;
}
