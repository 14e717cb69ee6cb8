/* Packs: which elements of which entry are in which one, by TensorFlow's numbers and by random shapes. */
#include <errno.h>
#include "algorithms/packing.h"
#include "failing.h"
#include "problem.h"

static struct packs make(struct made_problem *m) {
        struct packs p = { 0 };
        ck_assert_int_eq(packs_make(&p, &m->problem), 0);
        return p;
}

/* "0: e0+0x2 e1+0x3 | 1: ..." */
static void check_packs(struct made_problem *m, uint32_t n_packs, const char *expected) {
        char buf[2048];
        struct text t;
        struct packs p = make(m);
        text_init(&t, buf, sizeof(buf));
        for (uint32_t i = 0; i < p.n_pieces; i++) {
                const struct pack_piece *piece = &p.pieces[i];
                if (i == 0 || p.pieces[i - 1].pack != piece->pack)
                        text_add(&t, "%s%u:", i ? " | " : "", piece->pack);
                text_add(&t, " e%u+%llux%llu", piece->entry, (unsigned long long)piece->first_element,
                        (unsigned long long)piece->n_elements);
        }
        ck_assert_str_eq(buf, expected);
        ck_assert_uint_eq(p.n_packs, n_packs);
        packs_deinit(&p);
}

START_TEST(TF23_concat_and_split) {
        struct made_problem *m = problem_make(2, 1);
        m->signature.options.packing.num_packs = 4;
        problem_add(m, DTYPE_F32, 3);
        problem_add(m, DTYPE_F32, 7);
        check_packs(m, 4, "0: e0+0x2 | 1: e0+2x1 e1+0x1 | 2: e1+1x2 | 3: e1+3x4"); /* 10: 2, 2, 2, 4 */
        free(m);
        m = problem_make(2, 1); /* one scalar in eight packs: seven are empty */
        m->signature.options.packing.num_packs = 8;
        problem_add(m, DTYPE_F32, 1);
        check_packs(m, 8, "7: e0+0x1");
        free(m);
        m = problem_make(2, 1); /* types are never mixed: each has its packs */
        m->signature.options.packing.num_packs = 2;
        problem_add(m, DTYPE_F32, 4);
        problem_add(m, DTYPE_F16, 2);
        problem_add(m, DTYPE_F32, 2);
        check_packs(m, 4, "0: e1+0x1 | 1: e1+1x1 | 2: e0+0x3 | 3: e0+3x1 e2+0x2");
        free(m);
}
END_TEST

START_TEST(TF24_small_neighbours) {
        struct made_problem *m = problem_make(1, 1);
        m->signature.options.packing = (struct packing){ .small_bytes = 8, .small_group = 3 };
        problem_add(m, DTYPE_F32, 2); /* exactly at the limit */
        problem_add(m, DTYPE_F32, 1);
        problem_add(m, DTYPE_F32, 3); /* too large: ends the group */
        problem_add(m, DTYPE_F32, 1); /* a group of one is none */
        problem_add(m, DTYPE_F64, 1); /* another type */
        problem_add(m, DTYPE_F64, 1);
        check_packs(m, 4, "0: e0+0x2 e1+0x1 | 1: e4+0x1 e5+0x1 | 2: e2+0x3 | 3: e3+0x1");
        free(m);

        m = problem_make(1, 1); /* the documented maximum: TensorFlow made 12, 12, 12, 4 of it */
        m->signature.options.packing = (struct packing){ .small_bytes = 100, .small_group = 10 };
        for (uint32_t i = 0; i < 40; i++)
                problem_add(m, DTYPE_F32, 1);
        struct packs p = make(m);
        ck_assert_uint_eq(p.n_packs, 4);
        for (uint32_t i = 0; i < 40; i++)
                ck_assert_uint_eq(p.pieces[i].pack, i / 10);
        packs_deinit(&p);
        free(m);
}
END_TEST

START_TEST(TC4_bytes_per_pack) {
        static const struct {
                uint64_t limit, sizes[4];
                const char *expected; /* from the last entry on, as the batch is walked */
                uint32_t n_packs;
        } cases[] = {
                { 200, { 128, 32, 800, 4 }, "0: e3+0x128 e2+0x32 e1+0x800 | 1: e0+0x4", 2 },
                { 1, { 4, 4, 4, 4 }, "0: e3+0x4 | 1: e2+0x4 | 2: e1+0x4 | 3: e0+0x4", 4 },
                { 4, { 4, 4, 4, 0 }, "0: e2+0x4 e1+0x4 | 1: e0+0x4", 2 },
                { 200, { 100, 100, 100, 0 }, "0: e2+0x100 e1+0x100 e0+0x100", 1 },
        };
        for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
                struct made_problem *m = problem_make(1, 1);
                m->signature.options.packing.bytes_per_pack = cases[k].limit;
                for (uint32_t e = 4; e-- > 0;) /* the walk begins with the last one */
                        if (cases[k].sizes[e])
                                problem_add(m, DTYPE_U8, cases[k].sizes[e]);
                check_packs(m, cases[k].n_packs, cases[k].expected);
                free(m);
        }
        struct made_problem *m = problem_make(1, 1);
        m->signature.options.packing.bytes_per_pack = 6;
        problem_add(m, DTYPE_F32, 1);
        problem_add(m, DTYPE_U8, 9);
        problem_add(m, DTYPE_F32, 1);
        problem_add(m, DTYPE_U8, 1);
        problem_add(m, DTYPE_F32, 1);
        check_packs(m, 3, "0: e4+0x1 e2+0x1 | 1: e3+0x1 e1+0x9 | 2: e0+0x1");
        free(m);
}
END_TEST

static void check_four(const struct packing *packing, uint32_t n_packs, const char *expected) {
        static const uint64_t sizes[] = { 128, 32, 800, 4 };
        struct made_problem *m = problem_make(1, 1);
        m->signature.options.packing = *packing;
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
                problem_add(m, DTYPE_U8, sizes[i]);
        check_packs(m, n_packs, expected);
        free(m);
}

/* There, no limit is one pack. Here it says nothing of packs; one pack is asked for by its number, and what
 * is never reached is one too (also what a negative limit becomes, TC7). */
START_TEST(TC5_TC7_without_a_limit_each_value_is_by_itself) {
        check_four(&(struct packing){ .bytes_per_pack = 0 }, 4,
                "0: e0+0x128 | 1: e1+0x32 | 2: e2+0x800 | 3: e3+0x4");
        check_four(&(struct packing){ .num_packs = 1 }, 1, "0: e0+0x128 e1+0x32 e2+0x800 e3+0x4");
        check_four(&(struct packing){ .bytes_per_pack = (uint64_t)-1 }, 1,
                "0: e3+0x4 e2+0x800 e1+0x32 e0+0x128");
}
END_TEST

/* There, a shape that is not known yet is one pack with all others. Here each half names its shapes, and each
 * call may have others: a value of no elements, which comes nearest, is in no pack. */
START_TEST(TC6_every_shape_is_known) {
        struct made_problem *m = problem_make(1, 1);
        m->signature.options.packing.bytes_per_pack = 200;
        problem_add(m, DTYPE_U8, 128);
        problem_add(m, DTYPE_U8, 0);
        problem_add(m, DTYPE_U8, 100);
        check_packs(m, 1, "0: e2+0x100 e0+0x128");
        free(m);
}
END_TEST

static uint64_t random_state = 7;

static uint64_t draw(uint64_t limit) {
        random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (random_state >> 33) % limit;
}

static void check_whole(const struct made_problem *m, const struct packs *p) {
        uint64_t seen[MOST_ENTRIES] = { 0 };
        enum dtype dtypes[4 * MOST_ENTRIES] = { 0 };
        for (uint32_t i = 0; i < p->n_pieces; i++) {
                const struct pack_piece *piece = &p->pieces[i];
                ck_assert_uint_lt(piece->pack, p->n_packs);
                ck_assert_uint_gt(piece->n_elements, 0);
                ck_assert_uint_eq(piece->first_element, seen[piece->entry]);
                seen[piece->entry] += piece->n_elements;
                if (i > 0)
                        ck_assert_uint_ge(piece->pack, p->pieces[i - 1].pack);
                enum dtype *dtype = &dtypes[piece->pack];
                if (*dtype == DTYPE_UNSPECIFIED)
                        *dtype = m->entries[0][piece->entry].dtype;
                ck_assert_int_eq(*dtype, m->entries[0][piece->entry].dtype);
        }
        for (uint32_t e = 0; e < m->signature.n_entries; e++)
                ck_assert_uint_eq(seen[e], m->entries[0][e].shape[0]);
}

START_TEST(every_element_is_in_one_pack_and_no_pack_mixes_types) {
        static const enum dtype dtypes[] = { DTYPE_U8, DTYPE_F16, DTYPE_F32 };
        for (int round = 0; round < 3000; round++) {
                struct made_problem *m = problem_make(1, 1);
                struct packing *packing = &m->signature.options.packing;
                packing->num_packs = draw(3) == 0 ? (uint32_t)draw(50) : 0;
                packing->small_bytes = draw(2) * draw(200);
                packing->small_group = packing->small_bytes ? 1 + (uint32_t)draw(5) : 0;
                packing->bytes_per_pack = draw(2) * draw(300);
                uint32_t n = 1 + (uint32_t)draw(MOST_ENTRIES);
                for (uint32_t e = 0; e < n; e++)
                        problem_add(m, dtypes[draw(ARRAY_SIZE(dtypes))], draw(4) ? draw(80) : 0);
                struct packs p = make(m);
                check_whole(m, &p);
                packs_deinit(&p);
                free(m);
        }
}
END_TEST

START_TEST(a_value_with_strides_is_not_cut) {
        struct made_problem *m = problem_make(1, 1);
        m->signature.options.packing.num_packs = 5;
        problem_add(m, DTYPE_F32, 3);
        problem_add(m, DTYPE_F32, 5);
        problem_add(m, DTYPE_F32, 2);
        m->entries[0][1].input.n_strides = 1;
        m->entries[0][1].input.strides[0] = 2;
        check_packs(m, 5, "0: e0+0x2 | 1: e0+2x1 e1+0x5 | 4: e2+0x2");
        free(m);
}
END_TEST

START_TEST(short_memory_is_said) {
        struct made_problem *m = problem_make(1, 1);
        for (uint32_t e = 0; e < 40; e++)
                problem_add(m, DTYPE_F32, 1);
        bool has_failed = true;
        for (unsigned int n = 1; has_failed; n++) {
                struct packs p = { 0 };
                failing_at(n);
                int r = packs_make(&p, &m->problem);
                failing_at(0);
                has_failed = failing_has_failed();
                ck_assert_int_eq(r, has_failed ? -ENOMEM : 0);
                packs_deinit(&p);
        }
        free(m);
}
END_TEST

UNIT_MAIN("packing", 30, TF23_concat_and_split, TF24_small_neighbours, TC4_bytes_per_pack,
        TC5_TC7_without_a_limit_each_value_is_by_itself, TC6_every_shape_is_known,
        every_element_is_in_one_pack_and_no_pack_mixes_types, a_value_with_strides_is_not_cut,
        short_memory_is_said)
