/* What the files of the strategy layer share. It stands on tutti.h alone, so it could be anybody's.
 *
 *   strategy.c    life: memberships, devices, flags, shards
 *   said.c        the calling thread's last error
 *   meetings.c    cross-replica: one collective, a half for each local replica
 *   along.c       gathers, and reductions over axes
 *   run.c         replica context: threads, the meetings of a run, how it ends for all
 *   variable.c    variables: made, found, read, saved, restored
 *   change.c      assign, add, sub in both contexts
 *   arithmetic.c  elements of any dtype */
#pragma once

#include <stdint.h>
#include <tutti/strategy.h>

struct tutti_strategy {
        struct tutti *t;
        uint32_t n_local, world_size;
        int32_t rank; /* of the first */
        struct tutti_group **groups;
        char **devices;
        uint64_t n_runs;
        struct tutti_variable *variables; /* the latest first */
};

struct tutti_variable {
        struct tutti_strategy *strategy;
        struct tutti_variable *next;
        char name[64];
        enum tutti_synchronization synchronization;
        enum tutti_aggregation aggregation;
        struct tutti_value like; /* contiguous; no memory */
        uint64_t count;
        size_t n_bytes;
        struct tutti_buffer **components; /* [n_local] */
};

/* --- said.c --- */

enum tutti_status say(enum tutti_status status, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
/* What a call of tutti.h has said; OK passes. */
enum tutti_status say_last(enum tutti_status status);
enum tutti_status say_text(enum tutti_status status, const char *text);

/* --- run.c --- */

/* OK in cross-replica context; else INVALID, naming what to use instead. */
enum tutti_status check_cross_replica(const char *instead);
/* The next meeting of this replica's run; `meet` gets its key, and says what went wrong. */
enum tutti_status context_meet(struct tutti_context *c,
        enum tutti_status (*meet)(struct tutti_context *c, const char *key, void *arg), void *arg);

/* --- meetings.c --- */

/* A half for each local replica, then all are waited for. The first status that is not OK. `ret_extent`
 * (NULL: not wanted): how long the result is that they all were told. */
enum tutti_status meet_all(struct tutti_strategy *s,
        enum tutti_status (*start)(
                struct tutti_strategy *s, uint32_t i, const void *arg, struct tutti_work **ret),
        const void *arg, uint64_t *ret_extent);

/* --- arithmetic.c --- */

int dtype_is_float(enum tutti_dtype dtype);
/* dst = src, dst + src or dst - src, element by element; integers wrap. UNSUPPORTED. */
enum tutti_status change_elements(
        enum tutti_change change, enum tutti_dtype dtype, uint64_t count, void *dst, const void *src);
/* UNSUPPORTED: a dtype without literals. */
enum tutti_status fill_elements(enum tutti_dtype dtype, uint64_t count, void *dst, double literal);
/* One of n shares: floats are divided; of integers, the first ones take one more each while there is a
 * remainder, so that all add up. */
struct share {
        uint32_t rank, n;
};
enum tutti_status share_elements(
        enum tutti_dtype dtype, uint64_t count, void *dst, const void *src, struct share share);

/* --- variable.c --- */

struct tutti_value component_value(const struct tutti_variable *v, uint32_t i);
/* The value of rank `root`, in `from` where that is local, into every component. */
enum tutti_status broadcast_to_components(struct tutti_variable *v, const void *from);
