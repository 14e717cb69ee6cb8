#include "model/view.h"

#include <string.h>

void view_make(struct view *v, uint32_t n_dims, const uint64_t *shape, const uint64_t *strides) {
        *v = (struct view){ .n_dims = n_dims };
        uint64_t run = 1;
        for (uint32_t i = n_dims; i-- > 0;) {
                v->shape[i] = shape[i];
                v->strides[i] = strides ? strides[i] : run;
                /* Wraps only where there are more elements than can be, which others refuse. */
                run *= shape[i];
        }
}

bool view_is_empty(const struct view *v) {
        for (uint32_t i = 0; i < v->n_dims; i++)
                if (v->shape[i] == 0)
                        return true;
        return false;
}

static bool runs_on(const struct view *v, uint32_t outer, uint32_t inner) {
        uint64_t run;
        return !__builtin_mul_overflow(v->strides[inner], v->shape[inner], &run) && run == v->strides[outer];
}

void view_simplify(struct view *v) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < v->n_dims; i++) {
                if (v->shape[i] == 1)
                        continue;
                v->shape[n] = v->shape[i];
                v->strides[n] = v->strides[i];
                if (n > 0 && runs_on(v, n - 1, n)) {
                        v->shape[n - 1] *= v->shape[n];
                        v->strides[n - 1] = v->strides[n];
                } else {
                        n++;
                }
        }
        v->n_dims = n;
}

bool view_is_dense(const struct view *v) {
        return v->n_dims == 0 || (v->n_dims == 1 && v->strides[0] == 1);
}

bool view_extent(const struct view *v, uint64_t *ret) {
        uint64_t extent = 1, reach;
        if (view_is_empty(v)) {
                *ret = 0;
                return true;
        }
        for (uint32_t i = 0; i < v->n_dims; i++)
                if (__builtin_mul_overflow(v->shape[i] - 1, v->strides[i], &reach) ||
                        __builtin_add_overflow(extent, reach, &extent) || extent > INT64_MAX)
                        return false;
        *ret = extent;
        return true;
}

uint64_t open_view_close(struct open_view *v, uint64_t length) {
        struct view view = v->view;
        uint64_t count = 1;
        if (v->axis < view.n_dims)
                view.shape[v->axis] = length;
        if (v->axis < view.n_dims && v->is_packed)
                view_make(&v->view, view.n_dims, view.shape, NULL);
        else
                v->view = view;
        for (uint32_t d = 0; d < view.n_dims; d++)
                count *= view.shape[d];
        view_simplify(&v->view);
        v->axis = MAX_DIMS;
        return count;
}

bool open_view_fits(const struct open_view *v, uint64_t length) {
        return v->axis >= v->view.n_dims || length <= v->view.shape[v->axis];
}

/* --- moving elements --- */

/* A run of elements along the last dimension. */
struct run {
        size_t element_bytes;
        uint64_t n;
        uint64_t from_step, to_step; /* bytes */
};

#define COPY_STEPS(n_bytes)                                                                                  \
        case n_bytes:                                                                                        \
                for (uint64_t i = 0; i < r->n; i++, from += r->from_step, to += r->to_step)                  \
                        memcpy(to, from, n_bytes);                                                           \
                return;

static void copy_run(const struct run *r, uint8_t *to, const uint8_t *from) {
        if (r->from_step == r->element_bytes && r->to_step == r->element_bytes) {
                memcpy(to, from, r->n * r->element_bytes);
                return;
        }
        switch (r->element_bytes) {
                COPY_STEPS(1)
                COPY_STEPS(2)
                COPY_STEPS(4)
                COPY_STEPS(8)
                COPY_STEPS(16)
        }
}

/* A place in the index space, and where it is in memory. */
struct walk {
        uint64_t index[MAX_DIMS];
        uint64_t at; /* elements from the first one on */
};

static void walk_begin(struct walk *w, const struct lattice *l, uint64_t first) {
        w->at = 0;
        for (uint32_t i = l->n_dims; i-- > 0;) {
                w->index[i] = first % l->shape[i];
                first /= l->shape[i];
                w->at += w->index[i] * l->strides[i];
        }
}

/* Behind `n` elements of the last dimension, which has as many left. */
static void walk_on(struct walk *w, const struct lattice *l, uint64_t n) {
        uint32_t i = l->n_dims - 1;
        w->index[i] += n;
        w->at += n * l->strides[i];
        while (w->index[i] == l->shape[i] && i > 0) {
                w->at -= w->index[i] * l->strides[i];
                w->index[i--] = 0;
                w->index[i]++;
                w->at += l->strides[i];
        }
}

enum direction { GATHER, SCATTER };

static void move(const struct lattice *l, uint8_t *base, struct run run, uint64_t first, uint8_t *dense,
        enum direction direction) {
        struct walk w;
        walk_begin(&w, l, first);
        for (uint64_t left = run.n; left > 0; left -= run.n) {
                uint64_t room = l->shape[l->n_dims - 1] - w.index[l->n_dims - 1];
                run.n = left < room ? left : room;
                uint8_t *at = base + w.at * l->element_bytes;
                if (direction == GATHER)
                        copy_run(&run, dense, at);
                else
                        copy_run(&run, at, dense);
                dense += run.n * l->element_bytes;
                walk_on(&w, l, run.n);
        }
}

void lattice_gather(const struct lattice *l, const void *base, uint64_t first, uint64_t n, void *dense) {
        if (l->n_dims == 0) {
                memcpy(dense, (const uint8_t *)base + first * l->element_bytes, n * l->element_bytes);
                return;
        }
        const struct run run = { .element_bytes = l->element_bytes,
                .n = n,
                .from_step = l->strides[l->n_dims - 1] * l->element_bytes,
                .to_step = l->element_bytes };
        move(l, (uint8_t *)(uintptr_t)base, run, first, dense, GATHER);
}

void lattice_scatter(const struct lattice *l, void *base, uint64_t first, uint64_t n, const void *dense) {
        if (l->n_dims == 0) {
                memcpy((uint8_t *)base + first * l->element_bytes, dense, n * l->element_bytes);
                return;
        }
        const struct run run = { .element_bytes = l->element_bytes,
                .n = n,
                .from_step = l->element_bytes,
                .to_step = l->strides[l->n_dims - 1] * l->element_bytes };
        move(l, base, run, first, (uint8_t *)(uintptr_t)dense, SCATTER);
}

uint64_t lattice_offset(const struct lattice *l, uint64_t index) {
        struct walk w;
        walk_begin(&w, l, index);
        return l->n_dims == 0 ? index : w.at;
}
