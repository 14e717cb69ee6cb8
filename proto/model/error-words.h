/* Pieces of the sentences about errors. Private to error-print.c.
 *
 * They are made from struct error alone, in tuttid and in its clients alike, so that both speak the same
 * words. Names and details were given by clients: they pass through say_plain or key_print, so that none can
 * forge a line. */
#pragma once

#include "model/error.h"

/* Whether it is about a collective (and not about a join, a buffer, a connection). */
bool error_is_of_collective(const struct error *e);

/* The report of `rank`, or NULL. */
const struct replica_report *error_find_report(const struct error *e, int64_t rank);

/* Text of a client, control bytes replaced. */
void say_plain(struct text *t, const char *s);

/* "STATUS: reduce \"grad/7\" in dp/train (epoch 3): ", as much of it as is known. */
void say_head(const struct error *e, struct text *t);

/* " of entry 137" of a batch; a single reduce has but one. */
void say_entry(const struct error *e, struct text *t);

/* The detail as a sentence, or what stands for it where there is none. */
void say_detail_or(const struct error *e, const char *otherwise, struct text *t);
/* The detail behind a sentence that stands without it. */
void say_more_detail(const struct error *e, struct text *t);
/* "destinations of entry 137: what is wrong." */
void say_complaint(const struct error *e, struct text *t);

/* "R2 (pid 4711, uid 1000)". */
void say_replica(const struct error *e, int64_t rank, struct text *t);
/* "last finished \"grad/7\" 4 ms ago". */
void say_last(const struct replica_report *r, struct text *t);
/* "R3 (pid 4711, uid 1000, alive, stopped; last finished \"grad/6\" 12.5 s ago)". */
void say_report(const struct replica_report *r, struct text *t);
/* The missing, with what is known of each; who does not fit is named by rank. */
void say_missing(const struct error *e, struct text *t);
/* "Here: R0 R1; missing: R2 (...)." */
void say_presence(const struct error *e, struct text *t);

/* "shape of entry 137 differs. R0 R1 R3: f32[1024,10]; R2: f32[1000,10]." */
void say_difference(const struct error *e, struct text *t);
/* A difference that was known when something else ended the collective. */
void say_known_difference(const struct error *e, struct text *t);

/* " 4 ms ago", when it is known. */
void say_ago(const struct error *e, struct text *t);

/* The last line: what holds now of a collective, and what to do. */
void say_end(const struct error *e, const char *advice, struct text *t);
