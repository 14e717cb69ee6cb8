/* gpu-kernels: every op of every type, and moves, launched by themselves and compared with the oracle bit by
 * bit. One process and no tuttid, so that compute-sanitizer can watch each access. TAP. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backends/cuda/kernels-image.h"
#include "backends/cuda/kernels.h"
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

int main(void) {
        setvbuf(stdout, NULL, _IOLBF, 0);
        gpu_begin();
        GPU(cuModuleLoadData, &module, tuttid_cuda_fatbin);
        stream = gpu_stream();
        for (enum dtype d = DTYPE_U8; d < N_DTYPE; d++) {
                struct trial t;
                trial_init(&t, d, gpu_size(50021, 501));
                for (enum op op = OP_SUM; op < N_OP; op++)
                        if (op_is_supported(op, d))
                                reduce(&t, op);
                copy(&t);
                trial_deinit(&t);
        }
        GPU(cuModuleUnload, module);
        printf("1..%d\n", n_points);
        return n_failed != 0;
}
