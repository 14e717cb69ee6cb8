/* One chunk: each piece of it becomes one kernel call, all of them inside the guard. Where a step has checks,
 * a piece is taken in blocks: what a check has read of the inputs is still near when the kernel reads it. */
#include <string.h>
#include "backends/host/host-float.h"
#include "backends/host/host-guard.h"
#include "backends/host/host-private.h"
#include "backends/host/kernels.h"
#include "model/rankset.h"
#include "model/span.h"

/* Of all inputs together: half of a small second-level cache. */
#define CHECKED_BYTES        (128u << 10)
#define CHECKED_MIN_ELEMENTS 256

struct chunk {
        struct guarded_work work; /* first */
        enum isa isa;
        const struct plan *plan;
        uint64_t index;
        struct findings *found;
};

/* One kernel call, and where it lies in its step. */
struct job {
        const struct chunk *chunk;
        const struct step *step;
        uint64_t first_element;
        struct kernel_call call;
        const void *in[MAX_WORLD];
        void *out[MAX_WORLD];
        double weights[MAX_WORLD];
        struct kernel_count nonfinite[MAX_WORLD];
};

/* Where the first element of the piece is. Planner and leases have seen to it that the step lies in the
 * memory; were they wrong, we would write into a stranger's. */
static void *locate(const struct operand *o, const struct piece *piece, size_t element_bytes) {
        const struct host_memory *m = host_memory_of(o->memory);
        struct span span;
        CHECK(span_make(o->offset_bytes, piece->step->count, element_bytes, m->base.n_bytes, &span));
        return m->map + span.offset_bytes + piece->first_element * element_bytes;
}

/* --- checks --- */

static void note_numerics(const struct job *j) {
        const struct operand *inputs = plan_inputs(j->chunk->plan, j->step);
        for (uint32_t i = 0; i < j->call.n_inputs; i++) {
                if (j->nonfinite[i].n == 0)
                        continue;
                const struct findings found = { .numerics = { .n = j->nonfinite[i].n,
                                                        .rank = inputs[i].rank,
                                                        .entry = j->step->entry,
                                                        .index = j->first_element + j->nonfinite[i].first } };
                findings_add(j->chunk->found, &found);
        }
}

static void check_overflow(const struct job *j) {
        struct kernel_count count = kernels_count_wrapped(j->chunk->isa, &j->call);
        if (count.n == 0)
                return;
        const struct findings found = {
                .overflow = { .n = count.n, .entry = j->step->entry, .index = j->first_element + count.first }
        };
        findings_add(j->chunk->found, &found);
}

/* --- pieces --- */

static void run_job(struct job *j) {
        if (j->call.nonfinite)
                memset(j->nonfinite, 0, j->call.n_inputs * sizeof(*j->nonfinite));
        if (j->step->check_overflow && j->step->kind == STEP_REDUCE)
                check_overflow(j);
        if (j->step->kind == STEP_COPY)
                kernels_copy(j->chunk->isa, &j->call);
        else
                kernels_reduce(j->chunk->isa, &j->call);
        if (j->call.nonfinite)
                note_numerics(j);
}

static void move_on(struct job *j, size_t n_elements) {
        j->first_element += n_elements;
        for (uint32_t i = 0; i < j->call.n_inputs; i++)
                j->in[i] = (const uint8_t *)j->in[i] + n_elements * dtype_bytes(j->step->dtype);
        for (uint32_t i = 0; i < j->call.n_outputs; i++)
                j->out[i] = (uint8_t *)j->out[i] + n_elements * dtype_bytes(j->step->output_dtype);
}

static void run_in_blocks(struct job *j, uint64_t n_elements) {
        size_t block = CHECKED_BYTES / (j->call.n_inputs * dtype_bytes(j->step->dtype));
        if (block < CHECKED_MIN_ELEMENTS)
                block = CHECKED_MIN_ELEMENTS;
        while (n_elements > 0) {
                j->call.count = n_elements < block ? n_elements : block;
                run_job(j);
                move_on(j, j->call.count);
                n_elements -= j->call.count;
        }
}

static void place_operands(struct job *j, const struct piece *piece) {
        const struct step *s = piece->step;
        const struct operand *inputs = plan_inputs(j->chunk->plan, s),
                             *outputs = plan_outputs(j->chunk->plan, s);
        CHECK(s->n_inputs >= 1 && s->n_inputs <= MAX_WORLD && s->n_outputs <= MAX_WORLD);
        for (uint32_t i = 0; i < s->n_inputs; i++)
                j->in[i] = locate(&inputs[i], piece, dtype_bytes(s->dtype));
        for (uint32_t i = 0; i < s->n_outputs; i++) {
                CHECK(host_memory_of(outputs[i].memory)->is_writable);
                j->out[i] = locate(&outputs[i], piece, dtype_bytes(s->output_dtype));
        }
        for (uint32_t i = 0; s->has_weights && i < s->n_inputs; i++)
                j->weights[i] = inputs[i].weight;
}

static void run_piece(const struct chunk *c, const struct piece *piece) {
        const struct step *s = piece->step;
        struct job job;
        job.chunk = c;
        job.step = s;
        job.first_element = piece->first_element;
        place_operands(&job, piece);
        job.call = (struct kernel_call){
                .op = s->op,
                .dtype = s->dtype,
                .inputs = job.in,
                .n_inputs = s->n_inputs,
                .outputs = job.out,
                .n_outputs = s->n_outputs,
                .count = piece->n_elements,
                .divisor = s->divisor,
                .rounding = s->rounding,
                .weights = s->has_weights ? job.weights : NULL,
                .total_weight = s->total_weight,
                .nonfinite = s->check_numerics ? job.nonfinite : NULL,
        };
        if (s->check_overflow)
                run_in_blocks(&job, piece->n_elements);
        else
                run_job(&job);
}

static void run_pieces(const struct guarded_work *work) {
        const struct chunk *c = (const struct chunk *)work;
        struct piece piece;
        uint32_t cursor = 0;
        while (plan_next_piece(c->plan, c->index, &cursor, &piece)) {
                /* The others are no bytes (a join) or no work for a processor. */
                CHECK(piece.step->kind == STEP_COPY || piece.step->kind == STEP_REDUCE);
                run_piece(c, &piece);
        }
}

static const struct memory *find_owner(const struct guarded_work *work, const void *address) {
        const struct plan *plan = ((const struct chunk *)work)->plan;
        for (uint32_t i = 0; i < plan->n_operands; i++) {
                const struct host_memory *m = host_memory_of(plan->operands[i].memory);
                if ((uintptr_t)address - (uintptr_t)m->map < m->n_map_bytes)
                        return &m->base;
        }
        return NULL;
}

enum status host_run_chunk(struct backend *b, const struct plan *plan, uint64_t chunk, struct findings *found,
        const struct memory **ret_culprit) {
        const struct chunk c = {
                .work = { .run = run_pieces, .find_owner = find_owner },
                .isa = host_backend_of(b)->isa,
                .plan = plan,
                .index = chunk,
                .found = found,
        };
        struct float_state before;
        float_state_enter(&before);
        /* Leaving through the guard has reset the state, as the kernel gives a handler a fresh one. */
        bool is_whole = guard_run(&c.work, ret_culprit);
        float_state_leave(&before);
        return is_whole ? STATUS_OK : STATUS_BAD_FD;
}
