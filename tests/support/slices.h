/* What tests of sparse values need again and again: rows with their indices in buffers, made from a seed that
 * every process knows, so that each replica knows what all have brought. */
#pragma once

#include "meeting.h"

/* k rows of `row` elements, of a value of dense_rows rows. */
struct slices {
        struct array rows, indices;
        struct tutti_value value, index_value; /* value.indices is index_value */
        uint64_t k, row;
};

struct slices_shape {
        enum tutti_dtype dtype, index_dtype;
        uint64_t k, row, dense_rows;
};

/* All 0. Not to be moved. */
void slices_init(struct tutti *t, struct slices *s, const struct slices_shape *shape);
void slices_deinit(struct slices *s);

int64_t slices_index(const struct slices *s, uint64_t i);
void slices_set_index(struct slices *s, uint64_t i, int64_t index);
/* `n` f32 rows of one element each, and their indices. */
void slices_expect(const struct slices *s, uint64_t n, const float *values, const int64_t *indices);
