#include "lib/space.h"

static struct block *block_of(struct list *node) {
        return list_entry(node, struct block, node);
}

static uint64_t end_of(const struct block *b) {
        return b->offset_bytes + b->n_bytes;
}

static uint64_t end_of_last(const struct space *s) {
        return space_is_empty(s) ? 0 : end_of(block_of(s->blocks.prev));
}

void space_init(struct space *s, uint64_t size_bytes) {
        list_init(&s->blocks);
        s->size_bytes = size_bytes;
        s->used_bytes = 0;
}

/* Whether `n_bytes` fit between `from` and `to`; aligned, so that *ret is where. */
static bool fits(uint64_t from, uint64_t to, uint64_t n_bytes, uint64_t align_bytes, uint64_t *ret) {
        uint64_t at;
        if (__builtin_add_overflow(from, align_bytes - 1, &at))
                return false;
        at &= ~(align_bytes - 1);
        if (at > to || to - at < n_bytes)
                return false;
        *ret = at;
        return true;
}

/* Places `block` before `next`, which may be the list's head. */
static void place(struct space *s, struct block *block, struct list *next, uint64_t n_bytes, uint64_t at) {
        block->offset_bytes = at;
        block->n_bytes = n_bytes;
        list_append(next, &block->node);
        s->used_bytes += n_bytes;
}

static bool take_gap(struct space *s, struct block *block, uint64_t n_bytes, uint64_t align_bytes) {
        uint64_t from = 0, at;
        list_for_each (it, &s->blocks) {
                if (fits(from, block_of(it)->offset_bytes, n_bytes, align_bytes, &at)) {
                        place(s, block, it, n_bytes, at);
                        return true;
                }
                from = end_of(block_of(it));
        }
        return false;
}

/* The gaps are walked only where they could hold it in all: five thousand tensors taken in a row cost five
 * thousand steps. */
bool space_take(struct space *s, struct block *block, uint64_t n_bytes, uint64_t align_bytes) {
        uint64_t end = end_of_last(s), at;
        if (end - s->used_bytes >= n_bytes && take_gap(s, block, n_bytes, align_bytes))
                return true;
        if (!fits(end, s->size_bytes, n_bytes, align_bytes, &at))
                return false;
        place(s, block, &s->blocks, n_bytes, at);
        return true;
}

void space_give_back(struct space *s, struct block *block) {
        list_unlink(&block->node);
        s->used_bytes -= block->n_bytes;
}
