/* How long collectives wait and run, and who keeps the others waiting. */
#include "views.h"

#include "json.h"
#include "query.h"
#include "rows.h"

#define KIND_COLUMNS   12
#define TIMES_FORMAT   " %10s %7s %9s %9s %8s"
#define REPLICA_FORMAT "  %-12s" TIMES_FORMAT "\n"
#define KIND_FORMAT    "  %-12s" TIMES_FORMAT " %8s %8s\n"

static void print_kinds(
        const struct tutti_answer *a, const char *job, const char *group, const struct page *page) {
        const struct tutti_row *row = NULL;

        fprintf(page->out, KIND_FORMAT, "kind", "done", "failed", "bytes", "wait p50", "p99", "run p50",
                "p99");
        while ((row = rows_next_of(a, TUTTI_ROW_STATS, job, group, row))) {
                const struct tutti_row_stats *s = &row->stats;

                fprintf(page->out, KIND_FORMAT, kind_text(s->kind).s, count(s->n).s, count(s->n_failed).s,
                        bytes_text(s->bytes).s, duration(s->wait_p50_ns).s, duration(s->wait_p99_ns).s,
                        duration(s->run_p50_ns).s, duration(s->run_p99_ns).s);
        }
}

static struct word size_text(const struct tutti_row_class *c) {
        struct word w;

        if (c->to_bytes == UINT64_MAX)
                snprintf(w.s, sizeof(w.s), "over %.20s", bytes_text(c->from_bytes - 1).s);
        else
                snprintf(w.s, sizeof(w.s), "to %.20s", bytes_text(c->to_bytes).s);
        return w;
}

/* Of everything that was read while collectives ran. */
static double gigabytes_per_second(uint64_t bytes, uint64_t run_ns) {
        return run_ns ? (double)bytes / (double)run_ns : 0;
}

static void print_class(const struct tutti_row_class *c, const struct page *page) {
        struct line name = { 0 };
        struct word rate = { "-" };

        line_add(&name, "%s", kind_text(c->kind).s);
        if (c->op != TUTTI_OP_UNSPECIFIED)
                line_add(&name, " %s", op_text(c->op).s);
        line_add(&name, " %s", size_text(c).s);
        if (c->bytes && c->run_ns)
                snprintf(rate.s, sizeof(rate.s), "%.3g", gigabytes_per_second(c->bytes, c->run_ns));
        fprintf(page->out, "  %-30s %8s %7s  wait %8s %8s %8s\n", name.s, count(c->n).s, rate.s,
                duration(c->wait_p50_ns).s, duration(c->wait_p99_ns).s, duration(c->wait_p999_ns).s);
        fprintf(page->out, "  %-47s  run  %8s %8s %8s\n", "", duration(c->run_p50_ns).s,
                duration(c->run_p99_ns).s, duration(c->run_p999_ns).s);
}

static void print_classes(
        const struct tutti_answer *a, const char *job, const char *group, const struct page *page) {
        const struct tutti_row *row = rows_next_of(a, TUTTI_ROW_CLASS, job, group, NULL);

        if (row)
                fprintf(page->out, "  %-30s %8s %7s       %8s %8s %8s\n", "op and size", "done", "GB/s",
                        "p50", "p99", "p999");
        for (; row; row = rows_next_of(a, TUTTI_ROW_CLASS, job, group, row))
                print_class(&row->size_class, page);
}

static void print_replicas_head(const struct page *page) {
        fprintf(page->out, REPLICA_FORMAT, "replica", "joint", "last in", "share", "late p50", "p99");
}

static void print_replica(const struct tutti_row_member *m, enum tone tone, const struct page *page) {
        char rank[16];

        snprintf(rank, sizeof(rank), "R%u", m->rank);
        fputs("  ", page->out);
        page_label(page, tone, rank, KIND_COLUMNS);
        fprintf(page->out, TIMES_FORMAT "\n", count(m->n_joint).s, count(m->n_last).s,
                percent(m->n_last, m->n_joint).s, duration(m->lateness_p50_ns).s,
                duration(m->lateness_p99_ns).s);
}

static void print_replicas(
        const struct tutti_answer *a, const char *job, const char *group, const struct page *page) {
        const struct tutti_row_member *latest = rows_latest_member(a, job, group);
        const struct tutti_row *row = NULL;

        print_replicas_head(page);
        while ((row = rows_next_of(a, TUTTI_ROW_MEMBER, job, group, row)))
                print_replica(&row->member, &row->member == latest ? TONE_WARN : TONE_PLAIN, page);
}

static void print_group(
        const struct tutti_answer *a, const char *job, const char *group, const struct page *page) {
        struct line l = { 0 };

        line_add_group(&l, job, group);
        fprintf(page->out, "%s\n", l.s);
        if (!rows_next_of(a, TUTTI_ROW_STATS, job, group, NULL)) {
                fprintf(page->out, "  nothing finished yet\n");
                return;
        }
        print_kinds(a, job, group, page);
        print_classes(a, job, group, page);
        print_replicas(a, job, group, page);
}

/* A group has MEMBER rows from its first join on, and STATS rows from its first result on. */
static bool is_first_of_group(const struct tutti_answer *a, const struct tutti_row *row) {
        if (row->type == TUTTI_ROW_MEMBER)
                return rows_is_first_of(a, TUTTI_ROW_MEMBER, row);
        return row->type == TUTTI_ROW_STATS && rows_is_first_of(a, TUTTI_ROW_STATS, row) &&
               !rows_next_of(a, TUTTI_ROW_MEMBER, row_job(row), row_group(row), NULL);
}

static void print_totals(const struct tutti_row_daemon *d, const struct page *page) {
        struct line l = { 0 };

        line_add(&l, "tuttid %s   up %s   %s done   %s failed", d->version, duration(d->uptime_ns).s,
                count(d->n_collectives).s, count(d->n_failed).s);
        line_add(&l, "   %s refused   %s ejected   %s mapped", count(d->n_refused).s, count(d->n_ejected).s,
                bytes_text(d->mapped_bytes).s);
        page_wrap(page, 0, 9, l.s);
}

void stats_print(const struct tutti_answer *stats, const struct page *page) {
        const struct tutti_row *daemon = rows_next(stats, TUTTI_ROW_DAEMON, NULL);

        if (daemon)
                print_totals(&daemon->daemon, page);
        for (uint32_t i = 0; i < stats->n_rows; i++)
                if (is_first_of_group(stats, &stats->rows[i])) {
                        fputc('\n', page->out);
                        print_group(stats, row_job(&stats->rows[i]), row_group(&stats->rows[i]), page);
                }
}

static json_t *kind_json(const struct tutti_row_stats *s) {
        json_t *j = json_object();

        json_put(&j, "kind", json_text(kind_text(s->kind).s));
        json_put(&j, "done", json_count(s->n));
        json_put(&j, "failed", json_count(s->n_failed));
        json_put(&j, "bytes", json_count(s->bytes));
        json_put(&j, "wait_p50_ns", json_count(s->wait_p50_ns));
        json_put(&j, "wait_p99_ns", json_count(s->wait_p99_ns));
        json_put(&j, "run_p50_ns", json_count(s->run_p50_ns));
        json_put(&j, "run_p99_ns", json_count(s->run_p99_ns));
        json_put(&j, "run_total_ns", json_count(s->run_ns));
        json_put(&j, "wait_p999_ns", json_count(s->wait_p999_ns));
        json_put(&j, "run_p999_ns", json_count(s->run_p999_ns));
        json_put(&j, "gb_per_s", json_real(gigabytes_per_second(s->bytes, s->run_ns)));
        return j;
}

static json_t *class_json(const struct tutti_row_class *c) {
        json_t *j = json_object();

        json_put(&j, "kind", json_text(kind_text(c->kind).s));
        json_put(&j, "op", c->op == TUTTI_OP_UNSPECIFIED ? json_null() : json_text(op_text(c->op).s));
        json_put(&j, "from_bytes", json_count(c->from_bytes));
        json_put(&j, "to_bytes", c->to_bytes == UINT64_MAX ? json_null() : json_count(c->to_bytes));
        json_put(&j, "done", json_count(c->n));
        json_put(&j, "failed", json_count(c->n_failed));
        json_put(&j, "bytes", json_count(c->bytes));
        json_put(&j, "run_total_ns", json_count(c->run_ns));
        json_put(&j, "wait_p50_ns", json_count(c->wait_p50_ns));
        json_put(&j, "wait_p99_ns", json_count(c->wait_p99_ns));
        json_put(&j, "wait_p999_ns", json_count(c->wait_p999_ns));
        json_put(&j, "run_p50_ns", json_count(c->run_p50_ns));
        json_put(&j, "run_p99_ns", json_count(c->run_p99_ns));
        json_put(&j, "run_p999_ns", json_count(c->run_p999_ns));
        json_put(&j, "gb_per_s", json_real(gigabytes_per_second(c->bytes, c->run_ns)));
        return j;
}

static json_t *group_json(const struct tutti_answer *a, const char *job, const char *group) {
        json_t *j = json_object(), *kinds = json_array(), *classes = json_array(), *replicas = json_array();
        const struct tutti_row *row = NULL;

        while ((row = rows_next_of(a, TUTTI_ROW_STATS, job, group, row)))
                json_add(&kinds, kind_json(&row->stats));
        while ((row = rows_next_of(a, TUTTI_ROW_CLASS, job, group, row)))
                json_add(&classes, class_json(&row->size_class));
        while ((row = rows_next_of(a, TUTTI_ROW_MEMBER, job, group, row)))
                json_add(&replicas, json_member(&row->member));
        json_put(&j, "job", json_text(job));
        json_put(&j, "group", json_text(group));
        json_put(&j, "kinds", kinds);
        json_put(&j, "classes", classes);
        json_put(&j, "members", replicas);
        return j;
}

json_t *stats_json(const struct tutti_answer *stats) {
        const struct tutti_row *daemon = rows_next(stats, TUTTI_ROW_DAEMON, NULL);
        json_t *j = json_object(), *groups = json_array();

        for (uint32_t i = 0; i < stats->n_rows; i++)
                if (is_first_of_group(stats, &stats->rows[i]))
                        json_add(&groups,
                                group_json(stats, row_job(&stats->rows[i]), row_group(&stats->rows[i])));
        json_put(&j, "tuttid", daemon ? json_daemon(&daemon->daemon) : json_null());
        json_put(&j, "ended", json_null());
        json_put(&j, "groups", groups);
        return j;
}

void stats_print_ended(
        const struct tutti_answer *groups, const struct tutti_row_group *g, const struct page *page) {
        const struct tutti_row *row = NULL;
        struct line l = { 0 };

        line_add_ended(&l, g);
        page_wrap(page, 0, 2, l.s);
        fprintf(page->out, "Its counters have ended with it. What it did last:\n");
        print_dump_hint("dump", g, page);
        print_dump_hint("trace", g, page);
        if (rows_next_member(groups, g, NULL))
                print_replicas_head(page);
        while ((row = rows_next_member(groups, g, row)))
                print_replica(&row->member, TONE_PLAIN, page);
}

json_t *stats_json_ended(const struct tutti_answer *groups, const struct tutti_row_group *g) {
        json_t *j = json_object(), *ended = json_ended(g), *replicas = json_array();
        const struct tutti_row *row = NULL;

        while ((row = rows_next_member(groups, g, row)))
                json_add(&replicas, json_member(&row->member));
        json_put(&ended, "members", replicas);
        json_put(&j, "tuttid", json_null());
        json_put(&j, "ended", ended);
        json_put(&j, "groups", json_array());
        return j;
}

/* What is asked for is not there any more. */
static int tell_ended(struct query *q, const struct tutti_answer *groups, const struct tutti_row_group *g) {
        if (q->json)
                return query_put_json(q, stats_json_ended(groups, g), CTL_WARNING);
        stats_print_ended(groups, g, &q->page);
        return CTL_WARNING;
}

static int stats_query(struct query *q) {
        _cleanup_answer_ struct tutti_answer *groups = NULL, *stats = NULL;
        const struct tutti_row_group *g = NULL;
        int r = 0;

        if (q->operand)
                r = query_ask_group(q, &groups, &g);
        if (r == 0 && g && g->ended)
                return tell_ended(q, groups, g);
        if (r == 0)
                r = query_ask(q, TUTTI_ADMIN_STATS, g ? g->job : NULL, g ? g->group : NULL, &stats);
        if (r != 0)
                return r;
        if (q->json)
                return query_put_json(q, stats_json(stats), CTL_WELL);
        stats_print(stats, &q->page);
        return CTL_WELL;
}

const struct command command_stats = {
        .name = "stats",
        .usage = "stats [--json] [--socket PATH] [--user UID] [JOB/GROUP]",
        .summary = "waiting and running by kind, op and size, and which replica comes last",
        .help = "wait   from a collective's first half to its last\n"
                "run    from its last half to the complete result\n"
                "late   from a collective's first half to this replica's\n"
                "share  of the collectives it took part in, those in which it came last\n"
                "size   input bytes that each replica brings\n"
                "GB/s   bytes that were read, of all replicas, in the time that collectives ran\n"
                "\n"
                "Of a group that has ended there are the totals and the replicas alone; exit: 1.\n"
                "JOB/ may be left out where only one job has a group of that name.\n",
        .operand = CTL_OPERAND_OPTIONAL,
        .query = stats_query,
};
