#include "stage.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "meeting.h"
#include "unit.h"

#define MAX_TIMES 65536

struct shared {
        _Atomic unsigned int n_met;
        _Atomic bool is_over;
        _Atomic double worst; /* seconds that a meeting took */
        _Atomic unsigned int n_times;
        _Atomic double times[MAX_TIMES]; /* of each, of rank 0 */
};

static struct shared *shared;

static void note_time(const struct replica *me, double took) {
        if (took > atomic_load(&shared->worst))
                atomic_store(&shared->worst, took);
        unsigned int n = atomic_load(&shared->n_times);
        if (me->rank > 0 || n >= MAX_TIMES)
                return;
        atomic_store(&shared->times[n], took);
        atomic_store(&shared->n_times, n + 1);
}

static void meet_until_told(struct replica *me) {
        struct floats f;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "honest"));
        floats_init(me->t, &f, 1000);
        for (bool is_over = false; !is_over;) {
                double begin = seconds_now();
                floats_meet(g, NULL, &f, (float)(me->rank + 1), 3);
                note_time(me, seconds_now() - begin);
                /* Rank 0 decides for both. */
                f.data[0] = atomic_load(&shared->is_over);
                expect_status(tutti_broadcast(g, NULL, 0, &f.value), TUTTI_OK);
                is_over = f.data[0] > 0;
                atomic_fetch_add(&shared->n_met, 1);
                seconds_sleep(0.0005);
        }
}

void stage_set(struct stage *s, const char *const *args) {
        shared = memory_shared(sizeof(*shared));
        s->h = host_start(args);
        replicas_spawn(s->h, 2, meet_until_told, NULL, s->honest);
}

void stage_expect_progress(void) {
        unsigned int n = atomic_load(&shared->n_met);
        double limit = seconds_now() + 5 * unit_scale();
        while (atomic_load(&shared->n_met) < n + 4) {
                ck_assert_msg(seconds_now() < limit, "the honest group stands still");
                seconds_sleep(0.001);
        }
}

void stage_clear(struct stage *s) {
        stage_expect_progress();
        atomic_store(&shared->is_over, true);
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(s->honest[i], 10), 0);
        host_expect_counters_zero(s->h);
        host_stop(s->h);
}

void watch_begin(void) {
        stage_expect_progress();
        atomic_store(&shared->worst, 0);
}

void watch_end(double seconds) {
        stage_expect_progress();
        ck_assert_msg(atomic_load(&shared->worst) < seconds * unit_scale(),
                "a meeting of the honest group took %g s", atomic_load(&shared->worst));
}

static int compare_doubles(const void *a, const void *b) {
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

struct pace stage_measure_pace(double seconds) {
        static double times[MAX_TIMES];
        stage_expect_progress();
        atomic_store(&shared->n_times, 0);
        seconds_sleep(seconds);
        stage_expect_progress();
        unsigned int n = atomic_load(&shared->n_times);
        ck_assert_uint_gt(n, 0);
        for (unsigned int i = 0; i < n; i++)
                times[i] = atomic_load(&shared->times[i]);
        qsort(times, n, sizeof(*times), compare_doubles);
        return (struct pace){
                .n = n, .p50 = times[n / 2], .p99 = times[n - 1 - n / 100], .worst = times[n - 1]
        };
}

/* --- marks --- */

void stage_set_mark(const struct stage *s, struct stage_mark *ret) {
        for (int i = 0; i < 6; i++) /* after some steps they hold all that they ever will */
                stage_expect_progress();
        host_counters(s->h, &ret->counters);
        seconds_sleep(0.1); /* the question's own connection goes */
        ret->n_descriptors = host_n_descriptors(s->h);
}

static uint64_t sum_of_quotas(const struct host_counters *c) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < c->n_quotas; i++)
                if (!strstr(c->quotas[i].name, "recorder") && !strstr(c->quotas[i].name, "pending") &&
                        !strstr(c->quotas[i].name, "memory"))
                        sum += c->quotas[i].used;
        return sum;
}

/* What the honest ones and the question itself hold is always the same, but for what is pending. */
static bool is_at_mark(const struct stage *s, const struct stage_mark *mark, char *why, size_t why_bytes) {
        const struct host_counters *then = &mark->counters;
        struct host_counters now;
        int n_descriptors = host_n_descriptors(s->h);
        host_counters(s->h, &now);
        snprintf(why, why_bytes,
                "%d descriptors (then %d), %u sessions (%u), %u groups (%u), %llu bytes (%llu), %llu buffers "
                "(%llu), %llu pending, %llu charged (%llu), %llu ejected (%llu)",
                n_descriptors, mark->n_descriptors, now.n_sessions, then->n_sessions, now.n_groups,
                then->n_groups, (unsigned long long)now.mapped_bytes, (unsigned long long)then->mapped_bytes,
                (unsigned long long)now.n_buffers, (unsigned long long)then->n_buffers,
                (unsigned long long)now.n_pending, (unsigned long long)sum_of_quotas(&now),
                (unsigned long long)sum_of_quotas(then), (unsigned long long)now.n_ejected,
                (unsigned long long)then->n_ejected);
        return n_descriptors == mark->n_descriptors && now.n_sessions == then->n_sessions &&
               now.n_groups == then->n_groups && now.mapped_bytes == then->mapped_bytes &&
               now.n_buffers == then->n_buffers && now.n_pending <= 2 &&
               sum_of_quotas(&now) == sum_of_quotas(then) && now.n_ejected == then->n_ejected;
}

void stage_expect_mark(const struct stage *s, const struct stage_mark *mark, const char *where) {
        double limit = seconds_now() + 2 * unit_scale();
        char why[512];
        while (!is_at_mark(s, mark, why, sizeof(why))) {
                ck_assert_msg(seconds_now() < limit, "in \"%s\": %s", where, why);
                seconds_sleep(0.002);
        }
}
