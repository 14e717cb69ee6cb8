/* A result object as this process sees it: mapped read-only, and which of its slots it holds.
 *
 *   ATTACHED --tutti_object_free--> detached and unmapped --last unfinished work ends--> gone
 *
 * Owned by its connection (in `objects`) until it is freed. tuttid knows who holds what; `held` is the same
 * seen from here, from the replies that have been taken in, so that a wrong release is known at once and a
 * right one needs no answer. */
#pragma once

#include "lib/connection.h"

struct tutti_object {
        struct list node;
        struct tutti *t;
        uint64_t id, membership;
        char name[MAX_NAME_BYTES];
        const uint8_t *data; /* NULL: unmapped */
        uint64_t slot_bytes, stride_bytes;
        uint32_t n_slots;
        uint32_t word;         /* in its lane's page, where slots are given back; 0: by packets */
        uint64_t device_bytes; /* in memory of a GPU, all of it; 0: of the host */
        void *context;         /* in which it is mapped */
        /* Under `lock`; bit s is slot s. */
        uint64_t held;
        uint64_t unwanted; /* held for a work that was freed before it ended */
        uint32_t n_uses;   /* unfinished works */
        bool is_freed;
};

/* What comes with the answer to a make; on the stack of who waits for it. */
struct object_made {
        uint64_t asked_bytes; /* of a slot */
        struct msg_result result;
        int fd; /* -1: it could not be received */
};

/* Under `lock`. */
void object_use(struct tutti_object *o);
void object_end_use(struct tutti_object *o);
/* A collective that was ours has been written there. Under `lock`. */
void object_hold(struct tutti_object *o, const struct msg_done *done);
/* Nobody will look at this slot: objects_reap gives it back. Under `lock`. */
void object_give_back(struct tutti_object *o, uint32_t slot);

/* Gives back what nobody wants. Not under any lock. */
void objects_reap(struct tutti *t);
void objects_free(struct tutti *t);
