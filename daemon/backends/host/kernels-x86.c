/* What an x86-64 processor may have beyond the baseline. */
#include <cpuid.h>
#include <emmintrin.h>
#include <string.h>
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

#define LINE_BYTES 64

/* Whole lines: what fills one only partly would go to memory by itself. */
static void stream_line(uint8_t *to, const uint8_t *from) {
        const __m128i *v = (const __m128i *)(const void *)from;
        __m128i *out = (__m128i *)(void *)to;
        __m128i a = _mm_loadu_si128(v), b = _mm_loadu_si128(v + 1), c = _mm_loadu_si128(v + 2),
                d = _mm_loadu_si128(v + 3);
        _mm_stream_si128(out, a);
        _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c);
        _mm_stream_si128(out + 3, d);
}

void kernels_stream(void *to, const void *from, size_t n_bytes) {
        uint8_t *out = to;
        const uint8_t *in = from;
        size_t n_head = -(uintptr_t)out % LINE_BYTES;
        if (n_head > n_bytes)
                n_head = n_bytes;
        memcpy(out, in, n_head);
        for (n_bytes -= n_head, out += n_head, in += n_head; n_bytes >= LINE_BYTES;
                n_bytes -= LINE_BYTES, out += LINE_BYTES, in += LINE_BYTES)
                stream_line(out, in);
        memcpy(out, in, n_bytes);
}

void kernels_stream_end(void) {
        _mm_sfence();
}
