/* The file in which the players of one run meet: a barrier, and room for what each has to tell. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define STAGE_PLAYERS 64

/* On a line of its own, so that nobody's clock is slowed by a neighbour's. */
struct stage_seat {
        uint64_t in_ns, out_ns, cpu_ns, memory_bytes;
        uint64_t padding[12];
};

struct stage {
        _Atomic uint32_t n_here, turn, n_asleep;
        uint32_t n_rounds; /* said by rank 0 */
        struct stage_seat seats[STAGE_PLAYERS];
};

/* Of this path, which contest.py has made. Ends the program when it cannot be mapped. */
struct stage *stage_open(const char *path);
/* Returns when all n are here. The last one wakes the others, who sleep: nothing spins, so that no library
 * is timed with somebody else on its cores. */
void stage_meet(struct stage *s, uint32_t n);

uint64_t stage_now_ns(void);
/* CPU time of this process, with all its threads. */
uint64_t stage_cpu_ns(void);
