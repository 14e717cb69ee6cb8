/* What a collective would be done by, for people: a sealed collective is made up from one half's shape, and
 * planned as any other is; nothing is run. */
#include "conductor-rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"

/* Values times replicas, or what planner_work makes of them: planned in the turn that asks, in a fraction of
 * a millisecond; the largest world has one value. */
#define MAX_SHOWN_VALUES 1024
#define MAX_SHOWN_WORK   4096

#define MAX_SHOWN_BYTES (UINT64_C(1) << 50) /* more than any host has */

#define MAX_PLAN_TEXT (UINT32_C(64) << 10)
#define PIECE_BYTES   1000

/* In one block, which its query owns. */
struct plan_text {
        struct row_plan head;
        char device[DEVICE_NAME_BYTES];
        char why[192], fallback[192];
        uint64_t n_bytes;
        char text[];
};

/* As many halves as there are ranks, each with buffers of its own. */
struct made_up {
        struct signature signature;
        uint32_t world_size, n_sparse;
        uint32_t ranks[MAX_WORLD];
        double weights[MAX_WORLD];
        const struct entry *pointers[MAX_WORLD];
        struct entry entries[]; /* [world_size * n_entries] */
};

/* Even shares of a reduce_scatter; of a gather and of rows room for all. */
static void set_extent(const struct made_up *m, struct entry *e, uint32_t rank) {
        uint32_t axis = signature_axis(&m->signature), n = m->world_size;
        uint64_t length = axis < e->n_dims && e->n_dims <= MAX_DIMS ? e->shape[axis] : 0;
        if (e->layout == LAYOUT_SPARSE)
                e->output_extent = e->shape[0] < UINT64_C(1) << 40 ? e->shape[0] * n : UINT64_MAX;
        else if (m->signature.kind == KIND_REDUCE_SCATTER)
                e->output_extent = length / n + (rank < length % n);
        else if (m->signature.kind == KIND_GATHER && __builtin_mul_overflow(length, n, &e->output_extent))
                e->output_extent = UINT64_MAX;
}

/* Elements of the output; 0: more than can be counted. */
static uint64_t output_count(const struct made_up *m, const struct entry *e) {
        struct entry output = *e;
        uint64_t count = 0;
        if (e->n_dims <= MAX_DIMS)
                entry_output_shape(&m->signature, e, output.shape);
        return entry_count(&output, &count) && count < UINT64_C(1) << 56 ? count : 0;
}

static uint64_t place_entry(const struct made_up *m, struct entry *e, uint32_t rank, uint64_t at_bytes) {
        uint64_t count = 0, n_bytes = 0, n_out;
        if (entry_count(e, &count) && count < UINT64_C(1) << 56)
                n_bytes = count * 16; /* of the widest type */
        set_extent(m, e, rank);
        n_out = output_count(m, e);
        if (n_out > count)
                n_bytes = n_out * 16;
        e->input = e->output = (struct place){ .buffer = 1, .file = 1 + 2 * (uint64_t)rank };
        e->input.span = e->output.span = (struct span){ at_bytes, count * dtype_bytes(e->dtype) };
        e->output.buffer = 2;
        e->output.file++;
        e->output.span.n_bytes = n_out * dtype_bytes(entry_output_dtype(e));
        if (!signature_reads(&m->signature, rank))
                e->input = (struct place){ 0 };
        return n_bytes;
}

/* In files of their own. */
static void place_indices(struct entry *e, uint64_t file) {
        struct sparse *s = &e->sparse;
        size_t index_bytes = dtype_bytes(s->index_dtype);
        s->indices = (struct place){ .buffer = 3, .file = file, .span = { 0, e->shape[0] * index_bytes } };
        s->output_indices = (struct place){ .buffer = 4, .file = file + 1 };
        s->output_indices.span.n_bytes = e->output_extent * index_bytes;
}

static void make_up_half(struct made_up *m, const struct msg_query *ask, uint32_t rank) {
        uint32_t n_entries = m->signature.n_entries;
        struct entry *entries = &m->entries[(size_t)rank * n_entries];
        uint64_t at = 0;
        m->ranks[rank] = rank;
        m->weights[rank] = m->signature.options.weight;
        m->pointers[rank] = entries;
        if (n_entries)
                memcpy(entries, ask->shape.entries, n_entries * sizeof(*entries));
        for (uint32_t e = 0; e < n_entries; e++) {
                entries[e].destination = DESTINATION_ALL;
                at += place_entry(m, &entries[e], rank, at);
                if (entries[e].layout != LAYOUT_SPARSE)
                        continue;
                place_indices(&entries[e], 2ull * m->world_size + 1 + 2 * ((uint64_t)rank * n_entries + e));
                m->n_sparse += rank == 0;
        }
}

/* Without halves. */
static struct made_up *make_up(const struct msg_query *ask) {
        uint32_t n_entries = ask->shape.n_part_entries, n = ask->world_size;
        struct made_up *m = calloc(1, sizeof(*m) + (size_t)n * n_entries * sizeof(*m->entries));
        if (!m)
                return NULL;
        m->signature = ask->shape.signature;
        m->signature.n_entries = n_entries;
        m->world_size = n;
        return m;
}

/* What is no collective is refused by its first half, before the others are made. */
static enum status make_up_halves(struct made_up *m, const struct msg_query *ask, struct error *err) {
        make_up_half(m, ask, 0);
        enum status status = signature_check(&m->signature, m->pointers[0], 0, m->world_size, err);
        for (uint32_t rank = 1; status == STATUS_OK && rank < m->world_size; rank++)
                make_up_half(m, ask, rank);
        return status;
}

static enum status check_question(const struct msg_query *ask, struct error *err) {
        uint32_t n = ask->shape.n_part_entries;
        if (!ask->has_shape || ask->world_size < 1 || ask->world_size > MAX_WORLD)
                return error_set(err, STATUS_INVALID, FIELD_WORLD_SIZE,
                        "a plan is for 1 to %d replicas and some values", MAX_WORLD);
        err->used = (uint64_t)n * ask->world_size;
        err->limit = MAX_SHOWN_VALUES;
        if (err->used > err->limit)
                return error_set(err, STATUS_LIMIT, FIELD_BATCH_LENGTH,
                        "values times replicas of a plan that is shown");
        err->used = entries_bytes(ask->shape.entries, n);
        err->limit = MAX_SHOWN_BYTES;
        if (err->used > err->limit)
                return error_set(
                        err, STATUS_LIMIT, FIELD_SIZE, "bytes of one replica of a plan that is shown");
        err->used = err->limit = 0;
        return STATUS_OK;
}

static enum status refuse_memory(struct error *err) {
        return error_set(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid is short of memory");
}

/* --- where the values are --- */

static enum status refuse_device(const struct conductor *c, const char *name, struct error *err) {
        uint32_t k = workers_find(c->house.workers, name);
        const char *why = workers_why_off(c->house.workers);
        if (!why[0] && k != DEVICE_UNKNOWN)
                why = workers_device(c->house.workers, k - DEVICE_GPU)->why;
        return error_set(err, STATUS_NOT_FOUND, FIELD_UNSPECIFIED, "there is no device %.48s%s%.120s", name,
                why[0] ? ": " : "", why);
}

static bool find_device(const struct conductor *c, const char *name, uint32_t *ret) {
        *ret = device_parse(name);
        if (*ret < DEVICE_GPU)
                return *ret < engine_n_devices(c->house.engine);
        *ret = workers_find(c->house.workers, name);
        return *ret != DEVICE_UNKNOWN && workers_why_off(c->house.workers)[0] == '\0' &&
               workers_device(c->house.workers, *ret - DEVICE_GPU)->why[0] == '\0';
}

/* The names of `list` in turn, over all replicas. */
static enum status find_homes(const struct conductor *c, const char *list, uint32_t n_ranks,
        struct homes *homes, struct error *err) {
        uint32_t n = 0;
        while (*list && n < n_ranks) {
                char name[GPU_UUID_BYTES];
                size_t n_chars = strcspn(list, ",");
                snprintf(name, sizeof(name), "%.*s", n_chars < sizeof(name) ? (int)n_chars : 0, list);
                if (!find_device(c, name, &homes->of[n++]))
                        return refuse_device(c, name, err);
                list += n_chars + (list[n_chars] == ',');
        }
        for (uint32_t rank = n; n && rank < n_ranks; rank++)
                homes->of[rank] = homes->of[rank - n];
        return STATUS_OK;
}

static enum status place_made_up(const struct conductor *c, const struct msg_query *ask, struct homes *homes,
        struct problem *problem, struct error *err) {
        enum status status = find_homes(c, ask->devices, problem->n_ranks, homes, err);
        for (uint32_t i = 0; i < problem->n_ranks && problem->device == 0; i++)
                problem->device = homes->of[i];
        if (status == STATUS_OK)
                conductor_reach(c, homes, problem);
        return status;
}

static enum status plan_made_up(struct conductor *c, const struct msg_query *ask, const struct made_up *m,
        struct plan *plan, struct error *err) {
        struct homes homes = { .of = { 0 } };
        struct problem problem = { .signature = &m->signature,
                .n_ranks = m->world_size,
                .ranks = m->ranks,
                .entries = m->pointers,
                .weights = m->weights,
                .divisor = m->world_size,
                .n_sparse = m->n_sparse,
                .n_devices = engine_n_devices(c->house.engine) };
        struct planner *planner;
        enum status status = place_made_up(c, ask, &homes, &problem, err);
        if (status != STATUS_OK)
                return status;
        err->used = planner_work(&problem, signature_bytes(&m->signature, m->pointers[0]));
        err->limit = MAX_SHOWN_WORK;
        if (err->used > err->limit)
                return error_set(err, STATUS_LIMIT, FIELD_OPTIONS,
                        "pieces of values and where they lie, of a plan that is shown: ask for fewer packs, "
                        "or a "
                        "smaller value");
        c->work += err->used;
        err->used = err->limit = 0;
        if (planner_new(&planner, problem.n_devices, c->house.config->chunk_bytes) < 0)
                return refuse_memory(err);
        conductor_set_rules(c, planner);
        status = planner_plan(planner, &problem, plan, err);
        planner_free(planner);
        return status;
}

static struct plan_text *print_plan(const struct plan *plan) {
        struct plan_text *p = calloc(1, sizeof(*p) + MAX_PLAN_TEXT);
        struct text t;
        if (!p)
                return NULL;
        text_init(&t, p->text, MAX_PLAN_TEXT);
        plan_print(plan, &t);
        p->n_bytes = strlen(p->text);
        snprintf(p->why, sizeof(p->why), "%s", plan->why ? plan->why : "");
        snprintf(p->fallback, sizeof(p->fallback), "%s", plan->fallback);
        p->head = (struct row_plan){ .algorithm = plan->algorithm,
                .order = plan_order_name(plan->order),
                .device = device_name(plan->device, p->device),
                .why = p->why,
                .fallback = p->fallback,
                .n_steps = plan->n_steps,
                .n_phases = plan->n_phases,
                .scratch_bytes = plan_scratch_bytes(plan),
                .moved_bytes = plan->moved_bytes };
        return p;
}

enum status plan_text_make(
        struct conductor *c, const struct msg_query *ask, struct plan_text **ret, struct error *err) {
        enum status status = check_question(ask, err);
        if (status != STATUS_OK)
                return status;
        CLEANUP_FREE struct made_up *m = make_up(ask);
        struct plan plan;
        plan_init(&plan);
        status = m ? make_up_halves(m, ask, err) : refuse_memory(err);
        c->work += (uint64_t)ask->world_size * ask->shape.n_part_entries;
        if (status == STATUS_OK)
                status = plan_made_up(c, ask, m, &plan, err);
        *ret = status == STATUS_OK ? print_plan(&plan) : NULL;
        plan_deinit(&plan);
        return status == STATUS_OK && !*ret ? refuse_memory(err) : status;
}

bool write_plan(struct row_writer *w, struct query *q) {
        const struct plan_text *p = q->plan;
        const struct row_plan nothing = {
                .algorithm = "", .order = "", .device = "", .why = "", .fallback = "", .text = ""
        };
        do {
                if (writer_is_tired(w))
                        return false;
                struct row *row = writer_add(w, ROW_PLAN, PIECE_BYTES + 1);
                uint64_t left = p->n_bytes - q->cursor, n = left < PIECE_BYTES ? left : PIECE_BYTES;
                const char *piece = arena_strndup(&w->arena, p->text + q->cursor, n);
                CHECK(piece);
                row->plan = q->cursor ? nothing : p->head;
                row->plan.text = piece;
                q->cursor += n;
        } while (q->cursor < p->n_bytes);
        return true;
}
