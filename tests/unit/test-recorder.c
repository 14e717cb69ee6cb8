#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failing.h"
#include "made.h"
#include "recorder.h"

#define KIB UINT64_C(1024)
#define US  UINT64_C(1000)
#define MS  (1000 * US)

#define UID 1000

static const struct viewer own = { .uid = UID };

static struct quotas *quotas;
static struct recorder *recorder;

static void open_recorder(uint64_t recorder_bytes) {
        struct quota_limits limits = { .recorder_bytes = recorder_bytes };
        ck_assert_int_eq(quotas_new(&quotas, &limits), 0);
        ck_assert_int_eq(recorder_new(&recorder, quotas), 0);
}

/* Whatever happened: afterwards nobody is charged anything. */
static void close_recorder(void) {
        recorder_free(recorder);
        ck_assert_uint_eq(quota_total(quotas, QUOTA_RECORDER_BYTES), 0);
        ck_assert_uint_eq(quota_users(quotas), 0);
        quotas_free(quotas);
}

static uint64_t used(uint32_t uid) {
        return quota_used(quotas, uid, QUOTA_RECORDER_BYTES);
}

/* A collective in which all arrive at once, 1 us after the other. */
static void add_one(struct made *made, struct key key, uint64_t at_ns) {
        made_begin(made, key, 10);
        for (uint32_t rank = 0; rank < made->group.world_size; rank++)
                made_arrive(made, rank, at_ns + rank * US);
        recorder_add(recorder, made_done(made, at_ns + made->group.world_size * US, at_ns + MS));
}

static void add_many(struct made *made, uint64_t first, uint64_t n) {
        for (uint64_t i = 0; i < n; i++)
                add_one(made, key_sequence(first + i), (first + i) * MS);
}

static struct recording *find(const char *group) {
        return recorder_find(recorder, &(struct viewer){ .uid = UID }, "dp", group, RECORDER_NEWEST);
}

/* How many records there are; they must be numbered without a hole up to `last`, and `dropped` fits. */
static uint64_t count_records(struct recording *rec, uint64_t last) {
        struct row_record row;
        struct record_cursor cursor = { 0 };
        uint64_t n = 0, first = 0;
        while (recording_next(rec, &cursor, 0, &row)) {
                first = n == 0 ? row.key.sequence : first;
                ck_assert_uint_eq(row.key.sequence, first + n);
                ck_assert_uint_eq(row.dropped, first);
                n++;
        }
        ck_assert_uint_eq(first + n, last + 1);
        return n;
}

static bool is_shortened(struct recording *rec) {
        struct row_record row;
        struct record_cursor cursor = { 0 };
        ck_assert(recording_next(rec, &cursor, 0, &row));
        return row.shortened;
}

/* --- one record --- */

START_TEST(a_record_says_all_that_was) {
        struct made *made = made_new(7, UID, "train", 4);
        struct row_record row;
        struct record_cursor cursor = { 0 };
        open_recorder(64 * KIB);
        made->group.epoch = 3;
        made->group.next_number = 41;
        made_begin(made, made_key("grad/7"), 1000);
        made_arrive(made, 1, 50 * MS);
        made_arrive(made, 3, 50 * MS + 17);
        made_arrive(made, 0, 51 * MS);
        made_arrive(made, 2, 62 * MS);
        recorder_add(recorder, made_done(made, 62 * MS, 63 * MS));
        ck_assert(recording_next(find("train"), &cursor, 80 * MS, &row));
        ck_assert_str_eq(row.job, "dp");
        ck_assert_str_eq(row.group, "train");
        ck_assert_uint_eq(row.epoch, 3);
        ck_assert_uint_eq(row.collective, 42);
        struct key key = made_key("grad/7");
        ck_assert(key_is_equal(&row.key, &key));
        ck_assert_int_eq(row.kind, KIND_REDUCE);
        ck_assert_int_eq(row.op, OP_SUM);
        ck_assert_int_eq(row.dtype, DTYPE_F32);
        ck_assert_uint_eq(row.bytes, 4000);
        ck_assert_uint_eq(row.n_entries, 1);
        ck_assert_int_eq(row.status, STATUS_OK);
        ck_assert_uint_eq(row.age_ns, 30 * MS);
        ck_assert_uint_eq(row.sealed_ns, 12 * MS);
        ck_assert_uint_eq(row.done_ns, 13 * MS);
        struct rankset all = rankset_first(4);
        ck_assert(rankset_is_equal(&row.have, &all));
        ck_assert_uint_eq(row.last_rank, 2);
        ck_assert(!row.has_guilty);
        ck_assert_uint_eq(row.n_arrivals, 4);
        ck_assert_uint_eq(row.arrival_ns[0], MS);
        ck_assert_uint_eq(row.arrival_ns[1], 0);
        ck_assert_uint_eq(row.arrival_ns[2], 12 * MS);
        ck_assert_uint_eq(row.arrival_ns[3], 17);
        ck_assert_uint_eq(row.dropped, 0);
        ck_assert(!row.shortened);
        ck_assert(!recording_next(find("train"), &cursor, 80 * MS, &row));
        close_recorder();
        made_free(made);
}
END_TEST

/* --- growth, limits, charges --- */

START_TEST(a_ring_doubles_as_it_fills) {
        struct made *made = made_new(7, UID, "train", 4);
        uint64_t expected = 64 * KIB;
        open_recorder(64 * KIB * KIB);
        for (uint64_t i = 0; i < 4096; i++) {
                add_one(made, key_sequence(i), i * MS);
                if (used(UID) != expected)
                        expected *= 2;
                ck_assert_uint_eq(used(UID), expected);
        }
        ck_assert_uint_eq(expected, 256 * KIB); /* 4,096 records of some 40 bytes */
        ck_assert_uint_eq(count_records(find("train"), 4095), 4096);
        ck_assert(!is_shortened(find("train")));
        close_recorder();
        made_free(made);
}
END_TEST

START_TEST(more_than_4096_drop_the_oldest_and_are_not_shortened) {
        struct made *made = made_new(7, UID, "train", 2);
        open_recorder(64 * KIB * KIB);
        add_many(made, 0, 10000);
        ck_assert_uint_eq(count_records(find("train"), 9999), 4096);
        ck_assert(!is_shortened(find("train")));
        close_recorder();
        made_free(made);
}
END_TEST

START_TEST(one_mebibyte_is_the_end_of_growth_and_is_said) {
        struct made *made = made_new(7, UID, "train", 1024);
        open_recorder(64 * KIB * KIB);
        add_many(made, 0, 2000);
        ck_assert_uint_eq(used(UID), 1024 * KIB);
        uint64_t n = count_records(find("train"), 1999);
        ck_assert_uint_gt(n, 300);
        ck_assert_uint_lt(n, 2000);
        ck_assert(is_shortened(find("train")));
        close_recorder();
        made_free(made);
}
END_TEST

START_TEST(a_user_at_its_limit_loses_its_oldest_and_others_do_not_notice) {
        struct made *a = made_new(1, UID, "a", 8), *b = made_new(2, UID, "b", 8),
                    *c = made_new(3, 2000, "c", 8);
        open_recorder(128 * KIB);
        add_many(a, 0, 500);
        add_many(b, 0, 500);
        add_many(a, 500, 2500);
        add_many(b, 500, 2500);
        add_many(c, 0, 2000);
        ck_assert_uint_eq(used(UID), 128 * KIB);
        ck_assert_uint_eq(used(2000), 128 * KIB);
        uint64_t n_a = count_records(find("a"), 2999), n_b = count_records(find("b"), 2999);
        ck_assert_uint_gt(n_a, 900);
        ck_assert_uint_lt(n_a, 1500);
        ck_assert_uint_gt(n_b, 900);
        ck_assert(is_shortened(find("a")));
        ck_assert(is_shortened(find("b")));
        ck_assert_uint_eq(count_records(recorder_find(recorder, &(struct viewer){ .uid = 2000 }, "dp", "c",
                                                RECORDER_NEWEST),
                                  1999),
                2000);
        close_recorder();
        made_free(a);
        made_free(b);
        made_free(c);
}
END_TEST

START_TEST(a_user_without_bytes_has_no_record_and_no_harm) {
        struct made *made = made_new(1, UID, "a", 8);
        struct row_record row;
        struct record_cursor cursor = { 0 };
        open_recorder(1);
        add_many(made, 0, 10);
        ck_assert_uint_eq(used(UID), 0);
        ck_assert(!recording_next(find("a"), &cursor, 0, &row));
        recorder_end_group(recorder, &(struct recorder_end){ .group = 1, .now_ns = MS });
        ck_assert_ptr_null(find("a")); /* nothing was worth keeping */
        close_recorder();
        made_free(made);
}
END_TEST

START_TEST(after_warm_up_adding_allocates_nothing) {
        struct made *made = made_new(7, UID, "train", 4);
        open_recorder(64 * KIB * KIB);
        add_many(made, 0, 6000);
        failing_at(1);
        add_many(made, 6000, 6000);
        failing_at(0);
        ck_assert(!failing_has_failed());
        ck_assert_uint_eq(count_records(find("train"), 11999), 4096);
        close_recorder();
        made_free(made);
}
END_TEST

/* Up to `last` without a hole. A record that was lost with its recording was never counted. */
static void check_records_after_a_failure(struct recording *rec, uint64_t last) {
        struct row_record row = { .dropped = 0 };
        struct record_cursor cursor = { 0 };
        uint64_t n = 0, first = 0;
        for (; recording_next(rec, &cursor, 0, &row); n++) {
                first = n == 0 ? row.key.sequence : first;
                ck_assert_uint_eq(row.key.sequence, first + n);
        }
        ck_assert_uint_eq(first + n, last + 1);
        ck_assert_uint_ge(n, 3500);
        ck_assert_uint_ge(row.dropped + 1, first);
        ck_assert_uint_le(row.dropped, first);
}

START_TEST(short_memory_loses_records_and_nothing_else) {
        unsigned int n = 1;
        for (bool met = true; met; n++) {
                struct made *made = made_new(7, UID, "train", 4);
                open_recorder(64 * KIB * KIB);
                failing_at(n);
                add_many(made, 0, 5000);
                failing_at(0);
                met = failing_has_failed();
                check_records_after_a_failure(find("train"), 4999);
                ck_assert_uint_le(used(UID), 256 * KIB);
                close_recorder();
                made_free(made);
        }
        ck_assert_uint_gt(n, 6); /* a user, a recording, its table and three rings */
}
END_TEST

START_TEST(a_recorder_that_cannot_be_made_says_so) {
        struct quota_limits limits = { .recorder_bytes = 64 * KIB };
        ck_assert_int_eq(quotas_new(&quotas, &limits), 0);
        failing_at(1);
        ck_assert_int_eq(recorder_new(&recorder, quotas), -ENOMEM);
        failing_at(0);
        recorder_free(NULL);
        quotas_free(quotas);
}
END_TEST

/* --- ended groups --- */

START_TEST(C8_the_record_of_a_killed_replica_survives) {
        struct made *made = made_new(7, UID, "train", 4);
        struct row_record row;
        struct record_cursor cursor = { 0 };
        uint64_t n = 0;
        open_recorder(64 * KIB * KIB);
        add_many(made, 0, 64);
        made->group.members[1].state = MEMBER_LOST;
        made_begin(made, key_sequence(64), 10);
        for (uint32_t rank = 0; rank < 4; rank += 1 + (rank == 0))
                made_arrive(made, rank, 64 * MS);
        recorder_add(recorder, made_failed(made, STATUS_REPLICA_LOST, 1, 65 * MS));
        memset(&made->group, 0xa5, sizeof(made->group.job)); /* nobody looks at the group any more */
        recorder_end_group(recorder, &(struct recorder_end){ .group = 7, .now_ns = 66 * MS });
        while (recording_next(find("train"), &cursor, 70 * MS, &row)) {
                ck_assert_uint_eq(row.arrival_ns[1], n < 64 ? US : UINT64_MAX);
                n++;
        }
        ck_assert_uint_eq(n, 65);
        ck_assert_int_eq(row.status, STATUS_REPLICA_LOST);
        ck_assert_uint_eq(row.guilty_rank, 1);
        close_recorder();
        made_free(made);
}
END_TEST

START_TEST(ended_groups_are_listed) {
        struct made *a = made_new(1, UID, "a", 2), *b = made_new(2, UID, "b", 3);
        struct row_group row;
        open_recorder(64 * KIB * KIB);
        ck_assert_ptr_null(recorder_next_ended(recorder, &own, NULL, 0, &row));
        b->group.epoch = 4;
        add_many(a, 0, 3);
        add_many(b, 0, 5);
        made_begin(b, key_sequence(5), 1);
        recorder_add(recorder, made_failed(b, STATUS_ABORTED, 0, 9 * MS));
        recorder_end_group(recorder, &(struct recorder_end){ .group = 2, .now_ns = 10 * MS });
        recorder_end_group(recorder, &(struct recorder_end){ .group = 1, .now_ns = 11 * MS });
        recorder_end_group(
                recorder, &(struct recorder_end){ .group = 99, .now_ns = 11 * MS }); /* never recorded */
        struct recording *rec = recorder_next_ended(recorder, &own, NULL, 30 * MS, &row);
        ck_assert_str_eq(row.group, "b");
        ck_assert_str_eq(row.job, "dp");
        ck_assert_uint_eq(row.uid, UID);
        ck_assert_uint_eq(row.world_size, 3);
        ck_assert_uint_eq(row.epoch, 4);
        ck_assert_uint_eq(row.n_done, 5);
        ck_assert_uint_eq(row.n_failed, 1);
        ck_assert_uint_eq(row.age_ns, 20 * MS);
        ck_assert_uint_eq(row.last_done_age_ns, 21 * MS);
        ck_assert(row.ended);
        rec = recorder_next_ended(recorder, &own, rec, 30 * MS, &row);
        ck_assert_str_eq(row.group, "a");
        ck_assert_ptr_null(recorder_next_ended(recorder, &own, rec, 30 * MS, &row));
        close_recorder();
        made_free(a);
        made_free(b);
}
END_TEST

static void end_with(struct made *made, const struct row_member *members, uint32_t n) {
        recorder_end_group(recorder, &(struct recorder_end){ .group = made->group.id,
                                             .now_ns = 10 * MS,
                                             .n_bytes = 4096,
                                             .members = members,
                                             .n_members = n });
}

static const struct row_member two_members[] = {
        { .process = "train.py",
                .why = "",
                .rank = 0,
                .pid = 4711,
                .uid = UID,
                .state = PROCESS_DEAD,
                .lost = true,
                .loss = LOSS_DIED,
                .lost_age_ns = 2 * MS + 1,
                .n_submitted = 7,
                .n_last = 3,
                .n_joint = 6,
                .lateness_p50_ns = 10,
                .lateness_p99_ns = 11,
                .has_last = true,
                .last_age_ns = 3 * MS,
                .last_key = { .n_bytes = 3, .bytes = "g/7" } },
        { .process = "", .why = "it lied", .rank = 1, .lost_age_ns = 1 },
};

START_TEST(L1_who_the_members_were_is_kept) {
        struct made *made = made_new(7, UID, "train", 2);
        struct row_member m;
        struct row_group row;
        uint64_t cursor = 0;
        open_recorder(64 * KIB * KIB);
        made->group.on_death = ON_DEATH_SHRINK;
        made->group.epoch = 4;
        add_many(made, 0, 1);
        uint64_t before = used(UID);
        end_with(made, two_members, 2);
        ck_assert_uint_gt(used(UID), before);
        ck_assert_uint_lt(used(UID), before + 128);
        struct recording *rec = recorder_next_ended(recorder, &own, NULL, 30 * MS, &row);
        ck_assert_uint_eq(row.bytes, 4096);
        ck_assert_int_eq(row.on_death, ON_DEATH_SHRINK);
        ck_assert_uint_eq(recording_number(rec), 1);
        ck_assert(recording_next_member(rec, &cursor, 30 * MS, &m));
        ck_assert_str_eq(m.job, "dp");
        ck_assert_str_eq(m.group, "train");
        ck_assert_str_eq(m.process, "train.py");
        ck_assert_str_eq(m.busy, "");
        ck_assert_str_eq(m.waits, "");
        ck_assert_uint_eq(m.ended_epoch, 4);
        ck_assert_uint_eq(m.uid, UID);
        ck_assert_uint_eq(m.pid, 4711);
        ck_assert_int_eq(m.state, PROCESS_DEAD);
        ck_assert(m.lost);
        ck_assert_int_eq(m.loss, LOSS_DIED);
        ck_assert_uint_eq(m.lost_age_ns, 22 * MS + 1);
        ck_assert_uint_eq(m.n_submitted, 7);
        ck_assert_uint_eq(m.n_last, 3);
        ck_assert_uint_eq(m.n_joint, 6);
        ck_assert_uint_eq(m.lateness_p50_ns, 10);
        ck_assert_uint_eq(m.lateness_p99_ns, 11);
        ck_assert(m.has_last);
        ck_assert(key_is_equal(&m.last_key, &two_members[0].last_key));
        ck_assert_uint_eq(m.last_age_ns, 23 * MS);
        ck_assert(recording_next_member(rec, &cursor, 30 * MS, &m));
        ck_assert_uint_eq(m.rank, 1);
        ck_assert_str_eq(m.why, "it lied");
        ck_assert(!m.lost);
        ck_assert(!m.has_last);
        ck_assert_uint_gt(m.lost_age_ns, 0); /* it has left */
        ck_assert(!recording_next_member(rec, &cursor, 30 * MS, &m));
        close_recorder();
        made_free(made);
}
END_TEST

/* 1,024 members with the longest words there are. */
START_TEST(P18_members_are_charged_and_go_where_bytes_are_short) {
        static struct row_member members[MAX_WORLD];
        static char word[300];
        struct made *made = made_new(7, UID, "train", 2);
        struct row_member m;
        uint64_t cursor = 0;
        uint32_t n = 0;
        memset(word, 'w', sizeof(word) - 1);
        for (uint32_t rank = 0; rank < MAX_WORLD; rank++) {
                members[rank] = two_members[0];
                members[rank].rank = rank;
                members[rank].process = members[rank].why = word;
        }
        for (uint64_t limit = 64 * KIB; limit <= 1024 * KIB; limit *= 16) {
                open_recorder(limit);
                add_many(made, 0, 1);
                end_with(made, members, MAX_WORLD);
                ck_assert_uint_le(used(UID), limit);
                for (cursor = 0, n = 0; recording_next_member(find("train"), &cursor, 30 * MS, &m); n++) {
                        ck_assert_uint_eq(m.rank, n);
                        ck_assert_uint_eq(strlen(m.why), 127);
                }
                ck_assert_uint_eq(n, limit == 64 * KIB ? 0 : MAX_WORLD);
                close_recorder();
        }
        made_free(made);
}
END_TEST

START_TEST(C8_records_of_one_name_are_told_apart_by_their_epochs) {
        const struct recorder_name ours = { UID, "", "dp", "train" }, secret = { UID, "s", "dp", "train" };
        struct made *crashed = made_new(7, UID, "train", 2), *again = made_new(8, UID, "train", 2);
        open_recorder(64 * KIB * KIB);
        crashed->group.epoch = 1;
        add_many(crashed, 0, 3);
        crashed->group.epoch = 3;
        add_many(crashed, 3, 3);
        end_with(crashed, two_members, 2);
        ck_assert_uint_eq(recorder_last_epoch(recorder, &ours), 3);
        ck_assert_uint_eq(recorder_last_epoch(recorder, &secret), 0);
        again->group.epoch = 4;
        add_many(again, 0, 3);
        for (uint64_t epoch = 0; epoch < 6; epoch++) {
                const struct recording *rec = recorder_find(recorder, &own, "dp", "train", epoch);
                if (epoch == 5)
                        ck_assert_ptr_null(rec);
                else
                        ck_assert_uint_eq(recording_group(rec), epoch >= 1 && epoch <= 3 ? 7 : 8);
        }
        struct row_dump about = recording_describe(recorder_find(recorder, &own, "dp", "train", 2));
        ck_assert_uint_eq(about.first_epoch, 1);
        ck_assert_uint_eq(about.last_epoch, 3);
        ck_assert(about.ended);
        about = recording_describe(recorder_find_group(recorder, 8));
        ck_assert_uint_eq(about.first_epoch, 4);
        ck_assert(!about.ended);
        ck_assert_uint_eq(recorder_last_epoch(recorder, &ours), 4);
        close_recorder();
        made_free(crashed);
        made_free(again);
}
END_TEST

/* It neither counts among those that have ended, nor has bytes that another one had. */
START_TEST(a_brief_record_takes_the_place_of_none) {
        struct made *old = made_new(1, UID, "old", 2);
        open_recorder(128 * KIB);
        add_many(old, 0, 3);
        end_with(old, two_members, 2);
        for (uint64_t id = 2; id < 72; id++) {
                struct made *brief = made_new(id, UID, "brief", 2);
                brief->group.brief_record = true;
                add_many(brief, 0, 3000);
                ck_assert_ptr_nonnull(find("old"));
                ck_assert_ptr_eq(find("brief"), recorder_find_group(recorder, id));
                ck_assert(!recorder_keeps(recorder, id));
                end_with(brief, two_members, 2);
                ck_assert_ptr_null(find("brief"));
                made_free(brief);
        }
        ck_assert_uint_eq(count_records(find("old"), 2), 3);
        close_recorder();
        made_free(old);
}
END_TEST

static void add_ended(uint64_t id, uint32_t uid, const char *name) {
        struct made *made = made_new(id, uid, name, 2);
        add_many(made, 0, 1);
        recorder_end_group(recorder, &(struct recorder_end){ .group = id, .now_ns = id * MS });
        made_free(made);
}

static uint32_t count_ended_groups(uint32_t uid, const char *first) {
        struct row_group row;
        uint32_t n = 0;
        const struct viewer viewer = { .uid = uid };
        for (struct recording *rec = NULL; (rec = recorder_next_ended(recorder, &viewer, rec, 0, &row));)
                if (n++ == 0)
                        ck_assert_str_eq(row.group, first);
        return n;
}

START_TEST(ended_groups_go_when_their_bytes_are_needed) {
        struct made *living = made_new(10, UID, "living", 4);
        open_recorder(256 * KIB);
        add_ended(1, UID, "first");
        add_ended(2, 2000, "other");
        add_ended(3, UID, "second");
        add_ended(4, UID, "third");
        ck_assert_uint_eq(used(UID), 192 * KIB);
        add_many(living, 0, 1);
        ck_assert_uint_eq(count_ended_groups(UID, "first"), 3);
        add_many(living, 1, 2499); /* 128 KiB: one has to go */
        ck_assert_uint_eq(used(UID), 256 * KIB);
        ck_assert_uint_eq(count_ended_groups(UID, "second"), 2);
        add_many(living, 2500, 1596); /* 256 KiB: both */
        ck_assert_uint_eq(used(UID), 256 * KIB);
        ck_assert_uint_eq(count_ended_groups(UID, ""), 0);
        ck_assert_uint_eq(count_ended_groups(2000, "other"), 1);
        ck_assert_uint_eq(count_records(find("living"), 4095), 4096);
        close_recorder();
        made_free(living);
}
END_TEST

START_TEST(at_most_64_ended_groups_of_a_user_are_kept) {
        char name[16];
        open_recorder(64 * KIB * KIB);
        add_ended(1000, 2000, "other");
        for (uint64_t id = 1; id <= 100; id++) {
                snprintf(name, sizeof(name), "g%d", (int)id);
                add_ended(id, UID, name);
        }
        ck_assert_uint_eq(count_ended_groups(UID, "g37"), 64);
        ck_assert_uint_eq(count_ended_groups(2000, "other"), 1);
        ck_assert_uint_eq(used(UID), 4096 * KIB);
        close_recorder();
}
END_TEST

START_TEST(the_newest_of_a_name_is_found) {
        struct made *old = made_new(1, UID, "train", 2), *new = made_new(2, UID, "train", 3);
        struct row_record row;
        struct record_cursor cursor = { 0 };
        open_recorder(64 * KIB * KIB);
        ck_assert_ptr_null(find("train"));
        add_many(old, 0, 1);
        recorder_end_group(recorder, &(struct recorder_end){ .group = 1, .now_ns = MS });
        ck_assert_ptr_nonnull(find("train"));
        add_many(new, 0, 1);
        ck_assert(recording_next(find("train"), &cursor, 0, &row));
        ck_assert_uint_eq(row.n_arrivals, 3);
        recorder_end_group(recorder, &(struct recorder_end){ .group = 2, .now_ns = MS });
        cursor = (struct record_cursor){ 0 };
        ck_assert(recording_next(find("train"), &cursor, 0, &row));
        ck_assert_uint_eq(row.n_arrivals, 3);
        ck_assert_ptr_null(
                recorder_find(recorder, &(struct viewer){ .uid = 2000 }, "dp", "train", RECORDER_NEWEST));
        ck_assert_ptr_null(
                recorder_find(recorder, &(struct viewer){ .uid = UID }, "other", "train", RECORDER_NEWEST));
        ck_assert_ptr_null(
                recorder_find(recorder, &(struct viewer){ .uid = UID }, "dp", "trai", RECORDER_NEWEST));
        close_recorder();
        made_free(old);
        made_free(new);
}
END_TEST

/* --- reading while it goes on --- */

START_TEST(a_cursor_survives_what_is_added) {
        struct made *made = made_new(7, UID, "train", 4);
        struct row_record row;
        struct record_cursor cursor = { 0 };
        uint64_t added = 100, expected = 0;
        open_recorder(64 * KIB * KIB);
        add_many(made, 0, added);
        while (recording_next(find("train"), &cursor, 0, &row)) {
                ck_assert_uint_eq(row.key.sequence, expected++);
                if (added < 4000) /* grows twice meanwhile */
                        add_many(made, added, 37);
                added += added < 4000 ? 37 : 0;
        }
        ck_assert_uint_eq(expected, added);

        cursor = (struct record_cursor){ 0 };
        for (uint64_t i = 0; i < 10; i++)
                ck_assert(recording_next(find("train"), &cursor, 0, &row));
        add_many(made, added, 1000); /* what comes next is gone */
        ck_assert(recording_next(find("train"), &cursor, 0, &row));
        ck_assert_uint_eq(row.key.sequence, added + 1000 - 4096);
        ck_assert_uint_eq(row.dropped, added + 1000 - 4096);
        ck_assert_uint_eq(cursor.number, row.key.sequence + 1); /* which tells how many it has missed */
        ck_assert_uint_eq(recording_end(find("train")), added + 1000);
        close_recorder();
        made_free(made);
}
END_TEST

/* Random groups, keys, ends and limits; a list of all that was added says what must be there. */
static void run_random(unsigned int seed) {
        struct made *made[3] = { made_new(1, UID, "a", 1), made_new(2, UID, "b", 64),
                made_new(3, UID, "c", 300) };
        static uint8_t lengths[3][20000];
        uint64_t n_added[3] = { 0 };
        static const uint64_t limits[] = { 192 * KIB, 512 * KIB, 65536 * KIB };
        srandom(seed);
        open_recorder(limits[seed % 3]);
        for (int i = 0; i < 12000; i++) {
                int g = (int)(random() % 3);
                char name[MAX_KEY_BYTES];
                struct key key;
                uint64_t n = n_added[g]++;
                lengths[g][n] = (uint8_t)(1 + random() % MAX_KEY_BYTES);
                memset(name, 'a' + (int)(n % 26), sizeof(name));
                ck_assert(key_name(&key, name, lengths[g][n]));
                add_one(made[g], key, (uint64_t)random());
        }
        ck_assert_uint_le(used(UID), limits[seed % 3]);
        for (int g = 0; g < 3; g++) {
                struct recording *rec = find(made[g]->group.name);
                struct row_record row = { .dropped = 0 };
                struct record_cursor cursor = { 0 };
                uint64_t n = 0, first = 0;
                for (; recording_next(rec, &cursor, 0, &row); n++) {
                        first = row.dropped;
                        ck_assert_uint_eq(row.key.n_bytes, lengths[g][first + n]);
                        ck_assert_int_eq(row.key.bytes[0], 'a' + (int)((first + n) % 26));
                        ck_assert_uint_eq(row.collective, first + n + 1);
                        ck_assert_uint_eq(row.arrival_ns[row.n_arrivals - 1], (row.n_arrivals - 1) * US);
                }
                ck_assert_uint_eq(first + n, n_added[g]);
                ck_assert_int_eq(row.shortened, first > 0 && n < MAX_RECORDS);
        }
        close_recorder();
        for (int g = 0; g < 3; g++)
                made_free(made[g]);
}

START_TEST(random_collectives_are_the_end_of_a_list) {
        for (unsigned int seed = 1; seed <= 9; seed++)
                run_random(seed);
}
END_TEST

UNIT_MAIN("recorder", 20, a_record_says_all_that_was, a_ring_doubles_as_it_fills,
        more_than_4096_drop_the_oldest_and_are_not_shortened, one_mebibyte_is_the_end_of_growth_and_is_said,
        a_user_at_its_limit_loses_its_oldest_and_others_do_not_notice,
        a_user_without_bytes_has_no_record_and_no_harm, after_warm_up_adding_allocates_nothing,
        short_memory_loses_records_and_nothing_else, a_recorder_that_cannot_be_made_says_so,
        C8_the_record_of_a_killed_replica_survives, ended_groups_are_listed, L1_who_the_members_were_is_kept,
        P18_members_are_charged_and_go_where_bytes_are_short,
        C8_records_of_one_name_are_told_apart_by_their_epochs, a_brief_record_takes_the_place_of_none,
        ended_groups_go_when_their_bytes_are_needed, at_most_64_ended_groups_of_a_user_are_kept,
        the_newest_of_a_name_is_found, a_cursor_survives_what_is_added,
        random_collectives_are_the_end_of_a_list)
