/* Result objects: memory that tuttid makes for a group and that its members map read-only. A collective
 * writes its result into one slot of it, once, however many replicas there are.
 *
 * An object lives in host memory, sealed against all who read it, or in memory of a GPU, which has no seals:
 * its members map it for reading, and could do otherwise. They are replicas of one user and of one group.
 *
 * An object, known within its group by name and to everybody attached by id:
 *
 *   MAKING --chore done--> READY --nobody attached, no half names it--> (unmake chore) --> gone
 *      |                                   LINGERING <--somebody still has its memory--+
 *      |                                       +--after a while--> (unmake chore) --> ...
 *      +------chore failed--> FAILED --all who asked were told--> gone
 *
 * Who writes and holds which slot of it is told in slots.h.
 *
 * An attachment is one membership's: it ends by detaching, leaving, or with its session, and gives back what
 * it holds. Bytes and descriptors (the object's, and one for each attachment, which is sent to the client)
 * are charged to the group's user, until the memory is really gone: who keeps a descriptor or a mapping after
 * it has detached keeps the charge. Owned by daemon.c, driven by conductor.c; loop thread. Making and
 * unmaking are chores, handed back in the `chores` list of each call; who is to be told what is pulled by
 * results_take_answer. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "backends/backend.h"
#include "base/list.h"
#include "model/error.h"
#include "model/signature.h"
#include "quota.h"
#include "wire/message.h"

#define MAX_RESULT_NAME_BYTES 63
#define MAX_RESULT_SLOTS      64 /* MAX_SLOTS */
/* Of a slot: far beyond what can be mapped, and no sum of it overflows. */
#define MAX_RESULT_BYTES (UINT64_C(1) << 46)

struct results;
struct result;
struct slots;
struct slot_user;

/* What a member asks for. */
struct result_ask {
        uint64_t session, request, membership, group;
        uint32_t uid, rank, world_size;
        uint32_t n_devices;   /* host devices of this tuttid */
        uint32_t gpu;         /* the number of the GPU that `make` names, one that serves; 0: it names none */
        uint64_t granularity; /* of memory there */
        const _Atomic uint64_t *words; /* [LANE_WORDS] of the session's lane; NULL: it has none yet */
        const struct msg_make_result *make;
};

/* What is to be told to somebody who asked. */
struct result_answer {
        uint64_t session, request;
        enum status status; /* of the making: OK, NO_MEMORY, LIMIT, INTERNAL */
        char why[160];
        struct msg_result result; /* with OK */
        int fd;                   /* with OK, to be sent before the next call; stays the object's */
};

int results_new(struct results **ret, struct quotas *quotas) MUST_USE;
/* All sessions must have ended and all chores come back. What lingers is left to who has it. */
void results_free(struct results *rs);

/* Attaches a membership to the object of this name, which is made when there is none. OK: an answer will be
 * due. INVALID (name, size, device; attached already), LIMIT (slots, bytes), MISMATCH (it is there and
 * differs: err->classes has both), QUOTA, NO_MEMORY. */
enum status result_attach(
        struct results *rs, const struct result_ask *ask, struct list *chores, struct error *err) MUST_USE;

/* Whether a chore that has come back is one of this room's. */
bool result_owns(const struct chore *chore);
/* Takes it back from the engine or the GPU worker. */
void result_chore_done(struct results *rs, struct chore *chore, uint64_t now_ns, struct list *chores);
/* The next instant at which it is worth looking whether what lingers may go; UINT64_MAX: none. */
uint64_t results_next_ns(const struct results *rs);
void results_expire(struct results *rs, uint64_t now_ns, struct list *chores);

/* The next answer that is due; false: none. */
bool results_take_answer(struct results *rs, struct list *chores, struct result_answer *ret);

/* Gives a slot back, or detaches. NOT_FOUND (this membership is attached to no such object), INVALID (it does
 * not hold this slot). */
enum status result_release(struct results *rs, uint64_t session, const struct msg_release_result *ask,
        struct list *chores, struct error *err) MUST_USE;

/* The session has its lane now: what it gives back there. */
void results_set_words(struct results *rs, uint64_t session, const _Atomic uint64_t *words);

/* The membership is over; every membership of the session is. */
void results_end_membership(struct results *rs, uint64_t session, uint64_t membership, struct list *chores);
void results_end_session(struct results *rs, uint64_t session, struct list *chores);

/* --- halves that name it --- */

/* Whose half it is. */
struct result_user {
        uint64_t session, membership;
        uint32_t rank;
};

/* Checks the place of a value of `count` elements of `element_bytes` inside a slot, and keeps the object
 * until result_end_use: fills object, memory, file, span. NOT_FOUND (not attached), INVALID with field OFFSET
 * or SIZE. */
enum status result_use(struct results *rs, const struct result_user *user, struct place *place,
        uint64_t count, uint64_t element_bytes, struct error *err) MUST_USE;
/* Harmless on a place that uses none. */
void result_end_use(struct results *rs, struct place *place, struct list *chores);

/* Whether this member is still attached. */
bool result_is_attached(const struct result *r, const struct result_user *user);

/* --- slots (result-slots.c) --- */

/* For the lane, which has them while a road is open that runs collectives into the object. */
struct slots *result_slots(struct result *r);
/* NULL: it is not attached, or gives back by packets. Good while it is attached. */
struct slot_user *result_slot_user(struct result *r, const struct result_user *user);

/* The next slot in turn that is free. false: none is. */
bool result_take_slot(struct result *r, uint32_t *ret_slot) MUST_USE;
/* The run that had taken it is over. */
void result_end_slot(struct result *r, uint32_t slot, uint64_t now_ns);
/* ... and this member, if it is still attached, holds its result. */
void result_hold(struct result *r, uint32_t slot, const struct result_user *user);

/* Where a slot begins in the object's memory. */
uint64_t result_slot_offset(const struct result *r, uint32_t slot);
uint64_t result_id(const struct result *r);
uint32_t result_device(const struct result *r);

/* Who keeps all slots from being free: STATUS_BUSY with who holds which and for how long in *err's detail,
 * the longest in age_ns; the holders in *ret_holders. */
enum status result_say_busy(
        const struct result *r, uint64_t now_ns, struct rankset *ret_holders, struct error *err);

/* --- looking --- */

/* Objects of a group, in order of age: NULL begins. */
struct result *results_next(const struct results *rs, uint64_t group, const struct result *after);
/* Fills all but job, group, device and what is only known of processes; `holders` has room for
 * MAX_ROW_HOLDERS, those who hold longest come first. Strings live as long as the object. */
void result_fill_row(struct result *r, uint64_t now_ns, struct row_result *ret, struct row_holder *holders);
/* Over all groups, also those that linger. */
uint32_t results_count(const struct results *rs);
