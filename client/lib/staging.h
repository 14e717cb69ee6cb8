/* Values in plain memory on their way through shared memory: one piece of it for each half that has such
 * values, inputs and outputs one behind the other, packed.
 *
 * A piece belongs to one work until its outputs have come home or the handle is gone, and then waits on the
 * connection for the next. There are never more pieces than works that needed one at once: where none is
 * large enough, one that is too small goes for it. */
#pragma once

#include "lib/region.h"
#include "model/view.h"

/* In the order in which an entry has them. */
enum staged_role { STAGED_INPUT, STAGED_INDICES, STAGED_OUTPUT, STAGED_OUTPUT_INDICES };

/* A value in plain memory. */
struct staged {
        uint32_t entry;
        enum staged_role role;
        void *memory; /* its first element */
        size_t element_bytes;
        uint64_t count;
        struct open_view lie;  /* where nothing is open simplified */
        uint64_t offset_bytes; /* in the piece */
};

struct staging {
        struct staged *values; /* by entry, then by role */
        uint32_t n, capacity;
        uint64_t n_bytes;           /* that the piece must have */
        struct tutti_buffer *piece; /* NULL: none */
        uint64_t copied_bytes;
};

/* Adds a value, and finds it a place: an output that is its entry's input exactly has that one's. Entries
 * come in order. */
enum status staging_add(struct staging *s, const struct staged *value, struct error *err) MUST_USE;
/* NULL: there is none. */
const struct staged *staging_find(const struct staging *s, uint32_t entry, enum staged_role role);

/* Takes a piece, if one is needed, and copies the inputs into it. Not under any lock. */
enum status staging_begin(struct staging *s, struct tutti *t, struct error *err) MUST_USE;
/* Whether an input has its output's place, so that a result goes over it. */
bool staging_is_written_over(const struct staging *s);
/* Copies such inputs again. The memory that they come from is their output's, so it is there until that is
 * home; what others come from may be gone, and their copies are as they were. */
void staging_fill_again(struct staging *s);
/* Where a value lies in the piece. */
uint8_t *staging_at(const struct staging *s, const struct staged *value);
/* Whether outputs have room for results of these lengths: extents[2 * entry]. */
bool staging_has_room(const struct staging *s, const uint64_t *extents);
/* How long the results of entries are: extents[2 * entry]. Before they go home. */
void staging_settle(struct staging *s, const uint64_t *extents);
/* Copies the outputs home. Not under `lock`. */
void staging_finish(struct staging *s);

/* Gives the piece back and forgets the values. Under `lock`. */
void staging_end(struct staging *s, struct tutti *t);
