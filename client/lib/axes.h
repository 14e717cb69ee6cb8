/* Axes as callers give them, made into what goes over the wire: none negative, and outputs with as many
 * dimensions as their inputs. */
#pragma once

#include <tutti/tutti.h>
#include "lib/failure.h"
#include "model/signature.h"

/* What a caller says. */
struct axes_given {
        const int32_t *list; /* [n]; negative ones count from the last dimension */
        uint32_t n;
};

/* Into a set of dimensions, of values like `first` (NULL: of any). INVALID with field AXIS: outside of it, or
 * given twice. */
enum status axes_take(const struct axes_given *given, const struct tutti_value *first, uint16_t *ret,
        struct error *err) MUST_USE;
/* Whether another value of the batch means the same dimensions by them. */
enum status axes_check_dims(const struct axes_given *given, const struct tutti_value *first,
        const struct tutti_value *other, struct error *err) MUST_USE;

/* Brings an output into the shape that goes with `input`: where dimensions were reduced over, and it lacks
 * them, it gets them with length 1. INVALID with field SHAPE: it has another one. */
enum status axes_fit_output(const struct signature *s, const struct tutti_value *input,
        struct tutti_value *output, struct error *err) MUST_USE;
