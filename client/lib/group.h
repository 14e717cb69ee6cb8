/* A membership: made by tutti_join, ended by tutti_leave, kept for its errors until tutti_group_free. */
#pragma once

#include "lib/connection.h"
#include "lib/options.h"

struct tutti_group {
        struct list node;
        struct tutti *t;
        uint64_t membership;
        uint32_t rank, world_size;
        char job[MAX_NAME_BYTES], name[MAX_NAME_BYTES];
        struct half_options base;  /* of every collective; what a call says counts more */
        pthread_mutex_t numbering; /* a number belongs to its epoch; nothing is locked below it */
        _Atomic uint64_t epoch;    /* set under `numbering` */
        uint64_t next_sequence;    /* the numbers of collectives without a name */
        atomic_bool has_left;
};

/* OK, or FORKED, DAEMON_LOST or LEFT, which is then the thread's error. */
enum tutti_status group_check(struct tutti_group *g) MUST_USE;

/* The next number of the membership, and the epoch that it counts in. */
uint64_t group_take_number(struct tutti_group *g, uint64_t *ret_epoch);

/* Adds to an error which group and whose membership it is about. */
void group_sign(const struct tutti_group *g, struct error *e);

/* Leaves, unless that has been done; nobody is told of what came of it. A tuttid that stands still is waited
 * for no longer than QUIET_SECONDS. */
#define QUIET_SECONDS 1
void group_leave_quietly(struct tutti_group *g);

/* Frees the memory of all memberships of the connection. */
void groups_free(struct tutti *t);
