/* What members tell after a restart of tuttid (Pages, and a Join that resumes), said packet by packet: what
 * becomes of it, and how far a liar reaches (P9, P17, P18). */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "host.h"
#include "meeting.h"
#include "raw.h"
#include "unit.h"

struct member {
        struct raw *raw;
        const struct page_slot *page;
        uint64_t join; /* request */
};

static struct member member_open(struct host *h) {
        struct member m = { .raw = raw_connect(host_socket(h)) };
        raw_expect(m.raw, raw_hello(m.raw), STATUS_OK);
        ck_assert_uint_eq(m.raw->packet.n_fds, 1);
        void *page = mmap(
                NULL, STATUS_PAGE_SLOTS * sizeof(*m.page), PROT_READ, MAP_SHARED, m.raw->packet.fds[0], 0);
        ck_assert_ptr_ne(page, MAP_FAILED);
        m.page = page;
        return m;
}

static void member_close(struct member *m) {
        munmap((void *)(uintptr_t)m->page, STATUS_PAGE_SLOTS * sizeof(*m->page));
        raw_close(m->raw);
}

static void tell(struct member *m, uint64_t number, enum page_state state, uint64_t collective) {
        const struct page_report report = { .request = number,
                .collective = collective,
                .state = state,
                .has_key = true,
                .key = raw_key("k") };
        const struct request pages = { .type = REQUEST_PAGES, .pages = { 1, &report } };
        raw_send(m->raw, &pages);
}

static void resume(struct member *m, const char *group, uint32_t rank, uint32_t world, uint64_t epoch) {
        struct request join = raw_join_request(group, rank, world);
        join.join.resume_epoch = epoch;
        join.join.resume_number = 7;
        join.join.resume_members = rankset_first(world);
        m->join = raw_send(m->raw, &join);
}

static void expect_slot(const struct member *m, uint64_t number, enum page_state state, enum status status) {
        const struct page_slot *slot = &m->page[number % STATUS_PAGE_SLOTS];
        if (state == PAGE_FREE) {
                ck_assert_uint_ne(slot->request, number);
                return;
        }
        ck_assert_uint_eq(slot->request, number);
        ck_assert_uint_eq(slot->state, state);
        if (state == PAGE_FAILED)
                ck_assert_uint_eq(slot->status & 0xffff, status);
}

static void expect_joined(struct member *m, uint64_t epoch) {
        const struct raw_member joined = raw_joined(m->raw, m->join);
        ck_assert_uint_eq(joined.epoch, epoch);
}

/* The slots are written before Joined is sent; numbers go on behind the highest that was known. */
START_TEST(P9_the_new_page_says_what_became_of_each_request) {
        static const struct {
                enum page_state told[3];
                uint64_t collective[3];
                enum page_state state;
                enum status status;
        } cases[] = {
                { { PAGE_DONE, PAGE_BEGUN, PAGE_BEGUN }, { 7, 7, 7 }, PAGE_DONE, STATUS_OK },
                { { PAGE_BEGUN, PAGE_BEGUN, PAGE_BEGUN }, { 7, 7, 7 }, PAGE_FAILED, STATUS_OUTPUT_LOST },
                { { PAGE_BEGUN, PAGE_FREE, PAGE_FREE }, { 7, 0, 0 }, PAGE_FREE, STATUS_OK },
                { { PAGE_FREE, PAGE_FREE, PAGE_FREE }, { 0, 0, 0 }, PAGE_FREE, STATUS_OK },
        };
        struct host *h = host_start(NULL);
        for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
                struct member m[3];
                for (uint32_t i = 0; i < 3; i++) {
                        m[i] = member_open(h);
                        tell(&m[i], 1000 + i, cases[c].told[i], cases[c].collective[i]);
                        resume(&m[i], "resumed", i, 3, 5 + 10 * c);
                }
                for (uint32_t i = 0; i < 3; i++) {
                        expect_joined(&m[i], 5 + 10 * c);
                        expect_slot(&m[i], 1000 + i, cases[c].state, cases[c].status);
                }
                for (uint32_t i = 0; i < 3; i++)
                        member_close(&m[i]);
                host_expect_counters_zero(h);
        }
        host_stop(h);
}
END_TEST

START_TEST(P9_numbers_of_collectives_go_on) {
        struct host *h = host_start(NULL);
        struct member m = member_open(h);
        resume(&m, "numbers", 0, 1, 3);
        const struct raw_member joined = raw_joined(m.raw, m.join);
        const struct reply done = raw_expect(m.raw, raw_barrier(m.raw, &joined, "k"), STATUS_OK);
        ck_assert_uint_eq(done.done.collective, 8);
        member_close(&m);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* A group that is whole takes nobody back: he is told, and nobody else notices. */
START_TEST(P9_who_comes_too_late_is_told_and_harms_nobody) {
        struct host *h = host_start(NULL);
        struct raw *honest = raw_open(host_socket(h));
        struct raw_member hm = raw_join(honest, "whole", 0, 1);
        struct member late = member_open(h);
        tell(&late, 1000, PAGE_DONE, 1);
        resume(&late, "whole", 0, 1, 1);
        raw_expect(late.raw, late.join, STATUS_REPLICA_LOST);
        raw_expect(honest, raw_barrier(honest, &hm, "k"), STATUS_OK);
        member_close(&late);
        raw_close(honest);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* What a liar says of `k` in his group changes nothing in another one. */
START_TEST(P19_a_lie_reaches_no_further_than_its_group) {
        struct host *h = host_start(NULL);
        struct member liar[2], honest[2];
        for (uint32_t i = 0; i < 2; i++) {
                liar[i] = member_open(h);
                honest[i] = member_open(h);
                tell(&liar[i], 1000, PAGE_DONE, INT64_MAX);
                tell(&honest[i], 1000, PAGE_FREE, 0);
                resume(&liar[i], "liars", i, 2, INT64_MAX);
                resume(&honest[i], "honest", i, 2, 1);
        }
        for (uint32_t i = 0; i < 2; i++) {
                expect_joined(&honest[i], 1);
                expect_slot(&honest[i], 1000, PAGE_FREE, STATUS_OK);
                expect_joined(&liar[i], INT64_MAX);
                expect_slot(&liar[i], 1000, PAGE_DONE, STATUS_OK);
        }
        for (uint32_t i = 0; i < 2; i++) {
                member_close(&liar[i]);
                member_close(&honest[i]);
        }
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* Of one member no more than it can have. It is charged until the group is whole again or the liar goes. */
START_TEST(P18_who_tells_without_end_is_ejected) {
        static struct page_report reports[256];
        struct host *h = host_start(NULL);
        struct raw *r = raw_open(host_socket(h));
        for (uint32_t i = 0; i < 256; i++)
                reports[i] =
                        (struct page_report){ .request = i + 1, .has_key = true, .key = key_sequence(i) };
        const struct request pages = { .type = REQUEST_PAGES, .pages = { 256, reports } };
        for (int i = 0; i < 3 * STATUS_PAGE_SLOTS / 256 + 1; i++)
                raw_send(r, &pages);
        raw_expect_ejected(r, STATUS_LIMIT);
        raw_close(r);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* Who comes back and goes again before the group is whole is waited for, and may come once more. */
START_TEST(P9_a_member_that_goes_again_meanwhile_may_come_once_more) {
        struct host *h = host_start(NULL);
        struct member stays = member_open(h), last = member_open(h), goes = member_open(h);
        resume(&stays, "again", 0, 3, 4);
        tell(&goes, 1, PAGE_BEGUN, 7);
        resume(&goes, "again", 1, 3, 4);
        member_close(&goes);
        host_expect_sessions(h, 2);
        goes = member_open(h);
        resume(&goes, "again", 1, 3, 4);
        ck_assert(raw_is_silent(stays.raw, 0.1));
        resume(&last, "again", 2, 3, 4);
        expect_joined(&stays, 4);
        expect_joined(&goes, 4);
        expect_joined(&last, 4);
        member_close(&goes);
        member_close(&stays);
        member_close(&last);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

START_TEST(P17_numbers_without_a_successor_are_refused) {
        struct host *h = host_start(NULL);
        struct member m = member_open(h);
        resume(&m, "last", 0, 1, UINT64_MAX);
        const struct reply reply = raw_expect(m.raw, m.join, STATUS_INVALID);
        ck_assert_int_eq(reply.error->field, FIELD_MEMBERSHIP);
        member_close(&m);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("reconnect-lies", 60, P9_the_new_page_says_what_became_of_each_request,
        P9_numbers_of_collectives_go_on, P9_who_comes_too_late_is_told_and_harms_nobody,
        P19_a_lie_reaches_no_further_than_its_group, P18_who_tells_without_end_is_ejected,
        P9_a_member_that_goes_again_meanwhile_may_come_once_more, P17_numbers_without_a_successor_are_refused)
