/* The law of numbers, case by case: rank order and one rounding whatever the road (D4 D6, P10 P11), NaN and
 * zeros (D8, P13), nothing (D13), wrapping (P12), and what is refused (D9 D18, P12 P15). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "meeting.h"
#include "oracle.h"
#include "replica.h"
#include "unit.h"

#define N_RANKS 4

static struct tutti_group *join(struct replica *me) {
        return replica_join_group(me, &TUTTI_JOIN(.group = "train"));
}

static enum tutti_status reduce(struct tutti_group *g, enum tutti_op op, const struct array *a) {
        return tutti_all_reduce(g, NULL, op, &a->value, &a->value);
}

/* Ranks 0 .. n - 1 run `body` on a host of its own; afterwards nothing is left. */
static void meet(uint32_t n, void (*body)(struct replica *me)) {
        struct host *h = host_start(NULL);
        run_replicas(h, n, body, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}

/* --- D4: a mean that fits, although its sum does not --- */

static void expect_half_mean(struct tutti_group *g, struct array *a, double value) {
        uint16_t *halves = a->data, expected = oracle_to_f16(value);
        for (size_t i = 0; i < a->n; i++)
                halves[i] = expected;
        expect_status(reduce(g, TUTTI_MEAN, a), TUTTI_OK);
        for (size_t i = 0; i < a->n; i++)
                ck_assert_uint_eq(halves[i], expected);
}

static void average_halves(struct replica *me) {
        struct array a;
        struct tutti_group *g = join(me);
        array_init(me->t, &a, TUTTI_F16, 1003);
        expect_half_mean(g, &a, 30000);
        expect_half_mean(g, &a, 0x1p-24);
        expect_half_mean(g, &a, 65504);
        expect_half_mean(g, &a, -0x1.ffcp-15); /* the largest subnormal */
}

START_TEST(D4_the_mean_of_halves_neither_overflows_nor_underflows) {
        meet(4, average_halves);
}
END_TEST

/* --- D6: one answer whatever the road --- */

#define N_ELEMENTS ((size_t)60007)
#define N_BATCH    300

enum road { ALONE, IN_A_BATCH, IN_ORDER };

struct journey {
        enum road road;
        uint32_t position; /* in the batch */
        uint64_t hashes[N_RANKS];
};

static uint64_t hash_of(const void *data, size_t n_bytes) {
        const uint8_t *bytes = data;
        uint64_t hash = 0xcbf29ce484222325;
        for (size_t i = 0; i < n_bytes; i++)
                hash = (hash ^ bytes[i]) * 0x100000001b3;
        return hash;
}

/* The numbers of the case first; then some whose sum depends on the order in nearly every element. */
static void fill_contribution(float *data, uint32_t rank) {
        static const float classic[N_RANKS] = { 1e8F, 1, -1e8F, 1 };
        uint64_t state = 4711 + rank;
        for (size_t i = 0; i < N_ELEMENTS; i++) {
                state = state * 6364136223846793005 + 1442695040888963407;
                int64_t significand = (int64_t)(state >> 40) - (1 << 23);
                data[i] = ldexpf((float)significand, (int)(state >> 32 & 0xf));
        }
        for (size_t i = 0; i < 16; i++)
                data[i * 1000] = classic[rank];
}

/* In rank order, said as plainly as it can be. */
static uint64_t expected_hash(void) {
        float *parts[N_RANKS], *sum = calloc(N_ELEMENTS, sizeof(float));
        ck_assert_ptr_nonnull(sum);
        for (uint32_t rank = 0; rank < N_RANKS; rank++) {
                parts[rank] = calloc(N_ELEMENTS, sizeof(float));
                ck_assert_ptr_nonnull(parts[rank]);
                fill_contribution(parts[rank], rank);
        }
        for (size_t i = 0; i < N_ELEMENTS; i++) {
                volatile float s = parts[0][i] + parts[1][i]; /* rounded after each addition */
                s = s + parts[2][i];
                sum[i] = s + parts[3][i];
        }
        ck_assert_float_eq(sum[1000], 1);
        uint64_t hash = hash_of(sum, N_ELEMENTS * sizeof(float));
        for (uint32_t rank = 0; rank < N_RANKS; rank++)
                free(parts[rank]);
        free(sum);
        return hash;
}

static void travel_in_a_batch(struct tutti_group *g, struct array *mine, struct tutti *t, uint32_t position) {
        struct array others;
        struct tutti_value values[N_BATCH];
        struct tutti_entry entries[N_BATCH];
        array_init(t, &others, TUTTI_F32, N_BATCH * 100);
        for (uint32_t i = 0; i < N_BATCH; i++) {
                values[i] = TUTTI_VALUE(.buffer = others.buffer, .offset = i * 400, .dtype = TUTTI_F32,
                        .n_dims = 1, .shape = { 1 + i % 100 });
                if (i == position)
                        values[i] = mine->value;
                entries[i] = TUTTI_ENTRY(.input = &values[i], .output = &values[i]);
        }
        expect_status(tutti_batch_reduce(g, "x", TUTTI_SUM, entries, N_BATCH), TUTTI_OK);
        array_deinit(&others);
}

static void travel_in_order(struct replica *me, struct tutti_group *g, struct array *mine) {
        struct tutti_work *w;
        struct tutti_result result;
        /* A half that waits for its buffer to be taken in has not arrived: here nobody's does any more. */
        expect_status(tutti_barrier(g, "ready"), TUTTI_OK);
        replica_hear(me, "go");
        expect_status(
                tutti_all_reduce_start(g, "x", TUTTI_SUM, &mine->value, &mine->value, NULL, &w), TUTTI_OK);
        replica_say(me, "submitted");
        expect_work(w, TUTTI_OK);
        expect_status(tutti_work_result(w, &result), TUTTI_OK);
        replica_say(me, "last %u", result.last_rank);
        tutti_work_free(w);
}

static void travel(struct replica *me) {
        struct journey *j = me->arg;
        struct array mine;
        struct tutti_group *g = join(me);
        array_init(me->t, &mine, TUTTI_F32, N_ELEMENTS);
        fill_contribution(mine.data, me->rank);
        if (j->road == ALONE)
                expect_status(tutti_all_reduce(g, "x", TUTTI_SUM, &mine.value, &mine.value), TUTTI_OK);
        else if (j->road == IN_A_BATCH)
                travel_in_a_batch(g, &mine, me->t, j->position);
        else
                travel_in_order(me, g, &mine);
        j->hashes[me->rank] = hash_of(mine.data, N_ELEMENTS * sizeof(float));
}

static void expect_arrival(const struct journey *j) {
        for (uint32_t rank = 0; rank < N_RANKS; rank++)
                ck_assert_uint_eq(j->hashes[rank], expected_hash());
}

static void travel_by(struct host *h, struct journey journey) {
        struct journey *j = memory_shared(sizeof(*j));
        *j = journey;
        run_replicas(h, N_RANKS, travel, j);
        expect_arrival(j);
}

static void travel_on_a_host(const char *const *args) {
        struct host *h = host_start(args);
        travel_by(h, (struct journey){ .road = ALONE });
        travel_by(h, (struct journey){ .road = IN_A_BATCH, .position = 137 });
        host_expect_counters_zero(h);
        host_stop(h);
}

START_TEST(D6_P10_alone_or_anywhere_in_a_batch_and_after_a_restart) {
        static const uint32_t positions[] = { 0, 1, 298, 299 };
        struct host *h = host_start(NULL);
        travel_by(h, (struct journey){ .road = ALONE });
        for (size_t i = 0; i < sizeof(positions) / sizeof(*positions); i++)
                travel_by(h, (struct journey){ .road = IN_A_BATCH, .position = positions[i] });
        host_kill9(h);
        host_start_again(h);
        travel_by(h, (struct journey){ .road = ALONE });
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

START_TEST(D6_P10_in_chunks_of_any_size_by_any_number_of_workers) {
        travel_on_a_host((const char *[]){ "--set", "cpu.chunk=4KiB", "--workers", "1", NULL });
        travel_on_a_host((const char *[]){ "--set", "cpu.chunk=4KiB", "--workers", "2", NULL });
        travel_on_a_host((const char *[]){ "--set", "cpu.chunk=64KiB", "--workers", "2", NULL });
        travel_on_a_host((const char *[]){ "--set", "cpu.chunk=1MiB", "--workers", "1", NULL });
        travel_on_a_host((const char *[]){ "--cpu-devices", "2", "--workers", "2", NULL });
}
END_TEST

/* Where the machine has no such instructions, tuttid takes the next lower ones. */
START_TEST(D6_P10_with_any_instruction_set) {
        travel_on_a_host((const char *[]){ "--isa", "scalar", NULL });
        travel_on_a_host((const char *[]){ "--isa", "avx2", NULL });
        travel_on_a_host((const char *[]){ "--isa", "avx512", NULL });
}
END_TEST

static void arrive_in(struct host *h, const uint32_t *order) {
        struct journey *j = memory_shared(sizeof(*j));
        struct replica *r[N_RANKS];
        char last[16];
        j->road = IN_ORDER;
        replicas_spawn(h, N_RANKS, travel, j, r);
        for (uint32_t i = 0; i < N_RANKS; i++) {
                replica_tell(r[order[i]], "go");
                replica_expect(r[order[i]], "submitted", 10);
                if (i < N_RANKS - 1)
                        host_expect_pending(h, i + 1);
        }
        snprintf(last, sizeof(last), "last %u", order[N_RANKS - 1]);
        for (uint32_t i = 0; i < N_RANKS; i++)
                replica_expect(r[i], last, 10);
        for (uint32_t i = 0; i < N_RANKS; i++)
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        expect_arrival(j);
}

START_TEST(D6_P10_in_all_orders_of_arrival) {
        struct host *h = host_start(NULL);
        int n = 0;
        for (uint32_t code = 0; code < 256; code++) {
                uint32_t order[N_RANKS], seen = 0;
                for (uint32_t i = 0; i < N_RANKS; i++) {
                        order[i] = code >> (2 * i) & 3;
                        seen |= 1U << order[i];
                }
                if (seen != 0xf)
                        continue;
                arrive_in(h, order);
                n++;
        }
        ck_assert_int_eq(n, 24);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- D8, P13: NaN and the signs of zero --- */

#define N_SMALL 37 /* vectors and a tail */

static void put(const struct array *a, size_t i, double value) {
        const uint16_t f16 = oracle_to_f16(value), bf16 = oracle_to_bf16(value);
        if (a->value.dtype == TUTTI_F16)
                ((uint16_t *)a->data)[i] = f16;
        else if (a->value.dtype == TUTTI_BF16)
                ((uint16_t *)a->data)[i] = bf16;
        else if (a->value.dtype == TUTTI_F32)
                ((float *)a->data)[i] = (float)value;
        else
                ((double *)a->data)[i] = value;
}

static double get(const struct array *a, size_t i) {
        if (a->value.dtype == TUTTI_F16)
                return oracle_from_f16(((const uint16_t *)a->data)[i]);
        if (a->value.dtype == TUTTI_BF16)
                return oracle_from_bf16(((const uint16_t *)a->data)[i]);
        if (a->value.dtype == TUTTI_F32)
                return (double)((const float *)a->data)[i];
        return ((const double *)a->data)[i];
}

/* Element i of rank r is r, or -r; but `holder` has a NaN at each third. */
static void expect_extremes(struct replica *me, struct tutti_group *g, struct array *a, uint32_t holder) {
        static const enum tutti_op ops[] = { TUTTI_MIN, TUTTI_MAX };
        for (int k = 0; k < 2; k++) {
                for (size_t i = 0; i < N_SMALL; i++)
                        put(a, i,
                                me->rank == holder && i % 3 == 0 ? NAN
                                : i % 2                          ? me->rank
                                                                 : -(double)me->rank);
                expect_status(reduce(g, ops[k], a), TUTTI_OK);
                for (size_t i = 0; i < N_SMALL; i++) {
                        double all = ops[k] == TUTTI_MIN ? (i % 2 ? 0 : -3) : (i % 2 ? 3 : -0.0);
                        if (i % 3 == 0 && holder < N_RANKS)
                                ck_assert_msg(isnan(get(a, i)), "element %zu is %g", i, get(a, i));
                        else
                                ck_assert_double_eq(get(a, i), all);
                }
        }
}

/* -0 is below +0, whoever has it. */
static void expect_zeros(struct replica *me, struct tutti_group *g, struct array *a) {
        static const enum tutti_op ops[] = { TUTTI_MIN, TUTTI_MAX };
        for (int k = 0; k < 2; k++) {
                for (size_t i = 0; i < N_SMALL; i++)
                        put(a, i, i % N_RANKS == me->rank ? -0.0 : 0.0);
                expect_status(reduce(g, ops[k], a), TUTTI_OK);
                for (size_t i = 0; i < N_SMALL; i++) {
                        ck_assert_double_eq(get(a, i), 0);
                        ck_assert_int_eq(!!signbit(get(a, i)), ops[k] == TUTTI_MIN);
                }
        }
}

static void find_extremes(struct replica *me) {
        static const enum tutti_dtype dtypes[] = { TUTTI_F16, TUTTI_BF16, TUTTI_F32, TUTTI_F64 };
        struct tutti_group *g = join(me);
        for (size_t d = 0; d < sizeof(dtypes) / sizeof(*dtypes); d++) {
                struct array a;
                array_init(me->t, &a, dtypes[d], N_SMALL);
                for (uint32_t holder = 0; holder <= N_RANKS; holder++) /* the last: nobody */
                        expect_extremes(me, g, &a, holder);
                expect_zeros(me, g, &a);
                array_deinit(&a);
        }
}

START_TEST(D8_P13_a_NaN_anywhere_is_a_NaN_everywhere) {
        meet(N_RANKS, find_extremes);
}
END_TEST

/* --- D13: nothing at all --- */

static void expect_shape_mismatch(struct replica *me, struct tutti_group *g, struct array *a) {
        struct tutti_value v = a->value;
        if (me->rank == 1)
                v.shape[0] = 0;
        memset(a->data, 0x11, a->n * sizeof(float));
        expect_status(tutti_all_reduce(g, "x", TUTTI_SUM, &v, &v), TUTTI_MISMATCH);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_SHAPE);
        ck_assert_uint_eq(tutti_error_info()->n_classes, 2);
        for (size_t i = 0; i < a->n * sizeof(float); i++)
                ck_assert_uint_eq(((const uint8_t *)a->data)[i], 0x11);
}

static void reduce_nothing(struct replica *me) {
        struct array a, b;
        struct tutti_group *g = join(me);
        array_init(me->t, &a, TUTTI_F32, 10);
        array_init(me->t, &b, TUTTI_I64, 0);
        struct tutti_value none = TUTTI_VALUE(.buffer = a.buffer, .offset = 40, .dtype = TUTTI_F32,
                .n_dims = 3, .shape = { 5, 0, 7 });
        expect_status(tutti_all_reduce(g, NULL, TUTTI_MEAN, &none, &none), TUTTI_OK);
        ck_assert_uint_eq(tutti_last_result()->n_contributors, 3);
        expect_status(reduce(g, TUTTI_MAX, &b), TUTTI_OK);
        expect_status(tutti_broadcast(g, NULL, 2, &none), TUTTI_OK);
        struct tutti_entry entries[2] = { TUTTI_ENTRY(.input = &none, .output = &none),
                TUTTI_ENTRY(.input = &a.value, .output = &a.value) };
        for (size_t i = 0; i < a.n; i++)
                ((float *)a.data)[i] = 2;
        expect_status(tutti_batch_reduce(g, NULL, TUTTI_SUM, entries, 2), TUTTI_OK);
        for (size_t i = 0; i < a.n; i++)
                ck_assert_float_eq(((float *)a.data)[i], 6);
        expect_shape_mismatch(me, g, &a);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
}

START_TEST(D13_no_elements_is_a_meeting_like_any_other) {
        meet(3, reduce_nothing);
}
END_TEST

/* --- P12: integers --- */

static void wrap(struct replica *me) {
        struct array small, medium, large;
        struct tutti_group *g = join(me);
        array_init(me->t, &small, TUTTI_U8, 100);
        array_init(me->t, &medium, TUTTI_I32, 100);
        array_init(me->t, &large, TUTTI_I64, 100);
        for (size_t i = 0; i < 100; i++) {
                ((uint8_t *)small.data)[i] = me->rank ? 250 : (uint8_t)i;
                ((int32_t *)medium.data)[i] = me->rank ? INT32_MAX : (int32_t)i;
                ((int64_t *)large.data)[i] = me->rank ? INT64_MIN : -(int64_t)i;
        }
        expect_status(reduce(g, TUTTI_SUM, &small), TUTTI_OK);
        expect_status(reduce(g, TUTTI_SUM, &medium), TUTTI_OK);
        expect_status(reduce(g, TUTTI_SUM, &large), TUTTI_OK);
        for (size_t i = 0; i < 100; i++) {
                ck_assert_uint_eq(((uint8_t *)small.data)[i], (i + 250) % 256);
                ck_assert_int_eq(((int32_t *)medium.data)[i], i ? INT32_MIN + (int32_t)i - 1 : INT32_MAX);
                ck_assert_int_eq(((int64_t *)large.data)[i], i ? INT64_MAX - (int64_t)i + 1 : INT64_MIN);
        }
}

START_TEST(P12_integers_wrap) {
        meet(2, wrap);
}
END_TEST

static void expect_untouched(const struct array *a) {
        for (size_t i = 0; i < a->n * tutti_dtype_bytes(a->value.dtype); i++)
                ck_assert_uint_eq(((const uint8_t *)a->data)[i], 0x5a);
}

static void refuse_integer_means(struct replica *me) {
        struct tutti_group *g = join(me);
        for (enum tutti_dtype dtype = TUTTI_U8; dtype <= TUTTI_I64; dtype++) {
                struct array a;
                array_init(me->t, &a, dtype, 16);
                memset(a.data, 0x5a, 16 * tutti_dtype_bytes(dtype));
                expect_status(reduce(g, TUTTI_MEAN, &a), TUTTI_UNSUPPORTED);
                expect_in(tutti_error(), "MEAN");
                expect_in(tutti_error(), tutti_dtype_name(dtype));
                expect_in(tutti_error(), "trunc, floor, nearest"); /* what works */
                expect_in(tutti_error(), tutti_dtype_bytes(dtype) <= 2 ? "f32" : "f64");
                expect_untouched(&a);
                expect_status(reduce(g, TUTTI_MAX, &a), TUTTI_OK);
                expect_untouched(&a);
                array_deinit(&a);
        }
}

START_TEST(D9_P12_the_mean_of_integers_is_refused_with_advice) {
        meet(2, refuse_integer_means);
}
END_TEST

/* --- P15: refuse rather than guess --- */

static void expect_list_of_what_works(void) {
        static const char *const words[] = { "SUM", "MEAN", "PROD", "MIN", "MAX", "BAND", "BOR", "BXOR",
                "LAND", "LOR", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "bf16", "f32",
                "f64", "bool", "c64", "c128" };
        for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
                expect_in(tutti_error(), words[i]);
}

/* PEER_REFUSED for who was there, EXPIRED for who came after it. */
static void expect_to_hear_of_it(
        struct tutti_group *g, const struct array *mine, enum tutti_status wanted, enum tutti_field field) {
        enum tutti_status status = reduce(g, TUTTI_SUM, mine);
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_msg(status == TUTTI_PEER_REFUSED || status == TUTTI_EXPIRED, "%s", tutti_error());
        ck_assert_int_eq(e->cause, status == TUTTI_EXPIRED ? TUTTI_PEER_REFUSED : wanted);
        ck_assert_int_eq(e->rank, 1);
        ck_assert_int_eq(e->field, field);
        ck_assert_double_lt(e->age, 10 * unit_scale());
        expect_in(e->text, "R1");
        if (status == TUTTI_PEER_REFUSED)
                expect_in(e->text, tutti_status_name(wanted));
}

/* Rank 1 asks in vain; the others, who asked for something possible, hear of it at once. */
static void expect_refusal(struct replica *me, struct tutti_group *g, enum tutti_op op, const struct array *a,
        enum tutti_status wanted, enum tutti_field field) {
        struct array mine;
        if (me->rank == 1) {
                expect_status(reduce(g, op, a), wanted);
                ck_assert_int_eq(tutti_error_info()->field, field);
                return;
        }
        array_init(me->t, &mine, TUTTI_F32, a->n);
        expect_to_hear_of_it(g, &mine, wanted, field);
        array_deinit(&mine);
}

static void ask_for_no_op(struct replica *me) {
        struct array a;
        struct tutti_group *g = join(me);
        array_init(me->t, &a, TUTTI_F32, 16);
        memset(a.data, 0x5a, 64);
        expect_refusal(me, g, TUTTI_OP_UNSPECIFIED, &a, TUTTI_INVALID, TUTTI_FIELD_OP);
        if (me->rank == 1) {
                expect_in(tutti_error(), "no default op");
                expect_in(tutti_error(), "SUM");
        }
        expect_untouched(&a);
        memset(a.data, 0, 64);
        expect_status(reduce(g, TUTTI_SUM, &a), TUTTI_OK);
        ck_assert_int_eq(tutti_last_result()->op, TUTTI_SUM);
        ck_assert_uint_eq(tutti_last_result()->n_contributors, 3);
}

START_TEST(D18_P15_there_is_no_default_op) {
        meet(3, ask_for_no_op);
}
END_TEST

/* What has no meaning: bits of floats, an order of complex numbers, sums of truths. */
static void ask_for_what_is_not_done(struct replica *me) {
        static const struct {
                enum tutti_op op;
                enum tutti_dtype dtype;
        } wishes[] = { { TUTTI_BAND, TUTTI_F32 }, { TUTTI_BXOR, TUTTI_BF16 }, { TUTTI_LOR, TUTTI_U8 },
                { TUTTI_LAND, TUTTI_F64 }, { TUTTI_SUM, TUTTI_BOOL }, { TUTTI_MAX, TUTTI_BOOL },
                { TUTTI_BOR, TUTTI_BOOL }, { TUTTI_MIN, TUTTI_C64 }, { TUTTI_MAX, TUTTI_C128 } };
        struct tutti_group *g = join(me);
        for (size_t i = 0; i < sizeof(wishes) / sizeof(*wishes); i++) {
                struct array odd;
                array_init(me->t, &odd, wishes[i].dtype, 16);
                memset(odd.data, 0x5a, 16 * tutti_dtype_bytes(wishes[i].dtype));
                expect_refusal(me, g, wishes[i].op, &odd, TUTTI_UNSUPPORTED, TUTTI_FIELD_OP);
                if (me->rank == 1)
                        expect_list_of_what_works();
                expect_untouched(&odd);
                array_deinit(&odd);
        }
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
}

START_TEST(D3_P15_what_is_not_done_is_refused_with_a_list_of_what_is) {
        meet(3, ask_for_what_is_not_done);
}
END_TEST

UNIT_MAIN("numbers", 60, D4_the_mean_of_halves_neither_overflows_nor_underflows,
        D6_P10_alone_or_anywhere_in_a_batch_and_after_a_restart,
        D6_P10_in_chunks_of_any_size_by_any_number_of_workers, D6_P10_with_any_instruction_set,
        D6_P10_in_all_orders_of_arrival, D8_P13_a_NaN_anywhere_is_a_NaN_everywhere,
        D13_no_elements_is_a_meeting_like_any_other, P12_integers_wrap,
        D9_P12_the_mean_of_integers_is_refused_with_advice, D18_P15_there_is_no_default_op,
        D3_P15_what_is_not_done_is_refused_with_a_list_of_what_is)
