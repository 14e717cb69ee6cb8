/* Replicas meet by key or by number, in any order, and nowhere else (P2 P3, N3). */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "meeting.h"

static struct tutti_group *join(struct replica *me, enum tutti_on_death on_death) {
        board_note_pid(me);
        return replica_join_group(
                me, &TUTTI_JOIN(.group = "train", .default_timeout = 20, .on_death = on_death));
}

/* --- P2: any order, any thread, any number of groups --- */

#define GROUPS   3
#define KEYS     120
#define THREADS  4
#define REPLICAS 3

struct errand {
        struct tutti_group *groups[GROUPS];
        struct floats floats[GROUPS * KEYS];
        struct tutti_work *works[GROUPS * KEYS];
        uint32_t order[GROUPS * KEYS]; /* of starting; each thread takes every fourth */
};

static uint64_t random_next(uint64_t *state) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        return *state >> 33;
}

static void shuffle(uint32_t *order, uint32_t n, uint64_t seed) {
        for (uint32_t i = 0; i < n; i++)
                order[i] = i;
        for (uint32_t i = n - 1; i > 0; i--) {
                uint32_t j = (uint32_t)(random_next(&seed) % (i + 1)), swap = order[i];
                order[i] = order[j];
                order[j] = swap;
        }
}

struct runner {
        struct errand *errand;
        uint32_t number;
        pthread_t thread;
};

static void *run_errands(void *arg) {
        struct runner *r = arg;
        struct errand *e = r->errand;
        for (uint32_t i = r->number; i < GROUPS * KEYS; i += THREADS) {
                uint32_t k = e->order[i];
                char key[16];
                snprintf(key, sizeof(key), "k%u", k % KEYS);
                e->works[k] = floats_start(e->groups[k / KEYS], key, &e->floats[k], 0);
        }
        /* Each waits for what its neighbour has started, too. */
        for (uint32_t i = GROUPS * KEYS; i-- > 0;)
                if (i % THREADS == r->number)
                        expect_work(e->works[e->order[i]], TUTTI_OK);
        return NULL;
}

static void run_all_errands(struct errand *e) {
        struct runner runners[THREADS];
        for (uint32_t i = 0; i < THREADS; i++) {
                runners[i] = (struct runner){ .errand = e, .number = i };
                ck_assert_int_eq(pthread_create(&runners[i].thread, NULL, run_errands, &runners[i]), 0);
        }
        for (uint32_t i = 0; i < THREADS; i++)
                pthread_join(runners[i].thread, NULL);
}

static void meet_in_disorder(struct replica *me) {
        struct errand *e = calloc(1, sizeof(*e));
        ck_assert_ptr_nonnull(e);
        for (uint32_t i = 0; i < GROUPS; i++) {
                char name[8];
                snprintf(name, sizeof(name), "g%u", i);
                e->groups[i] = replica_join_group(me, &TUTTI_JOIN(.group = name));
        }
        for (uint32_t i = 0; i < GROUPS * KEYS; i++)
                floats_init(me->t, &e->floats[i], 4);
        for (uint32_t round = 0; round < 3; round++) {
                for (uint32_t i = 0; i < GROUPS * KEYS; i++)
                        floats_fill(&e->floats[i], (float)((i + round) * (me->rank + 1)));
                shuffle(e->order, GROUPS * KEYS, me->rank * 1000 + round);
                run_all_errands(e);
                for (uint32_t i = 0; i < GROUPS * KEYS; i++) {
                        floats_expect(&e->floats[i], (float)((i + round) * 6));
                        tutti_work_free(e->works[i]);
                }
        }
        free(e);
}

START_TEST(P2_replicas_meet_by_key_in_any_order_from_any_thread_in_several_groups) {
        replicas_run(REPLICAS, meet_in_disorder);
}
END_TEST

/* --- P3: debts --- */

static void expect_ending(
        struct tutti_group *g, struct floats *f, enum tutti_status status, enum tutti_status cause) {
        floats_fill(f, 7);
        expect_status(floats_sum(g, "k", f), status);
        ck_assert_int_eq(tutti_error_info()->cause, cause);
        floats_expect(f, 7);
}

/* 0 and 1 wait twice and give up, and try again a third time; 2 is away meanwhile. */
static void wait_twice(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, TUTTI_FAIL);
        floats_init(me->t, &f, 10);
        if (me->rank == 2) {
                replica_hear(me, "late");
                /* The first had been given up for time, the second by a member. */
                expect_ending(g, &f, TUTTI_EXPIRED, TUTTI_TIMEOUT);
                expect_ending(g, &f, TUTTI_EXPIRED, TUTTI_ABORTED);
                expect_in(tutti_error(), "second thoughts");
                floats_meet(g, "k", &f, 3, 6);
                return;
        }
        struct tutti_work *w;
        struct tutti_options o = TUTTI_OPTIONS(.timeout = 0.1);
        expect_status(tutti_all_reduce_start(g, "k", TUTTI_SUM, &f.value, &f.value, &o, &w), TUTTI_OK);
        expect_work(w, TUTTI_TIMEOUT);
        tutti_work_free(w);
        replica_say(me, "timeout");
        replica_hear(me, "second");
        w = floats_start(g, "k", &f, 0);
        replica_say(me, "submitted");
        replica_hear(me, "go on");
        if (me->rank == 0)
                expect_status(tutti_abort(g, "k", "second thoughts"), TUTTI_OK);
        expect_work(w, TUTTI_ABORTED);
        tutti_work_free(w);
        replica_say(me, "aborted");
        replica_hear(me, "third");
        floats_meet(g, "k", &f, (float)me->rank + 1, 6);
}

START_TEST(P3_late_comers_pay_their_debts_and_never_meet_a_retry) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, wait_twice, NULL, r);
        replicas_expect(r, 2, "timeout", 10);
        host_expect_pending(h, 1);
        replicas_tell(r, 2, "second");
        replicas_expect(r, 2, "submitted", 10);
        host_expect_pending(h, 3);
        replicas_tell(r, 2, "go on");
        replicas_expect(r, 2, "aborted", 10);
        host_expect_pending(h, 2);
        /* The third is pending when the late one comes, and meets only its third. */
        replicas_tell(r, 2, "third");
        host_expect_pending(h, 4);
        replica_tell(r[2], "late");
        replicas_end(h, r, 3);
}
END_TEST

/* A key may be used again at once, by each as soon as its own use has ended. */
static void use_one_key_again(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, TUTTI_FAIL);
        floats_init(me->t, &f, 10);
        for (int i = 0; i < 500; i++)
                floats_meet(g, "k", &f, (float)(i + (int)me->rank), (float)(3 * i + 3));
}

START_TEST(P3_a_key_is_used_again_and_again) {
        replicas_run(3, use_one_key_again);
}
END_TEST

/* --- N3: two jobs with equal names --- */

#define OPS 5000 /* of each job */

static void work_in_job(struct replica *me) {
        struct floats f;
        const bool is_second = me->arg != NULL;
        const float base = is_second ? 1000 : 1;
        struct tutti_group *g =
                replica_join_group(me, &TUTTI_JOIN(.group = "train", .job = is_second ? "job-b" : "job-a"));
        floats_init(me->t, &f, 4);
        for (int i = 0; i < OPS; i++) {
                char key[16];
                snprintf(key, sizeof(key), "grad/%d", i % 7);
                floats_meet(g, i % 3 ? key : NULL, &f, base * (float)(i % 100 + (int)me->rank),
                        base * (float)(2 * (i % 100) + 1));
        }
}

START_TEST(N3_two_jobs_with_equal_names_never_hear_of_each_other) {
        static int second;
        struct replica *a[2], *b[2];
        struct host_counters c;
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, work_in_job, NULL, a);
        replicas_spawn(h, 2, work_in_job, &second, b);
        for (int i = 0; i < 2; i++) {
                ck_assert_int_eq(replica_end(a[i], 40), 0);
                ck_assert_int_eq(replica_end(b[i], 40), 0);
        }
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_collectives, 2 * OPS);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- numbers instead of names --- */

static void expect_number(const struct tutti_error_info *e, uint32_t number) {
        char text[16];
        snprintf(text, sizeof(text), "#%u", number);
        ck_assert_str_eq(e->key, text);
        expect_in(e->text, text);
}

/* Rank 1's third call is refused: so is everybody's third, and the fourth meets. Groups count by themselves.
 */
static void meet_by_number(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, TUTTI_FAIL);
        struct tutti_group *other = replica_join_group(me, &TUTTI_JOIN(.group = "other"));
        floats_init(me->t, &f, 10);
        struct tutti_value wrong = f.value;
        wrong.shape[0] = 11;
        floats_meet(g, NULL, &f, 1, 3);
        floats_meet(other, NULL, &f, 10, 30);
        floats_meet(g, NULL, &f, 2, 6);
        if (me->rank == 1) {
                expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &wrong, &wrong), TUTTI_INVALID);
                expect_number(tutti_error_info(), 2);
        } else {
                enum tutti_status status = floats_sum(g, NULL, &f);
                const struct tutti_error_info *e = tutti_error_info();
                ck_assert(status == TUTTI_PEER_REFUSED || status == TUTTI_EXPIRED);
                ck_assert_int_eq(status == TUTTI_EXPIRED ? e->cause : e->status, TUTTI_PEER_REFUSED);
                ck_assert_int_eq(e->rank, 1);
                ck_assert_int_eq(e->field, TUTTI_FIELD_OFFSET);
                expect_number(e, 2);
        }
        floats_meet(g, NULL, &f, 4, 12);
        /* A name does not count, nor does a number elsewhere. */
        floats_meet(g, "named", &f, 5, 15);
        floats_meet(other, NULL, &f, 20, 60);
        /* And the name "#4" is no number. */
        if (me->rank == 0) {
                struct floats named;
                floats_init(me->t, &named, 10);
                struct tutti_work *w = floats_start(g, "#4", &named, 0);
                floats_meet(g, NULL, &f, 6, 18);
                ck_assert_int_eq(tutti_work_test(w), TUTTI_PENDING);
                expect_status(tutti_abort(g, "#4", "enough"), TUTTI_OK);
                expect_work(w, TUTTI_ABORTED);
        } else {
                floats_meet(g, NULL, &f, 6, 18);
        }
        /* The number is taken before the check, also by a call that can be waited for. */
        struct tutti_work *w;
        struct tutti_options o = TUTTI_OPTIONS(.timeout = 0.0 / 0.0);
        expect_status(tutti_barrier_start(g, NULL, &o, &w), TUTTI_OK);
        ck_assert_int_ne(tutti_work_wait(w, -1), TUTTI_OK);
        expect_number(tutti_work_error(w), 5);
        floats_meet(g, NULL, &f, 7, 21);
}

START_TEST(numbers_are_taken_before_any_check_and_a_refused_call_fails_its_number_for_all) {
        replicas_run(3, meet_by_number);
}
END_TEST

UNIT_MAIN("meeting", 60, P2_replicas_meet_by_key_in_any_order_from_any_thread_in_several_groups,
        P3_late_comers_pay_their_debts_and_never_meet_a_retry, P3_a_key_is_used_again_and_again,
        N3_two_jobs_with_equal_names_never_hear_of_each_other,
        numbers_are_taken_before_any_check_and_a_refused_call_fails_its_number_for_all)
