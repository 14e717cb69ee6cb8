/* Order by interprocess events (docs/protocol.md, Signals): where streams cannot wait for values in memory. A
 * page of this kind is memory of the path PATH_EVENTS; its events live as long as it does here. */
#pragma once

#include "backends/cuda/cuda-private.h"

/* Whether the device and the driver have them at all. */
bool cuda_events_can_be_made(struct cuda *c, struct cuda_device *d);
/* Makes those of a page that is mapped, on the chore's device, and writes their handles into it. OK, INVALID,
 * NO_MEMORY, UNSUPPORTED, DEVICE_LOST; what was made of them goes with the memory. */
enum status cuda_events_open(struct cuda *c, struct chore *chore, struct cuda_memory *m) MUST_USE;
void cuda_events_close(struct cuda *c, struct cuda_memory *m);

/* Of a signal in such a page. */
enum event_state {
        EVENT_AWAITED,    /* it has not come, or the client says that it has not been recorded */
        EVENT_CAME,       /* what the client's stream had before it is done */
        EVENT_OF_ANOTHER, /* what was recorded is not ours: a process before this one had made it */
};
enum event_state cuda_event_ask(struct cuda *c, const struct signal *s) MUST_USE;
struct cuda_device *cuda_events_device(const struct signal *s);
/* In a stream of that device: who waits for the done event from now on waits for what is in the stream. 0 or
 * negative errno. */
int cuda_event_record_done(struct cuda *c, const struct signal *s, CUstream stream) MUST_USE;

static inline bool signal_has_event(const struct signal *s) {
        return s->page && s->page->path == PATH_EVENTS;
}
