#include "model/finding.h"

#include <stdbool.h>

static bool is_before(const struct finding *a, const struct finding *b) {
        if (a->rank != b->rank)
                return a->rank < b->rank;
        if (a->entry != b->entry)
                return a->entry < b->entry;
        return a->index < b->index;
}

static void finding_add(struct finding *f, const struct finding *other) {
        uint64_t n = f->n + other->n;
        if (other->n > 0 && (f->n == 0 || is_before(other, f)))
                *f = *other;
        f->n = n;
}

void findings_add(struct findings *f, const struct findings *other) {
        finding_add(&f->numerics, &other->numerics);
        finding_add(&f->overflow, &other->overflow);
}
