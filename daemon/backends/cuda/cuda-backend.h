/* The cuda backend: the GPUs of the host, their memory and the work on them. Lives in tuttid-gpu, on one
 * thread, which gives the work of all groups one order on every device.
 *
 * It never waits for a device, but in cuda_backend_new (the self-test) and where memory is made, imported and
 * let go. A call of the driver may hang all the same: who supervises the process ends it then. After an error
 * that the driver keeps (is_broken) every run that was under way is DEVICE_LOST, and only a new process goes
 * on. */
#pragma once

#include "backends/gpu-report.h"
#include "base/check.h"

/* Opens the driver, takes every device, and tests each and each way between two before it is trusted: what
 * fails or takes too long is off, with a reason in its report. 0, or a negative errno with a sentence
 * (-ENOENT, -ENODEV, -ENOSYS: nothing is gained by trying again). To be freed by its ops. */
int cuda_backend_new(
        struct gpu_backend **ret, const struct gpu_options *o, char *why, size_t why_bytes) MUST_USE;
