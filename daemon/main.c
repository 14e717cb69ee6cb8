/* tuttid: options -> config -> daemon_run; nothing else. */
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "config-host.h"
#include "config.h"
#include "daemon.h"

#define EXIT_USAGE   2
#define EXIT_NO_FILE 3

static const char usage[] =
        "usage: tuttid [OPTIONS]\n"
        "\n"
        "The collective service of this host: replicas connect to its socket and meet in it.\n"
        "\n"
        "  --config FILE        read settings from FILE (INI)\n"
        "  --socket PATH        where to listen (daemon.socket)\n"
        "  --group NAME         give the socket to this group (daemon.group)\n"
        "  --cpu-devices N      host devices CPU:0 .. N-1 (cpu.devices)\n"
        "  --workers N          threads of all host devices together; 0: one a core (cpu.workers)\n"
        "  --isa NAME           auto, scalar, avx2 or avx512 (cpu.isa)\n"
        "  --log-level NAME     error, warning, notice, info or debug (daemon.log-level)\n"
        "  --set KEY=VALUE      any key of the configuration; may be repeated\n"
        "  --private            end when standard input ends\n"
        "  --check-config       check the configuration, of " TUTTID_CONFIG_FILE "\n"
        "                       unless --config names another file, and end\n"
        "  --version, --help\n"
        "\n"
        "A variable of the environment sets a key too, over the file and under the options: "
        "TUTTID_CPU_WORKERS=4\n"
        "is cpu.workers = 4.\n"
        "\n"
        "Keys of the configuration:\n";

enum {
        OPTION_CONFIG = 256,
        OPTION_SET,
        OPTION_PRIVATE,
        OPTION_CHECK,
        OPTION_VERSION,
        OPTION_HELP,
        OPTION_KEY
};

/* Options that are another spelling of a key: OPTION_KEY + index. */
static const char *const keys[] = { "daemon.socket", "daemon.group", "cpu.devices", "cpu.workers", "cpu.isa",
        "daemon.log-level" };

static const struct option options[] = {
        { "config", required_argument, NULL, OPTION_CONFIG },
        { "set", required_argument, NULL, OPTION_SET },
        { "private", no_argument, NULL, OPTION_PRIVATE },
        { "check-config", no_argument, NULL, OPTION_CHECK },
        { "version", no_argument, NULL, OPTION_VERSION },
        { "help", no_argument, NULL, OPTION_HELP },
        { "socket", required_argument, NULL, OPTION_KEY },
        { "group", required_argument, NULL, OPTION_KEY + 1 },
        { "cpu-devices", required_argument, NULL, OPTION_KEY + 2 },
        { "workers", required_argument, NULL, OPTION_KEY + 3 },
        { "isa", required_argument, NULL, OPTION_KEY + 4 },
        { "log-level", required_argument, NULL, OPTION_KEY + 5 },
        { NULL, 0, NULL, 0 },
};

static int set_pair(struct config *c, const char *pair, char *why, size_t why_bytes) {
        char key[64];
        const char *equals = strchr(pair, '=');
        if (!equals || (size_t)(equals - pair) >= sizeof(key)) {
                snprintf(why, why_bytes, "--set %s: write KEY=VALUE", pair);
                return -1;
        }
        snprintf(key, sizeof(key), "%.*s", (int)(equals - pair), pair);
        return config_set(c, key, equals + 1, why, why_bytes);
}

/* How it was called, and what came of that. */
struct call {
        int argc;
        char **argv;
        bool is_check;
        const char *file; /* that was read last; NULL: none */
        bool has_file;    /* it is there */
        int n_variables;  /* of the environment that are keys */
        int n_set;        /* options that are keys */
};

static int refuse(const char *why) {
        fprintf(stderr, "tuttid: %s\n", why);
        return EXIT_USAGE;
}

static int next_option(const struct call *call) {
        return getopt_long(call->argc, call->argv, "", options, NULL);
}

/* The first look: what is to be done. The exit code of a call that ends here, or -1. */
static int look(struct call *call) {
        int option;
        while ((option = next_option(call)) != -1) {
                if (option == '?')
                        return refuse("tuttid --help lists the options");
                if (option == OPTION_VERSION)
                        return puts("tuttid " TUTTI_VERSION) < 0;
                if (option == OPTION_HELP) {
                        fputs(usage, stdout);
                        config_print_reference(stdout);
                        return 0;
                }
                call->is_check |= option == OPTION_CHECK;
        }
        if (optind < call->argc)
                return refuse("it takes no arguments; tuttid --help lists the options");
        return -1;
}

/* Wherever --config stands. A check of nothing in particular is one of the file that the unit passes. */
static int read_files(struct config *c, struct call *call, char *why, size_t why_bytes) {
        int option, r;
        optind = 1;
        while ((option = next_option(call)) != -1) {
                if (option != OPTION_CONFIG)
                        continue;
                call->file = optarg;
                call->has_file = true;
                if ((r = config_read(c, optarg, why, why_bytes)) < 0)
                        return r;
        }
        if (call->file || !call->is_check)
                return 0;
        call->file = TUTTID_CONFIG_FILE;
        r = config_read(c, call->file, why, why_bytes);
        call->has_file = r != -ENOENT;
        return call->has_file ? r : 0;
}

static int apply(struct config *c, int option, char *why, size_t why_bytes) {
        if (option == OPTION_SET)
                return set_pair(c, optarg, why, why_bytes);
        if (option >= OPTION_KEY)
                return config_set(c, keys[option - OPTION_KEY], optarg, why, why_bytes);
        if (option == OPTION_PRIVATE)
                c->is_private = true;
        return 0;
}

static int read_options(struct config *c, struct call *call, char *why, size_t why_bytes) {
        int option, r;
        optind = 1;
        while ((option = next_option(call)) != -1) {
                if ((r = apply(c, option, why, why_bytes)) < 0)
                        return r;
                call->n_set += option == OPTION_SET || option >= OPTION_KEY;
        }
        return 0;
}

static int make_config(struct config *ret, struct call *call, char *why, size_t why_bytes) {
        config_init(ret);
        config_know_names(ret, &host_users);
        int r = read_files(ret, call, why, why_bytes);
        if (r < 0)
                return r;
        call->n_variables = config_take_environment(ret, (const char *const *)environ, why, why_bytes);
        if (call->n_variables < 0)
                return call->n_variables;
        r = read_options(ret, call, why, why_bytes);
        if (r == 0)
                r = config_read_tuning(ret, why, why_bytes);
        return r < 0 ? r : config_check(ret, why, why_bytes);
}

/* config_source: the same call again. */
static int read_again(const void *data, struct config *ret, char *why, size_t why_bytes) {
        struct call call = *(const struct call *)data;
        return make_config(ret, &call, why, why_bytes);
}

/* What is well in itself may name what is not there. */
static int check(const struct config *c, const struct call *call) {
        struct findings found;
        int n_errors = 0;
        host_look(c, &found);
        for (size_t i = 0; i < found.n; i++) {
                fprintf(stderr, "tuttid: %s%s\n",
                        found.all[i].is_error ? "" : "warning: ", found.all[i].text);
                n_errors += found.all[i].is_error;
        }
        if (n_errors)
                return EXIT_USAGE;
        if (!call->has_file) {
                fprintf(stderr,
                        "tuttid: %s: there is no such file, so none was checked; name another with --config "
                        "FILE\n",
                        call->file);
                return EXIT_NO_FILE;
        }
        printf("the configuration is well: %s", call->file);
        if (call->n_variables)
                printf(", %d variable%s of the environment", call->n_variables,
                        call->n_variables == 1 ? "" : "s");
        if (call->n_set)
                printf(", %d option%s", call->n_set, call->n_set == 1 ? "" : "s");
        return puts("") < 0;
}

int main(int argc, char **argv) {
        struct config config;
        char why[768];
        struct call call = { .argc = argc, .argv = argv };
        int code = look(&call);
        if (code >= 0)
                return code;
        if (make_config(&config, &call, why, sizeof(why)) < 0)
                return refuse(why);
        if (call.is_check)
                return check(&config, &call);
        log_set_level(config.log_level);
        log_open();
        return daemon_run(&config, &(struct config_source){ .read = read_again, .data = &call });
}
