/* What speaks for collectives that are run without rendezvous: the record, the counters and whoever asks what
 * a member has finished see them as they see all others. */
#include "rendezvous-internal.h"

bool rendezvous_is_quiet(const struct group *g) {
        const struct circle *c = circle_of((struct group *)(uintptr_t)g);
        return g->state == GROUP_WHOLE && g->n_meetings == 0 && g->n_debts == 0 && g->n_reforms == 0 &&
               rankset_is_empty(&c->busy);
}

struct meeting *rendezvous_stand(
        struct rendezvous *r, struct group *g, const struct rankset *have, struct error *err) {
        struct circle *c = circle_of(g);
        struct meeting *m = meeting_make(r, c, err);
        if (!m)
                return NULL;
        m->state = MEETING_ENDED;
        m->have = *have;
        m->n_halves = (uint32_t)rankset_count(have);
        list_append(&c->ended, &m->group_link);
        return m;
}

void rendezvous_note_stood(struct meeting *m) {
        if (m->status == STATUS_OK)
                meeting_note_finished(m, m->done_ns);
        rankset_for_each (rank, &m->have) {
                struct member *member = &m->group->members[rank];
                if (member->first_epoch <= m->epoch)
                        member->n_submitted++;
        }
}

void rendezvous_set_next_number(struct group *g, uint64_t number) {
        g->next_number = number;
}
