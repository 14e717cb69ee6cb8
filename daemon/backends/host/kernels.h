/* The numbers of tutti on a CPU, made here and nowhere else.
 *
 * out[k] = ((in0 op in1) op in2)... in the order given, for MEAN divided by the divisor, then rounded once to
 * the dtype (f16 and bf16 are widened to f32, combined in f32, MEAN divided in f32, rounded to nearest-even,
 * subnormals kept; f32 and f64 in their own type; integers wrap). MIN and MAX: NaN anywhere gives NaN, -0 <
 * +0. Same bits at every instruction set. Inputs and outputs need element alignment only; an output may be
 * equal to one input, and otherwise overlaps nothing. Every input element is read before the outputs of the
 * same element are written. The caller has set round-to-nearest, no flush to zero. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "config.h"
#include "model/dtype.h"
#include "model/op.h"

struct kernel_call {
        enum op op;
        enum dtype dtype;
        const void *const *inputs; /* [n_inputs], n_inputs >= 1 */
        uint32_t n_inputs;
        void *const *outputs; /* [n_outputs] */
        uint32_t n_outputs;
        size_t count;     /* elements */
        uint32_t divisor; /* MEAN: >= 1 */
};

/* The best the processor has, at most `wanted` (ISA_AUTO: the best). */
enum isa kernels_isa(enum isa wanted);
const char *isa_name(enum isa isa); /* "scalar", "AVX2", "AVX-512" */

/* op_is_supported(op, dtype) must hold. */
void kernels_reduce(enum isa isa, const struct kernel_call *call);

/* Input 0 to every output. */
void kernels_copy(enum isa isa, const struct kernel_call *call);
