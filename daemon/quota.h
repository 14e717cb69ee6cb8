/* What each user makes tuttid hold, and the limits of it.
 *
 * A charge is an object inside the thing that holds the resource and is undone by charge_release, so that no
 * counter can drift. A user exists as long as something is charged to it, or it was refused or lost a replica
 * and is remembered. What a thing costs grows with the
 * memory behind it: a pending submission counts once for each QUOTA_ENTRIES_BEGUN entries begun, a group once
 * for each QUOTA_RANKS_BEGUN ranks begun. Pure; lives on the loop thread. */
#pragma once

#include <stdint.h>
#include "base/check.h"
#include "config.h"
#include "model/error.h"

#define QUOTA_ENTRIES_BEGUN  64
#define QUOTA_RANKS_BEGUN    64
#define QUOTA_MIN_RESERVE    16
#define QUOTA_MAX_REMEMBERED 256

enum quota {
        QUOTA_CONNECTIONS,
        QUOTA_DESCRIPTORS,
        QUOTA_MAPPED_BYTES,
        QUOTA_PENDING,
        QUOTA_GROUPS,
        QUOTA_RECORDER_BYTES,
        QUOTA_RESULT_BYTES,
        QUOTA_REPLY_BYTES,  /* queued for clients that do not read */
        QUOTA_MEMORY_BYTES, /* of tuttid's own: halves, meetings, plans, groups and their counters */
        N_QUOTA,
};

struct quotas;
struct quota_user;

/* Zero-initialised: charges nothing. */
struct charge {
        struct quota_user *user;
        enum quota quota;
        uint64_t amount;
};

const char *quota_name(enum quota quota);

int quotas_new(struct quotas **ret, const struct quota_limits *limits) MUST_USE;
/* Other limits from now on, for everybody: those that a user has had of its own are gone. What is charged
 * beyond them stays, and nothing is added to it. */
void quotas_set_limits(struct quotas *q, const struct quota_limits *limits);
/* Every charge must have been released. */
void quotas_free(struct quotas *q);

/* This user, who has none yet, has limits of its own. 0 or -ENOMEM. */
int quotas_override(struct quotas *q, uint32_t uid, const struct quota_limits *limits) MUST_USE;

/* What memory that comes in pieces of `granularity` bytes (a power of two; 0: in any size) takes. */
static inline uint64_t quota_whole_bytes(uint64_t n_bytes, uint64_t granularity) {
        if (granularity == 0 || n_bytes > UINT64_MAX - granularity)
                return n_bytes;
        return (n_bytes + granularity - 1) & ~(granularity - 1);
}

/* Charges `amount` of `quota` to `uid` in an empty *charge. STATUS_OK, STATUS_QUOTA (with name, used, limit
 * in *err) or STATUS_NO_MEMORY. `err` is touched only then, and may be NULL. */
enum status quota_charge(struct quotas *q, struct charge *charge, uint32_t uid, enum quota quota,
        uint64_t amount, struct error *err) MUST_USE;

/* The same, with a limit that is an eighth higher, at least QUOTA_MIN_RESERVE: for what is held only to be
 * given back. */
enum status quota_charge_reserve(struct quotas *q, struct charge *charge, uint32_t uid, enum quota quota,
        uint64_t amount, struct error *err) MUST_USE;

/* Whose it is; 0 of an empty charge. */
uint32_t charge_uid(const struct charge *charge);

/* Gives back all but `amount`, of a charge that has as much. */
void charge_lower(struct charge *charge, uint64_t amount);
/* Gives back; harmless on an empty charge. */
void charge_release(struct charge *charge);

uint64_t quota_used(const struct quotas *q, uint32_t uid, enum quota quota);
/* How often this user was refused, where somebody was told of it (`err`). Users who were are remembered when
 * they have nothing here any more, QUOTA_MAX_REMEMBERED of them. */
uint64_t quota_refused(const struct quotas *q, uint32_t uid, enum quota quota);
/* A replica of this user, who has something charged, has died, was disconnected or ejected. Remembered as
 * refusals are. */
void quota_count_loss(struct quotas *q, uint32_t uid, enum loss loss);
uint64_t quota_losses(const struct quotas *q, uint32_t uid, enum loss loss);
uint64_t quota_limit(const struct quotas *q, uint32_t uid, enum quota quota);
/* Users with something charged. */
uint32_t quota_users(const struct quotas *q);
/* Fills `uids` with up to `n` of them, and behind them of those remembered; returns how many there are. */
uint32_t quota_list_users(const struct quotas *q, uint32_t *uids, uint32_t n);
/* Over all users. */
uint64_t quota_total(const struct quotas *q, enum quota quota);
