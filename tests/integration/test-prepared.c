/* Halves that come again are kept by tuttid and started by their number (conductor-prepared.c,
 * lib/prepared.c): the numbers are those of halves that were submitted in full, whatever happens in between.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "meeting.h"
#include "raw.h"
#include "replica.h"
#include "unit.h"

#define N_ELEMENTS 1000
#define N_STEPS    20
#define N_VALUES   300

static void expect_counts(struct host *h, uint64_t n_prepared, uint64_t n_started, uint64_t n_replayed) {
        struct host_counters c;
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_prepared, n_prepared);
        ck_assert_uint_eq(c.n_started, n_started);
        ck_assert_uint_eq(c.n_replayed, n_replayed);
}

/* --- plain calls --- */

static void step_by_step(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats f;
        floats_init(me->t, &f, N_ELEMENTS);
        for (int step = 0; step < N_STEPS; step++)
                floats_meet(g, step % 2 ? "grads" : NULL, &f, (float)(me->rank + (uint32_t)step),
                        3.0f + 3.0f * (float)step);
        replica_say(me, "done");
        replica_hear(me, "end");
}

/* The first call is seen, with the second tuttid is asked to keep the half, from the third on it is started;
 * the first collective of started halves alone is planned, the others do as it did. */
START_TEST(a_half_that_comes_again_is_started_by_its_number) {
        struct host *h = host_start(NULL);
        struct replica *r[3];
        replicas_spawn(h, 3, step_by_step, NULL, r);
        replicas_expect(r, 3, "done", 20);
        expect_counts(h, 3, 3 * (N_STEPS - 2), N_STEPS - 3);
        replicas_tell(r, 3, "end");
        replicas_end(h, r, 3);
}
END_TEST

static void batch_by_batch(struct replica *me) {
        static struct tutti_value values[N_VALUES];
        static struct tutti_entry entries[N_VALUES];
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct array a;
        array_init(me->t, &a, TUTTI_I32, N_VALUES * 16);
        int32_t *data = a.data;
        for (uint32_t i = 0; i < N_VALUES; i++) {
                values[i] = a.value;
                values[i].offset = i * 64;
                values[i].shape[0] = i % 16 + 1;
                entries[i] = TUTTI_ENTRY(.input = &values[i], .output = &values[i]);
        }
        for (int32_t step = 0; step < N_STEPS; step++) {
                for (int32_t i = 0; i < N_VALUES * 16; i++)
                        data[i] = i + step * (int32_t)(me->rank + 1);
                expect_status(tutti_batch_reduce(g, NULL, TUTTI_SUM, entries, N_VALUES), TUTTI_OK);
                for (int32_t i = 0; i < N_VALUES * 16; i++) {
                        int32_t mine = i + step * (int32_t)(me->rank + 1), all = 2 * i + 3 * step;
                        ck_assert_int_eq(data[i], i % 16 <= i / 16 % 16 ? all : mine);
                }
        }
        replica_say(me, "done");
        replica_hear(me, "end");
}

START_TEST(D6_a_batch_that_comes_again_is_right) {
        struct host *h = host_start(NULL);
        struct replica *r[2];
        replicas_spawn(h, 2, batch_by_batch, NULL, r);
        replicas_expect(r, 2, "done", 20);
        expect_counts(h, 2, 2 * (N_STEPS - 2), N_STEPS - 3);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

/* --- what the others bring --- */

static void meet_often(struct tutti_group *g, struct floats *f, float mine, float all) {
        for (int i = 0; i < 5; i++)
                floats_meet(g, "grads", f, mine, all);
}

/* R1 says something else in between, in full. */
static void disagree_once(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats f;
        floats_init(me->t, &f, N_ELEMENTS);
        meet_often(g, &f, 1, 3);
        struct tutti_value odd = f.value;
        if (me->rank == 1)
                odd.shape[0] = N_ELEMENTS / 2;
        const struct tutti_error_info *e = expect_error(tutti_all_reduce(g, "grads", TUTTI_SUM, &odd, &odd));
        ck_assert_int_eq(e->status, TUTTI_MISMATCH);
        ck_assert_int_eq(e->field, TUTTI_FIELD_SHAPE);
        expect_in(e->text, "R0 R2: f32[1000]; R1: f32[500]");
        floats_expect(&f, 3);
        meet_often(g, &f, 2, 6);
        odd = f.value;
        e = expect_error(tutti_all_reduce(g, "grads", me->rank == 1 ? TUTTI_MAX : TUTTI_SUM, &odd, &odd));
        ck_assert_int_eq(e->status, TUTTI_MISMATCH);
        ck_assert_int_eq(e->field, TUTTI_FIELD_OP);
        meet_often(g, &f, 1, 3);
}

START_TEST(B1_a_started_half_is_compared_with_what_the_others_bring) {
        replicas_run(3, disagree_once);
}
END_TEST

/* R1 brings new memory each time, so it is never started, and its peers are. */
static void move_about(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats f[4];
        for (int i = 0; i < 4; i++)
                floats_init(me->t, &f[i], N_ELEMENTS);
        for (int step = 0; step < 40; step++) {
                int where = me->rank == 1 ? step * 7 / 3 % 4 : 0;
                floats_fill(&f[where], (float)(step + 1));
                expect_status(floats_sum(g, "grads", &f[where]), TUTTI_OK);
                floats_expect(&f[where], 2.0f * (float)(step + 1));
        }
}

START_TEST(the_result_goes_where_each_call_says) {
        replicas_run(2, move_about);
}
END_TEST

static void mean_of_fewer(struct replica *me) {
        struct tutti_group *g =
                replica_join_group(me, &TUTTI_JOIN(.group = "train", .on_death = TUTTI_SHRINK));
        struct floats f;
        floats_init(me->t, &f, N_ELEMENTS);
        for (int step = 0; step < 30; step++) {
                if (step == 10 && me->rank == 2)
                        _exit(0);
                if (step == 20 && me->rank == 1) {
                        expect_status(tutti_leave(g), TUTTI_OK);
                        return;
                }
                floats_fill(&f, (float)(me->rank * 6));
                expect_status(tutti_all_reduce(g, "mean", TUTTI_MEAN, &f.value, &f.value), TUTTI_OK);
                floats_expect(&f, step < 10 ? 6 : step < 20 ? 3 : 0);
        }
}

/* (0 + 6 + 12) / 3, then (0 + 6) / 2, then 0: the plan for three is not the plan for two. */
START_TEST(C2_the_mean_is_that_of_who_is_left) {
        struct host *h = host_start(NULL);
        run_replicas(h, 3, mean_of_fewer, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* A large buffer has memory of its own in tuttid, which must go when it is freed. */
static void free_and_take(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        for (int round = 0; round < 5; round++) {
                int fd = raw_memfd(1 << 20);
                struct tutti_buffer *b;
                expect_status(tutti_buffer_from_fd(me->t, fd, 0, TUTTI_INOUT, &b), TUTTI_OK);
                close(fd);
                struct tutti_value v =
                        TUTTI_VALUE(.buffer = b, .dtype = TUTTI_I64, .n_dims = 1, .shape = { 1 << 17 });
                int64_t *data = tutti_buffer_data(b);
                for (int64_t step = 0; step < 5; step++) {
                        data[0] = data[(1 << 17) - 1] = step + round;
                        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &v, &v), TUTTI_OK);
                        ck_assert_int_eq(data[0], 2 * (step + round));
                        ck_assert_int_eq(data[(1 << 17) - 1], 2 * (step + round));
                }
                tutti_buffer_free(b);
        }
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        replica_say(me, "done");
        replica_hear(me, "end");
}

/* A worker unmaps, beside the loop: the bytes are charged until it has. */
static void expect_nothing_mapped(struct host *h) {
        const double since = seconds_now();
        struct host_counters c;
        do {
                host_counters(h, &c);
                ck_assert_double_lt(seconds_now() - since, 2 * unit_scale());
        } while (c.mapped_bytes > 0);
}

START_TEST(what_was_kept_goes_with_its_buffer) {
        struct host *h = host_start(NULL);
        struct replica *r[2];
        replicas_spawn(h, 2, free_and_take, NULL, r);
        replicas_expect(r, 2, "done", 20);
        expect_nothing_mapped(h);
        struct host_counters c;
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_prepared, 0);
        ck_assert_uint_eq(c.n_buffers, 0);
        ck_assert_uint_eq(c.n_started, 2 * 5 * 3);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

static void take_turns(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats f;
        floats_init(me->t, &f, 4 * 100);
        for (int step = 0; step < 400; step++) { /* more different ones than are kept */
                struct tutti_value v = f.value;
                v.offset = (size_t)(step % 100) * 16;
                v.shape[0] = 4;
                f.data[step % 100 * 4 + 3] = 1;
                expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &v, &v), TUTTI_OK);
                ck_assert(f.data[step % 100 * 4 + 3] == 2);
        }
        for (int step = 0; step < 400; step++) {
                struct tutti_value v = f.value;
                v.offset = (size_t)(step % 10) * 16;
                v.shape[0] = 4;
                f.data[step % 10 * 4 + 3] = 1;
                expect_status(tutti_broadcast(g, NULL, (uint32_t)step % 2, &v), TUTTI_OK);
                ck_assert(f.data[step % 10 * 4 + 3] == 1);
        }
        replica_say(me, "done");
        replica_hear(me, "end");
}

START_TEST(the_least_used_make_room) {
        struct host *h = host_start(NULL);
        struct replica *r[2];
        replicas_spawn(h, 2, take_turns, NULL, r);
        replicas_expect(r, 2, "done", 30);
        struct host_counters c;
        host_counters(h, &c);
        /* Ten places and, turn by turn, one of two roots: ten halves that come again. */
        ck_assert_uint_eq(c.n_prepared, 2 * 10);
        ck_assert_uint_eq(c.n_started, 2 * (400 - 2 * 10));
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

/* --- by hand --- */

struct pair {
        struct host *h;
        struct raw *r[2];
        struct raw_member m[2];
};

static void pair_open(struct pair *p) {
        p->h = host_start(NULL);
        uint64_t joining[2];
        for (uint32_t i = 0; i < 2; i++) {
                p->r[i] = raw_open(host_socket(p->h));
                raw_buffer(p->r[i], 1, raw_memfd(4096), 4096);
                const struct request join = raw_join_request("train", i, 2);
                joining[i] = raw_send(p->r[i], &join);
        }
        for (uint32_t i = 0; i < 2; i++)
                p->m[i] = raw_joined(p->r[i], joining[i]);
}

static void pair_close(struct pair *p) {
        raw_close(p->r[0]);
        raw_close(p->r[1]);
        host_expect_counters_zero(p->h);
        host_stop(p->h);
}

static uint64_t submit_to_keep(struct pair *p, uint32_t i, const char *key, uint64_t number) {
        return raw_submit_to_keep(p->r[i], &p->m[i], key, number);
}

static uint64_t start(struct pair *p, uint32_t i, const char *key, uint64_t number) {
        return raw_start(p->r[i], &p->m[i], key, number);
}

static uint64_t unprepare(struct pair *p, uint32_t i, uint64_t number) {
        const struct request request = { .type = REQUEST_UNPREPARE, .prepared = number };
        return raw_send(p->r[i], &request);
}

/* Both keep one under number 7. */
static void both_keep(struct pair *p) {
        uint64_t sent[2];
        for (uint32_t i = 0; i < 2; i++)
                sent[i] = submit_to_keep(p, i, "first", 7);
        for (uint32_t i = 0; i < 2; i++)
                ck_assert(raw_expect(p->r[i], sent[i], STATUS_OK).done.is_kept);
}

START_TEST(a_number_that_is_not_kept_is_refused_and_the_peers_hear_of_it) {
        struct pair p;
        pair_open(&p);
        both_keep(&p);
        uint64_t waiting = start(&p, 0, "a", 7);
        raw_settle(p.r[0]);
        struct reply reply = raw_expect(p.r[1], start(&p, 1, "a", 8), STATUS_NOT_FOUND);
        expect_in(reply.error->detail, "no half is kept under number 8");
        reply = raw_expect(p.r[0], waiting, STATUS_PEER_REFUSED);
        ck_assert_int_eq(reply.error->rank, 1);
        ck_assert_int_eq(reply.error->cause, STATUS_NOT_FOUND);
        raw_expect(p.r[1], unprepare(&p, 1, 8), STATUS_NOT_FOUND);
        raw_expect(p.r[1], unprepare(&p, 1, 7), STATUS_OK);
        raw_expect(p.r[1], unprepare(&p, 1, 7), STATUS_NOT_FOUND);
        raw_expect(p.r[1], start(&p, 1, "b", 7), STATUS_NOT_FOUND);
        pair_close(&p);
}
END_TEST

START_TEST(O4_nobody_starts_what_is_anothers) {
        struct pair p;
        pair_open(&p);
        uint64_t sent[2] = { submit_to_keep(&p, 0, "first", 7), submit_to_keep(&p, 1, "first", 8) };
        for (uint32_t i = 0; i < 2; i++)
                raw_expect(p.r[i], sent[i], STATUS_OK);
        uint64_t waiting = start(&p, 0, "a", 7);
        raw_settle(p.r[0]);
        raw_expect(p.r[1], start(&p, 1, "a", 7), STATUS_NOT_FOUND);
        raw_expect(p.r[1], unprepare(&p, 1, 7), STATUS_NOT_FOUND);
        raw_expect(p.r[0], waiting, STATUS_PEER_REFUSED);
        pair_close(&p);
}
END_TEST

START_TEST(what_is_kept_belongs_to_its_membership) {
        struct pair p;
        pair_open(&p);
        both_keep(&p);
        struct raw_member other = raw_join(p.r[0], "other", 0, 1);
        struct raw_member mine = p.m[0];
        p.m[0] = other;
        struct reply reply = raw_expect(p.r[0], start(&p, 0, "a", 7), STATUS_INVALID);
        expect_in(reply.error->detail, "of another membership");
        ck_assert_int_eq(reply.error->field, FIELD_MEMBERSHIP);
        p.m[0] = mine;
        p.m[0].epoch++;
        raw_expect(p.r[0], start(&p, 0, "a", 7), STATUS_REPLICA_LOST);
        pair_close(&p);
}
END_TEST

START_TEST(a_started_half_outlives_what_it_was_started_from) {
        struct pair p;
        pair_open(&p);
        both_keep(&p);
        uint64_t started = start(&p, 0, "a", 7);
        raw_expect(p.r[0], unprepare(&p, 0, 7), STATUS_OK);
        const struct request unregister = { .type = REQUEST_UNREGISTER, .buffer = 1 };
        raw_expect(p.r[0], raw_send(p.r[0], &unregister), STATUS_OK);
        uint64_t other = raw_submit(p.r[1], &p.m[1], "a", 1, 16);
        raw_expect(p.r[0], started, STATUS_OK);
        raw_expect(p.r[1], other, STATUS_OK);
        raw_expect_used(p.r[1], "mapped-bytes", 4096); /* R0's has gone, R1's is there */
        pair_close(&p);
}
END_TEST

START_TEST(no_more_are_kept_than_may_be) {
        struct pair p;
        pair_open(&p);
        for (uint64_t number = 1; number <= 66; number++) {
                uint64_t sent[2] = { submit_to_keep(&p, 0, "k", number), submit_to_keep(&p, 1, "k", 1) };
                ck_assert_int_eq(raw_expect(p.r[0], sent[0], STATUS_OK).done.is_kept, number <= 64);
                ck_assert_int_eq(raw_expect(p.r[1], sent[1], STATUS_OK).done.is_kept, number == 1);
        }
        expect_counts(p.h, 65, 0, 0);
        pair_close(&p);
}
END_TEST

/* Its memory is somebody's: at the limit nothing is kept, and everything goes on. */
START_TEST(P18_what_is_kept_is_charged) {
        struct pair p;
        pair_open(&p);
        uint64_t sent[2] = { submit_to_keep(&p, 0, "a", 0), submit_to_keep(&p, 1, "a", 0) };
        for (uint32_t i = 0; i < 2; i++)
                ck_assert(!raw_expect(p.r[i], sent[i], STATUS_OK).done.is_kept);
        uint64_t before = raw_used(p.r[0], "memory-bytes"); /* the group's counters are there */
        both_keep(&p);
        ck_assert_uint_gt(raw_used(p.r[0], "memory-bytes"), before);
        raw_expect(p.r[0], unprepare(&p, 0, 7), STATUS_OK);
        raw_expect(p.r[1], unprepare(&p, 1, 7), STATUS_OK);
        raw_expect_used(p.r[0], "memory-bytes", before);
        pair_close(&p);
}
END_TEST

START_TEST(C1_death_with_started_halves_leaves_nothing) {
        struct pair p;
        pair_open(&p);
        both_keep(&p);
        uint64_t started = start(&p, 0, "a", 7);
        raw_close(p.r[1]);
        p.r[1] = NULL;
        raw_expect(p.r[0], started, STATUS_REPLICA_LOST);
        pair_close(&p);
}
END_TEST

START_TEST(G2_a_key_is_needed_and_pending_once) {
        struct pair p;
        pair_open(&p);
        both_keep(&p);
        const struct request keyless = { .type = REQUEST_START,
                .start = { .prepared = 7, .membership = p.m[0].membership, .epoch = p.m[0].epoch } };
        struct reply reply = raw_expect(p.r[0], raw_send(p.r[0], &keyless), STATUS_INVALID);
        ck_assert_int_eq(reply.error->field, FIELD_KEY);
        uint64_t first = start(&p, 0, "a", 7);
        raw_expect(p.r[0], start(&p, 0, "a", 7), STATUS_ALREADY_PENDING);
        raw_expect(p.r[1], start(&p, 1, "a", 7), STATUS_OK);
        raw_expect(p.r[0], first, STATUS_OK);
        pair_close(&p);
}
END_TEST

UNIT_MAIN("prepared", 60, a_half_that_comes_again_is_started_by_its_number,
        D6_a_batch_that_comes_again_is_right, B1_a_started_half_is_compared_with_what_the_others_bring,
        the_result_goes_where_each_call_says, C2_the_mean_is_that_of_who_is_left,
        what_was_kept_goes_with_its_buffer, the_least_used_make_room,
        a_number_that_is_not_kept_is_refused_and_the_peers_hear_of_it, O4_nobody_starts_what_is_anothers,
        what_is_kept_belongs_to_its_membership, a_started_half_outlives_what_it_was_started_from,
        no_more_are_kept_than_may_be, P18_what_is_kept_is_charged,
        C1_death_with_started_halves_leaves_nothing, G2_a_key_is_needed_and_pending_once)
