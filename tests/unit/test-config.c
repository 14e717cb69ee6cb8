#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "config.h"

#ifndef TUTTI_SOURCE_ROOT
#error "the build says where the sample configuration and the documents are"
#endif

static void set_ok(struct config *c, const char *key, const char *value) {
        char why[400] = "left";
        ck_assert_msg(config_set(c, key, value, why, sizeof(why)) == 0, "%s", why);
        ck_assert_str_eq(why, "");
}

static void set_refused(const char *key, const char *value, const char *expected) {
        struct config c, before;
        char why[400];
        config_init(&c);
        before = c;
        ck_assert_int_eq(config_set(&c, key, value, why, sizeof(why)), -EINVAL);
        ck_assert_str_eq(why, expected);
        ck_assert_mem_eq(&c, &before, sizeof(c));
}

static void write_file(const char *name, const char *text) {
        FILE *f = fopen(name, "w");
        ck_assert_ptr_nonnull(f);
        ck_assert_int_ge(fputs(text, f), 0);
        ck_assert_int_eq(fclose(f), 0);
}

/* Reads `text` as tuttid.conf in the test's directory. */
static int read_text(struct config *c, const char *text, char *why, size_t why_bytes) {
        ck_assert_int_eq(chdir(unit_directory()), 0);
        write_file("tuttid.conf", text);
        return config_read(c, "tuttid.conf", why, why_bytes);
}

static void read_ok(struct config *c, const char *text) {
        char why[400] = "";
        ck_assert_msg(read_text(c, text, why, sizeof(why)) == 0, "%s", why);
}

static void read_refused(const char *text, const char *expected) {
        struct config c, before;
        char why[400] = "";
        config_init(&c);
        before = c;
        ck_assert_int_eq(read_text(&c, text, why, sizeof(why)), -EINVAL);
        ck_assert_str_eq(why, expected);
        ck_assert_mem_eq(&c, &before, sizeof(c));
}

START_TEST(defaults_are_those_of_the_documents) {
        struct config c;
        config_init(&c);
        ck_assert_str_eq(c.socket, "/run/tutti/tuttid.sock");
        ck_assert_str_eq(c.socket_group, "");
        ck_assert(!c.is_private);
        ck_assert_uint_eq(c.n_cpu_devices, 1);
        ck_assert_uint_eq(c.n_workers, 0);
        ck_assert_uint_eq(c.chunk_bytes, 262144);
        ck_assert_int_eq(c.isa, ISA_AUTO);
        ck_assert_uint_eq(c.default_timeout_ns, 600 * NS_PER_S);
        ck_assert_uint_eq(c.join_timeout_ns, 60 * NS_PER_S);
        ck_assert_uint_eq(c.stall_warn_ns, 5 * NS_PER_S);
        ck_assert_uint_eq(c.busy_max_ns, 3600 * NS_PER_S);
        ck_assert_uint_eq(c.quota.connections, 256);
        ck_assert_uint_eq(c.quota.descriptors, 4096);
        ck_assert_uint_eq(c.quota.pending, 65536);
        ck_assert_uint_eq(c.quota.groups, 1024);
        ck_assert_uint_eq(c.quota.recorder_bytes, 67108864);
        ck_assert_int_eq(c.log_level, LOG_LEVEL_NOTICE);
}
END_TEST

START_TEST(mapped_bytes_is_the_memory_of_the_machine) {
        struct config c;
        char line[128];
        config_init(&c);
        FILE *f = fopen("/proc/meminfo", "re");
        ck_assert_ptr_nonnull(f);
        ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
        fclose(f);
        ck_assert_int_eq(strncmp(line, "MemTotal:", 9), 0);
        uint64_t kib = strtoull(line + 9, NULL, 10);
        ck_assert_uint_eq(c.quota.mapped_bytes, kib * 1024);
}
END_TEST

START_TEST(every_unit_counts) {
        static const struct {
                const char *text;
                uint64_t ns;
        } times[] = { { "10000001 ns", 10000001 }, { "10000us", 10 * NS_PER_MS }, { "17 ms", 17 * NS_PER_MS },
                { "3s", 3 * NS_PER_S }, { "2 min", 120 * NS_PER_S }, { "24 h", 24 * 3600 * NS_PER_S } };
        static const struct {
                const char *text;
                uint64_t bytes;
        } sizes[] = { { "65536", 65536 }, { "70000 bytes", 70000 }, { "64KiB", 65536 }, { "3 MiB", 3145728 },
                { "2\tGiB", UINT64_C(2) << 30 }, { "1 TiB", UINT64_C(1) << 40 } };
        struct config c;
        config_init(&c);
        for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
                set_ok(&c, "time.stall-warn", times[i].text);
                ck_assert_uint_eq(c.stall_warn_ns, times[i].ns);
        }
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                set_ok(&c, "quota.recorder-bytes", sizes[i].text);
                ck_assert_uint_eq(c.quota.recorder_bytes, sizes[i].bytes);
        }
}
END_TEST

START_TEST(every_key_reaches_its_own_field) {
        struct config c;
        config_init(&c);
        set_ok(&c, "daemon.socket", "/tmp/s");
        set_ok(&c, "daemon.group", "ml");
        set_ok(&c, "daemon.log-level", "debug");
        set_ok(&c, "cpu.devices", "64");
        set_ok(&c, "cpu.workers", "3");
        set_ok(&c, "cpu.chunk", "4 KiB");
        set_ok(&c, "cpu.isa", "avx512");
        set_ok(&c, "time.default-timeout", "none");
        set_ok(&c, "time.join-timeout", "1 ms");
        set_ok(&c, "time.stall-warn", "11 ms");
        set_ok(&c, "time.busy-max", "0");
        set_ok(&c, "quota.connections", "1");
        set_ok(&c, "quota.descriptors", "2");
        set_ok(&c, "quota.mapped-bytes", "4 KiB");
        set_ok(&c, "quota.pending", "5");
        set_ok(&c, "quota.groups", "6");
        set_ok(&c, "quota.recorder-bytes", "65536");
        ck_assert_str_eq(c.socket, "/tmp/s");
        ck_assert_str_eq(c.socket_group, "ml");
        ck_assert_int_eq(c.log_level, LOG_LEVEL_DEBUG);
        ck_assert_uint_eq(c.n_cpu_devices, 64);
        ck_assert_uint_eq(c.n_workers, 3);
        ck_assert_uint_eq(c.chunk_bytes, 4096);
        ck_assert_int_eq(c.isa, ISA_AVX512);
        ck_assert_uint_eq(c.default_timeout_ns, 0);
        ck_assert_uint_eq(c.join_timeout_ns, NS_PER_MS);
        ck_assert_uint_eq(c.stall_warn_ns, 11 * NS_PER_MS);
        ck_assert_uint_eq(c.busy_max_ns, 0);
        ck_assert_uint_eq(c.quota.connections, 1);
        ck_assert_uint_eq(c.quota.descriptors, 2);
        ck_assert_uint_eq(c.quota.mapped_bytes, 4096);
        ck_assert_uint_eq(c.quota.pending, 5);
        ck_assert_uint_eq(c.quota.groups, 6);
        ck_assert_uint_eq(c.quota.recorder_bytes, 65536);
}
END_TEST

START_TEST(words_are_those_of_the_log) {
        static const char *const words[] = { "error", "warning", "notice", "info", "debug" };
        struct config c;
        config_init(&c);
        for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
                enum log_level level;
                ck_assert_int_eq(log_level_parse(words[i], &level), 0);
                set_ok(&c, "daemon.log-level", words[i]);
                ck_assert_int_eq(c.log_level, level);
        }
}
END_TEST

START_TEST(instruction_sets_are_named_as_in_the_file) {
        static const char *const words[] = { "auto", "scalar", "avx2", "avx512" };
        struct config c;
        config_init(&c);
        for (enum isa isa = ISA_AUTO; isa <= ISA_AVX512; isa++) {
                ck_assert_str_eq(config_isa_word(isa), words[isa]);
                set_ok(&c, "cpu.isa", words[isa]);
                ck_assert_int_eq(c.isa, isa);
        }
}
END_TEST

START_TEST(refusals_say_what_is_allowed) {
        set_refused("quota.mapped-bytes", "64GB",
                "quota.mapped-bytes = 64GB: unknown unit \"GB\"; use a number of bytes or KiB, MiB, GiB, "
                "TiB.");
        set_refused("quota.mapped-bytes", "all",
                "quota.mapped-bytes = all: not a whole number; use 4 KiB to 1024 TiB, or \"MemTotal\".");
        set_refused("quota.groups", "0", "quota.groups = 0: out of range; use 1 to 1048576.");
        set_refused("quota.groups", "1048577", "quota.groups = 1048577: out of range; use 1 to 1048576.");
        set_refused("quota.groups", "-1", "quota.groups = -1: not a whole number; use 1 to 1048576.");
        set_refused("quota.groups", "", "quota.groups = : not a whole number; use 1 to 1048576.");
        set_refused(
                "quota.groups", "3 KiB", "quota.groups = 3 KiB: unknown unit \"KiB\"; use a whole number.");
        set_refused("quota.pending", "18446744073709551617",
                "quota.pending = 18446744073709551617: out of range; use 1 to 16777216.");
        set_refused("quota.recorder-bytes", "16777217 TiB",
                "quota.recorder-bytes = 16777217 TiB: out of range; use 64 KiB to 1 TiB.");
        set_refused(
                "cpu.chunk", "4097", "cpu.chunk = 4097: out of range; use 4 KiB to 64 MiB, in steps of 64.");
        set_refused("cpu.isa", "sse2", "cpu.isa = sse2: unknown word; use auto, scalar, avx2 or avx512.");
        set_refused("time.join-timeout", "60",
                "time.join-timeout = 60: the unit is missing; use a number of ns, us, ms, s, min or h.");
        set_refused("time.join-timeout", "1.5 s",
                "time.join-timeout = 1.5 s: unknown unit \".5 s\"; use a number of ns, us, ms, s, min or h.");
        set_refused("time.default-timeout", "never",
                "time.default-timeout = never: not a whole number; use 0 to 8760 h, or \"none\".");
}
END_TEST

START_TEST(O4_a_user_may_have_limits_of_its_own) {
        struct config c;
        config_init(&c);
        read_ok(&c, "[quota]\ngroups = 7\n[quota.1000]\ngroups = 9\npending = 5\n[quota.0]\ngroups = 1\n");
        ck_assert_uint_eq(c.n_overrides, 2);
        ck_assert_uint_eq(c.overrides[0].uid, 1000);
        struct quota_limits limits = config_limits_of(&c, &c.overrides[0]);
        ck_assert_uint_eq(limits.groups, 9);
        ck_assert_uint_eq(limits.pending, 5);
        ck_assert_uint_eq(limits.connections, c.quota.connections);
        ck_assert_uint_eq(limits.result_bytes, c.quota.result_bytes);
        ck_assert_uint_eq(limits.reply_bytes, c.quota.reply_bytes);
        ck_assert_uint_eq(limits.memory_bytes, c.quota.memory_bytes);
        ck_assert_uint_eq(config_limits_of(&c, &c.overrides[1]).groups, 1);
        ck_assert_uint_eq(c.quota.groups, 7);
        read_refused("[quota.7]\ngroups = 9\n[quota.8]\ngroups = 9\n[quota.7]\ngroups = 8\n",
                "tuttid.conf:6: quota.7.groups = 8: given before, on line 2; remove one.");
        for (uint32_t i = 0; i < MAX_OVERRIDES; i++) {
                char key[64];
                snprintf(key, sizeof(key), "quota.%u.groups", i + 5000);
                if (i >= 2)
                        set_ok(&c, key, "3");
        }
        char why[400];
        ck_assert_uint_eq(c.n_overrides, MAX_OVERRIDES);
        ck_assert_int_eq(config_set(&c, "quota.9.groups", "3", why, sizeof(why)), -EINVAL);
        ck_assert_str_eq(why, "quota.9.groups = 3: more than 64 users have limits of their own.");
        set_ok(&c, "quota.1000.groups", "10");
        set_refused("quota.1000.groups", "0", "quota.1000.groups = 0: out of range; use 1 to 1048576.");
        set_refused("quota.4294967295.groups", "1",
                "quota.4294967295.groups = 1: unknown key; tuttid --help lists all of them.");
}
END_TEST

/* Of this house: alice is 1000. The directory of bob's house does not answer. */
static int find_in_house(const char *name, uint32_t *ret_uid) {
        if (strcmp(name, "bob") == 0)
                return -EIO;
        if (strcmp(name, "alice") != 0)
                return -ENOENT;
        *ret_uid = 1000;
        return 0;
}

static const struct user_names house = { find_in_house };

START_TEST(O6_admins_are_uids_and_names) {
        struct config c;
        config_init(&c);
        c.names = &house;
        ck_assert(config_is_admin(&c, 0));
        ck_assert(!config_is_admin(&c, 1000));
        set_ok(&c, "daemon.admins", "1001, alice 1002");
        ck_assert(!config_is_admin(&c, 0) && !config_is_admin(&c, 100));
        ck_assert(config_is_admin(&c, 1000) && config_is_admin(&c, 1001) && config_is_admin(&c, 1002));
        set_ok(&c, "daemon.admins", "");
        ck_assert_uint_eq(c.admins.n, 0);
        ck_assert(!config_is_admin(&c, 0));
}
END_TEST

#define USERS_ALLOWED "use names or uids of at most 64 users, with blanks or commas between them."

static void admins_refused(const char *value, const char *expected) {
        char text[400], line[600];
        struct config c, before;
        char why[400] = "";
        config_init(&c);
        c.names = &house;
        before = c;
        snprintf(text, sizeof(text), "# who may\n[daemon]\nadmins = %s\n", value);
        snprintf(line, sizeof(line), "tuttid.conf:3: daemon.admins = %s: %s", value, expected);
        ck_assert_int_eq(read_text(&c, text, why, sizeof(why)), -EINVAL);
        ck_assert_str_eq(why, line);
        ck_assert_mem_eq(&c, &before, sizeof(c));
}

START_TEST(O6_an_admin_whom_nobody_knows_is_refused_with_file_and_line) {
        admins_refused("1000 carol", "this host has no user \"carol\"; " USERS_ALLOWED);
        admins_refused("alice, bob", "user \"bob\" cannot be looked up (Input/output error); " USERS_ALLOWED);
        admins_refused("4294967295", "\"4294967295\" is no uid; " USERS_ALLOWED);
        admins_refused("99999999999999999999", "\"99999999999999999999\" is no uid; " USERS_ALLOWED);
        set_refused("daemon.admins", "alice", /* where nobody knows names */
                "daemon.admins = alice: this host has no user \"alice\"; " USERS_ALLOWED);
}
END_TEST

START_TEST(O6_as_many_admins_as_are_allowed_can_be_written) {
        char text[4096] = "[daemon]\nadmins =", why[400];
        struct config c;
        config_init(&c);
        for (uint32_t i = 0; i < MAX_NAMED_USERS; i++)
                sprintf(text + strlen(text), " %u", 4294967000u + i);
        read_ok(&c, text);
        ck_assert_uint_eq(c.admins.n, 64);
        ck_assert(config_is_admin(&c, 4294967000) && config_is_admin(&c, 4294967063));
        strcat(text, " 5");
        ck_assert_int_eq(read_text(&c, text, why, sizeof(why)), -EINVAL);
        ck_assert_ptr_nonnull(strstr(why, "...: too many users; " USERS_ALLOWED));
}
END_TEST

/* The default is a user whom a host has where the exporter is installed, and nobody elsewhere. */
static int find_exporter(const char *name, uint32_t *ret_uid) {
        *ret_uid = 998;
        return strcmp(name, "tutti-exporter") == 0 ? 0 : -ENOENT;
}

static const struct user_names with_exporter = { find_exporter };

START_TEST(O6_observers_are_users_by_name_or_uid) {
        struct config c;
        config_init(&c);
        ck_assert_uint_eq(c.observers.n, 0);
        config_know_names(&c, &house);
        ck_assert_uint_eq(c.observers.n, 0);
        ck_assert(config_is_admin(&c, 0));
        config_know_names(&c, &with_exporter);
        ck_assert(config_is_observer(&c, 998) && !config_is_observer(&c, 0) && !config_is_admin(&c, 998));
        config_know_names(&c, &house);
        set_ok(&c, "daemon.observers", "alice, 1001\t1002");
        ck_assert(
                config_is_observer(&c, 1000) && config_is_observer(&c, 1001) && config_is_observer(&c, 1002));
        ck_assert(!config_is_observer(&c, 0) && !config_is_admin(&c, 1001));
        set_ok(&c, "daemon.observers", "");
        ck_assert_uint_eq(c.observers.n, 0);
        read_ok(&c, "[daemon]\nobservers = tutti-exporter\n"); /* the sample, taken at its word */
        ck_assert_uint_eq(c.observers.n, 0);
        read_refused("[daemon]\n# who looks on\nobservers = carol\n",
                "tuttid.conf:3: daemon.observers = carol: this host has no user \"carol\"; " USERS_ALLOWED);
}
END_TEST

START_TEST(unknown_keys_name_their_neighbours) {
        set_refused("quota.group", "1",
                "quota.group = 1: unknown key; did you mean daemon.group or quota.groups?");
        set_refused("cpu.busy-max", "1 s", "cpu.busy-max = 1 s: unknown key; did you mean time.busy-max?");
        set_refused("workers", "1", "workers = 1: unknown key; did you mean cpu.workers or gpu.worker?");
        set_refused("time.stall-wran", "1 s",
                "time.stall-wran = 1 s: unknown key; did you mean time.stall-warn?");
        set_refused("colour", "red", "colour = red: unknown key; tuttid --help lists all of them.");
}
END_TEST

START_TEST(a_file_is_read_over_what_is_there) {
        struct config c;
        config_init(&c);
        set_ok(&c, "quota.groups", "7");
        read_ok(&c, "# a comment\n[quota]\nconnections = 10\n\n; another\n   pending=20 ; inline\n[time]\r\n"
                    "default-timeout = 0\r\n[daemon]\ngroup = ml");
        ck_assert_uint_eq(c.quota.groups, 7);
        ck_assert_uint_eq(c.quota.connections, 10);
        ck_assert_uint_eq(c.quota.pending, 20);
        ck_assert_uint_eq(c.default_timeout_ns, 0);
        ck_assert_str_eq(c.socket_group, "ml");
}
END_TEST

START_TEST(a_file_that_is_wrong_names_the_line) {
        read_refused("#1\n#2\n#3\n#4\n#5\n#6\n#7\n#8\n#9\n#10\n#11\n#12\n[quota]\nmapped-bytes = 64GB\n",
                "tuttid.conf:14: quota.mapped-bytes = 64GB: unknown unit \"GB\"; use a number of bytes or "
                "KiB, "
                "MiB, GiB, TiB.");
        read_refused("[quota]\ngroups = 5\nwhat is this\n",
                "tuttid.conf:3: neither [section] nor key = value; comments begin with # or ;.");
        read_refused("what is this\n[quota]\ngroups = x\n",
                "tuttid.conf:1: neither [section] nor key = value; comments begin with # or ;.");
        read_refused("[quota]\ngroups = x\nwhat is this\n",
                "tuttid.conf:2: quota.groups = x: not a whole number; use 1 to 1048576.");
        read_refused("[quota]\ngroups = x\npending = y\n",
                "tuttid.conf:2: quota.groups = x: not a whole number; use 1 to 1048576.");
        read_refused("groups = 5\n",
                "tuttid.conf:1: groups = 5: unknown key; did you mean daemon.group or quota.groups?");
        read_refused("[quota]\ngroups = 5\n\n[quota]\ngroups = 5\n",
                "tuttid.conf:5: quota.groups = 5: given before, on line 2; remove one.");
}
END_TEST

START_TEST(an_indented_line_is_a_line) {
        struct config c;
        config_init(&c);
        read_ok(&c, "[quota]\n\tconnections = 10\n        groups = 20\n");
        ck_assert_uint_eq(c.quota.connections, 10);
        ck_assert_uint_eq(c.quota.groups, 20);
}
END_TEST

/* "BEGIN" and so many times `c`. */
static void fill(char *text, const char *begin, char c, size_t n) {
        size_t used = strlen(begin);
        memcpy(text, begin, used);
        memset(text + used, c, n);
        text[used + n] = '\0';
}

START_TEST(a_comment_may_be_as_long_as_it_likes) {
        static char text[20000];
        struct config c;
        for (size_t n = 190; n < 10000; n = n < 210 ? n + 1 : n * 3) {
                config_init(&c);
                fill(text, "# ", 'x', n);
                strcat(text, "\n[quota]\n\t; ");
                fill(text + strlen(text), "", ';', n);
                strcat(text, "\ngroups = 5 ; ");
                fill(text + strlen(text), "", ' ', n);
                strcat(text, "\npending = 6");
                read_ok(&c, text);
                ck_assert_uint_eq(c.quota.groups, 5);
                ck_assert_uint_eq(c.quota.pending, 6);
                strcat(text, "x");
                read_refused(
                        text, "tuttid.conf:5: quota.pending = 6x: unknown unit \"x\"; use a whole number.");
        }
}
END_TEST

/* What is stated as allowed can be written, whatever inih has room for, and means what it means in a short
 * line. */
START_TEST(a_value_may_be_as_long_as_is_allowed) {
        static char path[300], text[1000];
        struct config c;
        for (size_t n = 150; n < CONFIG_PATH_BYTES - 1; n++) {
                config_init(&c);
                fill(path, "/p;#=[]:\t ", 'q', n - 10);
                ck_assert_uint_eq(strlen(path), n);
                snprintf(text, sizeof(text), "[gpu]\n worker \t:\t%s \t ; a comment\r\norder = host\n", path);
                read_ok(&c, text);
                ck_assert_str_eq(c.gpu_worker, path);
                ck_assert_int_eq(c.gpu_order, GPU_ORDER_HOST);
        }
        fill(path, "/", 'q', 255);
        snprintf(text, sizeof(text), "[gpu]\n\nworker=%s\n", path);
        char why[400];
        ck_assert_int_eq(read_text(&c, text, why, sizeof(why)), -EINVAL);
        ck_assert_int_eq(strncmp(why, "tuttid.conf:3: gpu.worker = /qqq", 32), 0);
        ck_assert_ptr_nonnull(strstr(why, "...: has 256 bytes; use 0 to 255."));
        strcat(text, "worker=/short\n");
        ck_assert_int_eq(read_text(&c, text, why, sizeof(why)), -EINVAL);
        ck_assert_ptr_nonnull(strstr(why, "has 256 bytes")); /* the first error is told */
}
END_TEST

START_TEST(a_long_line_is_refused_and_not_cut) {
        static char text[6000];
        fill(text, "[quota]\ngroups = 5", ' ', 4096 - strlen("groups = 5"));
        strcat(text, "\n");
        struct config c;
        config_init(&c);
        read_ok(&c, text);
        ck_assert_uint_eq(c.quota.groups, 5);
        fill(text, "[quota]\ngroups = 5", ' ', 4097 - strlen("groups = 5"));
        strcat(text, "\ngroups = 7\n");
        read_refused(text, "tuttid.conf:2: the line is too long; use at most 4096 bytes.");
        fill(text, "[quota]\n", 'g', 300);
        strcat(text, " = 5\n");
        read_refused(text, "tuttid.conf:2: neither [section] nor key = value; comments begin with # or ;.");
        fill(text, "[", 'q', 300);
        strcat(text, "]\ngroups = 5\n");
        read_refused(text, "tuttid.conf:1: neither [section] nor key = value; comments begin with # or ;.");
}
END_TEST

START_TEST(paths_are_absolute) {
        struct config c;
        config_init(&c);
        set_refused("daemon.socket", "rel.sock",
                "daemon.socket = rel.sock: not absolute; use an absolute path of at most 107 bytes.");
        set_refused("gpu.worker", "tuttid-gpu",
                "gpu.worker = tuttid-gpu: not absolute; use nothing, or an absolute path of at most 255 "
                "bytes.");
        set_refused("plan.tuning", "./tuning.conf",
                "plan.tuning = ./tuning.conf: not absolute; use nothing, or an absolute path of at most 255 "
                "bytes.");
        read_refused("[daemon]\nsocket = rel.sock\n", "tuttid.conf:2: daemon.socket = rel.sock: not "
                                                      "absolute; use an absolute path of at most 107 bytes.");
        set_ok(&c, "gpu.worker", "");
        set_ok(&c, "plan.tuning", "");
}
END_TEST

START_TEST(quotes_are_no_part_of_a_value) {
        read_refused("[daemon]\nsocket = \"/tmp/q.sock\"\n",
                "tuttid.conf:2: daemon.socket = \"/tmp/q.sock\": leave the quotes out; use an absolute path "
                "of at "
                "most 107 bytes.");
        set_refused("daemon.group", "'ml'",
                "daemon.group = 'ml': leave the quotes out; use text of 0 to 63 bytes.");
        set_refused("cpu.isa", "\"avx2\"",
                "cpu.isa = \"avx2\": leave the quotes out; use auto, scalar, avx2 or avx512.");
        set_refused(
                "quota.7.groups", "\"8\"", "quota.7.groups = \"8\": leave the quotes out; use 1 to 1048576.");
}
END_TEST

START_TEST(a_file_that_cannot_be_read_is_said) {
        struct config c;
        char why[400], path[200], expected[400];
        config_init(&c);
        snprintf(path, sizeof(path), "%s/absent.conf", unit_directory());
        snprintf(expected, sizeof(expected), "%s: cannot be read: No such file or directory", path);
        ck_assert_int_eq(config_read(&c, path, why, sizeof(why)), -ENOENT);
        ck_assert_str_eq(why, expected);
        snprintf(expected, sizeof(expected), "%s: cannot be read: Input/output error", unit_directory());
        ck_assert_int_eq(config_read(&c, unit_directory(), why, sizeof(why)), -EIO);
        ck_assert_str_eq(why, expected);
}
END_TEST

START_TEST(G1_a_socket_path_of_108_bytes_is_refused) {
        struct config c;
        char path[109], why[400], expected[400];
        config_init(&c);
        memset(path, 'p', 108);
        path[0] = '/';
        path[107] = path[108] = '\0';
        set_ok(&c, "daemon.socket", path);
        ck_assert_int_eq(config_check(&c, why, sizeof(why)), 0);
        path[107] = 'p';
        snprintf(expected, sizeof(expected), "daemon.socket = %s: has 108 bytes; use 1 to 107.", path);
        set_refused("daemon.socket", path, expected);
        strcpy(c.socket, path);
        snprintf(expected, sizeof(expected), "socket path has 108 bytes, the limit is 107: %s", path);
        ck_assert_int_eq(config_check(&c, why, sizeof(why)), -ENAMETOOLONG);
        ck_assert_str_eq(why, expected);
}
END_TEST

START_TEST(a_text_that_does_not_fit_is_refused) {
        set_refused("daemon.socket", "",
                "daemon.socket = : a path is missing; use an absolute path of at most 107 bytes.");
        set_refused("daemon.group", "0123456789012345678901234567890123456789012345678901234567890123",
                "daemon.group = 0123456789012345678901234567890123456789012345678901234567890123: has 64 "
                "bytes; use "
                "0 to 63.");
}
END_TEST

START_TEST(a_small_buffer_for_the_reason_is_not_overrun) {
        struct config c;
        char why[16];
        config_init(&c);
        memset(why, 'x', sizeof(why));
        ck_assert_int_eq(config_set(&c, "quota.groups", "many", why, 8), -EINVAL);
        ck_assert_str_eq(why, "quota.g");
        ck_assert_int_eq(why[8], 'x');
}
END_TEST

static void read_source(const char *name, char *buf, size_t size) {
        char path[600];
        snprintf(path, sizeof(path), "%s/%s", TUTTI_SOURCE_ROOT, name);
        CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
        ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
        ssize_t n = read(fd, buf, size - 1);
        ck_assert_int_gt(n, 0);
        ck_assert_uint_lt((size_t)n, size - 1);
        buf[n] = '\0';
}

/* The lines of the sample, with those that are commented out in force. */
static void uncomment(const char *sample, char *text) {
        for (const char *line = sample; *line;) {
                size_t n = strcspn(line, "\n") + 1;
                bool is_setting = line[0] == '#' && line[1] >= 'a' && line[1] <= 'z';
                is_setting &= strncmp(line, "#observers", 10) != 0; /* a user that need not be here */
                memcpy(text, line + is_setting, n - is_setting);
                text += n - is_setting;
                line += n;
        }
        *text = '\0';
}

START_TEST(the_sample_says_the_defaults_and_nothing_else) {
        static char sample[16384], text[16384];
        struct config plain, read;
        read_source("config/tuttid.conf", sample, sizeof(sample));
        config_init(&plain);
        config_init(&read);
        read_ok(&read, sample);
        ck_assert_mem_eq(&read, &plain, sizeof(read));

        /* In force: nothing of it depends on what was there before. */
        uncomment(sample, text);
        memset(&read, 0x5a, sizeof(read));
        memset(read.socket, 0, sizeof(read.socket));
        memset(read.socket_group, 0, sizeof(read.socket_group));
        read.is_private = false;
        read_ok(&read, text);
        ck_assert_str_eq(read.socket, plain.socket);
        ck_assert_str_eq(read.socket_group, "");
        ck_assert_uint_eq(read.n_cpu_devices, plain.n_cpu_devices);
        ck_assert_uint_eq(read.n_workers, plain.n_workers);
        ck_assert_uint_eq(read.chunk_bytes, plain.chunk_bytes);
        ck_assert_int_eq(read.isa, plain.isa);
        ck_assert_int_eq(read.log_level, plain.log_level);
        ck_assert_uint_eq(read.default_timeout_ns, plain.default_timeout_ns);
        ck_assert_uint_eq(read.join_timeout_ns, plain.join_timeout_ns);
        ck_assert_uint_eq(read.stall_warn_ns, plain.stall_warn_ns);
        ck_assert_uint_eq(read.busy_max_ns, plain.busy_max_ns);
        ck_assert_mem_eq(&read.quota, &plain.quota, sizeof(read.quota));
}
END_TEST

static void check_contains(
        const char *name, const char *text, const char *format, const char *a, const char *b) {
        char line[400];
        int n = snprintf(line, sizeof(line), format, a, b);
        while (line[n - 1] == ' ')
                line[--n] = '\0';
        ck_assert_msg(strstr(text, line) != NULL, "%s lacks \"%s\"", name, line);
}

/* Every key with its default, its sentence, and what is allowed. */
static void check_document(
        const char *name, const char *setting, const char *empty, const char *help, const char *allowed) {
        static char text[32768];
        struct config_description d;
        size_t n = 0;
        read_source(name, text, sizeof(text));
        for (; config_describe(n, &d); n++) {
                check_contains(name, text, setting, strchr(d.key, '.') + 1, d.preset[0] ? d.preset : empty);
                check_contains(name, text, help, d.help, "");
                check_contains(name, text, allowed, d.allowed, "");
        }
        ck_assert_uint_eq(n, 35);
}

START_TEST(the_sample_has_every_key) {
        check_document("config/tuttid.conf", "\n#%s = %s", "", "\n# %s\n", "\n# Allowed: %s.\n");
}
END_TEST

START_TEST(the_page_has_every_key) {
        check_document("docs/configuration.md", "\n| `%s` | `%s` | ", "(empty)", " | %s |\n", " | %s | ");
}
END_TEST

START_TEST(the_reference_has_every_key) {
        char *text = NULL;
        size_t n = 0;
        FILE *f = open_memstream(&text, &n);
        ck_assert_ptr_nonnull(f);
        config_print_reference(f);
        ck_assert_int_eq(fclose(f), 0);
        struct config_description d;
        for (size_t i = 0; config_describe(i, &d); i++) {
                ck_assert_ptr_nonnull(strstr(text, d.key));
                ck_assert_ptr_nonnull(strstr(text, d.help));
                ck_assert_ptr_nonnull(strstr(text, d.allowed));
        }
        ck_assert_ptr_nonnull(strstr(text,
                "  cpu.chunk = 256 KiB\n"
                "      How much of each input a worker takes at a time; results do not depend on it.\n"
                "      (4 KiB to 64 MiB, in steps of 64; needs a restart)\n"));
        free(text);
}
END_TEST

UNIT_MAIN("config", 10, defaults_are_those_of_the_documents, mapped_bytes_is_the_memory_of_the_machine,
        every_unit_counts, every_key_reaches_its_own_field, words_are_those_of_the_log,
        instruction_sets_are_named_as_in_the_file, refusals_say_what_is_allowed,
        unknown_keys_name_their_neighbours, O4_a_user_may_have_limits_of_its_own,
        O6_admins_are_uids_and_names, O6_an_admin_whom_nobody_knows_is_refused_with_file_and_line,
        O6_observers_are_users_by_name_or_uid, O6_as_many_admins_as_are_allowed_can_be_written,
        a_file_is_read_over_what_is_there, a_file_that_is_wrong_names_the_line, an_indented_line_is_a_line,
        a_comment_may_be_as_long_as_it_likes, a_value_may_be_as_long_as_is_allowed,
        a_long_line_is_refused_and_not_cut, paths_are_absolute, quotes_are_no_part_of_a_value,
        a_file_that_cannot_be_read_is_said, G1_a_socket_path_of_108_bytes_is_refused,
        a_text_that_does_not_fit_is_refused, a_small_buffer_for_the_reason_is_not_overrun,
        the_sample_says_the_defaults_and_nothing_else, the_sample_has_every_key, the_page_has_every_key,
        the_reference_has_every_key)
