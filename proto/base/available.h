/* How much memory this process could still get: for the text of an error, not for a decision. */
#pragma once

#include <stdint.h>

/* The smaller of what the host has (MemAvailable) and what the memory group may still take; 0: not known. */
uint64_t memory_available_bytes(void);

/* The host's memory; 0: not known. */
uint64_t memory_total_bytes(void);
