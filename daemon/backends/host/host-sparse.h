/* The steps of sparse values: indices are taken in and looked at, put in order, and rows of equal index are
 * combined. What they do is told in plan.h. */
#pragma once

#include "backends/host/host-job.h"

/* Runs a piece of an INDICES, ORDER or SCATTER_ADD step. Under the guard. */
void sparse_run_piece(const struct chunk *c, const struct piece *piece);
