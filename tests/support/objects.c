#include "objects.h"

struct tutti_object *object_make(struct tutti_group *g, const char *name, size_t n_floats) {
        struct tutti_object *o = NULL;
        const struct tutti_object_args args = TUTTI_OBJECT(.name = name, .n_bytes = n_floats * sizeof(float));
        expect_status(tutti_object_make(g, &args, &o), TUTTI_OK);
        return o;
}

struct tutti_value value_in(struct tutti_object *o, size_t offset, size_t n_floats) {
        return TUTTI_VALUE(.object = o, .offset = offset, .dtype = TUTTI_F32, .n_dims = 1,
                .shape = { n_floats });
}

void expect_slot(const struct tutti_object *o, uint32_t slot, size_t from, size_t n, float value) {
        const float *data = tutti_object_data(o, slot);
        ck_assert_ptr_nonnull(data);
        for (size_t i = from; i < from + n; i++)
                ck_assert_msg(data[i] == value, "element %zu of slot %u is %g, not %g", i, slot,
                        (double)data[i], (double)value);
}

uint32_t sum_into(struct tutti_group *g, const char *key, const struct floats *f, struct tutti_object *o) {
        const struct tutti_value output = value_in(o, 0, f->n);
        expect_status(tutti_all_reduce(g, key, TUTTI_SUM, &f->value, &output), TUTTI_OK);
        return tutti_last_result()->slot;
}
