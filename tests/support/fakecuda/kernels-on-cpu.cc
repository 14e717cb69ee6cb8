/* The kernels of daemon/backends/cuda/kernels.cu as functions of this processor: the table from which the
 * fake driver, and the test of the kernels, run them. */
#include "cuda-on-cpu.h"
#include "backends/cuda/kernels.cu"
#include "kernel.h"

/* All threads of a grid in one dimension, as ours are. */
template <class Args>
static void run_grid(
        void (*kernel)(const Args &), const Args &args, const uint32_t grid[3], const uint32_t block[3]) {
        gridDim = { grid[0], grid[1], grid[2] };
        blockDim = { block[0], block[1], block[2] };
        for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++)
                for (threadIdx.x = 0; threadIdx.x < block[0]; threadIdx.x++)
                        kernel(args);
}

#define DEFINE_RUN(name, type)                                                                               \
        static void run_##name(const void *const *args, const uint32_t grid[3], const uint32_t block[3]) {   \
                run_grid<type>(tutti_##name, *(const type *)args[0], grid, block);                           \
        }
#define DEFINE_RUN_OF_PAIR(name, ...)                                                                        \
        DEFINE_RUN(name, cuda_args)                                                                          \
        DEFINE_RUN(checked_##name, cuda_args)
#define DEFINE_RUN_OF_FOLD(name, ...)        DEFINE_RUN(folded_##name, cuda_args)
#define DEFINE_RUN_OF_ROW(name, ...)         DEFINE_RUN(joined_##name, cuda_args)
#define DEFINE_RUN_OF_COUNTING(name, ...)    DEFINE_RUN(name, cuda_args)
#define DEFINE_RUN_OF_OTHER(name, how, type) DEFINE_RUN(name, type)

CUDA_ELEMENT_KERNELS(DEFINE_RUN_OF_PAIR)
CUDA_REDUCTIONS(DEFINE_RUN_OF_FOLD)
CUDA_ROW_KERNELS(DEFINE_RUN_OF_ROW)
CUDA_COUNTING_KERNELS(DEFINE_RUN_OF_COUNTING)
CUDA_OTHER_KERNELS(DEFINE_RUN_OF_OTHER)

template <class Args> static const uint32_t bytes_of[1] = { sizeof(Args) };

#define ENTRY(name, type)               { "tutti_" #name, run_##name, 1, bytes_of<type> },
#define ENTRIES_OF_PAIR(name, ...)      ENTRY(name, cuda_args) ENTRY(checked_##name, cuda_args)
#define ENTRY_OF_FOLD(name, ...)        ENTRY(folded_##name, cuda_args)
#define ENTRY_OF_ROW(name, ...)         ENTRY(joined_##name, cuda_args)
#define ENTRY_OF_COUNTING(name, ...)    ENTRY(name, cuda_args)
#define ENTRY_OF_OTHER(name, how, type) ENTRY(name, type)

static const struct fake_kernel kernels[] = { CUDA_ELEMENT_KERNELS(ENTRIES_OF_PAIR)
                CUDA_REDUCTIONS(ENTRY_OF_FOLD) CUDA_ROW_KERNELS(ENTRY_OF_ROW)
                        CUDA_COUNTING_KERNELS(ENTRY_OF_COUNTING) CUDA_OTHER_KERNELS(ENTRY_OF_OTHER) };

extern const struct fake_kernel_table fakecuda_kernels = { kernels, sizeof(kernels) / sizeof(kernels[0]) };
