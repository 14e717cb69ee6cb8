/* Sparse values by the kernels of GPUs, against the oracle: indices that are taken and looked at, their
 * order, the rows of equal index that become one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "backends/cuda/kernels-sparse.h"
#include "base/check.h"
#include "cuda-kernels.h"
#include "oracle.h"
#include "unit.h"

#define MOST      9000 /* pairs */
#define N_HALVES  3
#define N_OUTPUTS 2
#define MOST_ROW  5
#define MARGIN    0x5a

static uint64_t random_state = 1;

static uint64_t pick(uint64_t below) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        return (random_state >> 33) % below;
}

struct bench {
        enum dtype index_dtype;
        uint64_t n, bound;
        int64_t indices[MOST];
        uint8_t given[MOST * 8], taken[MOST * 8]; /* as the client has them, and in our own memory */
        struct order_pair pairs[2][MOST];
        uint32_t sorted;
        uint64_t numbers[MOST / ORDER_BLOCK + 2];
        struct cuda_bad_index found;
        uint32_t stop, abort;
        uint64_t length;
        uint8_t written[N_OUTPUTS][MOST * 8];
};

static struct bench b;

static void set_index(uint8_t *to, uint64_t i, int64_t index) {
        int32_t narrow = (int32_t)index;
        if (b.index_dtype == DTYPE_I64)
                memcpy(to + i * 8, &index, 8);
        else
                memcpy(to + i * 4, &narrow, 4);
}

static int64_t get_index(const uint8_t *from, uint64_t i) {
        int64_t index;
        int32_t narrow;
        memcpy(&index, from + i * (b.index_dtype == DTYPE_I64 ? 8 : 4), b.index_dtype == DTYPE_I64 ? 8 : 4);
        narrow = (int32_t)index;
        return b.index_dtype == DTYPE_I64 ? index : narrow;
}

static void bench_init(enum dtype index_dtype, uint64_t n, uint64_t bound) {
        memset(&b, 0, sizeof(b));
        b.index_dtype = index_dtype;
        b.n = n;
        b.bound = bound;
        for (uint64_t i = 0; i < n; i++) {
                b.indices[i] = (int64_t)pick(bound);
                set_index(b.given, i, b.indices[i]);
        }
        memset(b.written, MARGIN, sizeof(b.written));
}

static void take(void) {
        struct cuda_launch l[CUDA_INDICES_LAUNCHES];
        const struct cuda_indices s = { .dtype = b.index_dtype,
                .from = address_of(b.given),
                .to = address_of(b.taken),
                .n = b.n,
                .bound = b.bound,
                .found = address_of(&b.found),
                .stop = address_of(&b.stop),
                .n_multiprocessors = 2 };
        ck_assert_int_eq(cuda_indices_prepare(&s, l), CUDA_INDICES_LAUNCHES);
        for (int i = 0; i < CUDA_INDICES_LAUNCHES; i++)
                run_launch(&l[i]);
}

static void run_stage(struct cuda_order s) {
        struct cuda_launch l;
        s.dtype = b.index_dtype;
        s.abort = address_of(&b.stop);
        s.n_multiprocessors = 2;
        ck_assert_int_eq(cuda_order_prepare(&s, &l), 0);
        run_launch(&l);
}

static uint64_t n_blocks(void) {
        return (b.n + ORDER_BLOCK - 1) / ORDER_BLOCK;
}

static void order(uint64_t room) {
        run_stage((struct cuda_order){
                .stage = ORDER_SORT, .from = address_of(b.taken), .to = address_of(b.pairs[0]), .n = b.n });
        for (uint64_t run = ORDER_BLOCK; run < b.n; run *= 2, b.sorted = 1 - b.sorted)
                run_stage((struct cuda_order){ .stage = ORDER_MERGE,
                        .from = address_of(b.pairs[b.sorted]),
                        .to = address_of(b.pairs[1 - b.sorted]),
                        .n = b.n,
                        .run = run });
        run_stage((struct cuda_order){ .stage = ORDER_COUNT,
                .from = address_of(b.pairs[b.sorted]),
                .numbers = address_of(b.numbers),
                .n = b.n });
        run_stage((struct cuda_order){ .stage = ORDER_NUMBER,
                .numbers = address_of(b.numbers),
                .n = n_blocks(),
                .room = room,
                .found = address_of(&b.length),
                .stop = address_of(&b.stop) });
}

static void write_indices(uint64_t room) {
        const uint64_t outputs[N_OUTPUTS] = { address_of(b.written[0]), address_of(b.written[1]) };
        run_stage((struct cuda_order){ .stage = ORDER_WRITE,
                .from = address_of(b.pairs[b.sorted]),
                .numbers = address_of(b.numbers),
                .n = b.n,
                .room = room,
                .table = address_of(outputs),
                .n_table = N_OUTPUTS });
}

/* --- the order --- */

static void expect_order(void) {
        const struct order_pair *pairs = b.pairs[b.sorted];
        for (uint64_t i = 0; i < b.n; i++)
                ck_assert_int_eq(pairs[i].index, b.indices[pairs[i].position]);
        for (uint64_t i = 1; i < b.n; i++)
                ck_assert(
                        pairs[i - 1].index < pairs[i].index ||
                        (pairs[i - 1].index == pairs[i].index && pairs[i - 1].position < pairs[i].position));
}

static void expect_written(uint64_t room) {
        uint64_t row = 0;
        for (uint64_t i = 0; i < b.n; i++) {
                const struct order_pair *pairs = b.pairs[b.sorted];
                if (i > 0 && pairs[i].index == pairs[i - 1].index)
                        continue;
                for (uint32_t o = 0; row < room && o < N_OUTPUTS; o++)
                        ck_assert_int_eq(get_index(b.written[o], row), pairs[i].index);
                row++;
        }
        ck_assert_uint_eq(b.length, row);
        uint64_t behind = row < room ? row : room;
        for (uint32_t o = 0; o < N_OUTPUTS; o++)
                ck_assert_uint_eq(b.written[o][behind * dtype_bytes(b.index_dtype)], MARGIN);
}

START_TEST(indices_are_sorted_with_equal_ones_in_the_order_of_their_positions) {
        static const uint64_t lengths[] = { 1, 2, 16, 17, 1023, 1024, 1025, 2048, 3000, 8999 };
        for (size_t i = 0; i < ARRAY_SIZE(lengths); i++)
                for (uint64_t bound = 1; bound < 100000; bound *= 13) {
                        bench_init(i % 2 ? DTYPE_I32 : DTYPE_I64, lengths[i], bound);
                        take();
                        ck_assert_mem_eq(b.taken, b.given, b.n * dtype_bytes(b.index_dtype));
                        order(b.n);
                        expect_order();
                        ck_assert(b.found.count.n == 0 && b.stop == 0);
                        uint64_t room = i % 3 ? b.n : b.length / 2; /* no more than there is memory for */
                        write_indices(room);
                        expect_written(room);
                }
}
END_TEST

START_TEST(the_first_bad_index_is_told_and_nothing_is_done_from_then_on) {
        for (int k = 0; k < 2; k++) {
                bench_init(k ? DTYPE_I32 : DTYPE_I64, 3000, 50);
                set_index(b.given, 1717, 50);
                set_index(b.given, 2, 49);
                set_index(b.given, 7, k ? INT32_MIN : INT64_MIN);
                set_index(b.given, 2999, -1);
                take();
                ck_assert_uint_eq(b.found.count.n, 3);
                ck_assert_uint_eq(cuda_count_first(&b.found.count), 7);
                ck_assert_int_eq(b.found.value, k ? INT32_MIN : INT64_MIN);
                ck_assert_uint_eq(b.stop, 1);
                order(b.n);
                write_indices(b.n);
                ck_assert(b.length == 0 && b.pairs[0][1].position == 0 && b.written[0][0] == MARGIN);
        }
}
END_TEST

START_TEST(a_result_that_is_too_long_stops_what_would_write_it) {
        bench_init(DTYPE_I64, 2000, 1000);
        take();
        order(1);
        ck_assert_uint_gt(b.length, 1);
        ck_assert_uint_eq(b.stop, 1);
        write_indices(b.n);
        ck_assert_uint_eq(b.written[1][0], MARGIN);
        bench_init(DTYPE_I64, 2000, 1000);
        take();
        order(2000);
        uint64_t exact = b.length;
        bench_init(DTYPE_I64, 2000, 1);
        take();
        order(1);
        ck_assert(b.stop == 0 && b.length == 1 && exact > 800);
}
END_TEST

/* --- rows --- */

struct rows {
        uint64_t n[N_HALVES], row, in_stride[N_HALVES], out_stride[N_OUTPUTS];
        uint8_t in[N_HALVES][MOST * (MOST_ROW + 2) * 16] __attribute__((aligned(16)));
        uint8_t out[N_OUTPUTS][MOST * (MOST_ROW + 2) * 16] __attribute__((aligned(16)));
};

static struct rows r;

static void rows_init(enum dtype dtype, uint64_t row) {
        r.row = row;
        r.n[0] = b.n / 3;
        r.n[1] = 0;
        r.n[2] = b.n - r.n[0];
        for (uint32_t i = 0; i < N_HALVES; i++) {
                r.in_stride[i] = row + i;
                oracle_fill(dtype, r.in[i], r.n[i] * r.in_stride[i], 100 * dtype + i);
        }
        for (uint32_t o = 0; o < N_OUTPUTS; o++)
                r.out_stride[o] = row + o;
        memset(r.out, MARGIN, sizeof(r.out));
}

static void join_rows(enum op op, enum dtype dtype, uint64_t room) {
        struct cuda_launch l[CUDA_JOIN_LAUNCHES];
        struct cuda_half_rows halves[N_HALVES];
        uint64_t outputs[N_OUTPUTS], first = 0, table[100];
        ck_assert_uint_le(cuda_join_table_bytes(N_HALVES, N_OUTPUTS), sizeof(table));
        for (uint32_t i = 0; i < N_HALVES; first += r.n[i++])
                halves[i] = (struct cuda_half_rows){ address_of(r.in[i]), first,
                        r.in_stride[i] * dtype_bytes(dtype) };
        for (uint32_t o = 0; o < N_OUTPUTS; o++)
                outputs[o] = address_of(r.out[o]);
        const struct cuda_join s = { .op = op,
                .dtype = dtype,
                .divisor = N_HALVES,
                .pairs = address_of(b.pairs[b.sorted]),
                .numbers = address_of(b.numbers),
                .places = address_of(b.pairs[1 - b.sorted]),
                .n_pairs = b.n,
                .row_elements = r.row,
                .room = room,
                .halves = halves,
                .n_halves = N_HALVES,
                .n_outputs = N_OUTPUTS,
                .outputs = outputs,
                .strides = r.out_stride,
                .table = table,
                .table_at = address_of(table),
                .abort = address_of(&b.stop),
                .n_multiprocessors = 2 };
        ck_assert_int_eq(cuda_join_prepare(&s, l), CUDA_JOIN_LAUNCHES);
        for (int i = 0; i < CUDA_JOIN_LAUNCHES; i++)
                run_launch(&l[i]);
}

static const void *brought(enum dtype dtype, uint64_t position, uint64_t column) {
        uint32_t i = position < r.n[0] ? 0 : 2;
        uint64_t row = i ? position - r.n[0] : position;
        return r.in[i] + (row * r.in_stride[i] + column) * dtype_bytes(dtype);
}

static void expect_row(enum op op, enum dtype dtype, uint64_t row, uint64_t first, uint64_t end) {
        static const void *inputs[MOST];
        size_t size = dtype_bytes(dtype);
        for (uint64_t c = 0; c < r.row; c++) {
                uint8_t expected[16];
                for (uint64_t i = first; i < end; i++)
                        inputs[i - first] = brought(dtype, b.pairs[b.sorted][i].position, c);
                oracle_reduce(op, dtype, inputs, (uint32_t)(end - first), expected, 1, N_HALVES);
                for (uint32_t o = 0; o < N_OUTPUTS; o++) {
                        const uint8_t *got = r.out[o] + (row * r.out_stride[o] + c) * size;
                        ck_assert_msg(oracle_difference(dtype, got, expected, 1) < 0,
                                "%s of %s: row %llu, column %llu is %s, not %s", op_name(op),
                                dtype_name(dtype), (unsigned long long)row, (unsigned long long)c,
                                oracle_show(dtype, got, 0), oracle_show(dtype, expected, 0));
                }
        }
        for (size_t i = 0; i < size; i++) /* the gap behind it */
                ck_assert_uint_eq(r.out[1][((row * r.out_stride[1]) + r.row) * size + i], MARGIN);
}

static void check_rows(enum op op, enum dtype dtype, uint64_t n, uint64_t bound) {
        uint64_t row = 0;
        bench_init(dtype % 2 ? DTYPE_I32 : DTYPE_I64, n, bound);
        rows_init(dtype, 1 + n % MOST_ROW);
        take();
        order(n);
        join_rows(op, dtype, n);
        for (uint64_t i = 0, end; i < n; i = end, row++) {
                for (end = i + 1; end < n && b.pairs[b.sorted][end].index == b.pairs[b.sorted][i].index;)
                        end++;
                expect_row(op, dtype, row, i, end);
        }
        ck_assert_uint_eq(row, b.length);
        for (uint32_t o = 0; o < N_OUTPUTS; o++)
                ck_assert_uint_eq(r.out[o][row * r.out_stride[o] * dtype_bytes(dtype)], MARGIN);
}

START_TEST(P10_rows_of_equal_index_are_combined_in_rank_order_from_the_first_on_and_rounded_once) {
        static const enum op ops[] = { OP_SUM, OP_MEAN, OP_MIN, OP_MAX };
        for (enum dtype dtype = DTYPE_U8; dtype < N_DTYPE; dtype++)
                for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
                        if (!op_is_supported(ops[i], dtype))
                                continue;
                        check_rows(ops[i], dtype, 37, 9);
                        check_rows(ops[i], dtype, 2600, 700);
                }
}
END_TEST

/* A sum that began with +0 would lose the sign. */
START_TEST(a_row_that_meets_no_other_keeps_a_negative_zero) {
        bench_init(DTYPE_I64, 2, 2);
        set_index(b.given, 0, 1);
        set_index(b.given, 1, 0);
        rows_init(DTYPE_F32, 1);
        const float zeros[] = { -0.0f, -0.0f };
        r.n[0] = 0;
        r.n[2] = 2;
        r.in_stride[2] = 1;
        memcpy(r.in[2], zeros, sizeof(zeros));
        take();
        order(2);
        join_rows(OP_SUM, DTYPE_F32, 2);
        ck_assert_mem_eq(r.out[0], ((const float[]){ -0.0f, -0.0f }), 8);
}
END_TEST

START_TEST(rows_are_written_neither_beyond_their_room_nor_when_the_run_is_stopped) {
        bench_init(DTYPE_I64, 100, 1000);
        rows_init(DTYPE_F32, 2);
        take();
        order(100);
        join_rows(OP_SUM, DTYPE_F32, 10);
        ck_assert(r.out[0][9 * 8] != MARGIN || r.out[0][9 * 8 + 1] != MARGIN);
        for (int i = 0; i < 64; i++)
                ck_assert_uint_eq(r.out[0][80 + i], MARGIN);
        b.stop = 1;
        rows_init(DTYPE_F32, 2);
        join_rows(OP_SUM, DTYPE_F32, 100);
        for (int i = 0; i < 64; i++)
                ck_assert_uint_eq(r.out[0][i], MARGIN);
}
END_TEST

START_TEST(what_is_not_done_has_no_launch) {
        struct cuda_launch l[CUDA_JOIN_LAUNCHES];
        struct cuda_half_rows half = { 0 };
        uint64_t table[16], output = 0, stride = 1;
        struct cuda_join s = { .op = OP_PROD,
                .dtype = DTYPE_F32,
                .n_pairs = 1,
                .row_elements = 1,
                .halves = &half,
                .n_halves = 1,
                .n_outputs = 1,
                .outputs = &output,
                .strides = &stride,
                .table = table };
        ck_assert_int_eq(cuda_join_prepare(&s, l), -EINVAL);
        s.op = OP_MEAN;
        ck_assert_int_eq(cuda_join_prepare(&s, l), -EINVAL); /* by 0 */
        s.op = OP_SUM;
        ck_assert_int_eq(cuda_join_prepare(&s, l), CUDA_JOIN_LAUNCHES);
        s.n_outputs = 0;
        ck_assert_int_eq(cuda_join_prepare(&s, l), -EINVAL);
        s.n_outputs = 1;
        s.row_elements = UINT64_MAX;
        s.n_pairs = 2;
        ck_assert_int_eq(cuda_join_prepare(&s, l), -EINVAL);
        ck_assert_int_eq(
                cuda_indices_prepare(&(struct cuda_indices){ .dtype = DTYPE_F32, .n = 1 }, l), -EINVAL);
        ck_assert_int_eq(
                cuda_order_prepare(&(struct cuda_order){ .stage = ORDER_SORT, .dtype = DTYPE_U8 }, l),
                -EINVAL);
        ck_assert_int_eq(cuda_order_prepare(&(struct cuda_order){ .stage = ORDER_MERGE }, l), -EINVAL);
}
END_TEST

UNIT_MAIN("cuda-sparse", 60, indices_are_sorted_with_equal_ones_in_the_order_of_their_positions,
        the_first_bad_index_is_told_and_nothing_is_done_from_then_on,
        a_result_that_is_too_long_stops_what_would_write_it,
        P10_rows_of_equal_index_are_combined_in_rank_order_from_the_first_on_and_rounded_once,
        a_row_that_meets_no_other_keeps_a_negative_zero,
        rows_are_written_neither_beyond_their_room_nor_when_the_run_is_stopped,
        what_is_not_done_has_no_launch)
