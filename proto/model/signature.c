#include "model/signature.h"

#include <inttypes.h>
#include <string.h>

/* --- what a half says --- */

uint32_t signature_axis(const struct signature *s) {
        return s->axes ? (uint32_t)__builtin_ctz(s->axes) : MAX_DIMS;
}

uint16_t signature_free_axes(const struct signature *s) {
        return s->kind == KIND_REDUCE_SCATTER ? 0 : s->axes;
}

void entry_output_shape(const struct signature *s, const struct entry *e, uint64_t ret[MAX_DIMS]) {
        memcpy(ret, e->shape, MAX_DIMS * sizeof(*ret));
        for (uint32_t d = 0; d < e->n_dims; d++)
                if (s->axes >> d & 1)
                        ret[d] = kind_has_axis(s->kind) ? e->output_extent : 1;
}

void entry_output_view(const struct signature *s, const struct entry *e, struct view *ret) {
        uint64_t shape[MAX_DIMS];
        entry_output_shape(s, e, shape);
        view_make(ret, e->n_dims, shape, e->output.n_strides ? e->output.strides : NULL);
}

bool entry_count(const struct entry *e, uint64_t *ret) {
        if (e->n_dims > MAX_DIMS)
                return false;
        for (uint32_t i = 0; i < e->n_dims; i++)
                if (e->shape[i] == 0) {
                        *ret = 0;
                        return true;
                }
        uint64_t n = 1;
        for (uint32_t i = 0; i < e->n_dims; i++)
                if (__builtin_mul_overflow(n, e->shape[i], &n) || n > INT64_MAX)
                        return false;
        *ret = n;
        return true;
}

void entry_view(const struct entry *e, const struct place *place, struct view *ret) {
        view_make(ret, e->n_dims, e->shape, place->n_strides ? place->strides : NULL);
}

uint64_t entry_part_bytes(const struct entry *e) {
        uint64_t n;
        if (!entry_count(e, &n) || __builtin_mul_overflow(n, dtype_bytes(e->dtype), &n) ||
                __builtin_add_overflow(n, UINT64_C(63), &n))
                return 0;
        return n & ~UINT64_C(63);
}

enum dtype entry_output_dtype(const struct entry *e) {
        return e->output_dtype == DTYPE_UNSPECIFIED ? e->dtype : e->output_dtype;
}

bool entry_has_destination(const struct entry *e, unsigned int rank) {
        switch (e->destination) {
        case DESTINATION_ALL: return true;
        case DESTINATION_RANK: return e->destination_rank == rank;
        case DESTINATION_RANKS: return rankset_has(&e->destination_ranks, rank);
        case DESTINATION_SAME: return true;
        case DESTINATION_UNSPECIFIED:
        case DESTINATION_DEVICE: return false;
        }
        return false;
}

bool signature_reads(const struct signature *s, unsigned int rank) {
        switch (s->kind) {
        case KIND_REDUCE:
        case KIND_BATCH_REDUCE:
        case KIND_GATHER:
        case KIND_REDUCE_SCATTER:
        case KIND_MERGE_CALL: return true;
        case KIND_BROADCAST:
        case KIND_MERGE_RESULT: return s->root == rank;
        case KIND_UNSPECIFIED:
        case KIND_BARRIER:
        case N_KIND: return false;
        }
        return false;
}

uint64_t signature_bytes(const struct signature *s, const struct entry *entries) {
        uint64_t total = 0;
        for (uint32_t i = 0; i < s->n_entries; i++) {
                uint64_t n;
                if (!entry_count(&entries[i], &n) ||
                        __builtin_mul_overflow(n, dtype_bytes(entries[i].dtype), &n) ||
                        __builtin_add_overflow(total, n, &total))
                        return UINT64_MAX;
        }
        return total;
}

/* --- comparing two halves --- */

static struct rankset destination_set(const struct entry *e) {
        if (e->destination == DESTINATION_RANKS)
                return e->destination_ranks;
        struct rankset s = { { 0 } };
        if (e->destination_rank < MAX_WORLD)
                rankset_add(&s, e->destination_rank);
        return s;
}

static bool names_ranks(const struct entry *e) {
        return e->destination == DESTINATION_RANK || e->destination == DESTINATION_RANKS;
}

/* A result object is one place for all, so all must mean the same bytes of it. */
static bool objects_are_equal(const struct place *a, const struct place *b) {
        return a->result == b->result && (a->result == 0 || a->offset_bytes == b->offset_bytes);
}

/* One rank, and the set of this one rank, are the same destination. */
static bool destinations_are_equal(const struct entry *a, const struct entry *b) {
        if (!objects_are_equal(&a->output, &b->output))
                return false;
        if (a->destination == DESTINATION_DEVICE && b->destination == DESTINATION_DEVICE)
                return a->destination_device == b->destination_device;
        if (a->destination == DESTINATION_RANK && b->destination == DESTINATION_RANK)
                return a->destination_rank == b->destination_rank;
        if (!names_ranks(a) || !names_ranks(b))
                return a->destination == b->destination;
        struct rankset of_a = destination_set(a), of_b = destination_set(b);
        return rankset_is_equal(&of_a, &of_b);
}

static enum implementation effective_implementation(const struct options *o) {
        return o->implementation == IMPLEMENTATION_UNSPECIFIED ? IMPLEMENTATION_AUTO : o->implementation;
}

static bool packings_are_equal(const struct packing *a, const struct packing *b) {
        return a->num_packs == b->num_packs && a->small_bytes == b->small_bytes &&
               a->small_group == b->small_group && a->bytes_per_pack == b->bytes_per_pack;
}

/* Everything that changes arithmetic. A weight is each replica's own: only its presence is compared; priority
 * changes no number. */
static bool options_are_equal(const struct options *a, const struct options *b) {
        return a->rounding == b->rounding && a->has_weight == b->has_weight &&
               a->check_numerics == b->check_numerics && a->check_overflow == b->check_overflow &&
               a->check_inputs == b->check_inputs && a->reproducible == b->reproducible &&
               effective_implementation(a) == effective_implementation(b) && a->algorithm == b->algorithm &&
               a->has_place == b->has_place && a->place == b->place &&
               packings_are_equal(&a->packing, &b->packing);
}

enum field signature_compare_heads(const struct signature *a, const struct signature *b) {
        if (a->kind != b->kind)
                return FIELD_KIND;
        if (a->op != b->op)
                return FIELD_OP;
        if (kind_has_root(a->kind) && a->root != b->root)
                return FIELD_ROOT;
        if (a->axes != b->axes)
                return FIELD_AXIS;
        if (!options_are_equal(&a->options, &b->options) || strcmp(a->tag, b->tag) != 0)
                return FIELD_OPTIONS;
        if (a->n_entries != b->n_entries)
                return FIELD_BATCH_LENGTH;
        return FIELD_UNSPECIFIED;
}

/* But for the lengths in the dimensions `free`. */
static enum field compare_entries(const struct entry *a, const struct entry *b, uint16_t free) {
        if (a->dtype != b->dtype)
                return FIELD_DTYPE;
        if (entry_output_dtype(a) != entry_output_dtype(b))
                return FIELD_OUTPUT_DTYPE;
        if (a->layout != b->layout)
                return FIELD_LAYOUT;
        if (a->n_dims != b->n_dims)
                return FIELD_SHAPE;
        for (uint32_t i = 0; i < a->n_dims && i < MAX_DIMS; i++)
                if (a->shape[i] != b->shape[i] && !(free >> i & 1))
                        return FIELD_SHAPE;
        if (!destinations_are_equal(a, b))
                return FIELD_DESTINATIONS;
        return FIELD_UNSPECIFIED;
}

void entries_digest(const struct signature *s, const struct entry *entries, uint32_t n, struct sip *digest) {
        uint16_t free = signature_free_axes(s);
        for (uint32_t i = 0; i < n; i++) {
                const struct entry *e = &entries[i];
                uint64_t destination = names_ranks(e) ? DESTINATION_RANKS : e->destination;
                sip_word(digest, (uint64_t)e->dtype | (uint64_t)entry_output_dtype(e) << 8 |
                                         (uint64_t)e->layout << 16 | destination << 24 |
                                         (uint64_t)e->n_dims << 32);
                for (uint32_t d = 0; d < e->n_dims && d < MAX_DIMS; d++)
                        sip_word(digest, free >> d & 1 ? 0 : e->shape[d]);
                sip_word(digest, e->output.result);
                if (e->output.result)
                        sip_word(digest, e->output.offset_bytes);
                if (e->destination == DESTINATION_DEVICE)
                        sip_word(digest, e->destination_device);
                if (!names_ranks(e))
                        continue;
                struct rankset set = destination_set(e);
                for (size_t w = 0; w < ARRAY_SIZE(set.words); w++)
                        sip_word(digest, set.words[w]);
        }
}

enum field signature_compare(const struct signature *a, const struct entry *a_entries,
        const struct signature *b, const struct entry *b_entries, int32_t *ret_entry) {
        *ret_entry = -1;
        enum field field = signature_compare_heads(a, b);
        if (field != FIELD_UNSPECIFIED)
                return field;
        uint16_t free = signature_free_axes(a);
        for (uint32_t i = 0; i < a->n_entries; i++) {
                field = compare_entries(&a_entries[i], &b_entries[i], free);
                if (field != FIELD_UNSPECIFIED) {
                        *ret_entry = (int32_t)i;
                        return field;
                }
        }
        return FIELD_UNSPECIFIED;
}

/* --- for people --- */

void entry_print(const struct entry *e, struct text *t) {
        text_add(t, "%s[", dtype_name(e->dtype));
        for (uint32_t i = 0; i < e->n_dims && i < MAX_DIMS; i++)
                text_add(t, "%s%" PRIu64, i ? "," : "", e->shape[i]);
        text_add(t, "%s]", e->n_dims > MAX_DIMS ? ",..." : "");
}

static void print_target(const struct entry *e, struct text *t) {
        switch (e->destination) {
        case DESTINATION_ALL: text_add(t, "all"); return;
        case DESTINATION_RANK: text_add(t, "R%" PRIu32, e->destination_rank); return;
        case DESTINATION_RANKS: rankset_print(&e->destination_ranks, t); return;
        case DESTINATION_DEVICE: device_print(e->destination_device, t); return;
        case DESTINATION_SAME: text_add(t, "where the value lives"); return;
        case DESTINATION_UNSPECIFIED: break;
        }
        text_add(t, "unspecified");
}

static void print_destinations(const struct entry *e, struct text *t) {
        print_target(e, t);
        if (e->output.result)
                text_add(t, ", in result object %" PRIu64 " at byte %" PRIu64, e->output.result,
                        e->output.offset_bytes);
}

const char *rounding_name(enum rounding rounding) {
        switch (rounding) {
        case ROUNDING_UNSPECIFIED: return "unspecified";
        case ROUNDING_TRUNC: return "trunc";
        case ROUNDING_FLOOR: return "floor";
        case ROUNDING_NEAREST: return "nearest";
        }
        return "?";
}

static const char *implementation_name(enum implementation implementation) {
        switch (implementation) {
        case IMPLEMENTATION_UNSPECIFIED:
        case IMPLEMENTATION_AUTO: return "AUTO";
        case IMPLEMENTATION_RING: return "RING";
        case IMPLEMENTATION_NCCL: return "NCCL";
        }
        return "?";
}

static void add_word(struct text *t, size_t start, const char *word) {
        text_add(t, "%s%s", t->used == start ? "" : " ", word);
}

static void print_number(const char *word, uint64_t number, size_t start, struct text *t) {
        if (number == 0)
                return;
        add_word(t, start, word);
        text_add(t, "=%" PRIu64, number);
}

/* Which way, over which device, in which packs. */
static void print_ways(const struct options *o, size_t start, struct text *t) {
        if (o->algorithm != ALGORITHM_UNSPECIFIED) {
                add_word(t, start, "algorithm=");
                text_add(t, "%s", algorithm_word(o->algorithm));
        }
        if (o->has_place) {
                add_word(t, start, "device=");
                device_print(o->place, t);
        }
        print_number("num_packs", o->packing.num_packs, start, t);
        print_number("agg_small_grads_max_bytes", o->packing.small_bytes, start, t);
        print_number("agg_small_grads_max_group", o->packing.small_group, start, t);
        print_number("bytes_per_pack", o->packing.bytes_per_pack, start, t);
}

/* What is not default, in words. */
static void print_options(const struct options *o, struct text *t) {
        const struct {
                bool is_set;
                const char *word;
        } flags[] = {
                { o->has_weight, "weight" },
                { o->check_numerics, "check_numerics" },
                { o->check_overflow, "check_overflow" },
                { o->check_inputs, "check_inputs" },
                { o->reproducible, "reproducible" },
        };
        size_t start = t->used;
        if (o->rounding != ROUNDING_UNSPECIFIED)
                text_add(t, "rounding=%s", rounding_name(o->rounding));
        if (effective_implementation(o) != IMPLEMENTATION_AUTO) {
                add_word(t, start, "implementation=");
                text_add(t, "%s", implementation_name(o->implementation));
        }
        print_ways(o, start, t);
        for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
                if (flags[i].is_set)
                        add_word(t, start, flags[i].word);
        if (t->used == start)
                text_add(t, "default options");
}

/* Of a merge_call also what it calls. */
static void print_head_options(const struct signature *s, struct text *t) {
        if (s->tag[0])
                text_add(t, "tag %s, ", s->tag);
        print_options(&s->options, t);
}

static void print_axes(uint16_t axes, struct text *t) {
        uint32_t n = (uint32_t)__builtin_popcount(axes);
        text_add(t, "%s", n == 0 ? "no axis" : n == 1 ? "axis" : "axes");
        for (uint32_t d = 0; d < MAX_DIMS; d++)
                if (axes >> d & 1)
                        text_add(t, " %" PRIu32, d);
}

static void print_entry_field(const struct entry *e, enum field field, struct text *t) {
        if (field == FIELD_OUTPUT_DTYPE)
                text_add(t, "%s", dtype_name(entry_output_dtype(e)));
        else if (field == FIELD_LAYOUT)
                text_add(t, "%s", e->layout == LAYOUT_SPARSE ? "sparse" : "dense");
        else if (field == FIELD_DESTINATIONS)
                print_destinations(e, t);
        else
                entry_print(e, t);
}

void signature_print_field(const struct signature *s, const struct entry *entries, enum field field,
        int32_t entry, struct text *t) {
        if (entry >= 0 && (uint32_t)entry < s->n_entries)
                print_entry_field(&entries[entry], field, t);
        else if (field == FIELD_KIND)
                text_add(t, "%s", kind_name(s->kind));
        else if (field == FIELD_OP)
                text_add(t, "%s", op_name(s->op));
        else if (field == FIELD_ROOT)
                text_add(t, "root %" PRIu32, s->root);
        else if (field == FIELD_AXIS)
                print_axes(s->axes, t);
        else if (field == FIELD_OPTIONS)
                print_head_options(s, t);
        else
                text_add(t, "%" PRIu32 " entr%s", s->n_entries, s->n_entries == 1 ? "y" : "ies");
}
