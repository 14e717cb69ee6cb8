/* A way to turn a sealed collective into a plan. Const vtables; pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
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
        uint32_t device;                    /* which of them runs it: where its result object lives, else 0 */
        uint64_t slot_offset_bytes;         /* of the slot in that object, where outputs name one */
};

/* The sum of the weights, in rank order. */
static inline double problem_total_weight(const struct problem *problem) {
        double total = 0;
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                total += problem->weights[i];
        return total;
}

struct algorithm {
        const char *name;
        /* Whether it can do this problem at all. */
        bool (*eligible)(const struct problem *problem);
        /* Appends steps to the reset plan and sets algorithm, order, device. 0 or -ENOMEM. */
        int (*build)(const struct problem *problem, struct plan *plan);
};

/* Every input in place, one fused pass in rank order on one device, the result written once to each
 * destination. */
extern const struct algorithm algorithm_one_device;
/* A merge_call: every input is copied into its rank's part of the result object. */
extern const struct algorithm algorithm_collect;
