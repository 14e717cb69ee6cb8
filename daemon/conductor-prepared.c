/* Halves that are kept to be started again, and the plans that were made for them.
 *
 * A client submits the same half step after step. Where it asks for it, tuttid keeps a half that has ended
 * well, with its checked entries and their leases, under a number; Start then says the number and the key,
 * and no entry travels, is checked or leased again. What is started is a half like any other: it meets
 * whatever the others bring, and is compared with it. It shares the kept half's entries, which nobody writes.
 *
 * Where all halves of a collective were started from kept ones, its plan is kept as well, by the first of
 * them: the next collective of the same kept halves needs no planning. */
#include "conductor-lane.h"

#include <stdlib.h>
#include <string.h>
#include "base/table.h"

static struct prepared *prepared_find(const struct conductor *c, uint64_t session, uint64_t number) {
        const struct prepared_key key = { session, number };
        struct prepared *p;
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): it loses its way in uthash */
        HASH_FIND(hh, c->prepared, &key, sizeof(key), p);
        return p;
}

uint32_t conductor_n_prepared(const struct conductor *c) {
        return HASH_COUNT(c->prepared);
}

/* --- keeping --- */

/* A barrier, or dense values, combined as they are or told to all. */
static bool is_plain(const struct half *half) {
        const struct signature *s = &half->signature;
        if (s->kind == KIND_BARRIER)
                return true;
        if (s->axes || s->n_entries == 0 ||
                (s->kind != KIND_REDUCE && s->kind != KIND_BATCH_REDUCE && s->kind != KIND_BROADCAST))
                return false;
        for (uint32_t i = 0; i < s->n_entries; i++)
                if (half->entries[i].layout != LAYOUT_DENSE)
                        return false;
        return true;
}

/* Its values lie in host memory, in buffers where they will lie again or in whatever slot is next. */
static bool may_keep(const struct conductor *c, const struct session *s, const struct half *half) {
        const uint32_t n_entries = half->signature.n_entries;
        return half->prepare != 0 && !half->prepared && half->device == 0 &&
               conductor_may_go_to_object(half) && !half->signature.options.check_inputs &&
               n_entries <= MAX_PREPARED_ENTRIES && half->n_checked == n_entries && is_plain(half) &&
               list_length(&s->prepared) < MAX_PREPARED && !prepared_find(c, s->id, half->prepare);
}

static struct prepared *prepared_new(struct conductor *c, const struct half *half) {
        struct prepared *p = calloc(1, sizeof(*p));
        int is_in;
        if (!p)
                return NULL;
        list_init(&p->link);
        list_init(&p->standings);
        p->key = (struct prepared_key){ half->session, half->prepare };
        p->id = ++c->last_prepared;
        TABLE_ADD(c->prepared, p, key, is_in);
        if (is_in)
                return p;
        free(p);
        return NULL;
}

static void prepared_free(struct conductor *c, struct prepared *p) {
        list_unlink(&p->link);
        if (p->task)
                conductor_put_task(c, p->task);
        rendezvous_half_free(c->house.rendezvous, p->half);
        free(p);
}

void conductor_keep_half(struct conductor *c, struct meeting *m, uint32_t rank) {
        struct half *half = m->halves[rank];
        struct session *s = session_find(c->house.sessions, half->session);
        if (m->status != STATUS_OK || !s || !may_keep(c, s, half))
                return;
        struct prepared *p = prepared_new(c, half);
        if (!p)
                return;
        p->half = rendezvous_take_half(c->house.rendezvous, m, rank);
        if (!p->half) {
                HASH_DEL(c->prepared, p);
                free(p);
                return;
        }
        m->halves[rank]->is_kept = true;
        list_append(&s->prepared, &p->link);
}

/* --- forgetting --- */

static void prepared_forget(struct conductor *c, struct prepared *p) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): it loses its way in uthash */
        HASH_DEL(c->prepared, p);
        list_unlink(&p->link);
        conductor_drop_standings(c, p);
        p->is_forgotten = true;
        if (p->n_uses == 0)
                list_append(&c->forgotten, &p->link);
}

enum status conductor_unprepare(struct conductor *c, struct session *s, uint64_t number) {
        struct prepared *p = prepared_find(c, s->id, number);
        error_init(&c->error, STATUS_OK);
        if (!p)
                return error_set(&c->error, STATUS_NOT_FOUND, FIELD_UNSPECIFIED,
                        "no half is kept under number %llu on this connection", (unsigned long long)number);
        prepared_forget(c, p);
        return STATUS_OK;
}

void conductor_unprepare_results(
        struct conductor *c, struct session *s, uint64_t membership, uint64_t result) {
        list_for_each_safe (it, tmp, &s->prepared) {
                struct prepared *p = list_entry(it, struct prepared, link);
                if (p->half->membership == membership && p->half->object &&
                        (result == 0 || result_id(p->half->object) == result))
                        prepared_forget(c, p);
        }
}

void conductor_unprepare_all(struct conductor *c, struct session *s) {
        list_for_each_safe (it, tmp, &s->prepared)
                prepared_forget(c, list_entry(it, struct prepared, link));
}

bool conductor_return_prepared(struct conductor *c, uint32_t *n) {
        while (*n > 0 && !list_is_empty(&c->forgotten)) {
                struct prepared *p = list_entry(c->forgotten.next, struct prepared, link);
                conductor_return_entries(c, p->half, n);
                if (p->half->n_checked == 0)
                        prepared_free(c, p);
        }
        return !list_is_empty(&c->forgotten);
}

void conductor_end_prepared(struct conductor *c, struct half *half) {
        struct prepared *p = half->prepared;
        if (!p)
                return;
        half->prepared = NULL;
        if (--p->n_uses == 0 && p->is_forgotten)
                list_append(&c->forgotten, &p->link);
}

/* --- starting --- */

static void start_fill(struct half *half, const struct session *s, const struct request *r) {
        const struct msg_start *ask = &r->start;
        half->session = s->id;
        half->request = r->request;
        half->membership = ask->membership;
        half->epoch = ask->epoch;
        half->key = ask->key;
        half->has_timeout = ask->has_timeout;
        half->timeout_ns = ask->timeout_ns;
        half->signal = ask->signal;
}

static void start_from(struct half *half, struct prepared *p) {
        const struct half *kept = p->half;
        half->signature = kept->signature;
        half->entries = kept->entries;
        half->device = kept->device;
        half->object = kept->object; /* kept by its entries */
        half->has_host_values = kept->has_host_values;
        half->is_spread = kept->is_spread;
        half->n_seen = kept->n_seen;
        half->n_bytes = kept->n_bytes;
        half->digest = kept->digest;
        half->marks = kept->marks;
        half->prepared = p;
        p->n_uses++;
}

struct half *conductor_speak_for(struct conductor *c, struct prepared *p) {
        struct half *half = rendezvous_half_new(c->house.rendezvous, 0);
        if (!half)
                return NULL;
        half->session = p->half->session;
        half->membership = p->half->membership;
        half->rank = p->half->rank;
        half->epoch = p->half->epoch;
        start_from(half, p);
        return half;
}

enum status conductor_check_start(struct conductor *c, const struct half *half) {
        const struct prepared *p = half->prepared;
        if (p->half->membership == half->membership)
                return STATUS_OK;
        return error_set(&c->error, STATUS_INVALID, FIELD_MEMBERSHIP,
                "what is kept under number %llu is of another membership", (unsigned long long)p->key.number);
}

/* NULL: c->error says why. A half of nothing is refused in its sender's name, so that the others hear of it.
 */
struct half *conductor_new_start(
        struct conductor *c, const struct session *s, const struct request *r, bool *ret_is_known) {
        struct half *half = rendezvous_half_new(c->house.rendezvous, 0);
        error_init(&c->error, STATUS_OK);
        if (!half) {
                error_set(&c->error, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid is short of memory");
                return NULL;
        }
        start_fill(half, s, r);
        struct prepared *p = prepared_find(c, s->id, r->start.prepared);
        *ret_is_known = p != NULL;
        if (p)
                start_from(half, p);
        else
                error_set(&c->error, STATUS_NOT_FOUND, FIELD_UNSPECIFIED,
                        "no half is kept under number %llu on this connection; submit it in full",
                        (unsigned long long)r->start.prepared);
        return half;
}

/* --- plans --- */

/* What is measured on GPUs has no say in the plans that are kept. */
static bool rules_are_equal(const struct plan_rules *a, const struct plan_rules *b) {
        return a->algorithm == b->algorithm && a->library_from_bytes == b->library_from_bytes;
}

/* The kept half that knows the plan of this collective, if all of its halves were started. */
static struct prepared *first_of(const struct meeting *m) {
        rankset_for_each (rank, &m->have) {
                if (!m->halves[rank]->prepared)
                        return NULL;
        }
        return m->n_halves <= MAX_REPLAYED ? m->halves[rankset_next(&m->have, 0)]->prepared : NULL;
}

static bool is_for(const struct prepared *first, const struct meeting *m) {
        uint32_t n = 0;
        if (first->n_parts != m->n_halves || first->divisor != m->divisor)
                return false;
        rankset_for_each (rank, &m->have) {
                if (first->parts[n++] != m->halves[rank]->prepared->id)
                        return false;
        }
        return true;
}

static bool is_in_use(const struct prepared *first) {
        return first->is_out || (first->standing && standing_is_running(first->standing));
}

struct task *conductor_find_plan(const struct conductor *c, const struct meeting *m) {
        const struct prepared *first = first_of(m);
        struct plan_rules rules = conductor_rules(c);
        if (!first || !first->task || is_in_use(first) || !is_for(first, m) ||
                !rules_are_equal(&first->rules, &rules))
                return NULL;
        return first->task;
}

void conductor_replay(struct conductor *c, struct meeting *m, uint64_t slot_offset_bytes) {
        struct prepared *first = first_of(m);
        CHECK(first && first->task);
        first->is_out = true;
        c->n_replayed++;
        m->task = first->task;
        plan_move_slot(&first->task->plan, slot_offset_bytes);
}

static bool may_keep_plan(const struct meeting *m, const struct task *t) {
        return m->status == STATUS_OK && t->plan.device < DEVICE_GPU &&
               t->memory.amount <= MAX_REPLAYED_BYTES;
}

/* Between two runs as well it is its user's; who may have no more of it has it made anew each time. */
static void charge_kept_scratch(struct conductor *c, const struct meeting *m, struct task *t) {
        uint64_t n_bytes = engine_task_scratch_bytes(t);
        struct error ignored;
        error_init(&ignored, STATUS_OK);
        if (n_bytes > 0 && quota_charge(c->house.quotas, &t->scratch_charge, m->group->uid,
                                   QUOTA_RESULT_BYTES, n_bytes, &ignored) != STATUS_OK)
                engine_task_drop_scratch(t);
}

/* *first has no task, or one that does not run. */
static void keep_plan(struct conductor *c, struct prepared *first, const struct meeting *m) {
        conductor_drop_standing(c, first->standing);
        if (first->task)
                conductor_put_task(c, first->task);
        first->task = m->task;
        first->rules = conductor_rules(c);
        first->divisor = m->divisor;
        first->n_parts = 0;
        rankset_for_each (rank, &m->have) {
                first->parts[first->n_parts++] = m->halves[rank]->prepared->id;
        }
}

void conductor_put_plan(struct conductor *c, struct meeting *m) {
        struct task *t = m->task;
        struct prepared *first = t ? first_of(m) : NULL;
        if (!first)
                return;
        const struct plan_rules rules = conductor_rules(c);
        bool is_known = first->task == t;
        if (is_known)
                first->is_out = false;
        if (is_known && m->status != STATUS_OK) { /* what failed is planned anew */
                conductor_drop_standing(c, first->standing);
                first->task = NULL;
                return;
        }
        if (is_known || (!is_in_use(first) && !first->is_forgotten && may_keep_plan(m, t))) {
                if (!is_known)
                        keep_plan(c, first, m);
                charge_kept_scratch(c, m, t);
                m->task = NULL;
                if (rules_are_equal(&first->rules, &rules)) /* or it is to be planned anew */
                        conductor_teach_lane(c, first, m);
        }
}
