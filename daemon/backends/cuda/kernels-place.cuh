/* Where an element lies, and reading and writing it there. */
#pragma once

#include "backends/cuda/kernels-args.h"
#include "backends/cuda/kernels-number.cuh"

/* --- words about operands: inputs, then outputs --- */

INLINE uint64_t word_at(const cuda_args &a, uint64_t i) {
        return a.table ? ((const uint64_t *)a.table)[i] : a.words[i];
}

INLINE uint64_t operand_at(const cuda_args &a, uint32_t i) {
        return word_at(a, i);
}

INLINE f64 weight_of(const cuda_args &a, uint32_t i) {
        return bits_as<f64>(word_at(a, (uint64_t)a.n_inputs + a.n_outputs + i));
}

/* --- places --- */

/* An element by its index, and where there are strides by those of its dimensions: found once for all
 * operands. */
struct Place {
        uint64_t index;
        uint64_t at[CUDA_MAX_DIMS];
};

/* Division of 64 bits is slow here, and hardly anything has so many elements. */
APART void find_dimensions(const cuda_args &a, uint64_t index, Place *ret) {
        ROLLED for (uint32_t d = a.n_dims; d-- > 0;) {
                uint64_t n = a.shape[d], rest;
                if ((index | n) >> 32) {
                        rest = index / n;
                        ret->at[d] = index - rest * n;
                } else {
                        rest = (uint32_t)index / (uint32_t)n;
                        ret->at[d] = (uint32_t)index - (uint32_t)rest * (uint32_t)n;
                }
                index = rest;
        }
}

INLINE void find_place(const cuda_args &a, uint64_t index, Place *ret) {
        ret->index = index;
        if (a.n_dims > 0)
                find_dimensions(a, index, ret);
}

/* In elements from the operand's first one. */
APART uint64_t strided_offset(const cuda_args &a, uint32_t operand, const Place *place) {
        uint64_t strides = (uint64_t)a.n_inputs + a.n_outputs + (a.has_weights ? a.n_inputs : 0) +
                           (uint64_t)operand * a.n_dims;
        uint64_t offset = 0;
        ROLLED for (uint32_t d = 0; d < a.n_dims; d++) offset += place->at[d] * word_at(a, strides + d);
        return offset;
}

INLINE uint64_t offset_of(const cuda_args &a, uint32_t operand, const Place &place) {
        return a.n_dims > 0 ? strided_offset(a, operand, &place) : place.index;
}

/* --- elements: read exactly once, since others may write there --- */

template <class T> struct Volatile {
        INLINE T read(const void *from) {
                return *(const volatile T *)from;
        }
};
template <class T> INLINE T read_half(const void *from) {
        T half;
        half.bits = *(const volatile uint16_t *)from;
        return half;
}
template <> struct Volatile<f16> {
        INLINE f16 read(const void *from) {
                return read_half<f16>(from);
        }
};
template <> struct Volatile<bf16> {
        INLINE bf16 read(const void *from) {
                return read_half<bf16>(from);
        }
};
template <class T> struct Volatile<Pair<T>> {
        INLINE Pair<T> read(const void *from) {
                const volatile T *parts = (const volatile T *)from;
                return { parts[0], parts[1] };
        }
};

template <class T> INLINE T load(const cuda_args &a, uint32_t operand, const Place &place) {
        return Volatile<T>::read((const T *)operand_at(a, operand) + offset_of(a, operand, place));
}

template <class T> INLINE void store(const cuda_args &a, uint32_t operand, const Place &place, T v) {
        ((T *)operand_at(a, operand))[offset_of(a, operand, place)] = v;
}

/* --- threads --- */

/* Where the run's flag is set nothing is to be written. */
INLINE bool is_aborted(uint64_t flag) {
        return flag && *(const volatile uint32_t *)flag != 0;
}

INLINE uint64_t first_of_thread() {
        return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

INLINE uint64_t all_threads() {
        return (uint64_t)gridDim.x * blockDim.x;
}
