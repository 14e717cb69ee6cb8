/* What the kernel says of the memory of a process, page by page: unlike the counters of /proc/PID/status,
 * which each CPU brings up to date when it likes. */
#pragma once

#include <stdint.h>

/* The sum of these lines ("ShmemPmdMapped:", "Anonymous:") of /proc/PID/smaps, in bytes. */
uint64_t smaps_bytes(int pid, const char *line);
/* How much of the pool of huge pages it has mapped, in bytes. */
uint64_t smaps_bytes_of_pool(int pid);
