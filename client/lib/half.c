#include "lib/draft.h"

#include <string.h>
#include "lib/arguments.h"
#include "lib/frozen.h"
#include "lib/object.h"
#include "lib/region.h"
#include "model/checksum.h"

/* --- one value --- */

static enum status refuse_value_size(struct draft *d, const char *what, const struct tutti_value *given) {
        return refuse(d->err, STATUS_INVALID, FIELD_SIZE,
                "the %s has struct_size %zu; begin it with TUTTI_VALUE or tutti_value_init", what,
                given->struct_size);
}

static enum status take_object(struct draft *d, const char *what, const struct tutti_value *v) {
        if (v->buffer || v->memory)
                return refuse(d->err, STATUS_INVALID, FIELD_BUFFER,
                        "the %s has %s and a result object; leave one of them out", what,
                        v->buffer ? "a buffer" : "plain memory");
        if (v->has_strides)
                return refuse(d->err, STATUS_INVALID, FIELD_STRIDES,
                        "the output in the result object \"%s\" has strides; what lies in a slot is "
                        "contiguous",
                        v->object->name);
        if (v->object->t != d->half->g->t || v->object->membership != d->half->g->membership)
                return refuse(d->err, STATUS_INVALID, FIELD_BUFFER,
                        "the result object \"%s\" was made by another membership", v->object->name);
        return STATUS_OK;
}

enum status draft_take_value(
        struct draft *d, const char *what, const struct tutti_value *given, struct tutti_value *ret) {
        if (!given)
                return refuse(d->err, STATUS_INVALID, FIELD_BUFFER, "the %s is NULL", what);
        if (!arguments_copy(&ARGUMENTS_SINCE(ret, has_strides), given, given->struct_size))
                return refuse_value_size(d, what, given);
        if (ret->n_dims > TUTTI_MAX_DIMS)
                return refuse(d->err, STATUS_LIMIT, FIELD_SHAPE,
                        "the %s has %u dimensions, at most %d may be", what, ret->n_dims, TUTTI_MAX_DIMS);
        if (ret->object)
                return take_object(d, what, ret);
        if (!ret->buffer && !ret->memory)
                return refuse(d->err, STATUS_INVALID, FIELD_BUFFER,
                        "the %s has no buffer, and no plain memory either", what);
        if (ret->buffer && ret->memory)
                return refuse(d->err, STATUS_INVALID, FIELD_BUFFER,
                        "the %s names both a buffer and plain memory; leave one of them NULL", what);
        if (ret->buffer && ret->buffer->t != d->half->g->t)
                return refuse(d->err, STATUS_INVALID, FIELD_BUFFER,
                        "the buffer of the %s is of another connection than the group", what);
        return STATUS_OK;
}

/* How its elements lie, and from the first to the last of them how many would. */
static enum status view_value(struct draft *d, const char *what, const struct tutti_value *v,
        struct view *ret, uint64_t *ret_extent) {
        struct entry like = { .n_dims = v->n_dims };
        uint64_t n;
        memcpy(like.shape, v->shape, v->n_dims * sizeof(*v->shape));
        if (!entry_count(&like, &n))
                return refuse(d->err, STATUS_LIMIT, FIELD_SHAPE,
                        "the %s has more elements than 63 bits can count", what);
        view_make(ret, v->n_dims, v->shape, v->has_strides ? v->strides : NULL);
        if (!view_extent(ret, ret_extent))
                return refuse(d->err, STATUS_LIMIT, FIELD_STRIDES,
                        "the strides of the %s reach beyond what 63 bits can count", what);
        return STATUS_OK;
}

/* Whether the length of this value is known only when all have met. */
static bool is_open(const struct draft *d, const struct place *place) {
        const struct entry *e = d->entry;
        if (e->layout == LAYOUT_SPARSE)
                return place == &e->output || place == &e->sparse.output_indices;
        return d->half->kind == KIND_GATHER && place == &e->output;
}

/* Only those that say something: what is contiguous goes the straight way. */
static void place_strides(
        const struct draft *d, const struct tutti_value *v, const struct view *view, struct place *ret) {
        struct view simple = *view;
        view_simplify(&simple);
        if (!v->has_strides || view_is_empty(view) || (view_is_dense(&simple) && !is_open(d, ret)))
                return;
        ret->n_strides = v->n_dims;
        memcpy(ret->strides, v->strides, v->n_dims * sizeof(*v->strides));
}

/* Tuttid will see the packed copy alone, so that what it would say of strides is said here. */
static enum status check_plain(
        struct draft *d, const char *what, const struct tutti_value *v, const struct view *view) {
        uint64_t steps = VIEW_STEPS;
        uint32_t dims[2];
        size_t element_bytes = dtype_bytes((enum dtype)v->dtype);
        if (element_bytes && v->offset % element_bytes != 0)
                return refuse(d->err, STATUS_INVALID, FIELD_OFFSET,
                        "the offset of the %s, %zu, is not a multiple of its element's %zu bytes", what,
                        v->offset, element_bytes);
        if (v->has_strides && view_shares_itself(view, &steps, dims) != SHARING_NOTHING)
                return refuse(d->err, STATUS_INVALID, FIELD_STRIDES,
                        "elements of the %s share memory: dimensions %u and %u are in each other's way", what,
                        dims[0], dims[1]);
        return STATUS_OK;
}

/* Which of the entry's places it is. */
static enum staged_role role_of(const struct draft *d, const struct place *place) {
        const struct entry *e = d->entry;
        if (place == &e->input)
                return STAGED_INPUT;
        if (place == &e->output)
                return STAGED_OUTPUT;
        return place == &e->sparse.indices ? STAGED_INDICES : STAGED_OUTPUT_INDICES;
}

/* Of sparse values the rows. */
static uint32_t open_axis(const struct draft *d, const struct place *place) {
        const struct signature s = { .axes = d->half->wire_axes };
        if (!is_open(d, place))
                return MAX_DIMS;
        return d->entry->layout == LAYOUT_SPARSE ? 0 : signature_axis(&s);
}

static struct open_view open_view_of(const struct draft *d, const struct place *place,
        const struct tutti_value *v, const struct view *view) {
        return (struct open_view){ .view = *view, .axis = open_axis(d, place), .is_packed = !v->has_strides };
}

static enum status note_plain(
        struct draft *d, const struct place *place, const struct tutti_value *v, const struct view *view) {
        struct staged staged = { .entry = d->index,
                .role = role_of(d, place),
                .memory = (uint8_t *)v->memory + v->offset,
                .element_bytes = dtype_bytes((enum dtype)v->dtype),
                .count = view_is_empty(view) ? 0 : 1,
                .lie = open_view_of(d, place, v, view) };
        for (uint32_t i = 0; staged.count && i < v->n_dims; i++) /* view_value has counted them */
                staged.count *= v->shape[i];
        if (staged.lie.axis == MAX_DIMS)
                view_simplify(&staged.lie.view);
        return staging_add(&d->half->work->staging, &staged, d->err);
}

/* Its place is known once all of the half are. */
static enum status place_plain(
        struct draft *d, const char *what, const struct tutti_value *v, struct place *ret) {
        enum staged_role role = role_of(d, ret);
        const struct staging *staging = &d->half->work->staging;
        struct view view;
        uint64_t extent;
        enum status status = view_value(d, what, v, &view, &extent);
        if (status == STATUS_OK)
                status = check_plain(d, what, v, &view);
        if (status != STATUS_OK)
                return status;
        if (!d->half->is_checked)
                return note_plain(d, ret, v, &view);
        const struct staged *staged = staging_find(staging, d->index, role);
        if (!staged)
                return refuse(d->err, STATUS_INVALID, FIELD_BUFFER, "the %s changed under the call", what);
        ret->buffer = staging->piece->region->id;
        ret->offset_bytes = staging->piece->block.offset_bytes + staged->offset_bytes;
        return STATUS_OK;
}

/* In device memory: it must be there still, and where tuttid does not reach it, it is copied. */
static enum status note_device(
        struct draft *d, const struct tutti_value *v, const struct view *view, const struct place *place) {
        const struct device_memory *m = device_of(v->buffer);
        struct device_copy copy = { .buffer = v->buffer,
                .entry = d->index,
                .offset_bytes = v->offset,
                .element_bytes = dtype_bytes((enum dtype)v->dtype),
                .lie = open_view_of(d, place, v, view),
                .is_output = place == &d->entry->output || place == &d->entry->sparse.output_indices };
        if (!m || d->half->is_checked)
                return STATUS_OK;
        enum status status = device_check(v->buffer, d->err);
        if (status != STATUS_OK || m->path != TUTTI_CUDA_STAGED || view_is_empty(view) || !copy.element_bytes)
                return status;
        if (copy.lie.axis == MAX_DIMS)
                view_simplify(&copy.lie.view);
        return device_copies_add(&d->half->work->copies, &copy, d->err);
}

/* Where it lies: tuttid knows the region, and only the library knows the buffer's bounds in it. */
enum status draft_place_value(
        struct draft *d, const char *what, const struct tutti_value *v, struct place *ret) {
        struct view view;
        struct span span;
        uint64_t extent = 0, limit_bytes = 0;
        if (v->memory)
                return place_plain(d, what, v, ret);
        enum status status = view_value(d, what, v, &view, &extent);
        if (status != STATUS_OK)
                return status;
        size_t element_bytes = dtype_bytes((enum dtype)v->dtype);
        limit_bytes =
                v->object ? v->object->slot_bytes : v->buffer->n_bytes; /* draft_take_value has looked */
        if (element_bytes && !span_make(v->offset, extent, element_bytes, limit_bytes, &span))
                return refuse(d->err, STATUS_INVALID, FIELD_OFFSET,
                        "the %s, %llu elements of %zu bytes from offset %zu on, is not aligned to its "
                        "elements "
                        "or does not fit into its %s of %llu bytes",
                        what, (unsigned long long)extent, element_bytes, v->offset,
                        v->object ? "slot" : "buffer", (unsigned long long)limit_bytes);
        if (v->object) {
                ret->result = v->object->id;
                ret->offset_bytes = v->offset;
                d->object = v->object;
                return STATUS_OK;
        }
        ret->buffer = v->buffer->region->id;
        ret->offset_bytes = v->buffer->block.offset_bytes + v->offset;
        place_strides(d, v, &view, ret);
        d->uses[d->n_uses++] = v->buffer;
        return note_device(d, v, &view, ret);
}

/* What this version does not know goes out as the first number beyond the list, for tuttid to refuse. */
static enum dtype dtype_on_wire(enum tutti_dtype dtype) {
        return (unsigned int)dtype < N_DTYPE ? (enum dtype)dtype : N_DTYPE;
}

static void describe(struct entry *e, const struct tutti_value *v) {
        e->dtype = dtype_on_wire(v->dtype);
        e->n_dims = v->n_dims;
        memcpy(e->shape, v->shape, v->n_dims * sizeof(*v->shape));
}

/* --- one entry --- */

static enum status take_destinations(struct draft *d, const struct tutti_destinations *given) {
        struct entry *e = d->entry;
        switch (given->where) {
        case TUTTI_TO_ALL: e->destination = DESTINATION_ALL; return STATUS_OK;
        case TUTTI_TO_RANK:
                e->destination = DESTINATION_RANK;
                e->destination_rank = given->rank;
                return STATUS_OK;
        case TUTTI_TO_RANKS:
                e->destination = DESTINATION_RANKS;
                memcpy(&e->destination_ranks, &given->ranks, sizeof(e->destination_ranks));
                return STATUS_OK;
        case TUTTI_TO_DEVICE:
                e->destination = DESTINATION_DEVICE;
                e->destination_device = device_parse(given->device ? given->device : "?");
                return STATUS_OK;
        case TUTTI_TO_SAME: e->destination = DESTINATION_SAME; return STATUS_OK;
        }
        return refuse(d->err, STATUS_INVALID, FIELD_DESTINATIONS,
                "say who receives the result: TUTTI_TO_ALL, TUTTI_TO_RANK, TUTTI_TO_RANKS, TUTTI_TO_DEVICE "
                "or "
                "TUTTI_TO_SAME");
}

/* In what way an output's shape goes with its input's. */
static enum status fit_output(struct draft *d) {
        const struct signature s = { .kind = d->half->kind, .axes = d->half->wire_axes };
        enum status status = axes_fit_output(&s, &d->input, &d->output, d->err);
        if (status == STATUS_OK && kind_has_axis(s.kind))
                d->entry->output_extent = d->output.shape[signature_axis(&s)];
        return status;
}

/* All entries mean the same dimensions, and this one has them. */
static enum status check_axes(struct draft *d) {
        uint16_t axes;
        if (d->half->axes.n == 0)
                return STATUS_OK;
        enum status status = axes_check_dims(&d->half->axes, &d->half->first, &d->input, d->err);
        return status == STATUS_OK ? axes_take(&d->half->axes, &d->input, &axes, d->err) : status;
}

static enum status draft_input(struct draft *d, const struct tutti_value *given) {
        enum status status = draft_take_value(d, "input", given, &d->input);
        if (status != STATUS_OK)
                return status;
        if (d->input.object)
                return refuse(d->err, STATUS_INVALID, FIELD_BUFFER,
                        "the input is a result object; a result object is for outputs, copy it to a buffer");
        describe(d->entry, &d->input);
        d->entry->layout = d->input.indices ? LAYOUT_SPARSE : LAYOUT_DENSE;
        status = check_axes(d);
        if (status == STATUS_OK)
                status = draft_place_value(d, "input", &d->input, &d->entry->input);
        return status == STATUS_OK && d->input.indices ? draft_sparse_input(d) : status;
}

static enum status draft_output(struct draft *d, const struct tutti_value *given, bool has_input) {
        enum status status = draft_take_value(d, "output", given, &d->output);
        if (status != STATUS_OK)
                return status;
        if (!has_input)
                describe(d->entry, &d->output);
        if (d->output.indices || d->entry->layout == LAYOUT_SPARSE)
                return draft_sparse_output(d, has_input);
        if (has_input)
                status = fit_output(d);
        if (status != STATUS_OK)
                return status;
        if (has_input && d->output.dtype != d->input.dtype)
                d->entry->output_dtype = dtype_on_wire(d->output.dtype);
        return draft_place_value(d, "output", &d->output, &d->entry->output);
}

/* Where this rank neither brings nor receives: what the value is, and not where. */
static enum status draft_description(struct draft *d, const struct tutti_value *given) {
        enum status status = draft_take_value(d, "output", given, &d->output);
        if (status != STATUS_OK || d->output.indices)
                return status == STATUS_OK ? draft_output(d, given, false) : status;
        describe(d->entry, &d->output);
        return STATUS_OK;
}

/* Where this rank brings an input and receives nothing, an output says of what dtype the others' is. */
static enum status draft_output_dtype(struct draft *d, const struct tutti_value *given) {
        if (!given)
                return STATUS_OK;
        if (!arguments_copy(&ARGUMENTS_SINCE(&d->output, has_strides), given, given->struct_size))
                return refuse_value_size(d, "output", given);
        if (d->output.dtype != d->input.dtype)
                d->entry->output_dtype = dtype_on_wire(d->output.dtype);
        return STATUS_OK;
}

/* Its output is the input; who says so twice has said nothing wrong. What lies in plain memory comes home
 * from where its copy lies. */
static enum status draft_same(struct draft *d, const struct tutti_entry *given) {
        if (given->output && given->output != given->input)
                return refuse(d->err, STATUS_INVALID, FIELD_DESTINATIONS,
                        "TUTTI_TO_SAME writes each result over its input; leave the output NULL");
        struct view view;
        uint64_t extent;
        enum status status = STATUS_OK;
        if (d->input.memory)
                status = place_plain(d, "output", &d->input, &d->entry->output);
        else if (view_value(d, "output", &d->input, &view, &extent) == STATUS_OK)
                status = note_device(d, &d->input, &view, &d->entry->output);
        d->entry->output = (struct place){ 0 };
        return status;
}

/* An output is taken only where this rank receives; that it is missing there, tuttid finds. */
static enum status draft_values(struct draft *d, const struct tutti_entry *given) {
        const struct half *h = d->half;
        const struct signature signature = { .kind = h->kind, .root = h->root };
        bool reads = signature_reads(&signature, h->g->rank);
        if (reads) {
                enum status status = draft_input(d, given->input);
                if (status != STATUS_OK)
                        return status;
        }
        enum destination to = d->entry->destination;
        if (to == DESTINATION_SAME)
                return draft_same(d, given);
        bool receives = to == DESTINATION_DEVICE || entry_has_destination(d->entry, h->g->rank);
        if (reads && (!receives || !given->output))
                return draft_output_dtype(d, given->output);
        return reads || receives ? draft_output(d, given->output, reads)
                                 : draft_description(d, given->output);
}

static enum status draft_entry(struct draft *d, uint32_t i) {
        const struct half *h = d->half;
        struct tutti_entry given;
        const void *at = (const char *)h->entries + i * h->stride_bytes;
        memset(d->entry, 0, sizeof(*d->entry));
        d->index = i;
        d->n_uses = 0;
        d->object = NULL;
        bool is_known = arguments_copy(&ARGUMENTS(&given), at, h->stride_bytes);
        if (!is_known || given.struct_size != h->stride_bytes)
                return refuse(d->err, STATUS_INVALID, FIELD_ENTRIES,
                        "an entry has struct_size %zu; begin each with TUTTI_ENTRY or tutti_entry_init, all "
                        "of "
                        "them alike",
                        is_known ? given.struct_size : h->stride_bytes);
        enum status status = take_destinations(d, &given.destinations);
        return status == STATUS_OK ? draft_values(d, &given) : status;
}

void half_entry(const struct half *h, uint32_t i, struct entry *ret) {
        struct error err;
        struct draft d = { .half = h, .entry = ret, .err = &err };
        if (h->prepared) {
                *ret = h->prepared->entries[i];
                return;
        }
        /* Changed under our hands since it was checked: what is there now is for tuttid to refuse. */
        if (draft_entry(&d, i) != STATUS_OK)
                ret->destination = DESTINATION_UNSPECIFIED;
        else if (h->has_checksums)
                ret->input_checksum = h->work->checksums[i];
}

/* --- the whole --- */

static enum status check_length(const struct half *h, struct error *err) {
        if (h->n_entries > TUTTI_MAX_ENTRIES) {
                refuse(err, STATUS_LIMIT, FIELD_BATCH_LENGTH,
                        "too many entries in one collective; split the batch");
                err->used = h->n_entries;
                err->limit = TUTTI_MAX_ENTRIES;
                return STATUS_LIMIT;
        }
        if (h->n_entries && !h->entries)
                return refuse(err, STATUS_INVALID, FIELD_ENTRIES, "the entries are NULL");
        return STATUS_OK;
}

static enum status no_memory_for_uses(struct error *err) {
        return refuse(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED,
                "the list of the buffers in use does not fit into memory");
}

/* What the entry names stays until the work has ended. */
static enum status keep_uses(struct draft *d, struct tutti_work *w) {
        for (uint32_t u = 0; u < d->n_uses; u++)
                if (!work_uses(w, d->uses[u]))
                        return no_memory_for_uses(d->err);
        if (!d->object)
                return STATUS_OK;
        if (w->object && w->object != d->object)
                return refuse(d->err, STATUS_INVALID, FIELD_DESTINATIONS,
                        "one collective goes to one result object, and this one names \"%s\" and \"%s\"; use "
                        "two batches",
                        w->object->name, d->object->name);
        work_uses_object(w, d->object);
        return STATUS_OK;
}

/* Every entry by itself; gives the work the buffers it uses. */
static enum status check_entries(struct draft *d, struct tutti_work *w) {
        enum status status = STATUS_OK;
        bool has_sparse = false;
        for (uint32_t i = 0; status == STATUS_OK && i < d->half->n_entries; i++) {
                status = draft_entry(d, i);
                if (status == STATUS_OK)
                        status = keep_uses(d, w);
                has_sparse |= d->entry->layout == LAYOUT_SPARSE;
                if (status != STATUS_OK)
                        d->err->entry = (int32_t)i;
        }
        if (status == STATUS_OK && has_sparse && !work_expect_extents(w, d->half->n_entries))
                return refuse(d->err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED,
                        "the list of the results' lengths does not fit into memory");
        return status;
}

/* What tuttid does not reach comes into shared memory. */
static enum status stage(const struct half *h, void *stream, struct error *err) {
        struct tutti_work *w = h->work;
        enum status status = device_copies_begin(&w->copies, stream, err);
        if (status == STATUS_OK)
                status = staging_begin(&w->staging, w->t, err);
        if (status == STATUS_OK && w->staging.piece && !work_uses(w, w->staging.piece))
                status = no_memory_for_uses(err);
        return status;
}

/* --- checksums --- */

/* Of the input of the entry that was drafted last, where it lies now. */
static uint64_t checksum_input(struct draft *d) {
        const struct staging *staging = &d->half->work->staging;
        const struct staged *staged = staging_find(staging, d->index, STAGED_INPUT);
        const struct lattice packed = { .element_bytes = dtype_bytes(d->entry->dtype) };
        struct view view;
        uint64_t count, extent;
        if (!entry_count(d->entry, &count) || count == 0 || packed.element_bytes == 0)
                return 0;
        if (staged)
                return checksum_lattice(&packed, staging_at(staging, staged), count);
        if (view_value(d, "input", &d->input, &view, &extent) != STATUS_OK)
                return 0;
        view_simplify(&view);
        const struct lattice l = { packed.element_bytes, view.n_dims, view.shape, view.strides };
        const uint8_t *at =
                d->input.buffer->region->data + d->input.buffer->block.offset_bytes + d->input.offset;
        return checksum_lattice(view_is_dense(&view) ? &packed : &l, at, count);
}

static enum status sum_up(struct draft *d) {
        struct tutti_work *w = d->half->work;
        if (!work_make_checksums(w, d->half->n_entries))
                return refuse(d->err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED,
                        "the list of checksums does not fit into memory");
        for (uint32_t i = 0; i < w->n_uses; i++)
                if (device_is_direct(device_of(w->uses[i])))
                        return refuse(d->err, STATUS_UNSUPPORTED, FIELD_OPTIONS,
                                "check_inputs reads the inputs on the host, and one is in device memory");
        for (uint32_t i = 0; i < d->half->n_entries; i++) {
                bool has_input = draft_entry(d, i) == STATUS_OK && d->entry->input.buffer;
                w->checksums[i] = has_input ? checksum_input(d) : 0;
        }
        return STATUS_OK;
}

/* Negative ones count from the last dimension of the first value. */
static enum status take_axes(struct half *h, struct error *err) {
        struct tutti_entry entry;
        const struct tutti_value *first = NULL;
        if (h->axes.n == 0)
                return STATUS_OK;
        if (h->n_entries && arguments_copy(&ARGUMENTS(&entry), h->entries, h->stride_bytes) && entry.input &&
                arguments_copy(
                        &ARGUMENTS_SINCE(&h->first, has_strides), entry.input, entry.input->struct_size))
                first = &h->first;
        return axes_take(&h->axes, first, &h->wire_axes, err);
}

enum status half_check(
        struct half *h, struct half_options *ret_options, struct entry *ret_only, struct error *err) {
        struct draft d = { .half = h, .entry = ret_only, .err = err };
        enum status status = options_take(h->options, ret_options, err);
        if (status == STATUS_OK)
                status = check_length(h, err);
        if (status == STATUS_OK)
                status = take_axes(h, err);
        if (status == STATUS_OK)
                status = check_entries(&d, h->work);
        if (status == STATUS_OK)
                options_merge(&h->g->base,
                        &(struct options_use){ h->kind, h->op, h->n_entries ? ret_only : NULL }, ret_options);
        if (status == STATUS_OK && kind_has_axis(h->kind) && !work_expect_extents(h->work, h->n_entries))
                status = refuse(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED,
                        "the list of results' lengths does not fit into memory");
        if (status == STATUS_OK)
                status = stage(h, ret_options->stream, err);
        h->is_checked = status == STATUS_OK;
        if (status == STATUS_OK && ret_options->options.check_inputs)
                status = sum_up(&d);
        h->has_checksums = status == STATUS_OK && ret_options->options.check_inputs;
        /* Where a copy lies, and what a checksum is, is known only now. */
        if (status == STATUS_OK && h->n_entries == 1 &&
                (h->work->staging.piece || h->work->copies.n || h->has_checksums))
                half_entry(h, 0, ret_only);
        return status;
}
