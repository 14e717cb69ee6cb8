/* A kernel that never ends, from end to end: the collective hears of it, tuttid-gpu is started anew, and who
 * does not need it notices nothing (E14). */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "gpu-host.h"
#include "meeting.h"
#include "unit.h"

#define LIMIT_S   3 /* gpu.hang-limit */
#define RESTART_S 5

static void through_a_hang(struct replica *me) {
        gpu_use_device((int)me->rank % 2);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b = gpu_take_buffer(me->t, GPU_COUNT);
        gpu_fill(b, (float)me->rank);
        ck_assert_int_eq(gpu_reduce(g, "a", b, GPU_COUNT), TUTTI_OK);
        replica_say(me, "ready");
        replica_hear(me, "go");
        ck_assert_int_eq(gpu_reduce(g, "b", b, GPU_COUNT), TUTTI_DEVICE_LOST);
        replica_say(me, "%s", tutti_error());
        gpu_fill(b, (float)me->rank);
        ck_assert_msg(gpu_reduce(g, "c", b, GPU_COUNT) == TUTTI_OK, "%s", tutti_error());
        gpu_expect(b, 1, 2);
        replica_say(me, "again");
        gpu_leave(me, b);
}

/* Host memory alone: works on, whatever becomes of the GPUs. */
static void meanwhile(struct replica *me) {
        struct floats f;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "host"));
        floats_init(me->t, &f, 100);
        replica_say(me, "ready");
        replica_hear(me, "go");
        for (int i = 0; i < 50; i++) {
                floats_meet(g, NULL, &f, 1, 1);
                usleep(20000);
        }
        floats_deinit(&f);
}

START_TEST(E14_a_kernel_that_never_ends_costs_its_collective_and_a_restart) {
        struct replica *r[2], *beside;
        struct host *h = gpu_host_start("2", (const char *[]){ "--set", "gpu.hang-limit=3s", NULL });
        replicas_spawn(h, 2, through_a_hang, NULL, r);
        beside = replica_spawn(h, &(struct replica_options){ .n = 1, .body = meanwhile });
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "ready", 30);
        replica_expect(beside, "ready", 30);
        int worker = gpu_worker_pid(h);
        fakecuda_strike(gpu_control,
                &(struct fakecuda_strike){
                        .fault = FAKECUDA_STALLS, .who = "tuttid-gpu", .call = "cuLaunchKernel" });
        uint64_t begun_ns = clock_now_ns();
        replica_tell(beside, "go");
        for (int i = 0; i < 2; i++)
                replica_tell(r[i], "go");
        for (int i = 0; i < 2; i++) {
                const char *text = replica_listen(r[i], 60);
                ck_assert_msg(strstr(text, "its plan (") && strstr(text, "did not end: GPU:0"), "%s", text);
        }
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "again", 10 * (LIMIT_S + RESTART_S));
        ck_assert_uint_lt(
                clock_now_ns() - begun_ns, 10 * (LIMIT_S + RESTART_S) * NS_PER_S * (uint64_t)unit_scale());
        ck_assert_int_ne(gpu_worker_pid(h), worker);
        ck_assert_ptr_nonnull(strstr(host_log(h), "a kernel does not end, 3.0 s after it could begin"));
        ck_assert_int_eq(replica_end(beside, 30), 0);
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 30), 0);
        gpu_host_stop(h);
}
END_TEST

UNIT_MAIN("gpu-hang", 180, E14_a_kernel_that_never_ends_costs_its_collective_and_a_restart)
