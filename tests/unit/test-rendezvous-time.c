/* Deadlines, busy, stalls (P6). */
#include "room.h"
#include "unit.h"

#define S NS_PER_S

static void busy(struct room *room, const struct group *g, uint32_t rank, const char *why, uint64_t ns) {
        const struct member *m = &g->members[rank];
        struct msg_busy ask = { .membership = m->id, .why = why, .duration_ns = ns };
        ck_assert_int_eq(
                rendezvous_busy(room->r, m->session, &ask, room->now_ns, &room->out, &room->err), STATUS_OK);
}

static struct group *form_with_timeout(struct room *room, uint32_t world_size, uint64_t timeout_ns) {
        struct join ask = room_ask("train", world_size, 0);
        ask.ask.has_default_timeout = true;
        ask.ask.default_timeout_ns = timeout_ns;
        return room_form_like(room, ask);
}

START_TEST(A1_a_timeout_names_the_missing_and_the_late_one_hears_why) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 4, ON_DEATH_FAIL);
        room_round(&room, g, "grad/6");
        for (uint32_t rank = 0; rank < 3; rank++) {
                ck_assert_int_eq(
                        room_submit_timeout(&room, g, rank, "grad/7", rank == 1 ? 2 * S : 3 * S), STATUS_OK);
                room.now_ns += 1000;
        }
        ck_assert_uint_eq(rendezvous_next_ns(room.r), room.now_ns - 2000 + 2 * S);
        room_wait(&room, 2 * S - 2001);
        ck_assert(outcome_is_empty(&room.out));
        room_wait(&room, 1);
        struct meeting *m = room_ended(&room, STATUS_TIMEOUT);
        ck_assert_int_eq(m->error->rank, 1); /* whose deadline it was */
        ck_assert_uint_eq(m->error->age_ns, 2 * S);
        ck_assert_uint_eq(m->error->have.words[0], 7);
        ck_assert_uint_eq(m->error->missing.words[0], 8);
        ck_assert_uint_eq(m->error->n_replicas, 1);
        ck_assert_uint_eq(m->error->replicas[0].rank, 3);
        ck_assert_uint_eq(m->error->replicas[0].pid, 4703);
        struct key last = room_key("grad/6");
        ck_assert(m->error->replicas[0].has_last && key_is_equal(&m->error->replicas[0].last_key, &last));
        ck_assert_uint_eq(m->error->replicas[0].last_age_ns, 2 * S + 1000);
        room_says(m->error, "last finished \"grad/6\"");
        room_release(&room, m);
        ck_assert_uint_eq(g->n_debts, 1);
        room.now_ns += S;
        ck_assert_int_eq(room_submit(&room, g, 3, "grad/7"), STATUS_EXPIRED);
        ck_assert_int_eq(room.err.cause, STATUS_TIMEOUT);
        ck_assert_int_eq(room.err.rank, 1);
        ck_assert_uint_eq(room.err.age_ns, S);
        ck_assert_uint_eq(room.err.missing.words[0], 8);
        room_says(&room.err, "R1 had waited as long as its limit allows, for R3.");
        ck_assert_uint_eq(g->n_debts, 0);
        room_round(&room, g, "grad/7"); /* P7 */
        room_close(&room);
}
END_TEST

START_TEST(call_over_group_over_config_and_zero_is_none) {
        static const struct {
                bool has_call, has_group;
                uint64_t call, group, deadline;
        } cases[] = {
                { false, false, 0, 0, 600 * S },
                { false, true, 0, 7 * S, 7 * S },
                { false, true, 0, 0, ALARM_NEVER },
                { true, true, 3 * S, 7 * S, 3 * S },
                { true, true, 0, 7 * S, ALARM_NEVER },
                { true, false, UINT64_MAX, 0, ALARM_NEVER },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct room room;
                room_open(&room);
                struct join ask = room_ask("train", 2, 0);
                ask.ask.has_default_timeout = cases[i].has_group;
                ask.ask.default_timeout_ns = cases[i].group;
                struct group *g = room_form_like(&room, ask);
                struct half *half = room_half(&room, g, 0, "k");
                half->has_timeout = cases[i].has_call;
                half->timeout_ns = cases[i].call;
                ck_assert_int_eq(room_submit_half(&room, half), STATUS_OK);
                uint64_t deadline = cases[i].deadline;
                ck_assert_uint_eq(
                        half->deadline_ns, deadline == ALARM_NEVER ? deadline : room.now_ns + deadline);
                ck_assert_int_eq(half->deadline_is_soft, !cases[i].has_call);
                room_close(&room);
        }
}
END_TEST

START_TEST(what_waited_for_its_buffers_has_used_that_time) {
        struct room room;
        room_open(&room);
        struct group *g = form_with_timeout(&room, 2, 2 * S);
        struct half *half = room_half(&room, g, 0, "k");
        half->held_ns = S / 2;
        ck_assert_int_eq(room_submit_half(&room, half), STATUS_OK);
        ck_assert_uint_eq(rendezvous_next_ns(room.r), room.now_ns + 3 * S / 2);
        room_wait(&room, 3 * S / 2);
        struct meeting *m = room_ended(&room, STATUS_TIMEOUT);
        ck_assert_uint_eq(m->error->age_ns, 2 * S); /* one budget (P6) */
        room_release(&room, m);
        room_close(&room);
}
END_TEST

START_TEST(a_deadline_does_not_end_what_is_sealed) {
        struct room room;
        room_open(&room);
        struct group *g = form_with_timeout(&room, 2, S);
        ck_assert_int_eq(room_submit(&room, g, 0, "k"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 1, "k"), STATUS_OK);
        struct meeting *m = room_take(&room.out.sealed);
        room_wait(&room, 10 * S);
        ck_assert(outcome_is_empty(&room.out));
        room_finish(&room, m);
        ck_assert_uint_eq(rendezvous_next_ns(room.r), ALARM_NEVER);
        room_close(&room);
}
END_TEST

START_TEST(what_differs_by_then_is_told_with_the_timeout) {
        struct room room;
        room_open(&room);
        struct group *g = form_with_timeout(&room, 3, S);
        struct half *odd = room_half(&room, g, 1, "k");
        odd->entries[0].shape[0] = 5;
        ck_assert_int_eq(room_submit(&room, g, 0, "k"), STATUS_OK);
        ck_assert_int_eq(room_submit_half(&room, odd), STATUS_OK);
        room_wait(&room, S);
        struct meeting *m = room_ended(&room, STATUS_TIMEOUT);
        ck_assert_int_eq(m->error->field, FIELD_SHAPE);
        ck_assert_uint_eq(m->error->n_classes, 2);
        ck_assert_str_eq(m->error->classes[1].value, "f32[5]");
        room_says(m->error, "f32[5]");
        room_release(&room, m);
        room_close(&room);
}
END_TEST

#define N_AT_ONCE 1000
#define A_CALL    64 /* and no more, of what is due */

/* In one call they would keep everybody else waiting. */
START_TEST(P21_what_is_due_at_once_ends_in_parts_and_stays_due) {
        struct room room;
        uint32_t n_ended = 0, n_calls = 0;
        room_open(&room);
        struct group *g = form_with_timeout(&room, 2, 2 * S);
        for (uint32_t i = 0; i < N_AT_ONCE; i++) {
                char key[16];
                snprintf(key, sizeof(key), "%u", i);
                ck_assert_int_eq(room_submit(&room, g, 0, key), STATUS_OK);
        }
        room.now_ns += 2 * S;
        for (; rendezvous_next_ns(room.r) <= room.now_ns; n_calls++) {
                uint32_t n = n_ended;
                struct meeting *m;
                rendezvous_expire(room.r, room.now_ns, &room.out);
                while ((m = room_take(&room.out.ended))) {
                        ck_assert_int_eq(m->status, STATUS_TIMEOUT);
                        room_release(&room, m);
                        n_ended++;
                }
                ck_assert_uint_gt(n_ended, n);
                ck_assert_uint_le(n_ended - n, A_CALL);
        }
        ck_assert_uint_eq(n_ended, N_AT_ONCE);
        ck_assert_uint_eq(g->n_meetings, 0);
        room_close(&room);
}
END_TEST

/* Though its own was due after all of the other user's. */
START_TEST(P21_a_deadline_does_not_wait_for_those_of_another_user) {
        struct room room;
        struct meeting *m;
        room_open(&room);
        struct group *many = form_with_timeout(&room, 2, S);
        struct join other = room_ask("other", 2, 0);
        other.uid = 1001;
        other.ask.has_default_timeout = true;
        other.ask.default_timeout_ns = 2 * S;
        struct group *one = room_form_like(&room, other);
        for (uint32_t i = 0; i < N_AT_ONCE; i++) {
                char key[16];
                snprintf(key, sizeof(key), "%u", i);
                ck_assert_int_eq(room_submit(&room, many, 0, key), STATUS_OK);
        }
        ck_assert_int_eq(room_submit(&room, one, 0, "k"), STATUS_OK);
        room.now_ns += 2 * S;
        rendezvous_expire(room.r, room.now_ns, &room.out);
        uint32_t n_of_one = 0, n_of_many = 0;
        while ((m = room_take(&room.out.ended))) {
                n_of_one += m->group == one;
                n_of_many += m->group == many;
                room_release(&room, m);
        }
        ck_assert_uint_eq(n_of_one, 1);
        ck_assert_uint_ge(n_of_many, 1);
        while (rendezvous_next_ns(room.r) <= room.now_ns) {
                rendezvous_expire(room.r, room.now_ns, &room.out);
                while ((m = room_take(&room.out.ended)))
                        room_release(&room, m);
        }
        ck_assert_uint_eq(many->n_meetings, 0);
        room_close(&room);
}
END_TEST

/* Each end of busy walks through all that its group has pending. */
START_TEST(P21_ends_of_busy_that_fall_together_are_taken_in_parts) {
        struct room room;
        room_open(&room);
        struct group *g = form_with_timeout(&room, 32, 0);
        for (uint32_t i = 0; i < N_AT_ONCE; i++) {
                char key[16];
                snprintf(key, sizeof(key), "%u", i);
                ck_assert_int_eq(room_submit(&room, g, 0, key), STATUS_OK);
        }
        for (uint32_t rank = 1; rank < 32; rank++)
                busy(&room, g, rank, "", S);
        room.now_ns += S;
        for (uint32_t n = 0; rendezvous_next_ns(room.r) <= room.now_ns; n++) {
                room.out.n_looked = 0;
                rendezvous_expire(room.r, room.now_ns, &room.out);
                ck_assert_uint_le(room.out.n_looked, 5 * N_AT_ONCE);
        }
        for (uint32_t rank = 1; rank < 32; rank++)
                ck_assert_str_eq(g->members[rank].busy, "");
        room_close(&room);
}
END_TEST

/* --- busy --- */

START_TEST(A5_busy_stops_default_deadlines_until_it_submits) {
        struct room room;
        room_open(&room);
        struct group *g = form_with_timeout(&room, 3, 2 * S);
        ck_assert_int_eq(room_submit(&room, g, 1, "a"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 1, "b"), STATUS_OK);
        room_wait(&room, S); /* a second of two is gone */
        busy(&room, g, 0, "checkpoint", 10 * S);
        ck_assert_str_eq(g->members[0].busy, "checkpoint");
        room_wait(&room, 3 * S);
        ck_assert_int_eq(room_submit(&room, g, 2, "a"), STATUS_OK); /* pauses at once */
        room_wait(&room, 3 * S);
        ck_assert(list_is_empty(&room.out.ended));
        while (room_take_group(&room.out.stalled))
                ;
        ck_assert_int_eq(room_submit(&room, g, 0, "a"), STATUS_OK);
        ck_assert_str_eq(g->members[0].busy, "");
        room_finish(&room, room_take(&room.out.sealed));
        /* "b" has its second left, for the submission ended busy in every meeting */
        ck_assert_uint_eq(g->n_meetings, 1);
        room_wait(&room, S - 1);
        ck_assert(list_is_empty(&room.out.ended));
        room_wait(&room, 1);
        struct meeting *m = room_ended(&room, STATUS_TIMEOUT);
        ck_assert_int_eq(m->error->rank, 1);
        room_release(&room, m);
        room_close(&room);
}
END_TEST

START_TEST(A5_without_busy_the_deadline_holds) {
        struct room room;
        room_open(&room);
        struct group *g = form_with_timeout(&room, 2, 2 * S);
        ck_assert_int_eq(room_submit(&room, g, 1, "a"), STATUS_OK);
        room_wait(&room, 2 * S);
        room_end_is(&room, STATUS_TIMEOUT);
        room_close(&room);
}
END_TEST

START_TEST(busy_ends_by_itself_and_then_the_clock_goes_on) {
        struct room room;
        room_open(&room);
        struct group *g = form_with_timeout(&room, 2, 2 * S);
        ck_assert_int_eq(room_submit(&room, g, 1, "a"), STATUS_OK);
        room_wait(&room, S);
        busy(&room, g, 0, "", S);
        ck_assert_str_eq(g->members[0].busy, "busy");
        ck_assert_uint_eq(rendezvous_next_ns(room.r), room.now_ns + S);
        /* Woken late: as if busy had ended in time. */
        room_wait(&room, 2 * S - 1);
        ck_assert_str_eq(g->members[0].busy, "");
        ck_assert(list_is_empty(&room.out.ended));
        ck_assert_uint_eq(rendezvous_next_ns(room.r), room.now_ns + 1);
        room_wait(&room, 1);
        room_end_is(&room, STATUS_TIMEOUT);
        room_close(&room);
}
END_TEST

START_TEST(busy_moves_no_deadline_of_a_call) {
        struct room room;
        room_open(&room);
        struct group *g = form_with_timeout(&room, 2, 2 * S);
        busy(&room, g, 0, "saving", 100 * S);
        ck_assert_int_eq(room_submit_timeout(&room, g, 1, "a", S), STATUS_OK);
        room_wait(&room, S);
        struct meeting *m = room_ended(&room, STATUS_TIMEOUT);
        ck_assert_str_eq(m->error->replicas[0].busy, "saving");
        room_says(m->error, "saving");
        room_release(&room, m);
        room_close(&room);
}
END_TEST

START_TEST(busy_counts_only_while_its_member_is_missing) {
        struct room room;
        room_open(&room);
        struct group *g = form_with_timeout(&room, 3, 2 * S);
        ck_assert_int_eq(room_submit(&room, g, 0, "a"), STATUS_OK);
        busy(&room, g, 0, "after it submitted", 100 * S);
        room_wait(&room, 2 * S);
        room_end_is(&room, STATUS_TIMEOUT);
        busy(&room, g, 1, "long", 100 * S);
        busy(&room, g, 2, "also", 100 * S);
        ck_assert_int_eq(room_submit(&room, g, 0, "b"), STATUS_OK);
        room_wait(&room, 3 * S);
        busy(&room, g, 1, "", 0); /* R2 still is */
        room_wait(&room, 3 * S);
        while (room_take_group(&room.out.stalled))
                ;
        ck_assert(list_is_empty(&room.out.ended));
        busy(&room, g, 2, "", 0);
        room_wait(&room, 2 * S);
        room_end_is(&room, STATUS_TIMEOUT);
        room_close(&room);
}
END_TEST

START_TEST(busy_lasts_an_hour_at_most) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        busy(&room, g, 0, "for ever", UINT64_MAX);
        ck_assert_uint_eq(g->members[0].busy_end.at_ns, room.now_ns + 3600 * S);
        room_wait(&room, 3600 * S);
        ck_assert_str_eq(g->members[0].busy, "");
        room_close(&room);
}
END_TEST

/* --- stalls --- */

START_TEST(A10_a_stall_is_reported_once_per_stall_warn) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        ck_assert_int_eq(room_submit(&room, g, 0, "oldest"), STATUS_OK);
        room_wait(&room, 4 * S);
        for (int i = 0; i < 10000; i++) {
                struct half *half = room_half(&room, g, 0, "x");
                half->key = key_sequence((uint64_t)i);
                ck_assert_int_eq(room_submit_half(&room, half), STATUS_OK);
        }
        ck_assert(!g->is_stalled);
        ck_assert_uint_eq(rendezvous_next_ns(room.r), room.now_ns + S);
        int n = 0;
        for (int second = 5; second <= 64; second++) {
                room_wait(&room, S);
                while (room_take_group(&room.out.stalled))
                        n++;
                ck_assert(g->is_stalled);
        }
        ck_assert_int_eq(n, 12); /* in a minute, of 10,001 that stand */
        room_close(&room);
}
END_TEST

START_TEST(a_stall_ends_with_the_meeting_that_stood) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        ck_assert_int_eq(room_submit(&room, g, 0, "a"), STATUS_OK);
        room_wait(&room, 3 * S);
        ck_assert_int_eq(room_submit(&room, g, 0, "b"), STATUS_OK);
        room_wait(&room, 2 * S);
        ck_assert(g->is_stalled);
        ck_assert_ptr_eq(room_take_group(&room.out.stalled), g);
        ck_assert_int_eq(room_submit(&room, g, 1, "a"), STATUS_OK);
        ck_assert(!g->is_stalled);
        room_finish(&room, room_take(&room.out.sealed));
        room_wait(&room, 3 * S - 1);
        ck_assert(!g->is_stalled);
        room_wait(&room, 1); /* now "b" is five seconds old; the line waits for its turn */
        ck_assert(g->is_stalled);
        ck_assert(outcome_is_empty(&room.out));
        room_wait(&room, 2 * S);
        ck_assert_ptr_eq(room_take_group(&room.out.stalled), g);
        ck_assert_int_eq(room_submit(&room, g, 1, "b"), STATUS_OK);
        room_finish(&room, room_take(&room.out.sealed));
        ck_assert(!g->is_stalled);
        ck_assert_uint_eq(rendezvous_next_ns(room.r), ALARM_NEVER); /* P22: idle means idle */
        room_close(&room);
}
END_TEST

UNIT_MAIN("rendezvous-time", 20, A1_a_timeout_names_the_missing_and_the_late_one_hears_why,
        call_over_group_over_config_and_zero_is_none, what_waited_for_its_buffers_has_used_that_time,
        a_deadline_does_not_end_what_is_sealed, what_differs_by_then_is_told_with_the_timeout,
        P21_what_is_due_at_once_ends_in_parts_and_stays_due,
        P21_a_deadline_does_not_wait_for_those_of_another_user,
        P21_ends_of_busy_that_fall_together_are_taken_in_parts,
        A5_busy_stops_default_deadlines_until_it_submits, A5_without_busy_the_deadline_holds,
        busy_ends_by_itself_and_then_the_clock_goes_on, busy_moves_no_deadline_of_a_call,
        busy_counts_only_while_its_member_is_missing, busy_lasts_an_hour_at_most,
        A10_a_stall_is_reported_once_per_stall_warn, a_stall_ends_with_the_meeting_that_stood)
