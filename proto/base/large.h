/* Memory by the hundred megabytes, given back so that nobody waits for it.
 *
 * While the kernel takes pages from an address space, threads that map memory wait; of a large block it takes
 * them for many milliseconds at once. large_free gives the pages back a megabyte at a time first. */
#pragma once

#include <stddef.h>

/* free() of a block from malloc() with `n_bytes`; NULL is fine. */
void large_free(void *block, size_t n_bytes);

/* Zeroed pages of their own, which cost nothing until they are touched, whatever malloc() does with its
 * blocks (it may fill them, and keep or trim what lies beside them). NULL when memory is short. */
void *large_map(size_t n_bytes);
/* NULL is fine. */
void large_unmap(void *block, size_t n_bytes);
