/* The fake driver's memory: allocations, mappings, host memory, pointers; and what of it other processes see.
 */
#include <sys/mman.h>
#include "fakecuda-room.h"

enum { GRANULE = 2 << 20 };

START_TEST(copies_go_through_the_device) {
        char out[100], in[100];
        memset(in, 7, sizeof(in));
        begin("1");
        use(0);
        CUdeviceptr a = allocate(sizeof(in)), b = allocate(sizeof(in)), base;
        size_t n_bytes;
        ok(cu.cuMemcpyHtoD(a, in, sizeof(in)));
        ok(cu.cuMemcpyDtoD(b, a, sizeof(in)));
        ok(cu.cuMemcpyDtoH(out, b, sizeof(in)));
        ck_assert_mem_eq(in, out, sizeof(in));
        ok(cu.cuMemGetAddressRange(&base, &n_bytes, a + 50));
        ck_assert_uint_eq(base, a);
        ck_assert_uint_eq(n_bytes, sizeof(in));
        is(cu.cuMemcpyDtoD(b, a, sizeof(in) + 1), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuMemcpyHtoD((CUdeviceptr)(uintptr_t)out, in, 4), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuMemFree(a + 8), CUDA_ERROR_INVALID_VALUE);
        ok(cu.cuMemFree(a));
        is(cu.cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuMemGetAddressRange(&base, &n_bytes, a), CUDA_ERROR_NOT_FOUND);
        is(cu.cuMemAlloc(&a, 0), CUDA_ERROR_INVALID_VALUE);
        end();
}
END_TEST

START_TEST(fills) {
        begin("1");
        use(0);
        CUdeviceptr a = allocate(16);
        ok(cu.cuMemsetD8(a, 0xab, 16));
        ck_assert_uint_eq(read_word(a + 8), 0xabababababababab);
        ok(cu.cuMemsetD32(a + 4, 0x01020304, 1));
        ck_assert_uint_eq(read_word(a), 0x01020304abababab);
        is(cu.cuMemsetD32(a + 2, 1, 1), CUDA_ERROR_INVALID_VALUE);
        end();
}
END_TEST

START_TEST(a_device_is_full_at_some_time) {
        size_t n_free, n_total;
        CUdeviceptr p;
        setenv("FAKECUDA_MEMORY", "1048576", 1);
        begin("1");
        use(0);
        CUdeviceptr a = allocate(1000000);
        ok(cu.cuMemGetInfo(&n_free, &n_total));
        ck_assert_uint_eq(n_total, 1048576);
        ck_assert_uint_lt(n_free, 48577);
        is(cu.cuMemAlloc(&p, 100000), CUDA_ERROR_OUT_OF_MEMORY);
        ok(cu.cuMemFree(a));
        ok(cu.cuMemAlloc(&p, 100000));
        end();
}
END_TEST

/* --- virtual memory management --- */

static CUmemAllocationProp on_device(int device) {
        return (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device } };
}

static CUmemGenericAllocationHandle create(int device, size_t n_bytes) {
        CUmemAllocationProp prop = on_device(device);
        CUmemGenericAllocationHandle h;
        ok(cu.cuMemCreate(&h, n_bytes, &prop, 0));
        return h;
}

static CUmemAccessDesc access_of(int device, CUmemAccess_flags flags) {
        return (CUmemAccessDesc){ .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device },
                .flags = flags };
}

static CUdeviceptr map(CUmemGenericAllocationHandle h, size_t n_bytes, int device) {
        CUmemAccessDesc desc = access_of(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        CUdeviceptr at;
        ok(cu.cuMemAddressReserve(&at, n_bytes, 0, 0, 0));
        ok(cu.cuMemMap(at, n_bytes, 0, h, 0));
        ok(cu.cuMemSetAccess(at, n_bytes, &desc, 1));
        return at;
}

START_TEST(sizes_and_places_of_mappings_are_checked) {
        CUmemAllocationProp prop = on_device(0);
        CUmemGenericAllocationHandle h;
        size_t granule;
        CUdeviceptr at;
        begin("1");
        use(0);
        ok(cu.cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        ck_assert_uint_eq(granule, GRANULE);
        is(cu.cuMemCreate(&h, 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuMemAddressReserve(&at, 4096, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
        h = create(0, GRANULE);
        ok(cu.cuMemAddressReserve(&at, 3 * GRANULE, 0, 0, 0));
        ck_assert_uint_eq(at % GRANULE, 0);
        is(cu.cuMemMap(at, 4096, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuMemMap(at + 4096, GRANULE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuMemMap(at, 2 * GRANULE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuMemMap(at, GRANULE, GRANULE, h, 0), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuMemMap(at + 3 * GRANULE, GRANULE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
        ok(cu.cuMemMap(at, GRANULE, 0, h, 0));
        is(cu.cuMemMap(at, GRANULE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuMemAddressFree(at, 3 * GRANULE), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuMemUnmap(at, 2 * GRANULE), CUDA_ERROR_INVALID_VALUE);
        ok(cu.cuMemUnmap(at, GRANULE));
        is(cu.cuMemUnmap(at, GRANULE), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuMemAddressFree(at, GRANULE), CUDA_ERROR_INVALID_VALUE);
        ok(cu.cuMemAddressFree(at, 3 * GRANULE));
        ok(cu.cuMemRelease(h));
        is(cu.cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);
        end();
}
END_TEST

START_TEST(a_mapping_is_closed_until_access_is_set) {
        CUmemAccessDesc mine = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READ),
                        theirs = access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        CUdeviceptr at;
        unsigned long long flags;
        setenv("FAKECUDA_PEERS", "none", 1);
        begin("2");
        use(0);
        CUmemGenericAllocationHandle h = create(0, GRANULE);
        ok(cu.cuMemAddressReserve(&at, GRANULE, 0, 0, 0));
        is(cu.cuMemSetAccess(at, GRANULE, &mine, 1), CUDA_ERROR_INVALID_VALUE);
        ok(cu.cuMemMap(at, GRANULE, 0, h, 0));
        is(cu.cuMemsetD8(at, 1, 8), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuMemSetAccess(at, GRANULE, &theirs, 1), CUDA_ERROR_INVALID_DEVICE);
        ok(cu.cuMemSetAccess(at, GRANULE, &mine, 1));
        is(cu.cuMemsetD8(at, 1, 8), CUDA_ERROR_INVALID_VALUE);
        ck_assert_uint_eq(read_word(at), 0);
        ok(cu.cuMemGetAccess(&flags, &mine.location, at));
        ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
        mine.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        ok(cu.cuMemSetAccess(at, GRANULE, &mine, 1));
        ok(cu.cuMemsetD8(at, 1, 8));
        end();
}
END_TEST

START_TEST(memory_lives_as_long_as_a_handle_or_a_mapping) {
        CUmemGenericAllocationHandle again;
        CUmemAllocationProp prop;
        struct fakecuda *f = listen_to_control();
        begin("1");
        use(0);
        CUmemGenericAllocationHandle h = create(0, GRANULE);
        CUdeviceptr at = map(h, GRANULE, 0), plain = allocate(8);
        ok(cu.cuMemRelease(h));
        ok(cu.cuMemFree(plain));
        write_word(at, 42);
        ok(cu.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + 100)));
        ok(cu.cuMemGetAllocationPropertiesFromHandle(&prop, again));
        ck_assert_int_eq(prop.location.id, 0);
        ok(cu.cuMemUnmap(at, GRANULE));
        ck_assert_uint_eq(fakecuda_bytes(f, 0), GRANULE);
        ok(cu.cuMemMap(at, GRANULE, 0, again, 0));
        CUmemAccessDesc desc = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        ok(cu.cuMemSetAccess(at, GRANULE, &desc, 1));
        ck_assert_uint_eq(read_word(at), 42);
        ok(cu.cuMemUnmap(at, GRANULE));
        ok(cu.cuMemRelease(again));
        ck_assert_uint_eq(fakecuda_bytes(f, 0), 0);
        end();
        fakecuda_close(f);
}
END_TEST

static void export_a_block(int fd) {
        int block;
        begin("2");
        use(1);
        CUmemGenericAllocationHandle h = create(1, GRANULE);
        CUdeviceptr at = map(h, GRANULE, 1);
        write_word(at + 8, 4711);
        ok(cu.cuMemExportToShareableHandle(&block, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        send_descriptor(fd, block);
        close(block);
        wait_for_end(fd);
        ck_assert_uint_eq(read_word(at + 16), 4712);
}

START_TEST(E7_memory_travels_as_a_descriptor) {
        CUmemGenericAllocationHandle h, second;
        struct fakecuda *f = listen_to_control();
        struct other other = start_other(export_a_block);
        begin("2");
        int fd = receive_descriptor(other.fd);
        use(1);
        void *os = (void *)(uintptr_t)fd;
        ok(cu.cuMemImportFromShareableHandle(&h, os, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        ok(cu.cuMemImportFromShareableHandle(&second, os, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        close(fd);
        CUdeviceptr at = map(h, GRANULE, 1);
        ck_assert_uint_eq(read_word(at + 8), 4711);
        write_word(at + 16, 4712);
        ck_assert_uint_eq(fakecuda_bytes(f, 1), GRANULE); /* once, whoever holds it */
        ck_assert_uint_eq(fakecuda_bytes(f, 0), 0);
        end_other(&other);
        ck_assert_uint_eq(fakecuda_bytes(f, 1), GRANULE);
        ok(cu.cuMemRelease(second));
        ok(cu.cuMemRelease(h));
        ok(cu.cuMemUnmap(at, GRANULE));
        ck_assert_uint_eq(fakecuda_bytes(f, 1), 0);
        end();
        fakecuda_close(f);
}
END_TEST

START_TEST(what_is_no_allocation_is_not_imported) {
        CUmemGenericAllocationHandle h;
        CUmemAllocationProp prop = on_device(0);
        int fd = memfd_create("something", MFD_CLOEXEC), out;
        begin("1");
        use(0);
        is(cu.cuMemImportFromShareableHandle(
                   &h, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                CUDA_ERROR_INVALID_VALUE);
        close(fd);
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
        ok(cu.cuMemCreate(&h, GRANULE, &prop, 0));
        is(cu.cuMemExportToShareableHandle(&out, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                CUDA_ERROR_INVALID_VALUE);
        end();
}
END_TEST

/* --- host memory --- */

START_TEST(host_memory_is_registered_once) {
        CUdeviceptr seen;
        char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        begin("1");
        use(0);
        is(cu.cuMemHostGetDevicePointer(&seen, p, 0), CUDA_ERROR_INVALID_VALUE);
        ok(cu.cuMemHostRegister(p, 8192, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
        is(cu.cuMemHostRegister(p + 4096, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        ok(cu.cuMemHostGetDevicePointer(&seen, p, 0));
        ok(cu.cuMemsetD8(seen, 9, 8192));
        ck_assert_int_eq(p[8191], 9);
        is(cu.cuMemHostUnregister(p + 4096), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
        ok(cu.cuMemHostUnregister(p));
        is(cu.cuMemHostUnregister(p), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
        munmap(p, 8192);
        is(cu.cuMemHostRegister(p, 8192, 0), CUDA_ERROR_INVALID_VALUE);
        end();
}
END_TEST

START_TEST(read_only_memory_needs_the_flag_and_is_not_written) {
        char *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CUdeviceptr seen;
        begin("1");
        use(0);
        is(cu.cuMemHostRegister(p, 4096, 0), CUDA_ERROR_INVALID_VALUE);
        ok(cu.cuMemHostRegister(p, 4096, CU_MEMHOSTREGISTER_READ_ONLY));
        ok(cu.cuMemHostGetDevicePointer(&seen, p, 0));
        is(cu.cuMemsetD8(seen, 9, 1), CUDA_ERROR_INVALID_VALUE);
        ok(cu.cuMemHostUnregister(p));
        end();
        munmap(p, 4096);
}
END_TEST

START_TEST(host_memory_of_one_context_is_not_another_s) {
        char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        begin("2");
        use(0);
        ok(cu.cuMemHostRegister(p, 4096, 0));
        ok(cu.cuMemsetD8((CUdeviceptr)(uintptr_t)p, 1, 1));
        use(1);
        is(cu.cuMemsetD8((CUdeviceptr)(uintptr_t)p, 1, 1), CUDA_ERROR_INVALID_VALUE);
        ok(cu.cuMemHostUnregister(p));
        ok(cu.cuMemHostRegister(p, 4096, CU_MEMHOSTREGISTER_PORTABLE));
        use(0);
        ok(cu.cuMemsetD8((CUdeviceptr)(uintptr_t)p, 1, 1));
        end();
        munmap(p, 4096);
}
END_TEST

START_TEST(pinned_memory_is_made_and_freed) {
        void *p;
        unsigned int flags;
        begin("1");
        use(0);
        ok(cu.cuMemHostAlloc(&p, 100, CU_MEMHOSTALLOC_PORTABLE));
        ok(cu.cuMemHostGetFlags(&flags, p));
        ck_assert_uint_eq(flags, CU_MEMHOSTALLOC_PORTABLE);
        is(cu.cuMemHostUnregister(p), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
        ok(cu.cuMemFreeHost(p));
        is(cu.cuMemFreeHost(p), CUDA_ERROR_INVALID_VALUE);
        end();
}
END_TEST

/* --- pointers --- */

START_TEST(pointers_tell_what_they_are) {
        CUpointer_attribute which[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE };
        int type = -1, ordinal = -1;
        size_t n_bytes = 0;
        unsigned char is_capable = 9;
        void *data[] = { &type, &ordinal, &n_bytes, &is_capable };
        begin("2");
        use(1);
        CUdeviceptr p = allocate(1000);
        ok(cu.cuPointerGetAttributes(4, which, data, p + 10));
        ck_assert_int_eq(type, CU_MEMORYTYPE_DEVICE);
        ck_assert_int_eq(ordinal, 1);
        ck_assert_uint_eq(n_bytes, 1000);
        ck_assert_int_eq(is_capable, 1);
        CUmemGenericAllocationHandle h = create(0, GRANULE);
        ok(cu.cuPointerGetAttributes(4, which, data, map(h, GRANULE, 0)));
        ck_assert_int_eq(ordinal, 0);
        ck_assert_int_eq(is_capable, 0);
        ok(cu.cuPointerGetAttributes(4, which, data, (CUdeviceptr)(uintptr_t)&type));
        ck_assert_int_eq(type, 0);
        is(cu.cuPointerGetAttribute(&type, which[0], (CUdeviceptr)(uintptr_t)&type),
                CUDA_ERROR_INVALID_VALUE);
        end();
}
END_TEST

/* --- between devices --- */

START_TEST(memory_of_another_device_needs_peer_access) {
        begin("2");
        CUcontext zero = use(0);
        CUdeviceptr there = allocate(8);
        CUcontext one = use(1);
        CUdeviceptr here = allocate(8);
        is(cu.cuMemcpyDtoD(here, there, 8), CUDA_ERROR_INVALID_VALUE);
        ok(cu.cuMemcpyPeer(here, one, there, zero, 8));
        is(cu.cuMemcpyPeer(here, zero, there, zero, 8), CUDA_ERROR_INVALID_VALUE);
        ok(cu.cuCtxEnablePeerAccess(zero, 0));
        ok(cu.cuMemcpyDtoD(here, there, 8));
        end();
}
END_TEST

START_TEST(D17_a_bad_path_flips_a_bit) {
        setenv("FAKECUDA_CORRUPT_PEER", "0-1", 1);
        begin("3");
        CUcontext zero = use(0);
        CUdeviceptr a = allocate(8), same = allocate(8);
        CUcontext two = use(2);
        CUdeviceptr c = allocate(8);
        CUcontext one = use(1);
        CUdeviceptr b = allocate(8);
        ok(cu.cuMemcpyPeer(b, one, a, zero, 8));
        ck_assert_uint_eq(read_word(b), 1ull << 32);
        ok(cu.cuMemcpyPeer(c, two, a, zero, 8));
        ok(cu.cuMemcpyPeer(same, zero, a, zero, 8));
        ok(cu.cuCtxSetCurrent(two));
        ck_assert_uint_eq(read_word(c), 0);
        ok(cu.cuCtxSetCurrent(zero));
        ck_assert_uint_eq(read_word(same), 0);
        end();
}
END_TEST

START_TEST(D17_a_dead_path_ends_no_copy) {
        setenv("FAKECUDA_DEAD_PEER", "0-1", 1);
        begin("3");
        CUcontext zero = use(0);
        CUdeviceptr a = allocate(8);
        CUcontext two = use(2);
        CUdeviceptr c = allocate(8);
        CUcontext one = use(1);
        CUdeviceptr b = allocate(8);
        CUstream s = new_stream(), t = new_stream();
        ok(cu.cuMemcpyPeerAsync(b, one, a, zero, 8, s));
        ok(cu.cuMemcpyPeerAsync(c, two, b, one, 8, t));
        ok(cu.cuStreamSynchronize(t));
        a_while();
        is(cu.cuStreamQuery(s), CUDA_ERROR_NOT_READY);
        end();
}
END_TEST

/* --- legacy handles --- */

static void export_two(int fd) {
        CUipcMemHandle handles[2];
        begin("2");
        use(0);
        CUdeviceptr a = allocate(100), b = allocate(8);
        write_word(a + 8, 5);
        ok(cu.cuIpcGetMemHandle(&handles[0], a));
        ok(cu.cuIpcGetMemHandle(&handles[1], b));
        send_bytes(fd, handles, sizeof(handles));
        wait_for_end(fd);
        ck_assert_uint_eq(read_word(a + 16), 6);
}

START_TEST(E4_a_second_open_is_the_same_pointer_and_counts) {
        CUipcMemHandle handles[2];
        CUdeviceptr p, q, other_block;
        struct fakecuda *f = listen_to_control();
        struct other other = start_other(export_two);
        begin("2");
        receive_bytes(other.fd, handles, sizeof(handles));
        use(0);
        ok(cu.cuIpcOpenMemHandle(&p, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        ok(cu.cuIpcOpenMemHandle(&q, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        ok(cu.cuIpcOpenMemHandle(&other_block, handles[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        ck_assert_uint_eq(p, q);
        ck_assert_uint_ne(p, other_block);
        ck_assert_uint_eq(fakecuda_ipc_open(f, NULL), 2);
        ck_assert_uint_eq(fakecuda_bytes(f, 0), 2 * 4096);
        ck_assert_uint_eq(read_word(p + 8), 5);
        ok(cu.cuIpcCloseMemHandle(p));
        write_word(p + 16, 6);
        is(cu.cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
        is(cu.cuIpcGetMemHandle(&handles[0], p), CUDA_ERROR_INVALID_VALUE);
        ok(cu.cuIpcCloseMemHandle(p));
        is(cu.cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
        ck_assert_uint_eq(fakecuda_ipc_open(f, NULL), 1);
        end_other(&other);
        ck_assert_uint_eq(fakecuda_bytes(f, 0), 4096); /* what is still open here */
        end();
        fakecuda_close(f);
}
END_TEST

START_TEST(a_handle_is_opened_by_its_device_or_a_peer) {
        CUipcMemHandle handles[2];
        CUdeviceptr p;
        setenv("FAKECUDA_PEERS", "none", 1);
        struct other other = start_other(export_two);
        begin("2");
        receive_bytes(other.fd, handles, sizeof(handles));
        use(1);
        is(cu.cuIpcOpenMemHandle(&p, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_MAP_FAILED);
        is(cu.cuIpcOpenMemHandle(&p, handles[0], 0), CUDA_ERROR_INVALID_VALUE);
        use(0);
        ok(cu.cuIpcOpenMemHandle(&p, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        use(1);
        is(cu.cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_CONTEXT);
        use(0);
        write_word(p + 16, 6);
        end_other(&other);
        ok(cu.cuIpcCloseMemHandle(p));
        is(cu.cuIpcOpenMemHandle(&p, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                CUDA_ERROR_INVALID_HANDLE);
        end();
}
END_TEST

START_TEST(E6_a_handle_of_one_s_own_is_refused) {
        CUipcMemHandle handle;
        CUdeviceptr p;
        begin("1");
        use(0);
        ok(cu.cuIpcGetMemHandle(&handle, allocate(8)));
        is(cu.cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT);
        is(cu.cuIpcGetMemHandle(&handle, map(create(0, GRANULE), GRANULE, 0)), CUDA_ERROR_INVALID_VALUE);
        end();
}
END_TEST

START_TEST(handles_can_be_refused_altogether) {
        CUipcMemHandle handle;
        int value;
        setenv("FAKECUDA_IPC", "refused", 1);
        begin("1");
        use(0);
        is(cu.cuIpcGetMemHandle(&handle, allocate(8)), CUDA_ERROR_NOT_SUPPORTED);
        ok(cu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0));
        ck_assert_int_eq(value, 0);
        end();
}
END_TEST

static void hold_memory(int fd) {
        begin("1");
        use(0);
        allocate(1 << 20);
        send_bytes(fd, "", 1);
        wait_for_end(fd);
}

START_TEST(E12_what_a_killed_process_had_is_free) {
        char byte;
        struct fakecuda *f = listen_to_control();
        struct other other = start_other(hold_memory);
        receive_bytes(other.fd, &byte, 1);
        ck_assert_uint_eq(fakecuda_bytes(f, 0), 1 << 20);
        ck_assert_uint_eq(fakecuda_processes(f, NULL), 1);
        ck_assert_uint_eq(fakecuda_calls(f, NULL, "cuMemAlloc"), 1);
        kill(other.pid, SIGKILL);
        waitpid(other.pid, NULL, 0);
        close(other.fd);
        ck_assert_uint_eq(fakecuda_bytes(f, 0), 0);
        ck_assert_uint_eq(fakecuda_processes(f, NULL), 0);
        ck_assert_uint_eq(fakecuda_calls(f, NULL, "cuMemAlloc"), 1);
        fakecuda_close(f);
}
END_TEST

UNIT_MAIN("fakecuda-memory", 10, copies_go_through_the_device, fills, a_device_is_full_at_some_time,
        sizes_and_places_of_mappings_are_checked, a_mapping_is_closed_until_access_is_set,
        memory_lives_as_long_as_a_handle_or_a_mapping, E7_memory_travels_as_a_descriptor,
        what_is_no_allocation_is_not_imported, host_memory_is_registered_once,
        read_only_memory_needs_the_flag_and_is_not_written, host_memory_of_one_context_is_not_another_s,
        pinned_memory_is_made_and_freed, pointers_tell_what_they_are,
        memory_of_another_device_needs_peer_access, D17_a_bad_path_flips_a_bit, D17_a_dead_path_ends_no_copy,
        E4_a_second_open_is_the_same_pointer_and_counts, a_handle_is_opened_by_its_device_or_a_peer,
        E6_a_handle_of_one_s_own_is_refused, handles_can_be_refused_altogether,
        E12_what_a_killed_process_had_is_free)
