/* Sparse values on a GPU (plan.h: INDICES, ORDER, SCATTER_ADD): which kernels do a step, and how they are
 * launched. Pure, as kernels.h, whose rules hold here too.
 *
 * What ends a run before anything is written is noted at `found`, and sets the word at `stop`: kernels that
 * are given that word as `abort` do nothing from then on. */
#pragma once

#include "backends/cuda/kernels.h"
#include "plan.h"

/* Indices of one rank come in, and each is held against `bound`. */
struct cuda_indices {
        enum dtype dtype; /* i32 or i64 */
        uint64_t from, to, n, bound;
        uint64_t found; /* struct cuda_bad_index, zero before */
        uint64_t stop, abort;
        uint32_t n_multiprocessors;
};
#define CUDA_INDICES_LAUNCHES 2
/* How many launches there are, or -EINVAL. */
int cuda_indices_prepare(
        const struct cuda_indices *s, struct cuda_launch ret[CUDA_INDICES_LAUNCHES]) MUST_USE;

/* One stage on the way from indices to rows of equal index. */
struct cuda_order {
        enum order_stage stage;
        enum dtype dtype; /* SORT, WRITE: of the indices */
        uint64_t from, to;
        uint64_t numbers;     /* COUNT, NUMBER, WRITE */
        uint64_t n;           /* pairs; NUMBER: blocks */
        uint64_t run;         /* MERGE */
        uint64_t room;        /* NUMBER: rows that may be; WRITE: that can be, whatever is found */
        uint64_t found, stop; /* NUMBER: uint64_t, how many rows there are */
        uint64_t table;       /* WRITE: addresses of the outputs, in device memory */
        uint32_t n_table;
        uint64_t abort;
        uint32_t n_multiprocessors;
};
int cuda_order_prepare(const struct cuda_order *s, struct cuda_launch *ret) MUST_USE;

/* Rows of equal index become one. */
struct cuda_join {
        enum op op;
        enum dtype dtype;
        uint32_t divisor; /* MEAN */
        uint64_t pairs, numbers, places;
        uint64_t n_pairs, row_elements;      /* >= 1 */
        uint64_t room;                       /* rows that the outputs can have, whatever is found */
        const struct cuda_half_rows *halves; /* [n_halves] */
        uint32_t n_halves, n_outputs;        /* both >= 1 */
        const uint64_t *outputs, *strides;   /* [n_outputs]: addresses; elements from row to row */
        uint64_t *table;                     /* as of cuda_step, always */
        uint64_t table_at;
        uint64_t abort;
        uint32_t n_multiprocessors;
};
uint64_t cuda_join_table_bytes(uint32_t n_halves, uint32_t n_outputs);
#define CUDA_JOIN_LAUNCHES 2
int cuda_join_prepare(const struct cuda_join *s, struct cuda_launch ret[CUDA_JOIN_LAUNCHES]) MUST_USE;
