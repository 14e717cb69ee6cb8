/* Counters and histograms, pulled on demand.
 *
 * A histogram has logarithmic buckets (four to an octave, 1 ns to 2^42 ns, which is 73 min) in fixed memory;
 * a percentile is a bucket's upper bound, at most 19 % (2^(1/4)) off. Loop thread; times are arguments.
 *
 * A group has them by kind, and by kind, op and size, of which it has STATS_MAX_CLASSES: those that come
 * first. */
#pragma once

#include <stdint.h>
#include "base/check.h"
#include "fallbacks.h"
#include "rendezvous.h"
#include "wire/message.h"

#define HISTOGRAM_BUCKETS 168

/* Zero-initialised: empty. */
struct histogram {
        uint64_t n, sum_ns; /* samples ever */
        /* 48 bits each, which is enough for ever. They only grow: who scrapes them takes differences. */
        uint32_t low[HISTOGRAM_BUCKETS];
        uint16_t high[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *h, uint64_t ns);
/* p in 0..1; 0 when empty. */
uint64_t histogram_percentile(const struct histogram *h, double p);

/* The same in octaves, as they travel: ret[i] counts what is below HISTOGRAM_BOUNDS_NS << i and in none
 * before. */
#define HISTOGRAM_BOUNDS_NS 1024 /* about 1 us, the least that is worth telling apart */
#define HISTOGRAM_OCTAVES   28   /* up to 137 s */
void histogram_octaves(const struct histogram *h, uint64_t ret[HISTOGRAM_OCTAVES]);

/* By the input bytes that each replica brings: up to 4 KiB, 64 KiB, 1 MiB, 16 MiB, 256 MiB, more. */
#define STATS_SIZES       6
#define STATS_MAX_CLASSES 32 /* of a group */

struct stats;

/* Over everything, since the start. */
struct stats_totals {
        uint64_t n_collectives, n_failed, n_refused, n_ejected;
};

/* A group's counters are charged to its user (QUOTA_MEMORY_BYTES); at the limit it has none. */
int stats_new(struct stats **ret, struct quotas *quotas) MUST_USE;
void stats_free(struct stats *s);

/* An ENDED meeting, before its release: counts by kind and status; of one that was sealed also the bytes,
 * waiting (first to last arrival) and running (last arrival to the end), and, when it had at least two
 * halves, for each member its lateness (its arrival after the first) and who came last: only then is it known
 * who kept whom waiting. Finds or makes the group's counters; loses the sample when memory is short. */
void stats_add(struct stats *s, const struct meeting *m);
/* What has run otherwise than was wished for. Whether the group has had nothing of the kind before. Where the
 * group has no counters it has none of these. */
bool stats_add_fallback(struct stats *s, const struct group *group, const struct fallback_run *run);
/* The group is over, behind its last stats_add. */
void stats_end_group(struct stats *s, uint64_t group_id);
void stats_count_refusal(struct stats *s);
void stats_count_ejection(struct stats *s);

struct stats_totals stats_totals(const struct stats *s);

/* Fills n_done, n_failed, bytes (read, summed over replicas). */
void stats_fill_group(const struct stats *s, const struct group *g, struct row_group *row);
/* Fills n_last, n_joint, lateness_p50_ns, lateness_p99_ns. */
void stats_fill_member(const struct stats *s, const struct member *m, struct row_member *row);
/* One row for each kind that was used: `kind` from KIND_REDUCE on; false when this kind was not used. `n`
 * counts those that ended with OK. */
bool stats_fill_kind(const struct stats *s, const struct group *g, enum kind kind, struct row_stats *row);
/* The next class that was used, with its row; *cursor begins with 0. false: no more. */
bool stats_next_class(const struct stats *s, const struct group *g, uint32_t *cursor, struct row_class *row);
/* What a group has measured: WAIT and RUN of a kind; NULL: this kind was not used. */
const struct histogram *stats_histogram_of_kind(
        const struct stats *s, const struct group *g, enum kind kind, enum measure measure);
/* NULL: all was done as was wished. */
const struct fallbacks *stats_fallbacks(const struct stats *s, const struct group *g);
/* LATENESS of a member; NULL: it took part in nothing yet. */
const struct histogram *stats_histogram_of_member(const struct stats *s, const struct member *m);
