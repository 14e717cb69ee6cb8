/* What pages memory of ours lies in, and how it gets them.
 *
 * Who asks for huge ones gets, of three, the first that is there:
 *
 *   POOL         a memfd of hugetlbfs (MFD_HUGETLB). Its pages are set aside by the administrator, so there
 * is nothing to be made or moved. They are taken whole or not at all: first they are reserved, which the
 * kernel does in one step and refuses where the pool is short, then allocated. Reserving is what mmap does,
 * unless it is told MAP_NORESERVE; a page that is neither would be a SIGBUS. TRANSPARENT  an ordinary memfd,
 * whose pages the kernel gathers into huge ones on demand (MADV_COLLAPSE, from Linux 6.1). Unlike what faults
 * get, that does not depend on how shmem_enabled is set (only "deny" forbids it), and what becomes of it is
 * known at once. It is done when all pages are there, since with a hole it is refused for memory that tuttid
 * watches. ORDINARY     an ordinary memfd, for want of anything else.
 *
 * A way that is closed leaves nothing behind. */
#pragma once

#include <stdint.h>
#include "base/check.h"
#include "base/text.h"
#include "wire/message.h"

/* How large its pages are, in bytes. */
uint64_t pages_bytes(enum pages pages);

/* A memfd of so many bytes, a multiple of pages_bytes, sealed against another length. 0 or negative errno. */
int pages_make_memfd(enum pages pages, uint64_t n_bytes, int *ret) MUST_USE;
/* Maps all of it, for reading and writing. NULL, with errno. */
void *pages_map(enum pages pages, int fd, uint64_t n_bytes);

/* Memory from a pages_map. */
struct backing {
        enum pages pages;
        int fd;
        uint8_t *data;
};

/* Makes the bytes from `from` to `to`, multiples of pages_bytes, exist, and faults them in: it is this
 * process's memory group that pays. 0 or negative errno: none of them does. */
int pages_fill(const struct backing *b, uint64_t from, uint64_t to) MUST_USE;

/* Adds why there were none of these, POOL or TRANSPARENT, for `n_bytes`. */
void pages_explain(enum pages pages, uint64_t n_bytes, struct text *t);
