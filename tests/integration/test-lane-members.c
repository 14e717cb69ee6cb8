/* The lane while its members change, end or lie: by hand, and by calls whose group has others than it had.
 * Most of it has stopped tuttid once. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "meeting.h"
#include "raw-lane.h"
#include "replica.h"
#include "unit.h"

#define MAX_HANDS   3
#define LARGE_BYTES ((uint64_t)1 << 20) /* what takes the engine longer than the next packet */

struct hands {
        struct host *h;
        struct raw *r[MAX_HANDS + 1];
        struct raw_lane l[MAX_HANDS + 1];
        struct raw_member m[MAX_HANDS + 1];
        uint64_t n_floats; /* that are reduced; 0: nothing is */
};

static uint64_t keep(struct hands *p, uint32_t i, const char *key) {
        const struct entry entry = raw_entry(1, p->n_floats);
        struct request submit = raw_submit_request(&p->m[i], key, &entry);
        submit.submit.prepare = 7;
        return raw_send(p->r[i], &submit);
}

static uint64_t start(struct hands *p, uint32_t i, const char *key) {
        return raw_start(p->r[i], &p->m[i], key, 7);
}

static void expect_all(struct hands *p, const uint64_t *sent, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                raw_expect(p->r[i], sent[i], STATUS_OK);
}

static void meet(struct hands *p, uint32_t n, const char *key) {
        uint64_t sent[MAX_HANDS];
        for (uint32_t i = 0; i < n; i++)
                sent[i] = start(p, i, key);
        expect_all(p, sent, n);
}

static void come(struct hands *p, uint32_t i) {
        p->r[i] = raw_open_lane(host_socket(p->h), &p->l[i]);
        raw_buffer(p->r[i], 1, raw_memfd(LARGE_BYTES), LARGE_BYTES);
}

static void go(struct hands *p, uint32_t i) {
        raw_lane_close(&p->l[i]);
        raw_close(p->r[i]);
}

/* A group of `n` whose halves are kept. */
static void hands_come(struct hands *p, uint32_t n, const char *group) {
        uint64_t sent[MAX_HANDS];
        for (uint32_t i = 0; i < n; i++) {
                come(p, i);
                const struct request join = raw_join_request(group, i, n);
                sent[i] = raw_send(p->r[i], &join);
        }
        for (uint32_t i = 0; i < n; i++)
                p->m[i] = raw_joined(p->r[i], sent[i]);
        for (uint32_t i = 0; i < n; i++)
                sent[i] = keep(p, i, "first");
        expect_all(p, sent, n);
}

static void open_road(struct hands *p, uint32_t n) {
        meet(p, n, "second");
        for (uint32_t i = 0; i < n; i++)
                raw_lane_expect_open(&p->l[i], true);
}

/* tuttid serves, with its lane. */
static void expect_served(struct host *h, const char *group) {
        struct hands p = { .h = h, .n_floats = 16 };
        hands_come(&p, 2, group);
        open_road(&p, 2);
        for (uint32_t i = 0; i < 2; i++)
                go(&p, i);
}

static void forget(struct hands *p, uint32_t i) {
        const struct request unprepare = { .type = REQUEST_UNPREPARE, .prepared = 7 };
        raw_expect(p->r[i], raw_send(p->r[i], &unprepare), STATUS_OK);
}

/* A client has the same bell as tuttid, and can make a write to it wait for ever. */
static void spoil_bell(int bell) {
        static const uint64_t full = UINT64_MAX - 1;
        uint64_t n;
        (void)!read(bell, &n, sizeof(n));
        ck_assert_int_eq(write(bell, &full, sizeof(full)), sizeof(full));
        ck_assert_int_eq(fcntl(bell, F_SETFL, 0), 0);
}

START_TEST(P21_a_bell_that_blocks_holds_up_nobody) {
        struct hands p = { .h = host_start(NULL), .n_floats = 16 };
        hands_come(&p, 2, "train");
        open_road(&p, 2);
        uint64_t mine = start(&p, 0, "a");
        raw_lane_expect_open(&p.l[0], false);
        spoil_bell(p.l[0].bell);
        uint64_t next = raw_lane_write(p.r[0], &p.l[0], &p.m[0], "b", 7); /* without a word to anybody */
        raw_expect(p.r[1], start(&p, 1, "a"), STATUS_OK);
        raw_expect(p.r[0], mine, STATUS_OK);
        raw_lane_expect_open(&p.l[0], true);
        expect_served(p.h, "others");
        uint64_t other = raw_lane_start(p.r[1], &p.l[1], &p.m[1], "b", 7);
        raw_lane_expect_done(&p.l[0], next);
        raw_lane_expect_done(&p.l[1], other);
        for (uint32_t i = 0; i < 2; i++)
                go(&p, i);
        host_expect_counters_zero(p.h);
        host_stop(p.h);
}
END_TEST

/* What moves no byte ends while its last member goes. */
START_TEST(P5_the_last_half_of_nothing_by_one_that_ends_counts) {
        struct hands p = { .h = host_start(NULL) };
        hands_come(&p, 2, "train");
        open_road(&p, 2);
        uint64_t mine = start(&p, 0, "a");
        raw_lane_expect_open(&p.l[1], false);
        (void)raw_lane_write(p.r[1], &p.l[1], &p.m[1], "a", 7);
        go(&p, 1);
        raw_expect(p.r[0], mine, STATUS_OK);
        expect_served(p.h, "others");
        go(&p, 0);
        host_expect_counters_zero(p.h);
        host_stop(p.h);
}
END_TEST

#define N_ROUNDS 20

/* To meet a run under way takes some tries. */
static void play_again_and_again(void (*play)(struct hands *p, const char *group)) {
        struct hands p = { .h = host_start(NULL), .n_floats = LARGE_BYTES / sizeof(float) };
        for (int round = 0; round < N_ROUNDS; round++) {
                char group[32];
                snprintf(group, sizeof(group), "train %d", round);
                play(&p, group);
                for (uint32_t i = 0; i < 3; i++)
                        go(&p, i);
        }
        expect_served(p.h, "others");
        host_expect_counters_zero(p.h);
        host_stop(p.h);
}

/* Rank 2 leaves while what it has started runs; the two that stay go on with the same halves, and forget
 * them. */
static void leave_under_a_run(struct hands *p, const char *group) {
        uint64_t sent[MAX_HANDS];
        hands_come(p, 3, group);
        const struct request leave = { .type = REQUEST_LEAVE, .membership = p->m[2].membership };
        for (uint32_t i = 0; i < 3; i++)
                sent[i] = start(p, i, "a");
        uint64_t left = raw_send(p->r[2], &leave);
        raw_expect(p->r[2], left, STATUS_OK);
        expect_all(p, sent, 2);
        meet(p, 2, "b");
        meet(p, 2, "c");
        raw_lane_expect_open(&p->l[0], true);
        sent[0] = raw_lane_start(p->r[0], &p->l[0], &p->m[0], "d", 7);
        sent[1] = raw_lane_start(p->r[1], &p->l[1], &p->m[1], "d", 7);
        raw_lane_expect_done(&p->l[0], sent[0]);
        raw_lane_expect_done(&p->l[1], sent[1]);
        for (uint32_t i = 0; i < 2; i++)
                forget(p, i);
}

START_TEST(who_leaves_under_a_run_has_no_place_on_the_road) {
        play_again_and_again(leave_under_a_run);
}
END_TEST

static uint64_t rejoin(struct hands *p, uint32_t i) {
        const struct request request = { .type = REQUEST_REJOIN,
                .reform = { .membership = p->m[i].membership } };
        return raw_send(p->r[i], &request);
}

/* What two of three have under way ends when both have asked for a new epoch, to which another one comes. */
static void rejoin_under_a_run(struct hands *p, const char *group) {
        uint64_t sent[MAX_HANDS];
        hands_come(p, 3, group);
        const struct request leave = { .type = REQUEST_LEAVE, .membership = p->m[2].membership };
        raw_expect(p->r[2], raw_send(p->r[2], &leave), STATUS_OK);
        go(p, 2);
        meet(p, 2, "a");
        uint64_t run[2] = { start(p, 0, "b"), start(p, 1, "b") };
        for (uint32_t i = 0; i < 2; i++)
                sent[i] = rejoin(p, i);
        expect_all(p, run, 2);
        come(p, 2);
        const struct request join = raw_join_request(group, 2, 3);
        sent[2] = raw_send(p->r[2], &join);
        for (uint32_t i = 0; i < 3; i++)
                p->m[i] = raw_joined(p->r[i], sent[i]);
        sent[0] = start(p, 0, "c");
        sent[1] = start(p, 1, "c");
        sent[2] = keep(p, 2, "c");
        expect_all(p, sent, 3);
        meet(p, 3, "d");
        meet(p, 3, "e");
        for (uint32_t i = 0; i < 3; i++)
                raw_lane_expect_open(&p->l[i], true);
        forget(p, 2);
        forget(p, 0);
}

START_TEST(a_road_of_an_epoch_goes_with_it) {
        play_again_and_again(rejoin_under_a_run);
}
END_TEST

/* --- halves that wait --- */

#define HELD_BYTES ((uint64_t)32 << 20) /* takes longer to import than 16 floats to be reduced */
#define HELD_TRIES 8

static uint64_t send_held(struct hands *p, uint32_t i, const char *key, uint64_t buffer) {
        return raw_submit(p->r[i], &p->m[i], key, buffer, 16);
}

/* The kept reduction ends while both have another half that waits for its buffer: the road is open when that
 * one comes to rendezvous. */
static uint64_t meet_held(struct hands *p, uint64_t buffer, uint64_t after) {
        uint64_t running[2], held[2], next[2], numbers[2];
        running[0] = start(p, 0, "running");
        for (uint32_t i = 0; i < 2; i++)
                raw_register(p->r[i], buffer, raw_memfd(HELD_BYTES), HELD_BYTES);
        running[1] = start(p, 1, "running");
        for (uint32_t i = 0; i < 2; i++)
                held[i] = send_held(p, i, "held", buffer);
        numbers[0] = raw_expect(p->r[0], running[0], STATUS_OK).done.collective;
        numbers[1] = raw_expect(p->r[0], held[0], STATUS_OK).done.collective;
        raw_expect(p->r[1], held[1], STATUS_OK);
        ck_assert_uint_gt(numbers[0], after);
        ck_assert_uint_gt(numbers[1], numbers[0]);
        for (uint32_t i = 0; i < 2; i++)
                raw_lane_expect_open(&p->l[i], true);
        for (uint32_t i = 0; i < 2; i++)
                next[i] = raw_lane_start(p->r[i], &p->l[i], &p->m[i], "next", 7);
        uint64_t number = raw_lane_expect_done(&p->l[0], next[0]);
        ck_assert_uint_eq(raw_lane_expect_done(&p->l[1], next[1]), number);
        ck_assert_uint_gt(number, numbers[1]);
        return number;
}

START_TEST(P9_what_was_held_while_the_road_opened_has_a_number_of_its_own) {
        struct hands p = { .h = host_start(NULL), .n_floats = 16 };
        uint64_t number = 0;
        hands_come(&p, 2, "train");
        open_road(&p, 2);
        for (uint64_t i = 0; i < HELD_TRIES; i++)
                number = meet_held(&p, 2 + i, number);
        for (uint32_t i = 0; i < 2; i++)
                go(&p, i);
        host_expect_counters_zero(p.h);
        host_stop(p.h);
}
END_TEST

/* It waits on the road for most of its time, and is handed over then: it has no more time than that. */
START_TEST(P6_a_start_that_is_handed_over_has_used_its_time) {
        struct hands p = { .h = host_start(NULL), .n_floats = 16 };
        const double limit = 1 * unit_scale();
        hands_come(&p, 2, "train");
        open_road(&p, 2);
        p.l[0].slot->timeout_ns = (uint64_t)(limit * 1e9);
        p.l[0].slot->has_timeout = 1;
        double begun = seconds_now();
        uint64_t waits = raw_lane_start(p.r[0], &p.l[0], &p.m[0], "never", 7);
        seconds_sleep(0.9 * limit);
        uint64_t other = start(&p, 1, "other"); /* closes the road */
        raw_lane_expect_passed(&p.l[0]);
        raw_expect(p.r[0], waits, STATUS_TIMEOUT);
        ck_assert_double_lt(seconds_now() - begun, 1.5 * limit);
        raw_expect(p.r[0], start(&p, 0, "other"), STATUS_OK);
        raw_expect(p.r[1], other, STATUS_OK);
        for (uint32_t i = 0; i < 2; i++)
                go(&p, i);
        host_expect_counters_zero(p.h);
        host_stop(p.h);
}
END_TEST

/* --- by calls --- */

#define N_STEPS 2000

/* The limit that the options of its membership give each call. */
static void wait_for_nobody(struct replica *me) {
        const struct tutti_options options = TUTTI_OPTIONS(.timeout = 1);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train", .options = &options));
        struct floats f;
        floats_init(me->t, &f, 100);
        for (int step = 0; step < N_STEPS; step++)
                expect_status(floats_sum(g, NULL, &f), TUTTI_OK);
        replica_say(me, "met");
        if (me->rank == 1)
                replica_hear(me, "never");
        double begun = seconds_now();
        const struct tutti_error_info *e = expect_error(floats_sum(g, NULL, &f));
        ck_assert_int_eq(e->status, TUTTI_TIMEOUT);
        ck_assert_double_lt(seconds_now() - begun, 10);
        replica_say(me, "timed out");
        replica_hear(me, "end");
}

START_TEST(P6_a_calls_own_limit_holds_on_the_lane) {
        struct host *h = host_start(NULL);
        struct host_counters c;
        struct replica *r[2];
        replicas_spawn(h, 2, wait_for_nobody, NULL, r);
        replicas_expect(r, 2, "met", 60);
        host_counters(h, &c);
        ck_assert_uint_gt(c.n_on_lane, 0);
        replica_expect(r[0], "timed out", 30);
        replica_kill9(r[1]);
        replica_tell(r[0], "end");
        ck_assert_int_eq(replica_end(r[0], 10), 0);
        host_stop(h);
}
END_TEST

/* Rank 0 weighs 1 in the one group and 3 in the other; rank 1 weighs 1 in both. */
static struct tutti_group *join_weighing(struct replica *me, const char *group, double weight) {
        const struct tutti_options options = TUTTI_OPTIONS(.has_weight = 1, .weight = weight);
        if (me->rank == 1)
                seconds_sleep(0.2); /* rank 0 has the lower number, the first time */
        return replica_join_group(me, &TUTTI_JOIN(.group = group, .options = &options));
}

static void expect_mean(struct replica *me, struct tutti_group *g, struct floats *f, float mean) {
        floats_fill(f, me->rank == 0 ? 1.0f : 3.0f);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_MEAN, &f->value, &f->value), TUTTI_OK);
        ck_assert_float_eq(f->data[0], mean);
}

static void come_back_with_other_numbers(struct replica *me) {
        struct floats f;
        replica_open_again(me, 20);
        struct tutti_group *even = join_weighing(me, "even", 1);
        struct tutti_group *heavy = join_weighing(me, "heavy", me->rank == 0 ? 3 : 1);
        floats_init(me->t, &f, 100);
        for (int step = 0; step < 20; step++) {
                expect_mean(me, even, &f, 2);
                expect_mean(me, heavy, &f, 1.5f);
        }
        replica_say(me, "met");
        replica_hear(me, "again");
        for (int step = 0; step < 20; step++) {
                expect_mean(me, even, &f, 2);
                expect_mean(me, heavy, &f, 1.5f);
        }
        replica_say(me, "met again");
        replica_hear(me, "end");
}

/* Rank 1 is back first: rank 0 gets as number of the one group what that of the other was. */
START_TEST(P9_what_is_known_of_calls_is_of_one_connection) {
        struct host *h = host_start(NULL);
        struct replica *r[2];
        replicas_spawn(h, 2, come_back_with_other_numbers, NULL, r);
        replicas_expect(r, 2, "met", 30);
        host_kill9(h);
        host_start_again(h);
        replica_tell(r[1], "again");
        seconds_sleep(0.5);
        replica_tell(r[0], "again");
        replicas_expect(r, 2, "met again", 30);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

UNIT_MAIN("lane-members", 90, P21_a_bell_that_blocks_holds_up_nobody,
        P5_the_last_half_of_nothing_by_one_that_ends_counts, who_leaves_under_a_run_has_no_place_on_the_road,
        a_road_of_an_epoch_goes_with_it, P9_what_was_held_while_the_road_opened_has_a_number_of_its_own,
        P6_a_start_that_is_handed_over_has_used_its_time, P6_a_calls_own_limit_holds_on_the_lane,
        P9_what_is_known_of_calls_is_of_one_connection)
