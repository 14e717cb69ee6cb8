/* What a check found in numbers that were reduced all the same: how many elements, and which is the first.
 * Plain values. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct finding {
        uint64_t n; /* elements, over all entries (numerics: and all inputs); 0: none, and nothing else counts
                     */
        uint32_t rank;  /* numerics: whose input the first is in */
        uint32_t entry; /* of the batch */
        uint64_t index; /* element, counted over the shape, last dimension fastest */
};

/* Indices of sparse values that name no row; the first is that of the lowest entry, rank and position. */
struct bad_index {
        uint64_t n;
        uint32_t rank, entry;
        uint64_t position; /* among those that the rank brought */
        int64_t value;
        uint64_t bound; /* it had to be below */
};

/* A result of which only the run tells how long it is, and which is longer than an output has room for. */
struct short_output {
        uint64_t needed; /* rows; 0: none is short */
        uint64_t room;
        uint32_t rank, entry;
};

struct findings {
        struct finding numerics; /* check_numerics: a NaN or an infinity in an input */
        struct finding overflow; /* check_overflow: a SUM or PROD of integers that wrapped */
        /* What ends a run before anything is written. */
        struct bad_index bad_index;
        struct short_output short_output;
};

/* Adds what another part of the same collective found: the first is that of the lowest rank, then of the
 * lowest entry and index, in whatever order parts are added. */
void findings_add(struct findings *f, const struct findings *other);

/* Whether the run must not go on. */
bool findings_forbid(const struct findings *f);
