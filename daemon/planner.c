/* The overlap rule (P14) is the one check that needs all halves at once. Every range of bytes that the
 * collective really reads or writes is gathered: the inputs of ranks that read, the outputs of ranks that
 * receive. An output that is its own replica's input, exactly, is folded into it, so that afterwards no range
 * that is written may overlap any other range. Sorted by file and first byte, one sweep finds an overlap: it
 * is enough to remember which range of each kind reaches furthest.
 *
 * A replica's ranges usually ascend already, so sorting is a merge of the runs that are there (qsort may
 * allocate). */
#include "planner.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct algorithm *const algorithms[] = { &algorithm_one_device };

/* Bytes [begin, end) of a file, end > begin. */
struct range {
        uint64_t file, begin, end;
        uint32_t entry;
        uint16_t half; /* index in the problem */
        bool is_read, is_written;
};

struct planner {
        uint32_t n_devices;
        uint64_t chunk_bytes;
        struct range *ranges, *spare; /* [capacity] each */
        size_t n_ranges, capacity;
};

int planner_new(struct planner **ret, uint32_t n_devices, uint64_t chunk_bytes) {
        struct planner *p = calloc(1, sizeof(*p));
        if (!p)
                return -ENOMEM;
        p->n_devices = n_devices;
        p->chunk_bytes = chunk_bytes;
        *ret = p;
        return 0;
}

void planner_free(struct planner *p) {
        if (!p)
                return;
        free(p->ranges);
        free(p->spare);
        free(p);
}

/* Room for `needed` ranges, without keeping what they hold. */
static int reserve(struct planner *p, size_t needed) {
        if (needed <= p->capacity)
                return 0;
        size_t room = p->capacity * 2 > needed ? p->capacity * 2 : needed;
        if (room > SIZE_MAX / sizeof(struct range))
                return -ENOMEM;
        struct range *ranges = malloc(room * sizeof(*ranges)), *spare = malloc(room * sizeof(*spare));
        if (!ranges || !spare) {
                free(ranges);
                free(spare);
                return -ENOMEM;
        }
        free(p->ranges);
        free(p->spare);
        p->ranges = ranges;
        p->spare = spare;
        p->capacity = room;
        return 0;
}

static struct range range_at(const struct place *place, uint32_t half, uint32_t entry) {
        return (struct range){
                .file = place->file,
                .begin = place->span.offset_bytes,
                .end = span_end(&place->span),
                .entry = entry,
                .half = half,
        };
}

static bool is_same_range(const struct place *a, const struct place *b) {
        return a->file == b->file && a->span.offset_bytes == b->span.offset_bytes &&
               a->span.n_bytes == b->span.n_bytes;
}

/* A result object is one place for all halves: the first one's stands for it. */
static bool is_written(const struct problem *problem, uint32_t half, const struct entry *e) {
        if (e->output.object)
                return half == 0 && e->output.span.n_bytes > 0;
        return e->output.buffer && e->output.span.n_bytes > 0 &&
               entry_has_destination(e, problem->ranks[half]);
}

/* All inputs of a half, then its outputs elsewhere: two runs that ascend, as a rule. One pass, since the
 * entries are the most memory that planning touches; the outputs wait in `spare`. */
static void gather_half(struct planner *p, const struct problem *problem, uint32_t half) {
        const struct entry *entries = problem->entries[half];
        bool reads = signature_reads(problem->signature, problem->ranks[half]);
        size_t n_elsewhere = 0;

        for (uint32_t i = 0; i < problem->signature->n_entries; i++) {
                const struct entry *e = &entries[i];
                bool is_read = reads && e->input.buffer && e->input.span.n_bytes > 0;
                bool is_in_place = is_read && is_same_range(&e->input, &e->output);
                bool is_output = is_written(problem, half, e);
                if (is_read) {
                        struct range *r = &p->ranges[p->n_ranges++];
                        *r = range_at(&e->input, half, i);
                        r->is_read = true;
                        r->is_written = is_output && is_in_place;
                }
                if (is_output && !is_in_place) {
                        struct range *r = &p->spare[n_elsewhere++];
                        *r = range_at(&e->output, half, i);
                        r->is_written = true;
                }
        }
        if (n_elsewhere)
                memcpy(&p->ranges[p->n_ranges], p->spare, n_elsewhere * sizeof(*p->spare));
        p->n_ranges += n_elsewhere;
}

static int gather(struct planner *p, const struct problem *problem) {
        int r = reserve(p, (size_t)problem->n_ranks * problem->signature->n_entries * 2);
        if (r < 0)
                return r;
        p->n_ranges = 0;
        for (uint32_t i = 0; i < problem->n_ranks; i++)
                gather_half(p, problem, i);
        return 0;
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

/* Merges neighbouring runs pairwise until one is left. */
static void sort(struct planner *p) {
        size_t n = p->n_ranges;
        while (run_end(p->ranges, 0, n) < n) {
                for (size_t begin = 0; begin < n;) {
                        size_t middle = run_end(p->ranges, begin, n), end = run_end(p->ranges, middle, n);
                        merge(p->ranges, p->spare, begin, middle, end);
                        begin = end;
                }
                struct range *sorted = p->spare;
                p->spare = p->ranges;
                p->ranges = sorted;
        }
}

static const struct range *further(const struct range *a, const struct range *b) {
        return a && a->file == b->file && a->end >= b->end ? a : b;
}

static bool reaches(const struct range *a, const struct range *b) {
        return a && a->file == b->file && a->end > b->begin;
}

/* Finds two ranges that overlap and of which the first is written. */
static bool find_overlap(
        const struct planner *p, const struct range **ret_output, const struct range **ret_other) {
        const struct range *written = NULL, *read = NULL; /* those that reach furthest so far */
        for (size_t i = 0; i < p->n_ranges; i++) {
                const struct range *r = &p->ranges[i];
                if (reaches(written, r)) {
                        *ret_output = written;
                        *ret_other = r;
                        return true;
                }
                if (r->is_written && reaches(read, r)) {
                        *ret_output = r;
                        *ret_other = read;
                        return true;
                }
                if (r->is_written)
                        written = further(written, r);
                if (r->is_read)
                        read = further(read, r);
        }
        return false;
}

static const struct place *place_of(const struct problem *problem, const struct range *r) {
        const struct entry *entry = &problem->entries[r->half][r->entry];
        return r->is_read ? &entry->input : &entry->output;
}

/* "bytes 0..63 of R1's buffer 2" */
static void print_range(const struct problem *problem, const struct range *r, struct text *t) {
        const struct place *place = place_of(problem, r);
        text_add(t, "bytes %llu..%llu of ", (unsigned long long)r->begin, (unsigned long long)r->end - 1);
        if (place->result)
                text_add(t, "a slot of the result object %llu", (unsigned long long)place->result);
        else
                text_add(t, "R%u's buffer %llu", problem->ranks[r->half], (unsigned long long)place->buffer);
}

static enum status refuse_overlap(const struct problem *problem, const struct range *output,
        const struct range *other, struct error *err) {
        unsigned int rank = problem->ranks[output->half], other_rank = problem->ranks[other->half];
        char buf[192];
        struct text t;

        text_init(&t, buf, sizeof(buf));
        print_range(problem, output, &t);
        text_add(&t, " and ");
        print_range(problem, other, &t);
        error_init(err, STATUS_INVALID);
        err->entry = output->entry;
        err->rank = rank;
        return error_set(err, STATUS_INVALID, FIELD_OVERLAP,
                "output of R%u (entry %u) overlaps the %s of R%u (entry %u): %s share memory. "
                "An output may share it only with its own replica's input of the same entry, exactly",
                rank, output->entry, other->is_read ? "input" : "output", other_rank, other->entry, buf);
}

static enum status refuse_kind(const struct problem *problem, struct error *err) {
        error_init(err, STATUS_UNSUPPORTED);
        return error_set(err, STATUS_UNSUPPORTED, FIELD_KIND, "no algorithm of this tuttid does this %s",
                kind_name(problem->signature->kind));
}

/* Each weight is finite and not negative: its own half's check has seen to that. */
static enum status check_weights(const struct problem *problem, struct error *err) {
        if (!problem->signature->options.has_weight)
                return STATUS_OK;
        double total = problem_total_weight(problem);
        if (isfinite(total) && (total > 0 || problem->signature->op != OP_MEAN))
                return STATUS_OK;
        error_init(err, STATUS_INVALID);
        if (!isfinite(total))
                return error_set(err, STATUS_INVALID, FIELD_OPTIONS,
                        "the weights add up to more than f64 can hold; only their proportions matter to a "
                        "MEAN, "
                        "so take smaller ones");
        return error_set(err, STATUS_INVALID, FIELD_OPTIONS,
                "the weights of all %u contributions are 0: there is nothing to take the mean of",
                problem->n_ranks);
}

static enum status refuse_memory(struct error *err) {
        error_init(err, STATUS_NO_MEMORY);
        return error_set(
                err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid has no memory to plan this collective");
}

static const struct algorithm *choose(const struct problem *problem) {
        for (size_t i = 0; i < ARRAY_SIZE(algorithms); i++)
                if (algorithms[i]->eligible(problem))
                        return algorithms[i];
        return NULL;
}

enum status planner_plan(
        struct planner *p, const struct problem *problem, struct plan *plan, struct error *err) {
        const struct range *output, *other;

        plan_reset(plan);
        const struct algorithm *algorithm = choose(problem);
        if (!algorithm)
                return refuse_kind(problem, err);
        enum status status = check_weights(problem, err);
        if (status != STATUS_OK)
                return status;
        if (gather(p, problem) < 0)
                return refuse_memory(err);
        sort(p);
        if (find_overlap(p, &output, &other))
                return refuse_overlap(problem, output, other, err);
        if (algorithm->build(problem, plan) < 0)
                return refuse_memory(err);
        plan_freeze(plan, p->chunk_bytes);
        return STATUS_OK;
}
