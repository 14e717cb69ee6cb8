/* When yielding is given up, and for how long, with made-up times. */
#include "base/clock.h"
#include "base/regret.h"
#include "unit.h"

#define T0      (1000 * NS_PER_S)
#define SLICE   (4 * NS_PER_MS)
#define GOOD_NS (5 * NS_PER_MS / 1000)

static void note(struct regret *r, uint32_t n, uint64_t late_ns, uint64_t now_ns) {
        while (n-- > 0)
                regret_note(r, late_ns, now_ns);
}

static uint32_t late_ones_until_off(struct regret *r, uint64_t now_ns) {
        uint32_t n = 0;
        while (n < 1000 && regret_may_yield(r, now_ns)) {
                regret_note(r, SLICE, now_ns);
                n++;
        }
        return n;
}

START_TEST(a_few_time_slices_are_enough_to_give_it_up) {
        struct regret r;
        regret_init(&r);
        ck_assert(regret_may_yield(&r, 0));
        uint32_t n = late_ones_until_off(&r, T0);
        ck_assert(n >= 2 && n <= 5);
}
END_TEST

START_TEST(what_is_soon_noticed_is_never_regretted) {
        struct regret r;
        regret_init(&r);
        note(&r, 100000, GOOD_NS, T0);
        ck_assert(regret_may_yield(&r, T0));
        note(&r, 100000, NS_PER_MS - 1, T0);
        ck_assert(regret_may_yield(&r, T0));
}
END_TEST

START_TEST(good_ones_pay_for_late_ones_up_to_a_bound) {
        struct regret r;
        regret_init(&r);
        note(&r, 1000000, GOOD_NS, T0);
        uint32_t n = late_ones_until_off(&r, T0);
        ck_assert(n >= 5 && n <= 20);
}
END_TEST

START_TEST(it_is_tried_again_and_later_each_time) {
        struct regret r;
        uint64_t now_ns = T0, last_ns = 0;
        regret_init(&r);
        late_ones_until_off(&r, now_ns);
        for (int i = 0; i < 10; i++) {
                uint64_t off_ns = 0;
                while (!regret_may_yield(&r, now_ns + off_ns))
                        off_ns += NS_PER_MS;
                ck_assert(off_ns >= last_ns && off_ns >= 100 * NS_PER_MS && off_ns <= 500 * NS_PER_MS);
                ck_assert(i != 1 || off_ns > last_ns);
                now_ns += last_ns = off_ns;
                ck_assert_uint_eq(late_ones_until_off(&r, now_ns), 1); /* the bank is empty */
        }
}
END_TEST

START_TEST(who_does_well_again_is_off_for_a_short_time_next) {
        struct regret r;
        regret_init(&r);
        uint64_t now_ns = T0;
        for (int i = 0; i < 5; i++) {
                late_ones_until_off(&r, now_ns);
                now_ns += NS_PER_S;
        }
        note(&r, 1000, GOOD_NS, now_ns);
        late_ones_until_off(&r, now_ns);
        ck_assert(!regret_may_yield(&r, now_ns + 99 * NS_PER_MS));
        ck_assert(regret_may_yield(&r, now_ns + 101 * NS_PER_MS));
}
END_TEST

UNIT_MAIN("regret", 10, a_few_time_slices_are_enough_to_give_it_up, what_is_soon_noticed_is_never_regretted,
        good_ones_pay_for_late_ones_up_to_a_bound, it_is_tried_again_and_later_each_time,
        who_does_well_again_is_off_for_a_short_time_next)
