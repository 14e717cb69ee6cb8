/* The collectives of tutti.h: each fills in a half and starts it; the synchronous ones wait. */
#include "lib/frozen.h"
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

enum op half_op(enum tutti_op op) {
        return (unsigned int)op < N_OP ? (enum op)op : N_OP;
}

/* Starts it, and waits. */
static enum tutti_status meet(struct half *h, const char *key) {
        struct tutti_work *w;
        h->is_waited_for = true;
        enum tutti_status status = submit(h, key, &w);
        return status == TUTTI_OK ? work_finish(w, NULL) : status;
}

/* --- halves --- */

static struct half half_of_one(struct tutti_group *g, enum kind kind, const struct tutti_entry *entry) {
        return (struct half){
                .g = g, .kind = kind, .entries = entry, .stride_bytes = sizeof(*entry), .n_entries = 1
        };
}

static struct tutti_entry entry_of(const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_destinations *destinations) {
        static const struct tutti_destinations nowhere = { .where = (enum tutti_destination) - 1 };
        return (struct tutti_entry)TUTTI_ENTRY(.input = input, .output = output,
                .destinations = destinations ? *destinations : nowhere);
}

static struct tutti_entry entry_to_all(const struct tutti_value *input, const struct tutti_value *output) {
        static const struct tutti_destinations all = { .where = TUTTI_TO_ALL };
        return entry_of(input, output, &all);
}

static struct half reduction(struct tutti_group *g, enum tutti_op op, const struct tutti_entry *entry) {
        struct half h = half_of_one(g, KIND_REDUCE, entry);
        h.op = half_op(op);
        return h;
}

static struct half broadcast(struct tutti_group *g, uint32_t root, const struct tutti_entry *entry) {
        struct half h = half_of_one(g, KIND_BROADCAST, entry);
        h.root = root;
        return h;
}

static struct half batch(
        struct tutti_group *g, enum tutti_op op, const struct tutti_entry *entries, uint32_t n_entries) {
        return (struct half){ .g = g,
                .kind = KIND_BATCH_REDUCE,
                .op = half_op(op),
                .entries = entries,
                .stride_bytes = entries && n_entries ? entries->struct_size : 0,
                .n_entries = n_entries };
}

static struct tutti_entry entry_of_root(
        const struct tutti_group *g, uint32_t root, const struct tutti_value *value) {
        bool is_root = g && g->rank == root;
        return (struct tutti_entry)TUTTI_ENTRY(.input = is_root ? value : NULL,
                .output = is_root ? NULL : value);
}

/* --- started, for the caller to wait for --- */

enum tutti_status tutti_reduce_start(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_destinations *destinations, const struct tutti_options *options,
        struct tutti_work **ret) {
        const struct tutti_entry entry = entry_of(input, output, destinations);
        struct half h = reduction(g, op, &entry);
        h.options = options;
        return submit(&h, key, ret);
}

enum tutti_status tutti_all_reduce_start(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_options *options, struct tutti_work **ret) {
        const struct tutti_entry entry = entry_to_all(input, output);
        struct half h = reduction(g, op, &entry);
        h.options = options;
        return submit(&h, key, ret);
}

enum tutti_status tutti_broadcast_start(struct tutti_group *g, const char *key, uint32_t root,
        const struct tutti_value *value, const struct tutti_options *options, struct tutti_work **ret) {
        const struct tutti_entry entry = entry_of_root(g, root, value);
        struct half h = broadcast(g, root, &entry);
        h.options = options;
        return submit(&h, key, ret);
}

enum tutti_status tutti_broadcast_into_start(struct tutti_group *g, const char *key, uint32_t root,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_destinations *destinations, const struct tutti_options *options,
        struct tutti_work **ret) {
        const struct tutti_entry entry =
                destinations ? entry_of(input, output, destinations) : entry_to_all(input, output);
        struct half h = broadcast(g, root, &entry);
        h.options = options;
        return submit(&h, key, ret);
}

enum tutti_status tutti_batch_reduce_start(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_entry *entries, uint32_t n_entries, const struct tutti_options *options,
        struct tutti_work **ret) {
        struct half h = batch(g, op, entries, n_entries);
        h.options = options;
        return submit(&h, key, ret);
}

enum tutti_status tutti_barrier_start(struct tutti_group *g, const char *key,
        const struct tutti_options *options, struct tutti_work **ret) {
        struct half h = { .g = g, .kind = KIND_BARRIER, .options = options };
        return submit(&h, key, ret);
}

/* --- prepared, to be started or run many times --- */

enum tutti_status tutti_prepare_all_reduce(struct tutti_group *g, enum tutti_op op,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_options *options, struct tutti_prepared **ret) {
        const struct tutti_entry entry = entry_to_all(input, output);
        struct half h = reduction(g, op, &entry);
        h.options = options;
        return frozen_make(&h, ret);
}

enum tutti_status tutti_prepare_reduce(struct tutti_group *g, enum tutti_op op,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_destinations *destinations, const struct tutti_options *options,
        struct tutti_prepared **ret) {
        const struct tutti_entry entry = entry_of(input, output, destinations);
        struct half h = reduction(g, op, &entry);
        h.options = options;
        return frozen_make(&h, ret);
}

enum tutti_status tutti_prepare_broadcast(struct tutti_group *g, uint32_t root,
        const struct tutti_value *value, const struct tutti_options *options, struct tutti_prepared **ret) {
        const struct tutti_entry entry = entry_of_root(g, root, value);
        struct half h = broadcast(g, root, &entry);
        h.options = options;
        return frozen_make(&h, ret);
}

enum tutti_status tutti_prepare_batch_reduce(struct tutti_group *g, enum tutti_op op,
        const struct tutti_entry *entries, uint32_t n_entries, const struct tutti_options *options,
        struct tutti_prepared **ret) {
        struct half h = batch(g, op, entries, n_entries);
        h.options = options;
        return frozen_make(&h, ret);
}

static enum tutti_status refuse_nothing(void) {
        return thread_say(STATUS_INVALID, FIELD_UNSPECIFIED, "there is no prepared collective to be run");
}

enum tutti_status tutti_prepared_start(struct tutti_prepared *p, const char *key, struct tutti_work **ret) {
        if (!p)
                return refuse_nothing();
        struct half h = p->half;
        h.prepared = p;
        return submit(&h, key, ret);
}

enum tutti_status tutti_prepared_run(struct tutti_prepared *p, const char *key) {
        if (!p)
                return refuse_nothing();
        struct half h = p->half;
        h.prepared = p;
        return meet(&h, key);
}

/* --- the same, and wait --- */

enum tutti_status tutti_all_reduce(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_value *input, const struct tutti_value *output) {
        const struct tutti_entry entry = entry_to_all(input, output);
        struct half h = reduction(g, op, &entry);
        return meet(&h, key);
}

enum tutti_status tutti_reduce(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_destinations *destinations) {
        const struct tutti_entry entry = entry_of(input, output, destinations);
        struct half h = reduction(g, op, &entry);
        return meet(&h, key);
}

enum tutti_status tutti_broadcast(
        struct tutti_group *g, const char *key, uint32_t root, const struct tutti_value *value) {
        const struct tutti_entry entry = entry_of_root(g, root, value);
        struct half h = broadcast(g, root, &entry);
        return meet(&h, key);
}

enum tutti_status tutti_broadcast_into(struct tutti_group *g, const char *key, uint32_t root,
        const struct tutti_value *input, const struct tutti_value *output,
        const struct tutti_destinations *destinations) {
        const struct tutti_entry entry =
                destinations ? entry_of(input, output, destinations) : entry_to_all(input, output);
        struct half h = broadcast(g, root, &entry);
        return meet(&h, key);
}

enum tutti_status tutti_batch_reduce(struct tutti_group *g, const char *key, enum tutti_op op,
        const struct tutti_entry *entries, uint32_t n_entries) {
        struct half h = batch(g, op, entries, n_entries);
        return meet(&h, key);
}

enum tutti_status tutti_barrier(struct tutti_group *g, const char *key) {
        struct half h = { .g = g, .kind = KIND_BARRIER };
        return meet(&h, key);
}
