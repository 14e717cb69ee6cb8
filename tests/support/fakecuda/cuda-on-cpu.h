/* What nvcc knows of itself, for the C++ compiler: so that daemon/backends/cuda/kernels.cu runs on the CPU,
 * and its arithmetic is what is tested. The threads of a grid run one after the other; a warp has one thread.
 */
#pragma once

#define CUDA_ON_CPU

#include <math.h>
#include <stdint.h>

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__    __attribute__((noinline))
#define __launch_bounds__(threads)
#define UNROLLED
#define ROLLED
/* By reference: copies of what is never changed would be most of the work. */
#define PARAMETER(type, name) const type &name

struct cuda_index {
        uint32_t x, y, z;
};
static __thread cuda_index threadIdx, blockIdx, blockDim, gridDim;

struct alignas(16) uint4 {
        uint32_t x, y, z, w;
};

static inline bool is_first_in_warp() {
        return true;
}

static inline uint64_t warp_sum(uint64_t v) {
        return v;
}

static inline uint64_t warp_most(uint64_t v) {
        return v;
}

/* Blocks of other devices run at the same time. */
static inline void add_atomically(uint64_t *to, uint64_t v) {
        __atomic_fetch_add(to, v, __ATOMIC_RELAXED);
}

static inline void raise_atomically(uint64_t *to, uint64_t v) {
        uint64_t seen = __atomic_load_n(to, __ATOMIC_RELAXED);
        while (seen < v &&
                !__atomic_compare_exchange_n(to, &seen, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
                continue;
}
