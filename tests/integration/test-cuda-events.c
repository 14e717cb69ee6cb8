/* Order by events between processes, where streams cannot wait for values in memory: on the fake driver, each
 * replica a process with a driver of its own, tuttid-gpu another. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/cuda.h>
#include <unistd.h>
#include "base/check.h"
#include "base/clock.h"
#include "fakecuda/control.h"
#include "fakecuda/load.h"
#include "host.h"
#include "replica.h"
#include "unit.h"

#define N 1000

static struct fakecuda_functions cu; /* in a replica */
static struct fakecuda *control;

#define ok(call) ck_assert_int_eq((call), CUDA_SUCCESS)

/* --- in the test --- */

struct setting {
        const char *n_devices;
        const char *memops; /* "refused", "" */
        const char *sets[2];
};

static struct host *start(const struct setting *s) {
        char path[256];
        snprintf(path, sizeof(path), "%s/fakecuda", unit_directory());
        setenv("FAKECUDA_CONTROL", path, 1);
        setenv("FAKECUDA_DEVICES", s->n_devices, 1);
        setenv("FAKECUDA_MEMOPS", s->memops, 1);
        setenv("LD_LIBRARY_PATH", fakecuda_directory(), 1);
        control = fakecuda_open(path);
        ck_assert_ptr_nonnull(control);
        return host_start((const char *const[]){ "--set", s->sets[0], "--set", s->sets[1], NULL });
}

static const struct setting plain = { "1", "refused", { "gpu.ipc=yes", "gpu.enabled=auto" } };

static void stop(struct host *h) {
        host_expect_counters_zero(h);
        host_stop(h);
        fakecuda_close(control);
}

/* --- in a replica --- */

struct player {
        struct replica *me;
        struct tutti_group *g;
        struct tutti_buffer *b;
        CUdeviceptr at;
        CUstream stream;
};

static void use_device(int device) {
        CUcontext c;
        fakecuda_load(&cu);
        ok(cu.cuInit(0));
        ok(cu.cuDevicePrimaryCtxRetain(&c, device));
        ok(cu.cuCtxSetCurrent(c));
}

static void new_player(struct player *p, struct replica *me, int device) {
        use_device(device);
        *p = (struct player){ .me = me, .g = replica_join_group(me, &TUTTI_JOIN(.group = "train")) };
        ok(cu.cuStreamCreate(&p->stream, CU_STREAM_NON_BLOCKING));
        ck_assert_msg(
                tutti_cuda_buffer_alloc(me->t, N * sizeof(float), &p->b) == TUTTI_OK, "%s", tutti_error());
        p->at = (uintptr_t)tutti_buffer_data(p->b);
}

/* The driver goes, with what it has open, though libtutti still has it. */
static void end_player(struct player *p) {
        void *library;
        tutti_buffer_free(p->b);
        tutti_close(p->me->t);
        p->me->t = NULL;
        while ((library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD))) {
                ck_assert_int_eq(dlclose(library), 0);
                ck_assert_int_eq(dlclose(library), 0);
        }
}

/* In the stream. */
static void fill(const struct player *p, float value) {
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        ok(cu.cuMemsetD32Async(p->at, bits, N, p->stream));
}

static float last_float(const struct player *p) {
        float value;
        ok(cu.cuMemcpyDtoH(&value, p->at + (N - 1) * sizeof(float), sizeof(value)));
        return value;
}

static struct tutti_work *start_sum(const struct player *p, const char *key) {
        struct tutti_value v = TUTTI_VALUE(.buffer = p->b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { N });
        struct tutti_work *w;
        ck_assert_int_eq(tutti_all_reduce_start(p->g, key, TUTTI_SUM, &v, &v,
                                 &TUTTI_OPTIONS(.has_stream = 1, .stream = p->stream), &w),
                TUTTI_OK);
        return w;
}

static void expect_end(struct tutti_work *w, enum tutti_status status) {
        enum tutti_status s = tutti_work_wait(w, -1);
        ck_assert_msg(s == status, "%s: %s", tutti_status_name(s),
                tutti_work_error(w) ? tutti_work_error(w)->text : "");
        tutti_work_free(w);
}

/* --- there and back --- */

/* What computes its values is a memset, which the test holds back in R0; then the worker's kernels. */
static void body_ordered(struct replica *me) {
        const char *why;
        struct player p;
        float *copy;
        new_player(&p, me, 0);
        ok(cu.cuMemHostAlloc((void **)&copy, sizeof(*copy), 0));
        ck_assert_int_eq(tutti_cuda_order(me->t, &why), TUTTI_CUDA_EVENTS);
        ck_assert_msg(strstr(why, "64-bit words") != NULL, "%s", why);
        replica_say(me, "%d", (int)getpid());
        replica_hear(me, "go");
        fill(&p, (float)(1 + me->rank));
        struct tutti_work *w = start_sum(&p, "a");
        ck_assert_int_eq(tutti_cuda_follow(w, 0.2), TUTTI_PENDING); /* not all streams have come */
        replica_say(me, "started");
        replica_hear(me, "look");
        ck_assert_int_eq(tutti_cuda_follow(w, 20), TUTTI_OK); /* though no kernel has run */
        ok(cu.cuMemcpyDtoHAsync(copy, p.at, sizeof(*copy), p.stream));
        ck_assert_int_eq(cu.cuStreamQuery(p.stream), CUDA_ERROR_NOT_READY);
        ck_assert_int_eq(tutti_work_test(w), TUTTI_PENDING);
        replica_say(me, "followed");
        ok(cu.cuStreamSynchronize(p.stream)); /* and nobody has waited for the work */
        ck_assert_float_eq(*copy, 3);
        expect_end(w, TUTTI_OK);
        end_player(&p);
}

START_TEST(a_stream_is_waited_for_and_waits_by_events) {
        struct replica *r[2];
        char who[32];
        struct host *h = start(&plain);
        replicas_spawn(h, 2, body_ordered, NULL, r);
        snprintf(who, sizeof(who), "#%s", replica_listen(r[0], 20));
        replica_listen(r[1], 10);
        fakecuda_hold(control, who, "cuMemsetD32Async");
        for (int i = 0; i < 2; i++)
                replica_tell(r[i], "go");
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "started", 10);
        fakecuda_strike(control, &(struct fakecuda_strike){ .fault = FAKECUDA_STALLS,
                                         .who = "tuttid-gpu",
                                         .call = "cuLaunchKernel",
                                         .repeats = true });
        fakecuda_release(control);
        for (int i = 0; i < 2; i++)
                replica_tell(r[i], "look");
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "followed", 20);
        fakecuda_clear(control);
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 20), 0);
        ck_assert_uint_eq(fakecuda_calls(control, NULL, "cuStreamWaitValue64"), 0);
        stop(h);
}
END_TEST

/* A hundred, one after the other, need the events of the first. */
static void body_many(struct replica *me) {
        struct player p;
        new_player(&p, me, 0);
        fill(&p, 1);
        for (int i = 0; i < 100; i++) {
                fill(&p, 1);
                struct tutti_work *w = start_sum(&p, NULL);
                ck_assert_int_eq(tutti_cuda_follow(w, 20), TUTTI_OK);
                fill(&p, 5); /* behind the result, which is 2 */
                expect_end(w, TUTTI_OK);
                ok(cu.cuStreamSynchronize(p.stream));
                ck_assert_float_eq(last_float(&p), 5);
        }
        ck_assert_int_eq(tutti_barrier(p.g, NULL), TUTTI_OK);
        end_player(&p);
}

START_TEST(events_are_exchanged_once_and_used_again) {
        struct host *h = start(&plain);
        run_replicas(h, 2, body_many, NULL);
        ck_assert_uint_eq(fakecuda_calls(control, NULL, "cuIpcOpenEventHandle"), 4);
        ck_assert_uint_le(fakecuda_calls(control, "tuttid-gpu", "cuIpcGetEventHandle"), 2 * 64 * 2 + 1);
        stop(h);
}
END_TEST

/* More under way than there are events: what has none is waited for by the host. */
static void body_crowded(struct replica *me) {
        struct tutti_work *w[150];
        struct player p;
        new_player(&p, me, 0);
        fill(&p, 0);
        for (size_t i = 0; i < ARRAY_SIZE(w); i++)
                w[i] = start_sum(&p, NULL);
        for (size_t i = 0; i < ARRAY_SIZE(w); i++)
                expect_end(w[i], TUTTI_OK);
        ck_assert_float_eq(last_float(&p), 0);
        ck_assert_int_eq(tutti_barrier(p.g, NULL), TUTTI_OK);
        end_player(&p);
}

START_TEST(more_collectives_than_events_go_all_the_same) {
        struct host *h = start(&plain);
        run_replicas(h, 2, body_crowded, NULL);
        stop(h);
}
END_TEST

/* Each on a GPU of its own: the result comes from the one that leads, the events are of each one's device. */
static void body_apart(struct replica *me) {
        struct player p;
        new_player(&p, me, (int)me->rank);
        fill(&p, (float)(1 + me->rank));
        struct tutti_work *w = start_sum(&p, NULL);
        ck_assert_int_eq(tutti_cuda_follow(w, 20), TUTTI_OK);
        ok(cu.cuStreamSynchronize(p.stream));
        ck_assert_float_eq(last_float(&p), 6);
        expect_end(w, TUTTI_OK);
        ck_assert_int_eq(tutti_barrier(p.g, NULL), TUTTI_OK);
        end_player(&p);
}

START_TEST(streams_of_several_devices_follow_one_collective) {
        const struct setting s = { "3", "refused", { "gpu.ipc=yes", "gpu.enabled=auto" } };
        struct host *h = start(&s);
        run_replicas(h, 3, body_apart, NULL);
        stop(h);
}
END_TEST

/* --- who does not come --- */

/* R0's stream never gets there, and in the end R0 is killed; another group goes on, and so does R1. */
static void body_killed(struct replica *me) {
        struct player p;
        new_player(&p, me, 0);
        struct tutti_group *quick = replica_join_group(me, &TUTTI_JOIN(.group = "quick"));
        ck_assert_int_eq(tutti_cuda_order(me->t, NULL), TUTTI_CUDA_EVENTS);
        replica_say(me, "%d", (int)getpid());
        replica_hear(me, "go");
        fill(&p, (float)(1 + me->rank));
        if (me->rank == 1)
                ok(cu.cuStreamSynchronize(p.stream));
        struct tutti_work *slow = start_sum(&p, "slow");
        replica_say(me, "started");
        if (me->rank == 0)
                pause();
        uint64_t begun_ns = clock_now_ns();
        expect_end(slow, TUTTI_TIMEOUT);
        ck_assert_uint_le(clock_now_ns() - begun_ns, 10 * NS_PER_S);
        ck_assert_float_eq(last_float(&p), 2); /* nothing was written */
        ck_assert_int_eq(tutti_leave(quick), TUTTI_OK);
        ck_assert_int_eq(tutti_leave(p.g), TUTTI_OK);
        p.g = replica_join_group(me, &TUTTI_JOIN(.group = "alone", .rank = 0, .world_size = 1));
        fill(&p, 4);
        struct tutti_work *w = start_sum(&p, "b");
        ck_assert_int_eq(tutti_cuda_follow(w, 20), TUTTI_OK);
        expect_end(w, TUTTI_OK);
        ck_assert_float_eq(last_float(&p), 4);
        end_player(&p);
}

START_TEST(the_event_of_a_killed_client_holds_up_nobody) {
        const struct setting s = { "1", "refused", { "gpu.ipc=yes", "gpu.signal-timeout=1s" } };
        struct replica *r[2];
        char who[32];
        struct host *h = start(&s);
        replicas_spawn(h, 2, body_killed, NULL, r);
        snprintf(who, sizeof(who), "#%s", replica_listen(r[0], 20));
        replica_listen(r[1], 10);
        fakecuda_hold(control, who, "cuMemsetD32Async");
        for (int i = 0; i < 2; i++)
                replica_tell(r[i], "go");
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "started", 10);
        replica_kill9(r[0]);
        ck_assert_int_eq(replica_end(r[1], 30), 0);
        fakecuda_release(control);
        stop(h);
}
END_TEST

/* --- another worker --- */

static void body_again(struct replica *me) {
        struct player p;
        new_player(&p, me, 0);
        fill(&p, 1);
        expect_end(start_sum(&p, NULL), TUTTI_OK);
        replica_say(me, "ready");
        replica_hear(me, "go");
        enum tutti_status status;
        int n = 0;
        do {
                fill(&p, (float)(1 + me->rank));
                struct tutti_work *w = start_sum(&p, NULL);
                status = tutti_work_wait(w, -1);
                tutti_work_free(w);
        } while (status == TUTTI_DEVICE_LOST && ++n < 20);
        ck_assert_int_eq(status, TUTTI_OK);
        ck_assert_int_gt(n, 0); /* the event of the first attempt was of the process that is gone */
        ck_assert_float_eq(last_float(&p), 3);
        ck_assert_int_eq(tutti_cuda_order(me->t, NULL), TUTTI_CUDA_EVENTS);
        end_player(&p);
}

/* What was recorded in an event of the process that is gone is never taken for recorded in one of the next.
 */
START_TEST(E14_a_new_worker_makes_events_anew) {
        struct replica *r[2];
        struct host *h = start(&plain);
        replicas_spawn(h, 2, body_again, NULL, r);
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "ready", 20);
        uint64_t opened = fakecuda_calls(control, NULL, "cuIpcOpenEventHandle");
        fakecuda_strike(
                control, &(struct fakecuda_strike){
                                 .fault = FAKECUDA_STICKS, .who = "tuttid-gpu", .call = "cuLaunchKernel" });
        for (int i = 0; i < 2; i++)
                replica_tell(r[i], "go");
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 30), 0);
        ck_assert_uint_ge(fakecuda_calls(control, NULL, "cuIpcOpenEventHandle"), opened + 4);
        stop(h);
}
END_TEST

/* --- what is granted --- */

struct grant {
        struct setting setting;
        enum tutti_cuda_order order;
        const char *why;
};

static void body_granted(struct replica *me) {
        const struct grant *grant = me->arg;
        const char *why;
        struct player p;
        new_player(&p, me, 0);
        enum tutti_cuda_order order = tutti_cuda_order(me->t, &why);
        ck_assert_msg(order == grant->order, "%s: %s", tutti_cuda_order_name(order), why);
        ck_assert_msg(strstr(why, grant->why) != NULL, "%s", why);
        fill(&p, 1);
        struct tutti_work *w = start_sum(&p, NULL);
        ck_assert_int_eq(tutti_cuda_follow(w, 20), TUTTI_OK); /* right with each */
        ok(cu.cuStreamSynchronize(p.stream));
        ck_assert_float_eq(last_float(&p), 2);
        expect_end(w, TUTTI_OK);
        end_player(&p);
}

static void play_grant(const struct grant *g) {
        struct host *h = start(&g->setting);
        run_replicas(h, 2, body_granted, (void *)g);
        stop(h);
}

START_TEST(a_timeline_is_granted_where_it_can_be) {
        play_grant(
                &(struct grant){ { "1", "", { "gpu.ipc=yes", "gpu.order=auto" } }, TUTTI_CUDA_TIMELINE, "" });
}
END_TEST

START_TEST(events_are_granted_where_tuttid_is_told_so) {
        play_grant(&(struct grant){
                { "1", "", { "gpu.ipc=yes", "gpu.order=events" } }, TUTTI_CUDA_EVENTS, "gpu.order" });
}
END_TEST

START_TEST(the_host_waits_where_tuttid_is_told_so) {
        play_grant(&(struct grant){
                { "1", "", { "gpu.ipc=yes", "gpu.order=host" } }, TUTTI_CUDA_HOST, "gpu.order" });
}
END_TEST

START_TEST(the_host_waits_where_there_is_neither) {
        play_grant(&(struct grant){
                { "1", "refused", { "gpu.ipc=no", "gpu.order=auto" } }, TUTTI_CUDA_HOST, "gpu.ipc" });
}
END_TEST

UNIT_MAIN("cuda-events", 60, a_stream_is_waited_for_and_waits_by_events,
        events_are_exchanged_once_and_used_again, more_collectives_than_events_go_all_the_same,
        streams_of_several_devices_follow_one_collective, the_event_of_a_killed_client_holds_up_nobody,
        E14_a_new_worker_makes_events_anew, a_timeline_is_granted_where_it_can_be,
        events_are_granted_where_tuttid_is_told_so, the_host_waits_where_tuttid_is_told_so,
        the_host_waits_where_there_is_neither)
