/* What tests of result objects need again and again; a slot's values are floats. */
#pragma once

#include "meeting.h"

/* Two slots of n_floats on CPU:0. */
struct tutti_object *object_make(struct tutti_group *g, const char *name, size_t n_floats);
struct tutti_value value_in(struct tutti_object *o, size_t offset, size_t n_floats);
/* Those n elements of the slot are `value`. */
void expect_slot(const struct tutti_object *o, uint32_t slot, size_t from, size_t n, float value);
/* Sums f into the object; the slot that it is in. */
uint32_t sum_into(struct tutti_group *g, const char *key, const struct floats *f, struct tutti_object *o);
