/* How a group is formed anew (P5): newcomers take free ranks, members call rejoin or shrink, and when all
 * have come who must, a new epoch begins. Each waits for itself: whoever has waited long enough is told whom
 * for, and the others wait on. */
#include "rendezvous-internal.h"

#include <stdlib.h>

/* --- one wish --- */

bool reform_begin(struct rendezvous *r, struct member *m, const struct reform_ask *ask, uint64_t now_ns) {
        if (!clocks_reserve(&r->clocks, m->group->uid, ALARM_REFORMING))
                return false;
        struct reform *reform = calloc(1, sizeof(*reform));
        if (!reform)
                return false;
        reform->kind = ask->kind;
        reform->session = ask->session;
        reform->request = ask->request;
        reform->member = m;
        reform->group = m->group;
        reform->since_ns = now_ns;
        list_init(&reform->outcome_link);
        alarm_init(&reform->deadline);
        uint64_t timeout_ns = ask->timeout_ns ? ask->timeout_ns : r->settings.join_timeout_ns;
        clocks_enter(&r->clocks, m->group->uid, ALARM_REFORMING);
        clocks_set(&r->clocks, m->group->uid, ALARM_REFORMING, &reform->deadline,
                deadline_after(now_ns, timeout_ns));
        m->reform = reform;
        m->group->n_reforms++;
        return true;
}

/* It waits no longer, and is the caller's. */
static struct reform *reform_take(struct rendezvous *r, struct member *m) {
        struct reform *reform = m->reform;
        clocks_set(&r->clocks, m->group->uid, ALARM_REFORMING, &reform->deadline, ALARM_NEVER);
        clocks_leave(&r->clocks, m->group->uid, ALARM_REFORMING);
        reform->member = NULL;
        m->reform = NULL;
        m->group->n_reforms--;
        return reform;
}

void rendezvous_reform_free(struct rendezvous *r, struct reform *reform) {
        if (!reform)
                return;
        error_free(r, reform->group, reform->error);
        list_unlink(&reform->outcome_link);
        free(reform);
}

void reform_forget(struct rendezvous *r, struct member *m) {
        if (m->reform)
                rendezvous_reform_free(r, reform_take(r, m));
}

/* --- in vain --- */

static void reform_answer(
        struct rendezvous *r, struct member *m, const struct error *why, struct outcome *out) {
        struct reform *reform = reform_take(r, m);
        reform->status = why->status;
        reform->error = error_new(r, m->group);
        if (reform->error)
                *reform->error = *why;
        list_append(&out->answered, &reform->outcome_link);
}

static void describe_member(const struct member *m, enum status status, struct error *err) {
        error_init(err, status);
        group_describe(m->group, err);
        err->rank = (int32_t)m->rank;
}

void reform_drop(struct rendezvous *r, struct member *m, uint64_t now_ns, struct outcome *out) {
        struct error err;
        if (!m->reform)
                return;
        if (m->state != MEMBER_LEFT) {
                reform_forget(r, m);
                return;
        }
        describe_member(m, STATUS_LEFT, &err);
        err.age_ns = now_ns - m->reform->since_ns;
        error_set_detail(&err, "it left while it waited for the group to be formed anew");
        reform_answer(r, m, &err, out);
}

static const char *call_of(enum reform_kind kind) {
        return kind == REFORM_SHRINK ? "shrink" : "rejoin";
}

/* Those of `g` that wait with this wish. */
static struct rankset callers(const struct group *g, enum reform_kind kind) {
        struct rankset set = { { 0 } };
        for (uint32_t rank = 0; rank < g->world_size; rank++)
                if (g->members[rank].reform && g->members[rank].reform->kind == kind)
                        rankset_add(&set, rank);
        return set;
}

/* "R1 R2 did not call rejoin; nobody has taken R3". */
static void describe_awaited(const struct group *g, enum reform_kind kind, struct error *err) {
        struct rankset ranks = rankset_minus(&err->missing, &g->alive);
        struct rankset silent = rankset_minus(&err->missing, &ranks);
        struct text t;
        text_init(&t, err->detail, sizeof(err->detail));
        if (!rankset_is_empty(&silent)) {
                rankset_print(&silent, &t);
                text_add(&t, " did not call %s", call_of(kind));
        }
        if (rankset_is_empty(&ranks))
                return;
        text_add(&t, "%snobody has taken the place of ", rankset_is_empty(&silent) ? "" : "; ");
        rankset_print(&ranks, &t);
}

static void describe_timeout(const struct reform *reform, uint64_t now_ns, struct error *err) {
        const struct group *g = reform->group;
        describe_member(reform->member, STATUS_TIMEOUT, err);
        err->age_ns = now_ns - reform->since_ns;
        err->missing = group_awaited(g, reform->kind);
        for (uint32_t rank = 0; rank < g->world_size; rank++)
                if (g->members[rank].reform)
                        rankset_add(&err->have, rank);
        group_add_reports(g, &err->missing, now_ns, err);
        describe_awaited(g, reform->kind, err);
}

void reform_expire(struct rendezvous *r, struct reform *reform, uint64_t now_ns, struct outcome *out) {
        struct member *m = reform->member;
        struct circle *c = circle_of(m->group);
        bool is_newcomer = reform->kind == REFORM_JOIN;
        struct error err;
        describe_timeout(reform, now_ns, &err);
        reform_answer(r, m, &err, out);
        if (!is_newcomer)
                return;
        member_forget(r, m);
        c->n_present--;
        if (c->n_present == 0)
                circle_end(r, c, out);
}

/* All who are alive have called, and some want newcomers, some do not. */
static void disagree(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out) {
        struct group *g = &c->group;
        struct error err;
        error_init(&err, STATUS_MISMATCH);
        group_describe(g, &err);
        err.field = FIELD_KIND;
        err.have = g->alive;
        err.n_classes = 2;
        for (enum reform_kind kind = REFORM_REJOIN; kind <= REFORM_SHRINK; kind++) {
                struct error_class *class = &err.classes[kind - REFORM_REJOIN];
                class->ranks = callers(g, kind);
                text_copy(class->value, sizeof(class->value), call_of(kind));
        }
        group_add_reports(g, &g->alive, now_ns, &err);
        rankset_for_each (rank, &g->alive) {
                reform_answer(r, &g->members[rank], &err, out);
        }
}

/* --- a new epoch --- */

/* What is SEALED runs on. As in a group that has failed, nobody owes anything. */
static void end_epoch(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out) {
        struct group *g = &c->group;
        char detail[64];
        struct text t;
        text_init(&t, detail, sizeof(detail));
        text_add(&t, "the group has begun epoch %llu", (unsigned long long)g->epoch + 1);
        g->state = GROUP_FAILED;
        debts_drop(c);
        list_for_each_safe (it, tmp, &g->meetings) {
                struct meeting *m = list_entry(it, struct meeting, group_link);
                if (m->state != MEETING_GATHERING)
                        continue;
                meeting_end(r, m,
                        &(struct reason){ .status = STATUS_REPLICA_LOST,
                                .entry = -1,
                                .rank = -1,
                                .age_ns = now_ns - m->first_ns,
                                .detail = detail },
                        now_ns, out);
        }
}

static void admit_newcomers(struct circle *c) {
        struct rankset newcomers = callers(&c->group, REFORM_JOIN);
        rankset_for_each (rank, &newcomers) {
                struct member *m = &c->group.members[rank];
                m->state = MEMBER_ALIVE;
                m->first_epoch = c->group.epoch;
                rankset_add(&c->group.alive, m->rank);
                c->n_alive++;
        }
}

static void begin_epoch(struct rendezvous *r, struct circle *c, enum reform_kind kind, struct outcome *out) {
        struct group *g = &c->group;
        g->state = GROUP_WHOLE;
        g->epoch++;
        g->next_number = 1;
        g->lost_rank = -1;
        if (kind == REFORM_REJOIN)
                admit_newcomers(c);
        rankset_for_each (rank, &g->alive) {
                struct member *m = &g->members[rank];
                m->join_request = m->reform->request;
                reform_forget(r, m);
        }
        outcome_put(&out->formed, &g->outcome_link);
}

void circle_try_reform(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out) {
        struct group *g = &c->group;
        if (g->n_reforms < c->n_alive)
                return;
        struct rankset rejoin = callers(g, REFORM_REJOIN), shrink = callers(g, REFORM_SHRINK);
        uint32_t n_rejoin = rankset_count(&rejoin), n_shrink = rankset_count(&shrink);
        if (n_rejoin + n_shrink < c->n_alive)
                return;
        if (n_rejoin > 0 && n_shrink > 0) {
                disagree(r, c, now_ns, out);
        } else if (n_shrink > 0) {
                end_epoch(r, c, now_ns, out);
                begin_epoch(r, c, REFORM_SHRINK, out);
        } else if (c->n_present == g->world_size) {
                end_epoch(r, c, now_ns, out);
                begin_epoch(r, c, REFORM_REJOIN, out);
        }
}

/* --- a call --- */

enum status rendezvous_reform(struct rendezvous *r, const struct reform_ask *ask, uint64_t now_ns,
        struct outcome *out, struct error *err) {
        struct member *m;
        enum status status = member_find_alive(r, ask->session, ask->membership, now_ns, &m, err);
        if (status != STATUS_OK)
                return status;
        if (m->reform) {
                describe_member(m, STATUS_ALREADY_PENDING, err);
                err->age_ns = now_ns - m->reform->since_ns;
                error_set_detail(err, "waits in %s already", call_of(m->reform->kind));
                return STATUS_ALREADY_PENDING;
        }
        member_end_busy(r, m, now_ns, out);
        if (!reform_begin(r, m, ask, now_ns)) {
                describe_member(m, STATUS_NO_MEMORY, err);
                error_set_detail(err, "tuttid has no memory for this call");
                return STATUS_NO_MEMORY;
        }
        circle_try_reform(r, circle_of(m->group), now_ns, out);
        return STATUS_OK;
}
