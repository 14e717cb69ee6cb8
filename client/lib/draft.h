/* An entry of a half under check: the caller's, copied, and what it becomes. What half.c and half-sparse.c
 * share. */
#pragma once

#include "lib/arguments.h"
#include "lib/half.h"
#include "lib/object.h"
#include "lib/region.h"

struct draft {
        const struct half *half;
        struct tutti_value input, output, indices;
        struct entry *entry;
        uint32_t index; /* of the entry */
        struct tutti_buffer *uses[4];
        uint32_t n_uses;
        struct tutti_object *object; /* where the output goes; NULL: to a buffer */
        struct error *err;
};

/* Copies a value of the caller and looks at what it names; `what` it is, for messages. */
enum status draft_take_value(
        struct draft *d, const char *what, const struct tutti_value *given, struct tutti_value *ret) MUST_USE;
/* Where it lies: *ret, one of the places of d->entry. */
enum status draft_place_value(
        struct draft *d, const char *what, const struct tutti_value *v, struct place *ret) MUST_USE;

/* --- sparse values (half-sparse.c) --- */

/* d->input, whose rows are placed, has indices. */
enum status draft_sparse_input(struct draft *d) MUST_USE;
/* d->output, which is not placed yet, has indices, or should have. Without an input the entry is as it says.
 */
enum status draft_sparse_output(struct draft *d, bool has_input) MUST_USE;
