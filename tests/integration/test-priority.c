/* What waits for a worker goes by priority: that of the call, that of the membership where the call says
 * nothing, none where it resets it. One worker is kept busy by a large collective while the others are sealed
 * behind it; the flight recorder tells in which order they ended. */
#include <stdio.h>
#include <string.h>
#include <tutti/admin.h>
#include "meeting.h"

#define N_PLAIN    8
#define N_WORKS    (N_PLAIN + 3)
#define N_TRIES    20
#define BLOCK_SIZE ((size_t)16 << 20) /* floats: what one chunk can hold */

struct call {
        char key[32];
        struct tutti_options options;
};

/* In the order in which they are submitted. The group's priority is 7. */
static void make_calls(int attempt, struct call *calls) {
        for (int i = 0; i < N_WORKS; i++) {
                struct call *c = &calls[i];
                const char *name = i == 0             ? "block"
                                   : i <= N_PLAIN     ? "plain"
                                   : i == N_PLAIN + 1 ? "group"
                                                      : "call";
                c->options = i == 0             ? TUTTI_OPTIONS(.priority = 100)
                             : i <= N_PLAIN     ? TUTTI_OPTIONS(.reset = TUTTI_RESET_PRIORITY)
                             : i == N_PLAIN + 1 ? TUTTI_OPTIONS(.timeout = 0)
                                                : TUTTI_OPTIONS(.priority = 9);
                snprintf(c->key, sizeof(c->key), "%d %s %d", attempt, name, i);
        }
}

/* Whether all was sealed while the first still ran: on a busy machine it may not be. */
static bool submit_all(struct tutti_group *g, const struct call *calls, struct floats *values) {
        struct tutti_work *works[N_WORKS];
        for (int i = 0; i < N_WORKS; i++)
                expect_status(tutti_all_reduce_start(g, calls[i].key, TUTTI_SUM, &values[i].value,
                                      &values[i].value, &calls[i].options, &works[i]),
                        TUTTI_OK);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        bool is_blocked = tutti_work_test(works[0]) == TUTTI_PENDING;
        for (int i = 0; i < N_WORKS; i++) {
                expect_work(works[i], TUTTI_OK);
                tutti_work_free(works[i]);
        }
        return is_blocked;
}

/* Where in the answer the record of this key stands. */
static uint32_t place_of(const struct tutti_answer *a, const char *key) {
        for (uint32_t i = 0; i < a->n_rows; i++)
                if (a->rows[i].type == TUTTI_ROW_RECORD && strcmp(a->rows[i].record.key, key) == 0)
                        return i;
        ck_abort_msg("there is no record of %s", key);
}

static void expect_order(struct replica *me, const struct call *calls) {
        static const int order[] = { 0, N_PLAIN + 2, N_PLAIN + 1 };
        struct tutti_answer *a;
        uint32_t last = 0;
        expect_status(tutti_admin_ask(me->t, TUTTI_ADMIN_DUMP, "test", "urgent", &a), TUTTI_OK);
        for (int i = 0; i < N_WORKS; i++) {
                const char *key = calls[i < 3 ? order[i] : i - 2].key;
                uint32_t place = place_of(a, key);
                ck_assert_msg(place > last, "\"%s\" has not ended in its turn", key);
                last = place;
        }
        tutti_answer_free(a);
}

static void hurry(struct replica *me) {
        const struct tutti_options base = TUTTI_OPTIONS(.priority = 7);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "urgent", .options = &base));
        struct call calls[N_WORKS];
        struct floats values[N_WORKS];
        bool is_blocked = false;
        for (int i = 0; i < N_WORKS; i++)
                floats_init(me->t, &values[i], i == 0 ? BLOCK_SIZE : 100);
        for (int attempt = 0; !is_blocked; attempt++) {
                ck_assert_msg(attempt < N_TRIES, "the worker has never been busy for long enough");
                make_calls(attempt, calls);
                float all = submit_all(g, calls, values) ? 0 : 1; /* unless it is so for both, once more */
                struct floats *sum = &values[1];
                floats_fill(sum, all);
                expect_status(floats_sum(g, NULL, sum), TUTTI_OK);
                is_blocked = sum->data[0] == 0;
        }
        if (me->rank == 0)
                expect_order(me, calls);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
}

START_TEST(P21_the_most_urgent_of_a_user_goes_first) {
        board_init();
        struct host *h =
                host_start((const char *[]){ "--set", "cpu.workers=1", "--set", "cpu.chunk=64 MiB", NULL });
        run_replicas(h, 2, hurry, NULL);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("priority", 60, P21_the_most_urgent_of_a_user_goes_first)
