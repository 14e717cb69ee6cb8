#include "session-page.h"

#include <stdatomic.h>

enum status page_make(struct loans *loans, uint32_t uid, struct loan **ret, int *ret_fd, struct error *err) {
        const struct loan_ask ask = {
                .uid = uid, .access = LOAN_READ, .name = "tutti-status", .n_bytes = STATUS_MEMFD_BYTES
        };
        return loan_make(loans, &ask, ret, ret_fd, err);
}

struct page_slot *page_slots(const struct loan *page) {
        return loan_memory(page);
}

struct lane_board *page_board(const struct loan *page) {
        return (struct lane_board *)(void *)(page_slots(page) + STATUS_PAGE_SLOTS);
}

void page_set(struct page_slot *page, uint64_t request, uint64_t collective, enum page_state state) {
        struct page_slot *slot = &page[request % STATUS_PAGE_SLOTS];
        /* A slot that changes hands must never show the new request with the old one's `done`, wherever we
         * are killed. */
        if (atomic_load_explicit(&slot->request, memory_order_relaxed) != request)
                atomic_store_explicit(&slot->state, PAGE_FREE, memory_order_relaxed);
        atomic_store_explicit(&slot->request, request, memory_order_release);
        atomic_store_explicit(&slot->collective, collective, memory_order_release);
        atomic_store_explicit(&slot->state, (uint32_t)state, memory_order_release);
}

/* Whose the slot was before has heard how that ended: only then may its client use it for another request. */
void page_fail(struct page_slot *page, const struct page_end *end) {
        uint32_t cause = end->status == STATUS_EXPIRED ? (uint32_t)end->cause : 0;
        atomic_store_explicit(&page[end->request % STATUS_PAGE_SLOTS].status,
                (uint32_t)end->status | cause << 16, memory_order_relaxed);
        page_set(page, end->request, end->collective, PAGE_FAILED);
}
