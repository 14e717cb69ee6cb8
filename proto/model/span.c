#include "model/span.h"

bool span_make(uint64_t offset_bytes, uint64_t n_elements, uint64_t element_bytes, uint64_t limit_bytes,
        struct span *ret) {
        uint64_t n_bytes, end;
        if (element_bytes == 0 || offset_bytes % element_bytes != 0 ||
                __builtin_mul_overflow(n_elements, element_bytes, &n_bytes) ||
                __builtin_add_overflow(offset_bytes, n_bytes, &end) || end > limit_bytes)
                return false;
        *ret = (struct span){ .offset_bytes = offset_bytes, .n_bytes = n_bytes };
        return true;
}

bool span_overlaps(const struct span *a, const struct span *b) {
        return a->n_bytes && b->n_bytes && a->offset_bytes < span_end(b) && b->offset_bytes < span_end(a);
}
