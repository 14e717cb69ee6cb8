/* Slots of a result object: turns, holders, and what a member says in its word. */
#include "slots.h"
#include "unit.h"

#define N 3

struct fixture {
        struct slot all[N];
        struct slots slots;
        _Atomic uint64_t words[2];
        struct slot_user users[2]; /* ranks 5 and 900 */
};

static void set_up(struct fixture *f) {
        *f = (struct fixture){ .words = { UINT64_MAX, 0 } };
        f->slots = (struct slots){ .n = N, .stride_bytes = 4096, .all = f->all };
        f->users[0] = (struct slot_user){ .rank = 5, .word = &f->words[0], .heard = UINT64_MAX };
        f->users[1] = (struct slot_user){ .rank = 900, .word = &f->words[1] };
}

static void run(struct fixture *f, uint32_t expected) {
        uint32_t slot = N;
        ck_assert(slots_take(&f->slots, &slot));
        ck_assert_uint_eq(slot, expected);
        for (int i = 0; i < 2; i++)
                rankset_add(&f->all[slot].holders, f->users[i].rank);
        slots_end(&f->slots, slot, 1000 + slot);
}

static void hear(struct fixture *f) {
        for (int i = 0; i < 2; i++)
                slots_hear(&f->slots, &f->users[i]);
}

START_TEST(slots_go_in_turn_and_come_back_with_their_last_holder) {
        struct fixture f;
        uint32_t slot;
        set_up(&f);
        for (uint32_t i = 0; i < N; i++)
                run(&f, i);
        ck_assert(!slots_take(&f.slots, &slot));
        ck_assert(slots_drop(&f.slots, 1, 5));
        ck_assert(!slots_drop(&f.slots, 1, 5));
        ck_assert(!slots_drop(&f.slots, 1, 6));
        ck_assert(!slots_drop(&f.slots, N, 5));
        ck_assert(!slots_drop(&f.slots, UINT32_MAX, 5));
        ck_assert(!slots_take(&f.slots, &slot));
        ck_assert(slots_drop(&f.slots, 1, 900));
        run(&f, 1);
        slots_drop_all(&f.slots, 5);
        ck_assert(!slots_take(&f.slots, &slot));
        slots_drop_all(&f.slots, 900);
        run(&f, 2);
        run(&f, 0);
        ck_assert_uint_eq(slot_age_ns(&f.all[0], 1500), 500);
        ck_assert_uint_eq(slot_age_ns(&f.all[0], 900), 0);
}
END_TEST

START_TEST(what_runs_is_free_when_it_has_failed_or_nobody_holds_it) {
        struct fixture f;
        uint32_t slot;
        set_up(&f);
        ck_assert(slots_take(&f.slots, &slot));
        ck_assert(!slot_is_free(&f.all[0]));
        rankset_add(&f.all[0].holders, 5);
        slots_void(&f.slots, 0, 7);
        ck_assert(slot_is_free(&f.all[0]));
        ck_assert(slots_take(&f.slots, &slot));
        ck_assert_uint_eq(slot, 1);
        slots_end(&f.slots, 1, 8);
        ck_assert(slot_is_free(&f.all[1]));
}
END_TEST

START_TEST(a_bit_that_turns_is_a_slot_given_back) {
        struct fixture f;
        uint32_t slot;
        set_up(&f);
        for (uint32_t round = 0; round < 10; round++) {
                run(&f, round % N);
                for (int i = 0; i < 2; i++)
                        f.words[i] ^= 1u << round % N;
                ck_assert(!slot_is_free(&f.all[round % N])); /* nobody has looked */
                hear(&f);
                ck_assert(slot_is_free(&f.all[round % N]));
        }
        for (uint32_t i = 0; i < N; i++)
                run(&f, (10 + i) % N);
        hear(&f);
        f.words[0] ^= 7;
        f.words[1] ^= 2;
        hear(&f);
        run(&f, 1);
        ck_assert(!slots_take(&f.slots, &slot));
}
END_TEST

START_TEST(P17_a_word_gives_back_nothing_of_others_and_nothing_that_comes_later) {
        struct fixture f;
        uint32_t slot;
        set_up(&f);
        run(&f, 0);
        f.words[0] = 0; /* all 64 */
        hear(&f);
        ck_assert(!rankset_has(&f.all[0].holders, 5) && rankset_has(&f.all[0].holders, 900));
        run(&f, 1);
        run(&f, 2);
        hear(&f);
        f.words[0] ^= 6;
        f.words[0] ^= 6; /* as if never */
        hear(&f);
        for (uint32_t i = 1; i < N; i++)
                ck_assert(rankset_has(&f.all[i].holders, 5));
        ck_assert(!slots_take(&f.slots, &slot));
        f.users[0].word = NULL;
        f.words[0] ^= 6;
        hear(&f);
        ck_assert(rankset_has(&f.all[1].holders, 5));
}
END_TEST

UNIT_MAIN("slots", 30, slots_go_in_turn_and_come_back_with_their_last_holder,
        what_runs_is_free_when_it_has_failed_or_nobody_holds_it, a_bit_that_turns_is_a_slot_given_back,
        P17_a_word_gives_back_nothing_of_others_and_nothing_that_comes_later)
