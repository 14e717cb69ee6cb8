/* Order between a client's stream and ours: words in a page that both have registered. */
#include <errno.h>
#include "backends/cuda/events.h"
#include "backends/cuda/flight.h"

static uint64_t offset_of(const struct signal *s) {
        return (uint64_t)s->slot * sizeof(struct signal_words);
}

static struct signal_words *words_of(const struct signal *s) {
        return (struct signal_words *)(void *)(cuda_memory_of(s->page)->map + offset_of(s));
}

static CUdeviceptr ready_at(const struct signal *s) {
        return cuda_memory_of(s->page)->at + offset_of(s) + offsetof(struct signal_words, ready);
}

static CUdeviceptr done_at(const struct signal *s) {
        return cuda_memory_of(s->page)->at + offset_of(s) + offsetof(struct signal_words, done);
}

static bool is_ready(struct cuda *c, const struct signal *s) {
        if (signal_has_event(s))
                return cuda_event_ask(c, s) == EVENT_CAME;
        /* In a circle, as the driver compares. */
        return !s->page || (int64_t)(atomic_load(&words_of(s)->ready) - s->value) >= 0;
}

bool flight_is_ready(struct cuda *c, const struct flight *f, uint32_t *ret) {
        for (uint32_t i = 0; i < f->run->n_signals; i++) {
                if (is_ready(c, &f->run->signals[i]))
                        continue;
                *ret = i;
                return false;
        }
        return true;
}

bool flight_is_stale(struct cuda *c, const struct flight *f) {
        for (uint32_t i = 0; i < f->run->n_signals; i++) {
                const struct signal *s = &f->run->signals[i];
                if (signal_has_event(s) && cuda_event_ask(c, s) == EVENT_OF_ANOTHER)
                        return true;
        }
        return false;
}

bool flight_can_wait(struct cuda *c, const struct flight *f) {
        if (!f->lead || !c->base.devices[f->lead->index].has_timeline || c->base.is_broken)
                return false;
        for (uint32_t i = 0; i < f->run->n_signals; i++)
                if (f->run->signals[i].page && !cuda_memory_of(f->run->signals[i].page)->is_pinned)
                        return false;
        return true;
}

int flight_wait_on_stream(struct cuda *c, struct flight *f) {
        CUstream stream = flight_stream(c, f, f->lead);
        int r = stream ? cuda_enter(c, f->lead) : -EIO;
        for (uint32_t i = 0; r == 0 && i < f->run->n_signals; i++) {
                const struct signal *s = &f->run->signals[i];
                if (s->page)
                        r = cuda_check(c,
                                c->driver.cuStreamWaitValue64(
                                        stream, ready_at(s), s->value, CU_STREAM_WAIT_VALUE_GEQ),
                                "cuStreamWaitValue64");
        }
        return r;
}

int flight_write_done_on_stream(struct cuda *c, struct flight *f) {
        CUstream stream = flight_stream(c, f, f->lead);
        int r = stream ? cuda_enter(c, f->lead) : -EIO;
        for (uint32_t i = 0; r == 0 && i < f->run->n_signals; i++) {
                const struct signal *s = &f->run->signals[i];
                if (s->page)
                        r = cuda_check(c, c->driver.cuStreamWriteValue64(stream, done_at(s), s->value, 0),
                                "cuStreamWriteValue64");
        }
        if (r == 0)
                f->writes_done = true;
        return r;
}

int flight_record_done_events(struct cuda *c, struct flight *f) {
        int r = 0;
        bool is_any = false;
        for (uint32_t i = 0; r == 0 && i < f->run->n_signals; i++) {
                const struct signal *s = &f->run->signals[i];
                if (!signal_has_event(s))
                        continue;
                struct cuda_device *d = cuda_events_device(s);
                CUstream stream = flight_stream(c, f, d);
                r = stream ? cuda_enter(c, d) : -EIO;
                if (r == 0 && d != f->lead)
                        r = cuda_check(c, c->driver.cuStreamWaitEvent(stream, f->events[f->lead->index], 0),
                                "cuStreamWaitEvent");
                if (r == 0)
                        r = cuda_event_record_done(c, s, stream);
                is_any = true;
        }
        f->run->is_launched = is_any && r == 0;
        return r;
}

/* By the device where it can, since only it is sure to have the pages that the client's device has. */
static void write_word(struct cuda *c, struct flight *f, const struct signal *s, CUdeviceptr at) {
        if (flight_can_wait(c, f) && cuda_enter(c, f->lead) == 0)
                cuda_note(c, c->driver.cuStreamWriteValue64(f->lead->own, at, s->value, 0),
                        "cuStreamWriteValue64");
}

void flight_write_done(struct cuda *c, struct flight *f) {
        if (f->writes_done && !c->base.is_broken)
                return;
        for (uint32_t i = 0; i < f->run->n_signals; i++) {
                const struct signal *s = &f->run->signals[i];
                if (!s->page)
                        continue;
                write_word(c, f, s, done_at(s));
                /* Where no device can, or none is left. */
                if (!flight_can_wait(c, f))
                        atomic_store(&words_of(s)->done, s->value);
        }
        f->writes_done = true;
}

void flight_let_go(struct cuda *c, struct flight *f) {
        f->is_let_go = true;
        atomic_store(&flight_gate(f)->abort, 1);
        for (uint32_t i = 0; i < f->run->n_signals; i++) {
                const struct signal *s = &f->run->signals[i];
                if (s->page && (int64_t)(atomic_load(&words_of(s)->ready) - s->value) < 0)
                        write_word(c, f, s, ready_at(s));
        }
}
