#include "lib/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/memfd.h"
#include "base/pages.h"

/* Newer than some C libraries. */
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Gathering fails for a moment where somebody else holds a page, as the kernel's own lists do. */
#define MAX_TRIES 4

uint64_t pages_bytes(enum pages pages) {
        return pages == PAGES_POOL || pages == PAGES_TRANSPARENT ? HUGE_PAGE_BYTES : ordinary_page_bytes();
}

int pages_make_memfd(enum pages pages, uint64_t n_bytes, int *ret) {
        CLEANUP_FD int fd = memfd_new("tutti", pages == PAGES_POOL ? MFD_HUGETLB | MFD_HUGE_2MB : 0);
        if (fd < 0)
                return fd;
        if (ftruncate(fd, (off_t)n_bytes) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
                return -errno;
        *ret = fd_take(&fd);
        return 0;
}

/* Of the pool nothing is reserved yet: much more may be mapped than will ever be taken. */
void *pages_map(enum pages pages, int fd, uint64_t n_bytes) {
        const int protection = PROT_READ | PROT_WRITE;
        void *at = pages == PAGES_TRANSPARENT
                           ? map_on_huge_page(fd, n_bytes, protection)
                           : mmap(NULL, n_bytes, protection,
                                     pages == PAGES_POOL ? MAP_SHARED | MAP_NORESERVE : MAP_SHARED, fd, 0);
        return at == MAP_FAILED ? NULL : at;
}

/* --- filling --- */

static int allocate(int fd, uint64_t from, uint64_t to) {
        while (fallocate(fd, 0, (off_t)from, (off_t)(to - from)) < 0)
                if (errno != EINTR)
                        return -errno;
        return 0;
}

/* What a shared mapping has reserved stays with the file when it is gone. */
static int reserve(int fd, uint64_t from, uint64_t to) {
        void *at = mmap(NULL, to - from, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)from);
        if (at == MAP_FAILED)
                return -errno;
        munmap(at, to - from);
        return 0;
}

/* false where pages are not those that MADV_COLLAPSE makes: it would find nothing to do, and call that done.
 */
static bool can_be_gathered(void) {
        return ordinary_page_bytes() == HUGE_PAGE_BYTES / 512;
}

static int gather(uint8_t *at, uint64_t n_bytes) {
        if (!can_be_gathered())
                return -EOPNOTSUPP;
        for (int tries = 0; madvise(at, n_bytes, MADV_COLLAPSE) < 0; tries++)
                if (errno != EAGAIN || tries == MAX_TRIES)
                        return -errno;
        return 0;
}

static int fill(const struct backing *b, uint64_t from, uint64_t to) {
        int e = b->pages == PAGES_POOL ? reserve(b->fd, from, to) : 0;
        if (e == 0)
                e = allocate(b->fd, from, to);
        if (e == 0 && b->pages == PAGES_TRANSPARENT)
                e = gather(b->data + from, to - from);
        if (e == 0 && madvise(b->data + from, to - from, MADV_POPULATE_WRITE) < 0)
                e = -errno;
        return e;
}

int pages_fill(const struct backing *b, uint64_t from, uint64_t to) {
        int e = fill(b, from, to);
        if (e < 0)
                (void)!fallocate(
                        b->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from));
        return e;
}

/* --- explaining --- */

#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"

/* false: there is no such file. */
static bool read_count(const char *path, uint64_t *ret) {
        unsigned long long n = 0;
        FILE *f = fopen(path, "re");
        if (!f)
                return false;
        bool is_read = fscanf(f, "%llu", &n) == 1;
        fclose(f);
        *ret = n;
        return is_read;
}

static void explain_pool(uint64_t n_bytes, struct text *t) {
        uint64_t n, n_free, n_reserved;
        if (!read_count(POOL "nr_hugepages", &n) || !read_count(POOL "free_hugepages", &n_free) ||
                !read_count(POOL "resv_hugepages", &n_reserved)) {
                text_add(t, "this kernel has no pool of 2 MiB pages");
                return;
        }
        text_add(t, "pages needed of the pool: %llu, free: %llu of %llu (vm.nr_hugepages)",
                (unsigned long long)((n_bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES),
                (unsigned long long)(n_free > n_reserved ? n_free - n_reserved : 0), (unsigned long long)n);
}

static bool are_denied(void) {
        char line[128] = "";
        FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
        if (!f)
                return true;
        bool is_read = fgets(line, sizeof(line), f) != NULL;
        fclose(f);
        return !is_read || strstr(line, "[deny]");
}

static void explain_transparent(struct text *t) {
        if (prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) != 0)
                text_add(t, "this process takes no transparent ones (PR_SET_THP_DISABLE)");
        else if (are_denied())
                text_add(t, "transparent ones are denied (shmem_enabled)");
        else
                text_add(t, "the kernel makes no transparent ones");
}

void pages_explain(enum pages pages, uint64_t n_bytes, struct text *t) {
        if (t->used > 0)
                text_add(t, "; ");
        if (pages == PAGES_POOL)
                explain_pool(n_bytes, t);
        else
                explain_transparent(t);
}
