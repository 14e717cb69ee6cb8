/* Host memory that the driver would not register: a run copies it to memory of ours before, and back after.
 * Slow, said in `status`, and right: of an output nothing is written but its elements.
 *
 * A slice at a time, so that the process answers meanwhile; and under the guard, for what a client has
 * punched out of its memory, or never filled, may be nowhere (P16). */
#include <string.h>
#include "backends/cuda/flight.h"
#include "backends/guard.h"
#include "model/view.h"

#define SLICE_BYTES (UINT64_C(16) << 20) /* some milliseconds */
#define DENSE_BYTES (16u << 10)          /* of elements on their way between gaps */

/* One that has a stand-in. */
struct stood {
        const struct step *step;
        const struct operand *operand;
        uint32_t index; /* in the step: inputs, then outputs */
        const struct stand_in *stand_in;
};

/* From there on; false: there is none. */
static bool find_stood(const struct flight *f, struct copying *at, struct stood *ret) {
        const struct plan *plan = f->run->plan;
        for (; at->step < plan->n_steps; at->step++, at->index = 0) {
                const struct step *s = &plan->steps[at->step];
                for (; at->index < s->n_inputs + s->n_outputs; at->index++) {
                        const uint32_t i = s->first_operand + at->index;
                        *ret = (struct stood){ s, &plan->operands[i], at->index, &f->stand_ins[i] };
                        if (ret->stand_in->area)
                                return true;
                }
        }
        return false;
}

/* --- what there is to copy --- */

struct load {
        bool has_lattice; /* else n bytes, one behind the other */
        struct lattice lattice;
        uint64_t n, unit_bytes;
        uint64_t shape[2], strides[2]; /* of rows */
};

static size_t element_bytes(const struct stood *s) {
        return dtype_bytes(s->index < s->step->n_inputs ? s->step->dtype : s->step->output_dtype);
}

/* As many rows as the run has found, and nothing between them. */
static void load_rows(const struct flight *f, const struct stood *s, struct load *l) {
        const struct step *step = s->step;
        const struct plan *plan = f->run->plan;
        const bool is_index = step->kind == STEP_ORDER;
        l->shape[0] = plan_extents(plan, step->entry)[plan->extents_of_entry - 1];
        l->shape[1] = is_index ? 1 : step->row_elements;
        l->strides[0] = is_index ? 1 : s->operand->row_stride;
        l->strides[1] = 1;
        l->lattice = (struct lattice){ .n_dims = 2, .shape = l->shape, .strides = l->strides };
        l->n = l->shape[0] * l->shape[1];
}

static void load_elements(const struct flight *f, const struct stood *s, struct load *l) {
        l->lattice = (struct lattice){ .n_dims = s->step->n_dims,
                .shape = s->step->shape,
                .strides = plan_strides(f->run->plan, s->step, s->index) };
        l->n = s->step->count;
}

/* Inputs come as they lie there, with their gaps. */
static void load_init(struct load *l, const struct flight *f, const struct stood *s) {
        const bool is_open = s->index >= s->step->n_inputs && plan_is_open(s->step, s->index);
        *l = (struct load){ .n = s->stand_in->n_bytes, .unit_bytes = 1 };
        l->has_lattice = is_open || (s->index >= s->step->n_inputs && s->step->n_dims > 0);
        if (!l->has_lattice)
                return;
        if (is_open)
                load_rows(f, s, l);
        else
                load_elements(f, s, l);
        l->lattice.element_bytes = l->unit_bytes = element_bytes(s);
}

/* --- copying --- */

struct copy {
        struct guarded_work work; /* first */
        const struct cuda_memory *memory;
        const struct lattice *lattice; /* NULL: n bytes */
        uint8_t *to;
        const uint8_t *from;
        uint64_t first, n;
};

static void run_copy(const struct guarded_work *work) {
        const struct copy *c = (const void *)work;
        if (c->lattice)
                lattice_scatter(c->lattice, c->to, c->first, c->n, c->from);
        else
                memcpy(c->to + c->first, c->from + c->first, c->n);
}

static const struct memory *find_owner(const struct guarded_work *work, const void *address) {
        const struct cuda_memory *m = ((const struct copy *)(const void *)work)->memory;
        const uint8_t *at = address;
        return at >= m->map && at < m->map + m->n_map_bytes ? &m->base : NULL;
}

static bool copy_guarded(struct flight *f, const struct stood *s, struct copy *c) {
        const struct memory *culprit;
        c->work = (struct guarded_work){ .run = run_copy, .find_owner = find_owner };
        c->memory = cuda_memory_of(s->operand->memory);
        if (guard_run(&c->work, &culprit))
                return true;
        f->run->culprit = (uint32_t)(s->operand - f->run->plan->operands) + 1;
        flight_fail(f, STATUS_BAD_FD, "memory of a client is a hole");
        return false;
}

static uint64_t least(uint64_t a, uint64_t b) {
        return a < b ? a : b;
}

/* Some of it; *left counts down. false: their memory failed. */
static bool copy_some(struct flight *f, const struct stood *s, uint64_t *left) {
        uint8_t dense[DENSE_BYTES];
        struct load l;
        struct copying *at = &f->copying;
        const bool is_in = s->index < s->step->n_inputs;
        uint8_t *ours = s->stand_in->area->host,
                *theirs = cuda_memory_of(s->operand->memory)->map + s->operand->offset_bytes;
        load_init(&l, f, s);
        struct copy c = { .lattice = l.has_lattice ? &l.lattice : NULL,
                .to = is_in ? ours : theirs,
                .from = is_in           ? theirs
                        : l.has_lattice ? dense
                                        : ours,
                .first = at->done,
                .n = least(l.n - at->done, (l.has_lattice ? sizeof(dense) : *left) / l.unit_bytes) };
        if (c.lattice)
                lattice_gather(c.lattice, ours, c.first, c.n, dense);
        if (c.n > 0 && !copy_guarded(f, s, &c))
                return false;
        *left -= least(*left, c.n * l.unit_bytes);
        at->done += c.n;
        if (at->done == l.n)
                *at = (struct copying){ .step = at->step, .index = at->index + 1 };
        return true;
}

enum direction { IN, OUT };

static bool copy_slice(struct flight *f, enum direction direction) {
        uint64_t left = SLICE_BYTES;
        struct stood s;
        while (f->has_stand_ins && find_stood(f, &f->copying, &s)) {
                if ((s.index < s.step->n_inputs) != (direction == IN)) {
                        f->copying.index++;
                        continue;
                }
                if (left == 0)
                        return false;
                if (!copy_some(f, &s, &left))
                        return true;
        }
        f->copying = (struct copying){ 0 };
        return true;
}

bool flight_copy_in(struct flight *f) {
        return copy_slice(f, IN);
}

bool flight_copy_out(struct flight *f) {
        return copy_slice(f, OUT);
}
