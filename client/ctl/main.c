#include <errno.h>
#include <string.h>
#include <tutti/tutti.h>
#include "completion.h"
#include "json.h"
#include "query.h"

static int version_main(const struct command *self, int argc, char **argv);
static int help_main(const struct command *self, int argc, char **argv);
static int completion_main(const struct command *self, int argc, char **argv);

static const struct command command_version = {
        .name = "version",
        .usage = "version [--json]",
        .summary = "the versions of tuttictl and libtutti",
        .help = "",
        .main = version_main,
};

static const struct command command_help = {
        .name = "help",
        .usage = "help [COMMAND]",
        .summary = "this list, or more about one command",
        .help = "",
        .main = help_main,
};

static const struct command command_completion = {
        .name = "completion",
        .usage = "completion bash | zsh",
        .summary = "completion of command lines, for a shell to read",
        .help = "  source <(tuttictl completion bash)            for this shell\n"
                "  tuttictl completion zsh >~/.zfunc/_tuttictl   in a directory of $fpath\n"
                "\n"
                "`meson install` puts both where the shells look by themselves.\n",
        .main = completion_main,
};

static const struct command *const commands[] = {
        &command_run,
        &command_status,
        &command_top,
        &command_groups,
        &command_replicas,
        &command_buffers,
        &command_health,
        &command_stats,
        &command_dump,
        &command_trace,
        &command_doctor,
        &command_diag,
        &command_drain,
        &command_kick,
        &command_log_level,
        &command_ready,
        &command_quota,
        &command_plan,
        &command_completion,
        &command_version,
        &command_help,
};

#define N_COMMANDS (sizeof(commands) / sizeof(*commands))

static const struct command *command_find(const char *name) {
        for (size_t i = 0; i < N_COMMANDS; i++)
                if (strcmp(commands[i]->name, name) == 0)
                        return commands[i];
        return NULL;
}

static void print_overview(FILE *out) {
        fprintf(out, "usage: tuttictl COMMAND [OPTIONS]\n\n");
        for (size_t i = 0; i < N_COMMANDS; i++)
                fprintf(out, "  %-10s  %s\n", commands[i]->name, commands[i]->summary);
        fprintf(out, "\n`tuttictl COMMAND --help` says more. tuttid is sought at $TUTTI_SOCKET, else at\n"
                     "/run/tutti/tuttid.sock and $XDG_RUNTIME_DIR/tutti/tuttid.sock.\n");
}

static int unknown_command(const char *name) {
        fprintf(stderr, "tuttictl: there is no command %s.\n\n", name);
        print_overview(stderr);
        return CTL_USAGE;
}

static int version_main(const struct command *self, int argc, char **argv) {
        bool json = argc > 1 && strcmp(argv[1], "--json") == 0;

        if (argc > 1 + json)
                return command_misused(self, "unexpected argument %s", argv[1 + json]);
        if (json) {
                struct query q = { .page = page_of(stdout) };
                json_t *j = json_object();

                json_put(&j, "tuttictl", json_text(TUTTICTL_VERSION));
                json_put(&j, "libtutti", json_text(tutti_version()));
                return query_put_json(&q, j, CTL_WELL);
        }
        printf("tuttictl %s (libtutti %s)\n", TUTTICTL_VERSION, tutti_version());
        return CTL_WELL;
}

static int help_main(const struct command *self, int argc, char **argv) {
        const struct command *about = argc > 1 ? command_find(argv[1]) : NULL;

        if (argc > 2)
                return command_misused(self, "unexpected argument %s", argv[2]);
        if (argc > 1 && !about)
                return unknown_command(argv[1]);
        if (about)
                command_print_help(about, stdout);
        else
                print_overview(stdout);
        return CTL_WELL;
}

static int completion_main(const struct command *self, int argc, char **argv) {
        if (argc > 2)
                return command_misused(self, "unexpected argument %s", argv[2]);
        if (argc == 2 && strcmp(argv[1], "bash") == 0)
                completion_write(commands, N_COMMANDS, SHELL_BASH, stdout);
        else if (argc == 2 && strcmp(argv[1], "zsh") == 0)
                completion_write(commands, N_COMMANDS, SHELL_ZSH, stdout);
        else
                return command_misused(self, "for which shell? bash or zsh");
        return CTL_WELL;
}

static int dispatch(int argc, char **argv) {
        const struct command *command;

        if (argc < 2) {
                print_overview(stderr);
                return CTL_USAGE;
        }
        if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
                return help_main(&command_help, 1, argv);
        if (strcmp(argv[1], "--version") == 0)
                return version_main(&command_version, 1, argv);
        command = command_find(argv[1]);
        if (!command)
                return unknown_command(argv[1]);
        if (argc > 2 && strcmp(argv[2], "--help") == 0) {
                command_print_help(command, stdout);
                return CTL_WELL;
        }
        if (!command->main)
                return query_main(command, argc - 1, argv + 1);
        return command->main(command, argc - 1, argv + 1);
}

int main(int argc, char **argv) {
        int r = dispatch(argc, argv);

        if (fflush(stdout) != 0 || ferror(stdout)) {
                fprintf(stderr, "tuttictl: cannot write the answer: %s\n", strerror(errno));
                return CTL_IO;
        }
        return r;
}
