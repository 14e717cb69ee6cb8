/* Sealed collective -> plan: the choice of algorithm, the rules that need all halves at once, the steps. */
#include "planner.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "algorithms/places.h"
#include "algorithms/sparse.h"
#include "planner-choice.h"
#include "planner-extents.h"
#include "planner-overlap.h"

struct planner {
        uint64_t chunk_bytes;
        struct plan_rules rules;
        struct topology host;
        struct ranges ranges;
};

int planner_new(struct planner **ret, uint32_t n_devices, uint64_t chunk_bytes) {
        struct planner *p = calloc(1, sizeof(*p));
        if (!p)
                return -ENOMEM;
        topology_of_host(&p->host, n_devices);
        p->rules = PLAN_RULES_DEFAULT;
        p->chunk_bytes = chunk_bytes;
        *ret = p;
        return 0;
}

void planner_free(struct planner *p) {
        if (!p)
                return;
        ranges_deinit(&p->ranges);
        free(p);
}

void planner_set_rules(struct planner *p, const struct plan_rules *rules) {
        p->rules = *rules;
}

/* Whether values may be cut, or go through scratch. */
static bool may_be_cut(const struct signature *s) {
        const struct options *o = &s->options;
        return (s->kind == KIND_REDUCE || s->kind == KIND_BATCH_REDUCE) && !o->reproducible &&
               !o->has_place && o->algorithm != ALGORITHM_ONE_DEVICE;
}

/* Whether what one device would do goes by way of host memory, in rounds. */
static bool has_far(const struct problem *problem) {
        return problem->homes && !problem_is_near(problem, problem_worker(problem));
}

/* Values, or pieces of them, at most. */
static uint64_t n_pieces(const struct problem *problem, uint64_t n_bytes) {
        const struct signature *s = problem->signature;
        uint64_t n_types = s->n_entries < N_DTYPE ? s->n_entries : N_DTYPE, n = s->n_entries;
        if (may_be_cut(s))
                n += s->options.packing.num_packs * n_types;
        if (may_be_cut(s) || has_far(problem))
                n += n_bytes / ROUND_BYTES;
        return n;
}

/* Devices among which there is scratch. */
static uint64_t n_scratch(const struct problem *problem) {
        const struct signature *s = problem->signature;
        if (!may_be_cut(s) ||
                (s->options.packing.num_packs == 0 && s->options.algorithm == ALGORITHM_UNSPECIFIED))
                return 0;
        return problem->topology ? problem->topology->n_devices : problem->n_devices;
}

/* Gathered and scattered values: a step for each replica's part, which has as many outputs as there are
 * receivers, or inputs as there are replicas. */
static uint64_t n_parts(const struct problem *problem) {
        return (uint64_t)problem->n_ranks * problem->signature->n_entries;
}

/* Of sparse values: of each rank two steps, with an operand for each output; and what sorts. */
static uint64_t n_sparse_steps(const struct problem *problem) {
        return problem->n_sparse *
               (2ull * problem->n_ranks + (problem->signature->options.coalesce ? 40 : 1));
}

static uint64_t n_sparse_operands(const struct problem *problem) {
        return n_sparse_steps(problem) * (problem->n_ranks + 2ull);
}

/* Of a piece: inputs and outputs of the replicas, and what is put into scratch and taken from there. What a
 * replica has far away is copied on its way in, and on its way out. */
uint64_t planner_work(const struct problem *problem, uint64_t n_bytes) {
        if (kind_has_axis(problem->signature->kind))
                return n_parts(problem) * (1 + problem->n_ranks) / 2;
        uint64_t a_rank = has_far(problem) ? 3 : 1;
        return n_pieces(problem, n_bytes) * (a_rank * problem->n_ranks + 3 * n_scratch(problem)) +
               n_sparse_operands(problem) / 2;
}

/* Where there is scratch, a piece takes up to three steps a device, and its round four joins; where something
 * is far, a step for each input and output, and three joins. */
static uint64_t steps_a_piece(const struct problem *problem) {
        uint64_t n_devices = n_scratch(problem), n = n_devices ? 3 * n_devices + 4 : 1;
        return has_far(problem) ? n + 2ull * problem->n_ranks + 3 : n;
}

uint64_t planner_bytes(const struct problem *problem, uint64_t n_bytes) {
        const struct signature *s = problem->signature;
        uint64_t n_ranges = 2ull * problem->n_ranks * (s->n_entries + problem->n_sparse);
        uint64_t n_steps = kind_has_axis(s->kind) ? n_parts(problem)
                                                  : n_pieces(problem, n_bytes) * steps_a_piece(problem);
        uint64_t n_operands = 2 * planner_work(problem, n_bytes);
        uint32_t n_dims = s->n_entries ? problem->entries[0][0].n_dims : 0;
        return (n_steps + n_sparse_steps(problem)) * sizeof(struct step) +
               n_operands * (sizeof(struct operand) + n_dims * sizeof(uint64_t)) +
               (s->axes ? 2 * n_parts(problem) * n_dims * sizeof(uint64_t) : 0) +
               n_ranges * 2 * sizeof(struct range);
}

/* "bytes 0..63 of R1's buffer 2" */
static void print_range(const struct problem *problem, const struct range *r, struct text *t) {
        const struct place *place = range_place(problem, r);
        text_add(t, "bytes %llu..%llu of ", (unsigned long long)r->begin, (unsigned long long)r->end - 1);
        if (place->result)
                text_add(t, "a slot of the result object %llu", (unsigned long long)place->result);
        else
                text_add(t, "R%u's buffer %llu", problem->ranks[r->half], (unsigned long long)place->buffer);
}

static enum status refuse_overlap(
        const struct problem *problem, const struct overlap *overlap, struct error *err) {
        const struct range *output = overlap->output, *other = overlap->other;
        unsigned int rank = problem->ranks[output->half], other_rank = problem->ranks[other->half];
        char buf[192];
        struct text t;

        text_init(&t, buf, sizeof(buf));
        print_range(problem, output, &t);
        text_add(&t, " and ");
        print_range(problem, other, &t);
        error_init(err, STATUS_INVALID);
        err->entry = output->entry;
        err->rank = rank;
        bool is_sparse = problem->entries[0][output->entry].layout == LAYOUT_SPARSE;
        return error_set(err, STATUS_INVALID, FIELD_OVERLAP,
                "output of R%u (entry %u) overlaps the %s of R%u (entry %u): %s %s", rank, output->entry,
                other->is_read ? "input" : "output", other_rank, other->entry, buf,
                overlap->sharing == SHARING_UNKNOWN
                        ? "lie in each other's gaps, with strides of which it cannot be told in reasonable "
                          "time "
                          "whether they share memory. Give them equal strides, or lay them apart"
                : is_sparse ? "share memory. The output of a sparse value may share it with nothing"
                            : "share memory. An output may share it only with its own replica's input of the "
                              "same "
                              "entry, exactly");
}

/* Each weight is finite and not negative: its own half's check has seen to that. */
static enum status check_weights(const struct problem *problem, struct error *err) {
        if (!problem->signature->options.has_weight)
                return STATUS_OK;
        double total = problem_total_weight(problem);
        if (isfinite(total) && (total > 0 || problem->signature->op != OP_MEAN))
                return STATUS_OK;
        error_init(err, STATUS_INVALID);
        if (!isfinite(total))
                return weights_refuse_overflow(err);
        return error_set(err, STATUS_INVALID, FIELD_OPTIONS,
                "the weights of all %u contributions are 0: there is nothing to take the mean of",
                problem->n_ranks);
}

static enum status refuse_memory(struct error *err) {
        error_init(err, STATUS_NO_MEMORY);
        return error_set(
                err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid has no memory to plan this collective");
}

enum status planner_plan(
        struct planner *p, const struct problem *given, struct plan *plan, struct error *err) {
        struct overlap overlap;
        struct choice choice;
        struct problem problem = *given;

        plan_reset(plan);
        if (!problem.topology)
                problem.topology = &p->host;
        enum status status = planner_choose(&p->rules, &problem, &choice, err);
        if (status != STATUS_OK)
                return status;
        status = check_weights(&problem, err);
        if (status == STATUS_OK)
                status = extents_find(&problem, plan, err);
        if (status == STATUS_OK)
                status = folds_check(&problem, err);
        if (status != STATUS_OK)
                return status;
        status = sparse_check(&problem, err);
        if (status != STATUS_OK)
                return status;
        if (ranges_gather(&p->ranges, &problem) < 0 ||
                ranges_find_overlap(&p->ranges, &problem, &overlap) < 0)
                return refuse_memory(err);
        if (overlap.sharing != SHARING_NOTHING)
                return refuse_overlap(&problem, &overlap, err);
        problem.signature = &choice.signature;
        choice_note(&choice, plan);
        if (choice.algorithm->build(&problem, plan) < 0 || plan_begin_sums(plan) < 0)
                return refuse_memory(err);
        plan_freeze(plan, p->chunk_bytes);
        plan->slot_offset_bytes = given->slot_offset_bytes;
        return STATUS_OK;
}
