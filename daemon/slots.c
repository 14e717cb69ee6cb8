#include "slots.h"

#include <stdatomic.h>

bool slot_is_free(const struct slot *s) {
        return !s->is_running && rankset_is_empty(&s->holders);
}

uint64_t slot_age_ns(const struct slot *s, uint64_t now_ns) {
        return now_ns > s->held_since_ns ? now_ns - s->held_since_ns : 0;
}

bool slots_take(struct slots *s, uint32_t *ret) {
        for (uint32_t i = 0; i < s->n; i++) {
                uint32_t slot = (s->next + i) % s->n;
                if (!slot_is_free(&s->all[slot]))
                        continue;
                s->all[slot].is_running = true;
                s->next = (slot + 1) % s->n;
                *ret = slot;
                return true;
        }
        return false;
}

void slots_end(struct slots *s, uint32_t slot, uint64_t now_ns) {
        s->all[slot].is_running = false;
        s->all[slot].held_since_ns = now_ns;
}

void slots_void(struct slots *s, uint32_t slot, uint64_t now_ns) {
        s->all[slot].holders = (struct rankset){ 0 };
        slots_end(s, slot, now_ns);
}

bool slots_drop(struct slots *s, uint32_t slot, uint32_t rank) {
        if (slot >= s->n || !rankset_has(&s->all[slot].holders, rank))
                return false;
        rankset_remove(&s->all[slot].holders, rank);
        return true;
}

void slots_drop_all(struct slots *s, uint32_t rank) {
        for (uint32_t i = 0; i < s->n; i++)
                rankset_remove(&s->all[i].holders, rank);
}

/* What was turned twice between two looks was given back once too often: its own loss. */
void slots_hear(struct slots *s, struct slot_user *user) {
        if (!user->word)
                return;
        uint64_t word = atomic_load_explicit(user->word, memory_order_acquire);
        for (uint64_t turned = word ^ user->heard; turned; turned &= turned - 1)
                (void)slots_drop(s, (uint32_t)__builtin_ctzll(turned), user->rank);
        user->heard = word;
}
