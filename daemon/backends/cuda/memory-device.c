/* Device memory: a client's, by a descriptor or by a legacy handle, or made here for a client.
 *
 * A descriptor's memory is mapped at addresses of ours, for every device that reaches it; the driver refuses
 * to map more than there is, which is the check of its size. A legacy handle names the whole allocation that
 * a buffer lies in, and may be opened once (CUDA driver API, cuIpcOpenMemHandle), so openings are shared. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "backends/cuda/cuda-private.h"
#include "base/fd.h"

/* --- by a descriptor --- */

static enum status lost(struct cuda *c, struct chore *chore, const char *what) {
        return cuda_refuse(chore, c->base.is_broken ? STATUS_DEVICE_LOST : STATUS_INTERNAL, "%s", what);
}

/* What the driver said no to: the client's doing, unless it is short of memory or broken. */
static enum status refused(struct cuda *c, struct chore *chore, CUresult r, const char *call) {
        enum status status = r == CUDA_ERROR_OUT_OF_MEMORY ? STATUS_NO_MEMORY : STATUS_BAD_FD;
        if (cuda_check(c, r, call) == 0)
                return STATUS_OK;
        if (c->base.is_broken)
                status = STATUS_DEVICE_LOST;
        return cuda_refuse(chore, status, "%s: %s", call, driver_error(&c->driver, r));
}

static CUresult set_access(struct cuda *c, struct cuda_memory *m, CUmemAccess_flags flags) {
        CUmemAccessDesc access[MAX_GPU_DEVICES];
        size_t n = 0;
        for (uint32_t i = 0; i < c->n_devices; i++)
                if (c->devices[i].reach & UINT64_C(1) << (m->base.device - DEVICE_GPU))
                        access[n++] = (CUmemAccessDesc){
                                .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)i },
                                .flags = flags,
                        };
        return c->driver.cuMemSetAccess(m->reserved, m->n_reserved_bytes, access, n);
}

/* Not every driver maps device memory for reading alone. */
static CUresult open_access(struct cuda *c, struct cuda_memory *m) {
        if (!m->is_writable) {
                CUresult r = set_access(c, m, CU_MEM_ACCESS_FLAGS_PROT_READ);
                if (r != CUDA_ERROR_NOT_SUPPORTED && r != CUDA_ERROR_INVALID_VALUE)
                        return r;
                cuda_add_fallback(c, "read-only", "the driver maps device memory for writing too");
        }
        return set_access(c, m, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static enum status map(struct cuda *c, struct chore *chore, struct cuda_memory *m) {
        CUresult r = c->driver.cuMemAddressReserve(&m->reserved, m->n_reserved_bytes, 0, 0, 0);
        if (r != CUDA_SUCCESS) {
                m->reserved = 0;
                return refused(c, chore, r, "cuMemAddressReserve");
        }
        r = c->driver.cuMemMap(m->reserved, m->n_reserved_bytes, 0, m->physical, 0);
        if (r == CUDA_ERROR_INVALID_VALUE)
                return cuda_refuse(chore, STATUS_INVALID,
                        "the allocation has less than the %llu bytes from its byte %llu on that are "
                        "registered",
                        (unsigned long long)chore->n_bytes, (unsigned long long)chore->handle_offset_bytes);
        if (r != CUDA_SUCCESS)
                return refused(c, chore, r, "cuMemMap");
        m->is_mapped = true;
        return refused(c, chore, open_access(c, m), "cuMemSetAccess");
}

/* A buffer lies where its descriptor says, whatever device the client named. */
static enum status check_device(struct cuda *c, struct chore *chore, const struct cuda_memory *m) {
        CUmemAllocationProp properties = { .location = { .id = -1 } };
        CUresult r = c->driver.cuMemGetAllocationPropertiesFromHandle(&properties, m->physical);
        enum status status = refused(c, chore, r, "cuMemGetAllocationPropertiesFromHandle");
        if (status == STATUS_OK && properties.location.id != (int)(m->base.device - DEVICE_GPU))
                return cuda_refuse(chore, STATUS_INVALID, "the memory is on GPU:%d, not on GPU:%u",
                        properties.location.id, m->base.device - DEVICE_GPU);
        return status;
}

static bool round_up(struct chore *chore, uint64_t granularity, uint64_t *ret) {
        uint64_t n;
        if (__builtin_add_overflow(chore->handle_offset_bytes, chore->n_bytes, &n) ||
                __builtin_add_overflow(n, granularity - 1, &n))
                return false;
        *ret = n / granularity * granularity;
        return true;
}

static enum status import_descriptor(
        struct cuda *c, struct chore *chore, struct cuda_memory *m, const struct cuda_device *d) {
        if (d->granularity == 0)
                return cuda_refuse(
                        chore, STATUS_UNSUPPORTED, "GPU:%u has no memory with descriptors", d->index);
        if (!round_up(chore, d->granularity, &m->n_reserved_bytes))
                return cuda_refuse(chore, STATUS_INVALID, "offset and size are beyond 64 bits");
        CUresult r = c->driver.cuMemImportFromShareableHandle(
                &m->physical, (void *)(uintptr_t)chore->fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        if (r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_INVALID_HANDLE)
                return cuda_refuse(chore, STATUS_BAD_FD,
                        "not a descriptor of cuMemExportToShareableHandle of this host's driver");
        enum status status = refused(c, chore, r, "cuMemImportFromShareableHandle");
        if (status != STATUS_OK)
                return status;
        m->has_physical = true;
        status = check_device(c, chore, m);
        if (status == STATUS_OK)
                status = map(c, chore, m);
        m->at = m->reserved + chore->handle_offset_bytes;
        return status;
}

/* --- by a legacy handle --- */

static struct ipc_opening *find_opening(struct cuda *c, const struct chore *chore) {
        list_for_each (it, &c->openings) {
                struct ipc_opening *o = list_entry(it, struct ipc_opening, link);
                if (o->device == chore->device && memcmp(o->handle, chore->handle, sizeof(o->handle)) == 0)
                        return o;
        }
        return NULL;
}

static void close_opening(struct cuda *c, struct ipc_opening *o) {
        if (--o->n_users > 0)
                return;
        if (cuda_enter(c, &c->devices[o->device - DEVICE_GPU]) == 0)
                cuda_note(c, c->driver.cuIpcCloseMemHandle(o->base), "cuIpcCloseMemHandle");
        list_unlink(&o->link);
        free(o);
}

static enum status open_handle(struct cuda *c, struct chore *chore, struct ipc_opening *o) {
        CUipcMemHandle handle;
        CUdeviceptr base = 0;
        size_t n_bytes = 0;
        _Static_assert(sizeof(handle) == MEMORY_HANDLE_BYTES, "a handle is passed on whole");
        memcpy(&handle, chore->handle, sizeof(handle));
        CUresult r = c->driver.cuIpcOpenMemHandle(&o->base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        enum status status = refused(c, chore, r, "cuIpcOpenMemHandle");
        if (status != STATUS_OK)
                return status;
        r = c->driver.cuMemGetAddressRange(&base, &n_bytes, o->base);
        status = refused(c, chore, r, "cuMemGetAddressRange");
        if (status != STATUS_OK) {
                cuda_note(c, c->driver.cuIpcCloseMemHandle(o->base), "cuIpcCloseMemHandle");
                return status;
        }
        o->n_bytes = n_bytes - (o->base - base);
        return STATUS_OK;
}

static enum status find_or_open(struct cuda *c, struct chore *chore, struct ipc_opening **ret) {
        struct ipc_opening *o = find_opening(c, chore);
        if (o) {
                o->n_users++;
                *ret = o;
                return STATUS_OK;
        }
        o = calloc(1, sizeof(*o));
        if (!o)
                return cuda_refuse(chore, STATUS_NO_MEMORY, "tuttid-gpu is short of memory");
        enum status status = open_handle(c, chore, o);
        if (status != STATUS_OK) {
                free(o);
                return status;
        }
        o->device = chore->device;
        o->n_users = 1;
        memcpy(o->handle, chore->handle, sizeof(o->handle));
        list_append(&c->openings, &o->link);
        *ret = o;
        return STATUS_OK;
}

static enum status import_handle(struct cuda *c, struct chore *chore, struct cuda_memory *m) {
        if (!c->options.takes_ipc)
                return cuda_refuse(chore, STATUS_UNSUPPORTED,
                        "legacy handles are not taken here, since they are no capabilities (gpu.ipc)");
        enum status status = find_or_open(c, chore, &m->opening);
        if (status != STATUS_OK)
                return status;
        if (chore->handle_offset_bytes > m->opening->n_bytes ||
                chore->n_bytes > m->opening->n_bytes - chore->handle_offset_bytes)
                return cuda_refuse(chore, STATUS_INVALID,
                        "%llu bytes from byte %llu on are beyond the allocation of %llu bytes",
                        (unsigned long long)chore->n_bytes, (unsigned long long)chore->handle_offset_bytes,
                        (unsigned long long)m->opening->n_bytes);
        m->at = m->opening->base + chore->handle_offset_bytes;
        return STATUS_OK;
}

/* --- both --- */

static enum status find_device(struct cuda *c, struct chore *chore, struct cuda_device **ret) {
        *ret = cuda_device_of(c, chore->device);
        if (!*ret)
                return cuda_refuse(chore, STATUS_UNSUPPORTED, "there is no such GPU, or it is off");
        if (cuda_enter(c, *ret) < 0)
                return lost(c, chore, "the driver failed");
        return STATUS_OK;
}

enum status cuda_device_import(struct cuda *c, struct chore *chore, struct cuda_memory *m) {
        struct cuda_device *d;
        enum status status = find_device(c, chore, &d);
        if (status != STATUS_OK || chore->n_bytes == 0)
                return status;
        return chore->path == PATH_CUDA_IPC ? import_handle(c, chore, m) : import_descriptor(c, chore, m, d);
}

/* --- made here --- */

static enum status create(
        struct cuda *c, struct chore *chore, struct cuda_memory *m, const struct cuda_device *d) {
        const CUmemAllocationProp properties = {
                .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)d->index },
        };
        CUresult r = c->driver.cuMemCreate(&m->physical, m->n_reserved_bytes, &properties, 0);
        if (r == CUDA_ERROR_OUT_OF_MEMORY)
                return cuda_refuse(chore, STATUS_NO_MEMORY, "GPU:%u has no %llu bytes left", d->index,
                        (unsigned long long)m->n_reserved_bytes);
        if (cuda_check(c, r, "cuMemCreate") < 0)
                return lost(c, chore, "cuMemCreate failed");
        m->has_physical = true;
        return map(c, chore, m);
}

/* It may hold what another user left there. */
static enum status clear(
        struct cuda *c, struct chore *chore, struct cuda_memory *m, const struct cuda_device *d) {
        CUresult r = c->driver.cuMemsetD8Async(m->reserved, 0, m->n_reserved_bytes, d->own);
        if (r == CUDA_SUCCESS) {
                r = c->driver.cuStreamSynchronize(d->own);
                if (r != CUDA_SUCCESS) /* it goes, and may still be under way */
                        cuda_note(c, c->driver.cuStreamSynchronize(d->own), "cuStreamSynchronize");
        }
        return cuda_check(c, r, "cuMemsetD8Async") < 0 ? lost(c, chore, "clearing it failed") : STATUS_OK;
}

static enum status export(struct cuda *c, struct chore *chore, struct cuda_memory *m) {
        int fd = -1; CUresult r = c->driver.cuMemExportToShareableHandle(
                             &fd, m->physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        if (cuda_check(c, r, "cuMemExportToShareableHandle") < 0) return lost(
                c, chore, "it gets no descriptor");
        chore->fd = fd;
        chore->n_bytes = m->base.n_bytes = m->n_reserved_bytes;
        return STATUS_OK;
}

enum status cuda_device_make(struct cuda *c, struct chore *chore, struct cuda_memory *m) {
        struct cuda_device *d;
        enum status status = find_device(c, chore, &d);
        if (status != STATUS_OK)
                return status;
        chore->handle_offset_bytes = 0;
        if (d->granularity == 0)
                return cuda_refuse(
                        chore, STATUS_UNSUPPORTED, "GPU:%u has no memory with descriptors", d->index);
        if (chore->n_bytes == 0 || !round_up(chore, d->granularity, &m->n_reserved_bytes))
                return cuda_refuse(chore, STATUS_INVALID, "no size that memory can have");
        status = create(c, chore, m, d);
        if (status == STATUS_OK)
                status = clear(c, chore, m, d);
        if (status == STATUS_OK)
                status = export(c, chore, m);
        m->at = m->reserved;
        return status;
}

/* --- the end of it --- */

void cuda_device_memory_close(struct cuda *c, struct cuda_memory *m) {
        if (m->opening)
                close_opening(c, m->opening);
        if (m->is_mapped)
                cuda_note(c, c->driver.cuMemUnmap(m->reserved, m->n_reserved_bytes), "cuMemUnmap");
        if (m->reserved)
                cuda_note(
                        c, c->driver.cuMemAddressFree(m->reserved, m->n_reserved_bytes), "cuMemAddressFree");
        if (m->has_physical)
                cuda_note(c, c->driver.cuMemRelease(m->physical), "cuMemRelease");
}
