#include "lib/order.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tutti/cuda.h>
#include "base/fd.h"
#include "base/text.h"
#include "lib/patience.h"

#define PAGE_BYTES (SIGNAL_SLOTS * sizeof(struct signal_slot))

/* Of one process; contexts are one for each device, as a rule. */
#define MAX_CONTEXTS 32

struct order {
        struct signal_slot *slots;     /* NULL: no timeline */
        uint64_t device_address;       /* of the page */
        void *context;                 /* in which it was pinned */
        void *contexts[MAX_CONTEXTS];  /* of those who have used it */
        uint32_t n_contexts;           /* may be beyond MAX_CONTEXTS: not all of them are known */
        uint64_t values[SIGNAL_SLOTS]; /* last, by slot */
        uint32_t next;
        char why[160];
};

/* --- asking --- */

static void explain(struct order *o, const char *why) {
        text_copy(o->why, sizeof(o->why), why);
}

static void map_page(struct order *o, const struct driver_place *place, int fd) {
        struct stat st;
        struct error err;
        if (fd < 0 || fstat(fd, &st) < 0 || (uint64_t)st.st_size < PAGE_BYTES) {
                explain(o, "tuttid sent no signal page, or one that is too short");
                return;
        }
        void *at = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED) {
                explain(o, "the signal page cannot be mapped");
                return;
        }
        if (driver_pin(place->context, at, PAGE_BYTES, &o->device_address, &err) != STATUS_OK) {
                munmap(at, PAGE_BYTES);
                explain(o, err.detail);
                return;
        }
        o->slots = at;
        o->context = place->context;
}

/* Its answer, and the page with it. */
static enum status ask(
        struct tutti *t, const struct driver_place *place, struct order_granted *ret, struct error *err) {
        struct request request = { .type = REQUEST_OPEN_SIGNALS,
                .open_signals = { .order = ORDER_TIMELINE, .device = place->uuid } };
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

static void negotiate(struct tutti *t, struct order *o, const struct driver_place *place) {
        struct order_granted granted = { .fd = -1 };
        struct patience patience = { 0 };
        struct error err;
        enum status status;
        do
                status = ask(t, place, &granted, &err);
        while (status == STATUS_BUSY && patience_lasts(&patience));
        CLEANUP_FD int fd = granted.fd;
        if (status != STATUS_OK)
                explain(o, err.detail[0] ? err.detail : status_name(status));
        else if (granted.is_timeline)
                map_page(o, place, fd);
        else
                explain(o, granted.why);
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
        if (place->has_timeline)
                negotiate(t, o, place);
        else
                explain(o, "streams of this device cannot wait for 64-bit words");
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
        return o && o->slots ? TUTTI_CUDA_TIMELINE : TUTTI_CUDA_HOST;
}

/* --- slots; under `lock` --- */

static bool is_free(const struct order *o, uint32_t slot) {
        const struct signal_slot *s = &o->slots[slot];
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

/* The next free one in turn; false: all are in use. */
static bool take_slot(struct order *o, struct order_use *use) {
        for (uint32_t i = 0; i < SIGNAL_SLOTS; i++) {
                uint32_t slot = o->next++ % SIGNAL_SLOTS;
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
 * which may, the page stays. */
void order_free(struct tutti *t) {
        struct order *o = t->order;
        if (!o)
                return;
        order_let_go(t);
        t->order = NULL;
        for (uint32_t i = 0; i < o->n_contexts && i < MAX_CONTEXTS; i++)
                driver_wait_all(o->contexts[i]);
        if (o->slots && o->n_contexts <= MAX_CONTEXTS) {
                driver_unpin(o->context, o->slots);
                munmap(o->slots, PAGE_BYTES);
        }
        free(o);
}

/* --- a half's stream --- */

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

enum status order_begin(struct tutti *t, struct order_use *use, bool is_direct, struct error *err) {
        enum status status = use->has_stream ? driver_begin(err) : STATUS_OK;
        if (status != STATUS_OK || !use->has_stream)
                return status;
        pthread_mutex_lock(&t->lock);
        struct order *o = t->order;
        bool has_slot = is_direct && o && o->slots && !t->is_lost && take_slot(o, use);
        pthread_mutex_unlock(&t->lock);
        if (!has_slot)
                return driver_wait(use->context, use->stream, err);
        status = put_into_stream(o, use, err);
        if (status == STATUS_OK)
                return STATUS_OK;
        atomic_store_explicit(
                &o->slots[use->slot].ready, use->value, memory_order_release); /* nobody else will */
        order_abandon(t, use);
        use->value = 0;
        return status;
}
