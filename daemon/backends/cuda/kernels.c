/* Which kernel, how many threads, with what: see kernels.h. */
#include "backends/cuda/kernels.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include "model/rankset.h"
#include "model/view.h"

#define VECTOR_BYTES 16
/* Blocks for each multiprocessor: enough to fill it, few enough that a thread has several rounds to go. */
#define BLOCKS_EACH 8
_Static_assert(CUDA_MAX_DIMS == MAX_DIMS, "the kernels have room for all dimensions");
_Static_assert(sizeof(struct cuda_args) <= 4096, "a launch's parameters are at most 4 KiB");

#define NAME_OF_PAIR(name, ...)                                                                              \
        [CUDA_KERNEL_##name] = "tutti_" #name, [CUDA_KERNEL_checked_##name] = "tutti_checked_" #name,
#define NAME_OF_FOLD(name, ...) [CUDA_KERNEL_folded_##name] = "tutti_folded_" #name,
#define NAME_OF_ROW(name, ...)  [CUDA_KERNEL_joined_##name] = "tutti_joined_" #name,
#define NAME_OF_ONE(name, ...)  [CUDA_KERNEL_##name] = "tutti_" #name,

const char *cuda_kernel_name(enum cuda_kernel kernel) {
        static const char *const names[N_CUDA_KERNELS] = { CUDA_ELEMENT_KERNELS(NAME_OF_PAIR)
                        CUDA_REDUCTIONS(NAME_OF_FOLD) CUDA_ROW_KERNELS(NAME_OF_ROW)
                                CUDA_COUNTING_KERNELS(NAME_OF_ONE) CUDA_OTHER_KERNELS(NAME_OF_ONE) };
        CHECK(kernel > CUDA_KERNEL_NONE && kernel < N_CUDA_KERNELS);
        return names[kernel];
}

/* --- which kernel --- */

#define K(name) CUDA_KERNEL_##name
/* What differs between signed and unsigned, and what does not. */
#define INTEGER_ROW(type, bits)                                                                              \
        {                                                                                                    \
                [OP_SUM] = K(sum_##bits), [OP_MEAN] = K(mean_##type), [OP_PROD] = K(prod_##bits),            \
                [OP_MIN] = K(min_##type), [OP_MAX] = K(max_##type), [OP_BAND] = K(and_##bits),               \
                [OP_BOR] = K(or_##bits), [OP_BXOR] = K(xor_##bits)                                           \
        }
#define FLOAT_ROW(type)                                                                                      \
        {                                                                                                    \
                [OP_SUM] = K(sum_##type), [OP_MEAN] = K(mean_##type), [OP_PROD] = K(prod_##type),            \
                [OP_MIN] = K(min_##type), [OP_MAX] = K(max_##type)                                           \
        }
#define COMPLEX_ROW(type)                                                                                    \
        { [OP_SUM] = K(sum_##type), [OP_MEAN] = K(mean_##type), [OP_PROD] = K(prod_##type) }

static const enum cuda_kernel reducing[N_DTYPE][N_OP] = {
        [DTYPE_U8] = INTEGER_ROW(u8, 8),
        [DTYPE_I8] = INTEGER_ROW(i8, 8),
        [DTYPE_U16] = INTEGER_ROW(u16, 16),
        [DTYPE_I16] = INTEGER_ROW(i16, 16),
        [DTYPE_U32] = INTEGER_ROW(u32, 32),
        [DTYPE_I32] = INTEGER_ROW(i32, 32),
        [DTYPE_U64] = INTEGER_ROW(u64, 64),
        [DTYPE_I64] = INTEGER_ROW(i64, 64),
        [DTYPE_F16] = FLOAT_ROW(f16),
        [DTYPE_BF16] = FLOAT_ROW(bf16),
        [DTYPE_F32] = FLOAT_ROW(f32),
        [DTYPE_F64] = FLOAT_ROW(f64),
        [DTYPE_BOOL] = { [OP_LAND] = K(land_bool), [OP_LOR] = K(lor_bool) },
        [DTYPE_C64] = COMPLEX_ROW(c64),
        [DTYPE_C128] = COMPLEX_ROW(c128),
};

/* By dtype: what does not depend on an op, or on one alone. */
#define INTEGER_OTHERS(type, bits)                                                                           \
        { .copy = K(copy_##bits), .quotient = K(quotient_##type), .wrapped = K(wrapped_##type) }
#define FLOAT_OTHERS(type)                                                                                   \
        { .copy = K(copy_##type), .weighted = K(weighted_##type) }

static const struct {
        enum cuda_kernel copy, weighted, quotient, wrapped;
} others[N_DTYPE] = {
        [DTYPE_U8] = INTEGER_OTHERS(u8, 8),
        [DTYPE_I8] = INTEGER_OTHERS(i8, 8),
        [DTYPE_U16] = INTEGER_OTHERS(u16, 16),
        [DTYPE_I16] = INTEGER_OTHERS(i16, 16),
        [DTYPE_U32] = INTEGER_OTHERS(u32, 32),
        [DTYPE_I32] = INTEGER_OTHERS(i32, 32),
        [DTYPE_U64] = INTEGER_OTHERS(u64, 64),
        [DTYPE_I64] = INTEGER_OTHERS(i64, 64),
        [DTYPE_F16] = FLOAT_OTHERS(f16),
        [DTYPE_BF16] = FLOAT_OTHERS(bf16),
        [DTYPE_F32] = FLOAT_OTHERS(f32),
        [DTYPE_F64] = FLOAT_OTHERS(f64),
        [DTYPE_BOOL] = { .copy = K(copy_8) },
        [DTYPE_C64] = { .copy = K(copy_c64) },
        [DTYPE_C128] = { .copy = K(copy_c128) },
};

static bool is_half(enum dtype dtype) {
        return dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

/* Halves to f32, or what came of that to halves: the two levels of a sum. */
static enum cuda_kernel choose_level(const struct cuda_step *s) {
        const bool is_f16 = s->dtype == DTYPE_F16 || s->output_dtype == DTYPE_F16;
        const bool is_partial = is_half(s->dtype) && s->output_dtype == DTYPE_F32;
        const bool is_total = s->dtype == DTYPE_F32 && is_half(s->output_dtype);
        if (s->weights || (!is_partial && !is_total))
                return CUDA_KERNEL_NONE;
        if (s->op == OP_PROD && is_partial)
                return is_f16 ? K(partial_prod_f16) : K(partial_prod_bf16);
        if (s->op == OP_PROD)
                return is_f16 ? K(total_prod_f16) : K(total_prod_bf16);
        if (s->op == OP_SUM && is_partial)
                return is_f16 ? K(partial_sum_f16) : K(partial_sum_bf16);
        if ((s->op == OP_SUM || s->op == OP_MEAN) && is_total)
                return is_f16 ? K(finish_f16) : K(finish_bf16);
        return CUDA_KERNEL_NONE;
}

static enum cuda_kernel choose_reduce(const struct cuda_step *s) {
        const bool is_quotient = s->op == OP_MEAN && dtype_is_integer(s->dtype);
        if (s->output_dtype != DTYPE_UNSPECIFIED && s->output_dtype != s->dtype && !is_quotient)
                return choose_level(s);
        if (s->weights)
                return s->op == OP_SUM || s->op == OP_MEAN ? others[s->dtype].weighted : CUDA_KERNEL_NONE;
        if (s->op == OP_MEAN && dtype_is_integer(s->dtype) && s->rounding == ROUNDING_UNSPECIFIED)
                return others[s->dtype].quotient;
        return reducing[s->dtype][s->op];
}

/* CUDA_KERNEL_NONE: nobody can. */
static enum cuda_kernel choose(const struct cuda_step *s) {
        if (s->dtype >= N_DTYPE || s->op >= N_OP)
                return CUDA_KERNEL_NONE;
        switch (s->work) {
        case CUDA_COPY: return others[s->dtype].copy;
        case CUDA_REDUCE: return choose_reduce(s);
        }
        return CUDA_KERNEL_NONE;
}

/* What checks look at passes through the second of the pair. */
static enum cuda_kernel with_checks(enum cuda_kernel kernel) {
        return kernel + (K(checked_sum_8) - K(sum_8));
}

/* Both lists begin with the reductions, in one order; behind them come the copies. */
static enum cuda_kernel over_axes(enum cuda_kernel kernel) {
        if (kernel < K(sum_8) || kernel >= K(copy_8))
                return CUDA_KERNEL_NONE;
        return K(folded_sum_8) + (kernel - K(sum_8)) / (K(prod_8) - K(sum_8));
}

/* --- how many threads --- */

void cuda_launch_set_grid(struct cuda_launch *l, uint64_t n_blocks, uint32_t n_multiprocessors) {
        uint64_t most = (uint64_t)(n_multiprocessors ? n_multiprocessors : 1) * BLOCKS_EACH;
        uint32_t n = (uint32_t)(n_blocks < most ? n_blocks : most);
        memcpy(l->grid, (uint32_t[3]){ n ? n : 1, 1, 1 }, sizeof(l->grid));
        memcpy(l->block, (uint32_t[3]){ CUDA_BLOCK, 1, 1 }, sizeof(l->block));
}

static uint64_t blocks_for(uint64_t n_threads) {
        return n_threads / CUDA_BLOCK + (n_threads % CUDA_BLOCK > 0);
}

/* --- elements --- */

static uint32_t n_operands(const struct cuda_step *s) {
        return s->n_inputs + s->n_outputs;
}

static uint64_t n_words(const struct cuda_step *s) {
        return n_operands(s) + (s->weights ? s->n_inputs : 0) + (uint64_t)n_operands(s) * s->n_dims +
               2 * (uint64_t)s->n_inputs * s->n_folds;
}

uint64_t cuda_step_table_bytes(const struct cuda_step *s) {
        uint64_t n = n_words(s);
        return n > CUDA_INLINE_WORDS ? n * sizeof(uint64_t) : 0;
}

static void fill_words(const struct cuda_step *s, uint64_t *words) {
        memcpy(words, s->operands, n_operands(s) * sizeof(*words));
        words += n_operands(s);
        if (s->weights) {
                memcpy(words, s->weights, s->n_inputs * sizeof(*words));
                words += s->n_inputs;
        }
        if (s->n_dims)
                memcpy(words, s->strides, (size_t)n_operands(s) * s->n_dims * sizeof(*words));
        words += (size_t)n_operands(s) * s->n_dims;
        if (s->n_folds)
                memcpy(words, s->folds, 2 * (size_t)s->n_inputs * s->n_folds * sizeof(*words));
}

static bool has_vectors(const struct cuda_step *s) {
        if (s->n_dims || s->n_folds)
                return false;
        for (uint32_t i = 0; i < n_operands(s); i++)
                if (s->operands[i] % VECTOR_BYTES)
                        return false;
        return true;
}

static uint32_t divisor_of(const struct cuda_step *s) {
        return s->op == OP_MEAN && s->work != CUDA_COPY ? s->divisor : 0;
}

static void fill_args(const struct cuda_step *s, struct cuda_args *ret) {
        const bool is_inline = cuda_step_table_bytes(s) == 0;
        *ret = (struct cuda_args){
                .count = s->count,
                .abort = s->abort,
                .table = is_inline ? 0 : s->table_at,
                .nonfinite = s->nonfinite,
                .sums = s->sums,
                .wrapped = s->wrapped,
                .total_weight = s->total_weight,
                .quotient = s->op == OP_MEAN ? s->total_weight : 1,
                .n_inputs = s->n_inputs,
                .n_outputs = s->n_outputs,
                .divisor = divisor_of(s),
                .rounding = s->rounding,
                .has_weights = s->weights != NULL,
                .has_vectors = has_vectors(s),
                .n_dims = s->n_dims,
                .n_folds = s->n_folds,
                .is_product = s->op == OP_PROD,
        };
        if (s->n_dims)
                memcpy(ret->shape, s->shape, s->n_dims * sizeof(*s->shape));
        fill_words(s, is_inline ? ret->words : s->table);
}

static bool is_sound(const struct cuda_step *s) {
        bool is_one = s->work != CUDA_REDUCE;
        if (s->n_inputs < 1 || s->n_inputs > MAX_WORLD || (is_one && s->n_inputs > 1) ||
                s->n_outputs > MAX_WORLD || s->n_dims > CUDA_MAX_DIMS)
                return false;
        if (s->n_folds && (is_one || s->n_folds > CUDA_MAX_DIMS || s->nonfinite || s->sums || s->wrapped))
                return false;
        if (s->op == OP_MEAN && !is_one)
                return s->weights ? s->total_weight > 0 : s->divisor > 0;
        return true;
}

/* With checks a thread has an element, and so it has without vectors. */
static void set_element_grid(const struct cuda_step *s, struct cuda_launch *l) {
        bool is_vector = has_vectors(s) && !s->nonfinite && !s->sums && l->kernel != others[s->dtype].wrapped;
        uint64_t each = is_vector ? VECTOR_BYTES / dtype_bytes(s->dtype) : 1;
        cuda_launch_set_grid(l, blocks_for(s->count / each + (s->count % each > 0)), s->n_multiprocessors);
}

static void set_launch(const struct cuda_step *s, enum cuda_kernel kernel, struct cuda_launch *l) {
        l->kernel = kernel;
        fill_args(s, &l->args.elements);
        set_element_grid(s, l);
}

/* Looked for before anything is written, since an output may be an input. */
static bool wants_wrapped(const struct cuda_step *s) {
        return s->wrapped && s->work == CUDA_REDUCE && (s->op == OP_SUM || s->op == OP_PROD) &&
               others[s->dtype].wrapped;
}

int cuda_step_prepare(const struct cuda_step *s, struct cuda_launch ret[CUDA_STEP_LAUNCHES]) {
        enum cuda_kernel kernel = s->n_folds ? over_axes(choose(s)) : choose(s);
        int n = 0;
        if (kernel == CUDA_KERNEL_NONE || !is_sound(s))
                return -EINVAL;
        if (s->count == 0)
                return 0;
        if (wants_wrapped(s))
                set_launch(s, others[s->dtype].wrapped, &ret[n++]);
        set_launch(s, s->nonfinite || s->sums ? with_checks(kernel) : kernel, &ret[n++]);
        return n;
}

/* --- packs --- */

int cuda_move_prepare(const struct cuda_move *m, struct cuda_launch *ret) {
        uint64_t n_bytes = 0;
        for (uint64_t i = 0; i < m->n_segments; i++) {
                if (m->segments[i].n_bytes == 0)
                        return -EINVAL;
                m->segments[i].start = n_bytes;
                n_bytes += m->segments[i].n_bytes;
        }
        ret->kernel = K(move);
        ret->args.move = (struct cuda_move_args){
                .abort = m->abort,
                .segments = m->at,
                .n_segments = m->n_segments,
                .n_bytes = n_bytes,
        };
        cuda_launch_set_grid(ret, n_bytes / CUDA_MOVE_BYTES + 1, m->n_multiprocessors);
        return m->n_segments ? 0 : -EINVAL;
}

/* --- patterns --- */

static int prepare_pattern(const struct cuda_pattern *p, enum cuda_kernel kernel, struct cuda_launch *ret) {
        if (p->at % sizeof(uint64_t))
                return -EINVAL;
        ret->kernel = kernel;
        ret->args.pattern = (struct cuda_pattern_args){
                .at = p->at, .n_words = p->n_words, .seed = p->seed, .wrong = p->wrong
        };
        cuda_launch_set_grid(ret, blocks_for(p->n_words), p->n_multiprocessors);
        return 0;
}

int cuda_fill_prepare(const struct cuda_pattern *p, struct cuda_launch *ret) {
        return prepare_pattern(p, K(fill), ret);
}

int cuda_verify_prepare(const struct cuda_pattern *p, struct cuda_launch *ret) {
        return p->wrong ? prepare_pattern(p, K(verify), ret) : -EINVAL;
}
