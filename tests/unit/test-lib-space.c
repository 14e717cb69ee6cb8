/* Which bytes of a region are taken. */
#include <stdlib.h>
#include "unit.h"
#include "lib/space.h"

START_TEST(blocks_follow_each_other_aligned) {
        struct space s;
        struct block a, b, c, d;
        space_init(&s, 1000);
        ck_assert(space_take(&s, &a, 10, 64));
        ck_assert(space_take(&s, &b, 10, 64));
        ck_assert_uint_eq(a.offset_bytes, 0);
        ck_assert_uint_eq(b.offset_bytes, 64);
        ck_assert(space_take(&s, &c, 500, 256));
        ck_assert_uint_eq(c.offset_bytes, 256);
        ck_assert(!space_take(&s, &d, 300, 64));
        ck_assert(space_take(&s, &d, 232, 64));
        ck_assert_uint_eq(d.offset_bytes, 768);
        ck_assert_uint_eq(s.used_bytes, 752);
}
END_TEST

START_TEST(the_first_gap_that_fits_is_taken) {
        struct space s;
        struct block b[5], x, y;
        space_init(&s, 5 * 64);
        for (int i = 0; i < 5; i++)
                ck_assert(space_take(&s, &b[i], 64, 64));
        ck_assert(!space_take(&s, &x, 1, 1));
        space_give_back(&s, &b[1]);
        space_give_back(&s, &b[3]);
        ck_assert(!space_take(&s, &x, 65, 1));
        ck_assert(space_take(&s, &x, 64, 64));
        ck_assert_uint_eq(x.offset_bytes, 64);
        ck_assert(space_take(&s, &y, 1, 1));
        ck_assert_uint_eq(y.offset_bytes, 192);
        space_give_back(&s, &b[4]); /* what was the end becomes free behind the last */
        ck_assert(space_take(&s, &b[4], 120, 8));
        ck_assert_uint_eq(b[4].offset_bytes, 200);
}
END_TEST

START_TEST(what_cannot_fit_is_refused_without_overflow) {
        struct space s;
        struct block a, b;
        space_init(&s, 4096);
        ck_assert(space_take(&s, &a, 4000, 1));
        ck_assert(!space_take(&s, &b, UINT64_MAX, 64));
        ck_assert(!space_take(&s, &b, 1, UINT64_C(1) << 63));
        space_give_back(&s, &a);
        ck_assert(space_is_empty(&s));
        ck_assert_uint_eq(s.used_bytes, 0);
        ck_assert(space_take(&s, &a, 4096, 4096));
}
END_TEST

#define N_BLOCKS 64
#define N_UNITS  512

/* Against a map of units: no two blocks share one, and a refusal is right. */
START_TEST(random_use_agrees_with_a_map) {
        static struct block blocks[N_BLOCKS];
        static int owner[N_UNITS];
        struct space s;
        unsigned int seed = 20;
        space_init(&s, N_UNITS);
        for (int step = 0; step < 20000; step++) {
                int k = (int)(rand_r(&seed) % N_BLOCKS);
                if (blocks[k].n_bytes) {
                        for (uint64_t u = 0; u < blocks[k].n_bytes; u++)
                                owner[blocks[k].offset_bytes + u] = 0;
                        space_give_back(&s, &blocks[k]);
                        blocks[k].n_bytes = 0;
                        continue;
                }
                uint64_t n = 1 + rand_r(&seed) % 24, align = UINT64_C(1) << rand_r(&seed) % 5;
                if (!space_take(&s, &blocks[k], n, align)) {
                        blocks[k].n_bytes = 0;
                        uint64_t run = 0; /* no aligned run of n free units may be there */
                        for (uint64_t at = 0; at + n <= N_UNITS; at += align) {
                                for (run = 0; run < n && !owner[at + run]; run++)
                                        ;
                                ck_assert_uint_lt(run, n);
                        }
                        continue;
                }
                ck_assert_uint_eq(blocks[k].offset_bytes % align, 0);
                ck_assert_uint_le(blocks[k].offset_bytes + n, N_UNITS);
                for (uint64_t u = 0; u < n; u++) {
                        ck_assert_int_eq(owner[blocks[k].offset_bytes + u], 0);
                        owner[blocks[k].offset_bytes + u] = k + 1;
                }
        }
}
END_TEST

UNIT_MAIN("lib-space", 10, blocks_follow_each_other_aligned, the_first_gap_that_fits_is_taken,
        what_cannot_fit_is_refused_without_overflow, random_use_agrees_with_a_map)
