/* `tuttictl run` as people use it, with shell programs as replicas and the real tuttid. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "host.h"
#include "program.h"
#include "unit.h"

#define MAX_ARGS 24

static void go_to_directory(void) {
        ck_assert_int_eq(chdir(unit_directory()), 0);
        setenv("TUTTI_DAEMON", program_tuttid(), 1);
        unsetenv("TUTTI_SOCKET");
        unsetenv("TUTTI_JOB");
        unsetenv("XDG_RUNTIME_DIR");
}

/* tuttictl run OPTIONS -- /bin/sh -c SCRIPT; options are divided by blanks. */
static const char *const *command_line(const char *options, const char *script) {
        static const char *argv[MAX_ARGS];
        static char copy[256];
        size_t n = 0;

        argv[n++] = program_tuttictl();
        argv[n++] = "run";
        snprintf(copy, sizeof(copy), "%s", options);
        for (char *word = strtok(copy, " "); word && n < MAX_ARGS - 5; word = strtok(NULL, " "))
                argv[n++] = word;
        argv[n++] = "--";
        argv[n++] = "/bin/sh";
        argv[n++] = "-c";
        argv[n++] = script;
        argv[n] = NULL;
        return argv;
}

static void run(const char *options, const char *script, struct program *p) {
        go_to_directory();
        program_run(command_line(options, script), 20, p);
}

static pid_t start(const char *options, const char *script) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC),
            out = open("out", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        pid_t pid = program_spawn(command_line(options, script), out, null);

        close(null);
        close(out);
        return pid;
}

static void sleep_ms(unsigned int ms) {
        nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}

/* Waits until it is so, for ten seconds. */
#define EVENTUALLY(condition)                                                                                \
        do {                                                                                                 \
                for (int i_ = 0; !(condition) && i_ < 1000 * unit_scale(); i_++)                             \
                        sleep_ms(10);                                                                        \
                ck_assert(condition);                                                                        \
        } while (0)

static bool exists(const char *path) {
        return access(path, F_OK) == 0;
}

/* The pid that a replica wrote into this file. */
static pid_t pid_in(const char *path) {
        char text[32] = "";
        int fd = open(path, O_RDONLY | O_CLOEXEC);

        ck_assert_msg(fd >= 0, "%s: %m", path);
        ck_assert_int_gt(read(fd, text, sizeof(text) - 1), 0);
        close(fd);
        return (pid_t)atoi(text);
}

static bool is_gone(pid_t pid) {
        return kill(pid, 0) < 0 && errno == ESRCH;
}

static unsigned int count_directories(void) {
        glob_t found;
        unsigned int n = 0;

        if (glob("tutti-run.*", 0, NULL, &found) == 0)
                n = (unsigned int)found.gl_pathc;
        globfree(&found);
        return n;
}

static void expect_in(const char *text, const char *part) {
        ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in: %s", part, text);
}

START_TEST(replicas_know_who_they_are) {
        struct program p;

        run("-n 2 --job j1 --prefix all",
                "echo $TUTTI_RANK/$TUTTI_WORLD_SIZE $TUTTI_JOB; test -S \"$TUTTI_SOCKET\"", &p);
        ck_assert_int_eq(p.code, 0);
        expect_in(p.out, "R0 | 0/2 j1\n");
        expect_in(p.out, "R1 | 1/2 j1\n");
        program_deinit(&p);
        run("-n 1", "echo $TUTTI_JOB $PPID", &p);
        ck_assert_int_eq(p.code, 0);
        char expected[64];
        int launcher = 0;
        ck_assert_int_eq(sscanf(p.out, "run-%d", &launcher), 1);
        snprintf(expected, sizeof(expected), "run-%d %d\n", launcher, launcher);
        ck_assert_str_eq(p.out, expected);
        program_deinit(&p);
}
END_TEST

START_TEST(a_private_tuttid_comes_and_goes) {
        struct program p;
        char socket[128] = "";
        unsigned int n_devices = 0;

        run("-n 1 --private", "echo $TUTTI_SOCKET", &p);
        ck_assert_int_eq(p.code, 0);
        const char *line =
                strstr(p.err, "tuttid: private, "); /* it may have had something else to say before */
        ck_assert_msg(line != NULL, "%s", p.err);
        ck_assert_int_eq(sscanf(line, "tuttid: private, %127[^,], %u host device", socket, &n_devices), 2);
        ck_assert_uint_eq(n_devices, 1);
        expect_in(p.err, "CPU:0 (");
        ck_assert_int_eq(strncmp(p.out, socket, strlen(socket)), 0);
        ck_assert_int_eq(strncmp(socket, unit_directory(), strlen(unit_directory())), 0);
        ck_assert_uint_eq(count_directories(), 0);
        program_deinit(&p);
}
END_TEST

START_TEST(the_tuttid_that_is_there_is_used) {
        struct host *h = host_start(NULL);
        char options[256];
        struct program p;

        snprintf(options, sizeof(options), "-n 2 --socket %s", host_socket(h));
        run(options, "echo $TUTTI_SOCKET", &p);
        ck_assert_int_eq(p.code, 0);
        ck_assert_str_eq(p.err, "");
        expect_in(p.out, host_socket(h));
        program_deinit(&p);
        host_stop(h);
}
END_TEST

START_TEST(a_socket_that_does_not_answer_is_an_error) {
        struct program p;

        run("-n 2 --socket nowhere.sock", "touch started", &p);
        ck_assert_int_eq(p.code, 3);
        expect_in(p.err, "nowhere.sock");
        ck_assert(!exists("started"));
        program_deinit(&p);
}
END_TEST

START_TEST(one_failure_ends_all) {
        struct program p;

        run("-n 3",
                "echo $$ >pid$TUTTI_RANK; test $TUTTI_RANK = 1 || exec sleep 600;"
                "while ! test -s pid0 -a -s pid2; do sleep 0.01; done; exit 5",
                &p);
        ck_assert_int_eq(p.code, 5);
        char expected[128];
        snprintf(expected, sizeof(expected), "R1 (pid %d) ended with exit code 5; ending the others.",
                pid_in("pid1"));
        expect_in(p.err, expected);
        ck_assert(is_gone(pid_in("pid0")) && is_gone(pid_in("pid2")));
        program_deinit(&p);
}
END_TEST

START_TEST(a_killed_replica_is_named_with_its_signal) {
        struct program p;

        run("-n 2", "test $TUTTI_RANK = 1 && kill -9 $$; exec sleep 600", &p);
        ck_assert_int_eq(p.code, 128 + SIGKILL);
        expect_in(p.err, ") ended with signal 9 (SIGKILL); ending the others.");
        program_deinit(&p);
}
END_TEST

START_TEST(who_does_not_hear_TERM_is_killed) {
        struct program p;

        run("-n 2 --grace 0.2",
                "test $TUTTI_RANK = 1 || { trap '' TERM; echo $$ >pid0; while :; do sleep 1; done; };"
                "while ! test -s pid0; do sleep 0.01; done; exit 4",
                &p);
        ck_assert_int_eq(p.code, 4);
        expect_in(p.err, "has not ended within 0.2 s: killing it.");
        ck_assert(is_gone(pid_in("pid0")));
        program_deinit(&p);
}
END_TEST

START_TEST(a_stopped_replica_ends_too) {
        struct program p;

        run("-n 2",
                "test $TUTTI_RANK = 1 || { echo $$ >pid0; kill -STOP $$; };"
                "while ! test -s pid0; do sleep 0.01; done; sleep 0.1; exit 4",
                &p);
        ck_assert_int_eq(p.code, 4);
        ck_assert(is_gone(pid_in("pid0")));
        ck_assert_ptr_null(strstr(p.err, "killing it"));
        program_deinit(&p);
}
END_TEST

START_TEST(nothing_that_replicas_started_stays) {
        struct program p;

        run("-n 1",
                "sleep 600 & echo $! >in-group; setsid sh -c 'echo $$ >escaped; exec sleep 600' &"
                "while ! test -s escaped -a -s in-group; do sleep 0.01; done",
                &p);
        ck_assert_int_eq(p.code, 0);
        ck_assert(is_gone(pid_in("in-group")));
        ck_assert(is_gone(pid_in("escaped")));
        program_deinit(&p);
}
END_TEST

static void check_passed_on(int signal, const char *name) {
        char script[256];

        snprintf(script, sizeof(script),
                "trap 'touch got$TUTTI_RANK; exit 0' %s; touch ready$TUTTI_RANK; while :; do sleep 0.02; "
                "done",
                name);
        struct sigaction as_ever = { .sa_handler = SIG_DFL };
        sigaction(signal, &as_ever,
                NULL); /* a shell's background ignores some, and what is ignored cannot be trapped */
        pid_t pid = start("-n 2", script);
        EVENTUALLY(exists("ready0") && exists("ready1"));
        kill(pid, signal);
        ck_assert_int_eq(program_wait(pid, 10), 0);
        ck_assert(exists("got0") && exists("got1"));
        unlink("ready0");
        unlink("ready1");
        unlink("got0");
        unlink("got1");
}

START_TEST(signals_are_passed_on) {
        go_to_directory();
        check_passed_on(SIGINT, "INT");
        check_passed_on(SIGTERM, "TERM");
        check_passed_on(SIGHUP, "HUP");
        check_passed_on(SIGUSR1, "USR1");
        check_passed_on(SIGUSR2, "USR2");
        ck_assert_uint_eq(count_directories(), 0);
}
END_TEST

START_TEST(an_interrupted_run_exits_by_its_signal) {
        go_to_directory();
        pid_t pid = start("-n 2", "touch ready$TUTTI_RANK; exec sleep 600");
        EVENTUALLY(exists("ready0") && exists("ready1"));
        kill(pid, SIGTERM);
        ck_assert_int_eq(program_wait(pid, 10), 128 + SIGTERM);
        ck_assert_uint_eq(count_directories(), 0);
}
END_TEST

static bool is_served(const char *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), r;

        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        r = connect(fd, (struct sockaddr *)&address, sizeof(address));
        close(fd);
        return r == 0;
}

/* P20: what a killed launcher leaves is ended by the kernel and by tuttid, and swept by the next launcher. */
START_TEST(a_killed_launcher_leaves_nothing_that_runs_P20) {
        struct program p;
        char path[128] = "";

        go_to_directory();
        pid_t pid = start("-n 2 --private", "echo $$ >pid$TUTTI_RANK; exec sleep 600");
        EVENTUALLY(exists("pid0") && exists("pid1"));
        glob_t found;
        ck_assert_int_eq(glob("tutti-run.*/tuttid.sock", 0, NULL, &found), 0);
        snprintf(path, sizeof(path), "%s", found.gl_pathv[0]);
        globfree(&found);
        ck_assert(is_served(path));
        kill(pid, SIGKILL);
        ck_assert_int_eq(program_wait(pid, 10), 128 + SIGKILL);
        EVENTUALLY(is_gone(pid_in("pid0")) && is_gone(pid_in("pid1")));
        EVENTUALLY(!is_served(path));
        ck_assert_uint_eq(count_directories(), 1);
        run("-n 1 --private", "true", &p);
        ck_assert_int_eq(p.code, 0);
        ck_assert_uint_eq(count_directories(), 0);
        program_deinit(&p);
}
END_TEST

START_TEST(a_living_launchers_directory_is_not_swept) {
        struct program p;

        go_to_directory();
        pid_t pid = start("-n 1 --private",
                "touch ready; while ! test -e go; do sleep 0.01; done; test -S $TUTTI_SOCKET");
        EVENTUALLY(exists("ready"));
        run("-n 1 --private", "touch go", &p);
        ck_assert_int_eq(p.code, 0);
        program_deinit(&p);
        ck_assert_int_eq(program_wait(pid, 10), 0);
        ck_assert_uint_eq(count_directories(), 0);
}
END_TEST

START_TEST(a_tuttid_that_cannot_start_is_reported) {
        struct program p;

        go_to_directory();
        FILE *f = fopen("broken-tuttid", "we");
        fputs("#!/bin/sh\necho 'no device today' >&2\nexit 2\n", f);
        fclose(f);
        ck_assert_int_eq(chmod("broken-tuttid", 0700), 0);
        setenv("TUTTI_DAEMON", "./broken-tuttid", 1);
        program_run(command_line("-n 1 --private", "touch started"), 20, &p);
        ck_assert_int_eq(p.code, 3);
        expect_in(p.err, "tuttid | no device today\n");
        expect_in(p.err, ") ended with exit code 2.");
        ck_assert(!exists("started"));
        ck_assert_uint_eq(count_directories(), 0);
        program_deinit(&p);
}
END_TEST

START_TEST(a_program_that_is_not_there_is_said_once) {
        struct program p;

        go_to_directory();
        program_run(
                (const char *[]){ program_tuttictl(), "run", "-n", "3", "no-such-program", NULL }, 20, &p);
        ck_assert_int_eq(p.code, 127);
        expect_in(p.err, "tuttictl run: cannot start no-such-program as R0: No such file or directory.\n");
        program_deinit(&p);
        program_run((const char *[]){ program_tuttictl(), "run", "-n", "3", "/", NULL }, 20, &p);
        ck_assert_int_eq(p.code, 126);
        program_deinit(&p);
}
END_TEST

START_TEST(prefixes_are_as_told) {
        static const char say[] = "test $TUTTI_RANK = 0 || while ! test -e said; do sleep 0.01; done;"
                                  "printf 'a\\rb\\n'; touch said; sleep 0.2";
        struct program p;

        run("-n 2", say, &p);
        ck_assert_str_eq(p.out, "a\rb\nR1 | a\nR1 | b\n");
        program_deinit(&p);
        unlink("said");
        run("-n 2 --prefix all", say, &p);
        ck_assert_str_eq(p.out, "R0 | a\nR0 | b\nR1 | a\nR1 | b\n");
        program_deinit(&p);
        unlink("said");
        run("-n 2 --raw", say, &p);
        ck_assert_str_eq(p.out, "a\rb\na\rb\n");
        program_deinit(&p);
        run("-n 1", "echo x; echo y >&2", &p);
        ck_assert_str_eq(p.out, "x\n");
        expect_in(p.err, "\ny\n");
        program_deinit(&p);
}
END_TEST

START_TEST(no_line_is_lost) {
        struct program p;
        unsigned int n = 0;

        run("-n 8", "i=0; while test $i -lt 500; do echo line $i of $TUTTI_RANK; i=$((i+1)); done", &p);
        ck_assert_int_eq(p.code, 0);
        for (char *line = strtok(p.out, "\n"); line; line = strtok(NULL, "\n"), n++) {
                unsigned int label = 0, i, rank;
                int used = 0;
                const char *text = line[0] == 'R' ? strchr(line, '|') + 2 : line;

                if (text != line)
                        ck_assert_int_eq(sscanf(line, "R%u | ", &label), 1);
                ck_assert_int_eq(sscanf(text, "line %u of %u%n", &i, &rank, &used), 2);
                ck_assert_uint_eq(rank, label);
                ck_assert_int_eq(used, strlen(text));
        }
        ck_assert_uint_eq(n, 8 * 500);
        program_deinit(&p);
}
END_TEST

/* --- who reads, or does not --- */

static const char talk[] = "i=0; while test $i -lt 2000; do echo line $i || exit 9; i=$((i+1)); done; touch "
                           "done$TUTTI_RANK";

START_TEST(a_full_disk_ends_no_training) {
        static const char said[] =
                "tuttictl run: standard output cannot be written: No space left on device.";
        int full = open("/dev/full", O_WRONLY | O_CLOEXEC), err = memfd_create("stderr", MFD_CLOEXEC);

        go_to_directory();
        pid_t pid = program_spawn(command_line("-n 2", talk), full, err);
        ck_assert_int_eq(program_wait(pid, 20), 0);
        ck_assert(exists("done0") && exists("done1"));
        char *text = program_read_all(err);
        expect_in(text, said);
        ck_assert_ptr_null(strstr(strstr(text, said) + 1, said));
        free(text);
        close(full);
        close(err);
}
END_TEST

/* Its stdout is a pipe that the test may read from. */
static pid_t start_piped(const char *script, int pipe_flags, int *ret_out) {
        int ends[2], null = open("/dev/null", O_WRONLY | O_CLOEXEC);

        go_to_directory();
        ck_assert_int_eq(pipe2(ends, O_CLOEXEC | pipe_flags), 0);
        pid_t pid = program_spawn(command_line("-n 2", script), ends[1], null);
        close(ends[1]);
        close(null);
        *ret_out = ends[0];
        return pid;
}

/* Up to the end. */
static unsigned int count_lines(int fd) {
        char bytes[4096];
        ssize_t n = 0;
        unsigned int n_lines = 0;

        while ((n = read(fd, bytes, sizeof(bytes))) != 0) {
                ck_assert_msg(n > 0 || errno == EAGAIN, "%m");
                for (ssize_t i = 0; i < n; i++)
                        n_lines += bytes[i] == '\n';
                sleep_ms(1);
        }
        close(fd);
        return n_lines;
}

START_TEST(a_late_and_slow_reader_gets_every_line) {
        static const int flags[] = { 0, O_NONBLOCK };

        for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
                int out;
                pid_t pid = start_piped(
                        "i=0; while test $i -lt 20000; do echo line $i || exit 9; i=$((i+1)); done", flags[i],
                        &out);
                sleep_ms(500);
                ck_assert_uint_eq(count_lines(out), 40000);
                ck_assert_int_eq(program_wait(pid, 10), 0);
        }
}
END_TEST

START_TEST(an_end_waits_for_nobody_who_reads) {
        int out;
        pid_t pid = start_piped("echo $$ >pid$TUTTI_RANK; touch ready$TUTTI_RANK; exec yes", 0, &out);

        EVENTUALLY(exists("ready0") && exists("ready1"));
        sleep_ms(500); /* the pipe is full */
        kill(pid, SIGTERM);
        ck_assert_int_eq(program_wait(pid, 10), 128 + SIGTERM);
        ck_assert(is_gone(pid_in("pid0")) && is_gone(pid_in("pid1")));
        ck_assert_uint_eq(count_directories(), 0);
        close(out);
}
END_TEST

START_TEST(a_failure_ends_all_though_nobody_reads) {
        int out;
        pid_t pid = start_piped(
                "echo $$ >pid$TUTTI_RANK; touch ready$TUTTI_RANK; test $TUTTI_RANK = 1 || exec yes;"
                "while ! test -e fail; do sleep 0.02; done; exit 3",
                0, &out);

        EVENTUALLY(exists("ready0") && exists("ready1"));
        sleep_ms(500);
        close(open("fail", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        EVENTUALLY(is_gone(pid_in("pid0")) && is_gone(pid_in("pid1")));
        ck_assert_uint_gt(count_lines(out), 0);
        ck_assert_int_eq(program_wait(pid, 10), 3);
}
END_TEST

/* --- what cannot be killed --- */

/* From here on kill(2) of one process by SIGKILL fails, for all that this test starts too. */
static void make_kill_fail(void) {
        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_kill, 0, 5),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIGKILL, 0, 3),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
                BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x80000000, 1, 0), /* a group's */
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
                prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
                unit_skip("no filter of system calls here: %s", strerror(errno));
}

static const char escape[] =
        "setsid sh -c 'echo $$ >escaped; exec sleep 600' & while ! test -s escaped; do sleep "
        "0.01; done";

START_TEST(what_cannot_be_killed_is_named_and_left) {
        struct program p;
        char line[128];

        make_kill_fail();
        run("-n 1", escape, &p);
        pid_t escaped = pid_in("escaped");
        ck_assert(!is_gone(escaped));
        ck_assert_int_eq(p.code, 0);
        snprintf(line, sizeof(line),
                "pid %d (sleep), which a replica has left behind, stays: Operation not permitted.\n",
                (int)escaped);
        expect_in(p.err, line);
        program_deinit(&p);
        killpg(escaped, SIGKILL);
}
END_TEST

START_TEST(a_signal_ends_the_sweep) {
        make_kill_fail();
        go_to_directory();
        pid_t pid = start("-n 1", escape);
        EVENTUALLY(exists("escaped"));
        sleep_ms(300);
        kill(pid, SIGTERM);
        ck_assert_int_eq(program_wait(pid, 2), 0);
        killpg(pid_in("escaped"), SIGKILL);
}
END_TEST

START_TEST(a_wrong_command_line_is_refused) {
        static const char *const wrong[] = { "", "-n 0", "-n 1025", "-n x", "-n 2 --grace -1",
                "-n 2 --prefix some", "-n 2 --private --socket x", "-n 2 --nonsense", "-n" };
        struct program p;

        for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
                run(wrong[i], "touch started", &p);
                ck_assert_msg(p.code == 64, "\"%s\" gives %d", wrong[i], p.code);
                expect_in(p.err, "usage: tuttictl run -n N");
                program_deinit(&p);
        }
        ck_assert(!exists("started"));
}
END_TEST

UNIT_MAIN("ctl-run", 60, replicas_know_who_they_are, a_private_tuttid_comes_and_goes,
        the_tuttid_that_is_there_is_used, a_socket_that_does_not_answer_is_an_error, one_failure_ends_all,
        a_killed_replica_is_named_with_its_signal, who_does_not_hear_TERM_is_killed,
        a_stopped_replica_ends_too, nothing_that_replicas_started_stays, signals_are_passed_on,
        an_interrupted_run_exits_by_its_signal, a_killed_launcher_leaves_nothing_that_runs_P20,
        a_living_launchers_directory_is_not_swept, a_tuttid_that_cannot_start_is_reported,
        a_program_that_is_not_there_is_said_once, prefixes_are_as_told, no_line_is_lost,
        a_full_disk_ends_no_training, a_late_and_slow_reader_gets_every_line,
        an_end_waits_for_nobody_who_reads, a_failure_ends_all_though_nobody_reads,
        what_cannot_be_killed_is_named_and_left, a_signal_ends_the_sweep, a_wrong_command_line_is_refused)
