/* doctor on the host that runs the tests, with and without a tuttid. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "host.h"
#include "program.h"
#include "unit.h"

struct checkup {
        struct program p;
        json_t *document;
};

static void examine(const char *socket, struct checkup *c) {
        const char *argv[] = { program_tuttictl(), "doctor", "--json", "--socket", socket, NULL };

        program_run(argv, 10, &c->p);
        ck_assert_str_eq(c->p.err, "");
        c->document = json_loads(c->p.out, 0, NULL);
        ck_assert_msg(c->document != NULL, "no JSON: %s", c->p.out);
        ck_assert_int_eq(json_integer_value(json_object_get(c->document, "exit_code")), c->p.code);
}

static void checkup_deinit(struct checkup *c) {
        json_decref(c->document);
        program_deinit(&c->p);
}

static const char *word(const struct checkup *c, const char *check, const char *name) {
        size_t i;
        const json_t *one;

        json_array_foreach(json_object_get(c->document, "checks"), i,
                one) if (strcmp(json_string_value(json_object_get(one, "check")), check) ==
                         0) return json_string_value(json_object_get(one, name));
        ck_abort_msg("there is no check %s", check);
        return NULL;
}

static void check_schema(const struct checkup *c) {
        char line[512];
        FILE *checker;
        int status;

        snprintf(line, sizeof(line), "python3 %s/tests/support/check-schema.py %s/docs/schema/doctor.json",
                TUTTI_SOURCE_ROOT, TUTTI_SOURCE_ROOT);
        checker = popen(line, "we");
        ck_assert_ptr_nonnull(checker);
        fputs(c->p.out, checker);
        status = pclose(checker);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                printf("# python3-jsonschema is not installed: the schema is not checked\n");
        else
                ck_assert_int_eq(status, 0);
}

/* The host that runs tutti's tests can run tutti. */
START_TEST(a_host_that_serves_is_not_fatal) {
        struct host *h = host_start(NULL);
        struct checkup c;

        examine(host_socket(h), &c);
        ck_assert_int_ne(c.p.code, 2);
        ck_assert_str_eq(word(&c, "memfd-seals", "verdict"), "fine");
        ck_assert_str_eq(word(&c, "pidfd", "verdict"), "fine");
        ck_assert_str_eq(word(&c, "socket", "verdict"), "fine");
        ck_assert_str_eq(word(&c, "tuttid", "verdict"), "fine");
        ck_assert_ptr_nonnull(strstr(word(&c, "socket", "text"), host_directory(h)));
        ck_assert_ptr_nonnull(strstr(word(&c, "tuttid", "text"), "tuttid "));
        check_schema(&c);
        checkup_deinit(&c);
        host_stop(h);
}
END_TEST

START_TEST(no_tuttid_is_a_finding_with_what_to_do) {
        struct checkup c;

        examine("/nonexistent/tuttid.sock", &c);
        ck_assert_int_ge(c.p.code, 1);
        ck_assert_str_eq(word(&c, "tuttid", "verdict"), "finding");
        ck_assert_ptr_nonnull(strstr(word(&c, "tuttid", "text"), "/nonexistent/tuttid.sock"));
        ck_assert_ptr_nonnull(word(&c, "tuttid", "advice"));
        ck_assert_str_eq(word(&c, "socket", "verdict"), "absent");
        check_schema(&c);
        checkup_deinit(&c);
}
END_TEST

/* The limit is that of this process: its children inherit it. */
START_TEST(limits_that_are_too_low_are_findings) {
        struct host *h;
        struct checkup c;
        struct rlimit few = { 1000, 1000 }, fewer = { 60, 1000 };

        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
        h = host_start(NULL);
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &fewer), 0);
        examine(host_socket(h), &c);
        ck_assert_int_ge(c.p.code, 1);
        ck_assert_str_eq(word(&c, "open-files", "verdict"), "finding");
        ck_assert_str_eq(word(&c, "tuttid-files", "verdict"), "finding");
        ck_assert_ptr_nonnull(strstr(word(&c, "tuttid-files", "advice"), "LimitNOFILE=4416"));
        checkup_deinit(&c);
        host_stop(h);
}
END_TEST

START_TEST(the_page_fits_into_80_columns) {
        struct host *h = host_start(NULL);
        struct program p;

        program_run(
                (const char *[]){ program_tuttictl(), "doctor", "--socket", host_socket(h), NULL }, 10, &p);
        ck_assert_int_ne(p.code, 2);
        ck_assert_ptr_nonnull(strstr(p.out, "fine     kernel       Linux "));
        for (const char *line = p.out; *line; line += strcspn(line, "\n") + 1)
                ck_assert_msg(strcspn(line, "\n") <= 80, "longer than 80: %s", line);
        program_deinit(&p);
        host_stop(h);
}
END_TEST

UNIT_MAIN("ctl-checkup", 30, a_host_that_serves_is_not_fatal, no_tuttid_is_a_finding_with_what_to_do,
        limits_that_are_too_low_are_findings, the_page_fits_into_80_columns)
