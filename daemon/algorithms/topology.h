/* Which devices there are, and which of them reach each other's memory: plain data that whoever finds it out
 * gives to the planner. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"

#define MAX_TOPOLOGY 64

/* How one device reaches the memory of another, the better the higher. */
enum link {
        LINK_NONE,   /* not at all: by way of host memory */
        LINK_PCIE,   /* peer access over PCIe, or through the processor's own bus */
        LINK_NVLINK, /* peer access over links of their own */
        LINK_SAME,   /* one memory: itself, and host devices among each other */
};

struct topology {
        uint32_t n_devices;
        uint32_t devices[MAX_TOPOLOGY];            /* device_parse's numbers, growing */
        uint8_t links[MAX_TOPOLOGY][MAX_TOPOLOGY]; /* enum link, by place in `devices` */
        bool has_library;
        const char *why_no_library; /* where it has none: a sentence's end */
};

/* `n` host devices. */
void topology_of_host(struct topology *ret, uint32_t n);

#define NO_PLACE UINT32_MAX
/* The place of a device in the table; NO_PLACE: it is not there. */
uint32_t topology_find(const struct topology *t, uint32_t device);

/* Whether `a` reads and writes memory of `b` in place. Host memory is within reach of all. */
bool topology_reaches(const struct topology *t, uint32_t a, uint32_t b);

/* Whether each of the devices reaches each. */
bool topology_is_full(const struct topology *t, const uint32_t *devices, uint32_t n);

/* Eight or more GPUs, of which the first eight have the links of a DGX-1: {0,1,2,3} and {4,5,6,7} all among
 * themselves, 0-4, 1-5, 2-6, 3-7, and no others. */
bool topology_is_dgx1(const struct topology *t);

/* Divides `n` devices into islands, which it numbers from 0 in the order of their first devices: two halves
 * (the first the smaller one) where all reach all, else what reaches each other, each device with the first
 * that it fits. Fills ret_island[n], returns how many there are. */
uint32_t topology_islands(
        const struct topology *t, const uint32_t *devices, uint32_t n, uint32_t *ret_island);
