/* What has ended unsealed, on its way to those who wait for it.
 *
 * One death or one instant may end thousands of collectives, each of which is told to all of its members. So
 * a turn tells a share of them, users in turn: beside what it does for sessions, so that these go on, and no
 * more than once that much (P21). What ends since tuttid is stopped is told at once: nobody comes back. */
#include "conductor-internal.h"

void conductor_tell_formed(struct conductor *c, struct group *g) {
        if (g->n_untold == 0)
                conductor_formed(c, g);
        else
                g->is_formed_untold = true;
}

static void tell(struct conductor *c, struct meeting *m) {
        struct group *g = m->group;
        conductor_finish(c, m);
        if (--g->n_untold > 0 || !g->is_formed_untold)
                return;
        g->is_formed_untold = false;
        conductor_formed(c, g);
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
                tell(c, m);
        c->told_work += c->work - work;
        c->work = work;
}

bool conductor_has_ended(const struct conductor *c) {
        return !list_is_empty(&c->ended.waiting);
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
