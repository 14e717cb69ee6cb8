/* The kernels for AVX-512 (F, BW, VL, DQ). Its bf16 extension is left alone: it flushes subnormals. */
#include <immintrin.h>

#define VECTOR_BYTES  64
#define KERNELS_TABLE kernel_table_avx512

#define WIDEN_BITS(half)  ((vec_u32)_mm512_cvtepu16_epi32((__m256i)(half)))
#define NARROW_BITS(wide) ((half_vec)_mm512_cvtepi32_epi16((__m512i)(wide)))

/* 16 halves, to and from 16 floats; both ignore MXCSR's flush to zero. */
#define WIDEN_F16(half)  ((vec)_mm512_cvtph_ps((__m256i)(half)))
#define NARROW_F16(wide) ((half_vec)_mm512_cvtps_ph((__m512)(wide), _MM_FROUND_TO_NEAREST_INT))

#define IS_ANY(mask) (_mm512_test_epi64_mask((__m512i)(mask), (__m512i)(mask)) != 0)

#include "backends/host/kernels-impl.h"
