/* How far the operands of a step reach. Looked at again by whoever was told a plan, so nothing here trusts
 * that numbers can be multiplied. */
#include "plan.h"

static bool times(uint64_t a, uint64_t b, uint64_t *ret) {
        return !__builtin_mul_overflow(a, b, ret);
}

/* Adds what `n` steps of a stride reach. */
static bool reach_on(uint64_t n, uint64_t stride, uint64_t *extent) {
        uint64_t reach;
        return n > 0 && times(n - 1, stride, &reach) && !__builtin_add_overflow(*extent, reach, extent);
}

/* --- values --- */

/* Elements from the first to the last of the operand, over the dimensions that the step has. */
static bool step_extent(const struct step *s, const uint64_t *strides, uint64_t *ret) {
        uint64_t count = 1, extent = 1;
        *ret = s->count;
        if (s->n_dims == 0 || s->count == 0)
                return true;
        for (uint32_t d = 0; d < s->n_dims; d++)
                if (!reach_on(s->shape[d], strides[d], &extent) || !times(count, s->shape[d], &count))
                        return false;
        *ret = extent;
        return count == s->count;
}

static bool value_bytes(const struct plan *p, const struct step *s, uint32_t i, uint64_t *ret) {
        const bool is_input = i < s->n_inputs;
        uint64_t extent;
        if (!step_extent(s, plan_strides(p, s, i), &extent))
                return false;
        for (uint32_t d = 0; is_input && extent > 0 && d < s->n_folds; d++)
                if (!reach_on(plan_fold(p, s, i)[d], plan_fold(p, s, i)[s->n_folds + d], &extent))
                        return false;
        return times(extent, dtype_bytes(is_input ? s->dtype : s->output_dtype), ret);
}

/* --- sparse rows on their way --- */

static uint64_t number_bytes(uint64_t n_pairs) {
        return (n_pairs / ORDER_BLOCK + (n_pairs % ORDER_BLOCK > 0)) * sizeof(uint64_t);
}

static bool order_bytes(const struct step *s, uint32_t i, uint64_t *ret) {
        const bool is_input = i < s->n_inputs;
        switch (s->stage) {
        case ORDER_SORT:
        case ORDER_MERGE: return times(s->count, dtype_bytes(is_input ? s->dtype : s->output_dtype), ret);
        case ORDER_COUNT:
                *ret = number_bytes(s->count);
                return is_input ? times(s->count, sizeof(struct order_pair), ret) : true;
        case ORDER_NUMBER: return times(s->bound, sizeof(uint64_t), ret);
        case ORDER_WRITE:
                *ret = i == 1 ? number_bytes(s->count) : 0;
                return i == 0 ? times(s->count, sizeof(struct order_pair), ret) : true;
        }
        return false;
}

/* The rows of one rank, by their stride. */
static bool rows_bytes(const struct step *s, const struct operand *o, uint64_t *ret) {
        uint64_t extent = s->row_elements;
        *ret = 0;
        if (o->n_rows == 0)
                return true;
        return reach_on(o->n_rows, o->row_stride, &extent) && times(extent, dtype_bytes(s->dtype), ret);
}

static bool scatter_bytes(const struct plan *p, const struct step *s, uint32_t i, uint64_t *ret) {
        const uint64_t n_pairs = s->row_elements ? s->count / s->row_elements : 0;
        *ret = 0;
        if (s->n_inputs < SCATTER_ORDER)
                return false;
        if (i < s->n_inputs - SCATTER_ORDER)
                return rows_bytes(s, &p->operands[s->first_operand + i], ret);
        if (i >= s->n_inputs)
                return true;
        if (i == s->n_inputs - SCATTER_ORDER + 1)
                *ret = number_bytes(n_pairs);
        else
                return times(n_pairs, sizeof(struct order_pair), ret);
        return true;
}

bool plan_operand_bytes(const struct plan *p, const struct step *s, uint32_t i, uint64_t *ret) {
        switch (s->kind) {
        case STEP_COPY:
        case STEP_REDUCE:
        case STEP_LIBRARY:
        case STEP_INDICES: return value_bytes(p, s, i, ret);
        case STEP_ORDER: return order_bytes(s, i, ret);
        case STEP_SCATTER_ADD: return scatter_bytes(p, s, i, ret);
        case STEP_JOIN: break;
        }
        *ret = 0;
        return true;
}

bool plan_is_open(const struct step *s, uint32_t i) {
        return i >= s->n_inputs &&
               (s->kind == STEP_SCATTER_ADD || (s->kind == STEP_ORDER && s->stage == ORDER_WRITE));
}

uint64_t plan_most_rows(const struct step *s) {
        if (s->kind != STEP_SCATTER_ADD)
                return s->count;
        return s->row_elements ? s->count / s->row_elements : 0;
}

bool plan_rows_bytes(const struct plan *p, const struct step *s, uint32_t i, uint64_t n_rows, uint64_t *ret) {
        const bool is_index = s->kind != STEP_SCATTER_ADD;
        uint64_t extent = is_index ? 1 : s->row_elements;
        *ret = 0;
        if (n_rows == 0)
                return true;
        return reach_on(n_rows, is_index ? 1 : p->operands[s->first_operand + i].row_stride, &extent) &&
               times(extent, dtype_bytes(s->output_dtype), ret);
}
