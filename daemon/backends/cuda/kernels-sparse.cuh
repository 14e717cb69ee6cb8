/* Sparse values: indices are looked at, sorted and numbered, and rows of equal index become one.
 *
 * No thread waits for another. A pair of index and position finds its place in a sorted run by counting those
 * before it, in a merged one by bisection of the other run; a row of the result is combined from the first
 * row that is brought to it to the last, by one thread for each column. So whichever block runs first, the
 * bits are the same. */
#pragma once

#include "backends/cuda/kernels-pass.cuh"

/* --- indices come in --- */

INLINE int64_t index_at(uint64_t indices, uint32_t index_bytes, uint64_t i) {
        return index_bytes == 4 ? Volatile<int32_t>::read((const int32_t *)indices + i)
                                : Volatile<int64_t>::read((const int64_t *)indices + i);
}

INLINE void set_index(uint64_t indices, uint32_t index_bytes, uint64_t i, int64_t index) {
        if (index_bytes == 4)
                ((int32_t *)indices)[i] = (int32_t)index;
        else
                ((int64_t *)indices)[i] = index;
}

/* What is looked at is what is kept: the client may write there meanwhile. */
INLINE void take_indices(const cuda_indices_args &a) {
        if (is_aborted(a.abort))
                return;
        ROLLED for (uint64_t block = (uint64_t)blockIdx.x * blockDim.x; block < a.n; block += all_threads()) {
                uint64_t i = block + threadIdx.x;
                int64_t index = i < a.n ? index_at(a.from, a.index_bytes, i) : 0;
                bool is_bad = i < a.n && (index < 0 || (uint64_t)index >= a.bound);
                if (i < a.n)
                        set_index(a.to, a.index_bytes, i, index);
                if (is_bad)
                        *(volatile uint32_t *)a.stop = 1;
                note_count(a.found, i, is_bad);
        }
}

/* The first bad one, once all have been looked at. */
INLINE void tell_index(const cuda_indices_args &a) {
        cuda_bad_index *found = (cuda_bad_index *)a.found;
        if (first_of_thread() == 0 && found->count.n > 0)
                found->value = index_at(a.to, a.index_bytes, UINT64_MAX - found->count.first_back);
}

/* --- pairs are sorted --- */

INLINE bool is_before(const cuda_pair &a, const cuda_pair &b) {
        return a.index != b.index ? a.index < b.index : a.position < b.position;
}

INLINE uint64_t least(uint64_t a, uint64_t b) {
        return a < b ? a : b;
}

/* Positions grow within a block, so equal indices keep their order. */
INLINE void order_sort(const cuda_order_args &a) {
        cuda_pair *pairs = (cuda_pair *)a.to;
        if (is_aborted(a.abort))
                return;
        ROLLED for (uint64_t i = first_of_thread(); i < a.n; i += all_threads()) {
                uint64_t first = i / CUDA_ORDER_BLOCK * CUDA_ORDER_BLOCK, at = first;
                uint64_t behind = least(first + CUDA_ORDER_BLOCK, a.n);
                int64_t index = index_at(a.from, a.index_bytes, i);
                ROLLED for (uint64_t k = first; k < behind; k++) {
                        int64_t other = index_at(a.from, a.index_bytes, k);
                        at += other < index || (other == index && k < i);
                }
                pairs[at] = { index, i };
        }
}

/* How many of the sorted pairs [first, behind) are before `pair`. */
INLINE uint64_t count_before(const cuda_pair *pairs, uint64_t first, uint64_t behind, const cuda_pair &pair) {
        uint64_t low = first, high = behind;
        while (low < high) {
                uint64_t middle = low + (high - low) / 2;
                if (is_before(pairs[middle], pair))
                        low = middle + 1;
                else
                        high = middle;
        }
        return low - first;
}

/* Every two runs become one. */
INLINE void order_merge(const cuda_order_args &a) {
        const cuda_pair *from = (const cuda_pair *)a.from;
        if (is_aborted(a.abort))
                return;
        ROLLED for (uint64_t i = first_of_thread(); i < a.n; i += all_threads()) {
                cuda_pair pair = from[i];
                uint64_t run = i / a.run, other = least((run ^ 1) * a.run, a.n);
                uint64_t at = run / 2 * 2 * a.run + (i - run * a.run) +
                              count_before(from, other, least(other + a.run, a.n), pair);
                ((cuda_pair *)a.to)[at] = pair;
        }
}

/* --- rows of the result get their numbers --- */

INLINE bool begins_row(const cuda_pair *pairs, uint64_t i) {
        return i == 0 || pairs[i].index != pairs[i - 1].index;
}

INLINE uint64_t count_rows(const cuda_pair *pairs, uint64_t first, uint64_t behind) {
        uint64_t n = 0;
        ROLLED for (uint64_t i = first; i < behind; i++) n += begins_row(pairs, i);
        return n;
}

INLINE void order_count(const cuda_order_args &a) {
        const cuda_pair *pairs = (const cuda_pair *)a.from;
        if (is_aborted(a.abort))
                return;
        ROLLED for (uint64_t b = first_of_thread(); b * CUDA_ORDER_BLOCK < a.n; b += all_threads())(
                (uint64_t *)a.numbers)[b] =
                count_rows(pairs, b * CUDA_ORDER_BLOCK, least((b + 1) * CUDA_ORDER_BLOCK, a.n));
}

/* By one thread: a number for each block of pairs. */
INLINE void order_number(const cuda_order_args &a) {
        uint64_t *numbers = (uint64_t *)a.numbers, total = 0;
        if (is_aborted(a.abort) || first_of_thread() > 0)
                return;
        ROLLED for (uint64_t b = 0; b < a.n; b++) {
                uint64_t n = numbers[b];
                numbers[b] = total;
                total += n;
        }
        *(uint64_t *)a.found = total;
        if (total > a.room)
                *(volatile uint32_t *)a.stop = 1;
}

/* How many rows begin before pair `i`. */
INLINE uint64_t rows_before(const cuda_order_args &a, uint64_t i) {
        return ((const uint64_t *)a.numbers)[i / CUDA_ORDER_BLOCK] +
               count_rows((const cuda_pair *)a.from, i / CUDA_ORDER_BLOCK * CUDA_ORDER_BLOCK, i);
}

/* A thread has CUDA_ORDER_STRIP pairs that follow each other: those before it are counted once for all. */
INLINE void order_write(const cuda_order_args &a) {
        const cuda_pair *pairs = (const cuda_pair *)a.from;
        const uint64_t *outputs = (const uint64_t *)a.table;
        if (is_aborted(a.abort))
                return;
        ROLLED for (uint64_t first = first_of_thread() * CUDA_ORDER_STRIP; first < a.n;
                    first += all_threads() * CUDA_ORDER_STRIP) {
                uint64_t row = rows_before(a, first), behind = least(first + CUDA_ORDER_STRIP, a.n);
                ROLLED for (uint64_t i = first; i < behind; i++) {
                        if (!begins_row(pairs, i))
                                continue;
                        ROLLED for (uint32_t o = 0; row < a.room && o < a.n_table; o++)
                                set_index(outputs[o], a.index_bytes, row, pairs[i].index);
                        row++;
                }
        }
}

/* --- rows of equal index become one --- */

INLINE uint64_t address_of_row(const cuda_order_args &a, uint64_t position) {
        const cuda_half_rows *halves = (const cuda_half_rows *)a.table;
        uint32_t low = 0, high = a.n_table;
        while (high - low > 1) {
                uint32_t middle = low + (high - low) / 2;
                if (halves[middle].first_row <= position)
                        low = middle;
                else
                        high = middle;
        }
        return halves[low].address + (position - halves[low].first_row) * halves[low].stride_bytes;
}

/* Of each pair: in which row it meets others, and where what it stands for is. */
INLINE void order_place(const cuda_order_args &a) {
        const cuda_pair *pairs = (const cuda_pair *)a.from;
        cuda_row_place *places = (cuda_row_place *)a.to;
        if (is_aborted(a.abort))
                return;
        ROLLED for (uint64_t first = first_of_thread() * CUDA_ORDER_STRIP; first < a.n;
                    first += all_threads() * CUDA_ORDER_STRIP) {
                uint64_t begun = rows_before(a, first), behind = least(first + CUDA_ORDER_STRIP, a.n);
                ROLLED for (uint64_t i = first; i < behind; i++) {
                        begun += begins_row(pairs, i);
                        places[i] = { begun - 1, address_of_row(a, pairs[i].position) };
                }
        }
}

/* Division of 64 bits is slow here. */
INLINE uint64_t quotient_of(uint64_t a, uint64_t b) {
        return (a | b) >> 32 ? a / b : (uint32_t)a / (uint32_t)b;
}

template <class P> INLINE typename P::Stored load_of_row(const cuda_row_place &place, uint64_t column) {
        return Volatile<typename P::Stored>::read((const typename P::Stored *)place.address + column);
}

/* Operand 0 are the places; the words behind the operands are the outputs' strides. */
template <class P> INLINE void join_rows(const cuda_args &a) {
        const cuda_row_place *places = (const cuda_row_place *)operand_at(a, 0);
        const uint64_t n = quotient_of(a.count, a.row_elements);
        if (is_aborted(a.abort))
                return;
        ROLLED for (uint64_t e = first_of_thread(); e < a.count; e += all_threads()) {
                uint64_t i = quotient_of(e, a.row_elements), column = e - i * a.row_elements;
                uint64_t row = places[i].row;
                if ((i > 0 && places[i - 1].row == row) || row >= a.room)
                        continue;
                typename P::Wide sum = P::begin(a, load_of_row<P>(places[i], column), 0);
                ROLLED for (uint64_t k = i + 1; k < n && places[k].row == row; k++) sum =
                        P::combine(a, sum, load_of_row<P>(places[k], column), 0);
                typename P::Output result = P::finish(a, sum);
                ROLLED for (uint32_t o = 1; o <= a.n_outputs; o++)((typename P::Output *)operand_at(
                        a, o))[row * word_at(a, a.n_outputs + o) + column] = result;
        }
}
