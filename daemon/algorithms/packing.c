#include "algorithms/packing.h"

#include <errno.h>
#include <stdlib.h>
#include "algorithms/places.h"

void packs_deinit(struct packs *p) {
        free(p->pieces);
        *p = (struct packs){ 0 };
}

static int add(struct packs *p, const struct pack_piece *piece) {
        if (piece->n_elements == 0)
                return 0;
        if (p->n_pieces == p->capacity) {
                uint32_t capacity = p->capacity ? 2 * p->capacity : 16;
                struct pack_piece *pieces = realloc(p->pieces, capacity * sizeof(*pieces));
                if (!pieces)
                        return -ENOMEM;
                p->pieces = pieces;
                p->capacity = capacity;
        }
        p->pieces[p->n_pieces++] = *piece;
        return 0;
}

static const struct entry *entry_at(const struct problem *problem, uint32_t e) {
        return &problem->entries[0][e];
}

static uint64_t count_of(const struct problem *problem, uint32_t e) {
        uint64_t count;
        CHECK(entry_count(entry_at(problem, e), &count));
        return count;
}

static uint64_t bytes_of(const struct problem *problem, uint32_t e) {
        return count_of(problem, e) * dtype_bytes(entry_at(problem, e)->dtype);
}

static int add_whole(struct packs *p, const struct problem *problem, uint32_t e, uint32_t pack) {
        return add(p, &(struct pack_piece){ .pack = pack, .entry = e, .n_elements = count_of(problem, e) });
}

/* --- num_packs --- */

/* All entries of a type end to end: `n` pieces of floor(total / n) elements, the last one with the rest. */
struct cutting {
        uint32_t first_pack, n;
        uint64_t each, at; /* elements: of each piece; so far */
};

static uint32_t pack_at(const struct cutting *c, uint64_t *ret_left) {
        uint64_t k = c->each ? c->at / c->each : c->n - 1;
        if (k >= c->n - 1) {
                *ret_left = UINT64_MAX;
                return c->first_pack + c->n - 1;
        }
        *ret_left = c->each - c->at % c->each;
        return c->first_pack + (uint32_t)k;
}

static int cut_entry(struct packs *p, const struct problem *problem, uint32_t e, struct cutting *c) {
        uint64_t count = count_of(problem, e), first = 0, left;
        while (first < count) {
                uint32_t pack = pack_at(c, &left);
                uint64_t n = problem_has_strides(problem, e) || count - first < left ? count - first : left;
                int r = add(p, &(struct pack_piece){
                                       .pack = pack, .entry = e, .first_element = first, .n_elements = n });
                if (r < 0)
                        return r;
                first += n;
                c->at += n;
        }
        return 0;
}

static int cut_type(struct packs *p, const struct problem *problem, enum dtype dtype) {
        struct cutting c = { .first_pack = p->n_packs, .n = problem->signature->options.packing.num_packs };
        uint64_t total = 0;
        uint32_t n_entries = problem->signature->n_entries, n_found = 0;
        for (uint32_t e = 0; e < n_entries; e++) {
                bool is_it = entry_at(problem, e)->dtype == dtype;
                total += is_it ? count_of(problem, e) : 0;
                n_found += is_it;
        }
        if (n_found == 0)
                return 0;
        c.each = total / c.n;
        p->n_packs += c.n;
        int r = 0;
        for (uint32_t e = 0; r == 0 && e < n_entries; e++)
                if (entry_at(problem, e)->dtype == dtype)
                        r = cut_entry(p, problem, e, &c);
        return r;
}

static int make_num_packs(struct packs *p, const struct problem *problem) {
        int r = 0;
        for (enum dtype dtype = 0; r == 0 && dtype < N_DTYPE; dtype++)
                r = cut_type(p, problem, dtype);
        return r;
}

/* --- small ones --- */

/* How many entries from `e` on are one group: neighbours of one type, all of them small. */
static uint32_t group_at(const struct problem *problem, uint32_t e) {
        const struct packing *packing = &problem->signature->options.packing;
        uint32_t n = 0;
        while (e + n < problem->signature->n_entries && n < packing->small_group &&
                bytes_of(problem, e + n) <= packing->small_bytes &&
                entry_at(problem, e + n)->dtype == entry_at(problem, e)->dtype)
                n++;
        return n;
}

/* Groups of two and more come first, in order, then all others. */
static int make_small(struct packs *p, const struct problem *problem) {
        for (int want_groups = 1; want_groups >= 0; want_groups--)
                for (uint32_t e = 0, n; e < problem->signature->n_entries; e += n) {
                        n = group_at(problem, e);
                        bool is_group = n > 1;
                        if (n == 0)
                                n = 1;
                        if (is_group != want_groups)
                                continue;
                        for (uint32_t i = 0; i < n; i++) {
                                int r = add_whole(p, problem, e + i, p->n_packs);
                                if (r < 0)
                                        return r;
                        }
                        p->n_packs++;
                }
        return 0;
}

/* --- bytes_per_pack --- */

struct open_pack {
        uint32_t number;
        uint64_t n_bytes;
};

/* From the last entry on; a pack is closed once it is larger than the limit. Each type has a pack of its own
 * open. */
static int make_by_bytes(struct packs *p, const struct problem *problem) {
        struct open_pack open[N_DTYPE];
        bool is_open[N_DTYPE] = { false };
        for (uint32_t e = problem->signature->n_entries; e-- > 0;) {
                enum dtype dtype = entry_at(problem, e)->dtype;
                CHECK(dtype < N_DTYPE);
                if (!is_open[dtype] ||
                        open[dtype].n_bytes > problem->signature->options.packing.bytes_per_pack) {
                        open[dtype] = (struct open_pack){ .number = p->n_packs++ };
                        is_open[dtype] = true;
                }
                open[dtype].n_bytes += bytes_of(problem, e);
                int r = add_whole(p, problem, e, open[dtype].number);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* Packs of several types were open side by side; in each, entries come from the last one on. */
static int compare_pieces(const void *x, const void *y) {
        const struct pack_piece *a = x, *b = y;
        if (a->pack != b->pack)
                return a->pack < b->pack ? -1 : 1;
        return a->entry > b->entry ? -1 : a->entry < b->entry;
}

static int make_single(struct packs *p, const struct problem *problem) {
        int r = 0;
        for (uint32_t e = 0; r == 0 && e < problem->signature->n_entries; e++)
                r = add_whole(p, problem, e, p->n_packs++);
        return r;
}

int packs_make(struct packs *p, const struct problem *problem) {
        const struct packing *packing = &problem->signature->options.packing;
        if (packing->num_packs)
                return make_num_packs(p, problem);
        if (packing->small_bytes && packing->small_group)
                return make_small(p, problem);
        if (packing->bytes_per_pack == 0)
                return make_single(p, problem);
        int r = make_by_bytes(p, problem);
        if (r == 0 && p->n_pieces > 1)
                qsort(p->pieces, p->n_pieces, sizeof(*p->pieces), compare_pieces);
        return r;
}
