/* Who sees what: job secrets, admins, and limits of one user (O4 O6, P18 P19). The asker must be no admin, so
 * these tests take root, who becomes others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tutti/admin.h>
#include <unistd.h>
#include "meeting.h"
#include "program.h"
#include "replica.h"
#include "unit.h"

#define USER  54321
#define ADMIN 54322

static void need_root(void) {
        if (geteuid() != 0)
                unit_skip("a second user takes root");
        ck_assert_int_eq(chmod(unit_directory(), 0755), 0); /* the way to the socket */
}

static void become(uid_t uid) {
        ck_assert_int_eq(setresuid(uid, uid, uid), 0);
}

static enum tutti_status ask(
        struct tutti *t, enum tutti_admin_what what, const char *group, struct tutti_answer **ret) {
        return tutti_admin_ask(t, what, group ? "test" : NULL, group, ret);
}

/* How many rows of this type an answer about everything has; none is about `hidden`. */
static uint32_t count(
        struct tutti *t, enum tutti_admin_what what, enum tutti_row_type type, const char *hidden) {
        struct tutti_answer *a;
        uint32_t n = 0;
        expect_status(ask(t, what, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++) {
                const struct tutti_row *row = &a->rows[i];
                n += row->type == type;
                if (row->type == TUTTI_ROW_GROUP)
                        ck_assert_str_ne(row->group.group, hidden);
                if (row->type == TUTTI_ROW_MEMBER)
                        ck_assert_str_ne(row->member.group, hidden);
                if (row->type == TUTTI_ROW_PENDING)
                        ck_assert_str_ne(row->pending.group, hidden);
                if (row->type == TUTTI_ROW_STATS)
                        ck_assert_str_ne(row->stats.group, hidden);
        }
        tutti_answer_free(a);
        return n;
}

static uint32_t n_groups_told(struct tutti *t) {
        struct tutti_answer *a;
        uint32_t n = UINT32_MAX;
        expect_status(ask(t, TUTTI_ADMIN_STATUS, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++)
                if (a->rows[i].type == TUTTI_ROW_DAEMON)
                        n = a->rows[i].daemon.n_groups;
        tutti_answer_free(a);
        return n;
}

/* --- one user, two secrets --- */

static struct tutti_group *join_with(struct replica *me, const char *name, const char *secret) {
        struct tutti_group *g;
        expect_status(
                tutti_join(replica_open(me),
                        &TUTTI_JOIN(.group = name, .job = "test", .world_size = 1, .secret = secret), &g),
                TUTTI_OK);
        return g;
}

/* Has a group of its own, with a record, until it is told to go. */
static void keep_group(struct replica *me) {
        const char *secret = me->arg;
        become(USER);
        unsetenv("TUTTI_JOB_SECRET");
        struct tutti_group *g = join_with(me, secret, secret);
        expect_status(tutti_barrier(g, NULL), TUTTI_OK);
        replica_say(me, "there");
        replica_hear(me, "end");
}

/* What somebody sees of group `name` who may (1) or may not (0). */
static void expect_seen(struct tutti *t, const char *name, uint32_t n) {
        struct tutti_answer *a;
        enum tutti_status status = n ? TUTTI_OK : TUTTI_NOT_FOUND;
        const enum tutti_admin_what all[] = { TUTTI_ADMIN_STATUS, TUTTI_ADMIN_GROUPS, TUTTI_ADMIN_STATS,
                TUTTI_ADMIN_DUMP };
        for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
                enum tutti_status got = ask(t, all[i], name, &a);
                ck_assert_msg(got == status, "question %d about %s: %s, not %s", all[i], name,
                        tutti_status_name(got), tutti_status_name(status));
                if (got == TUTTI_OK)
                        tutti_answer_free(a);
        }
}

static void look_with_secret_a(struct replica *me) {
        become(USER);
        setenv("TUTTI_JOB_SECRET", "a", 1);
        replica_open(me);
        expect_seen(me->t, "a", 1);
        expect_seen(me->t, "b", 0);
        ck_assert_uint_eq(count(me->t, TUTTI_ADMIN_GROUPS, TUTTI_ROW_GROUP, "b"), 1);
        ck_assert_uint_eq(count(me->t, TUTTI_ADMIN_GROUPS, TUTTI_ROW_MEMBER, "b"), 1);
        ck_assert_uint_eq(count(me->t, TUTTI_ADMIN_STATS, TUTTI_ROW_STATS, "b"), 1);
        ck_assert_uint_eq(n_groups_told(me->t), 1);
        /* Joining with the other one shows it. */
        struct tutti_group *g = join_with(me, "c", "b");
        expect_seen(me->t, "b", 1);
        ck_assert_uint_eq(n_groups_told(me->t), 3);
        tutti_group_free(g);
}

static void look_without_secret(struct replica *me) {
        become(USER);
        unsetenv("TUTTI_JOB_SECRET");
        replica_open(me);
        expect_seen(me->t, "a", 0);
        expect_seen(me->t, "b", 0);
        ck_assert_uint_eq(n_groups_told(me->t), 0);
        join_with(me, "plain", "");
        ck_assert_uint_eq(n_groups_told(me->t), 1); /* its own, which no secret keeps */
}

/* The record of an ended group is kept by its secret as well. */
static void look_at_records(struct replica *me) {
        struct tutti_answer *a;
        become(USER);
        setenv("TUTTI_JOB_SECRET", "b", 1);
        replica_open(me);
        expect_status(ask(me->t, TUTTI_ADMIN_DUMP, "a", &a), TUTTI_NOT_FOUND);
        count(me->t, TUTTI_ADMIN_GROUPS, TUTTI_ROW_GROUP, "a");
        expect_status(ask(me->t, TUTTI_ADMIN_DUMP, "b", &a), TUTTI_OK);
        ck_assert_uint_eq(a->n_rows, 2); /* one record, and the end */
        ck_assert_int_eq(a->rows[0].type, TUTTI_ROW_RECORD);
        tutti_answer_free(a);
}

static void run_one(struct host *h, void (*body)(struct replica *me)) {
        ck_assert_int_eq(
                replica_end(replica_spawn(h, &(struct replica_options){ .n = 1, .body = body }), 10), 0);
}

START_TEST(P19_O5_two_jobs_of_one_user_with_secrets_do_not_see_each_other) {
        need_root();
        struct host *h = host_start(NULL);
        struct replica *r[2];
        for (int i = 0; i < 2; i++) {
                r[i] = replica_spawn(h, &(struct replica_options){
                                                .n = 1, .body = keep_group, .arg = (void *)(i ? "b" : "a") });
                replica_expect(r[i], "there", 10);
        }
        run_one(h, look_with_secret_a);
        run_one(h, look_without_secret);
        for (int i = 0; i < 2; i++) {
                replica_tell(r[i], "end");
                ck_assert_int_eq(replica_end(r[i], 10), 0);
        }
        run_one(h, look_at_records);
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

/* --- admins --- */

static bool has_quota_of(struct tutti *t, uint32_t uid) {
        struct tutti_answer *a;
        bool found = false;
        expect_status(ask(t, TUTTI_ADMIN_QUOTA, NULL, &a), TUTTI_OK);
        ck_assert_uint_eq(a->rows[0].quota.uid, geteuid());
        for (uint32_t i = 0; i < a->n_rows; i++)
                found |= a->rows[i].quota.uid == uid;
        tutti_answer_free(a);
        return found;
}

static void look_as_admin(struct replica *me) {
        struct tutti_group *g;
        become(ADMIN);
        replica_open(me);
        ck_assert_uint_eq(n_groups_told(me->t), 0); /* none of its own */
        ck_assert(has_quota_of(me->t, USER));
        expect_status(tutti_admin_set_user(me->t, USER), TUTTI_OK);
        expect_seen(me->t, "a", 1);
        ck_assert_uint_eq(n_groups_told(me->t), 1);
        /* Seeing is all: the same words are a group of its own. */
        expect_status(tutti_join(me->t,
                              &TUTTI_JOIN(.group = "a", .job = "test", .world_size = 1, .secret = "a"), &g),
                TUTTI_OK);
        ck_assert_uint_eq(tutti_epoch(g), 1);
        expect_status(tutti_abort(g, "key", "not yours"), TUTTI_NOT_FOUND);
        ck_assert_uint_eq(n_groups_told(me->t), 1); /* of that user, still */
}

static bool sees_all(struct tutti *t) {
        struct tutti_answer *a;
        int found = -1;
        expect_status(ask(t, TUTTI_ADMIN_STATUS, NULL, &a), TUTTI_OK);
        for (uint32_t i = 0; i < a->n_rows; i++)
                if (a->rows[i].type == TUTTI_ROW_DAEMON)
                        found = a->rows[i].daemon.sees_all;
        tutti_answer_free(a);
        ck_assert_int_ge(found, 0);
        return found;
}

static void look_as_observer(struct replica *me) {
        become(ADMIN);
        replica_open(me);
        ck_assert(sees_all(me->t));
        ck_assert(has_quota_of(me->t, USER));
        expect_status(tutti_admin_drain(me->t), TUTTI_PERMISSION);
        expect_status(tutti_admin_undrain(me->t), TUTTI_PERMISSION);
        expect_status(tutti_admin_log_level(me->t, "debug"), TUTTI_PERMISSION);
        expect_status(tutti_admin_set_user(me->t, USER), TUTTI_OK);
        expect_seen(me->t, "a", 1);
        ck_assert_uint_eq(n_groups_told(me->t), 1);
        expect_status(tutti_admin_kick(me->t, "test", "a", 0, "no"), TUTTI_PERMISSION);
        expect_seen(me->t, "a", 1);
}

/* Also of its own user: a secret that it has not shown keeps it from acting, not from seeing. */
static void look_at_own_as_observer(struct replica *me) {
        become(USER);
        replica_open(me);
        expect_seen(me->t, "a", 1);
        expect_status(tutti_admin_kick(me->t, "test", "a", 0, "no"), TUTTI_NOT_FOUND);
        expect_seen(me->t, "a", 1);
}

static void look_as_nobody_special(struct replica *me) {
        struct tutti_answer *a;
        become(ADMIN + 1);
        replica_open(me);
        ck_assert(!has_quota_of(me->t, USER));
        ck_assert(!sees_all(me->t));
        expect_status(tutti_admin_set_user(me->t, USER), TUTTI_OK);
        for (int what = TUTTI_ADMIN_STATUS; what <= TUTTI_ADMIN_QUOTA; what++)
                expect_status(ask(me->t, (enum tutti_admin_what)what, "a", &a), TUTTI_PERMISSION);
        expect_in(tutti_error(), "daemon.admins or daemon.observers");
        expect_status(tutti_admin_set_user(me->t, geteuid()), TUTTI_OK);
        expect_status(ask(me->t, TUTTI_ADMIN_STATUS, NULL, &a), TUTTI_OK);
        tutti_answer_free(a);
}

static void run_with_group_a(const char *setting, void (*body)(struct replica *me)) {
        need_root();
        struct host *h = host_start((const char *[]){ "--set", setting, NULL });
        struct replica *r =
                replica_spawn(h, &(struct replica_options){ .n = 1, .body = keep_group, .arg = (void *)"a" });
        replica_expect(r, "there", 10);
        run_one(h, body);
        replica_tell(r, "end");
        ck_assert_int_eq(replica_end(r, 10), 0);
        host_stop(h);
}

START_TEST(O6_an_admin_sees_everybody_and_touches_nobody) {
        run_with_group_a("daemon.admins=0 54322", look_as_admin);
}
END_TEST

START_TEST(P19_O6_an_observer_sees_everybody_and_does_nothing) {
        run_with_group_a("daemon.observers=54322", look_as_observer);
}
END_TEST

START_TEST(P19_O6_an_observer_acts_as_one_who_has_shown_no_secret) {
        run_with_group_a("daemon.observers=54321", look_at_own_as_observer);
}
END_TEST

START_TEST(O6_who_is_no_admin_may_not_ask_about_others) {
        run_with_group_a("daemon.admins=0 54322", look_as_nobody_special);
}
END_TEST

static void look_as_root(struct replica *me) {
        struct tutti_answer *a;
        replica_open(me);
        expect_status(tutti_admin_set_user(me->t, USER), TUTTI_OK);
        expect_status(ask(me->t, TUTTI_ADMIN_STATUS, NULL, &a), TUTTI_PERMISSION);
}

START_TEST(O6_root_need_be_no_admin) {
        run_with_group_a("daemon.admins=54322", look_as_root);
}
END_TEST

static void expect_ctl(int code, const char *part, const char *const *argv) {
        struct program p;
        program_run(argv, 10, &p);
        ck_assert_msg(p.code == code, "%s %s: %d\n%s%s", argv[1], argv[2], p.code, p.out, p.err);
        expect_in(code == 0 ? p.out : p.err, part);
        program_deinit(&p);
}

START_TEST(O6_tuttictl_asks_about_another_user) {
        need_root();
        struct host *h = host_start(NULL);
        const char *ctl = program_tuttictl(), *socket = host_socket(h);
        struct replica *r =
                replica_spawn(h, &(struct replica_options){ .n = 1, .body = keep_group, .arg = (void *)"a" });
        replica_expect(r, "there", 10);
        expect_ctl(0, "No groups of yours", (const char *[]){ ctl, "groups", "--socket", socket, NULL });
        expect_ctl(
                0, "test/a", (const char *[]){ ctl, "groups", "--socket", socket, "--user", "54321", NULL });
        expect_ctl(0, "test/a", (const char *[]){ ctl, "status", "--socket", socket, "-u54321", NULL });
        expect_ctl(0, "uid 54321", (const char *[]){ ctl, "quota", "--socket", socket, NULL });
        expect_ctl(0, "\"uid\": 54321",
                (const char *[]){ ctl, "quota", "--json", "--socket", socket, "-u54321", NULL });
        replica_tell(r, "end");
        ck_assert_int_eq(replica_end(r, 10), 0);
        host_stop(h);
}
END_TEST

/* --- limits of one user --- */

static void use_two_groups(struct replica *me) {
        struct tutti_group *g;
        uint32_t uid = *(const uint32_t *)me->arg;
        become(uid);
        replica_open(me);
        join_with(me, "a", "");
        enum tutti_status second =
                tutti_join(me->t, &TUTTI_JOIN(.group = "b", .job = "test", .world_size = 1), &g);
        expect_status(second, uid == USER ? TUTTI_OK : TUTTI_QUOTA);
        enum tutti_status third =
                tutti_join(me->t, &TUTTI_JOIN(.group = "c", .job = "test", .world_size = 1), &g);
        expect_status(third, TUTTI_QUOTA);
        ck_assert_uint_eq(tutti_error_info()->limit, uid == USER ? 2 : 1);
}

START_TEST(P18_O4_a_user_may_have_limits_of_its_own) {
        static const uint32_t uids[] = { USER, ADMIN };
        need_root();
        struct host *h = host_start(
                (const char *[]){ "--set", "quota.groups=1", "--set", "quota.54321.groups=2", NULL });
        for (int i = 0; i < 2; i++) {
                struct replica *r = replica_spawn(h,
                        &(struct replica_options){ .n = 1, .body = use_two_groups, .arg = (void *)&uids[i] });
                ck_assert_int_eq(replica_end(r, 10), 0);
        }
        host_expect_counters_zero(h);
        host_stop(h);
}
END_TEST

UNIT_MAIN("secrets", 30, P19_O5_two_jobs_of_one_user_with_secrets_do_not_see_each_other,
        O6_an_admin_sees_everybody_and_touches_nobody, P19_O6_an_observer_sees_everybody_and_does_nothing,
        P19_O6_an_observer_acts_as_one_who_has_shown_no_secret, O6_who_is_no_admin_may_not_ask_about_others,
        O6_root_need_be_no_admin, O6_tuttictl_asks_about_another_user,
        P18_O4_a_user_may_have_limits_of_its_own)
