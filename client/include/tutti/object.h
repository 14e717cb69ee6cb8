/* Result objects of libtutti; part of tutti.h, which includes this.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TUTTI_OBJECT_H
#define TUTTI_OBJECT_H

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory that tuttid makes for a group: a result is written there once, however many replicas there are, and
 * all of them read it. It has slots; each collective takes the next one in turn that nobody holds. Every
 * contributor then holds it until it releases it, detaches, leaves, or dies. When no slot is free the
 * collective ends BUSY for all, before a byte has moved, naming who holds which slot and for how long.
 * Whoever holds none but the latest n_slots - 1 results when it submits never sees that. Its memory is
 * tuttid's and counts against the user's quota "result-bytes". */
struct tutti_object_args {
        size_t struct_size;
        const char *name; /* required, 1..63 bytes: within the group */
        size_t n_bytes;   /* required: of one slot */
        uint32_t n_slots; /* 0: two; at most 64 */
        /* Where it lives, and what computes its results; NULL: "CPU:0". A GPU ("GPU:1", or its UUID), which
         * need hold no replica: its slots are device memory, mapped for reading in the context that is
         * current in the thread that makes it. */
        const char *device;
};

#define TUTTI_OBJECT(...)                                                                                    \
        ((struct tutti_object_args){ .struct_size = sizeof(struct tutti_object_args), __VA_ARGS__ })
TUTTI_API void tutti_object_args_init(struct tutti_object_args *args);

/* The first member that asks has it made, the others attach to it; nobody waits for anybody. MISMATCH: it is
 * there with another size, number of slots or device; INVALID: attached already, or no such device; QUOTA,
 * LIMIT, NO_MEMORY. */
TUTTI_API enum tutti_status tutti_object_make(
        struct tutti_group *g, const struct tutti_object_args *args, struct tutti_object **ret);

/* Where a slot is mapped, page-aligned and read-only (of an object on a GPU a device pointer); NULL where
 * there is no such slot. What stands in a slot that is not held here may change at any time. */
TUTTI_API const void *tutti_object_data(const struct tutti_object *o, uint32_t slot);
TUTTI_API size_t tutti_object_bytes(const struct tutti_object *o); /* of one slot */
TUTTI_API uint32_t tutti_object_slots(const struct tutti_object *o);

/* Gives back the slot that a collective returned in tutti_result.slot. INVALID: it is not held here. The slot
 * of a work that is freed before its end is given back by itself. Does not wait. */
TUTTI_API enum tutti_status tutti_object_release(struct tutti_object *o, uint32_t slot);

/* Gives all slots back, detaches and unmaps; the object goes when nobody is attached any more. Works under
 * way go on. NULL is fine. */
TUTTI_API void tutti_object_free(struct tutti_object *o);

#ifdef __cplusplus
}
#endif

#endif
