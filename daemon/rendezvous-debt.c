/* What a collective that ended leaves to those who were not there: their next submission of its key pays, and
 * hears why it had ended (P3). So a late comer never meets a retry. */
#include "rendezvous-internal.h"

#include <stdlib.h>

struct debt {
        struct list age_link, bucket_link;
        struct key key;
        struct rankset debtors, missing; /* who has not paid yet; who was not there */
        struct reason why;               /* its detail is: */
        char detail[128];
        uint64_t ended_ns;
        struct charge charge; /* QUOTA_PENDING, 1 */
};

static struct list *bucket_of(const struct circle *c, const struct lookup *l) {
        return &c->debt_buckets[l->hash % N_DEBT_BUCKETS];
}

static bool make_buckets(struct circle *c) {
        if (c->debt_buckets)
                return true;
        c->debt_buckets = malloc(N_DEBT_BUCKETS * sizeof(*c->debt_buckets));
        if (!c->debt_buckets)
                return false;
        for (size_t i = 0; i < N_DEBT_BUCKETS; i++)
                list_init(&c->debt_buckets[i]);
        return true;
}

static void debt_free(struct circle *c, struct debt *debt) {
        charge_release(&debt->charge);
        list_unlink(&debt->age_link);
        list_unlink(&debt->bucket_link);
        free(debt);
        c->group.n_debts--;
}

/* --- who cannot be waited for --- */

static void eject(struct circle *c, const struct rankset *debtors, const char *why, struct outcome *out) {
        rankset_for_each (rank, debtors) {
                struct member *member = &c->group.members[rank];
                text_copy(member->why, sizeof(member->why), why);
                outcome_put(&out->ejected, &member->outcome_link);
        }
}

static void eject_oldest(struct circle *c, struct outcome *out) {
        struct debt *oldest = list_entry(c->debts.next, struct debt, age_link);
        eject(c, &oldest->debtors, "out of step: it missed 4096 collectives and made up for none", out);
        debt_free(c, oldest);
}

/* --- a record --- */

static struct debt *debt_new(struct rendezvous *r, struct circle *c) {
        struct debt *debt = make_buckets(c) ? calloc(1, sizeof(*debt)) : NULL;
        if (!debt)
                return NULL;
        if (quota_charge(r->quotas, &debt->charge, c->group.uid, QUOTA_PENDING, 1, NULL) == STATUS_OK)
                return debt;
        free(debt);
        return NULL;
}

static void debt_fill(struct debt *debt, const struct reason *why, uint64_t now_ns) {
        debt->why = *why;
        debt->why.about = NULL;
        debt->why.detail = debt->detail;
        debt->why.cause = why->status;
        debt->why.status = STATUS_EXPIRED;
        debt->ended_ns = now_ns;
        text_copy(debt->detail, sizeof(debt->detail), why->detail ? why->detail : "");
}

void debt_make(struct rendezvous *r, struct circle *c, const struct lookup *l, const struct key *key,
        const struct rankset *debtors, const struct reason *why, uint64_t now_ns, struct outcome *out) {
        if (c->group.state != GROUP_WHOLE || rankset_is_empty(debtors))
                return;
        if (c->group.n_debts == MAX_DEBT_RECORDS)
                eject_oldest(c, out);
        struct debt *debt = debt_new(r, c);
        if (!debt) {
                eject(c, debtors, "out of step: no room to remember what it missed", out);
                return;
        }
        debt->key = *key;
        debt->debtors = debt->missing = *debtors;
        debt_fill(debt, why, now_ns);
        list_append(&c->debts, &debt->age_link);
        list_append(bucket_of(c, l), &debt->bucket_link);
        c->group.n_debts++;
}

/* --- paying --- */

static struct debt *debt_find(
        const struct circle *c, const struct lookup *l, const struct key *key, uint32_t rank) {
        if (c->group.n_debts == 0)
                return NULL;
        list_for_each (it, bucket_of(c, l)) {
                struct debt *debt = list_entry(it, struct debt, bucket_link);
                if (rankset_has(&debt->debtors, rank) && key_is_equal(&debt->key, key))
                        return debt;
        }
        return NULL;
}

static void strike_debtor(struct circle *c, struct debt *debt, uint32_t rank) {
        rankset_remove(&debt->debtors, rank);
        if (rankset_is_empty(&debt->debtors))
                debt_free(c, debt);
}

bool debt_pay(struct circle *c, const struct lookup *l, const struct key *key, uint32_t rank, uint64_t now_ns,
        struct error *err) {
        struct debt *debt = debt_find(c, l, key, rank);
        if (!debt)
                return false;
        if (err) {
                error_init(err, STATUS_EXPIRED);
                reason_fill(&debt->why, err);
                err->age_ns = now_ns - debt->ended_ns;
                err->missing = debt->missing;
        }
        strike_debtor(c, debt, rank);
        return true;
}

void debts_forgive(struct circle *c, const struct rankset *ranks) {
        list_for_each_safe (it, tmp, &c->debts) {
                struct debt *debt = list_entry(it, struct debt, age_link);
                debt->debtors = rankset_minus(&debt->debtors, ranks);
                if (rankset_is_empty(&debt->debtors))
                        debt_free(c, debt);
        }
}

void debts_drop(struct circle *c) {
        list_for_each_safe (it, tmp, &c->debts) {
                debt_free(c, list_entry(it, struct debt, age_link));
        }
}
