/* GPUs: whose memory is registered, who does what, and what it means when one fails. */
#include "conductor-internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- registration --- */

static enum memory_path path_of(const struct buffer_ask *ask) {
        switch (ask->reg->kind) {
        case BUFFER_KIND_CUDA_VMM: return ask->fd >= 0 ? PATH_VMM_FD : PATH_VMM_MADE;
        case BUFFER_KIND_CUDA_IPC: return PATH_CUDA_IPC;
        case BUFFER_KIND_MEMFD:
        case BUFFER_KIND_UNSPECIFIED: break;
        }
        return PATH_MEMFD;
}

/* "GPU:0 (GPU-6f1c...), GPU:1 (...)" */
static void list_devices(const struct workers *w, struct text *t) {
        for (uint32_t k = 0; k < workers_n_devices(w); k++)
                text_add(t, "%sGPU:%u (%s)", k ? ", " : "", k, workers_device(w, k)->uuid);
}

static enum status refuse_unknown(const struct workers *w, const char *name, struct error *err) {
        char known[400];
        struct text t;
        text_init(&t, known, sizeof(known));
        list_devices(w, &t);
        return error_set(err, STATUS_NOT_FOUND, FIELD_BUFFER,
                "there is no device \"%.44s\"; this tuttid has %s", name, known);
}

static enum status refuse_path(const struct conductor *c, const struct buffer_ask *ask,
        const struct gpu_device *d, struct error *err) {
        if (ask->path == PATH_CUDA_IPC && !workers_take_ipc(c->house.workers))
                return error_set(err, STATUS_UNSUPPORTED, FIELD_BUFFER,
                        "legacy CUDA handles are off here: anybody who has seen one could use it, and this "
                        "tuttid serves several users. Take memory of cuMemCreate with a POSIX file "
                        "descriptor, or "
                        "let the administrator set gpu.ipc = yes");
        if (ask->path == PATH_CUDA_IPC && ask->reg->n_handle_bytes != MEMORY_HANDLE_BYTES)
                return error_set(err, STATUS_INVALID, FIELD_BUFFER, "a legacy handle has %d bytes, not %zu",
                        MEMORY_HANDLE_BYTES, ask->reg->n_handle_bytes);
        if (!(d->paths & 1u << ask->path))
                return error_set(err, STATUS_UNSUPPORTED, FIELD_BUFFER,
                        "%s does not take memory of this kind; `tuttictl status` says why, host memory "
                        "always "
                        "does",
                        d->name);
        return STATUS_OK;
}

static enum status find_device(const struct conductor *c, struct buffer_ask *ask, struct error *err) {
        const struct workers *w = c->house.workers;
        ask->device = workers_find(w, ask->reg->device);
        if (workers_is_starting(w))
                return error_set(
                        err, STATUS_BUSY, FIELD_BUFFER, "the GPUs are still being tested; ask again soon");
        if (workers_n_devices(w) == 0)
                return error_set(err, STATUS_UNSUPPORTED, FIELD_BUFFER, "this tuttid has no GPU: %.300s",
                        workers_why_off(w));
        if (ask->device == DEVICE_UNKNOWN)
                return refuse_unknown(w, ask->reg->device, err);
        const struct gpu_device *d = workers_device(w, ask->device - DEVICE_GPU);
        if (d->why[0] != '\0' && workers_why_off(w)[0] == '\0')
                return error_set(err, STATUS_UNSUPPORTED, FIELD_BUFFER, "GPU:%u is off: %s",
                        ask->device - DEVICE_GPU, d->why);
        return refuse_path(c, ask, d, err);
}

void conductor_find_device(struct conductor *c, struct buffer_ask *ask, struct error *ret_refused) {
        ask->path = path_of(ask);
        if (ask->path == PATH_MEMFD)
                return;
        error_init(ret_refused, STATUS_OK);
        if (find_device(c, ask, ret_refused) != STATUS_OK)
                ask->refused = ret_refused;
        else if (ask->path == PATH_VMM_MADE)
                ask->granularity = conductor_granularity(c, ask->device);
}

uint64_t conductor_granularity(const struct conductor *c, uint32_t device) {
        const struct workers *w = c->house.workers;
        const uint32_t k = device - DEVICE_GPU;
        return k < workers_n_devices(w) ? workers_device(w, k)->granularity : 0;
}

void conductor_reply_registered(struct conductor *c, struct session *s, const struct buffer_news *news) {
        bool is_made = news->made_fd >= 0;
        const struct reply reply = { .request = news->request,
                .type = REPLY_REGISTERED,
                .registered = { .n_descriptors = is_made, .size_bytes = is_made ? news->made_bytes : 0 } };
        conductor_reply_fd(c, s, &reply, news->made_fd);
}

/* --- chores --- */

void conductor_do(struct conductor *c, struct chore *chore) {
        struct memory *leaving = signals_leaving(chore);
        if (leaving)
                workers_forget(c->house.workers, leaving);
        if (workers_want(chore))
                workers_do(c->house.workers, chore);
        else
                engine_do(c->house.engine, chore);
}

/* Host memory is the engine's: the GPU process has only let go of it. */
bool conductor_chore_is_over(const struct chore *chore) {
        return chore->kind == CHORE_IMPORT || chore->kind == CHORE_MAKE || !chore->memory;
}

/* --- where values are, and who reaches them --- */

static enum link link_to(const struct gpu_device *d, uint32_t k) {
        if (!(d->peers[k / 32] >> k % 32 & 1))
                return LINK_NONE;
        return d->nvlinks[k / 32] >> k % 32 & 1 ? LINK_NVLINK : LINK_PCIE;
}

/* Of the devices that serve; while tuttid-gpu is started anew, of those that did: the same is most likely
 * found again, and what waits keeps its numbers. */
static void describe_topology(const struct workers *w, struct topology *ret) {
        bool is_known = workers_why_off(w)[0] == '\0';
        ret->n_devices = 0;
        ret->has_library = workers_n_devices(w) > 0;
        ret->why_no_library = "NCCL is not there; `tuttictl status` says why";
        for (uint32_t k = 0; k < workers_n_devices(w) && k < MAX_TOPOLOGY; k++) {
                if (is_known && workers_device(w, k)->why[0] != '\0')
                        continue;
                ret->devices[ret->n_devices++] = DEVICE_GPU + k;
                ret->has_library &= workers_device(w, k)->has_library;
        }
        for (uint32_t i = 0; i < ret->n_devices; i++)
                for (uint32_t j = 0; j < ret->n_devices; j++)
                        ret->links[i][j] = i == j ? LINK_SAME
                                                  : link_to(workers_device(w, ret->devices[i] - DEVICE_GPU),
                                                            ret->devices[j] - DEVICE_GPU);
}

void conductor_reach(const struct conductor *c, struct homes *homes, struct problem *ret) {
        if (ret->device < DEVICE_GPU && ret->signature->options.place < DEVICE_GPU)
                return;
        describe_topology(c->house.workers, &homes->topology);
        ret->homes = homes->of;
        ret->topology = &homes->topology;
}

void conductor_locate(
        const struct conductor *c, const struct meeting *m, struct homes *homes, struct problem *ret) {
        uint32_t n = 0;
        rankset_for_each (rank, &m->have) {
                const struct half *half = m->halves[rank];
                homes->of[n++] = half->device;
                if (ret->device == 0) /* the first that holds some of it */
                        ret->device = half->device;
                ret->is_mixed |= half->device >= DEVICE_GPU && half->has_host_values;
                ret->is_spread |= half->is_spread;
        }
        conductor_reach(c, homes, ret);
}

/* --- runs --- */

/* What the streams of this collective wait for: one slot of each half that brings one. */
static bool fill_signals(struct meeting *m, struct task *t) {
        uint32_t n = 0;
        free((void *)t->signals);
        t->signals = NULL;
        t->n_signals = 0;
        rankset_for_each (rank, &m->have)
                n += m->halves[rank]->page != NULL;
        if (n == 0)
                return true;
        struct signal *signals = calloc(n, sizeof(*signals));
        if (!signals)
                return false;
        t->signals = signals;
        rankset_for_each (rank, &m->have) {
                const struct half *half = m->halves[rank];
                if (!half->page)
                        continue;
                struct memory *page = signal_page_memory(half->page);
                if (!signal_page_has_events(half->page)) {
                        page->fd = signal_page_fd(half->page);
                        page->access = ACCESS_INOUT;
                }
                signals[t->n_signals++] = (struct signal){
                        .page = page, .slot = half->signal.slot, .value = half->signal.value
                };
        }
        return true;
}

void conductor_launch(struct conductor *c, struct meeting *m, struct task *t) {
        if (!fill_signals(m, t)) {
                c->n_running--;
                error_init(&c->error, STATUS_NO_MEMORY);
                error_set(&c->error, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid is short of memory");
                rendezvous_done(c->house.rendezvous, m, STATUS_NO_MEMORY, &c->error, c->now_ns);
                conductor_finish(c, m);
                return;
        }
        t->limit_ns = t->n_signals ? c->house.config->signal_timeout_ns : 0;
        workers_start(c->house.workers, t);
}

/* Whose stream it was that never came: the n-th of the halves that bring a signal. */
static int32_t late_rank(const struct meeting *m, const struct task *t) {
        uint32_t n = 0;
        rankset_for_each (rank, &m->have)
                if (m->halves[rank]->page && n++ == t->late_signal)
                        return (int32_t)rank;
        return -1;
}

static void describe_device(const struct conductor *c, uint32_t device, struct text *t) {
        uint32_t k = device - DEVICE_GPU;
        text_add(t, "GPU:%u", k);
        if (k < workers_n_devices(c->house.workers))
                text_add(t, " (%s)", workers_device(c->house.workers, k)->name);
}

static enum status explain_late(struct conductor *c, const struct meeting *m, const struct task *t) {
        struct error *err = &c->error;
        int32_t rank = late_rank(m, t);
        error_init(err, STATUS_TIMEOUT);
        err->rank = rank;
        return error_set(err, STATUS_TIMEOUT, FIELD_UNSPECIFIED,
                "all halves are here, and the stream of R%d has not come so far in %llu ms "
                "(gpu.signal-timeout): what "
                "it waits for itself never came, or it was never started. Nothing was written",
                rank, (unsigned long long)(t->limit_ns / 1000000));
}

enum status conductor_explain_failure(struct conductor *c, const struct meeting *m, const struct task *t) {
        struct error *err = &c->error;
        char device[96];
        struct text text;
        if (t->status == STATUS_TIMEOUT)
                return explain_late(c, m, t);
        text_init(&text, device, sizeof(device));
        describe_device(c, t->plan.device, &text);
        error_init(err, t->status);
        err->outputs_undefined = !t->is_untouched;
        err->have = m->have;
        if (t->status == STATUS_DEVICE_LOST)
                return error_set(err, STATUS_DEVICE_LOST, FIELD_UNSPECIFIED,
                        "tuttid-gpu, which works on %s, was lost %s: %s. Buffers and group stay as they are: "
                        "submit again, tuttid starts it anew",
                        device,
                        t->is_untouched ? "before it had begun with this collective, and nothing was written"
                                        : "while it had this collective, and its outputs are undefined",
                        t->why);
        return error_set(err, t->status, FIELD_UNSPECIFIED, "%s could not run it: %s", device,
                t->why[0] ? t->why : "the log of tuttid says why");
}

void conductor_offer_signals(struct conductor *c) {
        const struct workers *w = c->house.workers;
        const enum gpu_order most = c->house.config->gpu_order;
        enum stream_order order = ORDER_TIMELINE;
        char none[150];
        const char *why = "";
        if (workers_n_devices(w) == 0) {
                snprintf(none, sizeof(none), "this tuttid has no GPU: %.120s", workers_why_off(w));
                why = none;
        }
        for (uint32_t k = 0; k < workers_n_devices(w); k++)
                if (!workers_device(w, k)->has_timeline)
                        why = "streams of a GPU of this host cannot wait for values in memory";
        if (why[0] != '\0')
                order = ORDER_EVENTS; /* of which device, the question says */
        if (most != GPU_ORDER_AUTO) {
                order = most == GPU_ORDER_EVENTS ? ORDER_EVENTS : ORDER_HOST;
                why = "tuttid is told to offer no better order (gpu.order)";
        }
        if (workers_n_devices(w) == 0)
                order = ORDER_HOST;
        if (signals_offered(c->house.signals) != order || strcmp(signals_why(c->house.signals), why) != 0)
                signals_offer(c->house.signals, order, why);
}
