#include "query.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include "json.h"
#include "rows.h"

static const struct option long_options[] = {
        { "json", no_argument, NULL, 'j' },
        { "socket", required_argument, NULL, 's' },
        { "user", required_argument, NULL, 'u' },
        { "svg", no_argument, NULL, 'v' },
        { "last", required_argument, NULL, 'n' },
        { "epoch", required_argument, NULL, 'e' },
        { "interval", required_argument, NULL, 'i' },
        { "undo", no_argument, NULL, 'U' },
        { "wait", no_argument, NULL, 'w' },
        { "reason", required_argument, NULL, 'r' },
        { "level", required_argument, NULL, 'l' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
};

/* -1: go on; else the exit code. */
static int read_user(struct query *q, const char *text) {
        char *end;

        errno = 0;
        unsigned long uid = strtoul(text, &end, 10);
        if (*end || !isdigit((unsigned char)*text) || errno || uid >= UINT32_MAX)
                return command_misused(q->command, "--user takes a uid, not %s", text);
        q->user = (uint32_t)uid;
        q->has_user = true;
        return -1;
}

/* -1: go on; else the exit code. */
static int read_last(struct query *q, const char *text) {
        char *end;
        unsigned long n = strtoul(text, &end, 10);

        if (*end || !isdigit((unsigned char)*text) || n < 1 || n > UINT32_MAX)
                return command_misused(
                        q->command, "--last takes a number of collectives from 1 on, not %s", text);
        q->last = (uint32_t)n;
        return -1;
}

/* -1: go on; else the exit code. */
static int read_epoch(struct query *q, const char *text) {
        char *end;

        errno = 0;
        unsigned long long n = strtoull(text, &end, 10);
        if (*end || !isdigit((unsigned char)*text) || errno || n < 1)
                return command_misused(
                        q->command, "--epoch takes the number of an epoch from 1 on, not %s", text);
        q->epoch = n;
        return -1;
}

#define MIN_INTERVAL_S 0.1
#define MAX_INTERVAL_S 3600.0

/* -1: go on; else the exit code. */
static int read_interval(struct query *q, const char *text) {
        char *end;
        double s = strtod(text, &end);

        if (*end || end == text || !(s >= MIN_INTERVAL_S && s <= MAX_INTERVAL_S))
                return command_misused(q->command, "--interval takes seconds from 0.1 to 3600, not %s", text);
        q->interval_ns = seconds_to_ns(s);
        return -1;
}

/* -1: go on; else the exit code. */
static int read_level(struct query *q, const char *text) {
        if (!*text || text[1] || *text < '1' || *text > '3')
                return command_misused(q->command, "--level takes 1, 2 or 3, not %s", text);
        q->level = (unsigned int)(*text - '0');
        return -1;
}

/* -1: go on; else the exit code. */
static int read_option(struct query *q, int c, char **argv) {
        unsigned int takes = q->command->takes;

        if (c == 'j')
                q->json = true;
        else if (c == 's')
                q->socket = optarg;
        else if (c == 'u' && !(takes & CTL_CONNECTS_ITSELF))
                return read_user(q, optarg);
        else if (c == 'v' && takes & CTL_TAKES_SVG)
                q->svg = true;
        else if (c == 'n' && takes & CTL_TAKES_LAST)
                return read_last(q, optarg);
        else if (c == 'e' && takes & CTL_TAKES_EPOCH)
                return read_epoch(q, optarg);
        else if (c == 'i' && takes & CTL_TAKES_INTERVAL)
                return read_interval(q, optarg);
        else if (c == 'U' && takes & CTL_TAKES_DRAIN)
                q->undo = true;
        else if (c == 'w' && takes & CTL_TAKES_DRAIN)
                q->wait = true;
        else if (c == 'r' && takes & CTL_TAKES_REASON)
                q->reason = optarg;
        else if (c == 'l' && takes & CTL_TAKES_LEVEL)
                return read_level(q, optarg);
        else
                return command_misused(q->command, "unknown or incomplete option %s", argv[optind - 1]);
        return -1;
}

/* -1: go on; else the exit code. */
static int read_options(struct query *q, int argc, char **argv) {
        int c, r = -1;

        opterr = 0;
        optind = 0;
        while (r < 0 && (c = getopt_long(argc, argv, "s:u:n:h", long_options, NULL)) != -1) {
                if (c == 'h') {
                        command_print_help(q->command, stdout);
                        return CTL_WELL;
                }
                r = read_option(q, c, argv);
        }
        if (r < 0 && q->json && q->svg)
                return command_misused(q->command, "--json and --svg are two answers; take one");
        if (r < 0 && q->undo && q->wait)
                return command_misused(q->command, "--undo has nothing to wait for");
        return r;
}

/* -1: go on; else the exit code. */
static int read_operand(struct query *q, int argc, char **argv) {
        int n_allowed = q->command->second ? 2 : q->command->operand == CTL_OPERAND_NONE ? 0 : 1;

        if (argc - optind > n_allowed)
                return command_misused(q->command, "unexpected argument %s", argv[optind + n_allowed]);
        if (argc - optind < 1 && q->command->operand == CTL_OPERAND_REQUIRED)
                return command_misused(q->command, "which group? Name it as JOB/GROUP");
        if (argc - optind < 2 && q->command->second)
                return command_misused(q->command, "which %s?", q->command->second);
        if (argc > optind)
                q->operand = argv[optind];
        if (argc > optind + 1)
                q->second = argv[optind + 1];
        return -1;
}

static int report(struct query *q, const char *status, const char *text, int exit_code) {
        if (q->json)
                return query_put_json(q, json_error_object(status, text), exit_code);
        fprintf(stderr, "%s\n", text);
        return exit_code;
}

static int exit_code_of(enum tutti_status status, int otherwise) {
        if (status == TUTTI_PERMISSION)
                return CTL_NOT_ALLOWED;
        if (status == TUTTI_NO_DAEMON || status == TUTTI_DAEMON_LOST)
                return CTL_UNREACHABLE;
        return status == TUTTI_NOT_FOUND || status == TUTTI_UNSUPPORTED ? CTL_WARNING : otherwise;
}

int query_report(struct query *q, enum tutti_status status) {
        return report(q, tutti_status_name(status), tutti_error(), exit_code_of(status, CTL_UNREACHABLE));
}

int query_refused(struct query *q, enum tutti_status status) {
        return report(q, tutti_status_name(status), tutti_error(), exit_code_of(status, CTL_WARNING));
}

int query_ask(struct query *q, enum tutti_admin_what what, const char *job, const char *group,
        struct tutti_answer **ret) {
        enum tutti_status status = tutti_admin_ask(q->t, what, job, group, ret);

        return status == TUTTI_OK ? 0 : query_report(q, status);
}

static int ask_groups(struct query *q, const char *job, const char *group, struct tutti_answer **ret) {
        enum tutti_status status = tutti_admin_ask_about(q->t,
                &TUTTI_ADMIN_QUESTION(.what = TUTTI_ADMIN_GROUPS, .job = job, .group = group,
                        .ended_members = 1),
                ret);

        return status == TUTTI_OK ? 0 : query_report(q, status);
}

int query_ask_groups(struct query *q, struct tutti_answer **ret) {
        return ask_groups(q, NULL, NULL, ret);
}

#define LISTED 8

static void add_candidates(struct line *l, const struct tutti_answer *groups, const char *name) {
        const struct tutti_row *row = NULL;
        unsigned int n = 0;

        while ((row = rows_next(groups, TUTTI_ROW_GROUP, row))) {
                if (name && strcmp(row->group.group, name) != 0)
                        continue;
                if (++n > LISTED)
                        break;
                line_add(l, n > 1 ? ", " : " ");
                line_add_group(l, row->group.job, row->group.group);
        }
        line_add(l, n > LISTED ? ", ..." : n ? "." : " none.");
}

int query_find_group(struct query *q, const struct tutti_answer *groups, const struct tutti_row_group **ret) {
        struct line text = { 0 };

        switch (rows_match_name(groups, q->operand, ret)) {
        case NAME_FOUND: return 0;
        case NAME_ABSENT:
                line_add(&text, "NOT_FOUND: no group ");
                line_add_safe(&text, q->operand);
                line_add(&text, " of yours here. There are:");
                add_candidates(&text, groups, NULL);
                return report(q, "NOT_FOUND", text.s, CTL_WARNING);
        case NAME_AMBIGUOUS:
                line_add(&text, "INVALID: several jobs have a group ");
                line_add_safe(&text, q->operand);
                line_add(&text, ". Name one of:");
                add_candidates(&text, groups, q->operand);
                return report(q, "INVALID", text.s, CTL_WARNING);
        }
        return CTL_WARNING;
}

/* Which group is meant is found without the members of all that have ended. */
int query_ask_group(struct query *q, struct tutti_answer **ret, const struct tutti_row_group **ret_group) {
        _cleanup_answer_ struct tutti_answer *all = NULL;
        int r = query_ask(q, TUTTI_ADMIN_GROUPS, NULL, NULL, &all);

        if (r == 0)
                r = query_find_group(q, all, ret_group);
        if (r == 0)
                r = ask_groups(q, (*ret_group)->job, (*ret_group)->group, ret);
        return r == 0 ? query_find_group(q, *ret, ret_group) : r;
}

int query_put_json(struct query *q, json_t *root, int exit_code) {
        bool is_written;

        if (!root) {
                fprintf(stderr, "tuttictl: out of memory\n");
                return CTL_IO;
        }
        is_written = json_dumpf(root, q->page.out,
                             JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15)) == 0 &&
                     fputc('\n', q->page.out) != EOF;
        json_decref(root);
        return is_written ? exit_code : CTL_IO;
}

int query_main(const struct command *self, int argc, char **argv) {
        struct query q = { .command = self, .page = page_of(stdout) };
        enum tutti_status status;
        int r = read_options(&q, argc, argv);

        if (r < 0)
                r = read_operand(&q, argc, argv);
        if (r >= 0)
                return r;
        status = self->takes & CTL_CONNECTS_ITSELF ? TUTTI_OK : tutti_open(q.socket, &q.t);
        if (status == TUTTI_OK && q.has_user)
                status = tutti_admin_set_user(q.t, q.user);
        if (status != TUTTI_OK)
                return query_report(&q, status);
        r = self->query(&q);
        tutti_close(q.t);
        return r;
}
