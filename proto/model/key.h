/* The name under which the replicas of a group meet for one collective: bytes given by the caller, or a
 * number of the membership's own sequence. The two never collide. By value. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/text.h"

#define MAX_KEY_BYTES 128

struct key {
        uint64_t sequence;         /* when n_bytes is 0 */
        uint8_t n_bytes;           /* 1..128 for a name */
        char bytes[MAX_KEY_BYTES]; /* only the first n_bytes are set; no terminator */
};

static inline struct key key_sequence(uint64_t sequence) {
        return (struct key){ .sequence = sequence };
}

/* false when n_bytes is not 1..128. */
bool key_name(struct key *ret, const char *bytes, size_t n_bytes);
bool key_is_equal(const struct key *a, const struct key *b);

/* "\"grad/7\"" or "#17", escaped. */
void key_print(const struct key *k, struct text *t);
