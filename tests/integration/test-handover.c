/* Restarts in order under a service manager: connections of clients that go on (`reconnect`) outlive tuttid
 * in the manager's store; all others end as ever (M3, P9, ADR 0012). */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "manager.h"
#include "meeting.h"
#include "objects.h"
#include "raw.h"
#include "replica.h"
#include "unit.h"

#define N         4u
#define RECONNECT 20.0
#define N_FLOATS  2048u

struct shared {
        _Atomic uint32_t n_steps[N];
        _Atomic bool is_over, is_killed;
        _Atomic uint64_t sockets[N], new_sockets[N]; /* inodes, at the begin and at the end */
};

static struct shared *shared;

static struct manager *begin(void) {
        shared = memory_shared(sizeof(*shared));
        return manager_begin();
}

/* The inode of the one connection that this process has to `path`. */
static uint64_t socket_to(const char *path) {
        uint64_t found = 0;
        for (int fd = 0; fd < 1024; fd++) {
                struct sockaddr_un peer = { 0 };
                socklen_t size = sizeof(peer) - 1;
                struct stat st;
                if (getpeername(fd, (struct sockaddr *)&peer, &size) < 0 || strcmp(peer.sun_path, path) != 0)
                        continue;
                ck_assert_uint_eq(found, 0);
                ck_assert_int_eq(fstat(fd, &st), 0);
                found = st.st_ino;
        }
        ck_assert_uint_ne(found, 0);
        return found;
}

/* --- many steps --- */

static float gradient(uint32_t rank, uint32_t step, uint32_t i) {
        uint64_t z = step * UINT64_C(1000003) + i * 31 + rank * 7 + 1;
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        return (float)(z >> 40) * 0x1p-24f - 0.5f;
}

static void expect_sum(const struct floats *f, uint32_t n_ranks, uint32_t step) {
        for (uint32_t i = 0; i + 1 < N_FLOATS; i++) {
                float sum = gradient(0, step, i);
                for (uint32_t rank = 1; rank < n_ranks; rank++)
                        sum += gradient(rank, step, i);
                ck_assert_msg(memcmp(&f->data[i], &sum, sizeof(sum)) == 0,
                        "step %u: element %u is %a, not %a", step, i, (double)f->data[i], (double)sum);
        }
}

/* In place; the last element says whether it was the last step, to all alike. What a tuttid that was killed
 * had begun is lost, and made again. */
static bool take_step(struct replica *me, struct tutti_group *g, struct floats *f, uint32_t step) {
        enum tutti_status status;
        do {
                for (uint32_t i = 0; i + 1 < N_FLOATS; i++)
                        f->data[i] = gradient(me->rank, step, i);
                f->data[N_FLOATS - 1] = me->rank == 0 && atomic_load(&shared->is_over);
                status = floats_sum(g, step % 3 ? NULL : "named", f);
        } while (status == TUTTI_OUTPUT_LOST && atomic_load(&shared->is_killed));
        expect_status(status, TUTTI_OK);
        expect_sum(f, me->n, step);
        atomic_store(&shared->n_steps[me->rank], step + 1);
        return f->data[N_FLOATS - 1] == 0;
}

static struct tutti_group *join(struct replica *me) {
        return replica_join_group(
                me, &TUTTI_JOIN(.group = "train", .join_timeout = 15, .default_timeout = 20));
}

static void train(struct replica *me) {
        struct floats f;
        uint32_t step = 0;
        replica_open_again(me, RECONNECT);
        struct tutti_group *g = join(me);
        uint64_t epoch = tutti_epoch(g);
        floats_init(me->t, &f, N_FLOATS);
        atomic_store(&shared->sockets[me->rank], socket_to(me->socket));
        while (take_step(me, g, &f, step))
                step++;
        ck_assert_uint_eq(tutti_epoch(g), epoch);
        atomic_store(&shared->new_sockets[me->rank], socket_to(me->socket));
        replica_say(me, "trained");
        replica_hear(me, "end");
}

static void spawn(struct manager *m, uint32_t n, void (*body)(struct replica *me), struct replica **ret) {
        for (uint32_t rank = 0; rank < n; rank++)
                ret[rank] = replica_spawn(
                        NULL, &(struct replica_options){
                                      .rank = rank, .n = n, .body = body, .socket = manager_socket(m) });
}

static uint32_t fewest_steps(void) {
        uint32_t fewest = UINT32_MAX;
        for (uint32_t i = 0; i < N; i++)
                if (atomic_load(&shared->n_steps[i]) < fewest)
                        fewest = atomic_load(&shared->n_steps[i]);
        return fewest;
}

/* Who has failed says why. */
static void expect_no_failure(struct replica *const *r) {
        for (uint32_t i = 0; i < N; i++)
                ck_assert_msg(!r[i]->failure[0], "%s", r[i]->failure);
}

static void wait_for_more_steps(struct replica *const *r, uint32_t n) {
        double limit = seconds_now() + 30 * unit_scale();
        uint32_t n_before = fewest_steps();
        while (fewest_steps() < n_before + n) {
                expect_no_failure(r);
                ck_assert_double_lt(seconds_now(), limit);
                seconds_sleep(0.001);
        }
}

static void end_training(struct replica *const *r) {
        atomic_store(&shared->is_over, true);
        replicas_expect(r, N, "trained", 30);
        replicas_tell(r, N, "end");
        for (uint32_t i = 0; i < N; i++)
                ck_assert_int_eq(replica_end(r[i], 20), 0);
}

START_TEST(M3_P9_connections_outlive_restart_after_restart_and_all_numbers_are_right_to_the_bit) {
        struct replica *r[N];
        struct manager *m = begin();
        spawn(m, N, train, r);
        for (int i = 0; i < 6; i++) {
                wait_for_more_steps(r, 25);
                seconds_sleep(0.003 * i);
                manager_stop(m, N);
                seconds_sleep(i % 2 ? 0.05 : 0);
                manager_go_on(m, NULL);
                ck_assert_uint_eq(manager_n_connections(m), 0); /* they are tuttid's alone again */
        }
        wait_for_more_steps(r, 25);
        expect_in(manager_log(m), "4 connections go to the next tuttid");
        expect_in(manager_log(m), "4 connections of the tuttid before");
        end_training(r);
        for (uint32_t i = 0; i < N; i++)
                ck_assert_uint_eq(atomic_load(&shared->new_sockets[i]), atomic_load(&shared->sockets[i]));
        manager_finish(m);
}
END_TEST

/* One tuttid after the other, so fast that some have not been greeted when they end. */
START_TEST(M3_P9_they_outlive_tuttids_that_hardly_lived) {
        struct replica *r[N];
        struct manager *m = begin();
        spawn(m, N, train, r);
        for (int i = 0; i < 4; i++) {
                wait_for_more_steps(r, 10);
                manager_stop(m, N);
                for (int j = 0; j < 3; j++) {
                        manager_go_on(m, NULL);
                        seconds_sleep(0.001 * j);
                        ck_assert_int_eq(manager_end(m, SIGTERM), 0);
                }
                manager_go_on(m, NULL);
        }
        wait_for_more_steps(r, 10);
        end_training(r);
        manager_finish(m);
}
END_TEST

/* Also when it does not end in order between: what is left in the store then is nothing. */
START_TEST(P9_killed_after_a_hand_over_it_is_known_at_once_and_they_connect_anew) {
        struct replica *r[N];
        struct manager *m = begin();
        spawn(m, N, train, r);
        wait_for_more_steps(r, 25);
        manager_stop(m, N);
        manager_go_on(m, NULL);
        wait_for_more_steps(r, 25);
        atomic_store(&shared->is_killed, true);
        ck_assert_int_eq(manager_end(m, SIGKILL), 128 + SIGKILL);
        manager_go_on(m, NULL);
        wait_for_more_steps(r, 25);
        end_training(r);
        for (uint32_t i = 0; i < N; i++)
                ck_assert_uint_ne(atomic_load(&shared->new_sockets[i]), atomic_load(&shared->sockets[i]));
        manager_finish(m);
}
END_TEST

START_TEST(P9_where_the_store_is_emptied_they_connect_to_a_tuttid_that_comes_later) {
        struct replica *r[N];
        struct manager *m = begin();
        spawn(m, N, train, r);
        wait_for_more_steps(r, 25);
        manager_stop(m, N);
        manager_drop_connections(m);
        seconds_sleep(0.3);
        manager_go_on(m, NULL);
        wait_for_more_steps(r, 25);
        end_training(r);
        for (uint32_t i = 0; i < N; i++)
                ck_assert_uint_ne(atomic_load(&shared->new_sockets[i]), atomic_load(&shared->sockets[i]));
        ck_assert_ptr_null(strstr(manager_log(m), "of the tuttid before"));
        manager_finish(m);
}
END_TEST

/* --- what is under way --- */

static size_t n_big(void) {
        return unit_scale() > 1 ? (size_t)1 << 20 : (size_t)1 << 23;
}

static void reduce_big(struct replica *me) {
        struct floats f;
        struct tutti_work *w;
        replica_open_again(me, RECONNECT);
        struct tutti_group *g = join(me);
        floats_init(me->t, &f, n_big());
        floats_meet(g, "warm", &f, 1, 2); /* the buffer has been imported */
        uint64_t socket = socket_to(me->socket);
        for (int round = 0; round < 2; round++) {
                floats_fill(&f, (float)(me->rank + 1));
                replica_say(me, "ready");
                replica_hear(me, "submit");
                w = floats_start(g, NULL, &f, 20);
                replica_say(me, "submitted");
                expect_work(w, TUTTI_OK);
                tutti_work_free(w);
                floats_expect(&f, 3);
                replica_say(me, "ended");
        }
        ck_assert_uint_eq(socket_to(me->socket), socket);
        replica_hear(me, "end");
}

static void submit_big(struct replica *const *r) {
        replicas_expect(r, 2, "ready", 20);
        replicas_tell(r, 2, "submit");
        replicas_expect(r, 2, "submitted", 20);
}

/* Ended, told and right before there is another tuttid that could have made it again. */
START_TEST(M3_what_is_under_way_ends_first) {
        struct replica *r[2];
        static const char *const slow[] = { "--isa", "scalar", "--workers", "1", NULL };
        struct manager *m = manager_new();
        manager_go_on(m, slow);
        spawn(m, 2, reduce_big, r);
        struct raw *other = raw_open(manager_socket(m));
        submit_big(r);
        raw_settle(other); /* the last half is in */
        manager_stop(m, 2);
        raw_close(other);
        replicas_expect(r, 2, "ended", 20);
        manager_go_on(m, NULL);
        submit_big(r);
        replicas_expect(r, 2, "ended", 20);
        replicas_tell(r, 2, "end");
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 20), 0);
        manager_finish(m);
}
END_TEST

/* --- one client, in this process --- */

static struct tutti *open_again(struct manager *m, double reconnect) {
        struct tutti *t;
        expect_status(
                tutti_open_with(&TUTTI_OPEN(.socket_path = manager_socket(m), .reconnect = reconnect), &t),
                TUTTI_OK);
        return t;
}

static struct tutti_group *join_alone(struct tutti *t) {
        struct tutti_group *g;
        expect_status(tutti_join(t,
                              &TUTTI_JOIN(.group = "one", .job = "test", .rank = 0, .world_size = 1,
                                      .default_timeout = 20),
                              &g),
                TUTTI_OK);
        return g;
}

/* What it sends before it reads that it was handed over is dropped, and sent again. */
START_TEST(M3_P9_who_calls_nothing_meanwhile_goes_on_with_its_next_call) {
        struct manager *m = begin();
        struct tutti *t = open_again(m, RECONNECT);
        struct tutti_group *g = join_alone(t);
        struct floats f;
        floats_init(t, &f, N_FLOATS);
        floats_meet(g, NULL, &f, 2, 2);
        uint64_t socket = socket_to(manager_socket(m));
        for (int i = 0; i < 3; i++) {
                manager_stop(m, 1);
                manager_go_on(m, NULL);
                floats_meet(g, NULL, &f, 3, 3);
                ck_assert_uint_eq(socket_to(manager_socket(m)), socket);
        }
        tutti_close(t);
        manager_finish(m);
}
END_TEST

static void dispatch_until(struct tutti *t, struct tutti_work *w) {
        double limit = seconds_now() + 10 * unit_scale();
        while (tutti_work_test(w) == TUTTI_PENDING) {
                struct pollfd p = { .fd = tutti_fd(t), .events = POLLIN };
                ck_assert_double_lt(seconds_now(), limit);
                ck_assert_int_gt(poll(&p, 1, (int)(10000 * unit_scale())), 0);
                expect_status(tutti_dispatch(t), TUTTI_OK);
        }
}

/* tutti_fd alone says when there is something to do. */
START_TEST(M3_P9_an_event_loop_goes_on_as_well) {
        struct manager *m = begin();
        struct tutti *t = open_again(m, RECONNECT);
        struct tutti_group *g = join_alone(t);
        struct tutti_work *w;
        uint64_t socket = socket_to(manager_socket(m));
        manager_stop(m, 1);
        expect_status(tutti_barrier_start(g, NULL, NULL, &w), TUTTI_OK);
        manager_go_on(m, NULL);
        dispatch_until(t, w);
        expect_work(w, TUTTI_OK);
        tutti_work_free(w);
        ck_assert_uint_eq(socket_to(manager_socket(m)), socket);
        tutti_close(t);
        manager_finish(m);
}
END_TEST

START_TEST(P9_without_reconnect_its_connection_ends_as_ever) {
        struct manager *m = begin();
        struct tutti *t = open_again(m, -1);
        struct tutti_group *g = join_alone(t);
        manager_stop(m, 0);
        expect_status(tutti_barrier(g, NULL), TUTTI_DAEMON_LOST);
        manager_go_on(m, NULL);
        expect_status(tutti_barrier(g, NULL), TUTTI_DAEMON_LOST);
        tutti_close(t);
        manager_finish(m);
}
END_TEST

/* It agreed to be handed over before it had what cannot be. */
START_TEST(P9_who_has_a_result_object_is_lost_and_its_connection_with_it) {
        struct manager *m = begin();
        struct tutti *t = open_again(m, RECONNECT);
        struct tutti_group *g = join_alone(t);
        object_make(g, "o", 16);
        manager_stop(m, 1);
        expect_status(tutti_barrier(g, NULL), TUTTI_DAEMON_LOST);
        expect_in(tutti_error(), "result objects go with tuttid");
        ck_assert_uint_eq(manager_n_connections(m), 0);
        manager_go_on(m, NULL);
        tutti_close(t);
        manager_finish(m);
}
END_TEST

/* Within the time that it was given, also where the manager has its connection and starts nothing. */
START_TEST(P9_it_waits_for_the_next_tuttid_no_longer_than_it_was_told_to) {
        struct manager *m = begin();
        struct tutti *t = open_again(m, 0.3);
        struct tutti_group *g = join_alone(t);
        manager_stop(m, 1);
        double begun = seconds_now();
        expect_status(tutti_barrier(g, NULL), TUTTI_DAEMON_LOST);
        ck_assert_double_ge(seconds_now() - begun, 0.25);
        ck_assert_double_lt(seconds_now() - begun, 3 * unit_scale());
        expect_in(tutti_error(), "has not come back for 0.3 s");
        tutti_close(t);
        manager_free(m);
}
END_TEST

UNIT_MAIN("handover", 120,
        M3_P9_connections_outlive_restart_after_restart_and_all_numbers_are_right_to_the_bit,
        M3_P9_they_outlive_tuttids_that_hardly_lived,
        P9_killed_after_a_hand_over_it_is_known_at_once_and_they_connect_anew,
        P9_where_the_store_is_emptied_they_connect_to_a_tuttid_that_comes_later,
        M3_what_is_under_way_ends_first, M3_P9_who_calls_nothing_meanwhile_goes_on_with_its_next_call,
        M3_P9_an_event_loop_goes_on_as_well, P9_without_reconnect_its_connection_ends_as_ever,
        P9_who_has_a_result_object_is_lost_and_its_connection_with_it,
        P9_it_waits_for_the_next_tuttid_no_longer_than_it_was_told_to)
