/* gpu-bench FILE: what docs/gpu.md promises in time, measured on this card; JSON on stdout. FILE has the
 * gradients of a model (../bench/data/resnet50.tsv). $TUTTI_DAEMON is tuttid. Nothing is asserted. */
#include "../bench/bench.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "card.h"

#define MIB          ((size_t)1 << 20)
#define MAX_SAMPLES  2000
#define MAX_TENSORS  512
#define N_GROUPS     100
#define FUSED_TARGET 0.9

/* What one measurement wants, and what its replicas have seen. */
struct job {
        uint32_t n, n_samples, n_tensors;
        bool is_busy; /* the client's kernels run in another stream meanwhile */
        size_t n_bytes;
        uint64_t counts[MAX_TENSORS]; /* of floats */
        _Atomic uint32_t n_here;
        uint64_t entered[8], left[8], samples[MAX_SAMPLES], runs[MAX_SAMPLES];
        uint64_t first_ns, next_ns, made_ns, free_before, free_after;
        double copy_gbps;
        char card[128];
        int driver;
};

static struct bench_daemon tuttid;

static struct job *new_job(uint32_t n, size_t n_bytes, uint32_t n_samples) {
        struct job *j = bench_shared(sizeof(*j));
        j->n = n;
        j->n_bytes = n_bytes;
        j->n_samples = (uint32_t)gpu_size(n_samples, 3);
        return j;
}

/* All are here for the `round`th time. */
static void meet(struct job *j, uint32_t round) {
        atomic_fetch_add(&j->n_here, 1);
        while (atomic_load(&j->n_here) < j->n * round)
                sched_yield();
}

static struct tutti_buffer *take(struct tutti *t, enum tutti_cuda_path path, size_t n_bytes) {
        struct tutti_buffer *b = gpu_take(t, path, n_bytes);
        bench_ok(b ? TUTTI_OK : TUTTI_INTERNAL, tutti_cuda_path_name(path));
        return b;
}

/* --- the card by itself --- */

static void body_card(uint32_t rank, void *arg) {
        struct job *j = arg;
        CUevent begin, end;
        float ms;
        gpu_begin();
        GPU(cuDeviceGetName, j->card, sizeof(j->card), 0);
        GPU(cuDriverGetVersion, &j->driver);
        CUstream s = gpu_stream();
        CUdeviceptr from = gpu_create(j->n_bytes), to = gpu_create(j->n_bytes);
        GPU(cuEventCreate, &begin, CU_EVENT_DEFAULT);
        GPU(cuEventCreate, &end, CU_EVENT_DEFAULT);
        GPU(cuMemcpyDtoDAsync, to, from, j->n_bytes, s);
        GPU(cuEventRecord, begin, s);
        for (uint32_t i = 0; i < j->n_samples; i++)
                GPU(cuMemcpyDtoDAsync, to, from, j->n_bytes, s);
        GPU(cuEventRecord, end, s);
        GPU(cuEventSynchronize, end);
        GPU(cuEventElapsedTime, &ms, begin, end);
        j->copy_gbps = 2.0 * (double)j->n_bytes * j->n_samples / ((double)ms * 1e6);
}

/* What tutti is compared with: a memset, and a wait for it. */
static void body_launch(uint32_t rank, void *arg) {
        struct job *j = arg;
        gpu_begin();
        CUstream s = gpu_stream();
        CUdeviceptr at = gpu_create(j->n_bytes);
        for (uint32_t i = 0; i < j->n_samples; i++) {
                uint64_t begin = bench_now_ns();
                GPU(cuMemsetD8Async, at, (unsigned char)i, j->n_bytes, s);
                GPU(cuStreamSynchronize, s);
                j->samples[i] = bench_now_ns() - begin;
        }
}

/* --- collectives --- */

static void note_sample(struct job *j, uint32_t i, struct tutti_work *w) {
        struct tutti_result result;
        uint64_t in_ns = 0, out_ns = 0;
        for (uint32_t r = 0; r < j->n; r++) {
                in_ns = j->entered[r] > in_ns ? j->entered[r] : in_ns;
                out_ns = j->left[r] > out_ns ? j->left[r] : out_ns;
        }
        bench_ok(tutti_work_result(w, &result), "result");
        j->samples[i] = out_ns - in_ns;
        j->runs[i] = (uint64_t)(result.run * 1e9);
}

/* Entries lie one behind the other, each at a multiple of 256 bytes. */
static void lay_out(const struct job *j, struct tutti_buffer *in, struct tutti_buffer *out,
        struct tutti_value *values, struct tutti_entry *entries) {
        size_t offset = 0;
        for (uint32_t i = 0; i < j->n_tensors; i++) {
                struct tutti_value *a = &values[2 * i], *b = a + 1;
                *a = TUTTI_VALUE(.buffer = in, .offset = offset, .dtype = TUTTI_F32, .n_dims = 1,
                        .shape = { j->counts[i] });
                *b = *a;
                b->buffer = out;
                entries[i] = TUTTI_ENTRY(.input = a, .output = b);
                offset += (j->counts[i] * sizeof(float) + 255) / 256 * 256;
        }
}

/* Last in to last out, and what of that tuttid took from the last half to the result. */
static void body_collective(uint32_t rank, void *arg) {
        static struct tutti_value values[2 * MAX_TENSORS];
        static struct tutti_entry entries[MAX_TENSORS];
        const size_t ballast = gpu_size(64 * MIB, 4096);
        struct job *j = arg;
        struct tutti_work *w;
        gpu_begin();
        struct tutti *t = bench_open();
        struct tutti_group *g = bench_join(t, "bench");
        CUstream s = gpu_stream(), other = gpu_stream();
        CUdeviceptr busy = gpu_create(ballast);
        lay_out(j, take(t, TUTTI_CUDA_VMM_FD, j->n_bytes), take(t, TUTTI_CUDA_VMM_MADE, j->n_bytes), values,
                entries);
        for (uint32_t i = 0; i < j->n_samples; i++) {
                for (int k = 0; j->is_busy && k < 10; k++)
                        GPU(cuMemsetD8Async, busy, 1, ballast, other);
                meet(j, 2 * i + 1);
                j->entered[rank] = bench_now_ns();
                bench_ok(tutti_batch_reduce_start(g, NULL, TUTTI_SUM, entries, j->n_tensors,
                                 &TUTTI_OPTIONS(.has_stream = 1, .stream = s), &w),
                        "start");
                GPU(cuStreamSynchronize, s);
                j->left[rank] = bench_now_ns();
                bench_ok(tutti_work_wait(w, -1), "wait");
                meet(j, 2 * i + 2);
                if (rank == 0)
                        note_sample(j, i, w);
                tutti_work_free(w);
        }
        tutti_close(t);
}

static void measure(struct job *j) {
        if (j->n_tensors == 0)
                j->counts[j->n_tensors++] = j->n_bytes / sizeof(float);
        bench_replicas(&tuttid, j->n, body_collective, j);
}

static double us(uint64_t *samples, const struct job *j, double p) {
        return (double)bench_quantile(samples, j->n_samples, p) / 1e3;
}

static void print_fused(double copy_gbps) {
        static const size_t sizes[] = { 64, 256 };
        const char *comma = "";
        printf(" \"fused\": [");
        for (uint32_t n = 2; n <= 4; n *= 2)
                for (size_t i = 0; i < 2; i++) {
                        struct job *j = new_job(n, gpu_size(sizes[i] * MIB, 65536), 30);
                        measure(j);
                        double gbps = 2.0 * n * (double)j->n_bytes / (us(j->runs, j, 0.5) * 1e3);
                        printf("%s\n  {\"replicas\": %u, \"bytes\": %zu, \"gb_per_s\": %.1f, \"of_copy\": "
                               "%.3f, \"target\": %.1f}",
                                comma, n, j->n_bytes, gbps, gbps / copy_gbps, FUSED_TARGET);
                        comma = ",";
                }
        printf("],\n");
}

/* Returns the median of 4 KiB. */
static double print_latency(const char *name, bool is_busy) {
        double of_4k = 0;
        const char *comma = "";
        printf(" \"%s\": [", name);
        for (size_t n_bytes = 4; n_bytes <= 256 * MIB; n_bytes *= n_bytes == 4 ? 1024 : 16) {
                struct job *j = new_job(
                        2, gpu_size(n_bytes, n_bytes > 65536 ? 65536 : n_bytes), n_bytes > MIB ? 100 : 1000);
                j->is_busy = is_busy;
                measure(j);
                double p50 = us(j->samples, j, 0.5), p99 = us(j->samples, j, 0.99);
                printf("%s\n  {\"bytes\": %zu, \"p50_us\": %.1f, \"p99_us\": %.1f}", comma, j->n_bytes, p50,
                        p99);
                comma = ",";
                of_4k = n_bytes == 4096 ? p50 : of_4k;
        }
        printf("],\n");
        return of_4k;
}

/* --- the gradients of a model --- */

/* "64x3x7x7" */
static uint64_t elements_of(const char *shape) {
        uint64_t n = 1;
        for (char *end; *shape; shape = *end ? end + 1 : end)
                n *= strtoull(shape, &end, 10);
        return n;
}

static void read_model(struct job *j, const char *path) {
        char line[512], shape[128];
        FILE *f = fopen(path, "re");
        if (!f) {
                perror(path);
                exit(1);
        }
        while (fgets(line, sizeof(line), f) && j->n_tensors < MAX_TENSORS) {
                if (line[0] == '#' || sscanf(line, "%*s %*s %127s", shape) != 1)
                        continue;
                uint64_t n = elements_of(shape);
                n = gpu_size(n, 1 + n / 1000);
                j->counts[j->n_tensors++] = n;
                j->n_bytes += (n * sizeof(float) + 255) / 256 * 256;
        }
        fclose(f);
}

static void print_model(const char *path) {
        struct job *j = new_job(4, 0, 50);
        read_model(j, path);
        measure(j);
        printf(" \"resnet50\": {\"gradients\": %u, \"bytes\": %zu, \"replicas\": %u, \"p50_us\": %.1f, "
               "\"p99_us\": %.1f},\n",
                j->n_tensors, j->n_bytes, j->n, us(j->samples, j, 0.5), us(j->samples, j, 0.99));
}

/* --- memory --- */

static uint64_t register_one(struct tutti *t, size_t n_bytes) {
        struct tutti_buffer *b;
        CUdeviceptr at = gpu_create(n_bytes);
        uint64_t begin = bench_now_ns();
        bench_ok(tutti_cuda_buffer_register(
                         t, (void *)(uintptr_t)at, n_bytes, &TUTTI_CUDA_ARGS(.path = TUTTI_CUDA_VMM_FD), &b),
                "register");
        return bench_now_ns() - begin;
}

/* In a fresh process, of which tuttid knows nothing; its GPUs have been tested. */
static void body_registration(uint32_t rank, void *arg) {
        struct job *j = arg;
        struct tutti_buffer *b;
        gpu_begin();
        struct tutti *t = bench_open();
        j->first_ns = register_one(t, j->n_bytes);
        j->next_ns = register_one(t, j->n_bytes);
        uint64_t begin = bench_now_ns();
        bench_ok(tutti_cuda_buffer_alloc(t, j->n_bytes, &b), "alloc");
        j->made_ns = bench_now_ns() - begin;
        tutti_close(t);
}

static void print_registration(void) {
        struct job *j = new_job(1, gpu_size(64 * MIB, 65536), 1);
        bench_replicas(&tuttid, 1, body_registration, j);
        printf(" \"registration\": {\"bytes\": %zu, \"first_ms\": %.3f, \"next_ms\": %.3f, \"made_ms\": "
               "%.3f, \"target_ms\": 5},\n",
                j->n_bytes, (double)j->first_ns / 1e6, (double)j->next_ns / 1e6, (double)j->made_ns / 1e6);
}

static uint64_t free_memory(void) {
        size_t n_free, n_all;
        GPU(cuMemGetInfo, &n_free, &n_all);
        return n_free;
}

/* The first group has taken what a group takes; the others, which stay as well, should take nothing. */
static void body_groups(uint32_t rank, void *arg) {
        struct job *j = arg;
        gpu_begin();
        struct tutti *t = bench_open();
        struct tutti_buffer *b = take(t, TUTTI_CUDA_VMM_MADE, j->n_bytes);
        const struct tutti_value v =
                TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { j->n_bytes / 4 });
        for (uint32_t i = 0; i < N_GROUPS; i++) {
                char name[16];
                snprintf(name, sizeof(name), "g%u", i);
                struct tutti_group *g = bench_join(t, name);
                bench_ok(tutti_all_reduce(g, NULL, TUTTI_SUM, &v, &v), "all_reduce");
                meet(j, i + 1);
                if (rank == 0 && i == 0)
                        j->free_before = free_memory();
                if (rank == 0)
                        j->free_after = free_memory();
        }
        tutti_close(t);
}

static void print_groups(void) {
        struct job *j = new_job(2, 65536, 1);
        bench_replicas(&tuttid, 2, body_groups, j);
        printf(" \"groups\": {\"n\": %d, \"more_bytes_than_one\": %lld, \"target\": 0}\n", N_GROUPS,
                (long long)(j->free_before - j->free_after));
}

static void print_head(const struct job *card) {
        char date[32];
        time_t now = time(NULL);
        strftime(date, sizeof(date), "%F", gmtime(&now));
        printf("{\n \"rehearsal\": %s,\n", gpu_is_rehearsal() ? "true" : "false");
        if (gpu_is_rehearsal())
                printf(" \"figures\": \"of a driver in host memory: they say nothing of a GPU\",\n");
        printf(" \"card\": \"%s\", \"driver\": %d, \"mps\": %s, \"date\": \"%s\", \"tutti\": \"%s\",\n",
                card->card, card->driver, getenv("CUDA_MPS_PIPE_DIRECTORY") ? "true" : "false", date,
                tutti_version());
        printf(" \"copy\": {\"bytes\": %zu, \"gb_per_s\": %.1f},\n", card->n_bytes, card->copy_gbps);
}

int main(int argc, char **argv) {
        const char *daemon = getenv("TUTTI_DAEMON");
        if (argc != 2 || !daemon) {
                fprintf(stderr, "usage: TUTTI_DAEMON=/path/of/tuttid gpu-bench GRADIENTS.tsv\n");
                return 64;
        }
        struct job *card = new_job(1, gpu_size(512 * MIB, 65536), 50), *raw = new_job(1, 4096, 1000);
        bench_daemon_start(&tuttid, daemon);
        bench_replicas(&tuttid, 1, body_card, card);
        print_head(card);
        print_fused(card->copy_gbps);
        bench_replicas(&tuttid, 1, body_launch, raw);
        double idle = print_latency("latency", false);
        print_latency("latency_beside_a_busy_stream", true);
        printf(" \"of_4_kib\": {\"raw_launch_us\": %.1f, \"tutti_us\": %.1f, \"added_us\": %.1f, "
               "\"target_us\": 15},\n",
                us(raw->samples, raw, 0.5), idle, idle - us(raw->samples, raw, 0.5));
        print_model(argv[1]);
        print_registration();
        print_groups();
        puts("}");
        bench_daemon_stop(&tuttid);
        return 0;
}
