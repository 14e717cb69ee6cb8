/* The life of the process: started, tested, served, lost, started anew. Callbacks of libuv only ring the
 * bell; a turn reads what there is, with the time as an argument. */
#include "worker-internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"

#define NOT_STARTED "it has not been started yet"

static void workers_on_events(uv_poll_t *handle, int status, int events) {
        (void)status;
        (void)events;
        struct workers *w = handle->data;
        w->is_rung = true;
        doorbell_ring(&w->bell);
}

void workers_enter(struct workers *w, enum worker_state state) {
        w->state = state;
        w->at_ns = w->heard_ns = w->now_ns;
        w->is_asked = false;
}

bool workers_is_busy(const struct workers *w) {
        return w->n_running > 0 || !list_is_empty(&w->unanswered);
}

void workers_await_room(struct workers *w, uint32_t events) {
        struct epoll_event e = { .events = events };
        if (w->awaits_room == (events != EPOLLIN))
                return;
        w->awaits_room = events != EPOLLIN;
        CHECK(epoll_ctl(w->events, EPOLL_CTL_MOD, w->socket, &e) == 0);
}

/* --- starting --- */

static void workers_spawn(struct workers *w) {
        int r = nursery_spawn(w->nursery);
        workers_enter(w, WORKER_STARTING);
        if (r < 0)
                workers_lose(w, "it cannot be started: %s", strerror(-r));
}

static void workers_meet(struct workers *w, const struct nursery_news *news) {
        struct epoll_event e = { .events = EPOLLIN };
        w->socket = news->socket;
        w->pid = w->last_pid = news->pid;
        w->awaits_room = false;
        if (w->state != WORKER_STARTING || epoll_ctl(w->events, EPOLL_CTL_ADD, w->socket, &e) < 0)
                workers_lose(w, "it came when it was not wanted");
}

/* --- losing --- */

static void workers_hang_up(struct workers *w) {
        if (w->pid) {
                nursery_kill(w->nursery, w->pid);
                w->is_burying = true;
        }
        fd_close(&w->socket); /* which takes it out of the epoll too */
        w->pid = 0;
        w->eof_ns = WORKER_NEVER;
        w->n_out_bytes = 0;
        w->needs_settings = w->needs_ping = w->is_busy = false;
}

void workers_await_end(struct workers *w) {
        fd_close(&w->socket);
        w->eof_ns = w->now_ns;
        w->n_out_bytes = 0;
}

void workers_give_up(struct workers *w, const char *why) {
        workers_hang_up(w);
        text_copy(w->why, sizeof(w->why), why);
        workers_enter(w, WORKER_IS_OFF);
        w->lost_ns = WORKER_NEVER;
        if (w->nursery)
                nursery_dismiss(w->nursery);
        workers_lose_tasks(w, why);
        workers_lose_memory(w);
        workers_refuse_memory(w);
        workers_refuse_tasks(w, why);
}

static uint64_t pause_ns(uint32_t n_fails) {
        uint32_t doublings = n_fails - 1 < WORKER_MAX_PAUSES ? n_fails - 1 : WORKER_MAX_PAUSES - 1;
        return n_fails ? WORKER_PAUSE_NS << doublings : 0;
}

void workers_lose(struct workers *w, const char *format, ...) {
        char why[WORKER_TEXT_BYTES - 64];
        va_list args;
        va_start(args, format);
        vsnprintf(why, sizeof(why), format, args);
        va_end(args);
        bool was_steady = w->state == WORKER_SERVING && w->now_ns - w->at_ns >= WORKER_STEADY_NS;
        bool has_served = w->state == WORKER_SERVING;
        w->n_fails = was_steady ? 0 : w->n_fails + 1;
        log_about(LOG_LEVEL_WARNING, LOG_PID((uint32_t)w->last_pid), "tuttid-gpu (pid %d) is lost: %s",
                (int)w->last_pid, why);
        if (!has_served && w->n_fails >= WORKER_MAX_STARTS) {
                snprintf(w->why, sizeof(w->why), "tuttid-gpu was started %u times in vain: %s", w->n_fails,
                        why);
                char text[WORKER_TEXT_BYTES];
                text_copy(text, sizeof(text), w->why);
                workers_give_up(w, text);
                return;
        }
        workers_hang_up(w);
        if (w->lost_ns == WORKER_NEVER)
                w->lost_ns = w->now_ns;
        snprintf(w->why, sizeof(w->why), "tuttid-gpu is being started anew: %s", why);
        workers_enter(w, WORKER_WAITING);
        w->start_ns = w->now_ns + pause_ns(w->n_fails - (w->n_fails && has_served));
        workers_lose_tasks(w, why);
        workers_lose_memory(w);
}

/* --- news of the nursery --- */

static void describe_end(const struct nursery_news *news, char *buf, size_t size) {
        if (WIFSIGNALED(news->status))
                snprintf(buf, size, "it was ended by signal %d (%s)", WTERMSIG(news->status),
                        strsignal(WTERMSIG(news->status)));
        else if (WEXITSTATUS(news->status) == 127)
                snprintf(buf, size, "the program cannot be executed");
        else
                snprintf(buf, size, "it has ended with exit code %d", WEXITSTATUS(news->status));
}

static void workers_hear(struct workers *w, struct nursery_news *news) {
        char why[128];
        if (news->socket >= 0 && w->socket < 0) {
                workers_meet(w, news);
        } else if (news->has_ended && news->pid == w->pid) {
                while (w->socket >= 0 && workers_read(w)) /* its last words may say more */
                        ;
                if (w->pid != news->pid)
                        return;
                w->pid = 0;
                describe_end(news, why, sizeof(why));
                workers_lose(w, "%s", why);
        } else if (news->has_ended) {
                w->is_burying = false;
        } else {
                fd_close(&news->socket);
                workers_lose(w, "it cannot be started: %s", strerror(news->error));
        }
}

/* Nobody is to be started any more: what the nursery still says, until it ends too. */
static void workers_ignore_news(struct workers *w) {
        struct nursery_news news;
        int r = -EAGAIN;
        while (w->has_news && (r = nursery_take(w->nursery, &news)) > 0)
                fd_close(&news.socket);
        if (w->has_news && r != -EAGAIN)
                uv_poll_stop(&w->news);
}

static void workers_pull_news(struct workers *w) {
        struct nursery_news news;
        int r = -EAGAIN;
        while (w->state != WORKER_IS_OFF && (r = nursery_take(w->nursery, &news)) > 0)
                workers_hear(w, &news);
        if (w->state == WORKER_IS_OFF)
                workers_ignore_news(w);
        else if (r != -EAGAIN)
                workers_give_up(w, "the process that starts tuttid-gpu has ended; restart tuttid");
}

/* --- time --- */

/* Of silence that it may keep: what it pins keeps its one thread. */
static uint64_t hang_ns(const struct workers *w) {
        return WORKER_HANG_NS + (w->pinned_bytes >> 30) * WORKER_NS_PER_GIB;
}

static void workers_check_life(struct workers *w) {
        if (!workers_is_busy(w) || w->state != WORKER_SERVING) {
                w->is_busy = false;
                return;
        }
        if (!w->is_busy)
                workers_note_life(w);
        w->is_busy = true;
        if (w->now_ns - w->heard_ns >= hang_ns(w))
                workers_lose(w, "it has given no sign of life for %llu s; it was killed",
                        (unsigned long long)(hang_ns(w) / NS_PER_S));
        else if (!w->is_asked && w->now_ns - w->heard_ns >= WORKER_ASK_NS)
                w->is_asked = w->needs_ping = true;
}

static void workers_check_time(struct workers *w) {
        if (w->state == WORKER_WAITING && w->now_ns >= w->start_ns &&
                (!w->is_burying || w->now_ns >= w->at_ns + WORKER_BURY_NS)) {
                w->is_burying = false;
                w->n_restarts++;
                workers_spawn(w);
        }
        if (w->eof_ns != WORKER_NEVER && w->now_ns - w->eof_ns >= WORKER_BURY_NS)
                workers_lose(w, "it has closed its socket");
        if ((w->state == WORKER_STARTING || w->state == WORKER_TESTING) &&
                w->now_ns - w->at_ns >= WORKER_START_NS)
                workers_lose(w, "its self-test has not ended in %llu s; it was killed",
                        (unsigned long long)(WORKER_START_NS / NS_PER_S));
        if (w->lost_ns != WORKER_NEVER && w->now_ns - w->lost_ns >= WORKER_QUEUE_NS) {
                workers_refuse_memory(w);
                workers_refuse_tasks(w, w->why);
        }
        workers_check_life(w);
}

void workers_note_life(struct workers *w) {
        w->heard_ns = w->now_ns;
        w->is_asked = w->needs_ping = false;
}

void workers_turn(struct workers *w, uint64_t now_ns) {
        w->now_ns = now_ns;
        if (w->is_rung) {
                w->is_rung = false; /* what is left rings again */
                workers_pull_news(w);
                while (w->socket >= 0 && workers_read(w))
                        ;
        }
        if (w->state == WORKER_IS_OFF)
                return;
        workers_check_time(w);
        workers_flush(w);
}

static uint64_t sooner(uint64_t a, uint64_t b) {
        return a < b ? a : b;
}

static bool workers_has_queue(const struct workers *w) {
        return !list_is_empty(&w->queue) || !list_is_empty(&w->outbox);
}

uint64_t workers_next_ns(const struct workers *w) {
        uint64_t next = WORKER_NEVER;
        switch (w->state) {
        case WORKER_IS_OFF: return WORKER_NEVER;
        case WORKER_WAITING:
                next = w->is_burying ? w->at_ns + WORKER_BURY_NS : w->start_ns;
                if (next < w->start_ns)
                        next = w->start_ns;
                break;
        case WORKER_STARTING:
        case WORKER_TESTING: next = w->at_ns + WORKER_START_NS; break;
        case WORKER_SERVING:
                if (workers_is_busy(w))
                        next = (w->is_busy ? w->heard_ns : w->now_ns) +
                               (w->is_asked ? hang_ns(w) : WORKER_ASK_NS);
                break;
        }
        if (w->eof_ns != WORKER_NEVER)
                next = sooner(next, w->eof_ns + WORKER_BURY_NS);
        if (w->lost_ns != WORKER_NEVER && workers_has_queue(w))
                next = sooner(next, w->lost_ns + WORKER_QUEUE_NS);
        return next;
}

/* --- building and ending --- */

static int workers_open_events(struct workers *w, uv_loop_t *loop) {
        struct epoll_event e = { .events = EPOLLIN };
        w->events = epoll_create1(EPOLL_CLOEXEC);
        if (w->events < 0 || epoll_ctl(w->events, EPOLL_CTL_ADD, nursery_socket(w->nursery), &e) < 0)
                return -errno;
        int r = uv_poll_init(loop, &w->news, w->events);
        if (r < 0)
                return r;
        w->has_news = true;
        w->news.data = w;
        return uv_poll_start(&w->news, UV_READABLE, workers_on_events);
}

static void workers_init(struct workers *w, const struct workers_setting *setting) {
        w->bell = setting->bell;
        w->nursery = setting->nursery;
        w->takes_ipc = setting->takes_ipc;
        w->log_level = setting->log_level;
        w->confine = setting->confine;
        w->hang_limit_ns = setting->hang_limit_ns;
        w->now_ns = setting->now_ns;
        w->socket = w->events = -1;
        w->lost_ns = w->eof_ns = WORKER_NEVER;
        list_init(&w->outbox);
        list_init(&w->unanswered);
        list_init(&w->queue);
        list_init(&w->launched_tasks);
        list_init(&w->done_tasks);
        list_init(&w->done_chores);
        text_copy(w->why, sizeof(w->why), setting->nursery ? NOT_STARTED : setting->why);
}

int workers_new(struct workers **ret, uv_loop_t *loop, const struct workers_setting *setting) {
        struct workers *w = calloc(1, sizeof(*w));
        if (!w) {
                nursery_free(setting->nursery);
                return -ENOMEM;
        }
        workers_init(w, setting);
        w->in = malloc(sizeof(*w->in));
        w->out = malloc(sizeof(*w->out));
        int r = w->in && w->out ? 0 : -ENOMEM;
        if (r == 0 && w->nursery)
                r = workers_open_events(w, loop);
        if (r < 0) {
                workers_stop(w);
                uv_run(loop, UV_RUN_NOWAIT);
                workers_free(w);
                return r;
        }
        if (w->nursery)
                workers_spawn(w);
        *ret = w;
        return 0;
}

void workers_stop(struct workers *w) {
        workers_give_up(w, "tuttid is ending");
        if (w->has_news)
                uv_close((uv_handle_t *)&w->news, NULL);
        w->has_news = false;
        nursery_free(take_pointer(w->nursery));
}

void workers_free(struct workers *w) {
        if (!w)
                return;
        CHECK(!w->helds);
        fd_close(&w->events);
        free(w->seats);
        free(w->in);
        free(w->out);
        free(w);
}

void workers_set_shared(struct workers *w, bool is_shared) {
        w->is_shared = is_shared;
}

/* --- what there is --- */

uint32_t workers_n_devices(const struct workers *w) {
        return w->n_devices;
}

const struct gpu_device *workers_device(const struct workers *w, uint32_t k) {
        CHECK(k < w->n_devices);
        return &w->devices[k];
}

struct engine_device_stats workers_device_stats(const struct workers *w, uint32_t k) {
        CHECK(k < w->n_devices);
        return w->stats[k];
}

uint32_t workers_find(const struct workers *w, const char *name) {
        uint32_t device = device_parse(name);
        if (device != DEVICE_UNKNOWN && device >= DEVICE_GPU && device - DEVICE_GPU < w->n_devices)
                return device;
        for (uint32_t k = 0; k < w->n_devices; k++)
                if (strcasecmp(w->devices[k].uuid, name) == 0)
                        return DEVICE_GPU + k;
        return DEVICE_UNKNOWN;
}

bool workers_is_starting(const struct workers *w) {
        return !w->has_served && w->state != WORKER_IS_OFF;
}

const char *workers_why_off(const struct workers *w) {
        return w->state == WORKER_SERVING ? "" : w->why;
}

uint32_t workers_n_restarts(const struct workers *w) {
        return w->n_restarts;
}

const struct gpu_fallback *workers_fallback(const struct workers *w, uint32_t i) {
        return i < w->n_fallbacks ? &w->fallbacks[i] : NULL;
}

bool workers_take_ipc(const struct workers *w) {
        return w->takes_ipc;
}

uint32_t workers_n_open(const struct workers *w) {
        return w->n_open;
}
