/* How a variable changes: assign, add, sub, by a value or a literal, in both contexts; and update. */
#include "strategy/strategy.h"

#include <stdlib.h>

static int is_total(const struct tutti_variable *v) {
        return v->synchronization == TUTTI_ON_READ && v->aggregation == TUTTI_AGGREGATION_SUM;
}

static enum tutti_status change_component(
        struct tutti_variable *v, uint32_t i, enum tutti_change change, const void *value) {
        return change_elements(change, v->like.dtype, v->count, tutti_variable_component(v, i), value);
}

/* --- cross-replica --- */

static enum tutti_status share_out(struct tutti_variable *v, const void *value) {
        enum tutti_status status = TUTTI_OK;
        for (uint32_t i = 0; status == TUTTI_OK && i < v->strategy->n_local; i++)
                status = share_elements(v->like.dtype, v->count, tutti_variable_component(v, i), value,
                        (struct share){
                                .rank = (uint32_t)v->strategy->rank + i, .n = v->strategy->world_size });
        return status;
}

static enum tutti_status change_all(struct tutti_variable *v, enum tutti_change change, const void *value) {
        enum tutti_status status = check_cross_replica("the replica's context as the second argument");
        if (status != TUTTI_OK)
                return status;
        if (is_total(v) && change != TUTTI_ASSIGN)
                return say(TUTTI_INVALID,
                        "\"%s\" is a sum over replicas: what is added to all of them at once would count %u "
                        "times; assign it, or add in one replica",
                        v->name, v->strategy->world_size);
        if (is_total(v))
                return share_out(v, value);
        for (uint32_t i = 0; status == TUTTI_OK && i < v->strategy->n_local; i++)
                status = change_component(v, i, change, value);
        return status;
}

/* --- in a replica --- */

struct merging {
        struct tutti_variable *variable;
        struct tutti_value from, to;
};

static enum tutti_status meet_for_change(struct tutti_context *c, const char *key, void *arg) {
        const struct merging *m = arg;
        struct tutti_group *g = tutti_context_group(c);
        if (m->variable->aggregation == TUTTI_AGGREGATION_ONLY_FIRST_REPLICA)
                return say_last(
                        tutti_broadcast_into(g, key, 0, tutti_rank(g) == 0 ? &m->from : NULL, &m->to, NULL));
        return say_last(tutti_all_reduce(g, key,
                m->variable->aggregation == TUTTI_AGGREGATION_SUM ? TUTTI_SUM : TUTTI_MEAN, &m->from,
                &m->to));
}

static enum tutti_status change_together(
        struct tutti_variable *v, struct tutti_context *c, enum tutti_change change, const void *value) {
        void *merged = calloc(1, v->n_bytes + 1);
        if (!merged)
                return say(TUTTI_NO_MEMORY, "no memory to change \"%s\"", v->name);
        struct merging m = { .variable = v, .from = v->like, .to = v->like };
        m.from.memory = (void *)(uintptr_t)value;
        m.to.memory = merged;
        enum tutti_status status = context_meet(c, meet_for_change, &m);
        if (status == TUTTI_OK)
                status = change_component(v, tutti_context_local_id(c), change, merged);
        free(merged);
        return status;
}

static enum tutti_status check_change(
        const struct tutti_variable *v, const struct tutti_context *c, enum tutti_change change) {
        if (!v || (unsigned int)change > TUTTI_ASSIGN_SUB)
                return say(TUTTI_INVALID, "a variable, and ASSIGN, ASSIGN_ADD or ASSIGN_SUB are needed");
        if (c && tutti_context_strategy(c) != v->strategy)
                return say(TUTTI_INVALID, "\"%s\" is of another strategy than this replica", v->name);
        return TUTTI_OK;
}

enum tutti_status tutti_variable_change(
        struct tutti_variable *v, struct tutti_context *c, enum tutti_change change, const void *value) {
        enum tutti_status status = check_change(v, c, change);
        if (status == TUTTI_OK && !value)
                status = say(TUTTI_INVALID, "\"%s\" is to change by NULL", v->name);
        if (status != TUTTI_OK)
                return status;
        if (!c)
                return change_all(v, change, value);
        if (v->synchronization == TUTTI_ON_READ || v->aggregation == TUTTI_AGGREGATION_NONE)
                return change_component(v, tutti_context_local_id(c), change, value);
        return change_together(v, c, change, value);
}

/* --- literals: equal in all replicas, so nobody needs to meet --- */

enum tutti_status tutti_variable_change_literal(
        struct tutti_variable *v, struct tutti_context *c, enum tutti_change change, double literal) {
        enum tutti_status status = check_change(v, c, change);
        if (status != TUTTI_OK)
                return status;
        if (c && v->synchronization == TUTTI_MIRRORED && v->aggregation == TUTTI_AGGREGATION_SUM &&
                literal != 0)
                return say(TUTTI_INVALID,
                        "\"%s\" is aggregated by SUM, and the literal %g is the same in all %u replicas: "
                        "whether "
                        "it means itself or %u times itself, nobody can tell; hand it in as a value",
                        v->name, literal, v->strategy->world_size, v->strategy->world_size);
        void *value = calloc(1, v->n_bytes + 1);
        if (!value)
                return say(TUTTI_NO_MEMORY, "no memory to change \"%s\"", v->name);
        status = fill_elements(v->like.dtype, v->count, value, literal);
        if (status == TUTTI_OK)
                status = c ? change_component(v, tutti_context_local_id(c), change, value)
                           : change_all(v, change, value);
        free(value);
        return status;
}

/* --- update --- */

static enum tutti_status update_all(struct tutti_strategy *s, const struct tutti_variable *v,
        tutti_update_fn fn, void *const *userdata, uint32_t n_userdata) {
        enum tutti_status status = check_cross_replica("the replica's own component");
        if (status != TUTTI_OK)
                return status;
        if (!fn || (n_userdata > 1 && n_userdata != s->n_local) || (n_userdata && !userdata))
                return say(TUTTI_INVALID,
                        "an update needs a function, and userdata for none, for all, or for each of the %u "
                        "local "
                        "replicas",
                        s->n_local);
        for (uint32_t i = 0; status == TUTTI_OK && i < s->n_local; i++) {
                void *mine = n_userdata == 0 ? NULL : userdata[n_userdata == 1 ? 0 : i];
                status = fn(v ? tutti_variable_component(v, i) : NULL, i, mine);
                if (status != TUTTI_OK)
                        say(status,
                                "the update function failed for local replica %u; those before it are done",
                                i);
        }
        return status;
}

enum tutti_status tutti_strategy_update(struct tutti_strategy *s, struct tutti_variable *v,
        tutti_update_fn fn, void *const *userdata, uint32_t n_userdata) {
        if (!tutti_strategy_created(s, v))
                return say(TUTTI_INVALID, "it is no variable of this strategy");
        return update_all(s, v, fn, userdata, n_userdata);
}

enum tutti_status tutti_strategy_update_non_slot(struct tutti_strategy *s, const char *const *devices,
        tutti_update_fn fn, void *const *userdata, uint32_t n_userdata) {
        if (devices != tutti_strategy_non_slot_devices(s))
                return say(TUTTI_INVALID,
                        "update_non_slot takes the devices that tutti_strategy_non_slot_devices returns");
        return update_all(s, NULL, fn, userdata, n_userdata);
}
