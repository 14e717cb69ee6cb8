#include "lib/submit.h"

#include <string.h>
#include "lib/frozen.h"
#include "lib/merge.h"
#include "lib/order.h"
#include "lib/recall.h"
#include "lib/reconnect.h"
#include "lib/region.h"
#include "wire/codec.h"

/* A half on its way: the request, and what was found wrong with it. */
struct passage {
        struct half *half;
        struct tutti_work *work; /* NULL: there was no memory for it */
        struct request request;
        struct entry only; /* the one entry of most collectives */
        struct half_options options;
        struct sip print;
        bool is_recalled; /* it is as another one was, and has this print */
        struct order_use order;
        enum status refused;
        struct error *err; /* set when refused, or when it could not be sent */
};

/* --- refusing --- */

static void sign(const struct half *h, struct error *e) {
        group_sign(h->g, e);
        e->kind = h->kind;
        e->has_key = h->has_key;
        e->key = h->key;
}

/* The peers are told status and field; the work remembers the rest. */
static void make_refused(struct passage *p, enum status status) {
        struct msg_submit *m = &p->request.submit;
        sign(p->half, p->err);
        p->refused = status;
        m->refused = status;
        m->refused_field = p->err->field;
        m->refused_detail = p->half->refused == STATUS_OK ? NULL : p->half->why;
        m->signature.n_entries = m->n_part_entries = 0;
        if (p->work)
                p->work->refusal = failure_new(p->err);
}

/* A key that cannot be sent: nobody waits under it. */
static enum tutti_status end_at_once(struct passage *p, size_t n_key_bytes) {
        struct tutti *t = p->half->g->t;
        refuse(p->err, STATUS_INVALID, FIELD_KEY, "a key has 1 to %d bytes, this one has %zu", MAX_KEY_BYTES,
                n_key_bytes);
        sign(p->half, p->err);
        pthread_mutex_lock(&t->lock);
        call_end(t, &p->work->call, STATUS_INVALID, failure_new(p->err));
        pthread_mutex_unlock(&t->lock);
        return TUTTI_OK;
}

/* Where tuttid may be left and found again, what a half asks for is kept until it has ended. */
static void keep(struct passage *p) {
        if (!p->work || !reconnect_is_on(p->half->g->t))
                return;
        p->work->call.group = p->half->g;
        if (kept_take(&p->work->kept, p->half, &p->request.submit))
                return;
        make_refused(p, refuse(p->err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED,
                                "the copy of %u entries does not fit into memory", p->half->n_entries));
        bool fits = kept_take(&p->work->kept, p->half, &p->request.submit);
        CHECK(fits); /* of no entries */
}

/* --- sending; under `sending` --- */

static enum status take_number(struct passage *p) {
        struct tutti *t = p->half->g->t;
        struct call *call = p->work ? &p->work->call : NULL;
        if (p->refused == STATUS_OK) {
                const uint64_t membership = p->request.submit.membership;
                enum status status = send_number_submission(t, &p->request, call, p->err);
                p->is_recalled &= p->request.submit.membership == membership;
                if (status != STATUS_LIMIT)
                        return status;
                make_refused(p, status);
                keep(p);
        }
        return send_number(t, &p->request, call, p->err);
}

static void send_part(struct tutti *t, const struct request *request) {
        bool is_sent = send_packet(t, request, -1);
        CHECK(is_sent); /* codec_entries_that_fit leaves room for the head */
}

/* The same half as some time before: its number and its key are enough. */
static void send_start(const struct passage *p, const struct remembered *r) {
        struct tutti *t = p->half->g->t;
        const struct msg_submit *m = &p->request.submit;
        const struct request request = { .request = p->request.request,
                .type = REQUEST_START,
                .start = { .prepared = r->number,
                        .membership = m->membership,
                        .epoch = m->epoch,
                        .has_key = m->has_key,
                        .key = m->key,
                        .has_timeout = m->has_timeout,
                        .timeout_ns = m->timeout_ns,
                        .signal = m->signal } };
        lane_ask(t);
        if (!p->half->is_waited_for || !lane_start(t, &p->work->call, r, &request.start))
                send_part(t, &request);
}

/* All entries, in `window` where there are several; NULL: they do not fit. A barrier has none. */
static const struct entry *all_entries(const struct passage *p) {
        struct tutti *t = p->half->g->t;
        const uint32_t n = p->request.submit.signature.n_entries;
        if (p->half->prepared)
                return p->half->prepared->entries;
        if (n <= 1 || n > WINDOW_ENTRIES)
                return n <= 1 ? &p->only : NULL;
        for (uint32_t i = 0; i < n; i++)
                half_entry(p->half, i, &t->window[i]);
        return t->window;
}

/* Whether it was. */
static bool send_by_number(struct passage *p) {
        struct msg_submit *m = &p->request.submit;
        const struct tutti_work *w = p->work;
        bool may_come_again = w && m->refused == STATUS_OK && !w->staging.piece && w->copies.n == 0;
        const struct entry *entries = may_come_again ? all_entries(p) : NULL;
        if (!entries)
                return false;
        if (p->half->prepared) {
                p->print = frozen_print(p->half->prepared, m);
        } else if (!p->is_recalled) {
                p->print = print_of_half(m, entries);
                recall_note(p->half, &p->options, entries, &p->print);
        }
        const struct remembering r = remember(p->half->g->t, m, entries, &p->print);
        if (r.start) {
                p->work->started = r.number;
                send_start(p, r.start);
                return true;
        }
        m->prepare = p->work->prepare = r.number;
        return false;
}

static void send_parts(const struct passage *p) {
        struct tutti *t = p->half->g->t;
        struct request part = p->request;
        struct msg_submit *m = &part.submit;
        const uint32_t n = m->signature.n_entries;
        if (n <= 1) {
                send_part(t, &part);
                return;
        }
        m->entries = t->window;
        for (uint32_t from = 0; from < n; from += m->n_part_entries) {
                uint32_t n_window = n - from < WINDOW_ENTRIES ? n - from : WINDOW_ENTRIES;
                for (uint32_t i = 0; i < n_window; i++)
                        half_entry(p->half, from + i, &t->window[i]);
                m->n_part_entries = codec_entries_that_fit(t->window, n_window, &t->scratch);
                CHECK(m->n_part_entries > 0);
                m->more = from + m->n_part_entries < n;
                send_part(t, &part);
        }
}

static enum tutti_status send(struct passage *p) {
        struct tutti *t = p->half->g->t;
        keep(p);
        pthread_mutex_lock(&t->sending);
        enum status status = take_number(p);
        bool may_go = status == STATUS_OK && send_may_go(t, p->work ? &p->work->call : NULL);
        if (may_go && !send_by_number(p))
                send_parts(p);
        pthread_mutex_unlock(&t->sending);
        if (status == STATUS_OK)
                return TUTTI_OK;
        order_abandon(t, &p->order);
        if (p->work)
                work_drop(p->work);
        return thread_fail(p->err);
}

/* --- the passage --- */

static void fill_request(struct passage *p) {
        const struct half *h = p->half;
        p->request = (struct request){
                .type = REQUEST_SUBMIT,
                .submit = { .membership = h->g->membership,
                        .epoch = h->epoch,
                        .has_key = true,
                        .key = h->key,
                        .signature = { .kind = h->kind,
                                .op = h->op,
                                .root = h->root,
                                .n_entries = h->n_entries },
                        .n_part_entries = h->n_entries,
                        .entries = &p->only },
        };
        text_copy(p->request.submit.signature.tag, sizeof(p->request.submit.signature.tag),
                h->tag ? h->tag : "");
}

/* With the stream that its values are computed on. */
static enum status put_in_order(struct passage *p) {
        const struct tutti_work *w = p->work;
        bool is_direct = false;
        for (uint32_t i = 0; i < w->n_uses; i++) {
                const struct device_memory *m = device_of(w->uses[i]);
                if (m)
                        p->order.context = m->place.context;
                is_direct |= device_is_direct(m);
        }
        enum status status = order_begin(w->t, &p->order, is_direct, p->err);
        p->work->order = p->order;
        p->request.submit.signal = (struct msg_signal){ p->order.slot, p->order.value };
        return status;
}

/* Unless that has been done. */
static enum status look_at(struct passage *p) {
        struct half *h = p->half;
        if (h->prepared)
                return frozen_use(h->prepared, p->work, &p->options, &p->only, p->err);
        p->is_recalled = recall(h, &p->options, &p->only, &p->print);
        return p->is_recalled ? STATUS_OK : half_check(h, &p->options, &p->only, p->err);
}

static void check(struct passage *p) {
        enum status status = look_at(p);
        if (p->half->refused != STATUS_OK)
                status = refuse(p->err, p->half->refused, FIELD_UNSPECIFIED, "%s", p->half->why);
        p->request.submit.has_timeout = p->options.has_timeout;
        p->request.submit.timeout_ns = p->options.timeout_ns;
        p->request.submit.signature.options = p->options.options;
        p->request.submit.signature.axes = p->half->wire_axes;
        p->order.has_stream = p->options.has_stream;
        p->order.stream = p->options.stream;
        if (status == STATUS_OK)
                status = put_in_order(p);
        if (status != STATUS_OK)
                make_refused(p, status);
}

/* The peers must not wait for a half that this process has no memory for. */
static enum tutti_status refuse_without_memory(struct passage *p) {
        refuse(p->err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "%zu bytes for a handle are needed",
                sizeof(struct tutti_work));
        if (!p->half->has_key)
                return thread_fail(p->err);
        fill_request(p);
        make_refused(p, STATUS_NO_MEMORY);
        enum tutti_status status = send(p);
        return status == TUTTI_OK ? thread_fail(p->err) : status;
}

void half_take_key(struct half *h, const char *key) {
        h->is_keyed = true;
        h->has_key = true;
        h->epoch = h->g->epoch;
        if (key)
                h->has_key = key_name(&h->key, key, strlen(key));
        else
                h->key = key_sequence(group_take_number(h->g, &h->epoch));
}

enum tutti_status submit(struct half *h, const char *key, struct tutti_work **ret) {
        if (!h->g || !ret)
                return thread_say(STATUS_INVALID, FIELD_MEMBERSHIP,
                        "a collective needs a group and, where it is started, a place for the work");
        enum tutti_status status = group_check(h->g);
        if (status != TUTTI_OK)
                return status;
        reconnect_go_on(h->g->t);
        status = merge_check_nesting(h->g);
        if (status != TUTTI_OK)
                return status;
        if (!h->is_keyed)
                half_take_key(h, key); /* before any check that the peers would hear of */
        struct error err;
        struct passage p = { .half = h, .work = work_new(h->g->t), .err = &err };
        if (!p.work)
                return refuse_without_memory(&p);
        h->work = p.work;
        if (!h->has_key) {
                *ret = p.work;
                return end_at_once(&p, strlen(key));
        }
        fill_request(&p);
        check(&p);
        status = send(&p);
        if (status == TUTTI_OK)
                *ret = p.work;
        return status;
}
