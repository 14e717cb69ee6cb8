/* What threads of a warp do together, all of them at once, and what several do to one word. The C++
 * compiler's build has its own (tests/support/fakecuda/cuda-on-cpu.h): warps of one thread. */
#pragma once

#ifndef CUDA_ON_CPU

#include <stdint.h>

/* A loop in registers, and one that is not worth more code. */
#define UNROLLED   _Pragma("unroll")
#define ROLLED     _Pragma("unroll 1")
#define WHOLE_WARP 0xffffffffu

static __forceinline__ __device__ bool is_first_in_warp() {
        return threadIdx.x % 32 == 0;
}

/* Good in the first thread. */
static __forceinline__ __device__ uint64_t warp_sum(uint64_t v) {
        for (int apart = 16; apart > 0; apart /= 2)
                v += __shfl_down_sync(WHOLE_WARP, v, apart);
        return v;
}

static __forceinline__ __device__ uint64_t warp_most(uint64_t v) {
        for (int apart = 16; apart > 0; apart /= 2) {
                uint64_t other = __shfl_down_sync(WHOLE_WARP, v, apart);
                v = other > v ? other : v;
        }
        return v;
}

static __forceinline__ __device__ void add_atomically(uint64_t *to, uint64_t v) {
        atomicAdd((unsigned long long *)to, (unsigned long long)v);
}

static __forceinline__ __device__ void raise_atomically(uint64_t *to, uint64_t v) {
        atomicMax((unsigned long long *)to, (unsigned long long)v);
}

#endif
