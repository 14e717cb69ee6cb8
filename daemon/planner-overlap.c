/* Every range of bytes that the collective really reads or writes is gathered: the inputs of ranks that read,
 * the outputs of ranks that receive. An output that is its own replica's input, exactly, is folded into it,
 * so that afterwards no range that is written may share a byte with any other. Sorted by file and first byte,
 * one sweep finds ranges that overlap: it is enough to remember which range of each kind reaches furthest.
 *
 * Of strided values that says only that they may share bytes, since each has gaps for others: the columns of
 * a matrix overlap, and share nothing. So where the sweep has found something strided, the ranges are taken
 * in clusters, each of ranges that overlap one after another. Most clusters are rows of one length, each
 * value with a place of its own in the row: seen modulo the row they do not overlap, which is one sweep more.
 * Where that does not settle it, every two of the cluster are looked at, within a bound.
 *
 * A replica's ranges usually ascend already, so sorting is a merge of the runs that are there (qsort may
 * allocate). */
#include "planner-overlap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/large.h"

/* For one collective: some milliseconds. To make two views ready to be compared costs as much as so many
 * steps of the comparison. */
#define STEPS      (UINT64_C(1) << 20)
#define PAIR_STEPS 32

void ranges_deinit(struct ranges *r) {
        size_t n_bytes = r->capacity * sizeof(*r->all);
        large_free(r->all, n_bytes);
        large_free(r->spare, n_bytes);
        large_free(r->folded, n_bytes);
        *r = (struct ranges){ 0 };
}

/* Room for `needed` ranges, without keeping what they hold. */
static int reserve(struct ranges *r, size_t needed) {
        if (needed <= r->capacity)
                return 0;
        size_t room = r->capacity * 2 > needed ? r->capacity * 2 : needed;
        if (room > SIZE_MAX / sizeof(struct range))
                return -ENOMEM;
        struct range *all = malloc(room * sizeof(*all)), *spare = malloc(room * sizeof(*spare));
        if (!all || !spare) {
                free(all);
                free(spare);
                return -ENOMEM;
        }
        ranges_deinit(r);
        *r = (struct ranges){ .all = all, .spare = spare, .capacity = room };
        return 0;
}

static struct range range_at(const struct place *place, uint32_t half, uint32_t entry) {
        return (struct range){
                .file = place->file,
                .begin = place->span.offset_bytes,
                .end = span_end(&place->span),
                .entry = entry,
                .half = half,
                .is_strided = place->n_strides > 0,
        };
}

static bool is_same_lattice(const struct signature *s, const struct entry *e) {
        struct view input, output;
        if (!s->axes && !e->input.n_strides && !e->output.n_strides)
                return true;
        entry_view(e, &e->input, &input);
        entry_output_view(s, e, &output);
        view_simplify(&input);
        view_simplify(&output);
        return input.n_dims == output.n_dims &&
               memcmp(input.shape, output.shape, input.n_dims * sizeof(*input.shape)) == 0 &&
               memcmp(input.strides, output.strides, input.n_dims * sizeof(*input.strides)) == 0;
}

static bool is_same_range(const struct signature *s, const struct entry *e) {
        const struct place *a = &e->input, *b = &e->output;
        return e->layout == LAYOUT_DENSE && a->file == b->file &&
               a->span.offset_bytes == b->span.offset_bytes && a->span.n_bytes == b->span.n_bytes &&
               is_same_lattice(s, e);
}

/* A result object is one place for all halves: the first one's stands for it. */
static bool place_is_written(
        const struct problem *problem, uint32_t half, const struct entry *e, const struct place *output) {
        if (output->object)
                return half == 0 && output->span.n_bytes > 0;
        return output->buffer && output->span.n_bytes > 0 && entry_has_destination(e, problem->ranks[half]);
}

static bool is_written(const struct problem *problem, uint32_t half, const struct entry *e) {
        return place_is_written(problem, half, e, &e->output);
}

static void add_indices(struct range *to, const struct place *place, const struct range *like) {
        *to = range_at(place, like->half, like->entry);
        to->is_read = like->is_read;
        to->is_written = like->is_written;
        to->is_of_indices = true;
}

/* Where the indices of a sparse entry are read, and where they are written. */
static void gather_indices(
        struct ranges *r, const struct problem *problem, uint32_t half, uint32_t i, size_t *n_elsewhere) {
        const struct entry *e = &problem->entries[half][i];
        const struct place *input = &e->sparse.indices, *output = &e->sparse.output_indices;
        if (signature_reads(problem->signature, problem->ranks[half]) && input->span.n_bytes > 0)
                add_indices(
                        &r->all[r->n++], input, &(struct range){ .half = half, .entry = i, .is_read = true });
        if (place_is_written(problem, half, e, output))
                add_indices(&r->spare[(*n_elsewhere)++], output,
                        &(struct range){ .half = half, .entry = i, .is_written = true });
}

/* All inputs of a half, then its outputs elsewhere: two runs that ascend, as a rule. One pass, since the
 * entries are the most memory that planning touches; the outputs wait in `spare`. */
static void gather_half(struct ranges *r, const struct problem *problem, uint32_t half) {
        const struct entry *entries = problem->entries[half];
        bool reads = signature_reads(problem->signature, problem->ranks[half]);
        size_t n_elsewhere = 0;

        for (uint32_t i = 0; i < problem->signature->n_entries; i++) {
                const struct entry *e = &entries[i];
                bool is_read = reads && e->input.buffer && e->input.span.n_bytes > 0;
                bool is_in_place = is_read && is_same_range(problem->signature, e);
                bool is_output = is_written(problem, half, e);
                if (is_read) {
                        struct range *added = &r->all[r->n++];
                        *added = range_at(&e->input, half, i);
                        added->is_read = true;
                        added->is_written = is_output && is_in_place;
                }
                if (is_output && !is_in_place) {
                        struct range *added = &r->spare[n_elsewhere++];
                        *added = range_at(&e->output, half, i);
                        added->is_written = true;
                }
                if (e->layout == LAYOUT_SPARSE)
                        gather_indices(r, problem, half, i, &n_elsewhere);
        }
        if (n_elsewhere)
                memcpy(&r->all[r->n], r->spare, n_elsewhere * sizeof(*r->spare));
        r->n += n_elsewhere;
}

static bool is_before(const struct range *a, const struct range *b) {
        if (a->file != b->file)
                return a->file < b->file;
        return a->begin < b->begin;
}

/* The end of the ascending run that begins at `begin`. */
static size_t run_end(const struct range *ranges, size_t begin, size_t n) {
        size_t i = begin;
        while (i + 1 < n && !is_before(&ranges[i + 1], &ranges[i]))
                i++;
        return i < n ? i + 1 : n;
}

/* Merges the runs [begin, middle) and [middle, end) of `from` into the same place of `to`; stable. */
static void merge(const struct range *from, struct range *to, size_t begin, size_t middle, size_t end) {
        size_t left = begin, right = middle;
        for (size_t i = begin; i < end; i++) {
                bool is_right = left == middle || (right < end && is_before(&from[right], &from[left]));
                to[i] = from[is_right ? right++ : left++];
        }
}

/* Merges neighbouring runs pairwise until one is left, which *ranges is then. */
static void sort(struct range **ranges, struct range **spare, size_t n) {
        while (run_end(*ranges, 0, n) < n) {
                for (size_t begin = 0; begin < n;) {
                        size_t middle = run_end(*ranges, begin, n), end = run_end(*ranges, middle, n);
                        merge(*ranges, *spare, begin, middle, end);
                        begin = end;
                }
                struct range *sorted = *spare;
                *spare = *ranges;
                *ranges = sorted;
        }
}

int ranges_gather(struct ranges *r, const struct problem *problem) {
        size_t n_values = (size_t)problem->signature->n_entries + problem->n_sparse;
        int e = reserve(r, problem->n_ranks * n_values * 2);
        if (e < 0)
                return e;
        r->n = 0;
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                gather_half(r, problem, i);
        sort(&r->all, &r->spare, r->n);
        return 0;
}

/* --- the sweep --- */

static const struct range *further(const struct range *a, const struct range *b) {
        return a && a->file == b->file && a->end >= b->end ? a : b;
}

static bool reaches(const struct range *a, const struct range *b) {
        return a && a->file == b->file && a->end > b->begin;
}

static struct overlap overlap_of(enum sharing sharing, const struct range *a, const struct range *b) {
        const struct range *output = a->is_written ? a : b;
        return (struct overlap){ .sharing = sharing, .output = output, .other = output == a ? b : a };
}

/* Finds two of these sorted ranges that overlap and of which one is written. */
static bool sweep(const struct range *ranges, size_t n, struct overlap *ret) {
        const struct range *written = NULL, *read = NULL; /* those that reach furthest so far */
        for (size_t i = 0; i < n; i++) {
                const struct range *r = &ranges[i];
                const struct range *found = reaches(written, r)                 ? written
                                            : r->is_written && reaches(read, r) ? read
                                                                                : NULL;
                if (found) {
                        *ret = overlap_of(SHARING_BYTES, found, r);
                        return true;
                }
                if (r->is_written)
                        written = further(written, r);
                if (r->is_read)
                        read = further(read, r);
        }
        return false;
}

/* --- strided values --- */

/* A cluster of sorted ranges, and what it takes to judge it. */
struct cluster {
        const struct problem *problem;
        const struct range *ranges;
        size_t n;
        uint64_t steps;
};

static void view_at(const struct problem *problem, const struct range *r, struct placed_view *ret) {
        const struct entry *e = &problem->entries[r->half][r->entry];
        if (r->is_of_indices)
                view_make(&ret->view, 1, r->is_read ? e->shape : &e->output_extent, NULL);
        else if (r->is_read)
                entry_view(e, &e->input, &ret->view);
        else
                entry_output_view(problem->signature, e, &ret->view);
        view_simplify(&ret->view);
        ret->offset_bytes = r->begin;
        ret->element_bytes = dtype_bytes(r->is_of_indices ? e->sparse.index_dtype
                                         : r->is_read     ? e->dtype
                                                          : entry_output_dtype(e));
}

/* The largest stride of the value whose largest is the smallest: the row, where there is one. 0: nothing is
 * strided. */
static uint64_t row_bytes(const struct cluster *c) {
        uint64_t row = 0;
        for (size_t i = 0; i < c->n; i++) {
                struct placed_view v;
                uint64_t most = 0;
                if (!c->ranges[i].is_strided)
                        continue;
                view_at(c->problem, &c->ranges[i], &v);
                for (uint32_t k = 0; k < v.view.n_dims; k++)
                        most = v.view.strides[k] > most ? v.view.strides[k] : most;
                if (most > 1 && (row == 0 || most * v.element_bytes < row))
                        row = most * v.element_bytes;
        }
        return row;
}

/* What a range covers of a row of `row` bytes. false: it does not keep to one place in it. */
static bool fold(const struct cluster *c, const struct range *r, uint64_t row, struct range *ret) {
        uint64_t n_bytes = r->end - r->begin;
        if (r->is_strided) {
                struct placed_view v;
                uint64_t extent = 1;
                view_at(c->problem, r, &v);
                for (uint32_t k = 0; k < v.view.n_dims; k++)
                        if (v.view.strides[k] * v.element_bytes % row != 0)
                                extent += (v.view.shape[k] - 1) * v.view.strides[k];
                n_bytes = extent * v.element_bytes;
        }
        *ret = *r;
        ret->begin = r->begin % row;
        ret->end = ret->begin + n_bytes;
        return ret->end <= row;
}

static bool is_disjoint_by_rows(struct ranges *r, const struct cluster *c) {
        struct overlap unused;
        uint64_t row = row_bytes(c);
        if (row == 0)
                return false;
        for (size_t i = 0; i < c->n; i++)
                if (!fold(c, &c->ranges[i], row, &r->folded[i]))
                        return false;
        sort(&r->folded, &r->spare, c->n);
        return !sweep(r->folded, c->n, &unused);
}

static enum sharing two_share(struct cluster *c, const struct range *a, const struct range *b) {
        struct placed_view of_a, of_b;
        if (c->steps < PAIR_STEPS)
                return SHARING_UNKNOWN;
        if (!a->is_written && !b->is_written) {
                c->steps--;
                return SHARING_NOTHING;
        }
        if (!a->is_strided && !b->is_strided)
                return SHARING_BYTES;
        c->steps -= PAIR_STEPS;
        view_at(c->problem, a, &of_a);
        view_at(c->problem, b, &of_b);
        return views_share(&of_a, &of_b, &c->steps);
}

static bool find_in_pairs(struct cluster *c, struct overlap *ret) {
        for (size_t i = 0; i < c->n; i++)
                for (size_t k = i + 1; k < c->n && reaches(&c->ranges[i], &c->ranges[k]); k++) {
                        enum sharing sharing = two_share(c, &c->ranges[i], &c->ranges[k]);
                        if (sharing == SHARING_NOTHING)
                                continue;
                        *ret = overlap_of(sharing, &c->ranges[i], &c->ranges[k]);
                        return true;
                }
        return false;
}

/* The end of the cluster that begins at `begin`. */
static size_t cluster_end(const struct ranges *r, size_t begin) {
        const struct range *furthest = &r->all[begin];
        size_t i = begin + 1;
        for (; i < r->n && reaches(furthest, &r->all[i]); i++)
                furthest = further(furthest, &r->all[i]);
        return i;
}

static bool find_in_clusters(struct ranges *r, const struct problem *problem, struct overlap *ret) {
        struct cluster c = { .problem = problem, .steps = STEPS };
        for (size_t begin = 0; begin < r->n; begin += c.n) {
                c.ranges = &r->all[begin];
                c.n = cluster_end(r, begin) - begin;
                if (sweep(c.ranges, c.n, ret) && !is_disjoint_by_rows(r, &c) && find_in_pairs(&c, ret))
                        return true;
        }
        return false;
}

int ranges_find_overlap(struct ranges *r, const struct problem *problem, struct overlap *ret) {
        if (!sweep(r->all, r->n, ret)) {
                ret->sharing = SHARING_NOTHING;
                return 0;
        }
        if (!ret->output->is_strided && !ret->other->is_strided)
                return 0;
        if (!r->folded && !(r->folded = malloc(r->capacity * sizeof(*r->folded))))
                return -ENOMEM;
        if (!find_in_clusters(r, problem, ret))
                ret->sharing = SHARING_NOTHING;
        return 0;
}
