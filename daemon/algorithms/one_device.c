/* Every input where it lies, one fused pass in rank order, the result written once to each destination.
 *
 * A reduction is one REDUCE step per entry, a broadcast one COPY step, a barrier nothing. Entries that have
 * no elements, or that nobody receives and nothing looks at, make no step. Sparse entries: sparse.c. The
 * device that reduces is the one that the options name, which need not hold any replica, or the problem's: it
 * reads all inputs in place and writes all outputs. Host devices all reach the same; what a GPU does not
 * reach goes by way of host memory.
 */
#include "algorithms/algorithm.h"

#include <errno.h>
#include <string.h>
#include "algorithms/far.h"
#include "algorithms/fold.h"
#include "algorithms/places.h"
#include "algorithms/scatter.h"
#include "algorithms/sparse.h"

static uint32_t count_outputs(const struct problem *problem, uint32_t e, const struct place *source) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                n += problem_is_output(problem, i, e, source);
        return n;
}

static void fill_outputs(
        const struct problem *problem, uint32_t e, const struct place *source, struct operand *outputs) {
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                if (problem_is_output(problem, i, e, source))
                        *outputs++ = problem_output(problem, i, e);
}

/* In the order of the operands. */
static void fill_strides(const struct problem *problem, const struct step *s, uint32_t first,
        const struct place *source, struct plan *plan) {
        uint32_t e = s->entry, n = 0;
        for (; n < s->n_inputs; n++)
                problem_strides(&problem->entries[first + n][e], &problem->entries[first + n][e].input,
                        plan_strides(plan, s, n));
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                if (problem_is_output(problem, i, e, source))
                        problem_strides(&problem->entries[i][e], &problem->entries[i][e].output,
                                plan_strides(plan, s, n++));
}

/* The step of entry `e`: it reads the halves first .. first + n_inputs - 1. */
static int build_step(const struct problem *problem, struct step step, uint32_t first, struct plan *plan) {
        const struct place *source =
                step.kind == STEP_COPY ? &problem->entries[first][step.entry].input : NULL;

        CHECK(entry_count(&problem->entries[first][step.entry], &step.count));
        step.n_outputs = count_outputs(problem, step.entry, source);
        if (problem_has_strides(problem, step.entry)) {
                step.n_dims = problem->entries[first][step.entry].n_dims;
                memcpy(step.shape, problem->entries[first][step.entry].shape, sizeof(step.shape));
        }
        if (step.count == 0 || (step.n_outputs == 0 && !step.check_numerics && !step.check_overflow))
                return 0;
        if (!problem_is_near(problem, step.device))
                return far_build(problem, &step, first, source, plan);

        struct step *added = plan_add_step(plan, &step);
        if (!added)
                return -ENOMEM;
        struct operand *inputs = plan_inputs(plan, added);
        for (uint32_t i = 0; i < step.n_inputs; i++)
                inputs[i] = problem_input(problem, first + i, step.entry);
        fill_outputs(problem, step.entry, source, plan_outputs(plan, added));
        if (step.n_dims) {
                fill_strides(problem, added, first, source, plan);
                plan_simplify_step(plan);
        }
        return 0;
}

/* What all steps of entry `e` have in common. */
static struct step step_of(const struct problem *problem, uint32_t e, const struct plan *plan) {
        const struct options *options = &problem->signature->options;
        return (struct step){ .device = plan->device,
                .dtype = problem->entries[0][e].dtype,
                .output_dtype = entry_output_dtype(&problem->entries[0][e]),
                .check_numerics = options->check_numerics,
                .check_overflow = options->check_overflow,
                .check_inputs = options->check_inputs,
                .entry = e };
}

static int build_reduce(const struct problem *problem, uint32_t e, struct plan *plan) {
        enum op op = problem->signature->op;
        const struct options *options = &problem->signature->options;
        struct step step = step_of(problem, e, plan);
        step.kind = STEP_REDUCE;
        step.op = op;
        step.rounding = options->rounding;
        step.has_weights = options->has_weight;
        step.total_weight = options->has_weight ? problem_total_weight(problem) : 0;
        step.divisor = op == OP_MEAN ? problem->divisor : 0;
        step.n_inputs = problem->n_ranks;
        if (problem->signature->kind == KIND_REDUCE_SCATTER)
                return scatter_build(problem, &step, plan);
        return problem->signature->axes ? fold_build(problem, &step, plan)
                                        : build_step(problem, step, 0, plan);
}

static int build_broadcast(const struct problem *problem, uint32_t e, struct plan *plan) {
        uint32_t root = problem_index_of_rank(problem, problem->signature->root);
        struct step step = step_of(problem, e, plan);
        step.kind = STEP_COPY;
        step.n_inputs = 1;
        return build_step(problem, step, root, plan);
}

static int one_device_build(const struct problem *problem, struct plan *plan) {
        bool is_broadcast = kind_has_root(problem->signature->kind);

        CLEANUP_SPARSE struct sparse_work *sparse = NULL;
        plan->device = problem_worker(problem);
        int r = sparse_prepare(problem, plan, &sparse);
        for (uint32_t e = 0; r == 0 && e < problem->signature->n_entries; e++) {
                if (problem->entries[0][e].layout == LAYOUT_SPARSE)
                        r = sparse_build(problem, e, sparse, plan);
                else
                        r = is_broadcast ? build_broadcast(problem, e, plan) : build_reduce(problem, e, plan);
        }
        return r;
}

static const char *one_device_unfit(const struct problem *problem) {
        const struct signature *s = problem->signature;
        switch (s->kind) {
        case KIND_REDUCE:
        case KIND_BATCH_REDUCE:
                if (s->axes && !problem_is_near(problem, problem_worker(problem)))
                        return "over axes one device reads all values where they lie, and there is none "
                               "that reaches all of these GPUs";
                break;
        case KIND_BARRIER: break;
        case KIND_BROADCAST:
        case KIND_MERGE_RESULT:
                if (problem_index_of_rank(problem, problem->signature->root) == NO_INDEX)
                        return "the root is not among the contributors";
                break;
        case KIND_REDUCE_SCATTER:
                if (!problem_is_near(problem, problem_worker(problem)))
                        return "it takes slices of what one device reaches, and there is none that reaches "
                               "all of these GPUs";
                if (problem->homes && (s->options.check_numerics || s->options.check_overflow))
                        return "GPUs do not tell which element of the whole a check of a slice has found";
                break;
        case KIND_UNSPECIFIED:
        case KIND_GATHER:
        case KIND_MERGE_CALL:
        case N_KIND: return "it does not do this kind of collective";
        }
        if (problem->is_spread && !topology_is_full(problem->topology, problem->topology->devices,
                                          problem->topology->n_devices))
                return "a replica has values on several GPUs, which do not reach each other";
        return NULL;
}

const struct algorithm algorithm_one_device = {
        .name = ALGORITHM_ONE_DEVICE,
        .order = ORDER_RANK,
        .unfit = one_device_unfit,
        .build = one_device_build,
};
