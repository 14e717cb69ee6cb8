/* libtutti: replicas of one host meet in tuttid and get merged values back.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *     struct tutti *t;
 *     struct tutti_group *g;
 *     tutti_open(NULL, &t);
 *     tutti_join(t, &TUTTI_JOIN(.group = "train"), &g);
 *     tutti_all_reduce(g, "grads", TUTTI_MEAN, &v, &v);
 *
 * Every call returns a status; the sentence and the data behind a status other than OK come from tutti_error
 * (of the calling thread's last call) or from tutti_work_error. No hidden thread, no signal handler, no
 * callback (a merge function runs inside the call that names it). Any thread may call; a handle may be used
 * by several threads at once, but not while it is being freed. After fork a child may only close what it
 * inherited: every other call answers TUTTI_FORKED.
 *
 * Sizes and offsets are in bytes, counts and shapes in elements, times in seconds (double) or, where the name
 * says so, nanoseconds. Strings are copied. Argument structs begin with their size (set by the macros and
 * _init functions), so that they can grow. */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include <stddef.h>
#include <stdint.h>
#include <tutti/options.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TUTTI_API __attribute__((visibility("default")))
#else
#define TUTTI_API
#endif

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0

#define TUTTI_MAX_DIMS      8
#define TUTTI_MAX_WORLD     1024
#define TUTTI_MAX_KEY_BYTES 128
#define TUTTI_MAX_ENTRIES   65536

/* What happened. The list only grows. */
enum tutti_status {
        TUTTI_OK = 0,
        TUTTI_INVALID,         /* the arguments contradict themselves or the rules */
        TUTTI_UNSUPPORTED,     /* understood, but not done by this tuttid; the text lists what is */
        TUTTI_MISMATCH,        /* the replicas disagree; nothing was written */
        TUTTI_ALREADY_PENDING, /* this key of this replica is still pending; the first call goes on */
        TUTTI_TIMEOUT,         /* I waited, somebody did not come */
        TUTTI_EXPIRED,         /* I was late: this key ended without me */
        TUTTI_ABORTED,         /* a member gave the key up */
        TUTTI_CANCELLED,       /* this wait was cancelled by tutti_work_cancel */
        TUTTI_PEER_REFUSED,    /* a member's half was refused */
        TUTTI_REPLICA_LOST,    /* a member died, disconnected or was ejected */
        TUTTI_LEFT,            /* this membership has ended by leave */
        TUTTI_OUTPUT_LOST,     /* begun in place and not known to be done; or done, and its length unknown */
        TUTTI_QUOTA,           /* a limit of this user */
        TUTTI_LIMIT,           /* a limit for everybody */
        TUTTI_PERMISSION,
        TUTTI_VERSION, /* libtutti and tuttid have no common protocol */
        TUTTI_BAD_FD,
        TUTTI_NOT_FOUND,
        TUTTI_NO_MEMORY,
        TUTTI_BUSY,
        TUTTI_FORKED,      /* inherited over fork: open anew in the child */
        TUTTI_NO_DAEMON,   /* nobody answers at the socket */
        TUTTI_DAEMON_LOST, /* tuttid ended; memory stays mapped and ours */
        TUTTI_DRAINING,
        TUTTI_DEVICE_LOST,
        TUTTI_INTERNAL,
        TUTTI_PENDING = 255 /* from wait and test: not yet */
};

enum tutti_dtype {
        TUTTI_DTYPE_UNSPECIFIED = 0,
        TUTTI_U8,
        TUTTI_I8,
        TUTTI_U16,
        TUTTI_I16,
        TUTTI_U32,
        TUTTI_I32,
        TUTTI_U64,
        TUTTI_I64,
        TUTTI_F16,
        TUTTI_BF16,
        TUTTI_F32,
        TUTTI_F64,
        TUTTI_BOOL,
        TUTTI_C64,
        TUTTI_C128
};

/* There is no default op. MEAN divides the sum by the number of contributors before the one rounding to the
 * dtype. */
enum tutti_op {
        TUTTI_OP_UNSPECIFIED = 0,
        TUTTI_SUM,
        TUTTI_MEAN,
        TUTTI_PROD,
        TUTTI_MIN,
        TUTTI_MAX,
        TUTTI_BAND,
        TUTTI_BOR,
        TUTTI_BXOR,
        TUTTI_LAND,
        TUTTI_LOR
};

enum tutti_access { TUTTI_INOUT = 0, TUTTI_IN, TUTTI_OUT };

/* What happens to the others when a replica is lost. FAIL: every unsealed collective and every later one ends
 * with REPLICA_LOST, until the group is formed anew by tutti_rejoin or tutti_shrink. SHRINK: the group goes
 * on without it. Ranks never renumber. */
enum tutti_on_death { TUTTI_FAIL = 0, TUTTI_SHRINK };
/* Whether MEAN divides by those who are left (CONTRIBUTORS) or as if those who left had brought zeros
 * (ZERO_FILL). */
enum tutti_on_leave { TUTTI_CONTRIBUTORS = 0, TUTTI_ZERO_FILL };

struct tutti;        /* a connection to tuttid */
struct tutti_group;  /* a membership of a group */
struct tutti_buffer; /* memory shared with tuttid */
struct tutti_object; /* a result object: memory of tuttid's that all members of a group read */
struct tutti_work;   /* a collective under way */

TUTTI_API const char *tutti_version(void);
TUTTI_API const char *tutti_status_name(enum tutti_status status);
TUTTI_API const char *tutti_dtype_name(enum tutti_dtype dtype);
/* 0 for unknown values. */
TUTTI_API size_t tutti_dtype_bytes(enum tutti_dtype dtype);

/* --- errors --- */

enum tutti_field {
        TUTTI_FIELD_UNSPECIFIED = 0,
        TUTTI_FIELD_KIND,
        TUTTI_FIELD_OP,
        TUTTI_FIELD_ROOT,
        TUTTI_FIELD_DTYPE,
        TUTTI_FIELD_OUTPUT_DTYPE,
        TUTTI_FIELD_SHAPE,
        TUTTI_FIELD_LAYOUT,
        TUTTI_FIELD_DESTINATIONS,
        TUTTI_FIELD_BATCH_LENGTH,
        TUTTI_FIELD_OPTIONS,
        TUTTI_FIELD_WORLD_SIZE,
        TUTTI_FIELD_RANK,
        TUTTI_FIELD_BUFFER,
        TUTTI_FIELD_OFFSET,
        TUTTI_FIELD_STRIDES,
        TUTTI_FIELD_OVERLAP,
        TUTTI_FIELD_DATA,
        TUTTI_FIELD_KEY,
        TUTTI_FIELD_GROUP,
        TUTTI_FIELD_JOB,
        TUTTI_FIELD_ACCESS,
        TUTTI_FIELD_SIZE,
        TUTTI_FIELD_DESCRIPTOR,
        TUTTI_FIELD_ENTRIES,
        TUTTI_FIELD_TIMEOUT,
        TUTTI_FIELD_MEMBERSHIP,
        TUTTI_FIELD_VERSION,
        TUTTI_FIELD_AXIS = 30,
        TUTTI_FIELD_EXTENT = 31,
        TUTTI_FIELD_INDICES = 34,
        TUTTI_FIELD_INDEX_DTYPE = 35,
        TUTTI_FIELD_DENSE_SHAPE = 36
};

enum tutti_loss { TUTTI_LOSS_UNSPECIFIED = 0, TUTTI_DIED, TUTTI_DISCONNECTED, TUTTI_EJECTED, TUTTI_WENT };
enum tutti_process_state { TUTTI_STATE_UNKNOWN = 0, TUTTI_ALIVE, TUTTI_STOPPED, TUTTI_DEAD, TUTTI_ABSENT };

/* A set of ranks: bit (r % 64) of words[r / 64]. */
struct tutti_ranks {
        uint64_t words[TUTTI_MAX_WORLD / 64];
};

/* MISMATCH: these ranks say this. */
struct tutti_error_class {
        struct tutti_ranks ranks;
        const char *value;
};

/* A missing, guilty or lost replica. */
struct tutti_replica {
        uint32_t rank, pid, uid; /* pid 0: not visible from tuttid */
        enum tutti_process_state state;
        const char *last_key; /* what it last finished ("grad/6", "#17"); NULL: nothing yet */
        double last_age;      /* s ago */
        const char *busy;     /* why, while it says it is busy; else NULL */
};

/* The data behind a status. All pointers live as long as the struct: until the thread's next call, or until
 * the work is freed. */
struct tutti_error_info {
        enum tutti_status status;
        enum tutti_status cause; /* EXPIRED: why it had ended; PEER_REFUSED: the peer's status */
        enum tutti_field field;
        const char *field_name;
        enum tutti_loss loss;
        int outputs_undefined;         /* 1: outputs may be half written */
        const char *job, *group, *key; /* "" where there is none */
        uint64_t epoch;
        int32_t entry; /* of a batch; -1 */
        int32_t rank;  /* the one it is about; -1 */
        struct tutti_ranks have, missing;
        uint32_t n_classes;
        const struct tutti_error_class *classes;
        uint32_t n_replicas;
        const struct tutti_replica *replicas;
        double age;           /* s: how long it waited, or how long ago it happened */
        uint64_t used, limit; /* QUOTA, LIMIT */
        const char *detail;
        const char *text; /* the sentences */
};

/* The sentences of the calling thread's last failed synchronous call ("" before the first). */
TUTTI_API const char *tutti_error(void);
/* The same as data. Never NULL. */
TUTTI_API const struct tutti_error_info *tutti_error_info(void);

/* --- connection --- */

/* Connects. `socket_path` NULL: $TUTTI_SOCKET, else the first that exists of /run/tutti/tuttid.sock and
 * $XDG_RUNTIME_DIR/tutti/tuttid.sock. NO_DAEMON, PERMISSION (names the socket's group), VERSION, QUOTA, LIMIT
 * (path longer than 107 bytes), NO_MEMORY. */
TUTTI_API enum tutti_status tutti_open(const char *socket_path, struct tutti **ret);

struct tutti_open_args {
        size_t struct_size;
        const char *socket_path; /* NULL: as with tutti_open */
        double reconnect;        /* s; 0: TUTTI_RECONNECT of the environment, else none; < 0: none */
};

#define TUTTI_OPEN(...)                                                                                      \
        ((struct tutti_open_args){ .struct_size = sizeof(struct tutti_open_args), __VA_ARGS__ })
TUTTI_API void tutti_open_args_init(struct tutti_open_args *args);

/* tutti_open with more to say.
 *
 * `reconnect`: when tuttid ends (killed, stopped, upgraded), the connection waits so many seconds for another
 * one at the same path, and goes on with it: buffers are registered anew, groups go on in their epochs with
 * their numbers, and what was under way is carried out once. That happens inside the calls of this library;
 * a call takes longer meanwhile, and nothing else is seen, but for one end: OUTPUT_LOST, to all members
 * alike, of a collective that was being written over its own inputs in buffers when tuttid was killed.
 * Nothing else has happened to it then: fill the inputs anew and submit it again. (Values in plain memory are
 * kept, and never end so; those in place are read again from there.) One whose length only the answer would
 * have told (gather, sparse values) ends so for the member that did not get it. A member that is not back
 * within the join timeout counts as lost. What a work tells of its result (times, checks) is nothing where
 * its answer died with tuttid. When the time is over: DAEMON_LOST for everything, as without.
 *
 * Not carried over: result objects and buffers in device memory. A connection that has any is lost as
 * without. */
TUTTI_API enum tutti_status tutti_open_with(const struct tutti_open_args *args, struct tutti **ret);

/* Leaves all groups, frees all groups, buffers and works of it, disconnects. In a forked child it frees local
 * memory only. NULL is fine. */
TUTTI_API void tutti_close(struct tutti *t);

/* One descriptor for an event loop: when it is readable, call tutti_dispatch. Owned by the library. It tells
 * also of works whose end another call or thread has taken in. -1: in a forked child, or there is no
 * descriptor left. */
TUTTI_API int tutti_fd(struct tutti *t);

/* Takes in what has arrived, without waiting. OK, DAEMON_LOST, FORKED. Works that ended are seen by
 * tutti_work_test. */
TUTTI_API enum tutti_status tutti_dispatch(struct tutti *t);

/* --- groups --- */

struct tutti_join_args {
        size_t struct_size;
        const char *group;   /* required, 1..63 bytes, printable UTF-8 */
        const char *job;     /* NULL: TUTTI_JOB, TORCHELASTIC_RUN_ID, MASTER_ADDR:MASTER_PORT, PMIX_NAMESPACE,
                                SLURM_JOB_ID.STEP */
        int32_t rank;        /* counts where world_size is not 0; -1: from the launcher's environment */
        int32_t world_size;  /* 0: it and the rank are those of the launcher's environment (TUTTI, torchrun,
                                Open MPI, PMI, SLURM); -1: this one is, rank is as given */
        double join_timeout; /* s; 0: tuttid's default (60 s) */
        double default_timeout; /* s, of every collective of this membership; 0: tuttid's default (600 s); <
                                   0: none */
        enum tutti_on_death on_death;
        enum tutti_on_leave on_leave;
        const char *secret; /* NULL: TUTTI_JOB_SECRET, else none. Keeps out who does not know it */
        /* What every collective of this membership is done with, unless its own options say otherwise
         * (TUTTI_RESET_...). NULL: all defaults. Looked at during the call. */
        const struct tutti_options *options;
        /* Of the member that makes the group: its flight record goes when the group ends, and no other
         * group's record goes for its sake. For a group that is of no interest once it has ended. */
        int brief_record;
};

#define TUTTI_JOIN(...)                                                                                      \
        ((struct tutti_join_args){ .struct_size = sizeof(struct tutti_join_args), __VA_ARGS__ })
TUTTI_API void tutti_join_args_init(struct tutti_join_args *args);

/* Takes a rank and returns when all ranks have. TIMEOUT names the missing; BUSY names the pid that holds the
 * rank; MISMATCH: another world size or policy; INVALID: job, rank or size neither given nor in the
 * environment; UNSUPPORTED: a world over several hosts.
 *
 * In a group that has been whole, a rank that was lost or has left may be taken by an ordinary join like
 * this. It returns when the group is formed anew: all other ranks are held, and every member that was there
 * has called tutti_rejoin. join_timeout ends this join alone (TIMEOUT naming whom it waited for); the rank is
 * free again then. */
TUTTI_API enum tutti_status tutti_join(
        struct tutti *t, const struct tutti_join_args *args, struct tutti_group **ret);

/* Leaves in peace: the others go on without. The handle stays, for errors, until tutti_group_free; later
 * calls answer LEFT. A new tuttid that the group is being brought back to (`reconnect`) is told when it has
 * taken it, which waits for the others: if that is not soon, by a later call on the connection. */
TUTTI_API enum tutti_status tutti_leave(struct tutti_group *g);
/* Leaves unless that has been done, and frees the handle. NULL is fine. */
TUTTI_API void tutti_group_free(struct tutti_group *g);

/* Forms the group anew. Every member that is alive must call the same; the call returns when a new epoch has
 * begun for all of them.
 *
 * tutti_rejoin waits for newcomers (tutti_join) in all ranks that were lost or have left, tutti_shrink goes
 * on without these. World size and ranks stay as they are; who takes part is told by the result of each
 * collective. In the new epoch, which tutti_epoch tells, collectives without a key are numbered from 0, and
 * nobody is EXPIRED for what was missed before. What the old epoch has pending ends with REPLICA_LOST; what
 * already runs ends as it would have. A submission made by another thread before this call returns may count
 * in the old epoch: REPLICA_LOST. Also in a group that has lost nobody: a meeting that begins an epoch.
 *
 * `timeout` in s; 0: tuttid's join timeout (60 s). It ends this call alone, the others wait on, and the group
 * is as it was: call again. While members wait, others may die or leave: then their ranks are free, and
 * tutti_rejoin waits for those too, and tutti_shrink no longer for them.
 *
 * TIMEOUT names the members that did not call and the ranks that nobody took; MISMATCH: all have called, some
 * for the one and some for the other (nobody was answered otherwise, the group is as it was);
 * ALREADY_PENDING: another thread waits in such a call for this membership; LEFT, DAEMON_LOST, FORKED,
 * DRAINING, NO_MEMORY; INVALID: the timeout is negative. */
TUTTI_API enum tutti_status tutti_rejoin(struct tutti_group *g, double timeout);
TUTTI_API enum tutti_status tutti_shrink(struct tutti_group *g, double timeout);

TUTTI_API uint32_t tutti_rank(const struct tutti_group *g);
TUTTI_API uint32_t tutti_world_size(const struct tutti_group *g);
/* 1 when a group is formed for the first time; grows each time it is formed anew, also when all have left in
 * between, for as long as tuttid remembers it (the flight recorder: `tuttictl dump`). */
TUTTI_API uint64_t tutti_epoch(const struct tutti_group *g);

/* "I am alive and working on something else": stops the clocks of default deadlines that wait for this
 * membership, for at most `seconds`, until its next submission. 0 ends it. */
TUTTI_API enum tutti_status tutti_busy(struct tutti_group *g, const char *why, double seconds);

/* Ends a pending key for all its members with ABORTED and this reason. NOT_FOUND: nobody has submitted it;
 * BUSY: it already runs. */
TUTTI_API enum tutti_status tutti_abort(struct tutti_group *g, const char *key, const char *reason);

/* --- values --- */

/* A view of a buffer, or of plain memory; the last dimension is the fastest. n_dims = 0 is a scalar.
 *
 * Contiguous, unless has_strides says that element (i, j, ...) lies i * strides[0] + j * strides[1] + ...
 * elements behind the first: a slice, a column, a transposed array. No two elements may lie in one place (a
 * stride of 0 is for a dimension of 1). What lies between elements is never touched. Strides and offsets are
 * this replica's own: only shapes must be equal in all. Bits and rules are those of contiguous values; time
 * is not: rows that run on for 512 bytes and more in every replica are reduced where they are, what is more
 * scattered goes element by element through the cache.
 *
 * Plain memory (`memory`, of the heap, the stack, a mapping of any kind; `buffer` is NULL then) is not shared
 * with tuttid, so it is copied: an input when the collective is called or started, before that call returns,
 * so that it may be changed and freed from then on; an output when tutti_work_wait, _test or _result is the
 * first to see OK, in the thread that sees it. Until then, and whatever else the end is (an error, a
 * cancelled wait, a handle freed before), outputs are untouched; they must stay there until the collective's
 * end has been seen or the handle is freed. The copies lie in shared memory that the library keeps for the
 * next ones, at most as much as was under way at once. Strides are packed on the way. Plain values of one
 * collective may overlap each other: all inputs are read first, then outputs are written in the order of the
 * entries. tutti_result says how many bytes were copied; where that is too many, use a buffer. */
struct tutti_value {
        size_t struct_size;
        struct tutti_buffer *buffer;
        size_t offset; /* bytes into the buffer or the memory, a multiple of the element size */
        enum tutti_dtype dtype;
        uint32_t n_dims;
        uint64_t shape[TUTTI_MAX_DIMS];
        uint32_t has_strides;
        uint64_t strides[TUTTI_MAX_DIMS]; /* in elements; count where has_strides is not 0 */
        void *memory;                     /* plain; of an input it is only read */
        /* Of an output, instead of a buffer: the result goes to the result object, `offset` bytes into the
         * slot that tutti_result.slot names. All replicas name the same object and offset; one collective,
         * one object. */
        struct tutti_object *object;
        /* Sparse: not NULL; see below. */
        const struct tutti_value *indices;
        uint64_t dense_rows;
};

#define TUTTI_VALUE(...) ((struct tutti_value){ .struct_size = sizeof(struct tutti_value), __VA_ARGS__ })
TUTTI_API void tutti_value_init(struct tutti_value *value);

/* Sparse values (TensorFlow's IndexedSlices): some rows of a value of dense_rows rows, most of which are
 * absent, as of the gradient of an embedding. The value itself is the rows that are there, `shape` [k, ...];
 * `indices` is a value of shape [k], I32 or I64, that says which they are. An index may stand there many
 * times; k is each replica's own and may be 0. All other dimensions, dense_rows and both dtypes must be equal
 * in all replicas: TensorFlow would cast indices silently, here that is MISMATCH.
 *
 *     int64_t which[] = { 3, 17 };
 *     float rows[2][64], all_rows[512][64];
 *     int64_t all_which[512];
 *     const struct tutti_value
 *             ids = TUTTI_VALUE(.memory = which, .dtype = TUTTI_I64, .n_dims = 1, .shape = { 2 }),
 *             gradient = TUTTI_VALUE(.memory = rows, .dtype = TUTTI_F32, .n_dims = 2, .shape = { 2, 64 },
 *                     .indices = &ids, .dense_rows = 100000),
 *             all_ids = TUTTI_VALUE(.memory = all_which, .dtype = TUTTI_I64, .n_dims = 1, .shape = { 512 }),
 *             all = TUTTI_VALUE(.memory = all_rows, .dtype = TUTTI_F32, .n_dims = 2, .shape = { 512, 64 },
 *                     .indices = &all_ids, .dense_rows = 100000);
 *     tutti_all_reduce(g, "embedding", TUTTI_SUM, &gradient, &all);
 *     uint64_t n_rows = tutti_last_result()->extent;
 *
 * tutti_reduce, tutti_all_reduce and tutti_batch_reduce (where dense and sparse entries may stand side by
 * side) give the rows of all replicas in the order of the ranks, and their indices likewise: no sum is made,
 * MEAN divides each row by the contributors. With `coalesce` of the options each index stands there once. A
 * broadcast gives the root's. An output has room for shape[0] rows, and its indices for as many; how many the
 * result has, tutti_work_extent says, or tutti_result.extent. What lies behind them is not touched. A result
 * for which some output has no room is refused for all (INVALID, field SIZE), so is an index below 0 or not
 * below dense_rows (INVALID, field INDICES, naming rank, entry, position and value): nothing was written
 * then. Outputs share memory with nothing. Indices have no strides; rows may, with coalesce from row to row
 * alone. Not done: TUTTI_TO_SAME, weights; of device memory only what one GPU reaches. */

/* --- collectives --- */

/* Who receives a result. */
enum tutti_destination {
        TUTTI_TO_ALL = 0,
        TUTTI_TO_RANK,
        TUTTI_TO_RANKS,
        TUTTI_TO_DEVICE, /* a device, also one without a replica: into a result object that lives there */
        TUTTI_TO_SAME,   /* where the value lives: over each replica's input; `output` is NULL. Reductions */
};

struct tutti_destinations {
        enum tutti_destination where;
        uint32_t rank;            /* TUTTI_TO_RANK */
        struct tutti_ranks ranks; /* TUTTI_TO_RANKS */
        const char *device;       /* TUTTI_TO_DEVICE: "CPU:1" */
};

/* One value of a batch. `output` may be NULL where this rank is no destination, and equal to `input` for in
 * place. Its dtype differs from the input's in MEAN of integers alone; where this rank is no destination,
 * that dtype is all that counts of it, and NULL says the input's. */
struct tutti_entry {
        size_t struct_size;
        const struct tutti_value *input;
        const struct tutti_value *output;
        struct tutti_destinations destinations;
};

#define TUTTI_ENTRY(...) ((struct tutti_entry){ .struct_size = sizeof(struct tutti_entry), __VA_ARGS__ })
TUTTI_API void tutti_entry_init(struct tutti_entry *entry);

TUTTI_API void tutti_options_init(struct tutti_options *options);

/* `key`: 1..128 bytes under which the replicas meet, in any order, from any thread; it may be used again when
 * its use has ended. NULL: the next number of this membership's sequence, so that equal programs need no
 * names. All replicas must give equal kind, op, root, dtype, shape, destinations; otherwise all get MISMATCH
 * and nothing is written. */

/* Every replica receives op over all inputs. */
TUTTI_API enum tutti_status tutti_all_reduce(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_value *input, const struct tutti_value *output);

/* Only `destinations` receive; elsewhere `output` is NULL, or only its dtype counts. */
TUTTI_API enum tutti_status tutti_reduce(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_destinations *destinations);

/* Every replica receives the root's value. `value` is the input at the root and the output elsewhere. */
TUTTI_API enum tutti_status tutti_broadcast(
        struct tutti_group *g, const char *key, uint32_t root, const struct tutti_value *value);

/* The same with a place of its own: the root brings `input` (elsewhere it does not count), and `destinations`
 * (NULL: all) receive in `output`, which may lie in a result object; then the root names it too. Who neither
 * brings nor receives says by `output` what it is, and it is not touched. */
TUTTI_API enum tutti_status tutti_broadcast_into(struct tutti_group *g, const char *key, uint32_t root,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_destinations *destinations);

/* Many values in one meeting, whole or not at all. 1..65,536 entries, and entries times ranks at most
 * 1,048,576 (LIMIT); shapes, dtypes and destinations may differ between entries. */
TUTTI_API enum tutti_status tutti_batch_reduce(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_entry *entries, uint32_t n_entries);

/* Returns when every replica has called it. */
TUTTI_API enum tutti_status tutti_barrier(struct tutti_group *g, const char *key);

/* The same, asynchronously: `options` may be NULL; on OK *ret is a work to wait for and free. A refusal that
 * can be known at once is still delivered by the work, because the peers hear of it too; the call itself
 * fails only with FORKED, DAEMON_LOST, NO_MEMORY, LEFT, INVALID (g or ret NULL). */
TUTTI_API enum tutti_status tutti_all_reduce_start(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_options *options, struct tutti_work **ret);
TUTTI_API enum tutti_status tutti_reduce_start(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_destinations *destinations, const struct tutti_options *options,
        struct tutti_work **ret);
TUTTI_API enum tutti_status tutti_broadcast_start(struct tutti_group *g, const char *key, uint32_t root,
        const struct tutti_value *value, const struct tutti_options *options, struct tutti_work **ret);
TUTTI_API enum tutti_status tutti_broadcast_into_start(struct tutti_group *g, const char *key, uint32_t root,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_destinations *destinations, const struct tutti_options *options,
        struct tutti_work **ret);
TUTTI_API enum tutti_status tutti_batch_reduce_start(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_entry *entries, uint32_t n_entries, const struct tutti_options *options,
        struct tutti_work **ret);
TUTTI_API enum tutti_status tutti_barrier_start(
        struct tutti_group *g, const char *key, const struct tutti_options *options, struct tutti_work **ret);

/* Waits for at most `seconds` (< 0: as long as it takes; 0: not at all). The collective's status, PENDING
 * (still under way: nothing has changed), CANCELLED, or DAEMON_LOST. */
TUTTI_API enum tutti_status tutti_work_wait(struct tutti_work *w, double seconds);
/* Dispatches, then the collective's status or PENDING. */
TUTTI_API enum tutti_status tutti_work_test(struct tutti_work *w);
/* Ends all waits for this work with CANCELLED. The half stays submitted, its buffers stay in use, its key
 * stays pending, until the collective ends; a later wait or test sees that end. */
TUTTI_API enum tutti_status tutti_work_cancel(struct tutti_work *w);

/* The error of an ended work; its text is "" while there is none. Never NULL; good until tutti_work_free. */
TUTTI_API const struct tutti_error_info *tutti_work_error(struct tutti_work *w);

/* What a check of tutti_options found. */
struct tutti_finding {
        uint64_t n;     /* elements, over all entries and inputs; 0: nothing, or no check was asked for */
        uint32_t rank;  /* check_numerics: the lowest that brought one; the first it brought is at: */
        uint32_t entry; /* of the batch */
        uint64_t index; /* in elements, last dimension fastest */
};

/* What is known of a work that ended with OK. */
struct tutti_result {
        uint64_t collective;             /* tuttid's number within group and epoch */
        struct tutti_ranks contributors; /* who is in the result */
        uint32_t n_contributors;
        enum tutti_op op;
        double wait, run; /* s: from this submission to the last half's; from there to the complete result */
        uint32_t last_rank; /* whose half came last */
        struct tutti_finding numerics, overflow;
        uint32_t slot; /* where the output is a result object: the one it is in, held until it is released */
        uint64_t staged_bytes;  /* copied from and to plain memory */
        uint64_t extent, first; /* of the first entry, as tutti_work_extent tells them; 0 where it does not */
};
TUTTI_API enum tutti_status tutti_work_result(struct tutti_work *w, struct tutti_result *ret);
/* Where the length of a result is known only when all have met: how long the result of entry `entry` is
 * (along the axis; rows of a sparse one), and where this replica's own part of it begins. Either place may be
 * NULL. PENDING; INVALID: no such entry, or its length was known. */
TUTTI_API enum tutti_status tutti_work_extent(
        struct tutti_work *w, uint32_t entry, uint64_t *ret_total, uint64_t *ret_first);
/* The result of the calling thread's last synchronous collective that ended with OK. */
TUTTI_API const struct tutti_result *tutti_last_result(void);

/* Frees the handle; a work under way goes on to its end unseen. NULL is fine. */
TUTTI_API void tutti_work_free(struct tutti_work *w);

static inline int tutti_ranks_has(const struct tutti_ranks *ranks, uint32_t rank) {
        return rank < TUTTI_MAX_WORLD && (ranks->words[rank / 64] >> (rank % 64) & 1);
}

static inline void tutti_ranks_add(struct tutti_ranks *ranks, uint32_t rank) {
        if (rank < TUTTI_MAX_WORLD)
                ranks->words[rank / 64] |= UINT64_C(1) << (rank % 64);
}

#ifdef __cplusplus
}
#endif

#include <tutti/memory.h>
#include <tutti/object.h>
#include <tutti/prepare.h>

#endif
