/* Going on after tuttid has ended (P9), where the connection was opened so.
 *
 *   UP --the socket ends--> AWAY --connected, hello sent--> GREETING --welcome--> UP
 *   |                        ^ +--too long--> lost          ^ |
 *   |                        +--------the socket ends-------|-+
 *   +--handed over: hello sent on the same socket-----------+
 *
 * There is no hidden thread: whoever waits, tests, dispatches or starts something takes a step
 * (reconnect_go_on). Meanwhile requests are held. When a new tuttid is there it gets, in this order: hello;
 * every region under its old number; for each group what is known of its unfinished requests (Pages) and a
 * Join that resumes it; what is held and belongs to no group. When a group is back, the new status page says
 * what became of its requests: done or failed ends a work, and the rest is submitted again, under the old
 * request numbers. So a work, once numbered, keeps a copy of what it asked for (struct kept).
 *
 * What was known from the old page stays with the work until a new one knows better, so that another death of
 * tuttid while groups come back loses nothing.
 *
 * Not carried over, since they are tuttid's memory or a device's: result objects and buffers in device
 * memory. A connection that has any is lost as without this. */
#pragma once

#include "lib/connection.h"
#include "wire/message.h"

enum link { LINK_UP, LINK_AWAY, LINK_GREETING };

struct reconnect {
        char path[108];
        double seconds; /* from the end of one tuttid until another has answered */
        /* Under `lock`. */
        enum link link;
        bool is_draining; /* tuttid takes nothing new: held until it has ended */
        bool has_resumed; /* a group is back, and its requests are to be sent */
        uint32_t n_ends;  /* of tuttids; what was sent bears it (sent_in) */
        uint64_t give_up_ns, next_try_ns;
        int timer; /* for tutti_fd, while away; -1 */
        int pidfd; /* that goes with the hello; -1 */
        struct call hello;
        struct call *sending; /* a work some of whose parts were sent: n_sent of its entries; NULL */
        uint32_t n_sent;
        atomic_bool has_work;
};

/* What a work has asked for. Under `lock` from its number on. */
struct kept {
        struct tutti_group *group; /* NULL: nothing is kept */
        struct msg_submit submit;
        struct entry *entries; /* [capacity] */
        uint32_t capacity;
        bool is_repeatable;    /* its inputs are there after its outputs have been written */
        enum page_state state; /* of the page of a tuttid that has ended */
        uint64_t collective;
        enum status status, cause; /* cause: of EXPIRED */
};

/* As tutti_open_args has it: s, or 0 for none. OK, INVALID, NO_MEMORY. */
enum status reconnect_new(struct tutti *t, const char *path, double seconds, struct error *err) MUST_USE;
void reconnect_free(struct tutti *t);

/* The socket has ended: true when what is under way is held until tuttid is back. Otherwise *why_not is set,
 * where it was asked for. Under `lock`. */
bool reconnect_begin(struct tutti *t, const char **why_not);
/* tuttid ends and has left the socket to the next one (docs/protocol.md, "After a restart"): true when what
 * is under way is held and hello will be said on it. false: it is of no use, and is to be given up. Under
 * `lock`. */
bool reconnect_take_over(struct tutti *t) MUST_USE;
/* Whether a call may be sent now (NULL: one that nobody waits for); otherwise it is held. Under `lock`. */
bool reconnect_may_send(const struct tutti *t, const struct call *call);
/* tuttid is being stopped and did not take this call: true when it is held. Under `lock`. */
bool reconnect_hold(struct tutti *t, struct call *call);
/* Whether `call` was made to come back, so that its end is looked at here. Under `lock`. */
void reconnect_call_ended(struct tutti *t, struct call *call);

/* Takes what steps can be taken. Not under any lock. Cheap where there is nothing to do. */
void reconnect_go_on(struct tutti *t);
/* When it wants to be called again, at the latest at `deadline_ns`. Under `lock`. */
uint64_t reconnect_next_ns(const struct tutti *t, uint64_t deadline_ns);
/* Whether there is a socket to look at. Under `lock`. */
bool reconnect_has_socket(const struct tutti *t);

/* Whether a work is to keep what it asks for. */
static inline bool reconnect_is_on(const struct tutti *t) {
        return t->reconnect != NULL;
}

/* --- resume.c; under `lock` unless it says otherwise --- */

/* What the page of the tuttid that has ended says of all works; those that belong to no group any more end.
 */
void resume_capture(struct tutti *t);
/* The next packet that brings things back, encoded: false when there is none. Under `sending` too. */
struct resume_packet {
        size_t n_bytes;
        int fd; /* borrowed; -1: none */
        bool is_hello;
};
bool resume_next_packet(struct tutti *t, struct resume_packet *ret);
/* The answer to a group's resuming Join has come. */
void resume_group(struct tutti *t, struct tutti_group *g);
/* The number that the membership has now, which may be another one than when the request was made. */
void resume_set_membership(struct request *request, uint64_t membership);

/* The member leaves a group that is not back. Where tuttid has been sent its Join, or Pages for it, Leave
 * follows the answer (enum parting). */
void resume_leave(struct tutti *t, struct tutti_group *g);
/* The handle goes: its works are nobody's. */
void resume_forget_group(struct tutti *t, struct tutti_group *g);

/* The half is about to be sent: keeps what it asks for. false: no memory. Before it is numbered, not under
 * `lock`. */
struct half;
bool kept_take(struct kept *k, const struct half *h, const struct msg_submit *submit) MUST_USE;
void kept_deinit(struct kept *k);
/* A work has ended: what has failed counts (docs/protocol.md). */
struct tutti_work;
void kept_note_end(struct tutti_work *w);
/* tuttid has answered before it had all parts: it ignores those that are left. */
void kept_stop_parts(struct tutti *t, const struct tutti_work *w);
