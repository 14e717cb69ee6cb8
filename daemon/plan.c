/* The index space of a plan: steps laid end to end, measured in the bytes of one of their inputs. A chunk is
 * a range of it; an element belongs to the chunk in which its first byte lies, so that every element belongs
 * to exactly one chunk, wherever the steps begin and whatever their element size. */
#include "plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/large.h"

#define CHUNK_ALIGNMENT   64
#define SCRATCH_ALIGNMENT 64

static const char *const order_names[] = {
        [ORDER_RANK] = "rank",
        [ORDER_TREE] = "tree",
        [ORDER_LIBRARY] = "library",
};

const char *plan_order_name(enum plan_order order) {
        return order_names[order];
}

void plan_init(struct plan *p) {
        *p = (struct plan){ .algorithm = "" };
}

void plan_deinit(struct plan *p) {
        large_free(p->steps, p->steps_capacity * sizeof(*p->steps));
        large_free(p->operands, p->operands_capacity * sizeof(*p->operands));
        large_free(p->strides, p->strides_capacity * sizeof(*p->strides));
        free(p->sums);
        free(p->scratch);
        large_free(p->extents, p->extents_capacity * sizeof(*p->extents));
        free(p->parts);
        plan_init(p);
}

void plan_reset(struct plan *p) {
        *p = (struct plan){
                .algorithm = "",
                .steps = p->steps,
                .steps_capacity = p->steps_capacity,
                .operands = p->operands,
                .operands_capacity = p->operands_capacity,
                .sums = p->sums,
                .sums_capacity = p->sums_capacity,
                .strides = p->strides,
                .strides_capacity = p->strides_capacity,
                .scratch = p->scratch,
                .scratch_capacity = p->scratch_capacity,
                .extents = p->extents,
                .extents_capacity = p->extents_capacity,
                .parts = p->parts,
                .parts_capacity = p->parts_capacity,
        };
}

/* `array`, moved where it must be, with room for `needed` elements of `size` bytes; NULL (and `array` still
 * good) when memory is short. */
static void *reserve(void *array, uint32_t *capacity, uint64_t needed, size_t size) {
        uint64_t room = *capacity ? *capacity : 16;
        if (array && needed <= *capacity)
                return array;
        while (room < needed)
                room *= 2;
        if (room > UINT32_MAX || room > SIZE_MAX / size)
                return NULL;
        void *moved = realloc(array, room * size);
        if (moved)
                *capacity = room;
        return moved;
}

/* Makes the next step the last one of its part. 0 or -ENOMEM. */
static int extend_parts(struct plan *p, const struct step *step) {
        struct part *last = p->n_parts ? &p->parts[p->n_parts - 1] : NULL;
        if (step->kind == STEP_JOIN)
                return 0;
        if (last && last->phase == p->n_phases && last->device == step->device &&
                last->end_step == p->n_steps) {
                last->end_step++;
                return 0;
        }
        struct part *parts =
                reserve(p->parts, &p->parts_capacity, (uint64_t)p->n_parts + 1, sizeof(*p->parts));
        if (!parts)
                return -ENOMEM;
        p->parts = parts;
        parts[p->n_parts++] = (struct part){ .device = step->device,
                .phase = p->n_phases,
                .first_step = p->n_steps,
                .end_step = p->n_steps + 1 };
        return 0;
}

struct step *plan_add_step(struct plan *p, const struct step *step) {
        uint32_t n_new = step->n_inputs + step->n_outputs;
        CHECK(!p->is_frozen && n_new >= step->n_inputs);

        struct step *steps =
                reserve(p->steps, &p->steps_capacity, (uint64_t)p->n_steps + 1, sizeof(*p->steps));
        if (!steps)
                return NULL;
        p->steps = steps;
        struct operand *operands = reserve(
                p->operands, &p->operands_capacity, (uint64_t)p->n_operands + n_new, sizeof(*p->operands));
        if (!operands)
                return NULL;
        p->operands = operands;
        if (step->n_dims) {
                uint64_t *strides = reserve(p->strides, &p->strides_capacity,
                        p->n_strides + (uint64_t)n_new * step->n_dims, sizeof(*p->strides));
                if (!strides)
                        return NULL;
                p->strides = strides;
        }
        if (extend_parts(p, step) < 0)
                return NULL;

        struct step *added = &steps[p->n_steps++];
        *added = *step;
        added->first_operand = p->n_operands;
        if (step->output_dtype == DTYPE_UNSPECIFIED)
                added->output_dtype = step->dtype;
        memset(&operands[p->n_operands], 0, n_new * sizeof(*operands));
        p->n_operands += n_new;
        added->first_stride = p->n_strides;
        p->n_strides += n_new * step->n_dims;
        p->has_joins |= step->kind == STEP_JOIN;
        p->n_phases += step->kind == STEP_JOIN;
        return added;
}

int plan_join(struct plan *p) {
        return plan_add_step(p, &(struct step){ .kind = STEP_JOIN }) ? 0 : -ENOMEM;
}

static struct scratch *scratch_on(struct plan *p, uint32_t device) {
        for (uint32_t i = 0; i < p->n_scratch; i++)
                if (p->scratch[i].device == device)
                        return &p->scratch[i];
        struct scratch *scratch = p->n_scratch == MAX_SCRATCH ? NULL
                                                              : reserve(p->scratch, &p->scratch_capacity,
                                                                        p->n_scratch + 1, sizeof(*scratch));
        if (!scratch)
                return NULL;
        p->scratch = scratch;
        scratch[p->n_scratch] = (struct scratch){ .device = device };
        return &scratch[p->n_scratch++];
}

int plan_take_scratch(struct plan *p, uint32_t device, uint64_t n_bytes, struct operand *ret) {
        CHECK(!p->is_frozen);
        struct scratch *scratch = scratch_on(p, device);
        if (!scratch || n_bytes > UINT64_MAX / 2 - scratch->n_bytes)
                return -ENOMEM;
        *ret = (struct operand){ .scratch = (uint32_t)(scratch - p->scratch) + 1,
                .offset_bytes = scratch->n_bytes };
        scratch->n_bytes += (n_bytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
        return 0;
}

uint64_t plan_scratch_bytes(const struct plan *p) {
        uint64_t n = 0;
        for (uint32_t i = 0; i < p->n_scratch; i++)
                n += p->scratch[i].n_bytes;
        return n;
}

struct operand *plan_inputs(const struct plan *p, const struct step *step) {
        return &p->operands[step->first_operand];
}

struct operand *plan_outputs(const struct plan *p, const struct step *step) {
        return &p->operands[step->first_operand + step->n_inputs];
}

uint64_t *plan_strides(const struct plan *p, const struct step *step, uint32_t operand) {
        return step->n_dims ? &p->strides[step->first_stride + (uint64_t)operand * step->n_dims] : NULL;
}

/* --- the normal form --- */

static bool runs_on(const struct plan *p, const struct step *s, uint32_t outer, uint32_t inner) {
        for (uint32_t i = 0; i < s->n_inputs + s->n_outputs; i++) {
                const uint64_t *strides = plan_strides(p, s, i);
                if (strides[outer] != strides[inner] * s->shape[inner])
                        return false;
        }
        return true;
}

/* Dimensions of 1 go, whatever their strides are. */
static uint32_t keep_dims(
        const struct plan *p, const struct step *s, uint32_t *ret_kept, uint64_t *ret_shape) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < s->n_dims; i++) {
                if (s->shape[i] == 1)
                        continue;
                if (n > 0 && runs_on(p, s, ret_kept[n - 1], i)) {
                        ret_shape[n - 1] *= s->shape[i];
                        ret_kept[n - 1] = i;
                } else {
                        ret_shape[n] = s->shape[i];
                        ret_kept[n++] = i;
                }
        }
        return n;
}

static bool is_dense(const struct plan *p, const struct step *s) {
        if (s->n_dims > 1)
                return false;
        for (uint32_t i = 0; s->n_dims && i < s->n_inputs + s->n_outputs; i++)
                if (plan_strides(p, s, i)[0] != 1)
                        return false;
        return true;
}

void plan_simplify_step(struct plan *p) {
        struct step *s = &p->steps[p->n_steps - 1];
        uint32_t kept[MAX_DIMS], n_operands = s->n_inputs + s->n_outputs;
        uint64_t shape[MAX_DIMS] = { 0 };
        uint32_t n = keep_dims(p, s, kept, shape);
        uint64_t *to = &p->strides[s->first_stride];
        for (uint32_t i = 0; i < n_operands; i++) /* never ahead of what is read */
                for (uint32_t k = 0; k < n; k++)
                        *to++ = plan_strides(p, s, i)[kept[k]];
        s->n_dims = n;
        memcpy(s->shape, shape, sizeof(shape));
        if (is_dense(p, s)) {
                s->n_dims = 0;
                memset(s->shape, 0, sizeof(s->shape));
        }
        p->n_strides = s->first_stride + n_operands * s->n_dims;
}

const uint64_t *plan_fold(const struct plan *p, const struct step *step, uint32_t input) {
        return &p->strides[step->first_fold + 2 * (uint64_t)input * step->n_folds];
}

uint64_t *plan_add_folds(struct plan *p, uint32_t n_folds) {
        struct step *s = &p->steps[p->n_steps - 1];
        uint64_t n_new = 2 * (uint64_t)s->n_inputs * n_folds;
        uint64_t *strides =
                reserve(p->strides, &p->strides_capacity, p->n_strides + n_new, sizeof(*p->strides));
        if (!strides)
                return NULL;
        p->strides = strides;
        s->n_folds = n_folds;
        s->first_fold = p->n_strides;
        p->n_strides += (uint32_t)n_new;
        return &strides[s->first_fold];
}

uint64_t step_entry_index(const struct step *s, uint64_t i) {
        if (s->run_elements == 0)
                return s->first_element + i;
        return s->first_element + i / s->run_elements * s->run_stride + i % s->run_elements;
}

/* --- lengths of results --- */

int plan_make_extents(struct plan *p, uint32_t n_entries, uint32_t n_halves) {
        uint64_t n = (uint64_t)n_entries * (n_halves + 1);
        uint64_t *extents = reserve(p->extents, &p->extents_capacity, n, sizeof(*p->extents));
        if (!extents)
                return -ENOMEM;
        memset(extents, 0, n * sizeof(*extents));
        p->extents = extents;
        p->n_extents = (uint32_t)n;
        p->extents_of_entry = n_halves + 1;
        return 0;
}

uint64_t *plan_extents(const struct plan *p, uint32_t entry) {
        return p->n_extents ? &p->extents[(uint64_t)entry * p->extents_of_entry] : NULL;
}

/* --- checksums of inputs --- */

int plan_begin_sums(struct plan *p) {
        bool is_checked = false;
        for (uint32_t i = 0; i < p->n_steps; i++)
                is_checked |= p->steps[i].check_inputs;
        if (!is_checked)
                return 0;
        _Atomic uint64_t *sums = reserve(p->sums, &p->sums_capacity, p->n_operands, sizeof(*p->sums));
        if (!sums)
                return -ENOMEM;
        p->sums = sums;
        for (uint32_t i = 0; i < p->n_operands; i++)
                p->sums[i] = 0;
        return 0;
}

bool plan_find_changed_input(
        const struct plan *p, const struct step **ret_step, const struct operand **ret_input) {
        for (uint32_t i = 0; i < p->n_steps; i++) {
                const struct step *s = &p->steps[i];
                for (uint32_t k = 0; s->check_inputs && k < s->n_inputs; k++) {
                        const struct operand *o = &p->operands[s->first_operand + k];
                        if ((s->has_weights && o->weight == 0) ||
                                p->sums[s->first_operand + k] == o->checksum)
                                continue;
                        *ret_step = s;
                        *ret_input = o;
                        return true;
                }
        }
        return false;
}

/* --- the index space --- */

static int compare_parts(const void *x, const void *y) {
        const struct part *a = x, *b = y;
        if (a->phase != b->phase)
                return a->phase < b->phase ? -1 : 1;
        if (a->device != b->device)
                return a->device < b->device ? -1 : 1;
        return a->first_step < b->first_step ? -1 : a->first_step > b->first_step;
}

/* What one device does in one phase becomes one range of chunks, however the steps were mixed. */
static void number_chunks(struct plan *p) {
        if (p->n_parts > 1)
                qsort(p->parts, p->n_parts, sizeof(*p->parts), compare_parts);
        p->n_chunks = 0;
        for (uint32_t i = 0; i < p->n_parts; i++) {
                struct part *part = &p->parts[i];
                const struct step *last = &p->steps[part->end_step - 1];
                part->start_bytes = p->steps[part->first_step].start_bytes;
                part->n_bytes = last->start_bytes + last->n_bytes - part->start_bytes;
                part->first_chunk = p->n_chunks;
                part->n_chunks = part->n_bytes / p->chunk_bytes + (part->n_bytes % p->chunk_bytes != 0);
                p->n_chunks += part->n_chunks;
        }
}

/* What an element of the step's index space stands for: as many bytes of an input as become one result. */
static uint64_t share_bytes(const struct step *s) {
        return dtype_bytes(s->dtype) * (s->n_folds ? s->fold_count : 1);
}

/* Elements of all inputs. */
static uint64_t read_elements(const struct plan *p, const struct step *s) {
        uint64_t n_inputs = s->kind == STEP_SCATTER_ADD ? 1 : s->n_inputs; /* each row is one input's */
        uint64_t n_elements = s->n_folds ? 0 : s->count * n_inputs;
        for (uint32_t i = 0; s->n_folds && i < s->n_inputs; i++) {
                uint64_t n = s->count;
                for (uint32_t d = 0; d < s->n_folds; d++)
                        n *= plan_fold(p, s, i)[d];
                n_elements += n;
        }
        return n_elements;
}

/* The sums cannot overflow: what a step spans is mapped, so it has less than 2^47 bytes, and a batch has at
 * most 2^16 entries. moved_bytes, which is for people, may wrap where all ranks of a full world bring that
 * much. */
void plan_freeze(struct plan *p, uint64_t chunk_bytes) {
        CHECK(!p->is_frozen && chunk_bytes > 0 && chunk_bytes % CHUNK_ALIGNMENT == 0);

        p->total_bytes = p->moved_bytes = 0;
        for (uint32_t i = 0; i < p->n_steps; i++) {
                struct step *s = &p->steps[i];
                s->start_bytes = p->total_bytes;
                s->n_bytes = s->kind == STEP_JOIN ? 0 : s->count * share_bytes(s);
                p->total_bytes += s->n_bytes;
                p->moved_bytes += read_elements(p, s) * dtype_bytes(s->dtype) +
                                  s->count * dtype_bytes(s->output_dtype) * s->n_outputs;
        }
        p->chunk_bytes = chunk_bytes;
        p->n_phases++;
        number_chunks(p);
        p->is_frozen = true;
}

void plan_move_slot(struct plan *p, uint64_t slot_offset_bytes) {
        for (uint32_t i = 0; i < p->n_operands && slot_offset_bytes != p->slot_offset_bytes; i++)
                if (p->operands[i].result)
                        p->operands[i].offset_bytes += slot_offset_bytes - p->slot_offset_bytes;
        p->slot_offset_bytes = slot_offset_bytes;
}

void plan_cut(struct plan *p, uint64_t chunk_bytes) {
        CHECK(p->is_frozen && chunk_bytes > 0 && chunk_bytes % CHUNK_ALIGNMENT == 0);
        p->chunk_bytes = chunk_bytes;
        number_chunks(p);
}

bool plan_next_stage(const struct plan *p, uint32_t *cursor, struct stage *ret) {
        while (*cursor < p->n_parts && p->parts[*cursor].n_chunks == 0)
                ++*cursor;
        if (*cursor == p->n_parts)
                return false;
        const struct part *part = &p->parts[*cursor];
        *ret = (struct stage){
                .device = part->device, .phase = part->phase, .first_chunk = part->first_chunk
        };
        while (*cursor < p->n_parts && part->device == ret->device && part->phase == ret->phase) {
                ret->end_chunk = part->first_chunk + part->n_chunks;
                part = &p->parts[++*cursor];
        }
        return true;
}

/* The part that has this chunk. */
static const struct part *find_part(const struct plan *p, uint64_t chunk) {
        uint32_t low = 0, high = p->n_parts;
        while (low < high) {
                uint32_t middle = low + (high - low) / 2;
                if (p->parts[middle].first_chunk + p->parts[middle].n_chunks > chunk)
                        high = middle;
                else
                        low = middle + 1;
        }
        return &p->parts[low];
}

/* The first step of a part that has a byte at or behind `at_bytes`. */
static uint32_t find_step(const struct plan *p, const struct part *part, uint64_t at_bytes) {
        uint32_t low = part->first_step, high = part->end_step;
        while (low < high) {
                uint32_t middle = low + (high - low) / 2;
                if (p->steps[middle].start_bytes + p->steps[middle].n_bytes > at_bytes)
                        high = middle;
                else
                        low = middle + 1;
        }
        return low;
}

/* How many elements of `s` begin before `at_bytes`. */
static uint64_t elements_before(const struct step *s, uint64_t at_bytes) {
        if (at_bytes <= s->start_bytes)
                return 0;
        uint64_t size = share_bytes(s), distance = at_bytes - s->start_bytes;
        return distance >= s->n_bytes ? s->count : (distance + size - 1) / size;
}

bool plan_next_piece(const struct plan *p, uint64_t chunk, uint32_t *cursor, struct piece *ret) {
        CHECK(p->is_frozen && chunk < p->n_chunks);
        const struct part *part = find_part(p, chunk);
        uint64_t local = chunk - part->first_chunk;
        uint64_t begin = part->start_bytes + local * p->chunk_bytes;
        uint64_t end =
                local + 1 < part->n_chunks ? begin + p->chunk_bytes : part->start_bytes + part->n_bytes;

        /* The cursor is one more than the step that was handed out last. */
        uint32_t i = *cursor ? *cursor : find_step(p, part, begin);
        for (; i < part->end_step && p->steps[i].start_bytes < end; i++) {
                const struct step *s = &p->steps[i];
                if (s->n_bytes == 0)
                        continue;
                uint64_t first = elements_before(s, begin), behind = elements_before(s, end);
                if (first == behind)
                        continue;
                *ret = (struct piece){ .step = s, .first_element = first, .n_elements = behind - first };
                *cursor = i + 1;
                return true;
        }
        *cursor = p->n_steps;
        return false;
}

/* --- for people --- */

static void print_numbers(const char *before, const uint64_t *numbers, uint32_t n, struct text *t) {
        for (uint32_t i = 0; i < n; i++)
                text_add(t, "%s%llu", i ? "," : before, (unsigned long long)numbers[i]);
}

static void print_scratch(const struct plan *p, const struct operand *o, struct text *t) {
        device_print(p->scratch[o->scratch - 1].device, t);
        text_add(t, " scratch");
}

/* The `n` operands of a step from the one numbered `first` on. */
static void print_operands(
        const struct plan *p, const struct step *s, uint32_t first, uint32_t n, struct text *t) {
        bool has_weights = s->has_weights && first < s->n_inputs;
        for (uint32_t i = 0; i < n; i++) {
                const struct operand *o = &p->operands[s->first_operand + first + i];
                text_add(t, "%s", i ? ", " : "");
                if (o->scratch)
                        print_scratch(p, o, t);
                else if (o->result)
                        text_add(t, "result %llu", (unsigned long long)o->result);
                else
                        text_add(t, "R%u b%llu", o->rank, (unsigned long long)o->buffer);
                text_add(t, "+%llu", (unsigned long long)o->offset_bytes);
                print_numbers("/", plan_strides(p, s, first + i), s->n_dims, t);
                if (s->n_folds && first < s->n_inputs) {
                        const uint64_t *lengths = plan_fold(p, s, first + i);
                        print_numbers(" over ", lengths, s->n_folds, t);
                        print_numbers("/", lengths + s->n_folds, s->n_folds, t);
                }
                if (has_weights)
                        text_add(t, " *%g", o->weight);
        }
}

static const char *const stage_names[] = {
        [ORDER_SORT] = "sort",
        [ORDER_MERGE] = "merge",
        [ORDER_COUNT] = "count",
        [ORDER_NUMBER] = "number",
        [ORDER_WRITE] = "write",
};

static void print_verb(const struct step *s, struct text *t) {
        switch (s->kind) {
        case STEP_COPY: text_add(t, "copy"); break;
        case STEP_REDUCE: text_add(t, "reduce %s", op_name(s->op)); break;
        case STEP_SCATTER_ADD: text_add(t, "scatter_add %s", op_name(s->op)); break;
        case STEP_INDICES: text_add(t, "indices below %llu", (unsigned long long)s->bound); break;
        case STEP_ORDER: text_add(t, "order %s", stage_names[s->stage]); break;
        case STEP_JOIN: text_add(t, "join"); break;
        case STEP_LIBRARY: text_add(t, "library %s", op_name(s->op)); break;
        }
        if (s->op == OP_MEAN && s->has_weights)
                text_add(t, "/%g", s->total_weight);
        else if (s->op == OP_MEAN)
                text_add(t, "/%u", s->divisor);
        if (s->rounding != ROUNDING_UNSPECIFIED)
                text_add(t, " %s", rounding_name(s->rounding));
}

static void print_checks(const struct step *s, struct text *t) {
        if (s->check_numerics)
                text_add(t, "  check_numerics");
        if (s->check_overflow)
                text_add(t, "  check_overflow");
        if (s->check_inputs)
                text_add(t, "  check_inputs");
}

static void print_step(const struct plan *p, const struct step *s, struct text *t) {
        if (s->device != p->device && s->kind != STEP_JOIN) {
                device_print(s->device, t);
                text_add(t, ": ");
        }
        print_verb(s, t);
        if (s->kind != STEP_JOIN) {
                text_add(t, " %s", dtype_name(s->dtype));
                if (s->output_dtype != s->dtype)
                        text_add(t, ">%s", dtype_name(s->output_dtype));
                text_add(t, " x%llu", (unsigned long long)s->count);
                print_numbers(" [", s->shape, s->n_dims, t);
                text_add(t, "%s  ", s->n_dims ? "]" : "");
                print_operands(p, s, 0, s->n_inputs, t);
                text_add(t, " -> ");
                print_operands(p, s, s->n_inputs, s->n_outputs, t);
                print_checks(s, t);
        }
        text_add(t, "\n");
}

void plan_print(const struct plan *p, struct text *t) {
        text_add(t, "%s order=%s ", p->algorithm, order_names[p->order]);
        device_print(p->device, t);
        text_add(t, ": %u step%s", p->n_steps, p->n_steps == 1 ? "" : "s");
        if (p->is_frozen) {
                text_add(t, ", %llu chunk%s of ", (unsigned long long)p->n_chunks,
                        p->n_chunks == 1 ? "" : "s");
                text_add_bytes(t, p->chunk_bytes);
                text_add(t, ", moves ");
                text_add_bytes(t, p->moved_bytes);
        }
        if (p->has_joins)
                text_add(t, ", %u phases", p->n_phases + !p->is_frozen);
        if (p->n_scratch) {
                text_add(t, ", scratch ");
                text_add_bytes(t, plan_scratch_bytes(p));
        }
        text_add(t, "\n");
        if (p->fallback[0])
                text_add(t, "fallback: %s\n", p->fallback);
        for (uint32_t i = 0; i < p->n_steps; i++)
                print_step(p, &p->steps[i], t);
}
