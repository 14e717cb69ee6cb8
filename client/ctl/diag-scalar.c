/* Reductions as docs/numbers.md has them, written down once more in the plainest way: what tuttid's results
 * are compared with. It shares no code with tuttid. */
#include "diag.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define F16_MIN_NORMAL 0x1p-14f
#define F16_OVERFLOW   65520.0f /* from here on it rounds to infinity */

/* --- the combinations --- */

static const enum tutti_op float_ops[] = { TUTTI_SUM, TUTTI_MEAN, TUTTI_PROD, TUTTI_MIN, TUTTI_MAX };
static const enum tutti_op integer_ops[] = { TUTTI_SUM, TUTTI_PROD, TUTTI_MIN, TUTTI_MAX, TUTTI_BAND,
        TUTTI_BOR, TUTTI_BXOR, TUTTI_MEAN, TUTTI_MEAN, TUTTI_MEAN };
static const enum tutti_op complex_ops[] = { TUTTI_SUM, TUTTI_MEAN, TUTTI_PROD };
static const enum tutti_op bool_ops[] = { TUTTI_LAND, TUTTI_LOR };

#define OPS(list) (list), sizeof(list) / sizeof(*(list))

static const struct {
        enum tutti_dtype dtype;
        const enum tutti_op *ops;
        size_t n_ops;
} promised[] = {
        { TUTTI_U8, OPS(integer_ops) },
        { TUTTI_I8, OPS(integer_ops) },
        { TUTTI_U16, OPS(integer_ops) },
        { TUTTI_I16, OPS(integer_ops) },
        { TUTTI_U32, OPS(integer_ops) },
        { TUTTI_I32, OPS(integer_ops) },
        { TUTTI_U64, OPS(integer_ops) },
        { TUTTI_I64, OPS(integer_ops) },
        { TUTTI_F16, OPS(float_ops) },
        { TUTTI_BF16, OPS(float_ops) },
        { TUTTI_F32, OPS(float_ops) },
        { TUTTI_F64, OPS(float_ops) },
        { TUTTI_BOOL, OPS(bool_ops) },
        { TUTTI_C64, OPS(complex_ops) },
        { TUTTI_C128, OPS(complex_ops) },
};

static bool is_integer(enum tutti_dtype dtype) {
        return dtype >= TUTTI_U8 && dtype <= TUTTI_I64;
}

static bool is_signed(enum tutti_dtype dtype) {
        return dtype == TUTTI_I8 || dtype == TUTTI_I16 || dtype == TUTTI_I32 || dtype == TUTTI_I64;
}

bool diag_case(size_t i, struct diag_case *ret) {
        static const enum tutti_rounding roundings[] = { TUTTI_TRUNC, TUTTI_FLOOR, TUTTI_NEAREST };

        for (size_t t = 0; t < sizeof(promised) / sizeof(*promised); t++) {
                if (i < promised[t].n_ops) {
                        *ret = (struct diag_case){ .dtype = promised[t].dtype, .op = promised[t].ops[i] };
                        if (ret->op == TUTTI_MEAN && is_integer(ret->dtype))
                                ret->rounding = roundings[i - (promised[t].n_ops - 3)];
                        return true;
                }
                i -= promised[t].n_ops;
        }
        return false;
}

/* --- numbers of two bytes --- */

static float bits_float(uint32_t bits) {
        float f;
        memcpy(&f, &bits, sizeof(f));
        return f;
}

static uint32_t float_bits(float f) {
        uint32_t bits;
        memcpy(&bits, &f, sizeof(bits));
        return bits;
}

static float f16_to_float(uint16_t h) {
        uint32_t exponent = h >> 10 & 31, mantissa = h & 1023;
        float f;

        if (exponent == 31)
                f = mantissa ? NAN : INFINITY;
        else if (exponent == 0)
                f = ldexpf((float)mantissa, -24);
        else
                f = ldexpf((float)(mantissa | 1024), (int)exponent - 25);
        return h & 0x8000 ? -f : f;
}

/* To nearest, ties to even, as the process rounds; a mantissa that rounds up to 2,048 carries by itself. */
static uint16_t float_to_f16(float f) {
        uint16_t sign = signbit(f) ? 0x8000 : 0;
        float a = fabsf(f);

        if (isnan(f))
                return 0x7e00;
        if (a >= F16_OVERFLOW)
                return sign | 0x7c00;
        if (a < F16_MIN_NORMAL)
                return sign | (uint16_t)nearbyintf(ldexpf(a, 24));
        int exponent = ilogbf(a);
        uint32_t mantissa = (uint32_t)nearbyintf(ldexpf(a, 10 - exponent));
        return sign | (uint16_t)(((uint32_t)(exponent + 15) << 10) + mantissa - 1024);
}

static uint16_t float_to_bf16(float f) {
        uint32_t bits = float_bits(f);

        return isnan(f) ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* --- one element --- */

static uint64_t read_integer(enum tutti_dtype dtype, const void *at) {
        size_t n = tutti_dtype_bytes(dtype);
        uint64_t bits = 0;

        memcpy(&bits, at, n); /* little-endian, as all machines that tutti runs on */
        if (is_signed(dtype) && n < 8 && bits >> (8 * n - 1))
                bits |= ~UINT64_C(0) << (8 * n);
        return bits;
}

static uint64_t combine_integers(const struct diag_case *c, uint64_t a, uint64_t b) {
        bool is_less = is_signed(c->dtype) ? (int64_t)b < (int64_t)a : b < a;

        switch ((int)c->op) {
        case TUTTI_PROD: return a * b;
        case TUTTI_MIN: return is_less ? b : a;
        case TUTTI_MAX: return is_less ? a : b;
        case TUTTI_BAND: return a & b;
        case TUTTI_BOR: return a | b;
        case TUTTI_BXOR: return a ^ b;
        default: return a + b; /* SUM, MEAN */
        }
}

/* Of a sum that fits: diag_fill sees to that. */
static uint64_t round_mean(const struct diag_case *c, uint64_t sum, uint32_t n) {
        int64_t s = (int64_t)sum, quotient = s / (int64_t)n, rest = s % (int64_t)n;

        if (!is_signed(c->dtype)) { /* all values lie below 2^62 */
                quotient = (int64_t)(sum / n);
                rest = (int64_t)(sum % n);
        }
        if (c->rounding == TUTTI_FLOOR && rest < 0)
                quotient--;
        if (c->rounding == TUTTI_NEAREST &&
                (2 * llabs(rest) > (int64_t)n || (2 * llabs(rest) == (int64_t)n && quotient % 2 != 0)))
                quotient += rest < 0 ? -1 : 1;
        return (uint64_t)quotient;
}

static double pick(double a, double b, bool wants_less) {
        if (isnan(a) || isnan(b))
                return NAN;
        if (a == b) /* -0 is less than +0 */
                return (signbit(b) != 0) == wants_less ? b : a;
        return (b < a) == wants_less ? b : a;
}

static float combine_floats(enum tutti_op op, float a, float b) {
        if (op == TUTTI_MIN || op == TUTTI_MAX)
                return (float)pick(a, b, op == TUTTI_MIN);
        return op == TUTTI_PROD ? a * b : a + b;
}

static double combine_doubles(enum tutti_op op, double a, double b) {
        if (op == TUTTI_MIN || op == TUTTI_MAX)
                return pick(a, b, op == TUTTI_MIN);
        return op == TUTTI_PROD ? a * b : a + b;
}

static float read_float(enum tutti_dtype dtype, const void *values, size_t i) {
        uint16_t half;

        if (dtype == TUTTI_F32)
                return ((const float *)values)[i];
        half = ((const uint16_t *)values)[i];
        return dtype == TUTTI_F16 ? f16_to_float(half) : bits_float((uint32_t)half << 16);
}

/* --- arrays --- */

static void reduce_integers(
        const struct diag_case *c, const void *const *inputs, uint32_t n_ranks, void *result, size_t n) {
        size_t width = tutti_dtype_bytes(c->dtype);

        for (size_t i = 0; i < n; i++) {
                uint64_t all = read_integer(c->dtype, (const uint8_t *)inputs[0] + i * width);
                for (uint32_t r = 1; r < n_ranks; r++)
                        all = combine_integers(
                                c, all, read_integer(c->dtype, (const uint8_t *)inputs[r] + i * width));
                if (c->op == TUTTI_MEAN)
                        all = round_mean(c, all, n_ranks);
                memcpy((uint8_t *)result + i * width, &all, width);
        }
}

static void reduce_bools(
        const struct diag_case *c, const void *const *inputs, uint32_t n_ranks, void *result, size_t n) {
        for (size_t i = 0; i < n; i++) {
                uint32_t n_true = 0;
                for (uint32_t r = 0; r < n_ranks; r++)
                        n_true += ((const uint8_t *)inputs[r])[i] != 0;
                ((uint8_t *)result)[i] = c->op == TUTTI_LAND ? n_true == n_ranks : n_true > 0;
        }
}

static void reduce_floats(
        const struct diag_case *c, const void *const *inputs, uint32_t n_ranks, void *result, size_t n) {
        for (size_t i = 0; i < n; i++) {
                float all = read_float(c->dtype, inputs[0], i);
                for (uint32_t r = 1; r < n_ranks; r++)
                        all = combine_floats(c->op, all, read_float(c->dtype, inputs[r], i));
                if (c->op == TUTTI_MEAN)
                        all /= (float)n_ranks;
                if (c->dtype == TUTTI_F32)
                        ((float *)result)[i] = all;
                else
                        ((uint16_t *)result)[i] =
                                c->dtype == TUTTI_F16 ? float_to_f16(all) : float_to_bf16(all);
        }
}

static void reduce_doubles(
        const struct diag_case *c, const void *const *inputs, uint32_t n_ranks, void *result, size_t n) {
        for (size_t i = 0; i < n; i++) {
                double all = ((const double *)inputs[0])[i];
                for (uint32_t r = 1; r < n_ranks; r++)
                        all = combine_doubles(c->op, all, ((const double *)inputs[r])[i]);
                ((double *)result)[i] = c->op == TUTTI_MEAN ? all / n_ranks : all;
        }
}

/* The parts of c64 are floats: their products and sums are rounded to that. */
static double narrowed(enum tutti_dtype dtype, double x) {
        return dtype == TUTTI_C64 ? (double)(float)x : x;
}

static double part(enum tutti_dtype dtype, const void *values, size_t i) {
        return dtype == TUTTI_C64 ? (double)((const float *)values)[i] : ((const double *)values)[i];
}

static void reduce_complex(
        const struct diag_case *c, const void *const *inputs, uint32_t n_ranks, void *result, size_t n) {
        for (size_t i = 0; i < n; i++) {
                double re = part(c->dtype, inputs[0], 2 * i), im = part(c->dtype, inputs[0], 2 * i + 1);
                for (uint32_t r = 1; r < n_ranks; r++) {
                        double a = re, b = im, x = part(c->dtype, inputs[r], 2 * i),
                               y = part(c->dtype, inputs[r], 2 * i + 1);
                        bool is_product = c->op == TUTTI_PROD;
                        re = is_product ? narrowed(c->dtype, a * x) - narrowed(c->dtype, b * y) : a + x;
                        im = is_product ? narrowed(c->dtype, a * y) + narrowed(c->dtype, b * x) : b + y;
                        re = narrowed(c->dtype, re);
                        im = narrowed(c->dtype, im);
                }
                if (c->op == TUTTI_MEAN) {
                        re /= n_ranks;
                        im /= n_ranks;
                }
                if (c->dtype == TUTTI_C64) {
                        ((float *)result)[2 * i] = (float)re;
                        ((float *)result)[2 * i + 1] = (float)im;
                } else {
                        ((double *)result)[2 * i] = re;
                        ((double *)result)[2 * i + 1] = im;
                }
        }
}

void diag_reduce(
        const struct diag_case *c, const void *const *inputs, uint32_t n_ranks, void *result, size_t n) {
        if (is_integer(c->dtype))
                reduce_integers(c, inputs, n_ranks, result, n);
        else if (c->dtype == TUTTI_BOOL)
                reduce_bools(c, inputs, n_ranks, result, n);
        else if (c->dtype == TUTTI_F64)
                reduce_doubles(c, inputs, n_ranks, result, n);
        else if (c->dtype == TUTTI_C64 || c->dtype == TUTTI_C128)
                reduce_complex(c, inputs, n_ranks, result, n);
        else
                reduce_floats(c, inputs, n_ranks, result, n);
}

/* --- what goes in --- */

/* One of the mixers of SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x) {
        x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
        return x ^ x >> 31;
}

/* Now and then what is awkward: zeros of both signs, a NaN, infinities, subnormals. */
static double awkward(uint64_t random) {
        static const double all[] = { 0.0, -0.0, 30000.0, -30000.0, 0x1p-24, -0x1p-133, 65504.0,
                0x1.fffp-15 };

        switch (random % 101) {
        case 99: return NAN;
        case 98: return INFINITY;
        default: break;
        }
        if (random % 7 == 0)
                return all[random >> 8 & 7];
        return ldexp((double)(int64_t)random, -62 - (int)(random >> 3 & 3));
}

/* Means of 64 bits stay below 2^60, so that the sum of a few fits. */
static uint64_t whole(const struct diag_case *c, uint64_t random) {
        if (c->op != TUTTI_MEAN || tutti_dtype_bytes(c->dtype) < 8)
                return random;
        return is_signed(c->dtype) ? (uint64_t)((int64_t)random >> 4) : random >> 4;
}

static void put(const struct diag_case *c, void *values, size_t i, uint64_t random) {
        size_t width = tutti_dtype_bytes(c->dtype);
        uint64_t bits = whole(c, random);

        switch ((int)c->dtype) {
        case TUTTI_F16: ((uint16_t *)values)[i] = float_to_f16((float)awkward(random)); return;
        case TUTTI_BF16: ((uint16_t *)values)[i] = float_to_bf16((float)awkward(random)); return;
        case TUTTI_C64:
        case TUTTI_F32: ((float *)values)[i] = (float)awkward(random); return;
        case TUTTI_C128:
        case TUTTI_F64: ((double *)values)[i] = awkward(random); return;
        case TUTTI_BOOL: ((uint8_t *)values)[i] = random % 3 ? (uint8_t)(random >> 8) : 0; return;
        default: memcpy((uint8_t *)values + i * width, &bits, width); return;
        }
}

static bool is_complex(enum tutti_dtype dtype) {
        return dtype == TUTTI_C64 || dtype == TUTTI_C128;
}

void diag_fill(const struct diag_case *c, uint32_t rank, void *values, size_t n) {
        size_t n_parts = is_complex(c->dtype) ? 2 * n : n;

        for (size_t i = 0; i < n_parts; i++)
                put(c, values, i,
                        mix((uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) + ((uint64_t)rank << 8) +
                                (uint64_t)c->dtype * 16 + (uint64_t)c->op));
}

static bool is_nan_at(enum tutti_dtype dtype, const void *values, size_t i) {
        if (dtype == TUTTI_F64 || dtype == TUTTI_C128)
                return isnan(((const double *)values)[i]);
        if (dtype == TUTTI_F32 || dtype == TUTTI_C64)
                return isnan(((const float *)values)[i]);
        return (dtype == TUTTI_F16 || dtype == TUTTI_BF16) && isnan(read_float(dtype, values, i));
}

size_t diag_count_wrong(
        enum tutti_dtype dtype, const void *got, const void *wanted, size_t n, size_t *ret_first) {
        size_t n_in_one = is_complex(dtype) ? 2 : 1, width = tutti_dtype_bytes(dtype) / n_in_one,
               n_parts = n * n_in_one, n_wrong = 0;

        for (size_t i = 0; i < n_parts; i++) {
                if (memcmp((const uint8_t *)got + i * width, (const uint8_t *)wanted + i * width, width) == 0)
                        continue;
                if (is_nan_at(dtype, got, i) && is_nan_at(dtype, wanted, i))
                        continue;
                if (n_wrong++ == 0)
                        *ret_first = i / n_in_one;
        }
        return n_wrong;
}
