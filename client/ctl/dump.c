/* The flight recorder of one group: what happened, who came when, who is to blame. */
#include "dump.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "json.h"
#include "rows.h"

#define ROW_FORMAT     "%-12s  %-12s  %-17s  %-15s  "
#define SHOWN_ARRIVALS 32

static struct word clock_text(uint64_t unix_ns) {
        time_t s = (time_t)(unix_ns / 1000000000);
        struct tm tm;
        struct word w;
        size_t n;

        localtime_r(&s, &tm);
        n = strftime(w.s, sizeof(w.s), "%H:%M:%S", &tm);
        snprintf(w.s + n, sizeof(w.s) - n, ".%03u", (unsigned int)(unix_ns / 1000000 % 1000));
        return w;
}

uint64_t dump_start_ns(const struct dump_view *v, const struct tutti_row_record *r) {
        return r->age_ns < v->taken_ns ? v->taken_ns - r->age_ns : 0;
}

static void line_add_arrivals(struct line *l, const struct tutti_row_record *r) {
        for (uint32_t i = 0; i < r->n_arrivals && i < SHOWN_ARRIVALS; i++)
                if (record_has_arrival(r, i))
                        line_add(l, "  R%u +%s", i, duration(r->arrival_ns[i]).s);
                else
                        line_add(l, "  R%u -", i);
        if (r->n_arrivals > SHOWN_ARRIVALS)
                line_add(l, "  (R%u-R%u: see --json)", SHOWN_ARRIVALS, r->n_arrivals - 1);
}

static void print_times(const struct tutti_row_record *r, const struct page *page) {
        struct line l = { 0 };

        line_add(&l, "waited %s", duration(record_is_sealed(r) ? r->sealed_ns : r->done_ns).s);
        if (record_is_sealed(r) && r->done_ns >= r->sealed_ns)
                line_add(&l, "  ran %s", duration(r->done_ns - r->sealed_ns).s);
        if (r->has_guilty)
                line_add(&l, "  guilty R%u", r->guilty_rank);
        if (record_has_arrival(r, r->last_rank) && r->n_arrivals > 1)
                line_add(&l, "  last R%u:", r->last_rank);
        line_add_arrivals(&l, r);
        fprintf(page->out, "%*s", 14, "");
        page_wrap(page, 14, 14, l.s);
}

static void line_add_value(struct line *l, const struct tutti_row_record *r) {
        if (r->n_entries == 1 && r->dtype != TUTTI_DTYPE_UNSPECIFIED)
                line_add(l, "%s ", dtype_text(r->dtype).s);
        line_add(l, "%s", bytes_text(r->bytes).s);
        if (r->n_entries > 1)
                line_add(l, " x%u", r->n_entries);
}

static void print_missed(const struct tutti_row_record *r, const struct page *page) {
        struct line l = { 0 };

        if (!r->missed)
                return;
        line_add(&l, "%s collective%s missing here: overwritten before %s could be told", count(r->missed).s,
                r->missed == 1 ? " is" : "s are", r->missed == 1 ? "it" : "they");
        fprintf(page->out, "%*s", 14, "");
        page_wrap(page, 14, 14, l.s);
}

static void print_record(
        const struct dump_view *v, const struct tutti_row_record *r, const struct page *page) {
        struct line key = { 0 }, what = { 0 }, value = { 0 };

        line_add_key(&key, r->key);
        line_add(&what, "%s", kind_text(r->kind).s);
        if (r->op != TUTTI_OP_UNSPECIFIED)
                line_add(&what, " %s", op_text(r->op).s);
        line_add_value(&value, r);
        print_missed(r, page);
        fprintf(page->out, ROW_FORMAT, clock_text(dump_start_ns(v, r)).s, key.s, what.s, value.s);
        page_label(page, r->status == TUTTI_OK ? TONE_PLAIN : TONE_BAD, tutti_status_name(r->status), 0);
        fputc('\n', page->out);
        print_times(r, page);
}

const struct tutti_row_dump *dump_about(const struct dump_view *v) {
        const struct tutti_row *row = rows_next(v->records, TUTTI_ROW_DUMP, NULL);

        return row && row->dump.last_epoch ? &row->dump : NULL;
}

void dump_put_about(json_t **j, const struct dump_view *v) {
        const struct tutti_row_dump *about = dump_about(v);

        json_put(j, "first_epoch", about ? json_count(about->first_epoch) : json_null());
        json_put(j, "last_epoch", about ? json_count(about->last_epoch) : json_null());
        json_put(j, "ended", about ? json_boolean(about->ended) : json_null());
}

/* How many records had gone before the oldest of this answer. */
uint64_t dump_dropped(const struct tutti_answer *records) {
        const struct tutti_row *row = rows_next(records, TUTTI_ROW_RECORD, NULL);

        return row ? row->record.dropped : 0;
}

bool dump_missed(const struct tutti_answer *records, uint64_t *ret) {
        const struct tutti_row *row = rows_next(records, TUTTI_ROW_DUMP, NULL);

        *ret = row ? row->dump.missed : 0;
        return row != NULL;
}

json_t *dump_missed_json(const struct tutti_answer *records) {
        uint64_t missed;

        return dump_missed(records, &missed) ? json_count(missed) : json_null();
}

static bool is_shortened(const struct tutti_answer *records) {
        const struct tutti_row *row = NULL;

        while ((row = rows_next(records, TUTTI_ROW_RECORD, row)))
                if (row->record.shortened)
                        return true;
        return false;
}

static void print_head(const struct dump_view *v, const struct page *page) {
        uint64_t n = 0, dropped = dump_dropped(v->records), missed;
        const struct tutti_row *row = NULL;
        struct line l = { 0 };

        while ((row = rows_next(v->records, TUTTI_ROW_RECORD, row)))
                n++;
        line_add_group(&l, v->job, v->group);
        line_add(&l, " on %s", v->host);
        if (v->life && v->life->ended)
                line_add(&l, ", ended %s ago", duration(v->life->age_ns).s);
        line_add(&l, ": %s collective%s", count(n).s, n == 1 ? "" : "s");
        if (dropped)
                line_add(&l, "; %s older ones were dropped", count(dropped).s);
        if (dump_missed(v->records, &missed) && missed)
                line_add(&l, "; %s %s could be told", count(missed).s,
                        missed == 1 ? "was overwritten before it" : "were overwritten before they");
        if (is_shortened(v->records))
                line_add(&l, "; memory for records is at its limit, so fewer than 4,096 are kept");
        page_wrap(page, 0, 2, l.s);
}

/* Another life of the group, with a record that this page does not show. */
static bool is_other(const struct dump_view *v, const struct tutti_row_group *g) {
        return g != v->life && (g->ended || g->n_done + g->n_failed > 0);
}

static void print_others(const struct dump_view *v, const struct page *page) {
        const struct tutti_row *row = NULL;
        struct line l = { 0 };

        while ((row = rows_next_of(v->groups, TUTTI_ROW_GROUP, v->job, v->group, row)))
                if (is_other(v, &row->group))
                        line_add(&l, "%s--epoch %" PRIu64,
                                l.used ? ", " : "other records of this name: ", row->group.epoch);
        if (l.used)
                page_wrap(page, 0, 2, l.s);
}

/* Who the replicas of an ended group were; of one that is there, those that are gone. */
static void print_members(const struct dump_view *v, const struct page *page) {
        const struct tutti_row *row = NULL;

        while (v->life && (row = rows_next_member(v->groups, v->life, row)))
                if (v->life->ended || member_is_gone(&row->member))
                        member_print(&row->member, page);
}

static json_t *others_json(const struct dump_view *v) {
        json_t *array = json_array();
        const struct tutti_row *row = NULL;

        while ((row = rows_next_of(v->groups, TUTTI_ROW_GROUP, v->job, v->group, row)))
                if (is_other(v, &row->group))
                        json_add(&array, json_count(row->group.epoch));
        return array;
}

void dump_print(const struct dump_view *v, const struct page *page) {
        const struct tutti_row *row = NULL;

        print_head(v, page);
        print_others(v, page);
        print_members(v, page);
        if (!rows_next(v->records, TUTTI_ROW_RECORD, NULL))
                return;
        fprintf(page->out, ROW_FORMAT "status\n", "time", "key", "kind and op", "value");
        while ((row = rows_next(v->records, TUTTI_ROW_RECORD, row)))
                print_record(v, &row->record, page);
}

static json_t *arrivals_json(const struct tutti_row_record *r) {
        json_t *array = json_array();

        for (uint32_t i = 0; i < r->n_arrivals; i++)
                json_add(&array, record_has_arrival(r, i) ? json_count(r->arrival_ns[i]) : json_null());
        return array;
}

static json_t *record_json(const struct dump_view *v, const struct tutti_row_record *r) {
        json_t *j = json_record(r);

        json_put(&j, "missed_before", json_count(r->missed));
        json_put(&j, "start_unix_ns", json_count(dump_start_ns(v, r)));
        json_put(&j, "age_ns", json_count(r->age_ns));
        json_put(&j, "sealed_after_ns", record_is_sealed(r) ? json_count(r->sealed_ns) : json_null());
        json_put(&j, "done_after_ns", json_count(r->done_ns));
        json_put(&j, "arrived", json_ranks(&r->have));
        json_put(&j, "arrived_after_ns", arrivals_json(r));
        json_put(&j, "last_rank",
                record_has_arrival(r, r->last_rank) ? json_count(r->last_rank) : json_null());
        json_put(&j, "guilty_rank", r->has_guilty ? json_count(r->guilty_rank) : json_null());
        return j;
}

json_t *dump_json(const struct dump_view *v) {
        json_t *j = json_object(), *records = json_array(), *members = json_array();
        const struct tutti_row *row = NULL;

        while (v->life && (row = rows_next_member(v->groups, v->life, row)))
                json_add(&members, json_member(&row->member));
        while ((row = rows_next(v->records, TUTTI_ROW_RECORD, row)))
                json_add(&records, record_json(v, &row->record));
        json_put(&j, "format", json_count(1));
        json_put(&j, "host", json_text(v->host));
        json_put(&j, "taken_unix_ns", json_count(v->taken_ns));
        json_put(&j, "job", json_text(v->job));
        json_put(&j, "group", json_text(v->group));
        dump_put_about(&j, v);
        json_put(&j, "other_epochs", others_json(v));
        json_put(&j, "dropped", json_count(dump_dropped(v->records)));
        json_put(&j, "missed", dump_missed_json(v->records));
        json_put(&j, "shortened", json_boolean(is_shortened(v->records)));
        json_put(&j, "members", members);
        json_put(&j, "records", records);
        return j;
}

static uint64_t unix_ns(void) {
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void dump_answer_deinit(struct dump_answer *d) {
        tutti_answer_free(d->groups);
        tutti_answer_free(d->records);
}

int dump_ask(struct query *q, struct dump_answer *d) {
        const struct tutti_row_group *g;
        int r = query_ask_group(q, &d->groups, &g);

        if (r != 0)
                return r;
        uint64_t taken_ns = unix_ns(); /* ages count back from when tuttid hears the question */
        enum tutti_status status = tutti_admin_ask_about(q->t,
                &TUTTI_ADMIN_QUESTION(.what = TUTTI_ADMIN_DUMP, .job = g->job, .group = g->group,
                        .epoch = q->epoch),
                &d->records);
        if (status != TUTTI_OK)
                return query_report(q, status);
        if (gethostname(d->host, sizeof(d->host)) < 0)
                strcpy(d->host, "?");
        d->host[sizeof(d->host) - 1] = '\0';
        d->view = (struct dump_view){ d->records, d->groups, g->job, g->group, d->host, taken_ns, g };
        if (dump_about(&d->view))
                d->view.life = rows_find_life(d->groups, g->job, g->group, dump_about(&d->view));
        return 0;
}

static int dump_query(struct query *q) {
        _cleanup_dump_answer_ struct dump_answer d = { 0 };
        int r = dump_ask(q, &d);

        if (r != 0)
                return r;
        if (q->json)
                return query_put_json(q, dump_json(&d.view), CTL_WELL);
        dump_print(&d.view, &q->page);
        return CTL_WELL;
}

const struct command command_dump = {
        .name = "dump",
        .usage = "dump [--epoch N] [--json] [--socket PATH] [--user UID] JOB/GROUP",
        .summary = "the flight recorder of a group: its last 4,096 collectives",
        .help = "For each collective: when its first half came, its key, kind, op and value, and how it\n"
                "ended; then how long it waited for the last half and ran, who is guilty where it\n"
                "failed, who came last, and when each replica's half came after the first.\n"
                "Collectives of a fast group that are overwritten while they are told are counted, where\n"
                "they are missing and in the head.\n"
                "\n"
                "A job that was started again under its name goes on counting epochs: --epoch reads the\n"
                "record that tells of that one, as `groups` names it. Without it: of the group that is\n"
                "there, else of the one that ended last.\n"
                "\n"
                "JOB/ may be left out where only one job has a group of that name.\n",
        .operand = CTL_OPERAND_REQUIRED,
        .takes = CTL_TAKES_EPOCH,
        .query = dump_query,
};
