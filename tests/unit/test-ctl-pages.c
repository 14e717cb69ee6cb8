/* The pages of tuttictl as people read them, and the exit codes that go with them. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ctl.h"
#include "ctl-answers.h"
#include "ctl-sheet.h"
#include "rows.h"
#include "status.h"
#include "unit.h"
#include "views.h"

static const struct tutti_answer status_answer = { sizeof(status_rows) / sizeof(*status_rows), status_rows };
static const struct tutti_answer stats_answer = { sizeof(stats_rows) / sizeof(*stats_rows), stats_rows };
static const struct tutti_answer quota_answer = { sizeof(quota_rows) / sizeof(*quota_rows), quota_rows };
static const struct tutti_answer record_answer = { sizeof(record_rows) / sizeof(*record_rows), record_rows };
static const struct tutti_answer empty;

START_TEST(status_shows_who_is_missing_first) {
        struct sheet s;

        sheet_open(&s);
        status_print(&(struct status_view){ &status_answer, &stats_answer }, &s.page);
        sheet_expect(&s, "tuttid 0.1.0   up 3 d 04:11   CPU:0-1 (4 workers, AVX-512)   23 clients\n"
                         "         5 groups\n"
                         "\n"
                         "STALLED  dp/train       reduce \"grad/7\"  waiting 12.4 s  have R0 R1 R2  +2 more\n"
                         "  MISSING R3 (pid 4711, alive, stopped; last finished \"grad/6\" 12.5 s ago)\n"
                         "FAILED   dp/broken      on_death=fail, and lost: R1 (pid 5001, died 4.0 s ago)\n"
                         "forming  dp/new         2 of 8 have joined in 3.0 s, not yet R2-R7\n"
                         "waiting  slow/job/save  barrier #17  waiting 2.0 s  have R1\n"
                         "  MISSING R0 (pid ?, alive, busy: checkpoint; finished nothing yet)\n"
                         "ok       dp/eval        412 ops/s  1.8 GiB/s  latest R5 (+300 us p50)\n"
                         "  HOLDING R2 (pid 4002, stopped) holds 2 results of \"sums\", oldest 12.3 s; 0 of\n"
                         "          2 free\n"
                         "  HOLDING R4 (pid ?, alive) holds 1 result of \"sums\", oldest 1 ms; 0 of 2 free\n"
                         "memory   pid 4711: 2 buffers of GPU:1, 6 MiB, by vmm-fd\n"
                         "memory   1 buffer of GPU:1, 3 MiB, by host-copy: legacy handles are off\n"
                         "fallback host: unguarded: userfaultfd is denied (EPERM)\n"
                         "fallback dp/eval: NCCL was asked for, but host devices have no library;\n"
                         "         one_device does it: 41,200 times, last reduce \"grad\" 300 ms ago\n"
                         "fallback dp/eval: other reasons than these: 1 time, last batch_reduce #8 2.0 s\n"
                         "         ago\n"
                         "1 stalled. `tuttictl dump dp/train` shows its last collectives.\n");
}
END_TEST

START_TEST(status_is_stalled_while_a_group_is) {
        const struct status_view v = { &status_answer, &stats_answer }, none = { &empty, &empty };

        ck_assert_uint_eq(status_count_stalled(&v), 1);
        ck_assert_uint_eq(status_count_stalled(&none), 0);
}
END_TEST

START_TEST(status_of_nothing_says_so) {
        struct sheet s;

        sheet_open(&s);
        status_print(&(struct status_view){ &empty, NULL }, &s.page);
        sheet_expect(&s, "\nNo groups of yours.\n");
}
END_TEST

START_TEST(P5_status_and_groups_show_who_waits_for_a_new_epoch) {
        struct tutti_row rows[] = {
                { .type = TUTTI_ROW_GROUP,
                        .group = { .job = "dp",
                                .group = "g",
                                .world_size = 4,
                                .n_alive = 2,
                                .epoch = 3,
                                .failed = 1,
                                .age_ns = S,
                                .n_waiting = 2,
                                .awaited = RANKS(0xa) } },
                MEMBER("g", "train", "", .rank = 0, .pid = 50, .state = TUTTI_ALIVE, .last_key = "",
                        .waits = "rejoin", .waits_age_ns = 2 * S),
        };
        struct tutti_answer a = ANSWER(rows);
        struct sheet s;

        sheet_open(&s);
        status_print(&(struct status_view){ &a, &a }, &s.page);
        sheet_expect(&s, "\nFAILED   dp/g  on_death=fail  2 wait for a new epoch, missing R1 R3\n");
        sheet_open(&s);
        groups_print(&a, &s.page);
        sheet_expect(&s, "FAILED   dp/g  epoch 3  2 of 4  on_death=fail  0 done  0 bytes\n"
                         "         2 wait for a new epoch, missing R1 R3  since 1.0 s\n"
                         "  R0     pid 50  alive, waits in rejoin for 2.0 s  train\n");
}
END_TEST

/* Nine are missing, eight of them reported; a second collective waits longer than the first of the answer. */
START_TEST(status_names_missing_ranks_without_report_too) {
        struct tutti_replica replicas[8];
        struct tutti_row rows[3] = {
                { .type = TUTTI_ROW_GROUP,
                        .group = { .job = "j", .group = "g", .stalled = 1, .n_pending = 2 } },
                { .type = TUTTI_ROW_PENDING,
                        .pending = { .job = "j",
                                .group = "g",
                                .key = "b",
                                .kind = TUTTI_KIND_BARRIER,
                                .age_ns = 6 * S } },
                { .type = TUTTI_ROW_PENDING,
                        .pending = { .job = "j",
                                .group = "g",
                                .key = "a",
                                .kind = TUTTI_KIND_BARRIER,
                                .age_ns = 7 * S,
                                .have = RANKS(1),
                                .missing = RANKS(0x1ffe),
                                .n_replicas = 8,
                                .replicas = replicas,
                                .stalled = 1 } }
        };
        struct sheet s;

        for (uint32_t i = 0; i < 8; i++)
                replicas[i] = (struct tutti_replica){ .rank = i + 1, .pid = i + 10, .state = TUTTI_ALIVE };
        sheet_open(&s);
        status_print(&(struct status_view){ &(struct tutti_answer){ 3, rows }, NULL }, &s.page);
        sheet_expect(&s, "\n"
                         "STALLED  j/g  barrier \"a\"  waiting 7.0 s  have R0  +1 more\n"
                         "  MISSING R1 (pid 10, alive; finished nothing yet)\n"
                         "          R2 (pid 11, alive; finished nothing yet)\n"
                         "          R3 (pid 12, alive; finished nothing yet)\n"
                         "          R4 (pid 13, alive; finished nothing yet)\n"
                         "          R5 (pid 14, alive; finished nothing yet)\n"
                         "          R6 (pid 15, alive; finished nothing yet)\n"
                         "          R7 (pid 16, alive; finished nothing yet)\n"
                         "          R8 (pid 17, alive; finished nothing yet)\n"
                         "          and R9-R12\n"
                         "1 stalled. `tuttictl dump j/g` shows its last collectives.\n");
}
END_TEST

START_TEST(groups_show_their_replicas) {
        struct tutti_row rows[sizeof(status_rows) / sizeof(*status_rows) +
                              sizeof(stats_rows) / sizeof(*stats_rows) + 1];
        uint32_t n = 0;
        struct sheet s;

        for (size_t i = 0; i < sizeof(status_rows) / sizeof(*status_rows); i++)
                if (status_rows[i].type == TUTTI_ROW_GROUP)
                        rows[n++] = status_rows[i];
        rows[n++] = (struct tutti_row){ .type = TUTTI_ROW_GROUP,
                .group = { .job = "old",
                        .group = "run",
                        .world_size = 2,
                        .epoch = 1,
                        .n_done = 5,
                        .bytes = 8192,
                        .age_ns = 12 * S,
                        .ended = 1 } };
        for (size_t i = 0; i < sizeof(stats_rows) / sizeof(*stats_rows); i++)
                if (stats_rows[i].type == TUTTI_ROW_MEMBER)
                        rows[n++] = stats_rows[i];
        sheet_open(&s);
        groups_print(&(struct tutti_answer){ n, rows }, &s.page);
        sheet_expect(&s, "ok       dp/eval  epoch 1  6 of 6  on_death=fail  41,200 done  190 GiB\n"
                         "         since 1 min 40 s\n"
                         "  R0     pid 4000  alive  last #8 2 ms ago  8 MiB in 3 buffers  train.py\n"
                         "  R5     pid 4005  alive  last #8 2 ms ago  4 KiB in 1 buffer  train.py\n"
                         "STALLED  dp/train  epoch 3  4 of 4  on_death=fail  7 done  2 failed  3 pending\n"
                         "         1 debt  28 KiB  since 20.0 s\n"
                         "  R3     pid 4711  stopped  last \"grad/6\" 12.5 s ago  train.py\n"
                         "ok       slow/job/save  epoch 1  2 of 2  on_death=fail  0 done  1 pending\n"
                         "         0 bytes  since 9.0 s\n"
                         "FAILED   dp/broken  epoch 1  2 of 3  on_death=fail  9 done  0 bytes\n"
                         "         since 1 min 00 s\n"
                         "  R0     pid 5000  alive  train.py\n"
                         "  R1     pid 5001  died 4.0 s ago  train.py\n"
                         "  R2     pid 5002  left 2.0 s ago  train.py\n"
                         "forming  dp/new  epoch 0  2 of 8  on_death=shrink  0 done  0 bytes  since 3.0 s\n"
                         "  R0     pid 6000  alive  train.py\n"
                         "  R1     pid ?  alive, busy: loading data  train.py\n"
                         "  R2     has not joined\n"
                         "ended    old/run  epoch 1  12.0 s ago  world of 2  on_death=fail  5 done  8 KiB\n");
}
END_TEST

/* Three lives of one group: the first crashed, the second ended, the third is there. */
static struct tutti_row lives[] = {
        { .type = TUTTI_ROW_GROUP,
                .group = { .job = "dp",
                        .group = "train",
                        .world_size = 2,
                        .n_alive = 2,
                        .epoch = 4,
                        .n_done = 1,
                        .age_ns = S } },
        { .type = TUTTI_ROW_GROUP,
                .group = { .job = "dp",
                        .group = "train",
                        .world_size = 2,
                        .epoch = 2,
                        .n_done = 5,
                        .n_failed = 1,
                        .bytes = 8192,
                        .age_ns = 9 * S,
                        .ended = 1 } },
        MEMBER("train", "train.py", "", .rank = 1, .pid = 41, .state = TUTTI_DEAD, .last_key = "g/6",
                .last_age_ns = 10 * S, .lost = 1, .loss = TUTTI_DIED, .lost_age_ns = 10 * S,
                .ended_epoch = 2),
        { .type = TUTTI_ROW_GROUP,
                .group = { .job = "dp",
                        .group = "train",
                        .world_size = 2,
                        .epoch = 3,
                        .n_done = 5,
                        .age_ns = 4 * S,
                        .ended = 1 } },
        MEMBER("train", "train.py", "", .rank = 1, .pid = 51, .state = TUTTI_ALIVE, .last_key = ""),
};
static const struct tutti_answer lives_answer = ANSWER(lives);

START_TEST(C8_groups_say_how_the_record_of_an_older_life_is_read) {
        struct sheet s;

        sheet_open(&s);
        groups_print(&lives_answer, &s.page);
        sheet_expect(&s, "ok       dp/train  epoch 4  2 of 2  on_death=fail  1 done  0 bytes  since 1.0 s\n"
                         "  R1     pid 51  alive  train.py\n"
                         "ended    dp/train  epoch 2  9.0 s ago  world of 2  on_death=fail  5 done\n"
                         "         1 failed  8 KiB\n"
                         "         `tuttictl dump --epoch 2 dp/train` reads its record\n"
                         "  R1     pid 41  died 10.0 s ago  last \"g/6\" 10.0 s ago  train.py\n"
                         "ended    dp/train  epoch 3  4.0 s ago  world of 2  on_death=fail  5 done\n"
                         "         0 bytes\n"
                         "         `tuttictl dump --epoch 3 dp/train` reads its record\n");
}
END_TEST

START_TEST(L1_the_dump_of_an_older_life_names_its_replicas) {
        struct tutti_row_dump about = { .first_epoch = 1, .last_epoch = 2, .ended = 1 };
        const struct tutti_row_group *life = rows_find_life(&lives_answer, "dp", "train", &about);
        struct sheet s;

        ck_assert_ptr_eq(life, &lives[1].group);
        about.last_epoch = 3;
        ck_assert_ptr_eq(rows_find_life(&lives_answer, "dp", "train", &about), &lives[3].group);
        about.last_epoch = 4; /* it has ended since */
        ck_assert_ptr_eq(rows_find_life(&lives_answer, "dp", "train", &about), &lives[0].group);
        about.last_epoch = 5;
        ck_assert_ptr_null(rows_find_life(&lives_answer, "dp", "train", &about));
        about = (struct tutti_row_dump){ .first_epoch = 4, .last_epoch = 4 };
        ck_assert_ptr_eq(rows_find_life(&lives_answer, "dp", "train", &about), &lives[0].group);
        ck_assert_ptr_null(rows_find_life(&lives_answer, "dp", "train", NULL));
        sheet_open(&s);
        dump_print(&(struct dump_view){ &empty, &lives_answer, "dp", "train", "host1", 0, life }, &s.page);
        sheet_expect(&s, "dp/train on host1, ended 9.0 s ago: 0 collectives\n"
                         "other records of this name: --epoch 4, --epoch 3\n"
                         "  R1     pid 41  died 10.0 s ago  last \"g/6\" 10.0 s ago  train.py\n");
}
END_TEST

START_TEST(what_is_not_known_of_an_ended_group_is_said) {
        struct sheet s;

        sheet_open(&s);
        replicas_print(&lives_answer, &lives[3].group, &s.page);
        sheet_expect(&s, "dp/train (epoch 3) has ended, 4.0 s ago: 5 done, 0 bytes\n"
                         "Who its replicas were is not known any more. What it did:\n"
                         "  `tuttictl dump --epoch 3 dp/train`\n");
        sheet_open(&s);
        stats_print_ended(&lives_answer, &lives[1].group, &s.page);
        sheet_expect(&s, "dp/train (epoch 2) has ended, 9.0 s ago: 5 done, 1 failed, 8 KiB\n"
                         "Its counters have ended with it. What it did last:\n"
                         "  `tuttictl dump --epoch 2 dp/train`\n"
                         "  `tuttictl trace --epoch 2 dp/train`\n"
                         "  replica           joint last in     share  late p50      p99\n"
                         "  R1                    0       0         -      0 ns     0 ns\n");
}
END_TEST

START_TEST(P5_status_and_health_name_whom_a_group_does_without) {
        struct tutti_row rows[] = {
                { .type = TUTTI_ROW_GROUP,
                        .group = { .job = "sh",
                                .group = "s",
                                .world_size = 12,
                                .n_alive = 2,
                                .epoch = 1,
                                .n_done = 10,
                                .on_death = TUTTI_SHRINK,
                                .age_ns = S } },
                MEMBER("s", "", "", .rank = 0),
                MEMBER("s", "", "", .rank = 1),
                MEMBER("s", "", "", .rank = 2),
                MEMBER("s", "", "", .rank = 3),
                MEMBER("s", "", "", .rank = 4),
                MEMBER("s", "", "", .rank = 5),
                MEMBER("s", "", "", .rank = 6),
                MEMBER("s", "", "", .rank = 7),
                MEMBER("s", "", "", .rank = 8),
                MEMBER("s", "", "", .rank = 9),
        };
        struct tutti_answer a = ANSWER(rows);
        const struct health_view v = { &a, &a, &empty };
        struct sheet s;

        for (uint32_t i = 1; i < a.n_rows; i++) {
                rows[i].member.job = "sh";
                rows[i].member.last_key = "";
                rows[i].member.pid = 10 + i;
        }
        rows[3].member.lost = 1;
        rows[3].member.loss = TUTTI_DIED;
        rows[3].member.lost_age_ns = 12 * S;
        sheet_open(&s);
        status_print(&(struct status_view){ &a, &a }, &s.page);
        sheet_expect(&s, "\n"
                         "ok       sh/s  2 of 12  lost: R2 (pid 13, died 12.0 s ago)  10 ops/s  0 bytes/s\n");
        sheet_open(&s);
        health_print(&v, &s.page);
        sheet_expect(&s, "well     \n"
                         "note     sh/s goes on with 2 of 12; lost: R2 (pid 13, died 12.0 s ago)\n");
        for (uint32_t i = 2; i < a.n_rows; i++) {
                rows[i].member.lost = 1;
                rows[i].member.lost_age_ns = S;
        }
        struct line l = { 0 };
        ck_assert_uint_eq(line_add_losses(&l, &a, &rows[0].group, " lost:"), 9);
        ck_assert_ptr_nonnull(strstr(l.s, " R8 "));
        ck_assert_ptr_null(strstr(l.s, " R9 "));
        ck_assert_ptr_nonnull(strstr(l.s, " and 1 more"));
}
END_TEST

START_TEST(health_lists_the_worst_first) {
        const struct health_view v = { &status_answer, &stats_answer, &quota_answer };
        struct sheet s;

        sheet_open(&s);
        health_print(&v, &s.page);
        sheet_expect(&s,
                "stalled  dp/train: reduce \"grad/7\" has waited 12.4 s for R3 (pid 4711, alive, stopped; "
                "last finished \"grad/6\" 12.5 s ago)\n"
                "warning  dp/broken has lost a replica (on_death=fail) and takes no more collectives\n"
                "warning  dp/train: R3 (pid 4711) is stopped; `kill -CONT 4711` lets it go on\n"
                "warning  uid 1000 uses 250 of its 256 connections\n"
                "note     host: unguarded: userfaultfd is denied (EPERM)\n"
                "note     dp/eval: NCCL was asked for, but host devices have no library; one_device does "
                "it: 41,200 times, last reduce \"grad\" 300 ms ago\n"
                "note     dp/eval: other reasons than these: 1 time, last batch_reduce #8 2.0 s ago\n");
        ck_assert_int_eq(health_level(&v), HEALTH_STALLED);
}
END_TEST

START_TEST(one_that_has_left_may_stop) {
        const struct tutti_row stays[] = { MEMBER(
                "train", "", "", .pid = 7, .state = TUTTI_STOPPED, .last_key = "") },
                               left[] = { MEMBER("train", "", "", .pid = 7, .state = TUTTI_STOPPED,
                                       .last_key = "", .lost_age_ns = 2 * S) };
        const struct tutti_answer one = ANSWER(stays), gone = ANSWER(left);
        ck_assert_int_eq(health_level(&(struct health_view){ &empty, &one, &empty }), HEALTH_WARNING);
        ck_assert_int_eq(health_level(&(struct health_view){ &empty, &gone, &empty }), HEALTH_WELL);
}
END_TEST

START_TEST(health_exits_by_the_worst_finding) {
        struct tutti_row rows[] = { DAEMON_ROW, DEVICE_ROW("CPU:0", 1, "self-test failed") };
        const struct tutti_answer one = { 1, rows }, two = { 2, rows };
        struct sheet s;

        ck_assert_int_eq(health_exit(HEALTH_NOTE), CTL_WELL);
        ck_assert_int_eq(health_exit(HEALTH_WARNING), CTL_WARNING);
        ck_assert_int_eq(health_exit(HEALTH_STALLED), CTL_WARNING);
        ck_assert_int_eq(health_exit(HEALTH_FAILING), CTL_FAILING);
        ck_assert_int_eq(health_level(&(struct health_view){ &two, &empty, &empty }), HEALTH_FAILING);
        ck_assert_int_eq(health_level(&(struct health_view){ &one, &empty, &empty }), HEALTH_WELL);
        rows[0].daemon.draining = 1;
        ck_assert_int_eq(health_level(&(struct health_view){ &one, &empty, &empty }), HEALTH_WARNING);
        rows[0].daemon.draining = 0;
        sheet_open(&s);
        health_print(&(struct health_view){ &one, &empty, &empty }, &s.page);
        sheet_expect(&s, "well     tuttid 0.1.0, up 3 d 04:11, 5 groups; nothing stands still\n");
}
END_TEST

/* C4: who keeps the others waiting is seen at once. */
START_TEST(stats_show_who_comes_last_C4) {
        struct sheet s;

        sheet_open(&s);
        stats_print(&stats_answer, &s.page);
        sheet_expect(&s,
                "tuttid 0.1.0   up 3 d 04:11   1,234,567 done   3 failed   2 refused   1 ejected\n"
                "         1.5 GiB mapped\n"
                "\n"
                "dp/eval\n"
                "  kind               done  failed     bytes  wait p50      p99  run p50      p99\n"
                "  reduce           41,200       2   190 GiB    300 us   2.1 ms    12 us    30 us\n"
                "  batch_reduce          1       0  17 bytes      1 ms     1 ms   900 ns   900 ns\n"
                "  op and size                        done    GB/s            p50      p99     p999\n"
                "  reduce MEAN to 64 KiB            41,200     340  wait   300 us   2.1 ms     4 ms\n"
                "                                                   run     12 us    30 us    50 us\n"
                "  batch_reduce SUM over 256 MiB         1       -  wait     0 ns     0 ns     0 ns\n"
                "                                                   run      0 ns     0 ns     0 ns\n"
                "  replica           joint last in     share  late p50      p99\n"
                "  R0               41,201     824       2 %     10 us    90 us\n"
                "  R5               41,201  40,377      98 %    300 us     2 ms\n"
                "\n"
                "dp/train\n"
                "  nothing finished yet\n"
                "\n"
                "dp/broken\n"
                "  nothing finished yet\n"
                "\n"
                "dp/new\n"
                "  nothing finished yet\n");
}
END_TEST

START_TEST(quota_marks_what_is_nearly_used_up_P18) {
        struct sheet s;

        sheet_open(&s);
        quota_print(&quota_answer, &s.page);
        sheet_expect(&s, "uid 1000\n"
                         "  resource                 used        limit   share\n"
                         "  connections               250          256    98 %  near the limit\n"
                         "  groups                      5        1,024     0 %\n"
                         "  mapped-bytes          1.5 GiB       16 GiB     9 %\n");
}
END_TEST

START_TEST(quota_tells_how_often_it_refused_P18) {
        static const struct tutti_row rows[] = {
                { .type = TUTTI_ROW_QUOTA,
                        .quota = { .name = "groups", .used = 1, .limit = 1, .n_refused = 1200 } },
                { .type = TUTTI_ROW_QUOTA, .quota = { .name = "pending", .limit = 9, .n_refused = 1 } },
        };
        struct sheet s;

        sheet_open(&s);
        quota_print(&ANSWER(rows), &s.page);
        sheet_expect(&s, "uid 0\n"
                         "  resource                 used        limit   share\n"
                         "  groups                      1            1   100 %  at the limit, 1,200 refused\n"
                         "  pending                     0            9     0 %  1 refused\n");
}
END_TEST

#define QUOTA(name_, used_, limit_)                                                                          \
        {                                                                                                    \
                .type = TUTTI_ROW_QUOTA, .quota = {.name = (name_), .used = (used_), .limit = (limit_) }     \
        }

/* Nine tenths is near; a reserve may be in use beyond the limit. */
START_TEST(quota_marks_begin_at_nine_tenths_P18) {
        static const struct tutti_row rows[] = { QUOTA("pending", 89, 100), QUOTA("pending", 90, 100),
                QUOTA("pending", 100, 100), QUOTA("descriptors", 104, 100), QUOTA("groups", 0, 1),
                QUOTA("groups", 0, 0), QUOTA("recorder-bytes", UINT64_MAX, UINT64_MAX) };
        struct sheet s;

        sheet_open(&s);
        quota_print(&ANSWER(rows), &s.page);
        sheet_expect(&s, "uid 0\n"
                         "  resource                 used        limit   share\n"
                         "  pending                    89          100    89 %\n"
                         "  pending                    90          100    90 %  near the limit\n"
                         "  pending                   100          100   100 %  at the limit\n"
                         "  descriptors               104          100   104 %  at the limit\n"
                         "  groups                      0            1     0 %\n"
                         "  groups                      0            0       -\n"
                         "  recorder-bytes         15 EiB       15 EiB   100 %  at the limit\n");
}
END_TEST

START_TEST(quota_of_nothing_says_so) {
        struct sheet s;

        sheet_open(&s);
        quota_print(&empty, &s.page);
        sheet_expect(&s, "This tuttid names no limits.\n");
}
END_TEST

START_TEST(dump_tells_the_story) {
        struct sheet s;

        setenv("TZ", "UTC", 1);
        tzset();
        sheet_open(&s);
        dump_print(&(struct dump_view){ &record_answer, &empty, "dp", "train", "host1",
                           1700000000 * S + 5 * MS },
                &s.page);
        sheet_expect(&s, "dp/train on host1: 3 collectives; 12,345 older ones were dropped; 3 were\n"
                         "  overwritten before they could be told; memory for records is at its limit, so\n"
                         "  fewer than 4,096 are kept\n"
                         "time          key           kind and op        value            status\n"
                         "22:13:00.005  \"grad/6\"      reduce MEAN        f32 4 KiB        OK\n"
                         "              waited 300 us  ran 12 us  last R3:  R0 +0 ns  R1 +12 us  R2 +71 us\n"
                         "              R3 +300 us\n"
                         "22:13:01.005  \"all\"         batch_reduce SUM   17 MiB x300      OK\n"
                         "              waited 300 us  ran 3 ms  last R3:  R0 +0 ns  R1 +12 us  R2 +71 us\n"
                         "              R3 +300 us\n"
                         "              2 collectives are missing here: overwritten before they could be\n"
                         "              told\n"
                         "22:13:10.005  \"grad/7\"      reduce MEAN        f32 4 KiB        TIMEOUT\n"
                         "              waited 2.0 s  guilty R3  last R2:  R0 +0 ns  R1 +5 us  R2 +9 us\n"
                         "              R3 -\n");
}
END_TEST

START_TEST(dump_of_nothing_says_so) {
        struct sheet s;

        sheet_open(&s);
        dump_print(&(struct dump_view){ &empty, &empty, "dp", "train", "host1", 0 }, &s.page);
        sheet_expect(&s, "dp/train on host1: 0 collectives\n");
}
END_TEST

UNIT_MAIN("ctl-pages", 10, P5_status_and_groups_show_who_waits_for_a_new_epoch,
        status_shows_who_is_missing_first, status_is_stalled_while_a_group_is, status_of_nothing_says_so,
        status_names_missing_ranks_without_report_too, groups_show_their_replicas,
        C8_groups_say_how_the_record_of_an_older_life_is_read,
        L1_the_dump_of_an_older_life_names_its_replicas, what_is_not_known_of_an_ended_group_is_said,
        P5_status_and_health_name_whom_a_group_does_without, health_lists_the_worst_first,
        one_that_has_left_may_stop, health_exits_by_the_worst_finding, stats_show_who_comes_last_C4,
        quota_marks_what_is_nearly_used_up_P18, quota_marks_begin_at_nine_tenths_P18,
        quota_tells_how_often_it_refused_P18, quota_of_nothing_says_so, dump_tells_the_story,
        dump_of_nothing_says_so)
