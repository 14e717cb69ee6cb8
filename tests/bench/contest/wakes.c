/* What it costs at least that N processes hand over to one more and back, as a service does: all say that
 * they have begun, the one sees it and says that it is done, all see that. Nothing is summed or checked.
 *
 *     contest-wakes --ranks N [--target SECONDS]
 *
 * One line of JSON: everybody yielding for as long as it takes, and everybody asleep until woken. */
#include <getopt.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "player.h"
#include "stage.h"

#define N_BATCHES 5

/* On a line of its own each. */
struct word {
        _Atomic uint32_t value;
        char padding[60];
};

struct table {
        struct word begun[STAGE_PLAYERS], done[STAGE_PLAYERS];
        struct word n_here; /* of those that sleep */
        double us[N_BATCHES];
};

void player_die(const char *what) {
        perror(what);
        exit(1);
}

static void say(struct word *w, uint32_t value, int is_asleep) {
        atomic_store(&w->value, value);
        if (is_asleep)
                syscall(SYS_futex, &w->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void hear(struct word *w, uint32_t value, int is_asleep) {
        uint32_t seen;
        while ((seen = atomic_load(&w->value)) != value)
                if (is_asleep)
                        syscall(SYS_futex, &w->value, FUTEX_WAIT, seen, NULL, NULL, 0);
                else
                        sched_yield();
}

/* Who comes last wakes the one that serves. */
static void be_one(struct table *t, uint32_t rank, uint32_t n, uint32_t n_rounds, int is_asleep) {
        for (uint32_t k = 1, b = 0; b < N_BATCHES; b++) {
                uint64_t begun = stage_now_ns();
                for (uint32_t i = 0; i < n_rounds; i++, k++) {
                        if (!is_asleep)
                                say(&t->begun[rank], k, 0);
                        else if (atomic_fetch_add(&t->n_here.value, 1) + 1 == n * k)
                                syscall(SYS_futex, &t->n_here.value, FUTEX_WAKE, 1, NULL, NULL, 0);
                        hear(&t->done[rank], k, is_asleep);
                }
                if (rank == 0)
                        t->us[b] = (double)(stage_now_ns() - begun) / 1e3 / n_rounds;
        }
}

static void serve(struct table *t, uint32_t n, uint32_t n_rounds, int is_asleep) {
        for (uint32_t k = 1; k <= n_rounds * N_BATCHES; k++) {
                uint32_t seen;
                while (is_asleep && (seen = atomic_load(&t->n_here.value)) < n * k)
                        syscall(SYS_futex, &t->n_here.value, FUTEX_WAIT, seen, NULL, NULL, 0);
                for (uint32_t rank = 0; !is_asleep && rank < n; rank++)
                        hear(&t->begun[rank], k, 0);
                for (uint32_t rank = 0; rank < n; rank++)
                        say(&t->done[rank], k, is_asleep);
        }
}

static int compare(const void *a, const void *b) {
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

static double handover_us(struct table *t, uint32_t n, uint32_t n_rounds, int is_asleep) {
        memset(t, 0, sizeof(*t));
        for (uint32_t rank = 0; rank <= n; rank++) {
                pid_t pid = fork();
                if (pid < 0)
                        player_die("fork");
                if (pid > 0)
                        continue;
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (rank == n)
                        serve(t, n, n_rounds, is_asleep);
                else
                        be_one(t, rank, n, n_rounds, is_asleep);
                _exit(0);
        }
        for (uint32_t rank = 0; rank <= n; rank++)
                wait(NULL);
        qsort(t->us, N_BATCHES, sizeof(*t->us), compare);
        return t->us[N_BATCHES / 2];
}

static double measure(struct table *t, uint32_t n, double target, int is_asleep) {
        double once = handover_us(t, n, 20, is_asleep), rounds = target * 1e6 / N_BATCHES / once;
        return handover_us(t, n, rounds < 20 ? 20 : rounds > 1e6 ? 1000000 : (uint32_t)rounds, is_asleep);
}

int main(int argc, char **argv) {
        static const struct option options[] = { { "ranks", required_argument, NULL, 'r' },
                { "target", required_argument, NULL, 't' }, { 0 } };
        uint32_t n = 0;
        double target = 0.1;
        int c;
        while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0)
                switch (c) {
                case 'r': n = (uint32_t)atoi(optarg); break;
                case 't': target = atof(optarg); break;
                default: return 64;
                }
        if (n < 1 || n > STAGE_PLAYERS) {
                fprintf(stderr, "usage: contest-wakes --ranks 1..%d [--target SECONDS]\n", STAGE_PLAYERS);
                return 64;
        }
        struct table *t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (t == MAP_FAILED)
                player_die("memory");
        double yielding = measure(t, n, target, 0), sleeping = measure(t, n, target, 1);
        printf("{\"library\": \"floor\", \"ranks\": %u, \"yielding\": %.3f, \"sleeping\": %.3f}\n", n,
                yielding, sleeping);
        return 0;
}
