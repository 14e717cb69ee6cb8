/* A kernel as the fake driver (README.md) runs it: the CPU build of our CUDA sources fills a table of these,
 * and cuModuleGetFunction finds them by name.
 *
 * The CPU build defines `fakecuda_kernels`; it is linked whole into the fake libcuda.so.1 (meson: the list
 * fakecuda_kernel_libs, before this folder is entered). Tests add kernels of their own to a loaded fake by
 * fakecuda_register_kernel, which they find with dlsym. C and C++. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs the whole grid to its end on the calling thread. `args`: n_args pointers, each to a copy of one
 * parameter that cuLaunchKernel made; good until run returns, aligned to 16 bytes. `grid` and `block` as
 * launched, x first. Dynamic shared memory is the kernel's own business. run may be called from several
 * threads at once (one for each device), so that it keeps nothing in variables that threads share. A bad
 * access in it is caught, and becomes the sticky CUDA_ERROR_ILLEGAL_ADDRESS of the process; then run is left
 * without returning. */
struct fake_kernel {
        const char *name;
        void (*run)(const void *const *args, const uint32_t grid[3], const uint32_t block[3]);
        uint32_t n_args;
        const uint32_t *arg_bytes; /* sizes of the parameters */
};

struct fake_kernel_table {
        const struct fake_kernel *kernels;
        size_t n_kernels;
};

/* Absent (weak) where nothing was linked in. */
extern const struct fake_kernel_table fakecuda_kernels __attribute__((weak, visibility("default")));

/* `kernel` is borrowed until the library is closed; of two with one name the later one is found. Returns 0,
 * or -ENOSPC when there are 64. */
int fakecuda_register_kernel(const struct fake_kernel *kernel);

#ifdef __cplusplus
}
#endif
