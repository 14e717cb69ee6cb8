/* Runs plans on device workers and memory work on memory threads; threads and locks live here.
 *
 * A task or a chore is a baton: engine_start and engine_do hand it over, engine_take_done_* hands it back,
 * and in between the loop thread does not touch it. One mutex guards the lists of batons in both directions;
 * the loop takes no other lock. Owned by daemon.c; all functions are for the loop thread.
 *
 * Threads: `n_workers` for the host devices together (each device has its own, at least one), two for memory
 * work (sealing, mapping, unmapping, which a client can make slow), one that closes strangers' descriptors
 * (which can block for hours: a socket may linger for as long as its owner likes). One user never has more
 * than one of the closers; while all are stuck, more are started, up to sixteen.
 *
 * Fairness (P21): each user has a line of its own, and the lines are served in turn; while sessions of
 * another uid exist, one uid holds at most n-1 of a device's n workers; at chunk borders a slice steps back
 * in its line when somebody waits. In a user's line the task of the highest priority goes first, among equals
 * the one that has waited longest; who has been passed over fifteen times as the longest waiting goes before
 * all (base/queues.h). A group under whose memory a chunk stood still for 100 ms is confined to
 * one worker from then on. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include "backends/backend.h"
#include "base/list.h"
#include "base/queues.h"
#include "config.h"
#include "doorbell.h"
#include "plan.h"
#include "quota.h"

struct engine;
struct task;

/* A contiguous share of a task's chunks on one device, which one worker runs at a time. */
struct slice {
        struct queued queued;
        struct task *task;
        uint32_t device;
        uint64_t next_chunk, end_chunk;
};

/* A plan under way. From engine_task_new; kept and reused by its owner. */
struct task {
        struct list link;
        struct list launched_link; /* the workers' */
        struct plan plan;
        uint32_t uid;
        uint64_t group;
        int32_t priority; /* among the tasks of this user */
        void *owner;
        struct charge scratch_charge; /* its owner's, for the plan's scratch */
        /* For a GPU: what its streams wait for, and how long. From malloc; freed with it. */
        const struct signal *signals; /* [n_signals] */
        uint32_t n_signals;
        uint64_t limit_ns;
        struct charge memory; /* its owner's, for the plan */
        /* Set when it comes back. */
        enum status status;   /* OK; BAD_FD with the culprit; NO_MEMORY: no scratch, nothing was written;
                                 INVALID: `found` forbids it, behind its first phases; nothing was written; of a
                                 GPU also TIMEOUT, DEVICE_LOST, ABORTED, INTERNAL */
        bool is_untouched;    /* of a GPU's failure: nothing had begun, no output was written */
        uint32_t late_signal; /* TIMEOUT: whose it was that never came */
        char why[160];        /* of a GPU's failure, for people */
        uint64_t culprit_session, culprit_buffer;
        uint64_t started_ns, done_ns;
        struct findings found; /* by the checks of the plan */
        uint64_t blocked_ns;   /* the longest that a chunk stood still in somebody's memory; 0 below 100 ms */
        /* The engine's or the workers', while they have the baton. */
        uint64_t ticket;
        uint32_t n_slices, n_open; /* of the phase under way */
        uint32_t next_stage;       /* cursor into the plan */
        struct slice slices[MAX_WORKERS + MAX_CPU_DEVICES];
        /* Scratch of its plan: stays for the next one where it is small. */
        struct backend *scratch_of;
        struct memory *scratch[MAX_SCRATCH];
};

struct engine_device_stats {
        uint32_t n_workers;
        uint64_t n_tasks, busy_ns;
};

/* The bell rings on the loop thread when something is done. 0 or negative errno. */
int engine_new(struct engine **ret, uv_loop_t *loop, const struct config *config, struct backend *backend,
        const struct doorbell *bell) MUST_USE;
/* Finishes what it has been given, ends the threads, waits a second for closers that are stuck. What is done
 * is to be taken afterwards; a chore that follows from it is done at once. */
void engine_stop(struct engine *e);
/* After engine_stop: whether a closer is stuck, with its chore, until the process ends. */
bool engine_is_stuck(const struct engine *e);
/* After engine_stop, when the loop has closed the handle (`uv_run` once more). */
void engine_free(struct engine *e);

struct task *engine_task_new(void);
void engine_task_free(struct task *t);
/* What it keeps for its plan between two runs; and gives that back. Of a task that does not run. */
uint64_t engine_task_scratch_bytes(const struct task *t);
void engine_task_drop_scratch(struct task *t);

/* plan frozen with at least one chunk; uid, group, priority, owner set. Its phases run one after the other,
 * each on all devices that have steps in it. */
void engine_start(struct engine *e, struct task *t);
void engine_do(struct engine *e, struct chore *c);

/* What is done, users in turn, of each in the order of completion; NULL: nothing more. */
struct task *engine_take_done_task(struct engine *e);
struct chore *engine_take_done_chore(struct engine *e);

/* Whether sessions of more than one uid exist. */
void engine_set_shared(struct engine *e, bool is_shared);

/* Asks every worker for a sign of life: one that sleeps gives it at once, one that runs behind its chunk. */
void engine_ask_workers(struct engine *e);
/* Whether all have answered what was asked last. */
bool engine_workers_have_answered(struct engine *e);

uint32_t engine_n_devices(const struct engine *e);
struct engine_device_stats engine_device_stats(struct engine *e, uint32_t device);
/* Tasks and chores not yet taken back, but for CHORE_CLOSE: nobody waits for those. */
uint32_t engine_n_open(const struct engine *e);
