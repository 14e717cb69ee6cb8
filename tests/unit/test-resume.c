/* What becomes of requests under way when a group comes back after a restart of tuttid (P9, P3). */
#include "resume.h"

#include <stdlib.h>
#include <string.h>
#include "unit.h"

#define MAX_MEMBERS 4

struct table {
        struct resume *members[MAX_MEMBERS];
        uint32_t n;
        struct owed *owed;
        uint32_t n_owed;
};

static struct key named(const char *name) {
        struct key key;
        ck_assert(key_name(&key, name, strlen(name)));
        return key;
}

static void table_init(struct table *t, uint32_t n) {
        *t = (struct table){ .n = n };
        for (uint32_t i = 0; i < n; i++) {
                t->members[i] = resume_new();
                t->members[i]->rank = i;
        }
}

static void table_deinit(struct table *t) {
        for (uint32_t i = 0; i < t->n; i++)
                resume_free(t->members[i]);
        free(t->owed);
}

static void tell(struct table *t, uint32_t member, const struct page_report *report) {
        ck_assert_int_eq(resume_add(t->members[member], &(struct msg_pages){ 1, report }), 0);
}

/* A request of key "k": FREE where the number is 0. */
static void has(struct table *t, uint32_t member, enum page_state state, uint64_t number) {
        tell(t, member,
                &(struct page_report){ .request = 10 + member,
                        .collective = number,
                        .state = state,
                        .has_key = true,
                        .key = named("k") });
}

static void has_repeatable(struct table *t, uint32_t member, enum page_state state, uint64_t number) {
        has(t, member, state, number);
        t->members[member]->reports[t->members[member]->n - 1].is_kept = true;
}

static void has_failed_before(struct table *t, uint32_t member, uint32_t n) {
        tell(t, member,
                &(struct page_report){
                        .has_key = true, .key = named("k"), .n_failed = n, .status = STATUS_TIMEOUT });
}

static void decide(struct table *t) {
        ck_assert_int_eq(resume_decide(t->members, t->n, &t->owed, &t->n_owed), 0);
}

static const struct page_report *request_of(const struct table *t, uint32_t member) {
        for (uint32_t i = 0; i < t->members[member]->n; i++)
                if (t->members[member]->reports[i].request != 0)
                        return &t->members[member]->reports[i];
        ck_abort();
}

static void expect(const struct table *t, uint32_t member, enum page_state state, enum status status) {
        const struct page_report *r = request_of(t, member);
        ck_assert_msg(r->state == state, "member %u: state %d, not %d", member, (int)r->state, (int)state);
        if (state == PAGE_FAILED)
                ck_assert_int_eq(r->status, status);
}

START_TEST(M1_before_it_was_sealed_all_submit_again) {
        struct table t;
        table_init(&t, 3);
        has(&t, 0, PAGE_FREE, 0);
        has(&t, 1, PAGE_FREE, 0);
        decide(&t);
        expect(&t, 0, PAGE_FREE, 0);
        expect(&t, 1, PAGE_FREE, 0);
        ck_assert_uint_eq(t.n_owed, 0);
        table_deinit(&t);
}
END_TEST

/* tuttid was killed while it wrote `begun` into the pages: nothing has run. */
START_TEST(M1_sealed_and_not_begun_for_all_is_submitted_again) {
        struct table t;
        table_init(&t, 3);
        has(&t, 0, PAGE_BEGUN, 7);
        has(&t, 1, PAGE_FREE, 0);
        has(&t, 2, PAGE_FREE, 0);
        decide(&t);
        for (uint32_t i = 0; i < 3; i++)
                expect(&t, i, PAGE_FREE, 0);
        table_deinit(&t);
}
END_TEST

START_TEST(M1_begun_and_nowhere_done_is_lost_for_all) {
        struct table t;
        table_init(&t, 3);
        for (uint32_t i = 0; i < 3; i++)
                has(&t, i, PAGE_BEGUN, 7);
        decide(&t);
        for (uint32_t i = 0; i < 3; i++)
                expect(&t, i, PAGE_FAILED, STATUS_OUTPUT_LOST);
        ck_assert_uint_eq(t.n_owed, 0);
        table_deinit(&t);
}
END_TEST

/* One input that is gone is enough. */
START_TEST(what_has_kept_its_inputs_is_submitted_again) {
        struct table t;
        table_init(&t, 2);
        has_repeatable(&t, 0, PAGE_BEGUN, 7);
        has_repeatable(&t, 1, PAGE_BEGUN, 7);
        decide(&t);
        expect(&t, 0, PAGE_FREE, 0);
        expect(&t, 1, PAGE_FREE, 0);
        table_deinit(&t);
        table_init(&t, 2);
        has_repeatable(&t, 0, PAGE_BEGUN, 7);
        has(&t, 1, PAGE_BEGUN, 7);
        decide(&t);
        expect(&t, 0, PAGE_FAILED, STATUS_OUTPUT_LOST);
        expect(&t, 1, PAGE_FAILED, STATUS_OUTPUT_LOST);
        table_deinit(&t);
}
END_TEST

START_TEST(M1_done_anywhere_is_done_everywhere) {
        struct table t;
        table_init(&t, 3);
        has(&t, 0, PAGE_BEGUN, 7);
        has(&t, 1, PAGE_DONE, 7);
        has(&t, 2, PAGE_BEGUN, 7);
        decide(&t);
        for (uint32_t i = 0; i < 3; i++)
                expect(&t, i, PAGE_DONE, 0);
        table_deinit(&t);
}
END_TEST

/* R0 has not looked at its answer yet, R1 has, and has submitted the same key again. */
START_TEST(a_later_use_of_the_key_is_not_done_with_the_one_before) {
        struct table t;
        table_init(&t, 2);
        has(&t, 0, PAGE_DONE, 7);
        has(&t, 1, PAGE_FREE, 0);
        decide(&t);
        expect(&t, 0, PAGE_DONE, 0);
        expect(&t, 1, PAGE_FREE, 0);
        table_deinit(&t);
}
END_TEST

/* R0 was told of the failure, or might have been: R1's half is of the same use, and R2, who has not come yet,
 * owes it (P3). */
START_TEST(P3_a_failure_that_one_knows_of_is_everybodys) {
        struct table t;
        table_init(&t, 3);
        has(&t, 0, PAGE_FAILED, 0);
        t.members[0]->reports[0].status = STATUS_ABORTED;
        has(&t, 1, PAGE_FREE, 0);
        decide(&t);
        expect(&t, 0, PAGE_FAILED, STATUS_ABORTED);
        expect(&t, 1, PAGE_FAILED, STATUS_EXPIRED);
        ck_assert_int_eq(request_of(&t, 1)->cause, STATUS_ABORTED);
        ck_assert_uint_eq(t.n_owed, 1);
        ck_assert(key_is_equal(&t.owed[0].key, &(struct key){ .n_bytes = 1, .bytes = "k" }));
        ck_assert_int_eq(t.owed[0].status, STATUS_ABORTED);
        ck_assert(!rankset_has(&t.owed[0].debtors, 0) && !rankset_has(&t.owed[0].debtors, 1));
        ck_assert(rankset_has(&t.owed[0].debtors, 2));
        table_deinit(&t);
}
END_TEST

/* R0's retry must not meet R1's first half: R1 is one failure behind. */
START_TEST(P3_a_late_comer_does_not_meet_a_retry_across_a_restart) {
        struct table t;
        table_init(&t, 2);
        has_failed_before(&t, 0, 1);
        has(&t, 0, PAGE_FREE, 0);
        has(&t, 1, PAGE_FREE, 0);
        decide(&t);
        expect(&t, 0, PAGE_FREE, 0);
        expect(&t, 1, PAGE_FAILED, STATUS_EXPIRED);
        ck_assert_int_eq(request_of(&t, 1)->cause, STATUS_TIMEOUT);
        ck_assert_uint_eq(t.n_owed, 0);
        table_deinit(&t);
}
END_TEST

/* R0 was told, or might have been, that it is lost, when the next tuttid was killed too; R1 was not. */
START_TEST(M1_lost_for_one_is_lost_for_all_also_when_tuttid_is_killed_again) {
        struct table t;
        table_init(&t, 2);
        has_failed_before(&t, 0, 1);
        t.members[0]->reports[0].status = STATUS_OUTPUT_LOST;
        has(&t, 0, PAGE_FREE, 0); /* its retry */
        has(&t, 1, PAGE_BEGUN, 7);
        decide(&t);
        expect(&t, 0, PAGE_FREE, 0);
        expect(&t, 1, PAGE_FAILED, STATUS_OUTPUT_LOST);
        ck_assert_uint_eq(t.n_owed, 0);
        table_deinit(&t);
}
END_TEST

START_TEST(P3_debts_are_counted) {
        struct table t;
        table_init(&t, 2);
        has_failed_before(&t, 0, 3);
        has_failed_before(&t, 1, 1);
        decide(&t);
        ck_assert_uint_eq(t.n_owed, 2);
        for (uint32_t i = 0; i < 2; i++)
                ck_assert(rankset_has(&t.owed[i].debtors, 1) && !rankset_has(&t.owed[i].debtors, 0));
        table_deinit(&t);
}
END_TEST

START_TEST(P18_no_member_makes_more_debts_than_are_kept) {
        struct table t;
        table_init(&t, 2);
        has_failed_before(&t, 0, UINT32_MAX);
        decide(&t);
        ck_assert_uint_eq(t.n_owed, MAX_OWED);
        table_deinit(&t);
}
END_TEST

START_TEST(P18_no_member_tells_more_than_it_can_have) {
        static struct page_report reports[MAX_PART_REPORTS];
        struct resume *resume = resume_new();
        for (uint32_t i = 0; i < MAX_PART_REPORTS; i++)
                reports[i] = (struct page_report){ .request = i + 1, .has_key = true };
        for (uint32_t i = 0; i < MAX_REPORTS / MAX_PART_REPORTS; i++)
                ck_assert_int_eq(resume_add(resume, &(struct msg_pages){ MAX_PART_REPORTS, reports }), 0);
        ck_assert_int_lt(resume_add(resume, &(struct msg_pages){ 1, reports }), 0);
        ck_assert_uint_eq(resume->n, MAX_REPORTS);
        resume_free(resume);
}
END_TEST

/* Whatever is told, deciding takes a moment: it is done by the one thread that serves everybody. */
START_TEST(P21_failures_beyond_counting_owe_nothing_alone) {
        struct table t;
        table_init(&t, 1);
        has_failed_before(&t, 0, UINT32_MAX);
        decide(&t);
        ck_assert_uint_eq(t.n_owed, 0);
        table_deinit(&t);
        table_init(&t, 2);
        has_failed_before(&t, 0, UINT32_MAX);
        has_failed_before(&t, 1, UINT32_MAX - 3);
        decide(&t);
        ck_assert_uint_eq(t.n_owed, 3);
        for (uint32_t i = 0; i < 3; i++) {
                ck_assert(rankset_has(&t.owed[i].debtors, 1));
                ck_assert(!rankset_has(&t.owed[i].debtors, 0));
        }
        table_deinit(&t);
}
END_TEST

START_TEST(P21_many_uses_of_one_key_are_decided_soon) {
        struct table t;
        table_init(&t, MAX_MEMBERS);
        for (uint32_t i = 0; i < MAX_REPORTS; i++)
                for (uint32_t member = 0; member < MAX_MEMBERS; member++)
                        has(&t, member, i % 2 && member == 0 ? PAGE_DONE : PAGE_BEGUN, i + 1);
        decide(&t); /* within the time of the test; one by one it takes most of a minute */
        for (uint32_t i = 0; i < MAX_REPORTS; i++) {
                const struct page_report *r = &t.members[1]->reports[i];
                ck_assert_int_eq(r->state, i % 2 ? PAGE_DONE : PAGE_FAILED);
                ck_assert_int_eq(r->status, i % 2 ? STATUS_OK : STATUS_OUTPUT_LOST);
        }
        table_deinit(&t);
}
END_TEST

START_TEST(of_an_epoch_that_is_over_only_what_is_done_is_done) {
        struct table t;
        table_init(&t, 2);
        has(&t, 0, PAGE_BEGUN, 7);
        has(&t, 1, PAGE_DONE, 7);
        resume_end(t.members[0], STATUS_REPLICA_LOST);
        resume_end(t.members[1], STATUS_REPLICA_LOST);
        expect(&t, 0, PAGE_FAILED, STATUS_REPLICA_LOST);
        expect(&t, 1, PAGE_DONE, 0);
        table_deinit(&t);
}
END_TEST

/* Keys do not touch each other, in whatever order they are told. */
START_TEST(each_key_by_itself) {
        struct table t;
        table_init(&t, 2);
        for (uint64_t i = 0; i < 40; i++)
                for (uint32_t member = 0; member < 2; member++) {
                        uint64_t number = member ? 39 - i : i;
                        tell(&t, member,
                                &(struct page_report){ .request = 1 + number,
                                        .collective = 100 + number,
                                        .state = member || number % 2 ? PAGE_BEGUN : PAGE_DONE,
                                        .has_key = true,
                                        .key = key_sequence(number) });
                }
        decide(&t);
        for (uint32_t member = 0; member < 2; member++)
                for (uint32_t i = 0; i < 40; i++) {
                        const struct page_report *r = &t.members[member]->reports[i];
                        ck_assert_int_eq(r->state, r->key.sequence % 2 ? PAGE_FAILED : PAGE_DONE);
                }
        table_deinit(&t);
}
END_TEST

UNIT_MAIN("resume", 10, M1_before_it_was_sealed_all_submit_again,
        M1_sealed_and_not_begun_for_all_is_submitted_again, M1_begun_and_nowhere_done_is_lost_for_all,
        what_has_kept_its_inputs_is_submitted_again, M1_done_anywhere_is_done_everywhere,
        a_later_use_of_the_key_is_not_done_with_the_one_before, P3_a_failure_that_one_knows_of_is_everybodys,
        P3_a_late_comer_does_not_meet_a_retry_across_a_restart,
        M1_lost_for_one_is_lost_for_all_also_when_tuttid_is_killed_again, P3_debts_are_counted,
        P18_no_member_makes_more_debts_than_are_kept, P18_no_member_tells_more_than_it_can_have,
        P21_failures_beyond_counting_owe_nothing_alone, P21_many_uses_of_one_key_are_decided_soon,
        of_an_epoch_that_is_over_only_what_is_done_is_done, each_key_by_itself)
