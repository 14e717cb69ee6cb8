/* What tuttid remembers of those who come late and of those who die (C4 C8, L7). */
#include <poll.h>
#include <stdio.h>
#include <tutti/admin.h>
#include "meeting.h"
#include "raw.h"
#include "replica.h"
#include "unit.h"

static void end(struct replica *r) {
        replica_tell(r, "end");
        ck_assert_int_eq(replica_end(r, 10), 0);
}

/* --- C4: who comes late again and again --- */

#define N_LATE 300

static void come_late(struct replica *me) {
        struct floats f;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &f, 10);
        for (int i = 0; i < N_LATE; i++) {
                if (me->rank == 2)
                        seconds_sleep(0.005);
                floats_meet(g, NULL, &f, (float)i, 3.0F * (float)i);
        }
        replica_say(me, "done");
        replica_hear(me, "end");
}

static void expect_lateness(const struct tutti_row_member *m) {
        ck_assert_uint_eq(m->n_submitted, N_LATE);
        ck_assert_uint_eq(m->n_joint, N_LATE);
        printf("# C4: R%u last in %llu of %d, p50 %.2f ms\n", m->rank, (unsigned long long)m->n_last, N_LATE,
                (double)m->lateness_p50_ns / 1e6);
        if (m->rank == 2) {
                ck_assert_uint_ge(m->n_last, N_LATE * 95 / 100);
                ck_assert_uint_ge(m->lateness_p50_ns, 4000000);
                ck_assert_uint_lt(m->lateness_p50_ns, 8000000 * 10);
        } else {
                ck_assert_uint_lt(m->lateness_p50_ns, 4000000);
        }
}

static void expect_lateness_of_all(struct host *h) {
        struct tutti *t;
        struct tutti_answer *a;
        uint32_t n = 0;
        expect_status(tutti_open(host_socket(h), &t), TUTTI_OK);
        expect_status(tutti_admin_ask(t, TUTTI_ADMIN_STATS, "test", "train", &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++)
                if (a->rows[i].type == TUTTI_ROW_MEMBER) {
                        expect_lateness(&a->rows[i].member);
                        n++;
                }
        ck_assert_uint_eq(n, 3);
        tutti_answer_free(a);
        tutti_close(t);
}

START_TEST(C4_the_chronically_late_replica_is_named) {
        struct replica *r[3];
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, come_late, NULL, r);
        for (int i = 0; i < 3; i++)
                replica_expect(r[i], "done", 30);
        expect_lateness_of_all(h);
        for (int i = 0; i < 3; i++)
                end(r[i]);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- C8: the record outlives the culprit --- */

#define N_RECORDED 70

static void leave_a_record(struct replica *me) {
        struct floats f;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &f, 10);
        for (int i = 0; i < N_RECORDED; i++) {
                char key[16];
                snprintf(key, sizeof(key), "grad/%d", i);
                floats_meet(g, key, &f, 1, 3);
        }
        if (me->rank == 1) { /* its last message: a half that nobody meets any more */
                struct tutti_work *w;
                expect_status(
                        tutti_all_reduce_start(g, "last words", TUTTI_SUM, &f.value, &f.value, NULL, &w),
                        TUTTI_OK);
                replica_say(me, "waiting");
                replica_hear(me, "never");
        }
        replica_hear(me, "go");
        expect_status(tutti_all_reduce(g, "last words", TUTTI_SUM, &f.value, &f.value), TUTTI_REPLICA_LOST);
        replica_say(me, "heard");
        replica_hear(me, "end");
}

static void expect_record_of_success(const struct tutti_row_record *r, uint32_t i) {
        char key[16];
        snprintf(key, sizeof(key), "grad/%u", i);
        ck_assert_str_eq(r->key, key);
        ck_assert_int_eq(r->status, TUTTI_OK);
        ck_assert_int_eq(r->kind, TUTTI_KIND_REDUCE);
        ck_assert_int_eq(r->op, TUTTI_SUM);
        ck_assert_int_eq(r->dtype, TUTTI_F32);
        expect_ranks(&r->have, 0x7);
        ck_assert_uint_eq(r->n_arrivals, 3);
        ck_assert_uint_ne(r->arrival_ns[1], UINT64_MAX);
        ck_assert_int_eq(r->has_guilty, 0);
}

static void expect_last_record(const struct tutti_row_record *r) {
        ck_assert_str_eq(r->key, "last words");
        ck_assert_int_eq(r->status, TUTTI_REPLICA_LOST);
        ck_assert_int_eq(r->has_guilty, 1);
        ck_assert_uint_eq(r->guilty_rank, 1);
        ck_assert(tutti_ranks_has(&r->have, 1));
        ck_assert_uint_eq(r->arrival_ns[1], 0);
        ck_assert_uint_eq(r->sealed_ns, 0);
}

static void expect_records(struct host *h) {
        struct tutti *t;
        struct tutti_answer *a;
        uint32_t n = 0;
        expect_status(tutti_open(host_socket(h), &t), TUTTI_OK);
        expect_status(tutti_admin_ask(t, TUTTI_ADMIN_DUMP, "test", "train", &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++) {
                if (a->rows[i].type != TUTTI_ROW_RECORD)
                        continue;
                if (n < N_RECORDED)
                        expect_record_of_success(&a->rows[i].record, n);
                else
                        expect_last_record(&a->rows[i].record);
                n++;
        }
        ck_assert_uint_eq(n, N_RECORDED + 1);
        tutti_answer_free(a);
        tutti_close(t);
}

START_TEST(C8_L7_the_dump_holds_the_collectives_of_the_dead) {
        struct replica *r[3];
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, leave_a_record, NULL, r);
        replica_expect(r[1], "waiting", 10);
        replica_kill9(r[1]);
        replica_tell(r[0],
                "go"); /* both at once might be there before the death is seen, and it would be sealed */
        replica_expect(r[0], "heard", 10);
        replica_tell(r[2], "go");
        replica_expect(r[2], "heard", 10);
        expect_records(h);
        end(r[0]);
        end(r[2]);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- L7: a dump that is slower than its group --- */

#define N_KEPT 4096
/* The names make records long, so that many packets take them. */
#define LONG_KEY                                                                                             \
        "01234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567" \
        "89"

static void go_on(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        for (int n = 0; n < 2; n++) {
                for (int i = 0; i < N_KEPT + 100; i++)
                        expect_status(tutti_barrier(g, LONG_KEY), TUTTI_OK);
                replica_say(me, "more");
                replica_hear(me, n ? "end" : "more");
        }
        tutti_group_free(g);
}

struct told {
        uint64_t n_records, n_missed, last, n_ends, missed_of_all;
};

static void take_row(const struct row *row, struct told *told) {
        const struct row_record *r = &row->record;
        if (row->type == ROW_DUMP) {
                told->n_ends++;
                told->missed_of_all = row->dump.missed;
                return;
        }
        ck_assert_int_eq(row->type, ROW_RECORD);
        ck_assert_uint_eq(told->n_ends, 0);
        if (told->n_records++ > 0)
                ck_assert_uint_eq(r->collective, told->last + r->missed + 1);
        told->n_missed += r->missed;
        told->last = r->collective;
}

static struct told take_dump(struct raw *r) {
        struct told told = { 0 };
        struct reply reply;
        do {
                ck_assert(raw_take(r, &reply));
                ck_assert_int_eq(reply.status, STATUS_OK);
                for (uint32_t i = 0; i < reply.rows.n_rows; i++)
                        take_row(&reply.rows.rows[i], &told);
        } while (reply.more);
        return told;
}

/* Who asks does not read while as many collectives end as a group has records of: all that was not told by
 * then is overwritten. */
START_TEST(L7_a_dump_names_what_was_overwritten_before_it_was_told) {
        struct host *h = host_start(NULL);
        struct replica *r = replica_spawn(h, &(struct replica_options){ .n = 1, .body = go_on });
        replica_expect(r, "more", 30);
        struct raw *asker = raw_open(host_socket(h));
        raw_query(asker, WHAT_DUMP, "test", "train");
        struct pollfd answered = { .fd = asker->fd, .events = POLLIN };
        ck_assert_int_eq(poll(&answered, 1, 10000), 1);
        replica_tell(r, "more");
        replica_expect(r, "more", 30);
        const struct told told = take_dump(asker);
        printf("# %llu records were told, %llu were overwritten before\n", (unsigned long long)told.n_records,
                (unsigned long long)told.missed_of_all);
        ck_assert_uint_eq(told.n_ends, 1);
        ck_assert_uint_gt(told.missed_of_all, 0);
        ck_assert_uint_le(told.n_missed, told.missed_of_all);
        ck_assert_uint_eq(told.n_records + told.missed_of_all, N_KEPT);
        /* Of a group that stands still none is missing. */
        raw_query(asker, WHAT_DUMP, "test", "train");
        const struct told whole = take_dump(asker);
        ck_assert_uint_eq(whole.n_records, N_KEPT);
        ck_assert_uint_eq(whole.missed_of_all, 0);
        raw_close(asker);
        end(r);
        host_stop(h);
}
END_TEST

UNIT_MAIN("evidence", 30, C4_the_chronically_late_replica_is_named,
        C8_L7_the_dump_holds_the_collectives_of_the_dead,
        L7_a_dump_names_what_was_overwritten_before_it_was_told)
