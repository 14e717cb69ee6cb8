#include "slices.h"

#include <string.h>

static struct tutti_value shaped(const struct array *a, enum tutti_dtype dtype, const uint64_t shape[2]) {
        return TUTTI_VALUE(.buffer = a->buffer, .dtype = dtype, .n_dims = shape[1] ? 2 : 1,
                .shape = { shape[0], shape[1] });
}

void slices_init(struct tutti *t, struct slices *s, const struct slices_shape *shape) {
        s->k = shape->k;
        s->row = shape->row;
        array_init(t, &s->rows, shape->dtype, shape->k * shape->row + 1);
        array_init(t, &s->indices, shape->index_dtype, shape->k + 1);
        s->value = shaped(&s->rows, shape->dtype, (const uint64_t[]){ shape->k, shape->row });
        s->index_value = shaped(&s->indices, shape->index_dtype, (const uint64_t[]){ shape->k, 0 });
        s->value.indices = &s->index_value;
        s->value.dense_rows = shape->dense_rows;
}

void slices_deinit(struct slices *s) {
        array_deinit(&s->rows);
        array_deinit(&s->indices);
}

int64_t slices_index(const struct slices *s, uint64_t i) {
        return s->index_value.dtype == TUTTI_I32 ? ((const int32_t *)s->indices.data)[i]
                                                 : ((const int64_t *)s->indices.data)[i];
}

void slices_set_index(struct slices *s, uint64_t i, int64_t index) {
        if (s->index_value.dtype == TUTTI_I32)
                ((int32_t *)s->indices.data)[i] = (int32_t)index;
        else
                ((int64_t *)s->indices.data)[i] = index;
}

void slices_expect(const struct slices *s, uint64_t n, const float *values, const int64_t *indices) {
        for (uint64_t i = 0; i < n; i++)
                ck_assert_int_eq(slices_index(s, i), indices[i]);
        for (uint64_t i = 0; i < n * s->row; i++)
                ck_assert_float_eq(((const float *)s->rows.data)[i], values[i]);
}
