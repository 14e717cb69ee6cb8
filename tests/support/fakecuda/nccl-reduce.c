/* The arithmetic of a ring: the values are cut in as many parts as there are ranks, and part i is summed
 * beginning at rank i + 1, each partial result in the type of the values. So the order is not that of the
 * ranks, but always the same. */
#include <string.h>
#include "communicator.h"

size_t fake_nccl_type_bytes(ncclDataType_t type) {
        static const unsigned char bytes[] = { [ncclInt8] = 1,
                [ncclUint8] = 1,
                [ncclInt32] = 4,
                [ncclUint32] = 4,
                [ncclInt64] = 8,
                [ncclUint64] = 8,
                [ncclFloat16] = 2,
                [ncclFloat32] = 4,
                [ncclFloat64] = 8,
                [ncclBfloat16] = 2 };
        return (size_t)type < sizeof(bytes) ? bytes[type] : 0;
}

/* --- 16 bit floats --- */

static float bits_to_float(uint32_t bits) {
        float value;
        memcpy(&value, &bits, 4);
        return value;
}

static uint32_t float_to_bits(float value) {
        uint32_t bits;
        memcpy(&bits, &value, 4);
        return bits;
}

static float load_half(uint16_t h) {
        uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ff;
        if (exponent == 31)
                return bits_to_float(sign | 0x7f800000 | fraction << 13);
        if (exponent)
                return bits_to_float(sign | (exponent + 112) << 23 | fraction << 13);
        float small = (float)fraction / 16777216.0f; /* 2^-24 */
        return sign ? -small : small;
}

/* To the nearest, ties to even. `n_dropped` bits go. */
static uint32_t round_off(uint32_t value, unsigned int n_dropped) {
        uint32_t half = 1u << (n_dropped - 1), kept = value >> n_dropped,
                 rest = value & ((1u << n_dropped) - 1);
        return kept + (rest > half || (rest == half && (kept & 1)));
}

static uint16_t store_half(float value) {
        uint32_t bits = float_to_bits(value), sign = (bits >> 16) & 0x8000, rest = bits & 0x7fffffff;
        if (rest > 0x7f800000)
                return (uint16_t)(sign | 0x7e00);
        if (rest >= 0x477ff000)
                return (uint16_t)(sign | 0x7c00);
        if (rest >= 0x38800000)
                return (uint16_t)(sign | round_off(rest - 0x38000000, 13));
        unsigned int shift = 126 - (rest >> 23); /* a subnormal */
        return (uint16_t)(sign | (shift > 24 ? 0 : round_off((rest & 0x7fffff) | 0x800000, shift)));
}

static float load_bfloat(uint16_t b) {
        return bits_to_float((uint32_t)b << 16);
}

static uint16_t store_bfloat(float value) {
        uint32_t bits = float_to_bits(value);
        return value != value ? (uint16_t)0x7fc0 : (uint16_t)round_off(bits, 16);
}

/* --- one element --- */

#define COMBINE(name, type, wide)                                                                            \
        static type combine_##name(type x, type y, ncclRedOp_t op) {                                         \
                if (op == ncclProd)                                                                          \
                        return (type)((wide)x * (wide)y);                                                    \
                if (op == ncclMax)                                                                           \
                        return x > y ? x : y;                                                                \
                if (op == ncclMin)                                                                           \
                        return x < y ? x : y;                                                                \
                return (type)((wide)x + (wide)y);                                                            \
        }
COMBINE(i8, int8_t, uint32_t)
COMBINE(u8, uint8_t, uint32_t)
COMBINE(i32, int32_t, uint32_t)
COMBINE(u32, uint32_t, uint32_t)
COMBINE(i64, int64_t, uint64_t)
COMBINE(u64, uint64_t, uint64_t)
COMBINE(f32, float, float)
COMBINE(f64, double, double)

/* *x = *x op *y */
#define APPLY(name, type)                                                                                    \
        do {                                                                                                 \
                type a, b;                                                                                   \
                memcpy(&a, x, sizeof(a));                                                                    \
                memcpy(&b, y, sizeof(b));                                                                    \
                a = combine_##name(a, b, op);                                                                \
                memcpy(x, &a, sizeof(a));                                                                    \
        } while (0)

static void combine_16(void *x, const void *y, ncclDataType_t type, ncclRedOp_t op) {
        uint16_t a, b;
        memcpy(&a, x, 2);
        memcpy(&b, y, 2);
        a = type == ncclFloat16 ? store_half(combine_f32(load_half(a), load_half(b), op))
                                : store_bfloat(combine_f32(load_bfloat(a), load_bfloat(b), op));
        memcpy(x, &a, 2);
}

static void combine(void *x, const void *y, ncclDataType_t type, ncclRedOp_t op) {
        switch ((int)type) {
        case ncclInt8: APPLY(i8, int8_t); break;
        case ncclUint8: APPLY(u8, uint8_t); break;
        case ncclInt32: APPLY(i32, int32_t); break;
        case ncclUint32: APPLY(u32, uint32_t); break;
        case ncclInt64: APPLY(i64, int64_t); break;
        case ncclUint64: APPLY(u64, uint64_t); break;
        case ncclFloat32: APPLY(f32, float); break;
        case ncclFloat64: APPLY(f64, double); break;
        default: combine_16(x, y, type, op);
        }
}

#define DIVIDE(type)                                                                                         \
        do {                                                                                                 \
                type a;                                                                                      \
                memcpy(&a, x, sizeof(a));                                                                    \
                a = (type)(a / (type)n);                                                                     \
                memcpy(x, &a, sizeof(a));                                                                    \
        } while (0)

/* For ncclAvg, after the sum. */
static void divide(void *x, ncclDataType_t type, int n) {
        uint16_t h;
        switch ((int)type) {
        case ncclInt8: DIVIDE(int8_t); break;
        case ncclUint8: DIVIDE(uint8_t); break;
        case ncclInt32: DIVIDE(int32_t); break;
        case ncclUint32: DIVIDE(uint32_t); break;
        case ncclInt64: DIVIDE(int64_t); break;
        case ncclUint64: DIVIDE(uint64_t); break;
        case ncclFloat32: DIVIDE(float); break;
        case ncclFloat64: DIVIDE(double); break;
        default:
                memcpy(&h, x, 2);
                h = type == ncclFloat16 ? store_half(load_half(h) / (float)n)
                                        : store_bfloat(load_bfloat(h) / (float)n);
                memcpy(x, &h, 2);
        }
}

void fake_nccl_reduce(const struct nccl_reduction *r) {
        size_t n_bytes = fake_nccl_type_bytes(r->type);
        for (size_t i = 0; i < r->count; i++) {
                unsigned char value[8];
                int first = (int)(i * (size_t)r->n_ranks / r->count) + 1;
                memcpy(value, (const char *)r->from[first % r->n_ranks] + i * n_bytes, n_bytes);
                for (int k = 1; k < r->n_ranks; k++)
                        combine(value, (const char *)r->from[(first + k) % r->n_ranks] + i * n_bytes, r->type,
                                r->op);
                if (r->op == ncclAvg)
                        divide(value, r->type, r->n_ranks);
                for (int k = 0; k < r->n_ranks; k++)
                        if (r->to[k])
                                memcpy((char *)r->to[k] + i * n_bytes, value, n_bytes);
        }
}
