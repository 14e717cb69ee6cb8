/* A collective under way: the handle that callers wait for, cancel and free.
 *
 *   spare --work_new--> PENDING --reply, or connection lost--> ended --tutti_work_free--> spare
 *                          +--tutti_work_free--> detached: goes back to the spare ones when it ends
 *
 * Owned by its connection (in `works` or `spare_works`), so that after warm-up none is allocated. */
#pragma once

#include "lib/connection.h"
#include "lib/device.h"
#include "lib/order.h"
#include "lib/reconnect.h"
#include "lib/staging.h"

struct tutti_work {
        struct call call;
        struct list node;
        struct tutti *t;
        bool is_detached;
        bool is_seen;               /* somebody was told how it ended */
        uint64_t prepare;           /* tuttid was asked to keep its half under this number; 0: it was not */
        uint64_t started;           /* it was started by this number; 0: it was sent in full */
        struct failure *refusal;    /* what the library itself found wrong with this half */
        struct msg_done done;       /* when ended with OK */
        bool has_done;              /* the first part of the answer is there */
        struct tutti_buffer **uses; /* kept from going until it ends */
        uint32_t n_uses, capacity;
        struct kept kept;            /* where tuttid may be left and found again */
        struct tutti_object *object; /* where its result goes; NULL: to buffers. Kept until it is freed */
        uint64_t *checksums;         /* of inputs, by entry, where they are checked */
        uint32_t checksums_capacity;
        /* [2 * n_extents]: of each entry how long its result is, and where our part of it begins, where
         * tuttid tells. Room for [2 * extents_expected]. Under `lock`. */
        uint64_t *extents;
        uint32_t n_extents, extents_expected, extents_capacity;
        struct order_use order;      /* its stream; until it is sent, of who sends it */
        struct staging staging;      /* until it is sent, of who sends it; then under `landing` */
        struct device_copies copies; /* likewise, of staged device memory */
        pthread_mutex_t landing;     /* plain outputs come home once. Before `lock` */
};

static inline struct tutti_work *work_of(const struct call *call) {
        return list_entry(call, struct tutti_work, call);
}

/* NULL when there is no memory. Takes `lock`. */
struct tutti_work *work_new(struct tutti *t);
/* Keeps the buffer until the work has ended; false: no memory. Before it is sent. */
bool work_uses(struct tutti_work *w, struct tutti_buffer *b) MUST_USE;
/* Keeps the object likewise. Before it is sent. */
void work_uses_object(struct tutti_work *w, struct tutti_object *o);
/* Room for the checksums of so many inputs; false: no memory. Before it is sent. */
bool work_make_checksums(struct tutti_work *w, uint32_t n) MUST_USE;
/* tuttid will tell the lengths of so many results; false: no memory. Before it is sent. */
bool work_expect_extents(struct tutti_work *w, uint32_t n) MUST_USE;
/* A part of an answer has come: NULL, or what is wrong with it. Under `lock`. */
const char *work_take_done(struct tutti_work *w, const struct msg_done *done, bool is_last);
/* Only while nothing is under way for it. Takes `lock`. */
void work_drop(struct tutti_work *w);
/* Called by call_end, under `lock`. */
void work_end(struct tutti *t, struct call *call);
/* Frees the memory of all works of the connection; none is under way. */
void works_free(struct tutti *t);

/* Dispatches, waits, and says how it ended, as tutti_work_wait; the thread's error is not touched. */
enum status work_wait(struct tutti_work *w, uint64_t deadline_ns);

/* Of a work that has ended with OK. */
void work_show_result(const struct tutti_work *w, struct tutti_result *ret);

/* CLOCK_MONOTONIC in `seconds` from now; WAIT_FOREVER when they are negative or beyond reckoning. */
uint64_t deadline_in(double seconds);
/* A duration of >= 0 s, or UINT64_MAX. */
uint64_t ns_of_seconds(double seconds);
