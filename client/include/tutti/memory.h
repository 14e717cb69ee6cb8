/* Memory that is shared with tuttid; part of tutti.h, which includes this.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TUTTI_MEMORY_H
#define TUTTI_MEMORY_H

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory shared with tuttid: a sealed memfd, pre-faulted, zero. Registered with every later use. NO_MEMORY
 * says needed and available bytes; never SIGBUS. Registration's own refusal may come with the first
 * collective that uses it. */
TUTTI_API enum tutti_status tutti_buffer_alloc(struct tutti *t, size_t n_bytes, struct tutti_buffer **ret);

/* DEFAULT: HUGE where TUTTI_HUGE_PAGES of the environment was "yes" when the connection was opened, else
 * ORDINARY. */
enum tutti_pages { TUTTI_PAGES_DEFAULT = 0, TUTTI_PAGES_ORDINARY, TUTTI_PAGES_HUGE };

struct tutti_alloc_args {
        size_t struct_size;
        size_t n_bytes;
        enum tutti_pages pages;
};

#define TUTTI_ALLOC(...)                                                                                     \
        ((struct tutti_alloc_args){ .struct_size = sizeof(struct tutti_alloc_args), __VA_ARGS__ })
TUTTI_API void tutti_alloc_args_init(struct tutti_alloc_args *args);

/* tutti_buffer_alloc with more to say.
 *
 * HUGE is a wish for pages of 2 MiB, which cost fewer misses of the TLB: those of the kernel's pool
 * (vm.nr_hugepages), if it has as many free; else transparent ones, which the kernel makes of ordinary memory
 * when it is asked to; else ordinary ones. So it fails only where an ordinary buffer would. What became of it
 * tutti_buffer_page_bytes and tutti_buffer_fallback say, `tuttictl status` and the log of tuttid. Buffers
 * with this wish share pages with each other, never with those without it, so the pool is asked for multiples
 * of 2 MiB. Results are the same. */
TUTTI_API enum tutti_status tutti_buffer_alloc_with(
        struct tutti *t, const struct tutti_alloc_args *args, struct tutti_buffer **ret);

/* Registers a memfd of the caller (the descriptor is duplicated), also one of huge pages (MFD_HUGETLB).
 * `n_bytes` 0: all of it. tutti_buffer_data maps it by `access`. BAD_FD: not a memfd, opened read-only, or
 * sealed against writing; NO_MEMORY: the pool is short of huge pages for it. Waits for tuttid's answer. */
TUTTI_API enum tutti_status tutti_buffer_from_fd(
        struct tutti *t, int fd, size_t n_bytes, enum tutti_access access, struct tutti_buffer **ret);

/* Where it is mapped: 64-byte aligned, page-aligned from one ordinary page on. Of device memory
 * (tutti/cuda.h) the device pointer. */
TUTTI_API void *tutti_buffer_data(const struct tutti_buffer *b);
TUTTI_API size_t tutti_buffer_bytes(const struct tutti_buffer *b);

/* How large the pages are that it lies in, in bytes; 0 of device memory and of NULL. */
TUTTI_API size_t tutti_buffer_page_bytes(const struct tutti_buffer *b);
/* Why it has no huge pages of the pool, though huge ones were wished for: a sentence, which lives as long as
 * the buffer and is that of the first of those with which it shares its memfd; "" where it has them, or
 * nobody wished so. */
TUTTI_API const char *tutti_buffer_fallback(const struct tutti_buffer *b);

/* Frees it; while collectives use it, it goes when they end. NULL is fine. */
TUTTI_API void tutti_buffer_free(struct tutti_buffer *b);

#ifdef __cplusplus
}
#endif

#endif
