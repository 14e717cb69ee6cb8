/* What comes again is started in shared memory and run without a packet (lane.c, lib/lane.c): by plain calls,
 * and by hand, with everything that can come between. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "meeting.h"
#include "raw-lane.h"
#include "replica.h"
#include "unit.h"

/* --- plain calls --- */

#define N_STEPS 2000

static void step_by_step(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats f, h;
        floats_init(me->t, &f, 100);
        floats_init(me->t, &h, 1000);
        uint64_t number = 0;
        float ranks = (float)(me->n * (me->n - 1) / 2);
        for (int step = 0; step < N_STEPS; step++) {
                struct floats *v = step % 3 ? &f : &h;
                floats_meet(g, step % 2 ? "grads" : NULL, v, (float)(me->rank + (uint32_t)step),
                        ranks + (float)me->n * (float)step);
                const struct tutti_result *result = tutti_last_result();
                ck_assert_uint_eq(result->collective, ++number); /* nobody skips or repeats one */
                ck_assert_uint_eq(result->n_contributors, me->n);
                expect_ranks(&result->contributors, (1u << me->n) - 1);
                ck_assert_uint_lt(result->last_rank, me->n);
                ck_assert_int_eq(result->op, TUTTI_SUM);
                ck_assert(result->wait >= 0 && result->wait < 60 && result->run > 0 && result->run < 60);
        }
        replica_say(me, "done");
        replica_hear(me, "end");
}

static void run_steps(uint32_t n) {
        struct host *h = host_start(NULL);
        struct host_counters c;
        struct replica *r[4];
        replicas_spawn(h, n, step_by_step, NULL, r);
        replicas_expect(r, n, "done", 60);
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_collectives, N_STEPS);
        ck_assert_uint_eq(c.n_started, n * (N_STEPS - 4)); /* of two halves, each seen and kept first */
        ck_assert_uint_gt(c.n_on_lane, 0);
        ck_assert_uint_le(c.n_on_lane, N_STEPS - 6);
        printf("# %llu of %d collectives ran on the lane, %llu starts were passed on\n",
                (unsigned long long)c.n_on_lane, N_STEPS, (unsigned long long)c.n_passed);
        replicas_tell(r, n, "end");
        replicas_end(h, r, n);
}

START_TEST(P10_what_comes_again_runs_on_the_lane_and_is_right) {
        run_steps(2);
}
END_TEST

START_TEST(P10_more_replicas_than_cores_are_right_as_well) {
        run_steps(4);
}
END_TEST

/* Large ones, which several threads run, one right after the other. Each makes of every element as many times
 * what it was as there are ranks, but for the first: a chunk that was left out or run twice is seen at the
 * end.
 */
#define N_LARGE_ROUNDS 20
#define N_LARGE_STEPS  20

static void large_round(struct replica *me, struct tutti_group *g, struct floats *f, int round) {
        float all = (float)(me->n * (me->n - 1) / 2) + (float)me->n * (float)round;
        floats_fill(f, (float)(me->rank + (uint32_t)round));
        for (int step = 0; step < N_LARGE_STEPS; step++)
                expect_status(floats_sum(g, NULL, f), TUTTI_OK);
        for (int step = 1; step < N_LARGE_STEPS; step++)
                all *= (float)me->n;
        floats_expect(f, all);
}

static void large_steps(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats f, h;
        floats_init(me->t, &f, (1u << 18) + 13);
        floats_init(me->t, &h, (1u << 17) - 1);
        for (int round = 0; round < N_LARGE_ROUNDS; round++)
                large_round(me, g, round % 2 ? &f : &h, round);
        replica_say(me, "done");
        replica_hear(me, "end");
}

/* Where there are cores for it, and time: who is slow sleeps, and the next one starts by a packet. */
static bool may_be_assisted(uint32_t n) {
        cpu_set_t allowed;
        ck_assert_int_eq(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
        return CPU_COUNT(&allowed) > 1 && n == 2 && unit_scale() == 1;
}

static void run_large_steps(uint32_t n) {
        struct host *h = host_start(NULL);
        struct host_counters c;
        struct replica *r[4];
        replicas_spawn(h, n, large_steps, NULL, r);
        replicas_expect(r, n, "done", 60);
        host_counters(h, &c);
        ck_assert_uint_le(c.n_assisted, c.n_on_lane);
        if (may_be_assisted(n))
                ck_assert_uint_gt(c.n_assisted, 0);
        printf("# %llu of %d collectives ran on the lane, %llu by several threads\n",
                (unsigned long long)c.n_on_lane, N_LARGE_ROUNDS * N_LARGE_STEPS,
                (unsigned long long)c.n_assisted);
        replicas_tell(r, n, "end");
        replicas_end(h, r, n);
}

START_TEST(P10_what_several_threads_run_there_is_right) {
        run_large_steps(2);
        run_large_steps(4);
}
END_TEST

START_TEST(one_worker_has_no_assistant) {
        static const char *const args[] = { "--set", "cpu.workers=1", NULL };
        struct host *h = host_start(args);
        struct host_counters c;
        struct replica *r[2];
        replicas_spawn(h, 2, large_steps, NULL, r);
        replicas_expect(r, 2, "done", 60);
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_assisted, 0);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

/* --- by hand --- */

#define MAX_HANDS 3

struct hands {
        struct host *h;
        uint32_t n;
        struct raw *r[MAX_HANDS];
        struct raw_lane l[MAX_HANDS];
        struct raw_member m[MAX_HANDS];
        int memory[MAX_HANDS];
        float *data[MAX_HANDS];
};

static uint64_t submit_to_keep(struct hands *p, uint32_t i, const char *key, uint64_t number) {
        return raw_submit_to_keep(p->r[i], &p->m[i], key, number);
}

static uint64_t start_by_packet(struct hands *p, uint32_t i, const char *key, uint64_t number) {
        return raw_start(p->r[i], &p->m[i], key, number);
}

static uint64_t start(struct hands *p, uint32_t i, const char *key) {
        return raw_lane_start(p->r[i], &p->l[i], &p->m[i], key, 7);
}

static void expect_all(struct hands *p, const uint64_t *sent, enum status status) {
        for (uint32_t i = 0; i < p->n; i++)
                raw_expect(p->r[i], sent[i], status);
}

/* Everybody's half is kept under 7, and the plan of all of them as well: the road is open. */
static void all_keep(struct hands *p) {
        uint64_t sent[MAX_HANDS];
        for (uint32_t i = 0; i < p->n; i++)
                sent[i] = submit_to_keep(p, i, "first", 7);
        expect_all(p, sent, STATUS_OK);
        for (uint32_t i = 0; i < p->n; i++)
                sent[i] = start_by_packet(p, i, "second", 7);
        expect_all(p, sent, STATUS_OK);
        for (uint32_t i = 0; i < p->n; i++)
                raw_lane_expect_open(&p->l[i], true);
}

static void give_memory(struct hands *p, uint32_t i) {
        int fd = raw_memfd(4096);
        p->memory[i] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        p->data[i] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert(p->memory[i] >= 0 && p->data[i] != MAP_FAILED);
        raw_buffer(p->r[i], 1, fd, 4096);
}

static void hands_open_with(
        struct hands *p, uint32_t n, const struct request *like, const char *const *args) {
        uint64_t joining[MAX_HANDS];
        *p = (struct hands){ .n = n, .h = host_start(args) };
        for (uint32_t i = 0; i < n; i++) {
                struct request join = *like;
                p->r[i] = raw_open_lane(host_socket(p->h), &p->l[i]);
                give_memory(p, i);
                join.join.rank = i;
                joining[i] = raw_send(p->r[i], &join);
        }
        for (uint32_t i = 0; i < n; i++)
                p->m[i] = raw_joined(p->r[i], joining[i]);
        all_keep(p);
}

static void hands_open(struct hands *p, uint32_t n) {
        const struct request join = raw_join_request("train", 0, n);
        hands_open_with(p, n, &join, NULL);
}

static void hand_close(struct hands *p, uint32_t i) {
        if (!p->r[i])
                return;
        raw_lane_close(&p->l[i]);
        raw_close(p->r[i]);
        munmap(p->data[i], 4096);
        close(p->memory[i]);
        p->r[i] = NULL;
}

static void hands_close(struct hands *p) {
        for (uint32_t i = 0; i < p->n; i++)
                hand_close(p, i);
        host_expect_counters_zero(p->h);
        host_stop(p->h);
}

static void expect_on_lane(struct hands *p, uint64_t n_on_lane, uint64_t n_passed) {
        struct host_counters c;
        host_counters(p->h, &c);
        ck_assert_uint_eq(c.n_on_lane, n_on_lane);
        ck_assert_uint_eq(c.n_passed, n_passed);
}

static void fill(struct hands *p) {
        for (uint32_t i = 0; i < p->n; i++)
                for (int k = 0; k < 16; k++)
                        p->data[i][k] = (float)(i + 1) * (float)k;
}

static void expect_sum(const struct hands *p) {
        float ranks = (float)(p->n * (p->n + 1) / 2);
        for (uint32_t i = 0; i < p->n; i++)
                for (int k = 0; k < 16; k++)
                        ck_assert_float_eq(p->data[i][k], ranks * (float)k);
}

START_TEST(all_starts_make_a_collective_and_no_packet) {
        struct hands p;
        uint64_t sent[MAX_HANDS];
        hands_open(&p, 3);
        for (uint64_t step = 0; step < 300; step++) {
                fill(&p);
                for (uint32_t i = 0; i < 3; i++)
                        sent[i] = start(&p, (i + (uint32_t)step) % 3, "a");
                for (uint32_t i = 0; i < 3; i++)
                        ck_assert_uint_eq(raw_lane_expect_done(&p.l[(i + step) % 3], sent[i]), 3 + step);
                expect_sum(&p);
        }
        for (uint32_t i = 0; i < 3; i++)
                ck_assert(raw_is_silent(p.r[i], 0));
        expect_on_lane(&p, 300, 0);
        hands_close(&p);
}
END_TEST

/* The record is the same as of all others: numbers in order, who came last, what each has finished. */
START_TEST(P23_what_runs_on_the_lane_is_recorded) {
        struct hands p;
        uint64_t sent[2];
        hands_open(&p, 2);
        for (uint32_t i = 0; i < 2; i++)
                sent[i] = start(&p, i, i ? "a" : "a");
        for (uint32_t i = 0; i < 2; i++)
                raw_lane_expect_done(&p.l[i], sent[i]);
        const struct reply dump =
                raw_expect(p.r[0], raw_query(p.r[0], WHAT_DUMP, "test", "train"), STATUS_OK);
        ck_assert_uint_eq(dump.rows.n_rows, 4); /* three records, and the end */
        const struct row_record *last = &dump.rows.rows[2].record;
        ck_assert_uint_eq(last->collective, 3);
        ck_assert_int_eq(last->status, STATUS_OK);
        ck_assert_int_eq(last->kind, KIND_REDUCE);
        ck_assert_uint_eq(last->bytes, 64);
        ck_assert_uint_eq(last->n_arrivals, 2);
        ck_assert_uint_lt(last->arrival_ns[0], last->arrival_ns[1] + 1);
        ck_assert_uint_eq(last->last_rank, 1);
        const struct reply groups =
                raw_expect(p.r[0], raw_query(p.r[0], WHAT_GROUPS, "test", "train"), STATUS_OK);
        uint32_t n_members = 0;
        for (uint32_t i = 0; i < groups.rows.n_rows; i++) {
                const struct row_member *m = &groups.rows.rows[i].member;
                if (groups.rows.rows[i].type != ROW_MEMBER)
                        continue;
                n_members++;
                const struct key a = raw_key("a");
                ck_assert(m->has_last && key_is_equal(&m->last_key, &a));
                ck_assert_uint_eq(m->n_submitted, 3);
        }
        ck_assert_uint_eq(n_members, 2);
        hands_close(&p);
}
END_TEST

/* --- who sleeps --- */

START_TEST(P22_who_sleeps_is_told_by_a_packet) {
        struct hands p;
        hands_open(&p, 2);
        uint64_t sleeper = start(&p, 0, "a");
        raw_lane_ring(p.r[0], sleeper);
        raw_lane_expect_passed(&p.l[0]);
        raw_lane_expect_open(&p.l[1], false);
        fill(&p);
        uint64_t other = start_by_packet(&p, 1, "a", 7);
        ck_assert_uint_eq(raw_expect(p.r[0], sleeper, STATUS_OK).done.collective, 3);
        raw_expect(p.r[1], other, STATUS_OK);
        expect_sum(&p);
        raw_lane_expect_open(&p.l[1], true); /* and on it goes */
        uint64_t sent[2] = { start(&p, 0, "b"), start(&p, 1, "b") };
        ck_assert_uint_eq(raw_lane_expect_done(&p.l[0], sent[0]), 4);
        /* It had decided to sleep when it was done already. */
        raw_lane_ring(p.r[0], sent[0]);
        const struct reply late = raw_expect(p.r[0], sent[0], STATUS_OK);
        ck_assert_uint_eq(late.done.collective, 4);
        ck_assert_uint_eq(late.done.n_contributors, 2);
        ck_assert_uint_eq(late.done.last_rank, 1);
        expect_on_lane(&p, 1, 1);
        hands_close(&p);
}
END_TEST

START_TEST(who_starts_while_the_others_send_is_passed_on) {
        struct hands p;
        hands_open(&p, 3);
        uint64_t sent[3] = { start(&p, 0, "a"), start_by_packet(&p, 1, "a", 7), 0 };
        raw_lane_expect_passed(&p.l[0]);
        sent[2] = submit_to_keep(&p, 2, "a", 0);
        expect_all(&p, sent, STATUS_OK);
        expect_on_lane(&p, 0, 1);
        hands_close(&p);
}
END_TEST

/* It was open when the client looked, and closed when it had written. */
START_TEST(a_start_that_comes_too_late_for_the_road_waits_for_its_ring) {
        struct hands p;
        hands_open(&p, 2);
        uint64_t first = start_by_packet(&p, 1, "a", 7);
        raw_lane_expect_open(&p.l[0], false);
        uint64_t late = start(&p, 0, "a");
        ck_assert(raw_is_silent(p.r[0], 0.05));
        ck_assert_uint_ne(p.l[0].board->passed, p.l[0].slot->start);
        raw_lane_ring(p.r[0], late);
        raw_expect(p.r[0], late, STATUS_OK);
        raw_expect(p.r[1], first, STATUS_OK);
        hands_close(&p);
}
END_TEST

START_TEST(a_ring_for_nothing_is_refused_and_harms_nobody) {
        struct hands p;
        hands_open(&p, 2);
        raw_lane_ring(p.r[0], 12345);
        const struct reply reply = raw_expect(p.r[0], 12345, STATUS_INVALID);
        expect_in(reply.error->detail, "no request 12345 was started");
        const struct request again = { .type = REQUEST_OPEN_LANE };
        expect_in(raw_expect(p.r[0], raw_send(p.r[0], &again), STATUS_BUSY).error->detail, "has its lane");
        uint64_t sent[2] = { start(&p, 0, "a"), start(&p, 1, "a") };
        for (uint32_t i = 0; i < 2; i++) {
                raw_lane_ring(p.r[i], sent[i]);
                raw_lane_ring(p.r[i], sent[i]);
        }
        expect_all(&p, sent, STATUS_OK);
        struct raw *without = raw_open(host_socket(p.h));
        raw_lane_ring(without, 77);
        raw_expect(without, 77, STATUS_INVALID);
        raw_close(without);
        hands_close(&p);
}
END_TEST

/* --- what it does not run is rendezvous's --- */

START_TEST(P2_different_keys_meet_whom_they_name) {
        struct hands p;
        hands_open(&p, 2);
        uint64_t a = start(&p, 0, "a"), b = start(&p, 1, "b");
        raw_lane_expect_passed(&p.l[0]);
        raw_lane_expect_passed(&p.l[1]);
        uint64_t b0 = start_by_packet(&p, 0, "b", 7);
        raw_expect(p.r[1], b, STATUS_OK);
        raw_expect(p.r[0], b0, STATUS_OK);
        uint64_t a1 = start_by_packet(&p, 1, "a", 7);
        raw_expect(p.r[0], a, STATUS_OK);
        raw_expect(p.r[1], a1, STATUS_OK);
        hands_close(&p);
}
END_TEST

START_TEST(B1_another_half_is_compared) {
        struct hands p;
        hands_open(&p, 2);
        struct entry half = raw_entry(1, 8);
        struct request submit = raw_submit_request(&p.m[1], "a", &half);
        uint64_t started = start(&p, 0, "a"), other = raw_send(p.r[1], &submit);
        const struct reply reply = raw_expect(p.r[0], started, STATUS_MISMATCH);
        ck_assert_int_eq(reply.error->field, FIELD_SHAPE);
        raw_expect(p.r[1], other, STATUS_MISMATCH);
        hands_close(&p);
}
END_TEST

/* Both are started without a ring, and end by the packet that comes behind them: it finds the lane closed. */
START_TEST(B1_what_ends_before_a_packet_leaves_the_lane_closed_for_it) {
        struct hands p;
        hands_open(&p, 2);
        struct entry half = raw_entry(1, 8);
        struct request submit = raw_submit_request(&p.m[1], "b", &half);
        submit.submit.prepare = 8;
        const struct request same = raw_submit_request(&p.m[0], "b", &half);
        uint64_t sent[2] = { raw_send(p.r[0], &same), raw_send(p.r[1], &submit) };
        expect_all(&p, sent, STATUS_OK);
        for (uint32_t i = 0; i < 2; i++)
                raw_lane_expect_open(&p.l[i], true);
        usleep(20000); /* nobody watches any more */
        for (uint32_t i = 0; i < 2; i++)
                sent[i] = raw_lane_write(p.r[i], &p.l[i], &p.m[i], "a", 7 + i);
        const struct request unprepare = { .type = REQUEST_UNPREPARE, .prepared = 7 };
        uint64_t forgotten = raw_send(p.r[1], &unprepare);
        expect_all(&p, sent, STATUS_MISMATCH);
        raw_expect(p.r[1], forgotten, STATUS_OK);
        hands_close(&p);
}
END_TEST

START_TEST(P4_a_number_that_is_not_kept_is_refused_and_the_peers_hear_of_it) {
        struct hands p;
        hands_open(&p, 2);
        uint64_t good = start(&p, 0, "a"), bad = raw_lane_start(p.r[1], &p.l[1], &p.m[1], "a", 8);
        raw_expect(p.r[1], bad, STATUS_NOT_FOUND);
        raw_expect(p.r[0], good, STATUS_PEER_REFUSED);
        p.l[1].slot->key_bytes = 129;
        p.l[1].slot->request = 500;
        p.l[1].slot->start++;
        raw_lane_ring(p.r[1], 500);
        expect_in(raw_expect(p.r[1], 500, STATUS_INVALID).error->detail, "the key is missing");
        hands_close(&p);
}
END_TEST

START_TEST(P5_an_epoch_that_is_over_is_refused) {
        struct hands p;
        hands_open(&p, 2);
        struct raw_member old = p.m[1];
        old.epoch--;
        uint64_t good = start(&p, 0, "a"), late = raw_lane_start(p.r[1], &p.l[1], &old, "a", 7);
        raw_expect(p.r[1], late, STATUS_REPLICA_LOST);
        raw_lane_expect_passed(&p.l[0]);
        uint64_t other = start_by_packet(&p, 1, "a", 7);
        raw_expect(p.r[0], good, STATUS_OK);
        raw_expect(p.r[1], other, STATUS_OK);
        hands_close(&p);
}
END_TEST

START_TEST(P8_what_was_started_can_be_aborted_by_who_knows_of_it) {
        struct hands p;
        hands_open(&p, 2);
        uint64_t started = start(&p, 0, "a");
        const struct request abort = { .type = REQUEST_ABORT,
                .abort = { p.m[1].membership, true, raw_key("a"), "enough" } };
        raw_expect(p.r[1], raw_send(p.r[1], &abort), STATUS_OK);
        const struct reply reply = raw_expect(p.r[0], started, STATUS_ABORTED);
        expect_in(reply.error->detail, "enough");
        raw_lane_expect_open(&p.l[0], false); /* R1 owes it */
        raw_expect(p.r[1], start_by_packet(&p, 1, "a", 7), STATUS_EXPIRED);
        hands_close(&p);
}
END_TEST

START_TEST(B7_a_key_that_is_pending_is_not_started_again) {
        struct hands p;
        hands_open(&p, 2);
        uint64_t first = start(&p, 0, "a");
        raw_expect(p.r[0], start_by_packet(&p, 0, "a", 7), STATUS_ALREADY_PENDING);
        uint64_t again = start(&p, 0, "a");
        raw_lane_ring(p.r[0], again);
        raw_expect(p.r[0], again, STATUS_ALREADY_PENDING);
        uint64_t other = start_by_packet(&p, 1, "a", 7);
        raw_expect(p.r[0], first, STATUS_OK);
        raw_expect(p.r[1], other, STATUS_OK);
        hands_close(&p);
}
END_TEST

/* --- time, death, leave --- */

START_TEST(P6_who_sleeps_has_a_deadline) {
        struct hands p;
        struct request join = raw_join_request("train", 0, 2);
        join.join.has_default_timeout = true;
        join.join.default_timeout_ns = 200000000;
        hands_open_with(&p, 2, &join, NULL);
        uint64_t started = start(&p, 0, "a");
        raw_lane_ring(p.r[0], started);
        const struct reply reply = raw_expect(p.r[0], started, STATUS_TIMEOUT);
        ck_assert_int_eq(reply.error->rank, 0);
        ck_assert(rankset_has(&reply.error->missing, 1));
        raw_expect(p.r[1], start_by_packet(&p, 1, "a", 7), STATUS_EXPIRED);
        raw_lane_expect_open(&p.l[0], false);
        uint64_t sent[2] = { start_by_packet(&p, 0, "b", 7), start_by_packet(&p, 1, "b", 7) };
        expect_all(&p, sent, STATUS_OK);
        raw_lane_expect_open(&p.l[0], true); /* no debt is left */
        hands_close(&p);
}
END_TEST

START_TEST(C1_the_end_of_a_peer_is_told_to_who_has_started) {
        struct hands p;
        hands_open(&p, 3);
        uint64_t started = start(&p, 0, "a"), rung = start(&p, 2, "a");
        raw_lane_ring(p.r[2], rung);
        hand_close(&p, 1);
        const struct reply reply = raw_expect(p.r[0], started, STATUS_REPLICA_LOST);
        ck_assert_int_eq(reply.error->rank, 1);
        raw_expect(p.r[2], rung, STATUS_REPLICA_LOST);
        raw_lane_expect_open(&p.l[0], false);
        hands_close(&p);
}
END_TEST

/* What it has started counts as what it has sent. */
START_TEST(P5_the_last_half_of_one_that_ends_counts) {
        struct hands p;
        hands_open(&p, 2);
        fill(&p);
        uint64_t mine = start_by_packet(&p, 0, "a", 7);
        raw_lane_expect_open(&p.l[1], false);
        (void)raw_lane_write(p.r[1], &p.l[1], &p.m[1], "a", 7);
        hand_close(&p, 1);
        raw_expect(p.r[0], mine, STATUS_OK);
        ck_assert_float_eq(p.data[0][1], 3);
        hands_close(&p);
}
END_TEST

START_TEST(who_leaves_is_not_waited_for) {
        struct hands p;
        hands_open(&p, 3);
        uint64_t sent[2] = { start(&p, 0, "a"), start(&p, 1, "a") };
        const struct request leave = { .type = REQUEST_LEAVE, .membership = p.m[2].membership };
        raw_expect(p.r[2], raw_send(p.r[2], &leave), STATUS_OK);
        for (uint32_t i = 0; i < 2; i++)
                ck_assert_uint_eq(raw_expect(p.r[i], sent[i], STATUS_OK).done.n_contributors, 2);
        for (uint32_t i = 0; i < 2; i++)
                sent[i] = start_by_packet(&p, i, "b", 7);
        for (uint32_t i = 0; i < 2; i++)
                raw_expect(p.r[i], sent[i], STATUS_OK);
        raw_lane_expect_open(&p.l[0], true); /* the road of two */
        sent[0] = start(&p, 0, "c");
        sent[1] = start(&p, 1, "c");
        ck_assert_uint_eq(raw_lane_expect_done(&p.l[0], sent[0]), raw_lane_expect_done(&p.l[1], sent[1]));
        expect_on_lane(&p, 1, 2);
        hands_close(&p);
}
END_TEST

/* --- what is kept goes --- */

START_TEST(what_is_forgotten_is_not_run) {
        struct hands p;
        hands_open(&p, 2);
        uint64_t sent[2] = { start(&p, 0, "a"), start(&p, 1, "a") };
        for (uint32_t i = 0; i < 2; i++)
                raw_lane_expect_done(&p.l[i], sent[i]);
        const struct request unprepare = { .type = REQUEST_UNPREPARE, .prepared = 7 };
        raw_expect(p.r[1], raw_send(p.r[1], &unprepare), STATUS_OK);
        raw_lane_expect_open(&p.l[0], false);
        sent[1] = start(&p, 1, "b");
        raw_lane_ring(p.r[1], sent[1]);
        raw_expect(p.r[1], sent[1], STATUS_NOT_FOUND);
        expect_on_lane(&p, 1, 1);
        hands_close(&p);
}
END_TEST

START_TEST(P16_a_hole_under_a_run_ends_its_owner_alone) {
        struct hands p;
        hands_open(&p, 3);
        ck_assert_int_eq(fallocate(p.memory[1], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
        uint64_t sent[3];
        for (uint32_t i = 0; i < 3; i++)
                sent[i] = start(&p, i, "a");
        raw_expect(p.r[1], sent[1], STATUS_BAD_FD);
        raw_expect_ejected(p.r[1], STATUS_BAD_FD);
        for (uint32_t i = 0; i < 3; i += 2) {
                const struct reply reply = raw_expect(p.r[i], sent[i], STATUS_REPLICA_LOST);
                ck_assert(reply.error->outputs_undefined);
                ck_assert_int_eq(reply.error->rank, 1);
                ck_assert_int_eq(raw_lane_state(&p.l[i], sent[i]), PAGE_FAILED);
        }
        hands_close(&p);
}
END_TEST

START_TEST(P18_a_lane_is_charged) {
        static const char *const args[] = { "--set", "quota.descriptors=24", NULL };
        struct host *h = host_start(args);
        struct raw_lane lane;
        struct raw *r = raw_open_lane(host_socket(h), &lane);
        uint64_t used = raw_used(r, "descriptors");
        struct raw *crowd[6];
        for (uint32_t i = 0; i < 6; i++)
                crowd[i] = raw_open(host_socket(h));
        const struct request ask = { .type = REQUEST_OPEN_LANE };
        uint32_t n_refused = 0;
        for (uint32_t i = 0; i < 6; i++) {
                const struct reply reply = raw_await(crowd[i], raw_send(crowd[i], &ask));
                ck_assert(reply.status == STATUS_OK || reply.status == STATUS_QUOTA);
                n_refused += reply.status == STATUS_QUOTA;
        }
        ck_assert_uint_ge(n_refused, 2);
        for (uint32_t i = 0; i < 6; i++)
                raw_close(crowd[i]);
        raw_expect_used(r, "descriptors", used);
        raw_lane_close(&lane);
        raw_close(r);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("lane", 60, P10_what_comes_again_runs_on_the_lane_and_is_right,
        P10_more_replicas_than_cores_are_right_as_well, P10_what_several_threads_run_there_is_right,
        one_worker_has_no_assistant, all_starts_make_a_collective_and_no_packet,
        P23_what_runs_on_the_lane_is_recorded, P22_who_sleeps_is_told_by_a_packet,
        who_starts_while_the_others_send_is_passed_on,
        a_start_that_comes_too_late_for_the_road_waits_for_its_ring,
        a_ring_for_nothing_is_refused_and_harms_nobody, P2_different_keys_meet_whom_they_name,
        B1_another_half_is_compared, B1_what_ends_before_a_packet_leaves_the_lane_closed_for_it,
        P4_a_number_that_is_not_kept_is_refused_and_the_peers_hear_of_it, P5_an_epoch_that_is_over_is_refused,
        P8_what_was_started_can_be_aborted_by_who_knows_of_it, B7_a_key_that_is_pending_is_not_started_again,
        P6_who_sleeps_has_a_deadline, C1_the_end_of_a_peer_is_told_to_who_has_started,
        P5_the_last_half_of_one_that_ends_counts, who_leaves_is_not_waited_for, what_is_forgotten_is_not_run,
        P16_a_hole_under_a_run_ends_its_owner_alone, P18_a_lane_is_charged)
