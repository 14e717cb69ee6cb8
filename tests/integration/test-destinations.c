/* Destinations that are devices, also one without a replica, and "where the value lives" (P4 P14 P15). */
#include <string.h>
#include <tutti/admin.h>
#include "objects.h"

#define N 3000

/* Its destinations are the matter. */
static void expect_to(struct tutti_group *g, const struct tutti_value *input,
        const struct tutti_value *output, struct tutti_destinations to) {
        expect_status(tutti_reduce(g, NULL, TUTTI_SUM, input, output, &to), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_DESTINATIONS);
}

/* --- devices --- */

static struct tutti_destinations to_device(const char *name) {
        return (struct tutti_destinations){ .where = TUTTI_TO_DEVICE, .device = name };
}

static struct tutti_object *object_make_on(struct tutti_group *g, const char *name, const char *device) {
        struct tutti_object *o = NULL;
        expect_status(
                tutti_object_make(
                        g, &TUTTI_OBJECT(.name = name, .n_bytes = N * sizeof(float), .device = device), &o),
                TUTTI_OK);
        return o;
}

/* How many tasks that device has run. */
static uint64_t count_tasks(struct tutti *t, const char *device) {
        struct tutti_answer *a = NULL;
        uint64_t n = UINT64_MAX;
        expect_status(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++)
                if (a->rows[i].type == TUTTI_ROW_DEVICE && strcmp(a->rows[i].device.name, device) == 0)
                        n = a->rows[i].device.n_tasks;
        tutti_answer_free(a);
        return n;
}

static void meet_on_device(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct tutti_object *o = object_make_on(g, "there", "CPU:1");
        const struct tutti_destinations there = to_device("CPU:1"), all = { .where = TUTTI_TO_ALL };
        const struct tutti_value output = value_in(o, 0, N);
        const struct tutti_entry entry =
                TUTTI_ENTRY(.input = &f.value, .output = &output, .destinations = there);
        floats_init(me->t, &f, N);
        floats_fill(&f, (float)me->rank + 1);
        for (int i = 0; i < 10; i++) {
                expect_status(tutti_reduce(g, NULL, TUTTI_MEAN, &f.value, &output, &there), TUTTI_OK);
                expect_slot(o, tutti_last_result()->slot, 0, N, 1.5f);
                expect_status(tutti_object_release(o, tutti_last_result()->slot), TUTTI_OK);
        }
        expect_status(tutti_batch_reduce(g, NULL, TUTTI_SUM, &entry, 1), TUTTI_OK);
        expect_slot(o, tutti_last_result()->slot, 0, N, 3);
        expect_status(tutti_object_release(o, tutti_last_result()->slot), TUTTI_OK);
        expect_status(
                tutti_broadcast_into(g, NULL, 1, me->rank ? &f.value : NULL, &output, &there), TUTTI_OK);
        expect_slot(o, tutti_last_result()->slot, 0, N, 2);
        ck_assert_uint_eq(count_tasks(me->t, "CPU:1"), 12);
        ck_assert_uint_eq(count_tasks(me->t, "CPU:0"), 0);
        expect_status(tutti_reduce(g, NULL, TUTTI_SUM, &f.value, &output, me->rank ? &there : &all),
                TUTTI_MISMATCH);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_DESTINATIONS);
        expect_in(tutti_error(), "CPU:1, in result object");
}

static void name_wrong_devices(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct tutti_object *there = object_make_on(g, "there", "CPU:1"), *none = NULL;
        struct tutti_value output = value_in(there, 0, N);
        floats_init(me->t, &f, N);
        expect_to(g, &f.value, &output, to_device("CPU:0"));
        expect_in(tutti_error(), "the destination is CPU:0, and the result object lives on CPU:1");
        expect_to(g, &f.value, &output, to_device("CPU:2"));
        expect_in(tutti_error(), "no device CPU:2; this tuttid has CPU:0 to CPU:1");
        expect_to(g, &f.value, &output, to_device("GPU:0"));
        expect_to(g, &f.value, &output, to_device("the other one"));
        expect_to(g, &f.value, &output, to_device(NULL));
        expect_to(g, &f.value, &f.value, to_device("CPU:1"));
        expect_status(
                tutti_object_make(g, &TUTTI_OBJECT(.name = "x", .n_bytes = 4, .device = "CPU:2"), &none),
                TUTTI_INVALID);
        expect_in(tutti_error(), "this tuttid has CPU:0 to CPU:1");
        ck_assert_uint_eq(count_tasks(me->t, "CPU:1"), 0);
}

static void run_on_two_devices(uint32_t n, void (*body)(struct replica *me)) {
        board_init();
        struct host *h = host_start((const char *[]){ "--set", "cpu.devices=2", NULL });
        run_replicas(h, n, body, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}

START_TEST(P14_a_result_goes_to_a_device_that_has_no_replica) {
        run_on_two_devices(2, meet_on_device);
}
END_TEST

START_TEST(P15_a_device_that_is_not_there_is_refused_and_those_that_are_named) {
        run_on_two_devices(1, name_wrong_devices);
}
END_TEST

/* --- where the value lives --- */

static void meet_in_place(struct replica *me) {
        struct floats f;
        struct array i;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const struct tutti_destinations same = { .where = TUTTI_TO_SAME }, all = { .where = TUTTI_TO_ALL };
        floats_init(me->t, &f, N);
        array_init(me->t, &i, TUTTI_I32, 5);
        floats_fill(&f, (float)me->rank + 1);
        expect_status(tutti_reduce(g, NULL, TUTTI_SUM, &f.value, NULL, &same), TUTTI_OK);
        floats_expect(&f, 6);
        expect_status(tutti_reduce(g, NULL, TUTTI_SUM, &f.value, &f.value, &same), TUTTI_OK);
        floats_expect(&f, 18);
        for (int k = 0; k < 5; k++)
                ((int32_t *)i.data)[k] = k;
        const struct tutti_entry entries[] = {
                TUTTI_ENTRY(.input = &f.value, .destinations = same),
                TUTTI_ENTRY(.input = &i.value, .destinations = same),
        };
        expect_status(tutti_batch_reduce(g, NULL, TUTTI_SUM, entries, 2), TUTTI_OK);
        floats_expect(&f, 54);
        for (int k = 0; k < 5; k++)
                ck_assert_int_eq(((int32_t *)i.data)[k], 3 * k);
        expect_status(tutti_reduce(g, NULL, TUTTI_SUM, &f.value, me->rank ? NULL : &f.value,
                              me->rank ? &same : &all),
                TUTTI_MISMATCH);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_DESTINATIONS);
        floats_expect(&f, 54);
}

START_TEST(P14_the_result_goes_where_the_value_lives) {
        replicas_run(3, meet_in_place);
}
END_TEST

static void take_place_wrongly(struct replica *me) {
        struct floats f, other;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const struct tutti_destinations same = { .where = TUTTI_TO_SAME };
        floats_init(me->t, &f, 4);
        floats_init(me->t, &other, 4);
        expect_to(g, &f.value, &other.value, same);
        floats_expect(&other, 0);
}

START_TEST(P15_where_the_value_lives_is_nowhere_else) {
        replicas_run(1, take_place_wrongly);
}
END_TEST

UNIT_MAIN("destinations", 30, P14_a_result_goes_to_a_device_that_has_no_replica,
        P15_a_device_that_is_not_there_is_refused_and_those_that_are_named,
        P14_the_result_goes_where_the_value_lives, P15_where_the_value_lives_is_nowhere_else)
