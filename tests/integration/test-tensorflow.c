/* What the tests of tf.distribute's utilities (TC) and of its collective runtime (TD) assert, with their
 * numbers; where a promise of ours differs, the promise. */
#include <string.h>
#include <tutti/axes.h>
#include <tutti/merge.h>
#include "meeting.h"

static struct tutti_value matrix(float *f, uint64_t rows, uint64_t columns) {
        return TUTTI_VALUE(.memory = f, .dtype = TUTTI_F32, .n_dims = 2, .shape = { rows, columns });
}

static struct tutti_value vector(float *f, uint64_t n) {
        return TUTTI_VALUE(.memory = f, .dtype = TUTTI_F32, .n_dims = 1, .shape = { n });
}

static void expect_floats(const float *got, const float *want, size_t n) {
        for (size_t i = 0; i < n; i++)
                ck_assert_float_eq(got[i], want[i]);
}

/* --- TC: utilities --- */

static enum tutti_status add(
        const void *const *inputs, uint32_t n, void *output, uint64_t count, void *userdata) {
        (void)userdata;
        for (uint32_t r = 0; r < n; r++)
                for (uint64_t i = 0; i < count; i++)
                        ((float *)output)[i] += ((const float *)inputs[r])[i];
        return TUTTI_OK;
}

static void aggregate(struct replica *me) {
        float mine[2][6] = { { 1, 2, 0, 0, 3, 4 }, { 0, 0, 5, 6, 7, 8 } }, out[6];
        static const float sum[] = { 1, 2, 5, 6, 10, 12 };
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const struct tutti_value in = matrix(mine[me->rank], 3, 2), to = matrix(out, 3, 2);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &in, &to), TUTTI_OK);
        expect_floats(out, sum, 6);
        memset(out, 0, sizeof(out));
        expect_status(
                tutti_reduce_with(g, &TUTTI_REDUCE_WITH(.fn = add, .input = &in, .output = &to)), TUTTI_OK);
        expect_floats(out, sum, 6);
}

START_TEST(TC1_dense_values_are_added_by_op_and_by_accumulation_function) {
        replicas_run(2, aggregate);
}
END_TEST

static void divide(struct replica *me) {
        float in[6] = { 1, 2, 0, 0, 3, 4 }, out[6];
        static const float half[] = { .5f, 1, 0, 0, 1.5f, 2 };
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const struct tutti_value from = matrix(in, 3, 2), to = matrix(out, 3, 2);
        if (me->rank == 1)
                memset(in, 0, sizeof(in));
        expect_status(tutti_all_reduce(g, NULL, TUTTI_MEAN, &from, &to), TUTTI_OK);
        expect_floats(out, half, 6);
}

START_TEST(TC2_a_mean_of_two_is_the_sum_divided_by_2) {
        replicas_run(2, divide);
}
END_TEST

static void copy(struct replica *me) {
        float x[6] = { 0 };
        static const float want[] = { 1, 2, 0, 0, 3, 4 };
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const struct tutti_value v = matrix(x, 3, 2);
        if (me->rank == me->n - 1)
                memcpy(x, want, sizeof(x));
        expect_status(tutti_broadcast(g, NULL, me->n - 1, &v), TUTTI_OK);
        expect_floats(x, want, 6);
}

START_TEST(TC3_a_copy_is_the_value_everywhere) {
        for (uint32_t n = 1; n <= 8; n += n == 5 ? 2 : 1)
                replicas_run(n, copy);
}
END_TEST

/* --- TD: the runtime --- */

static void gather_into(struct tutti_group *g, float *in, uint64_t n, float *out) {
        const struct tutti_value from = vector(in, n), to = vector(out, n * tutti_world_size(g));
        uint64_t extent;
        expect_status(tutti_all_gather(g, NULL, 0, &from, &to, &extent), TUTTI_OK);
        ck_assert_uint_eq(extent, n * tutti_world_size(g));
}

static void be_alone(struct replica *me) {
        float x[] = { 3, 1, 4 }, out[3];
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const struct tutti_value from = vector(x, 3), to = vector(out, 3);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &from, &to), TUTTI_OK);
        expect_floats(out, x, 3);
        memset(out, 0, sizeof(out));
        gather_into(g, x, 3, out);
        expect_floats(out, x, 3);
}

START_TEST(TD1_alone_reduce_and_gather_return_the_input) {
        replicas_run(1, be_alone);
}
END_TEST

static void be_two(struct replica *me) {
        float one = 1, sum = 0, both[2] = { 0 }, x[3] = { 0 };
        static const float abc[] = { 1, 2, 3 };
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const struct tutti_value from = vector(&one, 1), to = vector(&sum, 1), v = vector(x, 3);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &from, &to), TUTTI_OK);
        ck_assert_float_eq(sum, 2);
        gather_into(g, &one, 1, both);
        expect_floats(both, (const float[]){ 1, 1 }, 2);
        if (me->rank == 0)
                memcpy(x, abc, sizeof(x));
        expect_status(tutti_broadcast(g, NULL, 0, &v), TUTTI_OK);
        expect_floats(x, abc, 3);
}

START_TEST(TD2_two_members_reduce_gather_and_broadcast) {
        replicas_run(2, be_two);
}
END_TEST

static void say_index(struct replica *me) {
        float index = (float)me->rank, all[16];
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        gather_into(g, &index, 1, all);
        for (uint32_t rank = 0; rank < me->n; rank++)
                ck_assert_float_eq(all[rank], (float)rank);
}

static void say_index_one_of_16(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train", .default_timeout = 20));
        float index = (float)me->rank, all[16];
        gather_into(g, &index, 1, all);
        for (uint32_t rank = 0; rank < 16; rank++)
                ck_assert_float_eq(all[rank], (float)rank);
}

START_TEST(TD3_sixteen_are_gathered_in_the_order_of_their_numbers) {
        replicas_run(5, say_index);
        struct host *h = host_start(NULL);
        run_replicas(h, 16, say_index_one_of_16, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* TensorFlow: INTERNAL, naming expected and got. Ours: MISMATCH, for all, and the key is free again. */
static void use_key_otherwise(struct replica *me) {
        float x = 1;
        int32_t i = 1;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const struct tutti_value v = vector(&x, 1), w = TUTTI_VALUE(.memory = &i, .dtype = TUTTI_I32,
                                                            .n_dims = 1, .shape = { 1 });
        expect_status(me->rank ? tutti_broadcast(g, "k", 0, &v) : tutti_all_reduce(g, "k", TUTTI_SUM, &v, &v),
                TUTTI_MISMATCH);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_KIND);
        expect_in(tutti_error(), "reduce");
        expect_in(tutti_error(), "broadcast");
        const struct tutti_value *mine = me->rank ? &v : &w;
        expect_status(tutti_all_reduce(g, "k", TUTTI_SUM, mine, mine), TUTTI_MISMATCH);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_DTYPE);
        expect_in(tutti_error(), "f32");
        expect_in(tutti_error(), "i32");
        expect_status(tutti_all_reduce(g, "k", TUTTI_SUM, &v, &v), TUTTI_OK);
        ck_assert_float_eq(x, (float)me->n);
}

START_TEST(TD5_a_key_used_for_another_kind_or_dtype_is_a_mismatch_for_all) {
        replicas_run(2, use_key_otherwise);
}
END_TEST

static void be_in_two_groups(struct replica *me) {
        float x = 1;
        const struct tutti_value v = vector(&x, 1);
        if (me->rank < 2) {
                struct tutti_group *pair =
                        replica_join_group(me, &TUTTI_JOIN(.group = "pair", .rank = (int32_t)me->rank,
                                                       .world_size = 2, .default_timeout = 20));
                expect_status(tutti_all_reduce(pair, NULL, TUTTI_SUM, &v, &v), TUTTI_OK);
                ck_assert_float_eq(x, 2);
        }
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        x = 1;
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &v, &v), TUTTI_OK);
        ck_assert_float_eq(x, 3);
}

START_TEST(TD6_groups_of_2_and_3_in_one_process) {
        replicas_run(3, be_in_two_groups);
}
END_TEST

/* TensorFlow aborts everything until a reset; here one key, and the next call works (P7 P8). */
static void give_up_data(struct replica *me) {
        float x = 1;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const struct tutti_value v = vector(&x, 1);
        if (me->rank == 0) {
                struct tutti_work *w;
                expect_status(tutti_all_reduce_start(g, "k", TUTTI_SUM, &v, &v, NULL, &w), TUTTI_OK);
                expect_status(tutti_abort(g, "k", "peer down"), TUTTI_OK);
                expect_work(w, TUTTI_ABORTED);
                expect_in(tutti_work_error(w)->text, "peer down");
                tutti_work_free(w);
        }
        expect_status(tutti_barrier(g, "meet"), TUTTI_OK);
        if (me->rank == 1)
                expect_status(tutti_all_reduce(g, "k", TUTTI_SUM, &v, &v), TUTTI_EXPIRED);
        expect_status(tutti_all_reduce(g, "k", TUTTI_SUM, &v, &v), TUTTI_OK);
        ck_assert_float_eq(x, 2);
}

START_TEST(TD7_an_abort_releases_who_waits_and_the_next_call_works) {
        replicas_run(2, give_up_data);
}
END_TEST

/* In the forming of a group. There is nothing to reset: the name is free again. */
static void form_without_one(struct replica *me) {
        struct tutti_group *g = NULL;
        replica_open(me);
        replica_say(me, "open");
        expect_status(try_join(me->t, &TUTTI_JOIN(.group = "train", .job = "test", .rank = (int32_t)me->rank,
                                              .world_size = 3)),
                TUTTI_REPLICA_LOST);
        ck_assert_int_eq(tutti_error_info()->rank, 1);
        expect_status(tutti_join(me->t,
                              &TUTTI_JOIN(.group = "train", .job = "test", .rank = 0, .world_size = 1), &g),
                TUTTI_OK);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        tutti_group_free(g);
}

START_TEST(TD7_who_waits_for_a_group_hears_of_a_peer_that_is_down) {
        struct replica *r[2];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, form_without_one, NULL, r);
        replicas_expect(r, 2, "open", 5);
        struct host_counters c;
        do
                host_counters(h, &c);
        while (c.n_groups < 1);
        seconds_sleep(0.1); /* both have joined by now */
        replica_kill9(r[1]);
        ck_assert_int_eq(replica_end(r[0], 5), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

static void err_aside(struct replica *me) {
        float x = 1, y = 1;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const struct tutti_value v = vector(&x, 1), w = vector(&y, 1);
        struct tutti_work *pending = NULL;
        expect_status(tutti_all_reduce_start(g, "active", TUTTI_SUM, &v, &v, NULL, &pending), TUTTI_OK);
        enum tutti_status status =
                tutti_all_reduce(g, "bad", me->rank ? TUTTI_SUM : TUTTI_OP_UNSPECIFIED, &w, &w);
        if (status == TUTTI_EXPIRED)
                status = tutti_error_info()->cause;
        expect_status(status, me->rank ? TUTTI_PEER_REFUSED : TUTTI_INVALID);
        expect_work(pending, TUTTI_OK);
        tutti_work_free(pending);
        ck_assert_float_eq(x, 2);
        expect_status(tutti_all_reduce(g, "next", TUTTI_SUM, &w, &w), TUTTI_OK);
        ck_assert_float_eq(y, 2);
}

START_TEST(TD8_an_error_leaves_what_is_active_and_what_comes_alone) {
        replicas_run(2, err_aside);
}
END_TEST

static void stop_waiting(struct replica *me) {
        float x = 1;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const struct tutti_value v = vector(&x, 1);
        if (me->rank == 0) {
                struct tutti_work *w;
                expect_status(tutti_all_reduce_start(g, "k", TUTTI_SUM, &v, &v, NULL, &w), TUTTI_OK);
                expect_status(tutti_work_cancel(w), TUTTI_OK);
                expect_status(tutti_barrier(g, "meet"), TUTTI_OK);
                expect_work(w, TUTTI_OK);
                tutti_work_free(w);
        } else {
                expect_status(tutti_barrier(g, "meet"), TUTTI_OK);
                expect_status(tutti_all_reduce(g, "k", TUTTI_SUM, &v, &v), TUTTI_OK);
        }
        ck_assert_float_eq(x, 2);
}

START_TEST(TD9_a_cancelled_waiter_is_released_and_both_sides_finish) {
        replicas_run(2, stop_waiting);
}
END_TEST

/* Ordering tokens. Ours: keys alone say what is one after the other. Under one key a second half is refused
 * while the first is pending; different keys have no order, so they may begin in opposite ones (P2 P3). */
static void begin_twice(struct tutti_group *g) {
        static const char *const keys[] = { "a", "b", "c" };
        struct tutti_work *works[3], *again = NULL;
        float x[3] = { 1, 10, 100 }, y = 7;
        const struct tutti_value other = vector(&y, 1);
        for (uint32_t k = 0; k < 3; k++) {
                const struct tutti_value v = vector(&x[k], 1);
                expect_status(
                        tutti_all_reduce_start(g, keys[k], TUTTI_SUM, &v, &v, NULL, &works[k]), TUTTI_OK);
        }
        expect_status(tutti_all_reduce_start(g, "a", TUTTI_SUM, &other, &other, NULL, &again), TUTTI_OK);
        expect_work(again, TUTTI_ALREADY_PENDING);
        tutti_work_free(again);
        expect_status(tutti_barrier(g, "now"), TUTTI_OK);
        for (uint32_t k = 0; k < 3; k++) {
                expect_work(works[k], TUTTI_OK);
                tutti_work_free(works[k]);
        }
        expect_floats(x, (const float[]){ 2, 20, 200 }, 3);
        ck_assert_float_eq(y, 7);
}

static void order_by_keys(struct replica *me) {
        static const char *const keys[] = { "c", "b", "a" };
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        float x[3] = { 100, 10, 1 };
        if (me->rank == 0) {
                begin_twice(g);
                return;
        }
        expect_status(tutti_barrier(g, "now"), TUTTI_OK);
        for (uint32_t i = 0; i < 3; i++) {
                const struct tutti_value v = vector(&x[i], 1);
                expect_status(tutti_all_reduce(g, keys[i], TUTTI_SUM, &v, &v), TUTTI_OK);
        }
        expect_floats(x, (const float[]){ 200, 20, 2 }, 3);
}

START_TEST(TD12_one_key_is_one_after_the_other_and_others_are_not) {
        replicas_run(2, order_by_keys);
}
END_TEST

static enum tutti_status never(struct tutti_merge *m, void *userdata) {
        (void)userdata;
        return tutti_merge_fail(m, "it was run");
}

static void name_badly(struct replica *me) {
        char long_key[TUTTI_MAX_KEY_BYTES + 2];
        struct tutti_group *g = join_train(me, TUTTI_FAIL), *none = NULL;
        memset(long_key, 'k', sizeof(long_key) - 1);
        long_key[sizeof(long_key) - 1] = '\0';
        expect_status(tutti_barrier(g, ""), TUTTI_INVALID);
        expect_status(tutti_barrier(g, long_key), TUTTI_INVALID);
        expect_status(tutti_merge_call(g, &TUTTI_MERGE(.key = "", .fn = never)), TUTTI_INVALID);
        expect_status(tutti_merge_call(g, &TUTTI_MERGE(.key = long_key, .fn = never)), TUTTI_INVALID);
        expect_status(tutti_join(me->t, &TUTTI_JOIN(.group = "", .job = "test", .world_size = 1), &none),
                TUTTI_INVALID);
        expect_status(tutti_join(me->t, &TUTTI_JOIN(.group = "g", .job = "test", .world_size = -2), &none),
                TUTTI_INVALID);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
}

START_TEST(TD13_keys_and_sizes_that_are_none_are_invalid) {
        replicas_run(1, name_badly);
}
END_TEST

UNIT_MAIN("tensorflow", 60, TC1_dense_values_are_added_by_op_and_by_accumulation_function,
        TC2_a_mean_of_two_is_the_sum_divided_by_2, TC3_a_copy_is_the_value_everywhere,
        TD1_alone_reduce_and_gather_return_the_input, TD2_two_members_reduce_gather_and_broadcast,
        TD3_sixteen_are_gathered_in_the_order_of_their_numbers,
        TD5_a_key_used_for_another_kind_or_dtype_is_a_mismatch_for_all, TD6_groups_of_2_and_3_in_one_process,
        TD7_an_abort_releases_who_waits_and_the_next_call_works,
        TD7_who_waits_for_a_group_hears_of_a_peer_that_is_down,
        TD8_an_error_leaves_what_is_active_and_what_comes_alone,
        TD9_a_cancelled_waiter_is_released_and_both_sides_finish,
        TD12_one_key_is_one_after_the_other_and_others_are_not, TD13_keys_and_sizes_that_are_none_are_invalid)
