/* The strategy layer, in threads of one process and in several processes: what the tests of tf.distribute's
 * strategies assert, with their numbers (TE). */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "strategies.h"

/* --- TE1, TE2: how a run fails --- */

enum where { IN_FN = 1, IN_MERGE_FN, IN_NOBODY, TOO_OFTEN, CALL_IN_MERGE };

struct trouble {
        enum where where;
        uint32_t rank; /* whose */
};

static enum tutti_status run_again(struct tutti_context *c, void *userdata) {
        (void)c;
        (void)userdata;
        return TUTTI_OK;
}

static enum tutti_status merge_with_trouble(struct tutti_merge *m, void *userdata) {
        const struct trouble *t = userdata;
        if (t->where == IN_MERGE_FN)
                return tutti_merge_fail(m, "too hot in here");
        return TUTTI_OK;
}

static enum tutti_status merge_and_run(struct tutti_merge *m, void *userdata) {
        struct tutti_strategy *s = userdata;
        (void)m;
        ck_assert_int_eq(tutti_strategy_run(s, run_again, NULL), TUTTI_INVALID);
        expect_in(tutti_strategy_error(), "replica context");
        return TUTTI_OK;
}

static enum tutti_status get_into_trouble(struct tutti_context *c, void *userdata) {
        struct trouble *t = userdata;
        int is_mine = tutti_context_replica_id(c) == t->rank;
        if (t->where == IN_FN && is_mine)
                return tutti_context_fail(c, TUTTI_NOT_FOUND, "where is my data?");
        if (t->where == CALL_IN_MERGE)
                return tutti_context_merge_call(
                        c, &TUTTI_MERGE(.fn = merge_and_run, .userdata = tutti_context_strategy(c)));
        enum tutti_status status =
                tutti_context_merge_call(c, &TUTTI_MERGE(.fn = merge_with_trouble, .userdata = t));
        if (status == TUTTI_OK && t->where == TOO_OFTEN && is_mine)
                status = tutti_context_merge_call(c, &TUTTI_MERGE(.fn = merge_with_trouble, .userdata = t));
        return status;
}

static enum tutti_status run_into(struct tutti_strategy *s, enum where where, uint32_t rank) {
        struct trouble t = { .where = where, .rank = rank };
        return tutti_strategy_run(s, get_into_trouble, &t);
}

static void fail_everywhere(struct replica *me) {
        struct tutti_strategy *s = strategy_of(me);
        uint32_t n = tutti_strategy_num_replicas_in_sync(s), n_local = tutti_strategy_n_local(s);
        for (uint32_t rank = 0; rank < n; rank++) {
                int is_here = rank / n_local == me->rank;
                expect_said(run_into(s, IN_FN, rank), is_here ? TUTTI_NOT_FOUND : TUTTI_MISMATCH);
                expect_in(tutti_strategy_error(), "where is my data?");
                expect_said(run_into(s, TOO_OFTEN, rank), n > 1 ? TUTTI_MISMATCH : TUTTI_OK);
                if (n > 1)
                        expect_in(tutti_strategy_error(), "the end of the run");
                expect_said(run_into(s, IN_MERGE_FN, rank), TUTTI_ABORTED);
                expect_in(tutti_strategy_error(), "too hot in here");
                expect_said(run_into(s, CALL_IN_MERGE, rank), TUTTI_OK);
                expect_said(run_into(s, IN_NOBODY, rank), TUTTI_OK);
        }
        tutti_strategy_close(s);
}

START_TEST(TE1_a_failure_anywhere_ends_the_run_for_all_and_the_next_one_works) {
        run_in_all_shapes(fail_everywhere, 1);
}
END_TEST

static enum tutti_status reduce_lists(struct tutti_context *c, void *userdata) {
        float x[2] = { 1, 2 };
        const struct tutti_value v[] = { float_at(&x[0], 1), float_at(&x[1], 1) };
        const struct tutti_entry entries[] = { TUTTI_ENTRY(.input = &v[0], .output = &v[0]),
                TUTTI_ENTRY(.input = &v[1], .output = &v[1]) };
        (void)userdata;
        return tutti_context_all_reduce(
                c, TUTTI_SUM, entries, tutti_context_replica_id(c) == 0 ? 2 : 1, NULL);
}

static void differ_in_length(struct replica *me) {
        struct tutti_strategy *s = strategy_of(me);
        expect_said(tutti_strategy_run(s, reduce_lists, NULL), TUTTI_MISMATCH);
        expect_in(tutti_strategy_error(), "2 entries");
        expect_said(tutti_strategy_run(s, run_again, NULL), TUTTI_OK);
        tutti_strategy_close(s);
}

START_TEST(TE2_lists_of_different_lengths_are_refused_for_all) {
        run_in_all_shapes(differ_in_length, 2);
}
END_TEST

/* --- TE4: all_reduce in replica context --- */

static void all_reduce_by(
        struct tutti_context *c, enum tutti_op op, const float in[2], float want0, float want1) {
        float x[2] = { in[0], in[1] };
        const struct tutti_value v = float_at(x, 2);
        expect_said(
                tutti_context_all_reduce(c, op, &TUTTI_ENTRY(.input = &v, .output = &v), 1, NULL), TUTTI_OK);
        ck_assert_float_eq(x[0], want0);
        ck_assert_float_eq(x[1], want1);
}

static enum tutti_status all_reduce_as_tensorflow(struct tutti_context *c, void *userdata) {
        (void)userdata;
        uint32_t id = tutti_context_replica_id(c), n = tutti_context_num_replicas(c);
        static const float rows[2][2] = { { 39, 2 }, { 3, 41 } };
        if (n == 2) {
                all_reduce_by(c, TUTTI_SUM, rows[id], 42, 43);
                all_reduce_by(c, TUTTI_MEAN, rows[id], 21, 21.5f);
                const float scalar[2] = { id ? 3 : 1, 0 };
                all_reduce_by(c, TUTTI_SUM, scalar, 4, 0);
                all_reduce_by(c, TUTTI_MEAN, scalar, 2, 0);
        }
        if (n == 1)
                all_reduce_by(c, TUTTI_MEAN, rows[0], 39, 2); /* unchanged */
        const float mine[2] = { (float)id, 1 };
        all_reduce_by(c, TUTTI_SUM, mine, (float)(n * (n - 1)) / 2, (float)n);
        /* The sum's gradient is the sum of the gradients: of c = [1, 3] for two replicas. */
        const float gradient[2] = { n == 2 && id ? 3 : 1, n == 2 && id ? 3 : 1 };
        all_reduce_by(c, TUTTI_SUM, gradient, n == 2 ? 4 : (float)n, n == 2 ? 4 : (float)n);
        all_reduce_by(c, TUTTI_MEAN, gradient, n == 2 ? 2 : 1, n == 2 ? 2 : 1);
        return TUTTI_OK;
}

static void all_reduce_in_replicas(struct replica *me) {
        struct tutti_strategy *s = strategy_of(me);
        expect_said(tutti_strategy_run(s, all_reduce_as_tensorflow, NULL), TUTTI_OK);
        tutti_strategy_close(s);
}

START_TEST(TE4_all_reduce_sums_and_means_in_replica_context) {
        run_in_all_shapes(all_reduce_in_replicas, 1);
}
END_TEST

/* --- TE13, TE14: gather and all_gather; reduce over an axis --- */

/* Local values of rank r: r + 1 rows of r. Cross-replica, to all. */
static void gather_and_reduce(struct replica *me) {
        struct tutti_strategy *s = strategy_of(me);
        uint32_t n = tutti_strategy_num_replicas_in_sync(s), n_local = tutti_strategy_n_local(s);
        uint64_t total = (uint64_t)n * (n + 1) / 2, extent = 0;
        float in[MAX_LOCAL][16], out[MAX_LOCAL][16 * 17 / 2];
        const float sum = (float)((n - 1) * n * (n + 1)) / 3; /* of r times r + 1 */
        struct tutti_value values[MAX_LOCAL], outputs[MAX_LOCAL], scalars[MAX_LOCAL];
        for (uint32_t i = 0; i < n_local; i++) {
                uint32_t rank = tutti_rank(tutti_strategy_group(s, i));
                for (uint32_t k = 0; k <= rank; k++)
                        in[i][k] = (float)rank;
                values[i] = float_at(in[i], rank + 1);
                outputs[i] = float_at(out[i], total);
                scalars[i] = TUTTI_VALUE(.memory = out[i], .dtype = TUTTI_F32);
        }
        expect_said(tutti_strategy_gather(
                            s, 0, &TUTTI_REDUCTION(.values = values, .outputs = outputs), NULL, &extent),
                TUTTI_OK);
        ck_assert_uint_eq(extent, total);
        for (uint32_t i = 0; i < n_local; i++)
                for (uint32_t r = 0, at = 0; r < n; r++)
                        for (uint32_t k = 0; k <= r; k++)
                                ck_assert_float_eq(out[i][at++], (float)r);
        const struct tutti_reduction reduction = TUTTI_REDUCTION(.values = values, .outputs = scalars);
        const struct tutti_axes last = { (const int32_t[]){ -1 }, 1 }, beyond = { (const int32_t[]){ 1 }, 1 };
        expect_said(tutti_strategy_reduce(s, TUTTI_SUM, &reduction, &last, NULL), TUTTI_OK);
        ck_assert_float_eq(out[0][0], sum);
        expect_said(tutti_strategy_reduce(s, TUTTI_MEAN, &reduction, &last, NULL), TUTTI_OK);
        ck_assert_float_eq(out[n_local - 1][0], sum / (float)total);
        expect_said(tutti_strategy_reduce(s, TUTTI_MEAN, &reduction, &beyond, NULL), TUTTI_INVALID);
        tutti_strategy_close(s);
}

START_TEST(TE13_gather_and_TE4_reduce_over_an_axis_across_replicas) {
        run_in_all_shapes(gather_and_reduce, 1);
}
END_TEST

static enum tutti_status gather_in_a_replica(struct tutti_context *c, void *userdata) {
        struct tutti_strategy *s = userdata;
        uint32_t id = tutti_context_replica_id(c), n = tutti_context_num_replicas(c);
        float a = (float)id, b[2] = { 1, (float)id }, all_a[16], all_b[2 * 16];
        uint64_t extents[2] = { 0 };
        const struct tutti_value in[] = { float_at(&a, 1), float_at(b, 2) },
                                 out[] = { float_at(all_a, n), float_at(all_b, 2 * (uint64_t)n) };
        const struct tutti_entry entries[] = { TUTTI_ENTRY(.input = &in[0], .output = &out[0]),
                TUTTI_ENTRY(.input = &in[1], .output = &out[1]) };
        expect_said(tutti_context_all_gather(c, 0, entries, 2, NULL, extents), TUTTI_OK);
        ck_assert_uint_eq(extents[0], n);
        for (uint32_t r = 0; r < n; r++) {
                ck_assert_float_eq(all_a[r], (float)r);
                ck_assert_float_eq(all_b[2 * r], 1);
                ck_assert_float_eq(all_b[2 * r + 1], (float)r);
        }
        expect_said(tutti_strategy_gather(s, 0, &TUTTI_REDUCTION(.values = in), NULL, NULL), TUTTI_INVALID);
        expect_in(tutti_strategy_error(), "tutti_context_all_gather");
        return TUTTI_OK;
}

static void all_gather_in_replicas(struct replica *me) {
        struct tutti_strategy *s = strategy_of(me);
        expect_said(tutti_strategy_run(s, gather_in_a_replica, s), TUTTI_OK);
        tutti_strategy_close(s);
}

START_TEST(TE14_all_gather_of_a_nest_in_replica_context) {
        run_in_all_shapes(all_gather_in_replicas, 1);
}
END_TEST

/* --- TE5, TE7: every replica once --- */

struct seen {
        float plus_one[MAX_LOCAL], doubled[MAX_LOCAL], squared[MAX_LOCAL], kwargs[MAX_LOCAL];
        float a, b;
        atomic_uint n_calls;
};

static enum tutti_status look_at_id(struct tutti_context *c, void *userdata) {
        struct seen *seen = userdata;
        uint32_t i = tutti_context_local_id(c);
        float x = (float)tutti_context_replica_id(c) + 1;
        seen->plus_one[i] = x;
        seen->doubled[i] = 2 * x;
        seen->squared[i] = x * x;
        seen->kwargs[i] = x * (seen->a + 2 * seen->b) + 2;
        atomic_fetch_add(&seen->n_calls, 1);
        return TUTTI_OK;
}

static void run_each(struct replica *me) {
        struct tutti_strategy *s = strategy_of(me);
        struct seen seen = { .a = 2, .b = 1 };
        uint32_t n_local = tutti_strategy_n_local(s);
        expect_said(tutti_strategy_run(s, look_at_id, &seen), TUTTI_OK);
        ck_assert_uint_eq(seen.n_calls, n_local);
        for (uint32_t i = 0; i < n_local; i++) {
                float x = (float)(me->rank * n_local + i + 1);
                ck_assert_float_eq(seen.plus_one[i], x);
                ck_assert_float_eq(seen.doubled[i], 2 * x);
                ck_assert_float_eq(seen.squared[i], x * x);
                ck_assert_float_eq(seen.kwargs[i], 4 * x + 2); /* 6, 14 at x 1, 3 */
        }
        ck_assert_int_eq(tutti_strategy_should_save_summary(s), me->rank == 0);
        ck_assert_int_eq(tutti_strategy_should_checkpoint(s), me->rank == 0);
        ck_assert_int_eq(tutti_strategy_should_init(s), 1);
        ck_assert_int_eq(tutti_strategy_between_graph(s), me->n > 1);
        ck_assert_str_eq(tutti_strategy_worker_devices(s)[n_local - 1], "CPU:0");
        ck_assert_ptr_eq(tutti_strategy_parameter_devices(s), tutti_strategy_worker_devices(s));
        ck_assert_ptr_null(tutti_strategy_worker_devices(s)[n_local]);
        tutti_strategy_close(s);
}

START_TEST(TE5_TE7_a_run_calls_each_replica_once_with_its_id) {
        run_in_all_shapes(run_each, 1);
}
END_TEST

/* --- TE8: mirrored variables --- */

static struct tutti_variable *variable(struct tutti_strategy *s, float initial,
        enum tutti_synchronization how, enum tutti_aggregation aggregation) {
        struct tutti_variable *v = NULL;
        expect_said(tutti_variable_new(s,
                            &TUTTI_VARIABLE(.name = "v", .dtype = TUTTI_F32, .initial = &initial,
                                    .synchronization = how, .aggregation = aggregation),
                            &v),
                TUTTI_OK);
        return v;
}

static void expect_all(struct tutti_variable *v, uint32_t n_local, float want) {
        for (uint32_t i = 0; i < n_local; i++)
                ck_assert_float_eq(*(float *)tutti_variable_component(v, i), want);
        float read;
        expect_said(tutti_variable_read(v, NULL, &read), TUTTI_OK);
        ck_assert_float_eq(read, want);
}

/* One change in every replica. */
struct deed {
        struct tutti_variable *v;
        enum tutti_change change;
        enum { BY_ID, BY_LITERAL, BY_VALUE } by;
        double value;
        enum tutti_status want;
};

static enum tutti_status do_deed(struct tutti_context *c, void *userdata) {
        const struct deed *d = userdata;
        float x = d->by == BY_ID ? (float)tutti_context_replica_id(c) : (float)d->value;
        enum tutti_status status = d->by == BY_LITERAL
                                           ? tutti_variable_change_literal(d->v, c, d->change, d->value)
                                           : tutti_variable_change(d->v, c, d->change, &x);
        expect_said(status, d->want);
        return TUTTI_OK;
}

static void in_replicas(struct tutti_strategy *s, struct deed d) {
        expect_said(tutti_strategy_run(s, do_deed, &d), TUTTI_OK);
}

static void change_mirrored(struct replica *me) {
        struct tutti_strategy *s = strategy_of(me);
        uint32_t n = tutti_strategy_num_replicas_in_sync(s), l = tutti_strategy_n_local(s);
        float middle = (float)(n - 1) / 2, six = 6;
        struct tutti_variable *none = variable(s, 1, TUTTI_MIRRORED, TUTTI_AGGREGATION_NONE);
        in_replicas(s, (struct deed){ none, TUTTI_ASSIGN, BY_LITERAL, 5, TUTTI_OK });
        expect_all(none, l, 5);
        struct tutti_variable *sum = variable(s, 1, TUTTI_MIRRORED, TUTTI_AGGREGATION_SUM);
        in_replicas(s, (struct deed){ sum, TUTTI_ASSIGN, BY_LITERAL, 5, TUTTI_INVALID });
        expect_all(sum, l, 1);
        in_replicas(s, (struct deed){ sum, TUTTI_ASSIGN_ADD, BY_LITERAL, 0, TUTTI_OK });
        in_replicas(s, (struct deed){ sum, TUTTI_ASSIGN_ADD, BY_VALUE, 2, TUTTI_OK });
        expect_all(sum, l, 1 + 2 * (float)n);
        expect_said(tutti_variable_change(sum, NULL, TUTTI_ASSIGN, &six), TUTTI_OK);
        expect_all(sum, l, 6);
        struct tutti_variable *mean = variable(s, 1, TUTTI_MIRRORED, TUTTI_AGGREGATION_MEAN);
        in_replicas(s, (struct deed){ mean, TUTTI_ASSIGN, BY_ID, 0, TUTTI_OK });
        expect_all(mean, l, middle); /* 0.5 with two */
        in_replicas(s, (struct deed){ mean, TUTTI_ASSIGN, BY_LITERAL, 5, TUTTI_OK });
        expect_all(mean, l, 5);
        expect_said(tutti_variable_change_literal(mean, NULL, TUTTI_ASSIGN, 1), TUTTI_OK);
        expect_said(tutti_variable_change(mean, NULL, TUTTI_ASSIGN_ADD, &six), TUTTI_OK);
        expect_all(mean, l, 7);
        expect_said(tutti_variable_change_literal(mean, NULL, TUTTI_ASSIGN_ADD, 2), TUTTI_OK);
        expect_all(mean, l, 9);
        expect_said(tutti_variable_change_literal(mean, NULL, TUTTI_ASSIGN, 1), TUTTI_OK);
        in_replicas(s, (struct deed){ mean, TUTTI_ASSIGN_ADD, BY_ID, 0, TUTTI_OK });
        expect_all(mean, l, 1 + middle); /* 1.5 */
        expect_said(tutti_variable_change_literal(mean, NULL, TUTTI_ASSIGN, 1), TUTTI_OK);
        in_replicas(s, (struct deed){ mean, TUTTI_ASSIGN_ADD, BY_LITERAL, 5, TUTTI_OK });
        expect_all(mean, l, 6);
        expect_said(tutti_variable_change_literal(mean, NULL, TUTTI_ASSIGN, 5), TUTTI_OK);
        expect_said(tutti_variable_change_literal(mean, NULL, TUTTI_ASSIGN_SUB, 2), TUTTI_OK);
        expect_all(mean, l, 3);
        expect_said(tutti_variable_change_literal(mean, NULL, TUTTI_ASSIGN, 5), TUTTI_OK);
        in_replicas(s, (struct deed){ mean, TUTTI_ASSIGN_SUB, BY_ID, 0, TUTTI_OK });
        expect_all(mean, l, 5 - middle); /* 4.5 */
        expect_said(tutti_variable_change_literal(mean, NULL, TUTTI_ASSIGN, 5), TUTTI_OK);
        in_replicas(s, (struct deed){ mean, TUTTI_ASSIGN_SUB, BY_LITERAL, 1, TUTTI_OK });
        expect_all(mean, l, 4);
        struct tutti_variable *first = variable(s, 1, TUTTI_MIRRORED, TUTTI_AGGREGATION_ONLY_FIRST_REPLICA);
        in_replicas(s, (struct deed){ first, TUTTI_ASSIGN_ADD, BY_ID, 0, TUTTI_OK });
        expect_all(first, l, 1);
        tutti_strategy_close(s);
}

START_TEST(TE8_mirrored_variables_in_both_contexts) {
        run_in_all_shapes(change_mirrored, 1);
}
END_TEST

static enum tutti_status step_forward(struct tutti_context *c, void *userdata) {
        int64_t one = 1;
        return tutti_variable_change(userdata, c, TUTTI_ASSIGN_ADD, &one);
}

static void count_steps(struct replica *me) {
        struct tutti_strategy *s = strategy_of(me);
        struct tutti_variable *step = NULL;
        expect_said(tutti_variable_new(s,
                            &TUTTI_VARIABLE(.name = "global_step", .dtype = TUTTI_I64,
                                    .aggregation = TUTTI_AGGREGATION_ONLY_FIRST_REPLICA),
                            &step),
                TUTTI_OK);
        expect_said(tutti_strategy_run(s, step_forward, step), TUTTI_OK);
        for (uint32_t i = 0; i < tutti_strategy_n_local(s); i++)
                ck_assert_int_eq(*(int64_t *)tutti_variable_component(step, i), 1);
        tutti_strategy_close(s);
}

START_TEST(TE10_a_step_counted_by_every_replica_counts_once) {
        run_in_all_shapes(count_steps, 1);
}
END_TEST

/* --- TE11: reduce_to and update --- */

struct descent {
        struct tutti_variable *w;
        float gradients[MAX_LOCAL];
};

static enum tutti_status take_gradient(struct tutti_context *c, void *userdata) {
        struct descent *d = userdata;
        float w;
        enum tutti_status status = tutti_variable_read(d->w, c, &w);
        d->gradients[tutti_context_local_id(c)] = 2 * (w * 1 - 1);
        return status;
}

static enum tutti_status apply_gradient(void *component, uint32_t local_id, void *userdata) {
        (void)local_id;
        *(float *)component -= 0.05f * *(float *)userdata;
        return TUTTI_OK;
}

static void minimise(struct replica *me) {
        struct tutti_strategy *s = strategy_of(me);
        uint32_t l = tutti_strategy_n_local(s);
        struct descent d = { .w = variable(s, 10, TUTTI_MIRRORED, TUTTI_AGGREGATION_MEAN) };
        struct tutti_value v[MAX_LOCAL];
        void *gradients[MAX_LOCAL];
        for (uint32_t i = 0; i < l; i++) {
                v[i] = float_at(&d.gradients[i], 1);
                gradients[i] = &d.gradients[i];
        }
        float before = 9;
        for (int step = 0; step < 10; step++) {
                expect_said(tutti_strategy_run(s, take_gradient, &d), TUTTI_OK);
                expect_said(tutti_strategy_reduce_to(
                                    s, TUTTI_SUM, &TUTTI_REDUCTION(.values = v, .outputs = v), NULL),
                        TUTTI_OK);
                expect_said(tutti_strategy_update(s, d.w, apply_gradient, gradients, l), TUTTI_OK);
                float after;
                expect_said(tutti_variable_read(d.w, NULL, &after), TUTTI_OK);
                ck_assert_float_lt(fabsf(after - 1), before);
                before = fabsf(after - 1);
        }
        expect_all(d.w, l, *(float *)tutti_variable_component(d.w, 0));
        tutti_strategy_close(s);
}

START_TEST(TE11_ten_steps_of_descent_bring_the_error_down) {
        run_in_all_shapes(minimise, 1);
}
END_TEST

/* --- TE12, TA1: cross-replica reductions --- */

static void reduce_across(struct replica *me) {
        struct tutti_strategy *s = strategy_of(me);
        uint32_t n = tutti_strategy_num_replicas_in_sync(s), l = tutti_strategy_n_local(s);
        float one[MAX_LOCAL], id[MAX_LOCAL], out[MAX_LOCAL] = { 0 };
        struct tutti_value ones[MAX_LOCAL], ids[MAX_LOCAL], outs[MAX_LOCAL];
        for (uint32_t i = 0; i < l; i++) {
                one[i] = 1;
                id[i] = (float)(me->rank * l + i);
                ones[i] = float_at(&one[i], 1);
                ids[i] = float_at(&id[i], 1);
                outs[i] = float_at(&out[i], 1);
        }
        expect_said(tutti_strategy_reduce_to(
                            s, TUTTI_SUM, &TUTTI_REDUCTION(.values = ones, .outputs = outs), NULL),
                TUTTI_OK);
        for (uint32_t i = 0; i < l; i++)
                ck_assert_float_eq(out[i], (float)n);
        const struct tutti_reduction two[] = { TUTTI_REDUCTION(.values = ones, .outputs = ones),
                TUTTI_REDUCTION(.values = ids, .outputs = outs,
                        .destinations = { .where = TUTTI_TO_RANK, .rank = n - 1 }) };
        memset(out, 0, sizeof(out));
        expect_said(tutti_strategy_batch_reduce_to(s, TUTTI_MEAN, two, 2, NULL), TUTTI_OK);
        for (uint32_t i = 0; i < l; i++) {
                ck_assert_float_eq(one[i], 1);
                ck_assert_float_eq(out[i], me->rank * l + i == n - 1 ? (float)(n - 1) / 2 : 0);
        }
        expect_said(tutti_strategy_broadcast_to(s, n - 1, &ids[l - 1], outs, NULL, NULL), TUTTI_OK);
        for (uint32_t i = 0; i < l; i++)
                ck_assert_float_eq(out[i], (float)(n - 1));
        memset(out, 0, sizeof(out));
        const struct tutti_destinations to_first = { .where = TUTTI_TO_RANK, .rank = 0 };
        const struct tutti_options wrong = TUTTI_OPTIONS(.has_weight = 1, .weight = 2);
        expect_said(tutti_strategy_broadcast_to(s, n - 1, &ids[l - 1], outs, &to_first, NULL), TUTTI_OK);
        for (uint32_t i = 0; i < l; i++)
                ck_assert_float_eq(out[i], me->rank * l + i == 0 ? (float)(n - 1) : 0);
        expect_said(tutti_strategy_broadcast_to(s, n - 1, &ids[l - 1], outs, NULL, &wrong), TUTTI_INVALID);
        expect_said(tutti_strategy_batch_reduce_to(s, TUTTI_MEAN, two, 0, NULL), TUTTI_INVALID);
        tutti_strategy_close(s);
}

START_TEST(TE12_reduce_to_batch_reduce_to_and_broadcast_to) {
        run_in_all_shapes(reduce_across, 1);
}
END_TEST

/* --- variables that are combined when they are read --- */

static void read_sums(struct replica *me) {
        struct tutti_strategy *s = strategy_of(me);
        uint32_t n = tutti_strategy_num_replicas_in_sync(s);
        float read, seven = 7, zero = 0;
        struct tutti_variable *sum = variable(s, 0, TUTTI_ON_READ, TUTTI_AGGREGATION_SUM),
                              *mean = variable(s, 0, TUTTI_ON_READ, TUTTI_AGGREGATION_MEAN),
                              *first = variable(s, 3, TUTTI_ON_READ, TUTTI_AGGREGATION_ONLY_FIRST_REPLICA),
                              *none = variable(s, 0, TUTTI_ON_READ, TUTTI_AGGREGATION_NONE);
        in_replicas(s, (struct deed){ sum, TUTTI_ASSIGN_ADD, BY_ID, 0, TUTTI_OK });
        expect_said(tutti_variable_read(sum, NULL, &read), TUTTI_OK);
        ck_assert_float_eq(read, (float)(n * (n - 1)) / 2);
        in_replicas(s, (struct deed){ mean, TUTTI_ASSIGN, BY_ID, 0, TUTTI_OK });
        expect_said(tutti_variable_read(mean, NULL, &read), TUTTI_OK);
        ck_assert_float_eq(read, (float)(n - 1) / 2);
        in_replicas(s, (struct deed){ first, TUTTI_ASSIGN_ADD, BY_ID, 0, TUTTI_OK });
        expect_said(tutti_variable_read(first, NULL, &read), TUTTI_OK);
        ck_assert_float_eq(read, 3);
        expect_said(tutti_variable_read(none, NULL, &read), TUTTI_INVALID);
        expect_in(tutti_strategy_error(), "no aggregation");
        expect_said(tutti_variable_change(sum, NULL, TUTTI_ASSIGN_ADD, &seven), TUTTI_INVALID);
        expect_said(tutti_variable_change(mean, NULL, TUTTI_ASSIGN, &zero), TUTTI_OK);
        expect_said(tutti_variable_change(mean, NULL, TUTTI_ASSIGN_ADD, &seven), TUTTI_OK);
        expect_said(tutti_variable_read(mean, NULL, &read), TUTTI_OK);
        ck_assert_float_eq_tol(read, 7, 1e-5);
        tutti_strategy_close(s);
}

START_TEST(variables_on_read_are_each_replicas_own_until_they_are_read) {
        run_in_all_shapes(read_sums, 1);
}
END_TEST

/* A checkpoint of one world is restored in the next one: the total stays, also of integers. */
static void keep_total(struct replica *me) {
        static const struct {
                uint32_t n_local;
                int64_t saved;
        } worlds[] = { { 1, 1000003 }, { 3, -17 }, { 7, 1000003 }, { 8, 5 }, { 2, -1 } };
        for (size_t w = 0; w < sizeof(worlds) / sizeof(*worlds); w++) {
                const char group[] = { 'g', (char)('0' + w), '\0' };
                struct tutti_strategy *s = strategy_with(me, group, worlds[w].n_local, NULL);
                struct tutti_variable *v = NULL;
                int64_t total = 0, again;
                expect_said(tutti_variable_new(s,
                                    &TUTTI_VARIABLE(.name = "seen", .dtype = TUTTI_I64,
                                            .synchronization = TUTTI_ON_READ,
                                            .aggregation = TUTTI_AGGREGATION_SUM),
                                    &v),
                        TUTTI_OK);
                expect_said(tutti_variable_restore(v, &worlds[w].saved), TUTTI_OK);
                for (uint32_t i = 0; i < worlds[w].n_local; i++)
                        total += *(int64_t *)tutti_variable_component(v, i);
                expect_said(tutti_variable_save(v, &again), TUTTI_OK);
                ck_assert_int_eq(again, worlds[w].saved);
                if (me->n == 1)
                        ck_assert_int_eq(total, worlds[w].saved);
                tutti_strategy_close(s);
        }
}

START_TEST(a_restored_sum_is_the_saved_one_in_any_number_of_replicas) {
        replicas_run(1, keep_total);
        replicas_run(2, keep_total);
}
END_TEST

UNIT_MAIN("strategy", 120, TE1_a_failure_anywhere_ends_the_run_for_all_and_the_next_one_works,
        TE2_lists_of_different_lengths_are_refused_for_all, TE4_all_reduce_sums_and_means_in_replica_context,
        TE13_gather_and_TE4_reduce_over_an_axis_across_replicas, TE14_all_gather_of_a_nest_in_replica_context,
        TE5_TE7_a_run_calls_each_replica_once_with_its_id, TE8_mirrored_variables_in_both_contexts,
        TE10_a_step_counted_by_every_replica_counts_once, TE11_ten_steps_of_descent_bring_the_error_down,
        TE12_reduce_to_batch_reduce_to_and_broadcast_to,
        variables_on_read_are_each_replicas_own_until_they_are_read,
        a_restored_sum_is_the_saved_one_in_any_number_of_replicas)
