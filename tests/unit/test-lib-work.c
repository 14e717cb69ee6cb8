/* Works: how they are sent, waited for by many threads, cancelled, and how they end. */
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "lib-server.h"
#include "base/clock.h"
#include "lib/work.h"

static void sleep_ms(unsigned int ms) {
        usleep(ms * 1000);
}

/* --- one work --- */

static void script_one_reduce(struct server *s) {
        server_greet_and_join(s);
        struct request r = server_take(s, REQUEST_REGISTER);
        uint64_t region = r.reg.buffer;
        ck_assert_uint_eq(s->packet.n_fds, 1);
        server_ok(s, r.request);
        r = server_take(s, REQUEST_SUBMIT);
        const struct msg_submit *m = &r.submit;
        ck_assert_uint_eq(m->membership, 7);
        ck_assert_uint_eq(m->epoch, 3);
        ck_assert_uint_eq(m->key.n_bytes, 5);
        ck_assert_mem_eq(m->key.bytes, "grads", 5);
        ck_assert_int_eq(m->signature.kind, KIND_REDUCE);
        ck_assert_int_eq(m->signature.op, OP_MEAN);
        ck_assert_uint_eq(m->signature.n_entries, 1);
        ck_assert_uint_eq(m->n_part_entries, 1);
        ck_assert_int_eq(m->more, 0);
        ck_assert_int_eq(m->refused, STATUS_OK);
        const struct entry *e = &m->entries[0];
        ck_assert_int_eq(e->dtype, DTYPE_F32);
        ck_assert_uint_eq(e->n_dims, 2);
        ck_assert_uint_eq(e->shape[0], 3);
        ck_assert_uint_eq(e->shape[1], 5);
        ck_assert_int_eq(e->destination, DESTINATION_ALL);
        ck_assert_uint_eq(e->input.buffer, region);
        ck_assert_uint_eq(e->output.buffer, region);
        ck_assert_uint_eq(e->input.offset_bytes, 8);
        ck_assert_uint_eq(e->output.offset_bytes, 8);
        server_done(s, r.request, 41);
        server_serve(s);
}

START_TEST(a_reduce_is_sent_as_asked_and_brings_its_result) {
        struct server *s = server_start(script_one_reduce, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        struct tutti_buffer *b;
        ck_assert_int_eq(tutti_buffer_alloc(t, 100, &b), TUTTI_OK);
        struct tutti_value v =
                TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 2, .shape = { 3, 5 }, .offset = 8);
        ck_assert_int_eq(tutti_all_reduce(g, "grads", TUTTI_MEAN, &v, &v), TUTTI_OK);
        const struct tutti_result *r = tutti_last_result();
        ck_assert_uint_eq(r->collective, 41);
        ck_assert_uint_eq(r->n_contributors, 2);
        ck_assert(tutti_ranks_has(&r->contributors, 0) && tutti_ranks_has(&r->contributors, 1) &&
                  !tutti_ranks_has(&r->contributors, 2));
        ck_assert_int_eq(r->op, TUTTI_SUM);
        ck_assert_double_eq_tol(r->wait, 5e-6, 1e-12);
        ck_assert_double_eq_tol(r->run, 7e-6, 1e-12);
        ck_assert_uint_eq(r->last_rank, 1);
        tutti_close(t);
        server_end(s);
}
END_TEST

static void script_destinations(struct server *s) {
        server_greet_and_join(s);
        server_ok(s, server_take(s, REQUEST_REGISTER).request);
        struct request r = server_take(s, REQUEST_SUBMIT); /* to rank 1: this rank, 0, only reads */
        ck_assert_int_eq(r.submit.entries[0].destination, DESTINATION_RANK);
        ck_assert_uint_eq(r.submit.entries[0].destination_rank, 1);
        ck_assert_uint_eq(r.submit.entries[0].output.buffer, 0);
        ck_assert_int_eq(r.submit.has_timeout, true);
        ck_assert_uint_eq(r.submit.timeout_ns, 2500000000);
        server_done(s, r.request, 0);
        r = server_take(s, REQUEST_SUBMIT); /* broadcast from 0: no output at the root */
        ck_assert_int_eq(r.submit.signature.kind, KIND_BROADCAST);
        ck_assert_uint_eq(r.submit.entries[0].input.buffer, 1);
        ck_assert_uint_eq(r.submit.entries[0].output.buffer, 0);
        ck_assert_int_eq(r.submit.has_timeout, true);
        ck_assert_uint_eq(r.submit.timeout_ns, 0);
        server_done(s, r.request, 1);
        r = server_take(s, REQUEST_SUBMIT); /* broadcast from 1: no input here */
        ck_assert_uint_eq(r.submit.signature.root, 1);
        ck_assert_uint_eq(r.submit.entries[0].input.buffer, 0);
        ck_assert_uint_eq(r.submit.entries[0].output.buffer, 1);
        ck_assert_int_eq(r.submit.has_timeout, false);
        server_done(s, r.request, 2);
        r = server_take(s, REQUEST_SUBMIT); /* no such op, no such dtype */
        ck_assert_int_eq(r.submit.signature.op, N_OP);
        ck_assert_int_eq(r.submit.entries[0].dtype, N_DTYPE);
        server_refuse(s, r.request, STATUS_UNSUPPORTED, FIELD_OP, "no");
        server_serve(s);
}

START_TEST(destinations_roots_timeouts_and_unknown_words_go_out_as_they_are) {
        struct server *s = server_start(script_destinations, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        struct tutti_buffer *b;
        struct tutti_work *w;
        ck_assert_int_eq(tutti_buffer_alloc(t, 100, &b), TUTTI_OK);
        struct tutti_value v = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_I64, .n_dims = 1, .shape = { 4 });
        struct tutti_destinations to = { .where = TUTTI_TO_RANK, .rank = 1 };
        ck_assert_int_eq(
                tutti_reduce_start(g, "a", TUTTI_SUM, &v, NULL, &to, &TUTTI_OPTIONS(.timeout = 2.5), &w),
                TUTTI_OK);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
        tutti_work_free(w);
        ck_assert_int_eq(tutti_broadcast_start(g, "b", 0, &v, &TUTTI_OPTIONS(.timeout = -1), &w), TUTTI_OK);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
        tutti_work_free(w);
        ck_assert_int_eq(tutti_broadcast(g, "c", 1, &v), TUTTI_OK);
        v.dtype = (enum tutti_dtype)99;
        ck_assert_int_eq(tutti_all_reduce(g, "d", (enum tutti_op)99, &v, &v), TUTTI_UNSUPPORTED);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* Options as they must arrive; what was found goes back. */
static void script_options(struct server *s) {
        server_greet_and_join(s);
        server_ok(s, server_take(s, REQUEST_REGISTER).request);
        struct request r = server_take(s, REQUEST_SUBMIT);
        const struct options *o = &r.submit.signature.options;
        CHECK(o->rounding == ROUNDING_FLOOR && !o->has_weight && o->weight == 0);
        CHECK(!o->check_numerics && !o->check_overflow);
        CHECK(r.submit.entries[0].output_dtype == DTYPE_UNSPECIFIED);
        server_done(s, r.request, 0);
        r = server_take(s, REQUEST_SUBMIT);
        CHECK(o->rounding == ROUNDING_NEAREST + 1 && o->has_weight && o->weight == 0.25);
        CHECK(o->check_numerics && o->check_overflow);
        CHECK(r.submit.entries[0].dtype == DTYPE_I64 && r.submit.entries[0].output_dtype == DTYPE_F64);
        CHECK(r.submit.entries[0].output.buffer != 0);
        server_reply(s, &(struct reply){ .request = r.request,
                                .status = STATUS_OK,
                                .type = REPLY_DONE,
                                .done = { .found = { .numerics = { 5, 6, 7, 1ull << 40 },
                                                  .overflow = { 8, 0, 9, 10 } } } });
        r = server_take(s, REQUEST_SUBMIT); /* brings, and receives nothing */
        CHECK(r.submit.entries[0].output_dtype == DTYPE_F64 && r.submit.entries[0].output.buffer == 0);
        server_done(s, r.request, 1);
        server_serve(s);
}

START_TEST(options_of_numbers_go_out_and_findings_come_back) {
        struct server *s = server_start(script_options, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        struct tutti_buffer *b;
        struct tutti_work *w;
        struct tutti_result r;
        ck_assert_int_eq(tutti_buffer_alloc(t, 100, &b), TUTTI_OK);
        struct tutti_value v = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_I64, .n_dims = 1, .shape = { 4 });
        struct tutti_value f = v, nowhere = TUTTI_VALUE(.dtype = TUTTI_F64),
                           sizeless = { .dtype = TUTTI_F64 };
        struct tutti_destinations to = { .where = TUTTI_TO_RANK, .rank = 1 };
        f.dtype = TUTTI_F64;
        ck_assert_int_eq(tutti_all_reduce_start(g, NULL, TUTTI_MEAN, &v, &v,
                                 &TUTTI_OPTIONS(.rounding = TUTTI_FLOOR, .weight = 7), &w),
                TUTTI_OK);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
        ck_assert_int_eq(tutti_work_result(w, &r), TUTTI_OK);
        ck_assert(r.numerics.n == 0 && r.overflow.n == 0);
        tutti_work_free(w);

        ck_assert_int_eq(tutti_all_reduce_start(g, NULL, TUTTI_MEAN, &v, &f,
                                 &TUTTI_OPTIONS(.rounding = (enum tutti_rounding)99, .has_weight = 1,
                                         .weight = 0.25, .check_numerics = 1, .check_overflow = 1),
                                 &w),
                TUTTI_OK);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
        ck_assert_int_eq(tutti_work_result(w, &r), TUTTI_OK);
        ck_assert(r.numerics.n == 5 && r.numerics.rank == 6 && r.numerics.entry == 7 &&
                  r.numerics.index == UINT64_C(1) << 40);
        ck_assert(
                r.overflow.n == 8 && r.overflow.rank == 0 && r.overflow.entry == 9 && r.overflow.index == 10);
        tutti_work_free(w);

        ck_assert_int_eq(tutti_reduce(g, NULL, TUTTI_MEAN, &v, &nowhere, &to), TUTTI_OK);
        ck_assert_int_eq(tutti_reduce(g, NULL, TUTTI_MEAN, &v, &sizeless, &to), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_SIZE);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- ways to end --- */

static void script_refuses(struct server *s) {
        server_greet_and_join(s);
        struct request r = server_take(s, REQUEST_SUBMIT);
        struct error e;
        error_init(&e, STATUS_TIMEOUT);
        memcpy(e.job, "j", 2);
        memcpy(e.group, "g", 2);
        e.kind = KIND_BARRIER;
        e.has_key = key_name(&e.key, "x\"y", 3);
        e.have = rankset_first(1);
        rankset_add(&e.missing, 1);
        e.n_replicas = 1;
        e.replicas[0] = (struct replica_report){ .rank = 1,
                .pid = 4711,
                .uid = 1000,
                .state = PROCESS_STOPPED,
                .has_last = true,
                .last_key = key_sequence(17),
                .last_age_ns = 2500000000,
                .busy = "checkpoint" };
        e.age_ns = 2 * NS_PER_S;
        server_reply(s, &(struct reply){ .request = r.request, .status = STATUS_TIMEOUT, .error = &e });
        server_serve(s);
}

START_TEST(an_error_is_shown_as_sentences_and_as_data) {
        struct server *s = server_start(script_refuses, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        struct tutti_work *w;
        ck_assert_int_eq(tutti_barrier_start(g, "x\"y", NULL, &w), TUTTI_OK);
        ck_assert_str_eq(tutti_work_error(w)->text, "");
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_TIMEOUT);
        const struct tutti_error_info *e = tutti_work_error(w);
        ck_assert_int_eq(e->status, TUTTI_TIMEOUT);
        ck_assert_str_eq(e->job, "j");
        ck_assert_str_eq(e->group, "g");
        ck_assert_str_eq(e->key, "x\\\"y");
        ck_assert(tutti_ranks_has(&e->missing, 1) && !tutti_ranks_has(&e->missing, 0));
        ck_assert_uint_eq(e->n_replicas, 1);
        ck_assert_uint_eq(e->replicas[0].pid, 4711);
        ck_assert_int_eq(e->replicas[0].state, TUTTI_STOPPED);
        ck_assert_str_eq(e->replicas[0].last_key, "#17");
        ck_assert_double_eq_tol(e->replicas[0].last_age, 2.5, 1e-9);
        ck_assert_str_eq(e->replicas[0].busy, "checkpoint");
        ck_assert_double_eq_tol(e->age, 2, 1e-9);
        ck_assert_ptr_nonnull(strstr(e->text, "TIMEOUT: barrier"));
        ck_assert_ptr_nonnull(strstr(e->text, "pid 4711"));
        ck_assert_str_eq(tutti_error(), "");
        struct tutti_result r;
        ck_assert_int_eq(tutti_work_result(w, &r), TUTTI_TIMEOUT);
        tutti_work_free(w);
        tutti_close(t);
        server_end(s);
}
END_TEST

static void script_dies(struct server *s) {
        server_greet_and_join(s);
        server_ok(s, server_take(s, REQUEST_REGISTER).request);
        server_take(s, REQUEST_SUBMIT);
        server_take(s, REQUEST_SUBMIT);
        *(_Atomic uint64_t *)s->arg = clock_now_ns();
        server_hang_up(s);
}

static void *wait_in_thread(void *work) {
        return (void *)(uintptr_t)tutti_work_wait(work, -1);
}

START_TEST(the_end_of_tuttid_is_DAEMON_LOST_for_all_at_once_P9) {
        _Atomic uint64_t died = 0;
        struct server *s = server_start(script_dies, &died);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        struct tutti_buffer *b, *other;
        struct tutti_work *w;
        pthread_t thread;
        void *seen;
        ck_assert_int_eq(tutti_buffer_alloc(t, 8192, &b), TUTTI_OK);
        ck_assert_int_eq(tutti_barrier_start(g, NULL, NULL, &w), TUTTI_OK);
        ck_assert_int_eq(pthread_create(&thread, NULL, wait_in_thread, w), 0);
        ck_assert_int_eq(tutti_barrier(g, NULL), TUTTI_DAEMON_LOST);
        ck_assert_uint_le(clock_now_ns() - died, (uint64_t)(1e9 * unit_scale()));
        ck_assert_int_eq(pthread_join(thread, &seen), 0);
        ck_assert_uint_eq((uintptr_t)seen, TUTTI_DAEMON_LOST);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "memory stays mapped"));
        ck_assert_ptr_nonnull(strstr(tutti_work_error(w)->text, "DAEMON_LOST"));

        memset(tutti_buffer_data(b), 5, 8192);
        ck_assert_int_eq(((char *)tutti_buffer_data(b))[8191], 5);
        ck_assert_int_eq(tutti_barrier(g, NULL), TUTTI_DAEMON_LOST);
        ck_assert_int_eq(tutti_buffer_alloc(t, 10, &other), TUTTI_DAEMON_LOST);
        ck_assert_int_eq(tutti_dispatch(t), TUTTI_DAEMON_LOST);
        ck_assert_int_eq(tutti_leave(g), TUTTI_DAEMON_LOST);
        tutti_work_free(w);
        tutti_buffer_free(b);
        tutti_group_free(g);
        tutti_close(t);
        server_end(s);
}
END_TEST

static void script_ejects(struct server *s) {
        server_greet_and_join(s);
        server_take(s, REQUEST_SUBMIT);
        server_refuse(s, 0, STATUS_BAD_FD, FIELD_BUFFER, "a hole was punched into buffer 3");
        server_hang_up(s);
}

START_TEST(an_ejection_says_why_to_what_was_pending) {
        struct server *s = server_start(script_ejects, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        ck_assert_int_eq(tutti_barrier(g, "k"), TUTTI_BAD_FD);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "a hole was punched into buffer 3"));
        ck_assert_int_eq(tutti_barrier(g, "k"), TUTTI_DAEMON_LOST);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "ejected"));
        ck_assert_ptr_nonnull(strstr(tutti_error(), "a hole was punched into buffer 3"));
        ck_assert_int_eq(tutti_error_info()->loss, TUTTI_EJECTED);
        tutti_close(t);
        server_end(s);
}
END_TEST

static void script_ejects_with_ok(struct server *s) {
        server_greet_and_join(s);
        server_take(s, REQUEST_SUBMIT);
        server_reply(s, &(struct reply){ .type = REPLY_DONE, .done = { .n_contributors = 2 } });
        server_hang_up(s);
}

/* Never a silent wrong OK. */
START_TEST(an_ejection_with_OK_is_no_end_with_OK) {
        struct server *s = server_start(script_ejects_with_ok, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        ck_assert_int_eq(tutti_barrier(g, "k"), TUTTI_DAEMON_LOST);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "last words without a reason"));
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- limits of waiting, and cancelling --- */

static void script_waits(struct server *s) {
        server_greet_and_join(s);
        struct request r = server_take(s, REQUEST_SUBMIT);
        uint64_t first = r.request;
        r = server_take(s, REQUEST_BUSY); /* the test's sign to go on */
        server_ok(s, r.request);
        server_done(s, first, 0);
        server_serve(s);
}

START_TEST(a_limit_ends_the_wait_alone) {
        struct server *s = server_start(script_waits, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        struct tutti_work *w;
        ck_assert_int_eq(tutti_barrier_start(g, "k", NULL, &w), TUTTI_OK);
        uint64_t begin = clock_now_ns();
        ck_assert_int_eq(tutti_work_wait(w, 0.05), TUTTI_PENDING);
        uint64_t took = clock_now_ns() - begin;
        ck_assert_uint_ge(took, 50 * NS_PER_MS);
        ck_assert_uint_le(took, (uint64_t)(2e9 * unit_scale()));
        ck_assert_int_eq(tutti_work_wait(w, 0), TUTTI_PENDING);
        ck_assert_int_eq(tutti_work_test(w), TUTTI_PENDING);
        struct tutti_result r;
        ck_assert_int_eq(tutti_work_result(w, &r), TUTTI_PENDING);
        ck_assert_int_eq(tutti_work_wait(w, __builtin_nan("")), TUTTI_INVALID);
        ck_assert_int_eq(tutti_busy(g, "go on", 1), TUTTI_OK);
        ck_assert_int_eq(tutti_work_wait(w, 1e300), TUTTI_OK);
        ck_assert_int_eq(tutti_work_result(w, &r), TUTTI_OK);
        ck_assert_uint_eq(r.n_contributors, 2);
        tutti_close(t);
        server_end(s);
}
END_TEST

START_TEST(cancelling_ends_all_waits_and_nothing_else_P8) {
        struct server *s = server_start(script_waits, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        struct tutti_work *w;
        pthread_t threads[2];
        ck_assert_int_eq(tutti_barrier_start(g, "k", NULL, &w), TUTTI_OK);
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, wait_in_thread, w), 0);
        for (bool both = false; !both; sleep_ms(1)) {
                pthread_mutex_lock(&t->lock);
                both = t->leader && t->waiters.next->next != &t->waiters;
                pthread_mutex_unlock(&t->lock);
        }
        ck_assert_int_eq(tutti_work_cancel(w), TUTTI_OK);
        for (int i = 0; i < 2; i++) {
                void *seen;
                ck_assert_int_eq(pthread_join(threads[i], &seen), 0);
                ck_assert_uint_eq((uintptr_t)seen, TUTTI_CANCELLED);
        }
        ck_assert_int_eq(tutti_work_test(w), TUTTI_PENDING);
        ck_assert_int_eq(tutti_busy(g, "go on", 1), TUTTI_OK);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- an event loop --- */

START_TEST(the_descriptor_is_readable_when_there_is_something_to_dispatch) {
        struct server *s = server_start(script_waits, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        struct tutti_work *w;
        struct pollfd fds = { .fd = tutti_fd(t), .events = POLLIN };
        ck_assert_int_eq(tutti_barrier_start(g, "k", NULL, &w), TUTTI_OK);
        ck_assert_int_eq(poll(&fds, 1, 0), 0);
        ck_assert_int_eq(tutti_busy(g, "go on", 1), TUTTI_OK);
        if (!w->call.is_ended) /* it may have come in together with the answer */
                ck_assert_int_eq(poll(&fds, 1, (int)(10000 * unit_scale())), 1);
        ck_assert_int_eq(tutti_dispatch(t), TUTTI_OK);
        ck_assert_int_eq(poll(&fds, 1, 0), 0);
        ck_assert_int_eq(tutti_work_test(w), TUTTI_OK);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- many threads --- */

#define N_THREADS 8
#define N_ROUNDS  200

/* Answers whenever four have come together, the last first: hardly any leader reads its own reply first. */
static void script_last_first(struct server *s) {
        uint64_t requests[N_THREADS], n_done = 0;
        int n = 0;
        server_greet_and_join(s);
        while (n_done < N_THREADS * N_ROUNDS) {
                requests[n++] = server_take(s, REQUEST_SUBMIT).request;
                uint64_t n_left = N_THREADS * N_ROUNDS - n_done;
                if (n < 4 && (uint64_t)n < n_left)
                        continue;
                for (n_done += (uint64_t)n; n > 0; n--)
                        server_done(s, requests[n - 1], requests[n - 1]);
        }
        server_serve(s);
}

struct many {
        struct tutti_group *g;
        _Atomic int n_wrong, n_ended;
};

/* Each thread starts four at a time, since four must be there for any to end. */
static void *many_rounds(void *arg) {
        struct many *m = arg;
        for (int i = 0; i < N_ROUNDS; i += 4) {
                struct tutti_work *works[4];
                for (int k = 0; k < 4; k++)
                        m->n_wrong += tutti_barrier_start(m->g, NULL, NULL, &works[k]) != TUTTI_OK;
                for (int k = 3; k >= 0; k--) {
                        struct tutti_result r = { 0 };
                        m->n_wrong += tutti_work_wait(works[k], k % 2 ? -1 : 30 * unit_scale()) != TUTTI_OK;
                        m->n_wrong += tutti_work_result(works[k], &r) != TUTTI_OK;
                        m->n_wrong += r.collective != works[k]->call.request;
                        tutti_work_free(works[k]);
                        m->n_ended++;
                }
        }
        return NULL;
}

START_TEST(threads_wait_for_each_others_replies) {
        struct server *s = server_start(script_last_first, NULL);
        struct tutti *t = client_open(s);
        struct many m = { .g = client_join(t, 0, 2) };
        pthread_t threads[N_THREADS];
        for (int i = 0; i < N_THREADS; i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, many_rounds, &m), 0);
        for (int i = 0; i < N_THREADS; i++)
                ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_int_eq(m.n_wrong, 0);
        ck_assert_int_eq(m.n_ended, N_THREADS * N_ROUNDS);
        ck_assert_uint_eq(t->n_slots_used, 0);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- a full socket --- */

#define N_FLOOD 3000

/* Reads nothing until its own replies would not fit either: both sides must go on reading while they write.
 */
static void script_flood(struct server *s) {
        server_greet_and_join(s);
        uint64_t first = 0, n = 0;
        struct request r;
        while (n < N_FLOOD && server_take_any(s, &r)) {
                first = first ? first : r.request;
                char detail[380];
                memset(detail, 'x', sizeof(detail) - 1);
                detail[sizeof(detail) - 1] = '\0';
                server_refuse(s, r.request, STATUS_ABORTED, FIELD_UNSPECIFIED, detail);
                n++;
        }
        server_serve(s);
}

START_TEST(a_full_socket_does_not_stop_both_sides) {
        struct server *s = server_start(script_flood, NULL);
        struct tutti *t = client_open(s);
        struct tutti_group *g = client_join(t, 0, 2);
        struct tutti_work **works = calloc(N_FLOOD, sizeof(*works));
        for (int i = 0; i < N_FLOOD; i++)
                ck_assert_int_eq(tutti_barrier_start(g, NULL, NULL, &works[i]), TUTTI_OK);
        for (int i = 0; i < N_FLOOD; i++) {
                ck_assert_int_eq(tutti_work_wait(works[i], -1), TUTTI_ABORTED);
                tutti_work_free(works[i]);
        }
        free(works);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- garbage --- */

/* --- lengths that nobody knew before --- */

enum lengths { IN_PARTS, TOO_MANY, TOO_FEW, AN_EMPTY_PART, N_LENGTHS };

static void script_lengths(struct server *s) {
        static const uint64_t extents[] = { 10, 20, 30, 40 }, firsts[] = { 1, 2, 3, 4 };
        enum lengths lengths = *(enum lengths *)s->arg;
        server_greet_and_join(s);
        struct reply reply = { .request = server_take(s, REQUEST_SUBMIT).request, .type = REPLY_DONE };
        reply.done = (struct msg_done){ .collective = 41,
                .n_contributors = 2,
                .n_extents = lengths == AN_EMPTY_PART ? 0 : 2,
                .extents = extents,
                .firsts = firsts };
        reply.more = true;
        server_reply(s, &reply);
        reply.more = false;
        reply.done = (struct msg_done){ .collective = 99, /* counts in the first part alone */
                .n_extents = lengths == TOO_MANY  ? 2
                             : lengths == TOO_FEW ? 0
                                                  : 1,
                .extents = extents + 2,
                .firsts = firsts + 2 };
        server_reply(s, &reply);
        struct request r;
        while (server_take_any(s, &r))
                ;
}

START_TEST(lengths_of_results_come_in_parts) {
        for (enum lengths lengths = 0; lengths < N_LENGTHS; lengths++) {
                struct server *s = server_start(script_lengths, &lengths);
                struct tutti *t = client_open(s);
                struct tutti_group *g = client_join(t, 0, 2);
                struct tutti_work *w;
                uint64_t total = 0, first = 0;
                /* As long as nothing but the answer has them, a work that expects some stands for all. */
                struct tutti_work *warm = work_new(t);
                ck_assert(work_expect_extents(warm, 3));
                work_drop(warm);
                ck_assert_int_eq(tutti_barrier_start(g, "k", NULL, &w), TUTTI_OK);
                pthread_mutex_lock(&t->lock);
                w->extents_expected = 3;
                pthread_mutex_unlock(&t->lock);
                ck_assert_int_eq(tutti_work_wait(w, -1), lengths == IN_PARTS ? TUTTI_OK : TUTTI_DAEMON_LOST);
                for (uint32_t i = 0; lengths == IN_PARTS && i < 3; i++) {
                        ck_assert_int_eq(tutti_work_extent(w, i, &total, &first), TUTTI_OK);
                        ck_assert_uint_eq(total, 10 * (i + 1));
                        ck_assert_uint_eq(first, i + 1);
                }
                if (lengths == IN_PARTS) {
                        struct tutti_result result;
                        ck_assert_int_eq(tutti_work_result(w, &result), TUTTI_OK);
                        ck_assert_uint_eq(result.collective, 41);
                        ck_assert_int_eq(tutti_work_extent(w, 3, &total, NULL), TUTTI_INVALID);
                        ck_assert_ptr_nonnull(strstr(tutti_error(), "lengths of 3 results"));
                } else {
                        ck_assert_int_eq(tutti_work_extent(w, 0, &total, NULL), TUTTI_DAEMON_LOST);
                }
                ck_assert_int_eq(tutti_work_extent(NULL, 0, NULL, NULL), TUTTI_INVALID);
                tutti_close(t);
                server_end(s);
        }
}
END_TEST

enum garbage { NOISE, NEVER_ASKED, WRONG_BODY, PARTS, NO_BODY, TOO_MUCH, N_GARBAGE };

static void script_garbage(struct server *s) {
        static const uint8_t noise[] = { 0xff, 0xfe, 0x12, 0x99, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff };
        server_greet_and_join(s);
        struct request r = server_take(s, REQUEST_SUBMIT);
        struct reply reply = { .request = r.request, .status = STATUS_OK };
        switch (*(enum garbage *)s->arg) {
        case NOISE: server_send_raw(s, noise, sizeof(noise)); break;
        case NEVER_ASKED: server_done(s, r.request + 1000, 0); break;
        case WRONG_BODY:
                reply.type = REPLY_JOINED;
                server_reply(s, &reply);
                break;
        case PARTS:
                reply.type = REPLY_DONE;
                reply.more = true;
                server_reply(s, &reply);
                break;
        case NO_BODY: server_reply(s, &reply); break;
        case TOO_MUCH: {
                static uint8_t zeros[MAX_PACKET_BYTES + 1];
                ck_assert_int_eq(send(s->fd, zeros, sizeof(zeros), 0), sizeof(zeros));
                break;
        }
        case N_GARBAGE: break;
        }
        while (server_take_any(s, &r))
                ;
}

START_TEST(garbage_is_DAEMON_LOST_and_no_crash) {
        for (enum garbage garbage = 0; garbage < N_GARBAGE; garbage++) {
                struct server *s = server_start(script_garbage, &garbage);
                struct tutti *t = client_open(s);
                struct tutti_group *g = client_join(t, 0, 2);
                ck_assert_int_eq(tutti_barrier(g, "k"), TUTTI_DAEMON_LOST);
                ck_assert_msg(strstr(tutti_error(), "It sent "), "%d: %s", garbage, tutti_error());
                tutti_close(t);
                server_end(s);
        }
}
END_TEST

UNIT_MAIN("lib-work", 30, a_reduce_is_sent_as_asked_and_brings_its_result,
        destinations_roots_timeouts_and_unknown_words_go_out_as_they_are, lengths_of_results_come_in_parts,
        options_of_numbers_go_out_and_findings_come_back, an_error_is_shown_as_sentences_and_as_data,
        the_end_of_tuttid_is_DAEMON_LOST_for_all_at_once_P9, an_ejection_says_why_to_what_was_pending,
        an_ejection_with_OK_is_no_end_with_OK, a_limit_ends_the_wait_alone,
        cancelling_ends_all_waits_and_nothing_else_P8,
        the_descriptor_is_readable_when_there_is_something_to_dispatch, threads_wait_for_each_others_replies,
        a_full_socket_does_not_stop_both_sides, garbage_is_DAEMON_LOST_and_no_crash)
