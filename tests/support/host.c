#include "host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <tutti/admin.h>
#include "program.h"
#include "unit.h"

#define MAX_ARGS       32
#define START_SECONDS  5
#define END_SECONDS    5
#define SETTLE_SECONDS 2

struct host {
        pid_t pid;   /* 0: not running */
        pid_t owner; /* the test's process */
        char directory[128], socket[160];
        const char *argv[MAX_ARGS + 4];
        int log_fd;
        char *log;
        double start_seconds;
        struct host_counters baseline; /* what tuttid holds when nobody has asked it for anything */
        struct host *next;
};

/* Those of this test that have not been stopped. */
static struct host *hosts;

static double now(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void pause_ms(long ms) {
        nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

/* --- the end of a test that did not stop its hosts --- */

static void print_logs(void) {
        for (struct host *h = hosts; h; h = h->next) {
                if (h->owner != getpid())
                        return;
                fprintf(stderr, "--- tuttid %d (%s) wrote:\n%s---\n", h->pid, h->socket, host_log(h));
                if (h->pid)
                        kill(h->pid, SIGKILL);
        }
}

static void list_host(struct host *h) {
        static bool is_registered;
        if (!is_registered)
                atexit(print_logs);
        is_registered = true;
        h->next = hosts;
        hosts = h;
}

static void unlist_host(const struct host *h) {
        for (struct host **p = &hosts; *p; p = &(*p)->next)
                if (*p == h) {
                        *p = h->next;
                        return;
                }
}

/* --- starting --- */

static void fail_if_ended(struct host *h) {
        int code = program_wait(h->pid, 0);
        if (code < 0)
                return;
        h->pid = 0;
        ck_abort_msg("tuttid ended with %d instead of serving:\n%s", code, host_log(h));
}

static void wait_until_it_serves(struct host *h) {
        double begin = now(), limit = START_SECONDS * unit_scale();
        struct tutti *t;
        enum tutti_status status;
        while ((status = tutti_open(h->socket, &t)) != TUTTI_OK) {
                fail_if_ended(h);
                if (status != TUTTI_NO_DAEMON || now() - begin > limit)
                        ck_abort_msg("tuttid does not serve: %s\n%s", tutti_error(), host_log(h));
                pause_ms(1);
        }
        h->start_seconds = now() - begin;
        tutti_close(t);
}

void host_start_again(struct host *h) {
        ck_assert_int_eq(h->pid, 0);
        h->pid = program_spawn(h->argv, h->log_fd, h->log_fd);
        wait_until_it_serves(h);
}

static void set_arguments(struct host *h, const char *const *args) {
        int n = 0;
        h->argv[n++] = program_tuttid();
        h->argv[n++] = "--socket";
        h->argv[n++] = h->socket;
        for (int i = 0; args && args[i]; i++) {
                ck_assert_int_lt(i, MAX_ARGS);
                h->argv[n++] = args[i];
        }
}

struct host *host_start(const char *const *args) {
        static int n_started;
        struct host *h = calloc(1, sizeof(*h));
        ck_assert_ptr_nonnull(h);
        h->owner = getpid();
        snprintf(h->directory, sizeof(h->directory), "%s/h%d", unit_directory(), n_started++);
        snprintf(h->socket, sizeof(h->socket), "%s/tuttid.sock", h->directory);
        ck_assert_msg(mkdir(h->directory, 0755) == 0, "mkdir %s: %m", h->directory);
        h->log_fd = open(unit_directory(), O_RDWR | O_APPEND | O_TMPFILE | O_CLOEXEC, 0600);
        ck_assert_msg(h->log_fd >= 0, "log in %s: %m", unit_directory());
        set_arguments(h, args);
        list_host(h);
        host_start_again(h);
        host_counters(h, &h->baseline);
        return h;
}

const char *host_directory(const struct host *h) {
        return h->directory;
}

const char *host_socket(const struct host *h) {
        return h->socket;
}

pid_t host_pid(const struct host *h) {
        return h->pid;
}

double host_start_seconds(const struct host *h) {
        return h->start_seconds;
}

const char *host_log(struct host *h) {
        free(h->log);
        h->log = program_read_all(h->log_fd);
        return h->log;
}

/* --- counters --- */

static void ask(struct host *h, struct tutti *t, enum tutti_admin_what what, struct tutti_answer **ret) {
        enum tutti_status status = tutti_admin_ask(t, what, NULL, NULL, ret);
        ck_assert_msg(status == TUTTI_OK, "tuttid does not tell: %s\n%s", tutti_error(), host_log(h));
}

static void add_daemon(struct host_counters *c, const struct tutti_row_daemon *row) {
        c->n_sessions = row->n_sessions - 1;
        c->n_groups = row->n_groups;
        c->mapped_bytes = row->mapped_bytes;
        c->n_buffers = row->n_buffers;
        c->n_pending = row->n_pending;
        c->n_ejected = (uint64_t)row->n_ejected;
        c->n_collectives = row->n_collectives;
        c->n_prepared = row->n_prepared;
        c->n_started = row->n_started;
        c->n_replayed = row->n_replayed;
        c->n_on_lane = row->n_on_lane;
        c->n_passed = row->n_passed;
        c->n_assisted = row->n_assisted;
        c->n_rings = row->n_rings;
        c->n_regrets = row->n_regrets;
}

static void add_quota(struct host_counters *c, const struct tutti_row_quota *row) {
        ck_assert_uint_lt(c->n_quotas, HOST_MAX_QUOTAS);
        struct host_quota *quota = &c->quotas[c->n_quotas++];
        quota->uid = row->uid;
        quota->used = row->used;
        snprintf(quota->name, sizeof(quota->name), "%s", row->name);
}

static void add_rows(struct host_counters *c, const struct tutti_answer *answer) {
        for (uint32_t i = 0; i < answer->n_rows; i++)
                if (answer->rows[i].type == TUTTI_ROW_DAEMON)
                        add_daemon(c, &answer->rows[i].daemon);
                else if (answer->rows[i].type == TUTTI_ROW_QUOTA)
                        add_quota(c, &answer->rows[i].quota);
}

/* The one that asked before may still be on its way out, and count. */
static void open_to_ask(struct host *h, struct tutti **ret) {
        double limit = now() + SETTLE_SECONDS * unit_scale();
        enum tutti_status status;
        while ((status = tutti_open(h->socket, ret)) == TUTTI_QUOTA && now() < limit)
                pause_ms(5);
        ck_assert_msg(status == TUTTI_OK, "%s\n%s", tutti_error(), host_log(h));
}

void host_counters(struct host *h, struct host_counters *ret) {
        static const enum tutti_admin_what questions[] = { TUTTI_ADMIN_STATUS, TUTTI_ADMIN_QUOTA };
        struct tutti *t;
        *ret = (struct host_counters){ 0 };
        open_to_ask(h, &t);
        for (size_t i = 0; i < sizeof(questions) / sizeof(*questions); i++) {
                struct tutti_answer *answer;
                ask(h, t, questions[i], &answer);
                add_rows(ret, answer);
                tutti_answer_free(answer);
        }
        tutti_close(t);
}

int host_n_descriptors(const struct host *h) {
        char path[64];
        int n = 0;
        snprintf(path, sizeof(path), "/proc/%d/fd", h->pid);
        DIR *dir = opendir(path);
        ck_assert_msg(dir != NULL, "%s: %m", path);
        for (struct dirent *e = readdir(dir); e; e = readdir(dir))
                n += e->d_name[0] != '.';
        closedir(dir);
        return n;
}

static uint64_t baseline_of(const struct host *h, const struct host_quota *quota) {
        const struct host_counters *c = &h->baseline;
        for (uint32_t i = 0; i < c->n_quotas; i++)
                if (c->quotas[i].uid == quota->uid && strcmp(c->quotas[i].name, quota->name) == 0)
                        return c->quotas[i].used;
        return 0;
}

/* Writes what is still held into `why`; whether nothing is. */
static bool is_all_given_back(const struct host *h, const struct host_counters *c, char *why, size_t size) {
        int n = 0;
        if (c->n_sessions || c->n_groups || c->mapped_bytes || c->n_buffers || c->n_pending || c->n_prepared)
                n = snprintf(why, size,
                        "%u sessions, %u groups, %llu mapped bytes, %llu buffers, %llu pending",
                        c->n_sessions, c->n_groups, (unsigned long long)c->mapped_bytes,
                        (unsigned long long)c->n_buffers, (unsigned long long)c->n_pending);
        for (uint32_t i = 0; i < c->n_quotas && (size_t)n < size; i++)
                if (c->quotas[i].used > baseline_of(h, &c->quotas[i]) &&
                        !strstr(c->quotas[i].name, "recorder"))
                        n += snprintf(why + n, size - (size_t)n, " %s of uid %u: %llu, after the start %llu;",
                                c->quotas[i].name, c->quotas[i].uid, (unsigned long long)c->quotas[i].used,
                                (unsigned long long)baseline_of(h, &c->quotas[i]));
        return n == 0;
}

void host_expect_counters_zero(struct host *h) {
        double limit = now() + SETTLE_SECONDS * unit_scale();
        char why[1024] = "";
        struct host_counters c;
        for (;;) {
                host_counters(h, &c);
                if (is_all_given_back(h, &c, why, sizeof(why)))
                        return;
                if (now() > limit)
                        ck_abort_msg("not given back: %s\n%s", why, host_log(h));
                pause_ms(5);
        }
}

void host_expect_sessions(struct host *h, uint32_t n) {
        double limit = now() + SETTLE_SECONDS * unit_scale();
        struct host_counters c;
        for (;;) {
                host_counters(h, &c);
                if (c.n_sessions == n)
                        return;
                if (now() > limit)
                        ck_abort_msg("%u sessions, not %u\n%s", c.n_sessions, n, host_log(h));
                pause_ms(5);
        }
}

/* --- ending --- */

static bool may_stay(const char *name) {
        return name[0] == '.' || strcmp(name, "tuttid.sock") == 0 || strcmp(name, "tuttid.lock") == 0;
}

static void expect_nothing_left(struct host *h) {
        DIR *dir = opendir(h->directory);
        ck_assert_msg(dir != NULL, "%s: %m", h->directory);
        for (struct dirent *e = readdir(dir); e; e = readdir(dir))
                ck_assert_msg(may_stay(e->d_name), "tuttid left %s/%s", h->directory, e->d_name);
        closedir(dir);
}

static void expect_sanitizers_content(struct host *h) {
        const char *log = host_log(h);
        ck_assert_msg(!strstr(log, "Sanitizer:") && !strstr(log, "runtime error:"), "tuttid:\n%s", log);
}

void host_end(struct host *h) {
        ck_assert_int_eq(kill(h->pid, SIGTERM), 0);
        int code = program_wait(h->pid, END_SECONDS);
        ck_assert_msg(code >= 0, "tuttid has not ended after SIGTERM:\n%s", host_log(h));
        h->pid = 0;
        ck_assert_msg(code == 0, "tuttid ended with %d after SIGTERM:\n%s", code, host_log(h));
        expect_sanitizers_content(h);
        expect_nothing_left(h);
}

void host_kill9(struct host *h) {
        ck_assert_int_eq(kill(h->pid, SIGKILL), 0);
        ck_assert_int_eq(program_wait(h->pid, END_SECONDS), 128 + SIGKILL);
        h->pid = 0;
        expect_sanitizers_content(h);
}

void host_stop(struct host *h) {
        if (h->pid)
                host_end(h);
        unlist_host(h);
        close(h->log_fd);
        free(h->log);
        free(h);
}
