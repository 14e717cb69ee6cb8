/* One chunk: each piece of it becomes one kernel call, all of them inside the guard. Where a step has checks,
 * a piece is taken in blocks: what a check has read of the inputs is still near when the kernel reads it. */
#include <string.h>
#include "backends/host/host-float.h"
#include "backends/host/host-job.h"
#include "backends/host/host-sparse.h"
#include "model/span.h"

/* Of all inputs together: half of a small second-level cache. */
#define CHECKED_BYTES        (128u << 10)
#define CHECKED_MIN_ELEMENTS 256

/* From so much reading and writing of a plan on its results go past the caches. Measured on a machine with 2
 * cores: 64 MiB at 2 and 4 ranks take 0.8 of the time then, 16 MiB at 2 ranks 1.1 to 1.5 times as long. */
#define STREAMED_MOVED_BYTES (96u << 20)
/* Elements from the first to the last of the step's operand number `i`. */
static uint64_t extent_of(const struct plan *plan, const struct step *s, uint32_t i) {
        struct view view;
        uint64_t extent;
        extent = s->count;
        if (s->n_dims) {
                view_make(&view, s->n_dims, s->shape, plan_strides(plan, s, i));
                CHECK(view_extent(&view, &extent));
        }
        const uint64_t *lengths = s->n_folds && i < s->n_inputs ? plan_fold(plan, s, i) : NULL;
        for (uint32_t d = 0; lengths && d < s->n_folds; d++)
                extent += (lengths[d] - 1) * lengths[s->n_folds + d];
        return extent;
}

static struct host_memory *memory_of(const struct plan *plan, const struct operand *o) {
        return host_memory_of(o->scratch ? plan->scratch[o->scratch - 1].memory : o->memory);
}

/* Where the operand number `i` begins. Planner and leases have seen to it that the step lies in the memory;
 * were they wrong, we would write into a stranger's. */
static uint8_t *locate(const struct plan *plan, const struct step *s, uint32_t i) {
        const struct operand *o = &plan_inputs(plan, s)[i];
        const struct host_memory *m = memory_of(plan, o);
        size_t element_bytes = dtype_bytes(i < s->n_inputs ? s->dtype : s->output_dtype);
        struct span span;
        CHECK(span_make(o->offset_bytes, extent_of(plan, s, i), element_bytes, m->base.n_bytes, &span));
        return m->map + span.offset_bytes;
}

/* --- checks --- */

static void note_numerics(const struct job *j) {
        const struct operand *inputs = plan_inputs(j->chunk->plan, j->step);
        for (uint32_t i = 0; i < j->call.n_inputs; i++) {
                if (j->nonfinite[i].n == 0)
                        continue;
                const struct findings found = {
                        .numerics = { .n = j->nonfinite[i].n,
                                .rank = inputs[i].rank,
                                .entry = j->step->entry,
                                .index = step_entry_index(j->step, j->first_element + j->nonfinite[i].first) }
                };
                findings_add(j->chunk->found, &found);
        }
}

static void check_overflow(const struct job *j) {
        struct kernel_count count = kernels_count_wrapped(j->chunk->isa, &j->call);
        if (count.n == 0)
                return;
        const struct findings found = { .overflow = { .n = count.n,
                                                .entry = j->step->entry,
                                                .index = step_entry_index(
                                                        j->step, j->first_element + count.first) } };
        findings_add(j->chunk->found, &found);
}

/* --- pieces --- */

static void call_kernel(struct job *j) {
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
                call_kernel(j);
                move_on(j, j->call.count);
                n_elements -= j->call.count;
        }
}

void job_run(struct job *j, uint64_t n_elements) {
        if (j->step->check_overflow) {
                run_in_blocks(j, n_elements);
                return;
        }
        j->call.count = n_elements;
        call_kernel(j);
        move_on(j, n_elements);
}

static void place_operands(struct job *j, const struct plan *plan, const struct step *s) {
        CHECK(s->n_inputs >= 1 && s->n_inputs <= MAX_WORLD && s->n_outputs <= MAX_WORLD);
        for (uint32_t i = 0; i < s->n_inputs; i++)
                j->in[i] = locate(plan, s, i);
        for (uint32_t i = 0; i < s->n_outputs; i++) {
                CHECK(memory_of(plan, &plan_outputs(plan, s)[i])->is_writable);
                j->out[i] = locate(plan, s, s->n_inputs + i);
        }
        for (uint32_t i = 0; s->has_weights && i < s->n_inputs; i++)
                j->weights[i] = plan_inputs(plan, s)[i].weight;
}

/* Large results that were read by nobody are evicted before anybody reads them, and would fetch each line of
 * the outputs first. In place the lines are there. */
static bool is_streamed(const struct job *j, const struct plan *plan) {
        const struct step *s = j->step;
        if (plan->moved_bytes < STREAMED_MOVED_BYTES || s->check_numerics || s->n_dims || s->n_folds ||
                (s->output_dtype != DTYPE_UNSPECIFIED && s->output_dtype != s->dtype) ||
                (s->op == OP_MEAN && dtype_is_integer(s->dtype)))
                return false;
        for (uint32_t i = 0; i < s->n_outputs; i++)
                for (uint32_t k = 0; k < s->n_inputs; k++)
                        if (j->out[i] == j->in[k])
                                return false;
        return true;
}

static void run_piece(const struct chunk *c, const struct piece *piece) {
        const struct step *s = piece->step;
        struct job job;
        job.chunk = c;
        job.step = s;
        job.first_element = 0;
        place_operands(&job, c->plan, s);
        job.call = (struct kernel_call){
                .op = s->op,
                .dtype = s->dtype,
                .output_dtype = s->output_dtype,
                .inputs = job.in,
                .n_inputs = s->n_inputs,
                .outputs = job.out,
                .n_outputs = s->n_outputs,
                .divisor = s->divisor,
                .rounding = s->rounding,
                .weights = s->has_weights ? job.weights : NULL,
                .total_weight = s->total_weight,
                .nonfinite = s->check_numerics ? job.nonfinite : NULL,
                .is_streamed = is_streamed(&job, c->plan),
        };
        if (s->n_folds) {
                job.first_element = piece->first_element;
                job_run_folded(&job, piece->n_elements);
                return;
        }
        if (s->n_dims || s->check_inputs) {
                job.first_element = piece->first_element;
                job_run_strided(&job, piece->n_elements);
                return;
        }
        move_on(&job, piece->first_element);
        job_run(&job, piece->n_elements);
}

static void run_pieces(const struct guarded_work *work) {
        const struct chunk *c = (const struct chunk *)work;
        struct piece piece;
        uint32_t cursor = 0;
        while (plan_next_piece(c->plan, c->index, &cursor, &piece)) {
                switch (piece.step->kind) {
                case STEP_COPY:
                case STEP_REDUCE: run_piece(c, &piece); break;
                case STEP_INDICES:
                case STEP_ORDER:
                case STEP_SCATTER_ADD: sparse_run_piece(c, &piece); break;
                case STEP_JOIN: /* has no bytes */
                case STEP_LIBRARY: CHECK(false);
                }
        }
}

static const struct memory *find_owner(const struct guarded_work *work, const void *address) {
        const struct plan *plan = ((const struct chunk *)work)->plan;
        for (uint32_t i = 0; i < plan->n_operands; i++) {
                const struct host_memory *m = host_memory_of(plan->operands[i].memory);
                if (m && (uintptr_t)address - (uintptr_t)m->map < m->n_map_bytes)
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
