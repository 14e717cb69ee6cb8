/* Buffers in device memory (tutti/cuda.h): how tuttid reaches each, and the copies of those that it does not
 * reach. Such a buffer has a region of its own; everything but its data is as of any other. */
#pragma once

#include <tutti/cuda.h>
#include "lib/driver.h"
#include "lib/region.h"
#include "model/view.h"

/* Of a region. */
struct device_memory {
        struct driver_place place;
        uint64_t pointer;      /* of the buffer, in this process */
        uint64_t mapped_bytes; /* VMM_MADE: what is to be unmapped */
        uint64_t id;           /* driver_memory.id; 0: not looked after */
        enum tutti_cuda_path path;
        bool is_pinned; /* STAGED: the host memory is */
        char why[160];
};

/* Lets go of what this process mapped and pinned; `stage` is the region's host memory, or NULL. */
void device_memory_free(struct device_memory *m, void *stage);

/* The buffer's device memory, or NULL where it is of the host. */
static inline struct device_memory *device_of(const struct tutti_buffer *b) {
        return b->region->device;
}

/* Whether tuttid reads and writes it where it is. */
static inline bool device_is_direct(const struct device_memory *m) {
        return m && m->path != TUTTI_CUDA_STAGED;
}

/* INVALID: what was registered is not there any more. */
enum status device_check(const struct tutti_buffer *b, struct error *err) MUST_USE;

/* --- copies of staged buffers --- */

struct device_copy {
        struct tutti_buffer *buffer; /* in use until the copies end */
        uint32_t entry;
        uint64_t offset_bytes; /* of the first element */
        size_t element_bytes;
        struct open_view lie; /* of inputs and where nothing is open simplified; not empty */
        bool is_output;
};

/* Of one half. Zero-initialised: none. */
struct device_copies {
        struct device_copy *list;
        uint32_t n, capacity;
        uint64_t copied_bytes;
};

enum status device_copies_add(
        struct device_copies *c, const struct device_copy *copy, struct error *err) MUST_USE;
/* Inputs come to the host, in the order of the stream, and are there when it returns. */
enum status device_copies_begin(struct device_copies *c, void *stream, struct error *err) MUST_USE;
/* Whether outputs have room for results of these lengths: extents[2 * entry]. */
bool device_copies_have_room(const struct device_copies *c, const uint64_t *extents);
/* How long the results of entries are: extents[2 * entry]. Before they go home. */
void device_copies_settle(struct device_copies *c, const uint64_t *extents);
/* Outputs go home: their elements, and nothing between them. */
enum status device_copies_finish(struct device_copies *c, struct error *err) MUST_USE;
/* Under `lock`. */
void device_copies_end(struct device_copies *c);
