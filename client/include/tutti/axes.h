/* libtutti, collectives along an axis: gather, reduce_scatter, reduce over axes.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *     tutti_all_gather(g, NULL, 0, &rows, &table, &n_rows);     everybody's rows, one behind the other
 *     tutti_share(n, tutti_world_size(g), tutti_rank(g), &first, &mine);
 *     tutti_reduce_scatter(g, &TUTTI_REDUCE_SCATTER(.op = TUTTI_SUM, .axis = 0, .entries = &e,
 *                                     .n_entries = 1));         the sum, and of it only my slice
 *     tutti_reduce_over(g, &TUTTI_REDUCE_OVER(.op = TUTTI_MEAN, .axes = (int32_t[]){ 0 }, .n_axes = 1,
 *                                  .entries = &e, .n_entries = 1));
 *
 * An axis is a dimension of the values, counted from 0, or where it is negative from the last one (-1). All
 * that tutti.h says of collectives holds: keys, destinations, batches (whole or not at all), buffers, plain
 * memory, result objects, statuses. An axis that a value does not have is INVALID, field AXIS. */
#ifndef TUTTI_AXES_H
#define TUTTI_AXES_H

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- gather --- */

/* Everybody's values one behind the other along the axis, in the order of the ranks (of those that take part:
 * tutti_result.contributors). Inputs may differ in their lengths along the axis, which may be 0, and in
 * nothing else; a scalar has no axis.
 *
 * An output has the shape of the input but for the axis, where it says how much it has room for. The result
 * is laid out as if that were exactly its length: contiguous, or by the output's strides; what lies behind it
 * is not touched. Where any destination lacks room for the whole, all get INVALID, field SIZE, naming its
 * rank, the room and the need, and nothing is written. Replicas may have different room. How long the result
 * is, and where this replica's own part begins, tutti_work_extent tells, or `ret_extents`.
 *
 * Outputs may lie in result objects (written once, seen by all), not over inputs. */
struct tutti_gather_args {
        size_t struct_size;
        const char *key;
        int32_t axis;
        const struct tutti_entry *entries; /* one, or a batch */
        uint32_t n_entries;
        const struct tutti_options *options;
        uint64_t *ret_extents; /* [n_entries] how long each result is, when the call returns OK; NULL: not
                                  wanted. Of tutti_gather alone */
};

#define TUTTI_GATHER(...)                                                                                    \
        ((struct tutti_gather_args){ .struct_size = sizeof(struct tutti_gather_args), __VA_ARGS__ })
TUTTI_API void tutti_gather_args_init(struct tutti_gather_args *args);

TUTTI_API enum tutti_status tutti_gather(struct tutti_group *g, const struct tutti_gather_args *args);
TUTTI_API enum tutti_status tutti_gather_start(
        struct tutti_group *g, const struct tutti_gather_args *args, struct tutti_work **ret);

/* One value, to all; `ret_extent` may be NULL. */
TUTTI_API enum tutti_status tutti_all_gather(struct tutti_group *g, const char *key, int32_t axis,
        const struct tutti_value *input, const struct tutti_value *output, uint64_t *ret_extent);
TUTTI_API enum tutti_status tutti_all_gather_start(struct tutti_group *g, const char *key, int32_t axis,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_options *options, struct tutti_work **ret);

/* --- reduce_scatter --- */

/* op over all inputs, as tutti_all_reduce does it and to the same bits, but each replica receives one slice
 * of it along the axis: as long as its output is there (0, or no output: none). Slices lie in the order of
 * the ranks and add up to the inputs' length (INVALID, field EXTENT, with everybody's length); when a replica
 * is lost or has left, those who are there must take all of it. Where the own slice begins,
 * tutti_work_extent tells. An output lies apart from all inputs, unless it is the whole of its own one. */
struct tutti_reduce_scatter_args {
        size_t struct_size;
        const char *key;
        enum tutti_op op;
        int32_t axis;
        const struct tutti_entry *entries; /* one, or a batch. Destinations are all */
        uint32_t n_entries;
        const struct tutti_options *options; /* all but check_inputs */
};

#define TUTTI_REDUCE_SCATTER(...)                                                                            \
        ((struct tutti_reduce_scatter_args){                                                                 \
                .struct_size = sizeof(struct tutti_reduce_scatter_args), __VA_ARGS__ })
TUTTI_API void tutti_reduce_scatter_args_init(struct tutti_reduce_scatter_args *args);

TUTTI_API enum tutti_status tutti_reduce_scatter(
        struct tutti_group *g, const struct tutti_reduce_scatter_args *args);
TUTTI_API enum tutti_status tutti_reduce_scatter_start(
        struct tutti_group *g, const struct tutti_reduce_scatter_args *args, struct tutti_work **ret);

/* An even share of `extent` among `world` ranks: each has floor(extent / world), and the first (extent mod
 * world) one more. Where that of `rank` begins, and how long it is. A world of 0 has none. */
TUTTI_API void tutti_share(
        uint64_t extent, uint32_t world, uint32_t rank, uint64_t *ret_first, uint64_t *ret_n);

/* --- reduce over axes and replicas --- */

/* op over all elements that lie along these axes, of all replicas: ((a op b) op c)... in one chain, in the
 * order of the ranks and of one replica in that of its indices (the last dimension the fastest), in the type
 * in which the op accumulates, rounded once. MEAN divides by how many elements there were, so that replicas
 * which bring different numbers of them are weighted right; a weight counts for each of its replica's
 * elements.
 *
 * Inputs may differ in their lengths along the axes, and in nothing else; a length of 0 brings nothing, but
 * somebody must bring something (INVALID, field EXTENT). The output has the other dimensions, in their order;
 * it may keep the axes with length 1. Destinations as in tutti_reduce, but not TUTTI_TO_SAME. */
struct tutti_reduce_over_args {
        size_t struct_size;
        const char *key;
        enum tutti_op op;
        const int32_t *axes; /* [n_axes], in any order, none twice; none at all is tutti_batch_reduce */
        uint32_t n_axes;
        const struct tutti_entry *entries; /* one, or a batch */
        uint32_t n_entries;
        const struct tutti_options *options; /* all but the checks */
};

#define TUTTI_REDUCE_OVER(...)                                                                               \
        ((struct tutti_reduce_over_args){ .struct_size = sizeof(struct tutti_reduce_over_args), __VA_ARGS__ })
TUTTI_API void tutti_reduce_over_args_init(struct tutti_reduce_over_args *args);

TUTTI_API enum tutti_status tutti_reduce_over(
        struct tutti_group *g, const struct tutti_reduce_over_args *args);
TUTTI_API enum tutti_status tutti_reduce_over_start(
        struct tutti_group *g, const struct tutti_reduce_over_args *args, struct tutti_work **ret);

#ifdef __cplusplus
}
#endif

#endif
