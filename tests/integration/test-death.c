/* Replicas that die (C1 C2 C3, P5). */
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <tutti/admin.h>
#include <unistd.h>
#include "meeting.h"
#include "replica.h"
#include "unit.h"

#define LIMIT 1.0 /* s from a death to its report: ten times what is promised */

/* Shared by the test and its replicas. */
struct shared {
        _Atomic uint32_t pid; /* of the replica that is to die, or of its child */
        _Atomic double heard[2], killed;
        _Atomic int step;
};

static struct shared *shared;

static void share(void) {
        shared = memory_shared(sizeof(*shared));
}

static void tell_all(struct replica *const *r, uint32_t n, const char *text) {
        for (uint32_t i = 0; i < n; i++)
                replica_tell(r[i], text);
}

static void expect_all(struct replica *const *r, uint32_t n, const char *text, double seconds) {
        for (uint32_t i = 0; i < n; i++)
                replica_expect(r[i], text, seconds);
}

static void end_all(struct host *h, struct replica *const *r, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}

static void kill_now(struct replica *r) {
        atomic_store(&shared->killed, seconds_now());
        replica_kill9(r);
}

static struct tutti_work *start_sum(struct tutti_group *g, const char *key, struct floats *f) {
        struct tutti_work *w;
        expect_status(tutti_all_reduce_start(g, key, TUTTI_SUM, &f->value, &f->value, NULL, &w), TUTTI_OK);
        return w;
}

/* The error says who was lost, how, and what it finished last. */
static void expect_loss(
        const struct tutti_error_info *e, uint32_t rank, enum tutti_loss loss, const char *last_key) {
        ck_assert_int_eq(e->status, TUTTI_REPLICA_LOST);
        ck_assert_int_eq(e->rank, (int32_t)rank);
        ck_assert_int_eq(e->loss, loss);
        ck_assert_int_eq(e->outputs_undefined, 0);
        ck_assert_uint_eq(e->n_replicas, 1);
        ck_assert_uint_eq(e->replicas[0].rank, rank);
        if (loss == TUTTI_DIED)
                ck_assert_int_eq(e->replicas[0].state, TUTTI_DEAD);
        else
                ck_assert_int_ne(e->replicas[0].state, TUTTI_DEAD);
        ck_assert_uint_eq(e->replicas[0].pid, atomic_load(&shared->pid));
        ck_assert_uint_eq(e->replicas[0].uid, getuid());
        ck_assert_msg(e->replicas[0].last_key != NULL, "%s", e->text);
        ck_assert_str_eq(e->replicas[0].last_key, last_key);
}

/* --- C1: a death is told soon, with its name --- */

#define N_DEATHS 200

static void join_round(struct replica *me, int round, struct tutti_group **ret) {
        char group[32];
        snprintf(group, sizeof(group), "round %d", round);
        *ret = replica_join_group(me, &TUTTI_JOIN(.group = group));
}

static void survive_a_round(struct replica *me, int round, struct floats *f) {
        struct tutti_group *g;
        join_round(me, round, &g);
        floats_meet(g, "before", f, 1, 3);
        floats_fill(f, 7);
        struct tutti_work *w = start_sum(g, "after", f);
        replica_say(me, "waiting");
        expect_work(w, TUTTI_REPLICA_LOST);
        atomic_store(&shared->heard[me->rank], seconds_now());
        expect_loss(tutti_work_error(w), 2, TUTTI_DIED, "before");
        expect_ranks(&tutti_work_error(w)->have, 0x3);
        expect_ranks(&tutti_work_error(w)->missing, 0x4);
        floats_expect(f, 7);
        tutti_work_free(w);
        tutti_group_free(g);
        replica_say(me, "heard");
}

static void survive_all_rounds(struct replica *me) {
        struct floats f;
        floats_init(replica_open(me), &f, 1000);
        for (int round = 0; round < N_DEATHS; round++) {
                replica_hear(me, "go");
                survive_a_round(me, round, &f);
        }
}

static void die_in_a_round(struct replica *me) {
        struct tutti_group *g;
        struct floats f;
        atomic_store(&shared->pid, (uint32_t)getpid());
        floats_init(replica_open(me), &f, 1000);
        join_round(me, atomic_load(&shared->step), &g);
        floats_meet(g, "before", &f, 1, 3);
        replica_hear(me, "never");
}

static double kill_in_a_round(struct host *h, struct replica *const *survivors, int round) {
        atomic_store(&shared->step, round);
        struct replica *doomed =
                replica_spawn(h, &(struct replica_options){ .rank = 2, .n = 3, .body = die_in_a_round });
        tell_all(survivors, 2, "go");
        expect_all(survivors, 2, "waiting", 10);
        host_expect_pending(h, 2); /* what they have sent has been read */
        kill_now(doomed);
        expect_all(survivors, 2, "heard", 10);
        double a = atomic_load(&shared->heard[0]), b = atomic_load(&shared->heard[1]);
        return (a > b ? a : b) - atomic_load(&shared->killed);
}

static int compare_doubles(const void *a, const void *b) {
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

START_TEST(C1_a_killed_replica_is_named_to_all_within_the_limit) {
        double took[N_DEATHS];
        struct replica *survivors[2];
        share();
        struct host *h = host_start(NULL);
        for (uint32_t rank = 0; rank < 2; rank++)
                survivors[rank] = replica_spawn(
                        h, &(struct replica_options){ .rank = rank, .n = 3, .body = survive_all_rounds });
        for (int round = 0; round < N_DEATHS; round++)
                took[round] = kill_in_a_round(h, survivors, round);
        qsort(took, N_DEATHS, sizeof(*took), compare_doubles);
        double p50 = took[N_DEATHS / 2], p99 = took[N_DEATHS * 99 / 100];
        printf("# C1: from SIGKILL to REPLICA_LOST at all others: p50 %.2f ms, p99 %.2f ms\n", p50 * 1e3,
                p99 * 1e3);
        ck_assert_double_lt(p99, LIMIT * unit_scale());
        end_all(h, survivors, 2);
}
END_TEST

/* --- C2: a forked child hides the end of file, not the death --- */

static void expect_forked(struct replica *me, struct tutti_group *g, struct floats *f) {
        struct tutti_group *other;
        struct tutti_buffer *b;
        struct tutti_work *w;
        struct tutti_answer *a;
        expect_status(tutti_barrier(g, "child"), TUTTI_FORKED);
        expect_in(tutti_error(), "FORKED");
        expect_status(
                tutti_all_reduce_start(g, "child", TUTTI_SUM, &f->value, &f->value, NULL, &w), TUTTI_FORKED);
        expect_status(tutti_join(me->t, &TUTTI_JOIN(.group = "child", .job = "j", .world_size = 1), &other),
                TUTTI_FORKED);
        expect_status(tutti_buffer_alloc(me->t, 4096, &b), TUTTI_FORKED);
        expect_status(tutti_dispatch(me->t), TUTTI_FORKED);
        expect_status(tutti_leave(g), TUTTI_FORKED);
        expect_status(tutti_busy(g, "child", 1), TUTTI_FORKED);
        expect_status(tutti_abort(g, "child", "why"), TUTTI_FORKED);
        expect_status(tutti_admin_ask(me->t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), TUTTI_FORKED);
}

/* Opens anew, as its error text advises. */
static void go_on_anew(struct replica *me) {
        struct tutti_group *g;
        struct tutti *t;
        expect_status(tutti_open(me->socket, &t), TUTTI_OK);
        expect_status(
                tutti_join(t, &TUTTI_JOIN(.group = "child", .job = "j", .world_size = 1), &g), TUTTI_OK);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        tutti_close(t);
}

static void fork_and_wait(struct replica *me) {
        struct floats f;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &f, 10);
        floats_meet(g, "before", &f, 1, 3);
        if (me->rank == 1) {
                atomic_store(&shared->pid, (uint32_t)getpid());
                if (fork() == 0) {
                        unit_become_child("child of rank 1", me->failure, 256);
                        expect_forked(me, g, &f);
                        go_on_anew(me);
                        replica_say(me, "child %d", getpid());
                        pause();
                }
                replica_hear(me, "never");
        }
        struct tutti_work *w = start_sum(g, "after", &f);
        replica_say(me, "waiting");
        expect_work(w, TUTTI_REPLICA_LOST);
        atomic_store(&shared->heard[me->rank / 2], seconds_now());
        expect_loss(tutti_work_error(w), 1, TUTTI_DIED, "before");
        tutti_work_free(w);
}

START_TEST(C2_E10_a_death_is_told_although_a_child_keeps_the_socket_open) {
        struct replica *r[3];
        int child;
        share();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, fork_and_wait, NULL, r);
        ck_assert_int_eq(sscanf(replica_listen(r[1], 10), "child %d", &child), 1);
        replica_expect(r[0], "waiting", 5);
        replica_expect(r[2], "waiting", 5);
        kill_now(r[1]);
        ck_assert_int_eq(replica_end(r[0], 10), 0);
        ck_assert_int_eq(replica_end(r[2], 10), 0);
        ck_assert_int_eq(kill(child, 0), 0); /* it has held the socket all the time */
        for (int i = 0; i < 2; i++)
                ck_assert_double_lt(
                        atomic_load(&shared->heard[i]) - atomic_load(&shared->killed), LIMIT * unit_scale());
        host_expect_counters_zero(h);
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        host_stop(h);
}
END_TEST

static void meet_around_a_fork(struct replica *me) {
        struct floats f;
        int status;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &f, 10);
        floats_meet(g, NULL, &f, 1, 2);
        struct tutti_work *w = me->rank == 0 ? start_sum(g, "pending", &f) : NULL;
        pid_t child = fork();
        if (child == 0) {
                unit_become_child("child", me->failure, 256);
                if (w)
                        expect_status(tutti_work_wait(w, -1), TUTTI_FORKED);
                tutti_work_free(w);
                tutti_group_free(g);
                tutti_buffer_free(f.buffer);
                tutti_close(me->t);
                _exit(0);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(status, 0);
        if (me->rank == 1)
                w = start_sum(g, "pending", &f);
        expect_work(w, TUTTI_OK);
        floats_expect(&f, 4); /* the sum before, once more */
        tutti_work_free(w);
        floats_meet(g, NULL, &f, 2, 4);
}

START_TEST(C2_a_child_that_closes_what_it_inherited_harms_nobody) {
        struct host *h = host_start(NULL);
        run_replicas(h, 2, meet_around_a_fork, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- C3: the words --- */

/* Whatever was waited for, the sentence names replica, process, user and operation. */
static void expect_words(const struct tutti_error_info *e, const char *operation) {
        char replica[64], user[32];
        snprintf(replica, sizeof(replica), "R2 (pid %u", atomic_load(&shared->pid));
        snprintf(user, sizeof(user), "uid %u", getuid());
        expect_in(e->text, "REPLICA_LOST");
        expect_in(e->text, operation);
        expect_in(e->text, "test/train");
        expect_in(e->text, replica);
        expect_in(e->text, user);
        expect_in(e->text, "\"warm\"");
}

static void expect_words_of_work(struct tutti_work *w, const char *operation) {
        expect_work(w, TUTTI_REPLICA_LOST);
        expect_words(tutti_work_error(w), operation);
        tutti_work_free(w);
}

static void read_the_words(struct replica *me, struct tutti_group *g, struct floats *f) {
        struct tutti_work *reduce, *broadcast, *batch, *barrier;
        struct tutti_entry entry = TUTTI_ENTRY(.input = &f->value, .output = &f->value);
        expect_status(tutti_all_reduce_start(g, "grad/8", TUTTI_SUM, &f->value, &f->value, NULL, &reduce),
                TUTTI_OK);
        expect_status(tutti_broadcast_start(g, "weights", 0, &f->value, NULL, &broadcast), TUTTI_OK);
        expect_status(tutti_batch_reduce_start(g, "all", TUTTI_MEAN, &entry, 1, NULL, &batch), TUTTI_OK);
        expect_status(tutti_barrier_start(g, NULL, NULL, &barrier), TUTTI_OK);
        replica_say(me, "waiting");
        expect_words_of_work(reduce, "reduce \"grad/8\"");
        expect_words_of_work(broadcast, "broadcast \"weights\"");
        expect_words_of_work(batch, "batch_reduce \"all\"");
        expect_words_of_work(barrier, "barrier #0");
        /* So does every later one, at once. */
        expect_status(tutti_barrier(g, "later"), TUTTI_REPLICA_LOST);
        expect_words(tutti_error_info(), "barrier \"later\"");
        ck_assert_str_eq(tutti_error(), tutti_error_info()->text);
}

static void shut_my_sockets(const char *path) {
        for (int fd = 3; fd < 1024; fd++) {
                struct sockaddr_un address = { 0 };
                socklen_t n = sizeof(address) - 1;
                if (getpeername(fd, (struct sockaddr *)&address, &n) == 0 && address.sun_family == AF_UNIX &&
                        strcmp(address.sun_path, path) == 0)
                        ck_assert_int_eq(shutdown(fd, SHUT_RDWR), 0);
        }
}

static void lose_rank_2(struct replica *me) {
        struct floats f;
        if (me->rank == 2)
                atomic_store(&shared->pid, (uint32_t)getpid());
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &f, 10);
        floats_meet(g, "warm", &f, 1, 3);
        if (me->rank < 2) {
                read_the_words(me, g, &f);
                return;
        }
        replica_hear(me, "shut");
        shut_my_sockets(me->socket);
        expect_status(tutti_barrier(g, "x"), TUTTI_DAEMON_LOST);
        replica_say(me, "lost");
        replica_hear(me, "end");
}

START_TEST(C3_the_text_of_a_death_names_replica_process_user_and_operation) {
        struct replica *r[3];
        share();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, lose_rank_2, NULL, r);
        expect_all(r, 2, "waiting", 10);
        kill_now(r[2]);
        end_all(h, r, 2);
}
END_TEST

START_TEST(C3_the_text_of_a_disconnection_names_replica_process_user_and_operation) {
        struct replica *r[3];
        share();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, lose_rank_2, NULL, r);
        expect_all(r, 2, "waiting", 10);
        replica_tell(r[2], "shut");
        replica_expect(r[2], "lost", 5);
        ck_assert_int_eq(replica_end(r[0], 5), 0);
        ck_assert_int_eq(replica_end(r[1], 5), 0);
        replica_tell(r[2], "end"); /* its process has lived all the time */
        end_all(h, r + 2, 1);
}
END_TEST

/* P5: an end of file without a death is another word. */
static void wait_for_a_disconnected_one(struct replica *me) {
        struct floats f;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &f, 10);
        if (me->rank == 1)
                atomic_store(&shared->pid, (uint32_t)getpid());
        floats_meet(g, "before", &f, 1, 2);
        if (me->rank == 1) {
                replica_hear(me, "shut");
                atomic_store(&shared->killed, seconds_now());
                shut_my_sockets(me->socket);
                replica_hear(me, "end");
                return;
        }
        struct tutti_work *w = start_sum(g, "after", &f);
        replica_say(me, "waiting");
        expect_work(w, TUTTI_REPLICA_LOST);
        ck_assert_double_lt(seconds_now() - atomic_load(&shared->killed), LIMIT * unit_scale());
        expect_loss(tutti_work_error(w), 1, TUTTI_DISCONNECTED, "before");
        expect_in(tutti_work_error(w)->text, "closed its connection");
        tutti_work_free(w);
}

START_TEST(P5_an_end_of_file_without_a_death_is_a_disconnection) {
        struct replica *r[2];
        share();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, wait_for_a_disconnected_one, NULL, r);
        replica_expect(r[0], "waiting", 10);
        replica_tell(r[1], "shut");
        ck_assert_int_eq(replica_end(r[0], 10), 0);
        replica_tell(r[1], "end");
        end_all(h, r + 1, 1);
}
END_TEST

/* --- P5: what is sealed runs to its end --- */

#define N_BIG ((size_t)16 << 20) /* floats: 64 MiB */

/* Whether the collective of that key is running now; false: it waits, or is over. */
static bool is_running(struct tutti *t) {
        struct tutti_answer *a;
        bool is = false;
        expect_status(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++)
                is |= a->rows[i].type == TUTTI_ROW_PENDING && a->rows[i].pending.running;
        tutti_answer_free(a);
        return is;
}

static void reduce_with_the_dead(struct replica *me) {
        struct floats in, out;
        struct tutti_result result;
        struct tutti_work *w;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &in, N_BIG);
        floats_init(me->t, &out, N_BIG);
        floats_fill(&in, (float)(me->rank + 1));
        expect_status(tutti_barrier(g, "ready"), TUTTI_OK);
        if (me->rank == 2)
                replica_hear(me, "go");
        expect_status(tutti_all_reduce_start(g, "big", TUTTI_SUM, &in.value, &out.value, NULL, &w), TUTTI_OK);
        replica_say(me, "submitted");
        if (me->rank == 2)
                replica_hear(me, "never");
        expect_work(w, TUTTI_OK);
        expect_status(tutti_work_result(w, &result), TUTTI_OK);
        ck_assert_uint_eq(result.n_contributors, 3);
        expect_ranks(&result.contributors, 0x7);
        floats_expect(&out, 6);
        tutti_work_free(w);
        replica_say(me, "right");
        replica_hear(me, "on");
        /* The group has failed: on_death is fail. */
        expect_status(tutti_barrier(g, "later"), TUTTI_REPLICA_LOST);
        ck_assert_int_eq(tutti_error_info()->rank, 2);
}

/* Whether R2 was dead while it ran; a machine that is busy with other things can be too late for that. */
static bool kill_while_it_runs(struct host *h, struct tutti *t) {
        struct replica *r[3];
        replicas_spawn(h, 3, reduce_with_the_dead, NULL, r);
        expect_all(r, 2, "submitted", 20);
        replica_tell(r[2], "go");
        double limit = seconds_now() + 1 * unit_scale();
        while (!is_running(t) && seconds_now() < limit)
                ;
        kill_now(r[2]);
        bool was_running = is_running(t);
        expect_all(r, 2, "right", 20);
        tell_all(r, 2, "on");
        for (uint32_t i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        host_expect_sessions(h, 1); /* t */
        return was_running;
}

START_TEST(P5_a_sealed_collective_ends_with_the_contribution_of_the_dead) {
        struct tutti *t;
        bool was_running = false;
        share();
        struct host *h = host_start((const char *[]){ "--isa", "scalar", "--workers", "1", NULL });
        expect_status(tutti_open(host_socket(h), &t), TUTTI_OK);
        for (int i = 0; i < 10 && !was_running; i++)
                was_running = kill_while_it_runs(h, t);
        ck_assert_msg(was_running, "it was always over before R2 was dead: this has tested nothing");
        tutti_close(t);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("death", 60, C1_a_killed_replica_is_named_to_all_within_the_limit,
        C2_E10_a_death_is_told_although_a_child_keeps_the_socket_open,
        C2_a_child_that_closes_what_it_inherited_harms_nobody,
        C3_the_text_of_a_death_names_replica_process_user_and_operation,
        C3_the_text_of_a_disconnection_names_replica_process_user_and_operation,
        P5_an_end_of_file_without_a_death_is_a_disconnection,
        P5_a_sealed_collective_ends_with_the_contribution_of_the_dead)
