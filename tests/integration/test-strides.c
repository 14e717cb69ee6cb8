/* Values with strides through the real tuttid (D1, P4 P14): slices, columns and transposes, other strides in
 * every replica, columns of one matrix that several replicas write at once, and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "meeting.h"
#include "replica.h"
#include "unit.h"

#define CANARY 77.0F

static struct tutti_group *join(struct replica *me) {
        return replica_join_group(me, &TUTTI_JOIN(.group = "train"));
}

static void fill(struct array *a, float value) {
        for (size_t i = 0; i < a->n; i++)
                ((float *)a->data)[i] = value;
}

/* --- D1 --- */

static void reduce_every_second(struct replica *me) {
        struct array a;
        struct tutti_group *g = join(me);
        array_init(me->t, &a, TUTTI_F32, 7);
        float *x = a.data;
        fill(&a, CANARY);
        x[1] = (float)me->rank + 1;
        x[3] = 10 * ((float)me->rank + 1);
        struct tutti_value v = TUTTI_VALUE(.buffer = a.buffer, .offset = 4, .dtype = TUTTI_F32, .n_dims = 1,
                .shape = { 2 }, .has_strides = 1, .strides = { 2 });
        expect_status(tutti_all_reduce(g, "d1", TUTTI_SUM, &v, &v), TUTTI_OK);
        const float expected[] = { CANARY, 3, CANARY, 30, CANARY, CANARY, CANARY };
        ck_assert_mem_eq(x, expected, sizeof(expected));
}

START_TEST(D1_two_elements_with_stride_2) {
        replicas_run(2, reduce_every_second);
}
END_TEST

/* --- other strides in every replica --- */

#define N_ROWS    31
#define N_COLUMNS 150

/* Rank 0: contiguous; rank 1: every second column of a matrix with wider rows; rank 2: transposed. */
static struct tutti_value lie_as(uint32_t rank, const struct array *a) {
        static const uint64_t strides[3][2] = { { N_COLUMNS, 1 }, { 2 * N_COLUMNS + 5, 2 }, { 1, N_ROWS } };
        struct tutti_value v = TUTTI_VALUE(.buffer = a->buffer, .offset = 12, .dtype = TUTTI_F32, .n_dims = 2,
                .shape = { N_ROWS, N_COLUMNS }, .has_strides = rank > 0);
        memcpy(v.strides, strides[rank], sizeof(strides[rank]));
        return v;
}

static size_t place_of(uint32_t rank, uint64_t row, uint64_t column) {
        const struct tutti_value v = lie_as(rank, &(struct array){ .n = 0 });
        return 3 + row * v.strides[0] + column * v.strides[1];
}

static float element(uint32_t rank, uint64_t row, uint64_t column) {
        return (float)(1000 * row + column) * (float)(rank + 1);
}

static void reduce_as_it_lies(struct replica *me) {
        struct array a;
        struct tutti_group *g = join(me);
        array_init(me->t, &a, TUTTI_F32, (2 * N_COLUMNS + 5) * N_ROWS + 9);
        float *x = a.data, *expected = malloc(a.n * sizeof(float));
        ck_assert_ptr_nonnull(expected);
        fill(&a, CANARY);
        memcpy(expected, x, a.n * sizeof(float));
        for (uint64_t row = 0; row < N_ROWS; row++)
                for (uint64_t column = 0; column < N_COLUMNS; column++) {
                        size_t at = place_of(me->rank, row, column);
                        x[at] = element(me->rank, row, column);
                        expected[at] = element(5, row, column); /* 1 + 2 + 3 times */
                }
        const struct tutti_value v = lie_as(me->rank, &a);
        expect_status(tutti_all_reduce(g, "matrix", TUTTI_SUM, &v, &v), TUTTI_OK);
        ck_assert_mem_eq(x, expected, a.n * sizeof(float));

        /* From rank 2, where each has its own strides again. */
        fill(&a, CANARY);
        for (uint64_t row = 0; row < N_ROWS; row++)
                for (uint64_t column = 0; column < N_COLUMNS; column++) {
                        size_t at = place_of(me->rank, row, column);
                        expected[at] = element(2, row, column);
                        if (me->rank == 2)
                                x[at] = expected[at];
                }
        expect_status(tutti_broadcast(g, "matrix", 2, &v), TUTTI_OK);
        ck_assert_mem_eq(x, expected, a.n * sizeof(float));
        free(expected);
}

START_TEST(P4_P14_replicas_may_differ_in_their_strides) {
        replicas_run(3, reduce_as_it_lies);
}
END_TEST

/* Eight dimensions, none of which runs on into the next, in reversed order. */
static void reduce_eight_dims(struct replica *me) {
        struct array a;
        struct tutti_group *g = join(me);
        struct tutti_value v = TUTTI_VALUE(.dtype = TUTTI_I16, .n_dims = 8, .has_strides = 1);
        uint64_t stride = 1;
        for (uint32_t i = 0; i < 8; i++) {
                v.shape[i] = i % 2 ? 2 : 3;
                v.strides[i] = stride;
                stride = stride * v.shape[i] + 1;
        }
        array_init(me->t, &a, TUTTI_I16, stride);
        v.buffer = a.buffer;
        int16_t *x = a.data;
        for (size_t i = 0; i < a.n; i++)
                x[i] = (int16_t)i;
        expect_status(tutti_all_reduce(g, "eight", TUTTI_SUM, &v, &v), TUTTI_OK);
        size_t n_doubled = 0;
        for (size_t i = 0; i < a.n; i++) {
                ck_assert(x[i] == (int16_t)i || x[i] == (int16_t)(2 * i));
                n_doubled += i > 0 && x[i] == (int16_t)(2 * i);
        }
        ck_assert_uint_eq(n_doubled, 3 * 2 * 3 * 2 * 3 * 2 * 3 * 2 - 1); /* and the first, which is 0 */
}

START_TEST(P14_eight_dimensions) {
        replicas_run(2, reduce_eight_dims);
}
END_TEST

/* --- one matrix --- */

#define N_SHARING 4
#define N_MINE    25 /* columns of each replica, as entries of a batch */
#define N_ALL     (N_SHARING * N_MINE)
#define HEIGHT    200

static void column(struct tutti_buffer *b, uint64_t k, struct tutti_value *ret) {
        *ret = TUTTI_VALUE(.buffer = b, .offset = k * sizeof(double), .dtype = TUTTI_F64, .n_dims = 1,
                .shape = { HEIGHT }, .has_strides = 1, .strides = { N_ALL });
}

/* Every replica has the same memfd, and reduces its own columns in place, interleaved with everybody's. */
static void reduce_my_columns(struct replica *me) {
        const int *fd = me->arg;
        struct tutti_buffer *b;
        struct tutti_value values[N_MINE], theirs;
        struct tutti_entry entries[N_MINE];
        struct tutti_group *g = join(me);
        expect_status(tutti_buffer_from_fd(me->t, *fd, 0, TUTTI_INOUT, &b), TUTTI_OK);
        for (uint64_t k = 0; k < N_MINE; k++) {
                column(b, k * N_SHARING + me->rank, &values[k]);
                entries[k] = TUTTI_ENTRY(.input = &values[k], .output = &values[k]);
        }
        expect_status(tutti_batch_reduce(g, "columns", TUTTI_SUM, entries, N_MINE), TUTTI_OK);

        /* Rank 3 takes a column of rank 0 for an output: nobody's changes. */
        if (me->rank == 3) {
                column(b, 8, &theirs);
                entries[7].output = &theirs;
        }
        enum tutti_status status = tutti_batch_reduce(g, "columns", TUTTI_SUM, entries, N_MINE);
        const struct tutti_error_info *e = expect_error(status);
        ck_assert_int_eq(status, TUTTI_INVALID);
        ck_assert_int_eq(e->field, TUTTI_FIELD_OVERLAP);
        expect_in(e->text, "R3");
        expect_in(e->text, "R0");
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
}

START_TEST(P14_columns_of_one_matrix_by_several_replicas_at_once) {
        int fd = memfd_create("matrix", MFD_ALLOW_SEALING);
        size_t n_bytes = HEIGHT * N_ALL * sizeof(double);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, (off_t)n_bytes), 0);
        double *x = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(x, MAP_FAILED);
        for (size_t i = 0; i < HEIGHT * N_ALL; i++)
                x[i] = (double)i;
        struct host *h = host_start(NULL);
        run_replicas(h, N_SHARING, reduce_my_columns, &fd);
        host_expect_counters_zero(h);
        host_stop(h);
        for (size_t i = 0; i < HEIGHT * N_ALL; i++) {
                size_t first = i / N_SHARING * N_SHARING; /* the same place of the four replicas' columns */
                ck_assert_double_eq(x[i], (double)(4 * first + 6));
        }
        munmap(x, n_bytes);
        close(fd);
}
END_TEST

/* --- what is refused --- */

static void expect_refused(
        struct tutti_group *g, const struct tutti_value *v, enum tutti_field field, const char *part) {
        enum tutti_status status = tutti_all_reduce(g, "refused", TUTTI_SUM, v, v);
        const struct tutti_error_info *e = expect_error(status);
        ck_assert_msg(status == TUTTI_INVALID, "%s", e->text);
        ck_assert_msg(e->field == field, "%s", e->text);
        expect_in(e->text, part);
}

static void ask_for_wrong_strides(struct replica *me) {
        struct array a;
        struct tutti_group *g = join(me);
        array_init(me->t, &a, TUTTI_F32, 64);
        fill(&a, CANARY);
        struct tutti_value v = TUTTI_VALUE(.buffer = a.buffer, .dtype = TUTTI_F32, .n_dims = 2,
                .shape = { 4, 4 }, .has_strides = 1, .strides = { 4, 0 });
        expect_refused(g, &v, TUTTI_FIELD_STRIDES, "has stride 0 in dimension 1, which has 4 elements");
        v.strides[1] = 2;
        expect_refused(g, &v, TUTTI_FIELD_STRIDES,
                "stride 4 of dimension 0 does not go beyond what dimension 1 (4 elements, stride 2)");
        v.strides[0] = 19; /* its last element is the 64th */
        v.strides[1] = 2;
        expect_status(tutti_all_reduce(g, "fits", TUTTI_MAX, &v, &v), TUTTI_OK);
        v.strides[0] = 20;
        expect_refused(g, &v, TUTTI_FIELD_OFFSET, "67 elements of 4 bytes from offset 0");
        for (size_t i = 0; i < a.n; i++)
                ck_assert_float_eq(((float *)a.data)[i], CANARY);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
}

START_TEST(P14_strides_that_meet_or_reach_beyond_the_buffer_are_refused) {
        replicas_run(1, ask_for_wrong_strides);
}
END_TEST

UNIT_MAIN("strides", 60, D1_two_elements_with_stride_2, P4_P14_replicas_may_differ_in_their_strides,
        P14_eight_dimensions, P14_columns_of_one_matrix_by_several_replicas_at_once,
        P14_strides_that_meet_or_reach_beyond_the_buffer_are_refused)
