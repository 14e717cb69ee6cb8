/* What the files of the GPU process share: gpu.c (its life and its loop), gpu-work.c (memory and runs). */
#pragma once

#include "base/table.h"
#include "gpu/gpu.h"
#include "worker-protocol.h"

/* Memory by the number that tuttid gave it. */
struct gpu_held {
        uint64_t number;
        struct chore chore; /* has brought it, and lets it go */
        UT_hash_handle hh;
};

/* A run under way, with the plan that it was sent. */
struct gpu_task {
        struct run run; /* first */
        struct list link;
        uint64_t ticket;
        bool is_launch_told;
        struct worker_assembly assembly;
};

struct gpu {
        int socket;
        struct gpu_backend *backend;
        struct gpu_held *helds;
        struct gpu_task *arriving; /* NULL: none */
        struct list running;       /* struct gpu_task */
        bool is_over;
        int exit_code;
        union worker_packet in, out;
};

/* Sends `out`; waits while tuttid does not read. */
void gpu_say(struct gpu *g, int fd);
void gpu_end(struct gpu *g, int exit_code);

void gpu_import(struct gpu *g, const struct worker_import *ask, int fd);
void gpu_release(struct gpu *g, const struct worker_release *ask);
void gpu_begin_run(struct gpu *g, const struct worker_run *ask);
void gpu_add_part(struct gpu *g, const struct worker_part *part);
/* Tells of all that are over, and of those that clients' streams may follow now. Whether there were any. */
bool gpu_tell_runs(struct gpu *g);
/* At the end: whatever is there goes. */
void gpu_let_go(struct gpu *g);
