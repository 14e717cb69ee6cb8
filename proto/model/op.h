/* Kinds of collectives, and the operations that combine values. Values are those of tutti.proto. */
#pragma once

#include "model/dtype.h"

enum kind {
        KIND_UNSPECIFIED,
        KIND_REDUCE,
        KIND_BROADCAST,
        KIND_BATCH_REDUCE,
        KIND_BARRIER,
        KIND_GATHER, /* from here on: reserved, UNSUPPORTED */
        KIND_REDUCE_SCATTER,
        KIND_MERGE_CALL,
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

const char *kind_name(enum kind kind); /* "reduce", "batch_reduce", ...; never NULL */
const char *op_name(enum op op);       /* "SUM", ...; never NULL */

/* Whether tuttid computes `op` on `dtype`: SUM MIN MAX on every supported dtype, MEAN on floats. */
bool op_is_supported(enum op op, enum dtype dtype);

/* What op_is_supported allows, as a sentence for an error: "SUM, MIN, MAX on u8 i32 ...; MEAN on f16 ...". */
const char *op_supported_text(void);
