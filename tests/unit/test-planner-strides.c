/* Strided values before the planner: interleaved ones that share no byte are planned, those that do are
 * refused (P14), judged by marks on every byte; plans with strides as printed text. */
#include "unit.h"

#include <stdio.h>
#include <string.h>
#include "base/text.h"
#include "planner.h"

#define MAX_RANKS  4
#define MAX_VALUES 2048
#define FILE_BYTES 8192

static struct entry entries[MAX_RANKS][MAX_VALUES];

struct table {
        struct signature signature;
        uint32_t n_ranks;
        struct planner *planner;
        struct plan plan;
        struct error err;
};

static void table_init(struct table *t, uint32_t n_ranks, uint32_t n_entries) {
        memset(t, 0, sizeof(*t));
        memset(entries, 0, sizeof(entries));
        t->signature = (struct signature){ .kind = KIND_BATCH_REDUCE, .op = OP_SUM, .n_entries = n_entries };
        t->n_ranks = n_ranks;
        plan_init(&t->plan);
        ck_assert_int_eq(planner_new(&t->planner, 1, 4096), 0);
}

static void table_deinit(struct table *t) {
        planner_free(t->planner);
        plan_deinit(&t->plan);
}

static enum status table_plan(struct table *t) {
        static const uint32_t ranks[MAX_RANKS] = { 0, 1, 2, 3 };
        const struct entry *pointers[MAX_RANKS] = { entries[0], entries[1], entries[2], entries[3] };
        const struct problem problem = { .signature = &t->signature,
                .n_ranks = t->n_ranks,
                .ranks = ranks,
                .entries = pointers,
                .divisor = t->n_ranks,
                .n_devices = 1 };
        return planner_plan(t->planner, &problem, &t->plan, &t->err);
}

static void shape(uint32_t rank, uint32_t e, enum dtype dtype, uint64_t rows, uint64_t columns) {
        struct entry *entry = &entries[rank][e];
        entry->dtype = dtype;
        entry->destination = DESTINATION_ALL;
        entry->n_dims = 2;
        entry->shape[0] = rows;
        entry->shape[1] = columns;
}

/* At element `at` of the file, with these strides. */
static struct place place_of(
        const struct entry *e, uint64_t file, uint64_t at, uint64_t outer, uint64_t inner) {
        struct place p = { .buffer = file * 10,
                .file = file,
                .offset_bytes = at * dtype_bytes(e->dtype),
                .n_strides = 2,
                .strides = { outer, inner } };
        struct view view;
        uint64_t extent;
        entry_view(e, &p, &view);
        ck_assert(view_extent(&view, &extent));
        p.span = (struct span){ p.offset_bytes, extent * dtype_bytes(e->dtype) };
        return p;
}

START_TEST(P14_columns_of_one_matrix_by_several_replicas_and_entries_are_planned) {
        const uint32_t n_columns = MAX_VALUES * MAX_RANKS;
        struct table t;
        table_init(&t, MAX_RANKS, MAX_VALUES);
        for (uint32_t r = 0; r < MAX_RANKS; r++)
                for (uint32_t e = 0; e < MAX_VALUES; e++) {
                        shape(r, e, DTYPE_F32, 100, 1);
                        entries[r][e].input = entries[r][e].output =
                                place_of(&entries[r][e], 1, e * MAX_RANKS + r, n_columns, 1);
                }
        ck_assert_msg(table_plan(&t) == STATUS_OK, "%s", t.err.detail);
        ck_assert_uint_eq(t.plan.n_steps, MAX_VALUES);

        /* Two of them are one column, far apart in the batch. */
        entries[3][MAX_VALUES - 1].output = entries[0][5].input;
        ck_assert_int_eq(table_plan(&t), STATUS_INVALID);
        ck_assert_int_eq(t.err.field, FIELD_OVERLAP);
        table_deinit(&t);
}
END_TEST

START_TEST(P14_in_place_is_equal_strides_too) {
        struct table t;
        table_init(&t, 1, 1);
        shape(0, 0, DTYPE_F64, 4, 4);
        entries[0][0].input = place_of(&entries[0][0], 1, 0, 4, 1);
        entries[0][0].output = place_of(&entries[0][0], 1, 0, 1, 4); /* its own transpose */
        ck_assert_int_eq(table_plan(&t), STATUS_INVALID);
        ck_assert(strstr(t.err.detail, "output of R0 (entry 0) overlaps the input of R0 (entry 0)"));
        entries[0][0].output = entries[0][0].input;
        ck_assert_int_eq(table_plan(&t), STATUS_OK);
        entries[0][0].output.n_strides = 0; /* the same places, said otherwise */
        ck_assert_int_eq(table_plan(&t), STATUS_OK);
        /* A dimension of 1 has no stride to speak of. */
        shape(0, 0, DTYPE_F64, 1, 4);
        entries[0][0].input = place_of(&entries[0][0], 1, 0, 77, 2);
        entries[0][0].output = place_of(&entries[0][0], 1, 0, 3, 2);
        ck_assert_int_eq(table_plan(&t), STATUS_OK);
        table_deinit(&t);
}
END_TEST

/* Strides near each other, in eight dimensions: a knapsack. */
static void set_knapsack(struct entry *e, uint64_t at) {
        struct view view;
        uint64_t extent;
        *e = (struct entry){ .dtype = DTYPE_F32, .destination = DESTINATION_ALL, .n_dims = MAX_DIMS };
        struct place p = { .buffer = 10, .file = 1, .offset_bytes = at, .n_strides = MAX_DIMS };
        for (uint32_t i = 0; i < MAX_DIMS; i++) {
                e->shape[i] = 40;
                p.strides[i] = 999979 + 2 * i * i;
        }
        entry_view(e, &p, &view);
        ck_assert(view_extent(&view, &extent));
        p.span = (struct span){ at, extent * 4 };
        e->input = e->output = p;
}

START_TEST(P14_P21_what_cannot_be_told_is_refused_in_words_and_soon) {
        struct table t;
        table_init(&t, 2, 1);
        set_knapsack(&entries[0][0], 0);
        set_knapsack(&entries[1][0], 4 * UINT64_C(1234567));
        ck_assert_int_eq(table_plan(&t), STATUS_INVALID);
        ck_assert_int_eq(t.err.field, FIELD_OVERLAP);
        ck_assert_msg(strstr(t.err.detail, "cannot be told in reasonable time") ||
                              strstr(t.err.detail, "share memory"),
                "%s", t.err.detail);
        table_deinit(&t);
}
END_TEST

/* --- against marks on every byte --- */

static uint64_t random_state = 11;

static uint64_t draw(uint64_t limit) {
        random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (random_state >> 33) % limit;
}

static struct place draw_place(const struct entry *e, uint64_t row) {
        uint64_t outer = draw(3) ? row : 1 + draw(40), inner = 1 + draw(3);
        if (draw(4) == 0) { /* transposed */
                uint64_t swap = outer;
                outer = inner;
                inner = swap;
        }
        return place_of(e, 1 + draw(2), draw(row * 2), outer, inner);
}

static bool is_alone(const struct entry *e, const struct place *p) {
        struct view view;
        uint64_t steps = VIEW_STEPS;
        uint32_t dims[2];
        entry_view(e, p, &view);
        return view_shares_itself(&view, &steps, dims) == SHARING_NOTHING;
}

static void draw_table(struct table *t) {
        static const enum dtype dtypes[] = { DTYPE_U8, DTYPE_F16, DTYPE_F32 };
        t->n_ranks = 1 + draw(3);
        t->signature.n_entries = 1 + draw(3);
        uint64_t row = 8 + draw(40);
        for (uint32_t e = 0; e < t->signature.n_entries; e++) {
                enum dtype dtype = dtypes[draw(ARRAY_SIZE(dtypes))];
                uint64_t rows = 1 + draw(4), columns = 1 + draw(3);
                for (uint32_t r = 0; r < t->n_ranks; r++) {
                        struct entry *entry = &entries[r][e];
                        shape(r, e, dtype, rows, columns);
                        do {
                                entry->input = draw_place(entry, row);
                        } while (!is_alone(entry, &entry->input));
                        entry->output = entry->input;
                        while (draw(2) || !is_alone(entry, &entry->output))
                                entry->output = draw_place(entry, row);
                }
        }
}

enum { READ = 1, WRITTEN = 2 };

/* Marks the bytes of a place; false: what is there does not go together with it. */
static bool mark(const struct entry *e, const struct place *p, uint8_t how, uint8_t files[3][FILE_BYTES]) {
        struct view view;
        uint64_t count;
        bool is_good = true;
        entry_view(e, p, &view);
        ck_assert(entry_count(e, &count));
        const struct lattice l = { dtype_bytes(e->dtype), view.n_dims, view.shape, view.strides };
        for (uint64_t i = 0; i < count * l.element_bytes; i++) {
                uint64_t at = p->offset_bytes + lattice_offset(&l, i / l.element_bytes) * l.element_bytes +
                              i % l.element_bytes;
                ck_assert_uint_lt(at, FILE_BYTES);
                uint8_t *there = &files[p->file][at];
                is_good &= !((*there & WRITTEN) || (how == WRITTEN && *there));
                *there |= how;
        }
        return is_good;
}

static bool is_in_place(const struct entry *e) {
        struct view in, out;
        entry_view(e, &e->input, &in);
        entry_view(e, &e->output, &out);
        bool is_same = e->input.file == e->output.file && e->input.offset_bytes == e->output.offset_bytes;
        for (uint32_t i = 0; i < 2; i++)
                is_same &= e->shape[i] == 1 || in.strides[i] == out.strides[i];
        return is_same;
}

static bool oracle_allows(const struct table *t) {
        static uint8_t files[3][FILE_BYTES];
        bool is_good = true;
        memset(files, 0, sizeof(files));
        for (int turn = 0; turn < 2; turn++) /* what is only read, then what is written */
                for (uint32_t r = 0; r < t->n_ranks; r++)
                        for (uint32_t i = 0; i < t->signature.n_entries; i++) {
                                const struct entry *e = &entries[r][i];
                                if (turn == 0 && !is_in_place(e))
                                        is_good &= mark(e, &e->input, READ, files);
                                else if (turn == 1)
                                        is_good &= mark(e, &e->output, WRITTEN, files);
                        }
        return is_good;
}

START_TEST(P14_strided_overlaps_agree_with_marks_on_every_byte) {
        struct table t;
        int n_allowed = 0, n_interleaved = 0, n_refused = 0;
        table_init(&t, MAX_RANKS, 1);
        for (int round = 0; round < 12000; round++) {
                draw_table(&t);
                enum status status = table_plan(&t);
                bool is_allowed = oracle_allows(&t);
                ck_assert_msg(status == (is_allowed ? STATUS_OK : STATUS_INVALID), "round %d: %s", round,
                        status == STATUS_OK ? "OK" : t.err.detail);
                n_allowed += is_allowed;
                n_refused += !is_allowed;
                const struct span *a = &entries[0][0].output.span, *b = &entries[1][0].output.span;
                n_interleaved += is_allowed && t.n_ranks > 1 && span_overlaps(a, b) &&
                                 entries[0][0].output.file == entries[1][0].output.file;
        }
        ck_assert_int_gt(n_allowed, 500);
        ck_assert_int_gt(n_refused, 500);
        ck_assert_int_gt(n_interleaved, 40);
        table_deinit(&t);
}
END_TEST

/* --- plans --- */

static void check_text(const struct plan *p, const char *expected) {
        char buf[2048];
        struct text text;
        text_init(&text, buf, sizeof(buf));
        plan_print(p, &text);
        ck_assert_str_eq(strchr(buf, '\n') + 1, expected);
}

START_TEST(plans_show_strides_in_their_normal_form) {
        struct table t;
        table_init(&t, 2, 3);
        for (uint32_t r = 0; r < 2; r++)
                for (uint32_t e = 0; e < 3; e++)
                        shape(r, e, DTYPE_F32, 2, 3);
        for (uint32_t e = 0; e < 3; e++) {
                entries[0][e].input = entries[0][e].output = place_of(&entries[0][e], 1 + e, 0, 6, 2);
                entries[1][e].input = entries[1][e].output = place_of(&entries[1][e], 1 + e, 100, 3, 1);
        }
        entries[1][0].input.n_strides = entries[1][0].output.n_strides = 0;
        entries[1][1].input = entries[1][1].output = place_of(&entries[1][1], 2, 100, 1, 2);
        entries[0][2].input = entries[0][2].output = place_of(&entries[0][2], 3, 0, 3, 1);
        ck_assert_msg(table_plan(&t) == STATUS_OK, "%s", t.err.detail);
        check_text(&t.plan,
                "reduce SUM f32 x6 [6]  R0 b10+0/2, R1 b10+400/1 -> R0 b10+0/2, R1 b10+400/1\n"
                "reduce SUM f32 x6 [2,3]  R0 b20+0/6,2, R1 b20+400/1,2 -> R0 b20+0/6,2, R1 b20+400/1,2\n"
                "reduce SUM f32 x6  R0 b30+0, R1 b30+400 -> R0 b30+0, R1 b30+400\n");
        ck_assert_uint_eq(t.plan.n_strides, 4 + 8);
        table_deinit(&t);
}
END_TEST

UNIT_MAIN("planner-strides", 60, P14_columns_of_one_matrix_by_several_replicas_and_entries_are_planned,
        P14_in_place_is_equal_strides_too, P14_P21_what_cannot_be_told_is_refused_in_words_and_soon,
        P14_strided_overlaps_agree_with_marks_on_every_byte, plans_show_strides_in_their_normal_form)
