#include "lib/answer.h"

#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "lib/failure.h"

/* Memory for what rows point to: taken in pieces, given back at once. */
struct piece {
        struct piece *next;
        struct arena arena;
};

#define PIECE_BYTES (64u << 10)

struct answer {
        struct tutti_answer shown; /* first: tutti_answer_free is given this */
        struct tutti_row *rows;
        size_t capacity;
        struct piece *pieces;
        bool is_short_of_memory;
};

struct answer *answer_new(void) {
        return calloc(1, sizeof(struct answer));
}

void answer_free(struct answer *a) {
        if (!a)
                return;
        for (struct piece *p = a->pieces, *next; p; p = next) {
                next = p->next;
                free(p);
        }
        free(a->rows);
        free(a);
}

static struct piece *piece_new(struct answer *a, size_t n_bytes) {
        const size_t head = (sizeof(struct piece) + 15) / 16 * 16;
        size_t size = n_bytes > PIECE_BYTES ? n_bytes : PIECE_BYTES;
        struct piece *p = malloc(head + size);
        if (!p)
                return NULL;
        arena_init(&p->arena, (uint8_t *)p + head, size);
        p->next = a->pieces;
        return a->pieces = p;
}

static void *take(struct answer *a, size_t n_bytes) {
        void *bytes = a->pieces ? arena_alloc(&a->pieces->arena, n_bytes) : NULL;
        if (bytes)
                return bytes;
        struct piece *p = piece_new(a, n_bytes + 16);
        bytes = p ? arena_alloc(&p->arena, n_bytes) : NULL;
        if (!bytes)
                a->is_short_of_memory = true;
        return bytes;
}

/* Never NULL: "" where memory is short, and the answer is then not given out. */
static const char *copy_string(struct answer *a, const char *s) {
        size_t n = strlen(s) + 1;
        char *copy = n > 1 ? take(a, n) : NULL;
        return copy ? memcpy(copy, s, n) : "";
}

static const char *copy_key(struct answer *a, const struct key *k) {
        char shown[KEY_TEXT_BYTES];
        key_show(k, shown, sizeof(shown));
        return copy_string(a, shown);
}

static const struct tutti_replica *copy_replicas(
        struct answer *a, const struct replica_report *reports, uint32_t n) {
        struct tutti_replica *copies = n ? take(a, n * sizeof(*copies)) : NULL;
        for (uint32_t i = 0; copies && i < n; i++) {
                const struct replica_report *r = &reports[i];
                copies[i] = (struct tutti_replica){
                        .rank = r->rank,
                        .pid = r->pid,
                        .uid = r->uid,
                        .state = (enum tutti_process_state)r->state,
                        .last_key = r->has_last ? copy_key(a, &r->last_key) : NULL,
                        .last_age = (double)r->last_age_ns / 1e9,
                        .busy = r->busy[0] ? copy_string(a, r->busy) : NULL,
                };
        }
        return copies;
}

/* --- rows --- */

static void copy_plan(struct answer *a, const struct row_plan *r, struct tutti_row_plan *ret) {
        *ret = (struct tutti_row_plan){
                .algorithm = copy_string(a, r->algorithm),
                .order = copy_string(a, r->order),
                .device = copy_string(a, r->device),
                .why = copy_string(a, r->why),
                .fallback = copy_string(a, r->fallback),
                .text = copy_string(a, r->text),
                .n_steps = r->n_steps,
                .n_phases = r->n_phases,
                .scratch_bytes = r->scratch_bytes,
                .moved_bytes = r->moved_bytes,
        };
}

static void copy_daemon(struct answer *a, const struct row_daemon *r, struct tutti_row_daemon *ret) {
        *ret = (struct tutti_row_daemon){
                .version = copy_string(a, r->version),
                .socket = copy_string(a, r->socket),
                .isa = copy_string(a, r->isa),
                .pid = r->pid,
                .uptime_ns = r->uptime_ns,
                .n_sessions = r->n_sessions,
                .n_groups = r->n_groups,
                .n_stalled = r->n_stalled,
                .n_collectives = r->n_collectives,
                .n_failed = r->n_failed,
                .n_refused = r->n_refused,
                .n_ejected = r->n_ejected,
                .mapped_bytes = r->mapped_bytes,
                .n_buffers = r->n_buffers,
                .n_pending = r->n_pending,
                .draining = r->draining,
                .n_restarts = r->n_restarts,
                .n_prepared = r->n_prepared,
                .n_started = r->n_started,
                .n_replayed = r->n_replayed,
                .n_on_lane = r->n_on_lane,
                .n_passed = r->n_passed,
                .n_assisted = r->n_assisted,
                .n_rings = r->n_rings,
                .n_regrets = r->n_regrets,
                .drained_by = copy_string(a, r->drained_by),
                .n_groups_left = r->n_groups_left,
                .log_level = copy_string(a, r->log_level),
                .sees_all = r->sees_all,
        };
}

static const char *order_name(enum stream_order order) {
        switch (order) {
        case ORDER_TIMELINE: return "timeline";
        case ORDER_EVENTS: return "events";
        case ORDER_HOST:
        case ORDER_UNSPECIFIED: break;
        }
        return "host";
}

static void copy_device(struct answer *a, const struct row_device *r, struct tutti_row_device *ret) {
        *ret = (struct tutti_row_device){
                .name = copy_string(a, r->name),
                .describe = copy_string(a, r->describe),
                .why = copy_string(a, r->why),
                .n_workers = r->n_workers,
                .n_tasks = r->n_tasks,
                .busy_ns = r->busy_ns,
                .failing = r->failing,
                .uuid = copy_string(a, r->uuid),
                .paths = copy_string(a, r->paths),
                .has_timeline = r->order == ORDER_TIMELINE,
                .order = r->uuid[0] ? order_name(r->order) : "",
        };
}

static void copy_group(struct answer *a, const struct row_group *r, struct tutti_row_group *ret) {
        *ret = (struct tutti_row_group){
                .job = copy_string(a, r->job),
                .group = copy_string(a, r->group),
                .uid = r->uid,
                .world_size = r->world_size,
                .n_alive = r->n_alive,
                .n_pending = r->n_pending,
                .n_debts = r->n_debts,
                .epoch = r->epoch,
                .n_done = r->n_done,
                .n_failed = r->n_failed,
                .bytes = r->bytes,
                .age_ns = r->age_ns,
                .last_done_age_ns = r->last_done_age_ns,
                .forming = r->forming,
                .failed = r->failed,
                .ended = r->ended,
                .stalled = r->stalled,
                .on_death = r->on_death == ON_DEATH_SHRINK ? TUTTI_SHRINK : TUTTI_FAIL,
                .n_waiting = r->n_waiting,
                .awaited = ranks_show(&r->awaited),
                .restored = r->restored,
        };
}

static void copy_member(struct answer *a, const struct row_member *r, struct tutti_row_member *ret) {
        *ret = (struct tutti_row_member){
                .job = copy_string(a, r->job),
                .group = copy_string(a, r->group),
                .process = copy_string(a, r->process),
                .busy = copy_string(a, r->busy),
                .why = copy_string(a, r->why),
                .last_key = r->has_last ? copy_key(a, &r->last_key) : "",
                .rank = r->rank,
                .pid = r->pid,
                .uid = r->uid,
                .n_buffers = r->n_buffers,
                .state = (enum tutti_process_state)r->state,
                .lost = r->lost,
                .loss = (enum tutti_loss)r->loss,
                .last_age_ns = r->last_age_ns,
                .n_submitted = r->n_submitted,
                .n_last = r->n_last,
                .n_joint = r->n_joint,
                .lateness_p50_ns = r->lateness_p50_ns,
                .lateness_p99_ns = r->lateness_p99_ns,
                .mapped_bytes = r->mapped_bytes,
                .lost_age_ns = r->lost_age_ns,
                .waits = copy_string(a, r->waits),
                .waits_age_ns = r->waits_age_ns,
                .ended_epoch = r->ended_epoch,
        };
}

static void copy_pending(struct answer *a, const struct row_pending *r, struct tutti_row_pending *ret) {
        *ret = (struct tutti_row_pending){
                .job = copy_string(a, r->job),
                .group = copy_string(a, r->group),
                .key = copy_key(a, &r->key),
                .kind = (enum tutti_kind)r->kind,
                .age_ns = r->age_ns,
                .bytes = r->bytes,
                .world_size = r->world_size,
                .have = ranks_show(&r->have),
                .missing = ranks_show(&r->missing),
                .n_replicas = r->n_replicas,
                .replicas = copy_replicas(a, r->replicas, r->n_replicas),
                .running = r->running,
                .stalled = r->stalled,
        };
}

static void copy_stats(struct answer *a, const struct row_stats *r, struct tutti_row_stats *ret) {
        *ret = (struct tutti_row_stats){
                .job = copy_string(a, r->job),
                .group = copy_string(a, r->group),
                .kind = (enum tutti_kind)r->kind,
                .n = r->n,
                .n_failed = r->n_failed,
                .bytes = r->bytes,
                .wait_p50_ns = r->wait_p50_ns,
                .wait_p99_ns = r->wait_p99_ns,
                .run_p50_ns = r->run_p50_ns,
                .run_p99_ns = r->run_p99_ns,
                .run_ns = r->run_ns,
                .wait_p999_ns = r->wait_p999_ns,
                .run_p999_ns = r->run_p999_ns,
        };
}

static void copy_record(struct answer *a, const struct row_record *r, struct tutti_row_record *ret) {
        uint64_t *arrivals = r->n_arrivals ? take(a, r->n_arrivals * sizeof(*arrivals)) : NULL;
        if (arrivals)
                memcpy(arrivals, r->arrival_ns, r->n_arrivals * sizeof(*arrivals));
        *ret = (struct tutti_row_record){
                .job = copy_string(a, r->job),
                .group = copy_string(a, r->group),
                .key = copy_key(a, &r->key),
                .epoch = r->epoch,
                .collective = r->collective,
                .kind = (enum tutti_kind)r->kind,
                .op = (enum tutti_op)r->op,
                .dtype = (enum tutti_dtype)r->dtype,
                .bytes = r->bytes,
                .n_entries = r->n_entries,
                .status = (enum tutti_status)r->status,
                .age_ns = r->age_ns,
                .sealed_ns = r->sealed_ns,
                .done_ns = r->done_ns,
                .have = ranks_show(&r->have),
                .last_rank = r->last_rank,
                .guilty_rank = r->guilty_rank,
                .has_guilty = r->has_guilty,
                .n_arrivals = arrivals ? r->n_arrivals : 0,
                .arrival_ns = arrivals,
                .dropped = r->dropped,
                .shortened = r->shortened,
                .missed = r->missed,
        };
}

static void copy_result(struct answer *a, const struct row_result *r, struct tutti_row_result *ret) {
        struct tutti_holder *holders = r->n_holders ? take(a, r->n_holders * sizeof(*holders)) : NULL;
        for (uint32_t i = 0; holders && i < r->n_holders; i++)
                holders[i] = (struct tutti_holder){ .rank = r->holders[i].rank,
                        .pid = r->holders[i].pid,
                        .n_slots = r->holders[i].n_slots,
                        .state = (enum tutti_process_state)r->holders[i].state,
                        .oldest_age_ns = r->holders[i].oldest_age_ns };
        *ret = (struct tutti_row_result){
                .job = copy_string(a, r->job),
                .group = copy_string(a, r->group),
                .name = copy_string(a, r->name),
                .device = copy_string(a, r->device),
                .size_bytes = r->size_bytes,
                .n_slots = r->n_slots,
                .n_free = r->n_free,
                .n_attached = r->n_attached,
                .n_holders = holders ? r->n_holders : 0,
                .holders = holders,
        };
}

static void copy_buffer(struct answer *a, const struct row_buffer *r, struct tutti_row_buffer *ret) {
        *ret = (struct tutti_row_buffer){
                .pid = r->pid,
                .uid = r->uid,
                .buffer = r->buffer,
                .size_bytes = r->size_bytes,
                .device = copy_string(a, r->device),
                .path = copy_string(a, r->path),
                .why = copy_string(a, r->why),
                .page_bytes = r->page_bytes,
        };
}

static void copy_histogram(struct answer *a, const struct row_histogram *r, struct tutti_row_histogram *ret) {
        uint64_t *counts = r->n_counts ? take(a, r->n_counts * sizeof(*counts)) : NULL;
        if (counts)
                memcpy(counts, r->counts, r->n_counts * sizeof(*counts));
        *ret = (struct tutti_row_histogram){ .job = copy_string(a, r->job),
                .group = copy_string(a, r->group),
                .uid = r->uid,
                .rank = r->rank,
                .measure = (enum tutti_measure)r->measure,
                .kind = (enum tutti_kind)r->kind,
                .n = r->n,
                .sum_ns = r->sum_ns,
                .bounds_from_ns = r->bounds_from_ns,
                .n_counts = counts ? r->n_counts : 0,
                .counts = counts };
}

static void copy_class(struct answer *a, const struct row_class *r, struct tutti_row_class *ret) {
        *ret = (struct tutti_row_class){ .job = copy_string(a, r->job),
                .group = copy_string(a, r->group),
                .kind = (enum tutti_kind)r->kind,
                .op = (enum tutti_op)r->op,
                .from_bytes = r->from_bytes,
                .to_bytes = r->to_bytes,
                .n = r->n,
                .n_failed = r->n_failed,
                .bytes = r->bytes,
                .run_ns = r->run_ns,
                .wait_p50_ns = r->wait_p50_ns,
                .wait_p99_ns = r->wait_p99_ns,
                .wait_p999_ns = r->wait_p999_ns,
                .run_p50_ns = r->run_p50_ns,
                .run_p99_ns = r->run_p99_ns,
                .run_p999_ns = r->run_p999_ns };
}

static void copy_group_fallback(
        struct answer *a, const struct row_group_fallback *r, struct tutti_row_group_fallback *ret) {
        *ret = (struct tutti_row_group_fallback){ .job = copy_string(a, r->job),
                .group = copy_string(a, r->group),
                .why = copy_string(a, r->why),
                .algorithm = copy_string(a, r->algorithm),
                .key = copy_key(a, &r->key),
                .uid = r->uid,
                .kind = (enum tutti_kind)r->kind,
                .n = r->n,
                .last_age_ns = r->last_age_ns };
}

static void copy_row(struct answer *a, const struct row *r, struct tutti_row *ret) {
        ret->type = (enum tutti_row_type)r->type;
        switch (r->type) {
        case ROW_NONE: return;
        case ROW_DAEMON: copy_daemon(a, &r->daemon, &ret->daemon); return;
        case ROW_DEVICE: copy_device(a, &r->device, &ret->device); return;
        case ROW_GROUP: copy_group(a, &r->group, &ret->group); return;
        case ROW_MEMBER: copy_member(a, &r->member, &ret->member); return;
        case ROW_PENDING: copy_pending(a, &r->pending, &ret->pending); return;
        case ROW_STATS: copy_stats(a, &r->stats, &ret->stats); return;
        case ROW_RECORD: copy_record(a, &r->record, &ret->record); return;
        case ROW_FALLBACK:
                ret->fallback.what = copy_string(a, r->fallback.what);
                ret->fallback.why = copy_string(a, r->fallback.why);
                return;
        case ROW_QUOTA:
                ret->quota = (struct tutti_row_quota){ r->quota.uid, copy_string(a, r->quota.name),
                        r->quota.used, r->quota.limit, r->quota.n_refused };
                return;
        case ROW_RESULT: copy_result(a, &r->result, &ret->result); return;
        case ROW_BUFFER: copy_buffer(a, &r->buffer, &ret->buffer); return;
        case ROW_HISTOGRAM: copy_histogram(a, &r->histogram, &ret->histogram); return;
        case ROW_PLAN: copy_plan(a, &r->plan, &ret->plan); return;
        case ROW_CLASS: copy_class(a, &r->class, &ret->size_class); return;
        case ROW_GROUP_FALLBACK: copy_group_fallback(a, &r->group_fallback, &ret->group_fallback); return;
        case ROW_DUMP:
                ret->dump = (struct tutti_row_dump){ r->dump.missed, r->dump.first_epoch, r->dump.last_epoch,
                        r->dump.ended };
                return;
        case ROW_LOSSES:
                ret->losses = (struct tutti_row_losses){ r->losses.uid, r->losses.n_died,
                        r->losses.n_disconnected, r->losses.n_ejected };
                return;
        }
}

static bool make_room(struct answer *a, uint32_t n_rows) {
        size_t needed = (size_t)a->shown.n_rows + n_rows;
        if (needed <= a->capacity)
                return true;
        size_t capacity = needed + needed / 2;
        struct tutti_row *rows = realloc(a->rows, capacity * sizeof(*rows));
        if (!rows)
                return false;
        a->rows = rows;
        a->capacity = capacity;
        return true;
}

void answer_add(struct answer *a, const struct row *rows, uint32_t n_rows) {
        if (!a->is_short_of_memory && !make_room(a, n_rows))
                a->is_short_of_memory = true;
        for (uint32_t i = 0; !a->is_short_of_memory && i < n_rows; i++)
                copy_row(a, &rows[i], &a->rows[a->shown.n_rows++]);
}

struct tutti_answer *answer_publish(struct answer *a) {
        if (a->is_short_of_memory)
                return NULL;
        a->shown.rows = a->rows;
        return &a->shown;
}

void tutti_answer_free(struct tutti_answer *a) {
        answer_free((struct answer *)(void *)a);
}
