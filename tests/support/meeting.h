/* What tests of collectives need again and again: values that are easy to check, what a status must be, and
 * the time that replicas and test have in common. */
#pragma once

#include <stdint.h>
#include <tutti/tutti.h>
#include "host.h"
#include "unit.h"

/* --- values --- */

/* A buffer of n floats and the value that is all of it. */
struct floats {
        struct tutti_buffer *buffer;
        struct tutti_value value;
        float *data;
        size_t n;
};

/* All 0. Goes with the connection, or by floats_deinit. */
void floats_init(struct tutti *t, struct floats *f, size_t n);
void floats_deinit(struct floats *f);
void floats_fill(struct floats *f, float value);
/* Every element is `value`. */
void floats_expect(const struct floats *f, float value);

/* Fills with `mine`, reduces in place under `key` (NULL: by number), and expects `all`. */
void floats_meet(struct tutti_group *g, const char *key, struct floats *f, float mine, float all);

/* A buffer of n elements of any type, all 0. */
struct array {
        struct tutti_buffer *buffer;
        struct tutti_value value;
        void *data;
        size_t n;
};

void array_init(struct tutti *t, struct array *a, enum tutti_dtype dtype, size_t n);
void array_deinit(struct array *a);

/* --- what must be --- */

#define expect_status(got, wanted)                                                                           \
        do {                                                                                                 \
                enum tutti_status got_ = (got);                                                              \
                ck_assert_msg(got_ == (wanted), "%s is %s, not %s: %s", #got, tutti_status_name(got_),       \
                        tutti_status_name(wanted), tutti_error());                                           \
        } while (0)

/* Waits for the end of the work, shows its error when the status is another one. */
#define expect_work(work, wanted)                                                                            \
        do {                                                                                                 \
                enum tutti_status got_ = tutti_work_wait((work), -1);                                        \
                ck_assert_msg(got_ == (wanted), "%s ended with %s, not %s: %s", #work,                       \
                        tutti_status_name(got_), tutti_status_name(wanted), tutti_work_error(work)->text);   \
        } while (0)

/* `part` stands in `text`. */
void expect_in(const char *text, const char *part);

/* Bit r is rank r, of the first 64. */
uint64_t ranks_mask(const struct tutti_ranks *ranks);
#define expect_ranks(ranks, mask) ck_assert_uint_eq(ranks_mask(ranks), (mask))

/* Whether that many submissions and debts are pending, within two seconds (scaled). */
void host_expect_pending(struct host *h, uint64_t n);

/* --- time and memory --- */

/* Of a clock that all processes share. */
double seconds_now(void);
void seconds_sleep(double seconds);

/* Zero, and shared with the processes that are forked later. */
void *memory_shared(size_t n_bytes);
