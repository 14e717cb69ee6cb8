#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <tutti/admin.h>
#include "ctl.h"

#define MAX_GRACE_S 86400.0

static const struct option long_options[] = {
        { "job", required_argument, NULL, 'j' },
        { "private", no_argument, NULL, 'p' },
        { "socket", required_argument, NULL, 's' },
        { "prefix", required_argument, NULL, 'x' },
        { "no-prefix", no_argument, NULL, 'r' },
        { "raw", no_argument, NULL, 'r' },
        { "grace", required_argument, NULL, 'g' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
};

static bool read_count(const char *s, uint32_t *ret) {
        char *end;
        unsigned long n;

        errno = 0;
        n = strtoul(s, &end, 10);
        if (errno || *end || *s < '0' || *s > '9' || n < 1 || n > TUTTI_MAX_WORLD)
                return false;
        *ret = (uint32_t)n;
        return true;
}

static bool read_grace(const char *s, uint64_t *ret) {
        char *end;
        double seconds = strtod(s, &end);

        if (end == s || *end || !(seconds >= 0 && seconds <= MAX_GRACE_S))
                return false;
        *ret = (uint64_t)(seconds * 1e9);
        return true;
}

static bool read_prefix(const char *s, enum prefix *ret) {
        static const char *const names[] = {
                [PREFIX_AUTO] = "auto", [PREFIX_ALL] = "all", [PREFIX_NONE] = "none"
        };

        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
                if (strcmp(s, names[i]) == 0) {
                        *ret = (enum prefix)i;
                        return true;
                }
        return false;
}

/* -1: go on; else the exit code. */
static int take_option(const struct command *self, struct run_options *o, int c, char **argv) {
        switch (c) {
        case 'n':
                return read_count(optarg, &o->n) ? -1 : command_misused(self, "-n %s: use 1 to 1024", optarg);
        case 'j':
                o->job = optarg;
                return *optarg && strlen(optarg) < 64 ? -1
                                                      : command_misused(self, "--job: use 1 to 63 bytes");
        case 'p': o->is_private = true; return -1;
        case 's': o->socket = optarg; return -1;
        case 'x':
                return read_prefix(optarg, &o->prefix)
                               ? -1
                               : command_misused(self, "--prefix %s: use auto, all or none", optarg);
        case 'r': o->prefix = PREFIX_NONE; return -1;
        case 'g':
                return read_grace(optarg, &o->grace_ns)
                               ? -1
                               : command_misused(self, "--grace %s: use seconds", optarg);
        case 'h': command_print_help(self, stdout); return CTL_WELL;
        default: return command_misused(self, "unknown or incomplete option %s", argv[optind - 1]);
        }
}

/* -1: go on; else the exit code. */
static int read_options(const struct command *self, struct run_options *o, int argc, char **argv) {
        int c, r;

        opterr = 0;
        optind = 0;
        while ((c = getopt_long(argc, argv, "+n:j:s:h", long_options, NULL)) != -1) {
                r = take_option(self, o, c, argv);
                if (r >= 0)
                        return r;
        }
        o->program = argv + optind;
        if (!o->n)
                return command_misused(self, "how many replicas? -n N is missing");
        if (optind == argc)
                return command_misused(self, "which program?");
        if (o->is_private && o->socket)
                return command_misused(self, "--private and --socket exclude each other");
        return -1;
}

static int set_up_signals(struct launch *l) {
        static const int taken[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP,
                SIGCHLD };
        sigset_t mask;

        sigemptyset(&mask);
        for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++)
                sigaddset(&mask, taken[i]);
        signal(SIGPIPE, SIG_IGN);
        if (sigprocmask(SIG_BLOCK, &mask, &l->old_mask) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
                return -errno;
        l->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
        return l->signal_fd < 0 ? -errno : 0;
}

static void set_up_sinks(struct launch *l) {
        bool is_shared = l->options->prefix == PREFIX_NONE || l->options->prefix == PREFIX_AUTO;

        sink_init(&l->out, STDOUT_FILENO);
        sink_init(&l->err, STDERR_FILENO);
        l->out.is_shared_terminal = is_shared && isatty(STDOUT_FILENO);
        l->err.is_shared_terminal = is_shared && isatty(STDERR_FILENO);
}

static int set_up(struct launch *l) {
        uint32_t n = l->options->n;

        set_up_sinks(l);
        if (l->options->job)
                snprintf(l->job, sizeof(l->job), "%s", l->options->job);
        else
                snprintf(l->job, sizeof(l->job), "run-%d", (int)getpid());
        /* NOLINTNEXTLINE(clang-analyzer-optin.portability.UnixAPI): read_options refuses 0 */
        l->replicas = calloc(n, sizeof(*l->replicas));
        l->streams = calloc(2 * n, sizeof(*l->streams));
        l->polls = calloc(2 * n + LAUNCH_MORE_POLLS, sizeof(*l->polls));
        if (!l->replicas || !l->streams || !l->polls)
                return -ENOMEM;
        l->n_streams = 2 * n;
        for (uint32_t i = 0; i < l->n_streams; i++)
                l->streams[i].fd = -1;
        return set_up_signals(l);
}

static void tear_down(struct launch *l) {
        for (uint32_t i = 0; i < l->n_streams; i++)
                stream_close(&l->streams[i]);
        free(l->replicas);
        free(l->streams);
        free(l->polls);
        sink_deinit(&l->out);
        sink_deinit(&l->err);
        if (l->signal_fd >= 0)
                close(l->signal_fd);
}

/* Replicas may change their directory: they get an absolute path. */
static int set_socket(struct launch *l, const char *path) {
        char directory[4096] = "";
        int n;

        if (path[0] != '/' && !getcwd(directory, sizeof(directory)))
                return -errno;
        n = snprintf(l->socket, sizeof(l->socket), "%s%s%s", directory, *directory ? "/" : "", path);
        return n < 0 || (size_t)n >= sizeof(l->socket) ? -ENAMETOOLONG : 0;
}

/* Nobody is started who could not reach tuttid. */
static int check_socket(struct launch *l, const char *path) {
        struct tutti *t = NULL;
        int r = set_socket(l, path);

        if (r < 0) {
                launch_say(l, "tuttictl run: socket path %s: %s.", path, strerror(-r));
                return CTL_UNREACHABLE;
        }
        switch ((int)tutti_open(l->socket, &t)) {
        case TUTTI_OK: tutti_close(t); return 0;
        case TUTTI_PERMISSION: launch_say(l, "%s", tutti_error()); return CTL_NOT_ALLOWED;
        default: launch_say(l, "%s", tutti_error()); return CTL_UNREACHABLE;
        }
}

/* The one that was named, else the one that is there, else a private one. */
static int provide_tuttid(struct launch *l) {
        char path[108];

        if (l->options->is_private)
                return private_start(l);
        if (l->options->socket)
                return check_socket(l, l->options->socket);
        switch ((int)tutti_admin_socket_path(path, sizeof(path))) {
        case TUTTI_OK: return check_socket(l, path);
        case TUTTI_NO_DAEMON: return private_start(l);
        case TUTTI_PERMISSION: launch_say(l, "%s", tutti_error()); return CTL_NOT_ALLOWED;
        default: launch_say(l, "%s", tutti_error()); return CTL_UNREACHABLE;
        }
}

static int launch_run(struct launch *l) {
        int r = provide_tuttid(l);

        if (r == 0) {
                r = replicas_start(l);
                while (l->n_alive)
                        launch_turn(l, -1);
                if (r == 0)
                        r = l->exit_code;
                replicas_sweep(l);
        }
        /* Nothing that has to end waits for somebody who reads. */
        private_stop(l);
        launch_finish(l);
        return r;
}

static int run_main(const struct command *self, int argc, char **argv) {
        struct run_options options = { .grace_ns = UINT64_C(2000000000) };
        struct launch l = { .options = &options, .signal_fd = -1 };
        int r = read_options(self, &options, argc, argv);

        if (r >= 0)
                return r;
        l.tuttid.directory_fd = l.tuttid.stdin_fd = l.tuttid.stream.fd = -1;
        r = set_up(&l);
        if (r == 0) {
                r = launch_run(&l);
        } else {
                launch_say(&l, "tuttictl run: %s.", strerror(-r));
                r = CTL_IO;
        }
        tear_down(&l);
        return r;
}

const struct command command_run = {
        .name = "run",
        .usage = "run -n N [OPTIONS] [--] PROGRAM [ARGS...]",
        .summary = "starts N replicas of a program and ends them together",
        .help = "  -n N                     how many replicas, 1 to 1024\n"
                "  -j, --job JOB            the job's name (run-PID)\n"
                "  --private                start a tuttid for this run alone; without it that is\n"
                "                           done only when no socket path exists\n"
                "  -s, --socket PATH        use the tuttid that serves PATH\n"
                "  --prefix auto|all|none   whose lines begin with \"R2 | \": auto (default) with more\n"
                "                           than one replica all but rank 0's, which come as they are,\n"
                "                           so that a progress line works; none leaves the output alone\n"
                "  --raw, --no-prefix       the same as --prefix none\n"
                "  --grace SECONDS          between TERM and KILL when one has failed (2)\n"
                "\n"
                "A replica finds TUTTI_RANK, TUTTI_WORLD_SIZE, TUTTI_JOB and TUTTI_SOCKET in its\n"
                "environment. HUP, INT, QUIT, TERM, USR1, USR2 and CONT are passed on. When one fails,\n"
                "the others are ended. Rank 0 reads standard input unless it is a terminal.\n"
                "\n"
                "Exit: 0, or the first failed replica's code (128 + signal); 3 no tuttid,\n"
                "77 its socket is closed to this user, 126 or 127 the program cannot be started.\n",
        .options = "-n N --job JOB --private --socket PATH --prefix auto|all|none --raw --no-prefix "
                   "--grace SECONDS",
        .main = run_main,
};
