/* Collectives along an axis: gather, all_gather, reduce_scatter, reduce over axes (TB10, TE4, TE13, TE14, P4
 * P5 P7 P10 P12 P14 P15). What tf.distribute's tests assert is here with their numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/axes.h>
#include "base/check.h"
#include "objects.h"

static struct tutti_group *join(struct replica *me) {
        return replica_join_group(me, &TUTTI_JOIN(.group = "train", .default_timeout = 20));
}

static const uint32_t worlds[] = { 1, 2, 3, 4, 5, 7, 8, 16 };

static void run_in_all_worlds(void (*body)(struct replica *me)) {
        struct host *h = host_start(NULL);
        for (size_t i = 0; i < ARRAY_SIZE(worlds); i++) {
                run_replicas(h, worlds[i], body, NULL);
                host_expect_counters_zero(h);
        }
        host_stop(h);
}

static void run_in(uint32_t n, void (*body)(struct replica *me)) {
        struct host *h = host_start(NULL);
        run_replicas(h, n, body, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}

/* Floats of this shape in plain memory. */
static struct tutti_value floats_at(float *f, uint32_t n_dims, const uint64_t *shape) {
        struct tutti_value v = TUTTI_VALUE(.memory = f, .dtype = TUTTI_F32, .n_dims = n_dims);
        memcpy(v.shape, shape, n_dims * sizeof(*shape));
        return v;
}

#define FLOATS(f, ...)                                                                                       \
        floats_at((f), sizeof((uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t), (uint64_t[]){ __VA_ARGS__ })

static void expect_floats(const float *got, const float *want, size_t n) {
        for (size_t i = 0; i < n; i++)
                ck_assert_msg(
                        got[i] == want[i], "element %zu is %g, not %g", i, (double)got[i], (double)want[i]);
}

/* Still works, under the same key. */
static void expect_to_go_on(struct tutti_group *g, const char *key) {
        float x = 1;
        const struct tutti_value v = FLOATS(&x, 1);
        expect_status(tutti_all_reduce(g, key, TUTTI_SUM, &v, &v), TUTTI_OK);
        ck_assert_float_eq(x, (float)tutti_world_size(g));
}

/* --- gather --- */

static void gather_equal_shapes(struct replica *me) {
        struct tutti_group *g = join(me);
        float in[4] = { 1, 2, 1, 2 }, out[4 * 16], want[4 * 16];
        const struct tutti_value from = FLOATS(in, 1, 2, 2);
        uint32_t n = me->n;
        for (int32_t axis = 0; axis < 3; axis++) {
                uint64_t shape[] = { 1, 2, 2 }, extent = 0;
                shape[axis] *= n;
                const struct tutti_value to = floats_at(out, 3, shape);
                expect_status(tutti_all_gather(g, NULL, axis, &from, &to, &extent), TUTTI_OK);
                ck_assert_uint_eq(extent, shape[axis]);
                for (uint32_t i = 0; i < 4 * n; i++)
                        want[i] = (float)(1 + i % 2); /* every row is 1 2, or 1 2 1 2 ... */
                expect_floats(out, want, (size_t)4 * n);
        }
}

START_TEST(TB10_all_gather_of_equal_shapes_along_each_axis) {
        run_in_all_worlds(gather_equal_shapes);
}
END_TEST

/* Rank r has r + 1 rows, or columns, of its number. */
static void gather_unequal_lengths(struct replica *me) {
        struct tutti_group *g = join(me);
        uint64_t n = me->n, mine = me->rank + 1, total = n * (n + 1) / 2, extent, first;
        float in[16], out[136], want[136];
        struct tutti_work *w;
        for (uint64_t i = 0; i < mine; i++)
                in[i] = (float)me->rank;
        for (uint64_t r = 0, i = 0; r < n; r++)
                for (uint64_t k = 0; k <= r; k++)
                        want[i++] = (float)r;
        for (int32_t axis = 0; axis < 2; axis++) {
                const struct tutti_value from = axis ? FLOATS(in, 1, mine) : FLOATS(in, mine, 1);
                const struct tutti_value to = axis ? FLOATS(out, 1, total) : FLOATS(out, total, 1);
                memset(out, 0, sizeof(out));
                expect_status(tutti_all_gather_start(g, NULL, axis - 2, &from, &to, NULL, &w), TUTTI_OK);
                expect_work(w, TUTTI_OK);
                expect_floats(out, want, total);
                expect_status(tutti_work_extent(w, 0, &extent, &first), TUTTI_OK);
                ck_assert_uint_eq(extent, total);
                ck_assert_uint_eq(first, (uint64_t)me->rank * (me->rank + 1) / 2);
                tutti_work_free(w);
        }
}

START_TEST(TE13_TE14_lengths_may_differ_along_the_axis) {
        run_in_all_worlds(gather_unequal_lengths);
}
END_TEST

/* One to three dimensions, each axis, to the last rank alone. */
static void gather_to_one(struct replica *me) {
        struct tutti_group *g = join(me);
        float in[24], out[24 * 16];
        for (uint32_t n_dims = 1; n_dims <= 3; n_dims++)
                for (uint32_t axis = 0; axis < n_dims; axis++) {
                        uint64_t shape[] = { 2, 3, 4 }, count = n_dims == 1 ? 2 : n_dims == 2 ? 6 : 24;
                        uint64_t inner = 1, length = shape[axis];
                        for (uint32_t d = axis + 1; d < n_dims; d++)
                                inner *= shape[d];
                        for (uint64_t i = 0; i < count; i++)
                                in[i] = (float)(100 * me->rank + i);
                        const struct tutti_value from = floats_at(in, n_dims, shape);
                        shape[axis] *= me->n;
                        const struct tutti_value to = floats_at(out, n_dims, shape);
                        const struct tutti_entry e =
                                TUTTI_ENTRY(.input = &from, .output = me->rank == me->n - 1 ? &to : NULL,
                                        .destinations = { .where = TUTTI_TO_RANK, .rank = me->n - 1 });
                        memset(out, 0, sizeof(out));
                        expect_status(tutti_gather(g, &TUTTI_GATHER(.axis = (int32_t)axis, .entries = &e,
                                                              .n_entries = 1)),
                                TUTTI_OK);
                        for (uint64_t i = 0; me->rank == me->n - 1 && i < count * me->n; i++) {
                                uint64_t run = length * inner, outer = i / (run * me->n),
                                         rank = i / run % me->n, rest = i % run;
                                ck_assert_float_eq(out[i], (float)(100 * rank + outer * run + rest));
                        }
                        for (uint64_t i = 0; me->rank < me->n - 1 && i < ARRAY_SIZE(out); i++)
                                ck_assert_float_eq(out[i], 0);
                }
}

START_TEST(TE13_equal_shapes_of_one_to_three_dimensions_along_each_axis) {
        run_in_all_worlds(gather_to_one);
}
END_TEST

static void expect_mismatch(
        struct tutti_group *g, int32_t axis, const struct tutti_value *v, enum tutti_field field) {
        float out[64];
        uint64_t shape[TUTTI_MAX_DIMS];
        memcpy(shape, v->shape, sizeof(shape));
        shape[axis] = 4;
        const struct tutti_value to = floats_at(out, v->n_dims, shape);
        expect_status(tutti_all_gather(g, "k", axis, v, &to, NULL), TUTTI_MISMATCH);
        ck_assert_int_eq(tutti_error_info()->field, field);
        expect_to_go_on(g, "k");
}

static void gather_what_does_not_fit(struct replica *me) {
        struct tutti_group *g = join(me);
        float in[16] = { 0 };
        const struct tutti_value wide = FLOATS(in, 1, 2 + me->rank), deep = FLOATS(in, 1, 2, 2),
                                 flat = FLOATS(in, 1, 2);
        expect_mismatch(g, 0, &wide, TUTTI_FIELD_SHAPE); /* other than along the axis */
        expect_in(tutti_error(), "f32[1,2]");
        expect_in(tutti_error(), "f32[1,3]");
        expect_mismatch(g, 0, me->rank ? &deep : &flat, TUTTI_FIELD_SHAPE); /* other dimensions */
        expect_mismatch(g, (int32_t)me->rank, &flat, TUTTI_FIELD_AXIS);     /* other axes */
        expect_in(tutti_error(), "axis 0");
        expect_in(tutti_error(), "axis 1");
}

static void do_other_things(struct replica *me) {
        struct tutti_group *g = join(me);
        float in[2] = { 0 }, out[4];
        const struct tutti_value from = FLOATS(in, 2), to = FLOATS(out, 4);
        expect_status(me->rank ? tutti_all_gather(g, "k", 0, &from, &to, NULL)
                               : tutti_all_reduce(g, "k", TUTTI_SUM, &from, &from),
                TUTTI_MISMATCH);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_KIND);
        expect_in(tutti_error(), "gather");
        expect_in(tutti_error(), "reduce");
        expect_to_go_on(g, "k");
}

START_TEST(B5_one_does_all_reduce_and_another_all_gather) {
        run_in(2, do_other_things);
}
END_TEST

START_TEST(TE13_TE14_P4_what_differs_elsewhere_is_a_mismatch_for_all) {
        run_in(2, gather_what_does_not_fit);
}
END_TEST

/* Leaves of a nest are entries of a batch; each keeps its place. */
static void gather_a_nest(struct replica *me) {
        struct tutti_group *g = join(me);
        uint64_t n = me->n, extents[3];
        float a[1] = { (float)me->rank }, b[4] = { 1, 2, 3, 4 }, out_a[16], out_b[64];
        int64_t c[2] = { me->rank, -1 }, out_c[32];
        const struct tutti_value in[] = { FLOATS(a, 1), FLOATS(b, 2, 2),
                TUTTI_VALUE(.memory = c, .dtype = TUTTI_I64, .n_dims = 1, .shape = { 2 }) };
        const struct tutti_value out[] = { FLOATS(out_a, n), FLOATS(out_b, 2 * n, 2),
                TUTTI_VALUE(.memory = out_c, .dtype = TUTTI_I64, .n_dims = 1, .shape = { 2 * n }) };
        struct tutti_entry entries[3];
        for (uint32_t i = 0; i < 3; i++)
                entries[i] = TUTTI_ENTRY(.input = &in[i], .output = &out[i]);
        expect_status(
                tutti_gather(g, &TUTTI_GATHER(.entries = entries, .n_entries = 3, .ret_extents = extents)),
                TUTTI_OK);
        for (uint64_t r = 0; r < n; r++) {
                ck_assert_float_eq(out_a[r], (float)r);
                expect_floats(out_b + 4 * r, b, 4);
                ck_assert_int_eq(out_c[2 * r], (int64_t)r);
                ck_assert_int_eq(out_c[2 * r + 1], -1);
        }
        ck_assert_uint_eq(extents[0], n);
        ck_assert_uint_eq(extents[1], 2 * n);
        ck_assert_uint_eq(extents[2], 2 * n);
}

START_TEST(TE14_a_nest_is_a_batch) {
        run_in_all_worlds(gather_a_nest);
}
END_TEST

/* The gradient of all_gather: the sum over all of what comes back, and of it one's own slice. Every replica
 * sends its number plus one back for each element: 1 + ... + N. */
static void send_back(struct replica *me) {
        struct tutti_group *g = join(me);
        uint64_t n = me->n, mine = me->rank + 1, total = n * (n + 1) / 2;
        float back[136], gradient[17] = { 0 };
        for (uint64_t i = 0; i < total; i++)
                back[i] = (float)me->rank + 1;
        const struct tutti_value from = FLOATS(back, total), to = FLOATS(gradient, mine);
        const struct tutti_entry e = TUTTI_ENTRY(.input = &from, .output = &to);
        expect_status(tutti_reduce_scatter(
                              g, &TUTTI_REDUCE_SCATTER(.op = TUTTI_SUM, .entries = &e, .n_entries = 1)),
                TUTTI_OK);
        for (uint64_t i = 0; i < mine; i++)
                ck_assert_float_eq(gradient[i], (float)total);
        ck_assert_float_eq(gradient[mine], 0);
}

START_TEST(TE14_the_gradient_of_all_gather_is_a_reduce_scatter) {
        run_in_all_worlds(send_back);
}
END_TEST

static void lack_room(struct replica *me) {
        struct tutti_group *g = join(me);
        float in[3] = { 1, 2, 3 }, out[16];
        const struct tutti_value from = FLOATS(in, 3), to = FLOATS(out, me->rank == 1 ? 8 : 9);
        for (size_t i = 0; i < ARRAY_SIZE(out); i++)
                out[i] = 7;
        expect_status(tutti_all_gather(g, "k", 0, &from, &to, NULL), TUTTI_INVALID);
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_int_eq(e->field, TUTTI_FIELD_SIZE);
        ck_assert_int_eq(e->rank, 1);
        ck_assert_uint_eq(e->used, 9);
        ck_assert_uint_eq(e->limit, 8);
        expect_in(e->text, "the output of R1 (entry 0) has room for 8 along axis 0, and 9 are needed");
        for (size_t i = 0; i < ARRAY_SIZE(out); i++)
                ck_assert_float_eq(out[i], 7);
        expect_to_go_on(g, "k");
}

START_TEST(P4_P7_an_output_that_lacks_room_is_refused_for_all_before_a_byte_is_written) {
        run_in(3, lack_room);
}
END_TEST

/* Columns: the result is as long as it is, and what lies behind it and between its rows stays. */
static void gather_columns(struct replica *me) {
        struct tutti_group *g = join(me);
        struct array in, out;
        array_init(me->t, &in, TUTTI_F32, 4);
        array_init(me->t, &out, TUTTI_F32, 40);
        float *f = in.data, *to = out.data;
        for (uint32_t i = 0; i < 4; i++)
                f[i] = (float)(10 * me->rank + i);
        for (uint32_t i = 0; i < 40; i++)
                to[i] = -1;
        const struct tutti_value from =
                TUTTI_VALUE(.buffer = in.buffer, .dtype = TUTTI_F32, .n_dims = 2, .shape = { 2, 2 });
        const struct tutti_value strided = TUTTI_VALUE(.buffer = out.buffer, .dtype = TUTTI_F32, .n_dims = 2,
                .shape = { 2, 10 }, .has_strides = 1, .strides = { 20, 2 });
        const struct tutti_value packed =
                TUTTI_VALUE(.buffer = out.buffer, .dtype = TUTTI_F32, .n_dims = 2, .shape = { 2, 10 });
        expect_status(tutti_all_gather(g, NULL, 1, &from, &strided, NULL), TUTTI_OK);
        for (uint32_t i = 0; i < 40; i++) {
                uint32_t row = i / 20, column = i % 20 / 2;
                bool is_written = i % 2 == 0 && column < 2 * me->n;
                ck_assert_float_eq(
                        to[i], is_written ? (float)(10 * (column / 2) + 2 * row + column % 2) : -1);
        }
        for (uint32_t i = 0; i < 40; i++)
                to[i] = -1;
        expect_status(tutti_all_gather(g, NULL, 1, &from, &packed, NULL), TUTTI_OK);
        for (uint32_t i = 0; i < 40; i++) {
                uint32_t row = i / (2 * me->n), column = i % (2 * me->n);
                ck_assert_float_eq(to[i], row < 2 ? (float)(10 * (column / 2) + 2 * row + column % 2) : -1);
        }
}

START_TEST(P14_a_result_is_as_long_as_it_is_and_nothing_else_is_touched) {
        run_in(3, gather_columns);
}
END_TEST

static void gather_into_an_object(struct replica *me) {
        struct tutti_group *g = join(me);
        struct tutti_object *o = object_make(g, "all", 64);
        uint64_t mine = me->rank, extent;
        float in[3] = { 5, 5, 5 };
        const struct tutti_value from = FLOATS(in, mine);
        struct tutti_value to = value_in(o, 16, 12);
        expect_status(tutti_all_gather(g, NULL, 0, &from, &to, &extent), TUTTI_OK);
        ck_assert_uint_eq(extent, 6);
        uint32_t slot = tutti_last_result()->slot;
        expect_slot(o, slot, 4, 6, 5);
        expect_slot(o, slot, 10, 6, 0);
        expect_status(tutti_object_release(o, slot), TUTTI_OK);
        const struct tutti_entry e = TUTTI_ENTRY(.input = &from, .output = &to,
                .destinations = { .where = TUTTI_TO_DEVICE, .device = "CPU:0" });
        expect_status(tutti_gather(g, &TUTTI_GATHER(.entries = &e, .n_entries = 1)), TUTTI_OK);
        expect_slot(o, tutti_last_result()->slot, 4, 6, 5);
        to.shape[0] = 5;
        expect_status(tutti_all_gather(g, NULL, 0, &from, &to, NULL), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_SIZE);
        tutti_object_free(o);
}

START_TEST(P14_a_gather_into_a_result_object_is_written_once_for_all) {
        run_in(4, gather_into_an_object);
}
END_TEST

/* More lengths than one packet holds. */
#define MANY 7000

static void gather_many(struct replica *me) {
        struct tutti_group *g = join(me);
        float in = (float)me->rank, *out = calloc(2 * MANY, sizeof(*out));
        struct tutti_value *values = calloc(2 * MANY, sizeof(*values));
        struct tutti_entry *entries = calloc(MANY, sizeof(*entries));
        uint64_t *extents = calloc(MANY, sizeof(*extents));
        ck_assert(out && values && entries && extents);
        for (uint32_t i = 0; i < MANY; i++) {
                values[2 * i] = FLOATS(&in, (i + me->rank) % 2);
                values[2 * i + 1] = FLOATS(out + 2 * i, 2);
                entries[i] = TUTTI_ENTRY(.input = &values[2 * i], .output = &values[2 * i + 1]);
        }
        expect_status(
                tutti_gather(g, &TUTTI_GATHER(.entries = entries, .n_entries = MANY, .ret_extents = extents)),
                TUTTI_OK);
        for (uint32_t i = 0; i < MANY; i++) {
                ck_assert_uint_eq(extents[i], 1);
                ck_assert_float_eq(out[2 * i], (float)((i + 1) % 2));
                ck_assert_float_eq(out[2 * i + 1], 0);
        }
        free(out);
        free(values);
        free(entries);
        free(extents);
}

START_TEST(P4_a_long_batch_tells_all_its_lengths) {
        run_in(2, gather_many);
}
END_TEST

/* --- reduce_scatter --- */

/* Even shares, and the same bits as all_reduce. */
static void share_a_sum(struct replica *me) {
        struct tutti_group *g = join(me);
        float in[3 * 37], all[3 * 37], mine[3 * 37];
        uint64_t first, n, told, whole;
        struct tutti_work *w;
        for (uint32_t i = 0; i < ARRAY_SIZE(in); i++)
                in[i] = 1.0f / (float)(1 + i + 7 * me->rank);
        const struct tutti_value from = FLOATS(in, 3, 37), to = FLOATS(all, 3, 37);
        tutti_share(37, me->n, me->rank, &first, &n);
        for (enum tutti_op op = TUTTI_SUM; op <= TUTTI_MAX; op++) {
                const struct tutti_value slice = FLOATS(mine, 3, n);
                const struct tutti_entry e = TUTTI_ENTRY(.input = &from, .output = n ? &slice : NULL);
                expect_status(tutti_all_reduce(g, NULL, op, &from, &to), TUTTI_OK);
                expect_status(
                        tutti_reduce_scatter_start(g,
                                &TUTTI_REDUCE_SCATTER(.op = op, .axis = 1, .entries = &e, .n_entries = 1),
                                &w),
                        TUTTI_OK);
                expect_work(w, TUTTI_OK);
                expect_status(tutti_work_extent(w, 0, &whole, &told), TUTTI_OK);
                ck_assert_uint_eq(told, first);
                ck_assert_uint_eq(whole, 37);
                tutti_work_free(w);
                for (uint64_t i = 0; i < 3 * n; i++)
                        ck_assert_mem_eq(&mine[i], &all[i / n * 37 + first + i % n], sizeof(float));
        }
}

START_TEST(P10_each_replica_gets_its_slice_of_what_all_reduce_gives) {
        run_in_all_worlds(share_a_sum);
}
END_TEST

START_TEST(shares_are_even_and_add_up) {
        for (uint64_t extent = 0; extent < 40; extent++)
                for (uint32_t world = 1; world < 20; world++) {
                        uint64_t at = 0, first, n;
                        for (uint32_t rank = 0; rank < world; rank++) {
                                tutti_share(extent, world, rank, &first, &n);
                                ck_assert_uint_eq(first, at);
                                ck_assert_uint_eq(n, extent / world + (rank < extent % world));
                                at += n;
                        }
                        ck_assert_uint_eq(at, extent);
                }
        uint64_t first, n;
        tutti_share(10, 0, 0, &first, &n);
        ck_assert_uint_eq(n, 0);
        tutti_share(UINT64_MAX, 3, 2, &first, &n);
        ck_assert_uint_eq(first + n, UINT64_MAX);
}
END_TEST

static void scatter_what_does_not_add_up(struct replica *me) {
        struct tutti_group *g = join(me);
        float in[8] = { 0 }, out[8] = { 7, 7, 7, 7, 7, 7, 7, 7 };
        const struct tutti_value from = FLOATS(in, 8), to = FLOATS(out, me->rank == 1 ? 1 : 2);
        const struct tutti_entry e = TUTTI_ENTRY(.input = &from, .output = &to);
        expect_status(tutti_reduce_scatter(g, &TUTTI_REDUCE_SCATTER(.key = "k", .op = TUTTI_SUM,
                                                      .entries = &e, .n_entries = 1)),
                TUTTI_INVALID);
        const struct tutti_error_info *error = tutti_error_info();
        ck_assert_int_eq(error->field, TUTTI_FIELD_EXTENT);
        expect_in(error->text, "the slices of 3 replicas add up to 5, and the value has 8");
        expect_in(error->text, "2 by R0 R2, 1 by R1");
        ck_assert_uint_eq(error->n_classes, 2);
        expect_ranks(&error->classes[0].ranks, 5);
        ck_assert_str_eq(error->classes[1].value, "1");
        ck_assert_float_eq(out[0], 7);
        expect_to_go_on(g, "k");
}

START_TEST(P4_P7_slices_that_do_not_add_up_are_refused_naming_everybodys) {
        run_in(3, scatter_what_does_not_add_up);
}
END_TEST

/* Who is gone takes no slice, so the others must take all; a gather goes on with those who are there. */
static void go_on_without_one(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_SHRINK);
        float in[6] = { 1, 2, 3, 4, 5, 6 }, out[18] = { 0 };
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        if (me->rank == 1)
                return;
        replica_hear(me, "go");
        const struct tutti_value from = FLOATS(in, 6), small = FLOATS(out, 2), half = FLOATS(out, 3),
                                 all = FLOATS(out, 18);
        struct tutti_entry e = TUTTI_ENTRY(.input = &from, .output = &small);
        const struct tutti_reduce_scatter_args args =
                TUTTI_REDUCE_SCATTER(.key = "k", .op = TUTTI_MEAN, .entries = &e, .n_entries = 1);
        expect_status(tutti_reduce_scatter(g, &args), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_EXTENT);
        e.output = &half;
        expect_status(tutti_reduce_scatter(g, &args), TUTTI_OK);
        expect_floats(out, me->rank ? in + 3 : in, 3);
        uint64_t extent;
        expect_status(tutti_all_gather(g, NULL, 0, &from, &all, &extent), TUTTI_OK);
        ck_assert_uint_eq(extent, 12);
        expect_ranks(&tutti_last_result()->contributors, 5);
        expect_floats(out, in, 6);
        expect_floats(out + 6, in, 6);
}

START_TEST(P5_a_group_that_has_shrunk_gathers_what_is_there_and_shares_the_whole) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, go_on_without_one, NULL, r);
        ck_assert_int_eq(replica_end(r[1], 10), 0);
        host_expect_sessions(h, 2);
        replica_tell(r[0], "go");
        replica_tell(r[2], "go");
        ck_assert_int_eq(replica_end(r[0], 20), 0);
        ck_assert_int_eq(replica_end(r[2], 20), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- reduce over axes --- */

static enum tutti_status reduce_over(struct tutti_group *g, enum tutti_op op, int32_t axis,
        const struct tutti_value *from, const struct tutti_value *to) {
        const struct tutti_entry e = TUTTI_ENTRY(.input = from, .output = to);
        return tutti_reduce_over(
                g, &TUTTI_REDUCE_OVER(.op = op, .axes = &axis, .n_axes = 1, .entries = &e, .n_entries = 1));
}

/* Sums of sums over sums of counts: rank r has r + 1 elements of value r + 1. */
static void mean_of_uneven(struct replica *me) {
        struct tutti_group *g = join(me);
        uint64_t mine = me->rank + 1;
        float in[32], out[2], sum = 0, n = 0;
        for (uint64_t i = 0; i < 2 * mine; i++)
                in[i] = (float)(i % 2 ? 10 * mine : mine);
        for (uint32_t r = 1; r <= me->n; r++) {
                sum += (float)(r * r);
                n += (float)r;
        }
        const struct tutti_value from = FLOATS(in, mine, 2), to = FLOATS(out, 2), kept = FLOATS(out, 1, 2);
        expect_status(reduce_over(g, TUTTI_SUM, 0, &from, &to), TUTTI_OK);
        expect_floats(out, (float[]){ sum, 10 * sum }, 2);
        expect_status(reduce_over(g, TUTTI_MEAN, -2, &from, &kept), TUTTI_OK);
        expect_floats(out, (float[]){ sum / n, 10 * sum / n }, 2);
        const struct tutti_entry e = TUTTI_ENTRY(.input = &from, .output = &to);
        struct tutti_value scalar = TUTTI_VALUE(.memory = out, .dtype = TUTTI_F32);
        struct tutti_entry both = e;
        both.output = &scalar;
        int32_t axes[] = { 1, 0 };
        expect_status(tutti_reduce_over(g, &TUTTI_REDUCE_OVER(.op = TUTTI_MEAN, .axes = axes, .n_axes = 2,
                                                   .entries = &both, .n_entries = 1)),
                TUTTI_OK);
        ck_assert_float_eq(out[0], 11 * sum / (2 * n));
}

START_TEST(TE4_P12_a_mean_over_an_axis_weighs_uneven_replicas_right) {
        run_in_all_worlds(mean_of_uneven);
}
END_TEST

/* Beyond what one pass of a kernel takes, and what f32 or 32 bits hold. */
static void reduce_long_axes(struct replica *me) {
        struct tutti_group *g = join(me);
        struct array a;
        array_init(me->t, &a, TUTTI_I64, 100000);
        int64_t *in = a.data, out = 0;
        float f[3];
        for (size_t i = 0; i < 100000; i++)
                in[i] = INT64_MAX - (int64_t)i;
        const struct tutti_value to = TUTTI_VALUE(.memory = &out, .dtype = TUTTI_I64);
        const struct tutti_entry e = TUTTI_ENTRY(.input = &a.value, .output = &to);
        int32_t axis = 0;
        expect_status(tutti_reduce_over(g,
                              &TUTTI_REDUCE_OVER(.op = TUTTI_MEAN, .axes = &axis, .n_axes = 1, .entries = &e,
                                      .n_entries = 1, .options = &TUTTI_OPTIONS(.rounding = TUTTI_NEAREST))),
                TUTTI_OK);
        ck_assert_int_eq(out, INT64_MAX - 49999); /* of a half, to even */
        /* One chain: small ones are lost behind a large one, and only there. */
        f[0] = me->rank ? 1 : 16777216;
        f[1] = f[2] = 1;
        const struct tutti_value from = FLOATS(f, 3), sum = TUTTI_VALUE(.memory = f, .dtype = TUTTI_F32);
        expect_status(reduce_over(g, TUTTI_SUM, 0, &from, &sum), TUTTI_OK);
        ck_assert_float_eq(f[0], 16777216);
}

START_TEST(P10_P12_long_axes_are_one_chain_and_exact_sums) {
        run_in(2, reduce_long_axes);
}
END_TEST

/* --- refusals: each with its field --- */

static void expect_refusal(
        enum tutti_status got, enum tutti_status wanted, enum tutti_field field, const char *part) {
        expect_status(got, wanted);
        ck_assert_msg(tutti_error_info()->field == field, "field %s: %s", tutti_error_info()->field_name,
                tutti_error());
        expect_in(tutti_error(), part);
}

static enum tutti_status scatter(
        struct tutti_group *g, const struct tutti_entry *e, const struct tutti_options *options) {
        return tutti_reduce_scatter(
                g, &TUTTI_REDUCE_SCATTER(.op = TUTTI_SUM, .entries = e, .n_entries = 1, .options = options));
}

static void be_refused(struct replica *me) {
        struct tutti_group *g = join(me);
        float in[8] = { 0 }, out[8];
        const struct tutti_value from = FLOATS(in, 2, 2), to = FLOATS(out, 4, 2), other = FLOATS(out, 4, 1),
                                 scalar = TUTTI_VALUE(.memory = in, .dtype = TUTTI_F32), line = FLOATS(in, 2);
        struct tutti_entry e[] = { TUTTI_ENTRY(.input = &from, .output = &to),
                TUTTI_ENTRY(.input = &line, .output = &to) };
        expect_refusal(tutti_all_gather(g, NULL, 2, &from, &to, NULL), TUTTI_INVALID, TUTTI_FIELD_AXIS,
                "axis 2 is outside of a value of 2 dimensions: it may be -2 to 1");
        expect_refusal(
                tutti_all_gather(g, NULL, -3, &from, &to, NULL), TUTTI_INVALID, TUTTI_FIELD_AXIS, "axis -3");
        expect_refusal(tutti_all_gather(g, NULL, 0, &scalar, &to, NULL), TUTTI_INVALID, TUTTI_FIELD_AXIS,
                "axis 0 of a scalar");
        expect_refusal(tutti_all_gather(g, NULL, 0, &from, &other, NULL), TUTTI_INVALID, TUTTI_FIELD_SHAPE,
                "the output, [4,1], differs from the input, [2,2], in more than its length along axis 0");
        const struct tutti_value wide = FLOATS(out, 2, 4);
        e[0].output = &wide;
        expect_refusal(tutti_gather(g, &TUTTI_GATHER(.axis = -1, .entries = e, .n_entries = 2)),
                TUTTI_INVALID, TUTTI_FIELD_AXIS, "count from the first one");
        expect_refusal(tutti_gather(g, &TUTTI_GATHER(.axis = 1, .entries = e, .n_entries = 2)), TUTTI_INVALID,
                TUTTI_FIELD_AXIS, "axis 1");
        expect_refusal(tutti_gather(g, &TUTTI_GATHER(.entries = e)), TUTTI_INVALID, TUTTI_FIELD_BATCH_LENGTH,
                "a gather needs at least one entry");
        e[0].destinations.where = TUTTI_TO_SAME;
        e[0].output = NULL;
        expect_refusal(tutti_gather(g, &TUTTI_GATHER(.entries = e, .n_entries = 1)), TUTTI_INVALID,
                TUTTI_FIELD_DESTINATIONS, "another shape than the value");
        expect_refusal(scatter(g, e, NULL), TUTTI_INVALID, TUTTI_FIELD_DESTINATIONS, "another shape");
        e[0].destinations = (struct tutti_destinations){ .where = TUTTI_TO_RANK, .rank = 0 };
        e[0].output = &from;
        expect_refusal(scatter(g, e, NULL), TUTTI_INVALID, TUTTI_FIELD_DESTINATIONS,
                "a reduce_scatter gives each replica a slice of its own");
        e[0].destinations.where = TUTTI_TO_ALL;
        expect_refusal(scatter(g, e, &TUTTI_OPTIONS(.check_inputs = 1)), TUTTI_UNSUPPORTED,
                TUTTI_FIELD_OPTIONS, "check_inputs");
        expect_refusal(scatter(g, e, &TUTTI_OPTIONS(.algorithm = "hierarchical_copy")), TUTTI_UNSUPPORTED,
                TUTTI_FIELD_OPTIONS, "hierarchical_copy cannot do this reduce_scatter");
        expect_refusal(reduce_over(g, TUTTI_SUM, 5, &from, &line), TUTTI_INVALID, TUTTI_FIELD_AXIS, "axis 5");
        expect_refusal(reduce_over(g, TUTTI_SUM, 0, &from, &to), TUTTI_INVALID, TUTTI_FIELD_SHAPE,
                "the output, [4,2], is not the input, [2,2], without the axes");
        int32_t twice[] = { 0, -2 };
        expect_refusal(tutti_reduce_over(g, &TUTTI_REDUCE_OVER(.op = TUTTI_SUM, .axes = twice, .n_axes = 2,
                                                    .entries = e, .n_entries = 1)),
                TUTTI_INVALID, TUTTI_FIELD_AXIS, "axis -2 is given twice");
        const struct tutti_value nothing = FLOATS(in, 0, 2);
        expect_refusal(reduce_over(g, TUTTI_SUM, 0, &nothing, &line), TUTTI_INVALID, TUTTI_FIELD_EXTENT,
                "there is nothing along the axes to combine");
        expect_refusal(tutti_gather(g, &(struct tutti_gather_args){ .axis = 0 }), TUTTI_INVALID,
                TUTTI_FIELD_SIZE, "do not begin with their size");
        expect_to_go_on(g, NULL);
}

START_TEST(TE4_TE13_P15_what_makes_no_sense_is_refused_naming_the_field) {
        run_in(2, be_refused);
}
END_TEST

/* Outputs over inputs: refused, naming both; alone in place it is nothing to do. */
static void overlap(struct replica *me) {
        struct tutti_group *g = join(me);
        struct array a;
        array_init(me->t, &a, TUTTI_F32, 8);
        struct tutti_value from = a.value, to = a.value;
        from.shape[0] = 2;
        from.offset = me->rank * 8;
        enum tutti_status status = tutti_all_gather(g, NULL, 0, &from, &to, NULL);
        expect_status(status, TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_OVERLAP);
        ((float *)a.data)[1] = 5;
        if (me->n == 1)
                expect_status(tutti_all_gather(g, NULL, 0, &a.value, &a.value, NULL), TUTTI_OK);
        ck_assert_float_eq(((float *)a.data)[1], 5);
}

START_TEST(P14_an_output_lies_apart_from_all_inputs) {
        run_in(1, overlap);
        run_in(2, overlap);
}
END_TEST

UNIT_MAIN("axes", 60, B5_one_does_all_reduce_and_another_all_gather,
        TB10_all_gather_of_equal_shapes_along_each_axis, TE13_TE14_lengths_may_differ_along_the_axis,
        TE13_equal_shapes_of_one_to_three_dimensions_along_each_axis,
        TE13_TE14_P4_what_differs_elsewhere_is_a_mismatch_for_all, TE14_a_nest_is_a_batch,
        TE14_the_gradient_of_all_gather_is_a_reduce_scatter,
        P4_P7_an_output_that_lacks_room_is_refused_for_all_before_a_byte_is_written,
        P14_a_result_is_as_long_as_it_is_and_nothing_else_is_touched,
        P14_a_gather_into_a_result_object_is_written_once_for_all, P4_a_long_batch_tells_all_its_lengths,
        P10_each_replica_gets_its_slice_of_what_all_reduce_gives, shares_are_even_and_add_up,
        P4_P7_slices_that_do_not_add_up_are_refused_naming_everybodys,
        P5_a_group_that_has_shrunk_gathers_what_is_there_and_shares_the_whole,
        TE4_P12_a_mean_over_an_axis_weighs_uneven_replicas_right,
        P10_P12_long_axes_are_one_chain_and_exact_sums,
        TE4_TE13_P15_what_makes_no_sense_is_refused_naming_the_field,
        P14_an_output_lies_apart_from_all_inputs)
