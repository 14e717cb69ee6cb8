/* Device memory in libtutti, before a scripted tuttid and on the fake driver: how each kind of memory is
 * registered, what is copied where tuttid does not reach it, and how streams are put in order. */
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <tutti/cuda.h>
#include "fakecuda-room.h"
#include "lib-server.h"

#define GRANULE    ((size_t)2 << 20)
#define PAGE_BYTES (SIGNAL_SLOTS * sizeof(struct signal_slot))
#define UUID_CHARS 40

/* --- the server's side --- */

static int make_memory(size_t n_bytes) {
        int fd = memfd_create("memory", MFD_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, (off_t)n_bytes), 0);
        return fd;
}

static void *map_memory(int fd, size_t n_bytes) {
        void *at = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(at, MAP_FAILED);
        return at;
}

/* No timeline, and then no events either. */
static void answer_host_order(struct server *s) {
        static const enum stream_order asked[] = { ORDER_TIMELINE, ORDER_EVENTS };
        for (size_t i = 0; i < 2; i++) {
                struct request r = server_take(s, REQUEST_OPEN_SIGNALS);
                ck_assert_int_eq(r.open_signals.order, asked[i]);
                ck_assert_uint_eq(strlen(r.open_signals.device), UUID_CHARS);
                server_reply(s, &(struct reply){ .request = r.request,
                                        .type = REPLY_SIGNALS,
                                        .signals = { .order = ORDER_HOST, .why = "not today" } });
        }
}

static struct signal_slot *answer_timeline(struct server *s) {
        struct request r = server_take(s, REQUEST_OPEN_SIGNALS);
        int fd = make_memory(PAGE_BYTES);
        struct signal_slot *slots = map_memory(fd, PAGE_BYTES);
        server_reply_fd(s,
                &(struct reply){ .request = r.request,
                        .type = REPLY_SIGNALS,
                        .signals = { ORDER_TIMELINE, 1, SIGNAL_SLOTS, "" } },
                fd);
        close(fd);
        return slots;
}

static void answer_registered(struct server *s, enum buffer_kind kind) {
        struct request r = server_take(s, REQUEST_REGISTER);
        ck_assert_int_eq(r.reg.kind, kind);
        server_reply(s, &(struct reply){ .request = r.request, .type = REPLY_REGISTERED });
}

static void serve_all(struct server *s) {
        server_greet(s);
        server_serve(s);
}

/* --- the client's side --- */

static struct fakecuda *control;

static void begin_client(const char *n_devices) {
        control = listen_to_control();
        begin(n_devices);
        use(0);
}

/* The fake goes, though libtutti still has it: this process uses it no more. */
static void end_client(struct server *s, struct tutti *t) {
        tutti_close(t);
        server_end(s);
        fakecuda_close(control);
        end();
        ck_assert_int_eq(dlclose(cu.library), 0);
}

static struct tutti_value floats(struct tutti_buffer *b, size_t offset, uint64_t n) {
        return TUTTI_VALUE(.buffer = b, .offset = offset, .dtype = TUTTI_F32, .n_dims = 1, .shape = { n });
}

static void put_floats(CUdeviceptr at, uint32_t n, float first) {
        float values[64];
        ck_assert_uint_le(n, 64);
        for (uint32_t i = 0; i < n; i++)
                values[i] = first + (float)i;
        ok(cu.cuMemcpyHtoD(at, values, n * sizeof(float)));
}

static float float_at(CUdeviceptr at, uint32_t i) {
        float value;
        ok(cu.cuMemcpyDtoH(&value, at + i * sizeof(float), sizeof(value)));
        return value;
}

static CUmemGenericAllocationHandle create(size_t n_bytes, CUmemAllocationHandleType type) {
        const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .requestedHandleTypes = type,
                .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
        CUmemGenericAllocationHandle h;
        ok(cu.cuMemCreate(&h, n_bytes, &prop, 0));
        return h;
}

static void map_handle(CUdeviceptr at, CUmemGenericAllocationHandle h) {
        const CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        ok(cu.cuMemMap(at, GRANULE, 0, h, 0));
        ok(cu.cuMemSetAccess(at, GRANULE, &access, 1));
}

static CUdeviceptr reserve(size_t n_bytes) {
        CUdeviceptr at;
        ok(cu.cuMemAddressReserve(&at, n_bytes, 0, 0, 0));
        return at;
}

/* --- registering --- */

static void script_legacy(struct server *s) {
        static const uint8_t nothing[64];
        server_greet(s);
        struct request r = server_take(s, REQUEST_REGISTER);
        ck_assert_int_eq(r.reg.kind, BUFFER_KIND_CUDA_IPC);
        ck_assert_int_eq(r.reg.access, ACCESS_IN);
        ck_assert_uint_eq(r.reg.size_bytes, 1000);
        ck_assert_uint_eq(r.reg.handle_offset_bytes, 512);
        ck_assert_uint_eq(r.reg.n_handle_bytes, 64);
        ck_assert_mem_ne(r.reg.handle, nothing, 64);
        ck_assert_uint_eq(strlen(r.reg.device), UUID_CHARS);
        ck_assert_int_eq(strncmp(r.reg.device, "GPU-", 4), 0);
        ck_assert_uint_eq(s->packet.n_fds, 0);
        server_reply(s, &(struct reply){ .request = r.request, .type = REPLY_REGISTERED });
        answer_host_order(s);
        ck_assert_uint_ne(server_take(s, REQUEST_UNREGISTER).buffer, 0);
        server_serve(s);
}

START_TEST(E6_memory_of_cudaMalloc_goes_by_its_handle_and_is_not_opened_here) {
        struct server *s = server_start(script_legacy, NULL);
        struct tutti_buffer *b;
        const char *why;
        begin_client("1");
        CUdeviceptr p = allocate(4096);
        struct tutti *t = client_open(s);
        ck_assert_int_eq(tutti_cuda_buffer_register(t, (void *)(uintptr_t)(p + 512), 1000,
                                 &TUTTI_CUDA_ARGS(.access = TUTTI_IN), &b),
                TUTTI_OK);
        ck_assert_int_eq(tutti_cuda_buffer_path(b, &why), TUTTI_CUDA_IPC);
        ck_assert_str_eq(why, "");
        ck_assert_str_eq(tutti_cuda_path_name(TUTTI_CUDA_IPC), "cuda-ipc");
        ck_assert_uint_eq((uintptr_t)tutti_buffer_data(b), p + 512);
        ck_assert_uint_eq(tutti_buffer_bytes(b), 1000);
        ck_assert_int_eq(tutti_cuda_order(t, &why), TUTTI_CUDA_HOST);
        ck_assert_str_eq(why, "not today");
        ck_assert_uint_eq(fakecuda_calls(control, NULL, "cuIpcOpenMemHandle"), 0);
        ck_assert_uint_eq(fakecuda_calls(control, NULL, "cuMemImportFromShareableHandle"), 0);
        tutti_buffer_free(b);
        end_client(s, t);
}
END_TEST

static void script_descriptor(struct server *s) {
        server_greet(s);
        struct request r = server_take(s, REQUEST_REGISTER);
        ck_assert_int_eq(r.reg.kind, BUFFER_KIND_CUDA_VMM);
        ck_assert_uint_eq(r.reg.n_descriptors, 1);
        ck_assert_uint_eq(s->packet.n_fds, 1);
        ck_assert_uint_eq(r.reg.handle_offset_bytes, 4096);
        server_reply(s, &(struct reply){ .request = r.request, .type = REPLY_REGISTERED });
        answer_host_order(s);
        server_serve(s);
}

START_TEST(E7_memory_of_cuMemCreate_goes_by_its_descriptor) {
        struct server *s = server_start(script_descriptor, NULL);
        struct tutti_buffer *b;
        begin_client("1");
        CUdeviceptr at = reserve(GRANULE);
        map_handle(at, create(GRANULE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        struct tutti *t = client_open(s);
        ck_assert_int_eq(
                tutti_cuda_buffer_register(t, (void *)(uintptr_t)(at + 4096), 64, NULL, &b), TUTTI_OK);
        ck_assert_int_eq(tutti_cuda_buffer_path(b, NULL), TUTTI_CUDA_VMM_FD);
        ck_assert_uint_eq(fakecuda_calls(control, NULL, "cuMemRetainAllocationHandle"),
                fakecuda_calls(control, NULL, "cuMemRelease")); /* its count is as it was */
        tutti_buffer_free(b);
        end_client(s, t);
}
END_TEST

START_TEST(E7_what_cannot_be_exported_is_refused_with_the_allocators_setting) {
        struct server *s = server_start(serve_all, NULL);
        struct tutti_buffer *b;
        begin_client("1");
        CUdeviceptr at = reserve(2 * GRANULE);
        map_handle(at, create(GRANULE, CU_MEM_HANDLE_TYPE_NONE));
        struct tutti *t = client_open(s);
        ck_assert_int_eq(
                tutti_cuda_buffer_register(t, (void *)(uintptr_t)at, 64, NULL, &b), TUTTI_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "expandable_segments:False"));
        ck_assert_ptr_nonnull(strstr(tutti_error(), "TUTTI_CUDA_STAGED"));
        /* Two allocations that lie one behind the other are not one. */
        CUdeviceptr two = reserve(2 * GRANULE);
        map_handle(two, create(GRANULE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        map_handle(two + GRANULE, create(GRANULE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        ck_assert_int_eq(tutti_cuda_buffer_register(t, (void *)(uintptr_t)(two + GRANULE - 32), 64, NULL, &b),
                TUTTI_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "spans several"));
        ck_assert_int_eq(tutti_cuda_buffer_register(t, (void *)(uintptr_t)at, 64,
                                 &TUTTI_CUDA_ARGS(.path = TUTTI_CUDA_STAGED), &b),
                TUTTI_OK);
        ck_assert_int_eq(tutti_cuda_buffer_path(b, NULL), TUTTI_CUDA_STAGED);
        tutti_buffer_free(b);
        end_client(s, t);
}
END_TEST

/* The descriptor that the script sends, as the worker would have made it. */
static int exported;

static void script_made(struct server *s) {
        server_greet(s);
        struct request r = server_take(s, REQUEST_REGISTER);
        ck_assert_int_eq(r.reg.kind, BUFFER_KIND_CUDA_VMM);
        ck_assert_uint_eq(r.reg.n_descriptors, 0);
        ck_assert_uint_eq(r.reg.size_bytes, 1000);
        server_reply_fd(s,
                &(struct reply){
                        .request = r.request, .type = REPLY_REGISTERED, .registered = { 1, GRANULE } },
                exported);
        answer_host_order(s);
        server_serve(s);
}

START_TEST(memory_that_tuttid_makes_is_mapped_here) {
        struct tutti_buffer *b;
        begin_client("1");
        CUmemGenericAllocationHandle h = create(GRANULE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        ok(cu.cuMemExportToShareableHandle(&exported, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        struct server *s = server_start(script_made, NULL);
        struct tutti *t = client_open(s);
        ck_assert_int_eq(tutti_cuda_buffer_alloc(t, 1000, &b), TUTTI_OK);
        ck_assert_int_eq(tutti_cuda_buffer_path(b, NULL), TUTTI_CUDA_VMM_MADE);
        CUdeviceptr p = (uintptr_t)tutti_buffer_data(b), mine = reserve(GRANULE);
        map_handle(mine, h);
        put_floats(p, 4, 5);
        ck_assert_float_eq(float_at(mine, 3), 8);
        tutti_buffer_free(b);
        ck_assert_uint_eq(fakecuda_calls(control, NULL, "cuMemUnmap"), 1);
        ck_assert_uint_eq(fakecuda_calls(control, NULL, "cuMemAddressFree"), 1);
        close(exported);
        end_client(s, t);
}
END_TEST

START_TEST(what_is_no_device_memory_is_refused) {
        struct server *s = server_start(serve_all, NULL);
        struct tutti_buffer *b;
        static float on_the_host[16];
        begin_client("1");
        CUdeviceptr p = allocate(4096);
        struct tutti *t = client_open(s);
        ck_assert_int_eq(tutti_cuda_buffer_register(t, on_the_host, 64, NULL, &b), TUTTI_INVALID);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "no device memory"));
        ck_assert_int_eq(
                tutti_cuda_buffer_register(t, (void *)(uintptr_t)(p + 4000), 97, NULL, &b), TUTTI_INVALID);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "beyond the allocation"));
        ck_assert_int_eq(tutti_cuda_buffer_register(t, (void *)(uintptr_t)p, 64,
                                 &TUTTI_CUDA_ARGS(.path = TUTTI_CUDA_VMM_MADE), &b),
                TUTTI_INVALID);
        ck_assert_int_eq(tutti_cuda_buffer_register(t, (void *)(uintptr_t)p, 0, NULL, &b), TUTTI_INVALID);
        ok(cu.cuCtxSetCurrent(NULL));
        ck_assert_int_eq(tutti_cuda_buffer_alloc(t, 64, &b), TUTTI_INVALID);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "cudaSetDevice"));
        end_client(s, t);
}
END_TEST

START_TEST(without_a_driver_it_is_said_what_to_do) {
        struct server *s = server_start(serve_all, NULL);
        struct tutti_buffer *b;
        const char *why;
        void *real = dlopen("libcuda.so.1", RTLD_NOW);
        if (real)
                printf("# skipped: this host has a driver\n");
        struct tutti *t = client_open(s);
        if (!real) {
                ck_assert_int_eq(tutti_cuda_buffer_alloc(t, 64, &b), TUTTI_UNSUPPORTED);
                ck_assert_ptr_nonnull(strstr(tutti_error(), "NVIDIA driver"));
                ck_assert_int_eq(tutti_cuda_order(t, &why), TUTTI_CUDA_HOST);
                ck_assert_ptr_nonnull(strstr(why, "NVIDIA driver"));
        }
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- copies --- */

#define N_STAGED 12

/* Refuses handles, takes host memory instead, and reduces in it: every float of the output is the input and
 * 100. */
static void script_staged(struct server *s) {
        server_greet_and_join(s);
        struct request r = server_take(s, REQUEST_REGISTER);
        ck_assert_int_eq(r.reg.kind, BUFFER_KIND_CUDA_IPC);
        server_refuse(s, r.request, STATUS_UNSUPPORTED, FIELD_BUFFER, "legacy handles are off");
        r = server_take(s, REQUEST_REGISTER);
        ck_assert_int_eq(r.reg.kind, BUFFER_KIND_MEMFD);
        ck_assert_str_eq(r.reg.why, "legacy handles are off");
        ck_assert_uint_eq(strlen(r.reg.stands_for), UUID_CHARS);
        ck_assert_uint_eq(s->packet.n_fds, 1);
        float *stage = map_memory(s->packet.fds[0], r.reg.size_bytes);
        server_ok(s, r.request);
        server_take(s, REQUEST_UNREGISTER); /* of the handle */
        for (int i = 0; i < 3; i++) {
                r = server_take(s, REQUEST_SUBMIT);
                ck_assert_uint_eq(r.submit.signal.value, 0);
                for (uint32_t k = 0; k < N_STAGED; k++)
                        stage[k] += 100;
                if (i == 2)
                        server_refuse(s, r.request, STATUS_ABORTED, FIELD_UNSPECIFIED, "as told");
                else
                        server_done(s, r.request, (uint64_t)i);
        }
        server_serve(s);
}

START_TEST(E8_memory_that_tuttid_does_not_reach_is_copied) {
        struct server *s = server_start(script_staged, NULL);
        struct tutti_buffer *b;
        const char *why;
        begin_client("1");
        CUdeviceptr p = allocate(N_STAGED * sizeof(float));
        put_floats(p, N_STAGED, 0);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 1);
        ck_assert_int_eq(
                tutti_cuda_buffer_register(t, (void *)(uintptr_t)p, N_STAGED * sizeof(float), NULL, &b),
                TUTTI_OK);
        ck_assert_int_eq(tutti_cuda_buffer_path(b, &why), TUTTI_CUDA_STAGED);
        ck_assert_str_eq(why, "legacy handles are off");
        struct tutti_value all = floats(b, 0, N_STAGED);
        ck_assert_int_eq(tutti_all_reduce(g, "a", TUTTI_SUM, &all, &all), TUTTI_OK);
        ck_assert_uint_eq(tutti_last_result()->staged_bytes, 2 * N_STAGED * sizeof(float));
        for (uint32_t i = 0; i < N_STAGED; i++)
                ck_assert_float_eq(float_at(p, i), 100 + (float)i);
        /* Every other float of four rows: what is between them stays, whatever the host memory has there. */
        struct tutti_value some = floats(b, 0, 4);
        some.has_strides = 1;
        some.strides[0] = 2;
        put_floats(p, N_STAGED, 0);
        ck_assert_int_eq(tutti_all_reduce(g, "a", TUTTI_SUM, &some, &some), TUTTI_OK);
        for (uint32_t i = 0; i < N_STAGED; i++)
                ck_assert_float_eq(float_at(p, i), (i < 8 && i % 2 == 0 ? 100 : 0) + (float)i);
        /* A collective that fails leaves the output. */
        put_floats(p, N_STAGED, 7);
        ck_assert_int_eq(tutti_all_reduce(g, "a", TUTTI_SUM, &all, &all), TUTTI_ABORTED);
        ck_assert_float_eq(float_at(p, 0), 7);
        end_client(s, t);
}
END_TEST

/* --- order --- */

/* What script and test know of each other. */
static struct {
        struct signal_slot *slots;
        struct msg_signal signal;
        atomic_int n_submitted, may_end;
} meeting;

static void script_order(struct server *s) {
        server_greet_and_join(s);
        answer_registered(s, BUFFER_KIND_CUDA_IPC);
        meeting.slots = answer_timeline(s);
        for (int i = 0; i < 2; i++) {
                struct request r = server_take(s, REQUEST_SUBMIT);
                meeting.signal = r.submit.signal;
                atomic_fetch_add(&meeting.n_submitted, 1);
                while (atomic_load(&meeting.may_end) <= i)
                        a_while();
                atomic_store(&meeting.slots[r.submit.signal.slot].done, r.submit.signal.value);
                if (i == 0)
                        server_done(s, r.request, 0);
                else
                        server_refuse(s, r.request, STATUS_ABORTED, FIELD_UNSPECIFIED, "as told");
        }
        server_serve(s);
}

static void wait_submitted(int n) {
        for (int i = 0; i < 200 && atomic_load(&meeting.n_submitted) < n; i++)
                a_while();
        ck_assert_int_ge(atomic_load(&meeting.n_submitted), n);
}

static uint64_t ready(void) {
        return atomic_load(&meeting.slots[meeting.signal.slot].ready);
}

START_TEST(streams_and_collectives_wait_for_each_other_on_the_device) {
        struct server *s = server_start(script_order, NULL);
        struct tutti_buffer *b;
        struct tutti_work *w;
        begin_client("1");
        CUdeviceptr p = allocate(4096);
        CUstream stream = new_stream();
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 1);
        ck_assert_int_eq(tutti_cuda_buffer_register(t, (void *)(uintptr_t)p, 4096, NULL, &b), TUTTI_OK);
        ck_assert_int_eq(tutti_cuda_order(t, NULL), TUTTI_CUDA_TIMELINE);
        struct tutti_value v = floats(b, 0, 16);
        const struct tutti_options options = TUTTI_OPTIONS(.has_stream = 1, .stream = stream);
        for (int i = 0; i < 2; i++) {
                /* What is before the collective in the stream is held back: it is submitted, and not ready.
                 */
                fakecuda_hold(control, NULL, "cuMemsetD32Async");
                ok(cu.cuMemsetD32Async(p, 1, 1, stream));
                ck_assert_int_eq(tutti_all_reduce_start(g, "a", TUTTI_SUM, &v, &v, &options, &w), TUTTI_OK);
                wait_submitted(i + 1);
                ck_assert_uint_ne(meeting.signal.value, 0);
                ck_assert(fakecuda_wait_held(control, NULL, 1, 5));
                ck_assert_uint_lt(ready(), meeting.signal.value);
                fakecuda_release(control);
                for (int k = 0; k < 200 && ready() < meeting.signal.value; k++)
                        a_while();
                ck_assert_uint_eq(ready(), meeting.signal.value);
                /* What is behind it waits for the result, or for the end that it has instead. */
                a_while();
                is(cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
                atomic_store(&meeting.may_end, i + 1);
                ok(cu.cuStreamSynchronize(stream));
                ck_assert_int_eq(tutti_work_wait(w, -1), i == 0 ? TUTTI_OK : TUTTI_ABORTED);
                tutti_work_free(w);
        }
        end_client(s, t);
}
END_TEST

static void script_lost(struct server *s) {
        server_greet_and_join(s);
        answer_registered(s, BUFFER_KIND_CUDA_IPC);
        meeting.slots = answer_timeline(s);
        server_take(s, REQUEST_SUBMIT);
        server_hang_up(s);
}

START_TEST(E12_a_stream_goes_on_when_tuttid_is_gone) {
        struct server *s = server_start(script_lost, NULL);
        struct tutti_buffer *b;
        struct tutti_work *w;
        begin_client("1");
        CUdeviceptr p = allocate(4096);
        CUstream stream = new_stream();
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 1);
        ck_assert_int_eq(tutti_cuda_buffer_register(t, (void *)(uintptr_t)p, 4096, NULL, &b), TUTTI_OK);
        struct tutti_value v = floats(b, 0, 16);
        ck_assert_int_eq(tutti_all_reduce_start(g, "a", TUTTI_SUM, &v, &v,
                                 &TUTTI_OPTIONS(.has_stream = 1, .stream = stream), &w),
                TUTTI_OK);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_DAEMON_LOST);
        ok(cu.cuStreamSynchronize(stream));
        /* And the next one is refused before the stream hears of it. */
        struct tutti_work *again = NULL;
        ck_assert_int_eq(tutti_all_reduce_start(g, "a", TUTTI_SUM, &v, &v,
                                 &TUTTI_OPTIONS(.has_stream = 1, .stream = stream), &again),
                TUTTI_DAEMON_LOST);
        ok(cu.cuStreamSynchronize(stream));
        tutti_work_free(w);
        end_client(s, t);
}
END_TEST

static void script_host_order(struct server *s) {
        server_greet_and_join(s);
        answer_registered(s, BUFFER_KIND_CUDA_IPC);
        answer_host_order(s);
        struct request r = server_take(s, REQUEST_SUBMIT);
        ck_assert_uint_eq(r.submit.signal.value, 0);
        atomic_fetch_add(&meeting.n_submitted, 1);
        server_done(s, r.request, 0);
        server_serve(s);
}

static void *let_go(void *arg) {
        (void)arg;
        a_while();
        atomic_store(&meeting.may_end, 1 + atomic_load(&meeting.n_submitted));
        fakecuda_release(control);
        return NULL;
}

START_TEST(without_a_timeline_the_call_waits_for_the_stream) {
        struct server *s = server_start(script_host_order, NULL);
        struct tutti_buffer *b;
        struct tutti_work *w;
        pthread_t thread;
        begin_client("1");
        CUdeviceptr p = allocate(4096);
        CUstream stream = new_stream();
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 1);
        ck_assert_int_eq(tutti_cuda_buffer_register(t, (void *)(uintptr_t)p, 4096, NULL, &b), TUTTI_OK);
        struct tutti_value v = floats(b, 0, 16);
        fakecuda_hold(control, NULL, "cuMemsetD32Async");
        ok(cu.cuMemsetD32Async(p, 1, 1, stream));
        ck_assert_int_eq(pthread_create(&thread, NULL, let_go, NULL), 0);
        ck_assert_int_eq(tutti_all_reduce_start(g, "a", TUTTI_SUM, &v, &v,
                                 &TUTTI_OPTIONS(.has_stream = 1, .stream = stream), &w),
                TUTTI_OK);
        pthread_join(thread, NULL);
        ck_assert_int_eq(atomic_load(&meeting.may_end), 1); /* nothing had been submitted before */
        ok(cu.cuStreamQuery(stream));
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
        tutti_work_free(w);
        end_client(s, t);
}
END_TEST

static void script_refused(struct server *s) {
        server_greet_and_join(s);
        answer_registered(s, BUFFER_KIND_CUDA_IPC);
        meeting.slots = answer_timeline(s);
        for (int i = 0; i < 3; i++) {
                struct request r = server_take(s, REQUEST_SUBMIT);
                ck_assert_int_ne(r.submit.refused, STATUS_OK);
                ck_assert_uint_eq(r.submit.signal.value, 0);
                server_refuse(s, r.request, r.submit.refused, r.submit.refused_field, "by the caller");
        }
        server_serve(s);
}

static void expect_refusal(struct tutti_group *g, const struct tutti_value *v,
        const struct tutti_options *options, enum tutti_status status) {
        struct tutti_work *w;
        ck_assert_int_eq(tutti_all_reduce_start(g, "a", TUTTI_SUM, v, v, options, &w), TUTTI_OK);
        ck_assert_int_eq(tutti_work_wait(w, -1), status);
        tutti_work_free(w);
}

START_TEST(a_half_that_is_refused_here_leaves_the_stream_alone) {
        struct server *s = server_start(script_refused, NULL);
        struct tutti_buffer *b;
        begin_client("1");
        CUdeviceptr p = allocate(4096);
        CUstream stream = new_stream(), gone = new_stream();
        ok(cu.cuStreamDestroy(gone));
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 1);
        ck_assert_int_eq(tutti_cuda_buffer_register(t, (void *)(uintptr_t)p, 4096, NULL, &b), TUTTI_OK);
        struct tutti_value v = floats(b, 0, 16);
        expect_refusal(g, &v, &TUTTI_OPTIONS(.check_inputs = 1, .has_stream = 1, .stream = stream),
                TUTTI_UNSUPPORTED);
        expect_refusal(g, &v, &TUTTI_OPTIONS(.has_stream = 1, .stream = gone), TUTTI_INVALID);
        ok(cu.cuStreamSynchronize(stream));
        ok(cu.cuMemFree(p)); /* early */
        expect_refusal(g, &v, &TUTTI_OPTIONS(.has_stream = 1, .stream = stream), TUTTI_INVALID);
        ok(cu.cuStreamSynchronize(stream));
        end_client(s, t);
}
END_TEST

/* --- a driver that fails --- */

/* Registers by handle, with a timeline, and takes what is submitted: refused halves too. */
static void script_patient(struct server *s) {
        struct request r;
        int fd = make_memory(PAGE_BYTES);
        struct signal_slot *slots = map_memory(fd, PAGE_BYTES);
        server_greet_and_join(s);
        while (server_take_any(s, &r)) {
                const struct msg_signal *signal = &r.submit.signal;
                if (r.type == REQUEST_OPEN_SIGNALS) {
                        server_reply_fd(s,
                                &(struct reply){ .request = r.request,
                                        .type = REPLY_SIGNALS,
                                        .signals = { ORDER_TIMELINE, 1, SIGNAL_SLOTS, "" } },
                                fd);
                } else if (r.type == REQUEST_SUBMIT && r.submit.refused != STATUS_OK) {
                        server_refuse(
                                s, r.request, r.submit.refused, r.submit.refused_field, "by the caller");
                } else if (r.type == REQUEST_SUBMIT) {
                        if (signal->value)
                                atomic_store(&slots[signal->slot].done, signal->value);
                        server_done(s, r.request, 1);
                } else if (r.type != REQUEST_GOODBYE) {
                        server_ok(s, r.request);
                }
        }
        close(fd);
        munmap(slots, PAGE_BYTES);
}

/* A buffer by handle or staged, and one collective on a stream. What came of it. */
static enum tutti_status reduce_once(
        struct tutti_group *g, struct tutti *t, CUdeviceptr p, CUstream stream, enum tutti_cuda_path path) {
        struct tutti_buffer *b;
        struct tutti_work *w;
        enum tutti_status status =
                tutti_cuda_buffer_register(t, (void *)(uintptr_t)p, 4096, &TUTTI_CUDA_ARGS(.path = path), &b);
        if (status != TUTTI_OK)
                return status;
        struct tutti_value v = floats(b, 0, 16);
        status = tutti_all_reduce_start(
                g, "a", TUTTI_SUM, &v, &v, &TUTTI_OPTIONS(.has_stream = 1, .stream = stream), &w);
        if (status == TUTTI_OK) {
                status = tutti_work_wait(w, -1);
                tutti_work_free(w);
        }
        tutti_buffer_free(b);
        return status;
}

/* Every call fails once, alone and where it stands; the next collective is well, and no stream waits. A copy
 * that is still under way when the call fails finds its memory. */
static void fail_each(const char *const *calls, size_t n, enum tutti_cuda_path path) {
        struct server *s = server_start(script_patient, NULL);
        begin_client("1");
        CUdeviceptr p = allocate(4096);
        CUstream stream = new_stream();
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 1);
        ck_assert_int_eq(reduce_once(g, t, p, stream, path), TUTTI_OK);
        for (size_t i = 0; i < n; i++) {
                fakecuda_strike(control, &(struct fakecuda_strike){ .fault = FAKECUDA_SLOWS,
                                                 .call = "cuMemcpyDtoHAsync",
                                                 .ms = 100,
                                                 .repeats = true });
                fakecuda_strike(control,
                        &(struct fakecuda_strike){
                                .fault = FAKECUDA_FAILS, .call = calls[i], .code = CUDA_ERROR_UNKNOWN });
                enum tutti_status status = reduce_once(g, t, p, stream, path);
                ck_assert_msg(status != TUTTI_OK, "%s failed, and nobody was told", calls[i]);
                fakecuda_clear(control);
                ok(cu.cuStreamSynchronize(stream));
                ck_assert_int_eq(reduce_once(g, t, p, stream, path), TUTTI_OK);
        }
        end_client(s, t);
}

START_TEST(a_driver_that_fails_at_any_call_is_told_and_survived) {
        static const char *const calls[] = { "cuDeviceGet", "cuDeviceGetUuid", "cuDeviceGetAttribute",
                "cuMemGetAddressRange", "cuCtxPushCurrent", "cuIpcGetMemHandle", "cuStreamWriteValue64",
                "cuStreamWaitValue64" };
        fail_each(calls, ARRAY_SIZE(calls), TUTTI_CUDA_IPC);
}
END_TEST

START_TEST(a_driver_that_fails_at_any_copy_is_told_and_survived) {
        static const char *const calls[] = { "cuMemcpyDtoHAsync", "cuMemcpyHtoD", "cuStreamSynchronize" };
        fail_each(calls, ARRAY_SIZE(calls), TUTTI_CUDA_STAGED);
}
END_TEST

/* F8: a limit on pinned memory costs speed, and is told. */
START_TEST(F8_what_cannot_be_pinned_is_copied_all_the_same) {
        struct server *s = server_start(script_patient, NULL);
        struct tutti_buffer *b;
        const char *why;
        begin_client("1");
        CUdeviceptr p = allocate(4096);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 1);
        fakecuda_strike(control, &(struct fakecuda_strike){ .fault = FAKECUDA_FAILS,
                                         .call = "cuMemHostRegister",
                                         .code = CUDA_ERROR_OUT_OF_MEMORY });
        ck_assert_int_eq(tutti_cuda_buffer_register(t, (void *)(uintptr_t)p, 4096,
                                 &TUTTI_CUDA_ARGS(.path = TUTTI_CUDA_STAGED), &b),
                TUTTI_OK);
        tutti_cuda_buffer_path(b, &why);
        ck_assert_ptr_nonnull(strstr(why, "asked for; pinned=no (cuMemHostRegister failed"));
        put_floats(p, 4, 5);
        struct tutti_value v = floats(b, 0, 4);
        ck_assert_int_eq(tutti_all_reduce(g, "a", TUTTI_SUM, &v, &v), TUTTI_OK);
        ck_assert_float_eq(float_at(p, 3), 8);
        end_client(s, t);
}
END_TEST

UNIT_MAIN("lib-cuda", 30, E6_memory_of_cudaMalloc_goes_by_its_handle_and_is_not_opened_here,
        E7_memory_of_cuMemCreate_goes_by_its_descriptor,
        E7_what_cannot_be_exported_is_refused_with_the_allocators_setting,
        memory_that_tuttid_makes_is_mapped_here, what_is_no_device_memory_is_refused,
        without_a_driver_it_is_said_what_to_do, E8_memory_that_tuttid_does_not_reach_is_copied,
        streams_and_collectives_wait_for_each_other_on_the_device, E12_a_stream_goes_on_when_tuttid_is_gone,
        without_a_timeline_the_call_waits_for_the_stream, a_half_that_is_refused_here_leaves_the_stream_alone,
        a_driver_that_fails_at_any_call_is_told_and_survived,
        a_driver_that_fails_at_any_copy_is_told_and_survived, F8_what_cannot_be_pinned_is_copied_all_the_same)
