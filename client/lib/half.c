#include "lib/half.h"

#include <string.h>
#include "lib/arguments.h"
#include "lib/object.h"
#include "lib/region.h"

/* An entry under check: the caller's, copied, and what it becomes. */
struct draft {
        const struct half *half;
        struct tutti_value input, output;
        struct entry *entry;
        struct tutti_buffer *uses[2];
        uint32_t n_uses;
        struct tutti_object *object; /* where the output goes; NULL: to a buffer */
        struct error *err;
};

/* --- one value --- */

static enum status refuse_value_size(struct draft *d, const char *what, const struct tutti_value *given) {
        return refuse(d->err, STATUS_INVALID, FIELD_SIZE,
                "the %s has struct_size %zu; begin it with TUTTI_VALUE or tutti_value_init", what,
                given->struct_size);
}

static enum status take_object(struct draft *d, const char *what, const struct tutti_value *v) {
        if (v->buffer)
                return refuse(d->err, STATUS_INVALID, FIELD_BUFFER,
                        "the %s has a buffer and a result object; leave one of them out", what);
        if (v->object->t != d->half->g->t || v->object->membership != d->half->g->membership)
                return refuse(d->err, STATUS_INVALID, FIELD_BUFFER,
                        "the result object \"%s\" was made by another membership", v->object->name);
        return STATUS_OK;
}

static enum status take_value(
        struct draft *d, const char *what, const struct tutti_value *given, struct tutti_value *ret) {
        if (!given)
                return refuse(d->err, STATUS_INVALID, FIELD_BUFFER, "the %s is NULL", what);
        if (!arguments_copy(ret, sizeof(*ret), given, given->struct_size))
                return refuse_value_size(d, what, given);
        if (ret->n_dims > TUTTI_MAX_DIMS)
                return refuse(d->err, STATUS_LIMIT, FIELD_SHAPE,
                        "the %s has %u dimensions, at most %d may be", what, ret->n_dims, TUTTI_MAX_DIMS);
        if (ret->object)
                return take_object(d, what, ret);
        if (!ret->buffer)
                return refuse(d->err, STATUS_INVALID, FIELD_BUFFER, "the %s has no buffer", what);
        if (ret->buffer->t != d->half->g->t)
                return refuse(d->err, STATUS_INVALID, FIELD_BUFFER,
                        "the buffer of the %s is of another connection than the group", what);
        return STATUS_OK;
}

/* Where it lies: tuttid knows the region, and only the library knows the buffer's bounds in it. */
static enum status place_value(
        struct draft *d, const char *what, const struct tutti_value *v, struct place *ret) {
        struct entry like = { .n_dims = v->n_dims };
        struct span span;
        uint64_t n = 0, limit_bytes = v->object ? v->object->slot_bytes : v->buffer->n_bytes;
        memcpy(like.shape, v->shape, v->n_dims * sizeof(*v->shape));
        size_t element_bytes = dtype_bytes((enum dtype)v->dtype);
        if (!entry_count(&like, &n))
                return refuse(d->err, STATUS_LIMIT, FIELD_SHAPE,
                        "the %s has more elements than 63 bits can count", what);
        if (element_bytes && !span_make(v->offset, n, element_bytes, limit_bytes, &span))
                return refuse(d->err, STATUS_INVALID, FIELD_OFFSET,
                        "the %s, %llu elements of %zu bytes from offset %zu on, is not aligned to its "
                        "elements "
                        "or does not fit into its %s of %llu bytes",
                        what, (unsigned long long)n, element_bytes, v->offset, v->object ? "slot" : "buffer",
                        (unsigned long long)limit_bytes);
        if (v->object) {
                ret->result = v->object->id;
                ret->offset_bytes = v->offset;
                d->object = v->object;
                return STATUS_OK;
        }
        ret->buffer = v->buffer->region->id;
        ret->offset_bytes = v->buffer->block.offset_bytes + v->offset;
        d->uses[d->n_uses++] = v->buffer;
        return STATUS_OK;
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

static bool is_equal_shape(const struct tutti_value *a, const struct tutti_value *b) {
        return a->n_dims == b->n_dims && memcmp(a->shape, b->shape, a->n_dims * sizeof(*a->shape)) == 0;
}

static enum status draft_input(struct draft *d, const struct tutti_value *given) {
        enum status status = take_value(d, "input", given, &d->input);
        if (status != STATUS_OK)
                return status;
        if (d->input.object)
                return refuse(d->err, STATUS_INVALID, FIELD_BUFFER,
                        "the input is a result object; a result object is for outputs, copy it to a buffer");
        describe(d->entry, &d->input);
        return place_value(d, "input", &d->input, &d->entry->input);
}

static enum status draft_output(struct draft *d, const struct tutti_value *given, bool has_input) {
        enum status status = take_value(d, "output", given, &d->output);
        if (status != STATUS_OK)
                return status;
        if (!has_input)
                describe(d->entry, &d->output);
        else if (!is_equal_shape(&d->input, &d->output))
                return refuse(d->err, STATUS_INVALID, FIELD_SHAPE, "input and output differ in their shapes");
        else if (d->output.dtype != d->input.dtype)
                d->entry->output_dtype = dtype_on_wire(d->output.dtype);
        return place_value(d, "output", &d->output, &d->entry->output);
}

/* Where this rank brings an input and receives nothing, an output says of what dtype the others' is. */
static enum status draft_output_dtype(struct draft *d, const struct tutti_value *given) {
        if (!given)
                return STATUS_OK;
        if (!arguments_copy(&d->output, sizeof(d->output), given, given->struct_size))
                return refuse_value_size(d, "output", given);
        if (d->output.dtype != d->input.dtype)
                d->entry->output_dtype = dtype_on_wire(d->output.dtype);
        return STATUS_OK;
}

/* Its output is the input; who says so twice has said nothing wrong. */
static enum status refuse_output_of_same(struct draft *d, const struct tutti_entry *given) {
        if (!given->output || given->output == given->input)
                return STATUS_OK;
        return refuse(d->err, STATUS_INVALID, FIELD_DESTINATIONS,
                "TUTTI_TO_SAME writes each result over its input; leave the output NULL");
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
                return refuse_output_of_same(d, given);
        bool receives = to == DESTINATION_DEVICE || entry_has_destination(d->entry, h->g->rank);
        if (reads && (!receives || !given->output))
                return draft_output_dtype(d, given->output);
        return draft_output(d, given->output, reads);
}

static enum status draft_entry(struct draft *d, uint32_t i) {
        const struct half *h = d->half;
        struct tutti_entry given;
        const void *at = (const char *)h->entries + i * h->stride_bytes;
        memset(d->entry, 0, sizeof(*d->entry));
        d->n_uses = 0;
        d->object = NULL;
        bool is_known = arguments_copy(&given, sizeof(given), at, h->stride_bytes);
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
        /* Changed under our hands since it was checked: what is there now is for tuttid to refuse. */
        if (draft_entry(&d, i) != STATUS_OK)
                ret->destination = DESTINATION_UNSPECIFIED;
}

/* --- the whole --- */

static void take_timeout(double seconds, struct half_options *ret) {
        ret->has_timeout = seconds != 0;
        if (seconds > 0 && seconds < 1e9) /* beyond thirty years there is no deadline */
                ret->timeout_ns = seconds < 1e-9 ? 1 : ns_of_seconds(seconds);
}

/* What this version does not know goes out as the first number beyond the list, for tuttid to refuse. */
static enum rounding rounding_on_wire(enum tutti_rounding rounding) {
        return (unsigned int)rounding <= ROUNDING_NEAREST ? (enum rounding)rounding : ROUNDING_NEAREST + 1;
}

static enum status take_options(const struct half *h, struct half_options *ret, struct error *err) {
        struct tutti_options options;
        *ret = (struct half_options){ 0 };
        if (!h->options)
                return STATUS_OK;
        if (!arguments_copy(&options, sizeof(options), h->options, h->options->struct_size))
                return refuse(err, STATUS_INVALID, FIELD_OPTIONS,
                        "the options have struct_size %zu; begin them with TUTTI_OPTIONS or "
                        "tutti_options_init",
                        h->options->struct_size);
        if (options.timeout != options.timeout)
                return refuse(err, STATUS_INVALID, FIELD_TIMEOUT, "the timeout is not a number");
        take_timeout(options.timeout, ret);
        ret->options = (struct options){ .rounding = rounding_on_wire(options.rounding),
                .has_weight = options.has_weight,
                .weight = options.has_weight ? options.weight : 0,
                .check_numerics = options.check_numerics,
                .check_overflow = options.check_overflow };
        return STATUS_OK;
}

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

enum status half_check(const struct half *h, struct tutti_work *w, struct half_options *ret_options,
        struct entry *ret_only, struct error *err) {
        enum status status = take_options(h, ret_options, err);
        if (status == STATUS_OK)
                status = check_length(h, err);
        struct draft d = { .half = h, .entry = ret_only, .err = err };
        for (uint32_t i = 0; status == STATUS_OK && i < h->n_entries; i++) {
                status = draft_entry(&d, i);
                if (status == STATUS_OK)
                        status = keep_uses(&d, w);
                if (status != STATUS_OK)
                        err->entry = (int32_t)i;
        }
        return status;
}
