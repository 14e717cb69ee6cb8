#include "lib/merge.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "lib/arguments.h"
#include "lib/object.h"
#include "lib/submit.h"

#define WHY_BYTES 200

/* One call, on the stack of its thread. */
struct tutti_merge {
        struct tutti_group *g;
        struct tutti_merge_args args;
        uint64_t begun_ns;
        struct key key;
        uint64_t epoch;
        bool has_key, is_collected;           /* the latter: it is in its second meeting */
        struct tutti_value *inputs, *outputs; /* copies, in one piece of memory with: */
        struct tutti_value *places;           /* [the more of the two] in the object, or in `made` */
        struct tutti_entry *entries;          /* likewise */
        uint64_t *offsets;                    /* [n_inputs] in the slot */
        struct tutti_object *object;          /* NULL: no input has elements */
        const uint8_t *slot;
        uint8_t **made; /* [n_outputs] what the function writes */
        struct tutti_ranks ranks;
        uint32_t elected;
        char why[WHY_BYTES];
        char tag[MAX_TAG_BYTES + 1];
        struct tutti_options options; /* of the meeting at hand */
        void *memory;
};

void tutti_merge_args_init(struct tutti_merge_args *args) {
        *args = TUTTI_MERGE(.key = NULL);
}

void tutti_reduce_with_args_init(struct tutti_reduce_with_args *args) {
        *args = TUTTI_REDUCE_WITH(.key = NULL);
}

/* Of the merge function that this thread runs; NULL: it runs none. */
static _Thread_local const struct tutti_group *merging;

enum tutti_status merge_check_nesting(const struct tutti_group *g) {
        if (!merging || merging != g)
                return TUTTI_OK;
        return thread_say(STATUS_INVALID, FIELD_GROUP,
                "called from a merge function of \"%s\": its members wait for that function, so nobody would "
                "come. Bring what it needs as inputs of the merge_call, or use another group",
                g->name);
}

/* --- what the function sees --- */

const struct tutti_ranks *tutti_merge_ranks(const struct tutti_merge *m) {
        return &m->ranks;
}

uint32_t tutti_merge_rank(const struct tutti_merge *m) {
        return m->elected;
}

const void *tutti_merge_value(const struct tutti_merge *m, uint32_t rank, uint32_t i) {
        static const uint64_t nothing[8];
        if (i >= m->args.n_inputs || !tutti_ranks_has(&m->ranks, rank))
                return NULL;
        uint64_t part_bytes = merge_part_bytes(&m->inputs[i]);
        return part_bytes ? (const void *)(m->slot + m->offsets[i] + rank * part_bytes) : nothing;
}

void *tutti_merge_output(struct tutti_merge *m, uint32_t i) {
        return i < m->args.n_outputs ? m->made[i] : NULL;
}

enum tutti_status tutti_merge_fail(struct tutti_merge *m, const char *format, ...) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(m->why, sizeof(m->why), format, args);
        va_end(args);
        return TUTTI_ABORTED;
}

/* --- arguments --- */

static bool copy_values(
        struct tutti_value *ret, const struct tutti_value *given, uint32_t n, const char **why) {
        size_t stride = given && n ? given->struct_size : 0;
        for (uint32_t i = 0; i < n; i++) {
                const void *at = (const char *)given + i * stride;
                if (!arguments_copy(&ARGUMENTS_SINCE(&ret[i], has_strides), at, stride) ||
                        ret[i].n_dims > TUTTI_MAX_DIMS) {
                        *why = "a value does not begin with TUTTI_VALUE, or has more than 8 dimensions";
                        return false;
                }
                ret[i].struct_size = sizeof(ret[i]);
        }
        return true;
}

static bool take_memory(struct tutti_merge *m) {
        size_t n_in = m->args.n_inputs, n_out = m->args.n_outputs, n = (n_in > n_out ? n_in : n_out) + 1;
        uint8_t *at = m->memory =
                calloc(1, (n_in + n_out + n) * sizeof(struct tutti_value) + n * sizeof(struct tutti_entry) +
                                  n_in * sizeof(uint64_t) + n_out * sizeof(uint8_t *));
        if (!at)
                return false;
        m->inputs = (struct tutti_value *)at;
        m->outputs = m->inputs + n_in;
        m->places = m->outputs + n_out;
        m->entries = (struct tutti_entry *)(m->places + n);
        m->offsets = (uint64_t *)(m->entries + n);
        m->made = (uint8_t **)(m->offsets + n_in);
        return true;
}

/* Where each input lies in a slot; its size, 0: more than can be counted. */
static uint64_t lay_out(struct tutti_merge *m) {
        uint64_t n_bytes = 0, whole;
        for (uint32_t i = 0; i < m->args.n_inputs; i++) {
                m->offsets[i] = n_bytes;
                if (__builtin_mul_overflow(
                            merge_part_bytes(&m->inputs[i]), (uint64_t)m->g->world_size, &whole) ||
                        __builtin_add_overflow(n_bytes, whole, &n_bytes) || n_bytes > INT64_MAX)
                        return 0;
        }
        return n_bytes ? n_bytes : 1;
}

/* What is wrong with the call before anybody else is asked; NULL: nothing. */
static const char *find_fault(struct tutti_merge *m) {
        const char *why = NULL;
        const struct tutti_merge_args *a = &m->args;
        if (!a->fn)
                return "the function is NULL; every replica names one, since any may be elected";
        if ((a->n_inputs && !a->inputs) || (a->n_outputs && !a->outputs))
                return "inputs or outputs are announced, and are NULL";
        if (a->n_inputs > TUTTI_MAX_ENTRIES || a->n_outputs > TUTTI_MAX_ENTRIES)
                return "a merge_call has at most 65,536 inputs and as many outputs";
        if (!take_memory(m))
                return "the list of values does not fit into memory";
        if (!copy_values(m->inputs, a->inputs, a->n_inputs, &why) ||
                !copy_values(m->outputs, a->outputs, a->n_outputs, &why))
                return why;
        if (!(a->timeout == a->timeout))
                return "the timeout is not a number";
        return NULL;
}

/* --- the two meetings --- */

static struct half half_of(const struct tutti_merge *m, enum kind kind, uint32_t n_entries) {
        return (struct half){ .g = m->g,
                .is_keyed = true,
                .has_key = m->has_key,
                .key = m->key,
                .epoch = m->epoch,
                .kind = kind,
                .entries = m->entries,
                .stride_bytes = sizeof(*m->entries),
                .n_entries = n_entries };
}

/* What is left of the caller's budget. */
static double time_left(const struct tutti_merge *m) {
        if (!(m->args.timeout > 0))
                return m->args.timeout;
        double left = m->args.timeout - (double)(clock_now_ns() - m->begun_ns) / 1e9;
        return left > 1e-6 ? left : 1e-6;
}

/* The peers of a call stand in its second meeting from the first one's end on, so none but the elected
 * replica can be late there: whoever is told so has only been slower than its news. */
static void say_plainly(const struct tutti_merge *m, struct error *e) {
        bool is_elected = m->elected == m->g->rank;
        if (e->status == STATUS_EXPIRED && !is_elected) {
                e->status = e->cause;
                e->cause = STATUS_OK;
                if (e->status == STATUS_PEER_REFUSED)
                        e->status = STATUS_ABORTED;
        } else if (e->status == STATUS_PEER_REFUSED && e->cause == STATUS_ABORTED) {
                e->status = STATUS_ABORTED;
                e->cause = STATUS_OK;
        }
}

static enum tutti_status fail(const struct tutti_merge *m, struct tutti_work *w, enum status status) {
        if (!w->call.failure)
                return thread_fail_with(status, NULL);
        struct error e = w->call.failure->error;
        if (m->is_collected)
                say_plainly(m, &e);
        return thread_fail(&e);
}

/* Submits and waits; *ret_done is what is known of it when it has ended with OK. */
static enum tutti_status meet(struct tutti_merge *m, struct half *h, struct msg_done *ret_done) {
        struct tutti_work *w;
        m->options = TUTTI_OPTIONS(.timeout = time_left(m));
        h->options = &m->options;
        enum tutti_status status = submit(h, NULL, &w);
        if (status != TUTTI_OK)
                return status;
        status = (enum tutti_status)work_wait(w, WAIT_FOREVER);
        if (status == TUTTI_OK)
                *ret_done = w->done;
        else
                status = fail(m, w, (enum status)status);
        tutti_work_free(w);
        return status;
}

static enum tutti_status refuse_call(struct tutti_merge *m, enum status with, const char *why) {
        struct msg_done ignored;
        struct half h = half_of(m, KIND_MERGE_CALL, 0);
        h.tag = m->tag;
        h.refused = with;
        h.why = why;
        return meet(m, &h, &ignored);
}

/* Of this call alone: whoever comes to its key again gets another, or this one again, of equal size. */
static enum tutti_status make_object(struct tutti_merge *m, uint64_t n_bytes) {
        char name[MAX_NAME_BYTES], key[KEY_TEXT_BYTES];
        uint64_t hash = UINT64_C(0xcbf29ce484222325);
        key_show(&m->key, key, sizeof(key));
        for (const char *c = key; *c; c++)
                hash = (hash ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
        (void)snprintf(name, sizeof(name), "merge.%016llx.%llu", (unsigned long long)hash,
                (unsigned long long)n_bytes);
        return tutti_object_make(
                m->g, &TUTTI_OBJECT(.name = name, .n_bytes = n_bytes, .n_slots = 1), &m->object);
}

static void fill_collect(struct tutti_merge *m) {
        for (uint32_t i = 0; i < m->args.n_inputs; i++) {
                m->places[i] = m->inputs[i];
                m->places[i].buffer = NULL;
                m->places[i].memory = NULL;
                m->places[i].has_strides = 0;
                m->places[i].object = m->object;
                m->places[i].offset = m->offsets[i];
                m->entries[i] = TUTTI_ENTRY(.input = &m->inputs[i], .output = &m->places[i]);
        }
}

/* Who takes part, and which of them is elected; false: tuttid names nobody, or somebody who is not there. */
static bool take_ranks(struct tutti_merge *m, const struct rankset *contributors) {
        m->ranks = ranks_show(contributors);
        while (m->elected < m->g->world_size && !tutti_ranks_has(&m->ranks, m->elected))
                m->elected++;
        bool are_there = m->elected < m->g->world_size;
        for (uint32_t rank = m->g->world_size; rank < TUTTI_MAX_WORLD; rank++)
                are_there &= !tutti_ranks_has(&m->ranks, rank);
        return are_there;
}

static enum tutti_status collect(struct tutti_merge *m) {
        struct msg_done done = { 0 };
        uint64_t n_bytes = lay_out(m);
        if (n_bytes == 0)
                return refuse_call(m, STATUS_LIMIT, "the inputs have more bytes than can be counted");
        if (m->args.n_inputs) {
                enum tutti_status status = make_object(m, n_bytes);
                if (status == TUTTI_FORKED || status == TUTTI_DAEMON_LOST)
                        return status;
                if (status != TUTTI_OK) {
                        char why[WHY_BYTES];
                        (void)snprintf(why, sizeof(why), "no memory of tuttid's for the values: %.150s",
                                tutti_error_info()->detail);
                        return refuse_call(m, (enum status)status, why);
                }
        }
        fill_collect(m);
        struct half h = half_of(m, KIND_MERGE_CALL, m->args.n_inputs);
        h.tag = m->tag;
        enum tutti_status status = meet(m, &h, &done);
        if (status != TUTTI_OK)
                return status;
        if (!take_ranks(m, &done.contributors))
                return thread_say(STATUS_INTERNAL, FIELD_GROUP,
                        "tuttid named nobody who takes part, or ranks beyond the %u of this group",
                        m->g->world_size);
        m->slot = tutti_object_data(m->object, done.slot);
        m->is_collected = true;
        return TUTTI_OK;
}

static void fill_spread(struct tutti_merge *m, bool is_elected) {
        for (uint32_t i = 0; i < m->args.n_outputs; i++) {
                m->places[i] = m->outputs[i];
                m->places[i].buffer = NULL;
                m->places[i].object = NULL;
                m->places[i].has_strides = 0;
                m->places[i].offset = 0;
                m->places[i].memory = m->made[i];
                m->entries[i] =
                        TUTTI_ENTRY(.input = is_elected ? &m->places[i] : NULL, .output = &m->outputs[i]);
        }
}

static enum tutti_status spread(struct tutti_merge *m, enum tutti_status made) {
        struct msg_done done;
        bool is_elected = m->elected == m->g->rank;
        fill_spread(m, is_elected);
        struct half h = half_of(m, KIND_MERGE_RESULT, m->args.n_outputs);
        h.root = m->elected;
        if (made != TUTTI_OK) {
                h.n_entries = 0;
                h.refused = STATUS_ABORTED;
                h.why = m->why;
        }
        return meet(m, &h, &done);
}

/* --- the function --- */

static bool make_room(struct tutti_merge *m) {
        for (uint32_t i = 0; i < m->args.n_outputs; i++) {
                uint64_t n_bytes = merge_value_bytes(&m->outputs[i]);
                m->made[i] = n_bytes < INT64_MAX ? calloc(1, n_bytes + 1) : NULL;
                if (!m->made[i])
                        return false;
        }
        return true;
}

static enum tutti_status run(struct tutti_merge *m) {
        if (!make_room(m))
                return tutti_merge_fail(m, "there is no memory for its outputs");
        const struct tutti_group *outer = merging;
        merging = m->g;
        enum tutti_status status = m->args.fn(m, m->args.userdata);
        merging = outer;
        if (status != TUTTI_OK && m->why[0] == '\0')
                tutti_merge_fail(m, "its merge function returned %s", tutti_status_name(status));
        return status;
}

static enum tutti_status both_meetings(struct tutti_merge *m) {
        enum tutti_status made = TUTTI_OK, status = collect(m);
        if (status != TUTTI_OK)
                return status;
        if (m->elected == m->g->rank)
                made = run(m);
        tutti_object_free(take_pointer(m->object)); /* before it meets again: then nobody has it any more */
        return spread(m, made);
}

static void merge_deinit(struct tutti_merge *m) {
        tutti_object_free(m->object);
        for (uint32_t i = 0; m->memory && i < m->args.n_outputs; i++)
                free(m->made[i]);
        free(m->memory);
}

/* `find_more`: what else is wrong with it, likewise; NULL: nothing is. */
static enum tutti_status merge_call(struct tutti_group *g, const struct tutti_merge_args *args,
        const char *(*find_more)(const struct tutti_merge *m)) {
        struct tutti_merge m = { .g = g, .begun_ns = clock_now_ns() };
        if (!g || !args || !arguments_copy(&ARGUMENTS(&m.args), args, args->struct_size))
                return thread_say(STATUS_INVALID, FIELD_MEMBERSHIP,
                        "a merge_call needs a group, and arguments that begin with TUTTI_MERGE or "
                        "tutti_merge_args_init");
        enum tutti_status status = group_check(g);
        if (status == TUTTI_OK)
                status = merge_check_nesting(g);
        if (status != TUTTI_OK)
                return status;
        struct half keyed = { .g = g };
        half_take_key(&keyed, m.args.key);
        if (!keyed.has_key)
                return thread_say(STATUS_INVALID, FIELD_KEY, "a key has 1 to %d bytes, this one has %zu",
                        MAX_KEY_BYTES, strlen(m.args.key));
        m.has_key = true;
        m.key = keyed.key;
        m.epoch = keyed.epoch;
        const char *fault = find_fault(&m);
        if (!fault && find_more)
                fault = find_more(&m);
        if (!fault)
                merge_tag(m.args.tag ? m.args.tag : "", m.outputs, m.args.n_outputs, m.tag);
        status = fault ? refuse_call(&m, STATUS_INVALID, fault) : both_meetings(&m);
        merge_deinit(&m);
        return status;
}

enum tutti_status tutti_merge_call(struct tutti_group *g, const struct tutti_merge_args *args) {
        return merge_call(g, args, NULL);
}

/* --- a reduction by a function --- */

struct accumulation {
        const struct tutti_reduce_with_args *args;
        uint64_t count;
};

static enum tutti_status accumulate(struct tutti_merge *m, void *userdata) {
        const struct accumulation *a = userdata;
        const void *inputs[TUTTI_MAX_WORLD];
        uint32_t n = 0;
        for (uint32_t rank = 0; rank < m->g->world_size; rank++)
                if (tutti_ranks_has(&m->ranks, rank))
                        inputs[n++] = tutti_merge_value(m, rank, 0);
        enum tutti_status status =
                a->args->fn(inputs, n, tutti_merge_output(m, 0), a->count, a->args->userdata);
        return status == TUTTI_OK ? status
                                  : tutti_merge_fail(m, "its accumulation function returned %s",
                                            tutti_status_name(status));
}

/* The function is told one count for both. */
static const char *compare_values(const struct tutti_merge *m) {
        const struct tutti_value *in = m->inputs, *out = m->outputs;
        bool are_equal = in->n_dims == out->n_dims &&
                         memcmp(in->shape, out->shape, in->n_dims * sizeof(*in->shape)) == 0;
        return are_equal ? NULL : "input and output of a reduce_with must be of equal shapes";
}

enum tutti_status tutti_reduce_with(struct tutti_group *g, const struct tutti_reduce_with_args *args) {
        struct tutti_reduce_with_args a;
        if (!args || !arguments_copy(&ARGUMENTS(&a), args, args->struct_size))
                return thread_say(STATUS_INVALID, FIELD_SIZE,
                        "the arguments are needed; begin them with TUTTI_REDUCE_WITH or "
                        "tutti_reduce_with_args_init");
        struct accumulation accumulation = { .args = &a };
        struct tutti_value input = TUTTI_VALUE(.buffer = NULL);
        size_t element_bytes = 0;
        if (a.input && arguments_copy(&ARGUMENTS_SINCE(&input, has_strides), a.input, a.input->struct_size))
                element_bytes = tutti_dtype_bytes(input.dtype);
        if (element_bytes)
                accumulation.count = merge_value_bytes(&input) / element_bytes;
        const struct tutti_merge_args merge = TUTTI_MERGE(.key = a.key, .tag = a.tag,
                .fn = a.fn ? accumulate : NULL, .userdata = &accumulation, .inputs = a.input, .n_inputs = 1,
                .outputs = a.output, .n_outputs = 1, .timeout = a.timeout);
        return merge_call(g, &merge, compare_values);
}
