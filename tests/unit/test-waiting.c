/* How long a thread yields before it sleeps, with made-up times. */
#include "base/clock.h"
#include "lib/waiting.h"
#include "unit.h"

#define US 1000ull

/* Any time that is not the beginning of all. */
#define T0 (1000 * NS_PER_S)

static const struct waiting usual = { .budget_ns = WAITING_BUDGET_NS };

/* How long a wait goes on in yields that take `yield_ns` each; 10 s are for ever. */
static uint64_t patience_ns(uint64_t yield_ns) {
        struct patience_left p;
        uint64_t now_ns = T0;
        patience_begin(&p, &usual, now_ns);
        do
                now_ns += yield_ns;
        while (patience_goes_on(&p, now_ns) && now_ns < T0 + 10 * NS_PER_S);
        return now_ns - T0;
}

static struct waiting fresh(void) {
        struct waiting w;
        waiting_init(&w, WAITING_BUDGET_NS);
        return w;
}

/* A wait of `wait_ns` alone on its core; in its last yield somebody else had the core for `late_ns` longer.
 */
static void notice(struct waiting *w, uint64_t now_ns, uint64_t wait_ns, uint64_t late_ns) {
        struct patience_left p;
        uint64_t done_ns = now_ns - late_ns;
        patience_begin(&p, &usual, done_ns - wait_ns);
        for (uint64_t t = done_ns - wait_ns + US; t < done_ns; t += US)
                ck_assert(patience_goes_on(&p, t));
        (void)patience_goes_on(&p, now_ns);
        waiting_learn_noticed(w, &p, done_ns, now_ns);
}

/* Late ones until nobody yields any more; how many it took, at most `most`. */
static uint32_t empty_the_bank(struct waiting *w, uint64_t now_ns, uint64_t late_ns, uint32_t most) {
        uint32_t n = 0;
        while (n < most && waiting_may_yield(w, now_ns)) {
                notice(w, now_ns, 10 * US, late_ns);
                n++;
        }
        return n;
}

/* How long nobody yields from now_ns on, by steps of 100 us. */
static uint64_t off_time_ns(const struct waiting *w, uint64_t now_ns) {
        uint64_t t = now_ns;
        while (!waiting_may_yield(w, t) && t < now_ns + 100 * NS_PER_S)
                t += 100 * US;
        return t - now_ns;
}

START_TEST(P22_a_wait_alone_on_its_core_is_bounded) {
        uint64_t most_ns = patience_ns(US);
        ck_assert_uint_ge(most_ns, 20 * US); /* worth it: a sleep and a wake cost about that */
        ck_assert_uint_le(most_ns, NS_PER_MS);
        /* Whatever one yield costs, the budget is one of time and not of yields. */
        ck_assert_uint_le(patience_ns(US / 4), most_ns + US);
        ck_assert_uint_ge(patience_ns(US / 4), most_ns - US);
}
END_TEST

START_TEST(yields_in_which_others_ran_count_for_little) {
        uint64_t own_ns = patience_ns(US), others_ns = patience_ns(100 * US);
        ck_assert_uint_ge(others_ns, 5 * own_ns);
}
END_TEST

START_TEST(P22_but_there_is_an_end_by_the_clock_on_the_wall) {
        for (uint64_t yield_ns = US; yield_ns <= 4 * NS_PER_MS; yield_ns *= 2)
                ck_assert_uint_le(patience_ns(yield_ns), 20 * NS_PER_MS);
        struct patience_left p;
        patience_begin(&p, &usual, T0);
        ck_assert(!patience_goes_on(&p, T0 + NS_PER_S)); /* one yield that took a second */
}
END_TEST

START_TEST(a_new_connection_yields) {
        struct waiting w = fresh();
        ck_assert(waiting_may_yield(&w, T0));
        ck_assert(waiting_may_yield(&w, 1)); /* and at the beginning of the clock */
}
END_TEST

START_TEST(slept_waits_turn_yielding_off_and_short_ones_on_again) {
        struct waiting w = fresh();
        uint32_t n_off = 0, n_on = 0;
        while (n_off < 1000 && waiting_may_yield(&w, T0)) {
                waiting_learn(&w, 50 * NS_PER_MS);
                n_off++;
        }
        ck_assert_uint_ge(n_off, 1);
        ck_assert_uint_le(n_off, 20);
        while (n_on < 1000 && !waiting_may_yield(&w, T0)) {
                waiting_learn(&w, 2 * US);
                n_on++;
        }
        ck_assert_uint_ge(n_on, 2); /* one short wait among long ones says nothing */
        ck_assert_uint_le(n_on, 200);
}
END_TEST

START_TEST(one_long_wait_among_short_ones_does_not_turn_it_off) {
        struct waiting w = fresh();
        for (int i = 0; i < 100; i++)
                waiting_learn(&w, 5 * US);
        waiting_learn(&w, 500 * US);
        ck_assert(waiting_may_yield(&w, T0));
        for (int i = 0; i < 100; i++)
                waiting_learn(&w, 5 * US);
        ck_assert(waiting_may_yield(&w, T0));
}
END_TEST

/* A wait of an hour (somebody writes a checkpoint) is not what waits are like for the next hour. */
START_TEST(an_endless_wait_is_forgotten_like_others) {
        struct waiting w = fresh();
        uint32_t n = 0;
        waiting_learn(&w, 3600 * NS_PER_S);
        while (n < 10000 && !waiting_may_yield(&w, T0)) {
                waiting_learn(&w, 5 * US);
                n++;
        }
        ck_assert_uint_le(n, 200);
        waiting_learn(&w, UINT64_MAX);
        for (n = 0; n < 10000 && !waiting_may_yield(&w, T0); n++)
                waiting_learn(&w, 5 * US);
        ck_assert_uint_le(n, 1000);
}
END_TEST

START_TEST(results_noticed_late_turn_yielding_off_for_a_while) {
        struct waiting w = fresh();
        uint32_t n = empty_the_bank(&w, T0, 2 * NS_PER_MS, 1000);
        ck_assert_uint_ge(n, 1);
        ck_assert_uint_lt(n, 100);
        uint64_t off_ns = off_time_ns(&w, T0);
        ck_assert_uint_ge(off_ns, NS_PER_MS);
        ck_assert_uint_le(off_ns, 10 * NS_PER_S);
        ck_assert(!waiting_may_yield(&w, T0 + off_ns - 100 * US));
        ck_assert(waiting_may_yield(&w, T0 + off_ns + 100 * US));
}
END_TEST

START_TEST(good_waits_are_a_bank_against_late_ones) {
        struct waiting poor = fresh(), rich = fresh();
        uint64_t t = T0;
        /* Both are where late ones have brought them once. */
        empty_the_bank(&poor, t, 2 * NS_PER_MS, 1000);
        empty_the_bank(&rich, t, 2 * NS_PER_MS, 1000);
        t += 100 * NS_PER_S;
        for (int i = 0; i < 2000; i++)
                notice(&rich, t + (uint64_t)i * 20 * US, 5 * US, US / 2);
        t += NS_PER_S;
        uint32_t n_poor = empty_the_bank(&poor, t, NS_PER_MS, 10000);
        uint32_t n_rich = empty_the_bank(&rich, t, NS_PER_MS, 10000);
        ck_assert_uint_gt(n_rich, n_poor);
        ck_assert_uint_lt(n_rich, 1000); /* no bank stands for ever */
}
END_TEST

START_TEST(off_times_double_up_to_a_limit) {
        struct waiting w = fresh();
        uint64_t t = T0, before_ns = 0, off_ns = 0;
        uint32_t n_doubled = 0;
        for (int i = 0; i < 30; i++) {
                empty_the_bank(&w, t, 2 * NS_PER_MS, 1000);
                ck_assert(!waiting_may_yield(&w, t));
                off_ns = off_time_ns(&w, t);
                ck_assert_uint_ge(off_ns, before_ns - 200 * US * (before_ns > 0));
                ck_assert_uint_le(off_ns, before_ns ? 2 * before_ns + 200 * US : off_ns);
                n_doubled += before_ns && off_ns + 200 * US >= 2 * before_ns;
                before_ns = off_ns;
                t += off_ns + 100 * US;
        }
        ck_assert_uint_ge(n_doubled, 2);
        ck_assert_uint_le(off_ns, 60 * NS_PER_S); /* not for good */
}
END_TEST

START_TEST(P22_the_budget_is_the_users_to_say) {
        struct waiting w;
        struct patience_left p;
        waiting_init(&w, 0);
        ck_assert(!waiting_may_yield(&w, T0));
        waiting_init(&w, 50 * US);
        ck_assert(waiting_may_yield(&w, T0));
        uint64_t now_ns = T0;
        patience_begin(&p, &w, T0);
        while (patience_goes_on(&p, now_ns))
                now_ns += US;
        ck_assert_uint_ge(now_ns - T0, 50 * US);
        ck_assert_uint_le(now_ns - T0, 52 * US);
        for (int i = 0; i < 100; i++) /* longer than that: in vain */
                waiting_learn(&w, 100 * US);
        ck_assert(!waiting_may_yield(&w, T0));
}
END_TEST

START_TEST(a_clock_that_reads_backwards_does_no_harm) {
        struct waiting w = fresh();
        struct patience_left p;
        patience_begin(&p, &usual, T0);
        /* done_ns is tuttid's, and may be any number where the page lies. */
        waiting_learn_noticed(&w, &p, T0 + NS_PER_S, T0 + US);
        ck_assert(waiting_may_yield(&w, T0 + US));
        waiting_learn_noticed(&w, &p, T0 - NS_PER_S, T0 + US); /* done before the wait began */
        ck_assert(waiting_may_yield(&w, T0 + 200 * NS_PER_S));
        waiting_learn_noticed(&w, &p, 0, T0 + US);
        ck_assert(waiting_may_yield(&w, T0 + 200 * NS_PER_S));
}
END_TEST

UNIT_MAIN("waiting", 20, P22_a_wait_alone_on_its_core_is_bounded, yields_in_which_others_ran_count_for_little,
        P22_but_there_is_an_end_by_the_clock_on_the_wall, a_new_connection_yields,
        slept_waits_turn_yielding_off_and_short_ones_on_again,
        one_long_wait_among_short_ones_does_not_turn_it_off, an_endless_wait_is_forgotten_like_others,
        results_noticed_late_turn_yielding_off_for_a_while, good_waits_are_a_bank_against_late_ones,
        off_times_double_up_to_a_limit, P22_the_budget_is_the_users_to_say,
        a_clock_that_reads_backwards_does_no_harm)
