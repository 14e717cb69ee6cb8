/* The numbers of tutti on a CPU, made here and nowhere else.
 *
 * out[k] = ((in0 op in1) op in2)... in the order given, for MEAN divided by the divisor, then rounded once to
 * the dtype (f16 and bf16 are widened to f32, combined in f32, MEAN divided in f32, rounded to nearest-even,
 * subnormals kept; f32 and f64 in their own type; complex numbers by their parts; integers wrap). MIN and
 * MAX: NaN anywhere gives NaN, -0 < +0. MEAN of integers: the exact sum, divided and rounded as asked for.
 * With weights: products and sum in f64, rounded once. docs/numbers.md has every rule.
 *
 * Same bits at every instruction set. Inputs and outputs need element alignment only; an output may be equal
 * to one input whose elements have its size, and otherwise overlaps nothing. Every input element is read
 * before the outputs of the same element are written. The caller has set round-to-nearest, no flush to zero.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "isa.h"
#include "model/dtype.h"
#include "model/op.h"
#include "model/rounding.h"

/* What a check has found. */
struct kernel_count {
        size_t n;     /* elements */
        size_t first; /* index of the first; counts where n > 0 */
};

struct kernel_call {
        enum op op;
        enum dtype dtype;
        /* Of the outputs. Unspecified: as the op has it. Wider than dtype, with SUM or PROD: a partial result
         * in the type in which it was accumulated. Narrower: a total of such. */
        enum dtype output_dtype;
        /* [n_inputs], 1 <= n_inputs; where checks are asked for, with weights and for MEAN of integers at
         * most MAX_WORLD */
        const void *const *inputs;
        uint32_t n_inputs;
        void *const *outputs; /* [n_outputs] */
        uint32_t n_outputs;
        size_t count;     /* elements */
        uint32_t divisor; /* MEAN: >= 1 */
        /* MEAN of integers: how to come back to their type; ROUNDING_UNSPECIFIED: the outputs are of
         * dtype_of_integer_mean. */
        enum rounding rounding;
        /* SUM and MEAN of floats: [n_inputs], finite, >= 0; NULL: none. An input of weight 0 is not looked
         * at. */
        const double *weights;
        double total_weight; /* their sum, finite; MEAN: > 0 */
        /* Results go past the caches, since nobody reads them soon: where outputs have the elements of dtype,
         * none is an input, and no check is asked for. The same bits. */
        bool is_streamed;
        /* [n_inputs]; NULL: not asked. For each input, what is NaN or infinite, or has such a part, is added.
         */
        struct kernel_count *nonfinite;
};

/* The best the processor has, at most `wanted` (ISA_AUTO: the best). */
enum isa kernels_isa(enum isa wanted);
const char *isa_name(enum isa isa); /* "scalar", "AVX2", "AVX-512" */

/* op_is_supported(op, dtype) must hold, or it is MEAN of integers. */
void kernels_reduce(enum isa isa, const struct kernel_call *call);

/* Input 0 to every output. */
void kernels_copy(enum isa isa, const struct kernel_call *call);

/* Results of the call that wrap: the exact SUM or PROD of integers is beyond their type. None with other ops
 * and dtypes. Before the call runs. */
struct kernel_count kernels_count_wrapped(enum isa isa, const struct kernel_call *call);
