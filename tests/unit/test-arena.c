/* A packet cannot make us take more memory than its bound: the arena under it. */
#include "base/arena.h"
#include <string.h>
#include "unit.h"

static _Alignas(16) uint8_t memory[256];

static struct arena fresh(size_t n_bytes) {
        struct arena a;
        memset(memory, 0xee, sizeof(memory));
        arena_init(&a, memory, n_bytes);
        return a;
}

START_TEST(pieces_are_aligned_and_do_not_overlap) {
        struct arena a = fresh(128);
        uint8_t *first = arena_alloc(&a, 1), *second = arena_alloc(&a, 17), *third = arena_alloc(&a, 16);
        ck_assert_ptr_eq(first, memory);
        ck_assert_ptr_eq(second, memory + 16);
        ck_assert_ptr_eq(third, memory + 48);
        ck_assert_uint_eq(a.used_bytes, 64);
}
END_TEST

START_TEST(aligns_addresses_over_memory_that_is_not_aligned) {
        struct arena a;
        arena_init(&a, memory + 3, 64);
        uint8_t *r = arena_alloc(&a, 8);
        ck_assert_uint_eq((uintptr_t)r % 16, 0);
        ck_assert(r >= memory + 3);
        ck_assert_ptr_nonnull(arena_alloc(&a, 32));
        ck_assert_ptr_null(arena_alloc(&a, 17));
}
END_TEST

START_TEST(gives_the_last_byte_and_nothing_beyond) {
        struct arena a = fresh(64);
        ck_assert_ptr_nonnull(arena_alloc(&a, 64));
        ck_assert_ptr_null(arena_alloc(&a, 1));
        ck_assert_ptr_null(arena_alloc(&a, SIZE_MAX));
        ck_assert_uint_eq(a.used_bytes, 64);
        ck_assert_uint_eq(memory[64], 0xee);
}
END_TEST

START_TEST(a_refused_piece_takes_nothing) {
        struct arena a = fresh(40);
        ck_assert_ptr_nonnull(arena_alloc(&a, 1));
        ck_assert_ptr_null(arena_alloc(&a, 25));
        ck_assert_uint_eq(a.used_bytes, 1);
        ck_assert_ptr_nonnull(arena_alloc(&a, 24));
}
END_TEST

START_TEST(calloc_clears_and_refuses_a_product_that_overflows) {
        struct arena a = fresh(64);
        uint8_t *r = arena_calloc(&a, 4, 8);
        for (int i = 0; i < 32; i++)
                ck_assert_uint_eq(r[i], 0);
        ck_assert_uint_eq(memory[32], 0xee);
        ck_assert_ptr_null(arena_calloc(&a, SIZE_MAX / 2, 4));
        ck_assert_ptr_null(arena_calloc(&a, 5, 8));
        ck_assert_ptr_nonnull(arena_calloc(&a, 0, 8));
}
END_TEST

START_TEST(strndup_ends_at_the_terminator_or_at_n) {
        struct arena a = fresh(64);
        ck_assert_str_eq(arena_strndup(&a, "grad/7", 64), "grad/7");
        ck_assert_str_eq(arena_strndup(&a, "grad/7", 4), "grad");
        ck_assert_str_eq(arena_strndup(&a, "", 4), "");
        ck_assert_ptr_null(arena_strndup(&a, "0123456789abcdef", 16));
}
END_TEST

START_TEST(reset_gives_everything_back) {
        struct arena a = fresh(64);
        void *first = arena_alloc(&a, 64);
        arena_reset(&a);
        ck_assert_ptr_eq(arena_alloc(&a, 64), first);
}
END_TEST

UNIT_MAIN("arena", 5, pieces_are_aligned_and_do_not_overlap, aligns_addresses_over_memory_that_is_not_aligned,
        gives_the_last_byte_and_nothing_beyond, a_refused_piece_takes_nothing,
        calloc_clears_and_refuses_a_product_that_overflows, strndup_ends_at_the_terminator_or_at_n,
        reset_gives_everything_back)
