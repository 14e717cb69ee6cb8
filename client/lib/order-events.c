#include "lib/order-events.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "lib/failure.h"

struct pair {
        uint64_t maker; /* whose they are; 0: not opened */
        void *ready, *done;
};

struct order_events {
        struct signal_events *table;
        void *context;
        struct pair pairs[SIGNAL_EVENTS];
};

static void pair_close(struct order_events *e, struct pair *p) {
        driver_event_close(e->context, p->ready);
        driver_event_close(e->context, p->done);
        *p = (struct pair){ 0 };
}

/* Copied before it is used: the page is shared. */
static enum status open_one(struct order_events *e, const uint8_t *handle, void **ret, struct error *err) {
        uint8_t copy[EVENT_HANDLE_BYTES];
        memcpy(copy, handle, sizeof(copy));
        return driver_event_open(e->context, copy, ret, err);
}

static enum status refuse_now(struct error *err) {
        return refuse(err, STATUS_BUSY, FIELD_OPTIONS, "tuttid-gpu is being started anew");
}

/* The handles are one maker's when he is the same before and after. */
static enum status pair_open(struct order_events *e, uint32_t slot, struct error *err) {
        struct pair *p = &e->pairs[slot];
        uint64_t maker = atomic_load(&e->table->maker);
        if (maker == 0)
                return refuse_now(err);
        if (p->maker == maker)
                return STATUS_OK;
        pair_close(e, p);
        enum status status = open_one(e, e->table->ready[slot], &p->ready, err);
        if (status == STATUS_OK)
                status = open_one(e, e->table->done[slot], &p->done, err);
        if (atomic_load(&e->table->maker) != maker)
                status = refuse_now(err);
        if (status == STATUS_OK)
                p->maker = maker;
        else
                pair_close(e, p);
        return status;
}

enum status order_events_new(
        struct order_events **ret, void *context, struct signal_events *table, struct error *err) {
        struct order_events *e = calloc(1, sizeof(*e));
        if (!e)
                return refuse(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "memory is short");
        e->table = table;
        e->context = context;
        enum status status = pair_open(e, 0, err);
        if (status == STATUS_OK)
                *ret = e;
        else
                order_events_free(e);
        return status;
}

void order_events_free(struct order_events *e) {
        for (uint32_t i = 0; e && i < SIGNAL_EVENTS; i++)
                pair_close(e, &e->pairs[i]);
        free(e);
}

enum status order_events_record(struct order_events *e, uint32_t slot, void *stream, struct error *err) {
        enum status status = pair_open(e, slot, err);
        if (status != STATUS_OK)
                return status;
        const struct driver_event event = {
                .context = e->context, .stream = stream, .event = e->pairs[slot].ready
        };
        status = driver_event_record(&event, err);
        if (status == STATUS_OK)
                atomic_store(&e->table->recorded[slot], e->pairs[slot].maker);
        return status;
}

enum status order_events_follow(struct order_events *e, uint32_t slot, void *stream, struct error *err) {
        const struct driver_event event = {
                .context = e->context, .stream = stream, .event = e->pairs[slot].done
        };
        return driver_event_await(&event, err);
}
