/* A binary heap of instants: which alarm is due first.
 *
 * An alarm is embedded in the thing that waits; its owner sets and clears it, the heap only orders it. Memory
 * is taken when the heap grows (heap_reserve), never when an alarm is set, so that setting one cannot fail.
 * Not thread-safe. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define ALARM_NEVER UINT64_MAX

struct alarm {
        uint64_t at_ns; /* ALARM_NEVER when not set */
        size_t slot;    /* place in the heap + 1; 0: not in the heap */
};

struct heap {
        struct alarm **slots;
        size_t n, capacity;
};

void heap_init(struct heap *h);
void heap_deinit(struct heap *h);

/* Makes room for `n` alarms in all. 0 or -ENOMEM. Must be called before the n-th alarm is set. */
int heap_reserve(struct heap *h, size_t n);

void alarm_init(struct alarm *a);

/* Sets, moves, or (with ALARM_NEVER) clears `a`. Room must have been reserved. */
void heap_set(struct heap *h, struct alarm *a, uint64_t at_ns);

/* The instant of the first alarm, or ALARM_NEVER. */
uint64_t heap_next_ns(const struct heap *h);

/* Takes out the first alarm that is due at `now_ns`, or NULL. */
struct alarm *heap_take_due(struct heap *h, uint64_t now_ns);
