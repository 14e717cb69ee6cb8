/* What tests of collectives need again and again: values that are easy to check, what a status must be, and
 * the time that replicas and test have in common. */
#pragma once

#include <stdint.h>
#include <tutti/tutti.h>
#include "host.h"
#include "replica.h"
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

/* n of its elements, from `offset` on. */
struct tutti_value floats_part(const struct floats *f, size_t offset, uint64_t n);
void floats_expect_part(const struct floats *f, size_t offset, size_t n, float value);
/* What n ranks bring together when rank r brings first + r. */
float floats_sum_of_ranks(uint32_t n, float first);

/* Fills with `mine`, reduces in place under `key` (NULL: by number), and expects `all`. */
void floats_meet(struct tutti_group *g, const char *key, struct floats *f, float mine, float all);

/* In place, by SUM. */
enum tutti_status floats_sum(struct tutti_group *g, const char *key, struct floats *f);
/* The same, started; `timeout` as in tutti_options. */
struct tutti_work *floats_start(struct tutti_group *g, const char *key, struct floats *f, double timeout);

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

/* --- several replicas --- */

void replicas_tell(struct replica *const *r, uint32_t n, const char *text);
/* Each says `text` within `seconds` (scaled). */
void replicas_expect(struct replica *const *r, uint32_t n, const char *text, double seconds);
/* Each ends with 0, and nothing is left in tuttid, which ends too. */
void replicas_end(struct host *h, struct replica *const *r, uint32_t n);
/* A tuttid with default settings, n replicas that all end with 0, and nothing left. */
void replicas_run(uint32_t n, void (*body)(struct replica *me));

/* What all processes of a test see. */
struct board {
        _Atomic uint32_t pids[16]; /* of ranks; board_note_pid */
        _Atomic double moment;     /* board_note_moment */
        char texts[8][2048];
};

/* Made by board_init, before the replicas are forked; also by replicas_run. */
extern struct board *board;
void board_init(void);
void board_note_pid(const struct replica *me);
/* Now is the moment from which board_age counts seconds. */
void board_note_moment(void);
double board_age(void);

/* --- halves in a known order --- */

/* Submits, and stands at a barrier afterwards: who submits after that barrier comes later. The error of what
 * it submitted, which must not succeed; good until the connection is closed. */
const struct tutti_error_info *sum_early(struct tutti_group *g, const char *key,
        const struct tutti_value *input, const struct tutti_value *output);
/* Passes that barrier, and notes the moment. */
void come_last(struct tutti_group *g);

/* The error of a synchronous call that must not have succeeded. */
const struct tutti_error_info *expect_error(enum tutti_status status);

/* --- time and memory --- */

/* Of a clock that all processes share. */
double seconds_now(void);
void seconds_sleep(double seconds);

/* Zero, and shared with the processes that are forked later. */
void *memory_shared(size_t n_bytes);

/* --- joining --- */

/* Group "train" with a default timeout of 20 s; its pid goes onto the board. */
struct tutti_group *join_train(struct replica *me, enum tutti_on_death on_death);
/* A join that may be refused; then no group is given. */
enum tutti_status try_join(struct tutti *t, const struct tutti_join_args *args);
/* The error's text has this, with the number in it. */
void expect_text_of(const struct tutti_error_info *e, const char *format, uint32_t number)
        __attribute__((format(printf, 2, 0)));
