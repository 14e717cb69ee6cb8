/* What tuttictl does to a real tuttid: drain, kick, log-level; and what those concerned hear of it. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tutti/admin.h>
#include "host.h"
#include "meeting.h"
#include "program.h"
#include "replica.h"
#include "unit.h"

#define OTHER_UID 12345

/* tuttictl with up to seven words after the socket. */
static void ctl(struct host *h, struct program *p, const char *command, const char *const *words) {
        const char *argv[12] = { program_tuttictl(), command, "--socket", host_socket(h) };

        for (int i = 0; words[i] && i < 7; i++)
                argv[4 + i] = words[i];
        program_run(argv, 20, p);
}

#define CTL(h, p, ...)                                                                                       \
        ctl((h), (p), (const char *[]){ __VA_ARGS__, NULL }[0], (const char *[]){ __VA_ARGS__, NULL } + 1)

static void expect_schema(const struct program *p, const char *command) {
        char line[512];
        snprintf(line, sizeof(line), "python3 %s/tests/support/check-schema.py %s/docs/schema/%s.json",
                TUTTI_SOURCE_ROOT, TUTTI_SOURCE_ROOT, command);
        FILE *checker = popen(line, "we");
        ck_assert_ptr_nonnull(checker);
        fputs(p->out, checker);
        int status = pclose(checker);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                printf("# python3-jsonschema is not installed: the schema is not checked\n");
        else
                ck_assert_msg(status == 0, "%s --json: %s", command, p->out);
}

static void expect_ctl(struct host *h, int code, const char *part, const char *command, const char *word) {
        struct program p;
        CTL(h, &p, command, word);
        ck_assert_msg(p.code == code, "%s %s: %d: %s%s", command, word ? word : "", p.code, p.out, p.err);
        expect_in(p.code == 0 || *p.out ? p.out : p.err, part);
        if (word && strcmp(word, "--json") == 0)
                expect_schema(&p, command);
        program_deinit(&p);
}

/* --- drain --- */

static void work_until_told(struct replica *me) {
        struct floats f;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        floats_init(me->t, &f, 16);
        floats_meet(g, NULL, &f, 1, 2);
        replica_say(me, "works");
        replica_hear(me, "again");
        floats_meet(g, NULL, &f, 2, 4);
        replica_say(me, "done");
        replica_hear(me, "end");
        floats_deinit(&f);
        tutti_group_free(g);
}

/* Joins a group of two in which nobody else will be. */
static void wait_in_vain(struct replica *me) {
        replica_open(me);
        replica_say(me, "joins");
        expect_status(try_join(me->t, &TUTTI_JOIN(.job = "test", .group = "lonely", .world_size = 2,
                                              .rank = 0, .join_timeout = 60)),
                TUTTI_DRAINING);
        expect_in(tutti_error(), "drained and takes no new groups");
        replica_say(me, "told");
        replica_hear(me, "once more");
        expect_status(
                try_join(me->t, &TUTTI_JOIN(.job = "test", .group = "alone", .world_size = 1, .rank = 0)),
                TUTTI_DRAINING);
        expect_in(tutti_error(), "tuttictl drain --undo");
        replica_say(me, "told");
        replica_hear(me, "undone");
        struct tutti_group *g =
                replica_join_group(me, &TUTTI_JOIN(.group = "alone", .world_size = 1, .rank = 0));
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        tutti_group_free(g);
        replica_say(me, "served");
        replica_hear(me, "end");
}

static void expect_groups(struct host *h, uint32_t n) {
        struct host_counters counters;
        for (int i = 0; i < 200; i++) {
                host_counters(h, &counters);
                if (counters.n_groups == n)
                        return;
                usleep(20000);
        }
        ck_abort_msg("%u groups, not %u", counters.n_groups, n);
}

START_TEST(drained_no_new_groups_come_and_the_others_go_on) {
        struct host *h = host_start(NULL);
        struct replica *old[2];
        struct program p;

        replicas_spawn(h, 2, work_until_told, NULL, old);
        replicas_expect(old, 2, "works", 10);
        struct replica *fresh = replica_spawn(h, &(struct replica_options){ .n = 1, .body = wait_in_vain });
        replica_expect(fresh, "joins", 10);
        expect_groups(h, 2);
        expect_ctl(h, 0, "new groups are taken", "ready", NULL);

        expect_ctl(h, 0, "no new groups, by uid ", "drain", NULL);
        replica_expect(fresh, "told", 10);
        replica_tell(fresh, "once more");
        replica_expect(fresh, "told", 10);
        expect_ctl(h, 0, "DRAINING no new groups, by uid ", "status", NULL);
        expect_ctl(h, 1, "warning  tuttid is draining: no new groups, by uid ", "health", NULL);
        expect_ctl(h, 1, "no new groups, by uid ", "ready", NULL);
        expect_ctl(h, 1, "\"ready\": false", "ready", "--json");
        expect_ctl(h, 0, "\"groups_left\": 1", "drain", "--json");
        replicas_tell(old, 2, "again");
        replicas_expect(old, 2, "done", 10);

        expect_ctl(h, 0, "new groups are taken", "drain", "--undo");
        replica_tell(fresh, "undone");
        replica_expect(fresh, "served", 10);
        expect_ctl(h, 0, "\"ready\": true", "ready", "--json");
        CTL(h, &p, "drain", "--undo", "--wait");
        ck_assert_int_eq(p.code, 64);
        program_deinit(&p);
        replica_tell(fresh, "end");
        ck_assert_int_eq(replica_end(fresh, 10), 0);
        replicas_tell(old, 2, "end");
        replicas_end(h, old, 2);
}
END_TEST

START_TEST(draining_waits_for_the_last_group) {
        struct host *h = host_start(NULL);
        struct replica *old[2];
        const char *argv[] = { program_tuttictl(), "drain", "--wait", "--socket", host_socket(h), NULL };

        replicas_spawn(h, 2, work_until_told, NULL, old);
        replicas_expect(old, 2, "works", 10);
        pid_t waits = program_spawn(argv, STDOUT_FILENO, STDERR_FILENO);
        usleep(600000);
        ck_assert_int_eq(waitpid(waits, NULL, WNOHANG), 0);
        replicas_tell(old, 2, "again");
        replicas_expect(old, 2, "done", 10);
        replicas_tell(old, 2, "end");
        ck_assert_int_eq(program_wait(waits, 10), 0);
        ck_assert_int_eq(replica_end(old[0], 10), 0);
        ck_assert_int_eq(replica_end(old[1], 10), 0);
        host_stop(h);
}
END_TEST

/* --- kick --- */

static void wait_for_rank_1(struct replica *me) {
        struct tutti_group *g = replica_join_group(
                me, &TUTTI_JOIN(.group = "train", .on_death = TUTTI_FAIL, .default_timeout = 30));
        replica_say(me, "here");
        if (me->rank == 0) {
                const struct tutti_error_info *e = expect_error(tutti_barrier(g, "step"));
                ck_assert_int_eq(e->status, TUTTI_REPLICA_LOST);
                expect_in(e->text, "R1");
                expect_in(e->text, "ejected");
                expect_in(e->text, "kicked by uid ");
                expect_in(e->text, "it hangs");
                replica_say(me, "told");
        } else {
                replica_hear(me, "try");
                enum tutti_status status = tutti_barrier(g, "step");
                ck_assert_msg(
                        status == TUTTI_REPLICA_LOST || status == TUTTI_DAEMON_LOST, "%s", tutti_error());
                expect_in(tutti_error(), "kicked by uid ");
                expect_in(tutti_error(), "it hangs");
                replica_say(me, "told");
        }
        replica_hear(me, "end");
        tutti_group_free(g);
}

START_TEST(who_is_kicked_is_ejected_and_all_hear_by_whom_P16) {
        struct host *h = host_start(NULL);
        struct replica *r[2];
        struct program p;
        char who[64];

        replicas_spawn(h, 2, wait_for_rank_1, NULL, r);
        replicas_expect(r, 2, "here", 10);
        CTL(h, &p, "kick", "--reason", "it hangs", "train", "7");
        ck_assert_int_eq(p.code, 1);
        expect_in(p.err, "NOT_FOUND");
        expect_in(p.err, "nobody is R7");
        program_deinit(&p);
        CTL(h, &p, "kick", "train", "one");
        ck_assert_int_eq(p.code, 64);
        program_deinit(&p);
        CTL(h, &p, "kick", "train");
        ck_assert_int_eq(p.code, 64);
        expect_in(p.err, "which rank?\nusage:");
        program_deinit(&p);

        snprintf(who, sizeof(who), "R1 (pid %d) of test/train is kicked", r[1]->pid);
        CTL(h, &p, "kick", "--reason", "it hangs", "test/train", "R1");
        ck_assert_msg(p.code == 0, "%s", p.err);
        expect_in(p.out, who);
        program_deinit(&p);
        replica_expect(r[0], "told", 10);
        replica_tell(r[1], "try");
        replica_expect(r[1], "told", 10);
        expect_ctl(h, 0, "kicked by uid ", "groups", NULL);
        expect_in(host_log(h), "is ejected: REPLICA_LOST: kicked by uid ");

        CTL(h, &p, "kick", "test/train", "1");
        ck_assert_int_eq(p.code, 1);
        program_deinit(&p);
        CTL(h, &p, "kick", "--json", "test/train", "0");
        ck_assert_int_eq(p.code, 0);
        expect_schema(&p, "kick");
        program_deinit(&p);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

/* --- who may --- */

/* tuttictl as another user; its exit code, and its words in *ret. */
static int ctl_as_other(struct host *h, char **ret, const char *const *words) {
        FILE *out = tmpfile();
        const char *argv[10] = { program_tuttictl(), words[0], "--socket", host_socket(h) };
        int status;

        for (int i = 1; words[i]; i++)
                argv[3 + i] = words[i];
        pid_t pid = fork();
        if (pid == 0) {
                if (setresuid(OTHER_UID, OTHER_UID, OTHER_UID) < 0 || dup2(fileno(out), STDOUT_FILENO) < 0 ||
                        dup2(fileno(out), STDERR_FILENO) < 0)
                        _exit(99);
                execv(argv[0], (char *const *)argv);
                _exit(98);
        }
        ck_assert_int_gt(pid, 0);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        *ret = program_read_all(fileno(out));
        fclose(out);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define AS_OTHER(h, ret, ...) ctl_as_other((h), (ret), (const char *[]){ __VA_ARGS__, NULL })

static struct host *open_host(void) {
        if (geteuid() != 0)
                unit_skip("a second user takes root");
        ck_assert_int_eq(chmod(unit_directory(), 0755), 0); /* the way to the socket */
        return host_start(NULL);
}

static void stay(struct replica *me) {
        struct tutti_group *g =
                replica_join_group(me, &TUTTI_JOIN(.group = "train", .world_size = 1, .rank = 0));
        replica_say(me, "here");
        replica_hear(me, "end");
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        tutti_group_free(g);
}

/* A group of another user's and one that is not there are told apart by nothing. */
START_TEST(another_user_drains_nothing_and_kicks_nobody_P19) {
        char *words, *missing;

        struct host *h = open_host();
        struct replica *r = replica_spawn(h, &(struct replica_options){ .n = 1, .body = stay });
        replica_expect(r, "here", 10);
        ck_assert_int_eq(AS_OTHER(h, &words, "drain"), 77);
        expect_in(words, "PERMISSION");
        free(words);
        ck_assert_int_eq(AS_OTHER(h, &words, "drain", "--undo"), 77);
        expect_in(words, "PERMISSION");
        free(words);
        ck_assert_int_eq(AS_OTHER(h, &words, "log-level", "debug"), 77);
        expect_in(words, "PERMISSION");
        free(words);
        ck_assert_int_eq(AS_OTHER(h, &words, "log-level"), 0);
        ck_assert_str_eq(words, "notice\n");
        free(words);
        ck_assert_int_eq(AS_OTHER(h, &words, "kick", "test/train", "0"), 1);
        ck_assert_int_eq(AS_OTHER(h, &missing, "kick", "test/trail", "0"), 1);
        words[strcspn(words, "\n")] = missing[strcspn(missing, "\n")] = '\0';
        char *name = strstr(words, "train");
        ck_assert_ptr_nonnull(name);
        memcpy(name, "trail", 5);
        ck_assert_str_eq(words, missing);
        free(words);
        free(missing);
        ck_assert_int_eq(AS_OTHER(h, &words, "kick", "--user", "0", "test/train", "0"), 77);
        expect_in(words, "PERMISSION");
        free(words);
        replica_tell(r, "end");
        ck_assert_int_eq(replica_end(r, 10), 0);
        host_stop(h);
}
END_TEST

/* The door itself, without tuttictl before it that asks for the groups first. */
static void knock_as_other(struct replica *me) {
        ck_assert_int_eq(setresuid(OTHER_UID, OTHER_UID, OTHER_UID), 0);
        char theirs[512];
        struct tutti *t = replica_open(me);
        expect_status(tutti_admin_kick(t, "test", "train", 0, NULL), TUTTI_NOT_FOUND);
        snprintf(theirs, sizeof(theirs), "%s", tutti_error());
        memcpy(strstr(theirs, "train"), "trail", 5);
        expect_status(tutti_admin_kick(t, "test", "trail", 0, NULL), TUTTI_NOT_FOUND);
        ck_assert_str_eq(tutti_error(), theirs);
        expect_status(tutti_admin_set_user(t, 0), TUTTI_OK);
        expect_status(tutti_admin_kick(t, "test", "train", 0, NULL), TUTTI_PERMISSION);
}

START_TEST(the_door_says_the_same_of_their_group_and_of_none_P19) {
        struct host *h = open_host();
        struct replica *r = replica_spawn(h, &(struct replica_options){ .n = 1, .body = stay });
        replica_expect(r, "here", 10);
        run_replicas(h, 1, knock_as_other, NULL);
        replica_tell(r, "end");
        ck_assert_int_eq(replica_end(r, 10), 0);
        host_stop(h);
}
END_TEST

/* A group of the other user; R0 waits for R1. */
static void wait_as_other(struct replica *me) {
        ck_assert_int_eq(setresuid(OTHER_UID, OTHER_UID, OTHER_UID), 0);
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "theirs"));
        replica_say(me, "here");
        if (me->rank == 0) {
                const struct tutti_error_info *e = expect_error(tutti_barrier(g, "step"));
                ck_assert_int_eq(e->status, TUTTI_REPLICA_LOST);
                expect_in(e->text, "kicked by uid 0 (an admin): it hangs");
                replica_say(me, "told");
        }
        replica_hear(me, "end");
        tutti_group_free(g);
}

/* Not unless the user is named: an admin's own groups are meant otherwise. The kicked hear no pid of his. */
START_TEST(an_admin_kicks_within_a_users_groups_O6) {
        struct host *h = open_host();
        struct replica *r[2];
        struct program p;

        replicas_spawn(h, 2, wait_as_other, NULL, r);
        replicas_expect(r, 2, "here", 10);
        CTL(h, &p, "kick", "theirs", "1");
        ck_assert_int_eq(p.code, 1);
        expect_in(p.err, "NOT_FOUND");
        program_deinit(&p);
        CTL(h, &p, "kick", "--user", "12345", "--reason", "it hangs", "theirs", "1");
        ck_assert_msg(p.code == 0, "%s", p.err);
        program_deinit(&p);
        replica_expect(r[0], "told", 10);
        replicas_tell(r, 2, "end");
        ck_assert_int_eq(replica_end(r[0], 10), 0);
        ck_assert_int_eq(replica_end(r[1], 10), 0);
        host_stop(h);
}
END_TEST

/* --- log-level --- */

static void stay_briefly(struct replica *me) {
        tutti_group_free(replica_join_group(me, &TUTTI_JOIN(.group = "brief", .world_size = 1, .rank = 0)));
}

START_TEST(the_level_of_the_log_changes_at_once) {
        struct host *h = host_start(NULL);
        struct program p;

        expect_ctl(h, 0, "notice\n", "log-level", NULL);
        expect_ctl(h, 0, "info\n", "log-level", "info");
        expect_in(host_log(h), "changes the level of this log from notice to info");
        expect_ctl(h, 0, "error\n", "log-level", "error");
        expect_in(host_log(h), "changes the level of this log from info to error");
        run_replicas(h, 1, stay_briefly, NULL);
        ck_assert_ptr_null(strstr(host_log(h), "1 replicas of uid"));
        expect_ctl(h, 0, "info\n", "log-level", "info");
        expect_in(host_log(h), "changes the level of this log from error to info");
        run_replicas(h, 1, stay_briefly, NULL);
        expect_in(host_log(h), "1 replicas of uid");
        expect_ctl(h, 0, "\"log_level\": \"info\"", "log-level", "--json");
        CTL(h, &p, "log-level", "loud");
        ck_assert_int_eq(p.code, 64);
        program_deinit(&p);
        host_stop(h);
}
END_TEST

UNIT_MAIN("ctl-control", 60, drained_no_new_groups_come_and_the_others_go_on,
        draining_waits_for_the_last_group, who_is_kicked_is_ejected_and_all_hear_by_whom_P16,
        another_user_drains_nothing_and_kicks_nobody_P19, an_admin_kicks_within_a_users_groups_O6,
        the_door_says_the_same_of_their_group_and_of_none_P19, the_level_of_the_log_changes_at_once)
