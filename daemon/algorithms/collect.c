/* Everybody's values side by side in a result object, where a replica's own function will read them.
 *
 * One COPY step for each value of each contributor: rank r's part of an entry lies entry_part_bytes times r
 * behind the entry's offset, so that a reader finds it without being told. The parts of ranks that are not
 * there keep what they held. Values without elements make no step. */
#include "algorithms/algorithm.h"

#include <errno.h>
#include <string.h>
#include "model/device.h"

static struct operand input_at(const struct problem *problem, uint32_t i, uint32_t e) {
        const struct place *place = &problem->entries[i][e].input;
        return (struct operand){ .memory = place->memory,
                .offset_bytes = place->span.offset_bytes,
                .buffer = place->buffer,
                .rank = problem->ranks[i] };
}

static struct operand part_at(const struct problem *problem, uint32_t i, uint32_t e) {
        const struct entry *entry = &problem->entries[i][e];
        return (struct operand){ .memory = entry->output.memory,
                .offset_bytes = entry->output.span.offset_bytes + problem->slot_offset_bytes +
                                problem->ranks[i] * entry_part_bytes(entry),
                .result = entry->output.result,
                .rank = problem->ranks[i] };
}

static void fill_strides(const struct entry *entry, const struct step *added, struct plan *plan) {
        struct view view;
        entry_view(entry, &entry->input, &view);
        memcpy(plan_strides(plan, added, 0), view.strides, view.n_dims * sizeof(*view.strides));
        view_make(&view, entry->n_dims, entry->shape, NULL);
        memcpy(plan_strides(plan, added, 1), view.strides, view.n_dims * sizeof(*view.strides));
        plan_simplify_step(plan);
}

/* A GPU that has the value brings it, for no other may reach it. */
static uint32_t who_copies(const struct problem *problem, uint32_t i) {
        return problem->homes && problem->homes[i] >= DEVICE_GPU ? problem->homes[i] : problem->device;
}

static int build_copy(const struct problem *problem, uint32_t i, uint32_t e, struct plan *plan) {
        const struct entry *entry = &problem->entries[i][e];
        struct step step = { .kind = STEP_COPY,
                .device = who_copies(problem, i),
                .dtype = entry->dtype,
                .n_inputs = 1,
                .n_outputs = 1,
                .entry = e };
        CHECK(entry_count(entry, &step.count));
        if (step.count == 0)
                return 0;
        if (entry->input.n_strides) {
                step.n_dims = entry->n_dims;
                memcpy(step.shape, entry->shape, sizeof(step.shape));
        }
        struct step *added = plan_add_step(plan, &step);
        if (!added)
                return -ENOMEM;
        plan_inputs(plan, added)[0] = input_at(problem, i, e);
        plan_outputs(plan, added)[0] = part_at(problem, i, e);
        if (step.n_dims)
                fill_strides(entry, added, plan);
        return 0;
}

static int collect_build(const struct problem *problem, struct plan *plan) {
        plan->device = problem->device;
        for (uint32_t e = 0; e < problem->signature->n_entries; e++)
                for (uint32_t i = 0; i < problem->n_ranks; i++)
                        if (build_copy(problem, i, e, plan) < 0)
                                return -ENOMEM;
        return 0;
}

static const char *collect_unfit(const struct problem *problem) {
        return problem->signature->kind == KIND_MERGE_CALL ? NULL : "it does merge_calls alone";
}

const struct algorithm algorithm_collect = {
        .name = ALGORITHM_COLLECT,
        .order = ORDER_RANK,
        .unfit = collect_unfit,
        .build = collect_build,
};
