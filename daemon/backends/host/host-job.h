/* One kernel call, and where it lies in its step. What host-run.c and host-strided.c share. */
#pragma once

#include "backends/guard.h"
#include "backends/host/host-private.h"
#include "backends/host/kernels.h"
#include "model/rankset.h"

struct chunk {
        struct guarded_work work; /* first */
        enum isa isa;
        const struct plan *plan;
        uint64_t index;
        struct findings *found;
};

struct job {
        const struct chunk *chunk;
        const struct step *step;
        uint64_t first_element;
        struct kernel_call call;
        const void *in[MAX_WORLD];
        void *out[MAX_WORLD];
        double weights[MAX_WORLD];
        struct kernel_count nonfinite[MAX_WORLD];
};

/* Runs `n_elements` from first_element on, at j->in and j->out; both have moved on then. */
void job_run(struct job *j, uint64_t n_elements);

/* The same where j->in and j->out are the first elements of values with strides, or where inputs are checked.
 */
void job_run_strided(struct job *j, uint64_t n_elements);

/* The same of a step that reduces over dimensions of its inputs, j->in and j->out as there. */
void job_run_folded(struct job *j, uint64_t n_elements);
