/* Who waits in vain is told whom it waited for, and everything goes on (A1 A3 A4 A5, P6). */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <tutti/admin.h>
#include "meeting.h"

#define LIMIT 0.5 /* s: the deadline where one is to expire */
#define LATE  10  /* a deadline of t has come by LATE * t, here and on slower machines */

static struct tutti_group *join(struct replica *me, double default_timeout) {
        board_note_pid(me);
        return replica_join_group(me, &TUTTI_JOIN(.group = "train", .default_timeout = default_timeout));
}

/* The error names this one replica, and nobody else, as missing. */
static const struct tutti_replica *expect_missing(const struct tutti_error_info *e, uint32_t rank) {
        char text[32];
        expect_ranks(&e->missing, UINT64_C(1) << rank);
        ck_assert_uint_eq(e->n_replicas, 1);
        ck_assert_uint_eq(e->replicas[0].rank, rank);
        ck_assert_uint_eq(e->replicas[0].pid, board->pids[rank]);
        snprintf(text, sizeof(text), "R%u (pid %u", rank, board->pids[rank]);
        expect_in(e->text, text);
        return &e->replicas[0];
}

/* --- A1: the one who is missing is named --- */

static void wait_in_vain(struct tutti_group *g, struct floats *f) {
        double begin = seconds_now();
        floats_fill(f, 5);
        expect_status(floats_sum(g, "grad/7", f), TUTTI_TIMEOUT);
        double took = seconds_now() - begin;
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_int_eq(e->status, TUTTI_TIMEOUT);
        ck_assert_double_lt(took, LATE * LIMIT * unit_scale());
        ck_assert_double_ge(e->age, LIMIT);
        ck_assert_double_lt(e->age, LATE * LIMIT * unit_scale());
        if (e->rank == (int32_t)tutti_rank(g)) /* the deadline was mine */
                ck_assert_double_ge(took, LIMIT);
        ck_assert_int_le(e->rank, 2);
        expect_ranks(&e->have, 0x7);
        const struct tutti_replica *r = expect_missing(e, 3);
        ck_assert_int_eq(r->state, TUTTI_ALIVE);
        ck_assert_str_eq(r->last_key, "grad/6");
        ck_assert_double_ge(r->last_age, LIMIT);
        ck_assert_double_lt(r->last_age, LATE * LIMIT * unit_scale());
        ck_assert_str_eq(e->job, "test");
        ck_assert_str_eq(e->group, "train");
        ck_assert_str_eq(e->key, "grad/7");
        expect_in(e->text, "grad/7");
        expect_in(e->text, "test/train");
        expect_in(e->text, "alive");
        expect_in(e->text, "\"grad/6\"");
        floats_expect(f, 5);
}

static void come_late(struct tutti_group *g, struct floats *f) {
        floats_fill(f, 5);
        expect_status(floats_sum(g, "grad/7", f), TUTTI_EXPIRED);
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_int_eq(e->cause, TUTTI_TIMEOUT);
        ck_assert_int_ge(e->rank, 0);
        ck_assert_int_le(e->rank, 2);
        ck_assert_str_eq(e->key, "grad/7");
        expect_in(e->text, "TIMEOUT");
        expect_in(e->text, "grad/7");
        floats_expect(f, 5);
}

static void seven_steps(struct replica *me) {
        struct floats f;
        char key[16];
        struct tutti_group *g = join(me, LIMIT);
        floats_init(me->t, &f, 100);
        for (int step = 1; step <= 6; step++) {
                snprintf(key, sizeof(key), "grad/%d", step);
                floats_meet(g, key, &f, (float)(step * (int)(me->rank + 1)), 10.0F * (float)step);
        }
        if (me->rank == 3) {
                replica_hear(me, "late");
                come_late(g, &f);
        } else {
                wait_in_vain(g, &f);
        }
        replica_say(me, "heard");
        replica_hear(me, "again");
        floats_meet(g, "grad/7", &f, 2, 8);
}

START_TEST(A1_the_missing_replica_is_named_and_comes_too_late) {
        struct replica *r[4];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 4, seven_steps, NULL, r);
        replicas_expect(r, 3, "heard", 2 * LATE * LIMIT);
        replica_tell(r[3], "late");
        replica_expect(r[3], "heard", 2);
        replicas_tell(r, 4, "again");
        replicas_end(h, r, 4);
}
END_TEST

/* --- A3: alive, but stopped --- */

static void wait_for_a_stopped_one(struct tutti_group *g, struct floats *f) {
        expect_status(floats_sum(g, "x", f), TUTTI_TIMEOUT);
        const struct tutti_error_info *e = tutti_error_info();
        const struct tutti_replica *r = expect_missing(e, 1);
        ck_assert_int_eq(r->state, TUTTI_STOPPED);
        ck_assert_str_eq(r->last_key, "warm");
        expect_in(e->text, "alive, stopped");
}

static void meet_around_a_stop(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, LIMIT);
        floats_init(me->t, &f, 10);
        floats_meet(g, "warm", &f, 1, 3);
        replica_say(me, "warm");
        replica_hear(me, "go");
        if (me->rank == 1) {
                expect_status(floats_sum(g, "x", &f), TUTTI_EXPIRED);
                ck_assert_int_eq(tutti_error_info()->cause, TUTTI_TIMEOUT);
        } else {
                wait_for_a_stopped_one(g, &f);
        }
        replica_say(me, "heard");
        replica_hear(me, "again");
        floats_meet(g, "x", &f, 3, 9);
}

static void stop(struct replica *r) {
        int status;
        replica_signal(r, SIGSTOP);
        ck_assert_int_eq(waitpid(r->pid, &status, WUNTRACED), r->pid);
        ck_assert(WIFSTOPPED(status));
}

START_TEST(A3_a_stopped_replica_is_named_as_stopped) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, meet_around_a_stop, NULL, r);
        replicas_expect(r, 3, "warm", 10);
        stop(r[1]);
        replicas_tell(r, 3, "go");
        replica_expect(r[0], "heard", 2 * LATE * LIMIT);
        replica_expect(r[2], "heard", 2 * LATE * LIMIT);
        replica_signal(r[1], SIGCONT);
        replica_expect(r[1], "heard", 5);
        replicas_tell(r, 3, "again");
        replicas_end(h, r, 3);
}
END_TEST

/* --- A4: an error ends a collective, not the process --- */

static void go_on_after_timeout(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, 0);
        floats_init(me->t, &f, 10);
        if (me->rank == 0) {
                struct tutti_work *w = floats_start(g, "x", &f, 0.1);
                expect_work(w, TUTTI_TIMEOUT);
                tutti_work_free(w);
                replica_say(me, "timeout");
        } else {
                replica_hear(me, "go");
        }
        floats_meet(g, "y", &f, 1, 2);
        if (me->rank == 1)
                expect_status(floats_sum(g, "x", &f), TUTTI_EXPIRED);
        floats_meet(g, "x", &f, 2, 4);
        floats_meet(g, NULL, &f, 3, 6);
}

START_TEST(A4_after_a_timeout_the_group_goes_on) {
        struct replica *r[2];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, go_on_after_timeout, NULL, r);
        replica_expect(r[0], "timeout", 5);
        replica_tell(r[1], "go");
        replicas_end(h, r, 2);
}
END_TEST

static void go_on_without_the_dead(struct replica *me) {
        struct floats f;
        board->pids[me->rank] = (uint32_t)getpid();
        struct tutti_group *g =
                replica_join_group(me, &TUTTI_JOIN(.group = "train", .on_death = TUTTI_SHRINK));
        floats_init(me->t, &f, 10);
        floats_meet(g, "warm", &f, 1, 3);
        replica_say(me, "warm");
        if (me->rank == 2)
                replica_hear(me, "never");
        /* What waits for the dead one goes on without it, and so does what comes later. */
        floats_meet(g, "x", &f, 1, 2);
        expect_ranks(&tutti_last_result()->contributors, 0x3);
        ck_assert_uint_eq(tutti_last_result()->n_contributors, 2);
        floats_meet(g, "y", &f, 2, 4);
        /* But a broadcast has no value without its root. */
        expect_status(tutti_broadcast(g, "z", 2, &f.value), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_ROOT);
        ck_assert_int_eq(tutti_error_info()->loss, TUTTI_DIED);
        floats_meet(g, "end", &f, 3, 6);
}

START_TEST(A4_after_a_death_with_shrink_the_group_goes_on) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, go_on_without_the_dead, NULL, r);
        replicas_expect(r, 3, "warm", 10);
        host_expect_pending(h, 2);
        replica_kill9(r[2]);
        replicas_end(h, r, 2);
}
END_TEST

/* --- A5: busy stops the clock --- */

static void be_busy(struct replica *me, struct tutti_group *g, struct floats *f) {
        expect_status(tutti_busy(g, "checkpoint", 600), TUTTI_OK);
        replica_say(me, "busy");
        seconds_sleep(3 * LIMIT);
        floats_meet(g, "x", f, 1, 6);
        /* The submission has ended it. */
        replica_say(me, "met");
        replica_hear(me, "go on");
        expect_status(floats_sum(g, "y", f), TUTTI_EXPIRED);
}

/* Rank 1 has the group's deadline, rank 2 tuttid's. */
static void wait_for_a_busy_one(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, me->rank == 1 ? LIMIT : 0);
        floats_init(me->t, &f, 10);
        if (me->rank == 0) {
                be_busy(me, g, &f);
                return;
        }
        replica_hear(me, "go");
        double begin = seconds_now();
        floats_meet(g, "x", &f, (float)me->rank + 1, 6);
        ck_assert_double_gt(seconds_now() - begin, LIMIT * 1.2);
        expect_status(floats_sum(g, "y", &f), TUTTI_TIMEOUT);
        ck_assert_ptr_null(tutti_error_info()->replicas[0].busy);
        replica_say(me, "timeout");
        replica_hear(me, "end");
}

/* The reason is seen by whoever asks, in the member's row and beside what waits. */
static void expect_reason(struct host *h, const char *reason) {
        struct tutti *t;
        struct tutti_answer *a;
        uint32_t n_members = 0, n_pending = 0;
        expect_status(tutti_open(host_socket(h), &t), TUTTI_OK);
        expect_status(tutti_admin_ask(t, TUTTI_ADMIN_GROUPS, "test", "train", &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++)
                if (a->rows[i].type == TUTTI_ROW_MEMBER) {
                        const struct tutti_row_member *m = &a->rows[i].member;
                        ck_assert_str_eq(m->busy, m->rank == 0 ? reason : "");
                        n_members++;
                }
        ck_assert_uint_eq(n_members, 3);
        tutti_answer_free(a);
        expect_status(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++)
                if (a->rows[i].type == TUTTI_ROW_PENDING) {
                        const struct tutti_row_pending *p = &a->rows[i].pending;
                        ck_assert_str_eq(p->key, "x");
                        expect_ranks(&p->missing, 0x1);
                        ck_assert_uint_eq(p->n_replicas, 1);
                        ck_assert_str_eq(p->replicas[0].busy, reason);
                        n_pending++;
                }
        ck_assert_uint_eq(n_pending, 1);
        tutti_answer_free(a);
        tutti_close(t);
}

START_TEST(A5_busy_stops_the_clocks_of_default_deadlines_until_the_next_submission) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start((const char *[]){ "--set", "time.default-timeout=500ms", NULL });
        replicas_spawn(h, 3, wait_for_a_busy_one, NULL, r);
        replica_expect(r[0], "busy", 10);
        replicas_tell(r + 1, 2, "go");
        host_expect_pending(h, 2);
        expect_reason(h, "checkpoint");
        replica_expect(r[0], "met", 10);
        replicas_expect(r + 1, 2, "timeout", 2 * LATE * LIMIT);
        replica_tell(r[0], "go on");
        ck_assert_int_eq(replica_end(r[0], 10), 0);
        replicas_tell(r + 1, 2, "end");
        replicas_end(h, r + 1, 2);
}
END_TEST

/* A limit that the caller set itself counts whatever the others say. So does time after busy has ended. */
static void wait_with_an_own_limit(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, LIMIT / 2);
        floats_init(me->t, &f, 10);
        if (me->rank == 0) {
                expect_status(tutti_busy(g, "evaluation", 60), TUTTI_OK);
                replica_say(me, "busy");
                replica_hear(me, "end busy");
                expect_status(tutti_busy(g, NULL, 0), TUTTI_OK);
                replica_say(me, "not busy");
                replica_hear(me, "end");
                return;
        }
        replica_hear(me, "go");
        struct tutti_work *own = floats_start(g, "own", &f, LIMIT), *soft = floats_start(g, "soft", &f, 0);
        expect_work(own, TUTTI_TIMEOUT);
        ck_assert_str_eq(tutti_work_error(own)->replicas[0].busy, "evaluation");
        expect_in(tutti_work_error(own)->text, "evaluation");
        ck_assert_int_eq(tutti_work_test(soft), TUTTI_PENDING);
        replica_say(me, "waits");
        replica_hear(me, "not busy");
        expect_work(soft, TUTTI_TIMEOUT);
        ck_assert_ptr_null(tutti_work_error(soft)->replicas[0].busy);
        replica_say(me, "heard");
}

START_TEST(A5_busy_does_not_stop_a_deadline_of_the_call_and_can_be_ended) {
        struct replica *r[2];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, wait_with_an_own_limit, NULL, r);
        replica_expect(r[0], "busy", 10);
        replica_tell(r[1], "go");
        replica_expect(r[1], "waits", 2 * LATE * LIMIT);
        replica_tell(r[0], "end busy");
        replica_expect(r[0], "not busy", 5);
        replica_tell(r[1], "not busy");
        replica_expect(r[1], "heard", 2 * LATE * LIMIT);
        replica_tell(r[0], "end");
        replicas_end(h, r, 2);
}
END_TEST

/* busy_max ends what nobody ends. */
START_TEST(A5_busy_ends_by_itself) {
        struct replica *r[2];
        board_init();
        struct host *h = host_start((const char *[]){ "--set", "time.busy-max=700ms", NULL });
        replicas_spawn(h, 2, wait_with_an_own_limit, NULL, r);
        replica_expect(r[0], "busy", 10);
        replica_tell(r[1], "go");
        replica_expect(r[1], "waits", 2 * LATE * LIMIT);
        replica_tell(r[1], "not busy"); /* it is by now, or soon, without having said so */
        replica_expect(r[1], "heard", 2 * LATE * LIMIT);
        replica_tell(r[0], "end busy");
        replica_expect(r[0], "not busy", 5);
        replica_tell(r[0], "end");
        replicas_end(h, r, 2);
}
END_TEST

/* --- P6: whose limit counts --- */

/* How long it took to TIMEOUT, which is at least `limit`, and much less than what the others allow. */
static void expect_limit(struct tutti_group *g, const char *key, double call_timeout, double limit) {
        struct tutti_work *w;
        expect_status(tutti_barrier_start(g, key, &TUTTI_OPTIONS(.timeout = call_timeout), &w), TUTTI_OK);
        expect_work(w, TUTTI_TIMEOUT);
        const struct tutti_error_info *e = tutti_work_error(w);
        ck_assert_double_ge(e->age, limit);
        ck_assert_double_lt(e->age, LATE * limit * unit_scale());
        ck_assert_int_eq(e->rank, 0);
        tutti_work_free(w);
}

static struct tutti_group *join_as(struct replica *me, const char *group, double default_timeout) {
        return replica_join_group(me, &TUTTI_JOIN(.group = group, .default_timeout = default_timeout));
}

static void compare_limits(struct replica *me) {
        struct tutti_group *plain = join_as(me, "plain", 0), *longer = join_as(me, "longer", 0.6),
                           *shorter = join_as(me, "shorter", 0.05), *endless = join_as(me, "endless", -1);
        if (me->rank == 0) {
                struct tutti_work *never, *also;
                expect_status(tutti_barrier_start(endless, "never", NULL, &never), TUTTI_OK);
                expect_status(tutti_barrier_start(shorter, "never", &TUTTI_OPTIONS(.timeout = -1), &also),
                        TUTTI_OK);
                expect_limit(plain, "config", 0, 0.2);
                expect_limit(shorter, "group below config", 0, 0.05);
                expect_limit(longer, "group above config", 0, 0.6);
                expect_limit(longer, "call below group", 0.02, 0.02);
                expect_limit(shorter, "call above group", 0.4, 0.4);
                expect_limit(endless, "call where the group has none", 0.1, 0.1);
                ck_assert_int_eq(tutti_work_test(never), TUTTI_PENDING);
                ck_assert_int_eq(tutti_work_test(also), TUTTI_PENDING);
                replica_say(me, "done");
                expect_work(never, TUTTI_OK);
                expect_work(also, TUTTI_OK);
        } else {
                replica_hear(me, "go");
                expect_status(tutti_barrier(endless, "never"), TUTTI_OK);
                expect_status(tutti_barrier(shorter, "never"), TUTTI_OK);
        }
}

START_TEST(P6_call_over_group_over_config) {
        struct replica *r[2];
        struct host *h = host_start((const char *[]){ "--set", "time.default-timeout=200ms", NULL });
        replicas_spawn(h, 2, compare_limits, NULL, r);
        replica_expect(r[0], "done", 15);
        replica_tell(r[1], "go");
        replicas_end(h, r, 2);
}
END_TEST

static void wait_with_different_patience(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, 0);
        floats_init(me->t, &f, 10);
        if (me->rank == 2) {
                replica_hear(me, "end");
                return;
        }
        struct tutti_work *w = floats_start(g, "x", &f, me->rank == 1 ? LIMIT : 60);
        expect_work(w, TUTTI_TIMEOUT);
        const struct tutti_error_info *e = tutti_work_error(w);
        ck_assert_int_eq(e->rank, 1);
        ck_assert_double_ge(e->age, LIMIT);
        expect_missing(e, 2);
        expect_in(e->text, "R1 waited");
        replica_say(me, "heard");
}

START_TEST(P6_the_first_deadline_ends_it_for_all_and_says_whose_it_was) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, wait_with_different_patience, NULL, r);
        replicas_expect(r, 2, "heard", 2 * LATE * LIMIT);
        replica_tell(r[2], "end");
        replicas_end(h, r, 3);
}
END_TEST

static void wait_in_portions(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, 0);
        floats_init(me->t, &f, 10);
        floats_fill(&f, 3);
        if (me->rank == 1) {
                replica_hear(me, "go");
                floats_meet(g, "x", &f, 4, 7);
                return;
        }
        struct tutti_work *w = floats_start(g, "x", &f, 0);
        double begin = seconds_now();
        ck_assert_int_eq(tutti_work_wait(w, 0.1), TUTTI_PENDING);
        ck_assert_double_ge(seconds_now() - begin, 0.1);
        ck_assert_int_eq(tutti_work_wait(w, 0), TUTTI_PENDING);
        ck_assert_int_eq(tutti_work_test(w), TUTTI_PENDING);
        ck_assert_str_eq(tutti_work_error(w)->text, "");
        floats_expect(&f, 3);
        replica_say(me, "pending");
        expect_work(w, TUTTI_OK);
        floats_expect(&f, 7);
        tutti_work_free(w);
}

START_TEST(P6_a_limit_of_a_wait_ends_the_wait_alone) {
        struct replica *r[2];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, wait_in_portions, NULL, r);
        replica_expect(r[0], "pending", 5);
        replica_tell(r[1], "go");
        replicas_end(h, r, 2);
}
END_TEST

UNIT_MAIN("timeout", 30, A1_the_missing_replica_is_named_and_comes_too_late,
        A3_a_stopped_replica_is_named_as_stopped, A4_after_a_timeout_the_group_goes_on,
        A4_after_a_death_with_shrink_the_group_goes_on,
        A5_busy_stops_the_clocks_of_default_deadlines_until_the_next_submission,
        A5_busy_does_not_stop_a_deadline_of_the_call_and_can_be_ended, A5_busy_ends_by_itself,
        P6_call_over_group_over_config, P6_the_first_deadline_ends_it_for_all_and_says_whose_it_was,
        P6_a_limit_of_a_wait_ends_the_wait_alone)
