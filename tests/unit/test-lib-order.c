/* Streams that wait for a collective, and a process that is forked meanwhile. */
#include <stdatomic.h>
#include <sys/mman.h>
#include <tutti/cuda.h>
#include "fakecuda-room.h"
#include "lib-server.h"

#define PAGE_BYTES (SIGNAL_SLOTS * sizeof(struct signal_slot))

/* What script and test know of each other. */
static struct {
        struct signal_slot *slots;
        struct msg_signal signal;
        atomic_bool is_submitted, may_end;
} meeting;

static void answer_timeline(struct server *s) {
        struct request r = server_take(s, REQUEST_OPEN_SIGNALS);
        int fd = memfd_create("signals", MFD_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, (off_t)PAGE_BYTES), 0);
        meeting.slots = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(meeting.slots, MAP_FAILED);
        server_reply_fd(s,
                &(struct reply){ .request = r.request,
                        .type = REPLY_SIGNALS,
                        .signals = { ORDER_TIMELINE, 1, SIGNAL_SLOTS, "" } },
                fd);
        close(fd);
}

static void script(struct server *s) {
        server_greet_and_join(s);
        struct request r = server_take(s, REQUEST_REGISTER);
        server_reply(s, &(struct reply){ .request = r.request, .type = REPLY_REGISTERED });
        answer_timeline(s);
        r = server_take(s, REQUEST_SUBMIT);
        meeting.signal = r.submit.signal;
        atomic_store(&meeting.is_submitted, true);
        while (!atomic_load(&meeting.may_end))
                a_while();
        atomic_store(&meeting.slots[meeting.signal.slot].done, meeting.signal.value);
        server_done(s, r.request, 0);
        server_serve(s);
}

/* Of the page: the server's, and the client's. */
static int mappings(void) {
        char line[512];
        int n = 0;
        FILE *maps = fopen("/proc/self/maps", "re");
        while (maps && fgets(line, sizeof(line), maps))
                n += strstr(line, "/memfd:signals") != NULL;
        if (maps)
                fclose(maps);
        return n;
}

/* It has not the client's page: that is charged to the parent while anybody has it. */
static void close_in_a_child(struct tutti *t) {
        ck_assert_int_eq(mappings(), 2);
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
                int n = mappings();
                tutti_close(t);
                _exit(n == 1 ? 0 : 1);
        }
        int status;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
}

START_TEST(a_forked_child_that_closes_lets_no_stream_of_the_parents_go) {
        struct server *s = server_start(script, NULL);
        struct tutti_buffer *b;
        struct tutti_work *w;
        struct fakecuda *control = listen_to_control();
        begin("1");
        use(0);
        CUdeviceptr p = allocate(4096);
        CUstream stream = new_stream();
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 1);
        ck_assert_int_eq(tutti_cuda_buffer_register(t, (void *)(uintptr_t)p, 4096, NULL, &b), TUTTI_OK);
        ck_assert_int_eq(tutti_cuda_order(t, NULL), TUTTI_CUDA_TIMELINE);
        struct tutti_value v = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { 16 });
        ck_assert_int_eq(tutti_all_reduce_start(g, "a", TUTTI_SUM, &v, &v,
                                 &TUTTI_OPTIONS(.has_stream = 1, .stream = stream), &w),
                TUTTI_OK);
        while (!atomic_load(&meeting.is_submitted))
                a_while();
        close_in_a_child(t);
        a_while();
        ck_assert_uint_lt(atomic_load(&meeting.slots[meeting.signal.slot].done), meeting.signal.value);
        is(cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
        atomic_store(&meeting.may_end, true);
        ok(cu.cuStreamSynchronize(stream));
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
        tutti_work_free(w);
        tutti_close(t);
        server_end(s);
        munmap(meeting.slots, PAGE_BYTES);
        fakecuda_close(control);
        end();
        ck_assert_int_eq(dlclose(cu.library), 0);
}
END_TEST

UNIT_MAIN("lib-order", 30, a_forked_child_that_closes_lets_no_stream_of_the_parents_go)
