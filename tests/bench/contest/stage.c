#include "stage.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "player.h"

struct stage *stage_open(const char *path) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
                player_die(path);
        void *p = mmap(NULL, sizeof(struct stage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
                player_die("mapping the stage");
        close(fd);
        return p;
}

static void futex(_Atomic uint32_t *word, int op, uint32_t value) {
        syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

void stage_meet(struct stage *s, uint32_t n) {
        uint32_t turn = atomic_load(&s->turn);
        if (atomic_fetch_add(&s->n_here, 1) + 1 == n) {
                atomic_store(&s->n_here, 0);
                atomic_fetch_add(&s->turn, 1);
                if (atomic_load(&s->n_asleep) > 0)
                        futex(&s->turn, FUTEX_WAKE, INT_MAX);
                return;
        }
        atomic_fetch_add(&s->n_asleep, 1);
        while (atomic_load(&s->turn) == turn)
                futex(&s->turn, FUTEX_WAIT, turn);
        atomic_fetch_sub(&s->n_asleep, 1);
}

static uint64_t read_clock(clockid_t clock) {
        struct timespec t;
        clock_gettime(clock, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t stage_now_ns(void) {
        return read_clock(CLOCK_MONOTONIC);
}

uint64_t stage_cpu_ns(void) {
        return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}
