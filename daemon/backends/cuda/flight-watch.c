/* A kernel that never ends. Nothing can be put behind it and nothing can stop it but the end of the process,
 * so it costs everything that is under way here: who judges it hung must be sure.
 *
 * A run is at work when it is the first in its group's streams and all its signals have come. From then on it
 * has the limit, and ten seconds more for each GiB that the runs under way read and write, its own and those
 * of others which take turns with it on the devices: a hundred times less than what a GPU does over PCIe.
 * Steps of the library have a limit of their own (run.c), after which only their communicators are lost. */
#include <stdio.h>
#include "backends/cuda/flight.h"
#include "base/clock.h"
#include "base/text.h"

#define NS_PER_GIB (10 * NS_PER_S)

uint64_t flight_hang_limit_ns(const struct cuda *c, uint64_t n_bytes) {
        return c->options.hang_limit_ns + (n_bytes >> 20) * (NS_PER_GIB / 1024);
}

/* Runs are looked at in the order of their launch, which is that of a lane's streams. */
static bool is_first_in_lane(struct cuda *c, const struct flight *f) {
        bool is_first = f->lane->seen != c->n_polls;
        f->lane->seen = c->n_polls;
        return is_first;
}

static bool is_at_work(struct cuda *c, const struct flight *f) {
        uint32_t late;
        if (!f->lane || !is_first_in_lane(c, f) || f->phase != FLIGHT_FED || f->n_sets > 0)
                return false;
        return f->working_ns || !f->is_waiting || flight_is_ready(c, f, &late);
}

static void print_devices(const struct cuda *c, const struct flight *f, struct text *t) {
        for (uint32_t i = 0; i < c->n_devices; i++)
                if (f->devices & UINT64_C(1) << i)
                        text_add(t, "%sGPU:%u", t->used ? ", " : "", i);
}

static void judge(struct cuda *c, struct flight *f, uint64_t limit_ns) {
        char devices[64], why[GPU_TEXT_BYTES];
        struct text t;
        text_init(&t, devices, sizeof(devices));
        print_devices(c, f, &t);
        snprintf(why, sizeof(why), "%s: a kernel does not end, %.1f s after it could begin (gpu.hang-limit)",
                devices, (double)limit_ns / NS_PER_S);
        c->base.broken_by = f->run;
        cuda_break(c, why);
}

void flight_watch_hang(struct cuda *c, struct flight *f) {
        if (c->options.hang_limit_ns == 0 || !is_at_work(c, f) || f->has_failed || f->is_let_go)
                return;
        uint64_t now_ns = clock_now_ns();
        if (!f->working_ns)
                f->working_ns = now_ns;
        if (f->most_bytes < c->bytes_under_way)
                f->most_bytes = c->bytes_under_way;
        uint64_t limit_ns = flight_hang_limit_ns(c, f->most_bytes);
        if (now_ns - f->working_ns > limit_ns)
                judge(c, f, limit_ns);
}
