#include "lib/dispatch.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/text.h"
#include "lib/answer.h"
#include "lib/object.h"
#include "lib/order.h"
#include "lib/reconnect.h"
#include "lib/region.h"
#include "lib/work.h"

/* Replies come about in the order of their requests, so the oldest are looked at first. */
static struct call *find_call(struct tutti *t, uint64_t request) {
        struct call *call = t->slots[request % STATUS_PAGE_SLOTS];
        if (call && call->request == request)
                return call;
        list_for_each (it, &t->others) {
                call = list_entry(it, struct call, node);
                if (call->request == request)
                        return call;
        }
        return NULL;
}

static struct failure *failure_of(const struct reply *reply) {
        if (reply->error) {
                struct error e = *reply->error;
                e.status = reply->status;
                return failure_new(&e);
        }
        struct error e;
        error_init(&e, reply->status);
        return failure_new(&e);
}

/* --- bodies: NULL, or what is wrong --- */

/* The one that the body announces. false: none was sent. Where it was, and could not be received, *ret is -1.
 */
static bool take_fd(struct packet *packet, int *ret) {
        *ret = packet->n_fds == 1 ? fd_take(&packet->fds[0]) : -1;
        return packet->n_fds == 1 || packet->is_short;
}

static const char *map_page(struct tutti *t, const struct msg_welcome *welcome, struct packet *packet) {
        struct stat st;
        CLEANUP_FD int fd = packet->n_fds == 1 ? fd_take(&packet->fds[0]) : -1;
        if (fd < 0 || welcome->n_descriptors != 1 || welcome->status_slots != STATUS_PAGE_SLOTS)
                return "a welcome without the status page";
        if (fstat(fd, &st) < 0 || (uint64_t)st.st_size < STATUS_PAGE_BYTES)
                return "a status page that is too short";
        bool has_board = (uint64_t)st.st_size >= STATUS_MEMFD_BYTES;
        size_t n_bytes = has_board ? STATUS_MEMFD_BYTES : STATUS_PAGE_BYTES;
        void *page = mmap(NULL, n_bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (page == MAP_FAILED)
                return "a status page that cannot be mapped";
        madvise(page, n_bytes, MADV_DONTFORK); /* it is charged to us while anybody has it */
        t->page = page;
        t->board = has_board ? (const void *)(t->page + STATUS_PAGE_SLOTS) : NULL;
        return NULL;
}

static const char *take_welcome(struct tutti *t, const struct reply *reply, struct packet *packet) {
        const struct msg_welcome *welcome = &reply->welcome;
        if (reply->type != REPLY_WELCOME)
                return "no welcome";
        if (welcome->version < PROTOCOL_MIN || welcome->version > PROTOCOL_MAX)
                return "a protocol version that was not offered";
        return map_page(t, welcome, packet);
}

static const char *take_made(struct device_made *made, const struct reply *reply, struct packet *packet) {
        if (reply->type != REPLY_REGISTERED || !take_fd(packet, &made->fd))
                return "no memory in the answer to a request for device memory";
        made->size_bytes = reply->registered.size_bytes;
        return NULL;
}

static const char *take_order(struct order_granted *order, const struct reply *reply, struct packet *packet) {
        if (reply->type != REPLY_SIGNALS)
                return "no order in the answer to a request for signals";
        bool has_page = reply->signals.order == ORDER_TIMELINE || reply->signals.order == ORDER_EVENTS;
        order->order = reply->signals.order;
        text_copy(order->why, sizeof(order->why), reply->signals.why);
        if (reply->signals.order == ORDER_EVENTS && reply->signals.n_events != SIGNAL_EVENTS)
                return "an order without its events";
        if (has_page && (reply->signals.n_slots != SIGNAL_SLOTS || !take_fd(packet, &order->fd)))
                return "an order without its page";
        return NULL;
}

static const char *take_body(
        struct tutti *t, struct call *call, const struct reply *reply, struct packet *packet) {
        switch (call->type) {
        case CALL_PLAIN: return NULL;
        case CALL_WELCOME: return take_welcome(t, reply, packet);
        case CALL_JOIN:
        case CALL_RESUME:
                if (reply->type != REPLY_JOINED)
                        return "no membership in the answer to a join";
                call->joined = reply->joined;
                return NULL;
        case CALL_ROWS:
                if (reply->type == REPLY_ROWS)
                        answer_add(call->answer, reply->rows.rows, reply->rows.n_rows);
                return NULL;
        case CALL_OBJECT:
                if (reply->type != REPLY_RESULT || !take_fd(packet, &call->made->fd))
                        return "no memory in the answer to a result object";
                call->made->result = reply->result;
                return NULL;
        case CALL_MADE: return take_made(call->made_device, reply, packet);
        case CALL_ORDER: return take_order(call->order, reply, packet);
        case CALL_LANE: return lane_take(t, reply, packet);
        case CALL_WORK:
                if (reply->type == REPLY_LAUNCHED && !reply->more)
                        return "a start without an end";
                if (reply->type == REPLY_LAUNCHED) {
                        call_launched(t, call);
                        return NULL;
                }
                if (reply->type != REPLY_DONE)
                        return "no result in the answer to a submission";
                return work_take_done(work_of(call), &reply->done, !reply->more);
        }
        return "an answer to nothing";
}

/* And not of a tuttid that goes on, and only takes no new groups (`tuttictl drain`). */
static bool is_of_a_stop(const struct reply *reply) {
        return reply->status == STATUS_DRAINING && (!reply->error || reply->error->field != FIELD_GROUP);
}

/* What answers no request. */
static const char *take_last_words(struct tutti *t, const struct reply *reply) {
        if (reply->status == STATUS_OK && reply->type == REPLY_HAND_OVER) {
                if (!reconnect_take_over(t))
                        connection_lose(t, "");
                return NULL;
        }
        if (reply->status == STATUS_OK) /* they would end everything under way with OK */
                return "last words without a reason";
        failure_unref(t->last_words);
        t->last_words = failure_of(reply);
        return NULL;
}

/* Of the status page: nothing goes on without it. What others bring is missed by whoever takes it. */
static void end_unreceived(struct tutti *t, struct call *hello) {
        struct error e;
        refuse_no_descriptor(&e, "the status page");
        call_end(t, hello, e.status, failure_new(&e));
}

const char *dispatch_reply(struct tutti *t, const struct reply *reply, struct packet *packet) {
        if (reply->request == 0)
                return take_last_words(t, reply);
        if (reply->request >= t->next_request)
                return "an answer to a request that was never made";
        struct call *call = find_call(t, reply->request);
        if (!call) /* nobody waits for it: an unregistration, a handle that was closed */
                return NULL;
        if (is_of_a_stop(reply) && reconnect_hold(t, call))
                return NULL;
        if (reply->status != STATUS_OK) {
                call_end(t, call, reply->status, failure_of(reply));
                return NULL;
        }
        if (call->type == CALL_WELCOME && packet->is_short) {
                end_unreceived(t, call);
                return NULL;
        }
        const char *wrong = take_body(t, call, reply, packet);
        if (wrong)
                return wrong;
        call->n_parts += reply->more;
        if (reply->more)
                return call->type == CALL_ROWS || call->type == CALL_WORK || call->type == CALL_LANE
                               ? NULL
                               : "an answer in parts where one was due";
        call_end(t, call, STATUS_OK, NULL);
        return NULL;
}
