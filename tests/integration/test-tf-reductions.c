/* TensorFlow's statements about its cross-device reductions, by every algorithm that a host has, on one and
 * on several host devices, in packs of every kind. Where numbers are exact all algorithms give the same. */
#include <stdio.h>
#include <string.h>
#include <tutti/admin.h>
#include <tutti/merge.h>
#include "meeting.h"

/* Every way that works on a host. */
static const struct tutti_options ways[] = {
        TUTTI_OPTIONS(.timeout = 0),
        TUTTI_OPTIONS(.algorithm = "one_device"),
        TUTTI_OPTIONS(.algorithm = "auto", .reproducible = 1),
        TUTTI_OPTIONS(.device = "CPU:0"),
        TUTTI_OPTIONS(.algorithm = "hierarchical_copy"),
        TUTTI_OPTIONS(.algorithm = "hierarchical_copy", .num_packs = 8),
        TUTTI_OPTIONS(.algorithm = "hierarchical_copy", .agg_small_grads_max_bytes = 100,
                .agg_small_grads_max_group = 10),
        TUTTI_OPTIONS(.algorithm = "hierarchical_copy", .bytes_per_pack = 1),
        TUTTI_OPTIONS(.algorithm = "hierarchical_copy", .bytes_per_pack = 4),
        TUTTI_OPTIONS(.implementation = TUTTI_AUTO),
        TUTTI_OPTIONS(.implementation = TUTTI_RING),
        TUTTI_OPTIONS(.implementation = TUTTI_NCCL, .num_packs = 1),
};

#define N_WAYS (sizeof(ways) / sizeof(*ways))

static void reduce(struct tutti_group *g, enum tutti_op op, const struct floats *in, const struct floats *out,
        const struct tutti_options *options) {
        struct tutti_work *w;
        expect_status(tutti_all_reduce_start(g, NULL, op, &in->value, &out->value, options, &w), TUTTI_OK);
        expect_work(w, TUTTI_OK);
        tutti_work_free(w);
}

static void batch(struct tutti_group *g, enum tutti_op op, const struct tutti_entry *entries, uint32_t n,
        const struct tutti_options *options) {
        struct tutti_work *w;
        expect_status(tutti_batch_reduce_start(g, NULL, op, entries, n, options, &w), TUTTI_OK);
        expect_work(w, TUTTI_OK);
        tutti_work_free(w);
}

/* TA1, TA2: inputs r and r + 1; D is the number of replicas. */
static void reduce_ramps(struct replica *me, struct tutti_group *g) {
        const float d = (float)me->n, r = (float)me->rank;
        struct floats a, b, to_a, to_b;
        floats_init(me->t, &a, 33);
        floats_init(me->t, &b, 7);
        floats_init(me->t, &to_a, 33);
        floats_init(me->t, &to_b, 7);
        floats_fill(&a, r);
        floats_fill(&b, r + 1);
        const struct tutti_entry entries[] = {
                TUTTI_ENTRY(.input = &a.value, .output = &to_a.value),
                TUTTI_ENTRY(.input = &b.value, .output = &to_b.value),
        };
        for (size_t i = 0; i < N_WAYS; i++) {
                reduce(g, TUTTI_SUM, &a, &to_a, &ways[i]);
                floats_expect(&to_a, d * (d - 1) / 2);
                reduce(g, TUTTI_MEAN, &a, &to_a, &ways[i]);
                floats_expect(&to_a, (d - 1) / 2);
                batch(g, TUTTI_SUM, entries, 2, &ways[i]);
                floats_expect(&to_a, d * (d - 1) / 2);
                floats_expect(&to_b, d * (d + 1) / 2);
                batch(g, TUTTI_MEAN, entries, 2, &ways[i]);
                floats_expect(&to_a, (d - 1) / 2);
                floats_expect(&to_b, (d + 1) / 2);
        }
}

/* TA3; TB4 with the first replicas' [1,2], [3,4], ... */
static void broadcast_and_batch(struct replica *me, struct tutti_group *g) {
        const float n = (float)me->n;
        struct floats f, pair;
        struct tutti_work *w;
        floats_init(me->t, &f, 5);
        floats_init(me->t, &pair, 2);
        for (size_t i = 0; i < N_WAYS; i++) {
                floats_fill(&f, me->rank == 0 ? 1 : 9);
                expect_status(tutti_broadcast_start(g, NULL, 0, &f.value, &ways[i], &w), TUTTI_OK);
                expect_work(w, TUTTI_OK);
                tutti_work_free(w);
                floats_expect(&f, 1);
                pair.data[0] = 2 * (float)me->rank + 1;
                pair.data[1] = 2 * (float)me->rank + 2;
                const struct tutti_entry entry =
                        TUTTI_ENTRY(.input = &pair.value, .destinations = { .where = TUTTI_TO_SAME });
                batch(g, TUTTI_SUM, &entry, 1, &ways[i]);
                ck_assert(pair.data[0] == n * n && pair.data[1] == n * (n + 1));
        }
}

static void do_all(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        reduce_ramps(me, g);
        broadcast_and_batch(me, g);
}

static void run_on_devices(
        uint32_t n_devices, const uint32_t *worlds, size_t n_worlds, void (*body)(struct replica *)) {
        char devices[32];
        snprintf(devices, sizeof(devices), "cpu.devices=%u", n_devices);
        board_init();
        struct host *h = host_start((const char *[]){ "--set", devices, NULL });
        for (size_t i = 0; i < n_worlds; i++)
                run_replicas(h, worlds[i], body, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}

static const uint32_t all_worlds[] = { 1, 2, 3, 4, 5, 7, 8 };

START_TEST(TA1_TA2_TA3_TA4_TB1_TB4_by_every_algorithm_with_1_to_8_replicas) {
        run_on_devices(4, all_worlds, 7, do_all);
}
END_TEST

START_TEST(TA1_TA2_TA3_TA4_TB1_TB4_by_every_algorithm_with_16_replicas) {
        run_on_devices(4, (const uint32_t[]){ 16 }, 1, do_all);
}
END_TEST

START_TEST(TA1_TA2_TA3_TA4_TB1_TB4_by_every_algorithm_on_1_to_8_devices) {
        for (uint32_t n = 1; n <= 8; n++)
                run_on_devices(n, (const uint32_t[]){ 4 }, 1, do_all);
}
END_TEST

/* --- where it runs --- */

static uint64_t count_tasks(struct tutti *t, const char *device) {
        struct tutti_answer *answer;
        uint64_t n = UINT64_MAX;
        expect_status(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &answer), TUTTI_OK);
        for (size_t i = 0; i < answer->n_rows; i++)
                if (answer->rows[i].type == TUTTI_ROW_DEVICE &&
                        strcmp(answer->rows[i].device.name, device) == 0)
                        n = answer->rows[i].device.n_tasks;
        tutti_answer_free(answer);
        return n;
}

static void choose_device(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        floats_init(me->t, &f, 100);
        floats_fill(&f, 1);
        for (int i = 0; i < 5; i++)
                reduce(g, TUTTI_MAX, &f, &f, &TUTTI_OPTIONS(.device = "CPU:3"));
        floats_expect(&f, 1);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        ck_assert_uint_eq(count_tasks(me->t, "CPU:3"), 5);
        ck_assert_uint_eq(count_tasks(me->t, "CPU:0"), 0);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        reduce(g, TUTTI_SUM, &f, &f, &TUTTI_OPTIONS(.algorithm = "hierarchical_copy"));
        floats_expect(&f, 2);
}

/* ReductionToOneDevice(reduce_to_device): also one that holds no replica. */
START_TEST(TF21_one_device_is_the_one_that_is_named) {
        run_on_devices(4, (const uint32_t[]){ 2 }, 1, choose_device);
}
END_TEST

/* --- larger than what a round holds, and in place --- */

static void reduce_much(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const struct tutti_options options = TUTTI_OPTIONS(.algorithm = "hierarchical_copy", .num_packs = 5);
        floats_init(me->t, &f, 3 << 20);
        floats_fill(&f, (float)me->rank + 1);
        for (int i = 0; i < 3; i++)
                reduce(g, TUTTI_MEAN, &f, &f, &options);
        floats_expect(&f, 2);
}

START_TEST(P10_large_values_by_hierarchical_copy) {
        run_on_devices(3, (const uint32_t[]){ 3 }, 1, reduce_much);
}
END_TEST

/* --- what cannot be --- */

static void expect_refused(struct tutti_group *g, const struct floats *f, const struct tutti_options *options,
        enum tutti_status status, const char *part) {
        struct tutti_work *w;
        expect_status(
                tutti_all_reduce_start(g, NULL, TUTTI_SUM, &f->value, &f->value, options, &w), TUTTI_OK);
        expect_work(w, status);
        ck_assert_int_eq(tutti_work_error(w)->field, TUTTI_FIELD_OPTIONS);
        expect_in(tutti_work_error(w)->text, part);
        tutti_work_free(w);
}

static void demand(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        floats_init(me->t, &f, 10);
        floats_fill(&f, 3);
        expect_refused(g, &f, &TUTTI_OPTIONS(.algorithm = "library"), TUTTI_UNSUPPORTED,
                "library cannot do this reduce: host devices have no library");
        expect_refused(g, &f, &TUTTI_OPTIONS(.algorithm = "hierarchical_copy", .check_inputs = 1),
                TUTTI_UNSUPPORTED, "check_inputs reads each input once");
        expect_refused(g, &f, &TUTTI_OPTIONS(.algorithm = "sorcery"), TUTTI_UNSUPPORTED,
                "an algorithm other than one_device, hierarchical_copy and library");
        expect_refused(g, &f, &TUTTI_OPTIONS(.device = "CPU:2"), TUTTI_INVALID,
                "CPU:2 is to reduce, but this tuttid has CPU:0 to CPU:1");
        expect_refused(g, &f, &TUTTI_OPTIONS(.device = "the fast one"), TUTTI_INVALID, "name it like CPU:0");
        expect_refused(g, &f, &TUTTI_OPTIONS(.reproducible = 1, .algorithm = "hierarchical_copy"),
                TUTTI_INVALID, "which hierarchical_copy does not keep");
        expect_refused(
                g, &f, &TUTTI_OPTIONS(.agg_small_grads_max_bytes = 1), TUTTI_INVALID, "give both or none");
        floats_expect(&f, 3); /* nothing was written, and the group works */
        expect_status(floats_sum(g, NULL, &f), TUTTI_OK);
        floats_expect(&f, 6);
}

START_TEST(P15_what_is_demanded_and_cannot_be_is_refused) {
        run_on_devices(2, (const uint32_t[]){ 2 }, 1, demand);
}
END_TEST

static void differ(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        floats_init(me->t, &f, 10);
        expect_refused(g, &f, &TUTTI_OPTIONS(.num_packs = 1 + me->rank), TUTTI_MISMATCH, "num_packs=2");
        struct tutti_work *w; /* priority is each replica's own */
        expect_status(tutti_all_reduce_start(g, NULL, TUTTI_SUM, &f.value, &f.value,
                              &TUTTI_OPTIONS(.priority = (int32_t)me->rank), &w),
                TUTTI_OK);
        expect_work(w, TUTTI_OK);
        tutti_work_free(w);
}

START_TEST(P4_replicas_agree_on_packs) {
        run_on_devices(1, (const uint32_t[]){ 2 }, 1, differ);
}
END_TEST

/* --- scratch --- */

static void exceed(struct replica *me) {
        struct floats f;
        struct tutti_work *w;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const struct tutti_options options = TUTTI_OPTIONS(.algorithm = "hierarchical_copy");
        floats_init(me->t, &f, 100000);
        expect_status(tutti_all_reduce_start(g, NULL, TUTTI_SUM, &f.value, &f.value, &options, &w), TUTTI_OK);
        expect_work(w, TUTTI_QUOTA);
        expect_in(tutti_work_error(w)->text, "result-bytes");
        tutti_work_free(w);
        expect_status(floats_sum(g, NULL, &f), TUTTI_OK);
        floats_deinit(&f);
        floats_init(me->t, &f, 1000);
        reduce(g, TUTTI_SUM, &f, &f, &options);
}

START_TEST(P18_scratch_is_charged_to_the_user) {
        board_init();
        struct host *h = host_start((const char *[]){ "--set", "quota.result-bytes=64 KiB", NULL });
        run_replicas(h, 2, exceed, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- hints and limits --- */

/* What stands in the head of the plan of one float by this implementation. */
static void expect_plan(struct tutti *t, enum tutti_implementation implementation, const char *text) {
        const struct tutti_options options = TUTTI_OPTIONS(.implementation = implementation);
        const struct tutti_value value = TUTTI_VALUE(.dtype = TUTTI_F32);
        struct tutti_answer *a;
        expect_status(tutti_admin_plan(t,
                              &TUTTI_PLAN_QUESTION(.kind = TUTTI_KIND_REDUCE, .op = TUTTI_SUM,
                                      .world_size = 2, .values = &value, .n_values = 1, .options = &options),
                              &a),
                TUTTI_OK);
        ck_assert_uint_ge(a->n_rows, 1);
        ck_assert_int_eq(a->rows[0].type, TUTTI_ROW_PLAN);
        expect_in(a->rows[0].plan.fallback, text);
        tutti_answer_free(a);
}

static void hint(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        floats_init(me->t, &f, 10);
        floats_fill(&f, 3);
        reduce(g, TUTTI_SUM, &f, &f, &TUTTI_OPTIONS(.implementation = TUTTI_NCCL));
        floats_expect(&f, 6);
        expect_plan(me->t, TUTTI_NCCL, "NCCL was asked for, but host devices have no library");
        expect_plan(me->t, TUTTI_RING, "");
}

START_TEST(TD11_P15_a_hint_of_nccl_on_a_host_works_and_is_told) {
        run_on_devices(1, (const uint32_t[]){ 2 }, 1, hint);
}
END_TEST

/* TensorFlow's four gradients: 3 + 1 in packs of 200 bytes, all by themselves, all in one, or as may be. */
static void limit_packs(struct replica *me) {
        static const size_t sizes[] = { 32, 8, 200, 1 };
        static const uint64_t limits[] = { 200, 0, 1, UINT64_MAX };
        struct floats f[4];
        struct tutti_entry entries[4];
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        for (size_t i = 0; i < 4; i++) {
                floats_init(me->t, &f[i], sizes[i]);
                entries[i] = TUTTI_ENTRY(.input = &f[i].value, .output = &f[i].value);
        }
        for (size_t k = 0; k < sizeof(limits) / sizeof(*limits); k++) {
                for (size_t i = 0; i < 4; i++)
                        floats_fill(&f[i], (float)(i + 1));
                batch(g, TUTTI_SUM, entries, 4,
                        &TUTTI_OPTIONS(.algorithm = "hierarchical_copy", .bytes_per_pack = limits[k]));
                for (size_t i = 0; i < 4; i++)
                        floats_expect(&f[i], (float)((i + 1) * me->n));
        }
}

START_TEST(TC4_TC5_TC7_P10_packs_of_any_limit_change_no_number) {
        run_on_devices(3, (const uint32_t[]){ 3 }, 1, limit_packs);
}
END_TEST

/* --- a base set --- */

static void merge(struct replica *me) {
        struct floats f;
        const struct tutti_options base = TUTTI_OPTIONS(.algorithm = "library"); /* which no host has */
        struct tutti_group *g = replica_join_group(
                me, &TUTTI_JOIN(.group = "train", .default_timeout = 20, .options = &base));
        floats_init(me->t, &f, 10);
        floats_fill(&f, 1);
        expect_status(floats_sum(g, NULL, &f), TUTTI_UNSUPPORTED);
        reduce(g, TUTTI_SUM, &f, &f, &TUTTI_OPTIONS(.algorithm = "one_device"));
        reduce(g, TUTTI_SUM, &f, &f, &TUTTI_OPTIONS(.reset = TUTTI_RESET_ALGORITHM));
        floats_expect(&f, 4);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK); /* no reduction */
}

START_TEST(TC7_options_of_a_membership_hold_where_a_call_says_nothing) {
        run_on_devices(1, (const uint32_t[]){ 2 }, 1, merge);
}
END_TEST

/* What a membership says of roundings, weights and equal rows is said of the collectives that have any: all
 * others go on as if it were not there. */
static enum tutti_status do_nothing(struct tutti_merge *m, void *userdata) {
        (void)m;
        (void)userdata;
        return TUTTI_OK;
}

static void have_a_rounding(struct replica *me) {
        const struct tutti_options base = TUTTI_OPTIONS(.rounding = TUTTI_FLOOR, .coalesce = 1);
        struct tutti_group *g = replica_join_group(
                me, &TUTTI_JOIN(.group = "train", .default_timeout = 20, .options = &base));
        int32_t i = me->rank ? -4 : -3, truncated = 0;
        double mean = 0;
        float x = (float)me->rank + 1;
        const struct tutti_value v = TUTTI_VALUE(.memory = &x, .dtype = TUTTI_F32),
                                 whole = TUTTI_VALUE(.memory = &i, .dtype = TUTTI_I32),
                                 to_whole = TUTTI_VALUE(.memory = &truncated, .dtype = TUTTI_I32),
                                 to_mean = TUTTI_VALUE(.memory = &mean, .dtype = TUTTI_F64);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        expect_status(tutti_merge_call(g, &TUTTI_MERGE(.fn = do_nothing)), TUTTI_OK);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &v, &v), TUTTI_OK);
        ck_assert_float_eq(x, 3);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_MEAN, &v, &v), TUTTI_OK);
        ck_assert_float_eq(x, 3);
        expect_status(tutti_broadcast(g, NULL, 0, &v), TUTTI_OK);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_MEAN, &whole, &to_whole), TUTTI_OK);
        ck_assert_int_eq(truncated, -4);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_MEAN, &whole, &to_mean), TUTTI_OK);
        ck_assert_double_eq(mean, -3.5);
        struct tutti_work *w; /* a call that says so itself has a reason, which is not to be seen here */
        expect_status(tutti_all_reduce_start(
                              g, NULL, TUTTI_SUM, &v, &v, &TUTTI_OPTIONS(.rounding = TUTTI_TRUNC), &w),
                TUTTI_OK);
        expect_work(w, TUTTI_INVALID);
        tutti_work_free(w);
}

static void have_a_weight(struct replica *me) {
        const struct tutti_options base = TUTTI_OPTIONS(.has_weight = 1, .weight = me->rank ? 3 : 1);
        struct tutti_group *g = replica_join_group(
                me, &TUTTI_JOIN(.group = "train", .default_timeout = 20, .options = &base));
        float x = me->rank ? 2 : 10, y = 0;
        int32_t i = 1;
        const struct tutti_value v = TUTTI_VALUE(.memory = &x, .dtype = TUTTI_F32),
                                 to = TUTTI_VALUE(.memory = &y, .dtype = TUTTI_F32),
                                 whole = TUTTI_VALUE(.memory = &i, .dtype = TUTTI_I32);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_MAX, &v, &to), TUTTI_OK);
        ck_assert_float_eq(y, 10);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_MEAN, &v, &to), TUTTI_OK);
        ck_assert_float_eq(y, 4);
        expect_status(tutti_broadcast(g, NULL, 1, &v), TUTTI_OK);
        ck_assert_float_eq(x, 2);
        /* A sum that would be another one without the weight is not made without it. */
        enum tutti_status status = tutti_all_reduce(g, "whole", TUTTI_SUM, &whole, &whole);
        if (status == TUTTI_EXPIRED)
                status = tutti_error_info()->cause;
        ck_assert(status == TUTTI_UNSUPPORTED || status == TUTTI_PEER_REFUSED);
        ck_assert_int_eq(i, 1);
}

START_TEST(TC7_P15_options_of_a_membership_are_for_what_has_them) {
        run_on_devices(1, (const uint32_t[]){ 2 }, 1, have_a_rounding);
        run_on_devices(1, (const uint32_t[]){ 2 }, 1, have_a_weight);
}
END_TEST

UNIT_MAIN("tf-reductions", 170, TA1_TA2_TA3_TA4_TB1_TB4_by_every_algorithm_with_1_to_8_replicas,
        TA1_TA2_TA3_TA4_TB1_TB4_by_every_algorithm_with_16_replicas,
        TA1_TA2_TA3_TA4_TB1_TB4_by_every_algorithm_on_1_to_8_devices,
        TF21_one_device_is_the_one_that_is_named, P10_large_values_by_hierarchical_copy,
        P15_what_is_demanded_and_cannot_be_is_refused, P4_replicas_agree_on_packs,
        P18_scratch_is_charged_to_the_user, TD11_P15_a_hint_of_nccl_on_a_host_works_and_is_told,
        TC4_TC5_TC7_P10_packs_of_any_limit_change_no_number,
        TC7_options_of_a_membership_hold_where_a_call_says_nothing,
        TC7_P15_options_of_a_membership_are_for_what_has_them)
