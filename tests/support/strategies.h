/* What tests of the strategy layer need again and again: the same strategy in threads of one process and in
 * several processes. */
#pragma once

#include <tutti/strategy.h>
#include "meeting.h"

#define MAX_LOCAL 8

/* Processes and replicas in each. */
struct shape {
        uint32_t n_processes, n_local;
};

static const struct shape shapes[] = { { 1, 1 }, { 1, 2 }, { 2, 1 }, { 3, 1 }, { 1, 3 }, { 2, 2 }, { 4, 1 },
        { 5, 1 }, { 1, 5 }, { 7, 1 }, { 4, 2 }, { 2, 4 }, { 1, 8 }, { 8, 1 }, { 2, 8 }, { 16, 1 } };

#define expect_said(got, wanted)                                                                             \
        do {                                                                                                 \
                enum tutti_status got_ = (got);                                                              \
                ck_assert_msg(got_ == (wanted), "%s is %s, not %s: %s", #got, tutti_status_name(got_),       \
                        tutti_status_name(wanted), tutti_strategy_error());                                  \
        } while (0)

/* Of n_local replicas in each process of the test; `options` may be NULL. */
static inline struct tutti_strategy *strategy_with(
        struct replica *me, const char *group, uint32_t n_local, const struct tutti_options *options) {
        struct tutti_strategy *s = NULL;
        replica_open(me);
        expect_said(
                tutti_strategy_open(me->t,
                        &TUTTI_STRATEGY(.group = group, .job = "test", .n_local = n_local,
                                .rank = (int32_t)(me->rank * n_local),
                                .world_size = (int32_t)(me->n * n_local), .timeout = 20, .options = options),
                        &s),
                TUTTI_OK);
        return s;
}

static inline struct tutti_strategy *strategy_in(struct replica *me, uint32_t n_local) {
        return strategy_with(me, "train", n_local, NULL);
}

/* In every shape, or in those of at least `least` replicas. */
static inline void run_in_all_shapes(void (*body)(struct replica *me), uint32_t least) {
        board_init();
        uint32_t *n_local = memory_shared(sizeof(*n_local));
        struct host *h = host_start(NULL);
        for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
                *n_local = shapes[i].n_local;
                if (shapes[i].n_processes * *n_local < least)
                        continue;
                run_replicas(h, shapes[i].n_processes, body, n_local);
                host_expect_counters_zero(h);
        }
        host_stop(h);
}

/* The strategy of a body that run_in_all_shapes runs. */
static inline struct tutti_strategy *strategy_of(struct replica *me) {
        return strategy_in(me, *(uint32_t *)me->arg);
}

static inline struct tutti_value float_at(float *f, uint64_t n) {
        return TUTTI_VALUE(.memory = f, .dtype = TUTTI_F32, .n_dims = 1, .shape = { n });
}
