#include "replica.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "program.h"
#include "unit.h"

#define FAILURE_BYTES 2048
#define RUN_SECONDS   30

/* Those of this test that have not ended. */
static struct replica *replicas;

/* --- both sides --- */

static void send_text(int control, const char *text) {
        /* One more byte than the text, so that an empty one is no end of file. */
        ssize_t n = send(control, text, strlen(text) + 1, MSG_NOSIGNAL);
        ck_assert_msg(n > 0, "cannot tell \"%s\": %m", text);
}

/* Whether a text has come; false: the other side has ended. */
static bool receive_text(struct replica *r) {
        ssize_t n = recv(r->control, r->heard, sizeof(r->heard) - 1, 0);
        r->heard[n > 0 ? n : 0] = '\0';
        return n > 0;
}

/* --- in the replica --- */

struct tutti *replica_open(struct replica *me) {
        if (!me->t)
                ck_assert_msg(tutti_open(me->socket, &me->t) == TUTTI_OK, "open: %s", tutti_error());
        return me->t;
}

struct tutti *replica_open_again(struct replica *me, double reconnect) {
        enum tutti_status status =
                tutti_open_with(&TUTTI_OPEN(.socket_path = me->socket, .reconnect = reconnect), &me->t);
        ck_assert_msg(status == TUTTI_OK, "%s", tutti_error());
        return me->t;
}

struct tutti_group *replica_join_group(struct replica *me, const struct tutti_join_args *args) {
        struct tutti_join_args join = *args;
        struct tutti_group *g;
        if (!join.job)
                join.job = "test";
        if (join.rank < 0 || join.world_size == 0)
                join.rank = (int32_t)me->rank;
        if (join.world_size <= 0)
                join.world_size = (int32_t)me->n;
        ck_assert_msg(tutti_join(replica_open(me), &join, &g) == TUTTI_OK, "join: %s", tutti_error());
        return g;
}

void replica_say(struct replica *me, const char *format, ...) {
        char text[sizeof(me->heard) - 1];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        send_text(me->control, text);
}

const char *replica_hear_any(struct replica *me) {
        ck_assert_msg(receive_text(me), "the test has ended");
        return me->heard;
}

void replica_hear(struct replica *me, const char *text) {
        ck_assert_str_eq(replica_hear_any(me), text);
}

_Noreturn static void run_body(struct replica *me, void (*body)(struct replica *me)) {
        char name[32];
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        snprintf(name, sizeof(name), "rank %u", me->rank);
        unit_become_child(name, me->failure, FAILURE_BYTES);
        for (struct replica *other = replicas; other; other = other->next)
                close(other->control);
        int n_before = unit_count_descriptors();
        body(me);
        tutti_close(me->t);
        int n_after = unit_count_descriptors();
        ck_assert_msg(n_before == n_after, "%d descriptors were open before the body, %d after it", n_before,
                n_after);
        exit(0);
}

/* --- in the test --- */

static struct replica *replica_new(const char *socket, const struct replica_options *options) {
        struct replica *r = calloc(1, sizeof(*r));
        ck_assert_ptr_nonnull(r);
        r->rank = options->rank;
        r->n = options->n;
        r->arg = options->arg;
        r->socket = socket;
        r->failure = mmap(NULL, FAILURE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(r->failure, MAP_FAILED);
        return r;
}

static void replica_free(struct replica *r) {
        for (struct replica **p = &replicas; *p; p = &(*p)->next)
                if (*p == r) {
                        *p = r->next;
                        break;
                }
        close(r->control);
        munmap(r->failure, FAILURE_BYTES);
        free(r);
}

struct replica *replica_spawn(struct host *h, const struct replica_options *options) {
        struct replica *r = replica_new(options->socket ? options->socket : host_socket(h), options);
        int ends[2];
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
        fflush(NULL);
        r->pid = fork();
        ck_assert_int_ge(r->pid, 0);
        r->control = ends[r->pid ? 0 : 1];
        close(ends[r->pid ? 1 : 0]);
        if (r->pid == 0)
                run_body(r, options->body);
        r->next = replicas;
        replicas = r;
        return r;
}

void replicas_spawn(
        struct host *h, uint32_t n, void (*body)(struct replica *me), void *arg, struct replica **ret) {
        for (uint32_t rank = 0; rank < n; rank++)
                ret[rank] = replica_spawn(
                        h, &(struct replica_options){ .rank = rank, .n = n, .body = body, .arg = arg });
}

static void fail_by_its_words(const struct replica *r) {
        if (r->failure[0])
                ck_abort_msg("%s", r->failure);
}

void replica_tell(struct replica *r, const char *text) {
        fail_by_its_words(r);
        send_text(r->control, text);
}

const char *replica_listen(struct replica *r, double seconds) {
        struct pollfd p = { .fd = r->control, .events = POLLIN };
        int n = poll(&p, 1, (int)(seconds * unit_scale() * 1000));
        if (n > 0 && receive_text(r))
                return r->heard;
        fail_by_its_words(r);
        ck_abort_msg("rank %u (pid %d) %s", r->rank, r->pid, n > 0 ? "ended without a word" : "says nothing");
}

void replica_expect(struct replica *r, const char *text, double seconds) {
        const char *heard = replica_listen(r, seconds);
        ck_assert_msg(strcmp(heard, text) == 0, "rank %u said \"%s\", not \"%s\"", r->rank, heard, text);
}

void replica_signal(struct replica *r, int signal) {
        ck_assert_int_eq(kill(r->pid, signal), 0);
}

int replica_end(struct replica *r, double seconds) {
        int code = program_wait(r->pid, seconds);
        fail_by_its_words(r);
        ck_assert_msg(code >= 0, "rank %u (pid %d) has not ended after %g s", r->rank, r->pid,
                seconds * unit_scale());
        replica_free(r);
        return code;
}

void replica_kill9(struct replica *r) {
        replica_signal(r, SIGKILL);
        ck_assert_int_eq(replica_end(r, 5), 128 + SIGKILL);
}

void run_replicas(struct host *h, uint32_t n, void (*body)(struct replica *me), void *arg) {
        struct replica **r = calloc(n, sizeof(struct replica *));
        ck_assert_ptr_nonnull(r);
        replicas_spawn(h, n, body, arg, r);
        for (uint32_t rank = 0; rank < n; rank++) {
                int code = replica_end(r[rank], RUN_SECONDS);
                ck_assert_msg(code == 0, "rank %u ended with %d", rank, code);
        }
        free(r);
}
