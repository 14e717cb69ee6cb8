/* A plan is sent as records of five kinds, one kind after the other, as many to a packet as fit. The sender
 * makes each packet when the socket has room for it, so that a large plan is never there twice at its end. */
#include "worker-protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "worker-records.h"

static uint64_t number_of(const struct memory *m) {
        return m ? m->remote : 0;
}

/* --- taking apart --- */

static uint32_t parcel_count(const struct worker_parcel *p, uint32_t record) {
        switch ((enum worker_record)record) {
        case RECORD_SIGNALS: return p->n_signals;
        case RECORD_SCRATCH: return p->plan->n_scratch;
        case RECORD_STEPS: return p->plan->n_steps;
        case RECORD_OPERANDS: return p->plan->n_operands;
        case RECORD_STRIDES: return p->plan->n_strides;
        case N_RECORD: break;
        }
        return 0;
}

bool worker_fits(const struct worker_parcel *p) {
        for (uint32_t record = 0; record < N_RECORD; record++)
                if (parcel_count(p, record) > WORKER_MAX_RECORDS)
                        return false;
        return true;
}

static uint32_t flags_of(const struct step *s) {
        return (s->has_weights ? RECORD_HAS_WEIGHTS : 0) | (s->check_numerics ? RECORD_CHECK_NUMERICS : 0) |
               (s->check_overflow ? RECORD_CHECK_OVERFLOW : 0) | (s->check_inputs ? RECORD_CHECK_INPUTS : 0);
}

static void step_out(const struct step *s, struct record_step *ret) {
        *ret = (struct record_step){ .count = s->count,
                .first_element = s->first_element,
                .fold_count = s->fold_count,
                .total_weight = s->total_weight,
                .kind = s->kind,
                .device = s->device,
                .op = s->op,
                .dtype = s->dtype,
                .output_dtype = s->output_dtype,
                .rounding = s->rounding,
                .flags = flags_of(s),
                .n_inputs = s->n_inputs,
                .n_outputs = s->n_outputs,
                .divisor = s->divisor,
                .entry = s->entry,
                .n_dims = s->n_dims,
                .n_folds = s->n_folds,
                .fold_dtype = s->fold_dtype,
                .bound = s->bound,
                .run = s->run,
                .room = s->room,
                .row_elements = s->row_elements,
                .stage = s->stage,
                .room_rank = s->room_rank };
        memcpy(ret->shape, s->shape, sizeof(ret->shape));
}

static void operand_out(const struct operand *o, struct record_operand *ret) {
        *ret = (struct record_operand){ .memory = number_of(o->memory),
                .offset_bytes = o->offset_bytes,
                .buffer = o->buffer,
                .result = o->result,
                .checksum = o->checksum,
                .weight = o->weight,
                .first_row = o->first_row,
                .n_rows = o->n_rows,
                .row_stride = o->row_stride,
                .scratch = o->scratch,
                .rank = o->rank };
}

static void record_out(const struct worker_parcel *p, uint32_t record, uint32_t i, void *ret) {
        switch ((enum worker_record)record) {
        case RECORD_SIGNALS:
                *(struct record_signal *)ret = (struct record_signal){ .page = number_of(p->signals[i].page),
                        .value = p->signals[i].value,
                        .slot = p->signals[i].slot };
                return;
        case RECORD_SCRATCH:
                *(struct record_scratch *)ret =
                        (struct record_scratch){ .n_bytes = p->plan->scratch[i].n_bytes,
                                .device = p->plan->scratch[i].device };
                return;
        case RECORD_STEPS: step_out(&p->plan->steps[i], ret); return;
        case RECORD_OPERANDS: operand_out(&p->plan->operands[i], ret); return;
        case RECORD_STRIDES: memcpy(ret, &p->plan->strides[i], sizeof(uint64_t)); return;
        case N_RECORD: break;
        }
}

static void run_out(const struct worker_parcel *p, struct worker_run *ret) {
        bool has_sums = false;
        for (uint32_t i = 0; i < p->plan->n_steps; i++)
                has_sums |= p->plan->steps[i].check_inputs;
        *ret = (struct worker_run){ .head = { .verb = WORKER_RUN, .ticket = p->ticket },
                .group = p->group,
                .user = p->user,
                .is_shared = p->is_shared,
                .limit_ns = p->limit_ns,
                .chunk_bytes = p->plan->chunk_bytes,
                .device = p->plan->device,
                .order = p->plan->order,
                .n_signals = p->n_signals,
                .n_scratch = p->plan->n_scratch,
                .n_steps = p->plan->n_steps,
                .n_operands = p->plan->n_operands,
                .n_strides = p->plan->n_strides,
                .has_sums = has_sums,
                .n_lengths = p->plan->n_extents ? p->plan->n_extents / p->plan->extents_of_entry : 0 };
}

/* Behind what has been made. */
static void cursor_move_on(const struct worker_parcel *p, struct worker_cursor *c) {
        while (c->record < N_RECORD && c->next == parcel_count(p, c->record)) {
                c->record++;
                c->next = 0;
        }
}

bool worker_next_part(const struct worker_parcel *p, struct worker_cursor *c, union worker_packet *ret) {
        if (!c->has_head) {
                c->has_head = true;
                run_out(p, &ret->run);
                cursor_move_on(p, c);
                return true;
        }
        if (c->record == N_RECORD)
                return false;
        uint32_t bytes = worker_record_bytes(c->record), left = parcel_count(p, c->record) - c->next;
        uint32_t n = left < WORKER_PART_BYTES / bytes ? left : WORKER_PART_BYTES / bytes;
        ret->head = (struct worker_head){ .verb = WORKER_PART, .ticket = p->ticket };
        ret->part.record = c->record;
        ret->part.n_records = n;
        ret->part.first = c->next;
        ret->part.reserved = 0;
        for (uint32_t i = 0; i < n; i++)
                record_out(p, c->record, c->next + i, ret->part.records + (size_t)i * bytes);
        c->next += n;
        cursor_move_on(p, c);
        return true;
}

bool worker_is_whole(const struct worker_cursor *c) {
        return c->record == N_RECORD;
}

/* --- putting together --- */

void worker_assembly_init(struct worker_assembly *a) {
        *a = (struct worker_assembly){ 0 };
        plan_init(&a->plan);
}

void worker_assembly_deinit(struct worker_assembly *a) {
        plan_deinit(&a->plan);
        free(a->signals);
        a->signals = NULL;
}

static uint32_t assembly_count(const struct worker_assembly *a, uint32_t record) {
        switch ((enum worker_record)record) {
        case RECORD_SIGNALS: return a->head.n_signals;
        case RECORD_SCRATCH: return a->head.n_scratch;
        case RECORD_STEPS: return a->head.n_steps;
        case RECORD_OPERANDS: return a->head.n_operands;
        case RECORD_STRIDES: return a->head.n_strides;
        case N_RECORD: break;
        }
        return 0;
}

/* Of `n` and one more, so that an empty one is an array too. */
static void *array_new(uint32_t n, size_t size) {
        return calloc((size_t)n + 1, size);
}

int worker_assembly_begin(struct worker_assembly *a, const struct worker_run *run) {
        if (a->is_open)
                return -EPROTO;
        worker_assembly_deinit(a);
        worker_assembly_init(a);
        a->head = *run;
        struct plan *p = &a->plan;
        a->signals = array_new(run->n_signals, sizeof(*a->signals));
        p->scratch = array_new(run->n_scratch, sizeof(*p->scratch));
        if (!a->signals || !p->scratch || (run->n_lengths && plan_make_extents(p, run->n_lengths, 0) < 0))
                return -ENOMEM;
        p->scratch_capacity = run->n_scratch + 1;
        p->algorithm = "";
        p->order = (enum plan_order)run->order;
        p->device = run->device;
        a->is_open = true;
        return 0;
}

/* Of sparse values: as many operands as it works with, and nothing that cannot be divided by. */
static bool step_is_formed(const struct worker_assembly *a, const struct record_step *r) {
        const bool is_one_to_one = r->n_inputs == 1 && r->n_outputs == 1;
        switch ((enum step_kind)r->kind) {
        case STEP_INDICES: return is_one_to_one;
        case STEP_ORDER:
                if (r->stage == ORDER_WRITE)
                        return r->n_inputs == 2;
                return is_one_to_one && (r->stage != ORDER_MERGE || r->run > 0) &&
                       (r->stage != ORDER_NUMBER || r->entry < a->head.n_lengths);
        case STEP_SCATTER_ADD:
                return r->n_inputs > SCATTER_ORDER && r->row_elements > 0 && r->count % r->row_elements == 0;
        case STEP_COPY:
        case STEP_REDUCE:
        case STEP_JOIN:
        case STEP_LIBRARY: break;
        }
        return true;
}

/* All that a step says of itself. */
static bool step_is_well(const struct worker_assembly *a, const struct record_step *r) {
        const struct plan *p = &a->plan;
        uint64_t n_operands = (uint64_t)r->n_inputs + r->n_outputs,
                 n_strides = n_operands * r->n_dims + 2 * (uint64_t)r->n_inputs * r->n_folds;
        if (r->kind > STEP_ORDER || r->stage > ORDER_WRITE || r->op >= N_OP || r->dtype >= N_DTYPE ||
                r->output_dtype >= N_DTYPE || r->rounding > ROUNDING_NEAREST || (r->flags & ~RECORD_FLAGS) ||
                r->n_dims > MAX_DIMS || r->n_folds > MAX_DIMS || r->fold_dtype >= N_DTYPE ||
                n_operands > a->head.n_operands - p->n_operands ||
                n_strides > a->head.n_strides - p->n_strides)
                return false;
        return r->kind == STEP_JOIN || (step_is_formed(a, r) && r->dtype != DTYPE_UNSPECIFIED &&
                                               r->output_dtype != DTYPE_UNSPECIFIED);
}

static int step_in(struct worker_assembly *a, const struct record_step *r) {
        struct plan *p = &a->plan;
        if (!step_is_well(a, r))
                return -EPROTO;
        struct step step = { .kind = (enum step_kind)r->kind,
                .device = r->device,
                .op = (enum op)r->op,
                .dtype = (enum dtype)r->dtype,
                .output_dtype = (enum dtype)r->output_dtype,
                .rounding = (enum rounding)r->rounding,
                .has_weights = r->flags & RECORD_HAS_WEIGHTS,
                .check_numerics = r->flags & RECORD_CHECK_NUMERICS,
                .check_overflow = r->flags & RECORD_CHECK_OVERFLOW,
                .check_inputs = r->flags & RECORD_CHECK_INPUTS,
                .n_inputs = r->n_inputs,
                .n_outputs = r->n_outputs,
                .divisor = r->divisor,
                .total_weight = r->total_weight,
                .entry = r->entry,
                .count = r->count,
                .first_element = r->first_element,
                .n_dims = r->n_dims,
                .fold_count = r->fold_count,
                .fold_dtype = (enum dtype)r->fold_dtype,
                .bound = r->bound,
                .run = r->run,
                .room = r->room,
                .row_elements = r->row_elements,
                .stage = (enum order_stage)r->stage,
                .room_rank = r->room_rank };
        memcpy(step.shape, r->shape, sizeof(step.shape));
        if (!plan_add_step(p, &step))
                return -ENOMEM;
        return r->n_folds == 0 || plan_add_folds(p, r->n_folds) ? 0 : -ENOMEM;
}

static struct memory *memory_in(
        struct worker_assembly *a, const struct worker_memories *memories, uint64_t number) {
        struct memory *m = number ? memories->find(memories->data, number) : NULL;
        if (number && !m && !a->missing)
                a->missing = number;
        return m;
}

static int record_in(
        struct worker_assembly *a, const struct worker_memories *memories, uint32_t i, const uint8_t *bytes) {
        struct record_signal signal;
        struct record_scratch scratch;
        struct record_step step;
        struct record_operand o;
        switch ((enum worker_record)a->record) {
        case RECORD_SIGNALS:
                memcpy(&signal, bytes, sizeof(signal));
                a->signals[i] = (struct signal){ .page = memory_in(a, memories, signal.page),
                        .slot = signal.slot,
                        .value = signal.value };
                return 0;
        case RECORD_SCRATCH:
                memcpy(&scratch, bytes, sizeof(scratch));
                a->plan.scratch[a->plan.n_scratch++] =
                        (struct scratch){ .device = scratch.device, .n_bytes = scratch.n_bytes };
                return 0;
        case RECORD_STEPS: memcpy(&step, bytes, sizeof(step)); return step_in(a, &step);
        case RECORD_OPERANDS:
                memcpy(&o, bytes, sizeof(o));
                if (o.scratch > a->head.n_scratch || (o.scratch && o.memory))
                        return -EPROTO;
                a->plan.operands[i] = (struct operand){ .memory = memory_in(a, memories, o.memory),
                        .offset_bytes = o.offset_bytes,
                        .buffer = o.buffer,
                        .result = o.result,
                        .scratch = o.scratch,
                        .rank = o.rank,
                        .weight = o.weight,
                        .first_row = o.first_row,
                        .n_rows = o.n_rows,
                        .row_stride = o.row_stride,
                        .checksum = o.checksum };
                return 0;
        case RECORD_STRIDES: memcpy(&a->plan.strides[i], bytes, sizeof(uint64_t)); return 0;
        case N_RECORD: break;
        }
        return -EPROTO;
}

/* Within the memory or scratch area that it names. */
static bool operand_fits(const struct plan *p, const struct step *s, uint32_t i) {
        const struct operand *o = &p->operands[s->first_operand + i];
        uint64_t bytes, end;
        uint64_t room = o->memory ? o->memory->n_bytes : o->scratch ? p->scratch[o->scratch - 1].n_bytes : 0;
        return plan_operand_bytes(p, s, i, &bytes) && !__builtin_add_overflow(o->offset_bytes, bytes, &end) &&
               end <= room;
}

/* The rows of a step that combines them lie behind one another, those of one rank after those of another. */
static bool rows_follow(const struct plan *p, const struct step *s) {
        uint64_t next = 0;
        for (uint32_t i = 0; i + SCATTER_ORDER < s->n_inputs; i++) {
                const struct operand *o = &p->operands[s->first_operand + i];
                if (o->first_row != next || __builtin_add_overflow(next, o->n_rows, &next))
                        return false;
        }
        return next == s->count / s->row_elements;
}

static bool plan_fits(const struct plan *p) {
        for (uint32_t i = 0; i < p->n_steps; i++) {
                const struct step *s = &p->steps[i];
                for (uint32_t k = 0; s->kind != STEP_JOIN && k < s->n_inputs + s->n_outputs; k++)
                        if (!operand_fits(p, s, k))
                                return false;
                if (s->kind == STEP_SCATTER_ADD && !rows_follow(p, s))
                        return false;
        }
        return true;
}

/* All records are there. */
static int assembly_close(struct worker_assembly *a) {
        struct plan *p = &a->plan;
        a->is_open = false;
        if (p->n_operands != a->head.n_operands || p->n_strides != a->head.n_strides)
                return -EPROTO;
        if (!a->missing && !plan_fits(p))
                return -EPROTO;
        plan_freeze(p, a->head.chunk_bytes);
        return plan_begin_sums(p) < 0 ? -ENOMEM : 1;
}

int worker_assembly_add(
        struct worker_assembly *a, const struct worker_part *part, const struct worker_memories *memories) {
        if (!a->is_open || part->head.ticket != a->head.head.ticket)
                return -EPROTO;
        while (a->record < N_RECORD && a->next == assembly_count(a, a->record)) {
                a->record++;
                a->next = 0;
        }
        /* The steps have made room for so many operands and strides, and for no more. */
        if (a->record > RECORD_STEPS &&
                (a->plan.n_operands != a->head.n_operands || a->plan.n_strides != a->head.n_strides))
                return -EPROTO;
        if (part->record != a->record || part->first != a->next ||
                part->n_records > assembly_count(a, a->record) - a->next)
                return -EPROTO;
        uint32_t bytes = worker_record_bytes(part->record);
        for (uint32_t i = 0; i < part->n_records; i++) {
                int r = record_in(a, memories, a->next++, part->records + (size_t)i * bytes);
                if (r < 0)
                        return r;
        }
        for (uint32_t record = a->record; record < N_RECORD; record++)
                if (assembly_count(a, record) != (record == a->record ? a->next : 0))
                        return 0;
        return assembly_close(a);
}
