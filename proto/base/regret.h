/* Whether to yield while waiting, learnt from how that went. Pure; time is an argument, in ns.
 *
 * Somebody who never sleeps turns one yield into a time slice. That is seen by how late was noticed what was
 * waited for: a bank of good waits stands against the late ones, and when it is empty nobody yields for a
 * while, for longer each time until it goes well again. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct regret {
        int64_t bank_ns;
        uint64_t off_until_ns, off_ns; /* no yields until then; how long the last such time was */
};

void regret_init(struct regret *r);
bool regret_may_yield(const struct regret *r, uint64_t now_ns);
/* What was waited for by yielding is noticed now, so late. */
void regret_note(struct regret *r, uint64_t late_ns, uint64_t now_ns);
