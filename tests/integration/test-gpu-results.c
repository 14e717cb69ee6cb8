/* Result objects in memory of a GPU, on the fake driver: a result on a device that holds no replica, which
 * all replicas read there. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/cuda.h>
#include <unistd.h>
#include "fakecuda/control.h"
#include "fakecuda/load.h"
#include "host.h"
#include "replica.h"
#include "unit.h"

#define N 1100

static struct fakecuda_functions cu; /* in a replica */
static struct fakecuda *control;

#define ok(call) ck_assert_int_eq((call), CUDA_SUCCESS)

static struct host *start(const char *n_devices) {
        char path[256];
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
        fakecuda_close(control);
}

/* --- in a replica --- */

struct player {
        struct replica *me;
        struct tutti_group *g;
        struct tutti_object *o;
};

static void begin(struct player *p, struct replica *me) {
        CUcontext c;
        fakecuda_load(&cu);
        ok(cu.cuInit(0));
        ok(cu.cuDevicePrimaryCtxRetain(&c, 0));
        ok(cu.cuCtxSetCurrent(c));
        *p = (struct player){ .me = me, .g = replica_join_group(me, &TUTTI_JOIN(.group = "train")) };
}

/* While the GPUs are still being tested it is BUSY. */
static enum tutti_status make(struct player *p, const char *device) {
        const struct tutti_object_args args =
                TUTTI_OBJECT(.name = "sums", .n_bytes = N * sizeof(float), .device = device);
        enum tutti_status status;
        for (int i = 0; i < 200; i++) {
                status = tutti_object_make(p->g, &args, &p->o);
                if (status != TUTTI_BUSY)
                        break;
                nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
        }
        return status;
}

static void must_make(struct player *p, const char *device) {
        enum tutti_status status = make(p, device);
        ck_assert_msg(status == TUTTI_OK, "%s", tutti_error());
}

static void end(struct player *p) {
        void *library;
        tutti_object_free(p->o);
        tutti_close(p->me->t);
        p->me->t = NULL;
        while ((library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD))) {
                ck_assert_int_eq(dlclose(library), 0);
                ck_assert_int_eq(dlclose(library), 0);
        }
}

static struct tutti_value in_object(const struct player *p) {
        return TUTTI_VALUE(.object = p->o, .dtype = TUTTI_F32, .n_dims = 1, .shape = { N });
}

static struct tutti_buffer *device_buffer(struct player *p, float value) {
        struct tutti_buffer *b;
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        ck_assert_msg(
                tutti_cuda_buffer_alloc(p->me->t, N * sizeof(float), &b) == TUTTI_OK, "%s", tutti_error());
        ok(cu.cuMemsetD32((uintptr_t)tutti_buffer_data(b), bits, N));
        return b;
}

/* What came of it, and in which slot. */
static enum tutti_status reduce(struct player *p, struct tutti_buffer *b, uint32_t *ret_slot) {
        const struct tutti_value in =
                TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { N });
        const struct tutti_value out = in_object(p);
        struct tutti_result result = { 0 };
        struct tutti_work *w;
        ck_assert_int_eq(tutti_all_reduce_start(p->g, NULL, TUTTI_SUM, &in, &out, NULL, &w), TUTTI_OK);
        enum tutti_status status = tutti_work_wait(w, -1);
        if (status == TUTTI_OK)
                ck_assert_int_eq(tutti_work_result(w, &result), TUTTI_OK);
        *ret_slot = result.slot;
        tutti_work_free(w);
        return status;
}

static void expect_slot(const struct player *p, uint32_t slot, float value) {
        float got;
        CUdeviceptr at = (uintptr_t)tutti_object_data(p->o, slot);
        for (size_t i = 0; i < N; i += N - 1) {
                ok(cu.cuMemcpyDtoH(&got, at + i * sizeof(float), sizeof(got)));
                ck_assert_float_eq(got, value);
        }
}

static void body_elsewhere(struct replica *me) {
        struct player p;
        uint32_t slot[3];
        begin(&p, me);
        must_make(&p, "GPU:1");
        struct tutti_buffer *b = device_buffer(&p, (float)(1 + me->rank));
        ck_assert_int_eq(reduce(&p, b, &slot[0]), TUTTI_OK);
        ck_assert_int_eq(reduce(&p, b, &slot[1]), TUTTI_OK);
        ck_assert_uint_ne(slot[0], slot[1]);
        expect_slot(&p, slot[0], 3);
        expect_slot(&p, slot[1], 3);
        ck_assert_int_eq(tutti_barrier(p.g, NULL), TUTTI_OK);
        ck_assert_int_eq(reduce(&p, b, &slot[2]), TUTTI_BUSY); /* both slots are held */
        ck_assert_int_eq(tutti_object_release(p.o, slot[0]), TUTTI_OK);
        ck_assert_int_eq(tutti_barrier(p.g, NULL), TUTTI_OK);
        ck_assert_int_eq(reduce(&p, b, &slot[2]), TUTTI_OK);
        expect_slot(&p, slot[2], 3);
        /* Here it can only be read. */
        ck_assert_int_ne(cu.cuMemsetD32((uintptr_t)tutti_object_data(p.o, slot[2]), 0, 1), CUDA_SUCCESS);
        expect_slot(&p, slot[2], 3);
        ck_assert_int_eq(tutti_barrier(p.g, NULL), TUTTI_OK);
        tutti_buffer_free(b);
        end(&p);
}

START_TEST(TA2_a_result_on_a_device_that_holds_no_replica) {
        struct host *h = start("2");
        run_replicas(h, 2, body_elsewhere, NULL);
        ck_assert_uint_gt(fakecuda_calls(control, "tuttid-gpu", "cuMemExportToShareableHandle"), 0);
        stop(h);
}
END_TEST

static void body_from_host(struct replica *me) {
        struct tutti_buffer *b;
        struct player p;
        uint32_t slot;
        begin(&p, me);
        must_make(&p, "GPU:0");
        ck_assert_int_eq(tutti_buffer_alloc(me->t, N * sizeof(float), &b), TUTTI_OK);
        for (int i = 0; i < N; i++)
                ((float *)tutti_buffer_data(b))[i] = (float)(1 + me->rank);
        ck_assert_int_eq(reduce(&p, b, &slot), TUTTI_OK);
        expect_slot(&p, slot, 6);
        ck_assert_int_eq(tutti_barrier(p.g, NULL), TUTTI_OK);
        tutti_buffer_free(b);
        end(&p);
}

START_TEST(N4_values_of_the_host_come_to_a_gpu) {
        struct host *h = start("1");
        run_replicas(h, 3, body_from_host, NULL);
        stop(h);
}
END_TEST

#define MANY ((size_t)N) /* more than are planned in the turn that seals them */

/* A float each, into neighbours of one slot. */
static enum tutti_status reduce_many(
        struct player *p, struct tutti_buffer *b, const struct tutti_options *options, uint32_t *ret_slot) {
        static struct tutti_value in[MANY], out[MANY];
        static struct tutti_entry entries[MANY];
        struct tutti_result result = { 0 };
        struct tutti_work *w;
        for (size_t i = 0; i < MANY; i++) {
                in[i] = TUTTI_VALUE(.buffer = b, .offset = i * sizeof(float), .dtype = TUTTI_F32);
                out[i] = TUTTI_VALUE(.object = p->o, .offset = i * sizeof(float), .dtype = TUTTI_F32);
                entries[i] = TUTTI_ENTRY(.input = &in[i], .output = &out[i]);
        }
        ck_assert_int_eq(
                tutti_batch_reduce_start(p->g, NULL, TUTTI_SUM, entries, MANY, options, &w), TUTTI_OK);
        enum tutti_status status = tutti_work_wait(w, -1);
        if (status == TUTTI_OK)
                ck_assert_int_eq(tutti_work_result(w, &result), TUTTI_OK);
        *ret_slot = result.slot;
        tutti_work_free(w);
        return status;
}

static void body_many(struct replica *me) {
        struct player p;
        uint32_t slot;
        begin(&p, me);
        must_make(&p, "GPU:1");
        struct tutti_buffer *b = device_buffer(&p, 5);
        ck_assert_int_eq(reduce_many(&p, b, &TUTTI_OPTIONS(.device = "CPU:0"), &slot), TUTTI_OK);
        expect_slot(&p, slot, 5);
        ck_assert_int_eq(reduce_many(&p, b, &TUTTI_OPTIONS(.algorithm = "library"), &slot), TUTTI_OK);
        expect_slot(&p, slot, 5);
        tutti_buffer_free(b);
        end(&p);
}

/* They are planned on another thread, which must know as well that the object's device reduces. */
START_TEST(many_values_come_to_a_device_that_holds_no_replica) {
        struct host *h = start("2");
        run_replicas(h, 1, body_many, NULL);
        stop(h);
}
END_TEST

static void body_to_host(struct replica *me) {
        struct tutti_buffer *b;
        struct player p;
        uint32_t slot;
        begin(&p, me);
        must_make(&p, "GPU:0"); /* it serves */
        tutti_object_free(p.o);
        must_make(&p, "CPU:0");
        ck_assert_int_eq(tutti_buffer_alloc(me->t, N * sizeof(float), &b), TUTTI_OK);
        ck_assert_int_eq(reduce_many(&p, b, &TUTTI_OPTIONS(.device = "GPU:0"), &slot), TUTTI_UNSUPPORTED);
        ck_assert_int_eq(reduce_many(&p, b, &TUTTI_OPTIONS(.device = "CPU:0"), &slot), TUTTI_OK);
        tutti_buffer_free(b);
        end(&p);
}

/* The GPU process may not write there. */
START_TEST(a_gpu_that_is_asked_to_reduce_into_an_object_of_the_host_is_refused) {
        struct host *h = start("1");
        run_replicas(h, 1, body_to_host, NULL);
        stop(h);
}
END_TEST

/* The object is tuttid's: a new worker has it again. */
static void body_killed(struct replica *me) {
        struct player p;
        uint32_t slot;
        enum tutti_status status;
        begin(&p, me);
        must_make(&p, "GPU:1");
        struct tutti_buffer *b = device_buffer(&p, (float)(1 + me->rank));
        ck_assert_int_eq(reduce(&p, b, &slot), TUTTI_OK);
        replica_say(me, "ready");
        replica_hear(me, "go");
        for (int i = 0; i < 20; i++) {
                status = reduce(&p, b, &slot);
                if (status != TUTTI_DEVICE_LOST)
                        break;
        }
        ck_assert_int_eq(status, TUTTI_OK);
        expect_slot(&p, slot, 3);
        ck_assert_int_eq(tutti_barrier(p.g, NULL), TUTTI_OK);
        tutti_buffer_free(b);
        end(&p);
}

START_TEST(E14_an_object_outlives_the_worker) {
        struct replica *r[2];
        struct host *h = start("2");
        replicas_spawn(h, 2, body_killed, NULL, r);
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "ready", 20);
        fakecuda_strike(
                control, &(struct fakecuda_strike){
                                 .fault = FAKECUDA_STICKS, .who = "tuttid-gpu", .call = "cuLaunchKernel" });
        for (int i = 0; i < 2; i++)
                replica_tell(r[i], "go");
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 30), 0);
        stop(h);
}
END_TEST

static void body_refused(struct replica *me) {
        struct player p;
        begin(&p, me);
        ck_assert_int_eq(make(&p, "GPU:7"), TUTTI_INVALID);
        ck_assert_msg(strstr(tutti_error(), "GPU:7") != NULL, "%s", tutti_error());
        must_make(&p, "GPU:0");
        end(&p);
}

START_TEST(a_gpu_that_is_not_there_is_refused) {
        struct host *h = start("1");
        run_replicas(h, 1, body_refused, NULL);
        stop(h);
}
END_TEST

UNIT_MAIN("gpu-results", 60, TA2_a_result_on_a_device_that_holds_no_replica,
        N4_values_of_the_host_come_to_a_gpu, many_values_come_to_a_device_that_holds_no_replica,
        a_gpu_that_is_asked_to_reduce_into_an_object_of_the_host_is_refused,
        E14_an_object_outlives_the_worker, a_gpu_that_is_not_there_is_refused)
