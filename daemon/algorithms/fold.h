/* A reduction over axes as well as over replicas, for one_device alone. Pure. */
#pragma once

#include "algorithms/algorithm.h"

/* Appends a step like `step` (entry `step->entry`, all inputs) whose inputs are combined over the axes too,
 * in one chain: in the order of the ranks, of each in that of its indices. Replicas of which nothing lies
 * along the axes bring no input; others bring something. 0 or -ENOMEM. */
int fold_build(const struct problem *problem, const struct step *step, struct plan *plan) MUST_USE;

/* Elements of half `i` of entry `e` that are combined into one; with their weights, of all halves. Whoever
 * asks has seen to it that they can be counted. */
uint64_t fold_count(const struct problem *problem, uint32_t i, uint32_t e);
double fold_total_weight(const struct problem *problem, uint32_t e);
