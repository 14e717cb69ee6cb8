/* The lane: roads that close while something runs, lanes that go before their runs, roads that share a lane,
 * and what cannot be made. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/clock.h"
#include "failing.h"
#include "lane-pair.h"

#define MANY_RUNS 128 /* that wait to be taken, and no more */

/* Both halves of the first set, under way. */
static void begin_held(struct pair *f, uint64_t request, uint64_t number) {
        fake_hold(f->stage.fake, true);
        pair_start_both(f, request, number);
        fake_wait_held(f->stage.fake, 1);
}

static const struct lane_set *close_road(struct pair *f, struct lane_road *road, uint32_t n_handed) {
        struct lane_start starts[LANE_MAX_RANKS];
        uint32_t n;
        const struct lane_set *running = lane_road_close(f->stage.lanes, road, starts, &n);
        ck_assert_uint_eq(n, n_handed);
        return running;
}

START_TEST(a_run_under_way_goes_on_when_its_road_is_closed) {
        struct pair f;
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        begin_held(&f, 1, 1);
        ck_assert_ptr_eq(
                close_road(&f, &f.road, 0), &f.sets[0].set); /* it is sealed: nobody's to hand over */
        ck_assert_uint_eq(f.road.next_number, 8);
        ck_assert(!pair_has_run(&f));
        ck_assert_int_eq(stage_look(&f.clients[0], 1), STAGE_STARTED);
        fake_hold(f.stage.fake, false);
        while (f.stage.n_bells == 0) /* it rings: its end is awaited */
                uv_run(&f.stage.loop, UV_RUN_ONCE);
        struct lane_run run = pair_take_run(&f);
        ck_assert_uint_eq(run.number, 7);
        ck_assert_int_eq(run.status, STATUS_OK);
        pair_wait_done(&f, 0, 1);
        pair_wait_done(&f, 1, 1);
        ck_assert_uint_eq(atomic_load(&f.clients[0].board->passed), 0);
        lane_road_open(f.stage.lanes, &f.road);
        pair_start_both(&f, 2, 2);
        pair_wait_done(&f, 1, 2);
        ck_assert_uint_eq(pair_take_run(&f).number, 8);
        pair_close_empty(&f, &f.road);
        pair_tear_down(&f);
}
END_TEST

/* Of one set many runs may wait to be taken; that which still runs is the last, by its number alone. */
START_TEST(the_run_under_way_is_told_from_those_of_its_set_that_wait) {
        struct pair f;
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        for (uint64_t i = 1; i <= 3; i++) {
                pair_start_both(&f, i, i);
                pair_wait_done(&f, 0, i);
                pair_wait_done(&f, 1, i);
        }
        begin_held(&f, 4, 4);
        ck_assert_ptr_eq(close_road(&f, &f.road, 0), &f.sets[0].set);
        for (uint64_t i = 0; i < 3; i++) {
                struct lane_run run = pair_take_run(&f);
                ck_assert_ptr_eq(run.set, &f.sets[0].set);
                ck_assert_uint_lt(run.number + 1, f.road.next_number);
        }
        ck_assert(!pair_has_run(&f));
        fake_hold(f.stage.fake, false);
        ck_assert_uint_eq(pair_take_run(&f).number + 1, f.road.next_number);
        pair_tear_down(&f);
}
END_TEST

START_TEST(halves_that_wait_are_handed_over_when_the_road_is_closed) {
        struct pair f;
        struct lane_start starts[LANE_MAX_RANKS];
        uint32_t n;
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        pair_start(&f, 1, 9, 4);
        stage_settle(&f.stage, &f.clients[1]);
        ck_assert_ptr_null(lane_road_close(f.stage.lanes, &f.road, starts, &n));
        ck_assert_uint_eq(n, 1);
        ck_assert_uint_eq(starts[0].session, 11);
        ck_assert_uint_eq(starts[0].request, 9);
        ck_assert_uint_eq(starts[0].membership, pair_membership(1));
        ck_assert_uint_eq(starts[0].prepared, 21);
        ck_assert_uint_eq(starts[0].epoch, PAIR_EPOCH);
        ck_assert(starts[0].has_key);
        ck_assert_uint_eq(starts[0].key.sequence, 4);
        ck_assert_int_eq(stage_look(&f.clients[1], 9), STAGE_PASSED);
        ck_assert(!lane_take_start(f.stage.lanes, f.clients[1].lane, &starts[0]));
        pair_start(&f, 0, 10, 5); /* on a closed road it waits for a packet of its client */
        ck_assert(lane_take_start(f.stage.lanes, f.clients[0].lane, &starts[0]));
        ck_assert_uint_eq(starts[0].request, 10);
        ck_assert_int_eq(stage_look(&f.clients[0], 10), STAGE_PASSED);
        ck_assert(!lane_take_start(f.stage.lanes, f.clients[0].lane, &starts[0]));
        ck_assert_uint_eq(lanes_stats(f.stage.lanes).n_passed, 2);
        pair_tear_down(&f);
}
END_TEST

/* Its deadline does not begin anew. */
START_TEST(P6_what_is_handed_over_says_since_when_it_is_there) {
        struct pair f;
        struct lane_start starts[LANE_MAX_RANKS];
        uint32_t n;
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        uint64_t before_ns = clock_now_ns();
        pair_start(&f, 1, 9, 4);
        stage_settle(&f.stage, &f.clients[1]);
        uint64_t after_ns = clock_now_ns();
        usleep(2000);
        ck_assert_ptr_null(lane_road_close(f.stage.lanes, &f.road, starts, &n));
        ck_assert_uint_eq(n, 1);
        ck_assert_uint_ge(starts[0].seen_ns, before_ns);
        ck_assert_uint_le(starts[0].seen_ns, after_ns);
        before_ns = clock_now_ns();
        pair_start(&f, 0, 10, 5); /* nobody looks before it is taken */
        ck_assert(lane_take_start(f.stage.lanes, f.clients[0].lane, &starts[0]));
        ck_assert_uint_ge(starts[0].seen_ns, before_ns);
        pair_tear_down(&f);
}
END_TEST

START_TEST(what_is_started_for_no_place_on_the_road_waits_for_a_packet) {
        struct pair f;
        struct lane_start taken;
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        struct stage_start a = pair_half(0, 1, 1);
        a.membership = pair_membership(1); /* somebody else's */
        (void)stage_start(&f.clients[0], &a);
        pair_start(&f, 1, 1, 1);
        stage_settle(&f.stage, &f.clients[0]);
        ck_assert_ptr_null(lanes_take_refused(f.stage.lanes));
        ck_assert_uint_eq(fake_counts(f.stage.fake).n_chunks, 0);
        (void)close_road(&f, &f.road, 1);
        ck_assert(lane_take_start(f.stage.lanes, f.clients[0].lane, &taken));
        ck_assert_uint_eq(taken.membership, pair_membership(1));
        ck_assert_uint_eq(taken.session, 10);
        pair_tear_down(&f);
}
END_TEST

static bool is_mapped(const void *page) {
        unsigned char is_there;
        return mincore((void *)(uintptr_t)page, 1, &is_there) == 0;
}

START_TEST(a_lane_that_goes_before_its_run_is_taken_goes_with_it) {
        struct pair f;
        struct page_slot *pages[2];
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        pair_start_both(&f, 1, 1);
        pair_wait_done(&f, 0, 1);
        pair_wait_done(&f, 1, 1);
        begin_held(&f, 2, 2);
        ck_assert_ptr_eq(close_road(&f, &f.road, 0), &f.sets[0].set);
        lane_road_deinit(f.stage.lanes, &f.road);
        for (uint32_t i = 0; i < 2; i++) {
                pages[i] = f.clients[i].page;
                ck_assert_ptr_null(lane_next_place(f.clients[i].lane, NULL));
                ck_assert(!stage_client_end(&f.stage, &f.clients[i]));
        }
        ck_assert_uint_eq(pair_take_run(&f).number, 7);
        ck_assert_uint_eq(f.stage.lanes->n_lanes, 2); /* the other run still writes to them */
        fake_hold(f.stage.fake, false);
        while (f.stage.n_bells == 0)
                uv_run(&f.stage.loop, UV_RUN_ONCE);
        ck_assert(is_mapped(pages[1]));
        ck_assert_uint_eq(pages[1][2].state, PAGE_DONE);
        ck_assert_uint_eq(pair_take_run(&f).number, 8);
        ck_assert_uint_eq(f.stage.lanes->n_lanes, 0);
        ck_assert(!is_mapped(pages[0]));
        ck_assert(!is_mapped(pages[1]));
        pair_stop(&f);
}
END_TEST

START_TEST(one_member_may_go_while_the_others_stay) {
        struct pair f;
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        begin_held(&f, 1, 1);
        (void)close_road(&f, &f.road, 0);
        lane_road_deinit(f.stage.lanes, &f.road);
        ck_assert(!stage_client_end(&f.stage, &f.clients[1]));
        fake_hold(f.stage.fake, false);
        pair_wait_done(&f, 0, 1);
        (void)pair_take_run(&f);
        ck_assert_uint_eq(f.stage.lanes->n_lanes, 1);
        /* A newcomer takes the place of the one that has gone, on a road of the next epoch. */
        stage_client_init(&f.stage, &f.clients[1], 12);
        struct lane_road road = { .epoch = PAIR_EPOCH, .next_number = 0 };
        lane_road_init(&road);
        for (uint32_t i = 0; i < 2; i++)
                pair_add(&f, &road, i, pair_membership(i));
        list_splice(&road.sets, &f.road.sets);
        lane_road_open(f.stage.lanes, &road);
        pair_start_both(&f, 2, 0);
        pair_wait_done(&f, 1, 2);
        ck_assert_ptr_eq(pair_take_run(&f).road, &road);
        pair_close_empty(&f, &road);
        lane_road_deinit(f.stage.lanes, &road);
        pair_tear_down(&f);
}
END_TEST

/* The last half comes at any moment between a ring and the sleep behind it: nobody may miss it. */
START_TEST(P22_what_is_started_while_the_thread_falls_asleep_is_seen) {
        enum { TRIES = 30000, A_ROUND = 500 };
        struct pair f;
        uint32_t n_rung = 0;
        /* Until it sleeps in a part of the tries. On a machine that is busy it is awake for long. */
        uint64_t longest_ns = 40000, enough_ns = clock_now_ns() + 3 * NS_PER_S;
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        for (uint64_t i = 1; i <= TRIES && clock_now_ns() < enough_ns; i++) {
                pair_start(&f, 0, i, i);
                for (uint64_t end_ns = clock_now_ns() + longest_ns * (i % 397) / 397;
                        clock_now_ns() < end_ns;)
                        ;
                const struct stage_start last = pair_half(1, i, i);
                n_rung += stage_start(&f.clients[1], &last);
                uint64_t limit_ns = clock_now_ns() + 5 * NS_PER_S;
                while (stage_look(&f.clients[1], i) != STAGE_DONE && clock_now_ns() < limit_ns)
                        sched_yield();
                ck_assert_int_eq(stage_look(&f.clients[1], i), STAGE_DONE);
                (void)pair_take_run(&f);
                if (i % A_ROUND)
                        continue;
                longest_ns = n_rung < A_ROUND / 10 ? 2 * longest_ns : longest_ns;
                longest_ns = n_rung > A_ROUND * 9 / 10 ? longest_ns / 2 : longest_ns;
                n_rung = 0;
        }
        pair_close_empty(&f, &f.road);
        pair_tear_down(&f);
}
END_TEST

/* --- two roads --- */

/* A second road of the same clients, with the second set. */
static void add_road(struct pair *f, struct lane_road *road) {
        *road = (struct lane_road){ .epoch = PAIR_EPOCH, .next_number = 50 };
        lane_road_init(road);
        for (uint32_t i = 0; i < 2; i++)
                pair_add(f, road, i, 200 + i);
        list_unlink(&f->sets[1].set.link);
        list_append(&road->sets, &f->sets[1].set.link);
}

static bool start_second(struct pair *f, uint32_t client, uint64_t request) {
        const struct stage_start s = { request, 40 + client, 200 + client, PAIR_EPOCH, "second", 0 };
        return stage_start(&f->clients[client], &s);
}

START_TEST(roads_that_share_their_lanes_run_their_own) {
        struct pair f;
        struct lane_road second;
        pair_set_up(&f);
        add_road(&f, &second);
        lane_road_open(f.stage.lanes, &f.road);
        lane_road_open(f.stage.lanes, &second);
        for (uint64_t i = 1; i <= 20; i += 2) {
                pair_start_both(&f, i, i);
                pair_wait_done(&f, 0, i);
                pair_wait_done(&f, 1, i);
                (void)start_second(&f, 0, i + 1);
                (void)start_second(&f, 1, i + 1);
                pair_wait_done(&f, 0, i + 1);
                pair_wait_done(&f, 1, i + 1);
        }
        for (uint64_t i = 0; i < 20; i++) {
                struct lane_run run = pair_take_run(&f);
                ck_assert_ptr_eq(run.road, i % 2 ? &second : &f.road);
                ck_assert_ptr_eq(run.set, &f.sets[i % 2].set);
                ck_assert_uint_eq(run.number, (i % 2 ? 50 : 7) + i / 2);
        }
        pair_close_empty(&f, &second);
        ck_assert_uint_eq(atomic_load(&f.clients[0].board->is_open), 1); /* by the other */
        (void)start_second(&f, 0, 21);
        pair_close_empty(&f, &f.road); /* it is not this road's to hand over */
        ck_assert_uint_eq(atomic_load(&f.clients[0].board->is_open), 0);
        struct lane_start taken;
        ck_assert(lane_take_start(f.stage.lanes, f.clients[0].lane, &taken));
        ck_assert_uint_eq(taken.request, 21);
        lane_road_deinit(f.stage.lanes, &second);
        pair_tear_down(&f);
}
END_TEST

/* A client that is told that somebody looks does not ring; so somebody must look at all of its roads. */
START_TEST(P22_a_road_is_seen_as_long_as_its_lanes_are_said_to_be_watched) {
        struct pair f;
        struct lane_road second;
        pair_set_up(&f);
        add_road(&f, &second);
        lane_road_open(f.stage.lanes, &f.road);
        lane_road_open(f.stage.lanes, &second);
        uint32_t n_quiet = 0; /* in which nobody had to ring for the second road */
        for (uint64_t try = 0, request = 1; try < 500 && n_quiet < 20; try++, request++) {
                for (uint32_t i = 0; i < 40; i++, request++) {
                        pair_start_both(&f, request, request);
                        pair_wait_done(&f, 0, request);
                        pair_wait_done(&f, 1, request);
                        (void)pair_take_run(&f);
                }
                bool has_rung = start_second(&f, 0, request);
                has_rung |= start_second(&f, 1, request);
                n_quiet += !has_rung;
                for (uint32_t ms = 0; ms < 2000 && stage_look(&f.clients[1], request) != STAGE_DONE; ms++)
                        usleep(1000);
                ck_assert_int_eq(stage_look(&f.clients[1], request), STAGE_DONE);
                pair_wait_done(&f, 0, request);
                (void)pair_take_run(&f);
        }
        ck_assert_uint_ge(n_quiet, 1);
        pair_close_empty(&f, &second);
        lane_road_deinit(f.stage.lanes, &second);
        pair_close_empty(&f, &f.road);
        pair_tear_down(&f);
}
END_TEST

/* --- what nobody takes --- */

START_TEST(runs_that_nobody_takes_hold_up_the_next_ones) {
        struct pair f;
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        for (uint64_t i = 1; i <= MANY_RUNS; i++) {
                pair_start_both(&f, i, i);
                pair_wait_done(&f, 0, i);
                pair_wait_done(&f, 1, i);
        }
        while (f.stage.n_bells == 0) /* and it has rung */
                uv_run(&f.stage.loop, UV_RUN_ONCE);
        pair_start_both(&f, MANY_RUNS + 1, MANY_RUNS + 1);
        usleep(20000);
        ck_assert_int_eq(stage_look(&f.clients[0], MANY_RUNS + 1), STAGE_STARTED);
        ck_assert_int_eq(stage_page(&f.clients[0], MANY_RUNS + 1), PAGE_FREE);
        for (uint64_t i = 1; i <= MANY_RUNS + 1; i++) {
                struct lane_run run = pair_take_run(&f);
                ck_assert_uint_eq(run.number, 6 + i);
                ck_assert_uint_eq(run.key.sequence, i);
                ck_assert_uint_eq(run.requests[1], i);
        }
        pair_wait_done(&f, 0, MANY_RUNS + 1);
        ck_assert(!pair_has_run(&f));
        /* What was held up can be handed over as well. */
        for (uint64_t i = 200; i < 200 + MANY_RUNS; i++) {
                pair_start_both(&f, i, i);
                pair_wait_done(&f, 0, i);
                pair_wait_done(&f, 1, i);
        }
        pair_start_both(&f, 1000, 1000);
        usleep(2000);
        ck_assert_ptr_null(close_road(&f, &f.road, 2));
        ck_assert_int_eq(stage_look(&f.clients[1], 1000), STAGE_PASSED);
        for (uint32_t i = 0; i < MANY_RUNS; i++)
                (void)pair_take_run(&f);
        ck_assert(!pair_has_run(&f));
        pair_tear_down(&f);
}
END_TEST

static void *release_later(void *fake) {
        usleep(20000);
        fake_hold(fake, false);
        return NULL;
}

START_TEST(stopping_waits_for_what_runs_and_begins_nothing) {
        struct pair f;
        struct lane_run run;
        pthread_t thread;
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        begin_held(&f, 1, 1);
        ck_assert_int_eq(pthread_create(&thread, NULL, release_later, f.stage.fake), 0);
        lane_stage_stop(&f.stage);
        pthread_join(thread, NULL);
        ck_assert(lanes_take_run(f.stage.lanes, &run));
        ck_assert_int_eq(run.status, STATUS_OK);
        ck_assert_int_eq(stage_look(&f.clients[1], 1), STAGE_DONE);
        pair_start_both(&f, 2, 2);
        (void)close_road(&f, &f.road, 2);
        ck_assert(!pair_has_run(&f));
        lane_road_deinit(f.stage.lanes, &f.road);
        for (uint32_t i = 0; i < 2; i++) {
                ck_assert(stage_client_end(&f.stage, &f.clients[i]));
                stage_set_deinit(&f.sets[i]);
        }
        lane_stage_deinit(&f.stage);
}
END_TEST

/* --- what cannot be made --- */

/* Without assertions of Check, which needs memory itself. */
static int make_lane(struct lane_stage *st, const struct lane_ask *ask) {
        struct lane *lane;
        int bell;
        int r = lane_new(st->lanes, ask, &lane, &bell);
        if (r < 0)
                return r;
        close(bell);
        lane_free(st->lanes, lane);
        return 0;
}

START_TEST(P18_a_lane_that_cannot_be_made_leaves_nothing) {
        struct lane_stage st;
        struct lane_ask ask = { .session = 1 };
        struct rlimit before, limit;
        int page, slot, r = -1;
        uint32_t n_failures = 0;
        lane_stage_init(&st);
        stage_make_pages(&st, &ask, &page, &slot);
        close(page);
        close(slot);
        int n_descriptors = unit_count_descriptors();
        for (uint32_t n = 1; r < 0; n++) {
                failing_call_at(FAILING_MEMORY | FAILING_MMAP | FAILING_MEMFD | FAILING_FCNTL, n);
                r = make_lane(&st, &ask);
                bool has_failed = failing_has_failed();
                failing_at(0);
                ck_assert_int_eq(r < 0, has_failed);
                ck_assert_uint_eq(st.lanes->n_lanes, 0);
                ck_assert(!st.lanes->lanes || !st.lanes->lanes[0]);
                ck_assert_int_eq(unit_count_descriptors(), n_descriptors);
                n_failures += r < 0;
        }
        ck_assert_uint_ge(n_failures, 3); /* lane, bell, table */
        ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
        limit = before;
        for (r = -1, n_failures = 0, limit.rlim_cur = 3; r < 0; limit.rlim_cur++) {
                ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
                r = make_lane(&st, &ask);
                ck_assert(r == 0 || r == -EMFILE);
                n_failures += r < 0;
        }
        ck_assert_uint_ge(n_failures, 2);
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
        ck_assert_int_eq(unit_count_descriptors(), n_descriptors);
        loan_unref(ask.page);
        loan_unref(ask.slot);
        lane_stage_stop(&st);
        lane_stage_deinit(&st);
}
END_TEST

static void no_ring(void *data) {
}

START_TEST(P18_a_room_that_cannot_be_made_leaves_nothing) {
        const struct doorbell bell = { .ring = no_ring };
        const struct lanes_options options = { .n_assistants = 2 };
        struct fake_backend *fake = fake_backend_new();
        struct lanes *lanes;
        struct rlimit before, limit;
        uv_loop_t loop;
        int r = -1;
        ck_assert_int_eq(uv_loop_init(&loop), 0);
        for (unsigned int n = 1; n <= 2; n++) {
                failing_at(n);
                r = lanes_new(&lanes, &loop, fake_backend_ops(fake), &bell, &options);
                failing_at(0);
                ck_assert_int_eq(r, -ENOMEM);
        }
        ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
        limit = before;
        for (limit.rlim_cur = 3; r < 0; limit.rlim_cur++) {
                ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
                r = lanes_new(&lanes, &loop, fake_backend_ops(fake), &bell, &options);
                ck_assert(r == 0 || r == -EMFILE);
        }
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
        lanes_stop(lanes);
        uv_run(&loop, UV_RUN_DEFAULT);
        lanes_free(lanes);
        ck_assert_int_eq(uv_loop_close(&loop), 0); /* no handle of those that failed is left in it */
        uv_library_shutdown();
        fake_backend_free(fake);
}
END_TEST

UNIT_MAIN("lane-ends", 20, a_run_under_way_goes_on_when_its_road_is_closed,
        the_run_under_way_is_told_from_those_of_its_set_that_wait,
        halves_that_wait_are_handed_over_when_the_road_is_closed,
        P6_what_is_handed_over_says_since_when_it_is_there,
        what_is_started_for_no_place_on_the_road_waits_for_a_packet,
        a_lane_that_goes_before_its_run_is_taken_goes_with_it, one_member_may_go_while_the_others_stay,
        P22_what_is_started_while_the_thread_falls_asleep_is_seen, roads_that_share_their_lanes_run_their_own,
        P22_a_road_is_seen_as_long_as_its_lanes_are_said_to_be_watched,
        runs_that_nobody_takes_hold_up_the_next_ones, stopping_waits_for_what_runs_and_begins_nothing,
        P18_a_lane_that_cannot_be_made_leaves_nothing, P18_a_room_that_cannot_be_made_leaves_nothing)
