/* Packets with their descriptors, over a socketpair. */
#include "wire/channel.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "descriptors.h"
#include "unit.h"

static int ends[2];
static uint8_t buf[MAX_PACKET_BYTES], out[MAX_PACKET_BYTES];

static void open_pair(void) {
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
        for (size_t i = 0; i < sizeof(out); i++)
                out[i] = (uint8_t)(i * 7);
}

static void close_pair(void) {
        fd_close(&ends[0]);
        fd_close(&ends[1]);
}

/* `n` descriptors of different files. */
static void make_fds(int *fds, int n) {
        for (int i = 0; i < n; i++) {
                fds[i] = memfd_create("test", MFD_CLOEXEC);
                ck_assert_int_ge(fds[i], 0);
                ck_assert_int_eq(ftruncate(fds[i], i + 1), 0);
        }
}

static void close_fds(int *fds, int n) {
        for (int i = 0; i < n; i++)
                fd_close(&fds[i]);
}

static off_t size_of(int fd) {
        struct stat st;
        ck_assert_int_eq(fstat(fd, &st), 0);
        return st.st_size;
}

START_TEST(a_packet_arrives_whole_and_alone) {
        struct packet p;
        open_pair();
        ck_assert_int_eq(channel_send(ends[0], out, 100, NULL, 0), 0);
        ck_assert_int_eq(channel_send(ends[0], out + 1, MAX_PACKET_BYTES - 1, NULL, 0), 0);
        ck_assert_int_eq(channel_receive(ends[1], buf, &p), 1);
        ck_assert_uint_eq(p.n_bytes, 100);
        ck_assert_uint_eq(p.n_fds, 0);
        ck_assert_int_eq(memcmp(buf, out, 100), 0);
        ck_assert_int_eq(channel_receive(ends[1], buf, &p), 1);
        ck_assert_uint_eq(p.n_bytes, MAX_PACKET_BYTES - 1);
        ck_assert_int_eq(memcmp(buf, out + 1, MAX_PACKET_BYTES - 1), 0);
        close_pair();
}
END_TEST

START_TEST(descriptors_travel_with_their_packet_and_are_close_on_exec) {
        struct packet p;
        int fds[MAX_PACKET_FDS];
        open_pair();
        make_fds(fds, MAX_PACKET_FDS);
        ck_assert_int_eq(channel_send(ends[0], out, 1, fds, 2), 0);
        ck_assert_int_eq(channel_send(ends[0], out, 2, NULL, 0), 0);
        ck_assert_int_eq(channel_send(ends[0], out, 3, fds, MAX_PACKET_FDS), 0);
        ck_assert_int_eq(channel_receive(ends[1], buf, &p), 1);
        ck_assert_uint_eq(p.n_fds, 2);
        for (int i = 0; i < 2; i++) {
                ck_assert_int_eq(size_of(p.fds[i]), i + 1);
                ck_assert(fcntl(p.fds[i], F_GETFD) & FD_CLOEXEC);
        }
        packet_close_fds(&p);
        ck_assert_int_eq(channel_receive(ends[1], buf, &p), 1);
        ck_assert_uint_eq(p.n_fds, 0);
        ck_assert_int_eq(channel_receive(ends[1], buf, &p), 1);
        ck_assert_uint_eq(p.n_fds, MAX_PACKET_FDS);
        ck_assert_int_eq(size_of(p.fds[MAX_PACKET_FDS - 1]), MAX_PACKET_FDS);
        packet_close_fds(&p);
        close_fds(fds, MAX_PACKET_FDS);
        close_pair();
}
END_TEST

START_TEST(what_was_taken_stays_open) {
        struct packet p;
        int fds[2];
        open_pair();
        make_fds(fds, 2);
        ck_assert_int_eq(channel_send(ends[0], out, 1, fds, 2), 0);
        ck_assert_int_eq(channel_receive(ends[1], buf, &p), 1);
        int taken = fd_take(&p.fds[1]);
        packet_close_fds(&p);
        ck_assert_uint_eq(p.n_fds, 0);
        ck_assert_int_eq(size_of(taken), 2);
        fd_close(&taken);
        close_fds(fds, 2);
        close_pair();
}
END_TEST

START_TEST(nothing_there_and_end_of_file) {
        struct packet p;
        open_pair();
        ck_assert_int_eq(channel_receive(ends[1], buf, &p), -EAGAIN);
        ck_assert_int_eq(channel_send(ends[0], out, 5, NULL, 0), 0);
        fd_close(&ends[0]);
        ck_assert_int_eq(channel_receive(ends[1], buf, &p), 1);
        ck_assert_int_eq(channel_receive(ends[1], buf, &p), 0);
        ck_assert_int_eq(channel_receive(-1, buf, &p), -EBADF);
        close_pair();
}
END_TEST

START_TEST(an_empty_packet_is_an_end_and_its_descriptors_are_the_receivers) {
        struct packet p;
        open_pair();
        int fds[1], before = unit_count_descriptors();
        make_fds(fds, 1);
        union {
                struct cmsghdr header;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control = { 0 };
        struct msghdr h = { .msg_control = &control, .msg_controllen = sizeof(control) };
        control.header = (struct cmsghdr){
                .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))
        };
        memcpy(CMSG_DATA(&control.header), fds, sizeof(int));
        ck_assert_int_eq(sendmsg(ends[0], &h, 0), 0);
        fd_close(&fds[0]);
        ck_assert_int_eq(channel_receive(ends[1], buf, &p), 0);
        ck_assert_uint_eq(p.n_fds, 1);
        ck_assert_int_eq(size_of(p.fds[0]), 1);
        packet_close_fds(&p);
        ck_assert_int_eq(unit_count_descriptors(), before);
        close_pair();
}
END_TEST

START_TEST(O3_a_longer_packet_is_refused_and_its_descriptors_are_the_receivers) {
        static uint8_t large[MAX_PACKET_BYTES + 1];
        struct packet p;
        int fds[1];
        open_pair();
        make_fds(fds, 1);
        union {
                struct cmsghdr header;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control = { 0 };
        struct iovec v = { large, sizeof(large) };
        struct msghdr h = {
                .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
        };
        control.header = (struct cmsghdr){
                .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))
        };
        memcpy(CMSG_DATA(&control.header), fds, sizeof(int));
        ck_assert_int_eq(sendmsg(ends[0], &h, 0), (int)sizeof(large));
        int before = unit_count_descriptors();
        ck_assert_int_eq(channel_receive(ends[1], buf, &p), -EMSGSIZE);
        ck_assert_uint_eq(p.n_fds, 1);
        ck_assert_int_eq(size_of(p.fds[0]), 1);
        packet_close_fds(&p);
        ck_assert_int_eq(unit_count_descriptors(), before);
        ck_assert_int_eq(channel_send(ends[0], out, 9, NULL, 0), 0);
        ck_assert_int_eq(channel_receive(ends[1], buf, &p), 1);
        ck_assert_uint_eq(p.n_bytes, 9);
        close_fds(fds, 1);
        close_pair();
}
END_TEST

/* Sends `n` descriptors in one packet, which channel_send does not do. */
static void send_many(int n) {
        int fds[MAX_RECEIVED_FDS];
        char control[CMSG_SPACE(sizeof(fds))] __attribute__((aligned(8))) = { 0 };
        struct iovec v = { out, 1 };
        struct msghdr h = { .msg_iov = &v,
                .msg_iovlen = 1,
                .msg_control = control,
                .msg_controllen = CMSG_SPACE((size_t)n * sizeof(int)) };
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        *c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
                .cmsg_type = SCM_RIGHTS,
                .cmsg_len = CMSG_LEN((size_t)n * sizeof(int)) };
        make_fds(fds, n);
        memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
        ck_assert_int_eq(sendmsg(ends[0], &h, 0), 1);
        close_fds(fds, n);
}

/* Neither does it break the protocol, nor is the packet lost. */
START_TEST(P7_descriptors_that_find_no_place_are_missed_and_their_packet_is_whole) {
        struct packet p;
        int fds[2];
        open_pair();
        make_fds(fds, 2);
        for (unsigned int n_left = 0; n_left < 3; n_left++) {
                ck_assert_int_eq(channel_send(ends[0], out, 100, fds, 2), 0);
                descriptors_run_out(getpid(), n_left);
                ck_assert_int_eq(channel_receive(ends[1], buf, &p), 1);
                descriptors_are_back(getpid());
                ck_assert_uint_eq(p.n_bytes, 100);
                ck_assert_int_eq(memcmp(buf, out, 100), 0);
                ck_assert_uint_eq(p.n_fds, n_left);
                ck_assert_int_eq(p.is_short, n_left < 2);
                packet_close_fds(&p);
        }
        close_fds(fds, 2);
        close_pair();
}
END_TEST

/* P21: none of them is closed on the way, not even when there are as many as can be. */
START_TEST(too_many_descriptors_are_refused_and_all_are_the_receivers) {
        static const int counts[] = { MAX_PACKET_FDS + 1, MAX_PACKET_FDS + 2, 64, MAX_RECEIVED_FDS };
        struct packet p;
        open_pair();
        int before = unit_count_descriptors();
        for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
                send_many(counts[i]);
                ck_assert_int_eq(channel_receive(ends[1], buf, &p), -EMSGSIZE);
                ck_assert_uint_eq(p.n_fds, counts[i]);
                ck_assert_int_eq(size_of(p.fds[counts[i] - 1]), counts[i]);
                packet_close_fds(&p);
                ck_assert_int_eq(unit_count_descriptors(), before);
        }
        close_pair();
}
END_TEST

START_TEST(descriptors_that_lie_unread_in_a_socket_are_seen) {
        struct packet p;
        int fds[1];
        open_pair();
        make_fds(fds, 1);
        ck_assert(!channel_holds_fds(ends[1]));
        ck_assert_int_eq(channel_send(ends[0], out, 9, NULL, 0), 0);
        ck_assert(!channel_holds_fds(ends[1]));
        ck_assert_int_eq(channel_send(ends[0], out, 9, fds, 1), 0);
        ck_assert_int_eq(shutdown(ends[1], SHUT_RDWR), 0);
        ck_assert(channel_holds_fds(ends[1]));
        ck_assert_int_eq(channel_send(ends[0], out, 9, fds, 1), -EPIPE);
        ck_assert_int_eq(channel_receive(ends[1], buf, &p), 1);
        ck_assert(channel_holds_fds(ends[1]));
        ck_assert_int_eq(channel_receive(ends[1], buf, &p), 1);
        packet_close_fds(&p);
        ck_assert(!channel_holds_fds(ends[1]));
        ck_assert(channel_holds_fds(fds[0])); /* no socket: nothing is known of it */
        close_fds(fds, 1);
        close_pair();
}
END_TEST

START_TEST(a_full_socket_says_later_and_nothing_is_lost) {
        struct packet p;
        int n = 0, r;
        open_pair();
        while ((r = channel_send(ends[0], out, 4096, NULL, 0)) == 0)
                n++;
        ck_assert_int_eq(r, -EAGAIN);
        ck_assert_int_gt(n, 0);
        for (int i = 0; i < n; i++)
                ck_assert_int_eq(channel_receive(ends[1], buf, &p), 1);
        ck_assert_int_eq(channel_receive(ends[1], buf, &p), -EAGAIN);
        close_pair();
}
END_TEST

START_TEST(sending_to_a_closed_end_is_an_error_and_no_signal) {
        open_pair();
        signal(SIGPIPE, SIG_DFL);
        fd_close(&ends[1]);
        ck_assert_int_eq(channel_send(ends[0], out, 1, NULL, 0), -EPIPE);
        close_pair();
}
END_TEST

START_TEST(the_last_words_of_a_peer_that_had_not_read_everything_arrive) {
        struct packet p;
        open_pair();
        ck_assert_int_eq(channel_send(ends[0], out, 1, NULL, 0), 0);
        ck_assert_int_eq(channel_send(ends[1], out, 7, NULL, 0), 0);
        fd_close(&ends[1]);
        ck_assert_int_eq(channel_receive(ends[0], buf, &p), 1);
        ck_assert_uint_eq(p.n_bytes, 7);
        ck_assert_int_eq(channel_receive(ends[0], buf, &p), 0);
        ck_assert_int_eq(channel_send(ends[0], out, 1, NULL, 0), -EPIPE);
        close_pair();
}
END_TEST

UNIT_MAIN("channel", 10, a_packet_arrives_whole_and_alone,
        descriptors_travel_with_their_packet_and_are_close_on_exec, what_was_taken_stays_open,
        nothing_there_and_end_of_file, an_empty_packet_is_an_end_and_its_descriptors_are_the_receivers,
        O3_a_longer_packet_is_refused_and_its_descriptors_are_the_receivers,
        P7_descriptors_that_find_no_place_are_missed_and_their_packet_is_whole,
        too_many_descriptors_are_refused_and_all_are_the_receivers,
        descriptors_that_lie_unread_in_a_socket_are_seen, a_full_socket_says_later_and_nothing_is_lost,
        sending_to_a_closed_end_is_an_error_and_no_signal,
        the_last_words_of_a_peer_that_had_not_read_everything_arrive)
