#include "fallbacks.h"

#include <string.h>
#include "base/text.h"

static bool is_of(const struct fallback *f, const struct fallback_run *run) {
        return strcmp(f->why, run->why) == 0 && strcmp(f->algorithm, run->algorithm) == 0;
}

static uint32_t place_of(const struct fallbacks *f, const struct fallback_run *run) {
        uint32_t n = f->n < MAX_FALLBACKS ? f->n : MAX_FALLBACKS;
        for (uint32_t i = 0; i < n; i++)
                if (is_of(&f->all[i], run))
                        return i;
        return n;
}

static void begin(struct fallbacks *f, uint32_t place, const struct fallback_run *run) {
        struct fallback *at = &f->all[place];
        bool is_own = place < MAX_FALLBACKS;
        *at = (struct fallback){ .algorithm = is_own ? run->algorithm : "" };
        if (is_own)
                text_copy(at->why, sizeof(at->why), run->why);
        f->n = place + 1;
}

bool fallbacks_add(struct fallbacks *f, const struct fallback_run *run) {
        uint32_t place = place_of(f, run);
        bool is_first = place >= f->n;
        if (is_first)
                begin(f, place, run);
        struct fallback *at = &f->all[place];
        at->n++;
        at->last_ns = run->done_ns;
        at->kind = run->kind;
        at->key = *run->key;
        return is_first;
}
