#include "base/arena.h"

#include <string.h>

#define ALIGNMENT 16u

void *arena_alloc(struct arena *a, size_t n_bytes) {
        uintptr_t next = (uintptr_t)(a->base + a->used_bytes);
        size_t padding = -next & (ALIGNMENT - 1);
        size_t left = a->size_bytes - a->used_bytes;
        if (padding > left || n_bytes > left - padding)
                return NULL;
        uint8_t *r = a->base + a->used_bytes + padding;
        a->used_bytes += padding + n_bytes;
        return r;
}

void *arena_calloc(struct arena *a, size_t n, size_t size) {
        size_t n_bytes;
        if (__builtin_mul_overflow(n, size, &n_bytes))
                return NULL;
        void *r = arena_alloc(a, n_bytes);
        if (r)
                memset(r, 0, n_bytes);
        return r;
}

char *arena_strndup(struct arena *a, const char *s, size_t n) {
        n = strnlen(s, n);
        char *r = arena_alloc(a, n + 1);
        if (!r)
                return NULL;
        memcpy(r, s, n);
        r[n] = '\0';
        return r;
}
