/* Sparse values: what the replicas bring is laid end to end in the order of the ranks, rows and indices
 * alike.
 *
 *     phase 1       INDICES   each rank's indices to scratch, each one looked at there
 *     coalesce:     ORDER     sort, merge, ..., count, number: which rows meet, and how long the result is
 *     last phase    COPY      rows and indices to each output (MEAN: REDUCE of one input)
 *     coalesce:     SCATTER_ADD, ORDER write
 *
 * So nothing is written before every index was found good and every output found long enough, and what is
 * written follows from memory that no client can change. Scratch is one index for each row that comes in,
 * with coalesce two pairs more; nothing is ever as large as the dense value. */
#include "algorithms/sparse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "algorithms/places.h"

struct sparse_entry {
        uint32_t entry;
        uint64_t n_rows; /* that come in */
        struct operand raw, pairs[2], numbers;
        uint32_t sorted; /* which of the pairs is, in the end */
};

struct sparse_work {
        uint32_t n, next;
        struct sparse_entry entries[];
};

void sparse_work_free(struct sparse_work *w) {
        free(w);
}

static bool contributes(const struct problem *problem, uint32_t i) {
        return !kind_has_root(problem->signature->kind) || problem->ranks[i] == problem->signature->root;
}

static uint64_t rows_of(const struct problem *problem, uint32_t i, uint32_t e) {
        return contributes(problem, i) ? problem->entries[i][e].shape[0] : 0;
}

static uint64_t rows_of_all(const struct problem *problem, uint32_t e) {
        uint64_t n = 0;
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                n += rows_of(problem, i, e);
        return n;
}

/* --- what is refused --- */

/* The half whose output has the least room; NO_INDEX: nobody receives. All that name one result object are
 * asked. */
static uint32_t least_room(const struct problem *problem, uint32_t e) {
        uint32_t least = NO_INDEX;
        for (uint32_t i = 0; i < problem->n_ranks; i++) {
                const struct entry *entry = &problem->entries[i][e];
                if (!entry->output.object && !problem_is_output(problem, i, e, NULL))
                        continue;
                if (least == NO_INDEX || entry->output_extent < problem->entries[least][e].output_extent)
                        least = i;
        }
        return least;
}

static enum status check_room(const struct problem *problem, uint32_t e, struct error *err) {
        uint64_t needed = rows_of_all(problem, e);
        uint32_t least = least_room(problem, e);
        if (problem->signature->options.coalesce && needed > UINT32_MAX) {
                error_init(err, STATUS_LIMIT);
                err->used = needed;
                err->limit = UINT32_MAX;
                err->entry = (int32_t)e;
                return error_set(
                        err, STATUS_LIMIT, FIELD_INDICES, "rows to be coalesced; bring them in parts");
        }
        if (problem->signature->options.coalesce || least == NO_INDEX ||
                problem->entries[least][e].output_extent >= needed)
                return STATUS_OK;
        error_init(err, STATUS_INVALID);
        err->entry = (int32_t)e;
        err->rank = (int32_t)problem->ranks[least];
        return error_set(err, STATUS_INVALID, FIELD_SIZE,
                "the result of entry %u has %llu rows, and the output of R%u has room for %llu; nothing was "
                "written",
                e, (unsigned long long)needed, problem->ranks[least],
                (unsigned long long)problem->entries[least][e].output_extent);
}

enum status sparse_check(const struct problem *problem, struct error *err) {
        enum status status = STATUS_OK;
        if (problem->n_sparse == 0)
                return STATUS_OK;
        if (!problem_is_near(problem, problem_worker(problem))) {
                error_init(err, STATUS_UNSUPPORTED);
                return error_set(err, STATUS_UNSUPPORTED, FIELD_LAYOUT,
                        "sparse values are done by one device that reads all of them where they lie, and "
                        "there "
                        "is none that reaches all of these GPUs; bring them on GPUs with peer access, or in "
                        "host "
                        "memory");
        }
        for (uint32_t e = 0; status == STATUS_OK && e < problem->signature->n_entries; e++)
                if (problem->entries[0][e].layout == LAYOUT_SPARSE)
                        status = check_room(problem, e, err);
        return status;
}

/* --- steps --- */

/* A step with these operands. */
static int add(
        struct plan *plan, struct step step, const struct operand *inputs, const struct operand *output) {
        step.device = plan->device;
        step.n_outputs = output ? 1 : 0;
        struct step *added = plan_add_step(plan, &step);
        if (!added)
                return -ENOMEM;
        memcpy(plan_inputs(plan, added), inputs, step.n_inputs * sizeof(*inputs));
        if (output)
                *plan_outputs(plan, added) = *output;
        return 0;
}

static struct operand moved_by(struct operand o, uint64_t n_bytes) {
        o.offset_bytes += n_bytes;
        return o;
}

static int take_indices(const struct problem *problem, struct sparse_entry *se, struct plan *plan) {
        uint64_t first = 0;
        int r = 0;
        for (uint32_t i = 0; r == 0 && i < problem->n_ranks; i++) {
                const struct entry *entry = &problem->entries[i][se->entry];
                uint64_t n = rows_of(problem, i, se->entry);
                struct operand input = problem_operand(problem, i, &entry->sparse.indices);
                struct operand output = moved_by(se->raw, first * dtype_bytes(entry->sparse.index_dtype));
                if (n > 0)
                        r = add(plan,
                                (struct step){ .kind = STEP_INDICES,
                                        .dtype = entry->sparse.index_dtype,
                                        .bound = entry->sparse.dense_shape[0],
                                        .entry = se->entry,
                                        .n_inputs = 1,
                                        .count = n },
                                &input, &output);
                first += n;
        }
        return r;
}

static uint64_t n_blocks(const struct sparse_entry *se) {
        return (se->n_rows + ORDER_BLOCK - 1) / ORDER_BLOCK;
}

static struct step order_step(const struct sparse_entry *se, enum order_stage stage) {
        return (struct step){ .kind = STEP_ORDER,
                .stage = stage,
                .dtype = ORDER_PAIR_DTYPE,
                .entry = se->entry,
                .n_inputs = 1,
                .count = se->n_rows };
}

static int add_sort(const struct problem *problem, struct sparse_entry *se, struct plan *plan) {
        struct step step = order_step(se, ORDER_SORT);
        step.dtype = problem->entries[0][se->entry].sparse.index_dtype;
        step.output_dtype = ORDER_PAIR_DTYPE;
        return add(plan, step, &se->raw, &se->pairs[0]);
}

static int add_merge(struct sparse_entry *se, uint64_t run, struct plan *plan) {
        struct step step = order_step(se, ORDER_MERGE);
        step.run = run;
        uint32_t from = se->sorted;
        se->sorted = 1 - from;
        return add(plan, step, &se->pairs[from], &se->pairs[1 - from]);
}

static int add_count(const struct sparse_entry *se, struct plan *plan) {
        return add(plan, order_step(se, ORDER_COUNT), &se->pairs[se->sorted], &se->numbers);
}

static int add_number(const struct problem *problem, struct sparse_entry *se, struct plan *plan) {
        uint32_t least = least_room(problem, se->entry);
        struct step step = order_step(se, ORDER_NUMBER);
        step.dtype = DTYPE_U64;
        step.count = 1;
        step.bound = n_blocks(se);
        step.room = least == NO_INDEX ? UINT64_MAX : problem->entries[least][se->entry].output_extent;
        step.room_rank = least == NO_INDEX ? 0 : problem->ranks[least];
        return add(plan, step, &se->numbers, &se->numbers);
}

/* --- the phases before the last --- */

/* Where each half's part begins, and the length where it is known. */
static void tell_extents(const struct problem *problem, struct sparse_entry *se, struct plan *plan) {
        uint64_t *extents = plan_extents(plan, se->entry);
        if (problem->signature->options.coalesce)
                return;
        for (uint32_t i = 0; i < problem->n_ranks; i++) {
                extents[i] = extents[problem->n_ranks];
                extents[problem->n_ranks] += rows_of(problem, i, se->entry);
        }
}

static int take_scratch(const struct problem *problem, struct sparse_entry *se, struct plan *plan) {
        size_t index_bytes = dtype_bytes(problem->entries[0][se->entry].sparse.index_dtype);
        int r = plan_take_scratch(plan, plan->device, se->n_rows * index_bytes, &se->raw);
        if (r < 0 || !problem->signature->options.coalesce)
                return r;
        for (uint32_t i = 0; r == 0 && i < 2; i++)
                r = plan_take_scratch(
                        plan, plan->device, se->n_rows * sizeof(struct order_pair), &se->pairs[i]);
        if (r == 0)
                r = plan_take_scratch(
                        plan, plan->device, (n_blocks(se) + 1) * sizeof(uint64_t), &se->numbers);
        return r;
}

/* Finds the sparse entries that bring anything. */
static int find_entries(const struct problem *problem, struct sparse_work *w, struct plan *plan) {
        for (uint32_t e = 0; e < problem->signature->n_entries; e++) {
                if (problem->entries[0][e].layout != LAYOUT_SPARSE)
                        continue;
                struct sparse_entry *se = &w->entries[w->n++];
                *se = (struct sparse_entry){ .entry = e, .n_rows = rows_of_all(problem, e) };
                tell_extents(problem, se, plan);
                int r = se->n_rows ? take_scratch(problem, se, plan) : 0;
                if (r < 0)
                        return r;
        }
        return 0;
}

static int merge_all(struct sparse_work *w, struct plan *plan) {
        bool is_over = false;
        for (uint64_t run = ORDER_BLOCK; !is_over; run *= 2) {
                is_over = true;
                for (uint32_t i = 0; i < w->n; i++) {
                        if (w->entries[i].n_rows <= run)
                                continue;
                        is_over = false;
                        int r = add_merge(&w->entries[i], run, plan);
                        if (r < 0)
                                return r;
                }
                int r = is_over ? 0 : plan_join(plan);
                if (r < 0)
                        return r;
        }
        return 0;
}

enum pass { PASS_INDICES, PASS_SORT, PASS_COUNT, PASS_NUMBER };

/* One kind of step for each entry, and a JOIN. */
static int pass(const struct problem *problem, enum pass pass, struct sparse_work *w, struct plan *plan) {
        for (uint32_t i = 0; i < w->n; i++) {
                struct sparse_entry *se = &w->entries[i];
                int r = 0;
                if (se->n_rows == 0)
                        continue;
                switch (pass) {
                case PASS_INDICES: r = take_indices(problem, se, plan); break;
                case PASS_SORT: r = add_sort(problem, se, plan); break;
                case PASS_COUNT: r = add_count(se, plan); break;
                case PASS_NUMBER: r = add_number(problem, se, plan); break;
                }
                if (r < 0)
                        return r;
        }
        return plan_join(plan);
}

static int order_all(const struct problem *problem, struct sparse_work *w, struct plan *plan) {
        int r = pass(problem, PASS_SORT, w, plan);
        if (r == 0)
                r = merge_all(w, plan);
        if (r == 0)
                r = pass(problem, PASS_COUNT, w, plan);
        return r == 0 ? pass(problem, PASS_NUMBER, w, plan) : r;
}

int sparse_prepare(const struct problem *problem, struct plan *plan, struct sparse_work **ret) {
        uint32_t n = problem->n_sparse;
        *ret = NULL;
        if (n == 0)
                return 0;
        CLEANUP_SPARSE struct sparse_work *w = calloc(1, sizeof(*w) + n * sizeof(*w->entries));
        if (!w)
                return -ENOMEM;
        int r = plan_make_extents(plan, problem->signature->n_entries, problem->n_ranks);
        if (r == 0)
                r = find_entries(problem, w, plan);
        if (r == 0)
                r = pass(problem, PASS_INDICES, w, plan);
        if (r == 0 && problem->signature->options.coalesce)
                r = order_all(problem, w, plan);
        if (r == 0)
                *ret = take_pointer(w);
        return r;
}

/* --- the last phase --- */

static uint64_t row_stride(const struct entry *e, const struct place *place) {
        return place->n_strides ? place->strides[0] : entry_row_elements(e);
}

static uint32_t count_outputs(const struct problem *problem, uint32_t e) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                n += problem_is_output(problem, i, e, NULL);
        return n;
}

static bool is_mean(const struct problem *problem) {
        return problem->signature->op == OP_MEAN;
}

/* Rows of half `i`, as a step without its outputs. */
static struct step rows_step(const struct problem *problem, uint32_t i, uint32_t e) {
        const struct entry *entry = &problem->entries[i][e];
        const struct options *options = &problem->signature->options;
        return (struct step){ .kind = is_mean(problem) && !options->coalesce ? STEP_REDUCE : STEP_COPY,
                .op = problem->signature->op,
                .dtype = entry->dtype,
                .rounding = is_mean(problem) ? options->rounding : ROUNDING_UNSPECIFIED,
                .divisor = is_mean(problem) ? problem->divisor : 0,
                .check_numerics = options->check_numerics,
                .check_inputs = options->check_inputs,
                .n_inputs = 1,
                .entry = e,
                .count = rows_of(problem, i, e) * entry_row_elements(entry) };
}

/* The outputs that rows from `first` on go to, and their strides, where the step has dimensions. */
static void fill_row_outputs(
        const struct problem *problem, uint64_t first, struct step *s, struct plan *plan) {
        struct operand *outputs = plan_outputs(plan, s);
        uint32_t n = 0;
        for (uint32_t i = 0; n < s->n_outputs; i++) {
                const struct entry *entry = &problem->entries[i][s->entry];
                if (!problem_is_output(problem, i, s->entry, NULL))
                        continue;
                uint64_t skipped = first * row_stride(entry, &entry->output);
                outputs[n] = moved_by(problem_output(problem, i, s->entry),
                        skipped * dtype_bytes(entry_output_dtype(entry)));
                if (s->n_dims)
                        problem_strides(entry, &entry->output, plan_strides(plan, s, s->n_inputs + n));
                n++;
        }
}

/* What one half brings, to its part of every output. */
static int copy_rows(
        const struct problem *problem, uint32_t i, uint64_t first, uint32_t e, struct plan *plan) {
        const struct entry *entry = &problem->entries[i][e];
        const struct options *options = &problem->signature->options;
        struct step step = rows_step(problem, i, e);
        step.device = plan->device;
        step.output_dtype = step.kind == STEP_REDUCE ? entry_output_dtype(entry) : entry->dtype;
        step.n_outputs = options->coalesce ? 0 : count_outputs(problem, e);
        if (step.count == 0 || (step.n_outputs == 0 && !step.check_numerics))
                return 0;
        if (problem_has_strides(problem, e)) {
                step.n_dims = entry->n_dims;
                memcpy(step.shape, entry->shape, sizeof(step.shape));
        }
        struct step *added = plan_add_step(plan, &step);
        if (!added)
                return -ENOMEM;
        *plan_inputs(plan, added) = problem_input(problem, i, e);
        if (step.n_dims)
                problem_strides(entry, &entry->input, plan_strides(plan, added, 0));
        fill_row_outputs(problem, first, added, plan);
        if (step.n_dims)
                plan_simplify_step(plan);
        return 0;
}

/* The step that writes indices, with its outputs. */
static int write_indices(const struct problem *problem, const struct step *step, const struct operand *inputs,
        struct plan *plan) {
        struct step s = *step;
        s.device = plan->device;
        s.n_outputs = count_outputs(problem, s.entry);
        if (s.n_outputs == 0)
                return 0;
        struct step *added = plan_add_step(plan, &s);
        if (!added)
                return -ENOMEM;
        memcpy(plan_inputs(plan, added), inputs, s.n_inputs * sizeof(*inputs));
        struct operand *outputs = plan_outputs(plan, added);
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                if (problem_is_output(problem, i, s.entry, NULL))
                        *outputs++ = problem_operand(
                                problem, i, &problem->entries[i][s.entry].sparse.output_indices);
        return 0;
}

/* Every half's rows behind those of the half before. */
static int lay_end_to_end(const struct problem *problem, const struct sparse_entry *se, struct plan *plan) {
        uint64_t first = 0;
        for (uint32_t i = 0; i < problem->n_ranks; i++) {
                int r = copy_rows(problem, i, first, se->entry, plan);
                if (r < 0)
                        return r;
                first += rows_of(problem, i, se->entry);
        }
        const struct step step = { .kind = STEP_COPY,
                .dtype = problem->entries[0][se->entry].sparse.index_dtype,
                .n_inputs = 1,
                .entry = se->entry,
                .count = se->n_rows };
        return write_indices(problem, &step, &se->raw, plan);
}

static void fill_scatter(
        const struct problem *problem, const struct sparse_entry *se, struct step *s, struct plan *plan) {
        struct operand *inputs = plan_inputs(plan, s), *outputs = plan_outputs(plan, s);
        uint64_t first = 0;
        uint32_t n = 0;
        for (uint32_t i = 0; i < problem->n_ranks; i++) {
                const struct entry *entry = &problem->entries[i][se->entry];
                inputs[i] = problem_input(problem, i, se->entry);
                inputs[i].first_row = first;
                inputs[i].n_rows = rows_of(problem, i, se->entry);
                inputs[i].row_stride = row_stride(entry, &entry->input);
                first += inputs[i].n_rows;
        }
        inputs[problem->n_ranks] = se->pairs[se->sorted];
        inputs[problem->n_ranks + 1] = se->numbers;
        inputs[problem->n_ranks + 2] = se->pairs[1 - se->sorted];
        for (uint32_t i = 0; n < s->n_outputs; i++) {
                const struct entry *entry = &problem->entries[i][se->entry];
                if (!problem_is_output(problem, i, se->entry, NULL))
                        continue;
                outputs[n] = problem_output(problem, i, se->entry);
                outputs[n++].row_stride = row_stride(entry, &entry->output);
        }
}

static int combine(const struct problem *problem, const struct sparse_entry *se, struct plan *plan) {
        const struct entry *entry = &problem->entries[0][se->entry];
        const struct operand sorted[] = { se->pairs[se->sorted], se->numbers };
        struct step step = { .kind = STEP_SCATTER_ADD,
                .device = plan->device,
                .op = problem->signature->op,
                .dtype = entry->dtype,
                .divisor = is_mean(problem) ? problem->divisor : 0,
                .entry = se->entry,
                .n_inputs = problem->n_ranks + SCATTER_ORDER,
                .n_outputs = count_outputs(problem, se->entry),
                .row_elements = entry_row_elements(entry) };
        step.count = se->n_rows * step.row_elements;
        for (uint32_t i = 0; problem->signature->options.check_numerics && i < problem->n_ranks; i++) {
                int r = copy_rows(problem, i, 0, se->entry, plan);
                if (r < 0)
                        return r;
        }
        if (step.count > 0 && step.n_outputs > 0) {
                struct step *added = plan_add_step(plan, &step);
                if (!added)
                        return -ENOMEM;
                fill_scatter(problem, se, added, plan);
        }
        struct step write = order_step(se, ORDER_WRITE);
        write.n_inputs = 2;
        write.output_dtype = entry->sparse.index_dtype;
        return write_indices(problem, &write, sorted, plan);
}

int sparse_build(const struct problem *problem, uint32_t e, struct sparse_work *w, struct plan *plan) {
        const struct sparse_entry *se = &w->entries[w->next++];
        CHECK(se->entry == e);
        if (se->n_rows == 0)
                return 0;
        return problem->signature->options.coalesce ? combine(problem, se, plan)
                                                    : lay_end_to_end(problem, se, plan);
}
