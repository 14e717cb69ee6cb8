/* A classifier of two layers: 64 pixels, ReLU units, softmax over 10 digits; cross-entropy, SGD with
 * momentum.
 *
 * Its parameters are four tensors end to end in memory that the caller gives (so does its gradient): W1
 * [64][hidden], b1 [hidden], W2 [hidden][10], b2 [10]. Sums run in one fixed order, so that equal inputs give
 * equal bits. */
#pragma once

#include <stdint.h>
#include "data.h"

#define NET_TENSORS    4
#define NET_MAX_HIDDEN 1024

struct tensor {
        const char *name;
        uint32_t n_dims;
        uint64_t shape[2];
        uint32_t first, count; /* in the parameters */
};

struct net {
        uint32_t hidden, n_parameters;
        struct tensor tensors[NET_TENSORS];
};

/* `hidden`: 1..NET_MAX_HIDDEN. */
void net_init(struct net *net, uint32_t hidden);

/* Random weights, the same everywhere; biases 0. */
void net_fill(const struct net *net, float *parameters);

/* Overwrites `gradient` with that of the mean loss of `n` images; returns the mean loss. */
float net_gradient(const struct net *net, const float *parameters, const struct image *const *images,
        uint32_t n, float *gradient);

/* One step of SGD: velocity = 0.9 velocity + gradient; parameters -= 0.1 velocity. */
void net_update(const struct net *net, float *parameters, float *velocity, const float *gradient);

/* The share of `n` images that are recognised. */
double net_accuracy(const struct net *net, const float *parameters, const struct image *images, uint32_t n);

/* The largest difference of a parameter. */
float net_difference(const struct net *net, const float *a, const float *b);
