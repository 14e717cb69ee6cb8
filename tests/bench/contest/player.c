#include "player.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "stage.h"

#define MAX_ROUNDS 3000
#define N_BATCHES  3

static const char *const verb_names[N_VERBS] = {
        [VERB_ALL_REDUCE] = "all_reduce",
        [VERB_ALL_REDUCE_IN_PLACE] = "all_reduce_in_place",
        [VERB_REDUCE] = "reduce",
        [VERB_BROADCAST] = "broadcast",
        [VERB_BATCH] = "batch",
};

struct player {
        const struct library *library;
        struct stage *stage;
        FILE *out; /* rank 0's */
        uint32_t rank, n;
        double target; /* s for each measurement of a cell */
        uint64_t skew_ns;
        uint32_t random;
        int daemon;       /* its CPU time counts too; 0: there is none */
        const char *what; /* of a batch: its name */
        float *in,
                *in_out; /* where a run reads; where it leaves its result unless the library says otherwise */
};

void player_die(const char *what) {
        fprintf(stderr, "contest: %s: %s\n", what, strerror(errno));
        exit(1);
}

/* --- what is played --- */

static size_t work_bytes(const struct work *w) {
        size_t n = 0;
        for (uint32_t i = 0; i < w->n_values; i++)
                n += w->counts[i];
        return n * sizeof(float);
}

static void work_make(struct work *w, enum verb verb, uint32_t n_values, size_t *counts) {
        size_t *offsets = calloc(n_values, sizeof(*offsets)), end = 0;
        if (!offsets)
                player_die("memory");
        for (uint32_t i = 0; i < n_values; i++) {
                offsets[i] = (end + 15) / 16 * 16;
                end = offsets[i] + counts[i];
        }
        *w = (struct work){
                .verb = verb, .n_values = n_values, .counts = counts, .offsets = offsets, .n_elements = end
        };
}

static void work_deinit(struct work *w) {
        free((void *)(uintptr_t)w->offsets);
}

/* Rows of `name dtype AxBxC`, as in data/. */
static uint32_t counts_read(const char *path, size_t *counts, uint32_t room) {
        char line[512];
        uint32_t n = 0;
        FILE *f = fopen(path, "re");
        if (!f)
                player_die(path);
        while (fgets(line, sizeof(line), f)) {
                char *shape = strrchr(line, '\t');
                if (line[0] == '#' || !shape || n == room)
                        continue;
                counts[n] = 1;
                for (char *at = shape + 1; *at >= '0' && *at <= '9'; at += *at == 'x')
                        counts[n] *= strtoul(at, &at, 10);
                n++;
        }
        fclose(f);
        return n;
}

/* --- right values --- */

static float put_in(uint32_t rank, size_t i) {
        return (float)(rank + 1 + i % 7);
}

/* Small integers: exact in any order. */
static float come_out(const struct player *p, enum verb verb, size_t i) {
        if (verb == VERB_BROADCAST)
                return put_in(0, i);
        return (float)(p->n * (p->n + 1) / 2) + (float)p->n * (float)(i % 7);
}

static void check(const struct player *p, const struct work *w) {
        const float *result = p->library->result ? p->library->result(w) : NULL;
        if (!result)
                result = p->in_out;
        if (w->verb == VERB_REDUCE && p->rank != 0)
                return;
        for (uint32_t v = 0; v < w->n_values; v++)
                for (size_t i = w->offsets[v]; i < w->offsets[v] + w->counts[v]; i++)
                        if (result[i] != come_out(p, w->verb, i)) {
                                fprintf(stderr,
                                        "contest: %s, rank %u of %u, %s: element %zu of value %u is %g and "
                                        "not %g\n",
                                        p->library->name, p->rank, p->n, verb_names[w->verb],
                                        i - w->offsets[v], v, (double)result[i],
                                        (double)come_out(p, w->verb, i));
                                exit(3);
                        }
}

static void play_checked(struct player *p, const struct work *w) {
        for (size_t i = 0; i < w->n_elements; i++)
                p->in[i] = put_in(p->rank, i);
        stage_meet(p->stage, p->n);
        p->library->run(w);
        check(p, w);
        stage_meet(p->stage, p->n);
        /* In place sums grow with each run: zeros stay what they are. */
        memset(p->in, 0, w->n_elements * sizeof(float));
}

/* --- time --- */

static uint64_t thread_cpu_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* What a step computes before it meets the others: 0 to skew_ns of CPU, so that who is put aside by the
 * kernel computes no less. Equal seeds for all libraries. */
static void compute(struct player *p) {
        if (p->skew_ns == 0)
                return;
        p->random = p->random * 1664525u + 1013904223u;
        uint64_t until = thread_cpu_ns() + (uint64_t)(p->random >> 8) % p->skew_ns;
        while (thread_cpu_ns() < until) {}
}

/* Of all its threads, in nanoseconds (/proc/PID/stat counts in ticks of 10 ms). */
static uint64_t daemon_cpu_ns(const struct player *p) {
        char path[384];
        uint64_t sum = 0;
        if (!p->daemon)
                return 0;
        snprintf(path, sizeof(path), "/proc/%d/task", p->daemon);
        DIR *tasks = opendir(path);
        const struct dirent *e;
        while (tasks && (e = readdir(tasks))) {
                unsigned long long ran = 0;
                snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", p->daemon, e->d_name);
                FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
                if (f && fscanf(f, "%llu", &ran) == 1)
                        sum += ran;
                if (f)
                        fclose(f);
        }
        if (tasks)
                closedir(tasks);
        return sum;
}

static uint32_t rounds_for(struct player *p, const struct work *w) {
        uint32_t n_warm = work_bytes(w) <= 65536 ? 10 : 2;
        uint64_t begun = stage_now_ns();
        for (uint32_t i = 0; i < n_warm; i++)
                p->library->run(w);
        stage_meet(p->stage, p->n);
        if (p->rank == 0) {
                double each = (double)(stage_now_ns() - begun) / 1e9 / n_warm;
                double n = p->target / (each > 1e-7 ? each : 1e-7);
                p->stage->n_rounds = n < 5 ? 5 : n > MAX_ROUNDS ? MAX_ROUNDS : (uint32_t)n;
        }
        stage_meet(p->stage, p->n);
        return p->stage->n_rounds;
}

static int compare(const void *a, const void *b) {
        double x = *(const double *)a, y = *(const double *)b;
        return x < y ? -1 : x > y;
}

static double quantile(const double *sorted, uint32_t n, double q) {
        return sorted[(uint32_t)(q * (n - 1) + 0.5)];
}

/* Last in to last out of one run. */
static double span_us(const struct player *p) {
        uint64_t in = 0, out = 0;
        for (uint32_t r = 0; r < p->n; r++) {
                const struct stage_seat *seat = &p->stage->seats[r];
                in = seat->in_ns > in ? seat->in_ns : in;
                out = seat->out_ns > out ? seat->out_ns : out;
        }
        return ((double)out - (double)in) / 1e3;
}

/* Each run by itself, all having met before. */
static void time_latency(struct player *p, const struct work *w, uint32_t n_rounds, double us[MAX_ROUNDS]) {
        struct stage_seat *seat = &p->stage->seats[p->rank];
        for (uint32_t i = 0; i < n_rounds; i++) {
                stage_meet(p->stage, p->n);
                compute(p);
                seat->in_ns = stage_now_ns();
                p->library->run(w);
                seat->out_ns = stage_now_ns();
                stage_meet(p->stage, p->n);
                if (p->rank == 0)
                        us[i] = span_us(p);
        }
        qsort(us, n_rounds, sizeof(*us), compare);
}

struct throughput {
        double us, cpu_us; /* of one run */
};

/* Run after run. CPU time: of all players, and of the daemon where there is one. */
static struct throughput time_back_to_back(struct player *p, const struct work *w, uint32_t n_rounds) {
        struct stage_seat *seat = &p->stage->seats[p->rank];
        stage_meet(p->stage, p->n);
        uint64_t cpu = stage_cpu_ns(), of_daemon = p->rank == 0 ? daemon_cpu_ns(p) : 0;
        stage_meet(p->stage, p->n);
        uint64_t begun = stage_now_ns();
        for (uint32_t i = 0; i < n_rounds; i++) {
                compute(p);
                p->library->run(w);
        }
        seat->cpu_ns = stage_cpu_ns() - cpu;
        stage_meet(p->stage, p->n);
        double took = (double)(stage_now_ns() - begun);
        struct throughput t = { .us = took / 1e3 / n_rounds };
        if (p->rank != 0)
                return t;
        double sum = (double)(daemon_cpu_ns(p) - of_daemon);
        for (uint32_t r = 0; r < p->n; r++)
                sum += (double)p->stage->seats[r].cpu_ns;
        t.cpu_us = sum / 1e3 / n_rounds;
        return t;
}

static uint64_t memory_bytes(int pid) {
        char path[64], line[128];
        unsigned long long kib = 0;
        snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
        FILE *f = fopen(path, "re");
        while (f && fgets(line, sizeof(line), f))
                if (sscanf(line, "Pss: %llu", &kib) == 1)
                        break;
        if (f)
                fclose(f);
        return (uint64_t)kib * 1024;
}

/* Shared pages count once over all processes. */
static uint64_t memory_of_all(struct player *p) {
        p->stage->seats[p->rank].memory_bytes = memory_bytes(getpid());
        stage_meet(p->stage, p->n);
        uint64_t sum = p->daemon ? memory_bytes(p->daemon) : 0;
        for (uint32_t r = 0; r < p->n; r++)
                sum += p->stage->seats[r].memory_bytes;
        stage_meet(p->stage, p->n);
        return sum;
}

static void play(struct player *p, const struct work *w) {
        static double us[MAX_ROUNDS];
        struct throughput all[N_BATCHES];
        float *out = NULL;

        p->library->prepare(w, &p->in, &out);
        p->in_out = out ? out : p->in;
        play_checked(p, w);
        uint32_t n = rounds_for(p, w);
        time_latency(p, w, n, us);
        for (int i = 0; i < N_BATCHES; i++)
                all[i] = time_back_to_back(p, w, n / N_BATCHES + 1);
        uint64_t memory = memory_of_all(p);
        if (p->rank == 0) {
                fprintf(p->out,
                        "{\"library\": \"%s\", \"ranks\": %u, \"verb\": \"%s\", \"bytes\": %zu, \"skew_us\": "
                        "%g, \"rounds\": %u, "
                        "\"p50\": %.3f, \"p99\": %.3f, \"p999\": %.3f, \"memory\": %llu, \"each\": [",
                        p->library->name, p->n, p->what ? p->what : verb_names[w->verb], work_bytes(w),
                        (double)p->skew_ns / 1e3, n, quantile(us, n, 0.5), quantile(us, n, 0.99),
                        quantile(us, n, 0.999), (unsigned long long)memory);
                for (int i = 0; i < N_BATCHES; i++)
                        fprintf(p->out, "%s%.3f", i ? ", " : "", all[i].us);
                fprintf(p->out, "], \"cpu\": [");
                for (int i = 0; i < N_BATCHES; i++)
                        fprintf(p->out, "%s%.3f", i ? ", " : "", all[i].cpu_us);
                fprintf(p->out, "]}\n");
                fflush(p->out);
        }
        if (p->library->finish)
                p->library->finish(w);
}

/* --- what it is told --- */

static void play_sizes(struct player *p, enum verb verb, const char *sizes) {
        for (char *at = (char *)(uintptr_t)sizes; *at;) {
                size_t count = strtoul(at, &at, 10) / sizeof(float);
                struct work w;
                at += *at == ',';
                work_make(&w, verb, 1, &count);
                play(p, &w);
                work_deinit(&w);
        }
}

static void play_batch(struct player *p, const char *path) {
        static size_t counts[4096];
        char name[64];
        const char *slash = strrchr(path, '/');
        struct work w;
        snprintf(name, sizeof(name), "%s", slash ? slash + 1 : path);
        *strchrnul(name, '.') = '\0';
        p->what = name;
        work_make(&w, VERB_BATCH, counts_read(path, counts, 4096), counts);
        play(p, &w);
        work_deinit(&w);
        p->what = NULL;
}

static void pin(uint32_t rank) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((int)(rank % (uint32_t)sysconf(_SC_NPROCESSORS_ONLN)), &set);
        sched_setaffinity(0, sizeof(set), &set);
}

/* From exec to the first result: contest.py knows when it began. */
static int play_first(const struct library *library, const char *path) {
        uint32_t rank, n;
        size_t count = 1;
        float *in, *out = NULL;
        struct work w;
        library->open(&rank, &n);
        work_make(&w, VERB_ALL_REDUCE, 1, &count);
        library->prepare(&w, &in, &out);
        in[0] = 1;
        library->run(&w);
        uint64_t now = stage_now_ns();
        const float *result = library->result ? library->result(&w) : NULL;
        bool is_right = (result ? result : out)[0] == (float)n;
        work_deinit(&w);
        if (!is_right)
                return 3;
        FILE *f = fopen(path, "ae");
        if (!f)
                player_die(path);
        fprintf(f, "%llu\n", (unsigned long long)now);
        fclose(f);
        library->close();
        return 0;
}

static const char usage[] = "usage: PLAYER --stage FILE --out FILE [--target SECONDS] [--skew MICROSECONDS] "
                            "[--daemon PID] [--pin]\n"
                            "              --verb VERB --sizes BYTES,... | --batch FILE.tsv | --first FILE\n";

int player_main(int argc, char **argv, const struct library *library) {
        static const struct option options[] = { { "stage", required_argument, NULL, 's' },
                { "out", required_argument, NULL, 'o' }, { "target", required_argument, NULL, 't' },
                { "skew", required_argument, NULL, 'k' }, { "daemon", required_argument, NULL, 'd' },
                { "pin", no_argument, NULL, 'p' }, { "verb", required_argument, NULL, 'v' },
                { "sizes", required_argument, NULL, 'z' }, { "batch", required_argument, NULL, 'b' },
                { "first", required_argument, NULL, 'f' }, { 0 } };
        struct player p = { .library = library, .target = 0.1 };
        const char *stage = NULL, *out = NULL, *sizes = NULL, *batch = NULL;
        int verb = N_VERBS, is_pinned = 0, c;
        while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0)
                switch (c) {
                case 's': stage = optarg; break;
                case 'o': out = optarg; break;
                case 't': p.target = atof(optarg); break;
                case 'k': p.skew_ns = (uint64_t)(atof(optarg) * 1e3); break;
                case 'd': p.daemon = atoi(optarg); break;
                case 'p': is_pinned = 1; break;
                case 'v':
                        for (verb = 0; verb < N_VERBS && strcmp(optarg, verb_names[verb]) != 0;)
                                verb++;
                        break;
                case 'z': sizes = optarg; break;
                case 'b': batch = optarg; break;
                case 'f': return play_first(library, optarg);
                default: fputs(usage, stderr); return 64;
                }
        if (!stage || !out || (!batch && (!sizes || verb == N_VERBS))) {
                fputs(usage, stderr);
                return 64;
        }
        library->open(&p.rank, &p.n);
        if (is_pinned)
                pin(p.rank);
        p.random = 12345u + 7919u * p.rank;
        p.stage = stage_open(stage);
        if (p.rank == 0 && !(p.out = fopen(out, "ae")))
                player_die(out);
        if (batch)
                play_batch(&p, batch);
        else
                play_sizes(&p, (enum verb)verb, sizes);
        stage_meet(p.stage, p.n);
        library->close();
        return 0;
}
