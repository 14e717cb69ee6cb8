/* The lane of a raw client: it writes into its slot whatever the test wants started, and looks at what tuttid
 * writes for it. */
#pragma once

#include "raw.h"

struct raw_lane {
        struct lane_slot *slot;
        const struct page_slot *page;
        const struct lane_board *board;
        int slot_fd, bell;
};

/* raw_open, and a lane. */
struct raw *raw_open_lane(const char *socket, struct raw_lane *ret);
/* Before raw_close. */
void raw_lane_close(struct raw_lane *l);

/* Writes a start of what is kept under `number`, and rings the bell where nobody watches. The request. */
uint64_t raw_lane_start(
        struct raw *r, struct raw_lane *l, const struct raw_member *m, const char *key, uint64_t number);
/* The same without a word to anybody. */
uint64_t raw_lane_write(
        struct raw *r, struct raw_lane *l, const struct raw_member *m, const char *key, uint64_t number);
void raw_lane_ring_bell(struct raw_lane *l);
/* "I sleep on this request": the answer comes by packet. */
void raw_lane_ring(struct raw *r, uint64_t request);

enum page_state raw_lane_state(const struct raw_lane *l, uint64_t request);
/* Within two seconds (scaled) the page says that it is done; the collective's number. */
uint64_t raw_lane_expect_done(const struct raw_lane *l, uint64_t request);
/* Within two seconds (scaled) the board says that the newest start is answered by a packet. */
void raw_lane_expect_passed(const struct raw_lane *l);
/* ... that starts are taken, or not. */
void raw_lane_expect_open(const struct raw_lane *l, bool is_open);
