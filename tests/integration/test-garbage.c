/* Clients that send what they should not (P17, O3): disconnected with a logged reason, while an honest group
 * beside them goes on. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/arena.h"
#include "meeting.h"
#include "replica.h"
#include "unit.h"
#include "wire/channel.h"
#include "wire/codec.h"

#define SECONDS 5 /* for every answer and every end */

/* --- the honest ones --- */

struct shared {
        _Atomic unsigned int n_met;
        _Atomic bool is_over;
};

static struct shared *shared;

static struct arena arena; /* of the codec, in the test's own process */

static void meet_until_told(struct replica *me) {
        struct floats f;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "honest"));
        floats_init(me->t, &f, 1000);
        for (bool is_over = false; !is_over;) {
                floats_meet(g, NULL, &f, (float)(me->rank + 1), 3);
                /* Rank 0 decides for both. */
                f.data[0] = atomic_load(&shared->is_over);
                expect_status(tutti_broadcast(g, NULL, 0, &f.value), TUTTI_OK);
                is_over = f.data[0] > 0;
                atomic_fetch_add(&shared->n_met, 1);
        }
}

struct stage {
        struct host *h;
        struct replica *honest[2];
};

static void stage_set(struct stage *s) {
        shared = memory_shared(sizeof(*shared));
        arena_init(&arena, malloc(CODEC_ARENA_BYTES), CODEC_ARENA_BYTES);
        ck_assert_ptr_nonnull(arena.base);
        s->h = host_start(NULL);
        replicas_spawn(s->h, 2, meet_until_told, NULL, s->honest);
}

static void expect_progress(void) {
        unsigned int n = atomic_load(&shared->n_met);
        double limit = seconds_now() + SECONDS * unit_scale();
        while (atomic_load(&shared->n_met) < n + 4) {
                ck_assert_msg(seconds_now() < limit, "the honest group stands still");
                seconds_sleep(0.001);
        }
}

static void stage_clear(struct stage *s) {
        expect_progress();
        atomic_store(&shared->is_over, true);
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(s->honest[i], 10), 0);
        host_expect_counters_zero(s->h);
        host_stop(s->h);
}

/* --- the others --- */

static int raw_connect(struct host *h) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", host_socket(h));
        ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        return fd;
}

/* Whether there was still somebody to send it to. */
static bool raw_send(int fd, const void *bytes, size_t n_bytes, const int *fds, uint32_t n_fds) {
        uint8_t control[CMSG_SPACE(64 * sizeof(int))] = { 0 };
        struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = n_bytes };
        struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
        if (n_fds > 0) {
                m.msg_control = control;
                m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
                struct cmsghdr *c = CMSG_FIRSTHDR(&m);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
                memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
        }
        ssize_t n = sendmsg(fd, &m, MSG_NOSIGNAL);
        ck_assert_msg(n == (ssize_t)n_bytes || errno == EPIPE || errno == ECONNRESET, "%m");
        return n == (ssize_t)n_bytes;
}

static void send_request(int fd, struct request request, const int *fds, uint32_t n_fds) {
        static uint8_t bytes[MAX_PACKET_BYTES];
        size_t n_bytes;
        ck_assert_int_eq(codec_encode_request(&request, &arena, bytes, &n_bytes), 0);
        ck_assert(raw_send(fd, bytes, n_bytes, fds, n_fds));
}

/* The next reply; false: the connection has ended. */
static bool receive(int fd, struct reply *ret) {
        static uint8_t bytes[MAX_PACKET_BYTES];
        struct packet packet;
        struct pollfd p = { .fd = fd, .events = POLLIN };
        ck_assert_msg(poll(&p, 1, (int)(SECONDS * 1000 * unit_scale())) == 1, "tuttid says nothing");
        int r = channel_receive(fd, bytes, &packet);
        ck_assert_msg(r > 0 || r == 0 || r == -ECONNRESET, "%s", strerror(-r));
        if (r <= 0)
                return false;
        packet_close_fds(&packet);
        arena_reset(&arena);
        ck_assert_int_eq(codec_decode_reply(bytes, packet.n_bytes, &arena, ret), 0);
        return true;
}

static struct request hello(uint32_t min_version, uint32_t max_version) {
        return (struct request){ .request = 1,
                .type = REQUEST_HELLO,
                .hello = { .min_version = min_version,
                        .max_version = max_version,
                        .client = "raw 1.0",
                        .process = "test-garbage" } };
}

static int raw_open(struct host *h) {
        struct reply reply;
        int fd = raw_connect(h);
        send_request(fd, hello(PROTOCOL_MIN, PROTOCOL_MAX), NULL, 0);
        ck_assert(receive(fd, &reply));
        ck_assert_int_eq(reply.status, STATUS_OK);
        ck_assert_int_eq(reply.type, REPLY_WELCOME);
        return fd;
}

/* The log is bounded: who floods it is counted, but not listed for ever. */
static uint64_t n_ejections(struct host *h) {
        struct host_counters c;
        host_counters(h, &c);
        return c.n_ejected;
}

/* The connection ends, perhaps after last words of this status, and the log says why. Closes it. */
static void expect_end(struct host *h, int fd, enum status status, const char *why) {
        struct reply reply;
        while (receive(fd, &reply))
                if (reply.request == 0)
                        ck_assert_int_eq(reply.status, status);
        close(fd);
        expect_in(host_log(h), why);
        expect_in(host_log(h), " is ejected: ");
        expect_progress();
}

START_TEST(P17_bytes_that_are_no_message_end_the_connection) {
        static uint8_t bytes[MAX_PACKET_BYTES];
        struct stage s;
        stage_set(&s);
        srand(17);
        for (int i = 0; i < 200; i++) {
                size_t n_bytes = 1 + (size_t)rand() % (i % 4 ? 64 : 60000);
                for (size_t k = 0; k < n_bytes; k++)
                        bytes[k] = (uint8_t)rand();
                int fd = raw_connect(s.h);
                ck_assert(raw_send(fd, bytes, n_bytes, NULL, 0));
                struct reply reply;
                while (receive(fd, &reply)) {
                        ck_assert_uint_eq(reply.request, 0);
                        ck_assert_int_ne(reply.status, STATUS_OK);
                }
                close(fd);
        }
        ck_assert_uint_eq(n_ejections(s.h), 200);
        expect_in(host_log(s.h), "is no request of the protocol");
        stage_clear(&s);
}
END_TEST

/* Behind a hello some bytes may be a message by chance, and are answered; none does more than that. */
START_TEST(P17_bytes_behind_a_hello_harm_nobody) {
        static uint8_t bytes[MAX_PACKET_BYTES];
        struct stage s;
        stage_set(&s);
        srand(18);
        for (int i = 0; i < 100; i++) {
                int fd = raw_open(s.h);
                for (bool goes_on = true; goes_on;) {
                        size_t n_bytes = 1 + (size_t)rand() % 40;
                        for (size_t k = 0; k < n_bytes; k++)
                                bytes[k] = (uint8_t)(rand() % (rand() % 2 ? 256 : 24));
                        goes_on = raw_send(fd, bytes, n_bytes, NULL, 0);
                }
                close(fd);
        }
        ck_assert_uint_ge(n_ejections(s.h), 90);
        stage_clear(&s);
}
END_TEST

START_TEST(P17_hello_comes_first_and_once) {
        struct stage s;
        stage_set(&s);
        const struct request query = {
                .request = 2, .type = REQUEST_QUERY, .query = { .what = WHAT_STATUS }
        };
        int fd = raw_connect(s.h);
        send_request(fd, query, NULL, 0);
        expect_end(s.h, fd, STATUS_INVALID, "its first request was not hello");
        fd = raw_open(s.h);
        send_request(fd, hello(PROTOCOL_MIN, PROTOCOL_MAX), NULL, 0);
        expect_end(s.h, fd, STATUS_INVALID, "it said hello twice");
        stage_clear(&s);
}
END_TEST

START_TEST(P17_a_message_without_a_body_is_no_hello_and_later_unsupported) {
        static const uint8_t empty_body[] = { 0x08, 0x05 };     /* request = 5, and nothing else */
        static const uint8_t number_0[] = { 0x9a, 0x01, 0x00 }; /* query {}, without a number */
        struct stage s;
        struct reply reply;
        stage_set(&s);
        int fd = raw_connect(s.h);
        ck_assert(raw_send(fd, empty_body, sizeof(empty_body), NULL, 0));
        expect_end(s.h, fd, STATUS_INVALID, "its first request was not hello");
        fd = raw_open(s.h);
        ck_assert(raw_send(fd, empty_body, sizeof(empty_body), NULL, 0));
        ck_assert(receive(fd, &reply));
        ck_assert_uint_eq(reply.request, 5);
        ck_assert_int_eq(reply.status, STATUS_UNSUPPORTED);
        ck_assert(raw_send(fd, number_0, sizeof(number_0), NULL, 0));
        expect_end(s.h, fd, STATUS_INVALID, "request number 0 is reserved");
        /* An empty packet cannot be told from an end of file. */
        fd = raw_open(s.h);
        ck_assert_int_eq(send(fd, "", 0, MSG_NOSIGNAL), 0);
        ck_assert(!receive(fd, &reply));
        close(fd);
        stage_clear(&s);
}
END_TEST

START_TEST(O3_a_packet_that_is_too_long_ends_the_connection) {
        static uint8_t bytes[70000];
        struct stage s;
        stage_set(&s);
        int fd = raw_open(s.h);
        ck_assert(raw_send(fd, bytes, sizeof(bytes), NULL, 0));
        expect_end(s.h, fd, STATUS_LIMIT, "a packet is longer than 65536 bytes");
        stage_clear(&s);
}
END_TEST

static int n_descriptors_of(pid_t pid) {
        char path[64];
        int n = 0;
        snprintf(path, sizeof(path), "/proc/%d/fd", pid);
        DIR *dir = opendir(path);
        ck_assert_ptr_nonnull(dir);
        for (struct dirent *e = readdir(dir); e; e = readdir(dir))
                n += e->d_name[0] != '.';
        closedir(dir);
        return n;
}

/* Both ends of a pipe are ours: when tuttid has closed what it got of the reading end, and we too, writing
 * fails. */
static void expect_closed_by_tuttid(int writing) {
        struct pollfd p = { .fd = writing };
        ck_assert_int_eq(poll(&p, 1, (int)(SECONDS * 1000 * unit_scale())), 1);
        ck_assert_int_ne(p.revents & POLLERR, 0);
        close(writing);
}

START_TEST(O3_descriptors_that_nobody_asked_for_are_closed) {
        struct stage s;
        struct reply reply;
        int pipes[2], many[17];
        stage_set(&s);
        const struct request query = { .request = 2, .type = REQUEST_QUERY, .query = { .what = WHAT_QUOTA } };
        for (int i = 0; i < 6; i++) /* after some steps they hold all that they ever will: their lanes, too */
                expect_progress();
        int n_before = n_descriptors_of(host_pid(s.h));
        ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
        for (int i = 0; i < 17; i++)
                many[i] = pipes[0];
        int fd = raw_open(s.h);
        send_request(fd, query, many, 16);
        while (receive(fd, &reply) && reply.more)
                ck_assert_uint_eq(reply.request, 2);
        close(pipes[0]);
        expect_closed_by_tuttid(pipes[1]);
        ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
        for (int i = 0; i < 17; i++)
                many[i] = pipes[0];
        send_request(fd, query, many, 17);
        close(pipes[0]);
        expect_end(s.h, fd, STATUS_LIMIT, "brings more than 16 descriptors");
        expect_closed_by_tuttid(pipes[1]);
        double limit = seconds_now() + SECONDS * unit_scale();
        while (n_descriptors_of(host_pid(s.h)) > n_before) {
                ck_assert_msg(
                        seconds_now() < limit, "%d descriptors are left", n_descriptors_of(host_pid(s.h)));
                seconds_sleep(0.01);
        }
        stage_clear(&s);
}
END_TEST

/* --- who reads nothing, or slowly --- */

START_TEST(P21_who_asks_and_never_reads_is_ejected) {
        struct stage s;
        uint8_t bytes[256];
        size_t n_bytes;
        unsigned int n = 0;
        stage_set(&s);
        int fd = raw_open(s.h);
        const struct request leave = { .request = 2, .type = REQUEST_LEAVE, .membership = 999 };
        ck_assert_int_eq(codec_encode_request(&leave, &arena, bytes, &n_bytes), 0);
        while (raw_send(fd, bytes, n_bytes, NULL, 0))
                if (++n % 10000 == 0)
                        expect_progress();
        expect_end(s.h, fd, STATUS_LIMIT, "does not read its replies");
        stage_clear(&s);
}
END_TEST

/* Counts the records of the answer to `request`. What is missing between two of them is said. */
static uint32_t read_slowly(int fd, uint64_t request) {
        struct reply reply;
        uint32_t n = 0;
        uint64_t last = 0;
        do {
                seconds_sleep(0.001);
                ck_assert(receive(fd, &reply));
                ck_assert_uint_eq(reply.request, request);
                ck_assert_int_eq(reply.status, STATUS_OK);
                ck_assert_int_eq(reply.type, REPLY_ROWS);
                for (uint32_t i = 0; i < reply.rows.n_rows; i++) {
                        const struct row_record *r = &reply.rows.rows[i].record;
                        if (reply.rows.rows[i].type != ROW_RECORD)
                                continue;
                        if (n++ > 0)
                                ck_assert_uint_eq(r->collective, last + r->missed + 1);
                        last = r->collective;
                }
        } while (reply.more);
        return n;
}

/* The records of a group that goes on: some 100 KiB at first, more each time, until the oldest are
 * overwritten while they are told. Not on the lane, where that is faster than a slow reader reads. */
START_TEST(G12_long_answers_arrive_whole_at_a_slow_reader) {
        struct stage s;
        uint32_t n = 500;
        setenv("TUTTI_LANE", "0", 1);
        stage_set(&s);
        while (atomic_load(&shared->n_met) < n)
                seconds_sleep(0.01);
        int fd = raw_open(s.h);
        for (uint64_t i = 0; i < 5; i++)
                send_request(fd,
                        (struct request){ .request = 10 + i,
                                .type = REQUEST_QUERY,
                                .query = { .what = WHAT_DUMP, .job = "test", .group = "honest" } },
                        NULL, 0);
        expect_progress();
        for (uint64_t i = 0; i < 5; i++) {
                uint32_t n_rows = read_slowly(fd, 10 + i);
                ck_assert_uint_ge(n_rows, n);
                ck_assert_uint_le(n_rows, 4096 + 2); /* what had ended by then, and was not yet recorded */
        }
        close(fd);
        stage_clear(&s);
}
END_TEST

/* --- registrations --- */

static struct request registration(uint64_t request, uint32_t n_descriptors) {
        return (struct request){ .request = request,
                .type = REQUEST_REGISTER,
                .reg = { .buffer = request,
                        .size_bytes = 4096,
                        .access = ACCESS_INOUT,
                        .kind = BUFFER_KIND_MEMFD,
                        .n_descriptors = n_descriptors,
                        .device = "" } };
}

/* Closes `memory`. */
static void expect_registration(int fd, uint64_t request, int memory, enum status status) {
        struct reply reply;
        ck_assert_int_ge(memory, 0);
        send_request(fd, registration(request, 1), &memory, 1);
        close(memory);
        ck_assert(receive(fd, &reply));
        ck_assert_uint_eq(reply.request, request);
        ck_assert_msg(reply.status == status, "request %llu: %s: %s", (unsigned long long)request,
                status_name(reply.status), reply.error ? reply.error->detail : "");
}

static int make_memfd(unsigned int flags, off_t n_bytes) {
        int fd = memfd_create("raw", MFD_CLOEXEC | flags);
        ck_assert_int_eq(ftruncate(fd, n_bytes), 0);
        return fd;
}

START_TEST(O1_tuttid_itself_looks_at_what_it_is_to_map) {
        struct stage s;
        int pipes[2];
        stage_set(&s);
        int fd = raw_open(s.h);
        ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
        expect_registration(fd, 10, pipes[0], STATUS_BAD_FD);
        expect_closed_by_tuttid(pipes[1]);
        expect_registration(fd, 11, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), STATUS_BAD_FD);
        expect_registration(
                fd, 12, open(unit_directory(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), STATUS_BAD_FD);
        expect_registration(fd, 13, open("/dev/zero", O_RDWR | O_CLOEXEC), STATUS_BAD_FD);
        expect_registration(fd, 14, make_memfd(0, 4096), STATUS_BAD_FD);
        expect_registration(fd, 15, make_memfd(MFD_ALLOW_SEALING, 4095), STATUS_INVALID);
        expect_registration(fd, 16, make_memfd(MFD_ALLOW_SEALING, 4096), STATUS_OK);
        expect_registration(fd, 16, make_memfd(MFD_ALLOW_SEALING, 4096), STATUS_LIMIT); /* again */
        send_request(fd, registration(20, 1), NULL, 0);
        expect_end(s.h, fd, STATUS_BAD_FD, "a registration announces 1 descriptors and brings 0");
        stage_clear(&s);
}
END_TEST

/* --- versions --- */

START_TEST(P1_versions_without_overlap_are_refused_naming_both) {
        struct stage s;
        struct reply reply;
        stage_set(&s);
        int fd = raw_connect(s.h);
        send_request(fd, hello(7, 9), NULL, 0);
        ck_assert(receive(fd, &reply));
        ck_assert_int_eq(reply.status, STATUS_VERSION);
        ck_assert_ptr_nonnull(reply.error);
        expect_in(reply.error->detail, "7 to 9");
        expect_in(reply.error->detail, "1 to 1");
        expect_in(reply.error->detail, "upgrade tuttid");
        expect_end(s.h, fd, STATUS_VERSION, "7 to 9");
        /* What is newer and what is older as well is spoken to in our version. */
        fd = raw_connect(s.h);
        send_request(fd, hello(PROTOCOL_MIN, 9), NULL, 0);
        ck_assert(receive(fd, &reply));
        ck_assert_int_eq(reply.status, STATUS_OK);
        ck_assert_uint_eq(reply.welcome.version, PROTOCOL_MAX);
        close(fd);
        stage_clear(&s);
}
END_TEST

UNIT_MAIN("garbage", 60, P17_bytes_that_are_no_message_end_the_connection,
        P17_bytes_behind_a_hello_harm_nobody, P17_hello_comes_first_and_once,
        P17_a_message_without_a_body_is_no_hello_and_later_unsupported,
        O3_a_packet_that_is_too_long_ends_the_connection, O3_descriptors_that_nobody_asked_for_are_closed,
        P21_who_asks_and_never_reads_is_ejected, G12_long_answers_arrive_whole_at_a_slow_reader,
        O1_tuttid_itself_looks_at_what_it_is_to_map, P1_versions_without_overlap_are_refused_naming_both)
