#include "raw.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <fcntl.h>
#include <unistd.h>
#include "base/fd.h"
#include "meeting.h"
#include "unit.h"
#include "wire/codec.h"

#define WAIT_SECONDS 5

/* --- life --- */

struct raw *raw_connect(const char *socket_path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        struct raw *r = calloc(1, sizeof(*r));
        ck_assert_ptr_nonnull(r);
        ck_assert_uint_lt(strlen(socket_path), sizeof(address.sun_path));
        memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
        r->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        r->next_request = 1;
        arena_init(&r->arena, malloc(CODEC_ARENA_BYTES), CODEC_ARENA_BYTES);
        arena_init(&r->scratch, malloc(CODEC_ARENA_BYTES), CODEC_ARENA_BYTES);
        ck_assert(r->arena.base && r->scratch.base);
        ck_assert_int_ge(r->fd, 0);
        ck_assert_msg(connect(r->fd, (struct sockaddr *)&address, sizeof(address)) == 0, "connect: %m");
        return r;
}

struct raw *raw_open(const char *socket_path) {
        struct raw *r = raw_connect(socket_path);
        raw_expect(r, raw_hello(r), STATUS_OK);
        return r;
}

static void drop_packet(struct raw *r) {
        packet_close_fds(&r->packet);
        r->packet = (struct packet){ 0 };
}

void raw_close(struct raw *r) {
        if (!r)
                return;
        drop_packet(r);
        fd_close(&r->fd);
        free(r->arena.base);
        free(r->scratch.base);
        free(r);
}

/* --- sending --- */

static bool wait_for(struct raw *r, short events, double seconds) {
        struct pollfd p = { .fd = r->fd, .events = events };
        int n;
        while ((n = poll(&p, 1, (int)(seconds * unit_scale() * 1000))) < 0)
                ck_assert_int_eq(errno, EINTR);
        return n > 0;
}

static int send_bytes(struct raw *r, const void *bytes, size_t n_bytes, const int *fds, uint32_t n_fds) {
        char control[CMSG_SPACE(253 * sizeof(int))] __attribute__((aligned(8))) = { 0 };
        struct iovec v = { (void *)(uintptr_t)bytes, n_bytes };
        struct msghdr h = { .msg_iov = &v, .msg_iovlen = 1 };
        ck_assert_uint_le(n_fds, 253);
        if (n_fds) {
                h.msg_control = control;
                h.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
                struct cmsghdr *c = CMSG_FIRSTHDR(&h);
                *c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
                        .cmsg_type = SCM_RIGHTS,
                        .cmsg_len = CMSG_LEN(n_fds * sizeof(int)) };
                memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
        }
        return sendmsg(r->fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

void raw_send_bytes(struct raw *r, const void *bytes, size_t n_bytes, const int *fds, uint32_t n_fds) {
        int error;
        while ((error = send_bytes(r, bytes, n_bytes, fds, n_fds)) == -EAGAIN)
                ck_assert_msg(wait_for(r, POLLOUT, WAIT_SECONDS), "tuttid takes nothing any more");
        ck_assert_msg(error == 0 || error == -EPIPE || error == -ECONNRESET, "sendmsg: %s", strerror(-error));
}

static size_t encode(struct raw *r, const struct request *request, uint64_t *ret_number) {
        struct request numbered = *request;
        size_t n_bytes;
        if (numbered.request == 0)
                numbered.request = r->next_request++;
        ck_assert_int_eq(codec_encode_request(&numbered, &r->scratch, r->out, &n_bytes), 0);
        *ret_number = numbered.request;
        return n_bytes;
}

uint64_t raw_send_fds(struct raw *r, const struct request *request, const int *fds, uint32_t n_fds) {
        uint64_t number;
        size_t n_bytes = encode(r, request, &number);
        raw_send_bytes(r, r->out, n_bytes, fds, n_fds);
        return number;
}

uint64_t raw_send(struct raw *r, const struct request *request) {
        return raw_send_fds(r, request, NULL, 0);
}

bool raw_try_send(struct raw *r, const struct request *request, const int *fds, uint32_t n_fds) {
        uint64_t number;
        size_t n_bytes = encode(r, request, &number);
        return send_bytes(r, r->out, n_bytes, fds, n_fds) == 0;
}

/* --- receiving --- */

bool raw_take(struct raw *r, struct reply *ret) {
        int received;
        drop_packet(r);
        while ((received = channel_receive(r->fd, r->in, &r->packet)) == -EAGAIN)
                ck_assert_msg(wait_for(r, POLLIN, WAIT_SECONDS), "tuttid does not answer");
        if (received <= 0) {
                drop_packet(r);
                return false;
        }
        arena_reset(&r->arena);
        ck_assert_int_eq(codec_decode_reply(r->in, r->packet.n_bytes, &r->arena, ret), 0);
        return true;
}

struct reply raw_await(struct raw *r, uint64_t request) {
        struct reply reply;
        do {
                ck_assert_msg(raw_take(r, &reply), "tuttid hung up before request %llu was answered",
                        (unsigned long long)request);
                ck_assert_msg(reply.request != 0, "ejected: %s, %s", status_name(reply.status),
                        reply.error ? reply.error->detail : "");
        } while (reply.request != request || reply.more);
        return reply;
}

struct reply raw_expect(struct raw *r, uint64_t request, enum status status) {
        struct reply reply = raw_await(r, request);
        ck_assert_msg(reply.status == status, "request %llu ended with %s, not %s: %s",
                (unsigned long long)request, status_name(reply.status), status_name(status),
                reply.error ? reply.error->detail : "");
        return reply;
}

void raw_expect_ejected(struct raw *r, enum status status) {
        struct reply reply = { .request = 1 };
        while (reply.request != 0)
                ck_assert_msg(raw_take(r, &reply), "tuttid hung up without a word");
        ck_assert_msg(reply.status == status, "ejected with %s, not %s: %s", status_name(reply.status),
                status_name(status), reply.error ? reply.error->detail : "");
        ck_assert(!raw_take(r, &reply));
}

bool raw_is_silent(struct raw *r, double seconds) {
        return !wait_for(r, POLLIN, seconds);
}

/* --- what an honest client would say --- */

uint64_t raw_hello(struct raw *r) {
        return raw_send(r, &(struct request){ .type = REQUEST_HELLO,
                                   .hello = { .min_version = PROTOCOL_MIN,
                                           .max_version = PROTOCOL_MAX,
                                           .client = "raw",
                                           .process = "hostile" } });
}

struct request raw_join_request(const char *group, uint32_t rank, uint32_t world_size) {
        return (struct request){ .type = REQUEST_JOIN,
                .join = { .job = "test",
                        .group = group,
                        .secret = "",
                        .world_size = world_size,
                        .rank = rank } };
}

struct raw_member raw_joined(struct raw *r, uint64_t request) {
        const struct reply reply = raw_expect(r, request, STATUS_OK);
        ck_assert_int_eq(reply.type, REPLY_JOINED);
        return (struct raw_member){ reply.joined.membership, reply.joined.epoch };
}

struct raw_member raw_join(struct raw *r, const char *group, uint32_t rank, uint32_t world_size) {
        const struct request join = raw_join_request(group, rank, world_size);
        return raw_joined(r, raw_send(r, &join));
}

int raw_memfd(uint64_t n_bytes) {
        int fd = memfd_create("raw", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, (off_t)n_bytes), 0);
        if (n_bytes > 0)
                ck_assert_int_eq(posix_fallocate(fd, 0, (off_t)n_bytes), 0);
        return fd;
}

uint64_t raw_register(struct raw *r, uint64_t buffer, int fd, uint64_t n_bytes) {
        const struct request reg = { .type = REQUEST_REGISTER,
                .reg = { .buffer = buffer,
                        .size_bytes = n_bytes,
                        .access = ACCESS_INOUT,
                        .kind = BUFFER_KIND_MEMFD,
                        .n_descriptors = 1,
                        .device = "" } };
        uint64_t request = raw_send_fds(r, &reg, &fd, 1);
        close(fd);
        return request;
}

void raw_buffer(struct raw *r, uint64_t buffer, int fd, uint64_t n_bytes) {
        raw_expect(r, raw_register(r, buffer, fd, n_bytes), STATUS_OK);
}

struct key raw_key(const char *name) {
        struct key key;
        ck_assert(key_name(&key, name, strlen(name)));
        return key;
}

struct entry raw_entry(uint64_t buffer, uint64_t n) {
        return (struct entry){ .dtype = DTYPE_F32,
                .destination = DESTINATION_ALL,
                .n_dims = 1,
                .shape = { n },
                .input = { .buffer = buffer },
                .output = { .buffer = buffer } };
}

struct request raw_submit_request(const struct raw_member *m, const char *key, const struct entry *entry) {
        return (struct request){ .type = REQUEST_SUBMIT,
                .submit = { .membership = m->membership,
                        .epoch = m->epoch,
                        .has_key = true,
                        .key = raw_key(key),
                        .signature = { .kind = entry ? KIND_REDUCE : KIND_BARRIER,
                                .op = entry ? OP_SUM : OP_UNSPECIFIED,
                                .n_entries = entry ? 1 : 0 },
                        .n_part_entries = entry ? 1 : 0,
                        .entries = entry } };
}

uint64_t raw_submit(struct raw *r, const struct raw_member *m, const char *key, uint64_t buffer, uint64_t n) {
        const struct entry entry = raw_entry(buffer, n);
        const struct request submit = raw_submit_request(m, key, &entry);
        return raw_send(r, &submit);
}

uint64_t raw_barrier(struct raw *r, const struct raw_member *m, const char *key) {
        const struct request submit = raw_submit_request(m, key, NULL);
        return raw_send(r, &submit);
}

uint64_t raw_submit_to_keep(struct raw *r, const struct raw_member *m, const char *key, uint64_t number) {
        const struct entry entry = raw_entry(1, 16);
        struct request submit = raw_submit_request(m, key, &entry);
        submit.submit.prepare = number;
        return raw_send(r, &submit);
}

uint64_t raw_start(struct raw *r, const struct raw_member *m, const char *key, uint64_t number) {
        const struct request request = { .type = REQUEST_START,
                .start = { .prepared = number,
                        .membership = m->membership,
                        .epoch = m->epoch,
                        .has_key = true,
                        .key = raw_key(key) } };
        return raw_send(r, &request);
}

uint64_t raw_query(struct raw *r, enum what what, const char *job, const char *group) {
        return raw_send(
                r, &(struct request){ .type = REQUEST_QUERY, .query = { what, job, group, false, 0 } });
}

void raw_settle(struct raw *r) {
        raw_await(r, raw_query(r, WHAT_QUOTA, "", ""));
}

/* --- what it is charged --- */

uint64_t raw_used(struct raw *r, const char *quota) {
        const struct reply reply = raw_expect(r, raw_query(r, WHAT_QUOTA, "", ""), STATUS_OK);
        for (uint32_t i = 0; i < reply.rows.n_rows; i++)
                if (strcmp(reply.rows.rows[i].quota.name, quota) == 0)
                        return reply.rows.rows[i].quota.used;
        ck_abort_msg("no quota %s", quota);
}

void raw_expect_used(struct raw *r, const char *quota, uint64_t used) {
        double limit = seconds_now() + 2 * unit_scale();
        uint64_t now;
        while ((now = raw_used(r, quota)) < used || now > used + 2)
                ck_assert_msg(seconds_now() < limit, "%s: %llu, not %llu", quota, (unsigned long long)now,
                        (unsigned long long)used);
}
