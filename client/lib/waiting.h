/* How long a thread yields for a result before it sleeps: bounded, and learnt from the waits before
 * (docs/adr/0011). Pure; time is an argument, in ns.
 *
 *  - The budget is counted in own CPU time: a yield in which somebody else ran counts for little.
 *  - There is a budget only while waits were short of late; waits that slept teach that too.
 *  - There is none where yields have been regretted (base/regret.h).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/regret.h"

/* A connection's. From waiting_init. */
struct waiting {
        uint64_t budget_ns; /* of a wait; 0: nobody yields */
        uint64_t usual_ns;  /* moving average of waits */
        struct regret regret;
};

/* One wait. */
struct patience_left {
        uint64_t budget_ns, began_ns, last_ns, spent_ns;
};

#define WAITING_BUDGET_NS UINT64_C(200000) /* unless somebody says it otherwise */
void waiting_init(struct waiting *w, uint64_t budget_ns);
/* Whether to yield at all. */
bool waiting_may_yield(const struct waiting *w, uint64_t now_ns);

void patience_begin(struct patience_left *p, const struct waiting *w, uint64_t now_ns);
/* After a yield: whether there may be another one. */
bool patience_goes_on(struct patience_left *p, uint64_t now_ns);

/* The result was there at done_ns and is noticed now. */
void waiting_learn_noticed(
        struct waiting *w, const struct patience_left *p, uint64_t done_ns, uint64_t now_ns);
/* The others came so much later. */
void waiting_learn(struct waiting *w, uint64_t wait_ns);
