/* The status page of one connection (docs/protocol.md): which of its requests have begun, are done, have
 * failed.
 *
 * A memfd that the client maps for reading; written by tuttid alone, on the loop thread and for what runs on
 * the lane on that one's, and read by the client also after tuttid was killed anywhere. Behind the slots
 * stands the board of its lane. */
#pragma once

#include "base/check.h"
#include "wire/message.h"

/* Mapped, and its descriptor, which is the caller's to send and close. 0 or negative errno. */
int page_make(struct page_slot **ret, int *ret_fd) MUST_USE;
/* NULL is fine. */
void page_free(struct page_slot *page);

struct lane_board *page_board(struct page_slot *page);

void page_set(struct page_slot *page, uint64_t request, uint64_t collective, enum page_state state);

struct page_end {
        uint64_t request, collective;
        enum status status, cause; /* cause: of EXPIRED */
};

/* PAGE_FAILED, with how it ended. */
void page_fail(struct page_slot *page, const struct page_end *end);
