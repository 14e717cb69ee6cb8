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

void replicas_print(const struct tutti_answer *groups, const struct page *page) {
        const struct tutti_row *row = NULL;

        if (!rows_next(groups, TUTTI_ROW_MEMBER, NULL)) {
                fprintf(page->out, "No replicas of yours.\n");
                return;
        }
        fprintf(page->out, "%-*s" ROW_FORMAT "\n", NAME_COLUMNS, "replica", "pid", "state", "finished",
                "late p50", "last", "mapped");
        while ((row = rows_next(groups, TUTTI_ROW_MEMBER, row)))
                if (is_in_trouble(&row->member))
                        print_replica(&row->member, page);
        while ((row = rows_next(groups, TUTTI_ROW_MEMBER, row)))
                if (!is_in_trouble(&row->member))
                        print_replica(&row->member, page);
}

json_t *replicas_json(const struct tutti_answer *groups) {
        json_t *j = json_object(), *array = json_array();
        const struct tutti_row *row = NULL;

        while ((row = rows_next(groups, TUTTI_ROW_MEMBER, row))) {
                json_t *replica = json_member(&row->member);

                json_put(&replica, "job", json_text(row->member.job));
                json_put(&replica, "group", json_text(row->member.group));
                json_add(&array, replica);
        }
        json_put(&j, "replicas", array);
        return j;
}

static int replicas_query(struct query *q) {
        _cleanup_answer_ struct tutti_answer *all = NULL, *one = NULL;
        const struct tutti_row_group *g;
        int r = query_ask(q, TUTTI_ADMIN_GROUPS, NULL, NULL, &all);

        if (r == 0 && q->operand) {
                r = query_find_group(q, all, &g);
                if (r == 0)
                        r = query_ask(q, TUTTI_ADMIN_GROUPS, g->job, g->group, &one);
        }
        if (r != 0)
                return r;
        if (q->json)
                return query_put_json(q, replicas_json(one ? one : all), CTL_WELL);
        replicas_print(one ? one : all, &q->page);
        return CTL_WELL;
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
                "Replicas that are lost or stopped come first. JOB/ may be left out where only one job\n"
                "has a group of that name.\n",
        .operand = CTL_OPERAND_OPTIONAL,
        .query = replicas_query,
};
