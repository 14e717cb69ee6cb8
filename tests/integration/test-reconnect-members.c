/* tuttid ends and another one follows, seen from one member: what its calls say meanwhile, who comes back and
 * who does not (P9, M1). */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/admin.h>
#include <unistd.h>
#include "meeting.h"
#include "replica.h"
#include "unit.h"

#define RECONNECT 20.0

static struct tutti_group *join(struct replica *me, const char *group) {
        struct tutti_group *g;
        expect_status(
                tutti_join(me->t,
                        &TUTTI_JOIN(.group = group, .job = "test", .rank = (int32_t)me->rank,
                                .world_size = (int32_t)me->n, .join_timeout = 15, .default_timeout = 20),
                        &g),
                TUTTI_OK);
        return g;
}

static void expect_ends(struct replica *const *r, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                ck_assert_int_eq(replica_end(r[i], 20), 0);
}

/* `n` replicas say "met", tuttid is killed and started, and they go on to their end. */
static void kill_between(uint32_t n, void (*body)(struct replica *me)) {
        struct replica *r[4];
        struct host *h = host_start(NULL);
        replicas_spawn(h, n, body, NULL, r);
        replicas_expect(r, n, "met", 10);
        host_kill9(h);
        host_start_again(h);
        replicas_tell(r, n, "go on");
        replicas_expect(r, n, "over", 20);
        replicas_tell(r, n, "end");
        expect_ends(r, n);
        host_expect_counters_zero(h);
        host_stop(h);
}

static void pause_for_restart(struct replica *me) {
        replica_say(me, "met");
        replica_hear(me, "go on");
}

static void end_together(struct replica *me) {
        replica_say(me, "over");
        replica_hear(me, "end");
}

/* --- a tuttid that does not come back --- */

static void wait_in_vain(struct replica *me) {
        struct floats f;
        struct tutti_work *w;
        struct tutti_buffer *b;
        replica_open_again(me, 0.5);
        struct tutti_group *g = join(me, "gone");
        floats_init(me->t, &f, 100);
        if (me->rank == 0)
                expect_status(
                        tutti_all_reduce_start(g, "k", TUTTI_SUM, &f.value, &f.value, NULL, &w), TUTTI_OK);
        replica_say(me, "waiting");
        replica_hear(me, "it is dead");
        double before = seconds_now();
        if (me->rank == 0) {
                expect_work(w, TUTTI_DAEMON_LOST);
                expect_in(tutti_work_error(w)->text, "has not come back for 0.5 s");
                tutti_work_free(w);
        } else {
                expect_status(floats_sum(g, "k", &f), TUTTI_DAEMON_LOST);
                expect_in(tutti_error(), "has not come back for 0.5 s");
        }
        double took = seconds_now() - before;
        ck_assert_double_gt(took, 0.3);
        ck_assert_double_lt(took, 5 * unit_scale());
        expect_status(floats_sum(g, "later", &f), TUTTI_DAEMON_LOST);
        expect_status(tutti_dispatch(me->t), TUTTI_DAEMON_LOST);
        ck_assert_int_ne(tutti_buffer_alloc(me->t, 64 << 20, &b), TUTTI_OK);
        floats_fill(&f, 3);
        floats_expect(&f, 3);
}

START_TEST(M1_who_waits_in_vain_is_told_in_time_and_keeps_its_memory) {
        struct replica *r[2];
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, wait_in_vain, NULL, r);
        replicas_expect(r, 2, "waiting", 10);
        host_kill9(h);
        replicas_tell(r, 2, "it is dead");
        expect_ends(r, 2);
        host_stop(h);
}
END_TEST

/* --- members that do not come back --- */

static struct tutti_group *join_quickly(struct replica *me, enum tutti_on_death on_death) {
        struct tutti_group *g;
        expect_status(tutti_join(me->t,
                              &TUTTI_JOIN(.group = "few", .job = "test", .rank = (int32_t)me->rank,
                                      .world_size = (int32_t)me->n, .join_timeout = 1, .default_timeout = 20,
                                      .on_death = on_death),
                              &g),
                TUTTI_OK);
        return g;
}

/* The last one dies while tuttid is away; the others wait for it, for as long as a join would. */
static void lose_one_meanwhile(struct replica *me) {
        struct floats f;
        const enum tutti_on_death *on_death = me->arg;
        replica_open_again(me, RECONNECT);
        struct tutti_group *g = join_quickly(me, *on_death);
        floats_init(me->t, &f, 1000);
        floats_meet(g, "before", &f, 1, (float)me->n);
        replica_say(me, "met");
        replica_hear(me, "go on");
        floats_fill(&f, 1);
        enum tutti_status status = floats_sum(g, "after", &f);
        if (*on_death == TUTTI_SHRINK) {
                expect_status(status, TUTTI_OK);
                floats_expect(&f, (float)(me->n - 1));
                expect_ranks(&tutti_last_result()->contributors, 3);
        } else {
                expect_status(status, TUTTI_REPLICA_LOST);
                ck_assert_int_eq(tutti_error_info()->rank, (int)me->n - 1);
                expect_in(tutti_error(), "did not come back after a restart of tuttid");
                expect_status(tutti_shrink(g, 0), TUTTI_OK);
                ck_assert_uint_eq(tutti_epoch(g), 2);
                floats_meet(g, NULL, &f, 1, (float)(me->n - 1));
        }
        replica_say(me, "over");
        replica_hear(me, "end");
}

static void lose_one(enum tutti_on_death on_death) {
        struct replica *r[3];
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, lose_one_meanwhile, &on_death, r);
        replicas_expect(r, 3, "met", 10);
        host_kill9(h);
        replica_kill9(r[2]);
        replicas_tell(r, 2, "go on");
        host_start_again(h);
        replicas_expect(r, 2, "over", 20);
        replicas_tell(r, 2, "end");
        expect_ends(r, 2);
        host_expect_counters_zero(h);
        host_stop(h);
}

START_TEST(P5_M1_who_died_while_tuttid_was_away_is_lost_to_a_group_that_fails) {
        lose_one(TUTTI_FAIL);
}
END_TEST

START_TEST(P5_M1_who_died_while_tuttid_was_away_is_missing_in_a_group_that_shrinks) {
        lose_one(TUTTI_SHRINK);
}
END_TEST

/* --- a replacement takes its rank meanwhile --- */

static void be_replaced(struct replica *me) {
        struct floats f;
        const _Atomic uint32_t *is_second = me->arg;
        bool is_newcomer = me->rank == 2 && atomic_load(is_second);
        replica_open_again(me, RECONNECT);
        struct tutti_group *g = join(me, "replaced");
        floats_init(me->t, &f, 1000);
        if (!is_newcomer) {
                floats_meet(g, NULL, &f, 1, 3);
                replica_say(me, "met");
                replica_hear(me, "go on");
                expect_status(floats_sum(g, NULL, &f), TUTTI_REPLICA_LOST);
                expect_status(tutti_rejoin(g, 0), TUTTI_OK);
        }
        ck_assert_uint_eq(tutti_epoch(g), 2);
        floats_meet(g, NULL, &f, 1, 3);
        replica_say(me, "over");
        replica_hear(me, "end");
}

START_TEST(P5_M1_a_newcomer_in_a_rank_that_died_meanwhile_waits_for_rejoin) {
        struct replica *r[3];
        _Atomic uint32_t *is_second = memory_shared(sizeof(*is_second));
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, be_replaced, is_second, r);
        replicas_expect(r, 3, "met", 10);
        host_kill9(h);
        replica_kill9(r[2]);
        atomic_store(is_second, 1);
        host_start_again(h);
        r[2] = replica_spawn(
                h, &(struct replica_options){ .rank = 2, .n = 3, .body = be_replaced, .arg = is_second });
        replicas_tell(r, 2, "go on");
        replicas_expect(r, 3, "over", 20);
        replicas_tell(r, 3, "end");
        expect_ends(r, 3);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- debts --- */

static void owe(struct replica *me) {
        struct floats f;
        replica_open_again(me, RECONNECT);
        struct tutti_group *g = join(me, "debts");
        floats_init(me->t, &f, 10);
        if (me->rank == 0) {
                struct tutti_work *w = floats_start(g, "grad", &f, 0.2);
                expect_work(w, TUTTI_TIMEOUT);
                tutti_work_free(w);
        }
        replica_say(me, "met");
        replica_hear(me, "go on");
        floats_fill(&f, 1);
        if (me->rank == 1) { /* comes late, also across the restart: it does not meet the retry */
                expect_status(floats_sum(g, "grad", &f), TUTTI_EXPIRED);
                expect_in(tutti_error(), "TIMEOUT");
        }
        floats_meet(g, "grad", &f, 1, 2);
        replica_say(me, "over");
        replica_hear(me, "end");
}

START_TEST(P3_M1_debts_outlive_tuttid) {
        kill_between(2, owe);
}
END_TEST

/* --- for an event loop: nothing is called but when the descriptor says so --- */

static enum tutti_status wait_by_descriptor(struct tutti *t, struct tutti_work *w) {
        struct pollfd fd = { .fd = tutti_fd(t), .events = POLLIN };
        enum tutti_status status;
        while ((status = tutti_work_test(w)) == TUTTI_PENDING) {
                ck_assert_int_eq(poll(&fd, 1, (int)(20000 * unit_scale())), 1);
                expect_status(tutti_dispatch(t), TUTTI_OK);
        }
        return status;
}

static void loop_on_events(struct replica *me) {
        struct floats f;
        struct tutti_work *w = NULL;
        replica_open_again(me, RECONNECT);
        struct tutti_group *g = join(me, "events");
        floats_init(me->t, &f, 1000);
        floats_fill(&f, 1);
        if (me->rank == 0)
                w = floats_start(g, "k", &f, 0);
        pause_for_restart(me);
        if (me->rank == 1)
                w = floats_start(g, "k", &f, 0);
        expect_status(wait_by_descriptor(me->t, w), TUTTI_OK);
        floats_expect(&f, 2);
        tutti_work_free(w);
        end_together(me);
}

START_TEST(M1_a_loop_that_calls_dispatch_alone_goes_on) {
        kill_between(2, loop_on_events);
}
END_TEST

/* --- many threads --- */

struct worker {
        struct tutti *t;
        struct tutti_group *g;
        pthread_t thread;
        uint32_t index, n_steps;
};

#define N_THREADS 4

static void *meet_in_thread(void *arg) {
        struct worker *worker = arg;
        struct floats f;
        char key[16];
        snprintf(key, sizeof(key), "thread %u", worker->index);
        floats_init(worker->t, &f, 500);
        for (uint32_t i = 0; i < worker->n_steps; i++) {
                floats_fill(&f, 1);
                enum tutti_status status = floats_sum(worker->g, key, &f);
                if (status == TUTTI_OUTPUT_LOST)
                        i--;
                else
                        expect_status(status, TUTTI_OK);
                if (status == TUTTI_OK)
                        floats_expect(&f, 2);
        }
        floats_deinit(&f);
        return NULL;
}

static void meet_in_threads(struct replica *me) {
        struct worker workers[N_THREADS];
        replica_open_again(me, RECONNECT);
        struct tutti_group *g = join(me, "threads");
        replica_say(me, "met");
        for (uint32_t i = 0; i < N_THREADS; i++) {
                workers[i] = (struct worker){ .t = me->t, .g = g, .index = i, .n_steps = 300 };
                ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, meet_in_thread, &workers[i]), 0);
        }
        for (uint32_t i = 0; i < N_THREADS; i++)
                pthread_join(workers[i].thread, NULL);
        end_together(me);
}

START_TEST(M1_threads_of_a_connection_all_go_on) {
        struct replica *r[2];
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, meet_in_threads, NULL, r);
        replicas_expect(r, 2, "met", 10);
        for (int i = 0; i < 6; i++) {
                seconds_sleep(0.02 + 0.005 * i);
                host_kill9(h);
                host_start_again(h);
        }
        replicas_expect(r, 2, "over", 40);
        replicas_tell(r, 2, "end");
        expect_ends(r, 2);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- what people see, and calls of other kinds --- */

static void expect_restored(struct tutti *t, const char *group, int restored) {
        struct tutti_answer *a;
        expect_status(tutti_admin_ask(t, TUTTI_ADMIN_GROUPS, "test", group, &a), TUTTI_OK);
        ck_assert_uint_ge(a->n_rows, 1);
        ck_assert_int_eq(a->rows[0].type, TUTTI_ROW_GROUP);
        ck_assert_int_eq(a->rows[0].group.restored, restored);
        tutti_answer_free(a);
}

/* Buffers of before, buffers of meanwhile, a group of meanwhile. */
static void use_other_calls(struct replica *me) {
        struct floats f, more;
        struct tutti_buffer *big;
        replica_open_again(me, RECONNECT);
        struct tutti_group *g = join(me, "calls");
        floats_init(me->t, &f, 1000);
        expect_restored(me->t, "calls", 0);
        pause_for_restart(me);
        expect_status(tutti_buffer_alloc(me->t, 64 << 20, &big), TUTTI_OK);
        struct tutti_group *other = join(me, "meanwhile");
        floats_init(me->t, &more, 1 << 20);
        floats_meet(other, NULL, &more, 1, 2);
        expect_status(tutti_busy(g, "saving", 1), TUTTI_OK);
        floats_meet(g, NULL, &f, 1, 2);
        expect_restored(me->t, "calls", 1);
        expect_restored(me->t, "meanwhile", 0);
        expect_status(tutti_barrier(g, "b"), TUTTI_OK);
        tutti_buffer_free(big);
        end_together(me);
}

START_TEST(M1_other_calls_wait_for_tuttid_and_a_restored_group_is_seen) {
        kill_between(2, use_other_calls);
}
END_TEST

/* --- busy --- */

/* R1 has said that it is busy; the next tuttid hears it from the library. */
static void be_busy(struct replica *me) {
        struct floats f;
        replica_open_again(me, RECONNECT);
        struct tutti_group *g;
        expect_status(tutti_join(me->t,
                              &TUTTI_JOIN(.group = "busy", .job = "test", .rank = (int32_t)me->rank,
                                      .world_size = 2, .default_timeout = 0.5 * unit_scale()),
                              &g),
                TUTTI_OK);
        floats_init(me->t, &f, 100);
        if (me->rank == 1)
                expect_status(tutti_busy(g, "saving", 60 * unit_scale()), TUTTI_OK);
        pause_for_restart(me);
        for (int i = 0; me->rank == 1 && i < 150 * unit_scale(); i++) {
                expect_status(tutti_dispatch(me->t), TUTTI_OK);
                seconds_sleep(0.01);
        }
        floats_meet(g, "k", &f, 1, 2);
        end_together(me);
}

START_TEST(P6_M1_who_is_busy_is_so_for_the_next_tuttid_too) {
        kill_between(2, be_busy);
}
END_TEST

/* --- by the environment, and where it is not possible --- */

static void open_by_environment(struct replica *me) {
        struct floats f;
        setenv("TUTTI_RECONNECT", "soon", 1);
        struct tutti *t;
        expect_status(tutti_open(me->socket, &t), TUTTI_INVALID);
        expect_in(tutti_error(), "TUTTI_RECONNECT");
        setenv("TUTTI_RECONNECT", "20", 1);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "environment"));
        floats_init(me->t, &f, 100);
        floats_meet(g, NULL, &f, 1, 2);
        pause_for_restart(me);
        floats_meet(g, NULL, &f, 1, 2);
        end_together(me);
}

START_TEST(M1_the_environment_asks_for_it_in_a_program_that_does_not) {
        kill_between(2, open_by_environment);
}
END_TEST

static void hold_an_object(struct replica *me) {
        struct floats f;
        struct tutti_object *o;
        replica_open_again(me, RECONNECT);
        struct tutti_group *g = join(me, "objects");
        floats_init(me->t, &f, 100);
        expect_status(tutti_object_make(g, &TUTTI_OBJECT(.name = "o", .n_bytes = 4096), &o), TUTTI_OK);
        pause_for_restart(me);
        expect_status(floats_sum(g, "k", &f), TUTTI_DAEMON_LOST);
        expect_in(tutti_error(), "result objects go with tuttid");
        end_together(me);
}

START_TEST(P9_what_cannot_be_carried_over_is_said) {
        kill_between(2, hold_an_object);
}
END_TEST

/* --- a member that left before need not come back --- */

static void leave_first(struct replica *me) {
        struct floats f;
        replica_open_again(me, RECONNECT);
        struct tutti_group *g = join(me, "leavers");
        floats_init(me->t, &f, 100);
        floats_meet(g, NULL, &f, 1, 3);
        if (me->rank == 2)
                expect_status(tutti_leave(g), TUTTI_OK);
        expect_status(
                tutti_barrier(g, me->rank == 2 ? "gone" : "two"), me->rank == 2 ? TUTTI_LEFT : TUTTI_OK);
        pause_for_restart(me);
        if (me->rank != 2)
                floats_meet(g, NULL, &f, 1, 2);
        end_together(me);
}

START_TEST(M1_who_has_left_is_not_waited_for) {
        kill_between(3, leave_first);
}
END_TEST

static void dispatch_for(struct replica *me, double seconds) {
        for (double begin = seconds_now(); seconds_now() - begin < seconds; seconds_sleep(0.001))
                expect_status(tutti_dispatch(me->t), TUTTI_OK);
}

/* The last one leaves when it alone has come back: the new tuttid has its Join, and waits for the others. */
static void leave_behind_join(struct replica *me) {
        struct floats f;
        const bool leaves = me->rank == 2;
        replica_open_again(me, RECONNECT);
        struct tutti_group *g = join(me, "leavers");
        floats_init(me->t, &f, 100);
        floats_meet(g, NULL, &f, 1, 3);
        pause_for_restart(me);
        if (leaves) {
                dispatch_for(me, 0.5);
                expect_status(tutti_leave(g), TUTTI_OK);
        }
        replica_say(me, "left");
        replica_hear(me, "meet");
        if (leaves)
                dispatch_for(me, 3 * unit_scale());
        else
                floats_meet(g, NULL, &f, 1, 2);
        end_together(me);
}

START_TEST(P9_M1_who_leaves_behind_its_join_is_not_there) {
        struct replica *r[3];
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, leave_behind_join, NULL, r);
        replicas_expect(r, 3, "met", 10);
        host_kill9(h);
        host_start_again(h);
        replica_tell(r[2], "go on");
        replicas_expect(&r[2], 1, "left", 10);
        replicas_tell(r, 2, "go on");
        replicas_expect(r, 2, "left", 10);
        replicas_tell(r, 3, "meet");
        replicas_expect(r, 3, "over", 15);
        replicas_tell(r, 3, "end");
        expect_ends(r, 3);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- a tuttid that is drained does not end --- */

static void drain_and_go_on(struct replica *me) {
        struct tutti_group *g, *other;
        struct floats f;
        replica_open_again(me, RECONNECT);
        g = join(me, "here before");
        floats_init(me->t, &f, 100);
        floats_meet(g, NULL, &f, 1, 1);
        expect_status(tutti_admin_drain(me->t), TUTTI_OK);
        enum tutti_status status = tutti_join(
                me->t, &TUTTI_JOIN(.group = "new", .job = "test", .rank = 0, .world_size = 1), &other);
        expect_status(status, TUTTI_DRAINING);
        floats_meet(g, NULL, &f, 2, 2);
        expect_status(tutti_admin_undrain(me->t), TUTTI_OK);
        g = join(me, "new");
        floats_meet(g, NULL, &f, 3, 3);
}

START_TEST(P9_a_drained_tuttid_is_not_waited_for) {
        struct host *h = host_start(NULL);
        run_replicas(h, 1, drain_and_go_on, NULL);
        host_stop(h);
}
END_TEST

UNIT_MAIN("reconnect-members", 120, M1_who_waits_in_vain_is_told_in_time_and_keeps_its_memory,
        P5_M1_who_died_while_tuttid_was_away_is_lost_to_a_group_that_fails,
        P5_M1_who_died_while_tuttid_was_away_is_missing_in_a_group_that_shrinks,
        P5_M1_a_newcomer_in_a_rank_that_died_meanwhile_waits_for_rejoin, P3_M1_debts_outlive_tuttid,
        M1_a_loop_that_calls_dispatch_alone_goes_on, M1_threads_of_a_connection_all_go_on,
        M1_other_calls_wait_for_tuttid_and_a_restored_group_is_seen,
        M1_the_environment_asks_for_it_in_a_program_that_does_not,
        P6_M1_who_is_busy_is_so_for_the_next_tuttid_too, P9_what_cannot_be_carried_over_is_said,
        M1_who_has_left_is_not_waited_for, P9_M1_who_leaves_behind_its_join_is_not_there,
        P9_a_drained_tuttid_is_not_waited_for)
