/* What diag compares tuttid with is right itself, and sees what is wrong. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "diag.h"
#include "model/op.h"
#include "oracle.h"
#include "unit.h"

#define N       2000
#define N_RANKS 3

static uint8_t inputs[N_RANKS][16 * N], got[16 * N], wanted[16 * N];

static void reduce_by_oracle(const struct diag_case *c, const void *const *in) {
        if (c->rounding != TUTTI_ROUNDING_UNSPECIFIED)
                oracle_mean_of_integers(
                        (enum dtype)c->dtype, (enum rounding)c->rounding, in, N_RANKS, wanted, N, N_RANKS);
        else
                oracle_reduce((enum op)c->op, (enum dtype)c->dtype, in, N_RANKS, wanted, N, N_RANKS);
}

START_TEST(D3_every_case_is_that_of_the_oracle) {
        const void *const in[N_RANKS] = { inputs[0], inputs[1], inputs[2] };
        bool is_done[N_OP][N_DTYPE] = { { false } };
        struct diag_case c;
        size_t n_cases = 0, first = 0;
        for (; diag_case(n_cases, &c); n_cases++) {
                for (uint32_t r = 0; r < N_RANKS; r++)
                        diag_fill(&c, r, inputs[r], N);
                diag_reduce(&c, in, N_RANKS, got, N);
                reduce_by_oracle(&c, in);
                ck_assert_msg(oracle_difference((enum dtype)c.dtype, got, wanted, N) == -1,
                        "%s of %s differs", tutti_op_name(c.op), tutti_dtype_name(c.dtype));
                ck_assert_uint_eq(diag_count_wrong(c.dtype, got, wanted, N, &first), 0);
                is_done[c.op][c.dtype] = true;
        }
        /* What is promised, and nothing else. */
        for (int op = OP_SUM; op < N_OP; op++)
                for (int dtype = DTYPE_U8; dtype < N_DTYPE; dtype++) {
                        bool is_rounded_mean = op == OP_MEAN && dtype <= DTYPE_I64;
                        ck_assert_msg(is_done[op][dtype] == (is_rounded_mean || op_is_supported((enum op)op,
                                                                                        (enum dtype)dtype)),
                                "%s of %s", op_name((enum op)op), dtype_name((enum dtype)dtype));
                }
        ck_assert_uint_gt(n_cases, 100);
}
END_TEST

START_TEST(one_wrong_bit_is_seen_wherever_it_is) {
        struct diag_case c;
        for (size_t i = 0; diag_case(i, &c); i++) {
                size_t width = tutti_dtype_bytes(c.dtype), first = 0;
                const size_t at = 1234;
                const struct diag_case integers = { .dtype = TUTTI_U8, .op = TUTTI_BXOR };
                diag_fill(&integers, 0, wanted, N * width);
                for (size_t b = 0; b < N * width; b++)
                        wanted[b] &= 0x0f; /* no NaN of any type */
                memcpy(got, wanted, N * width);
                got[at * width + width / 2] ^= 1;
                ck_assert_uint_eq(diag_count_wrong(c.dtype, got, wanted, N, &first), 1);
                ck_assert_uint_eq(first, at);
        }
}
END_TEST

START_TEST(a_nan_is_any_nan_and_no_number) {
        const float a[3] = { NAN, 1, -0.0f }, b[3] = { -NAN, 1, -0.0f }, c[3] = { 1, NAN, 0.0f };
        size_t first = 0;
        ck_assert_uint_eq(diag_count_wrong(TUTTI_F32, a, b, 3, &first), 0);
        ck_assert_uint_eq(diag_count_wrong(TUTTI_F32, a, c, 3, &first), 3);
        ck_assert_uint_eq(first, 0);
}
END_TEST

UNIT_MAIN("ctl-diag-scalar", 60, D3_every_case_is_that_of_the_oracle, one_wrong_bit_is_seen_wherever_it_is,
        a_nan_is_any_nan_and_no_number)
