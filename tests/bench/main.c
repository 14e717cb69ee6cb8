/* tutti-bench: what tutti promises in time, measured on this machine through the real tuttid and libtutti.
 *
 *     tutti-bench [--quick]
 *
 * tuttid is found by $TUTTI_DAEMON.
 *
 * Prints one line a figure, with the promise beside it where there is one. Nothing is asserted here: tests do
 * that, at ten times the promise. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include "bench.h"

#define MAX_SAMPLES 20000

struct shared {
        _Atomic uint32_t n_at_start, n_at_end;
        uint64_t samples[MAX_SAMPLES];
        uint64_t entered[64], left[64];
        uint32_t n_samples, n;
        size_t n_bytes;
        int in_place;
};

/* All replicas are here. Spins: what is measured begins behind it. */
static void meet(_Atomic uint32_t *counter, uint32_t goal) {
        atomic_fetch_add(counter, 1);
        while (atomic_load(counter) < goal)
                sched_yield();
}

static void print_us(const char *what, double us, const char *promise) {
        printf("  %-58s %12.1f us   %s\n", what, us, promise);
}

/* --- J1: from connect to the first result, and a hundred groups --- */

static void first_result(uint32_t rank, void *arg) {
        struct shared *s = arg;
        meet(&s->n_at_start, s->n);
        uint64_t begun = bench_now_ns();
        struct tutti *t = bench_open();
        struct tutti_group *g = bench_join(t, "first");
        struct tutti_buffer *b;
        bench_ok(tutti_buffer_alloc(t, 4096, &b), "buffer");
        struct tutti_value v = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { 1024 });
        bench_ok(tutti_all_reduce(g, NULL, TUTTI_SUM, &v, &v), "all_reduce");
        if (rank == 0)
                s->samples[s->n_samples++] = bench_now_ns() - begun;
        tutti_close(t);
}

static void measure_first_result(const struct bench_daemon *d, uint32_t n_times) {
        struct shared *s = bench_shared(sizeof(*s));
        for (uint32_t i = 0; i < n_times; i++) {
                s->n = 4;
                atomic_store(&s->n_at_start, 0);
                bench_replicas(d, 4, first_result, s);
        }
        print_us("connect to first result, 4 replicas, p50",
                (double)bench_quantile(s->samples, s->n_samples, 0.5) / 1e3, "P24: 5,000 us");
        print_us("connect to first result, 4 replicas, p99",
                (double)bench_quantile(s->samples, s->n_samples, 0.99) / 1e3, "");
}

static void hundred_groups(uint32_t rank, void *arg) {
        struct shared *s = arg;
        struct tutti *t = bench_open();
        char name[32];
        meet(&s->n_at_start, s->n);
        uint64_t begun = bench_now_ns();
        for (int i = 0; i < 100; i++) {
                snprintf(name, sizeof(name), "group-%d", i);
                bench_join(t, name);
        }
        if (rank == 0)
                s->samples[0] = bench_now_ns() - begun;
        tutti_close(t);
}

static void measure_groups(const struct bench_daemon *d) {
        struct shared *s = bench_shared(sizeof(*s));
        s->n = 2;
        bench_replicas(d, 2, hundred_groups, s);
        print_us("100 groups joined one after the other, 2 replicas", (double)s->samples[0] / 1e3,
                "J1: 100,000 us");
}

/* --- P22: idle means idle --- */

static void idle(struct shared *s) {
        struct tutti *t = bench_open();
        struct tutti_group *g = bench_join(t, "idle");
        bench_ok(tutti_barrier(g, NULL), "barrier");
        atomic_fetch_add(&s->n_at_start, 1);
        while (!atomic_load(&s->n_at_end))
                usleep(100000);
        tutti_close(t);
}

struct idle_watch {
        struct shared *s;
        const struct bench_daemon *d;
        unsigned int seconds;
};

/* Rank 8 is no replica: it watches tuttid while the eight do nothing. */
static void idle_or_watch(uint32_t rank, void *arg) {
        struct idle_watch *w = arg;
        if (rank < 8) {
                idle(w->s);
                return;
        }
        while (atomic_load(&w->s->n_at_start) < 8)
                usleep(1000);
        sleep(6); /* the stall watch of the last collective looks once more after 5 s */
        struct bench_usage before = bench_usage(w->d->pid);
        sleep(w->seconds);
        struct bench_usage after = bench_usage(w->d->pid);
        w->s->samples[0] = after.cpu_ns - before.cpu_ns;
        w->s->samples[1] = after.n_switches - before.n_switches;
        atomic_store(&w->s->n_at_end, 1);
}

static void measure_idle(const struct bench_daemon *d, unsigned int seconds) {
        struct idle_watch w = { .s = bench_shared(sizeof(struct shared)), .d = d, .seconds = seconds };
        bench_replicas_of(d, 9, 8, idle_or_watch, &w);
        printf("  %-58s %12.4f %%    P22: 0.1 %%\n", "idle tuttid with 8 clients, of one core",
                (double)w.s->samples[0] / ((double)seconds * 1e9) * 100.0);
        printf("  %-58s %12.2f /s\n", "wake-ups of it", (double)w.s->samples[1] / (double)seconds);
}

/* --- collectives, one after the other --- */

/* Last in to last out: what a step waits for. */
static void collective(uint32_t rank, void *arg) {
        struct shared *s = arg;
        struct tutti *t = bench_open();
        struct tutti_group *g = bench_join(t, "collective");
        struct tutti_buffer *in, *out;
        bench_ok(tutti_buffer_alloc(t, s->n_bytes, &in), "buffer");
        bench_ok(tutti_buffer_alloc(t, s->n_bytes, &out), "buffer");
        struct tutti_value a =
                TUTTI_VALUE(.buffer = in, .dtype = TUTTI_F32, .n_dims = 1, .shape = { s->n_bytes / 4 });
        struct tutti_value b = a;
        b.buffer = out;
        for (size_t i = 0; i < s->n_bytes / 4; i++)
                ((float *)tutti_buffer_data(in))[i] = (float)(rank + 1);
        const struct tutti_value *result = s->in_place ? &a : &b;
        for (uint32_t i = 0; i < s->n_samples; i++) {
                meet(&s->n_at_start, s->n * (i + 1));
                s->entered[rank] = bench_now_ns();
                bench_ok(tutti_all_reduce(g, NULL, TUTTI_MAX, &a, result), "all_reduce");
                s->left[rank] = bench_now_ns();
                meet(&s->n_at_end, s->n * (i + 1));
                if (rank != 0)
                        continue;
                uint64_t in_ns = 0, out_ns = 0;
                for (uint32_t r = 0; r < s->n; r++) {
                        in_ns = s->entered[r] > in_ns ? s->entered[r] : in_ns;
                        out_ns = s->left[r] > out_ns ? s->left[r] : out_ns;
                }
                s->samples[i] = out_ns - in_ns;
        }
        if (((const float *)tutti_buffer_data(result->buffer))[s->n_bytes / 4 - 1] != (float)s->n) {
                fprintf(stderr, "tutti-bench: a wrong value\n");
                _exit(1);
        }
        tutti_close(t);
}

static void measure_collective(const struct bench_daemon *d, uint32_t n, size_t n_bytes, uint32_t n_times) {
        struct shared *s = bench_shared(sizeof(*s));
        char what[128], size[32];
        s->n = n;
        s->n_bytes = n_bytes;
        s->n_samples = n_times;
        bench_replicas(d, n, collective, s);
        uint64_t p50 = bench_quantile(s->samples, n_times, 0.5),
                 p99 = bench_quantile(s->samples, n_times, 0.99);
        snprintf(size, sizeof(size),
                n_bytes < 1024      ? "%zu B"
                : n_bytes < 1 << 20 ? "%zu KiB"
                                    : "%zu MiB",
                n_bytes < 1024      ? n_bytes
                : n_bytes < 1 << 20 ? n_bytes >> 10
                                    : n_bytes >> 20);
        snprintf(what, sizeof(what), "all_reduce f32, %u replicas, %s, last in to last out", n, size);
        printf("  %-58s %12.1f us   p99 %.1f us, %.2f GB/s read and written\n", what, (double)p50 / 1e3,
                (double)p99 / 1e3, (double)n_bytes * 2 * n / (double)p50);
}

static void print_machine(void) {
        struct utsname u;
        char date[32];
        time_t now = time(NULL);
        uname(&u);
        strftime(date, sizeof(date), "%F", gmtime(&now));
        printf("tutti-bench, libtutti %s, %s, %ld cores, kernel %s\n\n", tutti_version(), date,
                sysconf(_SC_NPROCESSORS_ONLN), u.release);
}

int main(int argc, char **argv) {
        int is_quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
        const char *tuttid = getenv("TUTTI_DAEMON");
        if (argc != 1 + is_quick || !tuttid) {
                fprintf(stderr, "usage: TUTTI_DAEMON=/path/of/tuttid tutti-bench [--quick]\n");
                return 64;
        }
        struct bench_daemon d;
        setvbuf(stdout, NULL, _IOLBF, 0);
        print_machine();
        bench_daemon_start(&d, tuttid);
        measure_first_result(&d, is_quick ? 30 : 200);
        measure_groups(&d);
        measure_idle(&d, is_quick ? 5 : 60);
        static const size_t sizes[] = { 4, 16 << 10, 256 << 10, 1 << 20, 16 << 20, 64 << 20 };
        const size_t n_sizes = sizeof(sizes) / sizeof(*sizes) - (size_t)is_quick;
        for (uint32_t n = 2; n <= 8; n *= 2)
                for (size_t i = 0; i < n_sizes; i++)
                        measure_collective(&d, n, sizes[i],
                                sizes[i] >= 16 << 20 ? 20
                                : is_quick           ? 1000
                                                     : 10000);
        bench_daemon_stop(&d);
        return 0;
}
