/* Packets and deaths cross what the lane runs (conductor-lane.c). */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include <tutti/admin.h>
#include "meeting.h"
#include "replica.h"
#include "unit.h"

#define ROUNDS     60
#define N_ELEMENTS 100000 /* long enough that often one is under way, small enough for the lane */
#define WARM_STEPS 40

/* Since tuttid began. */
static uint64_t n_on_lane(struct replica *me) {
        struct tutti_answer *answer;
        uint64_t n = 0;
        expect_status(tutti_admin_ask(me->t, TUTTI_ADMIN_STATUS, NULL, NULL, &answer), TUTTI_OK);
        for (uint32_t i = 0; i < answer->n_rows; i++)
                if (answer->rows[i].type == TUTTI_ROW_DAEMON)
                        n = answer->rows[i].daemon.n_on_lane;
        tutti_answer_free(answer);
        return n;
}

static void reduce_until_the_end(struct replica *me) {
        char name[32];
        struct floats f;
        enum tutti_status status = TUTTI_OK;
        snprintf(name, sizeof(name), "round-%d", *(int *)me->arg);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = name));
        floats_init(me->t, &f, N_ELEMENTS);
        for (uint32_t step = 0; status == TUTTI_OK; step++) {
                if (step == WARM_STEPS)
                        replica_say(me, "warm");
                status = floats_sum(g, NULL, &f);
        }
        expect_status(status, TUTTI_REPLICA_LOST);
        replica_say(me, "%llu", (unsigned long long)n_on_lane(me));
        replica_hear(me, "end");
}

/* Earlier runs of the same set wait to be taken when the road is closed under one that goes on: it may
 * neither be taken for over nor lose what it works with. */
START_TEST(P5_P16_who_dies_under_a_run_harms_nobody_else) {
        struct host *h = host_start(NULL);
        unsigned long long n_ran = 0;
        for (int round = 0; round < ROUNDS; round++) {
                struct replica *r[2];
                replicas_spawn(h, 2, reduce_until_the_end, &round, r);
                replicas_expect(r, 2, "warm", 20);
                usleep((useconds_t)(round * 37 % 1000));
                replica_kill9(r[round % 2]);
                ck_assert_int_eq(sscanf(replica_listen(r[1 - round % 2], 10), "%llu", &n_ran), 1);
                replica_tell(r[1 - round % 2], "end");
                ck_assert_int_eq(replica_end(r[1 - round % 2], 10), 0);
        }
        printf("# %llu collectives ran on the lane\n", n_ran);
        ck_assert_uint_gt(n_ran, 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- another thread of each member --- */

#define N_CROSSINGS 600
#define N_STEPS     6000
#define N_ASKERS    4

static void *cross(void *group) {
        for (uint32_t i = 0; i < N_CROSSINGS; i++) {
                enum tutti_status status = tutti_barrier(group, "crossing");
                ck_assert_int_eq(status, TUTTI_OK);
                usleep(1000 + i * 37 % 300); /* in which several of the others run on the lane */
        }
        return NULL;
}

static void reduce_and_cross(struct replica *me) {
        pthread_t thread;
        struct floats f;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &f, N_ELEMENTS);
        ck_assert_int_eq(pthread_create(&thread, NULL, cross, g), 0);
        for (uint32_t step = 0; step < N_STEPS; step++)
                floats_meet(g, "grads", &f, (float)(step + me->rank), 2.0f * (float)step + 1);
        pthread_join(thread, NULL);
        replica_say(me, "%llu", (unsigned long long)n_on_lane(me));
        replica_hear(me, "end");
}

/* Makes turns of the loop long, so that in one of them a run ends and the next one begins. */
static void ask_all_the_time(struct replica *me) {
        struct tutti_answer *answer;
        enum tutti_status status;
        (void)replica_open(me);
        while ((status = tutti_admin_ask(me->t, TUTTI_ADMIN_DUMP, "test", "train", &answer)) == TUTTI_OK ||
                status == TUTTI_NOT_FOUND)
                if (status == TUTTI_OK)
                        tutti_answer_free(answer);
}

/* Each barrier closes the road under what runs, and opens it again when nothing runs any more: a run under
 * way is not over because an earlier one of its set, which has waited to be taken, is. */
START_TEST(P2_others_meet_while_a_run_is_under_way) {
        struct host *h = host_start(NULL);
        struct replica *r[2], *askers[N_ASKERS];
        unsigned long long n_ran = 0;
        replicas_spawn(h, N_ASKERS, ask_all_the_time, NULL, askers);
        replicas_spawn(h, 2, reduce_and_cross, NULL, r);
        for (uint32_t i = 0; i < 2; i++)
                ck_assert_int_eq(sscanf(replica_listen(r[i], 50), "%llu", &n_ran), 1);
        printf("# %llu collectives ran on the lane\n", n_ran);
        for (uint32_t i = 0; i < N_ASKERS; i++)
                replica_kill9(askers[i]);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

UNIT_MAIN("lane-crossing", 60, P5_P16_who_dies_under_a_run_harms_nobody_else,
        P2_others_meet_while_a_run_is_under_way)
