/* Members that go: by leave, or with the end of their session. */
#include "rendezvous-internal.h"

#include <string.h>

/* --- one member --- */

struct departure {
        enum member_state state;
        enum loss loss;
        const char *why;
        uint64_t now_ns;
};

/* Marks it, and takes it out of whatever counts the alive; its meetings are looked at by circle_go_on, when
 * all who go are marked. The first of a circle puts that in `circles`. */
static void member_go(struct rendezvous *r, struct member *m, const struct departure *how,
        struct list *circles, struct outcome *out) {
        struct circle *c = circle_of(m->group);
        bool is_newcomer = m->state == MEMBER_JOINING && c->group.state != GROUP_FORMING;
        if (how->state == MEMBER_LOST)
                quota_count_loss(r->quotas, c->group.uid, how->loss);
        member_end_busy(r, m, how->now_ns, out);
        c->n_alive -= m->state == MEMBER_ALIVE;
        m->state = how->state;
        m->loss = how->loss;
        m->lost_ns = how->now_ns;
        text_copy(m->why, sizeof(m->why), how->why ? how->why : "");
        reform_drop(r, m, how->now_ns, out);
        member_drop_resume(c, m);
        list_unlink(&m->session_link);
        list_unlink(&m->outcome_link);
        rankset_remove(&c->group.alive, m->rank);
        if (!is_newcomer)
                rankset_add(&c->gone, m->rank);
        c->n_present--;
        if (list_is_empty(&c->gone_link))
                list_append(circles, &c->gone_link);
}

/* --- a group that fails --- */

static struct reason loss_reason(const struct group *g, const struct rankset *gone, uint64_t now_ns) {
        const struct member *m = &g->members[rankset_next(gone, 0)];
        return (struct reason){
                .status = STATUS_REPLICA_LOST,
                .loss = m->loss,
                .entry = -1,
                .rank = (int32_t)m->rank,
                .about = gone,
                .age_ns = now_ns - m->lost_ns,
                .detail = m->why,
        };
}

static void note_loss(struct group *g, const struct rankset *gone, uint64_t now_ns) {
        uint32_t rank = (uint32_t)rankset_next(gone, 0);
        const struct member *m = &g->members[rank];
        g->lost_rank = (int32_t)rank;
        g->loss = m->loss;
        g->lost_ns = m->lost_ns;
        memcpy(g->lost_why, m->why, sizeof(g->lost_why));
        group_report(g, rank, now_ns, &g->lost);
}

static void circle_fail(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out) {
        struct group *g = &c->group;
        struct reason why = loss_reason(g, &c->gone, now_ns);
        g->state = GROUP_FAILED;
        note_loss(g, &c->gone, now_ns);
        debts_drop(c);
        out->n_looked += g->n_meetings;
        list_for_each_safe (it, tmp, &g->meetings) {
                struct meeting *m = list_entry(it, struct meeting, group_link);
                if (m->state == MEETING_GATHERING)
                        meeting_end(r, m, &why, now_ns, out);
        }
}

/* --- a group that goes on --- */

/* The half that needs somebody who is gone; NULL: none does. */
static const struct half *find_needy(const struct meeting *m, const struct rankset *gone) {
        rankset_for_each (rank, &m->have) {
                const struct signature *s = &m->halves[rank]->signature;
                if (kind_has_root(s->kind) && rankset_has(gone, s->root))
                        return m->halves[rank];
        }
        return NULL;
}

static void find_last(struct meeting *m) {
        uint64_t last_ns = 0;
        rankset_for_each (rank, &m->have) {
                if (m->halves[rank]->arrived_ns < last_ns)
                        continue;
                last_ns = m->halves[rank]->arrived_ns;
                m->last_rank = (uint32_t)rank;
        }
}

static void strike_halves(struct meeting *m, const struct rankset *gone, struct outcome *out) {
        rankset_for_each (rank, gone) {
                if (!rankset_has(&m->have, (unsigned int)rank))
                        continue;
                rankset_remove(&m->have, (unsigned int)rank);
                meeting_uncompare(m, m->halves[rank]);
                outcome_put(&out->struck, &m->halves[rank]->pool_link);
                m->halves[rank] = NULL;
                m->n_halves--;
        }
        if (!rankset_has(&m->have, m->last_rank))
                find_last(m);
}

enum status status_without_root(enum kind kind) {
        return kind == KIND_MERGE_RESULT ? STATUS_REPLICA_LOST : STATUS_INVALID;
}

void describe_gone_root(const struct signature *s, enum loss loss, char *buf, size_t size) {
        bool is_merge = s->kind == KIND_MERGE_RESULT;
        struct text t;
        text_init(&t, buf, size);
        text_add(&t, "%s R%u %s%s", is_merge ? "the one that ran the merge function," : "root", s->root,
                loss == LOSS_UNSPECIFIED ? "is not in the group"
                : loss == LOSS_WENT      ? "has left"
                                         : "has been lost",
                is_merge ? "" : "; name another root");
}

static void end_without_root(struct rendezvous *r, struct meeting *m, const struct half *needy,
        uint64_t now_ns, struct outcome *out) {
        const struct signature *s = &needy->signature;
        const struct member *member = &m->group->members[s->root];
        struct rankset about = { { 0 } };
        char detail[96];
        rankset_add(&about, s->root);
        describe_gone_root(s, member->loss, detail, sizeof(detail));
        meeting_end(r, m,
                &(struct reason){ .status = status_without_root(s->kind),
                        .field = FIELD_ROOT,
                        .loss = member->loss,
                        .entry = -1,
                        .rank = (int32_t)s->root,
                        .about = &about,
                        .age_ns = now_ns - m->first_ns,
                        .detail = detail },
                now_ns, out);
}

/* Nobody is left in it: nobody is told. */
static void dissolve(struct rendezvous *r, struct meeting *m, uint64_t now_ns) {
        struct circle *c = circle_of(m->group);
        meeting_detach(r, m);
        meeting_recycle(r, m);
        stall_check(r, c, now_ns);
}

static bool has_any(const struct meeting *m, const struct rankset *gone) {
        rankset_for_each (rank, gone) {
                if (rankset_has(&m->have, (unsigned int)rank))
                        return true;
        }
        return false;
}

static void meeting_strike(struct rendezvous *r, struct meeting *m, uint64_t now_ns, struct outcome *out) {
        const struct circle *c = circle_of(m->group);
        const struct rankset *gone = &c->gone;
        const struct half *needy;
        if (!m->has_root && m->n_halves < c->n_alive && !has_any(m, gone))
                return; /* it waits as before, for one fewer */
        strike_halves(m, gone, out);
        if (m->n_halves == 0)
                dissolve(r, m, now_ns);
        else if ((needy = find_needy(m, gone)))
                end_without_root(r, m, needy, now_ns, out);
        else {
                meeting_set_alarm(r, m);
                meeting_settle(r, m, now_ns, out);
        }
}

static void circle_strike(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out) {
        out->n_looked += c->group.n_meetings;
        list_for_each_safe (it, tmp, &c->group.meetings) {
                struct meeting *m = list_entry(it, struct meeting, group_link);
                if (m->state == MEETING_GATHERING)
                        meeting_strike(r, m, now_ns, out);
        }
}

/* --- what a group does about those who went --- */

static void circle_lose_joiner(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out) {
        struct reason why = loss_reason(&c->group, &c->gone, now_ns);
        error_init(c->failure, STATUS_REPLICA_LOST);
        reason_fill(&why, c->failure);
        circle_unform(r, c, &c->gone, now_ns, out);
}

/* WHOLE, and members that were alive are gone. */
static void circle_lose(
        struct rendezvous *r, struct circle *c, const struct departure *how, struct outcome *out) {
        if (how->state == MEMBER_LEFT || c->group.on_death == ON_DEATH_SHRINK)
                circle_strike(r, c, how->now_ns, out);
        else
                circle_fail(r, c, how->now_ns, out);
}

static void circle_go_on(
        struct rendezvous *r, struct circle *c, const struct departure *how, struct outcome *out) {
        if (c->group.state == GROUP_FORMING && c->n_resumers > 0) {
                circle_try_restore(r, c, how->now_ns, out);
        } else if (c->group.state == GROUP_FORMING) {
                circle_lose_joiner(r, c, how->now_ns, out);
        } else {
                if (c->group.state == GROUP_WHOLE && !rankset_is_empty(&c->gone))
                        circle_lose(r, c, how, out);
                if (c->n_present == 0)
                        circle_end(r, c, out);
                else
                        circle_try_reform(r, c, how->now_ns, out);
        }
        c->gone = (struct rankset){ { 0 } };
}

static void all_go(
        struct rendezvous *r, struct list *members, const struct departure *how, struct outcome *out) {
        struct list circles, *link;
        list_init(&circles);
        while ((link = list_take_first(members)))
                member_go(r, list_entry(link, struct member, session_link), how, &circles, out);
        list_for_each (it, &circles) { /* in all of them first: what goes on may need the room for new ones */
                struct circle *c = list_entry(it, struct circle, gone_link);
                debts_forgive(c, &c->gone);
        }
        while ((link = list_take_first(&circles)))
                circle_go_on(r, list_entry(link, struct circle, gone_link), how, out);
}

enum status rendezvous_leave(struct rendezvous *r, uint64_t session, uint64_t membership, uint64_t now_ns,
        struct outcome *out, struct error *err) {
        struct member *member = rendezvous_find_member(r, session, membership);
        if (!member || member->state != MEMBER_JOINING) {
                enum status status = member_find_alive(r, session, membership, now_ns, &member, err);
                if (status != STATUS_OK)
                        return status;
        }
        struct list leavers;
        list_init(&leavers);
        outcome_put(&leavers, &member->session_link);
        party_drop(r, party_find(r, session));
        all_go(r, &leavers, &(struct departure){ .state = MEMBER_LEFT, .loss = LOSS_WENT, .now_ns = now_ns },
                out);
        return STATUS_OK;
}

/* Every membership of a session goes the same way. */
static void party_goes(
        struct rendezvous *r, uint64_t session, const struct departure *how, struct outcome *out) {
        struct party *party = party_find(r, session);
        if (!party)
                return;
        struct list members;
        list_init(&members);
        list_splice(&members, &party->members);
        party_drop(r, party);
        all_go(r, &members, how, out);
}

void rendezvous_leave_all(struct rendezvous *r, uint64_t session, uint64_t now_ns, struct outcome *out) {
        party_goes(r, session,
                &(struct departure){ .state = MEMBER_LEFT, .loss = LOSS_WENT, .now_ns = now_ns }, out);
}

void rendezvous_lose(struct rendezvous *r, uint64_t session, enum loss loss, const char *why, uint64_t now_ns,
        struct outcome *out) {
        party_goes(r, session,
                &(struct departure){ .state = MEMBER_LOST, .loss = loss, .why = why, .now_ns = now_ns }, out);
}

/* --- tuttid goes --- */

#define DRAIN_DETAIL "tuttid is being stopped and takes nothing new"

static void circle_drain(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out) {
        list_for_each_safe (it, tmp, &c->group.meetings) {
                struct meeting *m = list_entry(it, struct meeting, group_link);
                if (m->state != MEETING_GATHERING)
                        continue;
                meeting_end(r, m,
                        &(struct reason){ .status = STATUS_DRAINING,
                                .entry = -1,
                                .rank = -1,
                                .age_ns = now_ns - m->first_ns,
                                .detail = DRAIN_DETAIL },
                        now_ns, out);
        }
}

void rendezvous_drain(struct rendezvous *r, uint64_t now_ns, struct outcome *out) {
        struct group *next, *g = rendezvous_next_group(r, NULL);
        for (; g; g = next) {
                struct circle *c = circle_of(g);
                next = rendezvous_next_group(r, g);
                if (g->state != GROUP_FORMING) {
                        circle_drain(r, c, now_ns, out);
                        continue;
                }
                error_init(c->failure, STATUS_DRAINING);
                error_set_detail(c->failure, DRAIN_DETAIL);
                circle_unform(r, c, NULL, now_ns, out);
        }
}

void rendezvous_end_forming(struct rendezvous *r, uint64_t now_ns, struct outcome *out) {
        struct group *next, *g = rendezvous_next_group(r, NULL);
        for (; g; g = next) {
                struct circle *c = circle_of(g);
                next = rendezvous_next_group(r, g);
                if (g->state != GROUP_FORMING)
                        continue;
                error_init(c->failure, STATUS_DRAINING);
                c->failure->field = FIELD_GROUP;
                circle_unform(r, c, NULL, now_ns, out);
        }
}
