/* Replicas that do not agree: everybody hears the same, nothing is written, and the group goes on (B1 B2 B4
 * B5 B6 B7 B8 B10 B11, D13 D18, P4). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "meeting.h"

#define AT_ONCE 0.5 /* s, after the last half; the promise is 50 ms */

static struct tutti_group *join(struct replica *me) {
        return replica_join_group(me, &TUTTI_JOIN(.group = "train", .default_timeout = 20));
}

static enum tutti_status sum(struct tutti_group *g, const char *key, const struct tutti_value *v) {
        return tutti_all_reduce(g, key, TUTTI_SUM, v, v);
}

/* The group still works: the same key, by everybody, without reconnecting. */
static void expect_to_go_on(struct replica *me, struct tutti_group *g, const char *key) {
        struct floats f;
        floats_init(me->t, &f, 100);
        floats_meet(g, key, &f, 1, (float)me->n);
        floats_deinit(&f);
}

static void expect_at_once(void) {
        ck_assert_msg(board_age() < AT_ONCE * unit_scale(), "heard of it after %g s", board_age());
}

/* What all who are in it see alike. */
static void check_mismatch(const struct tutti_error_info *e, enum tutti_field field, const char *name) {
        ck_assert_msg(e->status == TUTTI_MISMATCH, "%s: %s", tutti_status_name(e->status), e->text);
        ck_assert_msg(e->field == field, "field %s: %s", e->field_name, e->text);
        ck_assert_str_eq(e->field_name, name);
        expect_in(e->text, name);
        expect_in(e->text, "test/train");
}

static const struct tutti_error_info *expect_mismatch(
        enum tutti_status status, enum tutti_field field, const char *name) {
        check_mismatch(expect_error(status), field, name);
        return tutti_error_info();
}

static void expect_class(const struct tutti_error_info *e, uint32_t i, uint64_t ranks, const char *value) {
        ck_assert_uint_lt(i, e->n_classes);
        expect_ranks(&e->classes[i].ranks, ranks);
        ck_assert_str_eq(e->classes[i].value, value);
        expect_in(e->text, value);
}

/* --- B1: lengths --- */

#define CANARY_BYTES 4096

/* An output between two canaries, and a copy of all three. */
struct guarded {
        struct tutti_buffer *buffer;
        struct tutti_value value;
        unsigned char *copy;
};

static void guarded_init(struct tutti *t, struct guarded *g, size_t n) {
        size_t n_bytes = 2 * CANARY_BYTES + n * sizeof(float);
        expect_status(tutti_buffer_alloc(t, n_bytes, &g->buffer), TUTTI_OK);
        g->value = TUTTI_VALUE(.buffer = g->buffer, .offset = CANARY_BYTES, .dtype = TUTTI_F32, .n_dims = 1,
                .shape = { n });
        unsigned char *data = tutti_buffer_data(g->buffer);
        for (size_t i = 0; i < n_bytes; i++)
                data[i] = (unsigned char)(i * 2654435761u >> 13);
        g->copy = malloc(n_bytes);
        ck_assert_ptr_nonnull(g->copy);
        memcpy(g->copy, data, n_bytes);
}

static void guarded_expect_untouched(struct guarded *g) {
        ck_assert_mem_eq(tutti_buffer_data(g->buffer), g->copy, tutti_buffer_bytes(g->buffer));
        free(g->copy);
}

static void differ_in_length(struct replica *me) {
        struct floats in;
        struct guarded out;
        struct tutti_group *g = join(me);
        size_t n = me->rank == 0 ? 10000 : 20000;
        floats_init(me->t, &in, n);
        floats_fill(&in, 1);
        guarded_init(me->t, &out, n);
        const struct tutti_error_info *e;
        if (me->rank == 0) {
                e = sum_early(g, "grad/1", &in.value, &out.value);
        } else {
                come_last(g);
                e = expect_error(tutti_all_reduce(g, "grad/1", TUTTI_SUM, &in.value, &out.value));
        }
        expect_at_once();
        check_mismatch(e, TUTTI_FIELD_SHAPE, "shape");
        ck_assert_uint_eq(e->n_classes, 2);
        expect_class(e, 0, 0x1, "f32[10000]");
        expect_class(e, 1, 0x2, "f32[20000]");
        expect_in(e->text, "reduce \"grad/1\"");
        expect_in(e->text, "R0: f32[10000]");
        expect_in(e->text, "R1: f32[20000]");
        ck_assert_ptr_null(strstr(e->text, "bytes")); /* B3: told in the words of the caller */
        guarded_expect_untouched(&out);
        floats_expect(&in, 1);
        expect_to_go_on(me, g, "grad/1");
}

START_TEST(B1_lengths_that_differ_are_told_to_both_and_nothing_is_written) {
        replicas_run(2, differ_in_length);
}
END_TEST

/* --- B2: dtypes of equal size --- */

static void differ_in_dtype(struct replica *me) {
        struct tutti_buffer *b;
        struct tutti_group *g = join(me);
        expect_status(tutti_buffer_alloc(me->t, 64, &b), TUTTI_OK);
        struct tutti_value f64 = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F64, .n_dims = 1, .shape = { 8 });
        struct tutti_value f32 = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { 16 });
        struct tutti_value f16 = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F16, .n_dims = 1, .shape = { 32 });
        struct tutti_value bf16 = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_BF16, .n_dims = 1, .shape = { 32 });
        memset(tutti_buffer_data(b), 0x5a, 64);
        const struct tutti_error_info *e =
                expect_mismatch(sum(g, "x", me->rank ? &f32 : &f64), TUTTI_FIELD_DTYPE, "dtype");
        expect_class(e, 0, 0x1, "f64[8]");
        expect_class(e, 1, 0x2, "f32[16]");
        e = expect_mismatch(sum(g, "y", me->rank ? &f16 : &bf16), TUTTI_FIELD_DTYPE, "dtype");
        expect_class(e, 0, 0x1, "bf16[32]");
        expect_class(e, 1, 0x2, "f16[32]");
        for (int i = 0; i < 64; i++)
                ck_assert_int_eq(((unsigned char *)tutti_buffer_data(b))[i], 0x5a);
        expect_to_go_on(me, g, "x");
}

START_TEST(B2_dtypes_of_equal_size_are_told_apart) {
        replicas_run(2, differ_in_dtype);
}
END_TEST

/* --- B4: the data behind the sentence --- */

static void say_three_things(struct replica *me) {
        static const char *const values[] = { "f32[3,4]", "f32[4,3]", "f32[12]" };
        struct floats f;
        struct tutti_group *g = join(me);
        floats_init(me->t, &f, 12);
        struct tutti_value v = f.value;
        uint32_t mine = me->rank == 3 ? 1 : me->rank; /* 1 and 3 say the same */
        v.n_dims = mine == 2 ? 1 : 2;
        v.shape[0] = mine == 0 ? 3 : mine == 1 ? 4 : 12;
        v.shape[1] = mine == 0 ? 4 : 3;
        const struct tutti_error_info *e = expect_mismatch(sum(g, "x", &v), TUTTI_FIELD_SHAPE, "shape");
        ck_assert_uint_eq(e->n_classes, 3);
        expect_class(e, 0, 0x1, values[0]);
        expect_class(e, 1, 0xa, values[1]);
        expect_class(e, 2, 0x4, values[2]);
        ck_assert_str_eq(e->job, "test");
        ck_assert_str_eq(e->group, "train");
        ck_assert_str_eq(e->key, "x");
        ck_assert_uint_eq(e->epoch, tutti_epoch(g));
        ck_assert_int_eq(e->outputs_undefined, 0);
        expect_ranks(&e->have, 0xf);
        expect_ranks(&e->missing, 0);
        /* The odd ones, by process: the largest class is not among them. */
        ck_assert_uint_eq(e->n_replicas, 2);
        ck_assert_uint_eq(e->replicas[0].rank, 0);
        ck_assert_uint_eq(e->replicas[1].rank, 2);
        ck_assert_uint_eq(e->replicas[0].uid, getuid());
        if (me->rank == 0)
                ck_assert_uint_eq(e->replicas[0].pid, (uint32_t)getpid());
        expect_to_go_on(me, g, "x");
}

START_TEST(B4_the_error_is_data_field_and_value_by_ranks) {
        replicas_run(4, say_three_things);
}
END_TEST

/* --- B5: kinds, and orders --- */

static void differ_in_kind(struct replica *me) {
        struct floats f, a, b;
        struct tutti_group *g = join(me);
        floats_init(me->t, &f, 10);
        const struct tutti_error_info *e =
                expect_mismatch(me->rank ? tutti_broadcast(g, "x", 0, &f.value) : sum(g, "x", &f.value),
                        TUTTI_FIELD_KIND, "kind");
        expect_class(e, 0, 0x1, "reduce");
        expect_class(e, 1, 0x2, "broadcast");
        e = expect_mismatch(
                me->rank ? tutti_barrier(g, "x") : sum(g, "x", &f.value), TUTTI_FIELD_KIND, "kind");
        expect_class(e, 1, 0x2, "barrier");

        /* One begins with a, the other with b: each meets its own. */
        floats_init(me->t, &a, 10);
        floats_init(me->t, &b, 10);
        floats_fill(&a, (float)me->rank + 1);
        floats_fill(&b, (float)me->rank + 10);
        struct tutti_work *first, *second;
        struct floats *one = me->rank ? &b : &a, *other = me->rank ? &a : &b;
        expect_status(tutti_all_reduce_start(
                              g, me->rank ? "b" : "a", TUTTI_SUM, &one->value, &one->value, NULL, &first),
                TUTTI_OK);
        expect_status(tutti_all_reduce_start(g, me->rank ? "a" : "b", TUTTI_SUM, &other->value, &other->value,
                              NULL, &second),
                TUTTI_OK);
        expect_work(first, TUTTI_OK);
        expect_work(second, TUTTI_OK);
        floats_expect(&a, 3);
        floats_expect(&b, 21);
        tutti_work_free(first);
        tutti_work_free(second);
}

START_TEST(B5_kinds_that_differ_are_told_and_orders_may_differ) {
        replicas_run(2, differ_in_kind);
}
END_TEST

/* --- B6: roots, operations, destinations --- */

static void differ_in_root_and_op(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me);
        floats_init(me->t, &f, 10);
        floats_fill(&f, 4);
        const struct tutti_error_info *e =
                expect_mismatch(tutti_broadcast(g, "x", me->rank, &f.value), TUTTI_FIELD_ROOT, "root");
        expect_class(e, 0, 0x1, "root 0");
        expect_class(e, 1, 0x2, "root 1");

        e = expect_mismatch(tutti_all_reduce(g, "x", me->rank ? TUTTI_MEAN : TUTTI_SUM, &f.value, &f.value),
                TUTTI_FIELD_OP, "op");
        expect_class(e, 0, 0x1, "SUM");
        expect_class(e, 1, 0x2, "MEAN");

        struct tutti_destinations to = { .where = TUTTI_TO_RANK, .rank = me->rank };
        e = expect_mismatch(tutti_reduce(g, "x", TUTTI_SUM, &f.value, &f.value, &to),
                TUTTI_FIELD_DESTINATIONS, "destinations");
        expect_class(e, 0, 0x1, "R0");
        expect_class(e, 1, 0x2, "R1");

        struct tutti_entry entries[] = { TUTTI_ENTRY(.input = &f.value, .output = &f.value) };
        struct tutti_value none = f.value;
        none.shape[0] = 0;
        struct tutti_entry two[] = { entries[0], TUTTI_ENTRY(.input = &none, .output = &none) };
        e = expect_mismatch(tutti_batch_reduce(g, "x", TUTTI_SUM, me->rank ? two : entries, 1 + me->rank),
                TUTTI_FIELD_BATCH_LENGTH, "batch length");
        expect_class(e, 0, 0x1, "1 entry");
        expect_class(e, 1, 0x2, "2 entries");
        floats_expect(&f, 4);
        expect_to_go_on(me, g, "x");
}

START_TEST(B6_roots_ops_destinations_and_lengths_of_batches_are_compared) {
        replicas_run(2, differ_in_root_and_op);
}
END_TEST

/* --- B7: a key twice --- */

static void submit_twice(struct replica *me) {
        struct floats f, other;
        struct tutti_group *g = join(me);
        floats_init(me->t, &f, 10);
        floats_init(me->t, &other, 10);
        floats_fill(&f, (float)me->rank + 1);
        floats_fill(&other, 9);
        if (me->rank == 0) {
                struct tutti_work *w;
                expect_status(
                        tutti_all_reduce_start(g, "x", TUTTI_SUM, &f.value, &f.value, NULL, &w), TUTTI_OK);
                expect_status(sum(g, "x", &other.value), TUTTI_ALREADY_PENDING);
                ck_assert_str_eq(tutti_error_info()->key, "x");
                ck_assert_int_eq(tutti_error_info()->rank, 0);
                expect_in(tutti_error(), "\"x\"");
                expect_status(tutti_broadcast(g, "x", 0, &other.value), TUTTI_ALREADY_PENDING);
                expect_status(tutti_barrier(g, "now"), TUTTI_OK);
                expect_work(w, TUTTI_OK);
                tutti_work_free(w);
        } else {
                expect_status(tutti_barrier(g, "now"), TUTTI_OK);
                expect_status(sum(g, "x", &f.value), TUTTI_OK);
        }
        floats_expect(&f, 3);
        floats_expect(&other, 9);
        expect_to_go_on(me, g, "x");
}

START_TEST(B7_a_key_that_is_pending_is_refused_and_the_first_use_completes) {
        replicas_run(2, submit_twice);
}
END_TEST

/* --- B8, B10: all hear the same, and go on --- */

static void hear_it_at_once(struct replica *me, struct tutti_group *g, const struct tutti_value *v) {
        const struct tutti_error_info *e;
        if (me->rank == 2) {
                come_last(g);
                e = expect_error(sum(g, "all", v));
        } else {
                e = sum_early(g, "all", v, v);
        }
        expect_at_once();
        check_mismatch(e, TUTTI_FIELD_SHAPE, "shape");
        snprintf(board->texts[me->rank], sizeof(board->texts[0]), "%s", e->text);
}

static void hear_it_with_all(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me);
        floats_init(me->t, &f, me->rank == 2 ? 11 : 10);
        floats_fill(&f, 5);
        hear_it_at_once(me, g, &f.value);
        for (int round = 0; round < 20; round++) {
                char key[16];
                snprintf(key, sizeof(key), "op/%d", round);
                expect_mismatch(sum(g, key, &f.value), TUTTI_FIELD_SHAPE, "shape");
                floats_expect(&f, 5);
                expect_to_go_on(me, g, round % 2 ? key : NULL);
        }
}

START_TEST(B8_B10_all_hear_the_same_and_the_next_one_succeeds) {
        replicas_run(4, hear_it_with_all);
        ck_assert_str_ne(board->texts[0], "");
        expect_in(board->texts[0], "R2: f32[11]");
        for (int i = 1; i < 4; i++)
                ck_assert_str_eq(board->texts[i], board->texts[0]);
}
END_TEST

/* --- B11: one of many --- */

#define BATCH 300
#define ODD   137

static void differ_in_one_of_many(struct replica *me) {
        struct floats all;
        struct tutti_value values[BATCH];
        struct tutti_entry entries[BATCH];
        struct tutti_group *g = join(me);
        floats_init(me->t, &all, BATCH * 16);
        floats_fill(&all, 2);
        for (int i = 0; i < BATCH; i++) {
                values[i] = all.value;
                values[i].offset = (size_t)i * 16 * sizeof(float);
                values[i].shape[0] = i == ODD && me->rank == 1 ? 15 : 16;
                entries[i] = TUTTI_ENTRY(.input = &values[i], .output = &values[i]);
        }
        const struct tutti_error_info *e = expect_mismatch(
                tutti_batch_reduce(g, "batch", TUTTI_SUM, entries, BATCH), TUTTI_FIELD_SHAPE, "shape");
        ck_assert_int_eq(e->entry, ODD);
        expect_in(e->text, "entry 137");
        expect_in(e->text, "batch_reduce \"batch\"");
        expect_class(e, 0, 0x5, "f32[16]");
        expect_class(e, 1, 0x2, "f32[15]");
        floats_expect(&all, 2);
        values[ODD].shape[0] = 16;
        expect_status(tutti_batch_reduce(g, "batch", TUTTI_SUM, entries, BATCH), TUTTI_OK);
        floats_expect(&all, 6);
}

START_TEST(B11_the_odd_entry_of_a_batch_is_named_and_nothing_is_written) {
        replicas_run(3, differ_in_one_of_many);
}
END_TEST

/* --- D13: nothing to reduce --- */

static void reduce_nothing(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me);
        floats_init(me->t, &f, 10);
        floats_fill(&f, 3);
        struct tutti_value none = f.value, flat = f.value;
        none.shape[0] = 0;
        expect_status(sum(g, "none", &none), TUTTI_OK);
        ck_assert_uint_eq(tutti_last_result()->n_contributors, 3);
        ck_assert_int_eq(tutti_last_result()->op, TUTTI_SUM);
        expect_status(tutti_all_reduce(g, "none", TUTTI_MEAN, &none, &none), TUTTI_OK);
        expect_status(tutti_broadcast(g, "none", 1, &none), TUTTI_OK);
        flat.n_dims = 3;
        flat.shape[0] = 5;
        flat.shape[1] = 0;
        flat.shape[2] = 1ull << 40;
        expect_status(sum(g, "none", &flat), TUTTI_OK);
        struct tutti_entry entries[] = { TUTTI_ENTRY(.input = &none, .output = &none),
                TUTTI_ENTRY(.input = &f.value, .output = &f.value) };
        expect_status(tutti_batch_reduce(g, "some", TUTTI_SUM, entries, 2), TUTTI_OK);
        floats_expect(&f, 9);

        const struct tutti_error_info *e =
                expect_mismatch(sum(g, "x", me->rank == 1 ? &none : &f.value), TUTTI_FIELD_SHAPE, "shape");
        expect_class(e, 0, 0x5, "f32[10]");
        expect_class(e, 1, 0x2, "f32[0]");
        floats_expect(&f, 9);
        expect_to_go_on(me, g, "x");
}

START_TEST(D13_zero_elements_are_a_meeting_like_any_other) {
        replicas_run(3, reduce_nothing);
}
END_TEST

/* --- D18: no default --- */

static void forget_the_op(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me);
        floats_init(me->t, &f, 10);
        floats_fill(&f, 4);
        if (me->rank == 1) {
                come_last(g);
                expect_status(
                        tutti_all_reduce(g, "x", TUTTI_OP_UNSPECIFIED, &f.value, &f.value), TUTTI_INVALID);
                ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_OP);
                expect_in(tutti_error(), "SUM");
        } else {
                const struct tutti_error_info *e = sum_early(g, "x", &f.value, &f.value);
                expect_at_once();
                ck_assert_int_eq(e->status, TUTTI_PEER_REFUSED);
                ck_assert_int_eq(e->cause, TUTTI_INVALID);
                ck_assert_int_eq(e->field, TUTTI_FIELD_OP);
        }
        floats_expect(&f, 4);

        floats_fill(&f, (float)me->rank);
        expect_status(tutti_all_reduce(g, "x", TUTTI_MEAN, &f.value, &f.value), TUTTI_OK);
        floats_expect(&f, 1);
        const struct tutti_result *r = tutti_last_result();
        ck_assert_int_eq(r->op, TUTTI_MEAN);
        ck_assert_uint_eq(r->n_contributors, 3);
        expect_ranks(&r->contributors, 0x7);
        expect_status(tutti_all_reduce(g, "x", TUTTI_MAX, &f.value, &f.value), TUTTI_OK);
        ck_assert_int_eq(tutti_last_result()->op, TUTTI_MAX);
}

START_TEST(D18_no_op_is_invalid_and_the_result_says_what_was_done) {
        replicas_run(3, forget_the_op);
}
END_TEST

/* --- P4: known by then --- */

static void differ_and_wait(struct replica *me) {
        struct floats f;
        struct tutti_work *w;
        struct tutti_group *g = join(me);
        floats_init(me->t, &f, 10 + me->rank);
        if (me->rank == 2) {
                replica_hear(me, "never");
                return;
        }
        struct tutti_options o = TUTTI_OPTIONS(.timeout = me->rank == 0 ? 0.3 : 0);
        expect_status(tutti_all_reduce_start(g, "late", TUTTI_SUM, &f.value, &f.value, &o, &w), TUTTI_OK);
        expect_work(w, TUTTI_TIMEOUT);
        const struct tutti_error_info *e = tutti_work_error(w);
        ck_assert_int_eq(e->field, TUTTI_FIELD_SHAPE);
        expect_class(e, 0, 0x1, "f32[10]");
        expect_class(e, 1, 0x2, "f32[11]");
        expect_ranks(&e->missing, 0x4);
        tutti_work_free(w);

        replica_say(me, "timeout");
        expect_status(tutti_all_reduce(g, "dead", TUTTI_SUM, &f.value, &f.value), TUTTI_REPLICA_LOST);
        e = tutti_error_info();
        ck_assert_int_eq(e->rank, 2);
        ck_assert_int_eq(e->field, TUTTI_FIELD_SHAPE);
        expect_class(e, 0, 0x1, "f32[10]");
        expect_class(e, 1, 0x2, "f32[11]");
}

START_TEST(P4_a_difference_known_by_then_is_told_with_a_deadline_or_a_death) {
        struct replica *r[3];
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, differ_and_wait, NULL, r);
        replica_expect(r[0], "timeout", 5);
        replica_expect(r[1], "timeout", 5);
        host_expect_pending(h, 3); /* two halves, and a debt */
        replica_kill9(r[2]);
        ck_assert_int_eq(replica_end(r[0], 5), 0);
        ck_assert_int_eq(replica_end(r[1], 5), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("mismatch", 20, B1_lengths_that_differ_are_told_to_both_and_nothing_is_written,
        B2_dtypes_of_equal_size_are_told_apart, B4_the_error_is_data_field_and_value_by_ranks,
        B5_kinds_that_differ_are_told_and_orders_may_differ,
        B6_roots_ops_destinations_and_lengths_of_batches_are_compared,
        B7_a_key_that_is_pending_is_refused_and_the_first_use_completes,
        B8_B10_all_hear_the_same_and_the_next_one_succeeds,
        B11_the_odd_entry_of_a_batch_is_named_and_nothing_is_written,
        D13_zero_elements_are_a_meeting_like_any_other,
        D18_no_op_is_invalid_and_the_result_says_what_was_done,
        P4_a_difference_known_by_then_is_told_with_a_deadline_or_a_death)
