/* Members that go, by death or willingly, and processes that are forked (P5, C2 C6 C7, K2). */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <tutti/admin.h>
#include <unistd.h>
#include "meeting.h"

#define ARGS(...) (&TUTTI_JOIN(.group = "train", .job = "test", __VA_ARGS__))

static void expect_groups(struct host *h, uint32_t n) {
        struct host_counters c;
        double limit = seconds_now() + 5 * unit_scale();
        do
                host_counters(h, &c);
        while (c.n_groups != n && seconds_now() < limit);
        ck_assert_uint_eq(c.n_groups, n);
}

/* --- P5: death --- */

static void expect_lost(const struct tutti_error_info *e) {
        ck_assert_msg(e->status == TUTTI_REPLICA_LOST, "%s: %s", tutti_status_name(e->status), e->text);
        ck_assert_int_eq(e->rank, 2);
        ck_assert_int_eq(e->loss, TUTTI_DIED);
        ck_assert_int_eq(e->outputs_undefined, 0);
        ck_assert_uint_eq(e->n_replicas, 1);
        ck_assert_uint_eq(e->replicas[0].rank, 2);
        ck_assert_uint_eq(e->replicas[0].pid, board->pids[2]);
        ck_assert_uint_eq(e->replicas[0].uid, getuid());
        ck_assert_int_eq(e->replicas[0].state, TUTTI_DEAD);
        ck_assert_str_eq(e->replicas[0].last_key, "warm");
        expect_text_of(e, "R2 (pid %u", board->pids[2]);
        expect_in(e->text, "\"warm\"");
}

static void fail_after_a_death(struct tutti_group *g, struct floats *f, struct tutti_work *pending) {
        expect_status(floats_sum(g, "x", f), TUTTI_REPLICA_LOST);
        ck_assert_double_lt(board_age(), 1 * unit_scale());
        expect_lost(tutti_error_info());
        ck_assert_str_eq(tutti_error_info()->key, "x");
        expect_work(pending, TUTTI_REPLICA_LOST);
        expect_lost(tutti_work_error(pending));
        ck_assert_str_eq(tutti_work_error(pending)->key, "y");
        /* And so do all later ones, at once. */
        for (int i = 0; i < 10; i++) {
                expect_status(floats_sum(g, i % 2 ? NULL : "x", f), TUTTI_REPLICA_LOST);
                expect_lost(tutti_error_info());
        }
        ck_assert_double_lt(board_age(), 2 * unit_scale());
        floats_expect(f, 6);
}

static void lose_one(struct replica *me) {
        struct floats f, other;
        struct tutti_group *g = join_train(me, TUTTI_FAIL), *pair = NULL;
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
        fail_after_a_death(g, &f, floats_start(g, "y", &other, 0));
        /* Another group of the same processes goes on. */
        floats_meet(pair, "x", &f, 1, 2);
        tutti_group_free(g);
        replica_say(me, "gone");
        replica_hear(me, "again");
        g = join_train(me, TUTTI_FAIL);
        ck_assert_uint_eq(tutti_epoch(g), 2); /* its record is kept, though all had gone */
        floats_meet(g, NULL, &f, 2, 6);
        floats_meet(g, "x", &f, 3, 9);
}

static void replace(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        floats_init(me->t, &f, 10);
        floats_meet(g, NULL, &f, 2, 6);
        floats_meet(g, "x", &f, 3, 9);
}

START_TEST(K2_P5_with_fail_every_submission_is_lost_until_the_group_is_formed_anew) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, lose_one, NULL, r);
        replicas_expect(r, 3, "warm", 10);
        host_expect_pending(h, 4);
        board_note_moment();
        replica_kill9(r[2]);
        replicas_expect(r, 2, "gone", 10);
        expect_groups(h, 1);
        r[2] = replica_spawn(h, &(struct replica_options){ .rank = 2, .n = 3, .body = replace });
        replicas_tell(r, 2, "again");
        replicas_end(h, r, 3);
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
        ck_assert_double_lt(board_age(), 2 * unit_scale());
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

/* What two of four have submitted, the dead one being one of them. */
static void meet_without_the_half_of_the_dead(struct tutti_group *g, struct floats *f, struct tutti_work *w) {
        if (w) {
                expect_work(w, TUTTI_OK);
                struct tutti_result result;
                expect_status(tutti_work_result(w, &result), TUTTI_OK);
                expect_ranks(&result.contributors, 0xd);
                floats_expect(f, 3);
        } else {
                floats_meet(g, "both", f, 1, 3);
                expect_survivors();
        }
}

static void lose_one_and_shrink(struct replica *me) {
        struct floats f, both;
        struct tutti_work *w = NULL;
        struct tutti_group *g = join_train(me, TUTTI_SHRINK);
        floats_init(me->t, &f, 10);
        floats_init(me->t, &both, 10);
        for (int i = 0; i < 3; i++)
                floats_meet(g, NULL, &f, 1, 4);
        floats_fill(&both, 1);
        if (me->rank < 2)
                w = floats_start(g, "both", &both, 0);
        replica_say(me, "warm");
        if (me->rank == 1) {
                /* What only it has submitted ends with it: nobody else ever comes to that. */
                floats_start(g, "alone", &f, 0);
                replica_hear(me, "never");
        }
        shrink_after_a_death(g, &f);
        meet_without_the_half_of_the_dead(g, &both, w);
        ck_assert_uint_eq(tutti_world_size(g), 4);
        floats_meet(g, "alone", &f, 1, 3);
}

START_TEST(K2_P5_with_shrink_the_rest_goes_on_and_results_say_who_is_in_them) {
        struct replica *r[4];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 4, lose_one_and_shrink, NULL, r);
        replicas_expect(r, 4, "warm", 10);
        host_expect_pending(h, 6);
        board_note_moment();
        replica_kill9(r[1]);
        for (uint32_t i = 0; i < 4; i++)
                if (i != 1)
                        ck_assert_int_eq(replica_end(r[i], 10), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- C6, C7: going willingly --- */

#define STEPS      120
#define LAST_OF_R3 100

static void step_unevenly(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
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
        expect_status(floats_sum(g, "x", &f), TUTTI_LEFT);
        expect_status(tutti_leave(g), TUTTI_LEFT);
        expect_status(tutti_busy(g, "no", 1), TUTTI_LEFT);
        expect_status(tutti_abort(g, "x", "no"), TUTTI_LEFT);
        expect_in(tutti_error(), "R3");
        ck_assert_uint_eq(tutti_rank(g), 3);
        tutti_group_free(g);
}

START_TEST(C6_one_leaves_and_the_rest_goes_on_with_three_contributors) {
        replicas_run(4, step_unevenly);
}
END_TEST

static void leave_and_live(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        if (me->rank == 1)
                expect_status(tutti_leave(g), TUTTI_OK);
        replica_say(me, "there");
        replica_hear(me, "look");
        if (me->rank == 1)
                return;
        struct tutti_answer *a;
        uint32_t n = 0;
        expect_status(tutti_admin_ask(me->t, TUTTI_ADMIN_GROUPS, "test", "train", &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++) {
                const struct tutti_row_member *m = &a->rows[i].member;
                if (a->rows[i].type != TUTTI_ROW_MEMBER)
                        continue;
                n++;
                ck_assert_int_eq(m->state, m->rank == 0 ? TUTTI_ALIVE : TUTTI_STATE_UNKNOWN);
                ck_assert_int_eq(m->lost_age_ns != 0, m->rank == 1);
                ck_assert_int_eq(m->lost, 0);
        }
        ck_assert_uint_eq(n, 2);
        tutti_answer_free(a);
}

START_TEST(C6_one_that_has_left_is_gone_though_its_process_lives) {
        struct replica *r[2];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, leave_and_live, NULL, r);
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "there", 10);
        replica_tell(r[0], "look");
        ck_assert_int_eq(replica_end(r[0], 10), 0);
        replica_tell(r[1], "look");
        ck_assert_int_eq(replica_end(r[1], 10), 0);
        host_stop(h);
}
END_TEST

/* Rank 3 leaves while the others wait for it, which seals what they wait for. */
static void leave_while_they_wait(struct replica *me, enum tutti_on_leave on_leave, float mean) {
        struct floats f;
        board_note_pid(me);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train", .on_leave = on_leave));
        floats_init(me->t, &f, 10);
        floats_fill(&f, (float)me->rank + 1);
        if (me->rank == 3) {
                struct tutti_work *mine = floats_start(g, "mine", &f, 0);
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
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 4, body, NULL, r);
        replicas_expect(r, 4, "here", 10);
        host_expect_pending(h, 4);
        replica_tell(r[3], "leave");
        replicas_end(h, r, 4);
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
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        floats_init(me->t, &f, 10);
        if (me->rank == 0) {
                replica_hear(me, "end");
                return;
        }
        floats_meet(g, "x", &f, (float)me->rank, 3);
        expect_ranks(&tutti_last_result()->contributors, 0x6);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        /* Who wants the rank waits until the others call tutti_rejoin. */
        if (me->rank == 1) {
                expect_status(try_join(me->t, ARGS(.rank = 0, .world_size = 3, .join_timeout = 0.05)),
                        TUTTI_TIMEOUT);
                expect_ranks(&tutti_error_info()->missing, 0x6);
        }
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
}

START_TEST(C6_a_closed_connection_has_left) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, end_early, NULL, r);
        host_expect_pending(h, 2);
        replica_tell(r[0], "end");
        replicas_end(h, r, 3);
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
        CHILD_EXPECT(floats_sum(g, "x", f), TUTTI_FORKED);
        CHILD_EXPECT(strstr(tutti_error(), "fork") != NULL, 1);
        CHILD_EXPECT(tutti_barrier(g, NULL), TUTTI_FORKED);
        CHILD_EXPECT(tutti_barrier_start(g, NULL, NULL, &work), TUTTI_FORKED);
        CHILD_EXPECT(tutti_work_wait(w, -1), TUTTI_FORKED);
        CHILD_EXPECT(tutti_work_wait(w, 0), TUTTI_FORKED);
        CHILD_EXPECT(tutti_work_test(w), TUTTI_FORKED);
        CHILD_EXPECT(tutti_work_cancel(w), TUTTI_FORKED);
        CHILD_EXPECT(tutti_work_result(w, &result), TUTTI_FORKED);
        CHILD_EXPECT(tutti_leave(g), TUTTI_FORKED);
        CHILD_EXPECT(tutti_rejoin(g, 1), TUTTI_FORKED);
        CHILD_EXPECT(tutti_shrink(g, 1), TUTTI_FORKED);
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
        CHILD_EXPECT(floats_sum(g, "x", &f), TUTTI_OK);
        CHILD_EXPECT(f.data[9], 5);
        tutti_close(t);
        return 0;
}

static void fork_a_child(struct replica *me) {
        struct floats f;
        int code;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        floats_init(me->t, &f, 10);
        floats_fill(&f, (float)me->rank + 1);
        struct tutti_work *w = NULL;
        if (me->rank == 0) {
                w = floats_start(g, "w", &f, 0);
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
                expect_status(floats_sum(g, "w", &f), TUTTI_OK);
        }
        floats_expect(&f, 3);
        floats_meet(g, NULL, &f, 1, 2);
}

START_TEST(C2_a_forked_child_is_told_so_and_harms_nobody) {
        struct replica *r[2];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, fork_a_child, NULL, r);
        replica_expect(r[0], "forked", 10);
        replica_tell(r[1], "go");
        replicas_end(h, r, 2);
}
END_TEST

UNIT_MAIN("leave", 30, K2_P5_with_fail_every_submission_is_lost_until_the_group_is_formed_anew,
        K2_P5_with_shrink_the_rest_goes_on_and_results_say_who_is_in_them,
        C6_one_leaves_and_the_rest_goes_on_with_three_contributors,
        C7_the_mean_after_a_leave_is_over_those_who_contribute, C7_with_zero_fill_the_mean_is_over_the_world,
        C6_one_that_has_left_is_gone_though_its_process_lives, C6_a_closed_connection_has_left,
        C2_a_forked_child_is_told_so_and_harms_nobody)
