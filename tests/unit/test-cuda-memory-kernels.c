/* Packs, the two levels of a sum, the self-test's pattern, and how launches are prepared. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/check.h"
#include "cuda-kernels.h"
#include "oracle.h"
#include "unit.h"

/* --- packs --- */

#define N_PIECES   60
#define ROOM_BYTES (1u << 20)

static uint64_t random_state = 1;

static uint64_t pick(uint64_t below) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        return (random_state >> 33) % below;
}

/* Pieces of many sizes and alignments, some larger than a block takes, in any order behind each other. */
static uint64_t lay_out(struct cuda_segment *segments, uint8_t *from, uint8_t *pack) {
        uint64_t at = 0, packed = 0;
        for (int i = 0; i < N_PIECES; i++) {
                uint64_t n = i % 10 == 0 ? 20000 + pick(40000) : 1 + pick(600);
                packed += i % 3 ? 0 : (16 - packed % 16) % 16; /* some on borders, some not */
                at += i % 2 ? pick(7) : (16 - at % 16) % 16;
                segments[i] = (struct cuda_segment){
                        .from = address_of(from + at), .to = address_of(pack + packed), .n_bytes = n
                };
                at += n;
                packed += n;
        }
        ck_assert_uint_le(at, ROOM_BYTES);
        ck_assert_uint_le(packed, ROOM_BYTES);
        return at;
}

static void move(struct cuda_segment *segments, uint32_t n_multiprocessors) {
        struct cuda_launch l;
        const struct cuda_move m = { .segments = segments,
                .n_segments = N_PIECES,
                .at = address_of(segments),
                .n_multiprocessors = n_multiprocessors };
        ck_assert_int_eq(cuda_move_prepare(&m, &l), 0);
        run_launch(&l);
}

START_TEST(a_pack_holds_every_piece_and_gives_it_back) {
        static uint8_t from[ROOM_BYTES] __attribute__((aligned(16))),
                pack[ROOM_BYTES] __attribute__((aligned(16))), expected[ROOM_BYTES],
                back[ROOM_BYTES] __attribute__((aligned(16)));
        struct cuda_segment segments[N_PIECES];
        for (uint32_t n = 1; n <= 3; n++) {
                for (size_t i = 0; i < ROOM_BYTES; i++)
                        from[i] = (uint8_t)pick(256);
                memset(pack, 0xa5, ROOM_BYTES);
                memset(expected, 0xa5, ROOM_BYTES);
                memset(back, 0, ROOM_BYTES);
                uint64_t n_bytes = lay_out(segments, from, pack);
                for (int i = 0; i < N_PIECES; i++)
                        memcpy(expected + (segments[i].to - address_of(pack)), (const void *)segments[i].from,
                                segments[i].n_bytes);
                move(segments, n);
                ck_assert_mem_eq(pack, expected, ROOM_BYTES);
                memcpy(expected, from, ROOM_BYTES);
                memset(expected + n_bytes, 0, ROOM_BYTES - n_bytes);
                memset(back, 0, ROOM_BYTES);
                for (int i = 0; i < N_PIECES; i++) {
                        uint64_t was_from = segments[i].from;
                        segments[i].from = segments[i].to;
                        segments[i].to = address_of(back) + (was_from - address_of(from));
                }
                move(segments, n);
                for (int i = 0; i < N_PIECES; i++)
                        ck_assert_mem_eq((const void *)segments[i].to,
                                expected + (segments[i].to - address_of(back)), segments[i].n_bytes);
        }
}
END_TEST

START_TEST(an_empty_piece_is_refused) {
        struct cuda_launch l;
        struct cuda_segment segments[] = { { .n_bytes = 4 }, { .n_bytes = 0 } };
        const struct cuda_move m = { .segments = segments, .n_segments = 2 };
        ck_assert_int_eq(cuda_move_prepare(&m, &l), -EINVAL);
        ck_assert_int_eq(cuda_move_prepare(&(struct cuda_move){ .segments = segments }, &l), -EINVAL);
}
END_TEST

/* --- two levels --- */

#define N_HALVES 37

static void reduce_level(enum op op, enum dtype from, enum dtype to, uint64_t operands[], uint32_t n_inputs) {
        struct cuda_step s = { .work = CUDA_REDUCE,
                .op = op,
                .dtype = from,
                .output_dtype = to,
                .divisor = 3,
                .count = N_HALVES,
                .n_inputs = n_inputs,
                .n_outputs = 1,
                .operands = operands,
                .n_multiprocessors = 1 };
        run_step(&s);
}

/* R0 and R1 to one partial result, R2 to another, and these to the total: the order is that of the ranks. */
static void check_levels(enum op op, enum dtype dtype) {
        static uint16_t inputs[3][N_HALVES], got[N_HALVES], expected[N_HALVES];
        static float partials[2][N_HALVES];
        const void *all[3] = { inputs[0], inputs[1], inputs[2] };
        enum op partial = op == OP_MEAN ? OP_SUM : op;
        for (uint32_t r = 0; r < 3; r++)
                oracle_fill(dtype, inputs[r], N_HALVES, 3 * op + r);
        reduce_level(partial, dtype, DTYPE_F32,
                (uint64_t[]){ address_of(inputs[0]), address_of(inputs[1]), address_of(partials[0]) }, 2);
        reduce_level(
                partial, dtype, DTYPE_F32, (uint64_t[]){ address_of(inputs[2]), address_of(partials[1]) }, 1);
        reduce_level(op, DTYPE_F32, dtype,
                (uint64_t[]){ address_of(partials[0]), address_of(partials[1]), address_of(got) }, 2);
        oracle_reduce(op, dtype, all, 3, expected, N_HALVES, 3);
        ck_assert_int_eq(oracle_difference(dtype, got, expected, N_HALVES), -1);
}

START_TEST(P11_partial_results_of_halves_are_f32_and_rounded_once) {
        static const enum op ops[] = { OP_SUM, OP_MEAN, OP_PROD };
        for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
                check_levels(ops[i], DTYPE_F16);
                check_levels(ops[i], DTYPE_BF16);
        }
}
END_TEST

/* --- the pattern --- */

START_TEST(D17_a_pattern_shows_what_was_lost_or_moved) {
        static uint64_t words[5000];
        struct cuda_count wrong = { 0 };
        struct cuda_pattern p = { .at = address_of(words),
                .n_words = ARRAY_SIZE(words),
                .seed = 7,
                .wrong = address_of(&wrong),
                .n_multiprocessors = 1 };
        struct cuda_launch fill, verify;
        ck_assert_int_eq(cuda_fill_prepare(&p, &fill), 0);
        ck_assert_int_eq(cuda_verify_prepare(&p, &verify), 0);
        run_launch(&fill);
        run_launch(&verify);
        ck_assert_uint_eq(wrong.n, 0);
        words[4321] ^= 1u << 17;
        uint64_t first = words[10];
        words[10] = words[11];
        words[11] = first;
        run_launch(&verify);
        ck_assert_uint_eq(wrong.n, 3);
        ck_assert_uint_eq(cuda_count_first(&wrong), 10);
        p.seed = 8;
        wrong = (struct cuda_count){ 0 };
        ck_assert_int_eq(cuda_verify_prepare(&p, &verify), 0);
        run_launch(&verify);
        ck_assert_uint_eq(wrong.n, ARRAY_SIZE(words));
}
END_TEST

/* --- how launches are prepared --- */

static struct cuda_step step_of(enum op op, enum dtype dtype, const uint64_t *operands) {
        return (struct cuda_step){ .op = op,
                .dtype = dtype,
                .output_dtype = dtype,
                .divisor = 1,
                .count = 1000,
                .n_inputs = 1,
                .n_outputs = 1,
                .operands = operands,
                .n_multiprocessors = 4 };
}

START_TEST(D3_what_nobody_can_do_has_no_kernel) {
        struct cuda_launch l[CUDA_STEP_LAUNCHES];
        static const uint64_t operands[] = { 4096, 8192 };
        for (enum dtype dtype = DTYPE_UNSPECIFIED; dtype < N_DTYPE; dtype++)
                for (enum op op = OP_UNSPECIFIED; op < N_OP; op++) {
                        struct cuda_step s = step_of(op, dtype, operands);
                        bool is_mean = op == OP_MEAN && dtype_is_integer(dtype);
                        int expected = is_mean || op_is_supported(op, dtype) ? 1 : -EINVAL;
                        ck_assert_int_eq(cuda_step_prepare(&s, l), expected);
                }
        struct cuda_step s = step_of(OP_MEAN, DTYPE_F32, operands);
        s.divisor = 0;
        ck_assert_int_eq(cuda_step_prepare(&s, l), -EINVAL);
        s.divisor = 1;
        s.n_inputs = 0;
        ck_assert_int_eq(cuda_step_prepare(&s, l), -EINVAL);
        s = step_of(OP_PROD, DTYPE_F32, operands);
        s.weights = (const double[]){ 1 };
        ck_assert_int_eq(cuda_step_prepare(&s, l), -EINVAL);
}
END_TEST

START_TEST(P14_counts_beyond_31_bits_are_prepared) {
        struct cuda_launch l[CUDA_STEP_LAUNCHES];
        static const uint64_t operands[] = { 4096, 8192 };
        struct cuda_step s = step_of(OP_SUM, DTYPE_U8, operands);
        s.count = UINT64_C(5) << 32;
        ck_assert_int_eq(cuda_step_prepare(&s, l), 1);
        ck_assert_uint_eq(l[0].args.elements.count, UINT64_C(5) << 32);
        ck_assert_uint_eq(l[0].grid[0], 4 * 8); /* and go round */
        ck_assert_uint_eq(l[0].args.elements.has_vectors, 1);
        s.operands = (const uint64_t[]){ 4096, 8193 };
        ck_assert_int_eq(cuda_step_prepare(&s, l), 1);
        ck_assert_uint_eq(l[0].args.elements.has_vectors, 0);
        s.count = 1;
        ck_assert_int_eq(cuda_step_prepare(&s, l), 1);
        ck_assert_uint_eq(l[0].grid[0], 1);
}
END_TEST

/* Up to 32 replicas all goes with the launch. */
START_TEST(few_operands_need_no_table) {
        uint64_t operands[2048] = { 0 };
        struct cuda_step s = step_of(OP_SUM, DTYPE_F32, operands);
        s.n_inputs = s.n_outputs = 32;
        ck_assert_uint_eq(cuda_step_table_bytes(&s), 0);
        s.n_inputs = s.n_outputs = 1024;
        ck_assert_uint_eq(cuda_step_table_bytes(&s), 2048 * sizeof(uint64_t));
        s.weights = (const double[]){ 1 };
        ck_assert_uint_eq(cuda_step_table_bytes(&s), 3072 * sizeof(uint64_t));
}
END_TEST

UNIT_MAIN("cuda-memory-kernels", 60, a_pack_holds_every_piece_and_gives_it_back, an_empty_piece_is_refused,
        P11_partial_results_of_halves_are_f32_and_rounded_once, D17_a_pattern_shows_what_was_lost_or_moved,
        D3_what_nobody_can_do_has_no_kernel, P14_counts_beyond_31_bits_are_prepared,
        few_operands_need_no_table)
