#include "model/checksum.h"

#include <string.h>

#define TILE_BYTES 4096

/* For one index it maps different bits to different numbers: no single change is lost. The multipliers are
 * those of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static inline uint64_t mix(uint64_t index, uint64_t bits) {
        uint64_t z = bits ^ ((index + 1) * UINT64_C(0x9e3779b97f4a7c15));
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        return (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
}

#define SUM_UP(n_bytes, type)                                                                                \
        case n_bytes:                                                                                        \
                for (uint64_t i = 0; i < n; i++) {                                                           \
                        type bits;                                                                           \
                        memcpy(&bits, at + i * (n_bytes), n_bytes);                                          \
                        sum += mix(first + i, bits);                                                         \
                }                                                                                            \
                return sum;

uint64_t checksum_elements(const void *dense, uint64_t n, size_t element_bytes, uint64_t first) {
        const uint8_t *at = dense;
        uint64_t sum = 0;
        switch (element_bytes) {
                SUM_UP(1, uint8_t)
                SUM_UP(2, uint16_t)
                SUM_UP(4, uint32_t)
                SUM_UP(8, uint64_t)
        case 16:
                for (uint64_t i = 0; i < n; i++) {
                        uint64_t bits[2];
                        memcpy(bits, at + i * 16, 16);
                        sum += mix(2 * (first + i), bits[0]) + mix(2 * (first + i) + 1, bits[1]);
                }
                return sum;
        }
        return sum;
}

uint64_t checksum_lattice(const struct lattice *l, const void *base, uint64_t n) {
        uint8_t tile[TILE_BYTES];
        uint64_t sum = 0, block = TILE_BYTES / l->element_bytes;
        if (l->n_dims == 0)
                return checksum_elements(base, n, l->element_bytes, 0);
        for (uint64_t first = 0; first < n; first += block) {
                uint64_t n_block = n - first < block ? n - first : block;
                lattice_gather(l, base, first, n_block, tile);
                sum += checksum_elements(tile, n_block, l->element_bytes, first);
        }
        return sum;
}
