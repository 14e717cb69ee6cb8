/* How a group comes to be, is whole, fails to form, and is forgotten. */
#include "rendezvous-internal.h"

#include <stdlib.h>
#include <string.h>
#include "base/text.h"

/* --- what a join asks, checked by itself --- */

static enum status check_name(const char *name, enum field field, struct error *err) {
        size_t n = strlen(name);
        if (n == 0)
                return error_set(err, STATUS_INVALID, field, "it is empty; give it a name");
        if (n >= MAX_NAME_BYTES)
                return error_set(err, STATUS_INVALID, field, "it has %zu bytes, at most %d are allowed", n,
                        MAX_NAME_BYTES - 1);
        if (!text_is_printable(name))
                return error_set(err, STATUS_INVALID, field,
                        "it is no UTF-8, or holds a control character; use printable ones");
        return STATUS_OK;
}

static enum status check_policies(const struct msg_join *ask, struct error *err) {
        if (ask->on_death > ON_DEATH_SHRINK)
                return error_set(err, STATUS_UNSUPPORTED, FIELD_OPTIONS,
                        "on_death %u is unknown here; use fail or shrink", (unsigned int)ask->on_death);
        if (ask->on_leave > ON_LEAVE_ZERO_FILL)
                return error_set(err, STATUS_UNSUPPORTED, FIELD_OPTIONS,
                        "on_leave %u is unknown here; use contributors or zero_fill",
                        (unsigned int)ask->on_leave);
        return STATUS_OK;
}

static enum status check_world(const struct msg_join *ask, struct error *err) {
        if (ask->world_size < 1 || ask->world_size > MAX_WORLD)
                return error_set(err, STATUS_INVALID, FIELD_WORLD_SIZE, "it is %u, 1 to %d are allowed",
                        ask->world_size, MAX_WORLD);
        if (ask->rank >= ask->world_size)
                return error_set(err, STATUS_INVALID, FIELD_RANK,
                        "it is %u, in a world of %u only 0 to %u exist", ask->rank, ask->world_size,
                        ask->world_size - 1);
        return STATUS_OK;
}

static enum status check_ask(const struct msg_join *ask, struct error *err) {
        enum status status = check_name(ask->job, FIELD_JOB, err);
        if (status == STATUS_OK)
                status = check_name(ask->group, FIELD_GROUP, err);
        if (status == STATUS_OK && strlen(ask->secret) >= MAX_SECRET_BYTES)
                status = error_set(err, STATUS_INVALID, FIELD_JOB, "its secret has more than %d bytes",
                        MAX_SECRET_BYTES - 1);
        if (status == STATUS_OK)
                status = check_world(ask, err);
        if (status == STATUS_OK)
                status = check_policies(ask, err);
        return status;
}

static enum on_death effective_on_death(const struct msg_join *ask) {
        return ask->on_death == ON_DEATH_UNSPECIFIED ? ON_DEATH_FAIL : ask->on_death;
}

static enum on_leave effective_on_leave(const struct msg_join *ask) {
        return ask->on_leave == ON_LEAVE_UNSPECIFIED ? ON_LEAVE_CONTRIBUTORS : ask->on_leave;
}

/* --- the group --- */

static void make_identity(const struct join *join, struct identity *ret) {
        *ret = (struct identity){ .uid = join->uid };
        memcpy(ret->secret, join->ask.secret, strlen(join->ask.secret));
        memcpy(ret->job, join->ask.job, strlen(join->ask.job));
        memcpy(ret->name, join->ask.group, strlen(join->ask.group));
}

static struct circle *circle_find(const struct rendezvous *r, const struct identity *identity) {
        struct circle *c;
        uint32_t hash = secret_hash(r, identity, sizeof(*identity));
        HASH_FIND_BYHASHVALUE(hh, r->identities, identity, sizeof(*identity), hash, c);
        return c;
}

const struct group *rendezvous_find_group(const struct rendezvous *r, const struct join *join) {
        struct identity identity;
        make_identity(join, &identity);
        const struct circle *c = circle_find(r, &identity);
        return c ? &c->group : NULL;
}

static void circle_init(struct circle *c, const struct join *join, uint64_t now_ns) {
        struct group *g = &c->group;
        g->uid = join->uid;
        g->world_size = join->ask.world_size;
        memcpy(g->job, c->identity.job, sizeof(g->job));
        memcpy(g->name, c->identity.name, sizeof(g->name));
        memcpy(g->secret, c->identity.secret, sizeof(g->secret));
        g->state = GROUP_FORMING;
        g->on_death = effective_on_death(&join->ask);
        g->on_leave = effective_on_leave(&join->ask);
        g->brief_record = join->ask.brief_record;
        g->created_ns = now_ns;
        g->lost_rank = -1;
        c->deadline_rank = -1;
        c->first_epoch = join->last_epoch + 1;
        list_init(&g->meetings);
        c->oldest = &g->meetings;
        list_init(&g->outcome_link);
        alarm_init(&g->join_deadline);
        alarm_init(&g->stall);
        list_init(&c->all_link);
        list_init(&c->gone_link);
        list_init(&c->ended);
        list_init(&c->pool);
        list_init(&c->debts);
}

/* A group that nobody else can see yet; NULL when memory is short. */
static struct circle *circle_new(const struct join *join, const struct identity *identity, uint64_t now_ns) {
        struct circle *c = calloc(1, sizeof(*c));
        if (!c)
                return NULL;
        c->identity = *identity;
        circle_init(c, join, now_ns);
        c->group.members = calloc(join->ask.world_size, sizeof(*c->group.members));
        c->failure = malloc(sizeof(*c->failure));
        if (c->group.members && c->failure)
                return c;
        free(c->failure);
        free(c->group.members);
        free(c);
        return NULL;
}

static bool circle_publish(struct rendezvous *r, struct circle *c) {
        if (!clocks_reserve(&r->clocks, c->group.uid, ALARM_JOINING) ||
                !clocks_reserve(&r->clocks, c->group.uid, ALARM_STALL))
                return false;
        uint32_t hash = secret_hash(r, &c->identity, sizeof(c->identity));
        int table_oom_ = 0;
        HASH_ADD_BYHASHVALUE(hh, r->identities, identity, sizeof(c->identity), hash, c);
        if (table_oom_)
                return false;
        c->group.id = ++r->last_id;
        list_append(&r->groups, &c->all_link);
        r->n_groups++;
        clocks_enter(&r->clocks, c->group.uid, ALARM_JOINING);
        clocks_enter(&r->clocks, c->group.uid, ALARM_STALL);
        return true;
}

static void circle_destroy(struct circle *c) {
        charge_release(&c->group.charge);
        charge_release(&c->group.memory);
        free(c->failure);
        free(c->group.members);
        free(c);
}

static enum status fail_memory(struct error *err) {
        return error_set(
                err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid has no memory for this membership");
}

static enum status circle_charge(struct rendezvous *r, struct circle *c, uint32_t uid, struct error *err) {
        uint32_t world_size = c->group.world_size;
        uint64_t cost = (world_size + QUOTA_RANKS_BEGUN - 1) / QUOTA_RANKS_BEGUN;
        uint64_t n_bytes = sizeof(*c) + sizeof(*c->failure) + N_DEBT_BUCKETS * sizeof(*c->debt_buckets) +
                           world_size * sizeof(*c->group.members);
        enum status status = quota_charge(r->quotas, &c->group.charge, uid, QUOTA_GROUPS, cost, err);
        if (status == STATUS_OK)
                status = quota_charge(r->quotas, &c->group.memory, uid, QUOTA_MEMORY_BYTES, n_bytes, err);
        return status;
}

static enum status circle_make(struct rendezvous *r, const struct join *join, const struct identity *identity,
        uint64_t now_ns, struct error *err) {
        struct circle *c = circle_new(join, identity, now_ns);
        if (!c)
                return fail_memory(err);
        enum status status = circle_charge(r, c, join->uid, err);
        if (status == STATUS_OK && !circle_publish(r, c))
                status = fail_memory(err);
        if (status != STATUS_OK)
                circle_destroy(c);
        return status;
}

/* --- may this one come in? --- */

static enum status check_agrees(const struct circle *c, const struct join *join, struct error *err) {
        const struct group *g = &c->group;
        if (join->ask.world_size != g->world_size)
                return error_set(err, STATUS_MISMATCH, FIELD_WORLD_SIZE,
                        "you say %u, the group has %u; join with the same size or use another name",
                        join->ask.world_size, g->world_size);
        if (effective_on_death(&join->ask) != g->on_death)
                return error_set(err, STATUS_MISMATCH, FIELD_OPTIONS, "on_death differs, the group has %s",
                        g->on_death == ON_DEATH_SHRINK ? "shrink" : "fail");
        if (effective_on_leave(&join->ask) != g->on_leave)
                return error_set(err, STATUS_MISMATCH, FIELD_OPTIONS, "on_leave differs, the group has %s",
                        g->on_leave == ON_LEAVE_ZERO_FILL ? "zero_fill" : "contributors");
        return STATUS_OK;
}

static bool is_present(const struct member *m) {
        return m->state == MEMBER_JOINING || m->state == MEMBER_ALIVE;
}

static struct rankset circle_present(const struct circle *c) {
        struct rankset s = { { 0 } };
        for (uint32_t rank = 0; rank < c->group.world_size; rank++)
                if (is_present(&c->group.members[rank]))
                        rankset_add(&s, rank);
        return s;
}

static enum status check_is_free(const struct circle *c, const struct join *join, struct error *err) {
        const struct group *g = &c->group;
        if (join->resume && (g->state != GROUP_FORMING || (is_present(&g->members[join->ask.rank]) &&
                                                                  !g->members[join->ask.rank].resume)))
                return error_set(err, STATUS_REPLICA_LOST, FIELD_RANK,
                        "the group has gone on without it: it came back too late after a restart of tuttid");
        if (is_present(&g->members[join->ask.rank]))
                return error_set(err, STATUS_BUSY, FIELD_RANK, "rank %u is taken", join->ask.rank);
        return STATUS_OK;
}

/* Who is in the way: the holder of the rank, or whoever is there. */
static void name_holders(const struct circle *c, uint32_t rank, uint64_t now_ns, struct error *err) {
        struct rankset holders = circle_present(c);
        if (err->field == FIELD_RANK) {
                holders = (struct rankset){ { 0 } };
                rankset_add(&holders, rank);
        }
        err->rank = (int32_t)rank;
        group_add_reports(&c->group, &holders, now_ns, err);
}

static enum status check_admits(
        const struct circle *c, const struct join *join, uint64_t now_ns, struct error *err) {
        enum status status = check_agrees(c, join, err);
        if (status == STATUS_OK)
                status = check_is_free(c, join, err);
        if (status != STATUS_OK)
                name_holders(c, join->ask.rank, now_ns, err);
        return status;
}

/* --- the member --- */

static void member_init(struct member *m, struct circle *c, const struct join *join) {
        *m = (struct member){
                .session = join->session,
                .join_request = join->request,
                .group = &c->group,
                .rank = join->ask.rank,
                .pid = join->pid,
                .state = MEMBER_JOINING,
                .has_default_timeout = join->ask.has_default_timeout,
                .default_timeout_ns = join->ask.default_timeout_ns,
        };
        if (join->process)
                text_copy(m->process, sizeof(m->process), join->process);
        alarm_init(&m->busy_end);
        list_init(&m->outcome_link);
        list_init(&m->session_link);
}

/* In the place of whoever had the rank before. NULL when memory is short: then the rank is free. */
static struct member *member_new(struct rendezvous *r, struct circle *c, const struct join *join) {
        if (!clocks_reserve(&r->clocks, c->group.uid, ALARM_BUSY_END))
                return NULL;
        struct member *m = &c->group.members[join->ask.rank];
        member_forget(r, m);
        struct party *party = party_get(r, join->session);
        if (!party)
                return NULL;
        member_init(m, c, join);
        m->id = r->last_id + 1;
        int is_in;
        TABLE_ADD(r->members, m, id, is_in);
        if (!is_in) {
                *m = (struct member){ 0 };
                party_drop(r, party);
                return NULL;
        }
        r->last_id++;
        clocks_enter(&r->clocks, c->group.uid, ALARM_BUSY_END);
        list_append(&party->members, &m->session_link);
        m->resume = join->resume;
        c->n_resumers += join->resume != NULL;
        c->n_present++;
        return m;
}

static void circle_set_deadline(
        struct rendezvous *r, struct circle *c, const struct join *join, uint64_t now_ns) {
        uint64_t timeout_ns =
                join->ask.join_timeout_ns ? join->ask.join_timeout_ns : r->settings.join_timeout_ns;
        uint64_t at_ns = deadline_after(now_ns, timeout_ns);
        if (at_ns >= c->group.join_deadline.at_ns)
                return;
        c->deadline_rank = (int32_t)join->ask.rank;
        clocks_set(&r->clocks, c->group.uid, ALARM_JOINING, &c->group.join_deadline, at_ns);
}

static void circle_form(struct rendezvous *r, struct circle *c, struct outcome *out) {
        struct group *g = &c->group;
        clocks_set(&r->clocks, g->uid, ALARM_JOINING, &g->join_deadline, ALARM_NEVER);
        free(c->failure);
        c->failure = NULL;
        g->state = GROUP_WHOLE;
        g->epoch = c->first_epoch;
        g->next_number = 1;
        g->alive = rankset_first(g->world_size);
        c->n_alive = g->world_size;
        for (uint32_t rank = 0; rank < g->world_size; rank++) {
                g->members[rank].state = MEMBER_ALIVE;
                g->members[rank].first_epoch = g->epoch;
        }
        outcome_put(&out->formed, &g->outcome_link);
}

/* It waits until the group is formed anew; false when memory is short, and the rank is free again. */
static bool circle_admit_newcomer(struct rendezvous *r, struct circle *c, const struct join *join,
        uint64_t now_ns, struct outcome *out) {
        struct member *m = &c->group.members[join->ask.rank];
        const struct reform_ask ask = { .session = join->session,
                .request = join->request,
                .membership = m->id,
                .kind = REFORM_JOIN,
                .timeout_ns = join->ask.join_timeout_ns };
        if (!reform_begin(r, m, &ask, now_ns)) {
                c->n_present--;
                member_forget(r, m);
                return false;
        }
        circle_try_reform(r, c, now_ns, out);
        return true;
}

/* false when memory is short. */
static bool circle_admit(struct rendezvous *r, struct circle *c, const struct join *join, uint64_t now_ns,
        struct outcome *out) {
        if (!member_new(r, c, join))
                return false;
        if (c->group.state != GROUP_FORMING)
                return circle_admit_newcomer(r, c, join, now_ns, out);
        circle_set_deadline(r, c, join, now_ns);
        if (c->n_resumers > 0)
                circle_try_restore(r, c, now_ns, out);
        else if (c->n_present == c->group.world_size)
                circle_form(r, c, out);
        return true;
}

static void describe_join(const struct join *join, struct error *err) {
        text_copy(err->job, sizeof(err->job), join->ask.job);
        text_copy(err->group, sizeof(err->group), join->ask.group);
        err->world_size = join->ask.world_size;
}

static enum status refuse_new(struct error *err) {
        error_init(err, STATUS_DRAINING);
        err->field = FIELD_GROUP; /* it is not being stopped */
        return STATUS_DRAINING;
}

static enum status find_or_make(struct rendezvous *r, const struct join *join, uint64_t now_ns,
        struct circle **ret, struct error *err) {
        struct identity identity;
        make_identity(join, &identity);
        struct circle *c = circle_find(r, &identity);
        enum status status = c                      ? check_admits(c, join, now_ns, err)
                             : join->makes_no_group ? refuse_new(err)
                                                    : circle_make(r, join, &identity, now_ns, err);
        *ret = c ? c : circle_find(r, &identity);
        return status;
}

enum status rendezvous_join(struct rendezvous *r, const struct join *join, uint64_t now_ns,
        struct outcome *out, struct error *err) {
        struct circle *c;
        error_init(err, STATUS_OK);
        enum status status = check_ask(&join->ask, err);
        if (status == STATUS_OK)
                status = find_or_make(r, join, now_ns, &c, err);
        if (status == STATUS_OK && !circle_admit(r, c, join, now_ns, out)) {
                if (c->n_present == 0)
                        circle_free(r, c);
                status = fail_memory(err);
        }
        if (status != STATUS_OK)
                describe_join(join, err);
        return status;
}

/* --- the end of a group --- */

/* Out of sight: its name may be used again. */
static void circle_retire(struct rendezvous *r, struct circle *c) {
        struct group *g = &c->group;
        CHECK(g->state != GROUP_ENDED);
        rendezvous_drop_resumes(g);
        g->state = GROUP_ENDED;
        g->is_stalled = false;
        clocks_set(&r->clocks, g->uid, ALARM_JOINING, &g->join_deadline, ALARM_NEVER);
        clocks_set(&r->clocks, g->uid, ALARM_STALL, &g->stall, ALARM_NEVER);
        debts_drop(c);
        HASH_DEL(r->identities, c);
        list_unlink(&c->all_link);
        list_append(&r->over, &c->all_link);
        r->n_groups--;
}

void circle_unform(struct rendezvous *r, struct circle *c, const struct rankset *about, uint64_t now_ns,
        struct outcome *out) {
        struct error *err = c->failure;
        struct rankset world = rankset_first(c->group.world_size);
        group_describe(&c->group, err);
        err->have = circle_present(c);
        err->missing = rankset_minus(&world, &err->have);
        group_add_reports(&c->group, about ? about : &err->missing, now_ns, err);
        circle_retire(r, c);
        outcome_put(&out->unformed, &c->group.outcome_link);
}

void circle_join_deadline(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out) {
        if (c->n_resumers > 0) {
                circle_restore(r, c, now_ns, out);
                return;
        }
        error_init(c->failure, STATUS_TIMEOUT);
        c->failure->rank = c->deadline_rank;
        c->failure->age_ns = now_ns - c->group.created_ns;
        circle_unform(r, c, NULL, now_ns, out);
}

void circle_end(struct rendezvous *r, struct circle *c, struct outcome *out) {
        circle_retire(r, c);
        if (c->group.n_references == 0)
                outcome_put(&out->over, &c->group.outcome_link);
}

const struct error *rendezvous_group_failure(const struct rendezvous *r, const struct group *g) {
        return list_entry(g, const struct circle, group)->failure;
}

void rendezvous_forget(struct rendezvous *r, struct group *g) {
        CHECK(g->state == GROUP_ENDED && g->n_references == 0);
        circle_free(r, circle_of(g));
}

void member_forget(struct rendezvous *r, struct member *m) {
        if (m->state == MEMBER_ABSENT)
                return;
        struct party *party = party_find(r, m->session);
        clocks_set(&r->clocks, m->group->uid, ALARM_BUSY_END, &m->busy_end, ALARM_NEVER);
        reform_forget(r, m);
        member_drop_resume(circle_of(m->group), m);
        list_unlink(&m->outcome_link);
        list_unlink(&m->session_link);
        party_drop(r, party);
        HASH_DEL(r->members, m);
        clocks_leave(&r->clocks, m->group->uid, ALARM_BUSY_END);
        *m = (struct member){ 0 };
}

static void free_meetings(struct rendezvous *r, struct circle *c) {
        list_for_each_safe (it, tmp, &c->group.meetings) {
                struct meeting *m = list_entry(it, struct meeting, group_link);
                meeting_detach(r, m);
                meeting_recycle(r, m);
        }
        list_for_each_safe (it, tmp, &c->ended) {
                meeting_recycle(r, list_entry(it, struct meeting, group_link));
        }
        circle_drain_pool(r, c);
}

void circle_free(struct rendezvous *r, struct circle *c) {
        struct group *g = &c->group;
        free_meetings(r, c);
        if (g->state != GROUP_ENDED)
                circle_retire(r, c);
        for (uint32_t rank = 0; rank < g->world_size; rank++)
                member_forget(r, &g->members[rank]);
        free(c->debt_buckets);
        list_unlink(&c->all_link);
        list_unlink(&g->outcome_link);
        clocks_leave(&r->clocks, c->group.uid, ALARM_JOINING);
        clocks_leave(&r->clocks, c->group.uid, ALARM_STALL);
        circle_destroy(c);
}
