#include "lib/reconnect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fd.h"
#include "lib/device.h"
#include "lib/group.h"
#include "lib/open.h"
#include "lib/order.h"
#include "lib/recall.h"
#include "lib/region.h"

/* How soon a socket is tried again, and how soon when tuttid has been away for a second. */
#define TRY_NS      (UINT64_C(2) * 1000000)
#define TRY_LATE_NS (UINT64_C(50) * 1000000)

/* --- life --- */

enum status reconnect_new(struct tutti *t, const char *path, double seconds, struct error *err) {
        if (seconds == 0)
                return STATUS_OK;
        if (!(seconds > 0 && seconds < 1e6) || strlen(path) >= sizeof(t->reconnect->path))
                return refuse(err, STATUS_INVALID, FIELD_TIMEOUT,
                        "reconnect is in seconds, 0 to 1000000; it is %g", seconds);
        struct reconnect *r = calloc(1, sizeof(*r));
        if (!r)
                return refuse(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "%zu bytes are needed", sizeof(*r));
        text_copy(r->path, sizeof(r->path), path);
        r->seconds = seconds;
        r->timer = r->pidfd = -1;
        call_init(&r->hello, CALL_WELCOME);
        t->reconnect = r;
        return STATUS_OK;
}

void reconnect_free(struct tutti *t) {
        if (!t->reconnect)
                return;
        call_deinit(&t->reconnect->hello);
        fd_close(&t->reconnect->timer);
        fd_close(&t->reconnect->pidfd);
        free(t->reconnect);
        t->reconnect = NULL;
}

/* --- the timer of tutti_fd --- */

static void timer_set(struct tutti *t, uint64_t at_ns) {
        struct reconnect *r = t->reconnect;
        if (r->timer < 0) {
                r->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
                struct epoll_event event = { .events = EPOLLIN, .data.fd = r->timer };
                if (r->timer < 0 || epoll_ctl(t->epoll, EPOLL_CTL_ADD, r->timer, &event) < 0) {
                        fd_close(&r->timer); /* whoever polls tutti_fd alone calls when it likes, then */
                        return;
                }
        }
        const struct itimerspec spec = { .it_value = { .tv_sec = (time_t)(at_ns / NS_PER_S),
                                                 .tv_nsec = (long)(at_ns % NS_PER_S) } };
        timerfd_settime(r->timer, TFD_TIMER_ABSTIME, &spec, NULL);
}

/* --- away --- */

static void ring(struct tutti *t) {
        static const uint64_t one = 1;
        (void)!write(t->event, &one, sizeof(one));
}

/* What is tuttid's memory or a device's cannot be brought to another tuttid. */
static const char *find_obstacle(const struct tutti *t) {
        if (!list_is_empty(&t->objects))
                return "result objects go with tuttid";
        list_for_each (it, &t->registrations) {
                const struct region *r = list_entry(it, struct region, registration);
                if (r->device || r->registering.type == CALL_MADE || r->fd < 0)
                        return "buffers of device memory are not carried over";
        }
        return t->order ? "the order of streams goes with tuttid" : NULL;
}

/* Questions are not asked again, and what was being made is not there. */
static void end_what_is_not_asked_again(struct tutti *t) {
        struct error e;
        refuse(&e, STATUS_DAEMON_LOST, FIELD_UNSPECIFIED, "%s", "tuttid was restarted; ask again");
        list_for_each_safe (it, tmp, &t->others) {
                struct call *call = list_entry(it, struct call, node);
                if (call == &t->reconnect->hello)
                        call_drop(t, call);
                else if (call->type == CALL_ROWS || call->type == CALL_OBJECT || call->type == CALL_MADE ||
                         call->type == CALL_ORDER)
                        call_end(t, call, STATUS_DAEMON_LOST, failure_new(&e));
        }
}

/* Who was leaving has left: nobody has to come back for that. */
static void end_leaves(struct tutti *t) {
        list_for_each_safe (it, tmp, &t->others) {
                struct call *call = list_entry(it, struct call, node);
                if (!call->group || !call->again || call->again->type != REQUEST_LEAVE)
                        continue;
                atomic_store(&call->group->has_left, true);
                call_end(t, call, STATUS_OK, NULL);
        }
}

static void hold_all(struct tutti *t) {
        for (size_t i = 0; i < ARRAY_SIZE(t->slots); i++)
                if (t->slots[i])
                        t->slots[i]->is_held = true;
        list_for_each (it, &t->others)
                list_entry(it, struct call, node)->is_held = true;
        list_for_each (it, &t->groups)
                list_entry(it, struct tutti_group, node)->is_back = false;
}

/* The next step is due soon: whoever waits, here or on tutti_fd, is to take it. */
static void call_for_a_step(struct tutti *t, uint64_t now) {
        timer_set(t, now + TRY_NS);
        atomic_store(&t->reconnect->has_work, true);
        ring(t);
}

/* The socket is no use any more. */
static void go_away(struct tutti *t, uint64_t now) {
        struct reconnect *r = t->reconnect;
        r->link = LINK_AWAY;
        r->next_try_ns = now;
        shutdown(t->socket, SHUT_RDWR);
        epoll_ctl(t->epoll, EPOLL_CTL_DEL, t->socket, NULL);
}

/* What was of the tuttid that has ended, whichever way the next one is reached. */
static void let_go(struct tutti *t) {
        struct reconnect *r = t->reconnect;
        r->is_draining = false;
        r->n_ends++;
        r->sending = NULL;
        r->n_sent = 0;
        end_leaves(t);
        forget_all(t);
        recall_forget_all(t);
        lane_let_go(t);
        resume_capture(t);
        connection_drop_page(t);
        end_what_is_not_asked_again(t);
        hold_all(t);
}

static void set_limit(struct reconnect *r, uint64_t now) {
        if (r->link == LINK_UP)
                r->give_up_ns = now + (uint64_t)(r->seconds * NS_PER_S);
}

bool reconnect_begin(struct tutti *t, const char **why_not) {
        struct reconnect *r = t->reconnect;
        if (!r)
                return false;
        if (r->link == LINK_AWAY)
                return true;
        const char *obstacle = find_obstacle(t);
        if (obstacle) {
                *why_not = obstacle;
                return false;
        }
        uint64_t now = clock_now_ns();
        set_limit(r, now);
        go_away(t, now);
        let_go(t);
        call_for_a_step(t, now);
        return true;
}

/* --- handed over --- */

static void prepare_greeting(struct reconnect *r) {
        r->link = LINK_GREETING;
        call_deinit(&r->hello);
        call_init(&r->hello, CALL_WELCOME);
        r->hello.is_held = true;
}

/* A tuttid that has not welcomed us has nothing to hand over. Whose server the socket leads to is not looked
 * at again (open_check_server): SO_PEERCRED keeps naming whoever made the listening socket, whom we trusted;
 * the tuttid that has this end now has it from there. */
bool reconnect_take_over(struct tutti *t) {
        struct reconnect *r = t->reconnect;
        bool is_welcome = r && (r->link == LINK_UP || (r->hello.is_ended && r->hello.status == STATUS_OK));
        if (!is_welcome || find_obstacle(t))
                return false;
        uint64_t now = clock_now_ns();
        set_limit(r, now);
        let_go(t);
        prepare_greeting(r);
        call_for_a_step(t, now);
        return true;
}

/* --- what may be sent --- */

/* Nothing goes before the hello, which is sent under `sending` and not by whoever reads that it is due. */
bool reconnect_may_send(const struct tutti *t, const struct call *call) {
        const struct reconnect *r = t->reconnect;
        if (!r)
                return true;
        if (r->link == LINK_AWAY || r->hello.is_held)
                return false;
        if (!call)
                return true;
        return !r->is_draining && (!call->group || call->group->is_back);
}

bool reconnect_hold(struct tutti *t, struct call *call) {
        struct reconnect *r = t->reconnect;
        if (!r || (call->type != CALL_WORK && !call->again && call->type != CALL_RESUME))
                return false;
        r->is_draining = true;
        call->is_held = true;
        return true;
}

void reconnect_call_ended(struct tutti *t, struct call *call) {
        struct reconnect *r = t->reconnect;
        if (!r || (call->type != CALL_RESUME && call != &r->hello))
                return;
        if (call->type == CALL_RESUME)
                resume_group(t, list_entry(call, struct tutti_group, resuming));
        r->has_resumed = true;
        atomic_store(&r->has_work, true);
        ring(t);
}

bool reconnect_has_socket(const struct tutti *t) {
        return !t->reconnect || t->reconnect->link != LINK_AWAY;
}

uint64_t reconnect_next_ns(const struct tutti *t, uint64_t deadline_ns) {
        const struct reconnect *r = t->reconnect;
        if (!r || t->is_lost)
                return deadline_ns;
        uint64_t next = r->link == LINK_AWAY       ? r->next_try_ns
                        : r->link == LINK_GREETING ? r->give_up_ns
                                                   : WAIT_FOREVER;
        if (r->has_resumed)
                next = 0;
        return next < deadline_ns ? next : deadline_ns;
}

/* --- steps --- */

static void give_up(struct tutti *t, const char *why) {
        char because[256];
        snprintf(because, sizeof(because), "It has not come back for %g s%s%s", t->reconnect->seconds,
                *why ? ": " : "", why);
        connection_give_up(t, because);
        ring(t);
}

/* The new socket takes the place and the number of the old one. Under `sending` and `lock`. */
static bool take_socket(struct tutti *t, int socket) {
        struct epoll_event event = { .events = EPOLLIN, .data.fd = t->socket };
        if (dup3(socket, t->socket, O_CLOEXEC) < 0)
                return false;
        return epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->socket, &event) == 0;
}

static void try_later(struct tutti *t, uint64_t now) {
        struct reconnect *r = t->reconnect;
        uint64_t since = r->give_up_ns - (uint64_t)(r->seconds * NS_PER_S);
        r->next_try_ns = now + (now - since < NS_PER_S ? TRY_NS : TRY_LATE_NS);
        if (r->next_try_ns > r->give_up_ns)
                r->next_try_ns = r->give_up_ns;
        timer_set(t, r->next_try_ns);
}

/* Under `sending` and `lock`. */
static void try_to_connect(struct tutti *t) {
        struct reconnect *r = t->reconnect;
        struct error err;
        CLEANUP_FD int socket = -1;
        uint64_t now = clock_now_ns();
        if (now < r->next_try_ns)
                return;
        int e = open_connect_now(r->path, &socket);
        if (e == 0 && open_check_server(socket, r->path, &err) != STATUS_OK) {
                give_up(t, err.detail);
                return;
        }
        if (e < 0 || !take_socket(t, socket)) {
                if (now >= r->give_up_ns)
                        give_up(t, e < 0 ? strerror(-e) : "");
                else
                        try_later(t, now);
                return;
        }
        prepare_greeting(r);
        timer_set(t, r->give_up_ns);
}

/* Under `sending` and `lock`. */
static void look_at_greeting(struct tutti *t) {
        struct reconnect *r = t->reconnect;
        if (!r->hello.is_ended) {
                if (clock_now_ns() >= r->give_up_ns)
                        give_up(t, "it has not answered");
                return;
        }
        if (r->hello.status != STATUS_OK) {
                give_up(t, r->hello.failure ? r->hello.failure->error.detail : "");
                return;
        }
        r->link = LINK_UP;
        if (r->timer >= 0) /* closing it alone would leave it there, were a forked child to hold it */
                epoll_ctl(t->epoll, EPOLL_CTL_DEL, r->timer, NULL);
        fd_close(&r->timer);
}

static void connect_instead(struct tutti *t) {
        uint64_t now = clock_now_ns();
        pthread_mutex_lock(&t->lock);
        if (!t->is_lost && t->reconnect->link == LINK_GREETING) {
                call_drop(t, &t->reconnect->hello);
                go_away(t, now);
                call_for_a_step(t, now);
        }
        pthread_mutex_unlock(&t->lock);
}

/* A socket that was handed over can be full of what was sent before, which nobody reads for a while: a new
 * one is better than waiting. Under `sending`. */
static bool send_hello(struct tutti *t, const struct resume_packet *packet) {
        int r = channel_send(t->socket, t->send_bytes, packet->n_bytes, &packet->fd, packet->fd >= 0);
        if (r == -EAGAIN) {
                connect_instead(t);
                return false;
        }
        if (r < 0) /* again, for there may be last words */
                send_bytes(t, packet->n_bytes, packet->fd);
        return r == 0;
}

/* Under `sending`. */
static void send_all(struct tutti *t) {
        struct resume_packet packet;
        for (;;) {
                pthread_mutex_lock(&t->lock);
                bool is_any =
                        !t->is_lost && t->reconnect->link != LINK_AWAY && resume_next_packet(t, &packet);
                pthread_mutex_unlock(&t->lock);
                if (!is_any)
                        return;
                if (!packet.is_hello)
                        send_bytes(t, packet.n_bytes, packet.fd);
                else if (!send_hello(t, &packet))
                        return;
        }
}

void reconnect_go_on(struct tutti *t) {
        struct reconnect *r = t->reconnect;
        if (!r || !atomic_load(&r->has_work))
                return;
        pthread_mutex_lock(&t->sending);
        pthread_mutex_lock(&t->lock);
        if (!t->is_lost && r->link == LINK_AWAY)
                try_to_connect(t);
        if (!t->is_lost && r->link == LINK_GREETING)
                look_at_greeting(t);
        r->has_resumed = false;
        atomic_store(&r->has_work, !t->is_lost && r->link != LINK_UP);
        bool is_there = !t->is_lost && r->link != LINK_AWAY;
        pthread_mutex_unlock(&t->lock);
        if (is_there)
                send_all(t);
        pthread_mutex_unlock(&t->sending);
}
