/* Alarms: which is due first. Against a list that is searched from end to end. */
#include "base/heap.h"
#include <errno.h>
#include <stdlib.h>
#include "unit.h"

#define N_ALARMS 200

START_TEST(an_empty_heap_is_never_due) {
        struct heap h;
        heap_init(&h);
        ck_assert_uint_eq(heap_next_ns(&h), ALARM_NEVER);
        ck_assert_ptr_null(heap_take_due(&h, ALARM_NEVER));
        heap_deinit(&h);
}
END_TEST

START_TEST(takes_what_is_due_in_order) {
        struct heap h;
        struct alarm a[3];
        heap_init(&h);
        ck_assert_int_eq(heap_reserve(&h, 3), 0);
        for (int i = 0; i < 3; i++)
                alarm_init(&a[i]);
        heap_set(&h, &a[0], 30);
        heap_set(&h, &a[1], 10);
        heap_set(&h, &a[2], 20);
        ck_assert_uint_eq(heap_next_ns(&h), 10);
        ck_assert_ptr_null(heap_take_due(&h, 9));
        ck_assert_ptr_eq(heap_take_due(&h, 20), &a[1]);
        ck_assert_uint_eq(a[1].at_ns, ALARM_NEVER);
        ck_assert_ptr_eq(heap_take_due(&h, 20), &a[2]);
        ck_assert_ptr_null(heap_take_due(&h, 20));
        ck_assert_uint_eq(heap_next_ns(&h), 30);
        heap_deinit(&h);
}
END_TEST

START_TEST(setting_moves_and_never_clears) {
        struct heap h;
        struct alarm a, b;
        heap_init(&h);
        ck_assert_int_eq(heap_reserve(&h, 2), 0);
        alarm_init(&a);
        alarm_init(&b);
        heap_set(&h, &a, 10);
        heap_set(&h, &b, 20);
        heap_set(&h, &a, 30);
        ck_assert_uint_eq(heap_next_ns(&h), 20);
        heap_set(&h, &b, ALARM_NEVER);
        heap_set(&h, &b, ALARM_NEVER);
        ck_assert_uint_eq(heap_next_ns(&h), 30);
        ck_assert_uint_eq(h.n, 1);
        heap_deinit(&h);
}
END_TEST

START_TEST(room_grows_and_keeps_what_is_set) {
        struct heap h;
        struct alarm a[100];
        heap_init(&h);
        for (size_t i = 0; i < 100; i++) {
                ck_assert_int_eq(heap_reserve(&h, i + 1), 0);
                alarm_init(&a[i]);
                heap_set(&h, &a[i], 1000 - i);
        }
        ck_assert_uint_eq(heap_next_ns(&h), 901);
        ck_assert_int_eq(heap_reserve(&h, SIZE_MAX / 2), -ENOMEM);
        ck_assert_ptr_eq(heap_take_due(&h, 901), &a[99]);
        heap_deinit(&h);
}
END_TEST

/* --- the model: at[i] is when alarm i is due --- */

static uint64_t first_of(const uint64_t *at) {
        uint64_t first = ALARM_NEVER;
        for (int i = 0; i < N_ALARMS; i++)
                first = at[i] < first ? at[i] : first;
        return first;
}

static void take_all_due(struct heap *h, struct alarm *alarms, uint64_t *at, uint64_t now_ns) {
        for (;;) {
                uint64_t first = first_of(at);
                struct alarm *a = heap_take_due(h, now_ns);
                if (first > now_ns) {
                        ck_assert_ptr_null(a);
                        return;
                }
                ck_assert_ptr_nonnull(a);
                ck_assert_uint_eq(at[a - alarms], first);
                at[a - alarms] = ALARM_NEVER;
        }
}

START_TEST(agrees_with_a_list_over_random_calls) {
        struct heap h;
        struct alarm alarms[N_ALARMS];
        uint64_t at[N_ALARMS];
        heap_init(&h);
        ck_assert_int_eq(heap_reserve(&h, N_ALARMS), 0);
        for (int i = 0; i < N_ALARMS; i++) {
                alarm_init(&alarms[i]);
                at[i] = ALARM_NEVER;
        }
        srandom(1);
        for (uint64_t turn = 0; turn < 50000; turn++) {
                long i = random() % N_ALARMS;
                at[i] = random() % 4 ? turn + (uint64_t)(random() % 300) : ALARM_NEVER;
                heap_set(&h, &alarms[i], at[i]);
                ck_assert_uint_eq(heap_next_ns(&h), first_of(at));
                if (random() % 16 == 0)
                        take_all_due(&h, alarms, at, turn);
        }
        take_all_due(&h, alarms, at, ALARM_NEVER - 1);
        ck_assert_uint_eq(h.n, 0);
        heap_deinit(&h);
}
END_TEST

UNIT_MAIN("heap", 20, an_empty_heap_is_never_due, takes_what_is_due_in_order, setting_moves_and_never_clears,
        room_grows_and_keeps_what_is_set, agrees_with_a_list_over_random_calls)
