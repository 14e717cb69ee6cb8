/* Lines of users with priorities. */
#include <stdlib.h>
#include <string.h>
#include "base/queues.h"
#include "unit.h"

struct job {
        struct queued node;
        int name;
        bool is_held;
};

static void put(struct queues *q, uint32_t uid, int32_t priority, struct job *job, int name) {
        *job = (struct job){ .name = name };
        queues_put(q, uid, &job->node, priority);
}

static int take_by(struct queues *q, const struct queue_rule *rule) {
        struct queued *node = queues_take(q, rule);
        return node ? list_entry(node, struct job, node)->name : 0;
}

static int take(struct queues *q) {
        return take_by(q, NULL);
}

static void expect_order(struct queues *q, const int *order, size_t n) {
        for (size_t i = 0; i < n; i++)
                ck_assert_int_eq(take(q), order[i]);
}

START_TEST(the_most_urgent_goes_first_and_equals_in_order) {
        struct queues q;
        struct job jobs[6];
        static const int32_t priorities[] = { 0, 5, -3, 5, 0, INT32_MAX };
        queues_init(&q);
        ck_assert_int_eq(take(&q), 0);
        for (int i = 0; i < 6; i++)
                put(&q, 1000, priorities[i], &jobs[i], i + 1);
        expect_order(&q, (const int[]){ 6, 2, 4, 1, 5, 3, 0 }, 7);
}
END_TEST

START_TEST(P21_priority_counts_within_a_user_alone) {
        struct queues q;
        struct job jobs[5];
        queues_init(&q);
        for (int i = 0; i < 3; i++)
                put(&q, 1000, 100 + i, &jobs[i], 10 + i);
        for (int i = 3; i < 5; i++)
                put(&q, 1001, -100, &jobs[i], 20 + i - 3);
        expect_order(&q, (const int[]){ 12, 20, 11, 21, 10, 0 }, 6);
}
END_TEST

/* However much comes that is more urgent: who has waited longest is passed over fifteen times. */
START_TEST(nobody_starves) {
        struct queues q;
        struct job low[3], high[100];
        int n_high = 0, n_low = 0;
        queues_init(&q);
        for (int i = 0; i < 3; i++)
                put(&q, 1, 0, &low[i], 1 + i);
        put(&q, 1, 9, &high[0], 100);
        for (int i = 1; n_low < 3; i++) {
                put(&q, 1, 9, &high[i], 100 + i);
                int name = take(&q);
                if (name >= 100) {
                        n_high++;
                        continue;
                }
                ck_assert_int_eq(name, ++n_low);
                ck_assert_int_eq(n_high, MAX_PASSED * n_low);
        }
}
END_TEST

static bool may_user(uint32_t user, const void *held) {
        return user != *(const uint32_t *)held;
}

static bool may(const struct queued *node, const void *held) {
        (void)held;
        return !list_entry(node, struct job, node)->is_held;
}

START_TEST(who_may_not_keeps_its_place) {
        struct queues q;
        struct job a, b, c, d;
        uint32_t held = 2;
        const struct queue_rule rule = { may_user, may, &held };
        queues_init(&q);
        put(&q, 2, 0, &d, 4);
        put(&q, 1, 0, &a, 1);
        put(&q, 1, 9, &b, 2);
        put(&q, 1, 5, &c, 3);
        b.is_held = true;
        ck_assert_int_eq(take_by(&q, &rule), 3);
        ck_assert_int_eq(take_by(&q, &rule), 1);
        ck_assert_int_eq(take_by(&q, &rule), 0);
        held = 7;
        b.is_held = false;
        ck_assert_int_eq(take_by(&q, &rule), 4); /* its user has waited for longer */
        ck_assert_int_eq(take_by(&q, &rule), 2);
        ck_assert_int_eq(take_by(&q, &rule), 0);
}
END_TEST

/* --- against a naive one --- */

#define N_JOBS 300

struct naive {
        int32_t priority[N_JOBS];
        bool is_in[N_JOBS], is_held[N_JOBS];
        uint64_t ticket[N_JOBS], n_tickets;
        uint32_t n_passed;
};

static bool is_better(const struct naive *n, int i, int than) {
        return than < 0 || n->priority[i] > n->priority[than] ||
               (n->priority[i] == n->priority[than] && n->ticket[i] < n->ticket[than]);
}

static int naive_take(struct naive *n) {
        int oldest = -1, best = -1;
        for (int i = 0; i < N_JOBS; i++) {
                if (!n->is_in[i])
                        continue;
                if (oldest < 0 || n->ticket[i] < n->ticket[oldest])
                        oldest = i;
                if (!n->is_held[i] && is_better(n, i, best))
                        best = i;
        }
        if (oldest >= 0 && n->n_passed >= MAX_PASSED && !n->is_held[oldest])
                best = oldest;
        if (best < 0)
                return 0;
        n->n_passed = best == oldest ? 0 : n->n_passed + 1;
        n->is_in[best] = false;
        return best + 1;
}

START_TEST(many_in_any_order_as_a_naive_queue_has_it) {
        static struct job jobs[N_JOBS];
        static struct naive n;
        struct queues q;
        uint32_t held = 99, n_held = 0;
        const struct queue_rule rule = { may_user, may, &held };
        queues_init(&q);
        srandom(1);
        for (int step = 0; step < 20000; step++) {
                int i = (int)(random() % N_JOBS);
                if (!n.is_in[i] && random() % 2) {
                        n_held -= n.is_held[i];
                        n.priority[i] = (int32_t)(random() % 9) - 4;
                        n.ticket[i] = n.n_tickets++;
                        n.is_in[i] = true;
                        put(&q, 1, n.priority[i], &jobs[i], i + 1);
                        jobs[i].is_held = n.is_held[i] = n_held < 20 && random() % 8 == 0;
                        n_held += n.is_held[i];
                } else {
                        ck_assert_int_eq(take_by(&q, &rule), naive_take(&n));
                }
        }
}
END_TEST

UNIT_MAIN("queues", 20, the_most_urgent_goes_first_and_equals_in_order,
        P21_priority_counts_within_a_user_alone, nobody_starves, who_may_not_keeps_its_place,
        many_in_any_order_as_a_naive_queue_has_it)
