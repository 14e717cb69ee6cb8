/* The kernels of GPUs against the oracle, bit for bit: the same source, compiled for this processor, launched
 * as on a device. What only a GPU could show (its own rounding, memory, speed) is not seen here. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/check.h"
#include "cuda-kernels.h"
#include "model/view.h"
#include "oracle.h"
#include "unit.h"

#define MAX_OUTPUTS  5
#define MARGIN_BYTES 64
#define MARGIN_VALUE 0xa5

/* --- one case: operands as they lie in memory, and as the oracle wants them --- */

struct operand {
        uint8_t *room; /* with margins and gaps, all of them MARGIN_VALUE */
        size_t room_bytes;
        uint8_t *before; /* the room as it was */
        uint8_t *at;
        uint8_t *dense;
        size_t element_bytes;
        uint64_t strides[MAX_DIMS];
};

struct way {
        enum op op;
        enum dtype output_dtype;
        enum rounding rounding;
        bool has_weights;
};

struct trial {
        enum dtype dtype;
        struct way way;
        uint32_t n_inputs, n_outputs;
        uint32_t n_dims; /* 0: dense */
        uint64_t shape[MAX_DIMS];
        uint64_t count;
        uint32_t alignment; /* of the first element of each operand; 0: of its own */
        int in_place;       /* the input that is output 0 too; -1: none */
        uint64_t random;
};

static uint64_t pick(struct trial *t, uint64_t below) {
        t->random = t->random * 6364136223846793005u + 1442695040888963407u;
        return (t->random >> 33) % below;
}

static void *must_alloc(size_t n_bytes) {
        void *p = malloc(n_bytes + 1);
        ck_assert_ptr_nonnull(p);
        return p;
}

/* Strides with gaps, in an order of dimensions of their own; returns the extent in elements. */
static uint64_t choose_strides(struct trial *t, struct operand *o) {
        uint64_t extent = 1;
        uint32_t first = t->n_dims ? (uint32_t)pick(t, t->n_dims) : 0;
        for (uint32_t i = 0; i < t->n_dims; i++) {
                uint32_t d = (first + i) % t->n_dims;
                o->strides[d] = extent + pick(t, 3);
                extent = o->strides[d] * (t->shape[d] - 1) + extent;
        }
        return t->n_dims ? extent : t->count;
}

static struct lattice lattice_of(const struct trial *t, const struct operand *o) {
        return (struct lattice){ .element_bytes = o->element_bytes,
                .n_dims = t->n_dims,
                .shape = t->shape,
                .strides = o->strides };
}

static void operand_init(struct trial *t, struct operand *o, enum dtype dtype) {
        o->element_bytes = dtype_bytes(dtype);
        uint64_t extent = choose_strides(t, o);
        o->room_bytes = extent * o->element_bytes + 2 * MARGIN_BYTES + 64;
        o->room = must_alloc(o->room_bytes);
        o->before = must_alloc(o->room_bytes);
        o->dense = must_alloc(t->count * o->element_bytes);
        memset(o->room, MARGIN_VALUE, o->room_bytes);
        size_t part = dtype_is_complex(dtype) ? o->element_bytes / 2 : o->element_bytes;
        size_t step = t->alignment ? t->alignment : part;
        uint8_t *border = o->room + MARGIN_BYTES + (64 - address_of(o->room) % 64) % 64;
        o->at = border + pick(t, 32 / step) * step;
}

static void operand_deinit(struct operand *o) {
        free(o->room);
        free(o->before);
        free(o->dense);
}

static void fill_input(const struct trial *t, struct operand *o, uint64_t seed) {
        const struct lattice l = lattice_of(t, o);
        oracle_fill(t->dtype, o->dense, t->count, seed);
        lattice_scatter(&l, o->at, 0, t->count, o->dense);
}

/* Nothing but the elements has changed. */
static void assert_margins(const struct trial *t, const struct operand *o, const void *elements) {
        const struct lattice l = lattice_of(t, o);
        lattice_scatter(&l, o->before + (o->at - o->room), 0, t->count, elements);
        ck_assert_msg(memcmp(o->before, o->room, o->room_bytes) == 0, "%s %s: written where no element is",
                op_name(t->way.op), dtype_name(t->dtype));
}

/* --- what is right, what came out --- */

static void ask_oracle(
        const struct trial *t, const void *const *inputs, const double *weights, void *expected) {
        const struct way *w = &t->way;
        if (w->has_weights)
                oracle_weighted(w->op, t->dtype, inputs, weights, t->n_inputs, expected, t->count);
        else if (w->op == OP_MEAN && dtype_is_integer(t->dtype))
                oracle_mean_of_integers(
                        t->dtype, w->rounding, inputs, t->n_inputs, expected, t->count, t->n_inputs);
        else if (w->op == OP_UNSPECIFIED)
                memcpy(expected, inputs[0], t->count * dtype_bytes(t->dtype));
        else
                oracle_reduce(w->op, t->dtype, inputs, t->n_inputs, expected, t->count, t->n_inputs);
}

static double fill_weights(struct trial *t, double *weights) {
        double total = 0;
        for (uint32_t i = 0; i < t->n_inputs; i++) {
                weights[i] = i && pick(t, 4) == 0 ? 0 : (double)(1 + pick(t, 29)) / 10;
                total += weights[i];
        }
        return total;
}

static void run_trial(const struct trial *t, struct operand *operands, const double *weights, double total) {
        uint32_t n = t->n_inputs + t->n_outputs;
        uint64_t *addresses = must_alloc(n * sizeof(*addresses));
        uint64_t *strides = must_alloc((size_t)n * MAX_DIMS * sizeof(*strides));
        for (uint32_t i = 0; i < n; i++) {
                addresses[i] = address_of(operands[i].at);
                memcpy(operands[i].before, operands[i].room, operands[i].room_bytes);
                memcpy(&strides[(size_t)i * t->n_dims], operands[i].strides, t->n_dims * sizeof(*strides));
        }
        struct cuda_step step = {
                .work = t->way.op == OP_UNSPECIFIED ? CUDA_COPY : CUDA_REDUCE,
                .op = t->way.op,
                .rounding = t->way.rounding,
                .divisor = t->n_inputs,
                .total_weight = total,
                .dtype = t->dtype,
                .output_dtype = t->way.output_dtype,
                .count = t->count,
                .n_inputs = t->n_inputs,
                .n_outputs = t->n_outputs,
                .operands = addresses,
                .weights = t->way.has_weights ? weights : NULL,
                .n_dims = t->n_dims,
                .shape = t->shape,
                .strides = strides,
                .n_multiprocessors = 1,
        };
        run_step(&step);
        free(strides);
        free(addresses);
}

static void assert_output(const struct trial *t, const struct operand *o, const void *expected) {
        const struct lattice l = lattice_of(t, o);
        enum dtype dtype = t->way.output_dtype;
        lattice_gather(&l, o->at, 0, t->count, o->dense);
        ptrdiff_t i = oracle_difference(dtype, o->dense, expected, t->count);
        if (i >= 0)
                ck_abort_msg("%s %s to %s %s%s, %u inputs, %u dims, in place %d: element %td of %llu is %s, "
                             "not %s",
                        op_name(t->way.op), dtype_name(t->dtype), dtype_name(dtype),
                        rounding_name(t->way.rounding), t->way.has_weights ? " weighted" : "", t->n_inputs,
                        t->n_dims, t->in_place, i, (unsigned long long)t->count,
                        oracle_show(dtype, o->dense, (size_t)i), oracle_show(dtype, expected, (size_t)i));
        assert_margins(t, o, o->dense);
}

/* Output 0 lies where that input does, and with it its strides. */
static struct operand *place_in_place(const struct trial *t, struct operand *operands) {
        struct operand *output = &operands[t->n_inputs];
        const struct operand *input = &operands[t->in_place];
        output->at = input->at;
        memcpy(output->strides, input->strides, sizeof(output->strides));
        return output;
}

static void check_outputs(const struct trial *t, struct operand *operands, const void *expected) {
        for (uint32_t i = 0; i < t->n_outputs; i++) {
                struct operand *o = &operands[t->n_inputs + i];
                if (i > 0 || t->in_place < 0) {
                        assert_output(t, o, expected);
                        continue;
                }
                struct operand shared = operands[t->in_place];
                shared.dense = o->dense;
                assert_output(t, &shared, expected);
        }
        for (uint32_t i = 0; i < t->n_inputs; i++)
                if ((int)i != t->in_place)
                        ck_assert_msg(
                                memcmp(operands[i].before, operands[i].room, operands[i].room_bytes) == 0,
                                "%s %s: input %u was changed", op_name(t->way.op), dtype_name(t->dtype), i);
}

static void check_trial(struct trial *t) {
        uint32_t n = t->n_inputs + t->n_outputs;
        struct operand *operands = must_alloc(n * sizeof(*operands));
        const void **inputs = must_alloc(t->n_inputs * sizeof(*inputs));
        double *weights = must_alloc(t->n_inputs * sizeof(*weights)), total = fill_weights(t, weights);
        uint8_t *expected = must_alloc(t->count * 16);
        for (uint32_t i = 0; i < n; i++) {
                operand_init(t, &operands[i], i < t->n_inputs ? t->dtype : t->way.output_dtype);
                if (i >= t->n_inputs)
                        continue;
                fill_input(t, &operands[i], t->random + i);
                inputs[i] = operands[i].dense;
        }
        if (t->in_place >= 0)
                place_in_place(t, operands);
        ask_oracle(t, inputs, weights, expected);
        run_trial(t, operands, weights, total);
        check_outputs(t, operands, expected);
        for (uint32_t i = 0; i < n; i++)
                operand_deinit(&operands[i]);
        free(expected);
        free(weights);
        free(inputs);
        free(operands);
}

/* --- every way that there is --- */

#define MAX_WAYS 20

static size_t ways_of(enum dtype dtype, struct way *ret) {
        size_t n = 0;
        ret[n++] = (struct way){ .op = OP_UNSPECIFIED, .output_dtype = dtype }; /* a copy */
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

/* Dense or of up to 8 dimensions. */
static void choose_shape(struct trial *t, uint64_t most) {
        t->n_dims = pick(t, 2) ? 0 : 1 + (uint32_t)pick(t, MAX_DIMS);
        t->count = t->n_dims ? 1 : pick(t, most);
        for (uint32_t d = 0; d < t->n_dims; d++) {
                t->shape[d] = 1 + pick(t, t->n_dims > 4 ? 3 : 9);
                if (t->count * t->shape[d] > most)
                        t->shape[d] = 1;
                t->count *= t->shape[d];
        }
}

static void choose_trial(struct trial *t, enum dtype dtype, const struct way *way) {
        t->dtype = dtype;
        t->way = *way;
        t->n_outputs = (uint32_t)pick(t, MAX_OUTPUTS + 1);
        t->alignment = pick(t, 2) ? 16 : 0;
        bool fits = t->n_outputs > 0 && dtype_bytes(dtype) == dtype_bytes(way->output_dtype);
        t->in_place = fits && pick(t, 2) ? (int)pick(t, t->n_inputs) : -1;
}

static void check_ways(enum dtype dtype, uint32_t n_inputs, unsigned int n_trials, uint64_t most) {
        struct way ways[MAX_WAYS];
        size_t n_ways = ways_of(dtype, ways);
        for (size_t w = 0; w < n_ways; w++)
                for (unsigned int i = 0; i < n_trials; i++) {
                        struct trial t = { .random =
                                                   ((uint64_t)dtype << 32) + w * 1000 + n_inputs * 100 + i };
                        t.n_inputs = ways[w].op == OP_UNSPECIFIED ? 1 : n_inputs;
                        pick(&t, 2);
                        choose_shape(&t, most);
                        choose_trial(&t, dtype, &ways[w]);
                        check_trial(&t);
                }
}

START_TEST(D3_P10_every_op_and_dtype_matches_the_oracle) {
        static const uint32_t worlds[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33 };
        for (enum dtype dtype = DTYPE_U8; dtype < N_DTYPE; dtype++)
                for (size_t i = 0; i < ARRAY_SIZE(worlds); i++)
                        check_ways(dtype, worlds[i], 12, 700);
}
END_TEST

START_TEST(P12_a_full_world_is_one_launch) {
        for (enum dtype dtype = DTYPE_U8; dtype < N_DTYPE; dtype++)
                check_ways(dtype, 1024, 2, 40);
}
END_TEST

/* More elements than a grid has threads, so that each goes round. */
START_TEST(P14_threads_go_round_until_all_is_done) {
        for (enum dtype dtype = DTYPE_U8; dtype < N_DTYPE; dtype++)
                check_ways(dtype, 3, 2, 60000);
}
END_TEST

START_TEST(D13_no_elements_are_no_launch) {
        struct cuda_launch launches[CUDA_STEP_LAUNCHES];
        uint64_t operands[] = { 4096, 8192 };
        struct cuda_step s = { .op = OP_SUM,
                .dtype = DTYPE_F32,
                .n_inputs = 1,
                .n_outputs = 1,
                .operands = operands,
                .n_multiprocessors = 1 };
        ck_assert_int_eq(cuda_step_prepare(&s, launches), 0);
        s.count = 1;
        ck_assert_int_eq(cuda_step_prepare(&s, launches), 1);
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

/* n inputs of `count` elements to one output. */
static void reduce(enum op op, enum dtype dtype, const void *const *inputs, uint32_t n, const double *weights,
        void *output, size_t count) {
        uint64_t operands[9];
        struct cuda_step s = { .op = op,
                .dtype = dtype,
                .output_dtype = dtype,
                .divisor = n,
                .count = count,
                .n_inputs = n,
                .n_outputs = 1,
                .operands = operands,
                .weights = weights,
                .n_multiprocessors = 2 };
        ck_assert_uint_lt(n, ARRAY_SIZE(operands));
        for (uint32_t i = 0; i < n; i++) {
                operands[i] = address_of(inputs[i]);
                s.total_weight += weights ? weights[i] : 0;
        }
        operands[n] = address_of(output);
        run_step(&s);
}

static void assert_halves(enum op op, enum dtype dtype, const uint16_t *got, const uint16_t *expected) {
        ptrdiff_t i = oracle_difference(dtype, got, expected, N_HALVES);
        if (i >= 0)
                ck_abort_msg("%s %s: element %td is %s, not %s", op_name(op), dtype_name(dtype), i,
                        oracle_show(dtype, got, (size_t)i), oracle_show(dtype, expected, (size_t)i));
}

static void check_all_halves(enum op op, enum dtype dtype, uint16_t partner) {
        static uint16_t all[N_HALVES] __attribute__((aligned(16))),
                partners[N_HALVES] __attribute__((aligned(16))), expected[N_HALVES],
                got[N_HALVES] __attribute__((aligned(16)));
        const void *inputs[] = { all, partners };
        for (int i = 0; i < N_HALVES; i++) {
                all[i] = (uint16_t)i;
                partners[i] = partner;
        }
        oracle_reduce(op, dtype, inputs, 2, expected, N_HALVES, 2);
        reduce(op, dtype, inputs, 2, NULL, got, N_HALVES);
        assert_halves(op, dtype, got, expected);
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

START_TEST(D12_all_halves_with_weights) {
        static const double weights[][2] = { { 0.1, 3 }, { 1, 0 }, { 0x1p-60, 0x1p-30 }, { 0x1p100, 1 },
                { 1.0 / 3, 2.0 / 3 } };
        static uint16_t in[N_HALVES], other[N_HALVES], got[N_HALVES], expected[N_HALVES];
        const void *inputs[] = { in, other };
        for (int i = 0; i < N_HALVES; i++) {
                in[i] = (uint16_t)i;
                other[i] = (uint16_t)(i * 40503u);
        }
        for (enum dtype dtype = DTYPE_F16; dtype <= DTYPE_BF16; dtype++)
                for (size_t w = 0; w < ARRAY_SIZE(weights); w++)
                        for (enum op op = OP_SUM; op <= OP_MEAN; op++) {
                                oracle_weighted(op, dtype, inputs, weights[w], 2, expected, N_HALVES);
                                reduce(op, dtype, inputs, 2, weights[w], got, N_HALVES);
                                assert_halves(op, dtype, got, expected);
                        }
}
END_TEST

/* Whose sum is rounded by way of f32 goes the wrong way. */
START_TEST(D12_a_weighted_sum_is_rounded_once) {
        uint16_t f16[] = { 0x3c00, 0x1000, 0x0001 }, bf16[] = { 0x3f80, 0x3b80, 0x0080 }, got = 0;
        reduce(OP_SUM, DTYPE_F16, (const void *[]){ f16, f16 + 1, f16 + 2 }, 3, (double[]){ 1, 1, 0x1p-16 },
                &got, 1);
        ck_assert_uint_eq(got, 0x3c01);
        reduce(OP_SUM, DTYPE_BF16, (const void *[]){ bf16, bf16 + 1, bf16 + 2 }, 3,
                (double[]){ 1, 1, 0x1p86 }, &got, 1);
        ck_assert_uint_eq(got, 0x3f81);
        float single = 1;
        reduce(OP_SUM, DTYPE_F32, (const void *[]){ &(float){ NAN } }, 1, (double[]){ 0 }, &single, 1);
        ck_assert(single == 0 && !signbit(single)); /* of nothing */
}
END_TEST

START_TEST(D6_floats_are_added_in_the_order_of_ranks) {
        float a = 1e8F, b = 1, c = -1e8F, d = 1, got = 0;
        reduce(OP_SUM, DTYPE_F32, (const void *[]){ &a, &b, &c, &d }, 4, NULL, &got, 1);
        ck_assert_float_eq(got, 1);
        reduce(OP_SUM, DTYPE_F32, (const void *[]){ &a, &c, &b, &d }, 4, NULL, &got, 1);
        ck_assert_float_eq(got, 2);
}
END_TEST

/* Sums of 64 bits are beyond what an f64 holds: the quotient is rounded once, and not at the sum. */
START_TEST(D9_means_of_64_bits_are_exact) {
        int64_t a = INT64_MAX, b = INT64_MAX - 2, c = INT64_MIN;
        uint64_t u = UINT64_MAX, v = UINT64_MAX - 1;
        double got = 0, expected = 0;
        const void *signed_inputs[] = { &a, &b, &c }, *unsigned_inputs[] = { &u, &v };
        for (uint32_t n = 1; n <= 3; n++) {
                uint64_t operands[] = { address_of(&a), address_of(&b), address_of(&c), 0 };
                struct cuda_step s = { .op = OP_MEAN,
                        .dtype = DTYPE_I64,
                        .output_dtype = DTYPE_F64,
                        .divisor = n,
                        .count = 1,
                        .n_inputs = n,
                        .n_outputs = 1,
                        .operands = operands };
                operands[n] = address_of(&got);
                run_step(&s);
                oracle_mean_of_integers(DTYPE_I64, ROUNDING_UNSPECIFIED, signed_inputs, n, &expected, 1, n);
                ck_assert_double_eq(got, expected);
        }
        uint64_t operands[] = { address_of(&u), address_of(&v), address_of(&got) }, rounded = 0;
        struct cuda_step s = { .op = OP_MEAN,
                .dtype = DTYPE_U64,
                .output_dtype = DTYPE_U64,
                .rounding = ROUNDING_FLOOR,
                .divisor = 2,
                .count = 1,
                .n_inputs = 2,
                .n_outputs = 1,
                .operands = operands };
        oracle_mean_of_integers(DTYPE_U64, ROUNDING_FLOOR, unsigned_inputs, 2, &rounded, 1, 2);
        run_step(&s);
        ck_assert(memcmp(&got, &rounded, sizeof(got)) == 0);
}
END_TEST

/* x x - y y is exactly 0 where x = y, unless one of the products was not rounded. */
START_TEST(P11_complex_products_are_not_contracted) {
        float a[200], got[200];
        for (int i = 0; i < 200; i++)
                a[i] = 1 + (float)(i / 2) * 0x1.234p-10F;
        reduce(OP_PROD, DTYPE_C64, (const void *[]){ a, a }, 2, NULL, got, 100);
        for (int i = 0; i < 200; i += 2)
                ck_assert_float_eq(got[i], 0);
}
END_TEST

UNIT_MAIN("cuda-kernels", 120, D3_P10_every_op_and_dtype_matches_the_oracle, P12_a_full_world_is_one_launch,
        P14_threads_go_round_until_all_is_done, D13_no_elements_are_no_launch,
        D2_all_f16_values_with_64_partners, D2_all_bf16_values_with_64_partners, D12_all_halves_with_weights,
        D12_a_weighted_sum_is_rounded_once, D6_floats_are_added_in_the_order_of_ranks,
        D9_means_of_64_bits_are_exact, P11_complex_products_are_not_contracted)
