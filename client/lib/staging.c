#include "lib/staging.h"

#include <stdlib.h>
#include <string.h>

/* Sizes of pieces are multiples of this, so that values of about one size share one. */
#define PIECE_BYTES (UINT64_C(64) << 10)

static bool make_room(struct staging *s) {
        if (s->n < s->capacity)
                return true;
        uint32_t capacity = s->capacity ? 2 * s->capacity : 4;
        struct staged *values = realloc(s->values, capacity * sizeof(*values));
        if (!values)
                return false;
        s->values = values;
        s->capacity = capacity;
        return true;
}

static bool is_in_place(const struct staged *input, const struct staged *output) {
        const struct view *in = &input->lie.view, *out = &output->lie.view;
        return input->entry == output->entry && input->memory == output->memory &&
               output->lie.axis == MAX_DIMS && input->element_bytes == output->element_bytes &&
               input->count == output->count && in->n_dims == out->n_dims &&
               memcmp(in->shape, out->shape, in->n_dims * sizeof(*in->shape)) == 0 &&
               memcmp(in->strides, out->strides, in->n_dims * sizeof(*in->strides)) == 0;
}

enum status staging_add(struct staging *s, const struct staged *value, struct error *err) {
        uint64_t n_bytes, end;
        if (!make_room(s))
                return refuse(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED,
                        "the list of values in plain memory does not fit into memory");
        struct staged *added = &s->values[s->n];
        *added = *value;
        if (s->n > 0 && value->role == STAGED_OUTPUT && added[-1].role == STAGED_INPUT &&
                is_in_place(added - 1, value)) {
                added->offset_bytes = added[-1].offset_bytes;
                s->n++;
                return STATUS_OK;
        }
        if (__builtin_mul_overflow(value->count, value->element_bytes, &n_bytes) ||
                __builtin_add_overflow(s->n_bytes, n_bytes, &end) || end > INT64_MAX / 2)
                return refuse(err, STATUS_LIMIT, FIELD_SIZE,
                        "the values in plain memory have more bytes than can be copied");
        added->offset_bytes = s->n_bytes;
        s->n_bytes = (end + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
        s->n++;
        return STATUS_OK;
}

const struct staged *staging_find(const struct staging *s, uint32_t entry, enum staged_role role) {
        uint32_t low = 0, high = s->n;
        while (low < high) {
                uint32_t middle = low + (high - low) / 2;
                const struct staged *v = &s->values[middle];
                if (v->entry < entry || (v->entry == entry && v->role < role))
                        low = middle + 1;
                else
                        high = middle;
        }
        bool is_there = low < s->n && s->values[low].entry == entry && s->values[low].role == role;
        return is_there ? &s->values[low] : NULL;
}

/* --- pieces --- */

/* The smallest spare one of at least `n_bytes`. Where there is none, one that is too small goes. Under
 * `lock`. */
static struct tutti_buffer *take_spare(struct tutti *t, uint64_t n_bytes) {
        struct tutti_buffer *best = NULL;
        list_for_each (it, &t->spare_pieces) {
                struct tutti_buffer *b = list_entry(it, struct tutti_buffer, piece);
                if (b->n_bytes >= n_bytes && (!best || b->n_bytes < best->n_bytes))
                        best = b;
        }
        if (best) {
                list_unlink(&best->piece);
                return best;
        }
        struct list *first = list_take_first(&t->spare_pieces);
        if (first)
                buffer_drop(list_entry(first, struct tutti_buffer, piece));
        return NULL;
}

static enum status take_piece(struct staging *s, struct tutti *t, struct error *err) {
        pthread_mutex_lock(&t->lock);
        s->piece = take_spare(t, s->n_bytes);
        pthread_mutex_unlock(&t->lock);
        if (s->piece)
                return STATUS_OK;
        const struct tutti_alloc_args args =
                TUTTI_ALLOC(.n_bytes = (s->n_bytes + PIECE_BYTES) / PIECE_BYTES * PIECE_BYTES);
        return buffer_make(t, &args, &s->piece, err);
}

uint8_t *staging_at(const struct staging *s, const struct staged *value) {
        return (uint8_t *)tutti_buffer_data(s->piece) + value->offset_bytes;
}

static struct lattice lattice_of(const struct staged *v) {
        return (struct lattice){ .element_bytes = v->element_bytes,
                .n_dims = v->lie.view.n_dims,
                .shape = v->lie.view.shape,
                .strides = v->lie.view.strides };
}

static void copy_in(struct staging *s, const struct staged *v) {
        const struct lattice l = lattice_of(v);
        if (v->role > STAGED_INDICES || v->count == 0)
                return;
        lattice_gather(&l, v->memory, 0, v->count, staging_at(s, v));
        s->copied_bytes += v->count * v->element_bytes;
}

static void staging_fill(struct staging *s) {
        for (uint32_t i = 0; i < s->n; i++)
                copy_in(s, &s->values[i]);
}

static bool is_written_over(const struct staging *s, uint32_t i) {
        const struct staged *v = &s->values[i];
        return v->role == STAGED_INPUT && i + 1 < s->n && v[1].entry == v->entry &&
               v[1].role == STAGED_OUTPUT && v[1].offset_bytes == v->offset_bytes && v->count > 0;
}

bool staging_is_written_over(const struct staging *s) {
        for (uint32_t i = 0; i < s->n; i++)
                if (is_written_over(s, i))
                        return true;
        return false;
}

void staging_fill_again(struct staging *s) {
        for (uint32_t i = 0; i < s->n; i++)
                if (is_written_over(s, i))
                        copy_in(s, &s->values[i]);
}

enum status staging_begin(struct staging *s, struct tutti *t, struct error *err) {
        if (s->n == 0)
                return STATUS_OK;
        enum status status = take_piece(s, t, err);
        if (status == STATUS_OK)
                staging_fill(s);
        return status;
}

bool staging_has_room(const struct staging *s, const uint64_t *extents) {
        for (uint32_t i = 0; i < s->n; i++) {
                const struct staged *v = &s->values[i];
                if (v->lie.axis < MAX_DIMS && !open_view_fits(&v->lie, extents[2 * v->entry]))
                        return false;
        }
        return true;
}

void staging_settle(struct staging *s, const uint64_t *extents) {
        for (uint32_t i = 0; i < s->n; i++) {
                struct staged *v = &s->values[i];
                if (v->lie.axis < MAX_DIMS)
                        v->count = open_view_close(&v->lie, extents[2 * v->entry]);
        }
}

void staging_finish(struct staging *s) {
        for (uint32_t i = 0; i < s->n; i++) {
                const struct staged *v = &s->values[i];
                const struct lattice l = lattice_of(v);
                if (v->role < STAGED_OUTPUT || v->count == 0)
                        continue;
                lattice_scatter(&l, v->memory, 0, v->count, staging_at(s, v));
                s->copied_bytes += v->count * v->element_bytes;
        }
}

/* One that tuttid has refused is of no use to the next. */
void staging_end(struct staging *s, struct tutti *t) {
        struct tutti_buffer *piece = s->piece;
        s->n = 0;
        s->n_bytes = 0;
        s->piece = NULL;
        if (!piece)
                return;
        if (buffer_refusal(piece))
                buffer_drop(piece);
        else
                list_append(&t->spare_pieces, &piece->piece);
}
