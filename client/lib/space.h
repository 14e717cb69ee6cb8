/* Which bytes of a region are taken: first fit, without an allocation of its own.
 *
 * Only what is taken is recorded, in blocks that their owners embed, in order of offset; so giving back
 * cannot fail. Pure; not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/list.h"

struct block {
        struct list node;
        uint64_t offset_bytes, n_bytes;
};

struct space {
        struct list blocks;
        uint64_t size_bytes, used_bytes;
};

void space_init(struct space *s, uint64_t size_bytes);

/* Takes `n_bytes` (>= 1) at a multiple of `align_bytes` (a power of two): the first gap that fits, else the
 * end. false: no room. */
bool space_take(struct space *s, struct block *block, uint64_t n_bytes, uint64_t align_bytes);
void space_give_back(struct space *s, struct block *block);

static inline bool space_is_empty(const struct space *s) {
        return list_is_empty(&s->blocks);
}
