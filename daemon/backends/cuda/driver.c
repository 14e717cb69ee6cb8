#include "backends/cuda/driver.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* As dlsym finds it: the one function that is not asked for by itself. */
typedef CUresult (*find_function)(const char *symbol, void **function, int version, cuuint64_t flags,
        CUdriverProcAddressQueryResult *status);

struct wanted {
        const char *name;
        size_t offset; /* in struct driver */
};

#define CUDA_WANTED(name) { #name, offsetof(struct driver, name) },
static const struct wanted all_wanted[] = { CUDA_CALLS(CUDA_WANTED) };
#undef CUDA_WANTED

static int find_all(struct driver *d, find_function find, char *why, size_t why_bytes) {
        for (size_t i = 0; i < ARRAY_SIZE(all_wanted); i++) {
                void *function = NULL;
                CUresult r = find(all_wanted[i].name, &function, CUDA_ABI_VERSION,
                        CU_GET_PROC_ADDRESS_LEGACY_STREAM, NULL);
                if (r != CUDA_SUCCESS || !function) {
                        snprintf(why, why_bytes, "the driver has no %s of CUDA 12; update it",
                                all_wanted[i].name);
                        return -ENOSYS;
                }
                memcpy((char *)d + all_wanted[i].offset, &function, sizeof(function));
        }
        return 0;
}

static int begin(struct driver *d, char *why, size_t why_bytes) {
        CUresult r = d->cuDriverGetVersion(&d->version);
        if (r == CUDA_SUCCESS && d->version < CUDA_ABI_VERSION) {
                snprintf(why, why_bytes, "the driver is of CUDA %d.%d, 12.0 is the least; update it",
                        d->version / 1000, d->version % 1000 / 10);
                return -ENOSYS;
        }
        if (r == CUDA_SUCCESS)
                r = d->cuInit(0);
        if (r != CUDA_SUCCESS) {
                snprintf(why, why_bytes, "cuInit: %s", driver_error(d, r));
                return -ENODEV;
        }
        return 0;
}

int driver_open(struct driver *d, const char *path, char *why, size_t why_bytes) {
        const char *name = path ? path : "libcuda.so.1";
        find_function find = NULL;
        *d = (struct driver){ .library = dlopen(name, RTLD_NOW | RTLD_LOCAL) };
        if (!d->library) {
                snprintf(why, why_bytes, "no CUDA driver: %s", dlerror());
                return -ENOENT;
        }
        void *symbol = dlsym(d->library, "cuGetProcAddress_v2");
        memcpy(&find, &symbol, sizeof(find));
        int r = 0;
        if (!find) {
                snprintf(why, why_bytes, "%s is older than CUDA 12; update the driver", name);
                r = -ENOSYS;
        }
        if (r == 0)
                r = find_all(d, find, why, why_bytes);
        if (r == 0)
                r = begin(d, why, why_bytes);
        if (r < 0)
                driver_close(d);
        return r;
}

void driver_close(struct driver *d) {
        if (d->library)
                dlclose(d->library);
        *d = (struct driver){ .library = NULL };
}

const char *driver_error(const struct driver *d, CUresult result) {
        static char text[128];
        const char *name = NULL, *sentence = NULL;
        if (d->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
                name = "unknown error";
        if (d->cuGetErrorString(result, &sentence) != CUDA_SUCCESS || !sentence)
                sentence = "no description";
        snprintf(text, sizeof(text), "%s (%s)", name, sentence);
        return text;
}

bool driver_is_broken_by(CUresult result) {
        static const CUresult fatal[] = { CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_ECC_UNCORRECTABLE,
                CUDA_ERROR_NVLINK_UNCORRECTABLE, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_TIMEOUT,
                CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_ASSERT, CUDA_ERROR_HARDWARE_STACK_ERROR,
                CUDA_ERROR_ILLEGAL_INSTRUCTION, CUDA_ERROR_MISALIGNED_ADDRESS,
                CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC, CUDA_ERROR_LAUNCH_FAILED,
                CUDA_ERROR_MPS_CLIENT_TERMINATED, CUDA_ERROR_SYSTEM_NOT_READY, CUDA_ERROR_UNKNOWN };
        for (size_t i = 0; i < ARRAY_SIZE(fatal); i++)
                if (fatal[i] == result)
                        return true;
        return false;
}
