/* What tuttictl says of a real tuttid, and the exit codes that scripts look at. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "host.h"
#include "program.h"
#include "replica.h"
#include "unit.h"

static void ask(
        struct host *h, const char *command, const char *option, const char *operand, struct program *p) {
        const char *argv[] = { program_tuttictl(), command, "--socket", host_socket(h), NULL, NULL, NULL };
        int n = 4;

        if (option)
                argv[n++] = option;
        if (operand)
                argv[n] = operand;
        program_run(argv, 10, p);
}

static void expect_in(const char *text, const char *part) {
        ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in: %s", part, text);
}

/* The answer with --json is what docs/schema says. */
static void check_json(struct host *h, const char *command, const char *operand, int code) {
        char line[512];
        struct program p;

        ask(h, command, "--json", operand, &p);
        ck_assert_int_eq(p.code, code);
        ck_assert_str_eq(p.err, "");
        snprintf(line, sizeof(line), "python3 %s/tests/support/check-schema.py %s/docs/schema/%s.json",
                TUTTI_SOURCE_ROOT, TUTTI_SOURCE_ROOT, command);
        FILE *checker = popen(line, "we");
        ck_assert_ptr_nonnull(checker);
        fputs(p.out, checker);
        int status = pclose(checker);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                unit_skip("python3-jsonschema is not installed");
        ck_assert_msg(status == 0, "tuttictl %s --json: %s", command, p.out);
        program_deinit(&p);
}

static void check_all_json(struct host *h, int status, int health) {
        check_json(h, "status", NULL, status);
        check_json(h, "health", NULL, health);
        check_json(h, "groups", NULL, 0);
        check_json(h, "stats", NULL, 0);
        check_json(h, "quota", NULL, 0);
        check_json(h, "dump", "train", 0);
}

/* Rank 1 comes to "a" and not to "b". */
static void meet_once(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));

        ck_assert_int_eq(tutti_barrier(g, "a"), TUTTI_OK);
        if (me->rank == 0) {
                struct tutti_work *w;
                ck_assert_int_eq(tutti_barrier_start(g, "b", NULL, &w), TUTTI_OK);
                replica_say(me, "waits");
                replica_hear(me, "abort");
                ck_assert_int_eq(tutti_abort(g, "b", "enough"), TUTTI_OK);
                ck_assert_int_eq(tutti_work_wait(w, -1), TUTTI_ABORTED);
                tutti_work_free(w);
                replica_say(me, "aborted");
        } else {
                replica_say(me, "stays away");
        }
        replica_hear(me, "end");
        tutti_group_free(g);
}

START_TEST(who_is_missing_is_seen_L2_L3) {
        struct host *h = host_start((const char *[]){ "--set", "time.stall-warn=50ms", NULL });
        struct replica *r[2];
        struct program p;
        char missing[64];

        replicas_spawn(h, 2, meet_once, NULL, r);
        replica_expect(r[0], "waits", 10);
        replica_expect(r[1], "stays away", 10);
        usleep(200000);
        ask(h, "status", NULL, NULL, &p);
        ck_assert_int_eq(p.code, 1);
        expect_in(p.out, "\nSTALLED  test/train  barrier \"b\"  waiting ");
        snprintf(missing, sizeof(missing), "\n  MISSING R1 (pid %d, alive; last finished \"a\" ", r[1]->pid);
        expect_in(p.out, missing);
        program_deinit(&p);

        replica_signal(r[1], SIGSTOP);
        ask(h, "health", NULL, NULL, &p);
        ck_assert_int_eq(p.code, 1);
        expect_in(p.out, "stalled  test/train: barrier \"b\" has waited ");
        expect_in(p.out, "warning  test/train: R1 (pid ");
        expect_in(p.out, ") is stopped;");
        program_deinit(&p);
        replica_signal(r[1], SIGCONT);
        check_all_json(h, 1, 1);

        replica_tell(r[0], "abort");
        replica_expect(r[0], "aborted", 10);
        ask(h, "status", NULL, NULL, &p);
        ck_assert_int_eq(p.code, 0);
        expect_in(p.out, "\nok       test/train  ");
        program_deinit(&p);
        ask(h, "health", NULL, NULL, &p);
        ck_assert_int_eq(p.code, 0);
        expect_in(p.out, "well     tuttid ");
        program_deinit(&p);
        check_all_json(h, 0, 0);
        replica_tell(r[0], "end");
        replica_tell(r[1], "end");
        ck_assert_int_eq(replica_end(r[0], 10), 0);
        ck_assert_int_eq(replica_end(r[1], 10), 0);
        host_stop(h);
}
END_TEST

static void reduce_and_go(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_buffer *b;

        ck_assert_int_eq(tutti_buffer_alloc(me->t, 4096, &b), TUTTI_OK);
        struct tutti_value v = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { 1024 });
        if (me->rank == 1)
                usleep(20000);
        ck_assert_int_eq(tutti_all_reduce(g, "grad/1", TUTTI_MEAN, &v, &v), TUTTI_OK);
        replica_say(me, "done");
        replica_hear(me, "end");
        tutti_group_free(g);
        tutti_buffer_free(b);
}

START_TEST(groups_stats_and_dump_tell_what_happened_L1) {
        struct host *h = host_start(NULL);
        struct replica *r[2];
        struct program p;
        char text[128];

        replicas_spawn(h, 2, reduce_and_go, NULL, r);
        replica_expect(r[0], "done", 10);
        replica_expect(r[1], "done", 10);
        ask(h, "groups", NULL, "test/train", &p);
        ck_assert_int_eq(p.code, 0);
        expect_in(p.out, "ok       test/train  epoch ");
        snprintf(text, sizeof(text), "\n  R1     pid %d  alive  last \"grad/1\" ", r[1]->pid);
        expect_in(p.out, text);
        expect_in(p.out, " in 1 buffer");
        program_deinit(&p);
        ask(h, "stats", NULL, NULL, &p);
        ck_assert_int_eq(p.code, 0);
        expect_in(p.out, "\n  reduce                1       0     8 KiB");
        expect_in(p.out, "\n  R0                    1       0       0 %");
        expect_in(p.out, "\n  R1                    1       1     100 %");
        program_deinit(&p);
        ask(h, "dump", NULL, "train", &p);
        ck_assert_int_eq(p.code, 0);
        expect_in(p.out, "  \"grad/1\"      reduce MEAN        f32 4 KiB        OK\n");
        expect_in(p.out, "  last R1:  R0 +0 ns  R1 +");
        program_deinit(&p);
        check_all_json(h, 0, 0);

        replica_tell(r[0], "end");
        replica_tell(r[1], "end");
        ck_assert_int_eq(replica_end(r[0], 10), 0);
        ck_assert_int_eq(replica_end(r[1], 10), 0);
        /* The group is over, its record stays. */
        ask(h, "groups", NULL, NULL, &p);
        expect_in(p.out, "ended    test/train  ");
        program_deinit(&p);
        ask(h, "dump", NULL, "test/train", &p);
        ck_assert_int_eq(p.code, 0);
        expect_in(p.out, "\"grad/1\"");
        program_deinit(&p);
        host_stop(h);
}
END_TEST

START_TEST(quota_tells_how_much_of_each_limit_is_used_P18) {
        struct host *h = host_start(
                (const char *[]){ "--set", "quota.groups=1", "--set", "quota.mapped-bytes=1GiB", NULL });
        struct replica *r[2];
        struct program p;

        replicas_spawn(h, 2, reduce_and_go, NULL, r);
        replica_expect(r[0], "done", 10);
        replica_expect(r[1], "done", 10);
        ask(h, "quota", NULL, NULL, &p);
        ck_assert_int_eq(p.code, 0);
        expect_in(p.out, "\n  groups                      1            1   100 %  at the limit\n");
        expect_in(p.out, "\n  connections                 3          256     1 %\n");
        expect_in(p.out, "\n  mapped-bytes ");
        expect_in(p.out, "iB        1 GiB ");
        program_deinit(&p);
        replica_tell(r[0], "end");
        replica_tell(r[1], "end");
        ck_assert_int_eq(replica_end(r[0], 10), 0);
        ck_assert_int_eq(replica_end(r[1], 10), 0);
        ask(h, "quota", NULL, NULL, &p);
        expect_in(p.out, "\n  groups                      0            1     0 %\n");
        program_deinit(&p);
        check_json(h, "quota", NULL, 0);
        host_stop(h);
}
END_TEST

/* --- a group that goes on without one --- */

static void shrink(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "s", .on_death = TUTTI_SHRINK));

        ck_assert_int_eq(tutti_barrier(g, "a"), TUTTI_OK);
        replica_say(me, "met");
        replica_hear(me, "go");
        ck_assert_int_eq(tutti_barrier(g, "b"), TUTTI_OK);
        replica_say(me, "done");
        replica_hear(me, "end");
}

static void expect_named(struct host *h, const char *command, const char *begin, int pid) {
        struct program p;
        char text[128];

        ask(h, command, NULL, NULL, &p);
        ck_assert_int_eq(p.code, 0);
        snprintf(text, sizeof(text), "\n%s lost: R2 (pid %d, died ", begin, pid);
        expect_in(p.out, text);
        program_deinit(&p);
}

START_TEST(P5_a_replica_that_its_group_does_without_is_seen) {
        struct host *h = host_start(NULL);
        struct replica *r[3];
        struct program p;

        replicas_spawn(h, 3, shrink, NULL, r);
        for (int i = 0; i < 3; i++)
                replica_expect(r[i], "met", 10);
        int pid = r[2]->pid;
        replica_kill9(r[2]);
        for (int i = 0; i < 2; i++)
                replica_tell(r[i], "go");
        for (int i = 0; i < 2; i++)
                replica_expect(r[i], "done", 10);
        expect_named(h, "status", "ok       test/s  2 of 3 ", pid);
        ask(h, "status", NULL, NULL, &p);
        for (const char *line = p.out; *line; line += strcspn(line, "\n") + 1)
                ck_assert_msg(strcspn(line, "\n") <= 80, "wider than 80 columns: %.120s", line);
        program_deinit(&p);
        expect_named(h, "health", "note     test/s goes on with 2 of 3;", pid);
        check_json(h, "health", NULL, 0);
        ask(h, "health", "--json", NULL, &p);
        expect_in(p.out, "\"health\": \"well\"");
        expect_in(p.out, " goes on with 2 of 3; lost: R2 ");
        program_deinit(&p);
        for (int i = 0; i < 2; i++)
                replica_tell(r[i], "end");
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        host_stop(h);
}
END_TEST

START_TEST(a_group_that_is_not_there_is_said) {
        struct host *h = host_start(NULL);
        struct program p;

        ask(h, "dump", NULL, "no/such", &p);
        ck_assert_int_eq(p.code, 1);
        ck_assert_str_eq(p.out, "");
        expect_in(p.err, "NOT_FOUND: no group no/such of yours here.");
        program_deinit(&p);
        check_json(h, "dump", "no/such", 1);
        host_stop(h);
}
END_TEST

START_TEST(who_cannot_be_reached_is_exit_code_3) {
        static const char *const commands[] = { "status", "groups", "health", "stats", "quota", "top",
                "replicas", "buffers", "drain", "ready", "log-level" };
        struct host *h = host_start(NULL);
        struct program p;

        host_kill9(h);
        for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
                ask(h, commands[i], NULL, NULL, &p);
                ck_assert_int_eq(p.code, 3);
                ck_assert_str_eq(p.out, "");
                expect_in(p.err, host_socket(h));
                program_deinit(&p);
                check_json(h, commands[i], NULL, 3);
        }
        host_stop(h);
}
END_TEST

/* It asks nobody. */
START_TEST(the_version_is_told_as_json_too) {
        struct program p;
        char line[1024];

        snprintf(line, sizeof(line),
                "%s version --json | python3 %s/tests/support/check-schema.py %s/docs/schema/version.json",
                program_tuttictl(), TUTTI_SOURCE_ROOT, TUTTI_SOURCE_ROOT);
        program_run((const char *[]){ "/bin/sh", "-c", line, NULL }, 10, &p);
        if (p.code == 77)
                unit_skip("python3-jsonschema is not installed");
        ck_assert_msg(p.code == 0, "%s%s", p.out, p.err);
        program_deinit(&p);
}
END_TEST

START_TEST(a_wrong_command_line_is_exit_code_64) {
        static const char *const wrong[][3] = { { NULL }, { "nonsense" }, { "status", "x" }, { "dump" },
                { "dump", "a", "b" }, { "quota", "x" }, { "stats", "--nonsense" }, { "groups", "--socket" },
                { "help", "nonsense" }, { "version", "x" }, { "doctor", "--user", "1" } };
        struct program p;

        for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
                const char *argv[] = { program_tuttictl(), wrong[i][0], wrong[i][1], wrong[i][2], NULL };
                program_run(argv, 10, &p);
                ck_assert_msg(p.code == 64, "case %zu gives %d", i, p.code);
                ck_assert_str_eq(p.out, "");
                expect_in(p.err, "usage: tuttictl");
                program_deinit(&p);
        }
}
END_TEST

START_TEST(each_command_has_help) {
        static const char *const commands[] = { "run", "status", "groups", "health", "stats", "quota", "dump",
                "trace", "doctor", "diag", "drain", "kick", "log-level", "ready", "top", "replicas",
                "buffers", "completion", "version", "help" };
        struct program help, option;

        for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
                program_run((const char *[]){ program_tuttictl(), "help", commands[i], NULL }, 10, &help);
                program_run((const char *[]){ program_tuttictl(), commands[i], "--help", NULL }, 10, &option);
                ck_assert_int_eq(help.code, 0);
                ck_assert_int_eq(option.code, 0);
                ck_assert_str_eq(help.out, option.out);
                expect_in(help.out, commands[i]);
                program_deinit(&help);
                program_deinit(&option);
        }
        program_run((const char *[]){ program_tuttictl(), "--help", NULL }, 10, &help);
        ck_assert_int_eq(help.code, 0);
        for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
                expect_in(help.out, commands[i]);
        program_deinit(&help);
}
END_TEST

START_TEST(an_answer_that_cannot_be_written_is_an_error) {
        struct host *h = host_start(NULL);
        struct program p;
        char line[512];

        snprintf(line, sizeof(line), "%s status --socket %s >/dev/full", program_tuttictl(), host_socket(h));
        program_run((const char *[]){ "/bin/sh", "-c", line, NULL }, 10, &p);
        ck_assert_int_eq(p.code, 74);
        expect_in(p.err, "tuttictl: cannot write the answer: No space left on device");
        program_deinit(&p);
        host_stop(h);
}
END_TEST

UNIT_MAIN("ctl-queries", 60, who_is_missing_is_seen_L2_L3, groups_stats_and_dump_tell_what_happened_L1,
        quota_tells_how_much_of_each_limit_is_used_P18, P5_a_replica_that_its_group_does_without_is_seen,
        a_group_that_is_not_there_is_said, who_cannot_be_reached_is_exit_code_3,
        the_version_is_told_as_json_too, a_wrong_command_line_is_exit_code_64, each_command_has_help,
        an_answer_that_cannot_be_written_is_an_error)
