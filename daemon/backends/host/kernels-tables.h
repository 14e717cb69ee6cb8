/* One table of kernels for each instruction set; kernels.c picks. Private to the kernels. */
#pragma once

#include "backends/host/kernels.h"

typedef void kernel_fn(const struct kernel_call *call);

struct kernel_table {
        kernel_fn *reduce[N_DTYPE][N_OP]; /* NULL where op_is_supported says no */
};

/* The latter two only where they were built. */
extern const struct kernel_table kernel_table_scalar, kernel_table_avx2, kernel_table_avx512;

/* The instruction sets beyond the baseline that were built for this architecture: kernels-x86.c or
 * kernels-baseline.c. NULL when the processor (or the operating system) lacks it. */
const struct kernel_table *kernel_table_find(enum isa isa);
