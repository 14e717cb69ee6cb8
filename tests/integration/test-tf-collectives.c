/* TensorFlow's statements about whole programs (TA8, TB7, TB11 to TB16), with their numbers,
 * through the real tuttid: batches in replica context, branches, threads, plain memory, mixed orders, several
 * processes with several replicas each. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include "meeting.h"
#include "replica.h"
#include "slices.h"
#include "unit.h"

static const uint32_t worlds[] = { 1, 2, 3, 4, 5, 7, 8, 16 };

static void run_in_all_worlds(void (*body)(struct replica *)) {
        board_init();
        struct host *h = host_start((const char *[]){ "--set", "cpu.devices=4", NULL });
        for (size_t i = 0; i < sizeof(worlds) / sizeof(*worlds); i++)
                run_replicas(h, worlds[i], body, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}

static struct tutti_entry to(const struct floats *from, const struct floats *to_there) {
        return TUTTI_ENTRY(.input = &from->value, .output = &to_there->value);
}

/* --- TA8 --- */

/* A mirrored variable as value and destination: the mean of equal values is that value, and a plain result.
 */
static void mean_of_a_mirrored_one(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        static const struct tutti_destinations same = { .where = TUTTI_TO_SAME };
        struct floats variable, results[2];
        floats_init(me->t, &variable, 3);
        floats_fill(&variable, 1);
        expect_status(tutti_reduce(g, NULL, TUTTI_MEAN, &variable.value, NULL, &same), TUTTI_OK);
        floats_expect(&variable, 1);
        for (int i = 0; i < 2; i++)
                floats_init(me->t, &results[i], 3);
        const struct tutti_entry entries[] = { to(&variable, &results[0]), to(&variable, &results[1]) };
        expect_status(tutti_batch_reduce(g, NULL, TUTTI_MEAN, entries, 2), TUTTI_OK);
        floats_expect(&results[0], 1);
        floats_expect(&results[1], 1);
        floats_expect(&variable, 1);
}

START_TEST(TA8_a_mirrored_variable_is_value_and_destination) {
        run_in_all_worlds(mean_of_a_mirrored_one);
}
END_TEST

/* --- TB7 --- */

static void all_reduce_a_nest(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const float n = (float)me->n;
        struct floats one, two, to_one, to_two;
        floats_init(me->t, &one, 1);
        floats_init(me->t, &two, 2);
        floats_init(me->t, &to_one, 1);
        floats_init(me->t, &to_two, 2);
        floats_fill(&one, 1);
        floats_fill(&two, 2);
        const struct tutti_entry nest[] = { to(&one, &to_one), to(&two, &to_two) };
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &one.value, &to_one.value), TUTTI_OK);
        floats_expect(&to_one, n);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_MEAN, &one.value, &to_one.value), TUTTI_OK);
        floats_expect(&to_one, 1);
        expect_status(tutti_batch_reduce(g, NULL, TUTTI_SUM, nest, 2), TUTTI_OK);
        floats_expect(&to_one, n);
        floats_expect(&to_two, 2 * n);
        expect_status(tutti_batch_reduce(g, NULL, TUTTI_MEAN, nest, 2), TUTTI_OK);
        floats_expect(&to_one, 1);
        floats_expect(&to_two, 2);
}

START_TEST(TB7_all_reduce_of_a_value_and_of_a_pair) {
        run_in_all_worlds(all_reduce_a_nest);
}
END_TEST

/* --- TB11 --- */

static void reduce_in_a_branch(struct tutti_group *g, struct floats *f, int condition, float all) {
        if (condition)
                floats_meet(g, "then", f, 1, all);
        else
                floats_meet(g, "else", f, 1, all);
}

/* The condition is itself the result of a reduction, as in a graph. */
static void take_branches(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct floats f, condition;
        floats_init(me->t, &f, 1);
        floats_init(me->t, &condition, 1);
        for (int step = 0; step < 6; step++) {
                floats_fill(&condition, me->rank == 0 && step % 3 == 0 ? 1 : 0);
                expect_status(floats_sum(g, NULL, &condition), TUTTI_OK);
                reduce_in_a_branch(g, &f, condition.data[0] > 0, (float)me->n);
        }
}

START_TEST(TB11_a_reduction_inside_either_branch) {
        run_in_all_worlds(take_branches);
}
END_TEST

/* --- TB12 --- */

struct user_thread {
        struct replica *me;
        struct tutti_group *g;
        const char *key;
        float first, second;
        useconds_t delay;
};

static void *reduce_pairs(void *data) {
        const struct user_thread *u = data;
        struct floats a, b;
        floats_init(u->me->t, &a, 100);
        floats_init(u->me->t, &b, 100);
        const struct tutti_entry pair[] = { to(&a, &a), to(&b, &b) };
        for (int i = 0; i < 50; i++) {
                floats_fill(&a, u->first);
                floats_fill(&b, u->second);
                usleep(i % 5 == 0 ? u->delay : 0);
                expect_status(tutti_batch_reduce(u->g, u->key, TUTTI_SUM, pair, 2), TUTTI_OK);
                floats_expect(&a, 2 * u->first);
                floats_expect(&b, 2 * u->second);
        }
        return NULL;
}

/* The one who is quick in one replica is slow in the other. */
static void two_threads(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct user_thread users[2] = { { me, g, "first", 1, 1, me->rank ? 3000 : 0 },
                { me, g, "second", 2, 2, me->rank ? 0 : 3000 } };
        pthread_t thread;
        ck_assert_int_eq(pthread_create(&thread, NULL, reduce_pairs, &users[1]), 0);
        reduce_pairs(&users[0]);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

START_TEST(TB12_B5_two_threads_reduce_at_the_same_time) {
        replicas_run(2, two_threads);
}
END_TEST

/* --- TB13 --- */

/* Values of which nobody has said where they live: plain memory. */
static void from_arguments(struct tutti_group *g, float a, float b, const float all[2]) {
        struct tutti_value x = TUTTI_VALUE(.memory = &a, .dtype = TUTTI_F32, .n_dims = 1, .shape = { 1 });
        struct tutti_value y = x;
        y.memory = &b;
        const struct tutti_entry pair[] = { TUTTI_ENTRY(.input = &x, .output = &x),
                TUTTI_ENTRY(.input = &y, .output = &y) };
        expect_status(tutti_batch_reduce(g, NULL, TUTTI_SUM, pair, 2), TUTTI_OK);
        ck_assert(a == all[0] && b == all[1]);
}

static void pass_arguments(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        from_arguments(g, 1, (float)me->rank + 1, (const float[]){ 2, 3 });
}

START_TEST(TB13_values_that_come_as_arguments) {
        replicas_run(2, pass_arguments);
}
END_TEST

/* --- TB14 --- */

/* Only rank 0 of two comes. No other collective is touched by it: TensorFlow's runtime would be over. */
static void come_alone(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const struct tutti_options second = TUTTI_OPTIONS(.timeout = 1);
        struct floats f[2];
        struct tutti_work *works[2];
        for (int i = 0; i < 2; i++)
                floats_init(me->t, &f[i], 3);
        const struct tutti_entry pair[] = { to(&f[0], &f[0]), to(&f[1], &f[1]) };
        if (me->rank == 0) {
                double before = seconds_now();
                expect_status(tutti_all_reduce_start(
                                      g, "alone", TUTTI_SUM, &f[0].value, &f[0].value, &second, &works[0]),
                        TUTTI_OK);
                expect_status(
                        tutti_batch_reduce_start(g, "two", TUTTI_SUM, pair, 2, &second, &works[1]), TUTTI_OK);
                for (int i = 0; i < 2; i++) {
                        expect_work(works[i], TUTTI_TIMEOUT);
                        ck_assert_double_ge(seconds_now() - before, 1);
                        ck_assert_double_lt(seconds_now() - before, 1 + 2 * unit_scale());
                        expect_ranks(&tutti_work_error(works[i])->missing, 0x2);
                        tutti_work_free(works[i]);
                }
        }
        expect_status(tutti_barrier(g, "end"), TUTTI_OK);
        if (me->rank == 1) {
                expect_status(floats_sum(g, "alone", &f[0]), TUTTI_EXPIRED);
                expect_status(tutti_batch_reduce(g, "two", TUTTI_SUM, pair, 2), TUTTI_EXPIRED);
        }
        floats_meet(g, "alone", &f[0], 1, 2);
}

START_TEST(TB14_who_waits_in_vain_is_told_after_its_time_and_the_next_call_works) {
        replicas_run(2, come_alone);
}
END_TEST

/* --- TB15 --- */

#define N_PARTS 12

static void dense_part(struct replica *me, struct tutti_group *g, const char *key, int i) {
        struct floats f;
        floats_init(me->t, &f, (size_t)i + 1);
        floats_meet(g, key, &f, (float)i, (float)(2 * i));
}

static void sparse_part(struct replica *me, struct tutti_group *g, const char *key) {
        struct slices in, out;
        slices_init(me->t, &in, &(const struct slices_shape){ TUTTI_F32, TUTTI_I64, 1, 1, 10 });
        slices_init(me->t, &out, &(const struct slices_shape){ TUTTI_F32, TUTTI_I64, 2, 1, 10 });
        slices_set_index(&in, 0, 3 + me->rank);
        ((float *)in.rows.data)[0] = (float)me->rank + 1;
        expect_status(tutti_all_reduce(g, key, TUTTI_SUM, &in.value, &out.value), TUTTI_OK);
        slices_expect(&out, 2, (const float[]){ 1, 2 }, (const int64_t[]){ 3, 4 });
}

struct part {
        struct replica *me;
        struct tutti_group *g;
        int i;
};

static void *run_part(void *data) {
        const struct part *p = data;
        char key[32];
        snprintf(key, sizeof(key), "part/%d", p->i);
        if (p->i % 3 == 0)
                sparse_part(p->me, p->g, key);
        else
                dense_part(p->me, p->g, key, p->i);
        return NULL;
}

/* TensorFlow has to launch in one fixed order. Here the replicas begin in orders of their own, even in
 * opposite ones, since they meet by key (P2). */
static void mix(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        for (int round = 0; round < 3; round++) {
                struct part parts[N_PARTS];
                pthread_t threads[N_PARTS];
                for (int i = 0; i < N_PARTS; i++) {
                        int which = me->rank ? N_PARTS - 1 - i : i;
                        parts[i] = (struct part){ me, g, which };
                        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_part, &parts[i]), 0);
                }
                for (int i = 0; i < N_PARTS; i++)
                        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        }
}

START_TEST(TB15_P2_mixed_reductions_need_no_common_order) {
        replicas_run(2, mix);
}
END_TEST

/* --- TB16 --- */

/* Three workers with `n_local` replicas each: what TA1 says of the local ones, three times. */
static void ramps_of_workers(struct replica *me, struct tutti_group *g, uint64_t bytes_per_pack) {
        const uint32_t n_local = me->n / 3;
        const float d = (float)n_local, r = (float)(me->rank % n_local);
        const struct tutti_options options = TUTTI_OPTIONS(.bytes_per_pack = bytes_per_pack);
        struct floats a, b, to_a, to_b;
        struct floats *const all[] = { &a, &b, &to_a, &to_b };
        for (int i = 0; i < 4; i++)
                floats_init(me->t, all[i], 1);
        const struct tutti_entry entries[] = { to(&a, &to_a), to(&b, &to_b) };
        floats_fill(&a, r);
        floats_fill(&b, r + 1);
        for (int is_mean = 0; is_mean < 2; is_mean++) {
                struct tutti_work *w;
                const float scale = is_mean ? 1 / d : 3;
                expect_status(tutti_batch_reduce_start(
                                      g, NULL, is_mean ? TUTTI_MEAN : TUTTI_SUM, entries, 2, &options, &w),
                        TUTTI_OK);
                expect_work(w, TUTTI_OK);
                tutti_work_free(w);
                floats_expect(&to_a, d * (d - 1) / 2 * scale);
                floats_expect(&to_b, d * (d + 1) / 2 * scale);
        }
}

static void ramps(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        static const uint64_t packs[] = { 0, 1, 4 };
        for (int i = 0; i < 3; i++)
                ramps_of_workers(me, g, packs[i]);
}

START_TEST(TB16_three_workers_with_one_or_two_replicas_and_packs_of_0_1_and_4_bytes) {
        board_init();
        struct host *h = host_start((const char *[]){ "--set", "cpu.devices=3", NULL });
        run_replicas(h, 3, ramps, NULL);
        run_replicas(h, 6, ramps, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("tf-collectives", 60, TA8_a_mirrored_variable_is_value_and_destination,
        TB7_all_reduce_of_a_value_and_of_a_pair, TB11_a_reduction_inside_either_branch,
        TB12_B5_two_threads_reduce_at_the_same_time, TB13_values_that_come_as_arguments,
        TB14_who_waits_in_vain_is_told_after_its_time_and_the_next_call_works,
        TB15_P2_mixed_reductions_need_no_common_order,
        TB16_three_workers_with_one_or_two_replicas_and_packs_of_0_1_and_4_bytes)
