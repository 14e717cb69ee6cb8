/* What conductor-prepared.c (halves that are kept), conductor-lane.c (collectives of them that are run on the
 * lane) and conductor-lane-session.c (who has one) share. */
#pragma once

#include "conductor-internal.h"

struct prepared_key {
        uint64_t session, number;
};

struct prepared {
        struct list link; /* in its session's, or in conductor.forgotten */
        struct prepared_key key;
        UT_hash_handle hh;
        uint64_t id;       /* never used again */
        struct half *half; /* kept: its entries are leased */
        uint32_t n_uses;   /* halves that were started from it and have not been given back */
        bool is_forgotten; /* goes when the last of these does */
        /* The plan of the collective of which it was the first half, with all halves that it is for. */
        struct task *task;
        bool is_out; /* the task runs */
        struct plan_rules rules;
        uint32_t divisor, n_parts;
        uint64_t parts[MAX_REPLAYED];
        struct standing *standing; /* that may be run on the lane by this plan; NULL: none */
        struct list standings;     /* struct standing_part.link: all that it is a part of */
};

/* What a session's client has started there last. */
struct lane_answer {
        uint64_t ran;       /* the request of the last that has run, answered by `done`; 0: it was told */
        uint64_t passed;    /* that went to rendezvous */
        uint64_t wanted;    /* that is to be told by a packet, when it has run */
        uint32_t n_running; /* of its roads, also of those that were forgotten: closed, and still running */
        struct msg_done done;
        struct charge descriptor, memory;
};

/* Whether the lane runs its task, left behind when the road was closed. */
bool standing_is_running(const struct standing *s);
/* It has been found not to be what it was: the lane runs it no more. Its road is closed. NULL is fine. */
void conductor_drop_standing(struct conductor *c, struct standing *s);
/* The half is forgotten: so is all that it is a part of. */
void conductor_drop_standings(struct conductor *c, struct prepared *p);
/* A collective of kept halves has ended well, and its plan is kept by the first of them: from now on the lane
 * may run it, if all that it takes is there. */
void conductor_teach_lane(struct conductor *c, struct prepared *first, struct meeting *m);
/* A half that speaks for what was kept. NULL: memory is short. */
struct half *conductor_speak_for(struct conductor *c, struct prepared *p);
