/* What the kernels on a GPU are given: one parameter each, by value. Plain data with the same layout in C
 * (who fills it, kernels.c) and in CUDA C++ (who reads it, kernels.cu). Addresses are the device's, as
 * numbers. */
#pragma once

#include <stdint.h>

#define CUDA_BLOCK      256   /* threads, of every kernel */
#define CUDA_MOVE_BYTES 16384 /* that a block of `move` takes at a time */
#define CUDA_MAX_DIMS   8
/* Words about operands that travel with the launch. Beyond them they are in a table in device memory. */
#define CUDA_INLINE_WORDS 96

/* What a check has found of one thing. A block of zeros is "nothing": so it is made ready by one memset. */
struct cuda_count {
        uint64_t n;          /* elements */
        uint64_t first_back; /* UINT64_MAX - index of the first; 0 where n is 0 */
};

/* A run is let through without effect when the word at `abort` is not 0 (0: no such word). */

/* Of every kernel that goes over elements. */
struct cuda_args {
        uint64_t count; /* elements */
        uint64_t abort;
        /* 0, or where the words are: addresses of the inputs, then of the outputs; with weights: those of the
         * inputs (bits of f64); with n_dims: strides in elements, [n_dims] of each operand; with n_folds:
         * of each input n_folds lengths, then as many strides. */
        uint64_t table;
        uint64_t nonfinite; /* struct cuda_count of each input, or 0 */
        uint64_t sums;      /* uint64_t of each input, added to, or 0 */
        uint64_t wrapped;   /* struct cuda_count */
        double total_weight, quotient;
        uint32_t n_inputs, n_outputs;
        uint32_t divisor, rounding;
        uint32_t has_weights;
        uint32_t has_vectors; /* all operands are dense and lie on 16-byte borders */
        uint32_t n_dims;
        uint32_t n_folds;    /* folded: dimensions of each input that are combined, too */
        uint32_t is_product; /* wrapped: of products, not of sums */
        uint32_t reserved;
        uint64_t row_elements, room; /* joined: of a row; rows that the outputs can have */
        uint64_t shape[CUDA_MAX_DIMS];
        uint64_t words[CUDA_INLINE_WORDS];
};

/* Of `move`: many pieces of memory to where they belong. */
struct cuda_segment {
        uint64_t from, to; /* addresses */
        uint64_t start;    /* bytes of all segments before it */
        uint64_t n_bytes;
};

struct cuda_move_args {
        uint64_t abort;
        uint64_t segments; /* struct cuda_segment [n_segments], in device memory, none of them empty */
        uint64_t n_segments;
        uint64_t n_bytes; /* of all */
};

/* --- sparse values, as plan.h has them --- */

#define CUDA_ORDER_BLOCK 1024 /* pairs of which rows are counted together */
#define CUDA_ORDER_STRIP 16   /* pairs that one thread numbers */

struct cuda_pair {
        int64_t index;
        uint64_t position;
};

/* Of each pair, once its rows are numbered: which row of the result, and the address of what it brings. */
struct cuda_row_place {
        uint64_t row, address;
};

/* What one rank brings. */
struct cuda_half_rows {
        uint64_t address, first_row, stride_bytes;
};

struct cuda_bad_index {
        struct cuda_count count;
        int64_t value; /* of the first */
};

/* Of `take_indices` and `tell_index`. */
struct cuda_indices_args {
        uint64_t abort;
        uint64_t from, to; /* addresses: [n] of i32 or i64 */
        uint64_t found;    /* address of struct cuda_bad_index */
        uint64_t stop;     /* address of a uint32_t that is set where one is bad */
        uint64_t n, bound;
        uint32_t index_bytes, reserved; /* 4 or 8 */
};

/* Of `order_*`: by the stage. Addresses, but for the last six. */
struct cuda_order_args {
        uint64_t abort, stop;
        uint64_t from, to; /* pairs; sort: from indices; place: to struct cuda_row_place */
        uint64_t numbers;  /* of each block of pairs: how many rows begin in it, then before it */
        uint64_t found;    /* uint64_t: how many rows there are */
        uint64_t table;    /* write: addresses of outputs; place: struct cuda_half_rows */
        uint64_t n, run, room;
        uint32_t n_table;
        uint32_t index_bytes;
};

/* Of `fill` and `verify`: a pattern that differs in every word and for every seed. */
struct cuda_pattern_args {
        uint64_t at;      /* address, on an 8-byte border */
        uint64_t n_words; /* of 8 bytes */
        uint64_t seed;
        uint64_t wrong; /* verify: address of struct cuda_count: words that differ */
};
