/* tuttictl plan, against a tuttid with four host devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tutti/admin.h>
#include "meeting.h"
#include "program.h"

static void ask(struct host *h, const char *const *words, struct program *p) {
        const char *argv[24] = { program_tuttictl(), "plan", "--socket", host_socket(h) };
        for (int n = 4; *words; n++)
                argv[n] = *words++;
        program_run(argv, 10, p);
}

#define ASK(h, p, ...) ask(h, (const char *[]){ __VA_ARGS__, NULL }, p)

static void expect_plan(struct program *p, const char *text) {
        ck_assert_msg(p->code == 0, "%d: %s", p->code, p->err);
        ck_assert_str_eq(p->out, text);
        program_deinit(p);
}

static struct host *four_devices(const char *more) {
        return host_start((const char *[]){ "--set", "cpu.devices=4", more ? "--set" : NULL, more, NULL });
}

START_TEST(the_plan_of_a_shape_is_printed_with_its_reason) {
        struct program p;
        struct host *h = four_devices(NULL);
        ASK(h, &p, "-n", "2", "f32[10,3]");
        expect_plan(&p, "one_device, because host devices reach all memory, so one pass in rank order is the "
                        "least work\n\n"
                        "one_device order=rank CPU:0: 1 step, 1 chunk of 256 KiB, moves 480 bytes\n"
                        "reduce SUM f32 x30  R0 b1+0, R1 b1+0 -> R0 b2+0, R1 b2+0\n");
        ASK(h, &p, "-n", "2", "--op", "MEAN", "--algorithm", "hierarchical_copy", "f16[2]");
        expect_plan(&p,
                "hierarchical_copy, because the options say so\n\n"
                "hierarchical_copy order=tree CPU:0: 9 steps, 6 chunks of 256 KiB, moves 68 bytes, 4 phases, "
                "scratch 256 bytes\n"
                "reduce SUM f16>f32 x2  R0 b1+0 -> CPU:0 scratch+0\n"
                "CPU:2: reduce SUM f16>f32 x2  R1 b1+0 -> CPU:2 scratch+0\n"
                "join\n"
                "reduce MEAN/2 f32>f16 x2  CPU:0 scratch+0, CPU:2 scratch+0 -> CPU:0 scratch+64\n"
                "join\n"
                "CPU:2: copy f16 x2  CPU:0 scratch+64 -> CPU:2 scratch+64\n"
                "join\n"
                "copy f16 x2  CPU:0 scratch+64 -> R0 b2+0\n"
                "CPU:2: copy f16 x2  CPU:2 scratch+64 -> R1 b2+0\n");
        ASK(h, &p, "-n", "1", "--device", "CPU:3", "u8", "u8[2]");
        expect_plan(&p, "one_device, because the options say so\n\n"
                        "one_device order=rank CPU:3: 2 steps, 1 chunk of 256 KiB, moves 6 bytes\n"
                        "reduce SUM u8 x1  R0 b1+0 -> R0 b2+0\n"
                        "reduce SUM u8 x2  R0 b1+16 -> R0 b2+16\n");
        ASK(h, &p, "-n", "2", "--broadcast", "i64");
        ck_assert_ptr_nonnull(strstr(p.out, "copy i64 x1  R0 b1+0 -> "));
        program_deinit(&p);
        ASK(h, &p, "-n", "2", "--gather", "1", "f32[2,3]");
        expect_plan(&p, "gather, because a gather copies each value to where it belongs\n\n"
                        "gather order=rank CPU:0: 2 steps, 1 chunk of 256 KiB, moves 144 bytes\n"
                        "copy f32 x6 [2,3]  R0 b1+0/3,1 -> R0 b2+0/6,1, R1 b2+0/6,1\n"
                        "copy f32 x6 [2,3]  R1 b1+0/3,1 -> R0 b2+12/6,1, R1 b2+12/6,1\n");
        ASK(h, &p, "-n", "2", "--reduce-scatter", "-1", "--op", "MAX", "f32[5]", "f32[1]");
        expect_plan(&p, "one_device, because host devices reach all memory, so one pass in rank order is the "
                        "least work\n\n"
                        "one_device order=rank CPU:0: 3 steps, 1 chunk of 256 KiB, moves 72 bytes\n"
                        "reduce MAX f32 x3  R0 b1+0, R1 b1+0 -> R0 b2+0\n"
                        "reduce MAX f32 x2  R0 b1+12, R1 b1+12 -> R1 b2+0\n"
                        "reduce MAX f32 x1  R0 b1+80, R1 b1+80 -> R0 b2+80\n");
        ASK(h, &p, "-n", "1", "--axes", "0,2", "--op", "MEAN", "f32[2,3,4]");
        expect_plan(&p, "one_device, because host devices reach all memory, so one pass in rank order is the "
                        "least work\n\n"
                        "one_device order=rank CPU:0: 1 step, 1 chunk of 256 KiB, moves 108 bytes\n"
                        "reduce MEAN/8 f32 x3 [3]  R0 b1+0/4 over 2,4/12,1 -> R0 b2+0/1\n");
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

START_TEST(a_fallback_is_shown_with_its_reason_P15) {
        struct program p;
        struct host *h = four_devices("plan.algorithm=library");
        ASK(h, &p, "--implementation", "nccl", "f32");
        ck_assert_ptr_nonnull(
                strstr(p.out, "fallback: plan.algorithm is library, but host devices have no library\n"));
        program_deinit(&p);
        ASK(h, &p, "--implementation", "ring", "f32");
        ck_assert_ptr_nonnull(
                strstr(p.out, "one_device, because on a host, RING is the pass in rank order\n"));
        program_deinit(&p);
        host_stop(h);
        h = four_devices("plan.algorithm=hierarchical_copy");
        ASK(h, &p, "f32");
        ck_assert_ptr_nonnull(strstr(p.out, "hierarchical_copy, because plan.algorithm says so\n"));
        program_deinit(&p);
        ASK(h, &p, "--reproducible", "f32");
        ck_assert_ptr_nonnull(strstr(p.out, "one_device, because reproducible"));
        program_deinit(&p);
        host_stop(h);
}
END_TEST

static void expect_refused(struct program *p, int code, const char *part) {
        ck_assert_int_eq(p->code, code);
        ck_assert_msg(strstr(p->err, part), "\"%s\" is not in: %s", part, p->err);
        program_deinit(p);
}

START_TEST(what_would_be_refused_is_refused) {
        struct program p;
        struct host *h = four_devices(NULL);
        ASK(h, &p, "--algorithm", "library", "f32");
        expect_refused(&p, 1, "host devices have no library");
        ASK(h, &p, "--op", "BAND", "f32");
        expect_refused(&p, 1, "BAND");
        ASK(h, &p, "-n", "1024", "f32", "f32");
        expect_refused(&p, 1, "2048 asked, at most 1024");
        ASK(h, &p, "f32[4611686018427387904]");
        expect_refused(&p, 1, "bytes of one replica of a plan that is shown");
        ASK(h, &p, "f33");
        expect_refused(&p, 64, "f33 is no value");
        ASK(h, &p, "f32[1,");
        expect_refused(&p, 64, "is no value");
        ASK(h, &p, "--gather", "2", "f32[3]");
        expect_refused(&p, 1, "axis 2 is outside of a value of 1 dimensions");
        ASK(h, &p, "--gather", "x", "f32[3]");
        expect_refused(&p, 64, "--gather takes an axis from -8 to 7, not x");
        ASK(h, &p, "-n", "0", "f32");
        expect_refused(&p, 64, "-n takes a number of replicas from 1 to 1024, not 0");
        ASK(h, &p, "--op", "FOO", "f32");
        expect_refused(
                &p, 64, "--op takes one of SUM, MEAN, PROD, MIN, MAX, BAND, BOR, BXOR, LAND, LOR, not FOO");
        ASK(h, &p, "--reckless", "f32");
        expect_refused(&p, 64, "unknown or incomplete option --reckless");
        ASK(h, &p, "f32[99999999999999999999]");
        expect_refused(&p, 64, "is no value");
        ASK(h, &p, "--json");
        expect_refused(&p, 64, "of which values?");
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

static void check_json(struct program *p) {
        FILE *checker = popen("python3 '" TUTTI_SOURCE_ROOT "/tests/support/check-schema.py' "
                              "'" TUTTI_SOURCE_ROOT "/docs/schema/plan.json'",
                "we");
        ck_assert_ptr_nonnull(checker);
        fputs(p->out, checker);
        int status = pclose(checker);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                unit_skip("python3-jsonschema is not installed");
        ck_assert_msg(status == 0, "%s", p->out);
        program_deinit(p);
}

/* With 1,024 replicas a step is longer than a row. */
START_TEST(json_is_as_the_schema_says_and_long_plans_come_whole) {
        struct program p;
        struct host *h = four_devices(NULL);
        ASK(h, &p, "-n", "1024", "f32[8]");
        ck_assert_ptr_nonnull(strstr(p.out, ", R1023 b2+0\n"));
        program_deinit(&p);
        ASK(h, &p, "--json", "--implementation", "nccl", "-n", "64", "f32[8]");
        ck_assert_int_eq(p.code, 0);
        check_json(&p);
        ASK(h, &p, "--json", "--algorithm", "library", "f32[8]");
        ck_assert_int_eq(p.code, 1);
        check_json(&p);
        host_stop(h);
}
END_TEST

UNIT_MAIN("ctl-plan", 60, the_plan_of_a_shape_is_printed_with_its_reason,
        a_fallback_is_shown_with_its_reason_P15, what_would_be_refused_is_refused,
        json_is_as_the_schema_says_and_long_plans_come_whole)
