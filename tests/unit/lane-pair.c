#include "lane-pair.h"

#include <sched.h>

uint64_t pair_membership(uint32_t client) {
        return 100 + client;
}

void pair_add(struct pair *f, struct lane_road *road, uint32_t client, uint64_t membership) {
        const struct lane_place place = { .lane = f->clients[client].lane,
                .session = 10 + client,
                .membership = membership,
                .rank = 3 + 2 * client };
        lane_road_add(f->stage.lanes, road, &place);
}

void pair_set_up(struct pair *f) {
        pair_set_up_assisted(f, 0);
}

void pair_set_up_assisted(struct pair *f, uint32_t n_assistants) {
        *f = (struct pair){ .road = { .epoch = PAIR_EPOCH, .next_number = 7 } };
        lane_stage_init_assisted(&f->stage, n_assistants);
        lane_road_init(&f->road);
        for (uint32_t i = 0; i < 2; i++) {
                stage_client_init(&f->stage, &f->clients[i], 10 + i);
                pair_add(f, &f->road, i, pair_membership(i));
        }
        stage_set_init(&f->sets[0], &(struct stage_set_shape){ 1000, 3, 20 });
        f->sets[0].plan.moved_bytes = n_assistants ? UINT64_C(64) << 20 : 0;
        stage_set_init(&f->sets[1], &(struct stage_set_shape){ 2000, 1, 40 });
        for (uint32_t i = 0; i < 2; i++)
                list_append(&f->road.sets, &f->sets[i].set.link);
}

void pair_close_empty(struct pair *f, struct lane_road *road) {
        struct lane_start starts[LANE_MAX_RANKS];
        uint32_t n;
        ck_assert_ptr_null(lane_road_close(f->stage.lanes, road, starts, &n));
        ck_assert_uint_eq(n, 0);
}

void pair_stop(struct pair *f) {
        lane_stage_stop(&f->stage);
        for (uint32_t i = 0; i < 2; i++)
                stage_set_deinit(&f->sets[i]);
        lane_stage_deinit(&f->stage);
}

void pair_tear_down(struct pair *f) {
        lane_road_deinit(f->stage.lanes, &f->road);
        for (uint32_t i = 0; i < 2; i++)
                if (f->clients[i].lane)
                        ck_assert(stage_client_end(&f->stage, &f->clients[i]));
        pair_stop(f);
}

struct stage_start pair_half(uint32_t client, uint64_t request, uint64_t number) {
        return (struct stage_start){ .request = request,
                .prepared = 20 + client,
                .membership = pair_membership(client),
                .epoch = PAIR_EPOCH,
                .number = number };
}

void pair_start(struct pair *f, uint32_t client, uint64_t request, uint64_t number) {
        const struct stage_start s = pair_half(client, request, number);
        (void)stage_start(&f->clients[client], &s);
}

void pair_start_both(struct pair *f, uint64_t request, uint64_t number) {
        pair_start(f, 0, request, number);
        pair_start(f, 1, request, number);
}

void pair_wait_done(const struct pair *f, uint32_t client, uint64_t request) {
        while (stage_look(&f->clients[client], request) != STAGE_DONE)
                sched_yield();
}

struct lane_run pair_take_run(struct pair *f) {
        struct lane_run run;
        while (!lanes_take_run(f->stage.lanes, &run))
                sched_yield();
        return run;
}

bool pair_has_run(struct pair *f) {
        struct lane_run run;
        return lanes_take_run(f->stage.lanes, &run);
}
