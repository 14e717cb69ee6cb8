/* Calls that fail at the n-th time: those of this program (not of the shared libraries it loads) answer once
 * as if the kernel or the allocator had refused, then work again. By linker wrap; see failing_calls in
 * tests/meson.build.
 *
 * The usual loop: for n = 1, 2, ... call failing_at(n) or failing_call_at(), run, failing_at(0), until a run
 * met no failure. Then every error path has been taken. Calls of all threads are counted. */
#pragma once

#include <stdbool.h>

/* malloc, calloc, realloc: the n-th of them from now on answers NULL; 0: no call fails, and counting ends. */
void failing_at(unsigned int n);

enum failing_call {
        FAILING_MEMORY = 1 << 0,  /* malloc, calloc, realloc: NULL, ENOMEM */
        FAILING_MMAP = 1 << 1,    /* MAP_FAILED, ENOMEM */
        FAILING_MEMFD = 1 << 2,   /* memfd_create: EMFILE */
        FAILING_FCNTL = 1 << 3,   /* EPERM */
        FAILING_SENDMSG = 1 << 4, /* ENOBUFS */
        FAILING_RECVMSG = 1 << 5, /* ENOMEM */
        FAILING_ACCEPT = 1 << 6,  /* accept4: EMFILE */
        FAILING_ALL = (1 << 7) - 1
};

/* The n-th call of these kinds (enum failing_call, or-ed) fails; 0: none, and counting ends. */
void failing_call_at(unsigned int calls, unsigned int n);

/* Whether the failure that was asked for last has happened. */
bool failing_has_failed(void);
