/* The engine over a fake backend: batons go and come back, slices share workers, nobody takes all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/clock.h"
#include "engine.h"
#include "fake-backend.h"
#include "unit.h"

struct fixture {
        uv_loop_t loop;
        struct config config;
        struct fake_backend *fake;
        struct engine *engine;
        uint32_t n_rings;
};

static void on_ring(void *data) {
        ((struct fixture *)data)->n_rings++;
}

static void set_up(struct fixture *f, uint32_t n_devices, uint32_t n_workers) {
        const struct doorbell bell = { .ring = on_ring, .data = f };
        *f = (struct fixture){ 0 };
        config_init(&f->config);
        f->config.n_cpu_devices = n_devices;
        f->config.n_workers = n_workers;
        f->fake = fake_backend_new();
        ck_assert_int_eq(uv_loop_init(&f->loop), 0);
        ck_assert_int_eq(engine_new(&f->engine, &f->loop, &f->config, fake_backend_ops(f->fake), &bell), 0);
}

static void tear_down(struct fixture *f) {
        engine_stop(f->engine);
        uv_run(&f->loop, UV_RUN_DEFAULT);
        engine_free(f->engine);
        ck_assert_int_eq(uv_loop_close(&f->loop), 0);
        uv_library_shutdown(); /* libuv's own pipe for signals */
        fake_backend_free(f->fake);
}

/* A task of n_chunks chunks, named `name`, of this uid and group. */
static struct task *make_task(uint64_t name, uint64_t n_chunks, uint32_t uid, uint64_t group) {
        struct task *t = engine_task_new();
        ck_assert_ptr_nonnull(t);
        const struct step step = {
                .kind = STEP_COPY, .dtype = DTYPE_U8, .n_inputs = 1, .n_outputs = 1, .count = name
        };
        ck_assert_ptr_nonnull(plan_add_step(&t->plan, &step));
        plan_freeze(&t->plan, 64);
        t->plan.n_chunks = t->plan.parts[0].n_chunks = n_chunks;
        t->plan.moved_bytes = n_chunks << 20;
        t->uid = uid;
        t->group = group;
        return t;
}

static struct task *take_task(struct fixture *f) {
        struct task *t;
        while (!(t = engine_take_done_task(f->engine)))
                uv_run(&f->loop, UV_RUN_ONCE);
        return t;
}

START_TEST(a_task_runs_every_chunk_once_and_comes_back) {
        struct fixture f;
        set_up(&f, 1, 2);
        struct task *t = make_task(7, 100, 1, 1);
        t->owner = &f;
        engine_start(f.engine, t);
        ck_assert_uint_eq(engine_n_open(f.engine), 1);
        ck_assert_ptr_eq(take_task(&f), t);
        ck_assert_int_eq(t->status, STATUS_OK);
        ck_assert_ptr_eq(t->owner, &f);
        ck_assert_uint_eq(fake_counts(f.fake).n_chunks, 100);
        ck_assert_uint_eq(engine_n_open(f.engine), 0);
        ck_assert(t->started_ns > 0 && t->done_ns >= t->started_ns);
        if (f.n_rings == 0) /* it was taken before the loop looked: the bell is under way */
                uv_run(&f.loop, UV_RUN_ONCE);
        ck_assert_uint_ge(f.n_rings, 1);
        ck_assert_ptr_null(engine_take_done_task(f.engine));
        ck_assert_uint_eq(engine_device_stats(f.engine, 0).n_tasks, 1);
        engine_task_free(t);
        tear_down(&f);
}
END_TEST

START_TEST(a_large_task_is_shared_by_the_workers_and_a_small_one_is_not) {
        struct fixture f;
        set_up(&f, 1, 2);
        fake_hold(f.fake, true);
        struct task *large = make_task(1, 8, 1, 1), *small = make_task(2, 8, 1, 1);
        engine_start(f.engine, large);
        fake_wait_held(f.fake, 2);
        ck_assert_uint_eq(large->n_slices, 2);
        fake_hold(f.fake, false);
        take_task(&f);
        small->plan.moved_bytes = 4096;
        engine_start(f.engine, small);
        ck_assert_uint_eq(small->n_slices, 1);
        take_task(&f);
        engine_task_free(large);
        engine_task_free(small);
        tear_down(&f);
}
END_TEST

/* P21: with sessions of two users, one of them never holds the last worker. */
START_TEST(P21_one_user_never_holds_all_workers_while_another_is_there) {
        struct fixture f;
        set_up(&f, 1, 2);
        engine_set_shared(f.engine, true);
        fake_hold(f.fake, true);
        struct task *a = make_task(1, 8, 1000, 1), *b = make_task(2, 1, 1001, 2);
        engine_start(f.engine, a);
        fake_wait_held(f.fake, 1);
        engine_start(f.engine, b);
        fake_wait_held(f.fake, 2); /* b found a worker although a has work for two */
        uint64_t order[8];
        ck_assert_uint_eq(fake_order(f.fake, order, 8), 2);
        ck_assert_uint_eq(order[0], 1);
        ck_assert_uint_eq(order[1], 2);
        fake_hold(f.fake, false);
        take_task(&f);
        take_task(&f);
        ck_assert_uint_eq(fake_counts(f.fake).n_chunks, 9);
        engine_task_free(a);
        engine_task_free(b);
        tear_down(&f);
}
END_TEST

/* P21, I3: with one worker a long task steps back at a chunk border when another waits. */
START_TEST(P21_one_worker_yields_at_chunk_borders) {
        struct fixture f;
        set_up(&f, 1, 1);
        fake_hold(f.fake, true);
        struct task *a = make_task(1, 50, 1000, 1), *b = make_task(2, 1, 1001, 2);
        engine_start(f.engine, a);
        fake_wait_held(f.fake, 1);
        engine_start(f.engine, b);
        fake_hold(f.fake, false);
        ck_assert_ptr_eq(take_task(&f), b);
        ck_assert_ptr_eq(take_task(&f), a);
        uint64_t order[64];
        ck_assert_uint_eq(fake_order(f.fake, order, 64), 51);
        ck_assert_uint_eq(order[1], 2);
        engine_task_free(a);
        engine_task_free(b);
        tear_down(&f);
}
END_TEST

/* P21: what one user has queued delays another by the chunk under way alone. */
START_TEST(P21_lines_of_users_are_served_in_turn) {
        enum { N = 100 };
        struct fixture f;
        struct task *flood[N];
        set_up(&f, 1, 1);
        fake_hold(f.fake, true);
        for (int i = 0; i < N; i++) {
                flood[i] = make_task(1000 + (uint64_t)i, 1, 1000, 1);
                engine_start(f.engine, flood[i]);
        }
        fake_wait_held(f.fake, 1);
        struct task *b = make_task(2, 1, 1001, 2), *c = make_task(3, 1, 1002, 3);
        engine_start(f.engine, b);
        engine_start(f.engine, c);
        fake_hold(f.fake, false);
        for (int i = 0; i < N + 2; i++)
                take_task(&f);
        uint64_t order[N + 2];
        ck_assert_uint_eq(fake_order(f.fake, order, N + 2), N + 2);
        ck_assert_uint_eq(order[0], 1000);
        ck_assert_uint_eq(order[1], 1001); /* its line was asked again while nobody else waited */
        ck_assert_uint_eq(order[2], 2);
        ck_assert_uint_eq(order[3], 3);
        for (int i = 2; i < N; i++) /* within a line: in the order in which they came */
                ck_assert_uint_eq(order[i + 2], 1000 + (uint64_t)i);
        for (int i = 0; i < N; i++)
                engine_task_free(flood[i]);
        engine_task_free(b);
        engine_task_free(c);
        tear_down(&f);
}
END_TEST

/* Of one user the most urgent task first; another user's turn comes all the same. */
START_TEST(P21_priority_counts_among_the_tasks_of_one_user) {
        enum { N = 4 };
        static const int32_t priorities[N] = { 0, -1, 5, 0 };
        static const uint64_t wanted[N + 2] = { 99, 102, 9, 100, 103, 101 };
        struct fixture f;
        struct task *tasks[N], *first = make_task(99, 1, 1000, 1), *other = make_task(9, 1, 1001, 2);
        set_up(&f, 1, 1);
        fake_hold(f.fake, true);
        engine_start(f.engine, first);
        fake_wait_held(f.fake, 1);
        for (int i = 0; i < N; i++) {
                tasks[i] = make_task(100 + (uint64_t)i, 1, 1000, 1);
                tasks[i]->priority = priorities[i];
                engine_start(f.engine, tasks[i]);
        }
        other->priority = INT32_MIN;
        engine_start(f.engine, other);
        fake_hold(f.fake, false);
        for (int i = 0; i < N + 2; i++)
                take_task(&f);
        uint64_t order[N + 2];
        ck_assert_uint_eq(fake_order(f.fake, order, N + 2), N + 2);
        for (int i = 0; i < N + 2; i++)
                ck_assert_uint_eq(order[i], wanted[i]);
        for (int i = 0; i < N; i++)
                engine_task_free(tasks[i]);
        engine_task_free(first);
        engine_task_free(other);
        tear_down(&f);
}
END_TEST

#define BLOCKED_SECONDS 0.15

static void wait_a_while(void) {
        usleep((useconds_t)(BLOCKED_SECONDS * unit_scale() * 1e6));
}

/* A chunk stands still, as in memory that its client punches; it computes nothing meanwhile. */
static void block_a_chunk(struct fixture *f, uint64_t group) {
        struct task *t = make_task(1, 1, 1000, group);
        fake_hold(f->fake, true);
        engine_start(f->engine, t);
        fake_wait_held(f->fake, 1);
        wait_a_while();
        fake_hold(f->fake, false);
        ck_assert_ptr_eq(take_task(f), t);
        ck_assert_uint_ge(t->blocked_ns, 100 * NS_PER_MS);
        engine_task_free(t);
}

START_TEST(P21_a_group_whose_memory_stood_still_is_confined_to_one_worker) {
        struct fixture f;
        set_up(&f, 1, 4);
        block_a_chunk(&f, 1);
        struct task *bad = make_task(1, 100, 1000, 1), *good = make_task(2, 100, 1000, 2);
        fake_hold(f.fake, true);
        engine_start(f.engine, bad);
        fake_wait_held(f.fake, 1);
        wait_a_while();
        ck_assert_uint_eq(fake_counts(f.fake).n_at_once_most, 1); /* it could have had all four */
        engine_start(f.engine, good); /* whom the same user's other group leaves three */
        fake_wait_held(f.fake, 4);
        fake_hold(f.fake, false);
        take_task(&f);
        take_task(&f);
        ck_assert_uint_eq(fake_counts(f.fake).n_chunks, 201);
        engine_task_free(bad);
        engine_task_free(good);
        tear_down(&f);
}
END_TEST

START_TEST(P21_who_computes_for_long_is_not_blocked) {
        struct fixture f;
        set_up(&f, 1, 1);
        struct task *t = make_task(1, 100, 1000, 1);
        engine_start(f.engine, t);
        take_task(&f);
        ck_assert_uint_eq(t->blocked_ns, 0);
        engine_task_free(t);
        tear_down(&f);
}
END_TEST

START_TEST(a_failing_chunk_ends_the_task_and_names_the_culprit) {
        for (uint32_t n = 1; n <= 10; n++) {
                struct fixture f;
                const struct memory culprit = { .session = 42, .buffer = 9 };
                set_up(&f, 1, 1);
                fake_fail_chunk(f.fake, n, &culprit);
                struct task *t = make_task(1, 10, 1, 1);
                engine_start(f.engine, t);
                take_task(&f);
                ck_assert_int_eq(t->status, STATUS_BAD_FD);
                ck_assert_uint_eq(t->culprit_session, 42);
                ck_assert_uint_eq(t->culprit_buffer, 9);
                ck_assert_uint_eq(fake_counts(f.fake).n_chunks, n);
                engine_start(f.engine, t); /* the worker is none the worse */
                take_task(&f);
                ck_assert_int_eq(t->status, STATUS_OK);
                engine_task_free(t);
                tear_down(&f);
        }
}
END_TEST

START_TEST(D11_what_the_chunks_found_comes_back_with_the_task) {
        struct fixture f;
        set_up(&f, 1, 2);
        struct task *t = make_task(7, 100, 1, 1);
        t->plan.steps[0].check_numerics = true;
        for (int again = 0; again < 2; again++) {
                engine_start(f.engine, t);
                ck_assert_ptr_eq(take_task(&f), t);
                ck_assert_uint_eq(t->found.numerics.n, 100);
                ck_assert_uint_eq(t->found.numerics.rank, 1);
                ck_assert_uint_eq(t->found.numerics.index, 0);
                ck_assert_uint_eq(t->found.overflow.n, 0);
        }
        engine_task_free(t);
        tear_down(&f);
}
END_TEST

START_TEST(each_device_has_its_own_workers) {
        struct fixture f;
        set_up(&f, 3, 4);
        ck_assert_uint_eq(engine_n_devices(f.engine), 3);
        ck_assert_uint_eq(engine_device_stats(f.engine, 0).n_workers, 2);
        ck_assert_uint_eq(engine_device_stats(f.engine, 1).n_workers, 1);
        ck_assert_uint_eq(engine_device_stats(f.engine, 2).n_workers, 1);
        struct task *t = make_task(1, 4, 1, 1);
        t->plan.parts[0].device = 2;
        engine_start(f.engine, t);
        take_task(&f);
        ck_assert_uint_eq(engine_device_stats(f.engine, 2).n_tasks, 1);
        ck_assert_uint_eq(engine_device_stats(f.engine, 0).n_tasks, 0);
        engine_task_free(t);
        tear_down(&f);
}
END_TEST

START_TEST(chores_are_done_and_strangers_are_closed) {
        struct fixture f;
        int ends[2];
        set_up(&f, 1, 1);
        ck_assert_int_eq(pipe(ends), 0);
        struct chore import = { .kind = CHORE_IMPORT, .uid = 1, .fd = -1, .n_bytes = 64 };
        struct chore close_it = { .kind = CHORE_CLOSE, .uid = 1, .fd = ends[1] };
        list_init(&import.link);
        list_init(&close_it.link);
        engine_do(f.engine, &import);
        engine_do(f.engine, &close_it);
        for (int n = 0; n < 2;)
                if (engine_take_done_chore(f.engine))
                        n++;
                else
                        uv_run(&f.loop, UV_RUN_ONCE);
        ck_assert_int_eq(import.status, STATUS_OK);
        ck_assert_ptr_nonnull(import.memory);
        ck_assert_int_eq(close_it.fd, -1);
        char byte;
        ck_assert_int_eq(read(ends[0], &byte, 1), 0); /* the last writer is closed */
        close(ends[0]);
        free(import.memory);
        tear_down(&f);
}
END_TEST

/* Whether all answer within two seconds. */
static bool workers_answer(struct fixture *f) {
        uint64_t limit_ns = clock_now_ns() + (uint64_t)(2e9 * unit_scale());
        while (!engine_workers_have_answered(f->engine) && clock_now_ns() < limit_ns)
                usleep(1000);
        return engine_workers_have_answered(f->engine);
}

START_TEST(workers_give_a_sign_of_life_and_one_that_hangs_does_not) {
        struct fixture f;
        set_up(&f, 2, 4);
        engine_ask_workers(f.engine);
        ck_assert(workers_answer(&f));
        struct task *t = make_task(1, 3, 1, 1);
        fake_hold(f.fake, true);
        engine_start(f.engine, t);
        fake_wait_held(f.fake, 1);
        engine_ask_workers(f.engine);
        usleep(50000);
        ck_assert(!engine_workers_have_answered(f.engine));
        fake_hold(f.fake, false);
        ck_assert_ptr_eq(take_task(&f), t);
        ck_assert(workers_answer(&f));
        engine_ask_workers(f.engine);
        ck_assert(workers_answer(&f));
        engine_task_free(t);
        tear_down(&f);
}
END_TEST

START_TEST(stopping_finishes_what_was_given) {
        struct fixture f;
        set_up(&f, 1, 2);
        struct task *tasks[20];
        for (uint32_t i = 0; i < 20; i++) {
                tasks[i] = make_task(i + 1, 5, 1, i);
                engine_start(f.engine, tasks[i]);
        }
        engine_stop(f.engine);
        ck_assert_uint_eq(fake_counts(f.fake).n_chunks, 100);
        for (uint32_t i = 0; i < 20; i++)
                ck_assert_ptr_nonnull(engine_take_done_task(f.engine));
        uv_run(&f.loop, UV_RUN_DEFAULT);
        engine_free(f.engine);
        ck_assert_int_eq(uv_loop_close(&f.loop), 0);
        uv_library_shutdown();
        for (uint32_t i = 0; i < 20; i++)
                engine_task_free(tasks[i]);
        fake_backend_free(f.fake);
}
END_TEST

/* Three phases over two devices, `n` chunks on each device in each phase, and scratch on both. */
static struct task *make_phases(uint64_t n) {
        struct task *t = engine_task_new();
        struct operand area;
        ck_assert_ptr_nonnull(t);
        for (uint32_t phase = 0; phase < 3; phase++) {
                if (phase)
                        ck_assert_int_eq(plan_join(&t->plan), 0);
                for (uint32_t device = 0; device < 2; device++) {
                        const struct step step = { .kind = STEP_COPY,
                                .device = device,
                                .dtype = DTYPE_U8,
                                .n_inputs = 1,
                                .n_outputs = 1,
                                .count = n * 64 };
                        ck_assert_ptr_nonnull(plan_add_step(&t->plan, &step));
                        ck_assert_int_eq(plan_take_scratch(&t->plan, device, 4096, &area), 0);
                }
        }
        plan_freeze(&t->plan, 64);
        ck_assert_uint_eq(t->plan.n_chunks, 6 * n);
        t->plan.moved_bytes = n << 20;
        t->uid = 1;
        return t;
}

START_TEST(a_phase_begins_when_all_devices_are_through_with_the_one_before) {
        enum { N = 8 };
        struct fixture f;
        set_up(&f, 2, 4);
        for (int round = 0; round < 20; round++) {
                struct task *t = make_phases(N);
                engine_start(f.engine, t);
                ck_assert_ptr_eq(take_task(&f), t);
                ck_assert_int_eq(t->status, STATUS_OK);
                engine_task_free(t);
        }
        struct task *t = make_phases(N);
        uint64_t before = fake_counts(f.fake).n_chunks;
        ck_assert_uint_eq(before, 20 * 6 * N);
        fake_hold(f.fake, true);
        engine_start(f.engine, t);
        for (uint32_t i = 0; i < 2 * N - 1; i++)
                fake_release_one(f.fake);
        /* All chunks of the first phase have begun, and its last one is held: nothing else has. */
        fake_wait_held(f.fake, 1);
        usleep(20000);
        ck_assert_uint_eq(fake_counts(f.fake).n_chunks, before + 2 * N);
        fake_hold(f.fake, false);
        take_task(&f);
        ck_assert_uint_eq(fake_counts(f.fake).n_chunks, before + 6 * N);
        engine_task_free(t);
        tear_down(&f);
}
END_TEST

START_TEST(a_failure_in_one_phase_is_the_end_of_all) {
        struct fixture f;
        set_up(&f, 2, 2);
        struct task *t = make_phases(1);
        const struct memory culprit = { .session = 7, .buffer = 8 };
        fake_fail_chunk(f.fake, 3, &culprit);
        engine_start(f.engine, t);
        ck_assert_ptr_eq(take_task(&f), t);
        ck_assert_int_eq(t->status, STATUS_BAD_FD);
        ck_assert_uint_eq(t->culprit_buffer, 8);
        ck_assert_uint_le(fake_counts(f.fake).n_chunks, 4); /* the third phase has not begun */
        engine_task_free(t);
        tear_down(&f);
}
END_TEST

START_TEST(P18_scratch_is_brought_kept_where_it_is_small_and_given_back) {
        struct fixture f;
        struct operand area;
        set_up(&f, 2, 2);
        struct task *t = make_phases(1);
        engine_start(f.engine, t);
        take_task(&f);
        engine_start(f.engine, t);
        take_task(&f);
        ck_assert_uint_eq(fake_counts(f.fake).n_scratch, 2); /* the same ones, twice */
        ck_assert_uint_eq(fake_counts(f.fake).n_alive, 2);
        t->plan.is_frozen = false;
        ck_assert_int_eq(plan_take_scratch(&t->plan, 0, 1 << 20, &area), 0);
        t->plan.is_frozen = true;
        engine_start(f.engine, t);
        take_task(&f);
        ck_assert_uint_eq(fake_counts(f.fake).n_scratch, 3);
        ck_assert_uint_eq(fake_counts(f.fake).n_alive, 1); /* the large one has gone */
        fake_fail_import(f.fake, 1, STATUS_NO_MEMORY);
        uint64_t n_chunks = fake_counts(f.fake).n_chunks;
        engine_start(f.engine, t);
        ck_assert_ptr_eq(take_task(&f), t);
        ck_assert_int_eq(t->status, STATUS_NO_MEMORY);
        ck_assert_uint_eq(fake_counts(f.fake).n_chunks, n_chunks);
        engine_task_free(t);
        ck_assert_uint_eq(fake_counts(f.fake).n_alive, 0);
        tear_down(&f);
}
END_TEST

START_TEST(stopping_finishes_the_phases_that_have_not_begun) {
        struct fixture f;
        set_up(&f, 2, 2);
        struct task *t = make_phases(3);
        fake_hold(f.fake, true);
        engine_start(f.engine, t);
        fake_wait_held(f.fake, 2);
        fake_hold(f.fake, false);
        engine_stop(f.engine);
        ck_assert_ptr_eq(engine_take_done_task(f.engine), t);
        ck_assert_uint_eq(fake_counts(f.fake).n_chunks, 18);
        uv_run(&f.loop, UV_RUN_DEFAULT);
        engine_free(f.engine);
        ck_assert_int_eq(uv_loop_close(&f.loop), 0);
        uv_library_shutdown();
        engine_task_free(t);
        fake_backend_free(f.fake);
}
END_TEST

UNIT_MAIN("engine", 20, a_task_runs_every_chunk_once_and_comes_back,
        a_large_task_is_shared_by_the_workers_and_a_small_one_is_not,
        P21_one_user_never_holds_all_workers_while_another_is_there, P21_one_worker_yields_at_chunk_borders,
        P21_lines_of_users_are_served_in_turn, P21_priority_counts_among_the_tasks_of_one_user,
        P21_a_group_whose_memory_stood_still_is_confined_to_one_worker,
        P21_who_computes_for_long_is_not_blocked, a_failing_chunk_ends_the_task_and_names_the_culprit,
        D11_what_the_chunks_found_comes_back_with_the_task, each_device_has_its_own_workers,
        chores_are_done_and_strangers_are_closed, stopping_finishes_what_was_given,
        a_phase_begins_when_all_devices_are_through_with_the_one_before,
        a_failure_in_one_phase_is_the_end_of_all,
        P18_scratch_is_brought_kept_where_it_is_small_and_given_back,
        stopping_finishes_the_phases_that_have_not_begun,
        workers_give_a_sign_of_life_and_one_that_hangs_does_not)
