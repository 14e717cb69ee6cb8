/* A second opinion on the rules of meeting: arrays, loops over everything, time tick by tick. Slow and short,
 * so that it can be read beside docs/promises.md. rendezvous-play.c runs it beside the real one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "rendezvous.h"

#define MODEL_GROUPS   12 /* lives, also ended ones that still run something */
#define MODEL_WORLD    4
#define MODEL_MEETINGS 64 /* what older epochs have sealed may still run */
#define MODEL_DEBTS    1024
#define MODEL_EVENTS   512

/* Signatures: equal or not is all that counts, and who the root is. */
enum model_signature { SIGNATURE_PLAIN, SIGNATURE_OTHER, SIGNATURE_ROOT_0, SIGNATURE_ROOT_1, N_SIGNATURE };

enum event_type { EVENT_TOLD, EVENT_STRUCK, EVENT_SEALED, EVENT_EJECTED, EVENT_OVER };

/* One thing that somebody hears. `id`: the request, or for EJECTED and OVER the number of the group's life.
 */
struct event {
        enum event_type type;
        uint64_t id;
        int a, b, c; /* TOLD: status, cause, rank. SEALED: number, divisor, contributors. EJECTED: rank */
};

struct model_half {
        bool is_here, is_soft;
        uint64_t request;
        enum model_signature signature;
        int left; /* ticks; -1: no deadline */
};

struct model_meeting {
        uint64_t epoch;
        int key, age, n_last;
        bool runs;
        uint64_t number, sealed_order;
        struct model_half halves[MODEL_WORLD];
};

struct model_debt {
        int key, rank;
        enum status cause;
        unsigned int debtors; /* bit r: rank r */
};

/* What a member waits for the others to wish as well. */
enum model_wish { WISH_NONE, WISH_JOIN, WISH_REJOIN, WISH_SHRINK };

struct model_member {
        enum member_state state;
        enum model_wish wish;
        int wish_left; /* ticks */
        uint64_t wish_request;
        uint64_t session, request, order, n_submitted, first_epoch;
        int busy, join_left, default_timeout; /* ticks; timeouts: -1 none, 0 tuttid's */
        int last_key;                         /* -1: nothing yet */
};

struct model_group {
        bool is_used;
        enum group_state state;
        uint64_t life, epoch;
        int name, world;
        bool shrinks, fills;
        struct model_member members[MODEL_WORLD];
        struct model_meeting meetings[MODEL_MEETINGS]; /* oldest first */
        int n_meetings, n_debts, lost;
        struct model_debt debts[MODEL_DEBTS]; /* oldest first */
        uint64_t n_sealed;
};

struct model {
        struct model_group groups[MODEL_GROUPS];
        int default_timeout, join_timeout, stall_warn; /* ticks */
        int pending_limit, group_limit;
        uint64_t n_lives, n_joins, n_sealed;
        int n_limbo; /* halves that have ended during this step and are still charged */
        struct event events[MODEL_EVENTS];
        int n_events;
};

/* A membership as a client remembers it: the group may be over by now, and the rank another's. */
struct model_handle {
        uint64_t session, life, order;
        int rank;
};

struct model_submission {
        struct model_handle who;
        uint64_t session, request;
        int key;
        enum model_signature signature;
        int timeout; /* ticks; -1: none; 0: not of the call */
        bool is_old_epoch;
        enum status refused;
};

struct model_join {
        uint64_t session, request;
        int name, world, rank, timeout, default_timeout;
        bool shrinks, fills;
};

/* Each step fills `events` anew; model_finish_step closes it. */
void model_begin_step(struct model *m);
void model_join(struct model *m, const struct model_join *join);
void model_submit(struct model *m, const struct model_submission *s);
/* Told as an event with this request. */
void model_abort(struct model *m, struct model_handle who, uint64_t session, int key, uint64_t request);
void model_busy(struct model *m, struct model_handle who, uint64_t session, int duration, uint64_t request);
void model_leave(struct model *m, struct model_handle who, uint64_t session, uint64_t request);
/* Told when it is refused; else it waits. */
enum status model_reform(
        struct model *m, struct model_handle who, enum model_wish wish, int timeout, uint64_t request);
void model_lose(struct model *m, uint64_t session);
/* The running collective that was sealed first but `nth`; false when there is none. */
bool model_done(struct model *m, int nth, enum status status);
void model_tick(struct model *m);
void model_finish_step(struct model *m);

struct model_group *model_find(struct model *m, uint64_t life);
bool model_is_stalled(const struct model *m, const struct model_group *g);
unsigned int model_have(const struct model_group *g, const struct model_meeting *meeting);
int model_n_pending(const struct model *m);
