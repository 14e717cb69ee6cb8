/* What tuttictl and exporters need beyond tutti.h: asking tuttid how it is. Same library.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * An answer is a list of rows, as tuttid sent them. Another user's groups are not in it, unless an admin asks
 * for them (tutti_admin_set_user); nor are groups with a job secret, unless this connection has shown it: by
 * joining with it, or in TUTTI_JOB_SECRET when it was opened. Times are in ns, ages count back from the
 * answer (those of records all from the moment of the question). Strings are never NULL and live as long as
 * the answer. */
#ifndef TUTTI_ADMIN_H
#define TUTTI_ADMIN_H

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tutti_admin_what {
        TUTTI_ADMIN_STATUS = 1, /* DAEMON, DEVICE, FALLBACK, GROUP, PENDING (oldest first, at most 16 a
                                   group), RESULT, GROUP_FALLBACK (at most nine a group) */
        TUTTI_ADMIN_GROUPS,     /* GROUP (also ended ones whose record is kept), MEMBER */
        TUTTI_ADMIN_STATS,      /* DAEMON, STATS, CLASS, MEMBER */
        TUTTI_ADMIN_DUMP,       /* RECORD, oldest first, then DUMP; needs job and group */
        TUTTI_ADMIN_QUOTA,     /* QUOTA, the asker's first; of an admin then everybody's, at most 256 users */
        TUTTI_ADMIN_HISTOGRAMS /* HISTOGRAM */
};

enum tutti_kind {
        TUTTI_KIND_UNSPECIFIED = 0,
        TUTTI_KIND_REDUCE,
        TUTTI_KIND_BROADCAST,
        TUTTI_KIND_BATCH_REDUCE,
        TUTTI_KIND_BARRIER,
        TUTTI_KIND_GATHER,
        TUTTI_KIND_REDUCE_SCATTER,
        TUTTI_KIND_MERGE_CALL,  /* everybody's values come together */
        TUTTI_KIND_MERGE_RESULT /* ... and what the function made of them goes to all: while it is awaited,
                                   the    function runs on the replica that is missing */
};
TUTTI_API const char *tutti_kind_name(enum tutti_kind kind);
TUTTI_API const char *tutti_op_name(enum tutti_op op);
TUTTI_API const char *tutti_process_state_name(enum tutti_process_state state);
TUTTI_API const char *tutti_loss_name(enum tutti_loss loss);

enum tutti_row_type {
        TUTTI_ROW_NONE = 0,
        TUTTI_ROW_DAEMON,
        TUTTI_ROW_DEVICE,
        TUTTI_ROW_GROUP,
        TUTTI_ROW_MEMBER,
        TUTTI_ROW_PENDING,
        TUTTI_ROW_STATS,
        TUTTI_ROW_RECORD,
        TUTTI_ROW_FALLBACK,
        TUTTI_ROW_QUOTA,
        TUTTI_ROW_RESULT,
        TUTTI_ROW_BUFFER,
        TUTTI_ROW_HISTOGRAM,
        TUTTI_ROW_PLAN,
        TUTTI_ROW_CLASS,
        TUTTI_ROW_GROUP_FALLBACK,
        TUTTI_ROW_DUMP,
        TUTTI_ROW_LOSSES
};

struct tutti_row_daemon {
        const char *version, *socket, *isa;
        uint32_t pid;
        uint64_t uptime_ns;
        uint32_t n_sessions, n_groups, n_stalled;
        uint64_t n_collectives, n_failed, n_refused, n_ejected, mapped_bytes, n_buffers, n_pending;
        int draining;           /* it is being stopped, or drained: takes nothing new, or no new groups */
        uint32_t n_restarts;    /* of the GPU process, since the start */
        const char *drained_by; /* who drained it, for people; "": it is not, or is being stopped */
        uint32_t n_groups_left; /* for admins of all users, for others their own */
        const char *log_level;
        uint64_t n_prepared; /* halves that are kept to be started again by their number */
        uint64_t n_started;  /* halves that were, since the start */
        uint64_t n_replayed; /* collectives that needed no new plan */
        uint64_t n_on_lane;  /* collectives that were run on the lane */
        uint64_t n_passed;   /* halves that were started in it and went the way of the others */
        uint64_t n_assisted; /* of n_on_lane: in which more than one thread had a part */
        uint64_t n_rings;    /* how often a client woke the lane's thread, which sleeps when nothing comes */
        uint64_t n_regrets;  /* how often that thread gave up yielding for a while: others use up its core */
        int sees_all;        /* who asks may ask about every user */
};

struct tutti_row_device {
        const char *name, *describe, *why;
        uint32_t n_workers;
        uint64_t n_tasks, busy_ns;
        int failing;
        /* Of a GPU, else "": its UUID, and which kinds of memory it takes, best first ("vmm-made vmm-fd"). */
        const char *uuid, *paths;
        int has_timeline;  /* of a GPU: streams wait for each other on the devices */
        const char *order; /* of a GPU, else "": the best order of streams: "timeline", "events", "host" */
};

struct tutti_row_group {
        const char *job, *group;
        uint32_t uid, world_size, n_alive, n_pending, n_debts;
        uint64_t epoch, n_done, n_failed, bytes, age_ns, last_done_age_ns;
        int forming, failed, ended, stalled;
        enum tutti_on_death on_death;
        uint32_t n_waiting;         /* members that wait for it to be formed anew */
        struct tutti_ranks awaited; /* whom they wait for: who has not called, and ranks that nobody has */
        int restored;               /* its members have carried it over from the tuttid before */
};

struct tutti_row_member {
        const char *job, *group, *process, *busy, *why, *last_key; /* last_key "" : nothing finished yet */
        uint32_t rank, pid, uid, n_buffers;
        enum tutti_process_state state;
        int lost;
        enum tutti_loss loss;
        uint64_t last_age_ns, n_submitted, n_last, n_joint, lateness_p50_ns, lateness_p99_ns, mapped_bytes,
                lost_age_ns;
        const char *waits; /* for the group to be formed anew, by "join", "rejoin" or "shrink"; else "" */
        uint64_t waits_age_ns;
        uint64_t ended_epoch; /* not 0: of a group that has ended, as it was at its end; which one, says the
                                 epoch of its GROUP row. Ages count back from the answer all the same */
};

struct tutti_row_pending {
        const char *job, *group, *key;
        enum tutti_kind kind;
        uint64_t age_ns, bytes;
        uint32_t world_size;
        struct tutti_ranks have, missing;
        uint32_t n_replicas;
        const struct tutti_replica *replicas; /* of the missing */
        int running, stalled;
};

struct tutti_row_stats {
        const char *job, *group;
        enum tutti_kind kind;
        uint64_t n, n_failed, bytes, wait_p50_ns, wait_p99_ns, run_p50_ns, run_p99_ns, run_ns, wait_p999_ns,
                run_p999_ns;
};

/* The same of one op and size: input bytes that each replica brings. */
struct tutti_row_class {
        const char *job, *group;
        enum tutti_kind kind;
        enum tutti_op op;
        uint64_t from_bytes, to_bytes; /* included; UINT64_MAX: no bound */
        uint64_t n, n_failed, bytes, run_ns;
        uint64_t wait_p50_ns, wait_p99_ns, wait_p999_ns, run_p50_ns, run_p99_ns, run_p999_ns;
};

struct tutti_row_record {
        const char *job, *group, *key;
        uint64_t epoch, collective;
        enum tutti_kind kind;
        enum tutti_op op;
        enum tutti_dtype dtype;
        uint64_t bytes;
        uint32_t n_entries;
        enum tutti_status status;
        uint64_t age_ns, sealed_ns,
                done_ns; /* age of the first arrival; the others after it; sealed_ns 0: never sealed */
        struct tutti_ranks have;
        uint32_t last_rank, guilty_rank;
        int has_guilty;
        uint32_t n_arrivals;
        const uint64_t *arrival_ns; /* by rank, after the first; UINT64_MAX: did not arrive */
        uint64_t dropped;
        int shortened;
        uint64_t missed; /* records between the one before and this one, overwritten while they were told */
};

/* The last row of a dump. */
struct tutti_row_dump {
        uint64_t missed; /* of the records that there were: overwritten before they were told */
        uint64_t first_epoch, last_epoch; /* that the record tells of; 0: a tuttid that does not say */
        int ended;                        /* the group has */
};

/* What the host could do better, and why it does not. */
struct tutti_row_fallback {
        const char *what, *why;
};

/* What collectives of a group asked for and did not get, since the group is there. The reasons that differ
 * have a row each, the first eight of them; the others one row together, in which `why` is "". */
struct tutti_row_group_fallback {
        const char *job, *group;
        const char *why;       /* what was wished for and is not done, and why */
        const char *algorithm; /* that was taken instead */
        const char *key;       /* of the last one */
        enum tutti_kind kind;
        uint32_t uid;
        uint64_t n, last_age_ns; /* n: of collectives that ended with OK */
};

struct tutti_row_quota {
        uint32_t uid;
        const char *name;
        uint64_t used, limit, n_refused; /* n_refused: requests, while this user has anything here */
};

/* Replicas of a user that were lost since tuttid has started, whatever became of their groups: with quotas.
 */
struct tutti_row_losses {
        uint32_t uid;
        uint64_t n_died, n_disconnected, n_ejected;
};

struct tutti_holder {
        uint32_t rank, pid, n_slots; /* pid 0: not visible from tuttid */
        enum tutti_process_state state;
        uint64_t oldest_age_ns; /* of what it holds */
};

/* A result object of a group. */
struct tutti_row_result {
        const char *job, *group, *name, *device;
        uint64_t size_bytes; /* of one slot */
        uint32_t n_slots, n_free, n_attached;
        uint32_t n_holders; /* who holds longest comes first; at most eight */
        const struct tutti_holder *holders;
};

/* Device memory that a client registered, host memory that stands for some, or host memory in huge pages or
 * meant to be: then `device` is "". */
struct tutti_row_buffer {
        uint32_t pid, uid;
        uint64_t buffer, size_bytes;
        const char *device; /* "GPU:1"; its UUID where tuttid does not know it */
        const char
                *path; /* "vmm-made", "vmm-fd", "cuda-ipc", "host-copy"; "pool", "transparent", "ordinary" */
        const char *why;     /* why it is not a path before; "" */
        uint64_t page_bytes; /* where `device` is "": of the pages it lies in */
};

enum tutti_measure {
        TUTTI_MEASURE_WAIT = 1, /* of a kind: first arrival to last arrival */
        TUTTI_MEASURE_RUN,      /* of a kind: last arrival to done */
        TUTTI_MEASURE_LATENESS  /* of a member: its arrival after the first */
};

/* Samples since the group was formed. counts[i] are those of at most bounds_from_ns << i that the counts
 * before do not hold; what is beyond the last is in n alone. */
struct tutti_row_histogram {
        const char *job, *group;
        uint32_t uid, rank; /* rank: LATENESS */
        enum tutti_measure measure;
        enum tutti_kind kind; /* WAIT, RUN */
        uint64_t n, sum_ns, bounds_from_ns;
        uint32_t n_counts;
        const uint64_t *counts;
};

/* A plan: the first row tells what it is, `text` of all rows together is how it is printed. */
struct tutti_row_plan {
        const char *algorithm, *order, *device, *why, *fallback, *text;
        uint32_t n_steps, n_phases;
        uint64_t scratch_bytes, moved_bytes;
};

struct tutti_row {
        enum tutti_row_type type;
        union {
                struct tutti_row_daemon daemon;
                struct tutti_row_device device;
                struct tutti_row_group group;
                struct tutti_row_member member;
                struct tutti_row_pending pending;
                struct tutti_row_stats stats;
                struct tutti_row_record record;
                struct tutti_row_fallback fallback;
                struct tutti_row_quota quota;
                struct tutti_row_result result;
                struct tutti_row_buffer buffer;
                struct tutti_row_histogram histogram;
                struct tutti_row_plan plan;
                struct tutti_row_class size_class;
                struct tutti_row_group_fallback group_fallback;
                struct tutti_row_dump dump;
                struct tutti_row_losses losses;
        };
};

struct tutti_answer {
        uint32_t n_rows;
        const struct tutti_row *rows;
};

/* Asks and waits. job and group NULL: all of this user's. NOT_FOUND: no such group; NO_MEMORY; DAEMON_LOST.
 * This and all that asks tuttid here: NO_DAEMON, when it has said nothing for ten seconds, as one that is
 * stopped; the connection can be used on, and what was asked for may still be done. */
TUTTI_API enum tutti_status tutti_admin_ask(struct tutti *t, enum tutti_admin_what what, const char *job,
        const char *group, struct tutti_answer **ret);

/* The same with more to say. */
struct tutti_admin_question {
        size_t struct_size;
        enum tutti_admin_what what;
        const char *job, *group; /* NULL: all */
        /* DUMP: the record that tells of this epoch. A job that is started again under its name goes on
         * counting epochs, so that they tell its lives apart. 0: of the group that is there, else of the one
         * that ended last. */
        uint64_t epoch;
        /* GROUPS: the MEMBER rows of ended groups too, which have an ended_epoch. */
        int ended_members;
};

#define TUTTI_ADMIN_QUESTION(...)                                                                            \
        ((struct tutti_admin_question){ .struct_size = sizeof(struct tutti_admin_question), __VA_ARGS__ })

/* As tutti_admin_ask. NOT_FOUND also: no record tells of this epoch. UNSUPPORTED: a tuttid that knows no
 * epochs of records. */
TUTTI_API enum tutti_status tutti_admin_ask_about(
        struct tutti *t, const struct tutti_admin_question *question, struct tutti_answer **ret);

/* A collective that nobody submits. */
struct tutti_plan_question {
        size_t struct_size;
        enum tutti_kind kind;
        enum tutti_op op;
        uint32_t root, world_size;
        const struct tutti_value *values; /* [n_values]: dtype and shape count, as input and as output of all;
                                             of sparse ones also dense_rows and the dtype of the indices */
        uint32_t n_values;
        const struct tutti_options *options; /* may be NULL */
        /* Where the values are, names or UUIDs of devices with commas between them ("GPU:0,GPU:1"): replica r
         * has its own on number r modulo their count. NULL or "": in host memory */
        const char *devices;
        /* Of a gather or reduce_scatter one axis; of a reduction those that it goes over, if any. A
         * reduce_scatter is asked about with even shares (tutti_share). */
        const int32_t *axes;
        uint32_t n_axes;
};

#define TUTTI_PLAN_QUESTION(...)                                                                             \
        ((struct tutti_plan_question){ .struct_size = sizeof(struct tutti_plan_question), __VA_ARGS__ })

/* How tuttid would carry it out, and why so: rows TUTTI_ROW_PLAN. Fails as the collective would (UNSUPPORTED,
 * INVALID); NOT_FOUND: no such device, or it is off; LIMIT: more than 1,024 values times replicas;
 * UNSUPPORTED also: of a tuttid that does not know the question. */
TUTTI_API enum tutti_status tutti_admin_plan(
        struct tutti *t, const struct tutti_plan_question *question, struct tutti_answer **ret);
/* From here on questions on this connection are about what this user has. tuttid lets admins (daemon.admins)
 * and observers (daemon.observers) ask about others: everybody else gets PERMISSION. Not while another thread
 * asks. OK, INVALID. */
TUTTI_API enum tutti_status tutti_admin_set_user(struct tutti *t, uint32_t uid);
TUTTI_API void tutti_answer_free(struct tutti_answer *a);

/* What the people who run the host do. Draining and the level are for admins and the user that tuttid runs
 * as; PERMISSION for everybody else. */

/* No new groups from now on: who would make one, or waits for one to be whole, gets DRAINING. Those that are
 * whole go on, also with replacements for lost replicas. It does not outlive tuttid. OK also when it was so
 * before. */
TUTTI_API enum tutti_status tutti_admin_drain(struct tutti *t);
TUTTI_API enum tutti_status tutti_admin_undrain(struct tutti *t);

/* Ejects the connection of this rank, with all its memberships: its peers get REPLICA_LOST, and all hear who
 * did it and why (`why` may be NULL). Of this user's own groups; admins may name another one
 * (tutti_admin_set_user). NOT_FOUND: no such group, or nobody has that rank. */
TUTTI_API enum tutti_status tutti_admin_kick(
        struct tutti *t, const char *job, const char *group, uint32_t rank, const char *why);

/* Which lines tuttid logs: "error", "warning", "notice", "info" or "debug", until it reloads its
 * configuration or ends. INVALID: another word. */
TUTTI_API enum tutti_status tutti_admin_log_level(struct tutti *t, const char *level);
/* Makes the primary context of the GPU with this UUID current in this thread, for as long as the process
 * lives, so that a program which computes nothing itself can have device memory. UNSUPPORTED: no driver here;
 * NOT_FOUND: this process does not see the GPU. */
TUTTI_API enum tutti_status tutti_admin_use_gpu(const char *uuid);

/* The socket path that tutti_open(NULL) would use, into `buf`; OK, LIMIT, NO_DAEMON (none exists; buf holds
 * the places looked at). */
TUTTI_API enum tutti_status tutti_admin_socket_path(char *buf, size_t size);

#ifdef __cplusplus
}
#endif

#endif
