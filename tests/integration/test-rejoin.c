/* A group formed anew: newcomers, rejoin, shrink, and those who die, leave or do not come meanwhile (P5, K2).
 */
#include <pthread.h>
#include <string.h>
#include <tutti/admin.h>
#include "meeting.h"

#define ARGS(...) (&TUTTI_JOIN(.group = "train", .job = "test", __VA_ARGS__))

/* --- what all of them do --- */

/* A member of an epoch that sees these ranks, under a key and under numbers that every epoch uses again. */
static void expect_epoch(struct tutti_group *g, struct floats *f, uint64_t epoch, uint32_t ranks) {
        float n = (float)__builtin_popcount(ranks);
        ck_assert_uint_eq(tutti_epoch(g), epoch);
        for (int i = 0; i < 3; i++) {
                floats_meet(g, NULL, f, 1, n);
                expect_ranks(&tutti_last_result()->contributors, ranks);
        }
        floats_meet(g, "x", f, 2, 2 * n);
}

static struct tutti_group *begin(struct replica *me, struct floats *f, enum tutti_on_death on_death) {
        struct tutti_group *g = join_train(me, on_death);
        floats_init(me->t, f, 10);
        expect_epoch(g, f, 1, (1u << me->n) - 1);
        replica_say(me, "warm");
        return g;
}

/* Of a group that takes deaths as failures: waits for the one that the test brings about. */
static struct tutti_group *begin_and_lose(struct replica *me, struct floats *f) {
        struct tutti_group *g = begin(me, f, TUTTI_FAIL);
        expect_status(floats_sum(g, "never", f), TUTTI_REPLICA_LOST);
        replica_say(me, "lost");
        return g;
}

/* --- what the test does --- */

static struct replica *spawn(struct host *h, uint32_t rank, uint32_t n, void (*body)(struct replica *me)) {
        return replica_spawn(h, &(struct replica_options){ .rank = rank, .n = n, .body = body });
}

/* As tuttictl shows it. */
static uint32_t count_waiting(struct host *h) {
        struct tutti *t;
        struct tutti_answer *a;
        uint32_t n = 0;
        expect_status(tutti_open(host_socket(h), &t), TUTTI_OK);
        expect_status(tutti_admin_ask(t, TUTTI_ADMIN_GROUPS, NULL, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++)
                if (a->rows[i].type == TUTTI_ROW_GROUP)
                        n += a->rows[i].group.n_waiting;
        tutti_answer_free(a);
        tutti_close(t);
        return n;
}

/* That many wait for the group to be formed anew, within two seconds. */
static void expect_waiting(struct host *h, uint32_t n) {
        double limit = seconds_now() + 2 * unit_scale();
        uint32_t is;
        while ((is = count_waiting(h)) != n && seconds_now() < limit)
                seconds_sleep(0.005);
        ck_assert_uint_eq(is, n);
}

/* n members have met and wait for the one whose rank this is, which dies. */
static struct host *lose_the_last(uint32_t n, void (*body)(struct replica *me), struct replica **ret) {
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, n, body, NULL, ret);
        replicas_expect(ret, n, "warm", 10);
        host_expect_pending(h, n - 1);
        replica_kill9(ret[n - 1]);
        replicas_expect(ret, n - 1, "lost", 10);
        return h;
}

/* --- a replacement --- */

static void expect_still_lost(struct tutti_group *g, struct floats *f) {
        for (int i = 0; i < 6; i++) {
                expect_status(floats_sum(g, i % 2 ? NULL : "x", f), TUTTI_REPLICA_LOST);
                const struct tutti_error_info *e = tutti_error_info();
                ck_assert_int_eq(e->rank, 2);
                ck_assert_int_eq(e->loss, TUTTI_DIED);
                ck_assert_uint_eq(
                        e->replicas[0].pid, board->pids[3]); /* of the dead, not of who has its rank */
                ck_assert_int_eq(e->replicas[0].state, TUTTI_DEAD);
                ck_assert_str_eq(e->replicas[0].last_key, "x");
        }
        expect_status(tutti_abort(g, "x", "it has failed"), TUTTI_NOT_FOUND);
        expect_status(tutti_busy(g, "thinking", 30), TUTTI_OK);
}

static void be_replaced(struct replica *me) {
        struct floats f;
        if (me->rank == 2) {
                struct tutti_group *g = join_train(me, TUTTI_FAIL);
                board->pids[3] = board->pids[2];
                floats_init(me->t, &f, 10);
                expect_epoch(g, &f, 1, 7);
                replica_say(me, "warm");
                replica_hear(me, "never");
        }
        struct tutti_group *g = begin_and_lose(me, &f);
        expect_still_lost(g, &f);
        replica_hear(me, "newcomer");
        expect_still_lost(g, &f);
        replica_say(me, "still lost");
        replica_hear(me, "rejoin");
        expect_status(tutti_rejoin(g, 20), TUTTI_OK);
        expect_epoch(g, &f, 2, 7);
}

static void come_second(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        floats_init(me->t, &f, 10);
        ck_assert_uint_eq(tutti_rank(g), me->rank);
        expect_epoch(g, &f, 2, (1u << me->n) - 1);
}

START_TEST(K2_P5_with_fail_every_later_one_fails_until_a_replacement_joins) {
        struct replica *r[3];
        struct host *h = lose_the_last(3, be_replaced, r);
        r[2] = spawn(h, 2, 3, come_second);
        expect_waiting(h, 1);
        replicas_tell(r, 2, "newcomer");
        replicas_expect(r, 2, "still lost", 10);
        replica_tell(r[0], "rejoin");
        expect_waiting(h, 2);
        replica_tell(r[1], "rejoin");
        replicas_end(h, r, 3);
}
END_TEST

static void rejoin_at_once(struct replica *me) {
        struct floats f;
        if (me->rank == me->n - 1) {
                begin(me, &f, TUTTI_FAIL);
                replica_hear(me, "never");
        }
        struct tutti_group *g = begin_and_lose(me, &f);
        expect_status(tutti_rejoin(g, 20), TUTTI_OK);
        expect_epoch(g, &f, 2, (1u << me->n) - 1);
}

START_TEST(P5_the_survivors_may_call_before_anybody_comes) {
        struct replica *r[4];
        struct host *h = lose_the_last(4, rejoin_at_once, r);
        expect_waiting(h, 3);
        r[3] = spawn(h, 3, 4, come_second);
        replicas_end(h, r, 4);
}
END_TEST

/* --- deaths while it is being formed anew --- */

START_TEST(P5_newcomers_that_die_are_followed_by_others) {
        struct replica *r[4];
        struct host *h = lose_the_last(4, rejoin_at_once, r);
        replica_kill9(r[2]);
        for (int i = 0; i < 3; i++) {
                expect_waiting(h, 2);
                struct replica *newcomer = spawn(h, 2, 4, come_second);
                expect_waiting(h, 3); /* R3 is missing still */
                replica_kill9(newcomer);
        }
        r[2] = spawn(h, 2, 4, come_second);
        r[3] = spawn(h, 3, 4, come_second);
        replicas_end(h, r, 4);
}
END_TEST

static void rejoin_when_told(struct replica *me) {
        struct floats f;
        if (me->rank == me->n - 1) {
                begin(me, &f, TUTTI_FAIL);
                replica_hear(me, "never");
        }
        struct tutti_group *g = begin_and_lose(me, &f);
        replica_hear(me, "rejoin");
        expect_status(tutti_rejoin(g, 20), TUTTI_OK);
        expect_epoch(g, &f, 2, (1u << me->n) - 1);
}

START_TEST(P5_a_newcomer_dies_between_the_calls_of_the_survivors) {
        struct replica *r[3];
        struct host *h = lose_the_last(3, rejoin_when_told, r);
        struct replica *newcomer = spawn(h, 2, 3, come_second);
        expect_waiting(h, 1);
        replica_tell(r[0], "rejoin");
        expect_waiting(h, 2);
        replica_kill9(newcomer);
        expect_waiting(h, 1);
        replica_tell(r[1], "rejoin");
        expect_waiting(h, 2);
        r[2] = spawn(h, 2, 3, come_second);
        replicas_end(h, r, 3);
}
END_TEST

START_TEST(P5_a_survivor_that_dies_while_it_waits_is_replaced_too) {
        struct replica *r[4];
        struct host *h = lose_the_last(4, rejoin_at_once, r);
        expect_waiting(h, 3);
        replica_kill9(r[1]);
        expect_waiting(h, 2);
        r[1] = spawn(h, 1, 4, come_second);
        expect_waiting(h, 3);
        r[3] = spawn(h, 3, 4, come_second);
        replicas_end(h, r, 4);
}
END_TEST

START_TEST(P5_newcomers_alone_are_a_group_when_all_others_have_died) {
        struct replica *r[3];
        struct host *h = lose_the_last(3, rejoin_when_told, r);
        r[2] = spawn(h, 2, 3, come_second);
        expect_waiting(h, 1);
        replica_kill9(r[0]);
        replica_kill9(r[1]);
        r[0] = spawn(h, 0, 3, come_second);
        r[1] = spawn(h, 1, 3, come_second);
        replicas_end(h, r, 3);
}
END_TEST

/* --- in vain --- */

static void expect_timeout(uint64_t missing, const char *words) {
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_int_eq(e->status, TUTTI_TIMEOUT);
        expect_ranks(&e->missing, missing);
        expect_in(e->text, words);
}

static void wait_in_vain(struct replica *me) {
        struct floats f;
        if (me->rank == 2) {
                begin(me, &f, TUTTI_FAIL);
                replica_hear(me, "never");
        }
        struct tutti_group *g = begin_and_lose(me, &f);
        if (me->rank == 0) {
                double before = seconds_now();
                expect_status(tutti_rejoin(g, 0.2), TUTTI_TIMEOUT);
                ck_assert_double_ge(seconds_now() - before, 0.2);
                ck_assert_double_lt(seconds_now() - before, 2 * unit_scale());
                ck_assert_uint_eq(tutti_error_info()->rank, 0);
                expect_timeout(0x6, "R1 did not call rejoin; nobody has taken the place of R2");
                expect_text_of(tutti_error_info(), "R1 (pid %u", board->pids[1]);
                expect_status(tutti_shrink(g, 0.05), TUTTI_TIMEOUT);
                expect_timeout(0x2, "R1 did not call shrink");
                expect_status(tutti_rejoin(g, -1), TUTTI_INVALID);
                ck_assert_uint_eq(tutti_epoch(g), 1);
                expect_status(floats_sum(g, NULL, &f), TUTTI_REPLICA_LOST);
        }
        replica_say(me, "in vain");
        replica_hear(me, "rejoin");
        expect_status(tutti_rejoin(g, 20), TUTTI_OK);
        expect_epoch(g, &f, 2, 7);
}

static void come_in_vain(struct replica *me) {
        expect_status(try_join(replica_open(me), ARGS(.rank = 2, .world_size = 3, .join_timeout = 0.2)),
                TUTTI_TIMEOUT);
        expect_timeout(0x3, "R0 R1 did not call rejoin");
        expect_status(try_join(me->t, ARGS(.rank = 1, .world_size = 3)), TUTTI_BUSY);
        ck_assert_uint_eq(tutti_error_info()->replicas[0].pid, board->pids[1]);
        expect_status(
                try_join(me->t, ARGS(.rank = 2, .world_size = 3, .on_death = TUTTI_SHRINK)), TUTTI_MISMATCH);
}

START_TEST(P5_a_deadline_names_the_missing_and_the_next_try_succeeds) {
        struct replica *r[3];
        struct host *h = lose_the_last(3, wait_in_vain, r);
        replicas_expect(r, 2, "in vain", 10);
        ck_assert_int_eq(replica_end(spawn(h, 2, 3, come_in_vain), 10), 0);
        r[2] = spawn(h, 2, 3, come_second);
        replicas_tell(r, 2, "rejoin");
        replicas_end(h, r, 3);
}
END_TEST

static void disagree(struct replica *me) {
        struct floats f;
        if (me->rank == 2) {
                begin(me, &f, TUTTI_FAIL);
                replica_hear(me, "never");
        }
        struct tutti_group *g = begin_and_lose(me, &f);
        expect_status(me->rank ? tutti_shrink(g, 20) : tutti_rejoin(g, 20), TUTTI_MISMATCH);
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_uint_eq(e->n_classes, 2);
        expect_ranks(&e->classes[0].ranks, 0x1);
        ck_assert_str_eq(e->classes[0].value, "rejoin");
        expect_ranks(&e->classes[1].ranks, 0x2);
        ck_assert_str_eq(e->classes[1].value, "shrink");
        expect_in(e->text, "R0: rejoin; R1: shrink");
        expect_status(floats_sum(g, NULL, &f), TUTTI_REPLICA_LOST);
        expect_status(tutti_shrink(g, 20), TUTTI_OK);
        expect_epoch(g, &f, 2, 3);
}

START_TEST(P5_those_who_disagree_are_told_who_said_what) {
        struct replica *r[3];
        struct host *h = lose_the_last(3, disagree, r);
        replicas_end(h, r, 2);
}
END_TEST

/* --- without the lost, and with them again --- */

static void go_on_without(struct replica *me) {
        struct floats f;
        if (me->rank == 3) {
                begin(me, &f, TUTTI_FAIL);
                replica_hear(me, "never");
        }
        struct tutti_group *g = begin_and_lose(me, &f);
        expect_status(tutti_shrink(g, 20), TUTTI_OK);
        expect_epoch(g, &f, 2, 7);
        ck_assert_uint_eq(tutti_world_size(g), 4);
        ck_assert_uint_eq(tutti_rank(g), me->rank);
        expect_status(tutti_broadcast(g, "root", 3, &f.value), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_ROOT);
        expect_status(tutti_broadcast(g, "root", 2, &f.value), TUTTI_OK);
        expect_status(tutti_rejoin(g, 20), TUTTI_OK);
        expect_epoch(g, &f, 3, 0xf);
        expect_status(tutti_broadcast(g, "root", 3, &f.value), TUTTI_OK);
}

static void come_third(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        floats_init(me->t, &f, 10);
        expect_epoch(g, &f, 3, 0xf);
        expect_status(tutti_broadcast(g, "root", 3, &f.value), TUTTI_OK);
}

START_TEST(P5_shrink_goes_on_without_the_lost_and_rejoin_takes_them_in_again) {
        struct replica *r[4];
        struct host *h = lose_the_last(4, go_on_without, r);
        expect_waiting(h, 3); /* in rejoin, by now */
        r[3] = spawn(h, 3, 4, come_third);
        replicas_end(h, r, 4);
}
END_TEST

/* A newcomer is in nobody's way: the group works until all have called. */
static void scale_up(struct replica *me) {
        struct floats f;
        struct tutti_group *g = begin(me, &f, TUTTI_SHRINK);
        if (me->rank == 2)
                replica_hear(me, "never");
        replica_hear(me, "newcomer");
        for (int i = 0; i < 100; i++)
                floats_meet(g, NULL, &f, 1, 2);
        ck_assert_uint_eq(tutti_epoch(g), 1);
        expect_status(tutti_rejoin(g, 20), TUTTI_OK);
        expect_epoch(g, &f, 2, 7);
}

static void come_to_scale_up(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_SHRINK);
        floats_init(me->t, &f, 10);
        expect_epoch(g, &f, 2, 7);
}

START_TEST(P5_a_group_that_shrank_grows_again) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, scale_up, NULL, r);
        replicas_expect(r, 3, "warm", 10);
        replica_kill9(r[2]);
        host_expect_sessions(h, 2);
        r[2] = spawn(h, 2, 3, come_to_scale_up);
        expect_waiting(h, 1);
        replicas_tell(r, 2, "newcomer");
        replicas_end(h, r, 3);
}
END_TEST

/* --- a group that has lost nobody --- */

static void *leave(void *g) {
        expect_status(tutti_leave(g), TUTTI_OK);
        return NULL;
}

static void *wait_for_rejoin(void *g) {
        static enum tutti_status status;
        status = tutti_rejoin(g, 20);
        return &status;
}

static void meet_anew(struct replica *me) {
        struct floats f, other;
        struct tutti_group *g = begin(me, &f, TUTTI_FAIL);
        floats_init(me->t, &other, 10);
        floats_fill(&other, 5);
        struct tutti_work *w = me->rank == 0 ? floats_start(g, "pending", &other, 0) : NULL;
        if (me->rank == 0) {
                expect_status(tutti_abort(g, "owed", "nobody else wants it"), TUTTI_NOT_FOUND);
                struct tutti_work *owed = floats_start(g, "owed", &f, 0);
                expect_status(tutti_abort(g, "owed", "nobody else wants it"), TUTTI_OK);
                expect_work(owed, TUTTI_ABORTED);
        }
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        expect_status(tutti_rejoin(g, 20), TUTTI_OK);
        expect_epoch(g, &f, 2, 3);
        if (w) {
                expect_work(w, TUTTI_REPLICA_LOST);
                ck_assert_uint_eq(tutti_work_error(w)->epoch, 1);
                ck_assert_int_eq(tutti_work_error(w)->rank, -1);
                expect_in(tutti_work_error(w)->text, "has begun epoch 2");
                floats_expect(&other, 5);
        }
        /* What was owed in the first epoch is not owed in this. */
        floats_meet(g, "owed", &f, 1, 2);
        floats_meet(g, "pending", &f, 1, 2);
        expect_status(tutti_shrink(g, 20), TUTTI_OK);
        expect_epoch(g, &f, 3, 3);
}

START_TEST(P5_rejoin_in_a_whole_group_is_a_meeting_that_begins_an_epoch) {
        replicas_run(2, meet_anew);
}
END_TEST

static void leave_while_waiting(struct replica *me) {
        struct floats f;
        pthread_t thread;
        void *status;
        struct tutti_group *g = begin(me, &f, TUTTI_FAIL);
        if (me->rank == 1) {
                replica_hear(me, "shrink");
                expect_status(tutti_shrink(g, 20), TUTTI_OK);
                expect_epoch(g, &f, 2, 2);
                return;
        }
        ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_rejoin, g), 0);
        replica_hear(me, "again");
        expect_status(tutti_rejoin(g, 20), TUTTI_ALREADY_PENDING);
        expect_in(tutti_error(), "waits in rejoin already");
        leave(g);
        ck_assert_int_eq(pthread_join(thread, &status), 0);
        ck_assert_int_eq(*(enum tutti_status *)status, TUTTI_LEFT);
        expect_status(tutti_rejoin(g, 1), TUTTI_LEFT);
        expect_status(tutti_shrink(g, 1), TUTTI_LEFT);
        replica_say(me, "left");
}

START_TEST(P5_who_leaves_while_it_waits_is_told_so) {
        struct replica *r[2];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, leave_while_waiting, NULL, r);
        replicas_expect(r, 2, "warm", 10);
        expect_waiting(h, 1);
        replica_tell(r[0], "again");
        replica_expect(r[0], "left", 10);
        replica_tell(r[1], "shrink");
        replicas_end(h, r, 2);
}
END_TEST

UNIT_MAIN("rejoin", 40, K2_P5_with_fail_every_later_one_fails_until_a_replacement_joins,
        P5_the_survivors_may_call_before_anybody_comes, P5_newcomers_that_die_are_followed_by_others,
        P5_a_newcomer_dies_between_the_calls_of_the_survivors,
        P5_a_survivor_that_dies_while_it_waits_is_replaced_too,
        P5_newcomers_alone_are_a_group_when_all_others_have_died,
        P5_a_deadline_names_the_missing_and_the_next_try_succeeds,
        P5_those_who_disagree_are_told_who_said_what,
        P5_shrink_goes_on_without_the_lost_and_rejoin_takes_them_in_again, P5_a_group_that_shrank_grows_again,
        P5_rejoin_in_a_whole_group_is_a_meeting_that_begins_an_epoch, P5_who_leaves_while_it_waits_is_told_so)
