/* A tuttid whose tuttid-gpu works on the fake driver (fakecuda/README.md), and replicas with device memory.
 */
#pragma once

#include <stdint.h>
#include <tutti/tutti.h>
#include "control.h"
#include "host.h"
#include "load.h"
#include "replica.h"

#define GPU_COUNT 5000 /* of the floats in a buffer of these */

/* tuttid with so many devices ("2"), and with these arguments (NULL: none). The fake driver's control is
 * gpu_control from then on, in replicas too. */
struct host *gpu_host_start(const char *n_devices, const char *const *arguments);
/* Nothing is left: no counter, no device memory. */
void gpu_host_stop(struct host *h);
extern struct fakecuda *gpu_control;

/* --- in a replica --- */

extern struct fakecuda_functions gpu_cu;

/* Takes the device's context. */
void gpu_use_device(int k);
/* Device memory made by tuttid, of `count` floats; waits until the devices are tested. */
struct tutti_buffer *gpu_take_buffer(struct tutti *t, size_t count);
/* Its first GPU_COUNT floats become first, first + 1, ... */
void gpu_fill(struct tutti_buffer *b, float first);
/* They are first, first + step, ... */
void gpu_expect(struct tutti_buffer *b, float first, float step);
/* The sum of `count` floats, in place. */
enum tutti_status gpu_reduce(struct tutti_group *g, const char *key, struct tutti_buffer *b, size_t count);
/* The buffer goes, the connection, and the fake with what it has open: this process uses it no more. */
void gpu_leave(struct replica *me, struct tutti_buffer *b);

/* --- looking --- */

/* The pid of the tuttid-gpu that runs now; waits for it to have called cuInit. */
int gpu_worker_pid(const struct host *h);
