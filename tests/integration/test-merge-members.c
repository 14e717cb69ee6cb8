/* merge_call and who takes part: sixteen replicas, members that leave or die while the others gather and
 * while the function runs, an abort by another than the elected one, a member that calls less often (TE1, P5
 * P8). */
#include <pthread.h>
#include <signal.h>
#include <tutti/merge.h>
#include "meeting.h"

#define MOST 16

struct bundle {
        struct replica *me;
        bool waits; /* the function says "running" and waits for "return" */
        uint32_t n_runs;
        float in, list[MOST];
};

/* List: rank + 1 of all who take part, 0 of the others. */
static enum tutti_status list_all(struct tutti_merge *m, void *userdata) {
        struct bundle *b = userdata;
        float *list = tutti_merge_output(m, 0);
        b->n_runs++;
        for (uint32_t rank = 0; rank < b->me->n; rank++) {
                const float *v = tutti_merge_value(m, rank, 0);
                ck_assert(!v == !tutti_ranks_has(tutti_merge_ranks(m), rank));
                list[rank] = v ? *v : 0;
        }
        if (b->waits) {
                replica_say(b->me, "running");
                replica_hear(b->me, "return");
        }
        return TUTTI_OK;
}

static enum tutti_status call(struct bundle *b, struct tutti_group *g, const char *key, double timeout) {
        b->in = (float)b->me->rank + 1;
        b->n_runs = 0;
        for (size_t i = 0; i < MOST; i++)
                b->list[i] = -1;
        const struct tutti_value input = TUTTI_VALUE(.memory = &b->in, .dtype = TUTTI_F32);
        const struct tutti_value output =
                TUTTI_VALUE(.memory = b->list, .dtype = TUTTI_F32, .n_dims = 1, .shape = { MOST });
        return tutti_merge_call(
                g, &TUTTI_MERGE(.key = key, .tag = "list", .fn = list_all, .userdata = b, .inputs = &input,
                           .n_inputs = 1, .outputs = &output, .n_outputs = 1, .timeout = timeout));
}

/* These took part, and the lowest of them ran it. */
static void expect_made(const struct bundle *b, uint64_t mask) {
        for (uint32_t rank = 0; rank < MOST; rank++)
                ck_assert_float_eq(b->list[rank], mask >> rank & 1 ? (float)(rank + 1) : 0);
        ck_assert_uint_eq(b->n_runs, b->me->rank == (uint32_t)__builtin_ctzll(mask));
}

static void expect_untouched(const struct bundle *b) {
        for (size_t i = 0; i < MOST; i++)
                ck_assert_float_eq(b->list[i], -1);
}

static void be_many(struct replica *me) {
        struct bundle b = { .me = me };
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        for (int round = 0; round < 5; round++) {
                expect_status(call(&b, g, NULL, 0), TUTTI_OK);
                expect_made(&b, (UINT64_C(1) << me->n) - 1);
        }
}

START_TEST(one_function_runs_once_over_all_values_on_16_replicas) {
        replicas_run(16, be_many);
}
END_TEST

/* --- while they gather --- */

/* Who is not there, how it went, and in which group. */
struct absence {
        uint32_t rank;
        bool dies;
        enum tutti_on_death on_death;
};

static void lack_one(struct replica *me) {
        const struct absence *a = me->arg;
        struct bundle b = { .me = me };
        struct tutti_group *g = join_train(me, a->on_death);
        if (me->rank == a->rank) {
                replica_hear(me, "go");
                if (a->dies)
                        raise(SIGKILL);
                expect_status(tutti_leave(g), TUTTI_OK);
                expect_status(call(&b, g, "k", 0), TUTTI_LEFT);
                expect_untouched(&b);
                return;
        }
        for (int round = 0; round < 2; round++) { /* the second begins without it */
                expect_status(call(&b, g, "k", 0), TUTTI_OK);
                expect_made(&b, 0x7 & ~(UINT64_C(1) << a->rank));
        }
}

static void play_absence(const struct absence *a) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, lack_one, (void *)a, r);
        host_expect_pending(h, 2);
        replica_tell(r[a->rank], "go");
        for (uint32_t rank = 0; rank < 3; rank++)
                ck_assert_int_eq(replica_end(r[rank], 10), a->dies && rank == a->rank ? 128 + SIGKILL : 0);
        host_expect_counters_zero(h);
        host_stop(h);
}

/* Where the one who would run it is gone, the next one does. */
START_TEST(P5_who_leaves_or_is_lost_while_they_gather_is_not_waited_for) {
        for (uint32_t rank = 0; rank < 3; rank++) {
                play_absence(&(struct absence){ rank, false, TUTTI_FAIL });
                play_absence(&(struct absence){ rank, false, TUTTI_SHRINK });
                play_absence(&(struct absence){ rank, true, TUTTI_SHRINK });
        }
}
END_TEST

/* --- while it runs: by a second thread of a replica that waits for the result --- */

enum deed { LEAVE, ABORT };

struct second_thread {
        struct replica *me;
        struct tutti_group *g;
        enum deed deed;
};

static void *do_meanwhile(void *data) {
        const struct second_thread *s = data;
        replica_hear(s->me, "go");
        if (s->deed == LEAVE)
                expect_status(tutti_leave(s->g), TUTTI_OK);
        else
                expect_status(tutti_abort(s->g, "k", "it takes too long"), TUTTI_OK);
        return NULL;
}

static void expect_end(const struct bundle *b, enum deed deed, enum tutti_status status) {
        uint32_t rank = b->me->rank;
        if (deed == LEAVE) { /* what it brought was there */
                expect_status(status, rank == 2 ? TUTTI_LEFT : TUTTI_OK);
                if (rank != 2)
                        expect_made(b, 0x7);
                return;
        }
        expect_status(status, rank == 0 ? TUTTI_EXPIRED : TUTTI_ABORTED);
        ck_assert_int_eq(rank == 0 ? tutti_error_info()->cause : TUTTI_ABORTED, TUTTI_ABORTED);
        expect_in(tutti_error(), "it takes too long");
        expect_untouched(b);
}

static void wait_for_result(struct replica *me) {
        struct bundle b = { .me = me, .waits = true };
        struct second_thread s = { me, join_train(me, TUTTI_FAIL), *(enum deed *)me->arg };
        pthread_t thread;
        if (me->rank == 2)
                ck_assert_int_eq(pthread_create(&thread, NULL, do_meanwhile, &s), 0);
        expect_end(&b, s.deed, call(&b, s.g, "k", 0));
        if (me->rank == 2)
                ck_assert_int_eq(pthread_join(thread, NULL), 0);
        if (me->rank == 2 && s.deed == LEAVE)
                return;
        b.waits = false;
        expect_status(call(&b, s.g, "k", 0), TUTTI_OK);
        expect_made(&b, s.deed == LEAVE ? 0x3 : 0x7);
}

static void play_deed(enum deed deed) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, wait_for_result, &deed, r);
        replica_expect(r[0], "running", 5);
        host_expect_pending(h, 2);
        replica_tell(r[2], "go");
        if (deed == LEAVE)
                ck_assert_int_eq(replica_end(r[2], 10), 0);
        else
                host_expect_pending(h, 3); /* what R0 owes; R1 and R2 are at the next call */
        replica_tell(r[0], "return");
        for (uint32_t rank = 0; rank < (deed == LEAVE ? 2 : 3); rank++)
                ck_assert_int_eq(replica_end(r[rank], 10), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}

START_TEST(P5_another_leaves_while_it_runs) {
        play_deed(LEAVE);
}
END_TEST

START_TEST(P8_another_aborts_while_it_runs) {
        play_deed(ABORT);
}
END_TEST

/* --- who calls less often --- */

static void call_once_less(struct replica *me) {
        struct bundle b = { .me = me };
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        expect_status(call(&b, g, NULL, 0), TUTTI_OK);
        if (me->rank == 1) {
                replica_hear(me, "late"); /* it has done with calling, and has not left */
                expect_status(call(&b, g, NULL, 0), TUTTI_EXPIRED);
                ck_assert_int_eq(tutti_error_info()->cause, TUTTI_TIMEOUT);
                return;
        }
        expect_status(call(&b, g, NULL, 0.2), TUTTI_TIMEOUT);
        expect_ranks(&tutti_error_info()->missing, 0x2);
        expect_in(tutti_error(), "R1");
        expect_untouched(&b);
        ck_assert_uint_eq(b.n_runs, 0);
        replica_say(me, "told");
}

START_TEST(TE1_who_calls_less_often_is_named_to_all_others) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, call_once_less, NULL, r);
        replica_expect(r[0], "told", 5);
        replica_expect(r[2], "told", 5);
        replica_tell(r[1], "late");
        replicas_end(h, r, 3);
}
END_TEST

UNIT_MAIN("merge-members", 60, one_function_runs_once_over_all_values_on_16_replicas,
        P5_who_leaves_or_is_lost_while_they_gather_is_not_waited_for, P5_another_leaves_while_it_runs,
        P8_another_aborts_while_it_runs, TE1_who_calls_less_often_is_named_to_all_others)
