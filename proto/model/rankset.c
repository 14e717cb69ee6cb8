#include "model/rankset.h"

#include <string.h>

#define N_WORDS   (MAX_WORLD / 64)
#define SET_BYTES (MAX_WORLD / 8)

int rankset_next(const struct rankset *s, int from) {
        if (from < 0)
                from = 0;
        if (from >= MAX_WORLD)
                return -1;
        unsigned int i = (unsigned int)from / 64;
        uint64_t word = s->words[i] & UINT64_MAX << ((unsigned int)from % 64);
        while (!word) {
                if (++i == N_WORDS)
                        return -1;
                word = s->words[i];
        }
        return (int)(i * 64) + __builtin_ctzll(word);
}

unsigned int rankset_count(const struct rankset *s) {
        unsigned int n = 0;
        for (unsigned int i = 0; i < N_WORDS; i++)
                n += (unsigned int)__builtin_popcountll(s->words[i]);
        return n;
}

bool rankset_is_empty(const struct rankset *s) {
        return rankset_next(s, 0) < 0;
}

bool rankset_is_equal(const struct rankset *a, const struct rankset *b) {
        return memcmp(a->words, b->words, sizeof(a->words)) == 0;
}

bool rankset_is_subset(const struct rankset *inner, const struct rankset *outer) {
        for (unsigned int i = 0; i < N_WORDS; i++)
                if (inner->words[i] & ~outer->words[i])
                        return false;
        return true;
}

struct rankset rankset_first(unsigned int n) {
        struct rankset s = { { 0 } };
        CHECK(n <= MAX_WORLD);
        unsigned int i = 0;
        for (; n >= 64; n -= 64)
                s.words[i++] = UINT64_MAX;
        if (n)
                s.words[i] = (UINT64_C(1) << n) - 1;
        return s;
}

void rankset_unite(struct rankset *s, const struct rankset *other) {
        for (unsigned int i = 0; i < N_WORDS; i++)
                s->words[i] |= other->words[i];
}

struct rankset rankset_minus(const struct rankset *a, const struct rankset *b) {
        struct rankset s;
        for (unsigned int i = 0; i < N_WORDS; i++)
                s.words[i] = a->words[i] & ~b->words[i];
        return s;
}

size_t rankset_to_bytes(const struct rankset *s, uint8_t bytes[MAX_WORLD / 8]) {
        size_t n = SET_BYTES;
        while (n > 0 && !s->words[n / 8 - 1])
                n -= 8;
        for (size_t i = 0; i < n; i++)
                bytes[i] = (uint8_t)(s->words[i / 8] >> (i % 8 * 8));
        while (n > 0 && !bytes[n - 1])
                n--;
        return n;
}

bool rankset_from_bytes(const uint8_t *bytes, size_t n, struct rankset *ret) {
        for (size_t i = SET_BYTES; i < n; i++)
                if (bytes[i])
                        return false;
        struct rankset s = { { 0 } };
        for (size_t i = 0; i < n && i < SET_BYTES; i++)
                s.words[i / 8] |= (uint64_t)bytes[i] << (i % 8 * 8);
        *ret = s;
        return true;
}

/* The last rank of the run that begins with `first`. */
static int run_end(const struct rankset *s, int first) {
        int last = first;
        while (rankset_has(s, (unsigned int)last + 1))
                last++;
        return last;
}

void rankset_print(const struct rankset *s, struct text *t) {
        int rank = rankset_next(s, 0);
        if (rank < 0) {
                text_add(t, "nobody");
                return;
        }
        for (const char *gap = ""; rank >= 0; gap = " ") {
                int last = run_end(s, rank);
                if (last - rank < 3)
                        last = rank; /* one by one */
                if (last == rank)
                        text_add(t, "%sR%d", gap, rank);
                else
                        text_add(t, "%sR%d-R%d", gap, rank, last);
                rank = rankset_next(s, last + 1);
        }
}
