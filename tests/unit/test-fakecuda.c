/* The fake driver does what the documentation of the real one says: devices, contexts, pointers, peers. */
#include "fakecuda-room.h"

START_TEST(nothing_works_before_init) {
        int n;
        fakecuda_load(&cu);
        is(cu.cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
        is(cu.cuInit(1), CUDA_ERROR_INVALID_VALUE);
        ok(cu.cuInit(0));
        ok(cu.cuInit(0));
        ok(cu.cuDeviceGetCount(&n));
        ck_assert_int_eq(n, 1);
        end();
}
END_TEST

START_TEST(a_host_without_devices_says_so) {
        setenv("FAKECUDA_DEVICES", "0", 1);
        fakecuda_load(&cu);
        is(cu.cuInit(0), CUDA_ERROR_NO_DEVICE);
        end();
}
END_TEST

START_TEST(functions_are_found_by_name_and_version) {
        CUdriverProcAddressQueryResult status;
        void *at;
        begin("1");
        ok(cu.cuGetProcAddress("cuMemMap", &at, 12000, 0, &status));
        ck_assert_ptr_eq(at, (void *)cu.cuMemMap);
        ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SUCCESS);
        ok(cu.cuGetProcAddress("cuMemMap", &at, 9000, 0, &status));
        ck_assert_ptr_null(at);
        ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
        ok(cu.cuGetProcAddress("cuNoSuchThing", &at, 12000, 0, &status));
        ck_assert_ptr_null(at);
        ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
        is(cu.cuGetProcAddress("cuMemMap", &at, CUDA_VERSION + 10, 0, &status), CUDA_ERROR_INVALID_VALUE);
        end();
}
END_TEST

START_TEST(errors_have_names) {
        const char *text;
        fakecuda_load(&cu);
        ok(cu.cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
        ck_assert_str_eq(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
        ok(cu.cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
        ck_assert_str_eq(text, "illegal address");
        is(cu.cuGetErrorName((CUresult)4711, &text), CUDA_ERROR_INVALID_VALUE);
        ck_assert_ptr_null(text);
        end();
}
END_TEST

/* The last byte of the UUID is the number that the host gives the device. */
static int physical(int device) {
        CUuuid u;
        ok(cu.cuDeviceGetUuid(&u, device));
        return u.bytes[15];
}

START_TEST(E9_visible_devices_are_numbered_as_listed) {
        int n;
        setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
        begin("4");
        ok(cu.cuDeviceGetCount(&n));
        ck_assert_int_eq(n, 2);
        ck_assert_int_eq(physical(0), 2);
        ck_assert_int_eq(physical(1), 0);
        CUdevice device;
        is(cu.cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
        end();
}
END_TEST

START_TEST(E9_visible_devices_by_uuid_end_at_the_first_that_is_none) {
        int n;
        setenv("CUDA_VISIBLE_DEVICES", "GPU-66616b65-0000-4000-8000-000000000003,9,1", 1);
        begin("4");
        ok(cu.cuDeviceGetCount(&n));
        ck_assert_int_eq(n, 1);
        ck_assert_int_eq(physical(0), 3);
        end();
}
END_TEST

START_TEST(devices_tell_what_they_are) {
        char name[32], bus[16];
        int value;
        size_t n_bytes;
        CUdevice device;
        begin("2");
        ok(cu.cuDeviceGetName(name, sizeof(name), 1));
        ck_assert_str_eq(name, "Fake GPU");
        ok(cu.cuDeviceGetPCIBusId(bus, sizeof(bus), 1));
        ok(cu.cuDeviceGetByPCIBusId(&device, bus));
        ck_assert_int_eq(device, 1);
        ok(cu.cuDeviceTotalMem(&n_bytes, 0));
        ck_assert_uint_eq(n_bytes, 16ull << 30);
        ok(cu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
        ck_assert_int_eq(value, 9);
        is(cu.cuDeviceGetAttribute(&value, (CUdevice_attribute)0, 0), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuDeviceGetName(name, sizeof(name), 2), CUDA_ERROR_INVALID_DEVICE);
        end();
}
END_TEST

START_TEST(calls_without_a_context_are_refused) {
        CUdeviceptr p;
        CUcontext c, current;
        begin("1");
        is(cu.cuMemAlloc(&p, 8), CUDA_ERROR_INVALID_CONTEXT);
        ok(cu.cuDevicePrimaryCtxRetain(&c, 0));
        ok(cu.cuCtxPushCurrent(c));
        ok(cu.cuMemAlloc(&p, 8));
        ok(cu.cuCtxPopCurrent(&current));
        ck_assert_ptr_eq(current, c);
        is(cu.cuCtxPopCurrent(&current), CUDA_ERROR_INVALID_CONTEXT);
        is(cu.cuMemAlloc(&p, 8), CUDA_ERROR_INVALID_CONTEXT);
        end();
}
END_TEST

START_TEST(a_primary_context_lives_until_its_last_release) {
        unsigned int flags;
        int is_active;
        CUdeviceptr p;
        begin("1");
        CUcontext c = use(0);
        ck_assert_ptr_eq(use(0), c);
        ok(cu.cuDevicePrimaryCtxRelease(0));
        p = allocate(8);
        ok(cu.cuDevicePrimaryCtxRelease(0));
        ok(cu.cuDevicePrimaryCtxGetState(0, &flags, &is_active));
        ck_assert_int_eq(is_active, 0);
        is(cu.cuMemFree(p), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        is(cu.cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
        is(cu.cuCtxSetCurrent(c), CUDA_ERROR_INVALID_CONTEXT);
        ck_assert_ptr_eq(use(0), c);
        is(cu.cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
        end();
}
END_TEST

START_TEST(peers_are_a_matrix) {
        int can;
        setenv("FAKECUDA_PEERS", "0-1,2-3", 1);
        begin("4");
        CUcontext zero = use(0), two = use(2), one = use(1);
        ok(cu.cuDeviceCanAccessPeer(&can, 0, 1));
        ck_assert_int_eq(can, 1);
        ok(cu.cuDeviceCanAccessPeer(&can, 1, 2));
        ck_assert_int_eq(can, 0);
        ok(cu.cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 2, 3));
        ck_assert_int_eq(can, 1);
        ok(cu.cuCtxEnablePeerAccess(zero, 0));
        is(cu.cuCtxEnablePeerAccess(zero, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        is(cu.cuCtxEnablePeerAccess(two, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        is(cu.cuCtxEnablePeerAccess(one, 0), CUDA_ERROR_INVALID_CONTEXT);
        is(cu.cuCtxDisablePeerAccess(two), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        ok(cu.cuCtxDisablePeerAccess(zero));
        end();
}
END_TEST

START_TEST(E10_after_fork_nothing_works) {
        int status, n;
        begin("1");
        pid_t pid = fork();
        if (pid == 0)
                _exit(cu.cuDeviceGetCount(&n) == CUDA_ERROR_NOT_INITIALIZED &&
                                        cu.cuInit(0) == CUDA_ERROR_NOT_INITIALIZED
                                ? 0
                                : 1);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
        ok(cu.cuDeviceGetCount(&n));
        end();
}
END_TEST

UNIT_MAIN("fakecuda", 10, nothing_works_before_init, a_host_without_devices_says_so,
        functions_are_found_by_name_and_version, errors_have_names, E9_visible_devices_are_numbered_as_listed,
        E9_visible_devices_by_uuid_end_at_the_first_that_is_none, devices_tell_what_they_are,
        calls_without_a_context_are_refused, a_primary_context_lives_until_its_last_release,
        peers_are_a_matrix, E10_after_fork_nothing_works)
