/* Sealed collective -> plan: the choice of algorithm, the rules that need all halves at once, the steps. */
#include "planner.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
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

uint64_t planner_operands(const struct problem *problem) {
        const struct signature *s = problem->signature;
        uint64_t n_values = (uint64_t)problem->n_ranks * s->n_entries;
        return n_values * (kind_has_axis(s->kind) ? 1 + problem->n_ranks : 2);
}

uint64_t planner_bytes(const struct problem *problem) {
        const struct signature *s = problem->signature;
        uint64_t n_values = (uint64_t)problem->n_ranks * s->n_entries;
        uint64_t n_steps = kind_has_axis(s->kind) ? n_values : s->n_entries;
        /* Of each rank two steps, with an operand for each output; and what sorts. */
        uint64_t n_sparse_steps =
                problem->n_sparse * (2ull * problem->n_ranks + (s->options.coalesce ? 40 : 1));
        uint64_t n_sparse_operands = n_sparse_steps * (problem->n_ranks + 2ull);
        uint64_t n_ranges = 4 * (n_values + (uint64_t)problem->n_ranks * problem->n_sparse);
        uint32_t n_dims = s->n_entries ? problem->entries[0][0].n_dims : 0;
        return (n_steps + n_sparse_steps) * sizeof(struct step) + n_ranges * sizeof(struct range) +
               (planner_operands(problem) + 2 * (s->axes ? n_values : 0)) * n_dims * sizeof(uint64_t) +
               (planner_operands(problem) + n_sparse_operands) * sizeof(struct operand) +
               n_sparse_operands * n_dims * sizeof(uint64_t);
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
                return error_set(err, STATUS_INVALID, FIELD_OPTIONS,
                        "the weights add up to more than f64 can hold; only their proportions matter to a "
                        "MEAN, "
                        "so take smaller ones");
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
        return STATUS_OK;
}
