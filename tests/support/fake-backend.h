/* A backend without memory: what it runs, imports and releases is counted, may be held until the test lets it
 * go (in any order), and fails at the call that the test names. For tests of the engine, the buffers and the
 * conductor. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "backends/backend.h"

struct fake_backend;

struct fake_backend *fake_backend_new(void);
void fake_backend_free(struct fake_backend *f);
struct backend *fake_backend_ops(struct fake_backend *f);

/* While held, run_chunk waits until fake_release. */
void fake_hold(struct fake_backend *f, bool is_held);
/* Lets exactly one waiting chunk go on; waits until one waits. */
void fake_release_one(struct fake_backend *f);
/* Waits until `n` chunks wait. */
void fake_wait_held(struct fake_backend *f, uint32_t n);

/* The n-th run_chunk from now on answers BAD_FD and blames `culprit`; 0: none. */
void fake_fail_chunk(struct fake_backend *f, uint32_t n, const struct memory *culprit);
/* The n-th import (or making of memory or scratch) from now on ends with `status`; 0: none. */
void fake_fail_import(struct fake_backend *f, uint32_t n, enum status status);

struct fake_counts {
        uint64_t n_chunks, n_imports, n_releases, n_threads;
        uint32_t n_at_once_most; /* chunks at the same time */
        uint64_t n_alive;        /* memories */
        uint64_t n_scratch;      /* areas made so far */
};
struct fake_counts fake_counts(struct fake_backend *f);

/* The order in which chunks began: the `count` of their plan's first step, which the test uses as a name, or,
 * of a plan with joins, the chunk's number. Fills up to n; returns how many. */
uint32_t fake_order(struct fake_backend *f, uint64_t *names, uint32_t n);
