/* What moves no byte meets on the lane as well: barriers, and reductions of nothing. */
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include "meeting.h"
#include "replica.h"
#include "unit.h"

#define N_STEPS 2000

/* Each writes where it is before it waits for all. */
struct passed {
        _Atomic uint32_t step[4];
};

static void step_over_barriers(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct passed *passed = me->arg;
        for (uint32_t step = 1; step <= N_STEPS; step++) {
                atomic_store_explicit(&passed->step[me->rank], step, memory_order_relaxed);
                expect_status(tutti_barrier(g, step % 2 ? "step" : NULL), TUTTI_OK);
                for (uint32_t rank = 0; rank < me->n; rank++) {
                        uint32_t there = atomic_load_explicit(&passed->step[rank], memory_order_relaxed);
                        ck_assert(there == step || there == step + 1);
                }
                const struct tutti_result *result = tutti_last_result();
                ck_assert_uint_eq(result->collective, step);
                expect_ranks(&result->contributors, (1u << me->n) - 1);
        }
        replica_say(me, "done");
        replica_hear(me, "end");
}

static void run_barriers(uint32_t n) {
        struct host *h = host_start(NULL);
        struct host_counters c;
        struct replica *r[4];
        struct passed *passed =
                mmap(NULL, sizeof(*passed), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ck_assert(passed != MAP_FAILED);
        replicas_spawn(h, n, step_over_barriers, passed, r);
        replicas_expect(r, n, "done", 60);
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_collectives, N_STEPS);
        ck_assert_uint_eq(c.n_started, n * (N_STEPS - 2)); /* one half, seen and kept first */
        ck_assert_uint_gt(c.n_on_lane, 0);
        printf("# %llu of %d barriers were met on the lane\n", (unsigned long long)c.n_on_lane, N_STEPS);
        replicas_tell(r, n, "end");
        replicas_end(h, r, n);
        munmap(passed, sizeof(*passed));
}

START_TEST(barriers_meet_on_the_lane_and_nobody_passes_before_all_are_there) {
        run_barriers(2);
        run_barriers(4);
}
END_TEST

/* Where nobody moves a byte, the rules are the same: a death ends it, and what it was waiting for is named.
 */
static void wait_for_the_dead(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        for (int step = 0; step < N_STEPS; step++)
                expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        replica_say(me, "met");
        if (me->rank == 1)
                replica_hear(me, "never");
        const struct tutti_error_info *e = expect_error(tutti_barrier(g, NULL));
        ck_assert_int_eq(e->status, TUTTI_REPLICA_LOST);
        ck_assert_int_eq(e->rank, 1);
}

START_TEST(C1_a_death_before_a_barrier_of_the_lane_ends_it_for_the_others) {
        struct host *h = host_start(NULL);
        struct host_counters c;
        struct replica *r[2];
        replicas_spawn(h, 2, wait_for_the_dead, NULL, r);
        replicas_expect(r, 2, "met", 30);
        host_counters(h, &c);
        ck_assert_uint_gt(c.n_on_lane, 0);
        replica_kill9(r[1]);
        ck_assert_int_eq(replica_end(r[0], 10), 0);
        host_stop(h);
}
END_TEST

static void reduce_nothing(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats f;
        floats_init(me->t, &f, 4);
        for (uint32_t step = 1; step <= N_STEPS; step++) {
                const struct tutti_value none =
                        TUTTI_VALUE(.buffer = f.buffer, .dtype = TUTTI_F32, .n_dims = 2, .shape = { 3, 0 });
                expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &none, &none), TUTTI_OK);
                ck_assert_uint_eq(tutti_last_result()->collective, step);
        }
        replica_say(me, "done");
        replica_hear(me, "end");
}

START_TEST(a_reduction_of_nothing_is_a_meeting_on_the_lane_too) {
        struct host *h = host_start(NULL);
        struct host_counters c;
        struct replica *r[2];
        replicas_spawn(h, 2, reduce_nothing, NULL, r);
        replicas_expect(r, 2, "done", 30);
        host_counters(h, &c);
        ck_assert_uint_gt(c.n_on_lane, 0);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

UNIT_MAIN("lane-barriers", 60, barriers_meet_on_the_lane_and_nobody_passes_before_all_are_there,
        C1_a_death_before_a_barrier_of_the_lane_ends_it_for_the_others,
        a_reduction_of_nothing_is_a_meeting_on_the_lane_too)
