/* A step whose device does not reach all of its operands: what is far is brought to host memory by a device
 * that has it, the step works on that, and its result is fetched from there. The order is the step's own, so
 * are its bits. Pure. */
#pragma once

#include "algorithms/algorithm.h"

/* Appends what does `step`, which reads halves `first` and on, and writes the outputs of the problem other
 * than `source` (NULL: all). Large values go in rounds. 0 or -ENOMEM. */
int far_build(const struct problem *problem, const struct step *step, uint32_t first,
        const struct place *source, struct plan *plan) MUST_USE;
