/* How long results are where that is known only when all halves are there: what is gathered, and the slices
 * of a reduce_scatter. Private to the planner; pure. */
#pragma once

#include "algorithms/algorithm.h"
#include "model/error.h"

/* Fills in plan_extents, where the kind has any. INVALID with field EXTENT when lengths do not add up (entry,
 * and who says what in the classes), with field SIZE when an output lacks room for the whole (entry, rank);
 * NO_MEMORY. *err is written on failure alone, from error_init on. */
enum status extents_find(const struct problem *problem, struct plan *plan, struct error *err) MUST_USE;

/* Of a reduction over axes: whether every result has contributions, and no more than can be divided by.
 * INVALID or LIMIT with field EXTENT, INVALID or UNSUPPORTED with field OPTIONS. */
enum status folds_check(const struct problem *problem, struct error *err) MUST_USE;

/* INVALID: weights whose sum is none. *err is initialised. */
enum status weights_refuse_overflow(struct error *err) MUST_USE;
