/* Inside of the fake NCCL: communicators of one process, whose collectives are work in the streams of the
 * fake driver. Guarded by that one's lock. */
#pragma once

#include <nccl.h>
#include "fake.h"

enum { MAX_RANKS = FAKE_MAX_DEVICES, ERROR_BYTES = 160 };

/* nccl.h declares them without saying that they take nothing. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

struct collective;

/* What the communicators of one unique id have in common. */
struct clique {
        struct clique *next;
        uint64_t id;
        int n_ranks, n_joined;
        unsigned int n_refs; /* communicators, also ended ones whose work is not over */
        int64_t ready_at_ns; /* once all have joined: some time after that */
        struct ncclComm *comms[MAX_RANKS];
        struct collective *collectives; /* under way */
};

struct ncclComm {
        struct ncclComm *next; /* all that are alive */
        struct clique *clique;
        int rank;
        struct fake_context *context;
        pthread_t thread; /* that made it */
        bool is_blocking, is_ended, is_finalizing;
        unsigned int n_works; /* in streams */
        uint64_t n_collectives;
        int64_t busy_until_ns;    /* after a call that only begins something */
        bool is_settled;          /* somebody asked, and heard that nothing is in progress; or it blocks */
        ncclResult_t error;       /* asynchronous */
        struct fake_fault *stall; /* keeps it from becoming ready */
        uint64_t memory;          /* number of its allocation on the device */
};

/* fake_enter in NCCL's words. */
ncclResult_t fake_nccl_enter(enum fake_call call);
ncclResult_t fake_nccl_leave(ncclResult_t result);

/* Notes why, for ncclGetLastError, and returns the error. */
ncclResult_t fake_nccl_refuse(ncclResult_t error, const char *why);

bool fake_comm_is_known(const struct ncclComm *comm);
ncclResult_t fake_comm_state(const struct ncclComm *comm);
void fake_comm_unref(struct ncclComm *comm); /* a work of it is over */

/* Whether this thread stands between ncclGroupStart and ncclGroupEnd. */
bool fake_group_is_open(void);
/* Keeps the collective for ncclGroupEnd. */
struct nccl_work;
ncclResult_t fake_group_add(struct nccl_work *work);
ncclResult_t fake_collective_submit(struct nccl_work *work);
/* Those for which some ranks never came, when all that did have gone. */
void fake_collectives_free(struct clique *q);
/* On ncclGroupEnd's way. */
ncclResult_t fake_group_add_init(struct ncclComm *comm);

/* --- the arithmetic --- */

/* 0 for a type that the fake has not. */
size_t fake_nccl_type_bytes(ncclDataType_t type);

struct nccl_reduction {
        ncclDataType_t type;
        ncclRedOp_t op;
        int n_ranks;
        size_t count;
        const void *const *from; /* n_ranks inputs */
        void *const *to;         /* n_ranks outputs; NULL: none */
};
void fake_nccl_reduce(const struct nccl_reduction *r);
