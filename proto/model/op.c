#include "model/op.h"

static const char *const kinds[N_KIND] = {
        [KIND_UNSPECIFIED] = "unspecified",
        [KIND_REDUCE] = "reduce",
        [KIND_BROADCAST] = "broadcast",
        [KIND_BATCH_REDUCE] = "batch_reduce",
        [KIND_BARRIER] = "barrier",
        [KIND_GATHER] = "gather",
        [KIND_REDUCE_SCATTER] = "reduce_scatter",
        [KIND_MERGE_CALL] = "merge_call",
};

static const char *const ops[N_OP] = {
        [OP_UNSPECIFIED] = "unspecified",
        [OP_SUM] = "SUM",
        [OP_MEAN] = "MEAN",
        [OP_PROD] = "PROD",
        [OP_MIN] = "MIN",
        [OP_MAX] = "MAX",
        [OP_BAND] = "BAND",
        [OP_BOR] = "BOR",
        [OP_BXOR] = "BXOR",
        [OP_LAND] = "LAND",
        [OP_LOR] = "LOR",
};

const char *kind_name(enum kind kind) {
        return (unsigned int)kind < N_KIND ? kinds[kind] : "?";
}

const char *op_name(enum op op) {
        return (unsigned int)op < N_OP ? ops[op] : "?";
}

bool op_is_supported(enum op op, enum dtype dtype) {
        if (!dtype_is_supported(dtype))
                return false;
        if (op == OP_MEAN)
                return dtype_is_float(dtype);
        return op == OP_SUM || op == OP_MIN || op == OP_MAX;
}

const char *op_supported_text(void) {
        return "SUM, MIN, MAX on u8 i32 i64 f16 bf16 f32 f64; MEAN on f16 bf16 f32 f64";
}
