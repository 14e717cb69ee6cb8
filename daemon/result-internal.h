/* What the files of the room share: result.c (objects and who is attached), result-ask.c (what is asked for),
 * result-slots.c (who holds what). */
#pragma once

#include "base/table.h"
#include "result.h"

enum result_state { RESULT_MAKING, RESULT_READY, RESULT_FAILED };

struct result_slot {
        bool is_running;
        struct rankset holders;
        uint64_t held_since_ns;
};

/* One membership's. */
struct attachment {
        struct list guest_link; /* struct guest.attachments */
        struct list due_link;   /* struct results.due, while it is to be told */
        struct result *result;
        uint64_t session, membership, request;
        uint32_t rank;
        bool is_waiting; /* to be told when the object is made */
        struct charge descriptor;
};

struct result {
        struct chore chore; /* first: a chore that comes back is its object */
        uint64_t id;
        char name[MAX_RESULT_NAME_BYTES + 1];
        uint64_t slot_bytes, stride_bytes;
        uint32_t n_slots, device, world_size;
        enum result_state state;
        uint32_t n_uses; /* places of halves that name it */
        uint32_t n_attached;
        uint32_t next_slot;           /* the turn */
        struct attachment **attached; /* [world_size], by rank */
        struct result_slot *slots;    /* [n_slots] */
        struct charge descriptor, bytes;
        struct shelf *shelf; /* NULL: out of sight, its name is free */
        struct list shelf_link;
        struct list linger_link;
        uint64_t retry_ns, retry_delay_ns; /* while it lingers */
        UT_hash_handle hh;                 /* by id */
};

/* The ask as an object that does not exist yet. INVALID, LIMIT. */
enum status result_take_ask(const struct result_ask *ask, struct result *ret, struct error *err) MUST_USE;
/* MISMATCH when the object that is there is of another kind than what `rank` asks for. */
enum status result_check_alike(
        const struct result *r, const struct result *asked, uint32_t rank, struct error *err) MUST_USE;

/* A slot or all of them, given back by a rank. */
bool slot_drop(struct result *r, uint32_t slot, uint32_t rank);
void slots_drop_all(struct result *r, uint32_t rank);
