/* The flight recorder laid out on one axis of time, for eyes: who waited for whom.
 *
 * A collective has three times for each replica: it came (late, after the first), it waited for the last, and
 * the collective ran. Collectives of one group may overlap, since replicas may have many pending: each gets
 * the lowest lane that is free when it begins. Pure but for the FILE written to. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include "views.h"

struct trace_item {
        const struct tutti_row_record *record;
        uint64_t begin_ns, end_ns; /* since the trace's begin */
        uint32_t lane;
};

struct trace {
        const struct dump_view *dump;
        uint64_t start_unix_ns; /* the first half of the earliest collective */
        uint64_t end_ns;
        uint32_t n_items, n_lanes, world_size;
        struct trace_item items[]; /* in the order in which they began */
};

/* Of the last `last` records. NULL: memory is short. `dump` stays the caller's, and must live as long. */
struct trace *trace_new(const struct dump_view *dump, uint32_t last);
void trace_free(struct trace *t);

/* One replica's part in a collective, in ns after the collective's begin: late until `arrived_ns`, waiting
 * until `sealed_ns`, running until `done_ns`. */
struct trace_part {
        enum { PART_CAME, PART_MISSING, PART_ABSENT } what; /* ABSENT: it went on without this replica */
        uint64_t arrived_ns, sealed_ns, done_ns;
};

struct trace_part trace_part(const struct tutti_row_record *r, uint32_t rank);

/* Who comes last most. */
struct trace_straggler {
        uint32_t rank, n_last, n_joint; /* n_joint 0: nobody has met anybody */
        uint64_t median_ns;             /* its lateness */
};

struct trace_straggler trace_straggler(const struct trace *t);

/* Chrome's trace event format, which Perfetto reads too (docs/schema/trace.json). 0 or -ENOMEM; whether
 * writing worked is to be asked of `out`. */
int trace_write_json(const struct trace *t, FILE *out);
/* A picture that needs no viewer but a browser. The same. */
int trace_write_svg(const struct trace *t, FILE *out);
