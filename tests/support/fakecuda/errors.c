/* Names of errors. The texts are the names in small letters: what they mean is said in the documentation. */
#include "fake.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define NAME(error)                                                                                          \
        { error, #error }
static const struct {
        CUresult error;
        const char *name;
} errors[] = {
        NAME(CUDA_SUCCESS),
        NAME(CUDA_ERROR_INVALID_VALUE),
        NAME(CUDA_ERROR_OUT_OF_MEMORY),
        NAME(CUDA_ERROR_NOT_INITIALIZED),
        NAME(CUDA_ERROR_DEINITIALIZED),
        NAME(CUDA_ERROR_STUB_LIBRARY),
        NAME(CUDA_ERROR_DEVICE_UNAVAILABLE),
        NAME(CUDA_ERROR_NO_DEVICE),
        NAME(CUDA_ERROR_INVALID_DEVICE),
        NAME(CUDA_ERROR_INVALID_IMAGE),
        NAME(CUDA_ERROR_INVALID_CONTEXT),
        NAME(CUDA_ERROR_MAP_FAILED),
        NAME(CUDA_ERROR_UNMAP_FAILED),
        NAME(CUDA_ERROR_ALREADY_MAPPED),
        NAME(CUDA_ERROR_NO_BINARY_FOR_GPU),
        NAME(CUDA_ERROR_ECC_UNCORRECTABLE),
        NAME(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED),
        NAME(CUDA_ERROR_INVALID_PTX),
        NAME(CUDA_ERROR_NVLINK_UNCORRECTABLE),
        NAME(CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
        NAME(CUDA_ERROR_INVALID_SOURCE),
        NAME(CUDA_ERROR_OPERATING_SYSTEM),
        NAME(CUDA_ERROR_INVALID_HANDLE),
        NAME(CUDA_ERROR_ILLEGAL_STATE),
        NAME(CUDA_ERROR_NOT_FOUND),
        NAME(CUDA_ERROR_NOT_READY),
        NAME(CUDA_ERROR_ILLEGAL_ADDRESS),
        NAME(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
        NAME(CUDA_ERROR_LAUNCH_TIMEOUT),
        NAME(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED),
        NAME(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED),
        NAME(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE),
        NAME(CUDA_ERROR_CONTEXT_IS_DESTROYED),
        NAME(CUDA_ERROR_ASSERT),
        NAME(CUDA_ERROR_TOO_MANY_PEERS),
        NAME(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
        NAME(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
        NAME(CUDA_ERROR_HARDWARE_STACK_ERROR),
        NAME(CUDA_ERROR_ILLEGAL_INSTRUCTION),
        NAME(CUDA_ERROR_MISALIGNED_ADDRESS),
        NAME(CUDA_ERROR_INVALID_ADDRESS_SPACE),
        NAME(CUDA_ERROR_INVALID_PC),
        NAME(CUDA_ERROR_LAUNCH_FAILED),
        NAME(CUDA_ERROR_NOT_PERMITTED),
        NAME(CUDA_ERROR_NOT_SUPPORTED),
        NAME(CUDA_ERROR_SYSTEM_NOT_READY),
        NAME(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH),
        NAME(CUDA_ERROR_MPS_CONNECTION_FAILED),
        NAME(CUDA_ERROR_MPS_SERVER_NOT_READY),
        NAME(CUDA_ERROR_MPS_CLIENT_TERMINATED),
        NAME(CUDA_ERROR_TIMEOUT),
        NAME(CUDA_ERROR_EXTERNAL_DEVICE),
        NAME(CUDA_ERROR_UNKNOWN),
};
enum { N_ERRORS = sizeof(errors) / sizeof(*errors) };

static char texts[N_ERRORS][48];

int fake_error_named(const char *name, size_t n_chars) {
        if (n_chars && isdigit((unsigned char)name[0]))
                return atoi(name);
        for (int i = 0; i < N_ERRORS; i++)
                if (strlen(errors[i].name) == n_chars && !memcmp(errors[i].name, name, n_chars))
                        return (int)errors[i].error;
        return -1;
}

static int find(CUresult error) {
        for (int i = 0; i < N_ERRORS; i++)
                if (errors[i].error == error)
                        return i;
        return -1;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **ret) {
        CUresult r = fake_enter(CALL_cuGetErrorName, FAKE_NOTHING);
        if (r != CUDA_SUCCESS)
                return r;
        int i = find(error);
        *ret = i < 0 ? NULL : errors[i].name;
        return fake_leave(i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

/* Under the lock. */
static const char *text_of(int i) {
        if (!i)
                return "no error";
        const char *name = errors[i].name + strlen("CUDA_ERROR_");
        for (size_t k = 0; name[k]; k++)
                texts[i][k] = name[k] == '_' ? ' ' : (char)tolower((unsigned char)name[k]);
        return texts[i];
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **ret) {
        CUresult r = fake_enter(CALL_cuGetErrorString, FAKE_NOTHING);
        if (r != CUDA_SUCCESS)
                return r;
        int i = find(error);
        *ret = i < 0 ? NULL : text_of(i);
        return fake_leave(i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}
