#include "base/clock.h"
#include "daemon-pace.h"
#include "meeting.h"
#include "unit.h"

static void compute(uint64_t ns) {
        uint64_t end_ns = clock_thread_cpu_ns() + ns;
        while (clock_thread_cpu_ns() < end_ns)
                ;
}

static uint64_t turn(struct pace *p, void (*work)(void)) {
        uint64_t begun_ns = clock_now_ns();
        pace_begin(p, begun_ns);
        work();
        return pace_end(p, begun_ns, clock_now_ns());
}

static void work_long(void) {
        compute(LONG_TURN_NS + NS_PER_MS);
}

static void work_shortly(void) {
        compute(LONG_TURN_NS / 4);
}

static void wait_long(void) {
        seconds_sleep(3 * LONG_TURN_NS / 1e9);
}

START_TEST(P21_a_turn_is_long_by_what_it_computes) {
        struct pace p = { 0 };
        uint64_t long_ns = turn(&p, work_long);
        ck_assert_uint_ge(long_ns, LONG_TURN_NS);
        ck_assert_uint_eq(turn(&p, wait_long), 0);
        for (int i = 0; i < 20; i++) /* short ones do not add up */
                ck_assert_uint_eq(turn(&p, work_shortly), 0);
        ck_assert_uint_ge(turn(&p, work_long), LONG_TURN_NS);
}
END_TEST

UNIT_MAIN("pace", 20, P21_a_turn_is_long_by_what_it_computes)
