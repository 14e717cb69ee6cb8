/* tuttictl: the command for the people who run the host.
 *
 * It sees tuttid through libtutti alone (tutti.h, admin.h). A command is one entry of the table in main.c;
 * those that ask tuttid something share the road of query.h. Single-threaded. */
#pragma once

#include <stdio.h>

enum ctl_exit {
        CTL_WELL = 0,
        CTL_WARNING = 1, /* something stands still, what was asked for does not exist, or was refused */
        CTL_FAILING = 2,
        CTL_UNREACHABLE = 3,
        CTL_USAGE = 64,
        CTL_IO = 74, /* the answer could not be written */
        CTL_NOT_ALLOWED = 77,
};

enum ctl_operand {
        CTL_OPERAND_NONE,
        CTL_OPERAND_OPTIONAL, /* a group */
        CTL_OPERAND_REQUIRED,
        CTL_OPERAND_WORD /* optional, and no group */
};

/* Options of a query beyond --json and --socket; and whether it is called without a connection. */
enum ctl_takes {
        CTL_TAKES_SVG = 1,
        CTL_TAKES_LAST = 2,
        CTL_TAKES_INTERVAL = 4,
        CTL_CONNECTS_ITSELF = 8,
        CTL_TAKES_DRAIN = 16, /* --undo, --wait */
        CTL_TAKES_REASON = 32,
        CTL_TAKES_LEVEL = 64,
        CTL_TAKES_EPOCH = 128,
};

struct query;

struct command {
        const char *name, *usage, *summary, *help;
        const char *options; /* in the words of a usage line, where usage does not name them; else NULL */
        enum ctl_operand operand;
        const char *second; /* what a second operand is, which must be there; NULL: there is none */
        unsigned int takes; /* of enum ctl_takes */
        /* A query is called with a connection, main with its arguments (argv[0] is the command's name), and
         * may itself go on to the query (query_main). Both return the exit code. */
        int (*query)(struct query *q);
        int (*main)(const struct command *self, int argc, char **argv);
};

extern const struct command command_run, command_status, command_groups, command_health, command_stats,
        command_dump, command_quota, command_trace, command_doctor, command_replicas, command_buffers,
        command_top, command_plan, command_drain, command_kick, command_log_level, command_ready,
        command_diag;

void command_print_help(const struct command *self, FILE *out);
/* "tuttictl NAME: what is wrong" and the usage, on stderr. Returns CTL_USAGE. */
int command_misused(const struct command *self, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
