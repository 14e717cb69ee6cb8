/* The lane and slots of a result object: who takes one, who ends it, and what finds none. */
#include <sched.h>
#include "lane-pair.h"

#define N 2

/* The first set goes to an object of two slots, from whose first one its plan was made. */
struct stage_of_slots {
        struct pair pair;
        struct slot all[N];
        struct slots slots;
        struct slot_user users[2], *of[2];
};

static void set_up(struct stage_of_slots *f) {
        *f = (struct stage_of_slots){ 0 };
        pair_set_up(&f->pair);
        f->slots = (struct slots){ .n = N, .stride_bytes = 4096, .all = f->all };
        for (uint32_t i = 0; i < 2; i++) {
                f->users[i] = (struct slot_user){ .rank = 3 + 2 * i,
                        .word = &lane_words(f->pair.clients[i].lane)[i * 63] };
                f->of[i] = &f->users[i];
        }
        f->pair.sets[0].set.slots = &f->slots;
        f->pair.sets[0].set.users = f->of;
        plan_outputs(&f->pair.sets[0].plan, f->pair.sets[0].plan.steps)->result = 1;
        lane_road_open(f->pair.stage.lanes, &f->pair.road);
}

static uint64_t offset_of(const struct stage_of_slots *f) {
        const struct plan *plan = &f->pair.sets[0].plan;
        return plan_outputs(plan, plan->steps)->offset_bytes;
}

static void give_back(struct stage_of_slots *f, uint32_t client, uint64_t bits) {
        atomic_fetch_xor(&f->pair.clients[client].slot->given_back[client * 63], bits);
}

static void run(struct stage_of_slots *f, uint64_t request, uint32_t slot) {
        pair_start_both(&f->pair, request, request);
        for (uint32_t i = 0; i < 2; i++) {
                pair_wait_done(&f->pair, i, request);
                ck_assert_uint_eq(atomic_load(&f->pair.clients[i].board->slot), slot);
        }
        ck_assert_uint_eq(pair_take_run(&f->pair).slot, slot);
        ck_assert_uint_eq(offset_of(f), 4096u * slot);
}

/* Once it is closed or nobody runs. */
static void expect_held(struct stage_of_slots *f, uint32_t slot, uint32_t n) {
        lanes_pause(f->pair.stage.lanes);
        ck_assert(!f->all[slot].is_running);
        ck_assert_uint_eq(rankset_count(&f->all[slot].holders), n);
        lanes_go_on(f->pair.stage.lanes);
}

START_TEST(slots_are_taken_in_turn_and_given_back_in_words) {
        struct stage_of_slots f;
        set_up(&f);
        for (uint64_t request = 1; request <= 40; request++) {
                run(&f, request, (request - 1) % 2);
                for (uint32_t i = 0; i < 2; i++)
                        give_back(&f, i, 1u << (request - 1) % 2);
        }
        expect_held(&f, 1, 2); /* nobody has looked at the last words */
        expect_held(&f, 0, 0);
        pair_close_empty(&f.pair, &f.pair.road);
        pair_tear_down(&f.pair);
}
END_TEST

START_TEST(what_finds_no_slot_is_handed_over) {
        struct stage_of_slots f;
        struct lane_start starts[LANE_MAX_RANKS];
        struct lane_road *refused;
        uint32_t n;
        set_up(&f);
        run(&f, 1, 0);
        run(&f, 2, 1);
        give_back(&f, 0, 3);
        pair_start_both(&f.pair, 3, 3);
        while (!(refused = lanes_take_refused(f.pair.stage.lanes)))
                sched_yield();
        ck_assert_ptr_eq(refused, &f.pair.road);
        ck_assert_ptr_null(lane_road_close(f.pair.stage.lanes, refused, starts, &n));
        ck_assert_uint_eq(n, 2);
        ck_assert_uint_eq(starts[1].request, 3);
        for (uint32_t slot = 0; slot < N; slot++)
                ck_assert(!rankset_has(&f.all[slot].holders, 3) && rankset_has(&f.all[slot].holders, 5));
        lane_road_open(f.pair.stage.lanes, &f.pair.road);
        give_back(&f, 1, 2);
        run(&f, 4, 1);
        pair_close_empty(&f.pair, &f.pair.road);
        pair_tear_down(&f.pair);
}
END_TEST

/* What is started and goes elsewhere needs none. */
START_TEST(a_set_without_an_object_takes_no_slot) {
        struct stage_of_slots f;
        set_up(&f);
        run(&f, 1, 0);
        run(&f, 2, 1);
        for (uint32_t i = 0; i < 2; i++) {
                struct stage_start s = pair_half(i, 3, 3);
                s.prepared = 40 + i;
                (void)stage_start(&f.pair.clients[i], &s);
        }
        for (uint32_t i = 0; i < 2; i++)
                pair_wait_done(&f.pair, i, 3);
        (void)pair_take_run(&f.pair);
        expect_held(&f, 0, 2);
        expect_held(&f, 1, 2);
        pair_close_empty(&f.pair, &f.pair.road);
        pair_tear_down(&f.pair);
}
END_TEST

/* The lane does not touch it any more: whoever takes the run ends its slot. */
START_TEST(the_slot_of_a_run_whose_road_was_closed_is_ended_by_who_takes_it) {
        struct stage_of_slots f;
        struct lane_start starts[LANE_MAX_RANKS];
        uint32_t n, slot;
        set_up(&f);
        fake_hold(f.pair.stage.fake, true);
        pair_start_both(&f.pair, 1, 1);
        fake_wait_held(f.pair.stage.fake, 1);
        ck_assert_ptr_eq(lane_road_close(f.pair.stage.lanes, &f.pair.road, starts, &n), &f.pair.sets[0].set);
        ck_assert(f.all[0].is_running);
        ck_assert(slots_take(&f.slots, &slot));
        ck_assert_uint_eq(slot, 1);
        slots_end(&f.slots, 1, 1);
        fake_hold(f.pair.stage.fake, false);
        const struct lane_run done = pair_take_run(&f.pair);
        ck_assert(f.all[0].is_running);
        lane_end_slot(&done);
        ck_assert(!f.all[0].is_running);
        ck_assert_uint_eq(rankset_count(&f.all[0].holders), 2);
        ck_assert_uint_eq(f.all[0].held_since_ns, done.done_ns);
        const struct lane_run failed = { .set = &f.pair.sets[0].set, .status = STATUS_BAD_FD };
        lane_end_slot(&failed);
        ck_assert(slot_is_free(&f.all[0]));
        pair_tear_down(&f.pair);
}
END_TEST

UNIT_MAIN("lane-slots", 30, slots_are_taken_in_turn_and_given_back_in_words,
        what_finds_no_slot_is_handed_over, a_set_without_an_object_takes_no_slot,
        the_slot_of_a_run_whose_road_was_closed_is_ended_by_who_takes_it)
