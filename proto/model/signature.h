/* What the halves of one collective must agree on, and the rules a half must keep by itself.
 *
 * Plain values; no I/O. `struct entry` is one value of a submission: its signature (compared over all
 * replicas) and its places (this replica's own: where it is read and written). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/sip.h"
#include "model/algorithm.h"
#include "model/device.h"
#include "model/dtype.h"
#include "model/error.h"
#include "model/op.h"
#include "model/rankset.h"
#include "model/rounding.h"
#include "model/span.h"
#include "model/view.h"

#define MAX_ENTRIES   65536
#define MAX_TAG_BYTES 127
/* Entries times ranks: what is to be planned, leased and given back for one collective. */
#define MAX_COLLECTIVE_ENTRIES (1u << 20)

enum destination {
        DESTINATION_UNSPECIFIED,
        DESTINATION_ALL,
        DESTINATION_RANK,
        DESTINATION_RANKS,
        DESTINATION_DEVICE, /* into a result object that lives there */
        DESTINATION_SAME,   /* each replica's input, in place; reductions */
};

enum layout { LAYOUT_DENSE, LAYOUT_SPARSE /* UNSUPPORTED for now */ };

enum implementation {
        IMPLEMENTATION_UNSPECIFIED,
        IMPLEMENTATION_AUTO,
        IMPLEMENTATION_RING,
        IMPLEMENTATION_NCCL
};

/* How the values of a batch are gathered into packs, by the first of these that is given: num_packs; both
 * small_*; bytes_per_pack. None: each value by itself. */
struct packing {
        uint32_t num_packs;      /* all values of a type end to end, cut into so many pieces */
        uint64_t small_bytes;    /* agg_small_grads_max_bytes: neighbours of at most so many bytes ... */
        uint32_t small_group;    /* agg_small_grads_max_group: ... and at most so many, are one pack */
        uint64_t bytes_per_pack; /* whole values, from the last one on, until a pack is larger than this */
};

/* Bytes of a buffer of this replica, or, for an output, of a result object of its group. */
struct place {
        uint64_t buffer; /* 0: absent */
        uint64_t offset_bytes;
        uint32_t n_strides; /* 0: contiguous; otherwise that of the dimensions (a wrong one is refused) */
        uint64_t strides[MAX_DIMS]; /* in elements; beyond n_strides: 0 */
        /* Set by buffer_lease, NULL before: the domain passes it on and never opens it. */
        struct buffer *lease;
        struct memory *memory; /* the backend's mapping of it */
        uint64_t file;         /* identity of the memory behind it, equal for equal files */
        struct span span;      /* from this value's first byte in the buffer to its last; valid when leased */
        /* An output into a result object, instead of a buffer: its id, 0 where there is none. The offset
         * counts from the begin of a slot, which is chosen when the collective is sealed. */
        uint64_t result;
        struct result *object; /* set by result_use, NULL before: the domain never opens it */
};

/* Whether it names memory at all. */
static inline bool place_is_there(const struct place *p) {
        return p->buffer != 0 || p->result != 0;
}

struct entry {
        enum dtype dtype, output_dtype; /* output_dtype unspecified: the same */
        enum layout layout;
        enum destination destination;
        uint32_t destination_rank;        /* DESTINATION_RANK */
        uint32_t destination_device;      /* DESTINATION_DEVICE: device_parse */
        struct rankset destination_ranks; /* DESTINATION_RANKS */
        uint32_t n_dims;
        uint64_t shape[MAX_DIMS]; /* beyond n_dims: 0 */
        struct place input, output;
        uint64_t input_checksum; /* where the options have check_inputs, of an input that is read */
        /* Where the result's length is the sum of the replicas': how much of it along the axis, or how many
         * rows, the output has room for. Not compared. */
        uint64_t output_extent;
};

#define AXIS_BEYOND (1u << MAX_DIMS)

struct options {
        enum rounding rounding; /* MEAN of integers to their own type */
        bool has_weight;        /* SUM and MEAN of floats */
        double weight;          /* this replica's; 0: its values are not looked at */
        bool check_numerics, check_overflow, check_inputs, reproducible;
        enum implementation implementation; /* a hint: what cannot be done is done otherwise, and shown */
        enum algorithm_name algorithm;      /* a demand: what cannot be done is refused */
        bool has_place;                     /* one_device: the device that reduces */
        uint32_t place;                     /* device_parse's number */
        struct packing packing;
        int32_t priority; /* told to whoever schedules; changes no number and is not compared */
};

/* All that is compared but the entries. */
struct signature {
        enum kind kind;
        enum op op;
        uint32_t root; /* where kind_has_root */
        struct options options;
        uint32_t n_entries;
        uint16_t axes;               /* bit d: dimension d; AXIS_BEYOND: one that no value has */
        char tag[MAX_TAG_BYTES + 1]; /* KIND_MERGE_CALL: which function, and what it is to make; terminated */
};

/* The dimension of a kind that has one. */
uint32_t signature_axis(const struct signature *s);
/* Dimensions, as in `axes`, in which the replicas' inputs may differ in length: what is gathered along or
 * reduced over. */
uint16_t signature_free_axes(const struct signature *s);

/* The shape of an output: as long along the axis as it has room for, of a reduce_scatter as its own slice is;
 * 1 in each dimension that is reduced over. Of an entry with at most MAX_DIMS dimensions. */
void entry_output_shape(const struct signature *s, const struct entry *e, uint64_t ret[MAX_DIMS]);
/* How its elements lie there. */
void entry_output_view(const struct signature *s, const struct entry *e, struct view *ret);

/* Elements of an entry; false when the product reaches 2^63, or when there are more than MAX_DIMS dimensions.
 */
bool entry_count(const struct entry *e, uint64_t *ret);

/* How the elements lie at one of its places. Of an entry with at most MAX_DIMS dimensions, and as many
 * strides or none. */
void entry_view(const struct entry *e, const struct place *place, struct view *ret);

/* The dtype of the result. */
enum dtype entry_output_dtype(const struct entry *e);

/* Whether `rank` receives the result in memory of its own or in a result object that all see; not where it
 * goes to a device. KIND_BROADCAST and reductions alike. */
bool entry_has_destination(const struct entry *e, unsigned int rank);

/* KIND_MERGE_CALL: each rank has a part of its own behind the output's offset, in rank order; bytes from one
 * to the next, a multiple of 64. 0 where the entry has no elements, or more than can be counted. */
uint64_t entry_part_bytes(const struct entry *e);

/* Whether `rank` reads its input: everybody in a reduction, a gather and a merge_call, the root in a
 * broadcast. */
bool signature_reads(const struct signature *s, unsigned int rank);

/* The rules a half keeps by itself: op given and supported for the dtype, kind known, shapes countable,
 * destinations inside the world, root inside the world, places present where this rank reads or receives,
 * nothing that this version does not do. Not looked at: what the buffers are. On failure fills status, field,
 * entry, detail of *err (which the caller has initialised). */
enum status signature_check(const struct signature *s, const struct entry *entries, uint32_t rank,
        uint32_t world_size, struct error *err) MUST_USE;

/* A half, and whose it is. */
struct half_view {
        const struct signature *signature;
        const struct entry *entries;
        uint32_t rank, world_size;
        struct error *err;
        uint64_t *steps; /* left to find out whether strided values share memory with themselves */
};

/* The same in parts: all but the entries, then each of the entries. */
enum status signature_check_head(const struct half_view *v) MUST_USE;
enum status signature_check_entry(const struct half_view *v, uint32_t i) MUST_USE;

/* The first field in which two halves differ, or FIELD_UNSPECIFIED when they agree; `ret_entry` is the entry
 * concerned, or -1. */
enum field signature_compare(const struct signature *a, const struct entry *a_entries,
        const struct signature *b, const struct entry *b_entries, int32_t *ret_entry);

/* The same of all but the entries. */
enum field signature_compare_heads(const struct signature *a, const struct signature *b);
/* Takes in all that is compared of `n` entries, so that equal ones, and they alone, make equal digests. */
void entries_digest(const struct signature *s, const struct entry *entries, uint32_t n, struct sip *digest);

/* What a half says of `field` (of entry `entry`), for people: "f32[1024,10]", "SUM", "root 1", "R0 R2". */
void signature_print_field(const struct signature *s, const struct entry *entries, enum field field,
        int32_t entry, struct text *t);

/* "f32[1024,10]". */
void entry_print(const struct entry *e, struct text *t);

/* Input bytes of one half, over all entries; UINT64_MAX when that cannot be counted. */
uint64_t signature_bytes(const struct signature *s, const struct entry *entries);
