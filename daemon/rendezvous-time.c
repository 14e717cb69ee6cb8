/* Deadlines, the clocks that busy stops, and stalls (P6). */
#include "rendezvous-internal.h"

/* --- the clock of a half --- */

/* While somebody who is missing is busy the clock of a meeting stands, and with it that of each half whose
 * deadline is soft. It is one clock for all of them, and nobody touches the halves or moves an alarm when it
 * stops or goes on: a group may have thousands of meetings, and busy may come and go. A half notes how long
 * the clock had stood when it came; an alarm that rings too early is set anew. */

/* How long the meeting's clock has stood by now. */
static uint64_t stood_ns(const struct meeting *m, uint64_t now_ns) {
        uint64_t now_standing = m->paused_ns && now_ns > m->paused_ns ? now_ns - m->paused_ns : 0;
        return m->paused_total_ns + now_standing;
}

static void choose_deadline(
        const struct rendezvous *r, const struct member *member, struct half *half, uint64_t now_ns) {
        uint64_t timeout_ns = r->settings.default_timeout_ns;
        if (half->has_timeout)
                timeout_ns = half->timeout_ns;
        else if (member->has_default_timeout)
                timeout_ns = member->default_timeout_ns;
        half->deadline_ns = deadline_after(now_ns - half->held_ns, timeout_ns);
        half->deadline_is_soft = !half->has_timeout;
}

/* Somebody who is missing is busy. */
static bool is_excused(const struct meeting *m) {
        return !rankset_is_subset(&circle_of(m->group)->busy, &m->have);
}

/* ALARM_NEVER: it has none, or its clock stands. */
static uint64_t due_ns(const struct meeting *m, const struct half *half) {
        uint64_t at_ns = half->deadline_ns;
        if (!half->deadline_is_soft || at_ns == ALARM_NEVER)
                return at_ns;
        if (m->paused_ns)
                return ALARM_NEVER;
        if (m->paused_total_ns > half->paused_before_ns &&
                __builtin_add_overflow(at_ns, m->paused_total_ns - half->paused_before_ns, &at_ns))
                return ALARM_NEVER;
        return at_ns;
}

/* Of halves whose clock runs, the one whose deadline is first; NULL when none has one. */
static const struct half *first_due(const struct meeting *m, uint64_t *ret_ns) {
        const struct half *first = NULL;
        *ret_ns = ALARM_NEVER;
        rankset_for_each (rank, &m->have) {
                uint64_t at_ns = due_ns(m, m->halves[rank]);
                if (at_ns >= *ret_ns)
                        continue;
                *ret_ns = at_ns;
                first = m->halves[rank];
        }
        return first;
}

void meeting_set_alarm(struct rendezvous *r, struct meeting *m) {
        uint64_t at_ns;
        (void)first_due(m, &at_ns);
        m->alarm_is_partial = m->paused_ns != 0;
        clocks_set(&r->clocks, m->group->uid, ALARM_DEADLINE, &m->deadline, at_ns);
}

void half_start_clock(struct rendezvous *r, struct meeting *m, struct half *half, uint64_t now_ns) {
        choose_deadline(r, &m->group->members[half->rank], half, now_ns);
        if (!m->paused_ns && is_excused(m))
                m->paused_ns = now_ns;
        half->paused_before_ns = stood_ns(m, now_ns);
        uint64_t at_ns = due_ns(m, half);
        m->alarm_is_partial |= m->paused_ns != 0;
        if (at_ns < m->deadline.at_ns)
                clocks_set(&r->clocks, m->group->uid, ALARM_DEADLINE, &m->deadline, at_ns);
}

/* --- busy --- */

static void meeting_resume(struct rendezvous *r, struct meeting *m, uint64_t at_ns) {
        m->paused_total_ns = stood_ns(m, at_ns);
        m->paused_ns = 0;
        if (m->alarm_is_partial)
                meeting_set_alarm(r, m);
}

static void circle_pause(struct circle *c, uint64_t now_ns, struct outcome *out) {
        out->n_looked += c->group.n_meetings;
        list_for_each (it, &c->group.meetings) {
                struct meeting *m = list_entry(it, struct meeting, group_link);
                if (m->state == MEETING_GATHERING && !m->paused_ns && is_excused(m))
                        m->paused_ns = now_ns;
        }
}

static void circle_resume(struct rendezvous *r, struct circle *c, uint64_t at_ns, struct outcome *out) {
        out->n_looked += c->group.n_meetings;
        list_for_each (it, &c->group.meetings) {
                struct meeting *m = list_entry(it, struct meeting, group_link);
                if (m->state == MEETING_GATHERING && m->paused_ns && !is_excused(m))
                        meeting_resume(r, m, at_ns);
        }
}

void member_end_busy(struct rendezvous *r, struct member *member, uint64_t at_ns, struct outcome *out) {
        struct circle *c = circle_of(member->group);
        if (!rankset_has(&c->busy, member->rank))
                return;
        if (member->busy_end.at_ns < at_ns)
                at_ns = member->busy_end.at_ns;
        member->busy[0] = '\0';
        clocks_set(&r->clocks, c->group.uid, ALARM_BUSY_END, &member->busy_end, ALARM_NEVER);
        rankset_remove(&c->busy, member->rank);
        circle_resume(r, c, at_ns, out);
}

static uint64_t busy_end(const struct rendezvous *r, uint64_t duration_ns, uint64_t now_ns) {
        uint64_t max_ns = r->settings.busy_max_ns;
        return deadline_after(now_ns, max_ns && max_ns < duration_ns ? max_ns : duration_ns);
}

enum status rendezvous_busy(struct rendezvous *r, uint64_t session, const struct msg_busy *ask,
        uint64_t now_ns, struct outcome *out, struct error *err) {
        struct member *member;
        enum status status = member_find_alive(r, session, ask->membership, now_ns, &member, err);
        if (status != STATUS_OK)
                return status;
        if (ask->duration_ns == 0) {
                member_end_busy(r, member, now_ns, out);
                return STATUS_OK;
        }
        struct circle *c = circle_of(member->group);
        bool was_busy = rankset_has(&c->busy, member->rank);
        text_copy(member->busy, sizeof(member->busy), ask->why[0] ? ask->why : "busy");
        clocks_set(&r->clocks, c->group.uid, ALARM_BUSY_END, &member->busy_end,
                busy_end(r, ask->duration_ns, now_ns));
        rankset_add(&c->busy, member->rank);
        if (!was_busy)
                circle_pause(c, now_ns, out);
        return STATUS_OK;
}

/* --- stalls --- */

/* Those that run stand among those that gather: the place where it was found last is where it goes on, or a
 * group that seals many at once would be walked through for each. */
static const struct meeting *oldest_gathering(struct circle *c) {
        for (; c->oldest != &c->group.meetings; c->oldest = c->oldest->next) {
                const struct meeting *m = list_entry(c->oldest, const struct meeting, group_link);
                if (m->state == MEETING_GATHERING)
                        return m;
        }
        return NULL;
}

const struct meeting *rendezvous_oldest(const struct group *g) {
        return oldest_gathering(circle_of((struct group *)(uintptr_t)g));
}

static void stall_set(struct rendezvous *r, struct circle *c, uint64_t at_ns) {
        clocks_set(&r->clocks, c->group.uid, ALARM_STALL, &c->group.stall, at_ns);
}

void stall_watch(struct rendezvous *r, struct circle *c, uint64_t now_ns) {
        if (c->group.stall.at_ns == ALARM_NEVER)
                stall_set(r, c, deadline_after(now_ns, r->settings.stall_warn_ns));
}

/* Sets the alarm to when the oldest meeting will have stalled; whether it has. */
static bool stall_look(struct rendezvous *r, struct circle *c, uint64_t now_ns) {
        const struct meeting *oldest = oldest_gathering(c);
        uint64_t at_ns = oldest ? deadline_after(oldest->first_ns, r->settings.stall_warn_ns) : ALARM_NEVER;
        c->group.is_stalled = at_ns <= now_ns;
        if (!c->group.is_stalled)
                stall_set(r, c, at_ns);
        return c->group.is_stalled;
}

void stall_check(struct rendezvous *r, struct circle *c, uint64_t now_ns) {
        if (c->group.is_stalled)
                (void)stall_look(r, c, now_ns);
}

static void stall_fire(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out) {
        if (!stall_look(r, c, now_ns))
                return;
        uint64_t again_ns = c->stall_reported_ns + r->settings.stall_warn_ns;
        if (c->stall_reported_ns == 0 || again_ns <= now_ns) {
                outcome_put(&out->stalled, &c->group.outcome_link);
                c->stall_reported_ns = now_ns;
                again_ns = deadline_after(now_ns, r->settings.stall_warn_ns);
        }
        stall_set(r, c, again_ns);
}

/* --- what is due --- */

/* Its alarm was set for `rang_ns`. */
static void meeting_expire(
        struct rendezvous *r, struct meeting *m, uint64_t rang_ns, uint64_t now_ns, struct outcome *out) {
        uint64_t at_ns;
        const struct half *due = first_due(m, &at_ns);
        /* Its clock stands, or has stood since the alarm was set. What is due later has its turn then,
         * however late we wake: a pause may end before. */
        if (at_ns > rang_ns) {
                meeting_set_alarm(r, m);
                return;
        }
        struct rankset missing = rankset_minus(&m->group->alive, &m->have);
        meeting_end(r, m,
                &(struct reason){ .status = STATUS_TIMEOUT,
                        .entry = -1,
                        .rank = (int32_t)due->rank,
                        .about = &missing,
                        .age_ns = now_ns - due->arrived_ns + due->held_ns },
                now_ns, out);
}

uint64_t rendezvous_next_ns(const struct rendezvous *r) {
        return clocks_next_ns(&r->clocks);
}

static void ring_deadline(struct rendezvous *r, struct meeting *m, uint64_t now_ns, struct outcome *out) {
        const uint64_t rang_ns = m->deadline.at_ns;
        clocks_set(&r->clocks, m->group->uid, ALARM_DEADLINE, &m->deadline, ALARM_NEVER);
        meeting_expire(r, m, rang_ns, now_ns, out);
}

static void ring_joining(struct rendezvous *r, struct group *g, uint64_t now_ns, struct outcome *out) {
        clocks_set(&r->clocks, g->uid, ALARM_JOINING, &g->join_deadline, ALARM_NEVER);
        circle_join_deadline(r, circle_of(g), now_ns, out);
}

static void ring_reforming(
        struct rendezvous *r, struct reform *reform, uint64_t now_ns, struct outcome *out) {
        clocks_set(&r->clocks, reform->group->uid, ALARM_REFORMING, &reform->deadline, ALARM_NEVER);
        reform_expire(r, reform, now_ns, out);
}

static void ring_stall(struct rendezvous *r, struct group *g, uint64_t now_ns, struct outcome *out) {
        stall_set(r, circle_of(g), ALARM_NEVER);
        stall_fire(r, circle_of(g), now_ns, out);
}

/* How much of a call's share it takes: a group that forms may tell all of its members. */
static uint32_t ring(struct rendezvous *r, enum alarm_kind kind, struct alarm *alarm, uint64_t now_ns,
        struct outcome *out) {
        switch (kind) {
        case ALARM_BUSY_END: /* as of when it was due, so it stays set until then */
                member_end_busy(r, list_entry(alarm, struct member, busy_end), now_ns, out);
                return 1;
        case ALARM_DEADLINE:
                ring_deadline(r, list_entry(alarm, struct meeting, deadline), now_ns, out);
                return 1;
        case ALARM_JOINING:
                ring_joining(r, list_entry(alarm, struct group, join_deadline), now_ns, out);
                return EXPIRIES_A_CALL;
        case ALARM_REFORMING:
                ring_reforming(r, list_entry(alarm, struct reform, deadline), now_ns, out);
                return 1;
        case ALARM_STALL: ring_stall(r, list_entry(alarm, struct group, stall), now_ns, out); return 1;
        case N_ALARM_KINDS: break;
        }
        CHECK(false);
        return 1;
}

/* Those of one user in the order in which they were due, so that the end of a pause before a deadline moves
 * it, however late we wake. */
void rendezvous_expire(struct rendezvous *r, uint64_t now_ns, struct outcome *out) {
        uint64_t n_looked = out->n_looked;
        for (uint32_t n = 0; n < EXPIRIES_A_CALL && out->n_looked - n_looked < LOOKS_A_CALL;) {
                enum alarm_kind kind;
                struct alarm *alarm = clocks_next_due(&r->clocks, now_ns, &kind);
                if (!alarm)
                        return;
                n += ring(r, kind, alarm, now_ns, out);
        }
}
