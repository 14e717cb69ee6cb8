/* The kernels for AVX2 and F16C. */
#include <immintrin.h>

#define VECTOR_BYTES  32
#define KERNELS_TABLE kernel_table_avx2

#define WIDEN_BITS(half)  ((vec_u32)_mm256_cvtepu16_epi32((__m128i)(half)))
#define NARROW_BITS(wide) ((half_vec)pack_u32((__m256i)(wide)))

/* The low 16 bits of each; the others are zero. */
static inline __attribute__((always_inline)) __m128i pack_u32(__m256i wide) {
        return _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
}

/* 8 halves, to and from 8 floats; both ignore MXCSR's flush to zero. */
#define WIDEN_F16(half)  ((vec)_mm256_cvtph_ps((__m128i)(half)))
#define NARROW_F16(wide) ((half_vec)_mm256_cvtps_ph((__m256)(wide), _MM_FROUND_TO_NEAREST_INT))

#define IS_ANY(mask) (!_mm256_testz_si256((__m256i)(mask), (__m256i)(mask)))

#include "backends/host/kernels-impl.h"
