/* The CUDA driver, opened when the worker starts: nothing is linked to libcuda, so that one build serves
 * hosts with and without it.
 *
 * Each function is asked for by its plain name in the form that it had in CUDA 12.0 (cuGetProcAddress), which
 * is how cuda.h of 12 and 13 declares those that are listed here; so any driver from 12.0 on will do. */
#pragma once

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include "base/check.h"

#define CUDA_ABI_VERSION 12000

#define CUDA_CALLS(X)                                                                                        \
        X(cuInit)                                                                                            \
        X(cuDriverGetVersion)                                                                                \
        X(cuGetErrorName)                                                                                    \
        X(cuGetErrorString)                                                                                  \
        X(cuDeviceGetCount)                                                                                  \
        X(cuDeviceGet)                                                                                       \
        X(cuDeviceGetName)                                                                                   \
        X(cuDeviceGetUuid)                                                                                   \
        X(cuDeviceGetAttribute)                                                                              \
        X(cuDeviceTotalMem)                                                                                  \
        X(cuDeviceGetPCIBusId)                                                                               \
        X(cuDeviceCanAccessPeer)                                                                             \
        X(cuDeviceGetP2PAttribute)                                                                           \
        X(cuDevicePrimaryCtxRetain)                                                                          \
        X(cuDevicePrimaryCtxRelease)                                                                         \
        X(cuCtxSetCurrent)                                                                                   \
        X(cuCtxEnablePeerAccess)                                                                             \
        X(cuMemAlloc)                                                                                        \
        X(cuMemFree)                                                                                         \
        X(cuMemGetAddressRange)                                                                              \
        X(cuMemHostAlloc)                                                                                    \
        X(cuMemFreeHost)                                                                                     \
        X(cuMemHostRegister)                                                                                 \
        X(cuMemHostUnregister)                                                                               \
        X(cuMemHostGetDevicePointer)                                                                         \
        X(cuMemCreate)                                                                                       \
        X(cuMemRelease)                                                                                      \
        X(cuMemAddressReserve)                                                                               \
        X(cuMemAddressFree)                                                                                  \
        X(cuMemMap)                                                                                          \
        X(cuMemUnmap)                                                                                        \
        X(cuMemSetAccess)                                                                                    \
        X(cuMemExportToShareableHandle)                                                                      \
        X(cuMemImportFromShareableHandle)                                                                    \
        X(cuMemGetAllocationGranularity)                                                                     \
        X(cuMemGetAllocationPropertiesFromHandle)                                                            \
        X(cuIpcOpenMemHandle)                                                                                \
        X(cuIpcCloseMemHandle)                                                                               \
        X(cuIpcGetEventHandle)                                                                               \
        X(cuStreamCreate)                                                                                    \
        X(cuStreamDestroy)                                                                                   \
        X(cuStreamQuery)                                                                                     \
        X(cuStreamSynchronize)                                                                               \
        X(cuStreamWaitEvent)                                                                                 \
        X(cuStreamWaitValue64)                                                                               \
        X(cuStreamWriteValue64)                                                                              \
        X(cuEventCreate)                                                                                     \
        X(cuEventRecord)                                                                                     \
        X(cuEventQuery)                                                                                      \
        X(cuEventDestroy)                                                                                    \
        X(cuMemcpyAsync)                                                                                     \
        X(cuMemsetD8Async)                                                                                   \
        X(cuModuleLoadData)                                                                                  \
        X(cuModuleUnload)                                                                                    \
        X(cuModuleGetFunction)                                                                               \
        X(cuLaunchKernel)

/* Members are called as cuda.h calls the functions, which for some of them appends a version. */
#define CUDA_MEMBER(name) __typeof__(&(name)) name;
struct driver {
        void *library;
        int version; /* 12040 is 12.4 */
        CUDA_CALLS(CUDA_MEMBER)
};
#undef CUDA_MEMBER

/* `path` NULL: libcuda.so.1, where the loader finds it. Opens it, finds every function, and cuInit. 0, or a
 * negative errno with a sentence. */
int driver_open(struct driver *d, const char *path, char *why, size_t why_bytes) MUST_USE;
void driver_close(struct driver *d);

/* "CUDA_ERROR_OUT_OF_MEMORY (out of memory)", in a static buffer. */
const char *driver_error(const struct driver *d, CUresult result);

/* Whether nothing more can be had of this process: the driver keeps such errors for all calls to come. */
bool driver_is_broken_by(CUresult result);
