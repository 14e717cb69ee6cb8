/* The rows of answers (conductor-rows.c), for whoever puts answers together (conductor-queries.c).
 *
 * An answer may have many thousand rows, and one loop serves everybody: it is written a slice at a time, and
 * `struct query` remembers where it stands. */
#pragma once

#include "conductor-internal.h"

#define MAX_ROWS_A_PACKET  128
#define MAX_QUESTION_BYTES 128 /* longer names are nobody's */
#define LOOKS_A_ROW        32
#define MAX_LISTED_USERS   256 /* whose quotas an admin is told without asking for each */

/* An answer under way. */
struct query {
        struct list link; /* struct conductor.queries: its next slice is due; else it waits for its reader */
        uint64_t session, request;
        enum what what;
        bool has_user; /* it names whom it is about */
        char job[MAX_QUESTION_BYTES], group[MAX_QUESTION_BYTES];
        uint32_t part;           /* of the answer: those before it are written */
        uint64_t group_id;       /* in this part: groups up to this one are written */
        uint32_t rank;           /* of the next group: ranks below this one are written */
        struct told told;        /* the buffers before this are written */
        uint64_t epoch;          /* WHAT_DUMP: which record; 0: the newest one */
        bool ended_members;      /* WHAT_GROUPS */
        uint64_t recording;      /* which one is dumped; of ended groups, whose members are under way */
        uint64_t member_cursor;  /* in these */
        struct row_dump dump;    /* WHAT_DUMP: what is told at its end */
        struct record_cursor at; /* in it */
        uint64_t end;            /* the number behind the last record that was there when it was asked */
        uint64_t n_missed, n_missed_here; /* of those: gone before they were told; behind the one told last */
        uint64_t cursor;                  /* in the text of a plan, in bytes */
        struct plan_text *plan;           /* WHAT_PLAN: owned */
        uint64_t asked_ns; /* from when the ages of its records count back, in whichever turn they are written
                            */
};

/* Collects the rows of one slice and sends a part whenever a packet is full. What a row points to is kept
 * until then in `arena`. */
struct row_writer {
        struct conductor *conductor;
        struct session *session;
        uint64_t request;
        struct row rows[MAX_ROWS_A_PACKET];
        uint32_t n_rows;
        struct arena arena;
        uint8_t memory[1 << 20];
};

/* Room for one more row, with `bytes` of arena behind it. */
struct row *writer_add(struct row_writer *w, enum row_type type, size_t bytes);
/* LOOKS_A_ROW things that there is no row for were looked at: in the time of one. */
void writer_pass(struct row_writer *w);
/* It has written enough for this turn. */
bool writer_is_tired(const struct row_writer *w);

/* All that is to be known of who has this rank. What *ret points to lives as long as the group. */
void fill_member(struct conductor *c, const struct group *g, uint32_t rank, struct row_member *ret);

/* Each writes its rows: all (true), or as many as it may, and will go on. */
bool write_daemon(struct row_writer *w, struct query *q);
bool write_devices(struct row_writer *w, struct query *q);
bool write_gpus(struct row_writer *w, struct query *q);
bool write_shortage(struct row_writer *w, struct query *q);
bool write_buffers(struct row_writer *w, struct query *q);
bool write_group(struct row_writer *w, struct query *q, const struct group *g);
bool write_members(struct row_writer *w, struct query *q, const struct group *g);
bool write_pending(struct row_writer *w, struct query *q, const struct group *g);
bool write_results(struct row_writer *w, struct query *q, const struct group *g);
bool write_kinds(struct row_writer *w, struct query *q, const struct group *g);
bool write_classes(struct row_writer *w, struct query *q, const struct group *g);
bool write_fallbacks(
        struct row_writer *w, struct query *q, const struct group *g); /* conductor-fallbacks.c */
bool write_histograms(struct row_writer *w, struct query *q, const struct group *g);
bool write_lateness(struct row_writer *w, struct query *q, const struct group *g);

/* conductor-plan.c. Plans what a WHAT_PLAN asks about; *ret is one block, for free(). What the collective
 * itself would be answered, or LIMIT. */
enum status plan_text_make(
        struct conductor *c, const struct msg_query *ask, struct plan_text **ret, struct error *err) MUST_USE;
bool write_plan(struct row_writer *w, struct query *q);

void write_record(struct row_writer *w, const struct row_record *record);
