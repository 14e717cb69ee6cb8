#include "base/large.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE_BYTES (4u << 20) /* below these one call takes no time worth mentioning */
#define STEP_BYTES  (1u << 20)

void large_free(void *block, size_t n_bytes) {
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)block, end = begin + n_bytes;
        if (block && n_bytes >= LARGE_BYTES) {
                begin = (begin + page - 1) / page * page; /* the first page holds malloc's own notes */
                end = end / page * page;
                for (; begin + STEP_BYTES <= end; begin += STEP_BYTES)
                        (void)madvise((void *)begin, STEP_BYTES, MADV_DONTNEED);
        }
        free(block);
}
