/* top, replicas and buffers of a real run; top on a terminal of 80 columns. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include "host.h"
#include "program.h"
#include "replica.h"
#include "unit.h"

static void run_ctl(struct host *h, const char *const *words, struct program *p) {
        const char *argv[12] = { program_tuttictl(), words[0], "--socket", host_socket(h) };

        for (int i = 1, n = 4; words[i]; i++)
                argv[n++] = words[i];
        program_run(argv, 20, p);
        ck_assert_str_eq(p->err, "");
}

static json_t *json_answer(struct host *h, const char *const *words, int code) {
        struct program p;
        json_t *j;

        run_ctl(h, words, &p);
        ck_assert_int_eq(p.code, code);
        j = json_loads(p.out, 0, NULL);
        ck_assert_msg(j != NULL, "no JSON: %s", p.out);
        program_deinit(&p);
        return j;
}

static void check_schema(struct host *h, const char *command) {
        char line[1024];
        int status;

        snprintf(line, sizeof(line),
                "%s %s --json --socket %s | python3 %s/tests/support/check-schema.py %s/docs/schema/%s.json",
                program_tuttictl(), command, host_socket(h), TUTTI_SOURCE_ROOT, TUTTI_SOURCE_ROOT, command);
        status = system(line);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                printf("# python3-jsonschema is not installed: the schema is not checked\n");
        else
                ck_assert_int_eq(status, 0);
}

/* Works until it is told to end; 1 MiB a replica. */
static void work(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b;
        int32_t *stop;

        ck_assert_int_eq(tutti_buffer_alloc(me->t, 1 << 20, &b), TUTTI_OK);
        stop = tutti_buffer_data(b);
        struct tutti_value v = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_I32, .n_dims = 1, .shape = { 1024 });
        replica_say(me, "joined");
        do {
                *stop = access((const char *)me->arg, F_OK) == 0;
                ck_assert_int_eq(tutti_all_reduce(g, "step", TUTTI_MAX, &v, &v), TUTTI_OK);
                usleep(500);
        } while (!*stop);
        tutti_group_free(g);
        tutti_buffer_free(b);
}

struct job {
        char flag[256]; /* a file that ends it */
        struct replica *r[2];
};

static void job_start(struct job *j, struct host *h) {
        snprintf(j->flag, sizeof(j->flag), "%s/stop", unit_directory());
        replicas_spawn(h, 2, work, j->flag, j->r);
        replica_expect(j->r[0], "joined", 10);
        replica_expect(j->r[1], "joined", 10);
}

static void job_end(struct job *j) {
        FILE *f = fopen(j->flag, "we");

        ck_assert_ptr_nonnull(f);
        fclose(f);
        ck_assert_int_eq(replica_end(j->r[0], 10), 0);
        ck_assert_int_eq(replica_end(j->r[1], 10), 0);
}

START_TEST(top_measures_what_happens_between_two_looks) {
        struct host *h = host_start(NULL);
        struct job job;
        struct program p;
        json_t *j;
        const json_t *group;

        job_start(&job, h);
        j = json_answer(h, (const char *[]){ "top", "--json", "--interval", "0.5", NULL }, 0);
        group = json_array_get(json_object_get(j, "groups"), 0);
        ck_assert_int_ge(json_integer_value(json_object_get(j, "interval_ns")), 500000000);
        ck_assert_str_eq(json_string_value(json_object_get(group, "state")), "ok");
        ck_assert(json_real_value(json_object_get(group, "ops_per_second")) > 1);
        /* 4 KiB from each of two replicas, each time */
        ck_assert_double_eq_tol(json_real_value(json_object_get(group, "bytes_per_second")) /
                                        json_real_value(json_object_get(group, "ops_per_second")),
                8192, 1);
        json_decref(j);
        check_schema(h, "top");
        run_ctl(h, (const char *[]){ "top", "--interval", "0.1", NULL }, &p);
        ck_assert_int_eq(p.code, 0);
        ck_assert_ptr_nonnull(strstr(p.out, "\nok       test/train  "));
        ck_assert_ptr_null(strchr(p.out, '\033'));
        program_deinit(&p);
        job_end(&job);
        host_stop(h);
}
END_TEST

START_TEST(replicas_and_buffers_tell_who_holds_what) {
        struct host *h = host_start(NULL);
        struct job job;
        struct program p;
        char text[128];
        json_t *j;
        const json_t *holders;

        job_start(&job, h);
        run_ctl(h, (const char *[]){ "replicas", "train", NULL }, &p);
        ck_assert_int_eq(p.code, 0);
        snprintf(text, sizeof(text), "\ntest/train R1       %7d  alive ", job.r[1]->pid);
        ck_assert_msg(strstr(p.out, text) != NULL, "\"%s\" is not in: %s", text, p.out);
        program_deinit(&p);
        check_schema(h, "replicas");
        j = json_answer(h, (const char *[]){ "buffers", "--json", NULL }, 0);
        holders = json_object_get(j, "holders");
        ck_assert_uint_eq(json_array_size(holders), 2);
        for (size_t i = 0; i < 2; i++) {
                const json_t *one = json_array_get(holders, i);
                int64_t pid = json_integer_value(json_object_get(one, "pid"));

                ck_assert(pid == job.r[0]->pid || pid == job.r[1]->pid);
                ck_assert_int_ge(json_integer_value(json_object_get(one, "mapped_bytes")), 1 << 20);
                ck_assert_uint_eq(json_array_size(json_object_get(one, "replicas")), 1);
        }
        json_decref(j);
        check_schema(h, "buffers");
        job_end(&job);
        run_ctl(h, (const char *[]){ "buffers", NULL }, &p);
        ck_assert_ptr_nonnull(strstr(p.out, "No buffers of yours.\n"));
        program_deinit(&p);
        run_ctl(h, (const char *[]){ "replicas", NULL }, &p);
        ck_assert_str_eq(p.out, "No replicas of yours.\n");
        program_deinit(&p);
        host_stop(h);
}
END_TEST

/* --- a terminal --- */

struct terminal {
        int master, slave;
        pid_t pid;
        char text[1 << 16]; /* what was drawn */
        size_t n;
};

static void terminal_open(struct terminal *t) {
        struct winsize size = { .ws_row = 24, .ws_col = 80 };

        t->n = 0;
        t->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (t->master < 0)
                unit_skip("there are no pseudo-terminals here: %s", strerror(errno));
        ck_assert_int_eq(grantpt(t->master), 0);
        ck_assert_int_eq(unlockpt(t->master), 0);
        t->slave = open(ptsname(t->master), O_RDWR | O_NOCTTY | O_CLOEXEC);
        ck_assert_int_ge(t->slave, 0);
        ck_assert_int_eq(ioctl(t->slave, TIOCSWINSZ, &size), 0);
}

static void terminal_run(struct terminal *t, struct host *h) {
        const char *program = program_tuttictl(), *socket = host_socket(h);

        t->pid = fork();
        ck_assert_int_ge(t->pid, 0);
        if (t->pid > 0)
                return;
        setsid();
        ioctl(t->slave, TIOCSCTTY, 0);
        for (int fd = 0; fd < 3; fd++)
                dup2(t->slave, fd);
        setenv("TERM", "xterm", 1);
        unsetenv("NO_COLOR");
        execl(program, program, "top", "--interval", "0.2", "--socket", socket, (char *)NULL);
        _exit(127);
}

/* Reads on until `wanted` has been drawn behind `from`; returns where. */
static size_t terminal_expect(struct terminal *t, size_t from, const char *wanted) {
        struct pollfd fd = { .fd = t->master, .events = POLLIN };
        const char *found;

        for (;;) {
                t->text[t->n] = '\0';
                found = strstr(t->text + from, wanted);
                if (found)
                        return (size_t)(found - t->text);
                ck_assert_msg(poll(&fd, 1, (int)(10000 * unit_scale())) == 1, "no \"%s\" in: %s", wanted,
                        t->text + from);
                ssize_t n = read(t->master, t->text + t->n, sizeof(t->text) - 1 - t->n);
                ck_assert_msg(n > 0, "the terminal is full or gone: %s", t->text + from);
                t->n += (size_t)n;
        }
}

static void terminal_close(struct terminal *t) {
        close(t->master);
        close(t->slave);
}

/* Columns of the longest line of what was drawn; escapes take none. */
static size_t widest(const char *text) {
        size_t most = 0, columns = 0;

        for (; *text; text++) {
                if (*text == '\033')
                        text += strcspn(text, "mKJHhl");
                else if (*text == '\n')
                        columns = 0;
                else
                        columns += *text != '\r';
                most = columns > most ? columns : most;
        }
        return most;
}

static void expect_same_settings(const struct termios *a, const struct termios *b) {
        ck_assert_uint_eq(a->c_lflag, b->c_lflag);
        ck_assert_uint_eq(a->c_iflag, b->c_iflag);
        ck_assert_uint_eq(a->c_cc[VMIN], b->c_cc[VMIN]);
}

START_TEST(top_draws_in_place_and_leaves_the_terminal_as_it_was) {
        struct terminal *t = calloc(1, sizeof(*t));
        struct termios before, during, after;
        struct host *h;
        struct job job;
        size_t at;

        terminal_open(t);
        h = host_start(NULL);
        job_start(&job, h);
        ck_assert_int_eq(tcgetattr(t->slave, &before), 0);
        terminal_run(t, h);
        at = terminal_expect(t, 0, "\033[?1049h");
        at = terminal_expect(t, at, "test/train");
        at = terminal_expect(t, at, "q ends");
        at = terminal_expect(t, at, "\033[H"); /* in place, and again */
        at = terminal_expect(t, at, "\033[32mok       \033[0mtest/train");
        terminal_expect(t, at, "q ends");
        ck_assert_int_eq(tcgetattr(t->slave, &during), 0);
        ck_assert_uint_eq(during.c_lflag & (ICANON | ECHO), 0);
        ck_assert_uint_le(widest(t->text), 80);
        ck_assert_int_eq(write(t->master, "q", 1), 1);
        terminal_expect(t, at, "\033[?1049l");
        ck_assert_int_eq(program_wait(t->pid, 10), 0);
        ck_assert_int_eq(tcgetattr(t->slave, &after), 0);
        expect_same_settings(&before, &after);
        terminal_close(t);
        free(t);
        job_end(&job);
        host_stop(h);
}
END_TEST

START_TEST(top_gives_the_terminal_back_when_it_is_ended_or_tuttid_goes) {
        struct terminal *t = calloc(1, sizeof(*t));
        struct termios before, after;
        struct host *h;
        size_t at;

        terminal_open(t);
        h = host_start(NULL);
        ck_assert_int_eq(tcgetattr(t->slave, &before), 0);
        terminal_run(t, h);
        terminal_expect(t, 0, "No groups of yours.");
        kill(t->pid, SIGTERM);
        at = terminal_expect(t, 0, "\033[?1049l");
        ck_assert_int_eq(program_wait(t->pid, 10), 0);
        ck_assert_int_eq(tcgetattr(t->slave, &after), 0);
        expect_same_settings(&before, &after);

        terminal_run(t, h);
        at = terminal_expect(t, at, "No groups of yours.");
        host_kill9(h);
        at = terminal_expect(t, at, "\033[?1049l");
        terminal_expect(t, at, "DAEMON_LOST");
        ck_assert_int_eq(program_wait(t->pid, 10), 3);
        ck_assert_int_eq(tcgetattr(t->slave, &after), 0);
        expect_same_settings(&before, &after);
        terminal_close(t);
        free(t);
        host_stop(h);
}
END_TEST

START_TEST(top_ends_while_tuttid_says_nothing) {
        struct terminal *t = calloc(1, sizeof(*t));
        struct termios before, after;
        struct host *h;

        terminal_open(t);
        h = host_start(NULL);
        ck_assert_int_eq(tcgetattr(t->slave, &before), 0);
        terminal_run(t, h);
        terminal_expect(t, 0, "No groups of yours.");
        kill(host_pid(h), SIGSTOP);
        usleep(500000); /* it has asked since */
        kill(t->pid, SIGINT);
        terminal_expect(t, 0, "\033[?1049l");
        ck_assert_int_eq(program_wait(t->pid, 3), 0);
        ck_assert_int_eq(tcgetattr(t->slave, &after), 0);
        expect_same_settings(&before, &after);
        kill(host_pid(h), SIGCONT);
        terminal_close(t);
        free(t);
        host_stop(h);
}
END_TEST

START_TEST(top_refuses_odd_intervals) {
        static const char *const wrong[] = { "0", "-1", "x", "", "nan", "1e9", "1s" };
        struct program p;

        for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
                program_run(
                        (const char *[]){ program_tuttictl(), "top", "--interval", wrong[i], NULL }, 10, &p);
                ck_assert_msg(p.code == 64, "%s gives %d", wrong[i], p.code);
                ck_assert_ptr_nonnull(strstr(p.err, "--interval takes seconds from 0.1 to 3600"));
                program_deinit(&p);
        }
}
END_TEST

UNIT_MAIN("ctl-live", 60, top_measures_what_happens_between_two_looks,
        replicas_and_buffers_tell_who_holds_what, top_draws_in_place_and_leaves_the_terminal_as_it_was,
        top_gives_the_terminal_back_when_it_is_ended_or_tuttid_goes, top_ends_while_tuttid_says_nothing,
        top_refuses_odd_intervals)
