/* What has ended and takes long to tell, on its way to those who wait for it.
 *
 * One death or one instant may end thousands of collectives, each of which is told to all of its members; and
 * one that has run may have a million lengths to tell, a packet of them at a time. So a turn tells a share,
 * users in turn: beside what it does for sessions, so that these go on, and no more than once that much
 * (P21). What ends since tuttid is stopped is told at once: nobody comes back. */
#include "conductor-internal.h"

#define RANKS_A_TURN 512 /* whose records are closed */

/* --- what each half is told --- */

/* What ran without a task had nothing to look at. */
static struct findings conductor_found(const struct meeting *m) {
        const struct task *t = m->task;
        struct findings none = { 0 };
        return t ? t->found : none;
}

/* Whether the GPU worker has run it, and so has told the streams that wait for it. */
static bool was_told_on_device(const struct meeting *m) {
        const struct task *t = m->task;
        return m->status == STATUS_OK && t && t->plan.device >= DEVICE_GPU && t->plan.n_chunks > 0;
}

static uint32_t n_entries_of(const struct meeting *m) {
        return m->halves[rankset_next(&m->have, 0)]->signature.n_entries;
}

/* The lengths of its results from entry `from` on, as many as one packet holds. Whether there are more. */
static bool fill_extents(
        struct conductor *c, const struct meeting *m, uint32_t half, uint32_t from, struct msg_done *done) {
        const struct task *t = m->task;
        uint32_t n_entries = n_entries_of(m);
        done->extents = c->extents;
        done->firsts = c->firsts;
        done->n_extents = 0;
        if (!t || t->plan.n_extents == 0)
                return false;
        for (; from < n_entries && done->n_extents < MAX_PART_EXTENTS; from++) {
                const uint64_t *extents = plan_extents(&t->plan, from);
                c->extents[done->n_extents] = extents[m->n_halves];
                c->firsts[done->n_extents++] = extents[half];
        }
        c->work += done->n_extents;
        return from < n_entries;
}

struct msg_done conductor_describe_done(const struct meeting *m, const struct half *half) {
        return (struct msg_done){ .collective = m->number,
                .contributors = m->have,
                .n_contributors = m->n_halves,
                .op = half->signature.op,
                .wait_ns = m->sealed_ns - half->arrived_ns,
                .run_ns = m->done_ns - m->sealed_ns,
                .last_rank = m->last_rank,
                .found = conductor_found(m),
                .result = m->has_slot ? result_id(half->object) : 0,
                .slot = m->slot,
                .is_kept = half->is_kept };
}

/* The first that its session hears of the end. */
static void begin_to_tell(
        struct conductor *c, struct session *s, const struct meeting *m, const struct half *half) {
        if (s)
                s->n_unfinished--;
        if (half->signal.value && !was_told_on_device(m))
                conductor_say_done(c, half);
}

/* A lost detail (memory was short when it was made) leaves the status, which is always right. */
static void tell_failure(
        struct conductor *c, struct session *s, const struct meeting *m, const struct half *half) {
        const struct task *t = m->task;
        bool is_culprit = t && t->culprit_session != 0 && t->culprit_session == half->session;
        enum status status = is_culprit ? STATUS_BAD_FD : m->status;
        conductor_reply_status(c, s, half->request, status, is_culprit ? NULL : m->error);
}

/* One half's end, from its entry `from` on: as many as one packet holds. Where it goes on; 0: nowhere. */
static uint32_t tell_from(struct conductor *c, const struct meeting *m, struct telling at) {
        const struct half *half = m->halves[at.rank];
        struct session *s = session_find(c->house.sessions, half->session);
        if (at.n_entries == 0)
                begin_to_tell(c, s, m, half);
        if (m->status != STATUS_OK) {
                tell_failure(c, s, m, half);
                return 0;
        }
        struct reply reply = { .request = half->request,
                .status = STATUS_OK,
                .type = REPLY_DONE,
                .done = conductor_describe_done(m, half) };
        reply.more = fill_extents(c, m, at.index, at.n_entries, &reply.done);
        conductor_reply(c, s, &reply);
        return reply.more ? at.n_entries + reply.done.n_extents : 0;
}

void conductor_tell_half(struct conductor *c, const struct meeting *m, uint32_t index, int rank) {
        uint32_t left = tell_from(c, m, (struct telling){ .index = index, .rank = (uint32_t)rank });
        CHECK(left == 0); /* what has more is told in parts */
}

/* One packet, and on to the next one. Whether there is another. */
static bool tell_next(struct conductor *c, struct meeting *m) {
        struct telling *at = &m->telling;
        at->n_entries = tell_from(c, m, *at);
        if (at->n_entries > 0)
                return true;
        int next = rankset_next(&m->have, at->rank + 1);
        at->index++;
        at->rank = (uint32_t)next;
        return next >= 0;
}

/* --- in turns --- */

bool conductor_tell_in_parts(struct conductor *c, struct meeting *m) {
        const struct task *t = m->task;
        if (m->status != STATUS_OK || !t || t->plan.n_extents == 0 ||
                (uint64_t)m->n_halves * n_entries_of(m) <= MAX_PART_EXTENTS)
                return false;
        m->telling = (struct telling){ .is_begun = true, .rank = (uint32_t)rankset_next(&m->have, 0) };
        turns_put(&c->ended, m->group->uid, &m->outcome_link);
        return true;
}

void conductor_tell_formed(struct conductor *c, struct group *g) {
        g->formed = g->alive; /* some may have gone before it is told */
        if (g->n_untold == 0)
                conductor_formed(c, g);
        else
                g->is_formed_untold = true;
}

static void tell_part(struct conductor *c, struct meeting *m) {
        if (tell_next(c, m))
                turns_put(&c->ended, m->group->uid, &m->outcome_link);
        else
                conductor_told(c, m);
}

static void tell_unsealed(struct conductor *c, struct meeting *m) {
        struct group *g = m->group;
        conductor_finish(c, m);
        if (--g->n_untold > 0 || !g->is_formed_untold)
                return;
        g->is_formed_untold = false;
        conductor_formed(c, g);
}

static void tell_share(struct conductor *c, struct meeting *m) {
        if (m->telling.is_begun)
                tell_part(c, m);
        else
                tell_unsealed(c, m);
}

static struct meeting *take_ended(struct conductor *c) {
        struct list *first = turns_take(&c->ended);
        return first ? list_entry(first, struct meeting, outcome_link) : NULL;
}

void conductor_tell_ended(struct conductor *c) {
        const uint64_t work = c->work;
        const bool is_stopped = c->is_draining || c->is_over;
        struct list *it;
        while ((it = list_take_first(&c->outcome.ended))) {
                struct meeting *m = list_entry(it, struct meeting, outcome_link);
                m->group->n_untold++;
                turns_put(&c->ended, m->group->uid, it);
        }
        struct meeting *m;
        while ((is_stopped || c->told_work + c->work - work < TURN_WORK) && (m = take_ended(c)))
                tell_share(c, m);
        c->told_work += c->work - work;
        c->work = work;
}

bool conductor_has_ended(const struct conductor *c) {
        return !list_is_empty(&c->ended.waiting);
}

/* --- groups --- */

/* Who was in it is kept, rank for rank. A turn's share, beside what sessions have: one of these may end with
 * very many groups. */
void conductor_close_records(struct conductor *c) {
        const bool is_stopped = c->is_draining || c->is_over;
        struct list *it;
        while ((is_stopped || c->n_closed < RANKS_A_TURN) && (it = turns_take(&c->over))) {
                struct group *g = list_entry(it, struct group, outcome_link);
                c->n_closed += g->world_size;
                conductor_end_record(c, g);
                stats_end_group(c->house.stats, g->id);
                rendezvous_forget(c->house.rendezvous, g);
        }
}

/* --- processes --- */

/* Known for this turn: what ends together is told of the same few, and /proc takes its time. */
static enum process_state probe(struct conductor *c, struct session *s) {
        if (s->probed_ns != c->now_ns) {
                s->process_state = session_probe(s);
                s->probed_ns = c->now_ns;
                c->work += ROW_WORK;
        }
        return s->process_state;
}

void conductor_probe(struct conductor *c, const struct group *g, uint32_t n, struct replica_report *reports) {
        for (uint32_t i = 0; i < n; i++) {
                if (reports[i].state != PROCESS_UNKNOWN || reports[i].rank >= g->world_size)
                        continue;
                const struct member *m = &g->members[reports[i].rank];
                struct session *s = session_find(c->house.sessions, m->session);
                if (s && m->pid == reports[i].pid) /* who came after it is not meant */
                        reports[i].state = probe(c, s);
        }
}
