/* What moves bytes and makes no numbers, and the pattern of the self-test. */
#pragma once

#include "backends/cuda/kernels-pass.cuh"

/* --- many pieces at once: packs --- */

/* The last segment that begins at or before `start`. */
INLINE uint64_t find_segment(const cuda_move_args &a, uint64_t start) {
        const cuda_segment *segments = (const cuda_segment *)a.segments;
        uint64_t low = 0, high = a.n_segments;
        while (high - low > 1) {
                uint64_t middle = low + (high - low) / 2;
                if (segments[middle].start <= start)
                        low = middle;
                else
                        high = middle;
        }
        return low;
}

template <class Word> INLINE void move_words(uint64_t from, uint64_t to, uint64_t n) {
        ROLLED for (uint64_t i = threadIdx.x; i < n; i += blockDim.x)((Word *)to)[i] =
                ((const Word *)from)[i];
}

/* By a block, in words as large as both ends allow. */
template <class Word> INLINE void move_aligned(uint64_t from, uint64_t to, uint64_t n_bytes) {
        uint64_t head = (0 - to) % sizeof(Word);
        head = head < n_bytes ? head : n_bytes;
        uint64_t n = (n_bytes - head) / sizeof(Word), done = head + n * sizeof(Word);
        move_words<uint8_t>(from, to, head);
        move_words<Word>(from + head, to + head, n);
        move_words<uint8_t>(from + done, to + done, n_bytes - done);
}

INLINE void move_bytes(uint64_t from, uint64_t to, uint64_t n_bytes) {
        uint64_t apart = from - to;
        if (apart % sizeof(uint4) == 0)
                move_aligned<uint4>(from, to, n_bytes);
        else if (apart % sizeof(uint32_t) == 0)
                move_aligned<uint32_t>(from, to, n_bytes);
        else
                move_words<uint8_t>(from, to, n_bytes);
}

INLINE void move(const cuda_move_args &a) {
        const cuda_segment *segments = (const cuda_segment *)a.segments;
        if (is_aborted(a.abort))
                return;
        ROLLED for (uint64_t at = (uint64_t)blockIdx.x * CUDA_MOVE_BYTES; at < a.n_bytes;
                    at += (uint64_t)gridDim.x * CUDA_MOVE_BYTES) {
                uint64_t end = a.n_bytes - at < CUDA_MOVE_BYTES ? a.n_bytes : at + CUDA_MOVE_BYTES,
                         start = at;
                ROLLED for (uint64_t s = find_segment(a, at); start < end; s++) {
                        cuda_segment segment = segments[s];
                        uint64_t skip = start - segment.start, n = segment.n_bytes - skip;
                        n = n < end - start ? n : end - start;
                        move_bytes(segment.from + skip, segment.to + skip, n);
                        start += n;
                }
        }
}

/* --- the self-test's pattern --- */

INLINE uint64_t pattern_at(const cuda_pattern_args &a, uint64_t i) {
        return mix(i, a.seed);
}

INLINE void fill(const cuda_pattern_args &a) {
        ROLLED for (uint64_t i = first_of_thread(); i < a.n_words; i += all_threads())((uint64_t *)a.at)[i] =
                pattern_at(a, i);
}

INLINE void verify(const cuda_pattern_args &a) {
        ROLLED for (uint64_t block = (uint64_t)blockIdx.x * blockDim.x; block < a.n_words;
                    block += all_threads()) {
                uint64_t i = block + threadIdx.x;
                bool is_wrong = i < a.n_words && ((const uint64_t *)a.at)[i] != pattern_at(a, i);
                note_count(a.wrong, i, is_wrong);
        }
}
