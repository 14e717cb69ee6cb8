/* The life of one connection: peer credentials, death watch, packets in and out, the status page.
 *
 *   OPEN --EOF or socket error--> LINGERING --pidfd, or 50 ms--> (conductor ends it) --session_close--> gone
 *     +------pidfd: the process has died--------------------------^
 *
 * Owned by the sessions object, driven by conductor.c; loop thread. Others know a session by its id, which is
 * never reused. A session touches no client memory; on client descriptors nothing is called here at all. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include "base/heap.h"
#include "base/list.h"
#include "doorbell.h"
#include "model/error.h"
#include "quota.h"
#include "viewer.h"
#include "wire/channel.h"
#include "wire/message.h"

struct sessions;
struct half;
struct query;
struct resume;
struct page_end;
struct loan;
struct loans;
struct lane;
struct lane_answer;

/* Why a session is in the ready list. */
enum session_event {
        SESSION_READABLE = 1 << 0,
        SESSION_DEAD = 1 << 1,      /* its process has ended */
        SESSION_HUNG_UP = 1 << 2,   /* EOF, and the process did not end within the grace time */
        SESSION_RESUMED = 1 << 3,   /* the conductor's: what it waited for is there, handle what is held */
        SESSION_CAUGHT_UP = 1 << 4, /* it has taken all that was queued */
};

struct session {
        uint64_t id;
        uint32_t uid, pid; /* pid 0: not visible from here */
        bool is_greeted;   /* hello was answered */
        bool is_leaving;   /* it said goodbye: EOF needs no explanation, and does not linger */
        bool is_kept;      /* its connection is of the tuttid before: until hello it is spoken to that one */
        bool may_be_handed_over; /* its client knows what to do when the next tuttid has it */
        char process[32];        /* the program's name, as it says */
        struct viewer viewer;    /* what it may see; is_admin and sees_all are the conductor's to say */
        unsigned int events;     /* enum session_event; taken with session_take_events */
        /* The conductor's notes on this connection. */
        struct half *assembly; /* a submission whose parts are coming */
        uint32_t n_assembled;
        uint32_t n_unfinished; /* submissions that rendezvous has: each needs a slot of the status page */
        struct resume *resume; /* what it has told of a membership that it will resume */
        struct list prepared;  /* struct prepared.link: what it may start again */
        struct lane *lane;     /* NULL: it has not asked for one */
        struct lane_answer *on_lane; /* what became of what it last started there; with the lane */
        uint32_t n_dropped;          /* packets for the tuttid before */
        uint64_t discarded;          /* request whose further parts are ignored; 0: none */
        /* A submission that waits for an import, or whose many entries are looked at in slices; reading
         * stands still. */
        struct half *held;
        uint64_t held_since_ns; /* 0: nothing is held */
        /* What was found of its process, and when. */
        enum process_state process_state;
        uint64_t probed_ns;
        bool is_ending;         /* its end has been seen; it goes when its turn comes again */
        bool is_going;          /* no road leads to it any more */
        bool is_short_of_pages; /* it has been logged that it has no huge pages of the pool */
        struct query *query;    /* an answer under way; reading stands still */
        char eject_why[160];    /* not empty: to be ended at the end of this turn */
        enum status eject_status;
        struct list eject_link;
};

int sessions_new(
        struct sessions **ret, uv_loop_t *loop, struct quotas *quotas, const struct doorbell *bell) MUST_USE;
/* Every session must have been closed, and the loop have run once after. */
void sessions_free(struct sessions *s);

/* Takes over an accepted socket. OK; PERMISSION (overflow uid), QUOTA (connections, descriptors), NO_MEMORY,
 * INTERNAL: *err says why and the socket stays the caller's, to tell the peer and close. */
enum status session_open(struct sessions *s, int socket, struct session **ret, struct error *err) MUST_USE;

struct session *session_find(const struct sessions *s, uint64_t id);
/* In order of age; NULL begins. */
struct session *sessions_next(const struct sessions *s, const struct session *after);
uint32_t sessions_count(const struct sessions *s);

/* The next session with events, users in turn; NULL: none. */
struct session *sessions_take_ready(struct sessions *s);
uint32_t sessions_n_ready(const struct sessions *s);
/* What has happened, and forgets it. */
unsigned int session_take_events(struct session *session);
/* Puts it into the ready list (again). */
void session_mark(struct sessions *s, struct session *session, enum session_event event);

/* The next packet, as channel_receive: *ret owns what came, whatever is returned. On 0 (EOF) or an error it
 * stops reading and begins to linger by itself. */
int session_receive(
        struct sessions *s, struct session *session, void *buf, struct packet *ret, uint64_t now_ns) MUST_USE;

/* Stops and resumes reading. What comes meanwhile is told behind it, by SESSION_READABLE. */
void session_pause(struct session *session);
void session_resume(struct sessions *s, struct session *session);

/* Sends or queues; what is queued is charged to its user. 0; -ENOBUFS: it reads nothing, the queue is full;
 * -EDQUOT: its user's clients together leave too much unread; -ETOOMANYREFS: too many of the descriptors that
 * were sent to clients have not been taken; -ENOMEM. A peer that is gone is no error: its end comes by other
 * ways. */
int session_send(struct sessions *s, struct session *session, const void *bytes, size_t n_bytes,
        const int *fds, uint32_t n_fds) MUST_USE;

/* Whether something is queued: SESSION_CAUGHT_UP will tell when it is not. */
bool session_is_behind(const struct session *session);

/* The page of the status protocol, and its descriptor, which is the caller's to send and close. As loan_make.
 */
enum status session_make_page(
        struct session *session, struct loans *loans, int *ret_fd, struct error *err) MUST_USE;
/* NULL before it was greeted. */
struct loan *session_page(const struct session *session);
void session_set_page(struct session *session, uint64_t request, uint64_t collective, enum page_state state);
/* PAGE_FAILED, with how it ended. */
void session_fail_page(struct session *session, const struct page_end *end);

/* Takes a pidfd that the client sent (kernels without SO_PEERPIDFD), if it is one of the peer's own pid.
 * false: it is not, and stays the caller's. */
bool session_take_pidfd(struct sessions *s, struct session *session, int fd);
bool session_has_pidfd(const struct session *session);

/* Alive, stopped, dead or unknown, from /proc. */
enum process_state session_probe(const struct session *session);
/* Whether the process has ended, by its pidfd, now. */
bool session_is_dead(const struct session *session);

/* Ends it: descriptors close, charges go, memory goes when the loop has closed its handles. */
void session_close(struct sessions *s, struct session *session);

/* Takes the socket of a session that is closed next: what lies unread in it is a stranger's, and is closed
 * with it. */
int session_take_socket(struct session *session);
/* The user behind a socket for which there is no session. */
uint32_t session_peer_uid(int socket);

/* The instant at which a lingering session is to be looked at; ALARM_NEVER: none. */
uint64_t sessions_next_ns(const struct sessions *s);
void sessions_expire(struct sessions *s, uint64_t now_ns);
