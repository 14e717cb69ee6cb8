/* Whether tuttid does here what it should: deployed, right, and as fast as this machine allows.
 *
 * Levels 2 and 3 are run by processes that diag forks: replicas of a group of their own, and plain code to
 * compare with. Each level appends its findings; a line more is a call of diag_add. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <tutti/admin.h>
#include "doctor.h"
#include "query.h"

#define DIAG_MAX_CHECKS 80

struct diag {
        const char *socket;
        uint32_t n_workers;       /* of CPU:0, as tuttid tells */
        struct diagnosis *checks; /* [DIAG_MAX_CHECKS] */
        unsigned int *levels;     /* [DIAG_MAX_CHECKS]: of each check */
        size_t n;
};

/* One more check, fine and without words yet; never NULL, the last one is used again when there are too many.
 */
struct diagnosis *diag_add(struct diag *d, unsigned int level, const char *check);

/* Level 1: the host as doctor sees it, and the way to tuttid. false: tuttid cannot be used, so that nothing
 * more can be found out. */
bool diag_deployment(struct query *q, struct diag *d);
/* Level 2: every op on every dtype through tuttid, compared with plain code (diag-scalar.c). */
void diag_correctness(struct diag *d);
/* Level 3: tuttid's bandwidth beside that of plain code on as many cores. */
void diag_bandwidth(struct diag *d);

/* --- replicas (diag-replicas.c) --- */

/* A replica of the group that diag makes; it ends with the process. */
struct diag_replica {
        uint32_t rank, n;
        struct tutti *t;
        struct tutti_group *g;
        void *shared; /* what all replicas and diag see */
};

/* Forks n processes that join and run `body`. 0; or -1 with why in `why`: one could not, or did not end. */
int diag_run_replicas(const struct diag *d, uint32_t n, void (*body)(struct diag_replica *me), void *shared,
        struct line *why);
/* Memory that forked processes share, zero and there; NULL: short of memory. */
void *diag_shared(size_t n_bytes);
void diag_unshare(void *memory, size_t n_bytes);

/* --- plain code (diag-scalar.c) --- */

struct diag_case {
        enum tutti_dtype dtype;
        enum tutti_op op;
        enum tutti_rounding rounding;
};

/* The i-th combination that tutti promises; false behind the last. */
bool diag_case(size_t i, struct diag_case *ret);
/* What this rank brings: always the same, with all that is awkward of the type. */
void diag_fill(const struct diag_case *c, uint32_t rank, void *values, size_t n);
/* The result, element by element, in rank order. `inputs` has n_ranks arrays of n elements. */
void diag_reduce(
        const struct diag_case *c, const void *const *inputs, uint32_t n_ranks, void *result, size_t n);
/* How many elements differ, and the first of them; a NaN is any NaN. */
size_t diag_count_wrong(
        enum tutti_dtype dtype, const void *got, const void *wanted, size_t n, size_t *ret_first);
