/* tuttictl diag --tune, on the fake driver: what it measures is written where tuttid reads it, and changes
 * what `tuttictl plan` says. How fast the fake's NCCL is, the test says. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/check.h"
#include "fakecuda/control.h"
#include "fakecuda/load.h"
#include "host.h"
#include "program.h"
#include "unit.h"

#define N_MIB "f32[1048576]" /* 4 MiB: beyond the published 256 KiB */
#define N_KIB "f32[2048]"    /* 8 KiB */

static struct fakecuda *control;
static char file[300];

static struct host *start(const char *n_devices, const char *more) {
        char path[256], tuning[320];
        snprintf(path, sizeof(path), "%s/fakecuda", unit_directory());
        snprintf(file, sizeof(file), "%s/tuning.conf", unit_directory());
        snprintf(tuning, sizeof(tuning), "plan.tuning=%s", file);
        setenv("FAKECUDA_CONTROL", path, 1);
        setenv("FAKECUDA_DEVICES", n_devices, 1);
        setenv("LD_LIBRARY_PATH", fakecuda_directory(), 1);
        control = fakecuda_open(path);
        ck_assert_ptr_nonnull(control);
        return host_start(
                (const char *const[]){ "--set", tuning, "--set", more ? more : "gpu.ipc=auto", NULL });
}

static void stop(struct host *h) {
        fakecuda_clear(control);
        host_expect_counters_zero(h);
        host_stop(h);
        fakecuda_close(control);
}

static void slow_down(const char *call) {
        fakecuda_clear(control);
        fakecuda_strike(control, &(struct fakecuda_strike){ .fault = FAKECUDA_SLOWS,
                                         .who = "tuttid-gpu",
                                         .call = call,
                                         .repeats = true,
                                         .ms = 20 });
}

static void tune(struct host *h, struct program *p) {
        program_run((const char *const[]){ program_tuttictl(), "diag", "--tune", "--socket", host_socket(h),
                            "--tuning", file, "--up-to", "32768", NULL },
                60, p);
        ck_assert_msg(p->code == 0, "%d: %s%s", p->code, p->out, p->err);
}

/* Which algorithm the plan of two replicas on so many GPUs begins with; while they are tested, again. */
static bool is_planned(struct host *h, unsigned int n_gpus, const char *value, const char *algorithm) {
        static const char all[] = "GPU:0,GPU:1,GPU:2,GPU:3";
        char gpus[sizeof(all)];
        struct program p;
        bool is;
        snprintf(gpus, sizeof(gpus), "%.*s", (int)(n_gpus * strlen("GPU:0,") - 1), all);
        for (int i = 0; i < 100; i++) {
                program_run((const char *const[]){ program_tuttictl(), "plan", "--socket", host_socket(h),
                                    "-n", "4", "--on", gpus, value, NULL },
                        20, &p);
                if (p.code == 0)
                        break;
                program_deinit(&p);
                nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
        }
        ck_assert_msg(p.code == 0, "%s", p.err);
        is = strncmp(p.out, algorithm, strlen(algorithm)) == 0;
        program_deinit(&p);
        return is;
}

static bool comes_to_be_planned(struct host *h, const char *value, const char *algorithm) {
        for (int i = 0; i < 100; i++) {
                if (is_planned(h, 2, value, algorithm))
                        return true;
                nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
        }
        return false;
}

static bool file_holds(const char *line) {
        char text[8192];
        FILE *f = fopen(file, "r");
        ck_assert_ptr_nonnull(f);
        size_t n = fread(text, 1, sizeof(text) - 1, f);
        text[n] = '\0';
        fclose(f);
        return strstr(text, line) != NULL;
}

START_TEST(what_was_measured_changes_the_plan_when_tuttid_is_reloaded) {
        struct program p;
        struct host *h = start("2", NULL);
        ck_assert(is_planned(h, 2, N_MIB, "library")); /* as published */
        ck_assert(is_planned(h, 2, N_KIB, "one_device"));
        slow_down("ncclAllReduce");
        tune(h, &p);
        ck_assert_ptr_nonnull(strstr(p.out, "2 GPUs  NCCL was never faster"));
        program_deinit(&p);
        ck_assert(file_holds("\nlibrary-from 2 1125899906842624\n"));
        ck_assert(is_planned(h, 2, N_MIB, "library")); /* not yet */
        ck_assert_int_eq(kill(host_pid(h), SIGHUP), 0);
        ck_assert(comes_to_be_planned(h, N_MIB, "one_device"));
        slow_down("cuLaunchKernel");
        tune(h, &p);
        ck_assert_ptr_nonnull(strstr(p.out, "2 GPUs  NCCL from 4 KiB"));
        program_deinit(&p);
        ck_assert_int_eq(kill(host_pid(h), SIGHUP), 0);
        ck_assert(comes_to_be_planned(h, N_KIB, "library"));
        stop(h);
}
END_TEST

static void write_file(const char *text) {
        FILE *f = fopen(file, "w");
        ck_assert_ptr_nonnull(f);
        ck_assert_int_ge(fputs(text, f), 0);
        ck_assert_int_eq(fclose(f), 0);
}

/* 0, or 77 where python3-jsonschema is not installed. */
START_TEST(the_json_is_as_the_schema_says) {
        char line[2048];
        struct program p;
        struct host *h = start("2", NULL);
        ck_assert(is_planned(h, 2, N_KIB, "one_device"));
        snprintf(line, sizeof(line),
                "%s diag --tune --json --up-to 8192 --tuning %s --socket %s | python3 "
                "%s/tests/support/check-schema.py %s/docs/schema/diag-tune.json",
                program_tuttictl(), file, host_socket(h), TUTTI_SOURCE_ROOT, TUTTI_SOURCE_ROOT);
        program_run((const char *const[]){ "/bin/sh", "-c", line, NULL }, 60, &p);
        if (p.code == 77)
                printf("# python3-jsonschema is not installed: the schema is not checked\n");
        else
                ck_assert_msg(p.code == 0, "%d: %s%s", p.code, p.out, p.err);
        ck_assert(file_holds("# 2 GPUs, 8192 bytes: one_device "));
        program_deinit(&p);
        stop(h);
}
END_TEST

START_TEST(the_line_of_as_many_GPUs_or_of_fewer_holds) {
        snprintf(file, sizeof(file), "%s/tuning.conf", unit_directory());
        write_file("# tutti tuning 1\nlibrary-from 3 1048576\nlibrary-from 4 4096\n");
        struct host *h = start("4", NULL);
        ck_assert(is_planned(h, 4, N_KIB, "library"));
        ck_assert(is_planned(h, 3, N_KIB, "one_device"));
        ck_assert(is_planned(h, 3, "f32[131072]", "one_device")); /* 512 KiB */
        ck_assert(is_planned(h, 2, "f32[131072]", "library"));    /* none of fewer: as published */
        stop(h);
}
END_TEST

START_TEST(who_says_it_in_the_configuration_has_said_it_for_all) {
        snprintf(file, sizeof(file), "%s/tuning.conf", unit_directory());
        write_file("# tutti tuning 1\nlibrary-from 2 0\n");
        struct host *h = start("2", "plan.library-from=1MiB");
        ck_assert(is_planned(h, 2, N_KIB, "one_device"));
        ck_assert(is_planned(h, 2, N_MIB, "library"));
        stop(h);
}
END_TEST

START_TEST(a_file_with_an_error_changes_nothing) {
        struct host *h = start("2", NULL);
        ck_assert(is_planned(h, 2, N_MIB, "library"));
        write_file("# tutti tuning 1\nlibrary-from 2 lots\n");
        ck_assert_int_eq(kill(host_pid(h), SIGHUP), 0);
        nanosleep(&(struct timespec){ .tv_nsec = 300000000 }, NULL);
        ck_assert(is_planned(h, 2, N_MIB, "library"));
        stop(h);
}
END_TEST

static void expect_nothing_to_tune(struct host *h, const char *why) {
        struct program p;
        tune(h, &p);
        ck_assert_msg(strncmp(p.out, "nothing to tune: ", 17) == 0 && strstr(p.out, why), "%s", p.out);
        ck_assert_int_ne(access(file, F_OK), 0);
        program_deinit(&p);
}

START_TEST(without_several_GPUs_there_is_nothing_to_tune_and_it_is_said) {
        struct host *h = start("1", NULL);
        expect_nothing_to_tune(h, "this tuttid serves ");
        stop(h);
        h = start("1", "gpu.enabled=no");
        expect_nothing_to_tune(h, "this tuttid serves 0");
        stop(h);
}
END_TEST

/* A measurement that fails leaves the file as it was. */
START_TEST(a_measurement_that_fails_writes_nothing) {
        struct program p;
        struct host *h = start("2", NULL);
        ck_assert(is_planned(h, 2, N_MIB, "library"));
        fakecuda_strike(control,
                &(struct fakecuda_strike){
                        .fault = FAKECUDA_FAILS, .who = "tuttid-gpu", .call = "ncclAllReduce", .code = 2 });
        program_run((const char *const[]){ program_tuttictl(), "diag", "--tune", "--socket", host_socket(h),
                            "--tuning", file, "--up-to", "4096", NULL },
                60, &p);
        ck_assert_int_eq(p.code, 2);
        ck_assert_ptr_nonnull(strstr(p.err, "is as it was"));
        ck_assert_int_ne(access(file, F_OK), 0);
        program_deinit(&p);
        stop(h);
}
END_TEST

UNIT_MAIN("tune", 120, the_json_is_as_the_schema_says,
        what_was_measured_changes_the_plan_when_tuttid_is_reloaded,
        the_line_of_as_many_GPUs_or_of_fewer_holds, who_says_it_in_the_configuration_has_said_it_for_all,
        a_file_with_an_error_changes_nothing, without_several_GPUs_there_is_nothing_to_tune_and_it_is_said,
        a_measurement_that_fails_writes_nothing)
