/* Which keys are meant by one that is none: by how many letters they differ. */
#include <string.h>
#include "config-internal.h"

static unsigned int min3(unsigned int a, unsigned int b, unsigned int c) {
        unsigned int ab = a < b ? a : b;
        return ab < c ? ab : c;
}

/* Levenshtein's distance; at most MAX_KEY_TEXT bytes of each are looked at. */
static unsigned int distance(const char *a, const char *b) {
        unsigned int row[MAX_KEY_TEXT + 1];
        size_t n = strnlen(b, MAX_KEY_TEXT);
        for (unsigned int j = 0; j <= n; j++)
                row[j] = j;
        for (unsigned int i = 0; i < MAX_KEY_TEXT && a[i]; i++) {
                unsigned int corner = row[0];
                row[0] = i + 1;
                for (size_t j = 0; j < n; j++) {
                        unsigned int change = corner + (a[i] != b[j]);
                        corner = row[j + 1];
                        row[j + 1] = min3(row[j] + 1, corner + 1, change);
                }
        }
        return row[n];
}

static const char *bare_name(const char *name) {
        const char *dot = strchr(name, '.');
        return dot ? dot + 1 : name;
}

/* A right name in the wrong section is nearly right. */
static unsigned int key_distance(const char *name, const char *known) {
        unsigned int whole = distance(name, known), bare = distance(bare_name(name), bare_name(known)) + 1;
        return whole < bare ? whole : bare;
}

size_t config_near_keys(const char *name, unsigned int far, const struct config_key *ret[MAX_NEAR_KEYS]) {
        size_t n_bytes = strlen(name), n = 0;
        unsigned int limit = n_bytes < far ? (unsigned int)n_bytes : far, best = limit;
        const struct config_key *k;
        for (size_t i = 0; (k = config_key_at(i)); i++) {
                unsigned int d = key_distance(name, k->name);
                best = d < best ? d : best;
        }
        for (size_t i = 0; best < limit && (k = config_key_at(i)) && n < MAX_NEAR_KEYS; i++)
                if (key_distance(name, k->name) <= best + 1)
                        ret[n++] = k;
        return n;
}
