/* How the values of a batch are gathered into packs: which elements of which entry are in which one. A value
 * here, so that no algorithm has to copy anything for it; pure.
 *
 * A pack never mixes types. An entry that has strides somewhere is not cut: it goes whole into the pack in
 * which it begins. */
#pragma once

#include <stdint.h>
#include "algorithms/algorithm.h"

/* Neighbouring elements of an entry. */
struct pack_piece {
        uint32_t pack, entry;
        uint64_t first_element, n_elements;
};

struct packs {
        struct pack_piece *pieces; /* by pack, in it as they lie; none of them empty */
        uint32_t n_pieces, capacity;
        uint32_t n_packs; /* with those that are empty */
};

/* By the options of the problem's signature: num_packs, else the small ones, else bytes_per_pack, else each
 * entry by itself. Appends to a struct that was zeroed. 0 or -ENOMEM. */
int packs_make(struct packs *p, const struct problem *problem) MUST_USE;
void packs_deinit(struct packs *p);
