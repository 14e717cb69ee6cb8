/* Taking tuttid out of service, and asking whether it takes new work. */
#include <string.h>
#include <time.h>
#include "json.h"
#include "query.h"
#include "rows.h"

#define LOOK_NS 200000000L /* tuttid calls nobody: who waits for the last group looks */

/* The answer goes with *answer. 0, or the exit code. */
static int ask_daemon(
        struct query *q, struct tutti_answer **answer, const struct tutti_row_daemon **ret_daemon) {
        static const struct tutti_row_daemon silent = { .drained_by = "" };
        int r = query_ask(q, TUTTI_ADMIN_STATUS, NULL, NULL, answer);
        const struct tutti_row *row = r == 0 ? rows_next(*answer, TUTTI_ROW_DAEMON, NULL) : NULL;

        *ret_daemon = row ? &row->daemon : &silent;
        return r;
}

static json_t *drain_json(const struct tutti_row_daemon *d) {
        json_t *j = json_object();

        json_put(&j, "draining", json_boolean(d->draining));
        json_put(&j, "drained_by", json_text_or_null(d->drained_by));
        json_put(&j, "groups_left", json_count(d->n_groups_left));
        return j;
}

static void print_drain(const struct query *q, const struct tutti_row_daemon *d) {
        struct line l = { 0 };

        if (d->draining)
                line_add_drain(&l, d);
        else
                line_add(&l, "new groups are taken");
        page_wrap(&q->page, 0, 0, l.s);
}

/* -1: groups are left; else the exit code. */
static int look(struct query *q) {
        _cleanup_answer_ struct tutti_answer *answer = NULL;
        const struct tutti_row_daemon *d;
        int r = ask_daemon(q, &answer, &d);
        bool is_undone = !q->undo && !d->draining;

        if (r != 0)
                return r;
        if (q->wait && !is_undone && d->n_groups_left > 0)
                return -1;
        r = is_undone ? CTL_WARNING : CTL_WELL;
        if (q->json)
                return query_put_json(q, drain_json(d), r);
        print_drain(q, d);
        return r;
}

static int drain_query(struct query *q) {
        enum tutti_status status = q->undo ? tutti_admin_undrain(q->t) : tutti_admin_drain(q->t);
        int r;

        if (status != TUTTI_OK)
                return query_refused(q, status);
        while ((r = look(q)) < 0)
                nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
        return r;
}

const struct command command_drain = {
        .name = "drain",
        .usage = "drain [--undo] [--wait] [--json] [--socket PATH]",
        .summary = "lets no new groups come, while those that are there go on",
        .help = "Who would make a group, or waits for one to be whole, gets DRAINING. Groups that are\n"
                "whole go on, also with replacements for lost replicas. It ends with --undo, and with\n"
                "tuttid. For admins (daemon.admins) and the user that tuttid runs as.\n"
                "\n"
                "  --wait   until the last group of all users has gone\n"
                "  --undo   new groups are taken again\n"
                "\n"
                "Exit: 0 done, 1 refused, or undone by somebody while it waited, 3 tuttid cannot be\n"
                "asked, 77 not allowed.\n",
        .takes = CTL_TAKES_DRAIN,
        .query = drain_query,
};

/* --- readiness --- */

static int ready_query(struct query *q) {
        _cleanup_answer_ struct tutti_answer *answer = NULL;
        const struct tutti_row_daemon *d;
        int r = ask_daemon(q, &answer, &d);

        if (r != 0)
                return r;
        r = d->draining ? CTL_WARNING : CTL_WELL;
        if (q->json) {
                json_t *j = drain_json(d);

                json_put(&j, "ready", json_boolean(!d->draining));
                return query_put_json(q, j, r);
        }
        print_drain(q, d);
        return r;
}

const struct command command_ready = {
        .name = "ready",
        .usage = "ready [--json] [--socket PATH]",
        .summary = "whether tuttid takes new groups, for probes",
        .help = "Exit: 0 it does, 1 it is drained or being stopped, 3 tuttid cannot be asked, 77 not "
                "allowed.\n",
        .query = ready_query,
};
