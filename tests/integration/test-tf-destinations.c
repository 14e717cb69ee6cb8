/* TensorFlow's statements about destinations (TA1 to TA4): all devices of the values, one of them, and a
 * device of its own (here a result object there); in a batch every pair of these. By every way that a host
 * has, in every world, on 1 to 8 host devices. What goes to one place is nowhere else. */
#include <stdio.h>
#include <string.h>
#include "objects.h"

#define N 4 /* floats of a value */

enum to { TO_ALL, TO_LAST, TO_DEVICE, N_TO };

static const struct tutti_options ways[] = {
        TUTTI_OPTIONS(.timeout = 0),
        TUTTI_OPTIONS(.algorithm = "one_device"),
        TUTTI_OPTIONS(.device = "CPU:0"), /* reduce_to_device */
        TUTTI_OPTIONS(.algorithm = "hierarchical_copy", .num_packs = 8),
        TUTTI_OPTIONS(.algorithm = "hierarchical_copy", .agg_small_grads_max_bytes = 100,
                .agg_small_grads_max_group = 10),
        TUTTI_OPTIONS(.implementation = TUTTI_NCCL, .num_packs = 1),
};

#define N_WAYS (sizeof(ways) / sizeof(*ways))

struct bench {
        struct replica *me;
        struct tutti_group *g;
        struct tutti_object *object;
        char device[16];
        struct floats in[2], out[2];
};

static bool is_last(const struct bench *b) {
        return b->me->rank == b->me->n - 1;
}

static struct tutti_destinations destinations_of(const struct bench *b, enum to to) {
        if (to == TO_ALL)
                return (struct tutti_destinations){ .where = TUTTI_TO_ALL };
        if (to == TO_LAST)
                return (struct tutti_destinations){ .where = TUTTI_TO_RANK, .rank = b->me->n - 1 };
        return (struct tutti_destinations){ .where = TUTTI_TO_DEVICE, .device = b->device };
}

/* Where result k goes; NULL: not here. */
static const struct tutti_value *output_of(struct bench *b, enum to to, int k, struct tutti_value *place) {
        if (to == TO_LAST && !is_last(b))
                return NULL;
        *place = to == TO_DEVICE ? value_in(b->object, (size_t)k * 64, N) : b->out[k].value;
        return place;
}

static void expect_result(struct bench *b, enum to to, int k, uint32_t slot, float want) {
        bool is_here = to == TO_ALL || (to == TO_LAST && is_last(b));
        floats_expect(&b->out[k], is_here ? want : -1);
        if (to == TO_DEVICE)
                expect_slot(b->object, slot, (size_t)k * 64 / sizeof(float), N, want);
}

/* Waits; the slot that the result is in, if it is in one. */
static uint32_t end(struct tutti_work *w) {
        struct tutti_result result;
        expect_work(w, TUTTI_OK);
        expect_status(tutti_work_result(w, &result), TUTTI_OK);
        tutti_work_free(w);
        return result.slot;
}

static void release(struct bench *b, const enum to *to, int n, uint32_t slot) {
        bool is_held = false;
        for (int k = 0; k < n; k++)
                is_held |= to[k] == TO_DEVICE;
        if (is_held)
                expect_status(tutti_object_release(b->object, slot), TUTTI_OK);
}

static void clear(struct bench *b) {
        for (int k = 0; k < 2; k++)
                floats_fill(&b->out[k], -1);
}

/* TA1: D (D - 1) / 2 and D (D + 1) / 2, and these divided by D. */
static float total(const struct bench *b, enum tutti_op op, int k) {
        const float d = (float)b->me->n;
        return d * (k ? d + 1 : d - 1) / 2 / (op == TUTTI_MEAN ? d : 1);
}

static void reduce_each(struct bench *b, enum tutti_op op, const struct tutti_options *options) {
        for (enum to to = 0; to < N_TO; to++)
                for (int k = 0; k < 2; k++) {
                        const struct tutti_destinations there = destinations_of(b, to);
                        struct tutti_value place;
                        struct tutti_work *w;
                        clear(b);
                        expect_status(tutti_reduce_start(b->g, NULL, op, &b->in[k].value,
                                              output_of(b, to, k, &place), &there, options, &w),
                                TUTTI_OK);
                        uint32_t slot = end(w);
                        expect_result(b, to, k, slot, total(b, op, k));
                        release(b, &to, 1, slot);
                }
}

static void reduce_pair(
        struct bench *b, enum tutti_op op, const enum to to[2], const struct tutti_options *options) {
        struct tutti_value places[2];
        struct tutti_entry entries[2];
        struct tutti_work *w;
        clear(b);
        for (int k = 0; k < 2; k++)
                entries[k] =
                        TUTTI_ENTRY(.input = &b->in[k].value, .output = output_of(b, to[k], k, &places[k]),
                                .destinations = destinations_of(b, to[k]));
        expect_status(tutti_batch_reduce_start(b->g, NULL, op, entries, 2, options, &w), TUTTI_OK);
        uint32_t slot = end(w);
        for (int k = 0; k < 2; k++)
                expect_result(b, to[k], k, slot, total(b, op, k));
        release(b, to, 2, slot);
}

/* TA3: 1 of rank 0 to each destination. */
static void broadcast_to_each(struct bench *b, const struct tutti_options *options) {
        struct floats one;
        floats_init(b->me->t, &one, N);
        floats_fill(&one, 1);
        for (enum to to = 0; to < N_TO; to++) {
                const struct tutti_destinations there = destinations_of(b, to);
                struct tutti_value place;
                struct tutti_work *w;
                const struct tutti_value *output = output_of(b, to, 0, &place);
                clear(b);
                if (!output) /* who neither brings nor receives says what it is, and is left alone */
                        output = &b->out[0].value;
                expect_status(tutti_broadcast_into_start(b->g, NULL, 0, b->me->rank ? NULL : &one.value,
                                      output, &there, options, &w),
                        TUTTI_OK);
                uint32_t slot = end(w);
                expect_result(b, to, 0, slot, 1);
                release(b, &to, 1, slot);
        }
        floats_deinit(&one);
}

static void go_everywhere(struct replica *me) {
        struct bench b = { .me = me, .g = join_train(me, TUTTI_FAIL) };
        (void)snprintf(b.device, sizeof(b.device), "CPU:%u", *(uint32_t *)me->arg - 1);
        expect_status(tutti_object_make(b.g,
                              &TUTTI_OBJECT(.name = "there", .n_bytes = 4096, .device = b.device), &b.object),
                TUTTI_OK);
        for (int k = 0; k < 2; k++) {
                floats_init(me->t, &b.in[k], N);
                floats_fill(&b.in[k], (float)me->rank + (float)k);
                floats_init(me->t, &b.out[k], N);
        }
        for (size_t i = 0; i < N_WAYS; i++) {
                broadcast_to_each(&b, &ways[i]);
                for (enum tutti_op op = TUTTI_SUM; op <= TUTTI_MEAN; op++) {
                        reduce_each(&b, op, &ways[i]);
                        for (enum to k = 0; k < N_TO * N_TO; k++)
                                reduce_pair(&b, op, (enum to[]){ k / N_TO, k % N_TO }, &ways[i]);
                }
        }
}

static void run_on(uint32_t n_devices, uint32_t n) {
        char devices[32];
        uint32_t *arg = memory_shared(sizeof(*arg));
        *arg = n_devices;
        (void)snprintf(devices, sizeof(devices), "cpu.devices=%u", n_devices);
        board_init();
        struct host *h = host_start((const char *[]){ "--set", devices, NULL });
        run_replicas(h, n, go_everywhere, arg);
        host_expect_counters_zero(h);
        host_stop(h);
}

static const uint32_t worlds[] = { 1, 2, 3, 4, 5, 7, 8, 16 };

START_TEST(TA1_TA2_TA3_TA4_every_pair_of_destinations_in_every_world) {
        for (size_t i = 0; i < sizeof(worlds) / sizeof(*worlds); i++)
                run_on(2, worlds[i]);
}
END_TEST

START_TEST(TA1_TA2_TA3_TA4_every_pair_of_destinations_on_1_to_8_devices) {
        for (uint32_t n_devices = 1; n_devices <= 8; n_devices++)
                run_on(n_devices, worlds[8 - n_devices]);
}
END_TEST

UNIT_MAIN("tf-destinations", 170, TA1_TA2_TA3_TA4_every_pair_of_destinations_in_every_world,
        TA1_TA2_TA3_TA4_every_pair_of_destinations_on_1_to_8_devices)
