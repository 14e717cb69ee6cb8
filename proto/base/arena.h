/* A bounded bump allocator over memory that somebody else owns: what one packet may make us allocate.
 *
 * Reset, never freed piece by piece. arena_alloc answers NULL at the bound. Not thread-safe. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct arena {
        uint8_t *base;
        size_t size_bytes, used_bytes;
};

static inline void arena_init(struct arena *a, void *base, size_t size_bytes) {
        a->base = base;
        a->size_bytes = size_bytes;
        a->used_bytes = 0;
}

static inline void arena_reset(struct arena *a) {
        a->used_bytes = 0;
}

/* Memory aligned to 16 bytes, not cleared; NULL when the arena is full. */
void *arena_alloc(struct arena *a, size_t n_bytes);

/* `n` elements of `size` bytes, cleared; NULL when full or when the product overflows. `n` = 0 gives a valid
 * pointer. */
void *arena_calloc(struct arena *a, size_t n, size_t size);

/* A NUL-terminated copy of at most `n` bytes; NULL when full. */
char *arena_strndup(struct arena *a, const char *s, size_t n);
