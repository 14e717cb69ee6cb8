/* libtutti-strategy: what people know as StrategyExtended, in C, on top of tutti.h alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *     struct tutti_strategy *s;
 *     tutti_strategy_open(t, &TUTTI_STRATEGY(.group = "train", .n_local = 2, .world_size = 2), &s);
 *     tutti_variable_new(s, &TUTTI_VARIABLE(.name = "w", .dtype = TUTTI_F32), &w);
 *     tutti_strategy_run(s, step, w);          every replica: step(context, w)
 *
 * A strategy is this process's part of a group: `n_local` replicas (threads here, 1 or more), whose ranks
 * follow one another. The others are in other processes, which run the same program.
 *
 * Two contexts. Cross-replica is where a strategy's own functions are called: one thread of each process, all
 * processes in the same order; a distributed value is an array of n_local values there, one for each local
 * replica. Replica context is inside the function that tutti_strategy_run calls for each replica, and takes a
 * struct tutti_context. A function that belongs to the other context answers INVALID and names the one to
 * use.
 *
 * Each call returns a status; tutti_strategy_error has the sentences. What meets by itself uses keys that
 * begin with "strategy/", and numbers of the memberships. */
#ifndef TUTTI_STRATEGY_H
#define TUTTI_STRATEGY_H

#include <tutti/merge.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tutti_strategy;
struct tutti_context;  /* one replica, while tutti_strategy_run runs */
struct tutti_variable; /* a value that lives in every replica */

/* The sentences of the calling thread's last call here that failed ("" before the first). */
TUTTI_API const char *tutti_strategy_error(void);

/* --- a strategy --- */

struct tutti_strategy_args {
        size_t struct_size;
        const char *group;  /* required */
        const char *job;    /* as in tutti_join */
        uint32_t n_local;   /* replicas of this process; 0: one */
        int32_t rank;       /* of the first of them, where world_size is not 0 */
        int32_t world_size; /* of all processes together; 0: with n_local > 1 this process is all there is,
                               else the launcher's environment says rank and size */
        double timeout;     /* s, the default of all that meets; 0: tuttid's */
        enum tutti_on_death on_death;
        const char *const *devices; /* [n_local], names for people; NULL: "CPU:0" for each */
        /* What every collective of this strategy is done with, unless its own options say otherwise, as in
         * tutti_join_args. NULL: all defaults. Looked at during the call. */
        const struct tutti_options *options;
};

#define TUTTI_STRATEGY(...)                                                                                  \
        ((struct tutti_strategy_args){ .struct_size = sizeof(struct tutti_strategy_args), __VA_ARGS__ })

TUTTI_API void tutti_strategy_args_init(struct tutti_strategy_args *args);

/* Joins all local replicas; returns when the group is complete. As tutti_join; NO_MEMORY. `t` must outlive
 * it. */
TUTTI_API enum tutti_status tutti_strategy_open(
        struct tutti *t, const struct tutti_strategy_args *args, struct tutti_strategy **ret);
/* Leaves with all local replicas; frees the strategy and its variables. NULL is fine. */
TUTTI_API void tutti_strategy_close(struct tutti_strategy *s);

TUTTI_API uint32_t tutti_strategy_n_local(const struct tutti_strategy *s);
TUTTI_API uint32_t tutti_strategy_num_replicas_in_sync(const struct tutti_strategy *s);
/* The membership of local replica i; NULL where there is none. */
TUTTI_API struct tutti_group *tutti_strategy_group(const struct tutti_strategy *s, uint32_t i);

/* The devices of the local replicas, n_local names; where parameters live: with the replicas. Two replicas
 * may be on one device. */
TUTTI_API const char *const *tutti_strategy_worker_devices(const struct tutti_strategy *s);
TUTTI_API const char *const *tutti_strategy_parameter_devices(const struct tutti_strategy *s);
/* Where what belongs to no single variable lives: with every replica. The token that update_non_slot takes.
 */
TUTTI_API const char *const *tutti_strategy_non_slot_devices(const struct tutti_strategy *s);

/* Whether other processes run the same program. */
TUTTI_API int tutti_strategy_between_graph(const struct tutti_strategy *s);
TUTTI_API int tutti_strategy_should_init(const struct tutti_strategy *s);         /* always */
TUTTI_API int tutti_strategy_should_checkpoint(const struct tutti_strategy *s);   /* who has rank 0 */
TUTTI_API int tutti_strategy_should_save_summary(const struct tutti_strategy *s); /* who has rank 0 */

/* A data set of n_rows in as many shards as replicas: rank r has rows *ret_first and on, *ret_n of them.
 * Shards are contiguous, differ by one row at most, and hold each row once. */
TUTTI_API void tutti_strategy_shard_rows(
        const struct tutti_strategy *s, uint32_t rank, uint64_t n_rows, uint64_t *ret_first, uint64_t *ret_n);

/* --- cross-replica context --- */

/* One value: `values` and `outputs` are arrays of n_local. `outputs` may be NULL for TUTTI_TO_SAME, and for
 * destinations without a local rank. */
struct tutti_reduction {
        size_t struct_size;
        const struct tutti_value *values, *outputs;
        struct tutti_destinations destinations;
        /* Of sparse values (tutti.h): how many rows the result has. NULL: nobody asks. Set with OK alone. */
        uint64_t *ret_extent;
};
#define TUTTI_REDUCTION(...)                                                                                 \
        ((struct tutti_reduction){ .struct_size = sizeof(struct tutti_reduction), __VA_ARGS__ })

TUTTI_API void tutti_reduction_init(struct tutti_reduction *reduction);

TUTTI_API enum tutti_status tutti_strategy_reduce_to(struct tutti_strategy *s, enum tutti_op op,
        const struct tutti_reduction *reduction, const struct tutti_options *options);
/* All of them in one meeting, whole or not at all. */
TUTTI_API enum tutti_status tutti_strategy_batch_reduce_to(struct tutti_strategy *s, enum tutti_op op,
        const struct tutti_reduction *reductions, uint32_t n, const struct tutti_options *options);
/* Dimensions: [n], negative ones count from the last. */
struct tutti_axes {
        const int32_t *list;
        uint32_t n;
};
/* Over these axes of each value as well, as tutti_reduce_over; NULL: over none, which is
 * tutti_strategy_reduce_to. (Strategy.reduce. There the op is SUM or MEAN; here it is any.) */
TUTTI_API enum tutti_status tutti_strategy_reduce(struct tutti_strategy *s, enum tutti_op op,
        const struct tutti_reduction *value, const struct tutti_axes *axes,
        const struct tutti_options *options);
/* All values one behind the other along the axis, in the order of the ranks, as tutti_gather; how long the
 * result is (NULL: not wanted). */
TUTTI_API enum tutti_status tutti_strategy_gather(struct tutti_strategy *s, int32_t axis,
        const struct tutti_reduction *value, const struct tutti_options *options, uint64_t *ret_extent);
/* The value of rank `root` (which counts where that is local) into those of `outputs`, an array of n_local,
 * that are destinations (NULL: all), as tutti_broadcast_into. */
TUTTI_API enum tutti_status tutti_strategy_broadcast_to(struct tutti_strategy *s, uint32_t root,
        const struct tutti_value *value, const struct tutti_value *outputs,
        const struct tutti_destinations *destinations, const struct tutti_options *options);

/* --- replica context --- */

typedef enum tutti_status (*tutti_replica_fn)(struct tutti_context *c, void *userdata);

/* Calls fn(context, userdata) once for each replica, each in a thread of its own, at the same time; returns
 * when all replicas of all processes have returned. (call_for_each_replica, Strategy.run.) OK: all did so
 * with OK. Otherwise, in every process: the status that a replica of this process returned first, or MISMATCH
 * when it was another process's; its sentences are this thread's. A replica that fails makes the meetings of
 * all others in this run fail; so does one that meets more or less often than they. INVALID: called in
 * replica context, or in a merge function. */
TUTTI_API enum tutti_status tutti_strategy_run(struct tutti_strategy *s, tutti_replica_fn fn, void *userdata);
/* Why fn fails, in up to 200 bytes; returns `status`. */
TUTTI_API enum tutti_status tutti_context_fail(
        struct tutti_context *c, enum tutti_status status, const char *why);

TUTTI_API struct tutti_strategy *tutti_context_strategy(const struct tutti_context *c);
TUTTI_API uint32_t tutti_context_replica_id(const struct tutti_context *c); /* the rank */
TUTTI_API uint32_t tutti_context_local_id(const struct tutti_context *c);   /* 0 .. n_local - 1 */
TUTTI_API uint32_t tutti_context_num_replicas(const struct tutti_context *c);
TUTTI_API struct tutti_group *tutti_context_group(const struct tutti_context *c);

/* As tutti_merge_call; its key is the run's. All replicas must make the same meetings in the same order. */
TUTTI_API enum tutti_status tutti_context_merge_call(
        struct tutti_context *c, const struct tutti_merge_args *args);
/* Reduces a batch over all replicas; results to all. `options` may be NULL. */
TUTTI_API enum tutti_status tutti_context_all_reduce(struct tutti_context *c, enum tutti_op op,
        const struct tutti_entry *entries, uint32_t n_entries, const struct tutti_options *options);

/* Gathers a batch (the leaves of a nest) along one axis, as tutti_gather; its gradient is a
 * tutti_reduce_scatter by SUM. `options` and `ret_extents` [n_entries] may be NULL. */
TUTTI_API enum tutti_status tutti_context_all_gather(struct tutti_context *c, int32_t axis,
        const struct tutti_entry *entries, uint32_t n_entries, const struct tutti_options *options,
        uint64_t *ret_extents);

/* --- variables --- */

/* MIRRORED (TensorFlow's AUTO, ON_WRITE): all components are equal, since whatever changes it does so in all.
 * ON_READ: each replica changes its own alone, and reading combines them. */
enum tutti_synchronization { TUTTI_MIRRORED = 0, TUTTI_ON_READ };
/* How the values of several replicas become one. */
enum tutti_aggregation {
        TUTTI_AGGREGATION_NONE = 0,
        TUTTI_AGGREGATION_SUM,
        TUTTI_AGGREGATION_MEAN,
        TUTTI_AGGREGATION_ONLY_FIRST_REPLICA
};

struct tutti_variable_args {
        size_t struct_size;
        const char *name; /* required, at most 63 bytes, for people and for finding it */
        enum tutti_dtype dtype;
        uint32_t n_dims;
        uint64_t shape[TUTTI_MAX_DIMS];
        const void *initial; /* contiguous; that of rank 0 counts; NULL: all 0 */
        enum tutti_synchronization synchronization;
        enum tutti_aggregation aggregation;
        const struct tutti_variable *colocate_with; /* to live where that one lives; of this strategy */
};
#define TUTTI_VARIABLE(...)                                                                                  \
        ((struct tutti_variable_args){ .struct_size = sizeof(struct tutti_variable_args), __VA_ARGS__ })

TUTTI_API void tutti_variable_args_init(struct tutti_variable_args *args);

/* Cross-replica. The value of rank 0 goes to every component. INVALID: the name, or MEAN of what is no float
 * (of integers it has a fraction that the variable cannot hold). */
TUTTI_API enum tutti_status tutti_variable_new(
        struct tutti_strategy *s, const struct tutti_variable_args *args, struct tutti_variable **ret);
TUTTI_API void tutti_variable_free(struct tutti_variable *v);

TUTTI_API const char *tutti_variable_name(const struct tutti_variable *v);
TUTTI_API size_t tutti_variable_bytes(const struct tutti_variable *v); /* of a component */
/* Component i of this process, and the value that is all of it. */
TUTTI_API void *tutti_variable_component(const struct tutti_variable *v, uint32_t i);
TUTTI_API enum tutti_status tutti_variable_value(
        const struct tutti_variable *v, uint32_t i, struct tutti_value *ret);

/* Whether it belongs to this strategy. */
TUTTI_API int tutti_strategy_created(const struct tutti_strategy *s, const struct tutti_variable *v);
/* The variable that has this component; NULL: none of this strategy. (value_container.) */
TUTTI_API struct tutti_variable *tutti_strategy_value_container(
        const struct tutti_strategy *s, const void *component);
/* The devices of v, where variables made with .colocate_with = v live; NULL: it is of another strategy. */
TUTTI_API const char *const *tutti_strategy_colocate_vars_with(
        const struct tutti_strategy *s, const struct tutti_variable *v);

enum tutti_change { TUTTI_ASSIGN = 0, TUTTI_ASSIGN_ADD, TUTTI_ASSIGN_SUB };

/* Changes it by a value of its dtype and shape, in contiguous memory.
 *
 * Cross-replica (c NULL): `value` is the same in all processes. MIRRORED: every component. ON_READ: assigned,
 * each component gets value, with SUM a share of it, so that the total is `value` (of integers the lower
 * ranks take the remainder); ADD and SUB change each component, with SUM INVALID.
 *
 * In a replica: `value` is this replica's. ON_READ, and MIRRORED with NONE: its own component alone. MIRRORED
 * with SUM or MEAN: all replicas meet, and the combined value changes every component; with
 * ONLY_FIRST_REPLICA it is rank 0's.
 *
 * Assignment does every dtype; ADD, SUB and shares are for integers and F32, F64 (UNSUPPORTED). */
TUTTI_API enum tutti_status tutti_variable_change(
        struct tutti_variable *v, struct tutti_context *c, enum tutti_change change, const void *value);
/* The same by a literal, for every element, equal in all replicas: nobody meets. In a replica, MIRRORED
 * with SUM: INVALID, unless it is 0, for what equal literals add up to nobody can tell. */
TUTTI_API enum tutti_status tutti_variable_change_literal(
        struct tutti_variable *v, struct tutti_context *c, enum tutti_change change, double literal);

/* Reads it into contiguous memory. In a replica: its own component. Cross-replica: MIRRORED the component of
 * the first local replica; ON_READ all replicas meet, and SUM or MEAN of all components, or rank 0's; with
 * NONE INVALID. (read_var.) */
TUTTI_API enum tutti_status tutti_variable_read(struct tutti_variable *v, struct tutti_context *c, void *ret);
/* Cross-replica: what a checkpoint holds of it (every process has it), and from there back: with another
 * number of replicas the total of an ON_READ variable with SUM is the same. */
TUTTI_API enum tutti_status tutti_variable_save(struct tutti_variable *v, void *ret);
TUTTI_API enum tutti_status tutti_variable_restore(struct tutti_variable *v, const void *saved);

/* Cross-replica: fn(component i, userdata) for each local component in order; where one fails the rest are
 * left. `userdata` is an array of n_local pointers, one for each, or of one, for all (n_userdata says which).
 */
typedef enum tutti_status (*tutti_update_fn)(void *component, uint32_t local_id, void *userdata);
TUTTI_API enum tutti_status tutti_strategy_update(struct tutti_strategy *s, struct tutti_variable *v,
        tutti_update_fn fn, void *const *userdata, uint32_t n_userdata);
/* The same without a variable (component NULL), once for each device of `devices`, which must be what
 * tutti_strategy_non_slot_devices returns. */
TUTTI_API enum tutti_status tutti_strategy_update_non_slot(struct tutti_strategy *s,
        const char *const *devices, tutti_update_fn fn, void *const *userdata, uint32_t n_userdata);

#ifdef __cplusplus
}
#endif

#endif
