#include "rendezvous-play-internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned int next_byte(struct play *p) {
        if (p->n_bytes == 0)
                return 0;
        p->n_bytes--;
        return *p->bytes++;
}

/* --- what the real one says --- */

static void hear(struct play *p, struct event e) {
        CHECK(p->n_events < MODEL_EVENTS);
        p->events[p->n_events++] = e;
}

static void hear_status(struct play *p, uint64_t request, enum status status, const struct error *err) {
        if (status != STATUS_OK && (!err || err->status != status))
                play_differ(p, "request %llu: status %s, but its error says %s", (unsigned long long)request,
                        status_name(status), err ? status_name(err->status) : "nothing");
        bool has_error = status != STATUS_OK && err;
        hear(p, (struct event){ EVENT_TOLD, request, (int)status, has_error ? (int)err->cause : 0,
                        has_error && status != STATUS_NOT_FOUND ? err->rank : -1 });
        p->counts->n_told[status]++;
}

static uint64_t life_of(const struct play *p, const struct group *g) {
        for (uint64_t life = p->model->n_lives; life > 0; life--)
                if (p->group_ids[life] == g->id)
                        return life;
        return 0;
}

static void drain_sealed(struct play *p) {
        struct list *link;
        while ((link = list_take_first(&p->out.sealed))) {
                struct meeting *m = list_entry(link, struct meeting, outcome_link);
                CHECK(p->n_running < MAX_RUNNING);
                p->running[p->n_running++] = m;
                rankset_for_each (rank, &m->have) {
                        hear(p, (struct event){ EVENT_SEALED, m->halves[rank]->request, (int)m->number,
                                        (int)m->divisor, (int)m->n_halves });
                }
                p->counts->n_sealed++;
        }
}

static void drain_ended(struct play *p) {
        struct list *link;
        while ((link = list_take_first(&p->out.ended))) {
                struct meeting *m = list_entry(link, struct meeting, outcome_link);
                rankset_for_each (rank, &m->have) {
                        hear_status(p, m->halves[rank]->request, m->status, m->error);
                }
                rendezvous_release(p->r, m, &p->out);
        }
}

static void drain_joins(struct play *p) {
        struct list *link;
        while ((link = list_take_first(&p->out.formed))) {
                struct group *g = list_entry(link, struct group, outcome_link);
                rankset_for_each (rank, &g->alive) {
                        hear(p, (struct event){
                                        EVENT_TOLD, g->members[rank].join_request, STATUS_OK, 0, (int)rank });
                }
                p->counts->n_epochs += g->epoch > 1;
        }
        while ((link = list_take_first(&p->out.unformed))) {
                struct group *g = list_entry(link, struct group, outcome_link);
                const struct error *err = rendezvous_group_failure(p->r, g);
                for (uint32_t rank = 0; rank < g->world_size; rank++)
                        if (g->members[rank].state == MEMBER_JOINING)
                                hear_status(p, g->members[rank].join_request, err->status, err);
                rendezvous_forget(p->r, g);
        }
}

static void drain_rest(struct play *p) {
        struct list *link;
        while ((link = list_take_first(&p->out.answered))) {
                struct reform *reform = list_entry(link, struct reform, outcome_link);
                hear_status(p, reform->request, reform->status, reform->error);
                rendezvous_reform_free(p->r, reform);
                p->counts->n_answered++;
        }
        while ((link = list_take_first(&p->out.struck))) {
                struct half *half = list_entry(link, struct half, pool_link);
                hear(p, (struct event){ EVENT_STRUCK, half->request, 0, 0, 0 });
                rendezvous_half_free(p->r, half);
                p->counts->n_struck++;
        }
        while ((link = list_take_first(&p->out.ejected))) {
                struct member *m = list_entry(link, struct member, outcome_link);
                hear(p, (struct event){ EVENT_EJECTED, life_of(p, m->group), (int)m->rank, 0, 0 });
                CHECK(p->n_ejected < MODEL_EVENTS);
                p->ejected[p->n_ejected++] = m->session;
                p->counts->n_ejected++;
        }
        while (list_take_first(&p->out.stalled))
                ;
        while ((link = list_take_first(&p->out.over))) {
                struct group *g = list_entry(link, struct group, outcome_link);
                hear(p, (struct event){ EVENT_OVER, life_of(p, g), 0, 0, 0 });
                rendezvous_forget(p->r, g);
                p->counts->n_over++;
        }
}

static void begin_step(struct play *p) {
        p->counts->n_steps++;
        p->n_events = 0;
        model_begin_step(p->model);
}

static void finish_step(struct play *p) {
        drain_sealed(p);
        drain_ended(p);
        drain_joins(p);
        drain_rest(p);
        model_finish_step(p->model);
        play_compare(p);
}

/* --- steps --- */

static void lose(struct play *p, uint64_t session, enum loss loss) {
        begin_step(p);
        rendezvous_lose(p->r, session, loss, "for a test", p->now_ns, &p->out);
        model_lose(p->model, session);
        finish_step(p);
        for (int i = 0; i < N_SESSIONS; i++)
                if (p->sessions[i] == session)
                        p->sessions[i] = ++p->last_session;
}

/* As the conductor does: whoever was ejected loses its session. */
static void lose_ejected(struct play *p) {
        while (p->n_ejected > 0 && !p->is_wrong)
                lose(p, p->ejected[--p->n_ejected], LOSS_EJECTED);
}

static void note_new_group(struct play *p) {
        struct group *g = NULL;
        while ((g = rendezvous_next_group(p->r, g)))
                if (!life_of(p, g))
                        p->group_ids[p->model->n_lives] = g->id;
}

static void note_handle(struct play *p, const struct model_join *join) {
        struct group *g = NULL;
        while ((g = rendezvous_next_group(p->r, g))) {
                if (join->rank >= (int)g->world_size || g->members[join->rank].join_request != join->request)
                        continue;
                unsigned int i = p->n_handles++ % N_HANDLES;
                const struct model_group *ought = model_find(p->model, life_of(p, g));
                p->handles[i] = (struct model_handle){ join->session, life_of(p, g),
                        ought ? ought->members[join->rank].order : 0, join->rank };
                p->memberships[i] = g->members[join->rank].id;
        }
}

static uint64_t as_option(int ticks) {
        return ticks > 0 ? (uint64_t)ticks * TICK_NS : 0;
}

static void join_as(struct play *p, const struct model_join *join) {
        char name[8];
        struct error err;
        snprintf(name, sizeof(name), "g%d", join->name);
        struct join ask = { .session = join->session,
                .request = join->request,
                .uid = 1000,
                .pid = 77,
                .ask = { .job = "job",
                        .group = name,
                        .secret = "",
                        .world_size = (uint32_t)join->world,
                        .rank = (uint32_t)join->rank,
                        .join_timeout_ns = as_option(join->timeout),
                        .on_death = join->shrinks ? ON_DEATH_SHRINK : ON_DEATH_FAIL,
                        .on_leave = join->fills ? ON_LEAVE_ZERO_FILL : ON_LEAVE_UNSPECIFIED,
                        .has_default_timeout = join->default_timeout != 0,
                        .default_timeout_ns = as_option(join->default_timeout) } };
        begin_step(p);
        enum status status = rendezvous_join(p->r, &ask, p->now_ns, &p->out, &err);
        if (status != STATUS_OK)
                hear_status(p, join->request, status, &err);
        model_join(p->model, join);
        note_new_group(p);
        note_handle(p, join);
        finish_step(p);
}

static int pick_timeout(struct play *p, unsigned int byte) {
        if (p->model->default_timeout < 0) /* nobody's clock runs in a world where order must be certain */
                return -1;
        return byte % 4 == 0 ? 1 + (int)(byte / 4 % 16) : byte % 4 == 1 ? -1 : 0;
}

static struct model_join pick_join(struct play *p) {
        unsigned int a = next_byte(p), b = next_byte(p);
        int name = (int)(a % N_NAMES);
        return (struct model_join){
                .session = p->sessions[b % N_SESSIONS],
                .request = ++p->last_request,
                .name = name,
                .world = 2 + name + (a > 240),
                .rank = (int)(b / N_SESSIONS % MODEL_WORLD),
                .timeout = a / N_NAMES % 8 == 0 ? 1 + (int)(b % 8) : 0,
                .default_timeout = pick_timeout(p, b),
                .shrinks = name == 1 || a % 32 == 31,
                .fills = name == 2,
        };
}

static void step_join(struct play *p) {
        struct model_join join = pick_join(p);
        if (join.world > MODEL_WORLD)
                join.world = MODEL_WORLD - 1;
        join_as(p, &join);
}

static void step_join_all(struct play *p) {
        struct model_join join = pick_join(p);
        unsigned int first = next_byte(p);
        join.world = 2 + join.name;
        join.shrinks = join.name == 1;
        for (int rank = 0; rank < join.world && !p->is_wrong; rank++) {
                join.rank = rank;
                join.session = p->sessions[(first + (first & 64 ? 0 : (unsigned int)rank)) % N_SESSIONS];
                join.request = ++p->last_request;
                join_as(p, &join);
        }
}

static void fill_half(
        struct play *p, struct half *half, const struct model_submission *s, uint64_t membership) {
        const struct model_group *g = model_find(p->model, s->who.life);
        half->session = s->session;
        half->request = s->request;
        half->membership = membership;
        half->epoch = (g ? g->epoch : 1) - s->is_old_epoch;
        half->key = play_key(s->key);
        half->has_timeout = s->timeout != 0;
        half->timeout_ns = as_option(s->timeout);
        half->signature = (struct signature){ .kind = KIND_REDUCE, .op = OP_SUM, .n_entries = 1 };
        half->entries[0] = (struct entry){ .dtype = DTYPE_F32,
                .destination = DESTINATION_ALL,
                .n_dims = 1,
                .shape = { s->signature == SIGNATURE_OTHER ? 8 : 4 } };
        if (s->signature < SIGNATURE_ROOT_0)
                return;
        half->signature.kind = KIND_BROADCAST;
        half->signature.op = OP_UNSPECIFIED;
        half->signature.root = s->signature == SIGNATURE_ROOT_1;
}

static void submit_as(struct play *p, const struct model_submission *s, uint64_t membership) {
        struct error err;
        enum status status;
        struct half *half = rendezvous_half_new(p->r, 1);
        CHECK(half);
        fill_half(p, half, s, membership);
        begin_step(p);
        if (s->refused != STATUS_OK) {
                error_init(&err, s->refused);
                err.field = FIELD_BUFFER;
                status = rendezvous_refuse(p->r, half, p->now_ns, &p->out, &err);
        } else
                status = rendezvous_submit(p->r, half, p->now_ns, &p->out, &err);
        if (status != STATUS_OK) {
                hear_status(p, s->request, status, &err);
                rendezvous_half_free(p->r, half);
        }
        model_submit(p->model, s);
        finish_step(p);
        lose_ejected(p);
}

static enum model_signature pick_signature(unsigned int byte) {
        return byte < 200 ? SIGNATURE_PLAIN : (enum model_signature)(byte % N_SIGNATURE);
}

static bool pick_handle(struct play *p, unsigned int *ret) {
        unsigned int n = p->n_handles < N_HANDLES ? p->n_handles : N_HANDLES;
        if (n == 0)
                return false;
        *ret = next_byte(p) % n;
        return true;
}

static void step_submit(struct play *p, bool is_refused) {
        unsigned int i;
        if (!pick_handle(p, &i))
                return;
        unsigned int a = next_byte(p), b = next_byte(p);
        struct model_submission s = {
                .who = p->handles[i],
                .session = a == 255 ? p->sessions[0] : p->handles[i].session,
                .request = ++p->last_request,
                .key = (int)(a % N_KEYS),
                .signature = pick_signature(b),
                .timeout = pick_timeout(p, b / 8),
                .is_old_epoch = a == 254,
                .refused = is_refused ? STATUS_BAD_FD : STATUS_OK,
        };
        submit_as(p, &s, p->memberships[i]);
}

/* Everybody of a group submits the same. */
static void step_round(struct play *p) {
        unsigned int first;
        if (!pick_handle(p, &first))
                return;
        unsigned int a = next_byte(p);
        uint64_t life = p->handles[first].life;
        unsigned int n = p->n_handles < N_HANDLES ? p->n_handles : N_HANDLES;
        for (unsigned int i = 0; i < n && !p->is_wrong; i++) {
                if (p->handles[i].life != life)
                        continue;
                struct model_submission s = { .who = p->handles[i],
                        .session = p->handles[i].session,
                        .request = ++p->last_request,
                        .key = (int)(a % N_KEYS),
                        .signature = pick_signature(a),
                        .timeout = pick_timeout(p, a) };
                submit_as(p, &s, p->memberships[i]);
        }
}

enum errand { ERRAND_ABORT, ERRAND_BUSY, ERRAND_LEAVE };

static enum status run_errand(
        struct play *p, enum errand errand, unsigned int i, unsigned int byte, struct error *err) {
        uint64_t session = p->handles[i].session, membership = p->memberships[i], request = ++p->last_request;
        struct msg_abort abort = { .membership = membership,
                .has_key = true,
                .key = play_key((int)(byte % N_KEYS)),
                .reason = "because" };
        struct msg_busy busy = {
                .membership = membership, .why = "saving", .duration_ns = byte % 24 * TICK_NS
        };
        switch (errand) {
        case ERRAND_ABORT:
                model_abort(p->model, p->handles[i], session, (int)(byte % N_KEYS), request);
                return rendezvous_abort(p->r, session, &abort, p->now_ns, &p->out, err);
        case ERRAND_BUSY:
                model_busy(p->model, p->handles[i], session, (int)(byte % 24), request);
                return rendezvous_busy(p->r, session, &busy, p->now_ns, &p->out, err);
        case ERRAND_LEAVE:
                model_leave(p->model, p->handles[i], session, request);
                return rendezvous_leave(p->r, session, membership, p->now_ns, &p->out, err);
        }
        return STATUS_INTERNAL;
}

static void step_errand(struct play *p, enum errand errand) {
        unsigned int i;
        struct error err;
        if (!pick_handle(p, &i))
                return;
        begin_step(p);
        enum status status = run_errand(p, errand, i, next_byte(p), &err);
        hear_status(p, p->last_request, status, &err);
        finish_step(p);
        lose_ejected(p);
}

/* --- a group formed anew --- */

static void reform_as(struct play *p, unsigned int i, enum model_wish wish, int timeout) {
        const struct reform_ask ask = { .session = p->handles[i].session,
                .request = ++p->last_request,
                .membership = p->memberships[i],
                .kind = wish == WISH_SHRINK ? REFORM_SHRINK : REFORM_REJOIN,
                .timeout_ns = as_option(timeout) };
        struct error err;
        begin_step(p);
        enum status status = rendezvous_reform(p->r, &ask, p->now_ns, &p->out, &err);
        if (status != STATUS_OK)
                hear_status(p, ask.request, status, &err);
        if (model_reform(p->model, p->handles[i], wish, timeout, ask.request) != status)
                play_differ(p, "a call to form anew: %s", status_name(status));
        finish_step(p);
}

static void step_reform(struct play *p) {
        unsigned int i;
        if (!pick_handle(p, &i))
                return;
        unsigned int a = next_byte(p);
        reform_as(p, i, a % 4 == 0 ? WISH_SHRINK : WISH_REJOIN, a % 8 == 7 ? 1 + (int)(a / 8) : 0);
}

/* Newcomers for all free ranks of a group. */
static void fill_ranks(struct play *p, uint64_t life, unsigned int first) {
        const struct model_group *g = model_find(p->model, life);
        for (int rank = 0; g && rank < g->world && !p->is_wrong; rank++) {
                if (g->members[rank].state == MEMBER_ALIVE || g->members[rank].state == MEMBER_JOINING)
                        continue;
                const struct model_join join = { .session =
                                                         p->sessions[(first + (unsigned)rank) % N_SESSIONS],
                        .request = ++p->last_request,
                        .name = g->name,
                        .world = g->world,
                        .rank = rank,
                        .shrinks = g->shrinks,
                        .fills = g->fills };
                join_as(p, &join);
                g = model_find(p->model, life);
        }
}

/* Everybody of a group calls, nearly always for the same. */
static void call_all(struct play *p, uint64_t life, unsigned int a) {
        unsigned int n = p->n_handles < N_HANDLES ? p->n_handles : N_HANDLES;
        for (unsigned int i = 0; i < n && !p->is_wrong; i++) {
                if (p->handles[i].life != life)
                        continue;
                bool shrinks = a % 4 == 0 || (a % 16 == 15 && i == a / 16);
                reform_as(p, i, shrinks ? WISH_SHRINK : WISH_REJOIN, 0);
        }
}

static void step_reform_all(struct play *p) {
        unsigned int i;
        if (!pick_handle(p, &i))
                return;
        unsigned int a = next_byte(p);
        uint64_t life = p->handles[i].life;
        if (a & 64)
                fill_ranks(p, life, a);
        if (!p->is_wrong)
                call_all(p, life, a);
        if ((a & 96) == 32 && !p->is_wrong)
                fill_ranks(p, life, a);
}

static void expire_all(struct play *p) {
        do
                rendezvous_expire(p->r, p->now_ns, &p->out);
        while (rendezvous_next_ns(p->r) <= p->now_ns);
}

static void step_time(struct play *p) {
        unsigned int byte = next_byte(p);
        bool is_late = byte & 128;
        begin_step(p);
        for (unsigned int i = 0; i <= byte % 24; i++) {
                p->now_ns += TICK_NS;
                model_tick(p->model);
                if (!is_late)
                        expire_all(p);
        }
        expire_all(p);
        finish_step(p);
        lose_ejected(p);
}

static void finish_one(struct play *p, int nth, enum status status) {
        struct meeting *m = p->running[nth];
        struct error err;
        begin_step(p);
        error_init(&err, status);
        memmove(&p->running[nth], &p->running[nth + 1], (size_t)(--p->n_running - nth) * sizeof(*p->running));
        rendezvous_done(p->r, m, status, status == STATUS_OK ? NULL : &err, p->now_ns);
        if (!model_done(p->model, nth, status))
                play_differ(p, "nothing ought to run");
        list_append(&p->out.ended, &m->outcome_link);
        finish_step(p);
}

static void step_done(struct play *p) {
        unsigned int byte = next_byte(p);
        if (p->n_running > 0)
                finish_one(p, (int)byte % p->n_running, byte < 230 ? STATUS_OK : STATUS_DEVICE_LOST);
}

static void step(struct play *p) {
        unsigned int byte = next_byte(p);
        if (p->n_running > MANY_RUNNING)
                step_done(p);
        else if (byte < 8)
                step_join(p);
        else if (byte < 20)
                step_join_all(p);
        else if (byte < 100)
                step_submit(p, false);
        else if (byte < 146)
                step_round(p);
        else if (byte < 152)
                step_reform(p);
        else if (byte < 160)
                step_reform_all(p);
        else if (byte < 166)
                step_submit(p, true);
        else if (byte < 174)
                step_errand(p, ERRAND_ABORT);
        else if (byte < 188)
                step_errand(p, ERRAND_BUSY);
        else if (byte < 191)
                step_errand(p, ERRAND_LEAVE);
        else if (byte < 193)
                lose(p, p->sessions[next_byte(p) % N_SESSIONS], LOSS_DIED);
        else if (byte < 212)
                step_time(p);
        else
                step_done(p);
}

/* --- a whole run --- */

static void set_up(struct play *p) {
        unsigned int byte = next_byte(p);
        bool is_narrow = byte % 4 == 3; /* a small quota, and then no deadlines: see pick_timeout */
        p->model->default_timeout = is_narrow ? -1 : 9;
        p->model->join_timeout = 30;
        p->model->stall_warn = 5;
        p->model->pending_limit = is_narrow ? 6 : 1 << 20;
        p->model->group_limit = is_narrow ? 2 : 5;
        struct quota_limits limits = { .pending = (uint64_t)p->model->pending_limit,
                .groups = (uint64_t)p->model->group_limit,
                .memory_bytes = UINT64_MAX };
        struct rendezvous_settings settings = { .default_timeout_ns = as_option(p->model->default_timeout),
                .join_timeout_ns = as_option(30),
                .stall_warn_ns = as_option(5),
                .busy_max_ns = as_option(1000) };
        CHECK(quotas_new(&p->quotas, &limits) == 0);
        CHECK(rendezvous_new(&p->r, &settings, p->quotas) == 0);
        outcome_init(&p->out);
        p->now_ns = 1000000;
        for (int i = 0; i < N_SESSIONS; i++)
                p->sessions[i] = ++p->last_session;
}

static void wind_up(struct play *p) {
        for (int i = 0; i < N_SESSIONS && !p->is_wrong; i++)
                lose(p, p->sessions[i], LOSS_DIED);
        while (p->n_running > 0 && !p->is_wrong)
                finish_one(p, 0, STATUS_OK);
        if (rendezvous_n_groups(p->r) > 0 || quota_users(p->quotas) > 0)
                play_differ(p, "at the end %u groups and %u users are left", rendezvous_n_groups(p->r),
                        quota_users(p->quotas));
        if (rendezvous_next_ns(p->r) != ALARM_NEVER)
                play_differ(p, "at the end an alarm is set");
}

bool rendezvous_play(
        const uint8_t *bytes, size_t n, struct play_counts *counts, char *why, size_t why_bytes) {
        struct play *p = calloc(1, sizeof(*p));
        CHECK(p && (p->model = calloc(1, sizeof(*p->model))));
        p->bytes = bytes;
        p->n_bytes = n;
        p->counts = counts;
        p->why = why;
        p->why_bytes = why_bytes;
        set_up(p);
        for (int i = 0; i < MAX_STEPS / MODEL_WORLD && p->n_bytes > 0 && !p->is_wrong; i++)
                step(p);
        if (!p->is_wrong)
                wind_up(p);
        bool is_right = !p->is_wrong;
        if (is_right) {
                rendezvous_free(p->r);
                quotas_free(p->quotas);
        }
        free(p->model);
        free(p);
        return is_right;
}
