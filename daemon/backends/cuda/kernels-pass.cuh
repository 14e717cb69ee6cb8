/* The pass over the elements: each thread reads all inputs of its elements in order, combines them in
 * registers, and writes the result once to each output. One thread has an element, so nothing waits and an
 * output may be an input.
 *
 * Where all lies densely on 16-byte borders a thread takes 16 bytes of an input at once; several inputs are
 * under way before the first is needed, which is what hides how far memory is. The rest goes one by one. */
#pragma once

#include "backends/cuda/kernels-arithmetic.cuh"

/* Inputs that are read before they are combined. */
#define GROUP 8

#define VECTOR_BYTES 16

template <class P> INLINE bool is_read(const cuda_args &a, uint32_t i) {
        return i < a.n_inputs && (!P::is_weighted || weight_of(a, i) != 0);
}

/* --- by vectors --- */

template <class P> struct Lanes {
        static const uint32_t n = VECTOR_BYTES / sizeof(typename P::Stored);
        static const uint32_t n_out_vectors = n * sizeof(typename P::Output) / VECTOR_BYTES;
        typename P::Wide sum[n];
};

template <class P> INLINE void combine_vector(const cuda_args &a, uint4 bytes, uint32_t i, Lanes<P> *l) {
        typename P::Stored v[Lanes<P>::n];
        memcpy(v, &bytes, sizeof(v));
        UNROLLED for (uint32_t k = 0; k < Lanes<P>::n; k++) l->sum[k] = P::combine(a, l->sum[k], v[k], i);
}

/* Input 0 is where most sums begin; weighted ones begin with nothing. */
template <class P> INLINE void begin_vector(const cuda_args &a, uint64_t at, Lanes<P> *l) {
        typename P::Stored v[Lanes<P>::n];
        uint4 bytes;
        if (!P::is_weighted) {
                bytes = ((const uint4 *)operand_at(a, 0))[at];
                memcpy(v, &bytes, sizeof(v));
        }
        UNROLLED for (uint32_t k = 0; k < Lanes<P>::n; k++) l->sum[k] =
                P::is_weighted ? P::start(a) : P::begin(a, v[k], 0);
}

template <class P> INLINE void write_vectors(const cuda_args &a, uint64_t at, const Lanes<P> &l) {
        typename P::Output results[Lanes<P>::n];
        uint4 bytes[Lanes<P>::n_out_vectors];
        UNROLLED for (uint32_t k = 0; k < Lanes<P>::n; k++) results[k] = P::finish(a, l.sum[k]);
        memcpy(bytes, results, sizeof(bytes));
        ROLLED for (uint32_t o = 0; o < a.n_outputs; o++) {
                uint4 *out = (uint4 *)operand_at(a, a.n_inputs + o) + at * Lanes<P>::n_out_vectors;
                UNROLLED for (uint32_t k = 0; k < Lanes<P>::n_out_vectors; k++) out[k] = bytes[k];
        }
}

template <class P> INLINE void reduce_vector(const cuda_args &a, uint64_t at) {
        Lanes<P> l;
        begin_vector(a, at, &l);
        ROLLED for (uint32_t first = P::is_weighted ? 0 : 1; first < a.n_inputs; first += GROUP) {
                uint4 bytes[GROUP];
                UNROLLED for (uint32_t k = 0; k < GROUP; k++) if (is_read<P>(a, first + k)) bytes[k] =
                        ((const uint4 *)operand_at(a, first + k))[at];
                UNROLLED for (uint32_t k = 0; k < GROUP; k++) if (is_read<P>(a, first + k))
                        combine_vector(a, bytes[k], first + k, &l);
        }
        write_vectors(a, at, l);
}

/* Returns how many elements are done. What gives less than 16 bytes for 16 goes one by one. */
template <class P> INLINE uint64_t reduce_vectors(const cuda_args &a) {
        uint64_t n_vectors = a.has_vectors ? a.count / Lanes<P>::n : 0;
        ROLLED for (uint64_t at = first_of_thread(); at < n_vectors; at += all_threads())
                reduce_vector<P>(a, at);
        return n_vectors * Lanes<P>::n;
}

/* --- one by one --- */

template <class P>
INLINE void write_element(const cuda_args &a, const Place &place, typename P::Output result) {
        ROLLED for (uint32_t o = 0; o < a.n_outputs; o++) store(a, a.n_inputs + o, place, result);
}

template <class P> INLINE void reduce_element(const cuda_args &a, uint64_t index) {
        typedef typename P::Stored T;
        Place place;
        find_place(a, index, &place);
        typename P::Wide sum = P::start(a);
        if (!P::is_weighted)
                sum = P::begin(a, load<T>(a, 0, place), 0);
        ROLLED for (uint32_t i = P::is_weighted ? 0 : 1; i < a.n_inputs; i++) if (is_read<P>(a, i)) sum =
                P::combine(a, sum, load<T>(a, i, place), i);
        write_element<P>(a, place, P::finish(a, sum));
}

template <class P> INLINE void reduce(const cuda_args &a) {
        uint64_t done = 0;
        if (is_aborted(a.abort))
                return;
        if constexpr (sizeof(typename P::Output) >= sizeof(typename P::Stored))
                done = reduce_vectors<P>(a);
        ROLLED for (uint64_t index = done + first_of_thread(); index < a.count; index += all_threads())
                reduce_element<P>(a, index);
}

/* --- with checks --- */

/* What the threads of a warp have found is put together first, or they would all wait for one address. All
 * threads of a block are here together. */
INLINE void note_count(uint64_t address, uint64_t index, bool is_found) {
        uint64_t n = warp_sum(is_found), back = warp_most(is_found ? UINT64_MAX - index : 0);
        cuda_count *count = (cuda_count *)address;
        if (n == 0 || !is_first_in_warp())
                return;
        add_atomically(&count->n, n);
        raise_atomically(&count->first_back, back);
}

INLINE void note_sum(uint64_t address, uint64_t part) {
        uint64_t sum = warp_sum(part);
        if (is_first_in_warp())
                add_atomically((uint64_t *)address, sum);
}

/* One element of input i, looked at and summed up as it is read: what was compared is what is combined. */
template <class T> INLINE T load_checked(const cuda_args &a, uint32_t i, const Place &place, bool is_there) {
        T v = T();
        if (is_there)
                v = load<T>(a, i, place);
        if (a.sums)
                note_sum(a.sums + i * sizeof(uint64_t), is_there ? checksum(place.index, v) : 0);
        if (a.nonfinite)
                note_count(a.nonfinite + i * sizeof(cuda_count), place.index, is_there && is_nonfinite(v));
        return v;
}

template <class P> INLINE void reduce_checked(const cuda_args &a, uint64_t index) {
        typedef typename P::Stored T;
        bool is_there = index < a.count;
        Place place;
        find_place(a, is_there ? index : 0, &place);
        typename P::Wide sum = P::start(a);
        if (!P::is_weighted)
                sum = P::begin(a, load_checked<T>(a, 0, place, is_there), 0);
        ROLLED for (uint32_t i = P::is_weighted ? 0 : 1; i < a.n_inputs; i++) if (is_read<P>(a, i)) sum =
                P::combine(a, sum, load_checked<T>(a, i, place, is_there), i);
        if (is_there)
                write_element<P>(a, place, P::finish(a, sum));
}

/* A block's threads go round together, those beyond the end with nothing in hand. */
template <class P> INLINE void reduce_with_checks(const cuda_args &a) {
        if (is_aborted(a.abort))
                return;
        ROLLED for (uint64_t block = (uint64_t)blockIdx.x * blockDim.x; block < a.count;
                    block += all_threads()) reduce_checked<P>(a, block + threadIdx.x);
}
