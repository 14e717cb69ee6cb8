/* The kernel's pool of 2 MiB pages, for a test that needs one of a certain size. It is the machine's: one
 * test at a time has it, and it is as it was when that test has ended, however it ended. */
#pragma once

#include <stdint.h>

#define POOL_PAGE_BYTES (UINT64_C(2) << 20)

/* From here on `n_free` pages of it are free. Skips the test where it may not be changed, or memory for them
 * cannot be found. Before replicas and hosts are started. */
void pool_take(uint64_t n_free);
/* As it was before; also done when the test ends without. */
void pool_give_back(void);

/* How many pages are there and not promised to anybody. */
uint64_t pool_free(void);
