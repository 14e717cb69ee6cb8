/* The GPU process: takes memory and plans from tuttid, hands them to the backend of GPUs, and tells what
 * became of them (what is said: worker-protocol.h; why it is a process of its own: docs/adr/0007).
 *
 * One thread. It ends when tuttid's end of the socket closes, and when the backend is broken: then another
 * process takes its place. While something is under way it looks after it ever more seldom, from at once to
 * each millisecond; with nothing under way it sleeps (P22). */
#pragma once

#include "backends/gpu-report.h"
#include "base/check.h"

/* Makes the backend: backends/cuda's, or a double's. 0, or a negative errno with a sentence; -ENOENT, -ENODEV
 * and -ENOSYS: nothing is gained by trying again. */
typedef int gpu_backend_maker(
        struct gpu_backend **ret, const struct gpu_options *o, char *why, size_t why_bytes);

/* Serves until the socket closes. The program's exit code: 0; 1 when the backend broke or could not be made;
 * 2 when tuttid spoke nonsense. */
int gpu_serve(int socket, gpu_backend_maker *maker);
