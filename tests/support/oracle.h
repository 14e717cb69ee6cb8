/* What a reduction must give, one element at a time in the plainest way there is: no vectors, no tricks with
 * bits where arithmetic can say it. Written apart from the kernels, which it judges. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "model/dtype.h"
#include "model/finding.h"
#include "model/op.h"
#include "model/signature.h"

/* output[k] = inputs[0][k] op inputs[1][k] ..., MEAN divided by `divisor`. `output` overlaps no input. */
void oracle_reduce(enum op op, enum dtype dtype, const void *const *inputs, uint32_t n_inputs, void *output,
        size_t count, uint32_t divisor);

/* The exact sum divided by `divisor`; `output` is of dtype_of_integer_mean where the rounding is unspecified.
 */
void oracle_mean_of_integers(enum dtype dtype, enum rounding rounding, const void *const *inputs,
        uint32_t n_inputs, void *output, size_t count, uint32_t divisor);

/* SUM or MEAN of floats, each times its weight. */
void oracle_weighted(enum op op, enum dtype dtype, const void *const *inputs, const double *weights,
        uint32_t n_inputs, void *output, size_t count);

/* The same with another divisor of the mean than the sum of these weights. */
void oracle_weighted_by(enum op op, enum dtype dtype, const void *const *inputs, const double *weights,
        uint32_t n_inputs, void *output, size_t count, double total);

/* What is NaN or infinite, or has such a part, is counted in *found; the first of all is that of the lowest
 * rank, entry and index. `at` says whose array it is. */
void oracle_find_nonfinite(
        enum dtype dtype, const void *array, size_t count, const struct finding *at, struct finding *found);
/* Sums and products of integers that are beyond their type; none with other ops and dtypes. */
void oracle_find_wrapped(enum op op, enum dtype dtype, const void *const *inputs, uint32_t n_inputs,
        size_t count, uint32_t entry, struct finding *found);

/* The first element whose bits differ, or -1: a NaN equals every NaN. */
ptrdiff_t oracle_difference(enum dtype dtype, const void *a, const void *b, size_t count);

/* "0x3c00" and the like, of one element; in a static buffer, two at a time. */
const char *oracle_show(enum dtype dtype, const void *array, size_t index);

double oracle_from_f16(uint16_t half);
double oracle_from_bf16(uint16_t half);
/* Rounded to nearest, ties to even. */
uint16_t oracle_to_f16(double value);
uint16_t oracle_to_bf16(double value);

/* Fills with values of `dtype` that depend on `seed` alone: ordinary ones, and now and then those where
 * mistakes hide (zeros of both signs, subnormals, the largest, infinities, NaNs, the ends of integers). */
void oracle_fill(enum dtype dtype, void *array, size_t count, uint64_t seed);
