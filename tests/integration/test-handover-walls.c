/* Restarts in order under a service manager, seen by connections that have no library behind them: what the
 * next tuttid takes from whom, and who is not handed over (M3, P17, P18, P20, P21, ADR 0012). */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"
#include "manager.h"
#include "meeting.h"
#include "raw.h"
#include "unit.h"

#define MAX_DROPPED (4 * STATUS_PAGE_SLOTS)

static uint64_t say_hello(struct raw *r) {
        return raw_send(r, &(struct request){ .type = REQUEST_HELLO,
                                   .hello = { .min_version = PROTOCOL_MIN,
                                           .max_version = PROTOCOL_MAX,
                                           .client = "raw",
                                           .process = "raw",
                                           .may_be_handed_over = true } });
}

static struct raw *open_raw(struct manager *m) {
        struct raw *r = raw_connect(manager_socket(m));
        raw_expect(r, say_hello(r), STATUS_OK);
        return r;
}

static void expect_hand_over(struct raw *r) {
        struct reply reply;
        ck_assert(raw_take(r, &reply));
        ck_assert_uint_eq(reply.request, 0);
        ck_assert_int_eq(reply.status, STATUS_OK);
        ck_assert_int_eq(reply.type, REPLY_HAND_OVER);
}

static int descriptors_of(struct manager *m) {
        char path[64], line[256];
        int n = 0;
        snprintf(path, sizeof(path), "ls /proc/%d/fd", (int)manager_pid(m));
        FILE *ls = popen(path, "r");
        ck_assert_ptr_nonnull(ls);
        while (fgets(line, sizeof(line), ls))
                n++;
        ck_assert_int_eq(pclose(ls), 0);
        return n;
}

/* Some are closed a moment later, on other threads. */
static int fewest_descriptors_of(struct manager *m) {
        int fewest = INT32_MAX;
        for (int i = 0; i < 30; i++) {
                int n = descriptors_of(m);
                fewest = n < fewest ? n : fewest;
                seconds_sleep(0.01);
        }
        return fewest;
}

static void expect_descriptors(struct manager *m, int n) {
        double limit = seconds_now() + 2 * unit_scale();
        while (descriptors_of(m) != n && seconds_now() < limit)
                seconds_sleep(0.01);
        ck_assert_int_eq(descriptors_of(m), n);
}

/* Well formed and not, with memory, with descriptors that are none, and some that would end any other. */
static void send_rubbish(struct raw *r) {
        const struct request join = raw_join_request("train", 0, 1);
        int fds[3] = { raw_memfd(4096), open("/dev/null", O_RDONLY | O_CLOEXEC), raw_memfd(0) };
        raw_send(r, &join);
        raw_register(r, 1, raw_memfd(4096), 4096);
        raw_send_bytes(r, "\xff\xfe rubbish \xfd", 12, fds, 3);
        raw_send_bytes(r, "\x08", 1, NULL, 0);
        raw_send(r, &(struct request){ .type = REQUEST_GOODBYE });
        for (int i = 0; i < 3; i++)
                close(fds[i]);
}

static void meet_alone(struct raw *r) {
        struct raw_member member = raw_join(r, "train", 0, 1);
        raw_buffer(r, 1, raw_memfd(4096), 4096);
        raw_expect(r, raw_submit(r, &member, "a", 1, 16), STATUS_OK);
}

START_TEST(P9_P17_what_comes_before_the_hello_is_dropped_and_the_hello_works) {
        struct manager *m = manager_begin();
        struct raw *r = open_raw(m);
        meet_alone(r);
        int n_before = fewest_descriptors_of(m);
        manager_stop(m, 1);
        expect_hand_over(r);
        ck_assert(raw_is_silent(r, 0.1)); /* and does not end */
        send_rubbish(r);
        manager_go_on(m, NULL);
        send_rubbish(r);
        ck_assert(raw_is_silent(r, 0.2));
        raw_expect(r, say_hello(r), STATUS_OK);
        meet_alone(r);
        raw_expect_used(r, "descriptors", 4); /* socket, pidfd, page, memory */
        expect_descriptors(m, n_before);
        raw_send_bytes(r, "rubbish", 7, NULL, 0); /* from here on it is as with all others */
        raw_expect_ejected(r, STATUS_INVALID);
        raw_close(r);
        manager_finish(m);
}
END_TEST

START_TEST(P21_who_sends_rubbish_without_end_is_ejected) {
        struct manager *m = manager_begin();
        struct raw *r = open_raw(m), *other = open_raw(m);
        manager_stop(m, 2);
        expect_hand_over(r);
        expect_hand_over(other);
        manager_go_on(m, NULL);
        for (int i = 0; i < MAX_DROPPED; i++)
                raw_send_bytes(r, "rubbish", 7, NULL, 0);
        ck_assert(raw_is_silent(r, 0.5));
        raw_send_bytes(r, "rubbish", 7, NULL, 0);
        raw_expect_ejected(r, STATUS_LIMIT);
        raw_expect(other, say_hello(other), STATUS_OK);
        raw_expect_used(other, "connections", 1);
        raw_close(r);
        raw_close(other);
        manager_finish(m);
}
END_TEST

START_TEST(P18_P20_who_never_greets_or_dies_in_between_leaves_nothing) {
        struct manager *m = manager_begin();
        struct raw *r[4];
        for (int i = 0; i < 4; i++)
                r[i] = open_raw(m);
        manager_stop(m, 4);
        raw_close(r[0]);
        ck_assert_uint_eq(manager_n_connections(m), 3);
        manager_start(m, &(struct manager_start){ .passed_on = manager_kept(m) });
        raw_close(r[1]); /* on its way */
        manager_expect(m, "READY=1", 5);
        expect_hand_over(r[3]);
        raw_expect(r[3], say_hello(r[3]), STATUS_OK);
        raw_expect_used(r[3], "connections", 2); /* its own, and one that is silent */
        raw_close(r[2]);
        raw_expect_used(r[3], "connections", 1);
        raw_expect_used(r[3], "descriptors", 3);
        raw_close(r[3]);
        manager_finish(m);
}
END_TEST

static pid_t fork_to_wait(void) {
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0)
                alarm(60); /* should the test end otherwise */
        while (pid == 0)
                pause();
        return pid;
}

/* A client that has forked: its child keeps the socket, and knows nothing of it. */
static void open_and_fork(struct manager *m, pid_t *ret_pid, pid_t *ret_child) {
        pid_t *child = memory_shared(sizeof(*child));
        int ready[2];
        ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
        *ret_pid = fork();
        ck_assert_int_ge(*ret_pid, 0);
        if (*ret_pid == 0) {
                alarm(60);
                open_raw(m);
                *child = fork_to_wait();
                ck_assert_int_eq(write(ready[1], "x", 1), 1);
                while (true)
                        pause();
        }
        char byte;
        close(ready[1]);
        ck_assert_int_eq(read(ready[0], &byte, 1), 1);
        close(ready[0]);
        *ret_child = *child;
}

START_TEST(P5_P20_who_dies_in_between_is_missed_though_a_child_holds_its_socket) {
        struct manager *m = manager_begin();
        pid_t pid, child;
        open_and_fork(m, &pid, &child);
        manager_stop(m, 1);
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
        ck_assert_uint_eq(manager_n_connections(m), 1);
        manager_go_on(m, NULL);
        struct raw *other = open_raw(m);
        raw_expect_used(other, "connections", 1);
        raw_expect_used(other, "descriptors", 3);
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        raw_close(other);
        manager_finish(m);
}
END_TEST

/* By the same door as others: who does not get in hears nothing but the end. */
START_TEST(P18_quotas_hold_for_those_who_are_handed_over) {
        struct manager *m = manager_begin();
        struct raw *r[3];
        uint32_t n_in = 0;
        for (int i = 0; i < 3; i++)
                r[i] = open_raw(m);
        manager_stop(m, 3);
        manager_go_on(m, (const char *[]){ "--set", "quota.connections=2", NULL });
        for (int i = 0; i < 3; i++) {
                struct reply reply;
                expect_hand_over(r[i]);
                say_hello(r[i]);
                if (raw_take(r[i], &reply)) {
                        ck_assert_int_eq(reply.type, REPLY_WELCOME);
                        n_in++;
                }
        }
        ck_assert_uint_eq(n_in, 2);
        expect_in(manager_log(m), "was turned away: QUOTA");
        for (int i = 0; i < 3; i++)
                raw_close(r[i]);
        manager_finish(m);
}
END_TEST

#define N_MANY 200

START_TEST(M3_more_than_a_message_of_the_manager_holds) {
        struct manager *m = manager_begin();
        struct raw *r[N_MANY];
        for (int i = 0; i < N_MANY; i++)
                r[i] = open_raw(m);
        manager_stop(m, N_MANY);
        manager_go_on(m, NULL);
        for (int i = 0; i < N_MANY; i++) {
                expect_hand_over(r[i]);
                raw_expect(r[i], say_hello(r[i]), STATUS_OK);
        }
        raw_expect_used(r[0], "connections", N_MANY);
        for (int i = 0; i < N_MANY; i++)
                raw_close(r[i]);
        manager_finish(m);
}
END_TEST

/* --- who is not handed over --- */

/* All that was sent to it, and the end; no hand-over. */
static uint32_t expect_end(struct raw *r) {
        struct reply reply;
        uint32_t n = 0;
        for (; raw_take(r, &reply); n++)
                ck_assert_int_ne(reply.type, REPLY_HAND_OVER);
        return n;
}

START_TEST(P21_who_leaves_replies_unread_ends_as_ever) {
        struct manager *m = manager_begin();
        struct raw *r = open_raw(m), *other = open_raw(m);
        for (int i = 0; i < 2000; i++) {
                const struct request ask = { .type = REQUEST_QUERY,
                        .query = { .what = WHAT_STATUS, .job = "", .group = "", .devices = "" } };
                if (!raw_try_send(r, &ask, NULL, 0))
                        break;
        }
        seconds_sleep(0.3);
        manager_stop(m, 1);
        ck_assert_uint_gt(expect_end(r), 0);
        expect_hand_over(other);
        raw_close(r);
        raw_close(other);
        manager_free(m);
}
END_TEST

START_TEST(P21_a_manager_that_takes_nothing_is_not_waited_for) {
        struct manager *m = manager_begin();
        struct raw *r = open_raw(m);
        ck_assert_uint_eq(manager_n_connections(m), 0);
        manager_stuff(m);
        double begun = seconds_now();
        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
        ck_assert_double_lt(seconds_now() - begun, 2 * unit_scale());
        ck_assert_uint_eq(expect_end(r), 0);
        ck_assert_uint_eq(manager_n_connections(m), 0);
        raw_close(r);
        manager_free(m);
}
END_TEST

/* Else it would be kept beside tuttid, and outlive it unseen. */
START_TEST(P9_what_the_manager_does_not_let_go_of_ends_at_the_start) {
        struct manager *m = manager_begin();
        struct raw *r = open_raw(m);
        manager_stop(m, 1);
        manager_start(m, &(struct manager_start){ .passed_on = manager_kept(m) });
        expect_hand_over(r);
        ck_assert_uint_eq(expect_end(r), 0);
        manager_expect(m, "FDSTOREREMOVE=1", 5); /* it reads only now */
        manager_expect(m, "READY=1", 5);
        raw_close(r);
        r = raw_open(manager_socket(m));
        raw_expect_used(r, "connections", 1);
        raw_close(r);
        manager_finish(m);
}
END_TEST

START_TEST(G13_without_a_manager_all_end) {
        struct host *h = host_start(NULL);
        struct raw *r = raw_connect(host_socket(h));
        raw_expect(r, say_hello(r), STATUS_OK);
        host_end(h);
        ck_assert_uint_eq(expect_end(r), 0);
        raw_close(r);
        host_stop(h);
}
END_TEST

/* --- descriptors that are no connections --- */

/* Connected to, and accepted at, another path. */
static int accept_elsewhere(int *ret_client) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/other.sock", unit_directory());
        CLEANUP_FD int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
        ck_assert_int_eq(listen(listener, 1), 0);
        *ret_client = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(connect(*ret_client, (struct sockaddr *)&address, sizeof(address)), 0);
        int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        ck_assert_int_ge(accepted, 0);
        ck_assert_int_eq(unlink(address.sun_path), 0);
        return accepted;
}

static void keep_and_close(struct manager *m, int fd) {
        manager_keep_connection(m, fd);
        close(fd);
}

static void expect_ended(int fd) {
        char byte;
        ck_assert_int_eq(recv(fd, &byte, 1, 0), 0);
        close(fd);
}

START_TEST(P17_what_is_no_connection_is_closed_and_harms_nobody) {
        struct manager *m = manager_begin();
        struct raw *r = open_raw(m);
        int pair[2], elsewhere;
        manager_stop(m, 1);
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        keep_and_close(m, pair[1]);
        keep_and_close(m, accept_elsewhere(&elsewhere));
        keep_and_close(m, open("/dev/zero", O_RDONLY | O_CLOEXEC));
        manager_keep_connection(m, manager_kept(m)); /* it listens */
        manager_go_on(m, NULL);
        expect_in(manager_log(m), "of 5 descriptors that were passed on as connections 4 are none to");
        ck_assert_uint_eq(manager_n_connections(m), 0);
        expect_ended(pair[0]);
        expect_ended(elsewhere);
        expect_hand_over(r);
        raw_expect(r, say_hello(r), STATUS_OK);
        raw_expect_used(r, "connections", 1);
        raw_close(r);
        r = raw_open(manager_socket(m)); /* the door is open */
        raw_close(r);
        manager_finish(m);
}
END_TEST

UNIT_MAIN("handover-walls", 120, P9_P17_what_comes_before_the_hello_is_dropped_and_the_hello_works,
        P21_who_sends_rubbish_without_end_is_ejected,
        P18_P20_who_never_greets_or_dies_in_between_leaves_nothing,
        P5_P20_who_dies_in_between_is_missed_though_a_child_holds_its_socket,
        P18_quotas_hold_for_those_who_are_handed_over, M3_more_than_a_message_of_the_manager_holds,
        P21_who_leaves_replies_unread_ends_as_ever, P21_a_manager_that_takes_nothing_is_not_waited_for,
        P9_what_the_manager_does_not_let_go_of_ends_at_the_start, G13_without_a_manager_all_end,
        P17_what_is_no_connection_is_closed_and_harms_nobody)
