/* How a group is carried over from the tuttid before (P9): its members come back with what they know, and
 * when all are there whom it needs, it goes on in the same epoch, with its numbers of collectives and its
 * debts. What the others know of each member's unfinished requests is decided then (resume.h). */
#include "rendezvous-internal.h"

#include <stdlib.h>
#include "base/cleanup.h"

#define MEMBERS_A_LOOK                                                                                       \
        8 /* whose word on all others is read in the time of a meeting that is walked through */

/* --- who is who --- */

static struct resume *resume_of(const struct circle *c, uint32_t rank) {
        const struct member *m = &c->group.members[rank];
        return m->state == MEMBER_JOINING ? m->resume : NULL;
}

/* The latest epoch that somebody knows: who was not told of it yet had called for it (P5). */
static uint64_t latest_epoch(const struct circle *c) {
        uint64_t epoch = 0;
        for (uint32_t rank = 0; rank < c->group.world_size; rank++) {
                const struct resume *resume = resume_of(c, rank);
                if (resume && resume->epoch > epoch)
                        epoch = resume->epoch;
        }
        return epoch;
}

/* Whom the epoch needs: who is in it and not known to be lost, as far as anybody who is back knows. */
struct needs {
        struct rankset members, lost; /* lost: of the members */
};

static void intersect(struct rankset *a, const struct rankset *b) {
        struct rankset rest = rankset_minus(a, b);
        *a = rankset_minus(a, &rest);
}

static struct needs circle_needs(const struct circle *c, uint64_t epoch) {
        struct needs needs = { .members = rankset_first(c->group.world_size) };
        for (uint32_t rank = 0; rank < c->group.world_size; rank++) {
                const struct resume *resume = resume_of(c, rank);
                if (!resume || resume->epoch != epoch)
                        continue;
                intersect(&needs.members, &resume->members);
                rankset_unite(&needs.lost, &resume->lost);
        }
        intersect(&needs.lost, &needs.members);
        return needs;
}

static struct rankset resumers(const struct circle *c) {
        struct rankset s = { { 0 } };
        for (uint32_t rank = 0; rank < c->group.world_size; rank++)
                if (resume_of(c, rank))
                        rankset_add(&s, rank);
        return s;
}

/* --- what becomes of their requests --- */

static void make_debts(struct rendezvous *r, struct circle *c, const struct owed *owed, uint32_t n,
        uint64_t now_ns, struct outcome *out) {
        for (uint32_t i = 0; i < n; i++) {
                struct lookup l;
                const struct reason why = { .status = owed[i].status,
                        .entry = -1,
                        .rank = -1,
                        .detail = "it ended before tuttid was restarted" };
                lookup_make(r, &c->group, &owed[i].key, &l);
                debt_make(r, c, &l, &owed[i].key, &owed[i].debtors, &why, now_ns, out);
        }
}

/* Without memory for it, what is not known to be done is lost: no number is wrong then. */
static void decide(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out) {
        struct resume *of_epoch[MAX_WORLD] = { NULL };
        struct owed *owed = NULL;
        uint32_t n = 0, n_owed = 0;
        for (uint32_t rank = 0; rank < c->group.world_size; rank++) {
                struct resume *resume = resume_of(c, rank);
                if (!resume)
                        continue;
                resume->rank = rank;
                if (resume->epoch == c->group.epoch)
                        of_epoch[n++] = resume;
                else
                        resume_end(resume, STATUS_REPLICA_LOST);
        }
        if (resume_decide(of_epoch, n, &owed, &n_owed) == 0)
                make_debts(r, c, owed, n_owed, now_ns, out);
        else
                for (uint32_t i = 0; i < n; i++)
                        resume_end(of_epoch[i], STATUS_OUTPUT_LOST);
        free(owed);
}

/* --- the group --- */

static uint64_t next_number(const struct circle *c) {
        uint64_t number = 0;
        for (uint32_t rank = 0; rank < c->group.world_size; rank++) {
                const struct resume *resume = resume_of(c, rank);
                if (resume && resume->epoch == c->group.epoch && resume->number > number)
                        number = resume->number;
        }
        return number + 1;
}

static void begin(struct circle *c, const struct rankset *alive) {
        struct group *g = &c->group;
        g->epoch = latest_epoch(c);
        g->next_number = next_number(c);
        g->state = GROUP_WHOLE;
        g->is_restored = true;
        g->alive = *alive;
        c->n_alive = rankset_count(alive);
}

static void admit(struct circle *c) {
        rankset_for_each (rank, &c->group.alive) {
                struct member *m = &c->group.members[rank];
                m->state = MEMBER_ALIVE;
                m->first_epoch = c->group.epoch;
        }
}

static void fail(struct circle *c, const struct rankset *lost, uint64_t now_ns) {
        struct group *g = &c->group;
        uint32_t rank = (uint32_t)rankset_next(lost, 0);
        debts_drop(c);
        g->state = GROUP_FAILED;
        g->lost_rank = (int32_t)rank;
        g->loss = LOSS_DISCONNECTED;
        g->lost_ns = now_ns;
        text_copy(g->lost_why, sizeof(g->lost_why), "it did not come back after a restart of tuttid");
        group_report(g, rank, now_ns, &g->lost);
}

/* Who came without a past waits until the group is formed anew; for whom there is no room, goes. */
static void let_newcomers_wait(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out) {
        for (uint32_t rank = 0; rank < c->group.world_size; rank++) {
                struct member *m = &c->group.members[rank];
                const struct reform_ask ask = { .session = m->session,
                        .request = m->join_request,
                        .membership = m->id,
                        .kind = REFORM_JOIN };
                if (m->state != MEMBER_JOINING || reform_begin(r, m, &ask, now_ns))
                        continue;
                text_copy(m->why, sizeof(m->why), "tuttid is short of memory");
                outcome_put(&out->ejected, &m->outcome_link);
        }
}

void circle_restore(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out) {
        struct group *g = &c->group;
        struct needs needs = circle_needs(c, latest_epoch(c));
        struct rankset back = resumers(c), away = rankset_minus(&needs.members, &back);
        clocks_set(&r->clocks, g->uid, ALARM_JOINING, &g->join_deadline, ALARM_NEVER);
        free(take_pointer(c->failure));
        begin(c, &back);
        decide(r, c, now_ns, out);
        admit(c);
        if (!rankset_is_empty(&away) && g->on_death == ON_DEATH_FAIL)
                fail(c, &away, now_ns);
        let_newcomers_wait(r, c, now_ns, out);
        outcome_put(&out->formed, &g->outcome_link);
}

void circle_try_restore(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out) {
        struct needs needs = circle_needs(c, latest_epoch(c));
        out->n_looked += c->group.world_size / MEMBERS_A_LOOK;
        struct rankset waited_for = rankset_minus(&needs.members, &needs.lost);
        rankset_for_each (rank, &waited_for) {
                if (c->group.members[rank].state != MEMBER_JOINING)
                        return;
        }
        circle_restore(r, c, now_ns, out);
}

/* --- afterwards --- */

void member_drop_resume(struct circle *c, struct member *m) {
        if (!m->resume)
                return;
        resume_free(take_pointer(m->resume));
        c->n_resumers--;
}

void rendezvous_drop_resumes(struct group *g) {
        for (uint32_t rank = 0; rank < g->world_size; rank++)
                member_drop_resume(circle_of(g), &g->members[rank]);
}
