/* Every kernel of kernels-list.h. Compiled by nvcc for the GPUs, and by the C++ compiler for the tests, which
 * brings what nvcc knows of itself (tests/support/fakecuda/cuda-on-cpu.h).
 *
 * The numbers do not depend on the compiler's fancy: --fmad=false, --prec-div=true, --ftz=false. */
#include "backends/cuda/kernels-list.h"
#include "backends/cuda/kernels-warp.cuh"
#include "backends/cuda/kernels-pass.cuh"
#include "backends/cuda/kernels-wide.cuh"
#include "backends/cuda/kernels-fold.cuh"
#include "backends/cuda/kernels-memory.cuh"
#include "backends/cuda/kernels-sparse.cuh"

/* By value and never changed, so that no thread makes a copy of it. */
#ifndef PARAMETER
#define PARAMETER(type, name) const __grid_constant__ type name
#endif

#define DEFINE_ELEMENT_KERNEL(name, ...)                                                                     \
        extern "C" __global__ void __launch_bounds__(CUDA_BLOCK) tutti_##name(PARAMETER(cuda_args, a)) {     \
                reduce<__VA_ARGS__>(a);                                                                      \
        }                                                                                                    \
        extern "C" __global__ void __launch_bounds__(CUDA_BLOCK)                                             \
                tutti_checked_##name(PARAMETER(cuda_args, a)) {                                              \
                reduce_with_checks<__VA_ARGS__>(a);                                                          \
        }
CUDA_ELEMENT_KERNELS(DEFINE_ELEMENT_KERNEL)

#define DEFINE_FOLD_KERNEL(name, ...)                                                                        \
        extern "C" __global__ void __launch_bounds__(CUDA_BLOCK)                                             \
                tutti_folded_##name(PARAMETER(cuda_args, a)) {                                               \
                fold<Long<__VA_ARGS__>>(a);                                                                  \
        }
CUDA_REDUCTIONS(DEFINE_FOLD_KERNEL)

#define DEFINE_ROW_KERNEL(name, ...)                                                                         \
        extern "C" __global__ void __launch_bounds__(CUDA_BLOCK)                                             \
                tutti_joined_##name(PARAMETER(cuda_args, a)) {                                               \
                join_rows<__VA_ARGS__>(a);                                                                   \
        }
CUDA_ROW_KERNELS(DEFINE_ROW_KERNEL)

/* Looked for before the pass, which may write into an input. */
template <class T> INLINE void count_wrapped(const cuda_args &a) {
        if (is_aborted(a.abort))
                return;
        ROLLED for (uint64_t block = (uint64_t)blockIdx.x * blockDim.x; block < a.count;
                    block += all_threads()) {
                uint64_t index = block + threadIdx.x;
                bool is_there = index < a.count;
                Place place;
                find_place(a, is_there ? index : 0, &place);
                bool wraps = is_there && (a.is_product ? product_wraps<T>(a, place) : sum_wraps<T>(a, place));
                note_count(a.wrapped, index, wraps);
        }
}

#define DEFINE_COUNTING_KERNEL(name, type)                                                                   \
        extern "C" __global__ void __launch_bounds__(CUDA_BLOCK) tutti_##name(PARAMETER(cuda_args, a)) {     \
                count_wrapped<type>(a);                                                                      \
        }
CUDA_COUNTING_KERNELS(DEFINE_COUNTING_KERNEL)

#define DEFINE_OTHER_KERNEL(name, how, args)                                                                 \
        extern "C" __global__ void __launch_bounds__(CUDA_BLOCK) tutti_##name(PARAMETER(args, a)) {          \
                how(a);                                                                                      \
        }
CUDA_OTHER_KERNELS(DEFINE_OTHER_KERNEL)
