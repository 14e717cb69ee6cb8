#include "load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *must(void *found, const char *what) {
        if (!found) {
                fprintf(stderr, "fakecuda: no %s: %s\n", what, dlerror());
                abort();
        }
        return found;
}

const char *fakecuda_directory(void) {
        return FAKECUDA_DIRECTORY;
}

void fakecuda_load(struct fakecuda_functions *ret) {
        ret->library =
                must(dlopen(FAKECUDA_DIRECTORY "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "libcuda.so.1");
        __typeof__(&cuGetProcAddress) find = (__typeof__(&cuGetProcAddress))must(
                dlsym(ret->library, "cuGetProcAddress_v2"), "cuGetProcAddress");
        void *at;
#define FIND(name, version)                                                                                  \
        at = NULL;                                                                                           \
        (void)find(#name, &at, CUDA_VERSION, 0, NULL);                                                       \
        ret->name = (__typeof__(&name))must(at, #name);
        FAKE_CUDA_CALLS(FIND)
#undef FIND
        ret->fakecuda_register_kernel = (__typeof__(&fakecuda_register_kernel))must(
                dlsym(ret->library, "fakecuda_register_kernel"), "fakecuda_register_kernel");
}
