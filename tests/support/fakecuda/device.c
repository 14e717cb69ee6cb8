/* Devices as the environment describes them, and their primary contexts. */
#include "fake.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_MULTIPROCESSORS = 4, PRIORITY_LEAST = 0, PRIORITY_GREATEST = -5 };

/* --- what the environment says --- */

/* "0-1,2-3": sets both directions. "all" and "none" as well. */
static void read_pairs(const char *text, uint32_t *matrix) {
        uint32_t all = (1u << fake.n_physical) - 1;
        for (int i = 0; i < fake.n_physical; i++)
                matrix[i] = !strcmp(text, "all") ? all & ~(1u << i) : 0;
        while (isdigit((unsigned char)*text)) {
                char *end;
                unsigned long a = strtoul(text, &end, 10), b = *end == '-' ? strtoul(end + 1, &end, 10) : a;
                if (a < FAKE_MAX_DEVICES && b < FAKE_MAX_DEVICES && a != b) {
                        matrix[a] |= 1u << b;
                        matrix[b] |= 1u << a;
                }
                text = *end == ',' ? end + 1 : end;
        }
}

static CUuuid uuid_of(int physical) {
        CUuuid u = { { 'f', 'a', 'k', 'e', 0, 0, 0x40, 0, (char)0x80, 0 } };
        u.bytes[15] = (char)physical;
        return u;
}

/* As nvidia-smi writes it. */
static void print_uuid(int physical, char text[48]) {
        CUuuid u = uuid_of(physical);
        char *at = text + sprintf(text, "GPU-");
        for (int i = 0; i < 16; i++)
                at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                        (unsigned char)u.bytes[i]);
}

/* A device named by its index or by the beginning of its UUID; -1 for none. */
static int find_named(const char *name, size_t n_chars) {
        char text[48], *end;
        long index = strtol(name, &end, 10);
        if (end == name + n_chars && n_chars)
                return index >= 0 && index < fake.n_physical ? (int)index : -1;
        for (int i = 0; i < fake.n_physical; i++) {
                print_uuid(i, text);
                if (n_chars > 4 && !strncmp(text, name, n_chars))
                        return i;
        }
        return -1;
}

/* CUDA_VISIBLE_DEVICES names them in the order in which the process numbers them; the first that is no
 * device, or a device twice, ends the list. */
static void read_visible(const char *text) {
        uint32_t seen = 0;
        fake.n_devices = 0;
        while (*text) {
                size_t n = strcspn(text, ",");
                int physical = find_named(text, n);
                if (physical < 0 || (seen & (1u << physical)))
                        break;
                seen |= 1u << physical;
                fake.contexts[fake.n_devices++].physical = physical;
                text += n + (text[n] == ',');
        }
}

static const char *setting(const char *variable, const char *otherwise) {
        const char *text = getenv(variable);
        return text ? text : otherwise;
}

CUresult fake_devices_init(void) {
        int n = atoi(setting("FAKECUDA_DEVICES", "1"));
        fake.n_physical = n < 0 ? 0 : n > FAKE_MAX_DEVICES ? FAKE_MAX_DEVICES : n;
        fake.total_bytes = strtoull(setting("FAKECUDA_MEMORY", "17179869184"), NULL, 10);
        fake.has_ipc = strcmp(setting("FAKECUDA_IPC", ""), "refused") != 0;
        fake.has_memops = strcmp(setting("FAKECUDA_MEMOPS", ""), "refused") != 0;
        fake.has_vmm = strcmp(setting("FAKECUDA_VMM", ""), "refused") != 0;
        read_pairs(setting("FAKECUDA_PEERS", "all"), fake.reach);
        read_pairs(setting("FAKECUDA_LINKS", "none"), fake.links);
        read_pairs(setting("FAKECUDA_CORRUPT_PEER", ""), fake.corrupt);
        read_pairs(setting("FAKECUDA_DEAD_PEER", ""), fake.dead);
        fake.n_devices = fake.n_physical;
        for (int i = 0; i < fake.n_physical; i++)
                fake.contexts[i] = (struct fake_context){ .device = i, .physical = i, .heap_fd = -1 };
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        if (visible)
                read_visible(visible);
        return fake.n_devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

/* --- properties --- */

int fake_physical(int device) {
        return device >= 0 && device < fake.n_devices ? fake.contexts[device].physical : -1;
}

CUresult CUDAAPI cuDeviceGetCount(int *ret) {
        CUresult r = fake_enter(CALL_cuDeviceGetCount, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (!ret)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        *ret = fake.n_devices;
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGet(CUdevice *ret, int ordinal) {
        CUresult r = fake_enter(CALL_cuDeviceGet, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (!ret)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        if (fake_physical(ordinal) < 0)
                return fake_leave(CUDA_ERROR_INVALID_DEVICE);
        *ret = ordinal;
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetName(char *name, int n_bytes, CUdevice device) {
        CUresult r = fake_enter(CALL_cuDeviceGetName, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (fake_physical(device) < 0)
                return fake_leave(CUDA_ERROR_INVALID_DEVICE);
        if (!name || n_bytes <= 0)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        snprintf(name, (size_t)n_bytes, "Fake GPU");
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid *ret, CUdevice device) {
        CUresult r = fake_enter(CALL_cuDeviceGetUuid, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (fake_physical(device) < 0)
                return fake_leave(CUDA_ERROR_INVALID_DEVICE);
        if (!ret)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        *ret = uuid_of(fake_physical(device));
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceTotalMem(size_t *ret, CUdevice device) {
        CUresult r = fake_enter(CALL_cuDeviceTotalMem, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (fake_physical(device) < 0)
                return fake_leave(CUDA_ERROR_INVALID_DEVICE);
        *ret = fake.total_bytes;
        return fake_leave(CUDA_SUCCESS);
}

static const struct {
        CUdevice_attribute attribute;
        int value;
} constants[] = {
        { CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024 },
        { CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024 },
        { CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024 },
        { CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64 },
        { CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647 },
        { CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535 },
        { CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535 },
        { CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32 },
        { CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, N_MULTIPROCESSORS },
        { CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048 },
        { CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10 },
        { CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10 },
        { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9 },
        { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0 },
        { CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1 },
        { CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1 },
        { CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2 },
        { CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1 },
        { CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1 },
        { CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1 },
        { CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1 },
        { CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1 },
        { CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4 << 20 },
        { CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT },
};

static int attribute_of(CUdevice_attribute attribute, int physical) {
        if (attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
                attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
                return fake.has_vmm;
        if (attribute == CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS ||
                attribute == CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR)
                return fake.has_memops;
        if (attribute == CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED)
                return fake.has_ipc;
        if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
                return physical + 1;
        for (size_t i = 0; i < sizeof(constants) / sizeof(*constants); i++)
                if (constants[i].attribute == attribute)
                        return constants[i].value;
        return 0; /* what it does not have */
}

CUresult CUDAAPI cuDeviceGetAttribute(int *ret, CUdevice_attribute attribute, CUdevice device) {
        CUresult r = fake_enter(CALL_cuDeviceGetAttribute, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (fake_physical(device) < 0)
                return fake_leave(CUDA_ERROR_INVALID_DEVICE);
        if (!ret || (int)attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        *ret = attribute_of(attribute, fake_physical(device));
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char *text, int n_bytes, CUdevice device) {
        CUresult r = fake_enter(CALL_cuDeviceGetPCIBusId, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (fake_physical(device) < 0)
                return fake_leave(CUDA_ERROR_INVALID_DEVICE);
        if (!text || n_bytes < 13)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        snprintf(text, (size_t)n_bytes, "0000:%02X:00.0", (unsigned int)fake_physical(device) + 1);
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice *ret, const char *text) {
        CUresult r = fake_enter(CALL_cuDeviceGetByPCIBusId, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        unsigned int domain, bus;
        if (!ret || !text || sscanf(text, "%x:%x:", &domain, &bus) != 2)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        for (int i = 0; i < fake.n_devices; i++)
                if (domain == 0 && (int)bus == fake.contexts[i].physical + 1) {
                        *ret = i;
                        return fake_leave(CUDA_SUCCESS);
                }
        return fake_leave(CUDA_ERROR_INVALID_DEVICE);
}

/* --- peers --- */

static bool reaches(CUdevice device, CUdevice peer) {
        return device != peer && (fake.reach[fake_physical(device)] & (1u << fake_physical(peer)));
}

/* Over links of their own, where the other device does atomic operations itself. */
static bool is_linked(CUdevice device, CUdevice peer) {
        return reaches(device, peer) && (fake.links[fake_physical(device)] & (1u << fake_physical(peer)));
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int *ret, CUdevice device, CUdevice peer) {
        CUresult r = fake_enter(CALL_cuDeviceCanAccessPeer, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (fake_physical(device) < 0 || fake_physical(peer) < 0)
                return fake_leave(CUDA_ERROR_INVALID_DEVICE);
        *ret = reaches(device, peer);
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetP2PAttribute(
        int *ret, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer) {
        CUresult r = fake_enter(CALL_cuDeviceGetP2PAttribute, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (fake_physical(device) < 0 || fake_physical(peer) < 0 || device == peer)
                return fake_leave(CUDA_ERROR_INVALID_DEVICE);
        if (!ret)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        *ret = reaches(device, peer);
        if (attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)
                *ret = is_linked(device, peer);
        else if (attribute == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)
                *ret = !is_linked(device, peer); /* 0 is the best */
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
        CUresult r = fake_enter(CALL_cuCtxEnablePeerAccess, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        struct fake_context *mine = fake_current(), *theirs = fake_context_find(peer);
        if (flags)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        if (!theirs || theirs == mine)
                return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
        if (!reaches(mine->device, theirs->device))
                return fake_leave(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        if (mine->peers & (1u << theirs->physical))
                return fake_leave(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        mine->peers |= 1u << theirs->physical;
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer) {
        CUresult r = fake_enter(CALL_cuCtxDisablePeerAccess, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        const struct fake_context *theirs = fake_context_find(peer);
        if (!theirs)
                return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
        if (!(fake_current()->peers & (1u << theirs->physical)))
                return fake_leave(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        fake_current()->peers &= ~(1u << theirs->physical);
        return fake_leave(CUDA_SUCCESS);
}

/* --- primary contexts --- */

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *ret, CUdevice device) {
        CUresult r = fake_enter(CALL_cuDevicePrimaryCtxRetain, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (fake_physical(device) < 0)
                return fake_leave(CUDA_ERROR_INVALID_DEVICE);
        if (!ret)
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        struct fake_context *c = &fake.contexts[device];
        while (c->is_ending)
                fake_wait(FAKE_UNTIL_CHANGED);
        if (!c->n_users)
                r = fake_streams_begin(c);
        if (r == CUDA_SUCCESS) {
                c->n_users++;
                *ret = fake_context_handle(c);
        }
        return fake_leave(r);
}

void fake_context_end(struct fake_context *context) {
        context->is_ending = true;
        context->n_users = 0;
        fake_streams_end(context);
        fake_events_end(context);
        fake_modules_end(context);
        fake_memory_end(context);
        for (int i = 0; i < fake.n_devices; i++)
                fake.contexts[i].peers &= ~(1u << context->physical);
        context->peers = 0;
        context->is_ending = false;
        pthread_cond_broadcast(&fake.changed);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
        CUresult r = fake_enter(CALL_cuDevicePrimaryCtxRelease, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (fake_physical(device) < 0)
                return fake_leave(CUDA_ERROR_INVALID_DEVICE);
        struct fake_context *c = &fake.contexts[device];
        if (!c->n_users)
                return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
        if (--c->n_users == 0)
                fake_context_end(c);
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *is_active) {
        CUresult r = fake_enter(CALL_cuDevicePrimaryCtxGetState, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        if (fake_physical(device) < 0)
                return fake_leave(CUDA_ERROR_INVALID_DEVICE);
        *flags = 0;
        *is_active = fake.contexts[device].n_users > 0;
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
        CUresult r = fake_enter(CALL_cuDevicePrimaryCtxSetFlags, FAKE_INIT);
        if (r != CUDA_SUCCESS)
                return r;
        return fake_leave(fake_physical(device) < 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *ret) {
        CUresult r = fake_enter(CALL_cuCtxGetDevice, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        *ret = fake_current()->device;
        return fake_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest) {
        CUresult r = fake_enter(CALL_cuCtxGetStreamPriorityRange, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        if (least)
                *least = PRIORITY_LEAST;
        if (greatest)
                *greatest = PRIORITY_GREATEST;
        return fake_leave(CUDA_SUCCESS);
}
