/* Sparse values through the real tuttid: TensorFlow's statements with their numbers, and what is refused. */
#include <stdio.h>
#include <string.h>
#include <tutti/admin.h>
#include <tutti/axes.h>
#include "slices.h"

#define F32_I64(k_, row_, dense_)                                                                            \
        (&(const struct slices_shape){ TUTTI_F32, TUTTI_I64, (k_), (row_), (dense_) })

static void fill(struct slices *s, const float *values, const int64_t *indices) {
        for (uint64_t i = 0; i < s->k; i++)
                slices_set_index(s, i, indices[i]);
        for (uint64_t i = 0; i < s->k * s->row; i++)
                ((float *)s->rows.data)[i] = values[i];
}

/* The length that tuttid tells. */
static uint64_t reduce(struct tutti_group *g, enum tutti_op op, const struct slices *in,
        const struct slices *out, int coalesce) {
        const struct tutti_options options = TUTTI_OPTIONS(.coalesce = coalesce);
        struct tutti_work *w;
        uint64_t total, first;
        expect_status(tutti_all_reduce_start(g, NULL, op, &in->value, &out->value, &options, &w), TUTTI_OK);
        expect_work(w, TUTTI_OK);
        expect_status(tutti_work_extent(w, 0, &total, &first), TUTTI_OK);
        tutti_work_free(w);
        return total;
}

static void run_on_devices(uint32_t n_devices, uint32_t n, void (*body)(struct replica *)) {
        char devices[32];
        snprintf(devices, sizeof(devices), "cpu.devices=%u", n_devices);
        board_init();
        struct host *h = host_start((const char *[]){ "--set", devices, NULL });
        run_replicas(h, n, body, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}

/* --- TensorFlow's statements --- */

static void sum_two(struct replica *me) {
        static const float mine[2][4] = { { 1, 2 }, { 3, 4, 5, 6 } };
        static const int64_t which[2][2] = { { 1 }, { 1, 3 } };
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct slices in, out;
        slices_init(me->t, &in, F32_I64(me->rank + 1, 2, 5));
        slices_init(me->t, &out, F32_I64(5, 2, 5));
        fill(&in, mine[me->rank], which[me->rank]);
        ck_assert_uint_eq(reduce(g, TUTTI_SUM, &in, &out, 0), 3);
        slices_expect(&out, 3, (const float[]){ 1, 2, 3, 4, 5, 6 }, (const int64_t[]){ 1, 1, 3 });
        ck_assert_uint_eq(reduce(g, TUTTI_SUM, &in, &out, 1), 2);
        slices_expect(&out, 2, (const float[]){ 4, 6, 5, 6 }, (const int64_t[]){ 1, 3 });
        ck_assert_uint_eq(reduce(g, TUTTI_MEAN, &in, &out, 0), 3);
        slices_expect(&out, 3, (const float[]){ .5, 1, 1.5, 2, 2.5, 3 }, (const int64_t[]){ 1, 1, 3 });
        ck_assert_uint_eq(reduce(g, TUTTI_MEAN, &in, &out, 1), 2);
        slices_expect(&out, 2, (const float[]){ 2, 3, 2.5, 3 }, (const int64_t[]){ 1, 3 });
        ck_assert_uint_eq(reduce(g, TUTTI_MAX, &in, &out, 1), 2);
        slices_expect(&out, 2, (const float[]){ 3, 4, 5, 6 }, (const int64_t[]){ 1, 3 });
        ck_assert_uint_eq(reduce(g, TUTTI_MIN, &in, &out, 1), 2);
        slices_expect(&out, 2, (const float[]){ 1, 2, 5, 6 }, (const int64_t[]){ 1, 3 });
}

START_TEST(TA6_rows_of_all_replicas_in_the_order_of_the_ranks_or_each_index_once) {
        run_on_devices(2, 2, sum_two);
}
END_TEST

static void sum_four(struct replica *me) {
        static const int64_t which[4][2] = { { 0, 1 }, { 1, 2 }, { 7, 8 }, { 3, 2 } };
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct slices in, out;
        slices_init(me->t, &in, F32_I64(2, 1, 10));
        slices_init(me->t, &out, F32_I64(8, 1, 10));
        fill(&in, (const float[]){ 2 * me->rank + 1, 2 * me->rank + 2 }, which[me->rank]);
        ck_assert_uint_eq(reduce(g, TUTTI_SUM, &in, &out, 0), 8);
        slices_expect(&out, 8, (const float[]){ 1, 2, 3, 4, 5, 6, 7, 8 },
                (const int64_t[]){ 0, 1, 1, 2, 7, 8, 3, 2 });
        ck_assert_uint_eq(reduce(g, TUTTI_SUM, &in, &out, 1), 6);
        slices_expect(&out, 6, (const float[]){ 1, 5, 12, 7, 5, 6 }, (const int64_t[]){ 0, 1, 2, 3, 7, 8 });
}

START_TEST(TB2_sum_over_four_replicas) {
        run_on_devices(4, 4, sum_four);
}
END_TEST

static void mixed_batch(struct replica *me) {
        static const float rows[2][2] = { { 1, 2 }, { 3, 4 } };
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct floats a, b;
        struct slices s[2], out[2];
        struct tutti_work *w;
        uint64_t total, first;
        floats_init(me->t, &a, 1);
        floats_init(me->t, &b, 1);
        floats_fill(&a, 2);
        floats_fill(&b, 3);
        for (uint32_t i = 0; i < 2; i++) {
                slices_init(me->t, &s[i], F32_I64(me->rank + i, 1, 10));
                slices_init(me->t, &out[i], F32_I64(6, 1, 10));
                fill(&s[i], rows[me->rank], (const int64_t[]){ i + me->rank, 9 - me->rank });
        }
        const struct tutti_entry entries[] = { TUTTI_ENTRY(.input = &a.value, .output = &a.value),
                TUTTI_ENTRY(.input = &b.value, .output = &b.value),
                TUTTI_ENTRY(.input = &s[0].value, .output = &out[0].value),
                TUTTI_ENTRY(.input = &s[1].value, .output = &out[1].value) };
        expect_status(tutti_batch_reduce_start(g, NULL, TUTTI_SUM, entries, 4, NULL, &w), TUTTI_OK);
        expect_work(w, TUTTI_OK);
        floats_expect(&a, 4);
        floats_expect(&b, 6);
        expect_status(tutti_work_extent(w, 0, &total, &first), TUTTI_OK);
        ck_assert_uint_eq(total, 0);
        expect_status(tutti_work_extent(w, 2, &total, &first), TUTTI_OK);
        ck_assert_uint_eq(total, 1);
        ck_assert_uint_eq(first, 0);
        slices_expect(&out[0], 1, (const float[]){ 3 }, (const int64_t[]){ 1 });
        expect_status(tutti_work_extent(w, 3, &total, &first), TUTTI_OK);
        ck_assert_uint_eq(total, 3);
        ck_assert_uint_eq(first, me->rank);
        slices_expect(&out[1], 3, (const float[]){ 1, 3, 4 }, (const int64_t[]){ 1, 2, 8 });
        tutti_work_free(w);
}

START_TEST(TB6_dense_and_sparse_side_by_side_in_one_batch) {
        run_on_devices(2, 2, mixed_batch);
}
END_TEST

/* Also: as many as there are replicas, and their order is that of the ranks. */
static void all_bring_one(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct slices in, out;
        slices_init(me->t, &in, F32_I64(1, 1, 1));
        slices_init(me->t, &out, F32_I64(me->n, 1, 1));
        fill(&in, (const float[]){ 1 }, (const int64_t[]){ 0 });
        ck_assert_uint_eq(reduce(g, TUTTI_SUM, &in, &out, 1), 1);
        slices_expect(&out, 1, (const float[]){ (float)me->n }, (const int64_t[]){ 0 });
        fill(&in, (const float[]){ (float)me->rank }, (const int64_t[]){ 0 });
        ck_assert_uint_eq(reduce(g, TUTTI_SUM, &in, &out, 0), me->n);
        for (uint32_t i = 0; i < me->n; i++)
                ck_assert_float_eq(((float *)out.rows.data)[i], (float)i);
        ck_assert_uint_eq(tutti_last_result()->extent, 0); /* nothing synchronous yet */
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &in.value, &out.value), TUTTI_OK);
        ck_assert_uint_eq(tutti_last_result()->extent, me->n);
        ck_assert_uint_eq(tutti_last_result()->first, me->rank);
}

START_TEST(TB8_every_replica_brings_one_row) {
        static const uint32_t worlds[] = { 1, 2, 3, 4, 5, 7, 8, 16 };
        for (size_t i = 0; i < 8; i++)
                run_on_devices(i + 1, worlds[i], all_bring_one);
}
END_TEST

/* The dense value that these rows are, of one element each. */
static void add_up(const struct slices *s, uint64_t n, float *dense) {
        memset(dense, 0, 10 * sizeof(*dense));
        for (uint64_t i = 0; i < n; i++)
                dense[slices_index(s, i)] += ((const float *)s->rows.data)[i];
}

/* Two of them in one batch: rows 0 and 2 with 1 and 3. */
static void all_bring_a_pair(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const float n = (float)me->n;
        for (int coalesce = 0; coalesce < 2; coalesce++) {
                struct slices in[2], out[2];
                struct tutti_entry pair[2];
                struct tutti_work *w;
                for (int i = 0; i < 2; i++) {
                        slices_init(me->t, &in[i], F32_I64(1, 1, 10));
                        slices_init(me->t, &out[i], F32_I64(me->n, 1, 10));
                        fill(&in[i], (const float[]){ (float)(2 * i + 1) }, (const int64_t[]){ 2 * i });
                        pair[i] = TUTTI_ENTRY(.input = &in[i].value, .output = &out[i].value);
                }
                expect_status(tutti_batch_reduce_start(
                                      g, NULL, TUTTI_SUM, pair, 2, &TUTTI_OPTIONS(.coalesce = coalesce), &w),
                        TUTTI_OK);
                expect_work(w, TUTTI_OK);
                tutti_work_free(w);
                for (int i = 0; i < 2; i++) {
                        float dense[10];
                        add_up(&out[i], coalesce ? 1 : me->n, dense);
                        for (int k = 0; k < 10; k++)
                                ck_assert_float_eq(dense[k], k == 2 * i ? n * (float)(2 * i + 1) : 0);
                }
        }
}

START_TEST(TB8_every_replica_brings_a_pair_of_sparse_values) {
        static const uint32_t worlds[] = { 1, 2, 3, 4, 5, 7, 8, 16 };
        for (size_t i = 0; i < 8; i++)
                run_on_devices(8 - i, worlds[i], all_bring_a_pair);
}
END_TEST

/* Fixed and variable lengths: what comes out is what the slices of all, added up by one, come to. */
static void aggregate(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        for (uint32_t is_variable = 0; is_variable < 2; is_variable++)
                for (int coalesce = 0; coalesce < 2; coalesce++) {
                        float expected[10] = { 0 }, dense[10];
                        struct slices in, out;
                        uint64_t total = 0;
                        for (uint32_t r = 0; r < me->n; r++) {
                                uint64_t k = is_variable ? r : 3;
                                for (uint64_t i = 0; i < k; i++)
                                        expected[(3 * r + 2 * i) % 10] += (float)(10 * r + i + 1);
                                total += k;
                        }
                        slices_init(me->t, &in, F32_I64(is_variable ? me->rank : 3, 1, 10));
                        slices_init(me->t, &out, F32_I64(total, 1, 10));
                        for (uint64_t i = 0; i < in.k; i++) {
                                slices_set_index(&in, i, (int64_t)((3 * me->rank + 2 * i) % 10));
                                ((float *)in.rows.data)[i] = (float)(10 * me->rank + i + 1);
                        }
                        uint64_t n = reduce(g, TUTTI_SUM, &in, &out, coalesce);
                        if (!coalesce)
                                ck_assert_uint_eq(n, total);
                        add_up(&out, n, dense);
                        ck_assert_mem_eq(dense, expected, sizeof(dense));
                        slices_deinit(&in);
                        slices_deinit(&out);
                }
}

START_TEST(TB17_fixed_and_variable_lengths_are_what_one_adds_up) {
        static const uint32_t worlds[] = { 3, 2, 4, 5, 7, 8, 16 };
        for (size_t i = 0; i < 7; i++)
                run_on_devices(i + 1, worlds[i], aggregate);
}
END_TEST

static void waits_in_vain(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct slices in, out;
        slices_init(me->t, &in, F32_I64(1, 1, 1));
        slices_init(me->t, &out, F32_I64(2, 1, 1));
        const struct tutti_entry entry = TUTTI_ENTRY(.input = &in.value, .output = &out.value);
        const struct tutti_options options = TUTTI_OPTIONS(.timeout = 0.2);
        for (int is_batch = 0; me->rank == 0 && is_batch < 2; is_batch++) {
                struct tutti_work *w;
                expect_status(
                        is_batch ? tutti_batch_reduce_start(g, "late", TUTTI_SUM, &entry, 1, &options, &w)
                                 : tutti_all_reduce_start(
                                           g, "alone", TUTTI_SUM, &in.value, &out.value, &options, &w),
                        TUTTI_OK);
                double before = seconds_now();
                expect_work(w, TUTTI_TIMEOUT);
                ck_assert_double_lt(seconds_now() - before, 2);
                expect_in(tutti_work_error(w)->text, "R1");
                tutti_work_free(w);
        }
        expect_status(tutti_barrier(g, "end"), TUTTI_OK);
}

START_TEST(TB14_who_waits_with_sparse_values_in_vain_hears_for_whom) {
        run_on_devices(1, 2, waits_in_vain);
}
END_TEST

static void add_and_divide(struct replica *me) {
        static const float rows[2][4] = { { 1, 2, 3, 4 }, { 5, 6, 7, 8 } };
        static const int64_t which[2][2] = { { 0, 2 }, { 1, 2 } };
        static const float dense[2][6] = { { 1, 2, 0, 0, 3, 4 }, { 0, 0, 5, 6, 7, 8 } };
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct slices in, out;
        struct floats f;
        slices_init(me->t, &in, F32_I64(2, 2, 3));
        slices_init(me->t, &out, F32_I64(4, 2, 3));
        fill(&in, rows[me->rank], which[me->rank]);
        floats_init(me->t, &f, 6);
        memcpy(f.data, dense[me->rank], sizeof(dense[0]));
        expect_status(floats_sum(g, NULL, &f), TUTTI_OK);
        ck_assert_mem_eq(f.data, ((const float[]){ 1, 2, 5, 6, 10, 12 }), 24);
        ck_assert_uint_eq(reduce(g, TUTTI_SUM, &in, &out, 1), 3);
        slices_expect(&out, 3, (const float[]){ 1, 2, 5, 6, 10, 12 }, (const int64_t[]){ 0, 1, 2 });
        ck_assert_uint_eq(reduce(g, TUTTI_MEAN, &in, &out, 0), 4);
        slices_expect(
                &out, 4, (const float[]){ .5, 1, 1.5, 2, 2.5, 3, 3.5, 4 }, (const int64_t[]){ 0, 2, 1, 2 });
}

START_TEST(TC1_TC2_slices_are_added_and_divided_and_stay_slices) {
        run_on_devices(2, 2, add_and_divide);
}
END_TEST

static void copy(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct slices s;
        const bool is_root = me->rank == 1;
        slices_init(me->t, &s, F32_I64(is_root ? 3 : 5, 1, 9));
        if (is_root)
                fill(&s, (const float[]){ 4, 5, 6 }, (const int64_t[]){ 8, 0, 8 });
        else
                fill(&s, (const float[]){ -1, -1, -1, -1, -1 }, (const int64_t[]){ 7, 7, 7, 7, 7 });
        expect_status(tutti_broadcast(g, NULL, 1, &s.value), TUTTI_OK);
        ck_assert_uint_eq(tutti_last_result()->extent, 3);
        slices_expect(&s, 3, (const float[]){ 4, 5, 6 }, (const int64_t[]){ 8, 0, 8 });
        if (!is_root)
                ck_assert(slices_index(&s, 3) == 7 && ((float *)s.rows.data)[3] == -1);
}

START_TEST(TC3_a_broadcast_gives_the_roots_rows_and_indices) {
        run_on_devices(3, 3, copy);
}
END_TEST

/* --- destinations --- */

static void to_one_and_to_an_object(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct tutti_destinations to_two = { .where = TUTTI_TO_RANK, .rank = 2 };
        struct tutti_object *o;
        struct slices in, out;
        slices_init(me->t, &in, F32_I64(1, 1, 9));
        slices_init(me->t, &out, F32_I64(3, 1, 9));
        fill(&in, (const float[]){ (float)me->rank }, (const int64_t[]){ me->rank });
        expect_status(tutti_reduce(g, NULL, TUTTI_SUM, &in.value, me->rank == 2 ? &out.value : NULL, &to_two),
                TUTTI_OK);
        ck_assert_uint_eq(tutti_last_result()->extent, 3);
        if (me->rank == 2)
                slices_expect(&out, 3, (const float[]){ 0, 1, 2 }, (const int64_t[]){ 0, 1, 2 });
        expect_status(tutti_object_make(g, &TUTTI_OBJECT(.name = "rows", .n_bytes = 4096), &o), TUTTI_OK);
        const struct tutti_value ids =
                TUTTI_VALUE(.object = o, .offset = 1024, .dtype = TUTTI_I64, .n_dims = 1, .shape = { 64 });
        const struct tutti_value rows = TUTTI_VALUE(.object = o, .dtype = TUTTI_F32, .n_dims = 2,
                .shape = { 64, 1 }, .indices = &ids, .dense_rows = 9);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &in.value, &rows), TUTTI_OK);
        uint32_t slot = tutti_last_result()->slot;
        ck_assert_uint_eq(tutti_last_result()->extent, 3);
        const uint8_t *data = tutti_object_data(o, slot);
        ck_assert_mem_eq(data, ((const float[]){ 0, 1, 2 }), 12);
        ck_assert_mem_eq(data + 1024, ((const int64_t[]){ 0, 1, 2 }), 24);
        expect_status(tutti_object_release(o, slot), TUTTI_OK);
}

START_TEST(results_go_to_one_rank_or_into_a_result_object) {
        run_on_devices(2, 3, to_one_and_to_an_object);
}
END_TEST

static void from_plain_memory(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        int64_t which[] = { 3, 17 }, all_which[512];
        float rows[2][64], all_rows[512][64];
        for (size_t i = 0; i < 64; i++)
                rows[0][i] = rows[1][i] = (float)me->rank;
        memset(all_rows, 0x7f, sizeof(all_rows));
        memset(all_which, 0x7f, sizeof(all_which));
        const struct tutti_value ids = TUTTI_VALUE(.memory = which, .dtype = TUTTI_I64, .n_dims = 1,
                                         .shape = { 2 }),
                                 gradient = TUTTI_VALUE(.memory = rows, .dtype = TUTTI_F32, .n_dims = 2,
                                         .shape = { 2, 64 }, .indices = &ids, .dense_rows = 100000),
                                 all_ids = TUTTI_VALUE(.memory = all_which, .dtype = TUTTI_I64, .n_dims = 1,
                                         .shape = { 512 }),
                                 all = TUTTI_VALUE(.memory = all_rows, .dtype = TUTTI_F32, .n_dims = 2,
                                         .shape = { 512, 64 }, .indices = &all_ids, .dense_rows = 100000);
        expect_status(tutti_all_reduce(g, "embedding", TUTTI_SUM, &gradient, &all), TUTTI_OK);
        ck_assert_uint_eq(tutti_last_result()->extent, 2 * me->n);
        for (uint32_t i = 0; i < 2 * me->n; i++) {
                ck_assert_int_eq(all_which[i], i % 2 ? 17 : 3);
                ck_assert_float_eq(all_rows[i][63], (float)(i / 2));
        }
        static const uint8_t untouched[sizeof(all_rows[0])] = { [0 ... sizeof(all_rows[0]) - 1] = 0x7f };
        for (uint32_t i = 2 * me->n; i < 512; i++) {
                ck_assert_mem_eq(all_rows[i], untouched, sizeof(untouched));
                ck_assert_mem_eq(&all_which[i], untouched, sizeof(*all_which));
        }
}

START_TEST(plain_memory_gets_as_many_rows_as_there_are_and_the_rest_is_untouched) {
        run_on_devices(1, 3, from_plain_memory);
}
END_TEST

/* --- plans --- */

static void plan_says(struct tutti *t, int coalesce, const char *part) {
        static char text[8192];
        struct tutti_answer *a;
        const struct tutti_value ids = TUTTI_VALUE(.dtype = TUTTI_I64, .n_dims = 1, .shape = { 3000 });
        const struct tutti_value rows = TUTTI_VALUE(.dtype = TUTTI_F32, .n_dims = 2, .shape = { 3000, 4 },
                .indices = &ids, .dense_rows = 70);
        const struct tutti_options options = TUTTI_OPTIONS(.coalesce = coalesce);
        const struct tutti_plan_question question = TUTTI_PLAN_QUESTION(.kind = TUTTI_KIND_REDUCE,
                .op = TUTTI_SUM, .values = &rows, .n_values = 1, .world_size = 2, .options = &options);
        text[0] = '\0';
        expect_status(tutti_admin_plan(t, &question, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++)
                strncat(text, a->rows[i].plan.text, sizeof(text) - strlen(text) - 1);
        expect_in(text, part);
        tutti_answer_free(a);
}

static void ask_for_plans(struct replica *me) {
        struct tutti *t = replica_open(me);
        plan_says(t, 0, "one_device order=rank CPU:0: 6 steps");
        plan_says(t, 0, "indices below 70 i64 x3000  R1 b3+0 -> CPU:0 scratch+24000");
        plan_says(t, 0, "copy f32 x12000  R1 b1+0 -> R0 b2+48000, R1 b2+48000");
        plan_says(t, 0, "copy i64 x6000  CPU:0 scratch+0 -> R0 b4+0, R1 b4+0");
        plan_says(t, 1, "order merge");
        plan_says(t, 1, "scatter_add SUM f32 x24000");
        plan_says(t, 1, "8 phases");
}

START_TEST(plans_of_sparse_values_can_be_asked_for) {
        run_on_devices(1, 1, ask_for_plans);
}
END_TEST

/* --- refused --- */

static const struct tutti_error_info *refused(struct tutti_group *g, const struct slices *in,
        const struct slices *out, int coalesce, enum tutti_field field) {
        static struct tutti_work *w;
        const struct tutti_options options = TUTTI_OPTIONS(.coalesce = coalesce);
        if (w)
                tutti_work_free(w);
        memset(out->rows.data, 0x55, out->k * out->row * 4);
        memset(out->indices.data, 0x55, out->k * 8);
        expect_status(
                tutti_all_reduce_start(g, NULL, TUTTI_SUM, &in->value, &out->value, &options, &w), TUTTI_OK);
        expect_work(w, TUTTI_INVALID);
        const struct tutti_error_info *e = tutti_work_error(w);
        ck_assert_int_eq(e->field, field);
        ck_assert_int_eq(e->outputs_undefined, 0);
        for (uint64_t i = 0; i < out->k * out->row * 4; i++)
                ck_assert_uint_eq(((uint8_t *)out->rows.data)[i], 0x55);
        for (uint64_t i = 0; i < out->k * 8; i++)
                ck_assert_uint_eq(((uint8_t *)out->indices.data)[i], 0x55);
        return e;
}

static void brings_bad_indices(struct replica *me) {
        static const int64_t bad[] = { -1, 10, INT64_MIN, INT64_MAX, INT64_C(1) << 32 };
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct slices in, out;
        char position[32];
        slices_init(me->t, &in, F32_I64(3000, 1, 10));
        slices_init(me->t, &out, F32_I64(9000, 1, 10));
        for (size_t i = 0; i < 10; i++) {
                uint64_t at = i % 2 ? 2999 : 1024;
                for (uint64_t k = 0; k < 3000; k++)
                        slices_set_index(&in, k, (int64_t)(k % 10));
                if (me->rank >= 1) { /* R1 is told, R2 has one, too */
                        slices_set_index(&in, at, bad[i / 2]);
                        slices_set_index(&in, 2999, bad[i / 2]);
                }
                const struct tutti_error_info *e = refused(g, &in, &out, i % 3 == 0, TUTTI_FIELD_INDICES);
                ck_assert_int_eq(e->rank, 1);
                ck_assert_int_eq(e->entry, 0);
                snprintf(position, sizeof(position), "at position %llu", (unsigned long long)at);
                expect_in(e->text, position);
                snprintf(position, sizeof(position), "index %lld ", (long long)bad[i / 2]);
                expect_in(e->text, position);
        }
        for (uint64_t k = 0; k < 3000; k++)
                slices_set_index(&in, k, (int64_t)(k % 10));
        ck_assert_uint_eq(reduce(g, TUTTI_SUM, &in, &out, 1), 10); /* the group is as it was */
}

START_TEST(an_index_that_names_no_row_is_refused_for_all_and_nothing_is_written) {
        run_on_devices(3, 3, brings_bad_indices);
}
END_TEST

/* The dense entry stands before the sparse one, and is in place: it is not reduced either. */
static void brings_bad_index_in_batch(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct floats a;
        struct slices in, out;
        struct tutti_work *w;
        floats_init(me->t, &a, 300000);
        floats_fill(&a, 2);
        slices_init(me->t, &in, F32_I64(2, 1, 10));
        slices_init(me->t, &out, F32_I64(4, 1, 10));
        memset(out.rows.data, 0x55, 4 * 4);
        memset(out.indices.data, 0x55, 4 * 8);
        fill(&in, (const float[]){ 1, 2 }, (const int64_t[]){ 3, me->rank == 1 ? 10 : 4 });
        const struct tutti_entry entries[] = { TUTTI_ENTRY(.input = &a.value, .output = &a.value),
                TUTTI_ENTRY(.input = &in.value, .output = &out.value) };
        expect_status(tutti_batch_reduce_start(g, NULL, TUTTI_SUM, entries, 2, NULL, &w), TUTTI_OK);
        expect_work(w, TUTTI_INVALID);
        const struct tutti_error_info *e = tutti_work_error(w);
        ck_assert_int_eq(e->field, TUTTI_FIELD_INDICES);
        ck_assert_int_eq(e->rank, 1);
        ck_assert_int_eq(e->entry, 1);
        ck_assert_int_eq(e->outputs_undefined, 0);
        tutti_work_free(w);
        floats_expect(&a, 2);
        for (size_t i = 0; i < 4 * 4; i++)
                ck_assert_uint_eq(((uint8_t *)out.rows.data)[i], 0x55);
        for (size_t i = 0; i < 4 * 8; i++)
                ck_assert_uint_eq(((uint8_t *)out.indices.data)[i], 0x55);
        slices_set_index(&in, 1, 4);
        expect_status(tutti_batch_reduce_start(g, NULL, TUTTI_SUM, entries, 2, NULL, &w), TUTTI_OK);
        expect_work(w, TUTTI_OK);
        tutti_work_free(w);
        floats_expect(&a, 4);
        slices_expect(&out, 4, (const float[]){ 1, 2, 1, 2 }, (const int64_t[]){ 3, 4, 3, 4 });
}

START_TEST(a_bad_index_in_a_batch_leaves_its_dense_outputs_as_they_were_too) {
        run_on_devices(2, 2, brings_bad_index_in_batch);
}
END_TEST

static void has_no_room(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct slices in, out;
        slices_init(me->t, &in, F32_I64(2, 1, 10));
        slices_init(me->t, &out, F32_I64(me->rank == 1 ? 3 : 6, 1, 10));
        fill(&in, (const float[]){ 1, 1 }, (const int64_t[]){ 2 * me->rank, 2 * me->rank + 1 });
        for (int coalesce = 0; coalesce < 2; coalesce++) {
                const struct tutti_error_info *e = refused(g, &in, &out, coalesce, TUTTI_FIELD_SIZE);
                ck_assert_int_eq(e->rank, 1);
                expect_in(e->text, "has 6 rows, and the output of R1 has room for 3");
        }
        fill(&in, (const float[]){ 1, 1 }, (const int64_t[]){ 5, 7 });
        ck_assert_uint_eq(reduce(g, TUTTI_SUM, &in, &out, 1), 2);
        slices_expect(&out, 2, (const float[]){ 3, 3 }, (const int64_t[]){ 5, 7 });
}

START_TEST(a_result_that_some_output_has_no_room_for_is_refused_for_all) {
        run_on_devices(1, 3, has_no_room);
}
END_TEST

static void differs(struct replica *me) {
        const bool odd = me->rank == 1;
        const struct {
                struct slices_shape shape;
                enum tutti_field field;
                const char *value;
        } cases[] = {
                { { TUTTI_F32, odd ? TUTTI_I32 : TUTTI_I64, 2, 1, 10 }, TUTTI_FIELD_INDEX_DTYPE, "i32" },
                { { TUTTI_F32, TUTTI_I64, 2, 1, odd ? 11 : 10 }, TUTTI_FIELD_DENSE_SHAPE, "[11,1]" },
                { { TUTTI_F32, TUTTI_I64, 2, odd ? 2 : 1, 10 }, TUTTI_FIELD_DENSE_SHAPE, "[10,2]" },
                { { odd ? TUTTI_F64 : TUTTI_F32, TUTTI_I64, 2, 1, 10 }, TUTTI_FIELD_DTYPE, "f64" },
        };
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct slices in, out;
        for (size_t i = 0; i < 4; i++) {
                slices_init(me->t, &in, &cases[i].shape);
                slices_init(me->t, &out, &cases[i].shape);
                expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &in.value, &out.value), TUTTI_MISMATCH);
                ck_assert_int_eq(tutti_error_info()->field, cases[i].field);
                expect_in(tutti_error(), cases[i].value);
                slices_deinit(&in);
                slices_deinit(&out);
        }
        slices_init(me->t, &in, F32_I64(1, 1, 10));
        slices_init(me->t, &out, F32_I64(2, 1, 10));
        if (odd)
                in.value.indices = out.value.indices = NULL;
        if (odd)
                out.value.shape[0] = 1;
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &in.value, &out.value), TUTTI_MISMATCH);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_LAYOUT);
}

START_TEST(TB17_what_differs_is_told_and_dtypes_of_indices_are_not_converted) {
        run_on_devices(1, 2, differs);
}
END_TEST

static void is_wrong_by_itself(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct slices in, out, wide;
        slices_init(me->t, &in, F32_I64(2, 2, 10));
        slices_init(me->t, &out, F32_I64(2, 2, 10));
        slices_init(me->t, &wide, F32_I64(3, 2, 10));
        const struct {
                struct tutti_value input, output;
                enum tutti_status status;
                enum tutti_field field;
        } cases[] = {
                { in.value,
                        TUTTI_VALUE(.buffer = out.rows.buffer, .dtype = TUTTI_F32, .n_dims = 2,
                                .shape = { 2, 2 }),
                        TUTTI_INVALID, TUTTI_FIELD_LAYOUT },
                { in.value,
                        TUTTI_VALUE(.buffer = out.rows.buffer, .dtype = TUTTI_F32, .n_dims = 2,
                                .shape = { 2, 1 }, .indices = &out.index_value, .dense_rows = 10),
                        TUTTI_INVALID, TUTTI_FIELD_SHAPE },
                { in.value,
                        TUTTI_VALUE(.buffer = out.rows.buffer, .dtype = TUTTI_F32, .n_dims = 2,
                                .shape = { 2, 2 }, .indices = &out.index_value, .dense_rows = 11),
                        TUTTI_INVALID, TUTTI_FIELD_DENSE_SHAPE },
                { in.value,
                        TUTTI_VALUE(.buffer = out.rows.buffer, .dtype = TUTTI_F32, .n_dims = 2,
                                .shape = { 2, 2 }, .indices = &wide.index_value, .dense_rows = 10),
                        TUTTI_INVALID, TUTTI_FIELD_INDICES },
                { in.value, in.value, TUTTI_INVALID, TUTTI_FIELD_OVERLAP },
        };
        for (size_t i = 0; i < 5; i++) {
                expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &cases[i].input, &cases[i].output),
                        cases[i].status);
                ck_assert_int_eq(tutti_error_info()->field, cases[i].field);
        }
}

START_TEST(what_is_wrong_by_itself_is_refused_by_its_field) {
        run_on_devices(1, 1, is_wrong_by_itself);
}
END_TEST

/* TensorFlow: NotImplementedError. */
static void gather_rows(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct slices in, out;
        slices_init(me->t, &in, F32_I64(2, 2, 10));
        slices_init(me->t, &out, F32_I64(4, 2, 10));
        memset(out.rows.data, 0x55, 4 * 2 * sizeof(float));
        expect_status(tutti_all_gather(g, "k", 0, &in.value, &out.value, NULL), TUTTI_UNSUPPORTED);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_LAYOUT);
        expect_in(tutti_error(), "a gather of sparse values is not done; reduce, batch_reduce and broadcast");
        for (size_t i = 0; i < 4 * 2 * sizeof(float); i++)
                ck_assert_uint_eq(((uint8_t *)out.rows.data)[i], 0x55);
        expect_status(tutti_barrier(g, "k"), TUTTI_OK);
}

START_TEST(TE13_TE14_a_gather_of_sparse_values_is_refused) {
        run_on_devices(1, 1, gather_rows);
        run_on_devices(2, 2, gather_rows);
}
END_TEST

UNIT_MAIN("sparse", 120, plans_of_sparse_values_can_be_asked_for,
        TA6_rows_of_all_replicas_in_the_order_of_the_ranks_or_each_index_once, TB2_sum_over_four_replicas,
        TB6_dense_and_sparse_side_by_side_in_one_batch, TB8_every_replica_brings_one_row,
        TB8_every_replica_brings_a_pair_of_sparse_values,
        TB17_fixed_and_variable_lengths_are_what_one_adds_up, TE13_TE14_a_gather_of_sparse_values_is_refused,
        TB14_who_waits_with_sparse_values_in_vain_hears_for_whom,
        TC1_TC2_slices_are_added_and_divided_and_stay_slices,
        TC3_a_broadcast_gives_the_roots_rows_and_indices, results_go_to_one_rank_or_into_a_result_object,
        plain_memory_gets_as_many_rows_as_there_are_and_the_rest_is_untouched,
        an_index_that_names_no_row_is_refused_for_all_and_nothing_is_written,
        a_bad_index_in_a_batch_leaves_its_dense_outputs_as_they_were_too,
        a_result_that_some_output_has_no_room_for_is_refused_for_all,
        TB17_what_differs_is_told_and_dtypes_of_indices_are_not_converted,
        what_is_wrong_by_itself_is_refused_by_its_field)
