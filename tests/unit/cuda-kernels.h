/* Runs what cuda_step_prepare and its like say, on this processor: "device memory" is memory. */
#pragma once

#include "backends/cuda/kernels.h"

/* The kernel is looked up by its name, as a driver does. */
void run_launch(const struct cuda_launch *l);

/* All launches of a step; brings its table. Fails the test when there is no kernel for it. */
void run_step(struct cuda_step *s);

static inline uint64_t address_of(const void *p) {
        return (uint64_t)(uintptr_t)p;
}
