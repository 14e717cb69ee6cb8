/* What moves bytes and makes no numbers, sums of sparse rows, and the pattern of the self-test. */
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

/* --- rows by their indices --- */

INLINE int64_t index_at(const cuda_rows_args &a, uint64_t row) {
        return a.index_bytes == 4 ? ((const int32_t *)a.indices)[row] : ((const int64_t *)a.indices)[row];
}

INLINE bool is_row(const cuda_rows_args &a, int64_t index) {
        return index >= 0 && (uint64_t)index < a.n_table_rows;
}

/* By one thread for each index. */
INLINE void note_beyond(const cuda_rows_args &a, uint64_t row) {
        cuda_count *beyond = (cuda_count *)a.beyond;
        if (!beyond)
                return;
        add_atomically(&beyond->n, 1);
        raise_atomically(&beyond->first_back, UINT64_MAX - (a.first_row + row));
}

/* A block takes a row at a time; its bytes go as those of a pack do. */
INLINE void gather_rows(const cuda_rows_args &a) {
        uint64_t row_bytes = a.n_columns * a.element_bytes;
        if (is_aborted(a.abort))
                return;
        ROLLED for (uint64_t row = blockIdx.x; row < a.n_rows; row += gridDim.x) {
                int64_t index = index_at(a, row);
                if (is_row(a, index))
                        move_bytes(
                                a.table + (uint64_t)index * row_bytes, a.rows + row * row_bytes, row_bytes);
                else if (threadIdx.x == 0)
                        note_beyond(a, row);
        }
}

/* What the sums are kept in between the inputs: what is combined in f32 is not rounded until all are there.
 */
template <class T> struct Accumulator { typedef T Type; };
template <> struct Accumulator<f16> { typedef f32 Type; };
template <> struct Accumulator<bf16> { typedef f32 Type; };

template <class T> INLINE void add_element(typename Accumulator<T>::Type *sum, T v) {
        narrow(add(widen(*sum), widen(v)), sum);
}

/* Each row of the table belongs to one block, and each of its columns to one thread of that: it meets what is
 * to be added in the order in which it is there. So the same bits come out whatever runs first, without
 * sorting. Every block reads all the indices, which are few beside the rows. */
template <class T> INLINE void scatter_add(const cuda_rows_args &a) {
        typename Accumulator<T>::Type *sums = (typename Accumulator<T>::Type *)a.table;
        if (is_aborted(a.abort))
                return;
        ROLLED for (uint64_t row = 0; row < a.n_rows; row++) {
                int64_t index = index_at(a, row);
                if (!is_row(a, index)) {
                        if (first_of_thread() == 0)
                                note_beyond(a, row);
                        continue;
                }
                if ((uint64_t)index % gridDim.x != blockIdx.x)
                        continue;
                ROLLED for (uint64_t c = threadIdx.x; c < a.n_columns; c += blockDim.x) add_element(
                        &sums[(uint64_t)index * a.n_columns + c], ((const T *)a.rows)[row * a.n_columns + c]);
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
