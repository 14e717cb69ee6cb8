/* How a meeting ends, and what its members are told. */
#include "rendezvous-internal.h"

#include <stdlib.h>

void reason_fill(const struct reason *why, struct error *err) {
        err->status = why->status;
        err->cause = why->cause;
        err->field = why->field;
        err->loss = why->loss;
        err->entry = why->entry;
        err->rank = why->rank;
        err->age_ns = why->age_ns;
        error_set_detail(err, "%s", why->detail ? why->detail : "");
}

/* --- the error of a meeting --- */

static const struct half *first_half(const struct meeting *m) {
        int rank = rankset_next(&m->have, 0);
        return rank < 0 ? NULL : m->halves[rank];
}

/* Of a MISMATCH: all but the largest class. */
static struct rankset odd_ones(const struct meeting *m, const struct error *err) {
        const struct rankset *largest = &m->have;
        unsigned int n_largest = 0;
        for (uint32_t i = 0; i < err->n_classes; i++) {
                unsigned int n = rankset_count(&err->classes[i].ranks);
                if (n <= n_largest)
                        continue;
                n_largest = n;
                largest = &err->classes[i].ranks;
        }
        return rankset_minus(&m->have, largest);
}

/* P4: what is known by then is told, also when death or a deadline came first. */
static void tell_difference(const struct meeting *m, const struct reason *why, struct error *err) {
        if (why->status != STATUS_MISMATCH && why->status != STATUS_TIMEOUT &&
                why->status != STATUS_REPLICA_LOST)
                return;
        struct difference d = meeting_difference(m);
        if (d.field != FIELD_UNSPECIFIED)
                meeting_print_difference(m, &d, err);
}

/* The group as the members of this meeting knew it: who is there and who is not, among the alive and those
 * who are going. */
static struct rankset missing(const struct meeting *m) {
        const struct circle *c = circle_of(m->group);
        struct rankset all = c->group.alive;
        rankset_for_each (rank, &c->gone) {
                rankset_add(&all, (unsigned int)rank);
        }
        return rankset_minus(&all, &m->have);
}

static void describe_meeting(const struct meeting *m, struct error *err) {
        const struct half *half = first_half(m);
        group_describe(m->group, err);
        err->epoch = m->epoch;
        err->has_key = true;
        err->key = m->key;
        err->kind = half ? half->signature.kind : KIND_UNSPECIFIED;
        err->have = m->have;
        err->missing = missing(m);
}

struct error *error_new(struct rendezvous *r, const struct group *g) {
        uint32_t *n = &r->n_errors[g->uid % N_ERROR_SHARES];
        struct error *err = *n < MAX_ERRORS ? malloc(sizeof(*err)) : NULL;
        *n += err != NULL;
        return err;
}

void error_free(struct rendezvous *r, const struct group *g, struct error *err) {
        r->n_errors[g->uid % N_ERROR_SHARES] -= err != NULL;
        free(err);
}

static struct error *make_error(
        struct rendezvous *r, const struct meeting *m, const struct reason *why, uint64_t now_ns) {
        struct error *err = error_new(r, m->group);
        if (!err)
                return NULL;
        error_init(err, why->status);
        describe_meeting(m, err);
        reason_fill(why, err);
        if (why->status == STATUS_REPLICA_LOST && why->about)
                err->have = rankset_minus(&m->have, why->about); /* the lost are told nothing any more */
        tell_difference(m, why, err);
        struct rankset odd = odd_ones(m, err);
        const struct rankset *about = why->status == STATUS_MISMATCH ? &odd : why->about;
        if (about)
                group_add_reports(m->group, about, now_ns, err);
        return err;
}

/* --- ending --- */

static void conclude(
        struct rendezvous *r, struct meeting *m, enum status status, uint64_t now_ns, struct error *err) {
        meeting_detach(r, m);
        list_append(&circle_of(m->group)->ended, &m->group_link);
        m->state = MEETING_ENDED;
        m->status = status;
        m->done_ns = now_ns;
        m->error = err;
}

/* Whoever was refused has used the key; who aborted without a half has not. */
static struct rankset debtors_of(const struct meeting *m, const struct reason *why) {
        if (why->status == STATUS_DRAINING)
                return (struct rankset){ { 0 } }; /* nobody will come any more */
        struct rankset debtors = rankset_minus(&m->group->alive, &m->have);
        if (why->status == STATUS_PEER_REFUSED)
                rankset_remove(&debtors, (unsigned int)why->rank);
        return debtors;
}

void meeting_end(struct rendezvous *r, struct meeting *m, const struct reason *why, uint64_t now_ns,
        struct outcome *out) {
        CHECK(m->state == MEETING_GATHERING);
        struct circle *c = circle_of(m->group);
        struct rankset debtors = debtors_of(m, why);
        struct lookup l = { .key = m->hash_key, .n_bytes = m->hash_key_bytes, .hash = m->hh.hashv };
        conclude(r, m, why->status, now_ns, make_error(r, m, why, now_ns));
        outcome_put(&out->ended, &m->outcome_link);
        debt_make(r, c, &l, &m->key, &debtors, why, now_ns, out);
        stall_check(r, c, now_ns);
}

/* Not to those who have joined since it was sealed. */
void meeting_note_finished(const struct meeting *m, uint64_t now_ns) {
        struct group *g = m->group;
        g->last_done_ns = now_ns;
        rankset_for_each (rank, &m->have) {
                struct member *member = &g->members[rank];
                if (member->state != MEMBER_ALIVE || member->first_epoch > m->epoch)
                        continue;
                member->has_last = true;
                member->last_key = m->key;
                member->last_ns = now_ns;
        }
}

void rendezvous_done(struct rendezvous *r, struct meeting *m, enum status status, const struct error *err,
        uint64_t now_ns) {
        CHECK(m->state == MEETING_SEALED);
        struct error *copy = status == STATUS_OK || !err ? NULL : error_new(r, m->group);
        if (copy)
                *copy = *err;
        conclude(r, m, status, now_ns, copy);
        if (status == STATUS_OK)
                meeting_note_finished(m, now_ns);
}

void rendezvous_release(struct rendezvous *r, struct meeting *m, struct outcome *out) {
        CHECK(m->state == MEETING_ENDED);
        struct group *g = m->group;
        meeting_recycle(r, m);
        if (g->state == GROUP_ENDED && g->n_references == 0)
                outcome_put(&out->over, &g->outcome_link);
}

/* --- abort --- */

void describe_half(const struct member *member, const struct half *half, struct error *err) {
        group_describe(member->group, err);
        err->has_key = true;
        err->key = half->key;
        err->kind = half->signature.kind;
        if (err->rank < 0)
                err->rank = (int32_t)member->rank;
}

static enum status refuse_abort(const struct member *member, const struct msg_abort *ask, enum status status,
        const char *detail, struct error *err) {
        error_init(err, status);
        group_describe(member->group, err);
        err->has_key = ask->has_key;
        err->key = ask->key;
        return error_set(err, status, FIELD_KEY, "%s", detail);
}

static void abort_meeting(struct rendezvous *r, struct meeting *m, const struct member *member,
        const char *detail, struct outcome *out, uint64_t now_ns) {
        struct rankset about = { { 0 } };
        rankset_add(&about, member->rank);
        meeting_end(r, m,
                &(struct reason){ .status = STATUS_ABORTED,
                        .entry = -1,
                        .rank = (int32_t)member->rank,
                        .about = &about,
                        .age_ns = now_ns - m->first_ns,
                        .detail = detail },
                now_ns, out);
}

enum status rendezvous_abort(struct rendezvous *r, uint64_t session, const struct msg_abort *ask,
        uint64_t now_ns, struct outcome *out, struct error *err) {
        struct member *member;
        enum status status = member_find_alive(r, session, ask->membership, now_ns, &member, err);
        if (status != STATUS_OK)
                return status;
        if (!ask->has_key)
                return refuse_abort(member, ask, STATUS_INVALID, "name the key to abort", err);
        struct lookup l;
        lookup_make(r, member->group, &ask->key, &l);
        struct meeting *m = meeting_find(r, &l);
        if (!m)
                return refuse_abort(member, ask, STATUS_NOT_FOUND, "nobody has submitted it", err);
        if (m->state == MEETING_SEALED)
                return refuse_abort(member, ask, STATUS_BUSY, "it already runs and will end by itself", err);
        abort_meeting(r, m, member, ask->reason, out, now_ns);
        return STATUS_OK;
}
