/* Device memory and signal pages that tuttid sends to a process which has no descriptor left for them: what
 * was asked for fails, or is done without, and the connection goes on. */
#include <sys/mman.h>
#include <tutti/cuda.h>
#include "descriptors.h"
#include "fakecuda-room.h"
#include "lib-server.h"

#define GRANULE    ((size_t)2 << 20)
#define PAGE_BYTES (SIGNAL_SLOTS * sizeof(struct signal_slot))

static struct fakecuda *control;

static void begin_client(void) {
        control = listen_to_control();
        begin("1");
        use(0);
}

static void end_client(struct server *s, struct tutti *t) {
        tutti_close(t);
        server_end(s);
        fakecuda_close(control);
        end();
        ck_assert_int_eq(dlclose(cu.library), 0); /* libtutti has it still, and uses it no more */
}

/* Each time with the descriptor in `arg`; what was not received is given back. */
static void script_made(struct server *s) {
        struct request r;
        server_greet(s);
        for (int i = 0; i < 2; i++) {
                r = server_take(s, REQUEST_REGISTER);
                const uint64_t buffer = r.reg.buffer;
                server_reply_fd(s,
                        &(struct reply){ .request = r.request,
                                .type = REPLY_REGISTERED,
                                .registered = { 1, GRANULE } },
                        *(const int *)s->arg);
                if (i > 0)
                        break;
                r = server_take(s, REQUEST_UNREGISTER);
                ck_assert_uint_eq(r.buffer, buffer);
                server_ok(s, r.request);
        }
        for (int i = 0; i < 2; i++) { /* a timeline, events */
                r = server_take(s, REQUEST_OPEN_SIGNALS);
                server_reply(s, &(struct reply){ .request = r.request,
                                        .type = REPLY_SIGNALS,
                                        .signals = { .order = ORDER_HOST, .why = "not today" } });
        }
        server_serve(s);
}

START_TEST(P7_memory_that_cannot_be_received_is_refused_and_given_back) {
        const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
        CUmemGenericAllocationHandle h;
        struct tutti_buffer *b;
        int fd;
        begin_client();
        ok(cu.cuMemCreate(&h, GRANULE, &prop, 0));
        ok(cu.cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        struct server *s = server_start(script_made, &fd);
        struct tutti *t = client_open(s);
        descriptors_run_out(getpid(), 0);
        ck_assert_int_eq(tutti_cuda_buffer_alloc(t, 1000, &b), TUTTI_LIMIT);
        ck_assert_msg(strstr(tutti_error(), "this process has no descriptor left"), "%s", tutti_error());
        ck_assert_int_eq(tutti_dispatch(t), TUTTI_OK);
        descriptors_are_back(getpid());
        ck_assert_int_eq(tutti_cuda_buffer_alloc(t, 1000, &b), TUTTI_OK);
        tutti_buffer_free(b);
        close(fd);
        end_client(s, t);
}
END_TEST

static void script_timeline(struct server *s) {
        server_greet(s);
        struct request r = server_take(s, REQUEST_OPEN_SIGNALS);
        server_reply_fd(s,
                &(struct reply){ .request = r.request,
                        .type = REPLY_SIGNALS,
                        .signals = { ORDER_TIMELINE, 1, SIGNAL_SLOTS, "" } },
                *(const int *)s->arg);
        server_serve(s);
}

START_TEST(P15_without_a_descriptor_for_the_signal_page_the_host_waits_and_it_is_said) {
        int fd = memfd_create("signals", MFD_CLOEXEC);
        const char *why;
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, (off_t)PAGE_BYTES), 0);
        begin_client();
        struct server *s = server_start(script_timeline, &fd);
        struct tutti *t = client_open(s);
        descriptors_run_out(getpid(), 0);
        ck_assert_int_eq(tutti_cuda_order(t, &why), TUTTI_CUDA_HOST);
        descriptors_are_back(getpid());
        ck_assert_msg(strstr(why, "the signal page could not be received: this process has no descriptor"),
                "%s", why);
        ck_assert_int_eq(tutti_dispatch(t), TUTTI_OK);
        close(fd);
        end_client(s, t);
}
END_TEST

UNIT_MAIN("lib-cuda-descriptors", 30, P7_memory_that_cannot_be_received_is_refused_and_given_back,
        P15_without_a_descriptor_for_the_signal_page_the_host_waits_and_it_is_said)
