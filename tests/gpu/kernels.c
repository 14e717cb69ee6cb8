/* gpu-kernels: every op of every type, also over axes and of sparse rows, and moves, launched by themselves
 * and compared with the oracle bit by bit. One process and no tuttid, so that compute-sanitizer can watch
 * each access. TAP. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backends/cuda/kernels-image.h"
#include "backends/cuda/kernels-sparse.h"
#include "card.h"
#include "oracle.h"

#define N_RANKS 3

static CUmodule module;
static CUstream stream;
static int n_points, n_failed;

static void *must_alloc(size_t n_bytes) {
        void *p = malloc(n_bytes + 1);
        if (!p)
                abort();
        return p;
}

static void report(const char *what, const char *of, ptrdiff_t wrong_at) {
        n_points++;
        n_failed += wrong_at >= 0;
        printf("%s %d - gpu-kernels: %s %s\n", wrong_at >= 0 ? "not ok" : "ok", n_points, what, of);
        if (wrong_at >= 0)
                printf("#   element %td is another one\n", wrong_at);
}

static void launch(const struct cuda_launch *l) {
        CUfunction f;
        struct cuda_launch copy = *l;
        GPU(cuModuleGetFunction, &f, module, cuda_kernel_name(l->kernel));
        GPU(cuLaunchKernel, f, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2], 0,
                stream, (void *[]){ &copy.args }, NULL);
}

static CUdeviceptr device_memory(size_t n_bytes) {
        CUdeviceptr at;
        GPU(cuMemAlloc, &at, n_bytes + 1);
        return at;
}

/* Inputs of all ranks, and one output more than there are inputs would hide: two. */
struct trial {
        enum dtype dtype;
        size_t count, n_bytes;
        void *host[N_RANKS];
        uint64_t operands[N_RANKS + 2];
};

static void trial_init(struct trial *t, enum dtype dtype, size_t count) {
        *t = (struct trial){ .dtype = dtype, .count = count, .n_bytes = count * dtype_bytes(dtype) };
        for (uint32_t i = 0; i < N_RANKS + 2; i++)
                t->operands[i] = device_memory(t->n_bytes);
        for (uint32_t i = 0; i < N_RANKS; i++) {
                t->host[i] = must_alloc(t->n_bytes);
                oracle_fill(dtype, t->host[i], count, i + 7);
                GPU(cuMemcpyHtoD, t->operands[i], t->host[i], t->n_bytes);
        }
}

static void trial_deinit(struct trial *t) {
        for (uint32_t i = 0; i < N_RANKS + 2; i++)
                GPU(cuMemFree, t->operands[i]);
        for (uint32_t i = 0; i < N_RANKS; i++)
                free(t->host[i]);
}

static void run_step(const struct cuda_step *s) {
        struct cuda_launch launches[CUDA_STEP_LAUNCHES];
        int n = cuda_step_prepare(s, launches);
        if (n < 1) {
                fprintf(stderr, "gpu-kernels: there is no kernel\n");
                exit(1);
        }
        for (int i = 0; i < n; i++)
                launch(&launches[i]);
        GPU(cuStreamSynchronize, stream);
}

/* Both outputs against `expected`. */
static ptrdiff_t difference(const struct trial *t, const void *expected) {
        void *got = must_alloc(t->n_bytes);
        ptrdiff_t at = -1;
        for (uint32_t i = 0; i < 2 && at < 0; i++) {
                GPU(cuMemcpyDtoH, got, t->operands[N_RANKS + i], t->n_bytes);
                at = oracle_difference(t->dtype, got, expected, t->count);
        }
        free(got);
        return at;
}

static void reduce(struct trial *t, enum op op) {
        void *expected = must_alloc(t->n_bytes);
        oracle_reduce(op, t->dtype, (const void *const *)t->host, N_RANKS, expected, t->count, N_RANKS);
        run_step(&(struct cuda_step){ .work = CUDA_REDUCE,
                .op = op,
                .divisor = N_RANKS,
                .dtype = t->dtype,
                .output_dtype = t->dtype,
                .count = t->count,
                .n_inputs = N_RANKS,
                .n_outputs = 2,
                .operands = t->operands,
                .n_multiprocessors = 16 });
        report(op_name(op), dtype_name(t->dtype), difference(t, expected));
        free(expected);
}

static void copy(struct trial *t) {
        const uint64_t operands[] = { t->operands[0], t->operands[N_RANKS], t->operands[N_RANKS + 1] };
        run_step(&(struct cuda_step){ .work = CUDA_COPY,
                .dtype = t->dtype,
                .output_dtype = t->dtype,
                .count = t->count,
                .n_inputs = 1,
                .n_outputs = 2,
                .operands = operands,
                .n_multiprocessors = 16 });
        report("copy", dtype_name(t->dtype), difference(t, t->host[0]));
}

/* --- over axes: each input is [n, 3], and its last dimension goes --- */

#define N_FOLDED 3

static void fold(const struct trial *t, enum op op) {
        const uint64_t n = t->count / N_FOLDED, strides[] = { N_FOLDED, N_FOLDED, N_FOLDED, 1, 1 },
                       folds[] = { N_FOLDED, 1, N_FOLDED, 1, N_FOLDED, 1 };
        const size_t size = dtype_bytes(t->dtype);
        const void *chain[N_RANKS * N_FOLDED];
        uint8_t *all = must_alloc(N_RANKS * N_FOLDED * n * size), *expected = must_alloc(n * size);
        for (uint64_t c = 0; c < N_RANKS * N_FOLDED; c++) {
                chain[c] = all + c * n * size;
                for (uint64_t i = 0; i < n; i++)
                        memcpy(all + (c * n + i) * size,
                                (uint8_t *)t->host[c / N_FOLDED] + (i * N_FOLDED + c % N_FOLDED) * size,
                                size);
        }
        oracle_reduce(op, t->dtype, chain, N_RANKS * N_FOLDED, expected, n, N_RANKS * N_FOLDED);
        run_step(&(struct cuda_step){ .work = CUDA_REDUCE,
                .op = op,
                .divisor = N_RANKS * N_FOLDED,
                .dtype = t->dtype,
                .output_dtype = t->dtype,
                .count = n,
                .n_inputs = N_RANKS,
                .n_outputs = 2,
                .operands = t->operands,
                .n_dims = 1,
                .shape = &n,
                .strides = strides,
                .n_folds = 1,
                .folds = folds,
                .n_multiprocessors = 16 });
        struct trial results = *t;
        results.count = n;
        results.n_bytes = n * size;
        report("over axes", op_name(op), difference(&results, expected));
        free(all);
        free(expected);
}

/* --- sparse rows: each input has rows of 4 elements --- */

#define ROW 4

/* Their indices, and what becomes of them on the device. */
struct slices {
        uint64_t n, k; /* rows of all, and of one rank; indices are below k */
        int64_t *indices;
        CUdeviceptr given, taken, pairs[2], numbers, found, table;
        uint32_t sorted;
};

static void slices_init(struct slices *s, uint64_t k) {
        *s = (struct slices){ .k = k, .n = N_RANKS * k };
        s->indices = must_alloc(s->n * sizeof(*s->indices));
        for (uint64_t i = 0; i < s->n; i++)
                s->indices[i] = (int64_t)(i * 7919 % k * (i % 3 + 1) / 3);
        s->given = device_memory(s->n * 8);
        s->taken = device_memory(s->n * 8);
        for (int i = 0; i < 2; i++)
                s->pairs[i] = device_memory(s->n * sizeof(struct order_pair));
        s->numbers = device_memory((s->n / ORDER_BLOCK + 1) * 8);
        s->found = device_memory(64); /* a bad index, then the length at 32, then the word that stops at 40 */
        s->table = device_memory(cuda_join_table_bytes(N_RANKS, 2));
        GPU(cuMemcpyHtoD, s->given, s->indices, s->n * 8);
        GPU(cuMemsetD8, s->found, 0, 64);
}

static void slices_deinit(struct slices *s) {
        const CUdeviceptr all[] = { s->given, s->taken, s->pairs[0], s->pairs[1], s->numbers, s->found,
                s->table };
        for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
                GPU(cuMemFree, all[i]);
        free(s->indices);
}

static void run_stage(const struct slices *s, struct cuda_order order) {
        struct cuda_launch l;
        order.dtype = DTYPE_I64;
        order.abort = order.stop = s->found + 40;
        order.numbers = s->numbers;
        order.n_multiprocessors = 16;
        if (cuda_order_prepare(&order, &l) < 0)
                abort();
        launch(&l);
}

static void order_rows(struct slices *s) {
        struct cuda_launch l[CUDA_INDICES_LAUNCHES];
        const struct cuda_indices take = { .dtype = DTYPE_I64,
                .from = s->given,
                .to = s->taken,
                .n = s->n,
                .bound = s->k,
                .found = s->found,
                .stop = s->found + 40,
                .n_multiprocessors = 16 };
        for (int i = 0, n = cuda_indices_prepare(&take, l); i < n; i++)
                launch(&l[i]);
        run_stage(s,
                (struct cuda_order){ .stage = ORDER_SORT, .from = s->taken, .to = s->pairs[0], .n = s->n });
        for (uint64_t run = ORDER_BLOCK; run < s->n; run *= 2, s->sorted = 1 - s->sorted)
                run_stage(s, (struct cuda_order){ .stage = ORDER_MERGE,
                                     .from = s->pairs[s->sorted],
                                     .to = s->pairs[1 - s->sorted],
                                     .n = s->n,
                                     .run = run });
        run_stage(s, (struct cuda_order){ .stage = ORDER_COUNT, .from = s->pairs[s->sorted], .n = s->n });
        run_stage(s, (struct cuda_order){ .stage = ORDER_NUMBER,
                             .n = (s->n + ORDER_BLOCK - 1) / ORDER_BLOCK,
                             .room = s->k,
                             .found = s->found + 32 });
}

static void join_rows(const struct trial *t, const struct slices *s, enum op op) {
        struct cuda_launch l[CUDA_JOIN_LAUNCHES];
        struct cuda_half_rows halves[N_RANKS];
        uint64_t table[5 * N_RANKS + 5];
        const uint64_t n_bytes = cuda_join_table_bytes(N_RANKS, 2), strides[] = { ROW, ROW };
        for (uint32_t i = 0; i < N_RANKS; i++)
                halves[i] = (struct cuda_half_rows){ t->operands[i], i * s->k, ROW * dtype_bytes(t->dtype) };
        const struct cuda_join join = { .op = op,
                .dtype = t->dtype,
                .divisor = N_RANKS,
                .pairs = s->pairs[s->sorted],
                .numbers = s->numbers,
                .places = s->pairs[1 - s->sorted],
                .n_pairs = s->n,
                .row_elements = ROW,
                .room = s->k,
                .halves = halves,
                .n_halves = N_RANKS,
                .n_outputs = 2,
                .outputs = &t->operands[N_RANKS],
                .strides = strides,
                .table = table,
                .table_at = s->table,
                .abort = s->found + 40,
                .n_multiprocessors = 16 };
        int n = n_bytes <= sizeof(table) ? cuda_join_prepare(&join, l) : 0;
        if (n < 1)
                abort();
        GPU(cuMemcpyHtoD, s->table, table, n_bytes);
        for (int i = 0; i < n; i++)
                launch(&l[i]);
        GPU(cuStreamSynchronize, stream);
}

/* Rows of equal index, in the order of their positions; how many there are. */
static uint64_t expect_rows(const struct trial *t, const struct slices *s, enum op op, uint8_t *expected) {
        const size_t row_bytes = ROW * dtype_bytes(t->dtype);
        const void **met = must_alloc(s->n * sizeof(*met));
        uint64_t *next = must_alloc(s->n * sizeof(*next)), *first = must_alloc(s->k * sizeof(*first)), n = 0;
        for (uint64_t i = 0; i < s->k; i++)
                first[i] = UINT64_MAX;
        for (uint64_t i = s->n; i-- > 0;) {
                next[i] = first[s->indices[i]];
                first[s->indices[i]] = i;
        }
        for (uint64_t index = 0; index < s->k; index++) {
                uint32_t n_met = 0;
                for (uint64_t i = first[index]; i != UINT64_MAX; i = next[i])
                        met[n_met++] = (uint8_t *)t->host[i / s->k] + i % s->k * row_bytes;
                if (n_met > 0)
                        oracle_reduce(op, t->dtype, met, n_met, expected + n++ * row_bytes, ROW, N_RANKS);
        }
        free(met);
        free(next);
        free(first);
        return n;
}

static void sparse_rows(const struct trial *t) {
        static const enum op ops[] = { OP_SUM, OP_MEAN, OP_MIN, OP_MAX };
        struct trial results = *t;
        struct slices s;
        slices_init(&s, t->count / ROW);
        order_rows(&s);
        for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
                uint8_t *expected = must_alloc(t->n_bytes);
                if (t->dtype != DTYPE_BOOL && op_is_supported(ops[i], t->dtype)) {
                        join_rows(t, &s, ops[i]);
                        results.count = expect_rows(t, &s, ops[i], expected) * ROW;
                        results.n_bytes = results.count * dtype_bytes(t->dtype);
                        report("sparse rows", op_name(ops[i]), difference(&results, expected));
                }
                free(expected);
        }
        slices_deinit(&s);
}

int main(void) {
        setvbuf(stdout, NULL, _IOLBF, 0);
        gpu_begin();
        GPU(cuModuleLoadData, &module, tuttid_cuda_fatbin);
        stream = gpu_stream();
        for (enum dtype d = DTYPE_U8; d < N_DTYPE; d++) {
                struct trial t;
                trial_init(&t, d, gpu_size(50021, 501));
                for (enum op op = OP_SUM; op < N_OP; op++)
                        if (op_is_supported(op, d)) {
                                reduce(&t, op);
                                fold(&t, op);
                        }
                copy(&t);
                sparse_rows(&t);
                trial_deinit(&t);
        }
        GPU(cuModuleUnload, module);
        printf("1..%d\n", n_points);
        return n_failed != 0;
}
