/* Who may see what (P19, O6). */
#include <stdio.h>
#include <string.h>
#include "unit.h"
#include "viewer.h"

START_TEST(P19_a_user_sees_its_own) {
        struct viewer v = { .uid = 1000 };
        ck_assert(viewer_sees(&v, 1000, ""));
        ck_assert(!viewer_sees(&v, 1001, ""));
        ck_assert(!viewer_sees(&v, 0, ""));
}
END_TEST

START_TEST(P19_a_secret_is_shown_before_its_groups_are_seen) {
        struct viewer v = { .uid = 1000 };
        ck_assert(!viewer_sees(&v, 1000, "a"));
        viewer_show(&v, "a");
        ck_assert(viewer_sees(&v, 1000, "a"));
        ck_assert(!viewer_sees(&v, 1000, "b"));
        ck_assert(!viewer_sees(&v, 1000, "ab"));
        ck_assert(!viewer_sees(&v, 1001, "a")); /* another user's secret may be the same word */
        viewer_show(&v, "b");
        ck_assert(viewer_sees(&v, 1000, "a"));
        ck_assert(viewer_sees(&v, 1000, "b"));
        ck_assert(viewer_sees(&v, 1000, ""));
}
END_TEST

START_TEST(the_last_few_secrets_are_kept) {
        struct viewer v = { .uid = 1000 };
        char secret[16];
        for (int i = 0; i < MAX_SHOWN_SECRETS + 1; i++) {
                snprintf(secret, sizeof(secret), "s%d", i);
                viewer_show(&v, secret);
                viewer_show(&v, secret); /* again is not another one */
        }
        ck_assert(!viewer_sees(&v, 1000, "s0"));
        ck_assert(viewer_sees(&v, 1000, "s1"));
        ck_assert(viewer_sees(&v, 1000, secret));
}
END_TEST

START_TEST(what_is_no_secret_shows_nothing) {
        struct viewer v = { .uid = 1000 };
        char longest[MAX_SECRET_BYTES + 1];
        memset(longest, 's', sizeof(longest));
        longest[MAX_SECRET_BYTES] = '\0';
        viewer_show(&v, "");
        viewer_show(&v, longest);
        ck_assert_uint_eq(v.n_shown, 0);
        longest[MAX_SECRET_BYTES - 1] = '\0';
        viewer_show(&v, longest);
        ck_assert(viewer_sees(&v, 1000, longest));
}
END_TEST

START_TEST(O6_an_admin_sees_all_of_the_user_it_looks_at) {
        struct viewer v = { .uid = 1000, .is_admin = true, .sees_all = true };
        ck_assert(viewer_sees(&v, 1000, ""));
        ck_assert(viewer_sees(&v, 1000, "a"));
        ck_assert(!viewer_sees(&v, 1001, ""));
}
END_TEST

START_TEST(O6_to_act_for_all_is_not_to_see_all) {
        struct viewer v = { .uid = 1000, .is_admin = true };
        ck_assert(!viewer_sees(&v, 1000, "a"));
        v = (struct viewer){ .uid = 1000, .sees_all = true };
        ck_assert(viewer_sees(&v, 1000, "a"));
        ck_assert(!viewer_sees(&v, 1001, "a"));
}
END_TEST

UNIT_MAIN("viewer", 10, P19_a_user_sees_its_own, P19_a_secret_is_shown_before_its_groups_are_seen,
        the_last_few_secrets_are_kept, what_is_no_secret_shows_nothing,
        O6_an_admin_sees_all_of_the_user_it_looks_at, O6_to_act_for_all_is_not_to_see_all)
