/* The devices: who they are, a context on each, our kernels in it, and who reaches whose memory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backends/cuda/cuda-private.h"
#include "backends/cuda/events.h"
#include "backends/cuda/kernels-image.h"
#include "base/log.h"
#include "base/text.h"

/* Beyond these none are kept. */
#define MAX_EVENTS 256

void cuda_device_turn_off(struct cuda *c, struct cuda_device *d, const char *why) {
        struct gpu_device *report = &c->base.devices[d->index];
        if (report->why[0])
                return;
        snprintf(report->why, sizeof(report->why), "%s", why);
        d->reach = 0;
        for (uint32_t i = 0; i < c->n_devices; i++)
                c->devices[i].reach &= ~(UINT64_C(1) << d->index);
        log_warning("GPU:%u is off: %s", d->index, why);
}

/* --- who it is --- */

static int attribute(struct cuda *c, const struct cuda_device *d, CUdevice_attribute what) {
        int value = 0;
        return c->driver.cuDeviceGetAttribute(&value, what, d->handle) == CUDA_SUCCESS ? value : 0;
}

static void print_uuid(const CUuuid *uuid, char text[GPU_UUID_BYTES]) {
        static const char dashes[] = "    - - - -"; /* before which byte */
        size_t used = (size_t)snprintf(text, GPU_UUID_BYTES, "GPU-");
        for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
                if (i < sizeof(dashes) && dashes[i] == '-')
                        text[used++] = '-';
                used += (size_t)snprintf(
                        text + used, GPU_UUID_BYTES - used, "%02x", (unsigned char)uuid->bytes[i]);
        }
}

static int identify(struct cuda *c, struct cuda_device *d) {
        struct gpu_device *report = &c->base.devices[d->index];
        CUuuid uuid = { .bytes = { 0 } };
        size_t n_bytes = 0;
        char bus[20] = "?";
        int r = cuda_check(c, c->driver.cuDeviceGet(&d->handle, (int)d->index), "cuDeviceGet");
        if (r == 0)
                r = cuda_check(c, c->driver.cuDeviceGetUuid(&uuid, d->handle), "cuDeviceGetUuid");
        if (r == 0)
                r = cuda_check(c, c->driver.cuDeviceGetName(report->name, sizeof(report->name), d->handle),
                        "cuDeviceGetName");
        if (r == 0)
                r = cuda_check(c, c->driver.cuDeviceTotalMem(&n_bytes, d->handle), "cuDeviceTotalMem");
        if (r < 0)
                return r;
        cuda_note(c, c->driver.cuDeviceGetPCIBusId(bus, sizeof(bus), d->handle), "cuDeviceGetPCIBusId");
        print_uuid(&uuid, report->uuid);
        report->n_bytes = n_bytes;
        d->n_multiprocessors = (uint32_t)attribute(c, d, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        snprintf(report->describe, sizeof(report->describe),
                "compute capability %d.%d, %llu MiB, PCI %s, driver of CUDA %d.%d",
                attribute(c, d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                attribute(c, d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
                (unsigned long long)(n_bytes >> 20), bus, c->driver.version / 1000,
                c->driver.version % 1000 / 10);
        return 0;
}

/* --- what it can do --- */

static void find_granularity(struct cuda *c, struct cuda_device *d) {
        size_t n_bytes = 0;
        const CUmemAllocationProp properties = {
                .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)d->index },
        };
        if (!attribute(c, d, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
                !attribute(c, d, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
                return;
        if (cuda_check(c,
                    c->driver.cuMemGetAllocationGranularity(
                            &n_bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                    "cuMemGetAllocationGranularity") == 0)
                d->granularity = n_bytes;
}

static void find_abilities(struct cuda *c, struct cuda_device *d) {
        struct gpu_device *report = &c->base.devices[d->index];
        char name[DEVICE_NAME_BYTES];
        device_name(DEVICE_GPU + d->index, name);
        find_granularity(c, d);
        report->granularity = d->granularity;
        report->paths = 1u << PATH_MEMFD;
        if (d->granularity)
                report->paths |= 1u << PATH_VMM_MADE | 1u << PATH_VMM_FD;
        else
                cuda_add_fallback(c, name, "no memory with descriptors (virtual memory management)");
        if (c->options.takes_ipc)
                report->paths |= 1u << PATH_CUDA_IPC;
        d->has_read_only = attribute(c, d, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED) != 0;
        report->has_timeline = attribute(c, d, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) != 0;
        report->has_events = c->options.takes_ipc && cuda_events_can_be_made(c, d);
        if (!report->has_timeline)
                cuda_add_fallback(c, name, "its streams cannot wait for values in memory; %s",
                        report->has_events ? "clients order them by events"
                                           : "clients wait for them by the host");
}

static int load_kernels(struct cuda *c, struct cuda_device *d) {
        int r = cuda_check(c, c->driver.cuModuleLoadData(&d->module, tuttid_cuda_fatbin), "cuModuleLoadData");
        for (enum cuda_kernel k = CUDA_KERNEL_NONE + 1; r == 0 && k < N_CUDA_KERNELS; k++)
                r = cuda_check(c,
                        c->driver.cuModuleGetFunction(&d->functions[k], d->module, cuda_kernel_name(k)),
                        cuda_kernel_name(k));
        return r;
}

static int open_device(struct cuda *c, struct cuda_device *d) {
        int r = cuda_check(
                c, c->driver.cuDevicePrimaryCtxRetain(&d->context, d->handle), "cuDevicePrimaryCtxRetain");
        if (r == 0)
                r = cuda_enter(c, d);
        if (r == 0)
                r = load_kernels(c, d);
        if (r == 0)
                r = cuda_check(
                        c, c->driver.cuStreamCreate(&d->own, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        return r;
}

/* --- who reaches whom --- */

void cuda_print_way(const struct cuda_device *a, const struct cuda_device *b, char text[WAY_BYTES]) {
        bool is_first = a->index < b->index;
        snprintf(text, WAY_BYTES, "GPU:%u-GPU:%u", is_first ? a->index : b->index,
                is_first ? b->index : a->index);
}

/* The driver does not say what a way is made of. But atomic operations are done over NVLink by the other
 * device itself, and over PCIe not (CUDA programming guide, peer access): which is what it does say. */
static void find_link(struct cuda *c, struct cuda_device *from, const struct cuda_device *to) {
        int has_atomics = 0;
        CUresult r = c->driver.cuDeviceGetP2PAttribute(
                &has_atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from->handle, to->handle);
        if (r != CUDA_SUCCESS)
                cuda_note(c, r, "cuDeviceGetP2PAttribute");
        else if (has_atomics)
                from->links |= UINT64_C(1) << to->index;
}

static void enable_peer(struct cuda *c, struct cuda_device *from, struct cuda_device *to) {
        char what[WAY_BYTES];
        int can = 0;
        cuda_print_way(from, to, what);
        CUresult r = c->driver.cuDeviceCanAccessPeer(&can, from->handle, to->handle);
        if (r == CUDA_SUCCESS && !can) {
                cuda_add_fallback(c, what, "no peer access; what crosses goes over host memory");
                return;
        }
        if (r == CUDA_SUCCESS && cuda_enter(c, from) == 0)
                r = c->driver.cuCtxEnablePeerAccess(to->context, 0);
        if (r != CUDA_SUCCESS && r != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
                cuda_add_fallback(c, what, "no peer access: %s", driver_error(&c->driver, r));
                return;
        }
        from->reach |= UINT64_C(1) << to->index;
        find_link(c, from, to);
}

static bool is_on(const struct cuda *c, uint32_t i) {
        return c->base.devices[i].why[0] == '\0';
}

static void enable_peers(struct cuda *c) {
        for (uint32_t i = 0; i < c->n_devices; i++)
                for (uint32_t j = 0; j < c->n_devices; j++)
                        if (i != j && is_on(c, i) && is_on(c, j))
                                enable_peer(c, &c->devices[i], &c->devices[j]);
}

void cuda_devices_report_ways(struct cuda *c) {
        for (uint32_t i = 0; i < c->n_devices; i++) {
                struct gpu_device *report = &c->base.devices[i];
                uint64_t reach = c->devices[i].reach, links = c->devices[i].links & reach;
                struct text t;
                report->peers[0] = (uint32_t)reach;
                report->peers[1] = (uint32_t)(reach >> 32);
                report->nvlinks[0] = (uint32_t)links;
                report->nvlinks[1] = (uint32_t)(links >> 32);
                text_init(&t, report->ways, sizeof(report->ways));
                for (uint32_t k = 0; k < c->n_devices; k++)
                        if (links >> k & 1)
                                text_add(&t, "%s%u", t.used ? "," : "NVLink to ", k);
        }
}

int cuda_devices_open(struct cuda *c, char *why, size_t why_bytes) {
        int n = 0, r = cuda_check(c, c->driver.cuDeviceGetCount(&n), "cuDeviceGetCount");
        if (r < 0 || n == 0) {
                snprintf(why, why_bytes, "the driver has no device");
                return r < 0 ? r : -ENODEV;
        }
        c->n_devices = n > MAX_GPU_DEVICES ? MAX_GPU_DEVICES : (uint32_t)n;
        c->base.n_devices = c->n_devices;
        c->devices = calloc(c->n_devices, sizeof(*c->devices));
        if (!c->devices) {
                c->n_devices = 0;
                snprintf(why, why_bytes, "tuttid-gpu is short of memory");
                return -ENOMEM;
        }
        for (uint32_t i = 0; i < c->n_devices; i++) {
                struct cuda_device *d = &c->devices[i];
                d->index = i;
                list_init(&d->events);
                r = identify(c, d);
                if (r == 0)
                        r = open_device(c, d);
                if (r == 0) {
                        d->reach = UINT64_C(1) << i;
                        find_abilities(c, d);
                } else
                        cuda_device_turn_off(c, d, "it cannot be opened; the log has the driver's words");
        }
        enable_peers(c);
        if (!c->base.is_broken)
                return 0;
        snprintf(why, why_bytes, "%s", c->base.broken_why);
        return -EIO;
}

/* --- events --- */

struct free_event {
        struct list link;
        CUevent event;
};

CUevent cuda_event_take(struct cuda *c, struct cuda_device *d) {
        CUevent event = NULL;
        struct list *first = list_take_first(&d->events);
        if (first) {
                struct free_event *f = list_entry(first, struct free_event, link);
                event = f->event;
                free(f);
                d->n_events--;
                return event;
        }
        if (cuda_enter(c, d) < 0 ||
                cuda_check(c, c->driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate") < 0)
                return NULL;
        return event;
}

void cuda_event_give(struct cuda *c, struct cuda_device *d, CUevent event) {
        struct free_event *f = d->n_events < MAX_EVENTS ? malloc(sizeof(*f)) : NULL;
        if (f) {
                f->event = event;
                list_append(&d->events, &f->link);
                d->n_events++;
        } else if (cuda_enter(c, d) == 0)
                cuda_note(c, c->driver.cuEventDestroy(event), "cuEventDestroy");
}

/* --- launches --- */

int cuda_launch(struct cuda *c, struct cuda_device *d, CUstream stream, struct cuda_launch *launch) {
        void *parameters[] = { &launch->args };
        int r = cuda_enter(c, d);
        if (r < 0)
                return r;
        return cuda_check(c,
                c->driver.cuLaunchKernel(d->functions[launch->kernel], launch->grid[0], launch->grid[1],
                        launch->grid[2], launch->block[0], launch->block[1], launch->block[2], 0, stream,
                        parameters, NULL),
                "cuLaunchKernel");
}

/* --- the end --- */

static void close_events(struct cuda *c, struct cuda_device *d) {
        list_for_each_safe (it, tmp, &d->events) {
                struct free_event *f = list_entry(it, struct free_event, link);
                cuda_note(c, c->driver.cuEventDestroy(f->event), "cuEventDestroy");
                list_unlink(&f->link);
                free(f);
        }
        d->n_events = 0;
}

static void close_device(struct cuda *c, struct cuda_device *d) {
        if (!d->context)
                return;
        (void)!cuda_enter(c, d);
        close_events(c, d);
        if (d->own)
                cuda_note(c, c->driver.cuStreamDestroy(d->own), "cuStreamDestroy");
        if (d->module)
                cuda_note(c, c->driver.cuModuleUnload(d->module), "cuModuleUnload");
        cuda_note(c, c->driver.cuDevicePrimaryCtxRelease(d->handle), "cuDevicePrimaryCtxRelease");
}

void cuda_devices_close(struct cuda *c) {
        for (uint32_t i = 0; i < c->n_devices; i++)
                close_device(c, &c->devices[i]);
        free(c->devices);
        c->devices = NULL;
}
