/* Memory of ours for clients to read: made, filled, mapped, sealed, in this order.
 *
 * The seal comes after our own mapping: from then on nobody can have a writable one, punch a hole, or change
 * the size, whatever descriptor he holds. So this memory needs no guard. fallocate before anything else:
 * running short is an error here and not a SIGBUS in a kernel.
 *
 * The seals keep us from freeing it too: the pages live as long as anybody has a descriptor or a mapping. So
 * that nobody makes tuttid hold more than it is charged for, the end of it finds out whether anybody has. The
 * kernel counts who has opened a file for reading and for writing, and grants a write lease (fcntl(2),
 * F_SETLEASE) only to the one and only; memfd_create's own descriptor is not counted. So others get one that
 * was opened for reading, over /proc, and whoever opens it anew is counted too. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "backends/host/host-private.h"
#include "base/available.h"
#include "base/cleanup.h"
#include "base/fd.h"

/* Newer than some C libraries. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

DEFINE_CLEANUP(struct host_memory, host_memory_free)

#define ALL_SEALS (F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Kernels before 6.3 do not know NOEXEC_SEAL; the right to seal must survive the second try. */
static int make_memfd(void) {
        const unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
        int fd = memfd_create("tutti-result", flags | MFD_NOEXEC_SEAL);
        return fd < 0 && errno == EINVAL ? memfd_create("tutti-result", flags) : fd;
}

static int fill(int fd, uint64_t n_bytes) {
        int r;
        if (ftruncate(fd, (off_t)n_bytes) < 0)
                return -errno;
        while ((r = fallocate(fd, 0, 0, (off_t)n_bytes)) < 0 && errno == EINTR)
                ;
        return r < 0 ? -errno : 0;
}

static int map(int fd, struct host_memory *m) {
        void *at = mmap(NULL, m->n_map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (at == MAP_FAILED)
                return -errno;
        m->map = at;
        if (madvise(at, m->n_map_bytes, MADV_DONTDUMP) < 0 || fcntl(fd, F_ADD_SEALS, ALL_SEALS) < 0)
                return -errno;
        return 0;
}

/* Counted by the kernel, as memfd_create's own is not. */
static int open_to_read(int fd) {
        char path[32];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* who has a lease of it is not waited for */
}

static int make(struct chore *chore, struct host_memory *m) {
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        CLEANUP_FD int fd = make_memfd();
        if (fd < 0)
                return -errno;
        m->n_map_bytes = (chore->n_bytes + page - 1) / page * page;
        int r = fill(fd, m->n_map_bytes);
        if (r == 0)
                r = map(fd, m);
        if (r < 0)
                return r;
        chore->read_fd = open_to_read(fd);
        if (chore->read_fd < 0)
                return -errno;
        chore->fd = fd_take(&fd);
        return 0;
}

static enum status fail(struct chore *chore, int r) {
        switch (r) {
        case -EMFILE:
        case -ENFILE:
                snprintf(chore->why, sizeof(chore->why), "tuttid has no descriptor left for it");
                return STATUS_LIMIT;
        case -ENOMEM:
        case -ENOSPC:
        case -EFBIG:
        case -EINVAL: /* beyond what a file can have */
                snprintf(chore->why, sizeof(chore->why),
                        "it needs %llu bytes, about %llu are available to tuttid",
                        (unsigned long long)chore->n_bytes, (unsigned long long)memory_available_bytes());
                return STATUS_NO_MEMORY;
        default:
                snprintf(chore->why, sizeof(chore->why), "its memory cannot be made: %s", strerror(-r));
                return STATUS_INTERNAL;
        }
}

void host_make(struct backend *b, struct chore *chore) {
        (void)b;
        CLEANUP(host_memory_freep) struct host_memory *m = calloc(1, sizeof(*m));
        chore->memory = NULL;
        chore->fd = chore->read_fd = -1;
        chore->why[0] = '\0';
        uint64_t available = memory_available_bytes();
        int r = !m || (available && chore->n_bytes > available) ? -ENOMEM : make(chore, m);
        if (r < 0) {
                chore->status = fail(chore, r);
                return;
        }
        m->base = (struct memory){ .n_bytes = chore->n_bytes, .fd = chore->fd, .access = ACCESS_INOUT };
        m->is_writable = true;
        chore->memory = &take_pointer(m)->base;
        chore->status = STATUS_OK;
}

/* Where leases cannot be had at all, nobody is taken to have it. */
static bool is_held_by_others(int fd) {
        CLEANUP_FD int only = open_to_read(fd);
        if (only < 0)
                return errno == EMFILE || errno == ENFILE || errno == EWOULDBLOCK; /* not known now */
        if (fcntl(only, F_SETLEASE, F_WRLCK) == 0)
                return false; /* and closing it ends the lease */
        return errno == EAGAIN;
}

void host_unmake(struct backend *b, struct chore *chore) {
        (void)b;
        if (chore->memory)
                host_memory_free(host_memory_of(chore->memory));
        chore->memory = NULL;
        fd_close(&chore->read_fd);
        if (!is_held_by_others(chore->fd))
                fd_close(&chore->fd);
}

/* --- between the steps of a plan --- */

struct memory *host_make_scratch(struct backend *b, uint32_t device, uint64_t n_bytes) {
        (void)b;
        (void)device; /* all host devices reach the same memory */
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        CLEANUP(host_memory_freep) struct host_memory *m = calloc(1, sizeof(*m));
        if (!m || n_bytes > SIZE_MAX / 2)
                return NULL;
        uint64_t n_map_bytes = (n_bytes + page - 1) / page * page;
        void *at = mmap(NULL, n_map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
                return NULL;
        m->map = at;
        m->n_map_bytes = n_map_bytes;
        m->base.n_bytes = n_bytes;
        m->is_writable = true;
        return &take_pointer(m)->base;
}

void host_free_scratch(struct backend *b, struct memory *memory) {
        (void)b;
        host_memory_free(host_memory_of(memory));
}
