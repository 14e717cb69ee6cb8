/* Records of different sizes, one behind the other in a ring of bytes that can double.
 *
 * A position counts the bytes ever written, so it stays the name of its record while the ring grows and
 * moves. A record lies in one piece: what is left before the end of the memory and is too small is skipped,
 * and capacities are powers of two, so that a piece stays one when the ring grows. Owned by recorder.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/check.h"

struct ring {
        uint8_t *bytes;
        uint64_t capacity;   /* a power of two; 0: no memory yet */
        uint64_t tail, head; /* positions: of the oldest record, behind the newest */
        uint32_t n_records;
};

/* Zero-initialised it is empty and without memory. */
void ring_deinit(struct ring *r);

/* Takes `capacity` bytes, a power of two and more than it has; the records stay. 0 or -ENOMEM. */
int ring_grow(struct ring *r, uint64_t capacity) MUST_USE;

/* Whether a record of `n_bytes` fits beside those that are there. */
bool ring_fits(const struct ring *r, size_t n_bytes);

/* Appends a record, which must fit. */
void ring_append(struct ring *r, const uint8_t *bytes, size_t n_bytes);

/* Drops the oldest record; there must be one. */
void ring_drop(struct ring *r);

/* The record at *position, or the oldest when that one is gone (0 begins). *position moves behind it. NULL:
 * no more. */
const uint8_t *ring_next(const struct ring *r, uint64_t *position, size_t *ret_bytes);
