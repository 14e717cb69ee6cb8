#include "planner-extents.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "algorithms/fold.h"

/* One entry of all halves. */
struct row {
        const struct problem *problem;
        uint32_t entry, axis;
        uint64_t *extents; /* as plan_extents has them */
};

static const struct entry *entry_of(const struct row *r, uint32_t i) {
        return &r->problem->entries[i][r->entry];
}

/* What half `i` adds to the whole. */
static uint64_t length_of(const struct row *r, uint32_t i) {
        const struct entry *e = entry_of(r, i);
        return r->problem->signature->kind == KIND_GATHER ? e->shape[r->axis] : e->output_extent;
}

/* false: more than can be counted. */
static bool add_up(const struct row *r) {
        uint64_t total = 0;
        for (uint32_t i = 0; i < r->problem->n_ranks; i++) {
                r->extents[i] = total;
                if (__builtin_add_overflow(total, length_of(r, i), &total) || total > INT64_MAX)
                        return false;
        }
        r->extents[r->problem->n_ranks] = total;
        return true;
}

/* --- refusals --- */

static struct error_class *class_of(struct error *err, const char *value) {
        for (uint32_t i = 0; i < err->n_classes; i++)
                if (strcmp(err->classes[i].value, value) == 0)
                        return &err->classes[i];
        if (err->n_classes < MAX_ERROR_CLASSES) {
                struct error_class *added = &err->classes[err->n_classes++];
                text_copy(added->value, sizeof(added->value), value);
                return added;
        }
        struct error_class *last = &err->classes[MAX_ERROR_CLASSES - 1];
        text_copy(last->value, sizeof(last->value), "other lengths");
        return last;
}

/* Who says what, as data and in words: "3 by R0 R2, 4 by R1". */
static void say_lengths(const struct row *r, struct error *err, struct text *t) {
        for (uint32_t i = 0; i < r->problem->n_ranks; i++) {
                char value[32];
                snprintf(value, sizeof(value), "%" PRIu64, length_of(r, i));
                rankset_add(&class_of(err, value)->ranks, r->problem->ranks[i]);
        }
        for (uint32_t i = 0; i < err->n_classes; i++) {
                text_add(t, "%s%s by ", i ? ", " : "", err->classes[i].value);
                rankset_print(&err->classes[i].ranks, t);
        }
}

static enum status refuse_lengths(const struct row *r, const char *what, struct error *err) {
        char lengths[256];
        struct text t;
        error_init(err, STATUS_INVALID);
        err->entry = (int32_t)r->entry;
        text_init(&t, lengths, sizeof(lengths));
        say_lengths(r, err, &t);
        return error_set(err, STATUS_INVALID, FIELD_EXTENT, "%s along axis %u: %s", what, r->axis, lengths);
}

static enum status refuse_slices(const struct row *r, struct error *err) {
        char what[96];
        uint32_t n = r->problem->n_ranks;
        snprintf(what, sizeof(what),
                "the slices of %u replica%s add up to %" PRIu64 ", and the value has %" PRIu64, n,
                n == 1 ? "" : "s", r->extents[n], entry_of(r, 0)->shape[r->axis]);
        return refuse_lengths(r, what, err);
}

static enum status refuse_room(const struct row *r, uint32_t i, struct error *err) {
        uint64_t total = r->extents[r->problem->n_ranks];
        error_init(err, STATUS_INVALID);
        err->entry = (int32_t)r->entry;
        err->rank = (int32_t)r->problem->ranks[i];
        err->used = total;
        err->limit = entry_of(r, i)->output_extent;
        return error_set(err, STATUS_INVALID, FIELD_SIZE,
                "the output of R%u (entry %u) has room for %" PRIu64 " along axis %u, and %" PRIu64
                " are needed: that is what all replicas together bring",
                r->problem->ranks[i], r->entry, entry_of(r, i)->output_extent, r->axis, total);
}

/* --- one entry --- */

static bool is_receiver(const struct row *r, uint32_t i) {
        const struct entry *e = entry_of(r, i);
        return e->output.result != 0 || entry_has_destination(e, r->problem->ranks[i]);
}

static enum status check_gather(const struct row *r, struct error *err) {
        if (!add_up(r))
                return refuse_lengths(r, "what is gathered goes beyond what 63 bits can count", err);
        for (uint32_t i = 0; i < r->problem->n_ranks; i++)
                if (is_receiver(r, i) && entry_of(r, i)->output_extent < r->extents[r->problem->n_ranks])
                        return refuse_room(r, i, err);
        return STATUS_OK;
}

static enum status check_scatter(const struct row *r, struct error *err) {
        if (!add_up(r))
                return refuse_lengths(r, "the slices go beyond what 63 bits can count", err);
        if (r->extents[r->problem->n_ranks] == entry_of(r, 0)->shape[r->axis])
                return STATUS_OK;
        return refuse_slices(r, err);
}

enum status extents_find(const struct problem *problem, struct plan *plan, struct error *err) {
        const struct signature *s = problem->signature;
        enum status status = STATUS_OK;
        if (!kind_has_axis(s->kind))
                return STATUS_OK;
        if (plan_make_extents(plan, s->n_entries, problem->n_ranks) < 0) {
                error_init(err, STATUS_NO_MEMORY);
                return error_set(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED,
                        "tuttid has no memory to plan this collective");
        }
        for (uint32_t e = 0; status == STATUS_OK && e < s->n_entries; e++) {
                const struct row r = { problem, e, signature_axis(s), plan_extents(plan, e) };
                status = s->kind == KIND_GATHER ? check_gather(&r, err) : check_scatter(&r, err);
        }
        return status;
}

/* --- reductions over axes --- */

static enum status refuse_nothing(const struct problem *problem, uint32_t e, struct error *err) {
        error_init(err, STATUS_INVALID);
        err->entry = (int32_t)e;
        return error_set(err, STATUS_INVALID, FIELD_EXTENT,
                "there is nothing along the axes to combine: no replica of %u brings any element%s",
                problem->n_ranks,
                problem->signature->options.has_weight ? " with a weight, and a mean of nothing is none"
                                                       : "");
}

enum status weights_refuse_overflow(struct error *err) {
        return error_set(err, STATUS_INVALID, FIELD_OPTIONS,
                "the weights add up to more than f64 can hold; only their proportions matter to a MEAN, so "
                "take smaller ones");
}

/* Of a MEAN: each element brings the weight of its replica. */
static enum status check_total_weight(const struct problem *problem, uint32_t e, struct error *err) {
        double total = fold_total_weight(problem, e);
        if (isfinite(total))
                return total > 0 ? STATUS_OK : refuse_nothing(problem, e, err);
        error_init(err, STATUS_INVALID);
        err->entry = (int32_t)e;
        return weights_refuse_overflow(err);
}

static enum status refuse_many(uint32_t e, struct error *err) {
        error_init(err, STATUS_LIMIT);
        err->entry = (int32_t)e;
        err->limit = UINT32_MAX;
        return error_set(err, STATUS_LIMIT, FIELD_EXTENT,
                "too many elements along the axes become one; reduce in parts");
}

/* Elements of which a result has some. */
static bool has_results(const struct problem *problem, uint32_t e) {
        const struct entry *entry = &problem->entries[0][e];
        for (uint32_t d = 0; d < entry->n_dims; d++)
                if (entry->shape[d] == 0 && !(problem->signature->axes >> d & 1))
                        return false;
        return true;
}

static enum status check_fold(const struct problem *problem, uint32_t e, struct error *err) {
        bool is_weighted_mean = problem->signature->op == OP_MEAN && problem->signature->options.has_weight;
        uint64_t total = 0;
        if (!has_results(problem, e))
                return STATUS_OK;
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                if (__builtin_add_overflow(total, fold_count(problem, i, e), &total) || total > UINT32_MAX) {
                        enum status status = refuse_many(e, err);
                        err->used = total;
                        return status;
                }
        if (total == 0)
                return refuse_nothing(problem, e, err);
        return is_weighted_mean ? check_total_weight(problem, e, err) : STATUS_OK;
}

enum status folds_check(const struct problem *problem, struct error *err) {
        const struct signature *s = problem->signature;
        enum status status = STATUS_OK;
        if (s->axes == 0 || kind_has_axis(s->kind))
                return STATUS_OK;
        if (s->op == OP_MEAN && !s->options.has_weight && problem->divisor != problem->n_ranks) {
                error_init(err, STATUS_UNSUPPORTED);
                return error_set(err, STATUS_UNSUPPORTED, FIELD_OPTIONS,
                        "with on_leave = zero_fill a MEAN over axes has no divisor: nobody knows how much "
                        "the "
                        "replicas that have left would bring. Use weights, or divide a SUM");
        }
        for (uint32_t e = 0; status == STATUS_OK && e < s->n_entries; e++)
                status = check_fold(problem, e, err);
        return status;
}
