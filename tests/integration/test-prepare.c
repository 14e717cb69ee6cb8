/* Collectives that are prepared by their callers (tutti_prepare_...): right each time, met by plain calls,
 * and nothing of them is left. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "meeting.h"
#include "replica.h"
#include "unit.h"

#define N_FLOATS  256
#define N_ENTRIES 300

/* --- every kind --- */

struct kinds {
        struct tutti_group *g;
        struct floats in, out;
        struct tutti_prepared *all, *one, *wide, *batch;
};

static void prepare_batch(struct kinds *k) {
        static struct tutti_value values[N_ENTRIES];
        static struct tutti_entry entries[N_ENTRIES];
        for (uint32_t i = 0; i < N_ENTRIES; i++) {
                values[i] = floats_part(&k->in, i % N_FLOATS, 1);
                entries[i] = TUTTI_ENTRY(.input = &values[i], .output = &values[i]);
        }
        expect_status(
                tutti_prepare_batch_reduce(k->g, TUTTI_SUM, entries, N_FLOATS, NULL, &k->batch), TUTTI_OK);
        memset(values, 0xff, sizeof(values));
        memset(entries, 0xff, sizeof(entries));
}

/* What described them is gone afterwards. */
static void prepare_all(struct kinds *k) {
        struct tutti_value input = floats_part(&k->in, 0, N_FLOATS),
                           output = floats_part(&k->out, 0, N_FLOATS);
        struct tutti_destinations to_one = { .where = TUTTI_TO_RANK, .rank = 1 };
        struct tutti_options mean = TUTTI_OPTIONS(.has_weight = 1, .weight = 2);
        expect_status(tutti_prepare_all_reduce(k->g, TUTTI_MEAN, &input, &output, &mean, &k->all), TUTTI_OK);
        expect_status(
                tutti_prepare_reduce(k->g, TUTTI_MAX, &input, &output, &to_one, NULL, &k->one), TUTTI_OK);
        expect_status(tutti_prepare_broadcast(k->g, 1, &input, NULL, &k->wide), TUTTI_OK);
        prepare_batch(k);
        memset(&input, 0xff, sizeof(input));
        memset(&output, 0xff, sizeof(output));
        memset(&to_one, 0xff, sizeof(to_one));
        memset(&mean, 0xff, sizeof(mean));
}

static void run_all(struct replica *me, struct kinds *k, const char *key, float step) {
        float mine = (float)me->rank + step;
        floats_fill(&k->in, mine);
        floats_fill(&k->out, -1);
        expect_status(tutti_prepared_run(k->all, key), TUTTI_OK);
        floats_expect(&k->out, floats_sum_of_ranks(me->n, step) / (float)me->n);
        floats_fill(&k->out, -1);
        expect_status(tutti_prepared_run(k->one, key), TUTTI_OK);
        floats_expect(&k->out, me->rank == 1 ? (float)(me->n - 1) + step : -1);
        expect_status(tutti_prepared_run(k->batch, key), TUTTI_OK);
        floats_expect(&k->in, floats_sum_of_ranks(me->n, step));
        floats_fill(&k->in, mine);
        expect_status(tutti_prepared_run(k->wide, key), TUTTI_OK);
        floats_expect(&k->in, 1 + step);
}

static void step_by_step(struct replica *me) {
        struct kinds k = { .g = replica_join_group(me, &TUTTI_JOIN(.group = "train")) };
        floats_init(me->t, &k.in, N_FLOATS);
        floats_init(me->t, &k.out, N_FLOATS);
        prepare_all(&k);
        for (int step = 0; step < 300; step++)
                run_all(me, &k, step % 2 ? "step" : NULL, (float)step);
        replica_say(me, "done");
        replica_hear(me, "end");
}

START_TEST(P10_what_is_prepared_is_right_each_time) {
        struct host *h = host_start(NULL);
        struct host_counters c;
        struct replica *r[3];
        replicas_spawn(h, 3, step_by_step, NULL, r);
        replicas_expect(r, 3, "done", 60);
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_collectives, 4 * 300);
        ck_assert_uint_eq(c.n_started, 3 * 4 * (300 - 2)); /* each is seen, and kept, first */
        printf("# %llu of %d ran on the lane\n", (unsigned long long)c.n_on_lane, 4 * 300);
        replicas_tell(r, 3, "end");
        replicas_end(h, r, 3);
}
END_TEST

/* One prepares, the other calls plainly; then the other way round; and one brings something else. */
static void meet_plainly(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_prepared *p;
        struct floats f;
        floats_init(me->t, &f, N_FLOATS);
        expect_status(tutti_prepare_all_reduce(g, TUTTI_SUM, &f.value, &f.value, NULL, &p), TUTTI_OK);
        for (uint32_t step = 0; step < 100; step++) {
                floats_fill(&f, (float)(me->rank + step));
                enum tutti_status wanted = step % 10 == 9 ? TUTTI_MISMATCH : TUTTI_OK;
                if (me->rank == step / 50)
                        expect_status(tutti_prepared_run(p, NULL), wanted);
                else
                        expect_status(tutti_all_reduce(g, NULL, wanted == TUTTI_OK ? TUTTI_SUM : TUTTI_MAX,
                                              &f.value, &f.value),
                                wanted);
                floats_expect(&f, wanted == TUTTI_OK ? floats_sum_of_ranks(me->n, (float)step)
                                                     : (float)(me->rank + step));
        }
}

START_TEST(B1_what_is_prepared_meets_plain_calls_and_is_compared) {
        replicas_run(2, meet_plainly);
}
END_TEST

/* --- started, and by several threads --- */

static void start_many(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats f[4];
        struct tutti_prepared *p[4];
        struct tutti_work *w[4];
        for (int i = 0; i < 4; i++) {
                floats_init(me->t, &f[i], N_FLOATS);
                expect_status(tutti_prepare_all_reduce(g, TUTTI_SUM, &f[i].value, &f[i].value, NULL, &p[i]),
                        TUTTI_OK);
        }
        for (int step = 0; step < 50; step++) {
                for (int i = 0; i < 4; i++) {
                        int which = me->rank ? 3 - i : i; /* in any order */
                        char key[16];
                        snprintf(key, sizeof(key), "part-%d", which);
                        floats_fill(&f[which], (float)(me->rank + (uint32_t)(step + which)));
                        expect_status(tutti_prepared_start(p[which], key, &w[which]), TUTTI_OK);
                }
                for (int i = 0; i < 4; i++) {
                        expect_work(w[i], TUTTI_OK);
                        tutti_work_free(w[i]);
                        floats_expect(&f[i], floats_sum_of_ranks(me->n, (float)(step + i)));
                }
        }
        for (int i = 0; i < 4; i++)
                tutti_prepared_free(p[i]);
}

START_TEST(P2_what_is_prepared_is_started_in_any_order) {
        replicas_run(2, start_many);
}
END_TEST

struct runner {
        struct tutti_prepared *p;
        const char *key;
        uint32_t n_right;
};

static void *run_often(void *arg) {
        struct runner *r = arg;
        for (int i = 0; i < 200; i++)
                r->n_right += tutti_prepared_run(r->p, r->key) == TUTTI_OK;
        return NULL;
}

/* MAX in place over what is the same everywhere: both may run at once. */
static void run_in_threads(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct floats in, out[2];
        struct runner r[2] = { { .key = "a" }, { .key = "b" } };
        pthread_t threads[2];
        floats_init(me->t, &in, N_FLOATS);
        floats_fill(&in, (float)me->rank);
        for (int i = 0; i < 2; i++) {
                floats_init(me->t, &out[i], N_FLOATS);
                expect_status(tutti_prepare_all_reduce(g, TUTTI_MAX, &in.value, &out[i].value, NULL, &r[i].p),
                        TUTTI_OK);
                ck_assert_int_eq(pthread_create(&threads[i], NULL, run_often, &r[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
                ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
                ck_assert_uint_eq(r[i].n_right, 200);
                floats_expect(&out[i], 1);
        }
}

START_TEST(threads_run_what_is_prepared) {
        replicas_run(2, run_in_threads);
}
END_TEST

/* --- what cannot be prepared --- */

static void expect_refusal(enum tutti_status got, enum tutti_status wanted, const char *word) {
        const struct tutti_error_info *e = expect_error(got);
        ck_assert_int_eq(e->status, wanted);
        ck_assert_msg(strstr(tutti_error(), word) != NULL, "\"%s\" is not in: %s", word, tutti_error());
}

static void ask_too_much(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_prepared *p = NULL;
        struct floats f;
        float plain[4] = { 1, 2, 3, 4 };
        int64_t which[1] = { 0 };
        floats_init(me->t, &f, N_FLOATS);
        const struct tutti_options checked = TUTTI_OPTIONS(.check_inputs = 1);
        const struct tutti_value beyond = floats_part(&f, 1, N_FLOATS),
                                 outside = TUTTI_VALUE(.memory = plain, .dtype = TUTTI_F32, .n_dims = 1,
                                         .shape = { 4 }),
                                 indices = TUTTI_VALUE(.memory = which, .dtype = TUTTI_I64, .n_dims = 1,
                                         .shape = { 1 });
        struct tutti_value rows = floats_part(&f, 0, 1);
        rows.indices = &indices;
        rows.dense_rows = 9;
        for (int i = 0; i < 3; i++) {
                expect_refusal(tutti_prepare_all_reduce(g, TUTTI_SUM, &beyond, &beyond, NULL, &p),
                        TUTTI_INVALID, "does not fit");
                expect_refusal(tutti_prepare_all_reduce(g, TUTTI_SUM, &outside, &f.value, NULL, &p),
                        TUTTI_INVALID, "");
                expect_refusal(
                        tutti_prepare_broadcast(g, 0, &outside, NULL, &p), TUTTI_UNSUPPORTED, "plain memory");
                expect_refusal(tutti_prepare_all_reduce(g, TUTTI_SUM, &f.value, &f.value, &checked, &p),
                        TUTTI_UNSUPPORTED, "check_inputs");
                expect_refusal(tutti_prepare_all_reduce(g, TUTTI_SUM, &rows, &rows, NULL, &p),
                        TUTTI_UNSUPPORTED, "");
        }
        expect_refusal(tutti_prepare_broadcast(NULL, 0, &f.value, NULL, &p), TUTTI_INVALID, "group");
        expect_refusal(tutti_prepare_broadcast(g, 0, &f.value, NULL, NULL), TUTTI_INVALID, "place");
        expect_refusal(tutti_prepared_run(NULL, NULL), TUTTI_INVALID, "no prepared");
        ck_assert_ptr_null(p);
        tutti_prepared_free(p);
}

START_TEST(B1_what_cannot_be_prepared_is_said_at_once) {
        replicas_run(1, ask_too_much);
}
END_TEST

/* One asks for what is refused; both go on by number. */
static void refuse_and_meet(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_prepared *p;
        struct floats f;
        floats_init(me->t, &f, N_FLOATS);
        const struct tutti_value beyond = floats_part(&f, 1, N_FLOATS);
        for (uint32_t step = 0; step < 10; step++) {
                if (me->rank == step % 2)
                        expect_status(tutti_prepare_all_reduce(g, TUTTI_SUM, &beyond, &beyond, NULL, &p),
                                TUTTI_INVALID);
                floats_meet(g, NULL, &f, (float)(me->rank + step), floats_sum_of_ranks(me->n, (float)step));
        }
}

START_TEST(G2_preparing_takes_no_key) {
        replicas_run(2, refuse_and_meet);
}
END_TEST

/* --- what it holds --- */

static void free_what_is_held(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_prepared *p, *q;
        struct floats f;
        floats_init(me->t, &f, 8 << 20); /* more than is kept for the next buffer */
        const struct tutti_value half = floats_part(&f, 0, 2 << 20);
        expect_status(tutti_prepare_all_reduce(g, TUTTI_SUM, &half, &half, NULL, &p), TUTTI_OK);
        expect_status(tutti_prepare_all_reduce(g, TUTTI_SUM, &half, &half, NULL, &q), TUTTI_OK);
        float *data = f.data;
        floats_deinit(&f); /* its memory stays */
        for (uint32_t step = 0; step < 20; step++) {
                data[7] = (float)(me->rank + step);
                expect_status(tutti_prepared_run(step % 2 ? p : q, NULL), TUTTI_OK);
                ck_assert(data[7] == floats_sum_of_ranks(me->n, (float)step));
        }
        replica_say(me, "held");
        replica_hear(me, "free");
        tutti_prepared_free(p);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        tutti_group_free(g); /* q goes with it */
        replica_say(me, "freed");
        replica_hear(me, "end");
}

START_TEST(a_buffer_that_is_freed_goes_with_what_is_prepared) {
        struct host *h = host_start(NULL);
        struct host_counters c;
        struct replica *r[2];
        replicas_spawn(h, 2, free_what_is_held, NULL, r);
        replicas_expect(r, 2, "held", 30);
        host_counters(h, &c);
        ck_assert_uint_eq(c.n_buffers, 2);
        replicas_tell(r, 2, "free");
        replicas_expect(r, 2, "freed", 30);
        for (int i = 0; i < 100 && c.n_buffers > 0; i++) {
                seconds_sleep(0.05);
                host_counters(h, &c);
        }
        ck_assert_uint_eq(c.n_buffers, 0);
        ck_assert_uint_eq(c.n_prepared, 0);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

/* Into slots, as the plain call; an object that is freed is gone for it too. */
static void run_into_slots(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_object *o;
        struct tutti_prepared *p;
        struct floats f;
        floats_init(me->t, &f, N_FLOATS);
        expect_status(
                tutti_object_make(g, &TUTTI_OBJECT(.name = "sum", .n_bytes = N_FLOATS * sizeof(float)), &o),
                TUTTI_OK);
        struct tutti_value output =
                TUTTI_VALUE(.object = o, .dtype = TUTTI_F32, .n_dims = 1, .shape = { N_FLOATS });
        expect_status(tutti_prepare_all_reduce(g, TUTTI_SUM, &f.value, &output, NULL, &p), TUTTI_OK);
        uint32_t last = 2;
        for (uint32_t step = 0; step < 300; step++) {
                floats_fill(&f, (float)(me->rank + step));
                if (step % 3) /* a plain call that comes again beside it */
                        expect_status(tutti_prepared_run(p, NULL), TUTTI_OK);
                else
                        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, &f.value, &output), TUTTI_OK);
                uint32_t slot = tutti_last_result()->slot;
                const float *sum = tutti_object_data(o, slot);
                ck_assert_uint_ne(slot, last);
                for (size_t i = 0; i < N_FLOATS; i++)
                        ck_assert(sum[i] == floats_sum_of_ranks(me->n, (float)step));
                if (last < 2)
                        expect_status(tutti_object_release(o, last), TUTTI_OK);
                last = slot;
        }
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        tutti_object_free(o);
        const struct tutti_error_info *e = expect_error(tutti_prepared_run(p, "gone"));
        ck_assert(e->status != TUTTI_OK);
        floats_meet(g, NULL, &f, (float)me->rank, floats_sum_of_ranks(me->n, 0));
        tutti_prepared_free(p);
}

START_TEST(what_is_prepared_goes_into_slots) {
        replicas_run(2, run_into_slots);
}
END_TEST

/* tuttid is killed between the runs, and while one goes on: what is prepared is submitted to the next one. */
static void outlive_tuttid(struct replica *me) {
        struct floats f;
        struct tutti_prepared *p;
        struct tutti_work *w = NULL;
        replica_open_again(me, 20);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &f, N_FLOATS);
        expect_status(tutti_prepare_all_reduce(g, TUTTI_SUM, &f.value, &f.value, NULL, &p), TUTTI_OK);
        for (uint32_t round = 0; round < 2; round++) {
                for (uint32_t step = 0; step < 50; step++) {
                        floats_fill(&f, (float)(me->rank + step));
                        expect_status(tutti_prepared_run(p, NULL), TUTTI_OK);
                        floats_expect(&f, floats_sum_of_ranks(me->n, (float)step));
                }
                if (round == 1)
                        break;
                floats_fill(&f, (float)(me->rank + 7));
                if (me->rank == 0)
                        expect_status(tutti_prepared_start(p, NULL, &w), TUTTI_OK);
                replica_say(me, "met");
                replica_hear(me, "go on");
                if (me->rank != 0)
                        expect_status(tutti_prepared_start(p, NULL, &w), TUTTI_OK);
                expect_work(w, TUTTI_OK);
                tutti_work_free(w);
                floats_expect(&f, floats_sum_of_ranks(me->n, 7));
        }
        replica_say(me, "over");
        replica_hear(me, "end");
}

START_TEST(P9_what_is_prepared_goes_on_with_the_next_tuttid) {
        struct host *h = host_start(NULL);
        struct replica *r[2];
        replicas_spawn(h, 2, outlive_tuttid, NULL, r);
        replicas_expect(r, 2, "met", 30);
        host_kill9(h);
        host_start_again(h);
        replicas_tell(r, 2, "go on");
        replicas_expect(r, 2, "over", 30);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

/* After leaving it ends as every call does. */
static void run_after_leaving(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_prepared *p;
        struct floats f;
        floats_init(me->t, &f, N_FLOATS);
        expect_status(tutti_prepare_all_reduce(g, TUTTI_SUM, &f.value, &f.value, NULL, &p), TUTTI_OK);
        expect_status(tutti_prepared_run(p, NULL), TUTTI_OK);
        expect_status(tutti_leave(g), TUTTI_OK);
        expect_status(tutti_prepared_run(p, NULL), TUTTI_LEFT);
        struct tutti_prepared *late;
        expect_status(tutti_prepare_all_reduce(g, TUTTI_SUM, &f.value, &f.value, NULL, &late), TUTTI_LEFT);
}

START_TEST(after_leaving_nothing_is_run) {
        replicas_run(2, run_after_leaving);
}
END_TEST

UNIT_MAIN("prepare", 60, P10_what_is_prepared_is_right_each_time,
        B1_what_is_prepared_meets_plain_calls_and_is_compared, P2_what_is_prepared_is_started_in_any_order,
        threads_run_what_is_prepared, B1_what_cannot_be_prepared_is_said_at_once, G2_preparing_takes_no_key,
        a_buffer_that_is_freed_goes_with_what_is_prepared, what_is_prepared_goes_into_slots,
        P9_what_is_prepared_goes_on_with_the_next_tuttid, after_leaving_nothing_is_run)
