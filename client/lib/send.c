#include <errno.h>
#include <poll.h>
#include "lib/group.h"
#include "lib/reconnect.h"
#include "lib/work.h"
#include "wire/codec.h"

#define LOOK_AGAIN_MS  100
#define ANSWER_SECONDS 10

/* --- numbers --- */

static enum status say_lost(const struct tutti *t, struct error *err) {
        if (t->lost)
                *err = t->lost->error;
        else
                error_init(err, STATUS_DAEMON_LOST);
        return STATUS_DAEMON_LOST;
}

static enum status number(struct tutti *t, struct request *request, struct call *call, struct error *err) {
        if (t->is_lost)
                return say_lost(t, err);
        request->request = t->next_request++;
        if (!call)
                return STATUS_OK;
        call->request = request->request;
        if (call->group)
                resume_set_membership(request, call->group->membership);
        call->is_held = !reconnect_may_send(t, call);
        list_append(&t->others, &call->node);
        return STATUS_OK;
}

enum status send_number(struct tutti *t, struct request *request, struct call *call, struct error *err) {
        pthread_mutex_lock(&t->lock);
        enum status status = number(t, request, call, err);
        pthread_mutex_unlock(&t->lock);
        return status;
}

/* The next number whose slot of the status page is free: a submission that stays long does not stop the
 * others. */
static enum status number_submission(
        struct tutti *t, struct request *request, struct call *call, struct error *err) {
        if (t->is_lost)
                return say_lost(t, err);
        if (t->n_slots_used == STATUS_PAGE_SLOTS) {
                refuse(err, STATUS_LIMIT, FIELD_UNSPECIFIED,
                        "%d submissions of this connection are unfinished, the most it may have",
                        STATUS_PAGE_SLOTS);
                err->used = err->limit = STATUS_PAGE_SLOTS;
                return STATUS_LIMIT;
        }
        while (t->slots[t->next_request % STATUS_PAGE_SLOTS])
                t->next_request++;
        request->request = call->request = t->next_request++;
        if (call->group)
                resume_set_membership(request, call->group->membership);
        call->is_held = !reconnect_may_send(t, call);
        t->slots[call->request % STATUS_PAGE_SLOTS] = call;
        t->n_slots_used++;
        return STATUS_OK;
}

enum status send_number_submission(
        struct tutti *t, struct request *request, struct call *call, struct error *err) {
        pthread_mutex_lock(&t->lock);
        enum status status = number_submission(t, request, call, err);
        pthread_mutex_unlock(&t->lock);
        return status;
}

/* --- packets --- */

/* Whether what is being sent is of any use: not when tuttid is away, or has handed the socket over. */
static bool has_reader(struct tutti *t) {
        pthread_mutex_lock(&t->lock);
        bool has = !t->is_lost && reconnect_may_send(t, NULL);
        pthread_mutex_unlock(&t->lock);
        return has;
}

/* tuttid may be unable to read before we have: so we take in while we wait for room. What another thread
 * takes in just before we sleep does not wake us, and a socket that was handed over may stay full: so we look
 * again. */
static bool wait_for_room(struct tutti *t) {
        struct pollfd fds = { .fd = t->socket, .events = POLLIN | POLLOUT };
        if (!has_reader(t))
                return false;
        poll(&fds, 1, reconnect_is_on(t) ? LOOK_AGAIN_MS : -1);
        pthread_mutex_lock(&t->lock);
        connection_take_in(t);
        pthread_mutex_unlock(&t->lock);
        return has_reader(t);
}

bool send_has_room(struct tutti *t, int seconds) {
        struct pollfd fds = { .fd = t->socket, .events = POLLOUT };
        return poll(&fds, 1, seconds * 1000) == 1 && fds.revents == POLLOUT;
}

/* Its last words, if any, are still to be read, and with them an end that was known before. */
static void lose(struct tutti *t) {
        pthread_mutex_lock(&t->lock);
        connection_take_in(t);
        connection_lose(t, "");
        pthread_mutex_unlock(&t->lock);
}

void send_bytes(struct tutti *t, size_t n_bytes, int fd) {
        int r;
        while ((r = channel_send(t->socket, t->send_bytes, n_bytes, &fd, fd >= 0)) == -EAGAIN || r == -EINTR)
                if (r == -EAGAIN && !wait_for_room(t))
                        return;
        if (r < 0)
                lose(t);
}

bool send_packet(struct tutti *t, const struct request *request, int fd) {
        size_t n_bytes;
        if (codec_encode_request(request, &t->scratch, t->send_bytes, &n_bytes) < 0)
                return false;
        send_bytes(t, n_bytes, fd);
        return true;
}

/* Not what is held, nor, while tuttid is away, what nobody waits for. Under `sending`. */
bool send_may_go(struct tutti *t, const struct call *call) {
        if (!reconnect_is_on(t))
                return true;
        pthread_mutex_lock(&t->lock);
        bool may = call ? !call->is_held : reconnect_may_send(t, NULL);
        pthread_mutex_unlock(&t->lock);
        return may;
}

static enum status say_too_long(struct tutti *t, struct call *call, struct error *err) {
        if (call) {
                pthread_mutex_lock(&t->lock);
                call_drop(t, call);
                pthread_mutex_unlock(&t->lock);
        }
        return refuse(err, STATUS_LIMIT, FIELD_SIZE, "the request does not fit into a packet of %d bytes",
                MAX_PACKET_BYTES);
}

enum status send_request(
        struct tutti *t, struct request *request, struct call *call, int fd, struct error *err) {
        pthread_mutex_lock(&t->sending);
        enum status status = send_number(t, request, call, err);
        if (status == STATUS_OK && send_may_go(t, call) && !send_packet(t, request, fd))
                status = say_too_long(t, call, err);
        pthread_mutex_unlock(&t->sending);
        return status;
}

enum tutti_status send_and_wait(struct tutti *t, struct request *request, struct call *call) {
        struct error err;
        call->again = request;
        if (send_request(t, request, call, -1, &err) != STATUS_OK)
                return thread_fail(&err);
        pthread_mutex_lock(&t->lock);
        connection_wait(t, call, WAIT_FOREVER);
        pthread_mutex_unlock(&t->lock);
        return call_take_failure(call);
}

/* --- questions --- */

static enum tutti_status say_silence(void) {
        return thread_say(STATUS_NO_DAEMON, FIELD_UNSPECIFIED,
                "tuttid has not answered for %d s, though it has not ended: it may be stopped",
                ANSWER_SECONDS);
}

/* An answer that comes in parts may take its time, and one from a tuttid that is to be back. Under `lock`. */
static enum wait_end wait_for_answer(struct tutti *t, const struct call *call) {
        enum wait_end end;
        uint32_t n_parts;
        do {
                n_parts = call->n_parts;
                end = connection_wait(t, call, deadline_in(ANSWER_SECONDS));
        } while (end == WAIT_TIME && (call->n_parts != n_parts || call->is_held));
        return end;
}

enum tutti_status send_and_ask(struct tutti *t, struct request *request, struct call *call) {
        struct pollfd room = { .fd = t->socket, .events = POLLOUT };
        struct error err;
        if (poll(&room, 1, ANSWER_SECONDS * 1000) == 0)
                return say_silence();
        call->again = request;
        if (send_request(t, request, call, -1, &err) != STATUS_OK)
                return thread_fail(&err);
        pthread_mutex_lock(&t->lock);
        enum wait_end end = wait_for_answer(t, call);
        if (end != WAIT_ENDED)
                call_drop(t, call);
        pthread_mutex_unlock(&t->lock);
        return end == WAIT_ENDED ? call_take_failure(call) : say_silence();
}
