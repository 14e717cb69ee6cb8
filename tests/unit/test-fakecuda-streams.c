/* The fake driver's streams: what runs after what, events, values, launches; and how a test holds work back.
 */
#include <sys/mman.h>
#include "fakecuda-room.h"

/* --- kernels of our own --- */

struct sum {
        uint64_t *to;
        const uint64_t *from;
        uint64_t n;
};

static void run_sum(const void *const *args, const uint32_t grid[3], const uint32_t block[3]) {
        const struct sum *s = args[0];
        for (uint64_t i = 0; i < s->n; i++)
                s->to[i] += s->from[i] + *(const uint32_t *)args[1];
}

static void run_shape(const void *const *args, const uint32_t grid[3], const uint32_t block[3]) {
        **(uint64_t *const *)args[0] = grid[0] + 10 * grid[1] + 100 * grid[2] + 1000 * block[0];
}

static void run_wild(const void *const *args, const uint32_t grid[3], const uint32_t block[3]) {
        volatile uint64_t *volatile nowhere = (volatile uint64_t *)16;
        *nowhere = 1;
}

static const uint32_t sum_bytes[] = { sizeof(struct sum), 4 }, pointer_bytes[] = { 8 };
static const struct fake_kernel kernels[] = {
        { "sum", run_sum, 2, sum_bytes },
        { "shape", run_shape, 1, pointer_bytes },
        { "wild", run_wild, 0, NULL },
};

static CUmodule load_module(void) {
        CUmodule module;
        for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++)
                ck_assert_int_eq(cu.fakecuda_register_kernel(&kernels[i]), 0);
        ok(cu.cuModuleLoadData(&module, ".version 8.0"));
        return module;
}

static CUfunction find(const char *name) {
        CUfunction f;
        ok(cu.cuModuleGetFunction(&f, load_module(), name));
        return f;
}

static CUresult launch(CUfunction f, CUstream stream, void **args) {
        return cu.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, args, NULL);
}

static CUresult launch_sum(CUfunction f, CUstream stream, CUdeviceptr to, CUdeviceptr from) {
        struct sum s = { (uint64_t *)to, (const uint64_t *)from, 1 };
        uint32_t one = 1;
        void *args[] = { &s, &one };
        CUresult r = launch(f, stream, args);
        memset(&s, 0xff, sizeof(s)); /* the parameters were copied */
        one = 77;
        return r;
}

/* A page of slots that device and host see. */
static _Atomic uint64_t *slots;

static CUdeviceptr make_slots(void) {
        slots = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ok(cu.cuMemHostRegister(
                (void *)slots, 4096, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
        return (CUdeviceptr)(uintptr_t)slots;
}

/* --- order --- */

START_TEST(a_stream_runs_in_order) {
        begin("1");
        use(0);
        CUdeviceptr a = allocate(8), b = allocate(8);
        CUfunction sum = find("sum");
        CUstream s = new_stream();
        ok(cu.cuMemsetD32Async(a, 0, 2, s));
        ok(cu.cuMemsetD32Async(b, 0, 2, s));
        for (int i = 0; i < 10; i++) {
                ok(launch_sum(sum, s, a, b));
                ok(cu.cuMemcpyDtoDAsync(b, a, 8, s));
        }
        ok(cu.cuStreamSynchronize(s));
        ck_assert_uint_eq(read_word(a), 1023); /* a' = a + b + 1, b' = a' */
        ok(cu.cuStreamQuery(s));
        end();
}
END_TEST

START_TEST(a_wait_stops_its_stream_alone) {
        begin("1");
        use(0);
        CUdeviceptr page = make_slots();
        CUstream waiting = new_stream(), free_stream = new_stream();
        ok(cu.cuStreamWaitValue64(waiting, page, 5, CU_STREAM_WAIT_VALUE_GEQ));
        ok(cu.cuStreamWriteValue64(waiting, page + 8, 1, 0));
        ok(cu.cuStreamWriteValue64(free_stream, page + 16, 1, 0));
        ok(cu.cuStreamSynchronize(free_stream));
        ck_assert_uint_eq(slots[2], 1);
        a_while();
        is(cu.cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
        slots[0] = 4;
        a_while();
        ck_assert_uint_eq(slots[1], 0);
        slots[0] = 6;
        ok(cu.cuStreamSynchronize(waiting));
        ck_assert_uint_eq(slots[1], 1);
        end();
}
END_TEST

START_TEST(values_are_compared_as_asked) {
        begin("1");
        use(0);
        CUdeviceptr page = make_slots();
        CUstream s = new_stream();
        slots[0] = 3;
        ok(cu.cuStreamWaitValue64(
                s, page, UINT64_MAX, CU_STREAM_WAIT_VALUE_GEQ)); /* in a circle: 3 is after -1 */
        ok(cu.cuStreamWaitValue32(s, page, 3, CU_STREAM_WAIT_VALUE_EQ));
        ok(cu.cuStreamWaitValue64(s, page, 2, CU_STREAM_WAIT_VALUE_AND));
        ok(cu.cuStreamWaitValue32(s, page, 1, CU_STREAM_WAIT_VALUE_NOR));
        ok(cu.cuStreamSynchronize(s));
        ok(cu.cuStreamWaitValue64(s, page, 4, CU_STREAM_WAIT_VALUE_AND));
        a_while();
        is(cu.cuStreamQuery(s), CUDA_ERROR_NOT_READY);
        slots[0] = 4;
        ok(cu.cuStreamSynchronize(s));
        end();
}
END_TEST

START_TEST(values_are_aligned_and_known) {
        begin("1");
        use(0);
        CUdeviceptr page = make_slots();
        CUstream s = new_stream();
        is(cu.cuStreamWaitValue64(s, page + 4, 0, 0), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuStreamWriteValue32(s, page + 2, 0, 0), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuStreamWriteValue64(s, (CUdeviceptr)(uintptr_t)&s & ~7ull, 0, 0), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuStreamWaitValue64(s, page + 4096, 0, 0), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuStreamWaitValue64(s, page, 0, 8), CUDA_ERROR_INVALID_VALUE);
        end();
}
END_TEST

START_TEST(several_values_at_once) {
        begin("1");
        use(0);
        CUdeviceptr page = make_slots();
        CUstream s = new_stream();
        CUstreamBatchMemOpParams ops[2] = {
                { .waitValue = { .operation = CU_STREAM_MEM_OP_WAIT_VALUE_64,
                          .address = page,
                          .value64 = 1 } },
                { .writeValue = { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                          .address = page + 8,
                          .value = 9 } },
        };
        ok(cu.cuStreamBatchMemOp(s, 2, ops, 0));
        a_while();
        ck_assert_uint_eq(slots[1], 0);
        slots[0] = 1;
        ok(cu.cuStreamSynchronize(s));
        ck_assert_uint_eq(slots[1], 9);
        ops[1].writeValue.address++;
        is(cu.cuStreamBatchMemOp(s, 2, ops, 0), CUDA_ERROR_INVALID_VALUE);
        ok(cu.cuStreamQuery(s)); /* all or nothing */
        end();
}
END_TEST

START_TEST(the_legacy_stream_waits_for_blocking_ones) {
        CUstream blocking;
        uint64_t two = 2;
        begin("1");
        use(0);
        CUdeviceptr page = make_slots(), a = allocate(8);
        ok(cu.cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
        ok(cu.cuStreamWaitValue64(blocking, page, 1, 0));
        ok(cu.cuMemsetD8Async(a, 1, 8, blocking));
        ok(cu.cuMemcpyHtoDAsync(a, &two, 8, NULL));
        two = 3; /* pageable: it was read before the call returned */
        is(cu.cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
        slots[0] = 1;
        ck_assert_uint_eq(read_word(a), 2);
        end();
}
END_TEST

START_TEST(a_destroyed_stream_finishes_and_is_known_no_more) {
        begin("1");
        use(0);
        CUdeviceptr page = make_slots();
        CUstream s = new_stream();
        ok(cu.cuStreamWaitValue64(s, page, 1, 0));
        ok(cu.cuStreamWriteValue64(s, page + 8, 1, 0));
        ok(cu.cuStreamDestroy(s));
        is(cu.cuStreamDestroy(s), CUDA_ERROR_INVALID_HANDLE);
        is(cu.cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
        is(cu.cuStreamWriteValue64(s, page, 1, 0), CUDA_ERROR_INVALID_HANDLE);
        slots[0] = 1;
        ok(cu.cuCtxSynchronize());
        ck_assert_uint_eq(slots[1], 1);
        end();
}
END_TEST

static void note_call(void *data) {
        int n;
        *(int *)data = cu.cuDeviceGetCount(&n) == CUDA_ERROR_NOT_PERMITTED ? 1 : 2;
}

START_TEST(a_host_function_runs_in_its_turn_and_may_not_call) {
        int seen = 0;
        begin("1");
        use(0);
        CUdeviceptr page = make_slots();
        CUstream s = new_stream();
        ok(cu.cuStreamWaitValue64(s, page, 1, 0));
        ok(cu.cuLaunchHostFunc(s, note_call, &seen));
        slots[0] = 1;
        ok(cu.cuStreamSynchronize(s));
        ck_assert_int_eq(seen, 1);
        end();
}
END_TEST

/* --- events --- */

static CUevent new_event(unsigned int flags) {
        CUevent e;
        ok(cu.cuEventCreate(&e, flags));
        return e;
}

START_TEST(an_event_orders_streams_of_two_devices) {
        begin("2");
        use(0);
        CUdeviceptr page = make_slots();
        CUstream first = new_stream();
        CUevent e = new_event(CU_EVENT_DISABLE_TIMING);
        ok(cu.cuEventQuery(e)); /* never recorded */
        ok(cu.cuStreamWaitValue64(first, page, 1, 0));
        ok(cu.cuEventRecord(e, first));
        is(cu.cuEventQuery(e), CUDA_ERROR_NOT_READY);
        use(1);
        CUstream second = new_stream();
        ok(cu.cuStreamWaitEvent(second, e, 0));
        ok(cu.cuStreamWriteValue64(second, page + 8, 1, 0));
        is(cu.cuEventRecord(e, second), CUDA_ERROR_INVALID_HANDLE); /* of another context */
        a_while();
        ck_assert_uint_eq(slots[1], 0);
        slots[0] = 1;
        ok(cu.cuStreamSynchronize(second));
        ck_assert_uint_eq(slots[1], 1);
        ok(cu.cuEventSynchronize(e));
        ok(cu.cuEventDestroy(e));
        is(cu.cuEventQuery(e), CUDA_ERROR_INVALID_HANDLE);
        end();
}
END_TEST

START_TEST(a_wait_is_for_the_record_before_it) {
        begin("1");
        use(0);
        CUdeviceptr page = make_slots();
        CUstream s = new_stream(), t = new_stream();
        CUevent e = new_event(CU_EVENT_DISABLE_TIMING);
        ok(cu.cuEventRecord(e, s));
        ok(cu.cuStreamWaitEvent(t, e, 0));
        ok(cu.cuStreamWaitValue64(s, page, 1, 0));
        ok(cu.cuEventRecord(e, s));
        ok(cu.cuStreamSynchronize(t));
        is(cu.cuEventQuery(e), CUDA_ERROR_NOT_READY);
        slots[0] = 1;
        ok(cu.cuEventSynchronize(e));
        end();
}
END_TEST

START_TEST(time_between_events) {
        float ms = -1;
        begin("1");
        use(0);
        CUdeviceptr page = make_slots();
        CUstream s = new_stream();
        CUevent a = new_event(0), b = new_event(0), blind = new_event(CU_EVENT_DISABLE_TIMING);
        ok(cu.cuEventRecord(a, s));
        ok(cu.cuEventSynchronize(a));
        ok(cu.cuStreamWaitValue64(s, page, 1, 0));
        ok(cu.cuEventRecord(b, s));
        ok(cu.cuEventRecord(blind, s));
        is(cu.cuEventElapsedTime(&ms, a, b), CUDA_ERROR_NOT_READY);
        a_while();
        slots[0] = 1;
        ok(cu.cuStreamSynchronize(s));
        ok(cu.cuEventElapsedTime(&ms, a, b));
        ck_assert_float_ge(ms, 29);
        is(cu.cuEventElapsedTime(&ms, a, blind), CUDA_ERROR_INVALID_HANDLE);
        end();
}
END_TEST

static void record_later(int fd) {
        CUipcEventHandle handle;
        char byte;
        begin("1");
        use(0);
        CUdeviceptr page = make_slots();
        CUstream s = new_stream();
        CUevent e = new_event(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
        ok(cu.cuIpcGetEventHandle(&handle, e));
        ok(cu.cuStreamWaitValue64(s, page, 1, 0));
        ok(cu.cuEventRecord(e, s));
        send_bytes(fd, &handle, sizeof(handle));
        receive_bytes(fd, &byte, 1);
        slots[0] = 1;
        wait_for_end(fd);
}

START_TEST(an_event_orders_processes) {
        CUipcEventHandle handle;
        CUevent e;
        struct other other = start_other(record_later);
        begin("1");
        use(0);
        CUdeviceptr page = make_slots();
        CUstream s = new_stream();
        receive_bytes(other.fd, &handle, sizeof(handle));
        ok(cu.cuIpcOpenEventHandle(&e, handle));
        ok(cu.cuStreamWaitEvent(s, e, 0));
        ok(cu.cuStreamWriteValue64(s, page, 1, 0));
        a_while();
        is(cu.cuEventQuery(e), CUDA_ERROR_NOT_READY);
        ck_assert_uint_eq(slots[0], 0);
        send_bytes(other.fd, "", 1);
        ok(cu.cuStreamSynchronize(s));
        ck_assert_uint_eq(slots[0], 1);
        ok(cu.cuEventSynchronize(e));
        end_other(&other);
        end();
}
END_TEST

START_TEST(an_event_of_one_process_has_no_handle) {
        CUipcEventHandle handle;
        CUevent e;
        begin("1");
        use(0);
        is(cu.cuEventCreate(&e, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuIpcGetEventHandle(&handle, new_event(CU_EVENT_DISABLE_TIMING)), CUDA_ERROR_INVALID_HANDLE);
        ok(cu.cuIpcGetEventHandle(&handle, new_event(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)));
        is(cu.cuIpcOpenEventHandle(&e, handle), CUDA_ERROR_INVALID_CONTEXT);
        end();
}
END_TEST

/* --- launches --- */

START_TEST(launches_are_checked) {
        CUfunction none;
        CUmodule module;
        size_t offset, n_bytes;
        int n_blocks;
        begin("2");
        use(0);
        is(cu.cuModuleLoadData(&module, "nonsense"), CUDA_ERROR_INVALID_IMAGE);
        CUfunction shape = find("shape");
        is(cu.cuModuleGetFunction(&none, load_module(), "no such kernel"), CUDA_ERROR_NOT_FOUND);
        CUdeviceptr page = make_slots();
        void *args[] = { &page };
        ok(cu.cuLaunchKernel(shape, 2, 3, 4, 32, 1, 1, 0, NULL, args, NULL));
        ok(cu.cuCtxSynchronize());
        ck_assert_uint_eq(slots[0], 32432);
        is(cu.cuLaunchKernel(shape, 1, 1, 1, 1025, 1, 1, 0, NULL, args, NULL), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuLaunchKernel(shape, 0, 1, 1, 1, 1, 1, 0, NULL, args, NULL), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuLaunchKernel(shape, 1, 1, 1, 1, 1, 1, 64 << 10, NULL, args, NULL), CUDA_ERROR_INVALID_VALUE);
        ok(cu.cuFuncSetAttribute(shape, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 << 10));
        ok(cu.cuLaunchKernel(shape, 1, 1, 1, 1, 1, 1, 64 << 10, NULL, args, NULL));
        ok(cu.cuFuncGetParamInfo(find("sum"), 1, &offset, &n_bytes));
        ck_assert_uint_eq(offset, 24);
        ck_assert_uint_eq(n_bytes, 4);
        ok(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&n_blocks, shape, 256, 0));
        ck_assert_int_eq(n_blocks, 8);
        use(1);
        is(launch(shape, NULL, args), CUDA_ERROR_INVALID_HANDLE); /* a module of the other context */
        end();
}
END_TEST

START_TEST(a_kernel_of_a_library_runs_everywhere) {
        CUlibrary library;
        CUkernel kernel;
        CUfunction f;
        begin("2");
        use(0);
        CUdeviceptr page = make_slots();
        void *args[] = { &page };
        load_module();
        ok(cu.cuLibraryLoadData(&library, ".version 8.0", NULL, NULL, 0, NULL, NULL, 0));
        ok(cu.cuLibraryGetKernel(&kernel, library, "shape"));
        use(1);
        CUlaunchConfig c = {
                .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1
        };
        ok(cu.cuLaunchKernelEx(&c, (CUfunction)kernel, args, NULL));
        ok(cu.cuCtxSynchronize());
        ck_assert_uint_eq(slots[0], 1111);
        ok(cu.cuKernelGetFunction(&f, kernel));
        ok(cu.cuLibraryUnload(library));
        is(launch(f, NULL, args), CUDA_ERROR_INVALID_HANDLE);
        end();
}
END_TEST

static void assert_illegal(CUstream s) {
        CUdeviceptr p;
        is(cu.cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
        is(cu.cuMemAlloc(&p, 8), CUDA_ERROR_ILLEGAL_ADDRESS); /* it sticks */
        is(cu.cuStreamQuery(s), CUDA_ERROR_ILLEGAL_ADDRESS);
}

START_TEST(E14_a_wild_access_sticks) {
        begin("1");
        use(0);
        CUstream s = new_stream();
        ok(launch(find("wild"), s, NULL));
        assert_illegal(s);
        end();
}
END_TEST

START_TEST(E14_memory_without_peer_access_is_an_illegal_address) {
        begin("2");
        CUcontext zero = use(0);
        CUdeviceptr there = allocate(8);
        use(1);
        CUdeviceptr here = allocate(8);
        CUfunction sum = find("sum");
        CUstream s = new_stream();
        ok(cu.cuCtxEnablePeerAccess(zero, 0));
        ok(launch_sum(sum, s, here, there));
        ok(cu.cuStreamSynchronize(s));
        ok(cu.cuCtxDisablePeerAccess(zero));
        ok(launch_sum(sum, s, here, there));
        assert_illegal(s);
        end();
}
END_TEST

START_TEST(E14_host_memory_that_no_device_knows_is_an_illegal_address) {
        static uint64_t word;
        begin("1");
        use(0);
        CUstream s = new_stream();
        ok(launch_sum(find("sum"), s, allocate(8), (CUdeviceptr)(uintptr_t)&word));
        assert_illegal(s);
        end();
}
END_TEST

START_TEST(E14_memory_that_goes_under_a_wait_is_an_illegal_address) {
        begin("1");
        use(0);
        CUdeviceptr page = make_slots();
        CUstream s = new_stream();
        ok(cu.cuStreamWaitValue64(s, page, 1, 0));
        ok(cu.cuMemHostUnregister((void *)slots));
        munmap((void *)slots, 4096);
        assert_illegal(s);
        end();
}
END_TEST

/* --- held back --- */

START_TEST(work_is_held_back_and_let_go) {
        struct fakecuda *f = listen_to_control();
        begin("1");
        use(0);
        CUdeviceptr page = make_slots();
        CUstream s = new_stream(), t = new_stream();
        fakecuda_hold(f, NULL, "cuStreamWriteValue64");
        ok(cu.cuStreamWriteValue64(s, page, 1, 0));
        ok(cu.cuStreamWriteValue64(s, page + 8, 1, 0));
        ok(cu.cuStreamWriteValue32(t, page + 16, 1, 0));
        ok(cu.cuStreamSynchronize(t)); /* other calls are not held */
        ck_assert(fakecuda_wait_held(f, NULL, 1, 5));
        fakecuda_let(f, 1);
        while (!slots[0])
                a_while();
        a_while();
        ck_assert_uint_eq(slots[1], 0);
        fakecuda_release(f);
        ok(cu.cuStreamSynchronize(s));
        ck_assert_uint_eq(slots[1], 1);
        ck_assert_uint_eq(fakecuda_held(f, NULL), 0);
        end();
        fakecuda_close(f);
}
END_TEST

/* Three streams write the same word; whoever is last is read. */
static uint64_t last_of_three(struct fakecuda *f, enum fakecuda_order order) {
        CUstream s[3] = { new_stream(), new_stream(), new_stream() };
        fakecuda_set_order(f, order);
        fakecuda_hold(f, NULL, NULL);
        for (int i = 0; i < 3; i++)
                ok(cu.cuStreamWriteValue64(s[i], (CUdeviceptr)(uintptr_t)slots, (uint64_t)i, 0));
        ck_assert(fakecuda_wait_held(f, NULL, 3, 5));
        fakecuda_release(f);
        for (int i = 0; i < 3; i++)
                ok(cu.cuStreamSynchronize(s[i]));
        return slots[0];
}

START_TEST(streams_are_taken_in_the_order_asked_for) {
        struct fakecuda *f = listen_to_control();
        begin("1");
        use(0);
        make_slots();
        ck_assert_uint_eq(last_of_three(f, FAKECUDA_OLDEST), 2);
        ck_assert_uint_eq(last_of_three(f, FAKECUDA_NEWEST), 0);
        end();
        fakecuda_close(f);
}
END_TEST

UNIT_MAIN("fakecuda-streams", 10, a_stream_runs_in_order, a_wait_stops_its_stream_alone,
        values_are_compared_as_asked, values_are_aligned_and_known, several_values_at_once,
        the_legacy_stream_waits_for_blocking_ones, a_destroyed_stream_finishes_and_is_known_no_more,
        a_host_function_runs_in_its_turn_and_may_not_call, an_event_orders_streams_of_two_devices,
        a_wait_is_for_the_record_before_it, time_between_events, an_event_orders_processes,
        an_event_of_one_process_has_no_handle, launches_are_checked, a_kernel_of_a_library_runs_everywhere,
        E14_a_wild_access_sticks, E14_memory_without_peer_access_is_an_illegal_address,
        E14_host_memory_that_no_device_knows_is_an_illegal_address,
        E14_memory_that_goes_under_a_wait_is_an_illegal_address, work_is_held_back_and_let_go,
        streams_are_taken_in_the_order_asked_for)
