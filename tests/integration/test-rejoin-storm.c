/* Groups that fail to form, and replicas that die at any time while others take their places (K3, P5). */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "meeting.h"
#include "raw.h"

/* --- K3 --- */

static uint64_t ask_to_join(struct raw *r, uint32_t rank, uint64_t timeout_ns) {
        struct request join = raw_join_request("k3", rank, 3);
        join.join.join_timeout_ns = timeout_ns;
        return raw_send(r, &join);
}

static void join_in_vain(struct raw *const *r, uint32_t n) {
        uint64_t joins[3];
        for (uint32_t i = 0; i < n; i++)
                joins[i] = ask_to_join(r[i], i, NS_PER_MS);
        for (uint32_t i = 0; i < n; i++)
                raw_expect(r[i], joins[i], STATUS_TIMEOUT);
}

static void expect_meeting(struct raw *const *r, const struct raw_member *m) {
        uint64_t barriers[3];
        for (uint32_t i = 0; i < 3; i++)
                barriers[i] = raw_barrier(r[i], &m[i], "all");
        for (uint32_t i = 0; i < 3; i++)
                raw_expect(r[i], barriers[i], STATUS_OK);
}

static void form(struct raw *const *r, struct raw_member *ret) {
        uint64_t joins[3];
        for (uint32_t i = 0; i < 3; i++)
                joins[i] = ask_to_join(r[i], i, 0);
        for (uint32_t i = 0; i < 3; i++)
                ret[i] = raw_joined(r[i], joins[i]);
}

START_TEST(K3_a_hundred_groups_fail_to_form_and_to_be_formed_anew) {
        struct host *h = host_start(NULL);
        struct raw *r[3], *newcomer;
        struct raw_member m[3];
        for (int i = 0; i < 3; i++)
                r[i] = raw_open(host_socket(h));
        for (int i = 0; i < 100; i++)
                join_in_vain(r, 2);
        form(r, m);
        expect_meeting(r, m);
        raw_close(r[2]);
        host_expect_sessions(h, 2);
        newcomer = raw_open(host_socket(h));
        for (int i = 0; i < 100; i++) {
                raw_expect(newcomer, ask_to_join(newcomer, 2, NS_PER_MS), STATUS_TIMEOUT);
                const struct request rejoin = { .type = i % 2 ? REQUEST_SHRINK : REQUEST_REJOIN,
                        .reform = { m[0].membership, NS_PER_MS } };
                raw_expect(r[0], raw_send(r[0], &rejoin), STATUS_TIMEOUT);
        }
        uint64_t join = ask_to_join(newcomer, 2, 0), rejoins[2];
        for (int i = 0; i < 2; i++) {
                const struct request rejoin = { .type = REQUEST_REJOIN, .reform = { m[i].membership, 0 } };
                rejoins[i] = raw_send(r[i], &rejoin);
        }
        for (int i = 0; i < 2; i++)
                m[i] = raw_joined(r[i], rejoins[i]);
        r[2] = newcomer;
        m[2] = raw_joined(newcomer, join);
        ck_assert_uint_eq(m[2].epoch, 2);
        expect_meeting(r, m);
        for (int i = 0; i < 3; i++)
                raw_close(r[i]);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- deaths at any time --- */

#define WORLD 3

/* Shared with the replicas. */
static struct storm {
        atomic_uint n_met[WORLD]; /* collectives of all, as each rank has seen them */
        atomic_bool is_over;
} * storm;

/* Whoever was there before may be thought alive for a moment, and others that join may die. */
static struct tutti_group *come_in(struct replica *me) {
        struct tutti_group *g;
        for (;;) {
                enum tutti_status status = tutti_join(me->t,
                        &TUTTI_JOIN(.group = "storm", .job = "test", .rank = (int32_t)me->rank,
                                .world_size = WORLD, .join_timeout = 1),
                        &g);
                if (status == TUTTI_OK)
                        return g;
                if (status != TUTTI_BUSY && status != TUTTI_TIMEOUT)
                        expect_status(status, TUTTI_REPLICA_LOST);
                if (atomic_load(&storm->is_over))
                        return NULL;
                seconds_sleep(0.002);
        }
}

/* false: there is nobody left to wait for. */
static bool begin_anew(struct tutti_group *g) {
        enum tutti_status status;
        while ((status = tutti_rejoin(g, 0.5)) == TUTTI_TIMEOUT)
                if (atomic_load(&storm->is_over))
                        return false;
        expect_status(status, TUTTI_OK);
        return true;
}

static void weather(struct replica *me) {
        struct floats f;
        struct tutti_group *g;
        floats_init(replica_open(me), &f, 1000);
        g = come_in(me);
        while (g && !atomic_load(&storm->is_over)) {
                floats_fill(&f, (float)me->rank + 1);
                enum tutti_status status = floats_sum(g, NULL, &f);
                if (status == TUTTI_OK && tutti_last_result()->n_contributors == WORLD) {
                        floats_expect(&f, 6);
                        atomic_fetch_add(&storm->n_met[me->rank], 1);
                } else if (status != TUTTI_OK) {
                        expect_status(status, TUTTI_REPLICA_LOST);
                        floats_expect(&f, (float)me->rank + 1);
                        if (!begin_anew(g))
                                return;
                }
        }
}

static void expect_progress(void) {
        double limit = seconds_now() + 20 * unit_scale();
        for (int rank = 0; rank < WORLD; rank++) {
                unsigned int before = atomic_load(&storm->n_met[rank]);
                while (atomic_load(&storm->n_met[rank]) < before + 10) {
                        ck_assert_msg(seconds_now() < limit, "R%d stands still", rank);
                        seconds_sleep(0.001);
                }
        }
}

static struct replica *send_in(struct host *h, uint32_t rank) {
        return replica_spawn(h, &(struct replica_options){ .rank = rank, .n = WORLD, .body = weather });
}

static void kill_some(struct host *h, struct replica **r, unsigned int *seed) {
        int n = 1 + rand_r(seed) % 4;
        for (int i = 0; i < n; i++) {
                uint32_t rank = (uint32_t)rand_r(seed) % WORLD;
                seconds_sleep(rand_r(seed) % 8 * 0.001);
                replica_kill9(r[rank]);
                r[rank] = send_in(h, rank);
        }
}

START_TEST(P5_whoever_dies_whenever_the_others_meet_again_with_who_comes) {
        struct replica *r[WORLD];
        unsigned int seed = 7;
        storm = memory_shared(sizeof(*storm));
        struct host *h = host_start(NULL);
        for (uint32_t rank = 0; rank < WORLD; rank++)
                r[rank] = send_in(h, rank);
        for (int i = 0; i < 25; i++) {
                expect_progress();
                kill_some(h, r, &seed);
        }
        expect_progress();
        atomic_store(&storm->is_over, true);
        replicas_end(h, r, WORLD);
}
END_TEST

/* --- much that is pending --- */

#define N_PENDING 3000

static uint64_t ask_to_rejoin(struct raw *r, const struct raw_member *m) {
        return raw_send(
                r, &(struct request){ .type = REQUEST_REJOIN, .reform = { .membership = m->membership } });
}

struct much {
        struct host *h;
        struct raw *r[2];
        struct raw_member m[2];
        uint64_t asked[2];
};

/* More is pending than is told in a turn when both ask for the next epoch. */
static void leave_much_pending(struct much *p) {
        p->h = host_start(NULL);
        for (uint32_t i = 0; i < 2; i++) {
                const struct request join = raw_join_request("much", i, 2);
                p->r[i] = raw_open(host_socket(p->h));
                p->asked[i] = raw_send(p->r[i], &join);
        }
        for (uint32_t i = 0; i < 2; i++)
                p->m[i] = raw_joined(p->r[i], p->asked[i]);
        for (uint32_t i = 0; i < N_PENDING; i++) {
                char key[16];
                snprintf(key, sizeof(key), "%u", i);
                raw_barrier(p->r[0], &p->m[0], key);
        }
        p->asked[0] = ask_to_rejoin(p->r[0], &p->m[0]);
        raw_settle(p->r[0]); /* which has been heard before the other */
        p->asked[1] = ask_to_rejoin(p->r[1], &p->m[1]);
}

/* What the first hears: all that has ended, and then of the epoch. */
static struct reply hear_of_the_epoch(struct much *p) {
        struct reply reply;
        uint32_t n = 0;
        while (raw_take(p->r[0], &reply) && reply.request != p->asked[0]) {
                ck_assert_int_eq(reply.status, STATUS_REPLICA_LOST);
                n++;
        }
        ck_assert_uint_eq(n, N_PENDING);
        ck_assert_int_eq(reply.status, STATUS_OK);
        ck_assert_uint_eq(reply.joined.epoch, p->m[0].epoch + 1);
        return reply;
}

/* Nobody hears of the new epoch while it may take what is left for its own. */
START_TEST(P5_what_ends_with_an_epoch_is_told_before_the_next_one) {
        struct much p;
        leave_much_pending(&p);
        hear_of_the_epoch(&p);
        ck_assert_uint_eq(raw_joined(p.r[1], p.asked[1]).epoch, p.m[1].epoch + 1);
        for (uint32_t i = 0; i < 2; i++)
                raw_close(p.r[i]);
        host_expect_counters_zero(p.h);
        host_stop(p.h);
}
END_TEST

/* Who has gone before that is told was of the epoch all the same: it is not one of fewer. */
START_TEST(P5_the_members_of_an_epoch_are_those_with_whom_it_began) {
        struct much p;
        leave_much_pending(&p);
        raw_send(p.r[1], &(struct request){ .type = REQUEST_LEAVE, .membership = p.m[1].membership });
        const struct reply reply = hear_of_the_epoch(&p);
        ck_assert(rankset_has(&reply.joined.members, 0) && rankset_has(&reply.joined.members, 1));
        raw_close(p.r[1]);
        raw_close(p.r[0]);
        host_expect_counters_zero(p.h);
        host_stop(p.h);
}
END_TEST

UNIT_MAIN("rejoin-storm", 60, K3_a_hundred_groups_fail_to_form_and_to_be_formed_anew,
        P5_whoever_dies_whenever_the_others_meet_again_with_who_comes,
        P5_what_ends_with_an_epoch_is_told_before_the_next_one,
        P5_the_members_of_an_epoch_are_those_with_whom_it_began)
