/* How a group comes to be: identity, ranks, deadlines, failures (P1, P19). */
#include <time.h>
#include "room.h"
#include "unit.h"

START_TEST(a_group_is_whole_when_all_ranks_have_joined) {
        struct room room;
        room_open(&room);
        for (uint32_t rank = 3; rank > 0; rank--)
                ck_assert_int_eq(room_join(&room, room_ask("train", 4, rank)), STATUS_OK);
        ck_assert(outcome_is_empty(&room.out));
        ck_assert_int_eq(rendezvous_next_group(room.r, NULL)->state, GROUP_FORMING);
        ck_assert_int_eq(room_join(&room, room_ask("train", 4, 0)), STATUS_OK);
        struct group *g = room_take_group(&room.out.formed);
        ck_assert_ptr_eq(g, rendezvous_next_group(room.r, NULL));
        ck_assert_int_eq(g->state, GROUP_WHOLE);
        ck_assert_uint_eq(g->epoch, 1);
        ck_assert_uint_eq(rankset_count(&g->alive), 4);
        ck_assert_uint_eq(quota_used(room.quotas, 1000, QUOTA_GROUPS), 1);
        for (uint32_t rank = 0; rank < 4; rank++) {
                const struct member *m = &g->members[rank];
                ck_assert_int_eq(m->state, MEMBER_ALIVE);
                ck_assert_uint_eq(m->session, 100 + rank);
                ck_assert_ptr_eq(rendezvous_find_member(room.r, 100 + rank, m->id), m);
                ck_assert_ptr_null(rendezvous_find_member(room.r, 99, m->id));
        }
        ck_assert_uint_eq(rendezvous_next_ns(room.r), ALARM_NEVER);
        room_close(&room);
}
END_TEST

START_TEST(a_taken_rank_is_refused_naming_the_pid) {
        struct room room;
        room_open(&room);
        struct join again = room_ask("train", 2, 0);
        ck_assert_int_eq(room_join(&room, again), STATUS_OK);
        again.session = 777;
        again.pid = 9999;
        ck_assert_int_eq(room_join(&room, again), STATUS_BUSY);
        ck_assert_int_eq(room.err.rank, 0);
        ck_assert_uint_eq(room.err.n_replicas, 1);
        ck_assert_uint_eq(room.err.replicas[0].pid, 4700);
        ck_assert_str_eq(room.err.group, "train");
        room_says(&room.err, "4700");
        ck_assert_int_eq(room_join(&room, room_ask("train", 2, 1)), STATUS_OK);
        ck_assert_ptr_nonnull(room_take_group(&room.out.formed));
        again.ask.rank = 1;
        ck_assert_int_eq(room_join(&room, again), STATUS_BUSY);
        ck_assert_uint_eq(room.err.replicas[0].pid, 4701);
        room_close(&room);
}
END_TEST

START_TEST(another_world_or_policy_is_refused_to_the_newcomer_alone) {
        struct room room;
        room_open(&room);
        ck_assert_int_eq(room_join(&room, room_ask("train", 2, 0)), STATUS_OK);
        ck_assert_int_eq(room_join(&room, room_ask("train", 3, 1)), STATUS_MISMATCH);
        ck_assert_int_eq(room.err.field, FIELD_WORLD_SIZE);
        ck_assert_uint_eq(room.err.replicas[0].pid, 4700);
        struct join other = room_ask("train", 2, 1);
        other.ask.on_death = ON_DEATH_SHRINK;
        ck_assert_int_eq(room_join(&room, other), STATUS_MISMATCH);
        ck_assert_int_eq(room.err.field, FIELD_OPTIONS);
        other.ask.on_death = ON_DEATH_FAIL;
        other.ask.on_leave = ON_LEAVE_ZERO_FILL;
        ck_assert_int_eq(room_join(&room, other), STATUS_MISMATCH);
        other.ask.on_leave = ON_LEAVE_CONTRIBUTORS; /* the default, said */
        ck_assert_int_eq(room_join(&room, other), STATUS_OK);
        ck_assert_ptr_nonnull(room_take_group(&room.out.formed));
        room_close(&room);
}
END_TEST

START_TEST(what_contradicts_itself_is_invalid) {
        char long_name[65];
        memset(long_name, 'x', 64);
        long_name[64] = '\0';
        const struct {
                const char *job, *group, *secret;
                uint32_t world, rank;
                enum on_death on_death;
                enum status status;
                enum field field;
        } cases[] = {
                { "", "g", "", 2, 0, 0, STATUS_INVALID, FIELD_JOB },
                { "j", "", "", 2, 0, 0, STATUS_INVALID, FIELD_GROUP },
                { "j", long_name, "", 2, 0, 0, STATUS_INVALID, FIELD_GROUP },
                { "j\n", "g", "", 2, 0, 0, STATUS_INVALID, FIELD_JOB },
                { "j", "\xff", "", 2, 0, 0, STATUS_INVALID, FIELD_GROUP },
                { "j\xc2\x9b", "g", "", 2, 0, 0, STATUS_INVALID, FIELD_JOB }, /* CSI, to a terminal */
                { "j", "g", long_name, 2, 0, 0, STATUS_INVALID, FIELD_JOB },
                { "j", "g", "", 0, 0, 0, STATUS_INVALID, FIELD_WORLD_SIZE },
                { "j", "g", "", 1025, 0, 0, STATUS_INVALID, FIELD_WORLD_SIZE },
                { "j", "g", "", 2, 2, 0, STATUS_INVALID, FIELD_RANK },
                { "j", "g", "", 2, 0, (enum on_death)9, STATUS_UNSUPPORTED, FIELD_OPTIONS },
                { "j", long_name + 1, "", 1024, 1023, 0, STATUS_OK, FIELD_UNSPECIFIED },
        };
        struct room room;
        room_open(&room);
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct join join = { .session = 1,
                        .uid = 1000,
                        .ask = { .job = cases[i].job,
                                .group = cases[i].group,
                                .secret = cases[i].secret,
                                .world_size = cases[i].world,
                                .rank = cases[i].rank,
                                .on_death = cases[i].on_death } };
                enum status status = room_join(&room, join);
                ck_assert_msg(status == cases[i].status, "case %zu: %s", i, status_name(status));
                ck_assert_int_eq(room.err.field, cases[i].field);
        }
        /* 1,024 ranks cost sixteen times what 64 do. */
        ck_assert_uint_eq(quota_used(room.quotas, 1000, QUOTA_GROUPS), 16);
        ck_assert_uint_eq(rendezvous_n_groups(room.r), 1);
        room_close(&room);
}
END_TEST

START_TEST(users_and_secrets_are_walls) {
        struct room room;
        room_open(&room);
        struct join a = room_ask("train", 2, 0), other_user = room_ask("train", 2, 1),
                    other_secret = other_user, same = other_user;
        a.ask.secret = other_user.ask.secret = same.ask.secret = "s3cret";
        other_user.uid = 1001;
        ck_assert_int_eq(room_join(&room, a), STATUS_OK);
        ck_assert_int_eq(room_join(&room, other_user), STATUS_OK);
        ck_assert_int_eq(room_join(&room, other_secret), STATUS_OK);
        ck_assert(outcome_is_empty(&room.out));
        ck_assert_uint_eq(rendezvous_n_groups(room.r), 3);
        same.session = 300;
        ck_assert_int_eq(room_join(&room, same), STATUS_OK);
        ck_assert_ptr_eq(room_take_group(&room.out.formed), rendezvous_next_group(room.r, NULL));
        room_close(&room);
}
END_TEST

START_TEST(O4_the_limit_of_groups_hurts_its_user_alone) {
        struct room room;
        struct rendezvous_settings settings = room_settings();
        struct quota_limits limits = { .groups = 1, .memory_bytes = 1 << 30 };
        room_open_with(&room, &settings, &limits);
        ck_assert_int_eq(room_join(&room, room_ask("a", 2, 0)), STATUS_OK);
        ck_assert_int_eq(room_join(&room, room_ask("b", 2, 0)), STATUS_QUOTA);
        ck_assert_str_eq(room.err.detail, "groups");
        ck_assert_uint_eq(room.err.used, 1);
        ck_assert_uint_eq(room.err.limit, 1);
        struct join other = room_ask("b", 2, 0);
        other.uid = 1001;
        ck_assert_int_eq(room_join(&room, other), STATUS_OK);
        ck_assert_int_eq(room_join(&room, room_ask("a", 2, 1)), STATUS_OK);
        ck_assert_ptr_nonnull(room_take_group(&room.out.formed));
        room_close(&room);
}
END_TEST

START_TEST(A7_the_join_deadline_names_the_missing) {
        struct room room;
        room_open(&room);
        for (uint32_t rank = 0; rank < 3; rank++) {
                struct join ask = room_ask("train", 4, rank);
                ask.ask.join_timeout_ns = rank == 1 ? NS_PER_S : 0;
                ck_assert_int_eq(room_join(&room, ask), STATUS_OK);
        }
        ck_assert_uint_eq(rendezvous_next_ns(room.r), room.now_ns + NS_PER_S);
        room_wait(&room, NS_PER_S - 1);
        ck_assert(outcome_is_empty(&room.out));
        room_wait(&room, 1);
        struct group *g = room_take_group(&room.out.unformed);
        ck_assert_ptr_nonnull(g);
        const struct error *err = rendezvous_group_failure(room.r, g);
        ck_assert_int_eq(err->status, STATUS_TIMEOUT);
        ck_assert_int_eq(err->rank, 1);
        ck_assert_uint_eq(err->have.words[0], 7);
        ck_assert_uint_eq(err->missing.words[0], 8);
        ck_assert_uint_eq(err->n_replicas, 1);
        ck_assert_uint_eq(err->replicas[0].rank, 3);
        ck_assert_int_eq(err->replicas[0].state, PROCESS_ABSENT);
        room_says(err, "R3");
        for (uint32_t rank = 0; rank < 3; rank++)
                ck_assert_int_eq(g->members[rank].state, MEMBER_JOINING);
        rendezvous_forget(room.r, g);
        ck_assert_uint_eq(rendezvous_n_groups(room.r), 0);
        ck_assert_uint_eq(quota_users(room.quotas), 0);
        ck_assert_uint_eq(rendezvous_next_ns(room.r), ALARM_NEVER);
        room_close(&room);
}
END_TEST

START_TEST(a_joiner_that_dies_fails_the_group_at_once) {
        struct room room;
        room_open(&room);
        ck_assert_int_eq(room_join(&room, room_ask("train", 3, 0)), STATUS_OK);
        ck_assert_int_eq(room_join(&room, room_ask("train", 3, 2)), STATUS_OK);
        rendezvous_lose(room.r, 102, LOSS_DIED, "", room.now_ns, &room.out);
        struct group *g = room_take_group(&room.out.unformed);
        ck_assert_ptr_nonnull(g);
        const struct error *err = rendezvous_group_failure(room.r, g);
        ck_assert_int_eq(err->status, STATUS_REPLICA_LOST);
        ck_assert_int_eq(err->rank, 2);
        ck_assert_int_eq(err->loss, LOSS_DIED);
        ck_assert_uint_eq(err->replicas[0].pid, 4702);
        ck_assert_int_eq(err->replicas[0].state, PROCESS_DEAD);
        ck_assert_uint_eq(err->have.words[0], 1);
        ck_assert_int_eq(g->members[0].state, MEMBER_JOINING);
        ck_assert_int_eq(g->members[2].state, MEMBER_LOST);
        rendezvous_forget(room.r, g);
        room_close(&room);
}
END_TEST

START_TEST(K3_a_group_that_failed_to_form_leaves_nothing) {
        struct room room;
        room_open(&room);
        for (int i = 0; i < 100; i++) {
                for (uint32_t rank = 0; rank < 3; rank++)
                        ck_assert_int_eq(room_join(&room, room_ask("train", 4, rank)), STATUS_OK);
                if (i % 2)
                        room_wait(&room, 60 * NS_PER_S);
                else
                        rendezvous_lose(room.r, 101, LOSS_DISCONNECTED, "", room.now_ns, &room.out);
                struct group *g = room_take_group(&room.out.unformed);
                ck_assert_ptr_nonnull(g);
                rendezvous_forget(room.r, g);
                ck_assert_uint_eq(quota_users(room.quotas), 0);
        }
        struct group *g = room_form(&room, 4, ON_DEATH_FAIL);
        room_round(&room, g, "grad/0");
        room_close(&room);
}
END_TEST

START_TEST(a_name_is_free_again_when_all_are_gone_though_something_runs) {
        struct room room;
        room_open(&room);
        struct group *old = room_form(&room, 2, ON_DEATH_FAIL);
        uint64_t old_id = old->id, old_membership = old->members[0].id;
        ck_assert_int_eq(room_submit(&room, old, 0, "k"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, old, 1, "k"), STATUS_OK);
        struct meeting *runs = room_take(&room.out.sealed);
        rendezvous_lose(room.r, 100, LOSS_DIED, "", room.now_ns, &room.out);
        rendezvous_lose(room.r, 101, LOSS_DIED, "", room.now_ns, &room.out);
        ck_assert_int_eq(old->state, GROUP_ENDED);
        ck_assert(list_is_empty(&room.out.over));
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        ck_assert_uint_gt(g->id, old_id);
        ck_assert_uint_gt(g->members[0].id, old_membership);
        room_finish(&room, runs);
        ck_assert_ptr_eq(room_take_group(&room.out.over), old);
        rendezvous_forget(room.r, old);
        room_round(&room, g, "k");
        room_close(&room);
}
END_TEST

#define N_BACK 1000

/* One who comes back, and says that all are lost but the last rank. */
static struct join ask_to_resume(uint32_t rank) {
        struct join ask = room_ask("train", MAX_WORLD, rank);
        ask.resume = resume_new();
        ck_assert_ptr_nonnull(ask.resume);
        ask.resume->epoch = ask.resume->number = 1;
        ask.resume->members = rankset_first(MAX_WORLD);
        ask.resume->lost = rankset_first(MAX_WORLD - 1);
        return ask;
}

/* Each is held against what all before it have said, of everybody. */
START_TEST(P21_who_comes_back_to_a_large_group_costs_little_and_it_is_counted) {
        struct room room;
        room_open(&room);
        clock_t begun = clock();
        for (uint32_t rank = 0; rank < N_BACK; rank++)
                ck_assert_int_eq(room_join(&room, ask_to_resume(rank)), STATUS_OK);
        double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
        printf("# a member of %d takes %.1f us to come back\n", MAX_WORLD, seconds / N_BACK * 1e6);
        ck_assert_double_lt(seconds, 0.3 * unit_scale());
        ck_assert(outcome_is_empty(&room.out));
        ck_assert_uint_ge(room.out.n_looked, N_BACK * MAX_WORLD / 8);
        ck_assert_int_eq(room_join(&room, ask_to_resume(MAX_WORLD - 1)), STATUS_OK);
        struct group *g = room_take_group(&room.out.formed);
        ck_assert_ptr_nonnull(g);
        ck_assert_int_eq(g->state, GROUP_FAILED); /* without those who are not back */
        room_close(&room);
}
END_TEST

UNIT_MAIN("rendezvous-join", 10, a_group_is_whole_when_all_ranks_have_joined,
        a_taken_rank_is_refused_naming_the_pid, another_world_or_policy_is_refused_to_the_newcomer_alone,
        what_contradicts_itself_is_invalid, users_and_secrets_are_walls,
        O4_the_limit_of_groups_hurts_its_user_alone, A7_the_join_deadline_names_the_missing,
        a_joiner_that_dies_fails_the_group_at_once, K3_a_group_that_failed_to_form_leaves_nothing,
        a_name_is_free_again_when_all_are_gone_though_something_runs,
        P21_who_comes_back_to_a_large_group_costs_little_and_it_is_counted)
