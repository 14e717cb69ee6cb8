/* Lanes of clients that lie, beside honest groups whose collectives run on the lane: their results stay
 * right, nobody waits for long, and nothing is left. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "meeting.h"
#include "raw-lane.h"
#include "replica.h"
#include "unit.h"

#define ATTACK_SECONDS 1.5
#define SLOWEST_STEP   0.1 /* scaled; a step takes some microseconds */

/* Steps until it is told to end; the slowest of them. */
static void be_honest(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "honest"));
        struct floats f, go_on;
        double slowest = 0, end = 0;
        floats_init(me->t, &f, 500);
        floats_init(me->t, &go_on, 1);
        for (int step = 0; end == 0; step++) {
                double begun = seconds_now();
                floats_meet(g, NULL, &f, (float)(me->rank + (uint32_t)step), 1.0f + 2.0f * (float)step);
                double took = seconds_now() - begun;
                if (step > 20 && took > slowest)
                        slowest = took;
                if (step % 50)
                        continue;
                *go_on.data = me->rank == 0 && access(me->arg, F_OK) == 0; /* rank 0 says for both */
                expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &go_on.value, &go_on.value), TUTTI_OK);
                end = *go_on.data;
        }
        replica_say(me, "%f", slowest);
        replica_hear(me, "end");
}

/* A group of two raw clients, both in this process, with halves that are kept and an open road. */
struct liars {
        struct host *h;
        struct raw *r[2];
        struct raw_lane l[2];
        struct raw_member m[2];
};

static void open_road(struct liars *p) {
        uint64_t sent[2];
        for (uint32_t i = 0; i < 2; i++)
                sent[i] = raw_submit_to_keep(p->r[i], &p->m[i], "first", 7);
        for (uint32_t i = 0; i < 2; i++)
                raw_expect(p->r[i], sent[i], STATUS_OK);
        for (uint32_t i = 0; i < 2; i++)
                sent[i] = raw_start(p->r[i], &p->m[i], "second", 7);
        for (uint32_t i = 0; i < 2; i++)
                raw_expect(p->r[i], sent[i], STATUS_OK);
}

static void liars_open(struct liars *p, struct host *h) {
        static uint32_t n_groups;
        uint64_t joining[2];
        char name[32];
        snprintf(name, sizeof(name), "liars-%u", n_groups++);
        p->h = h;
        for (uint32_t i = 0; i < 2; i++) {
                p->r[i] = raw_open_lane(host_socket(h), &p->l[i]);
                raw_buffer(p->r[i], 1, raw_memfd(4096), 4096);
                const struct request join = raw_join_request(name, i, 2);
                joining[i] = raw_send(p->r[i], &join);
        }
        for (uint32_t i = 0; i < 2; i++)
                p->m[i] = raw_joined(p->r[i], joining[i]);
        open_road(p);
}

static void liars_close(struct liars *p) {
        for (uint32_t i = 0; i < 2; i++) {
                raw_lane_close(&p->l[i]);
                raw_close(p->r[i]);
        }
}

/* --- the attacks: for a while each --- */

static uint64_t any(uint64_t *seed) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        return *seed >> 33;
}

/* Mostly what could be right, so that it gets far. */
static void write_nonsense(struct liars *p, uint32_t i, uint64_t *seed) {
        struct lane_slot *slot = p->l[i].slot;
        const uint64_t odd[] = { 0, 7, 1, UINT64_MAX, any(seed), p->m[i].membership, p->m[1 - i].membership };
        slot->request = any(seed) % 4 ? any(seed) % 8192 : odd[any(seed) % 7];
        slot->prepared = any(seed) % 4 ? 7 : odd[any(seed) % 7];
        slot->membership = any(seed) % 4 ? p->m[i].membership : odd[any(seed) % 7];
        slot->epoch = any(seed) % 4 ? p->m[i].epoch : odd[any(seed) % 7];
        slot->key_bytes = any(seed) % 4 ? 1 : odd[any(seed) % 7];
        slot->key[0] = any(seed) % 4 ? 'a' : any(seed);
        slot->start = any(seed) % 4 ? slot->start + 1 : odd[any(seed) % 7];
}

/* Until somebody has been ejected for it, then with new connections. */
static void attack_with_nonsense(struct host *h) {
        double until = seconds_now() + ATTACK_SECONDS * unit_scale();
        uint64_t seed = 1, n = 0;
        while (seconds_now() < until) {
                struct liars p;
                struct reply reply;
                liars_open(&p, h);
                bool is_alive = true;
                for (; is_alive && seconds_now() < until; n++) {
                        uint32_t i = any(&seed) % 2;
                        write_nonsense(&p, i, &seed);
                        if (any(&seed) % 2)
                                raw_lane_ring_bell(&p.l[i]);
                        if (any(&seed) % 16 == 0)
                                raw_lane_ring(p.r[i], p.l[i].slot->request ? p.l[i].slot->request : 1);
                        for (uint32_t k = 0; k < 2 && is_alive; k++)
                                while (is_alive && !raw_is_silent(p.r[k], 0))
                                        is_alive = raw_take(p.r[k], &reply) && reply.request != 0;
                }
                liars_close(&p);
        }
        ck_assert_uint_gt(n, 1000);
}

static void attack_with_holes(struct host *h) {
        double until = seconds_now() + ATTACK_SECONDS * unit_scale();
        struct liars p;
        liars_open(&p, h);
        for (uint64_t n = 0; seconds_now() < until; n++) {
                ck_assert_int_eq(
                        fallocate(p.l[0].slot_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
                p.l[1].slot->start++;
                if (n % 64 == 0)
                        raw_lane_ring_bell(&p.l[n % 2]);
                if (n % 256 == 0)
                        raw_settle(p.r[n / 256 % 2]);
        }
        liars_close(&p);
}

static void attack_with_bells(struct host *h) {
        double until = seconds_now() + ATTACK_SECONDS * unit_scale();
        struct liars p;
        liars_open(&p, h);
        while (seconds_now() < until)
                for (int i = 0; i < 1000; i++)
                        raw_lane_ring_bell(&p.l[i % 2]);
        liars_close(&p);
}

static void attack_beside_an_honest_group(void (*attack)(struct host *h)) {
        struct host *h = host_start(NULL);
        struct host_counters c;
        struct replica *r[2];
        char flag[128];
        snprintf(flag, sizeof(flag), "%s/over", host_directory(h));
        replicas_spawn(h, 2, be_honest, flag, r);
        seconds_sleep(0.1 * unit_scale());
        attack(h);
        int fd = open(flag, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        ck_assert_int_ge(fd, 0);
        close(fd);
        for (uint32_t i = 0; i < 2; i++) {
                double slowest = strtod(replica_listen(r[i], 20), NULL);
                printf("# the slowest step beside the attack took %.3f ms\n", slowest * 1e3);
                ck_assert_double_gt(slowest, 0);
                ck_assert_double_lt(slowest, SLOWEST_STEP * unit_scale());
        }
        unlink(flag);
        host_counters(h, &c);
        ck_assert_uint_gt(c.n_on_lane, 100);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}

/* Who starts the next one while the last still runs has two over the same memory: a race, and of its own
 * making. */
START_TEST(P17_a_lane_full_of_nonsense_harms_nobody_else) {
#ifdef __SANITIZE_THREAD__
        unit_skip("the liars' collectives race for their own memory, which ThreadSanitizer rightly tells");
#endif
        attack_beside_an_honest_group(attack_with_nonsense);
}
END_TEST

START_TEST(P21_a_lane_that_is_punched_delays_nobody_else) {
        attack_beside_an_honest_group(attack_with_holes);
}
END_TEST

START_TEST(P21_a_bell_that_is_rung_for_ever_delays_nobody_else) {
        attack_beside_an_honest_group(attack_with_bells);
}
END_TEST

UNIT_MAIN("lane-hostile", 60, P17_a_lane_full_of_nonsense_harms_nobody_else,
        P21_a_lane_that_is_punched_delays_nobody_else, P21_a_bell_that_is_rung_for_ever_delays_nobody_else)
