/* libtutti, prepared collectives: looked at once, run many times. Included by tutti.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *     struct tutti_prepared *step;
 *     tutti_prepare_batch_reduce(g, TUTTI_MEAN, grads, n, NULL, &step);
 *     while (train())
 *             tutti_prepared_run(step, NULL); */
#ifndef TUTTI_PREPARE_H
#define TUTTI_PREPARE_H

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A collective that is run many times: its arguments are looked at once, here, and need not be there
 * afterwards; the values are where they were, and what stands in them counts at each run. Nobody else hears
 * of preparing: each run meets under its key whatever the others bring, prepared or not, and ends as the
 * plain call would. (Plain calls that come again are started as fast by tuttid; a prepared one spares the
 * library its look at them, which counts most with many entries.)
 *
 * Values: dense, in buffers of host memory, outputs in buffers or in a result object; plain memory, device
 * memory, check_inputs and streams are UNSUPPORTED, because they have to be looked at each time. What is
 * wrong with the arguments is said here, and takes no key. `options` may be NULL.
 *
 * On OK *ret belongs to the caller. It keeps its buffers (one that is freed goes with it), may be run by
 * several threads under keys of their own, and goes with its group at the latest. */
struct tutti_prepared;
TUTTI_API enum tutti_status tutti_prepare_all_reduce(struct tutti_group *g, enum tutti_op op,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_options *options, struct tutti_prepared **ret);
TUTTI_API enum tutti_status tutti_prepare_reduce(struct tutti_group *g, enum tutti_op op,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_destinations *destinations, const struct tutti_options *options,
        struct tutti_prepared **ret);
TUTTI_API enum tutti_status tutti_prepare_broadcast(struct tutti_group *g, uint32_t root,
        const struct tutti_value *value, const struct tutti_options *options, struct tutti_prepared **ret);
TUTTI_API enum tutti_status tutti_prepare_batch_reduce(struct tutti_group *g, enum tutti_op op,
        const struct tutti_entry *entries, uint32_t n_entries, const struct tutti_options *options,
        struct tutti_prepared **ret);

/* As tutti_all_reduce, ..., and as tutti_all_reduce_start, ... . INVALID: p is NULL. */
TUTTI_API enum tutti_status tutti_prepared_run(struct tutti_prepared *p, const char *key);
TUTTI_API enum tutti_status tutti_prepared_start(
        struct tutti_prepared *p, const char *key, struct tutti_work **ret);
/* Not while a run of it goes on in another thread; works that were started stay. NULL is nothing. */
TUTTI_API void tutti_prepared_free(struct tutti_prepared *p);

#ifdef __cplusplus
}
#endif

#endif
