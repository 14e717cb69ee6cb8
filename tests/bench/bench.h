/* What the measurements share: a private tuttid, replica processes that start together, sorted samples. */
#pragma once

#include <stdint.h>
#include <sys/types.h>
#include <tutti/tutti.h>

struct bench_daemon {
        pid_t pid;
        int leash; /* tuttid ends when this closes */
        char directory[64], socket[96];
};

/* Ends the program with a sentence when it cannot. */
void bench_daemon_start(struct bench_daemon *d, const char *tuttid);
void bench_daemon_stop(struct bench_daemon *d);

/* CPU time that all threads of the process have used, and how often they went to sleep. */
struct bench_usage {
        uint64_t cpu_ns, n_switches;
};
struct bench_usage bench_usage(pid_t pid);

uint64_t bench_now_ns(void);

/* Memory shared with forked replicas, zero. */
void *bench_shared(size_t n_bytes);

/* Forks n processes that run body(rank, arg), and waits for all; a replica that fails ends the program.
 * bench_join then joins a world of `world`. */
void bench_replicas_of(const struct bench_daemon *d, uint32_t n, uint32_t world,
        void (*body)(uint32_t rank, void *arg), void *arg);
/* The same with world = n. */
void bench_replicas(
        const struct bench_daemon *d, uint32_t n, void (*body)(uint32_t rank, void *arg), void *arg);

/* In a replica: opens and joins, or ends it with the error's text. */
struct tutti *bench_open(void);
struct tutti_group *bench_join(struct tutti *t, const char *group);
void bench_ok(enum tutti_status status, const char *what);

/* Sorts, and answers the p-quantile (0..1). */
uint64_t bench_quantile(uint64_t *samples, size_t n, double p);
