/* What the configuration and the environment say of the lane, and what comes of it. */
#include <stdlib.h>
#include <string.h>
#include "base/check.h"
#include "meeting.h"
#include "replica.h"
#include "unit.h"

#define N_STEPS 2000

static void step_by_step(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats f;
        floats_init(me->t, &f, 100);
        for (int step = 0; step < N_STEPS; step++)
                floats_meet(g, NULL, &f, (float)(me->rank + (uint32_t)step), (float)(2 * step + 1));
        replica_say(me, "done");
        replica_hear(me, "end");
}

static void yield_as_told(struct replica *me) {
        setenv("TUTTI_YIELD", me->arg, 1);
        step_by_step(me);
}

static uint64_t run_with(const char *const *args, const char *yield) {
        struct host *h = host_start(args);
        struct host_counters c;
        struct replica *r[2];
        replicas_spawn(h, 2, yield_as_told, (void *)(uintptr_t)yield, r);
        replicas_expect(r, 2, "done", 60);
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_collectives, N_STEPS);
        ck_assert_uint_eq(c.n_started, 2 * (N_STEPS - 2)); /* by packets, too */
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
        return c.n_on_lane;
}

START_TEST(without_the_lane_everything_goes_by_packets) {
        ck_assert_uint_eq(run_with((const char *[]){ "--set", "lane.enabled=no", NULL }, "200"), 0);
}
END_TEST

START_TEST(who_may_not_yield_sends_packets) {
        ck_assert_uint_eq(run_with(NULL, "0"), 0);
        ck_assert_uint_gt(run_with(NULL, "1000"), 0);
}
END_TEST

START_TEST(its_thread_may_do_without_help_and_without_patience) {
        static const char *const args[] = { "--set", "lane.assistants=0", "--set", "lane.linger=0", NULL };
        struct host *h = host_start(args);
        struct host_counters c;
        struct replica *r[2];
        replicas_spawn(h, 2, step_by_step, NULL, r);
        replicas_expect(r, 2, "done", 60);
        host_counters(h, &c);
        ck_assert_uint_gt(c.n_on_lane, 0);
        ck_assert_uint_eq(c.n_assisted, 0);
        ck_assert_uint_gt(c.n_rings, 0); /* it slept before the first one, at the least */
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

START_TEST(a_budget_that_is_none_is_refused) {
        static const char *const wrong[] = { "abc", "-1", "1001", "5us", "nan" };
        struct host *h = host_start(NULL);
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                struct tutti *t;
                setenv("TUTTI_YIELD", wrong[i], 1);
                const struct tutti_error_info *e = expect_error(tutti_open(host_socket(h), &t));
                ck_assert_int_eq(e->status, TUTTI_INVALID);
                ck_assert(strstr(tutti_error(), wrong[i]) && strstr(tutti_error(), "0 to 1000"));
        }
        unsetenv("TUTTI_YIELD");
        host_stop(h);
}
END_TEST

UNIT_MAIN("lane-settings", 60, without_the_lane_everything_goes_by_packets, who_may_not_yield_sends_packets,
        its_thread_may_do_without_help_and_without_patience, a_budget_that_is_none_is_refused)
