/* Descriptors that block when they are closed: whichever way they take into tuttid, the loop thread does not
 * close them, and nobody else waits (P21). */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "descriptors.h"
#include "meeting.h"
#include "raw.h"
#include "stage.h"
#include "unit.h"

struct lingering {
        int listener, sender, receiver;
};

/* A TCP connection to ourselves, full, whose reader reads nothing: who closes its sender last waits. */
static void lingering_init(struct lingering *l, int seconds) {
        struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t n = sizeof(address);
        const struct linger linger = { 1, seconds };
        const int few = 2048;
        static char bytes[65536];
        l->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_ge(l->listener, 0);
        ck_assert_int_eq(setsockopt(l->listener, SOL_SOCKET, SO_RCVBUF, &few, sizeof(few)), 0);
        ck_assert_int_eq(bind(l->listener, (struct sockaddr *)&address, n), 0);
        ck_assert_int_eq(listen(l->listener, 1), 0);
        ck_assert_int_eq(getsockname(l->listener, (struct sockaddr *)&address, &n), 0);
        l->sender = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(connect(l->sender, (struct sockaddr *)&address, n), 0);
        l->receiver = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC);
        ck_assert_int_ge(l->receiver, 0);
        while (send(l->sender, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
                ;
        ck_assert_int_eq(setsockopt(l->sender, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
}

/* Whoever holds the sender is released. */
static void lingering_deinit(struct lingering *l) {
        fd_close(&l->listener);
        fd_close(&l->receiver);
        fd_close(&l->sender);
}

static const struct request nothing = { .type = REQUEST_UNREGISTER, .buffer = 7 };

/* The ways into tuttid, or into its sockets. What is sent is read when tuttid goes on. */
static struct raw *by_a_message(struct host *h, int fd) {
        struct raw *r = raw_open(host_socket(h));
        kill(host_pid(h), SIGSTOP);
        raw_send_fds(r, &nothing, &fd, 1);
        return r;
}

static struct raw *by_an_empty_packet(struct host *h, int fd) {
        struct raw *r = raw_open(host_socket(h));
        kill(host_pid(h), SIGSTOP);
        raw_send_bytes(r, "", 0, &fd, 1);
        return r;
}

static struct raw *by_a_packet_that_is_too_long(struct host *h, int fd) {
        static char bytes[MAX_PACKET_BYTES + 1];
        struct raw *r = raw_open(host_socket(h));
        kill(host_pid(h), SIGSTOP);
        raw_send_bytes(r, bytes, sizeof(bytes), &fd, 1);
        return r;
}

static struct raw *among_too_many(struct host *h, int fd) {
        int fds[MAX_RECEIVED_FDS];
        struct raw *r = raw_open(host_socket(h));
        for (int i = 0; i < MAX_RECEIVED_FDS; i++)
                fds[i] = STDERR_FILENO;
        fds[MAX_RECEIVED_FDS - 1] = fd;
        kill(host_pid(h), SIGSTOP);
        raw_send_bytes(r, "x", 1, fds, MAX_RECEIVED_FDS);
        return r;
}

static struct raw *behind_a_mistake(struct host *h, int fd) {
        struct raw *r = raw_open(host_socket(h));
        kill(host_pid(h), SIGSTOP);
        raw_hello(r); /* the second: what follows is never read */
        raw_send_fds(r, &nothing, &fd, 1);
        return r;
}

static struct raw *behind_a_held_submission(struct host *h, int fd) {
        struct raw *r = raw_open(host_socket(h));
        struct raw_member m = raw_join(r, "held", 0, 1);
        kill(host_pid(h), SIGSTOP);
        raw_register(r, 1, raw_memfd(4096), 4096);
        raw_submit(r, &m, "a", 1, 4);
        raw_send_bytes(r, "no message", 10, NULL, 0);
        raw_send_fds(r, &nothing, &fd, 1);
        return r;
}

/* The connections of this user are all taken. */
static struct raw *before_it_is_turned_away(struct host *h, int fd) {
        kill(host_pid(h), SIGSTOP);
        struct raw *r = raw_connect(host_socket(h));
        raw_send_bytes(r, "x", 1, &fd, 1);
        return r;
}

static struct raw *when_descriptors_have_run_out(struct host *h, int fd) {
        kill(host_pid(h), SIGSTOP);
        descriptors_run_out(host_pid(h), 0);
        struct raw *r = raw_connect(host_socket(h));
        raw_send_bytes(r, "x", 1, &fd, 1);
        return r;
}

/* tuttid is the last to hold what blocks for three seconds; the honest group does not wait for a third of
 * that. */
static void send_what_lingers(struct stage *s, struct raw *(*way)(struct host *, int)) {
        struct lingering l;
        lingering_init(&l, (int)(3 * unit_scale()));
        watch_begin();
        struct raw *r = way(s->h, l.sender);
        fd_close(&l.sender);
        kill(host_pid(s->h), SIGCONT);
        seconds_sleep(0.1);
        raw_close(r);
        watch_end(1);
        lingering_deinit(&l);
}

START_TEST(P21_no_way_leads_a_descriptor_that_blocks_to_the_loop) {
        static struct raw *(*const ways[])(struct host *, int) = { by_a_message, by_an_empty_packet,
                by_a_packet_that_is_too_long, among_too_many, behind_a_mistake, behind_a_held_submission };
        struct stage s;
        stage_set(&s, NULL);
        for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
                send_what_lingers(&s, ways[i]);
        stage_clear(&s);
}
END_TEST

START_TEST(P21_nor_does_one_of_a_guest_who_is_turned_away) {
        struct stage s;
        struct raw *last = NULL;
        stage_set(&s, (const char *[]){ "--set", "quota.connections=4", NULL });
        stage_expect_progress();
        struct raw *one = raw_open(host_socket(s.h));
        for (int i = 0; i < 100 && !last; i++) /* that of the last question may still be there */
                last = raw_open(host_socket(s.h));
        send_what_lingers(&s, before_it_is_turned_away);
        raw_close(one);
        raw_close(last);
        stage_clear(&s);
}
END_TEST

/* When there are descriptors again the door is open. */
START_TEST(P21_nor_does_one_of_a_guest_for_whom_there_is_no_descriptor) {
        struct stage s;
        stage_set(&s, NULL);
        stage_expect_progress();
        send_what_lingers(&s, when_descriptors_have_run_out);
        expect_in(host_log(s.h), "out of descriptors: a connection was turned away; raise LimitNOFILE");
        descriptors_are_back(host_pid(s.h));
        raw_close(raw_open(host_socket(s.h)));
        stage_clear(&s);
}
END_TEST

/* One that brings nothing is told why, over and over. */
START_TEST(P15_a_guest_for_whom_there_is_no_descriptor_is_told) {
        struct host *h = host_start(NULL);
        struct tutti *t;
        seconds_sleep(0.2 * unit_scale()); /* the connection by which it was seen to serve goes */
        descriptors_run_out(host_pid(h), 0);
        for (int i = 0; i < 100; i++) {
                expect_status(tutti_open(host_socket(h), &t), TUTTI_LIMIT);
                expect_in(tutti_error(), "tuttid has no descriptor left; raise its LimitNOFILE");
        }
        descriptors_are_back(host_pid(h));
        expect_status(tutti_open(host_socket(h), &t), TUTTI_OK);
        tutti_close(t);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

static void kill_behind_it(struct replica *me) {
        struct lingering *l = me->arg;
        struct raw *r = raw_open(me->socket);
        replica_say(me, "ready");
        replica_hear(me, "send");     /* tuttid stands still */
        for (int i = 0; i < 100; i++) /* more than is read of the dead */
                raw_send(r, &nothing);
        raw_send_fds(r, &nothing, &l->sender, 1);
        fd_close(&l->sender);
        replica_say(me, "sent");
        pause();
}

START_TEST(P21_nor_does_one_that_the_dead_have_left) {
        struct stage s;
        struct lingering l;
        stage_set(&s, NULL);
        lingering_init(&l, (int)(3 * unit_scale()));
        struct replica *r =
                replica_spawn(s.h, &(struct replica_options){ .n = 1, .body = kill_behind_it, .arg = &l });
        fd_close(&l.sender);
        replica_expect(r, "ready", 5);
        watch_begin();
        kill(host_pid(s.h), SIGSTOP);
        replica_tell(r, "send");
        replica_expect(r, "sent", 5);
        replica_kill9(r);
        kill(host_pid(s.h), SIGCONT);
        seconds_sleep(0.1);
        watch_end(1);
        lingering_deinit(&l);
        stage_clear(&s);
}
END_TEST

/* It would take a minute. */
START_TEST(P21_a_descriptor_that_does_not_close_does_not_keep_tuttid_from_ending) {
        struct lingering l;
        struct host *h = host_start(NULL);
        lingering_init(&l, 60);
        struct raw *r = by_a_message(h, l.sender);
        fd_close(&l.sender);
        kill(host_pid(h), SIGCONT);
        seconds_sleep(0.1);
        host_end(h);
        raw_close(r);
        lingering_deinit(&l);
        host_stop(h);
}
END_TEST

/* --- other users --- */

static void let_everybody_in(const struct host *h) {
        if (getuid() != 0)
                unit_skip("needs root, to be several users");
        ck_assert_int_eq(chmod(unit_directory(), 0755), 0); /* the way to the socket */
        ck_assert_int_eq(chmod(host_socket(h), 0666), 0);
}

static void become(uint32_t uid) {
        ck_assert_int_eq(setgid(uid), 0);
        ck_assert_int_eq(setuid(uid), 0);
}

static void stick(struct replica *me) {
        struct lingering l;
        become(1000);
        lingering_init(&l, (int)(10 * unit_scale()));
        struct raw *r = raw_open(me->socket);
        replica_say(me, "ready");
        replica_hear(me, "send");
        raw_send_fds(r, &nothing, &l.sender, 1);
        fd_close(&l.sender);
        replica_say(me, "sent");
        replica_hear(me, "end");
        ck_assert_uint_eq(raw_used(r, "descriptors"), 4); /* socket, pidfd, page, and what does not close */
        raw_close(r);
        lingering_deinit(&l);
}

static void send_strangers(struct replica *me) {
        become(1001);
        struct raw *r = raw_open(me->socket);
        for (int i = 0; i < 100; i++) {
                const int fds[] = { STDIN_FILENO, STDERR_FILENO };
                raw_expect(r, raw_send_fds(r, &nothing, fds, 2), STATUS_NOT_FOUND);
        }
        raw_expect_used(r, "descriptors", 3);
        raw_close(r);
}

START_TEST(P21_the_closer_of_one_user_is_not_anothers) {
        struct host *h = host_start(NULL);
        let_everybody_in(h);
        struct replica *bad = replica_spawn(h, &(struct replica_options){ .n = 1, .body = stick });
        replica_expect(bad, "ready", 5);
        kill(host_pid(h), SIGSTOP);
        replica_tell(bad, "send");
        replica_expect(bad, "sent", 5);
        kill(host_pid(h), SIGCONT);
        seconds_sleep(0.05);
        struct replica *good = replica_spawn(h, &(struct replica_options){ .n = 1, .body = send_strangers });
        ck_assert_int_eq(replica_end(good, 5), 0);
        replica_tell(bad, "end");
        ck_assert_int_eq(replica_end(bad, 5), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

static void be_nobody(struct replica *me) {
        become(65534);
        struct raw *r = raw_connect(me->socket);
        raw_hello(r);
        raw_expect_ejected(r, STATUS_PERMISSION);
        raw_close(r);
}

START_TEST(G6_the_overflow_uid_is_turned_away) {
        struct host *h = host_start(NULL);
        let_everybody_in(h);
        struct replica *r = replica_spawn(h, &(struct replica_options){ .n = 1, .body = be_nobody });
        ck_assert_int_eq(replica_end(r, 5), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("hostile-closing", 60, P21_no_way_leads_a_descriptor_that_blocks_to_the_loop,
        P21_nor_does_one_of_a_guest_who_is_turned_away,
        P21_nor_does_one_of_a_guest_for_whom_there_is_no_descriptor,
        P15_a_guest_for_whom_there_is_no_descriptor_is_told, P21_nor_does_one_that_the_dead_have_left,
        P21_a_descriptor_that_does_not_close_does_not_keep_tuttid_from_ending,
        P21_the_closer_of_one_user_is_not_anothers, G6_the_overflow_uid_is_turned_away)
