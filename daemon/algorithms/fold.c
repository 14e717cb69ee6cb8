#include "algorithms/fold.h"

#include <errno.h>
#include <string.h>
#include "algorithms/places.h"

uint64_t fold_count(const struct problem *problem, uint32_t i, uint32_t e) {
        const struct entry *entry = &problem->entries[i][e];
        uint64_t n = 1;
        for (uint32_t d = 0; d < entry->n_dims; d++)
                if (problem->signature->axes >> d & 1)
                        n *= entry->shape[d];
        return n;
}

double fold_total_weight(const struct problem *problem, uint32_t e) {
        double total = 0;
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                total += problem->weights[i] * (double)fold_count(problem, i, e);
        return total;
}

/* The dimensions of an entry that stay, or those that go. */
static uint32_t pick(const uint64_t *numbers, uint32_t n_dims, uint16_t dims, uint64_t *ret) {
        uint32_t n = 0;
        for (uint32_t d = 0; d < n_dims; d++)
                if (dims >> d & 1)
                        ret[n++] = numbers[d];
        return n;
}

static uint16_t kept(const struct problem *problem) {
        return ~problem->signature->axes;
}

static uint32_t count_outputs(const struct problem *problem, uint32_t e) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                n += problem_is_output(problem, i, e, NULL);
        return n;
}

static void fill_operands(const struct problem *problem, const struct step *added, struct plan *plan) {
        uint32_t e = added->entry, n = 0;
        uint64_t strides[MAX_DIMS];
        for (uint32_t i = 0; i < problem->n_ranks; i++) {
                const struct entry *entry = &problem->entries[i][e];
                if (fold_count(problem, i, e) == 0)
                        continue;
                plan_inputs(plan, added)[n] = problem_input(problem, i, e);
                problem_strides(entry, &entry->input, strides);
                if (added->n_dims)
                        pick(strides, entry->n_dims, kept(problem), plan_strides(plan, added, n));
                n++;
        }
        for (uint32_t i = 0; i < problem->n_ranks; i++) {
                const struct entry *entry = &problem->entries[i][e];
                struct view view;
                if (!problem_is_output(problem, i, e, NULL))
                        continue;
                plan_inputs(plan, added)[n] = problem_output(problem, i, e);
                entry_output_view(problem->signature, entry, &view);
                if (added->n_dims)
                        pick(view.strides, entry->n_dims, kept(problem), plan_strides(plan, added, n));
                n++;
        }
}

/* How each input is combined. */
static int fill_folds(const struct problem *problem, uint32_t e, struct plan *plan) {
        uint16_t axes = problem->signature->axes;
        uint64_t strides[MAX_DIMS], *to = plan_add_folds(plan, (uint32_t)__builtin_popcount(axes));
        if (!to)
                return -ENOMEM;
        for (uint32_t i = 0; i < problem->n_ranks; i++) {
                const struct entry *entry = &problem->entries[i][e];
                if (fold_count(problem, i, e) == 0)
                        continue;
                to += pick(entry->shape, entry->n_dims, axes, to);
                problem_strides(entry, &entry->input, strides);
                to += pick(strides, entry->n_dims, axes, to);
        }
        return 0;
}

int fold_build(const struct problem *problem, const struct step *like, struct plan *plan) {
        uint32_t e = like->entry;
        struct step step = *like;
        uint64_t total = 0;
        step.n_dims =
                pick(problem->entries[0][e].shape, problem->entries[0][e].n_dims, kept(problem), step.shape);
        step.count = 1;
        for (uint32_t d = 0; d < step.n_dims; d++)
                step.count *= step.shape[d];
        step.n_inputs = 0;
        for (uint32_t i = 0; i < problem->n_ranks; i++) {
                uint64_t n = fold_count(problem, i, e);
                step.n_inputs += n > 0;
                step.fold_count = n > step.fold_count ? n : step.fold_count;
                total += n;
        }
        step.n_outputs = count_outputs(problem, e);
        if (step.count == 0 || step.n_outputs == 0)
                return 0;
        step.divisor = step.op == OP_MEAN ? (uint32_t)total : 0; /* the planner has looked */
        step.total_weight = step.has_weights ? fold_total_weight(problem, e) : 0;
        bool is_exact = step.op == OP_MEAN && dtype_is_integer(step.dtype);
        step.fold_dtype = is_exact ? DTYPE_UNSPECIFIED : accumulation_dtype(problem->signature, step.dtype);
        struct step *added = plan_add_step(plan, &step);
        if (!added)
                return -ENOMEM;
        fill_operands(problem, added, plan);
        if (step.n_dims)
                plan_simplify_step(plan);
        return fill_folds(problem, e, plan);
}
