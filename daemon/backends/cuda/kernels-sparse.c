#include "backends/cuda/kernels-sparse.h"

#include <errno.h>
#include <string.h>
#include "model/rankset.h"

_Static_assert(CUDA_ORDER_BLOCK == ORDER_BLOCK, "host and GPUs count rows by the same blocks");
_Static_assert(sizeof(struct cuda_pair) == sizeof(struct order_pair), "pairs lie in the plan's scratch");
_Static_assert(sizeof(struct cuda_row_place) == sizeof(struct order_pair), "and so do the places of rows");

#define K(name) CUDA_KERNEL_##name

static uint64_t blocks_for(uint64_t n_threads) {
        return n_threads / CUDA_BLOCK + (n_threads % CUDA_BLOCK > 0);
}

static bool is_index(enum dtype dtype) {
        return dtype == DTYPE_I32 || dtype == DTYPE_I64;
}

/* --- indices --- */

int cuda_indices_prepare(const struct cuda_indices *s, struct cuda_launch ret[CUDA_INDICES_LAUNCHES]) {
        if (!is_index(s->dtype) || s->n == 0)
                return -EINVAL;
        for (int i = 0; i < CUDA_INDICES_LAUNCHES; i++) {
                ret[i].kernel = i ? K(tell_index) : K(take_indices);
                ret[i].args.indices = (struct cuda_indices_args){ .abort = s->abort,
                        .from = s->from,
                        .to = s->to,
                        .found = s->found,
                        .stop = s->stop,
                        .n = s->n,
                        .bound = s->bound,
                        .index_bytes = dtype_bytes(s->dtype) };
                cuda_launch_set_grid(&ret[i], i ? 1 : blocks_for(s->n), s->n_multiprocessors);
        }
        return CUDA_INDICES_LAUNCHES;
}

/* --- order --- */

/* Threads that have something to do. */
static uint64_t order_threads(const struct cuda_order *s) {
        switch (s->stage) {
        case ORDER_SORT:
        case ORDER_MERGE: return s->n;
        case ORDER_COUNT: return s->n / CUDA_ORDER_BLOCK + 1;
        case ORDER_NUMBER: return 1;
        case ORDER_WRITE: return s->n / CUDA_ORDER_STRIP + 1;
        }
        return 0;
}

int cuda_order_prepare(const struct cuda_order *s, struct cuda_launch *ret) {
        static const enum cuda_kernel kernels[] = {
                [ORDER_SORT] = K(order_sort),
                [ORDER_MERGE] = K(order_merge),
                [ORDER_COUNT] = K(order_count),
                [ORDER_NUMBER] = K(order_number),
                [ORDER_WRITE] = K(order_write),
        };
        bool has_indices = s->stage == ORDER_SORT || s->stage == ORDER_WRITE;
        if ((has_indices && !is_index(s->dtype)) || (s->stage == ORDER_MERGE && s->run == 0))
                return -EINVAL;
        ret->kernel = kernels[s->stage];
        ret->args.order = (struct cuda_order_args){ .abort = s->abort,
                .stop = s->stop,
                .from = s->from,
                .to = s->to,
                .numbers = s->numbers,
                .found = s->found,
                .n = s->n,
                .run = s->run,
                .room = s->room,
                .table = s->table,
                .n_table = s->n_table,
                .index_bytes = has_indices ? dtype_bytes(s->dtype) : 0 };
        cuda_launch_set_grid(ret, blocks_for(order_threads(s)), s->n_multiprocessors);
        return 0;
}

/* --- rows --- */

#define J(name) CUDA_KERNEL_joined_##name
#define INTEGER_ROW(type, bits)                                                                              \
        { [OP_SUM] = J(sum_##bits), [OP_MIN] = J(min_##type), [OP_MAX] = J(max_##type) }
#define FLOAT_ROW(type)                                                                                      \
        {                                                                                                    \
                [OP_SUM] = J(sum_##type), [OP_MEAN] = J(mean_##type), [OP_MIN] = J(min_##type),              \
                [OP_MAX] = J(max_##type)                                                                     \
        }
#define COMPLEX_ROW(type)                                                                                    \
        { [OP_SUM] = J(sum_##type), [OP_MEAN] = J(mean_##type) }

static const enum cuda_kernel joining[N_DTYPE][N_OP] = {
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
        [DTYPE_C64] = COMPLEX_ROW(c64),
        [DTYPE_C128] = COMPLEX_ROW(c128),
};

static uint64_t n_half_words(uint32_t n_halves) {
        return n_halves * (sizeof(struct cuda_half_rows) / sizeof(uint64_t));
}

/* Halves, then the words of the joining kernel: places, outputs, strides. */
uint64_t cuda_join_table_bytes(uint32_t n_halves, uint32_t n_outputs) {
        return (n_half_words(n_halves) + 1 + 2 * (uint64_t)n_outputs) * sizeof(uint64_t);
}

static void fill_table(const struct cuda_join *s) {
        uint64_t *words = s->table + n_half_words(s->n_halves);
        memcpy(s->table, s->halves, s->n_halves * sizeof(*s->halves));
        *words++ = s->places;
        memcpy(words, s->outputs, s->n_outputs * sizeof(*words));
        memcpy(words + s->n_outputs, s->strides, s->n_outputs * sizeof(*words));
}

static void prepare_places(const struct cuda_join *s, struct cuda_launch *ret) {
        ret->kernel = K(order_place);
        ret->args.order = (struct cuda_order_args){ .abort = s->abort,
                .from = s->pairs,
                .to = s->places,
                .numbers = s->numbers,
                .n = s->n_pairs,
                .table = s->table_at,
                .n_table = s->n_halves };
        cuda_launch_set_grid(ret, blocks_for(s->n_pairs / CUDA_ORDER_STRIP + 1), s->n_multiprocessors);
}

int cuda_join_prepare(const struct cuda_join *s, struct cuda_launch ret[CUDA_JOIN_LAUNCHES]) {
        enum cuda_kernel kernel =
                s->dtype < N_DTYPE && s->op < N_OP ? joining[s->dtype][s->op] : CUDA_KERNEL_NONE;
        uint64_t count;
        if (kernel == CUDA_KERNEL_NONE || s->n_halves == 0 || s->n_halves > MAX_WORLD || s->n_outputs == 0 ||
                s->n_outputs > MAX_WORLD || (s->op == OP_MEAN && s->divisor == 0) || s->row_elements == 0 ||
                __builtin_mul_overflow(s->n_pairs, s->row_elements, &count))
                return -EINVAL;
        fill_table(s);
        prepare_places(s, &ret[0]);
        ret[1].kernel = kernel;
        ret[1].args.elements = (struct cuda_args){ .count = count,
                .abort = s->abort,
                .table = s->table_at + n_half_words(s->n_halves) * sizeof(uint64_t),
                .n_inputs = 1,
                .n_outputs = s->n_outputs,
                .divisor = s->op == OP_MEAN ? s->divisor : 0,
                .row_elements = s->row_elements,
                .room = s->room };
        cuda_launch_set_grid(&ret[1], blocks_for(count), s->n_multiprocessors);
        return CUDA_JOIN_LAUNCHES;
}
