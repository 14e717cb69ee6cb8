#include "rendezvous-play-internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void play_differ(struct play *p, const char *format, ...) {
        va_list args;
        if (p->is_wrong)
                return;
        p->is_wrong = true;
        int n = snprintf(p->why, p->why_bytes, "step %llu: ", (unsigned long long)p->counts->n_steps);
        va_start(args, format);
        vsnprintf(p->why + n, p->why_bytes - (size_t)n, format, args);
        va_end(args);
}

static int compare_events(const void *a, const void *b) {
        const struct event *x = a, *y = b;
        if (x->type != y->type)
                return x->type < y->type ? -1 : 1;
        if (x->id != y->id)
                return x->id < y->id ? -1 : 1;
        return x->a != y->a ? x->a - y->a : x->b != y->b ? x->b - y->b : x->c - y->c;
}

static void compare_heard(struct play *p) {
        struct model *m = p->model;
        qsort(p->events, (size_t)p->n_events, sizeof(*p->events), compare_events);
        qsort(m->events, (size_t)m->n_events, sizeof(*m->events), compare_events);
        for (int i = 0; i < p->n_events || i < m->n_events; i++) {
                struct event none = { 0 };
                const struct event *is = i < p->n_events ? &p->events[i] : &none;
                const struct event *ought = i < m->n_events ? &m->events[i] : &none;
                if (i < p->n_events && i < m->n_events && compare_events(is, ought) == 0)
                        continue;
                play_differ(p,
                        "event %d of %d is type %d id %llu (%d %d %d), of %d ought to be type %d id %llu (%d "
                        "%d %d)",
                        i, p->n_events, (int)is->type, (unsigned long long)is->id, is->a, is->b, is->c,
                        m->n_events, (int)ought->type, (unsigned long long)ought->id, ought->a, ought->b,
                        ought->c);
        }
}

struct key play_key(int key) {
        static const char *const names[] = { "a", "b", "grad/7" };
        struct key k = key_sequence((uint64_t)key);
        if (key < 3)
                CHECK(key_name(&k, names[key], strlen(names[key])));
        return k;
}

static void compare_meetings(struct play *p, const struct model_group *ought, const struct group *g) {
        int k = 0;
        list_for_each (it, &g->meetings) {
                const struct meeting *m = list_entry(it, const struct meeting, group_link);
                if (k == ought->n_meetings)
                        break;
                const struct model_meeting *meeting = &ought->meetings[k++];
                struct key key = play_key(meeting->key);
                if (!key_is_equal(&m->key, &key) || m->have.words[0] != model_have(ought, meeting) ||
                        (m->state == MEETING_SEALED) != meeting->runs || m->number != meeting->number ||
                        m->epoch != meeting->epoch)
                        play_differ(
                                p, "life %llu: meeting %d differs", (unsigned long long)ought->life, k - 1);
        }
        if (k != ought->n_meetings || (int)g->n_meetings != k)
                play_differ(p, "life %llu has %u meetings, ought to have %d", (unsigned long long)ought->life,
                        g->n_meetings, ought->n_meetings);
}

static void compare_member(struct play *p, const struct model_member *ought, const struct member *m) {
        bool is_busy = m->busy[0] != '\0';
        int wish = m->reform ? (int)m->reform->kind + 1 : 0;
        if (m->state != ought->state || m->n_submitted != ought->n_submitted || is_busy != (ought->busy > 0))
                play_differ(p, "R%u of group %llu: state %d submitted %llu busy %d, ought to be %d %llu %d",
                        m->rank, (unsigned long long)(m->group ? m->group->id : 0), (int)m->state,
                        (unsigned long long)m->n_submitted, is_busy, (int)ought->state,
                        (unsigned long long)ought->n_submitted, ought->busy);
        if (wish != (int)ought->wish || m->first_epoch != ought->first_epoch)
                play_differ(p, "R%u: wish %d since epoch %llu, ought to be %d %llu", m->rank, wish,
                        (unsigned long long)m->first_epoch, (int)ought->wish,
                        (unsigned long long)ought->first_epoch);
        bool has_last = ought->state != MEMBER_ABSENT && ought->last_key >= 0;
        struct key key = play_key(has_last ? ought->last_key : 0);
        if (m->has_last != has_last || (has_last && !key_is_equal(&key, &m->last_key)))
                play_differ(p, "R%u: another last key", m->rank);
}

static void compare_group(struct play *p, const struct model_group *ought, const struct group *g) {
        if (g->state != ought->state || (int)g->n_debts != ought->n_debts || g->lost_rank != ought->lost ||
                g->is_stalled != model_is_stalled(p->model, ought))
                play_differ(p, "life %llu: state %d debts %u lost %d stalled %d, ought to be %d %d %d",
                        (unsigned long long)ought->life, (int)g->state, g->n_debts, g->lost_rank,
                        g->is_stalled, (int)ought->state, ought->n_debts, ought->lost);
        if (g->epoch != ought->epoch)
                play_differ(p, "life %llu: epoch %llu, ought to be %llu", (unsigned long long)ought->life,
                        (unsigned long long)g->epoch, (unsigned long long)ought->epoch);
        for (int rank = 0; rank < ought->world; rank++)
                compare_member(p, &ought->members[rank], &g->members[rank]);
        compare_meetings(p, ought, g);
}

static struct group *find_group(const struct play *p, uint64_t id) {
        struct group *g = NULL;
        while ((g = rendezvous_next_group(p->r, g)))
                if (g->id == id)
                        return g;
        return NULL;
}

static void compare_state(struct play *p) {
        unsigned int n = 0;
        for (int i = 0; i < MODEL_GROUPS; i++) {
                const struct model_group *ought = &p->model->groups[i];
                if (!ought->is_used || ought->state == GROUP_ENDED)
                        continue;
                const struct group *g = find_group(p, p->group_ids[ought->life]);
                n++;
                if (g)
                        compare_group(p, ought, g);
                else
                        play_differ(p, "life %llu is not there", (unsigned long long)ought->life);
        }
        if (rendezvous_n_groups(p->r) != n)
                play_differ(p, "%u groups, ought to be %u", rendezvous_n_groups(p->r), n);
        if (quota_total(p->quotas, QUOTA_PENDING) != (uint64_t)model_n_pending(p->model))
                play_differ(p, "%llu charged, ought to be %d",
                        (unsigned long long)quota_total(p->quotas, QUOTA_PENDING), model_n_pending(p->model));
        if (rendezvous_next_ns(p->r) <= p->now_ns)
                play_differ(p, "an alarm is overdue");
}

void play_compare(struct play *p) {
        compare_heard(p);
        if (!p->is_wrong)
                compare_state(p);
}
