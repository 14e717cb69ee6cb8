/* libtutti and the memory of NVIDIA GPUs.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *     struct tutti_buffer *b;
 *     tutti_cuda_buffer_register(t, device_pointer, n_bytes, NULL, &b);
 *     struct tutti_value v = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F32, .n_dims = 1, .shape = { n });
 *     tutti_all_reduce_start(g, "grads", TUTTI_MEAN, &v, &v,
 *             &TUTTI_OPTIONS(.has_stream = 1, .stream = stream), &work);
 *
 * Needs no CUDA to include or to link: the driver (libcuda.so.1) is opened by the first of these calls. A
 * buffer of device memory goes wherever a buffer goes; one collective may have values on several GPUs and on
 * the host. What computes is tuttid's GPU worker, in a process of its own, and the numbers are those of the
 * host.
 *
 * Who computes on a stream says which (tutti_options.stream). tutti_cuda_order tells what that means here:
 *
 *   TUTTI_CUDA_TIMELINE
 *           the call returns at once. The values are read when the stream gets there, and what is put into
 *           the stream afterwards runs when the result is there. The thread need not wait; the work still
 *           says how it ended, and whether the result may be used. It is freed like any other.
 *   TUTTI_CUDA_EVENTS
 *           the call returns at once, and the values are read when the stream gets there. What is put into
 *           the stream afterwards finds the result once tutti_cuda_follow has said OK, which it does as soon
 *           as the collective is on its way on the devices; or once tutti_work_wait has.
 *   TUTTI_CUDA_HOST
 *           the call waits for the stream, then submits. The result is there when tutti_work_wait (_test,
 *           _result) has said OK: put nothing into the stream before that which reads it.
 *
 * tutti_cuda_follow before what reads the result is right with all three. A buffer whose path is
 * TUTTI_CUDA_STAGED is always TUTTI_CUDA_HOST. Without a stream the values are taken as they are at the time
 * of the call, and the result is there as in TUTTI_CUDA_HOST.
 *
 * A stream that waits is never left: when the collective ends otherwise than with OK, the stream goes on as
 * well, with outputs as the status says. If tuttid dies, it goes on when the process next calls any function
 * of libtutti with this connection. With TUTTI_CUDA_EVENTS a stream that follows a collective waits for the
 * event of another process, tuttid-gpu: should that die in between, CUDA promises nothing, and the stream may
 * stand until its context is destroyed (the work says DEVICE_LOST). */
#ifndef TUTTI_CUDA_H
#define TUTTI_CUDA_H

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How tuttid reaches the memory, best first. */
enum tutti_cuda_path {
        TUTTI_CUDA_AUTO = 0, /* the best that there is */
        TUTTI_CUDA_VMM_MADE, /* made by tuttid (tutti_cuda_buffer_alloc) */
        TUTTI_CUDA_VMM_FD,   /* the caller's, of cuMemCreate, by its descriptor */
        TUTTI_CUDA_IPC,      /* the caller's, of cudaMalloc, by a legacy handle; where tuttid takes those */
        TUTTI_CUDA_STAGED    /* not at all: copied by libtutti to and from pinned host memory */
};

/* "vmm-made", "vmm-fd", "cuda-ipc", "host-copy", as `tuttictl status` shows them; "auto"; NULL for unknown
 * values. */
TUTTI_API const char *tutti_cuda_path_name(enum tutti_cuda_path path);

/* Device memory that tuttid makes, on the device and mapped in the context that is current in this thread; at
 * tutti_buffer_data. Counts against the user's quota mapped-bytes. INVALID: no context is current;
 * UNSUPPORTED: no driver here, or no GPU there; NOT_FOUND: tuttid does not know this device, the text lists
 * those it knows; NO_MEMORY, QUOTA. */
TUTTI_API enum tutti_status tutti_cuda_buffer_alloc(
        struct tutti *t, size_t n_bytes, struct tutti_buffer **ret);

struct tutti_cuda_args {
        size_t struct_size;
        enum tutti_access access;
        /* AUTO: by descriptor or legacy handle, whichever the memory has, and staged where tuttid does not
         * take that. Otherwise this one or none. */
        enum tutti_cuda_path path;
};
#define TUTTI_CUDA_ARGS(...)                                                                                 \
        ((struct tutti_cuda_args){ .struct_size = sizeof(struct tutti_cuda_args), __VA_ARGS__ })
TUTTI_API void tutti_cuda_args_init(struct tutti_cuda_args *args);

/* Registers n_bytes of the caller's device memory from `pointer` (a CUdeviceptr) on, which stay his and must
 * stay there until tutti_buffer_free; a collective that names memory which was freed meanwhile is INVALID.
 * `args` NULL: all defaults. Waits for tuttid's answer; in this process the pointer stays the pointer,
 * nothing is opened. INVALID: no device memory, or beyond the end of its allocation; UNSUPPORTED: the
 * allocation cannot be exported, and the text names the setting of the allocator that does that (also where
 * staging would do, because it is slow: ask for it by its path). */
TUTTI_API enum tutti_status tutti_cuda_buffer_register(struct tutti *t, void *pointer, size_t n_bytes,
        const struct tutti_cuda_args *args, struct tutti_buffer **ret);

/* Which path a buffer has; AUTO for one of host memory. *ret_why (may be NULL): why it is not a better one,
 * or ""; good while the buffer is. */
TUTTI_API enum tutti_cuda_path tutti_cuda_buffer_path(const struct tutti_buffer *b, const char **ret_why);

enum tutti_cuda_order { TUTTI_CUDA_HOST = 0, TUTTI_CUDA_TIMELINE, TUTTI_CUDA_EVENTS };

/* What a stream means on this connection; asks tuttid the first time, for the device that is current in this
 * thread. *ret_why (may be NULL): why it is not TIMELINE, or ""; good while the connection is. */
TUTTI_API enum tutti_cuda_order tutti_cuda_order(struct tutti *t, const char **ret_why);

/* "host", "timeline", "events"; NULL for unknown values. */
TUTTI_API const char *tutti_cuda_order_name(enum tutti_cuda_order order);

/* OK: what is put into the work's stream from now on finds the result, if there is one: how it ended, the
 * work says. At once with TIMELINE; with EVENTS when all halves are in, all their streams have come so far,
 * and the collective is on its way; with HOST, and for a work without a stream, when it has ended with OK,
 * and then plain outputs are in place. Otherwise PENDING (`seconds` are over; negative: no limit), CANCELLED
 * (tutti_work_cancel), or the status with which it ended. */
TUTTI_API enum tutti_status tutti_cuda_follow(struct tutti_work *w, double seconds);

#ifdef __cplusplus
}
#endif

#endif
