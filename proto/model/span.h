/* A range of bytes of a buffer. Made by one function, which owns the arithmetic: nobody else adds an offset
 * to a length. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct span {
        uint64_t offset_bytes, n_bytes;
};

/* `n_elements` of `element_bytes` from `offset_bytes` on, inside `limit_bytes`. false (and *ret untouched)
 * when it does not fit, overflows, or when the offset is not a multiple of element_bytes. */
bool span_make(uint64_t offset_bytes, uint64_t n_elements, uint64_t element_bytes, uint64_t limit_bytes,
        struct span *ret);

/* Whether both are non-empty and share a byte. */
bool span_overlaps(const struct span *a, const struct span *b);

/* First byte beyond it. Cannot overflow for a span made by span_make. */
static inline uint64_t span_end(const struct span *s) {
        return s->offset_bytes + s->n_bytes;
}
