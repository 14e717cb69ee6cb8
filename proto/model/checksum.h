/* A checksum of a value's elements that notices one that changed or two that changed places. It is a sum over
 * the elements of what an element and its index make together, so parts may be summed in any order. It is no
 * defence against somebody who wants it to be right. Wire format: both sides compute it. */
#pragma once

#include "model/view.h"

/* Of `n` elements of 1, 2, 4, 8 or 16 bytes, of which the first has index `first`. */
uint64_t checksum_elements(const void *dense, uint64_t n, size_t element_bytes, uint64_t first);

/* Of the first `n` elements of a lattice. */
uint64_t checksum_lattice(const struct lattice *l, const void *base, uint64_t n);
