/* Every input where it lies, one fused pass in rank order, the result written once to each destination.
 *
 * A reduction is one REDUCE step per entry, a broadcast one COPY step, a barrier nothing. Entries that have
 * no elements, or that nobody receives and nothing looks at, make no step. All host devices reach the same
 * memory, so the device is the problem's: CPU:0, or the one where its result object lives. A result object is
 * one place for all halves: it is written once. */
#include "algorithms/algorithm.h"

#include <errno.h>
#include <string.h>

/* Nobody's: where `rank` is not among the contributors. */
#define NO_INDEX UINT32_MAX

static uint32_t index_of_rank(const struct problem *problem, uint32_t rank) {
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                if (problem->ranks[i] == rank)
                        return i;
        return NO_INDEX;
}

static bool is_same_place(const struct place *a, const struct place *b) {
        return a->file == b->file && a->span.offset_bytes == b->span.offset_bytes;
}

static struct operand operand_at(const struct place *place, uint32_t rank) {
        return (struct operand){
                .memory = place->memory,
                .offset_bytes = place->span.offset_bytes,
                .buffer = place->buffer,
                .rank = rank,
        };
}

/* An output, which may lie in a slot of a result object. */
static struct operand output_at(const struct problem *problem, uint32_t i, uint32_t e) {
        const struct place *place = &problem->entries[i][e].output;
        struct operand o = operand_at(place, problem->ranks[i]);
        if (place->object) {
                o.result = place->result;
                o.offset_bytes += problem->slot_offset_bytes;
        }
        return o;
}

/* Whether the half number `i` receives entry `e` in a place other than `source` (NULL: anywhere). */
static bool is_output(const struct problem *problem, uint32_t i, uint32_t e, const struct place *source) {
        const struct entry *entry = &problem->entries[i][e];
        if (entry->output.object)
                return i == 0;
        return entry->output.buffer && entry_has_destination(entry, problem->ranks[i]) &&
               !(source && is_same_place(source, &entry->output));
}

static uint32_t count_outputs(const struct problem *problem, uint32_t e, const struct place *source) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                n += is_output(problem, i, e, source);
        return n;
}

static void fill_outputs(
        const struct problem *problem, uint32_t e, const struct place *source, struct operand *outputs) {
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                if (is_output(problem, i, e, source))
                        *outputs++ = output_at(problem, i, e);
}

static bool has_strides(const struct problem *problem, uint32_t e) {
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                if (problem->entries[i][e].input.n_strides || problem->entries[i][e].output.n_strides)
                        return true;
        return false;
}

static void copy_strides(const struct entry *entry, const struct place *place, uint64_t *ret) {
        struct view view;
        entry_view(entry, place, &view);
        memcpy(ret, view.strides, view.n_dims * sizeof(*ret));
}

/* In the order of the operands. */
static void fill_strides(const struct problem *problem, const struct step *s, uint32_t first,
        const struct place *source, struct plan *plan) {
        uint32_t e = s->entry, n = 0;
        for (; n < s->n_inputs; n++)
                copy_strides(&problem->entries[first + n][e], &problem->entries[first + n][e].input,
                        plan_strides(plan, s, n));
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                if (is_output(problem, i, e, source))
                        copy_strides(&problem->entries[i][e], &problem->entries[i][e].output,
                                plan_strides(plan, s, n++));
}

/* The step of entry `e`: it reads the halves first .. first + n_inputs - 1. */
static int build_step(const struct problem *problem, struct step step, uint32_t first, struct plan *plan) {
        const struct place *source =
                step.kind == STEP_COPY ? &problem->entries[first][step.entry].input : NULL;
        const struct options *options = &problem->signature->options;

        step.dtype = problem->entries[first][step.entry].dtype;
        step.output_dtype = entry_output_dtype(&problem->entries[first][step.entry]);
        step.check_numerics = options->check_numerics;
        step.check_overflow = options->check_overflow;
        step.check_inputs = options->check_inputs;
        CHECK(entry_count(&problem->entries[first][step.entry], &step.count));
        step.n_outputs = count_outputs(problem, step.entry, source);
        if (has_strides(problem, step.entry)) {
                step.n_dims = problem->entries[first][step.entry].n_dims;
                memcpy(step.shape, problem->entries[first][step.entry].shape, sizeof(step.shape));
        }
        if (step.count == 0 || (step.n_outputs == 0 && !step.check_numerics && !step.check_overflow))
                return 0;

        struct step *added = plan_add_step(plan, &step);
        if (!added)
                return -ENOMEM;
        struct operand *inputs = plan_inputs(plan, added);
        for (uint32_t i = 0; i < step.n_inputs; i++) {
                inputs[i] =
                        operand_at(&problem->entries[first + i][step.entry].input, problem->ranks[first + i]);
                inputs[i].checksum = problem->entries[first + i][step.entry].input_checksum;
                if (step.has_weights)
                        inputs[i].weight = problem->weights[first + i];
        }
        fill_outputs(problem, step.entry, source, plan_outputs(plan, added));
        if (step.n_dims) {
                fill_strides(problem, added, first, source, plan);
                plan_simplify_step(plan);
        }
        return 0;
}

static int build_reduce(const struct problem *problem, uint32_t e, struct plan *plan) {
        enum op op = problem->signature->op;
        const struct options *options = &problem->signature->options;
        struct step step = {
                .kind = STEP_REDUCE,
                .op = op,
                .rounding = options->rounding,
                .has_weights = options->has_weight,
                .total_weight = options->has_weight ? problem_total_weight(problem) : 0,
                .divisor = op == OP_MEAN ? problem->divisor : 0,
                .n_inputs = problem->n_ranks,
                .entry = e,
        };
        return build_step(problem, step, 0, plan);
}

static int build_broadcast(const struct problem *problem, uint32_t e, struct plan *plan) {
        uint32_t root = index_of_rank(problem, problem->signature->root);
        return build_step(problem, (struct step){ .kind = STEP_COPY, .n_inputs = 1, .entry = e }, root, plan);
}

static int one_device_build(const struct problem *problem, struct plan *plan) {
        bool is_broadcast = kind_has_root(problem->signature->kind);

        plan->algorithm = algorithm_one_device.name;
        plan->order = ORDER_RANK;
        plan->device = problem->device;
        for (uint32_t e = 0; e < problem->signature->n_entries; e++) {
                int r = is_broadcast ? build_broadcast(problem, e, plan) : build_reduce(problem, e, plan);
                if (r < 0)
                        return r;
        }
        return 0;
}

static bool one_device_eligible(const struct problem *problem) {
        switch (problem->signature->kind) {
        case KIND_REDUCE:
        case KIND_BATCH_REDUCE:
        case KIND_BARRIER: return true;
        case KIND_BROADCAST:
        case KIND_MERGE_RESULT: return index_of_rank(problem, problem->signature->root) != NO_INDEX;
        case KIND_UNSPECIFIED:
        case KIND_GATHER:
        case KIND_REDUCE_SCATTER:
        case KIND_MERGE_CALL:
        case N_KIND: break;
        }
        return false;
}

const struct algorithm algorithm_one_device = {
        .name = "one_device",
        .eligible = one_device_eligible,
        .build = one_device_build,
};
