/* Sums of any number of integers that fit into 64 bits, and their means: the same numbers as kernels_reduce's
 * MEAN of integers, where there are more contributions than one call takes. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "model/dtype.h"
#include "model/rounding.h"

/* Adds n elements to n sums. At most 2^32 times to each. */
void kernels_exact_add(enum dtype dtype, const void *elements, size_t n, __int128 *sums);

struct exact_mean {
        enum dtype output_dtype; /* an integer where there is a rounding, else f32 or f64 */
        enum rounding rounding;
        uint32_t divisor;
};

void kernels_exact_mean(const struct exact_mean *mean, const __int128 *sums, size_t n, void *output);
