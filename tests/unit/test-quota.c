/* Charges per user: what is charged is given back with the object that holds it (P18). */
#include "quota.h"
#include "unit.h"

static struct quotas *make(void) {
        struct quotas *q;
        struct quota_limits limits = { .connections = 2,
                .descriptors = 10,
                .mapped_bytes = 1 << 20,
                .pending = 3,
                .groups = 1,
                .recorder_bytes = 100,
                .reply_bytes = 7,
                .memory_bytes = 8 };
        ck_assert_int_eq(quotas_new(&q, &limits), 0);
        return q;
}

START_TEST(a_charge_counts_until_it_is_released) {
        struct quotas *q = make();
        struct charge a = { 0 }, b = { 0 };
        struct error err;
        ck_assert_int_eq(quota_charge(q, &a, 1000, QUOTA_MAPPED_BYTES, 4096, &err), STATUS_OK);
        ck_assert_int_eq(quota_charge(q, &b, 1000, QUOTA_MAPPED_BYTES, 100, &err), STATUS_OK);
        ck_assert_uint_eq(quota_used(q, 1000, QUOTA_MAPPED_BYTES), 4196);
        ck_assert_uint_eq(quota_used(q, 1000, QUOTA_PENDING), 0);
        ck_assert_uint_eq(quota_total(q, QUOTA_MAPPED_BYTES), 4196);
        charge_release(&a);
        ck_assert_uint_eq(quota_used(q, 1000, QUOTA_MAPPED_BYTES), 100);
        charge_release(&b);
        ck_assert_uint_eq(quota_used(q, 1000, QUOTA_MAPPED_BYTES), 0);
        quotas_free(q);
}
END_TEST

START_TEST(releasing_twice_gives_back_once) {
        struct quotas *q = make();
        struct charge a = { 0 }, b = { 0 };
        ck_assert_int_eq(quota_charge(q, &a, 1, QUOTA_PENDING, 1, NULL), STATUS_OK);
        ck_assert_int_eq(quota_charge(q, &b, 1, QUOTA_PENDING, 1, NULL), STATUS_OK);
        charge_release(&a);
        charge_release(&a);
        ck_assert_uint_eq(quota_used(q, 1, QUOTA_PENDING), 1);
        charge_release(&b);
        quotas_free(q);
}
END_TEST

START_TEST(what_is_lowered_counts_less_and_is_released_once) {
        struct quotas *q = make();
        struct charge a = { 0 };
        ck_assert_int_eq(quota_charge(q, &a, 1, QUOTA_DESCRIPTORS, 5, NULL), STATUS_OK);
        charge_lower(&a, 2);
        ck_assert_uint_eq(quota_used(q, 1, QUOTA_DESCRIPTORS), 2);
        ck_assert_uint_eq(quota_total(q, QUOTA_DESCRIPTORS), 2);
        charge_lower(&a, 0);
        ck_assert_uint_eq(quota_used(q, 1, QUOTA_DESCRIPTORS), 0);
        ck_assert_uint_eq(quota_users(q), 1); /* it has a charge still, of nothing */
        charge_release(&a);
        ck_assert_uint_eq(quota_users(q), 0);
        quotas_free(q);
}
END_TEST

START_TEST(the_limit_can_be_reached_and_not_passed) {
        struct quotas *q = make();
        struct charge all = { 0 }, more = { 0 };
        struct error err;
        ck_assert_int_eq(quota_charge(q, &all, 1000, QUOTA_PENDING, 3, &err), STATUS_OK);
        ck_assert_int_eq(quota_charge(q, &more, 1000, QUOTA_PENDING, 1, &err), STATUS_QUOTA);
        ck_assert_int_eq(err.status, STATUS_QUOTA);
        ck_assert_str_eq(err.detail, "pending");
        ck_assert_uint_eq(err.used, 3);
        ck_assert_uint_eq(err.limit, 3);
        ck_assert_ptr_null(more.user);
        ck_assert_uint_eq(quota_used(q, 1000, QUOTA_PENDING), 3);
        charge_release(&all);
        ck_assert_int_eq(quota_charge(q, &more, 1000, QUOTA_PENDING, 1, &err), STATUS_OK);
        charge_release(&more);
        quotas_free(q);
}
END_TEST

START_TEST(one_user_at_the_limit_is_nobody_elses_matter) {
        struct quotas *q = make();
        struct charge a = { 0 }, b = { 0 }, c = { 0 };
        ck_assert_int_eq(quota_charge(q, &a, 1000, QUOTA_GROUPS, 1, NULL), STATUS_OK);
        ck_assert_int_eq(quota_charge(q, &b, 1000, QUOTA_GROUPS, 1, NULL), STATUS_QUOTA);
        ck_assert_int_eq(quota_charge(q, &c, 1001, QUOTA_GROUPS, 1, NULL), STATUS_OK);
        ck_assert_uint_eq(quota_total(q, QUOTA_GROUPS), 2);
        charge_release(&a);
        charge_release(&c);
        quotas_free(q);
}
END_TEST

/* For what is held only to be given back: an eighth of the limit. */
START_TEST(the_reserve_lies_beyond_the_limit) {
        struct quotas *q;
        const struct quota_limits limits = { .descriptors = 160 };
        ck_assert_int_eq(quotas_new(&q, &limits), 0);
        struct charge all = { 0 }, reserve = { 0 }, more = { 0 };
        struct error err;
        ck_assert_int_eq(quota_charge(q, &all, 1, QUOTA_DESCRIPTORS, 160, NULL), STATUS_OK);
        ck_assert_int_eq(quota_charge_reserve(q, &reserve, 1, QUOTA_DESCRIPTORS, 21, &err), STATUS_QUOTA);
        ck_assert_int_eq(quota_charge_reserve(q, &reserve, 1, QUOTA_DESCRIPTORS, 20, &err), STATUS_OK);
        ck_assert_int_eq(quota_charge_reserve(q, &more, 1, QUOTA_DESCRIPTORS, 1, &err), STATUS_QUOTA);
        ck_assert_uint_eq(err.used, 180);
        ck_assert_uint_eq(err.limit, 160);
        charge_release(&reserve);
        ck_assert_int_eq(quota_charge(q, &more, 1, QUOTA_DESCRIPTORS, 1, &err), STATUS_QUOTA);
        charge_release(&all);
        ck_assert_uint_eq(quota_users(q), 0);
        quotas_free(q);
}
END_TEST

START_TEST(a_small_limit_has_a_reserve_of_16) {
        struct quotas *q = make();
        struct charge all = { 0 }, reserve = { 0 }, more = { 0 };
        struct error err;
        ck_assert_int_eq(quota_charge(q, &all, 1, QUOTA_GROUPS, 1, NULL), STATUS_OK);
        ck_assert_int_eq(quota_charge_reserve(q, &reserve, 1, QUOTA_GROUPS, 17, &err), STATUS_QUOTA);
        ck_assert_int_eq(quota_charge_reserve(q, &reserve, 1, QUOTA_GROUPS, 16, &err), STATUS_OK);
        ck_assert_int_eq(quota_charge_reserve(q, &more, 1, QUOTA_GROUPS, 1, &err), STATUS_QUOTA);
        ck_assert_uint_eq(err.used, 17);
        charge_release(&all);
        charge_release(&reserve);
        quotas_free(q);
}
END_TEST

START_TEST(huge_amounts_do_not_wrap) {
        struct quotas *q = make();
        struct charge a = { 0 }, b = { 0 };
        ck_assert_int_eq(quota_charge(q, &a, 1, QUOTA_DESCRIPTORS, 5, NULL), STATUS_OK);
        ck_assert_int_eq(quota_charge(q, &b, 1, QUOTA_DESCRIPTORS, UINT64_MAX - 3, NULL), STATUS_QUOTA);
        ck_assert_int_eq(quota_charge(q, &b, 1, QUOTA_DESCRIPTORS, 5, NULL), STATUS_OK);
        charge_release(&a);
        charge_release(&b);
        quotas_free(q);
}
END_TEST

START_TEST(a_user_exists_while_something_is_charged) {
        struct quotas *q = make();
        struct charge a = { 0 }, b = { 0 }, c = { 0 };
        uint32_t uids[4] = { 0 };
        ck_assert_int_eq(quota_charge(q, &a, 7, QUOTA_CONNECTIONS, 1, NULL), STATUS_OK);
        ck_assert_int_eq(quota_charge(q, &b, 7, QUOTA_RECORDER_BYTES, 0, NULL), STATUS_OK);
        ck_assert_int_eq(quota_charge(q, &c, 8, QUOTA_CONNECTIONS, 1, NULL), STATUS_OK);
        ck_assert_uint_eq(quota_users(q), 2);
        charge_release(&c);
        ck_assert_uint_eq(quota_list_users(q, uids, 4), 1);
        ck_assert_uint_eq(uids[0], 7);
        charge_release(&a);
        ck_assert_uint_eq(quota_users(q), 1);
        charge_release(&b);
        ck_assert_uint_eq(quota_users(q), 0);
        ck_assert_uint_eq(quota_list_users(q, NULL, 0), 0);
        quotas_free(q);
}
END_TEST

START_TEST(names_and_limits_are_those_of_the_config) {
        static const struct {
                enum quota quota;
                const char *name;
                uint64_t limit;
        } cases[] = { { QUOTA_CONNECTIONS, "connections", 2 }, { QUOTA_DESCRIPTORS, "descriptors", 10 },
                { QUOTA_MAPPED_BYTES, "mapped-bytes", 1 << 20 }, { QUOTA_PENDING, "pending", 3 },
                { QUOTA_GROUPS, "groups", 1 }, { QUOTA_RECORDER_BYTES, "recorder-bytes", 100 },
                { QUOTA_RESULT_BYTES, "result-bytes", 0 }, { QUOTA_REPLY_BYTES, "reply-bytes", 7 },
                { QUOTA_MEMORY_BYTES, "memory-bytes", 8 } };
        struct quotas *q = make();
        ck_assert_uint_eq(ARRAY_SIZE(cases), N_QUOTA);
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                ck_assert_str_eq(quota_name(cases[i].quota), cases[i].name);
                ck_assert_uint_eq(quota_limit(q, 1000, cases[i].quota), cases[i].limit);
        }
        quotas_free(q);
}
END_TEST

/* Of each resource, also of a user who has nothing here; a probe that nobody hears of counts for nothing. */
START_TEST(refusals_are_counted_and_outlive_the_charges) {
        struct quotas *q = make();
        struct charge a = { 0 }, b = { 0 };
        struct error err;
        ck_assert_int_eq(quota_charge(q, &a, 1000, QUOTA_GROUPS, 2, &err), STATUS_QUOTA);
        ck_assert_uint_eq(quota_refused(q, 1000, QUOTA_GROUPS), 1);
        ck_assert_uint_eq(quota_users(q), 0);
        ck_assert_int_eq(quota_charge(q, &a, 1000, QUOTA_PENDING, 3, &err), STATUS_OK);
        ck_assert_uint_eq(quota_users(q), 1);
        ck_assert_int_eq(quota_charge(q, &b, 1000, QUOTA_PENDING, 1, &err), STATUS_QUOTA);
        ck_assert_int_eq(quota_charge(q, &b, 1000, QUOTA_PENDING, 1, NULL), STATUS_QUOTA);
        ck_assert_uint_eq(quota_refused(q, 1000, QUOTA_PENDING), 1);
        charge_release(&a);
        ck_assert_uint_eq(quota_users(q), 0);
        ck_assert_uint_eq(quota_refused(q, 1000, QUOTA_PENDING), 1);
        ck_assert_uint_eq(quota_refused(q, 1000, QUOTA_GROUPS), 1);
        ck_assert_uint_eq(quota_refused(q, 1001, QUOTA_GROUPS), 0);
        quotas_free(q);
}
END_TEST

START_TEST(so_many_refused_users_are_remembered_and_no_more) {
        struct quotas *q = make();
        struct charge a = { 0 };
        struct error err;
        uint32_t n = 0, uids[1];
        for (uint32_t uid = 1; uid <= 2 * QUOTA_MAX_REMEMBERED; uid++)
                ck_assert_int_eq(quota_charge(q, &a, uid, QUOTA_GROUPS, 2, &err), STATUS_QUOTA);
        for (uint32_t uid = 1; uid <= 2 * QUOTA_MAX_REMEMBERED; uid++)
                n += quota_refused(q, uid, QUOTA_GROUPS) == 1;
        ck_assert_uint_eq(n, QUOTA_MAX_REMEMBERED);
        ck_assert_uint_eq(quota_list_users(q, uids, 1), QUOTA_MAX_REMEMBERED);
        ck_assert_uint_eq(quota_users(q), 0);
        quotas_free(q);
}
END_TEST

START_TEST(losses_are_counted_by_reason_and_outlive_the_charges) {
        struct quotas *q = make();
        struct charge a = { 0 }, b = { 0 };
        struct error err;
        uint32_t uids[2];
        quota_count_loss(q, 1000, LOSS_DIED); /* has nothing here, and so no replica */
        ck_assert_uint_eq(quota_losses(q, 1000, LOSS_DIED), 0);
        ck_assert_int_eq(quota_charge(q, &a, 1000, QUOTA_GROUPS, 1, &err), STATUS_OK);
        ck_assert_int_eq(quota_charge(q, &b, 1001, QUOTA_GROUPS, 1, &err), STATUS_OK);
        quota_count_loss(q, 1000, LOSS_DIED);
        quota_count_loss(q, 1000, LOSS_DIED);
        quota_count_loss(q, 1000, LOSS_EJECTED);
        charge_release(&a);
        ck_assert_uint_eq(quota_users(q), 1);
        ck_assert_uint_eq(quota_losses(q, 1000, LOSS_DIED), 2);
        ck_assert_uint_eq(quota_losses(q, 1000, LOSS_DISCONNECTED), 0);
        ck_assert_uint_eq(quota_losses(q, 1000, LOSS_EJECTED), 1);
        ck_assert_uint_eq(quota_losses(q, 1001, LOSS_DIED), 0);
        ck_assert_uint_eq(quota_list_users(q, uids, 2), 2);
        ck_assert_uint_eq(uids[0], 1001); /* who is here goes before who was */
        ck_assert_uint_eq(uids[1], 1000);
        charge_release(&b);
        ck_assert_uint_eq(quota_list_users(q, uids, 2), 1); /* nothing is known of the other */
        quotas_free(q);
}
END_TEST

START_TEST(P18_so_many_users_who_lost_replicas_are_remembered_and_no_more) {
        struct quotas *q = make();
        struct error err;
        uint32_t n = 0;
        for (uint32_t uid = 1; uid <= 2 * QUOTA_MAX_REMEMBERED; uid++) {
                struct charge a = { 0 };
                ck_assert_int_eq(quota_charge(q, &a, uid, QUOTA_GROUPS, 1, &err), STATUS_OK);
                quota_count_loss(q, uid, LOSS_DISCONNECTED);
                charge_release(&a);
        }
        for (uint32_t uid = 1; uid <= 2 * QUOTA_MAX_REMEMBERED; uid++)
                n += quota_losses(q, uid, LOSS_DISCONNECTED) == 1;
        ck_assert_uint_eq(n, QUOTA_MAX_REMEMBERED);
        quotas_free(q);
}
END_TEST

UNIT_MAIN("quota", 10, a_charge_counts_until_it_is_released, releasing_twice_gives_back_once,
        what_is_lowered_counts_less_and_is_released_once, the_limit_can_be_reached_and_not_passed,
        one_user_at_the_limit_is_nobody_elses_matter, the_reserve_lies_beyond_the_limit,
        a_small_limit_has_a_reserve_of_16, huge_amounts_do_not_wrap, a_user_exists_while_something_is_charged,
        names_and_limits_are_those_of_the_config, refusals_are_counted_and_outlive_the_charges,
        so_many_refused_users_are_remembered_and_no_more,
        losses_are_counted_by_reason_and_outlive_the_charges,
        P18_so_many_users_who_lost_replicas_are_remembered_and_no_more)
