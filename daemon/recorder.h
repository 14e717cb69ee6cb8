/* The flight recorder: the last 4,096 collectives of each group, always on, in tuttid, so that it outlives
 * the culprit.
 *
 * A ring of variable-size records per group, 64 KiB at first, growing as it fills to 1 MiB at most (then
 * fewer than 4,096 are kept, and that is said), charged to the group's uid (QUOTA_RECORDER_BYTES; at the
 * limit the ring stops growing and its oldest records go). The record of an ended group stays until its bytes
 * are needed by the same user, or until 64 ended groups of that user are kept; the one that ended first goes
 * first. Loop thread; times are arguments. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "quota.h"
#include "rendezvous.h"
#include "viewer.h"
#include "wire/message.h"

#define MAX_RECORDS          4096 /* a group */
#define RECORDER_FIRST_BYTES (UINT64_C(64) << 10)
#define RECORDER_MAX_BYTES   (UINT64_C(1) << 20)
#define RECORDER_MAX_ENDED   64 /* groups of one user */

struct recorder;

int recorder_new(struct recorder **ret, struct quotas *quotas) MUST_USE;
void recorder_free(struct recorder *r);

/* An ENDED meeting, before its release. Finds or makes the group's ring; loses the record, never more, when
 * memory is short. */
void recorder_add(struct recorder *r, const struct meeting *m);

/* The group is over, once, behind its last recorder_add; its record stays for a while. */
void recorder_end_group(struct recorder *r, uint64_t group_id, uint64_t now_ns);

/* One recorded group that `viewer` may see. The newest of this name when there are several: lives of one
 * group, or groups of several users or secrets. */
struct recording;
struct recording *recorder_find(
        struct recorder *r, const struct viewer *viewer, const char *job, const char *group);
/* The id of its group. */
uint64_t recording_group(const struct recording *rec);
/* The last of its epochs that it has a record of. */
uint64_t recording_epoch(const struct recording *rec);

/* A place in a record: between two records, which are numbered as they came. */
struct record_cursor {
        uint64_t position, number;
};

/* Before the oldest record that is there, and the number that the next one will have. */
struct record_cursor recording_begin(const struct recording *rec);
uint64_t recording_end(const struct recording *rec);

/* Records oldest first; false at the end. A cursor stays good while records are added: when those behind it
 * are gone, it goes on with the oldest, and its number tells how many are. Strings and arrays of *ret are
 * good until the next call on this recorder. `bytes` is what one replica brought. */
bool recording_next(
        struct recording *rec, struct record_cursor *cursor, uint64_t now_ns, struct row_record *ret);

/* Ended groups that are still kept and `viewer` may see, for `groups`: NULL begins. Fills job, group, uid,
 * world_size, epoch, n_done, n_failed, ended, age_ns (since the end), last_done_age_ns. */
struct recording *recorder_next_ended(struct recorder *r, const struct viewer *viewer,
        const struct recording *after, uint64_t now_ns, struct row_group *ret);
