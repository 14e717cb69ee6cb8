/* The digits, shuffled, split into images to train and to test with, and dealt out in shards. The same
 * everywhere. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "prng.h"

#define DIGITS_PIXELS  64
#define DIGITS_CLASSES 10
#define DIGITS_TRAIN   1436 /* four fifths, and 4 x 359 */
#define DIGITS_BATCH   32   /* images of a minibatch, where the shard has them */

/* Made from data/digits.csv by data/embed.py. */
extern const unsigned int digits_n_images;
extern const unsigned char digits_images[][DIGITS_PIXELS + 1];

struct image {
        float pixels[DIGITS_PIXELS]; /* 0..1 */
        uint32_t label;
};

struct data {
        struct image *images; /* to train, then to test with; owned */
        uint32_t n_train, n_test;
};

/* false when memory is short. */
bool data_load(struct data *ret);
void data_unload(struct data *d);

/* One replica's images, walked through in minibatches, in a new order each time round. */
struct shard {
        const struct image *images;
        uint32_t n_images, n_batch, next;
        uint32_t *order; /* owned */
        struct prng prng;
};

/* Shard `rank` of `n_shards` of equal size (what is left over belongs to none). false when memory is short or
 * when there are more shards than images. */
bool shard_init(struct shard *s, const struct data *d, uint32_t rank, uint32_t n_shards);
void shard_deinit(struct shard *s);

/* The next minibatch, of n_batch images. It never crosses the end of a round. */
void shard_next(struct shard *s, const struct image *batch[DIGITS_BATCH]);
