/* Who asks for the status a thousand times a second does not slow down who works. Promised is 10 % of the
 * median and half of the 99th percentile; what is asserted is ten times that. tests/bench/polling.c measures.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tutti/admin.h>
#include "meeting.h"
#include "replica.h"
#include "stage.h"
#include "unit.h"

#define N_WINDOWS 5 /* of each sort, in turn: what else the machine does meets both */
#define WINDOW_S  0.6
#define MIN_POLLS                                                                                            \
        100 /* of a thousand times the windows: enough to be felt, and few enough for a sanitizer            \
             */

struct poll {
        _Atomic bool is_on, is_over;
        _Atomic unsigned int n;
};

static void ask_often(struct replica *me) {
        struct poll *poll = me->arg;
        struct tutti *t = replica_open(me);
        while (!atomic_load(&poll->is_over)) {
                struct tutti_answer *a;
                nanosleep(&(struct timespec){ .tv_nsec = 900000 }, NULL); /* and the call takes its time */
                if (!atomic_load(&poll->is_on))
                        continue;
                expect_status(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), TUTTI_OK);
                tutti_answer_free(a);
                atomic_fetch_add(&poll->n, 1);
        }
}

static int by_size(const void *a, const void *b) {
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

static double median(double *values) {
        qsort(values, N_WINDOWS, sizeof(*values), by_size);
        return values[N_WINDOWS / 2];
}

/* What a meeting of the honest group takes, while nobody asks and while somebody does. */
struct measured {
        struct {
                double p50, p99;
        } quiet, polled;
};

static void measure(struct measured *ret) {
        struct stage s;
        struct poll *poll = memory_shared(sizeof(*poll));
        double p50[2][N_WINDOWS], p99[2][N_WINDOWS];
        stage_set(&s, NULL);
        struct replica *asks =
                replica_spawn(s.h, &(struct replica_options){ .n = 1, .body = ask_often, .arg = poll });
        stage_expect_progress();
        for (int i = 0; i < 2 * N_WINDOWS; i++) {
                atomic_store(&poll->is_on, i % 2 == 1);
                const struct pace pace = stage_measure_pace(WINDOW_S);
                p50[i % 2][i / 2] = pace.p50;
                p99[i % 2][i / 2] = pace.p99;
        }
        ck_assert_uint_ge(atomic_load(&poll->n), MIN_POLLS);
        *ret = (struct measured){ { median(p50[0]), median(p99[0]) }, { median(p50[1]), median(p99[1]) } };
        printf("# quiet p50 %.0f us, p99 %.0f us; polled %u times p50 %.0f us, p99 %.0f us\n",
                ret->quiet.p50 * 1e6, ret->quiet.p99 * 1e6, atomic_load(&poll->n), ret->polled.p50 * 1e6,
                ret->polled.p99 * 1e6);
        atomic_store(&poll->is_over, true);
        ck_assert_int_eq(replica_end(asks, 10), 0);
        stage_clear(&s);
}

static double larger(double a, double b) {
        return a > b ? a : b;
}

static void expect_unhurt(const struct measured *m, double quiet50, double quiet99) {
        ck_assert_msg(m->polled.p50 <= quiet50 * (1 + 10 * 0.10), "p50 %.0f us, quiet %.0f us",
                m->polled.p50 * 1e6, quiet50 * 1e6);
        ck_assert_msg(m->polled.p99 <= quiet99 * (1 + 10 * 0.50), "p99 %.0f us, quiet %.0f us",
                m->polled.p99 * 1e6, quiet99 * 1e6);
}

/* By packets, and on the lane: there a collective takes so little that one wake-up more is several times as
 * much. It still takes no longer than one by packets would. */
START_TEST(a_thousand_status_calls_a_second_slow_nobody_down) {
        struct measured by_packets, on_lane;
        setenv("TUTTI_LANE", "0", 1);
        measure(&by_packets);
        unsetenv("TUTTI_LANE");
        measure(&on_lane);
        expect_unhurt(&by_packets, by_packets.quiet.p50, by_packets.quiet.p99);
        expect_unhurt(&on_lane, larger(by_packets.quiet.p50, on_lane.quiet.p50),
                larger(by_packets.quiet.p99, on_lane.quiet.p99));
}
END_TEST

UNIT_MAIN("polling", 120, a_thousand_status_calls_a_second_slow_nobody_down)
