/* Slots, as a collective and people see them. */
#include "result-internal.h"

#include "base/text.h"

void result_hear(struct result *r) {
        for (uint32_t i = 0; i < r->world_size; i++)
                if (r->attached[i])
                        slots_hear(&r->slots, &r->attached[i]->user);
}

bool result_take_slot(struct result *r, uint32_t *ret_slot) {
        result_hear(r);
        return slots_take(&r->slots, ret_slot);
}

void result_end_slot(struct result *r, uint32_t slot, uint64_t now_ns) {
        slots_end(&r->slots, slot, now_ns);
}

void result_hold(struct result *r, uint32_t slot, const struct result_user *user) {
        if (result_is_attached(r, user))
                rankset_add(&r->slots.all[slot].holders, user->rank);
}

uint64_t result_slot_offset(const struct result *r, uint32_t slot) {
        return r->slots.stride_bytes * slot;
}

uint64_t result_id(const struct result *r) {
        return r->id;
}

uint32_t result_device(const struct result *r) {
        return r->device;
}

/* --- who holds what --- */

static void say_slot(const struct slot *s, uint32_t slot, uint64_t now_ns, struct text *t) {
        if (s->is_running) {
                text_add(t, "slot %u is being written", slot);
                return;
        }
        text_add(t, "slot %u is held by ", slot);
        rankset_print(&s->holders, t);
        text_add(t, " for ");
        text_add_duration(t, slot_age_ns(s, now_ns));
}

enum status result_say_busy(
        const struct result *r, uint64_t now_ns, struct rankset *ret_holders, struct error *err) {
        char buf[sizeof(err->detail)];
        struct text t;
        struct rankset holders = { { 0 } };
        text_init(&t, buf, sizeof(buf));
        for (uint32_t i = 0; i < r->slots.n; i++) {
                const struct slot *s = &r->slots.all[i];
                text_add(&t, "%s", i ? ", " : "");
                say_slot(s, i, now_ns, &t);
                if (s->is_running)
                        continue;
                rankset_for_each (rank, &s->holders)
                        rankset_add(&holders, (unsigned int)rank);
                if (slot_age_ns(s, now_ns) > err->age_ns)
                        err->age_ns = slot_age_ns(s, now_ns);
        }
        *ret_holders = holders;
        return error_set(err, STATUS_BUSY, FIELD_DESTINATIONS,
                "no slot of the result object \"%s\" is free: %s", r->name, buf);
}

static struct row_holder holder_of(const struct result *r, uint32_t rank, uint64_t now_ns) {
        struct row_holder h = { .rank = rank };
        for (uint32_t i = 0; i < r->slots.n; i++) {
                const struct slot *s = &r->slots.all[i];
                if (s->is_running || !rankset_has(&s->holders, rank))
                        continue;
                h.n_slots++;
                if (slot_age_ns(s, now_ns) > h.oldest_age_ns)
                        h.oldest_age_ns = slot_age_ns(s, now_ns);
        }
        return h;
}

static bool holds_longer(const struct row_holder *a, const struct row_holder *b) {
        if (a->oldest_age_ns != b->oldest_age_ns)
                return a->oldest_age_ns > b->oldest_age_ns;
        return a->n_slots > b->n_slots;
}

/* Keeps the list in order, and drops who falls out of it. */
static void insert_holder(struct row_holder *holders, uint32_t *n, struct row_holder h) {
        uint32_t at = *n;
        while (at > 0 && holds_longer(&h, &holders[at - 1]))
                at--;
        if (at == MAX_ROW_HOLDERS)
                return;
        if (*n < MAX_ROW_HOLDERS)
                (*n)++;
        for (uint32_t i = *n - 1; i > at; i--)
                holders[i] = holders[i - 1];
        holders[at] = h;
}

void result_fill_row(struct result *r, uint64_t now_ns, struct row_result *ret, struct row_holder *holders) {
        result_hear(r);
        *ret = (struct row_result){ .name = r->name,
                .size_bytes = r->slot_bytes,
                .n_slots = r->slots.n,
                .n_attached = r->n_attached,
                .holders = holders };
        for (uint32_t i = 0; i < r->slots.n; i++)
                ret->n_free += slot_is_free(&r->slots.all[i]);
        for (uint32_t rank = 0; rank < r->world_size; rank++) {
                const struct row_holder h = holder_of(r, rank, now_ns);
                if (h.n_slots > 0)
                        insert_holder(holders, &ret->n_holders, h);
        }
}
