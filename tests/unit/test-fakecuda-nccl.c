/* The fake NCCL does what the documentation of the real one says: communicators of several devices in one
 * process. */
#include <nccl.h>
#include "fakecuda-room.h"

#define FIELD(name) __typeof__(&name) name;
static struct {
        FAKE_NCCL_CALLS(FIELD)
        __typeof__(&ncclGetLastError) ncclGetLastError;
        void *library;
} nccl;

#define good(call)     ck_assert_int_eq((call), ncclSuccess)
#define bad(call, why) ck_assert_int_eq((call), (why))

enum { MAX = 4 };
static CUcontext contexts[MAX];
static CUstream streams[MAX];
static ncclComm_t comms[MAX];
static CUdeviceptr buffers[MAX];

static void load_nccl(void) {
        char path[512];
        snprintf(path, sizeof(path), "%s/libnccl.so.2", fakecuda_directory());
        nccl.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        ck_assert_msg(nccl.library != NULL, "%s", dlerror());
#define FIND(name)                                                                                           \
        nccl.name = (__typeof__(&name))dlsym(nccl.library, #name);                                           \
        ck_assert_ptr_nonnull((void *)nccl.name);
        FAKE_NCCL_CALLS(FIND)
        FIND(ncclGetLastError)
}

static void begin_nccl(const char *n_devices) {
        begin(n_devices);
        load_nccl();
        for (int i = 0; i < atoi(n_devices); i++) {
                contexts[i] = use(i);
                streams[i] = new_stream();
                buffers[i] = allocate(1024);
        }
}

static void end_nccl(void) {
        ck_assert_int_eq(dlclose(nccl.library), 0);
        end();
}

static void init_all(int n, int blocking) {
        ncclUniqueId id;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = blocking;
        config.commName = "test";
        good(nccl.ncclGetUniqueId(&id));
        good(nccl.ncclGroupStart());
        for (int i = 0; i < n; i++) {
                ok(cu.cuCtxSetCurrent(contexts[i]));
                good(nccl.ncclCommInitRankConfig(&comms[i], n, id, i, &config));
        }
        bad(nccl.ncclGroupEnd(), blocking ? ncclSuccess : ncclInProgress);
}

/* Its state, once it is no longer in progress. */
static ncclResult_t settled(ncclComm_t comm) {
        ncclResult_t state = ncclInProgress;
        for (int i = 0; i < 1000 && state == ncclInProgress; i++) {
                good(nccl.ncclCommGetAsyncError(comm, &state));
                nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        }
        return state;
}

/* What has gone wrong with it, as soon as something has. */
static ncclResult_t trouble(ncclComm_t comm) {
        ncclResult_t state = ncclSuccess;
        for (int i = 0; i < 5000 && (state == ncclSuccess || state == ncclInProgress); i++) {
                good(nccl.ncclCommGetAsyncError(comm, &state));
                nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        }
        return state;
}

static ncclResult_t all_reduce(int n, size_t count, ncclDataType_t type, ncclRedOp_t op) {
        ncclResult_t r = ncclSuccess;
        good(nccl.ncclGroupStart());
        for (int i = 0; i < n && (r == ncclSuccess || r == ncclInProgress); i++) {
                ok(cu.cuCtxSetCurrent(contexts[i]));
                r = nccl.ncclAllReduce((void *)buffers[i], (void *)buffers[i], count, type, op, comms[i],
                        (cudaStream_t)streams[i]);
        }
        ncclResult_t ended = nccl.ncclGroupEnd();
        return r == ncclSuccess ? ended : r;
}

static void fill_floats(int device, float value, int n) {
        float values[256];
        for (int i = 0; i < n; i++)
                values[i] = value + (float)i;
        ok(cu.cuCtxSetCurrent(contexts[device]));
        ok(cu.cuMemcpyHtoD(buffers[device], values, sizeof(float) * (size_t)n));
}

static void synchronize(int n) {
        for (int i = 0; i < n; i++) {
                ok(cu.cuCtxSetCurrent(contexts[i]));
                ok(cu.cuStreamSynchronize(streams[i]));
        }
}

static void assert_floats(int device, float first, float step, int n) {
        float values[256];
        ok(cu.cuCtxSetCurrent(contexts[device]));
        ok(cu.cuMemcpyDtoH(values, buffers[device], sizeof(float) * (size_t)n));
        for (int i = 0; i < n; i++)
                ck_assert_float_eq_tol(values[i], first + step * (float)i, 1e-3);
}

START_TEST(a_communicator_reduces_over_devices) {
        begin_nccl("4");
        init_all(4, 1);
        for (int i = 0; i < 4; i++)
                fill_floats(i, (float)i, 10);
        good(all_reduce(4, 10, ncclFloat32, ncclSum));
        synchronize(4);
        for (int i = 0; i < 4; i++)
                assert_floats(i, 6, 4, 10);
        good(all_reduce(4, 10, ncclFloat32, ncclAvg));
        synchronize(4);
        assert_floats(3, 6, 4, 10);
        end_nccl();
}
END_TEST

static void put(int device, uint64_t word) {
        ok(cu.cuCtxSetCurrent(contexts[device]));
        write_word(buffers[device], word);
}

static uint64_t get(int device) {
        ok(cu.cuCtxSetCurrent(contexts[device]));
        return read_word(buffers[device]);
}

START_TEST(types_and_operations) {
        begin_nccl("2");
        init_all(2, 1);
        uint16_t halves[] = { 0x3c00, 0x4000 }, brains[] = { 0x3f80, 0x4040 };
        for (int i = 0; i < 2; i++)
                put(i, halves[i]);
        good(all_reduce(2, 1, ncclFloat16, ncclSum));
        synchronize(2);
        ck_assert_uint_eq(get(0), 0x4200); /* 1 + 2 */
        for (int i = 0; i < 2; i++)
                put(i, brains[i]);
        good(all_reduce(2, 1, ncclBfloat16, ncclSum));
        synchronize(2);
        ck_assert_uint_eq(get(1), 0x4080); /* 1 + 3 */
        for (int i = 0; i < 2; i++)
                put(i, (uint64_t)i - 1);
        good(all_reduce(2, 1, ncclInt64, ncclMin));
        synchronize(2);
        ck_assert_uint_eq(get(1), UINT64_MAX);
        bad(all_reduce(2, 1, ncclFloat8e4m3, ncclSum), ncclInvalidArgument);
        end_nccl();
}
END_TEST

START_TEST(reduce_and_broadcast_have_roots) {
        begin_nccl("3");
        init_all(3, 1);
        for (int i = 0; i < 3; i++)
                fill_floats(i, (float)(1 + i), 4);
        good(nccl.ncclGroupStart());
        for (int i = 0; i < 3; i++) {
                ok(cu.cuCtxSetCurrent(contexts[i]));
                good(nccl.ncclReduce((void *)buffers[i], (void *)buffers[i], 4, ncclFloat32, ncclMax, 1,
                        comms[i], (cudaStream_t)streams[i]));
        }
        good(nccl.ncclGroupEnd());
        synchronize(3);
        assert_floats(0, 1, 1, 4);
        assert_floats(1, 3, 1, 4);
        good(nccl.ncclGroupStart());
        for (int i = 0; i < 3; i++) {
                ok(cu.cuCtxSetCurrent(contexts[i]));
                good(nccl.ncclBroadcast((void *)buffers[i], (void *)buffers[i], 4, ncclFloat32, 1, comms[i],
                        (cudaStream_t)streams[i]));
        }
        good(nccl.ncclGroupEnd());
        synchronize(3);
        assert_floats(0, 3, 1, 4);
        end_nccl();
}
END_TEST

START_TEST(a_nonblocking_communicator_is_asked_until_it_is_ready) {
        int n;
        begin_nccl("2");
        init_all(2, 0);
        bad(all_reduce(2, 1, ncclFloat32, ncclSum), ncclInvalidUsage); /* too early */
        for (int i = 0; i < 2; i++)
                good(settled(comms[i]));
        bad(all_reduce(2, 1, ncclFloat32, ncclSum), ncclInProgress);
        bad(all_reduce(2, 1, ncclFloat32, ncclSum), ncclInvalidUsage); /* as long as nobody asks again */
        good(settled(comms[0]));
        good(settled(comms[1]));
        synchronize(2);
        good(nccl.ncclCommCount(comms[1], &n));
        ck_assert_int_eq(n, 2);
        good(nccl.ncclCommUserRank(comms[1], &n));
        ck_assert_int_eq(n, 1);
        good(nccl.ncclCommCuDevice(comms[1], &n));
        ck_assert_int_eq(n, 1);
        end_nccl();
}
END_TEST

START_TEST(N2_a_device_twice_is_refused) {
        begin_nccl("2");
        contexts[1] = contexts[0];
        init_all(2, 0);
        bad(settled(comms[0]), ncclInvalidUsage);
        ck_assert_ptr_nonnull(strstr(nccl.ncclGetLastError(comms[0]), "one device"));
        for (int i = 0; i < 2; i++)
                good(nccl.ncclCommAbort(comms[i]));
        end_nccl();
}
END_TEST

START_TEST(several_ranks_of_one_thread_need_a_group) {
        begin_nccl("2");
        init_all(2, 1);
        ok(cu.cuCtxSetCurrent(contexts[0]));
        bad(nccl.ncclAllReduce((void *)buffers[0], (void *)buffers[0], 1, ncclFloat32, ncclSum, comms[0],
                    (cudaStream_t)streams[0]),
                ncclInvalidUsage);
        bad(nccl.ncclGroupEnd(), ncclInvalidUsage);
        end_nccl();
}
END_TEST

START_TEST(streams_and_memory_are_checked) {
        begin_nccl("2");
        init_all(2, 1);
        CUstream right = streams[0];
        streams[0] = streams[1];
        bad(all_reduce(2, 1, ncclFloat32, ncclSum), ncclInvalidArgument);
        streams[0] = right;
        bad(all_reduce(2, 4096, ncclFloat32, ncclSum), ncclInvalidArgument);
        good(all_reduce(2, 0, ncclFloat32, ncclSum));
        synchronize(2);
        end_nccl();
}
END_TEST

START_TEST(halves_wait_for_each_other_in_their_streams) {
        begin_nccl("2");
        init_all(2, 1);
        ok(cu.cuCtxSetCurrent(contexts[1]));
        CUdeviceptr gate = allocate(8);
        write_word(gate, 0);
        ok(cu.cuStreamWaitValue64(streams[1], gate, 1, 0));
        good(all_reduce(2, 1, ncclFloat32, ncclSum));
        a_while();
        ok(cu.cuCtxSetCurrent(contexts[0]));
        is(cu.cuStreamQuery(streams[0]), CUDA_ERROR_NOT_READY);
        ok(cu.cuCtxSetCurrent(contexts[1]));
        ok(cu.cuStreamWriteValue64(NULL, gate, 1, 0));
        synchronize(2);
        end_nccl();
}
END_TEST

START_TEST(halves_that_differ_break_the_communicator) {
        begin_nccl("2");
        init_all(2, 1);
        good(nccl.ncclGroupStart());
        for (int i = 0; i < 2; i++) {
                ok(cu.cuCtxSetCurrent(contexts[i]));
                good(nccl.ncclAllReduce((void *)buffers[i], (void *)buffers[i], (size_t)i + 1, ncclFloat32,
                        ncclSum, comms[i], (cudaStream_t)streams[i]));
        }
        good(nccl.ncclGroupEnd());
        bad(trouble(comms[0]), ncclInvalidUsage);
        for (int i = 0; i < 2; i++)
                good(nccl.ncclCommAbort(comms[i]));
        synchronize(2);
        end_nccl();
}
END_TEST

START_TEST(a_stalled_collective_is_aborted_and_rebuilt) {
        struct fakecuda *f = listen_to_control();
        begin_nccl("2");
        init_all(2, 1);
        fakecuda_strike(
                f, &(struct fakecuda_strike){ .fault = FAKECUDA_STALLS, .call = "ncclAllReduce", .n = 2 });
        good(all_reduce(2, 1, ncclFloat32, ncclSum));
        a_while();
        ok(cu.cuCtxSetCurrent(contexts[0]));
        is(cu.cuStreamQuery(streams[0]), CUDA_ERROR_NOT_READY);
        good(nccl.ncclCommAbort(comms[0]));
        ok(cu.cuStreamSynchronize(streams[0]));
        good(nccl.ncclCommAbort(comms[1]));
        bad(nccl.ncclCommAbort(comms[1]), ncclInvalidArgument);
        synchronize(2);
        init_all(2, 1);
        for (int i = 0; i < 2; i++)
                fill_floats(i, 1, 1);
        good(all_reduce(2, 1, ncclFloat32, ncclSum));
        synchronize(2);
        assert_floats(1, 2, 0, 1);
        end_nccl();
        fakecuda_close(f);
}
END_TEST

START_TEST(an_asynchronous_error_is_reported_by_asking) {
        setenv("FAKECUDA_ASYNC", "ncclAllReduce:1=6", 1);
        begin_nccl("2");
        init_all(2, 1);
        good(all_reduce(2, 1, ncclFloat32, ncclSum));
        bad(settled(comms[0]), ncclRemoteError);
        good(settled(comms[1]));
        ok(cu.cuCtxSetCurrent(contexts[1]));
        is(cu.cuStreamQuery(streams[1]), CUDA_ERROR_NOT_READY);
        for (int i = 0; i < 2; i++)
                good(nccl.ncclCommAbort(comms[i]));
        synchronize(2);
        end_nccl();
}
END_TEST

START_TEST(an_init_that_never_ends_is_aborted) {
        setenv("FAKECUDA_STALL", "ncclCommInitRankConfig:2", 1);
        begin_nccl("2");
        init_all(2, 0);
        good(settled(comms[0]));
        bad(settled(comms[1]), ncclInProgress);
        for (int i = 0; i < 2; i++)
                good(nccl.ncclCommAbort(comms[i]));
        end_nccl();
}
END_TEST

START_TEST(J2_a_communicator_takes_memory_and_gives_it_back) {
        struct fakecuda *f = listen_to_control();
        begin_nccl("2");
        uint64_t before = fakecuda_bytes(f, 1);
        init_all(2, 1);
        ck_assert_uint_eq(fakecuda_bytes(f, 1), before + (64 << 20));
        good(nccl.ncclCommFinalize(comms[1]));
        bad(all_reduce(2, 1, ncclFloat32, ncclSum), ncclInvalidUsage);
        good(nccl.ncclCommDestroy(comms[1]));
        ck_assert_uint_eq(fakecuda_bytes(f, 1), before);
        good(nccl.ncclCommDestroy(comms[0]));
        ck_assert_uint_eq(fakecuda_calls(f, NULL, "ncclCommDestroy"), 2);
        end_nccl();
        fakecuda_close(f);
}
END_TEST

UNIT_MAIN("fakecuda-nccl", 20, a_communicator_reduces_over_devices, types_and_operations,
        reduce_and_broadcast_have_roots, a_nonblocking_communicator_is_asked_until_it_is_ready,
        N2_a_device_twice_is_refused, several_ranks_of_one_thread_need_a_group,
        streams_and_memory_are_checked, halves_wait_for_each_other_in_their_streams,
        halves_that_differ_break_the_communicator, a_stalled_collective_is_aborted_and_rebuilt,
        an_asynchronous_error_is_reported_by_asking, an_init_that_never_ends_is_aborted,
        J2_a_communicator_takes_memory_and_gives_it_back)
