/* How the pieces of a plan travel: pointers are numbers, and every byte is said. Shared by worker-protocol.c,
 * which looks at packets, and worker-parcel.c, which makes plans of them. */
#pragma once

#include "worker-protocol.h"

struct record_signal {
        uint64_t page; /* its number */
        uint64_t value;
        uint32_t slot, reserved;
};

struct record_scratch {
        uint64_t n_bytes;
        uint32_t device, reserved;
};

struct record_step {
        uint64_t count, first_element, fold_count;
        uint64_t bound, run, room, row_elements;
        double total_weight;
        uint64_t shape[MAX_DIMS];
        uint32_t kind, device, op, dtype, output_dtype, rounding, flags;
        uint32_t n_inputs, n_outputs, divisor, entry, n_dims, n_folds, fold_dtype, stage, room_rank;
};

#define RECORD_HAS_WEIGHTS    1u
#define RECORD_CHECK_NUMERICS 2u
#define RECORD_CHECK_OVERFLOW 4u
#define RECORD_CHECK_INPUTS   8u
#define RECORD_FLAGS          15u

struct record_operand {
        uint64_t memory; /* its number; 0: scratch, or nothing */
        uint64_t offset_bytes, buffer, result, checksum;
        double weight;
        uint64_t first_row, n_rows, row_stride;
        uint32_t scratch, rank;
};

/* The bytes of one. */
uint32_t worker_record_bytes(uint32_t record);
