/* Memory of devices from cuMemAlloc, and host memory that devices see. Device memory is a memfd of each
 * context, in which each piece has an offset of its own that is never used again. */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* --- how much of the device is taken --- */

struct charge {
        uint64_t id;
        unsigned int n;
        UT_hash_handle hh;
};
static struct charge *charges;

CUresult fake_charge(const struct fake_allocation *what) {
        struct charge *c;
        HASH_FIND(hh, charges, &what->id, sizeof(what->id), c);
        if (!c) {
                c = calloc(1, sizeof(*c));
                if (!c)
                        return CUDA_ERROR_OUT_OF_MEMORY;
                fake_page_lock(fake.page);
                bool is_noted = fake_page_hold(fake.page, fake.slot, what);
                fake_page_unlock(fake.page);
                if (!is_noted) {
                        free(c);
                        return CUDA_ERROR_OUT_OF_MEMORY;
                }
                c->id = what->id;
                HASH_ADD(hh, charges, id, sizeof(c->id), c);
        }
        c->n++;
        return CUDA_SUCCESS;
}

void fake_uncharge(uint64_t id) {
        struct charge *c;
        HASH_FIND(hh, charges, &id, sizeof(id), c);
        if (!c || --c->n)
                return;
        fake_page_lock(fake.page);
        fake_page_drop(fake.page, fake.slot, id);
        fake_page_unlock(fake.page);
        HASH_DELETE(hh, charges, c);
        free(c);
}

static uint64_t bytes_in_use(int physical) {
        fake_page_lock(fake.page);
        uint64_t n_bytes = fake_page_bytes(fake.page, fake.page_fd, fake.slot, (uint32_t)physical);
        fake_page_unlock(fake.page);
        return n_bytes;
}

bool fake_has_room(int physical, uint64_t n_bytes) {
        uint64_t used = bytes_in_use(physical);
        return used <= fake.total_bytes && n_bytes <= fake.total_bytes - used;
}

CUresult CUDAAPI cuMemGetInfo(size_t *n_free, size_t *n_total) {
        CUresult r = fake_enter(CALL_cuMemGetInfo, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        uint64_t used = bytes_in_use(fake_current()->physical);
        *n_total = fake.total_bytes;
        *n_free = used < fake.total_bytes ? fake.total_bytes - used : 0;
        return fake_leave(CUDA_SUCCESS);
}

/* --- device memory --- */

/* Where there is a control file, a file beside it, which others find by its name: opening a legacy handle
 * must not take the right to look into the process that made it, as it does not with the real driver. */
static int open_heap(const struct fake_context *c) {
        char path[PATH_MAX];
        int fd = -1;
        if (fake_heap_path(path, sizeof(path), getpid(), (uint32_t)c->physical))
                fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        return fd >= 0 ? fd : memfd_create("fakecuda-heap", MFD_CLOEXEC);
}

static void close_heap(struct fake_context *c) {
        char path[PATH_MAX];
        if (c->heap_fd < 0)
                return;
        close(c->heap_fd);
        c->heap_fd = -1;
        if (fake_heap_path(path, sizeof(path), getpid(), (uint32_t)c->physical))
                unlink(path);
}

static CUresult map_piece(struct fake_context *c, struct fake_range *range) {
        if (c->heap_fd < 0)
                c->heap_fd = open_heap(c);
        if (c->heap_fd < 0 || ftruncate(c->heap_fd, (off_t)(c->heap_end + range->n_bytes)) < 0)
                return CUDA_ERROR_OUT_OF_MEMORY;
        void *at = mmap(
                NULL, range->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->heap_fd, (off_t)c->heap_end);
        if (at == MAP_FAILED)
                return CUDA_ERROR_OUT_OF_MEMORY;
        range->base = (uintptr_t)at;
        range->offset = c->heap_end;
        c->heap_end += range->n_bytes;
        return CUDA_SUCCESS;
}

static CUresult allocate(struct fake_context *c, size_t n_bytes, CUdeviceptr *ret) {
        if (!n_bytes || !ret)
                return CUDA_ERROR_INVALID_VALUE;
        if (!fake_has_room(c->physical, n_bytes))
                return CUDA_ERROR_OUT_OF_MEMORY;
        struct fake_range range = { .n_bytes = (n_bytes + FAKE_PAGE - 1) & ~((size_t)FAKE_PAGE - 1),
                .kind = FAKE_DEVICE_MEMORY,
                .owner = c->physical,
                .context = c,
                .id = atomic_fetch_add(&fake.page->next_id, 1) };
        CUresult r = map_piece(c, &range);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_allocation a = {
                .id = range.id, .n_bytes = range.n_bytes, .device = (uint32_t)c->physical
        };
        range.n_bytes = n_bytes;
        r = fake_charge(&a);
        if (r == CUDA_SUCCESS && !fake_range_add(&range)) {
                fake_uncharge(range.id);
                r = CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (r != CUDA_SUCCESS)
                munmap((void *)range.base, a.n_bytes);
        else
                *ret = range.base;
        return r;
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr *ret, size_t n_bytes) {
        CUresult r = fake_enter(CALL_cuMemAlloc, FAKE_CONTEXT);
        return r != CUDA_SUCCESS ? r : fake_leave(allocate(fake_current(), n_bytes, ret));
}

static CUresult drain(struct fake_context *c) {
        CUresult r = CUDA_SUCCESS;
        for (struct fake_stream *s = c->streams; s && r == CUDA_SUCCESS; s = s->next)
                r = fake_stream_drain(s);
        return r;
}

static void free_piece(struct fake_range *range) {
        size_t n_bytes = (range->n_bytes + FAKE_PAGE - 1) & ~((size_t)FAKE_PAGE - 1);
        (void)fallocate(range->context->heap_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                (off_t)range->offset, (off_t)n_bytes);
        munmap((void *)range->base, n_bytes);
        fake_uncharge(range->id);
        fake_range_remove(range);
}

CUresult CUDAAPI cuMemFree(CUdeviceptr pointer) {
        CUresult r = fake_enter(CALL_cuMemFree, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_range *range = fake_range_find(pointer);
        if (!range || range->base != pointer || range->kind != FAKE_DEVICE_MEMORY)
                return fake_leave(pointer ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
        r = drain(range->context); /* as the driver does: what still uses it ends first */
        range = fake_range_find(pointer);
        if (r == CUDA_SUCCESS && range && range->base == pointer)
                free_piece(range);
        return fake_leave(r);
}

CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr *base, size_t *n_bytes, CUdeviceptr pointer) {
        CUresult r = fake_enter(CALL_cuMemGetAddressRange, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_range *range = fake_range_find(pointer);
        if (!range)
                return fake_leave(CUDA_ERROR_NOT_FOUND);
        if (base)
                *base = range->base;
        if (n_bytes)
                *n_bytes = range->n_bytes;
        return fake_leave(CUDA_SUCCESS);
}

/* --- host memory --- */

CUresult CUDAAPI cuMemHostAlloc(void **ret, size_t n_bytes, unsigned int flags) {
        CUresult r = fake_enter(CALL_cuMemHostAlloc, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        unsigned int known =
                CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
        if (!ret || !n_bytes || (flags & ~known))
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        void *at = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
                return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
        struct fake_range range = { .base = (uintptr_t)at,
                .n_bytes = n_bytes,
                .kind = FAKE_HOST,
                .owner = -1,
                .context = fake_current(),
                .flags = flags };
        if (!fake_range_add(&range)) {
                munmap(at, n_bytes);
                return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
        }
        *ret = at;
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemFreeHost(void *pointer) {
        CUresult r = fake_enter(CALL_cuMemFreeHost, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_range *range = fake_range_find((uintptr_t)pointer);
        if (!range || range->base != (uintptr_t)pointer || range->kind != FAKE_HOST)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        munmap(pointer, range->n_bytes);
        fake_range_remove(range);
        return fake_leave(CUDA_SUCCESS);
}

/* Whether the whole range is mapped, and may be written where that is asked for. */
static bool is_mapped(uintptr_t begin, uintptr_t end, enum fake_use use) {
        char line[512], mode[5];
        FILE *maps = fopen("/proc/self/maps", "re");
        unsigned long low, high;
        while (maps && begin < end && fgets(line, sizeof(line), maps)) {
                if (sscanf(line, "%lx-%lx %4s", &low, &high, mode) != 3 || high <= begin)
                        continue;
                if (low > begin || mode[0] != 'r' || (use == FAKE_WRITE && mode[1] != 'w'))
                        break;
                begin = high;
        }
        if (maps)
                fclose(maps);
        return begin >= end;
}

CUresult CUDAAPI cuMemHostRegister(void *pointer, size_t n_bytes, unsigned int flags) {
        CUresult r = fake_enter(CALL_cuMemHostRegister, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        unsigned int known =
                CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
        uintptr_t base = (uintptr_t)pointer;
        if (!pointer || !n_bytes || (flags & ~known) || base + n_bytes < base)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        if (fake_range_overlaps(base, n_bytes))
                return fake_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        if (!is_mapped(base, base + n_bytes, flags & CU_MEMHOSTREGISTER_READ_ONLY ? FAKE_READ : FAKE_WRITE))
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        struct fake_range range = { .base = base,
                .n_bytes = n_bytes,
                .kind = FAKE_REGISTERED,
                .owner = -1,
                .context = fake_current(),
                .flags = flags };
        return fake_leave(fake_range_add(&range) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult CUDAAPI cuMemHostUnregister(void *pointer) {
        CUresult r = fake_enter(CALL_cuMemHostUnregister, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_range *range = fake_range_find((uintptr_t)pointer);
        if (!range || range->base != (uintptr_t)pointer || range->kind != FAKE_REGISTERED)
                return fake_leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
        fake_range_remove(range);
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr *ret, void *pointer, unsigned int flags) {
        CUresult r = fake_enter(CALL_cuMemHostGetDevicePointer, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_range *range = fake_range_find((uintptr_t)pointer);
        if (!ret || flags || !range || range->owner >= 0)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        *ret = (CUdeviceptr)(uintptr_t)pointer;
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int *ret, void *pointer) {
        CUresult r = fake_enter(CALL_cuMemHostGetFlags, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_range *range = fake_range_find((uintptr_t)pointer);
        if (!ret || !range || range->owner >= 0)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        *ret = range->flags;
        return fake_leave(CUDA_SUCCESS);
}

/* --- the end of a context --- */

static void end_range(struct fake_range *range) {
        switch (range->kind) {
        case FAKE_DEVICE_MEMORY: free_piece(range); return;
        case FAKE_FOREIGN:
                munmap((void *)range->base, range->n_bytes);
                atomic_fetch_sub(&fake.process->n_ipc_open, 1);
                fake_uncharge(range->id);
                break;
        case FAKE_HOST: munmap((void *)range->base, range->n_bytes); break;
        case FAKE_MAPPED: fake_physical_unmap(range); return;
        case FAKE_REGISTERED: break;
        }
        fake_range_remove(range);
}

void fake_memory_end(struct fake_context *context) {
        for (size_t i = 0; fake_range_at(i);) {
                struct fake_range *range = fake_range_at(i);
                if (range->context == context && range->kind != FAKE_MAPPED)
                        end_range(range);
                else
                        i++;
        }
        close_heap(context);
        context->heap_end = 0;
}
