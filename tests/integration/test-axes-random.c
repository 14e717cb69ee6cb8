/* Random gathers, reduce_scatters and reductions over axes against the oracle (P4 P10 P12 P14, TB10): dtype,
 * op, shape, axis, lengths that differ from rank to rank (also 0), strides, offsets, batches, destinations,
 * buffers and plain memory. Each replica makes the same cases from the same seed, computes what must come
 * out, and compares every byte of its memory, also those that nobody may touch.
 *
 * TUTTI_TEST_SEED=n plays other cases; a failure names its own. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/axes.h>
#include "meeting.h"
#include "oracle.h"
#include "place.h"
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

enum verb { GATHER, SCATTER, REDUCE, N_VERB };

struct item {
        enum tutti_dtype dtype, out_dtype;
        uint32_t n_dims;
        uint64_t shape[TUTTI_MAX_DIMS]; /* along the axis: of the whole */
        uint64_t lengths[MOST_RANKS];   /* along the axis: of each rank's own part */
        uint64_t others[MOST_RANKS];    /* along the second axis that is reduced over */
        struct tutti_destinations destinations;
        uint64_t seed;
};

struct test_case {
        enum verb verb;
        enum tutti_op op;
        enum tutti_rounding rounding;
        bool is_integer_mean, has_weights;
        double weights[MOST_RANKS];
        uint32_t axis, n_items;
        uint32_t second; /* another axis, reduced over; TUTTI_MAX_DIMS: none */
        struct item items[MAX_BATCH];
};

static enum tutti_dtype roll_dtype(struct dice *d, const struct test_case *c) {
        for (;;) {
                enum dtype dtype = DTYPE_U8 + (enum dtype)roll(d, N_DTYPE - DTYPE_U8);
                bool can_do = c->is_integer_mean ? dtype_is_integer(dtype)
                              : c->has_weights   ? dtype_is_float(dtype)
                                                 : op_is_supported((enum op)c->op, dtype);
                if (c->verb == GATHER || can_do)
                        return (enum tutti_dtype)dtype;
        }
}

static void roll_lengths(struct dice *d, uint32_t axis, uint32_t world, struct item *item) {
        uint64_t most = roll_is(d, 8) ? 60 : 6, total = 0;
        bool is_equal = roll_is(d, 3);
        for (uint32_t r = 0; r < world; r++) {
                item->lengths[r] = is_equal && r ? item->lengths[0] : roll(d, most);
                total += item->lengths[r];
                item->others[r] = roll_is(d, 12) ? 0 : 1 + roll(d, 4);
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
        item->out_dtype = c->is_integer_mean && !c->rounding
                                  ? (enum tutti_dtype)dtype_of_integer_mean((enum dtype)item->dtype)
                                  : item->dtype;
        uint32_t last = c->second < TUTTI_MAX_DIMS && c->second > c->axis ? c->second : c->axis;
        item->n_dims = last + 1 + (uint32_t)roll(d, 3);
        uint64_t others = 1;
        for (uint32_t i = 0; i < item->n_dims; i++) {
                item->shape[i] = roll_is(d, 30) ? 0 : 1 + roll(d, roll_is(d, 6) ? 20 : 4);
                if (i != c->axis && others * item->shape[i] > 40)
                        item->shape[i] = 1;
                others *= i == c->axis ? 1 : item->shape[i];
        }
        roll_lengths(d, c->axis, world, item);
        if (c->verb != SCATTER)
                roll_destinations(d, world, &item->destinations);
}

static void roll_case(struct dice *d, uint32_t world, struct test_case *c) {
        *c = (struct test_case){ .verb = (enum verb)roll(d, N_VERB), .axis = (uint32_t)roll(d, 4) };
        c->second = c->verb == REDUCE && roll_is(d, 2) ? (c->axis + 1 + (uint32_t)roll(d, 2)) % 4
                                                       : TUTTI_MAX_DIMS;
        if (c->verb != GATHER) {
                c->op = TUTTI_SUM + (enum tutti_op)roll(d, TUTTI_LOR);
                c->is_integer_mean = c->op == TUTTI_MEAN && roll_is(d, 2);
                if (c->is_integer_mean)
                        c->rounding = (enum tutti_rounding)roll(d, 4);
                c->has_weights = !c->is_integer_mean && c->op <= TUTTI_MEAN && roll_is(d, 3);
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

static uint64_t count_shape(const uint64_t *shape, uint32_t n_dims) {
        uint64_t n = 1;
        for (uint32_t i = 0; i < n_dims; i++)
                n *= shape[i];
        return n;
}

static bool is_axis(const struct test_case *c, uint32_t d) {
        return d == c->axis || d == c->second;
}

static void input_shape(const struct test_case *c, const struct item *item, uint32_t rank, uint64_t *ret) {
        memcpy(ret, item->shape, sizeof(item->shape));
        if (c->verb != SCATTER)
                ret[c->axis] = item->lengths[rank];
        if (c->second < TUTTI_MAX_DIMS)
                ret[c->second] = item->others[rank];
}

static void output_shape(const struct test_case *c, const struct item *item, uint32_t rank, uint64_t *ret) {
        memcpy(ret, item->shape, sizeof(item->shape));
        if (c->verb == SCATTER)
                ret[c->axis] = item->lengths[rank];
        for (uint32_t d = 0; c->verb == REDUCE && d < item->n_dims; d++)
                if (is_axis(c, d))
                        ret[d] = 1;
}

/* What a rank brings, contiguous. */
static uint8_t *make_input(const struct test_case *c, const struct item *item, uint32_t rank) {
        uint64_t shape[TUTTI_MAX_DIMS];
        input_shape(c, item, rank, shape);
        uint64_t n = count_shape(shape, item->n_dims);
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
        size_t element_bytes;
};

static void cut_copy(const struct cut *k, const uint8_t *from, uint8_t *to) {
        uint64_t run = inner_of(k->item, k->axis) * k->element_bytes;
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
                                 first_of(item, r), whole, tutti_dtype_bytes(item->dtype) },
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
        if (c->is_integer_mean)
                oracle_mean_of_integers(
                        (enum dtype)item->dtype, (enum rounding)c->rounding, in, me->n, all, n, me->n);
        else if (c->has_weights)
                oracle_weighted((enum op)c->op, (enum dtype)item->dtype, in, c->weights, me->n, all, n);
        else
                oracle_reduce((enum op)c->op, (enum dtype)item->dtype, in, me->n, all, n, me->n);
        cut_copy(&(struct cut){ item, c->axis, item->lengths[me->rank], first_of(item, me->rank), whole, 0,
                         item->lengths[me->rank], tutti_dtype_bytes(item->out_dtype) },
                all, slice);
        for (uint32_t r = 0; r < me->n; r++)
                free(inputs[r]);
        free(all);
        return slice;
}

/* Everything that becomes one result, as contributions of their own, in the order of ranks and indices. */
struct chain {
        uint8_t **all; /* [n], of `count` elements each */
        double *weights;
        uint64_t n, count;
        double total_weight; /* of each rank times how much it brings */
};

#define MOST_FOLDS (MOST_RANKS * 60 * 4)

static void chain_add(struct chain *k, const struct test_case *c, const struct item *item, uint32_t rank) {
        uint64_t shape[TUTTI_MAX_DIMS], index[TUTTI_MAX_DIMS] = { 0 };
        uint8_t *input = make_input(c, item, rank);
        size_t size = tutti_dtype_bytes(item->dtype);
        input_shape(c, item, rank, shape);
        uint64_t n_folds = shape[c->axis] * (c->second < TUTTI_MAX_DIMS ? shape[c->second] : 1);
        for (uint64_t i = 0; i < n_folds; i++) {
                k->all[k->n + i] = make_array(k->count * size);
                k->weights[k->n + i] = c->weights[rank];
        }
        for (uint64_t at = 0; at < count_shape(shape, item->n_dims); at++) {
                uint64_t fold = 0, kept = 0;
                for (uint32_t d = 0; d < item->n_dims; d++)
                        if (is_axis(c, d))
                                fold = fold * shape[d] + index[d];
                        else
                                kept = kept * shape[d] + index[d];
                memcpy(k->all[k->n + fold] + kept * size, input + at * size, size);
                for (uint32_t d = item->n_dims; d-- > 0 && ++index[d] == shape[d];)
                        index[d] = 0;
        }
        k->n += n_folds;
        k->total_weight += c->weights[rank] * (double)n_folds;
        free(input);
}

static void chain_make(struct chain *k, const struct test_case *c, const struct item *item, uint32_t world) {
        uint64_t shape[TUTTI_MAX_DIMS];
        output_shape(c, item, 0, shape);
        *k = (struct chain){ .all = make_array(MOST_FOLDS * sizeof(uint8_t *)),
                .weights = make_array(MOST_FOLDS * sizeof(double)),
                .count = count_shape(shape, item->n_dims) };
        for (uint32_t r = 0; r < world; r++)
                chain_add(k, c, item, r);
}

static void chain_free(struct chain *k) {
        for (uint64_t i = 0; i < k->n; i++)
                free(k->all[i]);
        free(k->all);
        free(k->weights);
}

/* Whether somebody brings something, and with a weight where a mean wants some. */
static bool chain_has_any(const struct chain *k, const struct test_case *c) {
        bool needs_weight = c->has_weights && c->op == TUTTI_MEAN;
        for (uint64_t i = 0; i < k->n; i++)
                if (!needs_weight || k->weights[i] > 0)
                        return true;
        return k->count == 0;
}

static uint8_t *make_reduced(const struct test_case *c, const struct item *item, uint32_t world) {
        struct chain k;
        chain_make(&k, c, item, world);
        uint8_t *to = make_array(k.count * 16);
        const void *const *in = (const void *const *)k.all;
        uint32_t n = (uint32_t)k.n;
        if (c->is_integer_mean && k.count)
                oracle_mean_of_integers(
                        (enum dtype)item->dtype, (enum rounding)c->rounding, in, n, to, k.count, n);
        else if (c->has_weights && k.count)
                oracle_weighted_by((enum op)c->op, (enum dtype)item->dtype, in, k.weights, n, to, k.count,
                        k.total_weight);
        else if (k.count)
                oracle_reduce((enum op)c->op, (enum dtype)item->dtype, in, n, to, k.count, n);
        chain_free(&k);
        return to;
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
        uint32_t n_dims;
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
        *ret = (struct spot){ .arena = roll_is(d, 3), .n_dims = n_dims };
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
        uint32_t n_dims = s->n_dims;
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
        bool has_output[MAX_BATCH];
};

static bool receives(const struct play *p, const struct item *item) {
        const struct tutti_destinations *d = &item->destinations;
        uint32_t rank = p->b->me->rank;
        if (d->where == TUTTI_TO_RANK)
                return d->rank == rank;
        return d->where == TUTTI_TO_ALL || tutti_ranks_has(&d->ranks, rank);
}

/* Without the axes, instead of with them as dimensions of 1. */
static void drop_axes(const struct test_case *c, struct spot *out) {
        uint32_t n = 0;
        for (uint32_t d = 0; d < out->value.n_dims; d++)
                if (!is_axis(c, d)) {
                        out->value.shape[n] = out->value.shape[d];
                        out->value.strides[n++] = out->value.strides[d];
                }
        out->value.n_dims = n;
}

static void lay_item(struct play *p, uint32_t i) {
        const struct test_case *c = p->c;
        const struct item *item = &c->items[i];
        struct bench *b = p->b;
        uint32_t rank = b->me->rank;
        uint64_t shape[TUTTI_MAX_DIMS];
        input_shape(c, item, rank, shape);
        lay(b, item->dtype, shape, item->n_dims, &p->inputs[i]);
        uint8_t *array = make_input(c, item, rank);
        put(&p->inputs[i], shape, array, b->memory[p->inputs[i].arena]);
        free(array);
        output_shape(c, item, rank, shape);
        if (c->verb == GATHER) /* with room to spare */
                shape[c->axis] += roll_is(&b->own, 2) ? roll(&b->own, 5) : 0;
        lay(b, item->out_dtype, shape, item->n_dims, &p->outputs[i]);
        p->has_output[i] = receives(p, item) && (c->verb != SCATTER || shape[c->axis] || roll_is(&b->own, 2));
        if (c->verb == REDUCE && roll_is(&b->own, 2))
                drop_axes(c, &p->outputs[i]);
        bool says_dtype = c->verb == REDUCE && item->out_dtype != item->dtype;
        p->entries[i] = TUTTI_ENTRY(.input = &p->inputs[i].value,
                .output = p->has_output[i] || says_dtype ? &p->outputs[i].value : NULL,
                .destinations = item->destinations);
        if (c->verb == SCATTER && item->out_dtype != item->dtype) {
                p->entries[i].output = &p->outputs[i].value;
                p->has_output[i] = true;
        }
}

static uint8_t *make_expected(struct play *p, const struct item *item) {
        switch (p->c->verb) {
        case GATHER: return make_gathered(p->c, item, p->b->me->n);
        case SCATTER: return make_slice(p->c, item, p->b->me);
        case REDUCE:
        case N_VERB: break;
        }
        return make_reduced(p->c, item, p->b->me->n);
}

static void expect_item(struct play *p, uint32_t i) {
        const struct test_case *c = p->c;
        const struct item *item = &c->items[i];
        struct bench *b = p->b;
        struct spot *out = &p->outputs[i];
        uint64_t shape[TUTTI_MAX_DIMS];
        if (!p->has_output[i])
                return;
        output_shape(c, item, b->me->rank, shape);
        if (!out->value.has_strides)
                contiguous_strides(shape, item->n_dims, out->strides);
        uint8_t *array = make_expected(p, item);
        put(out, shape, array, b->expected[out->arena]);
        free(array);
}

/* NaNs are equal, wherever they are: those of the result are given the bits that are there. */
static void forgive_nans(struct play *p, uint32_t i) {
        const struct item *item = &p->c->items[i];
        struct spot *out = &p->outputs[i];
        size_t size = tutti_dtype_bytes(out->value.dtype);
        const uint8_t *got = p->b->memory[out->arena];
        uint8_t *want = p->b->expected[out->arena];
        uint64_t index[TUTTI_MAX_DIMS] = { 0 }, shape[TUTTI_MAX_DIMS];
        if (!p->has_output[i] || p->c->verb == GATHER)
                return;
        output_shape(p->c, item, p->b->me->rank, shape);
        for (uint64_t k = 0; k < count_shape(shape, item->n_dims); k++) {
                uint64_t at = 0;
                for (uint32_t d = 0; d < item->n_dims; d++)
                        at += index[d] * out->strides[d];
                at = out->offset + at * size;
                if (oracle_difference((enum dtype)out->value.dtype, want + at, got + at, 1) < 0)
                        memcpy(want + at, got + at, size);
                for (uint32_t d = item->n_dims; d-- > 0 && ++index[d] == shape[d];)
                        index[d] = 0;
        }
}

static enum tutti_status start_as(
        struct play *p, const struct tutti_options *options, struct tutti_work **ret) {
        const struct test_case *c = p->c;
        int32_t axes[2] = { (int32_t)c->axis, (int32_t)c->second };
        bool is_negative = c->n_items == 1 && roll_is(&p->b->own, 2);
        for (uint32_t i = 0; is_negative && i < 2; i++)
                axes[i] -= (int32_t)c->items[0].n_dims;
        switch (c->verb) {
        case GATHER:
                return tutti_gather_start(p->b->group,
                        &TUTTI_GATHER(.axis = axes[0], .entries = p->entries, .n_entries = c->n_items), ret);
        case SCATTER:
                return tutti_reduce_scatter_start(p->b->group,
                        &TUTTI_REDUCE_SCATTER(.op = c->op, .axis = axes[0], .entries = p->entries,
                                .n_entries = c->n_items, .options = options),
                        ret);
        case REDUCE:
        case N_VERB: break;
        }
        return tutti_reduce_over_start(p->b->group,
                &TUTTI_REDUCE_OVER(.op = c->op, .axes = axes, .n_axes = 1 + (c->second < TUTTI_MAX_DIMS),
                        .entries = p->entries, .n_entries = c->n_items, .options = options),
                ret);
}

static struct tutti_work *start(struct play *p) {
        const struct test_case *c = p->c;
        struct tutti_work *w = NULL;
        const struct tutti_options options = TUTTI_OPTIONS(.rounding = c->rounding,
                .has_weight = c->has_weights, .weight = c->weights[p->b->me->rank]);
        enum tutti_status status = start_as(p, &options, &w);
        ck_assert_msg(status == TUTTI_OK, "case %llu: %s", (unsigned long long)p->seed, tutti_error());
        return w;
}

static void expect_extents(struct play *p, struct tutti_work *w) {
        for (uint32_t i = 0; p->c->verb != REDUCE && i < p->c->n_items; i++) {
                const struct item *item = &p->c->items[i];
                uint64_t total, first;
                expect_status(tutti_work_extent(w, i, &total, &first), TUTTI_OK);
                ck_assert_msg(total == item->shape[p->c->axis] && first == first_of(item, p->b->me->rank),
                        "case %llu, value %u: told %llu and %llu", (unsigned long long)p->seed, i,
                        (unsigned long long)total, (unsigned long long)first);
        }
}

static bool can_be_done(const struct play *p) {
        bool can = true;
        for (uint32_t i = 0; p->c->verb == REDUCE && i < p->c->n_items; i++) {
                struct chain k;
                chain_make(&k, p->c, &p->c->items[i], p->b->me->n);
                can &= chain_has_any(&k, p->c);
                chain_free(&k);
        }
        return can;
}

static void expect_memory(const struct play *p) {
        const struct bench *b = p->b;
        const struct test_case *c = p->c;
        for (uint32_t a = 0; a < 2; a++)
                for (size_t at = 0; at < b->used[a] + 64; at++)
                        ck_assert_msg(b->memory[a][at] == b->expected[a][at],
                                "case %llu (%d, op %d, rounding %d, weights %d, first of %d): R%u of %u, "
                                "byte %zu of %s memory is "
                                "%02x, not %02x",
                                (unsigned long long)p->seed, (int)c->verb, (int)c->op, (int)c->rounding,
                                c->has_weights, (int)c->items[0].dtype, b->me->rank, b->me->n, at,
                                a ? "plain" : "shared", b->memory[a][at], b->expected[a][at]);
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
        bool can = can_be_done(&p);
        for (uint32_t i = 0; can && i < c.n_items; i++)
                expect_item(&p, i);
        struct tutti_work *w = start(&p);
        enum tutti_status status = tutti_work_wait(w, -1);
        ck_assert_msg(status == (can ? TUTTI_OK : TUTTI_INVALID), "case %llu: %s %s",
                (unsigned long long)seed, tutti_status_name(status), tutti_work_error(w)->text);
        if (can)
                expect_extents(&p, w);
        else
                ck_assert_int_eq(tutti_work_error(w)->field, TUTTI_FIELD_EXTENT);
        tutti_work_free(w);
        for (uint32_t i = 0; can && i < c.n_items; i++)
                forgive_nans(&p, i);
        expect_memory(&p);
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
        b.buffer = place_alloc(me, ARENA_BYTES + 64);
        b.memory[0] = tutti_buffer_data(b.buffer);
        b.memory[1] = make_array(ARENA_BYTES + 64);
        for (uint32_t a = 0; a < 2; a++)
                b.expected[a] = make_array(ARENA_BYTES + 64);
        for (uint64_t i = 0; i < tour->n_cases; i++)
                play(&b, tour->first_seed + me->n * 1000 + i);
        for (uint32_t a = 0; a < 2; a++)
                free(b.expected[a]);
        free(b.memory[1]);
        tutti_buffer_free(b.buffer);
        place_leave(me);
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
        struct host *h = place_start((uint32_t)number - 1, args);
        for (size_t i = 0; i < ARRAY_SIZE(worlds); i++) {
                run_replicas(h, worlds[i], play_all, tour);
                host_expect_counters_zero(h);
        }
        place_stop(h);
}

START_TEST(TB10_P10_P14_random_collectives_along_axes_by_one_device) {
        play_on(1, (const char *[]){ "--workers", "1", NULL });
}
END_TEST

START_TEST(TB10_P10_P14_random_collectives_along_axes_in_small_chunks_by_eight_devices) {
        play_on(2, (const char *[]){ "--set", "cpu.chunk=4KiB", "--set", "cpu.devices=8", NULL });
}
END_TEST

START_TEST(TB10_P10_P14_random_collectives_along_axes_with_members_of_two_kinds) {
        play_on(3, (const char *[]){ "--set", "cpu.chunk=4KiB", "--set", "cpu.devices=2", NULL });
}
END_TEST

UNIT_MAIN("axes-random", 170, TB10_P10_P14_random_collectives_along_axes_by_one_device,
        TB10_P10_P14_random_collectives_along_axes_in_small_chunks_by_eight_devices,
        TB10_P10_P14_random_collectives_along_axes_with_members_of_two_kinds)
