/* The lane over the fake backend, and clients that do with their slot, bell and page what libtutti does, or
 * anything else. They write to the very mapping that the lane reads, so that a sanitizer sees both ends.
 *
 * Whoever has the stage is the loop thread; a client may be another one. What cannot be made aborts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "fake-backend.h"
#include "lane-internal.h"
#include "lane.h"

struct lane_stage {
        uv_loop_t loop;
        struct fake_backend *fake;
        struct quotas *quotas;
        struct loans *loans;
        struct lanes *lanes;
        uint32_t n_bells; /* heard by the loop thread */
};

void lane_stage_init(struct lane_stage *st);
/* With so many assistants. */
void lane_stage_init_assisted(struct lane_stage *st, uint32_t n_assistants);
void lane_stage_stop(struct lane_stage *st);
/* After it, when the lanes are gone. */
void lane_stage_deinit(struct lane_stage *st);

/* Whether the thread looks at any road; not: it sleeps, or is about to. */
bool lane_stage_is_watching(struct lane_stage *st);

/* --- sets --- */

#define STAGE_MAX_PLACES 4

struct stage_set {
        struct lane_set set;
        struct plan plan;
        uint64_t numbers[STAGE_MAX_PLACES];
};

/* Of n_chunks chunks, which the fake backend calls `name`; place i has kept its half under first_number + i.
 */
struct stage_set_shape {
        uint64_t name, n_chunks, first_number;
};
void stage_set_init(struct stage_set *s, const struct stage_set_shape *shape);
void stage_set_deinit(struct stage_set *s);

/* --- clients --- */

struct stage_client {
        struct lane *lane;
        struct lane_slot *slot;
        struct lane_board *board;
        struct page_slot *page;
        struct loan *page_loan;
        int bell;
        uint64_t n_starts;
};

/* As the conductor has them made. */
void stage_make_pages(struct lane_stage *st, struct lane_ask *ask, int *ret_page, int *ret_slot);
void stage_client_init(struct lane_stage *st, struct stage_client *c, uint64_t session);
/* lane_free, and the session's part in the page; whether the lane is gone. */
bool stage_client_end(struct lane_stage *st, struct stage_client *c);

struct stage_start {
        uint64_t request, prepared, membership, epoch;
        const char *name; /* NULL: `number` */
        uint64_t number;
};

/* All words but the last. */
void stage_write(struct stage_client *c, const struct stage_start *start);
/* The last word. */
void stage_bump(struct stage_client *c);
void stage_ring(struct stage_client *c);
/* Rings, and waits until the thread has looked at its roads and at nothing any more. */
void stage_settle(struct lane_stage *st, struct stage_client *c);
/* As libtutti starts: rings where nobody looks; whether it has rung. */
bool stage_start(struct stage_client *c, const struct stage_start *start);

enum stage_end { STAGE_STARTED, STAGE_DONE, STAGE_PASSED };
/* What became of what was started last, for libtutti. */
enum stage_end stage_look(const struct stage_client *c, uint64_t request);
enum page_state stage_page(const struct stage_client *c, uint64_t request);
