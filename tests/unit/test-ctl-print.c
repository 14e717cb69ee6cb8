#include <stdlib.h>
#include <string.h>
#include "print.h"
#include "rows.h"
#include "unit.h"

#define S UINT64_C(1000000000)

static const struct {
        uint64_t ns;
        const char *text;
} durations[] = {
        { 0, "0 ns" },
        { 999, "999 ns" },
        { 1000, "1 us" },
        { 1250, "1.2 us" },
        { 71900, "71 us" },
        { 999999, "999 us" },
        { 2100000, "2.1 ms" },
        { 9999999, "9.9 ms" },
        { S - 1, "999 ms" },
        { S, "1.0 s" },
        { 12449999999, "12.4 s" },
        { 60 * S - 1, "59.9 s" },
        { 307 * S, "5 min 07 s" },
        { 3720 * S, "1 h 02 min" },
        { (3 * 86400 + 4 * 3600 + 11 * 60) * S, "3 d 04:11" },
        { UINT64_MAX, "213503 d 23:34" },
};

START_TEST(durations_read_as_people_say_them) {
        for (size_t i = 0; i < sizeof(durations) / sizeof(*durations); i++)
                ck_assert_str_eq(duration(durations[i].ns).s, durations[i].text);
}
END_TEST

START_TEST(bytes_have_binary_units) {
        ck_assert_str_eq(bytes_text(0).s, "0 bytes");
        ck_assert_str_eq(bytes_text(1).s, "1 byte");
        ck_assert_str_eq(bytes_text(1023).s, "1023 bytes");
        ck_assert_str_eq(bytes_text(64 << 10).s, "64 KiB");
        ck_assert_str_eq(bytes_text(UINT64_C(3) << 29).s, "1.5 GiB");
        ck_assert_str_eq(bytes_text((UINT64_C(1) << 30) - 1).s, "1023 MiB");
        ck_assert_str_eq(bytes_text(UINT64_MAX).s, "15 EiB");
}
END_TEST

START_TEST(counts_and_shares) {
        ck_assert_str_eq(count(0).s, "0");
        ck_assert_str_eq(count(999).s, "999");
        ck_assert_str_eq(count(1000).s, "1,000");
        ck_assert_str_eq(count(12345678).s, "12,345,678");
        ck_assert_str_eq(count(UINT64_MAX).s, "18,446,744,073,709,551,615");
        ck_assert_str_eq(percent(41, 100).s, "41 %");
        ck_assert_str_eq(percent(1, 0).s, "-");
}
END_TEST

static void check_ranks(const char *expected, const unsigned int *ranks, size_t n) {
        struct tutti_ranks set = { { 0 } };
        struct line l = { 0 };

        for (size_t i = 0; i < n; i++)
                tutti_ranks_add(&set, ranks[i]);
        line_add_ranks(&l, &set);
        ck_assert_str_eq(l.s, expected);
}

START_TEST(runs_of_four_ranks_are_shortened) {
        check_ranks("nobody", NULL, 0);
        check_ranks("R0 R1 R2 R7", (unsigned int[]){ 0, 1, 2, 7 }, 4);
        check_ranks("R0-R3 R5", (unsigned int[]){ 0, 1, 2, 3, 5 }, 5);
        check_ranks("R62-R65 R1020-R1023", (unsigned int[]){ 62, 63, 64, 65, 1020, 1021, 1022, 1023 }, 8);
}
END_TEST

START_TEST(names_cannot_command_a_terminal) {
        struct line l = { 0 };

        line_add_group(&l, "a\033[2Jb\n",
                "c\x7f\xc2\x9b"
                "d\xc3\xa9");
        ck_assert_str_eq(l.s, "a?[2Jb?/c??\x9b"
                              "d\xc3\xa9");
}
END_TEST

START_TEST(names_are_quoted_for_a_shell_where_it_wants_that) {
        struct line plain = { 0 }, odd = { 0 }, option = { 0 };

        line_add_group_for_shell(&plain, "10.2.3.4:29500", "tp_0/x");
        ck_assert_str_eq(plain.s, "10.2.3.4:29500/tp_0/x");
        line_add_group_for_shell(&odd, "a job", "it's $(me)");
        ck_assert_str_eq(odd.s, "'a job/it'\\''s $(me)'");
        line_add_group_for_shell(&option, "--json", "x");
        ck_assert_str_eq(option.s, "-- --json/x");
}
END_TEST

START_TEST(keys_are_quoted_and_numbers_are_not) {
        struct line l = { 0 };

        line_add_key(&l, "grad/7");
        line_add_key(&l, "#17");
        line_add_key(&l, "#17b");
        line_add_key(&l, "#");
        ck_assert_str_eq(l.s, "\"grad/7\"#17\"#17b\"\"#\"");
}
END_TEST

START_TEST(a_line_that_is_full_says_so) {
        struct line l = { 0 };

        for (size_t i = 0; i < sizeof(l.s); i++)
                line_add(&l, "ab");
        line_add(&l, "c");
        ck_assert_uint_eq(strlen(l.s), sizeof(l.s) - 1);
        ck_assert_uint_eq(l.used, sizeof(l.s) - 1);
        ck_assert_str_eq(l.s + sizeof(l.s) - 6, "ab...");
}
END_TEST

START_TEST(replicas_are_named_with_what_is_known) {
        struct line l = { 0 };

        line_add_replica(
                &l, &(struct tutti_replica){
                            .rank = 3, .pid = 7, .state = TUTTI_DEAD, .last_key = "#4", .last_age = 2 });
        line_add_replica(&l, &(struct tutti_replica){ .rank = 1, .state = TUTTI_STOPPED, .busy = "x" });
        line_add_replica(&l, &(struct tutti_replica){ .rank = 9, .state = TUTTI_ABSENT });
        ck_assert_str_eq(l.s, "R3 (pid 7, dead; last finished #4 2.0 s ago)"
                              "R1 (pid ?, alive, stopped, busy: x; finished nothing yet)"
                              "R9 (has not joined)");
}
END_TEST

static void check_wrap(size_t column, size_t indent, const char *text, const char *expected) {
        char *out = NULL;
        size_t n;
        struct page page = { .out = open_memstream(&out, &n) };

        page_wrap(&page, column, indent, text);
        fclose(page.out);
        ck_assert_str_eq(out, expected);
        free(out);
}

#define TEN   "0123456789"
#define FORTY TEN TEN TEN TEN

START_TEST(lines_break_between_items) {
        check_wrap(0, 4, "", "\n");
        check_wrap(9, 4, "a b  c", "a b  c\n");
        check_wrap(0, 4, FORTY "  " TEN TEN " " TEN "  " TEN, FORTY "  " TEN TEN " " TEN "\n    " TEN "\n");
        /* Exactly 80 columns fit. */
        check_wrap(0, 4, FORTY "  " TEN TEN TEN "01234567", FORTY "  " TEN TEN TEN "01234567\n");
        check_wrap(0, 4, FORTY "  " TEN TEN TEN "012345678", FORTY "\n    " TEN TEN TEN "012345678\n");
}
END_TEST

START_TEST(an_item_wider_than_a_line_breaks_between_words) {
        check_wrap(0, 4, "a  " FORTY " " TEN TEN TEN " " TEN " b",
                "a  " FORTY " " TEN TEN TEN "\n    " TEN " b\n");
        check_wrap(0, 2, FORTY FORTY TEN "  b", FORTY FORTY TEN "\n  b\n");
}
END_TEST

START_TEST(labels_are_coloured_only_where_told) {
        char *out = NULL;
        size_t n;
        struct page page = { .out = open_memstream(&out, &n), .colours = true };

        page_label(&page, TONE_BAD, "BAD", 5);
        page_label(&page, TONE_PLAIN, "x", 2);
        page.colours = false;
        page_label(&page, TONE_BAD, "BAD", 5);
        fclose(page.out);
        ck_assert_str_eq(out, "\033[1;31mBAD  \033[0mx BAD  ");
        free(out);
}
END_TEST

START_TEST(output_that_is_no_terminal_has_no_colours) {
        FILE *f = fopen("/dev/null", "we");

        ck_assert(!page_of(f).colours);
        fclose(f);
}
END_TEST

static const struct tutti_row named_groups[] = {
        { .type = TUTTI_ROW_GROUP, .group = { .job = "dp", .group = "train" } },
        { .type = TUTTI_ROW_GROUP, .group = { .job = "dp", .group = "train", .ended = 1 } },
        { .type = TUTTI_ROW_GROUP, .group = { .job = "a", .group = "b/c" } },
        { .type = TUTTI_ROW_GROUP, .group = { .job = "a/b", .group = "c" } },
        { .type = TUTTI_ROW_GROUP, .group = { .job = "host:29500", .group = "eval" } },
        { .type = TUTTI_ROW_GROUP, .group = { .job = "x", .group = "eval" } },
};

START_TEST(groups_are_found_by_name) {
        const struct tutti_answer a = { sizeof(named_groups) / sizeof(*named_groups), named_groups };
        const struct tutti_row_group *g = NULL;

        ck_assert_int_eq(rows_match_name(&a, "dp/train", &g), NAME_FOUND);
        ck_assert_ptr_eq(g, &named_groups[0].group);
        ck_assert_int_eq(rows_match_name(&a, "train", &g), NAME_FOUND);
        ck_assert_ptr_eq(g, &named_groups[0].group);
        ck_assert_int_eq(rows_match_name(&a, "a/b/c", &g), NAME_FOUND);
        ck_assert_str_eq(g->job, "a/b");
        ck_assert_int_eq(rows_match_name(&a, "b/c", &g), NAME_FOUND);
        ck_assert_str_eq(g->job, "a");
        ck_assert_int_eq(rows_match_name(&a, "host:29500/eval", &g), NAME_FOUND);
        ck_assert_ptr_eq(g, &named_groups[4].group);
}
END_TEST

START_TEST(a_name_of_several_groups_or_of_none_is_not_guessed) {
        const struct tutti_answer a = { sizeof(named_groups) / sizeof(*named_groups), named_groups };
        const struct tutti_row_group *g = NULL;

        ck_assert_int_eq(rows_match_name(&a, "eval", &g), NAME_AMBIGUOUS);
        ck_assert_int_eq(rows_match_name(&a, "dp", &g), NAME_ABSENT);
        ck_assert_int_eq(rows_match_name(&a, "", &g), NAME_ABSENT);
        ck_assert_int_eq(rows_match_name(&a, "dp/", &g), NAME_ABSENT);
        ck_assert_ptr_null(g);
}
END_TEST

UNIT_MAIN("ctl-print", 10, durations_read_as_people_say_them, bytes_have_binary_units, counts_and_shares,
        runs_of_four_ranks_are_shortened, names_cannot_command_a_terminal,
        names_are_quoted_for_a_shell_where_it_wants_that, keys_are_quoted_and_numbers_are_not,
        a_line_that_is_full_says_so, replicas_are_named_with_what_is_known, lines_break_between_items,
        an_item_wider_than_a_line_breaks_between_words, labels_are_coloured_only_where_told,
        output_that_is_no_terminal_has_no_colours, groups_are_found_by_name,
        a_name_of_several_groups_or_of_none_is_not_guessed)
