#include "oracle.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "base/check.h"

/* --- half precision, by its definition: sign, exponent, fraction --- */

struct half_format {
        int fraction_bits, bias, exponent_mask;
};

static const struct half_format f16 = { 10, 15, 0x1f }, bf16 = { 7, 127, 0xff };

static double half_decode(struct half_format f, uint16_t half) {
        double sign = half & 0x8000 ? -1 : 1;
        int exponent = (half >> f.fraction_bits) & f.exponent_mask;
        int fraction = half & ((1 << f.fraction_bits) - 1);
        if (exponent == f.exponent_mask)
                return fraction ? NAN : sign * INFINITY;
        if (exponent == 0)
                return sign * ldexp(fraction, 1 - f.bias - f.fraction_bits);
        return sign * ldexp(fraction + (1 << f.fraction_bits), exponent - f.bias - f.fraction_bits);
}

/* The value as a whole number of steps of its binade, which nearbyint rounds; the encoding of what follows a
 * full binade is the next one, so carrying over needs no case, and too large ends at infinity. */
static uint16_t half_encode(struct half_format f, double value) {
        uint16_t sign = signbit(value) ? 0x8000 : 0;
        uint16_t infinity = f.exponent_mask << f.fraction_bits;
        if (isnan(value))
                return infinity | (1 << (f.fraction_bits - 1));
        if (isinf(value))
                return sign | infinity;
        if (value == 0)
                return sign;
        int exponent;
        frexp(value, &exponent); /* |value| is in [2^(exponent-1), 2^exponent) */
        int biased = exponent - 1 + f.bias;
        if (biased < 1)
                biased = 1; /* subnormals have the steps of the smallest normals */
        double steps = nearbyint(ldexp(fabs(value), f.fraction_bits + f.bias - biased));
        uint32_t bits = ((uint32_t)(biased - 1) << f.fraction_bits) + (uint32_t)steps;
        return sign | (bits < infinity ? bits : infinity);
}

double oracle_from_f16(uint16_t half) {
        return half_decode(f16, half);
}

double oracle_from_bf16(uint16_t half) {
        return half_decode(bf16, half);
}

uint16_t oracle_to_f16(double value) {
        return half_encode(f16, value);
}

uint16_t oracle_to_bf16(double value) {
        return half_encode(bf16, value);
}

/* --- one element --- */

/* A float of any type as a double, which holds it exactly. */
static double get_float(enum dtype dtype, const void *array, size_t i) {
        const uint8_t *at = (const uint8_t *)array + i * dtype_bytes(dtype);
        uint16_t half;
        float single;
        double value = 0;
        memcpy(&half, at, sizeof(half));
        if (dtype == DTYPE_F16)
                return oracle_from_f16(half);
        if (dtype == DTYPE_BF16)
                return oracle_from_bf16(half);
        if (dtype == DTYPE_F32) {
                memcpy(&single, at, sizeof(single));
                return single;
        }
        CHECK(dtype == DTYPE_F64);
        memcpy(&value, at, sizeof(value));
        return value;
}

static void put_float(enum dtype dtype, void *array, size_t i, double value) {
        uint8_t *at = (uint8_t *)array + i * dtype_bytes(dtype);
        uint16_t half = dtype == DTYPE_F16 ? oracle_to_f16(value) : oracle_to_bf16(value);
        float single = (float)value;
        if (dtype == DTYPE_F64)
                memcpy(at, &value, sizeof(value));
        else if (dtype == DTYPE_F32)
                memcpy(at, &single, sizeof(single));
        else
                memcpy(at, &half, sizeof(half));
}

/* Integers of every type, one byte after the other; the sign is that of the last. */
static __int128 get_integer(enum dtype dtype, const void *array, size_t i) {
        bool is_signed = dtype == DTYPE_I8 || dtype == DTYPE_I16 || dtype == DTYPE_I32 || dtype == DTYPE_I64;
        size_t size = dtype_bytes(dtype);
        const uint8_t *at = (const uint8_t *)array + i * size;
        __int128 value = is_signed ? (int8_t)at[size - 1] : at[size - 1];
        for (size_t b = size - 1; b-- > 0;)
                value = value * 256 + at[b];
        return value;
}

static void put_integer(enum dtype dtype, void *array, size_t i, unsigned __int128 value) {
        size_t size = dtype_bytes(dtype);
        for (size_t b = 0; b < size; b++)
                ((uint8_t *)array)[i * size + b] = (uint8_t)(value >> (8 * b));
}

/* The sum of two in the type in which they are combined. */
static double add_float(enum dtype dtype, double a, double b) {
        if (dtype == DTYPE_F64)
                return a + b;
        return (float)a + (float)b;
}

static double multiply_float(enum dtype dtype, double a, double b) {
        if (dtype == DTYPE_F64)
                return a * b;
        return (float)a * (float)b;
}

static double divide_float(enum dtype dtype, double sum, uint32_t divisor) {
        if (dtype == DTYPE_F64)
                return sum / divisor;
        return (float)sum / (float)divisor;
}

static bool is_less(double a, double b) {
        return a < b || (a == b && signbit(a) && !signbit(b));
}

static double combine_float(enum op op, enum dtype dtype, double a, double b) {
        if (op == OP_SUM || op == OP_MEAN)
                return add_float(dtype, a, b);
        if (op == OP_PROD)
                return multiply_float(dtype, a, b);
        CHECK(op == OP_MIN || op == OP_MAX);
        if (isnan(a) || isnan(b))
                return NAN;
        return is_less(a, b) == (op == OP_MIN) ? a : b;
}

static __int128 combine_integer(enum op op, __int128 a, __int128 b) {
        switch (op) {
        case OP_SUM: return (__int128)((unsigned __int128)a + (unsigned __int128)b);
        case OP_PROD: return (__int128)((unsigned __int128)a * (unsigned __int128)b);
        case OP_MIN: return a < b ? a : b;
        case OP_MAX: return a > b ? a : b;
        case OP_BAND: return a & b;
        case OP_BOR: return a | b;
        case OP_BXOR: return a ^ b;
        case OP_UNSPECIFIED:
        case OP_MEAN:
        case OP_LAND:
        case OP_LOR:
        case N_OP: break;
        }
        CHECK(!"an op on integers");
        return 0;
}

static void reduce_float(enum op op, enum dtype dtype, const void *const *inputs, uint32_t n_inputs,
        void *output, size_t i, uint32_t divisor) {
        double value = get_float(dtype, inputs[0], i);
        for (uint32_t r = 1; r < n_inputs; r++)
                value = combine_float(op, dtype, value, get_float(dtype, inputs[r], i));
        if (op == OP_MEAN)
                value = divide_float(dtype, value, divisor);
        put_float(dtype, output, i, value);
}

static void reduce_integer(
        enum op op, enum dtype dtype, const void *const *inputs, uint32_t n_inputs, void *output, size_t i) {
        __int128 value = get_integer(dtype, inputs[0], i);
        for (uint32_t r = 1; r < n_inputs; r++)
                value = combine_integer(op, value, get_integer(dtype, inputs[r], i));
        put_integer(dtype, output, i, (unsigned __int128)value);
}

static void reduce_bool(enum op op, const void *const *inputs, uint32_t n_inputs, void *output, size_t i) {
        uint32_t n_true = 0;
        for (uint32_t r = 0; r < n_inputs; r++)
                n_true += ((const uint8_t *)inputs[r])[i] != 0;
        CHECK(op == OP_LAND || op == OP_LOR);
        ((uint8_t *)output)[i] = op == OP_LAND ? n_true == n_inputs : n_true > 0;
}

static enum dtype part_of(enum dtype dtype) {
        if (dtype == DTYPE_C64)
                return DTYPE_F32;
        return dtype == DTYPE_C128 ? DTYPE_F64 : dtype;
}

/* (a + bi)(c + di) = (ac - bd) + (ad + bc)i. */
static void multiply_complex(enum dtype part, double *x, const double *y) {
        double real = add_float(part, multiply_float(part, x[0], y[0]), -multiply_float(part, x[1], y[1]));
        double imaginary =
                add_float(part, multiply_float(part, x[0], y[1]), multiply_float(part, x[1], y[0]));
        x[0] = real;
        x[1] = imaginary;
}

static void reduce_complex(enum op op, enum dtype dtype, const void *const *inputs, uint32_t n_inputs,
        void *output, size_t i, uint32_t divisor) {
        enum dtype part = part_of(dtype);
        if (op != OP_PROD) {
                reduce_float(op, part, inputs, n_inputs, output, 2 * i, divisor);
                reduce_float(op, part, inputs, n_inputs, output, 2 * i + 1, divisor);
                return;
        }
        double product[2] = { get_float(part, inputs[0], 2 * i), get_float(part, inputs[0], 2 * i + 1) };
        for (uint32_t r = 1; r < n_inputs; r++)
                multiply_complex(part, product,
                        (double[]){
                                get_float(part, inputs[r], 2 * i), get_float(part, inputs[r], 2 * i + 1) });
        put_float(part, output, 2 * i, product[0]);
        put_float(part, output, 2 * i + 1, product[1]);
}

void oracle_reduce(enum op op, enum dtype dtype, const void *const *inputs, uint32_t n_inputs, void *output,
        size_t count, uint32_t divisor) {
        for (size_t i = 0; i < count; i++) {
                if (dtype_is_integer(dtype))
                        reduce_integer(op, dtype, inputs, n_inputs, output, i);
                else if (dtype_is_complex(dtype))
                        reduce_complex(op, dtype, inputs, n_inputs, output, i, divisor);
                else if (dtype == DTYPE_BOOL)
                        reduce_bool(op, inputs, n_inputs, output, i);
                else
                        reduce_float(op, dtype, inputs, n_inputs, output, i, divisor);
        }
}

/* The largest whole number that is not above the fraction. */
static __int128 floor_of(__int128 sum, uint32_t divisor) {
        __int128 whole = sum / divisor;
        while (whole * divisor > sum)
                whole--;
        return whole;
}

static __int128 round_fraction(__int128 sum, uint32_t divisor, enum rounding rounding) {
        __int128 below = floor_of(sum, divisor), to_below = sum - below * divisor,
                 to_above = divisor - to_below;
        if (rounding == ROUNDING_FLOOR || to_below == 0)
                return below;
        if (rounding == ROUNDING_TRUNC)
                return sum < 0 ? below + 1 : below;
        CHECK(rounding == ROUNDING_NEAREST);
        if (to_below == to_above)
                return below % 2 == 0 ? below : below + 1;
        return to_below < to_above ? below : below + 1;
}

void oracle_mean_of_integers(enum dtype dtype, enum rounding rounding, const void *const *inputs,
        uint32_t n_inputs, void *output, size_t count, uint32_t divisor) {
        for (size_t i = 0; i < count; i++) {
                __int128 sum = 0;
                for (uint32_t r = 0; r < n_inputs; r++)
                        sum += get_integer(dtype, inputs[r], i);
                if (rounding == ROUNDING_UNSPECIFIED)
                        put_float(dtype_of_integer_mean(dtype), output, i, (double)sum / divisor);
                else
                        put_integer(
                                dtype, output, i, (unsigned __int128)round_fraction(sum, divisor, rounding));
        }
}

void oracle_weighted(enum op op, enum dtype dtype, const void *const *inputs, const double *weights,
        uint32_t n_inputs, void *output, size_t count) {
        double total = 0;
        for (uint32_t r = 0; r < n_inputs; r++)
                total += weights[r];
        oracle_weighted_by(op, dtype, inputs, weights, n_inputs, output, count, total);
}

void oracle_weighted_by(enum op op, enum dtype dtype, const void *const *inputs, const double *weights,
        uint32_t n_inputs, void *output, size_t count, double total) {
        for (size_t i = 0; i < count; i++) {
                double sum = 0;
                bool is_first = true;
                for (uint32_t r = 0; r < n_inputs; r++) {
                        if (weights[r] == 0)
                                continue;
                        double product = weights[r] * get_float(dtype, inputs[r], i);
                        sum = is_first ? product : sum + product;
                        is_first = false;
                }
                put_float(dtype, output, i, op == OP_MEAN ? sum / total : sum);
        }
}

/* --- comparing, showing, filling --- */

static bool is_nan_at(enum dtype dtype, const void *array, size_t i) {
        return dtype_is_float(dtype) && isnan(get_float(dtype, array, i));
}

ptrdiff_t oracle_difference(enum dtype dtype, const void *a, const void *b, size_t count) {
        if (dtype_is_complex(dtype)) {
                ptrdiff_t i = oracle_difference(part_of(dtype), a, b, count * 2);
                return i < 0 ? -1 : i / 2;
        }
        size_t size = dtype_bytes(dtype);
        if (memcmp(a, b, count * size) == 0)
                return -1;
        for (size_t i = 0; i < count; i++)
                if (memcmp((const uint8_t *)a + i * size, (const uint8_t *)b + i * size, size) != 0 &&
                        !(is_nan_at(dtype, a, i) && is_nan_at(dtype, b, i)))
                        return (ptrdiff_t)i;
        return -1;
}

const char *oracle_show(enum dtype dtype, const void *array, size_t index) {
        static char texts[2][64];
        static unsigned int turn;
        char *text = texts[turn++ % 2];
        size_t size = dtype_bytes(dtype), used = 2;
        snprintf(text, sizeof(texts[0]), "0x");
        for (size_t b = size; b-- > 0; used += 2)
                snprintf(text + used, sizeof(texts[0]) - used, "%02x",
                        ((const uint8_t *)array)[index * size + b]);
        if (dtype_is_float(dtype))
                snprintf(text + used, sizeof(texts[0]) - used, " (%.9g)", get_float(dtype, array, index));
        return text;
}

/* splitmix64. */
static void count(struct finding *found, const struct finding *at, uint64_t index) {
        if (found->n == 0) {
                found->rank = at->rank;
                found->entry = at->entry;
                found->index = index;
        }
        found->n++;
}

void oracle_find_nonfinite(
        enum dtype dtype, const void *array, size_t n, const struct finding *at, struct finding *found) {
        bool is_complex = dtype_is_complex(dtype);
        enum dtype part = is_complex ? part_of(dtype) : dtype;
        if (!dtype_is_float(part))
                return;
        for (size_t i = 0; i < n; i++)
                if (is_complex ? !isfinite(get_float(part, array, 2 * i)) ||
                                         !isfinite(get_float(part, array, 2 * i + 1))
                               : !isfinite(get_float(part, array, i)))
                        count(found, at, i);
}

/* Exact, or anything beyond 127 bits: what has grown that far stays beyond every type, unless a factor is 0.
 */
static __int128 exact(enum op op, enum dtype dtype, const void *const *inputs, uint32_t n_inputs, size_t i) {
        const __int128 huge = (__int128)1 << 126;
        __int128 value = get_integer(dtype, inputs[0], i);
        for (uint32_t r = 1; r < n_inputs; r++) {
                __int128 next = get_integer(dtype, inputs[r], i);
                if (op == OP_SUM)
                        value += next;
                else if (next == 0 || value == 0)
                        return 0;
                else if (__builtin_mul_overflow(value, next, &value))
                        value = huge;
        }
        for (uint32_t r = 0; op == OP_PROD && r < n_inputs; r++)
                if (get_integer(dtype, inputs[r], i) == 0)
                        return 0;
        return value;
}

void oracle_find_wrapped(enum op op, enum dtype dtype, const void *const *inputs, uint32_t n_inputs, size_t n,
        uint32_t entry, struct finding *found) {
        if ((op != OP_SUM && op != OP_PROD) || !dtype_is_integer(dtype))
                return;
        for (size_t i = 0; i < n; i++) {
                uint8_t stored[16];
                __int128 value = exact(op, dtype, inputs, n_inputs, i);
                put_integer(dtype, stored, 0, (unsigned __int128)value);
                if (get_integer(dtype, stored, 0) != value)
                        count(found, &(struct finding){ .entry = entry }, i);
        }
}

static uint64_t next_random(uint64_t *state) {
        uint64_t z = *state += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
}

/* Three quarters of the floats are near each other, so that sums round and cancel; the rest are any bits. */
void oracle_fill(enum dtype dtype, void *array, size_t count, uint64_t seed) {
        static const double special[] = { 0.0, -0.0, 1.0, -1.0, INFINITY, -INFINITY, NAN, 65504, -65504,
                0x1p-24, -0x1p-24, 0x1p-14, 0x1p-133, -0x1p-149, 0x1p-126, 0x1.fep127, 0x1p-1074,
                0x1.fffffffffffffp1023 };
        static const uint64_t ends[] = { 0, 1, UINT64_MAX, 0x80, 0x7f, 0x80000000, 0x7fffffff,
                0x8000000000000000, 0x7fffffffffffffff };
        if (dtype_is_complex(dtype)) {
                oracle_fill(part_of(dtype), array, count * 2, seed);
                return;
        }
        bool is_float = dtype_is_float(dtype);
        uint64_t state = seed;
        for (size_t i = 0; i < count; i++) {
                uint64_t r = next_random(&state);
                unsigned int pick = r % 64;
                r >>= 8;
                if (is_float && pick == 0)
                        put_float(dtype, array, i, special[r % ARRAY_SIZE(special)]);
                else if (is_float && pick < 48)
                        put_float(dtype, array, i, (double)(int64_t)(r % 20001) / 1024 - 10000.0 / 1024);
                else if (dtype == DTYPE_BOOL && pick < 48)
                        put_integer(dtype, array, i, pick % 2);
                else if (!is_float && pick < 8)
                        put_integer(dtype, array, i, ends[r % ARRAY_SIZE(ends)]);
                else
                        put_integer(dtype, array, i, next_random(&state));
        }
}
