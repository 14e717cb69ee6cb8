/* The same training in one process without tuttid, to compare with. */
#pragma once

#include <stdbool.h>
#include "data.h"
#include "net.h"
#include "report.h"

/* Trains `parameters`, from the same start, with the minibatches that `n_shards` replicas would take. The
 * gradients of a step are combined in the order of ranks, as tuttid does it, so that the same bits come out.
 * `progress` may be NULL. false when memory is short or when there are more shards than images. */
bool alone_train(const struct net *net, const struct data *data, uint32_t n_shards, uint32_t n_steps,
        struct progress *progress, float *parameters);
