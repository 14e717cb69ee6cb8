/* What an x86-64 processor may have beyond the baseline. */
#include <cpuid.h>
#include "backends/host/kernels-tables.h"

/* Asked by hand: not every compiler's __builtin_cpu_supports knows its name. */
static bool has_f16c(void) {
        unsigned int a, b, c, d;
        return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* __builtin_cpu_supports also asks whether the operating system saves the registers. */
static bool has_avx2(void) {
        return __builtin_cpu_supports("avx2") && has_f16c();
}

static bool has_avx512(void) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

const struct kernel_table *kernel_table_find(enum isa isa) {
        switch (isa) {
        case ISA_AVX2: return has_avx2() ? &kernel_table_avx2 : NULL;
        case ISA_AVX512: return has_avx512() ? &kernel_table_avx512 : NULL;
        case ISA_AUTO:
        case ISA_SCALAR: break;
        }
        return NULL;
}
