#include "model/finding.h"

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

static bool is_worse(const struct bad_index *a, const struct bad_index *b) {
        if (a->entry != b->entry)
                return a->entry < b->entry;
        if (a->rank != b->rank)
                return a->rank < b->rank;
        return a->position < b->position;
}

static void bad_index_add(struct bad_index *f, const struct bad_index *other) {
        uint64_t n = f->n + other->n;
        if (other->n > 0 && (f->n == 0 || is_worse(other, f)))
                *f = *other;
        f->n = n;
}

static void short_output_add(struct short_output *f, const struct short_output *other) {
        if (other->needed > 0 && (f->needed == 0 || other->entry < f->entry))
                *f = *other;
}

void findings_add(struct findings *f, const struct findings *other) {
        finding_add(&f->numerics, &other->numerics);
        finding_add(&f->overflow, &other->overflow);
        bad_index_add(&f->bad_index, &other->bad_index);
        short_output_add(&f->short_output, &other->short_output);
}

bool findings_forbid(const struct findings *f) {
        return f->bad_index.n > 0 || f->short_output.needed > 0;
}
