/* A set of ranks, 0..1023, by value. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/text.h"

#define MAX_WORLD 1024

struct rankset {
        uint64_t words[MAX_WORLD / 64];
};

static inline void rankset_add(struct rankset *s, unsigned int rank) {
        s->words[rank / 64] |= UINT64_C(1) << (rank % 64);
}

static inline void rankset_remove(struct rankset *s, unsigned int rank) {
        s->words[rank / 64] &= ~(UINT64_C(1) << (rank % 64));
}

/* false for ranks of 1,024 and more. */
static inline bool rankset_has(const struct rankset *s, unsigned int rank) {
        return rank < MAX_WORLD && (s->words[rank / 64] >> (rank % 64) & 1);
}

#define rankset_for_each(rank, set)                                                                          \
        for (int rank = rankset_next((set), 0); rank >= 0; rank = rankset_next((set), rank + 1))

/* The first member that is >= from, or -1. */
int rankset_next(const struct rankset *s, int from);
unsigned int rankset_count(const struct rankset *s);
bool rankset_is_empty(const struct rankset *s);
bool rankset_is_equal(const struct rankset *a, const struct rankset *b);
bool rankset_is_subset(const struct rankset *inner, const struct rankset *outer);

/* Ranks 0..n-1. */
struct rankset rankset_first(unsigned int n);
/* Adds all that are in `other`. */
void rankset_unite(struct rankset *s, const struct rankset *other);
struct rankset rankset_minus(const struct rankset *a, const struct rankset *b);

/* Little-endian bitmap as on the wire, cut after its last set byte; returns the number of bytes (0..128). */
size_t rankset_to_bytes(const struct rankset *s, uint8_t bytes[MAX_WORLD / 8]);
/* Bytes beyond 128 must be zero; false otherwise. */
bool rankset_from_bytes(const uint8_t *bytes, size_t n, struct rankset *ret);

/* "R0 R1 R3", runs of four and more as "R4-R9"; "nobody" when empty. */
void rankset_print(const struct rankset *s, struct text *t);
