/* How a group is formed anew: who is waited for, what is told, what the new epoch forgets (P5). */
#include "room.h"
#include "unit.h"

static enum status room_reform(
        struct room *room, const struct group *g, uint32_t rank, enum reform_kind kind) {
        const struct reform_ask ask = { .session = g->members[rank].session,
                .request = ++room->last_request,
                .membership = g->members[rank].id,
                .kind = kind,
                .timeout_ns = NS_PER_S };
        return rendezvous_reform(room->r, &ask, room->now_ns, &room->out, &room->err);
}

static enum status room_replace(struct room *room, const struct group *g, uint32_t rank) {
        struct join ask = room_ask("train", g->world_size, rank);
        ask.session = 300 + rank;
        ask.pid = 9300 + rank;
        ask.ask.on_death = g->on_death;
        return room_join(room, ask);
}

/* The next one that has waited in vain; room->err is its error. */
static void room_answer(struct room *room, enum status status) {
        struct list *link = list_take_first(&room->out.answered);
        ck_assert_ptr_nonnull(link);
        struct reform *reform = list_entry(link, struct reform, outcome_link);
        ck_assert_str_eq(status_name(reform->status), status_name(status));
        ck_assert_ptr_nonnull(reform->error);
        room->err = *reform->error;
        rendezvous_reform_free(room->r, reform);
}

static void room_expect_epoch(struct room *room, struct group *g, uint64_t epoch, uint64_t alive) {
        ck_assert_ptr_eq(room_take_group(&room->out.formed), g);
        ck_assert_uint_eq(g->epoch, epoch);
        ck_assert_int_eq(g->state, GROUP_WHOLE);
        ck_assert_uint_eq(g->alive.words[0], alive);
        ck_assert_uint_eq(g->next_number, 1);
        ck_assert_int_eq(g->lost_rank, -1);
        ck_assert_uint_eq(g->n_reforms, 0);
}

static struct group *room_fail(struct room *room, uint32_t world_size) {
        struct group *g = room_form(room, world_size, ON_DEATH_FAIL);
        room_round(room, g, "grad/0");
        room_lose(room, g, world_size - 1);
        ck_assert_int_eq(g->state, GROUP_FAILED);
        return g;
}

START_TEST(K2_a_newcomer_and_all_survivors_begin_an_epoch) {
        struct room room;
        room_open(&room);
        struct group *g = room_fail(&room, 3);
        uint64_t old = g->members[2].id;
        ck_assert_int_eq(room_reform(&room, g, 0, REFORM_REJOIN), STATUS_OK);
        ck_assert_int_eq(room_replace(&room, g, 2), STATUS_OK);
        ck_assert(outcome_is_empty(&room.out));
        ck_assert_ptr_null(rendezvous_find_member(room.r, 102, old));
        /* Who has its rank is not who was lost. */
        ck_assert_int_eq(room_submit(&room, g, 0, "grad/1"), STATUS_REPLICA_LOST);
        ck_assert_uint_eq(room.err.replicas[0].pid, 4702);
        room_says(&room.err, "4702");
        room_says(&room.err, "grad/0");
        uint64_t request = room.last_request + 1;
        ck_assert_int_eq(room_reform(&room, g, 1, REFORM_REJOIN), STATUS_OK);
        room_expect_epoch(&room, g, 2, 7);
        ck_assert_uint_eq(g->members[1].join_request, request);
        ck_assert_uint_eq(g->members[2].pid, 9302);
        ck_assert(!g->members[2].has_last && g->members[0].has_last);
        room_round(&room, g, "grad/0");
        room_close(&room);
}
END_TEST

START_TEST(an_older_epoch_is_told_that_it_is_over) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        struct half *late = room_half(&room, g, 0, "late");
        ck_assert_int_eq(room_submit(&room, g, 0, "pending"), STATUS_OK);
        for (uint32_t rank = 0; rank < 2; rank++)
                ck_assert_int_eq(room_reform(&room, g, rank, REFORM_REJOIN), STATUS_OK);
        struct meeting *m = room_ended(&room, STATUS_REPLICA_LOST);
        ck_assert_uint_eq(m->error->epoch, 1);
        ck_assert_int_eq(m->error->rank, -1);
        room_says(m->error, "the group has begun epoch 2.\nThe buffers are unchanged.");
        room_release(&room, m);
        room_expect_epoch(&room, g, 2, 3);
        ck_assert_int_eq(room_submit_half(&room, late), STATUS_REPLICA_LOST);
        room_says(&room.err, "the submission is of epoch 1, the group is in epoch 2.");
        room_round(&room, g, "late");
        room_close(&room);
}
END_TEST

/* What runs is neither in the way of its key nor a member's last deed in an epoch that it did not see. */
START_TEST(what_is_sealed_runs_on_beside_the_new_epoch) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        for (uint32_t rank = 0; rank < 2; rank++)
                ck_assert_int_eq(room_submit(&room, g, rank, "k"), STATUS_OK);
        struct meeting *old = room_take(&room.out.sealed);
        room_lose(&room, g, 1);
        ck_assert_int_eq(room_replace(&room, g, 1), STATUS_OK);
        ck_assert_int_eq(room_reform(&room, g, 0, REFORM_REJOIN), STATUS_OK);
        room_expect_epoch(&room, g, 2, 3);
        for (uint32_t rank = 0; rank < 2; rank++)
                ck_assert_int_eq(room_submit(&room, g, rank, "k"), STATUS_OK);
        struct meeting *m = room_take(&room.out.sealed);
        ck_assert_uint_eq(m->number, 1);
        ck_assert_uint_eq(old->epoch, 1);
        room_finish(&room, old);
        ck_assert(g->members[0].has_last && !g->members[1].has_last);
        room_finish(&room, m);
        ck_assert(g->members[1].has_last);
        room_close(&room);
}
END_TEST

START_TEST(a_deadline_ends_one_wait_and_names_who_is_missing) {
        struct room room;
        room_open(&room);
        struct group *g = room_fail(&room, 4);
        ck_assert_int_eq(room_reform(&room, g, 0, REFORM_REJOIN), STATUS_OK);
        room_wait(&room, NS_PER_S / 2);
        ck_assert_int_eq(room_reform(&room, g, 2, REFORM_SHRINK), STATUS_OK);
        room_wait(&room, NS_PER_S / 2);
        room_answer(&room, STATUS_TIMEOUT);
        ck_assert_int_eq(room.err.rank, 0);
        ck_assert_uint_eq(room.err.age_ns, NS_PER_S);
        ck_assert_uint_eq(room.err.have.words[0], 0x5);
        ck_assert_uint_eq(room.err.missing.words[0], 0xa);
        room_says(&room.err, "R1 did not call rejoin; nobody has taken the place of R3");
        ck_assert(outcome_is_empty(&room.out));
        ck_assert_uint_eq(g->n_reforms, 1);
        room_wait(&room, NS_PER_S / 2);
        room_answer(&room, STATUS_TIMEOUT);
        ck_assert_uint_eq(room.err.missing.words[0], 0x3);
        room_says(&room.err, "R0 R1 did not call shrink");
        ck_assert_int_eq(g->state, GROUP_FAILED);
        ck_assert_uint_eq(g->epoch, 1);
        for (uint32_t rank = 0; rank < 3; rank++)
                ck_assert_int_eq(room_reform(&room, g, rank, REFORM_SHRINK), STATUS_OK);
        room_expect_epoch(&room, g, 2, 7);
        room_close(&room);
}
END_TEST

START_TEST(a_newcomer_that_waits_in_vain_leaves_the_rank_free) {
        struct room room;
        room_open(&room);
        struct group *g = room_fail(&room, 2);
        ck_assert_int_eq(room_replace(&room, g, 1), STATUS_OK);
        room_wait(&room, 60 * NS_PER_S);
        room_answer(&room, STATUS_TIMEOUT);
        ck_assert_int_eq(room.err.rank, 1);
        room_says(&room.err, "R0 did not call rejoin");
        ck_assert_int_eq(g->members[1].state, MEMBER_ABSENT);
        ck_assert_int_eq(room_replace(&room, g, 1), STATUS_OK);
        room_lose(&room, g, 0);
        ck_assert_int_eq(g->state, GROUP_FAILED); /* the newcomer waits for whoever comes */
        ck_assert_int_eq(room_replace(&room, g, 0), STATUS_OK);
        room_expect_epoch(&room, g, 2, 3);
        room_close(&room);
}
END_TEST

START_TEST(those_who_disagree_hear_who_said_what) {
        struct room room;
        room_open(&room);
        struct group *g = room_fail(&room, 4);
        ck_assert_int_eq(room_reform(&room, g, 0, REFORM_SHRINK), STATUS_OK);
        ck_assert_int_eq(room_reform(&room, g, 1, REFORM_REJOIN), STATUS_OK);
        ck_assert_int_eq(room_reform(&room, g, 1, REFORM_SHRINK), STATUS_ALREADY_PENDING);
        room_says(&room.err, "R1 waits in rejoin already.");
        ck_assert(outcome_is_empty(&room.out));
        ck_assert_int_eq(room_reform(&room, g, 2, REFORM_SHRINK), STATUS_OK);
        for (int i = 0; i < 3; i++) {
                room_answer(&room, STATUS_MISMATCH);
                room_says(&room.err, "R1: rejoin; R0 R2: shrink");
        }
        ck_assert(outcome_is_empty(&room.out));
        ck_assert_uint_eq(g->n_reforms, 0);
        room_close(&room);
}
END_TEST

START_TEST(the_death_of_the_last_who_did_not_call_completes_a_shrink) {
        struct room room;
        room_open(&room);
        struct group *g = room_fail(&room, 4);
        for (uint32_t rank = 0; rank < 2; rank++)
                ck_assert_int_eq(room_reform(&room, g, rank, REFORM_SHRINK), STATUS_OK);
        room_lose(&room, g, 2);
        room_expect_epoch(&room, g, 2, 3);
        ck_assert_int_eq(room_leave(&room, g, 1), STATUS_OK);
        ck_assert_int_eq(room_reform(&room, g, 0, REFORM_SHRINK), STATUS_OK);
        room_expect_epoch(&room, g, 3, 1);
        room_close(&room);
}
END_TEST

START_TEST(who_leaves_while_it_waits_hears_LEFT) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        ck_assert_int_eq(room_reform(&room, g, 1, REFORM_REJOIN), STATUS_OK);
        ck_assert_int_eq(room_leave(&room, g, 1), STATUS_OK);
        room_answer(&room, STATUS_LEFT);
        ck_assert_int_eq(room_reform(&room, g, 1, REFORM_REJOIN), STATUS_LEFT);
        ck_assert(outcome_is_empty(&room.out));
        room_close(&room);
}
END_TEST

START_TEST(P3_the_epoch_goes_on_where_it_is_remembered) {
        struct room room;
        room_open(&room);
        struct join ask = room_ask("train", 2, 0);
        ask.last_epoch = 7;
        struct group *g = room_form_like(&room, ask);
        ck_assert_uint_eq(g->epoch, 8);
        room_round(&room, g, "k");
        room_close(&room);
}
END_TEST

UNIT_MAIN("rendezvous-reform", 10, K2_a_newcomer_and_all_survivors_begin_an_epoch,
        an_older_epoch_is_told_that_it_is_over, what_is_sealed_runs_on_beside_the_new_epoch,
        a_deadline_ends_one_wait_and_names_who_is_missing, a_newcomer_that_waits_in_vain_leaves_the_rank_free,
        those_who_disagree_hear_who_said_what, the_death_of_the_last_who_did_not_call_completes_a_shrink,
        who_leaves_while_it_waits_hears_LEFT, P3_the_epoch_goes_on_where_it_is_remembered)
