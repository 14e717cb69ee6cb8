/* What is registered is opened once (E4): a submission makes no call of the driver that opens, maps, makes or
 * frees anything, on no side, by none of the ways in which device memory comes. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/cuda.h>
#include <unistd.h>
#include "gpu-host.h"
#include "meeting.h"
#include "unit.h"

#define N_WARM 4
#define N_RUNS 100

/* Everything that memory, handles, streams and events come and go by. */
static const char *const costly[] = { "cuIpcOpenMemHandle", "cuIpcCloseMemHandle", "cuIpcGetMemHandle",
        "cuMemImportFromShareableHandle", "cuMemExportToShareableHandle", "cuMemMap", "cuMemUnmap",
        "cuMemSetAccess", "cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate", "cuMemRelease",
        "cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemFreeHost", "cuMemHostRegister",
        "cuMemHostUnregister", "cuStreamCreate", "cuStreamDestroy", "cuEventCreate", "cuEventDestroy",
        "cuModuleLoadData", "cuMemGetAddressRange" };

#define N_COSTLY (sizeof(costly) / sizeof(costly[0]))

static void count(uint64_t ret[N_COSTLY]) {
        for (size_t i = 0; i < N_COSTLY; i++)
                ret[i] = fakecuda_calls(gpu_control, NULL, costly[i]);
}

/* Where a replica's memory comes from, and whether its stream waits. */
enum origin { MADE_BY_TUTTID, ON_A_STREAM, OF_CUDA_MALLOC };

static struct tutti_buffer *take(struct replica *me, enum origin origin) {
        struct tutti_buffer *b = NULL;
        CUdeviceptr at;
        if (origin != OF_CUDA_MALLOC)
                return gpu_take_buffer(me->t, GPU_COUNT);
        tutti_buffer_free(gpu_take_buffer(me->t, 1)); /* the devices are there */
        ck_assert_int_eq(gpu_cu.cuMemAlloc(&at, GPU_COUNT * sizeof(float)), CUDA_SUCCESS);
        enum tutti_status status =
                tutti_cuda_buffer_register(me->t, (void *)(uintptr_t)at, GPU_COUNT * sizeof(float), NULL, &b);
        ck_assert_msg(status == TUTTI_OK, "%s", tutti_error());
        ck_assert_int_eq(tutti_cuda_buffer_path(b, NULL), TUTTI_CUDA_IPC);
        return b;
}

static void meet(struct tutti_group *g, struct tutti_buffer *b, CUstream stream) {
        struct tutti_value v =
                TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { GPU_COUNT });
        struct tutti_work *w;
        ck_assert_msg(tutti_all_reduce_start(g, NULL, TUTTI_SUM, &v, &v,
                              &TUTTI_OPTIONS(.has_stream = stream != NULL, .stream = stream), &w) == TUTTI_OK,
                "%s", tutti_error());
        if (stream)
                ck_assert_int_eq(gpu_cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
        ck_assert_msg(tutti_work_wait(w, -1) == TUTTI_OK, "%s", tutti_work_error(w)->text);
        tutti_work_free(w);
}

static void meet_again_and_again(struct replica *me) {
        enum origin origin = *(const enum origin *)me->arg;
        gpu_use_device((int)me->rank % 2);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b = take(me, origin);
        CUstream stream = NULL;
        if (origin == ON_A_STREAM) {
                ck_assert_int_eq(gpu_cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
                ck_assert_int_eq(tutti_cuda_order(me->t, NULL), TUTTI_CUDA_TIMELINE);
        }
        for (int i = 0; i < N_WARM; i++)
                meet(g, b, stream);
        replica_say(me, "warm");
        replica_hear(me, "go");
        for (int i = 0; i < N_RUNS; i++)
                meet(g, b, stream);
        replica_say(me, "done");
        replica_hear(me, "end");
        if (stream)
                ck_assert_int_eq(gpu_cu.cuStreamDestroy(stream), CUDA_SUCCESS);
        gpu_leave(me, b);
}

static void hear_all(struct replica *r[4], const char *text) {
        for (int i = 0; i < 4; i++)
                replica_expect(r[i], text, 60);
}

static void tell_all(struct replica *r[4], const char *text) {
        for (int i = 0; i < 4; i++)
                replica_tell(r[i], text);
}

static void check_origin(enum origin origin) {
        uint64_t before[N_COSTLY], after[N_COSTLY];
        struct replica *r[4];
        struct host *h = gpu_host_start("2", (const char *[]){ "--set", "gpu.ipc=yes", NULL });
        replicas_spawn(h, 4, meet_again_and_again, &origin, r);
        hear_all(r, "warm");
        count(before);
        uint64_t launches = fakecuda_calls(gpu_control, "tuttid-gpu", "cuLaunchKernel");
        tell_all(r, "go");
        hear_all(r, "done");
        count(after);
        for (size_t i = 0; i < N_COSTLY; i++)
                ck_assert_msg(after[i] == before[i], "%s was called %llu times in %d collectives", costly[i],
                        (unsigned long long)(after[i] - before[i]), N_RUNS);
        ck_assert_uint_ge(fakecuda_calls(gpu_control, "tuttid-gpu", "cuLaunchKernel"), launches + N_RUNS);
        tell_all(r, "end");
        for (int i = 0; i < 4; i++)
                ck_assert_int_eq(replica_end(r[i], 30), 0);
        gpu_host_stop(h);
}

START_TEST(E4_a_cached_submission_opens_nothing_of_memory_that_tuttid_made) {
        check_origin(MADE_BY_TUTTID);
}
END_TEST

START_TEST(E4_a_cached_submission_opens_nothing_where_streams_wait) {
        check_origin(ON_A_STREAM);
}
END_TEST

START_TEST(E4_a_cached_submission_opens_nothing_of_legacy_handles) {
        check_origin(OF_CUDA_MALLOC);
}
END_TEST

/* --- from connecting to the first result --- */

#define N_CONNECTS     9
#define FIRST_RESULT_S 0.1 /* of which ten times is asserted */

static int compare_doubles(const void *a, const void *b) {
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

/* Everything that a trainer does first, but for making its context. */
static double connect_and_reduce(struct replica *me) {
        double begun = seconds_now();
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b = gpu_take_buffer(me->t, GPU_COUNT);
        gpu_fill(b, (float)me->rank);
        ck_assert_msg(gpu_reduce(g, "first", b, GPU_COUNT) == TUTTI_OK, "%s", tutti_error());
        double took = seconds_now() - begun;
        gpu_expect(b, 1, 2);
        tutti_buffer_free(b);
        tutti_close(me->t);
        me->t = NULL;
        return took;
}

static void connect_again_and_again(struct replica *me) {
        double took[N_CONNECTS];
        gpu_use_device((int)me->rank);
        for (int i = 0; i < N_CONNECTS; i++)
                took[i] = connect_and_reduce(me);
        qsort(took, N_CONNECTS, sizeof(*took), compare_doubles);
        printf("# J1: R%u from connecting to the first result on a fake GPU: p50 %.2f ms, most %.2f ms\n",
                me->rank, took[N_CONNECTS / 2] * 1e3, took[N_CONNECTS - 1] * 1e3);
        ck_assert_double_lt(took[N_CONNECTS / 2], 10 * FIRST_RESULT_S * unit_scale());
        replica_open(me);
        gpu_leave(me, NULL);
}

START_TEST(J1_the_first_result_on_a_GPU_is_there_soon_after_connecting) {
        struct host *h = gpu_host_start("2", NULL);
        run_replicas(h, 2, connect_again_and_again, NULL);
        gpu_host_stop(h);
}
END_TEST

UNIT_MAIN("gpu-cached", 120, E4_a_cached_submission_opens_nothing_of_memory_that_tuttid_made,
        E4_a_cached_submission_opens_nothing_where_streams_wait,
        E4_a_cached_submission_opens_nothing_of_legacy_handles,
        J1_the_first_result_on_a_GPU_is_there_soon_after_connecting)
