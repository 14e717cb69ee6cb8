/* The numbers of tutti on a GPU: which kernel does a step, and how it is launched. Pure; no driver, no
 * device.
 *
 * Every bit is the host's (backends/host/kernels.h, docs/numbers.md): inputs are combined in the order given,
 * in the same types, rounded at the same places. The kernels are kernels.cu; tests run the same source on
 * the CPU. An output may be equal to one input whose elements have its size, and otherwise overlaps nothing;
 * operands need the alignment of their elements (of complex numbers: of their parts).
 *
 * A launch takes one parameter: cuLaunchKernel(function_of(l.kernel), l.grid..., l.block..., 0, stream,
 * (void *[]){ &l.args }, NULL). No kernel needs shared memory, waits for another block, or allocates. */
#pragma once

#include <stdint.h>
#include "backends/cuda/kernels-args.h"
#include "backends/cuda/kernels-list.h"
#include "base/check.h"
#include "model/dtype.h"
#include "model/op.h"
#include "model/rounding.h"

/* Each kernel that goes over elements is there twice: the second looks for NaNs and sums up what it reads. Of
 * those that combine there is a third, which does so over axes too. */
#define CUDA_KERNEL_PAIR(name, ...) CUDA_KERNEL_##name, CUDA_KERNEL_checked_##name,
#define CUDA_KERNEL_FOLD(name, ...) CUDA_KERNEL_folded_##name,
#define CUDA_KERNEL_ROW(name, ...)  CUDA_KERNEL_joined_##name,
#define CUDA_KERNEL_ONE(name, ...)  CUDA_KERNEL_##name,
enum cuda_kernel {
        CUDA_KERNEL_NONE,
        CUDA_ELEMENT_KERNELS(CUDA_KERNEL_PAIR) CUDA_REDUCTIONS(CUDA_KERNEL_FOLD)
                CUDA_ROW_KERNELS(CUDA_KERNEL_ROW) CUDA_COUNTING_KERNELS(CUDA_KERNEL_ONE)
                        CUDA_OTHER_KERNELS(CUDA_KERNEL_ONE) N_CUDA_KERNELS
};

/* Its name in the module: "tutti_sum_f32". Not of CUDA_KERNEL_NONE. */
const char *cuda_kernel_name(enum cuda_kernel kernel);

struct cuda_launch {
        enum cuda_kernel kernel;
        uint32_t grid[3], block[3];
        union {
                struct cuda_args elements;
                struct cuda_move_args move;
                struct cuda_indices_args indices;
                struct cuda_order_args order;
                struct cuda_pattern_args pattern;
        } args;
};

/* As many blocks as there is work for, and no more than keep the device busy. */
void cuda_launch_set_grid(struct cuda_launch *l, uint64_t n_blocks, uint32_t n_multiprocessors);

/* A step of a plan, with addresses of the device for its operands. */
struct cuda_step {
        enum cuda_work {
                CUDA_REDUCE,
                CUDA_COPY, /* input 0 to every output */
        } work;
        enum op op; /* these four: of REDUCE */
        enum rounding rounding;
        uint32_t divisor;               /* MEAN without weights: >= 1 */
        double total_weight;            /* with weights */
        enum dtype dtype, output_dtype; /* COPY: dtype alone */
        uint64_t count;                 /* elements */
        uint32_t n_inputs, n_outputs;
        const uint64_t *operands; /* addresses, [n_inputs + n_outputs] */
        const double *weights;    /* [n_inputs] or NULL; an input of weight 0 is not read */
        /* Where not all operands are dense; n_dims 0: all are. */
        uint32_t n_dims;
        const uint64_t *shape;   /* [n_dims] */
        const uint64_t *strides; /* in elements, [n_dims] of each operand */
        /* REDUCE over dimensions of the inputs, too; without checks. */
        uint32_t n_folds;
        const uint64_t *folds; /* of each input n_folds lengths, none of them 0, then as many strides */
        /* Addresses in device memory that the device writes, 0: not asked for; all of it zero before. */
        uint64_t nonfinite; /* struct cuda_count [n_inputs]: NaNs and infinities (check_numerics) */
        uint64_t sums;      /* uint64_t [n_inputs]: checksums of what was read (check_inputs) */
        uint64_t wrapped;   /* struct cuda_count: results that wrapped (check_overflow) */
        uint64_t abort;     /* address of a uint32_t; while it is not 0 nothing is written */
        uint32_t n_multiprocessors;
        /* Where cuda_step_table_bytes is not 0: that much memory of the host, which prepare fills, and where
         * the caller will have copied it to on the device before the launch. */
        uint64_t *table;
        uint64_t table_at;
};

/* 0: all goes with the launch. */
uint64_t cuda_step_table_bytes(const struct cuda_step *s);

#define CUDA_STEP_LAUNCHES 2
/* How a step is launched, one after the other on one stream: returns how many launches there are (none for no
 * elements), or -EINVAL when there is no kernel for it. */
int cuda_step_prepare(const struct cuda_step *s, struct cuda_launch ret[CUDA_STEP_LAUNCHES]) MUST_USE;

/* The index of the first one found, where n > 0. */
static inline uint64_t cuda_count_first(const struct cuda_count *c) {
        return UINT64_MAX - c->first_back;
}

/* --- packs, patterns: each fills one launch; 0, or -EINVAL --- */

/* Copies many pieces of memory, which do not overlap, in one launch: into a pack and out of it. Sets `start`
 * of each of `segments` (on the host); empty ones are not allowed. `at`: where they will be on the device. */
struct cuda_move {
        struct cuda_segment *segments;
        uint64_t n_segments;
        uint64_t at;
        uint64_t abort;
        uint32_t n_multiprocessors;
};
int cuda_move_prepare(const struct cuda_move *m, struct cuda_launch *ret) MUST_USE;

/* Fills n_words of 8 bytes with a pattern, and counts in `wrong` (zero before) those that are not as they
 * were filled: what a path has lost, doubled or moved is seen. */
struct cuda_pattern {
        uint64_t at, n_words, seed;
        uint64_t wrong; /* verify: address of a struct cuda_count */
        uint32_t n_multiprocessors;
};
int cuda_fill_prepare(const struct cuda_pattern *p, struct cuda_launch *ret) MUST_USE;
int cuda_verify_prepare(const struct cuda_pattern *p, struct cuda_launch *ret) MUST_USE;
