/* SipHash (Aumasson and Bernstein, 2012), with one round a word and three at the end: for what clients choose
 * and must not be able to make collide. The seed is secret. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sip {
        uint64_t v[4];
};

void sip_begin(struct sip *s, const uint64_t seed[2]);
/* Takes in 64 bits more. */
void sip_word(struct sip *s, uint64_t word);

uint64_t sip_hash(const uint64_t seed[2], const void *data, size_t n);

/* What it has taken in, in 64 bits: for a hint. */
static inline uint64_t sip_mark(const struct sip *s) {
        return s->v[0] ^ s->v[1] ^ s->v[2] ^ s->v[3];
}

/* Whether both have taken in the same words. That of as many words others are found equal has, for who does
 * not know the seed, a chance of one in 2^128 or so. */
static inline bool sip_is_equal(const struct sip *a, const struct sip *b) {
        return a->v[0] == b->v[0] && a->v[1] == b->v[1] && a->v[2] == b->v[2] && a->v[3] == b->v[3];
}
