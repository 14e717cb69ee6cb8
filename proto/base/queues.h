/* Work of many users with priorities: the users in turn (as in turns.h), and of one user the highest priority
 * first, among equals whoever came first.
 *
 * Nobody starves: when whoever has waited longest of a user has been passed over MAX_PASSED times, it goes
 * before all others of that user. So each goes after at most MAX_PASSED + 1 others for each one that had come
 * before it.
 *
 * Intrusive; allocates nothing. Each user's nodes are a pairing heap (Fredman, Sedgewick, Sleator, Tarjan,
 * 1986): putting is O(1), taking is O(log n) over time. Users whose numbers are equal modulo N_QUEUES count
 * as one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/list.h"

#define N_QUEUES   64
#define MAX_PASSED 15

struct queued {
        struct list link; /* in queue.arrived */
        struct queued *child, *next;
        struct queued *previous; /* the sibling before it, or its parent */
        int32_t priority;
        uint64_t ticket;
};

struct queue {
        struct list link;    /* in queues.waiting */
        struct list arrived; /* struct queued: who has waited longest comes first */
        struct queued *best;
        uint64_t next_ticket;
        uint32_t n_passed; /* how often the first that arrived has been passed over */
};

struct queues {
        struct queue users[N_QUEUES];
        struct list waiting; /* struct queue: those that had nodes; whose turn it is comes first */
};

/* Who may be taken. */
struct queue_rule {
        bool (*may_user)(uint32_t user, const void *data); /* `user`: modulo N_QUEUES */
        bool (*may)(const struct queued *node, const void *data);
        const void *data;
};

void queues_init(struct queues *q);
/* Puts `node`, which must be in no queue, behind those of its user that are as urgent. */
void queues_put(struct queues *q, uint32_t uid, struct queued *node, int32_t priority);
/* Takes whose turn it is, among those who may; NULL: there is none, or of some user too many of the most
 * urgent may not just now. */
struct queued *queues_take(struct queues *q, const struct queue_rule *rule);
