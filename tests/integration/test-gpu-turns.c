/* Users in turn on a GPU (P21): who has a queue of large work there does not hold another's small work longer
 * than one task. What runs is held back by the fake driver, and let go kernel by kernel: nothing is timed. */
#include <cuda.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "gpu-host.h"
#include "unit.h"

#define OTHER_UID   54321
#define N_LARGE     8
#define LARGE_COUNT ((size_t)12 << 20) /* floats: a sum in place moves 96 MiB */

/* Each in a group of its own, so that no order of theirs keeps them apart. */
static void hand_in_large_ones(struct replica *me) {
        struct tutti_work *works[N_LARGE];
        struct tutti_group *g[N_LARGE];
        char name[16];
        gpu_use_device(0);
        for (int i = 0; i < N_LARGE; i++) {
                snprintf(name, sizeof(name), "large-%d", i);
                g[i] = replica_join_group(me, &TUTTI_JOIN(.group = name));
        }
        struct tutti_buffer *b = gpu_take_buffer(me->t, LARGE_COUNT);
        struct tutti_value v =
                TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { LARGE_COUNT });
        replica_say(me, "ready");
        replica_hear(me, "go");
        for (int i = 0; i < N_LARGE; i++)
                ck_assert_msg(
                        tutti_all_reduce_start(g[i], NULL, TUTTI_SUM, &v, &v, NULL, &works[i]) == TUTTI_OK,
                        "%s", tutti_error());
        replica_say(me, "handed in");
        for (int i = 0; i < N_LARGE; i++) {
                ck_assert_msg(
                        tutti_work_wait(works[i], -1) == TUTTI_OK, "%s", tutti_work_error(works[i])->text);
                tutti_work_free(works[i]);
        }
        gpu_leave(me, b);
}

static void hand_in_a_small_one(struct replica *me) {
        gpu_use_device(0);
        ck_assert_int_eq(setresuid(OTHER_UID, OTHER_UID, OTHER_UID), 0);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "small"));
        struct tutti_buffer *b = gpu_take_buffer(me->t, GPU_COUNT);
        gpu_fill(b, 3);
        replica_say(me, "ready");
        replica_hear(me, "go");
        ck_assert_msg(gpu_reduce(g, NULL, b, GPU_COUNT) == TUTTI_OK, "%s", tutti_error());
        replica_say(me, "done");
        gpu_expect(b, 3, 1);
        gpu_leave(me, b);
}

START_TEST(P21_a_queue_of_large_work_on_a_GPU_holds_nobody_else_longer_than_one_task) {
        if (geteuid() != 0)
                unit_skip("a second user takes root");
        ck_assert_int_eq(chmod(unit_directory(), 0755), 0);
        struct host *h = gpu_host_start("1", NULL);
        struct replica *large =
                replica_spawn(h, &(struct replica_options){ .n = 1, .body = hand_in_large_ones });
        struct replica *small =
                replica_spawn(h, &(struct replica_options){ .n = 1, .body = hand_in_a_small_one });
        replica_expect(large, "ready", 30);
        replica_expect(small, "ready", 30);
        fakecuda_hold(gpu_control, "tuttid-gpu", "cuLaunchKernel");
        replica_tell(large, "go");
        replica_expect(large, "handed in", 30);
        ck_assert(fakecuda_wait_held(gpu_control, "tuttid-gpu", 1, 10));
        usleep(300000); /* what is to come has come */
        ck_assert_uint_eq(fakecuda_held(gpu_control, "tuttid-gpu"), 1);
        replica_tell(small, "go");
        ck_assert(fakecuda_wait_held(gpu_control, "tuttid-gpu", 2, 10));
        fakecuda_let(gpu_control, 1); /* the one task before it */
        ck_assert(fakecuda_wait_held(gpu_control, "tuttid-gpu", 2, 10));
        fakecuda_let(gpu_control, 1);
        replica_expect(small, "done", 10);
        fakecuda_release(gpu_control);
        ck_assert_int_eq(replica_end(small, 30), 0);
        ck_assert_int_eq(replica_end(large, 60), 0);
        gpu_host_stop(h);
}
END_TEST

START_TEST(who_is_alone_may_have_more_under_way) {
        struct host *h = gpu_host_start("1", NULL);
        struct replica *large =
                replica_spawn(h, &(struct replica_options){ .n = 1, .body = hand_in_large_ones });
        replica_expect(large, "ready", 30);
        fakecuda_hold(gpu_control, "tuttid-gpu", "cuLaunchKernel");
        replica_tell(large, "go");
        replica_expect(large, "handed in", 30);
        ck_assert(fakecuda_wait_held(gpu_control, "tuttid-gpu", N_LARGE, 10));
        fakecuda_release(gpu_control);
        ck_assert_int_eq(replica_end(large, 60), 0);
        gpu_host_stop(h);
}
END_TEST

UNIT_MAIN("gpu-turns", 120, P21_a_queue_of_large_work_on_a_GPU_holds_nobody_else_longer_than_one_task,
        who_is_alone_may_have_more_under_way)
