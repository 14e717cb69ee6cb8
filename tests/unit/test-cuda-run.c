/* The cuda backend at work: plans give the oracle's numbers wherever their operands lie. */
#include <errno.h>
#include <stdio.h>
#include "cuda-bench.h"
#include "oracle.h"

#define MAX_RANKS 48

/* Each rank has its buffer somewhere; input and output are the same place in it. */
struct meeting {
        enum op op;
        enum dtype dtype;
        uint64_t count, offset_bytes;
        uint32_t n_ranks, n_devices; /* rank i is on GPU:(i % n_devices), or on the host */
        bool has_host;               /* rank 1 has host memory */
};

static uint32_t home(const struct meeting *m, uint32_t rank) {
        return m->has_host && rank == 1 ? HOST : rank % m->n_devices;
}

static void meet(struct bench *t, const struct meeting *m) {
        struct chore buffers[MAX_RANKS];
        const struct chore *operands[2 * MAX_RANKS];
        uint8_t *copies[MAX_RANKS];
        const uint64_t n_bytes = m->count * dtype_bytes(m->dtype), n_all = n_bytes + m->offset_bytes + 64;
        uint8_t *expected = malloc(n_bytes + 1);
        for (uint32_t i = 0; i < m->n_ranks; i++) {
                buffers[i] = bench_memory(t, home(m, i), n_all);
                operands[i] = operands[m->n_ranks + i] = &buffers[i];
                copies[i] = malloc(n_bytes + 1);
                oracle_fill(m->dtype, copies[i], m->count, i + 5);
                memset(bench_data(&buffers[i]), 0xa5, n_all);
                memcpy((uint8_t *)bench_data(&buffers[i]) + m->offset_bytes, copies[i], n_bytes);
        }
        oracle_reduce(
                m->op, m->dtype, (const void *const *)copies, m->n_ranks, expected, m->count, m->n_ranks);
        struct plan p;
        plan_init(&p);
        bench_add(&p, &(struct bench_step){ .operands = operands,
                              .offset_bytes = m->offset_bytes,
                              .step = { .kind = STEP_REDUCE,
                                      .device = DEVICE_GPU,
                                      .op = m->op,
                                      .dtype = m->dtype,
                                      .n_inputs = m->n_ranks,
                                      .n_outputs = m->n_ranks,
                                      .divisor = m->n_ranks,
                                      .count = m->count } });
        bench_freeze(&p, 0);
        bench_run(t, &p);
        for (uint32_t i = 0; i < m->n_ranks; i++) {
                const uint8_t *all = bench_data(&buffers[i]);
                ck_assert_int_eq(oracle_difference(m->dtype, all + m->offset_bytes, expected, m->count), -1);
                for (uint64_t k = 0; k < m->offset_bytes; k++)
                        ck_assert_uint_eq(all[k], 0xa5);
                for (uint64_t k = n_bytes + m->offset_bytes; k < n_all; k++)
                        ck_assert_uint_eq(all[k], 0xa5);
        }
        for (uint32_t i = 0; i < m->n_ranks; i++) {
                bench_release(t, &buffers[i]);
                free(copies[i]);
        }
        free(expected);
        plan_deinit(&p);
}

static void meet_on(const char *n_devices, const struct meeting *m) {
        struct bench t;
        bench_prepare(&t, n_devices);
        bench_open(&t);
        meet(&t, m);
        bench_close(&t);
}

START_TEST(N2_two_replicas_on_one_gpu) {
        meet_on("1", &(struct meeting){ OP_MEAN, DTYPE_F16, 70001, 2, 2, 1, false });
}
END_TEST

START_TEST(two_gpus_reach_each_other) {
        meet_on("2", &(struct meeting){ OP_SUM, DTYPE_F32, 100003, 4, 2, 2, false });
}
END_TEST

START_TEST(seven_replicas_on_four_gpus) {
        meet_on("4", &(struct meeting){ OP_MAX, DTYPE_BF16, 5000, 6, 7, 4, false });
}
END_TEST

START_TEST(N4_host_and_gpu_in_one) {
        meet_on("2", &(struct meeting){ OP_SUM, DTYPE_F64, 10007, 8, 3, 2, true });
}
END_TEST

/* More words than travel with a launch. */
START_TEST(forty_eight_replicas_have_a_table) {
        meet_on("1", &(struct meeting){ OP_SUM, DTYPE_I32, 1003, 0, 48, 1, false });
}
END_TEST

START_TEST(no_elements_are_a_meeting_too) {
        meet_on("1", &(struct meeting){ OP_SUM, DTYPE_F32, 0, 0, 2, 1, false });
}
END_TEST

/* F8: memory that cannot be registered is copied, and the numbers are the same. */
START_TEST(F8_host_memory_that_cannot_be_pinned_works_and_says_so) {
        struct bench t;
        bench_prepare(&t, "1");
        setenv("FAKECUDA_FAIL", "cuMemHostRegister:1+=CUDA_ERROR_OUT_OF_MEMORY", 1);
        bench_open(&t);
        meet(&t, &(struct meeting){ OP_SUM, DTYPE_F32, 10007, 4, 3, 1, true });
        const char *why = bench_fallback(&t, "pinned");
        ck_assert_ptr_nonnull(why);
        ck_assert_msg(strncmp(why, "pinned=no (", 11) == 0, "%s", why);
        bench_close(&t);
}
END_TEST

/* Of an output with gaps nothing is written but its elements, copied or not. */
static void stride(bool is_pinned) {
        struct bench t;
        bench_prepare(&t, "1");
        if (!is_pinned)
                setenv("FAKECUDA_FAIL", "cuMemHostRegister:1+=CUDA_ERROR_OUT_OF_MEMORY", 1);
        bench_open(&t);
        struct chore in = bench_memory(&t, HOST, 4096), out = bench_memory(&t, HOST, 4096);
        uint32_t *from = bench_data(&in), *to = bench_data(&out);
        for (uint32_t i = 0; i < 1024; i++) {
                from[i] = i;
                to[i] = UINT32_MAX;
        }
        struct plan p;
        plan_init(&p);
        const struct step step = { .kind = STEP_COPY,
                .device = DEVICE_GPU,
                .dtype = DTYPE_U32,
                .n_inputs = 1,
                .n_outputs = 1,
                .count = 300,
                .n_dims = 2,
                .shape = { 100, 3 } };
        struct step *s = plan_add_step(&p, &step);
        plan_inputs(&p, s)[0] = (struct operand){ .memory = in.memory, .offset_bytes = 8 };
        plan_outputs(&p, s)[0] = (struct operand){ .memory = out.memory, .offset_bytes = 4 };
        memcpy(plan_strides(&p, s, 0), ((const uint64_t[]){ 3, 1 }), 16);
        memcpy(plan_strides(&p, s, 1), ((const uint64_t[]){ 10, 2 }), 16);
        bench_freeze(&p, 0);
        bench_run(&t, &p);
        for (uint32_t i = 0; i < 300; i++) {
                uint32_t at = 1 + i / 3 * 10 + i % 3 * 2;
                ck_assert_uint_eq(to[at], 2 + i);
                to[at] = UINT32_MAX;
        }
        for (uint32_t i = 0; i < 1024; i++)
                ck_assert_uint_eq(to[i], UINT32_MAX);
        plan_deinit(&p);
        bench_release(&t, &in);
        bench_release(&t, &out);
        bench_close(&t);
}

START_TEST(gaps_are_left_alone) {
        stride(true);
}
END_TEST

START_TEST(F8_gaps_are_left_alone_where_memory_is_copied) {
        stride(false);
}
END_TEST

/* --- phases --- */

/* A sum on GPU:0 into scratch there, then a copy by GPU:1 from the scratch to an output on GPU:1. */
START_TEST(a_join_puts_devices_in_order) {
        struct bench t;
        bench_prepare(&t, "2");
        bench_open(&t);
        enum { COUNT = 1 << 20 };
        struct chore in[2] = { bench_memory(&t, 0, COUNT * 4), bench_memory(&t, 0, COUNT * 4) };
        struct chore out = bench_memory(&t, 1, COUNT * 4);
        for (uint32_t i = 0; i < COUNT; i++) {
                ((uint32_t *)bench_data(&in[0]))[i] = i;
                ((uint32_t *)bench_data(&in[1]))[i] = 3 * i;
        }
        struct plan p;
        struct operand area;
        plan_init(&p);
        ck_assert_int_eq(plan_take_scratch(&p, DEVICE_GPU, COUNT * 4, &area), 0);
        const struct step sum = { .kind = STEP_REDUCE,
                .device = DEVICE_GPU,
                .op = OP_SUM,
                .dtype = DTYPE_U32,
                .n_inputs = 2,
                .n_outputs = 1,
                .count = COUNT };
        struct step *added = plan_add_step(&p, &sum);
        plan_inputs(&p, added)[0] = (struct operand){ .memory = in[0].memory };
        plan_inputs(&p, added)[1] = (struct operand){ .memory = in[1].memory };
        plan_outputs(&p, added)[0] = area;
        ck_assert_int_eq(plan_join(&p), 0);
        const struct step copy = { .kind = STEP_COPY,
                .device = DEVICE_GPU + 1,
                .dtype = DTYPE_U32,
                .n_inputs = 1,
                .n_outputs = 1,
                .count = COUNT };
        added = plan_add_step(&p, &copy);
        plan_inputs(&p, added)[0] = area;
        plan_outputs(&p, added)[0] = (struct operand){ .memory = out.memory };
        bench_freeze(&p, 0);
        fakecuda_set_order(t.fake, FAKECUDA_NEWEST);
        bench_run(&t, &p);
        for (uint32_t i = 0; i < COUNT; i++)
                ck_assert_uint_eq(((uint32_t *)bench_data(&out))[i], 4 * i);
        plan_deinit(&p);
        bench_release(&t, &in[0]);
        bench_release(&t, &in[1]);
        bench_release(&t, &out);
        bench_close(&t);
}
END_TEST

/* --- checks --- */

START_TEST(what_checks_find_comes_back) {
        struct bench t;
        bench_prepare(&t, "1");
        bench_open(&t);
        struct chore a = bench_memory(&t, 0, 400), b = bench_memory(&t, 0, 400);
        float *x = bench_data(&a), *y = bench_data(&b);
        for (int i = 0; i < 100; i++)
                x[i] = y[i] = 1;
        x[70] = y[30] = y[40] = 0.0f / 0.0f;
        const struct chore *operands[] = { &a, &b, &a };
        struct plan p;
        plan_init(&p);
        bench_add(&p, &(struct bench_step){ .operands = operands,
                              .step = { .kind = STEP_REDUCE,
                                      .device = DEVICE_GPU,
                                      .op = OP_SUM,
                                      .dtype = DTYPE_F32,
                                      .check_numerics = true,
                                      .entry = 4,
                                      .n_inputs = 2,
                                      .n_outputs = 1,
                                      .count = 100 } });
        bench_freeze(&p, 0);
        struct run run = { .plan = &p, .group = 1 };
        bench_launch(&t, &run);
        ck_assert(bench_wait(&t, &run, 10));
        ck_assert_int_eq(run.status, STATUS_OK);
        ck_assert_uint_eq(run.found.numerics.n, 3);
        ck_assert_uint_eq(run.found.numerics.rank, 0);
        ck_assert_uint_eq(run.found.numerics.index, 70);
        ck_assert_uint_eq(run.found.numerics.entry, 4);
        ck_assert_uint_eq(run.found.overflow.n, 0);
        plan_deinit(&p);
        bench_release(&t, &a);
        bench_release(&t, &b);
        bench_close(&t);
}
END_TEST

/* --- what must not happen --- */

START_TEST(an_operand_outside_its_buffer_is_refused) {
        struct bench t;
        bench_prepare(&t, "1");
        bench_open(&t);
        struct chore a = bench_memory(&t, HOST, 4096);
        const struct chore *operands[] = { &a, &a };
        struct plan p;
        plan_init(&p);
        bench_add(&p, &(struct bench_step){ .operands = operands,
                              .offset_bytes = 96,
                              .step = { .kind = STEP_COPY,
                                      .device = DEVICE_GPU,
                                      .dtype = DTYPE_U8,
                                      .n_inputs = 1,
                                      .n_outputs = 1,
                                      .count = 4001 } });
        bench_freeze(&p, 0);
        struct run run = { .plan = &p, .group = 1 };
        bench_launch(&t, &run);
        ck_assert(bench_wait(&t, &run, 10));
        ck_assert_int_eq(run.status, STATUS_INTERNAL);
        ck_assert_ptr_nonnull(strstr(run.why, "outside its buffer"));
        plan_deinit(&p);
        bench_release(&t, &a);
        bench_close(&t);
}
END_TEST

START_TEST(a_buffer_let_go_of_under_a_run_stays_until_its_end) {
        struct bench t;
        bench_prepare(&t, "1");
        bench_open(&t);
        uint64_t before = fakecuda_bytes(t.fake, 0);
        struct chore a = bench_memory(&t, 0, 4096), b = bench_memory(&t, 0, 4096);
        const struct chore *operands[] = { &a, &b };
        struct plan p;
        plan_init(&p);
        bench_add(&p, &(struct bench_step){ .operands = operands,
                              .step = { .kind = STEP_COPY,
                                      .device = DEVICE_GPU,
                                      .dtype = DTYPE_U8,
                                      .n_inputs = 1,
                                      .n_outputs = 1,
                                      .count = 4096 } });
        bench_freeze(&p, 0);
        struct run run = { .plan = &p, .group = 1 };
        fakecuda_hold(t.fake, NULL, "cuLaunchKernel");
        bench_launch(&t, &run);
        ck_assert(fakecuda_wait_held(t.fake, NULL, 1, 10));
        bench_release(&t, &a);
        bench_release(&t, &b);
        ck_assert_uint_gt(fakecuda_bytes(t.fake, 0), before);
        ck_assert(!bench_wait(&t, &run, 0.05));
        fakecuda_release(t.fake);
        ck_assert(bench_wait(&t, &run, 10));
        ck_assert_int_eq(run.status, STATUS_OK);
        plan_deinit(&p);
        bench_close(&t);
}
END_TEST

/* --- errors that the driver keeps --- */

START_TEST(E14_a_sticky_error_ends_all_runs_and_the_backend) {
        struct bench t;
        bench_prepare(&t, "2");
        bench_open(&t);
        struct chore a = bench_memory(&t, 0, 4096), b = bench_memory(&t, 1, 4096);
        const struct chore *one[] = { &a, &a }, *two[] = { &b, &b };
        struct plan p[2];
        struct run runs[2] = { { .plan = &p[0], .group = 1 }, { .plan = &p[1], .group = 2 } };
        for (uint32_t i = 0; i < 2; i++) {
                plan_init(&p[i]);
                bench_add(&p[i], &(struct bench_step){ .operands = i ? two : one,
                                         .step = { .kind = STEP_COPY,
                                                 .device = DEVICE_GPU + i,
                                                 .dtype = DTYPE_U8,
                                                 .n_inputs = 1,
                                                 .n_outputs = 1,
                                                 .count = 4096 } });
                bench_freeze(&p[i], i);
        }
        fakecuda_hold(t.fake, NULL, "cuLaunchKernel");
        bench_launch(&t, &runs[0]);
        fakecuda_strike(
                t.fake, &(struct fakecuda_strike){ .fault = FAKECUDA_STICKS, .call = "cuLaunchKernel" });
        bench_launch(&t, &runs[1]);
        fakecuda_release(t.fake);
        for (int i = 0; i < 2; i++) {
                ck_assert(bench_wait(&t, &runs[i], 10));
                ck_assert(runs[i].status == STATUS_DEVICE_LOST || (i == 0 && runs[i].status == STATUS_OK));
                plan_deinit(&p[i]);
        }
        ck_assert(t.b->is_broken);
        ck_assert_ptr_nonnull(strstr(t.b->broken_why, "CUDA_ERROR_ILLEGAL_ADDRESS"));
        struct chore late = {
                .kind = CHORE_IMPORT, .path = PATH_VMM_MADE, .device = DEVICE_GPU, .n_bytes = 1, .fd = -1
        };
        late = bench_import(&t, &late);
        ck_assert_int_eq(late.status, STATUS_DEVICE_LOST);
        bench_release(&t, &a);
        bench_release(&t, &b);
        t.b->base.ops->free(&t.b->base);
        fakecuda_close(t.fake);
}
END_TEST

/* --- memory of ours --- */

START_TEST(J2_a_hundred_groups_take_no_more_memory_than_one) {
        struct bench t;
        bench_prepare(&t, "2");
        bench_open(&t);
        struct chore a = bench_memory(&t, 0, 4096), b = bench_memory(&t, 1, 4096);
        const struct chore *operands[] = { &a, &b, &a, &b };
        struct plan p;
        uint64_t first[2] = { 0 };
        plan_init(&p);
        bench_add(&p, &(struct bench_step){ .operands = operands,
                              .step = { .kind = STEP_REDUCE,
                                      .device = DEVICE_GPU,
                                      .op = OP_SUM,
                                      .dtype = DTYPE_F32,
                                      .check_numerics = true,
                                      .n_inputs = 2,
                                      .n_outputs = 2,
                                      .count = 1024 } });
        bench_freeze(&p, 0);
        for (uint64_t group = 1; group <= 100; group++) {
                struct run run = { .plan = &p, .group = group };
                bench_launch(&t, &run);
                ck_assert(bench_wait(&t, &run, 10));
                ck_assert_int_eq(run.status, STATUS_OK);
                for (unsigned int k = 0; k < 2 && group == 1; k++)
                        first[k] = fakecuda_bytes(t.fake, k);
        }
        ck_assert_uint_eq(fakecuda_bytes(t.fake, 0), first[0]);
        ck_assert_uint_eq(fakecuda_bytes(t.fake, 1), first[1]);
        plan_deinit(&p);
        bench_release(&t, &a);
        bench_release(&t, &b);
        bench_close(&t);
}
END_TEST

UNIT_MAIN("cuda-run", 60, N2_two_replicas_on_one_gpu, two_gpus_reach_each_other, seven_replicas_on_four_gpus,
        N4_host_and_gpu_in_one, forty_eight_replicas_have_a_table, no_elements_are_a_meeting_too,
        F8_host_memory_that_cannot_be_pinned_works_and_says_so, gaps_are_left_alone,
        F8_gaps_are_left_alone_where_memory_is_copied, a_join_puts_devices_in_order,
        what_checks_find_comes_back, an_operand_outside_its_buffer_is_refused,
        a_buffer_let_go_of_under_a_run_stays_until_its_end, E14_a_sticky_error_ends_all_runs_and_the_backend,
        J2_a_hundred_groups_take_no_more_memory_than_one)
