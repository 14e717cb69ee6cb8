/* The rules of sparse values: rows that are there, and which of a larger value they are. */
#include <inttypes.h>
#include "model/signature.h"

/* Rows that nobody adds up are handed on as they are, or divided; more would be guessing. */
static enum status check_op(const struct half_view *v) {
        const struct options *o = &v->signature->options;
        switch (v->signature->op) {
        case OP_UNSPECIFIED:
        case OP_SUM:
        case OP_MEAN: return STATUS_OK;
        case OP_MIN:
        case OP_MAX:
                if (o->coalesce)
                        return STATUS_OK;
                return error_set(v->err, STATUS_UNSUPPORTED, FIELD_OP,
                        "%s of sparse values is that of the rows of equal index, which coalesce puts "
                        "together; "
                        "set it, or take SUM or MEAN",
                        op_name(v->signature->op));
        case OP_PROD:
        case OP_BAND:
        case OP_BOR:
        case OP_BXOR:
        case OP_LAND:
        case OP_LOR:
        case N_OP: break;
        }
        return error_set(v->err, STATUS_UNSUPPORTED, FIELD_OP,
                "%s of sparse values is not done; SUM and MEAN are, with coalesce also MIN and MAX",
                op_name(v->signature->op));
}

static enum status refuse_option(const struct half_view *v, const char *what, const char *instead) {
        return error_set(v->err, STATUS_UNSUPPORTED, FIELD_OPTIONS, "%s with sparse values is not done; %s",
                what, instead);
}

/* Rows that are combined are read and written whole. */
static bool is_by_rows(const struct entry *e, const struct place *place) {
        uint64_t run = 1;
        for (uint32_t d = e->n_dims; place->n_strides && d-- > 1; run *= e->shape[d])
                if (e->shape[d] > 1 && place->strides[d] != run)
                        return false;
        return true;
}

static enum status check_options(const struct half_view *v, const struct entry *e) {
        const struct options *o = &v->signature->options;
        if (o->has_weight)
                return refuse_option(v, "a weight", "multiply the rows by it before, and take SUM");
        if (!o->coalesce)
                return STATUS_OK;
        if (o->check_overflow || o->check_inputs)
                return refuse_option(v,
                        o->check_inputs ? "check_inputs and coalesce" : "check_overflow and coalesce",
                        "leave one of them out");
        if (!is_by_rows(e, &e->input) || !is_by_rows(e, &e->output))
                return error_set(v->err, STATUS_UNSUPPORTED, FIELD_STRIDES,
                        "rows with strides inside and coalesce is not done; strides may be from row to row, "
                        "or leave "
                        "coalesce out");
        if (v->signature->op == OP_MEAN && dtype_is_integer(e->dtype))
                return refuse_option(v, "MEAN of integers and coalesce",
                        "take SUM and divide, or hand in floats, or leave coalesce out");
        return STATUS_OK;
}

static enum status check_indices(const struct half_view *v, const struct entry *e) {
        const struct sparse *s = &e->sparse;
        if (s->index_dtype == DTYPE_UNSPECIFIED)
                return error_set(v->err, STATUS_INVALID, FIELD_INDEX_DTYPE,
                        "the dtype of the indices is missing; i32 or i64");
        if (s->index_dtype != DTYPE_I32 && s->index_dtype != DTYPE_I64)
                return error_set(v->err, STATUS_UNSUPPORTED, FIELD_INDEX_DTYPE,
                        "indices of %s are not done; take i32 or i64", dtype_name(s->index_dtype));
        if (s->n_indices != e->shape[0])
                return error_set(v->err, STATUS_INVALID, FIELD_INDICES,
                        "R%" PRIu32 " brings %" PRIu64 " indices for %" PRIu64 " rows; each row has one",
                        v->rank, s->n_indices, e->shape[0]);
        if (s->indices.n_strides || s->output_indices.n_strides)
                return error_set(v->err, STATUS_UNSUPPORTED, FIELD_STRIDES,
                        "indices lie one behind the other; strides are for the rows");
        return STATUS_OK;
}

static enum status check_dense_shape(const struct half_view *v, const struct entry *e) {
        const struct sparse *s = &e->sparse;
        if (e->n_dims == 0)
                return error_set(v->err, STATUS_INVALID, FIELD_SHAPE,
                        "a sparse value has rows, so its first dimension is how many; a scalar has none");
        if (s->n_dense_dims != e->n_dims)
                return error_set(v->err, STATUS_INVALID, FIELD_DENSE_SHAPE,
                        "the dense shape has %" PRIu32 " dimensions and the rows together %" PRIu32
                        "; both have as many",
                        s->n_dense_dims, e->n_dims);
        for (uint32_t d = 1; d < e->n_dims; d++)
                if (s->dense_shape[d] != e->shape[d])
                        return error_set(v->err, STATUS_INVALID, FIELD_DENSE_SHAPE,
                                "dimension %" PRIu32 " of a row is %" PRIu64 ", and %" PRIu64
                                " in the dense shape; only the first may differ",
                                d, e->shape[d], s->dense_shape[d]);
        if (s->dense_shape[0] <= INT64_MAX)
                return STATUS_OK;
        return error_set(
                v->err, STATUS_LIMIT, FIELD_DENSE_SHAPE, "more rows than indices of 63 bits can count");
}

/* What the output has room for; strides are looked at as those of any value. */
static enum status check_room(const struct half_view *v, const struct entry *e) {
        struct view view;
        uint64_t extent;
        entry_output_view(v->signature, e, &view);
        size_t in = dtype_bytes(e->dtype), out = dtype_bytes(entry_output_dtype(e));
        if (e->output.n_strides == 0 &&
                (!view_extent(&view, &extent) ||
                        __builtin_mul_overflow(extent, in > out ? in : out, &extent) || extent > INT64_MAX))
                return error_set(v->err, STATUS_LIMIT, FIELD_SIZE,
                        "%" PRIu64 " rows of the result go beyond what 63 bits can count", e->output_extent);
        return STATUS_OK;
}

static enum status check_kind(const struct half_view *v, const struct entry *e) {
        enum kind kind = v->signature->kind;
        if (kind != KIND_REDUCE && kind != KIND_BATCH_REDUCE && kind != KIND_BROADCAST)
                return error_set(v->err, STATUS_UNSUPPORTED, FIELD_LAYOUT,
                        "a %s of sparse values is not done; reduce, batch_reduce and broadcast are",
                        kind_name(kind));
        if (v->signature->axes)
                return error_set(v->err, STATUS_INVALID, FIELD_AXIS,
                        "sparse values are reduced over replicas alone; leave the axes out");
        if (e->destination == DESTINATION_SAME)
                return error_set(v->err, STATUS_INVALID, FIELD_DESTINATIONS,
                        "\"same\" writes each result over its input, and the result of sparse values is as "
                        "long "
                        "as all of them; give outputs");
        return STATUS_OK;
}

enum status signature_check_sparse(const struct half_view *v, const struct entry *e) {
        if (e->layout != LAYOUT_SPARSE)
                return STATUS_OK;
        enum status status = check_kind(v, e);
        if (status == STATUS_OK)
                status = check_op(v);
        if (status == STATUS_OK)
                status = check_options(v, e);
        if (status == STATUS_OK)
                status = check_dense_shape(v, e);
        if (status == STATUS_OK)
                status = check_indices(v, e);
        return status == STATUS_OK ? check_room(v, e) : status;
}
