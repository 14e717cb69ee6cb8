/* Halves that name an object: whether they may, and how long it stays for them. */
#include "result-internal.h"

/* Where `user` is attached and sees the object; NULL: nowhere. */
static struct attachment *attachment_of(const struct result *r, const struct result_user *user) {
        struct attachment *a = user->rank < r->world_size ? r->attached[user->rank] : NULL;
        return a && a->session == user->session && a->membership == user->membership ? a : NULL;
}

bool result_is_attached(const struct result *r, const struct result_user *user) {
        return attachment_of(r, user) != NULL;
}

struct slots *result_slots(struct result *r) {
        return &r->slots;
}

struct slot_user *result_slot_user(struct result *r, const struct result_user *user) {
        struct attachment *a = attachment_of(r, user);
        return a && a->user.word ? &a->user : NULL;
}

static enum status refuse_outside(const struct result *r, const struct place *place, uint64_t count,
        uint64_t element_bytes, struct error *err) {
        return error_set(err, STATUS_INVALID, FIELD_SIZE,
                "%llu elements of %llu bytes from offset %llu on do not fit into a slot of the result object "
                "\"%s\", of %llu bytes",
                (unsigned long long)count, (unsigned long long)element_bytes,
                (unsigned long long)place->offset_bytes, r->name, (unsigned long long)r->slot_bytes);
}

enum status result_use(struct results *rs, const struct result_user *user, struct place *place,
        uint64_t count, uint64_t element_bytes, struct error *err) {
        struct result *r = result_find(rs, place->result);
        if (!r || !result_is_attached(r, user) || r->state != RESULT_READY)
                return result_refuse_unknown(place->result, err);
        if (place->offset_bytes % element_bytes != 0)
                return error_set(err, STATUS_INVALID, FIELD_OFFSET,
                        "offset %llu is not a multiple of the element's %llu bytes",
                        (unsigned long long)place->offset_bytes, (unsigned long long)element_bytes);
        if (!span_make(place->offset_bytes, count, element_bytes, r->slot_bytes, &place->span))
                return refuse_outside(r, place, count, element_bytes, err);
        place->object = r;
        place->memory = r->chore.memory;
        place->file = UINT64_MAX - r->id; /* like no client's file: theirs are inodes */
        r->n_uses++;
        return STATUS_OK;
}

void result_end_use(struct results *rs, struct place *place, struct list *chores) {
        struct result *r = place->object;
        if (!r)
                return;
        place->object = NULL;
        place->memory = NULL;
        r->n_uses--;
        result_go_if_done(rs, r, chores);
}
