/* Memory comes in, and goes after the last run that uses it. Device memory is memory-device.c's; here is host
 * memory: what a client's memfd holds, mapped, and registered with the driver so that kernels read and write
 * it in place. Where it cannot be registered, runs copy it through memory of ours (F8), and that is said. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include "backends/cuda/cuda-private.h"
#include "backends/cuda/events.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/pages.h"

enum status cuda_refuse(struct chore *chore, enum status status, const char *format, ...) {
        va_list args;
        va_start(args, format);
        vsnprintf(chore->why, sizeof(chore->why), format, args);
        va_end(args);
        return status;
}

/* --- the end of it --- */

static void close_memory(struct cuda *c, struct cuda_memory *m) {
        cuda_device_memory_close(c, m);
        cuda_events_close(c, m);
        if (m->is_pinned && cuda_enter(c, &c->devices[0]) == 0)
                cuda_note(c, c->driver.cuMemHostUnregister(m->map), "cuMemHostUnregister");
        if (m->map)
                munmap(m->map, m->n_map_bytes);
        free(m);
}

void cuda_memory_ref(struct cuda_memory *m) {
        m->n_uses++;
}

void cuda_memory_unref(struct cuda *c, struct cuda_memory *m) {
        if (--m->n_uses == 0 && m->is_released)
                close_memory(c, m);
}

static void let_go(struct cuda *c, struct chore *chore) {
        struct cuda_memory *m = chore->memory ? cuda_memory_of(chore->memory) : NULL;
        chore->memory = NULL;
        if (!m)
                return;
        m->is_released = true;
        if (m->n_uses == 0)
                close_memory(c, m);
}

/* --- host memory --- */

static enum status map_host(struct chore *chore, struct cuda_memory *m, int protection) {
        uint64_t pool_page = fd_pool_page_bytes(chore->fd),
                 page = pool_page ? pool_page : ordinary_page_bytes();
        struct stat st;
        if (fstat(chore->fd, &st) < 0)
                return cuda_refuse(chore, STATUS_BAD_FD, "fstat failed: %s", strerror(errno));
        if ((uint64_t)st.st_size < chore->n_bytes)
                return cuda_refuse(chore, STATUS_INVALID,
                        "the memfd has %lld bytes, the registration says %llu; enlarge it first",
                        (long long)st.st_size, (unsigned long long)chore->n_bytes);
        m->n_map_bytes = (chore->n_bytes + page - 1) / page * page;
        /* Pages of the pool are the client's to take. */
        int flags = pool_page ? MAP_SHARED | MAP_NORESERVE : MAP_SHARED;
        void *at = mmap(NULL, m->n_map_bytes, protection, flags, chore->fd, 0);
        if (at == MAP_FAILED)
                return cuda_refuse(chore, errno == ENOMEM ? STATUS_NO_MEMORY : STATUS_BAD_FD,
                        "mapping %llu bytes failed: %s", (unsigned long long)chore->n_bytes, strerror(errno));
        m->map = at;
        if (madvise(at, m->n_map_bytes, MADV_DONTDUMP) < 0)
                return cuda_refuse(chore, STATUS_INTERNAL, "MADV_DONTDUMP failed: %s", strerror(errno));
        return STATUS_OK;
}

/* "pinned=no (memlock 8 MiB < 256 MiB)" */
static void note_unpinned(struct cuda *c, const struct cuda_memory *m, CUresult result) {
        struct rlimit limit = { .rlim_cur = RLIM_INFINITY };
        struct text t;
        char why[GPU_TEXT_BYTES];
        text_init(&t, why, sizeof(why));
        text_add(&t, "pinned=no (");
        if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur < m->n_map_bytes) {
                text_add(&t, "memlock ");
                text_add_bytes(&t, limit.rlim_cur);
                text_add(&t, " < ");
                text_add_bytes(&t, m->n_map_bytes);
        } else
                text_add(&t, "%s", driver_error(&c->driver, result));
        text_add(&t, "); host memory is copied before and after");
        cuda_add_fallback(c, "pinned", "%s", why);
}

static enum status pin(struct cuda *c, struct chore *chore, struct cuda_memory *m) {
        unsigned int flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
        if (!m->is_writable && c->devices[0].has_read_only)
                flags |= CU_MEMHOSTREGISTER_READ_ONLY;
        if (cuda_enter(c, &c->devices[0]) < 0)
                return cuda_refuse(chore, STATUS_DEVICE_LOST, "the driver failed");
        CUresult r = c->driver.cuMemHostRegister(m->map, m->n_map_bytes, flags);
        if (r == CUDA_SUCCESS) {
                m->is_pinned = true;
                r = c->driver.cuMemHostGetDevicePointer(&m->at, m->map, 0);
                if (cuda_check(c, r, "cuMemHostGetDevicePointer") < 0)
                        return cuda_refuse(chore, STATUS_INTERNAL, "no device can address it: %s",
                                driver_error(&c->driver, r));
                return STATUS_OK;
        }
        if (driver_is_broken_by(r)) {
                cuda_note(c, r, "cuMemHostRegister");
                return cuda_refuse(chore, STATUS_DEVICE_LOST, "the driver failed");
        }
        note_unpinned(c, m, r);
        return STATUS_OK;
}

static enum status import_host(struct cuda *c, struct chore *chore, struct cuda_memory *m) {
        /* The driver pins for writing what it cannot register for reading alone. */
        int protection = m->is_writable || !c->devices[0].has_read_only ? PROT_READ | PROT_WRITE : PROT_READ;
        m->base.device = 0;
        if (chore->n_bytes == 0)
                return STATUS_OK;
        enum status status = map_host(chore, m, protection);
        return status == STATUS_OK ? pin(c, chore, m) : status;
}

/* A page whose events are made with it. */
static enum status import_events(struct cuda *c, struct chore *chore, struct cuda_memory *m) {
        enum status status = map_host(chore, m, PROT_READ | PROT_WRITE);
        return status == STATUS_OK ? cuda_events_open(c, chore, m) : status;
}

/* --- chores --- */

static enum status bring_in(struct cuda *c, struct chore *chore, struct cuda_memory *m) {
        if (c->base.is_broken)
                return cuda_refuse(chore, STATUS_DEVICE_LOST, "%s", c->base.broken_why);
        switch (chore->path) {
        case PATH_MEMFD: return import_host(c, chore, m);
        case PATH_EVENTS: return import_events(c, chore, m);
        case PATH_VMM_MADE:
        case PATH_VMM_FD:
        case PATH_CUDA_IPC:
                return chore->path == PATH_VMM_MADE && chore->fd < 0 ? cuda_device_make(c, chore, m)
                                                                     : cuda_device_import(c, chore, m);
        }
        return cuda_refuse(chore, STATUS_INVALID, "no such kind of memory");
}

void cuda_import(struct backend *b, struct chore *chore) {
        struct cuda *c = cuda_of(b);
        struct cuda_memory *m = calloc(1, sizeof(*m));
        chore->memory = NULL;
        chore->why[0] = '\0';
        if (!m) {
                chore->status = cuda_refuse(chore, STATUS_NO_MEMORY, "tuttid-gpu is short of memory");
                return;
        }
        m->base = (struct memory){ .session = chore->session,
                .buffer = chore->buffer,
                .n_bytes = chore->n_bytes,
                .path = chore->path,
                .device = chore->device };
        m->is_writable = chore->access != ACCESS_IN;
        chore->status = bring_in(c, chore, m);
        if (chore->status == STATUS_OK)
                chore->memory = &m->base;
        else
                close_memory(c, m);
}

void cuda_release(struct backend *b, struct chore *chore) {
        let_go(cuda_of(b), chore);
        fd_close(&chore->fd);
}

/* chore->n_bytes grows to what there is. */
void cuda_make(struct backend *b, struct chore *chore) {
        chore->path = PATH_VMM_MADE;
        chore->fd = chore->read_fd = -1;
        chore->access = ACCESS_INOUT;
        cuda_import(b, chore);
}

/* Nobody can be asked whether he still has it; the driver counts who has. */
void cuda_unmake(struct backend *b, struct chore *chore) {
        let_go(cuda_of(b), chore);
        fd_close(&chore->read_fd);
        fd_close(&chore->fd);
}
