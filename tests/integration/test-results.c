/* Result objects: one result for all, in memory of tuttid's that everybody reads and nobody else writes (P4
 * P14 P17 P18 P20, A12). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "objects.h"
#include "program.h"

#define N 3000

/* --- results --- */

static void meet_in_turn(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct tutti_object *o = object_make(g, "sums", N);
        ck_assert_uint_eq(tutti_object_slots(o), 2);
        ck_assert_uint_eq(tutti_object_bytes(o), N * sizeof(float));
        ck_assert_ptr_null(tutti_object_data(o, 2));
        floats_init(me->t, &f, N);
        for (uint32_t round = 0; round < 40; round++) {
                floats_fill(&f, (float)(me->rank + round));
                uint32_t slot = sum_into(g, NULL, &f, o);
                ck_assert_uint_eq(slot, round % 2);
                ck_assert_uint_eq((uintptr_t)tutti_object_data(o, slot) % 4096, 0);
                expect_slot(o, slot, 0, N, (float)(3 + 3 * round));
                expect_status(tutti_object_release(o, slot), TUTTI_OK);
        }
        tutti_object_free(o);
}

START_TEST(P14_a_result_is_written_once_and_read_by_all_slots_in_turn) {
        replicas_run(3, meet_in_turn);
}
END_TEST

/* A batch in one slot, and one value of it elsewhere. */
static void meet_in_a_batch(struct replica *me) {
        struct floats a, b, c;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct tutti_object *o = object_make(g, "batch", 1000);
        floats_init(me->t, &a, 100);
        floats_init(me->t, &b, 200);
        floats_init(me->t, &c, 10);
        floats_fill(&a, 1);
        floats_fill(&b, 2);
        floats_fill(&c, 3);
        const struct tutti_value in_a = value_in(o, 0, 100), in_b = value_in(o, 3200, 200);
        const struct tutti_entry entries[] = {
                TUTTI_ENTRY(.input = &a.value, .output = &in_a),
                TUTTI_ENTRY(.input = &c.value, .output = &c.value),
                TUTTI_ENTRY(.input = &b.value, .output = &in_b),
        };
        expect_status(tutti_batch_reduce(g, "batch", TUTTI_SUM, entries, 3), TUTTI_OK);
        uint32_t slot = tutti_last_result()->slot;
        expect_slot(o, slot, 0, 100, 2);
        expect_slot(o, slot, 100, 700, 0);
        expect_slot(o, slot, 800, 200, 4);
        floats_expect(&c, 6);

        struct tutti_value both = in_b;
        both.offset = 396; /* the last element of a's place */
        const struct tutti_entry overlapping[] = {
                TUTTI_ENTRY(.input = &a.value, .output = &in_a),
                TUTTI_ENTRY(.input = &b.value, .output = &both),
        };
        expect_status(tutti_batch_reduce(g, "overlap", TUTTI_SUM, overlapping, 2), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_OVERLAP);
        expect_in(tutti_error(), "result object");
        expect_slot(o, slot, 0, 100, 2);

        expect_status(tutti_object_release(o, slot), TUTTI_OK);
}

START_TEST(P14_a_batch_puts_its_entries_into_one_slot) {
        replicas_run(2, meet_in_a_batch);
}
END_TEST

/* R1's value, in one place for all. */
static void broadcast_into_it(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct tutti_object *o = object_make(g, "weights", N);
        const struct tutti_value output = value_in(o, 0, N);
        const struct tutti_value *input = me->rank == 1 ? &f.value : NULL;
        floats_init(me->t, &f, N);
        for (uint32_t i = 0; i < 4; i++) {
                floats_fill(&f, me->rank == 1 ? (float)i : 99);
                expect_status(tutti_broadcast_into(g, NULL, 1, input, &output, NULL), TUTTI_OK);
                ck_assert_uint_eq(tutti_last_result()->slot, i % 2);
                expect_slot(o, i % 2, 0, N, (float)i);
                expect_status(tutti_object_release(o, i % 2), TUTTI_OK);
                floats_expect(&f, me->rank == 1 ? (float)i : 99);
        }
        /* The root has the value already, but the object is everybody's. */
        expect_status(tutti_broadcast(g, NULL, 1, me->rank == 1 ? &f.value : &output), TUTTI_MISMATCH);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_DESTINATIONS);
        /* Without one: elsewhere than its input, also at the root. */
        struct floats mine;
        floats_init(me->t, &mine, N);
        expect_status(tutti_broadcast_into(g, NULL, 1, input, &mine.value, NULL), TUTTI_OK);
        floats_expect(&mine, 3);
}

START_TEST(P14_a_broadcast_goes_into_one_place_for_all) {
        replicas_run(3, broadcast_into_it);
}
END_TEST

/* --- A12: who does not collect --- */

static void expect_busy(struct tutti_group *g, const char *key, struct floats *f, struct tutti_object *o) {
        const struct tutti_value output = value_in(o, 0, f->n);
        expect_status(tutti_all_reduce(g, key, TUTTI_SUM, &f->value, &output), TUTTI_BUSY);
        const struct tutti_error_info *e = tutti_error_info();
        ck_assert_int_eq(e->field, TUTTI_FIELD_DESTINATIONS);
        ck_assert_uint_eq(e->n_replicas, 1);
        ck_assert_uint_eq(e->replicas[0].rank, 2);
        ck_assert_uint_eq(e->replicas[0].pid, board->pids[2]);
        expect_in(e->text, "\"sums\"");
        expect_in(e->text, "slot 0 is held by R2 for");
        expect_in(e->text, "slot 1 is held by R2 for");
}

/* R2 keeps what it gets. */
static void keep_results(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_SHRINK);
        struct tutti_object *o = object_make(g, "sums", N);
        floats_init(me->t, &f, N);
        floats_fill(&f, 1);
        for (uint32_t i = 0; i < 2; i++) {
                ck_assert_uint_eq(sum_into(g, NULL, &f, o), i);
                if (me->rank != 2)
                        expect_status(tutti_object_release(o, i), TUTTI_OK);
        }
        expect_status(tutti_barrier(g, "released"), TUTTI_OK);
        expect_busy(g, "third", &f, o);
        floats_meet(g, "the group goes on", &f, 1, 3);
        replica_say(me, "busy");
        replica_hear(me, "go on");
        if (me->rank == 2)
                pause(); /* until it is killed */
        floats_fill(&f, 1);
        uint32_t slot = sum_into(g, "fourth", &f, o);
        expect_slot(o, slot, 0, N, 2);
        expect_status(tutti_object_release(o, slot), TUTTI_OK);
}

static void expect_status_page(struct host *h) {
        const char *const argv[] = { program_tuttictl(), "status", "--socket", host_socket(h), NULL };
        const char *const json[] = { program_tuttictl(), "status", "--json", "--socket", host_socket(h),
                NULL };
        struct program p;
        char holder[64];
        program_run(argv, 10, &p);
        ck_assert_int_eq(p.code, 0);
        snprintf(holder, sizeof(holder), "R2 (pid %u, alive) holds 2 results", board->pids[2]);
        expect_in(p.out, holder);
        expect_in(p.out, "oldest");
        expect_in(p.out, "0 of 2");
        program_deinit(&p);
        program_run(json, 10, &p);
        expect_in(p.out, "\"results\"");
        expect_in(p.out, "\"oldest_age_ns\"");
        expect_in(p.out, "\"free_slots\": 0");
        program_deinit(&p);
}

START_TEST(A12_who_does_not_collect_results_is_named_and_its_death_frees_them) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, keep_results, NULL, r);
        replicas_expect(r, 3, "busy", 10);
        expect_status_page(h);
        replicas_tell(r, 3, "go on");
        replica_kill9(r[2]);
        replicas_end(h, r, 2);
}
END_TEST

/* Holding none but the latest is always right; and a work that nobody looked at gives its slot back. */
static void meet_with_discipline(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct tutti_object *o = object_make(g, "sums", 10);
        const struct tutti_value output = value_in(o, 0, 10);
        uint32_t last = 0;
        floats_init(me->t, &f, 10);
        for (uint32_t i = 0; i < 200; i++) {
                floats_fill(&f, (float)i);
                uint32_t slot = sum_into(g, NULL, &f, o);
                if (i > 0) {
                        expect_slot(o, last, 0, 10, (float)(2 * (i - 1)));
                        expect_status(tutti_object_release(o, last), TUTTI_OK);
                }
                last = slot;
        }
        expect_status(tutti_object_release(o, last), TUTTI_OK);
        for (uint32_t i = 0; i < 50; i++) {
                struct tutti_work *w;
                expect_status(
                        tutti_all_reduce_start(g, NULL, TUTTI_SUM, &f.value, &output, NULL, &w), TUTTI_OK);
                tutti_work_free(w);
                expect_status(tutti_barrier(g, NULL), TUTTI_OK); /* its end has been seen by the library */
                expect_status(tutti_barrier(g, NULL), TUTTI_OK); /* ... of the other too, and given back */
        }
        expect_status(tutti_object_release(o, sum_into(g, "end", &f, o)), TUTTI_OK);
}

START_TEST(A12_who_holds_the_latest_alone_never_sees_busy) {
        replicas_run(2, meet_with_discipline);
}
END_TEST

/* Its slot was told, so that it is held beyond the handle. */
static void meet_and_look(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct tutti_object *o = object_make(g, "sums", 10);
        const struct tutti_value output = value_in(o, 0, 10);
        floats_init(me->t, &f, 10);
        for (uint32_t i = 0; i < 10; i++) {
                struct tutti_work *w;
                struct tutti_result result;
                enum tutti_status status;
                floats_fill(&f, (float)i);
                expect_status(
                        tutti_all_reduce_start(g, NULL, TUTTI_SUM, &f.value, &output, NULL, &w), TUTTI_OK);
                while ((status = tutti_work_result(w, &result)) == TUTTI_PENDING)
                        expect_status(tutti_dispatch(me->t), TUTTI_OK);
                expect_status(status, TUTTI_OK);
                tutti_work_free(w);
                expect_status(tutti_barrier(g, NULL), TUTTI_OK);
                expect_slot(o, result.slot, 0, 10, (float)(2 * i));
                expect_status(tutti_object_release(o, result.slot), TUTTI_OK);
        }
}

START_TEST(P17_a_slot_that_was_told_is_not_given_back_with_the_handle) {
        replicas_run(2, meet_and_look);
}
END_TEST

/* --- who holds --- */

static void release_wrongly(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct tutti_object *o = object_make(g, "sums", 10), *again = NULL;
        floats_init(me->t, &f, 10);
        expect_status(tutti_object_release(o, 0), TUTTI_INVALID);
        uint32_t slot = sum_into(g, NULL, &f, o);
        expect_status(tutti_object_release(o, slot + 1), TUTTI_INVALID);
        expect_status(tutti_object_release(o, 77), TUTTI_INVALID);
        expect_status(tutti_object_release(o, slot), TUTTI_OK);
        expect_status(tutti_object_release(o, slot), TUTTI_INVALID);
        expect_in(tutti_error(), "is not held here");
        expect_status(
                tutti_object_make(g, &TUTTI_OBJECT(.name = "sums", .n_bytes = 40), &again), TUTTI_INVALID);
        expect_in(tutti_error(), "attached");
        /* Detached and attached again: what was held is free. */
        for (uint32_t i = 0; i < 6; i++) {
                sum_into(g, NULL, &f, o);
                expect_status(tutti_barrier(g, NULL), TUTTI_OK);
                tutti_object_free(o);
                expect_status(tutti_barrier(g, NULL), TUTTI_OK);
                o = object_make(g, "sums", 10);
        }
}

START_TEST(P17_a_slot_is_released_once_and_by_its_holder) {
        replicas_run(2, release_wrongly);
}
END_TEST

/* R1 leaves with both slots. */
static void leave_with_results(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct tutti_object *o = object_make(g, "sums", 10);
        floats_init(me->t, &f, 10);
        floats_fill(&f, 1);
        for (uint32_t i = 0; i < 2; i++) {
                uint32_t slot = sum_into(g, NULL, &f, o);
                if (me->rank == 0)
                        expect_status(tutti_object_release(o, slot), TUTTI_OK);
        }
        if (me->rank == 1) {
                expect_status(tutti_leave(g), TUTTI_OK);
                expect_slot(o, 0, 0, 10, 2); /* still mapped, though not for long the same */
                replica_say(me, "left");
                replica_hear(me, "end");
                return;
        }
        replica_hear(me, "end");
        expect_slot(o, sum_into(g, NULL, &f, o), 0, 10, 1);
}

START_TEST(P18_leaving_gives_back_what_is_held) {
        struct replica *r[2];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 2, leave_with_results, NULL, r);
        replica_expect(r[1], "left", 10);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

/* --- differences --- */

static const struct tutti_error_info *expect_mismatch(
        struct tutti_group *g, const char *key, struct floats *f, const struct tutti_value *output) {
        expect_status(tutti_all_reduce(g, key, TUTTI_SUM, &f->value, output), TUTTI_MISMATCH);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_DESTINATIONS);
        ck_assert_uint_eq(tutti_error_info()->n_classes, 2);
        return tutti_error_info();
}

static void differ(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct tutti_object *o = object_make(g, "sums", 20), *p = object_make(g, "other", 20), *q = NULL;
        const struct tutti_value begin = value_in(o, 0, 10), later = value_in(o, 40, 10),
                                 elsewhere = value_in(p, 0, 10);
        floats_init(me->t, &f, 10);
        floats_fill(&f, 5);
        expect_mismatch(g, "object", &f, me->rank ? &begin : &elsewhere);
        expect_mismatch(g, "offset", &f, me->rank ? &begin : &later);
        expect_mismatch(g, "buffer", &f, me->rank ? &begin : &f.value);
        expect_in(tutti_error(), "all, in result object");
        floats_expect(&f, 5);
        expect_slot(o, 0, 0, 20, 0);
        expect_slot(p, 0, 0, 20, 0);

        if (me->rank == 0)
                q = object_make(g, "late", 10);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        if (me->rank == 1) {
                const struct tutti_object_args wrong[] = {
                        TUTTI_OBJECT(.name = "late", .n_bytes = 80),
                        TUTTI_OBJECT(.name = "late", .n_bytes = 40, .n_slots = 3),
                };
                for (int i = 0; i < 2; i++) {
                        expect_status(tutti_object_make(g, &wrong[i], &q), TUTTI_MISMATCH);
                        expect_in(tutti_error(), "40 bytes x 2 slots on CPU:0");
                        expect_in(tutti_error(), i ? "40 bytes x 3 slots" : "80 bytes x 2 slots");
                        ck_assert_ptr_null(q);
                }
                q = object_make(g, "late", 10);
        }
        const struct tutti_value in_late = value_in(q, 0, 10);
        expect_status(tutti_all_reduce(g, "late", TUTTI_SUM, &f.value, &in_late), TUTTI_OK);
        expect_slot(q, tutti_last_result()->slot, 0, 10, 10);
}

START_TEST(P4_halves_that_mean_different_results_are_refused) {
        replicas_run(2, differ);
}
END_TEST

static void expect_invalid(struct tutti_group *g, const struct tutti_value *input,
        const struct tutti_value *output, enum tutti_field field) {
        expect_status(tutti_all_reduce(g, NULL, TUTTI_SUM, input, output), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, field);
}

/* Its destinations are the matter. */
static void expect_to(struct tutti_group *g, const struct tutti_value *input,
        const struct tutti_value *output, struct tutti_destinations to) {
        expect_status(tutti_reduce(g, NULL, TUTTI_SUM, input, output, &to), TUTTI_INVALID);
        ck_assert_int_eq(tutti_error_info()->field, TUTTI_FIELD_DESTINATIONS);
}

static void name_wrongly(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        struct tutti_group *h = replica_join_group(me, &TUTTI_JOIN(.group = "second"));
        struct tutti_object *o = object_make(g, "sums", 20), *other = object_make(g, "other", 20),
                            *foreign = object_make(h, "sums", 20), *none = NULL;
        floats_init(me->t, &f, 10);
        struct tutti_value v = value_in(o, 44, 10), w = value_in(other, 0, 10);
        expect_invalid(g, &f.value, &v, TUTTI_FIELD_OFFSET); /* beyond the slot */
        v.offset = 2;
        expect_invalid(g, &f.value, &v, TUTTI_FIELD_OFFSET);
        v = value_in(foreign, 0, 10);
        expect_invalid(g, &f.value, &v, TUTTI_FIELD_BUFFER);
        v = value_in(o, 0, 10);
        v.buffer = f.buffer;
        expect_invalid(g, &f.value, &v, TUTTI_FIELD_BUFFER);
        v = value_in(o, 0, 10);
        expect_invalid(g, &v, &f.value, TUTTI_FIELD_BUFFER);
        const struct tutti_entry two[] = { TUTTI_ENTRY(.input = &f.value, .output = &v),
                TUTTI_ENTRY(.input = &f.value, .output = &w) };
        expect_status(tutti_batch_reduce(g, NULL, TUTTI_SUM, two, 2), TUTTI_INVALID);
        expect_in(tutti_error(), "one result object");
        expect_to(g, &f.value, &v, (struct tutti_destinations){ .where = TUTTI_TO_RANK });
        const struct tutti_object_args wrong[] = {
                TUTTI_OBJECT(.name = "", .n_bytes = 4),
                TUTTI_OBJECT(.n_bytes = 4),
                TUTTI_OBJECT(.name = "a\nb", .n_bytes = 4),
                TUTTI_OBJECT(.name = "none"),
                TUTTI_OBJECT(.name = "none", .n_bytes = 4, .device = "CPU:1"),
                TUTTI_OBJECT(.name = "none", .n_bytes = 4, .device = "GPU:0"),
                { .name = "none" },
        };
        for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
                expect_status(tutti_object_make(g, &wrong[i], &none), TUTTI_INVALID);
        expect_status(tutti_object_make(g, &TUTTI_OBJECT(.name = "none", .n_bytes = 4, .n_slots = 65), &none),
                TUTTI_LIMIT);
        expect_status(tutti_object_make(g, &TUTTI_OBJECT(.name = "none", .n_bytes = (size_t)1 << 47), &none),
                TUTTI_LIMIT);
        expect_status(tutti_object_make(g, &TUTTI_OBJECT(.name = "none", .n_bytes = (size_t)1 << 46), &none),
                TUTTI_QUOTA);
        expect_in(tutti_error(), "result-bytes");
        floats_meet(g, "goes on", &f, 1, 1);
}

START_TEST(P4_a_half_that_names_no_place_of_its_own_is_refused) {
        replicas_run(1, name_wrongly);
}
END_TEST

/* --- nothing is left (P20) --- */

#define DEATHS 500

/* Holds a result, and is killed. */
static void hold_and_die(struct replica *me) {
        struct floats f;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "alone"));
        struct tutti_object *o = object_make(g, "sums", N);
        floats_init(me->t, &f, N);
        sum_into(g, NULL, &f, o);
        raise(SIGKILL);
}

START_TEST(P20_nothing_is_left_after_500_deaths_of_holders) {
        struct host *h = host_start(NULL);
        for (int i = 0; i < DEATHS; i++) {
                struct replica *r = replica_spawn(
                        h, &(struct replica_options){ .rank = 0, .n = 1, .body = hold_and_die });
                ck_assert_int_eq(replica_end(r, 10), 128 + SIGKILL);
        }
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("results", 60, P14_a_result_is_written_once_and_read_by_all_slots_in_turn,
        P14_a_batch_puts_its_entries_into_one_slot, P14_a_broadcast_goes_into_one_place_for_all,
        A12_who_does_not_collect_results_is_named_and_its_death_frees_them,
        A12_who_holds_the_latest_alone_never_sees_busy,
        P17_a_slot_that_was_told_is_not_given_back_with_the_handle,
        P17_a_slot_is_released_once_and_by_its_holder, P18_leaving_gives_back_what_is_held,
        P4_halves_that_mean_different_results_are_refused,
        P4_a_half_that_names_no_place_of_its_own_is_refused, P20_nothing_is_left_after_500_deaths_of_holders)
