#include "model/dtype.h"

enum family { FAMILY_OTHER, FAMILY_INTEGER, FAMILY_FLOAT, FAMILY_COMPLEX };

static const struct {
        const char *name;
        size_t n_bytes;
        enum family family;
} dtypes[N_DTYPE] = {
        [DTYPE_UNSPECIFIED] = { "unspecified", 0, FAMILY_OTHER },
        [DTYPE_U8] = { "u8", 1, FAMILY_INTEGER },
        [DTYPE_I8] = { "i8", 1, FAMILY_INTEGER },
        [DTYPE_U16] = { "u16", 2, FAMILY_INTEGER },
        [DTYPE_I16] = { "i16", 2, FAMILY_INTEGER },
        [DTYPE_U32] = { "u32", 4, FAMILY_INTEGER },
        [DTYPE_I32] = { "i32", 4, FAMILY_INTEGER },
        [DTYPE_U64] = { "u64", 8, FAMILY_INTEGER },
        [DTYPE_I64] = { "i64", 8, FAMILY_INTEGER },
        [DTYPE_F16] = { "f16", 2, FAMILY_FLOAT },
        [DTYPE_BF16] = { "bf16", 2, FAMILY_FLOAT },
        [DTYPE_F32] = { "f32", 4, FAMILY_FLOAT },
        [DTYPE_F64] = { "f64", 8, FAMILY_FLOAT },
        [DTYPE_BOOL] = { "bool", 1, FAMILY_OTHER },
        [DTYPE_C64] = { "c64", 8, FAMILY_COMPLEX },
        [DTYPE_C128] = { "c128", 16, FAMILY_COMPLEX },
};

static bool is_known(enum dtype dtype) {
        return (unsigned int)dtype < N_DTYPE;
}

size_t dtype_bytes(enum dtype dtype) {
        return is_known(dtype) ? dtypes[dtype].n_bytes : 0;
}

const char *dtype_name(enum dtype dtype) {
        return is_known(dtype) ? dtypes[dtype].name : "?";
}

bool dtype_is_integer(enum dtype dtype) {
        return is_known(dtype) && dtypes[dtype].family == FAMILY_INTEGER;
}

bool dtype_is_float(enum dtype dtype) {
        return is_known(dtype) && dtypes[dtype].family == FAMILY_FLOAT;
}

bool dtype_is_complex(enum dtype dtype) {
        return is_known(dtype) && dtypes[dtype].family == FAMILY_COMPLEX;
}

bool dtype_is_supported(enum dtype dtype) {
        return dtype_bytes(dtype) > 0;
}

enum dtype dtype_of_integer_mean(enum dtype dtype) {
        if (!dtype_is_integer(dtype))
                return DTYPE_UNSPECIFIED;
        return dtype_bytes(dtype) <= 2 ? DTYPE_F32 : DTYPE_F64;
}
