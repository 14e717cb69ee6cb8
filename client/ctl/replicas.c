/* Every replica on one line, those in trouble first: for eyes that go down a column. */
#include "views.h"

#include "json.h"
#include "query.h"
#include "rows.h"

#define NAME_COLUMNS 20
#define ROW_FORMAT   "%7s  %-12s %9s %8s %5s %8s"

static bool is_in_trouble(const struct tutti_row_member *m) {
        return m->lost || (!member_is_gone(m) && (m->state == TUTTI_STOPPED || m->state == TUTTI_DEAD));
}

static const char *state_of(const struct tutti_row_member *m) {
        if (m->lost)
                return tutti_loss_name(m->loss);
        if (m->lost_age_ns)
                return "left";
        if (m->state != TUTTI_ABSENT && *m->busy)
                return "busy";
        return tutti_process_state_name(m->state);
}

/* A name that is too long for its column has a line of its own. */
static void print_name(const struct tutti_row_member *m, const struct page *page) {
        struct line name = { 0 };

        line_add_group(&name, m->job, m->group);
        line_add(&name, " R%u", m->rank);
        page_label(page, is_in_trouble(m) ? TONE_BAD : TONE_PLAIN, name.s, NAME_COLUMNS);
        if (name.used > NAME_COLUMNS)
                fprintf(page->out, "\n%*s", NAME_COLUMNS, "");
}

static void print_replica(const struct tutti_row_member *m, const struct page *page) {
        struct line key = { 0 };
        char pid[16] = "?";

        if (m->pid)
                snprintf(pid, sizeof(pid), "%u", m->pid);
        print_name(m, page);
        if (*m->last_key)
                line_add_key(&key, m->last_key);
        fprintf(page->out, ROW_FORMAT "%s%s\n", m->state == TUTTI_ABSENT ? "" : pid, state_of(m),
                *m->last_key ? duration(m->last_age_ns).s : "-",
                m->n_joint ? duration(m->lateness_p50_ns).s : "-", percent(m->n_last, m->n_joint).s,
                m->n_buffers ? bytes_text(m->mapped_bytes).s : "-", key.used ? "  " : "", key.s);
}

static const struct tutti_row *next_replica(const struct tutti_answer *groups,
        const struct tutti_row_group *ended, const struct tutti_row *after) {
        if (ended)
                return rows_next_member(groups, ended, after);
        do
                after = rows_next(groups, TUTTI_ROW_MEMBER, after);
        while (after && after->member.ended_epoch);
        return after;
}

static void print_none(const struct tutti_row_group *ended, const struct page *page) {
        if (!ended) {
                fprintf(page->out, "No replicas of yours.\n");
                return;
        }
        fprintf(page->out, "Who its replicas were is not known any more. What it did:\n");
        print_dump_hint("dump", ended, page);
}

static void print_ended(const struct tutti_row_group *ended, const struct page *page) {
        struct line l = { 0 };

        line_add_ended(&l, ended);
        page_wrap(page, 0, 2, l.s);
}

void replicas_print(
        const struct tutti_answer *groups, const struct tutti_row_group *ended, const struct page *page) {
        const struct tutti_row *row = NULL;

        if (ended)
                print_ended(ended, page);
        if (!next_replica(groups, ended, NULL)) {
                print_none(ended, page);
                return;
        }
        fprintf(page->out, "%-*s" ROW_FORMAT "\n", NAME_COLUMNS, "replica", "pid", "state", "finished",
                "late p50", "last", "mapped");
        while ((row = next_replica(groups, ended, row)))
                if (is_in_trouble(&row->member))
                        print_replica(&row->member, page);
        while ((row = next_replica(groups, ended, row)))
                if (!is_in_trouble(&row->member))
                        print_replica(&row->member, page);
}

json_t *replicas_json(const struct tutti_answer *groups, const struct tutti_row_group *ended) {
        json_t *j = json_object(), *array = json_array();
        const struct tutti_row *row = NULL;

        while ((row = next_replica(groups, ended, row))) {
                json_t *replica = json_member(&row->member);

                json_put(&replica, "job", json_text(row->member.job));
                json_put(&replica, "group", json_text(row->member.group));
                json_add(&array, replica);
        }
        json_put(&j, "ended", ended ? json_ended(ended) : json_null());
        json_put(&j, "replicas", array);
        return j;
}

static int replicas_query(struct query *q) {
        _cleanup_answer_ struct tutti_answer *groups = NULL;
        const struct tutti_row_group *g = NULL;
        int r = q->operand ? query_ask_group(q, &groups, &g)
                           : query_ask(q, TUTTI_ADMIN_GROUPS, NULL, NULL, &groups);

        if (r != 0)
                return r;
        if (g && !g->ended)
                g = NULL;
        r = g && !rows_next_member(groups, g, NULL) ? CTL_WARNING : CTL_WELL;
        if (q->json)
                return query_put_json(q, replicas_json(groups, g), r);
        replicas_print(groups, g, &q->page);
        return r;
}

const struct command command_replicas = {
        .name = "replicas",
        .usage = "replicas [--json] [--socket PATH] [--user UID] [JOB/GROUP]",
        .summary = "every replica on a line: alive, how late, how much memory",
        .help = "finished  how long ago it last finished a collective, and, at the end of the line, which\n"
                "late p50  how long after the first its half usually comes\n"
                "last      in how many of its collectives it came last\n"
                "mapped    the memory of its connection that tuttid maps\n"
                "\n"
                "Replicas that are lost or stopped come first. Of a group that has ended, where it is\n"
                "named: how they were at its end. Exit: 1 when that is not known any more. JOB/ may be left "
                "out where only one job\n"
                "has a group of that name.\n",
        .operand = CTL_OPERAND_OPTIONAL,
        .query = replicas_query,
};
