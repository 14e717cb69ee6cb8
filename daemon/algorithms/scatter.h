/* A reduce_scatter, for one_device alone: each replica's slice is a pass of its own. Pure. */
#pragma once

#include "algorithms/algorithm.h"

/* Appends a step like `step` (entry `step->entry`, all inputs) for each slice that somebody takes: it reads
 * that slice of every input where it lies. Lengths are those of plan_extents. 0 or -ENOMEM. */
int scatter_build(const struct problem *problem, const struct step *step, struct plan *plan) MUST_USE;
