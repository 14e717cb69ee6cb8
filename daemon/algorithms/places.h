/* Where the values of a problem lie, as operands of a plan: what all algorithms need. Pure. */
#pragma once

#include "algorithms/algorithm.h"

/* Nobody's: where `rank` is not among the contributors. */
#define NO_INDEX UINT32_MAX

uint32_t problem_index_of_rank(const struct problem *problem, uint32_t rank);

/* The device whose memory the half number `i` brings its values in: as the problem says; host memory is near
 * all host devices, which share the replicas evenly, neighbours together; where other values are on GPUs, the
 * problem's device works on it. */
uint32_t problem_home(const struct problem *problem, uint32_t i);
/* The homes of all halves, each once, growing. At most MAX_TOPOLOGY. Returns how many; 0: more than that. */
uint32_t problem_homes(const struct problem *problem, uint32_t devices[MAX_TOPOLOGY]);

/* The device that does the whole of it, where one does. */
uint32_t problem_worker(const struct problem *problem);
/* Whether `device` does not reach where half `i` has its values. */
bool problem_is_far(const struct problem *problem, uint32_t device, uint32_t i);
/* Whether one device reaches all. */
bool problem_is_near(const struct problem *problem, uint32_t device);

/* Whether somebody's input or output of entry `e` has strides. */
bool problem_has_strides(const struct problem *problem, uint32_t e);

/* The input of half `i` of entry `e`, with its weight and checksum. */
struct operand problem_input(const struct problem *problem, uint32_t i, uint32_t e);
/* One of half `i`'s places, which may lie in a slot of a result object. */
struct operand problem_operand(const struct problem *problem, uint32_t i, const struct place *place);
/* The output of half `i` of entry `e`. */
struct operand problem_output(const struct problem *problem, uint32_t i, uint32_t e);
/* Whether half `i` receives entry `e` in a place other than `source` (NULL: anywhere). A result object is one
 * place for all, which the first half stands for. */
bool problem_is_output(const struct problem *problem, uint32_t i, uint32_t e, const struct place *source);
/* Whether anybody does. */
bool problem_has_output(const struct problem *problem, uint32_t e);

/* The strides of one of an entry's places, whole: [n_dims]. */
void problem_strides(const struct entry *entry, const struct place *place, uint64_t *ret);
/* Those of the same elements laid end to end. */
void packed_strides(const struct entry *entry, uint64_t *ret);

/* The type in which values are combined, and in which partial results travel; DTYPE_UNSPECIFIED: there is
 * none (means of 64-bit integers, whose sums need 128 bits). */
enum dtype accumulation_dtype(const struct signature *s, enum dtype dtype);
/* Whether GPUs have kernels that make partial results of that type, and take them. */
bool gpus_have_partials(const struct signature *s, enum dtype dtype);
