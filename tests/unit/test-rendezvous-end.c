/* Refusals, debts, abort (P3, P4, P8); death and leave (P5). */
#include "room.h"
#include "unit.h"

#define S NS_PER_S

static enum status abort_key(struct room *room, const struct group *g, uint32_t rank, const char *key) {
        const struct member *m = &g->members[rank];
        struct msg_abort ask = {
                .membership = m->id, .has_key = true, .key = room_key(key), .reason = "loss is NaN\n"
        };
        return rendezvous_abort(room->r, m->session, &ask, room->now_ns, &room->out, &room->err);
}

/* --- refusals --- */

START_TEST(A7_a_refused_half_ends_the_key_for_all) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 4, ON_DEATH_FAIL);
        ck_assert_int_eq(room_submit(&room, g, 0, "k"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 1, "k"), STATUS_OK);
        ck_assert_int_eq(room_refuse(&room, g, 2, "k"), STATUS_BAD_FD);
        ck_assert_int_eq(room.err.status, STATUS_BAD_FD); /* the refused one keeps its own */
        ck_assert_str_eq(room.err.group, "train");
        ck_assert_int_eq(room.err.rank, 2);
        struct meeting *m = room_ended(&room, STATUS_PEER_REFUSED);
        ck_assert_int_eq(m->error->rank, 2);
        ck_assert_int_eq(m->error->cause, STATUS_BAD_FD);
        ck_assert_int_eq(m->error->field, FIELD_BUFFER);
        ck_assert_str_eq(m->error->detail, "opened read-only");
        ck_assert_uint_eq(m->error->replicas[0].pid, 4702);
        ck_assert_uint_eq(m->have.words[0], 3);
        room_release(&room, m);
        ck_assert_uint_eq(g->n_debts, 1);
        ck_assert_int_eq(room_submit(&room, g, 3, "k"), STATUS_EXPIRED); /* came later */
        ck_assert_int_eq(room.err.cause, STATUS_PEER_REFUSED);
        ck_assert_int_eq(room.err.rank, 2);
        room_round(&room, g, "k"); /* R2 owes nothing: it had used the key */
        room_close(&room);
}
END_TEST

START_TEST(a_refusal_before_anybody_came_is_owed_by_the_rest) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 3, ON_DEATH_FAIL);
        ck_assert_int_eq(room_refuse(&room, g, 2, "k"), STATUS_BAD_FD);
        ck_assert(outcome_is_empty(&room.out));
        ck_assert_int_eq(room_refuse(&room, g, 0, "k"), STATUS_BAD_FD); /* pays, and spreads nothing */
        ck_assert_uint_eq(g->n_debts, 1);
        ck_assert_int_eq(room_submit(&room, g, 2, "k"), STATUS_OK); /* the retry waits for R0 and R1 */
        ck_assert_int_eq(room_submit(&room, g, 1, "k"), STATUS_EXPIRED);
        ck_assert_uint_eq(g->n_debts, 0);
        ck_assert_int_eq(room_submit(&room, g, 0, "k"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 1, "k"), STATUS_OK);
        room_finish(&room, room_take(&room.out.sealed));
        room_close(&room);
}
END_TEST

START_TEST(O4_the_limit_of_pending_is_a_refusal) {
        struct room room;
        struct rendezvous_settings settings = room_settings();
        struct quota_limits limits = { .groups = 8, .pending = 2, .memory_bytes = 1 << 30 };
        room_open_with(&room, &settings, &limits);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        ck_assert_int_eq(room_submit(&room, g, 1, "a"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 0, "b"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 0, "a"), STATUS_QUOTA);
        ck_assert_str_eq(room.err.detail, "pending");
        ck_assert_uint_eq(room.err.used, 2);
        ck_assert_uint_eq(room.err.limit, 2);
        struct meeting *m = room_ended(&room, STATUS_PEER_REFUSED);
        ck_assert_int_eq(m->error->cause, STATUS_QUOTA);
        room_release(&room, m);
        ck_assert_int_eq(room_submit(&room, g, 1, "b"), STATUS_OK);
        room_finish(&room, room_take(&room.out.sealed));
        room_round(&room, g, "a");
        room_close(&room);
}
END_TEST

/* The half fits and its meeting does not. */
START_TEST(O4_the_limit_of_memory_is_a_refusal) {
        struct room room;
        struct rendezvous_settings settings = room_settings();
        struct quota_limits limits = { .groups = 8, .pending = 8, .memory_bytes = 1 << 30 };
        room_open_with(&room, &settings, &limits);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        uint64_t empty = quota_used(room.quotas, 1000, QUOTA_MEMORY_BYTES);
        ck_assert_int_eq(room_submit(&room, g, 0, "a"), STATUS_OK);
        uint64_t one = quota_used(room.quotas, 1000, QUOTA_MEMORY_BYTES) - empty;
        ck_assert_uint_gt(one, sizeof(struct meeting) + sizeof(struct half));
        limits.memory_bytes = empty + 2 * one - 1;
        quotas_set_limits(room.quotas, &limits);
        ck_assert_int_eq(room_submit(&room, g, 0, "b"), STATUS_QUOTA);
        ck_assert_str_eq(room.err.detail, "memory-bytes");
        ck_assert_uint_eq(quota_used(room.quotas, 1000, QUOTA_MEMORY_BYTES), empty + one);
        ck_assert_uint_eq(quota_used(room.quotas, 1000, QUOTA_PENDING), 2); /* with R1's debt */
        ck_assert_int_eq(room_submit(&room, g, 1, "a"), STATUS_OK);
        room_finish(&room, room_take(&room.out.sealed));
        ck_assert_uint_eq(quota_used(room.quotas, 1000, QUOTA_MEMORY_BYTES), empty);
        room_close(&room);
}
END_TEST

/* What is too large to be freed at once is handed out, and charged until then. */
START_TEST(large_halves_are_freed_elsewhere) {
        struct room room;
        room_open(&room);
        struct half *halves[4], *half;
        struct error err;
        for (int i = 0; i < 4; i++) {
                halves[i] = rendezvous_half_new(room.r, MAX_ENTRIES);
                halves[i]->signature.n_entries = MAX_ENTRIES;
                ck_assert_int_eq(rendezvous_half_charge(room.r, halves[i], 1000, &err), STATUS_OK);
        }
        uint64_t each = quota_used(room.quotas, 1000, QUOTA_MEMORY_BYTES) / 4;
        ck_assert_uint_ge(each, MAX_ENTRIES * sizeof(struct entry));
        for (int i = 0; i < 4; i++)
                rendezvous_half_free(room.r, halves[i]);
        ck_assert_uint_eq(quota_used(room.quotas, 1000, QUOTA_PENDING), 0);
        int n = 0;
        for (; (half = rendezvous_take_buried(room.r)); n++) {
                ck_assert_uint_eq(charge_uid(&half->memory), 1000);
                charge_release(&half->memory);
                rendezvous_half_unmake(half);
        }
        ck_assert_int_ge(n, 1); /* the others are in the pool */
        ck_assert_uint_eq(quota_used(room.quotas, 1000, QUOTA_MEMORY_BYTES), 0);
        room_close(&room);
}
END_TEST

/* --- debts --- */

static void time_out(struct room *room, const struct group *g, uint32_t rank, const char *key) {
        ck_assert_int_eq(room_submit_timeout(room, g, rank, key, 1), STATUS_OK);
        room_wait(room, 1);
        room_end_is(room, STATUS_TIMEOUT);
}

START_TEST(debts_of_one_key_are_paid_oldest_first) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        time_out(&room, g, 0, "k");
        ck_assert_int_eq(room_submit(&room, g, 0, "k"), STATUS_OK);
        ck_assert_int_eq(abort_key(&room, g, 0, "k"), STATUS_OK);
        room_end_is(&room, STATUS_ABORTED);
        time_out(&room, g, 0, "other");
        ck_assert_uint_eq(g->n_debts, 3);
        ck_assert_uint_eq(quota_used(room.quotas, 1000, QUOTA_PENDING), 3);
        ck_assert_int_eq(room_submit(&room, g, 0, "k"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 1, "k"), STATUS_EXPIRED);
        ck_assert_int_eq(room.err.cause, STATUS_TIMEOUT);
        ck_assert_int_eq(room_submit(&room, g, 1, "k"), STATUS_EXPIRED);
        ck_assert_int_eq(room.err.cause, STATUS_ABORTED);
        ck_assert_str_eq(room.err.detail, "loss is NaN?");
        ck_assert_int_eq(room_submit(&room, g, 1, "k"), STATUS_OK);
        room_finish(&room, room_take(&room.out.sealed));
        ck_assert_uint_eq(g->n_debts, 1);
        room_close(&room);
}
END_TEST

START_TEST(at_4096_debts_the_oldest_debtors_are_ejected) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 3, ON_DEATH_SHRINK);
        ck_assert_int_eq(room_refuse(&room, g, 0, "first"), STATUS_BAD_FD); /* owed by R1 and R2 */
        for (int i = 1; i < MAX_DEBT_RECORDS; i++)
                ck_assert_int_eq(room_refuse(&room, g, 0, "k"), STATUS_BAD_FD);
        ck_assert_int_eq(room_submit(&room, g, 1, "first"), STATUS_EXPIRED);
        ck_assert_uint_eq(g->n_debts, MAX_DEBT_RECORDS);
        ck_assert(outcome_is_empty(&room.out));
        ck_assert_int_eq(room_refuse(&room, g, 0, "last"), STATUS_BAD_FD);
        struct list *link = list_take_first(&room.out.ejected);
        ck_assert_ptr_eq(link, &g->members[2].outcome_link); /* R1 has paid the oldest */
        ck_assert(list_is_empty(&room.out.ejected));
        ck_assert_ptr_nonnull(strstr(g->members[2].why, "out of step"));
        ck_assert_uint_eq(g->n_debts, MAX_DEBT_RECORDS);
        rendezvous_lose(room.r, 102, LOSS_EJECTED, g->members[2].why, room.now_ns, &room.out);
        rendezvous_lose(room.r, 101, LOSS_DIED, "", room.now_ns, &room.out);
        ck_assert_uint_eq(g->n_debts, 0); /* they go with their debtors */
        ck_assert_uint_eq(quota_used(room.quotas, 1000, QUOTA_PENDING), 0);
        room_round(&room, g, "k");
        room_close(&room);
}
END_TEST

START_TEST(a_debt_without_room_ejects_its_debtors) {
        struct room room;
        struct rendezvous_settings settings = room_settings();
        struct quota_limits limits = { .groups = 8, .pending = 1, .memory_bytes = 1 << 30 };
        room_open_with(&room, &settings, &limits);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        ck_assert_int_eq(room_refuse(&room, g, 0, "a"), STATUS_BAD_FD);
        ck_assert(outcome_is_empty(&room.out));
        ck_assert_int_eq(room_refuse(&room, g, 0, "b"), STATUS_BAD_FD);
        ck_assert_ptr_eq(list_take_first(&room.out.ejected), &g->members[1].outcome_link);
        ck_assert_uint_eq(g->n_debts, 1);
        room_close(&room);
}
END_TEST

/* --- abort --- */

START_TEST(A8_abort_ends_a_key_for_all) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 4, ON_DEATH_FAIL);
        for (uint32_t rank = 1; rank < 4; rank++)
                ck_assert_int_eq(room_submit(&room, g, rank, "k"), STATUS_OK);
        uint64_t before = 0;
        ck_assert_int_eq(abort_key(&room, g, 0, "k"), STATUS_OK);
        struct meeting *m = room_ended(&room, STATUS_ABORTED);
        ck_assert_int_eq(m->error->rank, 0);
        ck_assert_str_eq(m->error->detail, "loss is NaN?");
        ck_assert_uint_eq(m->n_halves, 3);
        room_says(m->error, "R0");
        room_says(m->error, "loss is NaN?");
        room_release(&room, m);
        ck_assert_uint_eq(quota_used(room.quotas, 1000, QUOTA_PENDING), before + 1); /* R0's debt */
        ck_assert_int_eq(room_submit(&room, g, 0, "k"), STATUS_EXPIRED);
        room_round(&room, g, "k");
        room_close(&room);
}
END_TEST

START_TEST(abort_needs_a_key_that_waits) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 1, ON_DEATH_FAIL);
        ck_assert_int_eq(abort_key(&room, g, 0, "k"), STATUS_NOT_FOUND);
        ck_assert_int_eq(room_submit(&room, g, 0, "k"), STATUS_OK);
        struct meeting *m = room_take(&room.out.sealed);
        ck_assert_int_eq(abort_key(&room, g, 0, "k"), STATUS_BUSY);
        room_finish(&room, m);
        struct msg_abort nameless = { .membership = g->members[0].id, .reason = "" };
        ck_assert_int_eq(
                rendezvous_abort(room.r, 100, &nameless, room.now_ns, &room.out, &room.err), STATUS_INVALID);
        ck_assert_int_eq(room.err.field, FIELD_KEY);
        room_close(&room);
}
END_TEST

/* --- on_death=fail --- */

START_TEST(C1_C3_a_death_fails_the_group_and_is_named) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 4, ON_DEATH_FAIL);
        room_round(&room, g, "grad/7");
        ck_assert_int_eq(room_submit(&room, g, 0, "grad/8"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 2, "grad/8"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 3, "grad/9"), STATUS_OK);
        room.now_ns += 7;
        room_lose(&room, g, 2);
        ck_assert_int_eq(g->state, GROUP_FAILED);
        struct meeting *m = room_ended(&room, STATUS_REPLICA_LOST);
        ck_assert_int_eq(m->error->rank, 2);
        ck_assert_int_eq(m->error->loss, LOSS_DIED);
        ck_assert_uint_eq(m->error->have.words[0], 1);
        ck_assert_uint_eq(m->error->missing.words[0], 10);
        ck_assert_uint_eq(m->error->replicas[0].pid, 4702);
        ck_assert_uint_eq(m->error->replicas[0].uid, 1000);
        ck_assert_int_eq(m->error->replicas[0].state, PROCESS_DEAD);
        room_says(m->error, "R2");
        room_says(m->error, "pid 4702");
        room_says(m->error, "last finished \"grad/7\"");
        room_says(m->error, "\"grad/8\"");
        room_release(&room, m);
        m = room_ended(&room, STATUS_REPLICA_LOST);
        ck_assert_uint_eq(m->error->missing.words[0], 7);
        room_release(&room, m);
        room.now_ns += 4 * NS_PER_MS;
        ck_assert_int_eq(room_submit(&room, g, 0, "grad/9"), STATUS_REPLICA_LOST);
        ck_assert_int_eq(room.err.rank, 2);
        ck_assert_uint_eq(room.err.age_ns, 4 * NS_PER_MS);
        ck_assert_uint_eq(room.err.replicas[0].pid, 4702);
        room_says(&room.err, "pid 4702");
        ck_assert_uint_eq(g->n_debts + g->n_meetings, 0);
        for (uint32_t rank = 0; rank < 4; rank++)
                room_lose(&room, g, rank);
        room_over(&room);
        ck_assert_uint_eq(quota_users(room.quotas), 0);
        room_close(&room);
}
END_TEST

START_TEST(a_failed_group_owes_nothing) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 3, ON_DEATH_FAIL);
        time_out(&room, g, 0, "k");
        ck_assert_uint_eq(g->n_debts, 1);
        ck_assert_int_eq(room_submit(&room, g, 0, "x"), STATUS_OK);
        room_lose(&room, g, 2);
        room_end_is(&room, STATUS_REPLICA_LOST);
        ck_assert_uint_eq(g->n_debts, 0);
        ck_assert_int_eq(room_refuse(&room, g, 1, "y"), STATUS_REPLICA_LOST);
        ck_assert_uint_eq(g->n_debts, 0);
        room_close(&room);
}
END_TEST

START_TEST(what_differs_by_then_is_told_with_the_loss) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 3, ON_DEATH_FAIL);
        struct half *odd = room_half(&room, g, 1, "k");
        odd->signature.op = OP_MAX;
        ck_assert_int_eq(room_submit(&room, g, 0, "k"), STATUS_OK);
        ck_assert_int_eq(room_submit_half(&room, odd), STATUS_OK);
        rendezvous_lose(room.r, 102, LOSS_DISCONNECTED, "closed its socket", room.now_ns, &room.out);
        struct meeting *m = room_ended(&room, STATUS_REPLICA_LOST);
        ck_assert_int_eq(m->error->loss, LOSS_DISCONNECTED);
        ck_assert_str_eq(m->error->detail, "closed its socket");
        ck_assert_int_eq(m->error->field, FIELD_OP);
        ck_assert_str_eq(m->error->classes[1].value, "MAX");
        room_release(&room, m);
        room_close(&room);
}
END_TEST

START_TEST(what_is_sealed_runs_to_its_end_with_the_dead) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        ck_assert_int_eq(room_submit(&room, g, 0, "k"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 1, "k"), STATUS_OK);
        struct meeting *m = room_take(&room.out.sealed);
        room_lose(&room, g, 1);
        ck_assert(outcome_is_empty(&room.out));
        ck_assert_int_eq(m->state, MEETING_SEALED);
        ck_assert_uint_eq(m->n_halves, 2);
        room_finish(&room, m);
        ck_assert(g->members[0].has_last && !g->members[1].has_last);
        room_close(&room);
}
END_TEST

/* --- on_death=shrink, leave --- */

START_TEST(K2_shrink_seals_with_the_rest) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 4, ON_DEATH_SHRINK);
        for (uint32_t rank = 0; rank < 3; rank++)
                ck_assert_int_eq(room_submit(&room, g, rank, "waits for R3"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 3, "has R3"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 3, "only R3"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 0, "has R3"), STATUS_OK);
        room_lose(&room, g, 3);
        ck_assert_int_eq(g->state, GROUP_WHOLE);
        ck_assert_uint_eq(g->epoch, 1);
        struct meeting *m = room_take(&room.out.sealed);
        ck_assert_uint_eq(m->have.words[0], 7);
        ck_assert_uint_eq(m->divisor, 3);
        room_free_struck(&room);
        room_free_struck(&room);
        ck_assert(outcome_is_empty(&room.out));
        ck_assert_uint_eq(g->n_meetings, 2); /* one runs, one waits; "only R3" is gone */
        ck_assert_uint_eq(quota_used(room.quotas, 1000, QUOTA_PENDING), 4);
        room_finish(&room, m);
        ck_assert_int_eq(room_submit(&room, g, 1, "has R3"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 2, "has R3"), STATUS_OK);
        m = room_take(&room.out.sealed);
        ck_assert_uint_eq(m->number, 2);
        ck_assert_uint_eq(m->last_rank, 2);
        room_finish(&room, m);
        room_close(&room);
}
END_TEST

START_TEST(shrink_compares_what_the_rest_said) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 3, ON_DEATH_SHRINK);
        struct half *odd = room_half(&room, g, 1, "k");
        odd->entries[0].dtype = DTYPE_F64;
        ck_assert_int_eq(room_submit(&room, g, 0, "k"), STATUS_OK);
        ck_assert_int_eq(room_submit_half(&room, odd), STATUS_OK);
        room_lose(&room, g, 2);
        room_end_is(&room, STATUS_MISMATCH);
        room_close(&room);
}
END_TEST

static enum status submit_op(
        struct room *room, const struct group *g, uint32_t rank, const char *key, enum op op) {
        struct half *half = room_half(room, g, rank, key);
        half->signature.op = op;
        return room_submit_half(room, half);
}

/* Whoever goes, and in whatever order they came: equal is equal, and what differs is told. */
START_TEST(shrink_compares_the_rest_whoever_was_compared_with_before) {
        static const enum op ops[][5] = { { OP_SUM, OP_SUM, OP_MAX, OP_MAX, OP_MAX },
                { OP_MAX, OP_SUM, OP_MAX, OP_MAX, OP_MAX }, { OP_SUM, OP_MAX, OP_MIN, OP_MAX, OP_MAX },
                { OP_SUM, OP_SUM, OP_SUM, OP_MAX, OP_SUM } };
        for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
                for (uint32_t lost = 0; lost < 1u << 4;
                        lost++) { /* a set of the ranks 0 to 3; R4 comes last */
                        struct room room;
                        room_open(&room);
                        struct group *g = room_form(&room, 5, ON_DEATH_SHRINK);
                        bool is_equal = true;
                        for (uint32_t rank = 0; rank < 4; rank++)
                                ck_assert_int_eq(submit_op(&room, g, rank, "k", ops[i][rank]), STATUS_OK);
                        for (uint32_t rank = 0; rank < 4; rank++)
                                if (lost >> rank & 1) {
                                        room_lose(&room, g, rank);
                                        room_free_struck(&room);
                                } else {
                                        is_equal &= ops[i][rank] == ops[i][4];
                                }
                        ck_assert_int_eq(submit_op(&room, g, 4, "k", ops[i][4]), STATUS_OK);
                        if (is_equal)
                                room_finish(&room, room_take(&room.out.sealed));
                        else
                                room_end_is(&room, STATUS_MISMATCH);
                        room_close(&room);
                }
}
END_TEST

/* P21: what one death may have to end at once is bounded. */
START_TEST(a_group_has_at_most_16384_unfinished_collectives) {
        struct room room;
        char key[16];
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        for (int i = 0; i < MAX_GROUP_MEETINGS; i++) {
                snprintf(key, sizeof(key), "k%d", i);
                ck_assert_int_eq(room_submit(&room, g, 0, key), STATUS_OK);
        }
        ck_assert_int_eq(room_submit(&room, g, 0, "one more"), STATUS_LIMIT);
        ck_assert_uint_eq(room.err.limit, MAX_GROUP_MEETINGS);
        room_says(&room.err, "unfinished collectives of one group");
        ck_assert_int_eq(room_submit(&room, g, 1, "one more"), STATUS_EXPIRED);
        ck_assert_int_eq(room_submit(&room, g, 1, "k0"), STATUS_OK); /* those that are there go on */
        room_finish(&room, room_take(&room.out.sealed));
        room_round(&room, g, "one more");
        room_close(&room);
}
END_TEST

START_TEST(a_struck_deadline_is_nobodys) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 3, ON_DEATH_SHRINK);
        ck_assert_int_eq(room_submit_timeout(&room, g, 0, "k", 10 * S), STATUS_OK);
        ck_assert_int_eq(room_submit_timeout(&room, g, 2, "k", S), STATUS_OK);
        room_lose(&room, g, 2);
        room_free_struck(&room);
        room_wait(&room, 2 * S);
        ck_assert(outcome_is_empty(&room.out));
        ck_assert_int_eq(room_submit(&room, g, 1, "k"), STATUS_OK);
        room_finish(&room, room_take(&room.out.sealed));
        room_close(&room);
}
END_TEST

START_TEST(two_memberships_of_one_session_go_together) {
        struct room room;
        room_open(&room);
        struct group *g;
        for (uint32_t rank = 0; rank < 4; rank++) {
                struct join ask = room_ask("train", 4, rank);
                ask.session = rank < 2 ? 7 : 100 + rank;
                ask.ask.on_death = ON_DEATH_SHRINK;
                ck_assert_int_eq(room_join(&room, ask), STATUS_OK);
        }
        g = room_take_group(&room.out.formed);
        for (uint32_t rank = 0; rank < 3; rank++)
                ck_assert_int_eq(room_submit(&room, g, rank, "k"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 1, "x"), STATUS_OK);
        rendezvous_lose(room.r, 7, LOSS_DIED, "", room.now_ns, &room.out);
        ck_assert(list_is_empty(&room.out.sealed)); /* R3 is still missing */
        for (int i = 0; i < 3; i++)
                room_free_struck(&room);
        ck_assert_uint_eq(g->n_meetings, 1);
        ck_assert_int_eq(room_submit(&room, g, 3, "k"), STATUS_OK);
        struct meeting *m = room_take(&room.out.sealed);
        ck_assert_uint_eq(m->have.words[0], 12);
        room_finish(&room, m);
        room_close(&room);
}
END_TEST

START_TEST(C6_C7_who_leaves_is_not_waited_for) {
        static const struct {
                enum on_leave on_leave;
                uint32_t divisor;
        } cases[] = { { ON_LEAVE_CONTRIBUTORS, 3 }, { ON_LEAVE_ZERO_FILL, 4 } };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct room room;
                room_open(&room);
                struct join ask = room_ask("train", 4, 0);
                ask.ask.on_leave = cases[i].on_leave;
                struct group *g = room_form_like(&room, ask);
                room_round(&room, g, "step/100");
                for (uint32_t rank = 0; rank < 3; rank++)
                        ck_assert_int_eq(room_submit(&room, g, rank, "step/101"), STATUS_OK);
                ck_assert_int_eq(room_leave(&room, g, 3), STATUS_OK);
                ck_assert_int_eq(g->state, GROUP_WHOLE); /* on_death=fail is about deaths */
                struct meeting *m = room_take(&room.out.sealed);
                ck_assert_uint_eq(m->n_halves, 3);
                ck_assert_uint_eq(m->divisor, cases[i].divisor);
                room_finish(&room, m);
                for (int step = 0; step < 19; step++)
                        room_round(&room, g, "step");
                ck_assert_int_eq(g->members[3].state, MEMBER_LEFT);
                room_close(&room);
        }
}
END_TEST

START_TEST(a_root_that_is_gone_is_invalid_for_all) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 4, ON_DEATH_FAIL);
        ck_assert_int_eq(room_submit_root(&room, g, 0, "b", 3), STATUS_OK);
        ck_assert_int_eq(room_submit_root(&room, g, 3, "b", 3), STATUS_OK);
        ck_assert_int_eq(room_leave(&room, g, 3), STATUS_OK);
        struct meeting *m = room_ended(&room, STATUS_INVALID);
        ck_assert_int_eq(m->error->field, FIELD_ROOT);
        ck_assert_int_eq(m->error->rank, 3);
        ck_assert_int_eq(m->error->loss, LOSS_WENT);
        ck_assert_uint_eq(m->have.words[0], 1);
        room_says(m->error, "root R3 has left");
        room_release(&room, m);
        room_free_struck(&room);
        ck_assert_int_eq(room_submit_root(&room, g, 1, "b", 0), STATUS_EXPIRED);
        ck_assert_int_eq(room.err.cause, STATUS_INVALID);
        /* From now on it is refused, for all. */
        ck_assert_int_eq(room_submit_root(&room, g, 0, "c", 0), STATUS_OK);
        ck_assert_int_eq(room_submit_root(&room, g, 1, "c", 3), STATUS_INVALID);
        ck_assert_int_eq(room.err.field, FIELD_ROOT);
        m = room_ended(&room, STATUS_PEER_REFUSED);
        ck_assert_int_eq(m->error->cause, STATUS_INVALID);
        room_release(&room, m);
        room_close(&room);
}
END_TEST

/* Each hears of it in the same way, whether it waited or comes later, and nobody is owed anything. */
START_TEST(P5_a_merge_function_that_is_gone_with_its_replica_is_a_loss_for_all) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 4, ON_DEATH_SHRINK);
        ck_assert_int_eq(room_submit_merge(&room, g, 1, "m", 0), STATUS_OK);
        rendezvous_lose(room.r, 100, LOSS_DIED, "", room.now_ns, &room.out);
        struct meeting *m = room_ended(&room, STATUS_REPLICA_LOST);
        ck_assert_int_eq(m->error->rank, 0);
        ck_assert_int_eq(m->error->loss, LOSS_DIED);
        room_says(m->error, "merge function");
        room_release(&room, m);
        for (uint32_t rank = 2; rank < 4; rank++) {
                ck_assert_int_eq(room_submit_merge(&room, g, rank, "m", 0), STATUS_REPLICA_LOST);
                ck_assert_int_eq(room.err.rank, 0);
                ck_assert_int_eq(room.err.loss, LOSS_DIED);
                ck_assert_uint_eq(room.err.replicas[0].pid, 4700);
        }
        ck_assert(outcome_is_empty(&room.out));
        for (uint32_t rank = 1; rank < 4; rank++)
                ck_assert_int_eq(room_submit(&room, g, rank, "m"), STATUS_OK);
        room_finish(&room, room_take(&room.out.sealed));
        room_close(&room);
}
END_TEST

START_TEST(a_group_is_over_when_its_last_member_is_gone) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        ck_assert_int_eq(room_submit(&room, g, 1, "k"), STATUS_OK);
        ck_assert_int_eq(room_leave(&room, g, 0), STATUS_OK);
        struct meeting *m = room_take(&room.out.sealed); /* R1 alone is all there is */
        ck_assert_uint_eq(m->n_halves, 1);
        ck_assert_int_eq(room_leave(&room, g, 1), STATUS_OK);
        ck_assert_int_eq(g->state, GROUP_ENDED);
        ck_assert_uint_eq(rendezvous_n_groups(room.r), 0);
        ck_assert(outcome_is_empty(&room.out)); /* it still runs */
        room_finish(&room, m);
        room_over(&room);
        ck_assert_uint_eq(quota_users(room.quotas), 0);
        ck_assert_uint_eq(rendezvous_next_ns(room.r), ALARM_NEVER);
        room_close(&room);
}
END_TEST

/* Whatever becomes of the group; of those who joined it, and of no one else. */
START_TEST(L6_who_is_lost_is_counted_for_its_user_by_reason) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 4, ON_DEATH_SHRINK);
        ck_assert_int_eq(room_leave(&room, g, 3), STATUS_OK);
        ck_assert_uint_eq(quota_losses(room.quotas, 1000, LOSS_DIED), 0);
        room_lose(&room, g, 2);
        ck_assert_uint_eq(quota_losses(room.quotas, 1000, LOSS_DIED), 1);
        rendezvous_lose(room.r, 101, LOSS_EJECTED, "why", room.now_ns, &room.out);
        rendezvous_lose(room.r, 100, LOSS_DISCONNECTED, NULL, room.now_ns, &room.out);
        rendezvous_lose(
                room.r, 100, LOSS_DIED, NULL, room.now_ns, &room.out); /* it has no more memberships */
        room_over(&room);
        ck_assert_uint_eq(rendezvous_n_groups(room.r), 0);
        ck_assert_uint_eq(quota_losses(room.quotas, 1000, LOSS_DIED), 1);
        ck_assert_uint_eq(quota_losses(room.quotas, 1000, LOSS_DISCONNECTED), 1);
        ck_assert_uint_eq(quota_losses(room.quotas, 1000, LOSS_EJECTED), 1);
        room_close(&room);
}
END_TEST

UNIT_MAIN("rendezvous-end", 20, A7_a_refused_half_ends_the_key_for_all,
        a_refusal_before_anybody_came_is_owed_by_the_rest, O4_the_limit_of_pending_is_a_refusal,
        O4_the_limit_of_memory_is_a_refusal, large_halves_are_freed_elsewhere,
        debts_of_one_key_are_paid_oldest_first, at_4096_debts_the_oldest_debtors_are_ejected,
        a_debt_without_room_ejects_its_debtors, A8_abort_ends_a_key_for_all, abort_needs_a_key_that_waits,
        C1_C3_a_death_fails_the_group_and_is_named, a_failed_group_owes_nothing,
        what_differs_by_then_is_told_with_the_loss, what_is_sealed_runs_to_its_end_with_the_dead,
        K2_shrink_seals_with_the_rest, shrink_compares_what_the_rest_said,
        shrink_compares_the_rest_whoever_was_compared_with_before,
        a_group_has_at_most_16384_unfinished_collectives, a_struck_deadline_is_nobodys,
        two_memberships_of_one_session_go_together, C6_C7_who_leaves_is_not_waited_for,
        a_root_that_is_gone_is_invalid_for_all,
        P5_a_merge_function_that_is_gone_with_its_replica_is_a_loss_for_all,
        a_group_is_over_when_its_last_member_is_gone, L6_who_is_lost_is_counted_for_its_user_by_reason)
