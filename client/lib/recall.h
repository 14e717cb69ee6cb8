/* Calls that come again: what was given in the last ones, byte for byte, and what half_check made of it. The
 * same call once more needs no second look. Only plain ones: one dense value in host memory that tuttid
 * knows, or into a result object, and options by the membership's base set alone. */
#pragma once

#include <tutti/tutti.h>
#include "base/sip.h"
#include "lib/options.h"
#include "model/signature.h"

#define MAX_RECALLED 16 /* a power of 2 */

struct tutti;
struct half;

struct recalled {
        /* As given; 0: nothing stands here. */
        const struct tutti_group *group;
        uint64_t membership;
        enum kind kind;
        enum op op;
        uint32_t root;
        bool has_input, has_output;
        struct tutti_value input, output;
        struct tutti_destinations destinations;
        /* What it became. */
        struct half_options options;
        struct entry entry;
        struct sip print; /* of the half (prepared.h) */
};

/* A connection's; each has its place by what is given. Under `lock`. */
struct memory_of_calls {
        struct recalled items[MAX_RECALLED];
};

/* Whether it is one of them: then it is as after half_check. Takes `lock`. */
bool recall(struct half *h, struct half_options *ret_options, struct entry *ret_only, struct sip *ret_print);
/* It has been checked. Takes `lock`. */
void recall_note(const struct half *h, const struct half_options *options, const struct entry *only,
        const struct sip *print);
/* All of it: memberships get other numbers. Under `lock`. */
void recall_forget_all(struct tutti *t);
/* The buffer or the object goes; another one may be where it was. Under `lock`. */
void recall_forget(struct tutti *t, const struct tutti_buffer *b, const struct tutti_object *o);
