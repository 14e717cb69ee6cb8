/* A way to turn a sealed collective into a plan. Const vtables; pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "algorithms/topology.h"
#include "model/signature.h"
#include "plan.h"

/* A sealed collective as the planner sees it: halves in rank order. */
struct problem {
        const struct signature *signature; /* equal in all halves */
        uint32_t n_ranks;
        const uint32_t *ranks;              /* [n_ranks], growing */
        const struct entry *const *entries; /* [n_ranks] -> [signature->n_entries] */
        const double *weights;              /* [n_ranks], where signature->options.has_weight */
        uint32_t divisor;                   /* of MEAN without weights */
        uint32_t n_devices;                 /* host devices */
        uint32_t device; /* the one that reduces, unless the options name one: where its result object lives,
                            else CPU:0, or the GPU of its values */
        const uint32_t *homes; /* [n_ranks]: devices whose memory the values are in; NULL: the host */
        bool is_mixed;         /* some half whose home is a GPU has values in host memory too */
        bool is_bound;         /* it is `device` that reduces: the result object is in its memory */
        bool is_spread;        /* some half has values in memory of several GPUs */
        const struct topology *topology; /* NULL: that of the host */
        uint32_t n_sparse;               /* entries that are sparse */
        uint64_t slot_offset_bytes;      /* of the slot in that object, where outputs name one */
};

/* The sum of the weights, in rank order. */
static inline double problem_total_weight(const struct problem *problem) {
        double total = 0;
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                total += problem->weights[i];
        return total;
}

/* Of what lies in scratch between the steps of a plan, so much of an island and type at a time. */
#define ROUND_BYTES (UINT64_C(4) << 20)

struct algorithm {
        enum algorithm_name name;
        enum plan_order order;
        /* Why it cannot do this problem, as the end of a sentence; NULL: it can. */
        const char *(*unfit)(const struct problem *problem);
        /* Appends steps to the reset plan and sets its device. 0 or -ENOMEM. */
        int (*build)(const struct problem *problem, struct plan *plan);
};

/* Every input in place, one fused pass in rank order on one device, the result written once to each
 * destination. */
extern const struct algorithm algorithm_one_device;
/* Two levels: each island of devices that reach each other sums its own, the islands' sums become one. */
extern const struct algorithm algorithm_hierarchical_copy;
/* The backend's own all-reduce. */
extern const struct algorithm algorithm_library;
/* A merge_call: every input is copied into its rank's part of the result object. */
extern const struct algorithm algorithm_collect;
/* A gather: every input is copied to where it belongs in the outputs. */
extern const struct algorithm algorithm_gather;
