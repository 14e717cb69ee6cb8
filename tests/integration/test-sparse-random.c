/* Random sparse reductions against the oracle, and against adding up dense values (issue 5): dtypes of rows
 * and indices, lengths, ops, coalesced or not, strides, destinations, on 1 to 16 replicas and 1 to 8 host
 * devices, with chunks of every size. Each replica makes the same cases from the same seed, computes what
 * must come out, and compares every byte of its output, also those behind the result.
 *
 * TUTTI_TEST_SEED=n plays other cases; a failure names its own. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "meeting.h"
#include "oracle.h"
#include "place.h"

#define MOST_RANKS 16
#define MOST_ROWS  6000 /* of all replicas */
#define MOST_ROW   80   /* elements */
#define ROOM_BYTES ((size_t)MOST_ROWS * MOST_ROW * 2 * 8)

struct dice {
        uint64_t state;
};

static uint64_t roll(struct dice *d, uint64_t sides) {
        uint64_t z = d->state += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return (z ^ (z >> 31)) % sides;
}

/* What all replicas know of a case. */
struct test_case {
        enum dtype dtype, output_dtype;
        enum tutti_dtype index_dtype;
        enum tutti_op op;
        enum tutti_rounding rounding;
        bool coalesce, is_exact; /* small whole numbers, of which sums are exact in any order */
        uint64_t row, dense_rows, k[MOST_RANKS], total;
        struct tutti_destinations destinations;
        uint64_t seed;
};

/* The rows and indices of all, end to end, and what must come out of them. */
struct world {
        uint32_t n;
        uint8_t *rows, *expected;
        int64_t *indices, *expected_indices;
        uint64_t *order, n_expected;
};

static enum dtype roll_dtype(struct dice *d, const struct test_case *c) {
        static const enum dtype exact[] = { DTYPE_F32, DTYPE_F64, DTYPE_I32, DTYPE_I64 };
        for (;;) {
                enum dtype dtype = DTYPE_U8 + (enum dtype)roll(d, N_DTYPE - DTYPE_U8);
                if (c->is_exact)
                        return exact[roll(d, 4)];
                if (op_is_supported((enum op)c->op, dtype) ||
                        (c->op == TUTTI_MEAN && dtype_is_integer(dtype) && !c->coalesce))
                        return dtype;
        }
}

static void roll_lengths(struct dice *d, uint32_t world, struct test_case *c) {
        uint64_t most = roll(d, 8) == 0 ? MOST_ROWS / world : roll(d, 4) ? 20 : 3;
        for (uint32_t r = 0; r < world; r++) {
                c->k[r] = roll(d, 4) == 0 ? 0 : roll(d, most + 1);
                c->total += c->k[r];
        }
}

static void roll_case(struct dice *d, uint32_t world, struct test_case *ret) {
        static const enum tutti_op ops[] = { TUTTI_SUM, TUTTI_MEAN, TUTTI_MIN, TUTTI_MAX };
        *ret = (struct test_case){ .coalesce = roll(d, 2), .seed = roll(d, UINT64_MAX) };
        ret->op = ops[roll(d, ret->coalesce ? 4 : 2)];
        ret->is_exact = ret->op == TUTTI_SUM && roll(d, 2);
        ret->dtype = ret->output_dtype = roll_dtype(d, ret);
        if (ret->op == TUTTI_MEAN && dtype_is_integer(ret->dtype))
                ret->rounding = (enum tutti_rounding)roll(d, 4);
        if (ret->op == TUTTI_MEAN && dtype_is_integer(ret->dtype) && !ret->rounding)
                ret->output_dtype = dtype_of_integer_mean(ret->dtype);
        ret->index_dtype = roll(d, 2) ? TUTTI_I32 : TUTTI_I64;
        ret->row = roll(d, 3) ? 1 + roll(d, 8) : roll(d, MOST_ROW + 1);
        ret->dense_rows = 1 + roll(d, roll(d, 2) ? 6 : 4000);
        if (roll(d, 3) == 0)
                ret->destinations =
                        (struct tutti_destinations){ .where = TUTTI_TO_RANK, .rank = roll(d, world) };
        roll_lengths(d, world, ret);
}

/* --- what must come out --- */

static void set_whole(enum dtype dtype, uint8_t *at, int value) {
        float single = (float)value;
        double wide = value;
        int64_t integer = value;
        if (dtype == DTYPE_F32)
                memcpy(at, &single, 4);
        else if (dtype == DTYPE_F64)
                memcpy(at, &wide, 8);
        else
                memcpy(at, &integer, dtype_bytes(dtype));
}

static double get_whole(enum dtype dtype, const uint8_t *at) {
        float single;
        double wide;
        int64_t integer;
        int32_t narrow;
        memcpy(&single, at, 4);
        memcpy(&narrow, at, 4);
        if (dtype == DTYPE_F32)
                return (double)single;
        if (dtype == DTYPE_I32)
                return narrow;
        memcpy(&wide, at, 8);
        memcpy(&integer, at, 8);
        return dtype == DTYPE_F64 ? wide : (double)integer;
}

static void fill_world(const struct test_case *c, struct world *w) {
        struct dice d = { c->seed };
        size_t size = dtype_bytes(c->dtype);
        if (c->is_exact)
                for (uint64_t i = 0; i < c->total * c->row; i++)
                        set_whole(c->dtype, w->rows + i * size, (int)roll(&d, 9) - 4);
        else
                oracle_fill(c->dtype, w->rows, c->total * c->row, c->seed);
        for (uint64_t i = 0; i < c->total; i++)
                w->indices[i] = (int64_t)roll(&d, c->dense_rows);
}

/* Stable: positions of equal indices stay in their order. */
static void sort_positions(const struct test_case *c, struct world *w) {
        for (uint64_t i = 0; i < c->total; i++)
                w->order[i] = i;
        uint64_t *to = calloc(c->total + 1, sizeof(*to)), n = 0;
        for (uint64_t index = 0; index < c->dense_rows; index++)
                for (uint64_t i = 0; i < c->total; i++)
                        if (w->indices[i] == (int64_t)index)
                                to[n++] = i;
        memcpy(w->order, to, n * sizeof(*to));
        free(to);
}

static void expect_rows(const struct test_case *c, struct world *w, const void *const *inputs, uint32_t n) {
        uint8_t *to = w->expected + w->n_expected++ * c->row * dtype_bytes(c->output_dtype);
        if (c->row == 0)
                return;
        if (c->op == TUTTI_MEAN && dtype_is_integer(c->dtype))
                oracle_mean_of_integers(c->dtype, (enum rounding)c->rounding, inputs, n, to, c->row, w->n);
        else
                oracle_reduce((enum op)c->op, c->dtype, inputs, n, to, c->row, w->n);
}

static void expect_end_to_end(const struct test_case *c, struct world *w) {
        for (uint64_t i = 0; i < c->total; i++) {
                const void *row = w->rows + i * c->row * dtype_bytes(c->dtype);
                w->expected_indices[i] = w->indices[i];
                expect_rows(c, w, &row, 1);
        }
}

static void expect_coalesced(const struct test_case *c, struct world *w) {
        const void **met = calloc(c->total + 1, sizeof(*met));
        sort_positions(c, w);
        for (uint64_t i = 0, next; i < c->total; i = next) {
                int64_t index = w->indices[w->order[i]];
                for (next = i; next < c->total && w->indices[w->order[next]] == index; next++)
                        met[next - i] = w->rows + w->order[next] * c->row * dtype_bytes(c->dtype);
                w->expected_indices[w->n_expected] = index;
                expect_rows(c, w, met, (uint32_t)(next - i));
        }
        free(met);
}

/* --- one replica's half --- */

/* A buffer in which values lie by a stride of this replica's own. */
struct side {
        struct tutti_buffer *rows, *indices;
        struct tutti_value value, index_value;
        uint64_t row_stride, stride;
};

static void side_init(struct replica *me, struct side *s) {
        s->rows = place_alloc(me, ROOM_BYTES);
        s->indices = place_alloc(me, (size_t)MOST_ROWS * 16);
}

static void side_deinit(struct side *s) {
        tutti_buffer_free(s->rows);
        tutti_buffer_free(s->indices);
}

static void side_shape(
        struct side *s, const struct test_case *c, enum dtype dtype, uint64_t k, struct dice *own) {
        s->stride = c->coalesce || roll(own, 3) ? 1 : 2;
        s->row_stride = c->row * s->stride + (roll(own, 3) ? 0 : roll(own, 5));
        bool has_strides = s->stride != 1 || s->row_stride != c->row;
        s->value = TUTTI_VALUE(.buffer = s->rows, .dtype = (enum tutti_dtype)dtype, .n_dims = 2,
                .shape = { k, c->row }, .has_strides = has_strides, .strides = { s->row_stride, s->stride },
                .indices = &s->index_value, .dense_rows = c->dense_rows);
        s->index_value =
                TUTTI_VALUE(.buffer = s->indices, .dtype = c->index_dtype, .n_dims = 1, .shape = { k });
}

static uint8_t *element(const struct side *s, uint64_t row, uint64_t column) {
        return (uint8_t *)tutti_buffer_data(s->rows) +
               (row * s->row_stride + column * s->stride) * tutti_dtype_bytes(s->value.dtype);
}

static int64_t index_of(const struct side *s, uint64_t i) {
        const void *data = tutti_buffer_data(s->indices);
        return s->index_value.dtype == TUTTI_I32 ? ((const int32_t *)data)[i] : ((const int64_t *)data)[i];
}

static void bring(const struct side *s, const struct test_case *c, const struct world *w, uint32_t rank) {
        uint64_t first = 0;
        size_t size = dtype_bytes(c->dtype);
        for (uint32_t r = 0; r < rank; r++)
                first += c->k[r];
        for (uint64_t i = 0; i < c->k[rank]; i++) {
                for (uint64_t k = 0; k < c->row; k++)
                        memcpy(element(s, i, k), w->rows + ((first + i) * c->row + k) * size, size);
                if (c->index_dtype == TUTTI_I32)
                        ((int32_t *)tutti_buffer_data(s->indices))[i] = (int32_t)w->indices[first + i];
                else
                        ((int64_t *)tutti_buffer_data(s->indices))[i] = w->indices[first + i];
        }
}

static void compare(const struct side *s, const struct test_case *c, const struct world *w, uint64_t which) {
        size_t size = dtype_bytes(c->output_dtype), index_size = tutti_dtype_bytes(c->index_dtype);
        for (uint64_t i = 0; i < w->n_expected; i++) {
                ck_assert_msg(index_of(s, i) == w->expected_indices[i],
                        "case %llu: index %llu is %lld, not %lld", (unsigned long long)which,
                        (unsigned long long)i, (long long)index_of(s, i), (long long)w->expected_indices[i]);
                for (uint64_t k = 0; k < c->row; k++) {
                        const uint8_t *expected = w->expected + (i * c->row + k) * size;
                        ck_assert_msg(oracle_difference(c->output_dtype, element(s, i, k), expected, 1) < 0,
                                "case %llu: %s of %s, row %llu column %llu is %s, not %s",
                                (unsigned long long)which, op_name((enum op)c->op), dtype_name(c->dtype),
                                (unsigned long long)i, (unsigned long long)k,
                                oracle_show(c->output_dtype, element(s, i, k), 0),
                                oracle_show(c->output_dtype, expected, 0));
                }
        }
        const uint8_t *rows = tutti_buffer_data(s->rows), *indices = tutti_buffer_data(s->indices);
        uint64_t behind = (uint64_t)(element(s, w->n_expected, 0) - rows);
        for (uint64_t i = behind; i < behind + 4 * s->row_stride * size + 64; i++)
                ck_assert_uint_eq(rows[i], 0x5a);
        for (uint64_t i = w->n_expected * index_size; i < (w->n_expected + 8) * index_size; i++)
                ck_assert_uint_eq(indices[i], 0x5a);
}

/* What both sides are as dense values is the same. */
static void compare_dense(const struct side *s, const struct test_case *c, const struct world *w) {
        double *dense = calloc(c->dense_rows * c->row + 1, sizeof(*dense));
        for (uint64_t i = 0; i < c->total * c->row; i++)
                dense[(uint64_t)w->indices[i / c->row] * c->row + i % c->row] +=
                        get_whole(c->dtype, w->rows + i * dtype_bytes(c->dtype));
        for (uint64_t i = 0; i < w->n_expected; i++)
                for (uint64_t k = 0; k < c->row; k++)
                        dense[(uint64_t)index_of(s, i) * c->row + k] -= get_whole(c->dtype, element(s, i, k));
        for (uint64_t i = 0; i < c->dense_rows * c->row; i++)
                ck_assert_double_eq(dense[i], 0);
        free(dense);
}

static void world_init(struct world *w, uint32_t n) {
        *w = (struct world){ .n = n };
        w->rows = malloc(ROOM_BYTES);
        w->expected = malloc(ROOM_BYTES);
        w->indices = malloc(MOST_ROWS * sizeof(*w->indices));
        w->expected_indices = malloc(MOST_ROWS * sizeof(*w->expected_indices));
        w->order = malloc(MOST_ROWS * sizeof(*w->order));
}

static void world_deinit(struct world *w) {
        free(w->rows);
        free(w->expected);
        free(w->indices);
        free(w->expected_indices);
        free(w->order);
}

static void play(struct replica *me, struct tutti_group *g, const struct test_case *c, struct side sides[2],
        struct world *w, uint64_t which) {
        struct dice own = { c->seed + me->rank };
        struct tutti_work *work;
        uint64_t total, first;
        bool receives = c->destinations.where == TUTTI_TO_ALL || c->destinations.rank == me->rank;
        side_shape(&sides[0], c, c->dtype, c->k[me->rank], &own);
        side_shape(&sides[1], c, c->output_dtype, 0, &own);
        w->n_expected = 0;
        fill_world(c, w);
        bring(&sides[0], c, w, me->rank);
        if (c->coalesce)
                expect_coalesced(c, w);
        else
                expect_end_to_end(c, w);
        sides[1].value.shape[0] = sides[1].index_value.shape[0] = w->n_expected + roll(&own, 3);
        memset(tutti_buffer_data(sides[1].rows), 0x5a,
                (w->n_expected + 8) * sides[1].row_stride * dtype_bytes(c->output_dtype) + 64);
        memset(tutti_buffer_data(sides[1].indices), 0x5a, (w->n_expected + 8) * 8);
        const struct tutti_options options = TUTTI_OPTIONS(.coalesce = c->coalesce, .rounding = c->rounding);
        expect_status(tutti_reduce_start(g, NULL, c->op, &sides[0].value, &sides[1].value, &c->destinations,
                              &options, &work),
                TUTTI_OK);
        expect_work(work, TUTTI_OK);
        expect_status(tutti_work_extent(work, 0, &total, &first), TUTTI_OK);
        ck_assert_uint_eq(total, w->n_expected);
        tutti_work_free(work);
        if (!receives)
                return;
        compare(&sides[1], c, w, which);
        if (c->is_exact)
                compare_dense(&sides[1], c, w);
}

#define N_CASES 60

static void play_all(struct replica *me) {
        const char *seed = getenv("TUTTI_TEST_SEED");
        struct dice d = { (seed ? strtoull(seed, NULL, 10) : 5) * 1000 + me->n };
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct side sides[2];
        struct world w;
        world_init(&w, me->n);
        for (int i = 0; i < 2; i++)
                side_init(me, &sides[i]);
        for (uint64_t i = 0; i < N_CASES; i++) {
                struct test_case c;
                roll_case(&d, me->n, &c);
                play(me, g, &c, sides, &w, i);
        }
        world_deinit(&w);
        for (int i = 0; i < 2; i++)
                side_deinit(&sides[i]);
        place_leave(me);
}

static void play_on(uint32_t n_devices, uint32_t n, const char *chunk) {
        char devices[32];
        snprintf(devices, sizeof(devices), "cpu.devices=%u", n_devices);
        board_init();
        struct host *h = place_start(n_devices, (const char *[]){ "--set", devices, "--set", chunk, NULL });
        run_replicas(h, n, play_all, NULL);
        host_expect_counters_zero(h);
        place_stop(h);
}

START_TEST(few_replicas_on_1_to_4_devices) {
        play_on(1, 1, "cpu.chunk=4096");
        play_on(2, 2, "cpu.chunk=4096");
        play_on(3, 3, "cpu.chunk=4160");
        play_on(4, 4, "cpu.chunk=262144");
}
END_TEST

START_TEST(many_replicas_on_5_to_8_devices) {
        play_on(5, 5, "cpu.chunk=4096");
        play_on(6, 7, "cpu.chunk=65536");
        play_on(7, 8, "cpu.chunk=4096");
        play_on(8, 16, "cpu.chunk=4096");
}
END_TEST

UNIT_MAIN("sparse-random", 170, few_replicas_on_1_to_4_devices, many_replicas_on_5_to_8_devices)
