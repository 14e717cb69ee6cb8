#include "base/clock.h"

#include "base/check.h"

static uint64_t clock_read_ns(clockid_t id) {
        struct timespec t;
        CHECK(clock_gettime(id, &t) == 0);
        return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t clock_now_ns(void) {
        return clock_read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_thread_cpu_ns(void) {
        return clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

void clock_realtime_after(struct timespec *ret, uint64_t delay_ns) {
        uint64_t then_ns = clock_read_ns(CLOCK_REALTIME) + delay_ns;
        ret->tv_sec = (time_t)(then_ns / NS_PER_S);
        ret->tv_nsec = (long)(then_ns % NS_PER_S);
}
