/* Who the replicas are. */
#include "views.h"

#include <inttypes.h>
#include "json.h"
#include "query.h"
#include "rows.h"
#include "status.h"

static const char *state_of(const struct tutti_row_group *g) {
        return g->stalled   ? "STALLED"
               : g->ended   ? "ended"
               : g->failed  ? "FAILED"
               : g->forming ? "forming"
                            : "ok";
}

static enum tone tone_of(const struct tutti_row_group *g) {
        if (g->stalled || (g->failed && !g->ended))
                return TONE_BAD;
        return g->ended ? TONE_FAINT : g->forming ? TONE_WARN : TONE_GOOD;
}

static void print_group(const struct tutti_row_group *g, const struct page *page) {
        struct line l = { 0 };

        line_add_group(&l, g->job, g->group);
        line_add(&l, "  epoch %" PRIu64, g->epoch);
        if (g->ended)
                line_add(&l, "  %s ago  world of %u", duration(g->age_ns).s, g->world_size);
        else
                line_add(&l, "  %u of %u", g->n_alive, g->world_size);
        line_add(&l, "  on_death=%s", g->on_death == TUTTI_SHRINK ? "shrink" : "fail");
        line_add(&l, "  %s done", count(g->n_done).s);
        if (g->n_failed)
                line_add(&l, "  %s failed", count(g->n_failed).s);
        if (g->n_pending)
                line_add(&l, "  %s pending", count(g->n_pending).s);
        if (g->n_debts)
                line_add(&l, "  %s debt%s", count(g->n_debts).s, g->n_debts == 1 ? "" : "s");
        line_add(&l, "  %s", bytes_text(g->bytes).s);
        line_add_reform(&l, g);
        if (!g->ended)
                line_add(&l, "  since %s", duration(g->age_ns).s);
        page_label(page, tone_of(g), state_of(g), 9);
        page_wrap(page, 9, 9, l.s);
}

/* `dump` alone shows another life of this group. */
static bool is_hidden(const struct tutti_answer *groups, const struct tutti_row *row) {
        const struct tutti_row *other = NULL;

        while ((other = rows_next_of(groups, TUTTI_ROW_GROUP, row->group.job, row->group.group, other)))
                if (row->group.ended && (!other->group.ended || other > row))
                        return true;
        return false;
}

static void print_hint(
        const struct tutti_answer *groups, const struct tutti_row *row, const struct page *page) {
        struct line l = { 0 };

        if (!is_hidden(groups, row))
                return;
        line_add_dump(&l, "dump", &row->group);
        line_add(&l, " reads its record");
        fprintf(page->out, "%*s", 9, "");
        page_wrap(page, 9, 9, l.s);
}

static void line_add_state(struct line *l, const struct tutti_row_member *m) {
        if (m->lost)
                line_add(l, "%s %s ago", tutti_loss_name(m->loss), duration(m->lost_age_ns).s);
        else if (m->lost_age_ns)
                line_add(l, "left %s ago", duration(m->lost_age_ns).s);
        else if (m->state == TUTTI_ABSENT)
                line_add(l, "has not joined");
        else
                line_add(l, "%s", tutti_process_state_name(m->state));
        if (*m->why) {
                line_add(l, " (");
                line_add_safe(l, m->why);
                line_add(l, ")");
        }
        if (*m->busy) {
                line_add(l, ", busy: ");
                line_add_safe(l, m->busy);
        }
        if (m->waits && *m->waits) {
                line_add(l, ", waits in ");
                line_add_safe(l, m->waits);
                line_add(l, " for %s", duration(m->waits_age_ns).s);
        }
}

void line_add_ended(struct line *l, const struct tutti_row_group *g) {
        line_add_group(l, g->job, g->group);
        line_add(l, " (epoch %" PRIu64 ") has ended, %s ago: %s done", g->epoch, duration(g->age_ns).s,
                count(g->n_done).s);
        if (g->n_failed)
                line_add(l, ", %s failed", count(g->n_failed).s);
        line_add(l, ", %s", bytes_text(g->bytes).s);
}

void line_add_dump(struct line *l, const char *verb, const struct tutti_row_group *g) {
        line_add(l, "`tuttictl %s --epoch %" PRIu64 " ", verb, g->epoch);
        line_add_group_for_shell(l, g->job, g->group);
        line_add(l, "`");
}

void print_dump_hint(const char *verb, const struct tutti_row_group *g, const struct page *page) {
        struct line l = { 0 };

        line_add_dump(&l, verb, g);
        fputs("  ", page->out);
        page_wrap(page, 2, 2, l.s);
}

json_t *json_ended(const struct tutti_row_group *g) {
        json_t *j = json_object();
        struct line text = { 0 };

        line_add_ended(&text, g);
        json_put(&j, "job", json_text(g->job));
        json_put(&j, "group", json_text(g->group));
        json_put(&j, "epoch", json_count(g->epoch));
        json_put(&j, "ended_age_ns", json_count(g->age_ns));
        json_put(&j, "done", json_count(g->n_done));
        json_put(&j, "failed", json_count(g->n_failed));
        json_put(&j, "bytes", json_count(g->bytes));
        json_put(&j, "text", json_text(text.s));
        return j;
}

void member_print(const struct tutti_row_member *m, const struct page *page) {
        char rank[16];
        struct line l = { 0 };
        bool is_away =
                m->lost || (!member_is_gone(m) && (m->state == TUTTI_STOPPED || m->state == TUTTI_DEAD));

        snprintf(rank, sizeof(rank), "  R%u", m->rank);
        if (m->pid)
                line_add(&l, "pid %u  ", m->pid);
        else if (m->state != TUTTI_ABSENT)
                line_add(&l, "pid ?  ");
        line_add_state(&l, m);
        if (*m->last_key) {
                line_add(&l, "  last ");
                line_add_key(&l, m->last_key);
                line_add(&l, " %s ago", duration(m->last_age_ns).s);
        }
        if (m->n_buffers)
                line_add(&l, "  %s in %u buffer%s", bytes_text(m->mapped_bytes).s, m->n_buffers,
                        m->n_buffers == 1 ? "" : "s");
        if (*m->process) {
                line_add(&l, "  ");
                line_add_safe(&l, m->process);
        }
        page_label(page, is_away ? TONE_BAD : TONE_PLAIN, rank, 9);
        page_wrap(page, 9, 9, l.s);
}

void groups_print(const struct tutti_answer *groups, const struct page *page) {
        const struct tutti_row *row = NULL, *member;

        if (!rows_next(groups, TUTTI_ROW_GROUP, NULL))
                fprintf(page->out, "No groups of yours.\n");
        while ((row = rows_next(groups, TUTTI_ROW_GROUP, row))) {
                print_group(&row->group, page);
                print_hint(groups, row, page);
                member = NULL;
                while ((member = rows_next_member(groups, &row->group, member)))
                        member_print(&member->member, page);
        }
}

json_t *groups_json(const struct tutti_answer *groups) {
        json_t *j = json_object(), *array = json_array();
        const struct tutti_row *row = NULL, *member;

        while ((row = rows_next(groups, TUTTI_ROW_GROUP, row))) {
                json_t *group = json_group(&row->group), *members = json_array();

                member = NULL;
                while ((member = rows_next_member(groups, &row->group, member)))
                        json_add(&members, json_member(&member->member));
                json_put(&group, "members", members);
                json_add(&array, group);
        }
        json_put(&j, "groups", array);
        return j;
}

static int groups_query(struct query *q) {
        _cleanup_answer_ struct tutti_answer *groups = NULL;
        const struct tutti_row_group *g;
        int r = q->operand ? query_ask_group(q, &groups, &g) : query_ask_groups(q, &groups);

        if (r != 0)
                return r;
        if (q->json)
                return query_put_json(q, groups_json(groups), CTL_WELL);
        groups_print(groups, &q->page);
        return CTL_WELL;
}

const struct command command_groups = {
        .name = "groups",
        .usage = "groups [--json] [--socket PATH] [--user UID] [JOB/GROUP]",
        .summary = "the groups and their replicas, also ended groups whose record is kept",
        .help = "Of an ended group: how its replicas were at its end, and when a newer one has its name,\n"
                "with which --epoch `dump` and `trace` read its record.\n"
                "\n"
                "JOB/ may be left out where only one job has a group of that name.\n",
        .operand = CTL_OPERAND_OPTIONAL,
        .query = groups_query,
};
