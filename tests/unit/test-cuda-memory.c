/* Memory of the cuda backend, between two processes: the other one is a client with a context of its own. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include "cuda-bench.h"
#include "fakecuda-room.h"

enum { GRANULE = 2 << 20 };

/* What the other process has made. */
struct offer {
        CUipcMemHandle handle; /* of an allocation of OFFER_BYTES */
        uint64_t address;
        uint32_t device;
};
#define OFFER_BYTES 65536

static void reply_with_word(int fd) {
        uint64_t at;
        while (recv(fd, &at, sizeof(at), 0) == sizeof(at)) {
                uint64_t word = read_word(at);
                send_bytes(fd, &word, sizeof(word));
        }
}

/* A client with memory of cuMemAlloc, filled with 0x11; tells words of it. */
static void offer_handle(int fd) {
        struct offer offer = { .device = 0 };
        begin(getenv("FAKECUDA_DEVICES"));
        use(0);
        offer.address = allocate(OFFER_BYTES);
        ok(cu.cuMemsetD8(offer.address, 0x11, OFFER_BYTES));
        ok(cu.cuIpcGetMemHandle(&offer.handle, offer.address));
        send_bytes(fd, &offer, sizeof(offer));
        reply_with_word(fd);
}

/* Memory of cuMemCreate on the last device: two granules, filled with 0x22. */
static void offer_descriptor(int fd) {
        begin(getenv("FAKECUDA_DEVICES"));
        int n, fd_out = -1;
        ok(cu.cuDeviceGetCount(&n));
        use(n - 1);
        CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = n - 1 } };
        const CUmemAccessDesc access = { .location = prop.location,
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        CUmemGenericAllocationHandle physical;
        CUdeviceptr at;
        ok(cu.cuMemCreate(&physical, 2 * GRANULE, &prop, 0));
        ok(cu.cuMemAddressReserve(&at, 2 * GRANULE, 0, 0, 0));
        ok(cu.cuMemMap(at, 2 * GRANULE, 0, physical, 0));
        ok(cu.cuMemSetAccess(at, 2 * GRANULE, &access, 1));
        ok(cu.cuMemsetD8(at, 0x22, 2 * GRANULE));
        ok(cu.cuMemExportToShareableHandle(&fd_out, physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        send_descriptor(fd, fd_out);
        send_bytes(fd, &at, sizeof(at));
        reply_with_word(fd);
}

/* A client that maps what it is given, and writes 0x33 over it. */
static void take_descriptor(int fd) {
        begin(getenv("FAKECUDA_DEVICES"));
        use(0);
        const CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        CUmemGenericAllocationHandle physical;
        CUdeviceptr at;
        int given = receive_descriptor(fd);
        ok(cu.cuMemImportFromShareableHandle(
                &physical, (void *)(uintptr_t)given, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        close(given);
        ok(cu.cuMemAddressReserve(&at, GRANULE, 0, 0, 0));
        ok(cu.cuMemMap(at, GRANULE, 0, physical, 0));
        ok(cu.cuMemSetAccess(at, GRANULE, &access, 1));
        ok(cu.cuMemsetD8(at, 0x33, GRANULE));
        send_bytes(fd, &at, sizeof(at));
        reply_with_word(fd);
}

static uint64_t ask_word(const struct other *other, uint64_t at) {
        uint64_t word;
        send_bytes(other->fd, &at, sizeof(at));
        receive_bytes(other->fd, &word, sizeof(word));
        return word;
}

/* Copies n bytes by a run on GPU:k. */
static void copy_by_run(struct bench *t, struct plan *p, const struct chore *from, const struct chore *to) {
        const struct chore *operands[] = { from, to };
        plan_init(p);
        bench_add(p, &(struct bench_step){ .operands = operands,
                             .step = { .kind = STEP_COPY,
                                     .device = from->device,
                                     .dtype = DTYPE_U8,
                                     .n_inputs = 1,
                                     .n_outputs = 1,
                                     .count = to->n_bytes } });
        bench_freeze(p, from->device - DEVICE_GPU);
}

static struct chore by_handle(const struct offer *offer, uint64_t offset, uint64_t n_bytes) {
        struct chore c = { .kind = CHORE_IMPORT,
                .path = PATH_CUDA_IPC,
                .device = DEVICE_GPU + offer->device,
                .fd = -1,
                .access = ACCESS_INOUT,
                .handle_offset_bytes = offset,
                .n_bytes = n_bytes };
        memcpy(c.handle, &offer->handle, sizeof(c.handle));
        return c;
}

static struct chore by_descriptor(int fd, uint32_t k, uint64_t offset, uint64_t n_bytes) {
        return (struct chore){ .kind = CHORE_IMPORT,
                .path = PATH_VMM_FD,
                .device = DEVICE_GPU + k,
                .fd = fd,
                .access = ACCESS_INOUT,
                .handle_offset_bytes = offset,
                .n_bytes = n_bytes };
}

/* --- legacy handles --- */

START_TEST(E4_one_allocation_is_opened_once_and_closed_after_the_last) {
        struct bench t;
        struct offer offer;
        struct plan p;
        bench_prepare(&t, "1");
        struct other other = start_other(offer_handle);
        receive_bytes(other.fd, &offer, sizeof(offer));
        bench_open(&t);
        struct chore like = by_handle(&offer, 1024, 512), a = bench_import(&t, &like);
        like = by_handle(&offer, 8192, 512);
        struct chore b = bench_import(&t, &like);
        ck_assert_msg(a.status == STATUS_OK, "%s", a.why);
        ck_assert_msg(b.status == STATUS_OK, "%s", b.why);
        ck_assert_uint_eq(fakecuda_calls(t.fake, NULL, "cuIpcOpenMemHandle"), 1);
        ck_assert_uint_eq(fakecuda_ipc_open(t.fake, NULL), 1);
        /* Two runs at once, at different offsets of it. */
        struct chore fives = bench_memory(&t, 0, 512), nines = bench_memory(&t, 0, 512);
        fives.n_bytes = nines.n_bytes = 512;
        memset(bench_data(&fives), 5, 512);
        memset(bench_data(&nines), 9, 512);
        struct plan q;
        copy_by_run(&t, &p, &fives, &a);
        copy_by_run(&t, &q, &nines, &b);
        struct run one = { .plan = &p, .group = 1 }, two = { .plan = &q, .group = 2 };
        bench_launch(&t, &one);
        bench_launch(&t, &two);
        ck_assert(bench_wait(&t, &one, 10) && bench_wait(&t, &two, 10));
        ck_assert_uint_eq(ask_word(&other, offer.address + 1024), 0x0505050505050505);
        ck_assert_uint_eq(ask_word(&other, offer.address + 8192), 0x0909090909090909);
        /* E5: what lies beside the slices is as it was. */
        ck_assert_uint_eq(ask_word(&other, offer.address + 1024 - 8), 0x1111111111111111);
        ck_assert_uint_eq(ask_word(&other, offer.address + 1024 + 512), 0x1111111111111111);
        bench_release(&t, &a);
        ck_assert_uint_eq(fakecuda_ipc_open(t.fake, NULL), 1);
        ck_assert_uint_eq(fakecuda_calls(t.fake, NULL, "cuIpcCloseMemHandle"), 0);
        bench_release(&t, &b);
        ck_assert_uint_eq(fakecuda_ipc_open(t.fake, NULL), 0);
        ck_assert_uint_eq(fakecuda_calls(t.fake, NULL, "cuIpcCloseMemHandle"), 1);
        bench_release(&t, &fives);
        bench_release(&t, &nines);
        plan_deinit(&p);
        plan_deinit(&q);
        end_other(&other);
        bench_close(&t);
}
END_TEST

START_TEST(E5_a_slice_beyond_its_allocation_is_invalid) {
        static const struct {
                uint64_t offset, n_bytes;
                enum status status;
        } cases[] = { { 0, OFFER_BYTES, STATUS_OK }, { 0, OFFER_BYTES + 1, STATUS_INVALID },
                { OFFER_BYTES - 8, 9, STATUS_INVALID }, { OFFER_BYTES + 1, 1, STATUS_INVALID },
                { UINT64_MAX - 7, 16, STATUS_INVALID }, { 8, UINT64_MAX - 7, STATUS_INVALID } };
        struct bench t;
        struct offer offer;
        bench_prepare(&t, "1");
        struct other other = start_other(offer_handle);
        receive_bytes(other.fd, &offer, sizeof(offer));
        bench_open(&t);
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct chore like = by_handle(&offer, cases[i].offset, cases[i].n_bytes);
                struct chore c = bench_import(&t, &like);
                ck_assert_msg(c.status == cases[i].status, "%zu: %s: %s", i, status_name(c.status), c.why);
                bench_release(&t, &c);
                ck_assert_uint_eq(fakecuda_ipc_open(t.fake, NULL), 0);
        }
        end_other(&other);
        bench_close(&t);
}
END_TEST

START_TEST(legacy_handles_are_refused_where_they_are_not_taken) {
        struct bench t;
        bench_prepare(&t, "1");
        t.options.takes_ipc = false;
        bench_open(&t);
        ck_assert(!(t.b->devices[0].paths & 1u << PATH_CUDA_IPC));
        struct chore like = by_handle(&(struct offer){ .device = 0 }, 0, 8), c = bench_import(&t, &like);
        ck_assert_int_eq(c.status, STATUS_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(c.why, "gpu.ipc"));
        bench_close(&t);
}
END_TEST

START_TEST(what_the_driver_refuses_says_so_in_its_words) {
        struct bench t;
        struct offer offer;
        bench_prepare(&t, "1");
        struct other other = start_other(offer_handle);
        receive_bytes(other.fd, &offer, sizeof(offer));
        setenv("FAKECUDA_IPC", "refused", 1);
        bench_open(&t);
        struct chore like = by_handle(&offer, 0, 8), c = bench_import(&t, &like);
        ck_assert_int_eq(c.status, STATUS_BAD_FD);
        ck_assert_msg(strstr(c.why, "cuIpcOpenMemHandle: CUDA_ERROR_") != NULL, "%s", c.why);
        end_other(&other);
        bench_close(&t);
}
END_TEST

/* --- descriptors --- */

static void descriptor_on(const char *n_devices) {
        const uint32_t last = (uint32_t)atoi(n_devices) - 1;
        struct bench t;
        struct plan p;
        CUdeviceptr theirs;
        bench_prepare(&t, n_devices);
        struct other other = start_other(offer_descriptor);
        int fd = receive_descriptor(other.fd);
        receive_bytes(other.fd, &theirs, sizeof(theirs));
        bench_open(&t);
        struct chore like = by_descriptor(fd, last, 4096, GRANULE), c = bench_import(&t, &like);
        ck_assert_msg(c.status == STATUS_OK, "%s", c.why);
        ck_assert_int_eq(c.memory->path, PATH_VMM_FD);
        /* By the first device, over peer access where they are two. */
        struct chore sevens = bench_memory(&t, 0, GRANULE);
        memset(bench_data(&sevens), 7, GRANULE);
        copy_by_run(&t, &p, &sevens, &c);
        bench_run(&t, &p);
        ck_assert_uint_eq(ask_word(&other, theirs + 4096), 0x0707070707070707);
        ck_assert_uint_eq(ask_word(&other, theirs + 4096 + GRANULE - 8), 0x0707070707070707);
        ck_assert_uint_eq(ask_word(&other, theirs + 4088), 0x2222222222222222);
        ck_assert_uint_eq(ask_word(&other, theirs + 4096 + GRANULE), 0x2222222222222222);
        plan_deinit(&p);
        bench_release(&t, &sevens);
        bench_release(&t, &c);
        end_other(&other);
        bench_close(&t);
}

START_TEST(a_descriptor_is_mapped_for_its_device) {
        descriptor_on("1");
}
END_TEST

START_TEST(a_descriptor_is_mapped_for_all_devices) {
        descriptor_on("4");
}
END_TEST

START_TEST(E5_a_buffer_beyond_its_descriptors_memory_is_invalid) {
        struct bench t;
        CUdeviceptr theirs;
        bench_prepare(&t, "1");
        struct other other = start_other(offer_descriptor);
        int fd = receive_descriptor(other.fd);
        receive_bytes(other.fd, &theirs, sizeof(theirs));
        bench_open(&t);
        struct chore like = by_descriptor(fd, 0, GRANULE, GRANULE + 1), c = bench_import(&t, &like);
        ck_assert_msg(c.status == STATUS_INVALID, "%s: %s", status_name(c.status), c.why);
        like.n_bytes = UINT64_MAX - 5;
        c = bench_import(&t, &like);
        ck_assert_int_eq(c.status, STATUS_INVALID);
        like.n_bytes = GRANULE;
        c = bench_import(&t, &like);
        ck_assert_msg(c.status == STATUS_OK, "%s", c.why);
        bench_release(&t, &c);
        end_other(&other);
        bench_close(&t);
}
END_TEST

START_TEST(E9_a_buffer_is_on_the_device_that_its_descriptor_says) {
        struct bench t;
        CUdeviceptr theirs;
        bench_prepare(&t, "2");
        struct other other = start_other(offer_descriptor);
        int fd = receive_descriptor(other.fd);
        receive_bytes(other.fd, &theirs, sizeof(theirs));
        bench_open(&t);
        struct chore like = by_descriptor(fd, 0, 0, GRANULE), c = bench_import(&t, &like);
        ck_assert_int_eq(c.status, STATUS_INVALID);
        ck_assert_str_eq(c.why, "the memory is on GPU:1, not on GPU:0");
        bench_release(&t, &c);
        end_other(&other);
        bench_close(&t);
}
END_TEST

START_TEST(another_descriptor_is_refused) {
        struct bench t;
        bench_prepare(&t, "1");
        bench_open(&t);
        struct chore like = by_descriptor(memfd_create("other", MFD_CLOEXEC), 0, 0, 8),
                     c = bench_import(&t, &like);
        ck_assert_int_eq(c.status, STATUS_BAD_FD);
        bench_release(&t, &c);
        bench_close(&t);
}
END_TEST

START_TEST(a_buffer_for_reading_is_mapped_for_reading) {
        struct bench t;
        CUdeviceptr theirs;
        bench_prepare(&t, "1");
        struct other other = start_other(offer_descriptor);
        int fd = receive_descriptor(other.fd);
        receive_bytes(other.fd, &theirs, sizeof(theirs));
        bench_open(&t);
        struct chore like = by_descriptor(fd, 0, 0, GRANULE);
        like.access = ACCESS_IN;
        struct chore c = bench_import(&t, &like);
        ck_assert_msg(c.status == STATUS_OK, "%s", c.why);
        struct chore mine = bench_memory(&t, 0, GRANULE);
        struct plan p;
        copy_by_run(&t, &p, &c, &mine);
        bench_run(&t, &p);
        ck_assert_uint_eq(*(uint64_t *)bench_data(&mine), 0x2222222222222222);
        plan_deinit(&p);
        copy_by_run(&t, &p, &mine, &c);
        struct run run = { .plan = &p, .group = 1 };
        bench_launch(&t, &run);
        ck_assert(bench_wait(&t, &run, 1));
        ck_assert_int_eq(run.status, STATUS_INTERNAL);
        plan_deinit(&p);
        bench_release(&t, &c);
        bench_release(&t, &mine);
        end_other(&other);
        bench_close(&t);
}
END_TEST

/* --- made here --- */

START_TEST(memory_made_here_is_zero_and_the_clients_as_well) {
        struct bench t;
        CUdeviceptr theirs;
        bench_prepare(&t, "1");
        struct other other = start_other(take_descriptor);
        bench_open(&t);
        struct chore c = { .kind = CHORE_MAKE, .device = DEVICE_GPU, .n_bytes = 5000 };
        t.b->base.ops->make(&t.b->base, &c);
        ck_assert_msg(c.status == STATUS_OK, "%s", c.why);
        ck_assert_uint_eq(c.n_bytes, GRANULE);
        ck_assert_uint_eq(c.memory->n_bytes, GRANULE);
        ck_assert_int_eq(c.memory->path, PATH_VMM_MADE);
        const uint8_t *bytes = bench_data(&c);
        for (size_t i = 0; i < GRANULE; i++)
                ck_assert_uint_eq(bytes[i], 0);
        send_descriptor(other.fd, c.fd);
        receive_bytes(other.fd, &theirs, sizeof(theirs));
        ck_assert_uint_eq(bytes[0], 0x33);
        ck_assert_uint_eq(bytes[GRANULE - 1], 0x33);
        t.b->base.ops->unmake(&t.b->base, &c);
        ck_assert_int_eq(c.fd, -1);
        end_other(&other);
        bench_close(&t);
}
END_TEST

START_TEST(a_full_device_says_no_memory) {
        struct bench t;
        bench_prepare(&t, "1");
        setenv("FAKECUDA_MEMORY", "33554432", 1);
        bench_open(&t);
        struct chore c = { .kind = CHORE_MAKE, .device = DEVICE_GPU, .n_bytes = 64 << 20 };
        t.b->base.ops->make(&t.b->base, &c);
        ck_assert_int_eq(c.status, STATUS_NO_MEMORY);
        ck_assert_int_eq(c.fd, -1);
        ck_assert_ptr_nonnull(strstr(c.why, "GPU:0 has no"));
        bench_close(&t);
}
END_TEST

/* --- host memory --- */

START_TEST(a_memfd_that_is_shorter_than_said_is_invalid) {
        struct bench t;
        bench_prepare(&t, "1");
        bench_open(&t);
        int fd = memfd_create("short", MFD_CLOEXEC);
        ck_assert_int_eq(ftruncate(fd, 4096), 0);
        struct chore like = { .kind = CHORE_IMPORT, .fd = fd, .n_bytes = 4097, .access = ACCESS_INOUT };
        struct chore c = bench_import(&t, &like);
        ck_assert_int_eq(c.status, STATUS_INVALID);
        bench_release(&t, &c);
        bench_close(&t);
}
END_TEST

UNIT_MAIN("cuda-memory", 60, E4_one_allocation_is_opened_once_and_closed_after_the_last,
        E5_a_slice_beyond_its_allocation_is_invalid, legacy_handles_are_refused_where_they_are_not_taken,
        what_the_driver_refuses_says_so_in_its_words, a_descriptor_is_mapped_for_its_device,
        a_descriptor_is_mapped_for_all_devices, E5_a_buffer_beyond_its_descriptors_memory_is_invalid,
        E9_a_buffer_is_on_the_device_that_its_descriptor_says, another_descriptor_is_refused,
        a_buffer_for_reading_is_mapped_for_reading, memory_made_here_is_zero_and_the_clients_as_well,
        a_full_device_says_no_memory, a_memfd_that_is_shorter_than_said_is_invalid)
