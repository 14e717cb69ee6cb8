/* Who belongs to a group, how members meet in any order, and what happens when they go (P1 P2 P3 P5, C6 C7,
 * K2, N3, forked processes, sequence numbers). */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "meeting.h"
#include "replica.h"
#include "unit.h"

/* Shared by the test and its replicas. */
static struct {
        _Atomic uint32_t pids[8];
        atomic_bool may_end; /* for a process that nobody else talks to */
        _Atomic double killed;
} * shared;

static struct host *begin(void) {
        shared = memory_shared(sizeof(*shared));
        return host_start(NULL);
}

static void finish(struct host *h) {
        host_expect_counters_zero(h);
        host_stop(h);
}

static void run(uint32_t n, void (*body)(struct replica *me)) {
        struct host *h = begin();
        run_replicas(h, n, body, NULL);
        finish(h);
}

static void tell_all(struct replica *const *r, uint32_t n, const char *text) {
        for (uint32_t i = 0; i < n; i++)
                replica_tell(r[i], text);
}

static void expect_all(struct replica *const *r, uint32_t n, const char *text) {
        for (uint32_t i = 0; i < n; i++)
                replica_expect(r[i], text, 10);
}

static void end_all(struct host *h, struct replica *const *r, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        finish(h);
}

static void note_pid(const struct replica *me) {
        shared->pids[me->rank] = (uint32_t)getpid();
}

static struct tutti_group *join(struct replica *me, enum tutti_on_death on_death) {
        note_pid(me);
        return replica_join_group(
                me, &TUTTI_JOIN(.group = "train", .default_timeout = 20, .on_death = on_death));
}

static enum tutti_status sum(struct tutti_group *g, const char *key, struct floats *f) {
        return tutti_all_reduce(g, key, TUTTI_SUM, &f->value, &f->value);
}

static struct tutti_work *start_sum(struct tutti_group *g, const char *key, struct floats *f) {
        struct tutti_work *w;
        expect_status(tutti_all_reduce_start(g, key, TUTTI_SUM, &f->value, &f->value, NULL, &w), TUTTI_OK);
        return w;
}

static void expect_text_of(const struct tutti_error_info *e, const char *format, uint32_t number) {
        char text[64];
        snprintf(text, sizeof(text), format, number);
        expect_in(e->text, text);
}

/* --- P1: who may come in --- */

static enum tutti_status try_join(struct tutti *t, const struct tutti_join_args *args) {
        struct tutti_group *g = NULL;
        enum tutti_status status = tutti_join(t, args, &g);
        if (status != TUTTI_OK)
                ck_assert_ptr_null(g);
        return status;
}

#define ARGS(...) (&TUTTI_JOIN(.group = "train", .job = "test", __VA_ARGS__))

/* Tries what `which` says, and expects the holder of rank 0 to be named. */
static void expect_rank_taken(struct tutti *t) {
        expect_status(try_join(t, ARGS(.rank = 0, .world_size = 2)), TUTTI_BUSY);
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_int_eq(e->field, TUTTI_FIELD_RANK);
        ck_assert_uint_eq(e->n_replicas, 1);
        ck_assert_uint_eq(e->replicas[0].rank, 0);
        ck_assert_uint_eq(e->replicas[0].pid, shared->pids[0]);
        ck_assert_uint_eq(e->replicas[0].uid, getuid());
        ck_assert_int_eq(e->replicas[0].state, TUTTI_ALIVE);
        expect_text_of(e, "pid %u", shared->pids[0]);
        expect_in(e->text, "test/train");
}

static void expect_other_world(struct tutti *t) {
        expect_status(try_join(t, ARGS(.rank = 1, .world_size = 3)), TUTTI_MISMATCH);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_WORLD_SIZE);
        expect_in(tutti_error(), "3");
        expect_in(tutti_error(), "2");
}

static void expect_other_policy(struct tutti *t) {
        expect_status(
                try_join(t, ARGS(.rank = 1, .world_size = 2, .on_death = TUTTI_SHRINK)), TUTTI_MISMATCH);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_OPTIONS);
        expect_in(tutti_error(), "on_death");
        expect_status(
                try_join(t, ARGS(.rank = 1, .world_size = 2, .on_leave = TUTTI_ZERO_FILL)), TUTTI_MISMATCH);
        expect_in(tutti_error(), "on_leave");
}

static void expect_impossible(struct tutti *t) {
        expect_status(try_join(t, ARGS(.rank = 2, .world_size = 2)), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_RANK);
        expect_status(try_join(t, ARGS(.rank = 0, .world_size = TUTTI_MAX_WORLD + 1)), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_WORLD_SIZE);
        expect_in(tutti_error(), "1024");
}

/* Comes while rank 0 waits for rank 1, and again when they are together. */
static void knock(struct replica *me) {
        replica_open(me);
        for (int round = 0; round < 2; round++) {
                replica_hear(me, "knock");
                expect_rank_taken(me->t);
                expect_other_world(me->t);
                expect_other_policy(me->t);
                expect_impossible(me->t);
                replica_say(me, "refused");
        }
        /* An extra one, now that all ranks are there. */
        expect_status(try_join(me->t, ARGS(.rank = 1, .world_size = 2)), TUTTI_BUSY);
        ck_assert_uint_eq(tutti_error_info()->replicas[0].pid, shared->pids[1]);
        replica_say(me, "extra");
}

static void be_a_pair(struct replica *me) {
        struct floats f;
        replica_hear(me, "join");
        struct tutti_group *g = join(me, TUTTI_FAIL);
        replica_say(me, "joined");
        replica_hear(me, "meet");
        floats_init(me->t, &f, 10);
        floats_meet(g, "x", &f, (float)me->rank + 1, 3);
}

static void expect_groups(struct host *h, uint32_t n) {
        struct host_counters c;
        double limit = seconds_now() + 5 * unit_scale();
        do
                host_counters(h, &c);
        while (c.n_groups != n && seconds_now() < limit);
        ck_assert_uint_eq(c.n_groups, n);
}

START_TEST(P1_a_newcomer_who_does_not_fit_is_refused_alone) {
        struct replica *r[3];
        struct host *h = begin();
        for (uint32_t i = 0; i < 3; i++)
                r[i] = replica_spawn(h,
                        &(struct replica_options){ .rank = i, .n = 2, .body = i == 2 ? knock : be_a_pair });
        replica_tell(r[0], "join");
        expect_groups(h, 1);
        replica_tell(r[2], "knock");
        replica_expect(r[2], "refused", 5);
        replica_tell(r[1], "join");
        expect_all(r, 2, "joined");
        replica_tell(r[2], "knock");
        replica_expect(r[2], "refused", 5);
        replica_expect(r[2], "extra", 5);
        tell_all(r, 2, "meet");
        end_all(h, r, 3);
}
END_TEST

static void use_names_of_every_length(struct replica *me) {
        struct floats f;
        char key[TUTTI_MAX_KEY_BYTES + 2], name[65];
        note_pid(me);
        memset(name, 'n', sizeof(name) - 1);
        name[64] = '\0';
        expect_status(try_join(replica_open(me), &TUTTI_JOIN(.group = name, .job = "j", .world_size = 1)),
                TUTTI_LIMIT);
        name[63] = '\0';
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = name));
        floats_init(me->t, &f, 10);
        memset(key, 'k', sizeof(key));
        key[TUTTI_MAX_KEY_BYTES] = '\0';
        floats_meet(g, key, &f, 1, 2);
        /* They differ in the last byte alone. */
        key[TUTTI_MAX_KEY_BYTES - 1] = me->rank ? 'a' : 'b';
        struct tutti_work *first = start_sum(g, key, &f);
        expect_status(tutti_barrier(g, "both are there"), TUTTI_OK);
        ck_assert_int_eq(tutti_work_test(first), TUTTI_PENDING);
        expect_status(tutti_barrier(g, "both have looked"), TUTTI_OK);
        struct floats other;
        floats_init(me->t, &other, 10);
        key[TUTTI_MAX_KEY_BYTES - 1] = me->rank ? 'b' : 'a';
        floats_meet(g, key, &other, 1, 3);
        expect_work(first, TUTTI_OK);
        floats_expect(&f, 3);
        /* One byte more is no key, and so is none. */
        key[TUTTI_MAX_KEY_BYTES] = 'k';
        key[TUTTI_MAX_KEY_BYTES + 1] = '\0';
        expect_status(sum(g, key, &f), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_KEY);
        expect_in(tutti_error(), "129");
        expect_status(sum(g, "", &f), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_KEY);
        floats_meet(g, "\xc3\xa9\n\"\\ %s", &f, 1, 2);
}

START_TEST(P1_limits_of_names_and_keys) {
        run(2, use_names_of_every_length);
}
END_TEST

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
                e->works[k] = start_sum(e->groups[k / KEYS], key, &e->floats[k]);
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
        run(REPLICAS, meet_in_disorder);
}
END_TEST

/* --- P3: debts --- */

static void expect_ending(
        struct tutti_group *g, struct floats *f, enum tutti_status status, enum tutti_status cause) {
        floats_fill(f, 7);
        expect_status(sum(g, "k", f), status);
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
        w = start_sum(g, "k", &f);
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
        struct host *h = begin();
        replicas_spawn(h, 3, wait_twice, NULL, r);
        expect_all(r, 2, "timeout");
        host_expect_pending(h, 1);
        tell_all(r, 2, "second");
        expect_all(r, 2, "submitted");
        host_expect_pending(h, 3);
        tell_all(r, 2, "go on");
        expect_all(r, 2, "aborted");
        host_expect_pending(h, 2);
        /* The third is pending when the late one comes, and meets only its third. */
        tell_all(r, 2, "third");
        host_expect_pending(h, 4);
        replica_tell(r[2], "late");
        end_all(h, r, 3);
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
        run(3, use_one_key_again);
}
END_TEST

/* --- P5: death --- */

static void expect_lost(const struct tutti_error_info *e) {
        ck_assert_msg(e->status == TUTTI_REPLICA_LOST, "%s: %s", tutti_status_name(e->status), e->text);
        ck_assert_int_eq(e->rank, 2);
        ck_assert_int_eq(e->loss, TUTTI_DIED);
        ck_assert_int_eq(e->outputs_undefined, 0);
        ck_assert_uint_eq(e->n_replicas, 1);
        ck_assert_uint_eq(e->replicas[0].rank, 2);
        ck_assert_uint_eq(e->replicas[0].pid, shared->pids[2]);
        ck_assert_uint_eq(e->replicas[0].uid, getuid());
        ck_assert_int_eq(e->replicas[0].state, TUTTI_DEAD);
        ck_assert_str_eq(e->replicas[0].last_key, "warm");
        expect_text_of(e, "R2 (pid %u", shared->pids[2]);
        expect_in(e->text, "\"warm\"");
}

static void fail_after_a_death(struct tutti_group *g, struct floats *f, struct tutti_work *pending) {
        expect_status(sum(g, "x", f), TUTTI_REPLICA_LOST);
        ck_assert_double_lt(seconds_now() - shared->killed, 1 * unit_scale());
        expect_lost(tutti_error_info());
        ck_assert_str_eq(tutti_error_info()->key, "x");
        expect_work(pending, TUTTI_REPLICA_LOST);
        expect_lost(tutti_work_error(pending));
        ck_assert_str_eq(tutti_work_error(pending)->key, "y");
        /* And so do all later ones, at once. */
        for (int i = 0; i < 10; i++) {
                expect_status(sum(g, i % 2 ? NULL : "x", f), TUTTI_REPLICA_LOST);
                expect_lost(tutti_error_info());
        }
        ck_assert_double_lt(seconds_now() - shared->killed, 2 * unit_scale());
        floats_expect(f, 6);
}

static void lose_one(struct replica *me) {
        struct floats f, other;
        struct tutti_group *g = join(me, TUTTI_FAIL), *pair = NULL;
        floats_init(me->t, &f, 10);
        floats_init(me->t, &other, 10);
        if (me->rank < 2)
                pair = replica_join_group(
                        me, &TUTTI_JOIN(.group = "pair", .rank = (int32_t)me->rank, .world_size = 2));
        floats_meet(g, "warm", &f, 1, 3);
        floats_fill(&f, 6);
        replica_say(me, "warm");
        if (me->rank == 2)
                replica_hear(me, "never");
        fail_after_a_death(g, &f, start_sum(g, "y", &other));
        /* Another group of the same processes goes on. */
        floats_meet(pair, "x", &f, 1, 2);
        tutti_group_free(g);
        replica_say(me, "gone");
        replica_hear(me, "again");
        g = join(me, TUTTI_FAIL);
        floats_meet(g, NULL, &f, 2, 6);
        floats_meet(g, "x", &f, 3, 9);
}

static void replace(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, TUTTI_FAIL);
        floats_init(me->t, &f, 10);
        floats_meet(g, NULL, &f, 2, 6);
        floats_meet(g, "x", &f, 3, 9);
}

START_TEST(K2_P5_with_fail_every_submission_is_lost_until_the_group_is_formed_anew) {
        struct replica *r[3];
        struct host *h = begin();
        replicas_spawn(h, 3, lose_one, NULL, r);
        expect_all(r, 3, "warm");
        host_expect_pending(h, 4);
        shared->killed = seconds_now();
        replica_kill9(r[2]);
        expect_all(r, 2, "gone");
        expect_groups(h, 1);
        r[2] = replica_spawn(h, &(struct replica_options){ .rank = 2, .n = 3, .body = replace });
        tell_all(r, 2, "again");
        end_all(h, r, 3);
}
END_TEST

static void expect_survivors(void) {
        const struct tutti_result *r = tutti_last_result();
        ck_assert_uint_eq(r->n_contributors, 3);
        expect_ranks(&r->contributors, 0xd); /* 0, 2, 3 */
}

static void shrink_after_a_death(struct tutti_group *g, struct floats *f) {
        /* The one that waited is sealed without rank 1. */
        floats_fill(f, (float)tutti_rank(g) + 1);
        expect_status(tutti_all_reduce(g, "x", TUTTI_MEAN, &f->value, &f->value), TUTTI_OK);
        ck_assert_double_lt(seconds_now() - shared->killed, 2 * unit_scale());
        expect_survivors();
        floats_expect(f, 8.0F / 3.0F);
        /* Ranks and numbers go on where they were. */
        for (int i = 0; i < 5; i++) {
                floats_meet(g, NULL, f, (float)tutti_rank(g), 5);
                expect_survivors();
        }
        expect_status(tutti_broadcast(g, "root", 3, &f->value), TUTTI_OK);
        struct tutti_destinations to = { .where = TUTTI_TO_RANK, .rank = 2 };
        floats_fill(f, 2);
        expect_status(tutti_reduce(g, "to", TUTTI_SUM, &f->value, &f->value, &to), TUTTI_OK);
        floats_expect(f, tutti_rank(g) == 2 ? 6 : 2);
}

static void lose_one_and_shrink(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, TUTTI_SHRINK);
        floats_init(me->t, &f, 10);
        for (int i = 0; i < 3; i++)
                floats_meet(g, NULL, &f, 1, 4);
        replica_say(me, "warm");
        if (me->rank == 1) {
                /* What only it has submitted ends with it: nobody else ever comes to that. */
                start_sum(g, "alone", &f);
                replica_hear(me, "never");
        }
        shrink_after_a_death(g, &f);
        ck_assert_uint_eq(tutti_world_size(g), 4);
        floats_meet(g, "alone", &f, 1, 3);
}

START_TEST(K2_P5_with_shrink_the_rest_goes_on_and_results_say_who_is_in_them) {
        struct replica *r[4];
        struct host *h = begin();
        replicas_spawn(h, 4, lose_one_and_shrink, NULL, r);
        expect_all(r, 4, "warm");
        host_expect_pending(h, 4);
        shared->killed = seconds_now();
        replica_kill9(r[1]);
        for (uint32_t i = 0; i < 4; i++)
                if (i != 1)
                        ck_assert_int_eq(replica_end(r[i], 10), 0);
        finish(h);
}
END_TEST

#define MANY ((size_t)8 << 20)

/* It dies when its half is in, and the others come later or are there. */
static void die_after_submitting(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, TUTTI_FAIL);
        floats_init(me->t, &f, MANY);
        floats_meet(g, "warm", &f, 1, 3); /* registered by now, which is a precondition of being sealed */
        replica_say(me, "warm");
        floats_fill(&f, (float)me->rank + 1);
        if (me->rank == 2) {
                replica_hear(me, "go");
                start_sum(g, "x", &f);
                kill(getpid(), SIGKILL);
        }
        expect_status(sum(g, "x", &f), TUTTI_OK);
        floats_expect(&f, 6);
        expect_ranks(&tutti_last_result()->contributors, 0x7);
        ck_assert_uint_eq(tutti_last_result()->last_rank, 2);
        expect_status(sum(g, "y", &f), TUTTI_REPLICA_LOST);
}

START_TEST(P5_a_sealed_collective_ends_well_with_the_half_of_the_dead) {
        struct replica *r[3];
        struct host *h = begin();
        replicas_spawn(h, 3, die_after_submitting, NULL, r);
        expect_all(r, 3, "warm");
        host_expect_pending(h, 2);
        replica_tell(r[2], "go");
        ck_assert_int_eq(replica_end(r[2], 10), 128 + SIGKILL);
        end_all(h, r, 2);
}
END_TEST

/* Becomes another program: the connection is closed, the process lives. */
static void become_another(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, TUTTI_FAIL);
        floats_init(me->t, &f, 10);
        floats_meet(g, "warm", &f, 1, 2);
        if (me->rank == 1) {
                execl("/bin/sleep", "sleep", "20", (char *)NULL);
                ck_abort_msg("exec: %m");
        }
        expect_status(sum(g, "x", &f), TUTTI_REPLICA_LOST);
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_int_eq(e->loss, TUTTI_DISCONNECTED);
        ck_assert_int_eq(e->rank, 1);
        ck_assert_uint_eq(e->replicas[0].pid, shared->pids[1]);
        ck_assert_int_ne(e->replicas[0].state, TUTTI_DEAD);
}

START_TEST(P5_an_end_of_connection_without_death_is_told_as_such) {
        struct replica *r[2];
        struct host *h = begin();
        replicas_spawn(h, 2, become_another, NULL, r);
        ck_assert_int_eq(replica_end(r[0], 10), 0);
        replica_kill9(r[1]);
        finish(h);
}
END_TEST

/* --- C6, C7: going willingly --- */

#define STEPS      120
#define LAST_OF_R3 100

static void step_unevenly(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, TUTTI_FAIL);
        floats_init(me->t, &f, 10);
        for (int step = 1; step <= STEPS; step++) {
                char key[16];
                bool is_late = step > LAST_OF_R3;
                if (is_late && me->rank == 3)
                        break;
                snprintf(key, sizeof(key), "step/%d", step);
                floats_fill(&f, (float)me->rank + 1);
                expect_status(tutti_all_reduce(g, key, TUTTI_MEAN, &f.value, &f.value), TUTTI_OK);
                floats_expect(&f, is_late ? 2.0F : 2.5F);
                ck_assert_uint_eq(tutti_last_result()->n_contributors, is_late ? 3 : 4);
                expect_ranks(&tutti_last_result()->contributors, is_late ? 0x7 : 0xf);
        }
        if (me->rank != 3)
                return;
        expect_status(tutti_leave(g), TUTTI_OK);
        /* The handle answers, and says why. */
        expect_status(sum(g, "x", &f), TUTTI_LEFT);
        expect_status(tutti_leave(g), TUTTI_LEFT);
        expect_status(tutti_busy(g, "no", 1), TUTTI_LEFT);
        expect_status(tutti_abort(g, "x", "no"), TUTTI_LEFT);
        expect_in(tutti_error(), "R3");
        ck_assert_uint_eq(tutti_rank(g), 3);
        tutti_group_free(g);
}

START_TEST(C6_one_leaves_and_the_rest_goes_on_with_three_contributors) {
        run(4, step_unevenly);
}
END_TEST

/* Rank 3 leaves while the others wait for it, which seals what they wait for. */
static void leave_while_they_wait(struct replica *me, enum tutti_on_leave on_leave, float mean) {
        struct floats f;
        note_pid(me);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train", .on_leave = on_leave));
        floats_init(me->t, &f, 10);
        floats_fill(&f, (float)me->rank + 1);
        if (me->rank == 3) {
                struct tutti_work *mine = start_sum(g, "mine", &f);
                replica_say(me, "here");
                replica_hear(me, "leave");
                if (on_leave == TUTTI_ZERO_FILL)
                        expect_status(tutti_leave(g), TUTTI_OK);
                else
                        tutti_group_free(g); /* leaves, too */
                expect_work(mine, TUTTI_LEFT);
                return;
        }
        replica_say(me, "here");
        expect_status(tutti_all_reduce(g, "x", TUTTI_MEAN, &f.value, &f.value), TUTTI_OK);
        floats_expect(&f, mean);
        ck_assert_uint_eq(tutti_last_result()->n_contributors, 3);
        /* A sum has no divisor. */
        floats_meet(g, "mine", &f, 1, 3);
        /* A root that has left cannot be one. */
        expect_status(tutti_broadcast(g, "root", 3, &f.value), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_ROOT);
        ck_assert_int_eq(tutti_error_info()->loss, TUTTI_WENT);
        expect_in(tutti_error(), "R3");
        floats_meet(g, NULL, &f, 1, 3);
}

static void leave_and_divide_by_three(struct replica *me) {
        leave_while_they_wait(me, TUTTI_CONTRIBUTORS, 2);
}

static void leave_and_divide_by_four(struct replica *me) {
        leave_while_they_wait(me, TUTTI_ZERO_FILL, 1.5F);
}

static void leave_with(void (*body)(struct replica *me)) {
        struct replica *r[4];
        struct host *h = begin();
        replicas_spawn(h, 4, body, NULL, r);
        expect_all(r, 4, "here");
        host_expect_pending(h, 4);
        replica_tell(r[3], "leave");
        end_all(h, r, 4);
}

START_TEST(C7_the_mean_after_a_leave_is_over_those_who_contribute) {
        leave_with(leave_and_divide_by_three);
}
END_TEST

START_TEST(C7_with_zero_fill_the_mean_is_over_the_world) {
        leave_with(leave_and_divide_by_four);
}
END_TEST

/* A normal end is a leave, not a death, however the group takes deaths. */
static void end_early(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, TUTTI_FAIL);
        floats_init(me->t, &f, 10);
        if (me->rank == 0) {
                replica_hear(me, "end");
                return;
        }
        floats_meet(g, "x", &f, (float)me->rank, 3);
        expect_ranks(&tutti_last_result()->contributors, 0x6);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        /* The rank stays free as long as the group is there. */
        expect_status(try_join(me->t, ARGS(.rank = 0, .world_size = 3)), TUTTI_BUSY);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_GROUP);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
}

START_TEST(C6_a_closed_connection_has_left) {
        struct replica *r[3];
        struct host *h = begin();
        replicas_spawn(h, 3, end_early, NULL, r);
        host_expect_pending(h, 2);
        replica_tell(r[0], "end");
        end_all(h, r, 3);
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
        struct host *h = begin();
        replicas_spawn(h, 2, work_in_job, NULL, a);
        replicas_spawn(h, 2, work_in_job, &second, b);
        for (int i = 0; i < 2; i++) {
                ck_assert_int_eq(replica_end(a[i], 40), 0);
                ck_assert_int_eq(replica_end(b[i], 40), 0);
        }
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_collectives, 2 * OPS);
        finish(h);
}
END_TEST

/* --- several memberships of one process --- */

struct seat {
        struct tutti *t;
        uint32_t rank;
        const char *why; /* set when it went wrong */
        float result;
        pthread_t thread;
};

/* Assertions belong to the main thread: this one only notes. */
static void *sit(void *arg) {
        struct seat *s = arg;
        struct tutti_group *g;
        struct floats f;
        if (tutti_join(s->t, ARGS(.rank = (int32_t)s->rank, .world_size = 2), &g) != TUTTI_OK) {
                s->why = "join";
                return NULL;
        }
        floats_init(s->t, &f, 10);
        for (int i = 0; i < 100 && !s->why; i++) {
                floats_fill(&f, (float)(s->rank + 1));
                if (tutti_all_reduce(g, i % 2 ? "x" : NULL, TUTTI_SUM, &f.value, &f.value) != TUTTI_OK)
                        s->why = "reduce";
                s->result = f.data[9];
        }
        return NULL;
}

static void be_the_world(struct replica *me) {
        struct seat seats[2] = { { .rank = 0 }, { .rank = 1 } };
        struct tutti *other = NULL;
        /* Once over one connection, once over two. */
        for (int round = 0; round < 2; round++) {
                seats[0].t = replica_open(me);
                seats[1].t = round ? other : me->t;
                for (int i = 0; i < 2; i++)
                        ck_assert_int_eq(pthread_create(&seats[i].thread, NULL, sit, &seats[i]), 0);
                for (int i = 0; i < 2; i++) {
                        pthread_join(seats[i].thread, NULL);
                        ck_assert_msg(!seats[i].why, "rank %d: %s", i, seats[i].why);
                        ck_assert_float_eq(seats[i].result, 3);
                }
                tutti_close(me->t);
                me->t = NULL;
                if (round == 0)
                        expect_status(tutti_open(me->socket, &other), TUTTI_OK);
        }
        tutti_close(other);
}

START_TEST(one_process_may_be_the_whole_world) {
        run(1, be_the_world);
}
END_TEST

/* The other process is ranks 0 and 1. */
static void be_rank_2(struct replica *me) {
        struct floats f;
        struct tutti_group *g;
        expect_status(tutti_join(replica_open(me), ARGS(.rank = 2, .world_size = 3), &g), TUTTI_OK);
        floats_init(me->t, &f, 10);
        floats_meet(g, "x", &f, 4, 7);
        replica_say(me, "met");
        expect_status(sum(g, "y", &f), TUTTI_REPLICA_LOST);
        ck_assert_int_eq(tutti_error_info()->rank, 0);
        ck_assert_uint_eq(tutti_error_info()->n_replicas, 2);
        ck_assert_uint_eq(tutti_error_info()->replicas[0].pid, shared->pids[1]);
        ck_assert_uint_eq(tutti_error_info()->replicas[1].pid, shared->pids[1]);
}

/* A join waits for the others, so two of them need two threads. */
struct joiner {
        struct tutti *t;
        struct tutti_group *group;
        int32_t rank;
        enum tutti_status status;
        pthread_t thread;
};

static void *join_in_thread(void *arg) {
        struct joiner *j = arg;
        j->status = tutti_join(j->t, ARGS(.rank = j->rank, .world_size = 3), &j->group);
        return NULL;
}

static void be_ranks_0_and_1(struct replica *me) {
        struct joiner joiners[2];
        struct floats f[2];
        struct tutti_work *w[2];
        note_pid(me);
        replica_open(me);
        for (int i = 0; i < 2; i++) {
                joiners[i] = (struct joiner){ .t = me->t, .rank = i };
                ck_assert_int_eq(pthread_create(&joiners[i].thread, NULL, join_in_thread, &joiners[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
                pthread_join(joiners[i].thread, NULL);
                ck_assert_int_eq(joiners[i].status, TUTTI_OK);
                ck_assert_uint_eq(tutti_rank(joiners[i].group), (uint32_t)i);
                floats_init(me->t, &f[i], 10);
                floats_fill(&f[i], (float)i + 1);
        }
        for (int i = 0; i < 2; i++)
                w[i] = start_sum(joiners[i].group, "x", &f[i]);
        for (int i = 0; i < 2; i++) {
                expect_work(w[i], TUTTI_OK);
                floats_expect(&f[i], 7);
        }
        replica_hear(me, "never");
}

START_TEST(one_process_may_be_two_members_and_dies_as_both) {
        struct host *h = begin();
        struct replica *r[2];
        r[0] = replica_spawn(h, &(struct replica_options){ .rank = 0, .n = 3, .body = be_rank_2 });
        r[1] = replica_spawn(h, &(struct replica_options){ .rank = 1, .n = 3, .body = be_ranks_0_and_1 });
        replica_expect(r[0], "met", 10);
        host_expect_pending(h, 1);
        replica_kill9(r[1]);
        end_all(h, r, 1);
}
END_TEST

/* --- forked processes --- */

/* In the child: 0, or the line of what was wrong. */
#define CHILD_EXPECT(got, wanted)                                                                            \
        do {                                                                                                 \
                if ((got) != (wanted)) {                                                                     \
                        fprintf(stderr, "child, line %d: %s: %s\n", __LINE__, #got, tutti_error());          \
                        return 1;                                                                            \
                }                                                                                            \
        } while (0)

static int use_inherited(struct replica *me, struct tutti_group *g, struct floats *f, struct tutti_work *w) {
        struct tutti_group *other;
        struct tutti_buffer *b;
        struct tutti_work *work;
        struct tutti_result result;
        CHILD_EXPECT(sum(g, "x", f), TUTTI_FORKED);
        CHILD_EXPECT(strstr(tutti_error(), "fork") != NULL, 1);
        CHILD_EXPECT(tutti_barrier(g, NULL), TUTTI_FORKED);
        CHILD_EXPECT(tutti_barrier_start(g, NULL, NULL, &work), TUTTI_FORKED);
        CHILD_EXPECT(tutti_work_wait(w, -1), TUTTI_FORKED);
        CHILD_EXPECT(tutti_work_wait(w, 0), TUTTI_FORKED);
        CHILD_EXPECT(tutti_work_test(w), TUTTI_FORKED);
        CHILD_EXPECT(tutti_work_cancel(w), TUTTI_FORKED);
        CHILD_EXPECT(tutti_work_result(w, &result), TUTTI_FORKED);
        CHILD_EXPECT(tutti_leave(g), TUTTI_FORKED);
        CHILD_EXPECT(tutti_busy(g, "child", 1), TUTTI_FORKED);
        CHILD_EXPECT(tutti_abort(g, "w", "child"), TUTTI_FORKED);
        CHILD_EXPECT(tutti_join(me->t, ARGS(.rank = 0, .world_size = 1), &other), TUTTI_FORKED);
        CHILD_EXPECT(tutti_buffer_alloc(me->t, 4096, &b), TUTTI_FORKED);
        CHILD_EXPECT(tutti_dispatch(me->t), TUTTI_FORKED);
        CHILD_EXPECT(tutti_fd(me->t), -1);
        tutti_work_free(w);
        tutti_group_free(g);
        tutti_buffer_free(f->buffer);
        tutti_close(me->t);
        return 0;
}

static int connect_anew(struct replica *me) {
        struct tutti *t;
        struct tutti_group *g;
        struct floats f;
        CHILD_EXPECT(tutti_open(me->socket, &t), TUTTI_OK);
        CHILD_EXPECT(
                tutti_join(t, &TUTTI_JOIN(.group = "child", .job = "test", .world_size = 1), &g), TUTTI_OK);
        floats_init(t, &f, 10);
        floats_fill(&f, 5);
        CHILD_EXPECT(sum(g, "x", &f), TUTTI_OK);
        CHILD_EXPECT(f.data[9], 5);
        tutti_close(t);
        return 0;
}

static void fork_a_child(struct replica *me) {
        struct floats f;
        int code;
        struct tutti_group *g = join(me, TUTTI_FAIL);
        floats_init(me->t, &f, 10);
        floats_fill(&f, (float)me->rank + 1);
        struct tutti_work *w = NULL;
        if (me->rank == 0) {
                w = start_sum(g, "w", &f);
                pid_t child = fork();
                ck_assert_int_ge(child, 0);
                if (child == 0)
                        _exit(use_inherited(me, g, &f, w) || connect_anew(me));
                ck_assert_int_eq(waitpid(child, &code, 0), child);
                ck_assert_msg(WIFEXITED(code) && WEXITSTATUS(code) == 0, "the child ended with %#x", code);
                /* The parent is as it was, and so is what it had submitted. */
                replica_say(me, "forked");
                expect_work(w, TUTTI_OK);
        } else {
                replica_hear(me, "go");
                expect_status(sum(g, "w", &f), TUTTI_OK);
        }
        floats_expect(&f, 3);
        floats_meet(g, NULL, &f, 1, 2);
}

START_TEST(C2_a_forked_child_is_told_so_and_harms_nobody) {
        struct replica *r[2];
        struct host *h = begin();
        replicas_spawn(h, 2, fork_a_child, NULL, r);
        replica_expect(r[0], "forked", 10);
        replica_tell(r[1], "go");
        end_all(h, r, 2);
}
END_TEST

/* The child holds the socket open, so that no end of it is ever seen. */
static void leave_a_child_behind(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, TUTTI_FAIL);
        floats_init(me->t, &f, 10);
        floats_meet(g, "warm", &f, 1, 2);
        if (me->rank == 1) {
                if (fork() == 0) {
                        for (int i = 0; i < 2000 && !shared->may_end; i++)
                                seconds_sleep(0.01);
                        _exit(0);
                }
                replica_say(me, "forked");
                replica_hear(me, "never");
        }
        expect_status(sum(g, "x", &f), TUTTI_REPLICA_LOST);
        ck_assert_double_lt(seconds_now() - shared->killed, 1 * unit_scale()); /* ten times the promise */
        ck_assert_int_eq(tutti_error_info()->loss, TUTTI_DIED);
        ck_assert_uint_eq(tutti_error_info()->replicas[0].pid, shared->pids[1]);
}

START_TEST(C2_death_is_known_though_a_child_keeps_the_connection_open) {
        struct replica *r[2];
        struct host *h = begin();
        replicas_spawn(h, 2, leave_a_child_behind, NULL, r);
        replica_expect(r[1], "forked", 10);
        host_expect_pending(h, 1);
        shared->killed = seconds_now();
        replica_kill9(r[1]);
        ck_assert_int_eq(replica_end(r[0], 5), 0);
        finish(h);
        shared->may_end = true;
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
                enum tutti_status status = sum(g, NULL, &f);
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
                struct tutti_work *w = start_sum(g, "#4", &named);
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
        run(3, meet_by_number);
}
END_TEST

UNIT_MAIN("membership", 60, P1_a_newcomer_who_does_not_fit_is_refused_alone, P1_limits_of_names_and_keys,
        P2_replicas_meet_by_key_in_any_order_from_any_thread_in_several_groups,
        P3_late_comers_pay_their_debts_and_never_meet_a_retry, P3_a_key_is_used_again_and_again,
        K2_P5_with_fail_every_submission_is_lost_until_the_group_is_formed_anew,
        K2_P5_with_shrink_the_rest_goes_on_and_results_say_who_is_in_them,
        P5_a_sealed_collective_ends_well_with_the_half_of_the_dead,
        P5_an_end_of_connection_without_death_is_told_as_such,
        C6_one_leaves_and_the_rest_goes_on_with_three_contributors,
        C7_the_mean_after_a_leave_is_over_those_who_contribute, C7_with_zero_fill_the_mean_is_over_the_world,
        C6_a_closed_connection_has_left, N3_two_jobs_with_equal_names_never_hear_of_each_other,
        one_process_may_be_the_whole_world, one_process_may_be_two_members_and_dies_as_both,
        C2_a_forked_child_is_told_so_and_harms_nobody,
        C2_death_is_known_though_a_child_keeps_the_connection_open,
        numbers_are_taken_before_any_check_and_a_refused_call_fails_its_number_for_all)
