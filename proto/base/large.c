#include "base/large.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE_BYTES (4u << 20) /* below these one call takes no time worth mentioning */
#define STEP_BYTES  (1u << 20)

static void drop_pages(void *block, size_t n_bytes) {
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)block, end = begin + n_bytes;
        if (n_bytes < LARGE_BYTES)
                return;
        begin = (begin + page - 1) / page * page; /* malloc's own notes stand in front of a block of its */
        end = end / page * page;
        for (; begin + STEP_BYTES <= end; begin += STEP_BYTES)
                (void)madvise((void *)begin, STEP_BYTES, MADV_DONTNEED);
}

void large_free(void *block, size_t n_bytes) {
        if (block)
                drop_pages(block, n_bytes);
        free(block);
}

void *large_map(size_t n_bytes) {
        void *block = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return block == MAP_FAILED ? NULL : block;
}

void large_unmap(void *block, size_t n_bytes) {
        if (!block)
                return;
        drop_pages(block, n_bytes);
        (void)munmap(block, n_bytes);
}
