#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *bench_socket;
static uint32_t bench_rank, bench_n;

static void die(const char *what) {
        fprintf(stderr, "tutti-bench: %s: %s\n", what, strerror(errno));
        exit(1);
}

uint64_t bench_now_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void *bench_shared(size_t n_bytes) {
        void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
                die("shared memory");
        return p;
}

/* --- tuttid --- */

static void bench_daemon_wait(const struct bench_daemon *d) {
        uint64_t until = bench_now_ns() + 5000000000u;
        struct tutti *t;
        while (tutti_open(d->socket, &t) != TUTTI_OK) {
                if (bench_now_ns() > until) {
                        fprintf(stderr, "tutti-bench: tuttid does not serve: %s\n", tutti_error());
                        exit(1);
                }
                usleep(1000);
        }
        tutti_close(t);
}

void bench_daemon_start(struct bench_daemon *d, const char *tuttid) {
        int leash[2];
        strcpy(d->directory, "/tmp/tutti-bench.XXXXXX");
        if (!mkdtemp(d->directory) || pipe(leash) < 0)
                die("a directory for tuttid");
        snprintf(d->socket, sizeof(d->socket), "%s/tuttid.sock", d->directory);
        d->pid = fork();
        if (d->pid < 0)
                die("fork");
        if (d->pid == 0) {
                dup2(leash[0], STDIN_FILENO);
                close(leash[0]);
                close(leash[1]);
                execl(tuttid, tuttid, "--private", "--socket", d->socket, "--log-level", "warning",
                        (char *)NULL);
                die(tuttid);
        }
        close(leash[0]);
        d->leash = leash[1];
        bench_socket = d->socket;
        bench_daemon_wait(d);
}

void bench_daemon_stop(struct bench_daemon *d) {
        char path[128];
        close(d->leash);
        waitpid(d->pid, NULL, 0);
        snprintf(path, sizeof(path), "%s/tuttid.lock", d->directory);
        unlink(path);
        rmdir(d->directory);
}

/* --- what a process uses --- */

static uint64_t read_status(const char *path, const char *field) {
        char line[256];
        unsigned long long value = 0;
        FILE *f = fopen(path, "re");
        while (f && fgets(line, sizeof(line), f))
                if (strncmp(line, field, strlen(field)) == 0)
                        value = strtoull(line + strlen(field), NULL, 10);
        if (f)
                fclose(f);
        return value;
}

struct bench_usage bench_usage(pid_t pid) {
        struct bench_usage usage = { 0 };
        char path[384];
        snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
        DIR *tasks = opendir(path);
        const struct dirent *e;
        while (tasks && (e = readdir(tasks))) {
                if (e->d_name[0] == '.')
                        continue;
                snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)pid, e->d_name);
                usage.cpu_ns += read_status(path, "");
                snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)pid, e->d_name);
                usage.n_switches += read_status(path, "voluntary_ctxt_switches:");
        }
        if (tasks)
                closedir(tasks);
        return usage;
}

/* --- replicas --- */

void bench_replicas_of(const struct bench_daemon *d, uint32_t n, uint32_t world,
        void (*body)(uint32_t rank, void *arg), void *arg) {
        pid_t pids[64];
        fflush(NULL);
        for (uint32_t rank = 0; rank < n; rank++) {
                pids[rank] = fork();
                if (pids[rank] < 0)
                        die("fork");
                if (pids[rank] > 0)
                        continue;
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                bench_socket = d->socket;
                bench_rank = rank;
                bench_n = world;
                body(rank, arg);
                _exit(0);
        }
        for (uint32_t rank = 0; rank < n; rank++) {
                int status;
                if (waitpid(pids[rank], &status, 0) < 0 || status != 0) {
                        fprintf(stderr, "tutti-bench: replica %u failed\n", rank);
                        exit(1);
                }
        }
}

void bench_replicas(
        const struct bench_daemon *d, uint32_t n, void (*body)(uint32_t rank, void *arg), void *arg) {
        bench_replicas_of(d, n, n, body, arg);
}

void bench_ok(enum tutti_status status, const char *what) {
        if (status == TUTTI_OK)
                return;
        fprintf(stderr, "tutti-bench: R%u: %s: %s: %s\n", bench_rank, what, tutti_status_name(status),
                tutti_error());
        _exit(1);
}

struct tutti *bench_open(void) {
        struct tutti *t;
        bench_ok(tutti_open(bench_socket, &t), "open");
        return t;
}

struct tutti_group *bench_join(struct tutti *t, const char *group) {
        struct tutti_group *g;
        bench_ok(tutti_join(t,
                         &TUTTI_JOIN(.group = group, .job = "bench", .rank = (int32_t)bench_rank,
                                 .world_size = (int32_t)bench_n),
                         &g),
                "join");
        return g;
}

static int compare(const void *a, const void *b) {
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
        return x < y ? -1 : x > y;
}

uint64_t bench_quantile(uint64_t *samples, size_t n, double p) {
        qsort(samples, n, sizeof(*samples), compare);
        size_t i = (size_t)(p * (double)(n - 1) + 0.5);
        return samples[i];
}
