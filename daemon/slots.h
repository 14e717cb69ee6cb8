/* The slots of a result object: which is next, who writes, who holds.
 *
 *   FREE --slots_take--> RUNNING --slots_end--> HELD --last holder drops it--> FREE
 *                                          +--nobody holds it: at once FREE
 *
 * A member gives slots back by packets, or in a word of memory that it writes: bit s is turned over each time
 * slot s is given back. The word is a message and no state: it is copied, and what has turned since the last
 * look is dropped where it is this member's. So whatever it says, a member gives back its own alone.
 *
 * Owned by its object. Pure; the loop thread's, but while a road is open that runs collectives into it the
 * lane's, under its lock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "model/rankset.h"

#define MAX_SLOTS 64

struct slot {
        bool is_running;
        struct rankset holders; /* while it runs: who will hold it, if it ends well */
        uint64_t held_since_ns;
};

struct slots {
        uint32_t n, next; /* next: the turn */
        uint64_t stride_bytes;
        struct slot *all; /* [n] */
};

/* A member, with its word; of an attachment. */
struct slot_user {
        uint32_t rank;
        const _Atomic uint64_t *word; /* the client's to write; NULL: by packets alone */
        uint64_t heard;               /* what it was at the last look */
};

/* The next in turn that is free. false: none is. */
bool slots_take(struct slots *s, uint32_t *ret) MUST_USE;
/* The run that had taken it is over. */
void slots_end(struct slots *s, uint32_t slot, uint64_t now_ns);
/* ... and has failed: nobody holds it. */
void slots_void(struct slots *s, uint32_t slot, uint64_t now_ns);

/* Whether it was held. */
bool slots_drop(struct slots *s, uint32_t slot, uint32_t rank);
void slots_drop_all(struct slots *s, uint32_t rank);
/* What the word says since the last look. */
void slots_hear(struct slots *s, struct slot_user *user);

bool slot_is_free(const struct slot *s);
/* Since when it is held, at `now_ns`, which may be older than the end of its run. */
uint64_t slot_age_ns(const struct slot *s, uint64_t now_ns);
