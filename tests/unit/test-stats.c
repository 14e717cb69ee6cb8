#include "unit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "failing.h"
#include "made.h"
#include "stats.h"

#define US UINT64_C(1000)
#define MS (1000 * US)
#define S  (1000 * MS)

/* --- histograms --- */

static int compare_u64(const void *a, const void *b) {
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
        return (x > y) - (x < y);
}

/* At least as much as the exact one, at most 19 % more. */
static void check_percentile(const struct histogram *h, const uint64_t *sorted, size_t n, double p) {
        size_t rank = (size_t)ceil(p * (double)n);
        uint64_t exact = sorted[rank ? rank - 1 : 0], got = histogram_percentile(h, p);
        ck_assert_uint_ge(got, exact);
        ck_assert_msg((double)got <= (double)exact * 1.19, "p%g: %llu for %llu", 100 * p,
                (unsigned long long)got, (unsigned long long)exact);
}

START_TEST(an_empty_histogram_says_0) {
        struct histogram h = { 0 };
        ck_assert_uint_eq(histogram_percentile(&h, 0.5), 0);
}
END_TEST

START_TEST(golden_bounds) {
        static const struct {
                uint64_t ns, bound;
        } golden[] = { { 0, 1 }, { 1, 1 }, { 2, 2 }, { 3, 3 }, { 4, 4 }, { 5, 5 }, { 6, 6 }, { 7, 7 },
                { 8, 9 }, { 10, 11 }, { 1000, 1023 }, { 1024, 1217 }, { 1218, 1448 }, { 1449, 1722 },
                { 1723, 2047 }, { 5 * MS, 5931641 }, { 3600 * S, 3698301545306 },
                { UINT64_MAX, (UINT64_C(1) << 42) - 1 } };
        for (size_t i = 0; i < ARRAY_SIZE(golden); i++) {
                struct histogram h = { 0 };
                histogram_add(&h, golden[i].ns);
                ck_assert_uint_eq(h.n, 1);
                ck_assert_uint_eq(histogram_percentile(&h, 0.5), golden[i].bound);
        }
}
END_TEST

START_TEST(every_value_to_an_hour_is_at_most_19_percent_off) {
        for (uint64_t ns = 1; ns < 3600 * S; ns += 1 + ns / 97) {
                struct histogram h = { 0 };
                histogram_add(&h, ns);
                check_percentile(&h, &ns, 1, 0.5);
        }
}
END_TEST

START_TEST(percentiles_follow_the_exact_ones) {
        static uint64_t values[5000];
        for (unsigned int seed = 1; seed <= 30; seed++) {
                struct histogram h = { 0 };
                size_t n = 1 + (size_t)(seed * seed * 5);
                srandom(seed);
                for (size_t i = 0; i < n; i++) {
                        values[i] = 1 + (uint64_t)random() % (UINT64_C(1) << (random() % 32));
                        histogram_add(&h, values[i]);
                }
                qsort(values, n, sizeof(*values), compare_u64);
                static const double ps[] = { 0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1 };
                for (size_t i = 0; i < ARRAY_SIZE(ps); i++)
                        check_percentile(&h, values, n, ps[i]);
                ck_assert_uint_eq(h.n, n);
        }
}
END_TEST

/* Twelve hours of 100,000 a second: no bucket is less than it was, and their sum is what was counted. */
START_TEST(a_bucket_of_four_billions_goes_on) {
        struct histogram h = { 0 };
        uint64_t octaves[HISTOGRAM_OCTAVES];
        histogram_add(&h, 100);
        unsigned int full = 0;
        while (!h.low[full])
                full++;
        h.low[full] = UINT32_MAX;
        h.n = UINT32_MAX;
        for (int i = 0; i < 1000; i++)
                histogram_add(&h, 100000);
        histogram_add(&h, 100);
        ck_assert_uint_eq(h.n, UINT32_MAX + UINT64_C(1001));
        ck_assert_uint_eq(h.low[full], 0);
        ck_assert_uint_eq(h.high[full], 1);
        histogram_octaves(&h, octaves);
        ck_assert_uint_eq(octaves[0], UINT32_MAX + UINT64_C(1));
        ck_assert_uint_eq(octaves[7], 1000); /* below 131,072 ns */
        ck_assert_uint_ge(histogram_percentile(&h, 0.5), 100);
        ck_assert_uint_le(histogram_percentile(&h, 0.5), 119);
}
END_TEST

START_TEST(octaves_hold_what_the_buckets_hold) {
        struct histogram h = { 0 };
        uint64_t counts[HISTOGRAM_OCTAVES], n = 0;
        static const struct {
                uint64_t ns;
                unsigned int octave;
        } samples[] = { { 0, 0 }, { 1, 0 }, { 1023, 0 }, { 1024, 1 }, { 2047, 1 }, { 2048, 2 },
                { 5 * MS, 13 }, { (UINT64_C(1) << 37) - 1, 27 } };
        for (size_t i = 0; i < ARRAY_SIZE(samples); i++) {
                histogram_add(&h, samples[i].ns);
                histogram_octaves(&h, counts);
                ck_assert_msg(counts[samples[i].octave] > 0, "%llu ns", (unsigned long long)samples[i].ns);
                ck_assert_uint_lt(samples[i].ns, (uint64_t)HISTOGRAM_BOUNDS_NS << samples[i].octave);
                n = 0;
                for (size_t k = 0; k < HISTOGRAM_OCTAVES; k++)
                        n += counts[k];
                ck_assert_uint_eq(n, i + 1);
        }
        histogram_add(&h, 3600 * S); /* beyond the last: in n and sum alone */
        histogram_octaves(&h, counts);
        ck_assert_uint_eq(counts[HISTOGRAM_OCTAVES - 1], 1);
        ck_assert_uint_eq(h.n, n + 1);
}
END_TEST

/* --- counters --- */

static struct quotas *quotas;

static struct stats *open_stats(void) {
        const struct quota_limits limits = { .memory_bytes = 1 << 20 };
        struct stats *s;
        ck_assert_int_eq(quotas_new(&quotas, &limits), 0);
        ck_assert_int_eq(stats_new(&s, quotas), 0);
        return s;
}

/* With everything that it had charged. */
static void close_stats(struct stats *s) {
        stats_free(s);
        quotas_free(quotas);
}

/* R0 at `at_ns`, the others `late_ns` after it in the order of their ranks; done 100 us after the last. */
static void add_one(struct stats *s, struct made *made, uint64_t at_ns, uint64_t late_ns) {
        uint64_t last_ns = at_ns;
        made_begin(made, key_sequence(0), 250);
        for (uint32_t rank = 0; rank < made->group.world_size; rank++)
                made_arrive(made, rank, last_ns = at_ns + rank * late_ns);
        stats_add(s, made_done(made, last_ns, last_ns + 100 * US));
}

START_TEST(a_collective_is_counted_in_every_place) {
        struct stats *s = open_stats();
        struct made *made = made_new(5, 1000, "train", 3);
        struct row_group group = { 0 };
        struct row_stats kind = { 0 };
        struct row_member member = { 0 };
        for (int i = 0; i < 10; i++)
                add_one(s, made, 1 * S, 2 * MS);
        ck_assert_uint_eq(stats_totals(s).n_collectives, 10);
        ck_assert_uint_eq(stats_totals(s).n_failed, 0);
        stats_fill_group(s, &made->group, &group);
        ck_assert_uint_eq(group.n_done, 10);
        ck_assert_uint_eq(group.n_failed, 0);
        ck_assert_uint_eq(group.bytes, 30000);
        ck_assert(stats_fill_kind(s, &made->group, KIND_REDUCE, &kind));
        ck_assert_str_eq(kind.job, "dp");
        ck_assert_str_eq(kind.group, "train");
        ck_assert_int_eq(kind.kind, KIND_REDUCE);
        ck_assert_uint_eq(kind.n, 10);
        ck_assert_uint_eq(kind.n_failed, 0);
        ck_assert_uint_eq(kind.bytes, 30000);
        ck_assert_uint_eq(kind.run_ns, 1000 * US);
        ck_assert_uint_ge(kind.wait_p50_ns, 4 * MS);
        ck_assert_uint_le(kind.wait_p50_ns, 4760 * US);
        ck_assert_uint_eq(kind.wait_p99_ns, kind.wait_p50_ns);
        ck_assert_uint_ge(kind.run_p99_ns, 100 * US);
        ck_assert_uint_le(kind.run_p99_ns, 119 * US);
        ck_assert(!stats_fill_kind(s, &made->group, KIND_BROADCAST, &kind));
        stats_fill_member(s, &made->group.members[2], &member);
        ck_assert_uint_eq(member.n_joint, 10);
        ck_assert_uint_eq(member.n_last, 10);
        ck_assert_uint_ge(member.lateness_p50_ns, 4 * MS);
        stats_fill_member(s, &made->group.members[0], &member);
        ck_assert_uint_eq(member.n_joint, 10);
        ck_assert_uint_eq(member.n_last, 0);
        ck_assert_uint_eq(member.lateness_p99_ns, 1);
        close_stats(s);
        made_free(made);
}
END_TEST

START_TEST(a_broadcast_reads_the_root_alone) {
        struct stats *s = open_stats();
        struct made *made = made_new(5, 1000, "train", 3);
        struct row_stats kind;
        made_begin(made, key_sequence(0), 250);
        for (uint32_t rank = 0; rank < 3; rank++) {
                made->halves[rank].signature =
                        (struct signature){ .kind = KIND_BROADCAST, .root = 1, .n_entries = 1 };
                made_arrive(made, rank, S);
        }
        stats_add(s, made_done(made, S, S));
        ck_assert(stats_fill_kind(s, &made->group, KIND_BROADCAST, &kind));
        ck_assert_uint_eq(kind.bytes, 1000);
        ck_assert(!stats_fill_kind(s, &made->group, KIND_REDUCE, &kind));
        close_stats(s);
        made_free(made);
}
END_TEST

START_TEST(a_failure_is_counted_and_blames_nobody_for_being_late) {
        struct stats *s = open_stats();
        struct made *made = made_new(5, 1000, "train", 3);
        struct row_group group;
        struct row_stats kind;
        struct row_member member;
        made_begin(made, key_sequence(0), 250);
        made_arrive(made, 0, 1 * S);
        made_arrive(made, 1, 2 * S);
        stats_add(s, made_failed(made, STATUS_TIMEOUT, 0, 3 * S));
        made_begin(made, key_sequence(1), 250); /* nobody has reached it */
        stats_add(s, made_failed(made, STATUS_PEER_REFUSED, 2, 3 * S));
        ck_assert_uint_eq(stats_totals(s).n_collectives, 0);
        ck_assert_uint_eq(stats_totals(s).n_failed, 2);
        stats_fill_group(s, &made->group, &group);
        ck_assert_uint_eq(group.n_done, 0);
        ck_assert_uint_eq(group.n_failed, 2);
        ck_assert_uint_eq(group.bytes, 0);
        ck_assert(stats_fill_kind(s, &made->group, KIND_REDUCE, &kind));
        ck_assert_uint_eq(kind.n, 0);
        ck_assert_uint_eq(kind.n_failed, 1);
        ck_assert_uint_eq(kind.wait_p50_ns, 0);
        stats_fill_member(s, &made->group.members[1], &member);
        ck_assert_uint_eq(member.n_last, 0);
        ck_assert_uint_eq(member.n_joint, 0);
        ck_assert_uint_eq(member.lateness_p99_ns, 0);
        close_stats(s);
        made_free(made);
}
END_TEST

START_TEST(a_sealed_one_that_failed_counts_its_time_and_no_bytes) {
        struct stats *s = open_stats();
        struct made *made = made_new(5, 1000, "train", 2);
        struct row_stats kind;
        struct row_member member;
        made_begin(made, key_sequence(0), 250);
        made_arrive(made, 1, 1 * S);
        made_arrive(made, 0, 2 * S);
        made_done(made, 2 * S, 3 * S);
        made->meeting.status = STATUS_REPLICA_LOST;
        stats_add(s, &made->meeting);
        ck_assert(stats_fill_kind(s, &made->group, KIND_REDUCE, &kind));
        ck_assert_uint_eq(kind.n_failed, 1);
        ck_assert_uint_eq(kind.bytes, 0);
        ck_assert_uint_eq(kind.run_ns, S);
        stats_fill_member(s, &made->group.members[0], &member);
        ck_assert_uint_eq(member.n_last, 1);
        close_stats(s);
        made_free(made);
}
END_TEST

START_TEST(one_half_alone_is_never_last) {
        struct stats *s = open_stats();
        struct made *alone = made_new(5, 1000, "alone", 1), *shrunk = made_new(6, 1000, "shrunk", 3);
        struct row_member member;
        add_one(s, alone, S, 0);
        made_begin(shrunk, key_sequence(0), 1);
        made_arrive(shrunk, 2, S);
        stats_add(s, made_done(shrunk, S, S));
        stats_fill_member(s, &alone->group.members[0], &member);
        ck_assert_uint_eq(member.n_last, 0);
        ck_assert_uint_eq(member.n_joint, 0);
        stats_fill_member(s, &shrunk->group.members[2], &member);
        ck_assert_uint_eq(member.n_last, 0);
        ck_assert_uint_eq(member.n_joint, 0);
        close_stats(s);
        made_free(alone);
        made_free(shrunk);
}
END_TEST

START_TEST(C4_a_slow_rank_is_seen) {
        struct stats *s = open_stats();
        struct made *made = made_new(5, 1000, "train", 4);
        struct row_member member;
        srandom(4);
        for (uint64_t i = 0; i < 500; i++) {
                uint64_t arrivals[4], at_ns = i * 20 * MS;
                bool is_here[4] = { false };
                for (int rank = 0; rank < 4; rank++)
                        arrivals[rank] = at_ns + (uint64_t)random() % (400 * US) + (rank == 2 ? 5 * MS : 0);
                if (i % 50 == 0) /* somebody else has a bad moment */
                        arrivals[1] += 9 * MS;
                made_begin(made, key_sequence(i), 100);
                for (int n = 0; n < 4; n++) {
                        int next = -1;
                        for (int rank = 0; rank < 4; rank++)
                                if (!is_here[rank] && (next < 0 || arrivals[rank] < arrivals[next]))
                                        next = rank;
                        is_here[next] = true;
                        made_arrive(made, (uint32_t)next, arrivals[next]);
                }
                stats_add(s, made_done(made, at_ns + 6 * MS, at_ns + 15 * MS));
        }
        for (uint32_t rank = 0; rank < 4; rank++) {
                stats_fill_member(s, &made->group.members[rank], &member);
                ck_assert_uint_eq(member.n_joint, 500);
                if (rank == 2) {
                        ck_assert_uint_ge(member.n_last, 475);
                        ck_assert_uint_ge(member.lateness_p50_ns, 4 * MS);
                        ck_assert_uint_le(member.lateness_p50_ns, 7 * MS);
                } else {
                        ck_assert_uint_le(member.n_last, 10);
                        ck_assert_uint_lt(member.lateness_p50_ns, 1 * MS);
                }
        }
        stats_fill_member(s, &made->group.members[1], &member);
        ck_assert_uint_eq(member.n_last, 10);
        ck_assert_uint_ge(member.lateness_p99_ns, 8 * MS);
        close_stats(s);
        made_free(made);
}
END_TEST

START_TEST(a_rank_taken_anew_begins_anew) {
        struct stats *s = open_stats();
        struct made *made = made_new(5, 1000, "train", 2);
        struct row_member member;
        add_one(s, made, S, MS);
        made->group.members[1].id = 777;
        stats_fill_member(s, &made->group.members[1], &member);
        ck_assert_uint_eq(member.n_joint, 0);
        add_one(s, made, S, MS);
        stats_fill_member(s, &made->group.members[1], &member);
        ck_assert_uint_eq(member.n_joint, 1);
        stats_fill_member(s, &made->group.members[0], &member);
        ck_assert_uint_eq(member.n_joint, 2);
        close_stats(s);
        made_free(made);
}
END_TEST

START_TEST(groups_are_apart_and_end) {
        struct stats *s = open_stats();
        struct made *a = made_new(5, 1000, "a", 2), *b = made_new(6, 1000, "a", 2);
        struct row_group group = { 0 };
        struct row_stats kind;
        add_one(s, a, S, MS);
        add_one(s, b, S, MS);
        add_one(s, b, S, MS);
        stats_fill_group(s, &a->group, &group);
        ck_assert_uint_eq(group.n_done, 1);
        stats_end_group(s, 6);
        stats_end_group(s, 6);
        stats_fill_group(s, &b->group, &group);
        ck_assert_uint_eq(group.n_done, 0);
        ck_assert(!stats_fill_kind(s, &b->group, KIND_REDUCE, &kind));
        stats_fill_group(s, &a->group, &group);
        ck_assert_uint_eq(group.n_done, 1);
        ck_assert_uint_eq(stats_totals(s).n_collectives, 3);
        close_stats(s);
        made_free(a);
        made_free(b);
}
END_TEST

START_TEST(refusals_and_ejections_are_counted) {
        struct stats *s = open_stats();
        stats_count_refusal(s);
        stats_count_refusal(s);
        stats_count_ejection(s);
        ck_assert_uint_eq(stats_totals(s).n_refused, 2);
        ck_assert_uint_eq(stats_totals(s).n_ejected, 1);
        close_stats(s);
}
END_TEST

START_TEST(after_warm_up_counting_allocates_nothing) {
        struct stats *s = open_stats();
        struct made *made = made_new(5, 1000, "train", 8);
        add_one(s, made, S, MS);
        failing_at(1);
        for (int i = 0; i < 1000; i++)
                add_one(s, made, S, MS);
        failing_at(0);
        ck_assert(!failing_has_failed());
        close_stats(s);
        made_free(made);
}
END_TEST

static void add_sized(struct stats *s, struct made *made, enum op op, uint64_t n_floats) {
        made_begin(made, key_sequence(0), n_floats);
        for (uint32_t rank = 0; rank < made->group.world_size; rank++) {
                made->halves[rank].signature.op = op;
                made_arrive(made, rank, S);
        }
        stats_add(s, made_done(made, S, S + 100 * US));
}

static uint32_t count_classes(struct stats *s, const struct made *made, uint64_t to_bytes, uint64_t *ret_n) {
        struct row_class row;
        uint32_t cursor = 0;
        *ret_n = 0;
        while (stats_next_class(s, &made->group, &cursor, &row))
                *ret_n += row.to_bytes == to_bytes ? row.n : 0;
        return cursor;
}

/* Every op and size by itself, those at a bound in the lower one. */
START_TEST(ops_and_sizes_are_apart) {
        static const struct {
                uint64_t floats, to;
                uint32_t n_classes;
        } cases[] = { { 0, 4096, 1 }, { 1024, 4096, 1 }, { 1025, 65536, 2 }, { 16384, 65536, 2 },
                { 16385, 1 << 20, 3 }, { 1 << 18, 1 << 20, 3 }, { 1 << 22, 16 << 20, 4 },
                { 1 << 26, 256 << 20, 5 }, { (1 << 26) + 1, UINT64_MAX, 6 } };
        struct stats *s = open_stats();
        struct made *made = made_new(5, 1000, "train", 2);
        uint64_t n, before;
        for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
                count_classes(s, made, cases[i].to, &before);
                add_sized(s, made, OP_SUM, cases[i].floats);
                ck_assert_uint_eq(count_classes(s, made, cases[i].to, &n), cases[i].n_classes);
                ck_assert_uint_eq(n, before + 1);
        }
        close_stats(s);
        made_free(made);
}
END_TEST

/* What has no class of its own counts in its kind. */
START_TEST(classes_are_bounded_P18) {
        static const uint64_t floats[] = { 1, 2000, 20000, 1 << 19, 1 << 23 };
        struct stats *s = open_stats();
        struct made *made = made_new(5, 1000, "train", 2);
        struct row_stats kind = { 0 };
        uint64_t n, n_added = 0;
        for (int op = OP_SUM; op < N_OP; op++)
                for (unsigned int i = 0; i < ARRAY_SIZE(floats); i++, n_added++)
                        add_sized(s, made, (enum op)op, floats[i]);
        ck_assert_uint_gt(n_added, STATS_MAX_CLASSES);
        ck_assert_uint_eq(count_classes(s, made, 0, &n), STATS_MAX_CLASSES);
        ck_assert(stats_fill_kind(s, &made->group, KIND_REDUCE, &kind));
        ck_assert_uint_eq(kind.n, n_added);
        close_stats(s);
        made_free(made);
}
END_TEST

static struct fallback_run a_fallback(const struct made *made) {
        return (struct fallback_run){ .why = "no",
                .algorithm = "one_device",
                .kind = KIND_REDUCE,
                .key = &made->meeting.key,
                .done_ns = S };
}

START_TEST(P15_what_was_not_done_as_was_wished_is_kept_by_group_and_goes_with_it) {
        struct stats *s = open_stats();
        struct made *one = made_new(5, 1000, "train", 2), *two = made_new(6, 1000, "eval", 2);
        struct fallback_run run = a_fallback(one);
        add_one(s, two, S, MS);
        ck_assert_ptr_null(stats_fallbacks(s, &one->group));
        ck_assert(stats_add_fallback(s, &one->group, &run));
        ck_assert(!stats_add_fallback(s, &one->group, &run));
        ck_assert_uint_eq(stats_fallbacks(s, &one->group)->n, 1);
        ck_assert_uint_eq(stats_fallbacks(s, &one->group)->all[0].n, 2);
        ck_assert_ptr_null(stats_fallbacks(s, &two->group));
        stats_end_group(s, 5);
        ck_assert_ptr_null(stats_fallbacks(s, &one->group));
        ck_assert(stats_add_fallback(s, &one->group, &run)); /* another life of that number */
        close_stats(s);
        made_free(one);
        made_free(two);
}
END_TEST

START_TEST(short_memory_loses_one_sample) {
        struct stats *s;
        failing_at(1);
        ck_assert_int_eq(stats_new(&s, NULL), -ENOMEM);
        failing_at(0);
        unsigned int n = 1;
        for (bool met = true; met; n++) {
                struct made *made = made_new(5, 1000, "train", 2);
                struct row_stats kind = { 0 };
                s = open_stats();
                failing_at(n);
                add_one(s, made, S, MS);
                failing_at(0);
                met = failing_has_failed();
                add_one(s, made, S, MS);
                ck_assert_uint_eq(stats_totals(s).n_collectives, 2);
                ck_assert(stats_fill_kind(s, &made->group, KIND_REDUCE, &kind));
                uint32_t cursor = 0;
                struct row_class class = { 0 };
                ck_assert(stats_next_class(s, &made->group, &cursor, &class));
                ck_assert_uint_ge(kind.n, 1);
                ck_assert_uint_ge(class.n, 1);
                ck_assert_int_eq(kind.n == 2 && class.n == 2, !met);
                close_stats(s);
                made_free(made);
        }
        ck_assert_uint_ge(n, 6); /* the user, the group, its table, the kind, the class */
        stats_free(NULL);
}
END_TEST

UNIT_MAIN("stats", 10, an_empty_histogram_says_0, golden_bounds,
        every_value_to_an_hour_is_at_most_19_percent_off, percentiles_follow_the_exact_ones,
        a_bucket_of_four_billions_goes_on, octaves_hold_what_the_buckets_hold,
        a_collective_is_counted_in_every_place, a_broadcast_reads_the_root_alone,
        a_failure_is_counted_and_blames_nobody_for_being_late,
        a_sealed_one_that_failed_counts_its_time_and_no_bytes, one_half_alone_is_never_last,
        C4_a_slow_rank_is_seen, a_rank_taken_anew_begins_anew, groups_are_apart_and_end,
        refusals_and_ejections_are_counted, after_warm_up_counting_allocates_nothing, ops_and_sizes_are_apart,
        classes_are_bounded_P18, P15_what_was_not_done_as_was_wished_is_kept_by_group_and_goes_with_it,
        short_memory_loses_one_sample)
