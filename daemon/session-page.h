/* The status page of one connection (docs/protocol.md): which of its requests have begun, are done, have
 * failed.
 *
 * A memfd that the client maps for reading; written by tuttid alone, on the loop thread and for what runs on
 * the lane on that one's, and read by the client also after tuttid was killed anywhere. Behind the slots
 * stands the board of its lane. */
#pragma once

#include "loan.h"
#include "wire/message.h"

/* As loan_make: lent for reading. */
enum status page_make(
        struct loans *loans, uint32_t uid, struct loan **ret, int *ret_fd, struct error *err) MUST_USE;

struct page_slot *page_slots(const struct loan *page);
struct lane_board *page_board(const struct loan *page);

void page_set(struct page_slot *page, uint64_t request, uint64_t collective, enum page_state state);

struct page_end {
        uint64_t request, collective;
        enum status status, cause; /* cause: of EXPIRED */
};

/* PAGE_FAILED, with how it ended. */
void page_fail(struct page_slot *page, const struct page_end *end);
