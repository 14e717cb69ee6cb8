/* The machine's floor: what one collective costs at least here, with all inputs in one process, each on the
 * number of cores that there are, nobody to wait for and nothing to check.
 *
 *     contest-floor --ranks N --sizes BYTES,... [--target SECONDS]
 *
 * Lines of JSON: the fused sum of N inputs into one output and into N. Plain and non-temporal stores, the
 * better one; one core and all of them, the better one. */
#include <getopt.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "player.h"
#include "stage.h"

#define MAX_RANKS   8
#define MAX_THREADS 64
#define LANES       8

struct sum {
        const float *in[MAX_RANKS];
        float *out[MAX_RANKS];
        uint32_t n_in, n_out;
        int is_streaming;
};

void player_die(const char *what) {
        perror(what);
        exit(1);
}

/* The loader asks which clone it is before ThreadSanitizer's runtime is there. */
#ifdef __SANITIZE_THREAD__
#define CLONES
#else
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

CLONES static void sum_plain(const struct sum *s, size_t first, size_t end) {
        for (size_t i = first; i < end; i += LANES) {
                float sum[LANES];
                memcpy(sum, s->in[0] + i, sizeof(sum));
                for (uint32_t k = 1; k < s->n_in; k++)
                        for (int l = 0; l < LANES; l++)
                                sum[l] += s->in[k][i + (size_t)l];
                for (uint32_t k = 0; k < s->n_out; k++)
                        memcpy(s->out[k] + i, sum, sizeof(sum));
        }
}

__attribute__((target("avx2"))) static void sum_streaming(const struct sum *s, size_t first, size_t end) {
        for (size_t i = first; i < end; i += LANES) {
                __m256 sum = _mm256_loadu_ps(s->in[0] + i);
                for (uint32_t k = 1; k < s->n_in; k++)
                        sum = _mm256_add_ps(sum, _mm256_loadu_ps(s->in[k] + i));
                for (uint32_t k = 0; k < s->n_out; k++)
                        _mm256_stream_ps(s->out[k] + i, sum);
        }
        _mm_sfence();
}

static void sum(const struct sum *s, size_t first, size_t end) {
        if (s->is_streaming)
                sum_streaming(s, first, end);
        else
                sum_plain(s, first, end);
}

/* --- all cores --- */

static struct {
        const struct sum *sum;
        size_t n;
        uint32_t n_threads, n_rounds;
        _Atomic uint32_t n_ready, n_done;
} team;

static void *team_work(void *arg) {
        uint32_t me = (uint32_t)(uintptr_t)arg;
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((int)me, &set);
        pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
        size_t share = team.n / team.n_threads / LANES * LANES, first = share * me;
        size_t end = me + 1 == team.n_threads ? team.n : first + share;
        for (uint32_t i = 0; i < team.n_rounds; i++) {
                atomic_fetch_add(&team.n_ready, 1);
                while (atomic_load(&team.n_ready) < team.n_threads * (i + 1))
                        sched_yield();
                sum(team.sum, first, end);
        }
        atomic_fetch_add(&team.n_done, 1);
        return NULL;
}

static double team_us(const struct sum *s, size_t n, uint32_t n_threads, uint32_t n_rounds) {
        pthread_t threads[MAX_THREADS];
        team.sum = s;
        team.n = n;
        team.n_threads = n_threads;
        team.n_rounds = n_rounds;
        atomic_store(&team.n_ready, 0);
        uint64_t begun = stage_now_ns();
        for (uint32_t i = 1; i < n_threads; i++)
                if (pthread_create(&threads[i], NULL, team_work, (void *)(uintptr_t)i) != 0)
                        player_die("a thread");
        team_work(NULL);
        for (uint32_t i = 1; i < n_threads; i++)
                pthread_join(threads[i], NULL);
        return (double)(stage_now_ns() - begun) / 1e3 / n_rounds;
}

/* The best way of this machine. */
static double floor_us(struct sum *s, size_t n, double target) {
        uint32_t n_cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
        double best = 1e30;
        for (int way = 0; way < 4; way++) {
                s->is_streaming = way & 1 && __builtin_cpu_supports("avx2");
                uint32_t n_threads = way & 2 ? (n_cores < MAX_THREADS ? n_cores : MAX_THREADS) : 1;
                double once = team_us(s, n, n_threads, 3);
                double rounds = target * 1e6 / (once > 0.01 ? once : 0.01);
                double us = team_us(s, n, n_threads,
                        rounds < 5     ? 5
                        : rounds > 1e6 ? 1000000
                                       : (uint32_t)rounds);
                best = us < best ? us : best;
        }
        return best;
}

/* Memory of the kind that replicas share, and its pages. */
static float *memory(size_t n_bytes) {
        void *p =
                mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (p == MAP_FAILED)
                player_die("memory");
        memset(p, 0, n_bytes);
        return p;
}

static void measure(uint32_t n_ranks, size_t n_bytes, double target) {
        struct sum s = { .n_in = n_ranks };
        size_t n = (n_bytes / sizeof(float) + LANES - 1) / LANES * LANES, rounded = n * sizeof(float);
        for (uint32_t i = 0; i < n_ranks; i++) {
                s.in[i] = memory(rounded);
                s.out[i] = memory(rounded);
        }
        s.n_out = 1;
        double one = floor_us(&s, n, target);
        s.n_out = n_ranks;
        double own = floor_us(&s, n, target);
        printf("{\"library\": \"floor\", \"ranks\": %u, \"bytes\": %zu, \"one_output\": %.3f, "
               "\"own_outputs\": %.3f}\n",
                n_ranks, n_bytes, one, own);
        for (uint32_t i = 0; i < n_ranks; i++) {
                munmap((void *)(uintptr_t)s.in[i], rounded);
                munmap(s.out[i], rounded);
        }
}

int main(int argc, char **argv) {
        static const struct option options[] = { { "ranks", required_argument, NULL, 'r' },
                { "sizes", required_argument, NULL, 'z' }, { "target", required_argument, NULL, 't' },
                { 0 } };
        uint32_t n_ranks = 0;
        char *sizes = NULL;
        double target = 0.1;
        int c;
        while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0)
                switch (c) {
                case 'r': n_ranks = (uint32_t)atoi(optarg); break;
                case 'z': sizes = optarg; break;
                case 't': target = atof(optarg); break;
                default: return 64;
                }
        if (n_ranks < 1 || n_ranks > MAX_RANKS || !sizes) {
                fprintf(stderr, "usage: contest-floor --ranks 1..%d --sizes BYTES,... [--target SECONDS]\n",
                        MAX_RANKS);
                return 64;
        }
        while (*sizes) {
                measure(n_ranks, strtoul(sizes, &sizes, 10), target);
                sizes += *sizes == ',';
        }
        return 0;
}
