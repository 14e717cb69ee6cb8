/* The timeline of a flight recorder: what stands where, as JSON and as a picture. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include "ctl-answers.h"
#include "trace.h"
#include "unit.h"

static const struct tutti_answer empty;

/* Two that overlap, a later one that R3 never came to. R2 of the first came 300 us late. */
static const uint64_t first_ns[] = { 0, 12 * US, 300 * US, 20 * US },
                      second_ns[] = { 5 * US, 0, 6 * US, 7 * US },
                      third_ns[] = { 0, 5 * US, 9 * US, UINT64_MAX };

#define PLACED(...)                                                                                          \
        RECORD(.kind = TUTTI_KIND_REDUCE, .op = TUTTI_MEAN, .dtype = TUTTI_F32, .bytes = 4096,               \
                .n_entries = 1, __VA_ARGS__)

static const struct tutti_row placed_rows[] = {
        PLACED(.key = "b", .collective = 2, .age_ns = 9900 * US, .sealed_ns = 7 * US, .done_ns = 10 * US,
                .status = TUTTI_OK, .have = RANKS(0xf), .last_rank = 3, .n_arrivals = 4,
                .arrival_ns = second_ns),
        PLACED(.key = "a", .collective = 1, .age_ns = 10000 * US, .sealed_ns = 300 * US, .done_ns = 400 * US,
                .status = TUTTI_OK, .have = RANKS(0xf), .last_rank = 2, .n_arrivals = 4,
                .arrival_ns = first_ns),
        PLACED(.key = "<c&\x01>", .collective = 0, .age_ns = 9000 * US, .done_ns = 1600 * US,
                .status = TUTTI_TIMEOUT, .have = RANKS(0x7), .last_rank = 2, .has_guilty = 1,
                .guilty_rank = 3, .n_arrivals = 4, .arrival_ns = third_ns),
};
static const struct tutti_answer placed_answer = { sizeof(placed_rows) / sizeof(*placed_rows), placed_rows };
static const struct dump_view placed = { &placed_answer, &empty, "dp", "train", "host1", 1700000000 * S },
                              nothing = { &empty, &empty, "dp", "train", "host1", 0 };

START_TEST(collectives_stand_in_order_on_lanes_of_their_own) {
        struct trace *t = trace_new(&placed, 1000);

        ck_assert_ptr_nonnull(t);
        ck_assert_uint_eq(t->n_items, 3);
        ck_assert_uint_eq(t->n_lanes, 2);
        ck_assert_uint_eq(t->world_size, 4);
        ck_assert_uint_eq(t->start_unix_ns, 1700000000 * S - 10 * MS);
        ck_assert_str_eq(t->items[0].record->key, "a");
        ck_assert_uint_eq(t->items[0].begin_ns, 0);
        ck_assert_uint_eq(t->items[0].end_ns, 400 * US);
        ck_assert_uint_eq(t->items[0].lane, 0);
        ck_assert_str_eq(t->items[1].record->key, "b");
        ck_assert_uint_eq(t->items[1].begin_ns, 100 * US);
        ck_assert_uint_eq(t->items[1].lane, 1);
        ck_assert_uint_eq(t->items[2].begin_ns, 1000 * US);
        ck_assert_uint_eq(t->items[2].lane, 0);
        ck_assert_uint_eq(t->end_ns, 2600 * US);
        trace_free(t);
}
END_TEST

START_TEST(last_takes_the_newest) {
        struct trace *t = trace_new(&placed, 2);

        ck_assert_uint_eq(t->n_items, 2);
        ck_assert_str_eq(t->items[0].record->key, "a");
        ck_assert_uint_eq(t->items[1].begin_ns, 1000 * US);
        trace_free(t);
}
END_TEST

START_TEST(the_straggler_is_who_comes_last_most) {
        struct trace *t = trace_new(&placed, 1000), *none = trace_new(&nothing, 1000);
        struct trace_straggler s = trace_straggler(t);

        ck_assert_uint_eq(s.rank, 2);
        ck_assert_uint_eq(s.n_last, 2);
        ck_assert_uint_eq(s.n_joint, 3);
        ck_assert_uint_eq(s.median_ns, 9 * US);
        ck_assert_uint_eq(trace_straggler(none).n_joint, 0);
        trace_free(t);
        trace_free(none);
}
END_TEST

START_TEST(a_part_is_late_then_waits_then_runs) {
        struct trace_part part = trace_part(&placed_rows[1].record, 1);

        ck_assert_int_eq(part.what, PART_CAME);
        ck_assert_uint_eq(part.arrived_ns, 12 * US);
        ck_assert_uint_eq(part.sealed_ns, 300 * US);
        ck_assert_uint_eq(part.done_ns, 400 * US);
        part = trace_part(&placed_rows[2].record, 0);
        ck_assert_int_eq(part.what, PART_CAME);
        ck_assert_uint_eq(part.sealed_ns, 1600 * US);
        ck_assert_int_eq(trace_part(&placed_rows[2].record, 3).what, PART_MISSING);
        ck_assert_int_eq(trace_part(&placed_rows[0].record, 4).what, PART_ABSENT);
}
END_TEST

struct sheet {
        char *text;
        size_t n;
};

static void write_sheet(
        struct sheet *s, const struct dump_view *v, int (*write)(const struct trace *, FILE *)) {
        struct trace *t = trace_new(v, 1000);
        FILE *out = open_memstream(&s->text, &s->n);

        ck_assert_ptr_nonnull(t);
        ck_assert_int_eq(write(t, out), 0);
        fclose(out);
        trace_free(t);
}

/* The first slice of this category of one replica's (or the collective's, row 0) part of a collective. */
static const json_t *find_slice(const json_t *trace, const char *category, const char *key, int64_t rank) {
        size_t i;
        const json_t *event;

        json_array_foreach(json_object_get(trace, "traceEvents"), i, event) {
                const json_t *args = json_object_get(event, "args"), *cat = json_object_get(event, "cat");
                const json_t *found_rank = json_object_get(args, "rank");

                if (cat && strcmp(json_string_value(cat), category) == 0 &&
                        strcmp(json_string_value(json_object_get(args, "key")), key) == 0 &&
                        (found_rank ? json_integer_value(found_rank) == rank : rank < 0))
                        return event;
        }
        return NULL;
}

static void expect_slice(const json_t *event, double ts, double dur, int64_t thread) {
        ck_assert_ptr_nonnull(event);
        ck_assert_double_eq_tol(json_number_value(json_object_get(event, "ts")), ts, 1e-6);
        ck_assert_double_eq_tol(json_number_value(json_object_get(event, "dur")), dur, 1e-6);
        ck_assert_int_eq(json_integer_value(json_object_get(event, "tid")), thread);
}

START_TEST(json_says_when_each_came_waited_and_ran_L5) {
        struct sheet s;
        json_t *j;

        write_sheet(&s, &placed, trace_write_json);
        j = json_loads(s.text, 0, NULL);
        ck_assert_ptr_nonnull(j);
        expect_slice(find_slice(j, "collective", "a", -1), 0, 400, 0);
        expect_slice(find_slice(j, "late", "a", 2), 0, 300, 3);
        ck_assert_ptr_null(find_slice(j, "wait", "a", 2));
        expect_slice(find_slice(j, "run", "a", 2), 300, 100, 3);
        ck_assert_ptr_null(find_slice(j, "late", "a", 0));
        expect_slice(find_slice(j, "wait", "a", 0), 0, 300, 1);
        expect_slice(find_slice(j, "wait", "b", 0), 105, 2, 6);
        expect_slice(find_slice(j, "missing", "<c&\x01>", 3), 1000, 1600, 4);
        ck_assert_ptr_null(find_slice(j, "run", "<c&\x01>", 0));
        ck_assert_double_eq_tol(
                json_number_value(json_object_get(find_slice(j, "arrival", "a", 1), "ts")), 12, 1e-6);
        ck_assert_int_eq(
                json_integer_value(json_object_get(json_object_get(j, "otherData"), "latest_rank")), 2);
        json_decref(j);
        free(s.text);
}
END_TEST

/* The bar of this class in a replica's part; the part must be there. */
static int find_bar(const char *svg, const char *part, const char *class, double *x, double *width) {
        const char *begin = strstr(svg, part), *end, *bar;
        char wanted[64];

        ck_assert_msg(begin != NULL, "no %s in %s", part, svg);
        end = strstr(begin, "</g>");
        snprintf(wanted, sizeof(wanted), "<rect class=\"%s\" x=\"", class);
        bar = strstr(begin, wanted);
        if (!bar || bar > end)
                return 0;
        return sscanf(bar + strlen(wanted), "%lf\" y=\"%*f\" width=\"%lf\"", x, width) == 2;
}

#define LEFT  90.0
#define SCALE (1090.0 / 2600) /* a us */

START_TEST(json_is_ascii_whatever_names_hold) {
        static const struct dump_view named = { &placed_answer, &empty, "d\xc2\x9bp", "tr\xc3\xa4in",
                "h\xc3\xb6st", 0 };
        struct trace *t = trace_new(&named, 1000);
        char *text = NULL;
        size_t n;
        FILE *out = open_memstream(&text, &n);

        ck_assert(t && out);
        ck_assert_int_eq(trace_write_json(t, out), 0);
        fclose(out);
        for (size_t i = 0; i < n; i++)
                ck_assert_uint_lt((unsigned char)text[i], 0x80);
        free(text);
        trace_free(t);
}
END_TEST

START_TEST(svg_draws_the_straggler_where_it_was_L5) {
        struct sheet s;
        double x, width;

        write_sheet(&s, &placed, trace_write_svg);
        ck_assert(find_bar(s.text, "<g data-rank=\"2\" data-collective=\"1\">", "late", &x, &width));
        ck_assert_double_eq_tol(x, LEFT, 0.001);
        ck_assert_double_eq_tol(width, 300 * SCALE, 0.001);
        ck_assert(!find_bar(s.text, "<g data-rank=\"2\" data-collective=\"1\">", "wait", &x, &width));
        ck_assert(find_bar(s.text, "<g data-rank=\"2\" data-collective=\"1\">", "run", &x, &width));
        ck_assert_double_eq_tol(x, LEFT + 300 * SCALE, 0.001);
        ck_assert(find_bar(s.text, "<g data-rank=\"0\" data-collective=\"1\">", "wait", &x, &width));
        ck_assert_double_eq_tol(x, LEFT, 0.001);
        ck_assert_double_eq_tol(width, 300 * SCALE, 0.001);
        ck_assert(find_bar(s.text, "<g data-rank=\"3\" data-collective=\"0\">", "missing", &x, &width));
        ck_assert_double_eq_tol(x, LEFT + 1000 * SCALE, 0.001);
        ck_assert_double_eq_tol(width, 1600 * SCALE, 0.001);
        ck_assert_ptr_nonnull(strstr(s.text, "R2 came last in 2 of 3, usually 9 us after the first"));
        ck_assert_ptr_nonnull(
                strstr(s.text, "<title>R0 &lt;c&amp;?&gt;: late 0 ns, waited 1.6 ms, ran 0 ns"));
        free(s.text);
}
END_TEST

static size_t count_parts(const char *text, const char *part) {
        size_t n = 0;

        while ((text = strstr(text, part))) {
                text += strlen(part);
                n++;
        }
        return n;
}

/* A thousand collectives of a hundred replicas, of which R77 is late by 1 ms. */
START_TEST(svg_of_many_shows_the_latest) {
        enum { N = 1000, WORLD = 100 };
        static uint64_t arrivals[WORLD];
        struct tutti_row *rows = calloc(N, sizeof(*rows));
        struct sheet s;

        arrivals[77] = 1 * MS;
        for (uint32_t i = 0; i < N; i++)
                rows[i] = (struct tutti_row)PLACED(.key = "k", .collective = i + 1, .n_arrivals = WORLD,
                        .age_ns = (N - i) * 2 * MS, .sealed_ns = 1 * MS, .done_ns = 1100 * US,
                        .last_rank = 77, .arrival_ns = arrivals);
        struct tutti_answer answer = { N, rows };
        struct dump_view v = { &answer, &empty, "dp", "big", "host1", 1700000000 * S };
        write_sheet(&s, &v, trace_write_svg);
        ck_assert_ptr_nonnull(strstr(s.text, "R77 came last in 1,000 of 1,000, usually 1 ms after the first; "
                                             "of 100 replicas the 64 latest are shown"));
        ck_assert_uint_eq(count_parts(s.text, "<rect class=\"late\""), N + 1); /* and the legend's */
        ck_assert_uint_eq(count_parts(s.text, "data-rank=\"77\""), N);
        ck_assert_uint_eq(count_parts(s.text, "\">collective "), N / 40);
        free(s.text);
        free(rows);
}
END_TEST

START_TEST(of_nothing_there_is_an_empty_picture) {
        struct sheet s;

        write_sheet(&s, &nothing, trace_write_svg);
        ck_assert_ptr_nonnull(strstr(s.text, ">0 collectives in 0 ns</text>"));
        free(s.text);
        write_sheet(&s, &nothing, trace_write_json);
        json_t *j = json_loads(s.text, 0, NULL);
        ck_assert(json_is_null(json_object_get(json_object_get(j, "otherData"), "latest_rank")));
        json_decref(j);
        free(s.text);
}
END_TEST

UNIT_MAIN("ctl-trace", 20, collectives_stand_in_order_on_lanes_of_their_own, last_takes_the_newest,
        the_straggler_is_who_comes_last_most, a_part_is_late_then_waits_then_runs,
        json_says_when_each_came_waited_and_ran_L5, json_is_ascii_whatever_names_hold,
        svg_draws_the_straggler_where_it_was_L5, svg_of_many_shows_the_latest,
        of_nothing_there_is_an_empty_picture)
