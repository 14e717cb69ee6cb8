/* Values with strides, and those whose inputs are checked, through the same kernels.
 *
 * Where the last dimension runs on in every operand and is long, each row of it is a kernel call in place.
 * Otherwise the work is done in blocks of elements: what lies scattered is gathered into a tile, one slot for
 * each input, the kernel runs from there, and what it gives is scattered to where it belongs. Operands that
 * are dense are read and written where they are. Inputs that are checked all go through the tile, where
 * nobody can change them: what is summed up there is what the kernel reads. The tile is small enough for the
 * second-level cache, lives on the worker's stack, and so needs no allocation under the guard. */
#include <stdalign.h>
#include <string.h>
#include "backends/host/host-job.h"
#include "base/check.h"
#include "model/checksum.h"

#define TILE_BYTES     (256u << 10)
#define SLOT_ALIGNMENT 64
/* A row of at least so many bytes is worth a kernel call of its own. */
#define ROW_MIN_BYTES 512

static struct lattice lattice_of(const struct job *j, uint32_t operand, size_t element_bytes) {
        const struct step *s = j->step;
        return (struct lattice){ .element_bytes = element_bytes,
                .n_dims = s->n_dims,
                .shape = s->shape,
                .strides = plan_strides(j->chunk->plan, s, operand) };
}

static bool is_dense(const struct job *j, uint32_t operand) {
        const struct step *s = j->step;
        const uint64_t *strides = plan_strides(j->chunk->plan, s, operand);
        uint64_t run = 1;
        for (uint32_t i = s->n_dims; i-- > 0; run *= s->shape[i])
                if (strides[i] != run)
                        return false;
        return true;
}

/* --- rows --- */

static bool has_long_rows(const struct job *j) {
        const struct step *s = j->step;
        uint32_t last = s->n_dims ? s->n_dims - 1 : 0;
        if (s->check_inputs || s->shape[last] * dtype_bytes(s->dtype) < ROW_MIN_BYTES)
                return false;
        for (uint32_t i = 0; i < s->n_inputs + s->n_outputs; i++)
                if (plan_strides(j->chunk->plan, s, i)[last] != 1)
                        return false;
        return true;
}

/* The operands of a step, as they were before anything moved on. */
struct bases {
        const uint8_t *in[MAX_WORLD];
        uint8_t *out[MAX_WORLD];
};

static void take_bases(const struct job *j, struct bases *ret) {
        memcpy(ret->in, j->in, j->step->n_inputs * sizeof(*j->in));
        memcpy(ret->out, j->out, j->step->n_outputs * sizeof(*j->out));
}

static const uint8_t *input_at(const struct job *j, const struct bases *bases, uint32_t i, uint64_t element) {
        const struct lattice l = lattice_of(j, i, dtype_bytes(j->step->dtype));
        return bases->in[i] + lattice_offset(&l, element) * l.element_bytes;
}

static uint8_t *output_at(const struct job *j, const struct bases *bases, uint32_t i, uint64_t element) {
        const struct lattice l = lattice_of(j, j->step->n_inputs + i, dtype_bytes(j->step->output_dtype));
        return bases->out[i] + lattice_offset(&l, element) * l.element_bytes;
}

static void run_rows(struct job *j, uint64_t n_elements) {
        const uint64_t row = j->step->shape[j->step->n_dims - 1];
        struct bases bases;
        take_bases(j, &bases);
        while (n_elements > 0) {
                uint64_t left = row - j->first_element % row, n = n_elements < left ? n_elements : left;
                for (uint32_t i = 0; i < j->step->n_inputs; i++)
                        j->in[i] = input_at(j, &bases, i, j->first_element);
                for (uint32_t i = 0; i < j->step->n_outputs; i++)
                        j->out[i] = output_at(j, &bases, i, j->first_element);
                job_run(j, n);
                n_elements -= n;
        }
}

/* --- tiles --- */

struct tile {
        struct job *job;
        struct bases bases;
        bool is_gathered[MAX_WORLD]; /* inputs that have a slot */
        uint32_t scattered[MAX_WORLD], n_scattered,
                n_dense; /* outputs; the dense ones stand first in job->out */
        uint32_t dense[MAX_WORLD];
        uint64_t sums[MAX_WORLD]; /* of inputs that are checked */
        uint64_t block;           /* elements */
        size_t slot_bytes;
        uint8_t *bytes;
};

/* An input of weight 0 is not looked at, wherever it lies. */
static bool is_left_out(const struct job *j, uint32_t input) {
        return j->step->has_weights && j->weights[input] == 0;
}

static void plan_tile(struct tile *t, const struct job *j) {
        const struct step *s = j->step;
        uint32_t n_slots = 0;
        t->n_scattered = t->n_dense = 0;
        for (uint32_t i = 0; i < s->n_inputs; i++) {
                t->sums[i] = 0;
                t->is_gathered[i] = (s->check_inputs || !is_dense(j, i)) && !is_left_out(j, i);
                n_slots += t->is_gathered[i];
        }
        for (uint32_t i = 0; i < s->n_outputs; i++)
                if (is_dense(j, s->n_inputs + i))
                        t->dense[t->n_dense++] = i;
                else
                        t->scattered[t->n_scattered++] = i;
        n_slots += t->n_scattered > 0;
        size_t in = dtype_bytes(s->dtype), out = dtype_bytes(s->output_dtype);
        t->slot_bytes = TILE_BYTES / (n_slots ? n_slots : 1) / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
        t->block = t->slot_bytes / (in > out ? in : out);
}

/* What of the block is scattered comes into slots; returns the first slot that is free. */
static uint8_t *gather_block(struct tile *t, uint64_t n) {
        struct job *j = t->job;
        uint8_t *slot = t->bytes;
        for (uint32_t i = 0; i < j->step->n_inputs; i++) {
                const struct lattice l = lattice_of(j, i, dtype_bytes(j->step->dtype));
                /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Branch): by plan_tile, all */
                if (!t->is_gathered[i]) {
                        j->in[i] = t->bases.in[i] + j->first_element * l.element_bytes;
                        continue;
                }
                lattice_gather(&l, t->bases.in[i], j->first_element, n, slot);
                if (j->step->check_inputs)
                        t->sums[i] += checksum_elements(slot, n, l.element_bytes, j->first_element);
                j->in[i] = slot;
                slot += t->slot_bytes;
        }
        return slot;
}

static void place_outputs(const struct tile *t, uint8_t *slot) {
        struct job *j = t->job;
        size_t element_bytes = dtype_bytes(j->step->output_dtype);
        for (uint32_t i = 0; i < t->n_dense; i++)
                j->out[i] = t->bases.out[t->dense[i]] + j->first_element * element_bytes;
        if (t->n_scattered)
                j->out[t->n_dense] = slot;
        j->call.n_outputs = t->n_dense + (t->n_scattered > 0);
}

static void scatter_block(const struct tile *t, const uint8_t *slot, uint64_t first, uint64_t n) {
        const struct job *j = t->job;
        for (uint32_t i = 0; i < t->n_scattered; i++) {
                uint32_t output = t->scattered[i];
                const struct lattice l =
                        lattice_of(j, j->step->n_inputs + output, dtype_bytes(j->step->output_dtype));
                lattice_scatter(&l, t->bases.out[output], first, n, slot);
        }
}

static void add_sums(const struct tile *t) {
        const struct step *s = t->job->step;
        for (uint32_t i = 0; s->check_inputs && i < s->n_inputs; i++)
                /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): by plan_tile, all */
                t->job->chunk->plan->sums[s->first_operand + i] += t->sums[i];
}

static void run_tiles(struct job *j, uint64_t n_elements) {
        alignas(SLOT_ALIGNMENT) uint8_t bytes[TILE_BYTES];
        struct tile t;
        t.job = j;
        t.bytes = bytes;
        take_bases(j, &t.bases);
        plan_tile(&t, j);
        while (n_elements > 0) {
                uint64_t n = n_elements < t.block ? n_elements : t.block, first = j->first_element;
                uint8_t *slot = gather_block(&t, n);
                place_outputs(&t, slot);
                job_run(j, n);
                scatter_block(&t, slot, first, n);
                n_elements -= n;
        }
        add_sums(&t);
}

void job_run_strided(struct job *j, uint64_t n_elements) {
        if (has_long_rows(j))
                run_rows(j, n_elements);
        else
                run_tiles(j, n_elements);
}
