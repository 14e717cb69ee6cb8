/* Collectives into a result object are kept halves, and run on the lane (slots.h, conductor-lane.c,
 * lib/object.c): values, leases, who holds too much, who lies about what it gives back. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "objects.h"
#include "program.h"
#include "raw-lane.h"

/* --- plain calls --- */

#define N       1000
#define N_STEPS 3000

/* Each holds the latest while the next is made, and finds it as it was. Another object with three slots,
 * where what was released is not the eldest, and values of the replica's own come in between. */
static void step_by_step(struct replica *me) {
        struct floats f, own;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct tutti_object *o = object_make(g, "sums", N), *three = NULL;
        const uint32_t sum = me->n * (me->n - 1) / 2;
        const float ranks = (float)sum;
        uint32_t last = UINT32_MAX, held = UINT32_MAX;
        float last_value = 0, held_value = 0;
        expect_status(
                tutti_object_make(g,
                        &TUTTI_OBJECT(.name = "three", .n_bytes = N * sizeof(float), .n_slots = 3), &three),
                TUTTI_OK);
        floats_init(me->t, &f, N);
        floats_init(me->t, &own, 10);
        for (uint32_t step = 0; step < N_STEPS; step++) {
                const float all = ranks + (float)(me->n * step);
                floats_fill(&f, (float)(me->rank + step));
                if (step % 7 == 3) {
                        floats_meet(g, NULL, &own, (float)me->rank, ranks);
                } else if (step % 5 == 4) {
                        uint32_t slot = sum_into(g, NULL, &f, three);
                        expect_slot(three, slot, 0, N, all);
                        if (held != UINT32_MAX)
                                expect_slot(three, held, 0, N, held_value);
                        if (held == UINT32_MAX || step % 3 == 0) { /* this one stays, and the other goes */
                                if (held != UINT32_MAX)
                                        expect_status(tutti_object_release(three, held), TUTTI_OK);
                                held = slot;
                                held_value = all;
                        } else {
                                expect_status(tutti_object_release(three, slot), TUTTI_OK);
                        }
                } else {
                        uint32_t slot = sum_into(g, step % 2 ? "grads" : NULL, &f, o);
                        ck_assert_uint_ne(slot, last);
                        expect_slot(o, slot, 0, N, all);
                        if (last != UINT32_MAX) {
                                expect_slot(o, last, 0, N, last_value);
                                expect_status(tutti_object_release(o, last), TUTTI_OK);
                                expect_status(tutti_object_release(o, last), TUTTI_INVALID);
                        }
                        last = slot;
                        last_value = all;
                }
        }
        replica_say(me, "done");
        replica_hear(me, "end");
        tutti_object_free(o);
        tutti_object_free(three);
}

static void run_steps(uint32_t n) {
        board_init();
        struct host *h = host_start(NULL);
        struct host_counters c;
        struct replica *r[4];
        replicas_spawn(h, n, step_by_step, NULL, r);
        replicas_expect(r, n, "done", 60);
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_collectives, N_STEPS);
        ck_assert_uint_eq(c.n_started, n * (N_STEPS - 6)); /* of three halves, each seen and kept first */
        ck_assert_uint_gt(c.n_on_lane, 0);
        printf("# %llu of %d collectives ran on the lane, %llu starts were passed on\n",
                (unsigned long long)c.n_on_lane, N_STEPS, (unsigned long long)c.n_passed);
        replicas_tell(r, n, "end");
        replicas_end(h, r, n);
}

START_TEST(P14_what_is_held_stays_as_it_is_over_thousands_of_steps) {
        run_steps(2);
}
END_TEST

START_TEST(P14_and_with_more_replicas_than_cores) {
        run_steps(4);
}
END_TEST

/* By number and by name in turn, alone and in a batch. */
static void batch_by_batch(struct replica *me) {
        struct floats a, b;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct tutti_object *o = object_make(g, "batch", 1100);
        floats_init(me->t, &a, 100);
        floats_init(me->t, &b, 200);
        const struct tutti_value in_a = value_in(o, 0, 100), in_b = value_in(o, 3200, 200);
        const struct tutti_entry entries[] = {
                TUTTI_ENTRY(.input = &a.value, .output = &in_a),
                TUTTI_ENTRY(.input = &b.value, .output = &in_b),
        };
        for (uint32_t step = 0; step < 500; step++) {
                floats_fill(&a, (float)step);
                floats_fill(&b, (float)(step * me->rank));
                expect_status(tutti_batch_reduce(g, NULL, TUTTI_SUM, entries, 2), TUTTI_OK);
                uint32_t slot = tutti_last_result()->slot;
                ck_assert_uint_eq(slot, step % 2);
                expect_slot(o, slot, 0, 100, (float)(2 * step));
                expect_slot(o, slot, 100, 700, 0);
                expect_slot(o, slot, 800, 200, (float)step);
                expect_slot(o, slot, 1000, 100, 0);
                expect_status(tutti_object_release(o, slot), TUTTI_OK);
        }
}

START_TEST(D6_a_batch_moves_with_its_slot) {
        replicas_run(2, batch_by_batch);
}
END_TEST

/* R1 brings new memory each time, so its half is never one that was kept. */
static void move_about(struct replica *me) {
        struct floats f[4];
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct tutti_object *o = object_make(g, "sums", N);
        for (int i = 0; i < 4; i++)
                floats_init(me->t, &f[i], N);
        for (uint32_t step = 0; step < 200; step++) {
                struct floats *mine = &f[me->rank == 1 && step / 20 % 2 ? step * 7 / 3 % 4 : 0];
                floats_fill(mine, (float)(step + me->rank));
                uint32_t slot = sum_into(g, "grads", mine, o);
                ck_assert_uint_eq(slot, step % 2);
                expect_slot(o, slot, 0, N, (float)(2 * step + 1));
                expect_status(tutti_object_release(o, slot), TUTTI_OK);
        }
}

START_TEST(B1_kept_and_other_halves_meet_in_one_object) {
        replicas_run(2, move_about);
}
END_TEST

/* --- who does not collect --- */

static void expect_busy(struct tutti_group *g, struct floats *f, struct tutti_object *o) {
        const struct tutti_value output = value_in(o, 0, f->n);
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &f->value, &output), TUTTI_BUSY);
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_uint_eq(e->n_replicas, 1);
        ck_assert_uint_eq(e->replicas[0].rank, 1);
        ck_assert_uint_eq(e->replicas[0].pid, board->pids[1]);
        expect_in(e->text, "slot 0 is held by R1 for");
        expect_in(e->text, "slot 1 is held by R1 for");
}

static void meet_a_lot(struct tutti_group *g, struct floats *f, struct tutti_object *o, float each) {
        for (uint32_t i = 0; i < 200; i++) {
                floats_fill(f, each);
                uint32_t slot = sum_into(g, NULL, f, o);
                expect_slot(o, slot, 0, f->n, 2 * each);
                expect_status(tutti_object_release(o, slot), TUTTI_OK);
        }
}

/* R1 keeps two, then gives one back; then it keeps both and is killed. */
static void keep_results(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_SHRINK);
        struct tutti_object *o = object_make(g, "sums", N);
        floats_init(me->t, &f, N);
        for (uint32_t round = 0; round < 3; round++) {
                meet_a_lot(g, &f, o, 1);
                floats_fill(&f, 7);
                for (uint32_t i = 0; i < 2; i++) {
                        uint32_t slot = sum_into(g, NULL, &f, o);
                        if (me->rank != 1)
                                expect_status(tutti_object_release(o, slot), TUTTI_OK);
                }
                floats_fill(&f, 9);
                expect_busy(g, &f, o);
                expect_busy(g, &f, o);
                for (uint32_t slot = 0; slot < 2; slot++)
                        expect_slot(o, slot, 0, N, 14);
                if (round == 2)
                        break;
                if (me->rank == 1)
                        for (uint32_t slot = 0; slot <= round; slot++)
                                expect_status(tutti_object_release(o, slot), TUTTI_OK);
                /* What one of two slots is enough for. */
                for (uint32_t i = 0; round == 0 && i < 50; i++) {
                        floats_fill(&f, (float)i);
                        ck_assert_uint_eq(sum_into(g, NULL, &f, o), 0);
                        expect_slot(o, 1, 0, N, 14);
                        expect_slot(o, 0, 0, N, (float)(2 * i));
                        expect_status(tutti_object_release(o, 0), TUTTI_OK);
                }
                if (me->rank == 1 && round == 0)
                        expect_status(tutti_object_release(o, 1), TUTTI_OK);
        }
        replica_say(me, "busy");
        replica_hear(me, "go on");
        if (me->rank == 1)
                pause(); /* until it is killed */
        floats_fill(&f, 5);
        for (uint32_t i = 0; i < 200; i++) {
                uint32_t slot = sum_into(g, NULL, &f, o);
                expect_slot(o, slot, 0, N, 5);
                expect_status(tutti_object_release(o, slot), TUTTI_OK);
        }
}

START_TEST(A12_who_does_not_collect_is_named_and_its_death_frees_slots) {
        struct replica *r[2];
        struct host_counters c;
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, keep_results, NULL, r);
        replicas_expect(r, 2, "busy", 30);
        host_counters(h, &c);
        ck_assert_uint_gt(c.n_on_lane, 0);
        replicas_tell(r, 2, "go on");
        replica_kill9(r[1]);
        replicas_end(h, r, 1);
}
END_TEST

/* More objects than a lane has words: the last ones give back by packets. */
static void have_many(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct tutti_object *o[70];
        char name[16];
        floats_init(me->t, &f, 10);
        for (int round = 0; round < 2; round++) {
                for (uint32_t i = 0; i < 70; i++) {
                        snprintf(name, sizeof(name), "o%u", i);
                        o[i] = object_make(g, name, 10);
                }
                for (uint32_t step = 0; step < 280; step++) {
                        struct tutti_object *to = o[60 + step % 10];
                        floats_fill(&f, (float)step);
                        uint32_t slot = sum_into(g, NULL, &f, to);
                        expect_slot(to, slot, 0, 10, (float)(2 * step));
                        expect_status(tutti_object_release(to, slot), TUTTI_OK);
                }
                expect_status(tutti_barrier(g, NULL), TUTTI_OK);
                for (uint32_t i = 0; i < 70; i++)
                        tutti_object_free(o[i]);
                expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        }
}

START_TEST(P18_more_objects_than_words_are_right_as_well) {
        replicas_run(2, have_many);
}
END_TEST

/* Made anew and anew: what is kept of the old goes with it. */
static void make_anew(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        floats_init(me->t, &f, N);
        for (uint32_t round = 0; round < 40; round++) {
                struct tutti_object *o = object_make(g, "sums", N);
                for (uint32_t step = 0; step < 30; step++) {
                        floats_fill(&f, (float)(round + step));
                        uint32_t slot = sum_into(g, NULL, &f, o);
                        expect_slot(o, slot, 0, N, (float)(2 * (round + step)));
                        if (step < 29)
                                expect_status(tutti_object_release(o, slot), TUTTI_OK);
                }
                tutti_object_free(o);
        }
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        replica_say(me, "done");
        replica_hear(me, "end");
}

static uint64_t used_result_bytes(struct host *h) {
        struct host_counters c;
        host_counters(h, &c);
        for (uint32_t i = 0; i < c.n_quotas; i++)
                if (strcmp(c.quotas[i].name, "result-bytes") == 0)
                        return c.quotas[i].used;
        return 0;
}

START_TEST(P20_what_is_kept_goes_with_its_object) {
        struct replica *r[2];
        struct host_counters c;
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, make_anew, NULL, r);
        replicas_expect(r, 2, "done", 30);
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_prepared, 0);
        ck_assert_uint_gt(c.n_on_lane, 0);
        const double until = seconds_now() + 2 * unit_scale(); /* memory goes on a thread of its own */
        while (used_result_bytes(h) > 0)
                ck_assert_double_lt(seconds_now(), until);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

/* --- by hand --- */

struct hands {
        struct host *h;
        struct raw *r[2];
        struct raw_lane l[2];
        struct raw_member m[2];
        uint64_t result;
};

static void make(struct hands *p, uint32_t i, uint32_t word) {
        const struct request request = { .type = REQUEST_MAKE_RESULT,
                .make_result = { .membership = p->m[i].membership,
                        .has_key = true,
                        .key = raw_key("sums"),
                        .size_bytes = 64,
                        .word = word,
                        .device = "" } };
        p->result = raw_expect(p->r[i], raw_send(p->r[i], &request), STATUS_OK).result.result;
        int fd = fd_take(&p->r[i]->packet.fds[0]);
        close(fd);
}

static uint64_t submit_to_keep(struct hands *p, uint32_t i, const char *key) {
        struct entry e = raw_entry(1, 16);
        e.output = (struct place){ .result = p->result };
        struct request submit = raw_submit_request(&p->m[i], key, &e);
        submit.submit.prepare = 7;
        return raw_send(p->r[i], &submit);
}

static void turn(struct hands *p, uint32_t i, uint32_t word, uint64_t bits) {
        p->l[i].slot->given_back[word - 1] ^= bits;
}

static uint64_t release(struct hands *p, uint32_t i, uint32_t slot, bool detach) {
        return raw_send(p->r[i], &(struct request){ .type = REQUEST_RELEASE_RESULT,
                                         .release_result = { p->result, p->m[i].membership, slot, detach } });
}

/* The next slot is 0; both have kept halves under 7, and R1's word is word 64. */
static void hands_open(struct hands *p) {
        uint64_t joining[2], sent[2];
        *p = (struct hands){ .h = host_start(NULL) };
        for (uint32_t i = 0; i < 2; i++) {
                p->r[i] = raw_open_lane(host_socket(p->h), &p->l[i]);
                raw_buffer(p->r[i], 1, raw_memfd(4096), 4096);
                const struct request join = raw_join_request("train", i, 2);
                joining[i] = raw_send(p->r[i], &join);
        }
        for (uint32_t i = 0; i < 2; i++)
                p->m[i] = raw_joined(p->r[i], joining[i]);
        p->l[0].slot->given_back[0] = UINT64_MAX; /* of nobody yet */
        make(p, 0, 1);
        make(p, 1, 64);
        for (uint32_t step = 0; step < 2; step++) {
                for (uint32_t i = 0; i < 2; i++)
                        sent[i] = step ? raw_start(p->r[i], &p->m[i], "second", 7)
                                       : submit_to_keep(p, i, "first");
                for (uint32_t i = 0; i < 2; i++) {
                        const struct reply reply = raw_expect(p->r[i], sent[i], STATUS_OK);
                        ck_assert_uint_eq(reply.done.slot, step);
                        turn(p, i, i ? 64 : 1, 1u << step);
                }
        }
        for (uint32_t i = 0; i < 2; i++)
                raw_lane_expect_open(&p->l[i], true);
}

static void hands_close(struct hands *p) {
        for (uint32_t i = 0; i < 2; i++) {
                raw_lane_close(&p->l[i]);
                raw_close(p->r[i]);
        }
        host_expect_counters_zero(p->h);
        host_stop(p->h);
}

/* Runs without a packet into this slot. */
static void run(struct hands *p, uint32_t slot) {
        uint64_t sent[2];
        for (uint32_t i = 0; i < 2; i++)
                sent[i] = raw_lane_start(p->r[i], &p->l[i], &p->m[i], "a", 7);
        for (uint32_t i = 0; i < 2; i++) {
                raw_lane_expect_done(&p->l[i], sent[i]);
                ck_assert_uint_eq(p->l[i].board->slot, slot);
        }
}

/* The same by packets. */
static void start_by_packet(struct hands *p, uint32_t slot) {
        uint64_t sent[2];
        for (uint32_t i = 0; i < 2; i++)
                sent[i] = raw_start(p->r[i], &p->m[i], "a", 7);
        for (uint32_t i = 0; i < 2; i++)
                ck_assert_uint_eq(raw_expect(p->r[i], sent[i], STATUS_OK).done.slot, slot);
}

/* BUSY, handed over from the lane; `text` says who holds. */
static void expect_no_slot(struct hands *p, const char *text) {
        uint64_t sent[2];
        for (uint32_t i = 0; i < 2; i++)
                sent[i] = raw_lane_start(p->r[i], &p->l[i], &p->m[i], "a", 7);
        for (uint32_t i = 0; i < 2; i++)
                expect_in(raw_expect(p->r[i], sent[i], STATUS_BUSY).error->detail, text);
}

static void expect_on_lane(struct hands *p, uint64_t n_on_lane) {
        struct host_counters c;
        host_counters(p->h, &c);
        ck_assert_uint_eq(c.n_on_lane, n_on_lane);
}

START_TEST(a_bit_that_is_turned_gives_a_slot_back) {
        struct hands p;
        hands_open(&p);
        for (uint32_t step = 0; step < 300; step++) {
                run(&p, step % 2);
                turn(&p, 0, 1, 1u << step % 2);
                turn(&p, 1, 64, 1u << step % 2);
        }
        for (uint32_t i = 0; i < 2; i++)
                ck_assert(raw_is_silent(p.r[i], 0));
        expect_on_lane(&p, 300);
        hands_close(&p);
}
END_TEST

START_TEST(A12_a_start_that_finds_no_slot_is_busy_and_the_lane_goes_on) {
        struct hands p;
        hands_open(&p);
        run(&p, 0);
        run(&p, 1);
        turn(&p, 0, 1, 3);
        expect_no_slot(&p, "slot 0 is held by R1 for");
        turn(&p, 1, 64, 2);
        for (uint32_t i = 0; i < 2; i++)
                raw_lane_expect_open(&p.l[i], true);
        run(&p, 1);
        raw_expect(p.r[1], release(&p, 1, 0, false), STATUS_OK); /* by packet is as good */
        raw_expect(p.r[1], release(&p, 1, 0, false), STATUS_INVALID);
        turn(&p, 0, 1, 2);
        start_by_packet(&p, 0);
        turn(&p, 1, 64, 2);
        raw_expect(p.r[1], release(&p, 1, 1, false), STATUS_INVALID); /* it was heard */
        expect_on_lane(&p, 3);
        hands_close(&p);
}
END_TEST

/* All bits of all words, also of slots that are not there, and of those that others hold. */
START_TEST(P17_who_claims_more_gives_back_its_own_alone) {
        struct hands p;
        hands_open(&p);
        run(&p, 0);
        run(&p, 1);
        for (uint32_t word = 1; word <= 64; word++)
                turn(&p, 1, word, UINT64_MAX);
        expect_no_slot(&p, "slot 0 is held by R0 for");
        turn(&p, 0, 1, 1); /* twice: as if never */
        turn(&p, 0, 1, 1);
        expect_no_slot(&p, "slot 1 is held by R0 for");
        turn(&p, 0, 1, 3);
        for (uint32_t i = 0; i < 2; i++)
                raw_lane_expect_open(&p.l[i], true);
        run(&p, 0);
        expect_on_lane(&p, 3);
        hands_close(&p);
}
END_TEST

START_TEST(P17_a_word_that_is_none_is_refused) {
        struct hands p;
        hands_open(&p);
        const struct request request = { .type = REQUEST_MAKE_RESULT,
                .make_result = { .membership = p.m[0].membership,
                        .has_key = true,
                        .key = raw_key("other"),
                        .size_bytes = 64,
                        .word = 65,
                        .device = "" } };
        const struct reply reply = raw_expect(p.r[0], raw_send(p.r[0], &request), STATUS_LIMIT);
        ck_assert_uint_eq(reply.error->limit, 64);
        hands_close(&p);
}
END_TEST

START_TEST(who_has_detached_starts_nothing_into_it) {
        struct hands p;
        hands_open(&p);
        run(&p, 0);
        raw_expect(p.r[1], release(&p, 1, 0, true), STATUS_OK);
        uint64_t sent[2];
        for (uint32_t i = 0; i < 2; i++) {
                sent[i] = raw_lane_start(p.r[i], &p.l[i], &p.m[i], "a", 7);
                raw_lane_ring(p.r[i], sent[i]);
                if (i == 0)
                        raw_settle(p.r[i]);
        }
        raw_expect(p.r[1], sent[1], STATUS_NOT_FOUND);
        raw_expect(p.r[0], sent[0], STATUS_PEER_REFUSED);
        make(&p, 1, 64);
        sent[0] = raw_start(p.r[0], &p.m[0], "b", 7);
        sent[1] = submit_to_keep(&p, 1, "b");
        for (uint32_t i = 0; i < 2; i++)
                ck_assert_uint_eq(raw_expect(p.r[i], sent[i], STATUS_OK).done.slot, 1);
        hands_close(&p);
}
END_TEST

/* R1 detaches and attaches again while what it has started runs, with whatever words. */
START_TEST(P17_who_comes_and_goes_under_a_run_harms_nobody) {
        struct hands p;
        struct reply reply;
        hands_open(&p);
        uint32_t n_ok = 0;
        for (uint32_t step = 0; step < 400; step++) {
                uint64_t sent[2], last;
                for (uint32_t i = 0; i < 2; i++)
                        sent[i] = step % 3 ? raw_lane_write(p.r[i], &p.l[i], &p.m[i], "a", 7)
                                           : raw_start(p.r[i], &p.m[i], "a", 7);
                for (uint32_t i = 0; i < 2 && step % 3; i++) {
                        raw_lane_ring_bell(&p.l[i]);
                        if (step % 3 == 2)
                                raw_lane_ring(p.r[i], sent[i]);
                }
                release(&p, 1, 0, true);
                make(&p, 1, step % 64 + 1);
                last = submit_to_keep(&p, 1, "b");
                const enum status ended = raw_await(p.r[0], raw_start(p.r[0], &p.m[0], "b", 7)).status;
                do
                        ck_assert(raw_take(p.r[1], &reply));
                while (reply.request != last || reply.more);
                ck_assert_int_eq(reply.status, ended);
                /* nobody waits for "a": the last step's may have ended after its slots were given back */
                ck_assert_msg(
                        ended == STATUS_OK || ended == STATUS_BUSY, "b ended with %s", status_name(ended));
                n_ok += ended == STATUS_OK;
                p.l[0].slot->given_back[0] ^= 3; /* whatever it holds */
                p.l[1].slot->given_back[step % 64] ^= step % 4;
                for (uint32_t slot = 0; slot < 2; slot++)
                        for (uint32_t i = 0; i < 2; i++)
                                (void)raw_await(p.r[i], release(&p, i, slot, false));
        }
        ck_assert_uint_gt(n_ok, 200);
        struct raw *other = raw_open(host_socket(p.h));
        struct raw_member m = raw_join(other, "other", 0, 1);
        raw_expect(other, raw_barrier(other, &m, "b"), STATUS_OK);
        raw_close(other);
        hands_close(&p);
}
END_TEST

/* What was started before a packet ends before that is handled, and its group does not go back to the lane in
 * between. */
START_TEST(P3_what_ends_before_a_packet_leaves_the_lane_closed_for_it) {
        struct hands p;
        hands_open(&p);
        run(&p, 0);
        run(&p, 1);
        usleep(20000); /* nobody watches any more, and nobody rings */
        uint64_t sent[2];
        for (uint32_t i = 0; i < 2; i++)
                sent[i] = raw_lane_write(p.r[i], &p.l[i], &p.m[i], "a", 7);
        uint64_t detached = release(&p, 1, 0, true);
        for (uint32_t i = 0; i < 2; i++)
                raw_expect(p.r[i], sent[i], STATUS_BUSY);
        raw_expect(p.r[1], detached, STATUS_OK);
        hands_close(&p);
}
END_TEST

/* Who looks sees what is held while the lane is open, and disturbs nobody. */
START_TEST(A12_who_holds_is_told_while_the_lane_is_open) {
        struct hands p;
        hands_open(&p);
        run(&p, 0);
        turn(&p, 0, 1, 1);
        struct raw *other = raw_open(host_socket(p.h));
        for (uint32_t held = 1; held <= 1; held--) {
                const struct reply reply =
                        raw_expect(other, raw_query(other, WHAT_STATUS, "test", "train"), STATUS_OK);
                uint32_t n_seen = 0;
                for (uint32_t i = 0; i < reply.rows.n_rows; i++) {
                        const struct row_result *row = &reply.rows.rows[i].result;
                        if (reply.rows.rows[i].type != ROW_RESULT)
                                continue;
                        ck_assert_uint_eq(row->n_free, 2 - held);
                        ck_assert_uint_eq(row->n_holders, held);
                        if (held) {
                                ck_assert_uint_eq(row->holders[0].rank, 1);
                                ck_assert_uint_lt(row->holders[0].oldest_age_ns, UINT64_C(60000000000));
                        }
                        n_seen++;
                }
                ck_assert_uint_eq(n_seen, 1);
                turn(&p, 1, 64, 1);
        }
        raw_close(other);
        ck_assert(p.l[0].board->is_open);
        run(&p, 1);
        expect_on_lane(&p, 2);
        hands_close(&p);
}
END_TEST

UNIT_MAIN("lane-results", 90, P14_what_is_held_stays_as_it_is_over_thousands_of_steps,
        P14_and_with_more_replicas_than_cores, D6_a_batch_moves_with_its_slot,
        B1_kept_and_other_halves_meet_in_one_object,
        A12_who_does_not_collect_is_named_and_its_death_frees_slots,
        P18_more_objects_than_words_are_right_as_well, P20_what_is_kept_goes_with_its_object,
        a_bit_that_is_turned_gives_a_slot_back, A12_a_start_that_finds_no_slot_is_busy_and_the_lane_goes_on,
        P17_who_claims_more_gives_back_its_own_alone, P17_a_word_that_is_none_is_refused,
        who_has_detached_starts_nothing_into_it, P17_who_comes_and_goes_under_a_run_harms_nobody,
        P3_what_ends_before_a_packet_leaves_the_lane_closed_for_it,
        A12_who_holds_is_told_while_the_lane_is_open)
