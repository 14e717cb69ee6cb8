#include "json.h"

#include <string.h>
#include "print.h"
#include "rows.h"

json_t *json_text(const char *s) {
        json_t *text = json_string(s);
        char copy[1024];
        size_t n = strlen(s) < sizeof(copy) ? strlen(s) : sizeof(copy) - 1;

        if (text)
                return text;
        for (size_t i = 0; i < n; i++)
                copy[i] = (unsigned char)s[i] < 0x80 ? s[i] : '?';
        return json_stringn(copy, n);
}

json_t *json_text_or_null(const char *s) {
        return s && *s ? json_text(s) : json_null();
}

json_t *json_count(uint64_t n) {
        return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

static void spoil(json_t **root) {
        json_decref(*root);
        *root = NULL;
}

void json_put(json_t **root, const char *key, json_t *value) {
        if (!*root)
                json_decref(value);
        else if (json_object_set_new(*root, key, value) < 0)
                spoil(root);
}

void json_add(json_t **array, json_t *value) {
        if (!*array)
                json_decref(value);
        else if (json_array_append_new(*array, value) < 0)
                spoil(array);
}

json_t *json_error_object(const char *status, const char *text) {
        return json_pack("{s:{s:o, s:o}}", "error", "status", json_text(status), "text", json_text(text));
}

json_t *json_ranks(const struct tutti_ranks *ranks) {
        json_t *array = json_array();

        for (uint32_t r = 0; r < TUTTI_MAX_WORLD; r++)
                if (tutti_ranks_has(ranks, r))
                        json_add(&array, json_count(r));
        return array;
}

json_t *json_daemon(const struct tutti_row_daemon *d) {
        json_t *j = json_object();

        json_put(&j, "version", json_text(d->version));
        json_put(&j, "socket", json_text(d->socket));
        json_put(&j, "pid", json_count(d->pid));
        json_put(&j, "isa", json_text(d->isa));
        json_put(&j, "draining", json_boolean(d->draining));
        json_put(&j, "drained_by", json_text_or_null(d->drained_by));
        json_put(&j, "groups_left", json_count(d->n_groups_left));
        json_put(&j, "log_level", json_text_or_null(d->log_level));
        json_put(&j, "uptime_ns", json_count(d->uptime_ns));
        json_put(&j, "clients", json_count(d->n_sessions));
        json_put(&j, "groups", json_count(d->n_groups));
        json_put(&j, "stalled_groups", json_count(d->n_stalled));
        json_put(&j, "pending", json_count(d->n_pending));
        json_put(&j, "done", json_count(d->n_collectives));
        json_put(&j, "failed", json_count(d->n_failed));
        json_put(&j, "refused", json_count(d->n_refused));
        json_put(&j, "ejected_clients", json_count(d->n_ejected));
        json_put(&j, "buffers", json_count(d->n_buffers));
        json_put(&j, "mapped_bytes", json_count(d->mapped_bytes));
        json_put(&j, "kept_halves", json_count(d->n_prepared));
        json_put(&j, "started_halves", json_count(d->n_started));
        json_put(&j, "replayed", json_count(d->n_replayed));
        json_put(&j, "on_lane", json_count(d->n_on_lane));
        json_put(&j, "passed_starts", json_count(d->n_passed));
        json_put(&j, "assisted", json_count(d->n_assisted));
        json_put(&j, "lane_rings", json_count(d->n_rings));
        json_put(&j, "lane_regrets", json_count(d->n_regrets));
        return j;
}

json_t *json_device(const struct tutti_row_device *d) {
        json_t *j = json_object();

        json_put(&j, "name", json_text(d->name));
        json_put(&j, "describe", json_text(d->describe));
        json_put(&j, "workers", json_count(d->n_workers));
        json_put(&j, "tasks", json_count(d->n_tasks));
        json_put(&j, "busy_ns", json_count(d->busy_ns));
        json_put(&j, "failing", json_boolean(d->failing));
        json_put(&j, "why", json_text_or_null(d->why));
        json_put(&j, "uuid", json_text_or_null(d->uuid));
        json_put(&j, "paths", json_text_or_null(d->paths));
        json_put(&j, "timeline", json_boolean(d->has_timeline));
        json_put(&j, "order", json_text_or_null(d->order));
        return j;
}

json_t *json_buffer(const struct tutti_row_buffer *b) {
        json_t *j = json_object();

        json_put(&j, "pid", b->pid ? json_count(b->pid) : json_null());
        json_put(&j, "uid", json_count(b->uid));
        json_put(&j, "buffer", json_count(b->buffer));
        json_put(&j, "bytes", json_count(b->size_bytes));
        json_put(&j, "device", json_text(b->device));
        json_put(&j, "path", json_text(b->path));
        json_put(&j, "why", json_text_or_null(b->why));
        return j;
}

static const char *group_state(const struct tutti_row_group *g) {
        return g->stalled   ? "stalled"
               : g->ended   ? "ended"
               : g->failed  ? "failed"
               : g->forming ? "forming"
                            : "ok";
}

json_t *json_group(const struct tutti_row_group *g) {
        json_t *j = json_object();

        json_put(&j, "job", json_text(g->job));
        json_put(&j, "group", json_text(g->group));
        json_put(&j, "uid", json_count(g->uid));
        json_put(&j, "state", json_string(group_state(g)));
        json_put(&j, "world_size", json_count(g->world_size));
        json_put(&j, "alive", json_count(g->n_alive));
        json_put(&j, "epoch", json_count(g->epoch));
        json_put(&j, "on_death", json_string(g->on_death == TUTTI_SHRINK ? "shrink" : "fail"));
        json_put(&j, "pending", json_count(g->n_pending));
        json_put(&j, "debts", json_count(g->n_debts));
        json_put(&j, "waiting", json_count(g->n_waiting));
        json_put(&j, "awaited", json_ranks(&g->awaited));
        json_put(&j, "restored", json_boolean(g->restored));
        json_put(&j, "done", json_count(g->n_done));
        json_put(&j, "failed", json_count(g->n_failed));
        json_put(&j, "bytes", json_count(g->bytes));
        json_put(&j, "age_ns", json_count(g->age_ns));
        json_put(&j, "last_done_age_ns", g->n_done ? json_count(g->last_done_age_ns) : json_null());
        return j;
}

json_t *json_member(const struct tutti_row_member *m) {
        json_t *j = json_object();
        bool has_last = *m->last_key;

        json_put(&j, "rank", json_count(m->rank));
        json_put(&j, "pid", m->pid ? json_count(m->pid) : json_null());
        json_put(&j, "uid", json_count(m->uid));
        json_put(&j, "process", json_text_or_null(m->process));
        json_put(&j, "state", json_text(tutti_process_state_name(m->state)));
        json_put(&j, "lost", m->lost ? json_text(tutti_loss_name(m->loss)) : json_null());
        json_put(&j, "left", json_boolean(!m->lost && m->lost_age_ns));
        json_put(&j, "gone_age_ns", m->lost_age_ns ? json_count(m->lost_age_ns) : json_null());
        json_put(&j, "why", json_text_or_null(m->why));
        json_put(&j, "busy", json_text_or_null(m->busy));
        json_put(&j, "waits", m->waits ? json_text_or_null(m->waits) : json_null());
        json_put(&j, "waits_age_ns", m->waits && *m->waits ? json_count(m->waits_age_ns) : json_null());
        json_put(&j, "last_key", json_text_or_null(m->last_key));
        json_put(&j, "last_age_ns", has_last ? json_count(m->last_age_ns) : json_null());
        json_put(&j, "submitted", json_count(m->n_submitted));
        json_put(&j, "came_last", json_count(m->n_last));
        json_put(&j, "joint", json_count(m->n_joint));
        json_put(&j, "lateness_p50_ns", json_count(m->lateness_p50_ns));
        json_put(&j, "lateness_p99_ns", json_count(m->lateness_p99_ns));
        json_put(&j, "buffers", json_count(m->n_buffers));
        json_put(&j, "mapped_bytes", json_count(m->mapped_bytes));
        return j;
}

static json_t *json_replica(const struct tutti_replica *r) {
        json_t *j = json_object();
        bool has_last = r->last_key && *r->last_key;

        json_put(&j, "rank", json_count(r->rank));
        json_put(&j, "pid", r->pid ? json_count(r->pid) : json_null());
        json_put(&j, "uid", json_count(r->uid));
        json_put(&j, "state", json_text(tutti_process_state_name(r->state)));
        json_put(&j, "last_key", json_text_or_null(r->last_key));
        json_put(&j, "last_age_ns", has_last ? json_count(seconds_to_ns(r->last_age)) : json_null());
        json_put(&j, "busy", json_text_or_null(r->busy));
        return j;
}

json_t *json_result(const struct tutti_row_result *r) {
        json_t *j = json_object(), *holders = json_array();

        for (uint32_t i = 0; i < r->n_holders; i++) {
                const struct tutti_holder *h = &r->holders[i];
                json_t *holder = json_object();

                json_put(&holder, "rank", json_count(h->rank));
                json_put(&holder, "pid", h->pid ? json_count(h->pid) : json_null());
                json_put(&holder, "state", json_text(tutti_process_state_name(h->state)));
                json_put(&holder, "results", json_count(h->n_slots));
                json_put(&holder, "oldest_age_ns", json_count(h->oldest_age_ns));
                json_add(&holders, holder);
        }
        json_put(&j, "name", json_text(r->name));
        json_put(&j, "device", json_text(r->device));
        json_put(&j, "slot_bytes", json_count(r->size_bytes));
        json_put(&j, "slots", json_count(r->n_slots));
        json_put(&j, "free_slots", json_count(r->n_free));
        json_put(&j, "attached", json_count(r->n_attached));
        json_put(&j, "holders", holders);
        return j;
}

json_t *json_pending(const struct tutti_row_pending *p) {
        json_t *j = json_object(), *replicas = json_array();

        for (uint32_t i = 0; i < p->n_replicas; i++)
                json_add(&replicas, json_replica(&p->replicas[i]));
        json_put(&j, "key", json_text(p->key));
        json_put(&j, "kind", json_text(kind_text(p->kind).s));
        json_put(&j, "age_ns", json_count(p->age_ns));
        json_put(&j, "bytes", json_count(p->bytes));
        json_put(&j, "running", json_boolean(p->running));
        json_put(&j, "stalled", json_boolean(p->stalled));
        json_put(&j, "have", json_ranks(&p->have));
        json_put(&j, "missing", json_ranks(&p->missing));
        json_put(&j, "missing_replicas", replicas);
        return j;
}

json_t *json_record(const struct tutti_row_record *r) {
        json_t *j = json_object();

        json_put(&j, "epoch", json_count(r->epoch));
        json_put(&j, "collective", json_count(r->collective));
        json_put(&j, "key", json_text(r->key));
        json_put(&j, "kind", json_text(kind_text(r->kind).s));
        json_put(&j, "op", r->op == TUTTI_OP_UNSPECIFIED ? json_null() : json_text(op_text(r->op).s));
        json_put(&j, "dtype",
                r->dtype == TUTTI_DTYPE_UNSPECIFIED ? json_null() : json_text(dtype_text(r->dtype).s));
        json_put(&j, "bytes", json_count(r->bytes));
        json_put(&j, "entries", json_count(r->n_entries));
        json_put(&j, "status", json_text(tutti_status_name(r->status)));
        return j;
}
