/* Small ones: many in one submission (H1), beside one that is huge (I3), and beside others' work. Times are
 * asserted at ten times what is promised. */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include "base/available.h"
#include "meeting.h"
#include "replica.h"
#include "unit.h"

static int compare_doubles(const void *a, const void *b) {
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

/* Of n times, sorted here. */
static double percentile(double *times, uint32_t n, uint32_t percent) {
        qsort(times, n, sizeof(*times), compare_doubles);
        return times[(n - 1) * percent / 100];
}

/* --- H1: 300 values of 4 KiB --- */

#define N_VALUES  300
#define N_FLOATS  1024
#define N_BATCHES 100
#define BATCH_MS  0.7

static void batch_by_batch(struct replica *me) {
        static struct tutti_value values[N_VALUES];
        static struct tutti_entry entries[N_VALUES];
        static double times[N_BATCHES];
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats f;
        floats_init(me->t, &f, (size_t)N_VALUES * N_FLOATS);
        for (uint32_t i = 0; i < N_VALUES; i++) {
                values[i] = f.value;
                values[i].offset = (size_t)i * N_FLOATS * sizeof(float);
                values[i].shape[0] = N_FLOATS;
                entries[i] = TUTTI_ENTRY(.input = &values[i], .output = &values[i]);
        }
        for (int k = 0; k < N_BATCHES; k++) {
                floats_fill(&f, (float)(me->rank + 1) * (float)(k + 1));
                expect_status(tutti_barrier(g, NULL), TUTTI_OK);
                double begun = seconds_now();
                expect_status(tutti_batch_reduce(g, "grads", TUTTI_SUM, entries, N_VALUES), TUTTI_OK);
                times[k] = seconds_now() - begun;
                floats_expect(&f, 3.0f * (float)(k + 1));
                ck_assert_uint_eq(tutti_last_result()->n_contributors, 2);
        }
        replica_say(me, "%f", percentile(times, N_BATCHES, 50) * 1e3);
        replica_hear(me, "end");
}

START_TEST(H1_many_small_values_are_one_submission_and_soon_there) {
        struct host *h = host_start(NULL);
        struct host_counters c;
        struct replica *r[2];
        replicas_spawn(h, 2, batch_by_batch, NULL, r);
        for (uint32_t i = 0; i < 2; i++) {
                double ms = strtod(replica_listen(r[i], 30), NULL);
                printf("# R%u: %d values of 4 KiB in %.3f ms (median)\n", i, N_VALUES, ms);
                ck_assert_double_gt(ms, 0);
                ck_assert_double_lt(ms, 10 * BATCH_MS * unit_scale());
        }
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_collectives, 2 * N_BATCHES); /* batches and barriers */
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

/* What is large and ready first does not wait for what comes behind it. */
static void large_then_batch(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats large, small;
        struct tutti_result result;
        floats_init(me->t, &large, (size_t)4 << 20);
        floats_init(me->t, &small, N_FLOATS);
        floats_fill(&large, (float)(me->rank + 1));
        floats_fill(&small, (float)(me->rank + 1));
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        struct tutti_work *w = floats_start(g, "large", &large, 0);
        if (me->rank == 0) /* the small one is complete only half a second later */
                seconds_sleep(0.5);
        expect_status(floats_sum(g, "small", &small), TUTTI_OK);
        expect_work(w, TUTTI_OK);
        expect_status(tutti_work_result(w, &result), TUTTI_OK);
        ck_assert_double_lt(result.wait, 0.25 * unit_scale());
        ck_assert_double_lt(result.run, 0.4 * unit_scale());
        floats_expect(&large, 3);
        floats_expect(&small, 3);
        tutti_work_free(w);
}

START_TEST(H1_what_is_large_and_ready_starts_at_once) {
        replicas_run(2, large_then_batch);
}
END_TEST

/* --- I3: beside 2 GiB --- */

#define LARGE_BYTES  (UINT64_C(2) << 30)
#define NEEDED_BYTES (UINT64_C(8) << 30)
#define BESIDE_MS    5.0
#define MAX_TIMES    100000

struct beside {
        _Atomic int n_large, is_over;
};

static void be_large(struct replica *me) {
        struct beside *shared = me->arg;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "large", .job = "a"));
        struct array a;
        array_init(me->t, &a, TUTTI_U8, LARGE_BYTES);
        uint8_t *data = a.data;
        replica_say(me, "ready");
        replica_hear(me, "go");
        for (uint8_t k = 1; k <= 3; k++) {
                data[0] = data[LARGE_BYTES - 1] = (uint8_t)(me->rank + k);
                atomic_fetch_add(&shared->n_large, 1);
                expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &a.value, &a.value), TUTTI_OK);
                ck_assert_uint_eq(data[0], 2 * k + 1);
                ck_assert_uint_eq(data[LARGE_BYTES - 1], 2 * k + 1);
                ck_assert_uint_eq(data[LARGE_BYTES / 2], 0);
        }
        atomic_store(&shared->is_over, 1);
}

/* Both see the end at the same step: it is summed too. */
static void be_small(struct replica *me) {
        static double times[MAX_TIMES];
        struct beside *shared = me->arg;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "small", .job = "b"));
        struct floats f;
        uint32_t n = 0;
        floats_init(me->t, &f, N_FLOATS);
        while (atomic_load(&shared->n_large) < 2)
                seconds_sleep(0.001);
        do {
                floats_fill(&f, atomic_load(&shared->is_over) ? 1 : 0);
                double begun = seconds_now();
                expect_status(floats_sum(g, NULL, &f), TUTTI_OK);
                times[n++] = seconds_now() - begun;
                seconds_sleep(0.001);
        } while (f.data[0] == 0 && n < MAX_TIMES);
        ck_assert_uint_gt(n, 100);
        replica_say(me, "%f", percentile(times, n, 99) * 1e3);
        replica_hear(me, "end");
}

START_TEST(I3_a_small_one_beside_two_gibibytes_of_another_job) {
        if (memory_available_bytes() < NEEDED_BYTES)
                unit_skip("%llu GiB of memory are to spare, %llu are wanted",
                        (unsigned long long)(memory_available_bytes() >> 30),
                        (unsigned long long)(NEEDED_BYTES >> 30));
        if (unit_scale() > 1)
                unit_skip("a sanitizer's shadow would take several times the 4 GiB");
        struct host *h = host_start(NULL);
        struct beside *shared = memory_shared(sizeof(*shared));
        struct replica *large[2], *small[2];
        replicas_spawn(h, 2, be_large, shared, large);
        replicas_expect(large, 2, "ready", 60);
        replicas_spawn(h, 2, be_small, shared, small);
        replicas_tell(large, 2, "go");
        for (uint32_t i = 0; i < 2; i++) {
                double ms = strtod(replica_listen(small[i], 100), NULL);
                printf("# R%u: 4 KiB beside 2 GiB, p99 %.3f ms\n", i, ms);
                ck_assert_double_lt(ms, 10 * BESIDE_MS * unit_scale());
        }
        for (uint32_t i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(large[i], 30), 0);
        replicas_tell(small, 2, "end");
        replicas_end(h, small, 2);
}
END_TEST

/* --- P22: beside processes that never sleep --- */

#define MAX_HOGS     64
#define HOGGED_S     1.5
#define TIME_SLICE_S 2.5e-3 /* what a yield to one of them costs at least */

struct hogs {
        int n;
        pid_t pids[MAX_HOGS];
};

static void hogs_begin(struct hogs *hogs) {
        cpu_set_t all;
        hogs->n = 0;
        ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
        for (int core = 0; core < CPU_SETSIZE && hogs->n < MAX_HOGS; core++) {
                if (!CPU_ISSET(core, &all))
                        continue;
                pid_t pid = fork();
                ck_assert_int_ge(pid, 0);
                if (pid == 0) {
                        cpu_set_t one;
                        CPU_ZERO(&one);
                        CPU_SET(core, &one);
                        prctl(PR_SET_PDEATHSIG, SIGKILL);
                        sched_setaffinity(0, sizeof(one), &one);
                        for (;;)
                                __asm__ volatile("");
                }
                hogs->pids[hogs->n++] = pid;
        }
}

static void hogs_end(struct hogs *hogs) {
        for (int i = 0; i < hogs->n; i++) {
                kill(hogs->pids[i], SIGKILL);
                waitpid(hogs->pids[i], NULL, 0);
        }
}

static void meet_beside_hogs(struct replica *me) {
        static double times[MAX_TIMES];
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats f;
        uint32_t n = 0;
        floats_init(me->t, &f, 1);
        double until = 0;
        for (bool is_over = false; !is_over;) {
                /* When it is over is rank 0's to say. */
                double now = seconds_now();
                if (until == 0)
                        until = now + HOGGED_S;
                f.data[0] = me->rank == 0 && (now > until || n == MAX_TIMES - 1) ? 100 : 1;
                expect_status(floats_sum(g, NULL, &f), TUTTI_OK);
                times[n++] = seconds_now() - now;
                ck_assert(f.data[0] == 2 || f.data[0] == 101);
                is_over = f.data[0] > 2;
        }
        replica_say(me, "%f", percentile(times, n, 50));
        replica_hear(me, "end");
}

/* Who waits by yielding alone has a median of a time slice here, whichever side it is. */
START_TEST(P22_beside_hogs_on_every_core_yielding_is_given_up) {
        struct host *h = host_start(NULL);
        struct host_counters c;
        struct replica *r[2];
        struct hogs hogs;
        hogs_begin(&hogs);
        replicas_spawn(h, 2, meet_beside_hogs, NULL, r);
        for (uint32_t i = 0; i < 2; i++) {
                double s = strtod(replica_listen(r[i], 60), NULL);
                printf("# R%u: 4 bytes beside hogs, median %.3f ms\n", i, s * 1e3);
                ck_assert_double_gt(s, 0);
                ck_assert_double_lt(s, TIME_SLICE_S * unit_scale());
        }
        hogs_end(&hogs);
        host_counters(h, &c);
        ck_assert_uint_gt(c.n_on_lane, 0);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

UNIT_MAIN("speed", 120, P22_beside_hogs_on_every_core_yielding_is_given_up,
        H1_many_small_values_are_one_submission_and_soon_there, H1_what_is_large_and_ready_starts_at_once,
        I3_a_small_one_beside_two_gibibytes_of_another_job)
