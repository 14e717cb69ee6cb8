/* One table: each metric with the rows it is made of and a function that writes the samples of one row. All
 * samples of a metric stand together, as the format wants it. */
#include "metrics.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#define NS 1e-9

/* Which answers of a scrape a metric is made of. */
enum part { PART_STATUS, PART_GROUPS, PART_STATS, PART_HISTOGRAMS, PART_QUOTA };

struct metric {
        const char *name, *type, *help;
        enum part part;
        enum tutti_row_type row;
        void (*write)(const struct metric *m, const struct tutti_row *row, FILE *out);
};

/* --- text --- */

static void write_escaped(const char *s, FILE *out) {
        for (; *s; s++) {
                if (*s == '\n') {
                        fputs("\\n", out);
                        continue;
                }
                if (*s == '\\' || *s == '"')
                        fputc('\\', out);
                fputc(*s, out);
        }
}

/* ` name="value"`, behind `{` or `,`. */
static void write_label(char before, const char *name, const char *value, FILE *out) {
        fprintf(out, "%c%s=\"", before, name);
        write_escaped(value, out);
        fputc('"', out);
}

static void write_number(char before, const char *name, uint32_t value, FILE *out) {
        fprintf(out, "%c%s=\"%u\"", before, name, value);
}

static void write_plain(const struct metric *m, double value, FILE *out) {
        fprintf(out, "%s %.17g\n", m->name, value);
}

/* --- tuttid --- */

static void write_build(const struct metric *m, const struct tutti_row *row, FILE *out) {
        fputs(m->name, out);
        write_label('{', "version", row->daemon.version, out);
        write_label(',', "isa", row->daemon.isa, out);
        fputs("} 1\n", out);
}

static void write_uptime(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_plain(m, (double)row->daemon.uptime_ns * NS, out);
}

static void write_draining(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_plain(m, row->daemon.draining, out);
}

static void write_sessions(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_plain(m, row->daemon.n_sessions, out);
}

static void write_buffers(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_plain(m, (double)row->daemon.n_buffers, out);
}

static void write_mapped(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_plain(m, (double)row->daemon.mapped_bytes, out);
}

static void write_pending(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_plain(m, (double)row->daemon.n_pending, out);
}

static void write_collectives(const struct metric *m, const struct tutti_row *row, FILE *out) {
        fprintf(out, "%s{result=\"ok\"} %" PRIu64 "\n%s{result=\"failed\"} %" PRIu64 "\n", m->name,
                row->daemon.n_collectives, m->name, row->daemon.n_failed);
}

static void write_refused(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_plain(m, (double)row->daemon.n_refused, out);
}

static void write_ejected(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_plain(m, (double)row->daemon.n_ejected, out);
}

static void write_on_lane(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_plain(m, (double)row->daemon.n_on_lane, out);
}

static void write_assisted(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_plain(m, (double)row->daemon.n_assisted, out);
}

static void write_rings(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_plain(m, (double)row->daemon.n_rings, out);
}

static void write_regrets(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_plain(m, (double)row->daemon.n_regrets, out);
}

static void write_restarts(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_plain(m, row->daemon.n_restarts, out);
}

static void write_fallback(const struct metric *m, const struct tutti_row *row, FILE *out) {
        fputs(m->name, out);
        write_label('{', "what", row->fallback.what, out);
        write_label(',', "why", row->fallback.why, out);
        fputs("} 1\n", out);
}

/* --- devices --- */

static void write_device(const struct metric *m, const struct tutti_row_device *d, double value, FILE *out) {
        fputs(m->name, out);
        write_label('{', "device", d->name, out);
        fprintf(out, "} %.17g\n", value);
}

static void write_device_workers(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_device(m, &row->device, row->device.n_workers, out);
}

static void write_device_tasks(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_device(m, &row->device, (double)row->device.n_tasks, out);
}

static void write_device_busy(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_device(m, &row->device, (double)row->device.busy_ns * NS, out);
}

static void write_device_failing(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_device(m, &row->device, row->device.failing, out);
}

/* --- groups --- */

static void write_group_labels(const char *job, const char *group, FILE *out) {
        write_label('{', "tutti_job", job, out); /* "job" is Prometheus's own */
        write_label(',', "group", group, out);
}

static void write_group(const struct metric *m, const struct tutti_row_group *g, double value, FILE *out) {
        if (g->ended)
                return;
        fputs(m->name, out);
        write_group_labels(g->job, g->group, out);
        write_number(',', "uid", g->uid, out);
        fprintf(out, "} %.17g\n", value);
}

static void write_group_stalled(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_group(m, &row->group, row->group.stalled, out);
}

static void write_group_failed(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_group(m, &row->group, row->group.failed, out);
}

static void write_group_world(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_group(m, &row->group, row->group.world_size, out);
}

static void write_group_alive(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_group(m, &row->group, row->group.n_alive, out);
}

static void write_group_pending(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_group(m, &row->group, row->group.n_pending, out);
}

static void write_kind(const struct metric *m, const struct tutti_row *row, FILE *out) {
        const struct tutti_row_stats *s = &row->stats;
        for (int is_failed = 0; is_failed < 2; is_failed++) {
                fputs(m->name, out);
                write_group_labels(s->job, s->group, out);
                write_label(',', "kind", tutti_kind_name(s->kind), out);
                fprintf(out, ",result=\"%s\"} %" PRIu64 "\n", is_failed ? "failed" : "ok",
                        is_failed ? s->n_failed : s->n);
        }
}

static void write_kind_bytes(const struct metric *m, const struct tutti_row *row, FILE *out) {
        fputs(m->name, out);
        write_group_labels(row->stats.job, row->stats.group, out);
        write_label(',', "kind", tutti_kind_name(row->stats.kind), out);
        fprintf(out, "} %" PRIu64 "\n", row->stats.bytes);
}

static void write_group_fallbacks(const struct metric *m, const struct tutti_row *row, FILE *out) {
        const struct tutti_row_group_fallback *f = &row->group_fallback;
        fputs(m->name, out);
        write_group_labels(f->job, f->group, out);
        write_number(',', "uid", f->uid, out);
        write_label(',', "algorithm", f->algorithm[0] ? f->algorithm : "other", out);
        write_label(',', "why", f->why[0] ? f->why : "other", out);
        fprintf(out, "} %" PRIu64 "\n", f->n);
}

/* --- replicas --- */

static void write_replica(const struct metric *m, const struct tutti_row_member *r, double value, FILE *out) {
        fputs(m->name, out);
        write_group_labels(r->job, r->group, out);
        write_number(',', "rank", r->rank, out);
        fprintf(out, "} %.17g\n", value);
}

static void write_replica_up(const struct metric *m, const struct tutti_row *row, FILE *out) {
        const struct tutti_row_member *r = &row->member;
        int is_up = !r->lost && (r->state == TUTTI_ALIVE || r->state == TUTTI_STATE_UNKNOWN);
        write_replica(m, r, is_up, out);
}

static void write_replica_lost(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_replica(m, &row->member, row->member.lost, out);
}

/* Of one that has finished something and is still there. */
static void write_replica_age(const struct metric *m, const struct tutti_row *row, FILE *out) {
        if (row->member.last_key[0] && !row->member.lost)
                write_replica(m, &row->member, (double)row->member.last_age_ns * NS, out);
}

static void write_replica_last(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_replica(m, &row->member, (double)row->member.n_last, out);
}

static void write_replica_joint(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_replica(m, &row->member, (double)row->member.n_joint, out);
}

/* --- histograms --- */

static void write_histogram_labels(const struct tutti_row_histogram *h, FILE *out) {
        write_group_labels(h->job, h->group, out);
        if (h->measure == TUTTI_MEASURE_LATENESS)
                write_number(',', "rank", h->rank, out);
        else
                write_label(',', "kind", tutti_kind_name(h->kind), out);
}

static void write_buckets(const struct metric *m, const struct tutti_row_histogram *h, FILE *out) {
        uint64_t n = 0;
        for (uint32_t i = 0; i < h->n_counts && i < 64; i++) {
                n += h->counts[i];
                fprintf(out, "%s_bucket", m->name);
                write_histogram_labels(h, out);
                fprintf(out, ",le=\"%.9g\"} %" PRIu64 "\n",
                        (double)h->bounds_from_ns * NS * (double)(UINT64_C(1) << i), n);
        }
        fprintf(out, "%s_bucket", m->name);
        write_histogram_labels(h, out);
        fprintf(out, ",le=\"+Inf\"} %" PRIu64 "\n%s_sum", h->n, m->name);
        write_histogram_labels(h, out);
        fprintf(out, "} %.17g\n%s_count", (double)h->sum_ns * NS, m->name);
        write_histogram_labels(h, out);
        fprintf(out, "} %" PRIu64 "\n", h->n);
}

static void write_wait(const struct metric *m, const struct tutti_row *row, FILE *out) {
        if (row->histogram.measure == TUTTI_MEASURE_WAIT)
                write_buckets(m, &row->histogram, out);
}

static void write_run(const struct metric *m, const struct tutti_row *row, FILE *out) {
        if (row->histogram.measure == TUTTI_MEASURE_RUN)
                write_buckets(m, &row->histogram, out);
}

static void write_lateness(const struct metric *m, const struct tutti_row *row, FILE *out) {
        if (row->histogram.measure == TUTTI_MEASURE_LATENESS)
                write_buckets(m, &row->histogram, out);
}

/* --- users --- */

static void write_quota_value(
        const struct metric *m, const struct tutti_row_quota *q, uint64_t value, FILE *out) {
        fputs(m->name, out);
        write_number('{', "uid", q->uid, out);
        write_label(',', "resource", q->name, out);
        fprintf(out, "} %" PRIu64 "\n", value);
}

static void write_quota_used(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_quota_value(m, &row->quota, row->quota.used, out);
}

static void write_quota_limit(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_quota_value(m, &row->quota, row->quota.limit, out);
}

static void write_quota_refused(const struct metric *m, const struct tutti_row *row, FILE *out) {
        write_quota_value(m, &row->quota, row->quota.n_refused, out);
}

/* --- the table --- */

static const struct metric metrics[] = {
        { "tutti_build_info", "gauge",
                "tuttid's version and the instruction set of its host devices; always 1", PART_STATUS,
                TUTTI_ROW_DAEMON, write_build },
        { "tutti_uptime_seconds", "gauge", "Time since tuttid has started", PART_STATUS, TUTTI_ROW_DAEMON,
                write_uptime },
        { "tutti_draining", "gauge", "1 while tuttid is drained or being stopped, and takes no new groups",
                PART_STATUS, TUTTI_ROW_DAEMON, write_draining },
        { "tutti_sessions", "gauge", "Connections of clients", PART_STATUS, TUTTI_ROW_DAEMON,
                write_sessions },
        { "tutti_buffers", "gauge", "Registered buffers", PART_STATUS, TUTTI_ROW_DAEMON, write_buffers },
        { "tutti_mapped_bytes", "gauge", "Client memory that tuttid maps", PART_STATUS, TUTTI_ROW_DAEMON,
                write_mapped },
        { "tutti_pending_submissions", "gauge", "Halves whose collective has not ended", PART_STATUS,
                TUTTI_ROW_DAEMON, write_pending },
        { "tutti_collectives_total", "counter", "Collectives that have ended, by result", PART_STATUS,
                TUTTI_ROW_DAEMON, write_collectives },
        { "tutti_refusals_total", "counter", "Halves that were refused", PART_STATUS, TUTTI_ROW_DAEMON,
                write_refused },
        { "tutti_ejections_total", "counter", "Clients that were ejected", PART_STATUS, TUTTI_ROW_DAEMON,
                write_ejected },
        { "tutti_lane_collectives_total", "counter", "Collectives that ran on the lane, without a packet",
                PART_STATUS, TUTTI_ROW_DAEMON, write_on_lane },
        { "tutti_lane_assisted_total", "counter", "Collectives that ran on the lane by more than one thread",
                PART_STATUS, TUTTI_ROW_DAEMON, write_assisted },
        { "tutti_lane_rings_total", "counter", "How often a client woke the lane's thread", PART_STATUS,
                TUTTI_ROW_DAEMON, write_rings },
        { "tutti_lane_regrets_total", "counter",
                "How often the lane's thread gave up yielding for a while, since others use up its core",
                PART_STATUS, TUTTI_ROW_DAEMON, write_regrets },
        { "tutti_worker_restarts_total", "counter", "How often the GPU process was started anew", PART_STATUS,
                TUTTI_ROW_DAEMON, write_restarts },
        { "tutti_fallback", "gauge", "Something is less than it could be; always 1", PART_STATUS,
                TUTTI_ROW_FALLBACK, write_fallback },
        { "tutti_device_workers", "gauge", "Threads that execute on a device", PART_STATUS, TUTTI_ROW_DEVICE,
                write_device_workers },
        { "tutti_device_tasks_total", "counter", "Plans that a device has executed", PART_STATUS,
                TUTTI_ROW_DEVICE, write_device_tasks },
        { "tutti_device_busy_seconds_total", "counter", "Time in which a device's workers have executed",
                PART_STATUS, TUTTI_ROW_DEVICE, write_device_busy },
        { "tutti_device_failing", "gauge", "1 while a device cannot be used", PART_STATUS, TUTTI_ROW_DEVICE,
                write_device_failing },
        { "tutti_group_stalled", "gauge", "1 while a collective of the group is older than stall_warn",
                PART_STATUS, TUTTI_ROW_GROUP, write_group_stalled },
        { "tutti_group_failed", "gauge", "1 while the group has failed and was not formed anew", PART_STATUS,
                TUTTI_ROW_GROUP, write_group_failed },
        { "tutti_group_world_size", "gauge", "Replicas that belong to the group", PART_STATUS,
                TUTTI_ROW_GROUP, write_group_world },
        { "tutti_group_alive_replicas", "gauge", "Replicas of the group that are there", PART_STATUS,
                TUTTI_ROW_GROUP, write_group_alive },
        { "tutti_group_pending_collectives", "gauge",
                "Collectives of the group that have begun and not ended", PART_STATUS, TUTTI_ROW_GROUP,
                write_group_pending },
        { "tutti_group_collectives_total", "counter",
                "Collectives of a group that have ended, by kind and result", PART_STATS, TUTTI_ROW_STATS,
                write_kind },
        { "tutti_group_read_bytes_total", "counter", "Bytes of inputs that were read, over all replicas",
                PART_STATS, TUTTI_ROW_STATS, write_kind_bytes },
        { "tutti_group_fallbacks_total", "counter",
                "Collectives of a group that were done otherwise than was wished, by what was taken and why",
                PART_STATUS, TUTTI_ROW_GROUP_FALLBACK, write_group_fallbacks },
        { "tutti_replica_up", "gauge", "1 while a replica is there and not stopped", PART_GROUPS,
                TUTTI_ROW_MEMBER, write_replica_up },
        { "tutti_replica_lost", "gauge", "1 when a replica has died, disconnected or was ejected",
                PART_GROUPS, TUTTI_ROW_MEMBER, write_replica_lost },
        { "tutti_replica_last_event_age_seconds", "gauge",
                "Time since the last collective that a replica has finished", PART_GROUPS, TUTTI_ROW_MEMBER,
                write_replica_age },
        { "tutti_replica_came_last_total", "counter", "Collectives in which a replica came last", PART_GROUPS,
                TUTTI_ROW_MEMBER, write_replica_last },
        { "tutti_replica_joint_total", "counter", "Collectives of at least two in which a replica took part",
                PART_GROUPS, TUTTI_ROW_MEMBER, write_replica_joint },
        { "tutti_collective_wait_seconds", "histogram", "From a collective's first half to its last",
                PART_HISTOGRAMS, TUTTI_ROW_HISTOGRAM, write_wait },
        { "tutti_collective_run_seconds", "histogram", "From a collective's last half to its end",
                PART_HISTOGRAMS, TUTTI_ROW_HISTOGRAM, write_run },
        { "tutti_replica_lateness_seconds", "histogram", "From a collective's first half to this replica's",
                PART_HISTOGRAMS, TUTTI_ROW_HISTOGRAM, write_lateness },
        { "tutti_quota_used", "gauge", "What a user makes tuttid hold", PART_QUOTA, TUTTI_ROW_QUOTA,
                write_quota_used },
        { "tutti_quota_limit", "gauge", "The most that a user may make tuttid hold", PART_QUOTA,
                TUTTI_ROW_QUOTA, write_quota_limit },
        { "tutti_quota_refusals_total", "counter",
                "Requests that were refused since a user was at a limit, by resource", PART_QUOTA,
                TUTTI_ROW_QUOTA, write_quota_refused },
};

#define N_METRICS (sizeof(metrics) / sizeof(*metrics))

static void write_head(const char *name, const char *type, const char *help, FILE *out) {
        fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static const struct tutti_answer *answer_of(const struct user_part *user, enum part part) {
        switch (part) {
        case PART_STATUS: return user->status;
        case PART_GROUPS: return user->groups;
        case PART_STATS: return user->stats;
        case PART_HISTOGRAMS: return user->histograms;
        case PART_QUOTA: break;
        }
        return NULL;
}

static void write_rows(const struct metric *m, const struct tutti_answer *a, FILE *out) {
        for (uint32_t i = 0; a && i < a->n_rows; i++)
                if (a->rows[i].type == m->row)
                        m->write(m, &a->rows[i], out);
}

/* What is not a user's own is in everybody's answer, and written once. */
static int is_everybodys(const struct metric *m) {
        return m->row == TUTTI_ROW_DAEMON || m->row == TUTTI_ROW_DEVICE || m->row == TUTTI_ROW_FALLBACK;
}

static void write_metric(const struct metric *m, const struct scrape *scrape, FILE *out) {
        uint32_t n = is_everybodys(m) && scrape->n_users > 1 ? 1 : scrape->n_users;
        write_head(m->name, m->type, m->help, out);
        if (m->part == PART_QUOTA)
                write_rows(m, scrape->quota, out);
        for (uint32_t i = 0; m->part != PART_QUOTA && i < n; i++)
                write_rows(m, answer_of(&scrape->users[i], m->part), out);
}

#define UP_HELP   "1 when tuttid answers"
#define TIME_HELP "Time that the questions to tuttid took"

void metrics_write(const struct scrape *scrape, FILE *out) {
        write_head("tutti_up", "gauge", UP_HELP, out);
        fprintf(out, "tutti_up %d\n", scrape->status == TUTTI_OK);
        write_head("tutti_scrape_duration_seconds", "gauge", TIME_HELP, out);
        fprintf(out, "tutti_scrape_duration_seconds %.9g\n", scrape->seconds);
        for (size_t i = 0; scrape->status == TUTTI_OK && i < N_METRICS; i++)
                write_metric(&metrics[i], scrape, out);
}

void metrics_list(FILE *out) {
        fprintf(out, "tutti_up gauge %s\ntutti_scrape_duration_seconds gauge %s\n", UP_HELP, TIME_HELP);
        for (size_t i = 0; i < N_METRICS; i++)
                fprintf(out, "%s %s %s\n", metrics[i].name, metrics[i].type, metrics[i].help);
}
