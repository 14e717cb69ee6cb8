#include "data.h"

#include <stdlib.h>

#define SPLIT_SEED 1998

static void read_image(const unsigned char *row, struct image *ret) {
        for (int i = 0; i < DIGITS_PIXELS; i++)
                ret->pixels[i] = (float)row[i] / 16.0f;
        ret->label = row[DIGITS_PIXELS];
}

static uint32_t *new_order(uint32_t n) {
        uint32_t *order = malloc(n * sizeof(*order));
        for (uint32_t i = 0; order && i < n; i++)
                order[i] = i;
        return order;
}

bool data_load(struct data *ret) {
        uint32_t n = digits_n_images, *order = new_order(n);
        struct image *images = malloc(n * sizeof(*images));
        if (!order || !images) {
                free(order);
                free(images);
                return false;
        }
        /* The file is sorted by writer. */
        prng_shuffle(&(struct prng){ SPLIT_SEED }, order, n);
        for (uint32_t i = 0; i < n; i++)
                read_image(digits_images[order[i]], &images[i]);
        free(order);
        *ret = (struct data){ .images = images, .n_train = DIGITS_TRAIN, .n_test = n - DIGITS_TRAIN };
        return true;
}

void data_unload(struct data *d) {
        free(d->images);
        d->images = NULL;
}

bool shard_init(struct shard *s, const struct data *d, uint32_t rank, uint32_t n_shards) {
        uint32_t n_images = d->n_train / n_shards;
        *s = (struct shard){
                .images = d->images + (size_t)rank * n_images,
                .n_images = n_images,
                .n_batch = n_images < DIGITS_BATCH ? n_images : DIGITS_BATCH,
                .next = n_images, /* the first minibatch begins a round */
                .order = n_images ? new_order(n_images) : NULL,
                .prng = { rank },
        };
        return s->order;
}

void shard_deinit(struct shard *s) {
        free(s->order);
        s->order = NULL;
}

void shard_next(struct shard *s, const struct image *batch[DIGITS_BATCH]) {
        if (s->n_images - s->next < s->n_batch) {
                prng_shuffle(&s->prng, s->order, s->n_images);
                s->next = 0;
        }
        for (uint32_t i = 0; i < s->n_batch; i++)
                batch[i] = &s->images[s->order[s->next++]];
}
