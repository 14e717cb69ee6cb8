/* Host memory that the driver would not register, which a run copies in and out: in slices, with gaps left
 * alone, and where a client has taken it away that run ends and no other (P16, F8). */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cuda-bench.h"
#include "unit.h"

static void open_unpinned(struct bench *t) {
        bench_prepare(t, "1");
        setenv("FAKECUDA_FAIL", "cuMemHostRegister:1+=CUDA_ERROR_OUT_OF_MEMORY", 1);
        bench_open(t);
}

/* c = a + b */
static void add(struct plan *p, const struct chore *const operands[3], uint64_t count) {
        plan_init(p);
        bench_add(p, &(struct bench_step){ .operands = operands,
                             .step = { .kind = STEP_REDUCE,
                                     .device = DEVICE_GPU,
                                     .op = OP_SUM,
                                     .dtype = DTYPE_U32,
                                     .n_inputs = 2,
                                     .n_outputs = 1,
                                     .count = count } });
        bench_freeze(p, 0);
}

/* --- much of it --- */

#define MUCH   (UINT64_C(40) << 20) /* bytes: more than two slices, and less than three */
#define STRIDE 65536                /* in elements: few are reduced, for the double of a GPU is slow */
#define N_MUCH (MUCH / 4 / STRIDE)

/* b = a + b, of every 65,536th element. */
static void add_much(struct plan *p, const struct chore *a, const struct chore *b) {
        plan_init(p);
        const struct step step = { .kind = STEP_REDUCE,
                .device = DEVICE_GPU,
                .op = OP_SUM,
                .dtype = DTYPE_U32,
                .n_inputs = 2,
                .n_outputs = 1,
                .count = N_MUCH,
                .n_dims = 1,
                .shape = { N_MUCH } };
        struct step *s = plan_add_step(p, &step);
        plan_inputs(p, s)[0] = (struct operand){ .memory = a->memory };
        plan_inputs(p, s)[1] = (struct operand){ .memory = b->memory, .rank = 1 };
        plan_outputs(p, s)[0] = (struct operand){ .memory = b->memory };
        for (uint32_t i = 0; i < 3; i++)
                plan_strides(p, s, i)[0] = STRIDE;
        bench_freeze(p, 0);
}

START_TEST(F8_much_is_copied_in_slices) {
        struct bench t;
        struct plan p;
        open_unpinned(&t);
        struct chore a = bench_memory(&t, HOST, MUCH), b = bench_memory(&t, HOST, MUCH);
        uint32_t *x = bench_data(&a), *y = bench_data(&b);
        for (uint32_t i = 0; i < MUCH / 4; i++) {
                x[i] = i;
                y[i] = 7 * i + 1;
        }
        add_much(&p, &a, &b);
        struct run run = { .plan = &p, .group = 1 };
        bench_launch(&t, &run); /* and its first slice */
        ck_assert(!run.is_over);
        x[MUCH / 4 - STRIDE] = 5; /* a later slice brings that */
        ck_assert(bench_wait(&t, &run, 20));
        ck_assert_msg(run.status == STATUS_OK, "%s", run.why);
        ck_assert_uint_eq(y[MUCH / 4 - STRIDE], 5 + 7 * (MUCH / 4 - STRIDE) + 1);
        for (uint32_t i = 0; i < MUCH / 4 - STRIDE; i++)
                if (y[i] != (i % STRIDE ? 7 * i + 1 : 8 * i + 1))
                        ck_abort_msg("element %u is %u", i, y[i]);
        plan_deinit(&p);
        bench_release(&t, &a);
        bench_release(&t, &b);
        bench_close(&t);
}
END_TEST

#define ROWS     20000 /* of three elements: many times what travels at once */
#define ROW      10    /* in elements, from one to the next */
#define IN_A_ROW 2

START_TEST(F8_gaps_of_a_large_output_are_left_alone) {
        struct bench t;
        struct plan p;
        open_unpinned(&t);
        struct chore in = bench_memory(&t, HOST, ROWS * 3 * 4), out = bench_memory(&t, HOST, ROWS * ROW * 4);
        uint32_t *from = bench_data(&in), *to = bench_data(&out);
        for (uint32_t i = 0; i < ROWS * 3; i++)
                from[i] = i;
        memset(to, 0xff, ROWS * ROW * 4);
        plan_init(&p);
        const struct step step = { .kind = STEP_COPY,
                .device = DEVICE_GPU,
                .dtype = DTYPE_U32,
                .n_inputs = 1,
                .n_outputs = 1,
                .count = ROWS * 3,
                .n_dims = 2,
                .shape = { ROWS, 3 } };
        struct step *s = plan_add_step(&p, &step);
        plan_inputs(&p, s)[0] = (struct operand){ .memory = in.memory };
        plan_outputs(&p, s)[0] = (struct operand){ .memory = out.memory, .offset_bytes = 4 };
        memcpy(plan_strides(&p, s, 0), ((const uint64_t[]){ 3, 1 }), 16);
        memcpy(plan_strides(&p, s, 1), ((const uint64_t[]){ ROW, IN_A_ROW }), 16);
        bench_freeze(&p, 0);
        bench_run(&t, &p);
        for (uint32_t i = 0; i < ROWS * ROW; i++) {
                const uint32_t row = i / ROW, at = i % ROW;
                const bool is_element = at % IN_A_ROW == 1 && at / IN_A_ROW < 3;
                const uint32_t expected = is_element ? 3 * row + at / IN_A_ROW : UINT32_MAX;
                if (to[i] != expected)
                        ck_abort_msg("element %u is %u, not %u", i, to[i], expected);
        }
        plan_deinit(&p);
        bench_release(&t, &in);
        bench_release(&t, &out);
        bench_close(&t);
}
END_TEST

/* --- and what comes behind it --- */

struct slot {
        _Atomic uint64_t ready, done;
};

/* Its client's stream comes to the second behind the first: who let that one wait before this one in the
 * streams of their group would wait for ever. */
START_TEST(what_waits_for_its_client_waits_behind_what_is_copied) {
        struct bench t;
        struct plan first, second;
        bench_prepare(&t, "1");
        bench_open(&t);
        fakecuda_strike(t.fake, &(struct fakecuda_strike){ .fault = FAKECUDA_FAILS,
                                        .call = "cuMemHostRegister",
                                        .code = CUDA_ERROR_OUT_OF_MEMORY });
        struct chore a = bench_memory(&t, HOST, MUCH), b = bench_memory(&t, HOST, MUCH),
                     in = bench_memory(&t, 0, 4096), out = bench_memory(&t, 0, 4096),
                     page = bench_memory(&t, HOST, sizeof(struct slot));
        ck_assert_ptr_nonnull(bench_fallback(&t, "pinned")); /* of a alone */
        add_much(&first, &a, &b);
        plan_init(&second);
        bench_add(&second, &(struct bench_step){ .operands = (const struct chore *const[]){ &in, &out },
                                   .step = { .kind = STEP_COPY,
                                           .device = DEVICE_GPU,
                                           .dtype = DTYPE_U8,
                                           .n_inputs = 1,
                                           .n_outputs = 1,
                                           .count = 4096 } });
        bench_freeze(&second, 0);
        const struct signal signal = { .page = page.memory, .value = 1 };
        struct run run = { .plan = &first, .group = 1 },
                   next = { .plan = &second, .group = 1, .signals = &signal, .n_signals = 1 };
        bench_launch(&t, &run);
        bench_launch(&t, &next);
        ck_assert(bench_wait(&t, &run, 10));
        ck_assert_msg(run.status == STATUS_OK, "%s", run.why);
        ck_assert(!next.is_over);
        atomic_store(&((struct slot *)bench_data(&page))->ready, 1);
        ck_assert(bench_wait(&t, &next, 10));
        ck_assert_msg(next.status == STATUS_OK, "%s", next.why);
        plan_deinit(&first);
        plan_deinit(&second);
        for (struct chore *const *c = (struct chore *const[]){ &a, &b, &in, &out, &page, NULL }; *c; c++)
                bench_release(&t, *c);
        bench_close(&t);
}
END_TEST

/* --- what is not there --- */

static void take_away(const struct chore *chore) {
        ck_assert_int_eq(ftruncate(chore->fd, 0), 0); /* as a pool's page that was punched out */
}

/* Of a, b and what they go to this one is gone. */
static void run_without(uint32_t gone) {
        struct bench t;
        struct plan p, other;
        open_unpinned(&t);
        struct chore m[3], good[3];
        for (uint32_t i = 0; i < 3; i++) {
                m[i] = bench_memory(&t, HOST, 8192);
                good[i] = bench_memory(&t, HOST, 8192);
                memset(bench_data(&m[i]), 1, 8192);
                memset(bench_data(&good[i]), 1, 8192);
        }
        add(&p, (const struct chore *const[]){ &m[0], &m[1], &m[2] }, 2048);
        add(&other, (const struct chore *const[]){ &good[0], &good[1], &good[2] }, 2048);
        take_away(&m[gone]);
        struct run run = { .plan = &p, .group = 1 }, next = { .plan = &other, .group = 1 };
        bench_launch(&t, &run);
        bench_launch(&t, &next);
        ck_assert(bench_wait(&t, &run, 10) && bench_wait(&t, &next, 10));
        ck_assert_int_eq(run.status, STATUS_BAD_FD);
        ck_assert_uint_eq(run.culprit, gone + 1);
        ck_assert_int_eq(run.is_untouched, gone < 2);
        if (gone < 2)
                ck_assert_uint_eq(*(uint32_t *)bench_data(&m[2]), 0x01010101); /* nothing was written */
        ck_assert_msg(next.status == STATUS_OK, "%s", next.why);
        ck_assert_uint_eq(*(uint32_t *)bench_data(&good[2]), 0x02020202);
        plan_deinit(&p);
        plan_deinit(&other);
        for (uint32_t i = 0; i < 3; i++) {
                bench_release(&t, &m[i]);
                bench_release(&t, &good[i]);
        }
        bench_close(&t);
}

START_TEST(P16_an_input_that_is_gone_ends_its_run_alone) {
        run_without(0);
        run_without(1);
}
END_TEST

START_TEST(P16_an_output_that_is_gone_ends_its_run_alone) {
        run_without(2);
}
END_TEST

UNIT_MAIN("cuda-stand-in", 60, F8_much_is_copied_in_slices, F8_gaps_of_a_large_output_are_left_alone,
        what_waits_for_its_client_waits_behind_what_is_copied, P16_an_input_that_is_gone_ends_its_run_alone,
        P16_an_output_that_is_gone_ends_its_run_alone)
