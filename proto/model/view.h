/* How the elements of a value lie in memory: dimensions, each with its stride. Which memory is not said here.
 *
 * Plain values. `strides` are in elements, last dimension fastest in the order of indices whatever the
 * strides are; contiguous is strides of shape[1] * shape[2] ..., ..., 1. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_DIMS 8

struct view {
        uint32_t n_dims;
        uint64_t shape[MAX_DIMS], strides[MAX_DIMS];
};

/* `strides` NULL: contiguous. At most MAX_DIMS dimensions. */
void view_make(struct view *v, uint32_t n_dims, const uint64_t *shape, const uint64_t *strides);

/* The same elements in the same order with as few dimensions as can be: those of 1 are dropped, neighbours
 * that run on are one. Contiguous and not empty: none, or one of stride 1. */
void view_simplify(struct view *v);
/* Of a simplified one. */
bool view_is_dense(const struct view *v);

bool view_is_empty(const struct view *v);

/* Elements from the first to the last in memory, both included; 0 of an empty one. false: beyond 63 bits. */
bool view_extent(const struct view *v, uint64_t *ret);

/* A value whose length along one dimension is known only later; until then it is what there is room for. */
struct open_view {
        struct view view;
        uint32_t axis;  /* MAX_DIMS: nothing is open */
        bool is_packed; /* it will be contiguous, whatever its length */
};

/* Of that length, simplified; nothing is open any more. Its elements. */
uint64_t open_view_close(struct open_view *v, uint64_t length);
/* Whether there is room for that length. */
bool open_view_fits(const struct open_view *v, uint64_t length);

/* --- who shares bytes with whom --- */

/* Both searches use up *steps: to decide whether two lattices meet can take for ever. What slicing, stepping
 * and transposing make of arrays takes some tens; of one array, none. */
#define VIEW_STEPS 4096 /* for one half by itself */

enum sharing { SHARING_NOTHING, SHARING_BYTES, SHARING_UNKNOWN /* the steps did not suffice */ };

/* Whether two elements of it (with an extent) lie in one place. ret_dims: two dimensions between which that
 * happens, as far as such can be named. */
enum sharing view_shares_itself(const struct view *v, uint64_t *steps, uint32_t ret_dims[2]);

/* A value in memory, with an extent. */
struct placed_view {
        struct view view;
        uint64_t offset_bytes, element_bytes;
};

/* Whether both have a byte in common. */
enum sharing views_share(const struct placed_view *a, const struct placed_view *b, uint64_t *steps);

/* --- moving elements --- */

/* Where elements are: `base` is the first one's address. n_dims 0: densely one after another. */
struct lattice {
        size_t element_bytes;
        uint32_t n_dims;
        const uint64_t *shape, *strides;
};

/* Copies the elements [first, first + n) of the index space between a lattice and dense memory. Every element
 * of dense memory is written or read once, and nothing between the elements of a lattice. Calls nothing but
 * memcpy. */
void lattice_gather(const struct lattice *l, const void *base, uint64_t first, uint64_t n, void *dense);
void lattice_scatter(const struct lattice *l, void *base, uint64_t first, uint64_t n, const void *dense);

/* Elements from the first one on to that of this index, in memory. Within the extent it cannot overflow. */
uint64_t lattice_offset(const struct lattice *l, uint64_t index);
