/* Memory of ours for clients to read: made, filled, mapped, sealed, in this order.
 *
 * The seal comes after our own mapping: from then on nobody can have a writable one, punch a hole, or change
 * the size, whatever descriptor he holds. So this memory needs no guard. fallocate before anything else:
 * running short is an error here and not a SIGBUS in a kernel.
 *
 * The seals keep us from freeing it too: the pages live as long as anybody has a descriptor or a mapping. So
 * that nobody makes tuttid hold more than it is charged for, the end of it finds out whether anybody has
 * (base/memfd.h). */
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
#include "base/memfd.h"

DEFINE_CLEANUP(struct host_memory, host_memory_free)

#define ALL_SEALS (F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

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

static int make(struct chore *chore, struct host_memory *m) {
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        CLEANUP_FD int fd = memfd_new("tutti-result", 0);
        if (fd < 0)
                return fd;
        m->n_map_bytes = (chore->n_bytes + page - 1) / page * page;
        int r = fill(fd, m->n_map_bytes);
        if (r == 0)
                r = map(fd, m);
        if (r < 0)
                return r;
        chore->read_fd = memfd_open_anew(fd, O_RDONLY);
        if (chore->read_fd < 0)
                return chore->read_fd;
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

void host_unmake(struct backend *b, struct chore *chore) {
        (void)b;
        if (chore->memory)
                host_memory_free(host_memory_of(chore->memory));
        chore->memory = NULL;
        fd_close(&chore->read_fd);
        if (!memfd_is_had(chore->fd))
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
