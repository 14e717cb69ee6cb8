/* Signal pages: asked for, named by halves, and written where the worker does not write. */
#include "conductor-internal.h"

static void conductor_reply_signals(struct conductor *c, struct session *s, const struct signals_news *news) {
        const struct reply reply = { .request = news->request,
                .type = REPLY_SIGNALS,
                .signals = {
                        .order = ORDER_TIMELINE, .n_descriptors = 1, .n_slots = SIGNAL_SLOTS, .why = "" } };
        conductor_reply_fd(c, s, &reply, news->fd);
}

static void conductor_grant_nothing(struct conductor *c, struct session *s, const struct request *r) {
        bool was_asked = r->open_signals.order == ORDER_TIMELINE;
        const struct reply reply = { .request = r->request,
                .type = REPLY_SIGNALS,
                .signals = { .order = ORDER_HOST, .why = was_asked ? signals_why(c->house.signals) : "" } };
        conductor_reply(c, s, &reply);
}

void conductor_open_signals(struct conductor *c, struct session *s, const struct request *r) {
        if (r->open_signals.order == ORDER_TIMELINE && workers_is_starting(c->house.workers)) {
                error_init(&c->error, STATUS_BUSY);
                error_set_detail(&c->error, "the GPUs are still being tested; ask again soon");
                conductor_reply_status(c, s, r->request, STATUS_BUSY, &c->error);
                return;
        }
        const struct signals_ask ask = { .session = s->id, .request = r->request, .uid = s->uid };
        if (r->open_signals.order != ORDER_TIMELINE || signals_offered(c->house.signals) != ORDER_TIMELINE) {
                conductor_grant_nothing(c, s, r);
                return;
        }
        error_init(&c->error, STATUS_OK);
        enum status status = signals_open(c->house.signals, &ask, &c->chores, &c->error);
        if (status != STATUS_OK)
                conductor_reply_status(c, s, r->request, status, &c->error);
}

void conductor_signals_done(struct conductor *c, struct chore *chore) {
        struct signals_news news;
        if (!signals_chore_done(c->house.signals, chore, &c->chores, &news) || news.is_gone)
                return;
        struct session *s = session_find(c->house.sessions, news.session);
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

void conductor_end_signal(struct conductor *c, struct half *half) {
        struct signal_page *page = half->page;
        half->page = NULL;
        if (page)
                signals_end_use(c->house.signals, page, &c->chores);
}

void conductor_say_done(struct conductor *c, const struct half *half) {
        signals_set_done(c->house.signals, half->session, &half->signal, &c->chores);
}
