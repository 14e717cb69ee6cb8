/* One table: each metric with the rows it is made of and a function that writes the samples of one row. All
 * samples of a metric stand together, as the format wants it. */
#include "metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include "labels.h"
#include "samples.h"

#define NS 1e-9

/* Which answers of a scrape a metric is made of. */
enum part { PART_STATUS, PART_GROUPS, PART_STATS, PART_HISTOGRAMS, PART_QUOTA };

/* Where samples go. */
struct place {
        struct samples *samples;
        uint32_t uid; /* whose answer it is, for rows that do not say so */
};

struct metric {
        const char *name, *type, *help;
        enum part part;
        enum tutti_row_type row;
        void (*write)(const struct metric *m, const struct tutti_row *row, struct place *to);
        enum merge merge; /* what becomes of rows with equal labels */
};

/* --- samples --- */

/* The name is written; labels follow, then end(). */
static FILE *begin(const struct metric *m, struct place *to) {
        FILE *f = samples_begin(to->samples);
        fputs(m->name, f);
        return f;
}

/* Behind the last label. */
static void end(const struct metric *m, double value, struct place *to, FILE *f) {
        fputc('}', f);
        samples_end(to->samples, m->merge, value);
}

static void write_plain(const struct metric *m, double value, struct place *to) {
        begin(m, to);
        samples_end(to->samples, m->merge, value);
}

/* --- tuttid --- */

static void write_build(const struct metric *m, const struct tutti_row *row, struct place *to) {
        FILE *f = begin(m, to);
        label_write('{', "version", row->daemon.version, f);
        label_write(',', "isa", row->daemon.isa, f);
        end(m, 1, to, f);
}

static void write_uptime(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_plain(m, (double)row->daemon.uptime_ns * NS, to);
}

static void write_draining(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_plain(m, row->daemon.draining, to);
}

static void write_sessions(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_plain(m, row->daemon.n_sessions, to);
}

static void write_buffers(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_plain(m, (double)row->daemon.n_buffers, to);
}

static void write_mapped(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_plain(m, (double)row->daemon.mapped_bytes, to);
}

static void write_pending(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_plain(m, (double)row->daemon.n_pending, to);
}

static void write_result(const struct metric *m, const char *result, uint64_t n, struct place *to) {
        FILE *f = begin(m, to);
        label_write('{', "result", result, f);
        end(m, (double)n, to, f);
}

static void write_collectives(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_result(m, "ok", row->daemon.n_collectives, to);
        write_result(m, "failed", row->daemon.n_failed, to);
}

static void write_refused(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_plain(m, (double)row->daemon.n_refused, to);
}

static void write_ejected(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_plain(m, (double)row->daemon.n_ejected, to);
}

static void write_on_lane(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_plain(m, (double)row->daemon.n_on_lane, to);
}

static void write_assisted(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_plain(m, (double)row->daemon.n_assisted, to);
}

static void write_rings(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_plain(m, (double)row->daemon.n_rings, to);
}

static void write_regrets(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_plain(m, (double)row->daemon.n_regrets, to);
}

static void write_restarts(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_plain(m, row->daemon.n_restarts, to);
}

static void write_sees_all(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_plain(m, row->daemon.sees_all, to);
}

/* Sizes and pids would make a new series each time they change; `tuttictl status` tells them. */
static const char *lasting_why(const struct tutti_row_fallback *f) {
        return strcmp(f->what, "huge-pages") == 0 ? "memory for which huge pages were asked lies in others"
                                                  : f->why;
}

static void write_fallback(const struct metric *m, const struct tutti_row *row, struct place *to) {
        FILE *f = begin(m, to);
        label_write('{', "what", row->fallback.what, f);
        label_write(',', "why", lasting_why(&row->fallback), f);
        end(m, 1, to, f);
}

/* --- devices --- */

static void write_device(
        const struct metric *m, const struct tutti_row_device *d, double value, struct place *to) {
        FILE *f = begin(m, to);
        label_write('{', "device", d->name, f);
        end(m, value, to, f);
}

static void write_device_workers(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_device(m, &row->device, row->device.n_workers, to);
}

static void write_device_tasks(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_device(m, &row->device, (double)row->device.n_tasks, to);
}

static void write_device_busy(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_device(m, &row->device, (double)row->device.busy_ns * NS, to);
}

static void write_device_failing(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_device(m, &row->device, row->device.failing, to);
}

/* --- groups --- */

/* What tells groups apart, but for a job secret, which is nobody's business. */
static void write_group_labels(const char *job, const char *group, uint32_t uid, FILE *f) {
        label_write('{', "tutti_job", job, f); /* "job" is Prometheus's own */
        label_write(',', "group", group, f);
        label_write_number(',', "uid", uid, f);
}

static void write_group(
        const struct metric *m, const struct tutti_row_group *g, double value, struct place *to) {
        if (g->ended)
                return;
        FILE *f = begin(m, to);
        write_group_labels(g->job, g->group, g->uid, f);
        end(m, value, to, f);
}

static void write_group_stalled(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_group(m, &row->group, row->group.stalled, to);
}

static void write_group_failed(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_group(m, &row->group, row->group.failed, to);
}

static void write_group_world(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_group(m, &row->group, row->group.world_size, to);
}

static void write_group_alive(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_group(m, &row->group, row->group.n_alive, to);
}

static void write_group_pending(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_group(m, &row->group, row->group.n_pending, to);
}

/* Of a kind; the labels go on. */
static FILE *begin_kind(const struct metric *m, const struct tutti_row_stats *s, struct place *to) {
        FILE *f = begin(m, to);
        write_group_labels(s->job, s->group, to->uid, f);
        label_write(',', "kind", tutti_kind_name(s->kind), f);
        return f;
}

static void write_kind(const struct metric *m, const struct tutti_row *row, struct place *to) {
        const struct tutti_row_stats *s = &row->stats;
        for (int is_failed = 0; is_failed < 2; is_failed++) {
                FILE *f = begin_kind(m, s, to);
                label_write(',', "result", is_failed ? "failed" : "ok", f);
                end(m, (double)(is_failed ? s->n_failed : s->n), to, f);
        }
}

static void write_kind_bytes(const struct metric *m, const struct tutti_row *row, struct place *to) {
        FILE *f = begin_kind(m, &row->stats, to);
        end(m, (double)row->stats.bytes, to, f);
}

static void write_group_fallbacks(const struct metric *m, const struct tutti_row *row, struct place *to) {
        const struct tutti_row_group_fallback *g = &row->group_fallback;
        FILE *f = begin(m, to);
        write_group_labels(g->job, g->group, g->uid, f);
        label_write(',', "algorithm", g->algorithm[0] ? g->algorithm : "other", f);
        label_write(',', "why", g->why[0] ? g->why : "other", f);
        end(m, (double)g->n, to, f);
}

/* --- replicas --- */

static void write_replica(
        const struct metric *m, const struct tutti_row_member *r, double value, struct place *to) {
        FILE *f = begin(m, to);
        write_group_labels(r->job, r->group, r->uid, f);
        label_write_number(',', "rank", r->rank, f);
        end(m, value, to, f);
}

/* Lost, or has left. */
static int is_gone(const struct tutti_row_member *r) {
        return r->lost || r->lost_age_ns != 0;
}

static void write_replica_up(const struct metric *m, const struct tutti_row *row, struct place *to) {
        const struct tutti_row_member *r = &row->member;
        int is_up = !is_gone(r) && (r->state == TUTTI_ALIVE || r->state == TUTTI_STATE_UNKNOWN);
        write_replica(m, r, is_up, to);
}

static void write_replica_lost(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_replica(m, &row->member, row->member.lost, to);
}

/* Of one that has finished something and is still there. */
static void write_replica_age(const struct metric *m, const struct tutti_row *row, struct place *to) {
        if (row->member.last_key[0] && !is_gone(&row->member))
                write_replica(m, &row->member, (double)row->member.last_age_ns * NS, to);
}

static void write_replica_last(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_replica(m, &row->member, (double)row->member.n_last, to);
}

static void write_replica_joint(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_replica(m, &row->member, (double)row->member.n_joint, to);
}

/* --- histograms --- */

/* The name gets an ending; the labels may go on. */
static FILE *begin_histogram(
        const struct metric *m, const struct tutti_row_histogram *h, const char *ending, struct place *to) {
        FILE *f = begin(m, to);
        fputs(ending, f);
        write_group_labels(h->job, h->group, h->uid, f);
        if (h->measure == TUTTI_MEASURE_LATENESS)
                label_write_number(',', "rank", h->rank, f);
        else
                label_write(',', "kind", tutti_kind_name(h->kind), f);
        return f;
}

static void write_buckets(const struct metric *m, const struct tutti_row_histogram *h, struct place *to) {
        uint64_t n = 0;
        FILE *f;
        for (uint32_t i = 0; i < h->n_counts && i < 64; i++) {
                n += h->counts[i];
                f = begin_histogram(m, h, "_bucket", to);
                fprintf(f, ",le=\"%.9g\"", (double)h->bounds_from_ns * NS * (double)(UINT64_C(1) << i));
                end(m, (double)n, to, f);
        }
        f = begin_histogram(m, h, "_bucket", to);
        label_write(',', "le", "+Inf", f);
        end(m, (double)h->n, to, f);
        f = begin_histogram(m, h, "_sum", to);
        end(m, (double)h->sum_ns * NS, to, f);
        f = begin_histogram(m, h, "_count", to);
        end(m, (double)h->n, to, f);
}

static void write_wait(const struct metric *m, const struct tutti_row *row, struct place *to) {
        if (row->histogram.measure == TUTTI_MEASURE_WAIT)
                write_buckets(m, &row->histogram, to);
}

static void write_run(const struct metric *m, const struct tutti_row *row, struct place *to) {
        if (row->histogram.measure == TUTTI_MEASURE_RUN)
                write_buckets(m, &row->histogram, to);
}

static void write_lateness(const struct metric *m, const struct tutti_row *row, struct place *to) {
        if (row->histogram.measure == TUTTI_MEASURE_LATENESS)
                write_buckets(m, &row->histogram, to);
}

/* --- users --- */

static void write_quota_value(
        const struct metric *m, const struct tutti_row_quota *q, uint64_t value, struct place *to) {
        FILE *f = begin(m, to);
        label_write_number('{', "uid", q->uid, f);
        label_write(',', "resource", q->name, f);
        end(m, (double)value, to, f);
}

static void write_quota_used(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_quota_value(m, &row->quota, row->quota.used, to);
}

static void write_quota_limit(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_quota_value(m, &row->quota, row->quota.limit, to);
}

static void write_quota_refused(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_quota_value(m, &row->quota, row->quota.n_refused, to);
}

static void write_loss(const struct metric *m, const struct tutti_row_losses *l, const char *reason,
        uint64_t n, struct place *to) {
        FILE *f = begin(m, to);
        label_write_number('{', "uid", l->uid, f);
        label_write(',', "reason", reason, f);
        end(m, (double)n, to, f);
}

/* Zeros too, or the first loss would be no increase. */
static void write_losses(const struct metric *m, const struct tutti_row *row, struct place *to) {
        write_loss(m, &row->losses, "died", row->losses.n_died, to);
        write_loss(m, &row->losses, "disconnected", row->losses.n_disconnected, to);
        write_loss(m, &row->losses, "ejected", row->losses.n_ejected, to);
}

/* --- the table --- */

static const struct metric metrics[] = {
        { "tutti_build_info", "gauge",
                "tuttid's version and the instruction set of its host devices; always 1", PART_STATUS,
                TUTTI_ROW_DAEMON, write_build, MERGE_MAX },
        { "tutti_uptime_seconds", "gauge", "Time since tuttid has started", PART_STATUS, TUTTI_ROW_DAEMON,
                write_uptime, MERGE_MAX },
        { "tutti_draining", "gauge", "1 while tuttid is drained or being stopped, and takes no new groups",
                PART_STATUS, TUTTI_ROW_DAEMON, write_draining, MERGE_MAX },
        { "tutti_sessions", "gauge", "Connections of clients", PART_STATUS, TUTTI_ROW_DAEMON, write_sessions,
                MERGE_MAX },
        { "tutti_buffers", "gauge", "Registered buffers", PART_STATUS, TUTTI_ROW_DAEMON, write_buffers,
                MERGE_MAX },
        { "tutti_mapped_bytes", "gauge", "Client memory that tuttid maps", PART_STATUS, TUTTI_ROW_DAEMON,
                write_mapped, MERGE_MAX },
        { "tutti_pending_submissions", "gauge", "Halves whose collective has not ended", PART_STATUS,
                TUTTI_ROW_DAEMON, write_pending, MERGE_MAX },
        { "tutti_collectives_total", "counter", "Collectives that have ended, by result", PART_STATUS,
                TUTTI_ROW_DAEMON, write_collectives, MERGE_SUM },
        { "tutti_refusals_total", "counter", "Halves that were refused", PART_STATUS, TUTTI_ROW_DAEMON,
                write_refused, MERGE_SUM },
        { "tutti_ejections_total", "counter", "Clients that were ejected", PART_STATUS, TUTTI_ROW_DAEMON,
                write_ejected, MERGE_SUM },
        { "tutti_lane_collectives_total", "counter", "Collectives that ran on the lane, without a packet",
                PART_STATUS, TUTTI_ROW_DAEMON, write_on_lane, MERGE_SUM },
        { "tutti_lane_assisted_total", "counter", "Collectives that ran on the lane by more than one thread",
                PART_STATUS, TUTTI_ROW_DAEMON, write_assisted, MERGE_SUM },
        { "tutti_lane_rings_total", "counter", "How often a client woke the lane's thread", PART_STATUS,
                TUTTI_ROW_DAEMON, write_rings, MERGE_SUM },
        { "tutti_lane_regrets_total", "counter",
                "How often the lane's thread gave up yielding for a while, since others use up its core",
                PART_STATUS, TUTTI_ROW_DAEMON, write_regrets, MERGE_SUM },
        { "tutti_worker_restarts_total", "counter", "How often the GPU process was started anew", PART_STATUS,
                TUTTI_ROW_DAEMON, write_restarts, MERGE_SUM },
        { "tutti_exporter_sees_all", "gauge",
                "1 when this answer is about every user; 0: about the exporter's own alone "
                "(daemon.observers)",
                PART_STATUS, TUTTI_ROW_DAEMON, write_sees_all, MERGE_MAX },
        { "tutti_fallback", "gauge", "Something is less than it could be; always 1", PART_STATUS,
                TUTTI_ROW_FALLBACK, write_fallback, MERGE_MAX },
        { "tutti_device_workers", "gauge", "Threads that execute on a device", PART_STATUS, TUTTI_ROW_DEVICE,
                write_device_workers, MERGE_MAX },
        { "tutti_device_tasks_total", "counter", "Plans that a device has executed", PART_STATUS,
                TUTTI_ROW_DEVICE, write_device_tasks, MERGE_SUM },
        { "tutti_device_busy_seconds_total", "counter", "Time in which a device's workers have executed",
                PART_STATUS, TUTTI_ROW_DEVICE, write_device_busy, MERGE_SUM },
        { "tutti_device_failing", "gauge", "1 while a device cannot be used", PART_STATUS, TUTTI_ROW_DEVICE,
                write_device_failing, MERGE_MAX },
        { "tutti_group_stalled", "gauge", "1 while a collective of the group is older than stall_warn",
                PART_STATUS, TUTTI_ROW_GROUP, write_group_stalled, MERGE_MAX },
        { "tutti_group_failed", "gauge", "1 while the group has failed and was not formed anew", PART_STATUS,
                TUTTI_ROW_GROUP, write_group_failed, MERGE_MAX },
        { "tutti_group_world_size", "gauge", "Replicas that belong to the group", PART_STATUS,
                TUTTI_ROW_GROUP, write_group_world, MERGE_SUM },
        { "tutti_group_alive_replicas", "gauge", "Replicas of the group that are there", PART_STATUS,
                TUTTI_ROW_GROUP, write_group_alive, MERGE_SUM },
        { "tutti_group_pending_collectives", "gauge",
                "Collectives of the group that have begun and not ended", PART_STATUS, TUTTI_ROW_GROUP,
                write_group_pending, MERGE_SUM },
        { "tutti_group_collectives_total", "counter",
                "Collectives of a group that have ended, by kind and result", PART_STATS, TUTTI_ROW_STATS,
                write_kind, MERGE_SUM },
        { "tutti_group_read_bytes_total", "counter", "Bytes of inputs that were read, over all replicas",
                PART_STATS, TUTTI_ROW_STATS, write_kind_bytes, MERGE_SUM },
        { "tutti_group_fallbacks_total", "counter",
                "Collectives of a group that were done otherwise than was wished, by what was taken and why",
                PART_STATUS, TUTTI_ROW_GROUP_FALLBACK, write_group_fallbacks, MERGE_SUM },
        { "tutti_replica_up", "gauge", "1 while a replica is there and not stopped", PART_GROUPS,
                TUTTI_ROW_MEMBER, write_replica_up, MERGE_MIN },
        { "tutti_replica_lost", "gauge",
                "1 while a replica that has died, disconnected or was ejected has its rank in a group",
                PART_GROUPS, TUTTI_ROW_MEMBER, write_replica_lost, MERGE_MAX },
        { "tutti_replica_last_event_age_seconds", "gauge",
                "Time since the last collective that a replica has finished", PART_GROUPS, TUTTI_ROW_MEMBER,
                write_replica_age, MERGE_MAX },
        { "tutti_replica_came_last_total", "counter", "Collectives in which a replica came last", PART_GROUPS,
                TUTTI_ROW_MEMBER, write_replica_last, MERGE_SUM },
        { "tutti_replica_joint_total", "counter", "Collectives of at least two in which a replica took part",
                PART_GROUPS, TUTTI_ROW_MEMBER, write_replica_joint, MERGE_SUM },
        { "tutti_collective_wait_seconds", "histogram", "From a collective's first half to its last",
                PART_HISTOGRAMS, TUTTI_ROW_HISTOGRAM, write_wait, MERGE_SUM },
        { "tutti_collective_run_seconds", "histogram", "From a collective's last half to its end",
                PART_HISTOGRAMS, TUTTI_ROW_HISTOGRAM, write_run, MERGE_SUM },
        { "tutti_replica_lateness_seconds", "histogram", "From a collective's first half to this replica's",
                PART_HISTOGRAMS, TUTTI_ROW_HISTOGRAM, write_lateness, MERGE_SUM },
        { "tutti_quota_used", "gauge", "What a user makes tuttid hold", PART_QUOTA, TUTTI_ROW_QUOTA,
                write_quota_used, MERGE_MAX },
        { "tutti_quota_limit", "gauge", "The most that a user may make tuttid hold", PART_QUOTA,
                TUTTI_ROW_QUOTA, write_quota_limit, MERGE_MAX },
        { "tutti_quota_refusals_total", "counter",
                "Requests that were refused since a user was at a limit, by resource", PART_QUOTA,
                TUTTI_ROW_QUOTA, write_quota_refused, MERGE_SUM },
        { "tutti_replicas_lost_total", "counter",
                "Replicas of a user that have died, disconnected or were ejected, by reason", PART_QUOTA,
                TUTTI_ROW_LOSSES, write_losses, MERGE_SUM },
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

static void write_rows(const struct metric *m, const struct tutti_answer *a, struct place *to) {
        for (uint32_t i = 0; a && i < a->n_rows; i++)
                if (a->rows[i].type == m->row)
                        m->write(m, &a->rows[i], to);
}

/* What is not a user's own is in everybody's answer, and written once. (Of fallbacks some are a user's.) */
static int is_everybodys(const struct metric *m) {
        return m->row == TUTTI_ROW_DAEMON || m->row == TUTTI_ROW_DEVICE;
}

static int write_metric(
        const struct metric *m, const struct scrape *scrape, struct samples *samples, FILE *out) {
        uint32_t n = is_everybodys(m) && scrape->n_users > 1 ? 1 : scrape->n_users;
        struct place to = { .samples = samples };
        write_head(m->name, m->type, m->help, out);
        if (m->part == PART_QUOTA)
                write_rows(m, scrape->quota, &to);
        for (uint32_t i = 0; m->part != PART_QUOTA && i < n; i++) {
                to.uid = scrape->users[i].uid;
                write_rows(m, answer_of(&scrape->users[i], m->part), &to);
        }
        return samples_write(samples, out);
}

#define UP_HELP   "1 when tuttid answers"
#define TIME_HELP "Time that the questions to tuttid took"

int metrics_write(const struct scrape *scrape, FILE *out) {
        struct samples *samples = samples_new();
        int r = samples ? 0 : -ENOMEM;
        write_head("tutti_up", "gauge", UP_HELP, out);
        fprintf(out, "tutti_up %d\n", scrape->status == TUTTI_OK);
        write_head("tutti_scrape_duration_seconds", "gauge", TIME_HELP, out);
        fprintf(out, "tutti_scrape_duration_seconds %.9g\n", scrape->seconds);
        for (size_t i = 0; r == 0 && scrape->status == TUTTI_OK && i < N_METRICS; i++)
                r = write_metric(&metrics[i], scrape, samples, out);
        samples_free(samples);
        return r;
}

void metrics_list(FILE *out) {
        fprintf(out, "tutti_up gauge %s\ntutti_scrape_duration_seconds gauge %s\n", UP_HELP, TIME_HELP);
        for (size_t i = 0; i < N_METRICS; i++)
                fprintf(out, "%s %s %s\n", metrics[i].name, metrics[i].type, metrics[i].help);
}
