/* The lane before clients that are threads: they start as fast as they can, and wait by the page alone. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "lane-stage.h"
#include "unit.h"

#define EPOCH     5
#define MAX_STEPS 20000
#define PATIENCE  300 /* yields, before a client asks for a packet */

struct crowd;

/* One client. */
struct player {
        struct crowd *crowd;
        uint32_t index;
        struct stage_client client;
        pthread_t thread;
        _Atomic uint64_t wanted;   /* the request that it asks to be told by a packet; 0: none */
        _Atomic uint64_t answered; /* the last request that was answered by a packet */
        uint64_t n_done, n_told;   /* read when the thread has ended */
        /* Of the loop thread: by request, how often it was run on the lane, and handed over. */
        uint8_t n_run[MAX_STEPS + 1], n_handed[MAX_STEPS + 1];
};

struct crowd {
        struct lane_stage stage;
        struct lane_road road;
        struct stage_set sets[2];
        struct player players[STAGE_MAX_PLACES];
        uint32_t n_players;
        uint64_t n_steps;
        _Atomic uint32_t n_ended;
        /* What a loop thread has for the lane. */
        bool is_open;
        const struct lane_set *running;
        uint64_t next_number; /* of the next run that is taken */
        uint64_t n_runs, n_closed, n_met;
        uint64_t halves[STAGE_MAX_PLACES]; /* requests that were handed over and are not answered */
};

/* With assistants, if any, who help with both sets. */
static struct crowd *set_up_assisted(uint32_t n_players, uint64_t n_steps, uint32_t n_assistants) {
        struct crowd *c = calloc(1, sizeof(*c));
        ck_assert_ptr_nonnull(c);
        lane_stage_init_assisted(&c->stage, n_assistants);
        c->n_players = n_players;
        c->n_steps = n_steps;
        c->road.epoch = EPOCH;
        lane_road_init(&c->road);
        stage_set_init(&c->sets[0], &(struct stage_set_shape){ 1, 1, 20 });
        stage_set_init(&c->sets[1], &(struct stage_set_shape){ 2, 2, 40 });
        for (uint32_t i = 0; i < n_players; i++) {
                struct player *p = &c->players[i];
                p->crowd = c;
                p->index = i;
                stage_client_init(&c->stage, &p->client, i);
                lane_road_add(c->stage.lanes, &c->road,
                        &(struct lane_place){
                                .lane = p->client.lane, .session = i, .membership = 100 + i, .rank = i });
        }
        for (uint32_t i = 0; i < 2; i++)
                list_append(&c->road.sets, &c->sets[i].set.link);
        for (uint32_t i = 0; n_assistants && i < 2; i++) {
                struct plan *p = &c->sets[i].plan;
                p->moved_bytes = UINT64_C(64) << 20;
                p->n_chunks = p->parts[0].n_chunks = 7 + i;
        }
        return c;
}

static struct crowd *set_up(uint32_t n_players, uint64_t n_steps) {
        return set_up_assisted(n_players, n_steps, 0);
}

static void tear_down(struct crowd *c) {
        lane_road_deinit(c->stage.lanes, &c->road);
        for (uint32_t i = 0; i < c->n_players; i++)
                ck_assert(stage_client_end(&c->stage, &c->players[i].client));
        lane_stage_stop(&c->stage);
        stage_set_deinit(&c->sets[0]);
        stage_set_deinit(&c->sets[1]);
        lane_stage_deinit(&c->stage);
        free(c);
}

/* Step i is the first set or the second, by number or by name. */
static void start_step(struct player *p, uint64_t step) {
        char name[32];
        snprintf(name, sizeof(name), "layer/%llu", (unsigned long long)step);
        (void)stage_start(&p->client, &(struct stage_start){ .request = step,
                                              .prepared = (step % 2 ? 20 : 40) + p->index,
                                              .membership = 100 + p->index,
                                              .epoch = EPOCH,
                                              .name = step % 3 ? NULL : name,
                                              .number = step });
}

/* As in libtutti: done, or passed on, or asked for when patience is at an end; then a packet comes. */
static void wait_for(struct player *p, uint64_t request) {
        enum stage_end end = STAGE_STARTED;
        for (uint32_t i = 0; i < PATIENCE && end == STAGE_STARTED; i++) {
                end = stage_look(&p->client, request);
                if (end == STAGE_STARTED)
                        sched_yield();
        }
        if (end == STAGE_DONE) {
                p->n_done++;
                return;
        }
        if (end == STAGE_STARTED)
                atomic_store(&p->wanted, request);
        while (atomic_load(&p->answered) != request)
                sched_yield();
        p->n_told++;
}

static void *play(void *data) {
        struct player *p = data;
        for (uint64_t step = 1; step <= p->crowd->n_steps; step++) {
                start_step(p, step);
                wait_for(p, step);
        }
        atomic_fetch_add(&p->crowd->n_ended, 1);
        return NULL;
}

static void begin(struct crowd *c) {
        for (uint32_t i = 0; i < c->n_players; i++)
                ck_assert_int_eq(pthread_create(&c->players[i].thread, NULL, play, &c->players[i]), 0);
}

static void join(struct crowd *c) {
        for (uint32_t i = 0; i < c->n_players; i++)
                pthread_join(c->players[i].thread, NULL);
}

/* --- the loop thread --- */

static void note_run(struct crowd *c, const struct lane_run *run) {
        uint64_t step = run->requests[0];
        ck_assert_ptr_eq(run->road, &c->road);
        ck_assert_int_eq(run->status, STATUS_OK);
        ck_assert_uint_eq(run->number, c->next_number++);
        ck_assert_ptr_eq(run->set, &c->sets[step % 2 ? 0 : 1].set);
        ck_assert_uint_eq(run->key.n_bytes == 0, step % 3 != 0);
        if (run->key.n_bytes == 0)
                ck_assert_uint_eq(run->key.sequence, step);
        for (uint32_t i = 0; i < c->n_players; i++) {
                ck_assert_uint_eq(run->requests[i], step);
                ck_assert_uint_le(run->arrived_ns[i], run->sealed_ns);
                c->players[i].n_run[step]++;
        }
        c->n_runs++;
        if (c->running && run->number + 1 == c->road.next_number)
                c->running = NULL;
}

static void take_runs(struct crowd *c) {
        struct lane_run run;
        while (lanes_take_run(c->stage.lanes, &run))
                note_run(c, &run);
}

static void hand_over(struct crowd *c, const struct lane_start *s) {
        ck_assert_uint_lt(s->session, c->n_players);
        struct player *p = &c->players[s->session];
        ck_assert_uint_eq(c->halves[p->index], 0);
        ck_assert_uint_eq(s->prepared, (s->request % 2 ? 20 : 40) + p->index);
        ck_assert_uint_eq(s->membership, 100 + p->index);
        ck_assert(s->has_key);
        p->n_handed[s->request]++;
        c->halves[p->index] = s->request;
}

static void close_road(struct crowd *c) {
        struct lane_start starts[LANE_MAX_RANKS];
        uint32_t n;
        if (!c->is_open)
                return;
        c->running = lane_road_close(c->stage.lanes, &c->road, starts, &n);
        c->is_open = false;
        c->n_closed++;
        take_runs(c);
        for (uint32_t i = 0; i < n; i++)
                hand_over(c, &starts[i]);
}

/* What arrived by packets meets like everything else: when all halves of a step are there, it has run. */
static bool meet(struct crowd *c) {
        for (uint32_t i = 0; i < c->n_players; i++) {
                if (c->halves[i] == 0)
                        return false;
                ck_assert_uint_eq(c->halves[i], c->halves[0]);
        }
        c->n_met++;
        c->next_number = ++c->road.next_number;
        for (uint32_t i = 0; i < c->n_players; i++) {
                atomic_store(&c->players[i].answered, c->halves[i]);
                c->halves[i] = 0;
        }
        return true;
}

static bool has_half(const struct crowd *c) {
        for (uint32_t i = 0; i < c->n_players; i++)
                if (c->halves[i])
                        return true;
        return false;
}

/* A client that asks for a packet is answered when its step has run, or its half is taken over. */
static void hear_wish(struct crowd *c, struct player *p) {
        struct lane_start start;
        uint64_t wanted = atomic_load(&p->wanted);
        if (wanted == 0)
                return;
        close_road(c);
        if (c->halves[p->index] == 0 && lane_take_start(c->stage.lanes, p->client.lane, &start))
                hand_over(c, &start);
        if (!p->n_run[wanted] && !p->n_handed[wanted])
                return; /* it runs right now */
        if (p->n_run[wanted])
                atomic_store(&p->answered, wanted);
        atomic_compare_exchange_strong(&p->wanted, &wanted, 0); /* not a later one */
}

/* One turn, in which the road is closed if `closes`; and opened again if nothing speaks against it. */
static void turn(struct crowd *c, bool closes) {
        struct lane_road *refused;
        take_runs(c);
        while ((refused = lanes_take_refused(c->stage.lanes)))
                close_road(c);
        if (closes)
                close_road(c);
        for (uint32_t i = 0; i < c->n_players; i++)
                hear_wish(c, &c->players[i]);
        if (!c->running)
                (void)meet(c);
        if (c->is_open || c->running || has_half(c))
                return;
        lane_road_open(c->stage.lanes, &c->road);
        c->is_open = true;
}

/* Each half of each step was run or handed over once, and all halves of a step the same way. */
static void expect_all_once(const struct crowd *c) {
        for (uint64_t step = 1; step <= c->n_steps; step++)
                for (uint32_t i = 0; i < c->n_players; i++) {
                        const struct player *p = &c->players[i];
                        ck_assert_msg(p->n_run[step] + p->n_handed[step] == 1,
                                "half %u of step %llu was run %u times and handed over %u times", i,
                                (unsigned long long)step, p->n_run[step], p->n_handed[step]);
                        ck_assert_uint_eq(p->n_run[step], c->players[0].n_run[step]);
                }
        ck_assert_uint_eq(c->n_runs + c->n_met, c->n_steps);
}

/* Plays to the end, closing every `every` turns; 0: never. */
static void play_all(struct crowd *c, uint64_t every) {
        begin(c);
        for (uint64_t i = 1; atomic_load(&c->n_ended) < c->n_players; i++) {
                turn(c, every && i % every == 0);
                sched_yield();
        }
        join(c);
        while (c->running)
                take_runs(c);
        close_road(c);
        take_runs(c);
        expect_all_once(c);
        uint64_t n_chunks = 0;
        for (uint64_t step = 1; step <= c->n_steps; step++)
                n_chunks += c->players[0].n_run[step] * c->sets[step % 2 ? 0 : 1].plan.n_chunks;
        ck_assert_uint_eq(fake_counts(c->stage.fake).n_chunks, n_chunks);
        for (uint32_t i = 0; i < c->n_players; i++)
                ck_assert_uint_eq(c->players[i].n_done + c->players[i].n_told, c->n_steps);
}

static void play_back_to_back(uint32_t n_players, uint64_t n_steps) {
        struct crowd *c = set_up(n_players, n_steps);
        play_all(c, 0);
        ck_assert_uint_ge(
                c->n_runs, n_steps / 2); /* the rest had to be asked for, on a machine that is busy */
        tear_down(c);
}

START_TEST(two_clients_start_back_to_back) {
        play_back_to_back(2, 10000);
}
END_TEST

START_TEST(four_clients_start_back_to_back) {
        play_back_to_back(4, 5000);
}
END_TEST

/* Every chunk of every run once, by whichever thread. */
START_TEST(what_is_shared_back_to_back_is_run_once) {
        for (uint32_t n = 1; n <= LANE_MAX_ASSISTANTS; n++) {
                struct crowd *c = set_up_assisted(2, 5000, n);
                play_all(c, n == 3 ? 50 : 0);
                tear_down(c);
        }
}
END_TEST

START_TEST(what_is_started_while_roads_close_and_open_is_run_or_handed_over_once) {
        static const uint64_t everies[] = { 1, 2, 7, 50 };
        uint64_t n_runs = 0, n_met = 0, n_closed = 0;
        for (uint32_t i = 0; i < 4; i++) {
                struct crowd *c = set_up(2 + i % 3, 3000);
                play_all(c, everies[i]);
                n_closed += c->n_closed; /* how often in one game is the scheduler's to say */
                n_runs += c->n_runs;
                n_met += c->n_met;
                tear_down(c);
        }
        ck_assert_uint_ge(n_closed, 10);
        ck_assert_uint_ge(n_runs, 10);
        ck_assert_uint_ge(n_met, 10);
}
END_TEST

/* Runs that take a while, so that many a road is closed while one is under way. */
START_TEST(what_is_under_way_when_its_road_is_closed_is_run_once) {
        struct crowd *c = set_up(2, 2000);
        uint64_t n_running = 0;
        begin(c);
        for (uint64_t i = 0; atomic_load(&c->n_ended) < c->n_players; i++) {
                fake_hold(c->stage.fake, true);
                for (uint32_t k = 0; k < 20; k++)
                        sched_yield();
                turn(c, i % 2 == 0);
                n_running += c->running != NULL;
                fake_hold(c->stage.fake, false);
                turn(c, false);
                sched_yield();
        }
        join(c);
        while (c->running)
                take_runs(c);
        close_road(c);
        expect_all_once(c);
        ck_assert_uint_ge(n_running, 10);
        tear_down(c);
}
END_TEST

UNIT_MAIN("lane-threads", 30, two_clients_start_back_to_back, four_clients_start_back_to_back,
        what_is_shared_back_to_back_is_run_once,
        what_is_started_while_roads_close_and_open_is_run_or_handed_over_once,
        what_is_under_way_when_its_road_is_closed_is_run_once)
