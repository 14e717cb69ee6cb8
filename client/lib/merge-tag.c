/* What is said and counted of the values of a merge_call. */
#include "lib/merge.h"

#include <string.h>

static struct entry entry_of(const struct tutti_value *v) {
        struct entry e = { .dtype = (unsigned int)v->dtype < N_DTYPE ? (enum dtype)v->dtype
                                                                     : DTYPE_UNSPECIFIED,
                .n_dims = v->n_dims };
        memcpy(e.shape, v->shape, sizeof(e.shape));
        return e;
}

uint64_t merge_part_bytes(const struct tutti_value *v) {
        const struct entry e = entry_of(v);
        return entry_part_bytes(&e);
}

uint64_t merge_value_bytes(const struct tutti_value *v) {
        const struct entry e = entry_of(v);
        uint64_t n;
        if (!entry_count(&e, &n) || __builtin_mul_overflow(n, dtype_bytes(e.dtype), &n))
                return UINT64_MAX;
        return n;
}

/* FNV-1a: two calls that differ only behind the cut are told apart by accident only, not by an adversary. */
static uint64_t hash_more(uint64_t hash, const char *text) {
        for (; *text; text++)
                hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
        return hash;
}

void merge_tag(
        const char *tag, const struct tutti_value *outputs, uint32_t n_outputs, char ret[MAX_TAG_BYTES + 1]) {
        const size_t kept = MAX_TAG_BYTES + 1 - sizeof(" ... #0123456789abcdef");
        uint64_t hash = hash_more(UINT64_C(0xcbf29ce484222325), tag);
        struct text t;
        text_init(&t, ret, MAX_TAG_BYTES + 1);
        text_add(&t, "%.*s%s", (int)kept, tag, tag[0] ? " ->" : "->");
        for (uint32_t i = 0; i < n_outputs; i++) {
                char one[256];
                const struct entry e = entry_of(&outputs[i]);
                struct text o;
                text_init(&o, one, sizeof(one));
                text_add(&o, " ");
                entry_print(&e, &o);
                hash = hash_more(hash, one);
                if (t.used <= kept)
                        text_add(&t, "%s", one);
        }
        if (strlen(tag) <= kept && t.used <= kept)
                return;
        text_init(&t, ret + kept, MAX_TAG_BYTES + 1 - kept);
        text_add(&t, " ... #%016llx", (unsigned long long)hash);
}
