/* Reductions over axes by the kernels of GPUs, against the oracle: each element along the axes is a
 * contribution of its own, in the order of the inputs and of each in that of its indices. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/check.h"
#include "cuda-kernels.h"
#include "oracle.h"
#include "unit.h"

#define N_INPUTS 3
#define N_KEPT   5
#define MOST     64 /* contributions of all inputs */

/* Input i is [before, N_KEPT, behind], and its first and last dimension go. */
static const uint64_t before[N_INPUTS] = { 2, 1, 4 }, behind[N_INPUTS] = { 3, 7, 2 };

struct folded {
        uint8_t inputs[N_INPUTS][MOST * N_KEPT * 16] __attribute__((aligned(16)));
        uint8_t chain[MOST][N_KEPT * 16] __attribute__((aligned(16)));
        const void *contributions[MOST];
        double weights[MOST]; /* of the contributions */
        uint8_t got[2][N_KEPT * 16] __attribute__((aligned(16)));
        uint8_t expected[N_KEPT * 16] __attribute__((aligned(16)));
        uint32_t n;
};

static struct folded f;

struct way {
        enum op op;
        enum dtype dtype, output_dtype;
        enum rounding rounding;
        bool has_weights;
};

static const double weights[N_INPUTS] = { 0.3, 0, 1.7 };

static void fill(enum dtype dtype) {
        size_t size = dtype_bytes(dtype);
        f.n = 0;
        for (uint32_t i = 0; i < N_INPUTS; i++) {
                oracle_fill(dtype, f.inputs[i], before[i] * N_KEPT * behind[i], 10 * dtype + i);
                for (uint64_t a = 0; a < before[i]; a++)
                        for (uint64_t b = 0; b < behind[i]; b++) {
                                for (uint64_t k = 0; k < N_KEPT; k++)
                                        memcpy(f.chain[f.n] + k * size,
                                                f.inputs[i] + ((a * N_KEPT + k) * behind[i] + b) * size,
                                                size);
                                f.contributions[f.n] = f.chain[f.n];
                                f.weights[f.n++] = weights[i];
                        }
        }
}

static void ask_oracle(const struct way *w) {
        double total = 0;
        for (uint32_t i = 0; i < N_INPUTS; i++)
                total += weights[i] * (double)(before[i] * behind[i]);
        if (w->has_weights)
                oracle_weighted_by(
                        w->op, w->dtype, f.contributions, f.weights, f.n, f.expected, N_KEPT, total);
        else if (w->op == OP_MEAN && dtype_is_integer(w->dtype))
                oracle_mean_of_integers(w->dtype, w->rounding, f.contributions, f.n, f.expected, N_KEPT, f.n);
        else
                oracle_reduce(w->op, w->dtype, f.contributions, f.n, f.expected, N_KEPT, f.n);
}

static void run(const struct way *w) {
        static const uint64_t shape[] = { N_KEPT };
        uint64_t operands[N_INPUTS + 2], strides[N_INPUTS + 2], folds[4 * N_INPUTS];
        double total = 0;
        for (uint32_t i = 0; i < N_INPUTS; i++) {
                operands[i] = address_of(f.inputs[i]);
                strides[i] = behind[i];
                memcpy(&folds[4 * i], (uint64_t[]){ before[i], behind[i], N_KEPT * behind[i], 1 }, 32);
                total += weights[i] * (double)(before[i] * behind[i]);
        }
        for (uint32_t o = 0; o < 2; o++) {
                operands[N_INPUTS + o] = address_of(f.got[o]);
                strides[N_INPUTS + o] = 1;
        }
        struct cuda_step s = { .work = CUDA_REDUCE,
                .op = w->op,
                .dtype = w->dtype,
                .output_dtype = w->output_dtype,
                .rounding = w->rounding,
                .divisor = f.n,
                .weights = w->has_weights ? weights : NULL,
                .total_weight = total,
                .count = N_KEPT,
                .n_inputs = N_INPUTS,
                .n_outputs = 2,
                .operands = operands,
                .n_dims = 1,
                .shape = shape,
                .strides = strides,
                .n_folds = 2,
                .folds = folds,
                .n_multiprocessors = 1 };
        run_step(&s);
}

static void check(const struct way *w) {
        fill(w->dtype);
        memset(f.got, 0xa5, sizeof(f.got));
        run(w);
        ask_oracle(w);
        for (uint32_t o = 0; o < 2; o++) {
                ptrdiff_t at = oracle_difference(w->output_dtype, f.got[o], f.expected, N_KEPT);
                ck_assert_msg(at < 0, "%s of %s: [%td] is %s, not %s", op_name(w->op), dtype_name(w->dtype),
                        at, oracle_show(w->output_dtype, f.got[o], (size_t)at),
                        oracle_show(w->output_dtype, f.expected, (size_t)at));
        }
}

START_TEST(P12_every_op_and_dtype_is_one_chain_over_ranks_and_indices) {
        for (enum dtype dtype = DTYPE_U8; dtype < N_DTYPE; dtype++)
                for (enum op op = OP_SUM; op < N_OP; op++)
                        if (op_is_supported(op, dtype))
                                check(&(struct way){ op, dtype, dtype, ROUNDING_UNSPECIFIED, false });
}
END_TEST

START_TEST(D9_means_of_integers_by_every_rounding_and_to_floats) {
        for (enum dtype dtype = DTYPE_U8; dtype < N_DTYPE; dtype++) {
                if (!dtype_is_integer(dtype))
                        continue;
                for (enum rounding r = ROUNDING_TRUNC; r <= ROUNDING_NEAREST; r++)
                        check(&(struct way){ OP_MEAN, dtype, dtype, r, false });
                check(&(struct way){
                        OP_MEAN, dtype, dtype_of_integer_mean(dtype), ROUNDING_UNSPECIFIED, false });
        }
}
END_TEST

START_TEST(D12_a_weight_counts_for_each_element_along_the_axes) {
        for (enum dtype dtype = DTYPE_U8; dtype < N_DTYPE; dtype++)
                for (enum op op = OP_SUM; dtype_is_float(dtype) && op <= OP_MEAN; op++)
                        check(&(struct way){ op, dtype, dtype, ROUNDING_UNSPECIFIED, true });
}
END_TEST

/* More than a world can bring, so that sums of 16 bits do not fit into 32. */
START_TEST(P12_long_axes_are_summed_exactly) {
        enum { N = 100000 };
        uint16_t *input = malloc(N * sizeof(*input)), rounded = 0;
        float quotient = 0;
        ck_assert_ptr_nonnull(input);
        for (size_t i = 0; i < N; i++)
                input[i] = (uint16_t)(65535 - i % 2);
        for (int to_float = 0; to_float < 2; to_float++) {
                const uint64_t operands[] = { address_of(input),
                        to_float ? address_of(&quotient) : address_of(&rounded) };
                struct cuda_step s = { .work = CUDA_REDUCE,
                        .op = OP_MEAN,
                        .dtype = DTYPE_U16,
                        .output_dtype = to_float ? DTYPE_F32 : DTYPE_U16,
                        .rounding = to_float ? ROUNDING_UNSPECIFIED : ROUNDING_NEAREST,
                        .divisor = N,
                        .count = 1,
                        .n_inputs = 1,
                        .n_outputs = 1,
                        .operands = operands,
                        .n_folds = 1,
                        .folds = (const uint64_t[]){ N, 1 },
                        .n_multiprocessors = 1 };
                run_step(&s);
        }
        free(input);
        ck_assert_uint_eq(rounded, 65534); /* 65534.5, ties to even */
        ck_assert_float_eq(quotient, 65534.5f);
}
END_TEST

START_TEST(what_has_no_chain_is_refused) {
        struct cuda_launch l[CUDA_STEP_LAUNCHES];
        static const uint64_t operands[] = { 4096, 8192 }, folds[] = { 3, 1 };
        struct cuda_step s = { .work = CUDA_COPY,
                .dtype = DTYPE_F32,
                .count = 1,
                .n_inputs = 1,
                .n_outputs = 1,
                .operands = operands,
                .n_folds = 1,
                .folds = folds };
        ck_assert_int_eq(cuda_step_prepare(&s, l), -EINVAL);
        s.work = CUDA_REDUCE;
        s.op = OP_SUM;
        ck_assert_int_eq(cuda_step_prepare(&s, l), 1);
        ck_assert_str_eq(cuda_kernel_name(l[0].kernel), "tutti_folded_sum_f32");
        s.nonfinite = 4096;
        ck_assert_int_eq(cuda_step_prepare(&s, l), -EINVAL);
}
END_TEST

UNIT_MAIN("cuda-fold", 60, P12_every_op_and_dtype_is_one_chain_over_ranks_and_indices,
        D9_means_of_integers_by_every_rounding_and_to_floats,
        D12_a_weight_counts_for_each_element_along_the_axes, P12_long_axes_are_summed_exactly,
        what_has_no_chain_is_refused)
