/* The supervisor of the GPU process, over a process that is told to die, to hang and to break. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <uv.h>
#include "base/clock.h"
#include "base/fd.h"
#include "fake-gpu.h"
#include "worker.h"
#include "worker-task.h"

struct fixture {
        uv_loop_t loop;
        uv_timer_t timer;
        struct fake_gpu *fake;
        struct workers *workers;
        uint32_t n_rings;
};

static void on_ring(void *data) {
        ((struct fixture *)data)->n_rings++;
}

static void on_timer(uv_timer_t *timer) {
        (void)timer;
}

static void set_up_with(struct fixture *f, struct nursery *nursery, const char *why) {
        const struct workers_setting setting = { .nursery = nursery,
                .why = why,
                .takes_ipc = true,
                .log_level = LOG_LEVEL_NOTICE,
                .bell = { .ring = on_ring, .data = f },
                .now_ns = clock_now_ns() };
        ck_assert_int_eq(uv_loop_init(&f->loop), 0);
        uv_timer_init(&f->loop, &f->timer);
        ck_assert_int_eq(workers_new(&f->workers, &f->loop, &setting), 0);
}

static void make_fake(struct fixture *f, uint32_t n_devices) {
        *f = (struct fixture){ .fake = fake_gpu_new(n_devices) };
}

/* The first process begins with it: what it shall do at its start has been said before. */
static void start_fake(struct fixture *f) {
        struct nursery *nursery;
        ck_assert_int_eq(nursery_new(&nursery, fake_gpu_path()), 0);
        set_up_with(f, nursery, NULL);
}

static void set_up(struct fixture *f, uint32_t n_devices) {
        make_fake(f, n_devices);
        start_fake(f);
}

static void tear_down(struct fixture *f) {
        pid_t pid = f->fake ? (pid_t)f->fake->pid : 0;
        workers_stop(f->workers);
        uv_close((uv_handle_t *)&f->timer, NULL);
        uv_run(&f->loop, UV_RUN_DEFAULT);
        workers_free(f->workers);
        ck_assert_int_eq(uv_loop_close(&f->loop), 0);
        uv_library_shutdown();
        if (pid)
                ck_assert_msg(kill(pid, 0) < 0 && errno == ESRCH, "the worker is left behind");
}

/* As the daemon does: sleeps until an event or the next time that is due, then takes a turn. */
static void turn(struct fixture *f) {
        uint64_t now_ns = clock_now_ns(), next_ns = workers_next_ns(f->workers);
        uint64_t ms = next_ns <= now_ns ? 1 : (next_ns - now_ns) / NS_PER_MS + 1;
        uv_update_time(&f->loop);
        uv_timer_start(&f->timer, on_timer, ms < 100 ? ms : 100, 0);
        uv_run(&f->loop, UV_RUN_ONCE);
        workers_turn(f->workers, clock_now_ns());
}

static bool serves(struct fixture *f) {
        return workers_why_off(f->workers)[0] == '\0';
}

static void await_service(struct fixture *f) {
        while (!serves(f))
                turn(f);
}

static struct task *take_task(struct fixture *f) {
        struct task *t;
        while (!(t = workers_take_done_task(f->workers)))
                turn(f);
        return t;
}

static struct chore *take_chore(struct fixture *f) {
        struct chore *c;
        while (!(c = workers_take_done_chore(f->workers)))
                turn(f);
        return c;
}

/* --- memory and tasks --- */

struct piece_of_memory {
        struct chore chore;
        float *values;
};

static int make_fd(float **ret_values, float first) {
        int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(fallocate(fd, 0, 0, 8192), 0);
        *ret_values = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(*ret_values, MAP_FAILED);
        for (int i = 0; i < COUNT; i++)
                (*ret_values)[i] = first + (float)i;
        return fd;
}

static void ask_import(struct fixture *f, struct piece_of_memory *m, enum memory_path path, float first) {
        int fd = make_fd(&m->values, first);
        m->chore = (struct chore){ .kind = CHORE_IMPORT,
                .fd = path == PATH_VMM_MADE ? -1 : fd,
                .read_fd = -1,
                .n_bytes = 4 * COUNT,
                .access = ACCESS_INOUT,
                .path = path,
                .device = DEVICE_GPU };
        if (path == PATH_VMM_MADE)
                close(fd);
        list_init(&m->chore.link);
        ck_assert(workers_want(&m->chore));
        workers_do(f->workers, &m->chore);
}

static void import(struct fixture *f, struct piece_of_memory *m, float first) {
        ask_import(f, m, PATH_VMM_FD, first);
        ck_assert_ptr_eq(take_chore(f), &m->chore);
        ck_assert_msg(m->chore.status == STATUS_OK, "%s", m->chore.why);
        ck_assert_ptr_nonnull(m->chore.memory);
}

static void let_go(struct fixture *f, struct piece_of_memory *m) {
        m->chore.kind = CHORE_RELEASE;
        ck_assert(workers_want(&m->chore));
        workers_do(f->workers, &m->chore);
        ck_assert_ptr_eq(take_chore(f), &m->chore);
        ck_assert_ptr_null(m->chore.memory);
        fd_close(&m->chore.fd);
        munmap(m->values, 8192);
}

static enum status run(struct fixture *f, struct memory *a, struct memory *b) {
        struct task *t = make_task(a, b);
        workers_start(f->workers, t);
        ck_assert_ptr_eq(take_task(f), t);
        enum status status = t->status;
        engine_task_free(t);
        return status;
}

/* --- tests --- */

START_TEST(devices_appear_when_they_are_tested) {
        struct fixture f;
        make_fake(&f, 2);
        f.fake->hide_device = 1;
        start_fake(&f);
        ck_assert(workers_is_starting(f.workers));
        ck_assert_uint_eq(workers_n_devices(f.workers), 0);
        await_service(&f);
        ck_assert(!workers_is_starting(f.workers));
        ck_assert_uint_eq(workers_n_devices(f.workers), 2);
        ck_assert_str_eq(workers_device(f.workers, 0)->why, "");
        ck_assert_str_ne(workers_device(f.workers, 1)->why, "");
        ck_assert_uint_eq(workers_find(f.workers, "GPU:1"), DEVICE_GPU + 1);
        ck_assert_uint_eq(workers_find(f.workers, fake_gpu_uuid(1)), DEVICE_GPU + 1);
        ck_assert_uint_eq(workers_find(f.workers, "GPU:2"), DEVICE_UNKNOWN);
        ck_assert_uint_eq(workers_find(f.workers, "CPU:0"), DEVICE_UNKNOWN);
        ck_assert_uint_eq(workers_n_restarts(f.workers), 0);
        ck_assert_uint_eq(workers_next_ns(f.workers), UINT64_MAX); /* nothing is asked of who is idle */
        tear_down(&f);
}
END_TEST

START_TEST(no_driver_is_a_reason_and_no_process_stays) {
        struct fixture f;
        set_up(&f, 0);
        while (workers_is_starting(f.workers))
                turn(&f);
        ck_assert_ptr_nonnull(strstr(workers_why_off(f.workers), "no NVIDIA driver"));
        for (int i = 0; i < 100 && kill((pid_t)f.fake->pid, 0) == 0; i++)
                turn(&f);
        ck_assert(kill((pid_t)f.fake->pid, 0) < 0);
        ck_assert_uint_eq(f.fake->n_starts, 1);
        ck_assert_uint_eq(workers_next_ns(f.workers), UINT64_MAX);
        tear_down(&f);
}
END_TEST

START_TEST(without_a_program_everything_is_refused_with_the_reason) {
        struct fixture f = { 0 };
        struct piece_of_memory m;
        set_up_with(&f, NULL, "gpu.enabled is no");
        ck_assert_str_eq(workers_why_off(f.workers), "gpu.enabled is no");
        ck_assert(!workers_is_starting(f.workers));
        ask_import(&f, &m, PATH_VMM_FD, 0);
        ck_assert_ptr_eq(workers_take_done_chore(f.workers), &m.chore);
        ck_assert_int_eq(m.chore.status, STATUS_DEVICE_LOST);
        fd_close(&m.chore.fd);
        munmap(m.values, 8192);
        tear_down(&f);
}
END_TEST

START_TEST(a_plan_runs_over_memory_of_all_kinds) {
        struct fixture f;
        struct piece_of_memory a, b, made;
        set_up(&f, 1);
        await_service(&f);
        import(&f, &a, 1);
        import(&f, &b, 10);
        ck_assert_int_eq(run(&f, a.chore.memory, b.chore.memory), STATUS_OK);
        for (int i = 0; i < COUNT; i++)
                ck_assert(a.values[i] == 11 + 2 * (float)i);
        ask_import(&f, &made, PATH_VMM_MADE, 0);
        ck_assert_ptr_eq(take_chore(&f), &made.chore);
        ck_assert_int_ge(made.chore.fd, 0);
        ck_assert_uint_eq(made.chore.n_bytes, 2u << 20);
        munmap(made.values, 8192);
        made.values = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, made.chore.fd, 0);
        ck_assert_int_eq(run(&f, made.chore.memory, b.chore.memory), STATUS_OK);
        ck_assert(made.values[7] == 17);
        let_go(&f, &a);
        let_go(&f, &b);
        let_go(&f, &made);
        ck_assert_uint_eq(f.fake->n_releases, 3);
        ck_assert_uint_eq(workers_n_open(f.workers), 0);
        tear_down(&f);
}
END_TEST

/* N4: host memory comes in with the first plan that names it, and goes before its owner's mapping does. */
START_TEST(N4_host_memory_comes_with_its_plan) {
        struct fixture f;
        struct piece_of_memory a, h;
        set_up(&f, 1);
        await_service(&f);
        import(&f, &a, 1);
        int fd = make_fd(&h.values, 5);
        struct memory host = { .n_bytes = 4 * COUNT, .fd = fd, .access = ACCESS_INOUT };
        ck_assert_int_eq(run(&f, &host, a.chore.memory), STATUS_OK);
        ck_assert(h.values[3] == 12);
        ck_assert_int_eq(run(&f, &host, a.chore.memory), STATUS_OK);
        ck_assert_uint_eq(f.fake->n_imports, 2); /* once */
        h.chore = (struct chore){ .kind = CHORE_RELEASE, .fd = fd, .memory = &host };
        list_init(&h.chore.link);
        ck_assert(workers_want(&h.chore));
        workers_do(f.workers, &h.chore);
        ck_assert_ptr_eq(take_chore(&f), &h.chore);
        ck_assert_ptr_eq(h.chore.memory, &host); /* still its owner's */
        ck_assert_uint_eq(host.remote, 0);
        ck_assert(!workers_want(&h.chore));
        ck_assert_uint_eq(f.fake->n_releases, 1);
        munmap(h.values, 8192);
        close(fd);
        let_go(&f, &a);
        tear_down(&f);
}
END_TEST

/* E14, E12: killed in the middle of a run. */
START_TEST(E14_a_killed_process_is_started_anew_with_all_its_memory) {
        struct fixture f;
        struct piece_of_memory a, b;
        set_up(&f, 1);
        await_service(&f);
        import(&f, &a, 1);
        import(&f, &b, 10);
        f.fake->hold = 1;
        struct task *t = make_task(a.chore.memory, b.chore.memory);
        workers_start(f.workers, t);
        while (f.fake->n_runs == 0)
                turn(&f);
        uint64_t before_ns = clock_now_ns();
        ck_assert_int_eq(kill((pid_t)f.fake->pid, SIGKILL), 0);
        ck_assert_ptr_eq(take_task(&f), t);
        ck_assert_int_eq(t->status, STATUS_DEVICE_LOST);
        ck_assert_ptr_nonnull(strstr(t->why, "signal 9"));
        f.fake->hold = 0;
        workers_start(f.workers, t); /* waits for the next one */
        ck_assert_ptr_eq(take_task(&f), t);
        ck_assert_msg(t->status == STATUS_OK, "%s", t->why);
        ck_assert_uint_lt(clock_now_ns() - before_ns, 50 * NS_PER_S);
        ck_assert_uint_eq(f.fake->n_starts, 2);
        ck_assert_uint_eq(f.fake->n_imports, 4);
        ck_assert_uint_eq(workers_n_restarts(f.workers), 1);
        ck_assert(a.values[2] == 15);
        engine_task_free(t);
        let_go(&f, &a);
        let_go(&f, &b);
        tear_down(&f);
}
END_TEST

START_TEST(E14_a_sticky_error_costs_a_restart) {
        struct fixture f;
        struct piece_of_memory a;
        set_up(&f, 1);
        await_service(&f);
        import(&f, &a, 1);
        f.fake->stick = 1;
        ck_assert_int_eq(run(&f, a.chore.memory, a.chore.memory), STATUS_DEVICE_LOST);
        ck_assert_int_eq(run(&f, a.chore.memory, a.chore.memory), STATUS_OK);
        ck_assert_uint_eq(f.fake->n_starts, 2);
        let_go(&f, &a);
        tear_down(&f);
}
END_TEST

/* 3 s of silence; asserted at ten times that. */
START_TEST(E14_a_hang_is_killed) {
        struct fixture f;
        struct piece_of_memory a;
        set_up(&f, 1);
        await_service(&f);
        import(&f, &a, 1);
        f.fake->hang = 1;
        uint64_t before_ns = clock_now_ns();
        ck_assert_int_eq(run(&f, a.chore.memory, a.chore.memory), STATUS_DEVICE_LOST);
        ck_assert_uint_ge(clock_now_ns() - before_ns, 3 * NS_PER_S);
        ck_assert_uint_lt(clock_now_ns() - before_ns, 30 * NS_PER_S);
        ck_assert_int_eq(run(&f, a.chore.memory, a.chore.memory), STATUS_OK);
        let_go(&f, &a);
        tear_down(&f);
}
END_TEST

/* A run that takes longer than that, in a process that is well. */
START_TEST(a_long_run_is_no_hang) {
        struct fixture f;
        struct piece_of_memory a;
        set_up(&f, 1);
        await_service(&f);
        import(&f, &a, 1);
        f.fake->hold = 1;
        struct task *t = make_task(a.chore.memory, a.chore.memory);
        workers_start(f.workers, t);
        uint64_t before_ns = clock_now_ns();
        while (clock_now_ns() - before_ns < 5 * NS_PER_S)
                turn(&f);
        f.fake->hold = 0;
        ck_assert_ptr_eq(take_task(&f), t);
        ck_assert_int_eq(t->status, STATUS_OK);
        ck_assert_uint_eq(f.fake->n_starts, 1);
        engine_task_free(t);
        let_go(&f, &a);
        tear_down(&f);
}
END_TEST

/* A memory that kills each process that imports it is given up after one more try. */
START_TEST(a_memory_that_kills_is_not_tried_for_ever) {
        struct fixture f;
        struct piece_of_memory a, b;
        set_up(&f, 1);
        await_service(&f);
        import(&f, &a, 1);
        f.fake->crash_import = 1;
        ask_import(&f, &b, PATH_VMM_FD, 1);
        ck_assert_ptr_eq(take_chore(&f), &b.chore);
        ck_assert_int_eq(b.chore.status, STATUS_DEVICE_LOST);
        fd_close(&b.chore.fd);
        munmap(b.values, 8192);
        f.fake->crash_import = 1; /* now it is `a`, as it comes in again */
        while (f.fake->n_starts < 3)
                turn(&f);
        await_service(&f);
        ck_assert_int_eq(run(&f, a.chore.memory, a.chore.memory), STATUS_INTERNAL);
        let_go(&f, &a);
        tear_down(&f);
}
END_TEST

START_TEST(what_waits_for_too_long_is_device_lost) {
        struct fixture f;
        struct piece_of_memory a;
        set_up(&f, 1);
        await_service(&f);
        import(&f, &a, 1);
        f.fake->crash_start = 1000;
        ck_assert_int_eq(kill((pid_t)f.fake->pid, SIGKILL), 0);
        while (serves(&f))
                turn(&f);
        uint64_t before_ns = clock_now_ns();
        ck_assert_int_eq(run(&f, a.chore.memory, a.chore.memory), STATUS_DEVICE_LOST);
        ck_assert_uint_lt(clock_now_ns() - before_ns, 50 * NS_PER_S);
        let_go(&f, &a);
        tear_down(&f);
}
END_TEST

START_TEST(a_process_that_never_serves_is_given_up) {
        struct fixture f;
        make_fake(&f, 1);
        f.fake->crash_start = 1000;
        start_fake(&f);
        while (workers_next_ns(f.workers) != UINT64_MAX)
                turn(&f);
        ck_assert_ptr_nonnull(strstr(workers_why_off(f.workers), "exit code 9"));
        ck_assert_uint_ge(f.fake->n_starts, 5);
        ck_assert_uint_le(f.fake->n_starts, 10);
        tear_down(&f);
}
END_TEST

START_TEST(a_refused_import_says_why_and_harms_nobody) {
        struct fixture f;
        struct piece_of_memory a, b;
        set_up(&f, 1);
        await_service(&f);
        import(&f, &a, 1);
        f.fake->fail_import = 1;
        ask_import(&f, &b, PATH_VMM_FD, 1);
        ck_assert_ptr_eq(take_chore(&f), &b.chore);
        ck_assert_int_eq(b.chore.status, STATUS_INVALID);
        ck_assert_ptr_null(b.chore.memory);
        ck_assert_ptr_nonnull(strstr(b.chore.why, "smaller"));
        fd_close(&b.chore.fd);
        munmap(b.values, 8192);
        ck_assert_int_eq(run(&f, a.chore.memory, a.chore.memory), STATUS_OK);
        let_go(&f, &a);
        tear_down(&f);
}
END_TEST

UNIT_MAIN("worker", 60, devices_appear_when_they_are_tested, no_driver_is_a_reason_and_no_process_stays,
        without_a_program_everything_is_refused_with_the_reason, a_plan_runs_over_memory_of_all_kinds,
        N4_host_memory_comes_with_its_plan, E14_a_killed_process_is_started_anew_with_all_its_memory,
        E14_a_sticky_error_costs_a_restart, E14_a_hang_is_killed, a_long_run_is_no_hang,
        a_memory_that_kills_is_not_tried_for_ever, what_waits_for_too_long_is_device_lost,
        a_process_that_never_serves_is_given_up, a_refused_import_says_why_and_harms_nobody)
