/* What is on its way to the GPU process, over a socket that takes as many packets as the test says, and whose
 * other end the test holds. */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/clock.h"
#include "worker-internal.h"
#include "worker-task.h"

static int sending = -1; /* the socket that takes */
static int n_taken;      /* ... so many packets more */

/* Before that of the C library. */
ssize_t sendmsg(int fd, const struct msghdr *m, int flags) {
        if (fd == sending && n_taken == 0) {
                errno = EAGAIN;
                return -1;
        }
        n_taken -= fd == sending;
        return syscall(SYS_sendmsg, fd, m, flags);
}

struct fixture {
        uv_loop_t loop;
        struct workers *w;
        int there; /* the process's end */
        union worker_packet *packet;
};

static void on_ring(void *data) {
        (void)data;
}

static void set_up(struct fixture *f) {
        const struct workers_setting setting = { .why = "", .bell = { .ring = on_ring }, .now_ns = 1 };
        struct epoll_event e = { .events = EPOLLIN };
        int pair[2];
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        ck_assert_int_eq(uv_loop_init(&f->loop), 0);
        ck_assert_int_eq(workers_new(&f->w, &f->loop, &setting), 0);
        f->packet = malloc(sizeof(*f->packet));
        ck_assert_ptr_nonnull(f->packet);
        f->there = pair[1];
        f->w->socket = sending = pair[0];
        f->w->events = epoll_create1(EPOLL_CLOEXEC);
        ck_assert_int_eq(epoll_ctl(f->w->events, EPOLL_CTL_ADD, f->w->socket, &e), 0);
        f->w->n_devices = 1;
        workers_enter(f->w, WORKER_SERVING);
        n_taken = 0;
}

static void tear_down(struct fixture *f) {
        workers_stop(f->w);
        workers_free(f->w);
        ck_assert_int_eq(uv_loop_close(&f->loop), 0);
        uv_library_shutdown();
        close(f->there);
        free(f->packet);
}

/* Which the process has already. */
static struct memory there(uint64_t number) {
        return (struct memory){ .n_bytes = 4 * COUNT, .remote = number, .fd = -1 };
}

/* The process reads the next packet. */
static const union worker_packet *read_packet(struct fixture *f, enum worker_verb verb) {
        struct packet packet;
        ck_assert_int_eq(channel_receive(f->there, f->packet->bytes, &packet), 1);
        packet_close_fds(&packet);
        ck_assert_int_eq(f->packet->head.verb, verb);
        return f->packet;
}

static void say(struct fixture *f, const union worker_packet *p) {
        ck_assert_int_eq(channel_send(f->there, p, worker_packet_bytes(p), NULL, 0), 0);
        while (workers_read(f->w))
                ;
}

static void say_done(struct fixture *f, uint64_t ticket) {
        f->packet->run_done = (struct worker_run_done){
                .head = { .verb = WORKER_RUN_DONE, .ticket = ticket }, .started_ns = 1, .done_ns = 2
        };
        say(f, f->packet);
}

static void allow(struct fixture *f, int n) {
        n_taken = n;
        workers_flush(f->w);
}

START_TEST(a_run_may_end_while_something_else_waits_behind_it) {
        struct fixture f;
        struct memory a = there(1), b = there(2);
        struct task *t = make_task(&a, &b);
        set_up(&f);
        workers_start(f.w, t);
        allow(&f, 2); /* its last part waits */
        ck_assert(!workers_is_out(t));
        f.w->needs_ping = true;
        allow(&f, 1); /* the ping waits */
        ck_assert_uint_ne(f.w->n_out_bytes, 0);
        ck_assert(workers_is_out(t));
        uint64_t ticket = read_packet(&f, WORKER_RUN)->head.ticket;
        say_done(&f, ticket);
        ck_assert_int_eq(f.w->state, WORKER_SERVING);
        ck_assert_ptr_eq(workers_take_done_task(f.w), t);
        ck_assert_int_eq(t->status, STATUS_OK);
        tear_down(&f);
        engine_task_free(t);
}
END_TEST

START_TEST(what_has_gone_out_whole_is_not_run_twice) {
        struct fixture f;
        struct memory a = there(1), b = there(2);
        struct task *t = make_task(&a, &b), *next = make_task(&a, &b);
        set_up(&f);
        workers_start(f.w, t);
        workers_start(f.w, next);
        allow(&f, 2);
        f.w->needs_ping = true;
        allow(&f, 1);
        workers_lose(f.w, "it has ended");
        ck_assert_ptr_eq(workers_take_done_task(f.w), t);
        ck_assert_int_eq(t->status, STATUS_DEVICE_LOST);
        ck_assert(!t->is_untouched);
        ck_assert_ptr_null(workers_take_done_task(f.w)); /* the other waits for the next process */
        workers_give_up(f.w, "there will be none");
        ck_assert_ptr_eq(workers_take_done_task(f.w), next);
        ck_assert_int_eq(next->status, STATUS_DEVICE_LOST);
        ck_assert(next->is_untouched);
        tear_down(&f);
        engine_task_free(t);
        engine_task_free(next);
}
END_TEST

/* What the process has. */
static struct memory *find(void *data, uint64_t number) {
        struct memory *a = data;
        return number == a->remote ? a : NULL;
}

/* The process reads a run, which it takes for well made; the number of what it has not. */
static uint64_t read_run(struct fixture *f, struct memory *a) {
        const struct worker_memories memories = { .find = find, .data = a };
        struct worker_assembly run;
        int r;
        worker_assembly_init(&run);
        ck_assert_int_eq(worker_assembly_begin(&run, &read_packet(f, WORKER_RUN)->run), 0);
        while ((r = worker_assembly_add(&run, &read_packet(f, WORKER_PART)->part, &memories)) == 0)
                ;
        ck_assert_int_eq(r, 1);
        uint64_t missing = run.missing;
        worker_assembly_deinit(&run);
        return missing;
}

static void say_failed(struct fixture *f, uint64_t number) {
        f->packet->chore_done =
                (struct worker_chore_done){ .head = { .verb = WORKER_CHORE_DONE, .ticket = number },
                        .number = number,
                        .status = STATUS_BAD_FD };
        say(f, f->packet);
}

/* With its page forgotten a run would not wait for the streams, and read what is not written yet. */
START_TEST(a_signal_page_that_fails_while_a_plan_is_on_its_way_is_missed) {
        struct fixture f;
        struct memory a = there(1), page = { .n_bytes = 4096, .path = PATH_MEMFD, .fd = -1 };
        struct signal signal = { .page = &page, .slot = 3, .value = 7 };
        struct task *t = make_task(&a, &a);
        set_up(&f);
        f.w->last_number = 1;
        t->signals = &signal;
        t->n_signals = 1;
        workers_start(f.w, t);
        allow(&f, 2);
        uint64_t number = read_packet(&f, WORKER_IMPORT)->import.number;
        say_failed(&f, number);
        allow(&f, 100);
        ck_assert_uint_eq(read_run(&f, &a), number);
        workers_forget(f.w, &page);
        t->signals = NULL;
        tear_down(&f);
        engine_task_free(t);
}
END_TEST

START_TEST(host_memory_that_has_failed_has_no_number_in_the_next_process) {
        struct fixture f;
        struct memory a = there(1), b = { .n_bytes = 4 * COUNT, .path = PATH_MEMFD, .fd = -1 };
        struct task *t = make_task(&a, &b);
        set_up(&f);
        f.w->last_number = 1;
        workers_start(f.w, t);
        allow(&f, 2);
        say_failed(&f, read_packet(&f, WORKER_IMPORT)->import.number);
        workers_lose(f.w, "it has ended");
        ck_assert_uint_eq(b.remote, 0);
        ck_assert_uint_eq(f.w->n_failed, 0);
        ck_assert_ptr_null(f.w->helds);
        ck_assert(!workers_is_out(t)); /* it begins anew there */
        tear_down(&f);
        engine_task_free(t);
}
END_TEST

/* Else its operands would name nothing, which no plan does, and the process would end. */
START_TEST(host_memory_that_fails_while_a_plan_is_on_its_way_keeps_its_number) {
        struct fixture f;
        struct memory a = there(1), b = { .n_bytes = 4 * COUNT, .path = PATH_MEMFD, .fd = -1 };
        struct task *t = make_task(&a, &b), *next = make_task(&a, &b);
        set_up(&f);
        f.w->last_number = 1;
        workers_start(f.w, t);
        workers_start(f.w, next);
        allow(&f, 2); /* what it names, and its head */
        uint64_t number = read_packet(&f, WORKER_IMPORT)->import.number;
        ck_assert_uint_eq(b.remote, number);
        say_failed(&f, number);
        ck_assert_uint_eq(b.remote, number);
        allow(&f, 100);
        ck_assert(workers_is_out(t) && workers_is_out(next));
        ck_assert_uint_eq(read_run(&f, &a), number);
        uint64_t again = read_packet(&f, WORKER_IMPORT)->import.number;
        ck_assert_uint_gt(again, number); /* the next one tries it anew */
        ck_assert_uint_eq(b.remote, again);
        ck_assert_uint_eq(read_run(&f, &a), again);
        workers_forget(f.w, &b);
        ck_assert_uint_eq(f.w->n_failed, 0);
        tear_down(&f);
        engine_task_free(t);
        engine_task_free(next);
}
END_TEST

/* ... also where nobody names it again: the process is asked to let it go, and says that it has not got it.
 */
START_TEST(host_memory_that_has_failed_can_be_forgotten) {
        struct fixture f;
        struct memory a = there(1), b = { .n_bytes = 4 * COUNT, .path = PATH_MEMFD, .fd = -1 };
        struct task *t = make_task(&a, &b);
        set_up(&f);
        f.w->last_number = 1;
        workers_start(f.w, t);
        allow(&f, 100);
        uint64_t number = read_packet(&f, WORKER_IMPORT)->import.number;
        say_failed(&f, number);
        workers_forget(f.w, &b);
        ck_assert_uint_eq(b.remote, 0);
        read_run(&f, &a);
        ck_assert_uint_eq(read_packet(&f, WORKER_RELEASE)->release.number, number);
        f.packet->chore_done = (struct worker_chore_done){
                .head = { .verb = WORKER_CHORE_DONE, .ticket = number }, .number = number, .status = STATUS_OK
        };
        say(&f, f.packet);
        ck_assert_int_eq(f.w->state, WORKER_SERVING);
        ck_assert_ptr_null(workers_find_held(f.w, number));
        ck_assert_uint_eq(f.w->n_failed, 0);
        tear_down(&f);
        engine_task_free(t);
}
END_TEST

static void say_hole(struct fixture *f, uint64_t ticket, uint32_t culprit) {
        f->packet->run_done = (struct worker_run_done){ .head = { .verb = WORKER_RUN_DONE, .ticket = ticket },
                .status = STATUS_BAD_FD,
                .culprit = culprit };
        say(f, f->packet);
}

/* The second operand's, by the number in its plan. */
START_TEST(P16_whose_memory_has_failed_is_one_of_those_of_the_plan) {
        const uint32_t nobodys[] = { 0, 4, UINT32_MAX };
        for (uint32_t i = 0; i <= ARRAY_SIZE(nobodys); i++) {
                struct fixture f;
                struct memory a = there(1), b = there(2);
                a.session = 7;
                b.session = 8;
                b.buffer = 9;
                struct task *t = make_task(&a, &b);
                set_up(&f);
                workers_start(f.w, t);
                allow(&f, 100);
                say_hole(&f, t->ticket, i < ARRAY_SIZE(nobodys) ? nobodys[i] : 2);
                if (i < ARRAY_SIZE(nobodys)) {
                        ck_assert_int_ne(f.w->state, WORKER_SERVING);
                        ck_assert_uint_eq(t->culprit_session, 0);
                } else {
                        ck_assert_int_eq(f.w->state, WORKER_SERVING);
                        ck_assert_ptr_eq(workers_take_done_task(f.w), t);
                        ck_assert_int_eq(t->status, STATUS_BAD_FD);
                        ck_assert_uint_eq(t->culprit_session, 8);
                        ck_assert_uint_eq(t->culprit_buffer, 9);
                }
                tear_down(&f);
                engine_task_free(t);
        }
}
END_TEST

UNIT_MAIN("worker-send", 10, a_run_may_end_while_something_else_waits_behind_it,
        what_has_gone_out_whole_is_not_run_twice,
        a_signal_page_that_fails_while_a_plan_is_on_its_way_is_missed,
        host_memory_that_has_failed_has_no_number_in_the_next_process,
        host_memory_that_fails_while_a_plan_is_on_its_way_keeps_its_number,
        host_memory_that_has_failed_can_be_forgotten, P16_whose_memory_has_failed_is_one_of_those_of_the_plan)
