/* Two clients on one road, on which two sets may be run: what the tests of the lane begin with. */
#pragma once

#include "lane-stage.h"
#include "unit.h"

#define PAIR_EPOCH 3

struct pair {
        struct lane_stage stage;
        struct stage_client clients[2]; /* of sessions 10 and 11, ranks 3 and 5 */
        struct stage_set sets[2];       /* of three chunks named 1000, and of one named 2000 */
        struct lane_road road;          /* closed; its next number is 7 */
};

void pair_set_up(struct pair *f);
/* With assistants, who help with the first set. */
void pair_set_up_assisted(struct pair *f, uint32_t n_assistants);
/* Of a road that is closed, and whose runs are taken. */
void pair_tear_down(struct pair *f);
/* The last part of it, when road and clients are gone. */
void pair_stop(struct pair *f);

/* Puts a client on a road. */
void pair_add(struct pair *f, struct lane_road *road, uint32_t client, uint64_t membership);
/* Its membership on `road`. */
uint64_t pair_membership(uint32_t client);

/* Client i's half of the first set, by number. */
struct stage_start pair_half(uint32_t client, uint64_t request, uint64_t number);
void pair_start(struct pair *f, uint32_t client, uint64_t request, uint64_t number);
void pair_start_both(struct pair *f, uint64_t request, uint64_t number);

/* Waits for it. */
void pair_wait_done(const struct pair *f, uint32_t client, uint64_t request);
struct lane_run pair_take_run(struct pair *f);

bool pair_has_run(struct pair *f);
/* Closes it, and expects that nothing runs and nothing is handed over. */
void pair_close_empty(struct pair *f, struct lane_road *road);
