/* Signal pages: asked for, named by halves, and written where the worker does not write. */
#include "conductor-internal.h"

static void conductor_reply_signals(struct conductor *c, struct session *s, const struct signals_news *news) {
        const struct reply reply = { .request = news->request,
                .type = REPLY_SIGNALS,
                .signals = { .order = news->order,
                        .n_descriptors = 1,
                        .n_slots = SIGNAL_SLOTS,
                        .why = "",
                        .n_events = news->order == ORDER_EVENTS ? SIGNAL_EVENTS : 0 } };
        conductor_reply_fd(c, s, &reply, news->fd);
}

static void conductor_grant_nothing(
        struct conductor *c, struct session *s, const struct request *r, const char *why) {
        const struct reply reply = {
                .request = r->request, .type = REPLY_SIGNALS, .signals = { .order = ORDER_HOST, .why = why }
        };
        conductor_reply(c, s, &reply);
}

/* Events are made on one device, whose streams record them and wait for them. NULL: they can be. */
static const char *why_no_events(struct conductor *c, const struct signals_ask *ask) {
        const struct workers *w = c->house.workers;
        if (ask->device < DEVICE_GPU || ask->device == DEVICE_UNKNOWN)
                return "tuttid does not serve the device of these streams";
        return workers_device(w, ask->device - DEVICE_GPU)->has_events
                       ? NULL
                       : "there are no events between processes: they need legacy CUDA handles (gpu.ipc), "
                         "and "
                         "a driver that has them";
}

void conductor_open_signals(struct conductor *c, struct session *s, const struct request *r) {
        enum stream_order order = r->open_signals.order;
        if (order_is_better(order, ORDER_HOST) && workers_is_starting(c->house.workers)) {
                error_init(&c->error, STATUS_BUSY);
                error_set_detail(&c->error, "the GPUs are still being tested; ask again soon");
                conductor_reply_status(c, s, r->request, STATUS_BUSY, &c->error);
                return;
        }
        const struct signals_ask ask = { .session = s->id,
                .request = r->request,
                .uid = s->uid,
                .order = order,
                .device = workers_find(c->house.workers, r->open_signals.device) };
        const char *why = !order_is_better(order, ORDER_HOST) ? "" : NULL;
        if (!why && order_is_better(order, signals_offered(c->house.signals)))
                why = signals_why(c->house.signals);
        if (!why && order == ORDER_EVENTS)
                why = why_no_events(c, &ask);
        if (why) {
                conductor_grant_nothing(c, s, r, why);
                return;
        }
        error_init(&c->error, STATUS_OK);
        enum status status = signals_open(c->house.signals, &ask, &c->chores, &c->error);
        if (status != STATUS_OK)
                conductor_reply_status(c, s, r->request, status, &c->error);
}

void conductor_signals_done(struct conductor *c, struct chore *chore) {
        struct signals_news news;
        if (!signals_chore_done(c->house.signals, chore, &c->chores, &news))
                return;
        if (news.is_gone) {
                loan_keep(c->house.loans, news.fd, &news.descriptors, &news.bytes);
                return;
        }
        struct session *s = session_find(c->house.sessions, news.session);
        if (!s)
                return;
        if (news.status == STATUS_OK) {
                conductor_reply_signals(c, s, &news);
                return;
        }
        error_init(&c->error, news.status);
        error_set_detail(&c->error, "%s", news.why);
        conductor_reply_status(c, s, news.request, news.status, &c->error);
}

static bool is_on_device(const struct place *p) {
        return p->memory && p->memory->path != PATH_MEMFD;
}

/* The worker waits for streams, the host's threads do not: there must be something for it to do. */
static bool half_is_on_device(const struct half *half) {
        for (uint32_t i = 0; i < half->n_checked; i++)
                if (is_on_device(&half->entries[i].input) || is_on_device(&half->entries[i].output))
                        return true;
        return false;
}

enum status conductor_use_signal(struct conductor *c, struct half *half) {
        if (half->signal.value == 0 || half->page)
                return STATUS_OK;
        if (!half_is_on_device(half))
                return error_set(&c->error, STATUS_INVALID, FIELD_OPTIONS,
                        "it is to be ordered by a stream, and none of its values lies in device memory; wait "
                        "for the stream before you submit");
        return signals_use(c->house.signals, half->session, &half->signal, &half->page, &c->error);
}

void conductor_launched(struct conductor *c, const struct task *t) {
        const struct meeting *m = t->owner;
        rankset_for_each (rank, &m->have) {
                const struct half *half = m->halves[rank];
                const struct reply reply = { .request = half->request, .type = REPLY_LAUNCHED, .more = true };
                if (half->page && signal_page_has_events(half->page))
                        conductor_reply(c, session_find(c->house.sessions, half->session), &reply);
        }
}

void conductor_end_signal(struct conductor *c, struct half *half) {
        struct signal_page *page = half->page;
        half->page = NULL;
        if (page)
                signals_end_use(c->house.signals, page, &c->chores);
}

void conductor_say_done(struct conductor *c, const struct half *half) {
        signals_set_done(c->house.signals, half->session, &half->signal, &c->chores);
}
