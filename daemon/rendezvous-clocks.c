#include "rendezvous-clocks.h"

#include <stddef.h>
#include "base/check.h"
#include "base/list.h"

int clocks_init(struct clocks *c) {
        *c = (struct clocks){ 0 };
        heap_init(&c->first);
        for (uint32_t i = 0; i < N_CLOCKS; i++)
                alarm_init(&c->shares[i].first);
        return heap_reserve(&c->first, N_CLOCKS);
}

void clocks_deinit(struct clocks *c) {
        for (uint32_t i = 0; i < N_CLOCKS; i++)
                for (int kind = 0; kind < N_ALARM_KINDS; kind++) {
                        CHECK(c->shares[i].n[kind] == 0);
                        heap_deinit(&c->shares[i].alarms[kind]);
                }
        heap_deinit(&c->first);
}

static struct clock *clock_of(struct clocks *c, uint32_t uid) {
        return &c->shares[uid % N_CLOCKS];
}

bool clocks_reserve(struct clocks *c, uint32_t uid, enum alarm_kind kind) {
        struct clock *share = clock_of(c, uid);
        return heap_reserve(&share->alarms[kind], share->n[kind] + 1) == 0;
}

void clocks_enter(struct clocks *c, uint32_t uid, enum alarm_kind kind) {
        clock_of(c, uid)->n[kind]++;
}

void clocks_leave(struct clocks *c, uint32_t uid, enum alarm_kind kind) {
        CHECK(clock_of(c, uid)->n[kind] > 0);
        clock_of(c, uid)->n[kind]--;
}

/* Of all kinds, the one that is due first. */
static enum alarm_kind first_kind(const struct clock *share) {
        int first = 0;
        for (int kind = 1; kind < N_ALARM_KINDS; kind++)
                if (heap_next_ns(&share->alarms[kind]) < heap_next_ns(&share->alarms[first]))
                        first = kind;
        return (enum alarm_kind)first;
}

void clocks_set(struct clocks *c, uint32_t uid, enum alarm_kind kind, struct alarm *alarm, uint64_t at_ns) {
        struct clock *share = clock_of(c, uid);
        uint64_t was_ns = alarm->at_ns, first_ns = share->first.at_ns;
        if (was_ns == at_ns)
                return;
        heap_set(&share->alarms[kind], alarm, at_ns);
        if (at_ns < first_ns)
                heap_set(&c->first, &share->first, at_ns);
        else if (was_ns == first_ns)
                heap_set(&c->first, &share->first, heap_next_ns(&share->alarms[first_kind(share)]));
}

uint64_t clocks_next_ns(const struct clocks *c) {
        return heap_next_ns(&c->first);
}

struct alarm *clocks_next_due(struct clocks *c, uint64_t now_ns, enum alarm_kind *ret_kind) {
        if (clocks_next_ns(c) > now_ns)
                return NULL;
        while (c->shares[c->turn].first.at_ns > now_ns)
                c->turn = (c->turn + 1) % N_CLOCKS;
        struct clock *share = &c->shares[c->turn];
        c->turn = (c->turn + 1) % N_CLOCKS;
        *ret_kind = first_kind(share);
        return share->alarms[*ret_kind].slots[0];
}
