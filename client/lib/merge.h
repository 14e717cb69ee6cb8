/* A merge_call: two meetings under one key, and the caller's function between them.
 *
 *   COLLECT --OK--> elected: fn --> SPREAD (its half comes last) --> all have the results
 *                   the others: ---> SPREAD (waiting for it)
 *
 * COLLECT is a collective of kind merge_call: tuttid copies everybody's values into a result object that
 * lives for this call. SPREAD is one of kind merge_result, from the elected replica to all. So tuttid knows
 * nothing of functions, and what ends a meeting ends a call. */
#pragma once

#include <tutti/merge.h>
#include "lib/group.h"
#include "model/signature.h"

/* INVALID when this thread runs a merge function of this group, whose members all wait for it. */
enum tutti_status merge_check_nesting(const struct tutti_group *g) MUST_USE;

/* What is compared of a call beside its inputs: "norm -> f32[3] i32[]"; what is too long is cut, and told
 * apart by a hash. */
void merge_tag(
        const char *tag, const struct tutti_value *outputs, uint32_t n_outputs, char ret[MAX_TAG_BYTES + 1]);
/* Bytes from one rank's part of an input to the next one's. */
uint64_t merge_part_bytes(const struct tutti_value *v);
/* Of a contiguous value; UINT64_MAX: more than can be counted. */
uint64_t merge_value_bytes(const struct tutti_value *v);
