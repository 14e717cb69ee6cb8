/* The lane, from the side of the loop thread: what is run, and what is not. */
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "lane-pair.h"

START_TEST(a_set_is_run_once_when_all_have_started_it_under_one_key) {
        struct pair f;
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        ck_assert_uint_eq(atomic_load(&f.clients[0].board->is_open), 1);
        struct stage_start a = pair_half(0, 5, 0), b = pair_half(1, 6, 0);
        a.name = b.name = "grad/17";
        (void)stage_start(&f.clients[1], &b);
        stage_settle(&f.stage, &f.clients[1]);
        ck_assert_uint_eq(fake_counts(f.stage.fake).n_chunks, 0);
        ck_assert_int_eq(stage_page(&f.clients[1], 6), PAGE_FREE);
        (void)stage_start(&f.clients[0], &a);
        pair_wait_done(&f, 0, 5);
        pair_wait_done(&f, 1, 6);
        struct lane_run run = pair_take_run(&f);
        ck_assert_ptr_eq(run.road, &f.road);
        ck_assert_ptr_eq(run.set, &f.sets[0].set);
        ck_assert_uint_eq(run.number, 7);
        ck_assert_uint_eq(run.key.n_bytes, 7);
        ck_assert_mem_eq(run.key.bytes, "grad/17", 7);
        ck_assert_int_eq(run.status, STATUS_OK);
        ck_assert_uint_eq(run.requests[0], 5);
        ck_assert_uint_eq(run.requests[1], 6);
        stage_settle(&f.stage, &f.clients[0]);
        ck_assert_uint_eq(fake_counts(f.stage.fake).n_chunks, 3);
        ck_assert(!pair_has_run(&f));
        ck_assert_ptr_null(lanes_take_refused(f.stage.lanes));
        ck_assert_uint_eq(lanes_stats(f.stage.lanes).n_runs, 1);
        pair_close_empty(&f, &f.road);
        ck_assert_uint_eq(atomic_load(&f.clients[0].board->is_open), 0);
        ck_assert_uint_eq(atomic_load(&f.clients[0].board->passed), 0);
        pair_tear_down(&f);
}
END_TEST

START_TEST(P9_pages_say_begun_before_the_run_and_done_behind_it) {
        struct pair f;
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        fake_hold(f.stage.fake, true);
        pair_start_both(&f, 4097, 1);
        fake_wait_held(f.stage.fake, 1);
        for (uint32_t i = 0; i < 2; i++) {
                ck_assert_int_eq(stage_page(&f.clients[i], 4097), PAGE_BEGUN);
                ck_assert_uint_eq(f.clients[i].page[1].collective, 7);
                ck_assert_uint_eq(atomic_load(&f.clients[i].board->done_ns), 0);
        }
        fake_release_one(f.stage.fake);
        fake_wait_held(f.stage.fake, 1);
        ck_assert_int_eq(stage_page(&f.clients[0], 4097), PAGE_BEGUN); /* one chunk is not all */
        fake_hold(f.stage.fake, false);
        pair_wait_done(&f, 0, 4097);
        pair_wait_done(&f, 1, 4097);
        ck_assert_uint_eq(f.clients[1].page[1].collective, 7);
        (void)pair_take_run(&f);
        pair_close_empty(&f, &f.road);
        pair_tear_down(&f);
}
END_TEST

START_TEST(boards_and_runs_tell_the_same_times) {
        struct pair f;
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        uint64_t before_ns = clock_now_ns();
        pair_start(&f, 1, 1, 1);
        stage_settle(&f.stage, &f.clients[1]);
        usleep(2000);
        uint64_t between_ns = clock_now_ns();
        pair_start(&f, 0, 1, 1);
        pair_wait_done(&f, 0, 1);
        uint64_t after_ns = clock_now_ns();
        pair_wait_done(&f, 1, 1);
        struct lane_run run = pair_take_run(&f);
        ck_assert_uint_ge(run.arrived_ns[1], before_ns);
        ck_assert_uint_lt(run.arrived_ns[1], between_ns);
        ck_assert_uint_ge(run.arrived_ns[0], between_ns);
        ck_assert_uint_eq(run.last_place, 0);
        ck_assert_uint_eq(run.sealed_ns, run.arrived_ns[0]);
        ck_assert_uint_ge(run.done_ns, run.sealed_ns);
        ck_assert_uint_le(run.done_ns, after_ns);
        for (uint32_t i = 0; i < 2; i++) {
                const struct lane_board *board = f.clients[i].board;
                ck_assert_uint_eq(board->wait_ns, run.sealed_ns - run.arrived_ns[i]);
                ck_assert_uint_eq(board->run_ns, run.done_ns - run.sealed_ns);
                ck_assert_uint_eq(board->done_ns, run.done_ns);
                ck_assert_uint_eq(board->last_rank, 3); /* that of place 0 */
        }
        pair_close_empty(&f, &f.road);
        pair_tear_down(&f);
}
END_TEST

START_TEST(numbers_go_on_from_where_the_road_stood) {
        struct pair f;
        pair_set_up(&f);
        for (uint32_t round = 0; round < 3; round++) {
                uint64_t first = f.road.next_number;
                lane_road_open(f.stage.lanes, &f.road);
                for (uint64_t i = 0; i < 10; i++) {
                        uint64_t request = round * 10 + i + 1;
                        pair_start_both(&f, request, request);
                        pair_wait_done(&f, 0, request);
                        pair_wait_done(&f, 1, request);
                        ck_assert_uint_eq(f.clients[0].page[request].collective, first + i);
                }
                for (uint64_t i = 0; i < 10; i++) {
                        struct lane_run run = pair_take_run(&f);
                        ck_assert_uint_eq(run.number, first + i);
                        ck_assert_uint_eq(run.key.n_bytes, 0);
                        ck_assert_uint_eq(run.key.sequence, round * 10 + i + 1);
                }
                pair_close_empty(&f, &f.road);
                ck_assert_uint_eq(f.road.next_number, first + 10);
                f.road.next_number += 1000; /* what rendezvous had meanwhile */
        }
        pair_tear_down(&f);
}
END_TEST

static uint64_t thread_cpu_ns(const struct pair *f) {
        struct timespec t;
        clockid_t clock;
        ck_assert_int_eq(pthread_getcpuclockid(f->stage.lanes->thread, &clock), 0);
        ck_assert_int_eq(clock_gettime(clock, &t), 0);
        return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

START_TEST(P22_the_thread_sleeps_when_nothing_happens_and_a_ring_wakes_it) {
        struct pair f;
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        for (uint64_t i = 1; i <= 3; i++) {
                uint64_t n_rings = lanes_stats(f.stage.lanes).n_rings;
                const struct stage_start a = pair_half(0, i, i);
                ck_assert(stage_start(&f.clients[0], &a)); /* nobody looks: it has rung */
                while (lanes_stats(f.stage.lanes).n_rings == n_rings)
                        sched_yield();
                while (atomic_load(&f.clients[0].board->is_watched) || lane_stage_is_watching(&f.stage))
                        sched_yield();
                uint64_t cpu_ns = thread_cpu_ns(&f); /* one half waits, for as long as it likes */
                usleep(100000);
                ck_assert_uint_le(thread_cpu_ns(&f) - cpu_ns, 2 * NS_PER_MS);
                const struct stage_start b = pair_half(1, i, i);
                ck_assert(stage_start(&f.clients[1], &b));
                pair_wait_done(&f, 0, i);
                (void)pair_take_run(&f);
                while (lane_stage_is_watching(&f.stage))
                        sched_yield();
        }
        pair_close_empty(&f, &f.road);
        pair_tear_down(&f);
}
END_TEST

/* What is wrong with the half of client 1. */
struct wrong {
        const char *what;
        struct stage_start start;
        uint64_t key_bytes; /* 0: as they are */
};

/* Both have started, and that is no set: it is refused once, handed over once, and not run. */
static void expect_refusal(struct pair *f, const struct wrong *w, uint64_t request) {
        struct lane_start starts[LANE_MAX_RANKS];
        uint32_t n;
        uint64_t n_passed = lanes_stats(f->stage.lanes).n_passed;
        lane_road_open(f->stage.lanes, &f->road);
        pair_start(f, 0, request, 1);
        stage_write(&f->clients[1], &w->start);
        if (w->key_bytes)
                atomic_store(&f->clients[1].slot->key_bytes, w->key_bytes);
        stage_bump(&f->clients[1]);
        stage_settle(&f->stage, &f->clients[1]);
        ck_assert_msg(lanes_take_refused(f->stage.lanes) == &f->road, "%s: it was not refused", w->what);
        ck_assert_ptr_null(lanes_take_refused(f->stage.lanes));
        stage_settle(&f->stage, &f->clients[1]); /* what is refused is not looked at again */
        ck_assert_ptr_null(lanes_take_refused(f->stage.lanes));
        ck_assert_int_eq(stage_look(&f->clients[0], request), STAGE_STARTED);
        ck_assert_ptr_null(lane_road_close(f->stage.lanes, &f->road, starts, &n));
        ck_assert_uint_eq(n, 2);
        ck_assert_uint_eq(starts[0].request, request);
        ck_assert_uint_eq(starts[1].session, 11);
        ck_assert_uint_eq(starts[1].request, w->start.request);
        ck_assert_uint_eq(starts[1].prepared, w->start.prepared);
        ck_assert_uint_eq(starts[1].epoch, w->start.epoch);
        ck_assert(starts[1].has_key == (w->key_bytes <= MAX_KEY_BYTES));
        if (starts[1].has_key)
                ck_assert_uint_eq(starts[1].key.sequence, w->start.number);
        for (uint32_t i = 0; i < 2; i++)
                ck_assert_uint_eq(atomic_load(&f->clients[i].board->passed), f->clients[i].n_starts);
        ck_assert_uint_eq(lanes_stats(f->stage.lanes).n_passed, n_passed + 2);
        lane_road_open(f->stage.lanes, &f->road);
        stage_settle(&f->stage, &f->clients[0]);
        pair_close_empty(f, &f->road);
        ck_assert_uint_eq(fake_counts(f->stage.fake).n_chunks, 0);
        ck_assert(!pair_has_run(f));
}

START_TEST(P17_what_is_no_set_is_refused_and_handed_over) {
        const struct wrong wrongs[] = {
                { .what = "another number", .start = pair_half(1, 2, 2) },
                { .what = "an unknown half", .start = { 2, 77, pair_membership(1), PAIR_EPOCH, NULL, 1 } },
                { .what = "another set's half", .start = { 2, 41, pair_membership(1), PAIR_EPOCH, NULL, 1 } },
                { .what = "the half of the other",
                        .start = { 2, 20, pair_membership(1), PAIR_EPOCH, NULL, 1 } },
                { .what = "an older epoch", .start = { 2, 21, pair_membership(1), PAIR_EPOCH - 1, NULL, 1 } },
                { .what = "a newer epoch", .start = { 2, 21, pair_membership(1), PAIR_EPOCH + 1, NULL, 1 } },
                { .what = "a key too long", .start = pair_half(1, 2, 1), .key_bytes = MAX_KEY_BYTES + 1 },
                { .what = "an endless key", .start = pair_half(1, 2, 1), .key_bytes = UINT64_MAX },
                { .what = "request 0", .start = pair_half(1, 0, 1) },
        };
        struct pair f;
        pair_set_up(&f);
        for (size_t i = 0; i < sizeof(wrongs) / sizeof(*wrongs); i++)
                expect_refusal(&f, &wrongs[i], 100 + i);
        ck_assert_uint_eq(f.road.next_number, 7);
        pair_tear_down(&f);
}
END_TEST

START_TEST(names_of_all_lengths_are_compared_to_their_last_byte) {
        struct pair f;
        char name[MAX_KEY_BYTES + 1] = "";
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        for (uint64_t n = 1; n <= MAX_KEY_BYTES; n++) {
                memset(name, 'a', n);
                struct stage_start a = pair_half(0, n, 0), b = pair_half(1, n, 0);
                a.name = b.name = name;
                (void)stage_start(&f.clients[0], &a);
                (void)stage_start(&f.clients[1], &b);
                pair_wait_done(&f, 1, n);
                struct lane_run run = pair_take_run(&f);
                ck_assert_uint_eq(run.key.n_bytes, n);
                ck_assert_mem_eq(run.key.bytes, name, n);
                while (stage_page(&f.clients[0], n) != PAGE_DONE)
                        sched_yield();
        }
        struct lane_start starts[LANE_MAX_RANKS];
        uint32_t n;
        struct stage_start a = pair_half(0, 200, 0), b = pair_half(1, 200, 0);
        a.name = name;
        (void)stage_start(&f.clients[0], &a);
        name[MAX_KEY_BYTES - 1] = 'b';
        b.name = name;
        (void)stage_start(&f.clients[1], &b);
        stage_settle(&f.stage, &f.clients[0]);
        ck_assert_ptr_eq(lanes_take_refused(f.stage.lanes), &f.road);
        ck_assert_ptr_null(lane_road_close(f.stage.lanes, &f.road, starts, &n));
        ck_assert_uint_eq(n, 2);
        ck_assert_int_eq(starts[1].key.bytes[MAX_KEY_BYTES - 1], 'b');
        pair_tear_down(&f);
}
END_TEST

START_TEST(a_start_counts_by_its_number_alone) {
        struct pair f;
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        pair_start_both(&f, 1, 1);
        pair_wait_done(&f, 0, 1);
        /* Other words under the same number: nothing was started. */
        const struct stage_start a = pair_half(0, 2, 2), b = pair_half(1, 2, 2);
        stage_write(&f.clients[0], &a);
        stage_write(&f.clients[1], &b);
        stage_settle(&f.stage, &f.clients[0]);
        ck_assert_uint_eq(lanes_stats(f.stage.lanes).n_runs, 1);
        /* Backwards is another number, like every other one. */
        static const uint64_t numbers[] = { 0, UINT64_MAX, 1 };
        for (uint64_t i = 0; i < 3; i++) {
                const struct stage_start c = pair_half(0, i + 2, i + 2), d = pair_half(1, i + 2, i + 2);
                stage_write(&f.clients[0], &c);
                stage_write(&f.clients[1], &d);
                atomic_store(&f.clients[0].slot->start, numbers[i]);
                atomic_store(&f.clients[1].slot->start, numbers[i]);
                stage_ring(&f.clients[0]);
                pair_wait_done(&f, 0, i + 2);
                pair_wait_done(&f, 1, i + 2);
        }
        for (uint64_t i = 0; i < 4; i++)
                ck_assert_uint_eq(pair_take_run(&f).requests[1], i + 1);
        pair_close_empty(&f, &f.road);
        pair_tear_down(&f);
}
END_TEST

START_TEST(P16_a_failing_run_leaves_pages_begun_and_tells_the_culprit) {
        const struct memory culprit = { .session = 11, .buffer = 9 };
        struct pair f;
        pair_set_up(&f);
        lane_road_open(f.stage.lanes, &f.road);
        fake_fail_chunk(f.stage.fake, 2, &culprit);
        pair_start_both(&f, 1, 1);
        while (f.stage.n_bells == 0) /* nobody has to ask */
                uv_run(&f.stage.loop, UV_RUN_ONCE);
        struct lane_run run = pair_take_run(&f);
        ck_assert_int_eq(run.status, STATUS_BAD_FD);
        ck_assert_uint_eq(run.culprit_session, 11);
        ck_assert_uint_eq(run.culprit_buffer, 9);
        ck_assert_uint_eq(run.number, 7);
        ck_assert_uint_eq(fake_counts(f.stage.fake).n_chunks, 2); /* of three */
        for (uint32_t i = 0; i < 2; i++) {
                ck_assert_int_eq(stage_page(&f.clients[i], 1), PAGE_BEGUN);
                ck_assert_uint_eq(atomic_load(&f.clients[i].board->done_ns), 0);
        }
        pair_start_both(&f, 2, 2); /* the thread is none the worse */
        pair_wait_done(&f, 0, 2);
        run = pair_take_run(&f);
        ck_assert_int_eq(run.status, STATUS_OK);
        ck_assert_uint_eq(run.culprit_session, 0);
        pair_close_empty(&f, &f.road);
        pair_tear_down(&f);
}
END_TEST

UNIT_MAIN("lane", 20, a_set_is_run_once_when_all_have_started_it_under_one_key,
        P9_pages_say_begun_before_the_run_and_done_behind_it, boards_and_runs_tell_the_same_times,
        numbers_go_on_from_where_the_road_stood,
        P22_the_thread_sleeps_when_nothing_happens_and_a_ring_wakes_it,
        P17_what_is_no_set_is_refused_and_handed_over, names_of_all_lengths_are_compared_to_their_last_byte,
        a_start_counts_by_its_number_alone, P16_a_failing_run_leaves_pages_begun_and_tells_the_culprit)
