/* Pages larger than the ordinary ones: how large those of a file are, and where to map it so that they count.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What tutti asks for: the size of one entry of a page directory, on x86-64, and on arm64 with pages of 4
 * KiB.
 */
#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)

uint64_t ordinary_page_bytes(void);

/* Of the pool's pages that `fd` lies in (a memfd of MFD_HUGETLB, whatever their size); 0: it lies in ordinary
 * memory, or what it is cannot be found out. */
uint64_t fd_pool_page_bytes(int fd);

/* Maps `n_bytes` of it, MAP_SHARED, from its beginning, at a multiple of HUGE_PAGE_BYTES: only then is a huge
 * page that the kernel has made of ordinary memory (a transparent one) mapped as one. MAP_FAILED, with errno.
 */
void *map_on_huge_page(int fd, uint64_t n_bytes, int protection);
