/* The flight recorder: the last 4,096 collectives of each group, always on, in tuttid, so that it outlives
 * the culprit.
 *
 * A ring of variable-size records per group, 64 KiB at first, growing as it fills to 1 MiB at most (then
 * fewer than 4,096 are kept, and that is said), charged to the group's uid (QUOTA_RECORDER_BYTES; at the
 * limit the ring stops growing and its oldest records go). The record of an ended group stays, with who its
 * members were at its end, until its bytes are needed by the same user, or until 64 ended groups of that user
 * are kept; the one that ended first goes first. A group whose record is to be brief leaves none, and takes
 * nobody else's bytes. Loop thread; times are arguments.
 *
 * Records of one name are told apart by the epochs that they tell of: a group that is made anew goes on
 * behind the last one of the newest record there is. */
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

/* Whether anything will be kept of this group when it ends. */
bool recorder_keeps(const struct recorder *r, uint64_t group_id);

/* The group is over, once, behind its last recorder_add. */
struct recorder_end {
        uint64_t group, now_ns;           /* group: its id */
        uint64_t n_bytes;                 /* that its collectives have read */
        const struct row_member *members; /* [n_members], copied; they have no ended_epoch */
        uint32_t n_members;               /* 0: memory was short, so nothing is known of them */
};
/* Its record stays for a while. Who the members were is not kept where the user's bytes do not suffice. */
void recorder_end_group(struct recorder *r, const struct recorder_end *end);

#define RECORDER_NEWEST 0 /* no epoch */

/* One recorded group that `viewer` may see, which tells of `epoch`. When there are several (lives of one
 * group where `epoch` is RECORDER_NEWEST, or groups of several secrets): the one that is there, else the one
 * that ended last. */
struct recording;
struct recording *recorder_find(
        struct recorder *r, const struct viewer *viewer, const char *job, const char *group, uint64_t epoch);
/* That of a group; NULL: it has none, or not any more. */
struct recording *recorder_find_group(struct recorder *r, uint64_t group_id);
/* The id of its group. */
uint64_t recording_group(const struct recording *rec);
/* The first and the last epoch that it has had a record of; ended. */
struct row_dump recording_describe(const struct recording *rec);

/* What all lives of one group have in common; secret: "", or the job's. */
struct recorder_name {
        uint32_t uid;
        const char *secret, *job, *group;
};
/* The last epoch that any record tells of; 0: there is none. The next life begins behind it. */
uint64_t recorder_last_epoch(const struct recorder *r, const struct recorder_name *name);

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
 * world_size, epoch, on_death, n_done, n_failed, bytes, ended, age_ns (since the end), last_done_age_ns. */
struct recording *recorder_next_ended(struct recorder *r, const struct viewer *viewer,
        const struct recording *after, uint64_t now_ns, struct row_group *ret);
/* Which number it was to end, from 1: they stand in this order. */
uint64_t recording_number(const struct recording *rec);

/* Who the members of an ended group were, by rank; *cursor begins with 0. false: no more, or not known.
 * Strings are good as long as the recording. */
bool recording_next_member(
        const struct recording *rec, uint64_t *cursor, uint64_t now_ns, struct row_member *ret);
