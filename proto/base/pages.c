#include "base/pages.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

uint64_t ordinary_page_bytes(void) {
        return (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t fd_pool_page_bytes(int fd) {
        struct statfs fs;
        return fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC ? (uint64_t)fs.f_bsize : 0;
}

/* Room for it wherever it begins, of which what lies before and behind is given back. */
void *map_on_huge_page(int fd, uint64_t n_bytes, int protection) {
        uint64_t ordinary = ordinary_page_bytes(), room, before;
        if (__builtin_add_overflow(n_bytes, HUGE_PAGE_BYTES + ordinary - 1, &room)) {
                errno = ENOMEM;
                return MAP_FAILED;
        }
        room = room / ordinary * ordinary;
        uint8_t *at = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED)
                return MAP_FAILED;
        before = -(uintptr_t)at & (HUGE_PAGE_BYTES - 1);
        void *map = mmap(at + before, n_bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
        if (map == MAP_FAILED) {
                int e = errno;
                munmap(at, room);
                errno = e;
                return MAP_FAILED;
        }
        uint64_t end = before + (room - HUGE_PAGE_BYTES);
        if (before > 0)
                munmap(at, before);
        if (end < room)
                munmap(at + end, room - end);
        return map;
}
