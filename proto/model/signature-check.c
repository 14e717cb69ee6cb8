/* The rules that a half keeps by itself. Each check returns STATUS_OK, or says in *err what is wrong and what
 * to do about it. */
#include "model/signature.h"

#include <inttypes.h>
#include <math.h>

#define DTYPES_TEXT "u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64 bool c64 c128"

/* --- the head --- */

static enum status check_kind(const struct half_view *v) {
        switch (v->signature->kind) {
        case KIND_REDUCE:
        case KIND_BROADCAST:
        case KIND_BATCH_REDUCE:
        case KIND_BARRIER:
        case KIND_GATHER:
        case KIND_REDUCE_SCATTER:
        case KIND_MERGE_CALL:
        case KIND_MERGE_RESULT: return STATUS_OK;
        case KIND_UNSPECIFIED:
                return error_set(v->err, STATUS_INVALID, FIELD_KIND,
                        "say which kind: reduce, broadcast, batch_reduce, gather, reduce_scatter or barrier");
        case N_KIND: break;
        }
        return error_set(v->err, STATUS_UNSUPPORTED, FIELD_KIND,
                "this kind (%s) is not done; reduce, broadcast, batch_reduce, gather, reduce_scatter and "
                "barrier "
                "are",
                kind_name(v->signature->kind));
}

static enum status check_op(const struct half_view *v) {
        const struct signature *s = v->signature;
        if (!kind_reduces(s->kind)) {
                if (s->op == OP_UNSPECIFIED)
                        return STATUS_OK;
                return error_set(v->err, STATUS_INVALID, FIELD_OP,
                        "a %s combines nothing and takes no op, but %s was given", kind_name(s->kind),
                        op_name(s->op));
        }
        if (s->op == OP_UNSPECIFIED)
                return error_set(v->err, STATUS_INVALID, FIELD_OP,
                        "there is no default op: say SUM, MEAN, PROD, MIN, MAX, BAND, BOR, BXOR, LAND or "
                        "LOR");
        if ((unsigned int)s->op >= N_OP)
                return error_set(v->err, STATUS_UNSUPPORTED, FIELD_OP, "%s is not done; what works: %s",
                        op_name(s->op), op_supported_text());
        return STATUS_OK;
}

/* Which dimensions they may be, each entry says. */
static enum status check_axes(const struct half_view *v) {
        const struct signature *s = v->signature;
        int n = __builtin_popcount(s->axes);
        if (kind_has_axis(s->kind) && n != 1)
                return error_set(v->err, STATUS_INVALID, FIELD_AXIS,
                        "a %s works along one axis of its values, but %d were given", kind_name(s->kind), n);
        if (n > 0 && !kind_has_axis(s->kind) && !kind_reduces(s->kind))
                return error_set(v->err, STATUS_INVALID, FIELD_AXIS,
                        "a %s takes its values whole, but an axis was given; leave it out",
                        kind_name(s->kind));
        if (s->axes & AXIS_BEYOND)
                return error_set(v->err, STATUS_INVALID, FIELD_AXIS,
                        "an axis of %d or more was given; a value has at most %d dimensions, counted from 0",
                        MAX_DIMS, MAX_DIMS);
        return STATUS_OK;
}

static enum status check_root(const struct half_view *v) {
        const struct signature *s = v->signature;
        if (!kind_has_root(s->kind) || s->root < v->world_size)
                return STATUS_OK;
        return error_set(v->err, STATUS_INVALID, FIELD_ROOT,
                "root %" PRIu32 " is outside the world of %" PRIu32 "; its ranks are 0 to %" PRIu32, s->root,
                v->world_size, v->world_size - 1);
}

/* What was asked for that this version does not do; NULL: nothing. */
static const char *option_not_done(const struct options *o) {
        if ((unsigned int)o->rounding > ROUNDING_NEAREST)
                return "a rounding other than trunc, floor and nearest";
        if ((unsigned int)o->implementation > IMPLEMENTATION_NCCL)
                return "an implementation other than AUTO, RING and NCCL";
        if ((unsigned int)o->algorithm >= N_ALGORITHM)
                return "an algorithm other than one_device, hierarchical_copy and library";
        return NULL;
}

static bool keeps_rank_order(const struct options *o) {
        return o->algorithm == ALGORITHM_UNSPECIFIED || o->algorithm == ALGORITHM_ONE_DEVICE;
}

/* What contradicts itself. */
static enum status check_ways(const struct half_view *v) {
        const struct options *o = &v->signature->options;
        if (o->reproducible && !keeps_rank_order(o))
                return error_set(v->err, STATUS_INVALID, FIELD_OPTIONS,
                        "reproducible is the order of the ranks, which %s does not keep; leave one of them "
                        "out",
                        algorithm_word(o->algorithm));
        if (o->has_place && o->place == DEVICE_UNKNOWN)
                return error_set(v->err, STATUS_INVALID, FIELD_OPTIONS,
                        "the device that reduces is none; name it like CPU:0");
        if (o->has_place && !keeps_rank_order(o))
                return error_set(v->err, STATUS_INVALID, FIELD_OPTIONS,
                        "%s is done by all devices; name one that reduces with one_device alone",
                        algorithm_word(o->algorithm));
        if (!o->packing.small_bytes != !o->packing.small_group)
                return error_set(v->err, STATUS_INVALID, FIELD_OPTIONS,
                        "agg_small_grads_max_bytes and agg_small_grads_max_group go together; give both or "
                        "none");
        if (o->packing.num_packs > MAX_ENTRIES)
                return error_set(v->err, STATUS_INVALID, FIELD_OPTIONS,
                        "num_packs is %" PRIu32 "; at most %u", o->packing.num_packs, MAX_ENTRIES);
        return STATUS_OK;
}

/* A weight of 0 leaves a contribution out. */
static enum status check_weight(const struct half_view *v) {
        const struct options *o = &v->signature->options;
        enum op op = v->signature->op;
        if (!o->has_weight)
                return STATUS_OK;
        if (op != OP_SUM && op != OP_MEAN)
                return error_set(v->err, STATUS_INVALID, FIELD_OPTIONS,
                        "a weight is for SUM and MEAN, not for %s; leave it out",
                        kind_reduces(v->signature->kind) ? op_name(op) : kind_name(v->signature->kind));
        if (!isfinite(o->weight) || o->weight < 0)
                return error_set(v->err, STATUS_INVALID, FIELD_OPTIONS,
                        "the weight of R%" PRIu32 " is %g; it must be 0 or a positive finite number", v->rank,
                        o->weight);
        return STATUS_OK;
}

static enum status check_options(const struct half_view *v) {
        const struct options *o = &v->signature->options;
        const char *what = option_not_done(o);
        if (o->coalesce && !kind_reduces(v->signature->kind))
                return error_set(v->err, STATUS_INVALID, FIELD_OPTIONS,
                        "coalesce combines rows of equal index, and a %s combines nothing; leave it out",
                        kind_name(v->signature->kind));
        if (what)
                return error_set(
                        v->err, STATUS_UNSUPPORTED, FIELD_OPTIONS, "%s is not done; leave it out", what);
        if (o->rounding != ROUNDING_UNSPECIFIED && v->signature->op != OP_MEAN)
                return error_set(v->err, STATUS_INVALID, FIELD_OPTIONS,
                        "a rounding is for MEAN of integers; leave it out");
        bool is_over_axes =
                kind_reduces(v->signature->kind) && v->signature->axes && !kind_has_axis(v->signature->kind);
        if (is_over_axes && (o->check_numerics || o->check_overflow))
                return error_set(v->err, STATUS_UNSUPPORTED, FIELD_OPTIONS,
                        "%s is not done in a reduction over axes; leave it out",
                        o->check_numerics ? "check_numerics" : "check_overflow");
        bool is_cut = v->signature->kind == KIND_REDUCE_SCATTER ||
                      (kind_reduces(v->signature->kind) && v->signature->axes);
        if (o->check_inputs && is_cut)
                return error_set(v->err, STATUS_UNSUPPORTED, FIELD_OPTIONS,
                        "check_inputs reads each input once, as a whole, and a %s does not; leave it out",
                        v->signature->kind == KIND_REDUCE_SCATTER ? "reduce_scatter" : "reduction over axes");
        enum status status = check_ways(v);
        return status == STATUS_OK ? check_weight(v) : status;
}

static enum status check_length(const struct half_view *v) {
        const struct signature *s = v->signature;
        if (s->n_entries > MAX_ENTRIES) {
                v->err->used = s->n_entries;
                v->err->limit = MAX_ENTRIES;
                return error_set(v->err, STATUS_LIMIT, FIELD_BATCH_LENGTH,
                        "too many entries in one collective; split the batch");
        }
        if ((uint64_t)s->n_entries * v->world_size > MAX_COLLECTIVE_ENTRIES) {
                v->err->used = (uint64_t)s->n_entries * v->world_size;
                v->err->limit = MAX_COLLECTIVE_ENTRIES;
                return error_set(v->err, STATUS_LIMIT, FIELD_BATCH_LENGTH,
                        "entries times ranks in one collective; split the batch");
        }
        if (s->kind == KIND_BARRIER && s->n_entries != 0)
                return error_set(v->err, STATUS_INVALID, FIELD_BATCH_LENGTH,
                        "a barrier takes no values, but %" PRIu32 " were given", s->n_entries);
        bool is_batch = s->kind == KIND_BATCH_REDUCE || kind_has_axis(s->kind);
        if (is_batch && s->n_entries == 0)
                return error_set(v->err, STATUS_INVALID, FIELD_BATCH_LENGTH, "a %s needs at least one entry",
                        kind_name(s->kind));
        if ((s->kind == KIND_REDUCE || s->kind == KIND_BROADCAST) && s->n_entries != 1)
                return error_set(v->err, STATUS_INVALID, FIELD_BATCH_LENGTH,
                        "a %s takes exactly one value, but %" PRIu32 " were given; batch_reduce takes many",
                        kind_name(s->kind), s->n_entries);
        return STATUS_OK;
}

/* --- one entry --- */

static enum status check_dtype(const struct half_view *v, const struct entry *e) {
        if (e->dtype == DTYPE_UNSPECIFIED)
                return error_set(
                        v->err, STATUS_INVALID, FIELD_DTYPE, "the dtype is missing; one of " DTYPES_TEXT);
        if (!dtype_is_supported(e->dtype))
                return error_set(v->err, STATUS_UNSUPPORTED, FIELD_DTYPE, "%s is not done; what works: %s",
                        dtype_name(e->dtype),
                        kind_reduces(v->signature->kind) ? op_supported_text() : DTYPES_TEXT);
        return STATUS_OK;
}

/* The only result of another type than its inputs. */
static bool is_integer_mean(const struct half_view *v, const struct entry *e) {
        return kind_reduces(v->signature->kind) && v->signature->op == OP_MEAN && dtype_is_integer(e->dtype);
}

static enum status check_output_dtype(const struct half_view *v, const struct entry *e) {
        enum dtype output = entry_output_dtype(e);
        if (output == e->dtype || (is_integer_mean(v, e) && output == dtype_of_integer_mean(e->dtype)))
                return STATUS_OK;
        if (is_integer_mean(v, e))
                return error_set(v->err, STATUS_UNSUPPORTED, FIELD_OUTPUT_DTYPE,
                        "MEAN of %s goes to %s, or with a rounding (trunc, floor, nearest) to %s, not to %s",
                        dtype_name(e->dtype), dtype_name(dtype_of_integer_mean(e->dtype)),
                        dtype_name(e->dtype), dtype_name(output));
        return error_set(v->err, STATUS_UNSUPPORTED, FIELD_OUTPUT_DTYPE,
                "an output dtype (%s) other than the input's (%s) is done for MEAN of integers alone; leave "
                "it "
                "out",
                dtype_name(output), dtype_name(e->dtype));
}

/* Exactly one of a rounding and a float output says what becomes of the fraction. */
static enum status check_integer_mean(const struct half_view *v, const struct entry *e) {
        bool has_rounding = v->signature->options.rounding != ROUNDING_UNSPECIFIED;
        bool is_to_float = entry_output_dtype(e) != e->dtype;
        if (has_rounding != is_to_float)
                return STATUS_OK;
        if (has_rounding)
                return error_set(v->err, STATUS_INVALID, FIELD_OPTIONS,
                        "MEAN of %s to %s needs no rounding; leave it out, or take an output of %s",
                        dtype_name(e->dtype), dtype_name(entry_output_dtype(e)), dtype_name(e->dtype));
        return error_set(v->err, STATUS_UNSUPPORTED, FIELD_OP,
                "MEAN of %s needs a named rounding (trunc, floor, nearest) or an output of %s; nothing is "
                "rounded unasked",
                dtype_name(e->dtype), dtype_name(dtype_of_integer_mean(e->dtype)));
}

static enum status check_op_on_dtype(const struct half_view *v, const struct entry *e) {
        const struct options *o = &v->signature->options;
        enum op op = v->signature->op;
        if (!kind_reduces(v->signature->kind))
                return STATUS_OK;
        if (o->has_weight && !dtype_is_float(e->dtype))
                return error_set(v->err, STATUS_UNSUPPORTED, FIELD_OPTIONS,
                        "a weight on %s is not done; f16 bf16 f32 f64 can be weighted", dtype_name(e->dtype));
        if (is_integer_mean(v, e))
                return check_integer_mean(v, e);
        if (!op_is_supported(op, e->dtype))
                return error_set(v->err, STATUS_UNSUPPORTED, FIELD_OP, "%s on %s is not done; what works: %s",
                        op_name(op), dtype_name(e->dtype), op_supported_text());
        if (o->rounding != ROUNDING_UNSPECIFIED)
                return error_set(v->err, STATUS_INVALID, FIELD_OPTIONS,
                        "a rounding is for MEAN of integers, not of %s; leave it out", dtype_name(e->dtype));
        return STATUS_OK;
}

static enum status check_shape(const struct half_view *v, const struct entry *e) {
        if (e->n_dims > MAX_DIMS) {
                v->err->used = e->n_dims;
                v->err->limit = MAX_DIMS;
                return error_set(
                        v->err, STATUS_LIMIT, FIELD_SHAPE, "too many dimensions; join neighbouring ones");
        }
        size_t in_bytes = dtype_bytes(e->dtype), out_bytes = dtype_bytes(entry_output_dtype(e));
        uint64_t n, n_bytes;
        if (entry_count(e, &n) &&
                !__builtin_mul_overflow(n, in_bytes > out_bytes ? in_bytes : out_bytes, &n_bytes) &&
                n_bytes <= INT64_MAX)
                return STATUS_OK;
        return error_set(v->err, STATUS_LIMIT, FIELD_SHAPE,
                "the product of the dimensions goes beyond what 63 bits can count");
}

static enum status check_entry_axes(const struct half_view *v, const struct entry *e) {
        char shown[128];
        struct text t;
        uint16_t axes = v->signature->axes;
        uint32_t last = axes ? 31 - (uint32_t)__builtin_clz(axes) : 0;
        if (axes == 0 || last < e->n_dims)
                return STATUS_OK;
        text_init(&t, shown, sizeof(shown));
        entry_print(e, &t);
        if (e->n_dims == 0)
                return error_set(v->err, STATUS_INVALID, FIELD_AXIS,
                        "the value is a scalar, %s, and has no axis %" PRIu32 "; give it a dimension of 1",
                        shown, last);
        return error_set(v->err, STATUS_INVALID, FIELD_AXIS,
                "axis %" PRIu32 " is outside of the value, %s; its axes are 0 to %" PRIu32, last, shown,
                e->n_dims - 1);
}

/* Room for more than can be counted is none. */
static enum status check_output_extent(const struct half_view *v, const struct entry *e) {
        struct entry output = *e;
        uint64_t n, n_bytes;
        if (!kind_has_axis(v->signature->kind))
                return STATUS_OK;
        entry_output_shape(v->signature, e, output.shape);
        if (entry_count(&output, &n) &&
                !__builtin_mul_overflow(n, dtype_bytes(entry_output_dtype(e)), &n_bytes) &&
                n_bytes <= INT64_MAX)
                return STATUS_OK;
        return error_set(v->err, STATUS_LIMIT, FIELD_EXTENT,
                "an output of %" PRIu64 " along axis %" PRIu32 " goes beyond what 63 bits can count",
                e->output_extent, signature_axis(v->signature));
}

static enum status refuse_sharing(
        const struct half_view *v, const char *what, const struct view *view, const uint32_t dims[2]) {
        if (view->strides[dims[0]] == 0)
                return error_set(v->err, STATUS_INVALID, FIELD_STRIDES,
                        "the %s has stride 0 in dimension %" PRIu32 ", which has %" PRIu64
                        " elements: they would be one. A stride of 0 is for a dimension of 1",
                        what, dims[0], view->shape[dims[0]]);
        return error_set(v->err, STATUS_INVALID, FIELD_STRIDES,
                "elements of the %s share memory: stride %" PRIu64 " of dimension %" PRIu32
                " does not go beyond what dimension %" PRIu32 " (%" PRIu64 " elements, stride %" PRIu64
                ") and smaller ones reach",
                what, view->strides[dims[0]], dims[0], dims[1], view->shape[dims[1]], view->strides[dims[1]]);
}

/* Each element in a place of its own. */
static enum status check_strides(
        const struct half_view *v, const struct entry *e, const struct place *place, const char *what) {
        struct view view;
        bool is_output = place == &e->output;
        uint32_t dims[2];
        uint64_t extent;
        if (place->n_strides == 0)
                return STATUS_OK;
        if (place->n_strides != e->n_dims)
                return error_set(v->err, STATUS_INVALID, FIELD_STRIDES,
                        "the %s has %" PRIu32 " dimensions and another number of strides; give one for each, "
                        "or none where it is contiguous",
                        what, e->n_dims);
        if (is_output)
                entry_output_view(v->signature, e, &view);
        else
                entry_view(e, place, &view);
        if (!view_extent(&view, &extent))
                return error_set(v->err, STATUS_LIMIT, FIELD_STRIDES,
                        "the strides of the %s reach beyond what 63 bits can count", what);
        if (view_shares_itself(&view, v->steps, dims) == SHARING_NOTHING)
                return STATUS_OK;
        return refuse_sharing(v, what, &view, dims);
}

static enum status check_places_strides(const struct half_view *v, const struct entry *e) {
        enum status status = check_strides(v, e, &e->input, "input");
        return status == STATUS_OK ? check_strides(v, e, &e->output, "output") : status;
}

static enum status refuse_outside(const struct half_view *v, uint32_t rank) {
        return error_set(v->err, STATUS_INVALID, FIELD_DESTINATIONS,
                "destination R%" PRIu32 " is outside the world of %" PRIu32 "; its ranks are 0 to %" PRIu32,
                rank, v->world_size, v->world_size - 1);
}

/* Whether there is such a device, and the object lives there, tuttid finds when it looks for the object. */
static enum status check_device(const struct half_view *v, const struct entry *e) {
        if (e->output.result)
                return STATUS_OK;
        return error_set(v->err, STATUS_INVALID, FIELD_DESTINATIONS,
                "what goes to a device goes into a result object that lives there: name one as the output");
}

static enum status check_same(const struct half_view *v, const struct entry *e) {
        if (v->signature->axes)
                return error_set(v->err, STATUS_INVALID, FIELD_DESTINATIONS,
                        "\"same\" is where the value lives, and this result has another shape than the "
                        "value; "
                        "give it an output of its own");
        if (!kind_reduces(v->signature->kind))
                return error_set(v->err, STATUS_INVALID, FIELD_DESTINATIONS,
                        "\"same\" is where the value lives; a %s has an input at its root alone: name all, a "
                        "rank or a set of ranks",
                        kind_name(v->signature->kind));
        if (place_is_there(&e->output))
                return error_set(v->err, STATUS_INVALID, FIELD_DESTINATIONS,
                        "\"same\" writes each result over its input; leave the output out");
        if (entry_output_dtype(e) == e->dtype)
                return STATUS_OK;
        return error_set(v->err, STATUS_INVALID, FIELD_OUTPUT_DTYPE,
                "\"same\" writes each result over its input, of %s, and so cannot give %s",
                dtype_name(e->dtype), dtype_name(entry_output_dtype(e)));
}

static enum status check_destinations(const struct half_view *v, const struct entry *e) {
        int outside;
        switch (e->destination) {
        case DESTINATION_ALL: return STATUS_OK;
        case DESTINATION_RANK:
                return e->destination_rank < v->world_size ? STATUS_OK
                                                           : refuse_outside(v, e->destination_rank);
        case DESTINATION_RANKS:
                if (rankset_is_empty(&e->destination_ranks))
                        return error_set(v->err, STATUS_INVALID, FIELD_DESTINATIONS,
                                "the set of destinations is empty; name at least one rank");
                outside = rankset_next(&e->destination_ranks, (int)v->world_size);
                return outside < 0 ? STATUS_OK : refuse_outside(v, (uint32_t)outside);
        case DESTINATION_DEVICE: return check_device(v, e);
        case DESTINATION_SAME: return check_same(v, e);
        case DESTINATION_UNSPECIFIED: break;
        }
        return error_set(v->err, STATUS_INVALID, FIELD_DESTINATIONS,
                "say who receives the result: all, a rank, a set of ranks below 1024, a device, or same");
}

/* Every member maps a result object, so it receives what goes to all, or to the device where it lives. */
static enum status check_object(const struct half_view *v, const struct entry *e) {
        if (e->input.result)
                return error_set(v->err, STATUS_INVALID, FIELD_BUFFER,
                        "the input is a result object; a result object is for outputs, hand in a buffer");
        if (!e->output.result)
                return STATUS_OK;
        if (e->output.buffer)
                return error_set(v->err, STATUS_INVALID, FIELD_BUFFER,
                        "the output names a buffer and a result object; leave one of them out");
        if (e->destination == DESTINATION_ALL || e->destination == DESTINATION_DEVICE)
                return STATUS_OK;
        return error_set(v->err, STATUS_INVALID, FIELD_DESTINATIONS,
                "a result object is seen by every member: its destination is all, or the device where it "
                "lives");
}

/* Everybody receives a slice, which is its own. */
static enum status check_scatter(const struct half_view *v, const struct entry *e) {
        if (v->signature->kind != KIND_REDUCE_SCATTER)
                return STATUS_OK;
        if (e->destination == DESTINATION_ALL && !e->output.result)
                return STATUS_OK;
        return error_set(v->err, STATUS_INVALID, FIELD_DESTINATIONS,
                "a reduce_scatter gives each replica a slice of its own: its destination is all, into "
                "buffers");
}

static enum status refuse_place(const struct half_view *v, uint32_t i, const char *what) {
        return error_set(v->err, STATUS_INVALID, FIELD_BUFFER,
                "R%" PRIu32 " %s of entry %" PRIu32 ", but gave no buffer for it", v->rank, what, i);
}

/* The root of a broadcast has the value already: its output may be absent. */
static enum status check_places(const struct half_view *v, uint32_t i) {
        const struct signature *s = v->signature;
        const struct entry *e = &v->entries[i];
        if (e->input.buffer == 0 && signature_reads(s, v->rank))
                return refuse_place(v, i, "brings the input");
        bool is_root = kind_has_root(s->kind) && s->root == v->rank;
        if (s->kind == KIND_MERGE_CALL && !e->output.result)
                return error_set(v->err, STATUS_INVALID, FIELD_BUFFER,
                        "a merge_call brings its values into a result object; name one as the output");
        if (e->layout == LAYOUT_SPARSE && signature_reads(s, v->rank) && e->sparse.indices.buffer == 0)
                return refuse_place(v, i, "brings the indices");
        if (e->layout == LAYOUT_SPARSE &&
                place_is_there(&e->output) != place_is_there(&e->sparse.output_indices))
                return refuse_place(v, i, "receives values and indices");
        if (place_is_there(&e->output) || is_root || e->destination == DESTINATION_SAME)
                return STATUS_OK;
        bool is_wanted = s->kind != KIND_REDUCE_SCATTER || e->output_extent > 0;
        if (entry_has_destination(e, v->rank) && is_wanted)
                return refuse_place(v, i, "receives the result");
        return STATUS_OK;
}

enum status signature_check_entry(const struct half_view *v, uint32_t i) {
        const struct entry *e = &v->entries[i];
        enum status status = check_dtype(v, e);
        if (status == STATUS_OK)
                status = check_output_dtype(v, e);
        if (status == STATUS_OK)
                status = check_op_on_dtype(v, e);
        if (status == STATUS_OK)
                status = check_shape(v, e);
        if (status == STATUS_OK)
                status = check_entry_axes(v, e);
        if (status == STATUS_OK)
                status = check_output_extent(v, e);
        if (status == STATUS_OK)
                status = signature_check_sparse(v, e);
        if (status == STATUS_OK)
                status = check_places_strides(v, e);
        if (status == STATUS_OK)
                status = check_destinations(v, e);
        if (status == STATUS_OK)
                status = check_object(v, e);
        if (status == STATUS_OK)
                status = check_scatter(v, e);
        if (status == STATUS_OK)
                status = check_places(v, i);
        if (status != STATUS_OK)
                v->err->entry = (int32_t)i;
        return status;
}

enum status signature_check_head(const struct half_view *v) {
        static enum status (*const checks[])(const struct half_view *) = { check_kind, check_op, check_axes,
                check_root, check_options, check_length };
        enum status status = STATUS_OK;
        for (size_t i = 0; status == STATUS_OK && i < ARRAY_SIZE(checks); i++)
                status = checks[i](v);
        return status;
}

enum status signature_check(const struct signature *s, const struct entry *entries, uint32_t rank,
        uint32_t world_size, struct error *err) {
        uint64_t steps = VIEW_STEPS;
        const struct half_view v = { s, entries, rank, world_size, err, &steps };
        enum status status = signature_check_head(&v);
        for (uint32_t i = 0; status == STATUS_OK && i < s->n_entries; i++)
                status = signature_check_entry(&v, i);
        return status;
}
