/* Along axes: gathers and reductions, in both contexts. */
#include <tutti/axes.h>

#include "strategy/strategy.h"

/* --- cross-replica --- */

struct gather {
        int32_t axis;
        const struct tutti_reduction *value;
        const struct tutti_options *options;
};

static struct tutti_entry entry_of(const struct tutti_reduction *r, uint32_t i) {
        return TUTTI_ENTRY(.input = &r->values[i], .output = r->outputs ? &r->outputs[i] : NULL,
                .destinations = r->destinations);
}

static enum tutti_status check_value(const struct tutti_reduction *r, const char *instead) {
        enum tutti_status status = check_cross_replica(instead);
        if (status != TUTTI_OK)
                return status;
        if (!r || r->struct_size != sizeof(*r) || !r->values)
                return say(TUTTI_INVALID, "there are no values, or they do not begin with TUTTI_REDUCTION");
        return TUTTI_OK;
}

static enum tutti_status start_gather(
        struct tutti_strategy *s, uint32_t i, const void *arg, struct tutti_work **ret) {
        const struct gather *a = arg;
        const struct tutti_entry entry = entry_of(a->value, i);
        return tutti_gather_start(s->groups[i],
                &TUTTI_GATHER(.axis = a->axis, .entries = &entry, .n_entries = 1, .options = a->options),
                ret);
}

enum tutti_status tutti_strategy_gather(struct tutti_strategy *s, int32_t axis,
        const struct tutti_reduction *value, const struct tutti_options *options, uint64_t *ret_extent) {
        const struct gather a = { .axis = axis, .value = value, .options = options };
        enum tutti_status status = check_value(value, "tutti_context_all_gather");
        return status == TUTTI_OK ? meet_all(s, start_gather, &a, ret_extent) : status;
}

struct reduce_over {
        enum tutti_op op;
        const struct tutti_axes *axes;
        const struct tutti_reduction *value;
        const struct tutti_options *options;
};

static enum tutti_status start_reduce_over(
        struct tutti_strategy *s, uint32_t i, const void *arg, struct tutti_work **ret) {
        const struct reduce_over *a = arg;
        const struct tutti_entry entry = entry_of(a->value, i);
        return tutti_reduce_over_start(s->groups[i],
                &TUTTI_REDUCE_OVER(.op = a->op, .axes = a->axes ? a->axes->list : NULL,
                        .n_axes = a->axes ? a->axes->n : 0, .entries = &entry, .n_entries = 1,
                        .options = a->options),
                ret);
}

enum tutti_status tutti_strategy_reduce(struct tutti_strategy *s, enum tutti_op op,
        const struct tutti_reduction *value, const struct tutti_axes *axes,
        const struct tutti_options *options) {
        const struct reduce_over a = { op, axes, value, options };
        enum tutti_status status = check_value(value, "tutti_context_all_reduce");
        return status == TUTTI_OK ? meet_all(s, start_reduce_over, &a, NULL) : status;
}

/* --- in a replica --- */

struct all_gather {
        int32_t axis;
        const struct tutti_entry *entries;
        uint32_t n;
        const struct tutti_options *options;
        uint64_t *ret_extents;
};

static enum tutti_status meet_all_gather(struct tutti_context *c, const char *key, void *arg) {
        const struct all_gather *a = arg;
        return say_last(tutti_gather(tutti_context_group(c),
                &TUTTI_GATHER(.key = key, .axis = a->axis, .entries = a->entries, .n_entries = a->n,
                        .options = a->options, .ret_extents = a->ret_extents)));
}

enum tutti_status tutti_context_all_gather(struct tutti_context *c, int32_t axis,
        const struct tutti_entry *entries, uint32_t n_entries, const struct tutti_options *options,
        uint64_t *ret_extents) {
        struct all_gather a = { axis, entries, n_entries, options, ret_extents };
        return context_meet(c, meet_all_gather, &a);
}
