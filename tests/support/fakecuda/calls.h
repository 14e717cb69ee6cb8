/* Every function of the driver and of NCCL that the fake has, with the version of CUDA that brought it in
 * this form. The order is the numbering of counters and faults. Needs no cuda.h. */
#pragma once

#define FAKE_CUDA_CALLS(X)                                                                                   \
        X(cuInit, 2000)                                                                                      \
        X(cuDriverGetVersion, 2020)                                                                          \
        X(cuGetProcAddress, 12000)                                                                           \
        X(cuGetErrorName, 6000)                                                                              \
        X(cuGetErrorString, 6000)                                                                            \
        X(cuDeviceGetCount, 2000)                                                                            \
        X(cuDeviceGet, 2000)                                                                                 \
        X(cuDeviceGetName, 2000)                                                                             \
        X(cuDeviceGetUuid, 9020)                                                                             \
        X(cuDeviceGetAttribute, 2000)                                                                        \
        X(cuDeviceTotalMem, 3020)                                                                            \
        X(cuDeviceGetPCIBusId, 4010)                                                                         \
        X(cuDeviceGetByPCIBusId, 4010)                                                                       \
        X(cuDeviceCanAccessPeer, 4000)                                                                       \
        X(cuDeviceGetP2PAttribute, 8000)                                                                     \
        X(cuDevicePrimaryCtxRetain, 7000)                                                                    \
        X(cuDevicePrimaryCtxRelease, 7000)                                                                   \
        X(cuDevicePrimaryCtxGetState, 7000)                                                                  \
        X(cuDevicePrimaryCtxSetFlags, 7000)                                                                  \
        X(cuCtxSetCurrent, 4000)                                                                             \
        X(cuCtxGetCurrent, 4000)                                                                             \
        X(cuCtxPushCurrent, 4000)                                                                            \
        X(cuCtxPopCurrent, 4000)                                                                             \
        X(cuCtxGetDevice, 2000)                                                                              \
        X(cuCtxSynchronize, 2000)                                                                            \
        X(cuCtxEnablePeerAccess, 4000)                                                                       \
        X(cuCtxDisablePeerAccess, 4000)                                                                      \
        X(cuCtxGetStreamPriorityRange, 5050)                                                                 \
        X(cuMemGetInfo, 3020)                                                                                \
        X(cuMemAlloc, 3020)                                                                                  \
        X(cuMemFree, 3020)                                                                                   \
        X(cuMemGetAddressRange, 3020)                                                                        \
        X(cuMemHostAlloc, 2020)                                                                              \
        X(cuMemFreeHost, 2000)                                                                               \
        X(cuMemHostRegister, 6050)                                                                           \
        X(cuMemHostUnregister, 4000)                                                                         \
        X(cuMemHostGetDevicePointer, 3020)                                                                   \
        X(cuMemHostGetFlags, 2030)                                                                           \
        X(cuMemCreate, 10020)                                                                                \
        X(cuMemRelease, 10020)                                                                               \
        X(cuMemAddressReserve, 10020)                                                                        \
        X(cuMemAddressFree, 10020)                                                                           \
        X(cuMemMap, 10020)                                                                                   \
        X(cuMemUnmap, 10020)                                                                                 \
        X(cuMemSetAccess, 10020)                                                                             \
        X(cuMemGetAccess, 10020)                                                                             \
        X(cuMemExportToShareableHandle, 10020)                                                               \
        X(cuMemImportFromShareableHandle, 10020)                                                             \
        X(cuMemGetAllocationGranularity, 10020)                                                              \
        X(cuMemGetAllocationPropertiesFromHandle, 10020)                                                     \
        X(cuMemRetainAllocationHandle, 11000)                                                                \
        X(cuIpcGetMemHandle, 4010)                                                                           \
        X(cuIpcOpenMemHandle, 11000)                                                                         \
        X(cuIpcCloseMemHandle, 4010)                                                                         \
        X(cuIpcGetEventHandle, 4010)                                                                         \
        X(cuIpcOpenEventHandle, 4010)                                                                        \
        X(cuPointerGetAttribute, 4000)                                                                       \
        X(cuPointerGetAttributes, 7000)                                                                      \
        X(cuStreamCreate, 2000)                                                                              \
        X(cuStreamCreateWithPriority, 5050)                                                                  \
        X(cuStreamDestroy, 4000)                                                                             \
        X(cuStreamSynchronize, 2000)                                                                         \
        X(cuStreamQuery, 2000)                                                                               \
        X(cuStreamWaitEvent, 3020)                                                                           \
        X(cuStreamGetCtx, 9020)                                                                              \
        X(cuStreamGetPriority, 5050)                                                                         \
        X(cuStreamGetFlags, 5050)                                                                            \
        X(cuStreamWaitValue32, 8000)                                                                         \
        X(cuStreamWriteValue32, 8000)                                                                        \
        X(cuStreamWaitValue64, 9000)                                                                         \
        X(cuStreamWriteValue64, 9000)                                                                        \
        X(cuStreamBatchMemOp, 8000)                                                                          \
        X(cuLaunchHostFunc, 10000)                                                                           \
        X(cuEventCreate, 2000)                                                                               \
        X(cuEventRecord, 2000)                                                                               \
        X(cuEventQuery, 2000)                                                                                \
        X(cuEventSynchronize, 2000)                                                                          \
        X(cuEventDestroy, 4000)                                                                              \
        X(cuEventElapsedTime, 2000)                                                                          \
        X(cuMemcpy, 4000)                                                                                    \
        X(cuMemcpyHtoD, 3020)                                                                                \
        X(cuMemcpyDtoH, 3020)                                                                                \
        X(cuMemcpyDtoD, 3020)                                                                                \
        X(cuMemcpyPeer, 4000)                                                                                \
        X(cuMemcpyAsync, 4000)                                                                               \
        X(cuMemcpyHtoDAsync, 3020)                                                                           \
        X(cuMemcpyDtoHAsync, 3020)                                                                           \
        X(cuMemcpyDtoDAsync, 3020)                                                                           \
        X(cuMemcpyPeerAsync, 4000)                                                                           \
        X(cuMemsetD8, 3020)                                                                                  \
        X(cuMemsetD32, 3020)                                                                                 \
        X(cuMemsetD8Async, 3020)                                                                             \
        X(cuMemsetD32Async, 3020)                                                                            \
        X(cuModuleLoadData, 2000)                                                                            \
        X(cuModuleLoadDataEx, 2010)                                                                          \
        X(cuModuleUnload, 2000)                                                                              \
        X(cuModuleGetFunction, 2000)                                                                         \
        X(cuLibraryLoadData, 12000)                                                                          \
        X(cuLibraryUnload, 12000)                                                                            \
        X(cuLibraryGetKernel, 12000)                                                                         \
        X(cuKernelGetFunction, 12000)                                                                        \
        X(cuFuncGetAttribute, 2020)                                                                          \
        X(cuFuncSetAttribute, 9000)                                                                          \
        X(cuFuncGetParamInfo, 12040)                                                                         \
        X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050)                                                 \
        X(cuLaunchKernel, 4000)                                                                              \
        X(cuLaunchKernelEx, 11060)

#define FAKE_NCCL_CALLS(X)                                                                                   \
        X(ncclGetVersion)                                                                                    \
        X(ncclGetUniqueId)                                                                                   \
        X(ncclCommInitRankConfig)                                                                            \
        X(ncclGroupStart)                                                                                    \
        X(ncclGroupEnd)                                                                                      \
        X(ncclAllReduce)                                                                                     \
        X(ncclReduce)                                                                                        \
        X(ncclBroadcast)                                                                                     \
        X(ncclCommFinalize)                                                                                  \
        X(ncclCommDestroy)                                                                                   \
        X(ncclCommAbort)                                                                                     \
        X(ncclCommGetAsyncError)                                                                             \
        X(ncclCommCount)                                                                                     \
        X(ncclCommCuDevice)                                                                                  \
        X(ncclCommUserRank)

#define FAKE_NUMBER_CUDA(name, version) CALL_##name,
#define FAKE_NUMBER_NCCL(name)          CALL_##name,
enum fake_call { FAKE_CUDA_CALLS(FAKE_NUMBER_CUDA) FAKE_NCCL_CALLS(FAKE_NUMBER_NCCL) N_FAKE_CALLS };
#undef FAKE_NUMBER_CUDA
#undef FAKE_NUMBER_NCCL

/* "cuInit" ... */
const char *fake_call_name(enum fake_call call);

/* N_FAKE_CALLS for a name that is none. "launch" is cuLaunchKernel. */
enum fake_call fake_call_find(const char *name, unsigned int n_chars);
