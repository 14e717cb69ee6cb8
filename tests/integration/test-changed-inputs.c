/* E11: an input that is changed after it was submitted. With check_inputs all members hear of it (INVALID,
 * field data, outputs undefined, whose and which entry); without a change it changes nothing. */
#include <string.h>
#include "meeting.h"
#include "replica.h"
#include "unit.h"

#define N 20011

static struct tutti_group *join(struct replica *me) {
        return replica_join_group(me, &TUTTI_JOIN(.group = "train"));
}

static const struct tutti_options checked = TUTTI_OPTIONS(.check_inputs = 1);

/* A batch of two: the first is everybody's, the second strided and in place. */
struct pair {
        struct floats f[2];
        struct tutti_value strided;
        struct tutti_entry entries[2];
};

static void pair_init(struct tutti *t, struct pair *p) {
        for (int i = 0; i < 2; i++)
                floats_init(t, &p->f[i], N);
        p->strided = p->f[1].value;
        p->strided.has_strides = 1;
        p->strided.shape[0] = N / 3;
        p->strided.strides[0] = 3;
        p->entries[0] = TUTTI_ENTRY(.input = &p->f[0].value, .output = &p->f[0].value);
        p->entries[1] = TUTTI_ENTRY(.input = &p->strided, .output = &p->strided);
}

static struct tutti_work *start(struct tutti_group *g, const struct pair *p) {
        struct tutti_work *w;
        expect_status(tutti_batch_reduce_start(g, "x", TUTTI_SUM, p->entries, 2, &checked, &w), TUTTI_OK);
        return w;
}

static void expect_changed(struct tutti_work *w) {
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_INVALID);
        const struct tutti_error_info *e = tutti_work_error(w);
        ck_assert_int_eq(e->field, TUTTI_FIELD_DATA);
        ck_assert_int_eq(e->rank, 0);
        ck_assert_int_eq(e->entry, 1);
        ck_assert_int_eq(e->outputs_undefined, 1);
        expect_in(e->text, "the input of R0 (entry 1) was changed after it had been submitted");
        expect_in(e->text, "its outputs are undefined");
        tutti_work_free(w);
}

/* Rank 0 changes one element of what it has submitted, then one between them; the others come after that. */
static void change_under_way(struct replica *me) {
        struct pair p;
        struct tutti_group *g = join(me);
        struct tutti_work *w;
        pair_init(me->t, &p);
        for (int round = 0; round < 3; round++) {
                floats_fill(&p.f[0], 1);
                floats_fill(&p.f[1], 2);
                if (me->rank == 0) {
                        w = start(g, &p);
                        p.f[1].data[3 * 1234 + round] = -2; /* in round 0 an element, then gap bytes */
                        expect_status(tutti_barrier(g, "changed"), TUTTI_OK);
                } else {
                        expect_status(tutti_barrier(g, "changed"), TUTTI_OK);
                        w = start(g, &p);
                }
                if (round == 0) {
                        expect_changed(w);
                        continue;
                }
                expect_work(w, TUTTI_OK);
                tutti_work_free(w);
                floats_expect(&p.f[0], 3);
                for (size_t i = 0; i < N / 3; i++)
                        ck_assert_float_eq(p.f[1].data[3 * i], 6);
        }
}

START_TEST(E11_an_input_changed_under_way_ends_it_for_all) {
        struct host *h = host_start((const char *[]){ "--set", "cpu.chunk=4KiB", "--workers", "2", NULL });
        run_replicas(h, 3, change_under_way, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

static void change_what_is_broadcast(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me);
        struct tutti_work *w;
        floats_init(me->t, &f, N);
        if (me->rank == 1)
                expect_status(tutti_barrier(g, "changed"), TUTTI_OK);
        expect_status(tutti_broadcast_start(g, "x", 0, &f.value, &checked, &w), TUTTI_OK);
        if (me->rank == 0) {
                f.data[N - 1] = 1;
                expect_status(tutti_barrier(g, "changed"), TUTTI_OK);
        }
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_INVALID);
        ck_assert_int_eq(tutti_work_error(w)->field, TUTTI_FIELD_DATA);
        ck_assert_int_eq(tutti_work_error(w)->rank, 0);
        tutti_work_free(w);
        floats_meet(g, NULL, &f, 1, 2);
}

START_TEST(E11_of_a_broadcast_the_roots) {
        replicas_run(2, change_what_is_broadcast);
}
END_TEST

/* A contribution of weight 0 is not looked at, and so not missed; the option is compared. */
static void leave_out_and_differ(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join(me);
        struct tutti_work *w;
        floats_init(me->t, &f, N);
        floats_fill(&f, 5);
        const struct tutti_options options =
                TUTTI_OPTIONS(.has_weight = 1, .weight = me->rank, .check_inputs = 1);
        if (me->rank == 1)
                expect_status(tutti_barrier(g, "changed"), TUTTI_OK);
        expect_status(tutti_all_reduce_start(g, "x", TUTTI_MEAN, &f.value, &f.value, &options, &w), TUTTI_OK);
        if (me->rank == 0) {
                f.data[0] = 1;
                expect_status(tutti_barrier(g, "changed"), TUTTI_OK);
        }
        expect_work(w, TUTTI_OK);
        floats_expect(&f, 5);
        tutti_work_free(w);

        expect_status(
                tutti_all_reduce_start(g, "y", TUTTI_SUM, &f.value, &f.value, me->rank ? &checked : NULL, &w),
                TUTTI_OK);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_MISMATCH);
        ck_assert_int_eq(tutti_work_error(w)->field, TUTTI_FIELD_OPTIONS);
        expect_in(tutti_work_error(w)->text, "check_inputs");
        tutti_work_free(w);
}

START_TEST(E11_a_weight_of_0_and_an_option_that_differs) {
        replicas_run(2, leave_out_and_differ);
}
END_TEST

UNIT_MAIN("changed-inputs", 60, E11_an_input_changed_under_way_ends_it_for_all, E11_of_a_broadcast_the_roots,
        E11_a_weight_of_0_and_an_option_that_differs)
