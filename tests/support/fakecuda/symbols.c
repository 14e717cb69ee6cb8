/* Which functions the fake has, by name and version. */
#include "fake.h"

#include <string.h>

#define SYMBOL(name, version) { #name, (void *)name, version },
static const struct {
        const char *name;
        void *function;
        int version;
} symbols[] = { FAKE_CUDA_CALLS(SYMBOL) };

static CUresult find(const char *name, int version, void **ret, CUdriverProcAddressQueryResult *ret_status) {
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        *ret = NULL;
        for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
                if (strcmp(symbols[i].name, name) != 0)
                        continue;
                status = version < symbols[i].version ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                                      : CU_GET_PROC_ADDRESS_SUCCESS;
                if (status == CU_GET_PROC_ADDRESS_SUCCESS)
                        *ret = symbols[i].function;
        }
        if (ret_status)
                *ret_status = status;
        return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetProcAddress(const char *name, void **ret, int version, cuuint64_t flags,
        CUdriverProcAddressQueryResult *ret_status) {
        CUresult r = fake_enter(CALL_cuGetProcAddress, FAKE_NOTHING);
        if (r != CUDA_SUCCESS)
                return r;
        if (!name || !ret || version > CUDA_VERSION ||
                (flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM |
                                       CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)))
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        return fake_leave(find(name, version, ret, ret_status));
}
