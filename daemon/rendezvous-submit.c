/* The rules that a submission meets, in the order of rendezvous.h. */
#include "rendezvous-internal.h"

/* A half on its way through the rules. */
struct arrival {
        struct member *member;
        struct circle *circle;
        struct lookup lookup;
        struct meeting *meeting; /* of this key, NULL when there is none yet */
        struct outcome *out;
};

/* --- rules 1 to 3: nothing but the sender hears of it --- */

static enum status refuse_half(const struct arrival *a, const struct half *half, enum status status,
        enum field field, struct error *err) {
        error_init(err, status);
        describe_half(a->member, half, err);
        err->field = field;
        return status;
}

static enum status check_epoch(const struct arrival *a, const struct half *half, struct error *err) {
        const struct group *g = a->member->group;
        if (half->epoch == g->epoch)
                return STATUS_OK;
        refuse_half(a, half, STATUS_REPLICA_LOST, FIELD_MEMBERSHIP, err);
        error_set_detail(err, "the submission is of epoch %llu, the group is in epoch %llu",
                (unsigned long long)half->epoch, (unsigned long long)g->epoch);
        err->rank = g->lost_rank;
        return STATUS_REPLICA_LOST;
}

static enum status check_not_failed(
        const struct arrival *a, const struct half *half, uint64_t now_ns, struct error *err) {
        const struct group *g = a->member->group;
        if (g->state != GROUP_FAILED)
                return STATUS_OK;
        refuse_half(a, half, STATUS_REPLICA_LOST, FIELD_UNSPECIFIED, err);
        err->replicas[err->n_replicas++] = g->lost;
        err->replicas[0].last_age_ns += g->lost.has_last ? now_ns - g->lost_ns : 0;
        err->rank = g->lost_rank;
        err->loss = g->loss;
        err->age_ns = now_ns - g->lost_ns;
        error_set_detail(err, "%s", g->lost_why);
        return STATUS_REPLICA_LOST;
}

static enum status check_not_pending(const struct arrival *a, const struct half *half, struct error *err) {
        if (!a->meeting || !rankset_has(&a->meeting->have, a->member->rank))
                return STATUS_OK;
        return refuse_half(a, half, STATUS_ALREADY_PENDING, FIELD_KEY, err);
}

/* Rules 1 to 4. */
static enum status admit(struct rendezvous *r, const struct half *half, uint64_t now_ns, struct arrival *a,
        struct error *err) {
        enum status status = member_find_alive(r, half->session, half->membership, now_ns, &a->member, err);
        if (status != STATUS_OK)
                return status;
        a->circle = circle_of(a->member->group);
        status = check_epoch(a, half, err);
        if (status == STATUS_OK)
                status = check_not_failed(a, half, now_ns, err);
        if (status != STATUS_OK)
                return status;
        lookup_make(r, &a->circle->group, &half->key, &a->lookup);
        a->meeting = meeting_find(r, &a->lookup);
        status = check_not_pending(a, half, err);
        if (status == STATUS_OK)
                member_end_busy(r, a->member, now_ns, a->out);
        return status;
}

/* --- rule 5: a refused half --- */

/* The others hear of it: those who are there now, the rest when they come. */
static void spread(struct rendezvous *r, const struct arrival *a, const struct half *half, uint64_t now_ns,
        struct outcome *out, const struct error *refusal) {
        struct rankset about = { { 0 } };
        rankset_add(&about, a->member->rank);
        struct reason why = {
                .status = STATUS_PEER_REFUSED,
                .cause = refusal->status,
                .field = refusal->field,
                .entry = refusal->entry,
                .rank = (int32_t)a->member->rank,
                .about = &about,
                .detail = refusal->detail,
        };
        if (a->meeting) {
                why.age_ns = now_ns - a->meeting->first_ns;
                meeting_end(r, a->meeting, &why, now_ns, out);
                return;
        }
        struct rankset debtors = rankset_minus(&a->circle->group.alive, &about);
        debt_make(r, a->circle, &a->lookup, &half->key, &debtors, &why, now_ns, out);
}

static enum status refuse(struct rendezvous *r, const struct arrival *a, const struct half *half,
        uint64_t now_ns, struct outcome *out, struct error *err) {
        if (!debt_pay(a->circle, &a->lookup, &half->key, a->member->rank, now_ns, NULL))
                spread(r, a, half, now_ns, out, err);
        describe_half(a->member, half, err);
        return err->status;
}

static enum status check_root(
        const struct arrival *a, const struct half *half, uint64_t now_ns, struct error *err) {
        const struct group *g = &a->circle->group;
        uint32_t root = half->signature.root;
        if (!kind_has_root(half->signature.kind) || rankset_has(&g->alive, root))
                return STATUS_OK;
        enum status status = status_without_root(half->signature.kind);
        error_init(err, status);
        err->loss = root < g->world_size ? g->members[root].loss : LOSS_UNSPECIFIED;
        err->field = FIELD_ROOT;
        describe_gone_root(&half->signature, err->loss, err->detail, sizeof(err->detail));
        if (status == STATUS_REPLICA_LOST && root < g->world_size) {
                struct rankset about = { { 0 } };
                rankset_add(&about, root);
                err->rank = (int32_t)root;
                group_add_reports(g, &about, now_ns, err);
        }
        return status;
}

/* The replica that ran the merge function is gone: nobody is at fault, and every other half finds the same.
 */
static enum status refuse_bereft(
        const struct arrival *a, const struct half *half, uint64_t now_ns, struct error *err) {
        (void)debt_pay(a->circle, &a->lookup, &half->key, a->member->rank, now_ns, NULL);
        describe_half(a->member, half, err);
        return err->status;
}

/* --- rules 6 and 7 --- */

static void meeting_add(struct rendezvous *r, struct meeting *m, const struct member *member,
        struct half *half, uint64_t now_ns) {
        if (m->n_halves == 0) {
                m->first_ns = now_ns;
                stall_watch(r, circle_of(m->group), now_ns);
        }
        half->rank = member->rank;
        half->arrived_ns = now_ns;
        m->halves[half->rank] = half;
        m->n_halves++;
        m->last_rank = half->rank;
        rankset_add(&m->have, half->rank);
        m->has_root |= kind_has_root(half->signature.kind);
        meeting_compare(m, half);
        half_start_clock(r, m, half, now_ns);
}

static void refuse_crowd(const struct arrival *a, struct error *err) {
        error_init(err, STATUS_LIMIT);
        err->used = a->circle->group.n_meetings;
        err->limit = MAX_GROUP_MEETINGS;
        error_set_detail(err, "unfinished collectives of one group; wait for some of them");
}

/* Rule 6, and room for rule 7. */
static enum status prepare(struct rendezvous *r, struct arrival *a, const struct half *half, uint64_t now_ns,
        struct outcome *out, struct error *err) {
        if (debt_pay(a->circle, &a->lookup, &half->key, a->member->rank, now_ns, err)) {
                describe_half(a->member, half, err);
                return STATUS_EXPIRED;
        }
        if (!a->meeting && a->circle->group.n_meetings >= MAX_GROUP_MEETINGS) {
                refuse_crowd(a, err);
                return refuse(r, a, half, now_ns, out, err);
        }
        if (!a->meeting)
                a->meeting = meeting_new(r, a->circle, &a->lookup, &half->key, err);
        if (a->meeting)
                return STATUS_OK;
        return refuse(r, a, half, now_ns, out, err);
}

enum status rendezvous_submit(
        struct rendezvous *r, struct half *half, uint64_t now_ns, struct outcome *out, struct error *err) {
        struct arrival a = { .out = out };
        enum status status = admit(r, half, now_ns, &a, err);
        if (status != STATUS_OK)
                return status;
        status = check_root(&a, half, now_ns, err);
        if (status == STATUS_REPLICA_LOST)
                return refuse_bereft(&a, half, now_ns, err);
        if (status == STATUS_OK)
                status = rendezvous_half_charge(r, half, a.circle->group.uid, err);
        if (status != STATUS_OK)
                return refuse(r, &a, half, now_ns, out, err);
        status = prepare(r, &a, half, now_ns, out, err);
        if (status != STATUS_OK) {
                charge_release(&half->charge);
                charge_release(&half->memory);
                return status;
        }
        rendezvous_half_look(r, half, UINT32_MAX);
        a.member->n_submitted++;
        meeting_add(r, a.meeting, a.member, half, now_ns);
        meeting_settle(r, a.meeting, now_ns, out);
        return STATUS_OK;
}

enum status rendezvous_refuse(struct rendezvous *r, const struct half *half, uint64_t now_ns,
        struct outcome *out, struct error *err) {
        struct arrival a = { .out = out };
        struct error before;
        enum status status = admit(r, half, now_ns, &a, &before);
        if (status != STATUS_OK) {
                *err = before;
                return status;
        }
        return refuse(r, &a, half, now_ns, out, err);
}
