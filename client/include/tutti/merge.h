/* libtutti, merge calls: a function of the caller's own over everybody's values.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *     static enum tutti_status count(struct tutti_merge *m, void *userdata);     run by one replica
 *     tutti_merge_call(g, &TUTTI_MERGE(.tag = "count", .fn = count, .inputs = &v, .n_inputs = 1,
 *                                 .outputs = &n, .n_outputs = 1));               called by all */
#ifndef TUTTI_MERGE_H
#define TUTTI_MERGE_H

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A function of the caller's own, in the middle of everybody: when all replicas have called, one of them runs
 * its function over everybody's values, and what it makes goes to all.
 *
 * It runs once, on the calling thread of the elected replica (the lowest rank that takes part), never in
 * tuttid. It sees a copy of each replica's values that tuttid has put into memory of its own (of the user's
 * quota "result-bytes" while the call lasts), contiguous and read-only, so that what anybody does to the
 * originals meanwhile changes nothing.
 *
 * Tag, number, dtypes and shapes of inputs and outputs are compared before it runs (MISMATCH for all). While
 * it runs, the others wait in a second meeting under the same key: `tuttictl status` shows that as
 * "merge_result" which lacks the elected replica, and everything that ends a collective ends it: a deadline
 * (TIMEOUT; the elected one, when its function has returned, gets EXPIRED), tutti_abort of the key, the loss
 * or the leaving of the elected replica (REPLICA_LOST), and in a group with TUTTI_FAIL that of any member.
 * tutti_busy in the function stops the clocks of default deadlines. When it fails, all get ABORTED, with the
 * elected rank and what it said. Its key is in use until it returns. Outputs are written in the end by all
 * or, other than OK, by none. */
struct tutti_merge; /* what the function sees */

/* TUTTI_OK, or anything else: it has failed, for all (say why with tutti_merge_fail). It may use other
 * groups, but not this one, whose members wait for it: INVALID. */
typedef enum tutti_status (*tutti_merge_fn)(struct tutti_merge *m, void *userdata);

/* Who takes part; the rank that runs the function. */
TUTTI_API const struct tutti_ranks *tutti_merge_ranks(const struct tutti_merge *m);
TUTTI_API uint32_t tutti_merge_rank(const struct tutti_merge *m);
/* Input `i` of `rank`, 64-byte aligned; NULL: it takes no part, or there is no such input. Good until the
 * function returns, as all here. */
TUTTI_API const void *tutti_merge_value(const struct tutti_merge *m, uint32_t rank, uint32_t i);
/* Where output `i` is to be written, contiguous; all 0 at first. NULL: there is no such output. */
TUTTI_API void *tutti_merge_output(struct tutti_merge *m, uint32_t i);
/* Why it fails, in up to 200 bytes; returns TUTTI_ABORTED, so that it ends with `return
 * tutti_merge_fail(...)`. */
TUTTI_API enum tutti_status tutti_merge_fail(struct tutti_merge *m, const char *format, ...)
#if defined(__GNUC__)
        __attribute__((format(printf, 2, 3)))
#endif
        ;

struct tutti_merge_args {
        size_t struct_size;
        const char *key;   /* NULL: the next number, as everywhere */
        const char *tag;   /* what is called, for people and to be compared; NULL: nothing */
        tutti_merge_fn fn; /* required, also where it will not run */
        void *userdata;
        const struct tutti_value *inputs; /* [n_inputs], all of one struct_size */
        uint32_t n_inputs;
        const struct tutti_value *outputs; /* [n_outputs], likewise; the results, in every replica */
        uint32_t n_outputs;
        double timeout; /* s, of both meetings together; 0: the membership's default for each; < 0: none */
};

#define TUTTI_MERGE(...)                                                                                     \
        ((struct tutti_merge_args){ .struct_size = sizeof(struct tutti_merge_args), __VA_ARGS__ })
TUTTI_API void tutti_merge_args_init(struct tutti_merge_args *args);

TUTTI_API enum tutti_status tutti_merge_call(struct tutti_group *g, const struct tutti_merge_args *args);

/* A reduction by a function of the caller's own (TensorFlow's accumulation_fn): a merge_call over one value,
 * whose function gets the `n` contributions in rank order, `count` elements each, and writes the result.
 * Returns TUTTI_OK, or anything else: it has failed, for all. A mean is its own business. */
typedef enum tutti_status (*tutti_accumulate_fn)(
        const void *const *inputs, uint32_t n, void *output, uint64_t count, void *userdata);

struct tutti_reduce_with_args {
        size_t struct_size;
        const char *key;
        const char *tag; /* compared, so that all mean the same function */
        tutti_accumulate_fn fn;
        void *userdata;
        const struct tutti_value *input, *output; /* of equal shapes */
        double timeout;
};

#define TUTTI_REDUCE_WITH(...)                                                                               \
        ((struct tutti_reduce_with_args){ .struct_size = sizeof(struct tutti_reduce_with_args), __VA_ARGS__ })
TUTTI_API void tutti_reduce_with_args_init(struct tutti_reduce_with_args *args);

TUTTI_API enum tutti_status tutti_reduce_with(
        struct tutti_group *g, const struct tutti_reduce_with_args *args);

#ifdef __cplusplus
}
#endif

#endif
