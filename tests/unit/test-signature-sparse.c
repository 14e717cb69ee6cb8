/* What a sparse half must keep by itself. */
#include "half.h"

static struct half sparse_half(enum kind kind) {
        struct half h = half_of(kind);
        h.entries[0] = sparse_entry();
        return h;
}

START_TEST(sparse_values_are_reduced_and_broadcast) {
        for (enum kind kind = KIND_REDUCE; kind <= KIND_BATCH_REDUCE; kind++) {
                struct half h = sparse_half(kind);
                check_ok(&h);
                h.entries[0].shape[0] = h.entries[0].sparse.n_indices = 0;
                check_ok(&h);
                h.entries[0].output_extent = 0;
                check_ok(&h);
        }
        struct half h = sparse_half(KIND_REDUCE);
        h.entries[0].input = (struct place){ .buffer = 1, .n_strides = 2, .strides = { 20, 2 } };
        check_ok(&h);
        h.signature.options.coalesce = true;
        check_refused(&h, STATUS_UNSUPPORTED, FIELD_STRIDES, "from row to row");
        h.entries[0].input.strides[1] = 1;
        check_ok(&h);
        h.signature.op = OP_MAX;
        check_ok(&h);
        h = sparse_half(KIND_MERGE_RESULT);
        check_refused(&h, STATUS_UNSUPPORTED, FIELD_LAYOUT, "reduce, batch_reduce and broadcast are");
}
END_TEST

START_TEST(what_cannot_be_done_with_sparse_values_is_refused_with_advice) {
        struct half h = sparse_half(KIND_REDUCE);
        h.signature.op = OP_PROD;
        check_refused(&h, STATUS_UNSUPPORTED, FIELD_OP, "SUM and MEAN are");
        h.signature.op = OP_MIN;
        check_refused(&h, STATUS_UNSUPPORTED, FIELD_OP, "coalesce");
        h.signature.op = OP_SUM;
        h.signature.options.has_weight = true;
        h.signature.options.weight = 1;
        check_refused(&h, STATUS_UNSUPPORTED, FIELD_OPTIONS, "multiply the rows");
        h.signature.options.has_weight = false;
        h.signature.options.coalesce = h.signature.options.check_inputs = true;
        check_refused(&h, STATUS_UNSUPPORTED, FIELD_OPTIONS, "leave one of them out");
        h.signature.options.check_inputs = false;
        h.signature.op = OP_MEAN;
        h.entries[0].dtype = DTYPE_I32;
        h.entries[0].output_dtype = DTYPE_F64;
        check_refused(&h, STATUS_UNSUPPORTED, FIELD_OPTIONS, "hand in floats");
        h = sparse_half(KIND_BROADCAST);
        h.signature.options.coalesce = true;
        check_refused(&h, STATUS_INVALID, FIELD_OPTIONS, "combines nothing");
        h = sparse_half(KIND_REDUCE);
        h.entries[0].destination = DESTINATION_SAME;
        h.entries[0].output = (struct place){ 0 };
        check_refused(&h, STATUS_INVALID, FIELD_DESTINATIONS, "as long as all of them");
}
END_TEST

START_TEST(indices_and_dense_shape_must_fit_the_rows) {
        struct half h = sparse_half(KIND_REDUCE);
        h.entries[0].sparse.index_dtype = DTYPE_U32;
        check_refused(&h, STATUS_UNSUPPORTED, FIELD_INDEX_DTYPE, "take i32 or i64");
        h.entries[0].sparse.index_dtype = DTYPE_UNSPECIFIED;
        check_refused(&h, STATUS_INVALID, FIELD_INDEX_DTYPE, "missing");
        h = sparse_half(KIND_REDUCE);
        h.entries[0].sparse.n_indices = 4;
        check_refused(&h, STATUS_INVALID, FIELD_INDICES, "R1 brings 4 indices for 5 rows");
        h = sparse_half(KIND_REDUCE);
        h.entries[0].sparse.n_dense_dims = 1;
        check_refused(&h, STATUS_INVALID, FIELD_DENSE_SHAPE, "has 1 dimensions");
        h.entries[0].sparse.n_dense_dims = MAX_DIMS + 1;
        check_refused(&h, STATUS_INVALID, FIELD_DENSE_SHAPE, "has 9 dimensions");
        h = sparse_half(KIND_REDUCE);
        h.entries[0].sparse.dense_shape[1] = 11;
        check_refused(&h, STATUS_INVALID, FIELD_DENSE_SHAPE, "dimension 1 of a row is 10, and 11");
        h = sparse_half(KIND_REDUCE);
        h.entries[0].n_dims = 0;
        check_refused(&h, STATUS_INVALID, FIELD_SHAPE, "scalar");
        h = sparse_half(KIND_REDUCE);
        h.entries[0].sparse.dense_shape[0] = UINT64_C(1) << 63;
        check_refused(&h, STATUS_LIMIT, FIELD_DENSE_SHAPE, "63 bits");
        h = sparse_half(KIND_REDUCE);
        h.entries[0].output_extent = UINT64_MAX / 8;
        check_refused(&h, STATUS_LIMIT, FIELD_SIZE, "63 bits");
        h = sparse_half(KIND_REDUCE);
        h.entries[0].sparse.indices.n_strides = 1;
        check_refused(&h, STATUS_UNSUPPORTED, FIELD_STRIDES, "one behind the other");
}
END_TEST

START_TEST(sparse_values_have_places_for_rows_and_indices) {
        struct half h = sparse_half(KIND_REDUCE);
        h.entries[0].sparse.indices.buffer = 0;
        check_refused(&h, STATUS_INVALID, FIELD_BUFFER, "R1 brings the indices");
        h = sparse_half(KIND_REDUCE);
        h.entries[0].sparse.output_indices.buffer = 0;
        check_refused(&h, STATUS_INVALID, FIELD_BUFFER, "values and indices");
        h.entries[0].output.buffer = 0;
        check_refused(&h, STATUS_INVALID, FIELD_BUFFER, "receives the result");
        h.entries[0].destination = DESTINATION_RANK;
        check_ok(&h);
}
END_TEST

UNIT_MAIN("signature-sparse", 10, sparse_values_are_reduced_and_broadcast,
        what_cannot_be_done_with_sparse_values_is_refused_with_advice,
        indices_and_dense_shape_must_fit_the_rows, sparse_values_have_places_for_rows_and_indices)
