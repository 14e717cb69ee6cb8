/* Meeting: rules 1 to 7 of rendezvous.h, in their order, and what all halves must agree on (P2, P3, P4). */
#include "room.h"
#include "unit.h"

/* --- sealed --- */

START_TEST(seals_when_the_last_half_is_in) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 3, ON_DEATH_FAIL);
        ck_assert_int_eq(room_submit(&room, g, 2, "grad/0"), STATUS_OK);
        room.now_ns += 10;
        ck_assert_int_eq(room_submit(&room, g, 0, "grad/0"), STATUS_OK);
        room.now_ns += 10;
        ck_assert(outcome_is_empty(&room.out));
        ck_assert_uint_eq(g->n_meetings, 1);
        ck_assert_int_eq(room_submit(&room, g, 1, "grad/0"), STATUS_OK);
        struct meeting *m = room_take(&room.out.sealed);
        ck_assert_int_eq(m->state, MEETING_SEALED);
        ck_assert_uint_eq(m->number, 1);
        ck_assert_uint_eq(m->have.words[0], 7);
        ck_assert_uint_eq(m->n_halves, 3);
        ck_assert_uint_eq(m->divisor, 3);
        ck_assert_uint_eq(m->last_rank, 1);
        ck_assert_uint_eq(m->sealed_ns - m->first_ns, 20);
        for (uint32_t rank = 0; rank < 3; rank++)
                ck_assert_uint_eq(m->halves[rank]->session, 100 + rank);
        ck_assert(!g->members[0].has_last);
        ck_assert_uint_eq(quota_used(room.quotas, 1000, QUOTA_PENDING), 3);
        room.now_ns += 5;
        room_finish(&room, m);
        ck_assert_uint_eq(quota_used(room.quotas, 1000, QUOTA_PENDING), 0);
        struct key key = room_key("grad/0");
        ck_assert(g->members[1].has_last && key_is_equal(&g->members[1].last_key, &key));
        ck_assert_uint_eq(g->members[1].last_ns, room.now_ns);
        ck_assert_uint_eq(g->last_done_ns, room.now_ns);
        ck_assert_uint_eq(g->n_meetings + g->n_references, 0);
        ck_assert_uint_eq(g->members[0].n_submitted, 1);
        room_close(&room);
}
END_TEST

START_TEST(numbers_count_what_was_sealed) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 1, ON_DEATH_FAIL);
        for (uint64_t i = 1; i <= 3; i++) {
                ck_assert_int_eq(room_refuse(&room, g, 0, "r"), STATUS_BAD_FD);
                ck_assert_int_eq(room_submit(&room, g, 0, "k"), STATUS_OK);
                struct meeting *m = room_take(&room.out.sealed);
                ck_assert_uint_eq(m->number, i);
                room_finish(&room, m);
        }
        ck_assert_uint_eq(g->n_debts, 0); /* alone, nobody owes */
        room_close(&room);
}
END_TEST

START_TEST(B5_no_order_of_calls_deadlocks) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        ck_assert_int_eq(room_submit(&room, g, 0, "a"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 1, "b"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 0, "b"), STATUS_OK);
        struct meeting *b = room_take(&room.out.sealed);
        ck_assert_int_eq(room_submit(&room, g, 1, "a"), STATUS_OK);
        struct meeting *a = room_take(&room.out.sealed);
        struct key key_a = room_key("a"), key_b = room_key("b");
        ck_assert(key_is_equal(&a->key, &key_a) && key_is_equal(&b->key, &key_b));
        room_finish(&room, a);
        room_finish(&room, b);
        room_close(&room);
}
END_TEST

START_TEST(names_and_numbers_never_meet) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        struct half *number = room_half(&room, g, 0, "x"), *name = room_half(&room, g, 1, "x");
        char zero[8] = { 0 };
        number->key = key_sequence(0);
        ck_assert(key_name(&name->key, zero, sizeof(zero)));
        ck_assert_int_eq(room_submit_half(&room, number), STATUS_OK);
        ck_assert_int_eq(room_submit_half(&room, name), STATUS_OK);
        ck_assert(outcome_is_empty(&room.out));
        ck_assert_uint_eq(g->n_meetings, 2);
        room_close(&room);
}
END_TEST

START_TEST(N3_equal_names_in_two_groups_never_meet) {
        struct room room;
        room_open(&room);
        struct group *a = room_form(&room, 2, ON_DEATH_FAIL);
        struct join other = room_ask("train", 2, 0);
        other.ask.job = "other";
        struct group *b = room_form_like(&room, other);
        for (int i = 0; i < 10000; i++) {
                ck_assert_int_eq(room_submit(&room, a, 0, "k"), STATUS_OK);
                ck_assert_int_eq(room_submit(&room, b, 1, "k"), STATUS_OK);
                ck_assert(list_is_empty(&room.out.sealed));
                ck_assert_int_eq(room_submit(&room, a, 1, "k"), STATUS_OK);
                struct meeting *m = room_take(&room.out.sealed);
                ck_assert_ptr_eq(m->group, a);
                room_finish(&room, m);
                ck_assert_int_eq(room_submit(&room, b, 0, "k"), STATUS_OK);
                m = room_take(&room.out.sealed);
                ck_assert_ptr_eq(m->group, b);
                room_finish(&room, m);
        }
        room_close(&room);
}
END_TEST

START_TEST(a_failed_run_is_told_and_is_nobodys_last) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 1, ON_DEATH_FAIL);
        ck_assert_int_eq(room_submit(&room, g, 0, "k"), STATUS_OK);
        struct meeting *m = room_take(&room.out.sealed);
        struct error lost;
        error_init(&lost, STATUS_DEVICE_LOST);
        lost.outputs_undefined = true;
        rendezvous_done(room.r, m, STATUS_DEVICE_LOST, &lost, room.now_ns);
        ck_assert_int_eq(m->status, STATUS_DEVICE_LOST);
        ck_assert(m->error->outputs_undefined && m->error != &lost);
        ck_assert(!g->members[0].has_last);
        ck_assert_uint_eq(g->n_debts, 0);
        room_release(&room, m);
        room_close(&room);
}
END_TEST

/* --- rules 1 to 3 --- */

START_TEST(a_membership_must_be_this_sessions_and_of_this_epoch) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        struct half *half = room_half(&room, g, 0, "k");
        half->session = 101; /* R1's connection with R0's membership */
        ck_assert_int_eq(room_submit_half(&room, half), STATUS_NOT_FOUND);
        half = room_half(&room, g, 0, "k");
        half->epoch = 0;
        ck_assert_int_eq(room_submit_half(&room, half), STATUS_REPLICA_LOST);
        ck_assert_int_eq(room_leave(&room, g, 0), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 0, "k"), STATUS_LEFT);
        ck_assert_int_eq(room_leave(&room, g, 0), STATUS_LEFT);
        ck_assert_uint_eq(g->n_meetings, 0);
        room_close(&room);
}
END_TEST

START_TEST(a_joining_member_cannot_submit_yet) {
        struct room room;
        room_open(&room);
        ck_assert_int_eq(room_join(&room, room_ask("train", 2, 0)), STATUS_OK);
        struct group *g = rendezvous_next_group(room.r, NULL);
        ck_assert_int_eq(room_submit(&room, g, 0, "k"), STATUS_NOT_FOUND);
        room_close(&room);
}
END_TEST

START_TEST(B7_the_same_key_twice_leaves_the_first_unharmed) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        ck_assert_int_eq(room_submit(&room, g, 0, "x"), STATUS_OK);
        ck_assert_int_eq(room_submit(&room, g, 0, "x"), STATUS_ALREADY_PENDING);
        ck_assert_int_eq(room.err.rank, 0);
        ck_assert(room.err.has_key);
        ck_assert_int_eq(room_refuse(&room, g, 0, "x"), STATUS_ALREADY_PENDING);
        ck_assert(outcome_is_empty(&room.out));
        ck_assert_int_eq(room_submit(&room, g, 1, "x"), STATUS_OK);
        struct meeting *m = room_take(&room.out.sealed);
        ck_assert_int_eq(room_submit(&room, g, 1, "x"), STATUS_ALREADY_PENDING); /* it runs */
        room_finish(&room, m);
        room_round(&room, g, "x"); /* P3: its use has ended */
        room_close(&room);
}
END_TEST

/* --- rule 7: what must be equal --- */

enum oddity {
        ODD_SHAPE,
        ODD_DTYPE,
        ODD_KIND,
        ODD_OP,
        ODD_EMPTY,
        ODD_DESTINATION,
        ODD_LENGTH,
        ODD_OPTION,
};

static void make_odd(struct half *half, enum oddity oddity) {
        struct entry *e = half->entries;
        switch (oddity) {
        case ODD_SHAPE: e->shape[0] = 20000; break;
        case ODD_DTYPE: e->dtype = DTYPE_F64; break;
        case ODD_KIND:
                half->signature.kind = KIND_BROADCAST;
                half->signature.op = OP_UNSPECIFIED;
                break;
        case ODD_OP: half->signature.op = OP_MEAN; break;
        case ODD_EMPTY: e->shape[0] = 0; break;
        case ODD_DESTINATION:
                e->destination = DESTINATION_RANK;
                e->destination_rank = 1;
                break;
        case ODD_LENGTH: half->signature.n_entries = 0; break;
        case ODD_OPTION: half->signature.options.reproducible = true; break;
        }
}

static const struct {
        enum oddity oddity;
        enum field field;
        const char *usual, *odd;
} oddities[] = {
        { ODD_SHAPE, FIELD_SHAPE, "f32[4]", "f32[20000]" },
        { ODD_DTYPE, FIELD_DTYPE, "f32[4]", "f64[4]" },
        { ODD_KIND, FIELD_KIND, "reduce", "broadcast" },
        { ODD_OP, FIELD_OP, "SUM", "MEAN" },
        { ODD_EMPTY, FIELD_SHAPE, "f32[4]", "f32[0]" },
        { ODD_DESTINATION, FIELD_DESTINATIONS, "all", "R1" },
        { ODD_LENGTH, FIELD_BATCH_LENGTH, "1 entry", "0 entries" },
        { ODD_OPTION, FIELD_OPTIONS, "default options", "reproducible" },
};

START_TEST(B1_B2_B5_B6_B8_D13_a_difference_is_told_to_all_alike) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 4, ON_DEATH_FAIL);
        for (size_t i = 0; i < ARRAY_SIZE(oddities); i++) {
                for (uint32_t rank = 0; rank < 4; rank++) {
                        struct half *half = room_half(&room, g, rank, "grad/7");
                        if (rank == 2)
                                make_odd(half, oddities[i].oddity);
                        ck_assert_int_eq(room_submit_half(&room, half), STATUS_OK);
                        ck_assert(rank == 3 || outcome_is_empty(&room.out));
                }
                struct meeting *m = room_ended(&room, STATUS_MISMATCH);
                ck_assert_uint_eq(m->n_halves, 4); /* one error, for each of four halves */
                ck_assert_str_eq(field_name(m->error->field), field_name(oddities[i].field));
                ck_assert_uint_eq(m->error->n_classes, 2);
                ck_assert_uint_eq(m->error->classes[0].ranks.words[0], 11);
                ck_assert_str_eq(m->error->classes[0].value, oddities[i].usual);
                ck_assert_uint_eq(m->error->classes[1].ranks.words[0], 4);
                ck_assert_str_eq(m->error->classes[1].value, oddities[i].odd);
                ck_assert_uint_eq(m->error->n_replicas, 1); /* who is alone with it */
                ck_assert_uint_eq(m->error->replicas[0].pid, 4702);
                room_says(m->error, "\"grad/7\" in dp/train");
                room_says(m->error, oddities[i].odd);
                ck_assert_uint_eq(m->number, 0);
                room_release(&room, m);
                ck_assert_uint_eq(g->n_debts, 0);
                room_round(&room, g, "grad/7"); /* B10: the group stays usable, the key too */
        }
        room_close(&room);
}
END_TEST

START_TEST(D13_zero_elements_are_a_meeting_like_any) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        for (uint32_t rank = 0; rank < 2; rank++) {
                struct half *half = room_half(&room, g, rank, "empty");
                make_odd(half, ODD_EMPTY);
                ck_assert_int_eq(room_submit_half(&room, half), STATUS_OK);
        }
        room_finish(&room, room_take(&room.out.sealed));
        room_close(&room);
}
END_TEST

START_TEST(B6_roots_must_be_equal) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        ck_assert_int_eq(room_submit_root(&room, g, 0, "b", 0), STATUS_OK);
        ck_assert_int_eq(room_submit_root(&room, g, 1, "b", 1), STATUS_OK);
        struct meeting *m = room_ended(&room, STATUS_MISMATCH);
        ck_assert_int_eq(m->error->field, FIELD_ROOT);
        ck_assert_str_eq(m->error->classes[1].value, "root 1");
        room_release(&room, m);
        room_close(&room);
}
END_TEST

static struct half *batch(struct room *room, const struct group *g, uint32_t rank) {
        struct half *one = room_half(room, g, rank, "batch"), *half = rendezvous_half_new(room->r, 300);
        ck_assert_ptr_nonnull(half);
        struct entry *entries = half->entries;
        uint64_t *marks = half->marks;
        uint32_t capacity = half->capacity;
        *half = *one;
        half->entries = entries;
        half->marks = marks;
        half->capacity = capacity;
        list_init(&half->pool_link);
        half->signature.kind = KIND_BATCH_REDUCE;
        half->signature.n_entries = 300;
        for (uint32_t i = 0; i < 300; i++)
                half->entries[i] = one->entries[0];
        rendezvous_half_free(room->r, one);
        return half;
}

START_TEST(B11_one_odd_entry_of_a_batch_is_named) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 2, ON_DEATH_FAIL);
        struct half *odd = batch(&room, g, 1);
        odd->entries[137].shape[0] = 5;
        odd->entries[200].dtype = DTYPE_F16;
        ck_assert_int_eq(room_submit_half(&room, batch(&room, g, 0)), STATUS_OK);
        ck_assert_uint_eq(
                quota_used(room.quotas, 1000, QUOTA_PENDING), 5); /* 300 entries: 5 times 64 begun */
        ck_assert_int_eq(room_submit_half(&room, odd), STATUS_OK);
        struct meeting *m = room_ended(&room, STATUS_MISMATCH);
        ck_assert_int_eq(m->error->field, FIELD_SHAPE);
        ck_assert_int_eq(m->error->entry, 137);
        room_says(m->error, "entry 137");
        room_release(&room, m);
        ck_assert_uint_eq(quota_used(room.quotas, 1000, QUOTA_PENDING), 0);
        room_close(&room);
}
END_TEST

/* Wherever it is, and whatever comes behind it. */
START_TEST(B11_P21_the_first_odd_entry_of_many_is_found_without_a_walk) {
        static const uint32_t odd[] = { 0, 1, 63, 64, 65, 127, 128, 255, 256, 298, 299 };
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 3, ON_DEATH_FAIL);
        for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
                struct half *halves[3];
                for (uint32_t rank = 0; rank < 3; rank++)
                        halves[rank] = batch(&room, g, rank);
                halves[2]->entries[odd[i]].dtype = DTYPE_F16;
                halves[1]->entries[299].shape[0] = 5; /* later, or in the same entry */
                for (uint32_t rank = 0; rank < 3; rank++)
                        ck_assert_int_eq(room_submit_half(&room, halves[rank]), STATUS_OK);
                struct meeting *m = room_ended(&room, STATUS_MISMATCH);
                ck_assert_int_eq(m->error->entry, (int32_t)odd[i]);
                ck_assert_int_eq(m->error->field, FIELD_DTYPE);
                room_release(&room, m);
        }
        room_close(&room);
}
END_TEST

START_TEST(more_values_than_fit_share_the_last_class) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 12, ON_DEATH_FAIL);
        for (uint32_t rank = 0; rank < 12; rank++) {
                struct half *half = room_half(&room, g, rank, "k");
                half->entries[0].shape[0] = rank + 1;
                ck_assert_int_eq(room_submit_half(&room, half), STATUS_OK);
        }
        struct meeting *m = room_ended(&room, STATUS_MISMATCH);
        ck_assert_uint_eq(m->error->n_classes, MAX_ERROR_CLASSES);
        ck_assert_str_eq(m->error->classes[6].value, "f32[7]");
        ck_assert_str_eq(m->error->classes[7].value, "other values");
        ck_assert_uint_eq(m->error->classes[7].ranks.words[0], 0xf80);
        room_release(&room, m);
        room_close(&room);
}
END_TEST

START_TEST(the_most_general_difference_is_told) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 3, ON_DEATH_FAIL);
        for (uint32_t rank = 0; rank < 3; rank++) {
                struct half *half = room_half(&room, g, rank, "k");
                if (rank > 0)
                        make_odd(half, rank == 1 ? ODD_SHAPE : ODD_OP);
                ck_assert_int_eq(room_submit_half(&room, half), STATUS_OK);
        }
        struct meeting *m = room_ended(&room, STATUS_MISMATCH);
        ck_assert_int_eq(m->error->field, FIELD_OP);
        room_release(&room, m);
        room_close(&room);
}
END_TEST

START_TEST(a_world_of_1024_meets) {
        struct room room;
        room_open(&room);
        struct group *g = room_form(&room, 1024, ON_DEATH_FAIL);
        for (int i = 0; i < 3; i++)
                room_round(&room, g, "k");
        ck_assert_uint_eq(g->next_number, 4);
        room_close(&room);
}
END_TEST

UNIT_MAIN("rendezvous", 20, seals_when_the_last_half_is_in, numbers_count_what_was_sealed,
        B5_no_order_of_calls_deadlocks, names_and_numbers_never_meet, N3_equal_names_in_two_groups_never_meet,
        a_failed_run_is_told_and_is_nobodys_last, a_membership_must_be_this_sessions_and_of_this_epoch,
        a_joining_member_cannot_submit_yet, B7_the_same_key_twice_leaves_the_first_unharmed,
        B1_B2_B5_B6_B8_D13_a_difference_is_told_to_all_alike, D13_zero_elements_are_a_meeting_like_any,
        B6_roots_must_be_equal, B11_one_odd_entry_of_a_batch_is_named,
        B11_P21_the_first_odd_entry_of_many_is_found_without_a_walk,
        more_values_than_fit_share_the_last_class, the_most_general_difference_is_told, a_world_of_1024_meets)
