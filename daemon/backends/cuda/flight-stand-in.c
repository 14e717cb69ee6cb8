/* Host memory that the driver would not register: a run copies it to memory of ours before, and back after.
 * Slow, said in `status`, and right: of an output nothing is written but its elements. */
#include <stdlib.h>
#include <string.h>
#include "backends/cuda/flight.h"
#include "model/view.h"

static size_t element_bytes(const struct step *s, uint32_t i) {
        return dtype_bytes(i < s->n_inputs ? s->dtype : s->output_dtype);
}

/* Walks the operands that have stand-ins. */
struct stood {
        const struct step *step;
        const struct operand *operand;
        uint32_t index; /* in the step: inputs, then outputs */
        const struct stand_in *stand_in;
};

static void for_each_stood(struct flight *f, void (*act)(struct flight *f, const struct stood *s)) {
        const struct plan *plan = f->run->plan;
        for (uint32_t i = 0; i < plan->n_steps; i++) {
                const struct step *s = &plan->steps[i];
                for (uint32_t k = 0; k < s->n_inputs + s->n_outputs; k++) {
                        const struct stood stood = { .step = s,
                                .operand = &plan->operands[s->first_operand + k],
                                .index = k,
                                .stand_in = &f->stand_ins[s->first_operand + k] };
                        if (stood.stand_in->area)
                                act(f, &stood);
                }
        }
}

static uint8_t *theirs(const struct stood *s) {
        return cuda_memory_of(s->operand->memory)->map + s->operand->offset_bytes;
}

static void copy_one_in(struct flight *f, const struct stood *s) {
        (void)f;
        if (s->index < s->step->n_inputs)
                memcpy(s->stand_in->area->host, theirs(s), s->stand_in->n_bytes);
}

static void copy_elements_out(
        struct flight *f, const struct stood *s, const struct lattice *lattice, uint64_t n) {
        void *dense = malloc(n * lattice->element_bytes);
        if (!dense) {
                flight_fail(f, STATUS_INTERNAL, "tuttid-gpu is short of memory; outputs undefined");
                return;
        }
        lattice_gather(lattice, s->stand_in->area->host, 0, n, dense);
        lattice_scatter(lattice, theirs(s), 0, n, dense);
        free(dense);
}

/* As many rows as the run has found, and nothing between them. */
static void copy_rows_out(struct flight *f, const struct stood *s) {
        const struct step *step = s->step;
        const struct plan *plan = f->run->plan;
        const bool is_index = step->kind == STEP_ORDER;
        const uint64_t n = plan_extents(plan, step->entry)[plan->extents_of_entry - 1];
        const uint64_t shape[] = { n, is_index ? 1 : step->row_elements },
                       strides[] = { is_index ? 1 : s->operand->row_stride, 1 };
        const struct lattice lattice = { .element_bytes = element_bytes(step, s->index),
                .n_dims = 2,
                .shape = shape,
                .strides = strides };
        if (n > 0)
                copy_elements_out(f, s, &lattice, n * shape[1]);
}

static void copy_one_out(struct flight *f, const struct stood *s) {
        if (s->index < s->step->n_inputs)
                return;
        const struct lattice lattice = { .element_bytes = element_bytes(s->step, s->index),
                .n_dims = s->step->n_dims,
                .shape = s->step->shape,
                .strides = plan_strides(f->run->plan, s->step, s->index) };
        if (plan_is_open(s->step, s->index))
                copy_rows_out(f, s);
        else if (lattice.n_dims)
                copy_elements_out(f, s, &lattice, s->step->count);
        else
                memcpy(theirs(s), s->stand_in->area->host, s->stand_in->n_bytes);
}

void flight_copy_in(struct flight *f) {
        if (f->has_stand_ins)
                for_each_stood(f, copy_one_in);
}

void flight_copy_out(struct flight *f) {
        if (f->has_stand_ins)
                for_each_stood(f, copy_one_out);
}
