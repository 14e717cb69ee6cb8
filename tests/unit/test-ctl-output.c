#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "run-output.h"
#include "run.h"
#include "unit.h"

/* A stream whose sink is a pipe. */
struct rig {
        struct sink sink;
        struct stream stream;
        int out;
        char text[65536];
};

static void set_up(struct rig *r, const char *label) {
        int ends[2];

        ck_assert_int_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
        r->out = ends[0];
        sink_init(&r->sink, ends[1]);
        ck_assert_int_eq(
                stream_open(&r->stream, open("/dev/null", O_RDONLY | O_CLOEXEC), &r->sink, label), 0);
}

static const char *take(struct rig *r) {
        ssize_t n = read(r->out, r->text, sizeof(r->text) - 1);

        r->text[n > 0 ? n : 0] = '\0';
        return r->text;
}

static void feed(struct rig *r, const char *text) {
        stream_feed(&r->stream, text, strlen(text));
}

static void tear_down(struct rig *r) {
        stream_close(&r->stream);
        close(r->out);
        sink_deinit(&r->sink);
        close(r->sink.fd);
}

START_TEST(lines_come_whole_and_labelled) {
        struct rig r;

        set_up(&r, "R2 | ");
        feed(&r, "hel");
        ck_assert_str_eq(take(&r), "");
        feed(&r, "lo\nwor");
        ck_assert_str_eq(take(&r), "R2 | hello\n");
        feed(&r, "ld\n\n");
        ck_assert_str_eq(take(&r), "R2 | world\nR2 | \n");
        tear_down(&r);
}
END_TEST

START_TEST(a_last_line_without_end_is_not_lost) {
        struct rig r;

        set_up(&r, "R2 | ");
        feed(&r, "the end");
        stream_close(&r.stream);
        ck_assert_str_eq(take(&r), "R2 | the end\n");
        ck_assert_int_eq(r.stream.fd, -1);
        stream_close(&r.stream);
        ck_assert_str_eq(take(&r), "");
        tear_down(&r);
}
END_TEST

START_TEST(progress_behind_a_label_becomes_lines) {
        struct rig r;

        set_up(&r, "R1 | ");
        feed(&r, "\rstep 1\rstep 2\r");
        feed(&r, "\ndone\r\n\r\n");
        ck_assert_str_eq(take(&r), "R1 | step 1\nR1 | step 2\nR1 | done\n");
        feed(&r, "\n");
        ck_assert_str_eq(take(&r), "R1 | \n");
        tear_down(&r);
}
END_TEST

START_TEST(without_label_bytes_stay_as_they_are) {
        struct rig r;

        set_up(&r, "");
        feed(&r, "\rstep 1\rste");
        ck_assert_str_eq(take(&r), "\rstep 1\r");
        feed(&r, "p 2\n\nx");
        ck_assert_str_eq(take(&r), "step 2\n\n");
        stream_close(&r.stream);
        ck_assert_str_eq(take(&r), "x");
        tear_down(&r);
}
END_TEST

START_TEST(another_line_does_not_continue_an_unfinished_one) {
        struct rig r;
        struct stream plain;

        set_up(&r, "R1 | ");
        ck_assert_int_eq(stream_open(&plain, open("/dev/null", O_RDONLY | O_CLOEXEC), &r.sink, ""), 0);
        stream_feed(&plain, "step 1\r", 7);
        feed(&r, "x\ny\n");
        ck_assert_str_eq(take(&r), "step 1\r\nR1 | x\nR1 | y\n");
        stream_close(&plain);
        tear_down(&r);
}
END_TEST

START_TEST(an_unfinished_line_on_a_shared_terminal_is_cleared) {
        struct rig r;

        set_up(&r, "R1 | ");
        r.sink.is_shared_terminal = true;
        feed(&r, "x\n");
        ck_assert_str_eq(take(&r), "\r\033[KR1 | x\n");
        tear_down(&r);
}
END_TEST

START_TEST(a_line_without_end_is_broken) {
        char *text = malloc(STREAM_LINE_BYTES + 3);
        struct rig r;

        memset(text, 'x', STREAM_LINE_BYTES + 1);
        strcpy(text + STREAM_LINE_BYTES + 1, "\n");
        set_up(&r, "R1 | ");
        feed(&r, text);
        ck_assert_uint_eq(strlen(take(&r)), 5 + STREAM_LINE_BYTES + 1 + 5 + 1 + 1);
        ck_assert_str_eq(r.text + 5 + STREAM_LINE_BYTES, "\nR1 | x\n");
        tear_down(&r);
        free(text);
}
END_TEST

START_TEST(a_writer_hears_that_nobody_reads) {
        int ends[2];
        struct rig r;

        set_up(&r, "R1 | ");
        ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
        close(r.stream.fd);
        r.stream.fd = ends[0];
        signal(SIGPIPE, SIG_IGN);
        close(r.out);
        r.out = -1;
        ck_assert_int_eq(write(ends[1], "x\n", 2), 2);
        stream_read(&r.stream);
        ck_assert_int_eq(r.stream.fd, -1);
        ck_assert_int_eq(write(ends[1], "x\n", 2), -1);
        close(ends[1]);
        sink_deinit(&r.sink);
        close(r.sink.fd);
}
END_TEST

/* Of a pipe of 64 KiB that nobody reads. */
START_TEST(what_cannot_be_written_now_is_kept_and_bounded) {
        static char line[STREAM_LINE_BYTES];
        struct rig r;
        size_t n_fed = 0, n_read = 0;

        memset(line, 'x', sizeof(line) - 2);
        line[sizeof(line) - 2] = '\n';
        set_up(&r, "");
        for (; stream_may_read(&r.stream); n_fed += strlen(line))
                feed(&r, line);
        ck_assert_uint_gt(r.sink.used, 0);
        ck_assert_uint_le(r.sink.used, SINK_BYTES);
        ck_assert(!r.sink.is_broken);
        ck_assert_int_ge(sink_poll_fd(&r.sink), 0);
        while (n_read < n_fed) {
                size_t n = strlen(take(&r));
                ck_assert_uint_gt(n, 0);
                n_read += n;
                sink_flush(&r.sink);
        }
        ck_assert_uint_eq(n_read, n_fed);
        ck_assert_int_eq(sink_poll_fd(&r.sink), -1);
        tear_down(&r);
}
END_TEST

START_TEST(a_full_disk_breaks_no_sink) {
        int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
        struct sink s;

        sink_init(&s, full);
        sink_write(&s, "x\n", 2);
        ck_assert_int_eq(s.error, ENOSPC);
        ck_assert(!s.is_broken);
        ck_assert_uint_eq(s.used, 0);
        sink_deinit(&s);
        close(full);
}
END_TEST

/* The flags of a description are seen by all who share it. */
START_TEST(a_shared_description_stays_as_it_is) {
        struct sink s;
        int ends[2];

        ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
        sink_init(&s, ends[1]);
        while (s.used < SINK_BYTES) /* a write that blocks would not come back */
                sink_write(&s, "line\n", 5);
        ck_assert_int_eq(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0);
        sink_deinit(&s);
        close(ends[0]);
        close(ends[1]);
}
END_TEST

START_TEST(ends_are_named_by_code_or_signal) {
        char how[64];

        describe_end(how, sizeof(how), 3 << 8);
        ck_assert_str_eq(how, "exit code 3");
        describe_end(how, sizeof(how), SIGKILL);
        ck_assert_str_eq(how, "signal 9 (SIGKILL)");
        describe_end(how, sizeof(how), SIGRTMIN + 3);
        ck_assert_str_eq(how, "signal 37 (?)");
}
END_TEST

UNIT_MAIN("ctl-output", 10, lines_come_whole_and_labelled, a_last_line_without_end_is_not_lost,
        progress_behind_a_label_becomes_lines, without_label_bytes_stay_as_they_are,
        another_line_does_not_continue_an_unfinished_one, an_unfinished_line_on_a_shared_terminal_is_cleared,
        a_line_without_end_is_broken, a_writer_hears_that_nobody_reads,
        what_cannot_be_written_now_is_kept_and_bounded, a_full_disk_breaks_no_sink,
        a_shared_description_stays_as_it_is, ends_are_named_by_code_or_signal)
