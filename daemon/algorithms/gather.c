/* Everybody's values one behind the other along an axis, in the order of the ranks.
 *
 * One COPY step for each value of each contributor: it is read once, and written to where it belongs in each
 * output. Values without elements make no step, and so does one that lies already where it belongs (a replica
 * that gathers alone, in place). */
#include "algorithms/algorithm.h"

#include <errno.h>
#include <string.h>
#include "algorithms/places.h"
#include "model/device.h"

/* What half `i` brings for entry `e`. */
struct share {
        const struct problem *problem;
        uint32_t i, e, axis;
        uint64_t first, total; /* along the axis */
};

static bool is_output(const struct share *s, uint32_t k) {
        return problem_is_output(s->problem, k, s->e, &s->problem->entries[s->i][s->e].input);
}

static uint32_t count_outputs(const struct share *s) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < s->problem->n_ranks; k++)
                n += is_output(s, k);
        return n;
}

/* The result as half `k` has it, and the operand that is this share's part of it. */
static struct operand part_at(const struct share *s, uint32_t k, uint64_t *ret_strides) {
        struct entry whole = s->problem->entries[k][s->e];
        struct operand o = problem_output(s->problem, k, s->e);
        whole.shape[s->axis] = s->total;
        problem_strides(&whole, &whole.output, ret_strides);
        o.offset_bytes += s->first * ret_strides[s->axis] * dtype_bytes(whole.dtype);
        return o;
}

static int build_share(const struct share *s, struct plan *plan) {
        const struct entry *entry = &s->problem->entries[s->i][s->e];
        const struct options *options = &s->problem->signature->options;
        struct step step = { .kind = STEP_COPY,
                .device = plan->device,
                .dtype = entry->dtype,
                .check_numerics = options->check_numerics,
                .check_inputs = options->check_inputs,
                .n_inputs = 1,
                .n_outputs = count_outputs(s),
                .entry = s->e,
                .n_dims = entry->n_dims };
        memcpy(step.shape, entry->shape, sizeof(step.shape));
        CHECK(entry_count(entry, &step.count));
        if (step.count == 0 || (step.n_outputs == 0 && !step.check_numerics))
                return 0;
        struct step *added = plan_add_step(plan, &step);
        if (!added)
                return -ENOMEM;
        plan_inputs(plan, added)[0] = problem_input(s->problem, s->i, s->e);
        problem_strides(entry, &entry->input, plan_strides(plan, added, 0));
        for (uint32_t k = 0, n = 0; k < s->problem->n_ranks; k++)
                if (is_output(s, k)) {
                        plan_outputs(plan, added)[n] = part_at(s, k, plan_strides(plan, added, 1 + n));
                        n++;
                }
        plan_simplify_step(plan);
        return 0;
}

static int gather_build(const struct problem *problem, struct plan *plan) {
        plan->device = problem_worker(problem);
        for (uint32_t e = 0; e < problem->signature->n_entries; e++)
                for (uint32_t i = 0; i < problem->n_ranks; i++) {
                        const uint64_t *extents = plan_extents(plan, e);
                        const struct share s = { problem, i, e, signature_axis(problem->signature),
                                extents[i], extents[problem->n_ranks] };
                        if (build_share(&s, plan) < 0)
                                return -ENOMEM;
                }
        return 0;
}

static const char *gather_unfit(const struct problem *problem) {
        if (problem->signature->kind != KIND_GATHER)
                return "it does gathers alone";
        if (!problem_is_near(problem, problem_worker(problem)) || problem->is_spread)
                return "it copies between values that one device reaches, and there is none that reaches all "
                       "of these GPUs";
        return NULL;
}

const struct algorithm algorithm_gather = {
        .name = ALGORITHM_GATHER,
        .order = ORDER_RANK,
        .unfit = gather_unfit,
        .build = gather_build,
};
