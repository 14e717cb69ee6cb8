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
        [KIND_MERGE_RESULT] = "merge_result",
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
        bool is_float = dtype_is_float(dtype), is_integer = dtype_is_integer(dtype);
        switch (op) {
        case OP_SUM:
        case OP_PROD: return is_float || is_integer || dtype_is_complex(dtype);
        case OP_MEAN: return is_float || dtype_is_complex(dtype);
        case OP_MIN:
        case OP_MAX: return is_float || is_integer;
        case OP_BAND:
        case OP_BOR:
        case OP_BXOR: return is_integer;
        case OP_LAND:
        case OP_LOR: return dtype == DTYPE_BOOL;
        case OP_UNSPECIFIED:
        case N_OP: break;
        }
        return false;
}

const char *op_supported_text(void) {
        return "SUM, MEAN, PROD, MIN, MAX on f16 bf16 f32 f64; SUM, PROD, MIN, MAX, BAND, BOR, BXOR on u8 i8 "
               "u16 "
               "i16 u32 i32 u64 i64, and MEAN with a rounding or a float output; SUM, MEAN, PROD on c64 "
               "c128; "
               "LAND, LOR on bool";
}
