/* Strides: extents, normal forms, who shares bytes with whom (judged byte by byte), and elements that move
 * (judged one by one). */
#include "unit.h"

#include <stdio.h>
#include <string.h>
#include "model/checksum.h"
#include "model/view.h"

static uint64_t random_state = 3;

static uint64_t draw(uint64_t limit) {
        random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (random_state >> 33) % limit;
}

static struct view view_of(uint32_t n_dims, const uint64_t *shape, const uint64_t *strides) {
        struct view v;
        view_make(&v, n_dims, shape, strides);
        return v;
}

#define DIMS(...) ((const uint64_t[]){ __VA_ARGS__ })

static uint64_t extent_of(const struct view *v) {
        uint64_t extent = 99;
        ck_assert(view_extent(v, &extent));
        return extent;
}

START_TEST(P14_an_extent_is_from_the_first_element_to_the_last) {
        uint64_t unused;
        struct view v = view_of(2, DIMS(3, 4), NULL);
        ck_assert_uint_eq(v.strides[0], 4);
        ck_assert_uint_eq(extent_of(&v), 12);
        v = view_of(2, DIMS(3, 4), DIMS(10, 2));
        ck_assert_uint_eq(extent_of(&v), 2 * 10 + 3 * 2 + 1);
        v = view_of(0, NULL, NULL);
        ck_assert_uint_eq(extent_of(&v), 1);
        v = view_of(3, DIMS(UINT64_MAX, 0, 7), DIMS(UINT64_MAX, 1, 1));
        ck_assert_uint_eq(extent_of(&v), 0);
        v = view_of(1, DIMS(1), DIMS(UINT64_MAX));
        ck_assert_uint_eq(extent_of(&v), 1);
        v = view_of(1, DIMS(2), DIMS(INT64_MAX - 1));
        ck_assert_uint_eq(extent_of(&v), INT64_MAX);
        v = view_of(1, DIMS(2), DIMS(INT64_MAX));
        ck_assert(!view_extent(&v, &unused));
        v = view_of(1, DIMS(UINT64_MAX), DIMS(UINT64_MAX));
        ck_assert(!view_extent(&v, &unused));
        v = view_of(2, DIMS(2, 2), DIMS(INT64_MAX - 1, INT64_MAX - 1));
        ck_assert(!view_extent(&v, &unused));
}
END_TEST

static void check_simple(struct view v, const char *expected) {
        char text[200] = "", *at = text;
        view_simplify(&v);
        for (uint32_t i = 0; i < v.n_dims; i++)
                at += sprintf(
                        at, "%llu/%llu ", (unsigned long long)v.shape[i], (unsigned long long)v.strides[i]);
        ck_assert_str_eq(text, expected);
        ck_assert_int_eq(view_is_dense(&v), v.n_dims == 0 || (v.n_dims == 1 && strstr(text, "/1 ")));
}

START_TEST(the_normal_form_has_as_few_dimensions_as_can_be) {
        check_simple(view_of(0, NULL, NULL), "");
        check_simple(view_of(3, DIMS(2, 3, 4), NULL), "24/1 ");
        check_simple(view_of(3, DIMS(1, 1, 1), DIMS(7, 0, 9)), "");
        check_simple(view_of(3, DIMS(2, 1, 4), DIMS(4, 77, 1)), "8/1 ");
        check_simple(view_of(2, DIMS(2, 3), DIMS(6, 2)), "6/2 ");
        check_simple(view_of(2, DIMS(2, 3), DIMS(8, 2)), "2/8 3/2 ");
        check_simple(view_of(2, DIMS(3, 2), DIMS(2, 3)), "3/2 2/3 ");
        check_simple(view_of(4, DIMS(2, 3, 5, 7), DIMS(500, 70, 14, 2)), "2/500 105/2 ");
        check_simple(view_of(1, DIMS(5), DIMS(2)), "5/2 ");
}
END_TEST

/* --- who shares bytes --- */

#define PLANE 4096

/* Writes a mark on every byte; false: one was there. */
static bool mark(const struct placed_view *p, uint8_t plane[PLANE]) {
        bool is_free = true;
        uint64_t count = 1;
        for (uint32_t i = 0; i < p->view.n_dims; i++)
                count *= p->view.shape[i];
        const struct lattice l = { p->element_bytes, p->view.n_dims, p->view.shape, p->view.strides };
        for (uint64_t i = 0; i < count; i++) {
                uint64_t at = p->offset_bytes + lattice_offset(&l, i) * p->element_bytes;
                ck_assert_uint_le(at + p->element_bytes, PLANE);
                for (uint64_t k = 0; k < p->element_bytes; k++)
                        is_free &= plane[at + k]++ == 0;
        }
        return is_free;
}

static struct placed_view draw_view(void) {
        struct placed_view p = {
                .view.n_dims = draw(4), .element_bytes = UINT64_C(1) << draw(3), .offset_bytes = draw(60)
        };
        for (uint32_t i = 0; i < p.view.n_dims; i++) {
                p.view.shape[i] = draw(30) ? 1 + draw(5) : 0;
                p.view.strides[i] = draw(20) ? 1 + draw(draw(2) ? 6 : 40) : 0;
        }
        p.offset_bytes *= p.element_bytes;
        return p;
}

START_TEST(P14_sharing_agrees_with_marks_on_every_byte) {
        static uint8_t plane[PLANE];
        int n[2] = { 0 }, n_self[2] = { 0 }, n_unknown = 0;
        for (int round = 0; round < 100000; round++) {
                struct placed_view a = draw_view(), b = draw_view();
                uint64_t steps = VIEW_STEPS;
                uint32_t dims[2] = { 9, 9 };
                memset(plane, 0, sizeof(plane));
                bool is_alone = mark(&a, plane);
                enum sharing itself = view_shares_itself(&a.view, &steps, dims);
                ck_assert_msg(itself == (is_alone ? SHARING_NOTHING : SHARING_BYTES), "round %d", round);
                n_self[is_alone]++;
                if (!is_alone)
                        ck_assert(dims[0] < a.view.n_dims && dims[1] < a.view.n_dims);
                if (!is_alone)
                        continue;
                uint8_t b_alone[PLANE] = { 0 };
                if (!mark(&b, b_alone))
                        continue;
                bool is_apart = mark(&b, plane);
                steps = 1 << 16;
                enum sharing shares = views_share(&a, &b, &steps);
                n_unknown += shares == SHARING_UNKNOWN;
                ck_assert_msg(shares == (is_apart ? SHARING_NOTHING : SHARING_BYTES), "round %d: %d", round,
                        (int)shares);
                n[is_apart]++;
        }
        ck_assert_int_eq(n_unknown, 0);
        ck_assert_int_gt(n[0], 5000);
        ck_assert_int_gt(n[1], 5000);
        ck_assert_int_gt(n_self[0], 5000);
        ck_assert_int_gt(n_self[1], 5000);
}
END_TEST

START_TEST(P14_columns_of_a_large_matrix_are_told_apart_in_a_few_steps) {
        const uint64_t rows = UINT64_C(1) << 40, columns = 1000;
        struct placed_view a = { .view = { 1, { rows }, { columns } }, .element_bytes = 4 }, b = a;
        for (uint64_t k = 1; k < columns; k++) {
                uint64_t steps = 40;
                b.offset_bytes = 4 * k;
                ck_assert_int_eq(views_share(&a, &b, &steps), SHARING_NOTHING);
                b.offset_bytes = 4 * k * columns; /* the same column, some rows later */
                ck_assert_int_eq(views_share(&a, &b, &steps), SHARING_BYTES);
        }
}
END_TEST

START_TEST(P21_what_cannot_be_told_in_a_few_steps_is_given_up) {
        /* A knapsack: coefficients near each other, and no small common divisor. */
        struct view v = { 4, { 1000, 1000, 1000, 1000 }, { 1000003, 1000033, 1000037, 1000039 } };
        struct placed_view a = { .view = v, .element_bytes = 4 }, b = a;
        uint64_t steps = 1000;
        b.offset_bytes = 4 * UINT64_C(123456789);
        ck_assert_int_ne(views_share(&a, &b, &steps), SHARING_NOTHING);
        ck_assert_uint_lt(steps, 1000);
        uint32_t dims[2];
        steps = 10;
        ck_assert_int_eq(view_shares_itself(&v, &steps, dims), SHARING_UNKNOWN);
        ck_assert_uint_eq(steps, 0);
}
END_TEST

/* --- moving elements --- */

static void check_move(const struct placed_view *p, uint64_t count) {
        static uint8_t memory[PLANE], before[PLANE], dense[PLANE], expected[PLANE];
        const struct lattice l = { p->element_bytes, p->view.n_dims, p->view.shape, p->view.strides };
        uint8_t *base = memory + p->offset_bytes;
        for (size_t i = 0; i < PLANE; i++) {
                memory[i] = before[i] = (uint8_t)draw(256);
                dense[i] = (uint8_t)draw(256);
        }
        uint64_t first = draw(count), n = 1 + draw(count - first);
        memcpy(expected, dense, PLANE);
        for (uint64_t i = 0; i < n; i++)
                memcpy(expected + i * l.element_bytes, base + lattice_offset(&l, first + i) * l.element_bytes,
                        l.element_bytes);
        lattice_gather(&l, base, first, n, dense);
        ck_assert_mem_eq(dense, expected, PLANE);

        for (size_t i = 0; i < n * l.element_bytes; i++)
                dense[i] = ~dense[i];
        lattice_scatter(&l, base, first, n, dense);
        for (uint64_t i = 0; i < n; i++)
                for (uint64_t k = 0; k < l.element_bytes; k++) {
                        uint64_t at = p->offset_bytes + lattice_offset(&l, first + i) * l.element_bytes + k;
                        before[at] = ~before[at];
                }
        ck_assert_mem_eq(memory, before, PLANE);
}

START_TEST(P14_elements_move_and_nothing_between_them) {
        int n_moved = 0;
        for (int round = 0; round < 20000; round++) {
                uint32_t dims[2];
                uint64_t steps = VIEW_STEPS, count = 1;
                struct placed_view p = draw_view();
                p.element_bytes = UINT64_C(1) << draw(5);
                p.offset_bytes = draw(30);
                for (uint32_t i = 0; i < p.view.n_dims; i++)
                        count *= p.view.shape[i];
                if (count == 0 || extent_of(&p.view) * p.element_bytes > PLANE - 30 ||
                        view_shares_itself(&p.view, &steps, dims) != SHARING_NOTHING)
                        continue;
                check_move(&p, count);
                n_moved++;
        }
        ck_assert_int_gt(n_moved, 5000);
}
END_TEST

/* --- checksums --- */

START_TEST(E11_a_checksum_is_the_sum_of_its_parts_and_sees_changes) {
        static uint8_t data[16 * 1000];
        for (size_t size = 1; size <= 16; size *= 2) {
                for (size_t i = 0; i < sizeof(data); i++)
                        data[i] = (uint8_t)draw(256);
                uint64_t whole = checksum_elements(data, 1000, size, 0);
                for (int round = 0; round < 300; round++) {
                        uint64_t cut = draw(1001), at = draw(1000 * size), other = draw(1000);
                        ck_assert_uint_eq(checksum_elements(data, cut, size, 0) +
                                                  checksum_elements(data + cut * size, 1000 - cut, size, cut),
                                whole);
                        uint8_t old = data[at];
                        data[at] ^= 1 + draw(255);
                        ck_assert_uint_ne(checksum_elements(data, 1000, size, 0), whole);
                        data[at] = old;
                        /* Two that change places. */
                        uint8_t a[16], b[16];
                        uint64_t one = draw(1000);
                        memcpy(a, data + one * size, size);
                        memcpy(b, data + other * size, size);
                        if (memcmp(a, b, size) == 0)
                                continue;
                        memcpy(data + one * size, b, size);
                        memcpy(data + other * size, a, size);
                        ck_assert_uint_ne(checksum_elements(data, 1000, size, 0), whole);
                        memcpy(data + one * size, a, size);
                        memcpy(data + other * size, b, size);
                }
                ck_assert_uint_eq(checksum_elements(data, 1000, size, 0), whole);
        }
}
END_TEST

START_TEST(E11_a_checksum_of_strided_elements_is_that_of_the_same_dense_ones) {
        static uint16_t matrix[70 * 90], dense[60 * 40];
        const uint64_t shape[] = { 60, 40 }, strides[] = { 90, 2 };
        const struct lattice l = { 2, 2, shape, strides };
        for (size_t i = 0; i < 70 * 90; i++)
                matrix[i] = (uint16_t)draw(65536);
        lattice_gather(&l, matrix, 0, 2400, dense);
        ck_assert_uint_eq(checksum_lattice(&l, matrix, 2400), checksum_elements(dense, 2400, 2, 0));
        const struct lattice flat = { .element_bytes = 2 };
        ck_assert_uint_eq(checksum_lattice(&flat, dense, 2400), checksum_elements(dense, 2400, 2, 0));
}
END_TEST

UNIT_MAIN("view", 60, P14_an_extent_is_from_the_first_element_to_the_last,
        the_normal_form_has_as_few_dimensions_as_can_be, P14_sharing_agrees_with_marks_on_every_byte,
        P14_columns_of_a_large_matrix_are_told_apart_in_a_few_steps,
        P21_what_cannot_be_told_in_a_few_steps_is_given_up, P14_elements_move_and_nothing_between_them,
        E11_a_checksum_is_the_sum_of_its_parts_and_sees_changes,
        E11_a_checksum_of_strided_elements_is_that_of_the_same_dense_ones)
