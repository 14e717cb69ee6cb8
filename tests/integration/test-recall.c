/* Plain calls that come again are not looked at anew (lib/recall.c): what looks like an earlier one and is
 * another must not be taken for it. */
#include <stdlib.h>
#include <string.h>
#include "meeting.h"
#include "replica.h"
#include "unit.h"

#define N_FLOATS 64

/* The allocator hands out the address of the last handle again, for memory that lies elsewhere: what is large
 * does not fit where the small one lay, before what stays. */
static void take_and_free(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats stays, f;
        uint32_t n_reused = 0;
        const void *before = NULL;
        const float *where = NULL;
        floats_init(me->t, &f, N_FLOATS);
        floats_init(me->t, &stays, N_FLOATS);
        floats_deinit(&f);
        for (uint32_t k = 0; k < 200; k++) {
                floats_init(me->t, &f, k % 2 ? 64 * N_FLOATS : N_FLOATS);
                n_reused += before == f.buffer && where != f.data;
                for (int again = 0; again < 4; again++) {
                        const struct tutti_value v = floats_part(&f, 0, N_FLOATS);
                        floats_fill(&f, (float)(me->rank + k));
                        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &v, &v), TUTTI_OK);
                        floats_expect_part(&f, 0, N_FLOATS, floats_sum_of_ranks(me->n, (float)k));
                        floats_expect_part(&f, N_FLOATS, f.n - N_FLOATS, (float)(me->rank + k));
                }
                before = f.buffer;
                where = f.data;
                floats_deinit(&f);
        }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* which keep what is freed for long */
        ck_assert_uint_gt(n_reused, 0);
#endif
        floats_deinit(&stays);
}

START_TEST(another_buffer_behind_the_same_handle_is_another) {
        replicas_run(2, take_and_free);
}
END_TEST

/* 64 calls that differ in one thing each, in turn and at random. */
static void differ_a_little(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats in, out;
        floats_init(me->t, &in, 2 * N_FLOATS);
        floats_init(me->t, &out, 2 * N_FLOATS);
        unsigned int random = 7; /* the same in all ranks */
        for (uint32_t k = 0; k < 2000; k++) {
                uint32_t what = k < 256 ? k % 64 : (uint32_t)rand_r(&random) % 64;
                size_t from = what & 1 ? 8 : 0, to = what & 2 ? 16 : 0;
                uint64_t n = what & 4 ? 31 : 32;
                enum tutti_op op = what & 8 ? TUTTI_MAX : TUTTI_SUM;
                bool is_in_place = what & 16, is_min = (what & 32) && op == TUTTI_MAX;
                struct tutti_value input = floats_part(&in, from, n);
                struct tutti_value output = is_in_place ? input : floats_part(&out, to, n);
                float mine = (float)(me->rank + 1 + k % 50);
                floats_fill(&in, mine);
                floats_fill(&out, -1);
                op = is_min ? TUTTI_MIN : op;
                expect_status(tutti_all_reduce(g, NULL, op, &input, &output), TUTTI_OK);
                float all = op == TUTTI_SUM   ? floats_sum_of_ranks(me->n, (float)(1 + k % 50))
                            : op == TUTTI_MAX ? (float)(me->n + k % 50)
                                              : (float)(1 + k % 50);
                const struct floats *result = is_in_place ? &in : &out;
                size_t at = is_in_place ? from : to;
                float around = is_in_place ? mine : -1;
                floats_expect_part(result, 0, at, around);
                floats_expect_part(result, at, n, all);
                floats_expect_part(result, at + n, 2 * N_FLOATS - at - n, around);
        }
}

START_TEST(calls_that_differ_in_one_thing_are_told_apart) {
        replicas_run(2, differ_a_little);
}
END_TEST

/* Two objects in turn, one after the other behind the same handle. */
static void make_objects(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats f;
        floats_init(me->t, &f, N_FLOATS);
        for (uint32_t k = 0; k < 60; k++) {
                struct tutti_object *o;
                const struct tutti_object_args args =
                        TUTTI_OBJECT(.name = k % 2 ? "odd" : "even", .n_bytes = N_FLOATS * sizeof(float));
                expect_status(tutti_object_make(g, &args, &o), TUTTI_OK);
                const struct tutti_value output =
                        TUTTI_VALUE(.object = o, .dtype = TUTTI_F32, .n_dims = 1, .shape = { N_FLOATS });
                for (uint32_t again = 0; again < 5; again++) {
                        floats_fill(&f, (float)(me->rank + k + again));
                        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &f.value, &output), TUTTI_OK);
                        uint32_t slot = tutti_last_result()->slot;
                        const float *sum = tutti_object_data(o, slot);
                        for (size_t i = 0; i < N_FLOATS; i++)
                                ck_assert(sum[i] == floats_sum_of_ranks(me->n, (float)(k + again)));
                        expect_status(tutti_object_release(o, slot), TUTTI_OK);
                }
                expect_status(tutti_barrier(g, NULL), TUTTI_OK);
                tutti_object_free(o);
                expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        }
}

START_TEST(another_object_behind_the_same_handle_is_another) {
        replicas_run(2, make_objects);
}
END_TEST

/* The same values through two memberships, and one that is joined anew. */
static void meet_in_turn(struct replica *me) {
        struct floats f;
        struct tutti_group *a = replica_join_group(me, &TUTTI_JOIN(.group = "a"));
        struct tutti_group *b = replica_join_group(me, &TUTTI_JOIN(.group = "b"));
        floats_init(me->t, &f, N_FLOATS);
        for (uint32_t k = 1; k <= 50; k++) {
                floats_meet(a, NULL, &f, (float)(me->rank + k), floats_sum_of_ranks(me->n, (float)k));
                ck_assert_uint_eq(tutti_last_result()->collective, k);
                floats_meet(
                        b, NULL, &f, (float)(me->rank + 2 * k), floats_sum_of_ranks(me->n, (float)(2 * k)));
                ck_assert_uint_eq(tutti_last_result()->collective, k);
        }
        for (uint32_t round = 0; round < 5; round++) {
                expect_status(tutti_leave(b), TUTTI_OK);
                tutti_group_free(b);
                b = replica_join_group(me, &TUTTI_JOIN(.group = "b"));
                for (uint32_t k = 1; k <= 5; k++)
                        floats_meet(b, NULL, &f, (float)(me->rank + k), floats_sum_of_ranks(me->n, (float)k));
        }
}

START_TEST(a_call_belongs_to_its_membership) {
        replicas_run(2, meet_in_turn);
}
END_TEST

/* What is refused is refused each time, and what is right after it is right. */
static void refuse_in_turn(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats f;
        floats_init(me->t, &f, N_FLOATS);
        for (uint32_t k = 0; k < 20; k++) {
                struct tutti_value beyond = floats_part(&f, 1, N_FLOATS);
                expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &beyond, &beyond), TUTTI_INVALID);
                floats_meet(g, NULL, &f, (float)(me->rank + k), floats_sum_of_ranks(me->n, (float)k));
                /* The same bytes, but that one rank says MAX: every member hears it each time. */
                enum tutti_op op = me->rank == 1 ? TUTTI_MAX : TUTTI_SUM;
                expect_status(tutti_all_reduce(g, NULL, op, &f.value, &f.value), TUTTI_MISMATCH);
        }
}

START_TEST(B1_what_is_refused_is_refused_each_time) {
        replicas_run(2, refuse_in_turn);
}
END_TEST

/* The base set of a membership counts in calls that are recalled as well. */
static void mean_by_weights(struct replica *me) {
        struct tutti_options base = TUTTI_OPTIONS(.has_weight = 1, .weight = me->rank ? 3 : 1);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train", .options = &base));
        struct floats f;
        floats_init(me->t, &f, N_FLOATS);
        for (uint32_t k = 0; k < 20; k++) {
                floats_fill(&f, me->rank ? 8 : 4);
                expect_status(tutti_all_reduce(g, NULL, TUTTI_MEAN, &f.value, &f.value), TUTTI_OK);
                floats_expect(&f, 7); /* (1 x 4 + 3 x 8) / 4 */
        }
}

START_TEST(P12_a_base_set_counts_each_time) {
        replicas_run(2, mean_by_weights);
}
END_TEST

UNIT_MAIN("recall", 60, another_buffer_behind_the_same_handle_is_another,
        calls_that_differ_in_one_thing_are_told_apart, another_object_behind_the_same_handle_is_another,
        a_call_belongs_to_its_membership, B1_what_is_refused_is_refused_each_time,
        P12_a_base_set_counts_each_time)
