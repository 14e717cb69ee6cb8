/* NCCL (libnccl.so.2, opened at run time): a clique is one communicator on each of a set of devices. Made
 * when it is first asked for, without waiting; kept, and used by all groups in turn.
 *
 * Everything is on the one thread that owns the backend, so collectives of cliques that share devices are
 * launched in one order everywhere. When a collective fails or does not end, every clique that shares a
 * device with it is aborted with it, since their kernels may wait for each other, and made anew. */
#pragma once

#include "backends/cuda/cuda-private.h"

/* Without NCCL, or where it is not to be used, that is a fallback and nothing more. */
void cliques_open(struct cuda *c);
void cliques_close(struct cuda *c);
/* When the driver is through with all work that came from the library. */
void cliques_unload(struct cuda *c);
/* Moves on what is being made, and finds errors. */
void cliques_poll(struct cuda *c);

enum clique_state {
        CLIQUE_MAKING, /* or a collective is being handed to it: come again */
        CLIQUE_READY,
        CLIQUE_FAILED, /* *ret_why says why; asked for again, it is made anew */
};

/* Of the clique of these devices (as bits), which is made when there is none. */
enum clique_state clique_find(struct cuda *c, uint64_t devices, const char **ret_why);
/* How often it has been aborted: who finds another number than when he used it has lost his collective. */
uint64_t clique_n_aborts(struct cuda *c, uint64_t devices);

struct clique_call {
        enum clique_verb { CLIQUE_ALL_REDUCE, CLIQUE_REDUCE, CLIQUE_BROADCAST } verb;
        enum op op; /* SUM, PROD, MIN, MAX; not of a broadcast */
        enum dtype dtype;
        uint64_t count;
        uint32_t root; /* a device's index: who gets it, or has it */
        /* By index of the device. */
        CUdeviceptr in[MAX_GPU_DEVICES], out[MAX_GPU_DEVICES];
        CUstream streams[MAX_GPU_DEVICES];
};

/* Of a clique that is READY. 0: it is in the streams once clique_find says READY again; negative: it has
 * failed, and the clique with it. */
int clique_start(struct cuda *c, uint64_t devices, const struct clique_call *call) MUST_USE;
/* With all that share a device with it. */
void clique_abort(struct cuda *c, uint64_t devices, const char *why);
