#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "lib/connection.h"
#include "lib/dispatch.h"
#include "lib/reconnect.h"
#include "wire/codec.h"

/* --- taking in --- */

static const char *why_lost(int r) {
        switch (-r) {
        case 0:
        case ECONNRESET:
        case EPIPE: return "";
        case EMSGSIZE: return "It sent a packet that is too long";
        }
        return strerror(-r);
}

/* One packet: receive, decode, dispatch. false: no more for now. */
static bool take_in_packet(struct tutti *t) {
        struct packet packet;
        struct reply reply;
        int r = channel_receive(t->socket, t->receive_bytes, &packet);
        if (r == -EAGAIN)
                return false;
        if (r <= 0) {
                packet_close_fds(&packet);
                connection_lose(t, why_lost(r));
                return false;
        }
        arena_reset(&t->decoding);
        const char *wrong = "no reply of this protocol";
        if (codec_decode_reply(t->receive_bytes, packet.n_bytes, &t->decoding, &reply) == 0)
                wrong = dispatch_reply(t, &reply, &packet);
        packet_close_fds(&packet);
        if (!wrong)
                return true;
        char because[160];
        snprintf(because, sizeof(because), "It sent what libtutti cannot use: %s", wrong);
        connection_lose(t, because);
        return false;
}

void connection_take_in(struct tutti *t) {
        while (!t->is_lost && reconnect_has_socket(t) && take_in_packet(t))
                ;
}

/* --- waiting --- */

static enum wait_end state_of_wait(const struct waiter *w, uint32_t n_cancels, uint64_t deadline_ns) {
        const struct call *call = w->call;
        if (call->is_ended || (w->is_for_launch && call->is_launched))
                return WAIT_ENDED;
        if (call->n_cancels != n_cancels)
                return WAIT_CANCELLED;
        if (deadline_ns != WAIT_FOREVER && clock_now_ns() >= deadline_ns)
                return WAIT_TIME;
        return WAIT_GOES_ON;
}

static struct timespec timespec_of(uint64_t ns) {
        return (struct timespec){ .tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S) };
}

/* Whether the event was rung. `socket` -1: there is none. */
static bool sleep_in_poll(const struct tutti *t, int socket, uint64_t deadline_ns) {
        struct pollfd fds[] = { { .fd = socket, .events = POLLIN }, { .fd = t->event, .events = POLLIN } };
        if (deadline_ns == WAIT_FOREVER)
                return ppoll(fds, 2, NULL, NULL) > 0 && fds[1].revents;
        uint64_t now = clock_now_ns();
        struct timespec left = timespec_of(deadline_ns > now ? deadline_ns - now : 0);
        return ppoll(fds, 2, &left, NULL) > 0 && fds[1].revents;
}

static void empty(int event) {
        uint64_t count;
        (void)!read(event, &count, sizeof(count));
}

static void lead(struct tutti *t, struct waiter *me, uint64_t deadline_ns) {
        t->leader = me;
        pthread_mutex_unlock(&t->lock);
        reconnect_go_on(t);
        pthread_mutex_lock(&t->lock);
        int socket = reconnect_has_socket(t) ? t->socket : -1;
        deadline_ns = reconnect_next_ns(t, me->call->is_ended ? 0 : deadline_ns);
        pthread_mutex_unlock(&t->lock);
        bool is_rung = sleep_in_poll(t, socket, deadline_ns);
        pthread_mutex_lock(&t->lock);
        t->leader = NULL;
        if (is_rung)
                empty(t->event);
        connection_take_in(t);
}

static void follow(struct tutti *t, struct waiter *me, uint64_t deadline_ns) {
        if (deadline_ns == WAIT_FOREVER) {
                pthread_cond_wait(&me->woken, &t->lock);
                return;
        }
        struct timespec until = timespec_of(deadline_ns);
        pthread_cond_timedwait(&me->woken, &t->lock, &until);
}

static void waiter_init(struct waiter *w) {
        pthread_condattr_t attr;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&w->woken, &attr);
        pthread_condattr_destroy(&attr);
}

/* Somebody has to lead while anybody waits. */
static void hand_on(struct tutti *t) {
        if (!t->leader && !list_is_empty(&t->waiters))
                pthread_cond_signal(&list_entry(t->waiters.next, struct waiter, node)->woken);
}

static enum wait_end wait_as(struct tutti *t, struct waiter *me, uint64_t deadline_ns) {
        uint32_t n_cancels = me->call->n_cancels;
        enum wait_end end = state_of_wait(me, n_cancels, deadline_ns);
        if (end != WAIT_GOES_ON)
                return end;
        waiter_init(me);
        list_init(&me->node);
        list_append(&t->waiters, &me->node);
        while ((end = state_of_wait(me, n_cancels, deadline_ns)) == WAIT_GOES_ON)
                if (t->leader)
                        follow(t, me, deadline_ns);
                else
                        lead(t, me, deadline_ns);
        list_unlink(&me->node);
        hand_on(t);
        pthread_cond_destroy(&me->woken);
        return end;
}

enum wait_end connection_wait(struct tutti *t, const struct call *call, uint64_t deadline_ns) {
        struct waiter me = { .call = call };
        return wait_as(t, &me, deadline_ns);
}

enum wait_end connection_wait_launched(struct tutti *t, const struct call *call, uint64_t deadline_ns) {
        struct waiter me = { .call = call, .is_for_launch = true };
        return wait_as(t, &me, deadline_ns);
}

/* --- for an event loop --- */

int tutti_fd(struct tutti *t) {
        if (!t || fork_guard_is_child(t->guard))
                return -1;
        pthread_mutex_lock(&t->lock);
        bool is_open = connection_open_news(t);
        pthread_mutex_unlock(&t->lock);
        return is_open ? t->epoll : -1;
}

/* A leader must not miss what rang for it. */
void connection_dispatch(struct tutti *t) {
        if (!t->leader)
                empty(t->event);
        if (t->news >= 0 && t->has_news)
                empty(t->news);
        t->has_news = false;
        t->is_dispatching = true;
        connection_take_in(t);
        t->is_dispatching = false;
}
