/* Bounded text, and the lines of the log. */
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "unit.h"

/* --- text --- */

START_TEST(adds_and_knows_what_was_cut) {
        char buf[8];
        struct text t;
        text_init(&t, buf, sizeof(buf));
        ck_assert_str_eq(buf, "");
        text_add(&t, "%d-%d", 12, 34);
        ck_assert_str_eq(buf, "12-34");
        ck_assert(!t.is_cut);
        text_add(&t, "567");
        ck_assert_str_eq(buf, "12-3456");
        ck_assert(t.is_cut);
        ck_assert_uint_eq(t.used, 7);
        text_add(&t, "x");
        ck_assert_str_eq(buf, "12-3456");
}
END_TEST

START_TEST(fills_a_buffer_exactly) {
        char buf[4];
        struct text t;
        text_init(&t, buf, sizeof(buf));
        text_add(&t, "abc");
        ck_assert_str_eq(buf, "abc");
        ck_assert(!t.is_cut);
        text_init(&t, buf, 1);
        text_add(&t, "a");
        ck_assert_str_eq(buf, "");
        ck_assert(t.is_cut);
}
END_TEST

START_TEST(durations_as_people_read_them) {
        static const struct {
                uint64_t ns;
                const char *text;
        } table[] = {
                { 0, "0 ns" },
                { 999, "999 ns" },
                { 71000, "71 us" },
                { 999999, "999 us" },
                { 3000000, "3 ms" },
                { 999999999, "999 ms" },
                { 1000000000, "1.0 s" },
                { 12400000000, "12.4 s" },
                { 59999999999, "59.9 s" },
                { 60 * NS_PER_S, "1 min 00 s" },
                { 303 * NS_PER_S, "5 min 03 s" },
                { 3720 * NS_PER_S, "1 h 02 min" },
                { 86399 * NS_PER_S, "23 h 59 min" },
                { (3 * 86400 + 4 * 3600 + 11 * 60) * NS_PER_S, "3 d 04:11" },
                { UINT64_MAX, "213503 d 23:34" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
                char buf[32];
                struct text t;
                text_init(&t, buf, sizeof(buf));
                text_add_duration(&t, table[i].ns);
                ck_assert_str_eq(buf, table[i].text);
        }
}
END_TEST

START_TEST(bytes_as_people_read_them) {
        static const struct {
                uint64_t bytes;
                const char *text;
        } table[] = {
                { 0, "0 bytes" },
                { 1, "1 byte" },
                { 17, "17 bytes" },
                { 1023, "1023 bytes" },
                { 1024, "1 KiB" },
                { 65536, "64 KiB" },
                { 1536ull << 20, "1.5 GiB" },
                { (1024ull << 30) - 1, "1023.9 GiB" },
                { 1ull << 40, "1 TiB" },
                { 1ull << 50, "1 PiB" },
                { UINT64_MAX, "15.9 EiB" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
                char buf[32];
                struct text t;
                text_init(&t, buf, sizeof(buf));
                text_add_bytes(&t, table[i].bytes);
                ck_assert_str_eq(buf, table[i].text);
        }
}
END_TEST

START_TEST(quoted_names_cannot_forge_a_line) {
        char buf[64];
        struct text t;
        text_init(&t, buf, sizeof(buf));
        text_add_quoted(&t, "a\"b\\c\n\x7f\xff\0z", 9);
        ck_assert_str_eq(buf, "\"a\\\"b\\\\c\\x0a\\x7f\\xff\\x00\"");
}
END_TEST

START_TEST(copies_are_cut_terminated_and_without_control_bytes) {
        char dst[6] = "zzzzz";
        text_copy(dst, sizeof(dst), "a\tb\x1b\x7f-more");
        ck_assert_str_eq(dst, "a?b??");
        text_copy(dst, sizeof(dst), "");
        ck_assert_str_eq(dst, "");
        text_copy(dst, 1, "abc");
        ck_assert_str_eq(dst, "");
        text_copy(dst, sizeof(dst), "\xc3\xa9");
        ck_assert_str_eq(dst, "\xc3\xa9");
}
END_TEST

/* --- descriptors --- */

START_TEST(descriptors_close_once_and_keep_errno) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), other = fd;
        errno = EINTR;
        fd_close(&fd);
        ck_assert_int_eq(fd, -1);
        ck_assert_int_eq(errno, EINTR);
        fd_close(&fd);
        ck_assert_int_eq(fcntl(other, F_GETFD), -1);
        ck_assert_int_eq(fd_set_nonblock(other), -EBADF);
}
END_TEST

START_TEST(nonblocking_keeps_the_other_flags) {
        int pipes[2];
        ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
        ck_assert_int_eq(fd_set_nonblock(pipes[0]), 0);
        ck_assert(fcntl(pipes[0], F_GETFL) & O_NONBLOCK);
        char c;
        ck_assert_int_eq(read(pipes[0], &c, 1), -1);
        ck_assert_int_eq(errno, EAGAIN);
        int moved = fd_take(&pipes[0]);
        ck_assert_int_eq(pipes[0], -1);
        fd_close(&moved);
        fd_close(&pipes[1]);
}
END_TEST

START_TEST(the_clock_does_not_go_back) {
        uint64_t before = clock_now_ns(), after = clock_now_ns();
        ck_assert(before > 0 && after >= before && after - before < NS_PER_S);
}
END_TEST

/* --- the log --- */

static char log_text[64 * 1024];

/* What `write_lines` makes a process write to stderr, when that is this file (or, with `is_journal`, when
 * JOURNAL_STREAM names this file). */
static const char *log_of(void (*write_lines)(void), bool is_journal) {
        char path[256], stream[64];
        struct stat st;
        snprintf(path, sizeof(path), "%s/log", unit_directory());
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(fstat(fd, &st), 0);
        snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
        pid_t pid = fork();
        if (pid == 0) {
                if (is_journal)
                        setenv("JOURNAL_STREAM", stream, 1);
                else
                        setenv("JOURNAL_STREAM", "1:1", 1);
                dup2(fd, STDERR_FILENO);
                program_invocation_short_name = (char *)"tuttid";
                log_open();
                write_lines();
                _exit(0);
        }
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
        ssize_t n = pread(fd, log_text, sizeof(log_text) - 1, 0);
        ck_assert_int_ge(n, 0);
        log_text[n] = '\0';
        fd_close(&fd);
        return log_text;
}

static void write_one_of_each(void) {
        log_set_level(LOG_LEVEL_INFO);
        log_error("e %d", 1);
        log_warning("w");
        log_notice("n");
        log_info("i");
        log_debug("d");
}

START_TEST(plain_lines_name_program_and_level) {
        ck_assert_str_eq(log_of(write_one_of_each, false), "tuttid: error: e 1\ntuttid: warning: w\n"
                                                           "tuttid: notice: n\ntuttid: info: i\n");
}
END_TEST

START_TEST(the_journal_gets_priorities) {
        ck_assert_str_eq(log_of(write_one_of_each, true), "<3>e 1\n<4>w\n<5>n\n<6>i\n");
}
END_TEST

static void write_hostile(void) {
        char long_name[4000];
        memset(long_name, 'x', sizeof(long_name) - 1);
        long_name[sizeof(long_name) - 1] = '\0';
        log_warning("group %s", "a\n<2>tuttid: forged\r\x1b[2J");
        log_warning("%s", long_name);
}

START_TEST(a_name_cannot_forge_a_line) {
        const char *text = log_of(write_hostile, false);
        const char *first = "tuttid: warning: group a?<2>tuttid: forged??[2J\n";
        ck_assert_int_eq(strncmp(text, first, strlen(first)), 0);
        text += strlen(first);
        ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
        ck_assert_uint_lt(strlen(text), 2048);
}
END_TEST

static void write_too_many(void) {
        for (int i = 0; i < 100; i++)
                log_warning("line %d", i);
        log_warning("another condition");
}

/* A10: 20 lines a minute. */
START_TEST(A10_each_condition_writes_twenty_lines_a_minute) {
        const char *text = log_of(write_too_many, false);
        int n = 0;
        for (const char *p = strchr(text, '\n'); p; p = strchr(p + 1, '\n'))
                n++;
        ck_assert_int_eq(n, LOG_LINES_A_MINUTE + 1);
        ck_assert_ptr_nonnull(strstr(text, "warning: line 19\n"));
        ck_assert_ptr_null(strstr(text, "line 20"));
        ck_assert_ptr_nonnull(strstr(text, "another condition\n"));
}
END_TEST

static void *write_from_a_thread(void *name) {
        for (int i = 0; i < 50; i++)
                log_warning("from a thread named %s", (const char *)name);
        return NULL;
}

static void write_from_threads(void) {
        static const char *const names[] = { "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb", "cccccccccccccccc" };
        pthread_t threads[ARRAY_SIZE(names)];
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                if (pthread_create(&threads[i], NULL, write_from_a_thread, (void *)names[i]) != 0)
                        _exit(1);
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                pthread_join(threads[i], NULL);
}

START_TEST(threads_share_a_condition_and_do_not_mix_their_lines) {
        const char *line = log_of(write_from_threads, false);
        int n = 0;
        for (; *line; line = strchr(line, '\n') + 1, n++) {
                static const char head[] = "tuttid: warning: from a thread named ";
                ck_assert_int_eq(strncmp(line, head, strlen(head)), 0);
                const char *name = line + strlen(head);
                ck_assert_uint_eq(strspn(name, (char[]){ *name, '\0' }), 16);
                ck_assert_int_eq(name[16], '\n');
        }
        ck_assert_int_eq(n, LOG_LINES_A_MINUTE);
}
END_TEST

static void write_beyond_a_minute(void) {
        const uint64_t minute_ns = 60 * NS_PER_S;
        for (int round = 0; round < 2; round++) {
                uint64_t begin_ns = clock_now_ns();
                for (int i = 0; i < 27; i++)
                        log_warning("round %d line %d", round, i);
                ck_assert_uint_ge(log_next_ns(), begin_ns + minute_ns);
                ck_assert_uint_le(log_next_ns(), clock_now_ns() + minute_ns);
                log_settle(log_next_ns() - 1); /* too early */
                log_settle(log_next_ns());
                ck_assert(log_next_ns() == LOG_NEVER);
        }
}

/* The line that tells takes the first place of the next minute. */
START_TEST(A10_one_line_says_how_many_were_not_written) {
        const char *text = log_of(write_beyond_a_minute, false);
        int n = 0;
        for (const char *p = strchr(text, '\n'); p; p = strchr(p + 1, '\n'))
                n++;
        ck_assert_int_eq(n, 2 * LOG_LINES_A_MINUTE + 1);
        ck_assert_ptr_nonnull(
                strstr(text, "round 0 line 19\n"
                             "tuttid: warning: 7 more of these were not written: round 0 line 19\n"
                             "tuttid: warning: round 1 line 0\n"));
        ck_assert_ptr_nonnull(
                strstr(text, "round 1 line 18\n"
                             "tuttid: warning: 8 more of these were not written: round 1 line 18\n"));
}
END_TEST

static void write_up_to_its_end(void) {
        for (int i = 0; i < 21; i++)
                log_notice("line %d", i);
        log_settle(LOG_NEVER);
}

START_TEST(what_was_not_written_is_said_at_the_end) {
        const char *text = log_of(write_up_to_its_end, false);
        const char last[] = "tuttid: notice: 1 more of these were not written: line 19\n";
        ck_assert_str_eq(text + strlen(text) - strlen(last), last);
}
END_TEST

static void write_about(void) {
        const struct log_replica replicas[] = { { .rank = 2, .pid = 17 }, { .rank = -1, .pid = 4 },
                { .rank = 3 } };
        const struct log_about about = {
                .job = "j", .group = "g", .key = "\"k\"", .replicas = replicas, .n_replicas = 3
        };
        log_about(LOG_LEVEL_WARNING, &about, "it is slow");
        log_about(LOG_LEVEL_WARNING, &about, "j/g: \"k\": R2 (pid 17), pid 4, R3");
        log_about(LOG_LEVEL_WARNING, &about, "j/gg: \"k\": R21 (pid 170), xpid 4, R3");
}

START_TEST(a_line_names_what_its_text_does_not) {
        ck_assert_str_eq(log_of(write_about, false),
                "tuttid: warning: it is slow [j/g \"k\" R2 pid 17 pid 4 R3]\n"
                "tuttid: warning: j/g: \"k\": R2 (pid 17), pid 4, R3\n"
                "tuttid: warning: j/gg: \"k\": R21 (pid 170), xpid 4, R3 [j/g R2 pid 17 pid 4]\n");
}
END_TEST

START_TEST(levels_have_names) {
        static const char *const names[] = { "error", "warning", "notice", "info", "debug" };
        enum log_level level = LOG_LEVEL_ERROR;
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                ck_assert_int_eq(log_level_parse(names[i], &level), 0);
                ck_assert_int_eq(level, (int)i);
        }
        ck_assert_int_eq(log_level_parse("Error", &level), -EINVAL);
        log_set_level(LOG_LEVEL_WARNING);
        ck_assert(log_is_on(LOG_LEVEL_ERROR) && log_is_on(LOG_LEVEL_WARNING) && !log_is_on(LOG_LEVEL_NOTICE));
}
END_TEST

/* --- what may be shown --- */

START_TEST(what_is_no_utf8_or_controls_a_terminal_is_not_printable) {
        static const char *const well[] = { "", "dp/train 1", "gr\xc3\xbc\xc3\x9f", "\xc2\xa0",
                "\xe2\x82\xac", "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x9f\x99\x82", "\xf4\x8f\xbf\xbf" };
        static const char *const ill[] = { "\n", "\x7f", "\xc2\x80",
                "\xc2\x9b"
                "31m",
                "\xc2\x9f", "\x80", "a\xff", "\xc2", "\xe2\x82", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                "\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3(" };
        for (size_t i = 0; i < ARRAY_SIZE(well); i++)
                ck_assert_msg(text_is_printable(well[i]), "%zu", i);
        for (size_t i = 0; i < ARRAY_SIZE(ill); i++)
                ck_assert_msg(!text_is_printable(ill[i]), "%zu", i);
}
END_TEST

/* --- assumptions --- */

static void assume_wrongly(void) {
        CHECK(1 + 1 == 3);
}

START_TEST(a_wrong_assumption_aborts_with_its_place) {
        const char *text = log_of(assume_wrongly, false);
        ck_assert_ptr_nonnull(strstr(text, "test-text.c:"));
        ck_assert_ptr_nonnull(strstr(text, "assumption does not hold: 1 + 1 == 3\n"));
}
END_TEST

UNIT_MAIN("text", 10, adds_and_knows_what_was_cut, fills_a_buffer_exactly, durations_as_people_read_them,
        bytes_as_people_read_them, quoted_names_cannot_forge_a_line,
        copies_are_cut_terminated_and_without_control_bytes, descriptors_close_once_and_keep_errno,
        nonblocking_keeps_the_other_flags, the_clock_does_not_go_back, plain_lines_name_program_and_level,
        the_journal_gets_priorities, a_name_cannot_forge_a_line,
        A10_each_condition_writes_twenty_lines_a_minute, threads_share_a_condition_and_do_not_mix_their_lines,
        A10_one_line_says_how_many_were_not_written, what_was_not_written_is_said_at_the_end,
        a_line_names_what_its_text_does_not, levels_have_names,
        what_is_no_utf8_or_controls_a_terminal_is_not_printable, a_wrong_assumption_aborts_with_its_place)
