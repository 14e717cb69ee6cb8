/* One replica of the training: everything that this example asks of libtutti is in replica.c. */
#pragma once

#include <stdbool.h>
#include <tutti/tutti.h>
#include "data.h"
#include "net.h"
#include "report.h"
#include "sha256.h"

struct notes;

struct replica {
        struct net net;
        uint32_t rank, world_size;
        struct tutti *tutti;
        struct tutti_group *group;
        struct tutti_buffer *parameters, *gradient, *notes; /* shared with tuttid */
        struct tutti_value tensors[NET_TENSORS];            /* views of the gradient */
        struct tutti_entry entries[NET_TENSORS];
        float *velocity;           /* ours alone */
        struct progress *progress; /* while training; not ours */
        struct step_times spent;
        uint32_t n_last[TUTTI_MAX_WORLD]; /* how often each rank came last */
};

/* All of these print why and return false when they fail; replica_close takes what is there. */

/* Connects, joins the group "digits" under the rank that the launcher gave, and makes the buffers. */
bool replica_open(struct replica *r, uint32_t hidden);

/* Starts from rank 0's parameters and trains `n_steps` on `shard`. */
bool replica_train(struct replica *r, struct shard *shard, uint32_t n_steps, struct progress *progress);

/* Whether all replicas hold the same bits; false, and said, when not. */
bool replica_compare(struct replica *r, uint8_t ret_sha256[SHA256_BYTES]);

/* The averages over all replicas. */
bool replica_average_times(struct replica *r, uint32_t n_steps, struct step_times *ret);

struct latest replica_latest(const struct replica *r);

void replica_close(struct replica *r);
