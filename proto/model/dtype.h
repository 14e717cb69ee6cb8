/* Element types. Values are those of tutti.proto. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum dtype {
        DTYPE_UNSPECIFIED,
        DTYPE_U8,
        DTYPE_I8,
        DTYPE_U16,
        DTYPE_I16,
        DTYPE_U32,
        DTYPE_I32,
        DTYPE_U64,
        DTYPE_I64,
        DTYPE_F16,
        DTYPE_BF16,
        DTYPE_F32,
        DTYPE_F64,
        DTYPE_BOOL,
        DTYPE_C64,
        DTYPE_C128,
        N_DTYPE,
};

/* Bytes of one element; 0 for DTYPE_UNSPECIFIED and unknown values. */
size_t dtype_bytes(enum dtype dtype);

/* "f32", "bf16", ...; "?" for unknown values. Never NULL. */
const char *dtype_name(enum dtype dtype);

bool dtype_is_integer(enum dtype dtype);
bool dtype_is_float(enum dtype dtype);
bool dtype_is_complex(enum dtype dtype);

/* Whether this version of tuttid combines and moves it: all that have a name. */
bool dtype_is_supported(enum dtype dtype);

/* The float type that MEAN of an integer type can go to: f32 for 8 and 16 bits, f64 for 32 and 64.
 * DTYPE_UNSPECIFIED when it is no integer type. */
enum dtype dtype_of_integer_mean(enum dtype dtype);
