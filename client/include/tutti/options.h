/* How one collective is to be done: part of tutti.h, which includes it. */
#ifndef TUTTI_OPTIONS_H
#define TUTTI_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

/* How MEAN of integers comes back to their own type. NEAREST: ties to even. */
enum tutti_rounding { TUTTI_ROUNDING_UNSPECIFIED = 0, TUTTI_TRUNC, TUTTI_FLOOR, TUTTI_NEAREST };

/* How TensorFlow and others name it. On the host, AUTO and RING are the pass in rank order, and so is NCCL,
 * which it does not have; `tuttictl plan` says so. */
enum tutti_implementation { TUTTI_IMPLEMENTATION_UNSPECIFIED = 0, TUTTI_AUTO, TUTTI_RING, TUTTI_NCCL };

/* Options of one collective; NULL is all defaults. Timeout, weight and priority are this replica's own, the
 * others must be equal in all. */
struct tutti_options {
        size_t struct_size;
        double timeout; /* s, from this call on; 0: the membership's default; < 0: none */
        /* MEAN of integers has no result until somebody says what becomes of the fraction: this, or an output
         * of F32 (8 and 16 bits) or F64 (32 and 64 bits). */
        enum tutti_rounding rounding;
        /* SUM and MEAN of F16 to F64: this contribution is multiplied by `weight`, and MEAN divided by the
         * sum of the weights. 0 leaves it out, whatever it holds; all 0 is INVALID for a MEAN. All replicas
         * or none have one. */
        int has_weight;
        double weight;
        /* Look for NaNs and infinities in the inputs (of a broadcast: the root's), or for sums and products
         * of integers that wrap. The result stays as it is; tutti_result says what was found, and tuttid's
         * log. */
        int check_numerics, check_overflow;
        /* Look whether anybody changes an input between this call and the time when tuttid reads it. Each
         * replica sends a checksum of its inputs, and tuttid computes it again from what it reads; where they
         * differ, all get INVALID, field DATA, with the rank and the entry, and outputs_undefined. What is
         * changed after it was read makes no wrong numbers and is not seen. Costs a pass over the inputs on
         * both sides: for debugging. */
        int check_inputs;
        /* Which way: "one_device", "hierarchical_copy", "library"; NULL: as tuttid's table says. What cannot
         * be done is UNSUPPORTED. `device` ("CPU:1") is the one that reduces, also one that holds no replica:
         * one_device alone. */
        const char *algorithm;
        const char *device;
        enum tutti_implementation implementation; /* a hint: what cannot be done is done another way */
        /* Whatever else is asked for, the numbers are those of the pass in rank order. */
        int reproducible;
        /* The values of a batch in packs, by the first that is given: num_packs cuts all values of a type,
         * end to end, into so many; agg_small_grads_... make packs of neighbours of at most so many bytes
         * each, at most so many to a pack; bytes_per_pack takes whole values, from the last one on, until a
         * pack is larger. Which numbers come out depends on packs with "library" alone. */
        uint32_t num_packs;
        uint32_t agg_small_grads_max_group;
        uint64_t agg_small_grads_max_bytes;
        uint64_t bytes_per_pack;
        /* Of one user's collectives that wait for a worker of a host device the highest goes first, among
         * equals the one sealed first; one that waits longest of all is passed over fifteen times at most.
         * Each replica's own: the highest word of a collective's replicas counts. Users come in turn,
         * whatever they say here; on GPUs collectives go in the order in which they are sealed. */
        int32_t priority;
        uint64_t reset; /* TUTTI_RESET_..., or'd */
        /* The CUDA stream (CUstream, cudaStream_t; NULL is the default stream) on which values in device
         * memory are computed, and whether there is one: tutti/cuda.h. A call's alone. */
        int has_stream;
        void *stream;
        /* Sparse values: each index stands in the result once, in ascending order, and its rows are combined
         * in the order of the ranks (of one rank: as they stand there), rounded once; op is SUM, MEAN
         * (divided by the contributors, not by how many rows met), MIN or MAX. Otherwise the rows of all
         * replicas stand behind one another. */
        int coalesce;
};

/* A call's options are merged with those that its membership was joined with: a field that the call gives
 * (not its default) counts, for any other that of the membership, unless the call resets it: then it has its
 * default. `algorithm` and `device` are one field, so are the four of packing, and the three checks. What a
 * membership says of rounding counts for means of integers that stay integers, of weights for SUM and MEAN,
 * of coalesce for reductions, and for nothing else; a call that says it for something else is refused. */
#define TUTTI_RESET_TIMEOUT        (UINT64_C(1) << 0)
#define TUTTI_RESET_ROUNDING       (UINT64_C(1) << 1)
#define TUTTI_RESET_WEIGHT         (UINT64_C(1) << 2)
#define TUTTI_RESET_CHECKS         (UINT64_C(1) << 3)
#define TUTTI_RESET_ALGORITHM      (UINT64_C(1) << 4)
#define TUTTI_RESET_IMPLEMENTATION (UINT64_C(1) << 5)
#define TUTTI_RESET_REPRODUCIBLE   (UINT64_C(1) << 6)
#define TUTTI_RESET_PACKING        (UINT64_C(1) << 7)
#define TUTTI_RESET_PRIORITY       (UINT64_C(1) << 8)
#define TUTTI_RESET_COALESCE       (UINT64_C(1) << 9)
#define TUTTI_RESET_ALL            UINT64_MAX

#define TUTTI_OPTIONS(...)                                                                                   \
        ((struct tutti_options){ .struct_size = sizeof(struct tutti_options), __VA_ARGS__ })

#endif
