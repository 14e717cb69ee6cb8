/* Argument structs of callers that were compiled against an older or a newer tutti.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* What is known of an argument struct here. */
struct arguments {
        void *at;
        size_t n_bytes;
        size_t first_bytes; /* of its first version */
};

/* Where `field` is the first one that its first version lacked. */
#define ARGUMENTS_SINCE(known, field)                                                                        \
        ((struct arguments){ (known), sizeof(*(known)), offsetof(__typeof__(*(known)), field) })
/* Which has had one version so far. */
#define ARGUMENTS(known) ((struct arguments){ (known), sizeof(*(known)), sizeof(*(known)) })

/* Copies a caller's struct of `given_bytes` (its struct_size) into ours; what an older one lacks is 0. false:
 * it is shorter than the first version's, or sets what only a newer library knows. */
bool arguments_copy(const struct arguments *known, const void *given, size_t given_bytes);
