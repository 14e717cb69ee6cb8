#include "conductor-log.h"

#include <string.h>
#include "base/log.h"

#define KEY_TEXT_BYTES (4 * MAX_KEY_BYTES + 8) /* every byte escaped, in quotes */

/* What a line is about, and the memory for it. */
struct subject {
        struct log_about about;
        char key[KEY_TEXT_BYTES];
        struct log_replica replicas[LOG_MAX_REPLICAS];
};

static void subject_init(struct subject *s, const char *job, const char *group) {
        s->about = (struct log_about){ .job = job, .group = group, .replicas = s->replicas };
}

static void subject_set_key(struct subject *s, const struct key *key) {
        struct text t;
        text_init(&t, s->key, sizeof(s->key));
        key_print(key, &t);
        s->about.key = s->key;
}

static void subject_add(struct subject *s, int32_t rank, uint32_t pid) {
        if (s->about.n_replicas < LOG_MAX_REPLICAS)
                s->replicas[s->about.n_replicas++] = (struct log_replica){ .rank = rank, .pid = pid };
}

static void subject_of_meeting(struct subject *s, const struct meeting *m) {
        subject_init(s, m->group->job, m->group->name);
        subject_set_key(s, &m->key);
}

static void subject_of_error(struct subject *s, const struct error *err) {
        subject_init(s, err->job, err->group[0] ? err->group : NULL);
        if (err->has_key)
                subject_set_key(s, &err->key);
        for (uint32_t i = 0; i < err->n_replicas; i++)
                subject_add(s, (int32_t)err->replicas[i].rank, err->replicas[i].pid);
        if (err->n_replicas == 0 && err->rank >= 0)
                subject_add(s, err->rank, 0);
}

/* --- groups and replicas --- */

void conductor_log_formed(const struct group *g) {
        struct subject about;
        subject_init(&about, g->job, g->name);
        log_about(LOG_LEVEL_INFO, &about.about, "%s/%s: %u replicas of uid %u are together%s (epoch %llu)",
                g->job, g->name, rankset_count(&g->alive), g->uid, g->is_restored ? " again" : "",
                (unsigned long long)g->epoch);
}

void conductor_log_loss(const struct conductor *c, const struct session *s, enum loss loss, const char *why) {
        const struct member *m = NULL;
        if (c->is_over) /* tuttid itself ends them */
                return;
        while ((m = rendezvous_next_member(c->house.rendezvous, s->id, m))) {
                struct subject about;
                subject_init(&about, m->group->job, m->group->name);
                subject_add(&about, (int32_t)m->rank, s->pid);
                log_about(LOG_LEVEL_NOTICE, &about.about, "%s/%s: R%u (pid %u, %s, uid %u) is lost: %s%s%s",
                        m->group->job, m->group->name, m->rank, s->pid, s->process, s->uid, loss_name(loss),
                        why[0] ? ": " : "", why);
        }
}

void conductor_log_ejected(const struct conductor *c, const struct session *s) {
        const struct member *m = rendezvous_next_member(c->house.rendezvous, s->id, NULL);
        struct subject about;
        subject_init(&about, m ? m->group->job : NULL, m ? m->group->name : NULL);
        subject_add(&about, m ? (int32_t)m->rank : -1, s->pid);
        log_about(LOG_LEVEL_WARNING, &about.about, "pid %u (%s, uid %u) is ejected: %s: %s", s->pid,
                s->process, s->uid, status_name(s->eject_status), s->eject_why);
}

void conductor_log_pages(const struct conductor *c, struct session *s, const struct msg_register *reg) {
        const struct member *m = rendezvous_next_member(c->house.rendezvous, s->id, NULL);
        bool is_transparent = reg->pages == PAGES_TRANSPARENT;
        char why[160];
        struct subject about;
        if (s->is_short_of_pages || (!is_transparent && reg->pages != PAGES_ORDINARY))
                return;
        s->is_short_of_pages = true;
        text_copy(why, sizeof(why), reg->why);
        subject_init(&about, m ? m->group->job : NULL, m ? m->group->name : NULL);
        subject_add(&about, m ? (int32_t)m->rank : -1, s->pid);
        log_about(LOG_LEVEL_WARNING, &about.about,
                "pid %u (%s, uid %u) asked for huge pages and has %s ones: %s", s->pid, s->process, s->uid,
                is_transparent ? "transparent" : "ordinary", why);
}

void conductor_log_turned_away(const struct error *err, uint32_t uid) {
        log_notice(
                "a connection of uid %u was turned away: %s: %s", uid, status_name(err->status), err->detail);
}

/* --- collectives --- */

void conductor_log_stall(const struct meeting *m, const struct error *err, uint64_t now_ns) {
        const struct group *g = m->group;
        const struct signature *first = &m->halves[rankset_next(&m->have, 0)]->signature;
        struct subject about;
        char buf[1024];
        struct text t;
        subject_of_meeting(&about, m);
        text_init(&t, buf, sizeof(buf));
        text_add(&t, "%s/%s: STALLED: %s has waited ", g->job, g->name, about.key);
        text_add_duration(&t, now_ns - m->first_ns);
        text_add(&t, " (%u pending); here ", g->n_meetings);
        rankset_print(&m->have, &t);
        text_add(&t, "; missing ");
        rankset_print(&err->missing, &t);
        for (uint32_t i = 0; i < err->n_replicas; i++) {
                const struct replica_report *r = &err->replicas[i];
                text_add(&t, "%sR%u pid %u %s%s%s", i ? ", " : " (", r->rank, r->pid,
                        process_state_name(r->state), r->busy[0] ? ", busy: " : "", r->busy);
                subject_add(&about, (int32_t)r->rank, r->pid);
        }
        text_add(&t, "%s", err->n_replicas ? ")" : "");
        if (first->kind == KIND_MERGE_RESULT && rankset_has(&err->missing, first->root))
                text_add(&t, "; R%u runs the merge function", first->root);
        log_about(LOG_LEVEL_WARNING, &about.about, "%s", buf);
}

/* A condition for each status: many that differ must not hide one that timed out. */
void conductor_log_end(const struct meeting *m) {
        static struct log_site sites[N_STATUS];
        char text[ERROR_TEXT_BYTES];
        struct subject about;
        if (m->status == STATUS_OK || !m->error || !log_is_on(LOG_LEVEL_NOTICE))
                return;
        error_print(m->error, text, sizeof(text));
        for (char *newline = text; (newline = strchr(newline, '\n'));)
                *newline = ' '; /* one line of the log for one collective */
        subject_of_error(&about, m->error);
        log_write(&sites[m->status < N_STATUS ? m->status : STATUS_INTERNAL], LOG_LEVEL_NOTICE, &about.about,
                "%s", text);
}

static void subject_add_member(struct subject *s, const struct group *g, uint32_t rank) {
        if (rank < g->world_size)
                subject_add(s, (int32_t)rank, g->members[rank].pid);
}

void conductor_log_findings(const struct meeting *m, const struct findings *found) {
        const struct finding *numerics = &found->numerics, *overflow = &found->overflow;
        if ((!numerics->n && !overflow->n) || !log_is_on(LOG_LEVEL_WARNING))
                return;
        const struct signature *s = &m->halves[rankset_next(&m->have, 0)]->signature;
        struct subject about;
        char buf[512];
        struct text t;
        subject_of_meeting(&about, m);
        text_init(&t, buf, sizeof(buf));
        text_add(&t, "%s/%s: %s ", m->group->job, m->group->name, kind_name(s->kind));
        if (s->op != OP_UNSPECIFIED)
                text_add(&t, "%s ", op_name(s->op));
        text_add(&t, "%s", about.key);
        if (numerics->n) {
                text_add(&t,
                        ": check_numerics: %llu element%s NaN or infinite, the first from R%u at index %llu "
                        "of entry %u",
                        (unsigned long long)numerics->n, numerics->n == 1 ? " is" : "s are", numerics->rank,
                        (unsigned long long)numerics->index, numerics->entry);
                subject_add_member(&about, m->group, numerics->rank);
        }
        if (overflow->n)
                text_add(&t, ": check_overflow: %llu element%s wrapped, the first at index %llu of entry %u",
                        (unsigned long long)overflow->n, overflow->n == 1 ? " has" : "s have",
                        (unsigned long long)overflow->index, overflow->entry);
        log_about(LOG_LEVEL_WARNING, &about.about, "%s", buf);
}

void conductor_log_fallback(const struct group *g, const struct fallback_run *run) {
        struct subject about;
        subject_init(&about, g->job, g->name);
        subject_set_key(&about, run->key);
        log_about(LOG_LEVEL_WARNING, &about.about,
                "%s/%s: fallback: %s %s: %s; %s does it. `tuttictl status` counts how often", g->job, g->name,
                kind_name(run->kind), about.key, run->why, run->algorithm);
}

void conductor_log_blocked(const struct meeting *m, uint64_t blocked_ns) {
        struct subject about;
        subject_of_meeting(&about, m);
        log_about(LOG_LEVEL_WARNING, &about.about,
                "%s/%s: its memory stood still for %llu ms under a run; the group is confined to one worker",
                m->group->job, m->group->name, (unsigned long long)(blocked_ns / 1000000));
}
