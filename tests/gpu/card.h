/* What the programs of tests/gpu share: a driver that is opened by its name, as a trainer does, and device
 * memory of each kind. They run on a real card, and in a rehearsal on the fake driver, where sizes are small
 * and figures mean nothing.
 *
 * A process uses it after the last fork. What cannot be done ends the process with a sentence. */
#pragma once

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <tutti/cuda.h>

#define GPU_CALLS(X)                                                                                         \
        X(cuInit)                                                                                            \
        X(cuDriverGetVersion)                                                                                \
        X(cuGetErrorName)                                                                                    \
        X(cuDeviceGet)                                                                                       \
        X(cuDeviceGetName)                                                                                   \
        X(cuDeviceGetAttribute)                                                                              \
        X(cuDevicePrimaryCtxRetain)                                                                          \
        X(cuCtxSetCurrent)                                                                                   \
        X(cuCtxSynchronize)                                                                                  \
        X(cuMemGetInfo)                                                                                      \
        X(cuMemAlloc)                                                                                        \
        X(cuMemFree)                                                                                         \
        X(cuMemCreate)                                                                                       \
        X(cuMemAddressReserve)                                                                               \
        X(cuMemMap)                                                                                          \
        X(cuMemSetAccess)                                                                                    \
        X(cuMemHostAlloc)                                                                                    \
        X(cuMemcpyHtoD)                                                                                      \
        X(cuMemcpyDtoH)                                                                                      \
        X(cuMemcpyDtoHAsync)                                                                                 \
        X(cuMemcpyDtoDAsync)                                                                                 \
        X(cuMemsetD8)                                                                                        \
        X(cuMemsetD8Async)                                                                                   \
        X(cuMemsetD32)                                                                                       \
        X(cuMemsetD32Async)                                                                                  \
        X(cuStreamCreate)                                                                                    \
        X(cuStreamSynchronize)                                                                               \
        X(cuEventCreate)                                                                                     \
        X(cuEventRecord)                                                                                     \
        X(cuEventSynchronize)                                                                                \
        X(cuEventElapsedTime)                                                                                \
        X(cuModuleLoadData)                                                                                  \
        X(cuModuleUnload)                                                                                    \
        X(cuModuleGetFunction)                                                                               \
        X(cuLaunchKernel)

/* The functions, in a process that has called gpu_begin. */
struct gpu_driver {
#define GPU_FIELD(name) __typeof__(name) *name;
        GPU_CALLS(GPU_FIELD)
#undef GPU_FIELD
};
extern struct gpu_driver gpu;

/* Opens the driver, and makes the first device's primary context current. */
void gpu_begin(void);
/* Ends the process when a call has failed. */
void gpu_must(CUresult r, const char *call);
#define GPU(call, ...) gpu_must(gpu.call(__VA_ARGS__), #call)

CUstream gpu_stream(void);

/* n_bytes of device memory, on one of the four paths, registered or made; while tuttid still tests its
 * devices it waits. NULL with tutti_error where the path is refused. */
struct tutti_buffer *gpu_take(struct tutti *t, enum tutti_cuda_path path, size_t n_bytes);
/* Of the caller's own, that can be exported as a descriptor. */
CUdeviceptr gpu_create(size_t n_bytes);
CUdeviceptr gpu_at(const struct tutti_buffer *b);

/* TUTTI_GPU_REHEARSAL is set: the driver is the fake. `real` or `rehearsed`, whichever it is. */
bool gpu_is_rehearsal(void);
size_t gpu_size(size_t real, size_t rehearsed);
