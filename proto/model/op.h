/* Kinds of collectives, and the operations that combine values. Values are those of tutti.proto. */
#pragma once

#include "model/dtype.h"

enum kind {
        KIND_UNSPECIFIED,
        KIND_REDUCE,
        KIND_BROADCAST,
        KIND_BATCH_REDUCE,
        KIND_BARRIER,
        KIND_GATHER,
        KIND_REDUCE_SCATTER,
        KIND_MERGE_CALL,
        KIND_MERGE_RESULT,
        N_KIND,
};

enum op {
        OP_UNSPECIFIED,
        OP_SUM,
        OP_MEAN,
        OP_PROD,
        OP_MIN,
        OP_MAX,
        OP_BAND,
        OP_BOR,
        OP_BXOR,
        OP_LAND,
        OP_LOR,
        N_OP,
};

/* One replica brings what the others receive: signature.root. */
static inline bool kind_has_root(enum kind kind) {
        return kind == KIND_BROADCAST || kind == KIND_MERGE_RESULT;
}

/* It works along one dimension of its values. */
static inline bool kind_has_axis(enum kind kind) {
        return kind == KIND_GATHER || kind == KIND_REDUCE_SCATTER;
}

/* It combines values by an op. */
static inline bool kind_reduces(enum kind kind) {
        return kind == KIND_REDUCE || kind == KIND_BATCH_REDUCE || kind == KIND_REDUCE_SCATTER;
}

const char *kind_name(enum kind kind); /* "reduce", "batch_reduce", ...; never NULL */
const char *op_name(enum op op);       /* "SUM", ...; never NULL */

/* Whether tuttid computes `op` on `dtype`, with nothing else said. MEAN of integers needs a rounding or a
 * float output, so it is not among them. */
bool op_is_supported(enum op op, enum dtype dtype);

/* All that works, as a sentence for an error: "SUM, MEAN, ... on f16 bf16 f32 f64; ...". */
const char *op_supported_text(void);
