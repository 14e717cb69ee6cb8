/* Notices turns of the loop thread that are much longer than a turn may be: everybody waits meanwhile (P21).
 *
 * What counts is the CPU time of the thread, since on a busy machine a short turn can take long. It is asked
 * for once a millisecond at most. Owned by daemon.c; lives on the loop thread. */
#pragma once

#include <stdint.h>

#define LONG_TURN_NS (10 * 1000000ull) /* ten times what a turn takes at most */

struct pace {
        uint64_t mark_ns, cpu_ns; /* when its clocks were read, and where they stood */
};

/* A turn begins. */
void pace_begin(struct pace *p, uint64_t now_ns);
/* It has ended. CPU time that it took, if that was LONG_TURN_NS or more (up to a millisecond too much); else
 * 0. */
uint64_t pace_end(const struct pace *p, uint64_t begun_ns, uint64_t now_ns);
