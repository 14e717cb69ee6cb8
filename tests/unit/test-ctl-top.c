/* The pages one looks at while it happens: top, replicas, buffers. */
#include <stdlib.h>
#include <string.h>
#include "ctl-answers.h"
#include "ctl-sheet.h"
#include "top.h"
#include "unit.h"
#include "views.h"

static const struct tutti_answer status_answer = { sizeof(status_rows) / sizeof(*status_rows), status_rows };
static const struct tutti_answer stats_answer = { sizeof(stats_rows) / sizeof(*stats_rows), stats_rows };
static const struct tutti_answer quota_answer = { sizeof(quota_rows) / sizeof(*quota_rows), quota_rows };
static const struct tutti_answer empty;

/* Half a second before status_rows: dp/eval had done 206 less, 100 MiB less, and CPU:0 was busy 500 ms less.
 */
static struct tutti_answer rows_before(struct tutti_row *rows) {
        memcpy(rows, status_rows, sizeof(status_rows));
        rows[1].device.busy_ns -= 2 * MS;
        rows[4].group.n_done -= 206;
        rows[4].group.bytes -= 100 << 20;
        rows[5].group.n_done = 1000; /* of an earlier life */
        return (struct tutti_answer){ sizeof(status_rows) / sizeof(*status_rows), rows };
}

START_TEST(top_shows_rates_between_two_looks) {
        struct tutti_row rows[sizeof(status_rows) / sizeof(*status_rows)];
        struct tutti_answer before = rows_before(rows);
        const struct top_view v = { { &before, &stats_answer }, { &status_answer, &stats_answer }, S / 2 };
        struct sheet s;

        sheet_open(&s);
        top_print(&v, &s.page, &(struct top_size){ UINT32_MAX, 80 });
        sheet_expect(&s,
                "tuttid 0.1.0  up 3 d 04:11  23 clients  5 groups  1 stalled\n"
                "426 ops/s  200 MiB/s  CPU:0 0 % busy  CPU:1 0 % busy\n"
                "\n"
                "         group                    ops/s    bytes/s wait p50  run p50  latest\n"
                "STALLED  dp/train                    14    0 bytes        -        -\n"
                "         waiting 12.4 s  missing R3 (pid 4711, alive, stopped; last finished ...\n"
                "FAILED   dp/broken                    0    0 bytes        -        -\n"
                "forming  dp/new                       0    0 bytes        -        -\n"
                "waiting  slow/job/save                0    0 bytes        -        -\n"
                "         waiting 2.0 s  missing R0 (pid ?, alive, busy: checkpoint; finished ...\n"
                "ok       dp/eval                    412    200 MiB   300 us    12 us  R5 +300 us\n");
}
END_TEST

/* Long names of one kind are told apart by how they end. */
START_TEST(top_gives_names_the_columns_beyond_80) {
        static struct tutti_row rows[] = {
                { .type = TUTTI_ROW_GROUP,
                        .group = { .job = "10.20.30.40:29500-elastic", .group = "decoder" } },
                { .type = TUTTI_ROW_GROUP,
                        .group = { .job = "10.20.30.40:29500-\303\244lastic-and-more", .group = "x" } },
        };
        const struct tutti_answer answer = { 2, rows };
        const struct top_view v = { { &empty, &empty }, { &answer, &empty }, S };
        struct sheet s;

        sheet_open(&s);
        top_print(&v, &s.page, &(struct top_size){ 24, 80 });
        fclose(s.page.out);
        ck_assert_ptr_nonnull(strstr(s.text, " ...500-elastic/decoder "));
        ck_assert_ptr_nonnull(strstr(s.text, " ...\303\244lastic-and-more/x "));
        free(s.text);
        sheet_open(&s);
        top_print(&v, &s.page, &(struct top_size){ 24, 100 });
        fclose(s.page.out);
        ck_assert_ptr_nonnull(strstr(s.text, " 10.20.30.40:29500-elastic/decoder "));
        free(s.text);
}
END_TEST

START_TEST(top_counts_what_does_not_fit) {
        const struct top_view v = { { &status_answer, &stats_answer }, { &status_answer, &stats_answer }, S };
        struct sheet s;

        sheet_open(&s);
        top_print(&v, &s.page, &(struct top_size){ 6, 80 });
        fclose(s.page.out);
        ck_assert_ptr_nonnull(strstr(s.text, "\nSTALLED  dp/train  "));
        ck_assert_ptr_nonnull(strstr(s.text, "\n... and 4 more groups\n"));
        ck_assert_ptr_null(strstr(s.text, "dp/eval"));
        free(s.text);
}
END_TEST

START_TEST(top_of_the_first_look_divides_by_nothing) {
        const struct top_view v = { { &empty, &empty }, { &empty, &empty }, 0 };
        struct sheet s;

        sheet_open(&s);
        top_print(&v, &s.page, &(struct top_size){ 24, 80 });
        sheet_expect(&s, "0 ops/s  0 bytes/s\n"
                         "\n"
                         "         group                    ops/s    bytes/s wait p50  run p50  latest\n"
                         "No groups of yours.\n");
}
END_TEST

START_TEST(top_tells_busy_shares_and_rates_as_json) {
        struct tutti_row rows[sizeof(status_rows) / sizeof(*status_rows)];
        struct tutti_answer before = rows_before(rows);
        const struct top_view v = { { &before, &stats_answer }, { &status_answer, &stats_answer }, 10 * MS };
        json_t *j = top_json(&v);
        const json_t *device = json_array_get(json_object_get(j, "devices"), 0),
                     *group = json_array_get(json_object_get(j, "groups"), 0);

        /* 2 ms of two workers in 10 ms */
        ck_assert_double_eq_tol(json_real_value(json_object_get(device, "busy_percent")), 10, 1e-9);
        ck_assert_str_eq(json_string_value(json_object_get(group, "state")), "ok");
        ck_assert_double_eq_tol(json_real_value(json_object_get(group, "ops_per_second")), 20600, 1e-6);
        json_decref(j);
}
END_TEST

START_TEST(replicas_in_trouble_come_first) {
        struct sheet s;

        sheet_open(&s);
        replicas_print(&stats_answer, NULL, &s.page);
        sheet_expect(&s,
                "replica                 pid  state         finished late p50  last   mapped\n"
                "dp/train R3            4711  stopped         12.5 s        -     -        -  \"grad/6\"\n"
                "dp/broken R1           5001  died                 -        -     -        -\n"
                "dp/eval R0             4000  alive             2 ms    10 us   2 %    8 MiB  #8\n"
                "dp/eval R5             4005  alive             2 ms   300 us  98 %    4 KiB  #8\n"
                "dp/broken R0           5000  alive                -        -     -        -\n"
                "dp/broken R2           5002  left                 -        -     -        -\n"
                "dp/new R0              6000  alive                -        -     -        -\n"
                "dp/new R1                 ?  busy                 -        -     -        -\n"
                "dp/new R2                    absent               -        -     -        -\n");
}
END_TEST

START_TEST(replicas_of_nothing_say_so) {
        struct sheet s;

        sheet_open(&s);
        replicas_print(&empty, NULL, &s.page);
        sheet_expect(&s, "No replicas of yours.\n");
}
END_TEST

/* R0 of two groups is one process with one connection. */
START_TEST(a_connection_counts_once_among_the_buffers) {
        static const struct tutti_row rows[] = {
                MEMBER("eval", "train.py", "", .rank = 0, .pid = 4000, .last_key = "", .n_buffers = 3,
                        .mapped_bytes = 512 << 20),
                MEMBER("train", "train.py", "", .rank = 0, .pid = 4000, .last_key = "", .n_buffers = 3,
                        .mapped_bytes = 512 << 20),
                MEMBER("train", "big", "", .rank = 1, .pid = 4001, .last_key = "", .n_buffers = 9,
                        .mapped_bytes = 1 << 30),
                MEMBER("train", "", "", .rank = 2, .pid = 4002, .last_key = ""),
        };
        struct sheet s;

        sheet_open(&s);
        ck_assert_int_eq(
                buffers_print(&(struct buffers_view){ &ANSWER(rows), &quota_answer, &empty }, &s.page), 0);
        sheet_expect(&s, "1.5 GiB mapped of 16 GiB allowed (9 %)\n"
                         "    pid  process           buffers    mapped  share  replicas\n"
                         "   4001  big                     9     1 GiB   67 %  dp/train R1\n"
                         "   4000  train.py                3   512 MiB   33 %  dp/eval R0  dp/train R0\n");
        sheet_open(&s);
        ck_assert_int_eq(buffers_print(&(struct buffers_view){ &empty, &empty, &empty }, &s.page), 0);
        sheet_expect(&s, "No buffers of yours.\n");
}
END_TEST

START_TEST(pages_that_were_asked_for_stand_below_the_holders_F6) {
        struct sheet s;

        sheet_open(&s);
        ck_assert_int_eq(buffers_print(&(struct buffers_view){ &empty, &empty, &status_answer }, &s.page), 0);
        sheet_expect(&s,
                "No buffers of yours.\n"
                "    pid      bytes      page  pages        why\n"
                "   4711     32 MiB     2 MiB  pool\n"
                "   4711     16 MiB     4 KiB  ordinary     pages needed of the pool: 8, free: 0\n"
                "                                          of 16\n"
                "      ?     16 MiB     2 MiB  transparent  this kernel has no pool of 2 MiB pages\n");
}
END_TEST

UNIT_MAIN("ctl-top", 10, top_shows_rates_between_two_looks, top_counts_what_does_not_fit,
        top_gives_names_the_columns_beyond_80, top_of_the_first_look_divides_by_nothing,
        top_tells_busy_shares_and_rates_as_json, replicas_in_trouble_come_first, replicas_of_nothing_say_so,
        a_connection_counts_once_among_the_buffers, pages_that_were_asked_for_stand_below_the_holders_F6)
