#include "trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "dump.h"
#include "rows.h"

#define DEFAULT_LAST 1000

static int compare_begin(const void *a, const void *b) {
        const struct trace_item *x = a, *y = b;

        if (x->begin_ns != y->begin_ns)
                return x->begin_ns < y->begin_ns ? -1 : 1;
        return (x->record->collective > y->record->collective) -
               (x->record->collective < y->record->collective);
}

static uint32_t count_records(const struct tutti_answer *records) {
        const struct tutti_row *row = NULL;
        uint32_t n = 0;

        while ((row = rows_next(records, TUTTI_ROW_RECORD, row)))
                n++;
        return n;
}

/* The last n_items records: as begin_ns their ages, as end_ns how long they took. */
static void take_records(struct trace *t, uint32_t n_records) {
        const struct tutti_row *row = NULL;
        uint32_t n = 0;

        while ((row = rows_next(t->dump->records, TUTTI_ROW_RECORD, row))) {
                const struct tutti_row_record *r = &row->record;

                if (n_records-- > t->n_items)
                        continue;
                t->items[n++] =
                        (struct trace_item){ .record = r, .begin_ns = r->age_ns, .end_ns = r->done_ns };
                t->world_size = r->n_arrivals > t->world_size ? r->n_arrivals : t->world_size;
        }
}

/* Turns ages and durations into times since the oldest one's begin. */
static void place(struct trace *t) {
        uint64_t oldest_ns = 0;

        for (uint32_t i = 0; i < t->n_items; i++)
                oldest_ns = t->items[i].begin_ns > oldest_ns ? t->items[i].begin_ns : oldest_ns;
        t->start_unix_ns = oldest_ns < t->dump->taken_ns ? t->dump->taken_ns - oldest_ns : 0;
        for (uint32_t i = 0; i < t->n_items; i++) {
                struct trace_item *item = &t->items[i];

                item->begin_ns = oldest_ns - item->begin_ns;
                item->end_ns += item->begin_ns;
                t->end_ns = item->end_ns > t->end_ns ? item->end_ns : t->end_ns;
        }
        qsort(t->items, t->n_items, sizeof(*t->items), compare_begin);
}

/* `ends`: for each lane, when its last collective ends. */
static void assign_lanes(struct trace *t, uint64_t *ends) {
        for (uint32_t i = 0; i < t->n_items; i++) {
                struct trace_item *item = &t->items[i];

                while (item->lane < t->n_lanes && ends[item->lane] > item->begin_ns)
                        item->lane++;
                if (item->lane == t->n_lanes)
                        t->n_lanes++;
                ends[item->lane] = item->end_ns;
        }
}

struct trace *trace_new(const struct dump_view *dump, uint32_t last) {
        uint32_t n_records = count_records(dump->records), n = n_records < last ? n_records : last;
        struct trace *t = calloc(1, sizeof(*t) + n * sizeof(*t->items));
        uint64_t *ends = calloc(n + 1, sizeof(*ends));

        if (t && ends) {
                t->dump = dump;
                t->n_items = n;
                take_records(t, n_records);
                place(t);
                assign_lanes(t, ends);
        } else {
                free(t);
                t = NULL;
        }
        free(ends);
        return t;
}

void trace_free(struct trace *t) {
        free(t);
}

struct trace_part trace_part(const struct tutti_row_record *r, uint32_t rank) {
        struct trace_part part = {
                .what = r->status == TUTTI_OK ? PART_ABSENT : PART_MISSING,
                .sealed_ns = record_is_sealed(r) && r->sealed_ns < r->done_ns ? r->sealed_ns : r->done_ns,
                .done_ns = r->done_ns,
        };

        if (record_has_arrival(r, rank)) {
                part.what = PART_CAME;
                part.arrived_ns = r->arrival_ns[rank] < part.sealed_ns ? r->arrival_ns[rank] : part.sealed_ns;
        }
        return part;
}

static bool is_joint(const struct tutti_row_record *r) {
        uint32_t n = 0;

        for (uint32_t rank = 0; rank < r->n_arrivals && n < 2; rank++)
                n += record_has_arrival(r, rank);
        return n == 2;
}

static int compare_ns(const void *a, const void *b) {
        const uint64_t *x = a, *y = b;

        return (*x > *y) - (*x < *y);
}

static uint64_t median_lateness(const struct trace *t, uint32_t rank) {
        uint64_t *ns = calloc(t->n_items + 1, sizeof(*ns)), median;
        uint32_t n = 0;

        for (uint32_t i = 0; ns && i < t->n_items; i++)
                if (record_has_arrival(t->items[i].record, rank))
                        ns[n++] = t->items[i].record->arrival_ns[rank];
        if (n)
                qsort(ns, n, sizeof(*ns), compare_ns);
        median = n ? ns[n / 2] : 0;
        free(ns);
        return median;
}

struct trace_straggler trace_straggler(const struct trace *t) {
        struct trace_straggler found = { 0 };
        uint32_t n_last[TUTTI_MAX_WORLD] = { 0 };

        for (uint32_t i = 0; i < t->n_items; i++) {
                const struct tutti_row_record *r = t->items[i].record;

                if (!is_joint(r) || r->last_rank >= TUTTI_MAX_WORLD)
                        continue;
                found.n_joint++;
                n_last[r->last_rank]++;
        }
        for (uint32_t rank = 0; rank < TUTTI_MAX_WORLD; rank++)
                if (n_last[rank] > found.n_last) {
                        found.rank = rank;
                        found.n_last = n_last[rank];
                }
        if (found.n_joint)
                found.median_ns = median_lateness(t, found.rank);
        return found;
}

static int trace_query(struct query *q) {
        _cleanup_dump_answer_ struct dump_answer d = { 0 };
        struct trace *t;
        int r = dump_ask(q, &d);

        if (r != 0)
                return r;
        t = trace_new(&d.view, q->last ? q->last : DEFAULT_LAST);
        if (!t)
                r = -ENOMEM;
        else
                r = q->svg ? trace_write_svg(t, q->page.out) : trace_write_json(t, q->page.out);
        trace_free(t);
        if (r == 0)
                return CTL_WELL;
        fprintf(stderr, "tuttictl: %s\n", strerror(-r));
        return CTL_IO;
}

const struct command command_trace = {
        .name = "trace",
        .usage = "trace [--json | --svg] [--last N] [--epoch N] [--socket PATH] [--user UID] JOB/GROUP",
        .summary = "the flight recorder as a timeline: who waited for whom",
        .help = "Writes a document to standard output; put it into a file:\n"
                "\n"
                "  tuttictl trace dp/train >trace.json       for https://ui.perfetto.dev or "
                "chrome://tracing\n"
                "  tuttictl trace --svg dp/train >trace.svg  for any browser\n"
                "\n"
                "A row for each replica: late (after the first came), wait (for the last), then the run.\n"
                "The replica that keeps the others waiting is the one that is late and never waits.\n"
                "The run ends with the results of all: when each replica collected its own is not known\n"
                "to tuttid. Of the last 1,000 collectives, unless --last says how many; --epoch reads an\n"
                "older record, as in `dump`.\n"
                "\n"
                "JOB/ may be left out where only one job has a group of that name.\n",
        .operand = CTL_OPERAND_REQUIRED,
        .takes = CTL_TAKES_SVG | CTL_TAKES_LAST | CTL_TAKES_EPOCH,
        .query = trace_query,
};
