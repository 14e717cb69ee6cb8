#include "lib/recall.h"

#include <string.h>
#include "lib/half.h"
#include "lib/region.h"

/* The only entry, where all of it is of this version; NULL: it is not for us. */
static const struct tutti_entry *entry_of(const struct half *h) {
        const struct tutti_entry *e = h->entries;
        if (h->n_entries != 1 || !e || h->options || h->axes.n || h->tag || h->refused != STATUS_OK ||
                h->stride_bytes != sizeof(*e) || e->struct_size != sizeof(*e) ||
                (e->input && e->input->struct_size != sizeof(*e->input)) ||
                (e->output && e->output->struct_size != sizeof(*e->output)))
                return NULL;
        return e;
}

static uint64_t mix(uint64_t sum, uint64_t more) {
        return (sum ^ more) * UINT64_C(0x9e3779b97f4a7c15);
}

static struct recalled *place_of(const struct half *h, const struct tutti_entry *e) {
        uint64_t sum = mix(h->g->membership, h->kind);
        if (e->input)
                sum = mix(mix(sum, (uintptr_t)e->input->buffer), e->input->offset);
        if (e->output)
                sum = mix(mix(sum, (uintptr_t)e->output->buffer ^ (uintptr_t)e->output->object),
                        e->output->offset);
        return &h->g->t->calls.items[sum >> 32 & (MAX_RECALLED - 1)];
}

/* Bytes between the fields count as well: they can make equal values different, never different ones equal.
 */
static bool is_value(bool has, const struct tutti_value *known, const struct tutti_value *given) {
        /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): as said */
        return has == (given != NULL) && (!given || memcmp(known, given, sizeof(*known)) == 0);
}

static bool is_same(const struct recalled *r, const struct half *h, const struct tutti_entry *e) {
        return r->group == h->g && r->membership == h->g->membership && r->kind == h->kind &&
               r->op == h->op && r->root == h->root && is_value(r->has_input, &r->input, e->input) &&
               is_value(r->has_output, &r->output, e->output) &&
               memcmp(&r->destinations, &e->destinations, sizeof(r->destinations)) == 0;
}

static bool use(struct tutti_work *w, const struct tutti_value *v) {
        if (v && v->object)
                work_uses_object(w, v->object);
        return !v || !v->buffer || work_uses(w, v->buffer);
}

bool recall(struct half *h, struct half_options *ret_options, struct entry *ret_only, struct sip *ret_print) {
        struct tutti *t = h->g->t;
        const struct tutti_entry *e = entry_of(h);
        if (!e)
                return false;
        pthread_mutex_lock(&t->lock);
        const struct recalled *r = place_of(h, e);
        bool is_known = is_same(r, h, e);
        if (is_known) {
                *ret_options = r->options;
                *ret_only = r->entry;
                *ret_print = r->print;
        }
        pthread_mutex_unlock(&t->lock);
        if (!is_known || !use(h->work, e->input) || !use(h->work, e->output))
                return false;
        h->is_checked = true;
        return true;
}

/* --- noting --- */

static bool is_plain(const struct tutti_value *v) {
        return !v || (!v->memory && !v->indices && (!v->buffer || !device_of(v->buffer)));
}

void recall_note(const struct half *h, const struct half_options *options, const struct entry *only,
        const struct sip *print) {
        struct tutti *t = h->g->t;
        const struct tutti_entry *e = entry_of(h);
        if (!e || kind_has_axis(h->kind) || h->has_checksums || options->has_stream || !is_plain(e->input) ||
                !is_plain(e->output) || e->destinations.device)
                return;
        pthread_mutex_lock(&t->lock);
        struct recalled *r = place_of(h, e);
        *r = (struct recalled){ .group = h->g,
                .membership = h->g->membership,
                .kind = h->kind,
                .op = h->op,
                .root = h->root,
                .has_input = e->input != NULL,
                .has_output = e->output != NULL,
                .options = *options,
                .entry = *only,
                .print = *print };
        if (e->input)
                memcpy(&r->input, e->input, sizeof(r->input));
        if (e->output)
                memcpy(&r->output, e->output, sizeof(r->output));
        memcpy(&r->destinations, &e->destinations, sizeof(r->destinations));
        pthread_mutex_unlock(&t->lock);
}

void recall_forget_all(struct tutti *t) {
        memset(&t->calls, 0, sizeof(t->calls));
}

void recall_forget(struct tutti *t, const struct tutti_buffer *b, const struct tutti_object *o) {
        for (size_t i = 0; i < MAX_RECALLED; i++) {
                struct recalled *r = &t->calls.items[i];
                if ((b && (r->input.buffer == b || r->output.buffer == b)) ||
                        (o && (r->input.object == o || r->output.object == o)))
                        r->membership = 0;
        }
}
