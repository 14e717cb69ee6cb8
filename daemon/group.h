/* Who the replicas of a group are: identity, members, epoch.
 *
 *                               +--formed anew--+ +-------------formed anew--------------+
 *                               v               | v                                        |
 *   FORMING --all ranks joined--> WHOLE --------+-+--a member is lost, on_death=fail--> FAILED
 *      |                            |                                                      |
 *      +--deadline, a joiner lost---+------------------last member gone--------------------+--> ENDED
 *
 * Formed anew (rendezvous-reform.c): epoch + 1, numbers of collectives from 1, no debts. Either every member
 * that is alive has called rejoin and newcomers have taken all other ranks, or every one has called shrink.
 * Until then a newcomer is JOINING beside members that are ALIVE: it counts for nothing that they do. A rank
 * never changes its number.
 *
 * Owned by rendezvous.c, which alone changes it; others read. Freed by rendezvous_forget, when ENDED and no
 * meeting refers to it. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/table.h"
#include "base/heap.h"
#include "base/list.h"
#include "model/error.h"
#include "quota.h"
#include "wire/message.h"

enum group_state { GROUP_FORMING, GROUP_WHOLE, GROUP_FAILED, GROUP_ENDED };

enum member_state {
        MEMBER_ABSENT,  /* the rank was not taken yet */
        MEMBER_JOINING, /* waits for the group to be whole, or to be formed anew */
        MEMBER_ALIVE,
        MEMBER_LOST, /* died, disconnected, ejected */
        MEMBER_LEFT,
};

/* A member's wish to form its group anew: a newcomer's join, or the call of one that is alive. It ends when a
 * new epoch begins, at its own deadline (TIMEOUT, for it alone: the others wait on), when all who are alive
 * have called and do not agree (MISMATCH, for all callers), or with its member. */
enum reform_kind { REFORM_JOIN, REFORM_REJOIN, REFORM_SHRINK };

struct reform {
        enum reform_kind kind;
        uint64_t session, request;
        struct member *member; /* while it waits */
        struct group *group;   /* at its end, until the outcome is settled */
        uint64_t since_ns;
        struct alarm deadline;
        enum status status;  /* at its end: what to tell; OK is told by `formed` */
        struct error *error; /* at its end, owned; NULL as in struct meeting */
        struct list outcome_link;
};

#define MAX_PROCESS_BYTES 32

/* One membership. Its id is never reused. All zero but the state (MEMBER_ABSENT) until its rank is taken; who
 * takes the rank of one that is gone takes its place here. */
struct member {
        uint64_t id, session;
        uint64_t join_request; /* what Joined answers: its join, or the call that formed the group anew */
        uint64_t first_epoch;  /* its first; 0 while it is JOINING */
        struct group *group;
        uint32_t rank, pid;              /* pid as tuttid sees it; 0: not visible */
        char process[MAX_PROCESS_BYTES]; /* the program's name, as it says; kept after its end */
        enum member_state state;
        enum loss loss;
        char why[96];     /* of an ejection or disconnection, for people */
        uint64_t lost_ns; /* when it was lost or left */
        bool has_last;
        struct key last_key; /* what it last finished */
        uint64_t last_ns;
        bool has_default_timeout; /* the group option of P6 */
        uint64_t default_timeout_ns;
        char busy[64]; /* why it is busy; "" when it is not */
        struct alarm busy_end;
        uint64_t n_submitted;
        struct reform *reform; /* what it waits for, owned; NULL: nothing */
        struct resume
                *resume; /* what it brought from the tuttid before, owned; NULL: nothing, or not any more */
        struct list outcome_link, session_link;
        UT_hash_handle hh; /* by id */
};

struct group {
        uint64_t id; /* never reused */
        uint32_t uid, world_size;
        char job[MAX_NAME_BYTES], name[MAX_NAME_BYTES], secret[MAX_SECRET_BYTES];
        enum group_state state;
        uint64_t epoch, next_number; /* next_number: of collectives, from 1 in each epoch */
        enum on_death on_death;
        enum on_leave on_leave;
        struct rankset alive;   /* empty while FORMING */
        uint32_t n_reforms;     /* members that wait for it to be formed anew */
        struct member *members; /* [world_size] */
        uint64_t created_ns, last_done_ns;
        struct list meetings; /* struct meeting.group_link, oldest first: gathering and running */
        uint32_t n_meetings, n_debts;
        uint32_t n_references; /* meetings, also ended ones that were not released yet; ended and none:
                                  in outcome.over, to be forgotten */
        uint32_t n_untold;     /* the conductor's: of its ended meetings, of which nobody is told yet */
        bool is_formed_untold; /* the conductor's: a new epoch waits for these to be told */
        struct rankset formed; /* the conductor's: who was alive when the epoch began */
        bool is_stalled;       /* its oldest meeting is older than stall_warn */
        bool is_restored;      /* its members have carried it over from the tuttid before */
        bool brief_record;     /* of no interest once it has ended */
        struct alarm join_deadline, stall;
        struct list outcome_link;
        struct charge charge, memory;
        /* The loss that made it FAILED, kept here since a newcomer may have the rank; rank -1 otherwise. */
        int32_t lost_rank;
        enum loss loss;
        uint64_t lost_ns;
        char lost_why[96];
        struct replica_report lost;
};

/* Fills job, group, epoch, world_size of *err. */
void group_describe(const struct group *g, struct error *err);

/* What is known of the member of `rank`, at `now_ns`; process state left PROCESS_UNKNOWN where the process
 * may live (PROCESS_ABSENT, PROCESS_DEAD where the group knows). */
void group_report(const struct group *g, uint32_t rank, uint64_t now_ns, struct replica_report *ret);

/* Whom a member with this wish waits for: those that are alive and have not called, and, unless it is SHRINK,
 * the ranks that nobody has. */
struct rankset group_awaited(const struct group *g, enum reform_kind kind);

/* Appends reports of `ranks` to err->replicas, as many as fit. */
void group_add_reports(
        const struct group *g, const struct rankset *ranks, uint64_t now_ns, struct error *err);
