/* The functions of a fake driver that is loaded at run time, as a program would do it: by dlopen of
 * libcuda.so.1 and cuGetProcAddress. For tests of the fake itself, and for tests that play a client. */
#pragma once

#include <cuda.h>
#include "calls.h"
#include "kernel.h"

#define FAKE_FIELD(name, version) __typeof__(&name) name;
struct fakecuda_functions {
        FAKE_CUDA_CALLS(FAKE_FIELD)
        __typeof__(&fakecuda_register_kernel) fakecuda_register_kernel;
        void *library; /* to be closed with dlclose */
};
#undef FAKE_FIELD

/* Aborts, saying why, where something is not there. */
void fakecuda_load(struct fakecuda_functions *ret);

/* Where libcuda.so.1 and libnccl.so.2 are, for LD_LIBRARY_PATH. */
const char *fakecuda_directory(void);
