/* GPUs from end to end: libtutti, tuttid, tuttid-gpu and its CUDA backend, over a driver of our own in host
 * memory. Replicas are processes with contexts of their own (N2 N4 E7 E12 E14). */
#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/admin.h>
#include <tutti/cuda.h>
#include <unistd.h>
#include "control.h"
#include "host.h"
#include "load.h"
#include "replica.h"
#include "unit.h"

#define COUNT 5000

static struct fakecuda *control;

static struct host *start(const char *n_devices) {
        static char path[300];
        snprintf(path, sizeof(path), "%s/fakecuda", unit_directory());
        setenv("FAKECUDA_CONTROL", path, 1);
        setenv("FAKECUDA_DEVICES", n_devices, 1);
        setenv("LD_LIBRARY_PATH", fakecuda_directory(), 1);
        control = fakecuda_open(path);
        ck_assert_ptr_nonnull(control);
        return host_start(NULL);
}

static void stop(struct host *h) {
        host_expect_counters_zero(h);
        host_stop(h);
        for (unsigned int i = 0; i < 4; i++)
                ck_assert_uint_eq(fakecuda_bytes(control, i), 0);
        fakecuda_close(control);
}

/* --- in a replica --- */

static struct fakecuda_functions cu;

static void ok(CUresult r) {
        ck_assert_int_eq(r, CUDA_SUCCESS);
}

static void use_device(int k) {
        CUdevice device;
        CUcontext context;
        fakecuda_load(&cu);
        ok(cu.cuInit(0));
        ok(cu.cuDeviceGet(&device, k));
        ok(cu.cuDevicePrimaryCtxRetain(&context, device));
        ok(cu.cuCtxSetCurrent(context));
}

/* The devices appear when they are tested. */
static struct tutti_buffer *take_buffer(struct tutti *t) {
        struct tutti_buffer *b = NULL;
        enum tutti_status status;
        for (int i = 0; i < 1000 * unit_scale(); i++) {
                status = tutti_cuda_buffer_alloc(t, COUNT * sizeof(float), &b);
                if (status != TUTTI_BUSY)
                        break;
                usleep(10000);
        }
        ck_assert_msg(status == TUTTI_OK, "%s", tutti_error());
        return b;
}

/* The fake goes, with what it has open, though libtutti has it too: this process uses it no more. */
static void end_use(struct replica *me, struct tutti_buffer *b) {
        tutti_buffer_free(b);
        tutti_close(me->t);
        me->t = NULL;
        ck_assert_int_eq(dlclose(cu.library), 0);
        ck_assert_int_eq(dlclose(cu.library), 0);
}

static CUdeviceptr at(struct tutti_buffer *b) {
        return (CUdeviceptr)(uintptr_t)tutti_buffer_data(b);
}

static void fill(struct tutti_buffer *b, float first) {
        static float values[COUNT];
        for (int i = 0; i < COUNT; i++)
                values[i] = first + (float)i;
        ok(cu.cuMemcpyHtoD(at(b), values, sizeof(values)));
}

static void expect(struct tutti_buffer *b, float first, float step) {
        static float values[COUNT];
        ok(cu.cuMemcpyDtoH(values, at(b), sizeof(values)));
        for (int i = 0; i < COUNT; i++)
                ck_assert_msg(values[i] == first + step * (float)i, "[%d] is %f", i, (double)values[i]);
}

static enum tutti_status reduce(struct tutti_group *g, const char *key, struct tutti_buffer *b) {
        struct tutti_value v = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { COUNT });
        return tutti_all_reduce(g, key, TUTTI_SUM, &v, &v);
}

/* --- several replicas --- */

static void on_one_gpu(struct replica *me) {
        use_device(0);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b = take_buffer(me->t);
        fill(b, (float)me->rank);
        ck_assert_msg(reduce(g, "a", b) == TUTTI_OK, "%s", tutti_error());
        expect(b, 6, 4);
        for (int i = 0; i < 20; i++) {
                fill(b, (float)me->rank);
                ck_assert_int_eq(reduce(g, NULL, b), TUTTI_OK);
                expect(b, 6, 4);
        }
        end_use(me, b);
}

START_TEST(N2_four_replicas_on_one_gpu) {
        struct host *h = start("1");
        run_replicas(h, 4, on_one_gpu, NULL);
        stop(h);
}
END_TEST

static void on_two_gpus(struct replica *me) {
        use_device((int)me->rank % 2);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b = take_buffer(me->t);
        for (int i = 0; i < 5; i++) {
                fill(b, (float)me->rank);
                ck_assert_msg(reduce(g, NULL, b) == TUTTI_OK, "%s", tutti_error());
                expect(b, 6, 4);
        }
        end_use(me, b);
}

START_TEST(N2_four_replicas_on_two_gpus) {
        struct host *h = start("2");
        run_replicas(h, 4, on_two_gpus, NULL);
        stop(h);
}
END_TEST

static void on_both_sides(struct replica *me) {
        struct tutti_group *g;
        struct tutti_buffer *b;
        if (me->rank == 0) {
                use_device(0);
                g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
                b = take_buffer(me->t);
                fill(b, 1);
        } else {
                g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
                ck_assert_int_eq(tutti_buffer_alloc(me->t, COUNT * sizeof(float), &b), TUTTI_OK);
                for (int i = 0; i < COUNT; i++)
                        ((float *)tutti_buffer_data(b))[i] = 10 + (float)i;
        }
        ck_assert_msg(reduce(g, "a", b) == TUTTI_OK, "%s", tutti_error());
        if (me->rank == 0)
                expect(b, 11, 2);
        for (int i = 0; me->rank == 1 && i < COUNT; i++)
                ck_assert(((float *)tutti_buffer_data(b))[i] == 11 + 2 * (float)i);
        if (me->rank == 0)
                end_use(me, b);
        else
                tutti_buffer_free(b);
}

START_TEST(N4_a_gpu_and_a_host_member_in_one_collective) {
        struct host *h = start("1");
        run_replicas(h, 2, on_both_sides, NULL);
        stop(h);
}
END_TEST

/* --- a process that dies of it --- */

static void through_a_loss(struct replica *me) {
        use_device(0);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b = take_buffer(me->t);
        fill(b, (float)me->rank);
        ck_assert_int_eq(reduce(g, "a", b), TUTTI_OK);
        replica_say(me, "ready");
        replica_hear(me, "go");
        ck_assert_int_eq(reduce(g, "b", b), TUTTI_DEVICE_LOST);
        fill(b, (float)me->rank);
        ck_assert_msg(reduce(g, "c", b) == TUTTI_OK, "%s", tutti_error());
        expect(b, 1, 2);
        end_use(me, b);
}

START_TEST(E14_a_sticky_error_costs_a_restart) {
        struct host *h = start("1");
        struct replica *r[2];
        replicas_spawn(h, 2, through_a_loss, NULL, r);
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "ready", 30);
        fakecuda_strike(
                control, &(struct fakecuda_strike){
                                 .fault = FAKECUDA_STICKS, .who = "tuttid-gpu", .call = "cuLaunchKernel" });
        for (int i = 0; i < 2; i++)
                replica_tell(r[i], "go");
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 60), 0);
        ck_assert(fakecuda_has_struck(control));
        stop(h);
}
END_TEST

UNIT_MAIN("gpu-driver", 120, N2_four_replicas_on_one_gpu, N2_four_replicas_on_two_gpus,
        N4_a_gpu_and_a_host_member_in_one_collective, E14_a_sticky_error_costs_a_restart)
