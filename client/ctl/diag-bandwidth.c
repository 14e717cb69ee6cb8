/* Level 3: how fast tuttid reduces what does not fit into caches, beside plain code of as many processes as
 * tuttid has workers, which copies, and so reads and writes as much. Both are measured in turn, and the best
 * of each counts: what else runs on the machine makes everything slower and nothing faster. */
#include "diag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N_REPLICAS  2
#define VALUE_BYTES (UINT64_C(64) << 20) /* of each replica */
#define N_FLOATS    (VALUE_BYTES / sizeof(float))
#define MOVED_BYTES (2 * N_REPLICAS * VALUE_BYTES) /* read and written */
#define N_ROUNDS    3
#define N_TIMES     8
#define MAX_PLAIN   16
#define MIN_SHARE   0.5 /* of plain code, below which something is wrong */

struct figures {
        double best_s; /* of one reduction; 0: none ended */
        double small_s;
};

/* --- tuttid --- */

static double now_s(void) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void keep_best(double *best, double s) {
        if (*best == 0 || s < *best)
                *best = s;
}

static bool reduce_often(struct diag_replica *me, size_t n, int n_times) {
        struct tutti_buffer *in = NULL, *out = NULL;
        struct figures *f = me->shared;
        enum tutti_status status = tutti_buffer_alloc(me->t, n * sizeof(float), &in);

        if (status == TUTTI_OK)
                status = tutti_buffer_alloc(me->t, n * sizeof(float), &out);
        const struct tutti_value from = TUTTI_VALUE(.buffer = in, .dtype = TUTTI_F32, .n_dims = 1,
                                         .shape = { n }),
                                 to = TUTTI_VALUE(.buffer = out, .dtype = TUTTI_F32, .n_dims = 1,
                                         .shape = { n });
        for (int i = 0; status == TUTTI_OK && i < n_times; i++) {
                double begun = now_s();
                status = tutti_all_reduce(me->g, NULL, TUTTI_SUM, &from, &to);
                if (status != TUTTI_OK || me->rank != 0)
                        continue;
                if (n == N_FLOATS)
                        keep_best(&f->best_s, tutti_last_result()->run);
                else
                        keep_best(&f->small_s, now_s() - begun);
        }
        tutti_buffer_free(in);
        tutti_buffer_free(out);
        return status == TUTTI_OK;
}

static void reduce_large_and_small(struct diag_replica *me) {
        if (!reduce_often(me, N_FLOATS, N_TIMES) || !reduce_often(me, 1, 2000))
                _exit(1);
}

/* --- plain code --- */

/* All of them wait for the last, and the last to end is the time. */
struct plain {
        float *values[2 * N_REPLICAS]; /* two read, two written */
        uint32_t n;
};

static void plain_pass(const struct plain *p, uint32_t i) {
        size_t from = N_FLOATS / p->n * i, to = i + 1 == p->n ? N_FLOATS : N_FLOATS / p->n * (i + 1);

        for (int k = 0; k < N_REPLICAS; k++)
                memcpy(p->values[N_REPLICAS + k] + from, p->values[k] + from, (to - from) * sizeof(float));
}

/* A byte from the parent begins a pass, a byte from each child ends it. */
static void plain_child(const struct plain *p, uint32_t i, int go, int done) {
        char byte;

        while (read(go, &byte, 1) == 1) {
                plain_pass(p, i);
                if (write(done, &byte, 1) != 1)
                        break;
        }
        _exit(0);
}

static double plain_time(const int *go, int done, uint32_t n) {
        char byte = 0;
        double begun = now_s();

        for (uint32_t i = 0; i < n; i++)
                if (write(go[i], &byte, 1) != 1)
                        return 0;
        for (uint32_t i = 0; i < n; i++)
                if (read(done, &byte, 1) != 1)
                        return 0;
        return now_s() - begun;
}

static void close_all(const int *fds, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                close(fds[i]);
}

/* Forks p->n processes and has them pass N_TIMES; the best time, or 0. */
static double plain_measure(const struct plain *p) {
        int go[MAX_PLAIN], done[2];
        pid_t pids[MAX_PLAIN];
        uint32_t n = 0;
        double best = 0;

        if (pipe(done) < 0)
                return 0;
        for (; n < p->n; n++) {
                int pair[2];
                if (pipe(pair) < 0)
                        break;
                pids[n] = fork();
                if (pids[n] == 0) {
                        close_all(go, n);
                        close(pair[1]);
                        close(done[0]);
                        plain_child(p, n, pair[0], done[1]);
                }
                close(pair[0]);
                go[n] = pair[1];
                if (pids[n] < 0) {
                        close(pair[1]);
                        break;
                }
        }
        close(done[1]);
        for (int i = 0; n == p->n && i < N_TIMES; i++) {
                double s = plain_time(go, done[0], n);
                if (s > 0)
                        keep_best(&best, s);
        }
        close_all(go, n);
        close(done[0]);
        for (uint32_t i = 0; i < n; i++)
                waitpid(pids[i], NULL, 0);
        return best;
}

static bool plain_init(struct plain *p, uint32_t n_workers) {
        *p = (struct plain){ .n = n_workers < 1 ? 1 : n_workers < MAX_PLAIN ? n_workers : MAX_PLAIN };
        for (int i = 0; i < 2 * N_REPLICAS; i++)
                if (!(p->values[i] = diag_shared(VALUE_BYTES)))
                        return false;
        return true;
}

static void plain_deinit(struct plain *p) {
        for (int i = 0; i < 2 * N_REPLICAS; i++)
                diag_unshare(p->values[i], VALUE_BYTES);
}

/* --- beside each other --- */

static void judge(const struct figures *f, double plain_s, struct diag *d) {
        struct diagnosis *check = diag_add(d, 3, "bandwidth");
        double mine = MOVED_BYTES / f->best_s / 1e9, plain = MOVED_BYTES / plain_s / 1e9,
               share = mine / plain;

        line_add(&check->text,
                "2 replicas reduce 64 MiB of f32 at %.1f GB/s read and written; memcpy on %u cores moves "
                "%.1f GB/s here: %.0f %%",
                mine, d->n_workers, plain, share * 100);
        if (share < MIN_SHARE) {
                check->verdict = VERDICT_FINDING;
                line_add(&check->advice,
                        "this machine can do better: look for what else runs on tuttid's cores "
                        "(`tuttictl top`), at cpu.workers, and at CPU limits of its service or container");
        }
        check = diag_add(d, 3, "latency");
        line_add(&check->text, "2 replicas reduce one f32 in %.0f us at best", f->small_s * 1e6);
}

static void measure(struct diag *d, struct figures *f, struct plain *p) {
        struct line why = { 0 };
        double plain_s = 0;
        int r = 0;

        for (int round = 0; r == 0 && round < N_ROUNDS; round++) {
                double s = plain_measure(p);
                if (s > 0)
                        keep_best(&plain_s, s);
                r = diag_run_replicas(d, N_REPLICAS, reduce_large_and_small, f, &why);
        }
        if (r == 0 && plain_s > 0 && f->best_s > 0) {
                judge(f, plain_s, d);
                return;
        }
        struct diagnosis *check = diag_add(d, 3, "bandwidth");
        check->verdict = VERDICT_FINDING;
        line_add(&check->text, "could not be measured: %s", why.used ? why.s : "no process could be forked");
        line_add(&check->advice, "it takes 512 MiB and a few processes: see limits and quotas");
}

void diag_bandwidth(struct diag *d) {
        struct figures *f = diag_shared(sizeof(*f));
        struct plain p;

        if (plain_init(&p, d->n_workers) && f) {
                measure(d, f, &p);
        } else {
                struct diagnosis *check = diag_add(d, 3, "bandwidth");
                check->verdict = VERDICT_FINDING;
                line_add(&check->text, "could not be measured: memory is short");
                line_add(&check->advice, "it takes 512 MiB");
        }
        plain_deinit(&p);
        diag_unshare(f, sizeof(*f));
}
