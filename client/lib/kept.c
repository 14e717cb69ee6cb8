/* What a work keeps of its half, where tuttid may be left and found again, and what is noted of its end. */
#include <stdlib.h>
#include <string.h>
#include "lib/failure.h"
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

/* --- failures, by key --- */

/* Uses that were none: the key is as it was, or the epoch is over. */
static bool counts(enum status status) {
        static const enum status none[] = { STATUS_OK, STATUS_ALREADY_PENDING, STATUS_NOT_FOUND, STATUS_LEFT,
                STATUS_DAEMON_LOST, STATUS_DRAINING };
        for (size_t i = 0; i < ARRAY_SIZE(none); i++)
                if (status == none[i])
                        return false;
        return true;
}

static struct key_failures *failures_find(struct tutti_group *g, const struct key *key) {
        for (uint32_t i = 0; i < g->n_failed; i++)
                if (key_is_equal(&g->failed[i].key, key))
                        return &g->failed[i];
        return NULL;
}

/* Where there are too many, the oldest number without a name goes: nobody uses it twice. */
static struct key_failures *failures_add(struct tutti_group *g, const struct key *key) {
        uint32_t at = 0;
        if (!g->failed)
                g->failed = calloc(MAX_KEY_FAILURES, sizeof(*g->failed));
        if (!g->failed)
                return NULL;
        if (g->n_failed == MAX_KEY_FAILURES) {
                while (at < MAX_KEY_FAILURES && g->failed[at].key.n_bytes > 0)
                        at++;
                if (at == MAX_KEY_FAILURES)
                        return NULL;
                memmove(&g->failed[at], &g->failed[at + 1], (MAX_KEY_FAILURES - at - 1) * sizeof(*g->failed));
                g->n_failed--;
        }
        g->failed[g->n_failed] = (struct key_failures){ .key = *key };
        return &g->failed[g->n_failed++];
}

/* A debt is remembered as what it was owed for. */
static void note_failure(struct tutti_group *g, const struct kept *k, const struct call *call) {
        enum status status = call->status;
        if (!counts(status) || k->submit.epoch != g->epoch)
                return;
        if (status == STATUS_EXPIRED && call->failure && call->failure->error.cause != STATUS_OK)
                status = call->failure->error.cause;
        struct key_failures *f = failures_find(g, &k->submit.key);
        if (!f)
                f = failures_add(g, &k->submit.key);
        if (!f) {
                g->is_forgetful = true;
                return;
        }
        f->n++;
        f->status = status;
}

static void intersect(struct rankset *a, const struct rankset *b) {
        struct rankset rest = rankset_minus(a, b);
        *a = rankset_minus(a, &rest);
}

static void note_done(struct tutti_group *g, const struct msg_done *done, uint64_t epoch) {
        if (epoch != g->epoch)
                return;
        if (done->collective > g->last_number)
                g->last_number = done->collective;
        intersect(&g->members, &done->contributors);
}

void kept_stop_parts(struct tutti *t, const struct tutti_work *w) {
        if (!t->reconnect || t->reconnect->sending != &w->call)
                return;
        t->reconnect->sending = NULL;
        t->reconnect->n_sent = 0;
}

void kept_note_end(struct tutti_work *w) {
        struct kept *k = &w->kept;
        struct tutti_group *g = k->group;
        if (!g)
                return;
        const struct failure *f = w->call.failure;
        if (w->call.status == STATUS_OK)
                note_done(g, &w->done, k->submit.epoch);
        note_failure(g, k, &w->call);
        if (w->call.status == STATUS_REPLICA_LOST && f && f->error.rank >= 0 && f->error.rank < MAX_WORLD &&
                f->error.loss != LOSS_UNSPECIFIED && f->error.loss != LOSS_WENT)
                rankset_add(&g->lost_members, (unsigned int)f->error.rank);
        k->group = NULL;
        kept_stop_parts(g->t, w);
}
