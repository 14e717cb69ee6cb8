#include "lib/fork.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define GUARD_MAGIC UINT64_C(0x7475747469206f6e)

struct fork_guard {
        volatile uint64_t magic;
};

static size_t page_bytes(void) {
        return (size_t)sysconf(_SC_PAGESIZE);
}

int fork_guard_new(struct fork_guard **ret) {
        void *page = mmap(NULL, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
                return -errno;
        if (madvise(page, page_bytes(), MADV_WIPEONFORK) < 0) {
                int r = -errno;
                munmap(page, page_bytes());
                return r;
        }
        struct fork_guard *g = page;
        g->magic = GUARD_MAGIC;
        *ret = g;
        return 0;
}

void fork_guard_free(struct fork_guard *g) {
        if (g)
                munmap(g, page_bytes());
}

bool fork_guard_is_child(const struct fork_guard *g) {
        return g->magic != GUARD_MAGIC;
}
