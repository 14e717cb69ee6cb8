/* What lies where in the address space: a sorted array of ranges. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

static struct fake_range *ranges;
static size_t n_ranges, room;
static uint64_t next_buffer = 1;

/* Index of the first range that ends after `address`. */
static size_t lower(uintptr_t address) {
        size_t low = 0, high = n_ranges;
        while (low < high) {
                size_t mid = low + (high - low) / 2;
                if (ranges[mid].base + ranges[mid].n_bytes <= address)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low;
}

struct fake_range *fake_range_find(uintptr_t address) {
        size_t i = lower(address);
        return i < n_ranges && ranges[i].base <= address ? &ranges[i] : NULL;
}

struct fake_range *fake_range_at(size_t index) {
        return index < n_ranges ? &ranges[index] : NULL;
}

bool fake_range_overlaps(uintptr_t base, size_t n_bytes) {
        size_t i = lower(base);
        return i < n_ranges && ranges[i].base < base + n_bytes;
}

bool fake_range_add(const struct fake_range *range) {
        if (n_ranges == room) {
                size_t more = room ? 2 * room : 64;
                struct fake_range *bigger = realloc(ranges, more * sizeof(*ranges));
                if (!bigger)
                        return false;
                ranges = bigger;
                room = more;
        }
        size_t i = lower(range->base);
        memmove(&ranges[i + 1], &ranges[i], (n_ranges - i) * sizeof(*ranges));
        ranges[i] = *range;
        ranges[i].buffer_id = next_buffer++;
        n_ranges++;
        return true;
}

void fake_range_remove(struct fake_range *range) {
        size_t i = (size_t)(range - ranges);
        n_ranges--;
        memmove(&ranges[i], &ranges[i + 1], (n_ranges - i) * sizeof(*ranges));
}

bool fake_range_allows(const struct fake_range *range, int physical, enum fake_use use) {
        const struct fake_context *c = fake_context_of_physical(physical);
        switch (range->kind) {
        case FAKE_DEVICE_MEMORY:
        case FAKE_FOREIGN: return range->owner == physical || (c && (c->peers & (1u << range->owner)));
        case FAKE_MAPPED: return ((use == FAKE_WRITE ? range->writers : range->readers) >> physical) & 1;
        case FAKE_HOST: return true; /* where addresses are unified, of all contexts */
        case FAKE_REGISTERED:
                if (use == FAKE_WRITE && (range->flags & CU_MEMHOSTREGISTER_READ_ONLY))
                        return false;
                return range->context == c || (range->flags & CU_MEMHOSTREGISTER_PORTABLE);
        }
        return false;
}

void fake_ranges_end(void) {
        free(ranges);
        ranges = NULL;
        n_ranges = room = 0;
}
