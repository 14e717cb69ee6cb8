/* Requests and replies as plain C: what codec.c makes of packets, and packets of. The generated protobuf
 * types end at the codec.
 *
 * Strings and arrays point into the arena that decoding used, or, for encoding, to wherever the caller has
 * them. Strings are never NULL after decoding, and at most 1,024 bytes long: longer ones are cut.
 *
 * A word that this version does not know decodes to N_KIND, N_OP, N_DTYPE, to STATUS_INTERNAL, to an
 * unspecified field, loss or state, and for every other enum to one beyond its last value: none of it indexes
 * a table, and what changes behaviour can be refused as UNSUPPORTED. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "model/error.h"
#include "model/finding.h"
#include "model/key.h"
#include "model/op.h"
#include "model/rankset.h"
#include "model/signature.h"
#include "model/status.h"
#include "wire/layout.h"

#define PROTOCOL_MIN 1
#define PROTOCOL_MAX 1

/* Halves that are kept to be started again: of one connection, and entries of each. */
#define MAX_PREPARED         64
#define MAX_PREPARED_ENTRIES 1024

enum access { ACCESS_UNSPECIFIED, ACCESS_IN, ACCESS_OUT, ACCESS_INOUT };
enum on_death { ON_DEATH_UNSPECIFIED, ON_DEATH_FAIL, ON_DEATH_SHRINK };
enum on_leave { ON_LEAVE_UNSPECIFIED, ON_LEAVE_CONTRIBUTORS, ON_LEAVE_ZERO_FILL };
/* What became of a wish for huge pages. */
enum pages { PAGES_UNSPECIFIED, PAGES_POOL, PAGES_TRANSPARENT, PAGES_ORDINARY };
enum buffer_kind { BUFFER_KIND_UNSPECIFIED, BUFFER_KIND_MEMFD, BUFFER_KIND_CUDA_VMM, BUFFER_KIND_CUDA_IPC };
enum stream_order { ORDER_UNSPECIFIED, ORDER_HOST, ORDER_TIMELINE, ORDER_EVENTS };
enum what {
        WHAT_UNSPECIFIED,
        WHAT_STATUS,
        WHAT_GROUPS,
        WHAT_STATS,
        WHAT_DUMP,
        WHAT_QUOTA,
        WHAT_HISTOGRAMS,
        WHAT_PLAN
};
enum verb { VERB_UNSPECIFIED, VERB_DRAIN, VERB_UNDRAIN, VERB_KICK, VERB_LOG_LEVEL };
enum measure { MEASURE_UNSPECIFIED, MEASURE_WAIT, MEASURE_RUN, MEASURE_LATENESS };

enum request_type {
        REQUEST_NONE,
        REQUEST_HELLO,
        REQUEST_JOIN,
        REQUEST_LEAVE,
        REQUEST_REGISTER,
        REQUEST_UNREGISTER,
        REQUEST_SUBMIT,
        REQUEST_ABORT,
        REQUEST_BUSY,
        REQUEST_REJOIN,
        REQUEST_SHRINK,
        REQUEST_PREPARE,
        REQUEST_START,
        REQUEST_UNPREPARE,
        REQUEST_OPEN_LANE,
        REQUEST_MAKE_RESULT,
        REQUEST_RELEASE_RESULT,
        REQUEST_PAGES,
        REQUEST_QUERY,
        REQUEST_GOODBYE,
        REQUEST_OPEN_SIGNALS,
        REQUEST_CONTROL,
        REQUEST_RING,
};

struct msg_hello {
        uint32_t min_version, max_version;
        const char *client, *process;
        uint32_t n_descriptors;
        const char *secret;
        bool may_be_handed_over;
};

struct msg_join {
        const char *job, *group, *secret;
        uint32_t world_size, rank;
        uint64_t join_timeout_ns;
        enum on_death on_death;
        enum on_leave on_leave;
        bool has_default_timeout, brief_record;
        uint64_t default_timeout_ns;
        uint64_t resume_epoch, resume_number; /* epoch 0: a new membership */
        struct rankset resume_members, resume_lost;
};

/* What a member knows, after a restart of tuttid, of one request, or of one key. */
struct page_report {
        uint64_t request; /* 0: a key that has failed so often */
        uint64_t collective;
        enum page_state state;
        enum status status; /* PAGE_FAILED, or the last failure */
        enum status cause;  /* of EXPIRED, when it is decided; not on the wire */
        bool has_key;       /* false: the key was absent or malformed */
        struct key key;
        bool is_kept; /* the inputs are as they were, whatever was written */
        uint32_t n_failed;
};

#define MAX_PART_REPORTS 512

struct msg_pages {
        uint32_t n_reports; /* at most MAX_PART_REPORTS */
        const struct page_report *reports;
};

struct msg_register {
        uint64_t buffer, size_bytes;
        enum access access;
        enum buffer_kind kind;
        uint32_t n_descriptors;
        const char *device;    /* "", "GPU:1", or a UUID */
        const uint8_t *handle; /* [n_handle_bytes] */
        size_t n_handle_bytes;
        uint64_t handle_offset_bytes;
        const char *stands_for, *why; /* of host memory through which a device's is copied; "" */
        enum pages pages;             /* for people, as `why` is, which here says why none of the pool */
};

/* Where a half's stream says that its values are ready, and is told that it has ended. */
struct msg_signal {
        uint32_t slot;
        uint64_t value; /* 0: the half has none */
};

struct msg_open_signals {
        enum stream_order order;
        const char *device;
};

/* A part of a submission. In parts after the first only `entries`, `n_part_entries` and `more` count. */
struct msg_submit {
        uint64_t membership, epoch;
        bool has_key; /* false: the key was absent or malformed */
        struct key key;
        struct signature signature; /* n_entries: in all parts together */
        bool has_timeout;
        uint64_t timeout_ns;
        uint32_t n_part_entries;
        const struct entry *entries;
        bool more;
        enum status refused;
        enum field refused_field;
        struct msg_signal signal;
        const char *refused_detail; /* NULL, or in which words */
        uint64_t prepare;           /* the number under which it is to be kept; 0: it is not */
};

struct msg_start {
        uint64_t prepared, membership, epoch;
        bool has_key;
        struct key key;
        bool has_timeout;
        uint64_t timeout_ns;
        struct msg_signal signal;
};

struct msg_abort {
        uint64_t membership;
        bool has_key;
        struct key key;
        const char *reason;
};

struct msg_busy {
        uint64_t membership;
        const char *why;
        uint64_t duration_ns;
};

struct msg_reform { /* rejoin, shrink */
        uint64_t membership, timeout_ns;
};

struct msg_make_result {
        uint64_t membership;
        bool has_key; /* false: the name was absent or malformed */
        struct key key;
        uint64_t size_bytes;
        uint32_t n_slots; /* 0: two */
        uint32_t word;    /* 1..LANE_WORDS; 0: none */
        const char *device;
};

struct msg_release_result {
        uint64_t result, membership;
        uint32_t slot;
        bool detach;
};

struct msg_query {
        enum what what;
        const char *job, *group;
        bool has_user; /* about another user than the asker */
        uint32_t user;
        bool has_shape; /* WHAT_PLAN */
        struct msg_submit shape;
        uint32_t world_size;
        const char *devices; /* with commas between them; "": the host */
        uint64_t epoch;      /* WHAT_DUMP: of which the record tells; 0: the newest one */
        bool ended_members;  /* WHAT_GROUPS */
};

struct msg_control {
        enum verb verb;
        const char *job, *group, *text;
        uint32_t rank;
        bool has_user;
        uint32_t user;
};

struct request {
        uint64_t request;
        enum request_type type; /* REQUEST_NONE: a body this version does not know */
        union {
                struct msg_hello hello;
                struct msg_join join;
                uint64_t membership; /* leave */
                struct msg_register reg;
                uint64_t buffer; /* unregister */
                struct msg_submit submit;
                struct msg_start start;
                uint64_t prepared; /* unprepare */
                struct msg_abort abort;
                struct msg_busy busy;
                struct msg_reform reform;
                struct msg_make_result make_result;
                struct msg_release_result release_result;
                struct msg_pages pages;
                struct msg_query query;
                struct msg_open_signals open_signals;
                struct msg_control control;
        };
};

enum reply_type {
        REPLY_NONE,
        REPLY_WELCOME,
        REPLY_JOINED,
        REPLY_DONE,
        REPLY_ROWS,
        REPLY_RESULT,
        REPLY_REGISTERED,
        REPLY_SIGNALS,
        REPLY_LAUNCHED,
        REPLY_LANE,
        REPLY_HAND_OVER, /* request 0, the last one */
};

struct msg_welcome {
        uint32_t version;
        const char *server;
        uint64_t session;
        uint32_t pid, n_descriptors, status_slots;
        uint64_t default_timeout_ns;
        uint32_t max_world, max_entries, max_packet_bytes;
};

struct msg_joined {
        uint64_t membership, epoch;
        uint32_t rank, world_size;
        struct rankset members; /* of the epoch */
};

/* Of one packet: two numbers of at most ten bytes each. */
#define MAX_PART_EXTENTS 3072

struct msg_done {
        uint64_t collective;
        struct rankset contributors;
        uint32_t n_contributors;
        enum op op;
        uint64_t wait_ns, run_ns;
        uint32_t last_rank;
        struct findings found;
        uint64_t result; /* object; 0: none */
        uint32_t slot;
        bool is_kept; /* under the number of msg_submit.prepare */
        /* Where the results' lengths were not known before; in parts after the first these alone count. */
        uint32_t n_extents;      /* at most MAX_PART_EXTENTS */
        const uint64_t *extents; /* [n_extents] of whole results, in the order of the entries */
        const uint64_t *firsts;  /* [n_extents] where the receiver's own part begins */
};

struct msg_result {
        uint64_t result, size_bytes, stride_bytes;
        uint32_t n_descriptors, n_slots;
        uint64_t device_bytes; /* 0: in host memory */
};

struct msg_registered {
        uint32_t n_descriptors;
        uint64_t size_bytes;
};

struct msg_signals {
        enum stream_order order;
        uint32_t n_descriptors, n_slots;
        const char *why;
        uint32_t n_events;
};

struct msg_lane {
        uint32_t n_descriptors, n_slots;
};

enum row_type {
        ROW_NONE,
        ROW_DAEMON,
        ROW_DEVICE,
        ROW_GROUP,
        ROW_MEMBER,
        ROW_PENDING,
        ROW_STATS,
        ROW_RECORD,
        ROW_FALLBACK,
        ROW_QUOTA,
        ROW_RESULT,
        ROW_BUFFER,
        ROW_HISTOGRAM,
        ROW_PLAN,
        ROW_CLASS,
        ROW_GROUP_FALLBACK,
        ROW_DUMP,
        ROW_LOSSES,
};

struct row_daemon {
        const char *version, *socket, *isa;
        uint32_t pid;
        uint64_t uptime_ns;
        uint32_t n_sessions, n_groups, n_stalled;
        uint64_t n_collectives, n_failed, n_refused, n_ejected, mapped_bytes, n_buffers, n_pending;
        bool draining, sees_all;            /* sees_all: the asker */
        uint32_t n_restarts, n_groups_left; /* n_restarts: of the GPU process */
        uint64_t n_prepared, n_started, n_replayed;
        uint64_t n_on_lane, n_passed; /* collectives that ran on the lane; starts that it handed on */
        uint64_t n_assisted;          /* collectives there in which several threads had a part */
        uint64_t n_rings, n_regrets;  /* its thread was woken; it gave up yielding for a while */
        const char *drained_by, *log_level;
};

struct row_device {
        const char *name, *describe, *why;
        uint32_t n_workers;
        uint64_t n_tasks, busy_ns;
        bool failing;
        const char *uuid, *paths; /* of a GPU */
        enum stream_order order;
};

struct row_group {
        const char *job, *group;
        uint32_t uid, world_size, n_alive, n_pending, n_debts, n_waiting;
        struct rankset awaited;
        uint64_t epoch, n_done, n_failed, bytes, age_ns, last_done_age_ns;
        bool forming, failed, ended, stalled, restored;
        enum on_death on_death;
};

struct row_member {
        const char *job, *group, *process, *busy, *why, *waits;
        uint32_t rank, pid, uid, n_buffers;
        enum process_state state;
        bool has_last, lost;
        struct key last_key;
        uint64_t last_age_ns, n_submitted, n_last, n_joint, lateness_p50_ns, lateness_p99_ns, mapped_bytes,
                lost_age_ns, waits_age_ns, ended_epoch;
        enum loss loss;
};

struct row_pending {
        const char *job, *group;
        struct key key;
        enum kind kind;
        uint64_t age_ns, bytes;
        uint32_t world_size;
        struct rankset have, missing;
        uint32_t n_replicas; /* at most MAX_ERROR_REPLICAS */
        const struct replica_report *replicas;
        bool running, stalled;
};

struct row_stats {
        const char *job, *group;
        enum kind kind;
        uint64_t n, n_failed, bytes, wait_p50_ns, wait_p99_ns, run_p50_ns, run_p99_ns, run_ns, wait_p999_ns,
                run_p999_ns;
};

struct row_class {
        const char *job, *group;
        enum kind kind;
        enum op op;
        uint64_t from_bytes, to_bytes;
        uint64_t n, n_failed, bytes, run_ns;
        uint64_t wait_p50_ns, wait_p99_ns, wait_p999_ns, run_p50_ns, run_p99_ns, run_p999_ns;
};

struct row_record {
        const char *job, *group;
        uint64_t epoch, collective;
        struct key key;
        enum kind kind;
        enum op op;
        enum dtype dtype;
        uint64_t bytes;
        uint32_t n_entries;
        enum status status;
        uint64_t age_ns, sealed_ns, done_ns;
        struct rankset have;
        uint32_t last_rank, guilty_rank;
        bool has_guilty, shortened;
        uint32_t n_arrivals;
        const uint64_t *arrival_ns; /* by rank; UINT64_MAX: did not arrive */
        uint64_t dropped, missed;   /* missed: right before it: overwritten while the answer was told */
};

struct row_dump {
        uint64_t missed, first_epoch, last_epoch; /* missed: of all records that were there */
        bool ended;
};

struct row_fallback {
        const char *what, *why;
};

struct row_group_fallback {
        const char *job, *group, *why, *algorithm; /* why "": others than those before */
        uint32_t uid;
        uint64_t n, last_age_ns;
        enum kind kind; /* of the last */
        struct key key;
};

struct row_quota {
        uint32_t uid;
        const char *name;
        uint64_t used, limit, n_refused;
};

struct row_losses {
        uint32_t uid;
        uint64_t n_died, n_disconnected, n_ejected; /* replicas, since the start */
};

struct row_plan {
        const char *algorithm, *order, *device, *why, *fallback, *text;
        uint32_t n_steps, n_phases;
        uint64_t scratch_bytes, moved_bytes;
};

#define MAX_ROW_HOLDERS 8

struct row_holder {
        uint32_t rank, pid, n_slots;
        enum process_state state;
        uint64_t oldest_age_ns;
};

struct row_result {
        const char *job, *group, *name, *device;
        uint64_t size_bytes;
        uint32_t n_slots, n_free, n_attached, n_holders; /* n_holders: at most MAX_ROW_HOLDERS */
        const struct row_holder *holders;
};

struct row_buffer {
        uint32_t pid, uid;
        uint64_t buffer, size_bytes, page_bytes;
        const char *device, *path, *why;
};

#define MAX_HISTOGRAM_COUNTS 64

struct row_histogram {
        const char *job, *group;
        uint32_t uid, rank;
        enum measure measure;
        enum kind kind;
        uint64_t n, sum_ns, bounds_from_ns;
        uint32_t n_counts; /* at most MAX_HISTOGRAM_COUNTS */
        const uint64_t *counts;
};

struct row {
        enum row_type type;
        union {
                struct row_daemon daemon;
                struct row_device device;
                struct row_group group;
                struct row_member member;
                struct row_pending pending;
                struct row_stats stats;
                struct row_record record;
                struct row_fallback fallback;
                struct row_quota quota;
                struct row_result result;
                struct row_buffer buffer;
                struct row_histogram histogram;
                struct row_plan plan;
                struct row_class class;
                struct row_group_fallback group_fallback;
                struct row_dump dump;
                struct row_losses losses;
        };
};

struct reply {
        uint64_t request;
        enum status status;
        const struct error *error; /* NULL, or with a status other than OK */
        bool more;
        enum reply_type type;
        union {
                struct msg_welcome welcome;
                struct msg_joined joined;
                struct msg_done done;
                struct msg_result result;
                struct msg_registered registered;
                struct msg_signals signals;
                struct msg_lane lane;
                struct {
                        const struct row *rows;
                        uint32_t n_rows;
                } rows;
        };
};
