#include "strategy/strategy.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tutti_strategy_args_init(struct tutti_strategy_args *args) {
        *args = TUTTI_STRATEGY(.group = NULL);
}

/* --- joining: each takes a thread, since none returns before all are there --- */

struct joiner {
        struct tutti_strategy *strategy;
        const struct tutti_strategy_args *args;
        uint32_t i;
        pthread_t thread;
        int is_started;
        enum tutti_status status;
        char text[1024];
};

static void *join_one(void *arg) {
        struct joiner *j = arg;
        struct tutti_strategy *s = j->strategy;
        struct tutti_join_args args = TUTTI_JOIN(.group = j->args->group, .job = j->args->job,
                .rank = j->args->rank + (int32_t)j->i, .world_size = j->args->world_size,
                .default_timeout = j->args->timeout, .on_death = j->args->on_death,
                .options = j->args->options);
        if (args.world_size == 0 && s->n_local > 1)
                args.world_size = (int32_t)s->n_local;
        j->status = tutti_join(s->t, &args, &s->groups[j->i]);
        if (j->status != TUTTI_OK)
                (void)snprintf(j->text, sizeof(j->text), "%s", tutti_error());
        return NULL;
}

static enum tutti_status join_all(struct tutti_strategy *s, const struct tutti_strategy_args *args) {
        struct joiner *joiners = calloc(s->n_local, sizeof(*joiners));
        enum tutti_status status = TUTTI_OK;
        if (!joiners)
                return say(TUTTI_NO_MEMORY, "no memory to join %u replicas", s->n_local);
        for (uint32_t i = 0; i < s->n_local; i++) {
                joiners[i] = (struct joiner){ .strategy = s, .args = args, .i = i };
                joiners[i].is_started = s->n_local > 1 &&
                                        pthread_create(&joiners[i].thread, NULL, join_one, &joiners[i]) == 0;
        }
        for (uint32_t i = 0; i < s->n_local; i++)
                if (!joiners[i].is_started)
                        join_one(&joiners[i]);
        for (uint32_t i = 0; i < s->n_local; i++) {
                if (joiners[i].is_started)
                        pthread_join(joiners[i].thread, NULL);
                if (status == TUTTI_OK)
                        status = say_text(joiners[i].status, joiners[i].text);
        }
        free(joiners);
        return status;
}

/* --- life --- */

static int name_devices(struct tutti_strategy *s, const char *const *given) {
        for (uint32_t i = 0; i < s->n_local; i++) {
                s->devices[i] = strdup(given ? given[i] : "CPU:0");
                if (!s->devices[i])
                        return -1;
        }
        return 0;
}

static struct tutti_strategy *strategy_new(struct tutti *t, const struct tutti_strategy_args *args) {
        struct tutti_strategy *s = calloc(1, sizeof(*s));
        if (!s)
                return NULL;
        s->t = t;
        s->n_local = args->n_local ? args->n_local : 1;
        s->groups = calloc(s->n_local, sizeof(*s->groups));
        s->devices = calloc(s->n_local + 1, sizeof(*s->devices));
        if (s->groups && s->devices && name_devices(s, args->devices) == 0)
                return s;
        tutti_strategy_close(s);
        return NULL;
}

/* Who was compiled before `options` was there has none. */
static int take_args(struct tutti_strategy_args *ret, const struct tutti_strategy_args *given) {
        size_t n_bytes = given ? given->struct_size : 0;
        if (n_bytes != sizeof(*ret) && n_bytes != offsetof(struct tutti_strategy_args, options))
                return 0;
        *ret = (struct tutti_strategy_args){ 0 };
        memcpy(ret, given, n_bytes);
        return 1;
}

enum tutti_status tutti_strategy_open(
        struct tutti *t, const struct tutti_strategy_args *given, struct tutti_strategy **ret) {
        struct tutti_strategy_args args;
        if (!t || !ret || !take_args(&args, given))
                return say(TUTTI_INVALID, "a strategy needs a connection, a place for its handle, and "
                                          "arguments that begin with "
                                          "TUTTI_STRATEGY or tutti_strategy_args_init");
        if (args.n_local > TUTTI_MAX_WORLD)
                return say(TUTTI_LIMIT, "%u local replicas; a world has at most %d", args.n_local,
                        TUTTI_MAX_WORLD);
        struct tutti_strategy *s = strategy_new(t, &args);
        if (!s)
                return say(TUTTI_NO_MEMORY, "no memory for a strategy");
        enum tutti_status status = join_all(s, &args);
        if (status != TUTTI_OK) {
                tutti_strategy_close(s);
                return status;
        }
        s->rank = (int32_t)tutti_rank(s->groups[0]);
        s->world_size = tutti_world_size(s->groups[0]);
        *ret = s;
        return TUTTI_OK;
}

void tutti_strategy_close(struct tutti_strategy *s) {
        if (!s)
                return;
        while (s->variables)
                tutti_variable_free(s->variables);
        for (uint32_t i = 0; i < s->n_local; i++) {
                if (s->groups)
                        tutti_group_free(s->groups[i]);
                if (s->devices)
                        free(s->devices[i]);
        }
        free(s->groups);
        free(s->devices);
        free(s);
}

/* --- looking --- */

uint32_t tutti_strategy_n_local(const struct tutti_strategy *s) {
        return s->n_local;
}

uint32_t tutti_strategy_num_replicas_in_sync(const struct tutti_strategy *s) {
        return s->world_size;
}

struct tutti_group *tutti_strategy_group(const struct tutti_strategy *s, uint32_t i) {
        return i < s->n_local ? s->groups[i] : NULL;
}

const char *const *tutti_strategy_worker_devices(const struct tutti_strategy *s) {
        return (const char *const *)s->devices;
}

const char *const *tutti_strategy_parameter_devices(const struct tutti_strategy *s) {
        return (const char *const *)s->devices;
}

const char *const *tutti_strategy_non_slot_devices(const struct tutti_strategy *s) {
        return (const char *const *)s->devices;
}

int tutti_strategy_between_graph(const struct tutti_strategy *s) {
        return s->world_size > s->n_local;
}

int tutti_strategy_should_init(const struct tutti_strategy *s) {
        return s != NULL;
}

int tutti_strategy_should_checkpoint(const struct tutti_strategy *s) {
        return s->rank == 0;
}

int tutti_strategy_should_save_summary(const struct tutti_strategy *s) {
        return s->rank == 0;
}

void tutti_strategy_shard_rows(const struct tutti_strategy *s, uint32_t rank, uint64_t n_rows,
        uint64_t *ret_first, uint64_t *ret_n) {
        uint64_t whole = n_rows / s->world_size, more = n_rows % s->world_size;
        *ret_first = rank * whole + (rank < more ? rank : more);
        *ret_n = whole + (rank < more);
}
