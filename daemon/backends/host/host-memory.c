/* Client memory comes in: sealed, checked, mapped, watched, populated; and goes.
 *
 * The order matters. The shrink seal comes before the size is read, so that the size holds. The watch comes
 * before the first access, so that no access of ours ever makes a page: with userfaultfd's SIGBUS feature a
 * hole is an error, also to MADV_POPULATE, and not an allocation that the kernel would charge to tuttid.
 *
 * Memory of the kernel's pool of huge pages (MFD_HUGETLB) is watched and sealed like any other: hugetlbfs
 * knows both (userfaultfd since 4.11, seals since 4.16). Three things are its own. Lengths are multiples of
 * its pages, or the kernel neither watches nor unmaps it. Mapping it would take pages of the pool for all its
 * holes, so ours takes none (MAP_NORESERVE). And where userfaultfd is denied a hole costs tuttid no memory of
 * its own, but a page of the pool, or is a SIGBUS when there is none, which is survived like any. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "backends/host/host-private.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/pages.h"

void host_memory_free(struct host_memory *m) {
        if (!m)
                return;
        if (m->map)
                munmap(m->map, m->n_map_bytes);
        free(m);
}

DEFINE_CLEANUP(struct host_memory, host_memory_free)

PRINTF_LIKE(3, 4)
static enum status refuse(struct chore *chore, enum status status, const char *format, ...) {
        va_list args;
        va_start(args, format);
        vsnprintf(chore->why, sizeof(chore->why), format, args);
        va_end(args);
        return status;
}

/* Only a memfd, open for both, that will let us write. */
static enum status check_kind(struct chore *chore, int *ret_seals) {
        int flags = fcntl(chore->fd, F_GETFL), seals = fcntl(chore->fd, F_GET_SEALS);
        if (flags < 0 || seals < 0)
                return refuse(
                        chore, STATUS_BAD_FD, "not a memfd; create it with memfd_create(MFD_ALLOW_SEALING)");
        if ((flags & O_ACCMODE) != O_RDWR)
                return refuse(chore, STATUS_BAD_FD,
                        "the memfd is not open for reading and writing, so it cannot be guarded; send the "
                        "descriptor that memfd_create gave");
        if (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
                return refuse(chore, STATUS_BAD_FD,
                        "the memfd is sealed against writing, so it cannot be guarded; leave F_SEAL_WRITE "
                        "and "
                        "F_SEAL_FUTURE_WRITE off");
        *ret_seals = seals;
        return STATUS_OK;
}

/* From here on nobody can shorten it. */
static enum status seal(struct chore *chore) {
        int seals = 0;
        enum status status = check_kind(chore, &seals);
        if (status != STATUS_OK)
                return status;
        if ((seals & F_SEAL_SHRINK) || fcntl(chore->fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
                return STATUS_OK;
        if (errno == EPERM)
                return refuse(chore, STATUS_BAD_FD,
                        "it takes no seals, so it could be shortened under us (as every /dev/shm file can); "
                        "create it with memfd_create(MFD_ALLOW_SEALING)");
        return refuse(chore, STATUS_INTERNAL, "sealing failed: %s", strerror(errno));
}

static enum status check_size(struct chore *chore) {
        struct stat st;
        if (fstat(chore->fd, &st) < 0)
                return refuse(chore, STATUS_INTERNAL, "fstat failed: %s", strerror(errno));
        if ((uint64_t)st.st_size < chore->n_bytes)
                return refuse(chore, STATUS_INVALID,
                        "the memfd has %lld bytes, the registration says %llu; enlarge it first",
                        (long long)st.st_size, (unsigned long long)chore->n_bytes);
        return STATUS_OK;
}

/* At a place where its huge pages, if they are transparent ones, are mapped as such; those of the pool are
 * anywhere. All other memory goes where the kernel likes: much of it at equal places in its huge page would
 * meet in few sets of the TLB. */
static void *map_where_it_is_best(const struct chore *chore, const struct host_memory *m) {
        int protection = m->is_writable ? PROT_READ | PROT_WRITE : PROT_READ;
        if (chore->pages == PAGES_TRANSPARENT && m->base.pool_page_bytes == 0)
                return map_on_huge_page(chore->fd, m->n_map_bytes, protection);
        int flags = m->base.pool_page_bytes ? MAP_SHARED | MAP_NORESERVE : MAP_SHARED;
        return mmap(NULL, m->n_map_bytes, protection, flags, chore->fd, 0);
}

static enum status map(struct chore *chore, struct host_memory *m) {
        m->base.pool_page_bytes = fd_pool_page_bytes(chore->fd);
        uint64_t page = m->base.pool_page_bytes ? m->base.pool_page_bytes : ordinary_page_bytes();
        m->n_map_bytes = (chore->n_bytes + page - 1) / page * page;
        void *at = map_where_it_is_best(chore, m);
        if (at == MAP_FAILED && errno == EPERM)
                return refuse(chore, STATUS_BAD_FD, "the memfd was sealed against writing meanwhile");
        if (at == MAP_FAILED)
                return refuse(chore, errno == ENOMEM ? STATUS_NO_MEMORY : STATUS_INTERNAL,
                        "mapping %llu bytes failed: %s", (unsigned long long)chore->n_bytes, strerror(errno));
        m->map = at;
        /* A core dump of ours holds no client's data. */
        if (madvise(at, m->n_map_bytes, MADV_DONTDUMP) < 0)
                return refuse(chore, STATUS_INTERNAL, "MADV_DONTDUMP failed: %s", strerror(errno));
        return STATUS_OK;
}

/* The kernel refuses to watch what it would not let us write, which closes the gap since check_kind. */
static enum status watch(const struct host_backend *h, struct chore *chore, struct host_memory *m) {
        if (h->userfaultfd < 0)
                return STATUS_OK;
        struct uffdio_register watched = {
                .range = { .start = (uintptr_t)m->map, .len = m->n_map_bytes },
                .mode = UFFDIO_REGISTER_MODE_MISSING,
        };
        if (ioctl(h->userfaultfd, UFFDIO_REGISTER, &watched) < 0) {
                if (errno == EPERM)
                        return refuse(chore, STATUS_BAD_FD, "the memfd was sealed against writing meanwhile");
                return refuse(chore, errno == ENOMEM ? STATUS_NO_MEMORY : STATUS_INTERNAL,
                        "userfaultfd failed: %s", strerror(errno));
        }
        m->base.is_guarded = true;
        return STATUS_OK;
}

/* Page tables for what exists, so that the first run has no faults. It ends at the first hole, which is for
 * the guard to find if a run ever gets there. Unwatched memory is left alone: populating would fill its
 * holes on our account. */
static void populate(const struct host_memory *m) {
        if (m->base.is_guarded)
                madvise(m->map, m->n_map_bytes, m->is_writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

static enum status bring_in(const struct host_backend *h, struct chore *chore, struct host_memory *m) {
        enum status status = seal(chore);
        if (status == STATUS_OK)
                status = check_size(chore);
        if (status != STATUS_OK || chore->n_bytes == 0)
                return status;
        status = map(chore, m);
        if (status == STATUS_OK)
                status = watch(h, chore, m);
        if (status == STATUS_OK)
                populate(m);
        return status;
}

void host_import(struct backend *b, struct chore *chore) {
        CLEANUP(host_memory_freep) struct host_memory *m = calloc(1, sizeof(*m));
        chore->memory = NULL;
        chore->why[0] = '\0';
        if (!m) {
                chore->status = refuse(chore, STATUS_NO_MEMORY, "tuttid is short of memory");
                return;
        }
        m->base = (struct memory){ .session = chore->session,
                .buffer = chore->buffer,
                .n_bytes = chore->n_bytes,
                .fd = chore->fd,
                .access = chore->access };
        m->is_writable = chore->access != ACCESS_IN;
        chore->status = bring_in(host_backend_of(b), chore, m);
        if (chore->status == STATUS_OK)
                chore->memory = &take_pointer(m)->base;
}

/* Also of what was never imported: then there is only the descriptor. */
void host_release(struct backend *b, struct chore *chore) {
        (void)b;
        if (chore->memory)
                host_memory_free(host_memory_of(chore->memory));
        chore->memory = NULL;
        fd_close(&chore->fd);
}
