/* The cuda backend: the GPUs of the host, their memory and the work on them. Lives in tuttid-gpu, on one
 * thread, which gives the work of all groups one order on every device.
 *
 * It never waits for a device, but in cuda_backend_new (the self-test) and where memory is made, imported and
 * let go. A call of the driver may hang all the same: who supervises the process ends it then. An error that
 * the driver keeps ends it too: cuda_backend_broken says so, and every run that was under way is DEVICE_LOST. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "backends/backend.h"
#include "backends/gpu-report.h"
#include "base/check.h"
#include "base/text.h"

struct cuda_options {
        const char *driver_path;  /* NULL: libcuda.so.1, where the loader finds it */
        const char *library_path; /* of NCCL; NULL: libnccl.so.2; "": none */
        bool takes_ipc;           /* legacy handles, which are no capabilities, are taken */
        uint64_t test_limit_ns;   /* for each device and path of the self-test; 0: 3 s */
        uint64_t library_limit_ns; /* for a collective of the library; 0: 60 s */
        uint64_t (*now_ns)(void);  /* the clock of started_ns, done_ns and limits */
};

/* Opens the driver, takes every device, and tests each and each way between two before it is trusted: what
 * fails or takes over test_limit_ns is off, with a reason in its report. 0, or a negative errno with a
 * sentence in *why (-ENOENT, -ENODEV, -ENOSYS: nothing is gained by trying again). */
int cuda_backend_new(struct backend **ret, const struct cuda_options *o, struct text *why) MUST_USE;

uint32_t cuda_backend_n_devices(const struct backend *b);
/* Of GPU:k. */
void cuda_backend_report(const struct backend *b, uint32_t k, struct gpu_device *ret);
/* The i-th that there is to say; false: no more. They may grow while it serves. */
bool cuda_backend_fallback(const struct backend *b, uint32_t i, struct gpu_fallback *ret);

/* The error, in the driver's words, after which only a new process goes on; NULL: there was none. */
const char *cuda_backend_broken(const struct backend *b);
/* Whether a run is under way, or a communicator being made: poll has something to find. */
bool cuda_backend_is_busy(const struct backend *b);
