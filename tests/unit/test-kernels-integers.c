/* Integers and truths, exhaustively where that is possible: every pair of bytes, every mean of three, every
 * 16-bit sum by every divisor of a world. What must come out is said here by what defines it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "backends/host/kernels.h"
#include "base/check.h"
#include "model/rankset.h"
#include "unit.h"

#define for_each_isa(isa) for (enum isa isa = ISA_SCALAR; isa <= kernels_isa(ISA_AUTO); isa++)

#define N_PAIRS   65536
#define N_TRIPLES (1 << 24)

static void *must_alloc(size_t n_bytes) {
        void *p = malloc(n_bytes);
        ck_assert_ptr_nonnull(p);
        return p;
}

/* Reduces n inputs of `count` elements into `output`. */
static void reduce(enum isa isa, struct kernel_call call, const void *const *inputs, void *output) {
        call.inputs = inputs;
        call.outputs = (void *const[]){ output };
        call.n_outputs = 1;
        if (call.op == OP_MEAN && call.divisor == 0)
                call.divisor = call.n_inputs;
        kernels_reduce(isa, &call);
}

/* --- pairs of bytes --- */

struct pairs {
        uint8_t a[N_PAIRS], b[N_PAIRS], got[N_PAIRS];
};

static struct pairs *pairs_new(void) {
        struct pairs *p = must_alloc(sizeof(*p));
        for (int i = 0; i < N_PAIRS; i++) {
                p->a[i] = (uint8_t)i;
                p->b[i] = (uint8_t)(i >> 8);
        }
        return p;
}

static int combine(enum op op, int a, int b) {
        switch (op) {
        case OP_SUM: return a + b;
        case OP_PROD: return a * b;
        case OP_MIN: return a < b ? a : b;
        case OP_MAX: return a > b ? a : b;
        case OP_BAND: return a & b;
        case OP_BOR: return a | b;
        case OP_BXOR: return a ^ b;
        case OP_LAND: return a && b;
        case OP_LOR: return a || b;
        case OP_UNSPECIFIED:
        case OP_MEAN:
        case N_OP: break;
        }
        ck_abort_msg("%s of two", op_name(op));
        return 0;
}

static void check_pairs(struct pairs *p, enum isa isa, enum op op, enum dtype dtype) {
        const void *inputs[] = { p->a, p->b };
        memset(p->got, 0x55, sizeof(p->got));
        reduce(isa, (struct kernel_call){ .op = op, .dtype = dtype, .n_inputs = 2, .count = N_PAIRS }, inputs,
                p->got);
        for (int i = 0; i < N_PAIRS; i++) {
                int a = dtype == DTYPE_I8 ? (int8_t)p->a[i] : p->a[i];
                int b = dtype == DTYPE_I8 ? (int8_t)p->b[i] : p->b[i];
                if (p->got[i] != (uint8_t)combine(op, a, b))
                        ck_abort_msg("%s: %s of %s %d and %d is 0x%02x, not 0x%02x", isa_name(isa),
                                op_name(op), dtype_name(dtype), a, b, p->got[i], (uint8_t)combine(op, a, b));
        }
}

START_TEST(D3_every_op_on_every_pair_of_bytes) {
        static const enum dtype dtypes[] = { DTYPE_U8, DTYPE_I8, DTYPE_BOOL };
        struct pairs *p = pairs_new();
        int n_checked = 0;
        for_each_isa(isa) for (size_t d = 0; d < ARRAY_SIZE(dtypes);
                               d++) for (enum op op = OP_SUM; op < N_OP;
                                         op++) if (op_is_supported(op, dtypes[d])) {
                check_pairs(p, isa, op, dtypes[d]);
                n_checked++;
        }
        ck_assert_int_eq(n_checked % (7 + 7 + 2), 0);
        free(p);
}
END_TEST

/* A truth may have come in any byte but goes out as 0 or 1, also alone. */
START_TEST(any_byte_but_zero_is_true) {
        uint8_t in[256], got[256];
        const void *inputs[] = { in };
        for (int i = 0; i < 256; i++)
                in[i] = (uint8_t)i;
        for_each_isa(isa) {
                for (enum op op = OP_LAND; op <= OP_LOR; op++) {
                        reduce(isa,
                                (struct kernel_call){
                                        .op = op, .dtype = DTYPE_BOOL, .n_inputs = 1, .count = 256 },
                                inputs, got);
                        for (int i = 0; i < 256; i++)
                                ck_assert_uint_eq(got[i], i != 0);
                }
        }
}
END_TEST

/* --- means --- */

/* What defines each rounding, without a division. */
static bool is_rounded(int64_t mean, int64_t sum, int64_t divisor, enum rounding rounding) {
        int64_t rest = sum - mean * divisor; /* the fraction that was dropped, or, below 0, added */
        switch (rounding) {
        case ROUNDING_FLOOR: return rest >= 0 && rest < divisor;
        case ROUNDING_TRUNC: return sum < 0 ? rest <= 0 && rest > -divisor : rest >= 0 && rest < divisor;
        case ROUNDING_NEAREST:
                return 2 * llabs(rest) < divisor || (2 * llabs(rest) == divisor && mean % 2 == 0);
        case ROUNDING_UNSPECIFIED: break;
        }
        return false;
}

/* Whether no other float is nearer to the quotient: sum - mean * divisor is exact in f64 for these few bits.
 */
static bool is_nearest_float(float mean, int64_t sum, uint32_t divisor) {
        double off = fabs((double)sum - (double)mean * divisor);
        double below = fabs((double)sum - (double)nextafterf(mean, -INFINITY) * divisor);
        double above = fabs((double)sum - (double)nextafterf(mean, INFINITY) * divisor);
        return off <= below && off <= above;
}

static const enum rounding roundings[] = { ROUNDING_TRUNC, ROUNDING_FLOOR, ROUNDING_NEAREST };

struct triples {
        uint8_t a[N_TRIPLES], b[N_TRIPLES], c[N_TRIPLES], got[N_TRIPLES];
};

static int triple_sum(const struct triples *t, int i, enum dtype dtype) {
        if (dtype == DTYPE_U8)
                return t->a[i] + t->b[i] + t->c[i];
        return (int8_t)t->a[i] + (int8_t)t->b[i] + (int8_t)t->c[i];
}

static void check_triples(struct triples *t, enum isa isa, enum dtype dtype, enum rounding rounding) {
        const void *inputs[] = { t->a, t->b, t->c };
        reduce(isa,
                (struct kernel_call){ .op = OP_MEAN,
                        .dtype = dtype,
                        .n_inputs = 3,
                        .count = N_TRIPLES,
                        .rounding = rounding },
                inputs, t->got);
        for (int i = 0; i < N_TRIPLES; i++) {
                int sum = triple_sum(t, i, dtype), mean = dtype == DTYPE_I8 ? (int8_t)t->got[i] : t->got[i];
                if (!is_rounded(mean, sum, 3, rounding))
                        ck_abort_msg("%s: %d/3 as %s by %s is %d", isa_name(isa), sum, dtype_name(dtype),
                                rounding_name(rounding), mean);
        }
}

START_TEST(D9_every_mean_of_three_bytes_by_every_rounding) {
        struct triples *t = must_alloc(sizeof(*t));
        for (int i = 0; i < N_TRIPLES; i++) {
                t->a[i] = (uint8_t)i;
                t->b[i] = (uint8_t)(i >> 8);
                t->c[i] = (uint8_t)(i >> 16);
        }
        for_each_isa(isa) for (size_t r = 0; r < ARRAY_SIZE(roundings); r++) {
                check_triples(t, isa, DTYPE_I8, roundings[r]);
                check_triples(t, isa, DTYPE_U8, roundings[r]);
        }
        free(t);
}
END_TEST

/* Every 16-bit number as a sum, by what a world may have as divisor. */
static void check_sixteen_bits(enum isa isa, enum dtype dtype, uint32_t divisor) {
        static uint16_t in[N_PAIRS], got[N_PAIRS];
        static float quotients[N_PAIRS];
        const void *inputs[] = { in };
        struct kernel_call call = {
                .op = OP_MEAN, .dtype = dtype, .n_inputs = 1, .count = N_PAIRS, .divisor = divisor
        };
        for (int i = 0; i < N_PAIRS; i++)
                in[i] = (uint16_t)i;
        for (size_t r = 0; r < ARRAY_SIZE(roundings); r++) {
                call.rounding = roundings[r];
                reduce(isa, call, inputs, got);
                for (int i = 0; i < N_PAIRS; i++) {
                        int sum = dtype == DTYPE_I16 ? (int16_t)i : i;
                        int mean = dtype == DTYPE_I16 ? (int16_t)got[i] : got[i];
                        if (!is_rounded(mean, sum, divisor, roundings[r]))
                                ck_abort_msg("%s: %d/%u by %s is %d", isa_name(isa), sum, divisor,
                                        rounding_name(roundings[r]), mean);
                }
        }
        call.rounding = ROUNDING_UNSPECIFIED;
        reduce(isa, call, inputs, quotients);
        for (int i = 0; i < N_PAIRS; i++) {
                int sum = dtype == DTYPE_I16 ? (int16_t)i : i;
                if (!is_nearest_float(quotients[i], sum, divisor))
                        ck_abort_msg("%s: %d/%u is %a", isa_name(isa), sum, divisor, (double)quotients[i]);
        }
}

START_TEST(D9_every_16_bit_sum_by_the_divisors_of_a_world) {
        for_each_isa(isa) for (uint32_t divisor = 1; divisor <= 1024;
                               divisor += divisor < 20 || divisor > 1020 ? 1 : 97) {
                check_sixteen_bits(isa, DTYPE_I16, divisor);
                check_sixteen_bits(isa, DTYPE_U16, divisor);
        }
}
END_TEST

#define N_QUOTIENTS 4096

/* Multiples of half the divisor and their neighbours, from both ends of 32 bits. */
static void fill_near_halves(int32_t *in, uint32_t divisor) {
        for (int i = 0; i < N_QUOTIENTS; i++) {
                int64_t end = i % 2 ? INT32_MAX : INT32_MIN, halves = i / 2 * (int64_t)divisor / 2;
                int64_t whole = end / divisor * divisor, off = i % 3 - 1;
                int64_t v = i % 2 ? whole - halves + off : whole + halves + off;
                in[i] = (int32_t)(v < INT32_MIN ? INT32_MIN : v > INT32_MAX ? INT32_MAX : v);
        }
}

static void check_near_halves(enum isa isa, uint32_t divisor) {
        static int32_t in[N_QUOTIENTS], got[N_QUOTIENTS];
        static double quotients[N_QUOTIENTS];
        const void *inputs[] = { in };
        struct kernel_call call = {
                .op = OP_MEAN, .dtype = DTYPE_I32, .n_inputs = 1, .count = N_QUOTIENTS, .divisor = divisor
        };
        fill_near_halves(in, divisor);
        for (size_t r = 0; r < ARRAY_SIZE(roundings); r++) {
                call.rounding = roundings[r];
                reduce(isa, call, inputs, got);
                for (int i = 0; i < N_QUOTIENTS; i++)
                        if (!is_rounded(got[i], in[i], divisor, roundings[r]))
                                ck_abort_msg("%s: %d/%u by %s is %d", isa_name(isa), in[i], divisor,
                                        rounding_name(roundings[r]), got[i]);
        }
        call.rounding = ROUNDING_UNSPECIFIED;
        reduce(isa, call, inputs, quotients);
        for (int i = 0; i < N_QUOTIENTS; i++)
                if (quotients[i] != (double)in[i] / divisor)
                        ck_abort_msg("%s: %d/%u is %a", isa_name(isa), in[i], divisor, quotients[i]);
}

/* Where a quotient in f64 is least exact. */
START_TEST(D9_quotients_of_32_bits_are_true_next_to_whole_and_half_numbers) {
        for_each_isa(isa) for (uint32_t divisor = 1; divisor <= 1024; divisor++)
                check_near_halves(isa, divisor);
}
END_TEST

/* What a full world brings that has only the largest, or only the smallest number: its sum is beyond 64 bits.
 */
static void check_full_world(enum isa isa, enum dtype dtype, const void *value, double as_float) {
        const void *inputs[MAX_WORLD];
        uint8_t got[8];
        double mean = 0;
        float small_mean = 0;
        for (uint32_t i = 0; i < MAX_WORLD; i++)
                inputs[i] = value;
        struct kernel_call call = { .op = OP_MEAN, .dtype = dtype, .n_inputs = MAX_WORLD, .count = 1 };
        for (size_t r = 0; r < ARRAY_SIZE(roundings); r++) {
                call.rounding = roundings[r];
                memset(got, 0x55, sizeof(got));
                reduce(isa, call, inputs, got);
                ck_assert_mem_eq(got, value, dtype_bytes(dtype));
        }
        call.rounding = ROUNDING_UNSPECIFIED;
        bool is_small = dtype_of_integer_mean(dtype) == DTYPE_F32;
        reduce(isa, call, inputs, is_small ? (void *)&small_mean : &mean);
        ck_assert((is_small ? (double)small_mean : mean) == as_float);
}

START_TEST(P12_the_sum_of_a_full_world_is_exact) {
        for_each_isa(isa) {
                check_full_world(isa, DTYPE_U8, &(uint8_t){ UINT8_MAX }, UINT8_MAX);
                check_full_world(isa, DTYPE_I8, &(int8_t){ INT8_MIN }, INT8_MIN);
                check_full_world(isa, DTYPE_U16, &(uint16_t){ UINT16_MAX }, UINT16_MAX);
                check_full_world(isa, DTYPE_I16, &(int16_t){ INT16_MIN }, INT16_MIN);
                check_full_world(isa, DTYPE_U32, &(uint32_t){ UINT32_MAX }, UINT32_MAX);
                check_full_world(isa, DTYPE_I32, &(int32_t){ INT32_MIN }, INT32_MIN);
                check_full_world(isa, DTYPE_U64, &(uint64_t){ UINT64_MAX }, 0x1p64);
                check_full_world(isa, DTYPE_I64, &(int64_t){ INT64_MIN }, -0x1p63);
                check_full_world(isa, DTYPE_I64, &(int64_t){ INT64_MAX }, 0x1p63);
        }
}
END_TEST

/* -7/2, 5/2 and 7/2 with a name for what becomes of the half; numel is 7, the divisor 2. */
START_TEST(D9_trunc_floor_and_nearest_differ_as_their_names_say) {
        static const int32_t a[7] = { -3, -4, 3, 2, -1, 0, 5 }, b[7] = { -4, -3, 4, 3, 0, -1, 0 };
        static const int32_t expected[3][7] = {
                { -3, -3, 3, 2, 0, 0, 2 },
                { -4, -4, 3, 2, -1, -1, 2 },
                { -4, -4, 4, 2, 0, 0, 2 },
        };
        const void *inputs[] = { a, b };
        int32_t got[7];
        for_each_isa(isa) for (size_t r = 0; r < ARRAY_SIZE(roundings); r++) {
                reduce(isa,
                        (struct kernel_call){ .op = OP_MEAN,
                                .dtype = DTYPE_I32,
                                .n_inputs = 2,
                                .count = 7,
                                .rounding = roundings[r] },
                        inputs, got);
                for (int i = 0; i < 7; i++)
                        ck_assert_int_eq(got[i], expected[r][i]);
        }
}
END_TEST

/* --- wrapping, counted --- */

static struct kernel_count count_wrapped(
        enum isa isa, enum op op, enum dtype dtype, const void *const *inputs, uint32_t n, size_t count) {
        const struct kernel_call call = {
                .op = op, .dtype = dtype, .inputs = inputs, .n_inputs = n, .count = count, .divisor = n
        };
        return kernels_count_wrapped(isa, &call);
}

static void check_wrapped_pairs(struct pairs *p, enum isa isa, enum op op, enum dtype dtype) {
        const void *inputs[] = { p->a, p->b };
        size_t n = 0, first = 0;
        for (int i = 0; i < N_PAIRS; i++) {
                int a = dtype == DTYPE_I8 ? (int8_t)p->a[i] : p->a[i];
                int b = dtype == DTYPE_I8 ? (int8_t)p->b[i] : p->b[i];
                int exact = combine(op, a, b), kept = dtype == DTYPE_I8 ? (int8_t)exact : (uint8_t)exact;
                if (exact != kept && n++ == 0)
                        first = (size_t)i;
        }
        struct kernel_count got = count_wrapped(isa, op, dtype, inputs, 2, N_PAIRS);
        ck_assert_uint_eq(got.n, n);
        ck_assert_uint_eq(got.first, first);
        ck_assert_uint_gt(n, 1000);
}

START_TEST(D10_every_pair_of_bytes_that_wraps_is_counted) {
        struct pairs *p = pairs_new();
        for_each_isa(isa) {
                check_wrapped_pairs(p, isa, OP_SUM, DTYPE_U8);
                check_wrapped_pairs(p, isa, OP_SUM, DTYPE_I8);
                check_wrapped_pairs(p, isa, OP_PROD, DTYPE_U8);
                check_wrapped_pairs(p, isa, OP_PROD, DTYPE_I8);
        }
        free(p);
}
END_TEST

#define COUNT_ONE(isa, op, dtype, ...)                                                                       \
        count_one(isa, op, dtype, (const int64_t[]){ __VA_ARGS__ },                                          \
                sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t))

/* One element of each; little-endian, so that the low bytes come first. */
static size_t count_one(enum isa isa, enum op op, enum dtype dtype, const int64_t *values, uint32_t n) {
        const void *inputs[8];
        for (uint32_t i = 0; i < n; i++)
                inputs[i] = &values[i];
        return count_wrapped(isa, op, dtype, inputs, n, 1).n;
}

START_TEST(D10_what_wraps_and_comes_back_is_right_and_not_counted) {
        for_each_isa(isa) {
                ck_assert_uint_eq(COUNT_ONE(isa, OP_SUM, DTYPE_I8, 120, 100), 1);
                ck_assert_uint_eq(COUNT_ONE(isa, OP_SUM, DTYPE_I8, 120, 100, -100), 0);
                ck_assert_uint_eq(COUNT_ONE(isa, OP_PROD, DTYPE_I8, 64, 2, -1), 0);
                ck_assert_uint_eq(COUNT_ONE(isa, OP_PROD, DTYPE_I8, 64, 2, 1), 1);
                ck_assert_uint_eq(COUNT_ONE(isa, OP_PROD, DTYPE_I64, INT64_MAX, INT64_MAX, 0), 0);
                ck_assert_uint_eq(COUNT_ONE(isa, OP_PROD, DTYPE_I64, INT64_MIN, 1), 0);
                ck_assert_uint_eq(COUNT_ONE(isa, OP_PROD, DTYPE_I64, INT64_MIN, -1), 1);
                ck_assert_uint_eq(COUNT_ONE(isa, OP_PROD, DTYPE_U64, -1, 1), 0);
                ck_assert_uint_eq(COUNT_ONE(isa, OP_PROD, DTYPE_U64, -1, -1), 1);
                ck_assert_uint_eq(COUNT_ONE(isa, OP_SUM, DTYPE_U64, -1, 1), 1);
                ck_assert_uint_eq(COUNT_ONE(isa, OP_SUM, DTYPE_I64, INT64_MIN, -1), 1);
                ck_assert_uint_eq(COUNT_ONE(isa, OP_SUM, DTYPE_I64, INT64_MIN, -1, 1), 0);
                /* What cannot wrap. */
                ck_assert_uint_eq(COUNT_ONE(isa, OP_MAX, DTYPE_I8, 120, 100), 0);
                ck_assert_uint_eq(COUNT_ONE(isa, OP_MEAN, DTYPE_I8, 120, 100), 0);
                ck_assert_uint_eq(COUNT_ONE(isa, OP_SUM, DTYPE_F64, 120, 100), 0);
        }
}
END_TEST

UNIT_MAIN("kernels-integers", 60, D3_every_op_on_every_pair_of_bytes, any_byte_but_zero_is_true,
        D9_every_mean_of_three_bytes_by_every_rounding, D9_every_16_bit_sum_by_the_divisors_of_a_world,
        D9_quotients_of_32_bits_are_true_next_to_whole_and_half_numbers, P12_the_sum_of_a_full_world_is_exact,
        D9_trunc_floor_and_nearest_differ_as_their_names_say, D10_every_pair_of_bytes_that_wraps_is_counted,
        D10_what_wraps_and_comes_back_is_right_and_not_counted)
