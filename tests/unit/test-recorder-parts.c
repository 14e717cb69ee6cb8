/* The two halves of the recorder that know nothing of groups: one record as bytes, and the ring. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "made.h"
#include "recorder-record.h"
#include "recorder-ring.h"

#define US UINT64_C(1000)
#define MS (1000 * US)

/* --- one record --- */

static uint64_t arrivals[MAX_WORLD];

/* Written at its end, read at `now_ns`. */
static struct row_record there_and_back(const struct meeting *m, uint64_t now_ns) {
        uint8_t bytes[MAX_RECORD_BYTES];
        struct row_record row;
        record_write(m, bytes);
        record_read(bytes, now_ns, arrivals, &row);
        return row;
}

START_TEST(a_timeout_blames_who_is_missing) {
        struct made *made = made_new(7, 1000, "train", 4);
        made_begin(made, key_sequence(5), 1000);
        made_arrive(made, 0, 50 * MS);
        made_arrive(made, 1, 52 * MS);
        struct row_record row = there_and_back(made_failed(made, STATUS_TIMEOUT, 0, 90 * MS), 100 * MS);
        ck_assert_int_eq(row.status, STATUS_TIMEOUT);
        ck_assert_uint_eq(row.collective, 0);
        ck_assert_uint_eq(row.key.n_bytes, 0);
        ck_assert_uint_eq(row.key.sequence, 5);
        ck_assert_uint_eq(row.age_ns, 50 * MS);
        ck_assert_uint_eq(row.sealed_ns, 0);
        ck_assert_uint_eq(row.done_ns, 40 * MS);
        ck_assert(row.has_guilty);
        ck_assert_uint_eq(row.guilty_rank, 2);
        ck_assert_uint_eq(row.n_arrivals, 4);
        ck_assert_uint_eq(row.arrival_ns[1], 2 * MS);
        ck_assert_uint_eq(row.arrival_ns[2], UINT64_MAX);
        ck_assert_uint_eq(row.arrival_ns[3], UINT64_MAX);
        struct rankset have = rankset_first(2);
        ck_assert(rankset_is_equal(&row.have, &have));
        made_free(made);
}
END_TEST

static int guilty_of(enum status status, int32_t rank) {
        struct made *made = made_new(7, 1000, "train", 4);
        made_begin(made, key_sequence(0), 1);
        made_arrive(made, 1, 1 * MS);
        struct row_record row = there_and_back(made_failed(made, status, rank, 2 * MS), 3 * MS);
        ck_assert_int_eq(row.status, status);
        made_free(made);
        return row.has_guilty ? (int)row.guilty_rank : -1;
}

START_TEST(other_ends_blame_whom_the_error_names) {
        ck_assert_int_eq(guilty_of(STATUS_ABORTED, 3), 3);
        ck_assert_int_eq(guilty_of(STATUS_REPLICA_LOST, 0), 0);
        ck_assert_int_eq(guilty_of(STATUS_MISMATCH, -1), -1);
}
END_TEST

START_TEST(a_meeting_that_nobody_reached_has_a_record) {
        struct made *made = made_new(7, 1000, "train", 2);
        made_begin(made, key_sequence(0), 1);
        made_failed(made, STATUS_PEER_REFUSED, 1, 2 * MS);
        made->meeting.error = NULL; /* memory was short */
        struct row_record row = there_and_back(&made->meeting, 3 * MS);
        ck_assert_int_eq(row.status, STATUS_PEER_REFUSED);
        ck_assert_int_eq(row.kind, KIND_UNSPECIFIED);
        ck_assert_uint_eq(row.bytes, 0);
        ck_assert(!row.has_guilty);
        ck_assert(rankset_is_empty(&row.have));
        made_free(made);
}
END_TEST

START_TEST(sealed_at_once_is_not_never_sealed) {
        struct made *made = made_new(7, 1000, "train", 1);
        made_begin(made, key_sequence(0), 1);
        made_arrive(made, 0, MS);
        struct row_record row = there_and_back(made_done(made, MS, MS), MS);
        ck_assert_uint_eq(row.sealed_ns, 1);
        ck_assert_uint_eq(row.done_ns, 0);
        made_free(made);
}
END_TEST

START_TEST(the_largest_record_fits) {
        struct made *made = made_new(UINT64_MAX, 1000, "train", MAX_WORLD);
        uint8_t bytes[MAX_RECORD_BYTES];
        struct row_record row;
        char name[MAX_KEY_BYTES];
        struct key key;
        memset(name, 'k', sizeof(name));
        ck_assert(key_name(&key, name, sizeof(name)));
        made->group.epoch = UINT64_MAX;
        made->group.next_number = UINT64_MAX - 1;
        made_begin(made, key, UINT64_C(1) << 60);
        made_arrive(made, 0, 0);
        for (uint32_t rank = 1; rank < MAX_WORLD; rank++)
                made_arrive(made, rank, UINT64_MAX - 2000 + rank);
        size_t n = record_write(made_done(made, UINT64_MAX - 1, UINT64_MAX), bytes);
        ck_assert_uint_gt(n, 10 * (MAX_WORLD - 1) + MAX_KEY_BYTES + MAX_WORLD / 8);
        ck_assert_uint_le(n, MAX_RECORD_BYTES);
        record_read(bytes, UINT64_MAX, arrivals, &row);
        ck_assert(key_is_equal(&row.key, &key));
        ck_assert_uint_eq(row.epoch, UINT64_MAX);
        ck_assert_uint_eq(row.collective, UINT64_MAX);
        ck_assert_uint_eq(row.age_ns, UINT64_MAX);
        ck_assert_uint_eq(row.sealed_ns, UINT64_MAX - 1);
        ck_assert_uint_eq(row.bytes, UINT64_C(1) << 62);
        ck_assert_uint_eq(row.n_arrivals, MAX_WORLD);
        for (uint32_t rank = 1; rank < MAX_WORLD; rank++)
                ck_assert_uint_eq(row.arrival_ns[rank], UINT64_MAX - 2000 + rank);
        made_free(made);
}
END_TEST

/* --- the ring against a plain list --- */

#define MAX_MODEL 100000

static struct {
        uint8_t seed;
        uint16_t n_bytes;
} model[MAX_MODEL];

static void fill(uint8_t *bytes, size_t n, uint8_t seed) {
        for (size_t i = 0; i < n; i++)
                bytes[i] = (uint8_t)(seed + 31 * i);
}

/* The ring holds model[first..end). */
static void check_ring(const struct ring *r, size_t first, size_t end) {
        static uint8_t expected[4096];
        uint64_t position = 0;
        size_t n;
        ck_assert_uint_eq(r->n_records, end - first);
        for (size_t i = first; i < end; i++) {
                const uint8_t *bytes = ring_next(r, &position, &n);
                ck_assert_ptr_nonnull(bytes);
                ck_assert_uint_eq(n, model[i].n_bytes);
                fill(expected, n, model[i].seed);
                ck_assert_mem_eq(bytes, expected, n);
        }
        ck_assert_ptr_null(ring_next(r, &position, &n));
}

static void run_ring(unsigned int seed, size_t n_steps, uint64_t max_capacity) {
        struct ring r = { 0 };
        size_t first = 0, end = 0;
        uint8_t bytes[4096];
        srandom(seed);
        ck_assert_int_eq(ring_grow(&r, 4096), 0);
        for (; end < n_steps; end++) {
                size_t n = (size_t)random() % (random() % 8 ? 60 : 1000);
                model[end].seed = (uint8_t)random();
                model[end].n_bytes = (uint16_t)n;
                while (!ring_fits(&r, n) || random() % 64 == 0) {
                        if (r.capacity < max_capacity && random() % 3 == 0) {
                                ck_assert_int_eq(ring_grow(&r, 2 * r.capacity), 0);
                        } else if (first < end) {
                                ring_drop(&r);
                                first++;
                        }
                }
                fill(bytes, n, model[end].seed);
                ring_append(&r, bytes, n);
                if (end % 97 == 0)
                        check_ring(&r, first, end + 1);
        }
        check_ring(&r, first, end);
        ring_deinit(&r);
}

START_TEST(a_ring_is_the_end_of_a_list) {
        for (unsigned int seed = 1; seed <= 20; seed++)
                run_ring(seed, 3000, seed % 2 ? 4096 : 65536);
}
END_TEST

START_TEST(a_ring_that_wastes_nothing_is_full) {
        struct ring r = { 0 };
        uint8_t bytes[60] = { 0 };
        ck_assert(!ring_fits(&r, 0));
        ck_assert_int_eq(ring_grow(&r, 1024), 0);
        for (int i = 0; i < 16; i++) {
                ck_assert(ring_fits(&r, sizeof(bytes)));
                ring_append(&r, bytes, sizeof(bytes)); /* 64 with its head */
        }
        ck_assert(!ring_fits(&r, 0));
        ring_drop(&r);
        ck_assert(ring_fits(&r, 60));
        ck_assert(!ring_fits(&r, 61));
        ring_deinit(&r);
}
END_TEST

UNIT_MAIN("recorder-parts", 20, a_timeout_blames_who_is_missing, other_ends_blame_whom_the_error_names,
        a_meeting_that_nobody_reached_has_a_record, sealed_at_once_is_not_never_sealed,
        the_largest_record_fits, a_ring_is_the_end_of_a_list, a_ring_that_wastes_nothing_is_full)
