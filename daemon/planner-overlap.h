/* Which bytes a sealed collective reads and writes, and whether any that are written are also somebody else's
 * (P14). Private to the planner; pure. */
#pragma once

#include "algorithms/algorithm.h"

/* Bytes [begin, end) of a file, end > begin: from the first of a value to its last. */
struct range {
        uint64_t file, begin, end;
        uint32_t entry;
        uint16_t half; /* index in the problem */
        bool is_read, is_written, is_strided;
        bool is_of_indices; /* of a sparse value: its indices, not its rows */
};

/* Scratch memory that grows and is kept. All zero at first. */
struct ranges {
        struct range *all, *spare,
                *folded; /* [capacity] each; folded NULL until something strided asks for it */
        size_t n, capacity;
};

void ranges_deinit(struct ranges *r);

/* Everything that the collective reads and writes. 0 or -ENOMEM. */
int ranges_gather(struct ranges *r, const struct problem *problem) MUST_USE;

/* Two values of which the first is written. */
struct overlap {
        enum sharing
                sharing; /* UNKNOWN: their strides do not tell in reasonable time whether they share bytes */
        const struct range *output, *other;
};

/* Finds one; *ret is good until the ranges are gathered anew. 0 or -ENOMEM. */
int ranges_find_overlap(struct ranges *r, const struct problem *problem, struct overlap *ret) MUST_USE;

/* The place that a range is of. */
static inline const struct place *range_place(const struct problem *problem, const struct range *r) {
        const struct entry *entry = &problem->entries[r->half][r->entry];
        if (r->is_of_indices)
                return r->is_read ? &entry->sparse.indices : &entry->sparse.output_indices;
        return r->is_read ? &entry->input : &entry->output;
}
