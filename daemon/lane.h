/* The lane: kept halves are started in shared memory, and small collectives of them are run by a thread of
 * its own, without a packet and without the loop thread (docs/adr/0011).
 *
 * A session that asks for it has a *lane*: a slot that its client writes, a bell that the client rings while
 * nobody watches, and a board behind its status page that tuttid writes. A group whose members all have one
 * has a *road*. While it is open the thread watches the slots; when every member has started its part of one
 * set, under one key, in this epoch, that is a sealed collective, and the thread runs it at once, into the
 * next free slot where it goes to a result object. It decides nothing else: what is no set, what finds no
 * slot, what waits for too long, and all that can happen to a group (deadlines, deaths, refusals, other
 * halves) is for rendezvous. So a road is open only while rendezvous has nothing of its group, and is closed
 * before it gets anything; what was started and did not run is handed over then.
 *
 *     CLOSED --lane_road_open--> OPEN --all have started a set--> running --+
 *        ^                        | ^                                       |
 *        +----lane_road_close-----+ +---------------------------------------+
 *
 * A run that is under way when its road is closed goes on: it is sealed. Runs come back in order
 * (lanes_take_run), a hundred or so at a time where nobody asks for them.
 *
 * Where a run is large enough, other threads of the room take a part of its chunks: assistants.
 *
 * One mutex guards roads and lanes; nobody holds it over a run, and the loop thread takes no other lock here.
 * Slots are copied before anything in them is looked at. Owned by daemon.c; functions are for the loop
 * thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include "backends/backend.h"
#include "doorbell.h"
#include "session-page.h"
#include "slots.h"

#define LANE_MAX_RANKS 64  /* of a group with a road */
#define LANE_MAX_SETS  64  /* of a road */
#define LANE_MAX_RUNS  128 /* that wait to be taken */

#define LANE_MAX_ASSISTANTS 3

struct lanes;
struct lane;
struct lane_road;

/* One collective that may be run on a road; its owner's, whose plan must not be touched while the road is
 * open or runs it. Nor must slots and users while it is open; the slot of a run that was under way when it
 * was closed is the owner's to end (lane_end_slot) when that is taken. */
struct lane_set {
        struct list link; /* in lane_road.sets, while it is closed */
        struct plan *plan;
        const uint64_t *numbers;        /* by place: under which the half is kept */
        struct slots *slots;            /* of the result object that it goes to; NULL: to none */
        struct slot_user *const *users; /* where there are slots: by place */
};

/* A member on its road. */
struct lane_place {
        struct lane_road *road;
        struct lane *lane;
        struct list link; /* in the lane's */
        uint64_t session, membership;
        uint32_t rank;
};

/* A group's; its owner's. Zero-initialised, then lane_road_init. */
struct lane_road {
        uint64_t epoch;
        uint32_t n_places; /* in the order of the ranks */
        struct lane_place places[LANE_MAX_RANKS];
        struct list sets;     /* struct lane_set.link; touched while it is closed */
        uint64_t next_number; /* of its next collective; while it is closed, where it stood */
        /* The room's. */
        bool is_open, is_watched, is_refused;
        bool is_started; /* something was there when it was opened: the thread is woken for it */
        uint32_t n_idle; /* looks in vain, since something happened: */
        uint64_t last_ns,
                usual_ns; /* when that was; how soon the next collective usually is complete after one */
        const struct lane_set *running;
        struct list link, refused_link;
};

/* What a client has started, copied. */
struct lane_start {
        uint64_t session, request, prepared, membership, epoch;
        bool has_key; /* false: it was malformed */
        struct key key;
        bool has_timeout;
        uint64_t timeout_ns;
        uint64_t seen_ns; /* from here on its deadline counts, whoever takes it */
};

/* A collective that has run. */
struct lane_run {
        struct lane_road *road;
        const struct lane_set *set;
        uint64_t number;
        struct key key;
        uint32_t last_place;
        uint32_t slot; /* where its set has any */
        uint64_t sealed_ns, done_ns;
        bool is_assisted;    /* others than its thread have taken a part */
        uint64_t blocked_ns; /* how long it has run; 0 below 100 ms */
        enum status status;  /* OK, or BAD_FD with the culprit: nothing stands in the pages of its members */
        uint64_t culprit_session, culprit_buffer;
        uint64_t requests[LANE_MAX_RANKS], arrived_ns[LANE_MAX_RANKS]; /* by place */
};

struct lanes_stats {
        uint64_t n_runs, n_passed, n_rings;
        uint64_t n_regrets; /* how often its thread gave up yielding for a while */
};

/* How many threads may help the lane's, where so many compute for a device (0: one a core): one less than
 * there are CPUs for us. */
uint32_t lanes_most_assistants(uint32_t n_workers);

struct lanes_options {
        uint32_t n_assistants;
        uint64_t linger_ns; /* how long its thread looks on where the next collective usually comes so soon */
};

/* The bell rings on the loop thread when runs are to be taken. 0 or negative errno. */
int lanes_new(struct lanes **ret, uv_loop_t *loop, struct backend *backend, const struct doorbell *bell,
        const struct lanes_options *options) MUST_USE;
/* Ends the threads: what runs is over. */
void lanes_stop(struct lanes *l);
/* After lanes_stop, when all lanes are gone and the loop has closed the handle. */
void lanes_free(struct lanes *l);

/* --- a session's --- */

struct lane_ask {
        uint64_t session;
        struct loan *page, *slot; /* its status page, and LANE_PAGE_BYTES that its client writes */
};

/* Keeps references to both. *ret_bell is the caller's to send and close. 0 or negative errno. */
int lane_new(struct lanes *l, const struct lane_ask *ask, struct lane **ret, int *ret_bell) MUST_USE;
/* Its roads are closed. What still runs keeps what it writes to. */
void lane_free(struct lanes *l, struct lane *lane);
/* What it has started and nobody has taken: from here on the caller's, and answered by packets. */
bool lane_take_start(struct lanes *l, struct lane *lane, struct lane_start *ret);
/* [LANE_WORDS], where its client gives slots of result objects back. Good while the lane is there. */
const _Atomic uint64_t *lane_words(const struct lane *lane);
/* Its places on roads; NULL begins and ends. */
struct lane_place *lane_next_place(const struct lane *lane, const struct lane_place *after);

/* --- a group's --- */

void lane_road_init(struct lane_road *road);
/* Adds a member, in the order of the ranks: lane, session, membership and rank of *place. */
void lane_road_add(struct lanes *l, struct lane_road *road, const struct lane_place *place);
/* Not while it is open: takes its places from their lanes. A run goes on; until it is taken the road stays
 * where it is. */
void lane_road_deinit(struct lanes *l, struct lane_road *road);
void lane_road_open(struct lanes *l, struct lane_road *road);
/* Read and written by one collective: larger ones are not for the lane, as all others wait for them. */
uint64_t lanes_most_moved_bytes(const struct lanes *l);
/* In which chunks the plan of a set is to be cut, so that a run of it can be shared. */
uint64_t lanes_chunk_bytes(const struct lanes *l, const struct plan *plan);
/* Hands over what was started and did not run: [*ret_n] of LANE_MAX_RANKS. The set that it still runs; NULL:
 * none. */
const struct lane_set *lane_road_close(
        struct lanes *l, struct lane_road *road, struct lane_start *ret_starts, uint32_t *ret_n);

/* --- what has happened --- */

/* The next run; with it the lanes that were to go with it are gone. */
bool lanes_take_run(struct lanes *l, struct lane_run *ret);
/* Of a run that was under way when its road was closed: the slot is over. */
void lane_end_slot(const struct lane_run *run);
/* A road on which something was started that it does not run: to be closed. NULL: none. */
struct lane_road *lanes_take_refused(struct lanes *l);

/* How much there is to be taken. */
uint32_t lanes_n_news(const struct lanes *l);

/* Between these two the slots of sets on open roads may be looked at. */
void lanes_pause(struct lanes *l);
void lanes_go_on(struct lanes *l);

struct lanes_stats lanes_stats(struct lanes *l);
