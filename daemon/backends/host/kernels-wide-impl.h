/* The part of kernels-impl.h whose sums are wider than their elements: weighted sums of floats in f64, means
 * of integers in integers, and the checks. Included by it alone.
 *
 * A block of sums is kept in the first-level cache and each input is added to it in turn, in plain loops that
 * the compiler makes vectors of; where it does not, the bits are the same. */
#pragma once

#define WIDE_BLOCK 512

/* How many elements there are from `at` on, at most a block. */
INLINE size_t block_at(const struct kernel_call *c, size_t at) {
        return c->count - at < WIDE_BLOCK ? c->count - at : WIDE_BLOCK;
}

/* The results of a block to every output. */
INLINE void put_block(const struct kernel_call *c, size_t at_bytes, const void *results, size_t n_bytes) {
        for (uint32_t i = 0; i < c->n_outputs; i++)
                memcpy(output_at(c, i, at_bytes), results, n_bytes);
}

/* --- what is not finite, where it is looked for apart --- */

#define DEFINE_HAS_NONFINITE(type)                                                                           \
        static bool has_nonfinite_##type(const void *elements, size_t n_bytes) {                             \
                const uint8_t *p = elements;                                                                 \
                vec suspects = { 0 };                                                                        \
                size_t at = 0;                                                                               \
                for (; n_bytes - at >= FULL; at += FULL)                                                     \
                        suspects |= suspect_##type(load(p + at, FULL));                                      \
                if (at < n_bytes)                                                                            \
                        suspects |= suspect_##type(load(p + at, n_bytes - at));                              \
                return IS_ANY(suspects);                                                                     \
        }

DEFINE_HAS_NONFINITE(f16)
DEFINE_HAS_NONFINITE(bf16)
DEFINE_HAS_NONFINITE(f32)
DEFINE_HAS_NONFINITE(f64)

/* --- weights --- */

/* To f32 so that one more rounding, to a half, does what a single one would have done: what is inexact gets
 * an odd last bit, and so lies on no border of the halves, on the same side as before (S. Boldo and G.
 * Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
 */
INLINE float round_to_odd(double value) {
        float nearest = (float)value;
        double exact = __builtin_fabs(value), reached = __builtin_fabs((double)nearest);
        uint32_t bits;
        memcpy(&bits, &nearest, sizeof(bits));
        uint32_t is_even = ~bits & 1;
        bits += is_even & (reached < exact);
        bits -= is_even & (reached > exact);
        memcpy(&nearest, &bits, sizeof(bits));
        return nearest;
}

INLINE void read_f64(const uint8_t *from, size_t n, double *to) {
        memcpy(to, from, n * sizeof(*to));
}

INLINE void write_f64(const double *from, size_t n, uint8_t *to) {
        memcpy(to, from, n * sizeof(*from));
}

INLINE void read_f32(const uint8_t *from, size_t n, double *to) {
        const float *singles = (const float *)(const void *)from;
        for (size_t k = 0; k < n; k++)
                to[k] = (double)singles[k];
}

INLINE void write_f32(const double *from, size_t n, uint8_t *to) {
        float *singles = (float *)(void *)to;
        for (size_t k = 0; k < n; k++)
                singles[k] = (float)from[k];
}

/* Halves by way of the vectors that know them. */
#define DEFINE_WIDE_HALF(type)                                                                               \
        INLINE void read_##type(const uint8_t *from, size_t n, double *to) {                                 \
                vec singles[WIDE_BLOCK * sizeof(float) / FULL];                                              \
                size_t n_bytes = n * 2, at = 0, v = 0;                                                       \
                for (; n_bytes - at >= HALF; at += HALF)                                                     \
                        singles[v++] = widen_##type(load(from + at, HALF));                                  \
                if (at < n_bytes)                                                                            \
                        singles[v] = widen_##type(load(from + at, n_bytes - at));                            \
                read_f32((const uint8_t *)singles, n, to);                                                   \
        }                                                                                                    \
        INLINE void write_##type(const double *from, size_t n, uint8_t *to) {                                \
                float singles[WIDE_BLOCK] = { 0 };                                                           \
                for (size_t k = 0; k < n; k++)                                                               \
                        singles[k] = round_to_odd(from[k]);                                                  \
                for (size_t k = 0; k < n; k += FULL / sizeof(float)) {                                       \
                        vec half = finish_##type(load(&singles[k], FULL), 1);                                \
                        size_t n_bytes = (n - k) * 2;                                                        \
                        memcpy(to + k * 2, &half, n_bytes < HALF ? n_bytes : HALF);                          \
                }                                                                                            \
        }

DEFINE_WIDE_HALF(f16)
DEFINE_WIDE_HALF(bf16)

/* What is multiplied by 0 is not looked at. -0 is where a sum begins that must keep the sign of a zero; a sum
 * of nothing is +0. */
#define DEFINE_WEIGHTED(type, element_bytes)                                                                 \
        INLINE void weigh_##type(const struct kernel_call *c, size_t at, size_t n, double *sums) {           \
                double values[WIDE_BLOCK], start = c->total_weight > 0 ? -0.0 : 0.0;                         \
                for (size_t k = 0; k < n; k++)                                                               \
                        sums[k] = start;                                                                     \
                for (uint32_t i = 0; i < c->n_inputs; i++) {                                                 \
                        double weight = c->weights[i];                                                       \
                        if (weight == 0)                                                                     \
                                continue;                                                                    \
                        if (c->nonfinite && has_nonfinite_##type(input_at(c, i, at * (element_bytes)),       \
                                                    n * (element_bytes)))                                    \
                                kernels_note_input(c, i, at *(element_bytes), n *(element_bytes));           \
                        read_##type(input_at(c, i, at *(element_bytes)), n, values);                         \
                        for (size_t k = 0; k < n; k++)                                                       \
                                sums[k] += weight * values[k];                                               \
                }                                                                                            \
        }                                                                                                    \
        static void weighted_##type(const struct kernel_call *c) {                                           \
                double sums[WIDE_BLOCK], divisor = c->op == OP_MEAN ? c->total_weight : 1;                   \
                uint8_t results[WIDE_BLOCK * (element_bytes)] __attribute__((aligned(64)));                  \
                for (size_t at = 0; at < c->count; at += WIDE_BLOCK) {                                       \
                        size_t n = block_at(c, at);                                                          \
                        weigh_##type(c, at, n, sums);                                                        \
                        for (size_t k = 0; k < n; k++)                                                       \
                                sums[k] /= divisor;                                                          \
                        write_##type(sums, n, results);                                                      \
                        put_block(c, at *(element_bytes), results, n *(element_bytes));                      \
                }                                                                                            \
        }

DEFINE_WEIGHTED(f16, 2)
DEFINE_WEIGHTED(bf16, 2)
DEFINE_WEIGHTED(f32, 4)
DEFINE_WEIGHTED(f64, 8)

/* --- means of integers --- */

/* A quotient of f64 is rounded, but not across a whole number: below 2^53 neither the sum nor what lies
 * between a fraction and the next whole number is lost, so cutting it gives the true quotient. */
INLINE int32_t cut_i32(int32_t sum, uint32_t divisor) {
        return (int32_t)((double)sum / divisor);
}

INLINE int64_t cut_i64(int64_t sum, uint32_t divisor) {
        return (int64_t)((double)sum / divisor);
}

INLINE __int128 cut_i128(__int128 sum, uint32_t divisor) {
        return sum / divisor;
}

#define DEFINE_ROUNDING(name, wide)                                                                          \
        INLINE wide round_##name(wide sum, uint32_t by, enum rounding rounding) {                            \
                wide divisor = (wide)by, cut = cut_##name(sum, by), rest = sum - cut * divisor;              \
                if (rounding == ROUNDING_TRUNC)                                                              \
                        return cut;                                                                          \
                wide floor = cut - (rest < 0);                                                               \
                if (rounding == ROUNDING_FLOOR)                                                              \
                        return floor;                                                                        \
                wide twice = 2 * (sum - floor * divisor); /* 0 .. 2 * divisor - 1 */                         \
                return floor + (twice > divisor) + ((twice == divisor) & (floor & 1));                       \
        }

DEFINE_ROUNDING(i32, int32_t)
DEFINE_ROUNDING(i64, int64_t)
DEFINE_ROUNDING(i128, __int128)

/* The exact sums of a block. A whole world of any of these types fits. */
#define DEFINE_EXACT_SUM(type, element, wide)                                                                \
        INLINE void sum_exactly_##type(const struct kernel_call *c, size_t at, size_t n, wide *sums) {       \
                for (uint32_t i = 0; i < c->n_inputs; i++) {                                                 \
                        const element *in = (const element *)c->inputs[i] + at;                              \
                        if (i == 0)                                                                          \
                                for (size_t k = 0; k < n; k++)                                               \
                                        sums[k] = in[k];                                                     \
                        else                                                                                 \
                                for (size_t k = 0; k < n; k++)                                               \
                                        sums[k] += in[k];                                                    \
                }                                                                                            \
        }

#define ROUND_BLOCK(name, element, rounding)                                                                 \
        for (size_t k = 0; k < n; k++)                                                                       \
                rounded[k] = (element)round_##name(sums[k], divisor, (rounding));

/* To the same type by a rounding, or to a float: the sum and the quotient in f64, then the float. With 8 and
 * 16 bits the last two are one rounding: no such quotient is as near to a border of f32 as f64 rounds. */
#define DEFINE_INTEGER_MEAN(type, element, name, wide, quotient)                                             \
        DEFINE_EXACT_SUM(type, element, wide)                                                                \
        INLINE void round_block_##type(                                                                      \
                const wide *sums, size_t n, uint32_t divisor, enum rounding rounding, element *rounded) {    \
                if (rounding == ROUNDING_TRUNC)                                                              \
                        ROUND_BLOCK(name, element, ROUNDING_TRUNC)                                           \
                else if (rounding == ROUNDING_FLOOR)                                                         \
                        ROUND_BLOCK(name, element, ROUNDING_FLOOR)                                           \
                else                                                                                         \
                        ROUND_BLOCK(name, element, ROUNDING_NEAREST)                                         \
        }                                                                                                    \
        static void mean_##type(const struct kernel_call *c) {                                               \
                const uint32_t divisor = c->divisor;                                                         \
                wide sums[WIDE_BLOCK];                                                                       \
                element rounded[WIDE_BLOCK];                                                                 \
                quotient quotients[WIDE_BLOCK];                                                              \
                for (size_t at = 0; at < c->count; at += WIDE_BLOCK) {                                       \
                        size_t n = block_at(c, at);                                                          \
                        sum_exactly_##type(c, at, n, sums);                                                  \
                        if (c->rounding == ROUNDING_UNSPECIFIED) {                                           \
                                for (size_t k = 0; k < n; k++)                                               \
                                        quotients[k] = (quotient)((double)sums[k] / divisor);                \
                                put_block(c, at * sizeof(quotient), quotients, n * sizeof(quotient));        \
                        } else {                                                                             \
                                round_block_##type(sums, n, divisor, c->rounding, rounded);                  \
                                put_block(c, at * sizeof(element), rounded, n * sizeof(element));            \
                        }                                                                                    \
                }                                                                                            \
        }

DEFINE_INTEGER_MEAN(u8, uint8_t, i32, int32_t, float)
DEFINE_INTEGER_MEAN(i8, int8_t, i32, int32_t, float)
DEFINE_INTEGER_MEAN(u16, uint16_t, i32, int32_t, float)
DEFINE_INTEGER_MEAN(i16, int16_t, i32, int32_t, float)
DEFINE_INTEGER_MEAN(u32, uint32_t, i64, int64_t, double)
DEFINE_INTEGER_MEAN(i32, int32_t, i64, int64_t, double)
DEFINE_INTEGER_MEAN(u64, uint64_t, i128, __int128, double)
DEFINE_INTEGER_MEAN(i64, int64_t, i128, __int128, double)

/* --- checks --- */

INLINE void note(struct kernel_count *count, size_t index) {
        if (count->n++ == 0)
                count->first = index;
}

/* Whether the exact product of one element of each input is beyond the type. A factor 0 makes up for all. */
#define DEFINE_PRODUCT_WRAPS(type, element, most)                                                            \
        INLINE bool product_wraps_##type(const struct kernel_call *c, size_t at) {                           \
                uint64_t magnitude = 1;                                                                      \
                bool is_beyond = false, is_negative = false;                                                 \
                for (uint32_t i = 0; i < c->n_inputs; i++) {                                                 \
                        element factor = ((const element *)c->inputs[i])[at];                                \
                        if (factor == 0)                                                                     \
                                return false;                                                                \
                        bool is_below = factor < 1;                                                          \
                        is_negative ^= is_below;                                                             \
                        is_beyond |= __builtin_mul_overflow(                                                 \
                                magnitude, is_below ? 0 - (uint64_t)factor : (uint64_t)factor, &magnitude);  \
                }                                                                                            \
                return is_beyond || magnitude > (uint64_t)(most) + is_negative;                              \
        }

/* How many results differ from the exact ones, which wrapping halfway and back does not make them. */
#define DEFINE_COUNT_WRAPPED(type, element, wide, most)                                                      \
        DEFINE_PRODUCT_WRAPS(type, element, most)                                                            \
        static void count_wrapped_##type(const struct kernel_call *c, struct kernel_count *ret) {            \
                wide sums[WIDE_BLOCK];                                                                       \
                for (size_t at = 0; at < c->count; at += WIDE_BLOCK) {                                       \
                        size_t n = block_at(c, at), n_wrapped = 0;                                           \
                        if (c->op == OP_SUM)                                                                 \
                                sum_exactly_##type(c, at, n, sums);                                          \
                        for (size_t k = 0; c->op == OP_SUM && k < n; k++)                                    \
                                n_wrapped += (wide)(element)sums[k] != sums[k];                              \
                        for (size_t k = 0; n_wrapped && k < n; k++)                                          \
                                if ((wide)(element)sums[k] != sums[k])                                       \
                                        note(ret, at + k);                                                   \
                        for (size_t k = 0; c->op == OP_PROD && k < n; k++)                                   \
                                if (product_wraps_##type(c, at + k))                                         \
                                        note(ret, at + k);                                                   \
                }                                                                                            \
        }

DEFINE_COUNT_WRAPPED(u8, uint8_t, int32_t, UINT8_MAX)
DEFINE_COUNT_WRAPPED(i8, int8_t, int32_t, INT8_MAX)
DEFINE_COUNT_WRAPPED(u16, uint16_t, int32_t, UINT16_MAX)
DEFINE_COUNT_WRAPPED(i16, int16_t, int32_t, INT16_MAX)
DEFINE_COUNT_WRAPPED(u32, uint32_t, int64_t, UINT32_MAX)
DEFINE_COUNT_WRAPPED(i32, int32_t, int64_t, INT32_MAX)
DEFINE_COUNT_WRAPPED(u64, uint64_t, __int128, UINT64_MAX)
DEFINE_COUNT_WRAPPED(i64, int64_t, __int128, INT64_MAX)
