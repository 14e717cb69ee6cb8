/* tutti in the contest: own outputs, or one shared result (argv[0] ends with "-shared"). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>
#include "player.h"

static struct tutti *connection;
static struct tutti_group *group;
static struct tutti_buffer *in, *out;
static struct tutti_object *object;
static struct tutti_value input, output;
static struct tutti_value *values;
static struct tutti_entry *entries;
static uint32_t n_objects, slot;
static int is_shared;

static void ok(enum tutti_status status) {
        if (status == TUTTI_OK)
                return;
        fprintf(stderr, "contest: %s\n", tutti_error());
        exit(1);
}

static void open_tutti(uint32_t *ret_rank, uint32_t *ret_n) {
        ok(tutti_open(NULL, &connection));
        ok(tutti_join(connection, &TUTTI_JOIN(.group = "contest", .job = "bench"), &group));
        *ret_rank = tutti_rank(group);
        *ret_n = tutti_world_size(group);
}

static struct tutti_value value(struct tutti_buffer *buffer, size_t count, size_t offset) {
        return TUTTI_VALUE(.buffer = buffer, .offset = offset * sizeof(float), .dtype = TUTTI_F32,
                .n_dims = 1, .shape = { count });
}

static void prepare_batch(const struct work *w) {
        values = calloc(w->n_values, sizeof(*values));
        entries = calloc(w->n_values, sizeof(*entries));
        if (!values || !entries)
                player_die("memory");
        for (uint32_t i = 0; i < w->n_values; i++) {
                values[i] = value(in, w->counts[i], w->offsets[i]);
                entries[i] = TUTTI_ENTRY(.input = &values[i], .output = &values[i]);
        }
}

static void prepare_shared(size_t n_bytes) {
        char name[32];
        snprintf(name, sizeof(name), "result-%u", n_objects++);
        ok(tutti_object_make(group, &TUTTI_OBJECT(.name = name, .n_bytes = n_bytes), &object));
        output.buffer = NULL;
        output.object = object;
}

static void prepare(const struct work *w, float **ret_in, float **ret_out) {
        size_t n_bytes = w->n_elements * sizeof(float);
        ok(tutti_buffer_alloc(connection, n_bytes, &in));
        *ret_in = tutti_buffer_data(in);
        input = value(in, w->n_elements, 0);
        output = input;
        if (w->verb == VERB_BATCH)
                prepare_batch(w);
        if (w->verb != VERB_ALL_REDUCE && w->verb != VERB_REDUCE)
                return;
        if (is_shared) {
                prepare_shared(n_bytes);
                return;
        }
        ok(tutti_buffer_alloc(connection, n_bytes, &out));
        output.buffer = out;
        *ret_out = tutti_buffer_data(out);
}

static void run(const struct work *w) {
        static const struct tutti_destinations root = { .where = TUTTI_TO_RANK };
        switch (w->verb) {
        case VERB_ALL_REDUCE:
        case VERB_ALL_REDUCE_IN_PLACE: ok(tutti_all_reduce(group, NULL, TUTTI_SUM, &input, &output)); break;
        case VERB_REDUCE: ok(tutti_reduce(group, NULL, TUTTI_SUM, &input, &output, &root)); break;
        case VERB_BROADCAST: ok(tutti_broadcast(group, NULL, 0, &input)); break;
        case VERB_BATCH: ok(tutti_batch_reduce(group, NULL, TUTTI_SUM, entries, w->n_values)); break;
        case N_VERBS: break;
        }
        if (!object)
                return;
        slot = tutti_last_result()->slot;
        ok(tutti_object_release(object, slot));
}

/* The players meet before anybody runs again, so it is still there. */
static const float *result(const struct work *w) {
        (void)w;
        return object ? tutti_object_data(object, slot) : NULL;
}

static void finish(const struct work *w) {
        (void)w;
        tutti_buffer_free(in);
        tutti_buffer_free(out);
        tutti_object_free(object);
        free(values);
        free(entries);
        in = out = NULL;
        object = NULL;
        values = NULL;
        entries = NULL;
}

static void close_tutti(void) {
        tutti_close(connection);
}

int main(int argc, char **argv) {
        struct library library = { .name = "tutti",
                .open = open_tutti,
                .prepare = prepare,
                .run = run,
                .result = result,
                .finish = finish,
                .close = close_tutti };
        const char *shared = getenv("CONTEST_SHARED");
        is_shared = shared && strcmp(shared, "1") == 0;
        if (is_shared)
                library.name = "tutti, shared result";
        return player_main(argc, argv, &library);
}
