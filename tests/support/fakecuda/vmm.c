/* Virtual memory management: physical memory is a memfd of its own, whose name tells device and number of the
 * allocation, so that the descriptor alone is all that another process needs. */
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct reservation {
        struct reservation *next;
        uintptr_t base;
        size_t n_bytes;
};
static struct reservation *reservations;

static bool is_granular(uint64_t n) {
        return n % FAKE_GRANULE == 0;
}

/* --- physical memory --- */

static struct fake_physical *find_physical(CUmemGenericAllocationHandle handle) {
        return fake_handle_find(FAKE_PHYSICAL, (const void *)(uintptr_t)handle);
}

static CUresult check_properties(const CUmemAllocationProp *p) {
        if (!p || p->type != CU_MEM_ALLOCATION_TYPE_PINNED)
                return CUDA_ERROR_INVALID_VALUE;
        if (p->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !fake.has_vmm)
                return CUDA_ERROR_NOT_SUPPORTED;
        if (fake_physical(p->location.id) < 0)
                return CUDA_ERROR_INVALID_DEVICE;
        if (p->requestedHandleTypes & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
                return CUDA_ERROR_NOT_SUPPORTED;
        return CUDA_SUCCESS;
}

/* Takes the descriptor. */
static CUresult new_physical(const struct fake_physical *like, CUmemGenericAllocationHandle *ret) {
        struct fake_allocation a = {
                .id = like->id, .n_bytes = like->n_bytes, .device = (uint32_t)like->owner
        };
        CUresult r = fake_charge(&a);
        struct fake_physical *p = r == CUDA_SUCCESS ? fake_handle_new(FAKE_PHYSICAL, sizeof(*p)) : NULL;
        if (!p) {
                if (r == CUDA_SUCCESS)
                        fake_uncharge(like->id);
                close(like->fd);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        p->id = like->id;
        p->n_bytes = like->n_bytes;
        p->owner = like->owner;
        p->fd = like->fd;
        p->properties = like->properties;
        p->n_handles = 1;
        *ret = p->handle.id;
        return CUDA_SUCCESS;
}

static void unref(struct fake_physical *p) {
        if (p->n_handles || p->n_mappings)
                return;
        close(p->fd);
        fake_uncharge(p->id);
        fake_handle_retire(&p->handle);
        free(p);
}

static CUresult create(
        size_t n_bytes, const CUmemAllocationProp *properties, CUmemGenericAllocationHandle *ret) {
        struct fake_physical p = { .n_bytes = n_bytes, .properties = *properties };
        char name[64];
        p.owner = fake_physical(properties->location.id);
        p.id = atomic_fetch_add(&fake.page->next_id, 1);
        if (!fake_has_room(p.owner, n_bytes))
                return CUDA_ERROR_OUT_OF_MEMORY;
        snprintf(name, sizeof(name), "fakecuda-%d-%llu", p.owner, (unsigned long long)p.id);
        p.fd = memfd_create(name, MFD_CLOEXEC);
        if (p.fd < 0)
                return CUDA_ERROR_OUT_OF_MEMORY;
        if (ftruncate(p.fd, (off_t)n_bytes) < 0) {
                close(p.fd);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        return new_physical(&p, ret);
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *ret, size_t n_bytes,
        const CUmemAllocationProp *properties, unsigned long long flags) {
        CUresult r = fake_enter(CALL_cuMemCreate, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (!ret || flags || !n_bytes || !is_granular(n_bytes))
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        r = check_properties(properties);
        return fake_leave(r == CUDA_SUCCESS ? create(n_bytes, properties, ret) : r);
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
        CUresult r = fake_enter(CALL_cuMemRelease, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_physical *p = find_physical(handle);
        if (!p || !p->n_handles)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        p->n_handles--;
        unref(p);
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemGetAllocationGranularity(
        size_t *ret, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags option) {
        CUresult r = fake_enter(CALL_cuMemGetAllocationGranularity, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (!ret)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        r = check_properties(properties);
        if (r == CUDA_SUCCESS)
                *ret = FAKE_GRANULE;
        return fake_leave(r);
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(
        CUmemAllocationProp *ret, CUmemGenericAllocationHandle handle) {
        CUresult r = fake_enter(CALL_cuMemGetAllocationPropertiesFromHandle, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_physical *p = find_physical(handle);
        if (!p || !ret)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        *ret = p->properties;
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *ret, void *address) {
        CUresult r = fake_enter(CALL_cuMemRetainAllocationHandle, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_range *range = fake_range_find((uintptr_t)address);
        if (!ret || !range || range->kind != FAKE_MAPPED)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        range->physical->n_handles++;
        *ret = range->physical->handle.id;
        return fake_leave(CUDA_SUCCESS);
}

/* --- descriptors --- */

CUresult CUDAAPI cuMemExportToShareableHandle(void *ret, CUmemGenericAllocationHandle handle,
        CUmemAllocationHandleType type, unsigned long long flags) {
        CUresult r = fake_enter(CALL_cuMemExportToShareableHandle, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_physical *p = find_physical(handle);
        if (!ret || flags || !p || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
                !(p->properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        int fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
                return fake_leave(CUDA_ERROR_OPERATING_SYSTEM);
        memcpy(ret, &fd, sizeof(fd));
        return fake_leave(CUDA_SUCCESS);
}

/* What the name of a descriptor's memfd tells; CUDA_ERROR_INVALID_VALUE for a descriptor of another kind. */
static CUresult identify(int fd, struct fake_physical *ret) {
        char path[48], name[96] = "";
        struct stat status;
        unsigned long long id;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (readlink(path, name, sizeof(name) - 1) < 0 || fstat(fd, &status) < 0)
                return CUDA_ERROR_INVALID_VALUE;
        if (sscanf(name, "/memfd:fakecuda-%d-%llu", &ret->owner, &id) != 2)
                return CUDA_ERROR_INVALID_VALUE;
        ret->id = id;
        ret->n_bytes = (size_t)status.st_size;
        return CUDA_SUCCESS;
}

static CUresult import(int fd, CUmemGenericAllocationHandle *ret) {
        struct fake_physical p = { .id = 0 };
        CUresult r = identify(fd, &p);
        if (r != CUDA_SUCCESS)
                return r;
        int device = 0;
        while (device < fake.n_devices && fake.contexts[device].physical != p.owner)
                device++;
        if (device == fake.n_devices || !fake.has_vmm)
                return CUDA_ERROR_NOT_SUPPORTED;
        p.properties = (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device } };
        p.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        return p.fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : new_physical(&p, ret);
}

CUresult CUDAAPI cuMemImportFromShareableHandle(
        CUmemGenericAllocationHandle *ret, void *os_handle, CUmemAllocationHandleType type) {
        CUresult r = fake_enter(CALL_cuMemImportFromShareableHandle, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (!ret || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        return fake_leave(import((int)(uintptr_t)os_handle, ret));
}

/* --- addresses --- */

static CUresult reserve(size_t n_bytes, size_t alignment, CUdeviceptr *ret) {
        struct reservation *v = calloc(1, sizeof(*v));
        if (!v)
                return CUDA_ERROR_OUT_OF_MEMORY;
        if (alignment < FAKE_GRANULE)
                alignment = FAKE_GRANULE;
        size_t n_more = n_bytes + alignment;
        char *at = mmap(NULL, n_more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) {
                free(v);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        size_t before = -(uintptr_t)at & (alignment - 1);
        if (before)
                munmap(at, before);
        munmap(at + before + n_bytes, n_more - before - n_bytes);
        *v = (struct reservation){ .next = reservations, .base = (uintptr_t)at + before, .n_bytes = n_bytes };
        reservations = v;
        *ret = v->base;
        return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressReserve(
        CUdeviceptr *ret, size_t n_bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags) {
        CUresult r = fake_enter(CALL_cuMemAddressReserve, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (!ret || flags || !n_bytes || !is_granular(n_bytes) || (alignment & (alignment - 1)))
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        return fake_leave(reserve(n_bytes, alignment, ret));
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr pointer, size_t n_bytes) {
        CUresult r = fake_enter(CALL_cuMemAddressFree, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        struct reservation **at = &reservations;
        while (*at && (*at)->base != pointer)
                at = &(*at)->next;
        struct reservation *v = *at;
        if (!v || v->n_bytes != n_bytes || fake_range_overlaps(v->base, n_bytes))
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        *at = v->next;
        munmap((void *)v->base, n_bytes);
        free(v);
        return fake_leave(CUDA_SUCCESS);
}

static bool is_reserved(uintptr_t base, size_t n_bytes) {
        for (const struct reservation *v = reservations; v; v = v->next)
                if (base >= v->base && n_bytes <= v->n_bytes && base - v->base <= v->n_bytes - n_bytes)
                        return true;
        return false;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr pointer, size_t n_bytes, size_t offset,
        CUmemGenericAllocationHandle handle, unsigned long long flags) {
        CUresult r = fake_enter(CALL_cuMemMap, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_physical *p = find_physical(handle);
        if (!p || !p->n_handles || flags || offset || !n_bytes || !is_granular(pointer) ||
                !is_granular(n_bytes) || n_bytes > p->n_bytes || !is_reserved(pointer, n_bytes) ||
                fake_range_overlaps(pointer, n_bytes))
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        struct fake_range range = { .base = pointer,
                .n_bytes = n_bytes,
                .kind = FAKE_MAPPED,
                .owner = p->owner,
                .id = p->id,
                .physical = p };
        if (mmap((void *)(uintptr_t)pointer, n_bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, p->fd, 0) ==
                        MAP_FAILED ||
                !fake_range_add(&range))
                return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
        p->n_mappings++;
        return fake_leave(CUDA_SUCCESS);
}

void fake_physical_unmap(struct fake_range *range) {
        struct fake_physical *p = range->physical;
        /* the addresses stay reserved */
        (void)!mmap((void *)range->base, range->n_bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        fake_range_remove(range);
        p->n_mappings--;
        unref(p);
}

/* Whether whole mappings, without gaps, fill the range exactly. */
static bool is_filled(uintptr_t base, size_t n_bytes) {
        uintptr_t at = base;
        while (at < base + n_bytes) {
                const struct fake_range *range = fake_range_find(at);
                if (!range || range->kind != FAKE_MAPPED || range->base != at)
                        return false;
                at += range->n_bytes;
        }
        return n_bytes && at == base + n_bytes;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr pointer, size_t n_bytes) {
        CUresult r = fake_enter(CALL_cuMemUnmap, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (!is_filled(pointer, n_bytes))
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        for (struct fake_range *range; (range = fake_range_find(pointer)) && n_bytes;) {
                size_t n = range->n_bytes;
                fake_physical_unmap(range);
                pointer += n;
                n_bytes -= n;
        }
        return fake_leave(CUDA_SUCCESS);
}

/* --- access --- */

static CUresult set_access(struct fake_range *range, const CUmemAccessDesc *desc) {
        int physical = fake_physical(desc->location.id);
        if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
                return CUDA_ERROR_NOT_SUPPORTED;
        if (physical < 0)
                return CUDA_ERROR_INVALID_DEVICE;
        if (desc->flags && physical != range->owner && !(fake.reach[physical] & (1u << range->owner)))
                return CUDA_ERROR_INVALID_DEVICE;
        range->readers &= ~(1u << physical);
        range->writers &= ~(1u << physical);
        if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READ || desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                range->readers |= 1u << physical;
        if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                range->writers |= 1u << physical;
        int protection = range->writers ? PROT_READ | PROT_WRITE : range->readers ? PROT_READ : PROT_NONE;
        return mprotect((void *)range->base, range->n_bytes, protection) < 0 ? CUDA_ERROR_OPERATING_SYSTEM
                                                                             : CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemSetAccess(
        CUdeviceptr pointer, size_t n_bytes, const CUmemAccessDesc *desc, size_t count) {
        CUresult r = fake_enter(CALL_cuMemSetAccess, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (!desc || !count || !is_filled(pointer, n_bytes))
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        for (uintptr_t at = pointer; at < pointer + n_bytes && r == CUDA_SUCCESS;) {
                struct fake_range *range = fake_range_find(at);
                for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
                        r = set_access(range, &desc[i]);
                at += range->n_bytes;
        }
        return fake_leave(r);
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long *ret, const CUmemLocation *location, CUdeviceptr pointer) {
        CUresult r = fake_enter(CALL_cuMemGetAccess, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_range *range = fake_range_find(pointer);
        if (!ret || !location || !range || range->kind != FAKE_MAPPED)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        int physical = fake_physical(location->id);
        if (physical < 0)
                return fake_leave(CUDA_ERROR_INVALID_DEVICE);
        *ret = (range->writers >> physical) & 1   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
               : (range->readers >> physical) & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                  : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return fake_leave(CUDA_SUCCESS);
}

void fake_vmm_end(void) {
        for (size_t i = 0; fake_range_at(i);) {
                struct fake_range *range = fake_range_at(i);
                if (range->kind == FAKE_MAPPED)
                        fake_physical_unmap(range);
                else
                        i++;
        }
        struct fake_handle *h, *next;
        HASH_ITER (hh, fake.handles, h, next) {
                if (h->kind != FAKE_PHYSICAL)
                        continue;
                ((struct fake_physical *)h)->n_handles = 0;
                unref((struct fake_physical *)h);
        }
        while (reservations) {
                struct reservation *v = reservations;
                reservations = v->next;
                munmap((void *)v->base, v->n_bytes);
                free(v);
        }
}
