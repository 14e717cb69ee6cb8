/* The kernels of each instruction set against the oracle, bit for bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "backends/host/kernels.h"
#include "base/check.h"
#include "oracle.h"
#include "unit.h"

#define MAX_INPUTS   20
#define MAX_OUTPUTS  5
#define MAX_COUNT    5000
#define MARGIN_BYTES 128 /* before and behind each buffer, to be left alone */
#define MAX_BYTES    16  /* of an element */
#define ROOM_BYTES   (MAX_COUNT * MAX_BYTES + 64 + 2 * MARGIN_BYTES)
#define MARGIN_VALUE 0xa5

#define for_each_isa(isa) for (enum isa isa = ISA_SCALAR; isa <= kernels_isa(ISA_AUTO); isa++)

/* --- every op on every dtype, any number of inputs and outputs, any alignment, in place --- */

struct buffers {
        uint8_t *room[MAX_INPUTS + MAX_OUTPUTS];
        uint8_t *at[MAX_INPUTS + MAX_OUTPUTS]; /* inputs, then outputs */
        uint8_t *original[MAX_INPUTS];
        uint8_t *expected;
        double weights[MAX_INPUTS], total_weight;
};

/* One of the ways in which a dtype can be combined. */
struct way {
        enum op op;
        enum dtype output_dtype;
        enum rounding rounding;
        bool has_weights;
};

struct shape {
        enum op op;
        enum dtype dtype, output_dtype;
        enum rounding rounding;
        bool has_weights;
        uint32_t n_inputs, n_outputs;
        size_t count;
        int in_place; /* the input that is output 0 too; -1: none */
};

static void *must_alloc(size_t n_bytes) {
        void *p = malloc(n_bytes);
        ck_assert_ptr_nonnull(p);
        return p;
}

static void buffers_init(struct buffers *b) {
        for (int i = 0; i < MAX_INPUTS + MAX_OUTPUTS; i++)
                b->room[i] = must_alloc(ROOM_BYTES);
        for (int i = 0; i < MAX_INPUTS; i++)
                b->original[i] = must_alloc(MAX_COUNT * MAX_BYTES);
        b->expected = must_alloc(MAX_COUNT * MAX_BYTES);
}

static void buffers_deinit(struct buffers *b) {
        for (int i = 0; i < MAX_INPUTS + MAX_OUTPUTS; i++)
                free(b->room[i]);
        for (int i = 0; i < MAX_INPUTS; i++)
                free(b->original[i]);
        free(b->expected);
}

/* A quarter of the weights are 0, but not the first. */
static void fill_weights(struct buffers *b, uint32_t n_inputs, unsigned int seed) {
        b->total_weight = 0;
        for (uint32_t i = 0; i < n_inputs; i++) {
                b->weights[i] = i && (seed + i) % 4 == 0 ? 0 : (double)(1 + (seed * 7 + i * 13) % 29) / 10;
                b->total_weight += b->weights[i];
        }
}

static void *place(struct buffers *b, uint32_t i, size_t element_bytes, size_t n_bytes, unsigned int seed) {
        uint8_t *at = b->room[i] + MARGIN_BYTES + (seed * 7 + i * 5) % (64 / element_bytes) * element_bytes;
        memset(at - MARGIN_BYTES, MARGIN_VALUE, n_bytes + 2 * MARGIN_BYTES);
        b->at[i] = at;
        return at;
}

/* Other values and offsets for each seed; what the kernels must not touch is marked. */
static void buffers_fill(struct buffers *b, const struct shape *s, unsigned int seed) {
        size_t size = dtype_bytes(s->dtype), out_size = dtype_bytes(s->output_dtype);
        fill_weights(b, s->n_inputs, seed);
        for (uint32_t i = 0; i < s->n_inputs; i++) {
                oracle_fill(s->dtype, b->original[i], s->count, seed * 64 + i);
                memcpy(place(b, i, size, s->count * size, seed), b->original[i], s->count * size);
        }
        for (uint32_t i = 0; i < s->n_outputs; i++)
                place(b, s->n_inputs + i, out_size, s->count * out_size, seed);
        if (s->in_place >= 0)
                b->at[s->n_inputs] = b->at[s->in_place];
}

static void assert_margins(const uint8_t *at, size_t n_bytes, const struct shape *s) {
        for (int i = 1; i <= MARGIN_BYTES; i++)
                if (at[-i] != MARGIN_VALUE || at[n_bytes + i - 1] != MARGIN_VALUE)
                        ck_abort_msg("%s %s: %zu elements: touched %d bytes off its end", op_name(s->op),
                                dtype_name(s->dtype), s->count, i);
}

static void assert_same(const void *got, const void *expected, const struct shape *s, enum isa isa) {
        ptrdiff_t i = oracle_difference(s->output_dtype, got, expected, s->count);
        if (i >= 0)
                ck_abort_msg(
                        "%s %s %s %s%s, %u inputs, %u outputs, in place %d: element %td of %zu is %s, not %s",
                        isa_name(isa), op_name(s->op), dtype_name(s->dtype), rounding_name(s->rounding),
                        s->has_weights ? " weighted" : "", s->n_inputs, s->n_outputs, s->in_place, i,
                        s->count, oracle_show(s->output_dtype, got, i),
                        oracle_show(s->output_dtype, expected, i));
}

static void check_case(struct buffers *b, const struct shape *s, enum isa isa, unsigned int seed) {
        size_t n_bytes = s->count * dtype_bytes(s->dtype),
               n_out_bytes = s->count * dtype_bytes(s->output_dtype);
        buffers_fill(b, s, seed);
        struct kernel_call call = {
                .op = s->op,
                .dtype = s->dtype,
                .inputs = (const void *const *)b->at,
                .n_inputs = s->n_inputs,
                .outputs = (void *const *)&b->at[s->n_inputs],
                .n_outputs = s->n_outputs,
                .count = s->count,
                .divisor = s->n_inputs,
                .rounding = s->rounding,
                .weights = s->has_weights ? b->weights : NULL,
                .total_weight = b->total_weight,
                .is_streamed = s->in_place < 0 && s->output_dtype == s->dtype && seed % 2 == 0,
        };
        kernels_reduce(isa, &call);
        for (uint32_t i = 0; i < s->n_outputs; i++) {
                assert_same(b->at[s->n_inputs + i], b->expected, s, isa);
                assert_margins(b->at[s->n_inputs + i], n_out_bytes, s);
        }
        for (uint32_t i = 0; i < s->n_inputs; i++) {
                if ((int)i != s->in_place && memcmp(b->at[i], b->original[i], n_bytes) != 0)
                        ck_abort_msg("%s %s: input %u was changed", op_name(s->op), dtype_name(s->dtype), i);
                assert_margins(b->at[i], n_bytes, s);
        }
}

static void ask_oracle(struct buffers *b, const struct shape *s) {
        const void *const *inputs = (const void *const *)b->original;
        if (s->has_weights)
                oracle_weighted(s->op, s->dtype, inputs, b->weights, s->n_inputs, b->expected, s->count);
        else if (s->op == OP_MEAN && dtype_is_integer(s->dtype))
                oracle_mean_of_integers(
                        s->dtype, s->rounding, inputs, s->n_inputs, b->expected, s->count, s->n_inputs);
        else
                oracle_reduce(s->op, s->dtype, inputs, s->n_inputs, b->expected, s->count, s->n_inputs);
}

/* With every instruction set, out of place and in place of an input that changes from case to case. */
static void check_shape(struct buffers *b, struct shape s, unsigned int seed) {
        bool can_be_in_place = dtype_bytes(s.dtype) == dtype_bytes(s.output_dtype);
        s.in_place = -1;
        buffers_fill(b, &s, seed);
        ask_oracle(b, &s);
        for_each_isa(isa) {
                s.in_place = -1;
                check_case(b, &s, isa, seed);
                s.in_place = (int)(seed % s.n_inputs);
                if (can_be_in_place)
                        check_case(b, &s, isa, seed);
        }
}

#define MAX_WAYS 16

static size_t ways_of(enum dtype dtype, struct way *ret) {
        size_t n = 0;
        for (enum op op = OP_SUM; op < N_OP; op++)
                if (op_is_supported(op, dtype))
                        ret[n++] = (struct way){ .op = op, .output_dtype = dtype };
        for (enum rounding r = ROUNDING_TRUNC; dtype_is_integer(dtype) && r <= ROUNDING_NEAREST; r++)
                ret[n++] = (struct way){ .op = OP_MEAN, .output_dtype = dtype, .rounding = r };
        if (dtype_is_integer(dtype))
                ret[n++] = (struct way){ .op = OP_MEAN, .output_dtype = dtype_of_integer_mean(dtype) };
        for (enum op op = OP_SUM; dtype_is_float(dtype) && op <= OP_MEAN; op++)
                ret[n++] = (struct way){ .op = op, .output_dtype = dtype, .has_weights = true };
        ck_assert_uint_le(n, MAX_WAYS);
        return n;
}

static struct shape shape_of(enum dtype dtype, const struct way *way) {
        return (struct shape){ .op = way->op,
                .dtype = dtype,
                .output_dtype = way->output_dtype,
                .rounding = way->rounding,
                .has_weights = way->has_weights };
}

/* Every way that `dtype` has, with few inputs and with many, each with many counts; outputs and alignment
 * change from case to case. */
static void check_small(struct buffers *b, enum dtype dtype) {
        static const size_t counts[] = { 0, 1, 3, 7, 16, 31, 33, 64, 127, 257, 600 };
        unsigned int seed = 1;
        struct way ways[MAX_WAYS];
        size_t n_ways = ways_of(dtype, ways);
        for (size_t w = 0; w < n_ways; w++) {
                struct shape s = shape_of(dtype, &ways[w]);
                for (s.n_inputs = 1; s.n_inputs <= MAX_INPUTS; s.n_inputs += s.n_inputs < 5 ? 1 : 3) {
                        for (size_t c = 0; c < ARRAY_SIZE(counts); c++, seed++) {
                                s.n_outputs = 1 + seed % MAX_OUTPUTS;
                                s.count = counts[c];
                                check_shape(b, s, seed);
                        }
                }
        }
}

/* Long enough for whole blocks of many inputs, and a piece of one. */
static void check_large(struct buffers *b, enum dtype dtype) {
        struct way ways[MAX_WAYS];
        size_t n_ways = ways_of(dtype, ways);
        for (size_t w = 0; w < n_ways; w++) {
                struct shape s = shape_of(dtype, &ways[w]);
                for (s.n_outputs = 0; s.n_outputs <= MAX_OUTPUTS; s.n_outputs = 3 * s.n_outputs + 1) {
                        s.n_inputs = MAX_INPUTS - s.n_outputs % 2;
                        s.count = MAX_COUNT - 3 * s.n_outputs;
                        check_shape(b, s, 100 + s.n_outputs);
                }
        }
}

static void with_each_dtype(void (*check)(struct buffers *b, enum dtype dtype)) {
        struct buffers b;
        buffers_init(&b);
        for (enum dtype dtype = DTYPE_U8; dtype < N_DTYPE; dtype++)
                check(&b, dtype);
        buffers_deinit(&b);
}

START_TEST(every_op_and_dtype_matches_the_oracle) {
        with_each_dtype(check_small);
}
END_TEST

START_TEST(many_inputs_and_elements_match_the_oracle) {
        with_each_dtype(check_large);
}
END_TEST

/* --- D2: half precision, exhaustively --- */

#define N_HALVES   65536
#define N_PARTNERS 64

static uint16_t partner_of(enum dtype dtype, int i) {
        static const uint16_t f16_values[] = { 0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x8400, 0x3c00,
                0xbc00, 0x3c01, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01, 0x1400, 0x5800,
                0x7800 };
        static const uint16_t bf16_values[] = { 0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080, 0x8080,
                0x3f80, 0xbf80, 0x3f81, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 0x3b80,
                0x4300, 0x7f00 };
        if (i < (int)ARRAY_SIZE(f16_values))
                return dtype == DTYPE_F16 ? f16_values[i] : bf16_values[i];
        return (uint16_t)(i * 40503u + 0x1234u);
}

static void check_all_halves(enum op op, enum dtype dtype, uint16_t partner) {
        static uint16_t all[N_HALVES], partners[N_HALVES], expected[N_HALVES], got[N_HALVES];
        const void *inputs[] = { all, partners };
        void *outputs[] = { got };
        for (int i = 0; i < N_HALVES; i++) {
                all[i] = i;
                partners[i] = partner;
        }
        oracle_reduce(op, dtype, inputs, 2, expected, N_HALVES, 2);
        struct kernel_call call = { .op = op,
                .dtype = dtype,
                .inputs = inputs,
                .n_inputs = 2,
                .outputs = outputs,
                .n_outputs = 1,
                .count = N_HALVES,
                .divisor = 2 };
        struct shape shape = { .op = op,
                .dtype = dtype,
                .output_dtype = dtype,
                .n_inputs = 2,
                .n_outputs = 1,
                .count = N_HALVES };
        for_each_isa(isa) {
                memset(got, 0x55, sizeof(got));
                kernels_reduce(isa, &call);
                assert_same(got, expected, &shape, isa);
        }
}

static void check_all_halves_and_ops(enum dtype dtype) {
        for (enum op op = OP_SUM; op <= OP_MAX; op++)
                for (int i = 0; i < N_PARTNERS; i++)
                        check_all_halves(op, dtype, partner_of(dtype, i));
}

START_TEST(D2_all_f16_values_with_64_partners) {
        check_all_halves_and_ops(DTYPE_F16);
}
END_TEST

START_TEST(D2_all_bf16_values_with_64_partners) {
        check_all_halves_and_ops(DTYPE_BF16);
}
END_TEST

/* The oracle itself, where a table of the format says what is right. */
START_TEST(the_oracle_knows_half_precision) {
        ck_assert_uint_eq(oracle_to_f16(65519.99), 0x7bff);
        ck_assert_uint_eq(oracle_to_f16(65520), 0x7c00);
        ck_assert_uint_eq(oracle_to_f16(0x1p-25), 0x0000);
        ck_assert_uint_eq(oracle_to_f16(0x1.8p-24), 0x0002);
        ck_assert_uint_eq(oracle_to_f16(-0x1.000001p-25), 0x8001);
        ck_assert_uint_eq(oracle_to_f16(1 + 0x1p-11), 0x3c00);
        ck_assert_uint_eq(oracle_to_f16(1 + 0x3p-11), 0x3c02);
        ck_assert_uint_eq(oracle_to_bf16(1 + 0x3p-8), 0x3f82);
        ck_assert_uint_eq(oracle_to_bf16(0x1.ffp127), 0x7f80);
        ck_assert_uint_eq(oracle_to_bf16(0x1p-133), 0x0001);
        ck_assert(oracle_from_f16(0x0001) == 0x1p-24);
        ck_assert(oracle_from_f16(0xfbff) == -65504);
        for (int i = 0; i < N_HALVES; i++) {
                if (!isnan(oracle_from_f16(i)) && oracle_to_f16(oracle_from_f16(i)) != i)
                        ck_abort_msg("f16 0x%04x does not survive the oracle", i);
                if (!isnan(oracle_from_bf16(i)) && oracle_to_bf16(oracle_from_bf16(i)) != i)
                        ck_abort_msg("bf16 0x%04x does not survive the oracle", i);
        }
}
END_TEST

/* --- values that people stumbled over --- */

/* n inputs of one element each. */
static void reduce_one(
        enum isa isa, enum op op, enum dtype dtype, const void *elements, uint32_t n, void *ret) {
        const void *inputs[8];
        void *outputs[] = { ret };
        ck_assert_uint_le(n, ARRAY_SIZE(inputs));
        for (uint32_t i = 0; i < n; i++)
                inputs[i] = (const uint8_t *)elements + i * dtype_bytes(dtype);
        struct kernel_call call = { .op = op,
                .dtype = dtype,
                .inputs = inputs,
                .n_inputs = n,
                .outputs = outputs,
                .n_outputs = 1,
                .count = 1,
                .divisor = n };
        kernels_reduce(isa, &call);
}

static uint16_t reduce_halves(
        enum isa isa, enum op op, enum dtype dtype, const uint16_t *elements, uint32_t n) {
        uint16_t ret = 0x5555;
        reduce_one(isa, op, dtype, elements, n, &ret);
        return ret;
}

static float reduce_floats(enum isa isa, enum op op, const float *elements, uint32_t n) {
        float ret = 12345;
        reduce_one(isa, op, DTYPE_F32, elements, n, &ret);
        return ret;
}

START_TEST(D4_mean_neither_overflows_nor_underflows) {
        const uint16_t large = 0x7753, smallest = 0x0001; /* 30000 and 2^-24 */
        ck_assert(oracle_from_f16(large) == 30000);
        for_each_isa(isa) {
                ck_assert_uint_eq(
                        reduce_halves(isa, OP_MEAN, DTYPE_F16, (uint16_t[]){ large, large, large, large }, 4),
                        large);
                ck_assert_uint_eq(reduce_halves(isa, OP_MEAN, DTYPE_F16,
                                          (uint16_t[]){ smallest, smallest, smallest, smallest }, 4),
                        smallest);
                /* bf16: the largest finite sum in f32, and the smallest subnormal. */
                ck_assert_uint_eq(
                        reduce_halves(isa, OP_MEAN, DTYPE_BF16, (uint16_t[]){ 0x7e80, 0x7e80 }, 2), 0x7e80);
                ck_assert_uint_eq(
                        reduce_halves(isa, OP_MEAN, DTYPE_BF16, (uint16_t[]){ 0x0001, 0x0001 }, 2), 0x0001);
        }
}
END_TEST

/* 1/3 is not the product with a rounded reciprocal: 5/3 differs in the last bit. */
START_TEST(mean_divides_truly) {
        for_each_isa(isa) {
                for (int i = 1; i < 1000; i++) {
                        float third = (float)i, expected = third / 3.0f;
                        float got = reduce_floats(isa, OP_MEAN, (float[]){ third, 0, 0 }, 3);
                        ck_assert_msg(
                                got == expected, "%s: %d/3 is %a, not %a", isa_name(isa), i, got, expected);
                }
        }
}
END_TEST

START_TEST(D6_floats_are_added_in_the_order_of_ranks) {
        for_each_isa(isa) {
                ck_assert(reduce_floats(isa, OP_SUM, (float[]){ 1e8f, 1, -1e8f, 1 }, 4) == 1);
                ck_assert(reduce_floats(isa, OP_SUM, (float[]){ 1e8f, -1e8f, 1, 1 }, 4) == 2);
                ck_assert(reduce_floats(isa, OP_SUM, (float[]){ 1, 1, 1e8f, -1e8f }, 4) == 0);
        }
}
END_TEST

START_TEST(D8_a_nan_from_any_rank_reaches_the_result) {
        static const float nans[] = { NAN, -NAN };
        for_each_isa(isa) {
                for (int rank = 0; rank < 4; rank++) {
                        for (int o = 0; o < 2; o++) {
                                float values[] = { 3, -INFINITY, INFINITY, -4 };
                                values[rank] = nans[o];
                                ck_assert(isnan(reduce_floats(isa, OP_MIN, values, 4)));
                                ck_assert(isnan(reduce_floats(isa, OP_MAX, values, 4)));
                                ck_assert(isnan(reduce_floats(isa, OP_SUM, values, 4)));
                        }
                }
                ck_assert(reduce_floats(isa, OP_MIN, (float[]){ 3, -2, 7, -1 }, 4) == -2);
                ck_assert(reduce_floats(isa, OP_MAX, (float[]){ 3, -2, 7, -1 }, 4) == 7);
        }
}
END_TEST

START_TEST(zeros_have_an_order) {
        for_each_isa(isa) {
                for (int order = 0; order < 2; order++) {
                        float zeros[] = { order ? 0.0f : -0.0f, order ? -0.0f : 0.0f };
                        ck_assert(signbit(reduce_floats(isa, OP_MIN, zeros, 2)));
                        ck_assert(!signbit(reduce_floats(isa, OP_MAX, zeros, 2)));
                }
                ck_assert(signbit(reduce_floats(isa, OP_SUM, (float[]){ -0.0f, -0.0f }, 2)));
        }
}
END_TEST

START_TEST(integers_wrap) {
        for_each_isa(isa) {
                uint8_t u8 = 0;
                int32_t i32 = 0;
                int64_t i64 = 0;
                reduce_one(isa, OP_SUM, DTYPE_U8, (uint8_t[]){ 200, 100, 3 }, 3, &u8);
                reduce_one(isa, OP_SUM, DTYPE_I32, (int32_t[]){ INT32_MAX, 2 }, 2, &i32);
                reduce_one(isa, OP_SUM, DTYPE_I64, (int64_t[]){ INT64_MIN, -1 }, 2, &i64);
                ck_assert_uint_eq(u8, 47);
                ck_assert_int_eq(i32, INT32_MIN + 1);
                ck_assert_int_eq(i64, INT64_MAX);
                reduce_one(isa, OP_MIN, DTYPE_U8, (uint8_t[]){ 200, 100 }, 2, &u8);
                ck_assert_uint_eq(u8, 100);
        }
}
END_TEST

START_TEST(a_full_world_is_one_call) {
        static float values[1024][37];
        const void *inputs[1024];
        float got[37], expected[37];
        void *outputs[] = { got };
        for (int r = 0; r < 1024; r++) {
                oracle_fill(DTYPE_F32, values[r], 37, r);
                inputs[r] = values[r];
        }
        oracle_reduce(OP_MEAN, DTYPE_F32, inputs, 1024, expected, 37, 1000);
        struct kernel_call call = { .op = OP_MEAN,
                .dtype = DTYPE_F32,
                .inputs = inputs,
                .n_inputs = 1024,
                .outputs = outputs,
                .n_outputs = 1,
                .count = 37,
                .divisor = 1000 };
        for_each_isa(isa) {
                kernels_reduce(isa, &call);
                ck_assert_int_eq(oracle_difference(DTYPE_F32, got, expected, 37), -1);
        }
}
END_TEST

/* --- copies, and the choice of the instruction set --- */

static void copy_to_all_but_the_root(enum isa isa, bool is_streamed) {
        static uint8_t from[30001], to[3][30003];
        for (size_t i = 0; i < sizeof(from); i++)
                from[i] = i * 31 % 251;
        memset(to, 0xee, sizeof(to));
        const void *inputs[] = { from };
        void *outputs[] = { to[0] + 1, from, to[1] + 1, to[2] + 1 };
        struct kernel_call call = { .op = OP_UNSPECIFIED,
                .dtype = DTYPE_U8,
                .inputs = inputs,
                .n_inputs = 1,
                .outputs = outputs,
                .n_outputs = 4,
                .count = sizeof(from),
                .is_streamed = is_streamed };
        kernels_copy(isa, &call);
        for (int i = 0; i < 3; i++) {
                ck_assert_mem_eq(to[i] + 1, from, sizeof(from));
                ck_assert_uint_eq(to[i][0], 0xee);
                ck_assert_uint_eq(to[i][sizeof(from) + 1], 0xee);
        }
        ck_assert_uint_eq(from[30000], 30000 * 31 % 251);
}

START_TEST(copies_reach_every_output_and_spare_the_root) {
        for_each_isa(isa) {
                copy_to_all_but_the_root(isa, false);
                copy_to_all_but_the_root(isa, true);
        }
}
END_TEST

START_TEST(copies_count_elements) {
        double from[7] = { 1, 2, 3, 4, 5, 6, 7 }, to[7] = { 0 };
        const void *inputs[] = { from };
        void *outputs[] = { to };
        struct kernel_call call = { .dtype = DTYPE_F64,
                .inputs = inputs,
                .n_inputs = 1,
                .outputs = outputs,
                .n_outputs = 1,
                .count = 6 };
        kernels_copy(ISA_SCALAR, &call);
        ck_assert(to[5] == 6 && to[6] == 0);
        call.count = 0;
        to[0] = 9;
        kernels_copy(ISA_SCALAR, &call);
        ck_assert(to[0] == 9);
}
END_TEST

START_TEST(an_instruction_set_is_lowered_to_what_is_there) {
        enum isa best = kernels_isa(ISA_AUTO);
        ck_assert_int_ge(best, ISA_SCALAR);
        ck_assert_int_eq(kernels_isa(ISA_SCALAR), ISA_SCALAR);
        ck_assert_int_eq(kernels_isa(ISA_AVX512), best);
        ck_assert_int_le(kernels_isa(ISA_AVX2), ISA_AVX2);
        ck_assert_str_eq(isa_name(ISA_SCALAR), "scalar");
        ck_assert_str_eq(isa_name(ISA_AVX2), "AVX2");
        ck_assert_str_eq(isa_name(ISA_AVX512), "AVX-512");
}
END_TEST

UNIT_MAIN("kernels", 60, every_op_and_dtype_matches_the_oracle, many_inputs_and_elements_match_the_oracle,
        D2_all_f16_values_with_64_partners, D2_all_bf16_values_with_64_partners,
        the_oracle_knows_half_precision, D4_mean_neither_overflows_nor_underflows, mean_divides_truly,
        D6_floats_are_added_in_the_order_of_ranks, D8_a_nan_from_any_rank_reaches_the_result,
        zeros_have_an_order, integers_wrap, a_full_world_is_one_call,
        copies_reach_every_output_and_spare_the_root, copies_count_elements,
        an_instruction_set_is_lowered_to_what_is_there)
