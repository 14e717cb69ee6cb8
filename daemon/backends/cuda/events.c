/* Signal pages whose order is by events: interprocess events of ours, a ready and a done one for each slot,
 * whose handles stand in the page.
 *
 * All of them are made here and opened by the client, also those that he alone records: an event may not be
 * used any more once the process that made it has let go of it, so a client's own would be lost to us, in the
 * middle of whatever we do with it, when he dies.
 *
 * What a client has recorded is asked for by the host (cuEventQuery), and nothing is put into a stream before
 * it has come. A stream that waited for it could not be let go any more: a record that never comes, because
 * its process has died or hangs, cannot be taken back. */
#include "backends/cuda/events.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"

struct event_pool {
        struct cuda_device *device; /* in whose context they are */
        uint64_t maker;
        CUevent ready[SIGNAL_EVENTS], done[SIGNAL_EVENTS];
};

static struct signal_events *table_of(const struct cuda_memory *m) {
        return (struct signal_events *)(void *)(m->map + SIGNAL_PAGE_BYTES);
}

/* --- making --- */

static int make_event(struct cuda *c, CUevent *event, uint8_t handle[EVENT_HANDLE_BYTES]) {
        CUipcEventHandle h;
        _Static_assert(sizeof(h) == EVENT_HANDLE_BYTES, "a handle is of the wire's size");
        int r = cuda_check(c, c->driver.cuEventCreate(event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING),
                "cuEventCreate");
        if (r == 0)
                r = cuda_check(c, c->driver.cuIpcGetEventHandle(&h, *event), "cuIpcGetEventHandle");
        if (r == 0)
                memcpy(handle, &h, sizeof(h));
        return r;
}

static int make_events(struct cuda *c, struct event_pool *p, struct signal_events *table) {
        int r = cuda_enter(c, p->device);
        for (uint32_t i = 0; r == 0 && i < SIGNAL_EVENTS; i++) {
                r = make_event(c, &p->ready[i], table->ready[i]);
                if (r == 0)
                        r = make_event(c, &p->done[i], table->done[i]);
        }
        return r;
}

/* While the handles change there is no maker, so that a client never opens half of one. */
enum status cuda_events_open(struct cuda *c, struct chore *chore, struct cuda_memory *m) {
        struct cuda_device *d = cuda_device_of(c, chore->device);
        if (chore->n_bytes != SIGNAL_EVENT_BYTES || !d)
                return cuda_refuse(
                        chore, STATUS_INVALID, "no page for events, or none for a GPU that serves");
        m->events = calloc(1, sizeof(*m->events));
        if (!m->events)
                return cuda_refuse(chore, STATUS_NO_MEMORY, "tuttid-gpu is short of memory");
        m->events->device = d;
        m->events->maker = clock_now_ns() | 1; /* no process of this host has begun at the same instant */
        struct signal_events *table = table_of(m);
        atomic_store(&table->maker, 0);
        if (make_events(c, m->events, table) < 0)
                return cuda_refuse(chore, c->base.is_broken ? STATUS_DEVICE_LOST : STATUS_UNSUPPORTED,
                        "interprocess events cannot be made; the log has the driver's words");
        atomic_store(&table->maker, m->events->maker);
        return STATUS_OK;
}

static void close_event(struct cuda *c, CUevent event) {
        if (event)
                cuda_note(c, c->driver.cuEventDestroy(event), "cuEventDestroy");
}

void cuda_events_close(struct cuda *c, struct cuda_memory *m) {
        struct event_pool *p = m->events;
        if (!p)
                return;
        m->events = NULL;
        if (cuda_enter(c, p->device) == 0)
                for (uint32_t i = 0; i < SIGNAL_EVENTS; i++) {
                        close_event(c, p->ready[i]);
                        close_event(c, p->done[i]);
                }
        free(p);
}

bool cuda_events_can_be_made(struct cuda *c, struct cuda_device *d) {
        CUevent event = NULL;
        CUipcEventHandle handle;
        if (cuda_enter(c, d) < 0)
                return false;
        CUresult r = c->driver.cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
        if (r == CUDA_SUCCESS)
                r = c->driver.cuIpcGetEventHandle(&handle, event);
        close_event(c, event);
        return r == CUDA_SUCCESS;
}

/* --- a slot --- */

enum event_state cuda_event_ask(struct cuda *c, const struct signal *s) {
        const struct cuda_memory *m = cuda_memory_of(s->page);
        const struct signal_slot *slot = (struct signal_slot *)(void *)m->map + s->slot;
        if (s->slot >= SIGNAL_EVENTS || atomic_load(&table_of(m)->recorded[s->slot]) != m->events->maker)
                return EVENT_OF_ANOTHER;
        if (atomic_load(&slot->ready) < s->value)
                return EVENT_AWAITED;
        CUresult r = cuda_enter(c, m->events->device) < 0 ? CUDA_ERROR_NOT_READY
                                                          : c->driver.cuEventQuery(m->events->ready[s->slot]);
        if (r == CUDA_ERROR_NOT_READY)
                return EVENT_AWAITED;
        return cuda_check(c, r, "cuEventQuery") == 0 ? EVENT_CAME : EVENT_AWAITED;
}

struct cuda_device *cuda_events_device(const struct signal *s) {
        return cuda_memory_of(s->page)->events->device;
}

int cuda_event_record_done(struct cuda *c, const struct signal *s, CUstream stream) {
        const struct event_pool *p = cuda_memory_of(s->page)->events;
        int r = cuda_enter(c, p->device);
        return r < 0 ? r : cuda_check(c, c->driver.cuEventRecord(p->done[s->slot], stream), "cuEventRecord");
}
