/* The rows of an answer: one function for each kind, which asks the rooms. */
#include "conductor-rows.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/log.h"

#define MAX_PENDING_ROWS 16 /* of a group: the oldest */
#define MAX_RESULT_ROWS  16 /* of a group: the oldest */

/* --- rows of the daemon --- */

/* Admins drain for all, and wait for the last group of all. */
static uint32_t count_groups_left(const struct conductor *c, const struct session *s, uint32_t n_own) {
        return conductor_may_control(s) ? rendezvous_n_groups(c->house.rendezvous) : n_own;
}

static const char *describe_drain(const struct conductor *c, struct arena *arena) {
        char *text = c->drained_by[0] ? arena_calloc(arena, 1, 128) : NULL;
        struct text t;
        if (!text)
                return "";
        text_init(&t, text, 128);
        text_add(&t, "%s ", c->drained_by);
        text_add_duration(&t, c->now_ns - c->drained_ns);
        text_add(&t, " ago");
        return text;
}

static uint32_t count_groups(const struct conductor *c, const struct viewer *viewer, uint32_t *ret_stalled) {
        uint32_t n = 0;
        *ret_stalled = 0;
        for (const struct group *g = rendezvous_next_group(c->house.rendezvous, NULL); g;
                g = rendezvous_next_group(c->house.rendezvous, g)) {
                bool is_seen = viewer_sees(viewer, g->uid, g->secret);
                n += is_seen;
                *ret_stalled += is_seen && g->is_stalled;
        }
        return n;
}

bool write_daemon(struct row_writer *w, struct query *q) {
        struct conductor *c = w->conductor;
        const struct stats_totals totals = stats_totals(c->house.stats);
        const struct lanes_stats lane = conductor_lane_stats(c);
        char *isa = arena_calloc(&w->arena, 1, 128);
        uint32_t n_stalled, n_groups = count_groups(c, &w->session->viewer, &n_stalled);
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
                .n_groups = n_groups,
                .n_stalled = n_stalled,
                .n_collectives = totals.n_collectives,
                .n_failed = totals.n_failed,
                .n_refused = totals.n_refused,
                .n_ejected = totals.n_ejected,
                .mapped_bytes = quota_total(c->house.quotas, QUOTA_MAPPED_BYTES),
                .n_buffers = buffers_count(c->house.buffers),
                .n_pending = quota_total(c->house.quotas, QUOTA_PENDING),
                .draining = c->is_draining || c->drained_by[0],
                .drained_by = describe_drain(c, &w->arena),
                .n_groups_left = count_groups_left(c, w->session, n_groups),
                .log_level = log_level_name(log_level()),
                .sees_all = w->session->viewer.sees_all,
                .n_restarts = workers_n_restarts(c->house.workers),
                .n_prepared = conductor_n_prepared(c),
                .n_started = c->n_started,
                .n_replayed = c->n_replayed,
                .n_on_lane = c->n_on_lane,
                .n_passed = lane.n_passed,
                .n_assisted = c->n_assisted,
                .n_rings = lane.n_rings,
                .n_regrets = lane.n_regrets };
        return true;
}

bool write_devices(struct row_writer *w, struct query *q) {
        struct conductor *c = w->conductor;
        for (uint32_t i = 0; i < engine_n_devices(c->house.engine); i++) {
                const struct engine_device_stats s = engine_device_stats(c->house.engine, i);
                struct row *row = writer_add(w, ROW_DEVICE, 256);
                char *name = arena_calloc(&w->arena, 1, 32), *describe = arena_calloc(&w->arena, 1, 128);
                if (!name || !describe)
                        return true;
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
        if (c->house.unconfined && c->house.unconfined[0] != '\0')
                writer_add(w, ROW_FALLBACK, 0)->fallback =
                        (struct row_fallback){ .what = "confine", .why = c->house.unconfined };
        return true;
}

/* --- rows of groups --- */

static const char *wish_of(const struct member *m) {
        if (!m->reform)
                return "";
        switch (m->reform->kind) {
        case REFORM_JOIN: return "join";
        case REFORM_REJOIN: return "rejoin";
        case REFORM_SHRINK: break;
        }
        return "shrink";
}

/* Whom all those together wait for who wait for the group to be formed anew. */
static struct rankset awaited(const struct group *g) {
        struct rankset nobody = { { 0 } };
        if (g->n_reforms == 0)
                return nobody;
        for (uint32_t rank = 0; rank < g->world_size; rank++)
                if (g->members[rank].reform && g->members[rank].reform->kind != REFORM_SHRINK)
                        return group_awaited(g, REFORM_REJOIN);
        return group_awaited(g, REFORM_SHRINK);
}

/* Alive; while it is forming: those who have joined. */
static uint32_t count_members(const struct group *g) {
        uint32_t n = 0;
        if (g->state != GROUP_FORMING)
                return rankset_count(&g->alive);
        for (uint32_t rank = 0; rank < g->world_size; rank++)
                n += g->members[rank].state == MEMBER_JOINING;
        return n;
}

bool write_group(struct row_writer *w, struct query *q, const struct group *g) {
        struct row *row = writer_add(w, ROW_GROUP, 0);
        uint64_t now_ns = w->conductor->now_ns;
        row->group = (struct row_group){ .job = g->job,
                .group = g->name,
                .uid = g->uid,
                .world_size = g->world_size,
                .n_alive = count_members(g),
                .n_pending = g->n_meetings,
                .n_debts = g->n_debts,
                .epoch = g->epoch,
                .age_ns = now_ns - g->created_ns,
                .last_done_age_ns = g->last_done_ns ? now_ns - g->last_done_ns : 0,
                .forming = g->state == GROUP_FORMING,
                .failed = g->state == GROUP_FAILED,
                .stalled = g->is_stalled,
                .restored = g->is_restored,
                .on_death = g->on_death,
                .n_waiting = g->n_reforms,
                .awaited = awaited(g) };
        stats_fill_group(w->conductor->house.stats, g, &row->group);
        return true;
}

/* Of one that has left nothing is said: what its process does since is no matter of the group. */
static enum process_state member_state(const struct conductor *c, const struct member *m) {
        const struct session *s = session_find(c->house.sessions, m->session);
        if (m->state == MEMBER_LEFT)
                return PROCESS_UNKNOWN;
        if (!s)
                return m->loss == LOSS_DIED ? PROCESS_DEAD : PROCESS_UNKNOWN;
        return session_probe(s);
}

/* A rank that nobody has taken yet: all that there is to say is its number. */
static struct row_member absent_member(const struct group *g, uint32_t rank) {
        return (struct row_member){ .job = g->job,
                .group = g->name,
                .process = "",
                .busy = "",
                .why = "",
                .waits = "",
                .rank = rank,
                .uid = g->uid,
                .state = PROCESS_ABSENT };
}

static struct row_member taken_member(struct conductor *c, const struct member *m) {
        bool is_gone = m->state == MEMBER_LOST || m->state == MEMBER_LEFT;
        return (struct row_member){ .job = m->group->job,
                .group = m->group->name,
                .process = m->process,
                .busy = m->busy,
                .why = m->why,
                .waits = wish_of(m),
                .waits_age_ns = m->reform ? c->now_ns - m->reform->since_ns : 0,
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
                /* Never 0 of one that is gone: by this alone readers know of one that has left. */
                .lost_age_ns = is_gone ? c->now_ns - m->lost_ns + 1 : 0 };
}

void fill_member(struct conductor *c, const struct group *g, uint32_t rank, struct row_member *ret) {
        const struct member *m = &g->members[rank];
        const struct session *s = session_find(c->house.sessions, m->session);
        if (m->state == MEMBER_ABSENT) {
                *ret = absent_member(g, rank);
                return;
        }
        *ret = taken_member(c, m);
        if (s)
                ret->n_buffers = buffers_count_session(c->house.buffers, s->id, &ret->mapped_bytes);
        stats_fill_member(c->house.stats, m, ret);
}

/* A thousand of them: `q->rank` is where it goes on. */
bool write_members(struct row_writer *w, struct query *q, const struct group *g) {
        for (; q->rank < g->world_size; q->rank++) {
                if (writer_is_tired(w))
                        return false;
                fill_member(w->conductor, g, q->rank, &writer_add(w, ROW_MEMBER, 0)->member);
        }
        return true;
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
                .bytes = first->n_bytes,
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

bool write_pending(struct row_writer *w, struct query *q, const struct group *g) {
        uint32_t n = 0;
        list_for_each (it, &g->meetings) {
                const struct meeting *m = list_entry(it, struct meeting, group_link);
                if (n == MAX_PENDING_ROWS)
                        break;
                if (m->n_halves == 0)
                        continue;
                write_pending_one(w, g, m);
                n++;
        }
        return true;
}

/* Who holds what of it: how a replica that does not collect its results is found (A12). */
static void write_result(struct row_writer *w, const struct group *g, struct result *r) {
        const size_t n_bytes = MAX_ROW_HOLDERS * sizeof(struct row_holder) + DEVICE_NAME_BYTES;
        struct conductor *c = w->conductor;
        struct row *row = writer_add(w, ROW_RESULT, n_bytes + 64);
        struct row_holder *holders = arena_calloc(&w->arena, MAX_ROW_HOLDERS, sizeof(*holders));
        char *device = arena_calloc(&w->arena, 1, DEVICE_NAME_BYTES);
        CHECK(holders && device); /* writer_add has made room */
        conductor_pause_lanes(c);
        result_fill_row(r, c->now_ns, &row->result, holders);
        conductor_lanes_go_on(c);
        row->result.job = g->job;
        row->result.group = g->name;
        row->result.device = device_name(result_device(r), device);
        for (uint32_t i = 0; i < row->result.n_holders; i++) {
                const struct member *m = &g->members[holders[i].rank];
                holders[i].pid = m->pid;
                holders[i].state = member_state(c, m);
        }
}

bool write_results(struct row_writer *w, struct query *q, const struct group *g) {
        const struct results *rs = w->conductor->house.results;
        uint32_t n = 0;
        for (struct result *r = results_next(rs, g->id, NULL); r && n < MAX_RESULT_ROWS;
                r = results_next(rs, g->id, r), n++)
                write_result(w, g, r);
        return true;
}

bool write_kinds(struct row_writer *w, struct query *q, const struct group *g) {
        for (int kind = KIND_REDUCE; kind < N_KIND; kind++) {
                struct row_stats row = { .job = g->job, .group = g->name, .kind = (enum kind)kind };
                if (stats_fill_kind(w->conductor->house.stats, g, (enum kind)kind, &row))
                        writer_add(w, ROW_STATS, 0)->stats = row;
        }
        return true;
}

bool write_classes(struct row_writer *w, struct query *q, const struct group *g) {
        struct row_class row;
        uint32_t cursor = 0;
        while (stats_next_class(w->conductor->house.stats, g, &cursor, &row))
                writer_add(w, ROW_CLASS, 0)->class = row;
        return true;
}

/* --- histograms --- */

static void write_histogram(struct row_writer *w, const struct histogram *h, const struct row_histogram *of) {
        if (!h)
                return;
        size_t bytes = HISTOGRAM_OCTAVES * sizeof(uint64_t);
        struct row *row = writer_add(w, ROW_HISTOGRAM, bytes);
        uint64_t *counts = arena_calloc(&w->arena, HISTOGRAM_OCTAVES, sizeof(*counts));
        CHECK(counts); /* writer_add has made room */
        histogram_octaves(h, counts);
        row->histogram = *of;
        row->histogram.n = h->n;
        row->histogram.sum_ns = h->sum_ns;
        row->histogram.bounds_from_ns = HISTOGRAM_BOUNDS_NS;
        row->histogram.n_counts = HISTOGRAM_OCTAVES;
        row->histogram.counts = counts;
}

bool write_histograms(struct row_writer *w, struct query *q, const struct group *g) {
        const struct stats *s = w->conductor->house.stats;
        struct row_histogram of = { .job = g->job, .group = g->name, .uid = g->uid };
        for (int kind = KIND_REDUCE; kind < N_KIND; kind++) {
                of.kind = (enum kind)kind;
                of.measure = MEASURE_WAIT;
                write_histogram(w, stats_histogram_of_kind(s, g, of.kind, of.measure), &of);
                of.measure = MEASURE_RUN;
                write_histogram(w, stats_histogram_of_kind(s, g, of.kind, of.measure), &of);
        }
        return true;
}

bool write_lateness(struct row_writer *w, struct query *q, const struct group *g) {
        const struct stats *s = w->conductor->house.stats;
        struct row_histogram of = {
                .job = g->job, .group = g->name, .uid = g->uid, .measure = MEASURE_LATENESS
        };
        for (; q->rank < g->world_size; q->rank++) {
                if (writer_is_tired(w))
                        return false;
                of.rank = q->rank;
                if (g->members[q->rank].id)
                        write_histogram(w, stats_histogram_of_member(s, &g->members[q->rank]), &of);
        }
        return true;
}

/* --- the flight recorder --- */

/* The recorder's strings and arrays are good until its next call: they are copied to live until the packet is
 * sent. */
void write_record(struct row_writer *w, const struct row_record *record) {
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

void conductor_end_record(struct conductor *c, const struct group *g) {
        struct recorder_end end = { .group = g->id, .now_ns = c->now_ns };
        struct row_group row = { 0 };
        CLEANUP_FREE struct row_member *members = NULL;
        if (recorder_keeps(c->house.recorder, g->id)) {
                members = calloc(g->world_size, sizeof(*members));
                stats_fill_group(c->house.stats, g, &row);
        }
        for (uint32_t rank = 0; members && rank < g->world_size; rank++)
                fill_member(c, g, rank, &members[rank]);
        end.n_bytes = row.bytes;
        end.members = members;
        end.n_members = members ? g->world_size : 0;
        recorder_end_group(c->house.recorder, &end);
}
