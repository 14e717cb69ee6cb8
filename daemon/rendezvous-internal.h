/* What the files of rendezvous share: its tables, and the verbs that one of them offers to the others.
 *
 *   rendezvous.c          life, pools, tables, looking
 *   rendezvous-join.c     how a group comes to be, is whole, fails to form, is forgotten
 *   rendezvous-submit.c   the rules a submission meets
 *   rendezvous-seal.c     are the halves equal? the differences of those that are there
 *   rendezvous-end.c      how a meeting ends, and what its members are told
 *   rendezvous-debt.c     what a collective that ended leaves to those who were not there
 *   rendezvous-gone.c     leave and loss
 *   rendezvous-reform.c   newcomers, rejoin, shrink: how a new epoch begins
 *   rendezvous-stand.c    what speaks for collectives that are run without rendezvous
 *   rendezvous-time.c     busy, deadlines, stalls
 *   rendezvous-clocks.c   which alarm is due, users in turn */
#pragma once

#include "base/sip.h"
#include "rendezvous-clocks.h"
#include "rendezvous.h"

#define DIGEST_ENTRIES   64 /* from more than these on halves are compared by their digests */
#define MARK_ENTRIES     64 /* of two halves that differ, so many entries are compared to find where */
#define N_HALF_CLASSES   17 /* room for 1, 2, 4 ... MAX_ENTRIES entries */
#define N_DEBT_BUCKETS   256
#define MAX_POOLED_BYTES (64u << 20) /* what the pools keep, all together */
#define LARGE_HALF_BYTES (1u << 20)  /* from these on a half is pages of its own, and given back elsewhere */
#define EXPIRIES_A_CALL  32          /* alarms, and meetings that are walked through for them: */
#define LOOKS_A_CALL     4096
#define MAX_ERRORS       4096 /* that ended meetings of one user hold at a time: 24 MiB */
#define N_ERROR_SHARES   64   /* users whose numbers are equal modulo this share one */

/* Whose memberships end with a session: its members that are JOINING or ALIVE. */
struct party {
        uint64_t session;
        struct list members; /* struct member.session_link */
        UT_hash_handle hh;
};

struct identity {
        uint32_t uid;
        char secret[MAX_SECRET_BYTES], job[MAX_NAME_BYTES], name[MAX_NAME_BYTES];
};

/* A group, and what only rendezvous knows of it. */
struct circle {
        struct group group;
        struct identity identity;
        UT_hash_handle hh;     /* by identity, until ENDED */
        struct list all_link;  /* in rendezvous.groups, after ENDED in rendezvous.over */
        uint64_t first_epoch;  /* of this group: one more than is remembered of those before it */
        struct error *failure; /* while FORMING and when it failed to form: room for the reason */
        int32_t deadline_rank; /* whose join deadline is set */
        uint32_t n_present;    /* members that are JOINING or ALIVE */
        uint32_t n_alive;      /* members that are ALIVE: as many halves seal a meeting */
        uint32_t n_resumers;   /* while FORMING: members that were in it before; not 0: it is restored */
        struct rankset busy;   /* of the alive */
        struct rankset gone;   /* during one loss: who goes, newcomers aside */
        struct list gone_link;
        struct list ended;         /* struct meeting.group_link: not released yet */
        struct list pool;          /* struct meeting.group_link: to be used again */
        struct list debts;         /* struct debt.age_link, oldest first */
        struct list *debt_buckets; /* [N_DEBT_BUCKETS] of struct debt.bucket_link, oldest first; NULL before
                                      the first */
        uint64_t stall_reported_ns;
        struct list *oldest; /* in group.meetings: none before it is GATHERING */
};

struct rendezvous {
        struct rendezvous_settings settings;
        struct quotas *quotas;
        uint64_t last_id;         /* of groups and memberships */
        struct list groups, over; /* struct circle.all_link, oldest first */
        uint32_t n_groups;        /* in `groups` */
        struct circle *identities;
        struct member *members;
        struct party *parties;
        struct meeting *meetings; /* GATHERING and SEALED, by group and key; never empty: */
        struct meeting sentinel;
        struct clocks clocks;
        struct list halves[N_HALF_CLASSES]; /* pools */
        struct list buried;                 /* struct half.pool_link: to be freed elsewhere */
        size_t pooled_bytes;
        uint32_t n_errors[N_ERROR_SHARES]; /* held by ended meetings and reforms, by user */
};

static inline struct circle *circle_of(struct group *g) {
        return list_entry(g, struct circle, group);
}

/* now + timeout; ALARM_NEVER for a timeout of 0, which is none. */
uint64_t deadline_after(uint64_t now_ns, uint64_t timeout_ns);

/* Puts `link` at the end of `list`, out of wherever it was. */
void outcome_put(struct list *list, struct list *link);

/* --- rendezvous.c --- */

/* For what clients choose. */
uint32_t secret_hash(const struct rendezvous *r, const void *data, size_t n);

/* A key of a group with its hash: made once for a submission, then looked up wherever it is needed. */
struct lookup {
        struct meeting_key key;
        uint32_t n_bytes, hash;
};

void lookup_make(
        const struct rendezvous *r, const struct group *g, const struct key *key, struct lookup *ret);
struct meeting *meeting_find(const struct rendezvous *r, const struct lookup *l);

/* A meeting without halves that is in no table; NULL with *err (QUOTA, NO_MEMORY). */
struct meeting *meeting_make(struct rendezvous *r, struct circle *c, struct error *err);
/* A GATHERING one, in the tables; NULL with *err (QUOTA, NO_MEMORY). */
struct meeting *meeting_new(struct rendezvous *r, struct circle *c, const struct lookup *l,
        const struct key *key, struct error *err);
/* Takes a GATHERING or SEALED meeting out of everything that finds it by key or age; it still counts as a
 * reference. */
void meeting_detach(struct rendezvous *r, struct meeting *m);
/* Back to the pool, with its halves and its error. */
void meeting_recycle(struct rendezvous *r, struct meeting *m);
/* Frees what the circle keeps to use again. */
void circle_drain_pool(struct rendezvous *r, struct circle *c);

struct party *party_find(const struct rendezvous *r, uint64_t session);
/* NULL when memory is short. */
struct party *party_get(struct rendezvous *r, uint64_t session);
/* Frees it when it has no members. */
void party_drop(struct rendezvous *r, struct party *party);

/* Rule 1: the membership of this session, ALIVE, else NOT_FOUND, LEFT, REPLICA_LOST with *err. */
enum status member_find_alive(struct rendezvous *r, uint64_t session, uint64_t membership, uint64_t now_ns,
        struct member **ret, struct error *err);

/* --- rendezvous-end.c, of an ENDED one --- */

/* Its members have finished it. */
void meeting_note_finished(const struct meeting *m, uint64_t now_ns);

/* --- rendezvous-join.c --- */

/* FORMING -> ENDED, `unformed`. The reason is in c->failure, all but identity, have, missing and reports of
 * `about`. */
void circle_unform(struct rendezvous *r, struct circle *c, const struct rankset *about, uint64_t now_ns,
        struct outcome *out);
void circle_join_deadline(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out);
/* The last member is gone -> ENDED. */
void circle_end(struct rendezvous *r, struct circle *c, struct outcome *out);
/* With all that is left in it. */
void circle_free(struct rendezvous *r, struct circle *c);
/* Its rank is free as if nobody had ever taken it. */
void member_forget(struct rendezvous *r, struct member *m);

/* --- rendezvous-restore.c --- */

/* Somebody has come, or gone, of a group that is FORMING and restored: are all back? */
void circle_try_restore(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out);
/* Those who are back go on, without the others. */
void circle_restore(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out);
/* What the member brought goes. */
void member_drop_resume(struct circle *c, struct member *m);

/* --- rendezvous-reform.c --- */

/* The member's wish; false when memory is short. */
bool reform_begin(struct rendezvous *r, struct member *m, const struct reform_ask *ask, uint64_t now_ns);
/* Its wish goes, and nobody is told. */
void reform_forget(struct rendezvous *r, struct member *m);
/* The member goes: its wish goes with it, and who left (not who is lost) is told LEFT. */
void reform_drop(struct rendezvous *r, struct member *m, uint64_t now_ns, struct outcome *out);
void reform_expire(struct rendezvous *r, struct reform *reform, uint64_t now_ns, struct outcome *out);
/* Somebody has called, come or gone: is that what the others have waited for? */
void circle_try_reform(struct rendezvous *r, struct circle *c, uint64_t now_ns, struct outcome *out);

/* --- rendezvous-seal.c --- */

/* In what the halves that are there differ; FIELD_UNSPECIFIED: in nothing. */
struct difference {
        enum field field;
        int32_t entry;
};

struct difference meeting_difference(const struct meeting *m);
/* The half has just been put into the meeting; it is about to be taken out of it. */
void meeting_compare(struct meeting *m, struct half *half);
void meeting_uncompare(struct meeting *m, const struct half *half);
/* Fills field, entry and classes. */
void meeting_print_difference(const struct meeting *m, const struct difference *d, struct error *err);
/* When all alive members are there: SEALED, or ended with MISMATCH. */
void meeting_settle(struct rendezvous *r, struct meeting *m, uint64_t now_ns, struct outcome *out);

/* --- rendezvous-end.c --- */

/* Why a collective ended unsealed: what its members' error and the debts are made of. */
struct reason {
        enum status status, cause;
        enum field field;
        enum loss loss;
        int32_t entry, rank;
        const struct rankset *about; /* whom to report on */
        uint64_t age_ns;
        const char *detail;
};

void reason_fill(const struct reason *why, struct error *err);
/* A GATHERING meeting is ENDED for all, in `ended`; debts for those who are not there. */
void meeting_end(struct rendezvous *r, struct meeting *m, const struct reason *why, uint64_t now_ns,
        struct outcome *out);
/* NULL when memory is short, or when the group's user has MAX_ERRORS: the status alone is told then. It
 * counts as that user's until error_free, so that nobody's errors cost others theirs. */
struct error *error_new(struct rendezvous *r, const struct group *g);
/* NULL is fine. */
void error_free(struct rendezvous *r, const struct group *g, struct error *err);
/* Job, group, epoch, world size, key and kind, and a rank where none is named. */
void describe_half(const struct member *member, const struct half *half, struct error *err);

/* --- rendezvous-debt.c --- */

void debt_make(struct rendezvous *r, struct circle *c, const struct lookup *l, const struct key *key,
        const struct rankset *debtors, const struct reason *why, uint64_t now_ns, struct outcome *out);
/* Rule 6: whether the member owed one of this key; then it is paid and *err (which may be NULL) tells. */
bool debt_pay(struct circle *c, const struct lookup *l, const struct key *key, uint32_t rank, uint64_t now_ns,
        struct error *err);
void debts_forgive(struct circle *c, const struct rankset *ranks);
void debts_drop(struct circle *c);

/* --- rendezvous-gone.c --- */

/* Another root could have been named, but not another replica have run the function. */
enum status status_without_root(enum kind kind);
/* "root R2 has left; name another root". */
void describe_gone_root(const struct signature *s, enum loss loss, char *buf, size_t size);

/* --- rendezvous-time.c --- */

/* The deadline of a half that has just arrived in `m`. */
void half_start_clock(struct rendezvous *r, struct meeting *m, struct half *half, uint64_t now_ns);
/* Sets the meeting's alarm to the first deadline of its halves whose clock runs. */
void meeting_set_alarm(struct rendezvous *r, struct meeting *m);
/* The member is not busy any more, as of `at_ns`. */
void member_end_busy(struct rendezvous *r, struct member *member, uint64_t at_ns, struct outcome *out);
void stall_watch(struct rendezvous *r, struct circle *c, uint64_t now_ns);
/* A meeting has left GATHERING: is its group still stalled? */
void stall_check(struct rendezvous *r, struct circle *c, uint64_t now_ns);
