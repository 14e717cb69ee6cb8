/* Are the halves equal? Then the meeting is sealed; else everybody hears in what they differ. */
#include "rendezvous-internal.h"

#include <string.h>

/* What belongs to the whole half is told before what belongs to one entry. */
static bool is_before(const struct difference *a, const struct difference *b) {
        if (b->field == FIELD_UNSPECIFIED)
                return true;
        if (a->entry != b->entry)
                return a->entry < b->entry;
        return a->field < b->field;
}

/* --- each half as it comes --- */

/* Up to the next mark. */
static uint32_t digest_some(struct half *half, uint32_t first, uint32_t n) {
        uint32_t left = MARK_ENTRIES - first % MARK_ENTRIES;
        if (n > left)
                n = left;
        entries_digest(&half->signature, half->entries + first, n, &half->digest);
        if (n == left || first + n == half->signature.n_entries)
                half->marks[first / MARK_ENTRIES] = sip_mark(&half->digest);
        return n;
}

void rendezvous_half_look(const struct rendezvous *r, struct half *half, uint32_t n) {
        uint32_t n_entries = half->signature.n_entries, n_left = n_entries - half->n_seen;
        const struct entry *entries = half->entries + half->n_seen;
        if (n > n_left)
                n = n_left;
        if (n_entries > DIGEST_ENTRIES) {
                if (half->n_seen == 0)
                        sip_begin(&half->digest, r->settings.hash_seed);
                for (uint32_t i = 0; i < n;)
                        i += digest_some(half, half->n_seen + i, n - i);
        }
        if (__builtin_add_overflow(half->n_bytes, entries_bytes(entries, n), &half->n_bytes))
                half->n_bytes = UINT64_MAX;
        half->n_seen += n;
}

static bool have_digests(const struct half *a, const struct half *b) {
        return a->signature.n_entries > DIGEST_ENTRIES && a->signature.n_entries == b->signature.n_entries;
}

static bool half_differs(const struct meeting *m, const struct half *half) {
        const struct half *reference = m->reference;
        int32_t entry;
        if (!reference)
                return m->n_halves > 1;
        if (have_digests(reference, half))
                return signature_compare_heads(&reference->signature, &half->signature) !=
                               FIELD_UNSPECIFIED ||
                       !sip_is_equal(&reference->digest, &half->digest);
        return signature_compare(&reference->signature, reference->entries, &half->signature, half->entries,
                       &entry) != FIELD_UNSPECIFIED;
}

/* From which entry on the marks of two halves with digests differ. */
static uint32_t differ_from(const struct half *a, const struct half *b) {
        uint32_t first = 0;
        while (first < a->signature.n_entries &&
                a->marks[first / MARK_ENTRIES] == b->marks[first / MARK_ENTRIES])
                first += MARK_ENTRIES;
        return first;
}

/* The first difference among `n` entries from `first` on, if the halves as a whole are alike. */
static struct difference entries_differ(
        const struct half *a, const struct half *b, uint32_t first, uint32_t n) {
        struct difference d = { .entry = -1 };
        struct signature x = a->signature, y = b->signature;
        if (n < x.n_entries)
                x.n_entries = y.n_entries = n;
        d.field = signature_compare(&x, a->entries + first, &y, b->entries + first, &d.entry);
        if (d.entry >= 0)
                d.entry += (int32_t)first;
        return d;
}

/* In what two halves differ first. Of many entries only those before the first mark that differs are looked
 * at; unless marks are equal by chance. */
static struct difference halves_differ(const struct half *a, const struct half *b) {
        struct difference d = { .entry = -1 };
        uint32_t n_entries = a->signature.n_entries;
        if (have_digests(a, b)) {
                bool is_same_head =
                        signature_compare_heads(&a->signature, &b->signature) == FIELD_UNSPECIFIED;
                if (is_same_head && sip_is_equal(&a->digest, &b->digest))
                        return d;
                uint32_t first = is_same_head ? differ_from(a, b) : n_entries;
                uint32_t left = n_entries - (first < n_entries ? first : n_entries);
                if (left > 0)
                        d = entries_differ(a, b, first, left < MARK_ENTRIES ? left : MARK_ENTRIES);
                if (d.field != FIELD_UNSPECIFIED)
                        return d;
        }
        return entries_differ(a, b, 0, n_entries);
}

void meeting_compare(struct meeting *m, struct half *half) {
        half->differs = half_differs(m, half);
        m->n_differing += half->differs;
        if (!half->differs && !m->reference)
                m->reference = half;
}

void meeting_uncompare(struct meeting *m, const struct half *half) {
        m->n_differing -= half->differs;
        if (m->reference != half)
                return;
        m->reference = NULL;
        rankset_for_each (rank, &m->have) {
                if (m->halves[rank] == half || m->halves[rank]->differs)
                        continue;
                m->reference = m->halves[rank];
                return;
        }
}

/* --- all that are there --- */

struct difference meeting_difference(const struct meeting *m) {
        struct difference first = { .entry = -1 };
        const struct half *reference = NULL;
        if (m->n_differing == 0)
                return first;
        rankset_for_each (rank, &m->have) {
                const struct half *half = m->halves[rank];
                if (!reference)
                        reference = half;
                if (half->differs == reference->differs && !half->differs)
                        continue; /* both are equal to the meeting's reference */
                struct difference d = halves_differ(reference, half);
                if (d.field != FIELD_UNSPECIFIED && is_before(&d, &first))
                        first = d;
        }
        return first;
}

/* --- who says what --- */

static struct error_class *class_find(struct error *err, const char *value) {
        for (uint32_t i = 0; i < err->n_classes; i++)
                if (strcmp(err->classes[i].value, value) == 0)
                        return &err->classes[i];
        return NULL;
}

/* The class of this value; the last one takes in all that have no room of their own. */
static struct error_class *class_get(struct error *err, const char *value) {
        struct error_class *class = class_find(err, value);
        if (class)
                return class;
        if (err->n_classes < MAX_ERROR_CLASSES) {
                class = &err->classes[err->n_classes++];
                text_copy(class->value, sizeof(class->value), value);
                return class;
        }
        class = &err->classes[MAX_ERROR_CLASSES - 1];
        text_copy(class->value, sizeof(class->value), "other values");
        return class;
}

void meeting_print_difference(const struct meeting *m, const struct difference *d, struct error *err) {
        err->field = d->field;
        err->entry = d->entry;
        rankset_for_each (rank, &m->have) {
                const struct half *half = m->halves[rank];
                char value[sizeof(err->classes[0].value)];
                struct text t;
                text_init(&t, value, sizeof(value));
                signature_print_field(&half->signature, half->entries, d->field, d->entry, &t);
                rankset_add(&class_get(err, value)->ranks, (unsigned int)rank);
        }
}

/* --- the last half is in --- */

static uint32_t divisor(const struct meeting *m) {
        const struct group *g = m->group;
        return g->on_leave == ON_LEAVE_ZERO_FILL ? g->world_size : m->n_halves;
}

static void seal(struct rendezvous *r, struct meeting *m, uint64_t now_ns, struct outcome *out) {
        clocks_set(&r->clocks, m->group->uid, ALARM_DEADLINE, &m->deadline, ALARM_NEVER);
        m->state = MEETING_SEALED;
        m->number = m->group->next_number++;
        m->sealed_ns = now_ns;
        m->divisor = divisor(m);
        outcome_put(&out->sealed, &m->outcome_link);
        stall_check(r, circle_of(m->group), now_ns);
}

void meeting_settle(struct rendezvous *r, struct meeting *m, uint64_t now_ns, struct outcome *out) {
        struct circle *c = circle_of(m->group);
        if (m->n_halves < c->n_alive)
                return;
        struct difference d = meeting_difference(m);
        if (d.field == FIELD_UNSPECIFIED) {
                seal(r, m, now_ns, out);
                return;
        }
        meeting_end(r, m,
                &(struct reason){ .status = STATUS_MISMATCH,
                        .field = d.field,
                        .entry = d.entry,
                        .rank = -1,
                        .age_ns = now_ns - m->first_ns },
                now_ns, out);
}
