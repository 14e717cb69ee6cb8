#include "base/heap.h"

#include <errno.h>
#include <stdlib.h>
#include "base/check.h"

void heap_init(struct heap *h) {
        *h = (struct heap){ 0 };
}

void heap_deinit(struct heap *h) {
        free(h->slots);
        heap_init(h);
}

int heap_reserve(struct heap *h, size_t n) {
        if (n <= h->capacity)
                return 0;
        if (n > PTRDIFF_MAX / (2 * sizeof(struct alarm *)))
                return -ENOMEM;
        size_t capacity = h->capacity ? h->capacity : 16;
        while (capacity < n)
                capacity *= 2;
        struct alarm **slots = realloc(h->slots, capacity * sizeof(struct alarm *));
        if (!slots)
                return -ENOMEM;
        h->slots = slots;
        h->capacity = capacity;
        return 0;
}

void alarm_init(struct alarm *a) {
        *a = (struct alarm){ .at_ns = ALARM_NEVER };
}

static void put(struct heap *h, size_t i, struct alarm *a) {
        h->slots[i] = a;
        a->slot = i + 1;
}

/* Moves `a` from the hole at `i` towards the root until its parent is not later. */
static size_t rise(struct heap *h, size_t i, const struct alarm *a) {
        while (i > 0) {
                size_t parent = (i - 1) / 2;
                if (h->slots[parent]->at_ns <= a->at_ns)
                        break;
                put(h, i, h->slots[parent]);
                i = parent;
        }
        return i;
}

/* Moves `a` from the hole at `i` towards the leaves until no child is earlier. */
static size_t sink(struct heap *h, size_t i, const struct alarm *a) {
        for (;;) {
                size_t child = 2 * i + 1;
                if (child >= h->n)
                        return i;
                if (child + 1 < h->n && h->slots[child + 1]->at_ns < h->slots[child]->at_ns)
                        child++;
                if (a->at_ns <= h->slots[child]->at_ns)
                        return i;
                put(h, i, h->slots[child]);
                i = child;
        }
}

static void settle(struct heap *h, size_t hole, struct alarm *a) {
        put(h, sink(h, rise(h, hole, a), a), a);
}

static void take_out(struct heap *h, struct alarm *a) {
        size_t hole = a->slot - 1;
        a->slot = 0;
        a->at_ns = ALARM_NEVER;
        struct alarm *last = h->slots[--h->n];
        if (last != a)
                settle(h, hole, last);
}

void heap_set(struct heap *h, struct alarm *a, uint64_t at_ns) {
        if (at_ns == ALARM_NEVER) {
                if (a->slot)
                        take_out(h, a);
                return;
        }
        size_t hole = a->slot - 1;
        if (!a->slot) {
                CHECK(h->n < h->capacity);
                hole = h->n++;
        }
        a->at_ns = at_ns;
        settle(h, hole, a);
}

uint64_t heap_next_ns(const struct heap *h) {
        return h->n ? h->slots[0]->at_ns : ALARM_NEVER;
}

struct alarm *heap_take_due(struct heap *h, uint64_t now_ns) {
        if (heap_next_ns(h) > now_ns || h->n == 0)
                return NULL;
        struct alarm *first = h->slots[0];
        take_out(h, first);
        return first;
}
