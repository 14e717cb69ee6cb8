/* Is anything wrong? For people and for probes: one line for each finding, and an exit code. */
#include "views.h"

#include <inttypes.h>
#include <string.h>
#include "json.h"
#include "query.h"
#include "rows.h"
#include "status.h"

static bool find_in_daemon(const struct tutti_row_daemon *d, struct finding *ret) {
        if (!d->draining)
                return false;
        ret->level = HEALTH_WARNING;
        ret->what = "tuttid";
        line_add(&ret->text, "tuttid is draining: ");
        line_add_drain(&ret->text, d);
        return true;
}

static bool find_in_device(const struct tutti_row_device *d, struct finding *ret) {
        if (!d->failing)
                return false;
        ret->level = HEALTH_FAILING;
        ret->what = "device";
        line_add(&ret->text, "device %s: ", d->name);
        line_add_safe(&ret->text, d->why);
        return true;
}

static void line_add_who(struct line *l, const struct tutti_row_pending *p) {
        line_add(l, " has waited %s for ", duration(p->age_ns).s);
        for (uint32_t i = 0; i < p->n_replicas; i++) {
                line_add_replica(l, &p->replicas[i]);
                line_add(l, "%s", i + 1 < p->n_replicas ? ", " : "");
        }
        if (p->n_replicas)
                line_add(l, " ");
        line_add_unreported(l, p);
        while (l->used && l->s[l->used - 1] == ' ')
                l->s[--l->used] = '\0';
}

static void describe_stall(const struct tutti_row_pending *p, struct finding *ret) {
        line_add(&ret->text, ": %s ", kind_text(p->kind).s);
        line_add_key(&ret->text, p->key);
        if (p->running)
                line_add(&ret->text, " has been running for %s", duration(p->age_ns).s);
        else
                line_add_who(&ret->text, p);
}

/* A group that goes on without a replica does as it was told. */
static bool find_losses(const struct health_view *v, const struct tutti_row_group *g, struct finding *ret) {
        ret->level = HEALTH_NOTE;
        ret->what = "group";
        ret->job = g->job;
        ret->group = g->group;
        line_add_group(&ret->text, g->job, g->group);
        line_add(&ret->text, " goes on with %u of %u", g->n_alive, g->world_size);
        return !g->forming && line_add_losses(&ret->text, v->stats, g, "; lost:") > 0;
}

static bool find_in_group(const struct health_view *v, const struct tutti_row_group *g, struct finding *ret) {
        const struct status_view status = { v->status, v->stats };
        const struct tutti_row_pending *oldest = status_oldest(&status, g);
        bool is_stalled = status_is_stalled(&status, g);

        if (!g->ended && !is_stalled && !g->failed)
                return find_losses(v, g, ret);
        if (g->ended)
                return false;
        ret->level = is_stalled ? HEALTH_STALLED : HEALTH_WARNING;
        ret->what = "group";
        ret->job = g->job;
        ret->group = g->group;
        line_add_group(&ret->text, g->job, g->group);
        if (is_stalled && oldest)
                describe_stall(oldest, ret);
        else if (is_stalled)
                line_add(&ret->text, " stands still");
        else
                line_add(&ret->text, " has lost a replica (on_death=fail) and takes no more collectives");
        return true;
}

static bool find_in_member(const struct tutti_row_member *m, struct finding *ret) {
        if (member_is_gone(m) || m->state != TUTTI_STOPPED)
                return false;
        ret->level = HEALTH_WARNING;
        ret->what = "replica";
        ret->job = m->job;
        ret->group = m->group;
        line_add_group(&ret->text, m->job, m->group);
        line_add(&ret->text, ": R%u (pid %u) is stopped; `kill -CONT %u` lets it go on", m->rank, m->pid,
                m->pid);
        return true;
}

static bool find_in_fallback(const struct tutti_row_fallback *f, struct finding *ret) {
        ret->level = HEALTH_NOTE;
        ret->what = "fallback";
        line_add_safe(&ret->text, f->what);
        line_add(&ret->text, ": ");
        line_add_safe(&ret->text, f->why);
        return true;
}

static bool find_in_group_fallback(const struct tutti_row_group_fallback *f, struct finding *ret) {
        ret->level = HEALTH_NOTE;
        ret->what = "fallback";
        ret->job = f->job;
        ret->group = f->group;
        line_add_group_fallback(&ret->text, f);
        return true;
}

static bool find_in_quota(const struct tutti_row_quota *q, struct finding *ret) {
        if (!quota_is_near(q))
                return false;
        ret->level = HEALTH_WARNING;
        ret->what = "quota";
        line_add(&ret->text, "uid %u uses %" PRIu64 " of its %" PRIu64 " %s", q->uid, q->used, q->limit,
                q->name);
        return true;
}

static bool find_in_row(const struct health_view *v, const struct tutti_row *row, struct finding *ret) {
        switch (row->type) {
        case TUTTI_ROW_DAEMON: return find_in_daemon(&row->daemon, ret);
        case TUTTI_ROW_DEVICE: return find_in_device(&row->device, ret);
        case TUTTI_ROW_GROUP: return find_in_group(v, &row->group, ret);
        case TUTTI_ROW_MEMBER: return find_in_member(&row->member, ret);
        case TUTTI_ROW_FALLBACK: return find_in_fallback(&row->fallback, ret);
        case TUTTI_ROW_GROUP_FALLBACK: return find_in_group_fallback(&row->group_fallback, ret);
        case TUTTI_ROW_QUOTA: return find_in_quota(&row->quota, ret);
        case TUTTI_ROW_NONE:
        case TUTTI_ROW_PENDING:
        case TUTTI_ROW_STATS:
        case TUTTI_ROW_RECORD:
        case TUTTI_ROW_RESULT:
        case TUTTI_ROW_BUFFER:
        case TUTTI_ROW_HISTOGRAM:
        case TUTTI_ROW_PLAN:
        case TUTTI_ROW_DUMP:
        case TUTTI_ROW_LOSSES:
        case TUTTI_ROW_CLASS: return false;
        }
        return false;
}

/* Status, then of stats the members alone (its daemon row is the same again), then quota. */
static const struct tutti_row *row_at(const struct health_view *v, size_t i) {
        static const struct tutti_row nothing;

        if (i < v->status->n_rows)
                return &v->status->rows[i];
        i -= v->status->n_rows;
        if (i < v->stats->n_rows)
                return v->stats->rows[i].type == TUTTI_ROW_MEMBER ? &v->stats->rows[i] : &nothing;
        i -= v->stats->n_rows;
        return i < v->quota->n_rows ? &v->quota->rows[i] : NULL;
}

bool health_next(const struct health_view *v, size_t *cursor, struct finding *ret) {
        const struct tutti_row *row;

        while ((row = row_at(v, *cursor))) {
                ++*cursor;
                memset(ret, 0, sizeof(*ret));
                if (find_in_row(v, row, ret))
                        return true;
        }
        return false;
}

enum health_level health_level(const struct health_view *v) {
        enum health_level worst = HEALTH_WELL;
        struct finding f;

        for (size_t cursor = 0; health_next(v, &cursor, &f);)
                worst = f.level > worst ? f.level : worst;
        return worst;
}

int health_exit(enum health_level level) {
        switch (level) {
        case HEALTH_WELL:
        case HEALTH_NOTE: return CTL_WELL;
        case HEALTH_WARNING:
        case HEALTH_STALLED: return CTL_WARNING;
        case HEALTH_FAILING: return CTL_FAILING;
        }
        return CTL_FAILING;
}

static const struct {
        const char *name;
        enum tone tone;
} levels[] = {
        [HEALTH_WELL] = { "well", TONE_GOOD },
        [HEALTH_NOTE] = { "note", TONE_PLAIN },
        [HEALTH_WARNING] = { "warning", TONE_WARN },
        [HEALTH_STALLED] = { "stalled", TONE_BAD },
        [HEALTH_FAILING] = { "failing", TONE_BAD },
};

static void print_well(const struct health_view *v, const struct page *page) {
        const struct tutti_row *row = rows_next(v->status, TUTTI_ROW_DAEMON, NULL);

        page_label(page, TONE_GOOD, "well", 9);
        if (row)
                fprintf(page->out, "tuttid %s, up %s, %u group%s; nothing stands still", row->daemon.version,
                        duration(row->daemon.uptime_ns).s, row->daemon.n_groups,
                        row->daemon.n_groups == 1 ? "" : "s");
        fputc('\n', page->out);
}

void health_print(const struct health_view *v, const struct page *page) {
        enum health_level worst = health_level(v);
        struct finding f;

        if (health_exit(worst) == CTL_WELL)
                print_well(v, page);
        for (enum health_level level = worst; level > HEALTH_WELL; level--)
                for (size_t cursor = 0; health_next(v, &cursor, &f);) {
                        if (f.level != level)
                                continue;
                        page_label(page, levels[level].tone, levels[level].name, 9);
                        fprintf(page->out, "%s\n", f.text.s);
                }
}

static json_t *finding_json(const struct finding *f) {
        json_t *j = json_object();

        json_put(&j, "level", json_string(levels[f->level].name));
        json_put(&j, "what", json_string(f->what));
        json_put(&j, "job", json_text_or_null(f->job));
        json_put(&j, "group", json_text_or_null(f->group));
        json_put(&j, "text", json_text(f->text.s));
        return j;
}

json_t *health_json(const struct health_view *v) {
        json_t *j = json_object(), *findings = json_array();
        enum health_level worst = health_level(v);
        struct finding f;

        for (size_t cursor = 0; health_next(v, &cursor, &f);)
                json_add(&findings, finding_json(&f));
        json_put(&j, "health", json_string(levels[worst == HEALTH_NOTE ? HEALTH_WELL : worst].name));
        json_put(&j, "exit_code", json_count((uint64_t)health_exit(worst)));
        json_put(&j, "findings", findings);
        return j;
}

static int health_query(struct query *q) {
        _cleanup_answer_ struct tutti_answer *status = NULL, *stats = NULL, *quota = NULL;
        struct health_view v;
        int r = query_ask(q, TUTTI_ADMIN_STATUS, NULL, NULL, &status);

        if (r == 0)
                r = query_ask(q, TUTTI_ADMIN_STATS, NULL, NULL, &stats);
        if (r == 0)
                r = query_ask(q, TUTTI_ADMIN_QUOTA, NULL, NULL, &quota);
        if (r != 0)
                return r;
        v = (struct health_view){ status, stats, quota };
        r = health_exit(health_level(&v));
        if (q->json)
                return query_put_json(q, health_json(&v), r);
        health_print(&v, &q->page);
        return r;
}

const struct command command_health = {
        .name = "health",
        .usage = "health [--json] [--socket PATH] [--user UID]",
        .summary = "one line for each thing that is wrong, and an exit code for probes",
        .help = "A fallback, or a replica that its group does without, is a note: it is listed and\n"
                "changes nothing.\n"
                "\n"
                "Exit: 0 well, 1 warning or stalled, 2 failing, 3 tuttid cannot be asked, 77 not allowed.\n",
        .query = health_query,
};
