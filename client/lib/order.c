#include "lib/order.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tutti/cuda.h>
#include "base/fd.h"
#include "base/memfd.h"
#include "base/text.h"
#include "lib/order-events.h"
#include "lib/patience.h"

/* Of one process; contexts are one for each device, as a rule. */
#define MAX_CONTEXTS 32

struct order {
        struct signal_slot *slots; /* NULL: the host waits */
        uint32_t n_slots;
        size_t n_bytes;                /* mapped */
        struct order_events *events;   /* NULL: a timeline */
        uint64_t device_address;       /* of the page; timeline */
        void *context;                 /* in which it was pinned, or its events are */
        void *contexts[MAX_CONTEXTS];  /* of those who have used it */
        uint32_t n_contexts;           /* may be beyond MAX_CONTEXTS: not all of them are known */
        uint64_t values[SIGNAL_SLOTS]; /* last, by slot */
        uint32_t n_followers[SIGNAL_EVENTS];
        uint32_t next;
        char why[200];
};

/* --- asking --- */

static void explain(struct order *o, const char *why) {
        text_copy(o->why, sizeof(o->why), why);
}

/* What the devices, or their driver, need before streams can be ordered by it. */
static enum status prepare_page(struct order *o, void *at, struct error *err) {
        uint8_t *page = at;
        if (o->n_bytes == SIGNAL_PAGE_BYTES)
                return driver_pin(o->context, at, o->n_bytes, &o->device_address, err);
        return order_events_new(
                &o->events, o->context, (struct signal_events *)(void *)(page + SIGNAL_PAGE_BYTES), err);
}

static void map_page(struct order *o, const struct driver_place *place, const struct order_granted *granted) {
        bool has_events = granted->order == ORDER_EVENTS;
        struct stat st;
        struct error err;
        o->n_bytes = has_events ? SIGNAL_EVENT_BYTES : SIGNAL_PAGE_BYTES;
        o->n_slots = has_events ? SIGNAL_EVENTS : SIGNAL_SLOTS;
        o->context = place->context;
        if (granted->fd < 0) {
                refuse_no_descriptor(&err, "the signal page");
                explain(o, err.detail);
                return;
        }
        if (fstat(granted->fd, &st) < 0 || (uint64_t)st.st_size < o->n_bytes) {
                explain(o, "tuttid sent no signal page, or one that is too short");
                return;
        }
        CLEANUP_FD int fd = memfd_open_anew(granted->fd, O_RDWR); /* it comes open for reading */
        void *at = fd < 0 ? MAP_FAILED : mmap(NULL, o->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED) {
                explain(o, "the signal page cannot be opened for writing and mapped; is there a /proc?");
                return;
        }
        madvise(at, o->n_bytes, MADV_DONTFORK); /* it is charged to us while anybody has it */
        if (prepare_page(o, at, &err) == STATUS_OK) {
                o->slots = at;
                return;
        }
        munmap(at, o->n_bytes);
        explain(o, err.detail);
}

/* Its answer, and the page with it. */
static enum status ask(struct tutti *t, const struct driver_place *place, enum stream_order order,
        struct order_granted *ret, struct error *err) {
        struct request request = { .type = REQUEST_OPEN_SIGNALS,
                .open_signals = { .order = order, .device = place->uuid } };
        struct call call;
        call_init(&call, CALL_ORDER);
        call.order = ret;
        enum status status = send_request(t, &request, &call, -1, err);
        if (status != STATUS_OK)
                return status;
        pthread_mutex_lock(&t->lock);
        connection_wait(t, &call, WAIT_FOREVER);
        pthread_mutex_unlock(&t->lock);
        status = call.status;
        if (call.failure)
                *err = call.failure->error;
        else
                error_init(err, status);
        call_deinit(&call);
        return status;
}

/* Whether it was granted: then a page that cannot be used is the end of it. Otherwise why not. */
static bool negotiate(
        struct tutti *t, struct order *o, const struct driver_place *place, enum stream_order order) {
        struct order_granted granted = { .fd = -1 };
        struct patience patience = { 0 };
        struct error err;
        enum status status;
        do
                status = ask(t, place, order, &granted, &err);
        while (status == STATUS_BUSY && patience_lasts(&patience));
        CLEANUP_FD int fd = granted.fd;
        (void)fd; /* the page stays mapped */
        if (status != STATUS_OK)
                explain(o, err.detail[0] ? err.detail : status_name(status));
        else if (granted.order == order)
                map_page(o, place, &granted);
        else
                explain(o, granted.why);
        return status == STATUS_OK && granted.order == order;
}

/* Of the two refusals the first says why there is no timeline, the second why there are no events either. */
static void settle_for_less(struct tutti *t, struct order *o, const struct driver_place *place) {
        char first[sizeof(o->why)];
        text_copy(first, sizeof(first), o->why);
        bool is_granted = negotiate(t, o, place, ORDER_EVENTS);
        if ((is_granted && o->slots) || o->why[0] == '\0' || strcmp(o->why, first) == 0) {
                explain(o, first);
        } else {
                char second[sizeof(o->why)];
                text_copy(second, sizeof(second), o->why);
                snprintf(o->why, sizeof(o->why), "%.90s; %.100s", first, second);
        }
}

static bool is_known(struct tutti *t) {
        pthread_mutex_lock(&t->lock);
        bool is = t->order != NULL;
        pthread_mutex_unlock(&t->lock);
        return is;
}

/* Where memory is short it is asked again. Under `growing`. */
static void find_out(struct tutti *t, const struct driver_place *place) {
        struct order *o = is_known(t) ? NULL : calloc(1, sizeof(*o));
        if (!o)
                return;
        if (!place->has_timeline)
                explain(o, "streams of this device cannot wait for 64-bit words");
        if (!place->has_timeline || !negotiate(t, o, place, ORDER_TIMELINE))
                settle_for_less(t, o, place);
        pthread_mutex_lock(&t->lock);
        t->order = o;
        pthread_mutex_unlock(&t->lock);
}

void order_open(struct tutti *t, const struct driver_place *place) {
        if (is_known(t))
                return;
        pthread_mutex_lock(&t->growing);
        find_out(t, place);
        pthread_mutex_unlock(&t->growing);
}

enum tutti_cuda_order tutti_cuda_order(struct tutti *t, const char **ret_why) {
        static _Thread_local struct error err;
        struct driver_place place;
        const char *ignored = "";
        const char **why = ret_why ? ret_why : &ignored;
        if (!t || connection_check(t) != TUTTI_OK) {
                *why = "there is no connection";
                return TUTTI_CUDA_HOST;
        }
        if (!is_known(t)) {
                if (driver_here(&place, &err) != STATUS_OK) {
                        *why = err.detail;
                        return TUTTI_CUDA_HOST;
                }
                order_open(t, &place);
        }
        pthread_mutex_lock(&t->lock);
        const struct order *o = t->order;
        pthread_mutex_unlock(&t->lock);
        *why = o ? o->why : "memory is short";
        if (!o || !o->slots)
                return TUTTI_CUDA_HOST;
        return o->events ? TUTTI_CUDA_EVENTS : TUTTI_CUDA_TIMELINE;
}

/* --- slots; under `lock` --- */

static bool is_free(const struct order *o, uint32_t slot) {
        const struct signal_slot *s = &o->slots[slot];
        if (o->events && o->n_followers[slot])
                return false;
        return atomic_load_explicit(&s->ready, memory_order_acquire) >= o->values[slot] &&
               atomic_load_explicit(&s->done, memory_order_acquire) >= o->values[slot];
}

static void note_context(struct order *o, void *context) {
        for (uint32_t i = 0; i < o->n_contexts && i < MAX_CONTEXTS; i++)
                if (o->contexts[i] == context)
                        return;
        if (o->n_contexts < MAX_CONTEXTS)
                o->contexts[o->n_contexts] = context;
        o->n_contexts++;
}

/* The next free one in turn; of those with events the first, so that few are ever opened. false: all are in
 * use. */
static bool take_slot(struct order *o, struct order_use *use) {
        for (uint32_t i = 0; i < o->n_slots; i++) {
                uint32_t slot = o->events ? i : o->next++ % o->n_slots;
                if (!is_free(o, slot))
                        continue;
                use->slot = slot;
                use->value = ++o->values[slot];
                note_context(o, use->context);
                return true;
        }
        return false;
}

static void say_done(struct order *o, uint32_t slot, uint64_t value) {
        atomic_store_explicit(&o->slots[slot].done, value, memory_order_release);
}

void order_let_go(struct tutti *t) {
        struct order *o = t->order;
        for (uint32_t i = 0; o && o->slots && i < SIGNAL_SLOTS; i++)
                if (atomic_load_explicit(&o->slots[i].done, memory_order_relaxed) < o->values[i])
                        say_done(o, i, o->values[i]);
}

void order_abandon(struct tutti *t, const struct order_use *use) {
        if (!use->value)
                return;
        pthread_mutex_lock(&t->lock);
        say_done(t->order, use->slot, use->value);
        pthread_mutex_unlock(&t->lock);
}

/* A stream may still stand before a word of the page; it passes, since all are done. Where it is not known
 * which may, the page stays. Before an event none is waited for: where tuttid has gone it may never come. */
static void drop_page(struct order *o) {
        for (uint32_t i = 0; !o->events && i < o->n_contexts && i < MAX_CONTEXTS; i++)
                driver_wait_all(o->contexts[i]);
        if (!o->slots || (!o->events && o->n_contexts > MAX_CONTEXTS))
                return;
        if (!o->events)
                driver_unpin(o->context, o->slots);
        munmap(o->slots, o->n_bytes);
}

/* In a forked child the streams are the parent's, and so is the page: the child does not have it. */
void order_free(struct tutti *t) {
        struct order *o = t->order;
        if (!o)
                return;
        if (!fork_guard_is_child(t->guard)) {
                order_let_go(t);
                drop_page(o);
        }
        t->order = NULL;
        order_events_free(o->events);
        free(o);
}

/* --- a half's stream --- */

static enum status record_event(const struct order *o, const struct order_use *use, struct error *err) {
        enum status status = order_events_record(o->events, use->slot, use->stream, err);
        if (status == STATUS_OK)
                atomic_store_explicit(&o->slots[use->slot].ready, use->value, memory_order_release);
        return status;
}

static enum status put_into_stream(const struct order *o, const struct order_use *use, struct error *err) {
        struct driver_word word = { .context = use->context,
                .stream = use->stream,
                .address = o->device_address + use->slot * sizeof(struct signal_slot) +
                           offsetof(struct signal_slot, ready),
                .value = use->value };
        enum status status = driver_set_word(&word, err);
        if (status != STATUS_OK)
                return status;
        word.address += offsetof(struct signal_slot, done) - offsetof(struct signal_slot, ready);
        return driver_await_word(&word, err);
}

/* Events are of one device; streams of others are waited for by the host. */
static bool is_of_order(const struct order *o, const struct order_use *use) {
        return !o->events || driver_is_stream_of(o->context, use->context, use->stream);
}

enum status order_begin(struct tutti *t, struct order_use *use, bool is_direct, struct error *err) {
        enum status status = use->has_stream ? driver_begin(err) : STATUS_OK;
        if (status != STATUS_OK || !use->has_stream)
                return status;
        pthread_mutex_lock(&t->lock);
        struct order *o = t->order;
        bool has_slot = is_direct && o && o->slots && !t->is_lost && is_of_order(o, use) && take_slot(o, use);
        pthread_mutex_unlock(&t->lock);
        if (!has_slot)
                return driver_wait(use->context, use->stream, err);
        status = o->events ? record_event(o, use, err) : put_into_stream(o, use, err);
        if (status == STATUS_OK)
                return STATUS_OK;
        atomic_store_explicit(
                &o->slots[use->slot].ready, use->value, memory_order_release); /* nobody else will */
        order_abandon(t, use);
        use->value = 0;
        /* Of events: tuttid-gpu is being started anew. */
        return status == STATUS_BUSY ? driver_wait(use->context, use->stream, err) : status;
}

/* --- following --- */

enum order_kind order_of_use(const struct tutti *t, const struct order_use *use) {
        if (!use->value)
                return ORDER_KIND_HOST;
        return t->order->events ? ORDER_KIND_EVENTS : ORDER_KIND_TIMELINE;
}

void order_hold(struct tutti *t, const struct order_use *use) {
        t->order->n_followers[use->slot]++;
}

enum status order_follow(struct tutti *t, const struct order_use *use, struct error *err) {
        return order_events_follow(t->order->events, use->slot, use->stream, err);
}

void order_end_follow(struct tutti *t, const struct order_use *use) {
        pthread_mutex_lock(&t->lock);
        t->order->n_followers[use->slot]--;
        pthread_mutex_unlock(&t->lock);
}
