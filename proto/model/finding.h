/* What a check found in numbers that were reduced all the same: how many elements, and which is the first.
 * Plain values. */
#pragma once

#include <stdint.h>

struct finding {
        uint64_t n; /* elements, over all entries (numerics: and all inputs); 0: none, and nothing else counts
                     */
        uint32_t rank;  /* numerics: whose input the first is in */
        uint32_t entry; /* of the batch */
        uint64_t index; /* element, counted over the shape, last dimension fastest */
};

struct findings {
        struct finding numerics; /* check_numerics: a NaN or an infinity in an input */
        struct finding overflow; /* check_overflow: a SUM or PROD of integers that wrapped */
};

/* Adds what another part of the same collective found: the first is that of the lowest rank, then of the
 * lowest entry and index, in whatever order parts are added. */
void findings_add(struct findings *f, const struct findings *other);
