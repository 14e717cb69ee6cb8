/* The lane: a kept half is started in shared memory, and its end is seen in the status page, without a
 * packet.
 *
 *   nobody's --lane_start--> started --done, in the page---> ended
 *      ^                       +--passed, by the board; or the budget is spent: Ring--> answered by a packet
 *      +----------------------------------------------------------------------------------+
 *
 * One start at a time, by a thread that waits for it at once: it yields for a bounded while, and who is about
 * to sleep has rung first. Everything else goes by the socket, and whatever goes by the socket makes tuttid
 * hand over what was started here. Under `lock`, written under `sending` too. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "lib/waiting.h"
#include "wire/message.h"

struct tutti;
struct call;
struct packet;
struct remembered;
struct msg_start;

struct lane {
        bool is_off;            /* by the environment */
        bool is_asked;          /* for, of the tuttid that is there */
        struct lane_slot *slot; /* NULL: not there yet */
        int bell;
        uint64_t n_starts;
        struct call *call;    /* that was started in it; NULL: none */
        struct msg_done like; /* as its half has ended before */
        struct waiting waiting;
};

void lane_init(struct tutti *t);
/* Under `sending`: asks tuttid for one, once. */
void lane_ask(struct tutti *t);
/* A part of the answer. NULL, or what is wrong with it. */
const char *lane_take(struct tutti *t, const struct reply *reply, struct packet *packet);
/* The connection has ended, and may be another one later. */
void lane_let_go(struct tutti *t);
/* After that, or of a forked child. */
void lane_free(struct tutti *t);

/* Under `sending`, not `lock`: the half that is kept as *r, by a thread that waits for it at once. false: it
 * is to be sent. */
bool lane_start(
        struct tutti *t, struct call *call, const struct remembered *r, const struct msg_start *start);
/* Waits for a call that was started there, until it has ended or is answered by a packet. Harmless for every
 * other. Under `lock`, which it gives up meanwhile. */
void lane_wait(struct tutti *t, struct call *call);
