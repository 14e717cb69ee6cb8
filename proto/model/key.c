#include "model/key.h"

#include <inttypes.h>
#include <string.h>

bool key_name(struct key *ret, const char *bytes, size_t n_bytes) {
        if (n_bytes < 1 || n_bytes > MAX_KEY_BYTES)
                return false;
        ret->sequence = 0;
        ret->n_bytes = (uint8_t)n_bytes;
        memcpy(ret->bytes, bytes, n_bytes);
        return true;
}

bool key_is_equal(const struct key *a, const struct key *b) {
        if (a->n_bytes != b->n_bytes)
                return false;
        if (a->n_bytes == 0)
                return a->sequence == b->sequence;
        return memcmp(a->bytes, b->bytes, a->n_bytes) == 0;
}

void key_print(const struct key *k, struct text *t) {
        if (k->n_bytes == 0)
                text_add(t, "#%" PRIu64, k->sequence);
        else
                text_add_quoted(t, k->bytes, k->n_bytes);
}
