#include "strategy/strategy.h"

#include <stdlib.h>
#include <string.h>

void tutti_variable_args_init(struct tutti_variable_args *args) {
        *args = TUTTI_VARIABLE(.name = NULL);
}

/* --- making --- */

static enum tutti_status check_new(const struct tutti_strategy *s, const struct tutti_variable_args *a) {
        if (!s || !a || a->struct_size != sizeof(*a))
                return say(TUTTI_INVALID,
                        "a variable needs a strategy, and arguments that begin with TUTTI_VARIABLE or "
                        "tutti_variable_args_init");
        size_t n = a->name ? strlen(a->name) : 0;
        if (n < 1 || n > 63)
                return say(TUTTI_INVALID, "a variable has a name of 1 to 63 bytes, this has %zu", n);
        if (a->n_dims > TUTTI_MAX_DIMS || tutti_dtype_bytes(a->dtype) == 0)
                return say(TUTTI_INVALID, "variable \"%s\": no such dtype, or more than %d dimensions",
                        a->name, TUTTI_MAX_DIMS);
        if ((unsigned int)a->synchronization > TUTTI_ON_READ ||
                (unsigned int)a->aggregation > TUTTI_AGGREGATION_ONLY_FIRST_REPLICA)
                return say(TUTTI_INVALID, "variable \"%s\": no such synchronization or aggregation", a->name);
        if (a->aggregation == TUTTI_AGGREGATION_MEAN && !dtype_is_float(a->dtype))
                return say(TUTTI_INVALID,
                        "variable \"%s\": a mean of %s has a fraction that it cannot hold; aggregate by SUM, "
                        "or make it a float",
                        a->name, tutti_dtype_name(a->dtype));
        if (a->colocate_with && a->colocate_with->strategy != s)
                return say(TUTTI_INVALID,
                        "variable \"%s\" is to live with \"%s\", which is of another strategy", a->name,
                        a->colocate_with->name);
        return TUTTI_OK;
}

static int variable_count(struct tutti_variable *v) {
        uint64_t n = 1;
        for (uint32_t i = 0; i < v->like.n_dims; i++)
                if (__builtin_mul_overflow(n, v->like.shape[i], &n))
                        return -1;
        v->count = n;
        return __builtin_mul_overflow(n, tutti_dtype_bytes(v->like.dtype), &v->n_bytes) ? -1 : 0;
}

static struct tutti_variable *variable_alloc(struct tutti_strategy *s, const struct tutti_variable_args *a) {
        struct tutti_variable *v = calloc(1, sizeof(*v));
        if (!v)
                return NULL;
        v->strategy = s;
        memcpy(v->name, a->name, strlen(a->name) + 1);
        v->synchronization = a->synchronization;
        v->aggregation = a->aggregation;
        v->like = TUTTI_VALUE(.dtype = a->dtype, .n_dims = a->n_dims);
        memcpy(v->like.shape, a->shape, sizeof(v->like.shape));
        v->components = calloc(s->n_local, sizeof(struct tutti_buffer *));
        v->next = s->variables;
        s->variables = v;
        return v;
}

static enum tutti_status make_components(struct tutti_variable *v) {
        if (!v->components || variable_count(v) < 0)
                return say(TUTTI_NO_MEMORY, "no memory for the variable \"%s\"", v->name);
        for (uint32_t i = 0; i < v->strategy->n_local; i++) {
                enum tutti_status status = say_last(
                        tutti_buffer_alloc(v->strategy->t, v->n_bytes ? v->n_bytes : 1, &v->components[i]));
                if (status != TUTTI_OK)
                        return status;
        }
        return TUTTI_OK;
}

enum tutti_status tutti_variable_new(
        struct tutti_strategy *s, const struct tutti_variable_args *args, struct tutti_variable **ret) {
        enum tutti_status status = check_cross_replica("variables that were made before the run");
        if (status == TUTTI_OK)
                status = check_new(s, args);
        if (status != TUTTI_OK)
                return status;
        struct tutti_variable *v = variable_alloc(s, args);
        if (!v)
                return say(TUTTI_NO_MEMORY, "no memory for the variable \"%s\"", args->name);
        status = make_components(v);
        if (status == TUTTI_OK && args->initial)
                memcpy(tutti_buffer_data(v->components[0]), args->initial, v->n_bytes);
        if (status == TUTTI_OK)
                status = broadcast_to_components(v, tutti_buffer_data(v->components[0]));
        if (status == TUTTI_OK)
                *ret = v;
        else
                tutti_variable_free(v);
        return status;
}

void tutti_variable_free(struct tutti_variable *v) {
        if (!v)
                return;
        struct tutti_variable **at = &v->strategy->variables;
        while (*at != v)
                at = &(*at)->next;
        *at = v->next;
        for (uint32_t i = 0; v->components && i < v->strategy->n_local; i++)
                tutti_buffer_free(v->components[i]);
        free(v->components);
        free(v);
}

/* --- looking --- */

const char *tutti_variable_name(const struct tutti_variable *v) {
        return v->name;
}

size_t tutti_variable_bytes(const struct tutti_variable *v) {
        return v->n_bytes;
}

void *tutti_variable_component(const struct tutti_variable *v, uint32_t i) {
        return i < v->strategy->n_local ? tutti_buffer_data(v->components[i]) : NULL;
}

struct tutti_value component_value(const struct tutti_variable *v, uint32_t i) {
        struct tutti_value value = v->like;
        value.buffer = v->components[i];
        return value;
}

enum tutti_status tutti_variable_value(const struct tutti_variable *v, uint32_t i, struct tutti_value *ret) {
        if (!v || !ret || i >= v->strategy->n_local)
                return say(TUTTI_INVALID, "there is no component %u here", i);
        *ret = component_value(v, i);
        return TUTTI_OK;
}

int tutti_strategy_created(const struct tutti_strategy *s, const struct tutti_variable *v) {
        return v && v->strategy == s;
}

struct tutti_variable *tutti_strategy_value_container(const struct tutti_strategy *s, const void *component) {
        for (struct tutti_variable *v = s->variables; v; v = v->next)
                for (uint32_t i = 0; i < s->n_local; i++)
                        if (tutti_variable_component(v, i) == component)
                                return v;
        return NULL;
}

const char *const *tutti_strategy_colocate_vars_with(
        const struct tutti_strategy *s, const struct tutti_variable *v) {
        if (tutti_strategy_created(s, v))
                return tutti_strategy_worker_devices(s);
        say(TUTTI_INVALID, "it is no variable of this strategy");
        return NULL;
}

/* --- reading --- */

struct gathering {
        struct tutti_variable *variable;
        const void *from; /* of a broadcast: what rank 0 brings */
        uint8_t *results; /* of a reading: [n_local] of n_bytes */
};

static enum tutti_status start_broadcast(
        struct tutti_strategy *s, uint32_t i, const void *arg, struct tutti_work **ret) {
        const struct gathering *g = arg;
        struct tutti_value from = g->variable->like, to = component_value(g->variable, i);
        from.memory = (void *)(uintptr_t)g->from;
        if (g->results) {
                from = to;
                to = g->variable->like;
                to.memory = g->results + i * g->variable->n_bytes;
        }
        int is_root = tutti_rank(s->groups[i]) == 0;
        return tutti_broadcast_into_start(
                s->groups[i], NULL, 0, is_root ? &from : NULL, &to, NULL, NULL, ret);
}

/* What rank 0 brings may be the component itself, whose copy travels: plain memory is copied at once. */
enum tutti_status broadcast_to_components(struct tutti_variable *v, const void *from) {
        const struct gathering g = { .variable = v, .from = from };
        return meet_all(v->strategy, start_broadcast, &g, NULL);
}

static enum tutti_status start_reduce(
        struct tutti_strategy *s, uint32_t i, const void *arg, struct tutti_work **ret) {
        const struct gathering *g = arg;
        struct tutti_value from = component_value(g->variable, i), to = g->variable->like;
        enum tutti_op op = g->variable->aggregation == TUTTI_AGGREGATION_SUM ? TUTTI_SUM : TUTTI_MEAN;
        to.memory = g->results + i * g->variable->n_bytes;
        return tutti_all_reduce_start(s->groups[i], NULL, op, &from, &to, NULL, ret);
}

static enum tutti_status read_together(struct tutti_variable *v, void *ret) {
        struct tutti_strategy *s = v->strategy;
        if (v->aggregation == TUTTI_AGGREGATION_NONE)
                return say(TUTTI_INVALID,
                        "\"%s\" is read where all replicas are, and has no aggregation that would say how "
                        "their values become one",
                        v->name);
        struct gathering g = { .variable = v, .results = calloc(s->n_local, v->n_bytes + 1) };
        if (!g.results)
                return say(TUTTI_NO_MEMORY, "no memory to read \"%s\"", v->name);
        enum tutti_status status = meet_all(s,
                v->aggregation == TUTTI_AGGREGATION_ONLY_FIRST_REPLICA ? start_broadcast : start_reduce, &g,
                NULL);
        if (status == TUTTI_OK)
                memcpy(ret, g.results, v->n_bytes);
        free(g.results);
        return status;
}

enum tutti_status tutti_variable_read(struct tutti_variable *v, struct tutti_context *c, void *ret) {
        if (!v || !ret)
                return say(TUTTI_INVALID, "a variable and a place for its value are needed");
        if (!c) {
                enum tutti_status status =
                        check_cross_replica("the replica's context as the second argument");
                if (status != TUTTI_OK)
                        return status;
                if (v->synchronization == TUTTI_ON_READ)
                        return read_together(v, ret);
        }
        memcpy(ret, tutti_variable_component(v, c ? tutti_context_local_id(c) : 0), v->n_bytes);
        return TUTTI_OK;
}

/* --- checkpoints --- */

enum tutti_status tutti_variable_save(struct tutti_variable *v, void *ret) {
        return tutti_variable_read(v, NULL, ret);
}

enum tutti_status tutti_variable_restore(struct tutti_variable *v, const void *saved) {
        return tutti_variable_change(v, NULL, TUTTI_ASSIGN, saved);
}
