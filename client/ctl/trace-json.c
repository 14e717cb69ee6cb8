#include "trace.h"

#include <errno.h>
#include <jansson.h>
#include "json.h"
#include "rows.h"

#define PROCESS 1 /* the group */

struct events {
        const struct trace *t;
        FILE *out;
        bool is_any, is_short; /* of memory */
};

/* An event a line, since there may be a million of them. Takes `event`. */
static void put_event(struct events *e, json_t *event) {
        fputs(e->is_any ? ",\n" : "\n", e->out);
        if (!event ||
                json_dumpf(event, e->out, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15)) < 0)
                e->is_short |= !ferror(e->out);
        e->is_any = true;
        json_decref(event);
}

static json_t *micros(uint64_t ns) {
        return json_real((double)ns / 1e3);
}

/* Row 0 of a lane holds the collectives themselves, row 1 + rank those of a replica. */
static json_t *thread_number(const struct trace *t, uint32_t lane, uint32_t row) {
        return json_count((uint64_t)lane * (t->world_size + 1) + row);
}

static json_t *new_event(const char *phase, const char *name) {
        json_t *j = json_object();

        json_put(&j, "name", json_text(name));
        json_put(&j, "ph", json_string(phase));
        json_put(&j, "pid", json_count(PROCESS));
        return j;
}

static void put_name(struct events *e, const char *what, json_t *thread, const char *name) {
        json_t *j = new_event("M", what), *args = json_object();

        json_put(&j, "tid", thread);
        json_put(&args, "name", json_text(name));
        json_put(&j, "args", args);
        put_event(e, j);
}

static void put_order(struct events *e, json_t *thread, uint64_t order) {
        json_t *j = new_event("M", "thread_sort_index"), *args = json_object();

        json_put(&j, "tid", thread);
        json_put(&args, "sort_index", json_count(order));
        json_put(&j, "args", args);
        put_event(e, j);
}

static uint32_t pid_of(const struct trace *t, uint32_t rank) {
        const struct tutti_row *row = NULL;

        while (t->dump->life && (row = rows_next_member(t->dump->groups, t->dump->life, row)))
                if (row->member.rank == rank)
                        return row->member.pid;
        return 0;
}

static void put_rows(struct events *e) {
        const struct trace *t = e->t;
        struct line process = { 0 };

        line_add_group(&process, t->dump->job, t->dump->group);
        line_add(&process, " on %s", t->dump->host);
        put_name(e, "process_name", json_count(0), process.s);
        for (uint32_t row = 0; row <= t->world_size; row++)
                for (uint32_t lane = 0; lane < t->n_lanes; lane++) {
                        struct line name = { 0 };
                        uint32_t pid = row && lane == 0 ? pid_of(t, row - 1) : 0;

                        if (row)
                                line_add(&name, "R%u", row - 1);
                        else
                                line_add(&name, "collectives");
                        if (pid)
                                line_add(&name, " (pid %u)", pid);
                        if (lane)
                                line_add(&name, " +%u", lane);
                        put_name(e, "thread_name", thread_number(t, lane, row), name.s);
                        put_order(e, thread_number(t, lane, row), (uint64_t)row * t->n_lanes + lane);
                }
}

static json_t *whole_args(const struct tutti_row_record *r) {
        json_t *j = json_record(r);

        json_put(&j, "last_rank",
                record_has_arrival(r, r->last_rank) ? json_count(r->last_rank) : json_null());
        json_put(&j, "guilty_rank", r->has_guilty ? json_count(r->guilty_rank) : json_null());
        return j;
}

static json_t *part_args(const struct tutti_row_record *r, uint32_t rank) {
        json_t *j = json_object();

        json_put(&j, "key", json_text(r->key));
        json_put(&j, "epoch", json_count(r->epoch));
        json_put(&j, "collective", json_count(r->collective));
        json_put(&j, "rank", json_count(rank));
        return j;
}

/* What is to be known of one slice, beside where it stands. */
struct slice {
        const char *name, *category, *colour; /* of chrome://tracing; NULL: its choice */
        uint64_t from_ns, to_ns;              /* after the collective's begin */
};

static void put_slice(
        struct events *e, const struct trace_item *item, uint32_t row, const struct slice *s, json_t *args) {
        json_t *j = new_event("X", s->name);

        json_put(&j, "cat", json_string(s->category));
        json_put(&j, "tid", thread_number(e->t, item->lane, row));
        json_put(&j, "ts", micros(item->begin_ns + s->from_ns));
        json_put(&j, "dur", micros(s->to_ns - s->from_ns));
        if (s->colour)
                json_put(&j, "cname", json_string(s->colour));
        json_put(&j, "args", args);
        put_event(e, j);
}

static void put_arrival(struct events *e, const struct trace_item *item, uint32_t rank, uint64_t arrived_ns) {
        json_t *j = new_event("i", "arrival");

        json_put(&j, "cat", json_string("arrival"));
        json_put(&j, "tid", thread_number(e->t, item->lane, rank + 1));
        json_put(&j, "ts", micros(item->begin_ns + arrived_ns));
        json_put(&j, "s", json_string("t"));
        json_put(&j, "args", part_args(item->record, rank));
        put_event(e, j);
}

static void put_part(struct events *e, const struct trace_item *item, uint32_t rank) {
        const struct tutti_row_record *r = item->record;
        const struct trace_part part = trace_part(r, rank);
        const struct slice slices[] = {
                { "late", "late", "terrible", 0, part.arrived_ns },
                { "wait", "wait", "grey", part.arrived_ns, part.sealed_ns },
                { kind_text(r->kind).s, "run", "good", part.sealed_ns, part.done_ns },
        };
        const struct slice missing = { "missing", "missing", "bad", 0, part.done_ns };

        if (part.what == PART_MISSING)
                put_slice(e, item, rank + 1, &missing, part_args(r, rank));
        if (part.what != PART_CAME)
                return;
        put_arrival(e, item, rank, part.arrived_ns);
        for (size_t i = 0; i < sizeof(slices) / sizeof(*slices); i++)
                if (slices[i].to_ns > slices[i].from_ns)
                        put_slice(e, item, rank + 1, &slices[i], part_args(r, rank));
}

static void put_item(struct events *e, const struct trace_item *item) {
        const struct tutti_row_record *r = item->record;
        const struct slice whole = { r->key, r->status == TUTTI_OK ? "collective" : "failed",
                r->status == TUTTI_OK ? NULL : "terrible", 0, r->done_ns };

        put_slice(e, item, 0, &whole, whole_args(r));
        for (uint32_t rank = 0; rank < r->n_arrivals; rank++)
                put_part(e, item, rank);
}

static json_t *about(const struct trace *t) {
        const struct trace_straggler s = trace_straggler(t);
        json_t *j = json_object();

        json_put(&j, "format", json_count(1));
        json_put(&j, "host", json_text(t->dump->host));
        json_put(&j, "job", json_text(t->dump->job));
        json_put(&j, "group", json_text(t->dump->group));
        dump_put_about(&j, t->dump);
        json_put(&j, "taken_unix_ns", json_count(t->dump->taken_ns));
        json_put(&j, "start_unix_ns", json_count(t->start_unix_ns));
        json_put(&j, "collectives", json_count(t->n_items));
        json_put(&j, "dropped", json_count(dump_dropped(t->dump->records)));
        json_put(&j, "missed", dump_missed_json(t->dump->records));
        json_put(&j, "latest_rank", s.n_joint ? json_count(s.rank) : json_null());
        json_put(&j, "latest_came_last", json_count(s.n_last));
        json_put(&j, "joint", json_count(s.n_joint));
        return j;
}

int trace_write_json(const struct trace *t, FILE *out) {
        struct events e = { .t = t, .out = out };
        json_t *head = about(t);

        if (!head)
                return -ENOMEM;
        fputs("{\"displayTimeUnit\": \"ns\",\n\"otherData\": ", out);
        e.is_short = json_dumpf(head, out, JSON_COMPACT | JSON_ENSURE_ASCII) < 0 && !ferror(out);
        json_decref(head);
        fputs(",\n\"traceEvents\": [", out);
        put_rows(&e);
        for (uint32_t i = 0; i < t->n_items && !ferror(out); i++)
                put_item(&e, &t->items[i]);
        fputs("\n]}\n", out);
        return e.is_short ? -ENOMEM : 0;
}
