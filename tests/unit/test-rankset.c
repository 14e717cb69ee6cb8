/* Sets of ranks, against an array of flags. */
#include "model/rankset.h"
#include <stdlib.h>
#include <string.h>
#include "unit.h"

static struct rankset set_of(const int *ranks, size_t n) {
        struct rankset s = { { 0 } };
        for (size_t i = 0; i < n; i++)
                rankset_add(&s, (unsigned int)ranks[i]);
        return s;
}
#define SET(...) set_of((const int[]){ __VA_ARGS__ }, sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int))

START_TEST(adds_removes_and_finds) {
        struct rankset s = SET(0, 63, 64, 1023);
        ck_assert(rankset_has(&s, 0) && rankset_has(&s, 63) && rankset_has(&s, 64) && rankset_has(&s, 1023));
        ck_assert(!rankset_has(&s, 1) && !rankset_has(&s, 1024) && !rankset_has(&s, UINT32_MAX));
        rankset_remove(&s, 63);
        ck_assert(!rankset_has(&s, 63));
        ck_assert_uint_eq(rankset_count(&s), 3);
}
END_TEST

START_TEST(next_walks_upwards) {
        struct rankset s = SET(3, 63, 64, 700, 1023), none = { { 0 } };
        int found[8], n = 0;
        rankset_for_each (rank, &s) {
                found[n++] = rank;
        }
        ck_assert_int_eq(n, 5);
        ck_assert(found[0] == 3 && found[1] == 63 && found[2] == 64 && found[3] == 700 && found[4] == 1023);
        ck_assert_int_eq(rankset_next(&s, 701), 1023);
        ck_assert_int_eq(rankset_next(&s, 1024), -1);
        ck_assert_int_eq(rankset_next(&s, -5), 3);
        ck_assert_int_eq(rankset_next(&none, 0), -1);
}
END_TEST

START_TEST(first_minus_subset_and_equality) {
        for (unsigned int n = 0; n <= MAX_WORLD; n += 31) {
                struct rankset s = rankset_first(n);
                ck_assert_uint_eq(rankset_count(&s), n);
                ck_assert(!rankset_has(&s, n) && (n == 0 || rankset_has(&s, n - 1)));
        }
        struct rankset four = rankset_first(4), odd = SET(1, 3), even = SET(0, 2), far = SET(1, 800);
        struct rankset rest = rankset_minus(&four, &odd);
        ck_assert(rankset_is_equal(&rest, &even));
        ck_assert(!rankset_is_equal(&rest, &odd));
        ck_assert(rankset_is_subset(&odd, &four) && !rankset_is_subset(&four, &odd));
        ck_assert(!rankset_is_subset(&far, &four));
        struct rankset none = rankset_minus(&odd, &odd);
        ck_assert(rankset_is_empty(&none) && rankset_is_subset(&none, &odd) && !rankset_is_empty(&odd));
        rankset_unite(&even, &odd);
        ck_assert(rankset_is_equal(&even, &four));
        rankset_unite(&odd, &far);
        ck_assert(rankset_count(&odd) == 3 && rankset_has(&odd, 3) && rankset_has(&odd, 800));
        struct rankset world = rankset_first(MAX_WORLD);
        ck_assert_uint_eq(rankset_count(&world), MAX_WORLD);
}
END_TEST

static void check_print(struct rankset s, const char *expected) {
        char buf[512];
        struct text t;
        text_init(&t, buf, sizeof(buf));
        rankset_print(&s, &t);
        ck_assert_str_eq(buf, expected);
}

START_TEST(prints_runs_of_four_and_more) {
        check_print(SET(0, 1, 3), "R0 R1 R3");
        check_print(SET(0, 1, 2), "R0 R1 R2");
        check_print(SET(0, 1, 2, 3), "R0-R3");
        check_print(SET(1, 4, 5, 6, 7, 8, 9, 11), "R1 R4-R9 R11");
        check_print(SET(62, 63, 64, 65, 1023), "R62-R65 R1023");
        check_print((struct rankset){ { 0 } }, "nobody");
        check_print(rankset_first(MAX_WORLD), "R0-R1023");
}
END_TEST

START_TEST(bytes_are_little_endian_and_cut) {
        uint8_t bytes[MAX_WORLD / 8];
        struct rankset s = SET(0, 9), back, none = { { 0 } }, last = SET(1023);
        ck_assert_uint_eq(rankset_to_bytes(&s, bytes), 2);
        ck_assert_uint_eq(bytes[0], 1);
        ck_assert_uint_eq(bytes[1], 2);
        ck_assert(rankset_from_bytes(bytes, 2, &back));
        ck_assert(rankset_is_equal(&s, &back));
        ck_assert_uint_eq(rankset_to_bytes(&none, bytes), 0);
        ck_assert_uint_eq(rankset_to_bytes(&last, bytes), 128);
        ck_assert_uint_eq(bytes[127], 0x80);
}
END_TEST

START_TEST(bytes_beyond_the_largest_world_must_be_zero) {
        uint8_t bytes[200] = { 1 };
        struct rankset s = SET(5), back = s;
        bytes[199] = 1;
        ck_assert(!rankset_from_bytes(bytes, 200, &back));
        ck_assert(rankset_is_equal(&s, &back));
        ck_assert(rankset_from_bytes(bytes, 199, &back));
        ck_assert_uint_eq(rankset_count(&back), 1);
        ck_assert(rankset_from_bytes(NULL, 0, &back));
        ck_assert(rankset_is_empty(&back));
}
END_TEST

START_TEST(agrees_with_an_array_of_flags) {
        srandom(1);
        for (int turn = 0; turn < 300; turn++) {
                bool flags[MAX_WORLD] = { false };
                struct rankset s = { { 0 } };
                int n = (int)(random() % 200);
                for (int i = 0; i < n; i++) {
                        unsigned int rank = (unsigned int)random() % MAX_WORLD;
                        flags[rank] = random() % 3 > 0;
                        if (flags[rank])
                                rankset_add(&s, rank);
                        else
                                rankset_remove(&s, rank);
                }
                unsigned int n_set = 0;
                for (unsigned int rank = 0; rank < MAX_WORLD; rank++) {
                        ck_assert_int_eq(rankset_has(&s, rank), flags[rank]);
                        n_set += flags[rank];
                }
                ck_assert_uint_eq(rankset_count(&s), n_set);
                uint8_t bytes[MAX_WORLD / 8];
                struct rankset back;
                size_t n_bytes = rankset_to_bytes(&s, bytes);
                ck_assert(n_bytes == 0 || bytes[n_bytes - 1]);
                ck_assert(rankset_from_bytes(bytes, n_bytes, &back));
                ck_assert(rankset_is_equal(&s, &back));
        }
}
END_TEST

UNIT_MAIN("rankset", 10, adds_removes_and_finds, next_walks_upwards, first_minus_subset_and_equality,
        prints_runs_of_four_and_more, bytes_are_little_endian_and_cut,
        bytes_beyond_the_largest_world_must_be_zero, agrees_with_an_array_of_flags)
