/* Random sealed collectives before the planner. What is refused for an overlap overlaps by a naive look at
 * every pair of ranges, and nothing else does; a plan reads and writes what the halves named, in rank order,
 * each element of each output exactly once, whatever the chunks.
 *
 * An input is: kind, op, dtype, options, who is there, then for each entry its count and destinations and
 * for each half two places. What the rules of a single half refuse never reaches the planner. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "planner.h"

#define MAX_RANKS   4
#define MAX_VALUES  5
#define N_FILES     3
#define FILE_BYTES  1024
#define MAX_COUNT   24
#define CHUNK_BYTES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct room {
        const uint8_t *data;
        size_t size;
        struct signature signature;
        uint32_t n_ranks, ranks[MAX_RANKS];
        struct entry entries[MAX_RANKS][MAX_VALUES];
        const struct entry *pointers[MAX_RANKS];
        double weights[MAX_RANKS];
};

/* --- the input --- */

static uint8_t take_byte(struct room *r) {
        if (r->size == 0)
                return 0;
        r->size--;
        return *r->data++;
}

static uint32_t take(struct room *r, uint32_t n) {
        return take_byte(r) % n;
}

/* Any element-aligned place of a small file; two bytes, so that ranges meet often and in every way. */
static void take_place(struct room *r, const struct entry *e, enum dtype dtype, struct place *ret) {
        uint64_t n;
        uint32_t file = take(r, N_FILES + 1), at = take_byte(r);
        *ret = (struct place){ 0 };
        if (!file || !entry_count(e, &n))
                return;
        size_t size = dtype_bytes(dtype);
        uint64_t offset = at * size % (FILE_BYTES / 2);
        *ret = (struct place){ .buffer = file * 10,
                .offset_bytes = offset,
                .file = file,
                .memory = (struct memory *)(uintptr_t)file,
                .span = { .offset_bytes = offset, .n_bytes = n * size } };
}

static void take_destination(struct room *r, struct entry *e) {
        e->destination = (enum destination)(DESTINATION_ALL + take(r, 3));
        e->destination_rank = take(r, MAX_RANKS);
        uint8_t ranks = take_byte(r);
        for (uint32_t i = 0; i < MAX_RANKS; i++)
                if (ranks >> i & 1)
                        rankset_add(&e->destination_ranks, i);
}

/* The same in all halves but the places. */
static void take_entry(struct room *r, uint32_t i) {
        struct entry e = { .dtype = (enum dtype)(DTYPE_U8 + take(r, N_DTYPE - 1)), .n_dims = 1 };
        e.shape[0] = take(r, MAX_COUNT);
        if (take(r, 2) && r->signature.op == OP_MEAN)
                e.output_dtype = dtype_of_integer_mean(e.dtype);
        take_destination(r, &e);
        for (uint32_t half = 0; half < r->n_ranks; half++) {
                struct entry *mine = &r->entries[half][i];
                *mine = e;
                take_place(r, &e, e.dtype, &mine->input);
                if (take(r, 2))
                        mine->output = mine->input;
                else
                        take_place(r, &e, entry_output_dtype(&e), &mine->output);
                mine->output.span.n_bytes = e.shape[0] * dtype_bytes(entry_output_dtype(&e));
        }
}

static void take_signature(struct room *r) {
        struct signature *s = &r->signature;
        s->kind = (enum kind)(KIND_REDUCE + take(r, 4));
        s->op = (enum op)take(r, N_OP);
        s->root = take(r, MAX_RANKS);
        uint8_t options = take_byte(r);
        s->options.check_numerics = options & 1;
        s->options.check_overflow = options >> 1 & 1;
        s->options.has_weight = options >> 2 & 1;
        s->options.rounding = (enum rounding)(options >> 3 & 3);
        if (s->kind == KIND_BROADCAST || s->kind == KIND_BARRIER)
                s->op = OP_UNSPECIFIED;
        s->n_entries = s->kind == KIND_BARRIER        ? 0
                       : s->kind == KIND_BATCH_REDUCE ? 1 + take(r, MAX_VALUES)
                                                      : 1;
}

/* Of a world of four, as a group is after deaths: at least one is there. */
static void take_ranks(struct room *r) {
        uint8_t there = take_byte(r);
        for (uint32_t rank = 0; rank < MAX_RANKS; rank++) {
                if (!(there >> rank & 1) && !(rank == MAX_RANKS - 1 && r->n_ranks == 0))
                        continue;
                r->weights[r->n_ranks] = take(r, 3);
                r->pointers[r->n_ranks] = r->entries[r->n_ranks];
                r->ranks[r->n_ranks++] = rank;
        }
}

static bool is_there(const struct room *r, uint32_t rank) {
        for (uint32_t i = 0; i < r->n_ranks; i++)
                if (r->ranks[i] == rank)
                        return true;
        return false;
}

/* Whether the rooms before the planner would have let it come so far. */
static bool is_sealed(const struct room *r) {
        struct error err;
        for (uint32_t i = 0; i < r->n_ranks; i++) {
                struct signature mine = r->signature;
                mine.options.weight = r->weights[i];
                error_init(&err, STATUS_OK);
                if (signature_check(&mine, r->entries[i], r->ranks[i], MAX_RANKS, &err) != STATUS_OK)
                        return false;
        }
        return r->signature.kind != KIND_BROADCAST || is_there(r, r->signature.root);
}

/* --- the naive look --- */

struct used {
        const struct place *place;
        bool is_written;
        uint32_t half, entry;
};

static bool is_same_place(const struct place *a, const struct place *b) {
        return a->file == b->file && a->span.offset_bytes == b->span.offset_bytes &&
               a->span.n_bytes == b->span.n_bytes;
}

static uint32_t list_uses(const struct room *r, struct used *uses) {
        uint32_t n = 0;
        for (uint32_t half = 0; half < r->n_ranks; half++)
                for (uint32_t i = 0; i < r->signature.n_entries; i++) {
                        const struct entry *e = &r->entries[half][i];
                        if (e->input.buffer && signature_reads(&r->signature, r->ranks[half]))
                                uses[n++] = (struct used){ &e->input, false, half, i };
                        if (e->output.buffer && entry_has_destination(e, r->ranks[half]))
                                uses[n++] = (struct used){ &e->output, true, half, i };
                }
        return n;
}

static bool is_conflict(const struct used *a, const struct used *b) {
        const struct span *x = &a->place->span, *y = &b->place->span;
        bool is_shared = a->place->file == b->place->file && x->n_bytes && y->n_bytes &&
                         x->offset_bytes < span_end(y) && y->offset_bytes < span_end(x);
        bool is_in_place = a->half == b->half && a->entry == b->entry && is_same_place(a->place, b->place);
        return is_shared && (a->is_written || b->is_written) && !is_in_place;
}

static bool has_conflict(const struct room *r) {
        static struct used uses[2 * MAX_RANKS * MAX_VALUES];
        uint32_t n = list_uses(r, uses);
        for (uint32_t i = 0; i < n; i++)
                for (uint32_t k = 0; k < i; k++)
                        if (is_conflict(&uses[i], &uses[k]))
                                return true;
        return false;
}

static bool has_no_weight(const struct room *r) {
        double total = 0;
        for (uint32_t i = 0; i < r->n_ranks; i++)
                total += r->weights[i];
        return r->signature.options.has_weight && r->signature.op == OP_MEAN && total == 0;
}

/* --- the plan --- */

/* How often each byte of each file is written. */
struct shadow {
        uint8_t n_written[N_FILES + 1][FILE_BYTES];
};

static bool is_of(const struct operand *o, const struct place *p, uint32_t rank) {
        return o->rank == rank && o->buffer == p->buffer && o->memory == p->memory &&
               o->offset_bytes == p->span.offset_bytes;
}

static void check_inputs(const struct room *r, const struct plan *plan, const struct step *s) {
        const struct operand *inputs = plan_inputs(plan, s);
        uint32_t n = 0;
        for (uint32_t half = 0; half < r->n_ranks; half++) {
                if (!signature_reads(&r->signature, r->ranks[half]))
                        continue;
                CHECK(n < s->n_inputs);
                CHECK(is_of(&inputs[n++], &r->entries[half][s->entry].input, r->ranks[half]));
        }
        CHECK(n == s->n_inputs);
}

static void check_step(const struct room *r, const struct plan *plan, const struct step *s) {
        uint64_t count;
        CHECK(s->entry < r->signature.n_entries);
        const struct entry *e = &r->entries[0][s->entry];
        CHECK(entry_count(e, &count) && s->count == count && count > 0);
        CHECK(s->dtype == e->dtype && s->output_dtype == entry_output_dtype(e));
        CHECK(s->kind == (r->signature.kind == KIND_BROADCAST ? STEP_COPY : STEP_REDUCE));
        CHECK(s->kind == STEP_COPY || s->op == r->signature.op);
        CHECK(s->op != OP_MEAN || s->has_weights || s->divisor == r->n_ranks);
        check_inputs(r, plan, s);
}

static void write_piece(struct shadow *shadow, const struct plan *plan, const struct piece *piece) {
        const struct step *s = piece->step;
        const struct operand *outputs = plan_outputs(plan, s);
        uint64_t size = dtype_bytes(s->output_dtype);
        CHECK(piece->n_elements > 0 && piece->first_element + piece->n_elements <= s->count);
        for (uint32_t i = 0; i < s->n_outputs; i++) {
                uint64_t begin = outputs[i].offset_bytes + piece->first_element * size;
                uint64_t end = begin + piece->n_elements * size;
                uintptr_t file = (uintptr_t)outputs[i].memory;
                CHECK(file >= 1 && file <= N_FILES && end <= FILE_BYTES);
                for (uint64_t k = begin; k < end; k++)
                        shadow->n_written[file][k]++;
        }
}

static void run(struct shadow *shadow, const struct plan *plan) {
        uint64_t n_elements = 0, n_expected = 0;
        struct piece piece;
        for (uint64_t chunk = 0; chunk < plan->n_chunks; chunk++)
                for (uint32_t cursor = 0; plan_next_piece(plan, chunk, &cursor, &piece);) {
                        n_elements += piece.n_elements;
                        write_piece(shadow, plan, &piece);
                }
        for (uint32_t i = 0; i < plan->n_steps; i++)
                n_expected += plan->steps[i].count;
        CHECK(n_elements == n_expected);
}

/* The one output that may stay unwritten: the root's, where it is its input. */
static bool is_due(const struct room *r, uint32_t half, uint32_t i) {
        const struct entry *e = &r->entries[half][i];
        bool is_root = r->signature.kind == KIND_BROADCAST && r->ranks[half] == r->signature.root;
        return e->output.buffer && entry_has_destination(e, r->ranks[half]) &&
               !(is_root && is_same_place(&e->input, &e->output));
}

static void check_written(const struct room *r, const struct shadow *shadow) {
        static struct shadow expected;
        memset(&expected, 0, sizeof(expected));
        for (uint32_t half = 0; half < r->n_ranks; half++)
                for (uint32_t i = 0; i < r->signature.n_entries; i++) {
                        const struct place *p = &r->entries[half][i].output;
                        for (uint64_t k = 0; is_due(r, half, i) && k < p->span.n_bytes; k++)
                                expected.n_written[p->file][p->span.offset_bytes + k]++;
                }
        CHECK(memcmp(&expected, shadow, sizeof(expected)) == 0);
}

static void check_plan(const struct room *r, const struct plan *plan) {
        static struct shadow shadow;
        char buf[65536];
        struct text t;
        CHECK(plan->is_frozen && plan->order == ORDER_RANK);
        for (uint32_t i = 0; i < plan->n_steps; i++)
                check_step(r, plan, &plan->steps[i]);
        memset(&shadow, 0, sizeof(shadow));
        run(&shadow, plan);
        check_written(r, &shadow);
        text_init(&t, buf, sizeof(buf));
        plan_print(plan, &t);
        CHECK(!t.is_cut);
}

/* --- both --- */

static void plan_room(const struct room *r) {
        const struct problem problem = { .signature = &r->signature,
                .n_ranks = r->n_ranks,
                .ranks = r->ranks,
                .entries = r->pointers,
                .weights = r->weights,
                .divisor = r->n_ranks,
                .n_devices = 1 };
        static struct planner *planner;
        static struct plan plan;
        struct error err;
        if (!planner) { /* kept, so that what one collective leaves behind meets the next */
                CHECK(planner_new(&planner, 1, CHUNK_BYTES) == 0);
                plan_init(&plan);
        }
        enum status status = planner_plan(planner, &problem, &plan, &err);
        if (status == STATUS_OK) {
                CHECK(!has_conflict(r) && !has_no_weight(r));
                check_plan(r, &plan);
                return;
        }
        CHECK(status == STATUS_INVALID && err.status == status && err.detail[0]);
        CHECK(err.field == FIELD_OPTIONS ? has_no_weight(r) : has_conflict(r));
        CHECK(err.field == FIELD_OPTIONS || (err.field == FIELD_OVERLAP && is_there(r, (uint32_t)err.rank)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static struct room r;
        r = (struct room){ .data = data, .size = size };
        take_signature(&r);
        take_ranks(&r);
        for (uint32_t i = 0; i < r.signature.n_entries; i++)
                take_entry(&r, i);
        if (is_sealed(&r))
                plan_room(&r);
        return 0;
}
