/* Work of many users, served in turn: each has a line of its own, first come, first served, and the lines
 * take turns. So nobody waits for all that somebody else has brought.
 *
 * Intrusive; allocates nothing. A node is in at most one line, and may be taken out by list_unlink at any
 * time. Users whose numbers are equal modulo N_TURNS share a line. */
#pragma once

#include <stdint.h>
#include "base/list.h"

#define N_TURNS 64

struct turn {
        struct list link; /* in turns.waiting */
        struct list nodes;
};

struct turns {
        struct turn users[N_TURNS];
        struct list waiting; /* struct turn: those that had nodes; whose turn it is comes first */
};

void turns_init(struct turns *t);
/* Puts `node`, which must be in no list, at the end of its user's line. */
void turns_put(struct turns *t, uint32_t uid, struct list *node);
/* Takes the first node, in turn; NULL when there is none. */
struct list *turns_take(struct turns *t);
