/* One chunk: each piece of it becomes one kernel call, all of them inside the guard. */
#include "backends/host/host-float.h"
#include "backends/host/host-guard.h"
#include "backends/host/host-private.h"
#include "backends/host/kernels.h"
#include "model/rankset.h"
#include "model/span.h"

struct chunk {
        struct guarded_work work; /* first */
        enum isa isa;
        const struct plan *plan;
        uint64_t index;
};

/* Where the first element of the piece is. Planner and leases have seen to it that the step lies in the
 * memory; were they wrong, we would write into a stranger's. */
static void *locate(const struct operand *o, const struct piece *piece) {
        const struct step *s = piece->step;
        const struct host_memory *m = host_memory_of(o->memory);
        size_t size = dtype_bytes(s->dtype);
        struct span span;
        CHECK(span_make(o->offset_bytes, s->count, size, m->base.n_bytes, &span));
        return m->map + span.offset_bytes + piece->first_element * size;
}

static void run_piece(const struct chunk *c, const struct piece *piece) {
        const struct step *s = piece->step;
        const struct operand *inputs = plan_inputs(c->plan, s), *outputs = plan_outputs(c->plan, s);
        const void *in[MAX_WORLD];
        void *out[MAX_WORLD];
        CHECK(s->n_inputs >= 1 && s->n_inputs <= MAX_WORLD && s->n_outputs <= MAX_WORLD);
        for (uint32_t i = 0; i < s->n_inputs; i++)
                in[i] = locate(&inputs[i], piece);
        for (uint32_t i = 0; i < s->n_outputs; i++) {
                CHECK(host_memory_of(outputs[i].memory)->is_writable);
                out[i] = locate(&outputs[i], piece);
        }
        struct kernel_call call = {
                .op = s->op,
                .dtype = s->dtype,
                .inputs = in,
                .n_inputs = s->n_inputs,
                .outputs = out,
                .n_outputs = s->n_outputs,
                .count = piece->n_elements,
                .divisor = s->divisor,
        };
        if (s->kind == STEP_COPY)
                kernels_copy(c->isa, &call);
        else
                kernels_reduce(c->isa, &call);
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

enum status host_run_chunk(
        struct backend *b, const struct plan *plan, uint64_t chunk, const struct memory **ret_culprit) {
        const struct chunk c = {
                .work = { .run = run_pieces, .find_owner = find_owner },
                .isa = host_backend_of(b)->isa,
                .plan = plan,
                .index = chunk,
        };
        struct float_state before;
        float_state_enter(&before);
        /* Leaving through the guard has reset the state, as the kernel gives a handler a fresh one. */
        bool is_whole = guard_run(&c.work, ret_culprit);
        float_state_leave(&before);
        return is_whole ? STATUS_OK : STATUS_BAD_FD;
}
