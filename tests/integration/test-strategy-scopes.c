/* What can be asked of a strategy, of a replica and of a variable, and who may call what: scopes, devices,
 * arguments, shards, what all collectives are done with (TF62 TA8 TB16). */
#include <stddef.h>
#include <string.h>
#include "strategies.h"

/* --- scopes --- */

static enum tutti_status cross_the_line(struct tutti_context *c, void *userdata) {
        struct tutti_variable *v = userdata;
        float x = 1;
        struct tutti_value value = float_at(&x, 1);
        struct tutti_strategy *s = tutti_context_strategy(c);
        ck_assert_int_eq(tutti_strategy_reduce_to(
                                 s, TUTTI_SUM, &TUTTI_REDUCTION(.values = &value, .outputs = &value), NULL),
                TUTTI_INVALID);
        expect_in(tutti_strategy_error(), "merge_call");
        ck_assert_int_eq(tutti_variable_change(v, NULL, TUTTI_ASSIGN, &x), TUTTI_INVALID);
        ck_assert_int_eq(tutti_strategy_run(s, cross_the_line, v), TUTTI_INVALID);
        return TUTTI_OK;
}

static enum tutti_status count_up(void *component, uint32_t local_id, void *userdata) {
        ck_assert_ptr_null(component);
        ((uint32_t *)userdata)[local_id]++;
        return local_id == 1 ? TUTTI_NOT_FOUND : TUTTI_OK;
}

/* One float, 1. */
static struct tutti_variable *variable(
        struct tutti_strategy *s, enum tutti_synchronization how, enum tutti_aggregation aggregation) {
        struct tutti_variable *v = NULL;
        float one = 1;
        expect_said(tutti_variable_new(s,
                            &TUTTI_VARIABLE(.name = "v", .dtype = TUTTI_F32, .initial = &one,
                                    .synchronization = how, .aggregation = aggregation),
                            &v),
                TUTTI_OK);
        return v;
}

static void look_around(struct replica *me) {
        struct tutti_strategy *s = strategy_in(me, 2), *other = NULL;
        struct tutti_variable *v = variable(s, TUTTI_MIRRORED, TUTTI_AGGREGATION_SUM), *w = NULL;
        float x = 0;
        expect_said(tutti_strategy_open(
                            me->t, &TUTTI_STRATEGY(.group = "other", .job = "test", .n_local = 2), &other),
                TUTTI_OK);
        ck_assert_int_eq(tutti_strategy_created(s, v), 1);
        ck_assert_int_eq(tutti_strategy_created(other, v), 0);
        ck_assert_ptr_eq(tutti_strategy_value_container(s, tutti_variable_component(v, 1)), v);
        ck_assert_ptr_null(tutti_strategy_value_container(s, &x));
        ck_assert_ptr_null(tutti_strategy_value_container(other, tutti_variable_component(v, 1)));
        ck_assert_ptr_nonnull(tutti_strategy_colocate_vars_with(s, v));
        ck_assert_ptr_null(tutti_strategy_colocate_vars_with(other, v));
        struct tutti_variable_args args = TUTTI_VARIABLE(.name = "w", .dtype = TUTTI_F32, .colocate_with = v);
        ck_assert_int_eq(tutti_variable_new(other, &args, &w), TUTTI_INVALID);
        expect_in(tutti_strategy_error(), "of another strategy");
        args.colocate_with = NULL;
        args.dtype = TUTTI_I32;
        args.aggregation = TUTTI_AGGREGATION_MEAN;
        ck_assert_int_eq(tutti_variable_new(other, &args, &w), TUTTI_INVALID);
        uint32_t counts[2] = { 0 };
        void *userdata = counts;
        ck_assert_int_eq(
                tutti_strategy_update_non_slot(s, tutti_strategy_non_slot_devices(s), count_up, &userdata, 1),
                TUTTI_NOT_FOUND);
        ck_assert_uint_eq(counts[0] + counts[1], 2);
        ck_assert_int_eq(tutti_strategy_update_non_slot(s, NULL, count_up, &userdata, 1), TUTTI_INVALID);
        ck_assert_int_eq(tutti_strategy_update(other, v, count_up, &userdata, 1), TUTTI_INVALID);
        expect_said(tutti_strategy_run(s, cross_the_line, v), TUTTI_OK);
        tutti_strategy_close(other);
        tutti_strategy_close(s);
}

START_TEST(variables_know_their_strategy_and_each_context_its_calls) {
        replicas_run(1, look_around);
}
END_TEST

static void shard(struct replica *me) {
        struct tutti_strategy *s = strategy_of(me);
        uint32_t n = tutti_strategy_num_replicas_in_sync(s);
        for (uint64_t n_rows = 0; n_rows < 40; n_rows++) {
                uint64_t next = 0, least = UINT64_MAX, most = 0;
                for (uint32_t rank = 0; rank < n; rank++) {
                        uint64_t first, rows;
                        tutti_strategy_shard_rows(s, rank, n_rows, &first, &rows);
                        ck_assert_uint_eq(first, next);
                        next += rows;
                        least = rows < least ? rows : least;
                        most = rows > most ? rows : most;
                }
                ck_assert_uint_eq(next, n_rows);
                ck_assert_uint_le(most - least, 1);
        }
        tutti_strategy_close(s);
}

START_TEST(shards_hold_each_row_once) {
        run_in_all_shapes(shard, 1);
}
END_TEST

/* --- arguments --- */

/* A membership without a world: nobody is waited for. */
static void open_with_arguments(struct replica *me) {
        static const char *const devices[] = { "CPU:0", "CPU:1" };
        struct tutti_strategy_args args;
        struct tutti_strategy *s = NULL;
        memset(&args, 0xff, sizeof(args));
        tutti_strategy_args_init(&args);
        args.group = "train";
        args.job = "test";
        args.n_local = 2;
        args.devices = devices;
        expect_said(tutti_strategy_open(replica_open(me), &args, &s), TUTTI_OK);
        ck_assert_uint_eq(tutti_strategy_n_local(s), 2);
        ck_assert_uint_eq(tutti_strategy_num_replicas_in_sync(s), 2);
        ck_assert_str_eq(tutti_strategy_worker_devices(s)[1], "CPU:1");
        ck_assert_str_eq(tutti_strategy_non_slot_devices(s)[0], "CPU:0");
        ck_assert_uint_eq(tutti_rank(tutti_strategy_group(s, 1)), 1);
        ck_assert_ptr_null(tutti_strategy_group(s, 2));
        tutti_strategy_close(s);
        /* Compiled before there were options, which lie behind its arguments. */
        static const struct tutti_options none_has = TUTTI_OPTIONS(.algorithm = "library");
        args.struct_size = offsetof(struct tutti_strategy_args, options);
        args.options = &none_has;
        expect_said(tutti_strategy_open(me->t, &args, &s), TUTTI_OK);
        float x[2] = { 1, 2 };
        const struct tutti_value values[] = { float_at(&x[0], 1), float_at(&x[1], 1) };
        expect_said(tutti_strategy_reduce_to(
                            s, TUTTI_SUM, &TUTTI_REDUCTION(.values = values, .outputs = values), NULL),
                TUTTI_OK);
        ck_assert(x[0] == 3 && x[1] == 3);
        tutti_strategy_close(s);
        args.struct_size = 8;
        expect_said(tutti_strategy_open(me->t, &args, &s), TUTTI_INVALID);
        expect_in(tutti_strategy_error(), "TUTTI_STRATEGY");
        args.struct_size = sizeof(args);
        args.n_local = TUTTI_MAX_WORLD + 1;
        expect_said(tutti_strategy_open(me->t, &args, &s), TUTTI_LIMIT);
        tutti_strategy_close(NULL);
}

START_TEST(arguments_of_older_programs_are_taken_and_others_refused) {
        replicas_run(1, open_with_arguments);
}
END_TEST

/* --- a replica and its variable --- */

static enum tutti_status look_at_context(struct tutti_context *c, void *userdata) {
        struct tutti_strategy *s = userdata;
        uint32_t i = tutti_context_local_id(c);
        ck_assert_ptr_eq(tutti_context_strategy(c), s);
        ck_assert_ptr_eq(tutti_context_group(c), tutti_strategy_group(s, i));
        ck_assert_uint_eq(tutti_context_replica_id(c), tutti_rank(tutti_context_group(c)));
        ck_assert_uint_eq(tutti_context_num_replicas(c), tutti_world_size(tutti_context_group(c)));
        return TUTTI_OK;
}

/* TA8: a mirrored variable is value and destination of a mean, alone and in a batch; each component counts
 * once by both, where TensorFlow counts one by the one and all by the other. */
static void mean_of_a_variable(struct tutti_strategy *s, struct tutti_variable *v) {
        uint32_t n_local = tutti_strategy_n_local(s);
        float n = (float)tutti_strategy_num_replicas_in_sync(s), results[2][MAX_LOCAL] = { { 0 } };
        struct tutti_value values[MAX_LOCAL], outputs[2][MAX_LOCAL];
        struct tutti_reduction alone;
        memset(&alone, 0xff, sizeof(alone));
        tutti_reduction_init(&alone);
        for (uint32_t i = 0; i < n_local; i++) {
                expect_said(tutti_variable_value(v, i, &values[i]), TUTTI_OK);
                for (int k = 0; k < 2; k++)
                        outputs[k][i] = TUTTI_VALUE(.memory = &results[k][i], .dtype = TUTTI_F32);
        }
        alone.values = values;
        alone.destinations.where = TUTTI_TO_SAME;
        expect_said(tutti_strategy_reduce_to(s, TUTTI_MEAN, &alone, NULL), TUTTI_OK);
        const struct tutti_reduction both[] = { TUTTI_REDUCTION(.values = values, .outputs = outputs[0]),
                TUTTI_REDUCTION(.values = values, .outputs = outputs[1]) };
        for (enum tutti_op op = TUTTI_SUM; op <= TUTTI_MEAN; op++) {
                expect_said(tutti_strategy_batch_reduce_to(s, op, both, 2, NULL), TUTTI_OK);
                for (uint32_t i = 0; i < n_local; i++) {
                        ck_assert_float_eq(*(float *)tutti_variable_component(v, i), 1);
                        ck_assert_float_eq(results[0][i], op == TUTTI_MEAN ? 1 : n);
                        ck_assert_float_eq(results[1][i], op == TUTTI_MEAN ? 1 : n);
                }
        }
}

static void look_at_variables(struct replica *me) {
        struct tutti_strategy *s = strategy_of(me);
        uint32_t n_local = tutti_strategy_n_local(s);
        struct tutti_variable_args args;
        struct tutti_variable *v = variable(s, TUTTI_MIRRORED, TUTTI_AGGREGATION_MEAN), *w = NULL;
        struct tutti_value value;
        expect_said(tutti_strategy_run(s, look_at_context, s), TUTTI_OK);
        mean_of_a_variable(s, v);
        memset(&args, 0xff, sizeof(args));
        tutti_variable_args_init(&args);
        args.name = "table";
        args.dtype = TUTTI_F16;
        args.n_dims = 2;
        args.shape[0] = 3;
        args.shape[1] = 5;
        args.colocate_with = v;
        expect_said(tutti_variable_new(s, &args, &w), TUTTI_OK);
        ck_assert_str_eq(tutti_variable_name(w), "table");
        ck_assert_uint_eq(tutti_variable_bytes(w), 30);
        expect_said(tutti_variable_value(w, n_local - 1, &value), TUTTI_OK);
        ck_assert(
                value.dtype == TUTTI_F16 && value.n_dims == 2 && value.shape[0] == 3 && value.shape[1] == 5);
        ck_assert_ptr_eq(tutti_buffer_data(value.buffer), tutti_variable_component(w, n_local - 1));
        ck_assert_ptr_null(tutti_variable_component(w, n_local));
        ck_assert_int_eq(tutti_variable_value(w, n_local, &value), TUTTI_INVALID);
        const void *component = tutti_variable_component(w, 0);
        ck_assert_ptr_eq(tutti_strategy_value_container(s, component), w);
        tutti_variable_free(w);
        ck_assert_ptr_null(tutti_strategy_value_container(s, component));
        ck_assert_ptr_eq(tutti_strategy_value_container(s, tutti_variable_component(v, 0)), v);
        tutti_variable_free(NULL);
        tutti_strategy_close(s);
}

START_TEST(TA8_what_can_be_asked_of_replicas_and_variables) {
        run_in_all_shapes(look_at_variables, 1);
}
END_TEST

/* What is no sum is in every component after it was restored. */
static void restore(struct replica *me) {
        struct tutti_strategy *s = strategy_of(me);
        const struct {
                enum tutti_synchronization synchronization;
                enum tutti_aggregation aggregation;
        } kinds[] = { { TUTTI_MIRRORED, TUTTI_AGGREGATION_NONE }, { TUTTI_MIRRORED, TUTTI_AGGREGATION_SUM },
                { TUTTI_ON_READ, TUTTI_AGGREGATION_MEAN },
                { TUTTI_ON_READ, TUTTI_AGGREGATION_ONLY_FIRST_REPLICA } };
        for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
                struct tutti_variable *v = variable(s, kinds[k].synchronization, kinds[k].aggregation);
                float saved = 7.5f, again = 0;
                expect_said(tutti_variable_restore(v, &saved), TUTTI_OK);
                for (uint32_t i = 0; i < tutti_strategy_n_local(s); i++)
                        ck_assert_float_eq(*(float *)tutti_variable_component(v, i), saved);
                expect_said(tutti_variable_save(v, &again), TUTTI_OK);
                ck_assert_float_eq_tol(again, saved, 1e-5);
        }
        tutti_strategy_close(s);
}

START_TEST(what_is_restored_and_no_sum_is_in_every_component) {
        run_in_all_shapes(restore, 1);
}
END_TEST

/* --- updates --- */

static enum tutti_status fail_in_the_middle(void *component, uint32_t local_id, void *userdata) {
        *(float *)component += *(float *)userdata;
        return local_id == 1 ? TUTTI_NOT_FOUND : TUTTI_OK;
}

static void update_some(struct replica *me) {
        struct tutti_strategy *s = strategy_in(me, 3);
        struct tutti_variable *v = variable(s, TUTTI_MIRRORED, TUTTI_AGGREGATION_NONE);
        float by[3] = { 10, 20, 30 };
        void *userdata[3] = { &by[0], &by[1], &by[2] };
        ck_assert_int_eq(tutti_strategy_update(s, v, fail_in_the_middle, userdata, 2), TUTTI_INVALID);
        expect_in(tutti_strategy_error(), "for each of the 3 local");
        ck_assert_int_eq(tutti_strategy_update(s, v, NULL, userdata, 3), TUTTI_INVALID);
        ck_assert_int_eq(tutti_strategy_update(s, v, fail_in_the_middle, userdata, 3), TUTTI_NOT_FOUND);
        expect_in(tutti_strategy_error(), "local replica 1; those before it are done");
        ck_assert_float_eq(*(float *)tutti_variable_component(v, 0), 11);
        ck_assert_float_eq(*(float *)tutti_variable_component(v, 1), 21);
        ck_assert_float_eq(*(float *)tutti_variable_component(v, 2), 1); /* left as it was */
        tutti_strategy_close(s);
}

START_TEST(an_update_goes_in_order_and_ends_where_it_fails) {
        replicas_run(1, update_some);
}
END_TEST

/* --- what all collectives are done with --- */

static enum tutti_status reduce_by_library(struct tutti_context *c, void *userdata) {
        float x = 1;
        const struct tutti_value v = float_at(&x, 1);
        (void)userdata;
        expect_said(tutti_context_all_reduce(c, TUTTI_SUM, &TUTTI_ENTRY(.input = &v, .output = &v), 1, NULL),
                TUTTI_UNSUPPORTED);
        return TUTTI_OK;
}

static enum tutti_status reduce_by_options(struct tutti_context *c, void *userdata) {
        float n = (float)tutti_context_num_replicas(c), x = 1;
        const struct tutti_value v = float_at(&x, 1);
        (void)userdata;
        expect_said(tutti_context_all_reduce(c, TUTTI_SUM, &TUTTI_ENTRY(.input = &v, .output = &v), 1,
                            &TUTTI_OPTIONS(.algorithm = "hierarchical_copy")),
                TUTTI_OK);
        ck_assert_float_eq(x, n);
        float all[4] = { 0 };
        const struct tutti_value to = float_at(all, 4);
        uint64_t extent = 0;
        expect_said(tutti_context_all_gather(c, 0, &TUTTI_ENTRY(.input = &v, .output = &to), 1,
                            &TUTTI_OPTIONS(.timeout = -1), &extent),
                TUTTI_OK);
        ck_assert(extent == (uint64_t)n && all[0] == n && all[(size_t)n - 1] == n);
        expect_said(tutti_context_all_reduce(c, TUTTI_SUM, &TUTTI_ENTRY(.input = &v, .output = &v), 1,
                            &TUTTI_OPTIONS(.algorithm = "sorcery")),
                TUTTI_UNSUPPORTED);
        expect_in(tutti_strategy_error(), "an algorithm other than");
        return TUTTI_OK;
}

static void have_a_base(struct replica *me) {
        const struct tutti_options base = TUTTI_OPTIONS(.algorithm = "library"), /* which no host has */
                reset = TUTTI_OPTIONS(.reset = TUTTI_RESET_ALGORITHM),
                                   other = TUTTI_OPTIONS(.algorithm = "hierarchical_copy");
        struct tutti_strategy *s = strategy_with(me, "train", 2, &base);
        float n = (float)tutti_strategy_num_replicas_in_sync(s), x[2] = { 1, 1 };
        const struct tutti_value v[] = { float_at(&x[0], 1), float_at(&x[1], 1) };
        const struct tutti_reduction r = TUTTI_REDUCTION(.values = v, .outputs = v);
        expect_said(tutti_strategy_reduce_to(s, TUTTI_SUM, &r, NULL), TUTTI_UNSUPPORTED);
        expect_in(tutti_strategy_error(), "host devices have no library");
        ck_assert(x[0] == 1 && x[1] == 1);
        expect_said(tutti_strategy_reduce_to(s, TUTTI_SUM, &r, &other), TUTTI_OK);
        ck_assert(x[0] == n && x[1] == n);
        expect_said(tutti_strategy_reduce_to(s, TUTTI_SUM, &r, &reset), TUTTI_OK);
        ck_assert(x[0] == n * n && x[1] == n * n);
        ck_assert_int_eq(tutti_strategy_run(s, reduce_by_library, NULL), TUTTI_UNSUPPORTED);
        ck_assert_int_eq(tutti_strategy_run(s, reduce_by_options, NULL), TUTTI_UNSUPPORTED);
        tutti_strategy_close(s);
}

START_TEST(options_of_a_strategy_hold_where_a_call_says_nothing) {
        replicas_run(1, have_a_base);
        replicas_run(2, have_a_base);
}
END_TEST

/* --- TB16, through the strategy --- */

/* Three workers with one or two replicas each: what TA1 says of the local ones, three times. */
static void reduce_ramps(struct tutti_strategy *s, const struct tutti_options *options) {
        uint32_t n_local = tutti_strategy_n_local(s);
        float d = (float)n_local, in[2][2], out[2][2];
        struct tutti_value values[2][2], outputs[2][2];
        for (uint32_t k = 0; k < 2; k++)
                for (uint32_t i = 0; i < n_local; i++) {
                        in[k][i] = (float)(i + k);
                        values[k][i] = float_at(&in[k][i], 1);
                        outputs[k][i] = float_at(&out[k][i], 1);
                }
        const struct tutti_reduction both[] = {
                TUTTI_REDUCTION(.values = values[0], .outputs = outputs[0]),
                TUTTI_REDUCTION(.values = values[1], .outputs = outputs[1]),
        };
        for (enum tutti_op op = TUTTI_SUM; op <= TUTTI_MEAN; op++)
                for (uint32_t is_batch = 0; is_batch < 2; is_batch++) {
                        const float scale = op == TUTTI_MEAN ? 1 / d : 3;
                        memset(out, 0, sizeof(out));
                        if (is_batch)
                                expect_said(
                                        tutti_strategy_batch_reduce_to(s, op, both, 2, options), TUTTI_OK);
                        for (uint32_t k = 0; k < 2 && !is_batch; k++)
                                expect_said(tutti_strategy_reduce_to(s, op, &both[k], options), TUTTI_OK);
                        for (uint32_t i = 0; i < n_local; i++) {
                                ck_assert_float_eq(out[0][i], d * (d - 1) / 2 * scale);
                                ck_assert_float_eq(out[1][i], d * (d + 1) / 2 * scale);
                        }
                }
}

static void be_a_worker(struct replica *me) {
        static const char *const algorithms[] = { NULL, "one_device", "hierarchical_copy" };
        static const uint64_t packs[] = { 0, 1, 4 };
        for (uint32_t n_local = 1; n_local <= 2; n_local++) {
                struct tutti_strategy *s = strategy_with(me, n_local == 1 ? "one" : "two", n_local, NULL);
                for (size_t i = 0; i < 9; i++)
                        reduce_ramps(s, &TUTTI_OPTIONS(.algorithm = algorithms[i / 3],
                                                .bytes_per_pack = packs[i % 3]));
                tutti_strategy_close(s);
        }
}

START_TEST(TB16_three_workers_through_the_strategy_in_packs_of_0_1_and_4_bytes) {
        board_init();
        struct host *h = host_start((const char *[]){ "--set", "cpu.devices=3", NULL });
        run_replicas(h, 3, be_a_worker, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("strategy-scopes", 120, variables_know_their_strategy_and_each_context_its_calls,
        shards_hold_each_row_once, arguments_of_older_programs_are_taken_and_others_refused,
        TA8_what_can_be_asked_of_replicas_and_variables, what_is_restored_and_no_sum_is_in_every_component,
        an_update_goes_in_order_and_ends_where_it_fails, options_of_a_strategy_hold_where_a_call_says_nothing,
        TB16_three_workers_through_the_strategy_in_packs_of_0_1_and_4_bytes)
