/* Who may come in, and who is waited for (A7, P1); several memberships of one process. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "meeting.h"

#define LIMIT 0.5 /* s: the join deadline where one is to expire */

/* --- P1: who may come in --- */

#define ARGS(...) (&TUTTI_JOIN(.group = "train", .job = "test", __VA_ARGS__))

/* The holder of rank 0 is named. */
static void expect_rank_taken(struct tutti *t) {
        expect_status(try_join(t, ARGS(.rank = 0, .world_size = 2)), TUTTI_BUSY);
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_int_eq(e->field, TUTTI_FIELD_RANK);
        ck_assert_uint_eq(e->n_replicas, 1);
        ck_assert_uint_eq(e->replicas[0].rank, 0);
        ck_assert_uint_eq(e->replicas[0].pid, board->pids[0]);
        ck_assert_uint_eq(e->replicas[0].uid, getuid());
        ck_assert_int_eq(e->replicas[0].state, TUTTI_ALIVE);
        expect_text_of(e, "pid %u", board->pids[0]);
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
        ck_assert_uint_eq(tutti_error_info()->replicas[0].pid, board->pids[1]);
        replica_say(me, "extra");
}

static void be_a_pair(struct replica *me) {
        struct floats f;
        replica_hear(me, "join");
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
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
        board_init();
        struct host *h = host_start(NULL);
        for (uint32_t i = 0; i < 3; i++)
                r[i] = replica_spawn(h,
                        &(struct replica_options){ .rank = i, .n = 2, .body = i == 2 ? knock : be_a_pair });
        replica_tell(r[0], "join");
        expect_groups(h, 1);
        replica_tell(r[2], "knock");
        replica_expect(r[2], "refused", 5);
        replica_tell(r[1], "join");
        replicas_expect(r, 2, "joined", 10);
        replica_tell(r[2], "knock");
        replica_expect(r[2], "refused", 5);
        replica_expect(r[2], "extra", 5);
        replicas_tell(r, 2, "meet");
        replicas_end(h, r, 3);
}
END_TEST

static void use_names_of_every_length(struct replica *me) {
        struct floats f;
        char key[TUTTI_MAX_KEY_BYTES + 2], name[65];
        board_note_pid(me);
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
        struct tutti_work *first = floats_start(g, key, &f, 0);
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
        expect_status(floats_sum(g, key, &f), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_KEY);
        expect_in(tutti_error(), "129");
        expect_status(floats_sum(g, "", &f), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_KEY);
        floats_meet(g, "\xc3\xa9\n\"\\ %s", &f, 1, 2);
}

START_TEST(P1_limits_of_names_and_keys) {
        replicas_run(2, use_names_of_every_length);
}
END_TEST

/* --- A7: a group that does not become whole --- */

static void join_a_group_that_stays_open(struct replica *me) {
        struct tutti_group *g = NULL;
        double begin = seconds_now();
        expect_status(tutti_join(replica_open(me),
                              &TUTTI_JOIN(.group = "four", .job = "test", .rank = (int32_t)me->rank,
                                      .world_size = 4, .join_timeout = me->rank == 0 ? LIMIT : 60),
                              &g),
                TUTTI_TIMEOUT);
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_ptr_null(g);
        ck_assert_double_lt(seconds_now() - begin, 10 * LIMIT * unit_scale());
        expect_ranks(&e->missing, 0x8);
        expect_ranks(&e->have, 0x7);
        ck_assert_int_eq(e->rank, 0); /* whose deadline it was */
        ck_assert_uint_eq(e->n_replicas, 1);
        ck_assert_uint_eq(e->replicas[0].rank, 3);
        ck_assert_int_eq(e->replicas[0].state, TUTTI_ABSENT);
        ck_assert_uint_eq(e->replicas[0].pid, 0);
        expect_in(e->text, "test/four");
        expect_in(e->text, "R3");
        expect_in(e->text, "never joined");
        replica_say(me, "heard");
        replica_hear(me, "end");
}

static void join_all_four(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "four"));
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
}

START_TEST(A7_a_join_that_times_out_names_the_fourth) {
        struct replica *r[3];
        struct host_counters c;
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, join_a_group_that_stays_open, NULL, r);
        replicas_expect(r, 3, "heard", 2 * 10 * LIMIT);
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_groups, 0);
        /* K3: nothing of it is in the way of the next one. */
        run_replicas(h, 4, join_all_four, NULL);
        replicas_tell(r, 3, "end");
        replicas_end(h, r, 3);
}
END_TEST

static void lose_a_joiner(struct replica *me) {
        struct tutti_group *g;
        if (me->rank == 1) {
                replica_open(me);
                replica_say(me, "open");
        }
        enum tutti_status status = tutti_join(replica_open(me),
                &TUTTI_JOIN(.group = "three", .job = "test", .rank = (int32_t)me->rank, .world_size = 3), &g);
        expect_status(status, TUTTI_REPLICA_LOST);
        ck_assert_int_eq(tutti_error_info()->loss, TUTTI_DIED);
        ck_assert_int_eq(tutti_error_info()->rank, 1);
        expect_in(tutti_error(), "R1");
}

/* Nobody waits out a join deadline for one who has died while joining. */
START_TEST(A7_the_death_of_a_joiner_reaches_the_others_at_once) {
        struct replica *r[2];
        struct host_counters c;
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, lose_a_joiner, NULL, r);
        replica_expect(r[1], "open", 5);
        do
                host_counters(h, &c);
        while (c.n_groups < 1 || c.n_sessions < 2);
        seconds_sleep(0.1); /* both have joined by now */
        replica_kill9(r[1]);
        ck_assert_int_eq(replica_end(r[0], 2), 0);
        host_expect_counters_zero(h);
        host_stop(h);
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
        replicas_run(1, be_the_world);
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
        expect_status(floats_sum(g, "y", &f), TUTTI_REPLICA_LOST);
        ck_assert_int_eq(tutti_error_info()->rank, 0);
        ck_assert_uint_eq(tutti_error_info()->n_replicas, 2);
        ck_assert_uint_eq(tutti_error_info()->replicas[0].pid, board->pids[1]);
        ck_assert_uint_eq(tutti_error_info()->replicas[1].pid, board->pids[1]);
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
        board_note_pid(me);
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
                w[i] = floats_start(joiners[i].group, "x", &f[i], 0);
        for (int i = 0; i < 2; i++) {
                expect_work(w[i], TUTTI_OK);
                floats_expect(&f[i], 7);
        }
        replica_hear(me, "never");
}

START_TEST(one_process_may_be_two_members_and_dies_as_both) {
        board_init();
        struct host *h = host_start(NULL);
        struct replica *r[2];
        r[0] = replica_spawn(h, &(struct replica_options){ .rank = 0, .n = 3, .body = be_rank_2 });
        r[1] = replica_spawn(h, &(struct replica_options){ .rank = 1, .n = 3, .body = be_ranks_0_and_1 });
        replica_expect(r[0], "met", 10);
        host_expect_pending(h, 1);
        replica_kill9(r[1]);
        replicas_end(h, r, 1);
}
END_TEST

UNIT_MAIN("join", 30, P1_a_newcomer_who_does_not_fit_is_refused_alone, P1_limits_of_names_and_keys,
        A7_a_join_that_times_out_names_the_fourth, A7_the_death_of_a_joiner_reaches_the_others_at_once,
        one_process_may_be_the_whole_world, one_process_may_be_two_members_and_dies_as_both)
