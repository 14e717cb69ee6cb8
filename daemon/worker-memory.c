/* What the process has of memory, and shall have: imported on demand, imported again into the next process,
 * let go.
 *
 *   outbox --sent--> unanswered --answer--> there --RELEASE--> outbox --sent--> unanswered --answer--> gone
 *      ^                                      |
 *      +--------- the process is lost --------+   (what was being let go is gone with it) */
#include "worker-internal.h"

#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"

struct held *workers_find_held(const struct workers *w, uint64_t number) {
        struct held *h;
        HASH_FIND(hh, w->helds, &number, sizeof(number), h);
        return h;
}

static struct held *held_new(struct workers *w) {
        struct held *h = calloc(1, sizeof(*h));
        bool is_in = true;
        if (!h)
                return NULL;
        list_init(&h->link);
        h->number = ++w->last_number;
        h->fd = -1;
        TABLE_ADD(w->helds, h, number, is_in);
        if (is_in)
                return h;
        free(h);
        return NULL;
}

static void held_drop(struct workers *w, struct held *h) {
        if (h->is_host && h->memory)
                h->memory->remote = 0;
        w->n_failed -= h->has_failed;
        list_unlink(&h->link);
        HASH_DEL(w->helds, h);
        free(h);
}

uint64_t held_pinned_bytes(const struct held *h) {
        return h->is_host ? h->n_bytes : 0;
}

void workers_finish_chore(struct workers *w, struct chore *c, enum status status, const char *why) {
        c->status = status;
        text_copy(c->why, sizeof(c->why), why);
        list_append(&w->done_chores, &c->link);
        doorbell_ring(&w->bell);
}

/* --- coming --- */

/* What is sent of it, now and to the next process; it may be gone by then. */
static void held_describe(struct held *h, struct memory *m) {
        h->memory = m;
        h->fd = m->fd;
        h->access = m->access;
        h->path = m->path;
        h->device = m->device;
        h->session = m->session;
        h->buffer = m->buffer;
        h->n_bytes = m->n_bytes;
}

bool workers_hold(struct workers *w, struct memory *m) {
        struct held *h = m->remote && w->n_failed > 0 ? workers_find_held(w, m->remote) : NULL;
        if (h && h->has_failed)
                held_drop(w, h);
        if (m->remote)
                return true;
        h = held_new(w);
        if (!h)
                return false;
        h->is_host = true;
        held_describe(h, m);
        m->remote = h->number;
        list_append(&w->outbox, &h->link);
        return true;
}

/* Device memory: what stands for it here is made now, and the chore's when the process has it. */
static struct held *held_of_device(struct workers *w, struct chore *c) {
        CLEANUP_FREE struct memory *m = calloc(1, sizeof(*m));
        struct held *h = m ? held_new(w) : NULL;
        if (!h)
                return NULL;
        *m = (struct memory){ .session = c->session,
                .buffer = c->buffer,
                .n_bytes = c->n_bytes,
                .path = c->path,
                .device = c->device,
                .remote = h->number,
                .fd = c->fd,
                .access = c->access };
        held_describe(h, take_pointer(m));
        h->handle_offset_bytes = c->handle_offset_bytes;
        memcpy(h->handle, c->handle, sizeof(h->handle));
        return h;
}

static void workers_import(struct workers *w, struct chore *c) {
        c->memory = NULL;
        if (w->state == WORKER_IS_OFF) {
                workers_finish_chore(w, c, STATUS_DEVICE_LOST, w->why);
                return;
        }
        struct held *h = held_of_device(w, c);
        if (!h) {
                workers_finish_chore(w, c, STATUS_NO_MEMORY, "tuttid is short of memory");
                return;
        }
        h->chore = c;
        list_append(&w->outbox, &h->link);
        workers_flush(w);
}

void held_fill_import(const struct held *h, struct worker_import *ret, int *ret_fd) {
        *ret = (struct worker_import){
                .head = { .verb = WORKER_IMPORT, .n_fds = h->fd >= 0, .ticket = h->number },
                .number = h->number,
                .session = h->session,
                .buffer = h->buffer,
                .n_bytes = h->n_bytes,
                .handle_offset_bytes = h->handle_offset_bytes,
                .path = h->path,
                .access = h->access,
                .device = h->device
        };
        memcpy(ret->handle, h->handle, sizeof(ret->handle));
        *ret_fd = h->fd;
}

/* --- going --- */

/* Nothing of it is left there: host memory goes back to who had it, device memory is gone. */
static void held_gone(struct workers *w, struct held *h) {
        struct chore *c = h->chore;
        bool is_host = h->is_host;
        if (!is_host) {
                free(h->memory);
                h->memory = NULL;
        }
        held_drop(w, h);
        if (!c)
                return;
        if (!is_host)
                c->memory = NULL;
        workers_finish_chore(w, c, STATUS_OK, "");
}

/* Said now, or known by the end of the process. */
static void held_leave(struct workers *w, struct held *h) {
        h->is_leaving = true;
        list_unlink(&h->link);
        if (!h->is_sent) {
                held_gone(w, h);
                return;
        }
        list_append(&w->outbox, &h->link);
        workers_flush(w);
}

static void workers_release(struct workers *w, struct chore *c) {
        struct held *h = c->memory ? workers_find_held(w, c->memory->remote) : NULL;
        if (!h) { /* of an import that failed */
                workers_finish_chore(w, c, STATUS_OK, "");
                return;
        }
        h->chore = c;
        held_leave(w, h);
}

void workers_forget(struct workers *w, struct memory *m) {
        struct held *h = m->remote ? workers_find_held(w, m->remote) : NULL;
        m->remote = 0;
        if (!h)
                return;
        h->memory = NULL;
        held_leave(w, h);
}

bool workers_want(const struct chore *c) {
        switch (c->kind) {
        case CHORE_IMPORT:
        case CHORE_MAKE: return c->path != PATH_MEMFD;
        case CHORE_RELEASE:
        case CHORE_UNMAKE: return c->memory && c->memory->remote != 0;
        case CHORE_CLOSE:
        case CHORE_THINK: break;
        }
        return false;
}

void workers_do(struct workers *w, struct chore *c) {
        w->n_open++;
        if (c->kind == CHORE_IMPORT || c->kind == CHORE_MAKE)
                workers_import(w, c);
        else
                workers_release(w, c);
}

struct chore *workers_take_done_chore(struct workers *w) {
        struct list *first = list_take_first(&w->done_chores);
        if (!first)
                return NULL;
        w->n_open--;
        return list_entry(first, struct chore, link);
}

/* --- answers --- */

static void held_came(struct workers *w, struct held *h, const struct worker_chore_done *a, int *fd) {
        struct chore *c = h->chore;
        h->was_there = true;
        h->chore = NULL;
        if (!c)
                return;
        if (h->path == PATH_VMM_MADE && h->fd < 0) {
                c->fd = h->fd = h->memory->fd = fd_take(fd);
                c->n_bytes = a->n_bytes;
        }
        c->memory = h->memory;
        workers_finish_chore(w, c, STATUS_OK, "");
}

/* Host memory is tried again by the next plan that names it. Until that begins it keeps its number: a plan
 * may be on its way of which the head has gone, and its operands must not name nothing. */
static void held_failed(struct workers *w, struct held *h, const struct worker_chore_done *a) {
        struct chore *c = h->chore;
        if (!c) {
                log_warning("buffer %llu cannot be brought into tuttid-gpu: %s",
                        (unsigned long long)h->buffer, a->why);
                h->is_bad = !h->is_host;
                h->has_failed = h->is_host;
                w->n_failed += h->is_host;
                return;
        }
        h->chore = NULL;
        free(h->memory);
        h->memory = NULL;
        held_drop(w, h);
        workers_finish_chore(w, c, (enum status)a->status, a->why);
}

void workers_answer(struct workers *w, const struct worker_chore_done *a, int *fd) {
        struct held *h = workers_find_held(w, a->number);
        if (!h || h->n_answers == 0) {
                workers_lose(w, "it answered what nobody had asked");
                return;
        }
        bool is_import = !h->is_release_sent || h->n_answers == 2;
        h->n_answers--;
        if (is_import)
                w->pinned_bytes -= held_pinned_bytes(h);
        if (h->is_leaving && h->is_release_sent && h->n_answers == 0) {
                held_gone(w, h);
        } else if (!h->is_leaving) {
                list_unlink(&h->link);
                if (a->status == STATUS_OK)
                        held_came(w, h, a, fd);
                else
                        held_failed(w, h, a);
        }
}

/* --- the process is gone --- */

static void held_lost(struct workers *w, struct held *h) {
        struct chore *c = h->chore;
        bool was_sent = h->is_sent;
        h->is_sent = h->is_release_sent = false;
        h->n_answers = 0;
        if (h->is_leaving) {
                held_gone(w, h);
                return;
        }
        if (was_sent && c) { /* it may be what the process died of */
                h->chore = NULL;
                free(h->memory);
                h->memory = NULL;
                held_drop(w, h);
                workers_finish_chore(w, c, STATUS_DEVICE_LOST,
                        "tuttid-gpu ended while it imported this memory; register it again");
                return;
        }
        if (h->has_failed) {
                held_drop(w, h);
                return;
        }
        list_unlink(&h->link);
        if (!h->is_bad && w->state != WORKER_IS_OFF)
                list_append(&w->outbox, &h->link);
}

/* What was coming in again when it ended is not tried a second time: it may be what it ended of. */
static void workers_suspect(struct workers *w) {
        list_for_each (it, &w->unanswered) {
                struct held *h = list_entry(it, struct held, link);
                if (h->is_leaving || h->chore)
                        continue;
                if (h->was_there && !h->is_host)
                        h->is_bad = true;
                return;
        }
}

void workers_lose_memory(struct workers *w) {
        struct held *h, *next;
        workers_suspect(w);
        w->pinned_bytes = 0;
        HASH_ITER (hh, w->helds, h, next)
                held_lost(w, h);
}

void workers_refuse_memory(struct workers *w) {
        struct held *h, *next;
        HASH_ITER (hh, w->helds, h, next) {
                struct chore *c = h->chore;
                if (!c || h->is_sent)
                        continue;
                if (h->is_leaving) {
                        held_gone(w, h);
                        continue;
                }
                free(h->memory);
                h->memory = NULL;
                held_drop(w, h);
                workers_finish_chore(w, c, STATUS_DEVICE_LOST, w->why);
        }
}
