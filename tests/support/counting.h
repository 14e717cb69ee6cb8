/* What a process does that a hot path must not: heap calls, and the mutexes that its main thread takes.
 * Counted by counting.c, a library to be preloaded, in a file that the test maps too. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/* The environment says which file; it has the size of struct counting. */
#define COUNTING_VARIABLE "TUTTI_TEST_COUNTING"
#define COUNTING_MUTEXES  64

struct counting {
        _Atomic uint64_t n_heap_calls;      /* malloc, calloc, realloc and their kin, of all threads */
        _Atomic uint64_t last_callers[4];   /* of the last few of them: return addresses */
        _Atomic uint64_t n_locks_elsewhere; /* by threads other than the main one */
        struct {
                _Atomic uint64_t address, n; /* address 0: unused */
        } mutexes[COUNTING_MUTEXES];         /* of the main thread */
        _Atomic uint64_t n_mutexes_lost;     /* locks of more mutexes than there is room for */
};
