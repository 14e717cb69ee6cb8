/* The tools of the integration tests themselves, on the smallest collective there is. */
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "program.h"
#include "replica.h"
#include "unit.h"

#define N 4

static void sum_of_ranks(struct replica *me) {
        struct tutti_buffer *b;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        ck_assert_int_eq(tutti_buffer_alloc(me->t, 8 * sizeof(float), &b), TUTTI_OK);
        struct tutti_value v = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { 8 });
        float *data = tutti_buffer_data(b);
        for (int i = 0; i < 8; i++)
                data[i] = (float)(me->rank + 1) * (float)(i + 1);
        ck_assert_msg(tutti_all_reduce(g, "x", TUTTI_SUM, &v, &v) == TUTTI_OK, "%s", tutti_error());
        for (int i = 0; i < 8; i++)
                ck_assert_float_eq(data[i], 10.0F * (float)(i + 1));
        tutti_buffer_free(b);
        tutti_group_free(g);
}

START_TEST(four_replicas_meet_and_nothing_is_left) {
        struct host_counters c;
        struct host *h = host_start(NULL);
        run_replicas(h, N, sum_of_ranks, NULL);
        host_expect_counters_zero(h);
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_collectives, 1);
        host_stop(h);
}
END_TEST

static void steps(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "steps"));
        replica_say(me, "joined");
        replica_hear(me, "go");
        ck_assert_int_eq(tutti_barrier(g, NULL), TUTTI_OK);
        replica_say(me, "met as %u of %u", tutti_rank(g), tutti_world_size(g));
        replica_hear(me, "end");
}

START_TEST(a_replica_goes_step_by_step) {
        struct host *h = host_start(NULL);
        struct replica *r[2];
        replicas_spawn(h, 2, steps, NULL, r);
        replica_expect(r[0], "joined", 5);
        replica_expect(r[1], "joined", 5);
        host_expect_sessions(h, 2);
        replica_tell(r[0], "go");
        replica_tell(r[1], "go");
        replica_expect(r[0], "met as 0 of 2", 5);
        replica_expect(r[1], "met as 1 of 2", 5);
        replica_tell(r[0], "end");
        ck_assert_int_eq(replica_end(r[0], 5), 0);
        replica_kill9(r[1]);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

START_TEST(tuttid_starts_again_after_kill) {
        struct host *h = host_start(NULL);
        pid_t first = host_pid(h);
        host_kill9(h);
        host_start_again(h);
        ck_assert_int_ne(host_pid(h), first);
        run_replicas(h, N, sum_of_ranks, NULL);
        host_stop(h);
}
END_TEST

START_TEST(a_program_is_run_to_its_end) {
        struct program p;
        program_run((const char *[]){ "/bin/sh", "-c", "echo out; echo err >&2; exit 3", NULL }, 5, &p);
        ck_assert_int_eq(p.code, 3);
        ck_assert_str_eq(p.out, "out\n");
        ck_assert_str_eq(p.err, "err\n");
        program_deinit(&p);
        program_run((const char *[]){ "/bin/sh", "-c", "kill -9 $$", NULL }, 5, &p);
        ck_assert_int_eq(p.code, 128 + SIGKILL);
        program_deinit(&p);
}
END_TEST

UNIT_MAIN("harness", 20, four_replicas_meet_and_nothing_is_left, a_replica_goes_step_by_step,
        tuttid_starts_again_after_kill, a_program_is_run_to_its_end)
