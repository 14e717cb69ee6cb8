#include "daemon-pace.h"

#include "base/clock.h"

#define MARK_STALE_NS NS_PER_MS

void pace_begin(struct pace *p, uint64_t now_ns) {
        if (now_ns - p->mark_ns <= MARK_STALE_NS)
                return;
        p->mark_ns = now_ns;
        p->cpu_ns = clock_thread_cpu_ns();
}

uint64_t pace_end(const struct pace *p, uint64_t begun_ns, uint64_t now_ns) {
        uint64_t wall_ns = now_ns - begun_ns;
        if (wall_ns < LONG_TURN_NS)
                return 0;
        uint64_t cpu_ns = clock_thread_cpu_ns() - p->cpu_ns;
        uint64_t worked_ns = cpu_ns < wall_ns ? cpu_ns : wall_ns;
        return worked_ns >= LONG_TURN_NS ? worked_ns : 0;
}
