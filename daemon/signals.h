/* Signal pages: memory that a client's stream and the GPU worker's wait for each other in, one page for each
 * connection that asked (docs/protocol.md).
 *
 *     MAKING --made--> (EVENTS) --> READY --its session ends, and no half names it--> gone
 *        +---no memory--> gone
 *
 * Made by tuttid, sealed against resizing, written by both sides; so nothing that stands in a page is
 * believed here, and the loop thread never touches one: it is made, written and let go on a memory thread.
 * The client may have punched a hole into it, which can make a store wait; the page that then comes back is
 * no more than what tuttid had given it before. The worker writes `done` where it ran the collective; this
 * room writes it for every half that ended otherwise, because the client's stream waits for nobody's reply.
 *
 * Where streams cannot wait for values in memory, order is by events: then the page is longer, and goes to
 * the GPU worker before it is ready, which makes the events and writes their handles into it.
 *
 * A page, its descriptor and what is kept beside it are charged to its user. Owned by daemon.c, driven by
 * conductor.c; loop thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "backends/backend.h"
#include "base/check.h"
#include "base/list.h"
#include "model/error.h"
#include "quota.h"
#include "wire/message.h"

struct signals;
struct signal_page;

int signals_new(struct signals **ret, struct quotas *quotas) MUST_USE;
/* Every page must be gone. */
void signals_free(struct signals *s);

/* What is granted from now on, and why it is not more; "" with ORDER_TIMELINE. At first ORDER_HOST. */
void signals_offer(struct signals *s, enum stream_order order, const char *why);
enum stream_order signals_offered(const struct signals *s);
/* Whether `a` is more than `b`: host, events, timeline. */
bool order_is_better(enum stream_order a, enum stream_order b);
const char *signals_why(const struct signals *s);

struct signals_ask {
        uint64_t session, request;
        uint32_t uid;
        enum stream_order order; /* TIMELINE, EVENTS */
        uint32_t device;         /* EVENTS: a GPU, of the streams that will record and wait */
};

/* Begins to make the session's page: the chore is appended. INVALID (it has one), QUOTA, NO_MEMORY. */
enum status signals_open(
        struct signals *s, const struct signals_ask *ask, struct list *chores, struct error *err) MUST_USE;

/* A page was made, or not; or it has gone. */
struct signals_news {
        bool is_gone;
        uint64_t session, request;
        enum status status; /* made: OK, NO_MEMORY, LIMIT, INTERNAL; EVENTS also UNSUPPORTED, DEVICE_LOST */
        enum stream_order order;
        int fd; /* made: to be sent, it stays the room's. Gone: -1, or its memory, that somebody still has,
                   and what is charged for it: from here on the caller's */
        struct charge descriptors, bytes;
        char why[160];
};

/* Whether this chore, which has come back, is one of this room's. */
bool signals_own(const struct chore *chore);
/* The page that goes with this chore, NULL: none does. The worker has to let go of it first. */
struct memory *signals_leaving(struct chore *chore);
/* Takes it back. true: there is news in *ret. */
bool signals_chore_done(
        struct signals *s, struct chore *chore, struct list *chores, struct signals_news *ret);

/* Takes a use of the page that a half names; it stays until the use is given back. INVALID: there is no page
 * yet, or no such slot. */
enum status signals_use(struct signals *s, uint64_t session, const struct msg_signal *signal,
        struct signal_page **ret, struct error *err) MUST_USE;
void signals_end_use(struct signals *s, struct signal_page *page, struct list *chores);

/* The half has ended, and the worker has not said so: `done` is written soon. Harmless where there is no page
 * or no such slot. */
void signals_set_done(
        struct signals *s, uint64_t session, const struct msg_signal *signal, struct list *chores);

/* For the worker: what it knows the page by, and the descriptor that it imports, which stays the room's. */
struct memory *signal_page_memory(struct signal_page *page);
int signal_page_fd(const struct signal_page *page);
/* Its order is by events: the worker has it already. */
bool signal_page_has_events(const struct signal_page *page);

/* The page goes when no half names it any more. */
void signals_end_session(struct signals *s, uint64_t session, struct list *chores);

uint32_t signals_count(const struct signals *s);
