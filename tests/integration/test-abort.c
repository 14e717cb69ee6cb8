/* One member gives up: a key for all, or its own wait (A8, P8). */
#include <pthread.h>
#include <stdatomic.h>
#include "meeting.h"

static struct tutti_group *join(struct replica *me, double default_timeout) {
        board_note_pid(me);
        return replica_join_group(me, &TUTTI_JOIN(.group = "train", .default_timeout = default_timeout));
}

/* --- A8: abort --- */

static void abort_or_be_aborted(struct replica *me, struct tutti_group *g, struct floats *f) {
        if (me->rank == 3) {
                replica_say(me, "submitted");
                replica_hear(me, "late");
                expect_status(floats_sum(g, "x", f), TUTTI_EXPIRED);
                ck_assert_int_eq(tutti_error_info()->cause, TUTTI_ABORTED);
                ck_assert_int_eq(tutti_error_info()->rank, 0);
                expect_in(tutti_error(), "loss is \\\"nan\\\"");
                return;
        }
        struct tutti_work *w = floats_start(g, "x", f, 0);
        replica_say(me, "submitted");
        if (me->rank == 0) {
                replica_hear(me, "abort");
                board_note_moment();
                expect_status(tutti_abort(g, "x", "loss is \"nan\""), TUTTI_OK);
        }
        expect_work(w, TUTTI_ABORTED);
        ck_assert_double_lt(board_age(), 0.2 * unit_scale());
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
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 4, abort_one_key, NULL, r);
        replicas_expect(r, 4, "warm", 10);
        host_expect_pending(h, 0);
        host_counters(h, &before);
        replicas_tell(r, 4, "go");
        replicas_expect(r, 4, "submitted", 10);
        host_expect_pending(h, 3);
        replica_tell(r[0], "abort");
        replicas_expect(r, 3, "heard", 5);
        host_expect_pending(h, 1); /* what is owed to the one who was not there */
        replica_tell(r[3], "late");
        replica_expect(r[3], "heard", 5);
        host_expect_pending(h, 0);
        host_counters(h, &after);
        ck_assert_uint_eq(after.mapped_bytes, before.mapped_bytes);
        ck_assert_uint_eq(after.n_buffers, before.n_buffers);
        replicas_tell(r, 4, "again");
        replicas_end(h, r, 4);
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
        struct tutti_work *w = floats_start(g, "x", &f, me->rank == 1 ? 1e-6 : 0);
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
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, abort_what_runs, NULL, r);
        host_expect_pending(h, 1);
        replica_tell(r[1], "go");
        replicas_end(h, r, 2);
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
        struct tutti_work *w = floats_start(g, "x", &f, 0);
        cancel_two_waits(w);
        /* The half stays, and with it the key. */
        ck_assert_int_eq(tutti_work_test(w), TUTTI_PENDING);
        expect_status(floats_sum(g, "x", &other), TUTTI_ALREADY_PENDING);
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
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, cancel_and_wait_again, NULL, r);
        replica_expect(r[0], "cancelled", 5);
        host_expect_pending(h, 1);
        replica_tell(r[1], "go");
        replicas_end(h, r, 2);
}
END_TEST

UNIT_MAIN("abort", 30, A8_one_replica_aborts_for_all_and_everything_is_given_back,
        P8_what_runs_is_neither_aborted_nor_timed_out, P8_cancel_ends_a_wait_and_leaves_the_half)
