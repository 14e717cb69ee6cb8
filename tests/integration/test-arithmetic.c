/* Every dtype and op through the real tuttid (D3), and what callers may ask of the numbers: means of integers
 * (D9 P12), checks (D10 D11 P13), weights (D12). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "meeting.h"
#include "oracle.h"
#include "replica.h"
#include "unit.h"

#define N_RANKS 3
#define N_SMALL 1003

static struct tutti_group *join(struct replica *me) {
        return replica_join_group(me, &TUTTI_JOIN(.group = "train"));
}

/* Ranks 0 .. n - 1 run `body` on a host of its own; afterwards nothing is left. */
static struct host *meet_and_keep(uint32_t n, void (*body)(struct replica *me)) {
        struct host *h = host_start(NULL);
        run_replicas(h, n, body, NULL);
        host_expect_counters_zero(h);
        return h;
}

static void meet(uint32_t n, void (*body)(struct replica *me)) {
        host_stop(meet_and_keep(n, body));
}

/* Starts, waits, and gives the work with its result or error. */
static struct tutti_work *reduce_to(struct tutti_group *g, enum tutti_op op, const struct array *in,
        const struct array *out, const struct tutti_options *options, enum tutti_status wanted) {
        struct tutti_work *w;
        expect_status(tutti_all_reduce_start(g, NULL, op, &in->value, &out->value, options, &w), TUTTI_OK);
        expect_work(w, wanted);
        return w;
}

static void reduce(struct tutti_group *g, enum tutti_op op, const struct array *in, const struct array *out,
        const struct tutti_options *options) {
        tutti_work_free(reduce_to(g, op, in, out, options, TUTTI_OK));
}

/* It fails so, and its text holds `part`. */
static void expect_failure(struct tutti_group *g, enum tutti_op op, const struct array *a,
        const struct tutti_options *options, enum tutti_status wanted, const char *part) {
        struct tutti_work *w = reduce_to(g, op, a, a, options, wanted);
        ck_assert_int_eq(tutti_work_error(w)->field, TUTTI_FIELD_OPTIONS);
        expect_in(tutti_work_error(w)->text, part);
        tutti_work_free(w);
}

/* --- D3: every dtype, every op --- */

static void fill_of_rank(enum tutti_dtype dtype, void *data, uint32_t rank) {
        oracle_fill((enum dtype)dtype, data, N_SMALL, 100 * (uint64_t)dtype + rank);
}

/* What all ranks bring, each in memory of its own. */
static void *inputs_of_all(enum tutti_dtype dtype, const void *ret[N_RANKS]) {
        size_t n_bytes = N_SMALL * tutti_dtype_bytes(dtype);
        uint8_t *all = malloc(N_RANKS * n_bytes);
        ck_assert_ptr_nonnull(all);
        for (uint32_t rank = 0; rank < N_RANKS; rank++) {
                fill_of_rank(dtype, all + rank * n_bytes, rank);
                ret[rank] = all + rank * n_bytes;
        }
        return all;
}

static void expect_same(enum tutti_dtype dtype, const void *got, const void *expected, const char *what) {
        ptrdiff_t i = oracle_difference((enum dtype)dtype, got, expected, N_SMALL);
        ck_assert_msg(i < 0, "%s of %s: element %td is %s, not %s", what, tutti_dtype_name(dtype), i,
                oracle_show((enum dtype)dtype, got, (size_t)i),
                oracle_show((enum dtype)dtype, expected, (size_t)i));
}

static void check_dtype(struct replica *me, struct tutti_group *g, enum tutti_dtype dtype) {
        const void *inputs[N_RANKS];
        void *all = inputs_of_all(dtype, inputs), *expected = malloc(N_SMALL * 16);
        struct array a;
        ck_assert_ptr_nonnull(expected);
        array_init(me->t, &a, dtype, N_SMALL);
        for (enum tutti_op op = TUTTI_SUM; op <= TUTTI_LOR; op++) {
                if (!op_is_supported((enum op)op, (enum dtype)dtype))
                        continue;
                fill_of_rank(dtype, a.data, me->rank);
                oracle_reduce((enum op)op, (enum dtype)dtype, inputs, N_RANKS, expected, N_SMALL, N_RANKS);
                reduce(g, op, &a, &a, NULL);
                expect_same(dtype, a.data, expected, op_name((enum op)op));
        }
        fill_of_rank(dtype, a.data, me->rank);
        expect_status(tutti_broadcast(g, NULL, 2, &a.value), TUTTI_OK);
        ck_assert_mem_eq(a.data, inputs[2], N_SMALL * tutti_dtype_bytes(dtype));
        array_deinit(&a);
        free(expected);
        free(all);
}

static void combine_everything(struct replica *me) {
        struct tutti_group *g = join(me);
        for (enum tutti_dtype dtype = TUTTI_U8; dtype <= TUTTI_C128; dtype++)
                check_dtype(me, g, dtype);
}

START_TEST(D3_every_op_on_every_dtype) {
        meet(N_RANKS, combine_everything);
}
END_TEST

/* --- D9: means of integers --- */

/* The numbers of the case; numel is 7, and divides nothing. */
static void average_by_name(struct replica *me) {
        static const int32_t brought[2][7] = { { -3, -4, 3, 2, -1, 0, 5 }, { -4, -3, 4, 3, 0, -1, 0 } };
        static const int32_t expected[][7] = {
                [TUTTI_TRUNC] = { -3, -3, 3, 2, 0, 0, 2 },
                [TUTTI_FLOOR] = { -4, -4, 3, 2, -1, -1, 2 },
                [TUTTI_NEAREST] = { -4, -4, 4, 2, 0, 0, 2 },
        };
        struct tutti_group *g = join(me);
        struct array a, quotients;
        array_init(me->t, &a, TUTTI_I32, 7);
        for (enum tutti_rounding r = TUTTI_TRUNC; r <= TUTTI_NEAREST; r++) {
                memcpy(a.data, brought[me->rank], sizeof(brought[0]));
                reduce(g, TUTTI_MEAN, &a, &a, &TUTTI_OPTIONS(.rounding = r));
                ck_assert_mem_eq(a.data, expected[r], sizeof(expected[r]));
        }
        array_init(me->t, &quotients, TUTTI_F64, 7);
        memcpy(a.data, brought[me->rank], sizeof(brought[0]));
        reduce(g, TUTTI_MEAN, &a, &quotients, NULL);
        for (int i = 0; i < 7; i++)
                ck_assert_double_eq(((double *)quotients.data)[i], (brought[0][i] + brought[1][i]) / 2.0);
        ck_assert_mem_eq(a.data, brought[me->rank], sizeof(brought[0]));
}

START_TEST(D9_P12_the_mean_of_integers_by_name_and_to_floats) {
        meet(2, average_by_name);
}
END_TEST

static void check_means(struct replica *me, struct tutti_group *g, enum tutti_dtype dtype) {
        enum tutti_dtype to = tutti_dtype_bytes(dtype) <= 2 ? TUTTI_F32 : TUTTI_F64;
        const void *inputs[N_RANKS];
        void *all = inputs_of_all(dtype, inputs);
        struct array a, quotients, expected;
        array_init(me->t, &a, dtype, N_SMALL);
        array_init(me->t, &expected, to, N_SMALL); /* only its memory is used */
        array_init(me->t, &quotients, to, N_SMALL);
        for (enum tutti_rounding r = TUTTI_ROUNDING_UNSPECIFIED; r <= TUTTI_NEAREST; r++) {
                const struct array *out = r ? &a : &quotients;
                fill_of_rank(dtype, a.data, me->rank);
                oracle_mean_of_integers((enum dtype)dtype, (enum rounding)r, inputs, N_RANKS, expected.data,
                        N_SMALL, N_RANKS);
                reduce(g, TUTTI_MEAN, &a, out, &TUTTI_OPTIONS(.rounding = r));
                expect_same(out->value.dtype, out->data, expected.data, "MEAN");
        }
        array_deinit(&quotients);
        array_deinit(&expected);
        array_deinit(&a);
        free(all);
}

static void average_integers(struct replica *me) {
        struct tutti_group *g = join(me);
        for (enum tutti_dtype dtype = TUTTI_U8; dtype <= TUTTI_I64; dtype++)
                check_means(me, g, dtype);
}

START_TEST(D9_P12_the_mean_of_every_integer_type) {
        meet(N_RANKS, average_integers);
}
END_TEST

/* Who brings and does not receive says by an output's dtype where the mean goes. */
static void average_to_one(struct replica *me) {
        struct tutti_group *g = join(me);
        struct array a, quotients;
        const struct tutti_value elsewhere = TUTTI_VALUE(.dtype = TUTTI_F32);
        const struct tutti_destinations to = { .where = TUTTI_TO_RANK, .rank = 1 };
        array_init(me->t, &a, TUTTI_U8, 10);
        array_init(me->t, &quotients, TUTTI_F32, 10);
        memset(a.data, (int)me->rank, 10);
        expect_status(tutti_reduce(g, NULL, TUTTI_MEAN, &a.value,
                              me->rank == 1 ? &quotients.value : &elsewhere, &to),
                TUTTI_OK);
        for (int i = 0; i < 10; i++)
                ck_assert_float_eq(((float *)quotients.data)[i], me->rank == 1 ? 0.5F : 0);
}

START_TEST(D9_the_mean_of_integers_at_one_rank) {
        meet(2, average_to_one);
}
END_TEST

/* MISMATCH names who says what; nothing was written. */
static void expect_mismatch(struct tutti_group *g, enum tutti_op op, const struct array *in,
        const struct array *out, const struct tutti_options *options, enum tutti_field field) {
        struct tutti_work *w = reduce_to(g, op, in, out, options, TUTTI_MISMATCH);
        ck_assert_int_eq(tutti_work_error(w)->field, field);
        ck_assert_uint_eq(tutti_work_error(w)->n_classes, 2);
        tutti_work_free(w);
}

static void disagree(struct replica *me) {
        struct tutti_group *g = join(me);
        bool is_odd = me->rank == 1;
        struct array ints, floats;
        array_init(me->t, &ints, TUTTI_I64, 16);
        array_init(me->t, &floats, TUTTI_F64, 16);
        expect_mismatch(g, TUTTI_MEAN, &ints, &ints,
                &TUTTI_OPTIONS(.rounding = is_odd ? TUTTI_FLOOR : TUTTI_TRUNC), TUTTI_FIELD_OPTIONS);
        expect_mismatch(g, TUTTI_SUM, &floats, &floats, &TUTTI_OPTIONS(.has_weight = is_odd, .weight = 1),
                TUTTI_FIELD_OPTIONS);
        expect_mismatch(g, TUTTI_SUM, &floats, &floats, &TUTTI_OPTIONS(.check_numerics = is_odd),
                TUTTI_FIELD_OPTIONS);
        expect_mismatch(
                g, TUTTI_SUM, &ints, &ints, &TUTTI_OPTIONS(.check_overflow = is_odd), TUTTI_FIELD_OPTIONS);
        /* One takes the mean as integers, the others as floats. */
        expect_mismatch(g, TUTTI_MEAN, &ints, is_odd ? &ints : &floats,
                &TUTTI_OPTIONS(.rounding = is_odd ? TUTTI_FLOOR : TUTTI_ROUNDING_UNSPECIFIED),
                TUTTI_FIELD_OPTIONS);
        reduce(g, TUTTI_SUM, &floats, &floats, NULL);
}

START_TEST(P4_options_that_change_numbers_must_agree) {
        meet(N_RANKS, disagree);
}
END_TEST

/* --- D10, D11: checks --- */

static struct tutti_result result_of(struct tutti_work *w) {
        struct tutti_result result;
        expect_status(tutti_work_result(w, &result), TUTTI_OK);
        tutti_work_free(w);
        return result;
}

static void expect_finding(
        const struct tutti_finding *f, uint64_t n, uint32_t rank, uint32_t entry, uint64_t index) {
        ck_assert_uint_eq(f->n, n);
        ck_assert_uint_eq(f->rank, rank);
        ck_assert_uint_eq(f->entry, entry);
        ck_assert_uint_eq(f->index, index);
}

static void overflow(struct replica *me) {
        struct tutti_group *g = join(me);
        struct array a;
        array_init(me->t, &a, TUTTI_I8, 1000);
        memset(a.data, me->rank ? 100 : 20, 1000);
        ((int8_t *)a.data)[700] = ((int8_t *)a.data)[701] = me->rank ? 100 : 120;
        struct tutti_result r =
                result_of(reduce_to(g, TUTTI_SUM, &a, &a, &TUTTI_OPTIONS(.check_overflow = 1), TUTTI_OK));
        expect_finding(&r.overflow, 2, 0, 0, 700);
        ck_assert_uint_eq(r.numerics.n, 0);
        ck_assert_int_eq(((int8_t *)a.data)[699], 120);
        ck_assert_int_eq(((int8_t *)a.data)[700], -36);
        /* Unasked, nobody looks; and where nothing wraps there is nothing to tell. */
        memset(a.data, 100, 1000);
        r = result_of(reduce_to(g, TUTTI_SUM, &a, &a, NULL, TUTTI_OK));
        ck_assert_uint_eq(r.overflow.n, 0);
        ck_assert_int_eq(((int8_t *)a.data)[5], -56);
        r = result_of(reduce_to(g, TUTTI_MAX, &a, &a, &TUTTI_OPTIONS(.check_overflow = 1), TUTTI_OK));
        ck_assert_uint_eq(r.overflow.n, 0);
}

START_TEST(D10_a_sum_that_wraps_is_counted_and_logged) {
        struct host *h = meet_and_keep(2, overflow);
        expect_in(host_log(h),
                "test/train: reduce SUM #0: check_overflow: 2 elements have wrapped, the first at "
                "index 700 of entry 0");
        ck_assert_ptr_null(strstr(host_log(h), "#1: check"));
        host_stop(h);
}
END_TEST

#define N_CHECKED ((size_t)100000)

static void look_for_nan(struct replica *me) {
        struct tutti_group *g = join(me);
        const struct tutti_options check = TUTTI_OPTIONS(.check_numerics = 1);
        struct array a;
        array_init(me->t, &a, TUTTI_F32, N_CHECKED);
        struct tutti_result r = result_of(reduce_to(g, TUTTI_SUM, &a, &a, &check, TUTTI_OK)); /* #0 */
        ck_assert_uint_eq(r.numerics.n, 0);

        float *data = a.data;
        if (me->rank == 2)
                data[12345] = NAN;
        if (me->rank == 3)
                data[12] = INFINITY;
        r = result_of(reduce_to(g, TUTTI_SUM, &a, &a, &check, TUTTI_OK)); /* #1 */
        expect_finding(&r.numerics, 2, 2, 0, 12345);
        ck_assert(isnan(data[12345]) && isinf(data[12]) && data[11] == 0);
        r = result_of(reduce_to(g, TUTTI_MAX, &a, &a, &check, TUTTI_OK)); /* all have got them now */
        expect_finding(&r.numerics, 8, 0, 0, 12);
}

START_TEST(D11_P13_the_first_NaN_is_named) {
        struct host *h = meet_and_keep(4, look_for_nan);
        expect_in(host_log(h),
                "test/train: reduce SUM #1: check_numerics: 2 elements are NaN or infinite, the "
                "first from R2 at index 12345 of entry 0");
        ck_assert_ptr_null(strstr(host_log(h), "#0: check"));
        host_stop(h);
}
END_TEST

static struct tutti_result broadcast_checked(struct tutti_group *g, uint32_t root, const struct array *a) {
        struct tutti_work *w;
        expect_status(
                tutti_broadcast_start(g, NULL, root, &a->value, &TUTTI_OPTIONS(.check_numerics = 1), &w),
                TUTTI_OK);
        expect_work(w, TUTTI_OK);
        return result_of(w);
}

/* What receives may hold anything before. */
static void look_at_root_alone(struct replica *me) {
        struct tutti_group *g = join(me);
        struct array a;
        array_init(me->t, &a, TUTTI_C64, 100);
        if (me->rank != 1)
                memset(a.data, 0xff, 800); /* NaNs */
        ck_assert_uint_eq(broadcast_checked(g, 1, &a).numerics.n, 0);
        ck_assert_float_eq(((float *)a.data)[7], 0);
        if (me->rank == 1)
                ((float *)a.data)[2 * 55 + 1] = NAN;
        struct tutti_result r = broadcast_checked(g, 1, &a);
        expect_finding(&r.numerics, 1, 1, 0, 55);
        ck_assert(isnan(((float *)a.data)[2 * 55 + 1]));
}

START_TEST(D11_of_a_broadcast_the_root_is_looked_at_alone) {
        meet(N_RANKS, look_at_root_alone);
}
END_TEST

static void look_through_a_batch(struct replica *me) {
        struct tutti_group *g = join(me);
        struct array a;
        struct tutti_value values[3];
        struct tutti_entry entries[3];
        struct tutti_work *w;
        array_init(me->t, &a, TUTTI_F16, 300);
        for (uint32_t i = 0; i < 3; i++) {
                values[i] = a.value;
                values[i].offset = 200 * i;
                values[i].shape[0] = 100;
                entries[i] = TUTTI_ENTRY(.input = &values[i], .output = &values[i]);
        }
        if (me->rank == 1)
                ((uint16_t *)a.data)[250] = ((uint16_t *)a.data)[122] = 0x7c00;
        expect_status(tutti_batch_reduce_start(g, "batch", TUTTI_MEAN, entries, 3,
                              &TUTTI_OPTIONS(.check_numerics = 1, .check_overflow = 1), &w),
                TUTTI_OK);
        expect_work(w, TUTTI_OK);
        struct tutti_result r = result_of(w);
        expect_finding(&r.numerics, 2, 1, 1, 22);
        ck_assert_uint_eq(r.overflow.n, 0);
}

START_TEST(D11_of_a_batch_the_entry_is_named) {
        struct host *h = meet_and_keep(2, look_through_a_batch);
        expect_in(host_log(h),
                "batch_reduce MEAN \"batch\": check_numerics: 2 elements are NaN or infinite, the "
                "first from R1 at index 22 of entry 1");
        host_stop(h);
}
END_TEST

/* --- D12: weights --- */

static void weigh(struct replica *me) {
        static const double weights[N_RANKS] = { 0, 3, 1 };
        const struct tutti_options mine = TUTTI_OPTIONS(.has_weight = 1, .weight = weights[me->rank]);
        struct tutti_group *g = join(me);
        for (enum tutti_dtype dtype = TUTTI_F16; dtype <= TUTTI_F64; dtype++) {
                const void *inputs[N_RANKS];
                void *all = inputs_of_all(dtype, inputs), *expected = malloc(N_SMALL * 8);
                struct array a;
                ck_assert_ptr_nonnull(expected);
                array_init(me->t, &a, dtype, N_SMALL);
                for (enum tutti_op op = TUTTI_SUM; op <= TUTTI_MEAN; op++) {
                        fill_of_rank(dtype, a.data, me->rank);
                        if (me->rank == 0) /* an empty batch: NaNs in all that it brings */
                                memset(a.data, 0xff, N_SMALL * tutti_dtype_bytes(dtype));
                        oracle_weighted(
                                (enum op)op, (enum dtype)dtype, inputs, weights, N_RANKS, expected, N_SMALL);
                        reduce(g, op, &a, &a, &mine);
                        expect_same(dtype, a.data, expected, "weighted");
                }
                array_deinit(&a);
                free(expected);
                free(all);
        }
}

START_TEST(D12_a_weight_of_0_is_skipped) {
        meet(N_RANKS, weigh);
}
END_TEST

/* A number of the case: three samples here, one there. */
static void weigh_samples(struct replica *me) {
        struct tutti_group *g = join(me);
        struct array a;
        array_init(me->t, &a, TUTTI_F32, 4);
        for (int i = 0; i < 4; i++)
                ((float *)a.data)[i] = me->rank ? 8 : 4;
        reduce(g, TUTTI_MEAN, &a, &a, &TUTTI_OPTIONS(.has_weight = 1, .weight = me->rank ? 1 : 3));
        for (int i = 0; i < 4; i++)
                ck_assert_float_eq(((float *)a.data)[i], 5);
        /* Nothing to take a mean of is an error for all, and the memory is as it was. */
        expect_failure(g, TUTTI_MEAN, &a, &TUTTI_OPTIONS(.has_weight = 1), TUTTI_INVALID,
                "the weights of all 2 contributions are 0");
        ck_assert_float_eq(((float *)a.data)[3], 5);
        reduce(g, TUTTI_SUM, &a, &a, &TUTTI_OPTIONS(.has_weight = 1));
        ck_assert_float_eq(((float *)a.data)[3], 0);
}

START_TEST(D12_the_mean_of_weighted_samples_and_of_none) {
        meet(2, weigh_samples);
}
END_TEST

/* Rank 1's weight is refused; the other hears whose it was. */
static void refuse_weights(struct replica *me) {
        static const double bad[] = { -1, NAN, INFINITY };
        struct tutti_group *g = join(me);
        struct array a;
        array_init(me->t, &a, TUTTI_F32, 4);
        for (size_t i = 0; i < 3; i++) {
                struct tutti_work *w;
                double weight = me->rank == 1 ? bad[i] : 1;
                expect_status(tutti_all_reduce_start(g, NULL, TUTTI_MEAN, &a.value, &a.value,
                                      &TUTTI_OPTIONS(.has_weight = 1, .weight = weight), &w),
                        TUTTI_OK);
                enum tutti_status status = tutti_work_wait(w, -1);
                if (me->rank == 1)
                        expect_in(tutti_work_error(w)->text, "it must be 0 or a positive finite number");
                ck_assert_int_eq(tutti_work_error(w)->rank, 1);
                ck_assert(status == TUTTI_INVALID ||
                          (me->rank == 0 && (status == TUTTI_PEER_REFUSED || status == TUTTI_EXPIRED)));
                ck_assert_int_eq(tutti_work_error(w)->field, TUTTI_FIELD_OPTIONS);
                tutti_work_free(w);
        }
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
}

START_TEST(D12_a_weight_is_0_or_positive_and_finite) {
        meet(2, refuse_weights);
}
END_TEST

UNIT_MAIN("arithmetic", 60, D3_every_op_on_every_dtype, D9_P12_the_mean_of_integers_by_name_and_to_floats,
        D9_P12_the_mean_of_every_integer_type, D9_the_mean_of_integers_at_one_rank,
        P4_options_that_change_numbers_must_agree, D10_a_sum_that_wraps_is_counted_and_logged,
        D11_P13_the_first_NaN_is_named, D11_of_a_broadcast_the_root_is_looked_at_alone,
        D11_of_a_batch_the_entry_is_named, D12_a_weight_of_0_is_skipped,
        D12_the_mean_of_weighted_samples_and_of_none, D12_a_weight_is_0_or_positive_and_finite)
