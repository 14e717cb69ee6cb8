/* A kernel that never ends: it costs the process, and only it does (E14). What is slow for a good reason, or
 * waits for a client, is left alone. */
#include <stdatomic.h>
#include <stdio.h>
#include "backends/cuda/flight.h"
#include "cuda-bench.h"

#define SHORT_NS (1 * NS_PER_S) /* honest work on a busy machine takes less, all the same */

/* A group that copies n bytes on a device. */
struct job {
        struct chore in, out;
        struct plan plan;
        struct run run;
};

static void job_init(struct bench *t, struct job *j, uint32_t device, uint64_t n_bytes) {
        *j = (struct job){ .in = bench_memory(t, device, n_bytes), .out = bench_memory(t, device, n_bytes) };
        const struct chore *operands[] = { &j->in, &j->out };
        plan_init(&j->plan);
        bench_add(&j->plan, &(struct bench_step){ .operands = operands,
                                    .step = { .kind = STEP_COPY,
                                            .device = DEVICE_GPU + device,
                                            .dtype = DTYPE_U8,
                                            .n_inputs = 1,
                                            .n_outputs = 1,
                                            .count = n_bytes } });
        bench_freeze(&j->plan, device);
        j->run = (struct run){ .plan = &j->plan, .group = (uint64_t)(uintptr_t)j };
}

static void job_deinit(struct bench *t, struct job *j) {
        plan_deinit(&j->plan);
        bench_release(t, &j->in);
        bench_release(t, &j->out);
}

static void strike(struct bench *t, enum fakecuda_fault fault, unsigned int ms) {
        fakecuda_strike(
                t->fake, &(struct fakecuda_strike){ .fault = fault, .call = "cuLaunchKernel", .ms = ms });
}

START_TEST(E14_a_kernel_that_never_ends_is_found_in_time_and_named) {
        struct bench t;
        struct job hung, other;
        bench_prepare(&t, "2");
        t.options.hang_limit_ns = SHORT_NS;
        bench_open(&t);
        job_init(&t, &hung, 1, 4096);
        job_init(&t, &other, 0, 4096);
        strike(&t, FAKECUDA_STALLS, 0);
        uint64_t begun_ns = clock_now_ns();
        bench_launch(&t, &hung.run);
        bench_launch(&t, &other.run);
        ck_assert(bench_wait(&t, &other.run, 10));
        ck_assert_int_eq(other.run.status, STATUS_OK);
        ck_assert(bench_wait(&t, &hung.run, 10));
        ck_assert_uint_ge(clock_now_ns() - begun_ns, SHORT_NS);
        ck_assert_uint_lt(clock_now_ns() - begun_ns, 10 * SHORT_NS * unit_scale());
        ck_assert_int_eq(hung.run.status, STATUS_DEVICE_LOST);
        ck_assert(t.b->is_broken);
        ck_assert_ptr_eq(t.b->broken_by, &hung.run);
        ck_assert_str_eq(
                t.b->broken_why, "GPU:1: a kernel does not end, 1.0 s after it could begin (gpu.hang-limit)");
        fakecuda_clear(t.fake);
        job_deinit(&t, &hung);
        job_deinit(&t, &other);
        t.b->base.ops->free(&t.b->base);
        fakecuda_close(t.fake);
}
END_TEST

START_TEST(the_limit_grows_with_what_is_under_way) {
        struct bench t;
        bench_prepare(&t, "1");
        t.options.hang_limit_ns = 30 * NS_PER_S;
        bench_open(&t);
        struct cuda *c = cuda_of(&t.b->base);
        ck_assert_uint_eq(flight_hang_limit_ns(c, 4096), 30 * NS_PER_S);
        ck_assert_uint_eq(flight_hang_limit_ns(c, UINT64_C(1) << 30), 40 * NS_PER_S - NS_PER_S * 10 % 1024);
        ck_assert_uint_gt(flight_hang_limit_ns(c, UINT64_C(1) << 40), 10000 * NS_PER_S);
        bench_close(&t);
}
END_TEST

/* 256 MiB are under way, which is 2.5 s more, though nothing of them is copied here: their client never
 * signals. */
START_TEST(what_is_slow_beside_large_work_is_not_struck) {
        struct bench t;
        struct job large, small;
        bench_prepare(&t, "1");
        t.options.hang_limit_ns = SHORT_NS;
        bench_open(&t);
        struct chore page = bench_memory(&t, HOST, 4096);
        struct signal signal = { .page = page.memory, .slot = 0, .value = 5 };
        job_init(&t, &large, 0, UINT64_C(128) << 20);
        job_init(&t, &small, 0, 4096);
        large.run.signals = &signal;
        large.run.n_signals = 1;
        large.run.limit_ns = 4 * NS_PER_S;
        bench_launch(&t, &large.run);
        strike(&t, FAKECUDA_SLOWS, 1500);
        bench_launch(&t, &small.run);
        ck_assert(bench_wait(&t, &small.run, 20));
        ck_assert_int_eq(small.run.status, STATUS_OK);
        ck_assert(fakecuda_has_struck(t.fake));
        ck_assert(bench_wait(&t, &large.run, 20));
        ck_assert_int_eq(large.run.status, STATUS_TIMEOUT);
        job_deinit(&t, &large);
        job_deinit(&t, &small);
        bench_release(&t, &page);
        bench_close(&t);
}
END_TEST

/* Neither is at work: the one waits in its stream for its client, the other stands behind it there. */
START_TEST(who_waits_for_a_client_is_not_hung) {
        struct bench t;
        struct job first, second;
        bench_prepare(&t, "1");
        t.options.hang_limit_ns = SHORT_NS;
        bench_open(&t);
        struct chore page = bench_memory(&t, HOST, 4096);
        _Atomic uint64_t *ready = bench_data(&page);
        struct signal signal = { .page = page.memory, .slot = 0, .value = 5 };
        job_init(&t, &first, 0, 4096);
        job_init(&t, &second, 0, 4096);
        first.run.signals = &signal;
        first.run.n_signals = 1;
        first.run.limit_ns = 60 * NS_PER_S;
        second.run.group = first.run.group;
        bench_launch(&t, &first.run);
        bench_launch(&t, &second.run);
        ck_assert(!bench_wait(&t, &second.run, 2));
        ck_assert(!t.b->is_broken);
        atomic_store(ready, 5);
        ck_assert(bench_wait(&t, &first.run, 10));
        ck_assert(bench_wait(&t, &second.run, 10));
        ck_assert_int_eq(first.run.status, STATUS_OK);
        ck_assert_int_eq(second.run.status, STATUS_OK);
        job_deinit(&t, &first);
        job_deinit(&t, &second);
        bench_release(&t, &page);
        bench_close(&t);
}
END_TEST

START_TEST(without_a_limit_nobody_is_judged) {
        struct bench t;
        struct job j;
        bench_prepare(&t, "1");
        bench_open(&t);
        job_init(&t, &j, 0, 4096);
        strike(&t, FAKECUDA_STALLS, 0);
        bench_launch(&t, &j.run);
        ck_assert(!bench_wait(&t, &j.run, 1));
        fakecuda_clear(t.fake);
        ck_assert(bench_wait(&t, &j.run, 10));
        ck_assert_int_eq(j.run.status, STATUS_OK);
        job_deinit(&t, &j);
        bench_close(&t);
}
END_TEST

UNIT_MAIN("cuda-hang", 60, E14_a_kernel_that_never_ends_is_found_in_time_and_named,
        the_limit_grows_with_what_is_under_way, what_is_slow_beside_large_work_is_not_struck,
        who_waits_for_a_client_is_not_hung, without_a_limit_nobody_is_judged)
