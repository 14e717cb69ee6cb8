/* Rows of a query, inwards. */
#include "wire/codec-pb.h"

#include <errno.h>

static struct row_daemon daemon_in(const Tutti__V1__DaemonRow *m) {
        return (struct row_daemon){ .version = string_in(m->version),
                .pid = m->pid,
                .uptime_ns = m->uptime_ns,
                .n_sessions = m->n_sessions,
                .n_groups = m->n_groups,
                .n_stalled = m->n_stalled,
                .n_collectives = m->n_collectives,
                .n_failed = m->n_failed,
                .n_refused = m->n_refused,
                .n_ejected = m->n_ejected,
                .mapped_bytes = m->mapped_bytes,
                .n_buffers = m->n_buffers,
                .n_pending = m->n_pending,
                .socket = string_in(m->socket),
                .isa = string_in(m->isa),
                .draining = m->draining,
                .n_restarts = m->n_restarts,
                .drained_by = string_in(m->drained_by),
                .n_groups_left = m->n_groups_left,
                .log_level = string_in(m->log_level),
                .sees_all = m->sees_all,
                .n_prepared = m->n_prepared,
                .n_started = m->n_started,
                .n_replayed = m->n_replayed,
                .n_on_lane = m->n_on_lane,
                .n_passed = m->n_passed,
                .n_assisted = m->n_assisted,
                .n_rings = m->n_rings,
                .n_regrets = m->n_regrets };
}

static struct row_device device_in(const Tutti__V1__DeviceRow *m) {
        return (struct row_device){ .name = string_in(m->name),
                .n_workers = m->n_workers,
                .describe = string_in(m->describe),
                .n_tasks = m->n_tasks,
                .busy_ns = m->busy_ns,
                .failing = m->failing,
                .why = string_in(m->why),
                .uuid = string_in(m->uuid),
                .paths = string_in(m->paths),
                .order = order_in((int)m->order) };
}

static int group_in(const Tutti__V1__GroupRow *m, struct row_group *ret) {
        *ret = (struct row_group){ .job = string_in(m->job),
                .group = string_in(m->group),
                .uid = m->uid,
                .world_size = m->world_size,
                .epoch = m->epoch,
                .n_alive = m->n_alive,
                .n_pending = m->n_pending,
                .forming = m->forming,
                .failed = m->failed,
                .ended = m->ended,
                .stalled = m->stalled,
                .on_death = on_death_in((int)m->on_death),
                .n_done = m->n_done,
                .n_failed = m->n_failed,
                .bytes = m->bytes,
                .age_ns = m->age_ns,
                .last_done_age_ns = m->last_done_age_ns,
                .n_debts = m->n_debts,
                .n_waiting = m->n_waiting,
                .restored = m->restored };
        return ranks_in(&m->awaited, &ret->awaited) ? 0 : -EPROTO;
}

static int member_in(const Tutti__V1__MemberRow *m, struct row_member *ret) {
        *ret = (struct row_member){ .job = string_in(m->job),
                .group = string_in(m->group),
                .rank = m->rank,
                .pid = m->pid,
                .uid = m->uid,
                .state = process_state_in((int)m->state),
                .process = string_in(m->process),
                .last_age_ns = m->last_age_ns,
                .busy = string_in(m->busy),
                .n_submitted = m->n_submitted,
                .n_last = m->n_last,
                .n_joint = m->n_joint,
                .lateness_p50_ns = m->lateness_p50_ns,
                .lateness_p99_ns = m->lateness_p99_ns,
                .n_buffers = m->n_buffers,
                .mapped_bytes = m->mapped_bytes,
                .lost = m->lost,
                .loss = loss_in((int)m->loss),
                .lost_age_ns = m->lost_age_ns,
                .why = string_in(m->why),
                .waits = string_in(m->waits),
                .waits_age_ns = m->waits_age_ns,
                .ended_epoch = m->ended_epoch };
        ret->has_last = key_in(m->last_key, &ret->last_key) && m->has_last;
        return 0;
}

static int pending_in(const Tutti__V1__PendingRow *m, struct arena *arena, struct row_pending *ret) {
        *ret = (struct row_pending){ .job = string_in(m->job),
                .group = string_in(m->group),
                .kind = kind_in((int)m->kind),
                .age_ns = m->age_ns,
                .bytes = m->bytes,
                .world_size = m->world_size,
                .running = m->running,
                .stalled = m->stalled };
        size_t n_replicas = m->n_replicas < MAX_ERROR_REPLICAS ? m->n_replicas : MAX_ERROR_REPLICAS;
        struct replica_report *replicas = arena_calloc(arena, n_replicas, sizeof(*replicas));
        if (!replicas)
                return -E2BIG;
        ret->n_replicas = reports_in(m->replicas, n_replicas, replicas);
        ret->replicas = replicas;
        (void)key_in(m->key, &ret->key);
        return ranks_in(&m->have, &ret->have) && ranks_in(&m->missing, &ret->missing) ? 0 : -EPROTO;
}

static struct row_stats stats_in(const Tutti__V1__StatsRow *m) {
        return (struct row_stats){ .job = string_in(m->job),
                .group = string_in(m->group),
                .kind = kind_in((int)m->kind),
                .n = m->n,
                .n_failed = m->n_failed,
                .bytes = m->bytes,
                .wait_p50_ns = m->wait_p50_ns,
                .wait_p99_ns = m->wait_p99_ns,
                .run_p50_ns = m->run_p50_ns,
                .run_p99_ns = m->run_p99_ns,
                .run_ns = m->run_ns,
                .wait_p999_ns = m->wait_p999_ns,
                .run_p999_ns = m->run_p999_ns };
}

static struct row_class class_in(const Tutti__V1__ClassRow *m) {
        return (struct row_class){ .job = string_in(m->job),
                .group = string_in(m->group),
                .kind = kind_in((int)m->kind),
                .op = op_in((int)m->op),
                .from_bytes = m->from_bytes,
                .to_bytes = m->to_bytes,
                .n = m->n,
                .n_failed = m->n_failed,
                .bytes = m->bytes,
                .run_ns = m->run_ns,
                .wait_p50_ns = m->wait_p50_ns,
                .wait_p99_ns = m->wait_p99_ns,
                .wait_p999_ns = m->wait_p999_ns,
                .run_p50_ns = m->run_p50_ns,
                .run_p99_ns = m->run_p99_ns,
                .run_p999_ns = m->run_p999_ns };
}

static int record_in(const Tutti__V1__RecordRow *m, struct row_record *ret) {
        *ret = (struct row_record){ .job = string_in(m->job),
                .group = string_in(m->group),
                .epoch = m->epoch,
                .collective = m->collective,
                .kind = kind_in((int)m->kind),
                .op = op_in((int)m->op),
                .dtype = dtype_in((int)m->dtype),
                .bytes = m->bytes,
                .n_entries = m->n_entries,
                .status = status_in((int)m->status),
                .age_ns = m->age_ns,
                .sealed_ns = m->sealed_ns,
                .done_ns = m->done_ns,
                .last_rank = m->last_rank,
                .guilty_rank = m->guilty_rank,
                .has_guilty = m->has_guilty,
                .dropped = m->dropped,
                .shortened = m->shortened,
                .missed = m->missed,
                .n_arrivals = (uint32_t)m->n_arrival_ns,
                .arrival_ns = m->arrival_ns };
        if (m->n_arrival_ns > MAX_WORLD)
                return -E2BIG;
        (void)key_in(m->key, &ret->key);
        return ranks_in(&m->have, &ret->have) ? 0 : -EPROTO;
}

static struct row_plan plan_in(const Tutti__V1__PlanRow *m) {
        return (struct row_plan){ .algorithm = string_in(m->algorithm),
                .order = string_in(m->order),
                .device = string_in(m->device),
                .why = string_in(m->why),
                .fallback = string_in(m->fallback),
                .text = string_in(m->text),
                .n_steps = m->n_steps,
                .n_phases = m->n_phases,
                .scratch_bytes = m->scratch_bytes,
                .moved_bytes = m->moved_bytes };
}

static struct row_fallback fallback_in(const Tutti__V1__FallbackRow *m) {
        return (struct row_fallback){ .what = string_in(m->what), .why = string_in(m->why) };
}

static struct row_group_fallback group_fallback_in(const Tutti__V1__GroupFallbackRow *m) {
        struct row_group_fallback ret = { .job = string_in(m->job),
                .group = string_in(m->group),
                .uid = m->uid,
                .why = string_in(m->why),
                .algorithm = string_in(m->algorithm),
                .n = m->n,
                .last_age_ns = m->last_age_ns,
                .kind = kind_in((int)m->kind) };
        (void)key_in(m->key, &ret.key);
        return ret;
}

static struct row_quota quota_in(const Tutti__V1__QuotaRow *m) {
        return (struct row_quota){ .uid = m->uid,
                .name = string_in(m->name),
                .used = m->used,
                .limit = m->limit,
                .n_refused = m->n_refused };
}

static struct row_losses losses_in(const Tutti__V1__LossesRow *m) {
        return (struct row_losses){ .uid = m->uid,
                .n_died = m->n_died,
                .n_disconnected = m->n_disconnected,
                .n_ejected = m->n_ejected };
}

static int result_in(const Tutti__V1__ResultRow *m, struct arena *arena, struct row_result *ret) {
        *ret = (struct row_result){ .job = string_in(m->job),
                .group = string_in(m->group),
                .name = string_in(m->name),
                .device = string_in(m->device),
                .size_bytes = m->size_bytes,
                .n_slots = m->n_slots,
                .n_free = m->n_free,
                .n_attached = m->n_attached,
                .n_holders = m->n_holders < MAX_ROW_HOLDERS ? (uint32_t)m->n_holders : MAX_ROW_HOLDERS };
        struct row_holder *holders = arena_calloc(arena, ret->n_holders, sizeof(*holders));
        if (!holders)
                return -E2BIG;
        for (uint32_t i = 0; i < ret->n_holders; i++)
                holders[i] = (struct row_holder){ .rank = m->holders[i]->rank,
                        .pid = m->holders[i]->pid,
                        .state = process_state_in((int)m->holders[i]->state),
                        .n_slots = m->holders[i]->n_slots,
                        .oldest_age_ns = m->holders[i]->oldest_age_ns };
        ret->holders = holders;
        return 0;
}

static struct row_buffer buffer_in(const Tutti__V1__BufferRow *m) {
        return (struct row_buffer){ .pid = m->pid,
                .uid = m->uid,
                .buffer = m->buffer,
                .size_bytes = m->size_bytes,
                .device = string_in(m->device),
                .path = string_in(m->path),
                .why = string_in(m->why),
                .page_bytes = m->page_bytes };
}

static int histogram_in(const Tutti__V1__HistogramRow *m, struct row_histogram *ret) {
        *ret = (struct row_histogram){ .job = string_in(m->job),
                .group = string_in(m->group),
                .uid = m->uid,
                .rank = m->rank,
                .measure = (enum measure)known_or((int)m->measure, MEASURE_LATENESS + 1, MEASURE_UNSPECIFIED),
                .kind = kind_in((int)m->kind),
                .n = m->n,
                .sum_ns = m->sum_ns,
                .bounds_from_ns = m->bounds_from_ns,
                .n_counts = (uint32_t)m->n_counts,
                .counts = m->counts };
        return m->n_counts <= MAX_HISTOGRAM_COUNTS ? 0 : -E2BIG;
}

int row_in(const Tutti__V1__Row *m, struct arena *arena, struct row *ret) {
        switch (m->row_case) {
        case TUTTI__V1__ROW__ROW_DAEMON:
                ret->type = ROW_DAEMON;
                ret->daemon = daemon_in(m->daemon);
                return 0;
        case TUTTI__V1__ROW__ROW_DEVICE:
                ret->type = ROW_DEVICE;
                ret->device = device_in(m->device);
                return 0;
        case TUTTI__V1__ROW__ROW_GROUP: ret->type = ROW_GROUP; return group_in(m->group, &ret->group);
        case TUTTI__V1__ROW__ROW_MEMBER: ret->type = ROW_MEMBER; return member_in(m->member, &ret->member);
        case TUTTI__V1__ROW__ROW_PENDING:
                ret->type = ROW_PENDING;
                return pending_in(m->pending, arena, &ret->pending);
        case TUTTI__V1__ROW__ROW_STATS:
                ret->type = ROW_STATS;
                ret->stats = stats_in(m->stats);
                return 0;
        case TUTTI__V1__ROW__ROW_RECORD: ret->type = ROW_RECORD; return record_in(m->record, &ret->record);
        case TUTTI__V1__ROW__ROW_FALLBACK:
                ret->type = ROW_FALLBACK;
                ret->fallback = fallback_in(m->fallback);
                return 0;
        case TUTTI__V1__ROW__ROW_QUOTA:
                ret->type = ROW_QUOTA;
                ret->quota = quota_in(m->quota);
                return 0;
        case TUTTI__V1__ROW__ROW_RESULT:
                ret->type = ROW_RESULT;
                return result_in(m->result, arena, &ret->result);
        case TUTTI__V1__ROW__ROW_BUFFER:
                ret->type = ROW_BUFFER;
                ret->buffer = buffer_in(m->buffer);
                return 0;
        case TUTTI__V1__ROW__ROW_HISTOGRAM:
                ret->type = ROW_HISTOGRAM;
                return histogram_in(m->histogram, &ret->histogram);
        case TUTTI__V1__ROW__ROW_PLAN:
                ret->type = ROW_PLAN;
                ret->plan = plan_in(m->plan);
                return 0;
        case TUTTI__V1__ROW__ROW_CLASS:
                ret->type = ROW_CLASS;
                ret->class = class_in(m->class_);
                return 0;
        case TUTTI__V1__ROW__ROW_GROUP_FALLBACK:
                ret->type = ROW_GROUP_FALLBACK;
                ret->group_fallback = group_fallback_in(m->group_fallback);
                return 0;
        case TUTTI__V1__ROW__ROW_DUMP:
                ret->type = ROW_DUMP;
                ret->dump = (struct row_dump){ .missed = m->dump->missed,
                        .first_epoch = m->dump->first_epoch,
                        .last_epoch = m->dump->last_epoch,
                        .ended = m->dump->ended };
                return 0;
        case TUTTI__V1__ROW__ROW_LOSSES:
                ret->type = ROW_LOSSES;
                ret->losses = losses_in(m->losses);
                return 0;
        case TUTTI__V1__ROW__ROW__NOT_SET:
        case _TUTTI__V1__ROW__ROW__CASE_IS_INT_SIZE: break;
        }
        ret->type = ROW_NONE;
        return 0;
}
