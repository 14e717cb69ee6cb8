/* Pages of ours that a client has: made, lent, taken back when nobody has them any more.
 *
 *   LENT --loan_unref, the last--> LINGERING --nobody else has its memory--> gone
 *                                     ^--somebody has: looked at again---+
 *
 * A client that is gone may still have a descriptor or a mapping of it, or have given one away; as long as
 * anybody has, its memory is there, and stays charged to whom it was lent, with the descriptor by which we
 * know. Owned by the loans object; loop thread, but what lies in the memory may be written by any. No client
 * memory is touched, nothing here blocks. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "model/error.h"
#include "quota.h"

struct loan;
struct loans;

int loans_new(struct loans **ret, struct quotas *quotas) MUST_USE;
/* Nothing is lent any more. What lingers is left to who has it. */
void loans_free(struct loans *l);

enum loan_access {
        LOAN_READ,  /* the client reads: after our own mapping nobody can have a writable one */
        LOAN_WRITE, /* both write */
};

struct loan_ask {
        uint32_t uid; /* whom it is charged to */
        enum loan_access access;
        const char *name; /* of the memfd: what /proc shows */
        size_t n_bytes;   /* whole pages */
};

/* From all zero, with one reference. *ret_fd, for the client, is open for reading (who writes opens it anew:
 * tuttid itself may open nothing for writing), and the caller's to send and close. OK; QUOTA,
 * LIMIT (no descriptor left) or NO_MEMORY: *err says why. */
enum status loan_make(struct loans *l, const struct loan_ask *ask, struct loan **ret, int *ret_fd,
        struct error *err) MUST_USE;

/* Where it is mapped here, until the last reference goes. */
void *loan_memory(const struct loan *loan);

struct loan *loan_ref(struct loan *loan);
/* NULL is fine. */
void loan_unref(struct loan *loan);

/* Memory that was made elsewhere and let go, while somebody may still have it: it lingers. Takes the
 * descriptor of memfd_new (-1: there is none) and the charges; where there is no memory to remember it by,
 * they are given back. */
void loan_keep(struct loans *l, int fd, struct charge *descriptor, struct charge *memory);

/* How many linger. */
uint32_t loans_n_lingering(const struct loans *l);
/* When it is worth looking whether what lingers may go; UINT64_MAX: nothing does. */
uint64_t loans_next_ns(const struct loans *l);
void loans_expire(struct loans *l, uint64_t now_ns);
