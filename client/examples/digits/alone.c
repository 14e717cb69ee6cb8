#include "alone.h"

#include <stdlib.h>
#include <string.h>

struct alone {
        const struct net *net;
        uint32_t n_shards;
        struct shard *shards;             /* [n_shards] */
        float *sum, *gradient, *velocity; /* [n_parameters] each */
};

static void alone_deinit(struct alone *a) {
        for (uint32_t i = 0; a->shards && i < a->n_shards; i++)
                shard_deinit(&a->shards[i]);
        free(a->shards);
        free(a->sum);
        free(a->gradient);
        free(a->velocity);
}

static bool alone_init(struct alone *a, const struct net *net, const struct data *data, uint32_t n_shards) {
        *a = (struct alone){
                .net = net,
                .n_shards = n_shards,
                .shards = calloc(n_shards, sizeof(*a->shards)),
                .sum = calloc(net->n_parameters, sizeof(float)),
                .gradient = calloc(net->n_parameters, sizeof(float)),
                .velocity = calloc(net->n_parameters, sizeof(float)),
        };
        bool is_good = a->shards && a->sum && a->gradient && a->velocity;
        for (uint32_t i = 0; is_good && i < n_shards; i++)
                is_good = shard_init(&a->shards[i], data, i, n_shards);
        if (!is_good)
                alone_deinit(a);
        return is_good;
}

/* The mean gradient of all shards' next minibatches, into a->sum; returns the loss of the first. */
static float mean_gradient(struct alone *a, const float *parameters) {
        const struct image *batch[DIGITS_BATCH];
        float first_loss = 0.0f;

        for (uint32_t r = 0; r < a->n_shards; r++) {
                float *gradient = r == 0 ? a->sum : a->gradient;
                shard_next(&a->shards[r], batch);
                float loss = net_gradient(a->net, parameters, batch, a->shards[r].n_batch, gradient);
                if (r == 0)
                        first_loss = loss;
                else
                        for (uint32_t i = 0; i < a->net->n_parameters; i++)
                                a->sum[i] += a->gradient[i];
        }
        for (uint32_t i = 0; i < a->net->n_parameters; i++)
                a->sum[i] /= (float)a->n_shards;
        return first_loss;
}

bool alone_train(const struct net *net, const struct data *data, uint32_t n_shards, uint32_t n_steps,
        struct progress *progress, float *parameters) {
        struct alone a;

        if (!alone_init(&a, net, data, n_shards))
                return false;
        net_fill(net, parameters);
        for (uint32_t step = 1; step <= n_steps; step++) {
                float loss = mean_gradient(&a, parameters);
                net_update(net, parameters, a.velocity, a.sum);
                if (progress)
                        progress_step(progress, step, loss, 0.0);
        }
        alone_deinit(&a);
        return true;
}
