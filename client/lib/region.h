/* Memory shared with tuttid: a few memfds, each mapped and registered once, from which buffers are cut.
 *
 * A region that the library makes is a sealed memfd. It may be larger than what is asked for, so that
 * thousands of buffers need few descriptors; only what is handed out is backed by memory. It is registered
 * without waiting; a submission that names it waits in tuttid. A region goes when its last buffer has gone:
 * first to `dead_regions`, under the lock, then, outside of it, regions_reap unregisters and unmaps it.
 *
 * A buffer is freed by its owner, and goes when no unfinished work uses it any more. */
#pragma once

#include "lib/connection.h"
#include "lib/space.h"

struct region {
        struct list node;
        struct tutti *t;
        uint64_t id;   /* as tuttid knows it */
        int fd;        /* -1 when nothing is left to fill */
        uint8_t *data; /* NULL: not mapped */
        uint64_t size_bytes;
        uint64_t filled_bytes; /* from here on nothing is backed by memory. Under `growing` */
        uint64_t dirty_bytes;  /* from here on everything is still zero. Under `growing` */
        bool is_ours;          /* buffers may be cut from it */
        enum pages pages;      /* UNSPECIFIED: nobody asked for huge ones. Buffers with that wish are cut from
                                  regions of their own */
        uint64_t page_bytes;
        char why[160];      /* why none of the pool; "" */
        struct space space; /* under `lock` */
        struct call registering;
        struct list registration; /* in `registrations`. Under `lock` */
        uint32_t sent_in;         /* to which tuttid, of those in turn */
        enum access access;
        struct device_memory *device; /* owned; NULL: host memory */
};

struct tutti_buffer {
        struct tutti *t;
        struct list node;
        struct region *region;
        struct block block;
        size_t n_bytes;
        uint32_t n_uses; /* unfinished works. Under `lock` */
        bool is_freed;
        struct list piece; /* in `spare_pieces`, where it is one of staging */
};

/* A region of this many bytes at the least, and at the most this many times what is there already. */
#define REGION_MIN_BYTES (UINT64_C(16) << 20)
#define REGION_GROWTH    4
/* Alignment of a buffer below one page; from one page on, a page. */
#define BUFFER_ALIGN 64

/* --- region.c --- */

struct region_plan {
        uint64_t n_bytes;
        enum pages pages;
        uint64_t first_bytes; /* with pages: they must be there for so many */
        const char *why;      /* with pages: why not those before */
};

/* A sealed memfd of ours, mapped, and registered without waiting. NO_MEMORY, also for want of such pages.
 * Under `growing`. */
enum status region_make(
        struct tutti *t, const struct region_plan *plan, struct region **ret, struct error *err) MUST_USE;
/* Somebody else's memfd, not mapped yet: waits for tuttid's answer. */
enum status region_adopt(struct tutti *t, int fd, uint64_t n_bytes, enum access access, struct region **ret,
        struct error *err) MUST_USE;
/* What tuttid made for us. */
struct device_made {
        int fd; /* owned; -1: none */
        uint64_t size_bytes;
};

struct region_ask {
        struct msg_register reg;  /* all but its id */
        int fd;                   /* -1: none */
        struct device_made *made; /* NULL: tuttid makes nothing */
};

/* Memory that is not mapped here, of whatever kind: waits for tuttid's answer. */
enum status region_register(
        struct tutti *t, const struct region_ask *ask, struct region **ret, struct error *err) MUST_USE;

struct region_stage {
        uint64_t n_bytes;
        enum access access;
        const char *stands_for, *why;
};

/* A sealed memfd of ours, mapped and filled, that stands for memory which tuttid does not reach. */
enum status region_make_stage(
        struct tutti *t, const struct region_stage *stage, struct region **ret, struct error *err) MUST_USE;

/* Of no use after all: goes with the next reaping. */
void region_bury(struct tutti *t, struct region *r);

/* Backs the block with memory of ours, zero. NO_MEMORY. Under `growing`, not under `lock`. */
enum status region_fill(struct region *r, const struct block *block, struct error *err) MUST_USE;
/* Whether the library made the region of this id. Takes `lock`. */
bool region_is_ours(struct tutti *t, uint64_t id);
/* Why tuttid did not take it, or NULL. Under `lock`. */
static inline const struct failure *region_refusal(const struct region *r) {
        return r->registering.is_ended ? r->registering.failure : NULL;
}

/* Unmaps and frees; tells nobody. */
void region_free(struct region *r);
/* Unregisters and frees what is dead, also what nobody wants of result objects. Not under any lock. */
void regions_reap(struct tutti *t);
/* Whether it has anything to do. Under `lock`. */
static inline bool regions_are_dead(const struct tutti *t) {
        return t->n_unwanted > 0 || !list_is_empty(&t->dead_regions);
}
void regions_free(struct tutti *t);

/* --- buffer.c --- */

/* A handle without memory; NULL. */
struct tutti_buffer *buffer_new(struct tutti *t, size_t n_bytes);
/* The region becomes the buffer's alone. */
void buffer_take_region(struct tutti_buffer *b, struct region *r);
enum status access_of(enum tutti_access access, enum access *ret, struct error *err) MUST_USE;

/* Memory of ours, as tutti_buffer_alloc_with gives it. Not under any lock. */
enum status buffer_make(struct tutti *t, const struct tutti_alloc_args *args, struct tutti_buffer **ret,
        struct error *err) MUST_USE;
/* Frees it, as tutti_buffer_free; the region, where it was its last, is to be reaped. Under `lock`. */
void buffer_drop(struct tutti_buffer *b);

/* Under `lock`. */
void buffer_use(struct tutti_buffer *b);
void buffer_end_use(struct tutti_buffer *b);
const struct failure *buffer_refusal(const struct tutti_buffer *b);

void buffers_free(struct tutti *t);
