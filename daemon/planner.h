/* Sealed collective -> plan: the checks that need all halves at once, the choice of algorithm, the frozen
 * plan.
 *
 * Pure; lives on the loop thread; owns scratch memory that grows and is kept. */
#pragma once

#include <stdint.h>
#include "algorithms/algorithm.h"
#include "model/error.h"
#include "plan.h"

struct planner;

/* What the configuration says about the choice. */
struct plan_rules {
        enum algorithm_name algorithm; /* where it can be done; unspecified: as the table says */
        uint64_t library_from_bytes;   /* of a collective on GPUs, from which on the library is better */
};

/* Those of a tuttid that was told nothing. */
#define PLAN_RULES_DEFAULT ((struct plan_rules){ .library_from_bytes = UINT64_C(256) << 10 })

int planner_new(struct planner **ret, uint32_t n_devices, uint64_t chunk_bytes) MUST_USE;
void planner_free(struct planner *p);
/* Instead of the default ones. */
void planner_set_rules(struct planner *p, const struct plan_rules *rules);

/* About as many operands as a plan for this has: what its making takes in time. */
uint64_t planner_operands(const struct problem *problem);
/* About as much memory as a plan for this takes, with what its making takes. */
uint64_t planner_bytes(const struct problem *problem);

/* Fills `plan` (reset first). OK; INVALID with field OVERLAP, entry, rank and both ranks in the text, when an
 * output overlaps anything but the same replica's input of the same entry at equal offset, strides and
 * element size (compared by file and bytes, P14; gaps between strided elements are free), or with field
 * OPTIONS when the weights of a MEAN are all 0; UNSUPPORTED when no algorithm can do it; NO_MEMORY. *err is
 * written on failure alone, from error_init on: the group is the caller's to describe. */
enum status planner_plan(
        struct planner *p, const struct problem *problem, struct plan *plan, struct error *err) MUST_USE;
