/* One table of kernels for each instruction set; kernels.c picks. Private to the kernels. */
#pragma once

#include "backends/host/kernels.h"

typedef void kernel_fn(const struct kernel_call *call);

struct kernel_table {
        kernel_fn *reduce[N_DTYPE][N_OP]; /* NULL where op_is_supported says no, but for MEAN of integers */
        kernel_fn
                *checked[N_DTYPE][N_OP]; /* the same, looking for NaNs and infinities; NULL: there are none */
        kernel_fn *weighted[N_DTYPE];    /* SUM and MEAN of floats with weights; looks where it is asked to */
        /* In two goes (kernel_call.output_dtype): by the dtype of the inputs; by that of the outputs. NULL:
         * the kernels above do it. */
        kernel_fn *partial[N_DTYPE], *weighted_partial[N_DTYPE];
        kernel_fn *total[N_DTYPE], *weighted_total[N_DTYPE];
        /* Added to *ret; SUM and PROD of integers. */
        void (*count_wrapped[N_DTYPE])(const struct kernel_call *call, struct kernel_count *ret);
        bool (*has_nonfinite[N_DTYPE])(const void *elements, size_t n_bytes); /* floats and complex */
};

/* Counts what is not finite in these bytes of one input, or of all: the slow way, where a kernel has seen
 * that there is something. */
void kernels_note_input(const struct kernel_call *call, uint32_t input, size_t at_bytes, size_t n_bytes);
void kernels_note_nonfinite(const struct kernel_call *call, size_t at_bytes, size_t n_bytes);

/* The latter two only where they were built. */
extern const struct kernel_table kernel_table_scalar, kernel_table_avx2, kernel_table_avx512;

/* The instruction sets beyond the baseline that were built for this architecture: kernels-x86.c or
 * kernels-baseline.c. NULL when the processor (or the operating system) lacks it. */
const struct kernel_table *kernel_table_find(enum isa isa);

/* From there as well. A copy past the caches, where the processor can; kernels_stream_end puts it before what
 * is stored afterwards. */
void kernels_stream(void *to, const void *from, size_t n_bytes);
void kernels_stream_end(void);
