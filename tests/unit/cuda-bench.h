/* The cuda backend before the fake driver, in the process of the test: a "device address" is an address here,
 * so tests look into device memory, and may. */
#pragma once

#include <stdlib.h>
#include <string.h>
#include "backends/cuda/cuda-private.h"
#include "base/clock.h"
#include "control.h"
#include "unit.h"

struct bench {
        struct gpu_backend *b;
        struct fakecuda *fake; /* counters and faults, shared with other processes of the test */
        struct gpu_options options;
};

/* Before bench_open, which sets what is not set: FAKECUDA_DEVICES and its like. */
void bench_prepare(struct bench *t, const char *n_devices);
void bench_open(struct bench *t);
/* Frees it; nothing of a device is left then. */
void bench_close(struct bench *t);

/* A chore, done. */
struct chore bench_import(struct bench *t, const struct chore *like);
void bench_release(struct bench *t, struct chore *chore);

/* Memory of a test: on GPU:k, or of the host with HOST. */
#define HOST UINT32_MAX
struct chore bench_memory(struct bench *t, uint32_t where, uint64_t n_bytes);
void *bench_data(const struct chore *chore);

/* A step over whole operands, [n_inputs + n_outputs]; rank i is input i. */
struct bench_step {
        struct step step;
        const struct chore *const *operands;
        uint64_t offset_bytes;
};
void bench_add(struct plan *p, const struct bench_step *s);
/* Frozen, for GPU:k. */
void bench_freeze(struct plan *p, uint32_t k);

/* Launched, and polled until it is over, or for `seconds`. */
void bench_launch(struct bench *t, struct run *run);
bool bench_wait(struct bench *t, struct run *run, double seconds);
/* Both, and it went well. */
void bench_run(struct bench *t, struct plan *p);

/* The fallback that begins with `what`; NULL: none. */
const char *bench_fallback(const struct bench *t, const char *what);
