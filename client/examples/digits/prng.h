/* Numbers that look random and are the same everywhere: splitmix64 (S. Vigna, public domain). */
#pragma once

#include <stdint.h>

struct prng {
        uint64_t state;
};

static inline uint64_t prng_next(struct prng *p) {
        uint64_t z = p->state += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        return z ^ z >> 31;
}

/* 0 .. limit - 1; limit is small, so that the bias of the remainder does not matter. */
static inline uint32_t prng_below(struct prng *p, uint32_t limit) {
        return (uint32_t)(prng_next(p) % limit);
}

/* -1 <= x < 1, a multiple of 2^-23. */
static inline float prng_float(struct prng *p) {
        return (float)(prng_next(p) >> 40) * 0x1p-23f - 1.0f;
}

static inline void prng_shuffle(struct prng *p, uint32_t *items, uint32_t n) {
        for (uint32_t i = n; i > 1; i--) {
                uint32_t j = prng_below(p, i), item = items[i - 1];
                items[i - 1] = items[j];
                items[j] = item;
        }
}
