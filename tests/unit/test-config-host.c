/* What the configuration names, looked for on this host. */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "config-host.h"
#include "unit.h"

static char path[160];

static const char *make_file(const char *name, mode_t mode) {
        snprintf(path, sizeof(path), "%s/%s", unit_directory(), name);
        CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
        ck_assert_int_ge(fd, 0);
        return path;
}

static void look(const char *key, const char *value, struct findings *ret) {
        struct config c;
        char why[400];
        config_init(&c);
        ck_assert_msg(config_set(&c, key, value, why, sizeof(why)) == 0, "%s", why);
        host_look(&c, ret);
}

static void look_well(const char *key, const char *value) {
        struct findings found;
        look(key, value, &found);
        ck_assert_msg(found.n == 0, "%s", found.all[0].text);
}

static void look_ill(const char *key, const char *value, bool is_error, const char *expected) {
        struct findings found;
        look(key, value, &found);
        ck_assert_uint_eq(found.n, 1);
        ck_assert_str_eq(found.all[0].text, expected);
        ck_assert(found.all[0].is_error == is_error);
}

START_TEST(O6_users_are_those_of_the_host) {
        uint32_t uid = 7;
        ck_assert_int_eq(host_users.find("root", &uid), 0);
        ck_assert_uint_eq(uid, 0);
        ck_assert_int_eq(host_users.find("no-such-user", &uid), -ENOENT);
        ck_assert_uint_eq(uid, 0);
        struct passwd *other = getpwnam("daemon");
        if (other) {
                ck_assert_int_eq(host_users.find("daemon", &uid), 0);
                ck_assert_uint_eq(uid, other->pw_uid);
        }
}
END_TEST

START_TEST(the_defaults_need_nothing) {
        struct config c;
        struct findings found;
        config_init(&c);
        host_look(&c, &found);
        ck_assert_uint_eq(found.n, 0);
}
END_TEST

START_TEST(a_gpu_worker_is_a_program) {
        look_ill("gpu.worker", "/nonexist", true,
                "gpu.worker = /nonexist: No such file or directory; use the path of tuttid-gpu, or leave it "
                "empty: "
                "then it is looked for beside tuttid.");
        look_ill("gpu.worker", "/tmp", true,
                "gpu.worker = /tmp: not a program; use the path of tuttid-gpu, or leave it empty: then it is "
                "looked "
                "for beside tuttid.");
        struct findings found;
        look("gpu.worker", make_file("no-program", 0600), &found);
        ck_assert_uint_eq(found.n, 1);
        ck_assert_ptr_nonnull(strstr(found.all[0].text, "no-program: Permission denied; use"));
        look_well("gpu.worker", make_file("program", 0700));
        look_well("gpu.worker", "");
}
END_TEST

START_TEST(a_gpu_worker_that_nobody_starts_need_not_be_there) {
        struct config c;
        struct findings found;
        char why[400];
        config_init(&c);
        ck_assert_int_eq(config_set(&c, "gpu.worker", "/nonexist", why, sizeof(why)), 0);
        ck_assert_int_eq(config_set(&c, "gpu.enabled", "no", why, sizeof(why)), 0);
        host_look(&c, &found);
        ck_assert_uint_eq(found.n, 0);
}
END_TEST

START_TEST(a_tuning_file_that_is_named_should_be_there) {
        look_ill("plan.tuning", "/nonexist/tuning.conf", false,
                "plan.tuning = /nonexist/tuning.conf: No such file or directory; `tuttictl diag --tune "
                "--tuning "
                "/nonexist/tuning.conf` writes it.");
        look_well("plan.tuning", make_file("tuning.conf", 0600));
        look_well("plan.tuning", "");
        look_well("plan.tuning", "/etc/tutti/tuning.conf"); /* the default, wherever it is said */
}
END_TEST

START_TEST(a_group_is_one_of_this_host) {
        look_ill("daemon.group", "no-such-group", true,
                "daemon.group = no-such-group: this host has no such group; use a group of this host, or "
                "make it: "
                "groupadd -r no-such-group.");
        look_well("daemon.group", "root");
}
END_TEST

START_TEST(a_socket_needs_a_directory) {
        char socket[200];
        look_ill("daemon.socket", "/nonexist/s", false,
                "daemon.socket = /nonexist/s: the directory /nonexist: No such file or directory; tuttid "
                "does not "
                "make it.");
        look_ill("daemon.socket", "/dev/null/s", true,
                "daemon.socket = /dev/null/s: /dev/null is no directory.");
        snprintf(socket, sizeof(socket), "%s/s", unit_directory());
        look_well("daemon.socket", socket);
        look_well("daemon.socket", "/s");
}
END_TEST

UNIT_MAIN("config-host", 10, O6_users_are_those_of_the_host, the_defaults_need_nothing,
        a_gpu_worker_is_a_program, a_gpu_worker_that_nobody_starts_need_not_be_there,
        a_tuning_file_that_is_named_should_be_there, a_group_is_one_of_this_host, a_socket_needs_a_directory)
