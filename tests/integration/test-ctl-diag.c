/* diag against a real tuttid: all levels pass on a host that serves, and what does not is said. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "host.h"
#include "meeting.h"
#include "program.h"
#include "unit.h"

struct diagnosed {
        struct program p;
        json_t *document;
};

static void diagnose(const char *socket, const char *level, struct diagnosed *d) {
        char line[512];
        const char *argv[] = { program_tuttictl(), "diag", "--json", "--level", level, "--socket", socket,
                NULL };

        program_run(argv, 60, &d->p);
        ck_assert_str_eq(d->p.err, "");
        d->document = json_loads(d->p.out, 0, NULL);
        ck_assert_msg(d->document != NULL, "no JSON: %s", d->p.out);
        ck_assert_int_eq(json_integer_value(json_object_get(d->document, "exit_code")), d->p.code);
        snprintf(line, sizeof(line), "python3 %s/tests/support/check-schema.py %s/docs/schema/diag.json",
                TUTTI_SOURCE_ROOT, TUTTI_SOURCE_ROOT);
        FILE *checker = popen(line, "we");
        ck_assert_ptr_nonnull(checker);
        fputs(d->p.out, checker);
        int status = pclose(checker);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                printf("# python3-jsonschema is not installed: the schema is not checked\n");
        else
                ck_assert_int_eq(status, 0);
}

static void diagnosed_deinit(struct diagnosed *d) {
        json_decref(d->document);
        program_deinit(&d->p);
}

static const json_t *find(const struct diagnosed *d, const char *check) {
        const json_t *checks = json_object_get(d->document, "checks");

        for (size_t i = 0; i < json_array_size(checks); i++) {
                const json_t *one = json_array_get(checks, i);
                if (strcmp(json_string_value(json_object_get(one, "check")), check) == 0)
                        return one;
        }
        return NULL;
}

static const char *word(const struct diagnosed *d, const char *check, const char *name) {
        const json_t *one = find(d, check);
        ck_assert_msg(one != NULL, "there is no check %s: %s", check, d->p.out);
        return json_string_value(json_object_get(one, name));
}

static const char *const dtypes[] = { "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "bf16",
        "f32", "f64", "bool", "c64", "c128" };

/* The figures of level 3 depend on the machine and on what else runs: that there are some is what is asked.
 */
START_TEST(all_levels_pass_where_tuttid_serves_D3) {
        struct host *h = host_start(NULL);
        struct diagnosed d;

        diagnose(host_socket(h), "3", &d);
        ck_assert_int_ne(d.p.code, 2);
        ck_assert_int_eq(json_integer_value(json_object_get(d.document, "level")), 3);
        for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++) {
                ck_assert_str_eq(word(&d, dtypes[i], "verdict"), "fine");
                expect_in(word(&d, dtypes[i], "text"), ", broadcast");
        }
        ck_assert_str_eq(word(&d, "bf16", "text"), "SUM MEAN PROD MIN MAX, broadcast");
        ck_assert_str_eq(word(&d, "u64", "text"), "SUM PROD MIN MAX BAND BOR BXOR MEAN, broadcast");
        ck_assert_str_eq(word(&d, "large", "verdict"), "fine");
        ck_assert_str_eq(word(&d, "batch", "verdict"), "fine");
        ck_assert_str_eq(word(&d, "barrier", "verdict"), "fine");
        expect_in(word(&d, "bandwidth", "text"), " GB/s here: ");
        expect_in(word(&d, "latency", "text"), " us at best");
        expect_in(word(&d, "round-trip", "text"), "tuttid answers in ");
        diagnosed_deinit(&d);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

START_TEST(no_tuttid_ends_it_with_level_1) {
        struct diagnosed d;

        diagnose("/nonexistent/tuttid.sock", "3", &d);
        ck_assert_int_ge(d.p.code, 1);
        ck_assert_int_eq(json_integer_value(json_object_get(d.document, "level")), 1);
        ck_assert_str_eq(word(&d, "tuttid", "verdict"), "finding");
        ck_assert_ptr_null(find(&d, "f32"));
        ck_assert_ptr_null(find(&d, "bandwidth"));
        diagnosed_deinit(&d);
}
END_TEST

START_TEST(a_drained_tuttid_is_a_finding) {
        struct host *h = host_start(NULL);
        struct diagnosed d;
        struct program p;

        program_run(
                (const char *[]){ program_tuttictl(), "drain", "--socket", host_socket(h), NULL }, 10, &p);
        ck_assert_int_eq(p.code, 0);
        program_deinit(&p);
        diagnose(host_socket(h), "2", &d);
        ck_assert_int_eq(d.p.code, 1);
        expect_in(word(&d, "tuttid", "text"), "draining: no new groups");
        ck_assert_ptr_null(find(&d, "f32"));
        diagnosed_deinit(&d);
        host_stop(h);
}
END_TEST

/* With room for one replica's connection and not for three nobody can meet. */
START_TEST(replicas_that_cannot_meet_fail_level_2) {
        struct host *h = host_start((const char *[]){ "--set", "quota.connections=2", NULL });
        struct diagnosed d;

        diagnose(host_socket(h), "3", &d);
        ck_assert_int_eq(d.p.code, 2);
        ck_assert_str_eq(word(&d, "loopback", "verdict"), "fatal");
        expect_in(word(&d, "loopback", "text"), "connections");
        ck_assert_ptr_null(find(&d, "bandwidth"));
        diagnosed_deinit(&d);
        host_stop(h);
}
END_TEST

/* The quota has room for the memory of one replica. Nothing that came out is wrong. */
START_TEST(what_is_refused_is_no_wrong_result) {
        struct host *h = host_start((const char *[]){ "--set", "quota.mapped-bytes=24MiB", NULL });
        struct diagnosed d;

        diagnose(host_socket(h), "2", &d);
        ck_assert_int_eq(d.p.code, 1);
        for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++)
                ck_assert_str_eq(word(&d, dtypes[i], "verdict"), "finding");
        ck_assert_str_eq(word(&d, "large", "verdict"), "finding");
        expect_in(word(&d, "large", "text"), "QUOTA");
        ck_assert_uint_gt(strlen(word(&d, "large", "advice")), 0);
        ck_assert_ptr_null(strstr(d.p.out, "out of service"));
        ck_assert_str_eq(word(&d, "barrier", "verdict"), "fine");
        diagnosed_deinit(&d);
        host_stop(h);
}
END_TEST

START_TEST(the_page_fits_into_80_columns_and_ends_with_a_verdict) {
        struct host *h = host_start(NULL);
        struct program p;

        program_run((const char *[]){ program_tuttictl(), "diag", "--socket", host_socket(h), NULL }, 60, &p);
        ck_assert_int_ne(p.code, 2);
        expect_in(p.out, "\nlevel 2: correctness\n");
        expect_in(p.out, p.code == 0 ? "\npassed   levels 1 to 2\n" : "\nfindings levels 1 to 2\n");
        for (const char *line = p.out; *line; line += strcspn(line, "\n") + 1)
                ck_assert_msg(strcspn(line, "\n") <= 80, "longer than 80: %s", line);
        program_deinit(&p);
        program_run((const char *[]){ program_tuttictl(), "diag", "--level", "4", NULL }, 10, &p);
        ck_assert_int_eq(p.code, 64);
        program_deinit(&p);
        host_stop(h);
}
END_TEST

UNIT_MAIN("ctl-diag", 120, all_levels_pass_where_tuttid_serves_D3, no_tuttid_ends_it_with_level_1,
        a_drained_tuttid_is_a_finding, replicas_that_cannot_meet_fail_level_2,
        what_is_refused_is_no_wrong_result, the_page_fits_into_80_columns_and_ends_with_a_verdict)
