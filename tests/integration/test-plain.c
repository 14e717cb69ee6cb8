/* Values in plain memory (heap, stack, whatever a process has): they come and go through memory that the
 * library shares with tuttid. When they are copied, what is left alone, and that no more memory is taken than
 * needed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "meeting.h"
#include "oracle.h"
#include "replica.h"
#include "unit.h"

static struct tutti_group *join(struct replica *me) {
        return replica_join_group(me, &TUTTI_JOIN(.group = "train"));
}

static struct tutti_value plain(void *memory, enum tutti_dtype dtype, uint64_t n) {
        return TUTTI_VALUE(.memory = memory, .dtype = dtype, .n_dims = 1, .shape = { n });
}

static void fill(float *x, size_t n, float value) {
        for (size_t i = 0; i < n; i++)
                x[i] = value;
}

static void expect_all(const float *x, size_t n, float value) {
        for (size_t i = 0; i < n; i++)
                ck_assert_msg(x[i] == value, "element %zu is %g, not %g", i, (double)x[i], (double)value);
}

/* In place, then from one place to another. */
static void sum_plain(struct tutti_group *g, float *x, float *y, size_t n) {
        const float mine = (float)tutti_rank(g) + 1;
        struct tutti_value in = plain(x, TUTTI_F32, n), out = plain(y, TUTTI_F32, n);
        fill(x, n, mine);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &in, &in), TUTTI_OK);
        expect_all(x, n, 3);
        ck_assert_uint_eq(tutti_last_result()->staged_bytes, 2 * n * sizeof(float));
        fill(x, n, 10 * mine);
        fill(y, n, -1);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &in, &out), TUTTI_OK);
        expect_all(x, n, 10 * mine);
        expect_all(y, n, 30);
}

static void sum_of_all_sizes(struct replica *me) {
        struct tutti_group *g = join(me);
        size_t most = unit_scale() > 1 ? 4 << 20 : 64 << 20;
        for (size_t n_bytes = 4 << 10; n_bytes <= most; n_bytes *= 4) {
                float *x = malloc(n_bytes), *y = malloc(n_bytes);
                ck_assert(x && y);
                sum_plain(g, x, y, n_bytes / sizeof(float));
                free(x);
                free(y);
        }
}

START_TEST(plain_memory_of_4_KiB_to_64_MiB) {
        replicas_run(2, sum_of_all_sizes);
}
END_TEST

static void sum_of_all_kinds(struct replica *me) {
        float stack[2000], other[2000];
        struct tutti_group *g = join(me);
        size_t n_bytes = 1 << 20, n = n_bytes / sizeof(float);
        sum_plain(g, stack, other, 2000);
        sum_plain(g, stack, other, 1);

        float *locked = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        float *forked = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ck_assert(locked != MAP_FAILED && forked != MAP_FAILED);
        if (mlock(locked, 64 << 10) < 0)
                printf("# mlock is denied: %m\n");
        fill(forked, n, 5);
        pid_t child = fork(); /* from here on the pages are shared with it, until written */
        if (child == 0) {
                pause();
                _exit(0);
        }
        ck_assert_int_gt(child, 0);
        sum_plain(g, locked, forked, n);
        kill(child, SIGKILL);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);

        /* Read-only memory is good enough for an input. */
        fill(locked, n, 1);
        ck_assert_int_eq(mprotect(locked, n_bytes, PROT_READ), 0);
        struct tutti_value in = plain(locked, TUTTI_F32, n), out = plain(forked, TUTTI_F32, n);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &in, &out), TUTTI_OK);
        expect_all(forked, n, 2);
}

START_TEST(stack_locked_forked_and_read_only_memory) {
        replicas_run(2, sum_of_all_kinds);
}
END_TEST

/* --- every dtype, strides, batches beside buffers, broadcasts --- */

static void sum_every_dtype(struct replica *me) {
        struct tutti_group *g = join(me);
        uint8_t mine[16 * 61], theirs[16 * 61], out[16 * 61], expected[16 * 61];
        for (enum dtype dtype = DTYPE_U8; dtype < N_DTYPE; dtype++) {
                enum op op = dtype == DTYPE_BOOL ? OP_LOR : OP_SUM;
                struct tutti_value in = plain(mine, (enum tutti_dtype)dtype, 61);
                struct tutti_value result = plain(out, (enum tutti_dtype)dtype, 61);
                oracle_fill(dtype, mine, 61, me->rank);
                oracle_fill(dtype, theirs, 61, 1 - me->rank);
                const void *inputs[2] = { me->rank ? theirs : mine, me->rank ? mine : theirs };
                oracle_reduce(op, dtype, inputs, 2, expected, 61, 2);
                expect_status(tutti_all_reduce(g, NULL, (enum tutti_op)op, &in, &result), TUTTI_OK);
                ck_assert_msg(oracle_difference(dtype, out, expected, 61) < 0, "%s", dtype_name(dtype));
        }
}

START_TEST(D3_every_dtype_in_plain_memory) {
        replicas_run(2, sum_every_dtype);
}
END_TEST

#define HEIGHT 40
#define WIDTH  50

/* Column 7 of a matrix, in place; a buffer beside it; the transpose of a corner to dense memory. */
static void sum_mixed_batch(struct replica *me) {
        static double matrix[HEIGHT][WIDTH], before[HEIGHT][WIDTH], corner[8][5];
        struct tutti_group *g = join(me);
        struct array a;
        array_init(me->t, &a, TUTTI_F64, 10);
        for (int i = 0; i < 10; i++)
                ((double *)a.data)[i] = i;
        for (int row = 0; row < HEIGHT; row++)
                for (int k = 0; k < WIDTH; k++)
                        matrix[row][k] = before[row][k] = 100 * row + k;
        struct tutti_value column = TUTTI_VALUE(.memory = matrix, .offset = 7 * sizeof(double),
                .dtype = TUTTI_F64, .n_dims = 1, .shape = { HEIGHT }, .has_strides = 1, .strides = { WIDTH });
        struct tutti_value transpose = TUTTI_VALUE(.memory = matrix, .dtype = TUTTI_F64, .n_dims = 2,
                .shape = { 8, 5 }, .has_strides = 1, .strides = { 1, WIDTH });
        struct tutti_value dense =
                TUTTI_VALUE(.memory = corner, .dtype = TUTTI_F64, .n_dims = 2, .shape = { 8, 5 });
        const struct tutti_entry entries[] = { TUTTI_ENTRY(.input = &column, .output = &column),
                TUTTI_ENTRY(.input = &a.value, .output = &a.value),
                TUTTI_ENTRY(.input = &transpose, .output = &dense) };
        expect_status(tutti_batch_reduce(g, "mixed", TUTTI_SUM, entries, 3), TUTTI_OK);
        ck_assert_uint_eq(tutti_last_result()->staged_bytes, 8 * 2 * (HEIGHT + 8 * 5));
        for (int row = 0; row < HEIGHT; row++)
                for (int k = 0; k < WIDTH; k++)
                        ck_assert_double_eq(matrix[row][k], before[row][k] * (k == 7 ? 3 : 1));
        for (int i = 0; i < 8; i++)
                for (int k = 0; k < 5; k++)
                        ck_assert_double_eq(corner[i][k], 3 * before[k][i]);
        for (int i = 0; i < 10; i++)
                ck_assert_double_eq(((double *)a.data)[i], 3 * i);

        /* From rank 1's column to everybody's. */
        for (int row = 0; row < HEIGHT; row++)
                matrix[row][7] = me->rank == 1 ? row : -1;
        expect_status(tutti_broadcast(g, NULL, 1, &column), TUTTI_OK);
        for (int row = 0; row < HEIGHT; row++)
                for (int k = 0; k < WIDTH; k++)
                        ck_assert_double_eq(matrix[row][k], k == 7 ? row : before[row][k]);
}

START_TEST(P14_strides_batches_and_broadcasts_in_plain_memory) {
        replicas_run(3, sum_mixed_batch);
}
END_TEST

/* More entries than one packet holds, all of them plain. */
static void sum_many(struct replica *me) {
        enum { N = 5000 };
        static int32_t numbers[N];
        static struct tutti_value values[N];
        static struct tutti_entry entries[N];
        struct tutti_group *g = join(me);
        for (int32_t i = 0; i < N; i++) {
                numbers[i] = i + (int32_t)me->rank;
                values[i] = plain(&numbers[i], TUTTI_I32, 1);
                entries[i] = TUTTI_ENTRY(.input = &values[i], .output = &values[i]);
        }
        const struct tutti_options options = TUTTI_OPTIONS(.check_inputs = 1);
        struct tutti_work *w;
        expect_status(tutti_batch_reduce_start(g, NULL, TUTTI_SUM, entries, N, &options, &w), TUTTI_OK);
        expect_work(w, TUTTI_OK);
        for (int32_t i = 0; i < N; i++)
                ck_assert_int_eq(numbers[i], 2 * i + 1);
        tutti_work_free(w);
}

START_TEST(P14_a_batch_of_thousands_of_plain_values) {
        replicas_run(2, sum_many);
}
END_TEST

/* --- when --- */

#define N 3000

static struct tutti_work *start_sum(struct tutti_group *g, const char *key, float *in, float *out) {
        struct tutti_value input = plain(in, TUTTI_F32, N), output = plain(out, TUTTI_F32, N);
        struct tutti_work *w;
        expect_status(tutti_all_reduce_start(g, key, TUTTI_SUM, &input, &output, NULL, &w), TUTTI_OK);
        return w;
}

/* Rank 0 starts, changes and frees its inputs at once; rank 1 comes later. */
static void start_and_change(struct replica *me) {
        static float x[N], y[N];
        struct tutti_group *g = join(me);
        struct tutti_result result;
        if (me->rank == 1) {
                replica_hear(me, "go");
                fill(x, N, 2);
                struct tutti_work *w = start_sum(g, "x", x, x);
                expect_work(w, TUTTI_OK);
                expect_all(x, N, 3);
                replica_say(me, "done");
                expect_status(tutti_barrier(g, NULL), TUTTI_OK);
                return;
        }
        float *input = malloc(sizeof(x));
        ck_assert_ptr_nonnull(input);
        fill(input, N, 1);
        fill(y, N, -7);
        struct tutti_work *w = start_sum(g, "x", input, y);
        fill(input, N, 1000);
        free(input);
        ck_assert_int_eq(tutti_work_test(w), TUTTI_PENDING);
        expect_status(tutti_work_cancel(w), TUTTI_OK);
        replica_say(me, "started");
        replica_hear(me, "look");
        expect_status(tutti_dispatch(me->t), TUTTI_OK);
        expect_all(y, N, -7); /* nobody has asked yet */
        expect_status(tutti_work_result(w, &result), TUTTI_OK);
        expect_all(y, N, 3);
        ck_assert_uint_eq(result.staged_bytes, 2 * sizeof(x));
        fill(y, N, -8);
        expect_work(w, TUTTI_OK); /* only once */
        expect_all(y, N, -8);
        tutti_work_free(w);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
}

START_TEST(inputs_are_copied_at_the_call_and_outputs_when_the_end_is_seen) {
        struct host *h = host_start(NULL);
        struct replica *r[2];
        replicas_spawn(h, 2, start_and_change, NULL, r);
        replica_expect(r[0], "started", 10);
        replica_tell(r[1], "go");
        replica_expect(r[1], "done", 10);
        replica_tell(r[0], "look");
        replicas_end(h, r, 2);
}
END_TEST

/* Mismatch, timeout, abort, a refusal of its own, a handle that is freed: outputs as they were. */
static void fail_in_every_way(struct replica *me) {
        static float x[N];
        struct tutti_group *g = join(me);
        struct tutti_value v = plain(x, TUTTI_F32, N);
        struct tutti_work *w;
        fill(x, N, 4);
        v.shape[0] = me->rank ? N : N - 1;
        ck_assert_int_eq(tutti_all_reduce(g, "a", TUTTI_SUM, &v, &v), TUTTI_MISMATCH);
        v.shape[0] = N;
        v.buffer = (void *)x;
        ck_assert_int_eq(tutti_all_reduce(g, "b", TUTTI_SUM, &v, &v), TUTTI_INVALID);
        expect_in(tutti_error(), "both a buffer and plain memory");
        v.buffer = NULL;
        v.offset = 2;
        ck_assert_int_eq(tutti_all_reduce(g, "c", TUTTI_SUM, &v, &v), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_OFFSET);
        v.offset = 0;
        v.has_strides = 1;
        ck_assert_int_eq(tutti_all_reduce(g, "d", TUTTI_SUM, &v, &v), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_STRIDES);
        v.has_strides = 0;
        v.memory = NULL;
        ck_assert_int_eq(tutti_all_reduce(g, "e", TUTTI_SUM, &v, &v), TUTTI_INVALID);
        expect_in(tutti_error(), "no plain memory");
        v.memory = x;
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        const struct tutti_options options = TUTTI_OPTIONS(.timeout = 0.05);
        if (me->rank == 0) {
                expect_status(tutti_all_reduce_start(g, "f", TUTTI_SUM, &v, &v, &options, &w), TUTTI_OK);
                expect_work(w, TUTTI_TIMEOUT);
                tutti_work_free(w);
                expect_status(tutti_all_reduce_start(g, "g", TUTTI_SUM, &v, &v, NULL, &w), TUTTI_OK);
                expect_status(tutti_abort(g, "g", "no"), TUTTI_OK);
                expect_work(w, TUTTI_ABORTED);
                tutti_work_free(w);
        }
        expect_all(x, N, 4);
        expect_status(tutti_all_reduce_start(g, "h", TUTTI_SUM, &v, &v, NULL, &w), TUTTI_OK);
        tutti_work_free(w);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        expect_all(x, N, 4);
        expect_status(tutti_all_reduce(g, "i", TUTTI_SUM, &v, &v), TUTTI_OK);
        expect_all(x, N, 8);
}

START_TEST(P7_plain_outputs_are_untouched_by_any_other_end) {
        replicas_run(2, fail_in_every_way);
}
END_TEST

/* --- how much --- */

static void reduce_again_and_again(struct replica *me) {
        static float x[N];
        struct tutti_group *g = join(me);
        struct tutti_value v = plain(x, TUTTI_F32, N);
        for (int i = 0; i < 500; i++) {
                v.shape[0] = N - (uint64_t)i;
                expect_status(tutti_all_reduce(g, NULL, TUTTI_MAX, &v, &v), TUTTI_OK);
                if (i == 20) {
                        replica_say(me, "warm");
                        replica_hear(me, "go on");
                }
        }
        replica_say(me, "hot");
        replica_hear(me, "end");
}

START_TEST(pieces_are_used_again) {
        struct host *h = host_start(NULL);
        struct replica *r[2];
        struct host_counters warm, hot;
        replicas_spawn(h, 2, reduce_again_and_again, NULL, r);
        replicas_expect(r, 2, "warm", 10);
        host_counters(h, &warm);
        replicas_tell(r, 2, "go on");
        replicas_expect(r, 2, "hot", 20);
        host_counters(h, &hot);
        ck_assert_uint_eq(warm.n_buffers, 2);
        ck_assert_uint_eq(hot.n_buffers, 2);
        ck_assert_uint_eq(hot.mapped_bytes, warm.mapped_bytes);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

/* Where the value lives may be plain memory, at some replicas, and strided. */
static void sum_where_it_lives(struct replica *me) {
        struct tutti_group *g = join(me);
        const struct tutti_destinations same = { .where = TUTTI_TO_SAME };
        struct floats f;
        float x[200];
        struct tutti_value of_stack = plain(x, TUTTI_F32, 100);
        of_stack.has_strides = 1;
        of_stack.strides[0] = 2;
        floats_init(me->t, &f, 100);
        for (int round = 0; round < 3; round++) {
                struct tutti_value *v = (me->rank + (uint32_t)round) % 2 ? &of_stack : &f.value;
                fill(x, 200, (float)me->rank + 1);
                floats_fill(&f, (float)me->rank + 1);
                expect_status(tutti_reduce(g, NULL, TUTTI_SUM, v, NULL, &same), TUTTI_OK);
                for (size_t i = 0; v == &of_stack && i < 200; i++)
                        ck_assert(x[i] == (i % 2 ? (float)me->rank + 1 : 3));
                if (v == &f.value)
                        floats_expect(&f, 3);
        }
}

START_TEST(where_the_value_lives_may_be_plain_memory) {
        replicas_run(2, sum_where_it_lives);
}
END_TEST

UNIT_MAIN("plain", 60, plain_memory_of_4_KiB_to_64_MiB, stack_locked_forked_and_read_only_memory,
        D3_every_dtype_in_plain_memory, P14_strides_batches_and_broadcasts_in_plain_memory,
        P14_a_batch_of_thousands_of_plain_values,
        inputs_are_copied_at_the_call_and_outputs_when_the_end_is_seen,
        P7_plain_outputs_are_untouched_by_any_other_end, pieces_are_used_again,
        where_the_value_lives_may_be_plain_memory)
