#include "card.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GRANULE      ((size_t)2 << 20)
#define WAIT_SECONDS 60

struct gpu_driver gpu;

_Noreturn static void give_up(const char *what, const char *why) {
        fprintf(stderr, "tests/gpu: %s: %s\n", what, why);
        _exit(1);
}

void gpu_must(CUresult r, const char *call) {
        const char *name = NULL;
        if (r == CUDA_SUCCESS)
                return;
        if (!gpu.cuGetErrorName || gpu.cuGetErrorName(r, &name) != CUDA_SUCCESS || !name)
                name = "an error";
        give_up(call, name);
}

static void find_calls(void *library) {
#define GPU_CALL(name) { #name, (void **)&gpu.name },
        static const struct {
                const char *name;
                void **at;
        } calls[] = { GPU_CALLS(GPU_CALL) };
#undef GPU_CALL
        CUresult (*find)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
        CUdriverProcAddressQueryResult ignored;
        *(void **)&find = dlsym(library, "cuGetProcAddress_v2");
        if (!find)
                give_up("libcuda.so.1", "older than CUDA 12");
        for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
                if (find(calls[i].name, calls[i].at, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &ignored) !=
                                CUDA_SUCCESS ||
                        !*calls[i].at)
                        give_up(calls[i].name, "not in this driver");
}

void gpu_begin(void) {
        CUdevice device;
        CUcontext context;
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        if (!library)
                give_up("libcuda.so.1", dlerror());
        find_calls(library);
        GPU(cuInit, 0);
        GPU(cuDeviceGet, &device, 0);
        GPU(cuDevicePrimaryCtxRetain, &context, device);
        GPU(cuCtxSetCurrent, context);
}

CUstream gpu_stream(void) {
        CUstream s;
        GPU(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
        return s;
}

CUdeviceptr gpu_create(size_t n_bytes) {
        const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
        const CUmemAccessDesc access = { .location = prop.location,
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        CUmemGenericAllocationHandle h;
        CUdeviceptr at;
        n_bytes = (n_bytes + GRANULE - 1) / GRANULE * GRANULE;
        GPU(cuMemCreate, &h, n_bytes, &prop, 0);
        GPU(cuMemAddressReserve, &at, n_bytes, 0, 0, 0);
        GPU(cuMemMap, at, n_bytes, 0, h, 0);
        GPU(cuMemSetAccess, at, n_bytes, &access, 1);
        return at;
}

static enum tutti_status take(
        struct tutti *t, enum tutti_cuda_path path, size_t n_bytes, struct tutti_buffer **ret) {
        CUdeviceptr at;
        if (path == TUTTI_CUDA_VMM_MADE)
                return tutti_cuda_buffer_alloc(t, n_bytes, ret);
        if (path == TUTTI_CUDA_VMM_FD)
                at = gpu_create(n_bytes);
        else
                GPU(cuMemAlloc, &at, n_bytes);
        return tutti_cuda_buffer_register(
                t, (void *)(uintptr_t)at, n_bytes, &TUTTI_CUDA_ARGS(.path = path), ret);
}

/* A first small one is what waits, so that no memory is lost by trying again. */
static void wait_for_devices(struct tutti *t) {
        struct tutti_buffer *b;
        for (int i = 0; i < WAIT_SECONDS * 100; i++) {
                enum tutti_status status = tutti_cuda_buffer_alloc(t, 64, &b);
                if (status == TUTTI_OK)
                        tutti_buffer_free(b);
                if (status != TUTTI_BUSY)
                        return;
                nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
        }
}

struct tutti_buffer *gpu_take(struct tutti *t, enum tutti_cuda_path path, size_t n_bytes) {
        struct tutti_buffer *b = NULL;
        wait_for_devices(t);
        return take(t, path, n_bytes, &b) == TUTTI_OK ? b : NULL;
}

CUdeviceptr gpu_at(const struct tutti_buffer *b) {
        return (uintptr_t)tutti_buffer_data(b);
}

bool gpu_is_rehearsal(void) {
        return getenv("TUTTI_GPU_REHEARSAL") != NULL;
}

size_t gpu_size(size_t real, size_t rehearsed) {
        return gpu_is_rehearsal() ? rehearsed : real;
}
