#include "strategy/strategy.h"

#include <stdlib.h>

void tutti_reduction_init(struct tutti_reduction *reduction) {
        *reduction = TUTTI_REDUCTION(.values = NULL);
}

/* One that cannot be started leaves the others with a meeting that does not come about: they are not waited
 * for. */
static enum tutti_status meet(struct tutti_strategy *s,
        enum tutti_status (*start)(
                struct tutti_strategy *s, uint32_t i, const void *arg, struct tutti_work **ret),
        const void *arg, void (*see)(struct tutti_work *first, void *data), void *data) {
        struct tutti_work **works = calloc(s->n_local, sizeof(struct tutti_work *));
        enum tutti_status status =
                works ? TUTTI_OK : say(TUTTI_NO_MEMORY, "no memory for %u works", s->n_local);
        for (uint32_t i = 0; status == TUTTI_OK && i < s->n_local; i++)
                status = say_last(start(s, i, arg, &works[i]));
        int all_started = status == TUTTI_OK;
        for (uint32_t i = 0; works && i < s->n_local && works[i]; i++) {
                enum tutti_status end = all_started ? tutti_work_wait(works[i], -1) : TUTTI_OK;
                if (status == TUTTI_OK)
                        status = say_text(end, tutti_work_error(works[i])->text);
                if (i == 0 && all_started && end == TUTTI_OK && see)
                        see(works[i], data);
                tutti_work_free(works[i]);
        }
        free(works);
        return status;
}

/* How long a result is: the same for all. */
static void see_extent(struct tutti_work *w, void *data) {
        if (tutti_work_extent(w, 0, data, NULL) != TUTTI_OK)
                *(uint64_t *)data = 0;
}

enum tutti_status meet_all(struct tutti_strategy *s,
        enum tutti_status (*start)(
                struct tutti_strategy *s, uint32_t i, const void *arg, struct tutti_work **ret),
        const void *arg, uint64_t *ret_extent) {
        return meet(s, start, arg, ret_extent ? see_extent : NULL, ret_extent);
}
/* --- reduce --- */

struct batch {
        enum tutti_op op;
        const struct tutti_reduction *reductions;
        uint32_t n;
        const struct tutti_options *options;
        struct tutti_entry *entries; /* [n], filled for each replica in turn: starting copies them */
};

static enum tutti_status start_batch(
        struct tutti_strategy *s, uint32_t i, const void *arg, struct tutti_work **ret) {
        const struct batch *b = arg;
        for (uint32_t e = 0; e < b->n; e++) {
                const struct tutti_reduction *r = &b->reductions[e];
                b->entries[e] = TUTTI_ENTRY(.input = &r->values[i],
                        .output = r->outputs ? &r->outputs[i] : NULL, .destinations = r->destinations);
        }
        return tutti_batch_reduce_start(s->groups[i], NULL, b->op, b->entries, b->n, b->options, ret);
}

static void see_extents(struct tutti_work *w, void *data) {
        const struct batch *b = data;
        for (uint32_t e = 0; e < b->n; e++)
                if (b->reductions[e].ret_extent &&
                        tutti_work_extent(w, e, b->reductions[e].ret_extent, NULL) != TUTTI_OK)
                        *b->reductions[e].ret_extent = 0;
}

static enum tutti_status check_reductions(const struct tutti_reduction *reductions, uint32_t n) {
        if (!reductions || n == 0)
                return say(TUTTI_INVALID, "there is nothing to reduce: a batch needs at least one value");
        for (uint32_t e = 0; e < n; e++)
                if (reductions[e].struct_size != sizeof(*reductions) || !reductions[e].values)
                        return say(TUTTI_INVALID,
                                "value %u of the batch has no values, or does not begin with "
                                "TUTTI_REDUCTION",
                                e);
        return TUTTI_OK;
}

enum tutti_status tutti_strategy_batch_reduce_to(struct tutti_strategy *s, enum tutti_op op,
        const struct tutti_reduction *reductions, uint32_t n, const struct tutti_options *options) {
        enum tutti_status status =
                check_cross_replica("tutti_context_all_reduce or tutti_context_merge_call");
        if (status == TUTTI_OK)
                status = check_reductions(reductions, n);
        if (status != TUTTI_OK)
                return status;
        struct batch b = { .op = op,
                .reductions = reductions,
                .n = n,
                .options = options,
                .entries = calloc(n, sizeof(*b.entries)) };
        if (!b.entries)
                return say(TUTTI_NO_MEMORY, "no memory for a batch of %u", n);
        status = meet(s, start_batch, &b, see_extents, &b);
        free(b.entries);
        return status;
}

enum tutti_status tutti_strategy_reduce_to(struct tutti_strategy *s, enum tutti_op op,
        const struct tutti_reduction *reduction, const struct tutti_options *options) {
        return tutti_strategy_batch_reduce_to(s, op, reduction, 1, options);
}

/* --- broadcast --- */

struct broadcast {
        uint32_t root;
        const struct tutti_value *value, *outputs;
        const struct tutti_destinations *destinations;
        const struct tutti_options *options;
};

static enum tutti_status start_broadcast(
        struct tutti_strategy *s, uint32_t i, const void *arg, struct tutti_work **ret) {
        const struct broadcast *b = arg;
        int is_root = tutti_rank(s->groups[i]) == b->root;
        return tutti_broadcast_into_start(s->groups[i], NULL, b->root, is_root ? b->value : NULL,
                b->outputs ? &b->outputs[i] : NULL, b->destinations, b->options, ret);
}

enum tutti_status tutti_strategy_broadcast_to(struct tutti_strategy *s, uint32_t root,
        const struct tutti_value *value, const struct tutti_value *outputs,
        const struct tutti_destinations *destinations, const struct tutti_options *options) {
        enum tutti_status status = check_cross_replica("tutti_context_merge_call");
        const struct broadcast b = { root, value, outputs, destinations, options };
        return status == TUTTI_OK ? meet_all(s, start_broadcast, &b, NULL) : status;
}
