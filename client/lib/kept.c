/* What a work keeps of its half, where tuttid may be left and found again. */
#include <stdlib.h>
#include <string.h>
#include "lib/group.h"
#include "lib/half.h"
#include "lib/reconnect.h"
#include "lib/region.h"
#include "lib/staging.h"
#include "lib/work.h"

static bool is_apart(const struct half *h, const struct entry *e) {
        if (e->input.buffer != e->output.buffer) /* two of ours are never the same memory */
                return region_is_ours(h->g->t, e->input.buffer) || region_is_ours(h->g->t, e->output.buffer);
        return e->input.offset_bytes != e->output.offset_bytes;
}

/* Whether its input is there still when its output has been written. Plain memory is: it is copied again. */
static bool entry_is_kept(const struct half *h, const struct entry *e, uint32_t i) {
        if (e->input.buffer == 0 || (e->output.buffer == 0 && e->destination != DESTINATION_SAME))
                return true;
        if (staging_find(&h->work->staging, i, STAGED_INPUT))
                return true;
        return e->destination != DESTINATION_SAME && is_apart(h, e);
}

static bool kept_make_room(struct kept *k, uint32_t n) {
        if (n <= k->capacity)
                return true;
        struct entry *entries = realloc(k->entries, n * sizeof(*entries));
        if (!entries)
                return false;
        k->entries = entries;
        k->capacity = n;
        return true;
}

bool kept_take(struct kept *k, const struct half *h, const struct msg_submit *submit) {
        const uint32_t n = submit->signature.n_entries;
        if (!kept_make_room(k, n))
                return false;
        k->submit = *submit;
        k->submit.entries = NULL;
        k->submit.refused_detail = NULL;
        k->group = h->g;
        atomic_store(&h->g->busy_until_ns, 0); /* it ends with a submission (P6) */
        k->state = PAGE_FREE;
        k->collective = 0;
        k->is_repeatable = true;
        for (uint32_t i = 0; i < n; i++) {
                memset(&k->entries[i], 0, sizeof(*k->entries));
                half_entry(h, i, &k->entries[i]);
                k->is_repeatable &= entry_is_kept(h, &k->entries[i], i);
        }
        return true;
}

void kept_deinit(struct kept *k) {
        free(k->entries);
        k->entries = NULL;
        k->capacity = 0;
        k->group = NULL;
}
