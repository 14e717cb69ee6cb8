/* What rings when in rendezvous, users in turn: each share of users has a clock of its own, so that thousands
 * of deadlines of one user that fall together do not stand before one of another user (P21). On one clock
 * alarms ring in the order of their instants.
 *
 * Owned by rendezvous. As in a heap, an alarm must have entered before it may be set, so that setting one
 * cannot fail. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/heap.h"

#define N_CLOCKS 64 /* users whose numbers are equal modulo this share one */

enum alarm_kind {
        ALARM_BUSY_END,  /* struct member.busy_end */
        ALARM_DEADLINE,  /* struct meeting.deadline */
        ALARM_JOINING,   /* struct group.join_deadline */
        ALARM_REFORMING, /* struct reform.deadline */
        ALARM_STALL,     /* struct group.stall */
        N_ALARM_KINDS
};

struct clock {
        struct alarm first; /* in clocks.first: when the first of all these is due */
        struct heap alarms[N_ALARM_KINDS];
        size_t n[N_ALARM_KINDS]; /* that have entered */
};

struct clocks {
        struct clock shares[N_CLOCKS];
        struct heap first;
        uint32_t turn; /* whose clock is looked at next */
};

/* 0 or -ENOMEM. */
int clocks_init(struct clocks *c);
/* Every alarm has left. */
void clocks_deinit(struct clocks *c);

/* Makes room for one more alarm; false: memory is short. */
bool clocks_reserve(struct clocks *c, uint32_t uid, enum alarm_kind kind);
/* Behind it, it counts; behind the latter, which it must not be set for, no more. */
void clocks_enter(struct clocks *c, uint32_t uid, enum alarm_kind kind);
void clocks_leave(struct clocks *c, uint32_t uid, enum alarm_kind kind);

/* Sets, moves, or (with ALARM_NEVER) clears it. */
void clocks_set(struct clocks *c, uint32_t uid, enum alarm_kind kind, struct alarm *alarm, uint64_t at_ns);

uint64_t clocks_next_ns(const struct clocks *c);

/* The first alarm of a user who has one that is due: of each in turn. It stays set. NULL: none. */
struct alarm *clocks_next_due(struct clocks *c, uint64_t now_ns, enum alarm_kind *ret_kind);
