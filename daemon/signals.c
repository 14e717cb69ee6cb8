/* What is to be written is gathered in `due` by the loop thread and handed to the memory thread as a whole in
 * `batch`, one chore at a time, so that telling a thousand halves takes no memory and no queue. The chore is
 * embedded for the same reason. */
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/memfd.h"
#include "base/table.h"

#define PAGE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

struct signal_page {
        struct chore chore; /* first: a chore that comes back is its page */
        struct memory memory;
        uint64_t session, request;
        struct signal_slot *slots; /* touched by chores alone */
        bool is_out;               /* the chore is */
        bool is_ready, is_doomed;
        enum stream_order order;
        uint32_t n_uses;
        struct charge descriptors, bytes;
        bool is_due;                  /* anything in: */
        uint64_t due[SIGNAL_SLOTS];   /* by slot; 0: nothing */
        uint64_t batch[SIGNAL_SLOTS]; /* the chore's */
        UT_hash_handle hh;
};

struct signals {
        struct quotas *quotas;
        struct signal_page *by_session; /* those of sessions that are there */
        uint32_t n;                     /* also those that are going */
        enum stream_order order;
        char why[160];
};

int signals_new(struct signals **ret, struct quotas *quotas) {
        struct signals *s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;
        s->quotas = quotas;
        signals_offer(s, ORDER_HOST, "this tuttid has no GPU");
        *ret = s;
        return 0;
}

void signals_free(struct signals *s) {
        if (!s)
                return;
        CHECK(s->n == 0 && !s->by_session);
        free(s);
}

void signals_offer(struct signals *s, enum stream_order order, const char *why) {
        s->order = order;
        snprintf(s->why, sizeof(s->why), "%s", why);
}

bool order_is_better(enum stream_order a, enum stream_order b) {
        static const int rank[] = { [ORDER_HOST] = 1, [ORDER_EVENTS] = 2, [ORDER_TIMELINE] = 3 };
        return rank[a] > rank[b];
}

enum stream_order signals_offered(const struct signals *s) {
        return s->order;
}

const char *signals_why(const struct signals *s) {
        return s->why;
}

uint32_t signals_count(const struct signals *s) {
        return s->n;
}

/* --- on a memory thread --- */

static int make_page(struct signal_page *p) {
        CLEANUP_FD int fd = memfd_new("tutti-signals", 0);
        const off_t n_bytes = (off_t)p->memory.n_bytes;
        if (fd < 0)
                return fd;
        if (ftruncate(fd, n_bytes) < 0 || fallocate(fd, 0, 0, n_bytes) < 0 ||
                fcntl(fd, F_ADD_SEALS, PAGE_SEALS) < 0)
                return -errno;
        void *at = mmap(NULL, SIGNAL_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (at == MAP_FAILED)
                return -errno;
        p->slots = at;
        p->chore.fd = fd_take(&fd);
        int r = memfd_open_anew(p->chore.fd, O_RDONLY);
        if (r < 0)
                return r;
        p->chore.read_fd = r;
        return 0;
}

static void think_make(struct chore *chore) {
        struct signal_page *p = (struct signal_page *)(void *)chore;
        int r = make_page(p);
        chore->status = STATUS_OK;
        if (r == 0)
                return;
        chore->status = r == -EMFILE || r == -ENFILE   ? STATUS_LIMIT
                        : r == -ENOMEM || r == -ENOSPC ? STATUS_NO_MEMORY
                                                       : STATUS_INTERNAL;
        snprintf(chore->why, sizeof(chore->why), "its signal page cannot be made: %s", strerror(-r));
}

/* A stream may have written more meanwhile: a word never goes back. */
static void think_write(struct chore *chore) {
        struct signal_page *p = (struct signal_page *)(void *)chore;
        for (uint32_t i = 0; i < SIGNAL_SLOTS; i++)
                if (p->batch[i] > atomic_load_explicit(&p->slots[i].done, memory_order_relaxed))
                        atomic_store_explicit(&p->slots[i].done, p->batch[i], memory_order_release);
}

static void think_release(struct chore *chore) {
        struct signal_page *p = (struct signal_page *)(void *)chore;
        if (p->slots)
                munmap(p->slots, SIGNAL_PAGE_BYTES);
        p->slots = NULL;
        fd_close(&chore->read_fd);
        if (!memfd_is_had(chore->fd))
                fd_close(&chore->fd);
}

/* --- chores --- */

static void page_start_chore(struct signal_page *p, void (*think)(struct chore *), struct list *chores) {
        p->is_out = true;
        p->chore.kind = CHORE_THINK;
        p->chore.think = think;
        list_append(chores, &p->chore.link);
}

/* Its events, where the worker has made any; then itself. */
static void page_let_go(struct signal_page *p, struct list *chores) {
        if (!p->chore.memory) {
                page_start_chore(p, think_release, chores);
                return;
        }
        p->is_out = true;
        p->chore.kind = CHORE_RELEASE;
        list_append(chores, &p->chore.link);
}

/* The next thing that it needs, if any: what is due is written before the page goes. */
static void page_go_on(struct signal_page *p, struct list *chores) {
        if (p->is_out || !p->is_ready)
                return;
        if (p->is_due) {
                memcpy(p->batch, p->due, sizeof(p->batch));
                memset(p->due, 0, sizeof(p->due));
                p->is_due = false;
                page_start_chore(p, think_write, chores);
        } else if (p->is_doomed && p->n_uses == 0) {
                p->is_ready = false;
                page_let_go(p, chores);
        }
}

static void page_free(struct signals *s, struct signal_page *p) {
        charge_release(&p->descriptors);
        charge_release(&p->bytes);
        free(p);
        s->n--;
}

static struct signal_page *signals_find(const struct signals *s, uint64_t session) {
        struct signal_page *p;
        HASH_FIND(hh, s->by_session, &session, sizeof(session), p);
        return p;
}

bool signals_own(const struct chore *chore) {
        return chore->path == PATH_EVENTS ||
               (chore->kind == CHORE_THINK && (chore->think == think_make || chore->think == think_write ||
                                                      chore->think == think_release));
}

struct memory *signals_leaving(struct chore *chore) {
        return signals_own(chore) && chore->kind == CHORE_THINK && chore->think == think_release
                       ? &((struct signal_page *)(void *)chore)->memory
                       : NULL;
}

/* The worker takes it with the descriptor, which stays ours, and makes its events. */
static void page_ask_for_events(struct signal_page *p, struct list *chores) {
        p->is_out = true;
        p->chore.kind = CHORE_IMPORT;
        p->chore.n_bytes = p->memory.n_bytes;
        p->chore.access = ACCESS_INOUT;
        list_append(chores, &p->chore.link);
}

/* Of an attempt that failed: nobody hears of it any more. */
static void page_give_up(struct signals *s, struct signal_page *p, struct list *chores) {
        if (!p->is_doomed)
                HASH_DEL(s->by_session, p);
        p->is_doomed = true;
        if (p->slots)
                page_let_go(p, chores);
        else
                page_free(s, p);
}

static void page_made(
        struct signals *s, struct signal_page *p, struct list *chores, struct signals_news *ret) {
        *ret = (struct signals_news){ .session = p->session,
                .request = p->request,
                .status = p->chore.status,
                .order = p->order,
                .fd = p->chore.read_fd };
        memcpy(ret->why, p->chore.why, sizeof(ret->why));
        if (p->chore.status != STATUS_OK) {
                page_give_up(s, p, chores);
                return;
        }
        p->is_ready = true;
        page_go_on(p, chores);
}

/* What somebody still has stays charged: the caller keeps it. The descriptor that the client was given is
 * closed. */
static bool page_is_gone(struct signals *s, struct signal_page *p, struct signals_news *ret) {
        *ret = (struct signals_news){ .is_gone = true, .fd = fd_take(&p->chore.fd) };
        if (ret->fd >= 0) {
                charge_lower(&p->descriptors, 1);
                ret->descriptors = p->descriptors;
                ret->bytes = p->bytes;
                p->descriptors = p->bytes = (struct charge){ 0 };
        }
        page_free(s, p);
        return true;
}

bool signals_chore_done(
        struct signals *s, struct chore *chore, struct list *chores, struct signals_news *ret) {
        struct signal_page *p = (struct signal_page *)(void *)chore;
        p->is_out = false;
        if (chore->kind == CHORE_RELEASE) {
                page_start_chore(p, think_release, chores);
                return false;
        }
        if (chore->kind == CHORE_IMPORT ||
                (chore->think == think_make &&
                        (p->order != ORDER_EVENTS || chore->status != STATUS_OK || p->is_doomed))) {
                page_made(s, p, chores, ret);
                return true;
        }
        if (chore->think == think_make) {
                page_ask_for_events(p, chores);
                return false;
        }
        if (chore->think == think_release)
                return page_is_gone(s, p, ret);
        page_go_on(p, chores);
        return false;
}

/* --- what is asked for --- */

static enum status page_charge(struct signals *s, struct signal_page *p, struct error *err) {
        enum status status =
                quota_charge(s->quotas, &p->descriptors, p->chore.uid, QUOTA_DESCRIPTORS, 2, err);
        if (status != STATUS_OK)
                return status;
        return quota_charge(
                s->quotas, &p->bytes, p->chore.uid, QUOTA_MAPPED_BYTES, p->memory.n_bytes + sizeof(*p), err);
}

static struct signal_page *page_new(struct signals *s, const struct signals_ask *ask) {
        struct signal_page *p = calloc(1, sizeof(*p));
        if (!p)
                return NULL;
        s->n++;
        list_init(&p->chore.link);
        p->session = p->chore.session = p->memory.session = ask->session;
        p->request = ask->request;
        p->chore.uid = ask->uid;
        p->chore.fd = p->chore.read_fd = -1;
        p->order = ask->order;
        p->memory.n_bytes = ask->order == ORDER_EVENTS ? SIGNAL_EVENT_BYTES : SIGNAL_PAGE_BYTES;
        p->memory.path = p->chore.path = ask->order == ORDER_EVENTS ? PATH_EVENTS : PATH_MEMFD;
        p->chore.device = ask->device;
        return p;
}

enum status signals_open(
        struct signals *s, const struct signals_ask *ask, struct list *chores, struct error *err) {
        if (signals_find(s, ask->session))
                return error_set(err, STATUS_INVALID, FIELD_UNSPECIFIED,
                        "this connection has a signal page already; one serves all its streams");
        struct signal_page *p = page_new(s, ask);
        bool is_in = p != NULL;
        if (p) {
                enum status status = page_charge(s, p, err);
                if (status != STATUS_OK) {
                        page_free(s, p);
                        return status;
                }
                TABLE_ADD(s->by_session, p, session, is_in);
        }
        if (!is_in) {
                if (p)
                        page_free(s, p);
                return error_set(err, STATUS_NO_MEMORY, FIELD_UNSPECIFIED, "tuttid is short of memory");
        }
        page_start_chore(p, think_make, chores);
        return STATUS_OK;
}

enum status signals_use(struct signals *s, uint64_t session, const struct msg_signal *signal,
        struct signal_page **ret, struct error *err) {
        struct signal_page *p = signals_find(s, session);
        if (!p || !p->is_ready)
                return error_set(err, STATUS_INVALID, FIELD_OPTIONS,
                        "it names slot %u of a signal page, and this connection has none; ask for it first "
                        "and wait for the answer",
                        signal->slot);
        const uint32_t n_slots = signal_page_has_events(p) ? SIGNAL_EVENTS : SIGNAL_SLOTS;
        if (signal->slot >= n_slots)
                return error_set(err, STATUS_INVALID, FIELD_OPTIONS,
                        "it names slot %u of the signal page, which has %u", signal->slot, n_slots);
        p->n_uses++;
        *ret = p;
        return STATUS_OK;
}

void signals_end_use(struct signals *s, struct signal_page *p, struct list *chores) {
        (void)s;
        CHECK(p->n_uses > 0);
        p->n_uses--;
        page_go_on(p, chores);
}

void signals_set_done(
        struct signals *s, uint64_t session, const struct msg_signal *signal, struct list *chores) {
        struct signal_page *p = signal->value ? signals_find(s, session) : NULL;
        if (!p || signal->slot >= SIGNAL_SLOTS)
                return;
        if (p->due[signal->slot] < signal->value)
                p->due[signal->slot] = signal->value;
        p->is_due = true;
        page_go_on(p, chores);
}

struct memory *signal_page_memory(struct signal_page *page) {
        return signal_page_has_events(page) ? page->chore.memory : &page->memory;
}

bool signal_page_has_events(const struct signal_page *page) {
        return page->order == ORDER_EVENTS;
}

int signal_page_fd(const struct signal_page *page) {
        return page->chore.fd;
}

void signals_end_session(struct signals *s, uint64_t session, struct list *chores) {
        struct signal_page *p = signals_find(s, session);
        if (!p)
                return;
        HASH_DEL(s->by_session, p);
        p->is_doomed = true;
        page_go_on(p, chores);
}
