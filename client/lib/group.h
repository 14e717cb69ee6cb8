/* A membership: made by tutti_join, ended by tutti_leave, kept for its errors until tutti_group_free. */
#pragma once

#include "lib/connection.h"
#include "lib/options.h"
#include "wire/message.h"

#define MAX_KEY_FAILURES 256

/* How often collectives of a key have failed for this member, in this epoch. */
struct key_failures {
        struct key key;
        uint32_t n;
        enum status status; /* the last time */
};

/* What is still to come of a membership that was left while it was brought back (reconnect.h). */
enum parting {
        PARTING_NONE,
        PARTING_JOINS,  /* its Join, or Pages before it, were sent: the answer comes first */
        PARTING_LEAVES, /* that made it a member: Leave is to be sent */
};

struct tutti_group {
        struct list node;
        struct tutti *t;
        struct list prepared; /* struct tutti_prepared (frozen.h). Under `lock` */
        uint64_t membership;
        uint32_t rank, world_size;
        char job[MAX_NAME_BYTES], name[MAX_NAME_BYTES];
        struct half_options base;  /* of every collective; what a call says counts more */
        pthread_mutex_t numbering; /* a number belongs to its epoch; nothing is locked below it */
        _Atomic uint64_t epoch;    /* set under `numbering` */
        uint64_t next_sequence;    /* the numbers of collectives without a name */
        atomic_bool has_left;
        /* What it takes to be the same member under the next tuttid (reconnect.h). Under `lock`. */
        char secret[MAX_SECRET_BYTES];
        struct msg_join ask; /* its strings are those above */
        struct call resuming;
        bool is_back;     /* its membership is one of the tuttid that is there */
        uint32_t sent_in; /* to which tuttid it was brought, of those in turn */
        char busy_why[64];
        _Atomic uint64_t busy_until_ns; /* 0: it is not busy */
        bool is_busy_untold;            /* to the tuttid that is there */
        struct rankset members;         /* of the epoch, as far as is known here */
        struct rankset lost_members;
        uint64_t last_number;        /* the highest of a collective that was heard of */
        struct key_failures *failed; /* [n_failed] of MAX_KEY_FAILURES */
        uint32_t n_failed;
        bool is_forgetful;         /* more keys have failed than that */
        struct page_report *ended; /* [n_ended]: done, as the old page said, and not told the others yet */
        uint32_t n_ended;
        struct page_report *reports; /* [n_reports], while they are sent: n_told of them were */
        uint32_t n_reports, n_told;
        enum status lost_status; /* not OK: it could not be resumed */
        struct failure *lost;
        enum parting parting;
        bool is_freed; /* it is here for its parting alone */
};

/* OK, or FORKED, DAEMON_LOST or LEFT, which is then the thread's error. */
enum tutti_status group_check(struct tutti_group *g) MUST_USE;

/* The next number of the membership, and the epoch that it counts in. */
uint64_t group_take_number(struct tutti_group *g, uint64_t *ret_epoch);

/* A new epoch, unless it has begun already. Under `lock`. */
void group_begin_epoch(struct tutti_group *g, const struct msg_joined *joined);

/* Adds to an error which group and whose membership it is about. */
void group_sign(const struct tutti_group *g, struct error *e);

/* Leaves, unless that has been done; nobody is told of what came of it. A tuttid that stands still is waited
 * for no longer than QUIET_SECONDS. */
#define QUIET_SECONDS 1
void group_leave_quietly(struct tutti_group *g);

/* Frees the memory of one that nothing refers to. */
void group_destroy(struct tutti_group *g);
/* Frees the memory of all memberships of the connection. */
void groups_free(struct tutti *t);
