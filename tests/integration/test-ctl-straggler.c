/* The timeline of a real run, beside its dump: the replica that is slow is seen to be. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "host.h"
#include "program.h"
#include "replica.h"
#include "unit.h"

#define N_STEPS  20
#define SLEEP_US 20000

/* R2 comes 20 ms after the others each time. R0 has two under way at once in the end. */
static void slow_rank_2(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_work *w;

        for (int i = 0; i < N_STEPS; i++) {
                if (me->rank == 2)
                        usleep(SLEEP_US);
                ck_assert_int_eq(tutti_barrier(g, NULL), TUTTI_OK);
        }
        ck_assert_int_eq(tutti_barrier_start(g, "early <&", NULL, &w), TUTTI_OK);
        ck_assert_int_eq(tutti_barrier(g, "late"), TUTTI_OK);
        ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_OK);
        tutti_work_free(w);
        tutti_group_free(g);
}

static char *answer(struct host *h, const char *const *words) {
        const char *argv[12] = { program_tuttictl(), words[0], "--socket", host_socket(h) };
        struct program p;

        for (int i = 1, n = 4; words[i]; i++)
                argv[n++] = words[i];
        program_run(argv, 10, &p);
        ck_assert_msg(p.code == 0, "exit code %d: %s", p.code, p.err);
        free(p.err);
        return p.out;
}

static json_t *json_answer(struct host *h, const char *const *words) {
        char *text = answer(h, words);
        json_t *j = json_loads(text, 0, NULL);

        ck_assert_msg(j != NULL, "no JSON: %s", text);
        free(text);
        return j;
}

static void check_schema(struct host *h) {
        char line[1024];
        int status;

        snprintf(line, sizeof(line),
                "%s trace --json --socket %s train | python3 %s/tests/support/check-schema.py "
                "%s/docs/schema/trace.json",
                program_tuttictl(), host_socket(h), TUTTI_SOURCE_ROOT, TUTTI_SOURCE_ROOT);
        status = system(line);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                printf("# python3-jsonschema is not installed: the schema is not checked\n");
        else
                ck_assert_int_eq(status, 0);
}

static int64_t number(const json_t *object, const char *name) {
        return json_integer_value(json_object_get(object, name));
}

/* In ns after the beginning of the trace. */
static int64_t begin_of(const json_t *event) {
        return llround(json_number_value(json_object_get(event, "ts")) * 1e3);
}

static int64_t end_of(const json_t *event) {
        return begin_of(event) + llround(json_number_value(json_object_get(event, "dur")) * 1e3);
}

static const json_t *find_event(const json_t *trace, const char *category, int64_t collective, int64_t rank) {
        size_t i;
        const json_t *event;

        json_array_foreach(json_object_get(trace, "traceEvents"), i, event) {
                const json_t *args = json_object_get(event, "args"), *cat = json_object_get(event, "cat");

                if (cat && strcmp(json_string_value(cat), category) == 0 &&
                        number(args, "collective") == collective &&
                        (rank < 0 || number(args, "rank") == rank))
                        return event;
        }
        return NULL;
}

/* One collective: both documents say the same to the nanosecond. */
static void compare(const json_t *trace, const json_t *record, int64_t start_ns) {
        int64_t n = number(record, "collective"), sealed = number(record, "sealed_after_ns");
        int64_t begin = number(record, "start_unix_ns") - start_ns, done = number(record, "done_after_ns");
        const json_t *whole = find_event(trace, "collective", n, -1);

        if (sealed > done) /* both in the instant in which it began: 0 is kept for what was never sealed */
                sealed = done;
        ck_assert_ptr_nonnull(whole);
        ck_assert_int_eq(begin_of(whole), begin);
        ck_assert_int_eq(end_of(whole), begin + done);
        for (int64_t rank = 0; rank < 3; rank++) {
                int64_t came = json_integer_value(
                        json_array_get(json_object_get(record, "arrived_after_ns"), (size_t)rank));
                const json_t *wait = find_event(trace, "wait", n, rank),
                             *run = find_event(trace, "run", n, rank);

                ck_assert_int_eq(begin_of(find_event(trace, "arrival", n, rank)), begin + came);
                ck_assert((wait != NULL) == (came < sealed));
                if (wait) {
                        ck_assert_int_eq(begin_of(wait), begin + came);
                        ck_assert_int_eq(end_of(wait), begin + sealed);
                }
                if (done > sealed) {
                        ck_assert_int_eq(begin_of(run), begin + sealed);
                        ck_assert_int_eq(end_of(run), begin + done);
                }
        }
}

START_TEST(the_trace_agrees_with_the_dump_L5) {
        struct host *h = host_start(NULL);
        json_t *trace, *dump;
        const json_t *record, *about;
        size_t i;

        run_replicas(h, 3, slow_rank_2, NULL);
        dump = json_answer(h, (const char *[]){ "dump", "--json", "train", NULL });
        trace = json_answer(h, (const char *[]){ "trace", "train", NULL });
        about = json_object_get(trace, "otherData");
        ck_assert_int_eq(number(about, "latest_rank"), 2);
        ck_assert_int_ge(number(about, "latest_came_last"), N_STEPS * 95 / 100);
        ck_assert_int_eq(number(about, "joint"), N_STEPS + 2);
        ck_assert_uint_eq(json_array_size(json_object_get(dump, "records")), N_STEPS + 2);
        /* Both answers count back from moments of their own: the first record says by how much they differ.
         */
        record = json_array_get(json_object_get(dump, "records"), 0);
        int64_t start_ns = number(record, "start_unix_ns") -
                           begin_of(find_event(trace, "collective", number(record, "collective"), -1));
        json_array_foreach(json_object_get(dump, "records"), i, record) compare(trace, record, start_ns);
        json_decref(dump);
        json_decref(trace);
        check_schema(h);
        host_stop(h);
}
END_TEST

struct bar {
        double x, width;
};

/* Whether the part of the picture that begins with `part` has a bar of this class. */
static int find_bar(const char *svg, const char *part, const char *class, struct bar *ret) {
        const char *begin = strstr(svg, part), *end, *bar;
        char wanted[64];

        ck_assert_msg(begin != NULL, "no %s in %s", part, svg);
        end = strstr(begin, "</g>");
        snprintf(wanted, sizeof(wanted), "<rect class=\"%s\" x=\"", class);
        bar = strstr(begin, wanted);
        return bar && bar < end &&
               sscanf(bar + strlen(wanted), "%lf\" y=\"%*f\" width=\"%lf\"", &ret->x, &ret->width) == 2;
}

START_TEST(the_picture_shows_who_is_late_L5_C4) {
        struct host *h = host_start(NULL);
        int n_seen = 0;
        char *svg;

        run_replicas(h, 3, slow_rank_2, NULL);
        svg = answer(h, (const char *[]){ "trace", "--svg", "train", NULL });
        ck_assert_ptr_nonnull(strstr(svg, "; R2 came last in "));
        ck_assert_ptr_nonnull(strstr(svg, "early &lt;&amp;"));
        for (int i = 1; i <= N_STEPS; i++) {
                struct bar whole, late, wait;
                char part[64];

                snprintf(part, sizeof(part), "<g data-collective=\"%d\">", i);
                ck_assert(find_bar(svg, part, "ok", &whole));
                snprintf(part, sizeof(part), "<g data-rank=\"2\" data-collective=\"%d\">", i);
                if (!find_bar(svg, part, "late", &late) || late.width < whole.width * 0.8)
                        continue; /* the machine was slower than R2 */
                ck_assert_double_eq_tol(late.x, whole.x, 0.01);
                snprintf(part, sizeof(part), "<g data-rank=\"0\" data-collective=\"%d\">", i);
                ck_assert(find_bar(svg, part, "wait", &wait));
                n_seen += fabs(wait.x + wait.width - late.x - late.width) < 0.01;
        }
        ck_assert_int_ge(n_seen, N_STEPS * 8 / 10);
        free(svg);
        svg = answer(h, (const char *[]){ "trace", "--svg", "--last", "1", "train", NULL });
        ck_assert_ptr_nonnull(strstr(svg, ">1 collective in "));
        free(svg);
        host_stop(h);
}
END_TEST

static void meet_often(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));

        for (int i = 0; i < 3000; i++)
                ck_assert_int_eq(tutti_barrier(g, NULL), TUTTI_OK);
        tutti_group_free(g);
}

/* tuttid writes a long answer in many turns: still two dumps differ by the same time in every record. */
START_TEST(all_ages_of_a_dump_count_back_from_one_moment) {
        struct host *h = host_start(NULL);
        const char *const words[] = { "dump", "--json", "train", NULL };
        int64_t offset = 0;

        run_replicas(h, 2, meet_often, NULL);
        json_t *one = json_answer(h, words), *two = json_answer(h, words);
        const json_t *first = json_object_get(one, "records"), *second = json_object_get(two, "records");
        ck_assert_uint_eq(json_array_size(first), 3000);
        ck_assert_uint_eq(json_array_size(second), 3000);
        for (size_t i = 0; i < 3000; i++) {
                int64_t apart = number(json_array_get(second, i), "start_unix_ns") -
                                number(json_array_get(first, i), "start_unix_ns");

                offset = i ? offset : apart;
                ck_assert_int_eq(apart, offset);
        }
        json_decref(one);
        json_decref(two);
        host_stop(h);
}
END_TEST

START_TEST(trace_refuses_what_it_cannot_do) {
        static const char *const wrong[][3] = { { "--last", "0", "g" }, { "--last", "x", "g" },
                { "--last", "-1", "g" }, { "--json", "--svg", "g" }, { "--interval", "1", "g" } };
        struct program p;

        for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
                program_run((const char *[]){ program_tuttictl(), "trace", wrong[i][0], wrong[i][1],
                                    wrong[i][2], NULL },
                        10, &p);
                ck_assert_msg(p.code == 64, "case %zu gives %d", i, p.code);
                ck_assert_ptr_nonnull(strstr(p.err, "usage: tuttictl trace "));
                program_deinit(&p);
        }
}
END_TEST

UNIT_MAIN("ctl-straggler", 60, the_trace_agrees_with_the_dump_L5, the_picture_shows_who_is_late_L5_C4,
        all_ages_of_a_dump_count_back_from_one_moment, trace_refuses_what_it_cannot_do)
