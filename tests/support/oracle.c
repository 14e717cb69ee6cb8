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

static int64_t get_integer(enum dtype dtype, const void *array, size_t i) {
        if (dtype == DTYPE_U8)
                return ((const uint8_t *)array)[i];
        int32_t narrow;
        int64_t wide;
        memcpy(&narrow, (const uint8_t *)array + i * dtype_bytes(dtype), sizeof(narrow));
        if (dtype == DTYPE_I32)
                return narrow;
        memcpy(&wide, (const uint8_t *)array + i * sizeof(wide), sizeof(wide));
        return wide;
}

static void put_integer(enum dtype dtype, void *array, size_t i, uint64_t value) {
        size_t size = dtype_bytes(dtype);
        for (size_t b = 0; b < size; b++)
                ((uint8_t *)array)[i * size + b] = value >> (8 * b);
}

/* The sum of two in the type in which they are combined. */
static double add_float(enum dtype dtype, double a, double b) {
        if (dtype == DTYPE_F64)
                return a + b;
        return (float)a + (float)b;
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
        CHECK(op == OP_MIN || op == OP_MAX);
        if (isnan(a) || isnan(b))
                return NAN;
        return is_less(a, b) == (op == OP_MIN) ? a : b;
}

static int64_t combine_integer(enum op op, int64_t a, int64_t b) {
        if (op == OP_SUM)
                return (int64_t)((uint64_t)a + (uint64_t)b);
        CHECK(op == OP_MIN || op == OP_MAX);
        return (a < b) == (op == OP_MIN) ? a : b;
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
        int64_t value = get_integer(dtype, inputs[0], i);
        for (uint32_t r = 1; r < n_inputs; r++)
                value = combine_integer(op, value, get_integer(dtype, inputs[r], i));
        put_integer(dtype, output, i, (uint64_t)value);
}

void oracle_reduce(enum op op, enum dtype dtype, const void *const *inputs, uint32_t n_inputs, void *output,
        size_t count, uint32_t divisor) {
        for (size_t i = 0; i < count; i++) {
                if (dtype_is_integer(dtype))
                        reduce_integer(op, dtype, inputs, n_inputs, output, i);
                else
                        reduce_float(op, dtype, inputs, n_inputs, output, i, divisor);
        }
}

/* --- comparing, showing, filling --- */

static bool is_nan_at(enum dtype dtype, const void *array, size_t i) {
        return dtype_is_float(dtype) && isnan(get_float(dtype, array, i));
}

ptrdiff_t oracle_difference(enum dtype dtype, const void *a, const void *b, size_t count) {
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
                else if (!is_float && pick < 8)
                        put_integer(dtype, array, i, ends[r % ARRAY_SIZE(ends)]);
                else
                        put_integer(dtype, array, i, next_random(&state));
        }
}
