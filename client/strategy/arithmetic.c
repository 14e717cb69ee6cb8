#include "strategy/strategy.h"

#include <string.h>

int dtype_is_float(enum tutti_dtype dtype) {
        return dtype == TUTTI_F16 || dtype == TUTTI_BF16 || dtype == TUTTI_F32 || dtype == TUTTI_F64;
}

static enum tutti_status refuse(enum tutti_dtype dtype, const char *what) {
        return say(TUTTI_UNSUPPORTED,
                "%s of %s is not done here; integers, f32 and f64 are, and every dtype can "
                "be assigned",
                what, tutti_dtype_name(dtype));
}

/* For each dtype that numbers can be made of here: X(name in tutti.h, type, type to wrap in). */
#define NUMBERS(X)                                                                                           \
        X(TUTTI_U8, uint8_t, uint64_t)                                                                       \
        X(TUTTI_I8, int8_t, uint64_t)                                                                        \
        X(TUTTI_U16, uint16_t, uint64_t)                                                                     \
        X(TUTTI_I16, int16_t, uint64_t)                                                                      \
        X(TUTTI_U32, uint32_t, uint64_t)                                                                     \
        X(TUTTI_I32, int32_t, uint64_t)                                                                      \
        X(TUTTI_U64, uint64_t, uint64_t)                                                                     \
        X(TUTTI_I64, int64_t, uint64_t)                                                                      \
        X(TUTTI_F32, float, float)                                                                           \
        X(TUTTI_F64, double, double)

/* --- add, sub --- */

#define ADD(name, type, wide)                                                                                \
        static void add_##type(void *dst, const void *src, uint64_t n) {                                     \
                type *d = dst;                                                                               \
                const type *s = src;                                                                         \
                for (uint64_t i = 0; i < n; i++)                                                             \
                        d[i] = (type)((wide)d[i] + (wide)s[i]);                                              \
        }                                                                                                    \
        static void sub_##type(void *dst, const void *src, uint64_t n) {                                     \
                type *d = dst;                                                                               \
                const type *s = src;                                                                         \
                for (uint64_t i = 0; i < n; i++)                                                             \
                        d[i] = (type)((wide)d[i] - (wide)s[i]);                                              \
        }
NUMBERS(ADD)

enum tutti_status change_elements(
        enum tutti_change change, enum tutti_dtype dtype, uint64_t count, void *dst, const void *src) {
        static const struct {
                void (*add)(void *dst, const void *src, uint64_t n);
                void (*sub)(void *dst, const void *src, uint64_t n);
        } verbs[] = {
#define ROW(name, type, wide) [name] = { add_##type, sub_##type },
                NUMBERS(ROW)
        };
        if (change == TUTTI_ASSIGN) {
                memcpy(dst, src, count * tutti_dtype_bytes(dtype));
                return TUTTI_OK;
        }
        if ((unsigned int)dtype >= sizeof(verbs) / sizeof(*verbs) || !verbs[dtype].add || !verbs[dtype].sub)
                return refuse(dtype, "adding");
        (change == TUTTI_ASSIGN_ADD ? verbs[dtype].add : verbs[dtype].sub)(dst, src, count);
        return TUTTI_OK;
}

/* --- literals --- */

#define FILL(name, type, wide)                                                                               \
        static void fill_##type(void *dst, uint64_t n, double literal) {                                     \
                for (uint64_t i = 0; i < n; i++)                                                             \
                        ((type *)dst)[i] = (type)literal;                                                    \
        }
NUMBERS(FILL)

/* What the dtype cannot hold would be undefined to convert. */
static int fits(enum tutti_dtype dtype, double literal) {
        static const struct {
                double least, most; /* both are powers of two or 0: exact */
        } ranges[] = {
                [TUTTI_U8] = { 0, 256 },
                [TUTTI_I8] = { -128, 128 },
                [TUTTI_U16] = { 0, 65536 },
                [TUTTI_I16] = { -32768, 32768 },
                [TUTTI_U32] = { 0, 4294967296.0 },
                [TUTTI_I32] = { -2147483648.0, 2147483648.0 },
                [TUTTI_U64] = { 0, 18446744073709551616.0 },
                [TUTTI_I64] = { -9223372036854775808.0, 9223372036854775808.0 },
        };
        if (dtype_is_float(dtype))
                return 1;
        return literal >= ranges[dtype].least && literal < ranges[dtype].most;
}

enum tutti_status fill_elements(enum tutti_dtype dtype, uint64_t count, void *dst, double literal) {
        static void (*const fills[])(void *dst, uint64_t n, double literal) = {
#define FILL_ROW(name, type, wide) [name] = fill_##type,
                NUMBERS(FILL_ROW)
        };
        void (*fill)(void *dst, uint64_t n, double literal) =
                (unsigned int)dtype < sizeof(fills) / sizeof(*fills) ? fills[dtype] : NULL;
        if (!fill)
                return refuse(dtype, "a literal");
        if (!fits(dtype, literal))
                return say(TUTTI_INVALID, "the literal %g is not in the range of %s", literal,
                        tutti_dtype_name(dtype));
        fill(dst, count, literal);
        return TUTTI_OK;
}

/* --- shares --- */

#define SHARE_INTEGER(type)                                                                                  \
        static void share_##type(void *dst, const void *src, uint64_t count, struct share share) {           \
                for (uint64_t i = 0; i < count; i++) {                                                       \
                        __int128 x = ((const type *)src)[i], n = share.n, left = x % n;                      \
                        __int128 one = left < 0 ? -1 : 1;                                                    \
                        ((type *)dst)[i] = (type)(x / n + (share.rank < left * one ? one : 0));              \
                }                                                                                            \
        }
#define SHARE_FLOAT(type)                                                                                    \
        static void share_##type(void *dst, const void *src, uint64_t count, struct share share) {           \
                for (uint64_t i = 0; i < count; i++)                                                         \
                        ((type *)dst)[i] = ((const type *)src)[i] / (type)share.n;                           \
        }
SHARE_INTEGER(uint8_t)
SHARE_INTEGER(int8_t)
SHARE_INTEGER(uint16_t)
SHARE_INTEGER(int16_t)
SHARE_INTEGER(uint32_t)
SHARE_INTEGER(int32_t)
SHARE_INTEGER(uint64_t)
SHARE_INTEGER(int64_t)
SHARE_FLOAT(float)
SHARE_FLOAT(double)

enum tutti_status share_elements(
        enum tutti_dtype dtype, uint64_t count, void *dst, const void *src, struct share share) {
        static void (*const shares[])(void *dst, const void *src, uint64_t n, struct share share) = {
#define SHARE_ROW(name, type, wide) [name] = share_##type,
                NUMBERS(SHARE_ROW)
        };
        if ((unsigned int)dtype >= sizeof(shares) / sizeof(*shares) || !shares[dtype])
                return refuse(dtype, "sharing");
        shares[dtype](dst, src, count, share);
        return TUTTI_OK;
}
