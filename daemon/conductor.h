/* Moves each request from stage to stage; the only room that knows the order of the stages.
 *
 *     packet -> session -> codec -> buffer, quota -> rendezvous -> planner -> engine -> done -> reply by
 * session id
 *
 * Everything that changes the fate of a collective (a packet, a session's end, an expired deadline, a
 * finished task) enters the same corridor: a call of rendezvous answers with an outcome, and conductor_settle
 * tells everybody concerned. Owned by daemon.c; loop thread; time is an argument. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "backends/backend.h"
#include "buffer.h"
#include "config.h"
#include "engine.h"
#include "lane.h"
#include "listener.h"
#include "planner.h"
#include "quota.h"
#include "recorder.h"
#include "rendezvous.h"
#include "result.h"
#include "service.h"
#include "session.h"
#include "signals.h"
#include "stats.h"
#include "worker.h"

struct conductor;

/* The rooms; all outlive the conductor. */
struct house {
        const struct config *config;
        struct quotas *quotas;
        struct listener *listener;
        struct loans *loans;
        struct sessions *sessions;
        struct buffers *buffers;
        struct results *results;
        struct signals *signals;
        struct rendezvous *rendezvous;
        struct planner *planner;
        struct engine *engine;
        struct lanes *lanes; /* NULL: there is no lane */
        struct workers *workers;
        struct backend *backend;
        struct recorder *recorder;
        struct stats *stats;
        struct service *service; /* NULL: nobody keeps connections for the next tuttid */
        const char *unconfined;  /* why tuttid is not confined; NULL or "": it is */
};

int conductor_new(struct conductor **ret, const struct house *house, uint64_t now_ns) MUST_USE;
void conductor_free(struct conductor *c);

/* A bell has rung or a deadline is due: pulls everything until there is nothing left, users in turn, at most
 * 16 packets a session; or until it has worked for some tenths of a millisecond (P21). true: there is more to
 * do at once, when the loop has looked for news. */
bool conductor_turn(struct conductor *c, uint64_t now_ns) MUST_USE;

/* The next instant at which a turn is due though no bell rings; ALARM_NEVER: none. */
uint64_t conductor_next_ns(const struct conductor *c);

/* The configuration has been read again. */
void conductor_reconfigured(struct conductor *c, uint64_t now_ns);

/* From here on nothing new is taken: submissions and joins get DRAINING, and so does what was not sealed yet.
 */
void conductor_drain(struct conductor *c, uint64_t now_ns);
/* Whether nothing is under way any more. */
bool conductor_is_idle(const struct conductor *c);
/* Ends all sessions. Where nothing is under way any more, connections go to the next tuttid that can go
 * there.
 */
void conductor_end_all(struct conductor *c, uint64_t now_ns);
/* Takes in the connections that come from the tuttid before. */
void conductor_take_kept(struct conductor *c, uint64_t now_ns);
