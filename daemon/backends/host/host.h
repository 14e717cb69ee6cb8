/* The host backend: memfds mapped into tuttid, kernels on the CPU. */
#pragma once

#include "backends/backend.h"
#include "config.h"

/* `isa` beyond what the processor has is lowered to what it has, which is a line of fallback(). Installs the
 * process's SIGBUS handler. 0 or negative errno. */
int host_backend_new(struct backend **ret, enum isa isa) MUST_USE;
