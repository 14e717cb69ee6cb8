/* Runs of the lane that several threads share: which chunks they run, and what they wait for. */
#include <sched.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "lane-pair.h"

#define N_CHUNKS 64

/* On one CPU nobody can help, and nobody is to. */
static void skip_on_one_cpu(void) {
        if (lanes_most_assistants(0) == 0)
                unit_skip("there is one CPU");
}

static void set_up(struct pair *f, uint32_t n_assistants) {
        pair_set_up_assisted(f, n_assistants);
        f->sets[0].plan.n_chunks = f->sets[0].plan.parts[0].n_chunks = N_CHUNKS;
        lane_road_open(f->stage.lanes, &f->road);
}

static void tear_down(struct pair *f) {
        pair_close_empty(f, &f->road);
        pair_tear_down(f);
}

static void run_once(struct pair *f, uint64_t request) {
        pair_start_both(f, request, request);
        pair_wait_done(f, 0, request);
        pair_wait_done(f, 1, request);
}

static uint32_t n_awake(const struct pair *f) {
        return atomic_load(&f->stage.lanes->assistants.n_awake);
}

static void wait_asleep(const struct pair *f) {
        uint64_t until_ns = clock_now_ns() + 5 * NS_PER_S;
        while (n_awake(f) > 0 && clock_now_ns() < until_ns)
                usleep(1000);
        ck_assert_uint_eq(n_awake(f), 0);
}

START_TEST(a_large_run_is_shared) {
        struct pair f;
        skip_on_one_cpu();
        set_up(&f, 1);
        fake_hold(f.stage.fake, true);
        pair_start_both(&f, 1, 1);
        fake_wait_held(f.stage.fake, 2); /* one of them in a thread of its own */
        ck_assert_int_eq(stage_page(&f.clients[0], 1), PAGE_BEGUN);
        fake_hold(f.stage.fake, false);
        pair_wait_done(&f, 0, 1);
        struct lane_run run = pair_take_run(&f);
        ck_assert_int_eq(run.status, STATUS_OK);
        ck_assert(run.is_assisted);
        ck_assert_uint_eq(fake_counts(f.stage.fake).n_chunks, N_CHUNKS);
        ck_assert_uint_eq(fake_counts(f.stage.fake).n_at_once_most, 2);
        tear_down(&f);
}
END_TEST

START_TEST(a_small_run_is_not_shared) {
        struct pair f;
        skip_on_one_cpu();
        set_up(&f, 1);
        f.sets[0].plan.moved_bytes = 256u << 10;
        fake_hold(f.stage.fake, true);
        pair_start_both(&f, 1, 1);
        fake_wait_held(f.stage.fake, 1);
        usleep(20000);
        ck_assert_uint_eq(fake_counts(f.stage.fake).n_chunks, 1);
        fake_hold(f.stage.fake, false);
        pair_wait_done(&f, 0, 1);
        ck_assert(!pair_take_run(&f).is_assisted);
        ck_assert_uint_eq(n_awake(&f), 0);
        tear_down(&f);
}
END_TEST

START_TEST(a_run_waits_for_nobody_who_has_not_begun_a_chunk) {
        struct pair f;
        set_up(&f, 0);
        f.sets[0].plan.moved_bytes = UINT64_C(64) << 20;
        /* Somebody who is said to be awake, and never comes. */
        f.stage.lanes->assistants.n = 1;
        atomic_store(&f.stage.lanes->assistants.n_awake, 1);
        run_once(&f, 1);
        ck_assert(!pair_take_run(&f).is_assisted);
        ck_assert_uint_eq(fake_counts(f.stage.fake).n_chunks, N_CHUNKS);
        f.stage.lanes->assistants.n = 0;
        tear_down(&f);
}
END_TEST

/* Every chunk of a plan of two phases; those of the second begin when all of the first are over. */
static void run_two_phases(void) {
        struct pair f;
        set_up(&f, 2);
        struct plan *p = &f.sets[0].plan;
        const struct step step = {
                .kind = STEP_COPY, .dtype = DTYPE_U8, .n_inputs = 1, .n_outputs = 1, .count = 4 * 64
        };
        plan_reset(p);
        ck_assert_ptr_nonnull(plan_add_step(p, &step));
        ck_assert_int_eq(plan_join(p), 0);
        ck_assert_ptr_nonnull(plan_add_step(p, &step));
        plan_freeze(p, 64);
        ck_assert_uint_eq(p->n_chunks, 8);
        p->moved_bytes = UINT64_C(64) << 20;
        f.stage.lanes->assistants.regret.bank_ns = 60 * (int64_t)NS_PER_S; /* for waits that the test makes */
        fake_hold(f.stage.fake, true);
        pair_start_both(&f, 1, 1);
        fake_wait_held(f.stage.fake, 2);
        for (uint32_t i = 0; i < 3; i++)
                fake_release_one(f.stage.fake);
        fake_wait_held(f.stage.fake, 1);
        usleep(20000);
        ck_assert_uint_eq(fake_counts(f.stage.fake).n_chunks, 4);
        fake_release_one(f.stage.fake);
        fake_wait_held(f.stage.fake, 2);
        fake_hold(f.stage.fake, false);
        pair_wait_done(&f, 0, 1);
        (void)pair_take_run(&f);
        uint64_t order[8];
        uint32_t is_run = 0;
        ck_assert_uint_eq(fake_order(f.stage.fake, order, 8), 8);
        for (uint32_t i = 0; i < 8; i++) {
                ck_assert_uint_eq(order[i] < 4, i < 4);
                is_run |= 1u << order[i];
        }
        ck_assert_uint_eq(is_run, 0xff);
        tear_down(&f);
}

/* Whoever has the last chunk of the first phase: the lane's thread or an assistant. */
START_TEST(a_phase_begins_when_everybody_is_through_with_the_one_before) {
        skip_on_one_cpu();
        for (uint32_t i = 0; i < 8; i++)
                run_two_phases();
}
END_TEST

/* The n-th chunk that is begun fails, while two are under way: one of the two is an assistant's. */
static void fail_chunk(uint32_t n) {
        const struct memory culprit = { .session = 11, .buffer = 77 };
        struct pair f;
        set_up(&f, 1);
        const struct lane_assistants *a = &f.stage.lanes->assistants;
        fake_fail_chunk(f.stage.fake, n, &culprit);
        fake_hold(f.stage.fake, true);
        pair_start_both(&f, 1, 1);
        fake_wait_held(f.stage.fake, 2);
        uint64_t n_begun = 2;
        while (!atomic_load(&a->has_failed) &&
                n_begun < N_CHUNKS / 2) { /* the same one may be let go each time */
                fake_release_one(f.stage.fake);
                while (!atomic_load(&a->has_failed) && fake_counts(f.stage.fake).n_chunks == n_begun)
                        sched_yield();
                n_begun = fake_counts(f.stage.fake).n_chunks;
        }
        bool is_seen = atomic_load(&a->has_failed);
        fake_hold(f.stage.fake, false);
        struct lane_run run = pair_take_run(&f);
        ck_assert_int_eq(run.status, STATUS_BAD_FD);
        ck_assert_uint_eq(run.culprit_session, 11);
        ck_assert_uint_eq(run.culprit_buffer, 77);
        ck_assert_int_eq(stage_page(&f.clients[0], 1), PAGE_BEGUN);
        if (is_seen) /* one was perhaps on its way */
                ck_assert_uint_le(fake_counts(f.stage.fake).n_chunks, n_begun + 1);
        tear_down(&f);
}

START_TEST(P16_a_chunk_that_fails_in_any_thread_ends_the_run) {
        skip_on_one_cpu();
        fail_chunk(1);
        fail_chunk(2);
}
END_TEST

START_TEST(a_run_after_one_that_failed_is_whole) {
        const struct memory culprit = { .session = 11, .buffer = 77 };
        struct pair f;
        set_up(&f, 1);
        fake_fail_chunk(f.stage.fake, 1, &culprit);
        pair_start_both(&f, 1, 1);
        ck_assert_int_eq(pair_take_run(&f).status, STATUS_BAD_FD);
        uint64_t n_before = fake_counts(f.stage.fake).n_chunks;
        run_once(&f, 2);
        ck_assert_int_eq(pair_take_run(&f).status, STATUS_OK);
        ck_assert_uint_eq(fake_counts(f.stage.fake).n_chunks, n_before + N_CHUNKS);
        tear_down(&f);
}
END_TEST

START_TEST(P22_who_helps_no_more_sleeps) {
        struct timespec before, after;
        struct pair f;
        set_up(&f, 2);
        for (uint64_t i = 1; i <= 50; i++) {
                run_once(&f, i);
                (void)pair_take_run(&f);
        }
        wait_asleep(&f);
        stage_settle(&f.stage, &f.clients[0]);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
        usleep(300000);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
        int64_t used_ns = (after.tv_sec - before.tv_sec) * (int64_t)NS_PER_S + after.tv_nsec - before.tv_nsec;
        ck_assert_int_lt(used_ns, 2 * (int64_t)NS_PER_MS);
        tear_down(&f);
}
END_TEST

/* In a time in which they may be in any state. */
START_TEST(the_room_ends_whatever_its_assistants_do) {
        for (uint32_t i = 0; i < 40; i++) {
                struct pair f;
                set_up(&f, 1 + i % LANE_MAX_ASSISTANTS);
                for (uint64_t k = 1; k <= i % 4; k++) {
                        run_once(&f, k);
                        (void)pair_take_run(&f);
                }
                usleep(i * 10);
                tear_down(&f);
        }
}
END_TEST

START_TEST(plans_are_cut_for_as_many_as_may_help) {
        struct pair f;
        struct plan p;
        const struct step step = {
                .kind = STEP_COPY, .dtype = DTYPE_U8, .n_inputs = 1, .n_outputs = 3, .count = 1u << 20
        };
        set_up(&f, 1);
        plan_init(&p);
        ck_assert_ptr_nonnull(plan_add_step(&p, &step));
        plan_freeze(&p, 256u << 10);
        ck_assert_uint_eq(p.n_chunks, 4);
        ck_assert_uint_eq(lanes_chunk_bytes(f.stage.lanes, &p), 32u << 10); /* 4 MiB in 32 */
        plan_cut(&p, 32u << 10);
        ck_assert_uint_eq(p.n_chunks, 32);
        ck_assert_uint_eq(lanes_chunk_bytes(f.stage.lanes, &p), 32u << 10);
        plan_cut(&p, 16u << 10); /* what is set smaller stays */
        ck_assert_uint_eq(lanes_chunk_bytes(f.stage.lanes, &p), 16u << 10);
        p.moved_bytes = 256u << 10;
        ck_assert_uint_eq(lanes_chunk_bytes(f.stage.lanes, &p), 16u << 10);
        plan_deinit(&p);
        tear_down(&f);
}
END_TEST

START_TEST(there_are_as_many_as_there_are_workers_and_cpus_but_one) {
        cpu_set_t before, one;
        ck_assert_int_eq(sched_getaffinity(0, sizeof(before), &before), 0);
        ck_assert_uint_eq(lanes_most_assistants(1), 0);
        ck_assert_uint_le(lanes_most_assistants(2), 1);
        ck_assert_uint_le(lanes_most_assistants(0), LANE_MAX_ASSISTANTS);
        ck_assert_uint_le(lanes_most_assistants(0), (uint32_t)CPU_COUNT(&before) - 1);
        CPU_ZERO(&one);
        for (size_t i = 0; CPU_COUNT(&one) == 0; i++)
                if (CPU_ISSET(i, &before))
                        CPU_SET(i, &one);
        ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
        ck_assert_uint_eq(lanes_most_assistants(0), 0);
        ck_assert_int_eq(sched_setaffinity(0, sizeof(before), &before), 0);
}
END_TEST

UNIT_MAIN("lane-assist", 30, a_large_run_is_shared, a_small_run_is_not_shared,
        a_run_waits_for_nobody_who_has_not_begun_a_chunk,
        a_phase_begins_when_everybody_is_through_with_the_one_before,
        P16_a_chunk_that_fails_in_any_thread_ends_the_run, a_run_after_one_that_failed_is_whole,
        P22_who_helps_no_more_sleeps, the_room_ends_whatever_its_assistants_do,
        plans_are_cut_for_as_many_as_may_help, there_are_as_many_as_there_are_workers_and_cpus_but_one)
