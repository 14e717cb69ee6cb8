/* Whether elements share bytes is whether an equation has a solution: with x and y the indices of a byte in a
 * and in b,
 *
 *     offset_a + sum(x * stride_a) + byte_a = offset_b + sum(y * stride_b) + byte_b
 *
 * Each y is counted backwards, so that all coefficients are positive and every unknown runs from 0 to a
 * bound. Terms are taken from the largest coefficient on; what the rest can still reach bounds each of them
 * from both sides. Where strides nest, as in every slice of an array, that leaves at most two values a term,
 * so the search is short. It is bounded anyway: such equations can be made hard (they are knapsacks). */
#include "model/view.h"

#include "base/check.h"

#define MAX_TERMS (2 * MAX_DIMS + 1)

struct equation {
        uint32_t n;
        uint64_t coefficient[MAX_TERMS], most[MAX_TERMS];
        uint64_t rest[MAX_TERMS + 1];   /* what the terms from here on reach together */
        uint64_t common[MAX_TERMS + 1]; /* their greatest common divisor; 0: there are none */
        bool is_of_one; /* each most / 2 is the solution that says nothing: an element meets itself */
        uint64_t *steps;
};

/* Keeps the order; equal coefficients become one term. */
static void add_term(struct equation *e, uint64_t coefficient, uint64_t most) {
        if (most == 0)
                return;
        uint32_t at = 0;
        while (at < e->n && e->coefficient[at] > coefficient)
                at++;
        if (at < e->n && e->coefficient[at] == coefficient && !e->is_of_one) {
                e->most[at] += most;
                return;
        }
        CHECK(e->n < MAX_TERMS);
        for (uint32_t i = e->n++; i > at; i--) {
                e->coefficient[i] = e->coefficient[i - 1];
                e->most[i] = e->most[i - 1];
        }
        e->coefficient[at] = coefficient;
        e->most[at] = most;
}

static uint64_t common_divisor(uint64_t a, uint64_t b) {
        while (b) {
                uint64_t rest = a % b;
                a = b;
                b = rest;
        }
        return a;
}

static void prepare(struct equation *e) {
        e->rest[e->n] = e->common[e->n] = 0;
        for (uint32_t i = e->n; i-- > 0;) {
                e->rest[i] = e->rest[i + 1] + e->coefficient[i] * e->most[i];
                e->common[i] = common_divisor(e->coefficient[i], e->common[i + 1]);
        }
}

static bool can_be_rest(const struct equation *e, uint32_t from, uint64_t target) {
        return e->common[from] ? target % e->common[from] == 0 : target == 0;
}

/* Whether terms from `from` on can make `target`; `is_trivial`: those before it say nothing so far. */
static enum sharing search(const struct equation *e, uint32_t from, uint64_t target, bool is_trivial) {
        if (from == e->n)
                return target == 0 && !is_trivial ? SHARING_BYTES : SHARING_NOTHING;
        uint64_t c = e->coefficient[from], rest = e->rest[from + 1];
        uint64_t least = target > rest ? (target - rest + c - 1) / c : 0, most = target / c;
        if (most > e->most[from])
                most = e->most[from];
        for (uint64_t x = least; x <= most; x++) {
                if (*e->steps == 0)
                        return SHARING_UNKNOWN;
                --*e->steps;
                if (!can_be_rest(e, from + 1, target - x * c))
                        continue;
                enum sharing found =
                        search(e, from + 1, target - x * c, is_trivial && x == e->most[from] / 2);
                if (found != SHARING_NOTHING)
                        return found;
        }
        return SHARING_NOTHING;
}

/* --- one value --- */

/* Dimensions by growing stride; those of 1 are left out. */
static uint32_t sort_dims(const struct view *v, uint32_t order[MAX_DIMS]) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < v->n_dims; i++) {
                uint32_t at = n;
                if (v->shape[i] == 1)
                        continue;
                for (; at > 0 && v->strides[order[at - 1]] > v->strides[i]; at--)
                        order[at] = order[at - 1];
                order[at] = i;
                n++;
        }
        return n;
}

/* Whether each stride goes beyond all that the smaller ones reach. Otherwise two dimensions that are in each
 * other's way. */
static bool is_nested(const struct view *v, uint32_t ret_dims[2]) {
        uint32_t order[MAX_DIMS], n = sort_dims(v, order);
        uint64_t reach = 0;
        for (uint32_t i = 0; i < n; i++) {
                if (v->strides[order[i]] <= reach || v->strides[order[i]] == 0) {
                        ret_dims[0] = order[i];
                        ret_dims[1] = order[i > 0 ? i - 1 : 0];
                        return false;
                }
                reach += (v->shape[order[i]] - 1) * v->strides[order[i]];
        }
        return true;
}

enum sharing view_shares_itself(const struct view *v, uint64_t *steps, uint32_t ret_dims[2]) {
        uint64_t extent;
        struct equation e = { .is_of_one = true, .steps = steps };
        if (view_is_empty(v) || is_nested(v, ret_dims))
                return SHARING_NOTHING;
        CHECK(view_extent(v, &extent));
        for (uint32_t i = 0; i < v->n_dims; i++) {
                if (v->shape[i] > 1 && v->strides[i] == 0)
                        return SHARING_BYTES;
                add_term(&e, v->strides[i], 2 * (v->shape[i] - 1));
        }
        prepare(&e);
        return search(&e, 0, extent - 1, true);
}

/* --- two values --- */

/* Bytes from the first to the last. */
static uint64_t reach_bytes(const struct placed_view *p) {
        uint64_t extent;
        CHECK(view_extent(&p->view, &extent));
        return extent * p->element_bytes;
}

static void add_terms(struct equation *e, const struct placed_view *p) {
        for (uint32_t i = 0; i < p->view.n_dims; i++)
                add_term(e, p->view.strides[i] * p->element_bytes, p->view.shape[i] - 1);
}

enum sharing views_share(const struct placed_view *a, const struct placed_view *b, uint64_t *steps) {
        if (view_is_empty(&a->view) || view_is_empty(&b->view))
                return SHARING_NOTHING;
        uint64_t a_bytes = reach_bytes(a), b_bytes = reach_bytes(b);
        if (a->offset_bytes >= b->offset_bytes + b_bytes || b->offset_bytes >= a->offset_bytes + a_bytes)
                return SHARING_NOTHING;
        struct equation e = { .steps = steps };
        add_terms(&e, a);
        add_terms(&e, b);
        add_term(&e, 1, a->element_bytes + b->element_bytes - 2);
        prepare(&e);
        return search(&e, 0, b->offset_bytes + b_bytes - 1 - a->offset_bytes, false);
}
