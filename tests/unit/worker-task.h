/* What tests give the GPU process to do. */
#pragma once

#include "engine.h"
#include "unit.h"

#define COUNT 1000 /* of floats */

/* The sum of both, into the first. */
static struct task *make_task(struct memory *a, struct memory *b) {
        struct task *t = engine_task_new();
        ck_assert_ptr_nonnull(t);
        const struct step step = { .kind = STEP_REDUCE,
                .device = DEVICE_GPU,
                .op = OP_SUM,
                .dtype = DTYPE_F32,
                .n_inputs = 2,
                .n_outputs = 1,
                .count = COUNT };
        struct step *s = plan_add_step(&t->plan, &step);
        ck_assert_ptr_nonnull(s);
        plan_inputs(&t->plan, s)[0] = (struct operand){ .memory = a };
        plan_inputs(&t->plan, s)[1] = (struct operand){ .memory = b, .rank = 1 };
        plan_outputs(&t->plan, s)[0] = (struct operand){ .memory = a };
        t->plan.device = DEVICE_GPU;
        plan_freeze(&t->plan, 4096);
        return t;
}
