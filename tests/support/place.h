/* Where the values of a random test lie. One source of such a test is linked twice: with memory of the host
 * (place-host.c), and with device memory on the fake driver (place-gpu.c), which the processor can read and
 * write as it does its own. What must come out is the same. */
#pragma once

#include "replica.h"

/* A tuttid; `arguments` are for host devices, and GPUs leave them out. `variant` 0, 1, ... is another world
 * of GPUs each time: one, several that reach each other, some replicas on the host. */
struct host *place_start(uint32_t variant, const char *const *arguments);
#define PLACE_VARIANTS 3
/* Nothing is left. */
void place_stop(struct host *h);

/* In a replica, connected: memory for values. */
struct tutti_buffer *place_alloc(struct replica *me, size_t n_bytes);
/* Whatever it has open; its buffers have gone. */
void place_leave(struct replica *me);
