/* What the members of a group know of its last moments under the tuttid before, and what follows from it
 * (P9).
 *
 * Pure. A session gathers the reports that its client sends (Pages); the Join that resumes a membership takes
 * them all, and they stay with the member until the group is whole again. Then resume_decide looks at all of
 * them together, once.
 *
 * A key alone does not name a collective: while one member has not yet heard that it is done, another may
 * have submitted the key again. Two things tell uses apart:
 *
 * - the number. tuttid writes `begun` with it into the pages of all members before anything runs, and `done`
 *   into all before any reply. So `done` anywhere is done for everybody who has that number; and while
 * anybody has a half of this key without a number, nothing has run of one that has begun.
 * - the failures. Every use of a key that fails, fails once for every member: with the collective, or later
 * as a debt (P3). So who has counted fewer failures than another owes the difference: his unfinished half
 * pays one, his next submissions the rest. Thus a late comer does not meet a retry across a restart either.
 */
#pragma once

#include "base/check.h"
#include "quota.h"
#include "wire/message.h"

/* Of one member: what it has not heard of, what it has heard of from its old page alone, keys that have
 * failed. */
#define MAX_REPORTS (3 * STATUS_PAGE_SLOTS)
/* Of a whole group: resume_decide looks at all of them at once. Each member has its share, but MAX_REPORTS at
 * most. */
#define MAX_GROUP_REPORTS (1u << 19)

struct resume {
        uint32_t rank; /* set before resume_decide */
        uint64_t epoch, number;
        struct rankset members, lost; /* who is in the epoch, and who of them is gone */
        struct page_report *reports;
        uint32_t n, capacity;
        struct charge charge; /* QUOTA_MEMORY_BYTES, of all this */
};

/* NULL: no memory. */
struct resume *resume_new(void);
/* -ENOMEM, or -E2BIG: more than MAX_REPORTS. */
int resume_add(struct resume *resume, const struct msg_pages *pages) MUST_USE;
/* NULL is fine. */
void resume_free(struct resume *resume);
/* Memory that so many reports take, at most. */
uint64_t resume_bytes(const struct resume *resume);

/* Who owes a failure of `key`. */
struct owed {
        struct key key;
        enum status status; /* of that failure */
        struct rankset debtors;
};

/* Decides about all requests of `n` members of one epoch: the state of each report becomes PAGE_DONE;
 * PAGE_FAILED with its status, OUTPUT_LOST among others; or PAGE_FREE, which is to be submitted again. Debts
 * are left in *ret_owed, at most MAX_OWED, to be freed. 0 or -ENOMEM: then nothing is decided. */
#define MAX_OWED 4096
int resume_decide(
        struct resume *const *members, uint32_t n, struct owed **ret_owed, uint32_t *ret_n_owed) MUST_USE;
/* Of a member whose epoch is over: what is not done has failed with `status`. */
void resume_end(struct resume *resume, enum status status);
