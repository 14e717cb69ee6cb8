/* Rows of a query, outwards. */
#include "wire/codec-pb.h"

static void daemon_out(const struct row_daemon *r, Tutti__V1__DaemonRow *m) {
        tutti__v1__daemon_row__init(m);
        m->version = string_out(r->version);
        m->pid = r->pid;
        m->uptime_ns = r->uptime_ns;
        m->n_sessions = r->n_sessions;
        m->n_groups = r->n_groups;
        m->n_stalled = r->n_stalled;
        m->n_collectives = r->n_collectives;
        m->n_failed = r->n_failed;
        m->n_refused = r->n_refused;
        m->n_ejected = r->n_ejected;
        m->mapped_bytes = r->mapped_bytes;
        m->n_buffers = r->n_buffers;
        m->n_pending = r->n_pending;
        m->socket = string_out(r->socket);
        m->isa = string_out(r->isa);
        m->draining = r->draining;
        m->n_restarts = r->n_restarts;
        m->n_prepared = r->n_prepared;
        m->n_started = r->n_started;
        m->n_replayed = r->n_replayed;
        m->n_on_lane = r->n_on_lane;
        m->n_passed = r->n_passed;
        m->n_assisted = r->n_assisted;
        m->n_rings = r->n_rings;
        m->n_regrets = r->n_regrets;
        m->drained_by = string_out(r->drained_by);
        m->n_groups_left = r->n_groups_left;
        m->log_level = string_out(r->log_level);
        m->sees_all = r->sees_all;
}

static void device_out(const struct row_device *r, Tutti__V1__DeviceRow *m) {
        tutti__v1__device_row__init(m);
        m->name = string_out(r->name);
        m->n_workers = r->n_workers;
        m->describe = string_out(r->describe);
        m->n_tasks = r->n_tasks;
        m->busy_ns = r->busy_ns;
        m->failing = r->failing;
        m->why = string_out(r->why);
        m->uuid = string_out(r->uuid);
        m->paths = string_out(r->paths);
        m->order = (Tutti__V1__Order)r->order;
}

static void group_out(const struct row_group *r, struct row_box *box) {
        Tutti__V1__GroupRow *m = &box->group;
        tutti__v1__group_row__init(m);
        m->job = string_out(r->job);
        m->group = string_out(r->group);
        m->uid = r->uid;
        m->world_size = r->world_size;
        m->epoch = r->epoch;
        m->n_alive = r->n_alive;
        m->n_pending = r->n_pending;
        m->forming = r->forming;
        m->failed = r->failed;
        m->ended = r->ended;
        m->stalled = r->stalled;
        m->on_death = (Tutti__V1__OnDeath)r->on_death;
        m->n_done = r->n_done;
        m->n_failed = r->n_failed;
        m->bytes = r->bytes;
        m->age_ns = r->age_ns;
        m->last_done_age_ns = r->last_done_age_ns;
        m->n_debts = r->n_debts;
        m->n_waiting = r->n_waiting;
        m->awaited = ranks_out(&r->awaited, box->missing);
        m->restored = r->restored;
}

static void member_out(const struct row_member *r, struct row_box *box) {
        Tutti__V1__MemberRow *m = &box->member;
        tutti__v1__member_row__init(m);
        m->job = string_out(r->job);
        m->group = string_out(r->group);
        m->rank = r->rank;
        m->pid = r->pid;
        m->uid = r->uid;
        m->state = (Tutti__V1__ProcessState)r->state;
        m->process = string_out(r->process);
        m->last_age_ns = r->last_age_ns;
        m->busy = string_out(r->busy);
        m->n_submitted = r->n_submitted;
        m->n_last = r->n_last;
        m->n_joint = r->n_joint;
        m->lateness_p50_ns = r->lateness_p50_ns;
        m->lateness_p99_ns = r->lateness_p99_ns;
        m->n_buffers = r->n_buffers;
        m->mapped_bytes = r->mapped_bytes;
        m->lost = r->lost;
        m->loss = (Tutti__V1__Loss)r->loss;
        m->lost_age_ns = r->lost_age_ns;
        m->why = string_out(r->why);
        m->waits = string_out(r->waits);
        m->waits_age_ns = r->waits_age_ns;
        m->ended_epoch = r->ended_epoch;
        m->has_last = r->has_last;
        if (r->has_last) {
                key_out(&r->last_key, &box->key);
                m->last_key = &box->key;
        }
}

static void pending_out(const struct row_pending *r, struct row_box *box) {
        Tutti__V1__PendingRow *m = &box->pending;
        tutti__v1__pending_row__init(m);
        m->job = string_out(r->job);
        m->group = string_out(r->group);
        m->kind = (Tutti__V1__Kind)r->kind;
        m->age_ns = r->age_ns;
        m->bytes = r->bytes;
        m->world_size = r->world_size;
        m->running = r->running;
        m->stalled = r->stalled;
        key_out(&r->key, &box->key);
        m->key = &box->key;
        m->have = ranks_out(&r->have, box->have);
        m->missing = ranks_out(&r->missing, box->missing);
        reports_out(r->replicas, r->n_replicas, &box->reports);
        m->n_replicas = box->reports.n;
        m->replicas = box->reports.list;
}

static void stats_out(const struct row_stats *r, Tutti__V1__StatsRow *m) {
        tutti__v1__stats_row__init(m);
        m->job = string_out(r->job);
        m->group = string_out(r->group);
        m->kind = (Tutti__V1__Kind)r->kind;
        m->n = r->n;
        m->n_failed = r->n_failed;
        m->bytes = r->bytes;
        m->wait_p50_ns = r->wait_p50_ns;
        m->wait_p99_ns = r->wait_p99_ns;
        m->run_p50_ns = r->run_p50_ns;
        m->run_p99_ns = r->run_p99_ns;
        m->run_ns = r->run_ns;
        m->wait_p999_ns = r->wait_p999_ns;
        m->run_p999_ns = r->run_p999_ns;
}

static void class_out(const struct row_class *r, Tutti__V1__ClassRow *m) {
        tutti__v1__class_row__init(m);
        m->job = string_out(r->job);
        m->group = string_out(r->group);
        m->kind = (Tutti__V1__Kind)r->kind;
        m->op = (Tutti__V1__Op)r->op;
        m->from_bytes = r->from_bytes;
        m->to_bytes = r->to_bytes;
        m->n = r->n;
        m->n_failed = r->n_failed;
        m->bytes = r->bytes;
        m->run_ns = r->run_ns;
        m->wait_p50_ns = r->wait_p50_ns;
        m->wait_p99_ns = r->wait_p99_ns;
        m->wait_p999_ns = r->wait_p999_ns;
        m->run_p50_ns = r->run_p50_ns;
        m->run_p99_ns = r->run_p99_ns;
        m->run_p999_ns = r->run_p999_ns;
}

static void record_out(const struct row_record *r, struct row_box *box) {
        Tutti__V1__RecordRow *m = &box->record;
        tutti__v1__record_row__init(m);
        m->job = string_out(r->job);
        m->group = string_out(r->group);
        m->epoch = r->epoch;
        m->collective = r->collective;
        m->kind = (Tutti__V1__Kind)r->kind;
        m->op = (Tutti__V1__Op)r->op;
        m->dtype = (Tutti__V1__DType)r->dtype;
        m->bytes = r->bytes;
        m->n_entries = r->n_entries;
        m->status = (Tutti__V1__Status)r->status;
        m->age_ns = r->age_ns;
        m->sealed_ns = r->sealed_ns;
        m->done_ns = r->done_ns;
        m->last_rank = r->last_rank;
        m->guilty_rank = r->guilty_rank;
        m->has_guilty = r->has_guilty;
        m->dropped = r->dropped;
        m->shortened = r->shortened;
        m->missed = r->missed;
        key_out(&r->key, &box->key);
        m->key = &box->key;
        m->have = ranks_out(&r->have, box->have);
        m->n_arrival_ns = r->n_arrivals;
        m->arrival_ns = (uint64_t *)r->arrival_ns;
}

static void fallback_out(const struct row_fallback *r, Tutti__V1__FallbackRow *m) {
        tutti__v1__fallback_row__init(m);
        m->what = string_out(r->what);
        m->why = string_out(r->why);
}

static void group_fallback_out(const struct row_group_fallback *r, struct row_box *box) {
        Tutti__V1__GroupFallbackRow *m = &box->group_fallback;
        tutti__v1__group_fallback_row__init(m);
        m->job = string_out(r->job);
        m->group = string_out(r->group);
        m->uid = r->uid;
        m->why = string_out(r->why);
        m->algorithm = string_out(r->algorithm);
        m->n = r->n;
        m->last_age_ns = r->last_age_ns;
        m->kind = (Tutti__V1__Kind)r->kind;
        key_out(&r->key, &box->key);
        m->key = &box->key;
}

static void plan_out(const struct row_plan *r, Tutti__V1__PlanRow *m) {
        tutti__v1__plan_row__init(m);
        m->algorithm = string_out(r->algorithm);
        m->order = string_out(r->order);
        m->device = string_out(r->device);
        m->why = string_out(r->why);
        m->fallback = string_out(r->fallback);
        m->text = string_out(r->text);
        m->n_steps = r->n_steps;
        m->n_phases = r->n_phases;
        m->scratch_bytes = r->scratch_bytes;
        m->moved_bytes = r->moved_bytes;
}

static void quota_out(const struct row_quota *r, Tutti__V1__QuotaRow *m) {
        tutti__v1__quota_row__init(m);
        m->uid = r->uid;
        m->name = string_out(r->name);
        m->used = r->used;
        m->limit = r->limit;
        m->n_refused = r->n_refused;
}

static void result_out(const struct row_result *r, struct row_box *box) {
        Tutti__V1__ResultRow *m = &box->result;
        tutti__v1__result_row__init(m);
        m->job = string_out(r->job);
        m->group = string_out(r->group);
        m->name = string_out(r->name);
        m->device = string_out(r->device);
        m->size_bytes = r->size_bytes;
        m->n_slots = r->n_slots;
        m->n_free = r->n_free;
        m->n_attached = r->n_attached;
        for (uint32_t i = 0; i < r->n_holders && i < MAX_ROW_HOLDERS; i++) {
                Tutti__V1__Holder *h = box->holder_list[i] = &box->holders[i];
                tutti__v1__holder__init(h);
                h->rank = r->holders[i].rank;
                h->pid = r->holders[i].pid;
                h->state = (Tutti__V1__ProcessState)r->holders[i].state;
                h->n_slots = r->holders[i].n_slots;
                h->oldest_age_ns = r->holders[i].oldest_age_ns;
                m->n_holders++;
        }
        m->holders = box->holder_list;
}

static void buffer_out(const struct row_buffer *r, Tutti__V1__BufferRow *m) {
        tutti__v1__buffer_row__init(m);
        m->pid = r->pid;
        m->uid = r->uid;
        m->buffer = r->buffer;
        m->size_bytes = r->size_bytes;
        m->device = string_out(r->device);
        m->path = string_out(r->path);
        m->why = string_out(r->why);
        m->page_bytes = r->page_bytes;
}

static void histogram_out(const struct row_histogram *r, Tutti__V1__HistogramRow *m) {
        tutti__v1__histogram_row__init(m);
        m->job = string_out(r->job);
        m->group = string_out(r->group);
        m->uid = r->uid;
        m->rank = r->rank;
        m->measure = (Tutti__V1__Measure)r->measure;
        m->kind = (Tutti__V1__Kind)r->kind;
        m->n = r->n;
        m->sum_ns = r->sum_ns;
        m->bounds_from_ns = r->bounds_from_ns;
        m->n_counts = r->n_counts;
        m->counts = (uint64_t *)r->counts;
}

static void dump_out(const struct row_dump *r, Tutti__V1__DumpRow *m) {
        tutti__v1__dump_row__init(m);
        m->missed = r->missed;
        m->first_epoch = r->first_epoch;
        m->last_epoch = r->last_epoch;
        m->ended = r->ended;
}

static void losses_out(const struct row_losses *r, Tutti__V1__LossesRow *m) {
        tutti__v1__losses_row__init(m);
        m->uid = r->uid;
        m->n_died = r->n_died;
        m->n_disconnected = r->n_disconnected;
        m->n_ejected = r->n_ejected;
}

void row_out(const struct row *row, struct row_box *box) {
        Tutti__V1__Row *m = &box->message;
        tutti__v1__row__init(m);
        switch (row->type) {
        case ROW_NONE: return;
        case ROW_DAEMON: daemon_out(&row->daemon, &box->daemon); break;
        case ROW_DEVICE: device_out(&row->device, &box->device); break;
        case ROW_GROUP: group_out(&row->group, box); break;
        case ROW_MEMBER: member_out(&row->member, box); break;
        case ROW_PENDING: pending_out(&row->pending, box); break;
        case ROW_STATS: stats_out(&row->stats, &box->stats); break;
        case ROW_RECORD: record_out(&row->record, box); break;
        case ROW_FALLBACK: fallback_out(&row->fallback, &box->fallback); break;
        case ROW_QUOTA: quota_out(&row->quota, &box->quota); break;
        case ROW_RESULT: result_out(&row->result, box); break;
        case ROW_BUFFER: buffer_out(&row->buffer, &box->buffer); break;
        case ROW_HISTOGRAM: histogram_out(&row->histogram, &box->histogram); break;
        case ROW_PLAN: plan_out(&row->plan, &box->plan); break;
        case ROW_CLASS: class_out(&row->class, &box->class_); break;
        case ROW_GROUP_FALLBACK: group_fallback_out(&row->group_fallback, box); break;
        case ROW_DUMP: dump_out(&row->dump, &box->dump); break;
        case ROW_LOSSES: losses_out(&row->losses, &box->losses); break;
        }
        /* Row numbers of the contract are those of enum row_type; every message begins the union. */
        _Static_assert((int)ROW_DAEMON == TUTTI__V1__ROW__ROW_DAEMON, "first row");
        _Static_assert((int)ROW_LOSSES == TUTTI__V1__ROW__ROW_LOSSES, "last row");
        m->row_case = (Tutti__V1__Row__RowCase)row->type;
        m->daemon = &box->daemon;
}
