/* What ends a wait: deadlines, abort, cancel, a join that never completes (A1 A3 A4 A5 A7 A8, P6, P8). */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <tutti/admin.h>
#include <unistd.h>
#include "meeting.h"
#include "replica.h"
#include "unit.h"

#define LIMIT 0.5 /* s: the deadline where one is to expire */
#define LATE  10  /* a deadline of t has come by LATE * t, here and on slower machines */

/* Shared by the test and its replicas. */
static struct {
        _Atomic uint32_t pids[8];
        _Atomic double submitted; /* when somebody did what the others wait for */
} * shared;

static void share(void) {
        shared = memory_shared(sizeof(*shared));
}

static struct tutti_group *join(struct replica *me, double default_timeout) {
        shared->pids[me->rank] = (uint32_t)getpid();
        return replica_join_group(me, &TUTTI_JOIN(.group = "train", .default_timeout = default_timeout));
}

static enum tutti_status sum(struct tutti_group *g, const char *key, struct floats *f) {
        return tutti_all_reduce(g, key, TUTTI_SUM, &f->value, &f->value);
}

static struct tutti_work *start_sum(
        struct tutti_group *g, const char *key, struct floats *f, double timeout) {
        struct tutti_work *w;
        expect_status(tutti_all_reduce_start(g, key, TUTTI_SUM, &f->value, &f->value,
                              &TUTTI_OPTIONS(.timeout = timeout), &w),
                TUTTI_OK);
        return w;
}

static void tell_all(struct replica *const *r, uint32_t n, const char *text) {
        for (uint32_t i = 0; i < n; i++)
                replica_tell(r[i], text);
}

static void expect_all(struct replica *const *r, uint32_t n, const char *text, double seconds) {
        for (uint32_t i = 0; i < n; i++)
                replica_expect(r[i], text, seconds);
}

static void end_all(struct host *h, struct replica *const *r, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}

/* The error names this one replica, and nobody else, as missing. */
static const struct tutti_replica *expect_missing(const struct tutti_error_info *e, uint32_t rank) {
        char text[32];
        expect_ranks(&e->missing, UINT64_C(1) << rank);
        ck_assert_uint_eq(e->n_replicas, 1);
        ck_assert_uint_eq(e->replicas[0].rank, rank);
        ck_assert_uint_eq(e->replicas[0].pid, shared->pids[rank]);
        snprintf(text, sizeof(text), "R%u (pid %u", rank, shared->pids[rank]);
        expect_in(e->text, text);
        return &e->replicas[0];
}

/* --- A1: the one who is missing is named --- */

static void wait_in_vain(struct tutti_group *g, struct floats *f) {
        double begin = seconds_now();
        floats_fill(f, 5);
        expect_status(sum(g, "grad/7", f), TUTTI_TIMEOUT);
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
        expect_status(sum(g, "grad/7", f), TUTTI_EXPIRED);
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
        share();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 4, seven_steps, NULL, r);
        expect_all(r, 3, "heard", 2 * LATE * LIMIT);
        replica_tell(r[3], "late");
        replica_expect(r[3], "heard", 2);
        tell_all(r, 4, "again");
        end_all(h, r, 4);
}
END_TEST

/* --- A3: alive, but stopped --- */

static void wait_for_a_stopped_one(struct tutti_group *g, struct floats *f) {
        expect_status(sum(g, "x", f), TUTTI_TIMEOUT);
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
                expect_status(sum(g, "x", &f), TUTTI_EXPIRED);
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
        share();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, meet_around_a_stop, NULL, r);
        expect_all(r, 3, "warm", 10);
        stop(r[1]);
        tell_all(r, 3, "go");
        replica_expect(r[0], "heard", 2 * LATE * LIMIT);
        replica_expect(r[2], "heard", 2 * LATE * LIMIT);
        replica_signal(r[1], SIGCONT);
        replica_expect(r[1], "heard", 5);
        tell_all(r, 3, "again");
        end_all(h, r, 3);
}
END_TEST

/* --- A4: an error ends a collective, not the process --- */

static void go_on_after_timeout(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, 0);
        floats_init(me->t, &f, 10);
        if (me->rank == 0) {
                struct tutti_work *w = start_sum(g, "x", &f, 0.1);
                expect_work(w, TUTTI_TIMEOUT);
                tutti_work_free(w);
                replica_say(me, "timeout");
        } else {
                replica_hear(me, "go");
        }
        floats_meet(g, "y", &f, 1, 2);
        if (me->rank == 1)
                expect_status(sum(g, "x", &f), TUTTI_EXPIRED);
        floats_meet(g, "x", &f, 2, 4);
        floats_meet(g, NULL, &f, 3, 6);
}

START_TEST(A4_after_a_timeout_the_group_goes_on) {
        struct replica *r[2];
        share();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, go_on_after_timeout, NULL, r);
        replica_expect(r[0], "timeout", 5);
        replica_tell(r[1], "go");
        end_all(h, r, 2);
}
END_TEST

static void go_on_without_the_dead(struct replica *me) {
        struct floats f;
        shared->pids[me->rank] = (uint32_t)getpid();
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
        share();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, go_on_without_the_dead, NULL, r);
        expect_all(r, 3, "warm", 10);
        host_expect_pending(h, 2);
        replica_kill9(r[2]);
        end_all(h, r, 2);
}
END_TEST

/* --- A5: busy stops the clock --- */

static void be_busy(struct replica *me, struct tutti_group *g, struct floats *f) {
        expect_status(tutti_busy(g, "checkpoint", 5), TUTTI_OK);
        replica_say(me, "busy");
        seconds_sleep(3 * LIMIT);
        floats_meet(g, "x", f, 1, 6);
        /* The submission has ended it. */
        replica_say(me, "met");
        replica_hear(me, "go on");
        expect_status(sum(g, "y", f), TUTTI_EXPIRED);
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
        expect_status(sum(g, "y", &f), TUTTI_TIMEOUT);
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
        share();
        struct host *h = host_start((const char *[]){ "--set", "time.default-timeout=500ms", NULL });
        replicas_spawn(h, 3, wait_for_a_busy_one, NULL, r);
        replica_expect(r[0], "busy", 10);
        tell_all(r + 1, 2, "go");
        host_expect_pending(h, 2);
        expect_reason(h, "checkpoint");
        replica_expect(r[0], "met", 10);
        expect_all(r + 1, 2, "timeout", 2 * LATE * LIMIT);
        replica_tell(r[0], "go on");
        ck_assert_int_eq(replica_end(r[0], 10), 0);
        tell_all(r + 1, 2, "end");
        end_all(h, r + 1, 2);
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
        struct tutti_work *own = start_sum(g, "own", &f, LIMIT), *soft = start_sum(g, "soft", &f, 0);
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
        share();
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
        end_all(h, r, 2);
}
END_TEST

/* busy_max ends what nobody ends. */
START_TEST(A5_busy_ends_by_itself) {
        struct replica *r[2];
        share();
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
        end_all(h, r, 2);
}
END_TEST

/* --- A7: setting up --- */

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
        ck_assert_double_lt(seconds_now() - begin, LATE * LIMIT * unit_scale());
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
        expect_all(r, 3, "heard", 2 * LATE * LIMIT);
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_groups, 0);
        /* K3: nothing of it is in the way of the next one. */
        run_replicas(h, 4, join_all_four, NULL);
        tell_all(r, 3, "end");
        end_all(h, r, 3);
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

#define TOO_MUCH ((size_t)96 << 20)

static void meet_a_quota(struct replica *me, struct tutti_group *g, struct floats *small) {
        struct tutti_buffer *big;
        enum tutti_status status = tutti_buffer_alloc(me->t, TOO_MUCH, &big);
        struct tutti_value v = small->value;
        if (status == TUTTI_OK)
                v.buffer = big;
        else
                v.buffer = NULL;
        replica_say(me, "ready");
        replica_hear(me, "go");
        shared->submitted = seconds_now();
        expect_status(tutti_all_reduce(g, "x", TUTTI_SUM, &v, &v), TUTTI_QUOTA);
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_uint_ge(e->used + TOO_MUCH, e->limit);
        ck_assert_uint_eq(e->limit, 64u << 20);
        expect_in(e->text, "mapped");
        tutti_buffer_free(big);
}

static void hear_of_a_refusal(struct tutti_group *g, struct floats *f) {
        expect_status(sum(g, "x", f), TUTTI_PEER_REFUSED);
        double after = seconds_now() - shared->submitted;
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_double_lt(after, 0.5 * unit_scale());
        ck_assert_int_eq(e->cause, TUTTI_QUOTA);
        ck_assert_int_eq(e->rank, 1);
        ck_assert_int_eq(e->field, TUTTI_FIELD_BUFFER);
        expect_in(e->text, "R1");
        expect_in(e->text, "QUOTA");
}

static void register_too_much(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, 0);
        floats_init(me->t, &f, 10);
        floats_meet(g, "warm", &f, 1, 3);
        if (me->rank == 1) {
                meet_a_quota(me, g, &f);
        } else {
                replica_say(me, "ready");
                hear_of_a_refusal(g, &f);
        }
        floats_meet(g, "x", &f, 2, 6);
}

/* The others wait; or they come after the refusal: nobody waits for what cannot come. */
START_TEST(A7_a_refused_registration_reaches_the_others_at_once) {
        struct replica *r[3];
        share();
        struct host *h = host_start((const char *[]){ "--set", "quota.mapped-bytes=64MiB", NULL });
        replicas_spawn(h, 3, register_too_much, NULL, r);
        expect_all(r, 3, "ready", 10);
        host_expect_pending(h, 2);
        replica_tell(r[1], "go");
        end_all(h, r, 3);
}
END_TEST

/* --- A8: abort --- */

static void abort_or_be_aborted(struct replica *me, struct tutti_group *g, struct floats *f) {
        if (me->rank == 3) {
                replica_say(me, "submitted");
                replica_hear(me, "late");
                expect_status(sum(g, "x", f), TUTTI_EXPIRED);
                ck_assert_int_eq(tutti_error_info()->cause, TUTTI_ABORTED);
                ck_assert_int_eq(tutti_error_info()->rank, 0);
                expect_in(tutti_error(), "loss is \\\"nan\\\"");
                return;
        }
        struct tutti_work *w = start_sum(g, "x", f, 0);
        replica_say(me, "submitted");
        if (me->rank == 0) {
                replica_hear(me, "abort");
                shared->submitted = seconds_now();
                expect_status(tutti_abort(g, "x", "loss is \"nan\""), TUTTI_OK);
        }
        expect_work(w, TUTTI_ABORTED);
        ck_assert_double_lt(seconds_now() - shared->submitted, 0.2 * unit_scale());
        const struct tutti_error_info *e = tutti_work_error(w);
        ck_assert_int_eq(e->rank, 0);
        ck_assert_str_eq(e->key, "x");
        expect_in(e->text, "R0");
        expect_in(e->text, "loss is \\\"nan\\\"");
        tutti_work_free(w);
}

static void abort_one_key(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, 0);
        floats_init(me->t, &f, 1000);
        floats_meet(g, "warm", &f, 1, 4);
        floats_fill(&f, 7);
        replica_say(me, "warm");
        replica_hear(me, "go");
        abort_or_be_aborted(me, g, &f);
        floats_expect(&f, 7);
        replica_say(me, "heard");
        replica_hear(me, "again");
        floats_meet(g, "x", &f, 2, 8);
        if (me->rank == 0) {
                expect_status(tutti_abort(g, "nobody/has/submitted/this", "no"), TUTTI_NOT_FOUND);
                expect_in(tutti_error(), "nobody/has/submitted/this");
                expect_status(tutti_abort(g, "x", "it has ended"), TUTTI_NOT_FOUND);
        }
        floats_meet(g, "end", &f, 2, 8);
}

START_TEST(A8_one_replica_aborts_for_all_and_everything_is_given_back) {
        struct replica *r[4];
        struct host_counters before, after;
        share();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 4, abort_one_key, NULL, r);
        expect_all(r, 4, "warm", 10);
        host_expect_pending(h, 0);
        host_counters(h, &before);
        tell_all(r, 4, "go");
        expect_all(r, 4, "submitted", 10);
        host_expect_pending(h, 3);
        replica_tell(r[0], "abort");
        expect_all(r, 3, "heard", 5);
        host_expect_pending(h, 1); /* what is owed to the one who was not there */
        replica_tell(r[3], "late");
        replica_expect(r[3], "heard", 5);
        host_expect_pending(h, 0);
        host_counters(h, &after);
        ck_assert_uint_eq(after.mapped_bytes, before.mapped_bytes);
        ck_assert_uint_eq(after.n_buffers, before.n_buffers);
        tell_all(r, 4, "again");
        end_all(h, r, 4);
}
END_TEST

#define MANY ((size_t)16 << 20)

/* The submission and the abort stand one behind the other in tuttid's socket: when it reads the abort, the
 * collective has been sealed. */
static void abort_what_runs(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me, 0);
        floats_init(me->t, &f, MANY);
        floats_fill(&f, 1);
        if (me->rank == 1)
                replica_hear(me, "go");
        /* P6: so has its deadline passed long before it is done, which ends nothing either. */
        struct tutti_work *w = start_sum(g, "x", &f, me->rank == 1 ? 1e-6 : 0);
        if (me->rank == 1) {
                expect_status(tutti_abort(g, "x", "too late"), TUTTI_BUSY);
                expect_in(tutti_error(), "\"x\"");
        }
        expect_work(w, TUTTI_OK);
        floats_expect(&f, 2);
        struct tutti_result result;
        expect_status(tutti_work_result(w, &result), TUTTI_OK);
        ck_assert_double_gt(result.run, 1e-6);
        ck_assert_uint_eq(result.last_rank, 1);
        tutti_work_free(w);
}

START_TEST(P8_what_runs_is_neither_aborted_nor_timed_out) {
        struct replica *r[2];
        share();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, abort_what_runs, NULL, r);
        host_expect_pending(h, 1);
        replica_tell(r[1], "go");
        end_all(h, r, 2);
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
        end_all(h, r, 2);
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
        struct tutti_work *w = start_sum(g, "x", &f, me->rank == 1 ? LIMIT : 60);
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
        share();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, wait_with_different_patience, NULL, r);
        expect_all(r, 2, "heard", 2 * LATE * LIMIT);
        replica_tell(r[2], "end");
        end_all(h, r, 3);
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
        struct tutti_work *w = start_sum(g, "x", &f, 0);
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
        share();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, wait_in_portions, NULL, r);
        replica_expect(r[0], "pending", 5);
        replica_tell(r[1], "go");
        end_all(h, r, 2);
}
END_TEST

/* --- P8: cancel --- */

struct waiter {
        struct tutti_work *work;
        enum tutti_status status;
        atomic_bool is_back;
};

static void *wait_for_ever(void *arg) {
        struct waiter *w = arg;
        w->status = tutti_work_wait(w->work, -1);
        atomic_store(&w->is_back, true);
        return NULL;
}

/* A cancel ends the waits that are there, so it is repeated until both threads have begun theirs. */
static void cancel_two_waits(struct tutti_work *work) {
        struct waiter waiters[2] = { { .work = work }, { .work = work } };
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, wait_for_ever, &waiters[i]), 0);
        while (!atomic_load(&waiters[0].is_back) || !atomic_load(&waiters[1].is_back)) {
                seconds_sleep(0.01);
                expect_status(tutti_work_cancel(work), TUTTI_OK);
        }
        for (int i = 0; i < 2; i++) {
                pthread_join(threads[i], NULL);
                ck_assert_int_eq(waiters[i].status, TUTTI_CANCELLED);
        }
}

static void cancel_and_wait_again(struct replica *me) {
        struct floats f, other;
        struct tutti_group *g = join(me, 0);
        floats_init(me->t, &f, 10);
        floats_init(me->t, &other, 10);
        floats_fill(&f, 3);
        if (me->rank == 1) {
                replica_hear(me, "go");
                floats_meet(g, "x", &f, 4, 7);
                return;
        }
        struct tutti_work *w = start_sum(g, "x", &f, 0);
        cancel_two_waits(w);
        /* The half stays, and with it the key. */
        ck_assert_int_eq(tutti_work_test(w), TUTTI_PENDING);
        expect_status(sum(g, "x", &other), TUTTI_ALREADY_PENDING);
        replica_say(me, "cancelled");
        expect_work(w, TUTTI_OK);
        floats_expect(&f, 7);
        /* What has ended can no longer be cancelled. */
        expect_status(tutti_work_cancel(w), TUTTI_OK);
        expect_work(w, TUTTI_OK);
        tutti_work_free(w);
}

START_TEST(P8_cancel_ends_a_wait_and_leaves_the_half) {
        struct replica *r[2];
        share();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, cancel_and_wait_again, NULL, r);
        replica_expect(r[0], "cancelled", 5);
        host_expect_pending(h, 1);
        replica_tell(r[1], "go");
        end_all(h, r, 2);
}
END_TEST

UNIT_MAIN("timeout", 30, A1_the_missing_replica_is_named_and_comes_too_late,
        A3_a_stopped_replica_is_named_as_stopped, A4_after_a_timeout_the_group_goes_on,
        A4_after_a_death_with_shrink_the_group_goes_on,
        A5_busy_stops_the_clocks_of_default_deadlines_until_the_next_submission,
        A5_busy_does_not_stop_a_deadline_of_the_call_and_can_be_ended, A5_busy_ends_by_itself,
        A7_a_join_that_times_out_names_the_fourth, A7_the_death_of_a_joiner_reaches_the_others_at_once,
        A7_a_refused_registration_reaches_the_others_at_once,
        A8_one_replica_aborts_for_all_and_everything_is_given_back,
        P8_what_runs_is_neither_aborted_nor_timed_out, P6_call_over_group_over_config,
        P6_the_first_deadline_ends_it_for_all_and_says_whose_it_was, P6_a_limit_of_a_wait_ends_the_wait_alone,
        P8_cancel_ends_a_wait_and_leaves_the_half)
