#include "lib/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fd.h"
#include "lib/group.h"
#include "lib/order.h"
#include "lib/reconnect.h"
#include "lib/work.h"
#include "wire/codec.h"

/* --- birth and end --- */

#define WINDOW_BYTES (WINDOW_ENTRIES * sizeof(struct entry))
#define MEMORY_BYTES (2 * (size_t)CODEC_ARENA_BYTES + 2 * (size_t)MAX_PACKET_BYTES + WINDOW_BYTES)

/* Everything that sending and receiving need, at once; only what is used becomes resident. */
static int take_memory(struct tutti *t) {
        uint8_t *m = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m == MAP_FAILED)
                return -errno;
        t->memory = m;
        arena_init(&t->scratch, m, CODEC_ARENA_BYTES);
        arena_init(&t->decoding, m += CODEC_ARENA_BYTES, CODEC_ARENA_BYTES);
        t->send_bytes = m += CODEC_ARENA_BYTES;
        t->receive_bytes = m += MAX_PACKET_BYTES;
        t->window = (struct entry *)(void *)(m + MAX_PACKET_BYTES);
        return 0;
}

static int watch(struct tutti *t, int fd) {
        struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
        return epoll_ctl(t->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int open_descriptors(struct tutti *t) {
        t->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        t->epoll = t->event < 0 ? -1 : epoll_create1(EPOLL_CLOEXEC);
        if (t->epoll < 0)
                return -errno;
        int r = watch(t, t->socket);
        return r < 0 ? r : watch(t, t->event);
}

static void init_lists(struct tutti *t) {
        struct list *const lists[] = { &t->others, &t->waiters, &t->groups, &t->buffers, &t->regions,
                &t->dead_regions, &t->registrations, &t->objects, &t->works, &t->spare_works,
                &t->spare_pieces };
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                list_init(lists[i]);
        pthread_mutex_init(&t->growing, NULL);
        pthread_mutex_init(&t->sending, NULL);
        pthread_mutex_init(&t->lock, NULL);
}

static enum status cannot_open(int r, struct error *err) {
        bool is_limit = r == -EMFILE || r == -ENFILE;
        enum status status = is_limit ? STATUS_LIMIT : r == -ENOMEM ? STATUS_NO_MEMORY : STATUS_INTERNAL;
        return refuse(err, status, is_limit ? FIELD_DESCRIPTOR : FIELD_UNSPECIFIED,
                "a connection needs three descriptors and some memory: %s", strerror(-r));
}

enum status connection_new(int socket, struct tutti **ret, struct error *err) {
        struct tutti *t = calloc(1, sizeof(*t));
        if (!t) {
                fd_close(&socket);
                return cannot_open(-ENOMEM, err);
        }
        t->socket = socket;
        t->event = t->news = t->epoll = -1;
        t->next_request = t->next_region = 1;
        init_lists(t);
        lane_init(t);
        int r = fork_guard_new(&t->guard);
        if (r == 0)
                r = take_memory(t);
        if (r == 0)
                r = open_descriptors(t);
        if (r < 0) {
                connection_free(t);
                return cannot_open(r, err);
        }
        *ret = t;
        return STATUS_OK;
}

void connection_drop_page(struct tutti *t) {
        if (t->page && !fork_guard_is_child(t->guard)) /* a child does not have it */
                munmap((void *)(uintptr_t)t->page, t->board ? STATUS_MEMFD_BYTES : STATUS_PAGE_BYTES);
        t->page = NULL;
        t->board = NULL;
}

void connection_free(struct tutti *t) {
        reconnect_free(t);
        fd_close(&t->epoll);
        fd_close(&t->event);
        fd_close(&t->news);
        fd_close(&t->socket);
        lane_free(t);
        connection_drop_page(t);
        if (t->memory)
                munmap(t->memory, MEMORY_BYTES);
        failure_unref(t->lost);
        failure_unref(t->last_words);
        fork_guard_free(t->guard);
        pthread_mutex_destroy(&t->growing);
        pthread_mutex_destroy(&t->sending);
        pthread_mutex_destroy(&t->lock);
        free(t);
}

enum tutti_status connection_check(struct tutti *t) {
        if (fork_guard_is_child(t->guard))
                return thread_say_forked();
        pthread_mutex_lock(&t->lock);
        bool is_lost = t->is_lost;
        struct failure *lost = failure_ref(t->lost);
        pthread_mutex_unlock(&t->lock);
        return is_lost ? thread_fail_with(STATUS_DAEMON_LOST, lost) : TUTTI_OK;
}

/* --- calls --- */

void call_init(struct call *call, enum call_type type) {
        *call = (struct call){ .type = type };
        list_init(&call->node);
}

void call_drop(struct tutti *t, struct call *call) {
        struct call **slot = &t->slots[call->request % STATUS_PAGE_SLOTS];
        if (*slot == call) {
                *slot = NULL;
                t->n_slots_used--;
        }
        list_unlink(&call->node);
}

void call_deinit(struct call *call) {
        failure_unref(take_pointer(call->failure));
}

enum tutti_status call_take_failure(struct call *call) {
        if (call->status == STATUS_OK)
                return TUTTI_OK;
        return thread_fail_with(call->status, take_pointer(call->failure));
}

static void wake(struct tutti *t, const struct call *call) {
        static const uint64_t one = 1;
        list_for_each (it, &t->waiters) {
                struct waiter *w = list_entry(it, struct waiter, node);
                if (w->call != call)
                        continue;
                /* A full counter wakes as well as a written one. */
                if (w == t->leader)
                        (void)!write(t->event, &one, sizeof(one));
                else
                        pthread_cond_signal(&w->woken);
        }
}

static void ring_news(const struct tutti *t) {
        static const uint64_t one = 1;
        if (t->has_news && t->news >= 0)
                (void)!write(t->news, &one, sizeof(one));
}

bool connection_open_news(struct tutti *t) {
        if (t->news >= 0)
                return true;
        t->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (t->news >= 0 && watch(t, t->news) < 0)
                fd_close(&t->news);
        ring_news(t);
        return t->news >= 0;
}

/* Rung once until the next tutti_dispatch. */
static void note_news(struct tutti *t) {
        if (t->is_dispatching || t->has_news)
                return;
        t->has_news = true;
        ring_news(t);
}

void call_launched(struct tutti *t, struct call *call) {
        call->is_launched = true;
        wake(t, call);
}

void call_end(struct tutti *t, struct call *call, enum status status, struct failure *f) {
        call_drop(t, call);
        call->is_ended = true;
        call->status = status;
        call->failure = f;
        wake(t, call);
        call->ended_in = t->reconnect ? t->reconnect->n_ends : 0;
        if (call->type == CALL_WORK) {
                note_news(t);
                work_end(t, call);
        }
        if (call->type == CALL_JOIN && call->group && status == STATUS_OK)
                group_begin_epoch(call->group, &call->joined);
        reconnect_call_ended(t, call);
}

void call_cancel_waits(struct tutti *t, struct call *call) {
        call->n_cancels++;
        wake(t, call);
}

/* --- losing the connection --- */

static void end_all(struct tutti *t, enum status status, struct failure *f) {
        for (size_t i = 0; i < ARRAY_SIZE(t->slots); i++)
                if (t->slots[i])
                        call_end(t, t->slots[i], status, failure_ref(f));
        while (!list_is_empty(&t->others))
                call_end(t, list_entry(t->others.next, struct call, node), status, failure_ref(f));
}

/* Only an end without a word is one of tuttid's own: what it has ejected it would eject again. */
void connection_lose(struct tutti *t, const char *because) {
        if (t->is_lost)
                return;
        if (!t->last_words && because[0] == '\0' && reconnect_begin(t, &because))
                return;
        connection_give_up(t, because);
}

/* What was under way hears why tuttid closed, if it said so; later calls hear that it is gone. */
void connection_give_up(struct tutti *t, const char *because) {
        struct error e;
        if (t->is_lost)
                return;
        const struct error *words = t->last_words ? &t->last_words->error : NULL;
        if (words)
                refuse(&e, STATUS_DAEMON_LOST, FIELD_UNSPECIFIED, "It has ejected this process: %s, %s",
                        status_name(words->status), words->detail);
        else
                refuse(&e, STATUS_DAEMON_LOST, FIELD_UNSPECIFIED, "%s", because);
        e.loss = words ? LOSS_EJECTED : LOSS_UNSPECIFIED;
        /* Where it was us who gave up, tuttid and the peers shall know. */
        shutdown(t->socket, SHUT_RDWR);
        t->is_lost = true;
        t->lost = failure_new(&e);
        order_let_go(t);
        lane_let_go(t);
        if (words)
                end_all(t, words->status, t->last_words);
        else
                end_all(t, STATUS_DAEMON_LOST, t->lost);
}
