/* A SIGBUS inside client memory ends the work that touched it, not tuttid.
 *
 * A memfd cannot shrink under us (it carries the seal), but a client may punch a hole into it, or never fill
 * it, and the page may be lost to the machine. The kernel says so by SIGBUS on the instruction that touched
 * it. While a thread is inside guard_run, such a signal whose address belongs to the work at hand takes it
 * back out; any other SIGBUS does what it did before we came. */
#pragma once

#include <stdbool.h>
#include "base/check.h"

struct memory;

struct guarded_work {
        void (*run)(const struct guarded_work *work);
        /* Whose memory `address` is in, or NULL: not in this work's. Called from the signal handler. */
        const struct memory *(*find_owner)(const struct guarded_work *work, const void *address);
};

/* Once a process, before threads: installs the handler. 0 or negative errno. */
int guard_install(void) MUST_USE;

/* Once on each thread that will call guard_run: lets SIGBUS through, since a blocked one kills. 0 or negative
 * errno. */
int guard_thread_init(void) MUST_USE;

/* Runs the work, which must own nothing that leaving it half-way would leak. true, or false with the memory
 * that failed. Not nested. */
bool guard_run(const struct guarded_work *work, const struct memory **ret_culprit) MUST_USE;
