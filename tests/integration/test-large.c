/* More elements than 31 bits count (P14): a value of 2^31 + 7 bytes, at two replicas, in
 * chunks over all workers. Needs 4 GiB; skipped where the machine has not twice that to spare. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "meeting.h"
#include "raw.h"
#include "replica.h"
#include "unit.h"

#define N_ELEMENTS   ((size_t)(UINT64_C(1) << 31) + 7)
#define LIMIT_S      150
#define NEEDED_BYTES (UINT64_C(8) << 30)

static uint64_t available_bytes(void) {
        unsigned long long kib = 0;
        char line[256];
        FILE *f = fopen("/proc/meminfo", "re");
        ck_assert_ptr_nonnull(f);
        while (fgets(line, sizeof(line), f) && sscanf(line, "MemAvailable: %llu kB", &kib) != 1)
                continue;
        fclose(f);
        return kib * 1024;
}

/* Elements around which an index of too few bits goes wrong. */
static const size_t places[] = { 0, 1, ((size_t)1 << 30) - 1, ((size_t)1 << 31) - 1, (size_t)1 << 31,
        N_ELEMENTS - 2, N_ELEMENTS - 1 };
#define N_PLACES (sizeof(places) / sizeof(*places))

static void fill(uint8_t *data, uint32_t rank) {
        memset(data, rank ? 2 : 1, N_ELEMENTS);
        for (size_t i = 0; i < N_PLACES; i++)
                data[places[i]] = (uint8_t)(10 * (i + 1) + rank);
}

static void expect_equal(const uint8_t *data, size_t from, size_t to, uint8_t expected) {
        if (from == to)
                return;
        ck_assert_msg(data[from] == expected, "element %zu is %u, not %u", from, data[from], expected);
        ck_assert_msg(memcmp(data + from, data + from + 1, to - from - 1) == 0,
                "elements %zu to %zu are not all equal", from, to - 1);
}

/* Everything but the places is `rest`. */
static void expect_all(const uint8_t *data, uint8_t rest, uint8_t (*at_place)(size_t i)) {
        size_t from = 0;
        for (size_t i = 0; i < N_PLACES; i++) {
                expect_equal(data, from, places[i], rest);
                expect_equal(data, places[i], places[i] + 1, at_place(i));
                from = places[i] + 1;
        }
        expect_equal(data, from, N_ELEMENTS, rest);
}

static uint8_t sum_at(size_t i) {
        return (uint8_t)(20 * (i + 1) + 1);
}

static uint8_t of_rank_1_at(size_t i) {
        return (uint8_t)(10 * (i + 1) + 1);
}

static void meet(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct array a;
        struct tutti_work *w;
        struct tutti_result result;
        array_init(me->t, &a, TUTTI_U8, N_ELEMENTS);
        fill(a.data, me->rank);
        expect_status(tutti_all_reduce(g, "sum", TUTTI_SUM, &a.value, &a.value), TUTTI_OK);
        expect_all(a.data, 3, sum_at);
        fill(a.data, me->rank);
        expect_status(tutti_broadcast(g, "broadcast", 1, &a.value), TUTTI_OK);
        expect_all(a.data, 2, of_rank_1_at);

        /* What is found there has its whole index. */
        memset(a.data, 0, N_ELEMENTS);
        ((uint8_t *)a.data)[N_ELEMENTS - 1] = 128;
        expect_status(tutti_all_reduce_start(g, "check", TUTTI_SUM, &a.value, &a.value,
                              &TUTTI_OPTIONS(.check_overflow = 1), &w),
                TUTTI_OK);
        expect_work(w, TUTTI_OK);
        expect_status(tutti_work_result(w, &result), TUTTI_OK);
        ck_assert_uint_eq(result.overflow.n, 1);
        ck_assert_uint_eq(result.overflow.index, N_ELEMENTS - 1);
        tutti_work_free(w);
}

START_TEST(P14_counts_go_beyond_31_bits) {
        uint64_t available = available_bytes();
        if (unit_scale() > 1)
                unit_skip("a sanitizer's shadow would take several times the 4 GiB");
        if (available < NEEDED_BYTES)
                unit_skip("%llu MiB of memory are available, %llu are needed",
                        (unsigned long long)(available >> 20), (unsigned long long)(NEEDED_BYTES >> 20));
        struct host *h = host_start(NULL);
        struct replica *replicas[2];
        replicas_spawn(h, 2, meet, NULL, replicas);
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(replicas[i], LIMIT_S), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- I2: one map, one unmap --- */

#define I2_BYTES  (UINT64_C(3) << 30)
#define I2_NEEDED (UINT64_C(6) << 30)

/* How often tuttid has mapped the memfd with this inode; *ret_where is the last place. */
static int count_mappings(struct host *h, uint64_t inode, uint64_t *ret_where) {
        char path[64], line[512];
        int n = 0;
        snprintf(path, sizeof(path), "/proc/%d/maps", host_pid(h));
        FILE *f = fopen(path, "re");
        ck_assert_ptr_nonnull(f);
        while (fgets(line, sizeof(line), f)) {
                unsigned long begin, its;
                if (sscanf(line, "%lx-%*x %*s %*x %*s %lu", &begin, &its) != 2 || its != inode)
                        continue;
                *ret_where = begin;
                n++;
        }
        fclose(f);
        return n;
}

/* While the value is reduced: one mapping, in the same place, all the time. */
static uint32_t watch_mapping(struct host *h, struct raw *r, uint64_t inode, uint64_t where) {
        uint32_t n_looks = 0;
        while (raw_is_silent(r, 0.001)) {
                uint64_t now = 0;
                ck_assert_int_eq(count_mappings(h, inode, &now), 1);
                ck_assert_uint_eq(now, where);
                n_looks++;
        }
        return n_looks;
}

START_TEST(I2_three_gibibytes_are_one_map_and_one_unmap) {
        struct stat st;
        uint64_t where = 0;
        if (unit_scale() > 1)
                unit_skip("a sanitizer's shadow would take several times the 3 GiB");
        if (available_bytes() < I2_NEEDED)
                unit_skip("%llu MiB of memory are available, %llu are needed",
                        (unsigned long long)(available_bytes() >> 20), (unsigned long long)(I2_NEEDED >> 20));
        struct host *h = host_start(NULL);
        struct raw *r = raw_open(host_socket(h));
        struct raw_member m = raw_join(r, "alone", 0, 1);
        int fd = raw_memfd(I2_BYTES);
        ck_assert_int_eq(fstat(fd, &st), 0);
        uint64_t registration = raw_register(r, 1, fd, I2_BYTES);
        raw_expect(r, registration, STATUS_OK);
        ck_assert_int_eq(count_mappings(h, st.st_ino, &where), 1);
        uint64_t number = raw_submit(r, &m, "large", 1, I2_BYTES / 4);
        uint32_t n_looks = watch_mapping(h, r, st.st_ino, where);
        raw_expect(r, number, STATUS_OK);
        ck_assert_uint_gt(n_looks, 10);
        ck_assert_int_eq(count_mappings(h, st.st_ino, &where), 1);
        raw_expect(r, raw_send(r, &(struct request){ .type = REQUEST_UNREGISTER, .buffer = 1 }), STATUS_OK);
        double limit = seconds_now() + 5;
        while (count_mappings(h, st.st_ino, &where) > 0)
                ck_assert_double_lt(seconds_now(), limit);
        raw_close(r);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("large", LIMIT_S, P14_counts_go_beyond_31_bits, I2_three_gibibytes_are_one_map_and_one_unmap)
