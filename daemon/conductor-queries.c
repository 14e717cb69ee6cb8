/* Questions of people and exporters: rows pulled from every room, sent in as few packets as they fit into. */
#include "conductor-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ROWS_A_PACKET 128
#define MAX_PENDING_ROWS  16 /* of a group: the oldest */

/* Collects rows and sends a part whenever a packet is full. What a row points to is kept until then in
 * `arena`. */
struct row_writer {
        struct conductor *conductor;
        struct session *session;
        uint64_t request;
        struct row rows[MAX_ROWS_A_PACKET];
        uint32_t n_rows;
        struct arena arena;
        uint8_t memory[1 << 20];
};

static void writer_send(struct row_writer *w, uint32_t n, bool is_last) {
        const struct reply reply = { .request = w->request,
                .status = STATUS_OK,
                .more = !is_last,
                .type = REPLY_ROWS,
                .rows = { .rows = w->rows, .n_rows = n } };
        conductor_reply(w->conductor, w->session, &reply);
        memmove(w->rows, w->rows + n, (w->n_rows - n) * sizeof(*w->rows));
        w->n_rows -= n;
}

/* Sends what is there in as many parts as it takes; the last one, also an empty one, ends the answer. */
static void writer_flush(struct row_writer *w, bool is_last) {
        while (w->n_rows > 0) {
                uint32_t n = codec_rows_that_fit(w->rows, w->n_rows, &w->conductor->scratch);
                writer_send(w, n, is_last && n == w->n_rows);
                if (is_last && w->n_rows == 0)
                        return;
        }
        arena_reset(&w->arena);
        if (is_last)
                writer_send(w, 0, true);
}

/* Room for one more row, with `bytes` of arena behind it. */
static struct row *writer_add(struct row_writer *w, enum row_type type, size_t bytes) {
        if (w->n_rows == MAX_ROWS_A_PACKET || w->arena.size_bytes - w->arena.used_bytes < bytes + 64)
                writer_flush(w, false);
        struct row *row = &w->rows[w->n_rows++];
        *row = (struct row){ .type = type };
        return row;
}

/* --- rows of the daemon --- */

static uint32_t count_stalled(const struct conductor *c, uint32_t uid) {
        uint32_t n = 0;
        for (const struct group *g = rendezvous_next_group(c->house.rendezvous, NULL); g;
                g = rendezvous_next_group(c->house.rendezvous, g))
                n += g->uid == uid && g->is_stalled;
        return n;
}

static uint32_t count_groups(const struct conductor *c, uint32_t uid) {
        uint32_t n = 0;
        for (const struct group *g = rendezvous_next_group(c->house.rendezvous, NULL); g;
                g = rendezvous_next_group(c->house.rendezvous, g))
                n += g->uid == uid;
        return n;
}

static void write_daemon(struct row_writer *w) {
        struct conductor *c = w->conductor;
        const struct stats_totals totals = stats_totals(c->house.stats);
        char *isa = arena_calloc(&w->arena, 1, 128);
        if (isa) {
                c->house.backend->ops->describe(c->house.backend, isa, 128);
                isa[strcspn(isa, ",")] = '\0'; /* its first words are the instruction set */
        }
        writer_add(w, ROW_DAEMON, 0)->daemon = (struct row_daemon){ .version = TUTTI_VERSION,
                .socket = c->house.config->socket,
                .isa = isa ? isa : "",
                .pid = (uint32_t)getpid(),
                .uptime_ns = c->now_ns - c->started_ns,
                .n_sessions = sessions_count(c->house.sessions),
                .n_groups = count_groups(c, w->session->uid),
                .n_stalled = count_stalled(c, w->session->uid),
                .n_collectives = totals.n_collectives,
                .n_failed = totals.n_failed,
                .n_refused = totals.n_refused,
                .n_ejected = totals.n_ejected,
                .mapped_bytes = quota_total(c->house.quotas, QUOTA_MAPPED_BYTES),
                .n_buffers = buffers_count(c->house.buffers),
                .n_pending = quota_total(c->house.quotas, QUOTA_PENDING),
                .draining = c->is_draining };
}

static void write_devices(struct row_writer *w) {
        struct conductor *c = w->conductor;
        for (uint32_t i = 0; i < engine_n_devices(c->house.engine); i++) {
                const struct engine_device_stats s = engine_device_stats(c->house.engine, i);
                struct row *row = writer_add(w, ROW_DEVICE, 256);
                char *name = arena_calloc(&w->arena, 1, 32), *describe = arena_calloc(&w->arena, 1, 128);
                if (!name || !describe)
                        return;
                struct text t;
                text_init(&t, name, 32);
                text_add(&t, "CPU:%u", i);
                c->house.backend->ops->describe(c->house.backend, describe, 128);
                row->device = (struct row_device){ .name = name,
                        .describe = describe,
                        .why = "",
                        .n_workers = s.n_workers,
                        .n_tasks = s.n_tasks,
                        .busy_ns = s.busy_ns };
        }
        const char *why = c->house.backend->ops->fallback(c->house.backend);
        if (why)
                writer_add(w, ROW_FALLBACK, 0)->fallback =
                        (struct row_fallback){ .what = c->house.backend->ops->name, .why = why };
}

/* --- rows of groups --- */

static void write_group(struct row_writer *w, const struct group *g) {
        struct row *row = writer_add(w, ROW_GROUP, 0);
        uint64_t now_ns = w->conductor->now_ns;
        row->group = (struct row_group){ .job = g->job,
                .group = g->name,
                .uid = g->uid,
                .world_size = g->world_size,
                .n_alive = rankset_count(&g->alive),
                .n_pending = g->n_meetings,
                .n_debts = g->n_debts,
                .epoch = g->epoch,
                .age_ns = now_ns - g->created_ns,
                .last_done_age_ns = g->last_done_ns ? now_ns - g->last_done_ns : 0,
                .forming = g->state == GROUP_FORMING,
                .failed = g->state == GROUP_FAILED,
                .stalled = g->is_stalled,
                .on_death = g->on_death };
        stats_fill_group(w->conductor->house.stats, g, &row->group);
}

static enum process_state member_state(const struct conductor *c, const struct member *m) {
        const struct session *s = session_find(c->house.sessions, m->session);
        if (!s)
                return m->loss == LOSS_DIED ? PROCESS_DEAD : PROCESS_UNKNOWN;
        return session_probe(s);
}

/* A rank that nobody has taken yet: all that there is to say is its number. */
static void write_absent(struct row_writer *w, const struct group *g, uint32_t rank) {
        writer_add(w, ROW_MEMBER, 0)->member = (struct row_member){ .job = g->job,
                .group = g->name,
                .process = "",
                .busy = "",
                .why = "",
                .rank = rank,
                .uid = g->uid,
                .state = PROCESS_ABSENT };
}

static void write_member(struct row_writer *w, const struct member *m) {
        struct conductor *c = w->conductor;
        const struct session *s = session_find(c->house.sessions, m->session);
        struct row *row = writer_add(w, ROW_MEMBER, 0);
        bool is_gone = m->state == MEMBER_LOST || m->state == MEMBER_LEFT;
        row->member = (struct row_member){ .job = m->group->job,
                .group = m->group->name,
                .process = s ? s->process : "",
                .busy = m->busy,
                .why = m->why,
                .rank = m->rank,
                .pid = m->pid,
                .uid = m->group->uid,
                .state = member_state(c, m),
                .has_last = m->has_last,
                .last_key = m->last_key,
                .last_age_ns = m->has_last ? c->now_ns - m->last_ns : 0,
                .n_submitted = m->n_submitted,
                .lost = m->state == MEMBER_LOST,
                .loss = m->loss,
                .lost_age_ns = is_gone ? c->now_ns - m->lost_ns : 0 };
        if (s)
                row->member.n_buffers =
                        buffers_count_session(c->house.buffers, s->id, &row->member.mapped_bytes);
        stats_fill_member(c->house.stats, m, &row->member);
}

static void write_members(struct row_writer *w, const struct group *g) {
        for (uint32_t rank = 0; rank < g->world_size; rank++)
                if (g->members[rank].state == MEMBER_ABSENT)
                        write_absent(w, g, rank);
                else
                        write_member(w, &g->members[rank]);
}

static void write_pending_one(struct row_writer *w, const struct group *g, const struct meeting *m) {
        struct conductor *c = w->conductor;
        struct row *row = writer_add(w, ROW_PENDING, sizeof(struct replica_report) * MAX_ERROR_REPLICAS);
        const struct half *first = m->halves[rankset_next(&m->have, 0)];
        uint64_t age_ns = c->now_ns - m->first_ns;
        row->pending = (struct row_pending){ .job = g->job,
                .group = g->name,
                .key = m->key,
                .kind = first->signature.kind,
                .age_ns = age_ns,
                .bytes = signature_bytes(&first->signature, first->entries),
                .world_size = g->world_size,
                .have = m->have,
                .missing = rankset_minus(&g->alive, &m->have),
                .running = m->state == MEETING_SEALED,
                .stalled = age_ns >= c->house.config->stall_warn_ns };
        if (row->pending.running)
                row->pending.missing = (struct rankset){ 0 };
        struct error *err = &c->error;
        error_init(err, STATUS_OK);
        group_add_reports(g, &row->pending.missing, c->now_ns, err);
        conductor_probe(c, g, err->n_replicas, err->replicas);
        struct replica_report *reports = arena_calloc(&w->arena, err->n_replicas, sizeof(*reports));
        if (!reports)
                return;
        memcpy(reports, err->replicas, err->n_replicas * sizeof(*reports));
        row->pending.replicas = reports;
        row->pending.n_replicas = err->n_replicas;
}

static void write_pending(struct row_writer *w, const struct group *g) {
        uint32_t n = 0;
        list_for_each (it, &g->meetings) {
                const struct meeting *m = list_entry(it, struct meeting, group_link);
                if (m->n_halves > 0 && n++ < MAX_PENDING_ROWS)
                        write_pending_one(w, g, m);
        }
}

static void write_stats(struct row_writer *w, const struct group *g) {
        for (int kind = KIND_REDUCE; kind < N_KIND; kind++) {
                struct row_stats row = { .job = g->job, .group = g->name, .kind = (enum kind)kind };
                if (stats_fill_kind(w->conductor->house.stats, g, (enum kind)kind, &row))
                        writer_add(w, ROW_STATS, 0)->stats = row;
        }
        write_members(w, g);
}

static bool query_wants(const struct row_writer *w, const struct msg_query *q, const char *job,
        const char *group, uint32_t uid) {
        return uid == w->session->uid && (q->job[0] == '\0' || strcmp(q->job, job) == 0) &&
               (q->group[0] == '\0' || strcmp(q->group, group) == 0);
}

/* Calls `write` for each live group that the question is about. */
static void write_groups(struct row_writer *w, const struct msg_query *q,
        void (*write)(struct row_writer *, const struct group *)) {
        const struct rendezvous *r = w->conductor->house.rendezvous;
        for (const struct group *g = rendezvous_next_group(r, NULL); g; g = rendezvous_next_group(r, g))
                if (query_wants(w, q, g->job, g->name, g->uid))
                        write(w, g);
}

static void write_ended_groups(struct row_writer *w, const struct msg_query *q) {
        struct row_group group;
        struct recording *at = NULL;
        while ((at = recorder_next_ended(w->conductor->house.recorder, at, w->conductor->now_ns, &group)))
                if (query_wants(w, q, group.job, group.group, group.uid))
                        writer_add(w, ROW_GROUP, 0)->group = group;
}

static void write_quota(struct row_writer *w) {
        const struct quotas *q = w->conductor->house.quotas;
        uint32_t uid = w->session->uid;
        for (int i = 0; i < N_QUOTA; i++)
                writer_add(w, ROW_QUOTA, 0)->quota = (struct row_quota){ .uid = uid,
                        .name = quota_name((enum quota)i),
                        .used = quota_used(q, uid, (enum quota)i),
                        .limit = quota_limit(q, (enum quota)i) };
}

/* --- the flight recorder --- */

/* The recorder's strings and arrays are good until its next call: they are copied to live until the packet is
 * sent. */
static void write_record(struct row_writer *w, const struct row_record *record) {
        size_t bytes = record->n_arrivals * sizeof(uint64_t) + 4 * MAX_NAME_BYTES;
        struct row *row = writer_add(w, ROW_RECORD, bytes);
        row->record = *record;
        row->record.job = arena_strndup(&w->arena, record->job, MAX_NAME_BYTES);
        row->record.group = arena_strndup(&w->arena, record->group, MAX_NAME_BYTES);
        uint64_t *arrivals = arena_calloc(&w->arena, record->n_arrivals, sizeof(*arrivals));
        CHECK(row->record.job && row->record.group && arrivals); /* writer_add has made room */
        if (record->n_arrivals > 0)
                memcpy(arrivals, record->arrival_ns, record->n_arrivals * sizeof(*arrivals));
        row->record.arrival_ns = arrivals;
}

static enum status write_dump(struct row_writer *w, const struct msg_query *q, struct error *err) {
        struct conductor *c = w->conductor;
        struct recording *rec = recorder_find(c->house.recorder, w->session->uid, q->job, q->group);
        if (!rec)
                return error_set(err, STATUS_NOT_FOUND, FIELD_GROUP,
                        "no record of a group \"%s/%s\" of yours; `tuttictl groups` lists them", q->job,
                        q->group);
        uint64_t cursor = 0;
        struct row_record record;
        while (recording_next(rec, &cursor, c->now_ns, &record))
                write_record(w, &record);
        return STATUS_OK;
}

static enum status write_answer(struct row_writer *w, const struct msg_query *q, struct error *err) {
        switch (q->what) {
        case WHAT_STATUS:
                write_daemon(w);
                write_devices(w);
                write_groups(w, q, write_group);
                write_groups(w, q, write_pending);
                return STATUS_OK;
        case WHAT_GROUPS:
                write_groups(w, q, write_group);
                write_ended_groups(w, q);
                write_groups(w, q, write_members);
                return STATUS_OK;
        case WHAT_STATS:
                write_daemon(w);
                write_groups(w, q, write_stats);
                return STATUS_OK;
        case WHAT_DUMP: return write_dump(w, q, err);
        case WHAT_QUOTA: write_quota(w); return STATUS_OK;
        case WHAT_UNSPECIFIED: break;
        }
        return error_set(err, STATUS_UNSUPPORTED, FIELD_UNSPECIFIED, "tuttid %s cannot answer this question",
                TUTTI_VERSION);
}

void conductor_query(
        struct conductor *c, struct session *s, uint64_t request, const struct msg_query *query) {
        struct error err;
        error_init(&err, STATUS_OK);
        struct row_writer *w = malloc(sizeof(*w));
        if (!w) {
                error_set(&err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid is short of memory");
                conductor_reply_status(c, s, request, err.status, &err);
                return;
        }
        w->conductor = c;
        w->session = s;
        w->request = request;
        w->n_rows = 0;
        arena_init(&w->arena, w->memory, sizeof(w->memory));
        if (write_answer(w, query, &err) == STATUS_OK)
                writer_flush(w, true);
        else
                conductor_reply_status(c, s, request, err.status, &err);
        free(w);
}
