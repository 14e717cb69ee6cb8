/* Sparse values: rows with the indices that say which rows of a larger value they are. */
#include <string.h>
#include "lib/draft.h"

/* d->indices: one number for each row. */
static enum status take_indices(struct draft *d, const char *what, const struct tutti_value *rows) {
        enum status status = draft_take_value(d, what, rows->indices, &d->indices);
        const struct tutti_value *v = &d->indices;
        if (status != STATUS_OK)
                return status;
        if (v->indices)
                return refuse(d->err, STATUS_INVALID, FIELD_INDICES, "the %s have indices themselves", what);
        if (rows->n_dims == 0 || v->n_dims != 1 || v->shape[0] != rows->shape[0])
                return refuse(d->err, STATUS_INVALID, FIELD_INDICES,
                        "the %s are [%llu], of %u dimensions, and the rows are %llu; each row has one index, "
                        "so "
                        "both begin with the same number",
                        what, v->n_dims ? (unsigned long long)v->shape[0] : 1, v->n_dims,
                        rows->n_dims ? (unsigned long long)rows->shape[0] : 0);
        if (v->has_strides && v->strides[0] != 1 && v->shape[0] > 1)
                return refuse(d->err, STATUS_UNSUPPORTED, FIELD_STRIDES,
                        "the %s have a stride; indices lie one behind the other", what);
        d->indices.has_strides = 0;
        return STATUS_OK;
}

static void describe_sparse(struct draft *d, const struct tutti_value *rows) {
        struct entry *e = d->entry;
        e->layout = LAYOUT_SPARSE;
        e->sparse.index_dtype =
                (unsigned int)d->indices.dtype < N_DTYPE ? (enum dtype)d->indices.dtype : N_DTYPE;
        e->sparse.n_indices = rows->shape[0];
        e->sparse.n_dense_dims = rows->n_dims;
        memcpy(e->sparse.dense_shape, rows->shape, rows->n_dims * sizeof(*rows->shape));
        e->sparse.dense_shape[0] = rows->dense_rows;
}

enum status draft_sparse_input(struct draft *d) {
        enum status status = take_indices(d, "indices of the input", &d->input);
        if (status != STATUS_OK)
                return status;
        if (d->indices.object)
                return refuse(d->err, STATUS_INVALID, FIELD_BUFFER,
                        "the indices of the input are in a result object, which is for outputs");
        describe_sparse(d, &d->input);
        return draft_place_value(d, "indices of the input", &d->indices, &d->entry->sparse.indices);
}

/* It is as the input says, but for how many rows it has room for. */
static enum status compare_with_input(struct draft *d) {
        const struct tutti_value *in = &d->input, *out = &d->output;
        const struct sparse *sparse = &d->entry->sparse;
        if (!in->indices || !out->indices)
                return refuse(d->err, STATUS_INVALID, FIELD_LAYOUT,
                        "the %s is sparse and the %s is not; give both indices, or neither",
                        in->indices ? "input" : "output", in->indices ? "output" : "input");
        if (in->n_dims != out->n_dims ||
                memcmp(in->shape + 1, out->shape + 1, (in->n_dims - 1) * sizeof(*in->shape)) != 0)
                return refuse(d->err, STATUS_INVALID, FIELD_SHAPE,
                        "the rows of input and output differ in their shapes");
        if (in->dense_rows != out->dense_rows)
                return refuse(d->err, STATUS_INVALID, FIELD_DENSE_SHAPE,
                        "the input is of %llu dense rows and the output of %llu",
                        (unsigned long long)in->dense_rows, (unsigned long long)out->dense_rows);
        if ((enum dtype)d->indices.dtype != sparse->index_dtype)
                return refuse(d->err, STATUS_INVALID, FIELD_INDEX_DTYPE,
                        "the indices of input and output are of different dtypes; nothing is converted");
        if (out->dtype != in->dtype)
                d->entry->output_dtype =
                        (unsigned int)out->dtype < N_DTYPE ? (enum dtype)out->dtype : N_DTYPE;
        return STATUS_OK;
}

enum status draft_sparse_output(struct draft *d, bool has_input) {
        struct entry *e = d->entry;
        enum status status = STATUS_OK;
        if (d->output.indices)
                status = take_indices(d, "indices of the output", &d->output);
        if (status == STATUS_OK && has_input)
                status = compare_with_input(d);
        else if (status == STATUS_OK)
                describe_sparse(d, &d->output);
        if (status == STATUS_OK)
                status = draft_place_value(d, "output", &d->output, &e->output);
        if (status == STATUS_OK)
                status =
                        draft_place_value(d, "indices of the output", &d->indices, &e->sparse.output_indices);
        e->output_extent = d->output.shape[0];
        return status;
}
