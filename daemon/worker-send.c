/* What is on its way to the process: memory first, then plans, as much as the socket takes. A packet that it
 * did not take waits in `out`; the next one is made when there is room. */
#include "worker-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include "base/log.h"

/* Also when the kernel has too many descriptors under way: they are taken out again by whoever reads. */
static bool is_full(int r) {
        return r == -EAGAIN || r == -ETOOMANYREFS || r == -ENOBUFS;
}

/* The first of the queue is sent, or will not be: the next begins anew. */
static void workers_begin_next(struct workers *w) {
        w->cursor = (struct worker_cursor){ 0 };
        w->n_imported = 0;
        w->is_last_part = false;
}

/* false: the socket is full, and this one is kept; or the process is gone. A task leaves the queue with its
 * last part, whatever is to be sent behind that: from now on it may have run. */
static bool workers_push(struct workers *w) {
        int r = channel_send(w->socket, w->out->bytes, w->n_out_bytes, &w->out_fd, w->out_fd >= 0);
        if (r == 0) {
                w->n_out_bytes = 0;
                if (!w->is_last_part)
                        return true;
                list_unlink(w->queue.next);
                workers_begin_next(w);
                return true;
        }
        if (is_full(r))
                workers_await_room(w, EPOLLIN | EPOLLOUT);
        else if (r != -EPIPE) /* an end is told by the nursery */
                workers_lose(w, "nothing can be sent to it: %s", strerror(-r));
        return false;
}

static bool workers_send(struct workers *w, int fd) {
        w->n_out_bytes = worker_packet_bytes(w->out);
        w->out_fd = fd;
        return workers_push(w);
}

/* --- memory --- */

static bool workers_send_held(struct workers *w, struct held *h) {
        int fd = -1;
        list_unlink(&h->link);
        list_append(&w->unanswered, &h->link);
        h->n_answers++;
        if (h->is_leaving) {
                h->is_release_sent = true;
                w->out->release =
                        (struct worker_release){ .head = { .verb = WORKER_RELEASE, .ticket = h->number },
                                .number = h->number };
        } else {
                h->is_sent = true;
                w->pinned_bytes += held_pinned_bytes(h);
                held_fill_import(h, &w->out->import, &fd);
        }
        return workers_send(w, fd);
}

static bool workers_send_memory(struct workers *w) {
        struct list *first;
        while ((first = w->outbox.next) != &w->outbox)
                if (!workers_send_held(w, list_entry(first, struct held, link)))
                        return false;
        return true;
}

/* --- tasks --- */

/* No process has begun it. */
static void workers_refuse_task(struct workers *w, struct task *t, enum status status, const char *why) {
        t->is_untouched = true;
        workers_finish_task(w, t, status, why);
}

void workers_finish_task(struct workers *w, struct task *t, enum status status, const char *why) {
        t->status = status;
        list_unlink(&t->launched_link);
        text_copy(t->why, sizeof(t->why), why);
        list_append(&w->done_tasks, &t->link);
        doorbell_ring(&w->bell);
}

/* A number that names this use of a seat; 0: memory is short. */
static uint64_t workers_seat(struct workers *w, struct task *t) {
        uint32_t i = 0;
        while (i < w->n_seats && w->seats[i].task)
                i++;
        if (i == w->n_seats) {
                uint32_t n = w->n_seats ? 2 * w->n_seats : 16;
                struct seat *seats = realloc(w->seats, n * sizeof(*seats));
                if (!seats)
                        return 0;
                memset(seats + w->n_seats, 0, (n - w->n_seats) * sizeof(*seats));
                w->seats = seats;
                w->n_seats = n;
        }
        w->seats[i].task = t;
        w->seats[i].use++;
        w->n_running++;
        return ((uint64_t)w->seats[i].use << 32) + i + 1;
}

static struct seat *workers_seat_of(struct workers *w, uint64_t ticket) {
        uint32_t i = (uint32_t)ticket;
        if (i == 0 || i > w->n_seats || w->seats[i - 1].use != ticket >> 32)
                return NULL;
        return &w->seats[i - 1];
}

struct task *workers_find_seat(struct workers *w, uint64_t ticket) {
        const struct seat *s = workers_seat_of(w, ticket);
        return s ? s->task : NULL;
}

struct task *workers_take_seat(struct workers *w, uint64_t ticket) {
        struct seat *s = workers_seat_of(w, ticket);
        struct task *t = s ? s->task : NULL;
        if (!t)
                return NULL;
        s->task = NULL;
        w->n_running--;
        return t;
}

/* Whatever of the plan's memory the process does not know yet goes before it. */
static bool workers_hold_all(struct workers *w, const struct task *t) {
        for (; w->n_imported < t->plan.n_operands; w->n_imported++) {
                struct memory *m = t->plan.operands[w->n_imported].memory;
                if (m && !workers_hold(w, m))
                        return false;
        }
        for (uint32_t i = 0; i < t->n_signals; i++)
                if (t->signals[i].page && !workers_hold(w, t->signals[i].page))
                        return false;
        return true;
}

bool workers_is_out(const struct task *t) {
        return list_is_empty(&t->link);
}

/* true: all of it has gone out. */
static bool workers_send_parts(struct workers *w, struct task *t) {
        const struct worker_parcel parcel = { .ticket = t->ticket,
                .group = t->group,
                .user = t->uid,
                .is_shared = w->is_shared,
                .limit_ns = t->limit_ns,
                .plan = &t->plan,
                .signals = t->signals,
                .n_signals = t->n_signals };
        while (!workers_is_out(t) && worker_next_part(&parcel, &w->cursor, w->out)) {
                w->is_last_part = worker_is_whole(&w->cursor);
                if (!workers_send(w, -1))
                        return false;
        }
        return true;
}

/* The first of the queue; false: it must wait. */
static bool workers_send_task(struct workers *w, struct task *t) {
        if (!w->cursor.has_head) {
                bool is_well = workers_hold_all(w, t);
                if (is_well && !workers_send_memory(w))
                        return false;
                t->ticket = is_well ? workers_seat(w, t) : 0;
                if (t->ticket == 0) {
                        list_unlink(&t->link);
                        workers_begin_next(w);
                        workers_refuse_task(w, t, STATUS_NO_MEMORY, "tuttid is short of memory");
                        return true;
                }
        }
        return workers_send_parts(w, t);
}

/* --- all of it --- */

static void workers_fill_settings(const struct workers *w) {
        w->out->settings = (struct worker_settings){ .head = { .verb = WORKER_SETTINGS },
                .takes_ipc = w->takes_ipc,
                .log_level = w->log_level,
                .confine = w->confine,
                .test_limit_ns = WORKER_TEST_NS,
                .hang_limit_ns = w->hang_limit_ns };
}

static bool workers_send_words(struct workers *w) {
        if (w->n_out_bytes && !workers_push(w))
                return false;
        if (w->needs_settings) {
                w->needs_settings = false;
                workers_fill_settings(w);
                if (!workers_send(w, -1))
                        return false;
        }
        if (w->needs_ping) {
                w->needs_ping = false;
                w->out->head = (struct worker_head){ .verb = WORKER_PING };
                return workers_send(w, -1);
        }
        return true;
}

void workers_flush(struct workers *w) {
        struct list *first;
        if (w->socket < 0 || !workers_send_words(w) || w->state != WORKER_SERVING || !workers_send_memory(w))
                return;
        while (w->state == WORKER_SERVING && (first = w->queue.next) != &w->queue)
                if (!workers_send_task(w, list_entry(first, struct task, link)))
                        return;
        if (w->socket >= 0)
                workers_await_room(w, EPOLLIN);
}

void workers_start(struct workers *w, struct task *t) {
        w->n_open++;
        list_init(&t->launched_link);
        t->started_ns = t->done_ns = t->blocked_ns = t->ticket = 0;
        t->culprit_session = t->culprit_buffer = 0;
        t->is_untouched = false;
        t->why[0] = '\0';
        if (w->state == WORKER_IS_OFF) {
                workers_refuse_task(w, t, STATUS_DEVICE_LOST, w->why);
                return;
        }
        list_append(&w->queue, &t->link);
        workers_flush(w);
}

struct task *workers_take_launched_task(struct workers *w) {
        struct list *first = list_take_first(&w->launched_tasks);
        return first ? list_entry(first, struct task, launched_link) : NULL;
}

struct task *workers_take_done_task(struct workers *w) {
        struct list *first = list_take_first(&w->done_tasks);
        if (!first)
                return NULL;
        w->n_open--;
        return list_entry(first, struct task, link);
}

/* Whose plan it was learns that; the others, who may be another user's, hear no more than on which devices.
 */
static void workers_lose_task(struct workers *w, struct task *t, const char *why) {
        char text[WORKER_TEXT_BYTES];
        const struct plan *p = &t->plan;
        if (t->ticket != w->culprit) {
                workers_finish_task(w, t, STATUS_DEVICE_LOST, why);
                return;
        }
        snprintf(text, sizeof(text), "its plan (%s, %u step%s, %llu bytes) did not end: %s", p->algorithm,
                p->n_steps, p->n_steps == 1 ? "" : "s", (unsigned long long)p->moved_bytes, why);
        log_warning("it was a collective of %s, %u step%s, %llu bytes", p->algorithm, p->n_steps,
                p->n_steps == 1 ? "" : "s", (unsigned long long)p->moved_bytes);
        workers_finish_task(w, t, STATUS_DEVICE_LOST, text);
}

/* One that is on its way has its seat already, and waits on in the queue: nothing of it has run. */
void workers_lose_tasks(struct workers *w, const char *why) {
        for (uint32_t i = 0; i < w->n_seats; i++) {
                struct task *t = w->seats[i].task;
                if (!t)
                        continue;
                w->seats[i].task = NULL;
                w->n_running--;
                if (list_is_empty(&t->link))
                        workers_lose_task(w, t, why);
                t->ticket = 0;
        }
        workers_begin_next(w);
}

void workers_refuse_tasks(struct workers *w, const char *why) {
        struct list *first;
        workers_begin_next(w);
        while ((first = list_take_first(&w->queue)))
                workers_refuse_task(w, list_entry(first, struct task, link), STATUS_DEVICE_LOST, why);
}
