/* NCCL behind the library's step: sums and broadcasts over devices, and what becomes of them when it fails.
 */
#include <errno.h>
#include <stdio.h>
#include "cuda-bench.h"

#define COUNT 1000
#define MAX_N 4

struct floor {
        struct bench t;
        uint32_t n;
        struct chore in[MAX_N], out[MAX_N];
        struct plan plan;
        struct run run;
};

enum shape { ALL_REDUCE, REDUCE, BROADCAST };

static void add_step(struct floor *f, enum shape shape, enum op op) {
        const struct chore *operands[2 * MAX_N];
        const uint32_t n_in = shape == BROADCAST ? 1 : f->n, n_out = shape == REDUCE ? 1 : f->n;
        for (uint32_t i = 0; i < n_in; i++)
                operands[i] = &f->in[shape == BROADCAST ? f->n - 1 : i];
        for (uint32_t i = 0; i < n_out; i++)
                operands[n_in + i] = &f->out[shape == REDUCE ? f->n - 1 : i];
        bench_add(&f->plan, &(struct bench_step){ .operands = operands,
                                    .step = { .kind = STEP_LIBRARY,
                                            .device = DEVICE_GPU,
                                            .op = op,
                                            .dtype = DTYPE_F32,
                                            .n_inputs = n_in,
                                            .n_outputs = n_out,
                                            .divisor = f->n,
                                            .count = COUNT } });
        bench_freeze(&f->plan, 0);
        f->run = (struct run){ .plan = &f->plan, .group = 1 };
}

static void floor_open(struct floor *f, const char *n_devices) {
        f->n = (uint32_t)atoi(n_devices);
        bench_prepare(&f->t, n_devices);
        bench_open(&f->t);
        plan_init(&f->plan);
        for (uint32_t k = 0; k < f->n; k++) {
                f->in[k] = bench_memory(&f->t, k, COUNT * 4);
                f->out[k] = bench_memory(&f->t, k, COUNT * 4);
                for (int i = 0; i < COUNT; i++)
                        ((float *)bench_data(&f->in[k]))[i] = (float)(i * (k + 1));
        }
}

static void floor_close(struct floor *f) {
        plan_deinit(&f->plan);
        for (uint32_t k = 0; k < f->n; k++) {
                bench_release(&f->t, &f->in[k]);
                bench_release(&f->t, &f->out[k]);
        }
        bench_close(&f->t);
}

static void expect(const struct floor *f, uint32_t k, float factor) {
        for (int i = 0; i < COUNT; i++)
                ck_assert_float_eq(((const float *)bench_data(&f->out[k]))[i], (float)i * factor);
}

static void go(struct floor *f) {
        bench_launch(&f->t, &f->run);
        ck_assert(bench_wait(&f->t, &f->run, 10));
}

static void all_reduce_on(const char *n_devices, float factor) {
        struct floor f;
        floor_open(&f, n_devices);
        add_step(&f, ALL_REDUCE, OP_SUM);
        for (int round = 0; round < 3; round++) {
                f.run.group++;
                go(&f);
                ck_assert_msg(f.run.status == STATUS_OK, "%s", f.run.why);
                for (uint32_t k = 0; k < f.n; k++) {
                        expect(&f, k, factor);
                        memset(bench_data(&f.out[k]), 0, COUNT * 4);
                }
        }
        /* Kept, and used by all groups. */
        ck_assert_uint_eq(fakecuda_calls(f.t.fake, NULL, "ncclCommInitRankConfig"), f.n);
        ck_assert_uint_eq(fakecuda_calls(f.t.fake, NULL, "ncclAllReduce"), 3 * f.n);
        floor_close(&f);
}

START_TEST(all_reduce_on_one_device) {
        all_reduce_on("1", 1);
}
END_TEST

START_TEST(all_reduce_on_two_devices) {
        all_reduce_on("2", 3);
}
END_TEST

START_TEST(all_reduce_on_four_devices) {
        all_reduce_on("4", 10);
}
END_TEST

START_TEST(a_mean_is_the_sum_divided_once) {
        struct floor f;
        floor_open(&f, "4");
        add_step(&f, ALL_REDUCE, OP_MEAN);
        go(&f);
        ck_assert_msg(f.run.status == STATUS_OK, "%s", f.run.why);
        for (uint32_t k = 0; k < f.n; k++)
                expect(&f, k, 2.5f);
        floor_close(&f);
}
END_TEST

START_TEST(a_reduction_comes_to_its_root_alone) {
        struct floor f;
        floor_open(&f, "4");
        add_step(&f, REDUCE, OP_SUM);
        go(&f);
        ck_assert_msg(f.run.status == STATUS_OK, "%s", f.run.why);
        expect(&f, 3, 10);
        expect(&f, 0, 0);
        floor_close(&f);
}
END_TEST

START_TEST(a_broadcast_comes_from_its_root) {
        struct floor f;
        floor_open(&f, "4");
        add_step(&f, BROADCAST, OP_UNSPECIFIED);
        go(&f);
        ck_assert_msg(f.run.status == STATUS_OK, "%s", f.run.why);
        for (uint32_t k = 0; k < f.n; k++)
                expect(&f, k, 4);
        floor_close(&f);
}
END_TEST

/* A client that has not signalled keeps no communicator waiting: the host holds its run. */
START_TEST(the_library_waits_for_no_client) {
        struct floor f;
        floor_open(&f, "2");
        add_step(&f, ALL_REDUCE, OP_SUM);
        struct chore page = bench_memory(&f.t, HOST, 4096);
        const struct signal signal = { .page = page.memory, .slot = 1, .value = 1 };
        struct run silent = {
                .plan = &f.plan, .group = 9, .signals = &signal, .n_signals = 1, .limit_ns = 200 * NS_PER_MS
        };
        bench_launch(&f.t, &silent);
        go(&f);
        ck_assert_int_eq(f.run.status, STATUS_OK);
        ck_assert(!silent.is_over);
        ck_assert(bench_wait(&f.t, &silent, 10));
        ck_assert_int_eq(silent.status, STATUS_TIMEOUT);
        ck_assert_uint_eq(fakecuda_calls(f.t.fake, NULL, "ncclAllReduce"), 2);
        bench_release(&f.t, &page);
        floor_close(&f);
}
END_TEST

START_TEST(an_asynchronous_error_aborts_and_the_next_goes_on) {
        struct floor f;
        floor_open(&f, "2");
        add_step(&f, ALL_REDUCE, OP_SUM);
        go(&f);
        fakecuda_strike(f.t.fake,
                &(struct fakecuda_strike){ .fault = FAKECUDA_ASYNC, .call = "ncclAllReduce", .code = 6 });
        go(&f);
        ck_assert_int_eq(f.run.status, STATUS_ABORTED);
        ck_assert_ptr_nonnull(strstr(f.run.why, "outputs undefined"));
        ck_assert(!f.t.b->is_broken);
        ck_assert_uint_eq(fakecuda_calls(f.t.fake, NULL, "ncclCommAbort"), 2);
        fakecuda_clear(f.t.fake);
        go(&f);
        ck_assert_msg(f.run.status == STATUS_OK, "%s", f.run.why);
        expect(&f, 0, 3);
        floor_close(&f);
}
END_TEST

START_TEST(a_collective_that_does_not_end_is_aborted_in_time) {
        struct floor f;
        floor_open(&f, "2");
        cuda_of(&f.t.b->base)->options.library_limit_ns = 200 * NS_PER_MS;
        add_step(&f, ALL_REDUCE, OP_SUM);
        go(&f);
        fakecuda_strike(
                f.t.fake, &(struct fakecuda_strike){ .fault = FAKECUDA_STALLS, .call = "ncclAllReduce" });
        go(&f);
        ck_assert_int_eq(f.run.status, STATUS_ABORTED);
        ck_assert(!f.t.b->is_broken);
        fakecuda_clear(f.t.fake);
        go(&f);
        ck_assert_msg(f.run.status == STATUS_OK, "%s", f.run.why);
        floor_close(&f);
}
END_TEST

START_TEST(communicators_that_cannot_be_made_fail_the_run_and_are_tried_again) {
        struct floor f;
        floor_open(&f, "2");
        add_step(&f, ALL_REDUCE, OP_SUM);
        fakecuda_strike(
                f.t.fake, &(struct fakecuda_strike){
                                  .fault = FAKECUDA_FAILS, .call = "ncclCommInitRankConfig", .code = 2 });
        go(&f);
        ck_assert_int_eq(f.run.status, STATUS_ABORTED);
        ck_assert_ptr_nonnull(strstr(f.run.why, "nothing was written"));
        go(&f);
        ck_assert_msg(f.run.status == STATUS_OK, "%s", f.run.why);
        floor_close(&f);
}
END_TEST

/* An all-reduce over GPU:1 and GPU:2 has communicators that share GPU:1 with those over GPU:0 and GPU:1. */
START_TEST(who_shares_a_device_is_aborted_together) {
        struct floor f;
        struct plan pairs[2];
        struct run runs[2];
        floor_open(&f, "4");
        for (uint32_t i = 0; i < 2; i++) {
                const struct chore *operands[] = { &f.in[i], &f.in[i + 1], &f.out[i], &f.out[i + 1] };
                plan_init(&pairs[i]);
                bench_add(&pairs[i], &(struct bench_step){ .operands = operands,
                                             .step = { .kind = STEP_LIBRARY,
                                                     .device = DEVICE_GPU + i,
                                                     .op = OP_SUM,
                                                     .dtype = DTYPE_F32,
                                                     .n_inputs = 2,
                                                     .n_outputs = 2,
                                                     .count = COUNT } });
                bench_freeze(&pairs[i], i);
                runs[i] = (struct run){ .plan = &pairs[i], .group = i };
                bench_launch(&f.t, &runs[i]);
                ck_assert(bench_wait(&f.t, &runs[i], 10));
                ck_assert_msg(runs[i].status == STATUS_OK, "%s", runs[i].why);
                expect(&f, i, i == 0 ? 3 : 5);
        }
        ck_assert_uint_eq(fakecuda_calls(f.t.fake, NULL, "ncclCommInitRankConfig"), 4);
        fakecuda_strike(f.t.fake,
                &(struct fakecuda_strike){ .fault = FAKECUDA_ASYNC, .call = "ncclAllReduce", .code = 6 });
        bench_launch(&f.t, &runs[0]);
        ck_assert(bench_wait(&f.t, &runs[0], 10));
        ck_assert_int_eq(runs[0].status, STATUS_ABORTED);
        ck_assert_uint_eq(fakecuda_calls(f.t.fake, NULL, "ncclCommAbort"), 4);
        /* Both are being made anew before anybody asks. */
        ck_assert_uint_eq(fakecuda_calls(f.t.fake, NULL, "ncclCommInitRankConfig"), 8);
        fakecuda_clear(f.t.fake);
        for (uint32_t i = 0; i < 2; i++) {
                bench_launch(&f.t, &runs[i]);
                ck_assert(bench_wait(&f.t, &runs[i], 10));
                ck_assert_msg(runs[i].status == STATUS_OK, "%s", runs[i].why);
                plan_deinit(&pairs[i]);
        }
        floor_close(&f);
}
END_TEST

/* Memory for communicators is the device's once, whatever number of groups there are (J2). */
START_TEST(J2_groups_share_communicators) {
        struct floor f;
        floor_open(&f, "2");
        add_step(&f, ALL_REDUCE, OP_SUM);
        go(&f);
        uint64_t first = fakecuda_bytes(f.t.fake, 0);
        for (int i = 0; i < 100; i++) {
                f.run.group++;
                go(&f);
                ck_assert_int_eq(f.run.status, STATUS_OK);
        }
        ck_assert_uint_eq(fakecuda_bytes(f.t.fake, 0), first);
        floor_close(&f);
}
END_TEST

UNIT_MAIN("cuda-library", 60, all_reduce_on_one_device, all_reduce_on_two_devices, all_reduce_on_four_devices,
        a_mean_is_the_sum_divided_once, a_reduction_comes_to_its_root_alone, a_broadcast_comes_from_its_root,
        the_library_waits_for_no_client, an_asynchronous_error_aborts_and_the_next_goes_on,
        a_collective_that_does_not_end_is_aborted_in_time,
        communicators_that_cannot_be_made_fail_the_run_and_are_tried_again,
        who_shares_a_device_is_aborted_together, J2_groups_share_communicators)
