/* What takes much memory, and is skipped where the machine has not twice as much to spare.
 *
 * More elements than 31 bits count (P14): a value of 2^31 + 7 bytes, at two replicas, in chunks over all
 * workers: 4 GiB. What tuttid itself takes while a gigabyte is reduced (F5). */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/available.h"
#include "objects.h"
#include "meeting.h"
#include "raw.h"
#include "replica.h"
#include "unit.h"

#define N_ELEMENTS   ((size_t)(UINT64_C(1) << 31) + 7)
#define LIMIT_S      150
#define NEEDED_BYTES (UINT64_C(8) << 30)

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
        uint64_t available = memory_available_bytes();
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

/* --- F5: who pays --- */

#define ROUNDS          4
#define F5_FLOATS       ((size_t)128 << 20) /* 512 MiB at each of two replicas */
#define F5_SLOT_FLOATS  ((size_t)4 << 20)
#define F5_OBJECT_BYTES (2 * F5_SLOT_FLOATS * sizeof(float))
#define F5_OWN_BYTES    ((uint64_t)32 << 20)
#define F5_NEEDED_BYTES ((uint64_t)3 << 30)

static void reduce_a_gigabyte(struct replica *me) {
        struct floats f, small;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_object *o = object_make(g, "sums", F5_SLOT_FLOATS);
        floats_init(me->t, &f, F5_FLOATS);
        floats_init(me->t, &small, F5_SLOT_FLOATS);
        f.data[F5_FLOATS - 1] = 1;
        for (int i = 0; i < ROUNDS; i++) {
                expect_status(floats_sum(g, NULL, &f), TUTTI_OK);
                expect_status(tutti_object_release(o, sum_into(g, NULL, &small, o)), TUTTI_OK);
        }
        ck_assert(f.data[F5_FLOATS - 1] == (float)(1 << ROUNDS));
        replica_say(me, "done");
        replica_hear(me, "end");
}

static uint64_t anonymous_bytes(pid_t pid) {
        unsigned long long kib = 0;
        char path[64], line[256];
        snprintf(path, sizeof(path), "/proc/%d/status", pid);
        FILE *f = fopen(path, "re");
        ck_assert_ptr_nonnull(f);
        while (fgets(line, sizeof(line), f) && sscanf(line, "RssAnon: %llu kB", &kib) != 1)
                continue;
        fclose(f);
        return kib * 1024;
}

/* Pages of the memfds that are tuttid's own: status pages and result objects. The clients' are called
 * "tutti". */
static uint64_t shmem_bytes(pid_t pid) {
        char path[300], name[64];
        uint64_t total = 0;
        snprintf(path, sizeof(path), "/proc/%d/fd", pid);
        DIR *d = opendir(path);
        ck_assert_ptr_nonnull(d);
        for (const struct dirent *e; (e = readdir(d));) {
                struct stat st;
                snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, e->d_name);
                ssize_t n = readlink(path, name, sizeof(name) - 1);
                name[n > 0 ? n : 0] = '\0';
                /* Each object is open twice. */
                if (strncmp(name, "/memfd:tutti-", 13) == 0 && stat(path, &st) == 0)
                        total += (uint64_t)st.st_blocks * 512 / (strstr(name, "result") ? 2 : 1);
        }
        closedir(d);
        return total;
}

START_TEST(F5_tuttid_takes_no_memory_but_that_of_result_objects) {
        struct replica *r[2];
        uint64_t available = memory_available_bytes(), most = 0, most_shmem = 0;
        if (unit_scale() > 1)
                unit_skip("a sanitizer takes memory of its own");
        if (available < F5_NEEDED_BYTES)
                unit_skip("%llu MiB of memory are available, %llu are needed",
                        (unsigned long long)(available >> 20), (unsigned long long)(F5_NEEDED_BYTES >> 20));
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, reduce_a_gigabyte, NULL, r);
        struct host_counters c;
        do {
                uint64_t shmem = shmem_bytes(host_pid(h)), all = anonymous_bytes(host_pid(h)) + shmem;
                most = all > most ? all : most;
                most_shmem = shmem > most_shmem ? shmem : most_shmem;
                seconds_sleep(0.005);
                host_counters(h, &c);
        } while (c.n_collectives < 2 * ROUNDS);
        replicas_expect(r, 2, "done", LIMIT_S);
        printf("# F5: %llu MiB at most, %llu of them of a result object of %zu\n",
                (unsigned long long)(most >> 20), (unsigned long long)(most_shmem >> 20),
                (size_t)F5_OBJECT_BYTES >> 20);
        ck_assert_uint_ge(most_shmem, F5_OBJECT_BYTES);
        ck_assert_uint_le(most, F5_OWN_BYTES + F5_OBJECT_BYTES);
        replicas_tell(r, 2, "end");
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], LIMIT_S), 0);
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
        if (memory_available_bytes() < I2_NEEDED)
                unit_skip("%llu MiB of memory are available, %llu are needed",
                        (unsigned long long)(memory_available_bytes() >> 20),
                        (unsigned long long)(I2_NEEDED >> 20));
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

/* --- results that go past the caches --- */

#define N_STREAMED ((size_t)12 << 20) /* 48 MiB, read and written by two */

/* result[i] is factor * ((i + 1) % 1000) + 1. */
static void expect_pattern(const float *result, float factor) {
        size_t i = 0;
        while (i < N_STREAMED && result[i] == factor * (float)((i + 1) % 1000) + 1)
                i++;
        ck_assert_msg(i == N_STREAMED, "element %zu is %g", i, (double)result[i]);
}

/* Lines of the outputs begin anywhere, and what lies before and behind the result is left alone. */
static void meet_out_of_place(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats in, out;
        floats_init(me->t, &in, N_STREAMED + 1);
        floats_init(me->t, &out, N_STREAMED + 16);
        for (size_t i = 0; i < in.n; i++)
                in.data[i] = (float)(i % 1000) + (float)me->rank;
        floats_fill(&out, -1);
        in.value.offset = sizeof(float);
        out.value.offset = (3 + me->rank) * sizeof(float);
        in.value.shape[0] = out.value.shape[0] = N_STREAMED;
        expect_status(tutti_all_reduce(g, "sum", TUTTI_SUM, &in.value, &out.value), TUTTI_OK);
        const float *result = out.data + 3 + me->rank;
        expect_pattern(result, 2);
        expect_status(tutti_broadcast_into(g, "told", 1, &in.value, &out.value, NULL), TUTTI_OK);
        expect_pattern(result, 1);
        for (size_t i = 0; i < 3 + me->rank; i++)
                ck_assert_float_eq(out.data[i], -1);
        for (const float *at = result + N_STREAMED; at < out.data + out.n; at++)
                ck_assert_float_eq(*at, -1);
}

START_TEST(P14_large_results_out_of_place_are_right_to_the_last_element) {
        replicas_run(2, meet_out_of_place);
}
END_TEST

UNIT_MAIN("large", LIMIT_S, P14_large_results_out_of_place_are_right_to_the_last_element,
        P14_counts_go_beyond_31_bits, F5_tuttid_takes_no_memory_but_that_of_result_objects,
        I2_three_gibibytes_are_one_map_and_one_unmap)
