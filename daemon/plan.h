/* What will be executed, as a value: made once, centrally, frozen, printable.
 *
 * Steps are independent unless a JOIN stands between them: JOINs cut a plan into phases, and what one phase
 * writes the next may read. The bytes of all steps (of one input each) laid end to end are the plan's index
 * space, which is cut into chunks; a chunk is what a worker runs without looking up, and lies in one phase
 * and on one device. A plan is reused: reset keeps its memory. Pure; passed with the task as a baton, so one
 * thread has it at a time (during a run, read-only to all workers). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/check.h"
#include "base/text.h"
#include "model/dtype.h"
#include "model/op.h"
#include "model/signature.h"

enum step_kind {
        STEP_COPY,        /* input 0 to every output */
        STEP_REDUCE,      /* inputs in the order given (rank order), the result once to every output */
        STEP_SCATTER_ADD, /* sparse rows of equal index are combined: see below */
        STEP_JOIN,        /* what stands before is complete before what stands behind begins */
        STEP_LIBRARY,     /* the backend's own collective */
        STEP_INDICES,     /* input 0, indices, to output 0 in scratch, where each is held against `bound` */
        STEP_ORDER,       /* sparse: on the way to SCATTER_ADD, in scratch alone: see below */
};

/* How sparse rows of equal index find each other, a step each with a JOIN behind. All indices of an entry lie
 * behind one another in scratch, in the order of the ranks: their positions. They become pairs of index and
 * position, which are sorted by both; where an index first stands in that order a row of the result begins.
 *
 * The last step is SCATTER_ADD. Its inputs are the rows that each rank brought (first_row, n_rows,
 * row_stride), then the sorted pairs, the numbers of the blocks, and room for an address per pair; its
 * outputs, with a row_stride, the rows of the result. Its elements are those of all rows that were brought.
 */
enum order_stage {
        ORDER_SORT,   /* input 0, indices -> output 0, pairs, sorted within blocks of ORDER_BLOCK */
        ORDER_MERGE,  /* pairs, sorted in runs of `run`, -> pairs, sorted in twice as long ones */
        ORDER_COUNT,  /* sorted pairs -> how many rows begin in each block */
        ORDER_NUMBER, /* those of `bound` blocks -> how many begin before each; the sum is the length of the
                         result, which plan_extents has and `room` must hold */
        ORDER_WRITE,  /* input 0, sorted pairs, input 1, numbers -> each index once, to every output */
};

#define SCATTER_ORDER    3u /* inputs of SCATTER_ADD behind the rows */
#define ORDER_BLOCK      1024u
#define ORDER_PAIR_DTYPE DTYPE_C128 /* as large as one */

struct order_pair {
        int64_t index;
        uint64_t position;
};

enum plan_order { ORDER_RANK, ORDER_TREE, ORDER_LIBRARY };

struct operand {
        struct memory *memory; /* the backend's; never opened here */
        uint64_t offset_bytes; /* in it */
        uint64_t buffer;       /* id, for printing */
        uint64_t result;       /* the same of a result object; 0: none */
        uint32_t scratch;      /* not 0: no client's memory, but the plan's own area scratch - 1 */
        uint32_t rank;
        double weight;     /* of an input, where the step has weights */
        uint64_t checksum; /* of an input, where the step checks inputs: what it had when it was submitted */
        /* SCATTER_ADD: which rows, counted over all ranks, begin here; how many; elements from one to the
         * next
         */
        uint64_t first_row, n_rows, row_stride;
};

/* Memory that a plan needs for what lies between its steps; whoever runs it brings it. */
struct scratch {
        uint32_t device; /* where: device_parse's number */
        uint64_t n_bytes;
        struct memory *memory; /* set by whoever runs the plan; never opened here */
};

/* Areas of one plan: one for each device that needs any. */
#define MAX_SCRATCH 128

/* Steps that follow each other in one phase on one device: a stretch of the index space with chunks of its
 * own. */
struct part {
        uint32_t device, phase;
        uint32_t first_step, end_step;
        uint64_t start_bytes, n_bytes;
        uint64_t first_chunk, n_chunks;
};

struct step {
        enum step_kind kind;
        uint32_t device; /* that executes it; a JOIN waits for all */
        enum op op;
        enum dtype dtype, output_dtype; /* of the outputs: unspecified becomes dtype */
        enum rounding rounding;         /* MEAN of integers to their own type */
        bool has_weights, check_numerics, check_overflow, check_inputs;
        uint32_t n_inputs, n_outputs;
        uint32_t first_operand; /* in plan->operands: inputs, then outputs */
        uint32_t divisor;       /* of MEAN without weights */
        double total_weight;    /* of all inputs, where the step has weights */
        uint32_t entry;         /* of the batch, for messages */
        uint64_t count;         /* elements */
        /* Where a step that has only a part of its entry begins in it, and where that part is cut into runs
         * (run_elements not 0), from one to the next: for messages. */
        uint64_t first_element, run_elements, run_stride;
        enum order_stage stage; /* ORDER */
        uint64_t bound;         /* INDICES, ORDER_NUMBER */
        uint64_t run;           /* ORDER_MERGE */
        uint64_t room;          /* ORDER_NUMBER: rows, and whose output has no more */
        uint32_t room_rank;
        uint64_t row_elements; /* SCATTER_ADD */
        /* Where not all operands are dense: how the elements lie, as plan_strides tells for each operand.
         * n_dims 0: dense, all of them. */
        uint32_t n_dims;
        uint64_t shape[MAX_DIMS];
        uint64_t first_stride; /* in plan->strides: n_dims for each operand */
        /* A REDUCE over dimensions of its inputs, too: how many, which plan_fold tells for each. `shape` is
         * that of the result. */
        uint32_t n_folds;
        uint64_t first_fold;   /* in plan->strides */
        uint64_t fold_count;   /* the most elements of one input that are combined into one */
        enum dtype fold_dtype; /* in which; unspecified: integers exactly, for their mean */
        uint64_t start_bytes;  /* where it begins in the index space; set by plan_freeze */
        uint64_t n_bytes;      /* its share of the index space; set by plan_freeze */
};

struct plan {
        const char *algorithm;
        const char *why;    /* it was chosen: the end of a sentence; or NULL */
        char fallback[192]; /* what was wished for and is not done, and why; "": nothing */
        enum plan_order order;
        uint32_t device; /* the first among those that execute it: device_parse's number */
        struct step *steps;
        uint32_t n_steps, steps_capacity;
        struct operand *operands;
        uint32_t n_operands, operands_capacity;
        /* [n_operands] where inputs are checked: the checksums of what was read. The one thing that workers
         * write in a plan; each adds its part. */
        _Atomic uint64_t *sums;
        uint32_t sums_capacity;
        uint64_t *strides;
        uint32_t n_strides, strides_capacity;
        struct scratch *scratch;
        uint32_t n_scratch, scratch_capacity;
        /* Where the length of results is known only when all halves are there: of each entry, where each
         * half's part begins in it, in the order of the halves, and how long the whole is. None elsewhere. */
        uint64_t *extents;
        uint32_t n_extents, extents_capacity, extents_of_entry;
        uint64_t slot_offset_bytes; /* where the slot begins that its results lie in, in their object */
        bool has_joins;             /* chunks are not independent */
        /* Frozen: in the order of their phases, within a phase of their devices; so are their chunks. */
        struct part *parts;
        uint32_t n_parts, parts_capacity;
        uint32_t n_phases;
        bool is_frozen;
        uint64_t total_bytes; /* of the index space */
        uint64_t moved_bytes; /* read and written, over all operands */
        uint64_t chunk_bytes;
        uint64_t n_chunks;
};

const char *plan_order_name(enum plan_order order); /* "rank" */

void plan_init(struct plan *p);
void plan_deinit(struct plan *p);
/* Empty again; keeps its memory. */
void plan_reset(struct plan *p);

/* Appends a step with room for its operands, and where it has n_dims for their strides, which the caller
 * fills. NULL when memory is short. The pointer is good until the next call. */
struct step *plan_add_step(struct plan *p, const struct step *step);
struct operand *plan_inputs(const struct plan *p, const struct step *step);
struct operand *plan_outputs(const struct plan *p, const struct step *step);

/* Nothing behind it begins before all that stands before it is complete. 0 or -ENOMEM. */
int plan_join(struct plan *p) MUST_USE;

/* Room for `n_bytes` in the scratch area of a device, which is made when there is none and grows with each
 * call: an operand that lies there, 64-byte aligned. 0 or -ENOMEM (also for more than MAX_SCRATCH devices).
 */
int plan_take_scratch(struct plan *p, uint32_t device, uint64_t n_bytes, struct operand *ret) MUST_USE;
/* Of all areas. */
uint64_t plan_scratch_bytes(const struct plan *p);

/* Of a step that reduces over dimensions: of each input in turn, n_folds lengths (none is 0), then as many
 * strides in elements; the first dimension is the slowest. */
const uint64_t *plan_fold(const struct plan *p, const struct step *step, uint32_t input);
/* Room for them behind the step that was added last (and simplified), for the caller to fill. NULL when
 * memory is short. */
uint64_t *plan_add_folds(struct plan *p, uint32_t n_folds);

/* Which element of its entry the element `i` of a step is. */
uint64_t step_entry_index(const struct step *s, uint64_t i);

/* Strides in elements, [n_dims], of an operand of a step (inputs, then outputs). */
uint64_t *plan_strides(const struct plan *p, const struct step *step, uint32_t operand);
/* The bytes from the first to the last of an operand, as far as a plan tells: how many rows that were
 * coalesced an output has is known only to the run, and they are not counted. false: beyond 64 bits, or no
 * step of that shape. */
bool plan_operand_bytes(const struct plan *p, const struct step *step, uint32_t operand, uint64_t *ret);
/* Whether it is such an output; how many rows it may have, and its bytes with so many of them. */
bool plan_is_open(const struct step *step, uint32_t operand);
uint64_t plan_most_rows(const struct step *step);
bool plan_rows_bytes(
        const struct plan *p, const struct step *step, uint32_t operand, uint64_t n_rows, uint64_t *ret);
/* Brings the step that was added last to its normal form, with as few dimensions as can be: those of 1 are
 * dropped, neighbours that run on in every operand are one; none are left where all operands are dense. */
void plan_simplify_step(struct plan *p);

/* Room for the extents of `n_entries` entries of `n_halves` halves, all 0. 0 or -ENOMEM. */
int plan_make_extents(struct plan *p, uint32_t n_entries, uint32_t n_halves) MUST_USE;
/* Those of one entry: [n_halves] where parts begin, then the whole. NULL: there are none. */
uint64_t *plan_extents(const struct plan *p, uint32_t entry);

/* Once all steps are there: makes the sums, at 0, where one of them checks inputs. 0 or -ENOMEM. */
int plan_begin_sums(struct plan *p) MUST_USE;
/* After a run: the first input that was read with another checksum than it was submitted with. Inputs of
 * weight 0 are not read. */
bool plan_find_changed_input(
        const struct plan *p, const struct step **ret_step, const struct operand **ret_input);

/* Lays out the index space in chunks of `chunk_bytes` of each input (a multiple of 64) and sums up
 * moved_bytes. A step's share is count * element size; a JOIN has none. */
void plan_freeze(struct plan *p, uint64_t chunk_bytes);

/* For another run: what lies in a result object goes to the slot that begins there. The one thing of a frozen
 * plan that changes, and not during a run. */
void plan_move_slot(struct plan *p, uint64_t slot_offset_bytes);

/* The same, frozen as it is, in chunks of another size. Not while it runs. */
void plan_cut(struct plan *p, uint64_t chunk_bytes);

/* The chunks of one device in one phase: a range. */
struct stage {
        uint32_t device, phase;
        uint64_t first_chunk, end_chunk;
};

/* Walks the stages of a frozen plan that have chunks, by phase and device: begin with cursor 0; false at the
 * end. */
bool plan_next_stage(const struct plan *p, uint32_t *cursor, struct stage *ret);

/* A piece of one step that lies in a chunk. */
struct piece {
        const struct step *step;
        uint64_t first_element, n_elements;
};

/* Walks the pieces of chunk `chunk`: begin with cursor 0; false at the end. Cuts are on element borders. */
bool plan_next_piece(const struct plan *p, uint64_t chunk, uint32_t *cursor, struct piece *ret);

/* One line per step: `reduce SUM f32 x1000  R0 b1+0, R1 b1+0 -> R0 b2+0, R1 b2+0`, after a head line. With
 * strides: `copy f32 x6 [2,3]  R0 b1+0/3,1 -> R1 b2+8/1,2`. Scratch is `CPU:1 scratch+0`. A step of another
 * device than the plan's first one begins with its name. */
void plan_print(const struct plan *p, struct text *t);
