/* For what tuttid answers with BUSY while its GPUs are still being tested, in the seconds after its start. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include "base/clock.h"

#define PATIENCE_NS   (30 * NS_PER_S)
#define PATIENCE_STEP (20 * NS_PER_MS)

/* Zero-initialised. */
struct patience {
        uint64_t until_ns;
};

/* Waits a little, if it is not too late to ask again. */
static inline bool patience_lasts(struct patience *p) {
        const uint64_t now = clock_now_ns();
        if (p->until_ns == 0)
                p->until_ns = now + PATIENCE_NS;
        if (now >= p->until_ns)
                return false;
        nanosleep(&(struct timespec){ .tv_nsec = PATIENCE_STEP }, NULL);
        return true;
}
