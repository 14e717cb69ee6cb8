#include "recorder-ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* In front of each record and each gap. Slots are multiples of it, so that it is never split. */
struct ring_head {
        uint32_t n_bytes : 31; /* behind it */
        uint32_t is_gap : 1;   /* skip: the memory ended here when the record behind it was written */
};

#define ALIGNMENT sizeof(struct ring_head)

static uint64_t slot_bytes(uint64_t n_bytes) {
        return (sizeof(struct ring_head) + n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static uint8_t *at(const struct ring *r, uint64_t position) {
        return r->bytes + (position & (r->capacity - 1));
}

static uint64_t left_before_end(const struct ring *r, uint64_t position) {
        return r->capacity - (position & (r->capacity - 1));
}

static struct ring_head head_at(const struct ring *r, uint64_t position) {
        struct ring_head h;
        memcpy(&h, at(r, position), sizeof(h));
        return h;
}

void ring_deinit(struct ring *r) {
        free(r->bytes);
        *r = (struct ring){ 0 };
}

/* Copies [tail, head) to where it belongs in memory of another size. */
static void move_bytes(const struct ring *from, const struct ring *to) {
        for (uint64_t p = from->tail; p < from->head;) {
                uint64_t n = from->head - p, a = left_before_end(from, p), b = left_before_end(to, p);
                n = n < a ? n : a;
                n = n < b ? n : b;
                memcpy(at(to, p), at(from, p), n);
                p += n;
        }
}

int ring_grow(struct ring *r, uint64_t capacity) {
        struct ring grown = *r;
        CHECK(capacity > r->capacity && (capacity & (capacity - 1)) == 0);
        grown.bytes = malloc(capacity);
        if (!grown.bytes)
                return -ENOMEM;
        grown.capacity = capacity;
        move_bytes(r, &grown);
        free(r->bytes);
        *r = grown;
        return 0;
}

/* The gap that a slot of this size leaves before it. */
static uint64_t gap_before(const struct ring *r, uint64_t slot) {
        uint64_t left = left_before_end(r, r->head);
        return left < slot ? left : 0;
}

bool ring_fits(const struct ring *r, size_t n_bytes) {
        uint64_t slot = slot_bytes(n_bytes);
        if (!r->capacity)
                return false;
        return r->head - r->tail + gap_before(r, slot) + slot <= r->capacity;
}

static void write_head(struct ring *r, uint64_t n_bytes, unsigned int is_gap) {
        struct ring_head h = { .n_bytes = n_bytes & INT32_MAX, .is_gap = is_gap & 1 };
        memcpy(at(r, r->head), &h, sizeof(h));
}

void ring_append(struct ring *r, const uint8_t *bytes, size_t n_bytes) {
        uint64_t slot = slot_bytes(n_bytes), gap = gap_before(r, slot);
        CHECK(ring_fits(r, n_bytes));
        if (gap) {
                write_head(r, gap - sizeof(struct ring_head), 1);
                r->head += gap;
        }
        write_head(r, n_bytes, 0);
        memcpy(at(r, r->head) + sizeof(struct ring_head), bytes, n_bytes);
        r->head += slot;
        r->n_records++;
}

/* Behind a gap, if one is there. A gap is only written in front of a record. */
static uint64_t skip_gap(const struct ring *r, uint64_t position) {
        struct ring_head h = head_at(r, position);
        return h.is_gap ? position + slot_bytes(h.n_bytes) : position;
}

void ring_drop(struct ring *r) {
        CHECK(r->n_records > 0);
        uint64_t p = skip_gap(r, r->tail);
        r->tail = p + slot_bytes(head_at(r, p).n_bytes);
        r->n_records--;
}

const uint8_t *ring_next(const struct ring *r, uint64_t *position, size_t *ret_bytes) {
        uint64_t p = *position < r->tail ? r->tail : *position;
        if (p >= r->head)
                return NULL;
        p = skip_gap(r, p);
        struct ring_head h = head_at(r, p);
        *position = p + slot_bytes(h.n_bytes);
        *ret_bytes = h.n_bytes;
        return at(r, p) + sizeof(struct ring_head);
}
