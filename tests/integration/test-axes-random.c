/* Random gathers and reduce_scatters against the oracle (P4 P10 P14, TB10): dtype, op, shape, axis, lengths
 * that differ from rank to rank (also 0), strides, offsets, batches, destinations, buffers and plain memory.
 * Each replica makes the same cases from the same seed, computes what must come out, and compares every byte
 * of its memory, also those that nobody may touch.
 *
 * TUTTI_TEST_SEED=n plays other cases; a failure names its own. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/axes.h>
#include "meeting.h"
#include "oracle.h"
#include "replica.h"
#include "unit.h"

#define MOST_RANKS  16
#define MAX_BATCH   4
#define ARENA_BYTES ((size_t)16 << 20)

/* --- random numbers that all replicas draw alike (splitmix64) --- */

struct dice {
        uint64_t state;
};

static uint64_t roll(struct dice *d, uint64_t sides) {
        uint64_t z = d->state += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return (z ^ (z >> 31)) % sides;
}

static bool roll_is(struct dice *d, uint64_t one_in) {
        return roll(d, one_in) == 0;
}

/* --- cases --- */

enum verb { GATHER, SCATTER, N_VERB };

struct item {
        enum tutti_dtype dtype, out_dtype;
        uint32_t n_dims;
        uint64_t shape[TUTTI_MAX_DIMS]; /* along the axis: of the whole */
        uint64_t lengths[MOST_RANKS];   /* along the axis: of each rank's own part */
        struct tutti_destinations destinations;
        uint64_t seed;
};

struct test_case {
        enum verb verb;
        enum tutti_op op;
        enum tutti_rounding rounding;
        bool has_weights;
        double weights[MOST_RANKS];
        uint32_t axis, n_items;
        struct item items[MAX_BATCH];
};

static enum tutti_dtype roll_dtype(struct dice *d, const struct test_case *c) {
        for (;;) {
                enum dtype dtype = DTYPE_U8 + (enum dtype)roll(d, N_DTYPE - DTYPE_U8);
                bool is_mean = c->op == TUTTI_MEAN && dtype_is_integer(dtype);
                if (c->verb == GATHER || (c->rounding             ? is_mean
                                                 : c->has_weights ? dtype_is_float(dtype)
                                                                  : op_is_supported((enum op)c->op, dtype)))
                        return (enum tutti_dtype)dtype;
        }
}

static void roll_lengths(struct dice *d, uint32_t axis, uint32_t world, struct item *item) {
        uint64_t most = roll_is(d, 8) ? 60 : 6, total = 0;
        bool is_equal = roll_is(d, 3);
        for (uint32_t r = 0; r < world; r++) {
                item->lengths[r] = is_equal && r ? item->lengths[0] : roll(d, most);
                total += item->lengths[r];
        }
        item->shape[axis] = total;
}

static void roll_destinations(struct dice *d, uint32_t world, struct tutti_destinations *ret) {
        *ret = (struct tutti_destinations){ .where = (enum tutti_destination)roll(d, 3) };
        if (ret->where == TUTTI_TO_RANK)
                ret->rank = (uint32_t)roll(d, world);
        uint64_t mask = 1 + roll(d, (UINT64_C(1) << world) - 1);
        if (ret->where == TUTTI_TO_RANKS)
                ret->ranks.words[0] = mask;
}

static void roll_item(struct dice *d, const struct test_case *c, uint32_t world, struct item *item) {
        *item = (struct item){ .dtype = roll_dtype(d, c), .seed = roll(d, UINT64_MAX) };
        item->out_dtype = item->dtype;
        item->n_dims = c->axis + 1 + (uint32_t)roll(d, 3);
        uint64_t others = 1;
        for (uint32_t i = 0; i < item->n_dims; i++) {
                item->shape[i] = roll_is(d, 30) ? 0 : 1 + roll(d, roll_is(d, 6) ? 20 : 4);
                if (i != c->axis && others * item->shape[i] > 40)
                        item->shape[i] = 1;
                others *= i == c->axis ? 1 : item->shape[i];
        }
        roll_lengths(d, c->axis, world, item);
        if (c->verb == GATHER)
                roll_destinations(d, world, &item->destinations);
}

static void roll_case(struct dice *d, uint32_t world, struct test_case *c) {
        *c = (struct test_case){ .verb = (enum verb)roll(d, N_VERB), .axis = (uint32_t)roll(d, 4) };
        if (c->verb == SCATTER) {
                c->op = TUTTI_SUM + (enum tutti_op)roll(d, TUTTI_LOR);
                if (c->op == TUTTI_MEAN && roll_is(d, 3))
                        c->rounding = TUTTI_TRUNC + (enum tutti_rounding)roll(d, 3);
                c->has_weights = !c->rounding && c->op <= TUTTI_MEAN && roll_is(d, 3);
        }
        for (uint32_t r = 0; r < world; r++)
                c->weights[r] = (double)roll(d, 5) / 7;
        c->weights[roll(d, world)] = 1;
        c->n_items = 1 + (roll_is(d, 2) ? (uint32_t)roll(d, MAX_BATCH) : 0);
        for (uint32_t i = 0; i < c->n_items; i++)
                roll_item(d, c, world, &c->items[i]);
}

/* --- numbers --- */

static uint64_t count_of(const struct item *item, uint32_t axis, uint64_t length) {
        uint64_t n = 1;
        for (uint32_t i = 0; i < item->n_dims; i++)
                n *= i == axis ? length : item->shape[i];
        return n;
}

/* Elements behind one step along the axis; steps of all dimensions before it. */
static uint64_t inner_of(const struct item *item, uint32_t axis) {
        uint64_t n = 1;
        for (uint32_t i = axis + 1; i < item->n_dims; i++)
                n *= item->shape[i];
        return n;
}

static uint64_t outer_of(const struct item *item, uint32_t axis) {
        uint64_t n = 1;
        for (uint32_t i = 0; i < axis; i++)
                n *= item->shape[i];
        return n;
}

static void *make_array(uint64_t n_bytes) {
        void *p = calloc(1, n_bytes ? n_bytes : 1);
        ck_assert_ptr_nonnull(p);
        return p;
}

static uint64_t input_length(const struct test_case *c, const struct item *item, uint32_t rank) {
        return c->verb == GATHER ? item->lengths[rank] : item->shape[c->axis];
}

/* What a rank brings, contiguous. */
static uint8_t *make_input(const struct test_case *c, const struct item *item, uint32_t rank) {
        uint64_t n = count_of(item, c->axis, input_length(c, item, rank));
        uint8_t *array = make_array(n * tutti_dtype_bytes(item->dtype));
        oracle_fill((enum dtype)item->dtype, array, n, item->seed + rank);
        return array;
}

static uint64_t first_of(const struct item *item, uint32_t rank) {
        uint64_t first = 0;
        for (uint32_t r = 0; r < rank; r++)
                first += item->lengths[r];
        return first;
}

/* Copies `length` steps of the axis between two contiguous arrays that have `from_whole` and `to_whole`. */
struct cut {
        const struct item *item;
        uint32_t axis;
        uint64_t length, from_first, from_whole, to_first, to_whole;
};

static void cut_copy(const struct cut *k, const uint8_t *from, uint8_t *to) {
        uint64_t run = inner_of(k->item, k->axis) * tutti_dtype_bytes(k->item->dtype);
        for (uint64_t o = 0; o < outer_of(k->item, k->axis); o++)
                if (k->length > 0 && run > 0)
                        memcpy(to + (o * k->to_whole + k->to_first) * run,
                                from + (o * k->from_whole + k->from_first) * run, k->length * run);
}

static uint8_t *make_gathered(const struct test_case *c, const struct item *item, uint32_t world) {
        uint64_t whole = item->shape[c->axis];
        uint8_t *to = make_array(count_of(item, c->axis, whole) * tutti_dtype_bytes(item->dtype));
        for (uint32_t r = 0; r < world; r++) {
                uint8_t *from = make_input(c, item, r);
                cut_copy(&(struct cut){ item, c->axis, item->lengths[r], 0, item->lengths[r],
                                 first_of(item, r), whole },
                        from, to);
                free(from);
        }
        return to;
}

static uint8_t *make_slice(const struct test_case *c, const struct item *item, const struct replica *me) {
        uint64_t whole = item->shape[c->axis], n = count_of(item, c->axis, whole);
        uint8_t *inputs[MOST_RANKS], *all = make_array(n * 16), *slice = make_array(n * 16);
        const void *const *in = (const void *const *)inputs;
        for (uint32_t r = 0; r < me->n; r++)
                inputs[r] = make_input(c, item, r);
        if (c->rounding)
                oracle_mean_of_integers(
                        (enum dtype)item->dtype, (enum rounding)c->rounding, in, me->n, all, n, me->n);
        else if (c->has_weights)
                oracle_weighted((enum op)c->op, (enum dtype)item->dtype, in, c->weights, me->n, all, n);
        else
                oracle_reduce((enum op)c->op, (enum dtype)item->dtype, in, me->n, all, n, me->n);
        cut_copy(&(struct cut){ item, c->axis, item->lengths[me->rank], first_of(item, me->rank), whole, 0,
                         item->lengths[me->rank] },
                all, slice);
        for (uint32_t r = 0; r < me->n; r++)
                free(inputs[r]);
        free(all);
        return slice;
}

/* --- where values lie --- */

struct bench {
        struct replica *me;
        struct tutti_group *group;
        struct tutti_buffer *buffer;
        uint8_t *memory[2];   /* of the buffer, and plain */
        uint8_t *expected[2]; /* what they must hold */
        size_t used[2];
        struct dice own;
};

struct spot {
        struct tutti_value value;
        uint32_t arena;
        size_t offset;
        uint64_t strides[TUTTI_MAX_DIMS]; /* in elements, also where the value says none */
};

/* Strides in a random order of the dimensions, with gaps. */
static uint64_t roll_strides(struct dice *d, const uint64_t *shape, uint32_t n_dims, uint64_t *ret) {
        bool done[TUTTI_MAX_DIMS] = { false };
        uint64_t step = 1 + roll(d, 2), extent = 1;
        for (uint32_t k = 0; k < n_dims; k++) {
                uint32_t dim = (uint32_t)roll(d, n_dims);
                while (done[dim])
                        dim = (dim + 1) % n_dims;
                done[dim] = true;
                ret[dim] = step;
                extent += (shape[dim] ? shape[dim] - 1 : 0) * step;
                step = step * (shape[dim] ? shape[dim] : 1) + roll(d, 3);
        }
        return extent;
}

static uint64_t contiguous_strides(const uint64_t *shape, uint32_t n_dims, uint64_t *ret) {
        uint64_t run = 1;
        for (uint32_t i = n_dims; i-- > 0; run *= shape[i])
                ret[i] = run;
        return run;
}

/* A place for a value of this shape. */
static void lay(
        struct bench *b, enum tutti_dtype dtype, const uint64_t *shape, uint32_t n_dims, struct spot *ret) {
        struct dice *d = &b->own;
        size_t size = tutti_dtype_bytes(dtype);
        bool has_strides = roll_is(d, 3);
        *ret = (struct spot){ .arena = roll_is(d, 3) };
        uint64_t extent = has_strides ? roll_strides(d, shape, n_dims, ret->strides)
                                      : contiguous_strides(shape, n_dims, ret->strides);
        b->used[ret->arena] = (b->used[ret->arena] + size - 1) / size * size + size * roll(d, 4);
        ret->offset = b->used[ret->arena];
        b->used[ret->arena] += extent * size + 16;
        ck_assert_uint_le(b->used[ret->arena], ARENA_BYTES);
        ret->value = TUTTI_VALUE(.dtype = dtype, .n_dims = n_dims, .offset = ret->offset);
        memcpy(ret->value.shape, shape, n_dims * sizeof(*shape));
        ret->value.has_strides = has_strides;
        memcpy(ret->value.strides, ret->strides, sizeof(ret->strides));
        if (ret->arena)
                ret->value.memory = b->memory[1];
        else
                ret->value.buffer = b->buffer;
}

/* Writes a contiguous array where the spot's elements are, of a value of this shape. */
static void put(const struct spot *s, const uint64_t *shape, const uint8_t *array, uint8_t *memory) {
        size_t size = tutti_dtype_bytes(s->value.dtype);
        uint64_t index[TUTTI_MAX_DIMS] = { 0 }, n = 1;
        uint32_t n_dims = s->value.n_dims;
        for (uint32_t i = 0; i < n_dims; i++)
                n *= shape[i];
        for (uint64_t k = 0; k < n; k++) {
                uint64_t at = 0;
                for (uint32_t i = 0; i < n_dims; i++)
                        at += index[i] * s->strides[i];
                memcpy(memory + s->offset + at * size, array + k * size, size);
                for (uint32_t i = n_dims; i-- > 0 && ++index[i] == shape[i];)
                        index[i] = 0;
        }
}

/* --- playing --- */

struct play {
        struct bench *b;
        const struct test_case *c;
        uint64_t seed;
        struct spot inputs[MAX_BATCH], outputs[MAX_BATCH];
        struct tutti_entry entries[MAX_BATCH];
};

static bool receives(const struct play *p, const struct item *item) {
        const struct tutti_destinations *d = &item->destinations;
        uint32_t rank = p->b->me->rank;
        if (d->where == TUTTI_TO_RANK)
                return d->rank == rank;
        return d->where == TUTTI_TO_ALL || tutti_ranks_has(&d->ranks, rank);
}

static void lay_item(struct play *p, uint32_t i) {
        const struct test_case *c = p->c;
        const struct item *item = &c->items[i];
        struct bench *b = p->b;
        uint32_t rank = b->me->rank;
        uint64_t shape[TUTTI_MAX_DIMS];
        memcpy(shape, item->shape, sizeof(shape));
        shape[c->axis] = input_length(c, item, rank);
        lay(b, item->dtype, shape, item->n_dims, &p->inputs[i]);
        /* A gather may have room to spare. */
        shape[c->axis] = c->verb == GATHER
                                 ? item->shape[c->axis] + (roll_is(&b->own, 2) ? roll(&b->own, 5) : 0)
                                 : item->lengths[rank];
        lay(b, item->out_dtype, shape, item->n_dims, &p->outputs[i]);
        bool has_output = receives(p, item) && (c->verb == GATHER || shape[c->axis] || roll_is(&b->own, 2));
        p->entries[i] = TUTTI_ENTRY(.input = &p->inputs[i].value,
                .output = has_output ? &p->outputs[i].value : NULL, .destinations = item->destinations);
        uint8_t *array = make_input(c, item, rank);
        shape[c->axis] = input_length(c, item, rank);
        put(&p->inputs[i], shape, array, b->memory[p->inputs[i].arena]);
        free(array);
}

static void expect_item(struct play *p, uint32_t i) {
        const struct test_case *c = p->c;
        const struct item *item = &c->items[i];
        struct bench *b = p->b;
        struct spot *out = &p->outputs[i];
        uint64_t shape[TUTTI_MAX_DIMS];
        if (!p->entries[i].output)
                return;
        memcpy(shape, item->shape, sizeof(shape));
        if (c->verb == SCATTER)
                shape[c->axis] = item->lengths[b->me->rank];
        if (!out->value.has_strides)
                contiguous_strides(shape, item->n_dims, out->strides);
        uint8_t *array = c->verb == GATHER ? make_gathered(c, item, b->me->n) : make_slice(c, item, b->me);
        put(out, shape, array, b->expected[out->arena]);
        free(array);
}

/* NaNs are equal, wherever they are: those of the result are given the bits that are there. */
static void forgive_nans(struct play *p, uint32_t i) {
        struct spot *out = &p->outputs[i];
        size_t size = tutti_dtype_bytes(out->value.dtype);
        const uint8_t *got = p->b->memory[out->arena];
        uint8_t *want = p->b->expected[out->arena];
        if (!p->entries[i].output || p->c->verb == GATHER)
                return;
        uint64_t n = count_of(&p->c->items[i], p->c->axis, p->c->items[i].lengths[p->b->me->rank]);
        uint64_t index[TUTTI_MAX_DIMS] = { 0 };
        for (uint64_t k = 0; k < n; k++) {
                uint64_t at = 0;
                for (uint32_t d = 0; d < out->value.n_dims; d++)
                        at += index[d] * out->strides[d];
                at = out->offset + at * size;
                if (oracle_difference((enum dtype)out->value.dtype, want + at, got + at, 1) < 0)
                        memcpy(want + at, got + at, size);
                for (uint32_t d = out->value.n_dims; d-- > 0 && ++index[d] == out->value.shape[d];)
                        index[d] = 0;
        }
}

static struct tutti_work *start(struct play *p) {
        const struct test_case *c = p->c;
        struct tutti_work *w = NULL;
        const struct tutti_options options = TUTTI_OPTIONS(.rounding = c->rounding,
                .has_weight = c->has_weights, .weight = c->weights[p->b->me->rank]);
        enum tutti_status status = c->verb == GATHER
                                           ? tutti_gather_start(p->b->group,
                                                     &TUTTI_GATHER(.axis = (int32_t)c->axis,
                                                             .entries = p->entries, .n_entries = c->n_items),
                                                     &w)
                                           : tutti_reduce_scatter_start(p->b->group,
                                                     &TUTTI_REDUCE_SCATTER(.op = c->op,
                                                             .axis = (int32_t)c->axis, .entries = p->entries,
                                                             .n_entries = c->n_items, .options = &options),
                                                     &w);
        ck_assert_msg(status == TUTTI_OK, "case %llu: %s", (unsigned long long)p->seed, tutti_error());
        return w;
}

static void expect_extents(struct play *p, struct tutti_work *w) {
        for (uint32_t i = 0; i < p->c->n_items; i++) {
                const struct item *item = &p->c->items[i];
                uint64_t total, first;
                expect_status(tutti_work_extent(w, i, &total, &first), TUTTI_OK);
                ck_assert_msg(total == item->shape[p->c->axis] && first == first_of(item, p->b->me->rank),
                        "case %llu, value %u: told %llu and %llu", (unsigned long long)p->seed, i,
                        (unsigned long long)total, (unsigned long long)first);
        }
}

static void play(struct bench *b, uint64_t seed) {
        struct test_case c;
        struct play p = { .b = b, .c = &c, .seed = seed };
        roll_case(&(struct dice){ .state = seed }, b->me->n, &c);
        b->own.state = seed ^ (b->me->rank + 1) * UINT64_C(0x5851f42d4c957f2d);
        b->used[0] = b->used[1] = 64;
        for (uint32_t i = 0; i < c.n_items; i++)
                lay_item(&p, i);
        for (uint32_t a = 0; a < 2; a++)
                memcpy(b->expected[a], b->memory[a], b->used[a] + 64);
        for (uint32_t i = 0; i < c.n_items; i++)
                expect_item(&p, i);
        struct tutti_work *w = start(&p);
        enum tutti_status status = tutti_work_wait(w, -1);
        ck_assert_msg(
                status == TUTTI_OK, "case %llu: %s", (unsigned long long)seed, tutti_work_error(w)->text);
        expect_extents(&p, w);
        tutti_work_free(w);
        for (uint32_t i = 0; i < c.n_items; i++)
                forgive_nans(&p, i);
        for (uint32_t a = 0; a < 2; a++)
                for (size_t at = 0; at < b->used[a] + 64; at++)
                        ck_assert_msg(b->memory[a][at] == b->expected[a][at],
                                "case %llu: R%u of %u, byte %zu of %s memory is %02x, not %02x",
                                (unsigned long long)seed, b->me->rank, b->me->n, at, a ? "plain" : "shared",
                                b->memory[a][at], b->expected[a][at]);
}

/* --- all of them --- */

#define N_CASES 150 /* for each world; sanitizers get a tenth */

struct tour {
        uint64_t first_seed, n_cases;
};

static void play_all(struct replica *me) {
        const struct tour *tour = me->arg;
        struct bench b = { .me = me };
        b.group = replica_join_group(me, &TUTTI_JOIN(.group = "train", .default_timeout = 60));
        expect_status(tutti_buffer_alloc(me->t, ARENA_BYTES + 64, &b.buffer), TUTTI_OK);
        b.memory[0] = tutti_buffer_data(b.buffer);
        b.memory[1] = make_array(ARENA_BYTES + 64);
        for (uint32_t a = 0; a < 2; a++)
                b.expected[a] = make_array(ARENA_BYTES + 64);
        for (uint64_t i = 0; i < tour->n_cases; i++)
                play(&b, tour->first_seed + me->n * 1000 + i);
        for (uint32_t a = 0; a < 2; a++)
                free(b.expected[a]);
        free(b.memory[1]);
}

static void play_on(uint64_t number, const char *const *args) {
        static const uint32_t worlds[] = { 1, 2, 3, 4, 5, 7, 8, 16 };
        const char *given = getenv("TUTTI_TEST_SEED");
        struct tour *tour = memory_shared(sizeof(*tour));
        tour->first_seed = (given ? strtoull(given, NULL, 10) : 1) * 1000000 + number * 100000;
        tour->n_cases = unit_scale() > 1 ? N_CASES / 10 : N_CASES;
        printf("# %llu cases for each of %zu world sizes, TUTTI_TEST_SEED=%llu\n",
                (unsigned long long)tour->n_cases, ARRAY_SIZE(worlds),
                (unsigned long long)(tour->first_seed / 1000000));
        struct host *h = host_start(args);
        for (size_t i = 0; i < ARRAY_SIZE(worlds); i++) {
                run_replicas(h, worlds[i], play_all, tour);
                host_expect_counters_zero(h);
        }
        host_stop(h);
}

START_TEST(TB10_P10_P14_random_collectives_along_axes_by_one_device) {
        play_on(1, (const char *[]){ "--workers", "1", NULL });
}
END_TEST

START_TEST(TB10_P10_P14_random_collectives_along_axes_in_small_chunks_by_eight_devices) {
        play_on(2, (const char *[]){ "--set", "cpu.chunk=4KiB", "--set", "cpu.devices=8", NULL });
}
END_TEST

UNIT_MAIN("axes-random", 120, TB10_P10_P14_random_collectives_along_axes_by_one_device,
        TB10_P10_P14_random_collectives_along_axes_in_small_chunks_by_eight_devices)
