#include "lib-server.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/fd.h"
#include "wire/codec.h"

#define PAGE_BYTES (STATUS_PAGE_SLOTS * sizeof(struct page_slot))

static void *run(void *arg) {
        struct server *s = arg;
        s->script(s);
        return NULL;
}

static void make_page(struct server *s) {
        s->page_fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_ge(s->page_fd, 0);
        ck_assert_int_eq(ftruncate(s->page_fd, PAGE_BYTES), 0);
        s->page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, s->page_fd, 0);
        ck_assert_ptr_ne(s->page, MAP_FAILED);
}

struct server *server_start(void (*script)(struct server *s), void *arg) {
        struct server *s = calloc(1, sizeof(*s));
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        ck_assert_ptr_nonnull(s);
        s->script = script;
        s->arg = arg;
        s->fd = -1;
        arena_init(&s->arena, malloc(CODEC_ARENA_BYTES), CODEC_ARENA_BYTES);
        arena_init(&s->scratch, malloc(CODEC_ARENA_BYTES), CODEC_ARENA_BYTES);
        ck_assert(s->arena.base && s->scratch.base);
        make_page(s);
        snprintf(s->path, sizeof(s->path), "%s/tuttid.sock", unit_directory());
        memcpy(address.sun_path, s->path, sizeof(address.sun_path));
        s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        ck_assert_int_ge(s->listener, 0);
        ck_assert_int_eq(bind(s->listener, (struct sockaddr *)&address, sizeof(address)), 0);
        ck_assert_int_eq(listen(s->listener, 16), 0);
        ck_assert_int_eq(pthread_create(&s->thread, NULL, run, s), 0);
        return s;
}

void server_end(struct server *s) {
        pthread_join(s->thread, NULL);
        server_hang_up(s);
        fd_close(&s->listener);
        fd_close(&s->page_fd);
        munmap(s->page, PAGE_BYTES);
        free(s->arena.base);
        free(s->scratch.base);
        unlink(s->path);
        free(s);
}

/* --- packets --- */

void server_accept(struct server *s) {
        packet_close_fds(&s->packet);
        s->packet.n_fds = 0;
        s->fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
        CHECK(s->fd >= 0);
}

void server_hang_up(struct server *s) {
        packet_close_fds(&s->packet);
        s->packet.n_fds = 0;
        fd_close(&s->fd);
}

static void wait_for(struct server *s, short events) {
        struct pollfd fds = { .fd = s->fd, .events = events };
        while (poll(&fds, 1, -1) < 0)
                CHECK(errno == EINTR);
}

bool server_take_any(struct server *s, struct request *ret) {
        int r;
        packet_close_fds(&s->packet);
        s->packet.n_fds = 0;
        while ((r = channel_receive(s->fd, s->in, &s->packet)) == -EAGAIN)
                wait_for(s, POLLIN);
        if (r <= 0) {
                packet_close_fds(&s->packet);
                return false;
        }
        arena_reset(&s->arena);
        CHECK(codec_decode_request(s->in, s->packet.n_bytes, &s->arena, ret) == 0);
        return true;
}

struct request server_take(struct server *s, enum request_type type) {
        struct request request;
        ck_assert_msg(server_take_any(s, &request), "the client closed before request type %d", type);
        ck_assert_int_eq(request.type, type);
        return request;
}

static void send_bytes(struct server *s, const void *bytes, size_t n_bytes, int fd) {
        int r;
        while ((r = channel_send(s->fd, bytes, n_bytes, &fd, fd >= 0)) == -EAGAIN)
                wait_for(s, POLLOUT);
        CHECK(r == 0 || r == -EPIPE || r == -ECONNRESET);
}

void server_send_raw(struct server *s, const void *bytes, size_t n_bytes) {
        send_bytes(s, bytes, n_bytes, -1);
}

void server_reply_fd(struct server *s, const struct reply *reply, int fd) {
        size_t n_bytes;
        CHECK(codec_encode_reply(reply, &s->scratch, s->out, &n_bytes) == 0);
        send_bytes(s, s->out, n_bytes, fd);
}

void server_reply(struct server *s, const struct reply *reply) {
        server_reply_fd(s, reply, -1);
}

/* --- answers --- */

void server_ok(struct server *s, uint64_t request) {
        server_reply(s, &(struct reply){ .request = request, .status = STATUS_OK });
}

void server_refuse(
        struct server *s, uint64_t request, enum status status, enum field field, const char *detail) {
        struct error e;
        error_init(&e, status);
        error_set(&e, status, field, "%s", detail);
        server_reply(s, &(struct reply){ .request = request, .status = status, .error = &e });
}

void server_done(struct server *s, uint64_t request, uint64_t collective) {
        server_reply(s, &(struct reply){ .request = request,
                                .status = STATUS_OK,
                                .type = REPLY_DONE,
                                .done = { .collective = collective,
                                        .contributors = rankset_first(2),
                                        .n_contributors = 2,
                                        .op = OP_SUM,
                                        .wait_ns = 5000,
                                        .run_ns = 7000,
                                        .last_rank = 1 } });
}

struct request server_welcome(struct server *s) {
        struct request hello = server_take(s, REQUEST_HELLO);
        server_reply_fd(s,
                &(struct reply){ .request = hello.request,
                        .status = STATUS_OK,
                        .type = REPLY_WELCOME,
                        .welcome = { .version = 1,
                                .server = "test",
                                .n_descriptors = 1,
                                .status_slots = STATUS_PAGE_SLOTS } },
                s->page_fd);
        return hello;
}

void server_greet(struct server *s) {
        server_accept(s);
        (void)server_welcome(s);
}

static void answer_join(struct server *s, const struct request *r) {
        server_reply(s, &(struct reply){ .request = r->request,
                                .status = STATUS_OK,
                                .type = REPLY_JOINED,
                                .joined = { .membership = 7,
                                        .epoch = 3,
                                        .rank = r->join.rank,
                                        .world_size = r->join.world_size } });
}

void server_greet_and_join(struct server *s) {
        server_greet(s);
        struct request r = server_take(s, REQUEST_JOIN);
        answer_join(s, &r);
}

void server_serve(struct server *s) {
        struct request r;
        uint64_t n_done = 0;
        while (server_take_any(s, &r)) {
                if (r.type == REQUEST_GOODBYE)
                        continue;
                if (r.type == REQUEST_JOIN)
                        answer_join(s, &r);
                else if (r.type != REQUEST_SUBMIT)
                        server_ok(s, r.request);
                else if (!r.submit.more)
                        server_done(s, r.request, n_done++);
        }
}

/* --- the client --- */

struct tutti *client_open(const struct server *s) {
        struct tutti *t = NULL;
        enum tutti_status status = tutti_open(s->path, &t);
        ck_assert_msg(status == TUTTI_OK, "%s", tutti_error());
        return t;
}

struct tutti_group *client_join(struct tutti *t, int32_t rank, int32_t n) {
        struct tutti_group *g = NULL;
        enum tutti_status status =
                tutti_join(t, &TUTTI_JOIN(.group = "g", .job = "j", .rank = rank, .world_size = n), &g);
        ck_assert_msg(status == TUTTI_OK, "%s", tutti_error());
        return g;
}
