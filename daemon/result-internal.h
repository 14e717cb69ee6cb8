/* What the files of the room share: result.c (objects and who is attached), result-ask.c (what is asked for),
 * result-use.c (halves that name them), result-slots.c (who holds what). */
#pragma once

#include "base/table.h"
#include "result.h"
#include "slots.h"

enum result_state { RESULT_MAKING, RESULT_READY, RESULT_FAILED };

/* One membership's. */
struct attachment {
        struct list guest_link; /* struct guest.attachments */
        struct list due_link;   /* struct results.due, while it is to be told */
        struct result *result;
        uint64_t session, membership, request;
        struct slot_user user;
        uint32_t word;   /* where in its lane's page it gives slots back; 0: by packets */
        bool is_waiting; /* to be told when the object is made */
        struct charge descriptor;
};

struct result {
        struct chore chore; /* first: a chore that comes back is its object */
        uint64_t id;
        char name[MAX_RESULT_NAME_BYTES + 1];
        uint64_t slot_bytes;
        uint32_t device, world_size;
        enum result_state state;
        uint32_t n_uses; /* places of halves that name it */
        uint32_t n_attached;
        struct attachment **attached; /* [world_size], by rank */
        struct slots slots;
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

/* NULL: there is none. */
struct result *result_find(const struct results *rs, uint64_t id);
/* NOT_FOUND: the membership is attached to no such object. */
enum status result_refuse_unknown(uint64_t id, struct error *err);
/* When the last reason for it has gone. */
void result_go_if_done(struct results *rs, struct result *r, struct list *chores);

/* What the members have given back in their words. */
void result_hear(struct result *r);
