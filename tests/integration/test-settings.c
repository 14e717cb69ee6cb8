/* What tuttid is told, and what it says of it when it only checks: by file, environment and options. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "meeting.h"
#include "program.h"
#include "unit.h"

/* In the test's directory. */
static const char *write_config(const char *text) {
        ck_assert_int_eq(chdir(unit_directory()), 0);
        FILE *f = fopen("tuttid.conf", "w");
        ck_assert_ptr_nonnull(f);
        ck_assert_int_ge(fputs(text, f), 0);
        ck_assert_int_eq(fclose(f), 0);
        return "tuttid.conf";
}

/* Ends `code`, and says this there where people look for it. */
static void expect_run(const char *const *argv, int code, const char *says) {
        struct program p;
        program_run(argv, 10, &p);
        const char *text = code ? p.err : p.out;
        ck_assert_msg(p.code == code, "%d: %s%s", p.code, p.out, p.err);
        ck_assert_str_eq(text, says);
        program_deinit(&p);
}

static void expect_check(const char *config, int code, const char *says) {
        const char *path = write_config(config);
        expect_run(
                (const char *[]){ program_tuttid(), "--check-config", "--config", path, NULL }, code, says);
}

/* --- the environment --- */

/* With workers of a key's three places; 99 is refused, and so tells which one it was that counted. */
static void expect_workers(const char *file, const char *variable, const char *option, const char *says) {
        char config[64], setting[64];
        snprintf(config, sizeof(config), "[cpu]\nworkers = %s\n", file);
        snprintf(setting, sizeof(setting), "cpu.workers=%s", option);
        if (variable)
                setenv("TUTTID_CPU_WORKERS", variable, 1);
        else
                unsetenv("TUTTID_CPU_WORKERS");
        expect_run((const char *[]){ program_tuttid(), "--check-config", "--config", write_config(config),
                           "--set", setting, NULL },
                strstr(says, "well") ? 0 : 2, says);
}

START_TEST(the_environment_is_read_between_file_and_options) {
        expect_workers("1", NULL, "3", "the configuration is well: tuttid.conf, 1 option\n");
        expect_workers("1", "2", "3",
                "the configuration is well: tuttid.conf, 1 variable of the environment, 1 option\n");
        expect_workers(
                "99", "99", "99", "tuttid: tuttid.conf:2: cpu.workers = 99: out of range; use 0 to 64.\n");
        expect_workers("1", "99", "99", "tuttid: TUTTID_CPU_WORKERS = 99: out of range; use 0 to 64.\n");
        expect_workers("1", "2", "99", "tuttid: cpu.workers = 99: out of range; use 0 to 64.\n");
}
END_TEST

START_TEST(who_comes_later_wins) {
        setenv("TUTTID_GPU_WORKER", "/no/variable", 1);
        expect_check("[gpu]\nworker = /no/file\n", 2,
                "tuttid: gpu.worker = /no/variable: No such file or directory; use the path of tuttid-gpu, "
                "or leave it "
                "empty: then it is looked for beside tuttid.\n");
        expect_run((const char *[]){ program_tuttid(), "--set", "gpu.worker=/no/option", "--check-config",
                           "--config", write_config("[gpu]\nworker = /no/file\n"), NULL },
                2,
                "tuttid: gpu.worker = /no/option: No such file or directory; use the path of tuttid-gpu, or "
                "leave it "
                "empty: then it is looked for beside tuttid.\n");
}
END_TEST

START_TEST(an_error_in_the_environment_names_the_variable) {
        setenv("TUTTID_QUOTA_MAPPED_BYTES", "64GB", 1);
        expect_check("", 2,
                "tuttid: TUTTID_QUOTA_MAPPED_BYTES = 64GB: unknown unit \"GB\"; use a number of bytes or "
                "KiB, MiB, "
                "GiB, TiB.\n");
        unsetenv("TUTTID_QUOTA_MAPPED_BYTES");
        setenv("TUTTID_LOG_LEVEL", "info", 1);
        expect_check("", 2,
                "tuttid: TUTTID_LOG_LEVEL = info: unknown variable; did you mean TUTTID_DAEMON_LOG_LEVEL?\n");
        unsetenv("TUTTID_LOG_LEVEL");
        setenv("TUTTID_SERVICE_HOST", "10.0.0.1", 1);
        expect_check("", 0, "the configuration is well: tuttid.conf\n");
}
END_TEST

/* --- which file? --- */

/* tuttid, installed where its configuration is ./tuttid.conf. */
static const char *installed(void) {
        static char path[512];
        ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);
        ck_assert_int_gt(n, 0);
        path[n] = '\0';
        strcpy(strrchr(path, '/'), "/tuttid-settings");
        return path;
}

START_TEST(a_check_of_nothing_in_particular_is_one_of_the_installed_file) {
        write_config("[quota]\ngroups = many\n");
        expect_run((const char *[]){ installed(), "--check-config", NULL }, 2,
                "tuttid: tuttid.conf:2: quota.groups = many: not a whole number; use 1 to 1048576.\n");
        write_config("[quota]\ngroups = 5\n");
        expect_run((const char *[]){ installed(), "--check-config", NULL }, 0,
                "the configuration is well: tuttid.conf\n");
        ck_assert_int_eq(rename("tuttid.conf", "other.conf"), 0);
        expect_run((const char *[]){ installed(), "--check-config", NULL }, 3,
                "tuttid: tuttid.conf: there is no such file, so none was checked; name another with --config "
                "FILE\n");
        expect_run((const char *[]){ installed(), "--check-config", "--cpu-devices", "0", NULL }, 2,
                "tuttid: cpu.devices = 0: out of range; use 1 to 64.\n");
        expect_run((const char *[]){ installed(), "--check-config", "--config", "other.conf", NULL }, 0,
                "the configuration is well: other.conf\n");
        expect_run((const char *[]){ installed(), "--check-config", "--config", "none.conf", NULL }, 2,
                "tuttid: none.conf: cannot be read: No such file or directory\n");
}
END_TEST

/* The path is the one of the unit. */
START_TEST(the_installed_file_is_named) {
        struct program p;
        program_run((const char *[]){ program_tuttid(), "--check-config", NULL }, 10, &p);
        ck_assert_int_eq(p.code, access(TUTTID_CONFIG_FILE, F_OK) < 0 ? 3 : 0);
        expect_in(p.code ? p.err : p.out, TUTTID_CONFIG_FILE);
        program_deinit(&p);
        program_run((const char *[]){ program_tuttid(), "--help", NULL }, 10, &p);
        expect_in(p.out, TUTTID_CONFIG_FILE);
        program_deinit(&p);
}
END_TEST

/* --- what cannot serve --- */

START_TEST(O6_admins_are_users_of_this_host) {
        expect_check("[daemon]\nadmins = root, 7\n", 0, "the configuration is well: tuttid.conf\n");
        expect_check("[daemon]\nadmins = root no-such-user\n", 2,
                "tuttid: tuttid.conf:2: daemon.admins = root no-such-user: this host has no user "
                "\"no-such-user\"; use "
                "names or uids of at most 64 users, with blanks or commas between them.\n");
}
END_TEST

START_TEST(what_is_stated_as_allowed_can_be_written) {
        char worker[256] = "/", config[2048];
        memset(worker + 1, 'w', 254);
        snprintf(config, sizeof(config), "# %0500d\n[gpu]\nenabled = no ; %0500d\nworker = %s\n", 0, 0,
                worker);
        expect_check(config, 0, "the configuration is well: tuttid.conf\n");
}
END_TEST

START_TEST(paths_that_cannot_serve_are_errors) {
        expect_check("[daemon]\nsocket = \"/tmp/q.sock\"\n", 2,
                "tuttid: tuttid.conf:2: daemon.socket = \"/tmp/q.sock\": leave the quotes out; use an "
                "absolute path of "
                "at most 107 bytes.\n");
        expect_check("[daemon]\nsocket = rel.sock\n", 2,
                "tuttid: tuttid.conf:2: daemon.socket = rel.sock: not absolute; use an absolute path of at "
                "most 107 "
                "bytes.\n");
        expect_check("[plan]\ntuning = tuning.conf\n", 2,
                "tuttid: tuttid.conf:2: plan.tuning = tuning.conf: not absolute; use nothing, or an absolute "
                "path of at "
                "most 255 bytes.\n");
        expect_check("[daemon]\ngroup = no-such-group\n", 2,
                "tuttid: daemon.group = no-such-group: this host has no such group; use a group of this "
                "host, or make "
                "it: groupadd -r no-such-group.\n");
}
END_TEST

START_TEST(what_may_come_later_is_a_warning) {
        struct program p;
        const char *path = write_config("[plan]\ntuning = /no/tuning\n[daemon]\nsocket = /no/s\n");
        program_run((const char *[]){ program_tuttid(), "--check-config", "--config", path, NULL }, 10, &p);
        ck_assert_int_eq(p.code, 0);
        ck_assert_str_eq(p.out, "the configuration is well: tuttid.conf\n");
        ck_assert_str_eq(p.err, "tuttid: warning: daemon.socket = /no/s: the directory /no: No such file or "
                                "directory; tuttid does not "
                                "make it.\n"
                                "tuttid: warning: plan.tuning = /no/tuning: No such file or directory; "
                                "`tuttictl diag --tune --tuning "
                                "/no/tuning` writes it.\n");
        program_deinit(&p);
}
END_TEST

UNIT_MAIN("settings", 30, the_environment_is_read_between_file_and_options, who_comes_later_wins,
        an_error_in_the_environment_names_the_variable,
        a_check_of_nothing_in_particular_is_one_of_the_installed_file, the_installed_file_is_named,
        O6_admins_are_users_of_this_host, what_is_stated_as_allowed_can_be_written,
        paths_that_cannot_serve_are_errors, what_may_come_later_is_a_warning)
