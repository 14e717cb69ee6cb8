#include "stats.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/table.h"

struct member_stats {
        uint64_t membership; /* whose: a rank may be taken again */
        uint64_t n_last, n_joint;
        struct histogram lateness;
};

struct kind_stats {
        uint64_t n, n_failed, bytes, run_ns;
        struct histogram wait, run;
};

/* Owned by its group; charged by itself, since few of all that could be are used. */
struct class_stats {
        enum kind kind;
        enum op op;
        unsigned int size;
        struct kind_stats counts;
        struct charge charge;
};

struct group_stats {
        uint64_t group; /* its id */
        uint64_t n_done, n_failed, bytes;
        struct kind_stats *kinds[N_KIND]; /* from its first use on */
        struct fallbacks *fallbacks;      /* from its first one on */
        struct charge charge;             /* for all of it but the classes, whatever kinds come */
        struct class_stats *classes[STATS_MAX_CLASSES];
        uint32_t n_classes;
        UT_hash_handle hh;
        struct member_stats members[]; /* [world_size] */
};

struct stats {
        struct quotas *quotas;
        struct group_stats *by_group;
        struct stats_totals totals;
};

/* --- histograms --- */

#define BUCKETS_PER_OCTAVE 4

/* 2^63 times 2^(1/4), 2^(2/4), 2^(3/4): where the quarters of an octave begin. */
static const uint64_t quarters[] = { UINT64_C(0x9837f0518db8a970), UINT64_C(0xb504f333f9de6485),
        UINT64_C(0xd744fccad69d6af5) };

static unsigned int bucket_of(uint64_t ns) {
        if (ns == 0)
                ns = 1;
        unsigned int octave = 63 - (unsigned int)__builtin_clzll(ns), quarter = 0;
        uint64_t normal = ns << (63 - octave);
        while (quarter < ARRAY_SIZE(quarters) && normal >= quarters[quarter])
                quarter++;
        unsigned int bucket = octave * BUCKETS_PER_OCTAVE + quarter;
        return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

/* The largest value of a bucket. */
static uint64_t bucket_bound(unsigned int bucket) {
        unsigned int octave = bucket / BUCKETS_PER_OCTAVE, quarter = bucket % BUCKETS_PER_OCTAVE;
        if (quarter == BUCKETS_PER_OCTAVE - 1)
                return (UINT64_C(2) << octave) - 1;
        return (quarters[quarter] - 1) >> (63 - octave);
}

static uint64_t count_in(const struct histogram *h, unsigned int bucket) {
        return (uint64_t)h->high[bucket] << 32 | h->low[bucket];
}

void histogram_add(struct histogram *h, uint64_t ns) {
        unsigned int bucket = bucket_of(ns);
        if (++h->low[bucket] == 0)
                h->high[bucket]++;
        h->n++;
        h->sum_ns += ns;
}

uint64_t histogram_percentile(const struct histogram *h, double p) {
        uint64_t total = 0, seen = 0;
        for (unsigned int i = 0; i < HISTOGRAM_BUCKETS; i++)
                total += count_in(h, i);
        if (!total)
                return 0;
        /* Nearest rank: the smallest value that is not below a share of p. */
        double wanted = ceil(p * (double)total);
        for (unsigned int i = 0; i < HISTOGRAM_BUCKETS; i++) {
                seen += count_in(h, i);
                if (seen && (double)seen >= wanted)
                        return bucket_bound(i);
        }
        return bucket_bound(HISTOGRAM_BUCKETS - 1);
}

void histogram_octaves(const struct histogram *h, uint64_t ret[HISTOGRAM_OCTAVES]) {
        unsigned int first = 9; /* the octave that ends below HISTOGRAM_BOUNDS_NS */
        memset(ret, 0, HISTOGRAM_OCTAVES * sizeof(*ret));
        for (unsigned int i = 0; i < HISTOGRAM_BUCKETS; i++) {
                unsigned int octave = i / BUCKETS_PER_OCTAVE;
                unsigned int at = octave > first ? octave - first : 0;
                if (at < HISTOGRAM_OCTAVES)
                        ret[at] += count_in(h, i);
        }
}

/* --- the life of the counters --- */

int stats_new(struct stats **ret, struct quotas *quotas) {
        struct stats *s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;
        s->quotas = quotas;
        *ret = s;
        return 0;
}

static struct group_stats *find_group(const struct stats *s, uint64_t id) {
        struct group_stats *g;
        HASH_FIND(hh, s->by_group, &id, sizeof(id), g);
        return g;
}

static struct group_stats *make_group(struct stats *s, const struct group *group) {
        size_t n_bytes = sizeof(struct group_stats) + group->world_size * sizeof(struct member_stats);
        struct charge charge = { 0 };
        if (quota_charge(s->quotas, &charge, group->uid, QUOTA_MEMORY_BYTES,
                    n_bytes + N_KIND * sizeof(struct kind_stats) + sizeof(struct fallbacks),
                    NULL) != STATUS_OK)
                return NULL;
        CLEANUP_FREE struct group_stats *g = calloc(1, n_bytes);
        bool is_in = g != NULL;
        if (g) {
                g->group = group->id;
                TABLE_ADD(s->by_group, g, group, is_in);
        }
        if (!is_in) {
                charge_release(&charge);
                return NULL;
        }
        g->charge = charge;
        return take_pointer(g);
}

static void free_group(struct stats *s, struct group_stats *g) {
        HASH_DEL(s->by_group, g);
        for (unsigned int kind = 0; kind < N_KIND; kind++)
                free(g->kinds[kind]);
        free(g->fallbacks);
        for (uint32_t i = 0; i < g->n_classes; i++) {
                charge_release(&g->classes[i]->charge);
                free(g->classes[i]);
        }
        charge_release(&g->charge);
        free(g);
}

void stats_end_group(struct stats *s, uint64_t group_id) {
        struct group_stats *g = find_group(s, group_id);
        if (g)
                free_group(s, g);
}

void stats_free(struct stats *s) {
        struct group_stats *g = NULL, *next = NULL;
        if (!s)
                return;
        HASH_ITER (hh, s->by_group, g, next) {
                free_group(s, g);
        }
        free(s);
}

/* --- counting --- */

static uint64_t since(uint64_t now_ns, uint64_t then_ns) {
        return now_ns > then_ns ? now_ns - then_ns : 0;
}

static const struct half *first_half(const struct meeting *m) {
        int rank = rankset_next(&m->have, 0);
        return rank < 0 ? NULL : m->halves[rank];
}

static struct kind_stats *find_or_make_kind(struct group_stats *g, enum kind kind) {
        if (!g->kinds[kind])
                g->kinds[kind] = calloc(1, sizeof(*g->kinds[kind]));
        return g->kinds[kind];
}

/* What one collective adds to its kind and to its class. All halves are alike. */
struct sample {
        bool is_ok, has_times;
        uint64_t each_bytes, bytes, wait_ns, run_ns; /* bytes: read, over all replicas */
};

/* --- classes of size --- */

static const uint64_t size_bounds[STATS_SIZES] = { UINT64_C(4) << 10, UINT64_C(64) << 10, UINT64_C(1) << 20,
        UINT64_C(16) << 20, UINT64_C(256) << 20, UINT64_MAX };

static unsigned int size_of(uint64_t bytes) {
        unsigned int size = 0;
        while (bytes > size_bounds[size])
                size++;
        return size;
}

static struct class_stats *make_class(
        struct stats *s, struct group_stats *g, const struct meeting *m, const struct class_stats *like) {
        struct charge charge = { 0 };
        if (g->n_classes == STATS_MAX_CLASSES ||
                quota_charge(s->quotas, &charge, m->group->uid, QUOTA_MEMORY_BYTES, sizeof(*like), NULL) !=
                        STATUS_OK)
                return NULL;
        struct class_stats *c = malloc(sizeof(*c));
        if (!c) {
                charge_release(&charge);
                return NULL;
        }
        *c = *like;
        c->charge = charge;
        return g->classes[g->n_classes++] = c;
}

/* Those that a trainer uses again and again stand in front, since they came first. */
static struct class_stats *find_or_make_class(
        struct stats *s, struct group_stats *g, const struct meeting *m, const struct sample *sample) {
        const struct signature *signature = &first_half(m)->signature;
        unsigned int size = size_of(sample->each_bytes);
        for (uint32_t i = 0; i < g->n_classes; i++) {
                struct class_stats *c = g->classes[i];
                if (c->kind == signature->kind && c->op == signature->op && c->size == size)
                        return c;
        }
        return make_class(
                s, g, m, &(struct class_stats){ .kind = signature->kind, .op = signature->op, .size = size });
}

static uint64_t last_arrival_ns(const struct meeting *m) {
        uint64_t last = m->first_ns;
        rankset_for_each (rank, &m->have)
                if (m->halves[rank] && m->halves[rank]->arrived_ns > last)
                        last = m->halves[rank]->arrived_ns;
        return last;
}

static struct sample take_sample(const struct meeting *m, const struct half *half) {
        struct sample sample = {
                .is_ok = m->status == STATUS_OK, .has_times = m->number != 0, .each_bytes = half->n_bytes
        };
        rankset_for_each (rank, &m->have)
                sample.bytes += signature_reads(&half->signature, (unsigned int)rank) ? sample.each_bytes : 0;
        if (!sample.is_ok)
                sample.bytes = 0;
        if (!sample.has_times)
                return sample;
        uint64_t last_ns = last_arrival_ns(m);
        sample.wait_ns = since(last_ns, m->first_ns);
        sample.run_ns = since(m->done_ns, last_ns);
        return sample;
}

static void count_into(struct kind_stats *k, const struct sample *sample) {
        k->n += sample->is_ok;
        k->n_failed += !sample->is_ok;
        k->bytes += sample->bytes;
        if (!sample->has_times)
                return;
        k->run_ns += sample->run_ns;
        histogram_add(&k->wait, sample->wait_ns);
        histogram_add(&k->run, sample->run_ns);
}

static void count_kind(
        struct stats *s, struct group_stats *g, const struct meeting *m, const struct half *half) {
        const struct sample sample = take_sample(m, half);
        struct kind_stats *k = find_or_make_kind(g, half->signature.kind);
        struct class_stats *c = find_or_make_class(s, g, m, &sample);
        g->bytes += sample.bytes;
        if (k)
                count_into(k, &sample);
        if (c)
                count_into(&c->counts, &sample);
}

static void count_member(struct member_stats *stats, const struct meeting *m, const struct half *half) {
        if (stats->membership != half->membership)
                *stats = (struct member_stats){ .membership = half->membership };
        stats->n_joint++;
        stats->n_last += half->rank == m->last_rank;
        histogram_add(&stats->lateness, since(half->arrived_ns, m->first_ns));
}

static void count_members(struct group_stats *g, const struct meeting *m) {
        if (!m->number || rankset_count(&m->have) < 2)
                return;
        rankset_for_each (rank, &m->have)
                if (m->halves[rank])
                        count_member(&g->members[rank], m, m->halves[rank]);
}

void stats_add(struct stats *s, const struct meeting *m) {
        const struct half *half = first_half(m);
        bool is_ok = m->status == STATUS_OK;
        s->totals.n_collectives += is_ok;
        s->totals.n_failed += !is_ok;
        struct group_stats *g = find_group(s, m->group->id);
        if (!g)
                g = make_group(s, m->group);
        if (!g)
                return;
        g->n_done += is_ok;
        g->n_failed += !is_ok;
        if (half)
                count_kind(s, g, m, half);
        count_members(g, m);
}

bool stats_add_fallback(struct stats *s, const struct group *group, const struct fallback_run *run) {
        struct group_stats *g = find_group(s, group->id);
        if (!g)
                g = make_group(s, group);
        if (!g)
                return false;
        if (!g->fallbacks)
                g->fallbacks = calloc(1, sizeof(*g->fallbacks));
        return g->fallbacks && fallbacks_add(g->fallbacks, run);
}

void stats_count_refusal(struct stats *s) {
        s->totals.n_refused++;
}

void stats_count_ejection(struct stats *s) {
        s->totals.n_ejected++;
}

/* --- pulling --- */

struct stats_totals stats_totals(const struct stats *s) {
        return s->totals;
}

void stats_fill_group(const struct stats *s, const struct group *g, struct row_group *row) {
        const struct group_stats *stats = find_group(s, g->id);
        row->n_done = stats ? stats->n_done : 0;
        row->n_failed = stats ? stats->n_failed : 0;
        row->bytes = stats ? stats->bytes : 0;
}

void stats_fill_member(const struct stats *s, const struct member *m, struct row_member *row) {
        static const struct member_stats nothing;
        const struct group_stats *g = find_group(s, m->group->id);
        const struct member_stats *stats = g ? &g->members[m->rank] : &nothing;
        if (stats->membership != m->id)
                stats = &nothing;
        row->n_last = stats->n_last;
        row->n_joint = stats->n_joint;
        row->lateness_p50_ns = histogram_percentile(&stats->lateness, 0.50);
        row->lateness_p99_ns = histogram_percentile(&stats->lateness, 0.99);
}

bool stats_fill_kind(const struct stats *s, const struct group *g, enum kind kind, struct row_stats *row) {
        const struct group_stats *stats = find_group(s, g->id);
        const struct kind_stats *k = stats ? stats->kinds[kind] : NULL;
        if (!k)
                return false;
        *row = (struct row_stats){ .job = g->job,
                .group = g->name,
                .kind = kind,
                .n = k->n,
                .n_failed = k->n_failed,
                .bytes = k->bytes,
                .run_ns = k->run_ns,
                .wait_p50_ns = histogram_percentile(&k->wait, 0.50),
                .wait_p99_ns = histogram_percentile(&k->wait, 0.99),
                .run_p50_ns = histogram_percentile(&k->run, 0.50),
                .run_p99_ns = histogram_percentile(&k->run, 0.99),
                .wait_p999_ns = histogram_percentile(&k->wait, 0.999),
                .run_p999_ns = histogram_percentile(&k->run, 0.999) };
        return true;
}

bool stats_next_class(const struct stats *s, const struct group *g, uint32_t *cursor, struct row_class *row) {
        const struct group_stats *stats = find_group(s, g->id);
        if (!stats || *cursor >= stats->n_classes)
                return false;
        const struct class_stats *c = stats->classes[(*cursor)++];
        const struct kind_stats *k = &c->counts;
        *row = (struct row_class){ .job = g->job,
                .group = g->name,
                .kind = c->kind,
                .op = c->op,
                .from_bytes = c->size ? size_bounds[c->size - 1] + 1 : 0,
                .to_bytes = size_bounds[c->size],
                .n = k->n,
                .n_failed = k->n_failed,
                .bytes = k->bytes,
                .run_ns = k->run_ns,
                .wait_p50_ns = histogram_percentile(&k->wait, 0.50),
                .wait_p99_ns = histogram_percentile(&k->wait, 0.99),
                .wait_p999_ns = histogram_percentile(&k->wait, 0.999),
                .run_p50_ns = histogram_percentile(&k->run, 0.50),
                .run_p99_ns = histogram_percentile(&k->run, 0.99),
                .run_p999_ns = histogram_percentile(&k->run, 0.999) };
        return true;
}

const struct histogram *stats_histogram_of_kind(
        const struct stats *s, const struct group *g, enum kind kind, enum measure measure) {
        const struct group_stats *stats = find_group(s, g->id);
        const struct kind_stats *k = stats ? stats->kinds[kind] : NULL;
        if (!k)
                return NULL;
        return measure == MEASURE_WAIT ? &k->wait : &k->run;
}

const struct fallbacks *stats_fallbacks(const struct stats *s, const struct group *g) {
        const struct group_stats *stats = find_group(s, g->id);
        return stats ? stats->fallbacks : NULL;
}

const struct histogram *stats_histogram_of_member(const struct stats *s, const struct member *m) {
        const struct group_stats *g = find_group(s, m->group->id);
        const struct member_stats *stats = g ? &g->members[m->rank] : NULL;
        return stats && stats->membership == m->id && stats->n_joint > 0 ? &stats->lateness : NULL;
}
