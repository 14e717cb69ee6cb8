#include "base/sip.h"

#include <string.h>

static uint64_t rotate(uint64_t x, unsigned int n) {
        return x << n | x >> (64 - n);
}

static void sip_round(uint64_t v[4]) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
}

void sip_begin(struct sip *s, const uint64_t seed[2]) {
        *s = (struct sip){ { seed[0] ^ 0x736f6d6570736575, seed[1] ^ 0x646f72616e646f6d,
                seed[0] ^ 0x6c7967656e657261, seed[1] ^ 0x7465646279746573 } };
}

void sip_word(struct sip *s, uint64_t word) {
        s->v[3] ^= word;
        sip_round(s->v);
        s->v[0] ^= word;
}

uint64_t sip_hash(const uint64_t seed[2], const void *data, size_t n) {
        const unsigned char *bytes = data;
        struct sip s;
        uint64_t word, last = (uint64_t)n << 56;
        sip_begin(&s, seed);
        for (; n >= sizeof(word); n -= sizeof(word), bytes += sizeof(word)) {
                memcpy(&word, bytes, sizeof(word));
                sip_word(&s, word);
        }
        for (size_t i = 0; i < n; i++)
                last |= (uint64_t)bytes[i] << (8 * i);
        sip_word(&s, last);
        s.v[2] ^= 0xff;
        for (int i = 0; i < 3; i++)
                sip_round(s.v);
        return s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3];
}
