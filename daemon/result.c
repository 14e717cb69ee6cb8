/* Objects stand in one table by id and on the shelf of their group, where names are looked for one by one:
 * groups have few, and a name is looked for once. Attachments hang on the object by rank and on their
 * session's guest. An object goes when the last reason for it has gone; its chore is embedded, so letting go
 * never needs memory. */
#include "result-internal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"

#define FIRST_RETRY_NS (10 * NS_PER_MS)
#define LAST_RETRY_NS  (60 * NS_PER_S)

/* The objects of one group. */
struct shelf {
        uint64_t group;
        struct list results;
        UT_hash_handle hh;
};

/* What one session is attached to. */
struct guest {
        uint64_t session;
        struct list attachments;
        UT_hash_handle hh;
};

struct results {
        struct quotas *quotas;
        struct result *by_id;
        struct shelf *shelves;
        struct guest *guests;
        struct list due; /* struct attachment */
        struct list lingering;
        uint64_t next_retry_ns;
        uint64_t next_id;
        uint32_t n; /* also those that are going */
};

int results_new(struct results **ret, struct quotas *quotas) {
        struct results *rs = calloc(1, sizeof(*rs));
        if (!rs)
                return -ENOMEM;
        rs->quotas = quotas;
        rs->next_id = 1;
        rs->next_retry_ns = UINT64_MAX;
        list_init(&rs->due);
        list_init(&rs->lingering);
        *ret = rs;
        return 0;
}

static enum status fail_memory(struct error *err) {
        return error_set(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid is short of memory");
}

/* --- shelves --- */

static struct shelf *shelf_find(const struct results *rs, uint64_t group) {
        struct shelf *s;
        HASH_FIND(hh, rs->shelves, &group, sizeof(group), s);
        return s;
}

static struct shelf *shelf_get(struct results *rs, uint64_t group) {
        struct shelf *s = shelf_find(rs, group);
        if (s || !(s = calloc(1, sizeof(*s))))
                return s;
        s->group = group;
        list_init(&s->results);
        bool is_in = true;
        TABLE_ADD(rs->shelves, s, group, is_in);
        if (is_in)
                return s;
        free(s);
        return NULL;
}

static void shelf_drop_if_empty(struct results *rs, struct shelf *s) {
        if (!list_is_empty(&s->results))
                return;
        HASH_DEL(rs->shelves, s);
        free(s);
}

static struct result *shelf_find_name(const struct shelf *s, const char *name) {
        list_for_each (it, &s->results) {
                struct result *r = list_entry(it, struct result, shelf_link);
                if (strcmp(r->name, name) == 0)
                        return r;
        }
        return NULL;
}

/* --- an object --- */

static void result_free(struct results *rs, struct result *r) {
        charge_release(&r->descriptor);
        charge_release(&r->bytes);
        free(r->attached);
        free(r->slots.all);
        free(r);
        rs->n--;
}

void results_free(struct results *rs) {
        struct list *it;
        if (!rs)
                return;
        while ((it = list_take_first(&rs->lingering))) {
                struct result *r = list_entry(it, struct result, linger_link);
                fd_close(&r->chore.fd);
                result_free(rs, r);
        }
        CHECK(rs->n == 0 && !rs->guests && !rs->shelves);
        free(rs);
}

/* Its name is free, its id names nothing any more. */
static void result_hide(struct results *rs, struct result *r) {
        if (!r->shelf)
                return;
        list_unlink(&r->shelf_link);
        shelf_drop_if_empty(rs, r->shelf);
        r->shelf = NULL;
        HASH_DEL(rs->by_id, r);
}

void result_go_if_done(struct results *rs, struct result *r, struct list *chores) {
        if (r->n_attached > 0 || r->n_uses > 0 || r->state == RESULT_MAKING)
                return;
        result_hide(rs, r);
        if (r->state == RESULT_FAILED) {
                result_free(rs, r);
                return;
        }
        r->chore.kind = CHORE_UNMAKE;
        list_append(chores, &r->chore.link);
}

static bool result_show(struct results *rs, struct result *r, uint64_t group) {
        struct shelf *s = shelf_get(rs, group);
        if (!s)
                return false;
        bool is_in = true;
        TABLE_ADD(rs->by_id, r, id, is_in);
        if (!is_in) {
                shelf_drop_if_empty(rs, s);
                return false;
        }
        r->shelf = s;
        list_append(&s->results, &r->shelf_link);
        return true;
}

static struct result *result_new(struct results *rs, const struct result *like) {
        struct result *r = calloc(1, sizeof(*r));
        if (!r)
                return NULL;
        *r = *like;
        rs->n++;
        r->id = rs->next_id++;
        r->chore.fd = r->chore.read_fd = -1;
        list_init(&r->chore.link);
        list_init(&r->shelf_link);
        list_init(&r->linger_link);
        r->attached = calloc(r->world_size, sizeof(*r->attached));
        r->slots.all = calloc(r->slots.n, sizeof(*r->slots.all));
        if (r->attached && r->slots.all)
                return r;
        result_free(rs, r);
        return NULL;
}

/* Charged, in sight, and being made. */
static enum status result_begin(struct results *rs, const struct result *like, const struct result_ask *ask,
        struct result **ret, struct error *err) {
        struct result *r = result_new(rs, like);
        if (!r)
                return fail_memory(err);
        r->chore.uid = ask->uid;
        r->chore.path = ask->gpu ? PATH_VMM_MADE : PATH_MEMFD;
        r->chore.device = r->device;
        r->chore.n_bytes = r->slots.stride_bytes * r->slots.n;
        enum status status = quota_charge(rs->quotas, &r->bytes, ask->uid, QUOTA_RESULT_BYTES,
                quota_whole_bytes(r->chore.n_bytes, ask->granularity), err);
        if (status == STATUS_OK)
                status = quota_charge(rs->quotas, &r->descriptor, ask->uid, QUOTA_DESCRIPTORS, 1, err);
        if (status == STATUS_OK && !result_show(rs, r, ask->group))
                status = fail_memory(err);
        if (status == STATUS_OK)
                *ret = r;
        else
                result_free(rs, r);
        return status;
}

/* --- attachments --- */

static struct guest *guest_find(const struct results *rs, uint64_t session) {
        struct guest *g;
        HASH_FIND(hh, rs->guests, &session, sizeof(session), g);
        return g;
}

static struct guest *guest_get(struct results *rs, uint64_t session) {
        struct guest *g = guest_find(rs, session);
        if (g || !(g = calloc(1, sizeof(*g))))
                return g;
        g->session = session;
        list_init(&g->attachments);
        bool is_in = true;
        TABLE_ADD(rs->guests, g, session, is_in);
        if (is_in)
                return g;
        free(g);
        return NULL;
}

static void guest_drop_if_empty(struct results *rs, struct guest *g) {
        if (!g || !list_is_empty(&g->attachments))
                return;
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): it loses its way in uthash */
        HASH_DEL(rs->guests, g);
        free(g);
}

static void attachment_end(struct results *rs, struct attachment *a, struct list *chores) {
        struct result *r = a->result;
        slots_drop_all(&r->slots, a->user.rank);
        r->attached[a->user.rank] = NULL;
        r->n_attached--;
        list_unlink(&a->due_link);
        list_unlink(&a->guest_link);
        guest_drop_if_empty(rs, guest_find(rs, a->session));
        charge_release(&a->descriptor);
        free(a);
        result_go_if_done(rs, r, chores);
}

static void attachment_is_due(struct results *rs, struct attachment *a) {
        a->is_waiting = false;
        list_append(&rs->due, &a->due_link);
}

/* What stood there before is no word of this one's. */
static void attachment_find_word(struct attachment *a, const _Atomic uint64_t *words) {
        a->user.word = words && a->word ? &words[a->word - 1] : NULL;
        a->user.heard = a->user.word ? atomic_load(a->user.word) : 0;
}

static enum status attachment_new(struct results *rs, struct result *r, const struct result_ask *ask,
        struct attachment **ret, struct error *err) {
        struct guest *g = guest_get(rs, ask->session);
        struct attachment *a = g ? calloc(1, sizeof(*a)) : NULL;
        if (!a) {
                guest_drop_if_empty(rs, g);
                return fail_memory(err);
        }
        enum status status = quota_charge(rs->quotas, &a->descriptor, ask->uid, QUOTA_DESCRIPTORS, 1, err);
        if (status != STATUS_OK) {
                guest_drop_if_empty(rs, g);
                free(a);
                return status;
        }
        a->result = r;
        a->session = ask->session;
        a->membership = ask->membership;
        a->request = ask->request;
        a->user.rank = ask->rank;
        a->word = ask->make->word;
        attachment_find_word(a, ask->words);
        list_init(&a->due_link);
        list_init(&a->guest_link);
        list_append(&g->attachments, &a->guest_link);
        r->attached[ask->rank] = a;
        r->n_attached++;
        *ret = a;
        return STATUS_OK;
}

static enum status attach_to(
        struct results *rs, struct result *r, const struct result_ask *ask, struct error *err) {
        struct attachment *a = NULL;
        CHECK(ask->rank < r->world_size);
        if (r->attached[ask->rank])
                return error_set(err, STATUS_INVALID, FIELD_KEY,
                        "R%u is attached to the result object \"%s\" already", ask->rank, r->name);
        enum status status = attachment_new(rs, r, ask, &a, err);
        if (status != STATUS_OK)
                return status;
        CHECK(a);
        if (r->state == RESULT_MAKING)
                a->is_waiting = true;
        else
                attachment_is_due(rs, a);
        return STATUS_OK;
}

enum status result_attach(
        struct results *rs, const struct result_ask *ask, struct list *chores, struct error *err) {
        struct result asked;
        enum status status = result_take_ask(ask, &asked, err);
        if (status != STATUS_OK)
                return status;
        const struct shelf *s = shelf_find(rs, ask->group);
        struct result *r = s ? shelf_find_name(s, asked.name) : NULL;
        if (r) {
                status = result_check_alike(r, &asked, ask->rank, err);
                return status == STATUS_OK ? attach_to(rs, r, ask, err) : status;
        }
        status = result_begin(rs, &asked, ask, &r, err);
        if (status != STATUS_OK)
                return status;
        CHECK(r);
        status = attach_to(rs, r, ask, err);
        if (status != STATUS_OK) {
                result_hide(rs, r);
                result_free(rs, r);
                return status;
        }
        r->chore.kind = CHORE_MAKE;
        list_append(chores, &r->chore.link);
        return STATUS_OK;
}

/* --- chores and answers --- */

/* Somebody still has its memory: looked at again, less and less often. */
static void result_linger(struct results *rs, struct result *r, uint64_t now_ns) {
        uint64_t delay_ns = r->retry_delay_ns ? 2 * r->retry_delay_ns : FIRST_RETRY_NS;
        r->retry_delay_ns = delay_ns < LAST_RETRY_NS ? delay_ns : LAST_RETRY_NS;
        r->retry_ns = now_ns + r->retry_delay_ns;
        list_append(&rs->lingering, &r->linger_link);
        if (r->retry_ns < rs->next_retry_ns)
                rs->next_retry_ns = r->retry_ns;
}

uint64_t results_next_ns(const struct results *rs) {
        return rs->next_retry_ns;
}

void results_expire(struct results *rs, uint64_t now_ns, struct list *chores) {
        rs->next_retry_ns = UINT64_MAX;
        list_for_each_safe (it, tmp, &rs->lingering) {
                struct result *r = list_entry(it, struct result, linger_link);
                if (r->retry_ns <= now_ns) {
                        list_unlink(&r->linger_link);
                        list_append(chores, &r->chore.link);
                } else if (r->retry_ns < rs->next_retry_ns) {
                        rs->next_retry_ns = r->retry_ns;
                }
        }
}

static void result_made(struct results *rs, struct result *r, struct list *chores) {
        r->state = r->chore.status == STATUS_OK ? RESULT_READY : RESULT_FAILED;
        if (r->state == RESULT_FAILED)
                result_hide(rs, r); /* who asks from now on has it tried again */
        for (uint32_t i = 0; i < r->world_size; i++)
                if (r->attached[i] && r->attached[i]->is_waiting)
                        attachment_is_due(rs, r->attached[i]);
        result_go_if_done(rs, r, chores);
}

bool result_owns(const struct chore *chore) {
        return chore->kind == CHORE_MAKE || chore->kind == CHORE_UNMAKE ||
               (chore->kind == CHORE_CLOSE && chore->path == PATH_VMM_MADE && chore->session == 0);
}

void result_chore_done(struct results *rs, struct chore *chore, uint64_t now_ns, struct list *chores) {
        struct result *r = (struct result *)(void *)chore;
        if (chore->kind == CHORE_MAKE) {
                result_made(rs, r, chores);
        } else if (chore->kind == CHORE_UNMAKE && chore->path == PATH_VMM_MADE && chore->fd >= 0) {
                chore->kind = CHORE_CLOSE; /* the GPU has let go of it; who still has it, the driver knows */
                list_append(chores, &chore->link);
        } else if (chore->fd >= 0)
                result_linger(rs, r, now_ns);
        else
                result_free(rs, r);
}

bool results_take_answer(struct results *rs, struct list *chores, struct result_answer *ret) {
        struct list *first = list_take_first(&rs->due);
        if (!first)
                return false;
        struct attachment *a = list_entry(first, struct attachment, due_link);
        const struct result *r = a->result;
        *ret = (struct result_answer){ .session = a->session,
                .request = a->request,
                .status = r->chore.status,
                .result = { .result = r->id,
                        .n_descriptors = 1,
                        .size_bytes = r->slot_bytes,
                        .n_slots = r->slots.n,
                        .stride_bytes = r->slots.stride_bytes,
                        .device_bytes = r->chore.path == PATH_VMM_MADE ? r->chore.n_bytes : 0 },
                .fd = r->chore.path == PATH_VMM_MADE ? r->chore.fd : r->chore.read_fd };
        memcpy(ret->why, r->chore.why, sizeof(ret->why));
        if (r->state == RESULT_FAILED)
                attachment_end(rs, a, chores);
        return true;
}

/* --- the end of an attachment --- */

struct result *result_find(const struct results *rs, uint64_t id) {
        struct result *r;
        HASH_FIND(hh, rs->by_id, &id, sizeof(id), r);
        return r;
}

static struct attachment *attachment_find(
        const struct results *rs, uint64_t session, uint64_t membership, uint64_t id) {
        const struct guest *g = guest_find(rs, session);
        const struct result *r = result_find(rs, id);
        if (!g || !r)
                return NULL;
        list_for_each (it, &g->attachments) {
                struct attachment *a = list_entry(it, struct attachment, guest_link);
                if (a->result == r && a->membership == membership)
                        return a;
        }
        return NULL;
}

enum status result_refuse_unknown(uint64_t id, struct error *err) {
        return error_set(err, STATUS_NOT_FOUND, FIELD_BUFFER,
                "this membership is attached to no result object %llu", (unsigned long long)id);
}

enum status result_release(struct results *rs, uint64_t session, const struct msg_release_result *ask,
        struct list *chores, struct error *err) {
        struct attachment *a = attachment_find(rs, session, ask->membership, ask->result);
        if (!a)
                return result_refuse_unknown(ask->result, err);
        if (ask->detach) {
                attachment_end(rs, a, chores);
                return STATUS_OK;
        }
        slots_hear(&a->result->slots, &a->user);
        if (slots_drop(&a->result->slots, ask->slot, a->user.rank))
                return STATUS_OK;
        return error_set(err, STATUS_INVALID, FIELD_BUFFER,
                "R%u does not hold slot %u of the result object \"%s\"", a->user.rank, ask->slot,
                a->result->name);
}

void results_set_words(struct results *rs, uint64_t session, const _Atomic uint64_t *words) {
        const struct guest *g = guest_find(rs, session);
        if (!g)
                return;
        list_for_each (it, &g->attachments)
                attachment_find_word(list_entry(it, struct attachment, guest_link), words);
}

void results_end_membership(struct results *rs, uint64_t session, uint64_t membership, struct list *chores) {
        const struct guest *g = guest_find(rs, session);
        struct list *it = g ? g->attachments.next : NULL;
        while (g && it != &g->attachments) {
                struct attachment *a = list_entry(it, struct attachment, guest_link);
                it = it->next;
                bool is_last = it == &g->attachments;
                if (a->membership == membership)
                        attachment_end(rs, a, chores);
                if (is_last) /* with the last attachment the guest has gone too */
                        break;
        }
}

void results_end_session(struct results *rs, uint64_t session, struct list *chores) {
        const struct guest *g;
        while ((g = guest_find(rs, session)))
                attachment_end(rs, list_entry(g->attachments.next, struct attachment, guest_link), chores);
}

/* --- looking --- */

struct result *results_next(const struct results *rs, uint64_t group, const struct result *after) {
        const struct shelf *s = shelf_find(rs, group);
        if (!s)
                return NULL;
        struct list *next = after ? after->shelf_link.next : s->results.next;
        return next == &s->results ? NULL : list_entry(next, struct result, shelf_link);
}

uint32_t results_count(const struct results *rs) {
        return rs->n;
}
