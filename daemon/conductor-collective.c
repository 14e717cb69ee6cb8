/* A collective from sealed to told: plan, pages, engine, replies, record, everything given back. */
#include "conductor-log.h"

#include <stdlib.h>
#include <string.h>

static struct task *conductor_take_task(struct conductor *c) {
        struct list *first = list_take_first(&c->tasks);
        if (!first)
                return engine_task_new();
        c->n_tasks--;
        return list_entry(first, struct task, link);
}

/* --- memory that is given back elsewhere --- */

static void burial_think(struct chore *chore) {
        struct burial *b = list_entry(chore, struct burial, chore);
        if (b->half)
                rendezvous_half_unmake(b->half);
        engine_task_free(b->task);
}

/* Takes over all that *what names. */
static void conductor_bury(struct conductor *c, uint32_t uid, const struct burial *what) {
        struct burial *b = calloc(1, sizeof(*b));
        if (!b) {
                struct burial here = *what;
                burial_think(&here.chore);
                charge_release(&here.charge);
                return;
        }
        *b = *what;
        list_init(&b->chore.link);
        b->chore.kind = CHORE_THINK;
        b->chore.think = burial_think;
        b->chore.uid = uid;
        b->chore.fd = b->chore.read_fd = -1;
        list_append(&c->chores, &b->chore.link);
}

void conductor_bury_halves(struct conductor *c) {
        struct half *half;
        while ((half = rendezvous_take_buried(c->house.rendezvous)))
                conductor_bury(c, charge_uid(&half->memory),
                        &(struct burial){ .half = half, .charge = half->memory });
}

/* Kept, where it is small and there are few; what it is charged for goes only when its memory does. */
void conductor_put_task(struct conductor *c, struct task *t) {
        charge_release(&t->scratch_charge);
        bool is_small = t->memory.amount <= TASK_BYTES;
        if (is_small)
                charge_release(&t->memory);
        if (is_small && c->n_tasks < MAX_TASKS) {
                list_append(&c->tasks, &t->link);
                c->n_tasks++;
        } else if (is_small) {
                engine_task_free(t);
        } else {
                conductor_bury(c, t->uid, &(struct burial){ .task = t, .charge = t->memory });
        }
}

static void conductor_set_pages(struct conductor *c, const struct meeting *m, enum page_state state) {
        rankset_for_each (rank, &m->have) {
                const struct half *half = m->halves[rank];
                struct session *s = session_find(c->house.sessions, half->session);
                if (s)
                        session_set_page(s, half->request, m->number, state);
        }
}

/* Before any reply: whoever resumes after a restart knows from his own page what a peer may have been told.
 * What ends because tuttid stops has not failed: it is submitted again. */
void conductor_fail_pages(struct conductor *c, const struct meeting *m) {
        if (m->status == STATUS_DRAINING)
                return;
        rankset_for_each (rank, &m->have) {
                const struct half *half = m->halves[rank];
                struct session *s = session_find(c->house.sessions, half->session);
                if (s)
                        session_fail_page(
                                s, &(struct page_end){ half->request, m->number, m->status, STATUS_OK });
        }
}

/* Whether nothing is left of it: it is released then. */
static bool give_back_meeting(struct conductor *c, struct meeting *m, uint32_t *n) {
        rankset_for_each (rank, &m->have) {
                conductor_return_entries(c, m->halves[rank], n);
                if (m->halves[rank]->n_checked > 0)
                        return false;
        }
        if (m->task)
                conductor_put_task(c, m->task);
        m->task = NULL;
        list_unlink(&m->outcome_link);
        rendezvous_release(c->house.rendezvous, m, &c->outcome);
        return true;
}

void conductor_give_back(struct conductor *c, uint32_t n) {
        (void)conductor_return_prepared(c, &n);
        conductor_give_back_dropped(c, &n);
        while (n > 0 && !list_is_empty(&c->returning))
                if (!give_back_meeting(c, list_entry(c->returning.next, struct meeting, outcome_link), &n))
                        return;
}

/* It has run, though not as somebody wished. */
static bool is_fallback(const struct meeting *m) {
        const struct task *t = m->task;
        return t && m->status == STATUS_OK && t->plan.fallback[0] != '\0';
}

static void note_end(struct conductor *c, const struct meeting *m) {
        conductor_log_end(m);
        recorder_add(c->house.recorder, m);
        stats_add(c->house.stats, m);
        if (is_fallback(m))
                conductor_note_fallback(c, m, &((const struct task *)m->task)->plan);
}

void conductor_told(struct conductor *c, struct meeting *m) {
        uint32_t n = SLICE_ENTRIES;
        conductor_put_plan(c, m);
        conductor_offer_road(c, m->group);
        if (!give_back_meeting(c, m, &n))
                list_append(&c->returning, &m->outcome_link);
}

/* ENDED: tells every member, keeps the record, begins to give everything back. */
void conductor_finish(struct conductor *c, struct meeting *m) {
        uint32_t index = 0;
        if (m->error)
                conductor_probe(c, m->group, m->error->n_replicas, m->error->replicas);
        if (m->status == STATUS_OK)
                conductor_set_pages(c, m, PAGE_DONE); /* all of them before any reply */
        else
                conductor_fail_pages(c, m);
        conductor_end_slot(c, m); /* before anybody can give it back */
        if (conductor_tell_in_parts(c, m)) {
                note_end(c, m);
                return;
        }
        rankset_for_each (rank, &m->have) {
                conductor_keep_half(c, m, (uint32_t)rank);
                conductor_tell_half(c, m, index++, rank);
        }
        note_end(c, m);
        conductor_told(c, m);
}

/* Which collective of which group *err is about. */
static void describe_meeting(const struct meeting *m, struct error *err) {
        group_describe(m->group, err);
        err->epoch = m->epoch;
        err->has_key = true;
        err->key = m->key;
        err->kind = m->halves[rankset_next(&m->have, 0)]->signature.kind;
}

static void conductor_refuse_sealed(struct conductor *c, struct meeting *m, enum status status) {
        describe_meeting(m, &c->error);
        rendezvous_done(c->house.rendezvous, m, status, &c->error, c->now_ns);
        conductor_finish(c, m);
}

_Static_assert(LIBRARY_FROM_AUTO == LIBRARY_AUTO, "what the configuration leaves to the planner");

struct plan_rules conductor_rules(const struct conductor *c) {
        const struct config *config = c->house.config;
        return (struct plan_rules){ .algorithm = config->plan_algorithm,
                .library_from_bytes = config->plan_library_from_bytes,
                .tuning = &config->tuning };
}

void conductor_set_rules(const struct conductor *c, struct planner *planner) {
        const struct plan_rules rules = conductor_rules(c);
        planner_set_rules(planner, &rules);
}

static enum status refuse_memory(struct conductor *c) {
        error_init(&c->error, STATUS_NO_MEMORY);
        return error_set(&c->error, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid is short of memory");
}

static struct problem describe_problem(const struct conductor *c, const struct meeting *m, uint32_t *ranks,
        const struct entry **entries, double *weights, struct homes *homes) {
        uint32_t n = 0;
        rankset_for_each (rank, &m->have) {
                ranks[n] = (uint32_t)rank;
                weights[n] = m->halves[rank]->signature.options.weight;
                entries[n++] = m->halves[rank]->entries;
        }
        struct problem problem = { .signature = &m->halves[ranks[0]]->signature,
                .n_ranks = n,
                .ranks = ranks,
                .entries = entries,
                .weights = weights,
                .divisor = m->divisor,
                .n_devices = engine_n_devices(c->house.engine),
                .n_sparse = m->halves[ranks[0]]->n_sparse };
        conductor_locate(c, m, homes, &problem);
        return problem;
}

/* What lies between the steps of a plan is memory that tuttid provides (P18). */
static enum status charge_scratch(struct conductor *c, const struct meeting *m) {
        struct task *t = m->task;
        uint64_t n_bytes = plan_scratch_bytes(&t->plan);
        charge_release(&t->scratch_charge); /* of what it has kept */
        if (n_bytes == 0)
                return STATUS_OK;
        return quota_charge(
                c->house.quotas, &t->scratch_charge, m->group->uid, QUOTA_RESULT_BYTES, n_bytes, &c->error);
}

/* It has a plan, or none: given to the engine unless there is nothing to do. */
static void conductor_execute(struct conductor *c, struct meeting *m, enum status status) {
        struct task *t = m->task;
        if (status == STATUS_OK)
                status = charge_scratch(c, m);
        if (status != STATUS_OK) {
                conductor_refuse_sealed(c, m, status);
                return;
        }
        conductor_set_pages(c, m, PAGE_BEGUN);
        if (t->plan.n_chunks == 0) {
                rendezvous_done(c->house.rendezvous, m, STATUS_OK, NULL, c->now_ns);
                conductor_finish(c, m);
                return;
        }
        t->owner = m;
        t->group = m->group->id;
        c->n_running++;
        if (t->plan.device >= DEVICE_GPU)
                conductor_launch(c, m, t);
        else
                engine_start(c->house.engine, t);
}

/* --- many entries: planned on a thread of the engine --- */

static void planning_free(struct planning *p) {
        if (!p)
                return;
        planner_free(p->planner);
        free(p);
}

/* The host's backend opens host memory alone: whatever was planned by mistake is refused, and never run. */
static enum status make_plan(
        struct planner *planner, const struct problem *problem, struct plan *plan, struct error *err) {
        enum status status = planner_plan(planner, problem, plan, err);
        for (uint32_t i = 0; status == STATUS_OK && plan->device < DEVICE_GPU && i < plan->n_operands; i++) {
                const struct memory *m = plan->operands[i].memory;
                if (m && m->path != PATH_MEMFD) {
                        error_init(err, STATUS_INTERNAL);
                        status = error_set(err, STATUS_INTERNAL, FIELD_UNSPECIFIED,
                                "a plan for the host names memory of a GPU; report this");
                }
        }
        return status;
}

static void planning_think(struct chore *chore) {
        struct planning *p = list_entry(chore, struct planning, chore);
        struct task *t = p->meeting->task;
        p->status = make_plan(p->planner, &p->problem, &t->plan, &p->error);
        planner_free(p->planner); /* here, for its scratch memory can be large */
        p->planner = NULL;
}

static struct planning *planning_new(
        const struct conductor *c, struct meeting *m, const struct problem *problem) {
        struct planning *p = calloc(1, sizeof(*p));
        if (!p)
                return NULL;
        if (planner_new(&p->planner, engine_n_devices(c->house.engine), c->house.config->chunk_bytes) < 0) {
                free(p);
                return NULL;
        }
        conductor_set_rules(c, p->planner);
        p->meeting = m;
        p->problem = describe_problem(c, m, p->ranks, p->entries, p->weights, &p->homes);
        p->problem.device = problem->device; /* these are what its result object has made of it */
        p->problem.is_bound = problem->is_bound;
        if (problem->is_bound)
                conductor_reach(c, &p->homes, &p->problem);
        p->problem.slot_offset_bytes = problem->slot_offset_bytes;
        list_init(&p->chore.link);
        p->chore.kind = CHORE_THINK;
        p->chore.think = planning_think;
        p->chore.uid = m->group->uid;
        p->chore.fd = -1;
        error_init(&p->error, STATUS_OK);
        return p;
}

static enum status conductor_plan_elsewhere(
        struct conductor *c, struct meeting *m, const struct problem *problem) {
        struct planning *p = planning_new(c, m, problem);
        if (!p)
                return refuse_memory(c);
        c->n_running++;
        list_append(&c->chores, &p->chore.link);
        return STATUS_OK;
}

static void conductor_planned(struct conductor *c, struct planning *p) {
        struct meeting *m = p->meeting;
        enum status status = p->status;
        c->n_running--;
        c->error = p->error;
        planning_free(p);
        if (status == STATUS_OK && c->is_over)
                status = error_set(&c->error, STATUS_DRAINING, FIELD_UNSPECIFIED,
                        "tuttid has been stopped before it ran");
        conductor_execute(c, m, status);
}

void conductor_thought(struct conductor *c, struct chore *chore) {
        if (chore->think == planning_think) {
                conductor_planned(c, list_entry(chore, struct planning, chore));
                return;
        }
        struct burial *b = list_entry(chore, struct burial, chore);
        charge_release(&b->charge);
        free(b);
}

/* --- sealed --- */

/* Each replica has its own word on it: the most urgent counts. */
static int32_t highest_priority(const struct meeting *m) {
        int32_t highest = INT32_MIN;
        rankset_for_each (rank, &m->have) {
                int32_t priority = m->halves[rank]->signature.options.priority;
                if (priority > highest)
                        highest = priority;
        }
        return highest;
}

static void task_begin(struct task *t, const struct meeting *m) {
        t->culprit_session = 0;
        t->is_untouched = false;
        memset(&t->found, 0, sizeof(t->found));
        t->uid = m->group->uid;
        t->priority = highest_priority(m);
}

/* Its plan is there; where its slot is not, nothing has been touched. */
static void conductor_run_again(struct conductor *c, struct meeting *m) {
        uint64_t slot_offset_bytes;
        enum status status = conductor_take_slot(c, m, &slot_offset_bytes);
        if (status == STATUS_OK) {
                conductor_replay(c, m, slot_offset_bytes);
                task_begin(m->task, m);
        }
        conductor_execute(c, m, status);
}

/* SEALED: made into a plan, and given to the engine unless there is nothing to do. */
void conductor_run(struct conductor *c, struct meeting *m) {
        error_init(&c->error, STATUS_OK);
        if (conductor_find_plan(c, m)) {
                conductor_run_again(c, m);
                return;
        }
        struct problem problem = describe_problem(c, m, c->ranks, c->entries, c->weights, &c->homes);
        struct task *t = conductor_take_task(c);
        m->task = t;
        if (!t) {
                conductor_refuse_sealed(c, m, refuse_memory(c));
                return;
        }
        task_begin(t, m);
        uint64_t n_bytes = m->halves[m->last_rank]->n_bytes;
        enum status status = quota_charge(c->house.quotas, &t->memory, t->uid, QUOTA_MEMORY_BYTES,
                planner_bytes(&problem, n_bytes), &c->error);
        if (status == STATUS_OK)
                status = conductor_go_to_object(c, m, &problem);
        if (status == STATUS_OK)
                status = conductor_take_slot(c, m, &problem.slot_offset_bytes);
        if (status == STATUS_OK && planner_work(&problem, n_bytes) > PLAN_WORK) {
                status = conductor_plan_elsewhere(c, m, &problem);
                if (status == STATUS_OK)
                        return;
        } else if (status == STATUS_OK) {
                conductor_set_rules(c, c->house.planner);
                status = make_plan(c->house.planner, &problem, &t->plan, &c->error);
        }
        conductor_execute(c, m, status);
}

void conductor_blame(struct conductor *c, const struct meeting *m, const struct task *t) {
        struct error *err = &c->error;
        error_init(err, STATUS_REPLICA_LOST);
        describe_meeting(m, err);
        err->loss = LOSS_EJECTED;
        err->field = FIELD_DATA;
        err->outputs_undefined = !t->is_untouched;
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

/* An input is not what it was when it was submitted: whoever changed it meanwhile has made wrong numbers for
 * all.
 */
static bool conductor_find_changed_input(struct conductor *c, const struct meeting *m, const struct task *t) {
        const struct step *step;
        const struct operand *input;
        if (!plan_find_changed_input(&t->plan, &step, &input))
                return false;
        struct error *err = &c->error;
        error_init(err, STATUS_INVALID);
        describe_meeting(m, err);
        err->field = FIELD_DATA;
        err->outputs_undefined = true;
        err->have = m->have;
        err->rank = (int32_t)input->rank;
        err->entry = (int32_t)step->entry;
        error_set_detail(err,
                "check_inputs: the input of R%u (entry %u) was changed after it had been submitted; leave an "
                "input alone until its collective has ended",
                input->rank, step->entry);
        return true;
}

/* The first phases of a run have seen what the others must not be run with. */
static enum status refuse_index(struct error *err, const struct bad_index *bad) {
        err->entry = (int32_t)bad->entry;
        err->rank = (int32_t)bad->rank;
        return error_set(err, STATUS_INVALID, FIELD_INDICES,
                "R%u brings the index %lld at position %llu of entry %u, and the dense value has %llu rows, "
                "from 0 "
                "on; nothing was written",
                bad->rank, (long long)bad->value, (unsigned long long)bad->position, bad->entry,
                (unsigned long long)bad->bound);
}

static enum status refuse_length(struct error *err, const struct short_output *s) {
        err->entry = (int32_t)s->entry;
        err->rank = (int32_t)s->rank;
        return error_set(err, STATUS_INVALID, FIELD_SIZE,
                "the result of entry %u has %llu rows, and the output of R%u has room for %llu; nothing was "
                "written",
                s->entry, (unsigned long long)s->needed, s->rank, (unsigned long long)s->room);
}

static void conductor_refuse_found(struct conductor *c, struct meeting *m, const struct findings *found) {
        error_init(&c->error, STATUS_INVALID);
        enum status status = found->bad_index.n ? refuse_index(&c->error, &found->bad_index)
                                                : refuse_length(&c->error, &found->short_output);
        describe_meeting(m, &c->error);
        c->error.have = m->have;
        rendezvous_done(c->house.rendezvous, m, status, &c->error, c->now_ns);
}

/* Nothing was written. */
static void conductor_refuse_scratch(struct conductor *c, struct meeting *m) {
        enum status status = refuse_memory(c);
        describe_meeting(m, &c->error);
        rendezvous_done(c->house.rendezvous, m, status, &c->error, c->now_ns);
}

void conductor_task_done(struct conductor *c, struct task *t) {
        struct meeting *m = t->owner;
        c->n_running--;
        charge_release(&t->scratch_charge);
        if (t->done_ns > c->now_ns) /* begun in this turn, which the loop thread has had to wait in */
                c->now_ns = t->done_ns;
        if (t->blocked_ns)
                conductor_log_blocked(m, t->blocked_ns);
        if (t->status == STATUS_OK && conductor_find_changed_input(c, m, t)) {
                rendezvous_done(c->house.rendezvous, m, STATUS_INVALID, &c->error, c->now_ns);
        } else if (t->status == STATUS_OK) {
                conductor_log_findings(m, &t->found);
                rendezvous_done(c->house.rendezvous, m, STATUS_OK, NULL, c->now_ns);
        } else if (t->status == STATUS_INVALID) {
                conductor_refuse_found(c, m, &t->found);
        } else if (t->plan.device >= DEVICE_GPU && t->status != STATUS_BAD_FD) {
                enum status status = conductor_explain_failure(c, m, t);
                describe_meeting(m, &c->error);
                rendezvous_done(c->house.rendezvous, m, status, &c->error, c->now_ns);
        } else if (t->status == STATUS_NO_MEMORY) {
                conductor_refuse_scratch(c, m);
        } else {
                conductor_blame(c, m, t);
                rendezvous_done(c->house.rendezvous, m, STATUS_REPLICA_LOST, &c->error, c->now_ns);
        }
        conductor_finish(c, m);
}
