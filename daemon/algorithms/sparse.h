/* Sparse values in a plan: indices come into tuttid's own memory and are looked at there before anything is
 * written; rows are copied to where they belong in the result, or with `coalesce` those of equal index are
 * combined. Pure. */
#pragma once

#include "algorithms/algorithm.h"
#include "base/cleanup.h"
#include "model/error.h"

/* Where in scratch the indices of the sparse entries are, while a plan is built. */
struct sparse_work;

/* What only all halves together tell: whether the results fit into the outputs, as far as that is known
 * before the indices are; INVALID with field SIZE, rank and entry, LIMIT, or UNSUPPORTED on GPUs that
 * do not reach each other. *err is written on failure alone. */
enum status sparse_check(const struct problem *problem, struct error *err) MUST_USE;

/* Begins a plan whose device is set: all phases before the one that writes. *ret is NULL where nothing is
 * sparse. 0 or -ENOMEM. */
int sparse_prepare(const struct problem *problem, struct plan *plan, struct sparse_work **ret) MUST_USE;
/* Appends what writes entry `e`, each sparse one in its turn. 0 or -ENOMEM. */
int sparse_build(
        const struct problem *problem, uint32_t e, struct sparse_work *w, struct plan *plan) MUST_USE;

void sparse_work_free(struct sparse_work *w);
DEFINE_CLEANUP(struct sparse_work, sparse_work_free)
#define CLEANUP_SPARSE CLEANUP(sparse_work_freep)
