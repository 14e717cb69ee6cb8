/* What collectives asked for and did not get is a line for who looks, whichever way they were run (P15), and
 * for nobody else (P19). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tutti/admin.h>
#include <tutti/prepare.h>
#include <unistd.h>
#include "meeting.h"
#include "program.h"
#include "unit.h"

#define NO_LIBRARY "NCCL was asked for, but host devices have no library"
#define OTHER_UID  12345

static void reduce(struct tutti_group *g, const char *key, struct floats *f, const struct tutti_options *o) {
        struct tutti_work *w;
        expect_status(tutti_all_reduce_start(g, key, TUTTI_SUM, &f->value, &f->value, o, &w), TUTTI_OK);
        expect_work(w, TUTTI_OK);
        tutti_work_free(w);
}

/* --- looking --- */

/* The row of test/GROUP about this reason; n 0: there is none. */
static struct tutti_row_group_fallback look(struct host *h, const char *group, const char *why) {
        struct tutti *t;
        struct tutti_answer *a;
        struct tutti_row_group_fallback found = { 0 };
        expect_status(tutti_open(host_socket(h), &t), TUTTI_OK);
        expect_status(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++) {
                const struct tutti_row_group_fallback *f = &a->rows[i].group_fallback;
                if (a->rows[i].type != TUTTI_ROW_GROUP_FALLBACK || strcmp(f->group, group) != 0 ||
                        strcmp(f->why, why) != 0)
                        continue;
                ck_assert_uint_eq(found.n, 0); /* one row a reason */
                ck_assert_str_eq(f->job, "test");
                ck_assert_str_eq(f->algorithm, "one_device");
                ck_assert_int_eq(f->kind, TUTTI_KIND_REDUCE);
                ck_assert_uint_eq(f->uid, getuid());
                found = *f;
        }
        tutti_answer_free(a);
        tutti_close(t);
        return found;
}

static int count_in(const char *text, const char *part) {
        int n = 0;
        for (; (text = strstr(text, part)); text++)
                n++;
        return n;
}

/* What `tuttictl status` says; the caller frees p->out. */
static void ask(struct host *h, const char *command, const char *option, struct program *p) {
        const char *argv[] = { program_tuttictl(), command, "--socket", host_socket(h), option, NULL };
        program_run(argv, 10, p);
        ck_assert_msg(p->code == 0, "%d: %s", p->code, p->err);
}

static void check_json(const char *text) {
        FILE *checker = popen("python3 '" TUTTI_SOURCE_ROOT "/tests/support/check-schema.py' "
                              "'" TUTTI_SOURCE_ROOT "/docs/schema/status.json'",
                "we");
        ck_assert_ptr_nonnull(checker);
        fputs(text, checker);
        int status = pclose(checker);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                unit_skip("python3-jsonschema is not installed");
        ck_assert_msg(status == 0, "%s", text);
}

/* --- packets --- */

/* "train" wishes for what there is not; "eval" for nothing, or for what is done. */
static void wish(struct replica *me) {
        struct floats f;
        struct tutti_group *train = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_group *eval;
        expect_status(tutti_join(me->t,
                              &TUTTI_JOIN(.job = "test", .group = "eval", .rank = (int)me->rank,
                                      .world_size = (int)me->n),
                              &eval),
                TUTTI_OK);
        floats_init(me->t, &f, 10);
        for (int i = 0; i < 3; i++) {
                reduce(train, "grad", &f, &TUTTI_OPTIONS(.implementation = TUTTI_NCCL));
                reduce(eval, NULL, &f, NULL);
                reduce(eval, NULL, &f, &TUTTI_OPTIONS(.implementation = TUTTI_RING));
                reduce(eval, NULL, &f, &TUTTI_OPTIONS(.algorithm = "hierarchical_copy"));
                reduce(train, NULL, &f, NULL);
        }
        replica_say(me, "done");
        replica_hear(me, "end");
        floats_deinit(&f);
        tutti_group_free(eval);
        tutti_group_free(train);
}

START_TEST(P15_a_wish_that_is_not_met_is_a_line_in_status) {
        struct program p;
        struct replica *r[2];
        struct host *h = host_start((const char *[]){ "--set", "cpu.devices=2", NULL });
        replicas_spawn(h, 2, wish, NULL, r);
        replicas_expect(r, 2, "done", 20);
        ask(h, "status", NULL, &p);
        expect_in(p.out, "\nfallback test/train: " NO_LIBRARY ";");
        expect_in(p.out, "3 times, last reduce \"grad\" ");
        ck_assert_int_eq(count_in(p.out, "fallback test/"), 1);
        program_deinit(&p);
        ask(h, "status", "--json", &p);
        expect_in(p.out, "\"why\": \"" NO_LIBRARY "\"");
        expect_in(p.out, "\"collectives\": 3");
        expect_in(p.out, "\"last_key\": \"grad\"");
        ck_assert_int_eq(count_in(p.out, "\"last_age_ns\""), 1);
        check_json(p.out);
        program_deinit(&p);
        ask(h, "health", NULL, &p);
        expect_in(p.out, "note     test/train: " NO_LIBRARY);
        program_deinit(&p);
        ck_assert_int_eq(count_in(host_log(h), "fallback: reduce \"grad\": " NO_LIBRARY), 1);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
}
END_TEST

/* --- what comes again --- */

#define N_STEPS 500

static void prepare_and_run(struct replica *me) {
        struct floats f;
        struct tutti_prepared *p;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        const struct tutti_options nccl = TUTTI_OPTIONS(.implementation = TUTTI_NCCL);
        floats_init(me->t, &f, 100);
        expect_status(tutti_prepare_all_reduce(g, TUTTI_SUM, &f.value, &f.value, &nccl, &p), TUTTI_OK);
        for (int step = 0; step < N_STEPS; step++) {
                floats_fill(&f, (float)(me->rank + 1));
                expect_status(tutti_prepared_run(p, NULL), TUTTI_OK);
                floats_expect(&f, 3);
        }
        replica_say(me, "done");
        replica_hear(me, "end");
        tutti_prepared_free(p);
        floats_deinit(&f);
        tutti_group_free(g);
}

/* How many of them ran on the lane. */
static uint64_t count_steps(const char *lane) {
        struct host_counters c;
        struct replica *r[2];
        struct host *h = host_start((const char *[]){ "--set", lane, NULL });
        replicas_spawn(h, 2, prepare_and_run, NULL, r);
        replicas_expect(r, 2, "done", 60);
        host_counters(h, &c);
        ck_assert_uint_gt(c.n_replayed, 0);
        ck_assert_uint_eq(look(h, "train", NO_LIBRARY).n, N_STEPS);
        ck_assert_int_eq(count_in(host_log(h), "fallback: "), 1);
        replicas_tell(r, 2, "end");
        replicas_end(h, r, 2);
        return c.n_on_lane;
}

START_TEST(P15_each_run_of_what_is_prepared_counts_by_packets) {
        ck_assert_uint_eq(count_steps("lane.enabled=no"), 0);
}
END_TEST

START_TEST(P15_each_run_counts_on_the_lane) {
        ck_assert_uint_gt(count_steps("lane.enabled=yes"), 0);
}
END_TEST

/* --- the end of a group --- */

static void go_on_in_a_new_epoch(struct replica *me) {
        struct floats f;
        struct tutti_group *g = join_train(me, TUTTI_FAIL);
        const struct tutti_options nccl = TUTTI_OPTIONS(.implementation = TUTTI_NCCL);
        floats_init(me->t, &f, 10);
        reduce(g, "before", &f, &nccl);
        replica_say(me, "before");
        replica_hear(me, "shrink");
        expect_status(tutti_shrink(g, 20), TUTTI_OK);
        reduce(g, "after", &f, &nccl);
        replica_say(me, "after");
        replica_hear(me, "end");
        floats_deinit(&f);
        tutti_group_free(g);
}

START_TEST(P15_it_outlives_an_epoch_and_goes_with_the_group) {
        struct replica *r[3];
        board_init();
        struct host *h = host_start(NULL);
        replicas_spawn(h, 3, go_on_in_a_new_epoch, NULL, r);
        replicas_expect(r, 3, "before", 20);
        ck_assert_uint_eq(look(h, "train", NO_LIBRARY).n, 1);
        replica_kill9(r[2]);
        replicas_tell(r, 2, "shrink");
        replicas_expect(r, 2, "after", 30);
        ck_assert_uint_eq(look(h, "train", NO_LIBRARY).n, 2);
        replicas_tell(r, 2, "end");
        ck_assert_int_eq(replica_end(r[0], 10), 0);
        ck_assert_int_eq(replica_end(r[1], 10), 0);
        host_expect_counters_zero(h);
        ck_assert_uint_eq(look(h, "train", NO_LIBRARY).n, 0);
        host_stop(h);
}
END_TEST

/* --- whose they are --- */

static void wish_as_other(struct replica *me) {
        ck_assert_int_eq(setresuid(OTHER_UID, OTHER_UID, OTHER_UID), 0);
        struct floats f;
        struct tutti_group *g = replica_join_group(me, &TUTTI_JOIN(.group = "theirs"));
        floats_init(me->t, &f, 10);
        reduce(g, "secret", &f, &TUTTI_OPTIONS(.implementation = TUTTI_NCCL));
        replica_say(me, "done");
        replica_hear(me, "end");
        floats_deinit(&f);
        tutti_group_free(g);
}

static uint32_t count_fallbacks(struct tutti *t) {
        struct tutti_answer *a;
        uint32_t n = 0;
        expect_status(tutti_admin_ask(t, TUTTI_ADMIN_STATUS, NULL, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++)
                n += a->rows[i].type == TUTTI_ROW_GROUP_FALLBACK;
        tutti_answer_free(a);
        return n;
}

static void look_as_stranger(struct replica *me) {
        ck_assert_int_eq(setresuid(OTHER_UID + 1, OTHER_UID + 1, OTHER_UID + 1), 0);
        ck_assert_uint_eq(count_fallbacks(replica_open(me)), 0);
}

START_TEST(P19_only_who_sees_the_group_sees_what_it_wished) {
        struct replica *r;
        struct tutti *t;
        if (geteuid() != 0)
                unit_skip("a second user takes root");
        ck_assert_int_eq(chmod(unit_directory(), 0755), 0); /* the way to the socket */
        struct host *h = host_start(NULL);
        r = replica_spawn(h, &(struct replica_options){ .n = 1, .body = wish_as_other });
        replica_expect(r, "done", 10);
        run_replicas(h, 1, look_as_stranger, NULL);
        expect_status(tutti_open(host_socket(h), &t), TUTTI_OK);
        ck_assert_uint_eq(count_fallbacks(t), 0); /* an admin's own */
        expect_status(tutti_admin_set_user(t, OTHER_UID), TUTTI_OK);
        ck_assert_uint_eq(count_fallbacks(t), 1);
        tutti_close(t);
        replica_tell(r, "end");
        ck_assert_int_eq(replica_end(r, 10), 0);
        host_stop(h);
}
END_TEST

UNIT_MAIN("fallbacks", 90, P15_a_wish_that_is_not_met_is_a_line_in_status,
        P15_each_run_of_what_is_prepared_counts_by_packets, P15_each_run_counts_on_the_lane,
        P15_it_outlives_an_epoch_and_goes_with_the_group, P19_only_who_sees_the_group_sees_what_it_wished)
