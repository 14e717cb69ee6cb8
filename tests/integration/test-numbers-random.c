/* Ten thousand random collectives against the oracle (D1 D7 D16, P10 P14): dtype, op, shape, strides,
 * offsets, ranks, batches, in place or not, buffers and plain memory, weights, roundings, checks, on hosts of
 * every instruction set, number of workers and size of chunks. Each replica makes the same cases from the
 * same seed, computes what must come out, and compares every byte of its memory, also those that nobody may
 * touch: around values, and between strided elements. How values lie is each replica's own.
 *
 * TUTTI_TEST_SEED=n plays other cases; a failure names its own. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "meeting.h"
#include "oracle.h"
#include "replica.h"
#include "unit.h"

#define MOST_RANKS  6
#define MAX_BATCH   8
#define N_BUFFERS   2
#define PLAIN       N_BUFFERS /* plain memory, beside the buffers */
#define N_ARENAS    (N_BUFFERS + 1)
#define ARENA_BYTES ((size_t)16 << 20)
/* Beyond so many elements a value is contiguous. */
#define MAX_STRIDED 4000

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

/* One value of a case: what all replicas know of it. */
struct item {
        enum tutti_dtype dtype;
        uint32_t n_dims;
        uint64_t shape[TUTTI_MAX_DIMS];
        size_t n_bytes, n_out_bytes, count;
        enum tutti_dtype out_dtype;
        bool is_in_place;
        int shares; /* the input is that of this earlier item; -1: its own */
        struct tutti_destinations destinations;
        uint64_t seed;
};

enum verb { ALL_REDUCE, REDUCE, BROADCAST, BATCH };

struct test_case {
        enum verb verb;
        enum tutti_op op;
        bool is_integer_mean, has_weights, is_checked, has_checksums;
        enum tutti_rounding rounding; /* of a mean of integers; unspecified: to floats */
        double weights[MOST_RANKS];
        uint32_t root, n_items;
        struct item items[MAX_BATCH];
};

/* What the op can do, in the way that the case asks for. */
static enum tutti_dtype roll_dtype(struct dice *d, const struct test_case *c) {
        for (;;) {
                enum dtype dtype = DTYPE_U8 + (enum dtype)roll(d, N_DTYPE - DTYPE_U8);
                if (c->is_integer_mean   ? dtype_is_integer(dtype)
                        : c->has_weights ? dtype_is_float(dtype)
                                         : op_is_supported((enum op)c->op, dtype))
                        return (enum tutti_dtype)dtype;
        }
}

/* Small dimensions, now and then a large one or none at all. */
static void roll_shape(struct dice *d, struct item *item) {
        item->count = 1;
        item->n_dims = (uint32_t)roll(d, TUTTI_MAX_DIMS + 1);
        for (uint32_t i = 0; i < item->n_dims; i++) {
                uint64_t dim = 1 + roll(d, 5);
                if (i == 0 && roll_is(d, 3))
                        dim = 1 + roll(d, roll_is(d, 30) ? 40000 : 200);
                if (roll_is(d, 60))
                        dim = 0;
                if (item->count * dim > (roll_is(d, 30) ? 40000 : 800))
                        dim = 1;
                item->shape[i] = dim;
                item->count *= dim;
        }
        item->n_bytes = item->count * tutti_dtype_bytes(item->dtype);
        item->n_out_bytes = item->count * tutti_dtype_bytes(item->out_dtype);
}

static void roll_destinations(struct dice *d, uint32_t world, struct tutti_destinations *ret) {
        *ret = (struct tutti_destinations){ .where = (enum tutti_destination)roll(d, 3) };
        if (ret->where == TUTTI_TO_RANK)
                ret->rank = (uint32_t)roll(d, world);
        uint64_t mask = 1 + roll(d, (UINT64_C(1) << world) - 1);
        if (ret->where == TUTTI_TO_RANKS)
                ret->ranks.words[0] = mask;
}

static void roll_item(struct dice *d, const struct test_case *c, uint32_t world, struct item *ret) {
        *ret = (struct item){ .dtype = roll_dtype(d, c), .shares = -1, .seed = roll(d, UINT64_MAX) };
        ret->out_dtype = ret->dtype;
        if (c->is_integer_mean && !c->rounding)
                ret->out_dtype = (enum tutti_dtype)dtype_of_integer_mean((enum dtype)ret->dtype);
        roll_shape(d, ret);
        ret->is_in_place =
                roll_is(d, 2) && tutti_dtype_bytes(ret->dtype) == tutti_dtype_bytes(ret->out_dtype);
        if (c->verb == REDUCE || c->verb == BATCH)
                roll_destinations(d, world, &ret->destinations);
        /* An input may be used twice where nothing is written into it. */
        uint64_t other = roll(d, MAX_BATCH);
        if (other >= c->n_items || ret->is_in_place)
                return;
        const struct item *first = &c->items[other];
        if (first->is_in_place || first->shares >= 0)
                return;
        *ret = *first;
        ret->shares = (int)other;
}

/* Now and then what only options ask for: means of integers, weights, checks. */
static void roll_options(struct dice *d, uint32_t world, struct test_case *c) {
        c->is_integer_mean = c->op == TUTTI_MEAN && roll_is(d, 3);
        c->has_weights = !c->is_integer_mean && c->op <= TUTTI_MEAN && roll_is(d, 3);
        c->rounding = c->is_integer_mean ? (enum tutti_rounding)roll(d, 4) : TUTTI_ROUNDING_UNSPECIFIED;
        for (uint32_t rank = 0; rank < world; rank++)
                c->weights[rank] = (double)roll(d, 5) / 7;
        c->weights[roll(d, world)] = 1;
}

static void roll_case(struct dice *d, uint32_t world, struct test_case *ret) {
        *ret = (struct test_case){ .verb = (enum verb)roll(d, 4),
                .op = TUTTI_SUM + (enum tutti_op)roll(d, TUTTI_LOR),
                .root = (uint32_t)roll(d, world) };
        uint32_t n = ret->verb == BATCH ? 1 + (uint32_t)roll(d, MAX_BATCH) : 1;
        ret->is_checked = roll_is(d, 4);
        ret->has_checksums = roll_is(d, 4);
        if (ret->verb == BROADCAST)
                ret->op = TUTTI_SUM; /* any type will do */
        else
                roll_options(d, world, ret);
        for (; ret->n_items < n; ret->n_items++)
                roll_item(d, ret, world, &ret->items[ret->n_items]);
}

/* --- one replica's memory --- */

/* Where a value lies. */
struct spot {
        uint32_t arena;
        size_t offset;
        bool has_strides;
        struct view view;
};

struct bench {
        struct replica *me;
        struct tutti_group *group;
        struct tutti_buffer *buffers[N_BUFFERS];
        uint8_t *memory[N_ARENAS], *expected[N_ARENAS];
        size_t used[N_ARENAS];
        struct spot inputs[MAX_BATCH], outputs[MAX_BATCH];
        struct dice dice; /* of this replica alone */
        struct tutti_result result;
};

static void bench_init(struct bench *b, struct replica *me) {
        *b = (struct bench){ .me = me, .dice = { .state = 1000 + me->rank } };
        b->group = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        for (int i = 0; i < N_BUFFERS; i++) {
                expect_status(tutti_buffer_alloc(me->t, ARENA_BYTES, &b->buffers[i]), TUTTI_OK);
                b->memory[i] = tutti_buffer_data(b->buffers[i]);
        }
        b->memory[PLAIN] = malloc(ARENA_BYTES);
        for (int i = 0; i < N_ARENAS; i++) {
                b->expected[i] = malloc(ARENA_BYTES);
                ck_assert(b->memory[i] && b->expected[i]);
        }
}

static void bench_deinit(struct bench *b) {
        for (int i = 0; i < N_ARENAS; i++)
                free(b->expected[i]);
        free(b->memory[PLAIN]);
}

/* Dimensions in any order, with gaps between them; of 1, any stride will do. Returns the extent. */
static uint64_t roll_strides(struct dice *d, const struct item *item, uint64_t *ret) {
        uint64_t stride = roll_is(d, 2) ? 1 : 1 + roll(d, 3), extent = 1;
        uint32_t order[TUTTI_MAX_DIMS];
        for (uint32_t i = 0; i < item->n_dims; i++)
                order[i] = item->n_dims - 1 - i;
        for (uint32_t i = 0; i < item->n_dims && roll_is(d, 2); i++) {
                uint32_t other = (uint32_t)roll(d, item->n_dims), swap = order[i];
                order[i] = order[other];
                order[other] = swap;
        }
        for (uint32_t i = 0; i < item->n_dims; i++) {
                uint64_t dim = item->shape[order[i]];
                ret[order[i]] = dim == 1 ? roll(d, 1000) : stride;
                extent += (dim - 1) * ret[order[i]] * (dim > 1);
                stride = dim > 1 ? extent + (roll_is(d, 2) ? 0 : roll(d, 4)) : stride;
        }
        return extent;
}

/* Anywhere behind what is there: with a gap of its own, aligned to nothing but the element. */
static struct spot bench_place(struct bench *b, const struct item *item, enum tutti_dtype dtype) {
        size_t element = tutti_dtype_bytes(dtype);
        struct spot p = { .arena = (uint32_t)roll(&b->dice, N_ARENAS) };
        uint64_t strides[TUTTI_MAX_DIMS], extent = item->count;
        p.has_strides = item->count > 0 && item->count <= MAX_STRIDED && roll_is(&b->dice, 2);
        if (p.has_strides)
                extent = roll_strides(&b->dice, item, strides);
        view_make(&p.view, item->n_dims, item->shape, p.has_strides ? strides : NULL);
        size_t at = b->used[p.arena] + 64 + roll(&b->dice, 500);
        p.offset = (at + element - 1) / element * element;
        b->used[p.arena] = p.offset + extent * element;
        ck_assert_uint_le(b->used[p.arena] + 64, ARENA_BYTES);
        return p;
}

static struct lattice lattice_of(const struct spot *p, enum tutti_dtype dtype) {
        return (struct lattice){ tutti_dtype_bytes(dtype), p->view.n_dims, p->view.shape, p->view.strides };
}

/* The value at a spot, as dense memory of the caller's: to be freed. */
static void *gather(
        const struct bench *b, const struct item *item, const struct spot *p, enum tutti_dtype dtype) {
        const struct lattice l = lattice_of(p, dtype);
        void *dense = malloc(item->count * l.element_bytes + 1);
        ck_assert_ptr_nonnull(dense);
        if (item->count)
                lattice_gather(&l, b->memory[p->arena] + p->offset, 0, item->count, dense);
        return dense;
}

static bool receives(const struct test_case *c, const struct item *item, uint32_t rank) {
        if (c->verb == BROADCAST)
                return rank != c->root;
        switch (item->destinations.where) {
        case TUTTI_TO_ALL: return true;
        case TUTTI_TO_RANK: return rank == item->destinations.rank;
        case TUTTI_TO_RANKS: return tutti_ranks_has(&item->destinations.ranks, rank);
        case TUTTI_TO_DEVICE: return false; /* those are in test-destinations.c */
        case TUTTI_TO_SAME: return true;
        }
        return false;
}

static void fill_input(const struct item *item, uint32_t rank, void *dense) {
        oracle_fill((enum dtype)item->dtype, dense, item->count, item->seed + 77 * rank);
}

static void put_input(const struct bench *b, const struct item *item, const struct spot *p) {
        const struct lattice l = lattice_of(p, item->dtype);
        void *dense = malloc(item->n_bytes + 1);
        ck_assert_ptr_nonnull(dense);
        fill_input(item, b->me->rank, dense);
        if (item->count)
                lattice_scatter(&l, b->memory[p->arena] + p->offset, 0, item->count, dense);
        free(dense);
}

/* Canaries everywhere, inputs where they are read, and a copy of it all. */
static void bench_lay_out(struct bench *b, const struct test_case *c) {
        for (int i = 0; i < N_ARENAS; i++)
                b->used[i] = 0;
        for (uint32_t i = 0; i < c->n_items; i++) {
                const struct item *item = &c->items[i];
                b->inputs[i] =
                        item->shares >= 0 ? b->inputs[item->shares] : bench_place(b, item, item->dtype);
                b->outputs[i] = item->is_in_place ? b->inputs[i] : bench_place(b, item, item->out_dtype);
        }
        for (int i = 0; i < N_ARENAS; i++)
                memset(b->memory[i], 0xa5, b->used[i] + 64);
        for (uint32_t i = 0; i < c->n_items; i++)
                if (c->verb != BROADCAST || b->me->rank == c->root)
                        put_input(b, &c->items[i], &b->inputs[i]);
        for (int i = 0; i < N_ARENAS; i++)
                memcpy(b->expected[i], b->memory[i], b->used[i] + 64);
}

/* --- running a case --- */

static struct tutti_value value_at(
        const struct bench *b, const struct item *item, const struct spot *p, enum tutti_dtype dtype) {
        struct tutti_value v = TUTTI_VALUE(.offset = p->offset, .dtype = dtype, .n_dims = item->n_dims,
                .has_strides = p->has_strides);
        memcpy(v.shape, item->shape, sizeof(v.shape));
        if (p->has_strides)
                memcpy(v.strides, p->view.strides, sizeof(v.strides));
        if (p->arena == PLAIN)
                v.memory = b->memory[PLAIN];
        else
                v.buffer = b->buffers[p->arena];
        return v;
}

/* Where this rank is no destination, it may name an output or not, unless that is what says the dtype. */
static bool names_output(struct bench *b, const struct test_case *c, const struct item *item) {
        return receives(c, item, b->me->rank) || item->out_dtype != item->dtype || roll_is(&b->dice, 2);
}

static enum tutti_status start_batch(struct bench *b, const struct test_case *c,
        const struct tutti_options *options, struct tutti_work **ret) {
        struct tutti_value in[MAX_BATCH], out[MAX_BATCH];
        struct tutti_entry entries[MAX_BATCH];
        for (uint32_t i = 0; i < c->n_items; i++) {
                const struct item *item = &c->items[i];
                in[i] = value_at(b, item, &b->inputs[i], item->dtype);
                out[i] = value_at(b, item, &b->outputs[i], item->out_dtype);
                entries[i] = TUTTI_ENTRY(.input = &in[i], .output = names_output(b, c, item) ? &out[i] : NULL,
                        .destinations = item->destinations);
        }
        return tutti_batch_reduce_start(b->group, NULL, c->op, entries, c->n_items, options, ret);
}

static enum tutti_status start_case(struct bench *b, const struct test_case *c,
        const struct tutti_options *options, struct tutti_work **ret) {
        const struct item *item = &c->items[0];
        struct tutti_value in = value_at(b, item, &b->inputs[0], item->dtype),
                           out = value_at(b, item, &b->outputs[0], item->out_dtype);
        switch (c->verb) {
        case ALL_REDUCE: return tutti_all_reduce_start(b->group, NULL, c->op, &in, &out, options, ret);
        case REDUCE:
                return tutti_reduce_start(b->group, NULL, c->op, &in, names_output(b, c, item) ? &out : NULL,
                        &item->destinations, options, ret);
        case BROADCAST: return tutti_broadcast_start(b->group, NULL, c->root, &in, options, ret);
        case BATCH: return start_batch(b, c, options, ret);
        }
        return TUTTI_INTERNAL;
}

static void run_case(struct bench *b, const struct test_case *c, uint64_t seed) {
        const struct tutti_options options =
                TUTTI_OPTIONS(.rounding = c->rounding, .has_weight = c->has_weights,
                        .weight = c->weights[b->me->rank], .check_numerics = c->is_checked,
                        .check_overflow = c->is_checked, .check_inputs = c->has_checksums);
        struct tutti_work *w;
        expect_status(start_case(b, c, &options, &w), TUTTI_OK);
        enum tutti_status status = tutti_work_wait(w, -1);
        ck_assert_msg(
                status == TUTTI_OK, "case %llu: %s", (unsigned long long)seed, tutti_work_error(w)->text);
        expect_status(tutti_work_result(w, &b->result), TUTTI_OK);
        tutti_work_free(w);
}

/* --- judging it --- */

static void compute(const struct test_case *c, const struct item *item, uint32_t world, void *ret) {
        void *inputs[MOST_RANKS];
        if (c->verb == BROADCAST) {
                fill_input(item, c->root, ret);
                return;
        }
        for (uint32_t rank = 0; rank < world; rank++) {
                inputs[rank] = malloc(item->n_bytes + 1);
                ck_assert_ptr_nonnull(inputs[rank]);
                fill_input(item, rank, inputs[rank]);
        }
        const void *const *in = (const void *const *)inputs;
        enum dtype dtype = (enum dtype)item->dtype;
        if (c->is_integer_mean)
                oracle_mean_of_integers(
                        dtype, (enum rounding)c->rounding, in, world, ret, item->count, world);
        else if (c->has_weights)
                oracle_weighted((enum op)c->op, dtype, in, c->weights, world, ret, item->count);
        else
                oracle_reduce((enum op)c->op, dtype, in, world, ret, item->count, world);
        for (uint32_t rank = 0; rank < world; rank++)
                free(inputs[rank]);
}

static void describe(const struct test_case *c, const struct item *item, char *buf, size_t size) {
        static const char *const verbs[] = { "all_reduce", "reduce", "broadcast", "batch" };
        snprintf(buf, size, "%s %s%s, rounding %d, %u values; this one %s, %zu elements%s", verbs[c->verb],
                c->has_weights ? "weighted " : "", op_name((enum op)c->op), (int)c->rounding, c->n_items,
                tutti_dtype_name(item->dtype), item->count, item->is_in_place ? ", in place" : "");
}

/* NaNs may differ in their payload: what came is taken over then, so that all else is compared by byte. */
static void expect_output(struct bench *b, const struct test_case *c, uint32_t i, uint64_t seed) {
        const struct item *item = &c->items[i];
        const struct spot *p = c->verb == BROADCAST ? &b->inputs[i] : &b->outputs[i];
        const struct lattice l = lattice_of(p, item->out_dtype);
        uint8_t *got = gather(b, item, p, item->out_dtype), *expected = malloc(item->n_out_bytes + 1);
        char text[256];
        ck_assert_ptr_nonnull(expected);
        compute(c, item, b->me->n, expected);
        ptrdiff_t at = oracle_difference((enum dtype)item->out_dtype, got, expected, item->count);
        describe(c, item, text, sizeof(text));
        ck_assert_msg(at < 0, "case %llu (%s%s%s): element %td is %s, not %s", (unsigned long long)seed, text,
                p->has_strides ? ", strided" : "", p->arena == PLAIN ? ", plain" : "", at,
                oracle_show((enum dtype)item->out_dtype, got, (size_t)at),
                oracle_show((enum dtype)item->out_dtype, expected, (size_t)at));
        if (item->count)
                lattice_scatter(&l, b->expected[p->arena] + p->offset, 0, item->count, got);
        free(expected);
        free(got);
}

static void expect_nothing_else(struct bench *b, uint64_t seed) {
        for (int k = 0; k < N_ARENAS; k++)
                for (size_t i = 0; i < b->used[k] + 64; i++)
                        if (b->memory[k][i] != b->expected[k][i])
                                ck_abort_msg("case %llu: byte %zu of arena %d has been written to",
                                        (unsigned long long)seed, i, k);
}

/* What the checks must have found, as plainly as it can be said. */
static void expect_findings(struct bench *b, const struct test_case *c, uint64_t seed) {
        struct findings expected = { 0 };
        for (uint32_t rank = 0; rank < b->me->n; rank++)
                for (uint32_t i = 0; c->is_checked && i < c->n_items; i++) {
                        bool reads = c->verb == BROADCAST ? rank == c->root
                                                          : !(c->has_weights && c->weights[rank] == 0);
                        void *input = malloc(c->items[i].n_bytes + 1);
                        ck_assert_ptr_nonnull(input);
                        fill_input(&c->items[i], rank, input);
                        if (reads)
                                oracle_find_nonfinite((enum dtype)c->items[i].dtype, input, c->items[i].count,
                                        &(struct finding){ .rank = rank, .entry = i }, &expected.numerics);
                        free(input);
                }
        for (uint32_t i = 0; c->is_checked && c->verb != BROADCAST && i < c->n_items; i++) {
                void *inputs[MOST_RANKS];
                const struct item *item = &c->items[i];
                for (uint32_t rank = 0; rank < b->me->n; rank++) {
                        inputs[rank] = malloc(item->n_bytes + 1);
                        ck_assert_ptr_nonnull(inputs[rank]);
                        fill_input(item, rank, inputs[rank]);
                }
                oracle_find_wrapped((enum op)c->op, (enum dtype)item->dtype, (const void *const *)inputs,
                        b->me->n, item->count, i, &expected.overflow);
                for (uint32_t rank = 0; rank < b->me->n; rank++)
                        free(inputs[rank]);
        }
        const struct {
                const struct finding *expected;
                const struct tutti_finding *got;
        } pairs[] = { { &expected.numerics, &b->result.numerics },
                { &expected.overflow, &b->result.overflow } };
        for (size_t i = 0; i < 2; i++) {
                const struct finding *e = pairs[i].expected;
                const struct tutti_finding *g = pairs[i].got;
                ck_assert_msg(g->n == e->n && (e->n == 0 || (g->rank == e->rank && g->entry == e->entry &&
                                                                    g->index == e->index)),
                        "case %llu: check %zu found %llu, first R%u entry %u index %llu, not %llu, R%u %u "
                        "%llu",
                        (unsigned long long)seed, i, (unsigned long long)g->n, g->rank, g->entry,
                        (unsigned long long)g->index, (unsigned long long)e->n, e->rank, e->entry,
                        (unsigned long long)e->index);
        }
}

/* D7: the bits are the same everywhere, NaNs included. */
struct prints {
        uint64_t of[2][MOST_RANKS][MAX_BATCH];
};

static uint64_t print_of(const uint8_t *bytes, size_t n) {
        uint64_t hash = 0xcbf29ce484222325;
        for (size_t i = 0; i < n; i++)
                hash = (hash ^ bytes[i]) * 0x100000001b3;
        return hash;
}

/* A barrier later, the prints of the others are there; two cases later they are written over. */
static void expect_same_bits(struct bench *b, const struct test_case *c, uint64_t seed) {
        struct prints *prints = b->me->arg;
        uint32_t turn = seed % 2, rank = b->me->rank;
        for (uint32_t i = 0; i < c->n_items; i++) {
                const struct item *item = &c->items[i];
                const struct spot *p = c->verb == BROADCAST ? &b->inputs[i] : &b->outputs[i];
                uint8_t *dense = gather(b, item, p, item->out_dtype);
                prints->of[turn][rank][i] = print_of(dense, item->n_out_bytes);
                free(dense);
        }
        expect_status(tutti_barrier(b->group, "prints"), TUTTI_OK);
        for (uint32_t i = 0; i < c->n_items; i++)
                for (uint32_t other = 0; other < b->me->n && receives(c, &c->items[i], rank); other++)
                        if (receives(c, &c->items[i], other))
                                ck_assert_msg(prints->of[turn][other][i] == prints->of[turn][rank][i],
                                        "case %llu, value %u: R%u and R%u have other bits",
                                        (unsigned long long)seed, i, rank, other);
}

static void play(struct bench *b, uint64_t seed) {
        struct test_case c;
        roll_case(&(struct dice){ .state = seed }, b->me->n, &c);
        bench_lay_out(b, &c);
        run_case(b, &c, seed);
        for (uint32_t i = 0; i < c.n_items; i++)
                if (receives(&c, &c.items[i], b->me->rank))
                        expect_output(b, &c, i, seed);
        expect_nothing_else(b, seed);
        expect_findings(b, &c, seed);
        expect_same_bits(b, &c, seed);
}

/* --- ten thousand of them --- */

/* Cases for each world size; sanitizers get a tenth. */
#define N_CASES 417

struct tour {
        struct prints prints;
        uint64_t first_seed, n_cases;
};

static void play_all(struct replica *me) {
        const struct tour *tour = me->arg;
        struct bench b;
        bench_init(&b, me);
        for (uint64_t i = 0; i < tour->n_cases; i++)
                play(&b, tour->first_seed + me->n * N_CASES + i);
        bench_deinit(&b);
}

/* Worlds of one to six on such a host. */
static void play_on(uint64_t number, const char *const *args) {
        const char *given = getenv("TUTTI_TEST_SEED");
        struct tour *tour = memory_shared(sizeof(*tour));
        tour->first_seed = (given ? strtoull(given, NULL, 10) : 1) * 1000000 + number * 10000;
        tour->n_cases = unit_scale() > 1 ? N_CASES / 10 : N_CASES;
        printf("# %llu cases for each of %d world sizes, TUTTI_TEST_SEED=%llu\n",
                (unsigned long long)tour->n_cases, MOST_RANKS,
                (unsigned long long)(tour->first_seed / 1000000));
        struct host *h = host_start(args);
        for (uint32_t world = 1; world <= MOST_RANKS; world++) {
                run_replicas(h, world, play_all, tour);
                host_expect_counters_zero(h);
        }
        host_stop(h);
}

START_TEST(D1_D7_D16_random_collectives_by_one_scalar_worker) {
        play_on(1, (const char *[]){ "--isa", "scalar", "--workers", "1", NULL });
}
END_TEST

START_TEST(D1_D7_D16_random_collectives_by_two_avx2_workers) {
        play_on(2, (const char *[]){ "--isa", "avx2", "--workers", "2", NULL });
}
END_TEST

START_TEST(D1_D7_D16_random_collectives_by_two_avx512_workers) {
        play_on(3, (const char *[]){ "--isa", "avx512", "--workers", "2", NULL });
}
END_TEST

START_TEST(D1_D7_D16_random_collectives_in_small_chunks) {
        play_on(4, (const char *[]){ "--set", "cpu.chunk=4KiB", "--workers", "3", NULL });
}
END_TEST

UNIT_MAIN("numbers-random", 60, D1_D7_D16_random_collectives_by_one_scalar_worker,
        D1_D7_D16_random_collectives_by_two_avx2_workers, D1_D7_D16_random_collectives_by_two_avx512_workers,
        D1_D7_D16_random_collectives_in_small_chunks)
