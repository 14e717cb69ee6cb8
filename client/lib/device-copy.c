/* Staged buffers: their bytes to the host and home. */
#include <stdlib.h>
#include "lib/device.h"

enum status device_copies_add(struct device_copies *c, const struct device_copy *copy, struct error *err) {
        if (c->n == c->capacity) {
                uint32_t capacity = c->capacity ? 2 * c->capacity : 4;
                struct device_copy *list = realloc(c->list, capacity * sizeof(*list));
                if (!list)
                        return refuse(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED,
                                "the list of values to be copied does not fit into memory");
                c->list = list;
                c->capacity = capacity;
        }
        struct tutti *t = copy->buffer->t;
        pthread_mutex_lock(&t->lock);
        buffer_use(copy->buffer);
        pthread_mutex_unlock(&t->lock);
        c->list[c->n++] = *copy;
        return STATUS_OK;
}

static struct driver_copy range_of(const struct device_copy *c, uint64_t offset_bytes, uint64_t n_bytes) {
        const struct device_memory *m = device_of(c->buffer);
        offset_bytes += c->offset_bytes;
        return (struct driver_copy){ .context = m->place.context,
                .device = m->pointer + offset_bytes,
                .host = c->buffer->region->data + offset_bytes,
                .n_bytes = n_bytes };
}

/* From the first element to the last, with what is between them. */
static enum status read_extent(
        struct device_copies *copies, const struct device_copy *c, void *stream, struct error *err) {
        uint64_t extent;
        CHECK(view_extent(&c->lie.view, &extent));
        struct driver_copy range = range_of(c, 0, extent * c->element_bytes);
        range.stream = stream;
        copies->copied_bytes += range.n_bytes;
        return driver_read(&range, err);
}

/* What is on its way to the host must have come there, or the driver have given up its context, before the
 * memory can be somebody else's. */
static void wait_for_what_was_begun(void *context, void *stream) {
        struct error ignored;
        if (driver_wait(context, stream, &ignored) != STATUS_OK)
                driver_wait_all(context);
}

enum status device_copies_begin(struct device_copies *c, void *stream, struct error *err) {
        enum status status = STATUS_OK;
        void *context = NULL;
        for (uint32_t i = 0; status == STATUS_OK && i < c->n; i++) {
                if (c->list[i].is_output)
                        continue;
                context = device_of(c->list[i].buffer)->place.context;
                status = read_extent(c, &c->list[i], stream, err);
        }
        if (status == STATUS_OK && context)
                status = driver_wait(context, stream, err);
        if (status != STATUS_OK && context)
                wait_for_what_was_begun(context, stream);
        return status;
}

/* Run by run of elements that lie one behind the other. */
static enum status write_runs(struct device_copies *copies, const struct device_copy *c, struct error *err) {
        const struct lattice l = { c->element_bytes, c->lie.view.n_dims, c->lie.view.shape,
                c->lie.view.strides };
        uint64_t count = 1, run = 1;
        for (uint32_t i = 0; i < c->lie.view.n_dims; i++)
                count *= c->lie.view.shape[i];
        if (view_is_dense(&c->lie.view))
                run = count;
        else if (c->lie.view.strides[c->lie.view.n_dims - 1] == 1)
                run = c->lie.view.shape[c->lie.view.n_dims - 1];
        enum status status = STATUS_OK;
        for (uint64_t i = 0; status == STATUS_OK && i < count; i += run) {
                uint64_t at = view_is_dense(&c->lie.view) ? 0 : lattice_offset(&l, i) * c->element_bytes;
                const struct driver_copy range = range_of(c, at, run * c->element_bytes);
                copies->copied_bytes += range.n_bytes;
                status = driver_write(&range, err);
        }
        return status;
}

bool device_copies_have_room(const struct device_copies *c, const uint64_t *extents) {
        for (uint32_t i = 0; i < c->n; i++) {
                const struct device_copy *copy = &c->list[i];
                if (copy->lie.axis < MAX_DIMS && !open_view_fits(&copy->lie, extents[2 * copy->entry]))
                        return false;
        }
        return true;
}

void device_copies_settle(struct device_copies *c, const uint64_t *extents) {
        for (uint32_t i = 0; i < c->n; i++)
                if (c->list[i].lie.axis < MAX_DIMS)
                        open_view_close(&c->list[i].lie, extents[2 * c->list[i].entry]);
}

enum status device_copies_finish(struct device_copies *c, struct error *err) {
        enum status status = STATUS_OK;
        for (uint32_t i = 0; status == STATUS_OK && i < c->n; i++)
                if (c->list[i].is_output)
                        status = write_runs(c, &c->list[i], err);
        return status;
}

void device_copies_end(struct device_copies *c) {
        for (uint32_t i = 0; i < c->n; i++)
                buffer_end_use(c->list[i].buffer);
        c->n = 0;
}
