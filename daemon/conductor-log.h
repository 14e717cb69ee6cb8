/* What the conductor writes into the log: one line for each group that formed, each replica that was lost,
 * each session that was ejected or turned away, each collective that did not end OK or is stalled, or whose
 * numbers seem not as wanted. Each names group, key, rank and pid as far as they are known. */
#pragma once

#include "conductor-internal.h"

/* A new epoch of the group has begun. */
void conductor_log_formed(const struct group *g);
/* A session ends: a line for each of its memberships that is not over. */
void conductor_log_loss(const struct conductor *c, const struct session *s, enum loss loss, const char *why);
void conductor_log_ejected(const struct conductor *c, const struct session *s);
/* Once for a connection, where huge pages were asked for and it says that there were none in the pool. */
void conductor_log_pages(const struct conductor *c, struct session *s, const struct msg_register *reg);
void conductor_log_turned_away(const struct error *err, uint32_t uid);
/* `m`: of those of its group that gather, the oldest; `err`: whom it lacks, whose processes have been probed.
 */
void conductor_log_stall(const struct meeting *m, const struct error *err, uint64_t now_ns);
/* Nothing where it ended OK. */
void conductor_log_end(const struct meeting *m);
/* Nothing where nothing was found. */
void conductor_log_findings(const struct meeting *m, const struct findings *found);
/* The first of its kind in this group. */
void conductor_log_fallback(const struct group *g, const struct fallback_run *run);
void conductor_log_blocked(const struct meeting *m, uint64_t blocked_ns);
