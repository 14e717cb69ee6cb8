/* Copies and fills. Whose memory an address is in is looked up when the call is made; what lies in pageable
 * host memory is read before the call returns, as the documentation says, and written before it returns. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

/* One side of a copy. */
struct side {
        uintptr_t address;
        int physical; /* of the device that reads or writes it */
        enum { ON_HOST, ON_DEVICE, ANYWHERE } where;
        enum fake_use use;
        int owner; /* found out: the physical device, or -1 */
        bool is_pageable;
};

struct copy {
        struct fake_work work;
        struct side to, from;
        size_t n_bytes;
        void *staged; /* a copy of what was in pageable memory */
        uint32_t value;
        size_t value_bytes; /* of a fill; 0: a copy */
};

/* Looks up what is at the address, and whether all of it may be used. */
static CUresult locate(struct side *side, size_t n_bytes) {
        struct fake_range *range = fake_range_find(side->address);
        side->owner = range ? range->owner : -1;
        side->is_pageable = !range;
        if (!range)
                return side->where == ON_DEVICE || !side->address ||
                                       fake_range_overlaps(side->address, n_bytes)
                               ? CUDA_ERROR_INVALID_VALUE
                               : CUDA_SUCCESS;
        if (side->where == ON_HOST && side->owner >= 0)
                return CUDA_ERROR_INVALID_VALUE;
        for (uintptr_t at = side->address, end = at + n_bytes; at < end; at = range->base + range->n_bytes) {
                range = fake_range_find(at);
                if (!range || !fake_range_allows(range, side->physical, side->use))
                        return CUDA_ERROR_INVALID_VALUE;
        }
        return CUDA_SUCCESS;
}

static void fill(const struct copy *c) {
        uint32_t *words = (uint32_t *)c->to.address;
        if (c->value_bytes == 1) {
                memset((void *)c->to.address, (int)c->value, c->n_bytes);
                return;
        }
        for (size_t i = 0; i < c->n_bytes / 4; i++)
                words[i] = c->value;
}

/* Whether it goes between two devices that the matrix pairs. */
static bool is_between(const struct copy *c, const uint32_t *matrix) {
        return !c->value_bytes && c->to.owner >= 0 && c->from.owner >= 0 &&
               (matrix[c->from.owner] & (1u << c->to.owner));
}

static bool never(struct fake_work *work) {
        return false;
}

static void move(void *argument) {
        const struct copy *c = argument;
        if (c->value_bytes) {
                fill(c);
                return;
        }
        memmove((void *)c->to.address, c->staged ? c->staged : (const void *)c->from.address, c->n_bytes);
        if (is_between(c, fake.corrupt))
                ((char *)c->to.address)[c->n_bytes / 2] ^= 1;
}

static void run_copy(struct fake_work *work) {
        fake_guarded(move, work);
}

static void free_copy(struct fake_work *work) {
        free(((struct copy *)work)->staged);
}

static CUresult stage(struct copy *c) {
        if (c->value_bytes || !c->from.is_pageable)
                return CUDA_SUCCESS;
        c->staged = malloc(c->n_bytes);
        if (!c->staged)
                return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(c->staged, (const void *)c->from.address, c->n_bytes);
        return CUDA_SUCCESS;
}

static CUresult add(struct fake_stream *stream, const struct copy *like, enum fake_call call) {
        struct copy *c = malloc(sizeof(*c));
        if (!c)
                return CUDA_ERROR_OUT_OF_MEMORY;
        *c = *like;
        c->work = (struct fake_work){ .run = run_copy, .free = free_copy };
        CUresult r = locate(&c->to, c->n_bytes);
        if (r == CUDA_SUCCESS && !c->value_bytes)
                r = locate(&c->from, c->n_bytes);
        if (r == CUDA_SUCCESS)
                r = stage(c);
        if (is_between(c, fake.dead))
                c->work.is_ready = never;
        bool is_synchronous = c->to.is_pageable;
        if (r == CUDA_SUCCESS)
                r = fake_stream_add(stream, &c->work, call);
        else
                free(c);
        return r == CUDA_SUCCESS && is_synchronous ? fake_stream_drain(stream) : r;
}

/* `like` without devices: they are the stream's. */
static CUresult submit(CUstream handle, struct copy like, enum fake_call call) {
        struct fake_stream *stream = fake_stream_find(handle);
        if (!stream)
                return CUDA_ERROR_INVALID_HANDLE;
        if (!like.n_bytes)
                return CUDA_SUCCESS;
        if (like.to.physical < 0)
                like.to.physical = stream->context->physical;
        if (like.from.physical < 0)
                like.from.physical = stream->context->physical;
        return add(stream, &like, call);
}

static CUresult submit_and_wait(struct copy like, enum fake_call call) {
        CUresult r = submit(NULL, like, call);
        return r == CUDA_SUCCESS ? fake_stream_drain(fake_current()->null_stream) : r;
}

static struct copy copy_of(struct side to, struct side from, size_t n_bytes) {
        to.use = FAKE_WRITE;
        from.use = FAKE_READ;
        return (struct copy){ .to = to, .from = from, .n_bytes = n_bytes };
}

static struct side on_device(CUdeviceptr address) {
        return (struct side){ .address = address, .physical = -1, .where = ON_DEVICE };
}

static struct side on_host(const void *address) {
        return (struct side){ .address = (uintptr_t)address, .physical = -1, .where = ON_HOST };
}

static struct side anywhere(CUdeviceptr address) {
        return (struct side){ .address = address, .physical = -1, .where = ANYWHERE };
}

/* --- copies --- */

CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream) {
        CUresult r = fake_enter(CALL_cuMemcpyAsync, FAKE_CONTEXT);
        return r != CUDA_SUCCESS ? r
                                 : fake_leave(submit(stream, copy_of(anywhere(to), anywhere(from), n),
                                           CALL_cuMemcpyAsync));
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t n, CUstream stream) {
        CUresult r = fake_enter(CALL_cuMemcpyHtoDAsync, FAKE_CONTEXT);
        return r != CUDA_SUCCESS ? r
                                 : fake_leave(submit(stream, copy_of(on_device(to), on_host(from), n),
                                           CALL_cuMemcpyHtoDAsync));
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t n, CUstream stream) {
        CUresult r = fake_enter(CALL_cuMemcpyDtoHAsync, FAKE_CONTEXT);
        return r != CUDA_SUCCESS ? r
                                 : fake_leave(submit(stream, copy_of(on_host(to), on_device(from), n),
                                           CALL_cuMemcpyDtoHAsync));
}

CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream) {
        CUresult r = fake_enter(CALL_cuMemcpyDtoDAsync, FAKE_CONTEXT);
        return r != CUDA_SUCCESS ? r
                                 : fake_leave(submit(stream, copy_of(on_device(to), on_device(from), n),
                                           CALL_cuMemcpyDtoDAsync));
}

CUresult CUDAAPI cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n) {
        CUresult r = fake_enter(CALL_cuMemcpy, FAKE_CONTEXT);
        return r != CUDA_SUCCESS
                       ? r
                       : fake_leave(submit_and_wait(copy_of(anywhere(to), anywhere(from), n), CALL_cuMemcpy));
}

CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t n) {
        CUresult r = fake_enter(CALL_cuMemcpyHtoD, FAKE_CONTEXT);
        return r != CUDA_SUCCESS ? r
                                 : fake_leave(submit_and_wait(
                                           copy_of(on_device(to), on_host(from), n), CALL_cuMemcpyHtoD));
}

CUresult CUDAAPI cuMemcpyDtoH(void *to, CUdeviceptr from, size_t n) {
        CUresult r = fake_enter(CALL_cuMemcpyDtoH, FAKE_CONTEXT);
        return r != CUDA_SUCCESS ? r
                                 : fake_leave(submit_and_wait(
                                           copy_of(on_host(to), on_device(from), n), CALL_cuMemcpyDtoH));
}

CUresult CUDAAPI cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t n) {
        CUresult r = fake_enter(CALL_cuMemcpyDtoD, FAKE_CONTEXT);
        return r != CUDA_SUCCESS ? r
                                 : fake_leave(submit_and_wait(
                                           copy_of(on_device(to), on_device(from), n), CALL_cuMemcpyDtoD));
}

/* Between contexts: each side by its own device, whether they are peers or not. */
static CUresult peer_copy(struct copy *ret, CUcontext to, CUcontext from) {
        const struct fake_context *there = fake_context_find(to), *here = fake_context_find(from);
        if (!there || !here)
                return CUDA_ERROR_INVALID_CONTEXT;
        ret->to.physical = there->physical;
        ret->from.physical = here->physical;
        return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
        CUcontext from_context, size_t n, CUstream stream) {
        CUresult r = fake_enter(CALL_cuMemcpyPeerAsync, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        struct copy c = copy_of(on_device(to), on_device(from), n);
        r = peer_copy(&c, to_context, from_context);
        return fake_leave(r == CUDA_SUCCESS ? submit(stream, c, CALL_cuMemcpyPeerAsync) : r);
}

CUresult CUDAAPI cuMemcpyPeer(
        CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t n) {
        CUresult r = fake_enter(CALL_cuMemcpyPeer, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        struct copy c = copy_of(on_device(to), on_device(from), n);
        r = peer_copy(&c, to_context, from_context);
        return fake_leave(r == CUDA_SUCCESS ? submit_and_wait(c, CALL_cuMemcpyPeer) : r);
}

/* --- fills --- */

static struct copy fill_of(CUdeviceptr to, uint32_t value, size_t n, size_t value_bytes) {
        struct copy c = copy_of(on_device(to), on_device(to), n * value_bytes);
        c.value = value;
        c.value_bytes = value_bytes;
        return c;
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream stream) {
        CUresult r = fake_enter(CALL_cuMemsetD8Async, FAKE_CONTEXT);
        return r != CUDA_SUCCESS ? r
                                 : fake_leave(submit(stream, fill_of(to, value, n, 1), CALL_cuMemsetD8Async));
}

CUresult CUDAAPI cuMemsetD8(CUdeviceptr to, unsigned char value, size_t n) {
        CUresult r = fake_enter(CALL_cuMemsetD8, FAKE_CONTEXT);
        return r != CUDA_SUCCESS ? r : fake_leave(submit_and_wait(fill_of(to, value, n, 1), CALL_cuMemsetD8));
}

CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t n, CUstream stream) {
        CUresult r = fake_enter(CALL_cuMemsetD32Async, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        return fake_leave(to % 4 ? CUDA_ERROR_INVALID_VALUE
                                 : submit(stream, fill_of(to, value, n, 4), CALL_cuMemsetD32Async));
}

CUresult CUDAAPI cuMemsetD32(CUdeviceptr to, unsigned int value, size_t n) {
        CUresult r = fake_enter(CALL_cuMemsetD32, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        return fake_leave(to % 4 ? CUDA_ERROR_INVALID_VALUE
                                 : submit_and_wait(fill_of(to, value, n, 4), CALL_cuMemsetD32));
}
