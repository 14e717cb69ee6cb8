#include "backends/host/kernels-exact.h"

#include "base/check.h"

#define ADD(element)                                                                                         \
        for (size_t k = 0; k < n; k++)                                                                       \
                sums[k] += ((const element *)elements)[k];                                                   \
        return;

void kernels_exact_add(enum dtype dtype, const void *elements, size_t n, __int128 *sums) {
        switch (dtype) {
        case DTYPE_U8: ADD(uint8_t)
        case DTYPE_I8: ADD(int8_t)
        case DTYPE_U16: ADD(uint16_t)
        case DTYPE_I16: ADD(int16_t)
        case DTYPE_U32: ADD(uint32_t)
        case DTYPE_I32: ADD(int32_t)
        case DTYPE_U64: ADD(uint64_t)
        case DTYPE_I64: ADD(int64_t)
        case DTYPE_UNSPECIFIED:
        case DTYPE_F16:
        case DTYPE_BF16:
        case DTYPE_F32:
        case DTYPE_F64:
        case DTYPE_BOOL:
        case DTYPE_C64:
        case DTYPE_C128:
        case N_DTYPE: break;
        }
        CHECK(false);
}

/* The true quotient, rounded. */
static __int128 divide(__int128 sum, uint32_t by, enum rounding rounding) {
        __int128 divisor = by, cut = sum / divisor, rest = sum % divisor;
        if (rounding == ROUNDING_TRUNC)
                return cut;
        __int128 floor = cut - (rest < 0);
        if (rounding == ROUNDING_FLOOR)
                return floor;
        __int128 twice = 2 * (sum - floor * divisor); /* 0 .. 2 * divisor - 1 */
        return floor + (twice > divisor) + ((twice == divisor) & (floor & 1));
}

#define DIVIDE(element)                                                                                      \
        for (size_t k = 0; k < n; k++)                                                                       \
                ((element *)output)[k] = (element)divide(sums[k], mean->divisor, mean->rounding);            \
        return;
/* Sum and quotient in f64, then the float. */
#define QUOTIENT(element)                                                                                    \
        for (size_t k = 0; k < n; k++)                                                                       \
                ((element *)output)[k] = (element)((double)sums[k] / mean->divisor);                         \
        return;

void kernels_exact_mean(const struct exact_mean *mean, const __int128 *sums, size_t n, void *output) {
        switch (mean->output_dtype) {
        case DTYPE_U8: DIVIDE(uint8_t)
        case DTYPE_I8: DIVIDE(int8_t)
        case DTYPE_U16: DIVIDE(uint16_t)
        case DTYPE_I16: DIVIDE(int16_t)
        case DTYPE_U32: DIVIDE(uint32_t)
        case DTYPE_I32: DIVIDE(int32_t)
        case DTYPE_U64: DIVIDE(uint64_t)
        case DTYPE_I64: DIVIDE(int64_t)
        case DTYPE_F32: QUOTIENT(float)
        case DTYPE_F64: QUOTIENT(double)
        case DTYPE_UNSPECIFIED:
        case DTYPE_F16:
        case DTYPE_BF16:
        case DTYPE_BOOL:
        case DTYPE_C64:
        case DTYPE_C128:
        case N_DTYPE: break;
        }
        CHECK(false);
}
