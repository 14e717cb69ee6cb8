/* The door, when descriptors run out: who comes is let in by the spares, to be sent away, and without them
 * the door is shut and rings no more. */
#include "listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fd.h"
#include "base/heap.h"
#include "descriptors.h"
#include "unit.h"

#define NOW (1000 * NS_PER_S)

struct fixture {
        uv_loop_t loop;
        struct config config;
        struct listener *listener;
        unsigned int n_rings;
        int guest;
};

static void on_ring(void *data) {
        struct fixture *f = data;
        f->n_rings++;
}

static void set_up(struct fixture *f) {
        char why[256];
        *f = (struct fixture){ .guest = -1 };
        config_init(&f->config);
        snprintf(f->config.socket, sizeof(f->config.socket), "%s/t.sock", unit_directory());
        const struct listener_setting setting = {
                .config = &f->config, .bell = { .ring = on_ring, .data = f }, .passed_on = -1
        };
        ck_assert_int_eq(uv_loop_init(&f->loop), 0);
        int r = listener_new(&f->listener, &f->loop, &setting, why, sizeof(why));
        ck_assert_msg(r == 0, "%s", why);
}

static void tear_down(struct fixture *f) {
        fd_close(&f->guest);
        listener_close(f->listener);
        uv_run(&f->loop, UV_RUN_DEFAULT);
        listener_free(f->listener);
        ck_assert_int_eq(uv_loop_close(&f->loop), 0);
        uv_library_shutdown();
}

/* Somebody comes; how often the bell rings within a few turns of the loop. */
static unsigned int come(struct fixture *f) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        memcpy(address.sun_path, f->config.socket, strlen(f->config.socket) + 1);
        f->guest = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        ck_assert_int_ge(f->guest, 0);
        ck_assert_int_eq(connect(f->guest, (const struct sockaddr *)&address, sizeof(address)), 0);
        f->n_rings = 0;
        for (int i = 0; i < 3; i++)
                uv_run(&f->loop, UV_RUN_NOWAIT);
        return f->n_rings;
}

static void expect_closed_end(int fd) {
        char byte;
        ck_assert_int_eq(recv(fd, &byte, 1, 0), 0);
}

START_TEST(who_comes_is_let_in_once) {
        struct fixture f;
        set_up(&f);
        ck_assert_int_eq(listener_accept(f.listener, NOW), -EAGAIN);
        ck_assert_uint_gt(come(&f), 0);
        CLEANUP_FD int fd = listener_accept(f.listener, NOW);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(listener_accept(f.listener, NOW), -EAGAIN);
        ck_assert_uint_eq(listener_next_ns(f.listener), ALARM_NEVER);
        fd_close(&fd);
        tear_down(&f);
}
END_TEST

START_TEST(P21_without_descriptors_the_guest_is_the_callers_to_send_away) {
        struct fixture f;
        set_up(&f);
        ck_assert_uint_gt(come(&f), 0);
        descriptors_run_out(getpid(), 0);
        for (int i = 0; i < 2; i++) {
                ck_assert_int_eq(listener_accept(f.listener, NOW), -EMFILE);
                int fd = listener_accept_by_spare(f.listener, NOW);
                ck_assert_int_ge(fd, 0);
                int look = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0); /* one is left, to look at it */
                ck_assert_int_ge(look, 0);
                close(look);
                close(fd);
                expect_closed_end(f.guest);
                descriptors_are_back(getpid());
                fd_close(&f.guest);
                ck_assert_int_eq(listener_accept(f.listener, NOW), -EAGAIN);
                ck_assert_uint_gt(come(&f), 0); /* the door is open */
                descriptors_run_out(getpid(), 0);
        }
        ck_assert_uint_eq(listener_next_ns(f.listener), ALARM_NEVER);
        descriptors_are_back(getpid());
        tear_down(&f);
}
END_TEST

/* As when a guest is still being closed elsewhere. */
START_TEST(P21_while_one_is_on_its_way_out_the_door_is_shut_and_does_not_ring) {
        struct fixture f;
        set_up(&f);
        ck_assert_uint_gt(come(&f), 0);
        descriptors_run_out(getpid(), 0);
        ck_assert_int_eq(listener_accept(f.listener, NOW), -EMFILE);
        int fd = listener_accept_by_spare(f.listener, NOW);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(listener_accept(f.listener, NOW), -EAGAIN);
        uint64_t again = listener_next_ns(f.listener);
        ck_assert(again > NOW && again <= NOW + NS_PER_S);
        descriptors_are_back(getpid());
        CLEANUP_FD int first = fd_take(&f.guest);
        ck_assert_uint_eq(come(&f), 0);
        descriptors_run_out(getpid(), 0);
        listener_expire(f.listener, again); /* it is still there */
        ck_assert_uint_gt(listener_next_ns(f.listener), again);
        close(fd);
        again = listener_next_ns(f.listener);
        listener_expire(f.listener, again - 1); /* too early */
        ck_assert_uint_eq(listener_next_ns(f.listener), again);
        listener_expire(f.listener, again);
        ck_assert_uint_eq(listener_next_ns(f.listener), ALARM_NEVER);
        descriptors_are_back(getpid());
        uv_run(&f.loop, UV_RUN_NOWAIT);
        ck_assert_uint_gt(f.n_rings, 0); /* for the one that waits */
        fd = listener_accept(f.listener, again);
        ck_assert_int_ge(fd, 0);
        close(fd);
        fd_close(&first);
        tear_down(&f);
}
END_TEST

UNIT_MAIN("listener", 20, who_comes_is_let_in_once,
        P21_without_descriptors_the_guest_is_the_callers_to_send_away,
        P21_while_one_is_on_its_way_out_the_door_is_shut_and_does_not_ring)
