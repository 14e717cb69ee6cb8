/* Waiting for, and writing, values in memory, as steps of a stream. */
#include "fake.h"

#include <stdlib.h>

struct value_work {
        struct fake_work work;
        uintptr_t address;
        uint64_t value;
        unsigned int flags;
        unsigned int n_bytes;
};

static uint64_t load(const struct value_work *w) {
        if (w->n_bytes == 8)
                return atomic_load((_Atomic uint64_t *)w->address);
        return atomic_load((_Atomic uint32_t *)w->address);
}

static bool is_reached(struct fake_work *work) {
        const struct value_work *w = (const struct value_work *)work;
        if (!fake_range_find(w->address)) { /* it was freed under the wait */
                fake_stick_locked(CUDA_ERROR_ILLEGAL_ADDRESS);
                return false;
        }
        uint64_t now = load(w), mask = w->n_bytes == 8 ? UINT64_MAX : UINT32_MAX;
        switch (w->flags & 3) {
        case CU_STREAM_WAIT_VALUE_EQ: return now == w->value;
        case CU_STREAM_WAIT_VALUE_AND: return (now & w->value) != 0;
        case CU_STREAM_WAIT_VALUE_NOR: return (~(now | w->value) & mask) != 0;
        default: /* greater or equal, in a circle */
                return w->n_bytes == 8 ? (int64_t)(now - w->value) >= 0
                                       : (int32_t)(uint32_t)(now - w->value) >= 0;
        }
}

/* Faults where the memory is gone. The thread sanitizer holds a lock over an atomic store, which whoever
 * jumps out of one leaves behind, and the next who writes there waits for it for ever: so this comes first,
 * unseen by it. */
__attribute__((no_sanitize("thread"), noinline)) static void touch(uintptr_t address) {
        (void)*(const volatile uint8_t *)address; /* NOLINT(performance-no-int-to-ptr) */
}

static void write_now(void *argument) {
        const struct value_work *w = argument;
        touch(w->address);
        if (w->n_bytes == 8)
                atomic_store((_Atomic uint64_t *)w->address, w->value);
        else
                atomic_store((_Atomic uint32_t *)w->address, (uint32_t)w->value);
}

static void run_write(struct fake_work *work) {
        fake_guarded(write_now, work);
}

/* Whether the stream's device may do it. */
static CUresult check(const struct fake_stream *s, const struct value_work *like, enum fake_use use) {
        unsigned int known = use == FAKE_WRITE ? CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER : 3;
        const struct fake_range *range = fake_range_find(like->address);
        if (!fake.has_memops)
                return CUDA_ERROR_NOT_SUPPORTED;
        if (!s)
                return CUDA_ERROR_INVALID_HANDLE;
        if ((like->flags & ~known) || like->address % like->n_bytes || !range ||
                range->base + range->n_bytes - like->address < like->n_bytes ||
                !fake_range_allows(range, s->context->physical, use))
                return CUDA_ERROR_INVALID_VALUE;
        return CUDA_SUCCESS;
}

static CUresult submit(
        CUstream stream, const struct value_work *like, enum fake_use use, enum fake_call call) {
        struct fake_stream *s = fake_stream_find(stream);
        CUresult r = check(s, like, use);
        if (r != CUDA_SUCCESS)
                return r;
        struct value_work *w = malloc(sizeof(*w));
        if (!w)
                return CUDA_ERROR_OUT_OF_MEMORY;
        *w = *like;
        w->work = (struct fake_work){ .polls = use == FAKE_READ };
        if (use == FAKE_READ)
                w->work.is_ready = is_reached;
        else
                w->work.run = run_write;
        return fake_stream_add(s, &w->work, call);
}

CUresult CUDAAPI cuStreamWaitValue32(
        CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
        CUresult r = fake_enter(CALL_cuStreamWaitValue32, FAKE_CONTEXT);
        struct value_work w = { .address = address, .value = value, .flags = flags, .n_bytes = 4 };
        return r != CUDA_SUCCESS ? r : fake_leave(submit(stream, &w, FAKE_READ, CALL_cuStreamWaitValue32));
}

CUresult CUDAAPI cuStreamWaitValue64(
        CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
        CUresult r = fake_enter(CALL_cuStreamWaitValue64, FAKE_CONTEXT);
        struct value_work w = { .address = address, .value = value, .flags = flags, .n_bytes = 8 };
        return r != CUDA_SUCCESS ? r : fake_leave(submit(stream, &w, FAKE_READ, CALL_cuStreamWaitValue64));
}

CUresult CUDAAPI cuStreamWriteValue32(
        CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
        CUresult r = fake_enter(CALL_cuStreamWriteValue32, FAKE_CONTEXT);
        struct value_work w = { .address = address, .value = value, .flags = flags, .n_bytes = 4 };
        return r != CUDA_SUCCESS ? r : fake_leave(submit(stream, &w, FAKE_WRITE, CALL_cuStreamWriteValue32));
}

CUresult CUDAAPI cuStreamWriteValue64(
        CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
        CUresult r = fake_enter(CALL_cuStreamWriteValue64, FAKE_CONTEXT);
        struct value_work w = { .address = address, .value = value, .flags = flags, .n_bytes = 8 };
        return r != CUDA_SUCCESS ? r : fake_leave(submit(stream, &w, FAKE_WRITE, CALL_cuStreamWriteValue64));
}

/* --- several at once --- */

static bool is_write(CUstreamBatchMemOpType type) {
        return type == CU_STREAM_MEM_OP_WRITE_VALUE_32 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

/* false: an operation that the fake has not */
static bool translate(const CUstreamBatchMemOpParams *p, struct value_work *ret) {
        bool is_64 = p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                     p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        if (!is_64 && p->operation != CU_STREAM_MEM_OP_WAIT_VALUE_32 && !is_write(p->operation))
                return false;
        *ret = (struct value_work){ .n_bytes = is_64 ? 8 : 4 };
        if (is_write(p->operation)) {
                ret->address = p->writeValue.address;
                ret->value = is_64 ? p->writeValue.value64 : p->writeValue.value;
                ret->flags = p->writeValue.flags;
        } else {
                ret->address = p->waitValue.address;
                ret->value = is_64 ? p->waitValue.value64 : p->waitValue.value;
                ret->flags = p->waitValue.flags;
        }
        return true;
}

CUresult CUDAAPI cuStreamBatchMemOp(
        CUstream stream, unsigned int n, CUstreamBatchMemOpParams *ops, unsigned int flags) {
        CUresult r = fake_enter(CALL_cuStreamBatchMemOp, FAKE_CONTEXT);
        if (r != CUDA_SUCCESS)
                return r;
        if (flags || n > 256 || (n && !ops))
                return fake_leave(CUDA_ERROR_INVALID_VALUE);
        const struct fake_stream *s = fake_stream_find(stream);
        struct value_work w;
        for (unsigned int i = 0; i < n && r == CUDA_SUCCESS; i++)
                r = translate(&ops[i], &w) ? check(s, &w, is_write(ops[i].operation) ? FAKE_WRITE : FAKE_READ)
                                           : CUDA_ERROR_NOT_SUPPORTED;
        for (unsigned int i = 0; i < n && r == CUDA_SUCCESS; i++) {
                (void)translate(&ops[i], &w);
                r = submit(stream, &w, is_write(ops[i].operation) ? FAKE_WRITE : FAKE_READ,
                        CALL_cuStreamBatchMemOp);
        }
        return fake_leave(r);
}
