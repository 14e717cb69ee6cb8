/* The kernels of one instruction set, written once and compiled for each.
 *
 * The includer says how many bytes a vector has, the name of its table, and how the processor converts half
 * precision; one that says nothing gets what every processor can do. Everything is in vectors of the compiler
 * (GCC's vector extensions), so the bits do not depend on what an optimiser recognises; IEEE addition and
 * division and integer operations give the same bits at any width.
 *
 * A kernel keeps UNROLL vectors of results in registers, goes over all inputs in order, and stores them to
 * each output: one pass, no scratch memory. What is left at the end goes through the same code by way of a
 * padded copy, so that the tail cannot differ. */
#pragma once

#include <string.h>
#include "backends/host/kernels-tables.h"

#ifndef VECTOR_BYTES
#define VECTOR_BYTES  16
#define KERNELS_TABLE kernel_table_scalar
#endif

#ifdef __FAST_MATH__
#error "the kernels need IEEE arithmetic"
#endif

#define UNROLL 4
/* Results stay in registers only where these loops are unrolled. */
#define UNROLLED _Pragma("GCC unroll 4")
/* Buffers begin at page borders, so many inputs read side by side fall into the same few lines of the
 * first-level cache and push each other out. Beyond this many, a block of each is read in turn. */
#define FEW_INPUTS 16
#define BLOCK      (4096 / VECTOR_BYTES)
#define INLINE     static inline __attribute__((always_inline))

/* A vector of anything; casts between vector types keep the bits. */
typedef uint8_t vec __attribute__((vector_size(VECTOR_BYTES)));
typedef vec vec_u8;
typedef uint16_t vec_u16 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t vec_u32 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t vec_u64 __attribute__((vector_size(VECTOR_BYTES)));
typedef int8_t vec_i8 __attribute__((vector_size(VECTOR_BYTES)));
typedef int16_t vec_i16 __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vec_i32 __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t vec_i64 __attribute__((vector_size(VECTOR_BYTES)));
typedef float vec_f32 __attribute__((vector_size(VECTOR_BYTES)));
typedef double vec_f64 __attribute__((vector_size(VECTOR_BYTES)));
/* 16-bit elements that fill a vector once they are widened to 32. */
typedef uint16_t half_vec __attribute__((vector_size(VECTOR_BYTES / 2)));

/* How one op is done on one dtype. Every instance is a constant, so all of it is inlined. */
struct arithmetic {
        size_t stored_bytes; /* of the elements that one vector holds, in memory */
        vec (*widen)(vec stored);
        vec (*combine)(vec a, vec b);
        vec (*finish)(vec accumulated, uint32_t divisor); /* back to the stored form */
        vec (*suspect)(vec stored); /* not 0 where a NaN or an infinity is; NULL: nobody asks */
};

/* a where mask is set, else b. */
INLINE vec choose(vec mask, vec a, vec b) {
        return (a & mask) | (b & ~mask);
}

INLINE vec keep(vec v) {
        return v;
}

INLINE vec keep_finished(vec v, uint32_t divisor) {
        (void)divisor;
        return v;
}

/* --- sums and products; integers wrap, so they are the same signed or not --- */

#define DEFINE_SUM_AND_PRODUCT(type)                                                                         \
        INLINE vec add_##type(vec a, vec b) {                                                                \
                return (vec)((vec_##type)a + (vec_##type)b);                                                 \
        }                                                                                                    \
        INLINE vec multiply_##type(vec a, vec b) {                                                           \
                return (vec)((vec_##type)a * (vec_##type)b);                                                 \
        }

DEFINE_SUM_AND_PRODUCT(u8)
DEFINE_SUM_AND_PRODUCT(u16)
DEFINE_SUM_AND_PRODUCT(u32)
DEFINE_SUM_AND_PRODUCT(u64)
DEFINE_SUM_AND_PRODUCT(f32)
DEFINE_SUM_AND_PRODUCT(f64)

/* Complex numbers are pairs (real, imaginary) in neighbouring lanes; their sums are those of the parts. Each
 * operation of the product is rounded by itself, and what becomes NaN stays NaN.
 *
 * (a + bi)(c + di): (a c, a d) + (-b d, b c). Lanes are only moved one by one, never computed: where GCC 12
 * sees a lane added and the next subtracted it makes a fused multiply-add of it, whatever -ffp-contract says.
 */
#define DEFINE_COMPLEX_PRODUCT(type, bits_type, sign)                                                        \
        INLINE vec multiply_pairs_##type(vec a, vec b) {                                                     \
                vec_##type x = (vec_##type)a, y = (vec_##type)b, real = x, imaginary = x, turned = y;        \
                vec_##bits_type flip = { 0 };                                                                \
                for (size_t i = 0; i < sizeof(x) / sizeof(x[0]); i += 2) {                                   \
                        real[i + 1] = x[i];                                                                  \
                        imaginary[i] = x[i + 1];                                                             \
                        turned[i] = y[i + 1];                                                                \
                        turned[i + 1] = y[i];                                                                \
                        flip[i] = (sign);                                                                    \
                }                                                                                            \
                vec_##type cross = imaginary * turned;                                                       \
                return (vec)(real * y + (vec_##type)((vec_##bits_type)cross ^ flip));                        \
        }

DEFINE_COMPLEX_PRODUCT(f32, u32, UINT32_C(1) << 31)
DEFINE_COMPLEX_PRODUCT(f64, u64, UINT64_C(1) << 63)

INLINE vec divide_f32(vec sum, uint32_t divisor) {
        return (vec)((vec_f32)sum / (float)divisor);
}

INLINE vec divide_f64(vec sum, uint32_t divisor) {
        return (vec)((vec_f64)sum / (double)divisor);
}

/* --- half precision: f32 in registers, 16 bits in memory (the low half of a stored vector) --- */

INLINE half_vec low_half(vec v) {
        half_vec half;
        memcpy(&half, &v, sizeof(half));
        return half;
}

INLINE vec from_half(half_vec half) {
        vec v = { 0 };
        memcpy(&v, &half, sizeof(half));
        return v;
}

#ifndef WIDEN_BITS
#define WIDEN_BITS(half)  __builtin_convertvector((half), vec_u32)
#define NARROW_BITS(wide) __builtin_convertvector((wide), half_vec)
#endif

INLINE vec_u32 widen_bits(half_vec half) {
        return WIDEN_BITS(half);
}

/* Elements of at most 16 bits. */
INLINE vec narrow_bits(vec_u32 wide) {
        return from_half(NARROW_BITS(wide));
}

#ifndef WIDEN_F16
/* Moves exponent and fraction to their places in f32 and corrects the bias by a multiplication, which is
 * exact and makes normals of subnormals. */
INLINE vec widen_f16_by_bits(half_vec half) {
        vec_u32 bits = widen_bits(half), sign = (bits & 0x8000) << 16;
        vec_f32 magnitude = (vec_f32)((bits & 0x7fff) << 13) * 0x1p112f;
        vec_u32 is_special = (vec_u32)(magnitude >= 0x1p16f);
        return (vec)((vec_u32)magnitude | (is_special & 0x7f800000) | sign);
}

/* Nearest-even in three ranges: what becomes subnormal is rounded by adding 0.5, whose last bit is worth
 * 2^-24; normals by a carry into the bits that stay; 65520 and beyond is infinite. */
INLINE vec narrow_f16_by_bits(vec wide) {
        vec_u32 sign = ((vec_u32)wide >> 16) & 0x8000, magnitude = (vec_u32)wide & 0x7fffffff;
        vec_u32 normal = (magnitude + 0xc8000fff + ((magnitude >> 13) & 1)) >> 13;
        vec_u32 subnormal = (vec_u32)((vec_f32)magnitude + 0.5f) - 0x3f000000;
        vec_u32 infinite = (vec_u32){ 0 } + 0x7c00, nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);

        vec half = choose((vec)(magnitude < 0x38800000), (vec)subnormal, (vec)normal);
        half = choose((vec)(magnitude >= 0x477ff000), (vec)infinite, half);
        half = choose((vec)(magnitude > 0x7f800000), (vec)nan, half);
        return narrow_bits((vec_u32)half | sign);
}

#define WIDEN_F16(half)  widen_f16_by_bits(half)
#define NARROW_F16(wide) low_half(narrow_f16_by_bits(wide))
#endif

INLINE vec widen_f16(vec stored) {
        return WIDEN_F16(low_half(stored));
}

INLINE vec finish_f16(vec sum, uint32_t divisor) {
        (void)divisor;
        return from_half(NARROW_F16(sum));
}

INLINE vec divide_f16(vec sum, uint32_t divisor) {
        return finish_f16(divide_f32(sum, divisor), 1);
}

INLINE vec widen_bf16(vec stored) {
        return (vec)(widen_bits(low_half(stored)) << 16);
}

/* A carry into the half that stays. A NaN must not carry into infinity's place or lose its last bit; those of
 * sums come from widened ones and could not, but no caller need know that. */
INLINE vec finish_bf16(vec sum, uint32_t divisor) {
        (void)divisor;
        vec_u32 bits = (vec_u32)sum;
        vec_u32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        vec is_nan = (vec)((bits & 0x7fffffff) > 0x7f800000);
        return narrow_bits((vec_u32)choose(is_nan, (vec)((bits >> 16) | 0x40), (vec)rounded));
}

INLINE vec divide_bf16(vec sum, uint32_t divisor) {
        return finish_bf16(divide_f32(sum, divisor), 1);
}

/* --- minimum and maximum --- */

#define DEFINE_EXTREMES(type)                                                                                \
        INLINE vec min_##type(vec a, vec b) {                                                                \
                return choose((vec)((vec_##type)a < (vec_##type)b), a, b);                                   \
        }                                                                                                    \
        INLINE vec max_##type(vec a, vec b) {                                                                \
                return choose((vec)((vec_##type)a > (vec_##type)b), a, b);                                   \
        }

DEFINE_EXTREMES(u8)
DEFINE_EXTREMES(i8)
DEFINE_EXTREMES(u16)
DEFINE_EXTREMES(i16)
DEFINE_EXTREMES(u32)
DEFINE_EXTREMES(i32)
DEFINE_EXTREMES(u64)
DEFINE_EXTREMES(i64)

/* Floats as integers of the same order: the magnitude of a negative one is complemented, which puts -0 right
 * below +0, and doing it again undoes it. A NaN becomes the integer that wins. */
#define DEFINE_FLOAT_ORDER(float_type, type, most, infinity)                                                 \
        INLINE vec order_##float_type(vec v) {                                                               \
                vec_##type bits = (vec_##type)v;                                                             \
                return (vec)(bits ^ ((bits < 0) & (most)));                                                  \
        }                                                                                                    \
        INLINE vec unorder_##float_type(vec v, uint32_t divisor) {                                           \
                (void)divisor;                                                                               \
                return order_##float_type(v);                                                                \
        }                                                                                                    \
        INLINE vec order_##float_type##_nan_as(vec v, vec_##type winner) {                                   \
                vec is_nan = (vec)(((vec_##type)v & (most)) > (infinity));                                   \
                return choose(is_nan, (vec)winner, order_##float_type(v));                                   \
        }                                                                                                    \
        INLINE vec order_##float_type##_min(vec v) {                                                         \
                return order_##float_type##_nan_as(v, (vec_##type){ 0 } + (-(most)-1));                      \
        }                                                                                                    \
        INLINE vec order_##float_type##_max(vec v) {                                                         \
                return order_##float_type##_nan_as(v, (vec_##type){ 0 } + (most));                           \
        }

DEFINE_FLOAT_ORDER(f16, i16, INT16_MAX, (int16_t)0x7c00)
DEFINE_FLOAT_ORDER(bf16, i16, INT16_MAX, (int16_t)0x7f80)
DEFINE_FLOAT_ORDER(f32, i32, INT32_MAX, INT32_C(0x7f800000))
DEFINE_FLOAT_ORDER(f64, i64, INT64_MAX, INT64_C(0x7ff0000000000000))

/* --- bits and truths --- */

INLINE vec and_bits(vec a, vec b) {
        return a & b;
}

INLINE vec or_bits(vec a, vec b) {
        return a | b;
}

INLINE vec xor_bits(vec a, vec b) {
        return a ^ b;
}

/* Any byte but 0 is true; true is written as 1. */
INLINE vec widen_bool(vec stored) {
        return (vec)(stored != 0) & 1;
}

/* --- what is not finite --- */

/* An exponent of all ones is a NaN's or an infinity's. */
#define DEFINE_SUSPECT(float_type, type, exponent)                                                           \
        INLINE vec suspect_##float_type(vec stored) {                                                        \
                const vec_##type ones = (vec_##type){ 0 } + (exponent);                                      \
                return (vec)(((vec_##type)stored & ones) == ones);                                           \
        }

DEFINE_SUSPECT(f16, u16, 0x7c00)
DEFINE_SUSPECT(bf16, u16, 0x7f80)
DEFINE_SUSPECT(f32, u32, UINT32_C(0x7f800000))
DEFINE_SUSPECT(f64, u64, UINT64_C(0x7ff0000000000000))

#ifndef IS_ANY
#define IS_ANY(mask) is_any_by_words(mask)
INLINE bool is_any_by_words(vec mask) {
        uint64_t words[VECTOR_BYTES / 8], any = 0;
        memcpy(words, &mask, sizeof(words));
        for (size_t i = 0; i < VECTOR_BYTES / 8; i++)
                any |= words[i];
        return any != 0;
}
#endif

/* --- the pass --- */

/* `n_bytes` <= VECTOR_BYTES from `p`, the rest zero. */
INLINE vec load(const void *p, size_t n_bytes) {
        vec v = { 0 };
        memcpy(&v, p, n_bytes);
        return v;
}

INLINE const uint8_t *input_at(const struct kernel_call *c, uint32_t i, size_t at_bytes) {
        return (const uint8_t *)c->inputs[i] + at_bytes;
}

INLINE uint8_t *output_at(const struct kernel_call *c, uint32_t i, size_t at_bytes) {
        return (uint8_t *)c->outputs[i] + at_bytes;
}

/* One vector of an input as it is combined; `suspects` gathers what has to be looked at closely. */
INLINE vec take(const struct arithmetic *a, const uint8_t *from, size_t n_bytes, vec *suspects) {
        vec stored = load(from, n_bytes);
        if (a->suspect)
                *suspects |= a->suspect(stored);
        return a->widen(stored);
}

/* The elements of `n_vectors` vectors at `at_bytes`, of which `part_bytes` each are there. Looked at before
 * the outputs are written, since one of them may be an input. */
INLINE void reduce_at(const struct kernel_call *c, const struct arithmetic *a, size_t at_bytes,
        unsigned int n_vectors, size_t part_bytes) {
        vec acc[BLOCK], suspects = { 0 };
        UNROLLED for (unsigned int u = 0; u < n_vectors; u++) acc[u] =
                take(a, input_at(c, 0, at_bytes + u * part_bytes), part_bytes, &suspects);
        for (uint32_t i = 1; i < c->n_inputs; i++) {
                const uint8_t *in = input_at(c, i, at_bytes);
                UNROLLED for (unsigned int u = 0; u < n_vectors; u++) acc[u] =
                        a->combine(acc[u], take(a, in + u * part_bytes, part_bytes, &suspects));
        }
        UNROLLED for (unsigned int u = 0; u < n_vectors; u++) acc[u] = a->finish(acc[u], c->divisor);
        if (a->suspect && __builtin_expect(IS_ANY(suspects), 0))
                kernels_note_nonfinite(c, at_bytes, n_vectors * part_bytes);
        for (uint32_t i = 0; i < c->n_outputs; i++) {
                uint8_t *out = output_at(c, i, at_bytes);
                UNROLLED for (unsigned int u = 0; u < n_vectors; u++)
                        memcpy(out + u * part_bytes, &acc[u], part_bytes);
        }
}

INLINE void reduce(const struct kernel_call *c, const struct arithmetic *a) {
        size_t n_bytes = c->count * dtype_bytes(c->dtype), at = 0;
        if (c->n_inputs > FEW_INPUTS)
                for (; n_bytes - at >= BLOCK * a->stored_bytes; at += BLOCK * a->stored_bytes)
                        reduce_at(c, a, at, BLOCK, a->stored_bytes);
        for (; n_bytes - at >= UNROLL * a->stored_bytes; at += UNROLL * a->stored_bytes)
                reduce_at(c, a, at, UNROLL, a->stored_bytes);
        for (; n_bytes - at >= a->stored_bytes; at += a->stored_bytes)
                reduce_at(c, a, at, 1, a->stored_bytes);
        if (at < n_bytes)
                reduce_at(c, a, at, 1, n_bytes - at);
}

#define DEFINE_KERNEL_THAT(name, stored, widen_, combine_, finish_, suspect_)                                \
        static void name(const struct kernel_call *c) {                                                      \
                static const struct arithmetic a = {                                                         \
                        .stored_bytes = (stored),                                                            \
                        .widen = (widen_),                                                                   \
                        .combine = (combine_),                                                               \
                        .finish = (finish_),                                                                 \
                        .suspect = (suspect_),                                                               \
                };                                                                                           \
                reduce(c, &a);                                                                               \
        }
#define DEFINE_KERNEL(name, stored, widen, combine, finish)                                                  \
        DEFINE_KERNEL_THAT(name, stored, widen, combine, finish, NULL)
/* Two: the second looks for NaNs and infinities of `type`, too. */
#define DEFINE_FLOAT_KERNEL(name, type, stored, widen, combine, finish)                                      \
        DEFINE_KERNEL_THAT(name, stored, widen, combine, finish, NULL)                                       \
        DEFINE_KERNEL_THAT(checked_##name, stored, widen, combine, finish, suspect_##type)

#define FULL VECTOR_BYTES
#define HALF (VECTOR_BYTES / 2)

/* What differs between signed and unsigned, and what does not. */
#define DEFINE_INTEGER_KERNELS(type)                                                                         \
        DEFINE_KERNEL(minimum_##type, FULL, keep, min_##type, keep_finished)                                 \
        DEFINE_KERNEL(maximum_##type, FULL, keep, max_##type, keep_finished)
#define DEFINE_WRAPPING_KERNELS(bits)                                                                        \
        DEFINE_KERNEL(sum_##bits, FULL, keep, add_u##bits, keep_finished)                                    \
        DEFINE_KERNEL(product_##bits, FULL, keep, multiply_u##bits, keep_finished)                           \
        DEFINE_INTEGER_KERNELS(u##bits)                                                                      \
        DEFINE_INTEGER_KERNELS(i##bits)

DEFINE_WRAPPING_KERNELS(8)
DEFINE_WRAPPING_KERNELS(16)
DEFINE_WRAPPING_KERNELS(32)
DEFINE_WRAPPING_KERNELS(64)

#define DEFINE_HALF_KERNELS(type)                                                                            \
        DEFINE_FLOAT_KERNEL(sum_##type, type, HALF, widen_##type, add_f32, finish_##type)                    \
        DEFINE_FLOAT_KERNEL(mean_##type, type, HALF, widen_##type, add_f32, divide_##type)                   \
        DEFINE_FLOAT_KERNEL(product_##type, type, HALF, widen_##type, multiply_f32, finish_##type)           \
        DEFINE_FLOAT_KERNEL(minimum_##type, type, FULL, order_##type##_min, min_i16, unorder_##type)         \
        DEFINE_FLOAT_KERNEL(maximum_##type, type, FULL, order_##type##_max, max_i16, unorder_##type)

DEFINE_HALF_KERNELS(f16)
DEFINE_HALF_KERNELS(bf16)

#define DEFINE_FLOAT_KERNELS(bits)                                                                           \
        DEFINE_FLOAT_KERNEL(sum_f##bits, f##bits, FULL, keep, add_f##bits, keep_finished)                    \
        DEFINE_FLOAT_KERNEL(mean_f##bits, f##bits, FULL, keep, add_f##bits, divide_f##bits)                  \
        DEFINE_FLOAT_KERNEL(product_f##bits, f##bits, FULL, keep, multiply_f##bits, keep_finished)           \
        DEFINE_FLOAT_KERNEL(                                                                                 \
                product_pairs_f##bits, f##bits, FULL, keep, multiply_pairs_f##bits, keep_finished)           \
        DEFINE_FLOAT_KERNEL(                                                                                 \
                minimum_f##bits, f##bits, FULL, order_f##bits##_min, min_i##bits, unorder_f##bits)           \
        DEFINE_FLOAT_KERNEL(maximum_f##bits, f##bits, FULL, order_f##bits##_max, max_i##bits, unorder_f##bits)

DEFINE_FLOAT_KERNELS(32)
DEFINE_FLOAT_KERNELS(64)

DEFINE_KERNEL(and_all, FULL, keep, and_bits, keep_finished)
DEFINE_KERNEL(or_all, FULL, keep, or_bits, keep_finished)
DEFINE_KERNEL(xor_all, FULL, keep, xor_bits, keep_finished)
DEFINE_KERNEL(and_bool, FULL, widen_bool, and_bits, keep_finished)
DEFINE_KERNEL(or_bool, FULL, widen_bool, or_bits, keep_finished)

/* Sums that are wider than their elements. */
#include "backends/host/kernels-wide-impl.h"
/* ... and those made in two goes. */
#include "backends/host/kernels-tree-impl.h"

#define INTEGER_ROW(bits, type)                                                                              \
        {                                                                                                    \
                [OP_SUM] = sum_##bits, [OP_MEAN] = mean_##type, [OP_PROD] = product_##bits,                  \
                [OP_MIN] = minimum_##type, [OP_MAX] = maximum_##type, [OP_BAND] = and_all,                   \
                [OP_BOR] = or_all, [OP_BXOR] = xor_all                                                       \
        }
#define FLOAT_ROW(how, type)                                                                                 \
        {                                                                                                    \
                [OP_SUM] = how##sum_##type, [OP_MEAN] = how##mean_##type, [OP_PROD] = how##product_##type,   \
                [OP_MIN] = how##minimum_##type, [OP_MAX] = how##maximum_##type                               \
        }
#define COMPLEX_ROW(how, part)                                                                               \
        { [OP_SUM] = how##sum_##part, [OP_MEAN] = how##mean_##part, [OP_PROD] = how##product_pairs_##part }

/* NOLINTNEXTLINE(misc-definitions-in-headers): included once for each instruction set */
const struct kernel_table KERNELS_TABLE = {
        .reduce = {
                [DTYPE_U8] = INTEGER_ROW(8, u8),
                [DTYPE_I8] = INTEGER_ROW(8, i8),
                [DTYPE_U16] = INTEGER_ROW(16, u16),
                [DTYPE_I16] = INTEGER_ROW(16, i16),
                [DTYPE_U32] = INTEGER_ROW(32, u32),
                [DTYPE_I32] = INTEGER_ROW(32, i32),
                [DTYPE_U64] = INTEGER_ROW(64, u64),
                [DTYPE_I64] = INTEGER_ROW(64, i64),
                [DTYPE_F16] = FLOAT_ROW(, f16),
                [DTYPE_BF16] = FLOAT_ROW(, bf16),
                [DTYPE_F32] = FLOAT_ROW(, f32),
                [DTYPE_F64] = FLOAT_ROW(, f64),
                [DTYPE_BOOL] = { [OP_LAND] = and_bool, [OP_LOR] = or_bool },
                [DTYPE_C64] = COMPLEX_ROW(, f32),
                [DTYPE_C128] = COMPLEX_ROW(, f64),
        },
        .checked = {
                [DTYPE_F16] = FLOAT_ROW(checked_, f16),
                [DTYPE_BF16] = FLOAT_ROW(checked_, bf16),
                [DTYPE_F32] = FLOAT_ROW(checked_, f32),
                [DTYPE_F64] = FLOAT_ROW(checked_, f64),
                [DTYPE_C64] = COMPLEX_ROW(checked_, f32),
                [DTYPE_C128] = COMPLEX_ROW(checked_, f64),
        },
        .weighted = {
                [DTYPE_F16] = weighted_f16,
                [DTYPE_BF16] = weighted_bf16,
                [DTYPE_F32] = weighted_f32,
                [DTYPE_F64] = weighted_f64,
        },
        .partial = {
                [DTYPE_U8] = partial_u8,
                [DTYPE_I8] = partial_i8,
                [DTYPE_U16] = partial_u16,
                [DTYPE_I16] = partial_i16,
                [DTYPE_U32] = partial_u32,
                [DTYPE_I32] = partial_i32,
                [DTYPE_F16] = partial_f16,
                [DTYPE_BF16] = partial_bf16,
        },
        .total = {
                [DTYPE_U8] = total_u8,
                [DTYPE_I8] = total_i8,
                [DTYPE_U16] = total_u16,
                [DTYPE_I16] = total_i16,
                [DTYPE_U32] = total_u32,
                [DTYPE_I32] = total_i32,
                [DTYPE_F16] = total_f16,
                [DTYPE_BF16] = total_bf16,
                [DTYPE_F32] = total_single,
        },
        .weighted_partial = {
                [DTYPE_F16] = weighted_partial_f16,
                [DTYPE_BF16] = weighted_partial_bf16,
                [DTYPE_F32] = weighted_partial_f32,
                [DTYPE_F64] = weighted_f64,
        },
        .weighted_total = {
                [DTYPE_F16] = weighted_total_f16,
                [DTYPE_BF16] = weighted_total_bf16,
                [DTYPE_F32] = weighted_total_f32,
                [DTYPE_F64] = weighted_f64,
        },
        .count_wrapped = {
                [DTYPE_U8] = count_wrapped_u8,
                [DTYPE_I8] = count_wrapped_i8,
                [DTYPE_U16] = count_wrapped_u16,
                [DTYPE_I16] = count_wrapped_i16,
                [DTYPE_U32] = count_wrapped_u32,
                [DTYPE_I32] = count_wrapped_i32,
                [DTYPE_U64] = count_wrapped_u64,
                [DTYPE_I64] = count_wrapped_i64,
        },
        .has_nonfinite = {
                [DTYPE_F16] = has_nonfinite_f16,
                [DTYPE_BF16] = has_nonfinite_bf16,
                [DTYPE_F32] = has_nonfinite_f32,
                [DTYPE_F64] = has_nonfinite_f64,
                [DTYPE_C64] = has_nonfinite_f32,
                [DTYPE_C128] = has_nonfinite_f64,
        },
};
