#include "rendezvous-model-internal.h"

#include <string.h>

/* --- what is there --- */

static void tell(struct model *m, struct event e) {
        CHECK(m->n_events < MODEL_EVENTS);
        m->events[m->n_events++] = e;
}

void model_tell_status(struct model *m, uint64_t request, enum status status, enum status cause, int rank) {
        tell(m, (struct event){ EVENT_TOLD, request, (int)status, (int)cause, rank });
}

struct model_group *model_find(struct model *m, uint64_t life) {
        for (int i = 0; i < MODEL_GROUPS; i++)
                if (m->groups[i].is_used && m->groups[i].life == life)
                        return &m->groups[i];
        return NULL;
}

static bool is_present(const struct model_group *g, int rank) {
        return g->members[rank].state == MEMBER_ALIVE || g->members[rank].state == MEMBER_JOINING;
}

unsigned int model_present(const struct model_group *g) {
        unsigned int set = 0;
        for (int rank = 0; rank < g->world; rank++)
                set |= (unsigned int)is_present(g, rank) << rank;
        return set;
}

static unsigned int alive(const struct model_group *g) {
        unsigned int set = 0;
        for (int rank = 0; rank < g->world; rank++)
                set |= (unsigned int)(g->members[rank].state == MEMBER_ALIVE) << rank;
        return set;
}

unsigned int model_have(const struct model_group *g, const struct model_meeting *meeting) {
        unsigned int set = 0;
        for (int rank = 0; rank < g->world; rank++)
                set |= (unsigned int)meeting->halves[rank].is_here << rank;
        return set;
}

int model_n_pending(const struct model *m) {
        int n = m->n_limbo;
        for (int i = 0; i < MODEL_GROUPS; i++) {
                const struct model_group *g = &m->groups[i];
                n += g->is_used ? g->n_debts : 0;
                for (int k = 0; g->is_used && k < g->n_meetings; k++)
                        n += __builtin_popcount(model_have(g, &g->meetings[k]));
        }
        return n;
}

bool model_is_stalled(const struct model *m, const struct model_group *g) {
        for (int k = 0; k < g->n_meetings; k++)
                if (!g->meetings[k].runs && g->meetings[k].age >= m->stall_warn)
                        return true;
        return false;
}

static struct model_meeting *find_meeting(struct model_group *g, int key) {
        for (int k = 0; k < g->n_meetings; k++)
                if (g->meetings[k].key == key && g->meetings[k].epoch == g->epoch)
                        return &g->meetings[k];
        return NULL;
}

static void remove_meeting(struct model_group *g, struct model_meeting *meeting) {
        struct model_meeting *end = &g->meetings[g->n_meetings--];
        memmove(meeting, meeting + 1, (size_t)((char *)end - (char *)(meeting + 1)));
}

/* --- debts --- */

static void remove_debt(struct model_group *g, int i) {
        memmove(&g->debts[i], &g->debts[i + 1], (size_t)(--g->n_debts - i) * sizeof(*g->debts));
}

/* Once in a step, however many debts there was no room for. */
static void eject(struct model *m, struct event e) {
        for (int i = 0; i < m->n_events; i++)
                if (m->events[i].type == EVENT_EJECTED && m->events[i].id == e.id && m->events[i].a == e.a)
                        return;
        tell(m, e);
}

static void leave_debt(struct model *m, struct model_group *g, struct model_debt debt) {
        if (!debt.debtors || g->state != GROUP_WHOLE)
                return;
        if (model_n_pending(m) < m->pending_limit) {
                CHECK(g->n_debts < MODEL_DEBTS);
                g->debts[g->n_debts++] = debt;
                return;
        }
        for (int rank = 0; rank < g->world; rank++)
                if (debt.debtors >> rank & 1)
                        eject(m, (struct event){ EVENT_EJECTED, g->life, rank, 0, 0 });
}

static bool pay_debt(struct model_group *g, int key, int rank, struct model_debt *ret) {
        for (int i = 0; i < g->n_debts; i++) {
                if (g->debts[i].key != key || !(g->debts[i].debtors >> rank & 1))
                        continue;
                *ret = g->debts[i];
                g->debts[i].debtors &= ~(1u << rank);
                if (!g->debts[i].debtors)
                        remove_debt(g, i);
                return true;
        }
        return false;
}

static void forgive_debts(struct model_group *g, int rank) {
        for (int i = g->n_debts - 1; i >= 0; i--) {
                g->debts[i].debtors &= ~(1u << rank);
                if (!g->debts[i].debtors)
                        remove_debt(g, i);
        }
}

/* --- ends --- */

static void tell_meeting(struct model *m, const struct model_group *g, const struct model_meeting *meeting,
        enum status status, enum status cause, int rank) {
        for (int r = 0; r < g->world; r++) {
                if (!meeting->halves[r].is_here)
                        continue;
                model_tell_status(m, meeting->halves[r].request, status, cause, rank);
                m->n_limbo++;
        }
}

void model_end_meeting(struct model *m, struct model_group *g, struct model_meeting *meeting,
        enum status status, enum status cause, int rank) {
        struct model_debt debt = { meeting->key, rank, status, alive(g) & ~model_have(g, meeting) };
        if (status == STATUS_PEER_REFUSED)
                debt.debtors &= ~(1u << rank);
        tell_meeting(m, g, meeting, status, cause, rank);
        remove_meeting(g, meeting);
        leave_debt(m, g, debt);
}

static void settle(struct model *m, struct model_group *g, struct model_meeting *meeting) {
        unsigned int have = model_have(g, meeting);
        if (have != alive(g))
                return;
        enum model_signature first = meeting->halves[__builtin_ctz(have)].signature;
        for (int rank = 0; rank < g->world; rank++)
                if (have >> rank & 1 && meeting->halves[rank].signature != first) {
                        model_end_meeting(m, g, meeting, STATUS_MISMATCH, STATUS_OK, -1);
                        return;
                }
        int n = __builtin_popcount(have);
        meeting->runs = true;
        meeting->number = ++g->n_sealed;
        meeting->sealed_order = ++m->n_sealed;
        for (int rank = 0; rank < g->world; rank++)
                if (have >> rank & 1)
                        tell(m, (struct event){ EVENT_SEALED, meeting->halves[rank].request,
                                        (int)meeting->number, g->fills ? g->world : n, n });
}

static int root_of(enum model_signature signature) {
        return signature == SIGNATURE_ROOT_0 ? 0 : signature == SIGNATURE_ROOT_1 ? 1 : -1;
}

void model_unform(struct model *m, struct model_group *g, enum status status, int rank) {
        for (int r = 0; r < g->world; r++)
                if (g->members[r].state == MEMBER_JOINING)
                        model_tell_status(m, g->members[r].request, status, STATUS_OK, rank);
        g->is_used = false;
}

/* --- steps --- */

void model_begin_step(struct model *m) {
        m->n_events = 0;
}

static struct model_group *find_name(struct model *m, int name) {
        for (int i = 0; i < MODEL_GROUPS; i++)
                if (m->groups[i].is_used && m->groups[i].state != GROUP_ENDED && m->groups[i].name == name)
                        return &m->groups[i];
        return NULL;
}

static int count_groups(const struct model *m) {
        int n = 0;
        for (int i = 0; i < MODEL_GROUPS; i++)
                n += m->groups[i].is_used;
        return n;
}

static struct model_group *make_group(struct model *m, const struct model_join *join) {
        for (int i = 0; i < MODEL_GROUPS; i++) {
                struct model_group *g = &m->groups[i];
                if (g->is_used)
                        continue;
                *g = (struct model_group){ .is_used = true,
                        .state = GROUP_FORMING,
                        .life = ++m->n_lives,
                        .name = join->name,
                        .world = join->world,
                        .shrinks = join->shrinks,
                        .fills = join->fills,
                        .lost = -1 };
                return g;
        }
        CHECK(!"room for a group");
        return NULL;
}

static enum status check_join(struct model *m, const struct model_join *join, const struct model_group *g) {
        if (join->rank >= join->world)
                return STATUS_INVALID;
        if (!g)
                return count_groups(m) < m->group_limit ? STATUS_OK : STATUS_QUOTA;
        if (join->world != g->world || join->shrinks != g->shrinks || join->fills != g->fills)
                return STATUS_MISMATCH;
        return is_present(g, join->rank) ? STATUS_BUSY : STATUS_OK;
}

static void wish(struct model_member *member, enum model_wish wish, int ticks, uint64_t request) {
        member->wish = wish;
        member->wish_left = ticks;
        member->wish_request = request;
}

static void begin_epoch(struct model *m, struct model_group *g, bool admits) {
        g->state = GROUP_FAILED; /* nobody owes anything */
        g->n_debts = 0;
        for (int k = g->n_meetings - 1; k >= 0; k--)
                if (!g->meetings[k].runs)
                        model_end_meeting(m, g, &g->meetings[k], STATUS_REPLICA_LOST, STATUS_OK, -1);
        g->state = GROUP_WHOLE;
        g->lost = -1;
        g->epoch++;
        g->n_sealed = 0;
        for (int rank = 0; rank < g->world; rank++) {
                struct model_member *member = &g->members[rank];
                if (admits && member->state == MEMBER_JOINING) {
                        member->state = MEMBER_ALIVE;
                        member->first_epoch = g->epoch;
                }
                if (member->state != MEMBER_ALIVE)
                        continue;
                member->wish = WISH_NONE;
                model_tell_status(m, member->wish_request, STATUS_OK, STATUS_OK, rank);
        }
}

static int count_wishes(const struct model_group *g, enum model_wish wish) {
        int n = 0;
        for (int rank = 0; rank < g->world; rank++)
                n += g->members[rank].state == MEMBER_ALIVE && g->members[rank].wish == wish;
        return n;
}

static void try_reform(struct model *m, struct model_group *g) {
        if (count_wishes(g, WISH_NONE) > 0)
                return;
        if (count_wishes(g, WISH_REJOIN) && count_wishes(g, WISH_SHRINK)) {
                for (int rank = 0; rank < g->world; rank++) {
                        if (g->members[rank].state != MEMBER_ALIVE)
                                continue;
                        model_tell_status(m, g->members[rank].wish_request, STATUS_MISMATCH, STATUS_OK, -1);
                        g->members[rank].wish = WISH_NONE;
                }
        } else if (count_wishes(g, WISH_SHRINK))
                begin_epoch(m, g, false);
        else if (model_present(g) == (1u << g->world) - 1)
                begin_epoch(m, g, true);
}

void model_join(struct model *m, const struct model_join *join) {
        struct model_group *g = find_name(m, join->name);
        enum status status = check_join(m, join, g);
        if (status != STATUS_OK) {
                model_tell_status(m, join->request, status, STATUS_OK,
                        status == STATUS_MISMATCH || status == STATUS_BUSY ? join->rank : -1);
                return;
        }
        if (!g)
                g = make_group(m, join);
        g->members[join->rank] = (struct model_member){ .state = MEMBER_JOINING,
                .session = join->session,
                .request = join->request,
                .order = ++m->n_joins,
                .last_key = -1,
                .default_timeout = join->default_timeout,
                .join_left = join->timeout ? join->timeout : m->join_timeout };
        if (g->state != GROUP_FORMING) {
                struct model_member *newcomer = &g->members[join->rank];
                wish(newcomer, WISH_JOIN, newcomer->join_left, join->request);
                try_reform(m, g);
                return;
        }
        if (model_present(g) != (1u << g->world) - 1)
                return;
        g->state = GROUP_WHOLE;
        g->epoch = 1;
        for (int rank = 0; rank < g->world; rank++) {
                g->members[rank].state = MEMBER_ALIVE;
                g->members[rank].first_epoch = 1;
                model_tell_status(m, g->members[rank].request, STATUS_OK, STATUS_OK, rank);
        }
}

static bool is_known(const struct model_group *g, struct model_handle who, uint64_t session) {
        return g && session == who.session && g->members[who.rank].order == who.order;
}

/* Rule 1, without the epoch. */
static enum status check_member(
        struct model *m, struct model_handle who, uint64_t session, struct model_group **ret) {
        struct model_group *g = model_find(m, who.life);
        if (!is_known(g, who, session) || g->members[who.rank].state == MEMBER_JOINING)
                return STATUS_NOT_FOUND;
        *ret = g;
        if (g->members[who.rank].state == MEMBER_LEFT)
                return STATUS_LEFT;
        return g->members[who.rank].state == MEMBER_LOST ? STATUS_REPLICA_LOST : STATUS_OK;
}

static int own_rank(enum status status, int rank) {
        return status == STATUS_NOT_FOUND ? -1 : rank;
}

static void refuse(
        struct model *m, struct model_group *g, const struct model_submission *s, enum status status) {
        int rank = s->who.rank;
        struct model_debt paid;
        struct model_meeting *meeting = find_meeting(g, s->key);
        if (pay_debt(g, s->key, rank, &paid))
                ;
        else if (meeting)
                model_end_meeting(m, g, meeting, STATUS_PEER_REFUSED, status, rank);
        else
                leave_debt(m, g,
                        (struct model_debt){ s->key, rank, STATUS_PEER_REFUSED, alive(g) & ~(1u << rank) });
        model_tell_status(m, s->request, status, STATUS_OK, rank);
}

static enum status own_refusal(
        struct model *m, const struct model_group *g, const struct model_submission *s) {
        int root = root_of(s->signature);
        if (s->refused != STATUS_OK)
                return s->refused;
        if (root >= 0 && (root >= g->world || g->members[root].state != MEMBER_ALIVE))
                return STATUS_INVALID;
        return model_n_pending(m) < m->pending_limit ? STATUS_OK : STATUS_QUOTA;
}

static void store(struct model *m, struct model_group *g, const struct model_submission *s) {
        struct model_meeting *meeting = find_meeting(g, s->key);
        struct model_member *member = &g->members[s->who.rank];
        if (!meeting) {
                CHECK(g->n_meetings < MODEL_MEETINGS);
                meeting = &g->meetings[g->n_meetings++];
                *meeting = (struct model_meeting){ .key = s->key, .epoch = g->epoch };
        }
        int timeout = s->timeout                ? s->timeout
                      : member->default_timeout ? member->default_timeout
                                                : m->default_timeout;
        meeting->halves[s->who.rank] = (struct model_half){ true, s->timeout == 0, s->request, s->signature,
                timeout > 0 ? timeout : -1 };
        member->n_submitted++;
        settle(m, g, meeting);
}

void model_submit(struct model *m, const struct model_submission *s) {
        struct model_group *g;
        struct model_debt debt;
        int rank = s->who.rank;
        enum status status = check_member(m, s->who, s->session, &g);
        if (status != STATUS_OK) {
                model_tell_status(m, s->request, status, STATUS_OK, own_rank(status, rank));
                return;
        }
        struct model_meeting *meeting = find_meeting(g, s->key);
        if (s->is_old_epoch || g->state == GROUP_FAILED)
                model_tell_status(m, s->request, STATUS_REPLICA_LOST, STATUS_OK, g->lost);
        else if (meeting && meeting->halves[rank].is_here)
                model_tell_status(m, s->request, STATUS_ALREADY_PENDING, STATUS_OK, rank);
        else {
                g->members[rank].busy = 0;
                status = own_refusal(m, g, s);
                if (status != STATUS_OK)
                        refuse(m, g, s, status);
                else if (pay_debt(g, s->key, rank, &debt))
                        model_tell_status(m, s->request, STATUS_EXPIRED, debt.cause, debt.rank);
                else
                        store(m, g, s);
        }
}

void model_abort(struct model *m, struct model_handle who, uint64_t session, int key, uint64_t request) {
        struct model_group *g;
        int rank = -1;
        enum status status = check_member(m, who, session, &g);
        if (status == STATUS_OK) {
                struct model_meeting *meeting = find_meeting(g, key);
                if (meeting && !meeting->runs)
                        model_end_meeting(m, g, meeting, STATUS_ABORTED, STATUS_OK, who.rank);
                else
                        status = meeting ? STATUS_BUSY : STATUS_NOT_FOUND;
        } else
                rank = own_rank(status, who.rank);
        model_tell_status(m, request, status, STATUS_OK, rank);
}

void model_busy(struct model *m, struct model_handle who, uint64_t session, int duration, uint64_t request) {
        struct model_group *g;
        enum status status = check_member(m, who, session, &g);
        if (status == STATUS_OK)
                g->members[who.rank].busy = duration;
        model_tell_status(
                m, request, status, STATUS_OK, status == STATUS_OK ? -1 : own_rank(status, who.rank));
}

/* --- going --- */

static void strike(struct model *m, struct model_group *g, struct model_meeting *meeting, unsigned int gone) {
        int root = -1;
        for (int rank = 0; rank < g->world; rank++) {
                struct model_half *half = &meeting->halves[rank];
                if (!half->is_here)
                        continue;
                if (gone >> rank & 1) {
                        half->is_here = false;
                        m->n_limbo++;
                        tell(m, (struct event){ EVENT_STRUCK, half->request, 0, 0, 0 });
                } else if (root < 0 && root_of(half->signature) >= 0 && gone >> root_of(half->signature) & 1)
                        root = root_of(half->signature);
        }
        if (!model_have(g, meeting))
                remove_meeting(g, meeting);
        else if (root >= 0)
                model_end_meeting(m, g, meeting, STATUS_INVALID, STATUS_OK, root);
        else
                settle(m, g, meeting);
}

static void go_on(struct model *m, struct model_group *g, unsigned int gone, bool fails) {
        struct model_meeting now[MODEL_MEETINGS];
        int n = g->n_meetings;
        if (g->state == GROUP_FORMING) {
                model_unform(m, g, STATUS_REPLICA_LOST, __builtin_ctz(gone));
                return;
        }
        memcpy(now, g->meetings, sizeof(now));
        if (g->state == GROUP_WHOLE && fails && gone) {
                g->state = GROUP_FAILED;
                g->lost = __builtin_ctz(gone);
                g->n_debts = 0;
        }
        for (int k = 0; k < n && gone; k++) {
                if (now[k].runs)
                        continue;
                struct model_meeting *meeting = find_meeting(g, now[k].key);
                if (g->state == GROUP_FAILED)
                        model_end_meeting(m, g, meeting, STATUS_REPLICA_LOST, STATUS_OK, g->lost);
                else
                        strike(m, g, meeting, gone);
        }
        if (!model_present(g))
                g->state = GROUP_ENDED;
        else
                try_reform(m, g);
}

/* Whether the others notice: nobody has counted on a newcomer. */
static bool mark(struct model *m, struct model_group *g, int rank, enum member_state state) {
        bool is_missed = g->members[rank].state == MEMBER_ALIVE || g->state == GROUP_FORMING;
        if (state == MEMBER_LEFT && g->members[rank].wish)
                model_tell_status(m, g->members[rank].wish_request, STATUS_LEFT, STATUS_OK, rank);
        g->members[rank].wish = WISH_NONE;
        g->members[rank].state = state;
        g->members[rank].busy = 0;
        forgive_debts(g, rank);
        return is_missed;
}

void model_leave(struct model *m, struct model_handle who, uint64_t session, uint64_t request) {
        struct model_group *g = model_find(m, who.life);
        bool is_joining = is_known(g, who, session) && g->members[who.rank].state == MEMBER_JOINING;
        enum status status = is_joining ? STATUS_OK : check_member(m, who, session, &g);
        model_tell_status(
                m, request, status, STATUS_OK, status == STATUS_OK ? -1 : own_rank(status, who.rank));
        if (status != STATUS_OK)
                return;
        unsigned int is_missed = mark(m, g, who.rank, MEMBER_LEFT);
        go_on(m, g, is_missed << who.rank, false);
}

enum status model_reform(
        struct model *m, struct model_handle who, enum model_wish kind, int timeout, uint64_t request) {
        struct model_group *g;
        enum status status = check_member(m, who, who.session, &g);
        int rank = own_rank(status, who.rank);
        if (status == STATUS_OK && g->members[who.rank].wish)
                status = STATUS_ALREADY_PENDING;
        if (status != STATUS_OK) {
                model_tell_status(m, request, status, STATUS_OK, rank);
                return status;
        }
        g->members[who.rank].busy = 0;
        wish(&g->members[who.rank], kind, timeout ? timeout : m->join_timeout, request);
        try_reform(m, g);
        return STATUS_OK;
}

/* The group of the session's oldest membership, and who goes of it. */
static struct model_group *first_to_go(struct model *m, uint64_t session, unsigned int *ret_gone) {
        struct model_group *first = NULL;
        uint64_t order = UINT64_MAX;
        for (int i = 0; i < MODEL_GROUPS; i++)
                for (int rank = 0; m->groups[i].is_used && rank < m->groups[i].world; rank++) {
                        const struct model_member *member = &m->groups[i].members[rank];
                        if (!is_present(&m->groups[i], rank) || member->session != session)
                                continue;
                        if (member->order < order) {
                                order = member->order;
                                first = &m->groups[i];
                        }
                }
        *ret_gone = 0;
        for (int rank = 0; first && rank < first->world; rank++)
                if (is_present(first, rank) && first->members[rank].session == session)
                        *ret_gone |= 1u << rank;
        return first;
}

/* All are marked before any group decides, for debts are forgiven in all of them first. */
void model_lose(struct model *m, uint64_t session) {
        struct model_group *groups[MODEL_GROUPS];
        unsigned int gone[MODEL_GROUPS];
        int n = 0;
        while ((groups[n] = first_to_go(m, session, &gone[n]))) {
                for (int rank = 0; rank < groups[n]->world; rank++)
                        if (gone[n] >> rank & 1 && !mark(m, groups[n], rank, MEMBER_LOST))
                                gone[n] &= ~(1u << rank);
                n++;
        }
        for (int i = 0; i < n; i++)
                go_on(m, groups[i], gone[i], !groups[i]->shrinks);
}

bool model_done(struct model *m, int nth, enum status status) {
        for (uint64_t order = 1; order <= m->n_sealed; order++)
                for (int i = 0; i < MODEL_GROUPS; i++)
                        for (int k = 0; m->groups[i].is_used && k < m->groups[i].n_meetings; k++) {
                                struct model_group *g = &m->groups[i];
                                struct model_meeting *meeting = &g->meetings[k];
                                if (!meeting->runs || meeting->sealed_order != order || nth-- > 0)
                                        continue;
                                for (int r = 0; status == STATUS_OK && r < g->world; r++)
                                        if (meeting->halves[r].is_here &&
                                                g->members[r].state == MEMBER_ALIVE &&
                                                g->members[r].first_epoch <= meeting->epoch)
                                                g->members[r].last_key = meeting->key;
                                tell_meeting(m, g, meeting, status, STATUS_OK, -1);
                                remove_meeting(g, meeting);
                                return true;
                        }
        return false;
}

void model_finish_step(struct model *m) {
        m->n_limbo = 0;
        for (int i = 0; i < MODEL_GROUPS; i++) {
                struct model_group *g = &m->groups[i];
                if (!g->is_used || g->state != GROUP_ENDED || g->n_meetings > 0)
                        continue;
                tell(m, (struct event){ EVENT_OVER, g->life, 0, 0, 0 });
                g->is_used = false;
        }
}
