/* tutti-polling: what 1,000 status calls a second cost those who work (docs/observability.md).
 *
 *     tutti-polling [SECONDS [GROUPS]]
 *
 * Two replicas reduce 4 KiB again and again; beside them a third process asks for the status, by turns for a
 * quarter of a second, and not for the next. So both samples are of one run, and what else the machine does
 * is in both. GROUPS more groups are there and do nothing: each is a row of the answer. tuttid is found by
 * $TUTTI_DAEMON. Prints p50 and p99 of both, and what tuttid's process itself used for a call. Nothing is
 * asserted here: tests/integration/test-polling.c does that, at ten times the promise. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <tutti/admin.h>
#include "bench.h"

#define MAX_SAMPLES 400000
#define PHASE_NS    UINT64_C(250000000)
#define PERIOD_NS   UINT64_C(1000000)
#define PAUSE_NS    100000 /* between two collectives, as between two steps */
#define N_FLOATS    1024

struct watched {
        _Atomic uint32_t n_here, n_phases; /* odd phases are polled */
        _Atomic int is_over;
        _Atomic uint64_t n_polls;
        double seconds;
        uint32_t n_groups;
        uint32_t n[2];
        uint64_t samples[2][MAX_SAMPLES]; /* quiet, polled */
};

static void sleep_until(uint64_t at_ns) {
        const struct timespec at = { (time_t)(at_ns / 1000000000), (long)(at_ns % 1000000000) };
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static void join_others(const struct watched *w, struct tutti *t) {
        for (uint32_t i = 0; i < w->n_groups; i++) {
                struct tutti_group *g;
                char name[32];
                snprintf(name, sizeof(name), "other-%u", i);
                const struct tutti_join_args args =
                        TUTTI_JOIN(.job = "others", .group = name, .rank = 0, .world_size = 1);
                bench_ok(tutti_join(t, &args, &g), "join");
        }
}

static void poll_status(struct watched *w) {
        struct tutti *t = bench_open();
        join_others(w, t);
        uint64_t next_ns = bench_now_ns();
        atomic_fetch_add(&w->n_here, 1);
        while (!atomic_load(&w->is_over)) {
                struct tutti_answer *a = NULL;
                sleep_until(next_ns += PERIOD_NS);
                if (atomic_load(&w->n_phases) % 2 == 0) {
                        next_ns = bench_now_ns();
                        continue;
                }
                bench_ok(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), "status");
                tutti_answer_free(a);
                atomic_fetch_add(&w->n_polls, 1);
        }
        tutti_close(t);
}

/* Rank 0 keeps the time, and tells by the value when it is over. */
static void work(struct watched *w, uint32_t rank) {
        struct tutti *t = bench_open();
        struct tutti_group *g = bench_join(t, "work");
        struct tutti_buffer *b;
        bench_ok(tutti_buffer_alloc(t, N_FLOATS * sizeof(float), &b), "buffer");
        const struct tutti_value v =
                TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { N_FLOATS });
        float *data = tutti_buffer_data(b);
        while (atomic_load(&w->n_here) < 1)
                usleep(1000);
        uint64_t begun = bench_now_ns();
        for (;;) {
                uint64_t now = bench_now_ns();
                uint32_t phase = (uint32_t)((now - begun) / PHASE_NS);
                if (rank == 0)
                        atomic_store(&w->n_phases, phase);
                data[0] = rank == 0 && (double)(now - begun) > w->seconds * 1e9;
                bench_ok(tutti_all_reduce(g, NULL, TUTTI_MAX, &v, &v), "all_reduce");
                uint64_t took = bench_now_ns() - now;
                uint32_t *n = &w->n[phase % 2];
                if (rank == 0 && phase == atomic_load(&w->n_phases) && *n < MAX_SAMPLES)
                        w->samples[phase % 2][(*n)++] = took;
                if (data[0] > 0)
                        break;
                nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
        }
        atomic_store(&w->is_over, 1);
        tutti_close(t);
}

static void work_or_poll(uint32_t rank, void *arg) {
        if (rank == 2)
                poll_status(arg);
        else
                work(arg, rank);
}

static void print_change(const char *what, uint64_t quiet, uint64_t polled, const char *promise) {
        printf("  %-4s %9.1f us  %9.1f us  %+6.1f %%   %s\n", what, (double)quiet / 1e3, (double)polled / 1e3,
                100.0 * ((double)polled / (double)quiet - 1), promise);
}

struct cost {
        const struct bench_daemon *d;
        const struct watched *w;
};

/* Of one call, alone: time that tuttid's threads used. */
static void measure_cost(uint32_t rank, void *arg) {
        const struct cost *cost = arg;
        const struct bench_daemon *d = cost->d;
        struct tutti *t = bench_open();
        const int n = 2000;
        join_others(cost->w, t);
        struct bench_usage before = bench_usage(d->pid);
        for (int i = 0; i < n; i++) {
                struct tutti_answer *a = NULL;
                bench_ok(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), "status");
                tutti_answer_free(a);
        }
        struct bench_usage after = bench_usage(d->pid);
        printf("tuttid works %.1f us for a status call\n", (double)(after.cpu_ns - before.cpu_ns) / n / 1e3);
        tutti_close(t);
}

int main(int argc, char **argv) {
        const char *tuttid = getenv("TUTTI_DAEMON");
        double seconds = argc > 1 ? strtod(argv[1], NULL) : 20;
        long n_groups = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
        if (argc > 3 || !tuttid || !(seconds >= 1 && seconds <= 3600) || n_groups < 0 || n_groups > 1000) {
                fprintf(stderr, "usage: TUTTI_DAEMON=/path/of/tuttid tutti-polling [SECONDS [GROUPS]]\n");
                return 64;
        }
        struct bench_daemon d;
        struct watched *w = bench_shared(sizeof(*w));
        w->seconds = seconds;
        w->n_groups = (uint32_t)n_groups;
        setvbuf(stdout, NULL, _IOLBF, 0);
        bench_daemon_start(&d, tuttid);
        bench_replicas_of(&d, 3, 2, work_or_poll, w);
        printf("all_reduce of 4 KiB, 2 replicas: %u quiet, %u beside %.0f status calls a second of %ld "
               "groups\n",
                w->n[0], w->n[1], (double)w->n_polls / (seconds / 2), 1 + n_groups);
        printf("  %-4s %12s  %12s\n", "", "quiet", "polled");
        for (int i = 0; i < 3; i++) {
                static const double p[] = { 0.5, 0.99, 0.999 };
                static const char *const names[] = { "p50", "p99", "p999" };
                static const char *const promises[] = { "promised: 10 %", "promised: 50 %", "" };
                print_change(names[i], bench_quantile(w->samples[0], w->n[0], p[i]),
                        bench_quantile(w->samples[1], w->n[1], p[i]), promises[i]);
        }
        bench_replicas_of(&d, 1, 1, measure_cost, &(struct cost){ &d, w });
        bench_daemon_stop(&d);
        return 0;
}
