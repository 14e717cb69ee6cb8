#include "lib/axes.h"

#include <inttypes.h>
#include <string.h>

/* --- which dimensions --- */

static enum status refuse_axis(int32_t axis, uint32_t n_dims, struct error *err) {
        if (n_dims == 0)
                return refuse(err, STATUS_INVALID, FIELD_AXIS,
                        "axis %" PRId32 " of a scalar; give it a dimension of 1", axis);
        return refuse(err, STATUS_INVALID, FIELD_AXIS,
                "axis %" PRId32 " is outside of a value of %" PRIu32 " dimensions: it may be -%" PRIu32
                " to %" PRIu32,
                axis, n_dims, n_dims, n_dims - 1);
}

enum status axes_take(
        const struct axes_given *given, const struct tutti_value *first, uint16_t *ret, struct error *err) {
        uint32_t n_dims = first && first->n_dims <= MAX_DIMS ? first->n_dims : MAX_DIMS;
        uint16_t axes = 0;
        if (given->n && !given->list)
                return refuse(err, STATUS_INVALID, FIELD_AXIS, "the axes are NULL");
        for (uint32_t i = 0; i < given->n; i++) {
                int64_t axis = given->list[i];
                if (axis < 0)
                        axis += n_dims;
                if (axis < 0 || axis >= n_dims)
                        return refuse_axis(given->list[i], n_dims, err);
                if (axes >> axis & 1)
                        return refuse(err, STATUS_INVALID, FIELD_AXIS,
                                "axis %" PRId32 " is given twice; a dimension counts once", given->list[i]);
                axes |= 1u << axis;
        }
        *ret = axes;
        return STATUS_OK;
}

enum status axes_check_dims(const struct axes_given *given, const struct tutti_value *first,
        const struct tutti_value *other, struct error *err) {
        for (uint32_t i = 0; i < given->n; i++)
                if (given->list[i] < 0 && other->n_dims != first->n_dims)
                        return refuse(err, STATUS_INVALID, FIELD_AXIS,
                                "axis %" PRId32
                                " counts from the last dimension, and the values of this batch "
                                "have %" PRIu32 " and %" PRIu32 "; count from the first one",
                                given->list[i], first->n_dims, other->n_dims);
        return STATUS_OK;
}

/* --- outputs --- */

/* With a dimension of 1 wherever one of `axes` is missing. */
static void insert_axes(uint16_t axes, uint32_t n_dims, struct tutti_value *v) {
        struct tutti_value narrow = *v;
        for (uint32_t d = 0, k = 0; d < n_dims; d++) {
                bool is_reduced = axes >> d & 1;
                v->shape[d] = is_reduced ? 1 : narrow.shape[k];
                v->strides[d] = is_reduced ? 0 : narrow.strides[k];
                k += !is_reduced;
        }
        v->n_dims = n_dims;
}

static void print_shape(const struct tutti_value *v, struct text *t) {
        text_add(t, "[");
        for (uint32_t d = 0; d < v->n_dims; d++)
                text_add(t, "%s%" PRIu64, d ? "," : "", v->shape[d]);
        text_add(t, "]");
}

static enum status refuse_shape(const struct signature *s, const struct tutti_value *input,
        const struct tutti_value *output, struct error *err) {
        char given[96], wanted[96];
        struct text t;
        text_init(&t, wanted, sizeof(wanted));
        print_shape(input, &t);
        text_init(&t, given, sizeof(given));
        print_shape(output, &t);
        if (!s->axes)
                return refuse(err, STATUS_INVALID, FIELD_SHAPE, "input and output differ in their shapes");
        if (kind_has_axis(s->kind))
                return refuse(err, STATUS_INVALID, FIELD_SHAPE,
                        "the output, %s, differs from the input, %s, in more than its length along axis "
                        "%" PRIu32,
                        given, wanted, signature_axis(s));
        return refuse(err, STATUS_INVALID, FIELD_SHAPE,
                "the output, %s, is not the input, %s, without the axes that are reduced over", given,
                wanted);
}

enum status axes_fit_output(const struct signature *s, const struct tutti_value *input,
        struct tutti_value *output, struct error *err) {
        uint32_t n_axes = (uint32_t)__builtin_popcount(s->axes);
        bool is_reduced = n_axes && !kind_has_axis(s->kind);
        if (is_reduced && output->n_dims + n_axes == input->n_dims)
                insert_axes(s->axes, input->n_dims, output);
        bool fits = output->n_dims == input->n_dims;
        for (uint32_t d = 0; fits && d < input->n_dims; d++)
                if (!(s->axes >> d & 1))
                        fits = output->shape[d] == input->shape[d];
                else if (is_reduced)
                        fits = output->shape[d] == 1;
        return fits ? STATUS_OK : refuse_shape(s, input, output, err);
}
