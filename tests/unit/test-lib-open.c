/* Opening and closing a connection, and what a forked child may do. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib-server.h"
#include "lib/connection.h"

static void script_serve(struct server *s) {
        server_greet(s);
        server_serve(s);
}

/* --- opening --- */

static void assert_says(const char *part) {
        ck_assert_msg(strstr(tutti_error(), part), "\"%s\" is not in: %s", part, tutti_error());
}

static void script_hello(struct server *s) {
        server_accept(s);
        struct request r = server_take(s, REQUEST_HELLO);
        uint32_t *seen = s->arg;
        seen[0] = r.hello.min_version;
        seen[1] = r.hello.max_version;
        seen[2] = r.hello.n_descriptors;
        seen[3] = s->packet.n_fds;
        ck_assert_str_eq(r.hello.client, "libtutti 0.1.0");
        ck_assert_str_eq(r.hello.process, program_invocation_short_name);
        server_hang_up(s);
}

START_TEST(hello_offers_the_protocol_range_and_a_pidfd_only_where_needed) {
        uint32_t seen[4] = { 9, 9, 9, 9 };
        struct server *s = server_start(script_hello, seen);
        struct tutti *t = NULL;
        ck_assert_int_eq(tutti_open(s->path, &t), TUTTI_NO_DAEMON);
        ck_assert_ptr_null(t);
        server_end(s);
        ck_assert_uint_eq(seen[0], PROTOCOL_MIN);
        ck_assert_uint_eq(seen[1], PROTOCOL_MAX);
        ck_assert_uint_eq(seen[2], seen[3]);
        assert_says("closed the connection before it had answered");
}
END_TEST

START_TEST(the_status_page_is_mapped_read_only_and_kept) {
        struct server *s = server_start(script_serve, NULL);
        struct tutti *t = client_open(s);
        s->page[4095].request = 8191;
        s->page[4095].state = PAGE_DONE;
        ck_assert_uint_eq(t->page[4095].request, 8191);
        ck_assert_uint_eq(t->page[4095].state, PAGE_DONE);
        ck_assert_int_eq(mprotect((void *)(uintptr_t)t->page, 4096, PROT_READ), 0);
        /* What is mapped read-only cannot be read into. */
        int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
        ck_assert_int_eq(read(zero, (void *)(uintptr_t)t->page, 8), -1);
        ck_assert_int_eq(errno, EFAULT);
        close(zero);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* A socket that nobody listens at. */
static int bind_at(const char *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        memcpy(address.sun_path, path, strlen(path) + 1);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        return fd;
}

START_TEST(nobody_there_is_no_daemon) {
        struct tutti *t = NULL;
        char path[128];
        snprintf(path, sizeof(path), "%s/none.sock", unit_directory());
        ck_assert_int_eq(tutti_open(path, &t), TUTTI_NO_DAEMON);
        assert_says(path);
        assert_says("TUTTI_SOCKET");

        int fd = bind_at(path); /* tuttid is starting, or was killed */
        ck_assert_int_eq(tutti_open(path, &t), TUTTI_NO_DAEMON);
        assert_says("Nobody listens");
        ck_assert_ptr_null(t);
        close(fd);
}
END_TEST

START_TEST(a_path_of_108_bytes_is_refused_by_length_limit_and_name_G1) {
        char path[109];
        struct tutti *t = NULL;
        memset(path, 'x', sizeof(path) - 1);
        path[0] = '/';
        path[108] = '\0';
        ck_assert_int_eq(tutti_open(path, &t), TUTTI_LIMIT);
        assert_says("108");
        assert_says("107");
        assert_says(path);
        ck_assert_uint_eq(tutti_error_info()->used, 108);
        ck_assert_uint_eq(tutti_error_info()->limit, 107);
        path[107] = '\0';
        ck_assert_int_eq(tutti_open(path, &t), TUTTI_NO_DAEMON);
}
END_TEST

START_TEST(a_closed_door_is_permission_and_names_the_group_G4) {
        if (geteuid() != 0)
                unit_skip("needs root, to become somebody else");
        char path[108];
        snprintf(path, sizeof(path), "%s/tuttid.sock", unit_directory());
        int fd = bind_at(path);
        ck_assert_int_eq(chmod(unit_directory(), 0755), 0);
        ck_assert_int_eq(chmod(path, 0660), 0);
        ck_assert_int_eq(chown(path, 0, 4), 0);
        pid_t pid = fork();
        if (pid == 0) {
                struct tutti *t;
                if (setgid(65534) != 0 || setuid(65534) != 0)
                        _exit(9);
                bool ok = tutti_open(path, &t) == TUTTI_PERMISSION && strstr(tutti_error(), path) &&
                          strstr(tutti_error(), "belongs to group \"adm\"") &&
                          strstr(tutti_error(), "usermod -aG adm nobody");
                fprintf(stderr, "%s\n", ok ? "" : tutti_error());
                _exit(ok ? 0 : 1);
        }
        int status;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
        close(fd);
}
END_TEST

/* Listens as somebody else, until it is killed. */
static void pose_as_tuttid(const char *path, int ready) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        if (setresuid(54321, 54321, 54321) < 0)
                _exit(1);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 8) < 0 ||
                write(ready, "x", 1) != 1)
                _exit(1);
        for (;;)
                pause();
}

START_TEST(P19_a_server_of_a_stranger_is_not_trusted) {
        struct tutti *t;
        char path[108], byte;
        int ready[2];
        if (geteuid() != 0)
                unit_skip("a second user takes root");
        snprintf(path, sizeof(path), "%s/tuttid.sock", unit_directory());
        ck_assert_int_eq(chmod(unit_directory(), 0777), 0); /* the stranger may make a socket here */
        ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
        pid_t pid = fork();
        if (pid == 0)
                pose_as_tuttid(path, ready[1]);
        close(ready[1]);
        ck_assert_int_eq(read(ready[0], &byte, 1), 1);
        close(ready[0]);
        ck_assert_int_eq(tutti_open(path, &t), TUTTI_PERMISSION);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "runs as uid 54321"));
        ck_assert_ptr_nonnull(strstr(tutti_error(), path));
        kill(pid, SIGKILL);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
END_TEST

static void script_old_server(struct server *s) {
        server_accept(s);
        server_take(s, REQUEST_HELLO);
        server_refuse(s, 0, STATUS_VERSION, FIELD_VERSION,
                "libtutti 0.1.0 speaks protocol 1 to 1, tuttid 9.0 speaks 7 to 8; upgrade libtutti");
        server_hang_up(s);
}

START_TEST(another_protocol_is_version_with_both_ranges) {
        struct server *s = server_start(script_old_server, NULL);
        struct tutti *t = NULL;
        ck_assert_int_eq(tutti_open(s->path, &t), TUTTI_VERSION);
        assert_says("1 to 1");
        assert_says("7 to 8");
        ck_assert_ptr_null(t);
        server_end(s);
}
END_TEST

static void script_wrong_welcome(struct server *s) {
        server_accept(s);
        struct request r = server_take(s, REQUEST_HELLO);
        struct reply reply = { .request = r.request, .status = STATUS_OK, .type = REPLY_WELCOME };
        reply.welcome = (struct msg_welcome){
                .version = *(uint32_t *)s->arg, .server = "test", .status_slots = STATUS_PAGE_SLOTS
        };
        server_reply(s, &reply);
        struct request rest;
        while (server_take_any(s, &rest))
                ;
}

START_TEST(a_welcome_that_cannot_be_used_is_no_daemon) {
        uint32_t version = 2; /* not offered */
        struct server *s = server_start(script_wrong_welcome, &version);
        struct tutti *t = NULL;
        ck_assert_int_eq(tutti_open(s->path, &t), TUTTI_NO_DAEMON);
        assert_says("a protocol version that was not offered");
        server_end(s);
        version = 1; /* no page */
        s = server_start(script_wrong_welcome, &version);
        ck_assert_int_eq(tutti_open(s->path, &t), TUTTI_NO_DAEMON);
        assert_says("without the status page");
        server_end(s);
}
END_TEST

/* --- the socket's place --- */

START_TEST(the_environment_names_the_socket) {
        struct server *s = server_start(script_serve, NULL);
        struct tutti *t = NULL;
        setenv("TUTTI_SOCKET", s->path, 1);
        ck_assert_int_eq(tutti_open(NULL, &t), TUTTI_OK);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- closing --- */

static void script_farewell(struct server *s) {
        struct request r;
        enum request_type *seen = s->arg;
        server_greet_and_join(s);
        for (int i = 0; i < 4 && server_take_any(s, &r); i++) {
                seen[i] = r.type;
                if (r.type == REQUEST_LEAVE) {
                        ck_assert_uint_eq(r.membership, 7);
                        server_ok(s, r.request);
                }
        }
}

START_TEST(closing_leaves_first_and_says_goodbye) {
        enum request_type seen[4] = { REQUEST_NONE };
        struct server *s = server_start(script_farewell, seen);
        struct tutti *t = client_open(s);
        client_join(t, 0, 2);
        tutti_close(t);
        server_end(s);
        ck_assert_int_eq(seen[0], REQUEST_LEAVE);
        ck_assert_int_eq(seen[1], REQUEST_GOODBYE);
        ck_assert_int_eq(seen[2], REQUEST_NONE);
        tutti_close(NULL);
}
END_TEST

START_TEST(freeing_a_group_leaves_once) {
        enum request_type seen[4] = { REQUEST_NONE };
        struct server *s = server_start(script_farewell, seen);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 1, 2);
        ck_assert_uint_eq(tutti_rank(g), 1);
        ck_assert_uint_eq(tutti_world_size(g), 2);
        ck_assert_uint_eq(tutti_epoch(g), 3);
        ck_assert_int_eq(tutti_leave(g), TUTTI_OK);
        ck_assert_int_eq(tutti_barrier(g, "late"), TUTTI_LEFT);
        assert_says("R1");
        ck_assert_int_eq(tutti_leave(g), TUTTI_LEFT);
        ck_assert_int_eq(tutti_busy(g, "x", 1), TUTTI_LEFT);
        tutti_group_free(g);
        tutti_close(t);
        server_end(s);
        ck_assert_int_eq(seen[0], REQUEST_LEAVE);
        ck_assert_int_eq(seen[1], REQUEST_GOODBYE);
}
END_TEST

/* --- fork --- */

static int use_everything(
        struct tutti *t, struct tutti_group *g, struct tutti_buffer *b, struct tutti_work *w) {
        struct tutti_buffer *other;
        struct tutti_group *group;
        struct tutti_result result;
        struct tutti_value v = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32);
        const enum tutti_status seen[] = {
                tutti_dispatch(t),
                tutti_join(t, &TUTTI_JOIN(.group = "x", .job = "j", .rank = 0, .world_size = 1), &group),
                tutti_barrier(g, NULL),
                tutti_all_reduce(g, "k", TUTTI_SUM, &v, &v),
                tutti_leave(g),
                tutti_busy(g, "why", 1),
                tutti_abort(g, "k", "why"),
                tutti_buffer_alloc(t, 100, &other),
                tutti_buffer_from_fd(t, 0, 0, TUTTI_INOUT, &other),
                tutti_work_wait(w, 1),
                tutti_work_wait(w, -1),
                tutti_work_test(w),
                tutti_work_cancel(w),
                tutti_work_result(w, &result),
                tutti_work_error(w)->status,
        };
        for (size_t i = 0; i < sizeof(seen) / sizeof(*seen); i++)
                if (seen[i] != TUTTI_FORKED) {
                        fprintf(stderr, "call %zu answers %s\n", i, tutti_status_name(seen[i]));
                        return 1;
                }
        return tutti_fd(t) == -1 ? 0 : 2;
}

static void script_fork(struct server *s) {
        server_greet_and_join(s);
        server_ok(s, server_take(s, REQUEST_REGISTER).request);
        uint64_t barrier = server_take(s, REQUEST_SUBMIT).request;
        /* Nothing came from the child: the next packet is the parent's. */
        struct request r = server_take(s, REQUEST_SUBMIT);
        ck_assert_str_eq(r.submit.key.bytes, "after");
        server_done(s, barrier, 0);
        server_done(s, r.request, 1);
        server_serve(s);
}

START_TEST(a_forked_child_gets_FORKED_and_may_close_C2) {
        struct server *s = server_start(script_fork, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        struct tutti_buffer *b;
        struct tutti_work *w;
        ck_assert_int_eq(tutti_buffer_alloc(t, 4096, &b), TUTTI_OK);
        ck_assert_int_eq(tutti_barrier_start(g, "before", NULL, &w), TUTTI_OK);
        pid_t pid = fork();
        if (pid == 0) {
                int n = unit_count_descriptors();
                int r = use_everything(t, g, b, w);
                tutti_group_free(g);
                tutti_buffer_free(b);
                tutti_work_free(w);
                tutti_close(t);
                /* socket, eventfd, epoll, the memfd of the region */
                _exit(r ? r : n - unit_count_descriptors() == 4 ? 0 : 3);
        }
        int status;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
        ck_assert_int_eq(tutti_barrier(g, "after"), TUTTI_OK);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
        tutti_close(t);
        server_end(s);
}
END_TEST

static void script_two_connections(struct server *s) {
        server_greet(s);
        int first = s->fd;
        server_greet(s);
        server_serve(s);
        server_hang_up(s);
        s->fd = first;
        server_serve(s);
}

START_TEST(a_forked_child_may_open_anew) {
        struct server *s = server_start(script_two_connections, NULL);
        struct tutti *t = client_open(s);
        pid_t pid = fork();
        if (pid == 0) {
                struct tutti *own = NULL;
                tutti_close(t);
                int r = tutti_open(s->path, &own) == TUTTI_OK && tutti_dispatch(own) == TUTTI_OK;
                tutti_close(own);
                _exit(r ? 0 : 1);
        }
        int status;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
        ck_assert_int_eq(tutti_dispatch(t), TUTTI_OK);
        tutti_close(t);
        server_end(s);
}
END_TEST

UNIT_MAIN("lib-open", 20, hello_offers_the_protocol_range_and_a_pidfd_only_where_needed,
        the_status_page_is_mapped_read_only_and_kept, nobody_there_is_no_daemon,
        a_path_of_108_bytes_is_refused_by_length_limit_and_name_G1,
        a_closed_door_is_permission_and_names_the_group_G4, P19_a_server_of_a_stranger_is_not_trusted,
        another_protocol_is_version_with_both_ranges, a_welcome_that_cannot_be_used_is_no_daemon,
        the_environment_names_the_socket, closing_leaves_first_and_says_goodbye, freeing_a_group_leaves_once,
        a_forked_child_gets_FORKED_and_may_close_C2, a_forked_child_may_open_anew)
