/* One connection to tuttid: its socket, what is under way on it, and how threads wait for it.
 *
 * There is no hidden thread. Of the threads that wait, one is the leader: it sleeps in poll on the socket and
 * on an eventfd, outside the lock, takes in what arrives, and wakes whoever it was for; the others sleep on a
 * condition of their own. When the leader has what it came for, the next one leads. Any thread may take in
 * packets in passing (dispatch, test, a full socket); where these are the leader's, the eventfd tells it.
 * Who sleeps on the descriptor of tutti_fd is told by another eventfd, `news`, when a work has ended without
 * tutti_dispatch.
 *
 * Locks, always in this order: growing (regions are made by one thread at a time), sending (a request with
 * all its parts), lock (everything else; never held across a call that blocks). */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <tutti/tutti.h>
#include "base/arena.h"
#include "base/list.h"
#include "lib/failure.h"
#include "lib/fork.h"
#include "lib/lane.h"
#include "lib/prepared.h"
#include "lib/recall.h"
#include "model/error.h"
#include "wire/channel.h"
#include "wire/message.h"

#define WAIT_FOREVER UINT64_MAX

enum call_type {
        CALL_PLAIN, /* only its status matters */
        CALL_WELCOME,
        CALL_JOIN,
        CALL_ROWS,
        CALL_OBJECT,
        CALL_MADE,
        CALL_ORDER,
        CALL_LANE,
        CALL_WORK,
        CALL_RESUME, /* embedded in its group */
};

struct tutti_group;
struct reconnect;

/* A request under way, embedded in what waits for its reply. Under `lock`. */
struct call {
        struct list node; /* in `others`, or in no list */
        enum call_type type;
        uint64_t request;
        uint32_t n_cancels; /* ends the waits that began before */
        bool is_launched;   /* CALL_WORK: its stream may follow */
        bool is_ended;
        uint32_t ended_in;           /* which tuttid has ended it, of those in turn */
        uint32_t n_parts;            /* of its reply that came before the last one */
        bool is_held;                /* to be sent when tuttid, or the group, is back (reconnect.h) */
        struct tutti_group *group;   /* whose membership the request names; NULL: none */
        const struct request *again; /* what is sent when it was held; NULL: of a work or a group */
        enum status status;          /* when ended */
        struct failure *failure;     /* when ended with other than OK; NULL: no memory for it */
        struct msg_joined joined;
        struct answer *answer;           /* CALL_ROWS: collects */
        struct object_made *made;        /* CALL_OBJECT: takes what was made */
        struct device_made *made_device; /* CALL_MADE: likewise */
        struct order_granted *order;     /* CALL_ORDER: takes what was granted */
};

/* A thread that waits for a call; on its stack. */
struct waiter {
        struct list node;
        const struct call *call;
        bool is_for_launch; /* or the end */
        pthread_cond_t woken;
};

/* How many entries are turned into wire form at a time; more than one packet holds is in vain. */
#define WINDOW_ENTRIES 1024

struct tutti {
        struct fork_guard *guard;
        int socket, event, epoll;
        int news;      /* -1: tutti_fd was not asked for */
        bool has_user; /* questions are about this one; set before they are asked */
        uint32_t user;

        pthread_mutex_t growing;

        pthread_mutex_t sending;
        uint8_t *send_bytes;
        struct entry *window;
        struct arena scratch;
        struct memory_of_halves halves;

        pthread_mutex_t lock;
        uint8_t *receive_bytes;
        struct arena decoding;
        uint64_t next_request;
        struct call *slots[STATUS_PAGE_SLOTS]; /* submissions that run: those that use the status page */
        uint32_t n_slots_used;
        struct list others; /* all other calls, oldest first */
        struct list waiters;
        struct waiter *leader;       /* who sleeps in poll */
        bool is_dispatching;         /* by tutti_dispatch */
        bool has_news;               /* a work has ended otherwise since the last tutti_dispatch */
        bool is_lost;                /* the connection has ended; `lost` is why, for later calls */
        struct failure *lost;        /* NULL: no memory for it */
        struct failure *last_words;  /* an ejection, which the end of file will follow */
        struct reconnect *reconnect; /* NULL: not asked for */
        struct list registrations;   /* struct region.registration: all that tuttid was told of */
        struct memory_of_calls calls;
        const struct page_slot *page;   /* of tuttid, read-only */
        const struct lane_board *board; /* behind it; NULL: tuttid has none */
        struct lane lane;
        struct call opening_lane;
        struct list groups, buffers, regions, dead_regions, objects;
        uint32_t n_unwanted;   /* slots of objects that are to be given back */
        uint64_t object_words; /* bit w - 1: word w of the lane's page is an object's */
        struct list works, spare_works;
        struct list spare_pieces; /* struct tutti_buffer: of staging, in no use */
        struct order *order;      /* NULL: not asked for; set once */
        uint64_t next_region;
        bool wants_huge_pages; /* for buffers of which nothing is said; set before there are any */

        void *memory; /* of send_bytes, window, arenas, receive_bytes */
};

/* Unmaps the status page. */
void connection_drop_page(struct tutti *t);
/* Takes over a connected socket. OK, NO_MEMORY, LIMIT (no descriptors left), INTERNAL. */
enum status connection_new(int socket, struct tutti **ret, struct error *err) MUST_USE;
/* Closes and frees; what hangs on it must be gone. */
void connection_free(struct tutti *t);

/* OK, or FORKED or DAEMON_LOST, which is then the thread's error. */
enum tutti_status connection_check(struct tutti *t) MUST_USE;

/* --- calls --- */

void call_init(struct call *call, enum call_type type);
/* Forgets it: its reply will be ignored. Under `lock`. */
void call_drop(struct tutti *t, struct call *call);
/* Lets go of what the end left in it. */
void call_deinit(struct call *call);
/* Takes the call's end as the thread's error; returns its status. */
enum tutti_status call_take_failure(struct call *call);

/* The call has ended: wakes who waits for it. Takes the reference to `f`. Under `lock`. */
void call_end(struct tutti *t, struct call *call, enum status status, struct failure *f);
/* What its stream may wait for is on its way. Under `lock`. */
void call_launched(struct tutti *t, struct call *call);
/* Ends the waits for it. Under `lock`. */
void call_cancel_waits(struct tutti *t, struct call *call);

/* Takes in everything that has arrived, without blocking. Under `lock`. */
void connection_take_in(struct tutti *t);

/* From here on `news` is rung; also of what has ended before. false: no descriptor is left. Under `lock`. */
bool connection_open_news(struct tutti *t) MUST_USE;

/* The same as connection_take_in, and makes the descriptor of tutti_fd unreadable. Under `lock`. */
void connection_dispatch(struct tutti *t);

/* The connection is over: every call ends. `because` is a sentence more for the text, or "". Under `lock`. */
void connection_lose(struct tutti *t, const char *because);

/* The same, where tuttid is not waited for any longer. Under `lock`. */
void connection_give_up(struct tutti *t, const char *because);

enum wait_end { WAIT_GOES_ON, WAIT_ENDED, WAIT_CANCELLED, WAIT_TIME };

/* Waits until the call has ended, until `deadline_ns`, or until the wait is cancelled. Under `lock`, which it
 * gives up while it sleeps. */
enum wait_end connection_wait(struct tutti *t, const struct call *call, uint64_t deadline_ns);

/* The same, until it has been launched or has ended. */
enum wait_end connection_wait_launched(struct tutti *t, const struct call *call, uint64_t deadline_ns);

/* --- sending (send.c) --- */

/* Sends a request that is no running submission, with its descriptors. `call` gets its reply; NULL: the reply
 * is ignored. OK, or DAEMON_LOST, LIMIT (does not fit into a packet): nothing is under way, and *err says
 * why. Blocks while tuttid does not read. */
enum status send_request(
        struct tutti *t, struct request *request, struct call *call, int fd, struct error *err) MUST_USE;

/* Waits until a small request can be sent without blocking. */
bool send_has_room(struct tutti *t, int seconds);

/* send_request, and waits for the reply: its status is the thread's. */
enum tutti_status send_and_wait(struct tutti *t, struct request *request, struct call *call) MUST_USE;

/* The same with what tuttid answers at once, if it runs at all: NO_DAEMON after ten seconds in which it says
 * nothing. */
enum tutti_status send_and_ask(struct tutti *t, struct request *request, struct call *call) MUST_USE;

/* Under `sending`: gives `call` the number of a submission that runs. LIMIT: STATUS_PAGE_SLOTS are
 * unfinished; DAEMON_LOST. */
enum status send_number_submission(
        struct tutti *t, struct request *request, struct call *call, struct error *err) MUST_USE;
/* Under `sending`: gives any other call, or NULL, its number. DAEMON_LOST. */
enum status send_number(
        struct tutti *t, struct request *request, struct call *call, struct error *err) MUST_USE;
/* Under `sending`: one packet; a numbered request must be sent. A lost connection is not told here: the call
 * has ended with it. false: it does not fit into a packet. */
bool send_packet(struct tutti *t, const struct request *request, int fd) MUST_USE;
/* Under `sending`: whether a call that has its number (NULL: one that nobody waits for) is to be sent now. */
bool send_may_go(struct tutti *t, const struct call *call) MUST_USE;
/* Under `sending`: what is encoded in send_bytes. */
void send_bytes(struct tutti *t, size_t n_bytes, int fd);
