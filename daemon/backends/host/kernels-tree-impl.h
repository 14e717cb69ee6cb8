/* The part of kernels-impl.h for sums that are made in two goes (order=tree): a *partial* one leaves its
 * result in the type in which it was accumulated (f32 of halves, f64 of weighted floats, i64 of integers
 * whose mean is wanted), a *total* one takes such results, divides where that is asked for, and rounds once.
 * Included by kernels-impl.h alone. Where a type accumulates in itself the other kernels do both. */
#pragma once

INLINE void combine_singles(enum op op, const float *values, size_t n, float *acc) {
        if (op == OP_PROD)
                for (size_t k = 0; k < n; k++)
                        acc[k] *= values[k];
        else
                for (size_t k = 0; k < n; k++)
                        acc[k] += values[k];
}

/* --- halves --- */

#define DEFINE_TREE_OF_HALVES(type)                                                                          \
        INLINE void read_singles_##type(const uint8_t *from, size_t n, float *to) {                          \
                double values[WIDE_BLOCK];                                                                   \
                read_##type(from, n, values);                                                                \
                for (size_t k = 0; k < n; k++)                                                               \
                        to[k] = (float)values[k];                                                            \
        }                                                                                                    \
        static void partial_##type(const struct kernel_call *c) {                                            \
                float acc[WIDE_BLOCK], values[WIDE_BLOCK];                                                   \
                for (size_t at = 0; at < c->count; at += WIDE_BLOCK) {                                       \
                        size_t n = block_at(c, at);                                                          \
                        for (uint32_t i = 0; i < c->n_inputs; i++) {                                         \
                                if (c->nonfinite && has_nonfinite_##type(input_at(c, i, at * 2), n * 2))     \
                                        kernels_note_input(c, i, at * 2, n * 2);                             \
                                read_singles_##type(input_at(c, i, at * 2), n, i ? values : acc);            \
                                if (i)                                                                       \
                                        combine_singles(c->op, values, n, acc);                              \
                        }                                                                                    \
                        put_block(c, at * sizeof(float), acc, n * sizeof(float));                            \
                }                                                                                            \
        }                                                                                                    \
        static void total_##type(const struct kernel_call *c) {                                              \
                float acc[WIDE_BLOCK], divisor = c->op == OP_MEAN ? (float)c->divisor : 1;                   \
                double wide[WIDE_BLOCK];                                                                     \
                uint8_t results[WIDE_BLOCK * 2] __attribute__((aligned(64)));                                \
                for (size_t at = 0; at < c->count; at += WIDE_BLOCK) {                                       \
                        size_t n = block_at(c, at);                                                          \
                        memcpy(acc, input_at(c, 0, at * sizeof(float)), n * sizeof(float));                  \
                        for (uint32_t i = 1; i < c->n_inputs; i++)                                           \
                                combine_singles(c->op, (const float *)c->inputs[i] + at, n, acc);            \
                        for (size_t k = 0; k < n; k++)                                                       \
                                wide[k] = (double)(acc[k] / divisor);                                        \
                        write_##type(wide, n, results);                                                      \
                        put_block(c, at * 2, results, n * 2);                                                \
                }                                                                                            \
        }

DEFINE_TREE_OF_HALVES(f16)
DEFINE_TREE_OF_HALVES(bf16)

/* --- weights --- */

#define DEFINE_WEIGHTED_PARTIAL(type)                                                                        \
        static void weighted_partial_##type(const struct kernel_call *c) {                                   \
                double sums[WIDE_BLOCK];                                                                     \
                for (size_t at = 0; at < c->count; at += WIDE_BLOCK) {                                       \
                        size_t n = block_at(c, at);                                                          \
                        weigh_##type(c, at, n, sums);                                                        \
                        put_block(c, at * sizeof(double), sums, n * sizeof(double));                         \
                }                                                                                            \
        }

DEFINE_WEIGHTED_PARTIAL(f16)
DEFINE_WEIGHTED_PARTIAL(bf16)
DEFINE_WEIGHTED_PARTIAL(f32)

/* The partial ones come with a weight of 1, and with the sum of all weights. */
#define DEFINE_WEIGHTED_TOTAL(type, element_bytes)                                                           \
        static void weighted_total_##type(const struct kernel_call *c) {                                     \
                double sums[WIDE_BLOCK], divisor = c->op == OP_MEAN ? c->total_weight : 1;                   \
                uint8_t results[WIDE_BLOCK * (element_bytes)] __attribute__((aligned(64)));                  \
                for (size_t at = 0; at < c->count; at += WIDE_BLOCK) {                                       \
                        size_t n = block_at(c, at);                                                          \
                        weigh_f64(c, at, n, sums);                                                           \
                        for (size_t k = 0; k < n; k++)                                                       \
                                sums[k] /= divisor;                                                          \
                        write_##type(sums, n, results);                                                      \
                        put_block(c, at *(element_bytes), results, n *(element_bytes));                      \
                }                                                                                            \
        }

DEFINE_WEIGHTED_TOTAL(f16, 2)
DEFINE_WEIGHTED_TOTAL(bf16, 2)
DEFINE_WEIGHTED_TOTAL(f32, 4)

/* --- means of integers --- */

#define DEFINE_PARTIAL_OF_INTEGERS(type, element)                                                            \
        DEFINE_EXACT_SUM(long_##type, element, int64_t)                                                      \
        static void partial_##type(const struct kernel_call *c) {                                            \
                int64_t sums[WIDE_BLOCK];                                                                    \
                for (size_t at = 0; at < c->count; at += WIDE_BLOCK) {                                       \
                        size_t n = block_at(c, at);                                                          \
                        sum_exactly_long_##type(c, at, n, sums);                                             \
                        put_block(c, at * sizeof(*sums), sums, n * sizeof(*sums));                           \
                }                                                                                            \
        }
DEFINE_EXACT_SUM(partials, int64_t, int64_t)

#define DEFINE_TOTAL(type, element, result)                                                                  \
        static void total_##type(const struct kernel_call *c) {                                              \
                int64_t sums[WIDE_BLOCK];                                                                    \
                element results[WIDE_BLOCK];                                                                 \
                for (size_t at = 0; at < c->count; at += WIDE_BLOCK) {                                       \
                        size_t n = block_at(c, at);                                                          \
                        sum_exactly_partials(c, at, n, sums);                                                \
                        for (size_t k = 0; k < n; k++)                                                       \
                                results[k] = (element)(result);                                              \
                        put_block(c, at * sizeof(element), results, n * sizeof(element));                    \
                }                                                                                            \
        }
#define DEFINE_TREE_OF_INTEGERS(type, element)                                                               \
        DEFINE_PARTIAL_OF_INTEGERS(type, element)                                                            \
        DEFINE_TOTAL(type, element, round_i64(sums[k], c->divisor, c->rounding))

DEFINE_TREE_OF_INTEGERS(u8, uint8_t)
DEFINE_TREE_OF_INTEGERS(i8, int8_t)
DEFINE_TREE_OF_INTEGERS(u16, uint16_t)
DEFINE_TREE_OF_INTEGERS(i16, int16_t)
DEFINE_TREE_OF_INTEGERS(u32, uint32_t)
DEFINE_TREE_OF_INTEGERS(i32, int32_t)
DEFINE_TOTAL(single, float, (double)sums[k] / c->divisor)
