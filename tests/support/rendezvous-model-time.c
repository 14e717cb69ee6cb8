/* What the model does when time goes on, tick by tick. */
#include "rendezvous-model-internal.h"

static bool is_excused(const struct model_group *g, const struct model_meeting *meeting) {
        for (int rank = 0; rank < g->world; rank++)
                if (g->members[rank].state == MEMBER_ALIVE && g->members[rank].busy > 0 &&
                        !meeting->halves[rank].is_here)
                        return true;
        return false;
}

static void run_clocks(struct model_group *g) {
        for (int k = 0; k < g->n_meetings; k++) {
                struct model_meeting *meeting = &g->meetings[k];
                bool stands = is_excused(g, meeting);
                meeting->age++;
                for (int rank = 0; rank < g->world; rank++)
                        if (meeting->halves[rank].left > 0 && !(stands && meeting->halves[rank].is_soft))
                                meeting->halves[rank].left--;
        }
        for (int rank = 0; rank < g->world; rank++) {
                g->members[rank].busy -= g->members[rank].busy > 0;
                g->members[rank].join_left -= g->members[rank].join_left > 0;
                g->members[rank].wish_left -= g->members[rank].wish_left > 0;
        }
}

static void expire_meetings(struct model *m, struct model_group *g) {
        for (int k = g->n_meetings - 1; k >= 0; k--)
                for (int rank = 0; rank < g->world && !g->meetings[k].runs; rank++)
                        if (g->meetings[k].halves[rank].is_here && g->meetings[k].halves[rank].left == 0) {
                                model_end_meeting(m, g, &g->meetings[k], STATUS_TIMEOUT, STATUS_OK, rank);
                                break;
                        }
}

static void expire_join(struct model *m, struct model_group *g) {
        int first = -1;
        for (int rank = 0; rank < g->world; rank++) {
                const struct model_member *member = &g->members[rank];
                if (member->state == MEMBER_JOINING && member->join_left == 0 &&
                        (first < 0 || member->order < g->members[first].order))
                        first = rank;
        }
        if (first >= 0)
                model_unform(m, g, STATUS_TIMEOUT, first);
}

/* Each for itself. */
static void expire_wishes(struct model *m, struct model_group *g) {
        for (int rank = 0; rank < g->world; rank++) {
                struct model_member *member = &g->members[rank];
                if (member->wish == WISH_NONE || member->wish_left > 0)
                        continue;
                model_tell_status(m, member->wish_request, STATUS_TIMEOUT, STATUS_OK, rank);
                if (member->wish == WISH_JOIN)
                        *member = (struct model_member){ .last_key = -1 };
                member->wish = WISH_NONE;
                if (!model_present(g))
                        g->state = GROUP_ENDED;
        }
}

void model_tick(struct model *m) {
        for (int i = 0; i < MODEL_GROUPS; i++) {
                struct model_group *g = &m->groups[i];
                if (!g->is_used)
                        continue;
                run_clocks(g);
                expire_meetings(m, g);
                expire_wishes(m, g);
                if (g->state == GROUP_FORMING)
                        expire_join(m, g);
        }
}
