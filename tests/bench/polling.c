/* tutti-polling: what 1,000 status calls a second cost those who work (docs/observability.md).
 *
 *     tutti-polling [SECONDS [GROUPS [PAUSE_US]]]
 *
 * Two replicas reduce 4 KiB again and again, with a pause between (0: none); beside them a third process
 * asks, by turns for a quarter of a second each, nobody, their tuttid for the status, and a second tuttid,
 * which has nothing to do with them. So the samples are of one run, and what else the machine does is in all
 * of them; and what it costs those who work that two more processes want a core is in the second and the
 * third, so that the difference of these two is what asking costs that tuttid which works for them. All of it
 * three times, by turns: as the machine is; with its cores kept from falling asleep by a process each that
 * computes whenever nobody else does (SCHED_IDLE); and with a core to spare: those who work on the first
 * core, who asks on the second. GROUPS more groups are there and do nothing: each is a row of the answer.
 * tuttid is found by $TUTTI_DAEMON. Prints p50 and p99 of each, and what tuttid's process itself used for a
 * call. Nothing is asserted here: tests/integration/test-polling.c does that, at ten times the promise. */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
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

enum asked { ASKED_NOBODY, ASKED_OURS, ASKED_OTHER, N_ASKED };

enum cores { CORES_AS_THEY_ARE, CORES_AWAKE, CORES_APART, N_CORES };

#define N_PHASES (N_CORES * N_ASKED)

struct watched {
        _Atomic uint32_t n_here, n_phases;
        _Atomic int is_over;
        _Atomic uint64_t n_polls;
        double seconds;
        uint32_t n_groups;
        long pause_ns;    /* between two collectives, as between two steps */
        uint64_t call_ns; /* that tuttid works for a status call */
        const char *other_socket;
        _Atomic uint32_t n[N_PHASES];
        uint64_t samples[N_PHASES][MAX_SAMPLES];
};

static enum asked asked_now(const struct watched *w) {
        return (enum asked)(atomic_load(&w->n_phases) % N_ASKED);
}

static enum cores cores_now(const struct watched *w) {
        return (enum cores)(atomic_load(&w->n_phases) % N_PHASES / N_ASKED);
}

/* Where the caller may run. */
struct place {
        cpu_set_t all;
        enum cores cores; /* what it has been set for */
};

static void place_init(struct place *p) {
        p->cores = CORES_AS_THEY_ARE;
        CPU_ZERO(&p->all);
        sched_getaffinity(0, sizeof(p->all), &p->all);
}

/* Where cores are apart: on the n-th that it may use. */
static void place_follow(struct place *p, enum cores cores, int n) {
        cpu_set_t one;
        if (cores == p->cores)
                return;
        p->cores = cores;
        CPU_ZERO(&one);
        for (size_t core = 0; core < CPU_SETSIZE && n >= 0; core++)
                if (CPU_ISSET(core, &p->all) && n-- == 0)
                        CPU_SET(core, &one);
        bool is_one = cores == CORES_APART && CPU_COUNT(&one) == 1;
        sched_setaffinity(0, sizeof(one), is_one ? &one : &p->all);
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
        struct tutti *ours = bench_open(), *other;
        bench_ok(tutti_open(w->other_socket, &other), "open the other tuttid");
        join_others(w, ours);
        join_others(w, other);
        struct place place;
        place_init(&place);
        uint64_t next_ns = bench_now_ns();
        atomic_fetch_add(&w->n_here, 1);
        while (!atomic_load(&w->is_over)) {
                struct tutti_answer *a = NULL;
                sleep_until(next_ns += PERIOD_NS);
                enum asked asked = asked_now(w);
                place_follow(&place, cores_now(w), 1);
                if (asked == ASKED_NOBODY) {
                        next_ns = bench_now_ns();
                        continue;
                }
                struct tutti *t = asked == ASKED_OURS ? ours : other;
                bench_ok(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), "status");
                tutti_answer_free(a);
                atomic_fetch_add(&w->n_polls, 1);
        }
        tutti_close(ours);
        tutti_close(other);
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
                if (cores_now(w) != CORES_AWAKE)
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
        struct place place;
        place_init(&place);
        uint64_t begun = bench_now_ns();
        for (;;) {
                uint64_t now = bench_now_ns();
                uint32_t phase = (uint32_t)((now - begun) / PHASE_NS);
                if (rank == 0)
                        atomic_store(&w->n_phases, phase);
                place_follow(&place, cores_now(w), 0);
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

/* Of three samples, the first of which has this number. */
static void print_quantile(struct watched *w, double p, const char *name, uint32_t first) {
        double us[N_ASKED];
        for (uint32_t i = 0; i < N_ASKED; i++)
                us[i] = (double)bench_quantile(w->samples[first + i], w->n[first + i], p) / 1e3;
        printf("  %-4s %9.1f us %9.1f us %+6.1f %% %9.1f us %+6.1f %%\n", name, us[ASKED_NOBODY],
                us[ASKED_OURS], 100 * (us[ASKED_OURS] / us[ASKED_NOBODY] - 1), us[ASKED_OTHER],
                100 * (us[ASKED_OTHER] / us[ASKED_NOBODY] - 1));
}

static void print_part(struct watched *w, enum cores which, const char *cores) {
        const uint32_t first = (uint32_t)which * N_ASKED;
        printf("%s, %u, %u and %u waits; promised: p50 at most 10 %% longer, p99 50 %%\n", cores, w->n[first],
                w->n[first + 1], w->n[first + 2]);
        print_quantile(w, 0.5, "p50", first);
        print_quantile(w, 0.99, "p99", first);
        print_quantile(w, 0.999, "p999", first);
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
        struct bench_daemon other, d; /* connected to is the one that was started last */
        struct watched *w = bench_shared(sizeof(*w));
        w->seconds = seconds;
        w->n_groups = (uint32_t)n_groups;
        w->pause_ns = pause_us * 1000;
        setvbuf(stdout, NULL, _IOLBF, 0);
        bench_daemon_start(&other, tuttid);
        w->other_socket = other.socket;
        bench_daemon_start(&d, tuttid);
        const long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
        bench_replicas_of(&d, 3 + (uint32_t)(n_cores < MAX_CORES ? n_cores : MAX_CORES), 2, take_part, w);
        bench_replicas_of(&d, 1, 1, measure_cost, &(struct cost){ &d, w });
        printf("all_reduce of 4 KiB, 2 replicas, %ld us between two, beside %.0f status calls a second of "
               "%ld "
               "groups, for each of which tuttid works %.1f us\n",
                pause_us, (double)w->n_polls / (seconds * (N_ASKED - 1) / N_ASKED), 1 + n_groups,
                (double)w->call_ns / 1e3);
        printf("             quiet       polled            another tuttid polled\n");
        print_part(w, CORES_AS_THEY_ARE, "as it is");
        print_part(w, CORES_AWAKE, "cores kept awake");
        if (n_cores > 1)
                print_part(w, CORES_APART, "a core to spare");
        bench_daemon_stop(&d);
        bench_daemon_stop(&other);
        return 0;
}
