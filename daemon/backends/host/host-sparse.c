/* Pieces of the steps of sparse values.
 *
 * Everything but rows and the indices as they first come in lies in scratch, which is ours alone. A piece of
 * a step is any range of its elements, so that each kind says for itself what of its work belongs to a piece:
 * of what is done by blocks or rows, those whose first element lies in it. A sort or a merge never waits for
 * another piece: a merge finds by bisection what of both its runs goes to the places of the piece. */
#include "backends/host/host-sparse.h"

#include <string.h>

/* The step's operand `i`, of `n_bytes`. As in host-run.c: were anybody wrong, we would write into a
 * stranger's memory. */
static uint8_t *locate(const struct chunk *c, const struct step *s, uint32_t i, uint64_t n_bytes) {
        const struct operand *o = &plan_inputs(c->plan, s)[i];
        struct host_memory *m =
                host_memory_of(o->scratch ? c->plan->scratch[o->scratch - 1].memory : o->memory);
        CHECK(o->offset_bytes <= m->base.n_bytes && n_bytes <= m->base.n_bytes - o->offset_bytes);
        CHECK(i < s->n_inputs || m->is_writable);
        return m->map + o->offset_bytes;
}

static const struct order_pair *pairs_at(
        const struct chunk *c, const struct step *s, uint32_t i, uint64_t n) {
        return (const struct order_pair *)(const void *)locate(c, s, i, n * sizeof(struct order_pair));
}

static struct order_pair *output_pairs(const struct chunk *c, const struct step *s) {
        return (struct order_pair *)(void *)locate(c, s, s->n_inputs, s->count * sizeof(struct order_pair));
}

static uint64_t n_blocks(uint64_t n) {
        return (n + ORDER_BLOCK - 1) / ORDER_BLOCK;
}

/* --- indices come in --- */

static int64_t index_at(const uint8_t *indices, enum dtype dtype, uint64_t i) {
        int32_t narrow;
        int64_t wide;
        if (dtype == DTYPE_I64) {
                memcpy(&wide, indices + i * sizeof(wide), sizeof(wide));
                return wide;
        }
        memcpy(&narrow, indices + i * sizeof(narrow), sizeof(narrow));
        return narrow;
}

static void set_index(uint8_t *indices, enum dtype dtype, uint64_t i, int64_t index) {
        int32_t narrow = (int32_t)index;
        if (dtype == DTYPE_I64)
                memcpy(indices + i * sizeof(index), &index, sizeof(index));
        else
                memcpy(indices + i * sizeof(narrow), &narrow, sizeof(narrow));
}

/* Copied first: what is looked at is what will be used. */
static void take_indices(const struct chunk *c, const struct piece *piece) {
        const struct step *s = piece->step;
        const size_t size = dtype_bytes(s->dtype);
        const uint8_t *from = locate(c, s, 0, s->count * size) + piece->first_element * size;
        uint8_t *to = locate(c, s, 1, s->count * size) + piece->first_element * size;
        struct bad_index bad = {
                .rank = plan_inputs(c->plan, s)[0].rank, .entry = s->entry, .bound = s->bound
        };
        memcpy(to, from, piece->n_elements * size);
        for (uint64_t i = 0; i < piece->n_elements; i++) {
                int64_t index = index_at(to, s->dtype, i);
                if (index >= 0 && (uint64_t)index < s->bound)
                        continue;
                if (bad.n++ == 0) {
                        bad.position = piece->first_element + i;
                        bad.value = index;
                }
        }
        findings_add(c->found, &(struct findings){ .bad_index = bad });
}

/* --- sorting --- */

static bool is_before(const struct order_pair *a, const struct order_pair *b) {
        return a->index != b->index ? a->index < b->index : a->position < b->position;
}

/* Two runs that become one. */
struct runs {
        const struct order_pair *left, *right;
        uint64_t n_left, n_right;
};

/* How many of the first `n` pairs of the merged run are from the left one. */
static uint64_t from_left(const struct runs *r, uint64_t n) {
        uint64_t low = n > r->n_right ? n - r->n_right : 0, high = n < r->n_left ? n : r->n_left;
        while (low < high) {
                uint64_t middle = low + (high - low) / 2;
                if (is_before(&r->right[n - middle - 1], &r->left[middle]))
                        high = middle;
                else
                        low = middle + 1;
        }
        return low;
}

/* The pairs [first, end) of the merged run. */
static void merge_part(const struct runs *r, uint64_t first, uint64_t end, struct order_pair *to) {
        uint64_t left = from_left(r, first), right = first - left;
        for (uint64_t i = first; i < end; i++) {
                bool is_right = left == r->n_left ||
                                (right < r->n_right && is_before(&r->right[right], &r->left[left]));
                *to++ = is_right ? r->right[right++] : r->left[left++];
        }
}

static uint64_t least(uint64_t a, uint64_t b) {
        return a < b ? a : b;
}

/* The pairs [first, end) of `from`, sorted in runs of `run`, once every two runs have become one. */
static void merge_range(const struct order_pair *from, uint64_t n, uint64_t run, const uint64_t range[2],
        struct order_pair *to) {
        for (uint64_t at = range[0], end; at < range[1]; at = end) {
                uint64_t begin = at / (2 * run) * (2 * run), middle = least(begin + run, n),
                         behind = least(begin + 2 * run, n);
                const struct runs runs = { from + begin, from + middle, middle - begin, behind - middle };
                end = least(behind, range[1]);
                merge_part(&runs, at - begin, end - begin, to + at);
        }
}

static void sort_block(struct order_pair *pairs, uint64_t n) {
        struct order_pair other[ORDER_BLOCK], *from = pairs, *to = other;
        const uint64_t all[2] = { 0, n };
        for (uint64_t run = 1; run < n; run *= 2) {
                struct order_pair *merged = to;
                merge_range(from, n, run, all, to);
                to = from;
                from = merged;
        }
        if (from != pairs)
                memcpy(pairs, from, n * sizeof(*pairs));
}

static void sort_blocks(const struct chunk *c, const struct piece *piece) {
        const struct step *s = piece->step;
        const uint8_t *indices = locate(c, s, 0, s->count * dtype_bytes(s->dtype));
        struct order_pair *pairs = output_pairs(c, s);
        uint64_t end = n_blocks(piece->first_element + piece->n_elements);
        for (uint64_t b = n_blocks(piece->first_element); b < end; b++) {
                uint64_t first = b * ORDER_BLOCK, behind = least(first + ORDER_BLOCK, s->count);
                for (uint64_t i = first; i < behind; i++)
                        pairs[i] = (struct order_pair){ index_at(indices, s->dtype, i), i };
                sort_block(pairs + first, behind - first);
        }
}

static void merge_runs(const struct chunk *c, const struct piece *piece) {
        const struct step *s = piece->step;
        const uint64_t range[2] = { piece->first_element, piece->first_element + piece->n_elements };
        merge_range(pairs_at(c, s, 0, s->count), s->count, s->run, range, output_pairs(c, s));
}

/* --- rows of the result get their numbers --- */

static bool begins(const struct order_pair *pairs, uint64_t i) {
        return i == 0 || pairs[i].index != pairs[i - 1].index;
}

static uint64_t count_begins(const struct order_pair *pairs, uint64_t first, uint64_t end) {
        uint64_t n = 0;
        for (uint64_t i = first; i < end; i++)
                n += begins(pairs, i);
        return n;
}

static void count_blocks(const struct chunk *c, const struct piece *piece) {
        const struct step *s = piece->step;
        const struct order_pair *pairs = pairs_at(c, s, 0, s->count);
        uint64_t *counts = (uint64_t *)(void *)locate(c, s, 1, n_blocks(s->count) * sizeof(*counts));
        uint64_t end = n_blocks(piece->first_element + piece->n_elements);
        for (uint64_t b = n_blocks(piece->first_element); b < end; b++)
                counts[b] = count_begins(pairs, b * ORDER_BLOCK, least((b + 1) * ORDER_BLOCK, s->count));
}

static void number_blocks(const struct chunk *c, const struct step *s) {
        uint64_t *numbers = (uint64_t *)(void *)locate(c, s, 1, s->bound * sizeof(*numbers)), total = 0;
        for (uint64_t b = 0; b < s->bound; b++) {
                uint64_t n = numbers[b];
                numbers[b] = total;
                total += n;
        }
        plan_extents(c->plan, s->entry)[c->plan->extents_of_entry - 1] = total;
        if (total <= s->room)
                return;
        const struct short_output is_short = {
                .needed = total, .room = s->room, .rank = s->room_rank, .entry = s->entry
        };
        findings_add(c->found, &(struct findings){ .short_output = is_short });
}

/* How many rows of the result begin before the pair `i`. */
static uint64_t row_number(const struct order_pair *pairs, const uint64_t *numbers, uint64_t i) {
        return numbers[i / ORDER_BLOCK] + count_begins(pairs, i / ORDER_BLOCK * ORDER_BLOCK, i);
}

static void write_indices(const struct chunk *c, const struct piece *piece) {
        const struct step *s = piece->step;
        const struct order_pair *pairs = pairs_at(c, s, 0, s->count);
        const uint64_t *numbers =
                (const uint64_t *)(const void *)locate(c, s, 1, n_blocks(s->count) * sizeof(*numbers));
        const uint64_t total = plan_extents(c->plan, s->entry)[c->plan->extents_of_entry - 1];
        const uint64_t end = piece->first_element + piece->n_elements;
        for (uint32_t o = 0; o < s->n_outputs; o++) {
                uint8_t *to = locate(c, s, s->n_inputs + o, total * dtype_bytes(s->output_dtype));
                uint64_t row = row_number(pairs, numbers, piece->first_element);
                for (uint64_t i = piece->first_element; i < end; i++)
                        if (begins(pairs, i))
                                set_index(to, s->output_dtype, row++, pairs[i].index);
        }
}

static void run_order(const struct chunk *c, const struct piece *piece) {
        switch (piece->step->stage) {
        case ORDER_SORT: sort_blocks(c, piece); return;
        case ORDER_MERGE: merge_runs(c, piece); return;
        case ORDER_COUNT: count_blocks(c, piece); return;
        case ORDER_NUMBER: number_blocks(c, piece->step); return;
        case ORDER_WRITE: write_indices(c, piece); return;
        }
}

/* --- rows of equal index become one --- */

struct scatter {
        const struct chunk *chunk;
        const struct step *step;
        uint32_t n_halves;
        uint64_t n_pairs;
        const struct order_pair *pairs;
        const void **addresses; /* [n_pairs]: of the rows, in the order of the pairs */
        const uint8_t *in[MAX_WORLD];
        uint8_t *out[MAX_WORLD];
};

/* From the first row to the last. */
static uint64_t bytes_of_rows(
        const struct step *s, const struct operand *o, uint64_t n_rows, enum dtype dtype) {
        return n_rows ? ((n_rows - 1) * o->row_stride + s->row_elements) * dtype_bytes(dtype) : 0;
}

static void scatter_begin(const struct chunk *c, const struct step *s, struct scatter *ret) {
        const struct operand *inputs = plan_inputs(c->plan, s), *outputs = plan_outputs(c->plan, s);
        const uint64_t total = plan_extents(c->plan, s->entry)[c->plan->extents_of_entry - 1];
        CHECK(s->n_inputs > SCATTER_ORDER && s->n_inputs - SCATTER_ORDER <= MAX_WORLD &&
                s->n_outputs <= MAX_WORLD);
        ret->chunk = c;
        ret->step = s;
        ret->n_halves = s->n_inputs - SCATTER_ORDER;
        ret->n_pairs = s->count / s->row_elements;
        ret->pairs = pairs_at(c, s, ret->n_halves, ret->n_pairs);
        ret->addresses = (const void **)(void *)locate(
                c, s, ret->n_halves + 2, ret->n_pairs * sizeof(*ret->addresses));
        for (uint32_t i = 0; i < ret->n_halves; i++)
                ret->in[i] = locate(c, s, i, bytes_of_rows(s, &inputs[i], inputs[i].n_rows, s->dtype));
        for (uint32_t i = 0; i < s->n_outputs; i++)
                ret->out[i] =
                        locate(c, s, s->n_inputs + i, bytes_of_rows(s, &outputs[i], total, s->output_dtype));
}

static const void *row_at(const struct scatter *sc, uint64_t position) {
        const struct operand *inputs = plan_inputs(sc->chunk->plan, sc->step);
        uint32_t low = 0, high = sc->n_halves;
        while (high - low > 1) {
                uint32_t middle = low + (high - low) / 2;
                if (inputs[middle].first_row <= position)
                        low = middle;
                else
                        high = middle;
        }
        CHECK(position - inputs[low].first_row < inputs[low].n_rows);
        return sc->in[low] +
               (position - inputs[low].first_row) * inputs[low].row_stride * dtype_bytes(sc->step->dtype);
}

/* The pairs [first, end) have one index: row `row` of the result. */
static void combine_rows(struct scatter *sc, uint64_t first, uint64_t end, uint64_t row) {
        const struct step *s = sc->step;
        const struct operand *outputs = plan_outputs(sc->chunk->plan, s);
        void *out[MAX_WORLD];
        for (uint64_t i = first; i < end; i++)
                sc->addresses[i] = row_at(sc, sc->pairs[i].position);
        for (uint32_t i = 0; i < s->n_outputs; i++)
                out[i] = sc->out[i] + row * outputs[i].row_stride * dtype_bytes(s->output_dtype);
        const struct kernel_call call = { .op = s->op,
                .dtype = s->dtype,
                .output_dtype = s->output_dtype,
                .inputs = sc->addresses + first,
                .n_inputs = (uint32_t)(end - first),
                .outputs = out,
                .n_outputs = s->n_outputs,
                .count = s->row_elements,
                .divisor = s->divisor };
        kernels_reduce(sc->chunk->isa, &call);
}

/* Rows of the result whose first pair's first element lies in the piece. */
static void scatter_add(const struct chunk *c, const struct piece *piece) {
        const struct step *s = piece->step;
        const uint64_t row = s->row_elements, behind = piece->first_element + piece->n_elements;
        uint64_t i = (piece->first_element + row - 1) / row, end = (behind + row - 1) / row, number;
        struct scatter sc;
        scatter_begin(c, s, &sc);
        if (i >= end)
                return;
        const uint64_t *numbers = (const uint64_t *)(const void *)locate(
                c, s, sc.n_halves + 1, n_blocks(sc.n_pairs) * sizeof(*numbers));
        number = row_number(sc.pairs, numbers, i);
        while (i < end && !begins(sc.pairs, i))
                i++;
        while (i < end) {
                uint64_t next = i + 1;
                while (next < sc.n_pairs && !begins(sc.pairs, next))
                        next++;
                combine_rows(&sc, i, next, number++);
                i = next;
        }
}

void sparse_run_piece(const struct chunk *c, const struct piece *piece) {
        switch (piece->step->kind) {
        case STEP_INDICES: take_indices(c, piece); return;
        case STEP_ORDER: run_order(c, piece); return;
        case STEP_SCATTER_ADD: scatter_add(c, piece); return;
        case STEP_COPY:
        case STEP_REDUCE:
        case STEP_JOIN:
        case STEP_LIBRARY: CHECK(false);
        }
}
