/* Floats beyond the plain ops: weights, complex products, and the search for what is not finite. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "backends/host/kernels.h"
#include "base/check.h"
#include "oracle.h"
#include "unit.h"

#define for_each_isa(isa) for (enum isa isa = ISA_SCALAR; isa <= kernels_isa(ISA_AUTO); isa++)

#define N_HALVES   65536
#define MAX_INPUTS 8

/* --- weights --- */

static void reduce_weighted(enum isa isa, enum op op, enum dtype dtype, const void *const *inputs,
        const double *weights, uint32_t n, void *output, size_t count) {
        struct kernel_call call = { .op = op,
                .dtype = dtype,
                .inputs = inputs,
                .n_inputs = n,
                .outputs = (void *const[]){ output },
                .n_outputs = 1,
                .count = count,
                .divisor = n,
                .weights = weights };
        for (uint32_t i = 0; i < n; i++)
                call.total_weight += weights[i];
        kernels_reduce(isa, &call);
}

/* n elements, one for each input. */
static void weigh_one(enum isa isa, enum op op, enum dtype dtype, const void *elements, const double *weights,
        uint32_t n, void *ret) {
        const void *inputs[MAX_INPUTS];
        ck_assert_uint_le(n, MAX_INPUTS);
        for (uint32_t i = 0; i < n; i++)
                inputs[i] = (const uint8_t *)elements + i * dtype_bytes(dtype);
        reduce_weighted(isa, op, dtype, inputs, weights, n, ret, 1);
}

/* Alone with weight 1, everything comes back: no rounding, no lost subnormal, no lost sign. */
static void check_identity(enum isa isa, enum op op, enum dtype dtype) {
        static uint16_t in[N_HALVES], got[N_HALVES];
        const void *inputs[] = { in };
        for (int i = 0; i < N_HALVES; i++)
                in[i] = (uint16_t)i;
        reduce_weighted(isa, op, dtype, inputs, (double[]){ 1 }, 1, got, N_HALVES);
        ck_assert_int_eq(oracle_difference(dtype, in, got, N_HALVES), -1);
}

static void check_all_halves(enum isa isa, enum dtype dtype, const double *weights) {
        static uint16_t in[N_HALVES], other[N_HALVES], got[N_HALVES], expected[N_HALVES];
        const void *inputs[] = { in, other };
        for (int i = 0; i < N_HALVES; i++) {
                in[i] = (uint16_t)i;
                other[i] = (uint16_t)(i * 40503u);
        }
        for (enum op op = OP_SUM; op <= OP_MEAN; op++) {
                oracle_weighted(op, dtype, inputs, weights, 2, expected, N_HALVES);
                reduce_weighted(isa, op, dtype, inputs, weights, 2, got, N_HALVES);
                ptrdiff_t i = oracle_difference(dtype, got, expected, N_HALVES);
                if (i >= 0)
                        ck_abort_msg("%s %s %s: element %td is %s, not %s", isa_name(isa), op_name(op),
                                dtype_name(dtype), i, oracle_show(dtype, got, (size_t)i),
                                oracle_show(dtype, expected, (size_t)i));
        }
}

START_TEST(D12_all_halves_with_weights) {
        static const double weights[][2] = { { 0.1, 3 }, { 1, 0 }, { 0x1p-60, 0x1p-30 }, { 0x1p100, 1 },
                { 1.0 / 3, 2.0 / 3 } };
        for_each_isa(isa) {
                for (enum dtype dtype = DTYPE_F16; dtype <= DTYPE_BF16; dtype++) {
                        check_identity(isa, OP_SUM, dtype);
                        check_identity(isa, OP_MEAN, dtype);
                        for (size_t w = 0; w < ARRAY_SIZE(weights); w++)
                                check_all_halves(isa, dtype, weights[w]);
                }
        }
}
END_TEST

/* Just above the middle between two halves, by less than f32 can tell: rounded by way of f32, the sum would
 * be exactly in the middle and go down. */
START_TEST(a_weighted_sum_is_rounded_once) {
        for_each_isa(isa) {
                uint16_t f16[] = { 0x3c00, 0x1000, 0x0001 }, bf16[] = { 0x3f80, 0x3b80, 0x0080 }, got = 0;
                ck_assert(oracle_from_f16(f16[1]) == 0x1p-11 && oracle_from_bf16(bf16[1]) == 0x1p-8);
                weigh_one(isa, OP_SUM, DTYPE_F16, f16, (double[]){ 1, 1, 0x1p-16 }, 3, &got);
                ck_assert_uint_eq(got, 0x3c01);
                weigh_one(isa, OP_SUM, DTYPE_F16, f16, (double[]){ 1, 1, 0 }, 3, &got);
                ck_assert_uint_eq(got, 0x3c00);
                weigh_one(isa, OP_SUM, DTYPE_BF16, bf16, (double[]){ 1, 1, 0x1p86 }, 3, &got);
                ck_assert_uint_eq(got, 0x3f81);
                /* The same below the normal numbers: half of the smallest subnormal and a little. */
                weigh_one(isa, OP_SUM, DTYPE_F16, f16 + 2, (double[]){ 0.5 + 0x1p-50 }, 1, &got);
                ck_assert_uint_eq(got, 0x0001);
                weigh_one(isa, OP_SUM, DTYPE_F16, f16 + 2, (double[]){ 0.5 }, 1, &got);
                ck_assert_uint_eq(got, 0x0000);
                weigh_one(
                        isa, OP_SUM, DTYPE_BF16, &(uint16_t){ 0x8001 }, (double[]){ 1.5 - 0x1p-50 }, 1, &got);
                ck_assert_uint_eq(got, 0x8001);
        }
}
END_TEST

START_TEST(D12_a_weight_of_0_leaves_out_whatever_is_there) {
        static const float values[] = { NAN, 2, INFINITY, 8, -NAN };
        static const double weights[] = { 0, 3, 0, 1, -0.0 };
        for_each_isa(isa) {
                float got = 0;
                weigh_one(isa, OP_MEAN, DTYPE_F32, values, weights, 5, &got);
                ck_assert_float_eq(got, 3.5F);
                weigh_one(isa, OP_SUM, DTYPE_F32, values, weights, 5, &got);
                ck_assert_float_eq(got, 14);
                weigh_one(isa, OP_SUM, DTYPE_F32, values, (double[]){ 0, 0, 0 }, 3, &got);
                ck_assert(got == 0 && !signbit(got)); /* of nothing */
                weigh_one(isa, OP_SUM, DTYPE_F32, (float[]){ -0.0F, -0.0F }, (double[]){ 1, 2 }, 2, &got);
                ck_assert(got == 0 && signbit(got));
                weigh_one(isa, OP_SUM, DTYPE_F32, values, (double[]){ 1, 1 }, 2, &got);
                ck_assert(isnan(got));
        }
}
END_TEST

/* In f64, where the partial sums of f32 would have lost the small ones. */
START_TEST(weighted_sums_are_made_in_f64) {
        for_each_isa(isa) {
                float got = 0;
                weigh_one(isa, OP_SUM, DTYPE_F32, (float[]){ 1e8F, 1, -1e8F, 1 }, (double[]){ 1, 1, 1, 1 }, 4,
                        &got);
                ck_assert_float_eq(got, 2);
                weigh_one(isa, OP_MEAN, DTYPE_F32, (float[]){ 0x1.fffffep127F, 0x1.fffffep127F },
                        (double[]){ 5, 7 }, 2, &got);
                ck_assert_float_eq(got, 0x1.fffffep127F);
                double wide = 0;
                weigh_one(isa, OP_MEAN, DTYPE_F64, (double[]){ 1, 2 }, (double[]){ 0.25, 0.5 }, 2, &wide);
                ck_assert_double_eq(wide, 1.25 / 0.75);
        }
}
END_TEST

/* --- complex numbers --- */

static void multiply(
        enum isa isa, enum dtype dtype, const void *const *inputs, uint32_t n, void *output, size_t count) {
        const struct kernel_call call = { .op = OP_PROD,
                .dtype = dtype,
                .inputs = inputs,
                .n_inputs = n,
                .outputs = (void *const[]){ output },
                .n_outputs = 1,
                .count = count };
        kernels_reduce(isa, &call);
}

START_TEST(D3_complex_products_are_those_of_the_parts) {
        const float a[] = { 1, 2, 0, 1, -1, 0 }, b[] = { 3, 4, 0, 1, 0.5F, -0.25F },
                    c[] = { 2, 0, 1, 0, 0, 1 };
        const float expected[] = { -10, 20, -1, 0, -0.25F, -0.5F };
        const double wide[] = { 1, 2 }, wider[] = { 3, 4 };
        float got[6];
        double got_wide[2];
        for_each_isa(isa) {
                multiply(isa, DTYPE_C64, (const void *[]){ a, b, c }, 3, got, 3);
                for (int i = 0; i < 6; i++)
                        ck_assert_float_eq(got[i], expected[i]);
                multiply(isa, DTYPE_C128, (const void *[]){ wide, wider }, 2, got_wide, 1);
                ck_assert_double_eq(got_wide[0], -5);
                ck_assert_double_eq(got_wide[1], 10);
        }
}
END_TEST

/* x x - y y is exactly 0 where x = y, unless one of the products was not rounded. */
START_TEST(P11_complex_products_are_not_contracted) {
        float a[200], got[200];
        double wide[200], got_wide[200];
        for (int i = 0; i < 200; i++) {
                a[i] = 1 + (float)(i / 2) * 0x1.234p-10F;
                wide[i] = 1 + (double)(i / 2) * 0x1.23456789p-20;
        }
        for_each_isa(isa) {
                multiply(isa, DTYPE_C64, (const void *[]){ a, a }, 2, got, 100);
                multiply(isa, DTYPE_C128, (const void *[]){ wide, wide }, 2, got_wide, 100);
                for (int i = 0; i < 200; i += 2) {
                        ck_assert_float_eq(got[i], 0);
                        ck_assert_double_eq(got_wide[i], 0);
                }
        }
}
END_TEST

/* C's Annex G would make an infinity of it. */
START_TEST(a_complex_product_that_is_NaN_stays_so) {
        const float a[] = { INFINITY, NAN }, b[] = { 2, 0 };
        float got[2];
        for_each_isa(isa) {
                multiply(isa, DTYPE_C64, (const void *[]){ a, b }, 2, got, 1);
                ck_assert(isnan(got[0]) && isnan(got[1]));
        }
}
END_TEST

/* --- what is not finite --- */

/* What a broadcast of these elements to nobody finds. */
static struct kernel_count count_nonfinite(
        enum isa isa, enum dtype dtype, const void *elements, size_t count) {
        struct kernel_count found = { 0 };
        const struct kernel_call call = { .dtype = dtype,
                .inputs = (const void *const[]){ elements },
                .n_inputs = 1,
                .count = count,
                .nonfinite = &found };
        kernels_copy(isa, &call);
        return found;
}

START_TEST(P13_of_all_halves_those_with_the_last_exponent_are_not_finite) {
        static uint16_t all[N_HALVES];
        for (int i = 0; i < N_HALVES; i++)
                all[i] = (uint16_t)i;
        for_each_isa(isa) {
                struct kernel_count f16 = count_nonfinite(isa, DTYPE_F16, all, N_HALVES);
                struct kernel_count bf16 = count_nonfinite(isa, DTYPE_BF16, all, N_HALVES);
                ck_assert_uint_eq(f16.n, 2 * 1024);
                ck_assert_uint_eq(f16.first, 0x7c00);
                ck_assert_uint_eq(bf16.n, 2 * 128);
                ck_assert_uint_eq(bf16.first, 0x7f80);
                ck_assert_uint_eq(count_nonfinite(isa, DTYPE_U16, all, N_HALVES).n, 0);
                ck_assert_uint_eq(count_nonfinite(isa, DTYPE_F16, all, 0x7c00).n, 0);
        }
}
END_TEST

/* `part` of element `at` of `n` ones becomes `value`. */
static void check_search(enum isa isa, enum dtype dtype, size_t n, size_t at, double value, bool is_found) {
        static uint8_t array[16 * 300 + 16];
        bool is_wide = dtype == DTYPE_F64 || dtype == DTYPE_C128;
        size_t parts = dtype_is_complex(dtype) ? 2 : 1, part_bytes = dtype_bytes(dtype) / parts;
        uint8_t *elements = array + part_bytes; /* aligned to no more than its parts */
        for (size_t i = 0; i < n * parts; i++) {
                double v = i / parts == at && i % parts == parts - 1 ? value : 1;
                float single = (float)v;
                memcpy(elements + i * part_bytes, is_wide ? (void *)&v : &single, part_bytes);
        }
        struct kernel_count found = count_nonfinite(isa, dtype, elements, n);
        ck_assert_uint_eq(found.n, is_found);
        if (is_found)
                ck_assert_uint_eq(found.first, at);
}

START_TEST(P13_a_NaN_or_infinity_is_found_wherever_it_is) {
        static const enum dtype dtypes[] = { DTYPE_F32, DTYPE_F64, DTYPE_C64, DTYPE_C128 };
        for_each_isa(isa) for (size_t d = 0; d < ARRAY_SIZE(dtypes);
                               d++) for (size_t n = 1; n < 300; n += n < 40 ? 1 : 37) for (size_t at = 0;
                                                                                           at < n; at++) {
                check_search(isa, dtypes[d], n, at, NAN, true);
                check_search(isa, dtypes[d], n, at, -INFINITY, true);
                check_search(isa, dtypes[d], n, at, 0x1.fffffep127, false);
        }
}
END_TEST

START_TEST(P13_each_that_is_not_finite_is_counted_once) {
        float values[] = { NAN, 1, INFINITY, NAN, 2, 3, 4, -INFINITY };
        for_each_isa(isa) {
                ck_assert_uint_eq(count_nonfinite(isa, DTYPE_F32, values, 8).n, 4);
                struct kernel_count pairs = count_nonfinite(isa, DTYPE_C64, values + 1, 3);
                ck_assert_uint_eq(pairs.n, 2); /* (1, inf), (NaN, 2), (3, 4) */
                ck_assert_uint_eq(pairs.first, 0);
        }
}
END_TEST

#define N_MANY 3001

/* Every op in place of the last of n inputs, with a NaN in one and an infinity in another: the result is that
 * of the kernel that does not look, and each input's own are counted, whatever they become. */
static void check_while_reducing(enum isa isa, enum op op, enum dtype dtype, uint32_t n, bool is_weighted) {
        static uint8_t memory[20][2][N_MANY * 16];
        const void *inputs[2][20];
        double weights[20];
        struct kernel_count found[20] = { 0 };
        size_t size = dtype_bytes(dtype), first = N_MANY - 7;
        for (uint32_t i = 0; i < n; i++) {
                memset(memory[i][0], 0, N_MANY * size);
                memset(memory[i][0] + (1 + i) * size, i == 1 ? 0xff : 0x11, size); /* a NaN of every type */
                memset(memory[i][0] + first * size, i == n - 1 ? 0xff : 0x22, 2 * size);
                memcpy(memory[i][1], memory[i][0], N_MANY * size);
                inputs[0][i] = memory[i][0];
                inputs[1][i] = memory[i][1];
                weights[i] = i ? 1 : 0;
        }
        struct kernel_call call = { .op = op,
                .dtype = dtype,
                .inputs = inputs[0],
                .n_inputs = n,
                .outputs = (void *const[]){ memory[n - 1][0] },
                .n_outputs = 1,
                .count = N_MANY,
                .divisor = n,
                .weights = is_weighted ? weights : NULL,
                .total_weight = n - 1 };
        kernels_reduce(isa, &call);
        call.inputs = inputs[1];
        call.outputs = (void *const[]){ memory[n - 1][1] };
        call.nonfinite = found;
        kernels_reduce(isa, &call);
        ck_assert_mem_eq(memory[n - 1][0], memory[n - 1][1], N_MANY * size);
        for (uint32_t i = 0; i < n; i++) {
                size_t expected = (i == 1) + 2 * (i == n - 1);
                ck_assert_msg(found[i].n == expected, "%s %s %s, input %u of %u: %zu, not %zu", isa_name(isa),
                        op_name(op), dtype_name(dtype), i, n, found[i].n, expected);
                ck_assert(expected == 0 || found[i].first == (i == 1 ? 2 : first));
        }
}

START_TEST(D11_the_kernels_look_while_they_reduce) {
        static const uint32_t worlds[] = { 2, 5, 16, 17, 20 };
        for_each_isa(isa) for (enum dtype dtype = DTYPE_F16; dtype < N_DTYPE;
                               dtype++) for (enum op op = OP_SUM; op <= OP_MAX;
                                             op++) for (size_t w = 0; w < ARRAY_SIZE(worlds); w++) {
                if (op_is_supported(op, dtype))
                        check_while_reducing(isa, op, dtype, worlds[w], false);
                if (op <= OP_MEAN && dtype_is_float(dtype))
                        check_while_reducing(isa, op, dtype, worlds[w], true);
        }
}
END_TEST

UNIT_MAIN("kernels-floats", 60, D12_all_halves_with_weights, a_weighted_sum_is_rounded_once,
        D12_a_weight_of_0_leaves_out_whatever_is_there, weighted_sums_are_made_in_f64,
        D3_complex_products_are_those_of_the_parts, P11_complex_products_are_not_contracted,
        a_complex_product_that_is_NaN_stays_so, P13_of_all_halves_those_with_the_last_exponent_are_not_finite,
        P13_a_NaN_or_infinity_is_found_wherever_it_is, P13_each_that_is_not_finite_is_counted_once,
        D11_the_kernels_look_while_they_reduce)
