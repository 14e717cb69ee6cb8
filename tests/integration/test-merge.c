/* merge_call: one replica's own function over everybody's values, and its results go to all; what ends it at
 * each of its stages (C6, TE1, P4 P5 P6 P8). */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/merge.h>
#include "meeting.h"
#include "program.h"

#define N 1000

/* What the function finds, and where it is told what to do. */
struct script {
        struct replica *me;
        enum { MAKE, FAIL, DIE, WAIT, LEAVE } what;
        struct tutti_group *g;
        uint32_t n_runs;
};

/* Output 0: rank r's value at place r, of all who take part; output 1: how many they are. */
static enum tutti_status list_all(struct tutti_merge *m, void *userdata) {
        struct script *s = userdata;
        float *list = tutti_merge_output(m, 0);
        int64_t *n = tutti_merge_output(m, 1);
        s->n_runs++;
        for (uint32_t rank = 0; rank < s->me->n; rank++) {
                const float *v = tutti_merge_value(m, rank, 0);
                ck_assert(!v == !tutti_ranks_has(tutti_merge_ranks(m), rank));
                if (!v)
                        continue;
                for (size_t i = 0; i < N; i++)
                        ck_assert_float_eq(v[i], (float)(rank + 1));
                list[rank] = v[N - 1];
                (*n)++;
        }
        ck_assert_ptr_null(tutti_merge_value(m, 0, 1));
        ck_assert_ptr_null(tutti_merge_output(m, 2));
        ck_assert_uint_eq(tutti_merge_rank(m), s->me->rank);
        if (s->what == FAIL)
                return tutti_merge_fail(m, "the loss is %s", "nan");
        if (s->what == DIE)
                raise(SIGKILL);
        if (s->what == LEAVE)
                expect_status(tutti_leave(s->g), TUTTI_OK);
        if (s->what == WAIT) {
                replica_say(s->me, "running");
                replica_hear(s->me, "return");
        }
        return TUTTI_OK;
}

/* A replica's values of one call. */
struct bundle {
        float in[N], list[8];
        int64_t n;
        struct tutti_value input, outputs[2];
        struct script script;
};

static void bundle_init(struct bundle *b, struct replica *me, struct tutti_group *g) {
        *b = (struct bundle){ .script = { .me = me, .g = g }, .n = -1 };
        for (size_t i = 0; i < N; i++)
                b->in[i] = (float)(me->rank + 1);
        for (size_t i = 0; i < 8; i++)
                b->list[i] = -1;
        b->input = TUTTI_VALUE(.memory = b->in, .dtype = TUTTI_F32, .n_dims = 1, .shape = { N });
        b->outputs[0] = TUTTI_VALUE(.memory = b->list, .dtype = TUTTI_F32, .n_dims = 1, .shape = { 8 });
        b->outputs[1] = TUTTI_VALUE(.memory = &b->n, .dtype = TUTTI_I64);
}

static struct tutti_merge_args bundle_args(struct bundle *b, const char *key) {
        return TUTTI_MERGE(.key = key, .tag = "list", .fn = list_all, .userdata = &b->script,
                .inputs = &b->input, .n_inputs = 1, .outputs = b->outputs, .n_outputs = 2);
}

static enum tutti_status call(struct bundle *b, struct tutti_group *g, const char *key) {
        const struct tutti_merge_args args = bundle_args(b, key);
        return tutti_merge_call(g, &args);
}

static void expect_untouched(const struct bundle *b) {
        for (size_t i = 0; i < 8; i++)
                ck_assert_float_eq(b->list[i], -1);
        ck_assert_int_eq(b->n, -1);
}

static void expect_made(const struct bundle *b, uint32_t world_size, uint64_t mask) {
        ck_assert_int_eq(b->n, __builtin_popcountll(mask));
        for (uint32_t rank = 0; rank < 8; rank++)
                ck_assert_float_eq(
                        b->list[rank], rank < world_size && mask >> rank & 1 ? (float)(rank + 1) : 0);
}

/* --- it works --- */

static void merge_often(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        for (uint32_t round = 0; round < 20; round++) {
                struct bundle b;
                bundle_init(&b, me, g);
                expect_status(call(&b, g, round % 2 ? "again" : NULL), TUTTI_OK);
                expect_made(&b, me->n, (UINT64_C(1) << me->n) - 1);
                ck_assert_uint_eq(b.script.n_runs, me->rank == 0);
        }
}

START_TEST(one_function_runs_once_over_all_values_on_1_2_3_4_5_7_8_replicas) {
        static const uint32_t sizes[] = { 1, 2, 3, 4, 5, 7, 8 };
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
                replicas_run(sizes[i], merge_often);
}
END_TEST

/* Strides, several values of several types and shapes, none at all, no elements. */
static enum tutti_status look_at_many(struct tutti_merge *m, void *userdata) {
        (void)userdata;
        for (uint32_t rank = 0; rank < 3; rank++) {
                const int32_t *column = tutti_merge_value(m, rank, 0);
                const uint8_t *byte = tutti_merge_value(m, rank, 1);
                ck_assert_ptr_nonnull(tutti_merge_value(m, rank, 2));
                for (int i = 0; i < 5; i++)
                        ck_assert_int_eq(column[i], 100 * (int)rank + i);
                ck_assert_uint_eq(*byte, rank);
                ck_assert_uint_eq((uintptr_t)column % 64, 0);
                ck_assert_uint_eq((uintptr_t)byte % 64, 0);
        }
        return TUTTI_OK;
}

static enum tutti_status do_nothing(struct tutti_merge *m, void *userdata) {
        (void)m;
        (*(int *)userdata)++;
        return TUTTI_OK;
}

static void merge_many(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        int32_t rows[5][3] = { { 0 } };
        uint8_t byte = (uint8_t)me->rank;
        int n_runs = 0;
        for (int i = 0; i < 5; i++)
                rows[i][1] = 100 * (int)me->rank + i;
        const struct tutti_value inputs[] = {
                TUTTI_VALUE(.memory = rows, .offset = 4, .dtype = TUTTI_I32, .n_dims = 1, .shape = { 5 },
                        .has_strides = 1, .strides = { 3 }),
                TUTTI_VALUE(.memory = &byte, .dtype = TUTTI_U8),
                TUTTI_VALUE(.memory = &byte, .dtype = TUTTI_F32, .n_dims = 1, .shape = { 0 }),
        };
        expect_status(tutti_merge_call(g, &TUTTI_MERGE(.fn = look_at_many, .inputs = inputs, .n_inputs = 3)),
                TUTTI_OK);
        expect_status(tutti_merge_call(g, &TUTTI_MERGE(.fn = do_nothing, .userdata = &n_runs)), TUTTI_OK);
        expect_status(tutti_merge_call(g, &TUTTI_MERGE(.fn = do_nothing, .userdata = &n_runs,
                                                  .inputs = &inputs[2], .n_inputs = 1)),
                TUTTI_OK);
        ck_assert_int_eq(n_runs, me->rank == 0 ? 2 : 0);
}

START_TEST(values_of_any_kind_and_number_are_seen) {
        replicas_run(3, merge_many);
}
END_TEST

static enum tutti_status median(
        const void *const *inputs, uint32_t n, void *output, uint64_t count, void *userdata) {
        (void)userdata;
        ck_assert_uint_eq(n, 3);
        for (uint64_t i = 0; i < count; i++) {
                float v[3];
                for (uint32_t r = 0; r < 3; r++)
                        v[r] = ((const float *)inputs[r])[i];
                float low = v[0] < v[1] ? v[0] : v[1], high = v[0] < v[1] ? v[1] : v[0];
                ((float *)output)[i] = v[2] < low ? low : v[2] > high ? high : v[2];
        }
        return TUTTI_OK;
}

static void take_median(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        floats_init(me->t, &f, N);
        floats_fill(&f, (float)((me->rank + 1) % 3));
        expect_status(tutti_reduce_with(g, &TUTTI_REDUCE_WITH(.tag = "median", .fn = median,
                                                   .input = &f.value, .output = &f.value)),
                TUTTI_OK);
        floats_expect(&f, 1);
}

START_TEST(a_callers_accumulation_function_reduces) {
        replicas_run(3, take_median);
}
END_TEST

/* One output after the other has less room than the count that its function would be told; who comes late
 * hears the same. */
static void reduce_into_less(struct replica *me) {
        struct floats in, out;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        floats_init(me->t, &in, N);
        floats_init(me->t, &out, N);
        floats_fill(&in, 2);
        floats_fill(&out, -1);
        for (uint32_t wrong = 0; wrong < me->n; wrong++) {
                struct tutti_value output = out.value;
                if (wrong == me->rank)
                        output.shape[0] = 10;
                enum tutti_status status = tutti_reduce_with(
                        g, &TUTTI_REDUCE_WITH(.fn = median, .input = &in.value, .output = &output));
                if (status == TUTTI_EXPIRED)
                        status = tutti_error_info()->cause;
                expect_status(status, wrong == me->rank ? TUTTI_INVALID : TUTTI_PEER_REFUSED);
                expect_in(tutti_error(), "must be of equal shapes");
                floats_expect(&out, -1);
        }
        expect_status(tutti_reduce_with(
                              g, &TUTTI_REDUCE_WITH(.fn = median, .input = &in.value, .output = &out.value)),
                TUTTI_OK);
        floats_expect(&out, 2);
}

START_TEST(P4_an_output_of_another_shape_than_the_input_is_refused_for_all) {
        replicas_run(3, reduce_into_less);
}
END_TEST

/* --- it does not --- */

static void fail_for_all(struct replica *me) {
        struct bundle b;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        for (uint32_t round = 0; round < 20; round++) { /* peers that come first, and peers that come last */
                bundle_init(&b, me, g);
                b.script.what = FAIL;
                expect_status(call(&b, g, "fails"), TUTTI_ABORTED);
                ck_assert_int_eq(tutti_error_info()->rank, 0);
                expect_in(tutti_error(), "the loss is nan");
                expect_untouched(&b);
        }
        bundle_init(&b, me, g);
        expect_status(call(&b, g, "fails"), TUTTI_OK);
        expect_made(&b, 4, 0xf);
}

START_TEST(TE1_a_function_that_fails_fails_for_all_with_its_words) {
        replicas_run(4, fail_for_all);
}
END_TEST

static enum tutti_status call_again(struct tutti_merge *m, void *userdata) {
        struct tutti_group *g = userdata;
        expect_status(tutti_barrier(g, NULL), TUTTI_INVALID);
        expect_in(tutti_error(), "called from a merge function");
        return tutti_merge_call(g, &TUTTI_MERGE(.fn = call_again, .userdata = g)) == TUTTI_INVALID
                       ? TUTTI_OK
                       : tutti_merge_fail(m, "it was not refused");
}

static void nest(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        expect_status(tutti_merge_call(g, &TUTTI_MERGE(.fn = call_again, .userdata = g)), TUTTI_OK);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
}

START_TEST(TE6_a_call_from_a_merge_function_of_the_same_group_is_refused) {
        replicas_run(2, nest);
}
END_TEST

static void differ(struct replica *me) {
        struct bundle b;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        bundle_init(&b, me, g);
        struct tutti_merge_args args = bundle_args(&b, "k");
        if (me->rank == 1)
                args.tag = "other";
        expect_status(tutti_merge_call(g, &args), TUTTI_MISMATCH);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_OPTIONS);
        expect_in(tutti_error(), "list -> f32[8] i64[]");
        expect_in(tutti_error(), "other -> f32[8] i64[]");
        args = bundle_args(&b, "k");
        if (me->rank == 1)
                args.n_outputs = 1;
        expect_status(tutti_merge_call(g, &args), TUTTI_MISMATCH);
        expect_in(tutti_error(), "list -> f32[8],");
        args = bundle_args(&b, "k");
        if (me->rank == 1)
                b.input.shape[0] = 7;
        expect_status(tutti_merge_call(g, &args), TUTTI_MISMATCH);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_SHAPE);
        expect_untouched(&b);
        ck_assert_uint_eq(b.script.n_runs, 0);
        args = bundle_args(&b, "k");
        if (me->rank == 1)
                args.fn = NULL;
        enum tutti_status status = tutti_merge_call(g, &args);
        if (me->rank != 1 && status == TUTTI_EXPIRED)
                status = tutti_error_info()->cause;
        expect_status(status, me->rank == 1 ? TUTTI_INVALID : TUTTI_PEER_REFUSED);
        ck_assert_int_eq(tutti_error_info()->rank, 1);
        expect_in(tutti_error(), "the function is NULL");
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
}

START_TEST(TE2_other_tags_numbers_and_shapes_are_told_to_all_before_it_runs) {
        replicas_run(3, differ);
}
END_TEST

/* TE1: one calls more often than the others. */
static void call_unequally(struct replica *me) {
        struct bundle b;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        bundle_init(&b, me, g);
        expect_status(call(&b, g, NULL), TUTTI_OK);
        if (me->rank == 1) {
                expect_status(tutti_barrier(g, NULL), TUTTI_MISMATCH);
                ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_KIND);
                return;
        }
        expect_status(call(&b, g, NULL), TUTTI_MISMATCH);
        expect_in(tutti_error(), "merge_call");
        expect_in(tutti_error(), "barrier");
}

START_TEST(unequal_numbers_of_calls_end_for_all) {
        replicas_run(3, call_unequally);
}
END_TEST

/* Four values of 4,000 bytes are more than a user may have there: all hear which limit it is, and a smaller
 * call works. */
static void ask_too_much(struct replica *me) {
        struct bundle b;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        bundle_init(&b, me, g);
        enum tutti_status status = call(&b, g, "large");
        if (status == TUTTI_EXPIRED)
                status = tutti_error_info()->cause;
        ck_assert_msg(status == TUTTI_QUOTA || status == TUTTI_PEER_REFUSED, "%s", tutti_error());
        expect_in(tutti_error(), "result-bytes");
        expect_untouched(&b);
        expect_status(tutti_barrier(g, "meet"), TUTTI_OK);
        struct tutti_merge_args args = bundle_args(&b, "small");
        args.n_inputs = 0;
        args.n_outputs = 0;
        int n_runs = 0;
        args.fn = do_nothing;
        args.userdata = &n_runs;
        expect_status(tutti_merge_call(g, &args), TUTTI_OK);
        ck_assert_int_eq(n_runs, me->rank == 0);
}

START_TEST(P18_values_beyond_the_users_limit_are_refused_for_all) {
        board_init();
        struct host *h = host_start((const char *[]){ "--set", "quota.result-bytes=12 KiB", NULL });
        run_replicas(h, 4, ask_too_much, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- deadlines and aborts at each stage --- */

static void time_out(struct replica *me) {
        struct bundle b;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        bundle_init(&b, me, g);
        struct tutti_merge_args args = bundle_args(&b, "k");
        if (me->rank == 2) { /* while they gather */
                replica_hear(me, "late");
                expect_status(tutti_merge_call(g, &args), TUTTI_EXPIRED);
        } else {
                args.timeout = 0.2;
                expect_status(tutti_merge_call(g, &args), TUTTI_TIMEOUT);
                expect_ranks(&tutti_error_info()->missing, 0x4);
        }
        replica_say(me, "first");
        replica_hear(me, "go");
        args.timeout = me->rank == 1 ? 0.5 : 0; /* while it runs */
        b.script.what = WAIT;
        expect_status(tutti_merge_call(g, &args), me->rank == 0 ? TUTTI_EXPIRED : TUTTI_TIMEOUT);
        if (me->rank == 0)
                ck_assert_int_eq(tutti_error_info()->cause, TUTTI_TIMEOUT);
        else
                expect_ranks(&tutti_error_info()->missing, 0x1);
        expect_untouched(&b);
        replica_say(me, "second");
        replica_hear(me, "go");
        b.script.what = MAKE;
        expect_status(call(&b, g, "k"), TUTTI_OK);
        expect_made(&b, 3, 0x7);
}

START_TEST(P6_a_deadline_ends_it_while_they_gather_and_while_it_runs) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, time_out, NULL, r);
        replicas_expect(r, 2, "first", 5);
        replica_tell(r[2], "late");
        replica_expect(r[2], "first", 5);
        replicas_tell(r, 3, "go");
        replica_expect(r[0], "running", 5);
        replicas_expect(&r[1], 2, "second", 5);
        replica_tell(r[0], "return");
        replica_expect(r[0], "second", 5);
        replicas_tell(r, 3, "go");
        replicas_end(h, r, 3);
}
END_TEST

static void give_up(struct replica *me) {
        struct bundle b;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        bundle_init(&b, me, g);
        if (me->rank == 2) {
                replica_hear(me, "abort");
                expect_status(tutti_abort(g, "k", "no more"), TUTTI_OK);
                expect_status(call(&b, g, "k"), TUTTI_EXPIRED);
        } else {
                expect_status(call(&b, g, "k"), TUTTI_ABORTED);
                ck_assert_int_eq(tutti_error_info()->rank, 2);
        }
        expect_untouched(&b);
        bundle_init(&b, me, g);
        expect_status(call(&b, g, "k"), TUTTI_OK);
}

/* In the function: rank 0 itself gives up the key that the others wait under. */
static enum tutti_status abort_inside(struct tutti_merge *m, void *userdata) {
        struct tutti_group *g = userdata;
        (void)m;
        while (tutti_abort(g, "k", "enough") == TUTTI_NOT_FOUND)
                seconds_sleep(0.001);
        return TUTTI_OK;
}

static void give_up_inside(struct replica *me) {
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const struct tutti_merge_args args = TUTTI_MERGE(.key = "k", .fn = abort_inside, .userdata = g);
        if (me->rank == 0) {
                expect_status(tutti_merge_call(g, &args), TUTTI_EXPIRED);
                ck_assert_int_eq(tutti_error_info()->cause, TUTTI_ABORTED);
        } else {
                expect_status(tutti_merge_call(g, &args), TUTTI_ABORTED);
        }
        expect_in(tutti_error(), "enough");
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
}

START_TEST(P8_an_abort_ends_it_while_it_runs) {
        replicas_run(3, give_up_inside);
}
END_TEST

START_TEST(P8_an_abort_ends_it_while_they_gather) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, give_up, NULL, r);
        host_expect_pending(h, 2);
        replica_tell(r[2], "abort");
        replicas_end(h, r, 3);
}
END_TEST

/* --- death and leave at each stage --- */

static void die_while_gathering(struct replica *me) {
        struct bundle b;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        bundle_init(&b, me, g);
        replica_say(me, "joined");
        if (me->rank == 1)
                replica_hear(me, "never");
        expect_status(call(&b, g, "k"), TUTTI_REPLICA_LOST);
        ck_assert_int_eq(tutti_error_info()->rank, 1);
        expect_untouched(&b);
        ck_assert_uint_eq(b.script.n_runs, 0);
}

START_TEST(P5_one_that_dies_while_they_gather_is_named) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, die_while_gathering, NULL, r);
        replicas_expect(r, 3, "joined", 5);
        host_expect_pending(h, 2);
        replica_kill9(r[1]);
        ck_assert_int_eq(replica_end(r[0], 5), 0);
        ck_assert_int_eq(replica_end(r[2], 5), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

static void lose_elected(struct replica *me, enum tutti_on_death on_death, int what) {
        struct bundle b;
        struct tutti_group *g = join_train(me, on_death);
        bundle_init(&b, me, g);
        b.script.what = what;
        enum tutti_status status = call(&b, g, "k");
        if (me->rank == 0) {
                ck_assert_int_eq(what, LEAVE);
                ck_assert_int_eq(status, TUTTI_LEFT);
                return;
        }
        expect_status(status, TUTTI_REPLICA_LOST);
        ck_assert_int_eq(tutti_error_info()->rank, 0);
        ck_assert_int_eq(tutti_error_info()->loss, what == DIE ? TUTTI_DIED : TUTTI_WENT);
        expect_untouched(&b);
        if (on_death == TUTTI_FAIL && what == DIE)
                return;
        bundle_init(&b, me, g); /* the next in line */
        expect_status(call(&b, g, "k"), TUTTI_OK);
        expect_made(&b, 3, 0x6);
        ck_assert_uint_eq(b.script.n_runs, me->rank == 1);
}

static void lose_elected_and_fail(struct replica *me) {
        lose_elected(me, TUTTI_FAIL, DIE);
}

static void lose_elected_and_shrink(struct replica *me) {
        lose_elected(me, TUTTI_SHRINK, DIE);
}

static void elected_leaves(struct replica *me) {
        lose_elected(me, TUTTI_FAIL, LEAVE);
}

static void lose_the_elected(void (*body)(struct replica *me), int code) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, body, NULL, r);
        ck_assert_int_eq(replica_end(r[0], 10), code);
        ck_assert_int_eq(replica_end(r[1], 10), 0);
        ck_assert_int_eq(replica_end(r[2], 10), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}

START_TEST(P5_the_elected_dies_or_leaves_while_it_runs) {
        lose_the_elected(lose_elected_and_fail, 128 + SIGKILL);
        lose_the_elected(lose_elected_and_shrink, 128 + SIGKILL);
        lose_the_elected(elected_leaves, 0);
}
END_TEST

static void lose_another(struct replica *me) {
        struct bundle b;
        bool shrinks = *(int *)me->arg;
        struct tutti_group *g = join_train(me, shrinks ? TUTTI_SHRINK : TUTTI_FAIL);
        bundle_init(&b, me, g);
        b.script.what = WAIT;
        expect_status(call(&b, g, "k"), shrinks ? TUTTI_OK : TUTTI_REPLICA_LOST);
        if (shrinks) /* what it brought was there */
                expect_made(&b, 3, 0x7);
        else
                expect_untouched(&b);
}

static void lose_the_other(int shrinks) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, lose_another, &shrinks, r);
        replica_expect(r[0], "running", 5);
        host_expect_pending(h, 2);
        replica_kill9(r[2]);
        host_expect_sessions(h, shrinks ? 2 : 1); /* where it failed, R1 is through */
        replica_tell(r[0], "return");
        ck_assert_int_eq(replica_end(r[0], 5), 0);
        ck_assert_int_eq(replica_end(r[1], 5), 0);
        host_expect_counters_zero(h);
        host_stop(h);
}

START_TEST(P5_another_dies_while_it_runs) {
        lose_the_other(0);
        lose_the_other(1);
}
END_TEST

/* --- what is seen of it --- */

static void run_long(struct replica *me) {
        struct bundle b;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        bundle_init(&b, me, g);
        b.script.what = WAIT;
        expect_status(call(&b, g, "k"), TUTTI_OK);
}

START_TEST(P6_a_function_that_takes_long_is_reported_with_who_runs_it) {
        struct replica *r[2];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, run_long, NULL, r);
        replica_expect(r[0], "running", 5);
        double until = seconds_now() + 12 * unit_scale(); /* stall_warn is 5 s */
        while (!strstr(host_log(h), "R0 runs the merge function") && seconds_now() < until)
                seconds_sleep(0.1);
        expect_in(host_log(h), "STALLED: \"k\"");
        expect_in(host_log(h), "R0 runs the merge function");
        struct program p;
        program_run(
                (const char *[]){ program_tuttictl(), "status", "--socket", host_socket(h), NULL }, 10, &p);
        expect_in(p.out, "the merge function runs on R0");
        program_deinit(&p);
        replica_tell(r[0], "return");
        replicas_end(h, r, 2);
}
END_TEST

UNIT_MAIN("merge", 60, one_function_runs_once_over_all_values_on_1_2_3_4_5_7_8_replicas,
        values_of_any_kind_and_number_are_seen, a_callers_accumulation_function_reduces,
        P4_an_output_of_another_shape_than_the_input_is_refused_for_all,
        TE1_a_function_that_fails_fails_for_all_with_its_words,
        TE6_a_call_from_a_merge_function_of_the_same_group_is_refused,
        TE2_other_tags_numbers_and_shapes_are_told_to_all_before_it_runs,
        P18_values_beyond_the_users_limit_are_refused_for_all, unequal_numbers_of_calls_end_for_all,
        P6_a_deadline_ends_it_while_they_gather_and_while_it_runs, P8_an_abort_ends_it_while_it_runs,
        P8_an_abort_ends_it_while_they_gather, P5_one_that_dies_while_they_gather_is_named,
        P5_the_elected_dies_or_leaves_while_it_runs, P5_another_dies_while_it_runs,
        P6_a_function_that_takes_long_is_reported_with_who_runs_it)
