/* The one place that reads clocks. CLOCK_MONOTONIC in nanoseconds; pure rooms get its value as an argument.
 */
#pragma once

#include <stdint.h>
#include <time.h>

#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

uint64_t clock_now_ns(void);

/* CPU time that the calling thread has used. */
uint64_t clock_thread_cpu_ns(void);

/* The CLOCK_REALTIME instant `delay_ns` from now: for pthread_cond_timedwait on a default condition variable.
 */
void clock_realtime_after(struct timespec *ret, uint64_t delay_ns);
