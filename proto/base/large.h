/* Memory by the hundred megabytes, given back so that nobody waits for it.
 *
 * While the kernel takes pages from an address space, threads that map memory wait; of a large block it takes
 * them for many milliseconds at once. large_free gives the pages back a megabyte at a time first. */
#pragma once

#include <stddef.h>

/* free() of a block from malloc() with `n_bytes`; NULL is fine. */
void large_free(void *block, size_t n_bytes);
