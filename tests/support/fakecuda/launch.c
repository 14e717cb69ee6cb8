/* Launches: the parameters are copied by the call, the grid runs when its turn in the stream has come. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "kernel.h"

enum { MAX_THREADS = 1024, MAX_SHARED = 48 << 10, ALIGNMENT = 16, LOWEST_POINTER_BIT = 40 };

struct launch {
        struct fake_work work;
        const struct fake_kernel *kernel;
        uint32_t grid[3], block[3];
        char *bytes; /* the parameters, each aligned */
        const void **args;
};

/* --- does it see what it is given? --- */

/* A number that can hardly be anything but an address of this process: a host pointer that no device knows.
 */
static bool is_host_pointer(uint64_t word) {
        unsigned char vector;
        if (word >> LOWEST_POINTER_BIT == 0 || word >> 47)
                return false;
        return mincore((void *)(uintptr_t)(word & ~((uint64_t)FAKE_PAGE - 1)), 1, &vector) == 0;
}

static bool may_read(uint64_t word, int physical) {
        const struct fake_range *range = fake_range_find(word);
        return range ? fake_range_allows(range, physical, FAKE_READ) : !is_host_pointer(word);
}

/* Looks at every word of the parameters that could be a pointer. */
static bool sees_all(const struct launch *l) {
        int physical = l->work.stream->context->physical;
        for (uint32_t i = 0; i < l->kernel->n_args; i++)
                for (uint32_t at = 0; at + 8 <= l->kernel->arg_bytes[i]; at += 8) {
                        uint64_t word;
                        memcpy(&word, (const char *)l->args[i] + at, 8);
                        if (!may_read(word, physical))
                                return false;
                }
        return true;
}

static void run_kernel(void *argument) {
        const struct launch *l = argument;
        l->kernel->run(l->args, l->grid, l->block);
}

static void run_launch(struct fake_work *work) {
        const struct launch *l = (const struct launch *)work;
        pthread_mutex_lock(&fake.lock);
        bool is_good = sees_all(l);
        pthread_mutex_unlock(&fake.lock);
        if (is_good)
                fake_guarded(run_kernel, work);
        else
                fake_stick(CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void free_launch(struct fake_work *work) {
        free(((struct launch *)work)->bytes);
        free(((struct launch *)work)->args);
}

/* --- the call --- */

static struct launch *new_launch(const struct fake_kernel *kernel, void **params) {
        struct launch *l = calloc(1, sizeof(*l));
        size_t n_bytes = ALIGNMENT, at = 0;
        for (uint32_t i = 0; i < kernel->n_args; i++)
                n_bytes += kernel->arg_bytes[i] + ALIGNMENT;
        if (!l)
                return NULL;
        l->bytes = aligned_alloc(ALIGNMENT, n_bytes & ~(size_t)(ALIGNMENT - 1));
        l->args = calloc(kernel->n_args + 1, sizeof(*l->args));
        if (!l->bytes || !l->args) {
                free_launch(&l->work);
                free(l);
                return NULL;
        }
        for (uint32_t i = 0; i < kernel->n_args; i++) {
                l->args[i] = l->bytes + at;
                memcpy(l->bytes + at, params[i], kernel->arg_bytes[i]);
                at += (kernel->arg_bytes[i] + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
        }
        l->kernel = kernel;
        l->work.run = run_launch;
        l->work.free = free_launch;
        return l;
}

static CUresult check_shape(const CUlaunchConfig *c, const struct fake_function *f) {
        uint64_t n_threads = (uint64_t)c->blockDimX * c->blockDimY * c->blockDimZ;
        if (!n_threads || !c->gridDimX || !c->gridDimY || !c->gridDimZ || c->gridDimX > INT32_MAX ||
                c->gridDimY > 65535 || c->gridDimZ > 65535 || c->blockDimZ > 64 || n_threads > MAX_THREADS)
                return CUDA_ERROR_INVALID_VALUE;
        unsigned int limit = f->max_dynamic_bytes ? (unsigned int)f->max_dynamic_bytes : MAX_SHARED;
        return c->sharedMemBytes > limit ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult launch(const CUlaunchConfig *c, CUfunction function, void **params, enum fake_call call) {
        const struct fake_function *f = fake_handle_find(FAKE_FUNCTION, function);
        struct fake_stream *s = fake_stream_find(c->hStream);
        if (!f || !s || (f->context && f->context != s->context))
                return CUDA_ERROR_INVALID_HANDLE;
        if (f->kernel->n_args && !params)
                return CUDA_ERROR_INVALID_VALUE;
        CUresult r = check_shape(c, f);
        if (r != CUDA_SUCCESS)
                return r;
        struct launch *l = new_launch(f->kernel, params);
        if (!l)
                return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(l->grid, (uint32_t[]){ c->gridDimX, c->gridDimY, c->gridDimZ }, sizeof(l->grid));
        memcpy(l->block, (uint32_t[]){ c->blockDimX, c->blockDimY, c->blockDimZ }, sizeof(l->block));
        return fake_stream_add(s, &l->work, call);
}

/* The signature is the driver's. */
CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
        unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z,
        unsigned int shared_bytes, CUstream stream, void **params, void **extra) {
        CUresult r = fake_enter(CALL_cuLaunchKernel, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        if (extra)
                return fake_leave(params ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED);
        CUlaunchConfig c = { .gridDimX = grid_x,
                .gridDimY = grid_y,
                .gridDimZ = grid_z,
                .blockDimX = block_x,
                .blockDimY = block_y,
                .blockDimZ = block_z,
                .sharedMemBytes = shared_bytes,
                .hStream = stream };
        return fake_leave(launch(&c, function, params, CALL_cuLaunchKernel));
}

CUresult CUDAAPI cuLaunchKernelEx(
        const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
        CUresult r = fake_enter(CALL_cuLaunchKernelEx, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        if (!config || extra)
                return fake_leave(config ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE);
        return fake_leave(launch(config, function, params, CALL_cuLaunchKernelEx));
}
