/* The options of a collective: the caller's in wire form, and a membership's base set merged with a call's.
 */
#pragma once

#include "lib/failure.h"
#include "model/signature.h"

/* The caller's options, in wire form. */
struct half_options {
        bool has_timeout;
        uint64_t timeout_ns; /* 0: none */
        bool has_stream;
        void *stream;
        struct options options;
        uint64_t reset; /* TUTTI_RESET_...: what a base set has no say in */
};

/* NULL: all defaults. INVALID: not begun with TUTTI_OPTIONS, or a timeout that is no number. */
enum status options_take(
        const struct tutti_options *given, struct half_options *ret, struct error *err) MUST_USE;

/* What the options are for. */
struct options_use {
        enum kind kind;
        enum op op;
        const struct entry *entry; /* one of them; NULL: there is none */
};

/* Fills in what `call` leaves at its default and does not reset, from `base`. What a base set says of
 * roundings, weights and equal rows is for those collectives that have any; of others it says nothing. */
void options_merge(const struct half_options *base, const struct options_use *use, struct half_options *call);
