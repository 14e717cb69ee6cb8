/* What the kernels of GPUs find while they work: NaNs and infinities, results that wrapped, checksums; and
 * that they leave everything alone when the run was given up. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/check.h"
#include "cuda-kernels.h"
#include "model/checksum.h"
#include "oracle.h"
#include "unit.h"

#define MAX_INPUTS 40
#define MAX_COUNT  3000
#define MAX_BYTES  16

struct found {
        struct cuda_count nonfinite[MAX_INPUTS], wrapped;
        uint64_t sums[MAX_INPUTS];
};

struct arrays {
        uint8_t in[MAX_INPUTS][MAX_COUNT * MAX_BYTES] __attribute__((aligned(16)));
        uint8_t plain[MAX_COUNT * MAX_BYTES] __attribute__((aligned(16)));
        uint8_t checked[MAX_COUNT * MAX_BYTES] __attribute__((aligned(16)));
        uint64_t operands[MAX_INPUTS + 1];
        struct found found;
};

static struct arrays arrays; /* of the test's own process */

/* n inputs and one output, all checks on. */
static struct cuda_step make_step(enum op op, enum dtype dtype, uint32_t n, size_t count, uint64_t seed) {
        for (uint32_t i = 0; i < n; i++) {
                oracle_fill(dtype, arrays.in[i], count, seed * 100 + i);
                arrays.operands[i] = address_of(arrays.in[i]);
        }
        arrays.operands[n] = address_of(arrays.checked);
        memset(&arrays.found, 0, sizeof(arrays.found));
        return (struct cuda_step){ .work = op == OP_UNSPECIFIED ? CUDA_COPY : CUDA_REDUCE,
                .op = op,
                .dtype = dtype,
                .output_dtype = dtype,
                .divisor = n,
                .rounding =
                        op == OP_MEAN && dtype_is_integer(dtype) ? ROUNDING_NEAREST : ROUNDING_UNSPECIFIED,
                .count = count,
                .n_inputs = n,
                .n_outputs = 1,
                .operands = arrays.operands,
                .nonfinite = address_of(arrays.found.nonfinite),
                .sums = address_of(arrays.found.sums),
                .wrapped = address_of(&arrays.found.wrapped),
                .n_multiprocessors = 1 };
}

static void run_without_checks(struct cuda_step s) {
        arrays.operands[s.n_inputs] = address_of(arrays.plain);
        s.nonfinite = s.sums = s.wrapped = 0;
        run_step(&s);
        arrays.operands[s.n_inputs] = address_of(arrays.checked);
}

static void assert_counts(
        const struct cuda_step *s, const struct cuda_count *got, const struct finding *expected) {
        ck_assert_msg(got->n == expected->n, "%s %s: found %llu, not %llu", op_name(s->op),
                dtype_name(s->dtype), (unsigned long long)got->n, (unsigned long long)expected->n);
        if (expected->n > 0)
                ck_assert_uint_eq(cuda_count_first(got), expected->index);
}

static void check_input(const struct cuda_step *s, uint32_t i, const uint8_t *before) {
        struct finding expected = { 0 };
        oracle_find_nonfinite(s->dtype, before, s->count, &(struct finding){ 0 }, &expected);
        assert_counts(s, &arrays.found.nonfinite[i], &expected);
        ck_assert_uint_eq(
                arrays.found.sums[i], checksum_elements(before, s->count, dtype_bytes(s->dtype), 0));
}

/* The same bits as without checks; each input's own findings; whatever the kernel wrote over an input. */
static void check_findings(enum op op, enum dtype dtype, uint32_t n, size_t count, uint64_t seed) {
        struct cuda_step s = make_step(op, dtype, n, count, seed);
        struct finding wrapped = { 0 };
        const void *inputs[MAX_INPUTS];
        for (uint32_t i = 0; i < n; i++)
                inputs[i] = arrays.in[i];
        oracle_find_wrapped(op, dtype, inputs, n, count, 0, &wrapped);
        run_without_checks(s);
        run_step(&s);
        ck_assert_int_eq(oracle_difference(dtype, arrays.plain, arrays.checked, count), -1);
        assert_counts(&s, &arrays.found.wrapped, &wrapped);
        for (uint32_t i = 0; i < n; i++)
                check_input(&s, i, arrays.in[i]);
}

static bool is_done(enum op op, enum dtype dtype) {
        return op == OP_UNSPECIFIED || op_is_supported(op, dtype) ||
               (op == OP_MEAN && dtype_is_integer(dtype));
}

START_TEST(D10_D11_E11_checks_find_what_the_oracle_finds) {
        static const uint32_t worlds[] = { 1, 2, 3, 7, 8, 16, 33 };
        for (enum dtype dtype = DTYPE_U8; dtype < N_DTYPE; dtype++)
                for (enum op op = OP_UNSPECIFIED; op < N_OP; op++)
                        for (size_t w = 0; is_done(op, dtype) && w < ARRAY_SIZE(worlds); w++) {
                                uint32_t n = op == OP_UNSPECIFIED ? 1 : worlds[w];
                                check_findings(op, dtype, n, 1 + w * 13, w);
                                check_findings(op, dtype, n, MAX_COUNT - w, w + 50);
                        }
}
END_TEST

/* The checks see what was there before the result was written over it. */
START_TEST(D10_D11_in_place_the_checks_see_the_input) {
        static uint8_t before[MAX_COUNT * MAX_BYTES];
        for (enum dtype dtype = DTYPE_U8; dtype <= DTYPE_F64; dtype++) {
                struct cuda_step s = make_step(OP_SUM, dtype, 3, MAX_COUNT, dtype);
                struct finding wrapped = { 0 };
                const void *inputs[] = { arrays.in[0], arrays.in[1], arrays.in[2] };
                oracle_find_wrapped(OP_SUM, dtype, inputs, 3, MAX_COUNT, 0, &wrapped);
                memcpy(before, arrays.in[1], sizeof(before));
                arrays.operands[3] = address_of(arrays.in[1]);
                run_step(&s);
                check_input(&s, 1, before);
                assert_counts(&s, &arrays.found.wrapped, &wrapped);
        }
}
END_TEST

/* Indices count over the shape, not over memory. */
START_TEST(D11_E11_with_strides_the_index_is_that_of_the_element) {
        static float in[2 * 300];
        float dense[300], out[300];
        uint64_t shape[] = { 3, 100 }, strides[] = { 2, 6, 100, 1 };
        uint64_t operands[] = { address_of(in), address_of(out) };
        struct cuda_step s = make_step(OP_SUM, DTYPE_F32, 1, 300, 1);
        s.operands = operands;
        s.n_dims = 2;
        s.shape = shape;
        s.strides = strides;
        for (int i = 0; i < 300; i++) {
                dense[i] = i == 217 ? NAN : (float)i;
                in[i / 100 * 2 + i % 100 * 6] = dense[i];
        }
        run_step(&s);
        ck_assert_uint_eq(arrays.found.nonfinite[0].n, 1);
        ck_assert_uint_eq(cuda_count_first(&arrays.found.nonfinite[0]), 217);
        ck_assert_uint_eq(arrays.found.sums[0], checksum_elements(dense, 300, 4, 0));
        ck_assert_int_eq(oracle_difference(DTYPE_F32, out, dense, 300), -1);
}
END_TEST

START_TEST(D12_D11_E11_what_has_weight_0_is_not_looked_at) {
        static const double weights[] = { 0, 2, 0 };
        struct cuda_step s = make_step(OP_SUM, DTYPE_F64, 3, 1, 1);
        double values[] = { NAN, 3, INFINITY };
        for (int i = 0; i < 3; i++)
                memcpy(arrays.in[i], &values[i], sizeof(double));
        s.weights = weights;
        s.total_weight = 2;
        run_step(&s);
        double got;
        memcpy(&got, arrays.checked, sizeof(got));
        ck_assert_double_eq(got, 6);
        for (int i = 0; i < 3; i++) {
                ck_assert_uint_eq(arrays.found.nonfinite[i].n, 0);
                ck_assert_uint_eq(arrays.found.sums[i], i == 1 ? checksum_elements(&values[1], 1, 8, 0) : 0);
        }
}
END_TEST

/* --- runs that were given up --- */

static void assert_untouched(const struct cuda_step *s) {
        static const struct found nothing;
        for (size_t i = 0; i < s->count * dtype_bytes(s->output_dtype); i++)
                ck_assert_msg(arrays.checked[i] == 0x5a, "%s %s was done all the same", op_name(s->op),
                        dtype_name(s->dtype));
        ck_assert_mem_eq(&arrays.found, &nothing, sizeof(nothing));
}

START_TEST(an_aborted_run_writes_nothing) {
        uint32_t flag = 1;
        for (enum dtype dtype = DTYPE_U8; dtype < N_DTYPE; dtype++)
                for (enum op op = OP_UNSPECIFIED; op < N_OP; op++) {
                        if (!is_done(op, dtype))
                                continue;
                        struct cuda_step s = make_step(op, dtype, op == OP_UNSPECIFIED ? 1 : 2, 100, 3);
                        s.abort = address_of(&flag);
                        memset(arrays.checked, 0x5a, sizeof(arrays.checked));
                        run_step(&s);
                        assert_untouched(&s);
                        s.nonfinite = s.sums = s.wrapped = 0;
                        run_step(&s);
                        assert_untouched(&s);
                }
        struct cuda_step s = make_step(OP_SUM, DTYPE_F32, 2, 100, 3);
        flag = 0;
        s.abort = address_of(&flag);
        run_step(&s);
        run_without_checks(s);
        ck_assert_mem_eq(arrays.plain, arrays.checked, 100 * sizeof(float));
}
END_TEST

UNIT_MAIN("cuda-findings", 60, D10_D11_E11_checks_find_what_the_oracle_finds,
        D10_D11_in_place_the_checks_see_the_input, D11_E11_with_strides_the_index_is_that_of_the_element,
        D12_D11_E11_what_has_weight_0_is_not_looked_at, an_aborted_run_writes_nothing)
