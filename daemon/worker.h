/* The GPUs of this host, behind a process of their own: starts `tuttid-gpu`, gives it memory and plans, and
 * starts it anew when it ends, hangs or breaks (docs/adr/0007; what is said: worker-protocol.h).
 *
 *                     +----------------- lost: ended, hung for 3 s, spoke nonsense <-----------------+
 *                     v                                                                            |
 *   OFF <--final-- WAITING --nursery--> STARTING --hello--> TESTING --ready--> SERVING --------------+
 *    why            backoff                          (imports everything again, then works)
 *
 * A task or a chore is a baton, as the engine's: workers_start and workers_do hand it over,
 * workers_take_done_* hand it back. When the process is lost, the tasks that it had come back with
 * DEVICE_LOST; what it was not yet given waits for the next one for at most 5 s. Memory that is registered is
 * kept here (its descriptor or handle), and imported again into the next process before that is given work.
 * One memory that the process dies of while it comes in again is not tried a second time.
 *
 * Nothing is asked of the process while it has nothing to do; while it has, it gives a sign of life each
 * second.
 *
 * Owned by daemon.c; loop thread; time is an argument. Touches no client memory. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include "backends/backend.h"
#include "backends/gpu-report.h"
#include "config.h"
#include "doorbell.h"
#include "engine.h"
#include "worker-nursery.h"

struct workers;

/* What there may be of GPUs, and where the programs lie. */
struct workers_setting {
        struct nursery *nursery; /* taken; NULL: there are no GPUs, because of: */
        const char *why;         /* for people; copied */
        bool takes_ipc;          /* legacy handles */
        enum log_level log_level;
        enum confine confine;   /* whether it confines itself */
        uint64_t hang_limit_ns; /* after which a small plan that could run is judged hung; 0: never */
        struct doorbell bell;
        uint64_t now_ns;
};

/* Asks for the process at once; its devices appear when it has tested them. 0 or negative errno; *setting's
 * nursery is taken in any case. */
int workers_new(struct workers **ret, uv_loop_t *loop, const struct workers_setting *setting) MUST_USE;
/* Ends the process. What it had is done, and to be taken; so is whatever is handed in afterwards. */
void workers_stop(struct workers *w);
/* After workers_stop, when the loop has closed the handles. */
void workers_free(struct workers *w);

/* A frozen plan for a GPU, with at least one step; uid, group, owner, signals set. Host memory in it is
 * imported on its way. */
void workers_start(struct workers *w, struct task *t);
/* IMPORT and MAKE of device memory. RELEASE and UNMAKE of that, and of host memory that a GPU has worked
 * with: this gives back what the process has of it, and the descriptor and the mapping stay the chore's. */
void workers_do(struct workers *w, struct chore *c);
/* Host memory that a GPU has worked with goes, and its owner waits for nobody. */
void workers_forget(struct workers *w, struct memory *m);
/* Whether this chore goes here, before or instead of to the engine. */
bool workers_want(const struct chore *c);

/* Whether sessions of more than one user exist; counts for what is sent from now on. */
void workers_set_shared(struct workers *w, bool is_shared);

/* A task that stays there, and whose done events (PATH_EVENTS) have been recorded; NULL: no more. Told once.
 */
struct task *workers_take_launched_task(struct workers *w);
struct task *workers_take_done_task(struct workers *w);
struct chore *workers_take_done_chore(struct workers *w);
/* Tasks and chores not yet taken back. */
uint32_t workers_n_open(const struct workers *w);

/* The bell has rung, or a time has come: reads what the process has said, and does what is due. */
void workers_turn(struct workers *w, uint64_t now_ns);
/* The next instant at which something is due though no bell rings; ALARM_NEVER (UINT64_MAX): none. */
uint64_t workers_next_ns(const struct workers *w);

/* --- what there is --- */

/* GPU:0 and so on, as they were first seen; they stay, and say why they are off. */
uint32_t workers_n_devices(const struct workers *w);
const struct gpu_device *workers_device(const struct workers *w, uint32_t k);
struct engine_device_stats workers_device_stats(const struct workers *w, uint32_t k);
/* By UUID or "GPU:k"; DEVICE_UNKNOWN. A device that is off is found too. */
uint32_t workers_find(const struct workers *w, const char *name);
/* The first process is still testing: what there is will be known. */
bool workers_is_starting(const struct workers *w);
/* Why no GPU works at all just now, for people; "": the process serves. */
const char *workers_why_off(const struct workers *w);
/* How often the process has been started anew. */
uint32_t workers_n_restarts(const struct workers *w);
/* What is less than it could be, one by one; NULL: no more. */
const struct gpu_fallback *workers_fallback(const struct workers *w, uint32_t i);
/* Whether legacy handles are taken. */
bool workers_take_ipc(const struct workers *w);
