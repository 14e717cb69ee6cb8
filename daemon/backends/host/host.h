/* The host backend: memfds mapped into tuttid, kernels on the CPU. */
#pragma once

#include "backends/backend.h"
#include "config.h"

/* `isa` beyond what the processor has is lowered to what it has, which is a line of fallback(). Installs the
 * process's SIGBUS handler. 0 or negative errno. */
int host_backend_new(struct backend **ret, enum isa isa) MUST_USE;

/* Tries the kernels of its instruction set against known answers, and the guard against a lost page and a
 * hole; before anybody is served, on a thread that will not run chunks. 0, or a negative errno with a
 * sentence. */
int host_self_test(struct backend *b, char *why, size_t why_bytes) MUST_USE;
