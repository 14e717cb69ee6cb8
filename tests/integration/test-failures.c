/* Every call that the kernel or the allocator can refuse to tuttid is refused once: the whole daemon runs in
 * a thread of the test, where the linker puts failing calls in place of its own (libtutti, a shared library,
 * keeps the real ones). For each n the n-th call fails while two replicas open, register, reduce, are
 * refused, time out, leave and look; n grows until a round meets no failure. In each round
 *   - no call hangs, and every answer is a status of the list,
 *   - a result that is answered with OK is right,
 *   - the same round without a failure, right after it, succeeds in full,
 * and at the end nothing is left behind. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tutti/admin.h>
#include <tutti/tutti.h>
#include <unistd.h>
#include "daemon.h"
#include "failing.h"
#include "unit.h"

/* Check's own assertions may allocate, also when they hold; while calls fail they are made only when they do
 * not. */
#define EXPECT(expression)                                                                                   \
        do {                                                                                                 \
                if (!(expression))                                                                           \
                        ck_abort_msg("%s", #expression);                                                     \
        } while (0)

#define N_FLOATS 300000 /* a memory of its own, several chunks */

struct stage {
        struct config config;
        pthread_t thread;
        int code;
};

static void *daemon_main(void *data) {
        struct stage *s = data;
        s->code = daemon_run(&s->config, NULL);
        return NULL;
}

static void stage_configure(struct config *c) {
        config_init(c);
        snprintf(c->socket, sizeof(c->socket), "%s/tuttid.sock", unit_directory());
        c->log_level = LOG_LEVEL_ERROR;
        c->join_timeout_ns = 300000000;
        c->default_timeout_ns = 300000000;
        c->n_workers = 2;
        c->confine = CONFINE_NO; /* it would confine the test */
        log_set_level(c->log_level);
}

static void stage_start(struct stage *s) {
        stage_configure(&s->config);
        EXPECT(pthread_create(&s->thread, NULL, daemon_main, s) == 0);
}

static void stage_stop(struct stage *s) {
        ck_assert_int_eq(kill(getpid(), SIGTERM), 0);
        ck_assert_int_eq(pthread_join(s->thread, NULL), 0);
        ck_assert_int_eq(s->code, 0);
}

/* --- one replica's part of a round --- */

struct part {
        const char *socket;
        int32_t rank;
        unsigned int n_ok, n_failed;      /* calls */
        enum tutti_status unequal, alone; /* how the two that go wrong by themselves ended */
};

/* Whether it went well; anything but a status of the list, with a sentence, is the test's failure. */
static bool went_well(struct part *p, enum tutti_status status) {
        EXPECT(status >= TUTTI_OK && status <= TUTTI_INTERNAL);
        EXPECT(status == TUTTI_OK || tutti_error()[0] != '\0');
        if (status == TUTTI_OK)
                p->n_ok++;
        else
                p->n_failed++;
        return status == TUTTI_OK;
}

static void reduce_large(struct part *p, struct tutti *t, struct tutti_group *g) {
        struct tutti_buffer *b;
        if (!went_well(p, tutti_buffer_alloc(t, N_FLOATS * sizeof(float), &b)))
                return;
        struct tutti_value v =
                TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { N_FLOATS });
        float *x = tutti_buffer_data(b);
        for (int i = 0; i < N_FLOATS; i++)
                x[i] = (float)(p->rank + 1);
        if (went_well(p, tutti_all_reduce(g, "large", TUTTI_SUM, &v, &v)))
                for (int i = 0; i < N_FLOATS; i++)
                        EXPECT(x[i] == 3.0f);
        tutti_buffer_free(b);
}

static void reduce_batch(struct part *p, struct tutti *t, struct tutti_group *g) {
        struct tutti_buffer *b;
        struct tutti_value values[40];
        struct tutti_entry entries[40];
        if (!went_well(p, tutti_buffer_alloc(t, 40 * 64, &b)))
                return;
        int32_t *x = tutti_buffer_data(b);
        for (uint32_t i = 0; i < 40; i++) {
                values[i] = TUTTI_VALUE(.buffer = b, .offset = i * 64, .dtype = TUTTI_I32, .n_dims = 1,
                        .shape = { 16 });
                entries[i] = TUTTI_ENTRY(.input = &values[i], .output = &values[i]);
        }
        for (int32_t i = 0; i < 640; i++)
                x[i] = i * (p->rank + 1);
        if (went_well(p, tutti_batch_reduce(g, NULL, TUTTI_SUM, entries, 40)))
                for (int32_t i = 0; i < 640; i++)
                        EXPECT(x[i] == i * 3);
        tutti_buffer_free(b);
}

/* What ends badly by itself, so that the paths of errors meet failures too: a mismatch, and a key to which
 * only R0 comes. */
static void go_wrong(struct part *p, struct tutti *t, struct tutti_group *g) {
        struct tutti_buffer *b;
        struct tutti_work *w;
        if (!went_well(p, tutti_buffer_alloc(t, 4096, &b)))
                return;
        struct tutti_value v =
                TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { 8 + (uint64_t)p->rank });
        p->unequal = tutti_all_reduce(g, "unequal", TUTTI_SUM, &v, &v);
        if (p->rank == 0 &&
                tutti_barrier_start(g, "alone", &TUTTI_OPTIONS(.timeout = 0.02), &w) == TUTTI_OK) {
                p->alone = tutti_work_wait(w, -1);
                tutti_work_free(w);
        }
        tutti_buffer_free(b);
        went_well(p, tutti_barrier(g, "end"));
}

static void look(struct part *p, struct tutti *t) {
        for (int what = TUTTI_ADMIN_STATUS; what <= TUTTI_ADMIN_QUOTA; what++) {
                struct tutti_answer *a;
                if (what == TUTTI_ADMIN_DUMP)
                        continue; /* the record may have been lost for want of memory, as it is allowed to */
                if (went_well(p, tutti_admin_ask(t, (enum tutti_admin_what)what, NULL, NULL, &a)))
                        tutti_answer_free(a);
        }
}

static void *part_main(void *data) {
        struct part *p = data;
        struct tutti *t;
        struct tutti_group *g;
        if (!went_well(p, tutti_open(p->socket, &t)))
                return NULL;
        if (went_well(p,
                    tutti_join(t,
                            &TUTTI_JOIN(.group = "failures", .job = "test", .rank = p->rank, .world_size = 2),
                            &g))) {
                reduce_large(p, t, g);
                reduce_batch(p, t, g);
                go_wrong(p, t, g);
                look(p, t);
                tutti_group_free(g);
        }
        tutti_close(t);
        return NULL;
}

/* Both replicas, as threads; the number of calls that failed. */
static unsigned int play(const struct stage *s, struct part parts[2]) {
        pthread_t threads[2];
        for (int i = 0; i < 2; i++) {
                parts[i] = (struct part){ .socket = s->config.socket, .rank = i };
                EXPECT(pthread_create(&threads[i], NULL, part_main, &parts[i]) == 0);
        }
        for (int i = 0; i < 2; i++)
                pthread_join(threads[i], NULL);
        return parts[0].n_failed + parts[1].n_failed;
}

/* A round in which nothing fails. */
static void play_whole(const struct stage *s, unsigned int after_n) {
        struct part parts[2];
        unsigned int n_failed = play(s, parts);
        ck_assert_msg(n_failed == 0, "after a failure at call %u, %u calls of a round without one failed",
                after_n, n_failed);
        ck_assert_uint_eq(parts[0].n_ok, parts[1].n_ok);
        ck_assert_uint_eq(parts[0].n_ok, 12);
        ck_assert_int_eq(parts[0].unequal, TUTTI_MISMATCH);
        ck_assert_int_eq(parts[1].unequal, TUTTI_MISMATCH);
        ck_assert_int_eq(parts[0].alone, TUTTI_TIMEOUT);
}

/* Everything of earlier rounds is gone, so that the next begins alone. */
static void expect_nothing_left(const struct stage *s) {
        for (int i = 0; i < 400; i++) {
                struct tutti *t;
                struct tutti_answer *a;
                uint64_t n_held = 1;
                if (tutti_open(s->config.socket, &t) == TUTTI_OK) {
                        if (tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a) == TUTTI_OK) {
                                const struct tutti_row_daemon *d = &a->rows[0].daemon;
                                n_held = d->n_sessions - 1 + d->n_groups + d->n_buffers + d->n_pending +
                                         d->mapped_bytes;
                                tutti_answer_free(a);
                        }
                        tutti_close(t);
                }
                if (n_held == 0)
                        return;
                usleep(5000);
        }
        ck_abort_msg("sessions, groups, buffers or submissions are left behind");
}

/* n upward from 1 until a round passes without the failure. Early calls matter one by one; where there are
 * very many (a malloc in each of a thousand lookups) later ones are taken in growing steps. */
static void fail_every(unsigned int calls, unsigned int n_at_least) {
        struct stage s;
        struct part parts[2];
        unsigned int n = 1, n_rounds = 0;
        stage_start(&s);
        while (access(s.config.socket, F_OK) < 0)
                usleep(1000);
        expect_nothing_left(&s);
        play_whole(&s, 0);
        for (;; n += n < 200 ? 1 : 7) {
                failing_call_at(calls, n);
                play(&s, parts);
                bool has_failed = failing_has_failed();
                failing_call_at(calls, 0);
                n_rounds++;
                expect_nothing_left(&s);
                if (!has_failed)
                        break;
                play_whole(&s, n);
                expect_nothing_left(&s);
        }
        ck_assert_uint_ge(n_rounds, n_at_least);
        printf("# %u rounds\n", n_rounds);
        stage_stop(&s);
}

START_TEST(memory_fails_at_every_call) {
        fail_every(FAILING_MEMORY, 20);
}
END_TEST

START_TEST(mmap_fails_at_every_call) {
        fail_every(FAILING_MMAP, 4);
}
END_TEST

START_TEST(memfd_create_fails_at_every_call) {
        fail_every(FAILING_MEMFD, 2);
}
END_TEST

START_TEST(fcntl_fails_at_every_call) {
        fail_every(FAILING_FCNTL, 6);
}
END_TEST

START_TEST(sendmsg_fails_at_every_call) {
        fail_every(FAILING_SENDMSG, 20);
}
END_TEST

START_TEST(recvmsg_fails_at_every_call) {
        fail_every(FAILING_RECVMSG, 20);
}
END_TEST

START_TEST(accept4_fails_at_every_call) {
        fail_every(FAILING_ACCEPT, 2);
}
END_TEST

/* A start in a process of its own (libuv cannot be started again where it was shut down). Its exit code;
 * *ret_failed: whether the failure was met. */
static int start_once(unsigned int n, bool *ret_failed) {
        static bool *has_failed;
        struct config config;
        int status = 0;
        bool is_asked = false;
        if (!has_failed)
                has_failed = mmap(
                        NULL, sizeof(*has_failed), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        *has_failed = false;
        stage_configure(&config);
        fflush(NULL);
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
                failing_call_at(FAILING_ALL, n);
                int code = daemon_run(&config, NULL);
                *has_failed = failing_has_failed();
                failing_call_at(FAILING_ALL, 0);
                exit(code);
        }
        for (int i = 0; i < 4000 && waitpid(pid, &status, WNOHANG) == 0; i++) {
                if (!is_asked && access(config.socket, F_OK) == 0)
                        is_asked = kill(pid, SIGTERM) == 0;
                usleep(500);
        }
        ck_assert_int_lt(access(config.socket, F_OK), 0);
        *ret_failed = *has_failed;
        ck_assert_msg(WIFEXITED(status), "call %u failed at the start: signal %d", n, WTERMSIG(status));
        return WEXITSTATUS(status);
}

/* Starting: every call fails once, and tuttid either serves until it is ended (0) or says that it cannot (2),
 * leaving nothing. */
START_TEST(starting_fails_cleanly_at_every_call) {
        bool has_failed = true;
        unsigned int n_refused = 0;
        for (unsigned int n = 1; has_failed; n++) {
                int code = start_once(n, &has_failed);
                ck_assert_msg(code == 0 || (code == 2 && has_failed),
                        "call %u failed at the start: exit code %d", n, code);
                n_refused += code == 2;
        }
        ck_assert_uint_ge(n_refused, 10);
}
END_TEST

UNIT_MAIN("failures", 120, memory_fails_at_every_call, mmap_fails_at_every_call,
        memfd_create_fails_at_every_call, fcntl_fails_at_every_call, sendmsg_fails_at_every_call,
        recvmsg_fails_at_every_call, accept4_fails_at_every_call, starting_fails_cleanly_at_every_call)
