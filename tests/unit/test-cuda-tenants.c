/* Users in turn on a device (P21): what is at work of each, in what order, and whose lane is next. */
#include <stdio.h>
#include "backends/cuda/flight.h"
#include "cuda-bench.h"

#define LARGE   (UINT64_C(40) << 20) /* a copy moves 80 MiB: alone more than users who share may have */
#define N_LARGE 14                   /* together 1.1 GiB: more than anybody may have */
#define N_LANES 31
#define MY_UID  1
#define OTHER   2

/* Copies in one buffer, so that many of them are cheap. */
struct job {
        struct plan plan;
        struct run run;
};

struct scene {
        struct bench t;
        struct chore memory[2]; /* in, out */
        uint32_t n_groups;
        bool is_shared; /* sessions of others exist, whether they bring work or not */
};

static void scene_init(struct scene *s) {
        *s = (struct scene){ .n_groups = 0 };
        bench_prepare(&s->t, "1");
        bench_open(&s->t);
        for (int i = 0; i < 2; i++)
                s->memory[i] = bench_memory(&s->t, 0, LARGE);
}

static void scene_deinit(struct scene *s) {
        for (int i = 0; i < 2; i++)
                bench_release(&s->t, &s->memory[i]);
        bench_close(&s->t);
}

static void job_launch(struct scene *s, struct job *j, uint32_t user, uint64_t n_bytes) {
        const struct chore *operands[] = { &s->memory[0], &s->memory[1] };
        plan_init(&j->plan);
        bench_add(&j->plan, &(struct bench_step){ .operands = operands,
                                    .step = { .kind = STEP_COPY,
                                            .device = DEVICE_GPU,
                                            .dtype = DTYPE_U8,
                                            .n_inputs = 1,
                                            .n_outputs = 1,
                                            .count = n_bytes } });
        bench_freeze(&j->plan, 0);
        j->run = (struct run){
                .plan = &j->plan, .group = ++s->n_groups, .user = user, .is_shared = s->is_shared
        };
        bench_launch(&s->t, &j->run);
}

static void job_end(struct scene *s, struct job *j) {
        ck_assert(bench_wait(&s->t, &j->run, 20));
        ck_assert_int_eq(j->run.status, STATUS_OK);
        plan_deinit(&j->plan);
}

static void expect_held(struct scene *s, unsigned int n) {
        ck_assert(fakecuda_wait_held(s->t.fake, NULL, n, 10));
        ck_assert_uint_eq(fakecuda_held(s->t.fake, NULL), n);
}

/* Polls for a while, so that whatever may go goes. */
static void settle(struct scene *s, struct job *j) {
        ck_assert(!bench_wait(&s->t, &j->run, 0.1));
}

START_TEST(P21_among_others_one_large_run_of_a_user_is_at_work) {
        struct scene s;
        struct job large[4], other;
        scene_init(&s);
        fakecuda_hold(s.t.fake, NULL, "cuLaunchKernel");
        job_launch(&s, &other, OTHER, 4096);
        for (int i = 0; i < 4; i++)
                job_launch(&s, &large[i], MY_UID, LARGE);
        settle(&s, &large[3]);
        expect_held(&s, 2);
        fakecuda_release(s.t.fake);
        for (int i = 0; i < 4; i++)
                job_end(&s, &large[i]);
        job_end(&s, &other);
        scene_deinit(&s);
}
END_TEST

START_TEST(P21_many_small_ones_may_be_at_work_at_once) {
        struct scene s;
        struct job small[20], other;
        scene_init(&s);
        fakecuda_hold(s.t.fake, NULL, "cuLaunchKernel");
        job_launch(&s, &other, OTHER, 4096);
        for (int i = 0; i < 20; i++)
                job_launch(&s, &small[i], MY_UID, 4096);
        settle(&s, &small[19]);
        expect_held(&s, 21);
        fakecuda_release(s.t.fake);
        for (int i = 0; i < 20; i++)
                job_end(&s, &small[i]);
        job_end(&s, &other);
        scene_deinit(&s);
}
END_TEST

/* Nor may small ones that come later pass a large one that waits for its turn. */
START_TEST(P21_runs_of_one_user_have_their_turn_in_order) {
        struct scene s;
        struct job large[2], small, other;
        scene_init(&s);
        s.is_shared = true;
        fakecuda_hold(s.t.fake, NULL, "cuLaunchKernel");
        job_launch(&s, &other, OTHER, 4096);
        job_launch(&s, &large[0], MY_UID, LARGE);
        job_launch(&s, &large[1], MY_UID, LARGE);
        job_launch(&s, &small, MY_UID, 64);
        settle(&s, &small);
        expect_held(&s, 2);
        fakecuda_let(s.t.fake, 2); /* the other's, and the first large one */
        job_end(&s, &large[0]);
        settle(&s, &small);
        expect_held(&s, 1);
        fakecuda_release(s.t.fake);
        job_end(&s, &large[1]);
        job_end(&s, &small);
        job_end(&s, &other);
        scene_deinit(&s);
}
END_TEST

START_TEST(P21_even_who_is_alone_has_a_limit_that_a_newcomer_waits_for) {
        struct scene s;
        static struct job large[N_LARGE];
        scene_init(&s);
        fakecuda_hold(s.t.fake, NULL, "cuLaunchKernel");
        for (int i = 0; i < N_LARGE; i++)
                job_launch(&s, &large[i], MY_UID, LARGE);
        settle(&s, &large[N_LARGE - 1]);
        expect_held(&s, (1u << 30) / (2 * LARGE));
        fakecuda_release(s.t.fake);
        for (int i = 0; i < N_LARGE; i++)
                job_end(&s, &large[i]);
        scene_deinit(&s);
}
END_TEST

/* Somebody with as many groups as there are lanes goes on giving each of them work: the next lane that is
 * free is another's all the same. */
START_TEST(P21_lanes_that_are_taken_for_good_keep_nobody_out) {
        struct scene s;
        static struct job first[N_LANES], second[N_LANES], other;
        scene_init(&s);
        fakecuda_hold(s.t.fake, NULL, "cuLaunchKernel");
        for (int i = 0; i < N_LANES; i++)
                job_launch(&s, &first[i], MY_UID, 64);
        job_launch(&s, &other, OTHER, 64);
        for (uint32_t i = 0; i < N_LANES; i++) { /* of the same groups */
                s.n_groups = i;
                job_launch(&s, &second[i], MY_UID, 64);
        }
        settle(&s, &other);
        expect_held(&s, N_LANES);
        fakecuda_let(s.t.fake, N_LANES);
        ck_assert(!bench_wait(&s.t, &other.run, 0.3));
        fakecuda_let(s.t.fake, 1);
        job_end(&s, &other);
        fakecuda_release(s.t.fake);
        for (int i = 0; i < N_LANES; i++) {
                job_end(&s, &first[i]);
                job_end(&s, &second[i]);
        }
        scene_deinit(&s);
}
END_TEST

UNIT_MAIN("cuda-tenants", 60, P21_among_others_one_large_run_of_a_user_is_at_work,
        P21_many_small_ones_may_be_at_work_at_once, P21_runs_of_one_user_have_their_turn_in_order,
        P21_even_who_is_alone_has_a_limit_that_a_newcomer_waits_for,
        P21_lanes_that_are_taken_for_good_keep_nobody_out)
