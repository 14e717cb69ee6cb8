/* The collectives of tutti.h: each fills in a half and starts it; the synchronous ones wait. */
#include "lib/submit.h"

static _Thread_local struct tutti_result last_result;

const struct tutti_result *tutti_last_result(void) {
        return &last_result;
}

enum tutti_status work_finish(struct tutti_work *w, uint64_t *ret_extents) {
        enum status status = work_wait(w, WAIT_FOREVER);
        if (status == STATUS_OK)
                work_show_result(w, &last_result);
        for (uint32_t i = 0; status == STATUS_OK && ret_extents && i < w->n_extents; i++)
                ret_extents[i] = w->extents[2 * i];
        if (status != STATUS_OK)
                call_take_failure(&w->call);
        tutti_work_free(w);
        return (enum tutti_status)status;
}

static enum tutti_status finish(struct tutti_work *w) {
        return work_finish(w, NULL);
}

enum op half_op(enum tutti_op op) {
        return (unsigned int)op < N_OP ? (enum op)op : N_OP;
}

static enum tutti_status submit_one(
        struct half *h, const char *key, const struct tutti_entry *entry, struct tutti_work **ret) {
        h->entries = entry;
        h->stride_bytes = sizeof(*entry);
        h->n_entries = 1;
        return submit(h, key, ret);
}

enum tutti_status tutti_reduce_start(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_destinations *destinations, const struct tutti_options *options,
        struct tutti_work **ret) {
        static const struct tutti_destinations nowhere = { .where = (enum tutti_destination) - 1 };
        const struct tutti_entry entry = TUTTI_ENTRY(.input = input, .output = output,
                .destinations = destinations ? *destinations : nowhere);
        struct half h = { .g = g, .kind = KIND_REDUCE, .op = half_op(op), .options = options };
        return submit_one(&h, key, &entry, ret);
}

enum tutti_status tutti_all_reduce_start(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_options *options, struct tutti_work **ret) {
        static const struct tutti_destinations all = { .where = TUTTI_TO_ALL };
        return tutti_reduce_start(g, key, op, input, output, &all, options, ret);
}

enum tutti_status tutti_broadcast_start(struct tutti_group *g, const char *key, uint32_t root,
        const struct tutti_value *value, const struct tutti_options *options, struct tutti_work **ret) {
        bool is_root = g && g->rank == root;
        const struct tutti_entry entry =
                TUTTI_ENTRY(.input = is_root ? value : NULL, .output = is_root ? NULL : value);
        struct half h = { .g = g, .kind = KIND_BROADCAST, .root = root, .options = options };
        return submit_one(&h, key, &entry, ret);
}

enum tutti_status tutti_broadcast_into_start(struct tutti_group *g, const char *key, uint32_t root,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_destinations *destinations, const struct tutti_options *options,
        struct tutti_work **ret) {
        static const struct tutti_destinations all = { .where = TUTTI_TO_ALL };
        const struct tutti_entry entry = TUTTI_ENTRY(.input = input, .output = output,
                .destinations = destinations ? *destinations : all);
        struct half h = { .g = g, .kind = KIND_BROADCAST, .root = root, .options = options };
        return submit_one(&h, key, &entry, ret);
}

enum tutti_status tutti_batch_reduce_start(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_entry *entries, uint32_t n_entries, const struct tutti_options *options,
        struct tutti_work **ret) {
        struct half h = { .g = g,
                .kind = KIND_BATCH_REDUCE,
                .op = half_op(op),
                .entries = entries,
                .stride_bytes = entries && n_entries ? entries->struct_size : 0,
                .n_entries = n_entries,
                .options = options };
        return submit(&h, key, ret);
}

enum tutti_status tutti_barrier_start(struct tutti_group *g, const char *key,
        const struct tutti_options *options, struct tutti_work **ret) {
        struct half h = { .g = g, .kind = KIND_BARRIER, .options = options };
        return submit(&h, key, ret);
}

/* --- the same, and wait --- */

enum tutti_status tutti_all_reduce(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_value *input, const struct tutti_value *output) {
        struct tutti_work *w;
        enum tutti_status status = tutti_all_reduce_start(g, key, op, input, output, NULL, &w);
        return status == TUTTI_OK ? finish(w) : status;
}

enum tutti_status tutti_reduce(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_destinations *destinations) {
        struct tutti_work *w;
        enum tutti_status status = tutti_reduce_start(g, key, op, input, output, destinations, NULL, &w);
        return status == TUTTI_OK ? finish(w) : status;
}

enum tutti_status tutti_broadcast(
        struct tutti_group *g, const char *key, uint32_t root, const struct tutti_value *value) {
        struct tutti_work *w;
        enum tutti_status status = tutti_broadcast_start(g, key, root, value, NULL, &w);
        return status == TUTTI_OK ? finish(w) : status;
}

enum tutti_status tutti_broadcast_into(struct tutti_group *g, const char *key, uint32_t root,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_destinations *destinations) {
        struct tutti_work *w;
        enum tutti_status status =
                tutti_broadcast_into_start(g, key, root, input, output, destinations, NULL, &w);
        return status == TUTTI_OK ? finish(w) : status;
}

enum tutti_status tutti_batch_reduce(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_entry *entries, uint32_t n_entries) {
        struct tutti_work *w;
        enum tutti_status status = tutti_batch_reduce_start(g, key, op, entries, n_entries, NULL, &w);
        return status == TUTTI_OK ? finish(w) : status;
}

enum tutti_status tutti_barrier(struct tutti_group *g, const char *key) {
        struct tutti_work *w;
        enum tutti_status status = tutti_barrier_start(g, key, NULL, &w);
        return status == TUTTI_OK ? finish(w) : status;
}
