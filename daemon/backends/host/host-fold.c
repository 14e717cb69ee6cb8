/* Reductions over axes: each input brings many contributions to one result, and all of them are one chain, in
 * the order of the inputs and of each in that of its indices.
 *
 * A block of results is made at a time. Its contributions are collected, a number of them, gathered into
 * slots where they do not lie densely, and added to the block's sums by the kernels: in the elements' own
 * type, or where sums are wider (halves in f32, weighted floats in f64) each contribution is widened first.
 * Means of integers are summed exactly. At the end the sums are divided where that is asked for, rounded
 * once, and put where they belong. All of it lies on the worker's stack. */
#include <stdalign.h>
#include <string.h>
#include "backends/host/host-job.h"
#include "backends/host/kernels-exact.h"
#include "base/check.h"

#define BLOCK           512 /* results at a time */
#define SLOT_BYTES      (128u << 10)
#define SLOT_ALIGNMENT  64
#define MOST_WAITING    1000 /* contributions at a time, one less than the kernels take */
#define LARGEST_ELEMENT 16

struct folding {
        const struct job *job;
        uint64_t first, n; /* results */
        uint32_t most;     /* contributions that may wait */
        size_t slot_bytes;
        uint32_t n_waiting;
        bool has_sums;
        const void *waiting[MOST_WAITING + 1]; /* the first one is kept for the sums */
        double weights[MOST_WAITING + 1];
        alignas(SLOT_ALIGNMENT) uint8_t slots[SLOT_BYTES];
        alignas(SLOT_ALIGNMENT) uint8_t wide[BLOCK * LARGEST_ELEMENT];
        alignas(SLOT_ALIGNMENT) uint8_t sums[BLOCK * LARGEST_ELEMENT];
};

static bool is_exact(const struct step *s) {
        return s->fold_dtype == DTYPE_UNSPECIFIED;
}

/* While sums are being made. */
static enum op sum_op(const struct step *s) {
        return s->op == OP_MEAN ? OP_SUM : s->op;
}

/* --- contributions --- */

static void combine(struct folding *f, const struct kernel_call *like, void *output) {
        struct kernel_call call = *like;
        void *outputs[] = { output };
        call.op = sum_op(f->job->step);
        call.outputs = outputs;
        call.n_outputs = 1;
        call.count = f->n;
        call.divisor = 1;
        call.total_weight = 1;
        kernels_reduce(f->job->chunk->isa, &call);
}

/* Sums in the elements' own type: one more input of the pass. */
static void add_narrow(struct folding *f) {
        const struct step *s = f->job->step;
        uint32_t from = f->has_sums ? 0 : 1;
        f->waiting[0] = f->sums;
        f->weights[0] = 1;
        combine(f,
                &(struct kernel_call){ .dtype = s->dtype,
                        .inputs = f->waiting + from,
                        .n_inputs = f->n_waiting + 1 - from,
                        .weights = s->has_weights ? f->weights + from : NULL },
                f->sums);
}

/* Wider sums: each contribution is widened, and added in that type. */
static void add_wide(struct folding *f) {
        const struct step *s = f->job->step;
        for (uint32_t i = 1; i <= f->n_waiting; i++) {
                const void *both[] = { f->sums, f->wide };
                combine(f,
                        &(struct kernel_call){ .dtype = s->dtype,
                                .output_dtype = s->fold_dtype,
                                .inputs = &f->waiting[i],
                                .n_inputs = 1,
                                .weights = s->has_weights ? &f->weights[i] : NULL },
                        f->has_sums ? f->wide : f->sums);
                if (f->has_sums)
                        combine(f,
                                &(struct kernel_call){
                                        .dtype = s->fold_dtype, .inputs = both, .n_inputs = 2 },
                                f->sums);
                f->has_sums = true;
        }
}

static void add_exactly(struct folding *f) {
        for (uint32_t i = 1; i <= f->n_waiting; i++)
                kernels_exact_add(f->job->step->dtype, f->waiting[i], f->n, (__int128 *)(void *)f->sums);
}

static void flush(struct folding *f) {
        const struct step *s = f->job->step;
        if (f->n_waiting == 0)
                return;
        if (is_exact(s))
                add_exactly(f);
        else if (s->fold_dtype != s->dtype)
                add_wide(f);
        else
                add_narrow(f);
        f->has_sums = true;
        f->n_waiting = 0;
}

/* The block's elements of input `i` at `at`. */
static void contribute(struct folding *f, uint32_t i, const uint8_t *at) {
        const struct step *s = f->job->step;
        uint8_t *slot = f->slots + f->n_waiting * f->slot_bytes;
        const struct lattice l = { .element_bytes = dtype_bytes(s->dtype),
                .n_dims = s->n_dims,
                .shape = s->shape,
                .strides = plan_strides(f->job->chunk->plan, s, i) };
        if (s->n_dims)
                lattice_gather(&l, at, f->first, f->n, slot);
        f->n_waiting++;
        if (s->has_weights)
                f->weights[f->n_waiting] = f->job->weights[i];
        f->waiting[f->n_waiting] = s->n_dims ? slot : at + f->first * l.element_bytes;
        if (f->n_waiting == f->most)
                flush(f);
}

/* All of input `i`, in the order of its indices. */
static void contribute_input(struct folding *f, uint32_t i) {
        const struct step *s = f->job->step;
        const uint64_t *lengths = plan_fold(f->job->chunk->plan, s, i), *strides = lengths + s->n_folds;
        uint64_t index[MAX_DIMS] = { 0 }, at = 0;
        size_t size = dtype_bytes(s->dtype);
        uint32_t d = 0;
        do {
                contribute(f, i, (const uint8_t *)f->job->in[i] + at * size);
                for (d = s->n_folds; d-- > 0;) {
                        at += strides[d];
                        if (++index[d] < lengths[d])
                                break;
                        at -= index[d] * strides[d];
                        index[d] = 0;
                }
        } while (d != UINT32_MAX);
}

/* --- results --- */

/* Of the block, to `outputs`. */
static void finish(struct folding *f, void *const *outputs, uint32_t n_outputs) {
        const struct step *s = f->job->step;
        static const double one = 1;
        const void *sums = f->sums;
        const struct kernel_call call = { .op = s->op,
                .dtype = s->fold_dtype,
                .output_dtype = s->output_dtype,
                .inputs = &sums,
                .n_inputs = 1,
                .outputs = outputs,
                .n_outputs = n_outputs,
                .count = f->n,
                .divisor = s->divisor,
                .weights = s->has_weights ? &one : NULL,
                .total_weight = s->total_weight };
        if (is_exact(s))
                for (uint32_t i = 0; i < n_outputs; i++)
                        kernels_exact_mean(&(struct exact_mean){ s->output_dtype, s->rounding, s->divisor },
                                (const __int128 *)sums, f->n, outputs[i]);
        else if (s->op == OP_MEAN || s->fold_dtype != s->output_dtype)
                kernels_reduce(f->job->chunk->isa, &call);
        else
                kernels_copy(f->job->chunk->isa, &call);
}

static void put_block(struct folding *f) {
        const struct step *s = f->job->step;
        size_t size = dtype_bytes(s->output_dtype);
        void *outputs[MAX_WORLD], *slot = f->slots;
        for (uint32_t i = 0; i < s->n_outputs; i++)
                outputs[i] = (uint8_t *)f->job->out[i] + f->first * size;
        if (s->n_dims == 0) {
                finish(f, outputs, s->n_outputs);
                return;
        }
        finish(f, &slot, 1);
        for (uint32_t i = 0; i < s->n_outputs; i++) {
                const struct lattice l = { .element_bytes = size,
                        .n_dims = s->n_dims,
                        .shape = s->shape,
                        .strides = plan_strides(f->job->chunk->plan, s, s->n_inputs + i) };
                lattice_scatter(&l, f->job->out[i], f->first, f->n, slot);
        }
}

/* The fewer results there are, the more contributions may wait. */
static void begin_block(struct folding *f, uint64_t first, uint64_t n) {
        size_t size = dtype_bytes(f->job->step->dtype);
        f->first = first;
        f->n = n;
        f->slot_bytes = (n * size + SLOT_ALIGNMENT - 1) / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
        f->most = SLOT_BYTES / f->slot_bytes < MOST_WAITING ? (uint32_t)(SLOT_BYTES / f->slot_bytes)
                                                            : MOST_WAITING;
        f->n_waiting = 0;
        f->has_sums = false;
        /* What has no contributions of any weight is +0; exact sums begin there. */
        memset(f->sums, 0, sizeof(f->sums));
}

void job_run_folded(struct job *j, uint64_t n_elements) {
        const struct step *s = j->step;
        struct folding f;
        f.job = j;
        for (uint64_t done = 0; done < n_elements; done += f.n) {
                uint64_t left = n_elements - done;
                begin_block(&f, j->first_element + done, left < BLOCK ? left : BLOCK);
                for (uint32_t i = 0; i < s->n_inputs; i++)
                        if (!s->has_weights || j->weights[i] != 0)
                                contribute_input(&f, i);
                flush(&f);
                put_block(&f);
        }
}
