/* A collective from sealed to told: plan, pages, engine, replies, record, everything given back. */
#include "conductor-internal.h"

#include <string.h>
#include "base/log.h"

static struct task *conductor_take_task(struct conductor *c) {
        struct list *first = list_take_first(&c->tasks);
        return first ? list_entry(first, struct task, link) : engine_task_new();
}

static void conductor_put_task(struct conductor *c, struct task *t) {
        list_append(&c->tasks, &t->link);
}

static void conductor_set_pages(struct conductor *c, const struct meeting *m, enum page_state state) {
        rankset_for_each (rank, &m->have) {
                const struct half *half = m->halves[rank];
                struct session *s = session_find(c->house.sessions, half->session);
                if (s)
                        session_set_page(s, half->request, m->number, state);
        }
}

/* What ran without a task had nothing to look at. */
static struct findings conductor_found(const struct meeting *m) {
        const struct task *t = m->task;
        struct findings none = { 0 };
        return t ? t->found : none;
}

/* One half's end. A lost detail (memory was short when it was made) leaves the status, which is always right.
 */
static void conductor_tell_half(struct conductor *c, const struct meeting *m, const struct half *half) {
        struct session *s = session_find(c->house.sessions, half->session);
        if (s)
                s->n_unfinished--;
        if (m->status != STATUS_OK) {
                const struct task *t = m->task;
                bool is_culprit = t && t->culprit_session != 0 && t->culprit_session == half->session;
                enum status status = is_culprit ? STATUS_BAD_FD : m->status;
                conductor_reply_status(c, s, half->request, status, is_culprit ? NULL : m->error);
                return;
        }
        const struct reply reply = { .request = half->request,
                .status = STATUS_OK,
                .type = REPLY_DONE,
                .done = { .collective = m->number,
                        .contributors = m->have,
                        .n_contributors = m->n_halves,
                        .op = half->signature.op,
                        .wait_ns = m->sealed_ns - half->arrived_ns,
                        .run_ns = m->done_ns - m->sealed_ns,
                        .last_rank = m->last_rank,
                        .found = conductor_found(m),
                        .result = m->has_slot ? result_id(half->object) : 0,
                        .slot = m->slot } };
        conductor_reply(c, s, &reply);
}

static void conductor_log_end(const struct meeting *m) {
        char text[ERROR_TEXT_BYTES];
        if (m->status == STATUS_OK || !m->error || !log_is_on(LOG_LEVEL_NOTICE))
                return;
        error_print(m->error, text, sizeof(text));
        for (char *newline = text; (newline = strchr(newline, '\n'));)
                *newline = ' '; /* one line of the log for one collective */
        log_notice("%s", text);
}

/* Numbers that are as asked for and, it seems, not as wanted: one line of the log for one collective. */
static void conductor_log_findings(const struct meeting *m, const struct findings *found) {
        const struct finding *numerics = &found->numerics, *overflow = &found->overflow;
        if ((!numerics->n && !overflow->n) || !log_is_on(LOG_LEVEL_WARNING))
                return;
        const struct signature *s = &m->halves[rankset_next(&m->have, 0)]->signature;
        char buf[512];
        struct text t;
        text_init(&t, buf, sizeof(buf));
        text_add(&t, "%s/%s: %s ", m->group->job, m->group->name, kind_name(s->kind));
        if (s->op != OP_UNSPECIFIED)
                text_add(&t, "%s ", op_name(s->op));
        key_print(&m->key, &t);
        if (numerics->n)
                text_add(&t,
                        ": check_numerics: %llu element%s NaN or infinite, the first from R%u at index %llu "
                        "of entry %u",
                        (unsigned long long)numerics->n, numerics->n == 1 ? " is" : "s are", numerics->rank,
                        (unsigned long long)numerics->index, numerics->entry);
        if (overflow->n)
                text_add(&t, ": check_overflow: %llu element%s wrapped, the first at index %llu of entry %u",
                        (unsigned long long)overflow->n, overflow->n == 1 ? " has" : "s have",
                        (unsigned long long)overflow->index, overflow->entry);
        log_warning("%s", buf);
}

/* ENDED: tells every member, keeps the record, gives everything back. */
void conductor_finish(struct conductor *c, struct meeting *m) {
        if (m->error)
                conductor_probe(c, m->group, m->error->n_replicas, m->error->replicas);
        if (m->status == STATUS_OK)
                conductor_set_pages(c, m, PAGE_DONE); /* all of them before any reply */
        conductor_end_slot(c, m);                     /* before anybody can give it back */
        rankset_for_each (rank, &m->have)
                conductor_tell_half(c, m, m->halves[rank]);
        conductor_log_end(m);
        recorder_add(c->house.recorder, m);
        stats_add(c->house.stats, m);
        rankset_for_each (rank, &m->have)
                conductor_give_back(c, m->halves[rank]);
        if (m->task)
                conductor_put_task(c, m->task);
        m->task = NULL;
        rendezvous_release(c->house.rendezvous, m, &c->outcome);
}

/* Which collective of which group *err is about. */
static void describe_meeting(const struct meeting *m, struct error *err) {
        group_describe(m->group, err);
        err->has_key = true;
        err->key = m->key;
        err->kind = m->halves[rankset_next(&m->have, 0)]->signature.kind;
}

static void conductor_refuse_sealed(struct conductor *c, struct meeting *m, enum status status) {
        describe_meeting(m, &c->error);
        rendezvous_done(c->house.rendezvous, m, status, &c->error, c->now_ns);
        conductor_finish(c, m);
}

/* SEALED: made into a plan, and given to the engine unless there is nothing to do. */
void conductor_run(struct conductor *c, struct meeting *m) {
        uint32_t n = 0;
        error_init(&c->error, STATUS_OK);
        rankset_for_each (rank, &m->have) {
                c->ranks[n] = (uint32_t)rank;
                c->weights[n] = m->halves[rank]->signature.options.weight;
                c->entries[n++] = m->halves[rank]->entries;
        }
        struct problem problem = { .signature = &m->halves[c->ranks[0]]->signature,
                .n_ranks = n,
                .ranks = c->ranks,
                .entries = c->entries,
                .weights = c->weights,
                .divisor = m->divisor,
                .n_devices = engine_n_devices(c->house.engine) };
        struct task *t = conductor_take_task(c);
        if (!t) {
                error_init(&c->error, STATUS_OK);
                conductor_refuse_sealed(c, m,
                        error_set(
                                &c->error, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid is short of memory"));
                return;
        }
        m->task = t;
        t->culprit_session = 0;
        memset(&t->found, 0, sizeof(t->found));
        enum status status = conductor_take_slot(c, m, &problem);
        if (status == STATUS_OK)
                status = planner_plan(c->house.planner, &problem, &t->plan, &c->error);
        if (status != STATUS_OK) {
                conductor_refuse_sealed(c, m, status);
                return;
        }
        if (t->plan.n_chunks == 0) {
                rendezvous_done(c->house.rendezvous, m, STATUS_OK, NULL, c->now_ns);
                conductor_finish(c, m);
                return;
        }
        t->owner = m;
        t->uid = m->group->uid;
        t->group = m->group->id;
        conductor_set_pages(c, m, PAGE_BEGUN);
        c->n_running++;
        engine_start(c->house.engine, t);
}

/* Memory failed under a run: whose it was goes, the others learn that their outputs may be half written. */
static void conductor_blame(struct conductor *c, const struct meeting *m, const struct task *t) {
        struct error *err = &c->error;
        error_init(err, STATUS_REPLICA_LOST);
        describe_meeting(m, err);
        err->loss = LOSS_EJECTED;
        err->field = FIELD_DATA;
        err->outputs_undefined = true;
        err->have = m->have;
        rankset_for_each (rank, &m->have) {
                if (m->halves[rank]->session != t->culprit_session)
                        continue;
                struct rankset guilty = { 0 };
                rankset_add(&guilty, (unsigned int)rank);
                err->rank = rank;
                group_add_reports(m->group, &guilty, c->now_ns, err);
                break;
        }
        error_set_detail(err, "memory of its buffer %llu is a hole: it was punched out or never filled",
                (unsigned long long)t->culprit_buffer);
        struct session *s = session_find(c->house.sessions, t->culprit_session);
        if (s)
                conductor_eject(c, s, STATUS_BAD_FD,
                        "memory of buffer %llu is a hole: it was punched out or never filled",
                        (unsigned long long)t->culprit_buffer);
}

void conductor_task_done(struct conductor *c, struct task *t) {
        struct meeting *m = t->owner;
        c->n_running--;
        if (t->done_ns > c->now_ns) /* begun in this turn, which the loop thread has had to wait in */
                c->now_ns = t->done_ns;
        if (t->blocked_ns)
                log_warning("%s/%s: its memory stood still for %llu ms under a run; the group is confined to "
                            "one worker",
                        m->group->job, m->group->name, (unsigned long long)(t->blocked_ns / 1000000));
        if (t->status == STATUS_OK) {
                conductor_log_findings(m, &t->found);
                rendezvous_done(c->house.rendezvous, m, STATUS_OK, NULL, c->now_ns);
        } else {
                conductor_blame(c, m, t);
                rendezvous_done(c->house.rendezvous, m, STATUS_REPLICA_LOST, &c->error, c->now_ns);
        }
        conductor_finish(c, m);
}
