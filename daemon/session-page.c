#include "session-page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/fd.h"

#define PAGE_BYTES STATUS_MEMFD_BYTES

/* Newer than some C libraries. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

static int page_memfd(void) {
        int fd = memfd_create("tutti-status", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
        if (fd < 0 && errno == EINVAL)
                fd = memfd_create("tutti-status", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        return fd;
}

int page_make(struct page_slot **ret, int *ret_fd) {
        CLEANUP_FD int fd = page_memfd();
        if (fd < 0 || ftruncate(fd, (off_t)PAGE_BYTES) < 0)
                return -errno;
        void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (page == MAP_FAILED)
                return -errno;
        /* After our own mapping: from here on nobody else can have a writable one. */
        if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
                int r = -errno;
                munmap(page, PAGE_BYTES);
                return r;
        }
        *ret = page;
        *ret_fd = fd_take(&fd);
        return 0;
}

void page_free(struct page_slot *page) {
        if (page)
                munmap(page, PAGE_BYTES);
}

struct lane_board *page_board(struct page_slot *page) {
        return (struct lane_board *)(void *)(page + STATUS_PAGE_SLOTS);
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
