/* What is told of groups that have ended, by a real tuttid (C8, L1). */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <tutti/admin.h>
#include "host.h"
#include "meeting.h"
#include "program.h"
#include "replica.h"
#include "unit.h"

#define MAX_WORDS 8

/* tuttictl with these words, and --socket. */
static void ask(struct host *h, const char *const *words, int code, struct program *p) {
        const char *argv[MAX_WORDS + 4] = { program_tuttictl() };
        int n = 1;

        while (*words)
                argv[n++] = *words++;
        argv[n++] = "--socket";
        argv[n] = host_socket(h);
        program_run(argv, 30, p);
        ck_assert_msg(p->code == code, "%s gives %d: %s%s", argv[1], p->code, p->out, p->err);
}

#define ASK(h, p, code, ...) ask((h), (const char *const[]){ __VA_ARGS__, NULL }, (code), (p))

static void expect_not_in(const char *text, const char *part) {
        ck_assert_msg(strstr(text, part) == NULL, "\"%s\" is in: %s", part, text);
}

/* As docs/schema says it. */
static void expect_schema(const char *schema, const char *json) {
        char line[512];

        snprintf(line, sizeof(line), "python3 %s/tests/support/check-schema.py %s/docs/schema/%s.json",
                TUTTI_SOURCE_ROOT, TUTTI_SOURCE_ROOT, schema);
        FILE *checker = popen(line, "we");
        ck_assert_ptr_nonnull(checker);
        fputs(json, checker);
        int status = pclose(checker);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                unit_skip("python3-jsonschema is not installed");
        ck_assert_msg(status == 0, "%s: %s", schema, json);
}

static void expect_80_columns(const char *text) {
        for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
                ck_assert_msg(strcspn(line, "\n") <= 80, "wider than 80 columns: %.120s", line);
}

/* --- a job that crashes, and is started again --- */

static void crash(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_work *w = NULL;
        struct floats f;

        floats_init(me->t, &f, 1024);
        floats_meet(g, "crash/1", &f, 1, 2);
        if (me->rank == 0)
                expect_status(tutti_barrier_start(g, "crash/2", NULL, &w), TUTTI_OK);
        replica_say(me, "ready");
        replica_hear(me, "go");
        expect_work(w, TUTTI_REPLICA_LOST);
        tutti_work_free(w);
        replica_say(me, "heard");
        replica_hear(me, "end");
}

static void work_on(struct replica *me) {
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));

        expect_status(tutti_barrier(g, "again/1"), TUTTI_OK);
        replica_say(me, "done");
        replica_hear(me, "end");
}

struct pids {
        int of[2];
};

static struct pids let_it_crash(struct host *h) {
        struct replica *r[2];

        replicas_spawn(h, 2, crash, NULL, r);
        replica_expect(r[0], "ready", 10);
        replica_expect(r[1], "ready", 10);
        struct pids pids = { { r[0]->pid, r[1]->pid } };
        replica_kill9(r[1]);
        replica_tell(r[0], "go");
        replica_expect(r[0], "heard", 10);
        replica_tell(r[0], "end");
        ck_assert_int_eq(replica_end(r[0], 10), 0);
        host_expect_sessions(h, 0);
        return pids;
}

static void start_again(struct host *h, struct replica *r[2]) {
        replicas_spawn(h, 2, work_on, NULL, r);
        replica_expect(r[0], "done", 10);
        replica_expect(r[1], "done", 10);
}

static void end_both(struct replica *r[2]) {
        for (int i = 0; i < 2; i++)
                replica_tell(r[i], "end");
        for (int i = 0; i < 2; i++)
                ck_assert_int_eq(replica_end(r[i], 10), 0);
}

static void expect_crash_in_dump(struct host *h, const struct pids *pids) {
        struct program p;
        char text[128];

        ASK(h, &p, 0, "dump", "--epoch", "1", "test/train");
        expect_in(p.out, "\"crash/1\"");
        expect_in(p.out, "\"crash/2\"");
        expect_in(p.out, "guilty R1");
        expect_not_in(p.out, "again/1");
        expect_in(p.out, "other records of this name: --epoch 2\n");
        snprintf(text, sizeof(text), "\n  R1     pid %d  died ", pids->of[1]);
        expect_in(p.out, text);
        expect_in(p.out, "  last \"crash/1\" ");
        expect_80_columns(p.out);
        program_deinit(&p);
        ASK(h, &p, 0, "dump", "--json", "--epoch", "1", "test/train");
        expect_schema("dump", p.out);
        expect_in(p.out, "\"first_epoch\": 1,\n  \"last_epoch\": 1,\n  \"ended\": true,");
        snprintf(text, sizeof(text), "\"rank\": 1,\n      \"pid\": %d,", pids->of[1]);
        expect_in(p.out, text);
        program_deinit(&p);
}

static void expect_crash_in_trace(struct host *h, const struct pids *pids) {
        struct program p;
        char text[128];

        ASK(h, &p, 0, "trace", "--epoch", "1", "test/train");
        expect_schema("trace", p.out);
        expect_in(p.out, "crash/1");
        expect_not_in(p.out, "again/1");
        snprintf(text, sizeof(text), "\"R1 (pid %d)\"", pids->of[1]);
        expect_in(p.out, text);
        program_deinit(&p);
        ASK(h, &p, 0, "trace", "--svg", "--epoch", "1", "test/train");
        expect_in(p.out, "crash/1");
        program_deinit(&p);
}

START_TEST(C8_the_record_of_a_crash_is_read_when_the_job_runs_again) {
        struct host *h = host_start(NULL);
        struct pids pids = let_it_crash(h);
        struct replica *r[2];
        struct program p;

        start_again(h, r);
        ASK(h, &p, 0, "groups");
        expect_in(p.out, "ended    test/train  epoch 1  ");
        expect_in(p.out, "         `tuttictl dump --epoch 1 test/train` reads its record\n");
        expect_80_columns(p.out);
        program_deinit(&p);
        ASK(h, &p, 0, "dump", "train");
        expect_in(p.out, "again/1");
        expect_not_in(p.out, "crash/1");
        expect_in(p.out, "other records of this name: --epoch 1\n");
        program_deinit(&p);
        expect_crash_in_dump(h, &pids);
        expect_crash_in_trace(h, &pids);
        ASK(h, &p, 0, "dump", "--epoch", "2", "train");
        expect_in(p.out, "again/1");
        program_deinit(&p);
        ASK(h, &p, 1, "dump", "--epoch", "3", "train");
        expect_in(p.err, "no record of epoch 3 of a group \"test/train\" of yours");
        program_deinit(&p);
        ASK(h, &p, 64, "dump", "--epoch", "0", "train");
        program_deinit(&p);
        end_both(r);
        /* Both have ended: the newer one is meant where none is named. */
        host_expect_sessions(h, 0);
        ASK(h, &p, 0, "dump", "train");
        expect_in(p.out, "again/1");
        program_deinit(&p);
        expect_crash_in_dump(h, &pids);
        host_stop(h);
}
END_TEST

static void join_and_wait(struct replica *me) {
        (void)replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        replica_say(me, "done");
        replica_hear(me, "end");
}

/* As long as the new one has done nothing, the record of the old one is the newest. */
START_TEST(L1_the_dump_names_the_replicas_that_its_record_is_of) {
        struct host *h = host_start(NULL);
        struct pids pids = let_it_crash(h);
        struct replica *r[2];
        struct program p;
        char text[128];

        replicas_spawn(h, 2, join_and_wait, NULL, r);
        replica_expect(r[0], "done", 10);
        replica_expect(r[1], "done", 10);
        ASK(h, &p, 0, "dump", "train");
        expect_in(p.out, "\"crash/2\"");
        snprintf(text, sizeof(text), "\n  R1     pid %d  died ", pids.of[1]);
        expect_in(p.out, text);
        program_deinit(&p);
        end_both(r);
        host_stop(h);
}
END_TEST

/* --- what an ended group has left --- */

START_TEST(L1_who_the_replicas_of_an_ended_group_were_is_told) {
        struct host *h = host_start(NULL);
        struct pids pids = let_it_crash(h);
        struct program p;
        char text[128];

        snprintf(text, sizeof(text), "\n  R1     pid %d  died ", pids.of[1]);
        ASK(h, &p, 0, "groups", "train");
        expect_in(p.out, text);
        expect_in(p.out, "  last \"crash/1\" ");
        expect_in(p.out, "  test-ctl-ended\n");
        expect_80_columns(p.out);
        program_deinit(&p);
        ASK(h, &p, 0, "dump", "train");
        expect_in(p.out, text);
        program_deinit(&p);
        snprintf(text, sizeof(text), "%d  died", pids.of[1]);
        ASK(h, &p, 0, "replicas", "train");
        expect_in(p.out, "test/train (epoch 1) has ended, ");
        expect_in(p.out, text);
        expect_in(p.out, "\"crash/1\"");
        program_deinit(&p);
        snprintf(text, sizeof(text), "\"pid\": %d,", pids.of[1]);
        for (int i = 0; i < 3; i++) {
                static const char *const commands[] = { "groups", "replicas", "dump" };
                ASK(h, &p, 0, commands[i], "--json", "train");
                expect_schema(commands[i], p.out);
                expect_in(p.out, text);
                expect_in(p.out, "\"lost\": \"died\",");
                program_deinit(&p);
        }
        host_stop(h);
}
END_TEST

START_TEST(an_ended_group_answers_with_what_is_known_or_says_so) {
        struct host *h = host_start(NULL);
        struct program p;

        (void)let_it_crash(h);
        ASK(h, &p, 0, "groups");
        expect_in(p.out, "  1 done\n         1 failed  8 KiB\n");
        program_deinit(&p);
        ASK(h, &p, 0, "groups", "--json");
        expect_in(p.out, "\"bytes\": 8192,");
        program_deinit(&p);
        ASK(h, &p, 1, "stats", "train");
        expect_in(p.out, "test/train (epoch 1) has ended, ");
        expect_in(p.out, " ago: 1 done, 1 failed, 8 KiB\n");
        expect_in(p.out, "\n  R1                    1 ");
        expect_in(p.out, "\n  `tuttictl dump --epoch 1 test/train`\n");
        expect_80_columns(p.out);
        program_deinit(&p);
        ASK(h, &p, 1, "stats", "--json", "train");
        expect_schema("stats", p.out);
        expect_in(p.out, "\"bytes\": 8192,");
        program_deinit(&p);
        /* Those that are there alone, where nobody asks for it by name. */
        ASK(h, &p, 0, "replicas");
        ck_assert_str_eq(p.out, "No replicas of yours.\n");
        program_deinit(&p);
        ASK(h, &p, 0, "stats");
        expect_not_in(p.out, "train");
        program_deinit(&p);
        host_stop(h);
}
END_TEST

/* A program that was made before ended groups had members finds none of them among those that are there. */
START_TEST(members_of_ended_groups_are_told_to_who_asks_for_them) {
        struct host *h = host_start(NULL);
        struct tutti *t;
        struct replica *r[2];

        (void)let_it_crash(h);
        start_again(h, r);
        expect_status(tutti_open(host_socket(h), &t), TUTTI_OK);
        for (int ended = 0; ended < 2; ended++) {
                struct tutti_answer *a;
                uint32_t n = 0;
                expect_status(tutti_admin_ask_about(t,
                                      &TUTTI_ADMIN_QUESTION(.what = TUTTI_ADMIN_GROUPS, .job = "test",
                                              .group = "train", .ended_members = ended),
                                      &a),
                        TUTTI_OK);
                for (uint32_t i = 0; i < a->n_rows; i++)
                        n += a->rows[i].type == TUTTI_ROW_MEMBER;
                ck_assert_uint_eq(n, ended ? 4 : 2);
                tutti_answer_free(a);
        }
        expect_status(tutti_admin_ask_about(t, NULL, NULL), TUTTI_INVALID);
        tutti_close(t);
        end_both(r);
        host_stop(h);
}
END_TEST

/* --- many groups --- */

/* Each of a job of its own. */
static void meet_in_groups(struct replica *me, int n, int brief_record) {
        struct tutti *t = replica_open(me);

        for (int i = 0; i < n; i++) {
                char job[32];
                struct tutti_group *g;
                snprintf(job, sizeof(job), "job-%d", i);
                expect_status(tutti_join(t,
                                      &TUTTI_JOIN(.job = job, .group = "loopback", .rank = (int32_t)me->rank,
                                              .world_size = (int32_t)me->n, .brief_record = brief_record),
                                      &g),
                        TUTTI_OK);
                expect_status(tutti_barrier(g, "x"), TUTTI_OK);
                tutti_group_free(g);
        }
}

#define N_ENDED 40 /* more than are told at once */

static void end_many(struct replica *me) {
        meet_in_groups(me, N_ENDED, 0);
}

static void expect_lives(const struct tutti_answer *a) {
        uint32_t n = 0;

        ck_assert_uint_eq(a->n_rows, 3 * N_ENDED);
        for (const struct tutti_row *row = a->rows; n < N_ENDED; n++, row += 3) {
                char job[32];
                snprintf(job, sizeof(job), "job-%u", n);
                ck_assert_int_eq(row[0].type, TUTTI_ROW_GROUP);
                ck_assert_str_eq(row[0].group.job, job);
                for (uint32_t rank = 0; rank < 2; rank++) {
                        const struct tutti_row_member *m = &row[1 + rank].member;
                        ck_assert_int_eq(row[1 + rank].type, TUTTI_ROW_MEMBER);
                        ck_assert_str_eq(m->job, job);
                        ck_assert_uint_eq(m->rank, rank);
                        ck_assert_uint_eq(m->ended_epoch, 1);
                        ck_assert_str_eq(m->last_key, "x");
                }
        }
}

/* An answer that takes several turns leaves nothing out and tells nothing twice. */
START_TEST(L1_members_of_many_groups_are_told_each_once) {
        struct host *h = host_start(NULL);
        struct tutti_answer *a;
        struct tutti *t;

        run_replicas(h, 2, end_many, NULL);
        host_expect_sessions(h, 0);
        expect_status(tutti_open(host_socket(h), &t), TUTTI_OK);
        expect_status(tutti_admin_ask_about(
                              t, &TUTTI_ADMIN_QUESTION(.what = TUTTI_ADMIN_GROUPS, .ended_members = 1), &a),
                TUTTI_OK);
        expect_lives(a);
        tutti_answer_free(a);
        tutti_close(t);
        host_stop(h);
}
END_TEST

/* --- diag --- */

#define N_DIAGS 70 /* more than ended groups of a user are kept */

static void be_diag(struct replica *me) {
        meet_in_groups(me, N_DIAGS, 1);
}

/* Of the trainers' nothing is touched: their flight records stay. */
START_TEST(diag_pushes_no_record_of_a_trainer_out) {
        struct host *h = host_start(NULL);
        struct program p;

        (void)let_it_crash(h);
        run_replicas(h, 2, be_diag, NULL);
        host_expect_sessions(h, 0);
        ASK(h, &p, 0, "dump", "train");
        expect_in(p.out, "\"crash/1\"");
        program_deinit(&p);
        ASK(h, &p, 0, "diag", "--level", "2");
        program_deinit(&p);
        host_expect_sessions(h, 0);
        ASK(h, &p, 0, "groups");
        expect_not_in(p.out, "diag");
        expect_in(p.out, "ended    test/train  ");
        program_deinit(&p);
        host_stop(h);
}
END_TEST

UNIT_MAIN("ctl-ended", 60, C8_the_record_of_a_crash_is_read_when_the_job_runs_again,
        L1_the_dump_names_the_replicas_that_its_record_is_of,
        L1_who_the_replicas_of_an_ended_group_were_is_told,
        an_ended_group_answers_with_what_is_known_or_says_so,
        members_of_ended_groups_are_told_to_who_asks_for_them, L1_members_of_many_groups_are_told_each_once,
        diag_pushes_no_record_of_a_trainer_out)
