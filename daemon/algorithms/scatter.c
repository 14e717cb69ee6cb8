#include "algorithms/scatter.h"

#include <errno.h>
#include <string.h>
#include "algorithms/places.h"

/* Elements of a slice that lie in one run of the value, and from one such run to the next. */
static void take_runs(const struct entry *e, uint32_t axis, uint64_t first, struct step *step) {
        uint64_t inner = 1;
        for (uint32_t d = axis + 1; d < e->n_dims; d++)
                inner *= e->shape[d];
        step->first_element = first * inner;
        step->run_elements = step->shape[axis] * inner;
        step->run_stride = e->shape[axis] * inner;
}

static struct operand slice_of(
        const struct problem *problem, uint32_t i, const struct step *step, uint64_t at_elements) {
        struct operand o = problem_input(problem, i, step->entry);
        o.offset_bytes += at_elements * dtype_bytes(step->dtype);
        return o;
}

/* The slice of half `k`, which begins at `first`. */
static int build_slice(
        const struct problem *problem, struct step step, uint32_t k, uint64_t first, struct plan *plan) {
        const struct entry *mine = &problem->entries[k][step.entry];
        uint32_t axis = signature_axis(problem->signature);
        struct entry slice = *mine;
        slice.shape[axis] = mine->output_extent;
        memcpy(step.shape, slice.shape, sizeof(step.shape));
        step.n_dims = slice.n_dims;
        step.n_outputs = 1;
        CHECK(entry_count(&slice, &step.count));
        if (step.count == 0)
                return 0;
        take_runs(mine, axis, first, &step);
        struct step *added = plan_add_step(plan, &step);
        if (!added)
                return -ENOMEM;
        for (uint32_t i = 0; i < step.n_inputs; i++) {
                const struct entry *e = &problem->entries[i][step.entry];
                uint64_t *strides = plan_strides(plan, added, i);
                problem_strides(e, &e->input, strides);
                plan_inputs(plan, added)[i] = slice_of(problem, i, &step, first * strides[axis]);
        }
        plan_outputs(plan, added)[0] = problem_output(problem, k, step.entry);
        problem_strides(&slice, &slice.output, plan_strides(plan, added, step.n_inputs));
        plan_simplify_step(plan);
        return 0;
}

int scatter_build(const struct problem *problem, const struct step *step, struct plan *plan) {
        for (uint32_t k = 0; k < problem->n_ranks; k++)
                if (build_slice(problem, *step, k, plan_extents(plan, step->entry)[k], plan) < 0)
                        return -ENOMEM;
        return 0;
}
