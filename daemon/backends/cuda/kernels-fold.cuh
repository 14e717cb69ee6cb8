/* Reductions over axes: each input brings many contributions to one result, and all of them are one chain, in
 * the order of the inputs and of each in that of its indices. A thread makes a result from its first
 * contribution to its last, in the type in which the op combines, and rounds once. */
#pragma once

#include "backends/cuda/kernels-pass.cuh"
#include "backends/cuda/kernels-wide.cuh"

/* Along axes there may be more contributions than a world has members: exact sums have room for 2^32 of
 * them. */
template <class P> struct Long : P {};
template <class T, class Sum> struct Long<RoundedMean<T, Sum>> : RoundedMean<T, int128> {};
template <class T, class Sum> struct Long<FloatMean<T, Sum>> : FloatMean<T, int128> {};

/* Where the lengths of an input's axes are among the words; their strides lie behind them. */
INLINE uint64_t fold_words(const cuda_args &a, uint32_t input) {
        uint64_t n_operands = (uint64_t)a.n_inputs + a.n_outputs;
        return n_operands + (a.has_weights ? a.n_inputs : 0) + n_operands * a.n_dims +
               (uint64_t)input * 2 * a.n_folds;
}

/* The last axis is the fastest. false: that was the last one. */
INLINE bool next_contribution(const cuda_args &a, uint64_t words, uint64_t *index, uint64_t *offset) {
        ROLLED for (uint32_t d = a.n_folds; d-- > 0;) {
                uint64_t stride = word_at(a, words + a.n_folds + d);
                *offset += stride;
                if (++index[d] < word_at(a, words + d))
                        return true;
                *offset -= index[d] * stride;
                index[d] = 0;
        }
        return false;
}

template <class P> struct Chain {
        typename P::Wide sum;
        bool has_begun;
};

template <class P>
INLINE void fold_input(const cuda_args &a, uint32_t i, const Place &place, Chain<P> *chain) {
        typedef typename P::Stored T;
        const T *from = (const T *)operand_at(a, i) + offset_of(a, i, place);
        uint64_t index[CUDA_MAX_DIMS] = { 0 }, offset = 0, words = fold_words(a, i);
        do {
                T v = Volatile<T>::read(from + offset);
                chain->sum = chain->has_begun ? P::combine(a, chain->sum, v, i) : P::begin(a, v, i);
                chain->has_begun = true;
        } while (next_contribution(a, words, index, &offset));
}

template <class P> INLINE void fold(const cuda_args &a) {
        if (is_aborted(a.abort))
                return;
        ROLLED for (uint64_t i = first_of_thread(); i < a.count; i += all_threads()) {
                Place place;
                find_place(a, i, &place);
                Chain<P> chain = { P::start(a), P::is_weighted };
                ROLLED for (uint32_t k = 0; k < a.n_inputs; k++) if (is_read<P>(a, k))
                        fold_input<P>(a, k, place, &chain);
                write_element<P>(a, place, P::finish(a, chain.sum));
        }
}
