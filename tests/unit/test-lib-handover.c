/* libtutti is told that the next tuttid has its connection, also by one that lies (P9). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>
#include "base/fd.h"
#include "lib-server.h"
#include "lib/connection.h"
#include "lib/group.h"

#define RECONNECT    10.0
#define N_WORKS      600  /* more than a socket holds */
#define N_LONG_WORKS 3000 /* more than it holds of what is told of them */

static void hand_over(struct server *s) {
        server_reply(s, &(struct reply){ .status = STATUS_OK, .type = REPLY_HAND_OVER });
}

static struct tutti *open_with(const struct server *s, double reconnect) {
        struct tutti *t;
        enum tutti_status status =
                tutti_open_with(&TUTTI_OPEN(.socket_path = s->path, .reconnect = reconnect), &t);
        ck_assert_msg(status == TUTTI_OK, "%s", tutti_error());
        return t;
}

/* --- what hello says --- */

static void note_hello(struct server *s) {
        bool *may = s->arg;
        server_accept(s);
        *may = server_welcome(s).hello.may_be_handed_over;
        server_serve(s);
}

START_TEST(who_goes_on_says_so_and_nobody_else) {
        bool may;
        struct server *s = server_start(note_hello, &may);
        struct tutti *t = open_with(s, RECONNECT);
        tutti_close(t);
        server_end(s);
        ck_assert(may);
        s = server_start(note_hello, &may);
        t = open_with(s, -1);
        tutti_close(t);
        server_end(s);
        ck_assert(!may);
}
END_TEST

/* --- handed over --- */

/* The half was for the tuttid before; a hello comes, the group, and the half again under its number. */
static void serve_the_next(struct server *s) {
        server_greet_and_join(s);
        uint64_t number = server_take(s, REQUEST_SUBMIT).request;
        hand_over(s);
        ck_assert(server_welcome(s).hello.may_be_handed_over);
        server_take(s, REQUEST_PAGES);
        struct request join = server_take(s, REQUEST_JOIN);
        ck_assert_uint_eq(join.join.resume_epoch, 3);
        server_reply(s, &(struct reply){ .request = join.request,
                                .type = REPLY_JOINED,
                                .joined = { .membership = 8, .epoch = 3, .rank = 0, .world_size = 2 } });
        struct request again = server_take(s, REQUEST_SUBMIT);
        ck_assert_uint_eq(again.request, number);
        ck_assert_uint_eq(again.submit.membership, 8);
        server_done(s, number, 5);
        server_serve(s);
}

START_TEST(P9_it_says_hello_on_the_same_socket_and_brings_everything_back) {
        struct server *s = server_start(serve_the_next, NULL);
        struct tutti *t = open_with(s, RECONNECT);
        struct tutti_group *g = client_join(t, 0, 2);
        enum tutti_status status = tutti_barrier(g, "a");
        ck_assert_msg(status == TUTTI_OK, "%s", tutti_error());
        tutti_close(t);
        server_end(s);
}
END_TEST

static void hand_over_and_end(struct server *s) {
        server_greet_and_join(s);
        server_take(s, REQUEST_SUBMIT);
        hand_over(s);
        server_take(s, REQUEST_HELLO);
        server_hang_up(s);
        server_accept(s);
        server_welcome(s);
        server_take(s, REQUEST_PAGES);
        struct request r = server_take(s, REQUEST_JOIN);
        server_refuse(s, r.request, STATUS_REPLICA_LOST, FIELD_GROUP, "known by this");
        server_serve(s);
}

START_TEST(P9_where_the_socket_ends_it_connects_anew) {
        struct server *s = server_start(hand_over_and_end, NULL);
        struct tutti *t = open_with(s, RECONNECT);
        struct tutti_group *g = client_join(t, 0, 2);
        ck_assert_int_eq(tutti_barrier(g, "a"), TUTTI_REPLICA_LOST);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "known by this"));
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- lies --- */

/* It would have to say hello again and again. */
static void hand_over_without_a_welcome(struct server *s) {
        server_greet_and_join(s);
        server_take(s, REQUEST_SUBMIT);
        hand_over(s);
        hand_over(s);
        struct request r;
        while (server_take_any(s, &r)) /* it may have said hello, and more; then it has gone */
                ;
        server_hang_up(s);
        server_accept(s);
        server_welcome(s);
        server_take(s, REQUEST_PAGES);
        r = server_take(s, REQUEST_JOIN);
        server_refuse(s, r.request, STATUS_REPLICA_LOST, FIELD_GROUP, "known by this");
        server_serve(s);
}

START_TEST(P9_a_server_that_has_not_welcomed_it_hands_nothing_over) {
        struct server *s = server_start(hand_over_without_a_welcome, NULL);
        struct tutti *t = open_with(s, RECONNECT);
        struct tutti_group *g = client_join(t, 0, 2);
        ck_assert_int_eq(tutti_barrier(g, "a"), TUTTI_REPLICA_LOST);
        ck_assert_ptr_nonnull(strstr(tutti_error(), "known by this"));
        tutti_close(t);
        server_end(s);
}
END_TEST

static void hand_over_whatever_was_said(struct server *s) {
        server_greet_and_join(s);
        server_take(s, REQUEST_SUBMIT);
        hand_over(s);
        struct request r;
        ck_assert(!server_take_any(s, &r));
}

START_TEST(P9_who_was_not_opened_so_is_lost) {
        struct server *s = server_start(hand_over_whatever_was_said, NULL);
        struct tutti *t = open_with(s, -1);
        struct tutti_group *g = client_join(t, 0, 2);
        ck_assert_int_eq(tutti_barrier(g, "a"), TUTTI_DAEMON_LOST);
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- a socket that is full --- */

/* Whoever has it now reads nothing for ever: neither the sender nor the hello waits for that. */
static void read_nothing(struct server *s) {
        server_greet_and_join(s);
        int old = dup(s->fd);
        usleep(300000);
        hand_over(s);
        fd_close(&s->fd);
        server_accept(s);
        server_welcome(s);
        struct request r = server_take(s, REQUEST_PAGES);
        while (r.type == REQUEST_PAGES && server_take_any(s, &r))
                ;
        ck_assert_int_eq(r.type, REQUEST_JOIN);
        server_refuse(s, r.request, STATUS_REPLICA_LOST, FIELD_GROUP, "known by this");
        server_serve(s);
        fd_close(&old);
}

START_TEST(P9_P21_a_full_socket_that_nobody_reads_is_given_up_for_a_new_one) {
        static struct tutti_work *works[N_WORKS];
        struct server *s = server_start(read_nothing, NULL);
        struct tutti *t = open_with(s, RECONNECT);
        struct tutti_group *g = client_join(t, 0, 2);
        enum tutti_status status = TUTTI_OK;
        int n = 0;
        while (n < N_WORKS && (status = tutti_barrier_start(g, NULL, NULL, &works[n])) == TUTTI_OK)
                n++;
        ck_assert(status == TUTTI_OK || status == TUTTI_REPLICA_LOST); /* it may know already */
        ck_assert_int_gt(n, 100);
        for (int i = 0; i < n; i++) {
                ck_assert_int_eq(tutti_work_wait(works[i], -1), TUTTI_REPLICA_LOST);
                tutti_work_free(works[i]);
        }
        tutti_close(t);
        server_end(s);
}
END_TEST

/* --- left around its Join --- */

enum when { WHEN_JOINED, WHEN_TOLD };

/* What server and client say to each other. The answer comes when the client has begun to leave, or late:
 * when it has done so. */
struct departure {
        enum when when; /* the client may leave */
        bool is_freed, is_refused, is_late;
        atomic_bool may_leave, has_left, is_over;
        struct tutti_group *_Atomic group;
};

static void await(const atomic_bool *what) {
        while (!atomic_load(what))
                usleep(1000);
}

/* Its halves are kept, and told of when it comes back: more than a socket holds. */
static void take_submissions(struct server *s) {
        for (int i = 0; i < N_LONG_WORKS; i++)
                server_take(s, REQUEST_SUBMIT);
        hand_over(s);
        server_welcome(s);
        server_take(s, REQUEST_PAGES);
}

static struct request take_join(struct server *s, struct departure *p) {
        struct request r;
        do
                CHECK(server_take_any(s, &r));
        while (r.type == REQUEST_PAGES);
        ck_assert_int_eq(r.type, REQUEST_JOIN);
        ck_assert_uint_eq(r.join.resume_epoch, 3);
        if (p->when == WHEN_JOINED)
                atomic_store(&p->may_leave, true);
        return r;
}

static void answer_join(struct server *s, const struct request *r, bool is_refused) {
        if (is_refused)
                server_refuse(s, r->request, STATUS_REPLICA_LOST, FIELD_GROUP, "gone on without it");
        else
                server_reply(s, &(struct reply){ .request = r->request,
                                        .type = REPLY_JOINED,
                                        .joined = { .membership = 8, .epoch = 3, .world_size = 2 } });
}

static void serve_parting(struct server *s) {
        struct departure *p = s->arg;
        struct request r;
        server_greet_and_join(s);
        take_submissions(s);
        if (p->when == WHEN_TOLD) {
                atomic_store(&p->may_leave, true);
                usleep(200000); /* it has left, as a rule, before more is read */
        }
        r = take_join(s, p);
        await(p->is_late ? &p->has_left : &atomic_load(&p->group)->has_left);
        answer_join(s, &r, p->is_refused);
        if (!p->is_refused) {
                r = server_take(s, REQUEST_LEAVE);
                ck_assert_uint_eq(r.membership, 8);
                server_ok(s, r.request);
        }
        atomic_store(&p->is_over, true);
        server_take(s, REQUEST_GOODBYE);
        ck_assert(!server_take_any(s, &r));
}

static void *dispatch_until_over(void *arg) {
        struct tutti *t = ((void **)arg)[0];
        struct departure *p = ((void **)arg)[1];
        for (int i = 0; i < 5000 && !atomic_load(&p->is_over); i++) {
                ck_assert_int_eq(tutti_dispatch(t), TUTTI_OK);
                usleep(1000);
        }
        return NULL;
}

static void start_works(struct tutti_group *g, struct tutti_work **works) {
        char key[121];
        for (int i = 0; i < N_LONG_WORKS; i++) {
                snprintf(key, sizeof(key), "%0120d", i);
                ck_assert_int_eq(tutti_barrier_start(g, key, NULL, &works[i]), TUTTI_OK);
        }
}

static void leave(struct tutti_group *g, struct departure *p) {
        await(&p->may_leave);
        if (p->is_freed)
                tutti_group_free(g);
        else
                ck_assert_int_eq(tutti_leave(g), TUTTI_OK);
        atomic_store(&p->has_left, true);
}

static void part(struct departure *p) {
        static struct tutti_work *works[N_LONG_WORKS];
        pthread_t other;
        struct server *s = server_start(serve_parting, p);
        struct tutti *t = open_with(s, RECONNECT);
        struct tutti_group *g = client_join(t, 0, 2);
        void *both[] = { t, p };
        atomic_store(&p->group, g);
        start_works(g, works);
        ck_assert_int_eq(pthread_create(&other, NULL, dispatch_until_over, both), 0);
        leave(g, p);
        for (int i = 0; i < N_LONG_WORKS; i++) {
                ck_assert_int_eq(tutti_work_wait(works[i], -1), TUTTI_LEFT);
                tutti_work_free(works[i]);
        }
        pthread_join(other, NULL);
        ck_assert(list_is_empty(&t->groups) == p->is_freed);
        tutti_close(t);
        server_end(s);
}

START_TEST(P9_who_leaves_behind_its_join_leaves_when_that_is_answered) {
        part(&(struct departure){ .when = WHEN_JOINED });
        part(&(struct departure){ .when = WHEN_JOINED, .is_late = true });
}
END_TEST

START_TEST(P9_who_frees_its_group_behind_its_join_leaves_all_the_same) {
        part(&(struct departure){ .when = WHEN_JOINED, .is_freed = true });
        part(&(struct departure){ .when = WHEN_JOINED, .is_freed = true, .is_late = true });
}
END_TEST

START_TEST(P9_who_leaves_behind_pages_joins_and_leaves_or_they_would_be_anothers) {
        part(&(struct departure){ .when = WHEN_TOLD, .is_late = true });
        part(&(struct departure){ .when = WHEN_TOLD, .is_late = true, .is_freed = true });
}
END_TEST

START_TEST(P9_who_leaves_behind_a_join_that_is_refused_has_nothing_to_leave) {
        part(&(struct departure){ .when = WHEN_JOINED, .is_late = true, .is_refused = true });
        part(&(struct departure){ .when = WHEN_JOINED, .is_freed = true, .is_refused = true });
}
END_TEST

/* The tuttid that was to make it a member ends before it has. */
static void end_before_the_answer(struct server *s) {
        struct departure *p = s->arg;
        struct request r;
        server_greet_and_join(s);
        take_submissions(s);
        take_join(s, p);
        await(&p->has_left);
        server_hang_up(s);
        server_accept(s);
        server_welcome(s);
        atomic_store(&p->is_over, true);
        server_take(s, REQUEST_GOODBYE);
        ck_assert(!server_take_any(s, &r));
}

static void part_twice(struct departure *p) {
        static struct tutti_work *works[N_LONG_WORKS];
        struct server *s = server_start(end_before_the_answer, p);
        struct tutti *t = open_with(s, RECONNECT);
        struct tutti_group *g = client_join(t, 0, 2);
        pthread_t other;
        void *both[] = { t, p };
        start_works(g, works);
        ck_assert_int_eq(pthread_create(&other, NULL, dispatch_until_over, both), 0);
        leave(g, p);
        pthread_join(other, NULL);
        for (int i = 0; i < N_LONG_WORKS; i++)
                tutti_work_free(works[i]);
        tutti_close(t);
        server_end(s);
}

START_TEST(P9_who_has_left_does_not_come_back_to_the_next_but_one) {
        part_twice(&(struct departure){ .when = WHEN_JOINED });
        part_twice(&(struct departure){ .when = WHEN_JOINED, .is_freed = true });
}
END_TEST

UNIT_MAIN("lib-handover", 20, who_goes_on_says_so_and_nobody_else,
        P9_it_says_hello_on_the_same_socket_and_brings_everything_back,
        P9_where_the_socket_ends_it_connects_anew, P9_a_server_that_has_not_welcomed_it_hands_nothing_over,
        P9_who_was_not_opened_so_is_lost, P9_P21_a_full_socket_that_nobody_reads_is_given_up_for_a_new_one,
        P9_who_leaves_behind_its_join_leaves_when_that_is_answered,
        P9_who_frees_its_group_behind_its_join_leaves_all_the_same,
        P9_who_leaves_behind_pages_joins_and_leaves_or_they_would_be_anothers,
        P9_who_leaves_behind_a_join_that_is_refused_has_nothing_to_leave,
        P9_who_has_left_does_not_come_back_to_the_next_but_one)
