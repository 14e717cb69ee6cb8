/* Level 2: three replicas reduce everything that is promised through tuttid, and each compares all of its own
 * result with plain code. */
#include "diag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_REPLICAS   3
#define MAX_CASES    160
#define N_SMALL      1031             /* elements: neither whole blocks nor whole vectors */
#define N_LARGE      ((1u << 20) + 5) /* f32: several chunks, so several workers */
#define OFFSET       3                /* of a result in its buffer, in elements */
#define CANARY       0x5a
#define CANARY_BYTES 64
#define N_BATCH      40

/* How one collective ended in one replica. */
struct ending {
        enum tutti_status status;
        bool has_run, is_canary_gone;
        uint64_t n_wrong, first;
        char why[200], advice[200]; /* of a status that is not OK, in libtutti's words */
};

struct findings {
        struct ending cases[N_REPLICAS][MAX_CASES];
        struct ending broadcasts[N_REPLICAS][TUTTI_C128 + 1];
        struct ending large[N_REPLICAS], batch[N_REPLICAS], barrier[N_REPLICAS];
};

/* --- in a replica --- */

/* `text`: a line that says what happened, and one with what to do. */
static void note_status(struct ending *e, enum tutti_status status, const char *text) {
        size_t n = strcspn(text, "\n");

        e->has_run = true;
        e->status = status;
        if (status == TUTTI_OK)
                return;
        snprintf(e->why, sizeof(e->why), "%.*s", (int)n, text);
        snprintf(e->advice, sizeof(e->advice), "%.*s", (int)strcspn(text + n + (text[n] == '\n'), "\n"),
                text + n + (text[n] == '\n'));
}

/* Of a call that has just returned this: its sentence is asked for behind it. */
static void note_call(struct ending *e, enum tutti_status status) {
        note_status(e, status, tutti_error());
}

/* This replica cannot take part, for want of something. The others are not to wait: what they have under this
 * key ends by a half of another kind. */
static void stay_away(const struct diag_replica *me, const char *key, bool has_memory, struct ending *e) {
        if (has_memory)
                note_status(e, tutti_error_info()->status, tutti_error());
        else
                note_status(e, TUTTI_NO_MEMORY, "NO_MEMORY: memory is short");
        (void)!tutti_barrier(me->g, key);
}

/* A buffer of n elements at an offset, with canaries on both sides. */
struct place {
        struct tutti_buffer *buffer;
        struct tutti_value value;
        uint8_t *data;
        size_t n_bytes, n_before;
};

static bool place_init(const struct diag_replica *me, struct place *p, enum tutti_dtype dtype, size_t n) {
        size_t width = tutti_dtype_bytes(dtype);

        p->n_before = CANARY_BYTES + OFFSET * width;
        p->n_bytes = n * width;
        if (tutti_buffer_alloc(me->t, p->n_before + p->n_bytes + CANARY_BYTES, &p->buffer) != TUTTI_OK)
                return false;
        p->value = TUTTI_VALUE(.buffer = p->buffer, .offset = p->n_before, .dtype = dtype, .n_dims = 1,
                .shape = { n });
        p->data = (uint8_t *)tutti_buffer_data(p->buffer) + p->n_before;
        memset(tutti_buffer_data(p->buffer), CANARY, tutti_buffer_bytes(p->buffer));
        return true;
}

static bool place_is_torn(const struct place *p) {
        const uint8_t *all = tutti_buffer_data(p->buffer);

        for (size_t i = 0; i < p->n_before + p->n_bytes + CANARY_BYTES; i++)
                if ((i < p->n_before || i >= p->n_before + p->n_bytes) && all[i] != CANARY)
                        return true;
        return false;
}

static void compare(
        struct ending *e, const struct place *out, enum tutti_dtype dtype, const void *wanted, size_t n) {
        size_t first = 0;

        e->n_wrong = diag_count_wrong(dtype, out->data, wanted, n, &first);
        e->first = first;
        e->is_canary_gone = place_is_torn(out);
}

/* What all replicas bring, and what must come of it; NULL: short of memory. One block, for free(). */
static void *expect(const struct diag_case *c, uint32_t n_ranks, size_t n) {
        size_t n_bytes = n * tutti_dtype_bytes(c->dtype);
        const void *inputs[N_REPLICAS];
        uint8_t *block = calloc(n_ranks + 1, n_bytes);

        for (uint32_t r = 0; block && r < n_ranks; r++) {
                inputs[r] = block + (r + 1) * n_bytes;
                diag_fill(c, r, block + (r + 1) * n_bytes, n);
        }
        if (block)
                diag_reduce(c, inputs, n_ranks, block, n);
        return block;
}

static enum tutti_status all_reduce(const struct diag_replica *me, const char *key, const struct diag_case *c,
        const struct place *in, const struct place *out, struct ending *e) {
        const struct tutti_options options = TUTTI_OPTIONS(.rounding = c->rounding);
        struct tutti_work *w = NULL;
        enum tutti_status status =
                tutti_all_reduce_start(me->g, key, c->op, &in->value, &out->value, &options, &w);

        if (status == TUTTI_OK)
                status = tutti_work_wait(w, -1);
        note_status(e, status, w ? tutti_work_error(w)->text : tutti_error());
        tutti_work_free(w);
        return status;
}

static void try_case(const struct diag_replica *me, const struct diag_case *c, size_t n, struct ending *e) {
        struct place in = { 0 }, out = { 0 };
        void *wanted = expect(c, me->n, n);
        char key[64];

        snprintf(key, sizeof(key), "%s/%s/%d/%zu", tutti_dtype_name(c->dtype), tutti_op_name(c->op),
                (int)c->rounding, n);
        if (!wanted || !place_init(me, &in, c->dtype, n) || !place_init(me, &out, c->dtype, n)) {
                stay_away(me, key, wanted, e);
        } else {
                diag_fill(c, me->rank, in.data, n);
                if (all_reduce(me, key, c, &in, &out, e) == TUTTI_OK)
                        compare(e, &out, c->dtype, wanted, n);
        }
        tutti_buffer_free(in.buffer);
        tutti_buffer_free(out.buffer);
        free(wanted);
}

static void try_broadcast(const struct diag_replica *me, enum tutti_dtype dtype, struct ending *e) {
        const struct diag_case c = { .dtype = dtype, .op = TUTTI_SUM };
        struct place p = { 0 };
        void *wanted = calloc(N_SMALL, tutti_dtype_bytes(dtype));
        char key[64];

        snprintf(key, sizeof(key), "broadcast/%s", tutti_dtype_name(dtype));
        if (!wanted || !place_init(me, &p, dtype, N_SMALL)) {
                stay_away(me, key, wanted, e);
        } else {
                diag_fill(&c, 1, wanted, N_SMALL);
                diag_fill(&c, me->rank, p.data, N_SMALL);
                note_call(e, tutti_broadcast(me->g, key, 1, &p.value));
                if (e->status == TUTTI_OK)
                        compare(e, &p, dtype, wanted, N_SMALL);
        }
        tutti_buffer_free(p.buffer);
        free(wanted);
}

/* Values of one after another element, end to end in one buffer. */
static void try_batch(const struct diag_replica *me, struct ending *e) {
        const struct diag_case c = { .dtype = TUTTI_F32, .op = TUTTI_SUM };
        struct tutti_value in[N_BATCH], out[N_BATCH];
        struct tutti_entry entries[N_BATCH];
        struct place from = { 0 }, to = { 0 };
        const size_t n = N_BATCH * (N_BATCH + 1) / 2;
        void *wanted = expect(&c, me->n, n);
        size_t at = 0;

        if (!wanted || !place_init(me, &from, c.dtype, n) || !place_init(me, &to, c.dtype, n)) {
                stay_away(me, "batch", wanted, e);
        } else {
                diag_fill(&c, me->rank, from.data, n);
                for (uint32_t i = 0; i < N_BATCH; at += ++i) {
                        in[i] = from.value;
                        out[i] = to.value;
                        in[i].shape[0] = out[i].shape[0] = i + 1;
                        in[i].offset += at * sizeof(float);
                        out[i].offset += at * sizeof(float);
                        entries[i] = TUTTI_ENTRY(.input = &in[i], .output = &out[i]);
                }
                note_call(e, tutti_batch_reduce(me->g, "batch", c.op, entries, N_BATCH));
                if (e->status == TUTTI_OK)
                        compare(e, &to, c.dtype, wanted, n);
        }
        tutti_buffer_free(from.buffer);
        tutti_buffer_free(to.buffer);
        free(wanted);
}

static void try_all(struct diag_replica *me) {
        const struct diag_case large = { .dtype = TUTTI_F32, .op = TUTTI_SUM };
        struct findings *f = me->shared;
        struct diag_case c;

        for (size_t i = 0; i < MAX_CASES && diag_case(i, &c); i++)
                try_case(me, &c, N_SMALL, &f->cases[me->rank][i]);
        for (int dtype = TUTTI_U8; dtype <= TUTTI_C128; dtype++)
                try_broadcast(me, (enum tutti_dtype)dtype, &f->broadcasts[me->rank][dtype]);
        try_case(me, &large, N_LARGE, &f->large[me->rank]);
        try_batch(me, &f->batch[me->rank]);
        note_call(&f->barrier[me->rank], tutti_barrier(me->g, "barrier"));
}

/* --- what came of it --- */

static bool is_right(const struct ending *e) {
        return e->has_run && e->status == TUTTI_OK && e->n_wrong == 0 && !e->is_canary_gone;
}

/* It ran, and what came of it is not what it should be: nothing else speaks against the host. */
static bool is_wrong(const struct ending *e) {
        return e->has_run && e->status == TUTTI_OK && !is_right(e);
}

/* How much an ending tells: one that others have caused less than one with a cause of its own, and a wrong
 * result most. */
static int weight(const struct ending *e) {
        if (is_right(e))
                return 0;
        if (is_wrong(e))
                return 4;
        if (!e->has_run)
                return 1;
        return e->status == TUTTI_MISMATCH || e->status == TUTTI_PEER_REFUSED || e->status == TUTTI_EXPIRED
                       ? 2
                       : 3;
}

static void describe(const struct ending *e, uint32_t rank, const char *what, struct line *l) {
        line_add(l, "%s%s at R%u: ", l->used ? "; " : "", what, rank);
        if (!e->has_run)
                line_add(l, "never done");
        else if (e->status != TUTTI_OK)
                line_add_safe(l, e->why);
        else if (e->n_wrong)
                line_add(l, "%llu wrong elements, the first at %llu", (unsigned long long)e->n_wrong,
                        (unsigned long long)e->first);
        else
                line_add(l, "bytes beside the result were written");
}

/* What was found of a check: results that are wrong, and collectives that were refused. */
struct verdicts {
        struct line wrong, refused;
        const char *advice; /* of the first refusal that has one */
};

/* Whether `what` came out right at all replicas; else the one with most to tell is noted. */
static bool look(const struct ending *const *of, const char *what, struct verdicts *v) {
        uint32_t worst = 0;

        for (uint32_t r = 1; r < N_REPLICAS; r++)
                if (weight(of[r]) > weight(of[worst]))
                        worst = r;
        if (is_right(of[worst]))
                return true;
        describe(of[worst], worst, what, is_wrong(of[worst]) ? &v->wrong : &v->refused);
        if (!is_wrong(of[worst]) && !v->advice && of[worst]->advice[0])
                v->advice = of[worst]->advice;
        return false;
}

static void conclude(struct diagnosis *d, const struct verdicts *v) {
        if (v->wrong.used) {
                d->verdict = VERDICT_FATAL;
                d->text = v->wrong;
                line_add(&d->advice,
                        "take this host out of service (`tuttictl drain`) and report it with tuttid's log");
        } else if (v->refused.used) {
                d->verdict = VERDICT_FINDING;
                d->text = v->refused;
                line_add_safe(&d->advice, v->advice ? v->advice : "see tuttid's log, and ask again");
        }
}

static void look_at_dtype(const struct findings *f, enum tutti_dtype dtype, struct diag *d) {
        struct diagnosis *check = diag_add(d, 2, tutti_dtype_name(dtype));
        struct verdicts found = { 0 };
        struct diag_case c;
        unsigned int n = 0;

        for (size_t i = 0; i < MAX_CASES && diag_case(i, &c); i++) {
                const struct ending *of[N_REPLICAS] = { &f->cases[0][i], &f->cases[1][i], &f->cases[2][i] };
                if (c.dtype != dtype)
                        continue;
                if (look(of, tutti_op_name(c.op), &found) && c.rounding <= TUTTI_TRUNC)
                        line_add(&check->text, "%s%s", n++ ? " " : "", tutti_op_name(c.op));
        }
        const struct ending *of[N_REPLICAS] = { &f->broadcasts[0][dtype], &f->broadcasts[1][dtype],
                &f->broadcasts[2][dtype] };
        if (look(of, "broadcast", &found))
                line_add(&check->text, ", broadcast");
        conclude(check, &found);
}

static void look_at_one(
        const struct ending of[N_REPLICAS], struct diag *d, const char *name, const char *well) {
        struct diagnosis *check = diag_add(d, 2, name);
        const struct ending *all[N_REPLICAS] = { &of[0], &of[1], &of[2] };
        struct verdicts found = { 0 };

        if (look(all, name, &found))
                line_add(&check->text, "%s", well);
        conclude(check, &found);
}

void diag_correctness(struct diag *d) {
        struct findings *f = diag_shared(sizeof(*f));
        struct line why = { 0 };
        int r = f ? diag_run_replicas(d, N_REPLICAS, try_all, f, &why) : -1;

        if (r < 0) {
                struct diagnosis *check = diag_add(d, 2, "loopback");
                check->verdict = VERDICT_FATAL;
                line_add(&check->text, "three replicas could not meet: %s", f ? why.s : "memory is short");
                line_add(&check->advice, "see `tuttictl doctor`, and tuttid's log");
        } else {
                for (int dtype = TUTTI_U8; dtype <= TUTTI_C128; dtype++)
                        look_at_dtype(f, (enum tutti_dtype)dtype, d);
                look_at_one(f->large, d, "large", "SUM of 1,048,581 f32");
                look_at_one(f->batch, d, "batch", "40 values of 1 to 40 elements in one meeting");
                look_at_one(f->barrier, d, "barrier", "all came");
        }
        diag_unshare(f, sizeof(*f));
}
