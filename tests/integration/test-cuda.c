/* Device memory from libtutti to the GPU worker and back, on the fake driver: each replica is a process with
 * a driver of its own, tuttid-gpu has another. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/admin.h>
#include <tutti/axes.h>
#include <tutti/cuda.h>
#include <unistd.h>
#include "base/check.h"
#include "fakecuda/control.h"
#include "fakecuda/load.h"
#include "host.h"
#include "replica.h"
#include "unit.h"

#define N       1000
#define GRANULE ((size_t)2 << 20)

static struct fakecuda_functions cu; /* in a replica */
static struct fakecuda *control;

#define ok(call) ck_assert_int_eq((call), CUDA_SUCCESS)

/* --- in the test --- */

/* A tuttid whose worker, and replicas that, have `n_devices` fake GPUs. */
static struct host *start_with(const char *n_devices, const char *setting) {
        char path[256];
        snprintf(path, sizeof(path), "%s/fakecuda", unit_directory());
        setenv("FAKECUDA_CONTROL", path, 1);
        setenv("FAKECUDA_DEVICES", n_devices, 1);
        setenv("LD_LIBRARY_PATH", fakecuda_directory(), 1);
        control = fakecuda_open(path);
        ck_assert_ptr_nonnull(control);
        return host_start((const char *const[]){ "--set", "gpu.ipc=yes", "--set", setting, NULL });
}

static struct host *start(const char *n_devices) {
        return start_with(n_devices, "gpu.enabled=auto");
}

static void stop(struct host *h) {
        host_expect_counters_zero(h);
        host_stop(h);
        fakecuda_close(control);
}

/* --- in a replica --- */

static void use_device(int device) {
        CUcontext c;
        fakecuda_load(&cu);
        ok(cu.cuInit(0));
        ok(cu.cuDevicePrimaryCtxRetain(&c, device));
        ok(cu.cuCtxSetCurrent(c));
}

/* The driver goes, with what it has open, though libtutti still has it. */
static void leave(struct replica *me) {
        tutti_close(me->t);
        me->t = NULL;
        void *library;
        while ((library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD))) {
                ck_assert_int_eq(dlclose(library), 0);
                ck_assert_int_eq(dlclose(library), 0);
        }
}

static CUstream new_stream(void) {
        CUstream s;
        ok(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        return s;
}

static CUdeviceptr create(void) {
        const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
        const CUmemAccessDesc access = { .location = prop.location,
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        CUmemGenericAllocationHandle h;
        CUdeviceptr at;
        ok(cu.cuMemCreate(&h, GRANULE, &prop, 0));
        ok(cu.cuMemAddressReserve(&at, GRANULE, 0, 0, 0));
        ok(cu.cuMemMap(at, GRANULE, 0, h, 0));
        ok(cu.cuMemSetAccess(at, GRANULE, &access, 1));
        return at;
}

/* N floats behind 4,096 bytes of something else, in the device that is current. */
static struct tutti_buffer *new_buffer(struct tutti *t, enum tutti_cuda_path path) {
        struct tutti_buffer *b = NULL;
        CUdeviceptr p = 0;
        enum tutti_status status;
        if (path == TUTTI_CUDA_VMM_FD)
                p = create() + 4096;
        else if (path != TUTTI_CUDA_VMM_MADE)
                ok(cu.cuMemAlloc(&p, 4096 + N * sizeof(float)));
        if (path == TUTTI_CUDA_IPC || path == TUTTI_CUDA_STAGED)
                p += 4096;
        if (path == TUTTI_CUDA_VMM_MADE)
                status = tutti_cuda_buffer_alloc(t, N * sizeof(float), &b);
        else
                status = tutti_cuda_buffer_register(
                        t, (void *)(uintptr_t)p, N * sizeof(float), &TUTTI_CUDA_ARGS(.path = path), &b);
        ck_assert_msg(status == TUTTI_OK, "%s: %s", tutti_cuda_path_name(path), tutti_error());
        ck_assert_int_eq(tutti_cuda_buffer_path(b, NULL), path);
        return b;
}

static struct tutti_value floats(struct tutti_buffer *b) {
        return TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { N });
}

static CUdeviceptr pointer_of(const struct tutti_buffer *b) {
        return (uintptr_t)tutti_buffer_data(b);
}

static void fill(const struct tutti_buffer *b, float value) {
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        ok(cu.cuMemsetD32(pointer_of(b), bits, N));
}

static float float_at(const struct tutti_buffer *b, uint32_t i) {
        float value;
        ok(cu.cuMemcpyDtoH(&value, pointer_of(b) + i * sizeof(float), sizeof(value)));
        return value;
}

static void expect_floats(const struct tutti_buffer *b, float value) {
        ck_assert_float_eq(float_at(b, 0), value);
        ck_assert_float_eq(float_at(b, N / 2), value);
        ck_assert_float_eq(float_at(b, N - 1), value);
}

/* --- four kinds of memory --- */

static const enum tutti_cuda_path paths[] = { TUTTI_CUDA_VMM_MADE, TUTTI_CUDA_VMM_FD, TUTTI_CUDA_IPC,
        TUTTI_CUDA_STAGED };

/* What tuttid says of this process's buffer. */
static void expect_row(struct tutti *t, enum tutti_cuda_path path) {
        struct tutti_answer *a;
        bool is_there = false;
        ck_assert_int_eq(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++) {
                const struct tutti_row *r = &a->rows[i];
                if (r->type != TUTTI_ROW_BUFFER || r->buffer.pid != (uint32_t)getpid())
                        continue;
                is_there |= strcmp(r->buffer.path, tutti_cuda_path_name(path)) == 0;
        }
        tutti_answer_free(a);
        ck_assert_msg(is_there, "no buffer by %s in the status", tutti_cuda_path_name(path));
}

static void reduce_by(struct replica *me, struct tutti_group *g, enum tutti_cuda_path path) {
        struct tutti_buffer *b = new_buffer(me->t, path);
        struct tutti_value v = floats(b);
        fill(b, (float)(1 + me->rank));
        ck_assert_int_eq(tutti_all_reduce(g, NULL, TUTTI_SUM, &v, &v), TUTTI_OK);
        expect_floats(b, 3);
        expect_row(me->t, path);
        ck_assert_int_eq(tutti_barrier(g, NULL), TUTTI_OK);
        tutti_buffer_free(b);
}

static void body_kinds(struct replica *me) {
        use_device(0);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
                reduce_by(me, g, paths[i]);
        leave(me);
}

START_TEST(E8_N2_two_replicas_on_one_gpu_by_each_kind_of_memory) {
        struct host *h = start("1");
        run_replicas(h, 2, body_kinds, NULL);
        ck_assert_uint_eq(fakecuda_ipc_open(control, NULL), 0); /* E4: closed after the last */
        stop(h);
}
END_TEST

/* R0 brings 100, R1 200; there is room for more, which stays as it is. Then slices of 600 and 400 of a sum.
 */
static void gather_by(struct replica *me, struct tutti_group *g, enum tutti_cuda_path path) {
        struct tutti_buffer *in = new_buffer(me->t, path), *out = new_buffer(me->t, path);
        struct tutti_value from = floats(in), to = floats(out);
        uint64_t extent = 0;
        from.shape[0] = 100 * (me->rank + 1);
        fill(in, (float)(1 + me->rank));
        fill(out, -1);
        ck_assert_msg(tutti_all_gather(g, NULL, 0, &from, &to, &extent) == TUTTI_OK, "%s", tutti_error());
        ck_assert_uint_eq(extent, 300);
        for (uint32_t i = 0; i < N; i++)
                ck_assert_float_eq(float_at(out, i), i < 100 ? 1 : i < 300 ? 2 : -1);
        from.shape[0] = N;
        to.shape[0] = me->rank ? 400 : 600;
        const struct tutti_entry e = TUTTI_ENTRY(.input = &from, .output = &to);
        ck_assert_msg(tutti_reduce_scatter(g, &TUTTI_REDUCE_SCATTER(.op = TUTTI_SUM, .entries = &e,
                                                      .n_entries = 1)) == TUTTI_OK,
                "%s", tutti_error());
        for (uint32_t i = 0; i < N; i++)
                ck_assert_float_eq(float_at(out, i), i < to.shape[0] ? 3 : i < 300 ? 2 : -1);
        ck_assert_int_eq(tutti_barrier(g, NULL), TUTTI_OK);
        tutti_buffer_free(in);
        tutti_buffer_free(out);
}

static void body_gathers(struct replica *me) {
        use_device(0);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
                gather_by(me, g, paths[i]);
        leave(me);
}

START_TEST(TE14_gather_and_reduce_scatter_by_each_kind_of_memory) {
        struct host *h = start("1");
        run_replicas(h, 2, body_gathers, NULL);
        stop(h);
}
END_TEST

/* Each replica by another kind, and the last one from the host. */
static void body_mixed(struct replica *me) {
        use_device(0);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b;
        if (me->rank == ARRAY_SIZE(paths)) {
                ck_assert_int_eq(tutti_buffer_alloc(me->t, N * sizeof(float), &b), TUTTI_OK);
                for (uint32_t i = 0; i < N; i++)
                        ((float *)tutti_buffer_data(b))[i] = (float)(1 + me->rank);
        } else {
                b = new_buffer(me->t, paths[me->rank]);
                fill(b, (float)(1 + me->rank));
        }
        struct tutti_value v = floats(b);
        ck_assert_int_eq(tutti_all_reduce(g, NULL, TUTTI_SUM, &v, &v), TUTTI_OK);
        if (me->rank == ARRAY_SIZE(paths))
                ck_assert_float_eq(((float *)tutti_buffer_data(b))[N - 1], 15);
        else
                expect_floats(b, 15);
        tutti_buffer_free(b);
        leave(me);
}

START_TEST(N4_every_kind_of_memory_and_the_host_in_one_collective) {
        struct host *h = start("1");
        run_replicas(h, ARRAY_SIZE(paths) + 1, body_mixed, NULL);
        stop(h);
}
END_TEST

/* --- devices --- */

static void body_visible(struct replica *me) {
        setenv("CUDA_VISIBLE_DEVICES", me->rank ? "0" : "1", 1);
        use_device(0);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        reduce_by(me, g, TUTTI_CUDA_VMM_MADE);
        reduce_by(me, g, TUTTI_CUDA_IPC);
        leave(me);
}

START_TEST(E9_a_device_is_who_it_is_and_not_its_number) {
        struct host *h = start("2");
        run_replicas(h, 2, body_visible, NULL);
        stop(h);
}
END_TEST

static void body_unknown(struct replica *me) {
        struct tutti_buffer *b;
        setenv("FAKECUDA_DEVICES", "4", 1);
        use_device(3);
        struct tutti *t = replica_open(me);
        ck_assert_int_ne(tutti_cuda_buffer_alloc(t, 64, &b), TUTTI_OK);
        ck_assert_msg(strstr(tutti_error(), "GPU-"), "it lists no devices: %s", tutti_error());
        leave(me);
}

START_TEST(E9_an_unknown_device_is_told_which_ones_there_are) {
        struct host *h = start("2");
        run_replicas(h, 1, body_unknown, NULL);
        stop(h);
}
END_TEST

/* --- streams --- */

static struct tutti_work *start_on(
        struct tutti_group *g, const char *key, struct tutti_buffer *b, CUstream s) {
        struct tutti_value v = floats(b);
        struct tutti_work *w;
        ck_assert_int_eq(tutti_all_reduce_start(
                                 g, key, TUTTI_SUM, &v, &v, &TUTTI_OPTIONS(.has_stream = 1, .stream = s), &w),
                TUTTI_OK);
        return w;
}

/* What computes its values is a memset in the stream, which the test holds back in R0; what uses the result
 * is a copy behind the collective. */
static void body_ordered(struct replica *me) {
        float *copy; /* pinned: others are waited for by the copy */
        uint32_t bits;
        const float mine = (float)(1 + me->rank);
        memcpy(&bits, &mine, sizeof(bits));
        use_device(0);
        ok(cu.cuMemHostAlloc((void **)&copy, sizeof(*copy), 0));
        CUstream s = new_stream();
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b = new_buffer(me->t, TUTTI_CUDA_VMM_MADE);
        ck_assert_int_eq(tutti_cuda_order(me->t, NULL), TUTTI_CUDA_TIMELINE);
        replica_say(me, "%d", (int)getpid());
        replica_hear(me, "go");
        ok(cu.cuMemsetD32Async(pointer_of(b), bits, N, s));
        struct tutti_work *w = start_on(g, "a", b, s);
        ok(cu.cuMemcpyDtoHAsync(copy, pointer_of(b), sizeof(*copy), s));
        replica_say(me, "started");
        replica_hear(me, "look");
        replica_say(me, tutti_work_test(w) == TUTTI_PENDING ? "pending" : "ended");
        ok(cu.cuStreamSynchronize(s)); /* and nobody has waited for the work */
        ck_assert_float_eq(*copy, 3);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
        tutti_work_free(w);
        tutti_buffer_free(b);
        leave(me);
}

START_TEST(a_collective_waits_for_a_stream_and_the_stream_for_the_result) {
        struct replica *r[2];
        char who[32];
        struct host *h = start("1");
        replicas_spawn(h, 2, body_ordered, NULL, r);
        snprintf(who, sizeof(who), "#%s", replica_listen(r[0], 10));
        replica_listen(r[1], 10);
        fakecuda_hold(control, who, "cuMemsetD32Async");
        for (int i = 0; i < 2; i++)
                replica_tell(r[i], "go");
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "started", 10);
        ck_assert(fakecuda_wait_held(control, who, 1, 10));
        nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
        for (int i = 0; i < 2; i++) {
                replica_tell(r[i], "look");
                replica_expect(r[i], "pending", 10);
        }
        fakecuda_release(control);
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 20), 0);
        stop(h);
}
END_TEST

/* R1 gives the key up, and so R0's stream, which waits for it, goes on with what there was. */
static void body_aborted(struct replica *me) {
        use_device(0);
        CUstream s = new_stream();
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b = new_buffer(me->t, TUTTI_CUDA_IPC);
        fill(b, 7);
        if (me->rank == 0) {
                struct tutti_work *w = start_on(g, "a", b, s);
                replica_say(me, "started");
                ok(cu.cuStreamSynchronize(s));
                expect_floats(b, 7);
                ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_ABORTED);
                tutti_work_free(w);
        } else {
                replica_hear(me, "abort");
                while (tutti_abort(g, "a", "changed my mind") == TUTTI_NOT_FOUND)
                        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        }
        fill(b, 1);
        struct tutti_work *w = start_on(g, "b", b, s); /* the group and its streams are well */
        ok(cu.cuStreamSynchronize(s));
        expect_floats(b, 2);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
        tutti_work_free(w);
        ck_assert_int_eq(tutti_barrier(g, NULL), TUTTI_OK);
        tutti_buffer_free(b);
        leave(me);
}

START_TEST(P7_a_collective_that_fails_lets_streams_go_on) {
        struct replica *r[2];
        struct host *h = start("1");
        replicas_spawn(h, 2, body_aborted, NULL, r);
        replica_expect(r[0], "started", 10);
        replica_tell(r[1], "abort");
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 20), 0);
        stop(h);
}
END_TEST

/* A hundred in a row on one stream, and nobody looks until the end. */
static void body_many(struct replica *me) {
        struct tutti_work *w[100];
        use_device(0);
        CUstream s = new_stream();
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b = new_buffer(me->t, TUTTI_CUDA_VMM_FD);
        fill(b, 1);
        struct tutti_value v = floats(b);
        for (size_t i = 0; i < ARRAY_SIZE(w); i++)
                ck_assert_int_eq(tutti_all_reduce_start(g, NULL, TUTTI_MEAN, &v, &v,
                                         &TUTTI_OPTIONS(.has_stream = 1, .stream = s), &w[i]),
                        TUTTI_OK);
        ok(cu.cuStreamSynchronize(s));
        expect_floats(b, 1);
        for (size_t i = 0; i < ARRAY_SIZE(w); i++) {
                ck_assert_int_eq(tutti_work_wait(w[i], -1), TUTTI_OK);
                tutti_work_free(w[i]);
        }
        ck_assert_int_eq(tutti_barrier(g, NULL), TUTTI_OK);
        tutti_buffer_free(b);
        leave(me);
}

START_TEST(a_stream_takes_a_hundred_collectives_in_its_order) {
        struct host *h = start("1");
        run_replicas(h, 2, body_many, NULL);
        stop(h);
}
END_TEST

/* tuttid is killed while a stream waits: the next call lets it go. */
static void body_orphaned(struct replica *me) {
        use_device(0);
        CUstream s = new_stream();
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b = new_buffer(me->t, TUTTI_CUDA_VMM_MADE);
        if (me->rank == 0) {
                struct tutti_work *w = start_on(g, "a", b, s);
                replica_say(me, "started");
                ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_DAEMON_LOST);
                ok(cu.cuStreamSynchronize(s));
                tutti_work_free(w);
        } else {
                replica_say(me, "ready");
                replica_hear(me, "end");
        }
        fill(b, 4); /* the memory stays the client's */
        expect_floats(b, 4);
        tutti_buffer_free(b);
        leave(me);
}

START_TEST(P9_a_stream_goes_on_when_tuttid_is_killed) {
        struct replica *r[2];
        struct host *h = start("1");
        replicas_spawn(h, 2, body_orphaned, NULL, r);
        replica_expect(r[0], "started", 10);
        replica_expect(r[1], "ready", 10);
        host_kill9(h);
        replica_tell(r[1], "end");
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 20), 0);
        host_stop(h);
        fakecuda_close(control);
}
END_TEST

/* R0's stream never gets there. Another group's do, and in the end R0's peer is told who is late. */
static void body_silent(struct replica *me) {
        use_device(0);
        CUstream s = new_stream(), other = new_stream();
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_group *quick = replica_join_group(me, &TUTTI_JOIN(.group = "quick"));
        struct tutti_buffer *b = new_buffer(me->t, TUTTI_CUDA_VMM_MADE),
                            *c = new_buffer(me->t, TUTTI_CUDA_VMM_MADE);
        fill(c, 1);
        replica_say(me, "%d", (int)getpid());
        replica_hear(me, "go");
        if (me->rank == 0)
                ok(cu.cuMemsetD8Async(pointer_of(b), 0, 4, s));
        struct tutti_work *slow = start_on(g, "a", b, s), *w = start_on(quick, "a", c, other);
        ok(cu.cuStreamSynchronize(other));
        expect_floats(c, 2);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
        tutti_work_free(w);
        ck_assert_int_eq(tutti_work_wait(slow, -1), TUTTI_TIMEOUT);
        if (me->rank == 1)
                ok(cu.cuStreamSynchronize(s)); /* it waits for nobody any more */
        replica_say(me, "told");
        replica_hear(me, "end");
        ok(cu.cuStreamSynchronize(s));
        tutti_work_free(slow);
        tutti_buffer_free(b);
        tutti_buffer_free(c);
        leave(me);
}

START_TEST(a_stream_that_never_comes_holds_up_its_own_group_alone) {
        struct replica *r[2];
        char who[32];
        struct host *h = start_with("1", "gpu.signal-timeout=1s");
        replicas_spawn(h, 2, body_silent, NULL, r);
        snprintf(who, sizeof(who), "#%s", replica_listen(r[0], 10));
        replica_listen(r[1], 10);
        fakecuda_hold(control, who, "cuMemsetD8Async");
        for (int i = 0; i < 2; i++)
                replica_tell(r[i], "go");
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "told", 15);
        fakecuda_release(control);
        for (int i = 0; i < 2; i++) {
                replica_tell(r[i], "end");
                ck_assert_int_eq(replica_end(r[i], 20), 0);
        }
        stop(h);
}
END_TEST

/* The worker breaks under a collective: streams go on, the memory is imported again, the next one is well. */
static void body_broken(struct replica *me) {
        use_device(0);
        CUstream s = new_stream();
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b = new_buffer(me->t, me->rank ? TUTTI_CUDA_VMM_FD : TUTTI_CUDA_VMM_MADE);
        fill(b, 1);
        replica_say(me, "ready");
        replica_hear(me, "go");
        struct tutti_work *w = start_on(g, "a", b, s);
        ok(cu.cuStreamSynchronize(s));
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_DEVICE_LOST);
        ck_assert(tutti_work_error(w)->outputs_undefined);
        tutti_work_free(w);
        fill(b, 1);
        w = start_on(g, "a", b, s);
        ok(cu.cuStreamSynchronize(s));
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
        expect_floats(b, 2);
        tutti_work_free(w);
        ck_assert_int_eq(tutti_barrier(g, NULL), TUTTI_OK);
        tutti_buffer_free(b);
        leave(me);
}

START_TEST(E14_streams_go_on_when_the_worker_breaks) {
        struct replica *r[2];
        struct host *h = start("1");
        replicas_spawn(h, 2, body_broken, NULL, r);
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "ready", 10);
        fakecuda_strike(
                control, &(struct fakecuda_strike){
                                 .fault = FAKECUDA_STICKS, .who = "tuttid-gpu", .call = "cuLaunchKernel" });
        for (int i = 0; i < 2; i++)
                replica_tell(r[i], "go");
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 20), 0);
        stop(h);
}
END_TEST

UNIT_MAIN("cuda", 60, E14_streams_go_on_when_the_worker_breaks,
        a_stream_that_never_comes_holds_up_its_own_group_alone,
        TE14_gather_and_reduce_scatter_by_each_kind_of_memory,
        E8_N2_two_replicas_on_one_gpu_by_each_kind_of_memory,
        N4_every_kind_of_memory_and_the_host_in_one_collective, E9_a_device_is_who_it_is_and_not_its_number,
        E9_an_unknown_device_is_told_which_ones_there_are,
        a_collective_waits_for_a_stream_and_the_stream_for_the_result,
        P7_a_collective_that_fails_lets_streams_go_on, a_stream_takes_a_hundred_collectives_in_its_order,
        P9_a_stream_goes_on_when_tuttid_is_killed)
