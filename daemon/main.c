/* tuttid: options -> config -> daemon_run; nothing else. */
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "config-host.h"
#include "config.h"
#include "daemon.h"

#define EXIT_USAGE 2

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
        "  --check-config       check the configuration and end\n"
        "  --version, --help\n"
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

struct arguments {
        int argc;
        char **argv;
};

/* The file first, wherever --config stands: options override it. */
static int read_file(struct config *c, const struct arguments *a, char *why, size_t why_bytes) {
        int option;
        optind = 1;
        while ((option = getopt_long(a->argc, a->argv, "", options, NULL)) != -1)
                if (option == OPTION_CONFIG && config_read(c, optarg, why, why_bytes) < 0)
                        return -1;
        optind = 1;
        return 0;
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

/* config_source: the same arguments again, which were well at the start. */
static int read_again(const void *data, struct config *ret, char *why, size_t why_bytes) {
        const struct arguments *a = data;
        int option, r;
        config_init(ret);
        ret->names = &host_users;
        if (read_file(ret, a, why, why_bytes) < 0)
                return -EINVAL;
        while ((option = getopt_long(a->argc, a->argv, "", options, NULL)) != -1)
                if ((r = apply(ret, option, why, why_bytes)) < 0)
                        return r;
        r = config_read_tuning(ret, why, why_bytes);
        return r < 0 ? r : config_check(ret, why, why_bytes);
}

static int refuse(const char *why) {
        fprintf(stderr, "tuttid: %s\n", why);
        return EXIT_USAGE;
}

/* What is well in itself may name what is not there. */
static int check(const struct config *c) {
        struct findings found;
        int n_errors = 0;
        host_look(c, &found);
        for (size_t i = 0; i < found.n; i++) {
                fprintf(stderr, "tuttid: %s%s\n",
                        found.all[i].is_error ? "" : "warning: ", found.all[i].text);
                n_errors += found.all[i].is_error;
        }
        return n_errors ? EXIT_USAGE : puts("the configuration is well") < 0;
}

int main(int argc, char **argv) {
        struct config config;
        char why[512];
        int option;
        bool is_check = false;
        config_init(&config);
        config.names = &host_users;
        opterr = 0;
        const struct arguments arguments = { argc, argv };
        if (read_file(&config, &arguments, why, sizeof(why)) < 0)
                return refuse(why);
        opterr = 1;
        while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
                if (option == '?')
                        return refuse("tuttid --help lists the options");
                if (option == OPTION_VERSION)
                        return puts("tuttid " TUTTI_VERSION) < 0;
                if (option == OPTION_HELP) {
                        fputs(usage, stdout);
                        config_print_reference(stdout);
                        return 0;
                }
                is_check |= option == OPTION_CHECK;
                if (apply(&config, option, why, sizeof(why)) < 0)
                        return refuse(why);
        }
        if (optind < argc)
                return refuse("it takes no arguments; tuttid --help lists the options");
        if (config_read_tuning(&config, why, sizeof(why)) < 0 || config_check(&config, why, sizeof(why)) < 0)
                return refuse(why);
        if (is_check)
                return check(&config);
        log_set_level(config.log_level);
        log_open();
        return daemon_run(&config, &(struct config_source){ .read = read_again, .data = &arguments });
}
