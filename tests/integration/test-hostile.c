/* Clients that know the protocol and mean harm: beside them an honest group meets, with right results and
 * without waiting for them; afterwards everything is given back (P17, P18, P21). */
#include <stdio.h>
#include <unistd.h>
#include "meeting.h"
#include "raw.h"
#include "stage.h"
#include "unit.h"

static const struct request nothing = { .type = REQUEST_UNREGISTER, .buffer = 7 };

/* --- what a client makes tuttid hold --- */

START_TEST(P18_refused_registrations_are_charged) {
        struct stage s;
        stage_set(&s, (const char *[]){ "--set", "quota.descriptors=100", NULL });
        stage_expect_progress();
        struct raw *r = raw_open(host_socket(s.h));
        const struct request bad = { .type = REQUEST_REGISTER,
                .reg = { .size_bytes = 1, .access = ACCESS_IN, .kind = BUFFER_KIND_MEMFD, .device = "" } };
        struct request numbered = bad;
        for (uint64_t i = 1; i <= 1000; i++) {
                numbered.reg.buffer = i;
                raw_expect(r, raw_send(r, &numbered), STATUS_BAD_FD);
        }
        ck_assert_uint_eq(raw_used(r, "descriptors"), 100);
        raw_expect(r, raw_send(r, &(struct request){ .type = REQUEST_UNREGISTER, .buffer = 1 }), STATUS_OK);
        ck_assert_uint_eq(raw_used(r, "descriptors"), 99);
        raw_close(r);
        stage_clear(&s);
}
END_TEST

/* Memory for the entries of a large submission is charged before they come. */
START_TEST(P18_announced_entries_are_charged) {
        struct stage s;
        stage_set(&s, (const char *[]){ "--set", "quota.pending=1500", NULL });
        struct raw *a = raw_open(host_socket(s.h)), *b = raw_open(host_socket(s.h));
        const struct entry entry = raw_entry(1, 1);
        struct request large = raw_submit_request(&(struct raw_member){ 1, 1 }, "a", &entry);
        large.submit.signature.kind = KIND_BATCH_REDUCE;
        large.submit.signature.n_entries = MAX_ENTRIES;
        large.submit.more = true;
        raw_send(a, &large);
        raw_expect_used(b, "pending", MAX_ENTRIES / 64);
        large.request = b->next_request++;
        raw_expect(b, raw_send(b, &large), STATUS_NOT_FOUND); /* no such membership: rule 1 comes first */
        large.submit.more = false;                            /* ... and what else comes of it is dropped */
        raw_send(b, &large);
        raw_expect_used(b, "pending", MAX_ENTRIES / 64);
        struct raw_member m = raw_join(b, "alone", 0, 1);
        large.request = 0;
        large.submit.membership = m.membership;
        large.submit.more = true;
        raw_expect(b, raw_send(b, &large), STATUS_QUOTA);
        raw_close(a);
        raw_expect_used(b, "pending", 0);
        raw_close(b);
        stage_clear(&s);
}
END_TEST

START_TEST(P9_more_unfinished_submissions_than_the_page_has_slots_are_refused) {
        struct stage s;
        stage_set(&s, NULL);
        struct raw *a = raw_open(host_socket(s.h)), *b = raw_open(host_socket(s.h));
        struct request join = raw_join_request("pair", 0, 2);
        uint64_t first = raw_send(a, &join);
        struct raw_member mb = raw_join(b, "pair", 1, 2), ma = raw_joined(a, first);
        char key[16];
        for (int i = 0; i < STATUS_PAGE_SLOTS; i++) {
                snprintf(key, sizeof(key), "k%d", i);
                first = raw_barrier(a, &ma, key);
        }
        raw_expect(a, raw_barrier(a, &ma, "one more"), STATUS_LIMIT);
        const struct reply told = raw_expect(b, raw_barrier(b, &mb, "one more"), STATUS_EXPIRED);
        ck_assert_int_eq(told.error->cause, STATUS_PEER_REFUSED);
        raw_expect(b, raw_barrier(b, &mb, key), STATUS_OK);
        raw_expect(a, first, STATUS_OK);
        raw_expect(b, raw_barrier(b, &mb, "k0"), STATUS_OK);
        ck_assert(raw_is_silent(b, 0));
        uint64_t again = raw_barrier(a, &ma, "there is room again");
        raw_expect(b, raw_barrier(b, &mb, "there is room again"), STATUS_OK);
        raw_expect(a, again, STATUS_OK);
        raw_close(a);
        raw_close(b);
        stage_clear(&s);
}
END_TEST

/* --- questions --- */

static uint32_t count_rows(struct raw *r, uint64_t request, enum row_type type) {
        struct reply reply;
        uint32_t n = 0;
        do {
                ck_assert(raw_take(r, &reply));
                ck_assert_uint_eq(reply.request, request);
                ck_assert_int_eq(reply.status, STATUS_OK);
                for (uint32_t i = 0; i < reply.rows.n_rows; i++)
                        n += reply.rows.rows[i].type == type;
        } while (reply.more);
        return n;
}

START_TEST(a_group_can_be_asked_about_while_it_forms) {
        struct stage s;
        stage_set(&s, NULL);
        struct raw *r = raw_open(host_socket(s.h));
        const struct request join = raw_join_request("half", 1, 3);
        raw_send(r, &join);
        const struct reply reply = raw_expect(r, raw_query(r, WHAT_GROUPS, "test", "half"), STATUS_OK);
        ck_assert_uint_eq(reply.rows.n_rows, 4);
        ck_assert(reply.rows.rows[0].group.forming);
        for (uint32_t rank = 0; rank < 3; rank++) {
                const struct row_member *m = &reply.rows.rows[1 + rank].member;
                ck_assert_uint_eq(m->rank, rank);
                ck_assert_str_eq(m->group, "half");
                ck_assert_int_eq(m->state, rank == 1 ? PROCESS_ALIVE : PROCESS_ABSENT);
        }
        ck_assert_uint_eq(count_rows(r, raw_query(r, WHAT_STATS, "test", "half"), ROW_MEMBER), 3);
        raw_expect(r, raw_query(r, WHAT_STATUS, "", ""), STATUS_OK);
        raw_close(r);
        stage_clear(&s);
}
END_TEST

#define N_CROWDS 16

/* Sixteen groups of a thousand, by one connection. */
static void join_crowds(struct raw *r) {
        char name[16];
        for (int i = 0; i < N_CROWDS; i++) {
                uint64_t last = 0;
                snprintf(name, sizeof(name), "crowd %d", i);
                for (uint32_t rank = 0; rank < MAX_WORLD; rank++) {
                        const struct request join = raw_join_request(name, rank, MAX_WORLD);
                        last = raw_send(r, &join);
                }
                raw_expect(r, last, STATUS_OK);
        }
}

START_TEST(P21_long_answers_let_others_through) {
        struct stage s;
        struct raw *deaf[8];
        stage_set(&s, NULL);
        struct raw *r = raw_open(host_socket(s.h));
        join_crowds(r);
        watch_begin();
        for (size_t i = 0; i < ARRAY_SIZE(deaf); i++) { /* who never read theirs */
                deaf[i] = raw_open(host_socket(s.h));
                for (int k = 0; k < 10; k++)
                        raw_query(deaf[i], WHAT_GROUPS, "", "");
        }
        uint32_t n = count_rows(r, raw_query(r, WHAT_GROUPS, "", ""), ROW_MEMBER);
        ck_assert_uint_eq(n, N_CROWDS * MAX_WORLD + 2); /* and the honest ones */
        ck_assert_uint_eq(count_rows(r, raw_query(r, WHAT_STATS, "test", "crowd 3"), ROW_MEMBER), MAX_WORLD);
        watch_end(0.1);
        struct host_counters c;
        host_counters(s.h, &c);
        ck_assert_uint_eq(c.n_ejected, 0);
        for (size_t i = 0; i < ARRAY_SIZE(deaf); i++)
                raw_close(deaf[i]);
        raw_close(r);
        stage_clear(&s);
}
END_TEST

/* --- everything in the wrong state --- */

static enum status ask(struct raw *r, const struct request *request) {
        return raw_await(r, raw_send(r, request)).status;
}

static enum status leave(struct raw *r, const struct raw_member *m) {
        return ask(r, &(struct request){ .type = REQUEST_LEAVE, .membership = m->membership });
}

static enum status busy(struct raw *r, const struct raw_member *m, uint64_t duration_ns) {
        return ask(r, &(struct request){ .type = REQUEST_BUSY, .busy = { m->membership, "", duration_ns } });
}

static enum status abort_key(struct raw *r, const struct raw_member *m, const char *key) {
        return ask(r, &(struct request){ .type = REQUEST_ABORT,
                              .abort = { m->membership, true, raw_key(key), "for no reason" } });
}

static enum status submit(struct raw *r, const struct raw_member *m, const char *key, uint64_t buffer) {
        return raw_await(r, raw_submit(r, m, key, buffer, 16)).status;
}

START_TEST(P19_what_is_another_sessions_cannot_be_touched) {
        struct stage s;
        stage_set(&s, NULL);
        struct raw *a = raw_open(host_socket(s.h)), *b = raw_open(host_socket(s.h));
        struct raw_member ma = raw_join(a, "a", 0, 1), mb = raw_join(b, "b", 0, 1);
        raw_buffer(a, 1, raw_memfd(4096), 4096);
        for (uint64_t m = 0; m < 20; m++) { /* the honest ones' too */
                const struct raw_member foreign = { m, 1 };
                if (m == mb.membership)
                        continue;
                ck_assert_int_eq(leave(b, &foreign), STATUS_NOT_FOUND);
                ck_assert_int_eq(busy(b, &foreign, UINT64_MAX), STATUS_NOT_FOUND);
                ck_assert_int_eq(abort_key(b, &foreign, "a"), STATUS_NOT_FOUND);
                ck_assert_int_eq(submit(b, &foreign, "a", 1), STATUS_NOT_FOUND);
        }
        ck_assert_int_eq(submit(b, &mb, "a", 1), STATUS_NOT_FOUND); /* the buffer is a's */
        ck_assert_int_eq(ask(b, &nothing), STATUS_NOT_FOUND);
        ck_assert_int_eq(submit(a, &ma, "a", 1), STATUS_OK);
        raw_close(a);
        raw_close(b);
        stage_clear(&s);
}
END_TEST

START_TEST(a_membership_that_is_over_is_over) {
        struct stage s;
        stage_set(&s, NULL);
        struct raw *r = raw_open(host_socket(s.h));
        const struct request join = raw_join_request("a", 0, 1);
        struct raw_member m = raw_join(r, "a", 0, 1), old = { m.membership, m.epoch + 1 };
        ck_assert_int_eq(ask(r, &join), STATUS_BUSY);
        raw_buffer(r, 1, raw_memfd(4096), 4096);
        raw_expect(r, raw_register(r, 1, raw_memfd(8192), 8192), STATUS_LIMIT);
        ck_assert_int_eq(submit(r, &old, "a", 1), STATUS_REPLICA_LOST);
        ck_assert_int_eq(busy(r, &m, UINT64_MAX), STATUS_OK);
        ck_assert_int_eq(submit(r, &m, "a", 1), STATUS_OK);
        ck_assert_int_eq(leave(r, &m), STATUS_OK);
        ck_assert_int_ne(leave(r, &m), STATUS_OK);
        ck_assert_int_ne(submit(r, &m, "a", 1), STATUS_OK);
        ck_assert_int_ne(busy(r, &m, 1), STATUS_OK);
        ck_assert_int_ne(abort_key(r, &m, "a"), STATUS_OK);
        m = raw_join(r, "a", 0, 1); /* formed anew */
        ck_assert_int_eq(submit(r, &m, "a", 1), STATUS_OK);
        raw_send(r, &(struct request){ .type = REQUEST_GOODBYE });
        ck_assert_int_ne(submit(r, &m, "a", 1), STATUS_OK);
        m = raw_join(r, "b", 0, 1); /* a goodbye ends memberships, not words */
        ck_assert_int_eq(submit(r, &m, "a", 1), STATUS_OK);
        raw_close(r);
        stage_clear(&s);
}
END_TEST

START_TEST(P6_deadlines_of_any_size_are_deadlines) {
        static const uint64_t never[] = { 0, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63 };
        struct stage s;
        stage_set(&s, NULL);
        struct raw *a = raw_open(host_socket(s.h)), *b = raw_open(host_socket(s.h));
        struct request join = raw_join_request("pair", 0, 2);
        join.join.join_timeout_ns = UINT64_MAX;
        join.join.has_default_timeout = true;
        join.join.default_timeout_ns = 1;
        uint64_t first = raw_send(a, &join);
        struct raw_member mb = raw_join(b, "pair", 1, 2), ma = raw_joined(a, first);
        for (size_t i = 0; i < ARRAY_SIZE(never); i++) {
                struct request half = raw_submit_request(&ma, "never", NULL);
                half.submit.has_timeout = true;
                half.submit.timeout_ns = never[i];
                first = raw_send(a, &half);
                ck_assert(raw_is_silent(a, 0.05));
                raw_expect(b, raw_barrier(b, &mb, "never"), STATUS_OK);
                raw_expect(a, first, STATUS_OK);
        }
        raw_expect(a, raw_barrier(a, &ma, "soon"), STATUS_TIMEOUT);
        ck_assert_int_eq(busy(b, &mb, UINT64_MAX), STATUS_OK); /* stops that clock */
        first = raw_barrier(a, &ma, "busy");
        ck_assert(raw_is_silent(a, 0.05));
        ck_assert_int_eq(busy(b, &mb, 1), STATUS_OK);
        raw_expect(a, first, STATUS_TIMEOUT);
        join = raw_join_request("alone", 0, 2);
        join.join.join_timeout_ns = 1;
        raw_expect(a, raw_send(a, &join), STATUS_TIMEOUT);
        raw_close(a);
        raw_close(b);
        stage_clear(&s);
}
END_TEST

/* Whoever lets 4,096 collectives pass is out of step; nobody else is. */
START_TEST(P3_a_storm_of_keys_meets_the_limit_of_debts) {
        struct stage s;
        char key[16];
        stage_set(&s, NULL);
        struct raw *a = raw_open(host_socket(s.h)), *b = raw_open(host_socket(s.h));
        struct request join = raw_join_request("pair", 0, 2);
        join.join.on_death = ON_DEATH_SHRINK;
        uint64_t first = raw_send(a, &join);
        join.join.rank = 1;
        struct raw_member mb = raw_joined(b, raw_send(b, &join)), ma = raw_joined(a, first);
        for (int i = 0; i < 4096; i++) {
                snprintf(key, sizeof(key), "k%d", i);
                first = raw_barrier(a, &ma, key);
                ck_assert_int_eq(abort_key(a, &ma, key), STATUS_OK);
        }
        raw_expect_used(a, "pending", 4096);
        raw_expect(b, raw_barrier(b, &mb, "k0"), STATUS_EXPIRED); /* paid: there is room for one more */
        raw_barrier(a, &ma, "k0");
        ck_assert_int_eq(abort_key(a, &ma, "k0"), STATUS_OK);
        ck_assert(raw_is_silent(b, 0.05));
        raw_barrier(a, &ma, "last");
        ck_assert_int_eq(abort_key(a, &ma, "last"), STATUS_OK);
        raw_expect_ejected(b, STATUS_LIMIT);
        raw_expect_used(a, "pending", 0);
        raw_expect(a, raw_barrier(a, &ma, "k1"), STATUS_OK); /* it goes on alone */
        raw_close(a);
        raw_close(b);
        stage_clear(&s);
}
END_TEST

/* --- ending --- */

START_TEST(waiting_clients_do_not_keep_tuttid_from_ending) {
        struct host *h = host_start(NULL);
        struct raw *a = raw_open(host_socket(h)), *b = raw_open(host_socket(h));
        struct request join = raw_join_request("pair", 0, 2);
        uint64_t n = UINT64_C(4) << 20, first = raw_send(a, &join);
        struct raw_member mb = raw_join(b, "pair", 1, 2), ma = raw_joined(a, first);
        struct reply reply;
        join = raw_join_request("half", 0, 2);
        uint64_t half = raw_send(b, &join);
        raw_buffer(a, 1, raw_memfd(4 * n), 4 * n);
        raw_buffer(b, 1, raw_memfd(4 * n), 4 * n);
        uint64_t waits = raw_barrier(a, &ma, "waits"), runs = raw_submit(a, &ma, "runs", 1, n);
        raw_submit(b, &mb, "runs", 1, n);
        raw_expect(b, raw_query(b, WHAT_STATUS, "", ""), STATUS_OK);
        host_end(h);
        /* What ran has run to its end; what waited hears why it ends, and blames no other member. */
        int n_told = 0;
        while (raw_take(a, &reply)) {
                if (reply.request != runs && reply.request != waits)
                        continue;
                ck_assert_int_eq(reply.status, reply.request == runs ? STATUS_OK : STATUS_DRAINING);
                n_told++;
        }
        ck_assert_int_eq(n_told, 2);
        raw_expect(b, half, STATUS_DRAINING);
        raw_close(a);
        raw_close(b);
        host_stop(h);
}
END_TEST

UNIT_MAIN("hostile", 60, P18_refused_registrations_are_charged, P18_announced_entries_are_charged,
        P9_more_unfinished_submissions_than_the_page_has_slots_are_refused,
        a_group_can_be_asked_about_while_it_forms, P21_long_answers_let_others_through,
        P19_what_is_another_sessions_cannot_be_touched, a_membership_that_is_over_is_over,
        P6_deadlines_of_any_size_are_deadlines, P3_a_storm_of_keys_meets_the_limit_of_debts,
        waiting_clients_do_not_keep_tuttid_from_ending)
