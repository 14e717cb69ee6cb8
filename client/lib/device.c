/* How a buffer of device memory is registered: made by tuttid; exported by the caller, with a descriptor or a
 * legacy handle; or stood for by host memory. */
#include "lib/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"
#include "lib/arguments.h"
#include "lib/order.h"
#include "lib/patience.h"

/* A buffer on its way. */
struct arrival {
        struct tutti *t;
        struct driver_memory memory;
        uint64_t pointer, n_bytes;
        enum access access;
        struct device_memory *device;
        struct error *err;
};

void device_memory_free(struct device_memory *m, void *stage) {
        if (!m)
                return;
        if (m->mapped_bytes)
                driver_unmap(m->place.context, m->pointer, m->mapped_bytes);
        if (m->is_pinned)
                driver_unpin(m->place.context, stage);
        free(m);
}

enum status device_check(const struct tutti_buffer *b, struct error *err) {
        const struct device_memory *m = device_of(b);
        if (!m || !m->id || driver_memory_id(m->pointer) == m->id)
                return STATUS_OK;
        return refuse(err, STATUS_INVALID, FIELD_BUFFER,
                "the device memory at %#llx was freed after it had been registered; free the buffer first",
                (unsigned long long)m->pointer);
}

/* --- the ways to tuttid --- */

static void device_fill(struct arrival *a, enum tutti_cuda_path path) {
        *a->device = (struct device_memory){
                .place = a->memory.place, .pointer = a->pointer, .id = a->memory.id, .path = path
        };
}

static struct msg_register register_of(const struct arrival *a, enum buffer_kind kind) {
        return (struct msg_register){ .size_bytes = a->n_bytes,
                .access = a->access,
                .kind = kind,
                .device = a->memory.place.uuid,
                .handle_offset_bytes = a->pointer - a->memory.base,
                .stands_for = "",
                .why = "" };
}

static enum status arrive_by_descriptor(struct arrival *a, struct region **ret) {
        CLEANUP_FD int fd = -1;
        enum status status = driver_export(a->memory.base, &fd, a->err);
        if (status != STATUS_OK)
                return status;
        const struct region_ask ask = { .reg = register_of(a, BUFFER_KIND_CUDA_VMM), .fd = fd };
        device_fill(a, TUTTI_CUDA_VMM_FD);
        return region_register(a->t, &ask, ret, a->err);
}

static enum status arrive_by_handle(struct arrival *a, struct region **ret) {
        uint8_t handle[DRIVER_HANDLE_BYTES];
        enum status status = driver_legacy_handle(&a->memory, handle, a->err);
        if (status != STATUS_OK)
                return status;
        struct region_ask ask = { .reg = register_of(a, BUFFER_KIND_CUDA_IPC), .fd = -1 };
        ask.reg.handle = handle;
        ask.reg.n_handle_bytes = sizeof(handle);
        device_fill(a, TUTTI_CUDA_IPC);
        return region_register(a->t, &ask, ret, a->err);
}

/* Where pinning is refused (a memlock limit), the copies are slower and as good. */
static void pin_stage(struct device_memory *m, const struct region *r) {
        uint64_t ignored;
        struct error err;
        char why[sizeof(m->why)];
        if (driver_pin(m->place.context, r->data, r->size_bytes, &ignored, &err) == STATUS_OK) {
                m->is_pinned = true;
                return;
        }
        snprintf(why, sizeof(why), "%.60s%spinned=no (%.80s)", m->why, m->why[0] ? "; " : "", err.detail);
        memcpy(m->why, why, sizeof(why));
}

static enum status arrive_staged(struct arrival *a, const char *why, struct region **ret) {
        const struct region_stage stage = {
                .n_bytes = a->n_bytes, .access = a->access, .stands_for = a->memory.place.uuid, .why = why
        };
        device_fill(a, TUTTI_CUDA_STAGED);
        text_copy(a->device->why, sizeof(a->device->why), why);
        enum status status = region_make_stage(a->t, &stage, ret, a->err);
        if (status == STATUS_OK)
                pin_stage(a->device, *ret);
        return status;
}

/* Made and mapped here, whole. */
static enum status arrive_made(struct arrival *a, struct region **ret) {
        struct device_made made = { .fd = -1 };
        struct region_ask ask = { .reg = register_of(a, BUFFER_KIND_CUDA_VMM), .fd = -1, .made = &made };
        enum status status = region_register(a->t, &ask, ret, a->err);
        CLEANUP_FD int fd = made.fd;
        if (status != STATUS_OK)
                return status;
        if (fd < 0)
                status = refuse_no_descriptor(a->err, "device memory that tuttid made");
        else if (made.size_bytes < a->n_bytes)
                status = refuse(a->err, STATUS_INTERNAL, FIELD_SIZE, "tuttid made less than was asked for");
        else
                status = driver_map(&a->memory.place, fd, made.size_bytes, &a->pointer, a->err);
        if (status != STATUS_OK) {
                region_bury(a->t, *ret);
                return status;
        }
        device_fill(a, TUTTI_CUDA_VMM_MADE);
        a->device->mapped_bytes = made.size_bytes;
        return STATUS_OK;
}

/* --- which one --- */

static enum status refuse_export(const struct arrival *a) {
        bool is_split = a->memory.is_exportable;
        return refuse(a->err, STATUS_UNSUPPORTED, FIELD_BUFFER,
                "this device memory cannot be exported: it %s. Set the allocator otherwise (PyTorch: "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False, backend:native; TensorFlow: "
                "TF_GPU_ALLOCATOR unset; JAX: XLA_PYTHON_CLIENT_ALLOCATOR=platform), take it from "
                "tutti_cuda_buffer_alloc, or ask for TUTTI_CUDA_STAGED, which copies",
                is_split ? "spans several allocations of cuMemCreate"
                         : "is of a pool or of cuMemCreate without CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR");
}

static bool fits_one_allocation(const struct arrival *a) {
        return a->pointer >= a->memory.base && a->n_bytes <= a->memory.n_bytes &&
               a->pointer - a->memory.base <= a->memory.n_bytes - a->n_bytes;
}

/* What the memory itself allows. */
static enum status arrive_directly(struct arrival *a, enum tutti_cuda_path path, struct region **ret) {
        if (a->memory.is_legacy && (path == TUTTI_CUDA_AUTO || path == TUTTI_CUDA_IPC))
                return arrive_by_handle(a, ret);
        if (a->memory.is_exportable && fits_one_allocation(a) && path != TUTTI_CUDA_IPC)
                return arrive_by_descriptor(a, ret);
        return refuse_export(a);
}

/* tuttid or the driver refuses what the memory would allow: that is told, and the copies do. */
static enum status try_to_arrive(struct arrival *a, enum tutti_cuda_path path, struct region **ret) {
        if (path == TUTTI_CUDA_VMM_MADE)
                return arrive_made(a, ret);
        if (path == TUTTI_CUDA_STAGED)
                return arrive_staged(a, "asked for", ret);
        bool is_exportable = a->memory.is_legacy || (a->memory.is_exportable && fits_one_allocation(a));
        enum status status = arrive_directly(a, path, ret);
        if (path != TUTTI_CUDA_AUTO || !is_exportable || status != STATUS_UNSUPPORTED)
                return status;
        char why[160];
        text_copy(why, sizeof(why), a->err->detail);
        return arrive_staged(a, why, ret);
}

static enum status arrive(struct arrival *a, enum tutti_cuda_path path, struct region **ret) {
        struct patience patience = { 0 };
        enum status status;
        do
                status = try_to_arrive(a, path, ret);
        while (status == STATUS_BUSY && patience_lasts(&patience));
        return status;
}

/* --- the buffer --- */

static enum status no_memory(struct error *err) {
        return refuse(
                err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "a few hundred bytes for a handle are needed");
}

/* The region is the buffer's alone. On failure the caller still has both. */
static enum tutti_status finish(
        struct arrival *a, struct tutti_buffer *b, struct region *r, struct tutti_buffer **ret) {
        r->device = a->device;
        buffer_take_region(b, r);
        if (device_is_direct(r->device))
                order_open(a->t, &r->device->place);
        regions_reap(a->t); /* of a path that was refused */
        *ret = b;
        return TUTTI_OK;
}

static enum status check_pointer(struct arrival *a, void *pointer) {
        a->pointer = (uintptr_t)pointer;
        enum status status = driver_look(a->pointer, &a->memory, a->err);
        if (status != STATUS_OK || !a->memory.is_legacy || fits_one_allocation(a))
                return status;
        return refuse(a->err, STATUS_INVALID, FIELD_SIZE,
                "%llu bytes from %#llx on reach beyond the allocation, which has %llu from %#llx on",
                (unsigned long long)a->n_bytes, (unsigned long long)a->pointer,
                (unsigned long long)a->memory.n_bytes, (unsigned long long)a->memory.base);
}

static enum status take_args(
        const struct tutti_cuda_args *given, struct tutti_cuda_args *ret, struct error *err) {
        tutti_cuda_args_init(ret);
        if (given && !arguments_copy(&ARGUMENTS(ret), given, given->struct_size))
                return refuse(err, STATUS_INVALID, FIELD_OPTIONS,
                        "the arguments have struct_size %zu; begin them with TUTTI_CUDA_ARGS or "
                        "tutti_cuda_args_init",
                        given->struct_size);
        if (!tutti_cuda_path_name(ret->path) || ret->path == TUTTI_CUDA_VMM_MADE)
                return refuse(err, STATUS_INVALID, FIELD_OPTIONS,
                        "no such path for memory of the caller; memory that tuttid makes comes from "
                        "tutti_cuda_buffer_alloc");
        return STATUS_OK;
}

static enum status make_handles(struct arrival *a, struct tutti_buffer **ret) {
        struct tutti_buffer *b = buffer_new(a->t, a->n_bytes);
        a->device = b ? calloc(1, sizeof(*a->device)) : NULL;
        if (a->device) {
                *ret = b;
                return STATUS_OK;
        }
        free(b);
        return no_memory(a->err);
}

enum tutti_status tutti_cuda_buffer_register(struct tutti *t, void *pointer, size_t n_bytes,
        const struct tutti_cuda_args *given, struct tutti_buffer **ret) {
        struct error err;
        struct arrival a = { .t = t, .n_bytes = n_bytes, .err = &err };
        struct tutti_cuda_args args;
        struct tutti_buffer *b = NULL;
        struct region *r;
        if (!t || !ret || n_bytes == 0 || n_bytes > INT64_MAX / 2)
                return thread_say(STATUS_INVALID, t && ret ? FIELD_SIZE : FIELD_UNSPECIFIED,
                        "tutti_cuda_buffer_register needs a connection, a size from 1 to 2^62 and a place "
                        "for "
                        "the buffer");
        enum tutti_status checked = connection_check(t);
        if (checked != TUTTI_OK)
                return checked;
        enum status status = take_args(given, &args, &err);
        if (status == STATUS_OK)
                status = access_of(args.access, &a.access, &err);
        if (status == STATUS_OK)
                status = check_pointer(&a, pointer);
        if (status == STATUS_OK)
                status = make_handles(&a, &b);
        if (status != STATUS_OK)
                return thread_fail(&err);
        status = arrive(&a, args.path, &r);
        if (status == STATUS_OK)
                return finish(&a, b, r, ret);
        free(b);
        free(a.device);
        regions_reap(t);
        return thread_fail(&err);
}

enum tutti_status tutti_cuda_buffer_alloc(struct tutti *t, size_t n_bytes, struct tutti_buffer **ret) {
        struct error err;
        struct arrival a = { .t = t, .n_bytes = n_bytes, .access = ACCESS_INOUT, .err = &err };
        struct tutti_buffer *b = NULL;
        struct region *r;
        if (!t || !ret || n_bytes == 0 || n_bytes > INT64_MAX / 2)
                return thread_say(STATUS_INVALID, t && ret ? FIELD_SIZE : FIELD_UNSPECIFIED,
                        "tutti_cuda_buffer_alloc needs a connection, a size from 1 to 2^62 and a place for "
                        "the buffer");
        enum tutti_status checked = connection_check(t);
        if (checked != TUTTI_OK)
                return checked;
        enum status status = driver_here(&a.memory.place, &err);
        if (status == STATUS_OK)
                status = make_handles(&a, &b);
        if (status != STATUS_OK)
                return thread_fail(&err);
        status = arrive(&a, TUTTI_CUDA_VMM_MADE, &r);
        if (status == STATUS_OK)
                return finish(&a, b, r, ret);
        free(b);
        free(a.device);
        regions_reap(t);
        return thread_fail(&err);
}

/* --- looking --- */

void tutti_cuda_args_init(struct tutti_cuda_args *args) {
        *args = TUTTI_CUDA_ARGS(.access = TUTTI_INOUT);
}

const char *tutti_cuda_path_name(enum tutti_cuda_path path) {
        switch (path) {
        case TUTTI_CUDA_AUTO: return "auto";
        case TUTTI_CUDA_VMM_MADE: return "vmm-made";
        case TUTTI_CUDA_VMM_FD: return "vmm-fd";
        case TUTTI_CUDA_IPC: return "cuda-ipc";
        case TUTTI_CUDA_STAGED: return "host-copy";
        }
        return NULL;
}

const char *tutti_cuda_order_name(enum tutti_cuda_order order) {
        switch (order) {
        case TUTTI_CUDA_HOST: return "host";
        case TUTTI_CUDA_TIMELINE: return "timeline";
        case TUTTI_CUDA_EVENTS: return "events";
        }
        return NULL;
}

enum tutti_cuda_path tutti_cuda_buffer_path(const struct tutti_buffer *b, const char **ret_why) {
        const struct device_memory *m = b ? device_of(b) : NULL;
        if (ret_why)
                *ret_why = m ? m->why : "";
        return m ? m->path : TUTTI_CUDA_AUTO;
}
