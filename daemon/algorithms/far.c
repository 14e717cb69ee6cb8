#include "algorithms/far.h"

#include <errno.h>
#include <string.h>
#include "algorithms/places.h"
#include "model/device.h"

#define ROUND_BYTES (UINT64_C(4) << 20) /* of each value that passes through host memory */
#define HOST_MEMORY 0                   /* scratch that all reach */
#define ALIGNMENT   UINT64_C(64)

/* A piece of a step. */
struct round {
        const struct problem *problem;
        struct plan *plan;
        const struct step *step;
        uint32_t first; /* half of the first input */
        const struct place *source;
        uint64_t at, count;
        struct operand area; /* a slot for each far input, and one for the result */
        uint64_t slot_bytes;
        uint32_t n_far_inputs, n_far_outputs;
};

static bool is_far_output(const struct round *r, uint32_t i) {
        return problem_is_far(r->problem, r->step->device, i) &&
               problem_is_output(r->problem, i, r->step->entry, r->source);
}

/* As many elements as a round has; what is looked at as a whole, or lies with strides, is not cut. */
static uint64_t round_elements(const struct step *s) {
        uint64_t n = ROUND_BYTES / dtype_bytes(s->dtype);
        bool is_whole = s->n_dims || s->check_inputs || s->check_numerics || s->check_overflow;
        return is_whole || n > s->count ? s->count : n;
}

static int take_area(struct round *r) {
        const struct step *s = r->step;
        size_t in = dtype_bytes(s->dtype), out = dtype_bytes(s->output_dtype);
        r->slot_bytes = (r->count * (in > out ? in : out) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        for (uint32_t i = 0; i < s->n_inputs; i++)
                r->n_far_inputs += problem_is_far(r->problem, s->device, r->first + i);
        for (uint32_t i = 0; i < r->problem->n_ranks; i++)
                r->n_far_outputs += is_far_output(r, i);
        uint64_t n_slots = r->n_far_inputs + (r->n_far_outputs > 0);
        return n_slots ? plan_take_scratch(r->plan, HOST_MEMORY, n_slots * r->slot_bytes, &r->area) : 0;
}

/* --- operands --- */

/* Like `o`, in a slot. */
static struct operand in_slot(const struct round *r, struct operand o, uint32_t slot) {
        o.memory = NULL;
        o.buffer = o.result = 0;
        o.scratch = r->area.scratch;
        o.offset_bytes = r->area.offset_bytes + slot * r->slot_bytes;
        return o;
}

static struct operand at_piece(const struct round *r, struct operand o, enum dtype dtype) {
        o.offset_bytes += r->at * dtype_bytes(dtype);
        return o;
}

static struct operand near_input(const struct round *r, uint32_t half) {
        return at_piece(r, problem_input(r->problem, half, r->step->entry), r->step->dtype);
}

static struct operand near_output(const struct round *r, uint32_t half) {
        return at_piece(r, problem_output(r->problem, half, r->step->entry), r->step->output_dtype);
}

/* Operand `n` of a step: as it lies with its replica; NULL: densely, in a slot. */
static void set_strides(
        const struct round *r, const struct step *s, uint32_t n, uint32_t half, const struct place *place) {
        const struct entry *entry = &r->problem->entries[half][r->step->entry];
        if (s->n_dims && place)
                problem_strides(entry, place, plan_strides(r->plan, s, n));
        else if (s->n_dims)
                packed_strides(entry, plan_strides(r->plan, s, n));
}

/* --- steps --- */

static struct step *add_step(const struct round *r, struct step step) {
        step.entry = r->step->entry;
        step.first_element = r->at;
        step.count = r->count;
        step.n_dims = r->step->n_dims;
        memcpy(step.shape, r->step->shape, sizeof(step.shape));
        return plan_add_step(r->plan, &step);
}

static void simplify(const struct round *r, const struct step *s) {
        if (s->n_dims)
                plan_simplify_step(r->plan);
}

static struct step *add_copy(const struct round *r, uint32_t half, enum dtype dtype) {
        return add_step(r, (struct step){ .kind = STEP_COPY,
                                   .device = r->problem->homes[half],
                                   .dtype = dtype,
                                   .n_inputs = 1,
                                   .n_outputs = 1 });
}

static int add_bringing(const struct round *r, uint32_t half, uint32_t slot) {
        const struct step *s = add_copy(r, half, r->step->dtype);
        if (!s)
                return -ENOMEM;
        plan_inputs(r->plan, s)[0] = near_input(r, half);
        plan_outputs(r->plan, s)[0] = in_slot(r, near_input(r, half), slot);
        set_strides(r, s, 0, half, &r->problem->entries[half][r->step->entry].input);
        set_strides(r, s, 1, half, NULL);
        simplify(r, s);
        return 0;
}

static int add_fetching(const struct round *r, uint32_t half) {
        const struct step *s = add_copy(r, half, r->step->output_dtype);
        if (!s)
                return -ENOMEM;
        plan_inputs(r->plan, s)[0] = in_slot(r, (struct operand){ .rank = 0 }, r->n_far_inputs);
        plan_outputs(r->plan, s)[0] = near_output(r, half);
        set_strides(r, s, 0, half, NULL);
        set_strides(r, s, 1, half, &r->problem->entries[half][r->step->entry].output);
        simplify(r, s);
        return 0;
}

/* The step itself, over what is near and what was brought. */
static int add_work(const struct round *r) {
        const struct problem *problem = r->problem;
        const uint32_t e = r->step->entry;
        struct step step = *r->step;
        uint32_t slot = 0, n = 0;
        step.n_outputs = step.n_outputs - r->n_far_outputs + (r->n_far_outputs > 0);
        const struct step *s = add_step(r, step);
        if (!s)
                return -ENOMEM;
        for (; n < s->n_inputs; n++) {
                uint32_t half = r->first + n;
                bool is_far = problem_is_far(problem, s->device, half);
                struct operand o = near_input(r, half);
                plan_inputs(r->plan, s)[n] = is_far ? in_slot(r, o, slot++) : o;
                set_strides(r, s, n, half, is_far ? NULL : &problem->entries[half][e].input);
        }
        for (uint32_t i = 0; i < problem->n_ranks; i++) {
                if (!problem_is_output(problem, i, e, r->source) || is_far_output(r, i))
                        continue;
                plan_outputs(r->plan, s)[n - s->n_inputs] = near_output(r, i);
                set_strides(r, s, n++, i, &problem->entries[i][e].output);
        }
        if (r->n_far_outputs > 0) {
                plan_outputs(r->plan, s)[n - s->n_inputs] =
                        in_slot(r, (struct operand){ .rank = 0 }, r->n_far_inputs);
                set_strides(r, s, n, 0, NULL);
        }
        simplify(r, s);
        return 0;
}

/* --- rounds --- */

static int add_round(struct round *r) {
        int e = r->plan->n_steps > 0 ? plan_join(r->plan) : 0;
        uint32_t slot = 0;
        for (uint32_t i = 0; e == 0 && i < r->step->n_inputs; i++)
                if (problem_is_far(r->problem, r->step->device, r->first + i))
                        e = add_bringing(r, r->first + i, slot++);
        if (e == 0 && slot > 0)
                e = plan_join(r->plan);
        if (e == 0)
                e = add_work(r);
        if (e == 0 && r->n_far_outputs > 0)
                e = plan_join(r->plan);
        for (uint32_t i = 0; e == 0 && i < r->problem->n_ranks; i++)
                if (is_far_output(r, i))
                        e = add_fetching(r, i);
        return e;
}

/* Each round has its scratch where the one before had it. */
static uint64_t swap_scratch(struct plan *plan, uint64_t n_bytes) {
        uint64_t before = plan->n_scratch ? plan->scratch[0].n_bytes : 0;
        if (plan->n_scratch)
                plan->scratch[0].n_bytes = n_bytes;
        return before;
}

int far_build(const struct problem *problem, const struct step *step, uint32_t first,
        const struct place *source, struct plan *plan) {
        uint64_t each = round_elements(step), most = swap_scratch(plan, 0), taken;
        int e = 0;
        for (uint64_t at = 0; e == 0 && at < step->count; at += each) {
                struct round r = { .problem = problem,
                        .plan = plan,
                        .step = step,
                        .first = first,
                        .source = source,
                        .at = at,
                        .count = step->count - at < each ? step->count - at : each };
                e = take_area(&r);
                if (e == 0)
                        e = add_round(&r);
                taken = swap_scratch(plan, 0);
                most = taken > most ? taken : most;
        }
        swap_scratch(plan, most);
        return e;
}
