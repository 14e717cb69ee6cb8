/* Lines of users, served in turn. */
#include <check.h>
#include "base/turns.h"
#include "unit.h"

struct job {
        struct list link;
        int name;
};

static void put(struct turns *t, uint32_t uid, struct job *job, int name) {
        *job = (struct job){ .name = name };
        list_init(&job->link);
        turns_put(t, uid, &job->link);
}

/* The name of the next one; 0: none. */
static int take(struct turns *t) {
        struct list *node = turns_take(t);
        return node ? list_entry(node, struct job, link)->name : 0;
}

START_TEST(P21_each_user_is_served_in_turn_and_in_order) {
        struct turns t;
        struct job jobs[7];
        turns_init(&t);
        ck_assert_int_eq(take(&t), 0);
        for (int i = 0; i < 4; i++)
                put(&t, 1000, &jobs[i], 10 + i);
        for (int i = 4; i < 6; i++)
                put(&t, 1001, &jobs[i], 20 + i - 4);
        put(&t, 1002, &jobs[6], 30);
        static const int order[] = { 10, 20, 30, 11, 21, 12, 13, 0 };
        for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++)
                ck_assert_int_eq(take(&t), order[i]);
}
END_TEST

START_TEST(a_node_may_go_by_itself) {
        struct turns t;
        struct job a, b, c;
        turns_init(&t);
        put(&t, 1, &a, 1);
        put(&t, 2, &b, 2);
        list_unlink(&a.link);
        ck_assert_int_eq(take(&t), 2);
        ck_assert_int_eq(take(&t), 0);
        put(&t, 1, &a, 3); /* its line was in the waiting list when it was emptied */
        put(&t, 1, &c, 4);
        ck_assert_int_eq(take(&t), 3);
        ck_assert_int_eq(take(&t), 4);
        ck_assert_int_eq(take(&t), 0);
}
END_TEST

UNIT_MAIN("turns", 20, P21_each_user_is_served_in_turn_and_in_order, a_node_may_go_by_itself)
