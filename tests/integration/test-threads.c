/* One process with many threads, several groups, and all memberships of each, over one connection and over
 * several: every verb, all at once (P2). Made to be run under the thread sanitizer, too. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include "meeting.h"

#define GROUPS  3
#define MEMBERS 4 /* of each group, all of this process */
#define THREADS 8
#define ROUNDS  12

enum verb { ALL_REDUCE, REDUCE, BROADCAST, BATCH, BARRIER, N_VERBS };

struct crowd {
        struct tutti *connections[MEMBERS];
        struct tutti_group *groups[GROUPS][MEMBERS];
};

struct worker {
        struct crowd *crowd;
        uint32_t number;
        const char *why; /* set when it went wrong: assertions belong to the main thread */
        enum tutti_status status;
        uint64_t epoch;
        pthread_t thread;
};

static void note(struct worker *w, const char *why, enum tutti_status status) {
        if (w->why || status == TUTTI_OK)
                return;
        w->why = why;
        w->status = status;
}

/* The first n threads do this, and none may have found anything wrong. */
static void run_threads(struct crowd *crowd, uint32_t n, void *(*body)(void *arg)) {
        struct worker workers[THREADS];
        for (uint32_t i = 0; i < n; i++) {
                workers[i] = (struct worker){ .crowd = crowd, .number = i };
                ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, body, &workers[i]), 0);
        }
        for (uint32_t i = 0; i < n; i++) {
                pthread_join(workers[i].thread, NULL);
                ck_assert_msg(!workers[i].why, "thread %u: %s: %s", i, workers[i].why,
                        tutti_status_name(workers[i].status));
        }
}

/* A join waits for the others, so each rank has a thread. */
static void *join_all(void *arg) {
        struct worker *w = arg;
        struct crowd *c = w->crowd;
        for (int g = 0; g < GROUPS; g++) {
                char name[8];
                snprintf(name, sizeof(name), "g%d", g);
                note(w, "join",
                        tutti_join(c->connections[w->number],
                                &TUTTI_JOIN(.group = name, .job = "test", .rank = (int32_t)w->number,
                                        .world_size = MEMBERS, .default_timeout = 60),
                                &c->groups[g][w->number]));
        }
        return NULL;
}

/* --- one collective, all four halves by one thread --- */

struct round {
        enum verb verb;
        char key[24];
        struct floats floats[MEMBERS], more[MEMBERS];
        struct tutti_work *works[MEMBERS];
};

static enum tutti_status start_half(struct round *r, struct tutti_group *g, uint32_t rank) {
        struct tutti_value *v = &r->floats[rank].value, *other = &r->more[rank].value;
        struct tutti_destinations to = { .where = TUTTI_TO_RANK, .rank = 2 };
        struct tutti_entry entries[2] = { TUTTI_ENTRY(.input = v, .output = v),
                TUTTI_ENTRY(.input = other, .output = other) };
        switch (r->verb) {
        case ALL_REDUCE: return tutti_all_reduce_start(g, r->key, TUTTI_SUM, v, v, NULL, &r->works[rank]);
        case REDUCE: return tutti_reduce_start(g, r->key, TUTTI_MAX, v, v, &to, NULL, &r->works[rank]);
        case BROADCAST: return tutti_broadcast_start(g, r->key, 1, v, NULL, &r->works[rank]);
        case BATCH: return tutti_batch_reduce_start(g, r->key, TUTTI_SUM, entries, 2, NULL, &r->works[rank]);
        case BARRIER:
        case N_VERBS: break;
        }
        return tutti_barrier_start(g, r->key, NULL, &r->works[rank]);
}

/* Ranks bring 1, 2, 3, 4. */
static float result_of(enum verb verb, uint32_t rank) {
        const float mine = (float)rank + 1;
        switch (verb) {
        case ALL_REDUCE:
        case BATCH: return 10;
        case REDUCE: return rank == 2 ? 4 : mine;
        case BROADCAST: return 2;
        case BARRIER:
        case N_VERBS: break;
        }
        return mine;
}

static void play(struct worker *w, struct round *r, struct tutti_group **members) {
        for (uint32_t rank = 0; rank < MEMBERS; rank++) {
                floats_fill(&r->floats[rank], (float)rank + 1);
                floats_fill(&r->more[rank], (float)rank + 1);
                r->works[rank] = NULL;
        }
        for (uint32_t i = 0; i < MEMBERS; i++) {
                uint32_t rank = (i + w->number) % MEMBERS;
                note(w, "start", start_half(r, members[rank], rank));
        }
        for (uint32_t rank = 0; rank < MEMBERS; rank++) {
                if (!r->works[rank])
                        continue;
                note(w, "its end", tutti_work_wait(r->works[rank], -1));
                tutti_work_free(r->works[rank]);
                if (r->floats[rank].data[3] != result_of(r->verb, rank) ||
                        (r->verb == BATCH && r->more[rank].data[3] != 10))
                        note(w, "a wrong number", TUTTI_INTERNAL);
        }
}

static void *do_everything(void *arg) {
        struct worker *w = arg;
        struct round r;
        for (uint32_t rank = 0; rank < MEMBERS; rank++) {
                floats_init(w->crowd->connections[rank], &r.floats[rank], 4);
                floats_init(w->crowd->connections[rank], &r.more[rank], 4);
        }
        for (uint32_t i = 0; i < ROUNDS * N_VERBS && !w->why; i++) {
                r.verb = (enum verb)((i + w->number) % N_VERBS);
                snprintf(r.key, sizeof(r.key), "%u/%u", w->number, i % 7);
                play(w, &r, w->crowd->groups[i % GROUPS]);
        }
        for (uint32_t rank = 0; rank < MEMBERS; rank++) {
                floats_deinit(&r.floats[rank]);
                floats_deinit(&r.more[rank]);
        }
        return NULL;
}

/* --- a new epoch while other groups of the same process work --- */

/* Numbers belong to a membership: here each has a thread of its own. */
static void meet_by_number(struct worker *w, struct tutti_group *g) {
        struct floats f;
        floats_init(w->crowd->connections[w->number], &f, 4);
        for (int i = 0; i < 20 && !w->why; i++) {
                floats_fill(&f, 1);
                note(w, "by number", floats_sum(g, NULL, &f));
                if (f.data[0] != MEMBERS)
                        note(w, "a wrong sum", TUTTI_INTERNAL);
        }
        floats_deinit(&f);
}

static void *begin_epochs(void *arg) {
        struct worker *w = arg;
        struct round r = { .verb = ALL_REDUCE };
        if (w->number >= MEMBERS) { /* these work in another group meanwhile */
                struct worker other = { .crowd = w->crowd, .number = w->number };
                for (uint32_t rank = 0; rank < MEMBERS; rank++) {
                        floats_init(w->crowd->connections[rank], &r.floats[rank], 4);
                        floats_init(w->crowd->connections[rank], &r.more[rank], 4);
                }
                for (uint32_t i = 0; i < ROUNDS && !other.why; i++) {
                        snprintf(r.key, sizeof(r.key), "beside %u/%u", w->number, i);
                        play(&other, &r, w->crowd->groups[1]);
                }
                w->why = other.why;
                w->status = other.status;
                return NULL;
        }
        struct tutti_group *g = w->crowd->groups[0][w->number];
        for (uint64_t epoch = 2; epoch < 6 && !w->why; epoch++) {
                note(w, "rejoin", epoch % 2 ? tutti_shrink(g, 20) : tutti_rejoin(g, 20));
                if (tutti_epoch(g) != epoch)
                        note(w, "the epoch", TUTTI_INTERNAL);
                meet_by_number(w, g);
        }
        return NULL;
}

/* --- the crowd --- */

static void be_a_crowd(struct replica *me, uint32_t n_connections) {
        struct crowd c = { .groups = { { NULL } } };
        struct tutti *own[MEMBERS];
        own[0] = replica_open(me);
        for (uint32_t i = 1; i < n_connections; i++)
                expect_status(tutti_open(me->socket, &own[i]), TUTTI_OK);
        for (uint32_t i = 0; i < MEMBERS; i++)
                c.connections[i] = own[i % n_connections];
        run_threads(&c, MEMBERS, join_all);
        run_threads(&c, THREADS, do_everything);
        run_threads(&c, THREADS, begin_epochs);
        for (uint32_t i = 1; i < n_connections; i++)
                tutti_close(own[i]);
}

static void be_a_crowd_over_one(struct replica *me) {
        be_a_crowd(me, 1);
}

static void be_a_crowd_over_two(struct replica *me) {
        be_a_crowd(me, 2);
}

static void be_a_crowd_over_four(struct replica *me) {
        be_a_crowd(me, 4);
}

START_TEST(P2_eight_threads_share_one_connection_three_groups_and_all_their_members) {
        replicas_run(1, be_a_crowd_over_one);
}
END_TEST

START_TEST(P2_and_two_connections) {
        replicas_run(1, be_a_crowd_over_two);
}
END_TEST

START_TEST(P2_and_four_connections) {
        replicas_run(1, be_a_crowd_over_four);
}
END_TEST

/* --- an event loop, and a thread that takes in what it waits for --- */

static void *meet_meanwhile(void *arg) {
        struct worker *w = arg;
        note(w, "barrier", tutti_barrier(w->crowd->groups[0][0], "meanwhile"));
        return NULL;
}

static int poll_for(const struct replica *me, double seconds) {
        struct pollfd fds = { .fd = tutti_fd(me->t), .events = POLLIN };
        return poll(&fds, 1, (int)(1000 * seconds));
}

/* The other thread waits for what comes later, so that it takes in the end of the loop's work first. */
static void wait_in_a_loop(struct replica *me) {
        struct crowd c = { .groups = { { join_train(me, TUTTI_FAIL) } } };
        for (int round = 0; round < 20; round++) {
                struct tutti_work *w;
                struct tutti_result result;
                expect_status(tutti_barrier_start(c.groups[0][0], "of the loop", NULL, &w), TUTTI_OK);
                if (round > 0) /* the first time it is asked for when all is over */
                        ck_assert_int_ge(tutti_fd(me->t), 0);
                run_threads(&c, 1, meet_meanwhile);
                ck_assert_int_eq(poll_for(me, 10 * unit_scale()), 1);
                expect_status(tutti_dispatch(me->t), TUTTI_OK);
                expect_status(tutti_work_result(w, &result), TUTTI_OK);
                for (int i = 0; i < 100 && poll_for(me, 0) == 1; i++) /* answers that nobody waits for */
                        expect_status(tutti_dispatch(me->t), TUTTI_OK);
                ck_assert_int_eq(poll_for(me, 0), 0);
                tutti_work_free(w);
        }
}

START_TEST(the_descriptor_tells_of_works_whose_end_another_thread_has_taken_in) {
        replicas_run(2, wait_in_a_loop);
}
END_TEST

UNIT_MAIN("threads", 60, P2_eight_threads_share_one_connection_three_groups_and_all_their_members,
        P2_and_two_connections, P2_and_four_connections,
        the_descriptor_tells_of_works_whose_end_another_thread_has_taken_in)
