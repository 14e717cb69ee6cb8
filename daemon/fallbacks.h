/* What a group's collectives asked for and did not get: each reason with how often and when last (P15).
 *
 * Of fixed size, whatever clients wish for: the first reasons that differ have a place of their own, the
 * others share one. A value in its owner's memory; all 0 it is empty. Pure; times are arguments. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "model/key.h"
#include "model/op.h"

#define MAX_FALLBACKS      8
#define FALLBACK_WHY_BYTES 192

struct fallback {
        char why[FALLBACK_WHY_BYTES]; /* what was wished for and is not done, and why; "": several reasons */
        const char *algorithm;        /* that was taken instead; "" where `why` is */
        uint64_t n;                   /* collectives */
        uint64_t last_ns;
        enum kind kind; /* of the last of them */
        struct key key;
};

struct fallbacks {
        struct fallback all[MAX_FALLBACKS + 1]; /* the last place is that of all others */
        uint32_t n;                             /* places in use */
};

/* A collective that was not done as was wished. Strings: `algorithm` outlives everything, `why` is copied. */
struct fallback_run {
        const char *why, *algorithm;
        enum kind kind;
        const struct key *key;
        uint64_t done_ns;
};

/* Whether it is the first in its place. */
bool fallbacks_add(struct fallbacks *f, const struct fallback_run *run);
