/* The heart: gathers the halves of each collective until it is sealed, refused, expired, aborted or orphaned.
 *
 * Pure: no I/O, no clock (time is an argument, CLOCK_MONOTONIC ns), no knowledge of sessions beyond their
 * ids. Lives on the loop thread, owned by daemon.c, driven by conductor.c alone. It never calls onward: what
 * it decided is handed back in a struct outcome. After warm-up a submission allocates nothing (halves and
 * meetings come from free lists).
 *
 * A meeting:
 *
 *     GATHERING --all halves in, equal--> SEALED --rendezvous_done--> ENDED --rendezvous_release--> (pool)
 *         |                                                             ^
 *         +--mismatch, refusal, deadline, abort, loss; never when SEALED-+
 *
 * Rules, in the order in which a submission meets them (numbers of docs/promises.md):
 *  1. the membership is this session's and alive, else NOT_FOUND / LEFT / REPLICA_LOST; the epoch is the
 * group's, else REPLICA_LOST
 *  2. the group is not FAILED, else REPLICA_LOST naming who was lost (P5)
 *  3. the key is not pending or running for this replica, else ALREADY_PENDING (P3); the first submission is
 * unharmed
 *  4. busy of this member ends (P6)
 *  5. a half that was refused (its own check, its buffers, its quota of pending submissions) keeps its own
 * status, pays a debt of this key if there is one, and else ends the key for all: PEER_REFUSED(rank, status,
 * field) to those who are there, a debt to those who are not (P4)
 *  6. a debt of this key is paid, oldest first: EXPIRED with the old reason (P3)
 *  7. the half is stored; when it was the last of the group's alive members, all are compared: equal is
 * SEALED with a number, otherwise MISMATCH to all with the field and each rank's value (P4)
 *
 * A BROADCAST whose root is gone is such a refusal, INVALID (P5). So is one that lacks memory for its
 * meeting.
 *
 * Debts: a collective that ended without an alive replica leaves it a debt, also the replica that aborted it
 * without having submitted; not the one whose half was refused. One record (key, reason, debtors) per ended
 * collective; 4,096 a group, then the oldest record's debtors are ejected as out of step. The record is
 * charged to the group's uid (QUOTA_PENDING, 1); when that or memory fails, its own debtors are ejected. A
 * FAILED group makes none, its records go, and so do those of an older epoch. A member's debts go with it.
 *
 * A new epoch (group.h shows when) ends what the old one gathers with REPLICA_LOST for
 * all. What is SEALED runs to its end; its key is free in the new epoch. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/heap.h"
#include "base/list.h"
#include "base/sip.h"
#include "group.h"
#include "model/error.h"
#include "model/signature.h"
#include "quota.h"
#include "resume.h"

#define MAX_DEBT_RECORDS 4096
#define MAX_GROUP_MEETINGS                                                                                   \
        16384 /* of one group that are not ended: what one death may have to walk through */

struct rendezvous;

struct rendezvous_settings {
        uint64_t default_timeout_ns;                          /* 0: none */
        uint64_t join_timeout_ns, stall_warn_ns, busy_max_ns; /* 0: none */
        uint64_t hash_seed[2]; /* secret, so that nobody can choose keys that collide; tests leave it 0 */
};

/* One replica's submission. From rendezvous_half_new; the conductor fills the upper part. */
struct half {
        uint64_t session, request, membership, epoch;
        struct key key;
        struct signature signature;
        bool has_timeout;
        uint64_t timeout_ns;      /* of the call; 0: none */
        struct entry *entries;    /* [signature.n_entries] */
        uint32_t capacity;        /* of entries */
        struct result *object;    /* the conductor's: the one that its outputs name, or NULL */
        struct msg_signal signal; /* where its stream is told of its end */
        struct signal_page *page; /* the conductor's: kept for the signal, or NULL */
        uint32_t device;          /* the conductor's: the GPU where a value of it lies; 0: none does */
        bool has_host_values;     /* the conductor's: some lie in host memory */
        bool is_spread;           /* the conductor's: some lie on another GPU than `device` */
        uint64_t held_ns;         /* waited for its buffers or on the lane before; its deadline counts it */
        uint32_t n_sparse;        /* the conductor's: of the entries that it has looked at */
        uint32_t n_checked;       /* entries that the conductor has looked at */
        uint64_t prepare;         /* the conductor's: the number under which it is to be kept; 0: it is not */
        struct prepared *prepared; /* the conductor's: what it was started from, whose entries it shares */
        bool is_kept;              /* the conductor's: its entries are those of what was made of it */
        uint32_t n_seen;           /* entries that rendezvous has looked at */
        uint64_t n_bytes;          /* of the inputs of these; UINT64_MAX when that cannot be counted */
        struct sip digest;         /* of these, where there are many in all */
        uint64_t *marks; /* what the digest was, in short, after each MARK_ENTRIES of them and at last */
        /* Set by rendezvous_submit. */
        uint32_t rank;
        uint64_t arrived_ns;
        uint64_t deadline_ns;      /* ALARM_NEVER: none */
        bool deadline_is_soft;     /* of group or config: busy stops its clock */
        uint64_t paused_before_ns; /* how long the meeting's clock had stood by then */
        bool differs;              /* from the meeting's reference */
        struct charge charge; /* QUOTA_PENDING, 1 for each QUOTA_ENTRIES_BEGUN entries begun; until freed */
        struct charge memory; /* QUOTA_MEMORY_BYTES: itself and its entries, until they are really gone */
        struct list pool_link;
};

struct meeting_key {
        uint64_t group, epoch, sequence;
        char name[MAX_KEY_BYTES];
};

enum meeting_state { MEETING_GATHERING, MEETING_SEALED, MEETING_ENDED };

/* How far its members have been told of an end that takes many packets. */
struct telling {
        bool is_begun;
        uint32_t index, rank; /* of the half that is told; index: among the halves */
        uint32_t n_entries;   /* whose lengths it has been told */
};

struct meeting {
        struct group *group;
        struct key key;
        enum meeting_state state;
        uint64_t number; /* of group and epoch; 0 before SEALED */
        uint64_t epoch;
        uint64_t first_ns, sealed_ns, done_ns;
        uint32_t n_halves, last_rank;
        /* The clock that busy stops (rendezvous-time.c). */
        uint64_t paused_ns, paused_total_ns; /* since when it stands, 0: it runs; how long it stood before */
        bool alarm_is_partial;               /* the alarm was set while the clock stood */
        bool has_root;                       /* some half of it is of a kind with a root */
        struct rankset have;                 /* whose halves are here: after SEALED the contributors */
        struct half **halves;                /* [world_size], NULL where none */
        /* Each half is compared as it comes, so that the last one has no more to do than the first: those
         * that do not differ are equal to the reference, one of them. NULL: they have all gone, or there is
         * none. */
        const struct half *reference;
        uint32_t n_differing;
        uint32_t divisor;    /* of MEAN: contributors, or the world with zero_fill. Set at SEALED */
        enum status status;  /* at ENDED */
        struct error *error; /* at ENDED with a status other than OK, owned; NULL when memory is short, or
                                when  4,096 that were not released hold one: then `status` alone tells */
        struct alarm deadline;
        struct list group_link, outcome_link;
        struct charge charge; /* QUOTA_MEMORY_BYTES: itself */
        void *task;           /* the conductor's, while SEALED */
        bool has_slot;        /* the conductor's: of the result object that the halves name */
        uint32_t slot;
        struct telling telling; /* the conductor's, at ENDED */
        UT_hash_handle hh;      /* by group and key */
        struct meeting_key hash_key;
        uint32_t hash_key_bytes;
};

/* What a call decided. Each list is to be emptied by the conductor, front to back, before the next call with
 * this outcome; `over` last. Several halves may be submitted or refused one after the other: they only add.
 */
struct outcome {
        struct list sealed;   /* struct meeting.outcome_link: run it */
        struct list ended;    /* struct meeting.outcome_link: tell every half's session status and error, then
                                 rendezvous_release */
        struct list formed;   /* struct group.outcome_link: a new epoch has begun. Answer the join_request of
                                 every member that is ALIVE with OK */
        struct list unformed; /* struct group.outcome_link: answer every JOINING member's join with
                                 rendezvous_group_failure, then rendezvous_forget */
        struct list ejected;  /* struct member.outcome_link: end its session; `why` says it */
        struct list stalled;  /* struct group.outcome_link: report its rendezvous_oldest */
        struct list struck;   /* struct half.pool_link: its replica is gone, its collective goes on without.
                                 Tell its session LEFT if it is still there, give its leases back, then
                                 rendezvous_half_free */
        struct list answered; /* struct reform.outcome_link: tell its session status and error, then
                                 rendezvous_reform_free */
        struct list over;     /* struct group.outcome_link: ENDED, nothing refers to it. Note its end, then
                                 rendezvous_forget */
        uint64_t n_looked; /* meetings that were walked through, ever, and what took as long: what it took */
};

void outcome_init(struct outcome *o);
bool outcome_is_empty(const struct outcome *o);

int rendezvous_new(
        struct rendezvous **ret, const struct rendezvous_settings *settings, struct quotas *quotas) MUST_USE;
/* Other times from now on: what has begun keeps its deadlines. The seed of hashes stays. */
void rendezvous_set_times(struct rendezvous *r, const struct rendezvous_settings *settings);
/* Groups and meetings with their halves may be left; their charges are released. Not the halves that are the
 * caller's (refused, struck, not submitted). NULL is fine. */
void rendezvous_free(struct rendezvous *r);

/* --- membership --- */

struct join {
        uint64_t session, request;
        uint32_t uid, pid;
        const char *process;   /* the program's name; NULL: not known */
        uint64_t last_epoch;   /* that is remembered of a group of this name which has ended; 0: none */
        bool makes_no_group;   /* tuttid is drained: DRAINING where there is none of this name */
        struct msg_join ask;   /* strings, also `process`, may go after the call */
        struct resume *resume; /* not NULL: no new membership, but one of an epoch under the tuttid before.
                                  Taken over when the join is OK */
};

/* Takes a rank in (uid, secret, job, group), which is made when it is not there. OK: the join waits, and
 * `formed` or `unformed` will tell; where the group has been whole before, it waits until that is formed
 * anew, and `formed` or `answered` will tell. INVALID (empty or long names or control bytes in them, rank
 * outside the world, world outside 1..1024), UNSUPPORTED (unknown policies), MISMATCH (world size, on_death,
 * on_leave: newcomer alone), BUSY (rank taken: err->replicas names the pid), QUOTA, NO_MEMORY. Here and below
 * *err is written on failure alone, and needs no initialising. */
enum status rendezvous_join(struct rendezvous *r, const struct join *join, uint64_t now_ns,
        struct outcome *out, struct error *err) MUST_USE;

/* A join that resumes: the group is restored, in the epoch that its members bring, when all who are in that
 * epoch and not known to be lost are back; `formed` tells them, and what becomes of their requests stands in
 * their `resume`, until it is dropped. Who is not back at the join deadline, or whose rank a newcomer has
 * taken, counts as lost (P5). REPLICA_LOST: the group has gone on without this member. */

/* Frees what the members of a group of `formed` brought, after they were told. */
void rendezvous_drop_resumes(struct group *g);

/* The group that this join asked for; NULL when there is none. */
const struct group *rendezvous_find_group(const struct rendezvous *r, const struct join *join);

/* The member goes willingly. What it had submitted and is not sealed is struck; what the others wait for
 * seals if the rest are there; a BROADCAST whose root it is ends INVALID for all. NOT_FOUND when it is not
 * this session's, LEFT or REPLICA_LOST when it has ended before. */
enum status rendezvous_leave(struct rendezvous *r, uint64_t session, uint64_t membership, uint64_t now_ns,
        struct outcome *out, struct error *err) MUST_USE;

/* Every membership of this session that is not over goes willingly: what Goodbye asks for. A JOINING one
 * counts as lost (its group cannot become whole). */
void rendezvous_leave_all(struct rendezvous *r, uint64_t session, uint64_t now_ns, struct outcome *out);

struct reform_ask {
        uint64_t session, request, membership;
        enum reform_kind kind; /* REJOIN or SHRINK */
        uint64_t timeout_ns;   /* 0: tuttid's join timeout */
};

/* The member wishes the group to be formed anew: with newcomers in all free ranks, or without them. OK: it
 * waits, and `formed` or `answered` will tell. NOT_FOUND, LEFT, REPLICA_LOST as everywhere; ALREADY_PENDING
 * (it waits in such a call already), NO_MEMORY. A member that calls is not busy any more. */
enum status rendezvous_reform(struct rendezvous *r, const struct reform_ask *ask, uint64_t now_ns,
        struct outcome *out, struct error *err) MUST_USE;

/* One of `answered`, or NULL. */
void rendezvous_reform_free(struct rendezvous *r, struct reform *reform);

/* The session has ended: every membership of it ends by `loss`, by the group's on_death. */
void rendezvous_lose(struct rendezvous *r, uint64_t session, enum loss loss, const char *why, uint64_t now_ns,
        struct outcome *out);

/* tuttid is being stopped: what gathers ends with DRAINING for all, without debts, and forming groups do.
 * What is sealed runs to its end. */
void rendezvous_drain(struct rendezvous *r, uint64_t now_ns, struct outcome *out);
/* tuttid is drained: groups that are forming end with DRAINING. What is whole goes on; that no new ones come
 * is for the joins to say (makes_no_group). */
void rendezvous_end_forming(struct rendezvous *r, uint64_t now_ns, struct outcome *out);

/* The membership, of any state, when it is this session's; else NULL. */
struct member *rendezvous_find_member(struct rendezvous *r, uint64_t session, uint64_t membership);
/* A session's memberships that are not over; NULL begins. */
const struct member *rendezvous_next_member(
        const struct rendezvous *r, uint64_t session, const struct member *after);

/* Frees a group of `unformed` after its members were told, or one of `over`. */
void rendezvous_forget(struct rendezvous *r, struct group *g);
/* Why the group of `unformed` failed: status and error to tell its JOINING members. Valid until
 * rendezvous_forget. */
const struct error *rendezvous_group_failure(const struct rendezvous *r, const struct group *g);

/* --- collectives --- */

/* A half with room for n_entries (at most MAX_ENTRIES), cleared but for the entries, whose memory costs
 * nothing until they are written; NULL when memory is short. Back to the pool by rendezvous_half_free (the
 * caller has given its leases back); both are O(1) after warm-up. */
struct half *rendezvous_half_new(struct rendezvous *r, uint32_t n_entries);
/* What such a half takes. */
size_t rendezvous_half_bytes(uint32_t n_entries);
/* Charges it to `uid`, once: before its entries come in parts, and at the latest by rendezvous_submit. QUOTA,
 * NO_MEMORY. */
enum status rendezvous_half_charge(
        struct rendezvous *r, struct half *half, uint32_t uid, struct error *err) MUST_USE;
/* Looks at up to `n` entries more, in advance: of a half with many of them rendezvous_submit looks at all
 * that are left, which takes its time. After that nobody walks through them on the loop thread at once. */
void rendezvous_half_look(const struct rendezvous *r, struct half *half, uint32_t n);
void rendezvous_half_free(struct rendezvous *r, struct half *half);
/* Of an ENDED meeting: the half of `rank` is the caller's from here on, with what its entries hold; another
 * one that says the same, and shares its entries, stands for it in the meeting and has its pending charge.
 * NULL: memory is short, and nothing has changed. */
struct half *rendezvous_take_half(struct rendezvous *r, struct meeting *m, uint32_t rank);
/* One that rendezvous_half_free has neither pooled nor freed, since giving so much memory back takes the
 * kernel its time: the caller's to unmake, on another thread, and then to release its `memory`. NULL: none.
 */
struct half *rendezvous_take_buried(struct rendezvous *r);
/* Of no rendezvous any more; from any thread. */
void rendezvous_half_unmake(struct half *half);

/* Submits. STATUS_OK: the half belongs to rendezvous until its meeting is in `sealed` or `ended` and
 * released. Any other status: the half stays the caller's, *err says why, and others may be told by `out` (a
 * refusal by quota). */
enum status rendezvous_submit(struct rendezvous *r, struct half *half, uint64_t now_ns, struct outcome *out,
        struct error *err) MUST_USE;

/* The half was refused with *err (status, field, detail set by whoever refused). Returns the status to tell
 * its sender, with *err completed: the refusal, or what rules 1-3 say before it. The half stays the caller's.
 */
enum status rendezvous_refuse(struct rendezvous *r, const struct half *half, uint64_t now_ns,
        struct outcome *out, struct error *err) MUST_USE;

/* Ends an unsealed key for all: ABORTED naming the rank and reason. NOT_FOUND (nobody has submitted it), BUSY
 * (it runs), INVALID (no key). */
enum status rendezvous_abort(struct rendezvous *r, uint64_t session, const struct msg_abort *ask,
        uint64_t now_ns, struct outcome *out, struct error *err) MUST_USE;

/* Stops the clocks of soft deadlines of meetings that lack this member, for at most duration (busy_max at
 * most), until it submits. */
enum status rendezvous_busy(struct rendezvous *r, uint64_t session, const struct msg_busy *ask,
        uint64_t now_ns, struct outcome *out, struct error *err) MUST_USE;

/* A SEALED meeting has run (or could not): it is ENDED with this status. `err` NULL for OK; copied otherwise.
 * Members' last finished key is noted for OK. The caller then tells the halves and releases. Makes no debts:
 * everybody was there. */
void rendezvous_done(struct rendezvous *r, struct meeting *m, enum status status, const struct error *err,
        uint64_t now_ns);

/* Takes back an ENDED meeting with its halves (the caller has given their leases back). When it was the last
 * of an ENDED group, that is in `over`. */
void rendezvous_release(struct rendezvous *r, struct meeting *m, struct outcome *out);

/* --- collectives that are run without rendezvous (conductor-lane.c) --- */

/* Whether nothing of this group is here, now or owed, and nothing stands in the way of the next collective of
 * all its members. */
bool rendezvous_is_quiet(const struct group *g);
/* A meeting of the members in *have that is nobody's, ENDED and OK, without halves: its owner puts them in
 * (freed with it by rendezvous_release), and lets it speak for collectives that have been run. NULL: QUOTA,
 * NO_MEMORY, by *err. */
struct meeting *rendezvous_stand(
        struct rendezvous *r, struct group *g, const struct rankset *have, struct error *err) MUST_USE;
/* One of them has ended, as its number, key, status and times say. */
void rendezvous_note_stood(struct meeting *m);
/* The number of the group's next collective, when it comes back here. */
void rendezvous_set_next_number(struct group *g, uint64_t number);

/* --- time --- */

/* The next instant at which rendezvous_expire may have something to do; ALARM_NEVER: none. The deadline of a
 * meeting whose clock busy has stopped counts once more, as it was. */
uint64_t rendezvous_next_ns(const struct rendezvous *r);
/* Deadlines of meetings (TIMEOUT), of forming groups and of those who wait for one to be formed anew, ends of
 * busy, stalls. A stalled group is in `stalled` once per stall_warn. Thousands may be due at once: a call
 * handles some of them, and the rest stays due. */
void rendezvous_expire(struct rendezvous *r, uint64_t now_ns, struct outcome *out);

/* --- looking --- */

/* Of the collectives that gather, the one that has waited longest: what a stall is about. NULL: none does. */
const struct meeting *rendezvous_oldest(const struct group *g);

/* All groups that have not ended, in order of age: NULL begins. */
struct group *rendezvous_next_group(const struct rendezvous *r, const struct group *after);
uint32_t rendezvous_n_groups(const struct rendezvous *r);
