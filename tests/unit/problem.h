/* Sealed collectives of any size, made by hand, for the planner and the algorithms. */
#pragma once

#include <stdlib.h>
#include <string.h>
#include "algorithms/algorithm.h"
#include "base/text.h"
#include "planner.h"
#include "unit.h"

#define MOST_RANKS   16
#define MOST_ENTRIES 48

struct made_problem {
        struct signature signature;
        struct entry entries[MOST_RANKS][MOST_ENTRIES];
        const struct entry *pointers[MOST_RANKS];
        uint32_t ranks[MOST_RANKS], homes[MOST_RANKS];
        double weights[MOST_RANKS];
        struct topology topology;
        struct problem problem;
};

/* SUM, from and to nowhere yet, on `n_devices` host devices. */
static inline struct made_problem *problem_make(uint32_t n_ranks, uint32_t n_devices) {
        struct made_problem *m = calloc(1, sizeof(*m));
        ck_assert_ptr_nonnull(m);
        m->signature = (struct signature){ .kind = KIND_BATCH_REDUCE, .op = OP_SUM };
        topology_of_host(&m->topology, n_devices);
        for (uint32_t i = 0; i < n_ranks; i++) {
                m->ranks[i] = i;
                m->pointers[i] = m->entries[i];
        }
        m->problem = (struct problem){ .signature = &m->signature,
                .n_ranks = n_ranks,
                .ranks = m->ranks,
                .entries = m->pointers,
                .weights = m->weights,
                .divisor = n_ranks,
                .n_devices = n_devices,
                .topology = &m->topology };
        return m;
}

/* One more entry for all, whose places are buffers 1 (inputs) and 2 (outputs) of each rank, without memory;
 * entries lie end to end. */
static inline void problem_add(struct made_problem *m, enum dtype dtype, uint64_t count) {
        uint32_t e = m->signature.n_entries++;
        ck_assert_uint_lt(e, MOST_ENTRIES);
        for (uint32_t i = 0; i < m->problem.n_ranks; i++) {
                struct entry *entry = &m->entries[i][e];
                uint64_t at = e ? entry[-1].input.span.offset_bytes + entry[-1].input.span.n_bytes : 0,
                         n_bytes = count * dtype_bytes(dtype);
                at = (at + 15) / 16 * 16;
                *entry = (struct entry){ .dtype = dtype,
                        .destination = DESTINATION_ALL,
                        .n_dims = 1,
                        .shape = { count },
                        .input = { .buffer = 1,
                                .offset_bytes = at,
                                .file = 1 + 2 * i,
                                .span = { at, n_bytes } },
                        .output = { .buffer = 2,
                                .offset_bytes = at,
                                .file = 2 + 2 * i,
                                .span = { at, n_bytes } } };
        }
}

/* `n` GPUs, each linked to those of its row's bits (NULL: all to all), with a library; replica i brings its
 * values in GPU i modulo n. */
static inline void problem_on_gpus(struct made_problem *m, uint32_t n, const uint8_t *links) {
        m->topology = (struct topology){ .n_devices = n, .has_library = true };
        for (uint32_t i = 0; i < n; i++) {
                m->topology.devices[i] = DEVICE_GPU + i;
                for (uint32_t k = 0; k < n; k++)
                        m->topology.links[i][k] = i == k                        ? LINK_SAME
                                                  : !links || links[i] >> k & 1 ? LINK_NVLINK
                                                                                : LINK_NONE;
        }
        for (uint32_t i = 0; i < m->problem.n_ranks; i++)
                m->homes[i] = DEVICE_GPU + i % n;
        m->problem.homes = m->homes;
        m->problem.device = DEVICE_GPU;
}

/* Plans it and asserts what is printed. */
static inline void problem_prints(
        struct made_problem *m, struct planner *planner, uint64_t chunk_bytes, const char *expected) {
        static struct error err;
        char buf[8192];
        struct text t;
        struct plan plan;
        plan_init(&plan);
        enum status status = planner_plan(planner, &m->problem, &plan, &err);
        ck_assert_msg(status == STATUS_OK, "%s", err.detail);
        text_init(&t, buf, sizeof(buf));
        plan_print(&plan, &t);
        ck_assert_str_eq(buf, expected);
        plan_deinit(&plan);
}
