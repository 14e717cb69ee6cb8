/* tutti-polling: what 1,000 status calls a second cost those who work (docs/observability.md).
 *
 *     tutti-polling [SECONDS [GROUPS [PAUSE_US]]]
 *
 * Two replicas reduce 4 KiB again and again, with a pause between (0: none); beside them a third process asks
 * for the status, by turns for a quarter of a second, and not for the next. So both samples are of one run,
 * and what else the machine does is in both. All of it twice, by turns: as the machine is, and with its cores
 * kept from falling asleep by a process each that computes whenever nobody else does (SCHED_IDLE). How long a
 * core takes to wake up, and who is put on which, is the machine's; on the latter what is left is what tuttid
 * costs. GROUPS more groups are there and do nothing: each is a row of the answer. tuttid is found by
 * $TUTTI_DAEMON. Prints p50 and p99 of each, and what tuttid's process itself used for a call. Nothing is
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
#define N_FLOATS    1024
#define MAX_CORES   64
#define NAP_US      20000

enum phase { PHASE_QUIET, PHASE_POLLED, PHASE_AWAKE_QUIET, PHASE_AWAKE_POLLED, N_PHASES };

struct watched {
        _Atomic uint32_t n_here, n_phases; /* enum phase, modulo N_PHASES */
        _Atomic int is_over;
        _Atomic uint64_t n_polls;
        double seconds;
        uint32_t n_groups;
        long pause_ns;    /* between two collectives, as between two steps */
        uint64_t call_ns; /* that tuttid works for a status call */
        _Atomic uint32_t n[N_PHASES];
        uint64_t samples[N_PHASES][MAX_SAMPLES];
};

static enum phase phase_now(const struct watched *w) {
        return (enum phase)(atomic_load(&w->n_phases) % N_PHASES);
}

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
                if (phase_now(w) == PHASE_QUIET || phase_now(w) == PHASE_AWAKE_QUIET) {
                        next_ns = bench_now_ns();
                        continue;
                }
                bench_ok(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), "status");
                tutti_answer_free(a);
                atomic_fetch_add(&w->n_polls, 1);
        }
        tutti_close(t);
}

/* Until it is over. */
static void keep_a_core_awake(const struct watched *w, uint32_t core) {
        static const struct sched_param none;
        cpu_set_t cores;
        CPU_ZERO(&cores);
        CPU_SET(core, &cores);
        if (sched_setscheduler(0, SCHED_IDLE, &none) < 0 || sched_setaffinity(0, sizeof(cores), &cores) < 0)
                return; /* a core that is not ours */
        while (!atomic_load(&w->is_over))
                if (phase_now(w) < PHASE_AWAKE_QUIET)
                        usleep(NAP_US);
}

/* What began and ended in one phase. Of both ranks: one of them comes first, and waits for the other. */
static void add_sample(struct watched *w, uint32_t phase, uint64_t took_ns) {
        const uint32_t sort = phase % N_PHASES;
        if (phase == atomic_load(&w->n_phases) && atomic_load(&w->n[sort]) + 2 <= MAX_SAMPLES)
                w->samples[sort][atomic_fetch_add(&w->n[sort], 1)] = took_ns;
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
        const struct timespec pause = { .tv_nsec = w->pause_ns };
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
                add_sample(w, phase, took);
                if (data[0] > 0)
                        break;
                if (w->pause_ns > 0)
                        nanosleep(&pause, NULL);
        }
        atomic_store(&w->is_over, 1);
        tutti_close(t);
}

static void take_part(uint32_t rank, void *arg) {
        if (rank < 2)
                work(arg, rank);
        else if (rank == 2)
                poll_status(arg);
        else
                keep_a_core_awake(arg, rank - 3);
}

static void print_quantile(struct watched *w, double p, const char *name, enum phase quiet) {
        uint64_t ns[2];
        for (uint32_t i = 0; i < 2; i++)
                ns[i] = bench_quantile(w->samples[quiet + i], w->n[quiet + i], p);
        printf("  %-4s %9.1f us  %9.1f us  %+6.1f %%\n", name, (double)ns[0] / 1e3, (double)ns[1] / 1e3,
                100.0 * ((double)ns[1] / (double)ns[0] - 1));
}

static void print_half(struct watched *w, enum phase quiet, const char *cores) {
        printf("%s: %u waits quiet, %u polled; promised: p50 at most 10 %% longer, p99 50 %%\n", cores,
                w->n[quiet], w->n[quiet + 1]);
        print_quantile(w, 0.5, "p50", quiet);
        print_quantile(w, 0.99, "p99", quiet);
        print_quantile(w, 0.999, "p999", quiet);
}

struct cost {
        const struct bench_daemon *d;
        struct watched *w;
};

/* Of one call, alone: time that tuttid's threads used. */
static void measure_cost(uint32_t rank, void *arg) {
        const struct cost *cost = arg;
        const struct bench_daemon *d = cost->d;
        struct tutti *t = bench_open();
        const int n = 2000;
        join_others(cost->w, t);
        sleep(1); /* what tuttid has to do after its start is done */
        struct bench_usage before = bench_usage(d->pid);
        for (int i = 0; i < n; i++) {
                struct tutti_answer *a = NULL;
                bench_ok(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), "status");
                tutti_answer_free(a);
        }
        struct bench_usage after = bench_usage(d->pid);
        cost->w->call_ns = (after.cpu_ns - before.cpu_ns) / n;
        tutti_close(t);
}

int main(int argc, char **argv) {
        const char *tuttid = getenv("TUTTI_DAEMON");
        double seconds = argc > 1 ? strtod(argv[1], NULL) : 20;
        long n_groups = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
        long pause_us = argc > 3 ? strtol(argv[3], NULL, 10) : 0;
        if (argc > 4 || !tuttid || !(seconds >= 1 && seconds <= 3600) || n_groups < 0 || n_groups > 1000 ||
                pause_us < 0 || pause_us >= 1000000) {
                fprintf(stderr,
                        "usage: TUTTI_DAEMON=/path/of/tuttid tutti-polling [SECONDS [GROUPS [PAUSE_US]]]\n");
                return 64;
        }
        struct bench_daemon d;
        struct watched *w = bench_shared(sizeof(*w));
        w->seconds = seconds;
        w->n_groups = (uint32_t)n_groups;
        w->pause_ns = pause_us * 1000;
        setvbuf(stdout, NULL, _IOLBF, 0);
        bench_daemon_start(&d, tuttid);
        const long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
        bench_replicas_of(&d, 3 + (uint32_t)(n_cores < MAX_CORES ? n_cores : MAX_CORES), 2, take_part, w);
        bench_replicas_of(&d, 1, 1, measure_cost, &(struct cost){ &d, w });
        printf("all_reduce of 4 KiB, 2 replicas, %ld us between two, beside %.0f status calls a second of "
               "%ld "
               "groups, for each of which tuttid works %.1f us\n",
                pause_us, (double)w->n_polls / (seconds / 2), 1 + n_groups, (double)w->call_ns / 1e3);
        printf("             quiet        polled\n");
        print_half(w, PHASE_QUIET, "as it is");
        print_half(w, PHASE_AWAKE_QUIET, "cores kept awake");
        bench_daemon_stop(&d);
        return 0;
}
