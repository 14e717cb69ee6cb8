/* Random sealed collectives before the planner. What is refused for an overlap overlaps by a naive look at
 * every pair of ranges, and nothing else does; a plan reads and writes what the halves named, in rank order,
 * each element of each output exactly once, whatever the chunks.
 *
 * An input is: kind, op, dtype, options, who is there, then for each entry its shape and destinations and
 * for each half two places, of which an entry with two dimensions may have strides. What the rules of a
 * single half refuse never reaches the planner. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "planner.h"

#define MAX_RANKS   4
#define MAX_VALUES  5
#define N_FILES     3
#define FILE_BYTES  2048
#define MAX_COUNT   24
#define MAX_DIM     5
#define STRIDED     128 /* from this byte on a shape has two dimensions */
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

/* From its first byte to its last, as buffer_lease finds it. */
static void set_span(const struct entry *e, enum dtype dtype, struct place *place) {
        struct view view;
        uint64_t extent;
        entry_view(e, place, &view);
        CHECK(view_extent(&view, &extent));
        place->span =
                (struct span){ .offset_bytes = place->offset_bytes, .n_bytes = extent * dtype_bytes(dtype) };
}

static void take_shape(struct room *r, struct entry *e) {
        uint8_t byte = take_byte(r);
        e->n_dims = byte >= STRIDED ? 2 : 1;
        e->shape[0] = byte % (byte >= STRIDED ? MAX_DIM : MAX_COUNT);
        if (byte >= STRIDED)
                e->shape[1] = take(r, MAX_DIM);
}

static void take_strides(struct room *r, struct place *place) {
        place->n_strides = 2;
        place->strides[0] = take(r, 16);
        place->strides[1] = take(r, 4);
}

/* Any element-aligned place of a small file; two bytes, so that ranges meet often and in every way. */
static void take_place(struct room *r, const struct entry *e, enum dtype dtype, struct place *ret) {
        uint64_t n;
        uint32_t file = take(r, N_FILES + 1), at = take_byte(r);
        *ret = (struct place){ 0 };
        if (!file || !entry_count(e, &n))
                return;
        size_t size = dtype_bytes(dtype);
        uint64_t offset = at * size % (FILE_BYTES / 4);
        *ret = (struct place){ .buffer = file * 10,
                .offset_bytes = offset,
                .file = file,
                .memory = (struct memory *)(uintptr_t)file };
        if (e->n_dims == 2 && take(r, 4))
                take_strides(r, ret);
        set_span(e, dtype, ret);
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
        struct entry e = { .dtype = (enum dtype)(DTYPE_U8 + take(r, N_DTYPE - 1)) };
        take_shape(r, &e);
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
                if (e.n_dims == 2 && mine->output.buffer && take(r, 4) == 0)
                        take_strides(r, &mine->output); /* elsewhere in the same bytes */
                if (mine->output.buffer)
                        set_span(&e, entry_output_dtype(&e), &mine->output);
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
        uint8_t touches[FILE_BYTES]; /* whether it touches this byte of its file */
};

/* Where an element of a view is, by a walk through its dimensions that knows of nothing else. */
static uint64_t element_at(uint32_t n_dims, const uint64_t *shape, const uint64_t *strides, uint64_t index) {
        uint64_t at = 0;
        for (uint32_t d = n_dims; d-- > 0; index /= shape[d])
                at += index % shape[d] * strides[d];
        return at;
}

/* The first byte of element `index` of a value at this place of its file. */
static uint64_t byte_of(const struct entry *e, const struct place *p, size_t size, uint64_t index) {
        uint64_t dense[2] = { e->n_dims == 2 ? e->shape[1] : 1, 1 };
        uint64_t at = element_at(e->n_dims, e->shape, p->n_strides ? p->strides : dense, index);
        return p->offset_bytes + at * size;
}

static void touch(const struct entry *e, const struct place *p, size_t size, uint8_t *touches) {
        uint64_t n;
        CHECK(entry_count(e, &n));
        for (uint64_t i = 0; i < n; i++) {
                uint64_t begin = byte_of(e, p, size, i);
                CHECK(begin + size <= FILE_BYTES && begin + size <= span_end(&p->span));
                for (uint64_t k = begin; k < begin + size; k++)
                        touches[k]++;
        }
}

/* Whether the output of this entry is its input, each element. */
static bool is_in_place(const struct entry *e) {
        uint64_t n;
        size_t size = dtype_bytes(e->dtype);
        CHECK(entry_count(e, &n));
        if (e->input.file != e->output.file || size != dtype_bytes(entry_output_dtype(e)))
                return false;
        for (uint64_t i = 0; i < n; i++)
                if (byte_of(e, &e->input, size, i) != byte_of(e, &e->output, size, i))
                        return false;
        return true;
}

static void note_use(struct used *used, const struct entry *e, const struct used *what) {
        *used = *what;
        touch(e, used->place, dtype_bytes(used->is_written ? entry_output_dtype(e) : e->dtype),
                used->touches);
}

static uint32_t list_uses(const struct room *r, struct used *uses) {
        uint32_t n = 0;
        for (uint32_t half = 0; half < r->n_ranks; half++)
                for (uint32_t i = 0; i < r->signature.n_entries; i++) {
                        const struct entry *e = &r->entries[half][i];
                        if (e->input.buffer && signature_reads(&r->signature, r->ranks[half]))
                                note_use(&uses[n++], e, &(struct used){ &e->input, false, half, i });
                        if (e->output.buffer && entry_has_destination(e, r->ranks[half]))
                                note_use(&uses[n++], e, &(struct used){ &e->output, true, half, i });
                }
        return n;
}

static bool is_conflict(const struct room *r, const struct used *a, const struct used *b) {
        if (a->place->file != b->place->file || (!a->is_written && !b->is_written))
                return false;
        if (a->half == b->half && a->entry == b->entry && is_in_place(&r->entries[a->half][a->entry]))
                return false;
        for (uint32_t k = 0; k < FILE_BYTES; k++)
                if (a->touches[k] && b->touches[k])
                        return true;
        return false;
}

static bool has_conflict(const struct room *r) {
        static struct used uses[2 * MAX_RANKS * MAX_VALUES];
        uint32_t n = list_uses(r, uses);
        for (uint32_t i = 0; i < n; i++)
                for (uint32_t k = 0; k < i; k++)
                        if (is_conflict(r, &uses[i], &uses[k]))
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

/* Where element `index` of an operand of this step is: inputs, then outputs. */
static uint64_t operand_byte(
        const struct plan *plan, const struct step *s, uint32_t operand, uint64_t index) {
        bool is_input = operand < s->n_inputs;
        const struct operand *o =
                is_input ? &plan_inputs(plan, s)[operand] : &plan_outputs(plan, s)[operand - s->n_inputs];
        size_t size = dtype_bytes(is_input ? s->dtype : s->output_dtype);
        if (s->n_dims == 0)
                return o->offset_bytes + index * size;
        return o->offset_bytes +
               element_at(s->n_dims, s->shape, plan_strides(plan, s, operand), index) * size;
}

static bool is_of(const struct plan *plan, const struct step *s, uint32_t input, const struct entry *e) {
        const struct operand *o = &plan_inputs(plan, s)[input];
        if (o->buffer != e->input.buffer || o->memory != e->input.memory)
                return false;
        for (uint64_t i = 0; i < s->count; i++)
                if (operand_byte(plan, s, input, i) != byte_of(e, &e->input, dtype_bytes(e->dtype), i))
                        return false;
        return true;
}

static void check_inputs(const struct room *r, const struct plan *plan, const struct step *s) {
        uint32_t n = 0;
        for (uint32_t half = 0; half < r->n_ranks; half++) {
                if (!signature_reads(&r->signature, r->ranks[half]))
                        continue;
                CHECK(n < s->n_inputs);
                CHECK(plan_inputs(plan, s)[n].rank == r->ranks[half]);
                CHECK(is_of(plan, s, n++, &r->entries[half][s->entry]));
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
                uintptr_t file = (uintptr_t)outputs[i].memory;
                CHECK(file >= 1 && file <= N_FILES);
                for (uint64_t n = 0; n < piece->n_elements; n++) {
                        uint64_t begin = operand_byte(plan, s, s->n_inputs + i, piece->first_element + n);
                        CHECK(begin + size <= FILE_BYTES);
                        for (uint64_t k = begin; k < begin + size; k++)
                                shadow->n_written[file][k]++;
                }
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
        return e->output.buffer && entry_has_destination(e, r->ranks[half]) && !(is_root && is_in_place(e));
}

static void check_written(const struct room *r, const struct shadow *shadow) {
        static struct shadow expected;
        memset(&expected, 0, sizeof(expected));
        for (uint32_t half = 0; half < r->n_ranks; half++)
                for (uint32_t i = 0; i < r->signature.n_entries; i++) {
                        const struct entry *e = &r->entries[half][i];
                        if (is_due(r, half, i))
                                touch(e, &e->output, dtype_bytes(entry_output_dtype(e)),
                                        expected.n_written[e->output.file]);
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
